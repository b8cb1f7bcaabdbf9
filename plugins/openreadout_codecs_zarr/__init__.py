"""Codecs of the Zarr v3 specifications: bytes, transpose, reshape, crc32c, sharding_indexed."""
