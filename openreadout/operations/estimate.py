"""What `export --dry-run` prints: the arrays of a plan, with files and bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from openreadout import registry
from openreadout.arrays import grid_shape
from openreadout.operations.target import ARCHIVES, default_output
from openreadout.stores import total_sizes

if TYPE_CHECKING:
    from openreadout import payloads
    from openreadout.contracts import ExportPlan, PlannedImage, PlannedLevel


def estimate(plan: ExportPlan, path: str, output: str | None) -> payloads.Plan:
    """The plan as JSON: images with their arrays, and upper bounds of files and bytes.

    An array that is copied as it is stored takes no more than its source does, or than its codecs give.
    """
    target = output or default_output(path)
    bound = registry.find_writer("ome-zarr").bound(plan, archive=target.lower().endswith(ARCHIVES))
    images = [_image(*pair) for pair in zip(plan.images, bound.arrays, strict=True)]
    copied = [
        (level, size)
        for planned, arrays in zip(plan.images, bound.arrays, strict=True)
        for level, (_, size) in zip(planned.levels, arrays, strict=True)
        if level.copied
    ]
    source = (total_sizes(plan.dataset.members or (path,)) or 0) if copied else 0
    return {
        "input": path,
        "output": target,
        "format": f"OME-Zarr {plan.version}",
        "layout": plan.layout,
        "images": images,
        "files_at_most": bound.files,
        "bytes_at_most": bound.size + max(0, source - sum(size for _, size in copied)),
        "chunks_copied": sum(
            math.prod(grid_shape(level.shape, level.chunk)) for level, _ in copied
        ),
        "changes": list(plan.changes),
        "notes": list(plan.notes),
    }


def _image(planned: PlannedImage, arrays: tuple[tuple[int, int], ...]) -> payloads.PlannedImage:
    levels = [
        _level(planned, level, *pair) for level, pair in zip(planned.levels, arrays, strict=True)
    ]
    return {
        "image": planned.source_index,
        "name": planned.image.name,
        "path": planned.path,
        "axes": list(planned.axes),
        "levels": levels,
        "files_at_most": sum(level["files_at_most"] for level in levels),
        "bytes_at_most": sum(level["bytes_at_most"] for level in levels),
    }


def _level(
    planned: PlannedImage, level: PlannedLevel, files: int, size: int
) -> payloads.PlannedLevel:
    return {
        "path": f"{planned.path}/{level.path}".lstrip("/"),
        "shape": list(level.shape),
        "dtype": level.dtype,
        "chunk": list(level.chunk),
        "shard": None if level.shard is None else list(level.shard),
        "codecs": [spec.name for spec in level.codecs],
        "source_level": level.source_level,
        "files_at_most": files,
        "bytes_at_most": size,
    }
