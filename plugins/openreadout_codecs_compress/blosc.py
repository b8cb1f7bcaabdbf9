"""Blosc: blocks of shuffled samples under one of six compressors; the buffer's own header says which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from openreadout import limits
from openreadout.codecs import LIBRARY_ERRORS, Buffer, ByteSize, CodecLookup, CodecSpec, CoreForm
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout_codecs_compress.bounded import call, decode_into

HEADER_BYTES = 16
BLOSC2_HEADER_BYTES = 32
LARGEST_BUFFER = (1 << 31) - 1
"""Blosc counts bytes in 31 bits."""
BLOSC1_VERSIONS = (1, 2)
BLOSC2_VERSIONS = (3, 4, 5)
STORED = 0x02
BIT_SHUFFLE = 0x04
BLOSC2_EXTENDED = 0x05
"""Byte and bit shuffle at once, which no Blosc 1 buffer has: a Blosc 2 header with 16 more bytes follows."""
LAZY = 0x08
UNINITIALISED = 4
COMPRESSORS = ("blosclz", "lz4", "snappy", "zlib", "zstd")
"""By the number in the header; lz4hc is lz4 to a reader."""
SNAPPY, ZSTD = 2, 4

CNAMES = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
AUTO_SHUFFLE = -1


@dataclass(frozen=True, slots=True)
class BloscHeader:
    """The first 16 bytes of a buffer, as c-blosc's header description names them; sizes in bytes."""

    version: int
    flags: int
    typesize: int
    nbytes: int
    blocksize: int
    cbytes: int

    @property
    def compressor(self) -> int:
        """Number of the compressor in `COMPRESSORS`."""
        return self.flags >> 5

    @property
    def whole_bit_groups(self) -> bool:
        """Whether bit shuffle meets no remainder: every block is a multiple of eight samples."""
        group = 8 * self.typesize
        return self.nbytes % group == 0 and self.blocksize % group == 0


def parse_header(data: Buffer) -> BloscHeader:
    """Read a buffer's header and check that its numbers fit the buffer.

    Raises
    ------
    CorruptDataError
        The buffer is shorter than its header says, or the header's sizes contradict one another.
    UnsupportedFeatureError
        The header is of a version that is not known.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptDataError(
            f"blosc: {len(data)} bytes are too few for a header of {HEADER_BYTES}"
        )
    number = (int.from_bytes(data[n : n + 4], "little") for n in (4, 8, 12))
    header = BloscHeader(data[0], data[2], data[3], *number)
    if header.version not in BLOSC1_VERSIONS + BLOSC2_VERSIONS:
        raise CorruptDataError(f"blosc: {header.version} is no version of the Blosc format")
    if not HEADER_BYTES <= header.cbytes <= len(data):
        raise CorruptDataError(
            f"blosc: the header speaks of {header.cbytes} stored bytes, there are {len(data)}"
        )
    if header.nbytes and not (0 < header.blocksize <= header.nbytes and header.typesize):
        raise CorruptDataError(
            f"blosc: blocks of {header.blocksize} bytes, samples of {header.typesize} do not fit"
            f" {header.nbytes} bytes"
        )
    return header


def decode_blosc(data: Buffer, size: ByteSize) -> Buffer:
    """Decode one Blosc 1 or Blosc 2 buffer; what follows the length in its header is not looked at."""
    header = parse_header(data)
    if header.nbytes > min(limits.MAX_CHUNK_BYTES, LARGEST_BUFFER):
        raise CorruptDataError(f"blosc: the header speaks of {header.nbytes} decoded bytes")
    size.check(header.nbytes, "blosc")
    if not header.nbytes:
        return b""
    exact = ByteSize(header.nbytes)
    buffer = memoryview(data)[: header.cbytes]
    if header.version in BLOSC2_VERSIONS:
        _check_blosc2(header, buffer)
        return _decode(buffer, exact, blosc2=True)
    if header.flags & STORED:
        return _stored(header, buffer)
    blosc2 = _check_blosc1(header)
    try:
        return _decode(buffer, exact, blosc2=blosc2)
    except CorruptDataError as error:
        if header.compressor == SNAPPY and _snappy_is_missing():
            raise UnsupportedFeatureError("blosc: snappy is not built into this library") from error
        raise


def _decode(buffer: memoryview, size: ByteSize, *, blosc2: bool) -> memoryview:
    import imagecodecs

    decoder = imagecodecs.blosc2_decode if blosc2 else imagecodecs.blosc_decode
    return decode_into("blosc", decoder, buffer, size, numthreads=1)


def _snappy_is_missing() -> bool:
    """Whether c-blosc was built without snappy, as many builds are; it says so only by failing."""
    import imagecodecs

    try:
        imagecodecs.blosc_encode(bytes(1000), compressor="snappy", numthreads=1)
    except LIBRARY_ERRORS:
        return True
    return False


def _stored(header: BloscHeader, buffer: memoryview) -> memoryview:
    """A buffer that was not compressed: a plain copy, whatever compressor and shuffle its header names."""
    if header.cbytes < HEADER_BYTES + header.nbytes:
        raise CorruptDataError(
            f"blosc: the copy ends after {header.cbytes - HEADER_BYTES} of {header.nbytes} bytes"
        )
    return buffer[HEADER_BYTES : HEADER_BYTES + header.nbytes]


def _check_blosc1(header: BloscHeader) -> bool:
    """Check what c-blosc 1 would stumble over; True when c-blosc 2 is to decode the buffer.

    c-blosc 2 brings a newer zstd that takes two thirds of the time, but undoes bit shuffle otherwise where the
    samples of a block are no multiple of eight.
    """
    if header.compressor >= len(COMPRESSORS):
        raise CorruptDataError(f"blosc: {header.compressor} is the number of no compressor")
    blocks = -(-header.nbytes // header.blocksize)
    if HEADER_BYTES + 4 * blocks > header.cbytes:
        raise CorruptDataError(
            f"blosc: {header.cbytes} stored bytes are too few for the offsets of {blocks} blocks"
        )
    plain = not header.flags & BIT_SHUFFLE or header.whole_bit_groups
    return header.compressor == ZSTD and plain


def _check_blosc2(header: BloscHeader, buffer: memoryview) -> None:
    """Refuse Blosc 2 buffers whose bytes are not all in the buffer itself."""
    if header.flags & BLOSC2_EXTENDED != BLOSC2_EXTENDED:
        return
    if len(buffer) < BLOSC2_HEADER_BYTES:
        raise CorruptDataError("blosc: the buffer ends inside its Blosc 2 header")
    flags = buffer[BLOSC2_HEADER_BYTES - 1]
    if flags & LAZY:
        raise UnsupportedFeatureError("blosc: a lazy Blosc 2 buffer, whose data are kept elsewhere")
    if flags >> 4 & 7 == UNINITIALISED:
        raise UnsupportedFeatureError("blosc: a Blosc 2 buffer of values that were never set")


def encode_blosc(
    data: Buffer, *, cname: str, clevel: int, shuffle: str, typesize: int, blocksize: int
) -> bytes:
    """Encode to one Blosc 1 buffer, in this thread.

    `typesize` takes effect when it divides the length of `data`; the header says what was done.
    """
    import imagecodecs
    import numpy as np

    whole = len(data) % typesize == 0 and len(data) > 0
    samples: Any = np.frombuffer(data, f"V{typesize if whole else 1}")
    encoded = call(
        "blosc", imagecodecs.blosc_encode, samples, level=clevel, compressor=cname, shuffle=shuffle,
        blocksize=blocksize or None, numthreads=1,
    )  # fmt: skip
    return bytes(encoded)


@dataclass(frozen=True, slots=True)
class BloscCodec:
    """Zarr v3 core codec `blosc`, and that of numcodecs (Zarr v2) and N5.

    Reading takes nothing from the configuration: writers disagree about it, the buffer's header does not. Only what is
    there is checked, and only when the codec is asked to encode. Zarr v2 has no `typesize`; one that is given is used.
    """

    kind: ClassVar[str] = "bytes-bytes"
    spec: CodecSpec

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> BloscCodec:
        """Keep the configuration for encoding."""
        return cls(spec)

    def encoded(self, size: ByteSize) -> ByteSize:
        """A header more, when nothing can be compressed."""
        return size.grown(BLOSC2_HEADER_BYTES)

    def decode(self, data: Buffer, size: ByteSize) -> Buffer:
        """Decode one buffer."""
        return decode_blosc(data, size)

    def decode_portable(self, data: Buffer, size: ByteSize) -> tuple[Buffer, CoreForm | None]:
        """Decode; portable is one Blosc 1 buffer and nothing after it.

        The configuration is the header's: writers put what they like into metadata. Snappy is missing from many
        builds, and bit shuffle of a remainder is undone differently by different versions.
        """
        raw = decode_blosc(data, size)
        header = parse_header(data)
        shuffle = (
            "bitshuffle" if header.flags & 4 else "shuffle" if header.flags & 1 else "noshuffle"
        )
        if (
            header.version not in BLOSC1_VERSIONS
            or header.cbytes != len(data)
            or header.nbytes != len(raw)
            or header.compressor == SNAPPY
            or header.compressor >= len(COMPRESSORS)
            or (shuffle == "bitshuffle" and header.nbytes % header.typesize)
        ):
            return raw, None
        level = self.spec.configuration.get("clevel")
        configuration = {
            "cname": COMPRESSORS[header.compressor],
            "clevel": level if type(level) is int and 0 <= level <= 9 else 5,
            "shuffle": shuffle,
            "typesize": header.typesize,
            "blocksize": header.blocksize,
        }
        return raw, CoreForm((CodecSpec("blosc", configuration),), data)

    def encode(self, data: Buffer) -> bytes:
        """Encode to a Blosc 1 buffer; raises `CorruptDataError` for a configuration that breaks the rules."""
        typesize = self.spec.integer("typesize", 1, 255, 1)
        return encode_blosc(
            data,
            cname=self.spec.choice("cname", CNAMES, "lz4"),
            clevel=self.spec.integer("clevel", 0, 9, 5),
            shuffle=self._shuffle(typesize),
            typesize=typesize,
            blocksize=self.spec.integer("blocksize", 0, LARGEST_BUFFER, 0),
        )

    def _shuffle(self, typesize: int) -> str:
        """The shuffle by name; Zarr v2 and N5 have it as a number, -1 leaving it to the size of samples."""
        if isinstance(self.spec.configuration.get("shuffle", "noshuffle"), str):
            return self.spec.choice("shuffle", SHUFFLES, "noshuffle")
        number = self.spec.integer("shuffle", AUTO_SHUFFLE, len(SHUFFLES) - 1)
        if number == AUTO_SHUFFLE:
            return "bitshuffle" if typesize == 1 else "shuffle"
        return SHUFFLES[number]
