"""Give a document of the schemas 2009-09 to 2015-01 the names and places of 2016-06.

What the published schemas changed, newest first:

- 2016-06: one namespace; `Shape` and `LightSource` became what they enclosed; `Visible`, `LineCap` and the namespace of
  a region went.
- 2015-01: units, with defaults that are the units meant before, so that none needs to be added; annotations of pixels
  and well samples went.
- 2012-06: `AcquiredDate`, `Group`, `Contact`, `Fill`, `Stroke`, `Label` and others got new names; references from
  images to data sets, data sets to projects, plates to screens and experimenters to groups turned round; the transforms
  of shapes became elements; `Path` and `OTF` went.
- 2010-06: colours are signed; `StringAnnotation` became `CommentAnnotation`.
- 2010-04: secondary filters of channels moved to the light path, acquisitions from screens to plates, and how a shape
  is shown to the shape.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from openreadout_ome_xml.elements import number, tag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lxml.etree import _Element

VERSIONS = frozenset(("2009-09", "2010-04", "2010-06", "2011-06", "2012-06", "2013-06", "2015-01"))
"""Schemas whose documents are upgraded."""
_NAMESPACE = re.compile(
    r"\{https?://www\.openmicroscopy\.org/(?:XML)?Schemas/(?:OME|SPW|ROI|SA|BinaryFile)/",
    re.IGNORECASE,
)
_ELEMENTS = {
    "AcquiredDate": "AcquisitionDate", "Group": "ExperimenterGroup", "GroupRef": "ExperimenterGroupRef",
    "Contact": "Leader", "StringAnnotation": "CommentAnnotation", "XmlAnnotation": "XMLAnnotation", "Rect": "Rectangle",
}  # fmt: skip
_ATTRIBUTES = {
    "Experimenter": {"OMEName": "UserName"},
    "Well": {"Status": "Type"},
    "Shape": {"Fill": "FillColor", "Stroke": "StrokeColor"},
    "Channel": {"ExWave": "ExcitationWavelength", "EmWave": "EmissionWavelength"},
    "Ellipse": {"Cx": "X", "Cy": "Y", "Rx": "RadiusX", "Ry": "RadiusY"},
    "Point": {"Cx": "X", "Cy": "Y"},
    "Laser": {"Tunable": "Tuneable"},
    "Pixels": {"PixelType": "Type"},
}
_LIGHT_SOURCES = ("Laser", "Arc", "Filament", "LightEmittingDiode", "GenericExcitationSource")
_SHAPES = ("Line", "Rectangle", "Mask", "Ellipse", "Point", "Polyline", "Polygon", "Label", "Text")
_DATA = ("TiffData", "BinData", "MetadataOnly")


def upgrade(root: _Element) -> Counter[str]:
    """Rename and move the elements of a document in place; all get names without namespace.

    The content of XML annotations stays as it is. What is named here and cannot be kept is counted by name.

    Notes
    -----
    OME model, changes of the schemas 2010-04 to 2016-06.
    """
    removed: Counter[str] = Counter()
    _plain_names(root, removed)
    for image in root.findall("Image"):
        _one_pixels(image, removed)
    for channel in root.iterfind("Image/Pixels/Channel"):
        _light_path(channel)
    for source in root.findall("Instrument/LightSource"):
        _absorb(source, next((e for e in source if e.tag in _LIGHT_SOURCES), None))
        if source.tag == "LightSource":
            source.tag = "GenericExcitationSource"
    channels = _channel_places(root)
    for shape in root.findall("ROI/Union/Shape"):
        _shape(shape, channels, removed)
    _acquisitions(root, removed)
    _sample_annotations(root, removed)
    _turn_round(root, "Image", "DatasetRef", "Dataset", "ImageRef", removed)
    _turn_round(root, "Dataset", "ProjectRef", "Project", "DatasetRef", removed)
    _turn_round(root, "Plate", "ScreenRef", "Screen", "PlateRef", removed)
    _turn_round(
        root, "Experimenter", "ExperimenterGroupRef", "ExperimenterGroup", "ExperimenterRef", removed
    )  # fmt: skip
    _one_leader_each(root)
    _number_samples(root)
    _comments(root)
    return removed


def _plain_names(root: _Element, removed: Counter[str]) -> None:
    """Local names, those of 2016-06; elements of other schemas (custom attributes, semantic types) are left out."""
    root.tag = "OME"
    waiting = [root]
    while waiting:
        element = waiting.pop()
        for inner in list(element):
            name = tag(inner)
            if not name:
                element.remove(inner)  # a comment or an instruction
            elif not _is_ome(inner):
                removed[name] += 1
                element.remove(inner)
            else:
                inner.tag = _ELEMENTS.get(name, name)
                for old, new in _ATTRIBUTES.get(str(inner.tag), {}).items():
                    _rename(inner, old, new)
                if not (name == "Value" and element.tag == "XMLAnnotation"):
                    waiting.append(inner)


def _is_ome(element: _Element) -> bool:
    name = str(element.tag)
    return not name.startswith("{") or _NAMESPACE.match(name) is not None


def _rename(element: _Element, old: str, new: str) -> None:
    text = element.get(old)
    if text is not None and element.get(new) is None:
        del element.attrib[old]
        element.set(new, text)


def _pop(element: _Element, name: str) -> str | None:
    text = element.get(name)
    if text is not None:
        del element.attrib[name]
    return None if text is None else str(text)


def _one_pixels(image: _Element, removed: Counter[str]) -> None:
    """One Pixels of those that an image may have had, without data; its annotations are the image's."""
    from openreadout_ome_xml.parse import default_pixels

    shown = default_pixels(image)
    for name in ("DefaultPixels", "AcquiredPixels"):
        _pop(image, name)
    for pixels in image.findall("Pixels"):
        if pixels is not shown:
            removed["Pixels"] += 1
            image.remove(pixels)
    if shown is None:
        return
    for axis in "XYZ":
        size = number(shown.get(f"PhysicalSize{axis}"))
        if size is not None and size <= 0:  # unknown; the model keeps it as a raw size
            for name in (f"PhysicalSize{axis}", f"PhysicalSize{axis}Unit"):
                _pop(shown, name)
    for element in [e for e in shown if e.tag in _DATA]:
        shown.remove(element)
    shown.append(shown.makeelement("MetadataOnly"))
    for reference in shown.findall("AnnotationRef"):
        image.append(reference)


def _light_path(channel: _Element) -> None:
    for old, new in (
        ("SecondaryExcitationFilter", "ExcitationFilterRef"),
        ("SecondaryEmissionFilter", "EmissionFilterRef"),
    ):
        name = _pop(channel, old)
        if name is not None:
            path = channel.find("LightPath")
            if path is None:
                path = channel.makeelement("LightPath")
                channel.append(path)
            path.append(path.makeelement(new, {"ID": name}))


def _absorb(outer: _Element, inner: _Element | None) -> None:
    """Make an element what it encloses, with the attributes and children of both."""
    if inner is None:
        return
    outer.tag = inner.tag
    for name, text in inner.attrib.items():
        outer.set(name, text)
    outer.remove(inner)
    for element in list(inner):
        outer.append(element)


def _channel_places(root: _Element) -> dict[str, str]:
    """The place of each channel in its image, by its identifier."""
    return {
        str(channel.get("ID")): str(place)
        for pixels in root.iterfind("Image/Pixels")
        for place, channel in enumerate(pixels.iterfind("Channel"))
    }


def _shape(shape: _Element, channels: dict[str, str], removed: Counter[str]) -> None:
    _display_options(shape)
    _shape_channel(shape, channels, removed)
    inner = next((e for e in shape if e.tag in _SHAPES), None)
    if inner is None:
        parent = shape.getparent()
        if parent is not None:
            removed["Path" if shape.find("Path") is not None else "Shape"] += 1
            parent.remove(shape)
        return
    _wording(shape, inner, removed)
    _transform(shape)
    if inner.tag == "Polyline":
        closed = _pop(inner, "Closed") or "false"
        inner.tag = "Polygon" if closed.strip().lower() in ("true", "1") else "Polyline"
    if inner.tag == "Mask":
        _mask(inner)
    _absorb(shape, inner)


def _display_options(shape: _Element) -> None:
    for options in shape.findall("ShapeDisplayOptions"):
        for name, text in options.attrib.items():
            key = "Label" if name == "Text" else name
            if shape.get(key) is None:
                shape.set(key, text)
        shape.remove(options)
    for old, new in _ATTRIBUTES["Shape"].items():
        _rename(shape, old, new)


def _shape_channel(shape: _Element, channels: dict[str, str], removed: Counter[str]) -> None:
    """A shape is in one channel, or in all."""
    references = shape.findall("ChannelRef")
    place = channels.get(str(references[0].get("ID"))) if len(references) == 1 else None
    for reference in references:
        shape.remove(reference)
    if place is not None and shape.get("TheC") is None:
        shape.set("TheC", place)
    elif references:
        removed["ChannelRef"] += len(references)


def _wording(shape: _Element, inner: _Element, removed: Counter[str]) -> None:
    """The text of a shape, from its label, or from the value of a text; texts are labels since 2012-06."""
    value = inner.find("Value") if inner.tag == "Text" else None
    if inner.tag == "Text":
        inner.tag = "Label"
    if value is not None:
        inner.remove(value)
        label = _pop(shape, "Label")
        if label is not None and label != value.text:
            removed["Shape/@Label"] += 1
        shape.set("Text", value.text or "")
    _rename(shape, "Label", "Text")


def _transform(shape: _Element) -> None:
    """Six numbers, as columns, became an element; anything else is left to be counted as an attribute."""
    text = str(shape.get("Transform") or "").strip()
    if text.lower() == "none":
        del shape.attrib["Transform"]
    found = re.fullmatch(r"(?:matrix\s*)?\(?([^()]{0,400})\)?", text)
    numbers = re.split(r"[\s,]+", found.group(1).strip()) if found else []
    if len(numbers) == 6:
        names = ("A00", "A10", "A01", "A11", "A02", "A12")
        shape.append(shape.makeelement("Transform", dict(zip(names, numbers, strict=True))))
        del shape.attrib["Transform"]


def _mask(mask: _Element) -> None:
    """The pixels of a mask stood in an element of their own."""
    for outer in mask.findall("MaskPixels"):
        for data in outer.findall("BinData"):
            if data.get("BigEndian") is None and outer.get("BigEndian") is not None:
                data.set("BigEndian", str(outer.get("BigEndian")))
            mask.append(data)
        mask.remove(outer)


def _acquisitions(root: _Element, removed: Counter[str]) -> None:
    """Acquisitions of a screen go to the plates whose samples they name."""
    places = [
        (plate, {str(sample.get("ID")) for sample in plate.iterfind("Well/WellSample")})
        for plate in root.findall("Plate")
    ]
    for screen in root.findall("Screen"):
        for acquisition in screen.findall("ScreenAcquisition"):
            screen.remove(acquisition)
            samples = [str(e.get("ID")) for e in acquisition.findall("WellSampleRef")]
            hit = [(plate, own) for plate, own in places if own.intersection(samples)]
            for plate, own in hit:
                _acquisition(plate, acquisition, own)
            if not hit:
                removed["ScreenAcquisition"] += 1


def _acquisition(plate: _Element, acquisition: _Element, samples: set[str]) -> None:
    name = f"PlateAcquisition:{plate.get('ID')}:{acquisition.get('ID')}"
    made = plate.makeelement("PlateAcquisition", {**_texts(acquisition), "ID": name})
    for inner in acquisition:
        if inner.tag != "WellSampleRef" or inner.get("ID") in samples:
            copied = inner.makeelement(inner.tag, _texts(inner))
            copied.text = inner.text
            made.append(copied)
    plate.append(made)


def _texts(element: _Element) -> dict[str, str]:
    return {str(name): str(text) for name, text in element.attrib.items()}


def _sample_annotations(root: _Element, removed: Counter[str]) -> None:
    images = _by_id(root, "Image")
    for sample in root.iterfind("Plate/Well/WellSample"):
        references = sample.findall("AnnotationRef")
        if references:
            image = images.get(_reference(sample, "ImageRef"))
            for reference in references:
                sample.remove(reference)
                if image is None:
                    removed["AnnotationRef"] += 1
                else:
                    image.append(reference)


def _by_id(root: _Element, name: str) -> dict[str, _Element]:
    return {str(e.get("ID")): e for e in reversed(root.findall(name)) if e.get("ID") is not None}


def _reference(element: _Element, name: str) -> str:
    found = element.find(name)
    return "" if found is None else str(found.get("ID"))


def _turn_round(
    root: _Element, holder: str, reference: str, target: str, back: str, removed: Counter[str]
) -> None:
    """What pointed from a holder to a target points from the target to the holder."""
    targets = _by_id(root, target)
    there: dict[str, set[str]] = {}
    for name, element in targets.items():
        leaders = element.findall("Leader") if back == "ExperimenterRef" else []
        there[name] = {str(e.get("ID")) for e in (*element.findall(back), *leaders)}
    for element in root.findall(holder):
        own = str(element.get("ID"))
        for pointer in element.findall(reference):
            element.remove(pointer)
            name = str(pointer.get("ID"))
            if name not in targets or element.get("ID") is None:
                removed[reference] += 1
            elif own not in there[name]:
                there[name].add(own)
                targets[name].append(element.makeelement(back, {"ID": own}))


def _one_leader_each(root: _Element) -> None:
    """The contact of a group is a leader since 2012-06, once."""
    for group in root.findall("ExperimenterGroup"):
        seen = set()
        for leader in group.findall("Leader"):
            if leader.get("ID") in seen:
                group.remove(leader)
            seen.add(leader.get("ID"))


def _number_samples(root: _Element) -> None:
    """Samples without an index come after those of their plate that have one, in the document's order."""
    for plate in root.findall("Plate"):
        samples = plate.findall("Well/WellSample")
        last = max((n for n in map(_index, samples) if n is not None), default=-1)
        for sample in samples:
            if _index(sample) is None:
                last += 1
                sample.set("Index", str(last))


def _index(sample: _Element) -> int | None:
    text = str(sample.get("Index") or "").strip()
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None


def _comments(root: _Element) -> None:
    """An XML annotation that holds text alone is a comment, since XML annotations may hold elements only."""
    for value in _values(root):
        parent = value.getparent()
        if parent is not None and not len(value) and (value.text or "").strip():
            parent.tag = "CommentAnnotation"


def _values(root: _Element) -> Iterator[_Element]:
    return iter(root.findall("StructuredAnnotations/XMLAnnotation/Value"))
