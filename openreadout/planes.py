"""Walk and read the planes of an image, and digest them.

A plane is the whole y × x extent at one (t, c, z). Planes that share chunks are read together, band of rows by band
of rows, so that each chunk is decoded once and no more than a band is held.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from openreadout.arrays import (
    ChunkedArray,
    ChunkIndex,
    Region,
    chunks_in,
    count_chunks,
    place_chunk,
    read_region,
    region_shape,
)
from openreadout.codecs import native
from openreadout.errors import InputError, OpenReadoutError, UsageError
from openreadout.model import WIDENED, Image
from openreadout.workers import Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray

BAND_BYTES = 64 << 20
"""Decoded samples that a walk holds at a time, unless a single chunk is larger."""
MAX_BAND_BYTES = 256 << 20
"""A band of one plane or of planes that cannot be told apart; its chunks are decoded again where it has to be cut."""
MAX_ERRORS = 100
"""Damaged chunks after which planes that are lost already are read no further."""
SLAB_BYTES = 4 << 20
"""Planes up to this size together are read by one thread, others chunk by chunk by all."""

Tcz = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which part of the images is asked for; None means all.

    `t`, `c`, `z` are zero-based indices; `region` is x, y, width, height in pixels of the level.
    """

    images: tuple[int, ...] | None = None
    t: tuple[int, ...] | None = None
    c: tuple[int, ...] | None = None
    z: tuple[int, ...] | None = None
    region: tuple[int, int, int, int] | None = None

    @property
    def everything(self) -> bool:
        """Whether nothing of an image that is chosen is left out."""
        return self.t is self.c is self.z is self.region is None

    def indices(self, axis: str, size: int) -> list[int]:
        """The chosen indices of an axis; raises `UsageError` for one out of range."""
        chosen = getattr(self, axis)
        if chosen is None:
            return list(range(size))
        bad = [i for i in chosen if i >= size]
        if bad:
            raise UsageError(
                f"{axis}={bad[0]} is out of range: the image has {axis} 0 to {size - 1}",
                hint="openreadout info shows the sizes",
            )
        return list(chosen)

    def window(self, width: int, height: int) -> tuple[int, int, int, int]:
        """The chosen part of a plane as x0, y0, x1, y1."""
        if self.region is None:
            return 0, 0, width, height
        x, y, w, h = self.region
        if w < 1 or h < 1 or x + w > width or y + h > height:
            raise UsageError(
                f"region {x},{y},{w},{h} does not lie inside the plane of {width} × {height} pixels",
                hint="--region is X,Y,WIDTH,HEIGHT in pixels of the chosen level",
            )
        return x, y, x + w, y + h


@dataclass(frozen=True, slots=True)
class DigestedPlane:
    """A plane's digest, or None when one of its chunks could not be read."""

    t: int
    c: int
    z: int
    width: int
    height: int
    digest: str | None


@dataclass(slots=True)
class _Slab:
    """Planes that are read together, and the region they cover."""

    planes: list[Tcz]
    region: Region
    failed: set[Tcz] = field(default_factory=set)


def hasher(algorithm: str) -> Any:
    """A new digest object: `xxh3` (128 bits) or any of hashlib's."""
    return xxhash.xxh3_128() if algorithm == "xxh3" else hashlib.new(algorithm)


def widen(block: NDArray[Any]) -> NDArray[Any]:
    """bool as uint8 0/1 and float16 as float32, exactly; others as they are."""
    name = WIDENED.get(block.dtype.name)
    return block if name is None else block.astype(name)


def little(block: NDArray[Any]) -> NDArray[Any]:
    """The block in C order and little-endian, as digests want it."""
    return np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("<"))


def digest_planes(
    image: Image,
    level: int,
    selection: Selection,
    algorithm: str,
    workers: Workers,
    on_error: Callable[[ChunkIndex, OpenReadoutError], None],
    *,
    budget: int = BAND_BYTES,
) -> Iterator[DigestedPlane]:
    """Digest the selected planes of one level; those that share chunks come together, otherwise in the order t, c, z.

    Absent planes of the image are left out. A chunk that cannot be read is given to `on_error` once; its planes then
    have no digest, and the walk goes on.
    """
    absent = _AbsentPlanes(image, level, algorithm)
    for batch in _shared_out(
        _slabs(image, level, selection, budget), image, level, workers.threads
    ):
        if batch.parallel_slabs:

            def one(
                slab: _Slab,
            ) -> tuple[list[DigestedPlane], list[tuple[ChunkIndex, OpenReadoutError]]]:
                errors: list[tuple[ChunkIndex, OpenReadoutError]] = []
                found = absent.digest(slab) or _digest_slab(
                    image, level, slab, algorithm, None, errors
                )
                return found, errors

            for found, errors in workers.map(one, batch.slabs):
                for index, error in errors:
                    on_error(index, error)
                yield from found
        else:
            for slab in batch.slabs:
                errors = []
                found = absent.digest(slab) or _digest_slab(
                    image, level, slab, algorithm, workers, errors
                )
                for index, error in errors:
                    on_error(index, error)
                yield from found


@dataclass(frozen=True, slots=True)
class _Batch:
    slabs: Iterable[_Slab]
    parallel_slabs: bool


def _shared_out(slabs: Iterable[_Slab], image: Image, level: int, threads: int) -> Iterator[_Batch]:
    """All slabs of a level have about one size, so the first decides how they are shared out.

    Fewer slabs than there are threads are read chunk by chunk where that makes fewer chunks that follow one another:
    each may be a wait for a server.
    """
    slabs = iter(slabs)
    first = list(itertools.islice(slabs, threads))
    if not first:
        return
    array = image.levels[level].array
    size = math.prod(region_shape(first[0].region)) * native(array.dtype).itemsize
    chunks = count_chunks(first[0].region, array.chunk_shape)
    few = len(first) < threads and chunks > len(first) * -(-chunks // threads)
    yield _Batch(itertools.chain(first, slabs), parallel_slabs=size <= SLAB_BYTES and not few)


def _slabs(image: Image, level: int, selection: Selection, budget: int) -> Iterator[_Slab]:
    """Group the selected planes by the chunks they share, smaller where the band would exceed the budget."""
    array = image.levels[level].array
    names = image.axis_names
    x0, y0, x1, y1 = selection.window(image.size("x", level), image.size("y", level))
    groups = []
    band = (x1 - x0) * image.size("s") * native(array.dtype).itemsize
    if "y" in names:
        band *= min(array.chunk_shape[names.index("y")], y1 - y0)
    for axis in "tcz":
        chosen = selection.indices(axis, image.size(axis, level))
        step = array.chunk_shape[names.index(axis)] if axis in names else 1
        groups.append(_shared(chosen, step))
    for t_run, c_run, z_run in itertools.product(*groups):
        depth = max(1, budget // max(1, band * len(t_run) * len(c_run)))
        for start in range(0, len(z_run), depth):
            runs = {"t": t_run, "c": c_run, "z": z_run[start : start + depth]}
            every = itertools.product(runs["t"], runs["c"], runs["z"])
            planes = [plane for plane in every if plane not in image.absent]
            if planes:
                yield _Slab(planes, _slab_region(names, runs, (x0, y0, x1, y1), image.size("s")))


def _shared(chosen: list[int], step: int) -> list[list[int]]:
    """Indices in runs that lie in one chunk each."""
    runs: dict[int, list[int]] = {}
    for index in chosen:
        runs.setdefault(index // step, []).append(index)
    return list(runs.values())


def _slab_region(
    names: str, runs: dict[str, list[int]], window: tuple[int, int, int, int], samples: int
) -> Region:
    x0, y0, x1, y1 = window
    spans = {axis: (run[0], run[-1] + 1) for axis, run in runs.items()}
    spans |= {"y": (y0, y1), "x": (x0, x1), "s": (0, samples)}
    return tuple(spans[name] for name in names)


class _AbsentPlanes:
    """Digests of planes of which no chunk is stored: all of one size have the same, worked out once."""

    def __init__(self, image: Image, level: int, algorithm: str) -> None:
        self._image = image
        self._array = image.levels[level].array
        self._algorithm = algorithm
        self._known: dict[tuple[int, int], str] = {}

    def digest(self, slab: _Slab) -> list[DigestedPlane] | None:
        """The digests of a slab's planes when nothing of it is stored, else None."""
        indices = chunks_in(slab.region, self._array.chunk_shape)
        try:
            if any(self._array.is_stored(index) for index in indices):
                return None
        except InputError:
            return None  # reading it meets the error again, and tells of it
        spans = dict(zip(self._image.axis_names, slab.region, strict=True))
        width = spans["x"][1] - spans["x"][0]
        height = spans["y"][1] - spans["y"][0] if "y" in spans else 1
        if (width, height) not in self._known:
            self._known[width, height] = self._fill(width, height)
        return [
            DigestedPlane(*plane, width, height, self._known[width, height])
            for plane in slab.planes
        ]

    def _fill(self, width: int, height: int) -> str:
        """The digest of a plane that holds the fill value throughout, fed row by row in strips."""
        row = width * self._image.size("s")
        value = np.asarray(self._array.fill_value, dtype=native(self._array.dtype))
        rows = max(1, min(height, SLAB_BYTES // max(1, row * value.itemsize)))
        strip = little(widen(np.full(rows * row, value))).view(np.uint8).data
        hashed = hasher(self._algorithm)
        for start in range(0, height, rows):
            part = min(rows, height - start)
            hashed.update(strip[: len(strip) * part // rows])
        return str(hashed.hexdigest())


def _digest_slab(
    image: Image,
    level: int,
    slab: _Slab,
    algorithm: str,
    workers: Workers | None,
    errors: list[tuple[ChunkIndex, OpenReadoutError]],
) -> list[DigestedPlane]:
    """Digest the planes of one slab band by band; with `workers`, chunks are read by all threads."""
    names = image.axis_names
    hashers = {plane: hasher(algorithm) for plane in slab.planes}
    spans = dict(zip(names, slab.region, strict=True))
    for region, block in _bands(image, level, slab, workers, errors):
        starts = {name: start for name, (start, _) in zip(names, region, strict=True)}
        ready = little(widen(block))
        for plane in slab.planes:
            if plane not in slab.failed:
                at = tuple(
                    i - starts[axis] for axis, i in zip("tcz", plane, strict=True) if axis in starts
                )
                hashers[plane].update(memoryview(ready[at].reshape(-1).view(np.uint8)))
    width = spans["x"][1] - spans["x"][0]
    height = spans["y"][1] - spans["y"][0] if "y" in spans else 1
    return [
        DigestedPlane(
            *plane, width, height, None if plane in slab.failed else hashers[plane].hexdigest()
        )
        for plane in slab.planes
    ]


def _bands(
    image: Image,
    level: int,
    slab: _Slab,
    workers: Workers | None,
    errors: list[tuple[ChunkIndex, OpenReadoutError]],
) -> Iterator[tuple[Region, NDArray[Any]]]:
    array = image.levels[level].array
    regions = _band_regions(
        image.axis_names, array.chunk_shape, slab.region, _rows(image, array, slab.region)
    )

    def failed(index: ChunkIndex, error: OpenReadoutError) -> None:
        errors.append((index, error.lightened()))
        slab.failed |= _planes_of_chunk(image.axis_names, array.chunk_shape, index, slab.planes)

    if workers is None:
        for region in regions:
            if _hopeless(slab, errors):
                return
            yield region, read_region(array, region, failed)
        return

    jobs = _chunk_jobs(array, regions, lambda: _hopeless(slab, errors))
    for job, error in workers.map(
        lambda job: (job, _placed(array, job)), jobs, ahead=2 * workers.threads
    ):
        if error is not None:
            failed(job.index, error)
        if job.last:
            yield job.region, job.block


@dataclass(frozen=True, slots=True)
class _ChunkJob:
    """One chunk to be put into the block of its band; `last` completes the band."""

    region: Region
    block: NDArray[Any]
    index: ChunkIndex
    last: bool


def _chunk_jobs(
    array: ChunkedArray, regions: Iterable[Region], stop: Callable[[], bool]
) -> Iterator[_ChunkJob]:
    for region in regions:
        if stop():
            return
        block = np.zeros([end - start for start, end in region], dtype=native(array.dtype))
        count = count_chunks(region, array.chunk_shape)
        for n, index in enumerate(chunks_in(region, array.chunk_shape), 1):
            yield _ChunkJob(region, block, index, n == count)


def _placed(array: ChunkedArray, job: _ChunkJob) -> OpenReadoutError | None:
    """Read one chunk into its place; what was wrong with it."""
    try:
        place_chunk(job.block, job.region, array, job.index)
    except InputError as error:
        return error
    return None


def _hopeless(slab: _Slab, errors: list[tuple[ChunkIndex, OpenReadoutError]]) -> bool:
    """Whether no plane of a slab can have a digest any more and enough has been said about why."""
    return len(errors) >= MAX_ERRORS and len(slab.failed) == len(slab.planes)


def _rows(image: Image, array: ChunkedArray, region: Region) -> int:
    """Rows of y that a band may have, so that tall chunks of long rows do not make it larger than is held."""
    sides = [
        stop - start
        for name, (start, stop) in zip(image.axis_names, region, strict=True)
        if name != "y"
    ]
    return max(1, MAX_BAND_BYTES // max(1, math.prod(sides) * native(array.dtype).itemsize))


def _band_regions(
    names: str, chunk_shape: Sequence[int], region: Region, most: int
) -> Iterator[Region]:
    """Cut a region into bands along y: whole chunk rows, or parts of one where it has more than `most` rows."""
    if "y" not in names:
        yield region
        return
    place = names.index("y")
    start, stop = region[place]
    step = chunk_shape[place]
    while start < stop:
        end = min(stop, (start // step + 1) * step, start + most)
        yield (*region[:place], (start, end), *region[place + 1 :])
        start = end


def _planes_of_chunk(
    names: str, chunk_shape: Sequence[int], index: ChunkIndex, planes: Iterable[Tcz]
) -> set[Tcz]:
    """The planes that a chunk has samples of."""
    spans = {
        name: range(i * c, (i + 1) * c)
        for name, i, c in zip(names, index, chunk_shape, strict=True)
    }
    return {
        plane
        for plane in planes
        if all(i in spans[axis] for axis, i in zip("tcz", plane, strict=True) if axis in spans)
    }


def read_plane(image: Image, *, t: int = 0, c: int = 0, z: int = 0, level: int = 0) -> NDArray[Any]:
    """One plane as an array (y, x), or (y, x, samples) for colour; bool and float16 are widened.

    Raises
    ------
    UsageError
        An index is out of range.
    CorruptDataError, StorageError, UnsupportedFeatureError
        A chunk of the plane cannot be read.
    """
    if not 0 <= level < len(image.levels):
        raise UsageError(f"level {level} is out of range: the image has {len(image.levels)}")
    chosen = Selection(t=(t,), c=(c,), z=(z,))
    runs = {axis: chosen.indices(axis, image.size(axis, level)) for axis in "tcz"}
    window = chosen.window(image.size("x", level), image.size("y", level))
    region = _slab_region(image.axis_names, runs, window, image.size("s"))
    block = widen(read_region(image.levels[level].array, region))
    shape = (image.size("y", level), image.size("x", level))
    return block.reshape((*shape, image.size("s")) if image.samples_per_pixel > 1 else shape)
