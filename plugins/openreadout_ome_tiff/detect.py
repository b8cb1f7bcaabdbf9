"""What a file is: an OME-TIFF, another kind of TIFF, an OME-XML document."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from openreadout.contracts import DEFINITE, LIKELY, Detection
from openreadout.errors import InputError
from openreadout_ome_tiff.files import File, Handles
from openreadout_ome_tiff.ifd import IMAGE_DESCRIPTION, SOFTWARE, Ifd, TiffFile

if TYPE_CHECKING:
    from openreadout.contracts import Source

OME_ROOT = re.compile(rb"<(?:[A-Za-z_][A-Za-z0-9_.-]*:)?OME[\s>/]")
DESCRIPTION_HEAD = 64 << 10
"""How much of an image description detection looks at; a comment may stand before the root element."""
_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")

_BY_TAG = (
    (34412, "a Zeiss LSM file", "bioformats2raw converts it"),
    (65420, "a Hamamatsu NDPI slide", "bioformats2raw converts it"),
    (51123, "a Micro-Manager TIFF without OME-XML", "bioformats2raw converts it"),
    (33628, "a MetaMorph STK file", "bioformats2raw converts it"),
    (34361, "an Olympus FluoView TIFF", "bioformats2raw converts it"),
    (50838, "an ImageJ TIFF", "ImageJ's Bio-Formats exporter or bfconvert saves it as OME-TIFF"),
    (50706, "a DNG camera file", "a raw converter saves it as TIFF first"),
    (34735, "a GeoTIFF", "GDAL reads it; tifffile can write its pixels as OME-TIFF"),
)
_BY_TEXT = (
    (
        b"ImageJ=",
        "an ImageJ TIFF",
        "ImageJ's Bio-Formats exporter or bfconvert saves it as OME-TIFF",
    ),
    (b"Aperio", "an Aperio SVS slide", "bioformats2raw converts it"),
    (b"<scn ", "a Leica SCN slide", "bioformats2raw converts it"),
    (b"<MetaData>", "a MetaMorph TIFF", "bioformats2raw converts it"),
    (b"<PerkinElmer-QPI", "a PerkinElmer QPTIFF slide", "bioformats2raw converts it"),
    (b'DataObject ObjectType="DPUfsImport"', "a Philips TIFF slide", "bioformats2raw converts it"),
    (
        b'{"shape":',
        "a tifffile TIFF with its own shape metadata",
        "tifffile can write it as OME-TIFF (ome=True)",
    ),
)


def is_tiff(head: bytes) -> bool:
    """Whether a file starts like a TIFF or BigTIFF."""
    return head[:4] in _MAGIC


def is_ome_xml(head: bytes) -> bool:
    """Whether a file starts like an XML document whose root element is OME."""
    text = (
        head.replace(b"\0", b"")
        if head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in head[:8]
        else head
    )
    text = text.lstrip(b"\xef\xbb\xbf\xff\xfe \t\r\n")
    if not text.startswith(b"<"):
        return False
    while True:  # declarations, comments and processing instructions before the root
        if text.startswith(b"<?"):
            _, found, text = text.partition(b"?>")
        elif text.startswith(b"<!--"):
            _, found, text = text.partition(b"-->")
        else:
            return OME_ROOT.match(text) is not None
        if not found:
            return False
        text = text.lstrip(b" \t\r\n")


def detect(source: Source) -> Detection | None:
    """Detection of one file; reads at most its first IFD and the start of its image description."""
    if is_tiff(source.head):
        return _detect_tiff(source)
    if is_ome_xml(source.head):
        return Detection(DEFINITE, "an XML document whose root is OME")
    return None


def _detect_tiff(source: Source) -> Detection:
    handles = Handles.of(source)
    try:
        tiff = TiffFile(File(source.path, handles))
        ifd = tiff.ifd(tiff.first_offset)
        description = tiff.text(ifd, IMAGE_DESCRIPTION, DESCRIPTION_HEAD) or b""
    except InputError:  # opening says what is wrong with it
        return Detection(LIKELY, "a TIFF whose first IFD cannot be read")
    finally:
        handles.close()
    if OME_ROOT.search(description) or b"<\0O\0M\0E\0" in description:
        return Detection(DEFINITE, "a TIFF with OME-XML in its first image description")
    return Detection(LIKELY, "a TIFF without OME-XML")


def foreign_kind(tiff: TiffFile, ifd: Ifd) -> tuple[str, str]:
    """What a TIFF without OME-XML is, and what converts it."""
    description = tiff.text(ifd, IMAGE_DESCRIPTION, DESCRIPTION_HEAD) or b""
    for sign, name, hint in _BY_TEXT:
        if sign in description[:4096]:
            return name, hint
    for code, name, hint in _BY_TAG:
        if code in ifd.tags:
            return name, hint
    software = (tiff.text(ifd, SOFTWARE, 256) or b"").split(b"\0")[0].decode("latin-1").strip()
    made = f" written by {software}" if software and software.isprintable() else ""
    return (
        f"a plain TIFF{made}, without OME-XML",
        "bfconvert, ImageJ's Bio-Formats exporter or tifffile (ome=True) saves it as OME-TIFF",
    )
