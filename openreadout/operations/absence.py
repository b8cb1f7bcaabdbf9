"""Chunks of which nothing is stored: they stay out of an export, at every level."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from openreadout.arrays import (
    AxisView,
    ChunkedArray,
    ChunkIndex,
    Region,
    SamplesAsChannels,
    Stack,
    chunk_region,
    chunks_in,
)
from openreadout.contracts import PlannedLevel
from openreadout.encoded import EncodedArray

if TYPE_CHECKING:
    from numpy.typing import NDArray

Stored = Callable[[Region], bool]
"""Tells whether anything of a region is stored."""


def listed(array: ChunkedArray) -> bool:
    """Whether the stored chunks of an array can be counted without a question for each of them."""
    if isinstance(array, Stack):
        return all(part is None or listed(part) for part in array.parts)
    if isinstance(array, AxisView | SamplesAsChannels):
        return listed(array.array)
    return not isinstance(array, EncodedArray) or array.store.can_walk


def full(array: ChunkedArray) -> bool:
    """Whether every chunk is known to be stored; not where reading each tells it as soon.

    Nor where chunks lie in shards: that a shard is there tells nothing of the chunks in it, and its index is read with
    the first of them.
    """
    if isinstance(array, Stack):
        return all(part is not None and full(part) for part in array.parts)
    if isinstance(array, AxisView | SamplesAsChannels):
        return full(array.array)
    if not listed(array):
        return False
    if isinstance(array, EncodedArray):
        if array.layout.shard is not None:
            return False
        if (known := array.all_there()) is not None:
            return known
    presence = array.presence()
    return presence.exact and presence.stored >= presence.total


def doubled(region: Region, level: PlannedLevel, before: PlannedLevel) -> Region:
    """The part of the level before that a region is made from."""
    return tuple(
        (a * 2, min(b * 2, n)) if h else (a, b)
        for (a, b), h, n in zip(region, level.halve, before.shape, strict=True)
    )


def absent_chunks(region: Region, level: PlannedLevel, stored: Stored) -> set[ChunkIndex]:
    """Chunks of a block of which nothing is stored."""
    return {
        index
        for index in chunks_in(region, level.chunk)
        if not stored(chunk_region(index, level.shape, level.chunk))
    }


def absent_after(
    region: Region, level: PlannedLevel, before: PlannedLevel, absent: set[ChunkIndex]
) -> set[ChunkIndex]:
    """Chunks of a block of the next level that are made from `absent` ones alone."""
    found = set()
    for index in chunks_in(region, level.chunk):
        wide = doubled(chunk_region(index, level.shape, level.chunk), level, before)
        if absent.issuperset(chunks_in(wide, before.chunk)):
            found.add(index)
    return found


def blanked(
    block: NDArray[Any], region: Region, level: PlannedLevel, absent: set[ChunkIndex]
) -> NDArray[Any]:
    """The block with the fill value itself where chunks will read as it: a mean of NaN may be another NaN."""
    if not absent:
        return block
    block = block.copy()
    for index in absent:
        covers = chunk_region(index, level.shape, level.chunk)
        spans = zip(covers, region, strict=True)
        block[tuple(slice(a - start, b - start) for (a, b), (start, _) in spans)] = level.fill_value
    return block
