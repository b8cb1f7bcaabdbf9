"""Where the blocks of an export come from: a level of the source, with the axes of the target and the selection."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openreadout.arrays import (
    AxisView,
    ChunkedArray,
    Region,
    SamplesAsChannels,
    chunks_in,
    read_region,
    region_shape,
)
from openreadout.errors import UnsupportedFeatureError
from openreadout.model import Image

if TYPE_CHECKING:
    from numpy.typing import NDArray


def target_axes(image: Image) -> str:
    """Letters of the axes that an export of the image has: those it stores, at least y and x."""
    names = image.axis_names.replace("s", "")
    if "s" in image.axis_names and "c" not in names:
        raise UnsupportedFeatureError("colour samples without a channel axis cannot be exported")
    for axis in "yx":
        names += "" if axis in names else axis
    return "".join(axis for axis in "tczyx" if axis in names)


def target_array(image: Image, level: int) -> ChunkedArray:
    """A level with the axes of `target_axes`: colour samples as channels, y of length 1 where there is none."""
    array = image.levels[level].array
    names = image.axis_names
    if "s" in names:
        array = SamplesAsChannels(array, names.index("c"))
        names = names.replace("s", "")
    wanted = target_axes(image)
    if wanted != names:
        array = AxisView(array, tuple(names.index(a) if a in names else None for a in wanted))
    return array


@dataclass(frozen=True, slots=True)
class LevelSource:
    """A level of the source as the target sees it.

    `picks` has, for each axis, the chosen indices in order, or None for all.
    """

    array: ChunkedArray
    picks: tuple[tuple[int, ...] | None, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape after the selection."""
        return tuple(
            n if pick is None else len(pick)
            for n, pick in zip(self.array.shape, self.picks, strict=True)
        )

    @property
    def whole(self) -> bool:
        """Nothing is left out."""
        return all(pick is None for pick in self.picks)

    def _parts(self, region: Region) -> Iterator[tuple[Region, Region]]:
        """The region as pairs of a region of the source and where it goes, relative to the region's start."""
        options: list[list[tuple[tuple[int, int], tuple[int, int]]]] = []
        for (start, stop), pick in zip(region, self.picks, strict=True):
            if pick is None:
                options.append([((start, stop), (0, stop - start))])
                continue
            runs, at = [], 0
            for run in _runs(pick[start:stop]):
                runs.append((run, (at, at + run[1] - run[0])))
                at += run[1] - run[0]
            options.append(runs)
        for combination in itertools.product(*options):
            yield tuple(source for source, _ in combination), tuple(to for _, to in combination)

    def is_stored(self, region: Region) -> bool:
        """Whether any chunk of the region is stored."""
        return any(
            self.array.is_stored(index)
            for source, _ in self._parts(region)
            for index in chunks_in(source, self.array.chunk_shape)
        )

    def read(self, region: Region) -> NDArray[Any]:
        """Samples of a region of the target."""
        import numpy as np

        parts = list(self._parts(region))
        if len(parts) == 1:
            return read_region(self.array, parts[0][0])
        out = np.empty(region_shape(region), dtype=np.dtype(self.array.dtype))
        for source, to in parts:
            out[tuple(slice(*span) for span in to)] = read_region(self.array, source)
        return out


def _runs(indices: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Consecutive indices as (start, stop)."""
    start: int | None = None
    last = -1
    for index in indices:
        if start is None:
            start = index
        elif index != last + 1:
            yield start, last + 1
            start = index
        last = index
    if start is not None:
        yield start, last + 1
