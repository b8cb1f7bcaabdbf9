"""`info` as text: what a person asks first of a data set, in the order of asking."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from openreadout import serialize
from openreadout.arrays import AxisView
from openreadout.cli.layout import (
    MARGIN,
    codec_label,
    count,
    hang,
    labelled,
    lengths,
    notes,
    row,
    table,
    title,
    width,
)
from openreadout.cli.output import Style, escape, human_bytes, number
from openreadout.codecs import ITEM_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from openreadout.arrays import ChunkedArray
    from openreadout.model import Channel, Dataset, Image, Plate
    from openreadout.results import InfoResult

MAX_IMAGES = 12
MAX_DETAILED = 4
"""Images that are described at length; more of them get a line each, unless `--max-images` asks for them."""
MAX_CHANNELS = 8
MAX_LEVELS = 12
MAX_NOTES = 20
MAX_ROWS = 32
MAX_TREE = 1000
MAX_SAMPLES = 10**15
"""Bytes of samples that are told: nobody has stored more, so that a larger shape was written by mistake."""


def _size(result: InfoResult) -> list[str]:
    """The size in words; nothing where it is not known."""
    return [] if result.size_bytes is None else [human_bytes(result.size_bytes)]


def _sizes(result: InfoResult) -> list[str]:
    """The size, and what the samples of all levels would take: how well they are compressed."""
    arrays = [level.array for image in result.dataset.images for level in image.levels]
    if not result.size_bytes or any(array.dtype not in ITEM_BYTES for array in arrays):
        return _size(result)
    samples = sum(map(_sample_bytes, arrays))
    if not 0 < samples < MAX_SAMPLES:
        return _size(result)
    ratio = _ratio(samples, result.size_bytes)
    return [f"{_size(result)[0]} for {human_bytes(samples)} of samples ({ratio})"]


def _sample_bytes(array: ChunkedArray) -> int:
    return math.prod(array.shape) * ITEM_BYTES[array.dtype]


def _ratio(samples: int, stored: int) -> str:
    ratio = float(f"{samples / stored:.2g}")
    return f"{number(ratio) if ratio < 1000 else f'{ratio:.0f}'} ×"


def info(result: InfoResult, style: Style) -> list[str]:
    """One input."""
    dataset = result.dataset
    lines = title(dataset.path, [*_format(dataset), *_sizes(result)], style)
    if result.view == "format":
        return lines
    if result.view == "structure":
        tree = dataset.structure() if dataset.structure is not None else None
        return [*lines, *(_tree(tree) if tree else [])]
    asked = result.max_images is not None or result.view == "full"
    limit = result.max_images or (len(dataset.images) if asked else MAX_IMAGES)
    if dataset.plate is not None:
        lines += ["", *_plate(dataset, dataset.plate, style)]
        limit = limit if asked else 0
    shown = dataset.images[:limit]
    if len(shown) > MAX_DETAILED and not asked:
        lines += ["", *_brief(shown, style)]
    else:
        for n, image in enumerate(shown):
            lines += ["", *_image(n, image, style, result.stored)]
    if dataset.notes:
        lines += ["", *_notes(dataset.notes, style)]
    rest = len(dataset.images) - len(shown)
    if rest > 0:
        more = "" if dataset.plate is not None and not shown else " more"
        them = "it" if rest == 1 else "them"
        text = f"{rest}{more} image{'' if rest == 1 else 's'}"
        lines += ["", f"  {text}: --max-images 0 lists {them}, --json has all"]
    return lines


def _notes(values: Sequence[str], style: Style) -> list[str]:
    lines = notes("note", values[:MAX_NOTES], style)
    rest = len(values) - MAX_NOTES
    return lines + ([f"  … {count(rest, 'more note')}; --json has all"] if rest > 0 else [])


def _format(dataset: Dataset) -> list[str]:
    """Format and version, then what else the version tells: `OME-Zarr 0.5`, `Zarr v3`, `directory`."""
    version, parts = _version(dataset)
    plate = " plate" if dataset.plate is not None else ""
    return [f"{dataset.format_name} {escape(version)}".strip() + plate, *map(escape, parts)]


def _version(dataset: Dataset) -> tuple[str, list[str]]:
    """`0.5 (NGFF, Zarr v3, directory store)` as its number and the words that the format's name does not say."""
    found = re.fullmatch(r"([^()]*)\((.*)\)", dataset.format_version.strip())
    if found is None:
        return dataset.format_version, []
    number = found[1].strip() if found[1].strip() != dataset.format_name else ""
    said = {*re.split(r"[-\s]", dataset.format_name), dataset.format_name, "NGFF"}
    parts = [part.strip() for part in found[2].split(",")]
    return number, [p.removesuffix(" store") for p in parts if p and p not in said]


# -- images ----------------------------------------------------------------------------------------


def _image(
    index: int, image: Image, style: Style, stored: Mapping[tuple[int, int], int]
) -> list[str]:
    name = style.bold(escape(image.name or "(no name)")) + _kind(image)
    lines = hang(f"  {index}  ", [name, sizes(image), _type(image)], "    ")
    pixel = _pixel(image)
    if pixel:
        lines += row("pixel", pixel, style, ", ")
    if image.time_increment_s is not None:
        lines += row("time", [f"{number(image.time_increment_s)} s between frames"], style)
    lines += _channels(image, style)
    for key, value in (("objective", image.objective), ("taken", image.acquired_at)):
        text = value if isinstance(value, str) else _words(value)
        if text:
            lines += row(key, escape(text).split(" "), style, " ")
    held = [_held(level.array, stored.get((index, n))) for n, level in enumerate(image.levels)]
    return lines + _levels(image, style, held if len(stored) > 1 else [""] * len(held))


def _held(array: ChunkedArray, stored: int | None) -> str:
    """Bytes of a level and how well it is compressed; nothing where they are not known."""
    if not stored:
        return ""
    samples = _sample_bytes(array) if array.dtype in ITEM_BYTES else 0
    ratio = f" ({_ratio(samples, stored)})" if 0 < samples < MAX_SAMPLES else ""
    return human_bytes(stored) + ratio


def _kind(image: Image) -> str:
    if not image.label:
        return ""
    return ", a label" if image.label_of is None else f", a label of image {image.label_of}"


def _type(image: Image) -> str:
    return image.pixel_type or f"{escape(image.dtype)} (not read)"


def _words(value: Any) -> str:
    if not value:
        return ""
    return " ".join(
        number(v) if isinstance(v, float) else str(v) for v in value.values() if v is not None
    )


def _brief(images: Sequence[Image], style: Style) -> list[str]:
    rows = [
        (
            str(n),
            style.bold(escape(image.name or "(no name)")) + _kind(image),
            sizes(image),
            _type(image),
            (_pixel(image) or [""])[0].partition(" (")[0],
            "" if len(image.levels) == 1 else f"{len(image.levels)} levels",
        )
        for n, image in enumerate(images)
    ]
    return table(rows, "  ", "  ")


def sizes(image: Image) -> str:
    """Sizes with axis letters, slowest first; axes that the source does not store are left out."""
    parts = [f"{axis} {image.size(axis)}" for axis in image.axis_names if axis != "s"]
    if image.samples_per_pixel > 1:
        parts.append(_colour(image))
    return " · ".join(parts)


def _colour(image: Image) -> str:
    names = {3: "RGB", 4: "RGBA"}
    return names.get(image.samples_per_pixel, f"{image.samples_per_pixel} samples")


def _pixel(image: Image) -> list[str] | None:
    """Pixel size, and the field of view."""
    physical = image.physical_size
    if physical is None:
        return None
    known = {axis: value for axis in "xyz" if (value := physical[axis]) is not None}
    unit, factor = length_unit(min(known.values()))
    text = " × ".join(number(value * factor) for value in known.values())
    field = {axis: value * image.size(axis) for axis, value in known.items()}
    field_unit, field_factor = length_unit(max(field.values()))
    extent = " × ".join(f"{value * field_factor:.4g}" for value in field.values())
    return [f"{text} {unit} ({' '.join(known)})", f"field {extent} {field_unit}"]


def length_unit(value_um: float) -> tuple[str, float]:
    """The unit that reads best, and the factor from µm to it."""
    if value_um < 0.01:
        return "nm", 1e3
    return ("µm", 1.0) if value_um < 10000 else ("mm", 1e-3)


def _channels(image: Image, style: Style) -> list[str]:
    known = [c for c in image.channels if c.name or c.color or c.window or c.emission_nm]
    if image.label or not known:
        return []
    channels = serialize.channels_of(image)
    parts = [_channel(n, channel, style) for n, channel in enumerate(channels[:MAX_CHANNELS])]
    rest = image.size("c") - MAX_CHANNELS
    return row("channels", parts + ([f"… {rest} more"] if rest > 0 else []), style)


def _channel(index: int, channel: Channel, style: Style) -> str:
    swatch = f"{style.swatch(channel.color)} " if channel.color else ""
    text = swatch + escape(channel.name or f"channel {index}")
    window = channel.window
    if window is not None and window.start is not None and window.end is not None:
        text += f"  {number(window.start)}–{number(window.end)}"
    if channel.emission_nm is not None:
        text += f"  {number(channel.emission_nm)} nm"
    return text


def _levels(image: Image, style: Style, held: Sequence[str]) -> list[str]:
    """A row for each level; `held` is what to say of its bytes, beside the size of the whole in the title."""
    rows = []
    deep = any(image.size("z", n) > 1 for n in range(len(image.levels)))
    axes = [a for a in image.axis_names if a in ("zyx" if deep else "yx")]
    for n, level in enumerate(image.levels[:MAX_LEVELS]):
        chunk, shard = lengths(*_stored(level.array))
        stored = (
            f"chunk {chunk}",
            f"shard {shard}" if shard else "",
            codec_label(level.array.layout.codecs),
            held[n],
        )
        rows.append((str(n), " × ".join(str(image.size(a, n)) for a in axes), *stored))
    lines = table(rows, labelled("levels", style))
    if len(lines) > len(rows) and len({cells[2:5] for cells in rows}) == 1:
        # too narrow for whole rows, which are stored alike: that part is told once
        lines = table([(*cells[:2], cells[5]) for cells in rows], labelled("levels", style))
        lines += row("stored", [cell for cell in rows[0][2:5] if cell], style, "   ")
    elif len(lines) > len(rows) and any(cells[3] for cells in rows):
        lines = _shards_apart(image, rows, style)
    rest = len(image.levels) - MAX_LEVELS
    return lines + ([f"{' ' * MARGIN}… {count(rest, 'more level')}"] if rest > 0 else [])


def _shards_apart(image: Image, rows: Sequence[Sequence[str]], style: Style) -> list[str]:
    """Levels whose rows are too wide: shards, the longest words in them, get lines of their own."""
    levels, shards = [], []
    for (n, size, _, _, codec, held), level in zip(rows, image.levels, strict=False):
        chunk, shard = _stored(level.array)
        levels.append((n, size, f"chunk {lengths(chunk)[0]}", codec, held))
        shards += [] if shard is None else [(n, lengths(shard)[0])]
    return table(levels, labelled("levels", style)) + table(shards, labelled("shards", style))


def _stored(array: ChunkedArray) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Chunk and shard in the order of the image's axes, in which everything else is told."""
    chunk, shard = array.layout.chunk, array.layout.shard
    turned = _turned(array, chunk)
    if turned != array.chunk_shape:  # the layout is in that order already, as that of N5 is
        return chunk, shard
    return turned, None if shard is None else _turned(array, shard)


def _turned(array: ChunkedArray, stored: tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(array, AxisView):
        return stored
    inner = _turned(array.array, stored)
    return tuple(1 if axis is None else inner[axis] for axis in array.axes)


# -- plates ----------------------------------------------------------------------------------------


def _plate(dataset: Dataset, plate: Plate, style: Style) -> list[str]:
    fields = [len(well.images) for well in plate.wells]
    total = len(plate.rows) * len(plate.columns)
    parts = [f"{count(len(plate.wells), 'well')} of {total}"]
    if fields and len(set(fields)) == 1:
        parts.append(count(fields[0], "field") + (" each" if len(fields) > 1 else ""))
    parts.append(count(sum(fields), "image"))
    if plate.acquisitions:
        parts.append(count(len(plate.acquisitions), "acquisition"))
    name = style.bold(escape(plate.name or "(no name)"))
    lines = hang(f"  {name}    ", parts, ", ")
    if dataset.images:
        image = dataset.images[0]
        lines += row("images", [sizes(image), _type(image)], style)
        pixel = _pixel(image)
        lines += row("pixel", pixel, style, ", ") if pixel else []
        lines += _channels(image, style)
    return [*lines, *_grid(plate)]


def _grid(plate: Plate) -> list[str]:
    """Fields of each well, as many columns as the terminal takes."""
    columns = [escape(name) for name in plate.columns]
    rows = [escape(name) for name in plate.rows[:MAX_ROWS]]
    cell = max([2, *map(len, columns)]) + 1
    label = max([1, *map(len, rows)])
    fit = max(1, (width() - MARGIN - label) // cell)
    counts = {(well.row, well.column): len(well.images) for well in plate.wells}
    blank = " " * (MARGIN + label)
    lines = [blank + "".join(name.rjust(cell) for name in columns[:fit])]
    for name, shown in zip(plate.rows, rows, strict=False):
        cells = (str(counts.get((name, c), ".")).rjust(cell) for c in plate.columns[:fit])
        lines.append(f"{' ' * MARGIN}{shown.rjust(label)}{''.join(cells)}")
    if len(plate.rows) > MAX_ROWS or len(columns) > fit:
        all_of_it = f"{count(len(plate.rows), 'row')} and {count(len(columns), 'column')}"
        lines.append(f"{' ' * MARGIN}… {all_of_it} in all")
    return lines


# -- other views -----------------------------------------------------------------------------------


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
    words = [str(word) for word in (node.get("kind"), label) if word is not None]
    head = "  " * (depth + 1) + escape(" ".join(words))
    lines = [head + (f"    {escape(facts)}" if facts else "")]
    children = [*node.get("levels", []), *node.get("children", [])]
    for child in children[:MAX_TREE]:
        lines += _tree(child if "kind" in child else {"kind": "array", **child}, depth + 1)
    rest = len(children) - MAX_TREE
    return lines + ([f"{'  ' * (depth + 2)}… {rest} more; --json has all"] if rest > 0 else [])


def info_cells(result: InfoResult, style: Style) -> list[str]:
    """One input among several: cells to compare."""
    dataset = result.dataset
    version, _ = _version(dataset)
    return [
        style.bold(escape(dataset.path)),
        f"{dataset.format_name} {escape(version)}".strip(),
        "plate" if dataset.plate is not None else count(len(dataset.images), "image"),
        *(_cells(dataset.images[0]) if dataset.images else ("", "", "")),
        " ".join(_size(result)),
    ]


def _cells(image: Image) -> tuple[str, str, str]:
    compact = " ".join(
        f"{a}{image.size(a)}"
        for a in image.axis_names
        if a != "s" and (a in "yx" or image.size(a) > 1)
    )
    if image.samples_per_pixel > 1:
        compact += f" {_colour(image)}"
    physical = image.physical_size
    size = "" if physical is None else physical["x"]
    if not size:
        return compact, _type(image), ""
    unit, factor = length_unit(float(size))
    return compact, _type(image), f"{number(float(size) * factor)} {unit}"
