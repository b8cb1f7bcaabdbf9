"""What becomes of small data sets in the hands of each converter: the tables of docs/comparison.md.

    python benchmarks/comparison.py FOLDER --peers FOLDER [--only NAME ...] [--keep]

Inputs are written to FOLDER by tifffile, zarr-python and z5py, and each converter runs on them by the call that its
documentation gives first, without further options. What it wrote is then looked at with zarr-python, ome-zarr-models
and the json module; nothing of openreadout takes part in the verdicts. `--peers` holds one environment for each
converter, named like its distribution; those that are absent are left out. Answers are kept in FOLDER, so that the
table can be made in parts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import zarr

SECONDS = 600
AXES = "tczyx"
TO_UM = {"micrometer": 1.0, "nanometer": 1e-3, "millimeter": 1e3, "meter": 1e6, "angstrom": 1e-4}
TO_S = {"second": 1.0, "millisecond": 1e-3, "minute": 60.0, "hour": 3600.0}


# -- converters ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Converter:
    """A command line with `{bin}` (its environment), `{source}`, `{out}` (the output) and `{folder}` (what it is in).

    `reads` are the kinds of input that its documentation names; the others count as not applicable.
    """

    name: str
    distribution: str
    command: tuple[str, ...]
    reads: tuple[str, ...]

    def arguments(self, home: Path, source: Path, out: Path) -> list[str]:
        words = {"bin": home / "bin", "source": str(source), "out": str(out), "folder": out.parent}
        return [part.format(**words) for part in self.command]


CONVERTERS = (
    Converter(
        "openreadout", "",
        (sys.executable, "-m", "openreadout", "export", "{source}", "--to", "ome-zarr", "-o", "{out}"),
        ("tiff", "zarr", "n5"),
    ),
    Converter(
        "openreadout (Rust)", "openreadout",
        ("{bin}/python", "-c",
         "import openreadout; openreadout.export({source!r}, {out!r}, to='ome-zarr')"),
        ("tiff", "zarr"),
    ),
    Converter("ngff-zarr", "ngff-zarr", ("{bin}/ngff-zarr", "-i", "{source}", "-o", "{out}"), ("tiff", "zarr")),
    Converter(
        "eubi-bridge-lite", "eubi-bridge-lite",
        ("{bin}/eubi", "to_zarr", "{source}", "--output_path={folder}"), ("tiff", "zarr"),
    ),
    Converter(
        "zarrify", "zarrify",
        ("{bin}/zarrify", "--src", "{source}", "--dest", "{out}", "--cluster", "local", "-w", "2"), ("tiff", "n5"),
    ),
    Converter(
        "bioio-conversion", "bioio",
        ("{bin}/bioio-convert", "{source}", "-d", "{folder}", "-n", "out"), ("tiff", "zarr"),
    ),
)  # fmt: skip


# -- inputs ----------------------------------------------------------------------------------------


def samples(shape: tuple[int, ...], dtype: str = "uint16", seed: int = 0) -> np.ndarray:
    """A ramp with noise, no two planes alike, never zero: what is lost shows as black."""
    ramp = np.indices(shape).sum(0) % 97 + np.random.default_rng(seed).integers(1, 30, shape)
    return ramp.astype(dtype) if np.dtype(dtype).kind == "f" else (ramp % 120 + 1).astype(dtype)


CHANNELS = {
    "Name": ["DAPI", "Cy5"],
    "Color": [0x0000FFFF, -16776961],  # blue and red with full alpha, as OME-XML writes them
    "EmissionWavelength": [461.5, 670.5],
}


def write_rich(path: Path) -> None:
    """One image of every axis with what OME-XML tells of it; lengths in nanometres."""
    sizes = {"PhysicalSizeX": 250.0, "PhysicalSizeY": 250.0, "PhysicalSizeZ": 1000.0}
    units = {f"PhysicalSize{axis}Unit": "nm" for axis in "XYZ"}
    time_facts = {"TimeIncrement": 30.0, "TimeIncrementUnit": "s"}
    tifffile.imwrite(
        path, samples((2, 2, 3, 300, 400)), tile=(128, 128), compression="zlib",
        metadata={"axes": "TCZYX", "Channel": CHANNELS, **sizes, **units, **time_facts},
    )  # fmt: skip


def write_two(path: Path) -> None:
    """Two images of different sizes."""
    with tifffile.TiffWriter(path, ome=True) as tiff:
        for n, shape in enumerate([(200, 300), (150, 170)]):
            data = samples(shape, seed=n)
            tiff.write(data, metadata={"axes": "YX", "Name": f"image {n}"}, compression="zlib")


def write_type(path: Path) -> None:
    """Three planes of the type that the name tells; colour as one plane of RGB, once in JPEG."""
    kind = path.name.split(".")[0]
    if kind in ("rgb", "jpeg"):
        data = np.stack([samples((256, 320), "uint8", n) for n in range(3)], axis=-1)
        codec = {"compression": "jpeg" if kind == "jpeg" else "zlib", "photometric": "rgb"}
        tifffile.imwrite(path, data, tile=(128, 128), metadata={"axes": "YXS"}, **codec)
        return
    data = samples((3, 256, 320), "float32" if kind == "nan" else kind)
    if kind == "nan":
        data[0, 3, 4:7] = np.nan, np.inf, 1e-40
    elif kind == "uint32":
        data[:, 5] += np.uint32(2**31)
    tifffile.imwrite(path, data, tile=(128, 128), compression="zlib", metadata={"axes": "ZYX"})


def write_damaged_tiff(path: Path) -> None:
    """Six planes, one tile of which has lost its middle."""
    tifffile.imwrite(
        path, samples((6, 512, 512)), tile=(128, 128), compression="zlib", metadata={"axes": "ZYX"}
    )
    with tifffile.TiffFile(path) as tiff:
        page = tiff.pages[2]
        offset, size = page.dataoffsets[5], page.databytecounts[5]
    with path.open("r+b") as file:
        file.seek(offset + size // 3)
        file.write(bytes(size // 3))


def write_long(path: Path) -> None:
    """Large enough to be stopped half-way; noise, so that nothing compresses away."""
    rng = np.random.default_rng(1)
    planes = (rng.integers(1, 60000, (1024, 1024), dtype="u2") for _ in range(80))
    tiles = (p[a : a + 512, b : b + 512] for p in planes for a in (0, 512) for b in (0, 512))
    with tifffile.TiffWriter(path, bigtiff=True, ome=True) as tiff:
        tiff.write(
            tiles, shape=(80, 1024, 1024), dtype="u2", tile=(512, 512), metadata={"axes": "ZYX"}
        )


def axes_json(names: str) -> list[dict[str, str]]:
    kinds = {"t": ("time", "second"), "c": ("channel", None)}
    found = []
    for name in names:
        kind, unit = kinds.get(name, ("space", "micrometer"))
        found.append({"name": name, "type": kind} | ({"unit": unit} if unit else {}))
    return found


def put_image(
    group: Any, levels: list[np.ndarray], axes: str, origin: float = 0.0, **attributes: Any
) -> None:
    """NGFF 0.4: levels halved along y and x, pixels of 0.5 µm, each level where its first pixel's centre is."""
    datasets = []
    for n, level in enumerate(levels):
        chunks = tuple(64 if axis in "yx" else 1 for axis in axes)
        group.create_array(
            str(n), data=level, chunks=chunks, chunk_key_encoding={"name": "v2", "separator": "/"}
        )
        step = 0.5 * 2**n
        scale = [step if axis in "yx" else 2.0 if axis in "zt" else 1.0 for axis in axes]
        shift = [origin + (step - 0.5) / 2 if axis in "yx" else 0.0 for axis in axes]
        moves = [{"type": "scale", "scale": scale}, {"type": "translation", "translation": shift}]
        datasets.append({"path": str(n), "coordinateTransformations": moves})
    entry = {"version": "0.4", "name": "image", "axes": axes_json(axes), "datasets": datasets}
    group.attrs.put({"multiscales": [entry], **attributes})


WINDOW = {"min": 0, "max": 4095, "start": 10, "end": 90}
LABELS = {"colors": [{"label-value": 40, "rgba": [255, 0, 0, 255]}], "version": "0.4"}


def ngff_image() -> list[np.ndarray]:
    data = samples((2, 3, 200, 240))
    return [data, data.reshape(2, 3, 100, 2, 120, 2).mean((3, 5)).astype("u2")]


def write_zarr(path: Path) -> None:
    """NGFF 0.4 with two levels in their places, channels with windows, and a label image of few values."""
    group = zarr.create_group(path, zarr_format=2)
    channels = [
        {"label": name, "color": color, "window": WINDOW, "active": True}
        for name, color in (("DAPI", "0000FF"), ("Cy5", "FF0000"))
    ]
    put_image(group, ngff_image(), "czyx", 100.0, omero={"version": "0.4", "channels": channels})
    labels = group.create_group("labels")
    labels.attrs.put({"labels": ["cells"]})
    cells = (np.indices((3, 200, 240)).sum(0) // 40 % 3 * 40).astype("u2")
    put_image(
        labels.create_group("cells"),
        [cells, cells[:, ::2, ::2]],
        "zyx",
        100.0,
        **{"image-label": LABELS},
    )


def write_damaged_zarr(path: Path) -> None:
    """One of the chunks is cut to half of its bytes."""
    write_zarr(path)
    chunk = path / "0/0/1/1/1"
    os.truncate(chunk, chunk.stat().st_size // 2)


def write_sparse(path: Path) -> None:
    """4096 chunks of 64 x 64, two of which are stored."""
    group = zarr.create_group(path, zarr_format=2)
    put_image(group, [np.zeros((4096, 4096), "u2")], "yx")
    group["0"][:64, :128] = 7


def write_plate(path: Path) -> None:
    """Two wells of two fields each, from two acquisitions."""
    group = zarr.create_group(path, zarr_format=2)
    wells = [{"path": f"A/{n}", "rowIndex": 0, "columnIndex": n - 1} for n in (1, 2)]
    plate = {"name": "screen", "rows": [{"name": "A"}], "columns": [{"name": "1"}, {"name": "2"}],
             "wells": wells, "version": "0.4", "field_count": 2,
             "acquisitions": [{"id": 0, "name": "live"}, {"id": 1, "name": "fixed"}]}  # fmt: skip
    group.attrs.put({"plate": plate})
    for n, well in enumerate(wells):
        place = group.create_group(well["path"])
        images = [{"path": str(f), "acquisition": f} for f in range(2)]
        place.attrs.put({"well": {"images": images, "version": "0.4"}})
        for f in range(2):
            put_image(place.create_group(str(f)), [samples((2, 100, 120), seed=2 * n + f)], "cyx")


def write_n5(path: Path) -> None:
    """A volume below its group, with the attributes by which N5 viewers know pixel sizes."""
    import z5py

    with z5py.File(str(path), "w", use_zarr_format=False) as file:
        data = samples((70, 80, 90))
        volume = file.create_dataset("s0", data=data, chunks=(32, 32, 32), compression="gzip")
        volume.attrs["axes"] = ["x", "y", "z"]
        volume.attrs["units"] = ["nm", "nm", "nm"]
        volume.attrs["resolution"] = [4.0, 4.0, 40.0]


INPUTS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "rich.ome.tif": ("tiff", write_rich),
    "two.ome.tif": ("tiff", write_two),
    **{f"{kind}.ome.tif": ("tiff", write_type) for kind in ("uint8", "uint32", "float32", "nan", "rgb", "jpeg")},
    "damaged.ome.tif": ("tiff", write_damaged_tiff),
    "long.ome.tif": ("tiff", write_long),
    "image.ome.zarr": ("zarr", write_zarr),
    "damaged.ome.zarr": ("zarr", write_damaged_zarr),
    "sparse.ome.zarr": ("zarr", write_sparse),
    "plate.ome.zarr": ("zarr", write_plate),
    "volume.n5": ("n5", write_n5),
}  # fmt: skip


# -- what was written ------------------------------------------------------------------------------


@dataclass
class Group:
    """A group with NGFF metadata, of either version."""

    path: Path
    ngff: dict[str, Any]

    @property
    def entry(self) -> dict[str, Any]:
        return self.ngff["multiscales"][0]

    @property
    def axes(self) -> list[str]:
        return [axis["name"] if isinstance(axis, dict) else axis for axis in self.entry["axes"]]

    def array(self, level: int = 0) -> Any:
        return zarr.open_array(self.path / self.entry["datasets"][level]["path"], mode="r")

    def pixels(self, level: int = 0) -> np.ndarray:
        """Samples as t, c, z, y, x."""
        data = self.array(level)[...]
        order = [axis for axis in AXES if axis in self.axes]
        data = data.transpose([self.axes.index(axis) for axis in order])
        return data[tuple(slice(None) if axis in self.axes else None for axis in AXES)]

    def place(self, level: int, kind: str) -> dict[str, float]:
        """The `scale` or `translation` of a level along each axis, the one for all levels included."""
        neutral = 1.0 if kind == "scale" else 0.0
        found = dict.fromkeys(self.axes, neutral)
        outer = self.entry.get("coordinateTransformations", [])
        for moves in (self.entry["datasets"][level]["coordinateTransformations"], outer):
            for move in moves:
                for axis, value in zip(self.axes, move.get(kind, ()), strict=False):
                    found[axis] = found[axis] * value if kind == "scale" else found[axis] + value
        return found

    def spacing(self, axis: str) -> float | None:
        """µm or s along an axis; None without a unit that is known."""
        if axis not in self.axes:
            return None
        unit = self.entry["axes"][self.axes.index(axis)].get("unit")
        factor = (TO_S if axis == "t" else TO_UM).get(unit)
        return None if factor is None else self.place(0, "scale")[axis] * factor

    @property
    def channels(self) -> list[dict[str, Any]]:
        return self.ngff.get("omero", {}).get("channels", [])


def groups(folder: Path) -> list[Group]:
    """Every group below a folder that has NGFF metadata."""
    found = []
    for name in (".zattrs", "zarr.json"):
        for document in sorted(folder.rglob(name)):
            values = json.loads(document.read_text(encoding="utf-8"))
            if name == "zarr.json":
                values = values.get("attributes", {}).get("ome", {})
            if any(key in values for key in ("multiscales", "plate", "well")):
                found.append(Group(document.parent, values))
    return found


@dataclass
class Run:
    """A conversion that has ended: its exit code, what it said, and what is in its folder."""

    folder: Path
    code: int
    said: str
    touched: bool = False
    seconds: float = 0.0
    images: list[Group] = field(default_factory=list)
    labels: list[Group] = field(default_factory=list)
    plates: list[Group] = field(default_factory=list)

    def look(self) -> Run:
        for group in groups(self.folder):
            if "plate" in group.ngff:
                self.plates.append(group)
            elif "multiscales" in group.ngff:
                label = "image-label" in group.ngff or "labels" in group.path.parts
                (self.labels if label else self.images).append(group)
        return self

    @property
    def failed(self) -> str:
        """Why there is nothing to look at, as the cell of a table."""
        if self.code:
            return f"fails (exit {self.code})"
        return "" if self.images else "exit 0, no image"


# -- questions -------------------------------------------------------------------------------------


def verdict(right: bool, else_: str = "no") -> str:
    return "yes" if right else else_


def second_image(run: Run) -> str:
    wanted = [samples((200, 300)), samples((150, 170), seed=1)]
    found = [image.pixels()[0, 0, 0] for image in run.images]
    kept = sum(any(np.array_equal(a, b) for b in found) for a in wanted)
    return verdict(kept == 2, f"no: {kept} of 2, exit {run.code}")


def channel_names(run: Run) -> str:
    names = [channel.get("label") for channel in run.images[0].channels]
    return verdict(names == ["DAPI", "Cy5"], f"no: {', '.join(map(str, names)) or 'none'}")


def channel_colors(run: Run) -> str:
    colors = [str(channel.get("color")).upper() for channel in run.images[0].channels]
    return verdict(colors == ["0000FF", "FF0000"], f"no: {', '.join(colors) or 'none'}")


def wavelengths(run: Run) -> str:
    files = [file for file in run.folder.rglob("*") if file.is_file()]
    documents = [f for f in files if f.suffix in (".json", ".xml") or f.name == ".zattrs"]
    texts = [document.read_text("utf-8", "replace") for document in documents]
    return verdict(any("461.5" in text for text in texts))


def source_xml(run: Run) -> str:
    found = [p for p in run.folder.rglob("*") if p.is_file() and p.suffix.lower() == ".xml"]
    whole = any("461.5" in path.read_text("utf-8", "replace") for path in found)
    return verdict(whole, "no: another" if found else "no")


def lengths(run: Run, wanted: dict[str, float]) -> str:
    """Whether the spacings along some axes, in µm and s, are those; numbers without a unit are told apart."""
    image = run.images[0]
    found = {axis: image.spacing(axis) for axis in wanted}
    if all(f is not None and abs(f - wanted[axis]) < 1e-9 for axis, f in found.items()):
        return "yes"
    numbers = " × ".join(f"{image.place(0, 'scale').get(axis, 1.0):g}" for axis in wanted)
    known = all(f is not None for f in found.values())
    return f"no: {numbers}" + ("" if known else " without a unit")


def pixel_size(run: Run) -> str:
    return lengths(run, {"z": 1.0, "y": 0.25, "x": 0.25})


def time_increment(run: Run) -> str:
    return lengths(run, {"t": 30.0})


def windows(run: Run) -> str:
    """What is written for the window that the source does not have."""
    found = [channel.get("window") or {} for channel in run.images[0].channels]
    shown = {f"{w.get('start', '?'):g}–{w.get('end', '?'):g}" for w in found if w}
    return ", ".join(sorted(shown)) or "none"


def windows_kept(run: Run) -> str:
    found = [channel.get("window") for channel in run.images[0].channels]
    return verdict(
        found == [WINDOW] * 2, "no" + (f": {found[0]['start']:g}–{found[0]['end']:g}" if found and found[0] else "")
    )  # fmt: skip


def level_places(run: Run) -> str:
    image = run.images[0]
    first = image.place(0, "translation")
    if (first.get("y"), first.get("x")) != (100.0, 100.0):
        return f"no: level 0 at {first.get('x'):g}"
    if len(image.entry["datasets"]) < 2:
        return "level 0 only; one level written"
    second, step = image.place(1, "translation"), image.place(1, "scale")
    ratios = [round(step.get(a, 1.0) / image.place(0, "scale").get(a, 1.0)) for a in AXES]
    every = image.pixels()[tuple(slice(None, None, ratio) for ratio in ratios)]
    strided = np.array_equal(image.pixels(1), every)
    wanted = 100 if strided else 100 + (step["x"] - 0.5) / 2
    return verdict(second["x"] == wanted, f"level 0; level 1 at {second['x']:g}, not {wanted:g}")


def labels_kept(run: Run) -> str:
    wanted = (np.indices((3, 200, 240)).sum(0) // 40 % 3 * 40).astype("u2")
    if len(run.labels) != 1:
        as_image = any(np.array_equal(image.pixels()[0, 0], wanted) for image in run.images)
        return "no: as an image" if as_image else "no"
    label = run.labels[0]
    if not np.array_equal(label.pixels()[0, 0], wanted):
        return "other values"
    return verdict(bool(label.ngff.get("image-label", {}).get("colors")), "without its colours")


def label_values(run: Run) -> str:
    if len(run.labels) != 1:
        return "—"
    label = run.labels[0]
    below = [np.unique(label.pixels(n)) for n in range(1, len(label.entry["datasets"]))]
    return verdict(all(set(values) <= {0, 40, 80} for values in below), "no: invented values")


def ngff_pixels(run: Run) -> str:
    wanted = ngff_image()[0][None]
    return verdict(any(np.array_equal(image.pixels(), wanted) for image in run.images))


def plate_kept(run: Run) -> str:
    if not run.plates:
        return f"no: {len(run.images)} of 4 images, no plate"
    plate = run.plates[0].ngff["plate"]
    if len(plate["wells"]) != 2 or len(run.images) != 4:
        return f"no: {len(plate['wells'])} wells, {len(run.images)} images"
    return verdict(len(plate.get("acquisitions", ())) == 2, "without acquisitions")


def exact(name: str) -> Callable[[Run], str]:
    def question(run: Run) -> str:
        wanted = tifffile.imread(run.folder.parent.parent.parent / name)
        colour = name.startswith(("rgb", "jpeg"))
        wanted = np.moveaxis(wanted, -1, 0)[:, None] if colour else wanted[None]
        found = run.images[0].pixels()[0]
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            return f"no: {found.dtype.name} {' × '.join(map(str, found.shape))}"
        if np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f"):
            return "yes"
        off = np.nanmax(np.abs(found.astype("f8") - wanted.astype("f8")))
        return f"off by up to {off:g}"

    return question


def sparse(run: Run) -> str:
    array = run.images[0].array()
    folder = run.images[0].path / run.images[0].entry["datasets"][0]["path"]
    files = [path.name for path in folder.rglob("*") if path.is_file()]
    stored = [name for name in files if not name.startswith(".z") and not name.endswith(".json")]
    unit = array.shards or array.chunks
    total = int(np.prod([-(-n // c) for n, c in zip(array.shape, unit, strict=True)]))
    if not (run.images[0].pixels()[0, 0, 0, :64, :128] == 7).all():
        return "no: other values"
    if total == 1:
        return "all in one chunk"
    return f"{verdict(len(stored) < total)}: {len(stored)} of {total} files"


def n5_pixels(run: Run) -> str:
    wanted = samples((70, 80, 90))[None, None]
    found = [image.pixels() for image in run.images]
    return verdict(any(np.array_equal(data, wanted) for data in found))


def n5_size(run: Run) -> str:
    return lengths(run, {"z": 0.04, "y": 0.004, "x": 0.004})


def differing(run: Run, wanted: np.ndarray) -> str:
    """What is there instead of an error: the share of samples at full resolution that are not the source's."""
    try:
        found = run.images[0].pixels()
    except Exception:  # whatever a half-written store leads its reader to
        return "a store that cannot be read"
    if found.size != wanted.size:
        return f"a store of {found.size} samples for {wanted.size}"
    different = found.ravel() != wanted.ravel()
    if not different.any():
        return "a store, every sample right"
    black = "wrong" if found.ravel()[different].any() else "black"
    return f"a store, {different.mean() * 100:.3g} % of it {black}"


def damaged(wanted: Callable[[], np.ndarray]) -> Callable[[Run], str]:
    """What is under the final name after an input with one damaged tile or chunk."""

    def question(run: Run) -> str:
        if run.images:
            return f"exit {run.code}, {differing(run, wanted())}"
        parts = any(path.is_file() for path in run.folder.rglob("*"))
        return f"exit {run.code}, {'parts are left' if parts else 'nothing is left'}"

    return question


def valid(run: Run) -> str:
    """Whether ome-zarr-models accepts every group with NGFF metadata."""
    import ome_zarr_models

    for group in [*run.images, *run.labels, *run.plates]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ome_zarr_models.open_ome_zarr(zarr.open_group(group.path, mode="r"))
        except Exception as error:  # the validators raise pydantic's, zarr's and their own
            first = str(error).strip().split("\n")
            print(
                f"    not valid: {group.path.relative_to(run.folder)}: {first[:4]}", file=sys.stderr
            )
            return "no"
    return "yes"


QUESTIONS: tuple[tuple[str, str, Callable[[Run], str]], ...] = (
    ("uint8, exact", "uint8.ome.tif", exact("uint8.ome.tif")),
    ("uint32, exact", "uint32.ome.tif", exact("uint32.ome.tif")),
    ("float32, exact", "float32.ome.tif", exact("float32.ome.tif")),
    ("float32 with NaN and infinity, exact", "nan.ome.tif", exact("nan.ome.tif")),
    ("RGB, exact", "rgb.ome.tif", exact("rgb.ome.tif")),
    ("RGB in JPEG, as libjpeg-turbo decodes it", "jpeg.ome.tif", exact("jpeg.ome.tif")),
    ("a second image", "two.ome.tif", second_image),
    ("channel names", "rich.ome.tif", channel_names),
    ("channel colours", "rich.ome.tif", channel_colors),
    ("emission wavelengths, anywhere", "rich.ome.tif", wavelengths),
    ("pixel size, given in nm", "rich.ome.tif", pixel_size),
    ("time increment", "rich.ome.tif", time_increment),
    ("the source's OME-XML", "rich.ome.tif", source_xml),
    ("window written where the source has none", "rich.ome.tif", windows),
    ("output is valid", "rich.ome.tif", valid),
    ("OME-Zarr: samples, exact", "image.ome.zarr", ngff_pixels),
    ("OME-Zarr: windows kept", "image.ome.zarr", windows_kept),
    ("OME-Zarr: places of levels", "image.ome.zarr", level_places),
    ("OME-Zarr: label image with its colours", "image.ome.zarr", labels_kept),
    ("OME-Zarr: no new values in a label's levels", "image.ome.zarr", label_values),
    ("OME-Zarr: output is valid", "image.ome.zarr", valid),
    ("OME-Zarr: plate, wells, acquisitions", "plate.ome.zarr", plate_kept),
    ("OME-Zarr: absent chunks stay absent", "sparse.ome.zarr", sparse),
    ("N5: samples, exact", "volume.n5", n5_pixels),
    ("N5: pixel size with its unit", "volume.n5", n5_size),
    ("a damaged TIFF tile", "damaged.ome.tif", damaged(lambda: samples((6, 512, 512)))),
    ("a damaged Zarr chunk", "damaged.ome.zarr", damaged(lambda: ngff_image()[0])),
)


LAST = ("SIGKILL half-way leaves under the final name", "the source is as it was")


# -- running ---------------------------------------------------------------------------------------


def digest(path: Path) -> str:
    """Names and bytes of a file or of all files below a folder."""
    found = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            found.update(str(file).encode() + file.read_bytes())
    return found.hexdigest()


def convert(converter: Converter, peers: Path, source: Path, kill_after: float | None = None) -> Run:  # fmt: skip
    """Run a converter in a folder of its own; with `kill_after` SIGKILL all of it so long after its first file."""
    folder = source.parent / "runs" / (converter.distribution or "ours") / source.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    before = digest(source)
    home = peers / converter.distribution
    started = time.monotonic()
    first: float | None = None
    with (folder.parent / "said.txt").open("w+b") as said:
        process = subprocess.Popen(
            converter.arguments(home, source, folder / "out.ome.zarr"),
            stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
            start_new_session=True, cwd=source.parent,
        )  # fmt: skip
        while process.poll() is None:
            now = time.monotonic()
            if first is None and any(p.is_file() for p in folder.rglob("*")):
                first = now
            due = kill_after is not None and first is not None and now - first > kill_after
            if due or now - started > SECONDS:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                break
            time.sleep(0.02)
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    run = Run(folder, process.returncode, text, touched=digest(source) != before)
    run.seconds = time.monotonic() - (first or started)
    return run.look()


def killed(converter: Converter, peers: Path, source: Path) -> str:
    """What is under the final name after SIGKILL at four times from the first file to the end: the worst of them."""
    whole = convert(converter, peers, source)
    if whole.failed:
        return whole.failed
    names = {path.name for path in whole.folder.iterdir()}
    count = len(whole.images[0].entry["datasets"])
    wanted = [whole.images[0].pixels(level) for level in range(count)]
    found = []
    for part in (0.2, 0.4, 0.6, 0.8):
        run = convert(converter, peers, source, whole.seconds * part)
        left = names & {path.name for path in run.folder.iterdir()}
        run.images = [i for i in run.images if i.path.relative_to(run.folder).parts[0] in left]
        if run.code != -signal.SIGKILL:
            found.append((0.0, f"not stopped (exit {run.code})"))
        elif not left:
            found.append((0.1, "nothing"))
        elif not run.images:
            found.append((0.2, "a folder that is no image"))
        else:
            found.append(half_done(run.images[0], wanted))
    print(f"    killed: {found}", file=sys.stderr)
    return max(found)[1]


def half_done(image: Group, wanted: list[np.ndarray]) -> tuple[float, str]:
    """How bad a store is that opens as an image, by the share of its samples that the whole store has otherwise."""
    wrong = total = 0
    for level, samples_of_it in enumerate(wanted):
        total += samples_of_it.size
        try:
            wrong += int((image.pixels(level) != samples_of_it).sum())
        except (OSError, ValueError, KeyError, IndexError, RuntimeError):
            wrong += samples_of_it.size
    share = wrong / total
    return (
        (share + 1, f"a store, {share * 100:.3g} % of it missing") if wrong else (0.0, "all of it")
    )


def version(converter: Converter, peers: Path) -> str:
    python = peers / converter.distribution / "bin/python" if converter.distribution else sys.executable  # fmt: skip
    others = {"": "openreadout-microscopy", "bioio": "bioio-conversion"}
    name = others.get(converter.distribution, converter.distribution)
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="distributions; `ours` for this one")
    parser.add_argument("--inputs", nargs="*", help="names of inputs; answers to others stay")
    parser.add_argument("--said", action="store_true", help="show what each converter printed")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, write) in INPUTS.items():
        if not (folder / name).exists():
            write(folder / name)
    answers: dict[str, dict[str, str]] = {}
    for converter in CONVERTERS:
        name = converter.distribution or "ours"
        kept = folder / f"answers-{name}.json"
        there = not converter.distribution or (options.peers / name / "bin").is_dir()
        known = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
        if there and (not options.only or name in options.only):
            known |= column(converter, options, folder)
            kept.write_text(json.dumps(known, indent=1), encoding="utf-8")
        if known:
            answers[f"{converter.name} {version(converter, options.peers)}"] = known
    print(f"| | {' | '.join(answers)} |\n{'| --- ' * (len(answers) + 1)}|")
    for question in (*(question for question, _, _ in QUESTIONS), *LAST):
        cells = [known.get(question, "?") for known in answers.values()]
        print(f"| {question} | {' | '.join(cells)} |")
    return 0


def answer(ask: Callable[[Run], str], run: Run) -> str:
    """The cell for a question; an output that zarr-python cannot read is an answer as well."""
    try:
        return ask(run)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        print(f"    {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        return f"unreadable (exit {run.code})"


def column(converter: Converter, options: argparse.Namespace, folder: Path) -> dict[str, str]:
    """The answers of one converter to questions about the inputs that are asked for."""
    print(converter.name, file=sys.stderr)
    asked = options.inputs or list(INPUTS)
    cells: dict[str, str] = {}
    runs: dict[str, Run] = {}
    for name in asked:
        if name != "long.ome.tif" and INPUTS[name][0] in converter.reads:
            runs[name] = run = convert(converter, options.peers, folder / name)
            print(f"  {name}: exit {run.code}, {len(run.images)} images", file=sys.stderr)
            if options.said:
                print(run.said[-3000:], file=sys.stderr)
    for question, name, ask in QUESTIONS:
        if INPUTS[name][0] not in converter.reads:
            cells[question] = "n/a"
        elif name in runs:
            run = runs[name]
            failed = "" if name.startswith("damaged") else run.failed
            cells[question] = failed or answer(ask, run)
    if "long.ome.tif" in asked:
        cells[LAST[0]] = killed(converter, options.peers, folder / "long.ome.tif")
    if not options.inputs:
        changed = [name for name, run in runs.items() if run.touched]
        cells[LAST[1]] = verdict(not changed, f"no: {', '.join(changed)}")
    return cells


if __name__ == "__main__":
    raise SystemExit(main())
