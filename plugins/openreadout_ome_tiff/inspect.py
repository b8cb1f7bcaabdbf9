"""What `check` looks at beyond opening: IFDs, offsets, overlaps, and every plane's tags against its image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from openreadout.errors import CorruptDataError, InputError, UnsupportedFeatureError
from openreadout.model import Finding
from openreadout_ome_tiff.array import PlaneRef, TiffArray
from openreadout_ome_tiff.files import file_name
from openreadout_ome_tiff.page import Page, dtype_name

if TYPE_CHECKING:
    from openreadout_ome_tiff.ifd import TiffFile
    from openreadout_ome_tiff.reader import OpenedImage

MAX_RANGES = 2_000_000
"""Strips and tiles of one file that are compared for overlaps."""
MAX_WORK = 4 << 30
"""Bytes of offset tables that are read for one level; only tables that overlap in the file come to so much."""
MAX_FINDINGS = 1000
"""Findings of one kind for one array; a file that is wrong throughout is not listed plane by plane."""


def inspect(
    images: Sequence[OpenedImage], files: Sequence[TiffFile], *, full: bool
) -> Iterator[Finding]:
    """Findings about the structure of the files; no pixel is decoded.

    Parameters
    ----------
    images : sequence of OpenedImage
    files : sequence of TiffFile
        The members that the images' planes point into.
    full : bool
        Overlaps are looked for in every file, not just where that costs little.
    """
    ranges: dict[int, list[tuple[int, int, str]]] = {}
    for n, opened in enumerate(images):
        for level, resolution in enumerate(opened.image.levels):
            array = resolution.array
            if isinstance(array, TiffArray):
                yield from _planes(array, n, level, ranges)
        if opened.table.beyond:
            yield Finding(
                "metadata",
                "warning",
                f"{opened.table.beyond} planes of TiffData lie outside the image or name IFDs that are not there",
                image=n,
            )
    for member, found in ranges.items():
        if full or len(found) <= MAX_RANGES // 10:
            yield from _overlaps(found[:MAX_RANGES], files[member])


def _planes(
    array: TiffArray, image: int, level: int, ranges: dict[int, list[tuple[int, int, str]]]
) -> Iterator[Finding]:
    count, work = 0, 0
    for ref in array.pages.in_turn(sorted(set(array.planes.values()))):  # planes may share an IFD
        work += array.pages.weight(ref)
        if work > MAX_WORK:
            text = f"the tables of level {level} were not all looked at: they share their bytes"
            yield Finding("metadata", "warning", text, image, level)
            return
        for finding in _plane(array, ref, image, level, ranges):
            count += 1
            yield finding
        if count >= MAX_FINDINGS:
            yield Finding(
                "metadata",
                "warning",
                f"further faults of level {level} are not listed",
                image,
                level,
            )
            return


def _plane(
    array: TiffArray,
    ref: PlaneRef,
    image: int,
    level: int,
    ranges: dict[int, list[tuple[int, int, str]]],
) -> Iterator[Finding]:
    where = _where(array, ref)
    try:
        page = array.pages.page(ref)
    except UnsupportedFeatureError as error:
        yield Finding("unsupported_codec", "info", error.message, image, level, where)
        return
    except CorruptDataError as error:
        yield Finding(error.finding, "error", error.message, image, level, where)
        return
    except InputError as error:
        yield Finding("metadata", "error", error.message, image, level, where)
        return
    yield from _tags(array, page, image, level, where)
    yield from _segments(page, ref, image, level, where, ranges)


def _where(array: TiffArray, ref: PlaneRef) -> str:
    name = file_name(array.pages.members[ref.member].file.path)
    number = f"IFD {ref.number}" if ref.number >= 0 else f"SubIFD at byte {ref.offset}"
    return f"{name}: {number}" if len(array.pages.members) > 1 else number


def _tags(array: TiffArray, page: Page, image: int, level: int, where: str) -> Iterator[Finding]:
    layout = page.layout
    samples = array.shape[5] if len(array.shape) > 5 else 1
    if (layout.length, layout.width) != array.shape[3:5]:
        yield Finding(
            "metadata",
            "error",
            f"the IFD holds {layout.width} x {layout.length} pixels, the image has"
            f" {array.shape[4]} x {array.shape[3]}",
            image,
            level,
            where,
        )
    if layout.samples != samples:
        yield Finding(
            "metadata",
            "error",
            f"the IFD holds {layout.samples} samples per pixel, the image has {samples}",
            image,
            level,
            where,
        )
    found = dtype_name(layout, array.declared)
    if found != array.dtype:
        yield Finding(
            "metadata",
            "error",
            f"the IFD holds {found}, the image {array.dtype}",
            image,
            level,
            where,
        )


def _segments(
    page: Page,
    ref: PlaneRef,
    image: int,
    level: int,
    where: str,
    ranges: dict[int, list[tuple[int, int, str]]],
) -> Iterator[Finding]:
    """Offsets and byte counts against the file's size; the first fault of an IFD is enough."""
    import numpy as np

    size = page.file.file.size
    order = page.file.order
    offsets = np.frombuffer(page.offsets, np.dtype(page.offset_letter).newbyteorder(order)).astype(
        np.uint64
    )
    counts = np.frombuffer(page.counts, np.dtype(page.count_letter).newbyteorder(order)).astype(
        np.uint64
    )
    stored = (offsets > 0) & (counts > 0)
    past = stored & ((offsets > size) | (counts > np.maximum(size, offsets) - offsets))
    if past.any():
        n = int(np.argmax(past))
        end = int(offsets[n]) + int(counts[n])
        text = f"strip or tile {n} ends at byte {end}, and the file at {size}"
        yield Finding("truncated", "error", text, image, level, f"{where}, byte {offsets[n]}")
        return
    if (stored & (offsets < 8)).any():
        n = int(np.argmax(stored & (offsets < 8)))
        text = f"strip or tile {n} starts inside the file's header"
        yield Finding("metadata", "error", text, image, level, f"{where}, byte {offsets[n]}")
        return
    known = ranges.setdefault(ref.member, [])
    for n in np.flatnonzero(stored)[: max(0, MAX_RANGES - len(known))]:
        known.append((int(offsets[n]), int(offsets[n]) + int(counts[n]), where))
    if not stored.any():
        text = "the IFD is there, and none of its strips or tiles is stored"
        yield Finding("missing_planes", "error", text, image, level, where)


def _overlaps(ranges: list[tuple[int, int, str]], file: TiffFile) -> Iterator[Finding]:
    """Strips and tiles that share bytes without being the same; identical ones are a legal way to save space."""
    before = (0, 0, "")
    for current in sorted(set(ranges)):
        if current[0] < before[1] and current[:2] != before[:2]:
            yield Finding(
                "metadata",
                "warning",
                f"strips or tiles of {before[2]} and {current[2]} overlap from byte {current[0]}",
                location=f"{file_name(file.file.path)}, byte {current[0]}",
            )
            return
        if current[1] > before[1]:
            before = current
