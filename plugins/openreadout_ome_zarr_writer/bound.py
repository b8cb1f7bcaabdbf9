"""How many files and bytes an output has at most, before anything is written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from openreadout.arrays import grid_shape
from openreadout.codecs import ChunkSpec, CodecChain
from openreadout.contracts import Bound
from openreadout.encoded import ChunkKeys
from openreadout_ome_zarr_writer.documents import all_documents, widest
from openreadout_ome_zarr_writer.outputs import END_BYTES, member_bytes

if TYPE_CHECKING:
    from openreadout.contracts import ExportPlan, PlannedLevel

INDEX_ENTRY_BYTES = 16
INDEX_CHECKSUM_BYTES = 4


def bound(plan: ExportPlan, *, archive: bool) -> Bound:
    """Chunks as large as their codecs can make them, and every document with the longest numbers it may hold."""
    written = all_documents(plan, widest(plan))
    arrays = tuple(
        tuple(_array(plan, level, planned.path, archive=archive) for level in planned.levels)
        for planned in plan.images
    )
    count = len(written) + sum(files for image in arrays for files, _ in image)
    size = sum(map(len, written.values())) + sum(size for image in arrays for _, size in image)
    if not archive:
        return Bound(count, size, arrays)
    return Bound(1, size + sum(map(member_bytes, written)) + END_BYTES, arrays)


def _array(plan: ExportPlan, level: PlannedLevel, path: str, *, archive: bool) -> tuple[int, int]:
    """Chunks or shards of an array, and their bytes; inside an archive with what it adds to each."""
    chain = CodecChain.build(level.codecs, plan.lookup)
    each = chain.encoded(ChunkSpec(level.chunk, level.dtype, level.fill_value)).count
    grid = grid_shape(level.shape, level.shard or level.chunk)
    files = math.prod(grid)
    size = math.prod(grid_shape(level.shape, level.chunk)) * each
    if level.shard is not None:
        inside = math.prod(grid_shape(level.shard, level.chunk))
        size += files * (inside * INDEX_ENTRY_BYTES + INDEX_CHECKSUM_BYTES)
    if archive:
        longest = ChunkKeys("default", "/", len(grid)).key(tuple(n - 1 for n in grid))
        size += files * member_bytes(f"{path}/{level.path}/{longest}")
    return files, size
