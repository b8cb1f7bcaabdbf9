"""The header of an N5 block, and the rules for the configuration of `n5_default`."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openreadout import limits
from openreadout.codecs import Buffer, CodecSpec
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.limits import MIB

START = struct.Struct(">HH")
"""Mode and number of dimensions."""
MODES = {0: "default", 1: "varlength", 2: "object"}
DTYPES = frozenset(
    {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"}
)
"""The data types of N5."""
LARGEST_LENGTH = (1 << 32) - 1
OVERSIZE = 16
"""How many chunks' worth of samples a block may hold; what is longer than its chunk is cropped."""
SMALL_BLOCK = 16 * MIB


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """`shape` as in the header, which is N5 order (fastest axis first); `size`, the header's own length in bytes."""

    shape: tuple[int, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Configuration:
    """A checked configuration: the codecs' specifications, N, and whether the byte order was left out."""

    transpose: CodecSpec
    serializer: CodecSpec
    compressor: CodecSpec | None
    ndim: int

    @property
    def codecs(self) -> list[CodecSpec]:
        """The codecs in their order."""
        last = [self.compressor] if self.compressor else []
        return [self.transpose, self.serializer, *last]


def parse_block_header(data: Buffer, ndim: int) -> BlockHeader:
    """Read the header of an N5 block.

    Parameters
    ----------
    data : bytes-like
        The whole block, header first; its integers are big-endian.
    ndim : int
        Dimensions of the array; the header must agree.

    Raises
    ------
    CorruptDataError
        The block ends inside its header, its mode does not exist, or it has another number of dimensions or a length
        of zero.
    UnsupportedFeatureError
        The mode is varlength (1) or object (2).

    Notes
    -----
    N5 specification 4.0.0, "File-system specification", chunk format.
    """
    if len(data) < START.size:
        raise CorruptDataError(f"n5_default: {len(data)} bytes are too few for a block's header")
    mode, count = START.unpack_from(data)
    if mode not in MODES:
        raise CorruptDataError(f"n5_default: {mode} is the number of no block mode")
    if mode:
        raise UnsupportedFeatureError(
            f"n5_default: the block is in {MODES[mode]} mode ({mode}), only default mode is read"
        )
    if count != ndim:
        raise CorruptDataError(f"n5_default: a block of {count} dimensions in an array of {ndim}")
    size = START.size + 4 * count
    if len(data) < size:
        raise CorruptDataError(
            f"n5_default: the block ends after {len(data)} of the {size} bytes of its header"
        )
    shape = struct.unpack_from(f">{count}I", data, START.size)
    if 0 in shape:
        raise CorruptDataError(f"n5_default: a block of {list(shape)} samples holds none")
    return BlockHeader(shape, size)


def check_block_size(shape: Sequence[int], chunk: Sequence[int], item_bytes: int) -> None:
    """Raise `CorruptDataError` for a block that is out of all proportion to its chunk (`shape` and `chunk` alike)."""
    wanted = math.prod(chunk) * item_bytes
    limit = min(limits.MAX_CHUNK_BYTES, max(wanted * OVERSIZE, SMALL_BLOCK))
    if math.prod(shape) * item_bytes > limit:
        raise CorruptDataError(
            f"n5_default: the header speaks of a block of {list(shape)} where {list(chunk)} belong"
        )


def block_header(shape: Sequence[int]) -> bytes:
    """The header of a block in default mode; `shape` is in N5 order.

    Raises
    ------
    UnsupportedFeatureError
        The header cannot hold that many dimensions or such a length.
    """
    if len(shape) > limits.MAX_DIMENSIONS or any(not 0 < n <= LARGEST_LENGTH for n in shape):
        raise UnsupportedFeatureError(f"n5_default: a block of {list(shape)} does not fit N5's header")  # fmt: skip
    return START.pack(0, len(shape)) + struct.pack(f">{len(shape)}I", *shape)


def check_dimensions(shape: Sequence[int], configuration: Configuration) -> None:
    """Raise `CorruptDataError` unless the transposition is made for as many dimensions as `shape` has."""
    if configuration.ndim != len(shape):
        raise CorruptDataError(
            f"codec n5_default: transpose has {configuration.ndim} axes, the array {len(shape)}"
        )


def check_dtype(dtype: str, configuration: Configuration) -> None:
    """Raise unless N5 has the data type, and the byte order is given for samples of several bytes."""
    if dtype not in DTYPES:
        raise UnsupportedFeatureError(f"n5_default: N5 has no data type {dtype}")
    one_byte = dtype in ("int8", "uint8")
    if configuration.serializer.configuration.get("endian") is None and not one_byte:
        raise CorruptDataError(f"codec n5_default: bytes has no endian, which {dtype} needs")
    compressor = configuration.compressor
    if compressor is not None and compressor.name == "n5.jpeg" and dtype != "uint8":
        raise CorruptDataError(f"codec n5_default: jpeg holds uint8, the array is {dtype}")


def parse_configuration(configuration: Mapping[str, Any]) -> Configuration:
    """Check the configuration of `n5_default`, as far as that goes without knowing the array.

    Raises
    ------
    CorruptDataError
        It breaks one of the rules; the message says which.

    Notes
    -----
    Zarr extension codec `n5_default`, section "Configuration parameters".
    """
    extra = sorted(set(configuration) - {"codecs"})
    if extra:
        raise CorruptDataError(
            f"codec n5_default: {extra[0]!r:.100} is no key of its configuration"
        )
    listed = configuration.get("codecs")
    if not isinstance(listed, list | tuple):
        raise CorruptDataError("codec n5_default: codecs is missing or no list")
    specs = [_parse_codec(entry) for entry in listed]
    if not 2 <= len(specs) <= 3:
        raise CorruptDataError(
            f"codec n5_default: {len(specs)} codecs where transpose, bytes and at most one compressor belong"
        )
    ndim = _check_transpose(specs[0])
    _check_bytes(specs[1])
    return Configuration(specs[0], specs[1], specs[2] if len(specs) == 3 else None, ndim)


def _parse_codec(entry: object) -> CodecSpec:
    if isinstance(entry, CodecSpec):
        return entry
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise CorruptDataError(f"codec n5_default: codecs holds {entry!r:.200}, no codec object")
    configuration = entry.get("configuration", {})
    if not isinstance(configuration, Mapping):
        raise CorruptDataError(
            f"codec n5_default: the configuration of {entry['name']!r:.100} is no object"
        )
    return CodecSpec(entry["name"], configuration)


def _check_transpose(spec: CodecSpec) -> int:
    order = spec.configuration.get("order")
    if spec.name != "transpose":
        raise CorruptDataError(
            f"codec n5_default: {spec.name!r:.100} stands where transpose belongs"
        )
    whole = isinstance(order, list | tuple) and all(type(axis) is int for axis in order)
    if not whole or not order or len(order) > limits.MAX_DIMENSIONS:
        raise CorruptDataError(
            f"codec n5_default: transpose order {order!r:.200} is no list of axes"
        )
    if list(order) != list(reversed(range(len(order)))):
        raise CorruptDataError(
            f"codec n5_default: transpose order {list(order)} does not reverse all axes"
        )
    return len(order)


def _check_bytes(spec: CodecSpec) -> None:
    if spec.name != "bytes":
        raise CorruptDataError(f"codec n5_default: {spec.name!r:.100} stands where bytes belongs")
    endian = spec.configuration.get("endian")
    if endian not in (None, "big"):
        raise CorruptDataError(f"codec n5_default: bytes has endian {endian!r:.100}, not big")
