"""Documents of every layout against validators that others wrote."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import zarr

from openreadout.testing import find_cases

ome_zarr_models = pytest.importorskip("ome_zarr_models")
yaozarrs = pytest.importorskip("yaozarrs")

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES = {case.name: case for case in find_cases(FIXTURES)}
LAYOUTS = {
    "v3-sharded": "image",
    "v2-blosc-channels": "image",
    "ome-zarr-py-0.5": "image",
    "classic-strips": "image",
    "rgb-interleaved": "image",
    "z5py-viewer-pyramid": "image",
    "v3-collection-types": "collection",
    "two-images": "collection",
    "z5py-types": "collection",
    "v3-plate": "plate",
    "v3-labels": "image",
}
NODES = ("multiscales", "plate", "well", "labels", "bioformats2raw.layout", "series")


def documents(root, version):
    """NGFF attributes of every group, by path."""
    found = {}
    name = "zarr.json" if version == "0.5" else ".zattrs"
    for file in root.rglob(name):
        body = json.loads(file.read_text())
        if version == "0.5":
            if body["node_type"] == "array":
                continue
            body = body["attributes"].get("ome", {})
        path = file.parent.relative_to(root).as_posix()
        found["" if path == "." else path] = body
    return found


def validate(root, version):
    """Every group of an output by ome-zarr-models' own class for it; how often each was used."""
    from ome_zarr_models import v04, v05

    models = v05 if version == "0.5" else v04
    counts = dict.fromkeys(NODES, 0)
    for path, body in documents(root, version).items():
        group = zarr.open_group(root / path if path else root, mode="r")
        classes = {
            "multiscales": models.ImageLabel if "image-label" in body else models.Image,
            "plate": models.HCS,
            "well": models.Well,
            "labels": models.Labels,
            "bioformats2raw.layout": models.BioFormats2Raw,
        }
        for key in NODES:
            if key in body:
                counts[key] += 1
                if key in classes:
                    classes[key].from_zarr(group)
    return counts


@pytest.fixture(params=["0.5", "0.4"])
def version(request):
    return request.param


# zarr warns of OME/METADATA.ome.xml, the validator of a plate without a version and of what it calls legacy layouts
@pytest.mark.filterwarnings("ignore:Object at", "ignore:'version' field", "ignore::UserWarning")
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_group_passes_the_validators(name, version, tmp_path, export):
    case = CASES[name]
    target = tmp_path / "out.ome.zarr"
    export(case.data, target, "--ngff", version)
    counts = validate(target, version)
    info = case.expected["info"]
    assert counts["multiscales"] == len(info["images"])
    assert counts["plate"] == (LAYOUTS[name] == "plate")
    assert counts["bioformats2raw.layout"] == (LAYOUTS[name] == "collection")
    assert counts["series"] == counts["bioformats2raw.layout"]
    if name == "v3-labels":
        assert counts["labels"] == 1
    if LAYOUTS[name] == "plate":
        assert counts["well"] == len(info["plate"]["wells"])


@pytest.mark.filterwarnings("ignore:Object at", "ignore::UserWarning")
@pytest.mark.parametrize("name", LAYOUTS)
def test_yaozarrs_accepts_the_store_and_its_documents(name, version, tmp_path, export):
    target = tmp_path / "out.ome.zarr"
    export(CASES[name].data, target, "--ngff", version)
    if version == "0.5":
        yaozarrs.validate_zarr_store(str(target))
    checked = 0
    for body in documents(target, version).values():
        if any(key in body for key in ("multiscales", "plate", "well")):
            yaozarrs.validate_ome_object({"ome": body} if version == "0.5" else body)
            checked += 1
    assert checked


@pytest.mark.parametrize("name", LAYOUTS)
def test_arrays_name_their_axes_and_zarr_accepts_every_document(name, version, tmp_path, export):
    target = tmp_path / "out.ome.zarr"
    export(CASES[name].data, target, "--ngff", version)
    count = 0
    for path, body in documents(target, version).items():
        for entry in body.get("multiscales", ()):
            axes = [axis["name"] for axis in entry["axes"]]
            assert axes == [a for a in "tczyx" if a in axes]
            for dataset in entry["datasets"]:
                array = zarr.open_array(target / path / dataset["path"], mode="r")
                assert array.ndim == len(axes)
                if version == "0.5":
                    assert list(array.metadata.dimension_names) == axes
                kinds = [step["type"] for step in dataset["coordinateTransformations"]]
                assert kinds in (["scale"], ["scale", "translation"])
                count += 1
    assert count


def test_chunk_keys_of_both_versions(make, tmp_path, export):
    source = make.image(tmp_path / "a.ome.zarr", [make.noise((2, 3, 4))], "zyx")
    export(source, tmp_path / "5.ome.zarr", "--shards", "none")
    export(source, tmp_path / "4.ome.zarr", "--ngff", "0.4")
    assert (tmp_path / "5.ome.zarr" / "0" / "c" / "0" / "0" / "0").is_file()
    assert (tmp_path / "4.ome.zarr" / "0" / "0" / "0" / "0").is_file()
    assert (
        json.loads((tmp_path / "4.ome.zarr" / "0" / ".zarray").read_text())["dimension_separator"]
        == "/"
    )


def test_ome_xml_of_a_collection_is_valid_and_points_nowhere(tmp_path, export):
    ome_types = pytest.importorskip("ome_types")
    target = tmp_path / "out.ome.zarr"
    export(CASES["two-images"].data, target)
    text = (target / "OME" / "METADATA.ome.xml").read_text(encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ome = ome_types.from_xml(text)
    assert len(ome.images) == 2
    assert all(image.pixels.metadata_only for image in ome.images)
    assert not any(image.pixels.tiff_data_blocks for image in ome.images)
