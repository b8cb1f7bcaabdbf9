"""OME-XML to and from the image model: shared by readers and the writer, not a format of its own.

The document is parsed with lxml, which is imported when the first document is parsed or written.
"""

from __future__ import annotations

from openreadout_ome_xml.carry import Carried, metadata_only, rendered
from openreadout_ome_xml.document import (
    BinaryOnly,
    OmeChannel,
    OmeDocument,
    OmeImage,
    OmePlane,
    OmePlate,
    OmeWell,
    TiffData,
)
from openreadout_ome_xml.parse import parse_ome_xml
from openreadout_ome_xml.render import render_ome_xml

__all__ = [
    "BinaryOnly",
    "Carried",
    "OmeChannel",
    "OmeDocument",
    "OmeImage",
    "OmePlane",
    "OmePlate",
    "OmeWell",
    "TiffData",
    "metadata_only",
    "parse_ome_xml",
    "render_ome_xml",
    "rendered",
]
