"""The model and the results as JSON values, and the envelope around them; see `docs/json.md`."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from openreadout import limits
from openreadout.model import Channel, Image, Plate, ResolutionLevel, Window

if TYPE_CHECKING:
    from openreadout import payloads
    from openreadout.errors import OpenReadoutError
    from openreadout.model import Dataset, Finding
    from openreadout.results import (
        CheckReport,
        CompareReport,
        ExportReport,
        InfoResult,
        InPlaceReport,
        PlaneDigest,
        PreviewReport,
        ShownImage,
    )

SCHEMA_VERSION = "1"


def success(data: Any) -> dict[str, Any]:
    """The envelope of a result."""
    return {"ok": True, "schema_version": SCHEMA_VERSION, "data": data}


def failure(error: OpenReadoutError) -> dict[str, Any]:
    """The envelope of an error."""
    return {"ok": False, "schema_version": SCHEMA_VERSION, "error": error_body(error)}


def error_body(error: OpenReadoutError) -> payloads.Error:
    """An error of an envelope."""
    return {
        "code": error.code,
        "message": str(error),
        "hint": error.hint,
        "exit_code": error.exit_code,
        "path": error.path,
    }


def dumps(document: Any, *, indent: int | None = None) -> str:
    """Strict JSON: numbers that JSON lacks (NaN, infinities) become null, lone surrogates stay escaped."""
    try:
        return json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(clean(document), indent=indent, ensure_ascii=False, allow_nan=False)


def clean(value: Any) -> Any:
    """A JSON value without NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def info(result: InfoResult) -> payloads.Info:
    """The payload of `info`."""
    dataset = result.dataset
    body: payloads.Info = {
        "path": dataset.path,
        "size_bytes": result.size_bytes,
        "format": {"id": dataset.format_id, "name": dataset.format_name},
        "format_version": dataset.format_version,
        "notes": [],
    }
    notes = list(dataset.notes)
    if result.view == "format":
        return {**body, "notes": notes}
    if result.view == "structure":
        tree = dataset.structure() if dataset.structure is not None else _plain_structure(dataset)
        return {**body, "structure": dict(tree), "notes": notes}
    shown = dataset.images if not result.max_images else dataset.images[: result.max_images]
    body["images"] = [image(n, item, full=result.view == "full") for n, item in enumerate(shown)]
    if len(shown) < len(dataset.images):
        body["images_total"] = len(dataset.images)
    if dataset.plate is not None:
        body["plate"] = plate(dataset.plate)
    body["plane_count"] = sum(item.plane_count for item in dataset.images)
    body["notes"] = notes
    if result.view == "full":
        body["findings"] = [finding(item) for item in dataset.findings]
        if dataset.members:
            body["members"] = list(dataset.members)
        if dataset.structure is not None:
            body["structure"] = dict(dataset.structure())
    return body


def _plain_structure(dataset: Dataset) -> dict[str, Any]:
    """A tree of images and levels, for formats whose reader tells no more."""
    children = [
        {
            "kind": "label" if item.label else "image",
            "name": item.name,
            "levels": [
                {"path": level.path, "shape": list(level.array.shape), "dtype": level.array.dtype}
                for level in item.levels
            ],
        }
        for item in dataset.images
    ]
    return {"kind": dataset.format_id, "children": children}


def image(index: int, item: Image, *, full: bool = False) -> payloads.Image:
    """One image of `info`."""
    physical = item.physical_size
    extra = dict(item.extra)
    if item.label:
        extra["label"] = True
        if item.label_of is not None:
            extra["label_of"] = item.label_of
    return {
        "index": index,
        "name": item.name,
        "size_x": item.size("x"),
        "size_y": item.size("y"),
        "size_z": item.size("z"),
        "size_c": item.size("c"),
        "size_t": item.size("t"),
        "dimension_order": item.dimension_order,
        "pixel_type": item.pixel_type,
        "samples_per_pixel": item.samples_per_pixel,
        "physical_size": None
        if physical is None
        else {"x": physical["x"], "y": physical["y"], "z": physical["z"], "unit": "µm"},
        "time_increment_s": item.time_increment_s,
        "channels": [channel(n, c) for n, c in enumerate(channels_of(item))],
        "objective": None if item.objective is None else dict(item.objective),
        "instrument": None if item.instrument is None else dict(item.instrument),
        "acquired_at": item.acquired_at,
        "pyramid_levels": len(item.levels),
        "resolution_levels": [
            resolution_level(item, n, level, full=full) for n, level in enumerate(item.levels)
        ],
        "plane_count": item.plane_count,
        "extra": extra,
    }


def channels_of(item: Image) -> list[Channel]:
    """One entry for each channel of the array, with what is known of it."""
    count = min(item.size("c"), limits.MAX_CHANNELS)
    known = list(item.channels[:count])
    return known + [Channel()] * (count - len(known))


def channel(index: int, item: Channel) -> payloads.Channel:
    """One channel of `info`."""
    body: payloads.Channel = {
        "index": index,
        "name": item.name,
        "color": item.color,
        "fluorophore": item.fluorophore,
        "excitation_nm": item.excitation_nm,
        "emission_nm": item.emission_nm,
        "exposure_s": item.exposure_s,
        "window": window(item.window),
    }
    if item.extra:
        body["extra"] = dict(item.extra)
    return body


def window(item: Window | None) -> payloads.Window | None:
    """A display window."""
    if item is None:
        return None
    return {"min": item.min, "max": item.max, "start": item.start, "end": item.end}


def resolution_level(
    item: Image, index: int, level: ResolutionLevel, *, full: bool = False
) -> payloads.ResolutionLevel:
    """One level of `info`; `chunk` and `shard` are in the order of the stored axes."""
    layout = level.array.layout
    sizes = {axis: item.size(axis, index) for axis in "xyz"}
    body: payloads.ResolutionLevel = {
        "level": index,
        "path": level.path,
        "size_x": sizes["x"],
        "size_y": sizes["y"],
        "size_z": sizes["z"],
        "downsample_x": _ratio(item.size("x"), sizes["x"]),
        "downsample_y": _ratio(item.size("y"), sizes["y"]),
        "downsample_z": _ratio(item.size("z"), sizes["z"]),
        "chunk": list(layout.chunk),
        "shard": None if layout.shard is None else list(layout.shard),
        "codecs": _codec_names(layout.codecs),
    }
    if full:
        body["axes"] = list(item.axis_names)
        body["shape"] = list(level.array.shape)
        body["dtype"] = level.array.dtype
        body["fill_value"] = _json_number(level.array.fill_value)
        body["scale"] = list(level.scale)
        body["translation"] = list(level.translation)
        body["codec_configurations"] = [
            {"name": spec.name, "configuration": dict(spec.configuration)} for spec in layout.codecs
        ]
    return body


def _codec_names(specs: Any) -> list[str]:
    """Codec names in order, those inside a shard or an N5 block after the codec that holds them."""
    names: list[str] = []
    pending = list(specs)
    while pending and len(names) < 64:
        spec = pending.pop(0)
        names.append(spec.name)
        inner = spec.configuration.get("codecs") if isinstance(spec.configuration, dict) else None
        for item in inner if isinstance(inner, list | tuple) else ():
            name = item.get("name") if isinstance(item, dict) else getattr(item, "name", None)
            if isinstance(name, str):
                names.append(name)
    return names


def _json_number(value: Any) -> Any:
    if isinstance(value, complex):
        return [value.real, value.imag]
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    return str(value)


def _ratio(full: int, size: int) -> float:
    return round(full / size, 6) if size else 1.0


def plate(item: Plate) -> payloads.Plate:
    """The plate of `info`."""
    body: payloads.Plate = {
        "name": item.name,
        "rows": list(item.rows),
        "columns": list(item.columns),
        "acquisitions": [dict(a) for a in item.acquisitions],
        "wells": [
            {"path": w.path, "row": w.row, "column": w.column, "images": list(w.images)}
            for w in item.wells
        ],
    }
    if item.extra:
        body["extra"] = dict(item.extra)
    return body


def finding(item: Finding) -> payloads.Finding:
    """One finding; keys that say nothing are left out."""
    body: payloads.Finding = {
        "code": item.code,
        "severity": item.severity,
        "message": item.message,
    }
    if item.image is not None:
        body["image"] = item.image
    if item.level is not None:
        body["level"] = item.level
    if item.location is not None:
        body["location"] = item.location
    return body


def check(report: CheckReport) -> payloads.Check:
    """The payload of `check` and `check --planes`."""
    body: payloads.Check = {
        "path": report.path,
        "format": report.format_id,
        "ok": report.ok,
        "checks_performed": list(report.checks),
        "findings": [finding(item) for item in report.findings],
    }
    if report.planes is None:
        return body
    return {**body, "planes": [plane(item) for item in report.planes]}


def plane(item: PlaneDigest) -> payloads.Plane:
    """One plane with its digest, under the name of its algorithm."""
    body: payloads.Plane = {
        "image": item.image,
        "level": item.level,
        "c": item.c,
        "z": item.z,
        "t": item.t,
        "width": item.width,
        "height": item.height,
        "pixel_type": item.pixel_type,
        "samples_per_pixel": item.samples_per_pixel,
    }
    if item.algorithm == "sha256":
        body["sha256"] = item.digest
    else:
        body["xxh3"] = item.digest
    return body


def compare(report: CompareReport) -> payloads.Compare:
    """The payload of `check --against`."""
    return {
        "path": report.path,
        "against": report.other,
        "ok": not report.differences,
        "planes_compared": report.planes_compared,
        "differences": list(report.differences),
        "findings": [finding(item) for item in report.findings],
    }


def export(report: ExportReport) -> payloads.Export:
    """The payload of `export`."""
    body: payloads.Export = {
        "input": report.input,
        "output": report.output,
        "format": report.format,
        "images_written": report.images_written,
        "planes_written": report.planes_written,
        "levels_written": report.levels_written,
        "chunks_copied": report.chunks_copied,
        "chunks_encoded": report.chunks_encoded,
        "files_written": report.files_written,
        "bytes_written": report.bytes_written,
        "verified": report.verified,
        "seconds": round(report.seconds, 3),
    }
    if report.skipped:
        body["skipped"] = True
    if report.part is not None:
        body["part"] = report.part
    if report.changes:
        body["changes"] = list(report.changes)
    if report.filled_planes:
        body["filled_planes"] = list(report.filled_planes)
    if report.not_carried:
        body["not_carried"] = list(report.not_carried)
    if report.notes:
        body["notes"] = list(report.notes)
    return body


def in_place(report: InPlaceReport) -> payloads.InPlace:
    """The payload of `export --in-place`."""
    body: payloads.InPlace = {
        "input": report.input,
        "output": report.output,
        "files_added": list(report.files_added),
        "files_removed": list(report.files_removed),
        "verified": report.verified,
        "seconds": round(report.seconds, 3),
    }
    if report.notes:
        body["notes"] = list(report.notes)
    return body


def preview(report: PreviewReport) -> payloads.Preview:
    """The payload of `preview`."""
    return {
        "path": report.path,
        "format": report.format_id,
        "output": report.output,
        "width": report.pixels.shape[1],
        "height": report.pixels.shape[0],
        "columns": report.columns,
        "images": [shown_image(item) for item in report.images],
        "failures": [error_body(error) for error in report.failures],
        "notes": list(report.notes),
    }


def shown_image(item: ShownImage) -> payloads.ShownImage:
    """One image of a picture."""
    return {
        "image": item.image,
        "name": item.name,
        "well": item.well,
        "level": item.level,
        "z": list(item.z),
        "t": item.t,
        "channels": [
            {"index": c.index, "name": c.name, "color": c.color, "low": c.low, "high": c.high}
            for c in item.channels
        ],
    }
