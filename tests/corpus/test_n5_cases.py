"""The seeded N5 cases beside the checkout: what the reader makes of each against the right answer."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from openreadout.arrays import read_region
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.registry import open_dataset

pytestmark = pytest.mark.corpus

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"


def _listed() -> list[dict]:
    file = CASES / "cases.json"
    if not file.is_file():
        return []
    found = json.loads(file.read_text())
    entries = found["cases"] if isinstance(found, dict) else found
    return [entry for entry in entries if ".n5" in entry["path"]]


ENTRIES = [pytest.param(entry, id=entry["id"]) for entry in _listed()]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    if not ENTRIES:
        pytest.skip(f"the cases are not beside the checkout ({CASES})")
    folder = tmp_path_factory.mktemp("cases")
    command = [sys.executable, str(CASES / "make_cases.py"), str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder


def _planes(image) -> dict[tuple[int, int, int, int], str]:
    found = {}
    for number, level in enumerate(image.levels):
        block = read_region(level.array, tuple((0, n) for n in level.array.shape))
        for position, axis in enumerate("tczyx"):
            if axis not in image.axis_names:
                block = np.expand_dims(block, position)
        for t, c, z in np.ndindex(block.shape[:3]):
            plane = block[t, c, z]
            little = plane.astype(plane.dtype.newbyteorder("<"), copy=False)
            digest = hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest()
            found[number, t, c, z] = digest
    return found


def test_cases_are_there(made):
    assert len(ENTRIES) >= 14


@pytest.mark.parametrize("entry", ENTRIES)
def test_case_has_the_right_images_and_planes(made, entry):
    with open_dataset(str(made / entry["path"])) as dataset:
        wanted = entry.get("images") or []
        assert len(dataset.images) == (len(wanted) or len(dataset.images))
        if 0 not in entry["exit"]["check_planes"]:
            array = dataset.images[0].levels[0].array
            with pytest.raises(CorruptDataError):
                array.read_chunk((0,) * len(array.shape))
            return
        try:
            planes = [_planes(image) for image in dataset.images]
        except UnsupportedFeatureError:
            assert 6 in entry["exit"]["check_planes"]
            return
    for image, expected, found in zip(dataset.images, wanted, planes, strict=False):
        assert {axis: image.size(axis) for axis in expected["size"]} == expected["size"]
        assert image.pixel_type == expected["pixel_type"]
        for plane in expected["planes"]:
            key = (plane.get("level", 0), plane["t"], plane["c"], plane["z"])
            assert found[key] == plane["sha256"]
        _same_sizes(image, expected)
    hashes = {digest for found in planes for digest in found.values()}
    assert set(entry.get("plane_set") or []) <= hashes


def _same_sizes(image, expected) -> None:
    from openreadout.units import length_um

    for axis, (value, unit) in (expected.get("physical_size") or {}).items():
        assert image.physical_size[axis] == pytest.approx(value * length_um(unit), rel=1e-9)
    if expected.get("levels"):
        sizes = [[image.size("y", n), image.size("x", n)] for n in range(len(image.levels))]
        assert sizes == expected["levels"]
