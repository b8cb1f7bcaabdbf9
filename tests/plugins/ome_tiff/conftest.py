"""Helpers for OME-TIFF tests: whole arrays, planes, files by tifffile."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]


def whole(array):
    """A whole level as one array."""
    from openreadout.arrays import read_region

    return read_region(array, tuple((0, size) for size in array.shape))


def plane(image, t, c, z, level=0):
    """One plane, shape (y, x) or (y, x, s)."""
    from openreadout.arrays import read_region

    array = image.levels[level].array
    leading = ((t, t + 1), (c, c + 1), (z, z + 1))
    return read_region(array, leading + tuple((0, size) for size in array.shape[3:]))[0, 0, 0]


@pytest.fixture(scope="session")
def read_whole():
    return whole


@pytest.fixture(scope="session")
def read_plane():
    return plane


@pytest.fixture
def write(tmp_path):
    """Write an OME-TIFF with tifffile and give its path."""
    tifffile = pytest.importorskip("tifffile")

    def make(data, axes, name="image.ome.tif", *, byteorder="<", bigtiff=False, **options):
        path = tmp_path / name
        with tifffile.TiffWriter(path, ome=True, byteorder=byteorder, bigtiff=bigtiff) as writer:
            writer.write(data, metadata={"axes": axes}, **options)
        return path

    return make


@pytest.fixture
def samples():
    """Reproducible samples of a type."""

    def make(dtype, shape, seed=0):
        rng = np.random.default_rng(seed)
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return rng.integers(0, 2, shape).astype(bool)
        if dtype.kind == "c":
            return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
        if dtype.kind == "f":
            return rng.normal(size=shape).astype(dtype)
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)

    return make


@pytest.fixture(scope="session")
def cases(tmp_path_factory):
    """The cases made for this project beside the checkout, with their right answers, by id."""
    maker = ROOT.parent / "shared" / "cases" / "make_cases.py"
    if not maker.is_file():
        pytest.skip(f"the cases are not beside the checkout ({maker})")
    if importlib.util.find_spec("imagecodecs") is None:
        pytest.skip("the cases need imagecodecs")
    folder = tmp_path_factory.mktemp("cases")
    made = subprocess.run([sys.executable, maker, folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"the cases cannot be made here: {made.stderr[-200:]!r}")
    document = json.loads((folder / "cases.json").read_text())
    found = document["cases"] if isinstance(document, dict) else document
    return {case["id"]: case | {"path": folder / case["path"]} for case in found}
