"""Chunked arrays: the protocol, chunk grids, views with other axes, and reading a region.

All shapes and regions are in C order, slowest axis first. A region is one `(start, stop)` pair for each axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from openreadout.errors import InputError
from openreadout.record import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from openreadout.codecs import CodecSpec, CoreForm
    from openreadout.errors import OpenReadoutError

Region = tuple[tuple[int, int], ...]
ChunkIndex = tuple[int, ...]


@record
class ArrayLayout:
    """How an array is stored, in the order of the stored axes: for people to read, and for planning copies."""

    chunk: tuple[int, ...]
    shard: tuple[int, ...] | None
    codecs: tuple[CodecSpec, ...]


@record
class Presence:
    """Which chunks of an array are stored.

    `total` counts the grid's chunks (shards, for a sharded array), `stored` those found; beyond the sampling limit
    `stored` is an estimate from `samples` chunks and `exact` is False. `first` and `last` are the indices, in units of
    `chunk_shape`, of the first and last stored chunk in C order. `strays` are keys below the array that no chunk or
    document explains.
    """

    total: int
    stored: int
    first: ChunkIndex | None
    last: ChunkIndex | None
    exact: bool = True
    samples: int = 0
    strays: tuple[str, ...] = ()


class ChunkedArray(Protocol):
    """An array that is read chunk by chunk, from several threads."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        ...

    @property
    def dtype(self) -> str:
        """numpy name of the samples' type, or the file's own word for one that is not read."""
        ...

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """The unit that is decoded alone (the inner chunk of a sharded array)."""
        ...

    @property
    def fill_value(self) -> Any:
        """What a chunk that is not stored reads as."""
        ...

    @property
    def layout(self) -> ArrayLayout:
        """How it is stored."""
        ...

    def is_stored(self, index: ChunkIndex) -> bool:
        """Whether the chunk is stored; one that is not reads as the fill value."""
        ...

    def read_chunk(self, index: ChunkIndex) -> NDArray[Any]:
        """The chunk, clipped to the array, in native byte order."""
        ...

    def locate(self, index: ChunkIndex) -> str:
        """The key, or the IFD and offset, that holds the chunk: for messages."""
        ...

    def presence(self) -> Presence:
        """Count the stored chunks, by listing where that is possible."""
        ...

    def stored_indices(self) -> Iterator[ChunkIndex]:
        """Every stored chunk in C order, in units of `chunk_shape`."""
        ...


@runtime_checkable
class PortableChunks(Protocol):
    """A chunked array of no Zarr or N5 store, whose stored chunks Zarr can hold under codecs of its own."""

    def take_portable(self, index: ChunkIndex) -> tuple[NDArray[Any] | None, CoreForm | None]:
        """The samples of a chunk, clipped to the array, and its stored bytes under a chain that decodes the same.

        The samples are None for a chunk that is not stored, the form is None where Zarr cannot hold it. Raises what
        `read_chunk` raises.
        """
        ...


def grid_shape(shape: Sequence[int], chunk_shape: Sequence[int]) -> tuple[int, ...]:
    """Chunks along each axis; an axis of length 0 has none."""
    return tuple(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True))


def chunk_region(index: Sequence[int], shape: Sequence[int], chunk_shape: Sequence[int]) -> Region:
    """The part of the array that a chunk covers, clipped to the array."""
    return tuple(
        (i * c, min((i + 1) * c, n)) for i, n, c in zip(index, shape, chunk_shape, strict=True)
    )


def region_shape(region: Region) -> tuple[int, ...]:
    """Lengths of a region's sides."""
    return tuple(stop - start for start, stop in region)


def chunks_in(region: Region, chunk_shape: Sequence[int]) -> Iterator[ChunkIndex]:
    """Indices of the chunks that a region touches, in C order."""
    ranges = [
        range(start // c, -(-stop // c))
        for (start, stop), c in zip(region, chunk_shape, strict=True)
    ]
    return itertools.product(*ranges) if all(stop > start for start, stop in region) else iter(())


def count_chunks(region: Region, chunk_shape: Sequence[int]) -> int:
    """How many chunks a region touches: as many as `chunks_in` gives."""
    if any(stop <= start for start, stop in region):
        return 0
    sides = zip(region, chunk_shape, strict=True)
    return math.prod(-(-stop // c) - start // c for (start, stop), c in sides)


def nth_index(n: int, grid: Sequence[int]) -> ChunkIndex:
    """The `n`-th index of a grid in C order."""
    index = []
    for size in reversed(grid):
        n, i = divmod(n, size)
        index.append(i)
    return tuple(reversed(index))


OnError = Callable[[ChunkIndex, "OpenReadoutError"], None]


def read_region(
    array: ChunkedArray, region: Region, on_error: OnError | None = None
) -> NDArray[Any]:
    """Read a region chunk by chunk, in this thread.

    Parameters
    ----------
    array : ChunkedArray
    region : Region
        Inside the array.
    on_error : callable, optional
        Called with the chunk's index and the error of a chunk that cannot be read; its part then stays zero. Without
        it the error is raised.

    Returns
    -------
    numpy.ndarray
        C order, native byte order; the single chunk itself where it covers the region exactly.
    """
    import numpy as np

    from openreadout.codecs import native

    indices = list(chunks_in(region, array.chunk_shape))
    if (
        len(indices) == 1
        and chunk_region(indices[0], array.shape, array.chunk_shape) == region
        and on_error is None
    ):
        return array.read_chunk(indices[0])
    out = np.zeros(region_shape(region), dtype=native(array.dtype))
    for index in indices:
        try:
            place_chunk(out, region, array, index)
        except InputError as error:
            if on_error is None:
                raise
            on_error(index, error)
    return out


def place_chunk(out: NDArray[Any], region: Region, array: ChunkedArray, index: ChunkIndex) -> None:
    """Read one chunk and put the part of it that lies in `region` into `out`, which covers that region."""
    covers = chunk_region(index, array.shape, array.chunk_shape)
    overlap = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(region, covers, strict=True)]
    target = tuple(
        slice(lo - start, hi - start) for (lo, hi), (start, _) in zip(overlap, region, strict=True)
    )
    source = tuple(
        slice(lo - start, hi - start) for (lo, hi), (start, _) in zip(overlap, covers, strict=True)
    )
    out[target] = array.read_chunk(index)[source]


@record
class AxisView:
    """A stored array seen with other axes: reordered, with some fixed at an index, with new ones of length 1.

    `axes[n]` is the stored axis that axis n of the view shows, or None for a new axis of length 1. Stored axes that no
    entry names are read at their entry in `fixed` (0 unless given).
    """

    array: ChunkedArray
    axes: tuple[int | None, ...]
    fixed: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._pick(self.array.shape)

    @property
    def dtype(self) -> str:
        return self.array.dtype

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        return self._pick(self.array.chunk_shape)

    @property
    def fill_value(self) -> Any:
        return self.array.fill_value

    @property
    def layout(self) -> ArrayLayout:
        return self.array.layout

    def _pick(self, lengths: Sequence[int]) -> tuple[int, ...]:
        return tuple(1 if axis is None else lengths[axis] for axis in self.axes)

    def _fixed(self, axis: int) -> int:
        return self.fixed[axis] if self.fixed else 0

    def stored_index(self, index: ChunkIndex) -> ChunkIndex:
        """The index of the stored chunk that holds the chunk `index` of this view."""
        stored = [self._fixed(axis) // c for axis, c in enumerate(self.array.chunk_shape)]
        for axis, i in zip(self.axes, index, strict=True):
            if axis is not None:
                stored[axis] = i
        return tuple(stored)

    def _view_index(self, stored: ChunkIndex) -> ChunkIndex | None:
        """The index in this view of a stored chunk; None when the view does not show it."""
        for axis, (i, c) in enumerate(zip(stored, self.array.chunk_shape, strict=True)):
            if axis not in self.axes and i != self._fixed(axis) // c:
                return None
        return tuple(0 if axis is None else stored[axis] for axis in self.axes)

    def is_stored(self, index: ChunkIndex) -> bool:
        return self.array.is_stored(self.stored_index(index))

    def locate(self, index: ChunkIndex) -> str:
        return self.array.locate(self.stored_index(index))

    def read_chunk(self, index: ChunkIndex) -> NDArray[Any]:
        return self.turned(self.array.read_chunk(self.stored_index(index)))

    def turned(self, chunk: NDArray[Any]) -> NDArray[Any]:
        """A chunk of the stored array as this view shows it."""
        shown = [axis for axis in self.axes if axis is not None]
        at = tuple(
            slice(None) if axis in shown else self._fixed(axis) % self.array.chunk_shape[axis]
            for axis in range(chunk.ndim)
        )
        kept = sorted(shown)
        view = chunk[at].transpose([kept.index(axis) for axis in shown])
        return view[tuple(None if axis is None else slice(None) for axis in self.axes)]

    def presence(self) -> Presence:
        inner = self.array.presence()
        if inner.first is None or inner.last is None:
            return inner
        return replace(
            inner, first=self._view_index(inner.first), last=self._view_index(inner.last)
        )

    def stored_indices(self) -> Iterator[ChunkIndex]:
        found = (self._view_index(stored) for stored in self.array.stored_indices())
        return (index for index in found if index is not None)


@record
class Stack:
    """Arrays of one shape, type and chunk shape, laid along a new first axis; None stands for one that is not there.

    Time points and channels that a container keeps in datasets of their own become one array this way.
    """

    parts: tuple[ChunkedArray | None, ...]

    @property
    def _model(self) -> ChunkedArray:
        return next(part for part in self.parts if part is not None)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.parts), *self._model.shape)

    @property
    def dtype(self) -> str:
        return self._model.dtype

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        return (1, *self._model.chunk_shape)

    @property
    def fill_value(self) -> Any:
        return self._model.fill_value

    @property
    def layout(self) -> ArrayLayout:
        inner = self._model.layout
        return ArrayLayout(
            (1, *inner.chunk), (1, *inner.shard) if inner.shard else None, inner.codecs
        )

    def is_stored(self, index: ChunkIndex) -> bool:
        part = self.parts[index[0]]
        return part is not None and part.is_stored(index[1:])

    def locate(self, index: ChunkIndex) -> str:
        part = self.parts[index[0]]
        return self._model.locate(index[1:]) if part is None else part.locate(index[1:])

    def read_chunk(self, index: ChunkIndex) -> NDArray[Any]:
        import numpy as np

        part = self.parts[index[0]]
        if part is None:
            model = self._model
            shape = region_shape(chunk_region(index[1:], model.shape, model.chunk_shape))
            return np.full((1, *shape), model.fill_value, dtype=np.dtype(model.dtype))
        return part.read_chunk(index[1:])[None]

    def presence(self) -> Presence:
        found = [(n, part.presence()) for n, part in enumerate(self.parts) if part is not None]
        firsts = [(n, p.first) for n, p in found if p.first is not None]
        lasts = [(n, p.last) for n, p in found if p.last is not None]
        each = found[0][1].total
        return Presence(
            total=each * len(self.parts),
            stored=sum(p.stored for _, p in found),
            first=(firsts[0][0], *firsts[0][1]) if firsts else None,
            last=(lasts[-1][0], *lasts[-1][1]) if lasts else None,
            exact=all(p.exact for _, p in found),
            strays=tuple(key for _, p in found for key in p.strays),
        )

    def stored_indices(self) -> Iterator[ChunkIndex]:
        for n, part in enumerate(self.parts):
            if part is not None:
                yield from ((n, *index) for index in part.stored_indices())


@record
class SamplesAsChannels:
    """An array whose last axis is colour samples, seen with each sample as a channel of its own.

    The last stored axis is folded into `channel_axis`: channel n of the view is sample `n % samples` of stored channel
    `n // samples`. The stored chunks must hold all samples of a pixel.
    """

    array: ChunkedArray
    channel_axis: int

    @property
    def _samples(self) -> int:
        return self.array.shape[-1]

    def _fold(self, lengths: Sequence[int]) -> tuple[int, ...]:
        folded = list(lengths[:-1])
        folded[self.channel_axis] *= lengths[-1]
        return tuple(folded)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._fold(self.array.shape)

    @property
    def dtype(self) -> str:
        return self.array.dtype

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        return self._fold((*self.array.chunk_shape[:-1], self._samples))

    @property
    def fill_value(self) -> Any:
        return self.array.fill_value

    @property
    def layout(self) -> ArrayLayout:
        return self.array.layout

    def is_stored(self, index: ChunkIndex) -> bool:
        return self.array.is_stored((*index, 0))

    def locate(self, index: ChunkIndex) -> str:
        return self.array.locate((*index, 0))

    def read_chunk(self, index: ChunkIndex) -> NDArray[Any]:
        return self.turned(self.array.read_chunk((*index, 0)))

    def turned(self, chunk: NDArray[Any]) -> NDArray[Any]:
        """A chunk of the stored array as this view shows it."""
        import numpy as np

        moved = np.moveaxis(chunk, -1, self.channel_axis + 1)
        return moved.reshape(self._fold(chunk.shape))

    def presence(self) -> Presence:
        return self.array.presence()

    def stored_indices(self) -> Iterator[ChunkIndex]:
        return (index[:-1] for index in self.array.stored_indices())


@runtime_checkable
class ReadsWhole(Protocol):
    """An array that reads otherwise where every chunk of it is wanted."""

    read_whole: bool


def expect_all(array: ChunkedArray, *, wanted: bool = True) -> None:
    """Say of an array, through whatever views, that every chunk of it is going to be read, or no longer."""
    if isinstance(array, Stack):
        for part in array.parts:
            if part is not None:
                expect_all(part, wanted=wanted)
    elif isinstance(array, AxisView | SamplesAsChannels):
        expect_all(array.array, wanted=wanted)
    elif isinstance(array, ReadsWhole):
        array.read_whole = wanted


def with_axes(array: ChunkedArray, axes: Sequence[int | None]) -> ChunkedArray:
    """`array` with the axes of `AxisView`, or itself when these are its own."""
    return array if list(axes) == list(range(len(array.shape))) else AxisView(array, tuple(axes))


def sample_count(shape: Sequence[int]) -> int:
    """Samples of an array of this shape."""
    return math.prod(shape)
