"""Every metadata document of an output, by key, breadth first."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from openreadout.model import Axis, Image, ResolutionLevel
from openreadout_ome_zarr_writer import layout, ngff

if TYPE_CHECKING:
    from openreadout.arrays import ChunkedArray
    from openreadout.contracts import ExportPlan, PlannedImage
    from openreadout_ome_xml import Carried

RangesOfImage = dict[int, ngff.Ranges]
OME_XML = "OME/METADATA.ome.xml"


WIDEST = -sys.float_info.max
"""A number that takes as many characters as any."""


def all_documents(
    plan: ExportPlan, ranges: RangesOfImage, xml: Carried | None = None
) -> dict[str, bytes]:
    """`documents` and the OME-XML, where there is one; `xml` is it, if it was made already."""
    found = documents(plan, ranges)
    xml = xml or ome_xml(plan)
    return found if xml is None else {**found, OME_XML: xml.data}


def widest(plan: ExportPlan) -> RangesOfImage:
    """Ranges of channels that take the most room in documents, for pixels that nobody has seen yet."""
    counts = [dict(zip(p.axes, p.levels[0].shape, strict=True)).get("c", 1) for p in plan.images]
    return {number: dict.fromkeys(range(n), (WIDEST, WIDEST)) for number, n in enumerate(counts)}


def documents(plan: ExportPlan, ranges: RangesOfImage) -> dict[str, bytes]:
    """The documents of the whole output; keys go from the root down."""
    groups: dict[str, dict[str, Any]] = {}
    arrays: dict[str, dict[str, Any]] = {}
    for number, planned in enumerate(plan.images):
        groups[planned.path] = ngff.image_attributes(planned, plan.version, ranges.get(number, {}))
        for level in planned.levels:
            key = f"{planned.path}/{level.path}".lstrip("/")
            arrays[key] = (
                layout.array_v3(level, planned.axes)
                if plan.version != "0.4"
                else layout.array_v2(level)
            )
    _containers(plan, groups)
    kept = ngff.carried_plate(plan)
    if kept:
        root = groups.setdefault("", {})
        root["openreadout"] = {**root.get("openreadout", {}), **kept["openreadout"]}
    _labels(plan, groups)
    for path in [*groups, *arrays]:
        parent = path
        while parent:
            parent = parent.rpartition("/")[0]
            groups.setdefault(parent, {})
    found = _as_v3(groups, arrays) if plan.version != "0.4" else _as_v2(groups, arrays)
    return dict(sorted(found.items(), key=lambda item: (item[0].count("/"), item[0])))


def _containers(plan: ExportPlan, groups: dict[str, dict[str, Any]]) -> None:
    """Root groups of collections and plates, and the wells of the latter."""
    if plan.layout == "plate" and plan.plate is not None:
        groups[""] = ngff.plate_attributes(plan, plan.plate)
        by_source = {planned.source_index: planned for planned in plan.images}
        for well in plan.plate.wells:
            groups[well.path] = ngff.well_attributes(plan, [by_source[n] for n in well.images])
    elif plan.layout == "collection":
        groups[""] = ngff.with_version({"bioformats2raw.layout": 3}, plan.version)
        series = [image.path for image in plan.images if "/" not in image.path and image.path]
        groups["OME"] = ngff.with_version({"series": series}, plan.version)


def _labels(plan: ExportPlan, groups: dict[str, dict[str, Any]]) -> None:
    """The `labels` groups, each with the list of its labels."""
    listed: dict[str, list[str]] = {}
    for planned in plan.images:
        parent, _, name = (
            planned.path.rpartition("/labels/") if "/labels/" in planned.path else ("", "", "")
        )
        if planned.path.startswith("labels/"):
            name = planned.path.removeprefix("labels/")
        if name and planned.image.label:
            listed.setdefault(f"{parent}/labels".lstrip("/"), []).append(name)
    for path, names in listed.items():
        groups[path] = ngff.with_version({"labels": names}, plan.version)


def _as_v3(
    groups: dict[str, dict[str, Any]], arrays: dict[str, dict[str, Any]]
) -> dict[str, bytes]:
    found = {
        _key(path, "zarr.json"): layout.group_v3(attributes) for path, attributes in groups.items()
    }
    found |= {_key(path, "zarr.json"): document for path, document in arrays.items()}
    return {key: layout.encode_json(document) for key, document in found.items()}


def _as_v2(
    groups: dict[str, dict[str, Any]], arrays: dict[str, dict[str, Any]]
) -> dict[str, bytes]:
    found: dict[str, dict[str, Any]] = {}
    for path, attributes in groups.items():
        found[_key(path, ".zgroup")] = {"zarr_format": 2}
        if attributes:
            found[_key(path, ".zattrs")] = attributes
    found |= {_key(path, ".zarray"): document for path, document in arrays.items()}
    return {key: layout.encode_json(document) for key, document in found.items()}


def _key(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def ome_xml(plan: ExportPlan) -> Carried | None:
    """`OME/METADATA.ome.xml`: the source's own document where it still describes the output, else one made anew."""
    from openreadout_ome_xml import metadata_only, rendered

    images = [planned for planned in plan.images if not planned.image.label]
    same = len(images) == sum(not image.label for image in plan.dataset.images) and all(
        planned.whole and not planned.samples_as_channels for planned in images
    )
    source = plan.dataset.source_xml
    if source is not None and same and not plan.changes:
        return metadata_only(source.encode("utf-8"))
    if plan.layout == "collection" or source is not None:
        return rendered(source, [_as_written(planned) for planned in images], plan.plate)
    return None


NAMED = 40
"""Names that a report lists one by one, and characters of each; a document may have as many as it likes."""


def not_carried(xml: Carried | None) -> tuple[str, ...]:
    """What an export's OME-XML lacks of its source's, in words."""
    found = [] if xml is None else sorted(xml.left_out.items())
    told = [f"OME-XML: {name[:NAMED]} ({count})" for name, count in found[:NAMED] if count]
    rest = sum(count for _, count in found[NAMED:])
    return (*told, *((f"OME-XML: others ({rest})",) if rest else ()))


@dataclass(frozen=True, slots=True)
class _Described:
    """The shape and type of an array to be written, for a document that describes it."""

    shape: tuple[int, ...]
    dtype: str


def _as_written(planned: PlannedImage) -> Image:
    """The image as its export shows it: with the axes, sizes and channels that are written."""
    level = planned.levels[0]
    count = dict(zip(planned.axes, level.shape, strict=True)).get("c", 1)
    whole = not planned.samples_as_channels and count == planned.image.size("c")
    channels = planned.image.channels
    return replace(
        planned.image,
        axes=tuple(Axis(a, u) for a, u in zip(planned.axes, planned.units, strict=True)),
        levels=(
            ResolutionLevel(
                level.path,
                cast("ChunkedArray", _Described(level.shape, level.dtype)),
                level.scale,
                level.translation,
            ),
        ),
        channels=channels if whole else tuple(ngff.channel_of(planned, n) for n in range(count)),
    )
