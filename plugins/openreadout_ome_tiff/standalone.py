"""JPEG strips and tiles as streams that stand alone, for containers that keep no tables beside them.

In a TIFF the tables of a JPEG stream may stand in the IFD, and the IFD says what the colours are. A decoder that has
the stream alone goes by its markers. A stream is offered only where such a decoder gives the very samples that the TIFF
holds. ITU-T T.81, annex B; TIFF Technical Note 2; Zarr extension codec `jpeg`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openreadout.codecs import LIBRARY_ERRORS, CodecSpec, CoreForm

if TYPE_CHECKING:
    from numpy.typing import NDArray

START, END, SCAN, FRAME, QUANTISATION, HUFFMAN = 0xD8, 0xD9, 0xDA, 0xC0, 0xDB, 0xC4
APP0, APP14, COMMENT = 0xE0, 0xEE, 0xFE
TABLES = frozenset({QUANTISATION, HUFFMAN})
"""All that a decoder keeps of the tables of an IFD: everything else begins anew with the stream."""
LEADING = frozenset({*range(APP0, APP0 + 16), COMMENT})
FRAMES = frozenset(range(0xC0, 0xD0)) - {HUFFMAN, 0xC8, 0xCC}
MAX_SEGMENTS = 1000
MAX_SCANS = 3
"""Baseline coding has one scan for all components, or one for each."""
OVERHEAD = 4096
"""Bytes beside twice those of the samples that a stream may have: tables, and a small profile.

The tiles of a TIFF may share tables, and even their bytes; a few kilobytes of a file are not to fill a disk.
"""
MAX_PROVEN = 256
"""Beginnings that are remembered; the streams of an IFD share one, and every further one is proven stream by stream."""
UNCONVERTED = (APP14, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, 0))
"""The marker that says of three components that they are no YCbCr."""
DEFAULT_QUALITY = 95
ANNEX_K_SUM = 3688
"""Sum of the luminance table of T.81, annex K, which encoders scale by their quality."""

_MARKER = re.compile(rb"\xff+([\xc0-\xcf\xd9-\xfe])")
_AFTER_SCAN = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
"""Not in the data of a scan, where a 0xff byte is followed by zero or belongs to a restart marker."""

_Segment = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A stream's segments before its first scan, the bytes they stand in, and all from there to the end mark."""

    head: tuple[_Segment, ...]
    before: bytes
    scans: bytes


@dataclass(frozen=True, slots=True)
class _Frame:
    """Size in pixels, and of each component its number and its (horizontal, vertical) factor."""

    height: int
    width: int
    ids: bytes
    factors: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Proven:
    """What stands before the scans of a stream that stands alone, and the chain that reads it."""

    start: bytes
    chain: tuple[CodecSpec, ...]


class StandAlone:
    """Makes JPEG strips and tiles of a TIFF chunks of Zarr, each proven to give the very samples.

    What two decoders may disagree on is said before the first scan: tables, and what the colours are. A beginning that
    was proven once, by decoding, is proven for every stream that begins with the same bytes and is read by the same
    rules, since from there on both decoders go by the same bytes. May be used by several threads.
    """

    def __init__(self) -> None:
        self._proven: dict[Hashable, _Proven] = {}

    def form(
        self,
        stream: bytes,
        tables: bytes | None,
        shape: tuple[int, int, int],
        samples: NDArray[Any],
        rules: Hashable = None,
    ) -> CoreForm | None:
        """A JPEG strip or tile as a chunk of Zarr.

        Parameters
        ----------
        stream : bytes
            As the TIFF stores it.
        tables : bytes or None
            `JPEGTables` of the IFD.
        shape : tuple of int
            Rows, columns and samples of the chunk, not clipped to the image.
        samples : numpy.ndarray
            What the TIFF's reader makes of the stream: uint8, that shape or fewer rows.
        rules : hashable
            Everything else that the TIFF's reader decodes it by.

        Returns
        -------
        CoreForm or None
            Its chain begins at a C-order array of the chunk's samples of any shape. None where the stream is of another
            size, not baseline, subsampled as the codec does not allow, much larger than its samples, or decodes to
            other samples when it is alone.
        """
        parsed = _parse(stream)
        if parsed is None or not parsed.scans:
            return None
        key = (tables, parsed.before, shape, samples.shape, rules)
        known = self._proven.get(key)
        if known is None:
            known = _prove(parsed, tables, shape, samples)
            if known is None:
                return None
            if _tells_colours_apart(samples) and len(self._proven) < MAX_PROVEN:
                self._proven[key] = known
        data = known.start + parsed.scans
        return CoreForm(known.chain, data) if _in_measure(data, shape) else None


def _prove(
    parsed: _Parsed, tables: bytes | None, shape: tuple[int, int, int], samples: NDArray[Any]
) -> _Proven | None:
    """A beginning with which a stream gives these samples to a decoder that has nothing else; None without one."""
    shared = None if tables is None else _parse(tables)
    frame = _frame(parsed.head)
    if tables is not None and shared is None:
        return None
    if frame is None or (frame.height, frame.width, len(frame.ids)) != shape:
        return None
    merged = _merged(parsed.head, () if shared is None else shared.head)
    for head in _candidates(merged, frame):
        configuration = _configuration(head, frame)
        start = _written(head)
        data = start + parsed.scans
        if configuration is None or not _in_measure(data, shape):
            continue
        if _same(data, shape, samples):
            lengths = list(shape if shape[2] == 3 else shape[:2])
            chain = CodecSpec("reshape", {"shape": lengths}), CodecSpec("jpeg", configuration)
            return _Proven(start, chain)
    return None


def _in_measure(data: bytes, shape: tuple[int, int, int]) -> bool:
    return len(data) <= 2 * math.prod(shape) + OVERHEAD


def _tells_colours_apart(samples: NDArray[Any]) -> bool:
    """Whether samples would have come out otherwise had they been taken for other colours.

    Between RGB and YCbCr only the grey in the middle stays what it is.
    """
    return bool(samples.size) and samples.min() != samples.max()


# -- markers ---------------------------------------------------------------------------------------


def _parse(stream: bytes) -> _Parsed | None:
    """Take a stream, or the tables of an IFD, apart; what follows the end mark is padding and left out."""
    if stream[:2] != b"\xff\xd8":
        return None
    head: list[_Segment] = []
    at, first, scans = 2, -1, 0
    for _ in range(MAX_SEGMENTS):
        found = _MARKER.match(stream, at)
        if found is None:
            return None
        marker, at = found[1][0], found.end()
        if marker == END:
            first = at if first < 0 else first
            return _Parsed(tuple(head), stream[:first], stream[first:at])
        stop = at + int.from_bytes(stream[at : at + 2], "big")
        if stop < at + 2 or stop > len(stream):
            return None
        if marker == SCAN:
            first = first if first >= 0 else found.end() - 2
            scans += 1
            after = _AFTER_SCAN.search(stream, stop)
            if after is None or scans > MAX_SCANS:
                return None
            stop = after.start()
        elif first < 0:
            head.append((marker, stream[at + 2 : stop]))
        at = stop
    return None


def _frame(head: tuple[_Segment, ...]) -> _Frame | None:
    """The one frame header, of baseline coding and one or three components."""
    frames = [(marker, body) for marker, body in head if marker in FRAMES]
    if len(frames) != 1 or frames[0][0] != FRAME or len(frames[0][1]) < 6:
        return None
    body = frames[0][1]
    precision, height, width, count = struct.unpack_from(">BHHB", body)
    if precision != 8 or count not in (1, 3) or len(body) != 6 + 3 * count:
        return None
    return _Frame(height, width, body[6::3], tuple((f >> 4, f & 15) for f in body[7::3]))


def _merged(head: tuple[_Segment, ...], shared: tuple[_Segment, ...]) -> tuple[_Segment, ...]:
    """The tables of the IFD before the stream's own, which count more, and behind the markers that must come first."""
    start = next((n for n, (marker, _) in enumerate(head) if marker not in LEADING), len(head))
    tables = tuple(segment for segment in shared if segment[0] in TABLES)
    return (*head[:start], *tables, *head[start:])


def _written(head: tuple[_Segment, ...]) -> bytes:
    """The beginning of a stream with these segments."""
    parts = [
        struct.pack(">BBH", 0xFF, marker, len(body) + 2) + bytes(body) for marker, body in head
    ]
    return b"".join((b"\xff\xd8", *parts))


# -- colours ---------------------------------------------------------------------------------------


def _candidates(head: tuple[_Segment, ...], frame: _Frame) -> Iterator[tuple[_Segment, ...]]:
    """The stream as it is; of three components also with the marker that they are stored without conversion.

    Slide scanners write RGB without any marker, which a decoder takes for YCbCr.
    """
    yield head
    if len(frame.ids) == 3:
        rest = tuple(s for s in head if not _is_jfif(s) and not _is_adobe(s))
        yield (UNCONVERTED, *rest)


def _is_jfif(segment: _Segment) -> bool:
    return segment[0] == APP0 and segment[1][:5] == b"JFIF\0"


def _is_adobe(segment: _Segment) -> bool:
    return segment[0] == APP14 and segment[1][:5] == b"Adobe" and len(segment[1]) >= 12


def _configuration(head: tuple[_Segment, ...], frame: _Frame) -> dict[str, Any] | None:
    """The configuration of `jpeg` that describes a stream; None where it has none, or its markers contradict."""
    quality = _quality(head)
    if len(frame.ids) == 1:
        return {"quality": quality, "encoded_color_space": "grayscale"}
    ratios = _ratios(frame.factors)
    transforms = {segment[1][11] for segment in head if _is_adobe(segment)}
    jfif = any(_is_jfif(segment) for segment in head)
    if transforms == {0} and not jfif:
        plain = ratios == [[1, 1], [1, 1], [1, 1]]
        return {"quality": quality, "encoded_color_space": "rgb"} if plain else None
    if (
        ratios is None
        or not transforms <= {1}
        or (frame.ids == b"RGB" and not (jfif or transforms))
    ):
        return None
    return {"quality": quality, "encoded_color_space": "ycbcr", "subsampling": ratios}


def _ratios(factors: tuple[tuple[int, int], ...]) -> list[list[int]] | None:
    """Factors as the codec wants them: (1, 1) for the second and third component; None where that cannot be."""
    (h, v), (small_h, small_v), other = factors
    if other != (small_h, small_v) or not small_h or not small_v or h % small_h or v % small_v:
        return None
    first = [h // small_h, v // small_v]
    return [first, [1, 1], [1, 1]] if min(first) >= 1 and max(first) <= 4 else None


def _quality(head: tuple[_Segment, ...]) -> int:
    """What an encoder that scales the tables of annex K would call the quality of the first table."""
    for marker, body in head:
        if marker == QUANTISATION and len(body) >= 65 and body[0] >> 4 == 0:
            percent = 100 * sum(body[1:65]) / ANNEX_K_SUM
            quality = (200 - percent) / 2 if percent <= 100 else 5000 / percent
            return max(1, min(100, round(quality)))
    return DEFAULT_QUALITY


# -- proof -----------------------------------------------------------------------------------------


def _same(data: bytes, shape: tuple[int, int, int], samples: NDArray[Any]) -> bool:
    """Whether a decoder that is told nothing gives these samples."""
    import imagecodecs
    import numpy as np

    out: NDArray[np.uint8] = np.empty(shape if shape[2] == 3 else shape[:2], np.uint8)
    try:
        imagecodecs.jpeg8_decode(data, out=out)
    except LIBRARY_ERRORS:
        return False
    rows, columns = samples.shape[:2]
    return columns == shape[1] and np.array_equal(out.reshape(shape)[:rows], samples)
