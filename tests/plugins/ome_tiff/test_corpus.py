"""Real files, and the cases made for this project, against their right answers."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from openreadout.errors import OpenReadoutError
from openreadout.registry import open_dataset

tifffile = pytest.importorskip("tifffile")
pytestmark = pytest.mark.corpus

KINDS = {"tiff-planes", "tiff-coding", "ome-xml"}
NOT_BY_TIFFFILE = {
    "omewriters-positions": "tifffile takes TiffData without IFD for the first file in both images",
    "real-viv-companion": "tifffile does not follow companion files",
    "bioformats-companion": "tifffile does not follow companion files",
    "real-omesample-companion-2015-01": "tifffile does not follow companion files",
    "bioformats-jpeg": "tifffile refuses JPEG components in planes of their own that are declared as YCbCr",
    "bioformats-multifile": "digests of the other reader are used for sets of files",
}
"""Corpus files whose planes are compared with the listed digests alone."""


def digest(plane):
    if plane.dtype == bool:
        plane = plane.astype(np.uint8)
    if plane.dtype == np.float16:
        plane = plane.astype(np.float32)
    return hashlib.sha256(np.ascontiguousarray(plane).tobytes()).hexdigest()


@pytest.fixture(scope="module")
def entries(corpus):
    document = json.loads((corpus / "manifest.json").read_text())
    found = document["cases"] if isinstance(document, dict) else document
    return [entry for entry in found if entry["kind"] == "ome-tiff"]


def test_every_file_has_the_listed_images_and_planes(corpus, entries, read_plane):
    assert len(entries) > 40
    for entry in entries:
        with open_dataset(str(corpus / entry["path"])) as dataset:
            assert len(dataset.images) == len(entry["expect"]["images"]), entry["id"]
            for image, expected in zip(dataset.images, entry["expect"]["images"], strict=True):
                samples = image.samples_per_pixel
                assert image.dtype == expected["dtype"], entry["id"]
                assert image.size("c") * samples == expected["size_c"], entry["id"]
                for axis in "xyzt":
                    assert image.size(axis) == expected[f"size_{axis}"], entry["id"]
                shapes = [list(level.array.shape[3:5]) for level in image.levels]
                assert shapes == expected["levels"], entry["id"]
                if entry["expect"].get("lossy") and entry["id"] not in NOT_BY_TIFFFILE:
                    continue
                for where, right in expected["plane_sha256"].items():
                    level, t, c, z = map(int, where.split("/"))
                    plane = read_plane(image, t, c // samples, z, level)
                    found = plane[..., c % samples] if samples > 1 else plane
                    assert digest(found) == right, (entry["id"], where)


def test_sound_files_have_no_findings_of_severity_error(corpus, entries):
    for entry in entries:
        if entry["expect"]["exit_check"] != 0:
            continue
        with open_dataset(str(corpus / entry["path"])) as dataset:
            found = [*dataset.findings, *dataset.inspect(True)]
        assert not [f for f in found if f.severity == "error"], entry["id"]


def test_every_plane_equals_tifffile(corpus, entries, read_whole):
    compared = 0
    for entry in entries:
        if entry["id"] in NOT_BY_TIFFFILE:
            continue
        path = corpus / entry["path"]
        with tifffile.TiffFile(path) as tif, open_dataset(str(path)) as dataset:
            if len(tif.series) != len(dataset.images):
                continue
            for series, image in zip(tif.series, dataset.images, strict=True):
                array = image.levels[0].array
                if image.absent or set(series.axes) - set("TCZYXS"):
                    continue
                expected, axes = series.asarray(), series.axes
                order = [axes.index(letter) for letter in "TCZYXS" if letter in axes]
                expected = expected.transpose(order).reshape(array.shape)
                found = read_whole(array)
                assert found.dtype.itemsize == expected.dtype.itemsize, entry["id"]
                np.testing.assert_array_equal(
                    found, expected.view(found.dtype), err_msg=entry["id"]
                )
                compared += 1
    assert compared > 40


def test_every_case(cases, read_plane):
    chosen = [case for case in cases.values() if case["kind"] in KINDS]
    assert len(chosen) >= 30
    for case in chosen:
        dataset, code = opened(case["path"])
        if dataset is None:
            assert code in case["exit"]["info"], case["id"]
            continue
        with dataset:
            check_case(case, dataset, read_plane)


def opened(path):
    """The data set, or None and the exit code of the error that opening it gives."""
    try:
        return open_dataset(str(path)), 0
    except OpenReadoutError as error:
        return None, error.exit_code


def check_case(case, dataset, read_plane):
    found = {finding.code for finding in [*dataset.findings, *dataset.inspect(True)]}
    for code in case.get("findings", []):
        assert code in found, case["id"]
    if case.get("findings_any"):
        assert found & set(case["findings_any"]), case["id"]
    assert not found & set(case.get("no_findings", [])), case["id"]
    if not case.get("images"):
        return
    assert len(dataset.images) == len(case["images"]), case["id"]
    for image, right in zip(dataset.images, case["images"], strict=True):
        assert {axis: image.size(axis) for axis in "tczyx"} == right["size"], case["id"]
        assert image.dtype == right["dtype"], case["id"]
        assert image.pixel_type == right["pixel_type"], case["id"]
        if right.get("name"):
            assert image.name == right["name"], case["id"]
        for plane in right["planes"]:
            pixels = read_plane(image, plane["t"], plane["c"], plane["z"], plane.get("level", 0))
            assert digest(pixels) == plane["sha256"], case["id"]
