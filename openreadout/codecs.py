"""Codec protocols, and the chain that decodes and encodes one chunk.

Codecs come in the three kinds of the Zarr v3 core specification, section "Codecs": array to array, array to bytes
and bytes to bytes. Zarr v2 compressors and filters and N5 compressions are put into the same form by their readers.
numpy is imported only when a chunk is worked on, so that describing a store costs nothing.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from openreadout import limits
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.record import record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ITEM_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "int32": 4, "uint32": 4, "float32": 4,
    "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Size in bytes of each data type that pixels may have, by numpy name."""

WIDENED = {"bool": "uint8", "float16": "float32"}
"""Types that are read as another one."""

NUMCODECS_NAMES = {name: f"numcodecs.{name}" for name in ("lz4", "bz2", "lzma", "zlib")}
"""Zarr v3 names of codecs that Zarr v2 knows by a bare name."""

Buffer = bytes | bytearray | memoryview

LIBRARY_ERRORS = (
    RuntimeError, ValueError, TypeError, ArithmeticError, LookupError, AssertionError, EOFError, struct.error,
)  # fmt: skip
"""What libraries raise for damaged data; which of these it is changes from one of their versions to the next."""


@record
class CodecSpec:
    """A codec as metadata names it; it may name one that is not installed."""

    name: str
    configuration: Mapping[str, Any] = field(default_factory=dict)

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number of the configuration, from `low` to `high`; without a default it must be there."""
        value = self.configuration.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise CorruptDataError(
                f"codec {self.name}: {key} is {value!r}, not a whole number from {low} to {high}"
            )
        return value

    def choice(self, key: str, allowed: Sequence[str], default: str | None = None) -> str:
        """A word of the configuration out of `allowed`; without a default it must be there."""
        value = self.configuration.get(key, default)
        if not isinstance(value, str) or value not in allowed:
            raise CorruptDataError(
                f"codec {self.name}: {key} is {value!r}, not one of {', '.join(allowed)}"
            )
        return value


@record
class ByteSize:
    """How many bytes a step must give: exactly `count`, or at most that many."""

    count: int
    exact: bool = True

    def grown(self, extra: int) -> ByteSize:
        """The bound after adding at most `extra` bytes."""
        return ByteSize(self.count + extra, exact=False)

    def check(self, size: int, codec: str) -> None:
        """Raise `CorruptDataError` unless `size` bytes satisfy this bound."""
        if size > self.count or (self.exact and size != self.count):
            wanted = f"{self.count}" if self.exact else f"at most {self.count}"
            raise CorruptDataError(f"{codec}: {size} bytes where {wanted} belong")


@record
class ChunkSpec:
    """What a step must decode to: `shape` (C order, slowest axis first), numpy `dtype` name, `fill_value`."""

    shape: tuple[int, ...]
    dtype: str
    fill_value: Any = 0

    @property
    def item_bytes(self) -> int:
        """Bytes of one sample."""
        try:
            return ITEM_BYTES[self.dtype]
        except KeyError:
            raise UnsupportedFeatureError(f"data type {self.dtype} is not one of pixels") from None

    @property
    def byte_count(self) -> int:
        """Bytes of the whole chunk."""
        return math.prod(self.shape) * self.item_bytes


class RangeReader(Protocol):
    """One stored object, read by byte range; what a partial decoder is given."""

    def size(self) -> int:
        """Length in bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`; raises `CorruptDataError` when they are not all there."""
        ...


class ArrayArrayCodec(Protocol):
    """Array to array, such as `transpose`."""

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """What an array of `spec` looks like after encoding."""
        ...

    def decode(self, data: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Undo the codec; the result has the shape and dtype of `spec`."""
        ...

    def encode(self, data: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Apply the codec to an array of `spec`."""
        ...


class ArrayBytesCodec(Protocol):
    """Array to bytes, such as `bytes`, `sharding_indexed`, `n5_default`, `jpeg`."""

    def encoded(self, spec: ChunkSpec) -> ByteSize:
        """How many bytes an array of `spec` encodes to."""
        ...

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode to an array of exactly `spec`; raises `CorruptDataError` on anything else."""
        ...

    def encode(self, data: NDArray[Any], spec: ChunkSpec) -> Buffer:
        """Encode an array of `spec`; the result may be a view of `data`."""
        ...


@runtime_checkable
class PartialDecoder(Protocol):
    """An array-to-bytes codec that can decode a part of a chunk from byte ranges (`sharding_indexed`)."""

    inner_shape: tuple[int, ...]
    chain: CodecChain
    """The codecs of a part."""

    def inner_spec(self, spec: ChunkSpec) -> ChunkSpec:
        """What a part of a chunk of `spec` decodes to."""
        ...

    def encoded_part(
        self, reader: RangeReader, index: Any, position: tuple[int, ...], spec: ChunkSpec
    ) -> bytes | None:
        """The part at `position` as it is stored, or None when it is not."""
        ...

    def index_place(self, spec: ChunkSpec) -> tuple[int, bool]:
        """Length in bytes of what locates the parts, and whether that stands at the start and not at the end."""
        ...

    def load_index(self, reader: RangeReader, spec: ChunkSpec) -> Any:
        """Read and verify whatever locates the parts; the result may be kept and passed to the other methods."""
        ...

    def is_stored(self, index: Any, position: tuple[int, ...]) -> bool:
        """Whether the part at grid `position` inside the chunk is stored."""
        ...

    def stored_parts(self, index: Any, spec: ChunkSpec) -> list[tuple[int, ...]]:
        """Grid positions of the stored parts, in C order."""
        ...

    def decode_part(
        self, reader: RangeReader, index: Any, position: tuple[int, ...], spec: ChunkSpec
    ) -> NDArray[Any] | None:
        """The whole part at `position` (shape `inner_shape`), or None when it is not stored."""
        ...


class BytesBytesCodec(Protocol):
    """Bytes to bytes, such as `zstd`, `blosc`, `gzip`, `crc32c`."""

    def encoded(self, size: ByteSize) -> ByteSize:
        """The bound on what `size` bytes encode to."""
        ...

    def decode(self, data: Buffer, size: ByteSize) -> Buffer:
        """Decode within the bound `size`; raises `CorruptDataError` on damage, more or fewer bytes."""
        ...

    def encode(self, data: Buffer) -> bytes:
        """Encode; codecs that are only read raise `UnsupportedFeatureError`."""
        ...


@record
class CoreForm:
    """An encoded chunk as core Zarr v3 holds it: the chain that decodes it, and the bytes."""

    codecs: tuple[CodecSpec, ...]
    data: Buffer


@runtime_checkable
class PortableBytes(Protocol):
    """A bytes-to-bytes codec whose encoded data core Zarr v3 can hold, as they are or in another wrapping."""

    def decode_portable(self, data: Buffer, size: ByteSize) -> tuple[Buffer, CoreForm | None]:
        """Decode as `decode` does, and give the core form of `data`.

        None in place of the form where other readers could trip over the data: several members or frames, trailing
        bytes, a variant that few builds read.
        """
        ...


@runtime_checkable
class PortableArray(Protocol):
    """An array-to-bytes codec that core Zarr v3 lacks, whose chunks a core chain can hold (`n5_default`)."""

    def decode_portable(
        self, data: Buffer, spec: ChunkSpec
    ) -> tuple[NDArray[Any], CoreForm | None]:
        """Decode as `decode` does, and give the core form of `data` or None."""
        ...


class CodecFactory(Protocol):
    """What the entry points of group `openreadout.codecs` name: a class with its kind and a constructor.

    A name that stands for codecs of more than one kind has a method `placed(spec, after_bytes)` besides, which gives
    the factory for one of them and for its place in the chain: before or after the array-to-bytes codec.
    """

    kind: str
    """`array-array`, `array-bytes` or `bytes-bytes`."""

    def from_spec(self, spec: CodecSpec, lookup: CodecLookup) -> Any:
        """Build the codec; raises `CorruptDataError` for a configuration that breaks the codec's rules."""
        ...


CodecLookup = Callable[[str], CodecFactory]
"""Finds the factory of a codec by name; raises `UnsupportedFeatureError` for one that is not installed."""


@record
class CodecChain:
    """The codecs of one array, outermost array first: array to array, one array to bytes, bytes to bytes."""

    array_array: tuple[ArrayArrayCodec, ...]
    array_bytes: ArrayBytesCodec
    bytes_bytes: tuple[BytesBytesCodec, ...]
    specs: tuple[CodecSpec, ...]

    @classmethod
    def build(cls, specs: Sequence[CodecSpec], lookup: CodecLookup) -> CodecChain:
        """Build a chain; raises `UnsupportedFeatureError` (codec not installed) or `CorruptDataError` (bad order)."""
        if len(specs) > limits.MAX_CODECS:
            raise CorruptDataError(
                f"a chain of {len(specs)} codecs, more than {limits.MAX_CODECS}",
                hint=limits.raised_by("MAX_CODECS", len(specs)),
            )
        kinds: dict[str, list[Any]] = {"array-array": [], "array-bytes": [], "bytes-bytes": []}
        reached = 0
        for spec in specs:
            factory = lookup(spec.name)
            placed = getattr(factory, "placed", None)
            if placed is not None:
                factory = placed(spec, bool(kinds["array-bytes"]))
            stage = list(kinds).index(factory.kind)
            if stage < reached or (factory.kind == "array-bytes" and kinds["array-bytes"]):
                raise CorruptDataError(f"codec {spec.name}: not allowed at this place of the chain")
            reached = stage
            kinds[factory.kind].append(factory.from_spec(spec, lookup))
        if not kinds["array-bytes"]:
            raise CorruptDataError("the codec chain has no array-to-bytes codec")
        return cls(
            tuple(kinds["array-array"]),
            kinds["array-bytes"][0],
            tuple(kinds["bytes-bytes"]),
            tuple(specs),
        )

    @property
    def lossy(self) -> bool:
        """Whether a codec says of itself that what it encodes comes back as other samples."""
        return any(
            getattr(codec, "lossy", False)
            for codec in (*self.array_array, self.array_bytes, *self.bytes_bytes)
        )

    @property
    def partial(self) -> PartialDecoder | None:
        """The codec that can decode parts of a stored chunk, when nothing stands around it."""
        if (
            not self.array_array
            and not self.bytes_bytes
            and isinstance(self.array_bytes, PartialDecoder)
        ):
            return self.array_bytes
        return None

    def _specs(self, spec: ChunkSpec) -> list[ChunkSpec]:
        specs = [spec]
        for codec in self.array_array:
            specs.append(codec.encoded(specs[-1]))
        return specs

    def _sizes(self, spec: ChunkSpec) -> list[ByteSize]:
        sizes = [self.array_bytes.encoded(spec)]
        for codec in self.bytes_bytes:
            sizes.append(codec.encoded(sizes[-1]))
        return sizes

    def encoded(self, spec: ChunkSpec) -> ByteSize:
        """The bound on the bytes that a chunk of `spec` encodes to."""
        return self._sizes(self._specs(spec)[-1])[-1]

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode one stored chunk to an array of exactly `spec`.

        Raises
        ------
        CorruptDataError
            The bytes do not decode to the shape and size that `spec` demands; the message names the codec.
        UnsupportedFeatureError
            The chunk uses a feature of its codec that is not read.
        """
        specs = self._specs(spec)
        sizes = self._sizes(specs[-1])
        for codec, size in zip(reversed(self.bytes_bytes), reversed(sizes[:-1]), strict=True):
            data = codec.decode(data, size)
        array = self.array_bytes.decode(data, specs[-1])
        for step, inner in zip(reversed(self.array_array), reversed(specs[:-1]), strict=True):
            array = step.decode(array, inner)
        return array

    def decode_portable(
        self, data: Buffer, spec: ChunkSpec, *, keep: bool = False
    ) -> tuple[NDArray[Any], CoreForm | None]:
        """Decode one stored chunk, and give it as core Zarr v3 can hold it.

        With `keep` a chain that ends in codecs of the `numcodecs.` namespace counts as well, and so does a lossy one.
        The form is None when the chunk can only be encoded anew.
        """
        if keep and self.lossy:
            return self.decode(data, spec), CoreForm(self.specs, data)
        specs = self._specs(spec)
        lead = len(self.array_array)
        if isinstance(self.array_bytes, PortableArray) and not self.bytes_bytes:
            array, form = self.array_bytes.decode_portable(data, specs[-1])
        else:
            array, form = self._portable_bytes(data, specs[-1], self.specs[lead], keep=keep)
        for step, inner in zip(reversed(self.array_array), reversed(specs[:-1]), strict=True):
            array = step.decode(array, inner)
        if form is None or any(s.name != "transpose" for s in self.specs[:lead]):
            return array, None
        return array, CoreForm((*self.specs[:lead], *form.codecs), form.data)

    def _portable_bytes(
        self, data: Buffer, spec: ChunkSpec, first: CodecSpec, *, keep: bool
    ) -> tuple[NDArray[Any], CoreForm | None]:
        """The part of `decode_portable` after the array-to-array codecs."""
        sizes = self._sizes(spec)
        form: CoreForm | None = None
        if len(self.bytes_bytes) == 1 and isinstance(self.bytes_bytes[0], PortableBytes):
            raw, form = self.bytes_bytes[0].decode_portable(data, sizes[0])
        else:
            raw = data
            for codec, size in zip(reversed(self.bytes_bytes), reversed(sizes[:-1]), strict=True):
                raw = codec.decode(raw, size)
        array = self.array_bytes.decode(raw, spec)
        if form is None and keep:
            form = self._kept(data)
        if form is None or first.name != "bytes":
            return array, None
        return array, CoreForm((first, *form.codecs), form.data)

    def _kept(self, data: Buffer) -> CoreForm | None:
        """The data under the names that Zarr v3 has for numcodecs' codecs."""
        outer = self.specs[len(self.array_array) + 1 :]
        names = [NUMCODECS_NAMES.get(spec.name, spec.name) for spec in outer]
        if not outer or not all(name.startswith("numcodecs.") for name in names):
            return None
        renamed = (CodecSpec(n, s.configuration) for n, s in zip(names, outer, strict=True))
        return CoreForm(tuple(renamed), data)

    def encode(self, array: NDArray[Any], spec: ChunkSpec) -> bytes:
        """Encode an array of `spec` to the bytes to store."""
        for step, inner in zip(self.array_array, self._specs(spec), strict=False):
            array = step.encode(array, inner)
        data: Buffer = self.array_bytes.encode(array, self._specs(spec)[-1])
        for codec in self.bytes_bytes:
            data = codec.encode(data)
        return bytes(data)


def filled(spec: ChunkSpec) -> NDArray[Any]:
    """A chunk of `spec` that holds its fill value throughout."""
    import numpy as np

    return np.full(spec.shape, spec.fill_value, dtype=np.dtype(spec.dtype))


def native(dtype: str) -> np.dtype[Any]:
    """The numpy dtype of a data type name, in this machine's byte order."""
    import numpy as np

    if dtype not in ITEM_BYTES:
        raise UnsupportedFeatureError(f"data type {dtype} is not one of pixels")
    return np.dtype(dtype)
