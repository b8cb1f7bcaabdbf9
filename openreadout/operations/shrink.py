"""Planes made small: the chunks of a level are read once each and never held together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from openreadout import limits
from openreadout.access import full
from openreadout.arrays import ChunkedArray, chunk_region
from openreadout.errors import UnsupportedFeatureError, UsageError
from openreadout.model import Image
from openreadout.workers import Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Wanted:
    """Planes of one level: time point, channels, a range of z that is projected, and the size of the result.

    `width` and `height` are at most those of the level.
    """

    level: int
    t: int
    channels: tuple[int, ...]
    z: tuple[int, int]
    width: int
    height: int


def fit(width: int, height: int, box: tuple[int, int]) -> tuple[int, int]:
    """The largest size of the same proportions inside a box, never larger than the picture is."""
    factor = min(1.0, box[0] / max(1, width), box[1] / max(1, height))
    return max(1, round(width * factor)), max(1, round(height * factor))


def smallest_level(image: Image, width: int, height: int) -> int:
    """The last level that still has as many pixels as are shown."""
    for level in reversed(range(1, len(image.levels))):
        if image.size("x", level) >= width and image.size("y", level) >= height:
            return level
    return 0


def shrink(image: Image, wanted: Wanted, workers: Workers) -> NDArray[Any]:
    """The planes as an array (channel, y, x, sample).

    A pixel is the mean of the samples that it covers (double precision), for labels the one in their middle; over
    several z the largest.

    Raises
    ------
    UsageError
        The picture would take more than `MAX_PICTURE_CHUNKS` chunks.
    CorruptDataError, StorageError, UnsupportedFeatureError
        A chunk cannot be read.
    """
    if not image.readable:
        raise UnsupportedFeatureError(f"data type {image.dtype} is not one of pixels")
    array = full(image.levels[wanted.level].array, image.axis_names)
    samples = array.shape[5] if len(array.shape) > 5 else 1
    columns = list(
        itertools.islice(_columns(array, wanted, label=image.label), limits.MAX_PICTURE_CHUNKS + 1)
    )
    depth = -(-wanted.z[1] // array.chunk_shape[2]) - wanted.z[0] // array.chunk_shape[2]
    if len(columns) * depth * len(wanted.channels) > limits.MAX_PICTURE_CHUNKS:
        raise UsageError(
            f"the picture would be made of more than {limits.MAX_PICTURE_CHUNKS} chunks: no level is small enough",
            hint="openreadout export writes a pyramid; or choose --z, --channel or --image, or"
            " --limit MAX_PICTURE_CHUNKS=N",
        )
    shape = (len(wanted.channels), wanted.height, wanted.width, samples)
    if image.label:
        return _picked(array, wanted, columns, shape, workers)
    return _averaged(array, wanted, columns, shape, workers)


Column = tuple[int, int]


def _columns(array: ChunkedArray, wanted: Wanted, *, label: bool) -> Iterator[Column]:
    """Chunk rows and columns that the picture needs."""
    if not label:
        rows, cols = (
            range(-(-n // c)) for n, c in zip(array.shape[3:5], array.chunk_shape[3:5], strict=True)
        )
        # not itertools.product, which holds its ranges as tuples
        yield from ((row, col) for row in rows for col in cols)
        return
    places = [
        sorted({int(i) // c for i in _middles(n, out)})
        for n, c, out in zip(
            array.shape[3:5], array.chunk_shape[3:5], (wanted.height, wanted.width), strict=True
        )
    ]
    yield from itertools.product(*places)


def _middles(size: int, out: int) -> list[int]:
    """The sample in the middle of each pixel."""
    return [min(size - 1, (2 * i + 1) * size // (2 * out)) for i in range(out)]


def _picked(
    array: ChunkedArray,
    wanted: Wanted,
    columns: Sequence[Column],
    shape: tuple[int, ...],
    workers: Workers,
) -> NDArray[Any]:
    rows = np.array(_middles(array.shape[3], wanted.height))
    cols = np.array(_middles(array.shape[4], wanted.width))
    out: NDArray[Any] | None = None

    def work(column: Column) -> tuple[Column, list[NDArray[Any]]]:
        return column, _projected(array, wanted, column)

    for (row, col), planes in workers.map(work, columns):
        covers = chunk_region((0, 0, 0, row, col), array.shape[:5], array.chunk_shape[:5])
        (y0, y1), (x0, x1) = covers[3:]
        ys, xs = (
            np.flatnonzero((rows >= y0) & (rows < y1)),
            np.flatnonzero((cols >= x0) & (cols < x1)),
        )
        if out is None:
            out = np.zeros(shape, dtype=planes[0].dtype)
        for n, plane in enumerate(planes):
            out[n, ys[:, None], xs[None, :]] = plane[np.ix_(rows[ys] - y0, cols[xs] - x0)]
    return np.zeros(shape, dtype=np.uint8) if out is None else out


def _averaged(
    array: ChunkedArray,
    wanted: Wanted,
    columns: Sequence[Column],
    shape: tuple[int, ...],
    workers: Workers,
) -> NDArray[Any]:
    total = np.zeros(shape)
    count = np.zeros(shape[1:3])

    def work(column: Column) -> tuple[slice, slice, list[NDArray[Any]], NDArray[Any]]:
        row, col = column
        covers = chunk_region((0, 0, 0, row, col), array.shape[:5], array.chunk_shape[:5])
        ys, y_starts, y_counts = _bins(*covers[3], array.shape[3], wanted.height)
        xs, x_starts, x_counts = _bins(*covers[4], array.shape[4], wanted.width)
        sums = []
        for plane in _projected(array, wanted, column):
            real = np.abs(plane) if plane.dtype.kind == "c" else plane
            with np.errstate(over="ignore", invalid="ignore"):
                rows = np.add.reduceat(real, y_starts, axis=0, dtype=np.float64)
                sums.append(np.add.reduceat(rows, x_starts, axis=1))
        return ys, xs, sums, np.outer(y_counts, x_counts)

    for ys, xs, sums, counts in workers.map(work, columns):
        for n, part in enumerate(sums):
            total[n, ys, xs] += part
        count[ys, xs] += counts
    with np.errstate(invalid="ignore"):
        return total / np.maximum(count, 1)[:, :, None]


def _bins(start: int, stop: int, size: int, out: int) -> tuple[slice, NDArray[Any], NDArray[Any]]:
    """Which pixels the samples of a chunk fall into: their slice, where each begins, how many samples it gets."""
    bins = np.arange(start, stop, dtype=np.int64) * out // size
    places, starts, counts = np.unique(bins, return_index=True, return_counts=True)
    return slice(int(places[0]), int(places[-1]) + 1), starts, counts


def _projected(array: ChunkedArray, wanted: Wanted, column: Column) -> list[NDArray[Any]]:
    """The part of each channel's projection in one column of chunks, as (y, x, sample)."""
    ct, cc, cz = array.chunk_shape[:3]
    tail = (0,) * (len(array.shape) - 5)
    found: dict[int, NDArray[Any]] = {}
    z0, z1 = wanted.z
    for group, deep in itertools.product(
        dict.fromkeys(c // cc for c in wanted.channels), range(z0 // cz, -(-z1 // cz))
    ):
        block = _whole_samples(array, (wanted.t // ct, group, deep, *column, *tail))
        low, high = max(z0, deep * cz) - deep * cz, min(z1, (deep + 1) * cz) - deep * cz
        for c in (c for c in wanted.channels if c // cc == group):
            stack = block[wanted.t % ct, c % cc, low:high]
            plane = stack[0] if len(stack) == 1 else _largest(stack)
            found[c] = plane if c not in found else _largest(np.stack([found[c], plane]))
    return [found[c] for c in wanted.channels]


def _whole_samples(array: ChunkedArray, index: tuple[int, ...]) -> NDArray[Any]:
    """A chunk with all colour samples of its pixels, which may lie in chunks of their own, as the last axis."""
    if len(array.shape) == 5:
        return array.read_chunk(index)[..., None]
    parts = -(-array.shape[5] // array.chunk_shape[5])
    chunks = [array.read_chunk((*index[:5], n)) for n in range(parts)]
    return chunks[0] if parts == 1 else np.concatenate(chunks, axis=5)


def _largest(stack: NDArray[Any]) -> NDArray[Any]:
    if stack.dtype.kind == "c":
        stack = np.abs(stack)
    largest: NDArray[Any] = stack[0]
    for other in stack[1:]:
        largest = np.fmax(largest, other)
    return largest
