"""A source's own OME-XML for an export: schema 2016-06, without pixels, and what of it had to be left out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from openreadout_ome_xml.elements import children, tag
from openreadout_ome_xml.render import LOCATION, NAMESPACE, XSI, render_ome_xml, serialized

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lxml.etree import _Element

    from openreadout.model import Image, Plate
    from openreadout_ome_xml.document import OmeDocument, OmeImage


class Carried(NamedTuple):
    """A document as an export keeps it.

    Attributes
    ----------
    data : bytes
        UTF-8, with declaration, schema 2016-06, each Pixels with MetadataOnly in place of its data.
    left_out : mapping
        How many of the source's elements and attributes (`Element/@Name`) are not in it, by name. An element counts
        with everything in it.
    """

    data: bytes
    left_out: Mapping[str, int]


def metadata_only(data: bytes) -> Carried:
    """The document without its pixels: each Pixels has MetadataOnly in place of TiffData and BinData.

    Parameters
    ----------
    data : bytes
        An OME-XML document of any schema that `parse_ome_xml` takes.

    Returns
    -------
    Carried
        A 2016-06 document keeps everything else, valid or not. One of 2009-09 to 2015-01 is upgraded: it keeps what
        2016-06 has a place for, and is valid. An older one is written anew with images, channels, sizes, objectives,
        dates, exposures and plates.

    Raises
    ------
    CorruptDataError
        As `parse_ome_xml`.
    """
    from openreadout_ome_xml.parse import parse_ome_xml
    from openreadout_ome_xml.upgrade import VERSIONS

    document = parse_ome_xml(data)
    if document.version == "2016-06":
        return Carried(_stripped(document.text), {})
    if document.version in VERSIONS:
        return _upgraded(document.text)
    return _anew(document)


def _tree(text: str) -> _Element:
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True, encoding="utf-8"
    )
    return etree.fromstring(text.encode("utf-8"), parser)


def _stripped(text: str) -> bytes:
    root = _tree(text)
    for image in children(root, "Image"):
        for pixels in children(image, "Pixels"):
            _without_data(pixels)
    return serialized(root)


def _without_data(pixels: _Element) -> None:
    """Replace TiffData and BinData; MetadataOnly follows the channels, before planes and annotations."""
    for element in list(children(pixels, "TiffData", "BinData", "MetadataOnly")):
        pixels.remove(element)
    name = pixels.tag
    namespace = name.rpartition("}")[0] + "}" if isinstance(name, str) and "}" in name else ""
    place = sum(1 for element in pixels if tag(element) in ("Channel", ""))
    pixels.insert(place, pixels.makeelement(f"{namespace}MetadataOnly"))


def _upgraded(text: str) -> Carried:
    from lxml import etree

    from openreadout_ome_xml.conform import Conformed
    from openreadout_ome_xml.upgrade import upgrade

    source = _tree(text)
    removed = upgrade(source)
    target = etree.Element(
        f"{{{NAMESPACE}}}OME",
        {f"{{{XSI}}}schemaLocation": LOCATION},
        nsmap={None: NAMESPACE, "xsi": XSI},  # type: ignore[dict-item]  # the stubs know no default namespace
    )
    Conformed(NAMESPACE, removed).fill(source, target)
    return Carried(serialized(target), dict(removed))


def _anew(document: OmeDocument) -> Carried:
    """A document of an earlier schema, written anew."""
    data = render_ome_xml(
        [_model_image(image) for image in document.images], document.model_plate()
    )
    return Carried(data, _lost(document.text, data))


def rendered(
    source: str | None, dataset_images: Sequence[Image], plate: Plate | None = None
) -> Carried:
    """As `render_ome_xml`, in place of a source's own document, where there is one."""
    data = render_ome_xml(dataset_images, plate)
    if source is None:
        return Carried(data, {})
    from openreadout_ome_xml.parse import parse_ome_xml

    return Carried(data, _lost(parse_ome_xml(source.encode("utf-8")).text, data))


_DATA = {"TiffData", "BinData", "UUID", "MetadataOnly", "BinaryOnly", "HashSHA1"}
"""Elements that hold or place pixels."""
_IN_MODEL = {
    "LogicalChannel", "ChannelComponent", "ChannelInfo", "CreationDate", "AcquiredDate", "AcquisitionDate",
    "PlaneTiming", "StagePosition", "Plane", "Description", "Instrument", "InstrumentRef", "Microscope", "LightSource",
    "Laser", "Arc", "Filament", "LightEmittingDiode", "GenericExcitationSource", "Pump", "Detector", "Objective",
    "Filter", "FilterSet", "Dichroic", "TransmittanceRange", "Correction", "Immersion", "LensNA",
    "NominalMagnification", "CalibratedMagnification", "WorkingDistance", "Iris", "ObjectiveRef", "ObjectiveSettings",
    "DetectorRef", "DetectorSettings", "LightSourceRef", "LightSourceSettings", "FilterRef", "FilterSetRef",
    "DichroicRef", "ExcitationFilterRef", "EmissionFilterRef", "LightPath", "StageLabel", "ImagingEnvironment",
    "PlateAcquisition", "WellSampleRef",
}  # fmt: skip
"""Elements that the image model holds, and with it the attributes of the export."""


def _lost(source: str, data: bytes) -> dict[str, int]:
    """How many elements of each name a document has that neither another one has nor the model."""
    kept = {*_DATA, *_IN_MODEL, *_names(_tree(data.decode("utf-8").partition("?>")[2]))}
    return {name: count for name, count in _names(_tree(source)).items() if name not in kept}


def _names(root: _Element) -> Counter[str]:
    """How many elements of each name there are."""
    return Counter(name for element in root.iter() if (name := tag(element)))


def _model_image(image: OmeImage) -> Image:
    """The image without pixels, as far as `render_ome_xml` needs it."""
    from openreadout.model import Axis, Image, ResolutionLevel

    samples = max((channel.samples_per_pixel or 1 for channel in image.channels), default=1)
    if image.size_c % samples:
        samples = 1
    shape: tuple[int, ...] = (
        image.size_t,
        image.size_c // samples,
        image.size_z,
        image.size_y,
        image.size_x,
    )
    sizes = image.physical_size
    quantities = [image.time_increment, None, *(sizes.get(axis) for axis in "zyx")]
    names = "tczyx"
    if samples > 1:
        shape, names, quantities = (*shape, samples), names + "s", [*quantities, None]
    array = _Described(shape, _DTYPES.get(image.pixel_type or "", "uint8"))
    return Image(
        name=image.name,
        axes=tuple(Axis(n, q[1] if q else None) for n, q in zip(names, quantities, strict=True)),
        levels=(
            ResolutionLevel(
                "0",
                array,  # type: ignore[arg-type]
                tuple(q[0] if q else None for q in quantities),
                (None,) * len(names),
            ),
        ),
        channels=tuple(channel.channel for channel in image.channels),
        dimension_order_stored=image.dimension_order,
        objective=image.objective,
        instrument=image.instrument,
        acquired_at=image.acquired_at,
        extra=image.extra,
    )


_DTYPES = {
    "bit": "bool",
    "float": "float32",
    "double": "float64",
    "complex": "complex64",
    "double-complex": "complex128",
} | {name: name for name in ("int8", "int16", "int32", "uint8", "uint16", "uint32")}


class _Described(NamedTuple):
    """Shape and type of an array that is described and not read."""

    shape: tuple[int, ...]
    dtype: str
