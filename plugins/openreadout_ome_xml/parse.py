"""Parse OME-XML of every schema from 2008 to 2016-06.

Elements go by their local names, since the schemas spread them over several namespaces and writers over several
prefixes. `Plane`, `TiffData` and `BinData` elements are turned into tuples while the document is read and then dropped,
so that a document with one of each for a million planes is never held as a tree.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from openreadout import limits
from openreadout.errors import CorruptDataError
from openreadout_ome_xml.document import BinaryOnly, OmeDocument, OmeImage, OmePlane, TiffData
from openreadout_ome_xml.elements import child, children, number, seconds, tag, whole
from openreadout_ome_xml.text import decode_document, mend

if TYPE_CHECKING:
    from lxml.etree import _Element

_VERSION = re.compile(r"/(?:Schemas|XMLschemas)/OME/([0-9A-Za-z-]{2,12})", re.IGNORECASE)
_ORDERS = {"XYZCT", "XYZTC", "XYCTZ", "XYCZT", "XYTCZ", "XYTZC"}


class _Parts(NamedTuple):
    """What was collected of one Pixels element while the document was read."""

    tiff_data: tuple[TiffData, ...]
    planes: tuple[OmePlane, ...]
    has_binary: bool


def parse_ome_xml(data: bytes) -> OmeDocument:
    """Parse a document.

    Parameters
    ----------
    data : bytes
        The whole document, with or without declaration, in UTF-8, UTF-16 or Latin-1.

    Returns
    -------
    OmeDocument

    Raises
    ------
    CorruptDataError
        It is not well-formed, its root is not `OME`, it declares a document type, or a size is not a sensible number.

    Notes
    -----
    OME data model 2016-06, "OME-XML"; earlier schemas by the OME transformations between them.
    """
    text, repairs = decode_document(data)
    try:
        root, parts = _read_tree(text)
    except CorruptDataError:
        mended, more = mend(text)
        if not more:
            raise
        text, repairs = mended, (*repairs, *more)
        root, parts = _read_tree(text)
    if tag(root) != "OME":
        raise CorruptDataError(f"the XML document's root is {tag(root)!r}, not OME")
    return _document(root, parts, text, repairs)


def _read_tree(text: str) -> tuple[_Element, dict[_Element, _Parts]]:
    """Parse the text; give the root and, for each Pixels element, what was taken out of it."""
    from lxml import etree

    collected = _Collector()
    try:
        events = etree.iterparse(
            io.BytesIO(text.encode("utf-8", "surrogatepass")),
            events=("end",),
            encoding="utf-8",
            huge_tree=True,
            load_dtd=False,
            no_network=True,
            resolve_entities=False,
            remove_comments=True,
            remove_pis=True,
        )
        for _, element in events:
            collected.end(element)
        root = events.root
    except etree.XMLSyntaxError as error:
        raise CorruptDataError(f"the OME-XML is not well-formed: {error.msg}") from error
    if root is None:
        raise CorruptDataError("the OME-XML has no root element")
    return root, collected.parts


class _Collector:
    """Takes the elements that come by the thousands out of the tree as soon as each is complete."""

    def __init__(self) -> None:
        self.parts: dict[_Element, _Parts] = {}
        self._tiff_data: list[TiffData] = []
        self._planes: list[OmePlane] = []
        self._binary = False
        self._done: _Element | None = None

    def end(self, element: _Element) -> None:
        """Called at the end tag of every element."""
        name = tag(element)
        if name == "TiffData":
            self._tiff_data.append(_tiff_data(element))
            self._drop(element)
        elif name == "Plane":
            plane = _plane(element)
            if plane is not None:
                self._planes.append(plane)
            self._drop(element)
        elif name == "BinData":
            self._binary = True
            element.text = None
        elif name == "Pixels":
            self.parts[element] = _Parts(tuple(self._tiff_data), tuple(self._planes), self._binary)
            self._tiff_data, self._planes, self._binary = [], [], False

    def _drop(self, element: _Element) -> None:
        """Remove the element before this one: the parser still holds the one it has just closed."""
        element.clear()
        done, self._done = self._done, element
        if done is not None:
            parent = done.getparent()
            if parent is not None and parent is element.getparent():
                parent.remove(done)


def _tiff_data(element: _Element) -> TiffData:
    uuid = child(element, "UUID")
    get = element.get
    return TiffData(
        ifd=whole(get("IFD"), "TiffData/@IFD"),
        plane_count=whole(get("PlaneCount") or get("NumPlanes"), "TiffData/@PlaneCount"),
        first_z=whole(get("FirstZ"), "TiffData/@FirstZ") or 0,
        first_c=whole(get("FirstC"), "TiffData/@FirstC") or 0,
        first_t=whole(get("FirstT"), "TiffData/@FirstT") or 0,
        uuid=(uuid.text or "").strip() or None if uuid is not None else None,
        file_name=uuid.get("FileName") if uuid is not None else None,
    )


def _plane(element: _Element) -> OmePlane | None:
    """A Plane; None when its indices are not numbers, since only its annotations are lost then."""
    get = element.get
    try:
        z, c, t = (int(get(name, "0")[:12]) for name in ("TheZ", "TheC", "TheT"))
    except ValueError:
        return None
    timing = child(element, "PlaneTiming")  # 2008
    times = element if timing is None else timing
    stage = child(element, "StagePosition")
    place = element if stage is None else stage
    position = {}
    for axis in "XYZ":
        value = number(place.get(f"Position{axis}"))
        if value is not None:
            position[axis.lower()] = (value, place.get(f"Position{axis}Unit", "reference frame"))
    return OmePlane(z, c, t, seconds(times, "ExposureTime"), seconds(times, "DeltaT"), position)


def _document(
    root: _Element, parts: Mapping[_Element, _Parts], text: str, repairs: tuple[str, ...]
) -> OmeDocument:
    from openreadout_ome_xml.annotations import structured_annotations
    from openreadout_ome_xml.hardware import Hardware
    from openreadout_ome_xml.plates import plates

    namespace = str(root.tag).partition("}")[0]
    version = _VERSION.search(namespace)
    notes = structured_annotations(root)
    hardware = Hardware(root)
    elements = list(children(root, "Image"))
    if len(elements) > limits.MAX_IMAGES:
        raise CorruptDataError(
            f"{len(elements)} images, more than are accepted",
            hint=limits.raised_by("MAX_IMAGES", len(elements)),
        )
    images = tuple(
        image
        for element in elements
        if (image := _image(element, parts, notes, hardware, alone=len(elements) == 1)) is not None
    )
    only = child(root, "BinaryOnly")
    return OmeDocument(
        version=version.group(1) if version else None,
        uuid=(root.get("UUID") or "").strip() or None,
        creator=root.get("Creator"),
        images=images,
        plates=plates(root, {image.id for image in images if image.id}),
        annotations=notes,
        binary_only=BinaryOnly(only.get("MetadataFile", ""), only.get("UUID"))
        if only is not None
        else None,
        text=text,
        repairs=repairs,
    )


def _image(
    element: _Element,
    parts: Mapping[_Element, _Parts],
    notes: Mapping[str, Any],
    hardware: Any,
    *,
    alone: bool,
) -> OmeImage | None:
    from openreadout_ome_xml.channels import channels
    from openreadout_ome_xml.extras import image_extra, physical_sizes, time_increment

    pixels = default_pixels(element)
    if pixels is None:
        return None
    found = parts.get(pixels, _Parts((), (), has_binary=False))
    name = element.get("Name")
    where = f"Image {element.get('ID') or name or ''}".strip()
    sizes = {axis: _size(pixels, axis, where) for axis in "XYZCT"}
    declared = sizes["Z"] * sizes["C"] * sizes["T"]
    if declared > limits.MAX_PLANES:
        raise CorruptDataError(
            f"{where}: {sizes['Z']} x {sizes['C']} x {sizes['T']} planes are declared, more than are accepted",
            hint=limits.raised_by("MAX_PLANES", declared),
        )
    order = (pixels.get("DimensionOrder") or "XYZCT").upper()
    if order not in _ORDERS:
        raise CorruptDataError(f"{where}: {order[:20]!r} is not a dimension order")
    physical, raw = physical_sizes(pixels)
    planes = found.planes
    increment = time_increment(pixels, element)
    return OmeImage(
        id=element.get("ID"),
        name=name,
        size_x=sizes["X"],
        size_y=sizes["Y"],
        size_z=sizes["Z"],
        size_c=sizes["C"],
        size_t=sizes["T"],
        dimension_order=order,
        pixel_type=_pixel_type(pixels),
        big_endian=_flag(pixels.get("BigEndian")),
        channels=channels(element, pixels, planes, hardware, sizes["C"]),
        physical_size=physical,
        time_increment=increment,
        objective=hardware.objective(element),
        instrument=hardware.instrument(element),
        acquired_at=_acquired_at(element),
        tiff_data=found.tiff_data,
        planes=planes,
        has_binary=found.has_binary,
        extra=image_extra(element, pixels, planes, increment, raw, notes, alone=alone),
    )


def default_pixels(element: _Element) -> _Element | None:
    """The Pixels of an image; before 2009 there may be several, and an attribute names the one to show."""
    found = list(children(element, "Pixels"))
    wanted = element.get("DefaultPixels") or element.get("AcquiredPixels")
    for pixels in found:
        if wanted and pixels.get("ID") == wanted:
            return pixels
    return found[0] if found else None


def _size(pixels: _Element, axis: str, where: str) -> int:
    name = f"Size{axis}"
    value = whole(pixels.get(name), f"{where}: Pixels/@{name}")
    if value is None and axis in "ZCT":
        return 1
    bound = limits.MAX_CHANNELS if axis == "C" else limits.MAX_AXIS
    if value is None or not 1 <= value <= bound:
        many = value is not None and axis == "C" and value > bound
        raise CorruptDataError(
            f"{where}: Pixels/@{name} is {pixels.get(name)!r}, not a size",
            hint=limits.raised_by("MAX_CHANNELS", value or 0) if many else None,
        )
    return value


def _pixel_type(pixels: _Element) -> str | None:
    text = pixels.get("Type") or pixels.get("PixelType")
    return text.strip().lower() if text else None


def _flag(text: str | None) -> bool | None:
    return {"true": True, "1": True, "false": False, "0": False}.get((text or "").strip().lower())


def _acquired_at(element: _Element) -> str | None:
    for name in ("AcquisitionDate", "AcquiredDate", "CreationDate"):
        found = child(element, name)
        if found is not None and (found.text or "").strip():
            return (found.text or "").strip()
    return None
