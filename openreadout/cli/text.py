"""Results as text for people; `docs/cli.md` shows examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openreadout.cli.layout import (
    codec_label,
    count,
    hang,
    labelled,
    lengths,
    notes,
    prose,
    table,
    title,
)
from openreadout.cli.output import Style, escape, human_bytes, human_seconds, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from openreadout import payloads
    from openreadout.model import Finding
    from openreadout.results import (
        CheckReport,
        CompareReport,
        ExportReport,
        InPlaceReport,
        PreviewReport,
        ShownImage,
    )

MAX_IMAGES = 12
MAX_FINDINGS = 40
MAX_BRIEF = 3
"""Findings of one input among several."""
MAX_PLANES = 400


# -- check -----------------------------------------------------------------------------------------

_ORDER = {"error": 0, "warning": 1, "info": 2}


def check(report: CheckReport, style: Style, *, alone: bool) -> list[str]:
    """`check` of one input: the verdict first, findings worst first."""
    verdict = _verdict(report)
    colored = style.severity(_worst(report), verdict) if report.findings else verdict
    lines = title(report.path, [f"{_format(report.format_id)}    {colored}"], style)
    findings = sorted(report.findings, key=lambda f: _ORDER.get(f.severity, 3))
    if not alone:
        findings = [f for f in findings if f.severity != "info"]
    groups = _grouped(findings)
    limit = MAX_FINDINGS if alone else MAX_BRIEF
    lines += [""] if groups and alone else []
    for group in groups[:limit]:
        lines += _finding(group, style)
    if len(groups) > limit:
        lines.append(f"  … {count(len(groups) - limit, 'more finding')}; --json has all")
    if report.planes is not None:
        lines += _planes(report, alone)
    return lines + (_looked(report) if alone else [])


def _format(format_id: str) -> str:
    """A format's name, as `info` calls it."""
    from openreadout import registry

    names = {reader.descriptor.id: reader.descriptor.name for reader in registry.readers()}
    return names.get(format_id, format_id)


def _looked(report: CheckReport) -> list[str]:
    parts = list(report.checks)
    if report.chunks_seen:
        absent = f" ({report.chunks_absent} absent, read as the fill value)"
        parts.append(count(report.chunks_seen, "chunk") + (absent if report.chunks_absent else ""))
    lines = ["", *prose("  looked at ", ", ".join(parts))]
    if "all chunks decoded" not in report.checks and report.planes is None:
        command = f"openreadout check --full {escape(report.path)}"
        lines += hang("  next: ", [command, "decodes every chunk"], "     ")
    return lines


def _worst(report: CheckReport) -> str:
    return min((f.severity for f in report.findings), key=lambda s: _ORDER.get(s, 3))


def _grouped(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings that say the same of several images or levels, together."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for item in findings:
        key = (item.severity, item.code, item.message, item.location, item.level is None)
        groups.setdefault(key, []).append(item)
    return list(groups.values())


def _finding(group: Sequence[Finding], style: Style) -> list[str]:
    item = group[0]
    images = _numbers("image", [f.image for f in group if f.image is not None])
    levels = _numbers("level", [f.level for f in group if f.level is not None])
    place = [text for text in (images, levels) if text]
    place += [escape(item.location)] if item.location else []
    head = f"  {style.severity(item.severity, item.severity.ljust(8))} {item.code.ljust(18)} "
    lines = hang(head, [f"{text}," for text in place[:-1]] + place[-1:])
    indent = len(f"  {'':8} ")
    return lines + prose(" " * indent, escape(item.message))


def _numbers(word: str, values: Sequence[int]) -> str:
    """`image 0`, `images 0 to 3`, `images 0, 2, 5`; long lists cut with a count."""
    known = sorted(set(values))
    if not known:
        return ""
    if len(known) == 1:
        return f"{word} {known[0]}"
    if known == list(range(known[0], known[-1] + 1)):
        return f"{word}s {known[0]} to {known[-1]}"
    text = ", ".join(map(str, known[:8]))
    return f"{word}s {text}" + (f" and {len(known) - 8} more" if len(known) > 8 else "")


def _verdict(report: CheckReport) -> str:
    counts = [
        count(n, word)
        for severity, word in (("error", "error"), ("warning", "warning"))
        if (n := sum(f.severity == severity for f in report.findings))
    ]
    return ", ".join(counts) or "whole"


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
    found = report.differences
    verdict = count(len(found), "difference") if found else "the same"
    names = [
        style.bold(escape(report.path)),
        "and",
        f"{style.bold(escape(report.other))}:",
        f"{style.severity('error', verdict) if found else verdict},",
        f"{count(report.planes_compared, 'plane')} compared",
    ]
    lines = hang("", names)
    for text in found[:MAX_FINDINGS]:
        lines += prose("  ", escape(text))
    if len(found) > MAX_FINDINGS:
        lines.append(f"  … {len(found) - MAX_FINDINGS} more; --json has all")
    return lines


# -- export ----------------------------------------------------------------------------------------


def _shrunk(ratio: float) -> str:
    """How many times the output is smaller than its source, in words."""
    if f"{max(ratio, 1 / ratio):.1f}" == "1.0":
        return "as large"
    return f"{ratio:.1f} × smaller" if ratio > 1 else f"{1 / ratio:.1f} × larger"


def export(report: ExportReport, style: Style) -> list[str]:
    """The closing summary of `export`."""
    size = human_bytes(report.bytes_written)
    if report.source_bytes and report.bytes_written and report.part is None:
        size += f" ({_shrunk(report.source_bytes / report.bytes_written)})"
    facts = [
        count(report.images_written, "image"),
        count(report.levels_written, "level"),
        count(report.files_written, "file"),
        size,
    ]
    if report.chunks_copied:
        facts.append(f"{count(report.chunks_copied, 'chunk')} copied as stored")
    if report.part is None:
        facts.append("verified" if report.verified else "not verified")
    else:
        number, _, parts = report.part.partition("/")
        facts.insert(0, f"part {number} of {parts}")
    facts.append(human_seconds(report.seconds))
    lines = title(report.output, facts, style)
    for word, values in (
        ("changed", report.changes),
        ("filled with zeros", report.filled_planes),
        ("left behind", report.not_carried),
        ("note", report.notes),
    ):
        lines += notes(word, values[:MAX_FINDINGS], style)
        if len(values) > MAX_FINDINGS:
            lines.append(f"  … {len(values) - MAX_FINDINGS} more; --json has all")
    return lines


def in_place(report: InPlaceReport, style: Style, *, planned: bool) -> list[str]:
    """The closing summary of `export --in-place`, which names every file; or what it would do."""
    verified = "verified" if report.verified else "not verified"
    told = "would get" if planned else f"{verified}, {human_seconds(report.seconds)}"
    lines = [f"{style.bold(escape(report.output))}  {told}"]
    for word, keys in (("added", report.files_added), ("removed", report.files_removed)):
        lines += [f"  {style.dim(word)}  {escape(key)}" for key in keys]
    return lines + notes("note", report.notes, style)


def plan(data: payloads.Plan, style: Style) -> list[str]:
    """`export --dry-run`."""
    names = f"{style.bold(escape(data['input']))} → {style.bold(escape(data['output']))}"
    lines = hang("", [names, f"{data['format']}, {data['layout']}"], "    ")
    groups = _alike(data["images"])
    for group in groups[:MAX_IMAGES]:
        lines += _planned(group, style)
    rest = sum(len(group) for group in groups[MAX_IMAGES:])
    if rest > 0:
        lines.append(f"  … {count(rest, 'more image')}; --json has all")
    total = f"{data['files_at_most']} files, {human_bytes(data['bytes_at_most'])}"
    lines.append(f"  total  at most {total}")
    lines += notes("changed", data["changes"], style)
    return lines + notes("note", data["notes"], style)


def _alike(images: Sequence[payloads.PlannedImage]) -> list[list[payloads.PlannedImage]]:
    """Images one after the other that are written in the same way."""
    keys = ("shape", "dtype", "chunk", "shard", "codecs", "source_level")
    groups: list[list[payloads.PlannedImage]] = []
    last: object = None
    for item in images:
        layout = [[level.get(key) for key in keys] for level in item["levels"]]
        if groups and layout == last:
            groups[-1].append(item)
        else:
            groups.append([item])
        last = layout
    return groups


def _planned(group: Sequence[payloads.PlannedImage], style: Style) -> list[str]:
    first = group[0]
    number = str(first["image"])
    name = escape(first["name"] or "(no name)")
    if len(group) > 1:
        number += f" to {group[-1]['image']}"
        name += f" and {count(len(group) - 1, 'other')} alike"
    shape = first["levels"][0]["shape"]
    sizes = " · ".join(f"{a} {n}" for a, n in zip(first["axes"], shape, strict=False))
    lines = hang(f"  {number}  ", [style.bold(name), sizes], "    ")
    rows = []
    for n, level in enumerate(first["levels"]):
        sides, chunk, shard = lengths(level["shape"], level["chunk"], level["shard"])
        codecs = codec_label({"name": name} for name in level["codecs"])
        made = "" if level["source_level"] is not None else "made from the level before"
        shards = f"shard {shard}" if shard else ""
        rows.append((str(n), sides, f"chunk {chunk}", shards, codecs, made))
    return lines + table(rows, labelled("levels", style))


# -- preview ---------------------------------------------------------------------------------------


def preview(report: PreviewReport, style: Style) -> list[str]:
    """What a picture shows."""
    height, width, _ = report.pixels.shape
    parts = [f"{width} × {height}"]
    if len(report.images) == 1:
        parts += _shown(report.images[0], style)
    else:
        order = "" if any(item.well for item in report.images) else ", row by row"
        parts.append(f"{count(len(report.images), 'image')}, {report.columns} side by side{order}")
    lines = hang(f"{style.bold(escape(report.output or report.path))}  ", parts, "  ")
    return [*lines, *notes("note", report.notes, style)]


def _shown(item: ShownImage, style: Style) -> list[str]:
    first, last = item.z
    depth = f"z {first}" if first == last else f"maximum of z {first} to {last}"
    channels = [
        f"{style.swatch(c.color)} {escape(c.name) + ' ' if c.name else ''}{_rounded(c.low)}–{_rounded(c.high)}"
        for c in item.channels
    ]
    return [f"image {item.image}, level {item.level}, {depth}, t {item.t}", *channels]


def _rounded(value: float) -> str:
    """Four digits are enough for the limits of a contrast."""
    return number(float(f"{value:.4g}"))
