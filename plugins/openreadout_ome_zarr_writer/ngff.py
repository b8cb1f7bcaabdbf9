"""The model as NGFF group attributes, 0.5 and 0.4, with what NGFF has no place for under `openreadout`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openreadout.model import AXIS_TYPES, Channel, Plate

if TYPE_CHECKING:
    from openreadout.contracts import ExportPlan, PlannedImage, PlannedLevel

RANGES = {
    "bool": (0, 1), "int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535),
    "int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1),
}  # fmt: skip
PALETTE = ("0000FF", "00FF00", "FF0000", "FFFF00", "FF00FF", "00FFFF", "FF8000", "8000FF", "FFFFFF")
RGB = (("red", "FF0000"), ("green", "00FF00"), ("blue", "0000FF"), ("alpha", "FFFFFF"))
STRUCTURAL = frozenset(
    "group axes dtype ngff_version label label_of labels unsupported_dtype".split()
)
"""Keys of `extra` that tell of a store itself and are worked out anew when the output is read."""
GEOMETRIC = frozenset(("scale", "translation", "origin_um", "downsampling"))
Ranges = dict[int, tuple[float, float]]


def image_attributes(planned: PlannedImage, version: str, ranges: Ranges) -> dict[str, Any]:
    """Attributes of an image group: NGFF keys (below `ome` in 0.5) and `openreadout`."""
    body: dict[str, Any] = {"multiscales": [_multiscale(planned, version)]}
    if planned.image.label:
        block = planned.image.extra.get("image_label")
        label = dict(block) if isinstance(block, dict) else {"source": {"image": "../../"}}
        # the version is that of this store and stands above since 0.5; the source's own is carried
        label.pop("version", None)
        body["image-label"] = {**label, "version": version} if version == "0.4" else label
    else:
        body["omero"] = {"channels": omero_channels(planned, ranges)}
    return {**with_version(body, version), "openreadout": carried(planned)}


def with_version(body: dict[str, Any], version: str) -> dict[str, Any]:
    """NGFF keys where a version wants them: below `ome` with the version since 0.5."""
    return body if version == "0.4" else {"ome": {"version": version, **body}}


def _multiscale(planned: PlannedImage, version: str) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    if version == "0.4":
        entry["version"] = version
    if planned.image.name is not None:
        entry["name"] = planned.image.name
    entry["axes"] = [
        {"name": axis, "type": AXIS_TYPES[axis], **({"unit": unit} if unit else {})}
        for axis, unit in zip(planned.axes, planned.units, strict=True)
    ]
    entry["datasets"] = [
        {"path": level.path, "coordinateTransformations": _transformations(level)}
        for level in planned.levels
    ]
    method = planned.image.extra.get("downsampling")
    made = any(level.source_level is None for level in planned.levels)
    if made:
        entry["type"] = "mode" if planned.image.label else "mean"
    elif isinstance(method, str):
        entry["type"] = method
    return entry


def _transformations(level: PlannedLevel) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = [{"type": "scale", "scale": list(level.scale)}]
    if any(level.translation):
        steps.append({"type": "translation", "translation": list(level.translation)})
    return steps


def omero_channels(planned: PlannedImage, ranges: Ranges) -> list[dict[str, Any]]:
    """One entry for each written channel, each with the colour and full window that NGFF demands."""
    sizes = dict(zip(planned.axes, planned.levels[0].shape, strict=True))
    count = sizes.get("c", 1)
    written = []
    for n in range(count):
        channel = channel_of(planned, n)
        color = (channel.color or "").lstrip("#") or (
            PALETTE[n % len(PALETTE)] if count > 1 else "FFFFFF"
        )
        entry: dict[str, Any] = {"color": color, "window": _window(planned, channel, ranges.get(n))}
        if channel.name is not None:
            entry["label"] = channel.name
        entry["active"] = True
        written.append(entry)
    return written


def channel_of(planned: PlannedImage, n: int) -> Channel:
    """What is known of a written channel; colour samples are named and coloured when nothing else is known."""
    known = planned.image.channels
    samples = planned.image.samples_per_pixel
    if planned.samples_as_channels:
        if len(known) == planned.image.size("c") * samples:  # given for each sample by a correction
            return known[n]
        name, color = RGB[n % samples] if samples <= 4 else (f"sample {n % samples}", "FFFFFF")
        if samples == 2:
            name, color = f"sample {n % samples}", "FFFFFF"
        base = known[n // samples] if n // samples < len(known) else Channel()
        prefix = f"{base.name} " if base.name and planned.image.size("c") > 1 else ""
        return Channel(name=f"{prefix}{name}", color=f"#{color}")
    return known[n] if n < len(known) else Channel()


def _window(
    planned: PlannedImage, channel: Channel, seen: tuple[float, float] | None
) -> dict[str, float]:
    low, high = RANGES.get(planned.levels[0].dtype) or seen or (0.0, 1.0)
    window = channel.window
    start = window.min if window is not None and window.min is not None else low
    end = window.max if window is not None and window.max is not None else high
    return {
        "min": start,
        "max": end,
        "start": window.start if window is not None and window.start is not None else start,
        "end": window.end if window is not None and window.end is not None else end,
    }


def carried(planned: PlannedImage) -> dict[str, Any]:
    """What NGFF has no place for, and what of the NGFF keys was made up because NGFF demands it."""
    image = planned.image
    left_out = STRUCTURAL if planned.whole else STRUCTURAL | GEOMETRIC
    body: dict[str, Any] = {
        "name": image.name,
        "objective": image.objective,
        "instrument": image.instrument,
        "acquired_at": image.acquired_at,
        "dimension_order": image.dimension_order_stored,
        "extra": {key: value for key, value in image.extra.items() if key not in left_out},
        "samples_as_channels": planned.samples_as_channels,
    }
    if image.attributes:
        body["attributes"] = dict(image.attributes)
    if not planned.samples_as_channels:
        body["channels"] = [_channel(channel) for channel in image.channels]
    return {"version": 1, "image": body}


def _channel(channel: Channel) -> dict[str, Any]:
    window = channel.window
    return {
        "name": channel.name,
        "color": channel.color,
        "fluorophore": channel.fluorophore,
        "excitation_nm": channel.excitation_nm,
        "emission_nm": channel.emission_nm,
        "exposure_s": channel.exposure_s,
        "window": None
        if window is None
        else {"min": window.min, "max": window.max, "start": window.start, "end": window.end},
        "extra": dict(channel.extra),
    }


def plate_attributes(plan: ExportPlan, plate: Plate) -> dict[str, Any]:
    """Attributes of a plate's root group."""
    # a well may name a row or column that its plate does not list, and the written plate has to list it
    rows = list(dict.fromkeys((*plate.rows, *(well.row for well in plate.wells))))
    columns = list(dict.fromkeys((*plate.columns, *(well.column for well in plate.wells))))
    body: dict[str, Any] = {
        "columns": [{"name": name} for name in columns],
        "rows": [{"name": name} for name in rows],
        "wells": [
            {
                "path": well.path,
                "rowIndex": rows.index(well.row),
                "columnIndex": columns.index(well.column),
            }
            for well in plate.wells
        ],
        "field_count": max((len(well.images) for well in plate.wells), default=0),
    }
    if plate.name is not None:
        body["name"] = plate.name
    if plate.acquisitions:
        body["acquisitions"] = [dict(item) for item in plate.acquisitions]
    if plan.version == "0.4":
        body["version"] = plan.version
    return with_version({"plate": body}, plan.version)


def carried_plate(plan: ExportPlan) -> dict[str, Any]:
    """The source's plate as `openreadout` holds it, where the layout tells something else or nothing of it."""
    plate = plan.dataset.plate
    places = {planned.source_index: n for n, planned in enumerate(plan.images)}
    if plate is None or (plan.plate is not None and _told_by_layout(plate, plan.plate)):
        return {}
    wells = [
        {
            "path": well.path,
            "row": well.row,
            "column": well.column,
            "images": [places[n] for n in well.images if n in places],
        }
        for well in plate.wells
        if not well.images or any(n in places for n in well.images)
    ]
    body = {
        "name": plate.name,
        "rows": list(plate.rows),
        "columns": list(plate.columns),
        "acquisitions": [dict(item) for item in plate.acquisitions],
        "wells": wells,
        "extra": dict(plate.extra),
    }
    return {"openreadout": {"version": 1, "plate": body}}


def _told_by_layout(source: Plate, written: Plate) -> bool:
    """Whether a plate reads back as it was: nothing was renamed or reordered, and nothing has no place in NGFF."""
    return source == written and not source.extra


def well_attributes(plan: ExportPlan, images: list[PlannedImage]) -> dict[str, Any]:
    """Attributes of a well group: its fields, each with its acquisition."""
    fields = []
    for planned in images:
        entry: dict[str, Any] = {"path": planned.path.rpartition("/")[2]}
        acquisition = planned.image.extra.get("acquisition")
        if isinstance(acquisition, int):
            entry["acquisition"] = acquisition
        fields.append(entry)
    body: dict[str, Any] = {"images": fields}
    if plan.version == "0.4":
        body["version"] = plan.version
    return with_version({"well": body}, plan.version)
