"""What the OME-NGFF specification demands and reading can do without: told by `check`, never with severity error.

Each function takes a block of a group's NGFF metadata and gives sentences on what breaks a rule of the section of the
same name, versions 0.4 and 0.5 (older versions demand less, and less is looked at). A broken MUST is a warning, a
SHOULD that is not met is information.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from openreadout.errors import InputError
from openreadout.model import Finding
from openreadout.stores import batches
from openreadout_ome_zarr.checked import items, mapping, number, whole
from openreadout_ome_zarr.documents import Documents
from openreadout_ome_zarr.ngff import version_of

if TYPE_CHECKING:
    from openreadout.model import Image
    from openreadout.stores import Store

NAMED_AXES = ("0.3",)
NO_AXES = ("0.1", "0.2")
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]+")
_COLOR = re.compile(r"[0-9A-Fa-f]{6}")
MAX_SENTENCES = 50
"""Broken rules that are told of one document."""


def inspect_groups(store: Store, images: Iterable[Image], zarr_format: int) -> Iterator[Finding]:
    """Findings on the metadata of the root, which is of a Zarr version, of its wells, and of every image's group."""
    documents = Documents(store)
    documents.preferred, documents.settled = zarr_format, True
    numbers: dict[str, int | None] = {"": None}
    for n, image in enumerate(images):
        group = str(image.extra.get("group", "/")).strip("/")
        if numbers.get(group) is None:
            numbers[group] = n
        well = image.extra.get("well")
        if isinstance(well, str):
            numbers.setdefault(well, None)
    for path, number_ in _ahead(documents, numbers):
        try:
            group_ = documents.group(path)
        except InputError:
            continue  # reported when the data set was opened
        if group_ is not None:
            warnings = [*broken_rules(group_.ngff), *crossed_indices(group_.ngff)]
            for sentence in warnings[:MAX_SENTENCES]:
                yield Finding("metadata", "warning", sentence, number_, None, group_.document)
            for sentence in unmet_advice(group_.ngff)[:MAX_SENTENCES]:
                yield Finding("metadata", "info", sentence, number_, None, group_.document)


def _ahead(
    documents: Documents, numbers: Mapping[str, int | None]
) -> Iterator[tuple[str, int | None]]:
    for batch in batches(numbers.items()):
        documents.expect(path for path, _ in batch)
        yield from batch


def broken_rules(ngff: Mapping[str, Any]) -> list[str]:
    """Sentences on every rule that a group's NGFF metadata breaks."""
    version = version_of(ngff)
    found: list[str] = []
    if "multiscales" in ngff:
        entries = ngff["multiscales"]
        if not isinstance(entries, list) or not entries:
            found.append("multiscales: not a list with at least one entry")
        for n, entry in enumerate(items(entries)):
            found += [f"multiscales/{n}: {text}" for text in _multiscale(mapping(entry), version)]
    for key, rules in (
        ("omero", _omero),
        ("plate", _plate),
        ("well", _well),
        ("image-label", _label),
    ):
        if key in ngff:
            block = ngff[key]
            texts = rules(block) if isinstance(block, dict) else ["not an object"]
            found += [f"{key}: {text}" for text in texts]
    found += _versions(ngff)
    return found


def _versions(ngff: Mapping[str, Any]) -> Iterator[str]:
    holders = [ngff, *(mapping(ngff.get(key)) for key in ("plate", "well", "image-label"))]
    holders += [mapping(entry) for entry in items(ngff.get("multiscales"))]
    for holder in holders:
        version = holder.get("version")
        if version is not None and not (
            isinstance(version, str) and re.fullmatch(r"0\.[1-9].*", version)
        ):
            yield f"version: {version!r} is not the text of a version"


# -- multiscales --------------------------------------------------


def _multiscale(entry: Mapping[str, Any], version: str | None) -> Iterator[str]:
    datasets = entry.get("datasets")
    if not isinstance(datasets, list) or not datasets:
        yield "datasets: not a list with at least one entry"
    for n, dataset in enumerate(items(datasets)):
        if not isinstance(mapping(dataset).get("path"), str):
            yield f"datasets/{n}: the path is not text"
    if version in NO_AXES or "coordinateSystems" in entry:
        return
    yield from _axes(entry.get("axes"), version)
    if version in NAMED_AXES:
        return
    for n, dataset in enumerate(items(datasets)):
        steps = mapping(dataset).get("coordinateTransformations")
        yield from (f"datasets/{n}: {text}" for text in _transformations(steps))
    if "coordinateTransformations" in entry:
        yield from _transformations(entry["coordinateTransformations"])


def _axes(axes: object, version: str | None) -> Iterator[str]:
    if not isinstance(axes, list):
        yield "axes: not a list"
        return
    if not 2 <= len(axes) <= 5:
        yield f"axes: {len(axes)}, where 2 to 5 are allowed"
    if version in NAMED_AXES:
        if not all(isinstance(axis, str) for axis in axes):
            yield f"axes: not plain names, which NGFF {version} has"
        return
    names = [mapping(axis).get("name") for axis in axes]
    if not all(isinstance(name, str) and name for name in names):
        yield "axes: one has no name"
    if len({str(name) for name in names}) < len(names):
        yield "axes: two have the same name"
    kinds = [mapping(axis).get("type") for axis in axes]
    if any(kind is not None and not isinstance(kind, str) for kind in kinds):
        yield "axes: a type is not text"
    if not 2 <= kinds.count("space") <= 3:
        yield f"axes: {kinds.count('space')} of type space, where 2 or 3 are allowed"
    if kinds.count("time") > 1:
        yield "axes: more than one of type time"
    if len(kinds) - kinds.count("space") - kinds.count("time") > 1:
        yield "axes: more than one that is neither space nor time"
    order = [0 if kind == "time" else 2 if kind == "space" else 1 for kind in kinds]
    if order != sorted(order):
        yield "axes: not in the order time, channel, space"


def _transformations(steps: object) -> Iterator[str]:
    if not isinstance(steps, list) or not steps:
        yield "coordinateTransformations: not a list with at least one entry"
        return
    kinds = [mapping(step).get("type") for step in steps]
    if kinds not in (["scale"], ["scale", "translation"]):
        yield "coordinateTransformations: not one scale, with at most one translation after it"
    for step, kind in zip(steps, kinds, strict=True):
        values = mapping(step).get(kind) if isinstance(kind, str) else None
        if isinstance(values, str) or mapping(step).get("path") is not None:
            continue  # the numbers lie in an array of their own, which the specification allows
        if kind in ("scale", "translation"):
            numbers = [number(value) for value in items(values)]
            if not numbers or None in numbers:
                yield f"coordinateTransformations: the {kind} is not a list of numbers"


# -- omero --------------------------------------------------


def _omero(block: Mapping[str, Any]) -> Iterator[str]:
    channels = block.get("channels")
    if not isinstance(channels, list):
        yield "channels: not a list"
    for n, channel in enumerate(items(channels)):
        color = mapping(channel).get("color")
        if color is not None and not (isinstance(color, str) and _COLOR.fullmatch(color)):
            yield f"channels/{n}: the color is not six hex digits"
        window = mapping(channel).get("window")
        if window is not None:
            keys = ("min", "max", "start", "end")
            if any(number(mapping(window).get(key)) is None for key in keys):
                yield f"channels/{n}: the window lacks one of the numbers min, max, start, end"


# -- plate and well --------------------------------------------------


def _plate(block: Mapping[str, Any]) -> Iterator[str]:
    names = {key: _plate_names(block.get(key)) for key in ("rows", "columns")}
    for key, found in names.items():
        if not found:
            yield f"{key}: not a list with at least one entry"
        if any(not isinstance(name, str) or not _ALPHANUMERIC.fullmatch(name) for name in found):
            yield f"{key}: a name is missing or not alphanumeric"
        if len({str(name) for name in found}) < len(found):
            yield f"{key}: a name is there twice"
    if not items(block.get("wells")):
        yield "wells: not a list with at least one entry"
    indexed = block.get("version") not in (*NO_AXES, *NAMED_AXES)
    for n, well in enumerate(items(block.get("wells"))):
        texts = _plate_well(mapping(well), ("rowIndex", "columnIndex") if indexed else ())
        yield from (f"wells/{n}: {text}" for text in texts)
    count = block.get("field_count")
    if count is not None and not _positive(count):
        yield "field_count: not a number above zero"
    for n, item in enumerate(items(block.get("acquisitions"))):
        yield from (f"acquisitions/{n}: {text}" for text in _acquisition(mapping(item)))


def _plate_well(well: Mapping[str, Any], indices: tuple[str, ...]) -> Iterator[str]:
    path = well.get("path")
    if not isinstance(path, str) or path.count("/") != 1:
        yield "the path is not a row and a column"
    for key in indices:
        place = whole(well.get(key))
        if place is None or place < 0:
            yield f"{key} is not a whole number from 0 up"


def _plate_names(value: object) -> list[Any]:
    return [mapping(item).get("name") for item in items(value)]


def crossed_indices(ngff: Mapping[str, Any]) -> list[str]:
    """Wells of a plate whose row and column indices are not those of the names in their path."""
    block = mapping(ngff.get("plate"))
    found = []
    for n, item in enumerate(items(block.get("wells"))):
        well = mapping(item)
        path = well.get("path")
        parts = path.split("/") if isinstance(path, str) else []
        places = (("rows", "rowIndex"), ("columns", "columnIndex"))
        for part, (key, index) in zip(parts, places, strict=False):
            names, place = _plate_names(block.get(key)), whole(well.get(index))
            if place is not None and (not 0 <= place < len(names) or names[place] != part):
                found.append(
                    f"plate: wells/{n}: {index} {place} is not that of {part} among the {key}"
                )
        if len(found) > MAX_SENTENCES:
            break
    return found


def unmet_advice(ngff: Mapping[str, Any]) -> list[str]:
    """Sentences on what the specification recommends for plates and wells and is not there."""
    found = [
        f"{key}: no version is given"
        for key in ("plate", "well")
        if isinstance(ngff.get(key), dict) and version_of(ngff) is None
    ]
    plate = ngff.get("plate")
    if isinstance(plate, dict):
        if not isinstance(plate.get("name"), str):
            found.append("plate: it has no name")
        for n, item in enumerate(items(plate.get("acquisitions"))):
            found += [
                f"plate: acquisitions/{n}: {key} is not given"
                for key in ("name", "maximumfieldcount")
                if key not in mapping(item)
            ]
    return found


def _acquisition(item: Mapping[str, Any]) -> Iterator[str]:
    identifier = whole(item.get("id"))
    if identifier is None or identifier < 0:
        yield "the id is not a whole number from 0 up"
    if item.get("maximumfieldcount") is not None and not _positive(item["maximumfieldcount"]):
        yield "maximumfieldcount is not a number above zero"
    for key in ("starttime", "endtime"):
        value = item.get(key)
        moment = whole(value)
        if value is not None and (moment is None or moment < 0):
            yield f"{key} is not a whole number from 0 up"


def _well(block: Mapping[str, Any]) -> Iterator[str]:
    images = items(block.get("images"))
    if not images:
        yield "images: not a list with at least one entry"
    paths = [mapping(image).get("path") for image in images]
    if any(not isinstance(path, str) or not _ALPHANUMERIC.fullmatch(path) for path in paths):
        yield "images: a path is missing or not alphanumeric"
    if len({str(path) for path in paths}) < len(paths):
        yield "images: a path is there twice"
    for n, image in enumerate(images):
        acquisition = mapping(image).get("acquisition")
        if acquisition is not None and whole(acquisition) is None:
            yield f"images/{n}: the acquisition is not a whole number"


# -- labels --------------------------------------------------


def _label(block: Mapping[str, Any]) -> Iterator[str]:
    for key in ("colors", "properties"):
        if key not in block:
            continue
        entries = items(block[key])
        if not entries:
            yield f"{key}: not a list with at least one entry"
        values = [mapping(entry).get("label-value") for entry in entries]
        if any(number(value) is None for value in values):
            yield f"{key}: one has no label-value"
        if key == "colors" and len({str(value) for value in values}) < len(values):
            yield f"{key}: a label-value is there twice"
    for n, entry in enumerate(items(block.get("colors"))):
        rgba = mapping(entry).get("rgba")
        if rgba is not None and not _is_rgba(rgba):
            yield f"colors/{n}: rgba is not four whole numbers from 0 to 255"


def _is_rgba(value: object) -> bool:
    parts = [whole(part) for part in items(value)]
    return len(parts) == 4 and all(part is not None and 0 <= part <= 255 for part in parts)


def _positive(value: object) -> bool:
    found = whole(value)
    return found is not None and found > 0
