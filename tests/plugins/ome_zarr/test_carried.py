"""What the exporter keeps beside NGFF comes back, and is not trusted."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from openreadout.registry import open_dataset
from openreadout_ome_zarr.carried import carried_image

OMERO = {
    "channels": [
        {
            "label": "made up",
            "color": "FFFFFF",
            "window": {"min": 0, "max": 9, "start": 0, "end": 9},
        }
    ]
}


def opened(tmp_path, make, block, version=1, **more):
    attributes = {"omero": OMERO, "openreadout": {"version": version, "image": block}}
    make.image(tmp_path, attributes=attributes, **more)
    return open_dataset(str(tmp_path))


def test_channels_come_back_as_the_source_had_them(tmp_path, make):
    channel = {
        "name": "DAPI", "color": None, "fluorophore": "dye", "excitation_nm": 405.5, "emission_nm": 460,
        "exposure_s": 0.25, "window": None, "extra": {"mode": "x"},
    }  # fmt: skip
    (image,) = opened(tmp_path, make, {"channels": [channel]}).images
    (found,) = image.channels
    assert (found.name, found.color, found.window) == ("DAPI", None, None)
    assert (found.fluorophore, found.excitation_nm, found.emission_nm, found.exposure_s) == (
        "dye",
        405.5,
        460,
        0.25,
    )
    assert found.extra == {"mode": "x"}


def test_optics_and_date_come_back(tmp_path, make):
    block = {
        "name": "n",
        "objective": {"na": 1.4},
        "instrument": {"model": "M"},
        "acquired_at": "2020-01-01T00:00:00",
    }
    (image,) = opened(tmp_path, make, block).images
    assert image.name == "n"
    assert (image.objective, image.instrument) == ({"na": 1.4}, {"model": "M"})
    assert image.acquired_at == "2020-01-01T00:00:00"
    assert image.channels[0].name == "made up"


def test_extra_tells_of_the_source_and_structure_of_the_store(tmp_path, make):
    block = {
        "extra": {
            "group": "elsewhere",
            "ngff_version": "9",
            "well": "Z/9",
            "label": True,
            "stage": [1, 2],
        }
    }
    (image,) = opened(tmp_path, make, block, scale=[1, 1]).images
    assert image.extra["group"] == "/"
    assert image.extra["ngff_version"] == "0.4"
    assert image.extra["stage"] == [1, 2]
    assert image.extra["well"] == "Z/9"  # where the source had the image, which an export keeps
    assert "label" not in image.extra
    assert "scale" not in image.extra


def test_position_of_an_exported_part_is_that_of_the_store(tmp_path, make):
    entry = make.multiscale()
    entry["datasets"][0]["coordinateTransformations"].append(
        {"type": "translation", "translation": [2, 3]}
    )
    opened(tmp_path, make, {"extra": {}})
    make.put(
        tmp_path,
        ".zattrs",
        {"multiscales": [entry], "openreadout": {"version": 1, "image": {"extra": {}}}},
    )
    (image,) = open_dataset(str(tmp_path)).images
    assert image.extra["translation"] == [2, 3]
    assert image.extra["origin_um"] == {"x": 3.0, "y": 2.0}


def test_wrong_types_are_left_out_with_a_note(tmp_path, make):
    block = {
        "name": 3, "objective": [], "instrument": "x", "acquired_at": {}, "channels": [{"name": [], "exposure_s": "1"}],
        "extra": "y",
    }  # fmt: skip
    dataset = opened(tmp_path, make, block)
    (image,) = dataset.images
    assert (image.name, image.objective, image.instrument, image.acquired_at) == (
        None,
        None,
        None,
        None,
    )
    assert image.channels[0].name is None
    assert any("objective" in note and "exposure_s" in note for note in dataset.notes)


def test_other_version_is_not_read(tmp_path, make):
    (image,) = opened(tmp_path, make, {"name": "n"}, version=2).images
    assert image.name is None


def test_plate_facts_come_back(tmp_path, make):
    make.image(tmp_path, group="A/1/0")
    make.put(tmp_path, "A/1/.zattrs", {"well": {"images": [{"path": "0"}]}})
    carried = {"version": 1, "plate": {"extra": {"barcode": "x"}}}
    make.put(tmp_path, ".zattrs", {"plate": {"wells": [{"path": "A/1"}]}, "openreadout": carried})
    dataset = open_dataset(str(tmp_path))
    assert dataset.plate.extra == {"barcode": "x"}
    assert (dataset.plate.rows, dataset.plate.columns) == (("A",), ("1",))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from("name channels extra window objective color image min".split()), inner, max_size=4
    ),
    max_leaves=15,
)  # fmt: skip


@given(JSON)
def test_any_block_gives_clean_values_or_none(block):
    found = carried_image({"openreadout": {"version": 1, "image": block}})
    if found is not None:
        json.dumps([dict(found.extra), found.objective, found.name], allow_nan=False).encode()
