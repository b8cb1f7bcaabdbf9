"""What `export --dry-run` prints: the arrays of a plan, with files and bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from openreadout.arrays import grid_shape
from openreadout.codecs import ITEM_BYTES
from openreadout.operations.target import default_output

if TYPE_CHECKING:
    from openreadout import payloads
    from openreadout.contracts import ExportPlan, PlannedImage

DOCUMENT_BYTES = 1500


def estimate(plan: ExportPlan, path: str, output: str | None) -> payloads.Plan:
    """The plan as JSON: images with their arrays, and upper bounds of files and bytes.

    Sizes are those of the samples before compression, so the output is rarely larger.
    """
    images = [_image(planned) for planned in plan.images]
    return {
        "input": path,
        "output": output or default_output(path),
        "format": f"OME-Zarr {plan.version}",
        "layout": plan.layout,
        "images": images,
        "files_at_most": sum(i["files_at_most"] for i in images) + 2,
        "bytes_at_most": sum(i["bytes_at_most"] for i in images),
        "chunks_copied": 0,
        "changes": list(plan.changes),
        "notes": list(plan.notes),
    }


def _image(planned: PlannedImage) -> payloads.PlannedImage:
    levels: list[payloads.PlannedLevel] = []
    for level in planned.levels:
        stored = level.shard or level.chunk
        files = math.prod(grid_shape(level.shape, stored))
        levels.append(
            {
                "path": f"{planned.path}/{level.path}".lstrip("/"),
                "shape": list(level.shape),
                "dtype": level.dtype,
                "chunk": list(level.chunk),
                "shard": None if level.shard is None else list(level.shard),
                "codecs": [spec.name for spec in level.codecs],
                "source_level": level.source_level,
                "files_at_most": files + 1,
                "bytes_at_most": math.prod(level.shape) * ITEM_BYTES[level.dtype]
                + files * DOCUMENT_BYTES,
            }
        )
    return {
        "image": planned.source_index,
        "name": planned.image.name,
        "path": planned.path,
        "axes": list(planned.axes),
        "levels": levels,
        "files_at_most": sum(level["files_at_most"] for level in levels) + 2,
        "bytes_at_most": sum(level["bytes_at_most"] for level in levels),
    }
