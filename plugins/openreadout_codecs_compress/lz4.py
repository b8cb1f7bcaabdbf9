"""LZ4 in the framings that Zarr and N5 writers put around its blocks."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from openreadout.codecs import Buffer, ByteSize, CodecLookup, CodecSpec
from openreadout.errors import CorruptDataError
from openreadout_codecs_compress.bounded import call, compressed_bound, decode_into

SIZE = struct.Struct("<I")
FRAME_MAGIC = b"\x04\x22\x4d\x18"
STREAM_MAGIC = b"LZ4Block"
STREAM_HEADER = struct.Struct("<8sBIII")
"""Magic, token, stored length, decoded length, checksum: a block of lz4-java's `LZ4BlockOutputStream`."""
STREAM_SEED = 0x9747B28C
STREAM_CHECKSUM_MASK = 0x0FFFFFFF
METHOD_MASK = 0xF0
METHOD_STORED = 0x10
METHOD_LZ4 = 0x20
SMALLEST_STREAM_BLOCK = 64
LARGEST_STREAM_BLOCK = 1 << 25
STREAM_BLOCK = 1 << 16
LZ4_LIMIT = 0x7E000000
"""The most that LZ4 takes into one block."""


def decode_block(data: Buffer, size: ByteSize, codec: str = "lz4") -> memoryview:
    """Decode one raw LZ4 block."""
    import imagecodecs

    if not len(data):
        raise CorruptDataError(f"{codec}: there are no data")
    return decode_into(codec, imagecodecs.lz4_decode, data, size)


def decode_sized(data: Buffer, size: ByteSize) -> Buffer:
    """Decode numcodecs' form: the decoded length in four bytes, then one block.

    A standard LZ4 frame, which other tools write under the same name, is told by its magic number and decoded too.
    """
    if len(data) < SIZE.size:
        raise CorruptDataError(f"lz4: {len(data)} bytes are too few for a length and a block")
    (declared,) = SIZE.unpack_from(data)
    if bytes(data[: SIZE.size]) == FRAME_MAGIC and not (size.exact and size.count == declared):
        return decode_frame(data, size)
    size.check(declared, "lz4")
    return decode_block(memoryview(data)[SIZE.size :], ByteSize(declared))


def decode_frame(data: Buffer, size: ByteSize) -> Buffer:
    """Decode one frame of the LZ4 frame format (1.6), which must be all there is."""
    import imagecodecs

    end = _frame_end(memoryview(data))
    if end != len(data):
        raise CorruptDataError(f"lz4: {len(data) - end} bytes follow the end of the LZ4 frame")
    roomy = size.grown(1)  # the decoder stops quietly when the room is used up
    out = decode_into("lz4", imagecodecs.lz4f_decode, data, roomy)
    size.check(len(out), "lz4")
    return out


def _frame_end(data: memoryview) -> int:
    """Where the frame ends, by the lengths of its blocks; raises `CorruptDataError` when it is cut."""
    if len(data) < 7:
        raise CorruptDataError("lz4: the data end inside the header of an LZ4 frame")
    flags = data[4]
    at = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    while at + SIZE.size <= len(data):
        (length,) = SIZE.unpack_from(data, at)
        at += SIZE.size
        if not length:
            at += 4 if flags & 0x04 else 0
            break
        at += (length & 0x7FFFFFFF) + (4 if flags & 0x10 else 0)
    else:
        raise CorruptDataError("lz4: the LZ4 frame is cut before its end mark")
    if at > len(data):
        raise CorruptDataError("lz4: the LZ4 frame is cut inside its checksum")
    return at


def encode_sized(data: Buffer, acceleration: int) -> bytes:
    """Encode to numcodecs' form."""
    if len(data) > LZ4_LIMIT:
        raise CorruptDataError(f"lz4: {len(data)} bytes are more than a block can hold")
    return SIZE.pack(len(data)) + _encode_block(data, acceleration)


def _encode_block(data: Buffer, acceleration: int) -> bytes:
    import imagecodecs

    return bytes(call("lz4", imagecodecs.lz4_encode, data, level=acceleration))


# -- N5 ----------------------------------------------------------------------------------------------------------------


def decode_n5(data: Buffer, size: ByteSize) -> Buffer:
    """Decode N5's `lz4`, whose framing depends on the writer and is told by its content.

    Java writes a stream of blocks with checksums and a magic number. z5 writes one bare block, and numcodecs one with
    its length in front; these are told apart by what decodes to the size that is wanted.
    """
    if bytes(data[: len(STREAM_MAGIC)]) == STREAM_MAGIC:
        return decode_stream(data, size)
    bare, bare_error = _attempt(data, size)
    sized = None
    if len(data) > SIZE.size:
        (declared,) = SIZE.unpack_from(data)
        if declared == size.count or (not size.exact and declared < size.count):
            sized, _ = _attempt(memoryview(data)[SIZE.size :], ByteSize(declared))
    if bare is not None and sized is not None and bare != sized:
        raise CorruptDataError("n5.lz4: the data can be read with and without a length in front")
    found = sized if sized is not None else bare
    if found is None:
        raise CorruptDataError(
            "n5.lz4: neither a stream of blocks, nor one block, nor a length and a block"
        ) from bare_error
    return found


def _attempt(data: Buffer, size: ByteSize) -> tuple[memoryview | None, CorruptDataError | None]:
    try:
        return decode_block(data, size, "n5.lz4"), None
    except CorruptDataError as error:
        return None, error


def decode_stream(data: Buffer, size: ByteSize) -> bytearray:
    """Decode a stream of lz4-java's `LZ4BlockOutputStream`, to its end mark and not a byte further."""
    view = memoryview(data).cast("B")
    out = bytearray()
    at = 0
    while True:
        if len(view) - at < STREAM_HEADER.size:
            raise CorruptDataError(
                f"n5.lz4: the stream ends after {len(out)} of {size.count} bytes without its end mark"
            )
        magic, token, stored, decoded, check = STREAM_HEADER.unpack_from(view, at)
        at += STREAM_HEADER.size
        _check_stream_block(magic, token, stored, decoded, len(view) - at, size.count - len(out))
        if not decoded:
            break
        block = _stream_block(view[at : at + stored], token, decoded)
        _check_stream_sum(block, check)
        out += block
        at += stored
    if at != len(view):
        raise CorruptDataError(f"n5.lz4: {len(view) - at} bytes follow the end of the stream")
    size.check(len(out), "n5.lz4")
    return out


def _check_stream_block(
    magic: bytes, token: int, stored: int, decoded: int, left: int, room: int
) -> None:
    if magic != STREAM_MAGIC or token & METHOD_MASK not in (METHOD_STORED, METHOD_LZ4):
        raise CorruptDataError("n5.lz4: a block of the stream has no valid header")
    if stored > left:
        raise CorruptDataError(f"n5.lz4: a block of {stored} bytes is cut after {left}")
    if decoded > min(room, LARGEST_STREAM_BLOCK):
        raise CorruptDataError(f"n5.lz4: a block gives {decoded} bytes where {room} belong")
    plain = token & METHOD_MASK == METHOD_STORED
    if (plain and stored != decoded) or (not decoded) != (not stored):
        raise CorruptDataError("n5.lz4: the lengths of a block contradict each other")


def _stream_block(stored: memoryview, token: int, decoded: int) -> memoryview:
    if token & METHOD_MASK == METHOD_STORED:
        return stored
    return decode_block(stored, ByteSize(decoded), "n5.lz4")


def _stream_sum(block: Buffer) -> int:
    import xxhash

    return xxhash.xxh32_intdigest(block, STREAM_SEED) & STREAM_CHECKSUM_MASK


def _check_stream_sum(block: Buffer, stored: int) -> None:
    if _stream_sum(block) != stored:
        raise CorruptDataError("n5.lz4: the checksum of a block does not fit its data")


def encode_stream(data: Buffer, block_size: int) -> bytes:
    """Encode as lz4-java's `LZ4BlockOutputStream` does, in blocks of `block_size` bytes."""
    view = memoryview(data).cast("B")
    level = max(0, (block_size - 1).bit_length() - 10)
    parts = []
    for start in range(0, len(view), block_size):
        block = view[start : start + block_size]
        packed: Buffer = _encode_block(block, 1)
        method = METHOD_LZ4
        if len(packed) >= len(block):
            packed, method = block, METHOD_STORED
        sizes = (len(packed), len(block), _stream_sum(block))
        parts += [STREAM_HEADER.pack(STREAM_MAGIC, method | level, *sizes), packed]
    parts.append(STREAM_HEADER.pack(STREAM_MAGIC, METHOD_STORED | level, 0, 0, 0))
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class Lz4Codec:
    """numcodecs' `lz4` (Zarr v2): the decoded length in four bytes, then one block."""

    kind: ClassVar[str] = "bytes-bytes"
    spec: CodecSpec

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> Lz4Codec:
        """Keep the configuration for encoding."""
        return cls(spec)

    def encoded(self, size: ByteSize) -> ByteSize:
        """Little more, when nothing can be compressed."""
        return compressed_bound(size)

    def decode(self, data: Buffer, size: ByteSize) -> Buffer:
        """Decode the block, or a standard LZ4 frame."""
        return decode_sized(data, size)

    def encode(self, data: Buffer) -> bytes:
        """Encode; raises `CorruptDataError` for an acceleration that is no number."""
        return encode_sized(data, max(1, self.spec.integer("acceleration", -65537, 65537, 1)))


@dataclass(frozen=True, slots=True)
class N5Lz4Codec:
    """N5's `lz4`: reads all three framings that N5 writers use, writes that of Java."""

    kind: ClassVar[str] = "bytes-bytes"
    block_size: int

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> N5Lz4Codec:
        """Check the configuration: `blockSize` in bytes is between 64 and 2^25, 65536 unless given."""
        low, high = SMALLEST_STREAM_BLOCK, LARGEST_STREAM_BLOCK
        if "blockSize" not in spec.configuration:
            return cls(STREAM_BLOCK)
        return cls(spec.integer("blockSize", low, high))

    def encoded(self, size: ByteSize) -> ByteSize:
        """One header for each block of the smallest kind."""
        blocks = size.count // SMALLEST_STREAM_BLOCK + 2
        return compressed_bound(size).grown(blocks * STREAM_HEADER.size)

    def decode(self, data: Buffer, size: ByteSize) -> Buffer:
        """Decode whichever framing the data have."""
        return decode_n5(data, size)

    def encode(self, data: Buffer) -> bytes:
        """Encode to a stream of blocks."""
        return encode_stream(data, self.block_size)
