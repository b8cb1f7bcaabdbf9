"""The source's own OME-XML in an export of an OME-TIFF, and what the report says of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tifffile
from lxml import etree

NAMESPACE = "{http://www.openmicroscopy.org/Schemas/OME/2016-06}"
SCHEMAS = "http://www.openmicroscopy.org/Schemas"
BODY = (
    '<Experimenter ID="Experimenter:1" LastName="Quill"/><Instrument ID="Instrument:1"><Detector ID="Detector:1" '
    'Model="tube"/><OTF ID="OTF:1" Type="uint8" SizeX="1" SizeY="1" OpticalAxisAveraged="true"/></Instrument>'
    '<Image ID="Image:0" Name="cells"><InstrumentRef ID="Instrument:1"/><Pixels ID="Pixels:0" DimensionOrder="XYCZT" '
    'Type="uint8" SizeX="24" SizeY="16" SizeZ="1" SizeC="{samples}" SizeT="1" PhysicalSizeX="0.5" PhysicalSizeZ="0">'
    '<Channel ID="Channel:0" SamplesPerPixel="{samples}"/><TiffData/></Pixels></Image><ROI:ROI ID="ROI:1"><ROI:Union>'
    '<ROI:Shape ID="Shape:1"><ROI:Rect X="1.5" Y="2" Width="3" Height="4"/></ROI:Shape></ROI:Union></ROI:ROI>'
)


def tiff(path, version="2010-06", samples=1):
    """An OME-TIFF of one plane whose document is of an earlier schema, with regions and an OTF."""
    xml = (
        f'<OME xmlns="{SCHEMAS}/OME/{version}" xmlns:ROI="{SCHEMAS}/ROI/{version}">'
        f"{BODY.format(samples=samples)}</OME>"
    )
    shape = (16, 24) if samples == 1 else (16, 24, samples)
    values = np.arange(np.prod(shape), dtype="uint8").reshape(shape)
    tifffile.imwrite(
        path,
        values,
        description=xml,
        metadata=None,
        photometric="minisblack" if samples == 1 else "rgb",
    )
    return path


def stored(target):
    return etree.parse(target / "OME" / "METADATA.ome.xml").getroot()


@pytest.mark.parametrize("way", [(), ("--ngff", "0.4")])
def test_an_earlier_schema_is_carried_and_what_has_no_place_is_reported(
    way, tmp_path, export, command
):
    source, target = tiff(tmp_path / "a.ome.tif"), tmp_path / "a.ome.zarr"
    report = export(source, target, *way)
    assert report["not_carried"] == ["OME-XML: OTF (1)"]
    root = stored(target)
    assert root.find(f"{NAMESPACE}Experimenter").get("LastName") == "Quill"
    assert root.find(f".//{NAMESPACE}Rectangle").get("X") == "1.5"
    assert root.find(f".//{NAMESPACE}Pixels").find(f"{NAMESPACE}MetadataOnly") is not None
    before, after = (command("info", path)["images"][0] for path in (source, target))
    for name in ("name", "physical_size", "channels", "instrument", "acquired_at"):
        assert before[name] == after[name]
    again = export(target, tmp_path / "b.ome.zarr", *way)
    assert "not_carried" not in again
    assert etree.tostring(stored(tmp_path / "b.ome.zarr")) == etree.tostring(root)


def test_an_archive_has_the_same_document(tmp_path, export):
    source = tiff(tmp_path / "a.ome.tif")
    assert export(source, tmp_path / "a.ozx")["not_carried"] == ["OME-XML: OTF (1)"]


def test_an_export_that_needs_another_document_tells_what_it_leaves_behind(tmp_path, export):
    source, target = tiff(tmp_path / "a.ome.tif", samples=3), tmp_path / "a.ome.zarr"
    report = export(source, target)
    lost = dict(text.removeprefix("OME-XML: ").rsplit(" ", 1) for text in report["not_carried"])
    assert lost["Experimenter"] == lost["ROI"] == lost["OTF"] == "(1)"
    assert "Detector" not in lost
    assert json.loads((target / "zarr.json").read_text())["attributes"]["openreadout"]["image"][
        "instrument"
    ]["detectors"]
