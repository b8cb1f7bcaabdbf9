"""Refuse to walk through images that are enormous on paper and hardly stored at all.

A few bytes of metadata may declare more pixels than anybody could read in a lifetime. Chunks that are absent are data,
so the size alone says nothing; a size that has no relation to what lies on the disk does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from openreadout import limits
from openreadout.arrays import ChunkedArray, grid_shape, nth_index
from openreadout.codecs import ITEM_BYTES
from openreadout.errors import InputError, UnsupportedFeatureError
from openreadout.model import Dataset, Image
from openreadout.planes import Selection
from openreadout.remote.urls import is_url
from openreadout.stores import total_sizes

HINT = "read a part with --image, --level, --select or --region"


def refuse_unwalkable(
    dataset: Dataset,
    parts: Iterable[tuple[int, Image, int]],
    selection: Selection,
    *,
    listed: bool = False,
) -> None:
    """Refuse images (number, image, level) of which the selected part cannot be walked through in reasonable time.

    `listed` is for an export that passes over what is not stored: the size of that costs nothing then, and only chunks
    far more numerous than the bytes of the data set are refused.

    Raises
    ------
    UnsupportedFeatureError
        A row of chunks is too long to be held, or next to nothing of what is declared is stored.
    """
    stored: int | None = None
    unknown = is_url(dataset.path)
    parts_limit = "MAX_LISTED_PARTS" if listed else "MAX_EMPTY_PARTS"
    most = int(getattr(limits, parts_limit))
    for number, image, level in parts:
        count, size, row = _measure(image, level, selection)
        name = f"image {number}, level {level}"
        if row > limits.MAX_ROW_BYTES and not listed:
            raise UnsupportedFeatureError(
                f"{name}: one row of pixels takes {row} bytes, more than the {limits.MAX_ROW_BYTES} that are read at"
                " a time",
                hint=_hint("MAX_ROW_BYTES", row),
            )
        if count <= most and (listed or size <= limits.MAX_EMPTY_BYTES):
            continue
        if unknown and (count > most or not listed):
            reached = (parts_limit, count) if count > most else ("MAX_EMPTY_BYTES", size)
            _refuse_empty(image, level, name, _hint(*reached))
            continue
        stored = _stored_bytes(dataset) if stored is None else stored
        if count > most and count * limits.MIN_BYTES_PER_PART > stored:
            raise UnsupportedFeatureError(
                f"{name}: {count} planes and chunks are declared, and the data set has {stored} bytes in all",
                hint=_hint(parts_limit, count),
            )
        if not listed and size > limits.MAX_EMPTY_BYTES and size > limits.MAX_EXPANSION * stored:
            raise UnsupportedFeatureError(
                f"{name}: {size} bytes of pixels are declared, and the data set has {stored} bytes in all",
                hint=_hint("MAX_EMPTY_BYTES", size),
            )


def _hint(limit: str, needed: int) -> str:
    raised = limits.raised_by(limit, needed)
    return HINT if raised is None else f"{HINT}; {raised}"


def _measure(image: Image, level: int, selection: Selection) -> tuple[int, int, int]:
    """Planes and chunks of the selected part, its bytes, and the bytes of one row of a plane."""
    array = image.levels[level].array
    names = image.axis_names
    x0, y0, x1, y1 = selection.window(image.size("x", level), image.size("y", level))
    planes, chunks = 1, 1
    for axis in "tcz":
        chosen = getattr(selection, axis)
        count = image.size(axis, level) if chosen is None else len(chosen)
        planes *= count
        step = _chunk_length(array, names, axis)
        chunks *= (
            -(-count // step) if chosen is None else min(count, -(-image.size(axis, level) // step))
        )
    for axis, start, stop in (("x", x0, x1), ("y", y0, y1)):
        step = _chunk_length(array, names, axis)
        chunks *= -(-stop // step) - start // step
    pixel = image.size("s") * ITEM_BYTES.get(array.dtype, 1)
    return planes + chunks, planes * (x1 - x0) * (y1 - y0) * pixel, (x1 - x0) * pixel


def _chunk_length(array: ChunkedArray, names: str, axis: str) -> int:
    return max(1, array.chunk_shape[names.index(axis)]) if axis in names else 1


def _refuse_empty(image: Image, level: int, name: str, hint: str) -> None:
    """Refuse an image behind a URL, whose bytes cannot be counted, when none of some evenly spread chunks is stored."""
    array = image.levels[level].array
    grid = grid_shape(array.shape, array.chunk_shape)
    total = math.prod(grid)
    tried = (
        nth_index(n * (total - 1) // (limits.REMOTE_SAMPLES - 1), grid)
        for n in range(limits.REMOTE_SAMPLES)
    )
    if not any(array.is_stored(index) for index in dict.fromkeys(tried)):
        raise UnsupportedFeatureError(
            f"{name}: {total} chunks are declared, and none of {limits.REMOTE_SAMPLES} that were asked for is"
            " stored",
            hint=hint,
        )


def _stored_bytes(dataset: Dataset) -> int:
    """Bytes of everything that belongs to a data set."""
    try:
        return total_sizes(dataset.members or (dataset.path,)) or 0
    except InputError:
        return 0  # a lost member file has no bytes; the readers tell which one
