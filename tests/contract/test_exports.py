"""Every fixture exported to OME-Zarr: the same planes, the same facts, and sound to readers that are not ours."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import zarr

from openreadout.cli import run
from openreadout.testing import find_cases, matches

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES = find_cases(FIXTURES)
COLOUR = [case for case in CASES if case.expected["info"]["images"][0]["samples_per_pixel"] > 1]
PLAIN = [case for case in CASES if case not in COLOUR]
KEPT = (
    "size_x", "size_y", "size_z", "size_c", "size_t", "pixel_type", "physical_size", "time_increment_s", "channels",
    "samples_per_pixel", "plane_count",
)  # fmt: skip


def payload(capsys, *arguments, code=0):
    """Run a command in this process; what it prints as JSON."""
    found = run([*map(str, arguments), "--json"])
    printed = capsys.readouterr()
    assert found == code, printed.err
    return json.loads(printed.out)["data"]


def places(planes, level=0):
    """Digests by image, channel, z and time of one level."""
    return {
        tuple(p[k] for k in ("image", "t", "c", "z")): p["sha256"]
        for p in planes
        if p["level"] == level
    }


def export(capsys, case, target, *options):
    report = payload(
        capsys, "export", case.data, "--to", "ome-zarr", "-o", target, "--no-sync", *options
    )
    assert report["verified"] is True
    return report


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_export_has_the_planes_that_another_library_read(case, tmp_path, capsys):
    export(capsys, case, tmp_path / "out.ome.zarr")
    found = payload(capsys, "check", "--planes", "--hash", "sha256", tmp_path / "out.ome.zarr")
    assert found["ok"]
    assert places(found["planes"]) == places(case.expected["planes"])


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_export_keeps_what_another_library_said_of_the_source(case, tmp_path, capsys):
    export(capsys, case, tmp_path / "out.ome.zarr")
    found = payload(capsys, "info", tmp_path / "out.ome.zarr")
    wanted = [
        {key: image[key] for key in KEPT if key in image}
        for image in case.expected["info"]["images"]
    ]
    assert matches(wanted, found["images"]) == []
    if "plate" in case.expected["info"]:
        assert matches(case.expected["info"]["plate"], found["plate"]) == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_export_of_an_export_is_the_same(case, tmp_path, capsys):
    export(capsys, case, tmp_path / "one.ome.zarr")
    case_two = type(case)(case.format_id, case.name, tmp_path / "one.ome.zarr", {})
    export(capsys, case_two, tmp_path / "two.ome.zarr")
    one, two = (
        payload(capsys, "check", "--planes", "--level", "all", tmp_path / f"{name}.ome.zarr")
        for name in ("one", "two")
    )
    assert one["planes"] == two["planes"]
    described = [payload(capsys, "info", tmp_path / f"{name}.ome.zarr") for name in ("one", "two")]
    for found in described:
        for key in ("path", "size_bytes", "notes"):
            found.pop(key)
    assert described[0] == described[1]


@pytest.mark.parametrize("case", COLOUR, ids=str)
def test_colour_becomes_three_channels(case, tmp_path, capsys):
    import tifffile

    export(capsys, case, tmp_path / "out.ome.zarr")
    found = payload(capsys, "info", tmp_path / "out.ome.zarr")["images"][0]
    assert (found["size_c"], found["samples_per_pixel"]) == (3, 1)
    assert [c["name"].lower() for c in found["channels"]] == ["red", "green", "blue"]
    assert [c["color"] for c in found["channels"]] == ["#FF0000", "#00FF00", "#0000FF"]
    pixels = tifffile.imread(case.data)
    pixels = pixels[None] if pixels.ndim == 3 else pixels
    samples = pixels.shape.index(3)
    planes = payload(capsys, "check", "--planes", "--hash", "sha256", tmp_path / "out.ome.zarr")[
        "planes"
    ]
    for plane in planes:
        wanted = np.take(pixels, plane["c"], axis=samples)[plane["z"]]
        assert plane["sha256"] == hashlib.sha256(np.ascontiguousarray(wanted).tobytes()).hexdigest()


# zarr warns of OME/METADATA.ome.xml, the validator of a plate without a version, which NGFF 0.5 keeps beside it
@pytest.mark.filterwarnings("ignore:Object at", "ignore:'version' field not specified")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_export_opens_in_zarr_python_and_passes_a_validator(case, tmp_path, capsys):
    ome_zarr_models = pytest.importorskip("ome_zarr_models.v05")
    export(capsys, case, tmp_path / "out.ome.zarr")
    checked = 0
    for document in (tmp_path / "out.ome.zarr").rglob("zarr.json"):
        node = zarr.open(document.parent, mode="r")
        if isinstance(node, zarr.Array):
            assert node[...].shape == node.shape
        elif "multiscales" in node.attrs.get("ome", {}):
            labels = "image-label" in node.attrs["ome"]
            (ome_zarr_models.ImageLabel if labels else ome_zarr_models.Image).from_zarr(node)
            checked += 1
        elif "plate" in node.attrs.get("ome", {}):
            ome_zarr_models.HCS.from_zarr(node)
    assert checked == len(case.expected["info"]["images"])


SOME_NAMES = (
    "v2-blosc-channels", "v3-sharded", "v3-labels", "v3-plate", "z5py-codecs", "z5py-viewer-pyramid", "classic-strips",
    "pyramid", "two-images",
)  # fmt: skip
SOME = [case for case in CASES if case.name in SOME_NAMES]


@pytest.mark.parametrize(
    "options", [["--ngff", "0.4"], ["--codec", "zstd"], ["--shards", "none"]], ids=" ".join
)
@pytest.mark.parametrize("case", SOME, ids=str)
def test_other_ways_of_writing_have_the_same_planes(case, options, tmp_path, capsys):
    export(capsys, case, tmp_path / "out.ome.zarr", *options)
    found = payload(
        capsys, "check", "--planes", "--full", "--hash", "sha256", tmp_path / "out.ome.zarr"
    )
    assert found["ok"]
    assert places(found["planes"]) == places(case.expected["planes"])


@pytest.mark.parametrize("case", SOME, ids=str)
def test_archive_has_the_same_planes(case, tmp_path, capsys):
    export(capsys, case, tmp_path / "out.ozx")
    found = payload(capsys, "check", "--planes", "--hash", "sha256", tmp_path / "out.ozx")
    assert places(found["planes"]) == places(case.expected["planes"])


@pytest.mark.parametrize("case", SOME, ids=str)
def test_export_is_the_same_as_its_source_by_our_own_comparison(case, tmp_path, capsys):
    export(capsys, case, tmp_path / "out.ome.zarr")
    assert payload(capsys, "check", tmp_path / "out.ome.zarr", "--against", case.data)["ok"]


def test_a_target_that_exists_is_left_alone(tmp_path, capsys):
    target = tmp_path / "out.ome.zarr"
    target.mkdir()
    (target / "mine.txt").write_text("keep")
    code = run(["export", str(CASES[0].data), "--to", "ome-zarr", "-o", str(target)])
    assert code == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (target / "mine.txt").read_text() == "keep"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.ome.zarr"]
