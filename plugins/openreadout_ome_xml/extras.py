"""Sizes, times and positions of an image, and what else is kept of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openreadout.units import length_um, time_s, unit_name
from openreadout_ome_xml.annotations import referenced
from openreadout_ome_xml.elements import attributes, child, number

if TYPE_CHECKING:
    from lxml.etree import _Element

    from openreadout_ome_xml.document import OmePlane, Quantity

MAX_LISTED = 4096
"""Positions or times that are listed one by one in `extra`; beyond that only their number is given."""
REGULAR = 1e-3
"""How far from the time increment, as a part of it, time points may lie and still count as regular."""


def physical_sizes(pixels: _Element) -> tuple[dict[str, Quantity], dict[str, list[Any]]]:
    """Voxel sizes by axis, and those of an unknown unit or not above zero as they are written.

    A size without a unit is in µm (OME data model, `PhysicalSizeXUnit`; schemas before 2015 have no unit at all).
    """
    known: dict[str, Quantity] = {}
    raw: dict[str, list[Any]] = {}
    for axis in "XYZ":
        text = pixels.get(f"PhysicalSize{axis}")
        if text is None:
            continue
        value, unit = number(text), pixels.get(f"PhysicalSize{axis}Unit", "µm")
        name = unit_name(unit) if length_um(unit) is not None else None
        if value is not None and value > 0 and name is not None:
            known[axis.lower()] = (value, name)
        else:
            raw[axis.lower()] = [value if value is not None else text[:40], unit]
    return known, raw


def time_increment(pixels: _Element, image: _Element) -> Quantity | None:
    """Time between time points with its unit, in seconds when none is written (before 2009 an image may have it)."""
    for holder in (pixels, image):
        value = number(holder.get("TimeIncrement"))
        unit = holder.get("TimeIncrementUnit", "s")
        if value is not None and value > 0 and time_s(unit) is not None:
            return value, unit_name(unit)
    return None


def image_extra(
    image: _Element,
    pixels: _Element,
    planes: Sequence[OmePlane],
    increment: Quantity | None,
    raw_sizes: Mapping[str, list[Any]],
    notes: Mapping[str, Any],
    *,
    alone: bool,
) -> dict[str, Any]:
    """What the model has no field for, as JSON values."""
    extra: dict[str, Any] = {}
    if raw_sizes:
        extra["raw_physical_size"] = dict(raw_sizes)
    description = child(image, "Description")
    if description is not None and (description.text or "").strip():
        extra["description"] = (description.text or "").strip()
    bits = number(pixels.get("SignificantBits"))
    if bits is not None and bits.is_integer():
        extra["significant_bits"] = int(bits)
    extra.update(_environment(image))
    names = list(notes) if alone else referenced([image, pixels, *pixels], notes)
    if names:
        extra["annotations"] = {name: notes[name] for name in names}
    modulo = {k: v for name in names for k, v in notes[name].get("modulo", {}).items()}
    if modulo:
        extra["modulo"] = modulo
    extra.update(_times(planes, increment))
    extra.update(_positions(planes))
    return extra


def _environment(image: _Element) -> dict[str, Any]:
    found = {}
    for name, key in (("ImagingEnvironment", "imaging_environment"), ("StageLabel", "stage_label")):
        element = child(image, name)
        if element is not None and (described := attributes(element)):
            found[key] = described
    return found


def _times(planes: Sequence[OmePlane], increment: Quantity | None) -> dict[str, Any]:
    """Times of the time points in seconds, where they are not simply the time increment apart."""
    firsts: dict[int, float] = {}
    for plane in planes:
        if plane.delta_t_s is not None:
            firsts[plane.t] = min(plane.delta_t_s, firsts.get(plane.t, plane.delta_t_s))
    if len(firsts) < 2:
        return {}
    order = sorted(firsts)
    if increment is not None:
        step = increment[0] * (time_s(increment[1]) or 1.0)
        first = firsts[order[0]] - order[0] * step
        if all(abs(firsts[t] - first - t * step) <= REGULAR * step for t in order):
            return {}
    if len(order) > MAX_LISTED:
        return {"delta_t_count": len(order)}
    return {"delta_t_s": {str(t): firsts[t] for t in order}}


def _positions(planes: Sequence[OmePlane]) -> dict[str, Any]:
    """Stage positions: one where all planes have the same, else one for each plane."""
    placed = [plane for plane in planes if plane.position]
    if not placed:
        return {}
    first = placed[0].position
    if all(plane.position == first for plane in placed):
        return {"stage_position": {axis: list(value) for axis, value in first.items()}}
    if len(placed) > MAX_LISTED:
        return {"stage_position_count": len(placed)}
    return {
        "stage_positions": [
            {"t": p.t, "c": p.c, "z": p.z, **{a: list(v) for a, v in p.position.items()}}
            for p in placed
        ]
    }
