"""gzip, zlib, bzip2, and xz with its relatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from openreadout.codecs import LIBRARY_ERRORS, Buffer, ByteSize, CodecLookup, CodecSpec, CoreForm
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.limits import GIB, MIB
from openreadout_codecs_compress.bounded import Decompressor, Streams, call, compressed_bound

GZIP_MAGIC = b"\x1f\x8b"
GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""A member without name, time or known system."""
GZIP_WINDOW = 31
ZLIB_WINDOW = 15
MAX_EMPTY_MEMBERS = 1000
"""Streams that give nothing in one chunk; each costs time, and no writer leaves more than one or two."""

BZIP2_MAGIC = b"BZh"
XZ_MAGIC = b"\xfd7zXZ\x00"
XZ_FORMAT, ALONE_FORMAT, RAW_FORMAT = 1, 2, 3
"""`FORMAT_XZ`, `FORMAT_ALONE`, `FORMAT_RAW` of Python's lzma, which numcodecs writes as numbers; 0 is either of two."""
XZ_MEMORY = 256 * MIB
"""What a decoder may hold besides its output; the strongest preset needs 65 MiB."""
DICTIONARY_FILTERS = (0x4000000000000001, 0x21)


# -- gzip and zlib ----------------------------------------------------------------------------------------------------


def decode_gzip(data: Buffer, size: ByteSize) -> Buffer:
    """Decode every member of a gzip file (RFC 1952), padded with zeros or not; also a zlib stream (RFC 1950).

    Some N5 and Zarr writers call zlib streams gzip; the first two bytes tell.
    """
    if not len(data):
        raise CorruptDataError("gzip: there are no data")
    if bytes(data[:2]) != GZIP_MAGIC:
        if is_zlib(data):
            return decode_zlib(data, size, "gzip")
        raise CorruptDataError("gzip: the data begin like neither a gzip nor a zlib stream")
    fast = _fast_gzip(data, size)
    return _slow_gzip(data, size) if fast is None else fast


def is_zlib(data: Buffer) -> bool:
    """Whether the data begin with a zlib header: deflate, a window of at most 32 KiB, and its check bits."""
    if len(data) < 2 or data[0] & 0x0F != 8 or data[0] >> 4 > 7:
        return False
    return (data[0] << 8 | data[1]) % 31 == 0


def _whole(decoder: Callable[..., Any], data: Buffer, size: ByteSize) -> memoryview | None:
    """What libdeflate makes of the first stream, if it gives the exact size; it takes half of zlib's time."""
    import numpy as np

    if not size.exact:
        return None
    out = np.empty(size.count, np.uint8)
    try:
        filled = len(decoder(data, out=out))
    except LIBRARY_ERRORS:
        return None  # several streams, or damage: the slow way finds out which and says so
    return out.data if filled == size.count else None


def _fast_gzip(data: Buffer, size: ByteSize) -> memoryview | None:
    """One member that ends with the data. libdeflate does not say where a member ends, its trailer does."""
    import imagecodecs

    out = _whole(imagecodecs.gzip_decode, data, size)
    if out is None:
        return None
    crc32: Callable[..., int] = imagecodecs.deflate_crc32
    trailer = crc32(out).to_bytes(4, "little")
    trailer += (len(out) & 0xFFFFFFFF).to_bytes(4, "little")
    return out if bytes(data[-8:]) == trailer else None


def _slow_gzip(data: Buffer, size: ByteSize) -> bytearray:
    import zlib

    streams = Streams("gzip", data, size, (zlib.error,))
    empty = 0
    while True:
        before = len(streams.out)
        streams.decode(cast("Decompressor", zlib.decompressobj(GZIP_WINDOW)))
        empty += len(streams.out) == before
        rest = streams.rest
        if _zeros(rest) == len(rest):  # what gzip(1) takes for the padding of a tape
            return streams.finish()
        if bytes(rest[:2]) != GZIP_MAGIC or empty > MAX_EMPTY_MEMBERS:
            raise CorruptDataError(
                f"gzip: {len(rest)} bytes that are no member follow the last one"
            )


def decode_zlib(data: Buffer, size: ByteSize, codec: str = "zlib") -> Buffer:
    """Decode one zlib stream (RFC 1950), which must be all there is."""
    import zlib

    import imagecodecs

    if not len(data):
        raise CorruptDataError(f"{codec}: there are no data")
    out = _whole(imagecodecs.deflate_decode, data, size)
    adler32: Callable[..., int] = imagecodecs.deflate_adler32
    if out is not None and bytes(data[-4:]) == adler32(out).to_bytes(4, "big"):
        return out
    streams = Streams(codec, data, size, (zlib.error,))
    streams.decode(cast("Decompressor", zlib.decompressobj(ZLIB_WINDOW)))
    return _nothing_after(streams)


def gzip_of_zlib(data: Buffer, raw: Buffer) -> bytes:
    """A zlib stream (RFC 1950) that decodes to `raw`, as one gzip member (RFC 1952) around the same deflate data."""
    import imagecodecs

    crc32: Callable[..., int] = imagecodecs.deflate_crc32
    trailer = crc32(raw).to_bytes(4, "little") + (len(raw) & 0xFFFFFFFF).to_bytes(4, "little")
    return GZIP_HEADER + bytes(data[2:-4]) + trailer


def _v3_level(spec: CodecSpec) -> int:
    """The level as Zarr v3 allows it; one that it does not is told as the default. Decoding does not depend on it."""
    level = spec.configuration.get("level")
    return level if type(level) is int and 0 <= level <= 9 else 5


def _nothing_after(streams: Streams) -> bytearray:
    if len(streams.rest):
        raise CorruptDataError(
            f"{streams.codec}: {len(streams.rest)} bytes follow the end of the stream"
        )
    return streams.finish()


def encode_gzip(data: Buffer, level: int) -> bytes:
    """Encode to one member without name and time, so that equal data give equal bytes."""
    import imagecodecs

    return bytes(call("gzip", imagecodecs.gzip_encode, data, level=level))


def encode_zlib(data: Buffer, level: int) -> bytes:
    """Encode to one zlib stream."""
    import imagecodecs

    return bytes(call("zlib", imagecodecs.deflate_encode, data, level=level))


# -- bzip2 ------------------------------------------------------------------------------------------------------------


def decode_bz2(data: Buffer, size: ByteSize) -> Buffer:
    """Decode every bzip2 stream of `data`."""
    import bz2

    streams = Streams("bz2", data, size, (OSError, ValueError, EOFError))
    empty = 0
    while True:
        before = len(streams.out)
        streams.decode(cast("Decompressor", bz2.BZ2Decompressor()))
        empty += len(streams.out) == before
        rest = streams.rest
        if not len(rest):
            return streams.finish()
        if bytes(rest[:3]) != BZIP2_MAGIC or empty > MAX_EMPTY_MEMBERS:
            raise CorruptDataError(f"bz2: {len(rest)} bytes that are no stream follow the last one")


def encode_bz2(data: Buffer, level: int) -> bytes:
    """Encode to one bzip2 stream."""
    import bz2

    return bz2.compress(data, level)


# -- xz and lzma ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LzmaFormat:
    """How lzma data are framed: `container` is a number of Python's lzma, `filters` what raw data were made with."""

    container: int
    filters: tuple[Mapping[str, Any], ...] | None


def decode_lzma(data: Buffer, size: ByteSize, form: LzmaFormat) -> Buffer:
    """Decode xz streams with padding between them, or one stream of the older `.lzma` kind or without a container.

    Notes
    -----
    XZ file format 1.2.1, section 2: streams follow each other, with zeros between them in multiples of four.
    """
    import lzma

    streams = Streams("lzma", data, size, (lzma.LZMAError, EOFError, ValueError))
    if form.container == RAW_FORMAT:
        _decode_one(streams, lambda: lzma.LZMADecompressor(RAW_FORMAT, filters=form.filters))
        return _nothing_after(streams)
    if form.container == ALONE_FORMAT or (not form.container and bytes(data[:6]) != XZ_MAGIC):
        _decode_one(streams, lambda: lzma.LZMADecompressor(ALONE_FORMAT, memlimit=XZ_MEMORY))
        return _nothing_after(streams)
    return _decode_xz(streams)


def _decode_one(streams: Streams, make: Callable[[], Any]) -> None:
    import lzma

    try:
        decompressor = make()
    except (ValueError, TypeError, OverflowError, lzma.LZMAError) as error:
        raise CorruptDataError(f"lzma: these filters cannot be used ({error})") from error
    streams.decode(decompressor)


def _decode_xz(streams: Streams) -> bytearray:
    import lzma

    for _ in range(MAX_EMPTY_MEMBERS + len(streams.view) // 64):
        _decode_xz_stream(streams, lzma.LZMADecompressor(XZ_FORMAT, memlimit=XZ_MEMORY))
        padding = _zeros(streams.rest)
        if padding % 4:
            raise CorruptDataError(f"lzma: {padding} bytes of padding are no multiple of four")
        streams.at += padding
        if not len(streams.rest):
            return streams.finish()
    raise CorruptDataError("lzma: there are too many streams after each other")


def _decode_xz_stream(streams: Streams, decompressor: Decompressor) -> None:
    try:
        streams.decode(decompressor)
    except CorruptDataError as error:
        reason = str(error.__cause__ or "")
        if "unsupported options" in reason or "Memory usage limit" in reason:
            raise UnsupportedFeatureError(f"lzma: {reason.lower()}") from error
        raise


def _zeros(data: memoryview) -> int:
    """How many zeros stand in front."""
    count, step = 0, 1 << 12
    while count < len(data):
        piece = bytes(data[count : count + step])
        zeros = len(piece) - len(piece.lstrip(b"\0"))
        count += zeros
        if zeros < len(piece):
            break
    return count


def encode_lzma(data: Buffer, form: LzmaFormat, check: int, preset: int | None) -> bytes:
    """Encode to one stream."""
    import lzma

    try:
        return lzma.compress(
            data, format=form.container or XZ_FORMAT, check=check, preset=preset, filters=form.filters
        )  # fmt: skip
    except (lzma.LZMAError, ValueError, TypeError, OverflowError) as error:
        raise CorruptDataError(f"lzma: the configuration cannot be used ({error})") from error


def parse_filters(value: object) -> tuple[Mapping[str, Any], ...] | None:
    """The filters of a configuration; raises `CorruptDataError` for what lzma would not take or could not afford."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not 0 < len(value) <= 4:
        raise CorruptDataError(f"codec lzma: filters {value!r:.200} are no list of one to four")
    for entry in value:
        whole = isinstance(entry, dict) and all(type(number) is int for number in entry.values())
        if not whole or "id" not in entry:
            raise CorruptDataError(f"codec lzma: {entry!r:.200} is no filter")
        if entry["id"] in DICTIONARY_FILTERS and entry.get("dict_size", 0) > GIB:
            raise CorruptDataError("codec lzma: a filter's dictionary is larger than 1 GiB")
    return tuple(value)


# -- codecs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GzipCodec:
    """Zarr v3 core codec `gzip`, and that of numcodecs (Zarr v2) and N5."""

    kind: ClassVar[str] = "bytes-bytes"
    spec: CodecSpec

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> GzipCodec:
        """Keep the configuration for encoding."""
        return cls(spec)

    def encoded(self, size: ByteSize) -> ByteSize:
        """Little more, when nothing can be compressed."""
        return compressed_bound(size)

    def decode(self, data: Buffer, size: ByteSize) -> Buffer:
        """Decode every member."""
        return decode_gzip(data, size)

    def decode_portable(self, data: Buffer, size: ByteSize) -> tuple[Buffer, CoreForm | None]:
        """Decode; one member is portable as it is, a zlib stream under this name in gzip's wrapping."""
        level = _v3_level(self.spec)
        if bytes(data[:2]) != GZIP_MAGIC:
            raw = decode_gzip(data, size)
            return raw, CoreForm((CodecSpec("gzip", {"level": level}),), gzip_of_zlib(data, raw))
        fast = _fast_gzip(data, size)
        if fast is None:
            return _slow_gzip(data, size), None
        return fast, CoreForm((CodecSpec("gzip", {"level": level}),), data)

    def encode(self, data: Buffer) -> bytes:
        """Encode to one member; a level of -1 is the compressor's own."""
        level = self.spec.integer("level", -1, 9, 5)
        return encode_gzip(data, 6 if level < 0 else level)


@dataclass(frozen=True, slots=True)
class ZlibCodec:
    """numcodecs' `zlib`, and N5's gzip with `useZlib`."""

    kind: ClassVar[str] = "bytes-bytes"
    spec: CodecSpec

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> ZlibCodec:
        """Keep the configuration for encoding."""
        return cls(spec)

    def encoded(self, size: ByteSize) -> ByteSize:
        """Little more, when nothing can be compressed."""
        return compressed_bound(size)

    def decode(self, data: Buffer, size: ByteSize) -> Buffer:
        """Decode the stream."""
        return decode_zlib(data, size)

    def decode_portable(self, data: Buffer, size: ByteSize) -> tuple[Buffer, CoreForm | None]:
        """Decode; the stream is portable in gzip's wrapping."""
        raw = decode_zlib(data, size)
        spec = CodecSpec("gzip", {"level": _v3_level(self.spec)})
        return raw, CoreForm((spec,), gzip_of_zlib(data, raw))

    def encode(self, data: Buffer) -> bytes:
        """Encode to one stream; a level of -1 is the compressor's own."""
        level = self.spec.integer("level", -1, 9, 1)
        return encode_zlib(data, 6 if level < 0 else level)


@dataclass(frozen=True, slots=True)
class Bz2Codec:
    """numcodecs' `bz2`, N5's `bzip2`."""

    kind: ClassVar[str] = "bytes-bytes"
    spec: CodecSpec

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> Bz2Codec:
        """Keep the configuration for encoding."""
        return cls(spec)

    def encoded(self, size: ByteSize) -> ByteSize:
        """Little more, when nothing can be compressed."""
        return compressed_bound(size)

    def decode(self, data: Buffer, size: ByteSize) -> Buffer:
        """Decode every stream."""
        return decode_bz2(data, size)

    def encode(self, data: Buffer) -> bytes:
        """Encode to one stream."""
        return encode_bz2(data, self.spec.integer("level", 1, 9, 1))


@dataclass(frozen=True, slots=True)
class LzmaCodec:
    """numcodecs' `lzma` in all its formats, N5's `xz`."""

    kind: ClassVar[str] = "bytes-bytes"
    spec: CodecSpec
    form: LzmaFormat

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> LzmaCodec:
        """Check `format` and `filters`, without which raw data cannot be read."""
        container = spec.integer("format", 0, RAW_FORMAT, XZ_FORMAT)
        filters = parse_filters(spec.configuration.get("filters"))
        if container == RAW_FORMAT and filters is None:
            raise CorruptDataError("codec lzma: raw data without a list of filters")
        return cls(spec, LzmaFormat(container, filters))

    def encoded(self, size: ByteSize) -> ByteSize:
        """Little more, when nothing can be compressed."""
        return compressed_bound(size)

    def decode(self, data: Buffer, size: ByteSize) -> Buffer:
        """Decode every stream."""
        return decode_lzma(data, size, self.form)

    def encode(self, data: Buffer) -> bytes:
        """Encode to one stream."""
        check = self.spec.integer("check", -1, 15, -1)
        preset = None
        if self.spec.configuration.get("preset") is not None:
            preset = self.spec.integer("preset", 0, (1 << 31) + 9)
        return encode_lzma(data, self.form, check, preset)
