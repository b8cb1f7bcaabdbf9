"""How an export walks through an image: passes over levels, blocks in an order that keeps few shards open."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from openreadout.arrays import ChunkIndex, Region, chunk_region
from openreadout.contracts import ExportPlan, PlannedLevel
from openreadout.planes import little

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIGEST_BYTES = 16
ABSENT = bytes(DIGEST_BYTES)
"""Stands for the digest of a block of which nothing is stored."""


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
    half written where cells are passed over.
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
    return list(reversed(sides))


def blocks(
    levels: Sequence[PlannedLevel], occupied: set[ChunkIndex] | None = None
) -> Iterator[Region]:
    """Walk the blocks of the first of the levels that are made together.

    Blocks of one shard come after each other, and shards that make one shard of the next level too, so that few
    shards are open at a time. `occupied` names the largest cells that hold anything; the others are passed over.
    """
    sizes = cells(levels)
    whole = tuple((0, n) for n in levels[0].shape)
    if occupied is None:
        return _split(whole, sizes)
    regions = (chunk_region(index, levels[0].shape, sizes[0]) for index in sorted(occupied))
    return itertools.chain.from_iterable(_split(region, sizes[1:]) for region in regions)


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
