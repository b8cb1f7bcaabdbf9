"""The `sharding_indexed` codec: many small chunks in one object, with an index of where each lies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from openreadout import limits
from openreadout.arrays import grid_shape, nth_index
from openreadout.codecs import (
    Buffer,
    ByteSize,
    ChunkSpec,
    CodecChain,
    CodecLookup,
    CodecSpec,
    RangeReader,
    filled,
)
from openreadout.errors import CorruptDataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Position = tuple[int, ...]

EMPTY = (1 << 64) - 1
"""Offset and length of an inner chunk that is not stored."""
MAX_NESTING = 8
"""Shards inside shards; every level is built while metadata are parsed."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """A stored object that is in memory already, read by range."""

    data: memoryview

    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])


def parse_codecs(value: object, key: str) -> list[CodecSpec]:
    """The codecs that a list of the metadata names."""
    if not isinstance(value, list | tuple) or not value or len(value) > limits.MAX_DIMENSIONS:
        raise CorruptDataError(f"codec sharding_indexed: {key} is not a list of codecs")
    return [_codec(entry, key) for entry in value]


def _codec(entry: object, key: str) -> CodecSpec:
    if isinstance(entry, CodecSpec):
        return entry
    if isinstance(entry, str):
        return CodecSpec(entry)
    name = entry.get("name") if isinstance(entry, dict) else None
    configuration = entry.get("configuration", {}) if isinstance(entry, dict) else None
    if not isinstance(name, str) or not isinstance(configuration, dict):
        raise CorruptDataError(f"codec sharding_indexed: {key} holds {entry!r:.200}, no codec")
    return CodecSpec(name, configuration)


def _nesting(specs: list[CodecSpec]) -> int:
    """How many shards stand inside one another; metadata may hold any number."""
    depth = 1
    while specs and depth <= MAX_NESTING:
        inner = [spec for spec in specs if spec.name == "sharding_indexed"]
        if not inner:
            return depth
        specs = parse_codecs(inner[0].configuration.get("codecs"), "codecs")
        depth += 1
    return depth


def _parse_inner_shape(value: object) -> tuple[int, ...]:
    whole = isinstance(value, list | tuple) and all(
        type(n) is int and 0 < n <= limits.MAX_AXIS for n in value
    )
    if not whole or len(value) > limits.MAX_DIMENSIONS:  # type: ignore[arg-type]
        raise CorruptDataError(
            f"codec sharding_indexed: chunk_shape {value!r:.200} is not a list of lengths above 0"
        )
    return tuple(value)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ShardingCodec:
    """Zarr v3 core codec `sharding_indexed`, also a `PartialDecoder`.

    `inner_shape` is the shape of an inner chunk, in C order. An index is a uint64 array of shape (*grid, 2): offset
    from the start of the shard and length in bytes.
    """

    kind: ClassVar[str] = "array-bytes"
    inner_shape: tuple[int, ...]
    chain: CodecChain
    index_chain: CodecChain
    index_at_start: bool
    _index_sizes: dict[tuple[int, ...], int] = field(default_factory=dict, compare=False)

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> ShardingCodec:
        """Check the configuration and build both inner chains."""
        config = spec.configuration
        location = spec.choice("index_location", ("start", "end"), "end")
        inner = parse_codecs(config.get("codecs"), "codecs")
        if _nesting(inner) > MAX_NESTING:
            raise CorruptDataError("codec sharding_indexed: too many shards inside one another")
        index_codecs = parse_codecs(config.get("index_codecs"), "index_codecs")
        return cls(
            _parse_inner_shape(config.get("chunk_shape")),
            CodecChain.build(inner, lookup),
            CodecChain.build(index_codecs, lookup),
            location == "start",
        )

    # -- sizes ------------------------------------------------------------------------------------------------------

    def grid(self, spec: ChunkSpec) -> tuple[int, ...]:
        """Inner chunks along each axis; raises `CorruptDataError` when they do not tile the shard."""
        fits = len(spec.shape) == len(self.inner_shape) and all(
            n % inner == 0 for n, inner in zip(spec.shape, self.inner_shape, strict=True)
        )
        if not fits:
            raise CorruptDataError(
                f"sharding_indexed: inner chunks of {list(self.inner_shape)} do not fill a shard of {list(spec.shape)}"
            )
        return grid_shape(spec.shape, self.inner_shape)

    def inner_spec(self, spec: ChunkSpec) -> ChunkSpec:
        """What an inner chunk decodes to."""
        return ChunkSpec(self.inner_shape, spec.dtype, spec.fill_value)

    def index_spec(self, spec: ChunkSpec) -> ChunkSpec:
        """What the index decodes to."""
        return ChunkSpec((*self.grid(spec), 2), "uint64", EMPTY)

    def index_bytes(self, spec: ChunkSpec) -> int:
        """Length of the stored index; its codecs must give one length whatever it holds."""
        grid = self.grid(spec)
        if grid not in self._index_sizes:
            size = self.index_chain.encoded(self.index_spec(spec))
            if not size.exact:
                raise CorruptDataError("sharding_indexed: the index codecs give no fixed length")
            self._index_sizes[grid] = size.count
        return self._index_sizes[grid]

    def encoded(self, spec: ChunkSpec) -> ByteSize:
        """At most the index and every inner chunk at its largest."""
        each = self.chain.encoded(self.inner_spec(spec)).count
        return ByteSize(each * math.prod(self.grid(spec)) + self.index_bytes(spec), exact=False)

    # -- reading by range -------------------------------------------------------------------------------------------

    def index_place(self, spec: ChunkSpec) -> tuple[int, bool]:
        """Length of the stored index, and whether it stands at the start of the shard."""
        return self.index_bytes(spec), self.index_at_start

    def load_index(self, reader: RangeReader, spec: ChunkSpec) -> NDArray[Any]:
        """Read the index and check that every inner chunk lies inside the object.

        Raises
        ------
        CorruptDataError
            The object is shorter than its index, the checksum does not fit, or an offset points outside.
        """
        length, total = self.index_bytes(spec), reader.size()
        if length > total:
            raise CorruptDataError(
                f"sharding_indexed: the shard has {total} bytes, its index alone takes {length}"
            )
        offset = 0 if self.index_at_start else total - length
        try:
            index = self.index_chain.decode(reader.read(offset, length), self.index_spec(spec))
        except CorruptDataError as error:
            raise CorruptDataError(f"sharding_indexed: index: {error.message}") from error
        self._check_index(index, total)
        return index

    def _check_index(self, index: NDArray[Any], total: int) -> None:
        import numpy as np

        offsets, lengths = index[..., 0], index[..., 1]
        empty = (offsets == EMPTY) & (lengths == EMPTY)
        # a length is compared before it is added, since sums of two 64-bit numbers wrap round
        inside = (lengths <= total) & (offsets <= total)
        inside &= offsets <= np.uint64(total) - np.where(inside, lengths, np.uint64(0))
        bad = ~(empty | inside)
        if bad.any():
            at = tuple(int(n) for n in np.argwhere(bad)[0])
            raise CorruptDataError(
                f"sharding_indexed: inner chunk {list(at)} is said to lie at {int(offsets[at])} with"
                f" {int(lengths[at])} bytes, outside the shard of {total} bytes"
            )

    def is_stored(self, index: NDArray[Any], position: Position) -> bool:
        """Whether the inner chunk at grid `position` is stored."""
        return int(index[position][0]) != EMPTY

    def stored_parts(self, index: NDArray[Any], spec: ChunkSpec) -> list[Position]:
        """Grid positions of the stored inner chunks, in C order."""
        import numpy as np

        return [tuple(int(n) for n in at) for at in np.argwhere(index[..., 0] != EMPTY)]

    def decode_part(
        self, reader: RangeReader, index: NDArray[Any], position: Position, spec: ChunkSpec
    ) -> NDArray[Any] | None:
        """The inner chunk at grid `position`, or None when it is not stored."""
        data = self.encoded_part(reader, index, position, spec)
        if data is None:
            return None
        try:
            return self.chain.decode(data, self.inner_spec(spec))
        except CorruptDataError as error:
            raise CorruptDataError(
                f"sharding_indexed: inner chunk {list(position)}: {error.message}"
            ) from error

    def encoded_part(
        self, reader: RangeReader, index: NDArray[Any], position: Position, spec: ChunkSpec
    ) -> bytes | None:
        """The stored bytes of the inner chunk at grid `position`, or None when it is not stored."""
        offset, length = (int(n) for n in index[position])
        if offset == EMPTY:
            return None
        inner = self.inner_spec(spec)
        most = self.chain.encoded(inner).count
        if length > most:  # the index of a small file can name one long range a million times
            raise CorruptDataError(
                f"sharding_indexed: inner chunk {list(position)} takes {length} bytes where at most {most} belong"
            )
        return reader.read(offset, length)

    # -- whole shards -----------------------------------------------------------------------------------------------

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """The whole shard; inner chunks that are not stored hold the fill value."""
        reader = _Whole(memoryview(data))
        index = self.load_index(reader, spec)
        out = filled(spec)
        for position in self.stored_parts(index, spec):
            out[self._region(position)] = self.decode_part(reader, index, position, spec)
        return out

    def _region(self, position: Position) -> tuple[slice, ...]:
        return tuple(
            slice(i * n, (i + 1) * n) for i, n in zip(position, self.inner_shape, strict=True)
        )

    def encode(self, data: NDArray[Any], spec: ChunkSpec) -> bytes:
        """Encode a whole shard; inner chunks that hold nothing but the fill value are left out."""
        inner = self.inner_spec(spec)
        grid = self.grid(spec)
        parts = {}
        for n in range(math.prod(grid)):
            position = nth_index(n, grid)
            part = data[self._region(position)]
            if not holds_only(part, inner):
                parts[position] = self.chain.encode(part, inner)
        return self.assemble(parts, spec)

    def assemble(self, parts: Mapping[Position, Buffer], spec: ChunkSpec) -> bytes:
        """A shard of inner chunks that are encoded already, by grid position; the rest are not stored."""
        index = filled(self.index_spec(spec))
        offset = self.index_bytes(spec) if self.index_at_start else 0
        pieces = []
        for position in sorted(parts):
            index[position] = (offset, len(parts[position]))
            offset += len(parts[position])
            pieces.append(parts[position])
        stored_index = self.index_chain.encode(index, self.index_spec(spec))
        ordered = [stored_index, *pieces] if self.index_at_start else [*pieces, stored_index]
        return b"".join(ordered)


def holds_only(array: NDArray[Any], spec: ChunkSpec) -> bool:
    """Whether every sample has the very bits of the fill value (so that -0.0 and NaN survive)."""
    import numpy as np

    fill = np.asarray(spec.fill_value, dtype=np.dtype(spec.dtype)).reshape(1)
    if array.size and array.flat[0].tobytes() != fill[0].tobytes():
        return False
    width = min(8, spec.item_bytes)
    bits = np.ascontiguousarray(array).reshape(-1).view(f"u{width}")
    wanted = fill.view(f"u{width}")
    return bool((bits.reshape(-1, len(wanted)) == wanted).all())
