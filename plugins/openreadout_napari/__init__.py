"""OME-Zarr, N5 and OME-TIFF in napari: the reader that `napari.yaml` names. It needs dask (the extra `napari`).

Each image becomes a layer of lazy arrays, one for each pyramid level; napari gives each channel a layer of its own with
its name, colour and window. Label images become labels layers. A plate becomes one image: wells in their places, the
fields of each side by side. Lengths are in µm, times in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import openreadout

LayerData = tuple[Any, dict[str, Any], str]
Grid = list[list[openreadout.Image | None]]


def get_reader(path: str | Sequence[str]) -> Callable[[str | Sequence[str]], list[LayerData]] | None:  # fmt: skip
    """`read`, or None when an input is of a format that is not read here; images are not opened for that."""
    try:
        for item in [path] if isinstance(path, str) else path:
            openreadout.detect(item)
    except openreadout.OpenReadoutError:
        return None
    return read


def read(path: str | Sequence[str]) -> list[LayerData]:
    """The layers of each input as npe2 takes them: data, keywords, and `image` or `labels`."""
    layers = []
    for item in [path] if isinstance(path, str) else path:
        dataset = openreadout.open(item)  # stays open: layers read when they are shown
        if dataset.plate and (grid := _wells(dataset, dataset.plate)):
            layers.append(_layer(grid, dataset.plate.name or "plate"))
        else:
            layers += [_layer([[i]], i.name or f"image {n}") for n, i in enumerate(dataset.images)]
    return layers


def _wells(dataset: openreadout.Dataset, plate: Any) -> Grid:
    """Every field in the place of its well, in a square there; empty when they differ and cannot lie side by side."""
    images = {(w.row, w.column, n): dataset.images[i] for w in plate.wells for n, i in enumerate(w.images)}  # fmt: skip
    kinds = {(i.axes, i.dtype, tuple(v.array.shape for v in i.levels)) for i in images.values()}
    last = max((n for *_, n in images), default=0)
    across = math.isqrt(last) + 1
    lines = [(row, first) for row in plate.rows for first in range(0, last + 1, across)]
    sites = [(column, n) for column in plate.columns for n in range(across)]
    grid = [[images.get((row, column, first + n)) for column, n in sites] for row, first in lines]
    return grid if len(kinds) == 1 else []


def _layer(grid: Grid, name: str) -> LayerData:
    image = next(image for row in grid for image in row if image is not None)
    labels = image.label and image.dtype[0] in "iu"
    split = "c" in image.axis_names and not labels
    shown = [axis for axis in "tczyx" if axis in image.axis_names or axis in "yx"]
    place = tuple(slice(None) if axis in shown else 0 for axis in "tczyx")
    levels = [_pixels(grid, image, level)[place] for level in range(len(image.levels))]
    options: dict[str, Any] = {"name": name}
    spacing = {**(image.physical_size or {}), "t": image.time_increment_s}
    if spacing.get("x") and spacing.get("y"):
        axes = [axis for axis in shown if not (split and axis == "c")]
        options["scale"] = [spacing.get(axis) or 1.0 for axis in axes]
        if len(grid) * len(grid[0]) == 1:
            places = zip(image.axis_names, image.levels[0].translation, image.levels[0].scale, strict=True)  # fmt: skip
            first = {axis: (place or 0.0) / (step or 1.0) for axis, place, step in places}
            options["translate"] = [first.get(a, 0.0) * (spacing.get(a) or 1.0) for a in axes]
    if not labels:
        options |= {"rgb": "s" in image.axis_names, "multiscale": len(levels) > 1}
    if split:
        options |= _channels(image, name) | {"channel_axis": shown.index("c")}
    return levels if len(levels) > 1 else levels[0], options, "labels" if labels else "image"


def _pixels(grid: Grid, image: openreadout.Image, level: int) -> Any:
    """A level of the images side by side, black where there is none: t, c, z, y, x, and samples for colour."""
    import dask.array

    da: Any = dask.array
    blank = da.zeros_like(image.to_dask(level))
    rows = [[blank if item is None else item.to_dask(level) for item in row] for row in grid]
    return da.concatenate([da.concatenate(row, axis=4) for row in rows], axis=3)


def _channels(image: openreadout.Image, name: str) -> dict[str, Any]:
    """Names, colours and windows, a list of each with one entry per channel, if known of all of them."""
    colors = [item.color for item in image.channels]
    windows = [(w.start, w.end) if (w := item.window) else (None, None) for item in image.channels]
    found: dict[str, Any] = {}
    if all(item.name for item in image.channels):
        found["name"] = [f"{name} {item.name}" for item in image.channels] or name
    if all(colors) and len(colors) > 1:
        found |= {"colormap": colors, "blending": "additive"}
    if windows and all(a is not None and b is not None and a < b for a, b in windows):
        found["contrast_limits"] = [list(window) for window in windows]
    return found
