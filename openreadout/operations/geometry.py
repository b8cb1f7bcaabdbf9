"""Scales, translations and units of the levels that an export writes."""

from __future__ import annotations

import itertools
import math

from openreadout.model import Image
from openreadout.operations.sources import LevelSource
from openreadout.units import length_um, time_s, unit_name

NGFF_LENGTHS = frozenset(
    (
        "angstrom attometer centimeter decimeter exameter femtometer foot gigameter hectometer "
        "inch kilometer megameter meter micrometer mile millimeter nanometer parsec petameter "
        "picometer terameter yard yoctometer yottameter zeptometer zettameter"
    ).split()
)
NGFF_TIMES = frozenset(
    (
        "attosecond centisecond day decisecond exasecond femtosecond gigasecond hectosecond hour "
        "kilosecond megasecond microsecond millisecond minute nanosecond petasecond picosecond "
        "second terasecond yoctosecond yottasecond zeptosecond zettasecond"
    ).split()
)


def unit_of(image: Image, axis: str) -> str | None:
    """The unit of an axis as NGFF allows it; a length or time of another name is told in µm or s."""
    place = image.axis_names.find(axis)
    unit = unit_name(image.axes[place].unit) if place >= 0 else None
    if unit is None or not _known(image.levels[0].scale[place]):
        return None
    if axis in "xyz":
        return None if length_um(unit) is None else unit if unit in NGFF_LENGTHS else "micrometer"
    if axis == "t":
        return None if time_s(unit) is None else unit if unit in NGFF_TIMES else "second"
    return None


def _known(scale: float | None) -> bool:
    """Whether a scale is a number that a spacing can be."""
    return scale is not None and math.isfinite(scale) and scale > 0


def _factor(image: Image, axis: str, unit: str | None) -> float:
    """What a number in the image's unit is multiplied by to be in `unit`."""
    stored = unit_name(image.axes[image.axis_names.index(axis)].unit)
    if unit is None or stored == unit:
        return 1.0
    length, time = length_um(stored), time_s(stored)
    return length if length is not None else time if time is not None else 1.0


def geometry(
    image: Image, level: int, axes: str, units: tuple[str | None, ...], source: LevelSource
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Scale and translation of a level in the target's units; an unknown scale is 1, as NGFF demands a number."""
    scales, translations = [], []
    item = image.levels[level]
    for axis, unit, pick in zip(axes, units, source.picks, strict=True):
        place = image.axis_names.find(axis)
        if place < 0:
            scales.append(1.0)
            translations.append(0.0)
            continue
        factor = _factor(image, axis, unit)
        scale = item.scale[place]
        known = _known(scale)
        value = scale * factor if known and scale is not None else _relative(image, level, axis)
        moved = item.translation[place]
        start = (moved or 0.0) * factor if moved is not None and math.isfinite(moved) else 0.0
        if pick:
            start += pick[0] * value if known and axis != "c" else 0.0
            value *= _step(pick) if known and axis != "c" else 1
        scales.append(value)
        translations.append(start)
    return tuple(scales), tuple(translations)


def _relative(image: Image, level: int, axis: str) -> float:
    """How many samples of level 0 one of this level covers, where no scale is known."""
    full, size = image.size(axis), image.size(axis, level)
    if size < 1 or full == size or axis in "tc":
        return 1.0
    return float(2 ** round(math.log2(full / size))) if full > size else full / size


def _step(pick: tuple[int, ...]) -> int:
    """The spacing of evenly chosen indices, 1 for others."""
    steps = {b - a for a, b in itertools.pairwise(pick)}
    return steps.pop() if len(steps) == 1 else 1
