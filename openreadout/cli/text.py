"""Results as text for people; `docs/cli.md` shows examples."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from openreadout import serialize
from openreadout.cli.output import Style, escape, human_bytes, human_seconds, number

if TYPE_CHECKING:
    from openreadout.model import Dataset, Image, Plate, ResolutionLevel
    from openreadout.results import (
        CheckReport,
        CompareReport,
        ExportReport,
        InfoResult,
        InPlaceReport,
        PreviewReport,
        ShownImage,
    )

MAX_IMAGES = 12
MAX_CHANNELS = 8
MAX_FINDINGS = 40
MAX_PLANES = 400
LABEL = 9


def width() -> int:
    """Columns of the terminal."""
    try:
        columns = os.get_terminal_size(1).columns
    except (OSError, ValueError):
        columns = int(text) if (text := os.environ.get("COLUMNS", "")).isdecimal() else 100
    return max(40, columns)


# -- info ------------------------------------------------------------------------------------------


def info(result: InfoResult, style: Style) -> list[str]:
    """`info` of one input."""
    dataset = result.dataset
    lines = [
        f"{style.bold(escape(dataset.path))}    {_format(dataset)}, {human_bytes(result.size_bytes)}"
    ]
    if result.view == "format":
        return lines
    if result.view == "structure":
        tree = dataset.structure() if dataset.structure is not None else None
        return [*lines, *(_tree(tree) if tree else [])]
    limit = MAX_IMAGES if result.max_images is None else result.max_images or len(dataset.images)
    if dataset.plate is not None:
        lines += ["", *_plate(dataset, dataset.plate, style)]
        if result.max_images is None:
            limit = 0
    lone_plate = dataset.plate is not None and limit == 0
    for n, image in enumerate(dataset.images[:limit]):
        lines += ["", *_image(n, image, style)]
    lines += [
        f"  {style.dim('note')}  {escape(text)}"
        for text in ([] if not dataset.notes else dataset.notes)
    ]
    rest = len(dataset.images) - limit
    if rest > 0 and (lone_plate or limit):
        what = f"{len(dataset.images)} images" if lone_plate else f"{rest} more images"
        lines += ["", f"  {what}: --max-images 0 lists them, --json has all"]
    return lines


def _format(dataset: Dataset) -> str:
    version = dataset.format_version
    plate = " plate" if dataset.plate is not None else ""
    return f"{dataset.format_name} {escape(version)}{plate}".strip()


def _image(index: int, image: Image, style: Style) -> list[str]:
    name = escape(image.name or "(no name)")
    kind = " label" if image.label else ""
    type_name = image.pixel_type or f"{image.dtype} (not read)"
    lines = [f"  {index}  {style.bold(name)}{kind}    {sizes(image)}    {type_name}"]
    pixel = _pixel(image)
    if pixel:
        lines.append(_row("pixel", pixel, style))
    if image.time_increment_s is not None:
        lines.append(_row("time", f"{number(image.time_increment_s)} s between frames", style))
    channels = _channels(image, style)
    if channels:
        lines.append(_row("channels", channels, style))
    for key, value in (("objective", image.objective), ("taken", image.acquired_at)):
        if value:
            text = (
                value
                if isinstance(value, str)
                else " ".join(_plain(v) for v in value.values() if v is not None)
            )
            lines.append(_row(key, escape(text), style))
    for n, level in enumerate(image.levels):
        lines.append(_row("levels" if n == 0 else "", f"{n}  {_level(image, n, level)}", style))
    return lines


def _plain(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _row(label: str, text: str, style: Style) -> str:
    return f"     {style.dim(label.ljust(LABEL))}  {text}"


def sizes(image: Image) -> str:
    """Sizes with axis letters, slowest first; axes that the source does not store are left out."""
    parts = [f"{axis} {image.size(axis)}" for axis in image.axis_names if axis != "s"]
    if image.samples_per_pixel > 1:
        names = {3: "RGB", 4: "RGBA"}
        parts.append(names.get(image.samples_per_pixel, f"{image.samples_per_pixel} samples"))
    return " · ".join(parts)


def _pixel(image: Image) -> str | None:
    physical = image.physical_size
    if physical is None:
        return None
    known = [axis for axis in "xyz" if physical[axis] is not None]
    unit, factor = _length_unit(min(physical[axis] or 0.0 for axis in known))
    text = " × ".join(number((physical[axis] or 0.0) * factor) for axis in known)
    field_um = {axis: (physical[axis] or 0.0) * image.size(axis) for axis in known}
    field_unit, field_factor = _length_unit(max(field_um.values()))
    extent = " × ".join(number(field_um[axis] * field_factor) for axis in known)
    return f"{text} {unit} ({' '.join(known)}), field {extent} {field_unit}"


def _length_unit(value_um: float) -> tuple[str, float]:
    """The unit that reads best, and the factor from µm to it."""
    if value_um < 0.01:
        return "nm", 1e3
    return ("µm", 1.0) if value_um < 10000 else ("mm", 1e-3)


def _channels(image: Image, style: Style) -> str | None:
    if image.label or not image.channels:
        return None
    parts = []
    for n, channel in enumerate(serialize.channels_of(image)[:MAX_CHANNELS]):
        text = f"{style.swatch(channel.color)} {escape(channel.name or f'channel {n}')}"
        window = channel.window
        if window is not None and window.start is not None and window.end is not None:
            text += f"  {number(window.start)}–{number(window.end)}"
        if channel.emission_nm is not None:
            text += f"  {number(channel.emission_nm)} nm"
        parts.append(text)
    rest = image.size("c") - MAX_CHANNELS
    return "    ".join(parts) + (f"    … {rest} more" if rest > 0 else "")


def _level(image: Image, index: int, level: ResolutionLevel) -> str:
    layout = level.array.layout
    shown = [image.size(axis, index) for axis in image.axis_names if axis in "zyx"]
    text = f"{' × '.join(map(str, shown))}   chunk {' × '.join(map(str, layout.chunk))}"
    if layout.shard is not None:
        text += f"   shard {' × '.join(map(str, layout.shard))}"
    body = serialize.resolution_level(image, index, level)
    names = [name for name in body["codecs"] if name not in ("bytes", "sharding_indexed")]
    return f"{text}   {', '.join(map(escape, names)) or 'not compressed'}"


def _plate(dataset: Dataset, plate: Plate, style: Style) -> list[str]:
    fields = [len(well.images) for well in plate.wells]
    each = f"{fields[0]} fields each, " if fields and len(set(fields)) == 1 else ""
    total = len(plate.rows) * len(plate.columns)
    wells = "1 well" if len(plate.wells) == 1 else f"{len(plate.wells)} wells"
    count = f"{wells} of {total}, {each}{sum(fields)} images"
    if plate.acquisitions:
        count += f", {len(plate.acquisitions)} acquisitions"
    lines = [f"  {style.bold(escape(plate.name or '(no name)'))}    {count}"]
    if dataset.images:
        image = dataset.images[0]
        lines.append(
            f"     {sizes(image)}    {image.pixel_type or image.dtype}    {_pixel(image) or ''}".rstrip()
        )
        channels = _channels(image, style)
        if channels:
            lines.append(_row("channels", channels, style))
    return lines + _grid(plate)


def _grid(plate: Plate) -> list[str]:
    """Fields of each well, as many columns as the terminal takes."""
    cell = max([2, *(len(c) for c in plate.columns)]) + 1
    fit = max(1, (width() - 9) // cell)
    columns = plate.columns[:fit]
    counts = {(well.row, well.column): len(well.images) for well in plate.wells}
    lines = ["       " + "".join(escape(c).rjust(cell) for c in columns)]
    for row in plate.rows[:16]:
        cells = "".join(str(counts.get((row, c), ".")).rjust(cell) for c in columns)
        lines.append(f"     {escape(row).rjust(2)}{cells}")
    if len(plate.rows) > 16 or len(plate.columns) > fit:
        lines.append(f"     … {len(plate.rows)} rows and {len(plate.columns)} columns in all")
    return lines


def _tree(node: Any, depth: int = 0) -> list[str]:
    """A tree of JSON values with `kind`, `name` or `path`, and `children`."""
    if not isinstance(node, dict):
        return []
    label = node.get("path", node.get("name"))
    facts = ", ".join(
        f"{key} {value}"
        for key, value in node.items()
        if key not in ("kind", "path", "name", "children", "levels")
    )
    head = f"{'  ' * (depth + 1)}{node.get('kind', '')} {escape(str(label)) if label is not None else ''}".rstrip()
    lines = [head + (f"    {escape(facts)}" if facts else "")]
    for child in [*node.get("levels", []), *node.get("children", [])][:1000]:
        lines += _tree(child if "kind" in child else {"kind": "array", **child}, depth + 1)
    return lines


def info_line(result: InfoResult, style: Style) -> str:
    """`info` of one input among several: a line to compare."""
    dataset = result.dataset
    count = len(dataset.images)
    images = f"{count} image" + ("" if count == 1 else "s")
    text = f"{style.bold(escape(dataset.path))}  {dataset.format_name}  {images}"
    if dataset.images:
        image = dataset.images[0]
        compact = " ".join(
            f"{a}{image.size(a)}"
            for a in image.axis_names
            if a != "s" and (a in "yx" or image.size(a) > 1)
        )
        text += f"  {compact}  {image.pixel_type or image.dtype}"
        if image.samples_per_pixel > 1:
            text += (
                " RGB" if image.samples_per_pixel == 3 else f" {image.samples_per_pixel} samples"
            )
        physical = image.physical_size
        if physical is not None and physical["x"] is not None:
            unit, factor = _length_unit(physical["x"])
            text += f"  {number(physical['x'] * factor)} {unit}"
    return f"{text}  {human_bytes(result.size_bytes)}"


# -- check -----------------------------------------------------------------------------------------

_ORDER = {"error": 0, "warning": 1, "info": 2}


def check(report: CheckReport, style: Style, *, alone: bool) -> list[str]:
    """`check` of one input: the verdict first, findings worst first."""
    head = f"{style.bold(escape(report.path))}    {report.format_id}    {_verdict(report)}"
    findings = sorted(report.findings, key=lambda f: _ORDER.get(f.severity, 3))
    if not alone:
        findings = [f for f in findings if f.severity != "info"][:3]
    lines = [head] + ([""] if findings and alone else [])
    for item in findings[:MAX_FINDINGS]:
        where = []
        if item.image is not None:
            where.append(f"image {item.image}")
        if item.level is not None:
            where.append(f"level {item.level}")
        if item.location:
            where.append(escape(item.location))
        severity = style.severity(item.severity, item.severity.ljust(8))
        lines.append(f"  {severity} {item.code.ljust(17)} {', '.join(where)}".rstrip())
        lines.append(f"           {'':17} {escape(item.message)}")
    if len(findings) > MAX_FINDINGS:
        lines.append(f"  … {len(findings) - MAX_FINDINGS} more findings; --json has all")
    if report.planes is not None:
        lines += _planes(report, alone)
    if alone:
        lines += ["", f"  looked at {', '.join(report.checks)}{_chunks(report)}"]
        if "all chunks decoded" not in report.checks and report.planes is None:
            lines.append(
                f"  next: openreadout check --full {escape(report.path)}     decodes every chunk"
            )
    return lines


def _verdict(report: CheckReport) -> str:
    counts = [
        f"{n} {word}{'' if n == 1 else 's'}"
        for severity, word in (("error", "error"), ("warning", "warning"))
        if (n := sum(f.severity == severity for f in report.findings))
    ]
    return ", ".join(counts) or "whole"


def _chunks(report: CheckReport) -> str:
    if not report.chunks_seen:
        return ""
    absent = (
        f" ({report.chunks_absent} absent, read as the fill value)" if report.chunks_absent else ""
    )
    return f"; {report.chunks_seen} chunks{absent}"


def _planes(report: CheckReport, alone: bool) -> list[str]:
    planes = report.planes or ()
    lines = [""] if alone else []
    for item in planes[:MAX_PLANES]:
        place = f"image {item.image} level {item.level}  t {item.t} c {item.c} z {item.z}"
        lines.append(f"  {item.digest}  {place}  {item.width} × {item.height} {item.pixel_type}")
    if len(planes) > MAX_PLANES:
        lines.append(f"  … {len(planes) - MAX_PLANES} more planes; --json has all")
    return lines


def compare(report: CompareReport, style: Style) -> list[str]:
    """`check --against`."""
    verdict = "the same" if not report.differences else f"{len(report.differences)} differences"
    names = f"{style.bold(escape(report.path))} and {style.bold(escape(report.other))}"
    lines = [f"{names}: {verdict}, {report.planes_compared} planes compared"]
    lines += [f"  {escape(text)}" for text in report.differences[:MAX_FINDINGS]]
    if len(report.differences) > MAX_FINDINGS:
        lines.append(f"  … {len(report.differences) - MAX_FINDINGS} more; --json has all")
    return lines


# -- export ----------------------------------------------------------------------------------------


def export(report: ExportReport, style: Style) -> list[str]:
    """The closing summary of `export`."""
    if report.skipped:
        return [f"{style.bold(escape(report.output))}  complete already, left alone"]
    images = "1 image" if report.images_written == 1 else f"{report.images_written} images"
    levels = "1 level" if report.levels_written == 1 else f"{report.levels_written} levels"
    ratio = ""
    if report.source_bytes and report.bytes_written:
        smaller = report.source_bytes / report.bytes_written
        ratio = f" ({smaller:.1f} × smaller)" if smaller >= 1 else f" ({1 / smaller:.1f} × larger)"
    copied = f", {report.chunks_copied} chunks copied as stored" if report.chunks_copied else ""
    files = "1 file" if report.files_written == 1 else f"{report.files_written} files"
    verified = "verified" if report.verified else "not verified"
    size = f"{human_bytes(report.bytes_written)}{ratio}{copied}"
    told = f"{images}, {levels}, {files}, {size}, {verified}, {human_seconds(report.seconds)}"
    lines = [f"{style.bold(escape(report.output))}  {told}"]
    for word, values in (
        ("changed", report.changes),
        ("filled with zeros", report.filled_planes),
        ("left behind", report.not_carried),
        ("note", report.notes),
    ):
        lines += [f"  {style.dim(word)}  {escape(value)}" for value in values[:MAX_FINDINGS]]
    return lines


def in_place(report: InPlaceReport, style: Style, *, planned: bool) -> list[str]:
    """The closing summary of `export --in-place`, which names every file; or what it would do."""
    verified = "verified" if report.verified else "not verified"
    told = "would get" if planned else f"{verified}, {human_seconds(report.seconds)}"
    lines = [f"{style.bold(escape(report.output))}  {told}"]
    for word, keys in (("added", report.files_added), ("removed", report.files_removed)):
        lines += [f"  {style.dim(word)}  {escape(key)}" for key in keys]
    return lines + [f"  {style.dim('note')}  {escape(note)}" for note in report.notes]


def plan(data: dict[str, Any], style: Style) -> list[str]:
    """`export --dry-run`."""
    names = f"{style.bold(escape(data['input']))} → {style.bold(escape(data['output']))}"
    lines = [f"{names}    {data['format']}, {data['layout']}"]
    for item in data["images"][:MAX_IMAGES]:
        lines.append(
            f"  {item['image']}  {escape(item['name'] or '(no name)')}    axes {' '.join(item['axes'])}"
        )
        for n, level in enumerate(item["levels"]):
            shard = f"   shard {' × '.join(map(str, level['shard']))}" if level["shard"] else ""
            made = "" if level["source_level"] is not None else "   made from the level before"
            codecs = ", ".join(level["codecs"][1:]) or "not compressed"
            sides = " × ".join(map(str, level["shape"]))
            chunk = " × ".join(map(str, level["chunk"]))
            told = f"{n}  {sides}   chunk {chunk}{shard}   {codecs}{made}"
            lines.append(_row("levels" if n == 0 else "", told, style))
    rest = len(data["images"]) - MAX_IMAGES
    if rest > 0:
        lines.append(f"  … {rest} more images; --json has all")
    lines.append(
        f"  total  at most {data['files_at_most']} files, {human_bytes(data['bytes_at_most'])} before compression"
    )
    return lines


# -- preview ---------------------------------------------------------------------------------------


def preview(report: PreviewReport, style: Style) -> list[str]:
    """What a picture shows."""
    height, width, _ = report.pixels.shape
    name = report.output or report.path
    head = f"{style.bold(escape(name))}  {width} × {height}"
    if len(report.images) == 1:
        head += f"  {_shown(report.images[0], style)}"
    else:
        rows = "" if any(item.well for item in report.images) else ", row by row"
        head += f"  {len(report.images)} images, {report.columns} side by side{rows}"
    return [head, *(f"  {style.dim('note')}  {escape(text)}" for text in report.notes)]


def _shown(item: ShownImage, style: Style) -> str:
    first, last = item.z
    depth = f"z {first}" if first == last else f"maximum of z {first} to {last}"
    channels = "  ".join(f"{style.swatch(c.color)} {c.low:.4g}–{c.high:.4g}" for c in item.channels)
    return f"image {item.image}, level {item.level}, {depth}, t {item.t}  {channels}".rstrip()
