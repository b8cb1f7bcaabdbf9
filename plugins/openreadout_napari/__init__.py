"""OME-Zarr, N5 and OME-TIFF in napari: the reader that `napari.yaml` names. It needs dask (the extra `napari`).

Each image becomes a layer of lazy arrays, one for each pyramid level; napari gives each channel a layer of its own with
its name, colour and window. Label images become labels layers. A plate becomes one image, the first field of each well
in its place, as `openreadout preview` shows it. Lengths are in µm, times in seconds.
"""

from __future__ import annotations

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
    """The first field of each well by row and column; empty when they differ in kind, and cannot lie side by side."""
    wells = {(w.row, w.column): dataset.images[w.images[0]] for w in plate.wells if w.images}
    kinds = {(i.axes, i.dtype, tuple(v.array.shape for v in i.levels)) for i in wells.values()}
    if len(kinds) != 1:
        return []
    return [[wells.get((row, column)) for column in plate.columns] for row in plate.rows]


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
            options["translate"] = [_start(image, axis) * (spacing.get(axis) or 1.0) for axis in axes]  # fmt: skip
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


def _start(image: openreadout.Image, axis: str) -> float:
    """Where an axis begins, in samples of level 0."""
    place, level = image.axis_names.find(axis), image.levels[0]
    start, step = (0.0, 1.0) if place < 0 else (level.translation[place], level.scale[place])
    return (start or 0.0) / (step or 1.0)


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
