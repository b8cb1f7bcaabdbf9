"""NGFF metadata of one image group: multiscales and omero, as plain values.

Versions 0.1 to 0.5 are told apart by what is there rather than by what they claim: axes as objects (0.4 and 0.5), as
names (0.3) or not at all (0.1 and 0.2). OME-NGFF specification, sections "multiscales", "axes",
"coordinateTransformations" and "omero".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from openreadout import limits
from openreadout.errors import CorruptDataError
from openreadout.model import Channel, Window
from openreadout_ome_zarr.checked import clean, items, mapping, number, plain_number, text

ROLES = "tczyx"
KNOWN_VERSIONS = frozenset(("0.1", "0.2", "0.3", "0.4", "0.5"))
_HEX = frozenset("0123456789abcdefABCDEF")


class StoredAxis(NamedTuple):
    """One axis as it is stored: its name, `type` and `unit` as written; `role` is one of t c z y x, or None."""

    name: str
    type: str | None
    unit: str | None
    role: str | None

    def as_json(self) -> dict[str, str]:
        """The axis as NGFF 0.4 writes it."""
        body = {"name": self.name, "type": self.type, "unit": self.unit}
        return {key: value for key, value in body.items() if value is not None}


class Transform(NamedTuple):
    """What coordinate transformations come to along each stored axis: coordinate = scale x index + translation.

    The numbers are as stored, so a scale may be 0, negative or not finite; None is one that is not known. `stated`
    tells whether there were transformations at all, `translated` whether a translation was among them.
    """

    scale: tuple[float | None, ...]
    translation: tuple[float | None, ...]
    stated: bool = False
    translated: bool = False


class Dataset(NamedTuple):
    """One entry of `datasets`."""

    path: str
    transformations: object


class Multiscale(NamedTuple):
    """One entry of `multiscales`; `axes` is None when it has none (NGFF 0.1 and 0.2)."""

    name: str | None
    axes: tuple[StoredAxis, ...] | None
    datasets: tuple[Dataset, ...]
    transformations: object
    method: str | None
    oddities: tuple[str, ...] = ()


def version_of(ngff: Mapping[str, Any]) -> str | None:
    """The NGFF version that a group's metadata claims, as text even where it is a number; None when it says none."""
    multiscales = items(ngff.get("multiscales"))
    for holder in (
        ngff,
        mapping(multiscales[0] if multiscales else None),
        mapping(ngff.get("plate")),
        mapping(ngff.get("well")),
        mapping(ngff.get("image-label")),
    ):
        found = text(holder.get("version"))
        if found is not None:
            return found
    return None


def parse_multiscales(ngff: Mapping[str, Any]) -> list[Multiscale]:
    """Read every entry of `multiscales`; raises `CorruptDataError` where one breaks the specification."""
    entries = ngff.get("multiscales")
    if not isinstance(entries, list) or not entries:
        raise CorruptDataError("multiscales is not a list with at least one entry")
    if len(entries) > limits.MAX_MULTISCALES:
        raise CorruptDataError(
            f"multiscales has {len(entries)} entries, more than {limits.MAX_MULTISCALES}",
            hint=limits.raised_by("MAX_MULTISCALES", len(entries)),
        )
    return [_multiscale(entry) for entry in entries]


def _multiscale(entry: object) -> Multiscale:
    if not isinstance(entry, dict):
        raise CorruptDataError("an entry of multiscales is not an object")
    datasets = entry.get("datasets")
    if not isinstance(datasets, list) or not datasets:
        raise CorruptDataError("datasets is not a list with at least one entry")
    if len(datasets) > limits.MAX_LEVELS:
        raise CorruptDataError(
            f"datasets has {len(datasets)} entries, more than {limits.MAX_LEVELS}",
            hint=limits.raised_by("MAX_LEVELS", len(datasets)),
        )
    axes, oddities = _axes(_axes_entry(entry))
    method = entry.get("type")
    return Multiscale(
        text(entry.get("name")),
        axes,
        tuple(_dataset(item) for item in datasets),
        entry.get("coordinateTransformations"),
        text(method) if isinstance(method, str) else None,
        oddities,
    )


def _dataset(item: object) -> Dataset:
    """An entry without a path keeps its place as one with an empty path, which no level can have."""
    entry = mapping(item)
    path = entry.get("path")
    if not isinstance(path, str):
        path = str(path) if isinstance(path, int) and not isinstance(path, bool) else ""
    return Dataset(path, entry.get("coordinateTransformations"))


# -- axes --------------------------------------------------


def _axes_entry(entry: Mapping[str, Any]) -> object:
    """The axes of a multiscales entry; drafts of 0.6 keep them in the coordinate system that the levels map to."""
    if "axes" in entry or "coordinateSystems" not in entry:
        return entry.get("axes")
    systems = [mapping(system) for system in items(entry.get("coordinateSystems"))]
    first = mapping(items(entry.get("datasets"))[0])
    steps = items(first.get("coordinateTransformations"))
    output = mapping(steps[-1]).get("output") if steps else None
    wanted = output.get("name") if isinstance(output, dict) else output
    chosen = [system for system in systems if system.get("name") == wanted] or systems
    return chosen[0].get("axes") if chosen else None


def _axes(value: object) -> tuple[tuple[StoredAxis, ...] | None, tuple[str, ...]]:
    if value is None:
        return None, ()
    if not isinstance(value, list) or not value:
        raise CorruptDataError("axes is not a list with at least one axis")
    if len(value) > limits.MAX_DIMENSIONS:
        raise CorruptDataError(
            f"{len(value)} axes, more than {limits.MAX_DIMENSIONS}",
            hint=limits.raised_by("MAX_DIMENSIONS", len(value)),
        )
    plain = [_axis(item) for item in value]
    roles = axis_roles([(axis.name, axis.type) for axis in plain])
    axes = tuple(axis._replace(role=role) for axis, role in zip(plain, roles, strict=True))
    names = [axis.name for axis in axes]
    twice = sorted({name for name in names if names.count(name) > 1})
    return axes, tuple(f"two axes are called {name!r}" for name in twice)


def _axis(item: object) -> StoredAxis:
    if isinstance(item, str) and item:
        return StoredAxis(str(clean(item)), None, None, None)
    entry = mapping(item)
    name = text(entry.get("name"))
    if name is None:
        raise CorruptDataError("an axis has no name")
    kind, unit = entry.get("type"), entry.get("unit")
    return StoredAxis(
        name,
        text(kind) if isinstance(kind, str) else None,
        text(unit) if isinstance(unit, str) else None,
        None,
    )


def axis_roles(axes: Sequence[tuple[str, str | None]]) -> list[str | None]:
    """Which of t c z y x each axis is, by its name in any case, else by its type.

    Of the space axes with other names the last is taken for x, the one before it for y, then z, as far as these are
    free. None stands for an axis that is none of the five.
    """
    roles: list[str | None] = [None] * len(axes)
    for n, (name, _) in enumerate(axes):
        letter = name.lower()
        if letter in ROLES and len(letter) == 1 and letter not in roles:
            roles[n] = letter
    for n, (_, kind) in enumerate(axes):
        letter = {"time": "t", "channel": "c"}.get((kind or "").lower(), "")
        if roles[n] is None and letter and letter not in roles:
            roles[n] = letter
    free = [letter for letter in "xyz" if letter not in roles]
    for n in reversed(range(len(axes))):
        if roles[n] is None and (axes[n][1] or "").lower() == "space" and free:
            roles[n] = free.pop(0)
    return roles


def implied_axes(ndim: int) -> tuple[StoredAxis, ...]:
    """The axes of NGFF 0.1 and 0.2: t, c, z, y, x, of which arrays of lower rank have the last ones."""
    if not 1 <= ndim <= len(ROLES):
        raise CorruptDataError(f"the array has {ndim} dimensions and no axes are named")
    return tuple(StoredAxis(name, None, None, name) for name in ROLES[-ndim:])


# -- coordinate transformations --------------------------------------------------


def compose(ndim: int, *steps: object) -> tuple[Transform, tuple[str, ...]]:
    """Compose lists of coordinate transformations, the dataset's first, then those of its multiscales entry.

    Returns
    -------
    Transform
    tuple of str
        What could not be taken into account, in words.
    """
    walk = _Composer(ndim)
    for step in steps:
        if step is not None:
            walk.add_all(step)
    if not walk.stated:
        nothing = (None,) * ndim
        return Transform(nothing, nothing), tuple(walk.oddities)
    return (
        Transform(tuple(walk.scale), tuple(walk.translation), True, walk.translated),
        tuple(walk.oddities),
    )


class _Composer:
    """Applies transformations one after the other to scale and translation of each axis."""

    def __init__(self, ndim: int) -> None:
        self.ndim = ndim
        self.scale: list[float | None] = [1.0] * ndim
        self.translation: list[float | None] = [0.0] * ndim
        self.stated = False
        self.translated = False
        self.oddities: list[str] = []

    def add_all(self, value: object) -> None:
        if not isinstance(value, list):
            self.oddities.append("coordinateTransformations is not a list")
            return
        for item in value[: limits.MAX_DIMENSIONS]:
            self._add(mapping(item), 0)

    def _add(self, step: Mapping[str, Any], depth: int) -> None:
        kind = step.get("type")
        if kind == "identity":
            self.stated = True
        elif kind == "scale":
            self._scale(self._numbers(step.get("scale"), "scale"))
        elif kind == "translation":
            self._translate(self._numbers(step.get("translation"), "translation"))
        elif kind == "sequence" and depth < limits.MAX_DIMENSIONS:
            for item in items(step.get("transformations"))[: limits.MAX_DIMENSIONS]:
                self._add(mapping(item), depth + 1)
        elif kind == "affine" and (rows := self._diagonal(step.get("affine"))) is not None:
            self._scale([row[0] for row in rows])
            self._translate([row[1] for row in rows])
        else:
            word = text(kind) if isinstance(kind, str) else None
            self.oddities.append(f"a coordinate transformation of type {word} is not applied")
            self._unknown()

    def _unknown(self) -> None:
        self.stated = True
        self.scale = [None] * self.ndim
        self.translation = [None] * self.ndim

    def _numbers(self, value: object, what: str) -> list[float] | None:
        numbers = [number(item) for item in items(value)]
        if len(numbers) == self.ndim and all(n is not None for n in numbers):
            return [n for n in numbers if n is not None]
        self.oddities.append(f"a {what} is not a list of {self.ndim} numbers")
        return None

    def _scale(self, factors: list[float] | None) -> None:
        self.stated = True
        if factors is None:
            self.scale = [None] * self.ndim
            self.translation = [None] * self.ndim
            return
        self.scale = [
            None if s is None else s * f for s, f in zip(self.scale, factors, strict=True)
        ]
        self.translation = [
            None if s is None else s * f for s, f in zip(self.translation, factors, strict=True)
        ]

    def _translate(self, shifts: list[float] | None) -> None:
        self.stated = self.translated = True
        if shifts is None:
            self.translation = [None] * self.ndim
            return
        self.translation = [
            None if t is None else t + s for t, s in zip(self.translation, shifts, strict=True)
        ]

    def _diagonal(self, value: object) -> list[tuple[float, float]] | None:
        """Scale and shift of each axis of an affine matrix without rotation or shear."""
        rows = [[number(item) for item in items(row)] for row in items(value)[: self.ndim + 1]]
        if len(rows) != self.ndim or any(len(row) != self.ndim + 1 for row in rows):
            return None
        found = []
        for n, row in enumerate(rows):
            scale, shift = row[n], row[-1]
            straight = all(item == 0 for m, item in enumerate(row[:-1]) if m != n)
            if not straight or scale is None or shift is None:
                return None
            found.append((scale, shift))
        return found


def known_scale(value: float | None) -> float | None:
    """A scale that says something: above zero and finite; None for anything else."""
    return value if value is not None and math.isfinite(value) and value > 0 else None


def finite(value: float | None) -> float | None:
    """The number unless it is infinite or NaN."""
    return value if value is not None and math.isfinite(value) else None


# -- omero --------------------------------------------------


def parse_omero(ngff: Mapping[str, Any]) -> tuple[Channel, ...] | None:
    """The channels of the `omero` block, each at its index even where entries are odd; None without the block."""
    omero = ngff.get("omero")
    channels = mapping(omero).get("channels")
    if not isinstance(channels, list):
        return None
    return tuple(parse_channel(item) for item in channels[: limits.MAX_CHANNELS])


def parse_channel(item: object) -> Channel:
    """One channel of `omero`: its label, colour and window, as far as they are what they should be."""
    entry = mapping(item)
    return Channel(
        name=text(entry.get("label")),
        color=parse_color(entry.get("color")),
        window=parse_window(entry.get("window")),
    )


def parse_color(value: object) -> str | None:
    """A colour of six hex digits, with or without `#`, as `#RRGGBB`."""
    if not isinstance(value, str):
        return None
    digits = value.strip().removeprefix("#")
    return f"#{digits.upper()}" if len(digits) == 6 and _HEX.issuperset(digits) else None


def parse_window(value: object) -> Window | None:
    """A display window; None when none of its numbers is one."""
    entry = mapping(value)
    numbers = [plain_number(entry.get(key)) for key in ("min", "max", "start", "end")]
    return Window(*numbers) if any(n is not None for n in numbers) else None
