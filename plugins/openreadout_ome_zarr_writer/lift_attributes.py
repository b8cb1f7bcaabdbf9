"""Attributes of groups that stay where they are, as NGFF 0.5 has them.

OME-NGFF 0.5, sections "multiscales", "axes", "plate" and "well"; 0.4 and older keep the same keys outside `ome`, each
with a version of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openreadout.errors import UnsupportedFeatureError
from openreadout_ome_zarr_writer.lift_codecs import EXPORT_A_COPY

if TYPE_CHECKING:
    from openreadout.contracts import LiftedImage, LiftedLevel

VERSION = "0.5"
LAYOUT = "bioformats2raw.layout"
GROUP_KEYS = frozenset(("multiscales", "omero", "plate", "well", "image-label", LAYOUT))
NAMED_KEYS = {"labels": "labels", "OME": "series"}
"""Keys that are NGFF in a group of this name only."""
MADE_ANEW = frozenset(("version", "axes", "datasets", "coordinateTransformations"))
N5_KEYS = frozenset("n5 dimensions blockSize dataType compression compressionType".split())
"""What N5 describes a container or dataset by; the Zarr documents say it in their own way."""


# -- the order of the axes --------------------------------------------------------------------------


def check_axes(image: LiftedImage) -> None:
    """Refuse axes that NGFF does not allow in the order in which the arrays store them.

    Raises
    ------
    UnsupportedFeatureError
        They are not time, then channel or one of another type, then two or three of space, each named once.
    """
    kinds = [_place(axis.get("type")) for axis in image.axes]
    names = [axis["name"] for axis in image.axes]
    counts = [kinds.count(n) for n in range(3)]
    if (
        kinds != sorted(kinds)
        or counts[0] > 1
        or counts[1] > 1
        or counts[2] not in (2, 3)
        or len(set(names)) != len(names)
    ):
        raise UnsupportedFeatureError(
            f"image {image.index}: its arrays store the axes {', '.join(names)}, and NGFF wants time first, then "
            "channels, then two or three axes of space",
            where=image.group or "/",
            hint=f"{EXPORT_A_COPY}; or choose the images that can be lifted with --image",
        )


def _place(kind: object) -> int:
    return {"time": 0, "space": 2}.get(str(kind), 1)


# -- images -----------------------------------------------------------------------------------------


def multiscale(image: LiftedImage, base: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """The `multiscales` entry of an image.

    Parameters
    ----------
    image : LiftedImage
    base : str
        Path of the group that gets the entry.
    known : mapping
        The entry that it had so far, whose name, method and the like are kept.
    """
    entry = {key: value for key, value in known.items() if key not in MADE_ANEW}
    if not known and image.image.name is not None:
        entry["name"] = image.image.name
    entry["axes"] = [dict(axis) for axis in image.axes]
    entry["datasets"] = [
        {"path": _below(base, level), "coordinateTransformations": _transformations(level)}
        for level in image.levels
    ]
    return entry


def _below(base: str, level: LiftedLevel) -> str:
    if level.path is not None:
        return level.path
    return level.array.path.removeprefix(f"{base}/" if base else "")


def _transformations(level: LiftedLevel) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = [{"type": "scale", "scale": list(level.scale)}]
    if level.translation is not None:
        steps.append({"type": "translation", "translation": list(level.translation)})
    return steps


def omero(image: LiftedImage) -> dict[str, Any]:
    """The `omero` block, where the colour of every channel is known; NGFF has none without."""
    channels = image.image.channels
    if not channels or any(channel.color is None for channel in channels):
        return {}
    written = []
    for channel in channels:
        entry: dict[str, Any] = {"color": (channel.color or "").lstrip("#"), "active": True}
        if channel.name is not None:
            entry["label"] = channel.name
        window = channel.window
        if window is not None:
            ends = {"min": window.min, "max": window.max, "start": window.start, "end": window.end}
            if None not in ends.values():
                entry["window"] = ends
        written.append(entry)
    return {"omero": {"channels": written}}


# -- groups of Zarr v2 ------------------------------------------------------------------------------


def from_v2(path: str, attributes: Mapping[str, Any], images: list[LiftedImage]) -> dict[str, Any]:
    """The attributes of a group of Zarr v2 with its NGFF keys below `ome`.

    Entries of `multiscales` that are none of `images` are left out.
    """
    ngff, others = _split(path, attributes)
    if not ngff:
        return dict(others)
    if "multiscales" in ngff:
        ngff["multiscales"] = _multiscales(ngff["multiscales"], path, images)
    for key in ("omero", "plate", "well", "image-label"):
        if isinstance(ngff.get(key), dict):
            ngff[key] = {name: value for name, value in ngff[key].items() if name != "version"}
    if isinstance(ngff.get("plate"), dict):
        ngff["plate"] = _plate(ngff["plate"])
    return {"ome": {"version": VERSION, **ngff}, **others}


def _split(path: str, attributes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """NGFF keys, and all others; some writers have the former below `ome` already."""
    wanted = {*GROUP_KEYS, NAMED_KEYS.get(path.rpartition("/")[2], "multiscales")}
    inside = attributes.get("ome")
    found = {key: value for key, value in attributes.items() if key in wanted}
    others = {key: value for key, value in attributes.items() if key not in wanted}
    if isinstance(inside, dict):
        others.pop("ome")
        found = {**{k: v for k, v in inside.items() if k != "version"}, **found}
    if found:
        others.pop("version", None)
    return found, others


def _multiscales(value: object, path: str, images: list[LiftedImage]) -> list[dict[str, Any]]:
    entries = value if isinstance(value, list) else []
    by_path = {_first_path(entry): entry for entry in reversed(entries)}
    return [multiscale(image, path, by_path.get(image.levels[0].path, {})) for image in images]


def _first_path(entry: object) -> str | None:
    datasets = entry.get("datasets") if isinstance(entry, dict) else None
    first = datasets[0] if isinstance(datasets, list) and datasets else None
    path = first.get("path") if isinstance(first, dict) else None
    return str(path) if isinstance(path, str | int) else None


def _plate(plate: dict[str, Any]) -> dict[str, Any]:
    """A plate with the indices of rows and columns that NGFF wants since 0.4."""
    rows, columns = _names(plate.get("rows")), _names(plate.get("columns"))
    wells = plate.get("wells")
    if not isinstance(wells, list):
        return plate
    return {**plate, "wells": [_well(well, rows, columns) for well in wells]}


def _names(value: object) -> list[Any]:
    listed = value if isinstance(value, list) else []
    return [item.get("name") if isinstance(item, dict) else None for item in listed]


def _well(well: Any, rows: list[Any], columns: list[Any]) -> Any:
    path = well.get("path") if isinstance(well, dict) else None
    if not isinstance(path, str) or path.count("/") != 1:
        return well
    row, column = path.split("/")
    if row not in rows or column not in columns:
        return well
    return {"rowIndex": rows.index(row), "columnIndex": columns.index(column), **well}


# -- groups and datasets of N5 ----------------------------------------------------------------------


def from_n5(attributes: Mapping[str, Any], *, group: bool) -> dict[str, Any]:
    """The attributes of an N5 group or dataset that a person added.

    Those that would be taken for NGFF metadata in a Zarr group stand below `n5`.
    """
    others = {key: value for key, value in attributes.items() if key not in N5_KEYS}
    if not group:
        return others
    clashing = (GROUP_KEYS | {"ome", "openreadout", "labels", "series"}) & set(others)
    if clashing:
        kept = {key: value for key, value in others.items() if key not in clashing}
        return {**kept, "n5": {key: others[key] for key in sorted(clashing)}}
    return others


def strict(value: Any) -> Any:
    """A JSON value without NaN and infinities, which become the words that Zarr has for them.

    Nesting is bounded by the parser that made the value.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [strict(item) for item in value]
    return value
