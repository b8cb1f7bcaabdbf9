"""Zstandard frames (RFC 8878)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from openreadout.codecs import Buffer, ByteSize, CodecLookup, CodecSpec, CoreForm
from openreadout.errors import CorruptDataError
from openreadout_codecs_compress.bounded import call, compressed_bound, decode_into

MAGIC = b"\x28\xb5\x2f\xfd"
DICTIONARY_BYTES = (0, 1, 2, 4)
CONTENT_BYTES = (0, 2, 4, 8)
SINGLE_SEGMENT = 0x20
CHECKSUM = 0x04
RLE_BLOCK = 1
LOWEST_LEVEL = -131072
HIGHEST_LEVEL = 22


def content_size(data: Buffer) -> int | None:
    """The decoded size that the first frame declares, None when it declares none; RFC 8878, section 3.1.1.1."""
    if len(data) < len(MAGIC) + 1 or bytes(data[: len(MAGIC)]) != MAGIC:
        return None
    descriptor = data[len(MAGIC)]
    single = bool(descriptor & SINGLE_SEGMENT)
    width = CONTENT_BYTES[descriptor >> 6] or (1 if single else 0)
    start = len(MAGIC) + 1 + (0 if single else 1) + DICTIONARY_BYTES[descriptor & 3]
    if not width or len(data) < start + width:
        return None
    return int.from_bytes(data[start : start + width], "little") + (256 if width == 2 else 0)


def is_one_frame(data: Buffer) -> bool:
    """Whether the data are one frame from end to end; RFC 8878, sections 3.1.1 and 3.1.1.2."""
    view = memoryview(data)
    if len(view) < len(MAGIC) + 1 or bytes(view[: len(MAGIC)]) != MAGIC:
        return False
    descriptor = view[len(MAGIC)]
    single = bool(descriptor & SINGLE_SEGMENT)
    width = CONTENT_BYTES[descriptor >> 6] or (1 if single else 0)
    place = len(MAGIC) + 1 + (0 if single else 1) + DICTIONARY_BYTES[descriptor & 3] + width
    last = False
    while not last and place + 3 <= len(view):
        header = int.from_bytes(view[place : place + 3], "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        place += 3 + (1 if kind == RLE_BLOCK else size)
    return last and place + (4 if descriptor & CHECKSUM else 0) == len(view)


def decode_zstd(data: Buffer, size: ByteSize) -> Buffer:
    """Decode every frame of `data`, with or without content size and checksum; skippable frames give nothing."""
    import imagecodecs

    if not len(data):
        raise CorruptDataError("zstd: there are no data")
    declared = content_size(data)
    if declared is not None and declared > size.count:
        raise CorruptDataError(
            f"zstd: the frame declares {declared} bytes where {size.count} belong"
        )
    return decode_into("zstd", imagecodecs.zstd_decode, data, size)


def encode_zstd(data: Buffer, level: int, *, checksum: bool) -> bytes:
    """Encode to one frame that declares its content size."""
    import numcodecs.zstd

    return bytes(call("zstd", numcodecs.zstd.compress, data, level=level, checksum=checksum))


@dataclass(frozen=True, slots=True)
class ZstdCodec:
    """Zarr v3 codec `zstd`, and that of numcodecs (Zarr v2) and N5; the configuration matters to encoding only."""

    kind: ClassVar[str] = "bytes-bytes"
    spec: CodecSpec

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> ZstdCodec:
        """Keep the configuration for encoding."""
        return cls(spec)

    def encoded(self, size: ByteSize) -> ByteSize:
        """Little more, when nothing can be compressed."""
        return compressed_bound(size)

    def decode(self, data: Buffer, size: ByteSize) -> Buffer:
        """Decode every frame."""
        return decode_zstd(data, size)

    def decode_portable(self, data: Buffer, size: ByteSize) -> tuple[Buffer, CoreForm | None]:
        """Decode; portable is exactly one frame that declares its size, which some decoders want."""
        raw = decode_zstd(data, size)
        if content_size(data) != len(raw) or not is_one_frame(data):
            return raw, None
        level = self.spec.configuration.get("level")
        known = level if type(level) is int and LOWEST_LEVEL <= level <= HIGHEST_LEVEL else 0
        checksum = bool(data[len(MAGIC)] & CHECKSUM)
        return raw, CoreForm((CodecSpec("zstd", {"level": known, "checksum": checksum}),), data)

    def encode(self, data: Buffer) -> bytes:
        """Encode to one frame; raises `CorruptDataError` for a configuration that breaks the rules."""
        checksum = self.spec.configuration.get("checksum", False)
        if not isinstance(checksum, bool):
            raise CorruptDataError(f"codec zstd: checksum is {checksum!r}, neither true nor false")
        level = self.spec.integer("level", LOWEST_LEVEL, HIGHEST_LEVEL, 0)
        return encode_zstd(data, level, checksum=checksum)
