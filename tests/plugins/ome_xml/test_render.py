"""Documents that are written: valid 2016-06, and the same when read back."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from lxml import etree

from openreadout.model import Axis, Channel, Image, Plate, ResolutionLevel, Well
from openreadout_ome_xml import parse_ome_xml, render_ome_xml

NAMESPACE = "{http://www.openmicroscopy.org/Schemas/OME/2016-06}"
PIXELS_ORDER = ["Channel", "BinData", "TiffData", "MetadataOnly", "Plane", "AnnotationRef"]
"""The order of children that the schema demands."""


@dataclass(frozen=True)
class Shape:
    shape: tuple[int, ...]
    dtype: str = "uint16"


def image(shape=(2, 3, 4, 5, 6), axes="tczyx", dtype="uint16", scale=None, units=None, **options):
    units = units or {}
    return Image(
        name=options.pop("name", "im"),
        axes=tuple(Axis(letter, units.get(letter)) for letter in axes),
        levels=(
            ResolutionLevel(
                "0", Shape(shape, dtype), scale or (None,) * len(axes), (None,) * len(axes)
            ),
        ),
        **options,
    )


def schema():
    """The 2016-06 schema, when the package that ships it is installed."""
    ome_types = pytest.importorskip("ome_types")
    from pathlib import Path

    files = sorted(Path(ome_types.__file__).parent.rglob("ome*2016*06*.xsd"))
    if not files:
        pytest.skip("the installed ome_types does not ship the schema")
    return etree.XMLSchema(etree.parse(files[0]))


def full_image():
    return image(
        name="cells <1> & more",
        scale=(0.5, None, 2.0, 0.25, 0.25),
        units={"t": "second", "z": "micrometer", "y": "nanometer", "x": "micrometer"},
        channels=(
            Channel("DAPI", "#0000FF", "DAPI", 405.0, 450.5, 0.1),
            Channel("GFP", "#00FF00", extra={"acquisition_mode": "SpinningDiskConfocal"}),
            Channel(),
        ),
        objective={"model": "Plan", "lens_na": 1.4, "immersion": "Oil", "nominal_magnification": 63.0,
                   "settings": {"medium": "Oil", "refractive_index": 1.5}},
        instrument={"microscope": {"type": "Inverted", "model": "M"}, "detectors": [{"type": "CMOS"}]},
        acquired_at="2020-01-02T03:04:05",
    )  # fmt: skip


def test_what_is_written_reads_back():
    source = full_image()
    found = parse_ome_xml(render_ome_xml([source])).images[0]
    assert found.name == source.name
    assert (found.size_x, found.size_y, found.size_z, found.size_c, found.size_t) == (6, 5, 4, 3, 2)
    assert found.physical_size == {
        "x": (0.25, "micrometer"),
        "y": (0.25, "nanometer"),
        "z": (2.0, "micrometer"),
    }
    assert found.time_increment == (0.5, "second")
    assert [c.channel for c in found.channels] == list(source.channels)
    assert found.objective["lens_na"] == 1.4
    assert found.objective["settings"] == {"medium": "Oil", "refractive_index": 1.5}
    assert found.instrument["microscope"] == {"type": "Inverted", "model": "M"}
    assert found.acquired_at == source.acquired_at


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("bool", "bit"), ("uint8", "uint8"), ("int32", "int32"), ("float16", "float"), ("float32", "float"),
     ("float64", "double"), ("complex64", "complex"), ("complex128", "double-complex")],
)  # fmt: skip
def test_pixel_types(dtype, name):
    assert parse_ome_xml(render_ome_xml([image(dtype=dtype)])).images[0].pixel_type == name


def test_colour_images_count_samples_in_size_c():
    found = parse_ome_xml(render_ome_xml([image((1, 2, 1, 5, 6, 3), "tczyxs", "uint8")])).images[0]
    assert found.size_c == 6
    assert [channel.samples_per_pixel for channel in found.channels] == [3, 3]


def test_names_that_xml_forbids_are_written_without_the_bad_characters():
    assert (
        parse_ome_xml(render_ome_xml([image(name="a\x00b\x1fc\ud800d")])).images[0].name == "abcd"
    )


def test_plates_read_back():
    plate = Plate(
        "P", ("A", "B"), ("1", "2"), (Well("B/2", "B", "2", (1, 0)), Well("A/1", "A", "1", (2,)))
    )
    found = parse_ome_xml(render_ome_xml([image()] * 3, plate)).model_plate()
    assert (found.name, found.rows, found.columns) == ("P", ("A", "B"), ("1", "2"))
    assert {(well.path, well.images) for well in found.wells} == {("A/1", (2,)), ("B/2", (1, 0))}


def check_pixels(data):
    """Every Pixels has MetadataOnly, nothing that holds pixels, and its children in the schema's order."""
    for pixels in etree.fromstring(data).iter(f"{NAMESPACE}Pixels"):
        names = [etree.QName(child).localname for child in pixels]
        assert names.count("MetadataOnly") == 1
        assert not {"TiffData", "BinData"} & set(names)
        assert [PIXELS_ORDER.index(name) for name in names] == sorted(
            map(PIXELS_ORDER.index, names)
        )


def test_written_documents_keep_the_order_of_the_schema():
    check_pixels(render_ome_xml([full_image(), image()]))


def test_written_documents_are_valid():
    plate = Plate("P", ("A",), ("1",), (Well("A/1", "A", "1", (0,)),))
    checker = schema()
    for data in (
        render_ome_xml([full_image(), image()], plate),
        render_ome_xml([image(dtype="bool")]),
    ):
        checker.assertValid(etree.fromstring(data))
