"""Write OME-XML 2016-06 from model images."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openreadout.units import unit_name
from openreadout_ome_xml.channels import color_number

if TYPE_CHECKING:
    from lxml.etree import _Element

    from openreadout.model import Channel, Image, Plate

NAMESPACE = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
LOCATION = f"{NAMESPACE} {NAMESPACE}/ome.xsd"
XSI = "http://www.w3.org/2001/XMLSchema-instance"
_XML_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TYPES = {"int64": "double", "uint64": "double"}
SYMBOLS = {
    "yottameter": "Ym", "zettameter": "Zm", "exameter": "Em", "petameter": "Pm", "terameter": "Tm", "gigameter": "Gm",
    "megameter": "Mm", "kilometer": "km", "hectometer": "hm", "decameter": "dam", "meter": "m", "decimeter": "dm",
    "centimeter": "cm", "millimeter": "mm", "micrometer": "µm", "nanometer": "nm", "picometer": "pm",
    "femtometer": "fm", "attometer": "am", "zeptometer": "zm", "yoctometer": "ym", "angstrom": "Å", "inch": "in",
    "foot": "ft", "yard": "yd", "mile": "mi", "line": "li", "thou": "thou", "point": "pt", "astronomical unit": "ua",
    "light year": "ly", "parsec": "pc", "yottasecond": "Ys", "zettasecond": "Zs", "exasecond": "Es",
    "petasecond": "Ps", "terasecond": "Ts", "gigasecond": "Gs", "megasecond": "Ms", "kilosecond": "ks",
    "hectosecond": "hs", "decasecond": "das", "second": "s", "decisecond": "ds", "centisecond": "cs",
    "millisecond": "ms", "microsecond": "µs", "nanosecond": "ns", "picosecond": "ps", "femtosecond": "fs",
    "attosecond": "as", "zeptosecond": "zs", "yoctosecond": "ys", "minute": "min", "hour": "h", "day": "d",
}  # fmt: skip
_OBJECTIVE = {
    "manufacturer": "Manufacturer", "model": "Model", "serial_number": "SerialNumber", "lot_number": "LotNumber",
    "correction": "Correction", "immersion": "Immersion", "lens_na": "LensNA",
    "nominal_magnification": "NominalMagnification", "calibrated_magnification": "CalibratedMagnification",
    "working_distance": "WorkingDistance", "working_distance_unit": "WorkingDistanceUnit", "iris": "Iris",
}  # fmt: skip
_CORRECTIONS = {
    "UV", "PlanApo", "PlanFluor", "SuperFluor", "VioletCorrected", "Achro", "Achromat", "Fluor", "Fl", "Fluar",
    "Neofluar", "Fluotar", "Apo", "PlanNeofluar", "Other",
}  # fmt: skip
_IMMERSIONS = {"Oil", "Water", "WaterDipping", "Air", "Multi", "Glycerol", "Other"}
_MEDIA = {"Air", "Oil", "Water", "Glycerol", "Other"}
_MAKER = {
    "manufacturer": "Manufacturer", "model": "Model", "serial_number": "SerialNumber", "lot_number": "LotNumber",
}  # fmt: skip
_MICROSCOPES = {"Upright", "Inverted", "Dissection", "Electrophysiology", "Other"}
_DETECTORS = {
    "CCD", "IntensifiedCCD", "AnalogVideo", "PMT", "Photodiode", "Spectroscopy", "LifetimeImaging",
    "CorrelationSpectroscopy", "FTIR", "EMCCD", "APD", "CMOS", "EBCCD", "Other",
}  # fmt: skip
_ACQUISITION_MODES = {
    "WideField", "LaserScanningConfocalMicroscopy", "SpinningDiskConfocal", "SlitScanConfocal", "MultiPhotonMicroscopy",
    "StructuredIllumination", "SingleMoleculeImaging", "TotalInternalReflection", "FluorescenceLifetime",
    "SpectralImaging", "FluorescenceCorrelationSpectroscopy", "NearFieldScanningOpticalMicroscopy",
    "SecondHarmonicGenerationImaging", "PALM", "STORM", "STED", "TIRF", "FSM", "LCM", "Other", "BrightField",
    "SweptFieldConfocal", "SPIM",
}  # fmt: skip


def serialized(root: _Element) -> bytes:
    """UTF-8, with declaration."""
    from lxml import etree

    return etree.tostring(root, xml_declaration=True, encoding="UTF-8")


class _Builder:
    """Makes elements of the 2016-06 namespace; attributes that are None are left out."""

    def __init__(self) -> None:
        from lxml import etree

        self._etree = etree
        self.root = etree.Element(
            f"{{{NAMESPACE}}}OME",
            {f"{{{XSI}}}schemaLocation": LOCATION, "Creator": "openreadout"},
            nsmap={None: NAMESPACE, "xsi": XSI},  # type: ignore[dict-item]  # the stubs know no default namespace
        )

    def add(
        self,
        parent: _Element,
        name: str,
        attributes: Mapping[str, Any] | None = None,
        text: str | None = None,
    ) -> _Element:
        """Add a child element."""
        known = {
            key: _attribute(value) for key, value in (attributes or {}).items() if value is not None
        }
        element = self._etree.SubElement(parent, f"{{{NAMESPACE}}}{name}", known)
        if text is not None:
            element.text = _XML_ILLEGAL.sub("", text)
        return element


def _attribute(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    return _XML_ILLEGAL.sub("", str(value))


def render_ome_xml(dataset_images: Sequence[Image], plate: Plate | None = None) -> bytes:
    """Write a 2016-06 document that describes model images, each with Pixels/MetadataOnly.

    Parameters
    ----------
    dataset_images : sequence of Image
        In the order of the series; image n gets the id `Image:n`.
    plate : Plate, optional
        Its wells point to indices of `dataset_images`.

    Returns
    -------
    bytes
        UTF-8, with declaration. OME has no 64-bit integers; images of these are declared `double`, which has as many
        bytes, and readers of the store go by its arrays.

    Notes
    -----
    OME data model 2016-06; element order as its schema demands it.
    """
    build = _Builder()
    if plate is not None:
        _plate(build, plate, len(dataset_images))
    with_hardware = [
        image.objective is not None or image.instrument is not None for image in dataset_images
    ]
    for n, image in enumerate(dataset_images):
        if with_hardware[n]:
            _instrument(build, n, image.objective or {}, image.instrument or {})
    for n, image in enumerate(dataset_images):
        _image(build, n, image, with_hardware[n])
    return serialized(build.root)


def _plate(build: _Builder, plate: Plate, images: int) -> None:
    by_number = bool(plate.rows) and plate.rows[0].isdigit()
    by_letter = bool(plate.columns) and not plate.columns[0].isdigit()
    element = build.add(
        build.root,
        "Plate",
        {
            "ID": "Plate:0",
            "Name": plate.name,
            "RowNamingConvention": "number" if by_number else "letter",
            "ColumnNamingConvention": "letter" if by_letter else "number",
            "Rows": len(plate.rows) or None,
            "Columns": len(plate.columns) or None,
        },
    )
    sample = 0
    for n, well in enumerate(plate.wells):
        row, column = _place(well.row, plate.rows), _place(well.column, plate.columns)
        inner = build.add(element, "Well", {"ID": f"Well:0:{n}", "Row": row, "Column": column})
        for index in (i for i in well.images if i < images):
            attributes = {"ID": f"WellSample:0:{n}:{sample}", "Index": sample}
            build.add(
                build.add(inner, "WellSample", attributes), "ImageRef", {"ID": f"Image:{index}"}
            )
            sample += 1


def _place(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else 0


def _instrument(
    build: _Builder, n: int, objective: Mapping[str, Any], instrument: Mapping[str, Any]
) -> None:
    element = build.add(build.root, "Instrument", {"ID": f"Instrument:{n}"})
    microscope = instrument.get("microscope")
    if isinstance(microscope, dict):
        build.add(
            element,
            "Microscope",
            {**_picked(microscope, _MAKER), "Type": _one_of(microscope.get("type"), _MICROSCOPES)},
        )
    detectors = instrument.get("detectors")
    for m, detector in enumerate(detectors if isinstance(detectors, (list, tuple)) else ()):
        if isinstance(detector, dict):
            build.add(
                element,
                "Detector",
                {
                    **_picked(detector, _MAKER),
                    "ID": f"Detector:{n}:{m}",
                    "Type": _one_of(detector.get("type"), _DETECTORS),
                },
            )
    if objective:
        attributes = _picked(objective, _OBJECTIVE)
        attributes["Correction"] = _one_of(attributes.get("Correction"), _CORRECTIONS)
        attributes["Immersion"] = _one_of(attributes.get("Immersion"), _IMMERSIONS)
        build.add(element, "Objective", {**attributes, "ID": f"Objective:{n}"})


def _one_of(value: object, allowed: Iterable[str]) -> str | None:
    """A word of one of the schema's lists; another word than these becomes Other."""
    if not isinstance(value, str) or not value:
        return None
    return value if value in allowed else "Other"


def _picked(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: values[key]
        for key, name in names.items()
        if isinstance(values.get(key), (str, int, float))
    }


def _image(build: _Builder, n: int, image: Image, with_hardware: bool) -> None:
    element = build.add(build.root, "Image", {"ID": f"Image:{n}", "Name": image.name})
    if image.acquired_at and re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", image.acquired_at
    ):
        build.add(element, "AcquisitionDate", text=image.acquired_at)
    description = image.extra.get("description")
    if isinstance(description, str):
        build.add(element, "Description", text=description)
    if with_hardware:
        build.add(element, "InstrumentRef", {"ID": f"Instrument:{n}"})
    if image.objective:
        settings = image.objective.get("settings")
        about = settings if isinstance(settings, dict) else {}
        build.add(
            element,
            "ObjectiveSettings",
            {
                "ID": f"Objective:{n}",
                "Medium": _one_of(about.get("medium"), _MEDIA),
                "RefractiveIndex": about.get("refractive_index"),
                "CorrectionCollar": about.get("correction_collar"),
            },
        )
    samples = image.samples_per_pixel
    pixels = build.add(
        element,
        "Pixels",
        {
            "ID": f"Pixels:{n}",
            "DimensionOrder": image.dimension_order,
            "Type": _pixel_type(image),
            "SizeX": image.size("x"),
            "SizeY": image.size("y"),
            "SizeZ": image.size("z"),
            "SizeC": image.size("c") * samples,
            "SizeT": image.size("t"),
            **_lengths(image),
        },
    )
    _channels(build, n, pixels, image.channels, image.size("c"), samples)
    build.add(pixels, "MetadataOnly")
    _planes(build, pixels, image.channels[: image.size("c")])


def _pixel_type(image: Image) -> str:
    if image.dtype == "bool":
        return "bit"
    name = image.pixel_type or "uint8"
    return _TYPES.get(name, name)


def _lengths(image: Image) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for axis in "xyz":
        value, unit = _quantity(image, axis)
        if value is not None:
            found[f"PhysicalSize{axis.upper()}"] = value
            found[f"PhysicalSize{axis.upper()}Unit"] = unit
    value, unit = _quantity(image, "t")
    if value is not None:
        found["TimeIncrement"], found["TimeIncrementUnit"] = value, unit
    return found


def _quantity(image: Image, axis: str) -> tuple[float | None, str | None]:
    place = image.axis_names.find(axis)
    if place < 0:
        return None, None
    value = image.levels[0].scale[place]
    symbol = SYMBOLS.get(unit_name(image.axes[place].unit) or "")
    known = value is not None and value > 0 and symbol is not None
    return (float(value), symbol) if known and value is not None else (None, None)


def _channels(
    build: _Builder, n: int, pixels: _Element, channels: Sequence[Channel], count: int, samples: int
) -> None:
    for c in range(count):
        about: dict[str, Any] = {}
        if c < len(channels):
            about = _channel(channels[c])
        build.add(
            pixels, "Channel", {"ID": f"Channel:{n}:{c}", **about, "SamplesPerPixel": samples}
        )


def _channel(channel: Channel) -> dict[str, Any]:
    about: dict[str, Any] = {
        "Name": channel.name,
        "Color": color_number(channel.color),
        "Fluor": channel.fluorophore,
    }
    for key, value in (
        ("ExcitationWavelength", channel.excitation_nm),
        ("EmissionWavelength", channel.emission_nm),
    ):
        if value is not None and value > 0:
            about[key], about[f"{key}Unit"] = float(value), "nm"
    about["AcquisitionMode"] = _one_of(channel.extra.get("acquisition_mode"), _ACQUISITION_MODES)
    return about


def _planes(build: _Builder, pixels: _Element, channels: Sequence[Channel]) -> None:
    """Exposures, as OME keeps them: of the first plane of each channel."""
    for c, channel in enumerate(channels):
        if channel.exposure_s is not None:
            build.add(
                pixels,
                "Plane",
                {
                    "TheZ": 0,
                    "TheC": c,
                    "TheT": 0,
                    "ExposureTime": float(channel.exposure_s),
                    "ExposureTimeUnit": "s",
                },
            )
