"""Compressors: blosc, zstd, lz4, gzip, zlib, bz2, lzma, and what numcodecs builds by name."""
