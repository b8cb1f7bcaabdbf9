"""Reading parts of an image's level as numpy sees it: axes t, c, z, y, x (and s for colour), integers and slices.

The pieces below `Image.read_plane`, `Image.read_region`, `Image.to_dask` and `Image.to_xarray`. numpy is imported when
something is read.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openreadout import limits
from openreadout.arrays import (
    ChunkedArray,
    ChunkIndex,
    Region,
    chunks_in,
    count_chunks,
    expect_all,
    place_chunk,
    read_region,
    region_shape,
    with_axes,
)
from openreadout.codecs import WIDENED, native
from openreadout.errors import UsageError
from openreadout.record import record
from openreadout.remote.urls import is_url
from openreadout.workers import Workers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AXES = "tczyx"
TASK_BYTES = 8 << 20
"""What one task of a lazy array should at least read: thousands of small chunks are then tens of tasks."""

Place = int | slice
"""Where to read along an axis, as numpy takes it."""


def full(array: ChunkedArray, names: str) -> ChunkedArray:
    """The array with all of t, c, z, y, x, those it lacks with length 1; colour samples stay the last axis."""
    wanted = AXES + ("s" if "s" in names else "")
    return with_axes(array, [names.index(a) if a in names else None for a in wanted])


def read_dtype(name: str) -> np.dtype[Any]:
    """The numpy type that samples of a stored type are read as."""
    import numpy as np

    return np.dtype(WIDENED.get(name, native(name)))


def read(array: ChunkedArray, places: Sequence[Place], *, threads: int | None = 1) -> NDArray[Any]:
    """Read what `array[places]` means in numpy; bool and float16 are widened.

    Parameters
    ----------
    array : ChunkedArray
    places : sequence of int or slice
        One for each axis. A slice may have a step of 1 or more; an integer takes its axis away.
    threads : int, optional
        How many chunks are decoded at a time; None is one for each processor.

    Raises
    ------
    UsageError
        An index is out of range, a step is not positive, or the result does not fit into memory.
    CorruptDataError, StorageError, UnsupportedFeatureError
        A chunk cannot be read.
    """
    names = AXES + "s" * (len(array.shape) - len(AXES))
    spans = [
        span(place, size, axis)
        for place, size, axis in zip(places, array.shape, names, strict=True)
    ]
    region: Region = tuple((start, stop) for start, stop, _ in spans)
    whole = region_shape(region) == array.shape
    if whole:
        expect_all(array)
    try:
        block = _block(array, region, threads)
    finally:
        if whole:
            expect_all(array, wanted=False)
    picks = tuple(
        slice(None, None, step) if isinstance(place, slice) else 0
        for place, (_, _, step) in zip(places, spans, strict=True)
    )
    part = block[picks]
    wide = WIDENED.get(part.dtype.name)
    # a chunk may be a view of the bytes it was read from, which nobody could write to
    result: NDArray[Any] = part.copy() if wide is None and not part.flags.writeable else part
    return result if wide is None else result.astype(wide)


def threads(origin: tuple[Origin, int] | None) -> int | None:
    """How many chunks of an image are read at a time: of one behind a URL more than there are processors."""
    far = origin is not None and is_url(origin[0].path)
    return limits.REMOTE_THREADS if far else None


def _block(array: ChunkedArray, region: Region, threads: int | None) -> NDArray[Any]:
    import numpy as np

    dtype = native(array.dtype)
    touched = count_chunks(region, array.chunk_shape)
    try:
        if touched <= 1 or threads == 1:
            return read_region(array, region)
        out = np.zeros(region_shape(region), dtype=dtype)
    except (MemoryError, ValueError) as error:
        if isinstance(error, ValueError) and "too big" not in str(error):
            raise
        shape = " × ".join(map(str, region_shape(region)))
        raise UsageError(
            f"{shape} samples of {array.dtype} do not fit into memory",
            hint="read a smaller region, a higher level, or use to_dask",
        ) from error

    def place(index: ChunkIndex) -> None:
        place_chunk(out, region, array, index)

    with Workers(None if threads is None else min(threads, touched)) as workers:
        for _ in workers.map(place, chunks_in(region, array.chunk_shape)):
            pass
    return out


def span(place: Place, size: int, axis: str) -> tuple[int, int, int]:
    """Start, stop and step of what is read along an axis; raises `UsageError` for what is out of range."""
    if isinstance(place, slice):
        try:
            start, stop, step = place.indices(size)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{axis}={place}: {error}") from error
        if step < 1:
            raise UsageError(f"{axis}={place}: a step must be 1 or more")
        return start, max(start, stop), step
    try:
        index = operator.index(place)
    except TypeError:
        raise UsageError(f"{axis}={place!r} is neither a number nor a slice") from None
    if not -size <= index < size:
        raise UsageError(
            f"{axis}={index} is out of range: the image has {axis} 0 to {size - 1}",
            hint="openreadout info shows the sizes",
        )
    return index % size, index % size + 1, 1


# -- lazy arrays -----------------------------------------------------------------------------------


@record
class Lazy:
    """A level as an array that reads when it is indexed: what dask holds.

    `image` is an `openreadout.model.Image`; it is pickled by its path, so a lazy array may go to another process.
    """

    image: Any
    level: int

    @property
    def _array(self) -> ChunkedArray:
        return full(self.image.levels[self.level].array, self.image.axis_names)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of t, c, z, y, x and, for colour, s."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """5, or 6 for colour."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that is read."""
        return read_dtype(self._array.dtype)

    def __getitem__(self, places: Any) -> NDArray[Any]:
        given = places if isinstance(places, tuple) else (places,)
        places = (*given, *[slice(None)] * (self.ndim - len(given)))
        # one thread is for whoever runs tasks to multiply, but several requests are waited for in the time of one
        return read(self._array, places, threads=threads(self.image.origin) or 1)


def task_chunks(array: ChunkedArray) -> tuple[int, ...]:
    """Whole stored chunks along each axis that come to `TASK_BYTES`, grown along x, y and z."""
    chunk = [max(1, min(c, n)) for c, n in zip(array.chunk_shape, array.shape, strict=True)]
    item = read_dtype(array.dtype).itemsize
    for axis in (4, 3, 2):
        while math.prod(chunk) * item < TASK_BYTES and chunk[axis] < array.shape[axis]:
            chunk[axis] = min(array.shape[axis], chunk[axis] * 2)
    return tuple(chunk)


def to_dask(lazy: Lazy, chunks: Any) -> Any:
    """A `dask.array.Array` over a lazy array.

    Raises
    ------
    UsageError
        dask is not installed, or the array has too many chunks for a graph.
    """
    try:
        import dask.array as da
    except ImportError as error:
        raise UsageError(
            "to_dask needs dask", hint="pip install 'openreadout-microscopy[dask]'"
        ) from error
    array = full(lazy.image.levels[lazy.level].array, lazy.image.axis_names)
    wanted = task_chunks(array) if chunks is None else chunks
    tasks = _tasks(array.shape, wanted)
    if tasks > limits.MAX_TASKS:
        raise UsageError(
            f"the array would have {tasks} tasks",
            hint="choose larger chunks, or a higher level",
        )
    # a name of its own each time: the file may have changed since another array was made of it
    from_array: Any = da.from_array
    return from_array(lazy, chunks=wanted, name=False, asarray=False)


def _tasks(shape: Sequence[int], chunks: Any) -> int:
    if not isinstance(chunks, tuple) or not all(isinstance(c, int) and c > 0 for c in chunks):
        return 0  # dask's own words for chunks, which it bounds itself
    return math.prod(-(-n // c) for n, c in zip(shape, chunks, strict=False))


def to_xarray(lazy: Lazy, coordinates: Mapping[str, Any], name: str | None, chunks: Any) -> Any:
    """An `xarray.DataArray` over a lazy array, with the coordinates given for each axis."""
    try:
        import xarray
    except ImportError as error:
        raise UsageError(
            "to_xarray needs xarray", hint="pip install 'openreadout-microscopy[xarray]'"
        ) from error
    dims = tuple(AXES + "s" * (lazy.ndim - len(AXES)))
    return xarray.DataArray(to_dask(lazy, chunks), coords=dict(coordinates), dims=dims, name=name)


def positions(size: int, scale: float, translation: float) -> NDArray[Any]:
    """Where the samples along an axis lie: the first at `translation`, one every `scale`."""
    import numpy as np

    try:
        return translation + scale * np.arange(size, dtype=np.float64)
    except (MemoryError, ValueError) as error:
        raise UsageError(f"an axis of {size} samples is too long for coordinates") from error


# -- pickling --------------------------------------------------------------------------------------


@record
class Origin:
    """Where an image or a data set came from, so that another process can open it again.

    `reopen` is a function of the path and the axis letters that was given; it is pickled by its name. `limits` are
    those that are not at their defaults.
    """

    reopen: Any
    path: str
    axes: str | None = None
    limits: tuple[tuple[str, int], ...] = ()

    def dataset(self) -> Any:
        """The data set, opened once in each process as long as the file stays the same.

        Limits that were set where it was opened hold here too, unless they were set here.
        """
        here = limits.changed()
        limits.assign({name: value for name, value in self.limits if name not in here})
        return _opened(self.reopen, self.path, self.axes, _stamp(self.path))


def _stamp(path: str) -> tuple[int, ...] | None:
    """What changes when a file or store is replaced."""
    import os

    try:
        status = os.stat(path)
    except OSError:
        return None  # opening it says what is wrong
    # a copy may bring its times along, and get the number of what was removed; the last of these nobody sets
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _opened(reopen: Any, path: str, axes: str | None, stamp: tuple[int, ...] | None) -> Any:
    key = (reopen, path, axes)
    known = _OPENED.get(key)
    if known is None or known[0] != stamp:
        while len(_OPENED) >= MAX_OPENED:
            _OPENED.pop(next(iter(_OPENED)))
        known = _OPENED[key] = (stamp, reopen(path, axes=axes))
    return known[1]


_OPENED: dict[Any, tuple[tuple[int, ...] | None, Any]] = {}
MAX_OPENED = 16


def restore_image(origin: Origin, number: int, cls: Any, values: tuple[Any, ...]) -> Any:
    """An image whose levels come from its data set, opened in this process."""
    levels = origin.dataset().images[number].levels
    fields = iter(cls.__dataclass_fields__)
    return cls(
        **{
            name: levels if name == "levels" else value
            for name, value in zip(fields, values, strict=True)
        }
    )


def restore_dataset(origin: Origin) -> Any:
    """A data set, opened in this process; it stays open for the images that are unpickled after it."""
    return origin.dataset()
