"""The 2016-06 schema as tables: which attributes and children each element has, in which order, of which types.

One line for an element: its name, its attributes, and after `>` its children in the schema's order.

- `Name` is a string; `Name:type` has one of the types below; `Name:type/unit` also has an attribute `NameUnit`.
- `!` behind an attribute: the element is not valid without it. `ID:Kind` is an identifier of that kind.
- `?` behind a child: at most one; `!`: exactly one; `*`: any number; `+`: one or more.
- `Child=Rule` is an element `Child` that follows the line of another name. `= type` behind all is the element's text.

OME data model 2016-06, "ome.xsd".
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

_MAKER = "Manufacturer Model SerialNumber LotNumber"
_LIGHT = f"{_MAKER} ID:LightSource! Power:float/power"
_SHAPE = (
    "FillColor:color FillRule:FillRule StrokeColor:color StrokeWidth:float/length StrokeDashArray Text "
    "FontFamily:FontFamily FontSize:natural/length FontStyle:FontStyle Locked:boolean ID:Shape! "
    "TheZ:natural TheT:natural TheC:natural"
)
_BOX = "X:float! Y:float! Width:float! Height:float!"
_DRAWN = "Transform? AnnotationRef*"
_NOTE = "ID:Annotation! Namespace:uri Annotator:Experimenter > Description=Text? AnnotationRef*"

_LINES = f"""
OME UUID:uuid Creator > Rights? Project* Dataset* Folder* Experiment* Plate* Screen* Experimenter* ExperimenterGroup* Instrument* Image* StructuredAnnotations? ROI*
Rights > RightsHolder=Text? RightsHeld=Text?
Image ID:Image! Name > AcquisitionDate=Date? ExperimenterRef? Description=Text? ExperimentRef? ExperimenterGroupRef? InstrumentRef? ObjectiveSettings? ImagingEnvironment? StageLabel? Pixels! ROIRef* MicrobeamManipulationRef* AnnotationRef*
Pixels ID:Pixels! DimensionOrder:DimensionOrder! Type:PixelType! SignificantBits:count Interleaved:boolean BigEndian:boolean SizeX:count! SizeY:count! SizeZ:count! SizeC:count! SizeT:count! PhysicalSizeX:positive/length PhysicalSizeY:positive/length PhysicalSizeZ:positive/length TimeIncrement:float/time > Channel* MetadataOnly! Plane*
Plane TheZ:natural! TheT:natural! TheC:natural! DeltaT:float/time ExposureTime:float/time PositionX:float/length PositionY:float/length PositionZ:float/length > HashSHA1=Hash? AnnotationRef*
Channel ID:Channel! Name SamplesPerPixel:count IlluminationType:IlluminationType PinholeSize:float/length AcquisitionMode:AcquisitionMode ContrastMethod:ContrastMethod ExcitationWavelength:positive/length EmissionWavelength:positive/length Fluor NDFilter:float PockelCellSetting:int Color:color > LightSourceSettings? DetectorSettings? FilterSetRef? AnnotationRef* LightPath?
MetadataOnly
StageLabel Name! X:float/length Y:float/length Z:float/length
MicrobeamManipulation ID:MicrobeamManipulation! Type:MicrobeamManipulationTypes > Description=Text? ROIRef+ ExperimenterRef! LightSourceSettings*
Instrument ID:Instrument! > Microscope? Laser|Arc|Filament|LightEmittingDiode|GenericExcitationSource* Detector* Objective* FilterSet* Filter* Dichroic* AnnotationRef*
Microscope {_MAKER} Type:MicroscopeType
ImagingEnvironment Temperature:float/temperature AirPressure:float/pressure Humidity:fraction CO2Percent:fraction > Map?
Map > M*
M K = string
Project Name ID:Project! > Description=Text? ExperimenterRef? ExperimenterGroupRef? DatasetRef* AnnotationRef*
ExperimenterGroup Name ID:ExperimenterGroup! > Description=Text? ExperimenterRef* Leader=ExperimenterRef* AnnotationRef*
Dataset Name ID:Dataset! > Description=Text? ExperimenterRef? ExperimenterGroupRef? ImageRef* AnnotationRef*
Experiment Type:ExperimentTypes ID:Experiment! > Description=Text? ExperimenterRef? MicrobeamManipulation*
Experimenter ID:Experimenter! FirstName MiddleName LastName Email Institution UserName > AnnotationRef*
Folder ID:Folder! Name > Description=Text? FolderRef* ImageRef* ROIRef* AnnotationRef*
Objective {_MAKER} ID:Objective! Correction:Correction Immersion:Immersion LensNA:float NominalMagnification:float CalibratedMagnification:float WorkingDistance:float/length Iris:boolean > AnnotationRef*
Detector {_MAKER} Gain:float Voltage:float/voltage Offset:float Zoom:float AmplificationGain:float ID:Detector! Type:DetectorType > AnnotationRef*
FilterSet {_MAKER} ID:FilterSet! > ExcitationFilterRef=FilterRef* DichroicRef? EmissionFilterRef=FilterRef*
Filter {_MAKER} Type:FilterType FilterWheel ID:Filter! > TransmittanceRange? AnnotationRef*
TransmittanceRange CutIn:positive/length CutOut:positive/length CutInTolerance:notnegative/length CutOutTolerance:notnegative/length Transmittance:fraction
Dichroic {_MAKER} ID:Dichroic! > AnnotationRef*
LightPath > ExcitationFilterRef=FilterRef* DichroicRef? EmissionFilterRef=FilterRef* AnnotationRef*
Laser {_LIGHT} Type:LaserType LaserMedium:LaserMedium Wavelength:positive/length FrequencyMultiplication:count Tuneable:boolean Pulse:Pulse PockelCell:boolean RepetitionRate:float/frequency > AnnotationRef* Pump?
Arc {_LIGHT} Type:ArcType > AnnotationRef*
Filament {_LIGHT} Type:FilamentType > AnnotationRef*
LightEmittingDiode {_LIGHT} > AnnotationRef*
GenericExcitationSource {_LIGHT} > AnnotationRef* Map?
Pump ID:LightSource!
LightSourceSettings ID:LightSource! Attenuation:fraction Wavelength:positive/length
DetectorSettings ID:Detector! Offset:float Gain:float Voltage:float/voltage Zoom:float ReadOutRate:float/frequency Binning:Binning Integration:count
ObjectiveSettings ID:Objective! CorrectionCollar:float Medium:Medium RefractiveIndex:float
ImageRef ID:Image!
FilterRef ID:Filter!
MicrobeamManipulationRef ID:MicrobeamManipulation!
ExperimentRef ID:Experiment!
ExperimenterRef ID:Experimenter!
ExperimenterGroupRef ID:ExperimenterGroup!
InstrumentRef ID:Instrument!
DatasetRef ID:Dataset!
FolderRef ID:Folder!
FilterSetRef ID:FilterSet!
DichroicRef ID:Dichroic!
AnnotationRef ID:Annotation!
ROIRef ID:ROI!
ReagentRef ID:Reagent!
PlateRef ID:Plate!
WellSampleRef ID:WellSample!
External href:uri! SHA1:hash! Compression:Compression
BinData Compression:Compression BigEndian:boolean! Length:size! = base64
BinaryFile FileName! Size:size! MIMEType > External|BinData!
StructuredAnnotations > XMLAnnotation|FileAnnotation|ListAnnotation|LongAnnotation|DoubleAnnotation|CommentAnnotation|BooleanAnnotation|TimestampAnnotation|TagAnnotation|TermAnnotation|MapAnnotation*
XMLAnnotation {_NOTE} Value=Anything!
FileAnnotation {_NOTE} BinaryFile!
ListAnnotation {_NOTE}
LongAnnotation {_NOTE} Value=Long!
DoubleAnnotation {_NOTE} Value=Double!
CommentAnnotation {_NOTE} Value=Text!
BooleanAnnotation {_NOTE} Value=Boolean!
TimestampAnnotation {_NOTE} Value=Date!
TagAnnotation {_NOTE} Value=Text!
TermAnnotation {_NOTE} Value=Text!
MapAnnotation {_NOTE} Value=Map!
ROI ID:ROI! Name > Union! AnnotationRef* Description=Text?
Union > Rectangle|Mask|Ellipse|Point|Line|Polyline|Polygon|Label+
Rectangle {_SHAPE} {_BOX} > {_DRAWN}
Mask {_SHAPE} {_BOX} > {_DRAWN} BinData!
Ellipse {_SHAPE} X:float! Y:float! RadiusX:float! RadiusY:float! > {_DRAWN}
Point {_SHAPE} X:float! Y:float! > {_DRAWN}
Label {_SHAPE} X:float! Y:float! > {_DRAWN}
Line {_SHAPE} X1:float! Y1:float! X2:float! Y2:float! MarkerStart:Marker MarkerEnd:Marker > {_DRAWN}
Polyline {_SHAPE} Points! MarkerStart:Marker MarkerEnd:Marker > {_DRAWN}
Polygon {_SHAPE} Points! > {_DRAWN}
Transform A00:float! A10:float! A01:float! A11:float! A02:float! A12:float!
Plate ID:Plate! Name Status ExternalIdentifier ColumnNamingConvention:Naming RowNamingConvention:Naming WellOriginX:float/length WellOriginY:float/length Rows:count Columns:count FieldIndex:natural > Description=Text? Well* AnnotationRef* PlateAcquisition*
Reagent ID:Reagent! Name ReagentIdentifier > Description=Text? AnnotationRef*
Screen ID:Screen! Name ProtocolIdentifier ProtocolDescription ReagentSetDescription ReagentSetIdentifier Type > Description=Text? Reagent* PlateRef* AnnotationRef*
PlateAcquisition ID:PlateAcquisition! Name EndTime:date StartTime:date MaximumFieldCount:count > Description=Text? WellSampleRef* AnnotationRef*
Well ID:Well! Column:natural! Row:natural! ExternalDescription ExternalIdentifier Type Color:color > WellSample* ReagentRef? AnnotationRef*
WellSample ID:WellSample! PositionX:float/length PositionY:float/length Timepoint:date Index:natural! > ImageRef?
Text = string
Date = date
Hash = hash
Long = long
Double = float
Boolean = boolean
Anything = anything
"""  # noqa: E501

_PREFIXES = "Y Z E P T G M k h da - d c m µ n p f a z y".split()


def _units(base: str, *more: str) -> frozenset[str]:
    return frozenset(("" if p == "-" else p) + base for p in _PREFIXES) | frozenset(more)


UNITS = {
    "length": _units(
        "m", "Å", "thou", "li", "in", "ft", "yd", "mi", "ua", "ly", "pc", "pt", "pixel", "reference frame"
    ),
    "time": _units("s", "min", "h", "d"),
    "power": _units("W"),
    "voltage": _units("V"),
    "frequency": _units("Hz"),
    "pressure": _units("Pa", "bar", "Mbar", "kbar", "dbar", "cbar", "mbar", "atm", "psi", "Torr", "mTorr", "mm Hg"),
    "temperature": frozenset(("°C", "°F", "K", "°R")),
}  # fmt: skip
"""Symbols of units by quantity."""

WORDS = {
    name: tuple(words.split())
    for name, words in {
        "DimensionOrder": "XYZCT XYZTC XYCTZ XYCZT XYTCZ XYTZC",
        "PixelType": "int8 int16 int32 uint8 uint16 uint32 float double complex double-complex bit",
        "IlluminationType": "Transmitted Epifluorescence Oblique NonLinear Other",
        "AcquisitionMode": "WideField LaserScanningConfocalMicroscopy SpinningDiskConfocal SlitScanConfocal "
        "MultiPhotonMicroscopy StructuredIllumination SingleMoleculeImaging TotalInternalReflection "
        "FluorescenceLifetime SpectralImaging FluorescenceCorrelationSpectroscopy "
        "NearFieldScanningOpticalMicroscopy SecondHarmonicGenerationImaging PALM STORM STED TIRF FSM LCM Other "
        "BrightField SweptFieldConfocal SPIM",
        "ContrastMethod": "Brightfield Phase DIC HoffmanModulation ObliqueIllumination PolarizedLight Darkfield "
        "Fluorescence Other",
        "MicrobeamManipulationTypes": "FRAP FLIP InverseFRAP Photoablation Photoactivation Uncaging OpticalTrapping "
        "Other",
        "ExperimentTypes": "FP FRET TimeLapse FourDPlus Screen Immunocytochemistry Immunofluorescence FISH "
        "Electrophysiology IonImaging Colocalization PGIDocumentation FluorescenceLifetime SpectralImaging "
        "Photobleaching SPIM Other",
        "MicroscopeType": "Upright Inverted Dissection Electrophysiology Other",
        "Binning": "1x1 2x2 4x4 8x8 Other",
        "FontFamily": "serif sans-serif cursive fantasy monospace",
        "FontStyle": "Bold BoldItalic Italic Normal",
        "FillRule": "EvenOdd NonZero",
        "Marker": "Arrow",
        "Naming": "letter number",
        "Compression": "zlib bzip2 none",
        "Correction": "UV PlanApo PlanFluor SuperFluor VioletCorrected Achro Achromat Fluor Fl Fluar Neofluar "
        "Fluotar Apo PlanNeofluar Other",
        "Immersion": "Oil Water WaterDipping Air Multi Glycerol Other",
        "Medium": "Air Oil Water Glycerol Other",
        "DetectorType": "CCD IntensifiedCCD AnalogVideo PMT Photodiode Spectroscopy LifetimeImaging "
        "CorrelationSpectroscopy FTIR EMCCD APD CMOS EBCCD Other",
        "FilterType": "Dichroic LongPass ShortPass BandPass MultiPass NeutralDensity Tuneable Other",
        "LaserType": "Excimer Gas MetalVapor SolidState Dye Semiconductor FreeElectron Other",
        "LaserMedium": "Cu Ag ArFl ArCl KrFl KrCl XeFl XeCl XeBr N Ar Kr Xe HeNe HeCd CO CO2 H2O HFl NdGlass NdYAG "
        "ErGlass ErYAG HoYLF HoYAG Ruby TiSapphire Alexandrite Rhodamine6G CoumarinC30 GaAs GaAlAs EMinus Other",
        "Pulse": "CW Single QSwitched Repetitive ModeLocked Other",
        "ArcType": "Hg Xe HgXe Other",
        "FilamentType": "Incandescent Halogen Other",
    }.items()
}
"""Enumerations. Where `Other` is among the words, it stands for every word that is not."""

LISTS = ("MicrobeamManipulationTypes", "ExperimentTypes")
"""Enumerations of which an attribute may hold several words."""

KINDS = frozenset(
    "Project Dataset Image Folder Experimenter ExperimenterGroup Experiment MicrobeamManipulation Instrument Objective "
    "LightSource Dichroic Filter FilterSet Detector Pixels Channel Annotation ROI Shape Plate Reagent Screen "
    "PlateAcquisition Well WellSample".split()
)
"""Kinds of identifiers."""

FREE_REFERENCES = frozenset(
    {
        ("LightPath", "ExcitationFilterRef"), ("LightPath", "EmissionFilterRef"), ("PlateAcquisition", "WellSampleRef"),
        ("Project", "DatasetRef"), ("Dataset", "ImageRef"), ("ExperimenterGroup", "ExperimenterRef"),
        ("Image", "ROIRef"), ("MicrobeamManipulation", "ROIRef"), ("Laser", "Pump"),
    }
)  # fmt: skip
"""References, by parent and name, that the schema does not demand to lead anywhere."""


class Attribute(NamedTuple):
    """An attribute: its type, whether the element needs it, and the quantity of its unit."""

    type: str
    required: bool
    unit: str | None


class Child(NamedTuple):
    """A place among the children: names that may stand there with the rule of each, and how many."""

    rules: dict[str, str]
    least: int
    most: int | None


class Rule(NamedTuple):
    """An element: attributes by name, children in order, and the type of its text where it has any."""

    attributes: dict[str, Attribute]
    children: tuple[Child, ...]
    text: str | None


_COUNTS: dict[str, tuple[int, int | None]] = {
    "?": (0, 1),
    "!": (1, 1),
    "*": (0, None),
    "+": (1, None),
}


@cache
def rules() -> dict[str, Rule]:
    """Every element's rule by its name."""
    return {line.split()[0]: _rule(line) for line in _LINES.strip().splitlines()}


def _rule(line: str) -> Rule:
    head, _, text = line.partition(" = ")
    first, _, last = head.partition(" > ")
    attributes = dict(map(_attribute, first.split()[1:]))
    return Rule(attributes, tuple(map(_child, last.split())), text.strip() or None)


def _attribute(word: str) -> tuple[str, Attribute]:
    name, _, kind = word.removesuffix("!").partition(":")
    kind, _, unit = kind.partition("/")
    return name, Attribute(kind or "string", word.endswith("!"), unit or None)


def _child(word: str) -> Child:
    rules = {}
    for choice in word[:-1].split("|"):
        name, _, rule = choice.partition("=")
        rules[name] = rule or name
    return Child(rules, *_COUNTS[word[-1]])
