"""A source's own document in an export: every schema becomes valid 2016-06, and what it says is still there.

Values are compared by a walk of the source's tree that knows nothing of how documents are upgraded; the schema and the
model are those of ome-types.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from lxml import etree

from openreadout.errors import CorruptDataError
from openreadout_ome_xml import metadata_only, parse_ome_xml, rendered

ome_types = pytest.importorskip("ome_types")

NAMESPACE = "{http://www.openmicroscopy.org/Schemas/OME/2016-06}"
FILES = sorted(Path(ome_types.__file__).parent.rglob("ome*2016*06*.xsd"))
SCHEMAS = "http://www.openmicroscopy.org/Schemas"
BEFORE_2012 = ("2009-09", "2010-04", "2010-06", "2011-06")
SINCE_2012 = ("2012-06", "2013-06", "2015-01")


@pytest.fixture(scope="module")
def schema():
    if not FILES:
        pytest.skip("the installed ome_types does not ship the schema")
    return etree.XMLSchema(etree.parse(FILES[0]))


def wrapped(version, body):
    """A document of a schema; the prefixes are those of the schema's own examples."""
    names = "".join(
        f' xmlns:{prefix}="{SCHEMAS}/{name}/{version}"'
        for prefix, name in (("SPW", "SPW"), ("SA", "SA"), ("ROI", "ROI"), ("BIN", "BinaryFile"))
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<OME xmlns="{SCHEMAS}/OME/{version}"{names}'
        f' UUID="urn:uuid:ef8af211-b6c1-44d4-97de-daca46f16346">{body}</OME>'
    ).encode()


INSTRUMENT = """
<Instrument ID="Instrument:7">
  <Microscope Manufacturer="maker of stands" Model="stand 9" SerialNumber="s-1" Type="Upright"/>
  <LightSource ID="LightSource:1" Manufacturer="maker of light" Power="200"><Laser Type="SolidState"
    LaserMedium="Ruby" Wavelength="694" Tuneable="true"><Pump ID="LightSource:2"/></Laser></LightSource>
  <LightSource ID="LightSource:2" Model="arc 3"><Arc Type="Hg"/></LightSource>
  <LightSource ID="LightSource:3" Model="lamp 4"><Filament Type="Halogen"/></LightSource>
  <LightSource ID="LightSource:4" Model="diode 5"><LightEmittingDiode/></LightSource>
  <Detector ID="Detector:1" Type="PMT" Gain="1.75" Voltage="611" Model="tube 6"/>
  <Objective ID="Objective:1" LensNA="1.3125" NominalMagnification="63" WorkingDistance="190.5" Model="lens 7"
    Correction="PlanApo" Immersion="Oil"/>
  <FilterSet ID="FilterSet:1" Model="cube 8"><ExcitationFilterRef ID="Filter:1"/><DichroicRef ID="Dichroic:1"/>
    <EmissionFilterRef ID="Filter:2"/></FilterSet>
  <Filter ID="Filter:1" FilterWheel="wheel 2"><TransmittanceRange CutIn="401" CutOut="409"
    Transmittance="0.5"/></Filter>
  <Filter ID="Filter:2" Type="LongPass" Model="filter 11"/>
  <Dichroic ID="Dichroic:1" Model="mirror 12"/>
</Instrument>"""

PIXELS = """
<Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16" SizeX="21" SizeY="22" SizeZ="1" SizeC="2" SizeT="1"
  PhysicalSizeX="0.1875" PhysicalSizeY="0.3125">
  <Channel ID="Channel:0:0" Name="first dye" Color="16711935" EmissionWavelength="510" PinholeSize="1.625">
    <LightSourceSettings ID="LightSource:1" Attenuation="0.875"/>
    <DetectorSettings ID="Detector:1" Gain="2.75" Binning="2x2"/><FilterSetRef ID="FilterSet:1"/>
    <LightPath><ExcitationFilterRef ID="Filter:1"/><EmissionFilterRef ID="Filter:2"/></LightPath>
  </Channel>
  <Channel ID="Channel:0:1" Name="second dye" AcquisitionMode="SpinningDiskConfocal"/>
  <TiffData IFD="0" PlaneCount="2"/>
  <Plane TheZ="0" TheC="0" TheT="0" DeltaT="3.25" ExposureTime="0.015625" PositionX="1001.5" PositionY="-7.75"/>
  <Plane TheZ="0" TheC="1" TheT="0" DeltaT="4.25"/>
</Pixels>"""

OLD = """
<Project ID="Project:1" Name="great project"><Description>why it is done</Description>
  <ExperimenterRef ID="Experimenter:1"/></Project>
<Dataset ID="Dataset:1" Name="good data"><ProjectRef ID="Project:1"/></Dataset>
<Experiment ID="Experiment:1" Type="TimeLapse"><Description>an experiment</Description></Experiment>
<SPW:Plate ID="Plate:1" Name="a plate" Status="washed" Rows="8" Columns="12">
  <SPW:ScreenRef ID="Screen:1"/>
  <SPW:Well ID="Well:1" Row="2" Column="3" ExternalDescription="a well" Color="255">
    <SPW:WellSample ID="WellSample:1" PositionX="5.125" Index="0"><SPW:ImageRef ID="Image:0"/></SPW:WellSample>
    <SPW:ReagentRef ID="Reagent:1"/></SPW:Well>
  <SPW:PlateAcquisition ID="PlateAcquisition:1" StartTime="2010-02-23T12:49:30"><SPW:WellSampleRef ID="WellSample:1"/>
  </SPW:PlateAcquisition>
</SPW:Plate>
<SPW:Screen ID="Screen:1" Name="a screen" Type="RNA"><SPW:Reagent ID="Reagent:1" Name="a reagent"/></SPW:Screen>
<Experimenter ID="Experimenter:1" FirstName="Ada" LastName="Quill" Email="ada@example.org" Institution="a school">
  <GroupRef ID="Group:1"/></Experimenter>
<Experimenter ID="Experimenter:2" FirstName="Bo" LastName="Reed" UserName="bo.reed"/>
<Group ID="Group:1" Name="the group"><Description>who we are</Description><Leader ID="Experimenter:2"/>
  <Contact ID="Experimenter:2"/></Group>
{instrument}
<Image ID="Image:0" Name="an image"><AcquiredDate>2010-02-23T12:51:30</AcquiredDate>
  <ExperimenterRef ID="Experimenter:1"/><Description>what is seen</Description><GroupRef ID="Group:1"/>
  <DatasetRef ID="Dataset:1"/><InstrumentRef ID="Instrument:7"/>
  <ObjectiveSettings ID="Objective:1" RefractiveIndex="1.515625" Medium="Oil"/>
  <ImagingEnvironment Temperature="36.75" Humidity="0.625"/><StageLabel Name="corner" X="71.5"/>
  {pixels}
  <ROI:ROIRef ID="ROI:1"/><SA:AnnotationRef ID="Annotation:1"/>
</Image>
<SA:StructuredAnnotations>
  <SA:{comment} ID="Annotation:1" Namespace="http://example.org/n"><SA:Value>a comment</SA:Value></SA:{comment}>
  <SA:LongAnnotation ID="Annotation:2"><SA:Value>123456789</SA:Value></SA:LongAnnotation>
  <SA:XMLAnnotation ID="Annotation:3"><SA:Value><free xmlns="urn:x" key="kept"><deep>as it is</deep></free></SA:Value>
  </SA:XMLAnnotation>
</SA:StructuredAnnotations>
<ROI:ROI ID="ROI:1"><ROI:Union>
  <ROI:Shape ID="Shape:1" Fill="{fill}" Stroke="17" Label="nucleus" TheC="1"><ROI:Rect X="1.25" Y="2.25" Width="3.25"
    Height="4.25"/></ROI:Shape>
  <ROI:Shape ID="Shape:2" Transform="0.5, 0.25, 0.75, 0.125, 8.5, 9.5"><ROI:Ellipse X="5.5" Y="6.5" RadiusX="7.5"
    RadiusY="8.25"/></ROI:Shape>
  <ROI:Shape ID="Shape:3"><ROI:Polyline Points="0,0 10,0 10,10" Closed="true"/></ROI:Shape>
  <ROI:Shape ID="Shape:4" MarkerEnd="Arrow"><ROI:Polyline Points="1,1 11,1" Closed="false"/></ROI:Shape>
  <ROI:Shape ID="Shape:5"><ROI:Text X="12.5" Y="13.5"><ROI:Value>written</ROI:Value></ROI:Text></ROI:Shape>
  <ROI:Shape ID="Shape:6"><ROI:Point X="14.5" Y="15.5"/></ROI:Shape>
  <ROI:Shape ID="Shape:7"><ROI:Line X1="16.5" Y1="17.5" X2="18.5" Y2="19.5"/></ROI:Shape>
  <ROI:Shape ID="Shape:8"><ROI:Mask X="20.5" Y="21.5" Width="8" Height="1"><BIN:BinData BigEndian="false" Length="1"
    >qg==</BIN:BinData></ROI:Mask></ROI:Shape>
</ROI:Union><ROI:Description>regions</ROI:Description></ROI:ROI>"""

NEW = """
<Project ID="Project:1" Name="great project"><DatasetRef ID="Dataset:1"/></Project>
<Dataset ID="Dataset:1" Name="good data"><ImageRef ID="Image:0"/></Dataset>
<SPW:Plate ID="Plate:1" Name="a plate"><SPW:Well ID="Well:1" Row="2" Column="3" Type="sound">
  <SPW:WellSample ID="WellSample:1" Index="0"><ImageRef ID="Image:0"/>{sample}</SPW:WellSample></SPW:Well></SPW:Plate>
<SPW:Screen ID="Screen:1" Name="a screen"><SPW:PlateRef ID="Plate:1"/></SPW:Screen>
<Experimenter ID="Experimenter:1" FirstName="Ada" LastName="Quill"/>
<ExperimenterGroup ID="ExperimenterGroup:1" Name="the group"><ExperimenterRef ID="Experimenter:1"/></ExperimenterGroup>
{instrument}
<Image ID="Image:0" Name="an image"><AcquisitionDate>2013-02-23T12:51:30</AcquisitionDate>
  <ExperimenterRef ID="Experimenter:1"/><InstrumentRef ID="Instrument:7"/>{pixels}<ROI:ROIRef ID="ROI:1"/>
</Image>
<SA:StructuredAnnotations>
  <SA:TagAnnotation ID="Annotation:1"><SA:Value>a tag</SA:Value></SA:TagAnnotation>
  <SA:DoubleAnnotation ID="Annotation:2"><SA:Value>0.0625</SA:Value></SA:DoubleAnnotation>
  <SA:BooleanAnnotation ID="Annotation:3"><SA:Value>true</SA:Value></SA:BooleanAnnotation>
  <SA:FileAnnotation ID="Annotation:4"><BIN:BinaryFile FileName="notes.txt" Size="2"><BIN:BinData BigEndian="true"
    Length="2">b2s=</BIN:BinData></BIN:BinaryFile></SA:FileAnnotation>
</SA:StructuredAnnotations>
<ROI:ROI ID="ROI:1" Name="a region"><ROI:Union>
  <ROI:Shape ID="Shape:1" FillColor="-1" StrokeColor="17" Text="nucleus"><ROI:Rectangle X="1.25" Y="2.25" Width="3.25"
    Height="4.25"/></ROI:Shape>
  <ROI:Shape ID="Shape:2"><ROI:Transform A00="0.5" A10="0.25" A01="0.75" A11="0.125" A02="8.5" A12="9.5"/><ROI:Ellipse
    X="5.5" Y="6.5" RadiusX="7.5" RadiusY="8.25"/></ROI:Shape>
  <ROI:Shape ID="Shape:3"><ROI:Polygon Points="0,0 10,0 10,10"/></ROI:Shape>
  <ROI:Shape ID="Shape:4"><ROI:Polyline Points="1,1 11,1" MarkerEnd="Arrow"/></ROI:Shape>
  <ROI:Shape ID="Shape:5" Text="written"><ROI:Label X="12.5" Y="13.5"/></ROI:Shape>
</ROI:Union></ROI:ROI>"""


def document(version):
    """A document that has something of everything, as its schema writes it."""
    if version in BEFORE_2012:
        early = version < "2010-06"
        return wrapped(
            version,
            OLD.format(
                instrument=INSTRUMENT,
                pixels=PIXELS,
                comment="StringAnnotation" if early else "CommentAnnotation",
                fill="4278190335" if early else "-16776961",
            ),
        )
    sample = '<SA:AnnotationRef ID="Annotation:1"/>' if version < "2015-01" else ""
    return wrapped(version, NEW.format(instrument=INSTRUMENT, pixels=PIXELS, sample=sample))


def told(root, skip=("TiffData", "UUID", "BinaryOnly")):
    """Every value of a tree: attributes and texts, but for the pixels' places."""
    found = Counter()
    for element in root.iter(etree.Element):
        name = etree.QName(element).localname
        above = element.getparent()
        if name in skip or (name == "BinData" and etree.QName(above).localname == "Pixels"):
            continue
        found.update(v for k, v in element.attrib.items() if not k.startswith("{"))
        found[(element.text or "").strip()] += 1
    return found


def find(root, name):
    return list(root.iter(f"{NAMESPACE}{name}"))


@pytest.mark.parametrize("version", [*BEFORE_2012, *SINCE_2012])
def test_documents_of_every_schema_keep_every_value_and_become_valid(version, schema):
    source = document(version)
    carried = metadata_only(source)
    assert carried.left_out == {}
    root = etree.fromstring(carried.data)
    schema.assertValid(root)
    gone = set(told(etree.fromstring(source))) - set(told(root))
    moved = {"4278190335", "0.5, 0.25, 0.75, 0.125, 8.5, 9.5", "Group:1", "true", "false"}
    assert gone <= moved
    if version < "2010-06":
        assert find(root, "Rectangle")[0].get("FillColor") == str(4278190335 - 2**32)
    free = root.find(".//{urn:x}free")
    assert (free is not None) == (version in BEFORE_2012)
    assert free is None or (free.get("key"), free[0].text) == ("kept", "as it is")


@pytest.mark.parametrize("version", [*BEFORE_2012, *SINCE_2012])
def test_the_model_of_ome_types_has_the_same_content(version):
    ome = ome_types.from_xml(metadata_only(document(version)).data)
    instrument = ome.instruments[0]
    assert {type(source).__name__ for source in instrument.light_source_group} == {
        "Laser", "Arc", "Filament", "LightEmittingDiode",
    }  # fmt: skip
    laser = instrument.lasers[0]
    assert (laser.power, laser.wavelength, laser.pump.id) == (200, 694, "LightSource:2")
    channel = ome.images[0].pixels.channels[0]
    assert channel.light_source_settings.attenuation == 0.875
    assert channel.light_path.excitation_filters[0].id == "Filter:1"
    assert [plane.delta_t for plane in ome.images[0].pixels.planes] == [3.25, 4.25]
    assert ome.projects[0].dataset_refs[0].id == "Dataset:1"
    assert ome.datasets[0].image_refs[0].id == "Image:0"
    assert ome.screens[0].plate_refs[0].id == "Plate:1"
    group = ome.experimenter_groups[0]
    assert [ref.id for ref in group.experimenter_refs] == ["Experimenter:1"]
    shapes = sorted(ome.rois[0].union, key=lambda shape: shape.id)
    names = ["Rectangle", "Ellipse", "Polygon", "Polyline", "Label"]
    assert [type(shape).__name__ for shape in shapes][:5] == names
    assert [shapes[0].text, shapes[4].text] == ["nucleus", "written"]
    transform = shapes[1].transform
    assert [transform.a00, transform.a10, transform.a01, transform.a11, transform.a02, transform.a12] == [
        0.5, 0.25, 0.75, 0.125, 8.5, 9.5,
    ]  # fmt: skip
    assert shapes[3].marker_end.value == "Arrow"
    if version in BEFORE_2012:
        assert [type(shape).__name__ for shape in shapes][5:] == ["Point", "Line", "Mask"]
        assert [leader.id for leader in group.leaders] == ["Experimenter:2"]
        assert ome.images[0].experimenter_group_ref.id == group.id


def test_acquisitions_of_a_screen_go_to_its_plates(schema):
    body = (
        '<SPW:Plate ID="Plate:1"><SPW:Well ID="Well:1" Row="0" Column="0"><SPW:WellSample ID="WellSample:1"/>'
        '<SPW:WellSample ID="WellSample:2"/></SPW:Well></SPW:Plate><SPW:Screen ID="Screen:1"><SPW:ScreenAcquisition '
        'ID="ScreenAcquisition:1" EndTime="2009-12-01T10:00:00"><SPW:WellSampleRef ID="WellSample:2"/>'
        "</SPW:ScreenAcquisition></SPW:Screen>"
    )
    carried = metadata_only(wrapped("2009-09", body))
    root = etree.fromstring(carried.data)
    schema.assertValid(root)
    acquisition = find(root, "PlateAcquisition")[0]
    assert acquisition.get("EndTime") == "2009-12-01T10:00:00"
    assert [ref.get("ID") for ref in acquisition] == ["WellSample:2"]
    assert [sample.get("Index") for sample in find(root, "WellSample")] == ["0", "1"]


def test_shapes_of_2009_take_their_display_options_and_channel(schema):
    body = (
        f'<Image ID="Image:0">{PIXELS}</Image><ROI:ROI ID="ROI:1"><ROI:Union><ROI:Shape ID="Shape:1">'
        '<ROI:ShapeDisplayOptions Fill="7" FillRule="even-odd" FontFamily="Arial" Text="said"/>'
        '<ChannelRef ID="Channel:0:1"/><ROI:Point X="1" Y="2"/></ROI:Shape></ROI:Union></ROI:ROI>'
    )
    root = etree.fromstring(metadata_only(wrapped("2009-09", INSTRUMENT + body)).data)
    schema.assertValid(root)
    point = dict(find(root, "Point")[0].attrib)
    assert point == {
        "FillColor": "7", "FillRule": "EvenOdd", "FontFamily": "sans-serif", "Text": "said", "TheC": "1",
        "ID": "Shape:1", "X": "1", "Y": "2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "written", "expected"),
    [("AcquisitionMode", "Wide-field", "WideField"), ("AcquisitionMode", "LaserScanningConfocal",
     "LaserScanningConfocalMicroscopy"), ("AcquisitionMode", "by eye", "Other"), ("ContrastMethod", "DIC", "DIC"),
     ("IlluminationType", "Unknown", "Other"), ("Color", "4294967295", "-1"), ("Color", "pink", None),
     ("ExcitationWavelength", "0", None), ("ExcitationWavelength", "488,5", "488.5"), ("NDFilter", "none", None)],
)  # fmt: skip
def test_values_become_those_of_the_schema(kind, written, expected, schema):
    pixels = PIXELS.replace('Name="second dye"', f'Name="second dye" {kind}="{written}"').replace(
        ' AcquisitionMode="SpinningDiskConfocal"', ""
    )
    carried = metadata_only(wrapped("2010-06", f'{INSTRUMENT}<Image ID="Image:0">{pixels}</Image>'))
    root = etree.fromstring(carried.data)
    schema.assertValid(root)
    assert find(root, "Channel")[1].get(kind) == expected
    assert carried.left_out == ({f"Channel/@{kind}": 1} if expected is None else {})


def test_a_value_with_a_unit_that_is_unknown_goes_with_it(schema):
    pixels = PIXELS.replace('PinholeSize="1.625"', 'PinholeSize="1.625" PinholeSizeUnit="ells"')
    pixels = pixels.replace(
        'PhysicalSizeX="0.1875"', 'PhysicalSizeX="0.1875" PhysicalSizeXUnit="um"'
    )
    carried = metadata_only(wrapped("2015-01", f'{INSTRUMENT}<Image ID="I">{pixels}</Image>'))
    root = etree.fromstring(carried.data)
    schema.assertValid(root)
    assert find(root, "Channel")[0].get("PinholeSize") is None
    assert carried.left_out == {"Channel/@PinholeSize": 1}
    assert find(root, "Pixels")[0].get("PhysicalSizeXUnit") == "µm"


CUSTOM = '<C:CustomAttributes xmlns:C="http://www.openmicroscopy.org/Schemas/CA/2008-09"><C:Image/></C:CustomAttributes>'
PATH = (
    '<ROI:ROI ID="ROI:9"><ROI:Union><ROI:Shape ID="Shape:8"><ROI:Path Definition="M 0 0"/></ROI:Shape>'
    '<ROI:Shape ID="Shape:9"><ROI:Point X="1" Y="1"/></ROI:Shape></ROI:Union></ROI:ROI>'
)
MANIPULATION = (
    '<Experiment ID="Experiment:1"><MicrobeamManipulation ID="MicrobeamManipulation:1"><ROI:ROIRef ID="ROI:1"/>'
    '<ExperimenterRef ID="Experimenter:0"/></MicrobeamManipulation></Experiment>'
)
FAULTS = {
    "otf": ('<OTF ID="OTF:1"/>', "Instrument", {"OTF": 1}),
    "attribute": ('<Dichroic ID="Dichroic:9" Shine="3"/>', "Instrument", {"Dichroic/@Shine": 1}),
    "no id": ('<Dichroic Model="nameless"/>', "Instrument", {}),
    "same id": ('<Dichroic ID="Dichroic:1" Model="second"/>', "Instrument", {}),
    "other id": ('<Dichroic ID="7 of mine" Model="odd"/>', "Instrument", {}),
    "dangling": ('<ExperimentRef ID="Experiment:4"/>', "Image", {"ExperimentRef": 1}),
    "twice": ("<Description>one</Description><Description>two</Description>", "Image", {"Description": 1}),
    "custom": (CUSTOM, "Image", {"CustomAttributes": 1}),
    "path": (PATH, "OME", {"Path": 1}),
    "no shape": ('<ROI:ROI ID="ROI:9"/>', "OME", {"ROI": 1}),
    "manipulation": (MANIPULATION, "OME", {"ExperimenterRef": 1, "MicrobeamManipulation": 1}),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_not_valid_is_removed_and_counted(fault, schema):
    text, where, expected = FAULTS[fault]
    body = f'{INSTRUMENT}<Image ID="Image:0">{PIXELS}</Image>'
    body = body + text if where == "OME" else body.replace(f"</{where}>", f"{text}</{where}>")
    carried = metadata_only(wrapped("2011-06", body))
    root = etree.fromstring(carried.data)
    schema.assertValid(root)
    assert carried.left_out == expected
    assert len(find(root, "Channel")) == 2
    assert find(root, "FilterSet")[0].find(f"{NAMESPACE}DichroicRef").get("ID") == "Dichroic:1"


def test_xml_annotations_of_text_become_comments(schema):
    body = (
        '<SA:StructuredAnnotations><SA:XMLAnnotation ID="Annotation:1"><SA:Value>only words</SA:Value>'
        "</SA:XMLAnnotation></SA:StructuredAnnotations>"
    )
    root = etree.fromstring(metadata_only(wrapped("2012-06", body)).data)
    schema.assertValid(root)
    assert find(root, "CommentAnnotation")[0][0].text == "only words"


def test_an_annotation_that_is_nested_without_end_is_left_out(schema):
    deep = "<a>" * 20_000 + "</a>" * 20_000
    body = (
        f'<SA:StructuredAnnotations><SA:XMLAnnotation ID="Annotation:1"><SA:Value>{deep}</SA:Value>'
        "</SA:XMLAnnotation></SA:StructuredAnnotations>"
    )
    try:
        carried = metadata_only(wrapped("2012-06", body))
    except CorruptDataError:
        return
    schema.assertValid(etree.fromstring(carried.data))
    assert "XMLAnnotation" in carried.left_out


def test_a_2016_document_stays_as_it_is_valid_or_not():
    body = wrapped("2016-06", f'<Odd/><Image ID="no prefix" Name="n">{PIXELS}<Odd2/></Image>')
    carried = metadata_only(body)
    assert carried.left_out == {}
    root = etree.fromstring(carried.data)
    assert [e.tag for e in find(root, "Image")[0]] == [f"{NAMESPACE}Pixels", f"{NAMESPACE}Odd2"]
    assert told(etree.fromstring(body)) - told(root) == Counter()


def test_documents_before_2009_are_written_anew_and_tell_what_is_lost(schema):
    body = (
        '<Image ID="Image:0" Name="old"><CreationDate>2008-05-06T07:08:09</CreationDate><Pixels ID="Pixels:0" '
        'DimensionOrder="XYZCT" PixelType="uint8" SizeX="4" SizeY="4" SizeZ="1" SizeC="1" SizeT="1"/>'
        '<Thumbnail href="x"/></Image><Experimenter ID="Experimenter:1"/><Experimenter ID="Experimenter:2"/>'
    )
    carried = metadata_only(wrapped("2008-02", body))
    schema.assertValid(etree.fromstring(carried.data))
    assert carried.left_out == {"Experimenter": 2, "Thumbnail": 1}


def test_a_document_that_replaces_the_source_s_own_tells_what_is_lost():
    source = document("2012-06").decode()
    carried = rendered(source, ())
    assert carried.left_out["ROI"] == 1
    assert carried.left_out["Experimenter"] == 1
    assert not {"Laser", "Detector", "TiffData"} & set(carried.left_out)


@pytest.mark.corpus
def test_documents_of_the_corpus_are_carried_whole(corpus, schema):
    changed = {"LaserScanningConfocal", "LaserScanningMicroscopy", "4294967295", "0.0"}
    for file in sorted(corpus.glob("metadata-json/*/ome-xml/*.xml")):
        data = file.read_bytes()
        before, carried = parse_ome_xml(data), metadata_only(data)
        after, root = parse_ome_xml(carried.data), etree.fromstring(carried.data)
        assert after.version == "2016-06"
        assert len(before.images) == len(after.images), file.name
        for old, new in zip(before.images, after.images, strict=True):
            assert not new.tiff_data
            for name in (
                "name",
                "size_x",
                "size_c",
                "physical_size",
                "time_increment",
                "dimension_order",
                "acquired_at",
            ):
                assert getattr(old, name) == getattr(new, name), (file.name, name)
        if before.version is None or before.version < "2009":
            schema.assertValid(root)
            continue
        assert carried.left_out == {}, file.name
        gone = set(told(etree.fromstring(data))) - set(told(root)) - changed
        assert gone == set(), file.name
        if before.version != "2016-06":
            schema.assertValid(root)
        assert [i.objective for i in before.images] == [i.objective for i in after.images]
        assert [i.instrument for i in before.images] == [i.instrument for i in after.images]
        assert before.plates == after.plates
