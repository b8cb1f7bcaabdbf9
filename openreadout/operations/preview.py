"""`preview`: a small picture of a data set, from the smallest level that has enough pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from openreadout import registry
from openreadout.errors import InputError, OpenReadoutError, UnsupportedFeatureError, UsageError
from openreadout.model import Channel, Dataset, Image
from openreadout.operations.shrink import Wanted, fit, shrink, smallest_level
from openreadout.results import PreviewReport, ShownChannel, ShownImage
from openreadout.workers import Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_CHANNELS = 6
"""Channels of one composite, unless they are chosen; more colours mixed together show nothing."""
MAX_SHEET = 100
"""Images of a contact sheet that is not a plate."""
MAX_SIDE = 64
"""Rows and columns of a plate's contact sheet."""
LOW_PERCENT, HIGH_PERCENT = 0.5, 99.8
GAP = 2
SMALLEST_CELL = 8
EMPTY = 40
"""Grey of what is between images and of wells without any; the images' own black differs from it."""
FAILED = (120, 0, 0)
PALETTE = ("#00FF00", "#FF00FF", "#00A0FF", "#FFB000", "#FF0000", "#00FFFF")
"""Colours of channels that have none, in pictures of several."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class PreviewOptions:
    """What to show.

    `box` is the largest width and height of the picture. `z` is a plane of level 0, `mid` or `max`; `contrast` is
    `auto` (percentiles of what is shown) or `window` (the display windows of the metadata).
    """

    box: tuple[int, int] = (1024, 1024)
    image: int | None = None
    channels: tuple[int, ...] = ()
    z: int | str = "mid"
    t: int = 0
    contrast: str = "auto"
    axes: str | None = None
    trust_consolidated: bool = False


@dataclass(frozen=True, slots=True)
class _Cell:
    """A place of the contact sheet and the image that stands there."""

    row: int
    column: int
    image: int
    well: str | None = None


@dataclass(frozen=True, slots=True)
class _Sheet:
    cells: tuple[_Cell, ...]
    rows: int
    columns: int
    plate: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Small:
    """An image made small: (channel, y, x, sample)."""

    cell: _Cell
    image: Image
    wanted: Wanted
    pixels: NDArray[Any]


def preview(
    path: str, options: PreviewOptions, workers: Workers, progress: Progress | None = None
) -> PreviewReport:
    """Make a picture of one input.

    Of a plate it is a contact sheet of the first field of each well, of several images one of them all.

    Raises
    ------
    UsageError
        An index is out of range, or there is no image.
    StorageError, UnknownFormatError, CorruptDataError, UnsupportedFeatureError
        The input cannot be opened; or, where one image alone is shown, not be read. Images of a contact sheet that
        cannot be read are listed in the report.
    """
    with registry.open_dataset(
        path, axes=options.axes, trust_consolidated=options.trust_consolidated
    ) as dataset:
        sheet = _sheet(dataset, options)
        box = _cell_box(sheet, options.box)
        small: list[_Small] = []
        failures: list[OpenReadoutError] = []
        for n, cell in enumerate(sheet.cells):
            image = dataset.images[cell.image]
            try:
                wanted = _wanted(image, cell.image, box, options)
                small.append(_Small(cell, image, wanted, shrink(image, wanted, workers)))
            except InputError as error:
                if len(sheet.cells) == 1:
                    raise
                error.where = f"image {cell.image}" + (f", {error.where}" if error.where else "")
                failures.append(error)
            if progress is not None:
                progress(n + 1, len(sheet.cells))
        return _report(dataset, sheet, small, failures, options)


def _report(
    dataset: Dataset,
    sheet: _Sheet,
    small: list[_Small],
    failures: list[OpenReadoutError],
    options: PreviewOptions,
) -> PreviewReport:
    notes = [*sheet.notes]
    shown, pictures = [], []
    shared = _ranges(small, options, notes) if sheet.plate else None
    for item in small:
        ranges = shared if shared is not None else _ranges([item], options, notes)
        picture, channels = _picture(item, ranges)
        pictures.append(picture)
        first, stop = item.wanted.z
        shown.append(
            ShownImage(
                image=item.cell.image,
                name=item.image.name,
                well=item.cell.well,
                level=item.wanted.level,
                z=(first, stop - 1),
                t=item.wanted.t,
                channels=channels,
            )
        )
    cells = [item.cell for item in small]
    pixels = pictures[0] if len(sheet.cells) == 1 else _pasted(sheet, cells, pictures)
    return PreviewReport(
        path=dataset.path,
        format_id=dataset.format_id,
        pixels=pixels,
        columns=sheet.columns,
        images=tuple(shown),
        notes=tuple(dict.fromkeys(notes)),
        failures=tuple(failures),
    )


# -- what is shown ---------------------------------------------------------------------------------


def _sheet(dataset: Dataset, options: PreviewOptions) -> _Sheet:
    count = len(dataset.images)
    if options.image is not None:
        if not 0 <= options.image < count:
            raise UsageError(
                f"image {options.image} is out of range: the data set has {count}",
                hint="openreadout info lists the images with their numbers",
            )
        return _Sheet((_Cell(0, 0, options.image),), 1, 1, plate=False)
    if dataset.plate is not None and any(well.images for well in dataset.plate.wells):
        return _plate_sheet(dataset)
    chosen = [n for n, image in enumerate(dataset.images) if not image.label] or list(range(count))
    if not chosen:
        raise UsageError("there is no image to show", hint="openreadout check tells what is wrong")
    notes = []
    if len(chosen) > MAX_SHEET:
        notes.append(f"the first {MAX_SHEET} of {len(chosen)} images are shown")
        chosen = chosen[:MAX_SHEET]
    columns = math.ceil(math.sqrt(len(chosen)))
    cells = tuple(_Cell(n // columns, n % columns, image) for n, image in enumerate(chosen))
    return _Sheet(cells, -(-len(chosen) // columns), columns, plate=False, notes=tuple(notes))


def _plate_sheet(dataset: Dataset) -> _Sheet:
    plate = dataset.plate
    assert plate is not None  # noqa: S101 - the caller has looked
    rows = {name: n for n, name in enumerate(plate.rows[:MAX_SIDE])}
    columns = {name: n for n, name in enumerate(plate.columns[:MAX_SIDE])}
    cells = tuple(
        _Cell(rows[well.row], columns[well.column], well.images[0], well.path)
        for well in plate.wells
        if well.images and well.row in rows and well.column in columns
    )
    notes = []
    if len(plate.rows) > MAX_SIDE or len(plate.columns) > MAX_SIDE:
        notes.append(f"the first {MAX_SIDE} rows and columns are shown")
    if any(len(well.images) > 1 for well in plate.wells):
        notes.append("of each well the first field is shown")
    return _Sheet(cells, len(rows), len(columns), plate=True, notes=tuple(notes))


def _cell_box(sheet: _Sheet, box: tuple[int, int]) -> tuple[int, int]:
    """Width and height of one image of the sheet."""
    if len(sheet.cells) == 1 and not sheet.plate:
        return box
    return (
        max(SMALLEST_CELL, (box[0] + GAP) // sheet.columns - GAP),
        max(SMALLEST_CELL, (box[1] + GAP) // sheet.rows - GAP),
    )


def _wanted(image: Image, number: int, box: tuple[int, int], options: PreviewOptions) -> Wanted:
    if 0 in image.shape:
        raise UnsupportedFeatureError(f"image {number} has an axis of length 0")
    width, height = fit(image.size("x"), image.size("y"), box)
    level = smallest_level(image, width, height)
    if not 0 <= options.t < image.size("t"):
        raise _out_of_range("t", options.t, image.size("t"), number)
    for c in options.channels:
        if not 0 <= c < image.size("c"):
            raise _out_of_range("channel", c, image.size("c"), number)
    channels = options.channels or tuple(range(min(image.size("c"), MAX_CHANNELS)))
    return Wanted(
        level=level,
        t=min(options.t, image.size("t", level) - 1),
        channels=tuple(dict.fromkeys(channels)),
        z=_depth(image, number, level, options.z),
        # levels are rounded as their writers like it
        width=min(width, image.size("x", level)),
        height=min(height, image.size("y", level)),
    )


def _depth(image: Image, number: int, level: int, z: int | str) -> tuple[int, int]:
    size, here = image.size("z"), image.size("z", level)
    if z == "max":
        return 0, here
    plane = size // 2 if z == "mid" else int(z)
    if not 0 <= plane < size:
        raise _out_of_range("z", plane, size, number)
    plane = min(here - 1, plane * here // size)
    return plane, plane + 1


def _out_of_range(word: str, value: int, size: int, number: int) -> UsageError:
    return UsageError(
        f"{word} {value} is out of range: image {number} has {size}, numbered from 0",
        hint="openreadout info shows the sizes",
    )


# -- colours ---------------------------------------------------------------------------------------

Range = tuple[float, float]


def _ranges(small: Sequence[_Small], options: PreviewOptions, notes: list[str]) -> dict[int, Range]:
    """What is shown as black and as full colour, for each channel; -1 stands for the samples of colour images."""
    values: dict[int, list[NDArray[Any]]] = {}
    ranges: dict[int, Range] = {}
    for item in small:
        if item.image.label:
            continue
        for n, c in enumerate(item.wanted.channels):
            key = -1 if _is_rgb(item) else c
            values.setdefault(key, []).append(item.pixels[n].reshape(-1))
            window = _window(item.image, c)
            if options.contrast == "window" and key >= 0 and window is not None:
                ranges.setdefault(c, window)
    for key, parts in values.items():
        if key not in ranges:
            if options.contrast == "window" and key >= 0:
                notes.append(f"channel {key} has no display window, its percentiles were taken")
            ranges[key] = _percentiles(np.concatenate(parts))
    return ranges


def _window(image: Image, channel: int) -> Range | None:
    known = image.channels[channel].window if channel < len(image.channels) else None
    if known is None or known.start is None or known.end is None:
        return None
    return (known.start, known.end) if known.start < known.end else None


def _percentiles(values: NDArray[Any]) -> Range:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = (float(v) for v in np.percentile(finite, (LOW_PERCENT, HIGH_PERCENT)))
    if low >= high:  # a few bright pixels on an even ground
        low, high = float(finite.min()), float(finite.max())
    return low, high


def _is_rgb(item: _Small) -> bool:
    return int(item.pixels.shape[3]) >= 3


def _picture(
    item: _Small, ranges: dict[int, Range]
) -> tuple[NDArray[Any], tuple[ShownChannel, ...]]:
    """An image as 8-bit RGB, and how its channels were shown."""
    if item.image.label:
        return _label_picture(item.image, item.pixels[0, :, :, 0]), ()
    if _is_rgb(item):
        colour = item.pixels[0, :, :, :3]
        if item.image.dtype == "uint8":
            return np.floor(colour + 0.5).astype(np.uint8), ()
        return _bytes(_stretched(colour, ranges[-1])), ()
    total = np.zeros((*item.pixels.shape[1:3], 3))
    shown = []
    for n, c in enumerate(item.wanted.channels):
        color = _color(item.image, c, len(item.wanted.channels))
        rgb = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        total += _stretched(item.pixels[n, :, :, :1], ranges[c]) * rgb
        known = item.image.channels
        name = known[c].name if c < len(known) else None
        shown.append(ShownChannel(c, color, *ranges[c], name))
    return _bytes(total), tuple(shown)


def _stretched(values: NDArray[Any], limits: Range) -> NDArray[Any]:
    """Values as 0 to 1 between the limits; what is not a number is 0."""
    low, high = limits
    if not high > low:
        nothing: NDArray[Any] = np.zeros(values.shape)
        return nothing
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.clip((values / 2 - low / 2) / (high / 2 - low / 2), 0, 1)
    known: NDArray[Any] = np.nan_to_num(scaled, nan=0.0)
    return known


def _bytes(values: NDArray[Any]) -> NDArray[Any]:
    whole: NDArray[Any] = np.floor(np.clip(values, 0, 1) * 255 + 0.5).astype(np.uint8)
    return whole


def _color(image: Image, channel: int, count: int) -> str:
    known: Channel | None = image.channels[channel] if channel < len(image.channels) else None
    if known is not None and known.color is not None and _is_color(known.color):
        return known.color
    return "#FFFFFF" if count == 1 else PALETTE[channel % len(PALETTE)]


def _is_color(text: str) -> bool:
    return len(text) == 7 and text[0] == "#" and not set(text[1:].lower()) - set("0123456789abcdef")


def _label_picture(image: Image, values: NDArray[Any]) -> NDArray[Any]:
    """Each object in its colour, 0 black."""
    found, places = np.unique(values, return_inverse=True)
    # neighbouring ids get hues far apart: steps of the golden angle
    hue = (np.abs(found.astype(np.float64)) * 0.6180339887498949) % 1.0
    rgb = np.clip(np.abs((hue[:, None] * 6 + np.array([0, 4, 2])) % 6 - 3) - 1, 0, 1)
    table = _bytes(0.25 + 0.75 * np.nan_to_num(rgb))
    table[found == 0] = 0
    known = _label_colors(image)
    if known:
        for n, value in enumerate(found.tolist()):
            if value in known:
                table[n] = known[value]
    return np.asarray(table[places.reshape(-1)].reshape(*values.shape, 3))


def _label_colors(image: Image) -> dict[int, tuple[int, int, int]]:
    block = image.extra.get("image_label")
    colors = block.get("colors") if isinstance(block, dict) else None
    known = {}
    for entry in colors if isinstance(colors, list) else ():
        value = entry.get("label-value") if isinstance(entry, dict) else None
        rgba = entry.get("rgba") if isinstance(entry, dict) else None
        if not isinstance(value, int) or not isinstance(rgba, list):
            continue
        if len(rgba) in (3, 4) and all(_is_byte(part) for part in rgba):
            known[value] = (rgba[0], rgba[1], rgba[2])
    return known


def _is_byte(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255


# -- the sheet -------------------------------------------------------------------------------------


def _pasted(
    sheet: _Sheet, cells: Sequence[_Cell], pictures: Sequence[NDArray[Any]]
) -> NDArray[Any]:
    """All pictures on one sheet, cells as large as the largest picture."""
    height = max((p.shape[0] for p in pictures), default=SMALLEST_CELL)
    width = max((p.shape[1] for p in pictures), default=SMALLEST_CELL)
    shape = (sheet.rows * (height + GAP) - GAP, sheet.columns * (width + GAP) - GAP, 3)
    out = np.full(shape, EMPTY, dtype=np.uint8)

    def corner(cell: _Cell) -> tuple[int, int]:
        return cell.row * (height + GAP), cell.column * (width + GAP)

    for cell in sheet.cells:  # those that could not be read stay in this colour
        y, x = corner(cell)
        out[y : y + height, x : x + width] = FAILED
    for cell, picture in zip(cells, pictures, strict=True):
        y, x = corner(cell)
        out[y : y + height, x : x + width] = EMPTY
        y, x = y + (height - picture.shape[0]) // 2, x + (width - picture.shape[1]) // 2
        out[y : y + picture.shape[0], x : x + picture.shape[1]] = picture
    return out
