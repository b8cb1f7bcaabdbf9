"""How an export walks through an image: passes over levels, blocks in an order that keeps few shards open."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from openreadout.arrays import ChunkIndex, Region, chunk_region, grid_shape
from openreadout.contracts import ExportPlan, PlannedLevel
from openreadout.planes import little

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGEST_BYTES = 16
ABSENT = bytes(DIGEST_BYTES)
"""Stands for the digest of a block of which nothing is stored."""
AHEAD = 3
"""Blocks for each thread that may be begun before the results of those before them are taken, so that no thread waits
for a slower one; only those in work hold samples."""
SMALL_CELL = 16 << 20
"""Bytes of samples of a cell that are not worth being written by several processes."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Levels that are made together: `first` from the source or the level before, the others in memory."""

    image: int
    first: int
    last: int


def passes(plan: ExportPlan) -> Iterator[Pass]:
    """The passes of an export, in the order in which they can be made."""
    for number, image in enumerate(plan.images):
        first = 0
        while first < len(image.levels):
            last = first
            while last + 1 < len(image.levels) and in_memory(image.levels, last):
                last += 1
            yield Pass(number, first, last)
            first = last + 1


def in_memory(levels: Sequence[PlannedLevel], number: int) -> bool:
    """Whether the level after `number` is made from blocks of it while they are in memory."""
    level, following = levels[number], levels[number + 1]
    if following.source_level is not None:
        return False
    made = tuple(b // 2 if h else b for b, h in zip(level.block, following.halve, strict=True))
    return made == following.block


def stages(plan: ExportPlan, wanted: int, most: float = math.inf) -> Iterator[Pass]:
    """The passes of an export cut so that each has many cells, which can be written apart from each other.

    The levels after a cut are made from the level before it, read back from the output. The bytes that come of it are
    the same: only what is held in memory differs.

    Parameters
    ----------
    plan : ExportPlan
    wanted : int
        Cells in all, of the first pass of every image.
    most : float
        Bytes of samples of a cell.
    """
    sizes = [_bytes(image.levels[0], image.levels[0].shape) for image in plan.images]
    for step in passes(plan):
        share = wanted * sizes[step.image] / max(1, sum(sizes))
        levels = plan.images[step.image].levels
        first = step.first
        while first <= step.last:
            last = first
            while last < step.last and _many(levels[first : last + 2], share, most):
                last += 1
            yield Pass(step.image, first, last)
            first = last + 1


def _many(levels: Sequence[PlannedLevel], wanted: float, most: float) -> bool:
    """Whether levels that are made together leave enough cells, or cells so small that fewer are no loss."""
    cell = cells(levels)[0]
    size = _bytes(levels[0], cell)
    return size <= SMALL_CELL or (
        size <= most and math.prod(grid_shape(levels[0].shape, cell)) >= wanted
    )


def _bytes(level: PlannedLevel, lengths: Sequence[int]) -> int:
    sides = (min(length, n) for length, n in zip(lengths, level.shape, strict=True))
    return math.prod(sides) * np.dtype(level.dtype).itemsize


def half(region: Region, level: PlannedLevel) -> Region:
    """The part of a level that is made from a region of the level before."""
    return tuple(
        (a // 2, min(-(-b // 2), n)) if h else (a, b)
        for (a, b), h, n in zip(region, level.halve, level.shape, strict=True)
    )


def digest(block: NDArray[Any]) -> bytes:
    """Digest of a block's samples, little-endian in C order; never `ABSENT`."""
    ready = little(block)
    return xxhash.xxh3_128_digest(ready.reshape(-1).view(np.uint8).data) or ABSENT


def cells(levels: Sequence[PlannedLevel]) -> list[tuple[int, ...]]:
    """Cells of the first level's grid, the largest first: what makes one shard of the last level, down to a block.

    Each is made of whole ones of the next, and the largest of whole shards of every level, so that no shard is left
    half written where cells are passed over. Small ones that follow each other are taken together.
    """
    first = levels[0]
    sides = [first.block]
    extents: list[list[int]] = []
    doubled = [1] * len(first.shape)
    for number, level in enumerate(levels):
        if number:
            doubled = [d * 2 if h else d for d, h in zip(doubled, level.halve, strict=True)]
        extent = [s * d for s, d in zip(level.shard or level.chunk, doubled, strict=True)]
        extents.append(extent)
        sides.append(tuple(-(-e // c) * c for e, c in zip(extent, sides[-1], strict=True)))
    whole = tuple(math.lcm(*lengths) for lengths in zip(*extents, sides[-1], strict=True))
    sides.append(
        tuple(
            -(-n // c) * c if side > n else side
            for side, n, c in zip(whole, first.shape, sides[-1], strict=True)
        )
    )
    together = _together(sides[-1], first)
    if together != sides[-1]:
        sides.append(together)
    return list(reversed(sides))


def _together(cell: tuple[int, ...], level: PlannedLevel) -> tuple[int, ...]:
    """Cells that follow each other in C order as one, of at most `SMALL_CELL`."""
    grown = list(cell)
    for axis in reversed(range(len(cell))):
        whole = -(-level.shape[axis] // cell[axis]) * cell[axis]
        while grown[axis] < whole and 2 * _bytes(level, grown) <= SMALL_CELL:
            grown[axis] = min(2 * grown[axis], whole)
        if grown[axis] < whole:
            break
    return tuple(grown)


def all_cells(levels: Sequence[PlannedLevel]) -> Iterator[ChunkIndex]:
    """The largest cells, in the order in which `blocks` goes through them."""
    counts = grid_shape(levels[0].shape, cells(levels)[0])
    return itertools.product(*(range(n) for n in counts))


def cell_blocks(levels: Sequence[PlannedLevel], index: ChunkIndex) -> Iterator[Region]:
    """Walk the blocks of one of the largest cells."""
    return _in_cell(levels[0].shape, cells(levels), index)


def _in_cell(
    shape: tuple[int, ...], sizes: list[tuple[int, ...]], index: ChunkIndex
) -> Iterator[Region]:
    return _split(chunk_region(index, shape, sizes[0]), sizes[1:])


def count_blocks(levels: Sequence[PlannedLevel], index: ChunkIndex) -> int:
    """The blocks of one of the largest cells."""
    first = levels[0]
    covers = chunk_region(index, first.shape, cells(levels)[0])
    return math.prod(-(-(b - a) // n) for (a, b), n in zip(covers, first.block, strict=True))


def blocks(
    levels: Sequence[PlannedLevel], occupied: set[ChunkIndex] | None = None
) -> Iterator[Region]:
    """Walk the blocks of the first of the levels that are made together.

    Blocks of one shard come after each other, and shards that make one shard of the next level too, so that few
    shards are open at a time. `occupied` names the largest cells that hold anything; the others are passed over.
    """
    found = all_cells(levels) if occupied is None else iter(sorted(occupied))
    shape, sizes = levels[0].shape, cells(levels)
    return itertools.chain.from_iterable(_in_cell(shape, sizes, index) for index in found)


def _split(region: Region, sizes: list[tuple[int, ...]]) -> Iterator[Region]:
    if not sizes:
        yield region
        return
    spans = [
        [(start, min(start + cell, stop)) for start in range(begin, stop, cell)]
        for (begin, stop), cell in zip(region, sizes[0], strict=True)
    ]
    for part in itertools.product(*spans):
        yield from _split(part, sizes[1:])
