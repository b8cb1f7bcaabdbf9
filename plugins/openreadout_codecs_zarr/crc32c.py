"""The `crc32c` codec: four bytes of CRC-32C (Castagnoli) after the data, or before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from openreadout.codecs import Buffer, ByteSize, CodecLookup, CodecSpec
from openreadout.errors import CorruptDataError

CHECKSUM_BYTES = 4


def checksum(data: Buffer) -> bytes:
    """CRC-32C of `data`, little-endian; Zarr v3 codec `crc32c`, after RFC 3720."""
    import google_crc32c

    return int(google_crc32c.value(bytes(data))).to_bytes(CHECKSUM_BYTES, "little")


@dataclass(frozen=True, slots=True)
class Crc32cCodec:
    """Zarr v3 core codec `crc32c`; numcodecs' codec of that name may put the checksum in front."""

    kind: ClassVar[str] = "bytes-bytes"
    location: str = "end"

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> Crc32cCodec:
        """Check the configuration: numcodecs' `location` is `start` or `end`."""
        return cls(spec.choice("location", ("start", "end"), "end"))

    def encoded(self, size: ByteSize) -> ByteSize:
        """Four bytes more."""
        return ByteSize(size.count + CHECKSUM_BYTES, size.exact)

    def decode(self, data: Buffer, size: ByteSize) -> Buffer:
        """The data without its checksum; raises `CorruptDataError` when that does not fit."""
        view = memoryview(data)
        if len(view) < CHECKSUM_BYTES:
            raise CorruptDataError(f"crc32c: {len(view)} bytes are too few to hold a checksum")
        size.check(len(view) - CHECKSUM_BYTES, "crc32c")
        at_end = self.location == "end"
        body = view[:-CHECKSUM_BYTES] if at_end else view[CHECKSUM_BYTES:]
        stored = view[-CHECKSUM_BYTES:] if at_end else view[:CHECKSUM_BYTES]
        if checksum(body) != stored:
            raise CorruptDataError("crc32c: the checksum does not fit the data")
        return body

    def encode(self, data: Buffer) -> bytes:
        """The data with its checksum."""
        if self.location == "end":
            return bytes(data) + checksum(data)
        return checksum(data) + bytes(data)
