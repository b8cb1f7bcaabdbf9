"""Small sources that other libraries write, and ways to run the command in this process."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import zarr

from openreadout.cli import run


@pytest.fixture(scope="session")
def killing() -> ModuleType:
    """The module `kill_many.py`."""
    from tests.export import kill_many

    return kill_many


def ngff_axes(names, unit="micrometer"):
    kinds = {"t": "time", "c": "channel"}
    found = []
    for name in names:
        axis = {"name": name, "type": kinds.get(name, "space")}
        if unit and name in "zyx":
            axis["unit"] = unit
        if name == "t":
            axis["unit"] = "second"
        found.append(axis)
    return found


def write_image(
    path, levels, axes, *, scales=None, translations=None, zarr_format=3, unit="micrometer", **more
):
    """An NGFF image by zarr-python: its levels as numpy arrays; options of `create_array` apply to all of them."""
    datasets = []
    for n, level in enumerate(levels):
        scale = scales[n] if scales else [1.0] * level.ndim
        steps = [{"type": "scale", "scale": list(scale)}]
        if translations:
            steps.append({"type": "translation", "translation": list(translations[n])})
        datasets.append({"path": str(n), "coordinateTransformations": steps})
    entry = {"name": "image", "axes": ngff_axes(axes, unit), "datasets": datasets}
    extra = more.pop("attributes", {})
    if zarr_format == 2:
        attributes = {"multiscales": [{"version": "0.4", **entry}], **extra}
        more.setdefault("chunk_key_encoding", {"name": "v2", "separator": "/"})
    else:
        attributes = {"ome": {"version": "0.5", "multiscales": [entry], **extra}}
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format, attributes=attributes)
    for n, level in enumerate(levels):
        options = {"fill_value": 0} | more
        array = group.create_array(str(n), shape=level.shape, dtype=level.dtype, **options)
        array[...] = level
    return Path(path)


def noise(shape, dtype="uint16", top=1000, seed=0):
    return np.random.default_rng(seed).integers(0, top, shape).astype(dtype)


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The functions of this module."""
    return SimpleNamespace(image=write_image, axes=ngff_axes, noise=noise)


@pytest.fixture
def command(capsys):
    """Run the program in this process; the payload of its JSON, or the error's."""

    def call(*arguments, code=0):
        found = run([*map(str, arguments), "--json"])
        printed = capsys.readouterr()
        assert found == code, printed.out + printed.err
        document = json.loads(printed.out)
        return document["data"] if document["ok"] else document["error"]

    return call


@pytest.fixture
def export(command):
    """Export one input without syncing; the report."""

    def call(source, target, *options, code=0):
        return command(
            "export", source, "--to", "ome-zarr", "-o", target, "--no-sync", *options, code=code
        )

    return call
