"""OME-XML of every schema, in every encoding that writers leave behind, and documents that mean harm."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time

import pytest
from lxml import etree

from openreadout.errors import CorruptDataError
from openreadout_ome_xml import parse_ome_xml

SCHEMAS = [
    "2008-02",
    "2008-09",
    "2009-09",
    "2010-04",
    "2010-06",
    "2011-06",
    "2012-06",
    "2013-06",
    "2015-01",
    "2016-06",
]


def namespace(version="2016-06"):
    return f"http://www.openmicroscopy.org/Schemas/OME/{version}"


def document(
    pixels='PhysicalSizeX="0.5"',
    inside="",
    image="",
    around="",
    version="2016-06",
    declaration="",
    root="",
):
    return (
        f'{declaration}<OME xmlns="{namespace(version)}" {root}><Image ID="Image:0" Name="im">{image}'
        f'<Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint8" SizeX="4" SizeY="3" SizeZ="1" SizeC="1" SizeT="2"'
        f" {pixels}>{inside}</Pixels></Image>{around}</OME>"
    )


def first(text):
    data = text if isinstance(text, bytes) else text.encode()
    return parse_ome_xml(data).images[0]


@pytest.mark.parametrize("version", SCHEMAS)
def test_sizes_without_a_unit_are_micrometres_in_every_schema(version):
    found = parse_ome_xml(document(version=version).encode())
    assert found.version == version
    assert found.images[0].physical_size == {"x": (0.5, "micrometer")}


@pytest.mark.parametrize(
    ("unit", "name"),
    [
        ("\u00b5m", "micrometer"), ("\u03bcm", "micrometer"), ("um", "micrometer"), ("&#181;m", "micrometer"),
        ("nm", "nanometer"), ("mm", "millimeter"), ("\u00c5", "angstrom"), ("in", "inch"), ("m", "meter"),
        ("pm", "picometer"),
        ("dam", "decameter"), ("li", "line"), ("thou", "thou"), ("pt", "point"), ("ua", "astronomical unit"),
        ("ly", "light year"), ("pc", "parsec"), ("ft", "foot"), ("yd", "yard"), ("mi", "mile"), ("km", "kilometer"),
    ],
)  # fmt: skip
def test_length_units(unit, name):
    assert first(document(f'PhysicalSizeX="2" PhysicalSizeXUnit="{unit}"')).physical_size == {
        "x": (2.0, name)
    }


@pytest.mark.parametrize("unit", ["pixel", "reference frame", "furlong", ""])
def test_units_that_are_no_length_keep_their_raw_numbers(unit):
    image = first(document(f'PhysicalSizeX="2" PhysicalSizeXUnit="{unit}"'))
    assert image.physical_size == {}
    assert image.extra["raw_physical_size"] == {"x": [2.0, unit]}


@pytest.mark.parametrize(
    ("value", "unit", "seconds"),
    [
        ("250", "ms", 0.25),
        ("2", "min", 120.0),
        ("1.5", None, 1.5),
        ("3", "h", 10800.0),
        ("7", "\u00b5s", 7e-6),
    ],
)
def test_time_increment_and_exposure_units(value, unit, seconds):
    unit_text = f' TimeIncrementUnit="{unit}"' if unit else ""
    plane_unit = f' ExposureTimeUnit="{unit}"' if unit else ""
    plane = f'<Plane TheZ="0" TheC="0" TheT="0" ExposureTime="{value}"{plane_unit}/>'
    image = first(
        document(f'TimeIncrement="{value}"{unit_text}', f'<Channel ID="Channel:0:0"/>{plane}')
    )
    from openreadout.units import time_s

    number, name = image.time_increment
    assert number * time_s(name) == pytest.approx(seconds)
    assert image.channels[0].channel.exposure_s == pytest.approx(seconds)


def test_the_first_exposure_of_each_channel_counts():
    planes = "".join(
        f'<Plane TheZ="0" TheC="0" TheT="{t}"{exposure}/>'
        for t, exposure in enumerate(("", ' ExposureTime="0.2"', ' ExposureTime="0.4"'))
    )
    channel = first(document(inside=f'<Channel ID="c"/>{planes}')).channels[0].channel
    assert channel.exposure_s == 0.2
    assert channel.extra["exposure_s_range"] == [0.2, 0.4]


def micro(encoding=None):
    """A document with a micro sign, and a declaration of an encoding."""
    declaration = f'<?xml version="1.0" encoding="{encoding}"?>' if encoding else ""
    return document('PhysicalSizeXUnit="\u00b5m" PhysicalSizeX="0.5"', declaration=declaration)


ENCODED = {
    "latin1": micro().encode("latin-1"),
    "latin1 as utf8": micro("UTF-8").encode("latin-1"),
    "latin1 declared": micro("ISO-8859-1").encode("latin-1"),
    "utf8 as latin1": micro("ISO-8859-1").encode(),
    "utf16": micro("UTF-16").encode("utf-16"),
    "utf16 bare": micro().encode("utf-16-le"),
    "byte order mark": b"\xef\xbb\xbf" + micro().encode(),
    "comment": b"<!-- a comment <OME> --><?p i?>\n" + document().encode() + b"\r\n\0\0\0",
    "space": document(declaration='\n <?xml version="1.0"?>').encode() + b"\0",
}


@pytest.mark.parametrize("data", ENCODED.values(), ids=ENCODED)
def test_encodings_and_what_stands_around_the_document(data):
    assert first(data).physical_size == {"x": (0.5, "micrometer")}


def test_a_stray_byte_is_told():
    assert parse_ome_xml(micro().encode("latin-1")).repairs
    assert not parse_ome_xml(document().encode()).repairs


@pytest.mark.parametrize("bad", ["a & b", "bell \x07", "ref &#7;", "nul \0 inside"])
def test_what_can_be_mended_is_mended_and_told(bad):
    found = parse_ome_xml(document(image=f"<Description>{bad}</Description>").encode())
    assert found.repairs
    assert found.images[0].extra["description"].startswith(bad.split()[0])


def test_prefixes_go_by_namespace():
    text = document(inside='<Channel ID="c" Name="x"/>').replace("<OME xmlns=", "<OME xmlns:ome=")
    for name in ("OME", "Image", "Pixels", "Channel"):
        text = text.replace(f"<{name} ", f"<ome:{name} ").replace(f"</{name}>", f"</ome:{name}>")
    assert first(text).channels[0].channel.name == "x"


@pytest.mark.parametrize(
    ("number", "color"),
    [
        ("-16776961", "#FF0000"), ("16711935", "#00FF00"), ("65535", "#0000FF"), ("-1", "#FFFFFF"),
        ("4294967295", "#FFFFFF"), ("-2147483648", "#800000"), ("red", None), ("99999999999", None), ("", None),
    ],
)  # fmt: skip
def test_colours_are_signed_rgba(number, color):
    assert (
        first(document(inside=f'<Channel ID="c" Color="{number}"/>')).channels[0].channel.color
        == color
    )


def test_channel_objective_instrument_and_bands():
    hardware = (
        '<Instrument ID="Instrument:0"><Microscope Type="Inverted" Model="M"/><Laser ID="LightSource:0" Power="5"/>'
        '<Detector ID="Detector:0" Type="PMT"/><Objective ID="Objective:0" LensNA="1.4" NominalMagnification="63"'
        ' Immersion="Oil" WorkingDistance="0.19" WorkingDistanceUnit="mm"/><Filter ID="Filter:0">'
        '<TransmittanceRange CutIn="500" CutOut="550"/></Filter></Instrument>'
    )
    channel = (
        '<Channel ID="c" Name="A" Fluor="GFP" ExcitationWavelength="0.488" ExcitationWavelengthUnit="\u00b5m"'
        ' EmissionWavelength="509" AcquisitionMode="LaserScanningConfocalMicroscopy"><LightPath>'
        '<EmissionFilterRef ID="Filter:0"/></LightPath></Channel>'
    )
    image = first(
        document(
            image='<AcquisitionDate>2020-01-02T03:04:05</AcquisitionDate><InstrumentRef ID="Instrument:0"/>'
            '<ObjectiveSettings ID="Objective:0" Medium="Oil" RefractiveIndex="1.518"/>',
            inside=channel,
            around=hardware,
        )
    )
    found = image.channels[0].channel
    assert (found.fluorophore, found.excitation_nm, found.emission_nm) == ("GFP", 488.0, 509.0)
    assert found.extra["detection_band_nm"] == [500.0, 550.0]
    assert found.extra["acquisition_mode"] == "LaserScanningConfocalMicroscopy"
    assert image.objective["lens_na"] == 1.4
    assert image.objective["settings"] == {"medium": "Oil", "refractive_index": 1.518}
    assert image.instrument["microscope"] == {"type": "Inverted", "model": "M"}
    assert image.instrument["light_sources"][0]["kind"] == "Laser"
    assert image.acquired_at == "2020-01-02T03:04:05"
    json.dumps([image.objective, image.instrument, found.extra, image.extra])


def test_plate_wells_point_to_images_by_id():
    images = "".join(
        f'<Image ID="Image:{n}"><Pixels ID="Pixels:{n}" DimensionOrder="XYZCT" Type="uint8" SizeX="1" SizeY="1"'
        ' SizeZ="1" SizeC="1" SizeT="1"/></Image>'
        for n in range(3)
    )
    plate = (
        '<Plate ID="Plate:0" Name="P" Rows="2" Columns="3"><Well ID="w" Row="1" Column="2">'
        '<WellSample ID="s0" Index="4"><ImageRef ID="Image:0"/></WellSample>'
        '<WellSample ID="s1" Index="0"><ImageRef ID="Image:2"/></WellSample>'
        '<WellSample ID="s2" Index="1"><ImageRef ID="Image:99"/></WellSample></Well>'
        '<PlateAcquisition ID="PlateAcquisition:0" Name="run"/></Plate>'
    )
    found = parse_ome_xml(
        f'<OME xmlns="{namespace()}">{plate}{images}</OME>'.encode()
    ).model_plate()
    assert (found.name, found.rows, found.columns) == ("P", ("A", "B"), ("1", "2", "3"))
    (well,) = found.wells
    assert (well.path, well.images) == ("B/3", (2, 0))
    assert found.acquisitions[0]["name"] == "run"


def test_modulo_irregular_times_and_positions_are_kept():
    planes = "".join(
        f'<Plane TheZ="0" TheC="0" TheT="{t}" DeltaT="{d}" PositionX="{t}" PositionXUnit="\u00b5m"/>'
        for t, d in enumerate((0, 5))
    )
    modulo = (
        '<StructuredAnnotations><XMLAnnotation ID="Annotation:0" Namespace="openmicroscopy.org/omero/dimension/modulo">'
        '<Value><Modulo><ModuloAlongT Type="lifetime" Unit="ps" Start="0" End="100" Step="50"/></Modulo></Value>'
        "</XMLAnnotation></StructuredAnnotations>"
    )
    extra = first(document('TimeIncrement="2"', planes, around=modulo)).extra
    assert extra["modulo"]["t"] == {
        "type": "lifetime",
        "unit": "ps",
        "start": 0,
        "end": 100,
        "step": 50,
    }
    assert extra["delta_t_s"] == {"0": 0.0, "1": 5.0}
    assert len(extra["stage_positions"]) == 2
    regular = first(document('TimeIncrement="5"', planes)).extra
    assert "delta_t_s" not in regular


def test_tiff_data_is_read_as_written():
    uuid = '<UUID FileName="a.tif">urn:uuid:x</UUID>'
    inside = f'<TiffData/><TiffData IFD="3" PlaneCount="2" FirstZ="1">{uuid}</TiffData>'
    assert first(document(inside=inside)).tiff_data == (
        (None, None, 0, 0, 0, None, None),
        (3, 2, 1, 0, 0, "urn:uuid:x", "a.tif"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "", "\0\0", "<OME", "<OME>", "<html/>", "<OME></OMEX>", "plain text",
        document().replace('SizeX="4"', 'SizeX="-4"'), document().replace('SizeX="4"', 'SizeX="0"'),
        document().replace('SizeX="4"', 'SizeX="1e9999"'), document().replace('SizeX="4"', f'SizeX="{"9" * 400}"'),
        document().replace("XYZCT", "XYZ"), document().replace('SizeC="1"', 'SizeC="99999999"'),
        document(inside='<TiffData IFD="-1"/>'), document(inside='<TiffData PlaneCount="many"/>'),
        f'<OME xmlns="{namespace()}"><Plate ID="p"><Well ID="w" Row="99999999" Column="0"/></Plate></OME>',
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(text):
    with pytest.raises(CorruptDataError):
        parse_ome_xml(text.encode())


ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "x" * 10}">' for n in range(10))


@pytest.mark.parametrize(
    "prolog",
    [
        f"<!DOCTYPE OME [{ENTITIES}]>",
        '<!DOCTYPE OME [<!ENTITY e9 SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE OME SYSTEM "http://127.0.0.1:9/x.dtd" [<!ENTITY e9 "x">]>',
        '<?xml version="1.0"?><!-- c --><!doctype OME [<!ENTITY e9 "x">]>',
    ],
)
def test_document_types_and_entities_are_refused_at_once(prolog):
    start = time.perf_counter()
    with pytest.raises(CorruptDataError):
        parse_ome_xml((prolog + document(image="<Description>&e9;</Description>")).encode())
    assert time.perf_counter() - start < 2


def test_an_entity_nobody_declared_is_not_read_from_anywhere():
    with pytest.raises(CorruptDataError):
        parse_ome_xml(document(image="<Description>&passwd;</Description>").encode())


@pytest.mark.parametrize("depth", [300, 5000, 100_000])
def test_deep_nesting_ends_in_an_error_or_an_answer(depth):
    inside = "<a x='1'>" * depth + "</a>" * depth
    text = document(around=f'<Instrument ID="Instrument:0"><Detector ID="d">{inside}</Detector></Instrument>',
                    image='<InstrumentRef ID="Instrument:0"/>')  # fmt: skip
    with pytest.raises(CorruptDataError):
        parse_ome_xml(text.encode())


def test_a_hundred_thousand_planes_take_seconds():
    planes = "".join(
        f'<TiffData IFD="{n}" FirstT="{n}" PlaneCount="1"/>' for n in range(100_000)
    ) + "".join(f'<Plane TheZ="0" TheC="0" TheT="{n}" ExposureTime="0.1"/>' for n in range(100_000))
    text = document(inside=f'<Channel ID="c"/>{planes}').replace('SizeT="2"', 'SizeT="100000"')
    start = time.perf_counter()
    image = first(text)
    assert time.perf_counter() - start < 20
    assert (len(image.tiff_data), len(image.planes)) == (100_000, 100_000)


@pytest.mark.parametrize("part", [0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.98])
def test_a_cut_document_is_corrupt(part):
    data = document(inside='<TiffData IFD="0"/>').encode()
    with pytest.raises(CorruptDataError):
        parse_ome_xml(data[: int(len(data) * part)])


def test_importing_costs_no_lxml():
    heavy = "{'lxml', 'numpy', 'tifffile', 'imagecodecs'}"
    code = f"import sys, openreadout_ome_xml, openreadout_ome_tiff; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.corpus
def test_every_document_of_the_corpus_parses_and_agrees_with_its_xml(corpus):
    files = sorted(corpus.glob("metadata-json/*/ome-xml/*.xml"))
    assert len(files) > 70
    for file in files:
        found = parse_ome_xml(file.read_bytes())
        root = etree.fromstring(file.read_bytes())
        pixels = [
            next(p for p in image if etree.QName(p).localname == "Pixels")
            for image in root
            if isinstance(image.tag, str) and etree.QName(image).localname == "Image"
        ]
        assert len(found.images) == len(pixels), file.name
        for image, element in itertools.zip_longest(found.images, pixels):
            for axis in "xyzct":
                assert getattr(image, f"size_{axis}") == int(element.get(f"Size{axis.upper()}")), (
                    file.name
                )
            names = [
                c.get("Name")
                for c in element
                if isinstance(c.tag, str) and etree.QName(c).localname == "Channel"
            ]
            assert [c.channel.name for c in image.channels] == names or not names, file.name
            json.dumps([image.extra, image.objective, image.instrument])
