"""Resolution pyramids: SubIFDs of each plane, or smaller IFDs of the main chain that the XML does not know of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openreadout.errors import InputError
from openreadout_ome_tiff.array import PlaneKey, PlaneRef, TiffArray
from openreadout_ome_tiff.ifd import NEW_SUBFILE_TYPE, TiffFile
from openreadout_ome_tiff.page import PageLayout, dtype_name, read_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_SUB_IFDS = 64
MAX_LOOSE = 100_000
"""IFDs of the main chain that are looked at for levels."""


def find_levels(array: TiffArray, used: set[tuple[int, int]], *, alone: bool) -> list[TiffArray]:
    """The lower levels of a pyramid, largest first.

    Parameters
    ----------
    array : TiffArray
        Level 0.
    used : set of (file, IFD number)
        IFDs that are planes of some image.
    alone : bool
        Whether the XML describes this image only; loose IFDs of the chain belong to it then.

    Returns
    -------
    list of TiffArray
        A plane that lacks a level is not in that level's table, and reads as not stored.
    """
    if not array.planes:
        return []
    levels = _from_sub_ifds(array)
    if not levels and alone and used:
        levels = _from_chain(array, used)
    return levels


def _from_sub_ifds(array: TiffArray) -> list[TiffArray]:
    """Level k is the k-th SubIFD of every plane (OME-TIFF specification, "Sub-resolutions")."""
    first = min(array.planes)
    offsets = _sub_offsets(array, array.planes[first])
    if not offsets:
        return []
    known: dict[tuple[int, int], Sequence[int]] = {}
    for ref in array.pages.in_turn(array.planes.values()):
        if (ref.member, ref.offset) not in known:
            known[ref.member, ref.offset] = _sub_offsets(array, ref)
    all_offsets = {key: known[ref.member, ref.offset] for key, ref in array.planes.items()}
    levels: list[TiffArray] = []
    above = array.model
    for k, offset in enumerate(offsets):
        tiff = array.pages.members[array.planes[first].member]
        layout = _smaller(tiff, offset, above, array)
        if layout is None:
            continue
        planes = {
            key: PlaneRef(array.planes[key].member, subs[k], -1)
            for key, subs in all_offsets.items()
            if k < len(subs)
        }
        levels.append(_level(array, layout, planes))
        above = layout
    return levels


def _sub_offsets(array: TiffArray, ref: PlaneRef) -> Sequence[int]:
    tiff = array.pages.members[ref.member]
    try:
        return tiff.sub_offsets(tiff.ifd(ref.offset))[:MAX_SUB_IFDS]
    except InputError:
        return ()


def _smaller(tiff: TiffFile, offset: int, above: PageLayout, array: TiffArray) -> PageLayout | None:
    """The layout of an IFD if it can be a level below `above`: smaller, of the same samples and type."""
    try:
        layout = read_layout(tiff, tiff.ifd(offset))
    except InputError:
        return None
    same = layout.samples == above.samples and dtype_name(layout, array.declared) == array.dtype
    fits = layout.width <= above.width and layout.length <= above.length
    smaller = layout.width < above.width or layout.length < above.length
    return layout if same and fits and smaller else None


def _level(array: TiffArray, layout: PageLayout, planes: dict[PlaneKey, PlaneRef]) -> TiffArray:
    shape = (*array.shape[:3], layout.length, layout.width, *array.shape[5:])
    return TiffArray(array.pages, planes, shape, array.dtype, layout, array.declared)


def _from_chain(array: TiffArray, used: set[tuple[int, int]]) -> list[TiffArray]:
    """Levels as IFDs of the main chain: all planes of a level after one another, or the levels after each plane.

    Only IFDs that are flagged as reduced images and are smaller by a whole factor count, so that a thumbnail or a
    label image is not taken for a level.
    """
    if {ref.member for ref in array.planes.values()} != {0}:
        return []
    tiff = array.pages.members[0]
    offsets = tiff.chain().offsets
    loose = [n for n in range(len(offsets)) if (0, n) not in used]
    if not loose or len(loose) > MAX_LOOSE:
        return []
    order = sorted(array.planes, key=lambda key: array.planes[key].number)
    numbers = [array.planes[key].number for key in order]
    groups = _after_each(numbers, len(offsets)) or _after_all(numbers, loose)
    levels: list[TiffArray] = []
    above = array.model
    for group in groups:
        layouts = [_reduced(tiff, offsets[n], above, array) for n in group]
        layout = layouts[0]
        if layout is None or any(
            other is None or (other.width, other.length) != (layout.width, layout.length)
            for other in layouts
        ):
            break
        planes = {key: PlaneRef(0, offsets[n], n) for key, n in zip(order, group, strict=True)}
        levels.append(_level(array, layout, planes))
        above = layout
    return levels


def _after_each(numbers: Sequence[int], count: int) -> list[list[int]]:
    """Groups by level when each plane is followed by as many loose IFDs; else none."""
    ends = [*numbers[1:], count]
    steps = {end - number - 1 for number, end in zip(numbers, ends, strict=True)}
    if len(steps) != 1 or not (step := steps.pop()):
        return []
    return [[number + k for number in numbers] for k in range(1, step + 1)]


def _after_all(numbers: Sequence[int], loose: Sequence[int]) -> list[list[int]]:
    """Groups by level when all planes come first."""
    size = len(numbers)
    behind = [n for n in loose if n > numbers[-1]]
    if len(behind) != len(loose) or len(behind) % size:
        return []
    return [list(behind[k : k + size]) for k in range(0, len(behind), size)]


def _reduced(tiff: TiffFile, offset: int, above: PageLayout, array: TiffArray) -> PageLayout | None:
    layout = _smaller(tiff, offset, above, array)
    if layout is None:
        return None
    try:
        flags = tiff.number(tiff.ifd(offset), NEW_SUBFILE_TYPE, 0)
    except InputError:
        return None
    full = array.model
    factor = round(full.width / layout.width)
    whole = factor >= 2 and all(
        size // factor <= small <= -(-size // factor)
        for size, small in ((full.width, layout.width), (full.length, layout.length))
    )
    return layout if flags & 1 and whole else None
