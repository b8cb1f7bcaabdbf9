"""What a JPEG stream says about itself, read from its markers before anything is decoded."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from openreadout.codecs import Buffer
from openreadout.errors import CorruptDataError, UnsupportedFeatureError

START_OF_IMAGE = b"\xff\xd8"
END_OF_IMAGE = 0xD9
START_OF_SCAN = 0xDA
APP0, APP14 = 0xE0, 0xEE
STANDALONE = frozenset({0x01, *range(0xD0, 0xD8)})
"""Markers without a length: TEM and the restart markers."""
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Start-of-frame markers; the three left out are tables and an extension."""
READ_FRAMES = frozenset({0xC0, 0xC1, 0xC2})
"""Baseline, extended sequential and progressive, all with Huffman coding."""
NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""The end of a scan: in its data a 0xff byte is followed by zero or by a restart marker."""
FRAME = struct.Struct(">BHHB")
"""Precision, height, width, components."""
MAX_SCANS = 100
"""Each scan goes over the whole image again; progressive encoders write about ten."""
MAX_SEGMENTS = 10_000

ADOBE_TRANSFORMS = {0: "rgb", 1: "ycbcr"}
RGB_IDS = b"RGB"


@dataclass(frozen=True, slots=True)
class Stream:
    """An image in pixels (`height`, `width`), its number of components and the colour space they are stored in."""

    height: int
    width: int
    components: int
    color_space: str


@dataclass(slots=True)
class _Seen:
    """What the walk over the markers has found so far."""

    frame: tuple[int, int, int] | None = None
    ids: bytes = b""
    adobe: int | None = None
    jfif: bool = False
    scans: int = 0


def parse_stream(data: Buffer) -> Stream:
    """Walk over all markers of a stream, to its end mark.

    Returns
    -------
    Stream
        `color_space` is `grayscale`, `rgb` or `ycbcr`: what an Adobe marker says, without one what JFIF implies,
        without that what the component numbers say.

    Raises
    ------
    CorruptDataError
        The stream is cut or breaks the rules of ITU-T T.81, annex B.
    UnsupportedFeatureError
        It is not 8-bit, neither grey nor of three components, lossless, hierarchical or arithmetic-coded.
    """
    view = bytes(data)
    if view[:2] != START_OF_IMAGE:
        raise CorruptDataError("jpeg: the data do not begin like a JPEG image")
    seen, at = _Seen(), 2
    for _ in range(MAX_SEGMENTS):
        marker, at = _marker(view, at)
        if marker == END_OF_IMAGE:
            return _stream(seen)
        if marker in STANDALONE:
            continue
        body, at = _segment(view, at)
        _note(seen, marker, body)
        if marker == START_OF_SCAN:
            at = _scan_end(seen, view, at)
    raise CorruptDataError(f"jpeg: there are more than {MAX_SEGMENTS} segments")


def _marker(data: bytes, at: int) -> tuple[int, int]:
    """The marker at `at`, which 0xff bytes may precede, and where it ends."""
    if at >= len(data):
        raise CorruptDataError(f"jpeg: the image is cut after {len(data)} bytes, its end mark is missing")  # fmt: skip
    if data[at] != 0xFF:
        raise CorruptDataError(f"jpeg: no marker where one belongs, at byte {at}")
    while at < len(data) and data[at] == 0xFF:
        at += 1
    if at >= len(data):
        raise CorruptDataError(f"jpeg: the image is cut after {len(data)} bytes, its end mark is missing")  # fmt: skip
    return data[at], at + 1


def _segment(data: bytes, at: int) -> tuple[bytes, int]:
    length = int.from_bytes(data[at : at + 2], "big")
    if length < 2 or at + length > len(data):
        raise CorruptDataError(f"jpeg: the image is cut inside the segment at byte {at}")
    return data[at + 2 : at + length], at + length


def _note(seen: _Seen, marker: int, body: bytes) -> None:
    if marker in FRAMES:
        if seen.frame is not None:
            raise CorruptDataError("jpeg: the stream has more than one frame")
        seen.frame, seen.ids = _frame(marker, body)
    elif marker == APP0 and body[:5] == b"JFIF\0":
        seen.jfif = True
    elif marker == APP14 and body[:5] == b"Adobe" and len(body) >= 12:
        seen.adobe = body[11]


def _frame(marker: int, body: bytes) -> tuple[tuple[int, int, int], bytes]:
    if len(body) < FRAME.size:
        raise CorruptDataError("jpeg: the frame header is cut")
    precision, height, width, components = FRAME.unpack_from(body)
    if marker not in READ_FRAMES:
        raise UnsupportedFeatureError(
            f"jpeg: frames of type {marker - 0xC0} (lossless, hierarchical or arithmetic-coded) are not read"
        )
    if precision != 8:
        raise UnsupportedFeatureError(f"jpeg: samples of {precision} bits are not read, only of 8")
    if components not in (1, 3):
        raise UnsupportedFeatureError(
            f"jpeg: {components} components (such as CMYK) are not read, only 1 or 3"
        )
    if len(body) != FRAME.size + 3 * components or not height or not width:
        raise CorruptDataError("jpeg: the frame header contradicts itself")
    return (height, width, components), body[FRAME.size :: 3]


def _scan_end(seen: _Seen, data: bytes, at: int) -> int:
    seen.scans += 1
    if seen.frame is None or seen.scans > MAX_SCANS:
        raise CorruptDataError("jpeg: a scan before the frame, or too many scans")
    found = NEXT_MARKER.search(data, at)
    if found is None:
        raise CorruptDataError(f"jpeg: the image is cut after {len(data)} bytes, its end mark is missing")  # fmt: skip
    return found.start()


def _stream(seen: _Seen) -> Stream:
    if seen.frame is None or not seen.scans:
        raise CorruptDataError("jpeg: there is no image in the stream")
    height, width, components = seen.frame
    if components == 1:
        return Stream(height, width, components, "grayscale")
    if seen.adobe is not None:
        if seen.adobe not in ADOBE_TRANSFORMS:
            raise UnsupportedFeatureError(f"jpeg: Adobe colour transform {seen.adobe} is not read")
        return Stream(height, width, components, ADOBE_TRANSFORMS[seen.adobe])
    rgb = not seen.jfif and seen.ids == RGB_IDS
    return Stream(height, width, components, "rgb" if rgb else "ycbcr")
