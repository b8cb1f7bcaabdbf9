"""Plates, collections, labels, and groups below a root without metadata."""

from __future__ import annotations

import json

import pytest

from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.registry import open_dataset


def groups(dataset) -> list[str]:
    return [image.extra["group"] for image in dataset.images]


def plate(root, make, wells, block=None):
    """A plate; `wells` maps well paths to their fields."""
    listed = [{"path": path, "rowIndex": 0, "columnIndex": n} for n, path in enumerate(wells)]
    columns = [{"name": path.partition("/")[2]} for path in wells]
    body = {
        "version": "0.4",
        "name": "P",
        "rows": [{"name": "A"}],
        "columns": columns,
        "wells": listed,
    }
    make.put(root, ".zgroup", {"zarr_format": 2})
    make.put(root, ".zattrs", {"plate": body | (block or {})})
    for path, fields in wells.items():
        images = [f if isinstance(f, dict) else {"path": f} for f in fields]
        make.put(root, f"{path}/.zgroup", {"zarr_format": 2})
        make.put(root, f"{path}/.zattrs", {"well": {"version": "0.4", "images": images}})
        for field in images:
            make.image(root, group=f"{path}/{field['path']}")


# -- plates ------------------------------


def test_plate(tmp_path, make, codes):
    acquisitions = [{"id": 5, "name": "first"}]
    plate(
        tmp_path,
        make,
        {"A/1": [{"path": "0", "acquisition": 5}], "A/2": ["0", "7"]},
        {"acquisitions": acquisitions},
    )
    dataset = open_dataset(str(tmp_path))
    assert codes(dataset) == []
    assert groups(dataset) == ["A/1/0", "A/2/0", "A/2/7"]
    assert [image.name for image in dataset.images] == ["A/1/0", "A/2/0", "A/2/7"]
    first = dataset.images[0].extra
    assert {key: first[key] for key in ("well", "field", "row", "column", "acquisition")} == {
        "well": "A/1", "field": "0", "row": "A", "column": "1", "acquisition": 5,
    }  # fmt: skip
    assert "acquisition" not in dataset.images[1].extra
    assert [(well.path, well.images) for well in dataset.plate.wells] == [
        ("A/1", (0,)),
        ("A/2", (1, 2)),
    ]
    assert (dataset.plate.name, dataset.plate.rows, dataset.plate.columns) == (
        "P",
        ("A",),
        ("1", "2"),
    )
    assert list(dataset.plate.acquisitions) == acquisitions


def test_wells_and_fields_that_are_not_there_are_left_out(tmp_path, make, codes):
    plate(tmp_path, make, {"A/1": ["0"], "A/2": ["0", "gone"], "A/3": ["0"]})
    (tmp_path / "A/1/.zattrs").unlink()
    (tmp_path / "A/1/.zgroup").unlink()
    (tmp_path / "A/2/gone/.zattrs").unlink()
    (tmp_path / "A/2/gone/.zgroup").unlink()
    (tmp_path / "A/3/.zattrs").write_text('{"well": ')
    dataset = open_dataset(str(tmp_path))
    assert groups(dataset) == ["A/2/0"]
    assert codes(dataset) == [("metadata", "warning")] * 3
    assert [well.path for well in dataset.plate.wells] == ["A/2"]
    assert len(dataset.notes) == 3
    assert all("left out" in note for note in dataset.notes)


def test_field_with_a_damaged_array_is_an_error(tmp_path, make, codes):
    plate(tmp_path, make, {"A/1": ["0", "1"]})
    (tmp_path / "A/1/1/0/.zarray").write_text("{")
    dataset = open_dataset(str(tmp_path))
    assert groups(dataset) == ["A/1/0"]
    assert codes(dataset) == [("array_metadata", "error")]
    assert dataset.findings[0].location == "A/1/1/0/.zarray"


def test_plate_without_a_readable_field_is_corrupt(tmp_path, make):
    plate(tmp_path, make, {"A/1": ["0"]})
    (tmp_path / "A/1/0/0/.zarray").unlink()
    with pytest.raises(CorruptDataError, match="none of the images") as caught:
        open_dataset(str(tmp_path))
    assert caught.value.finding == "array_metadata"


def test_well_listed_twice_counts_once(tmp_path, make):
    plate(tmp_path, make, {"A/1": ["0", "0"]}, {"wells": [{"path": "A/1"}, {"path": "/A/1/"}]})
    assert groups(open_dataset(str(tmp_path))) == ["A/1/0"]


@pytest.mark.parametrize("path", ["../A/1", None, 3, "", "/", ["A"], "A\0/1"])
def test_well_paths_that_are_none(tmp_path, make, codes, path):
    plate(tmp_path, make, {"A/1": ["0"]}, {"wells": [{"path": path}, {"path": "A/1"}]})
    dataset = open_dataset(str(tmp_path))
    assert groups(dataset) == ["A/1/0"]
    assert codes(dataset) == [("metadata", "warning")]


def test_wells_deeper_down(tmp_path, make):
    plate(tmp_path, make, {"0/A/1": ["Field_1"]})
    dataset = open_dataset(str(tmp_path))
    assert groups(dataset) == ["0/A/1/Field_1"]
    assert (dataset.images[0].extra["row"], dataset.images[0].extra["column"]) == ("A", "1")


def test_well_alone(tmp_path, make):
    plate(tmp_path, make, {"A/1": ["0", "1"]})
    assert groups(open_dataset(str(tmp_path / "A/1"))) == ["0", "1"]


def test_row_alone_shows_the_images_below_it(tmp_path, make):
    plate(tmp_path, make, {"A/1": ["0"], "A/10": ["0"], "A/2": ["0"]})
    make.put(tmp_path, "A/.zgroup", {"zarr_format": 2})
    assert groups(open_dataset(str(tmp_path / "A"))) == ["1/0", "2/0", "10/0"]


def test_hundreds_of_missing_wells_give_few_notes_and_all_findings(tmp_path, make):
    wells = [{"path": f"A/{n}"} for n in range(300)]
    plate(tmp_path, make, {"A/1": ["0"]}, {"wells": wells})
    dataset = open_dataset(str(tmp_path))
    assert len(dataset.findings) == 299
    assert len(dataset.notes) < 30


# -- collections ------------------------------


XML = """<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">
<Instrument ID="Instrument:0"><Objective ID="Objective:0" NominalMagnification="40"/></Instrument>
<Image ID="Image:0" Name="first"><AcquisitionDate>2020-01-02T03:04:05</AcquisitionDate>
<ObjectiveSettings ID="Objective:0"/>
<Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16" SizeX="6" SizeY="4" SizeZ="1" SizeC="1" SizeT="1"
 PhysicalSizeX="0.25" PhysicalSizeXUnit="µm" PhysicalSizeY="500" PhysicalSizeYUnit="nm">
<Channel ID="Channel:0:0" Name="GFP" EmissionWavelength="509"/><MetadataOnly/></Pixels></Image>
<Image ID="Image:1" Name="second"><Pixels ID="Pixels:1" DimensionOrder="XYZCT" Type="uint16" SizeX="6" SizeY="4"
 SizeZ="1" SizeC="1" SizeT="1"><Channel ID="Channel:1:0"/><MetadataOnly/></Pixels></Image></OME>"""


def collection(root, make, paths, listed=None, xml=None, layout=3, **more):
    make.put(root, ".zgroup", {"zarr_format": 2})
    make.put(root, ".zattrs", {"bioformats2raw.layout": layout})
    for path in paths:
        make.image(root, group=path, **more)
    if listed is not None:
        make.put(root, "OME/.zgroup", {"zarr_format": 2})
        make.put(root, "OME/.zattrs", {"series": listed})
    if xml is not None:
        make.put(root, "OME/METADATA.ome.xml", xml)


def test_series_are_in_the_order_that_is_listed(tmp_path, make):
    collection(tmp_path, make, ["a", "b"], ["b", "a"])
    dataset = open_dataset(str(tmp_path))
    assert groups(dataset) == ["b", "a"]
    assert [image.extra["series"] for image in dataset.images] == [0, 1]
    assert dataset.plate is None


def test_series_that_are_not_listed_are_counted_up(tmp_path, make):
    collection(tmp_path, make, ["0", "1", "3"])
    assert groups(open_dataset(str(tmp_path))) == ["0", "1"]


def test_ome_xml_names_and_describes_the_series(tmp_path, make):
    collection(tmp_path, make, ["0", "1"], ["0", "1"], XML, axes=make.axes("yx", None))
    dataset = open_dataset(str(tmp_path))
    first, second = dataset.images
    assert (first.name, second.name) == ("first", "second")
    assert first.physical_size == {"x": 0.25, "y": 0.5, "z": None}
    assert (first.channels[0].name, first.channels[0].emission_nm) == ("GFP", 509)
    assert first.acquired_at.startswith("2020-01-02T03:04:05")
    assert first.objective is not None
    assert second.physical_size is None
    assert "<OME" in dataset.source_xml


def test_scale_of_ngff_counts_before_ome_xml(tmp_path, make):
    collection(tmp_path, make, ["0", "1"], None, XML, scale=[3, 3])
    assert open_dataset(str(tmp_path)).images[0].physical_size["x"] == 3.0


def test_ome_xml_scales_lower_levels_in_proportion(tmp_path, make):
    collection(tmp_path, make, ["0"], ["0"], XML)
    entry = {"version": "0.2", "datasets": [{"path": "0"}, {"path": "1"}]}
    make.put(tmp_path, "0/.zattrs", {"multiscales": [entry]})
    make.put(tmp_path, "0/0/.zarray", make.zarray((1, 1, 1, 4, 6)))
    make.put(tmp_path, "0/1/.zarray", make.zarray((1, 1, 1, 2, 3)))
    levels = open_dataset(str(tmp_path)).images[0].levels
    assert [level.scale[4] for level in levels] == [0.25, 0.5]


@pytest.mark.parametrize(
    "xml", ["<OME", "", "<!DOCTYPE x [<!ENTITY a 'b'>]><OME>&a;</OME>", b"\xff\xfe\x00"]
)
def test_damaged_ome_xml_is_a_warning(tmp_path, make, codes, xml):
    collection(tmp_path, make, ["0"], ["0"], xml)
    dataset = open_dataset(str(tmp_path))
    assert groups(dataset) == ["0"]
    assert codes(dataset) in ([("metadata", "warning")], [])


def test_first_layout_has_its_xml_beside_the_store(tmp_path, make):
    collection(tmp_path / "data.zarr", make, ["0"], layout=1)
    make.put(tmp_path, "METADATA.ome.xml", XML)
    assert open_dataset(str(tmp_path / "data.zarr")).images[0].name == "first"


def test_series_that_is_not_there_is_a_warning(tmp_path, make, codes):
    collection(tmp_path, make, ["0"], ["0", "gone", "../x", None, 3])
    dataset = open_dataset(str(tmp_path))
    assert groups(dataset) == ["0"]
    assert set(codes(dataset)) == {("metadata", "warning")}


def test_empty_collection_is_refused(tmp_path, make):
    collection(tmp_path, make, [])
    with pytest.raises(UnsupportedFeatureError):
        open_dataset(str(tmp_path))


# -- labels ------------------------------


def label(root, make, group, block=None, **more):
    attributes = {"image-label": block} if block is not None else {}
    make.image(root, group=group, attributes=attributes, **more)


def test_labels_come_after_all_images(tmp_path, make, codes):
    collection(tmp_path, make, ["0", "1"])
    for series in "01":
        make.put(tmp_path, f"{series}/labels/.zattrs", {"labels": ["cells", "cells", "nuclei"]})
        label(
            tmp_path,
            make,
            f"{series}/labels/cells",
            {"colors": [{"label-value": 1, "rgba": [1, 2, 3, 4]}]},
        )
        label(tmp_path, make, f"{series}/labels/nuclei")
    dataset = open_dataset(str(tmp_path))
    names = [f"{series}/labels/{name}" for series in "01" for name in ("cells", "nuclei")]
    assert groups(dataset) == ["0", "1", *names]
    assert [image.name for image in dataset.images[2:]] == names
    assert [image.label for image in dataset.images] == [False, False, True, True, True, True]
    assert [image.label_of for image in dataset.images[2:]] == [0, 0, 1, 1]
    assert dataset.images[2].extra["label_of"] == 0
    assert dataset.images[2].extra["image_label"] == {
        "colors": [{"label-value": 1, "rgba": [1, 2, 3, 4]}]
    }
    assert dataset.images[0].extra["labels"] == ["cells", "nuclei"]
    assert codes(dataset) == []


def test_labels_of_a_plate_root_annotate_nothing(tmp_path, make):
    plate(tmp_path, make, {"A/1": ["0"]})
    make.put(tmp_path, "labels/.zattrs", {"labels": ["all"]})
    label(tmp_path, make, "labels/all")
    image = open_dataset(str(tmp_path)).images[1]
    assert image.extra["label"] is True
    assert image.label_of is None
    assert "label_of" not in image.extra


def test_labels_that_are_not_there_are_left_out(tmp_path, make, codes):
    make.image(tmp_path)
    make.put(tmp_path, "labels/.zattrs", {"labels": ["gone", "../..", "cells", {"a": 1}, 5]})
    label(tmp_path, make, "labels/cells")
    dataset = open_dataset(str(tmp_path))
    assert groups(dataset) == ["/", "labels/cells"]
    assert codes(dataset) == [("metadata", "warning")] * 4


def test_labels_document_that_is_damaged_is_a_warning(tmp_path, make, codes):
    make.image(tmp_path)
    make.put(tmp_path, "labels/.zattrs", "{")
    assert codes(open_dataset(str(tmp_path))) == [("metadata", "warning")]


def test_labels_of_zarr_3(tmp_path, make):
    ome = {"version": "0.5", "multiscales": [make.multiscale()]}
    make.put(tmp_path, "zarr.json", make.group_json(ome))
    make.put(tmp_path, "0/zarr.json", make.array_json((4, 6)))
    make.put(tmp_path, "labels/zarr.json", make.group_json({"version": "0.5", "labels": ["m"]}))
    make.put(tmp_path, "labels/m/zarr.json", make.group_json({**ome, "image-label": {}}))
    make.put(tmp_path, "labels/m/0/zarr.json", make.array_json((4, 6), data_type="int64"))
    image = open_dataset(str(tmp_path)).images[1]
    assert (image.label, image.dtype, image.name) == (True, "int64", "labels/m")


# -- several multiscales, groups further down ------------------------------


def test_every_multiscales_entry_is_an_image(tmp_path, make):
    make.image(tmp_path)
    entries = [make.multiscale(name="a"), make.multiscale(name="b", type="gaussian")]
    make.put(tmp_path, ".zattrs", {"multiscales": entries})
    dataset = open_dataset(str(tmp_path))
    assert [image.name for image in dataset.images] == ["a", "b"]
    assert dataset.images[1].extra["downsampling"] == "gaussian"


def test_images_below_a_plain_root_are_found_in_natural_order(tmp_path, make):
    make.put(tmp_path, ".zgroup", {"zarr_format": 2})
    for path in ("run10", "run9", "deep/er/x"):
        make.image(tmp_path, group=path)
    dataset = open_dataset(str(tmp_path))
    assert groups(dataset) == ["deep/er/x", "run9", "run10"]
    assert any("groups below" in note for note in dataset.notes)


def test_chunks_of_plain_arrays_are_not_searched(tmp_path, make, monkeypatch):
    make.put(tmp_path, ".zgroup", {"zarr_format": 2})
    make.put(tmp_path, "a/.zarray", make.zarray((4, 4), (1, 1)))
    make.put(tmp_path, "a/0/0/.zattrs", json.dumps({"multiscales": []}))
    with pytest.raises(UnsupportedFeatureError, match="no image metadata"):
        open_dataset(str(tmp_path))


def test_structure_names_the_kinds(tmp_path, make):
    plate(tmp_path, make, {"A/1": ["0"]})
    make.put(tmp_path, "A/1/0/labels/.zattrs", {"labels": ["m"]})
    label(tmp_path, make, "A/1/0/labels/m", {})
    tree = open_dataset(str(tmp_path)).structure()
    kinds = []
    while True:
        kinds.append(tree["kind"])
        if "children" not in tree:
            break
        tree = tree["children"][-1]
    assert kinds == ["plate", "group", "well", "image", "labels", "label", "array"]
    assert tree["shape"] == [4, 6]
