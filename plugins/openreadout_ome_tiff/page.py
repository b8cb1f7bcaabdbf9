"""How the pixels of one IFD are laid out: sizes, type, and the grid of its strips or tiles."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal, NamedTuple

from openreadout import limits
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout_ome_tiff import ifd as t
from openreadout_ome_tiff.ifd import Ifd, Tag, TiffFile

MAX_SEGMENTS = 1 << 27
"""Strips or tiles of one IFD; their offsets alone come to a gigabyte."""
_OFFSET_LETTERS = {3: "H", 4: "I", 16: "Q", 13: "I", 18: "Q"}

COMPRESSIONS = {
    1: "none", 2: "ccitt_rle", 3: "ccitt_fax3", 4: "ccitt_fax4", 5: "lzw", 6: "ojpeg", 7: "jpeg", 8: "deflate",
    32773: "packbits", 32946: "deflate", 33003: "jpeg2000", 33004: "jpeg2000", 33005: "jpeg2000", 33007: "jpeg",
    34712: "jpeg2000", 34887: "lerc", 34892: "jpeg", 34925: "lzma", 34926: "zstd", 34927: "webp", 34933: "png",
    34934: "jpegxr", 22610: "jpegxr", 50000: "zstd", 50001: "webp", 50002: "jpegxl", 50013: "deflate", 52546: "jpegxl",
}  # fmt: skip
"""Our name of each compression number; the numbers of a name decode alike."""


@dataclass(frozen=True, slots=True)
class PageLayout:
    """What decides how a segment decodes; IFDs of one image usually share it.

    `segment_length` and `segment_width` are those of a tile, or of a strip: its rows and the image's width. `samples`
    counts colour samples of one, `stored_samples` those in one segment (1 where samples lie in planes of their own).
    """

    width: int
    length: int
    samples: int
    planar: bool
    bits: int
    sample_format: int
    format_declared: bool
    compression: int
    photometric: int
    predictor: int
    fill_order: int
    tiled: bool
    segment_width: int
    segment_length: int
    extra_samples: int
    subsampling: tuple[int, int]
    t4_options: int
    order: Literal["<", ">"]

    @property
    def codec(self) -> str:
        """Our name of the compression."""
        return COMPRESSIONS.get(self.compression, f"tiff.{self.compression}")

    @property
    def stored_samples(self) -> int:
        """Samples of a pixel inside one segment."""
        return 1 if self.planar else self.samples

    @property
    def across(self) -> int:
        """Segments side by side."""
        return -(-self.width // self.segment_width)

    @property
    def down(self) -> int:
        """Segments one below the other."""
        return -(-self.length // self.segment_length)

    @property
    def segments(self) -> int:
        """Segments of the IFD."""
        return self.across * self.down * (self.samples if self.planar else 1)

    @property
    def row_bytes(self) -> int:
        """Bytes of one unpacked row of a segment, as stored; rows start on a byte."""
        return -(-self.segment_width * self.stored_samples * self.bits // 8)

    @property
    def is_plain(self) -> bool:
        """Rows can be read by position: no compression, no predictor, whole bytes in reading order."""
        return (
            self.compression == 1
            and self.predictor == 1
            and self.bits % 8 == 0
            and self.bits != 24
            and self.fill_order == 1
        )

    def segment_rows(self, down: int) -> int:
        """Rows that a segment holds: a tile always has all of its own, the last strip what is left."""
        if self.tiled:
            return self.segment_length
        return min(self.segment_length, self.length - down * self.segment_length)


class Page(NamedTuple):
    """One IFD ready to be read: its layout and the raw bytes of its offset and byte-count tables."""

    file: TiffFile
    offset: int
    layout: PageLayout
    offsets: bytes
    offset_letter: str
    counts: bytes
    count_letter: str
    jpeg_tables: bytes | None

    def segment(self, index: int) -> tuple[int, int]:
        """Byte offset and length of a segment in the file; a length of 0 means that it is not stored."""
        size = struct.calcsize(self.offset_letter)
        offset = struct.unpack_from(
            self.file.order + self.offset_letter, self.offsets, index * size
        )[0]
        size = struct.calcsize(self.count_letter)
        count = struct.unpack_from(self.file.order + self.count_letter, self.counts, index * size)[
            0
        ]
        return (offset, count) if offset else (0, 0)

    @property
    def weight(self) -> int:
        """Bytes that it holds in memory, roughly."""
        return 2048 + len(self.offsets) + len(self.counts)


def read_layout(tiff: TiffFile, ifd: Ifd) -> PageLayout:
    """The layout of an IFD.

    Raises
    ------
    CorruptDataError
        Tags are missing or hold sizes that cannot be.
    UnsupportedFeatureError
        Samples differ in their bits, or the IFD holds a volume.
    """
    width, length = tiff.number(ifd, t.IMAGE_WIDTH), tiff.number(ifd, t.IMAGE_LENGTH)
    samples = tiff.number(ifd, t.SAMPLES_PER_PIXEL, 1)
    where = f"IFD at byte {ifd.offset}"
    if width < 1 or length < 1 or not 1 <= samples <= limits.MAX_SAMPLES:
        raise CorruptDataError(
            f"an image of {width} x {length} pixels with {samples} samples cannot be",
            hint=limits.raised_by("MAX_SAMPLES", samples) if samples > limits.MAX_SAMPLES else None,
            path=tiff.file.path,
            where=where,
        )
    if tiff.number(ifd, t.IMAGE_DEPTH, 1) > 1:
        raise UnsupportedFeatureError(
            "an IFD that holds a volume is not read", path=tiff.file.path, where=where
        )
    bits = _uniform(tiff, ifd, t.BITS_PER_SAMPLE, 1, "bits per sample")
    formats = tiff.numbers(ifd, t.SAMPLE_FORMAT, limit=limits.MAX_SAMPLES)
    tiled = t.TILE_WIDTH in ifd.tags
    segment_width = tiff.number(ifd, t.TILE_WIDTH) if tiled else width
    rows = tiff.number(ifd, t.TILE_LENGTH) if tiled else tiff.number(ifd, t.ROWS_PER_STRIP, length)
    if not tiled:
        rows = min(rows, length) or length
    subsampling = tiff.numbers(ifd, t.YCBCR_SUBSAMPLING)
    layout = PageLayout(
        width=width,
        length=length,
        samples=samples,
        planar=samples > 1 and tiff.number(ifd, t.PLANAR_CONFIGURATION, 1) == 2,
        bits=bits,
        sample_format=_uniform(tiff, ifd, t.SAMPLE_FORMAT, 1, "sample formats"),
        format_declared=bool(formats),
        compression=tiff.number(ifd, t.COMPRESSION, 1),
        photometric=tiff.number(ifd, t.PHOTOMETRIC, 1),
        predictor=tiff.number(ifd, t.PREDICTOR, 1),
        fill_order=tiff.number(ifd, t.FILL_ORDER, 1),
        tiled=tiled,
        segment_width=segment_width,
        segment_length=rows,
        extra_samples=len(tiff.numbers(ifd, t.EXTRA_SAMPLES, limit=limits.MAX_SAMPLES)),
        subsampling=(subsampling[0], subsampling[1]) if len(subsampling) == 2 else (1, 1),
        t4_options=tiff.number(ifd, t.T4_OPTIONS, 0),
        order=tiff.order,
    )
    if segment_width < 1 or rows < 1 or not 1 <= bits <= 128 or layout.segments > MAX_SEGMENTS:
        raise CorruptDataError(
            f"segments of {segment_width} x {rows} pixels of {bits} bits cannot be",
            path=tiff.file.path,
            where=where,
        )
    return layout


def _uniform(tiff: TiffFile, ifd: Ifd, code: int, default: int, what: str) -> int:
    values = tiff.numbers(ifd, code, limit=limits.MAX_SAMPLES)
    if not values:
        return default
    if any(value != values[0] for value in values):
        raise UnsupportedFeatureError(
            f"{what} that differ between samples ({', '.join(map(str, values[:8]))}) are not read",
            path=tiff.file.path,
            where=f"IFD at byte {ifd.offset}",
        )
    return values[0]


def read_page(tiff: TiffFile, offset: int) -> Page:
    """The IFD at a byte offset, with the tables of its segments.

    Raises
    ------
    CorruptDataError
        The tables are missing, shorter than the layout demands, or lie past the end of the file.
    """
    ifd = tiff.ifd(offset)
    layout = read_layout(tiff, ifd)
    codes = (
        (t.TILE_OFFSETS, t.TILE_BYTE_COUNTS)
        if layout.tiled
        else (t.STRIP_OFFSETS, t.STRIP_BYTE_COUNTS)
    )
    if layout.tiled and codes[0] not in ifd.tags:  # some writers keep the names of strips
        codes = (t.STRIP_OFFSETS, t.STRIP_BYTE_COUNTS)
    offsets, offset_letter = _table(tiff, ifd, codes[0], layout.segments)
    if codes[1] in ifd.tags:
        counts, count_letter = _table(tiff, ifd, codes[1], layout.segments)
    else:
        counts, count_letter = _assumed_counts(tiff, ifd, layout)
    tables = tiff.text(ifd, t.JPEG_TABLES, limit=1 << 20) if t.JPEG_TABLES in ifd.tags else None
    return Page(tiff, offset, layout, offsets, offset_letter, counts, count_letter, tables)


def _table(tiff: TiffFile, ifd: Ifd, code: int, wanted: int) -> tuple[bytes, str]:
    tag: Tag | None = ifd.tags.get(code)
    letter = _OFFSET_LETTERS.get(tag.kind) if tag is not None else None
    if tag is None or letter is None:
        raise CorruptDataError(
            f"tag {code}, which tells where the pixels are, is missing",
            path=tiff.file.path,
            where=f"IFD at byte {ifd.offset}",
        )
    if tag.values < wanted:
        raise CorruptDataError(
            f"tag {code} lists {tag.values} strips or tiles where {wanted} belong",
            path=tiff.file.path,
            where=f"IFD at byte {ifd.offset}",
        )
    return tiff.raw_value(tag._replace(values=wanted) if tag.values > wanted else tag), letter


def _assumed_counts(tiff: TiffFile, ifd: Ifd, layout: PageLayout) -> tuple[bytes, str]:
    """Byte counts where the tag is missing: known only for a single uncompressed strip."""
    if layout.compression != 1 or layout.segments != 1:
        raise CorruptDataError(
            "the byte counts of strips or tiles are missing",
            path=tiff.file.path,
            where=f"IFD at byte {ifd.offset}",
        )
    return struct.pack(f"{tiff.order}Q", layout.row_bytes * layout.segment_rows(0)), "Q"


def dtype_name(layout: PageLayout, declared: str | None = None) -> str:
    """numpy name of the samples' type.

    Parameters
    ----------
    layout : PageLayout
    declared : str, optional
        The type that the metadata names; it counts where the IFD has no SampleFormat and the bits agree.

    Returns
    -------
    str
        A name of `openreadout.codecs.ITEM_BYTES`, or the file's own words for a type that is not read.
    """
    bits = layout.bits
    if not layout.format_declared and declared in _BITS and _BITS[declared] == bits:
        return declared
    kinds = {
        1: {1: "bool", 8: "uint8", 16: "uint16", 32: "uint32", 64: "uint64"},
        2: {8: "int8", 16: "int16", 32: "int32", 64: "int64"},
        3: {16: "float16", 24: "float32", 32: "float32", 64: "float64"},
        5: {32: "complex64"},
        6: {64: "complex64", 128: "complex128"},
    }
    sample_format = 1 if layout.sample_format == 4 else layout.sample_format
    name = kinds.get(sample_format, {}).get(bits)
    if name is None and sample_format == 1 and 1 < bits < 32:
        name = "uint8" if bits < 8 else "uint16" if bits < 16 else "uint32"
    return name or f"{bits}-bit samples of format {layout.sample_format}"


_BITS = {
    "int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "float32": 32, "float64": 64,
    "complex64": 64, "complex128": 128,
}  # fmt: skip


def check_segment_size(layout: PageLayout, item_bytes: int, path: str) -> None:
    """Refuse segments that decode to more than a chunk may have.

    Raises
    ------
    UnsupportedFeatureError
        One strip or tile alone is beyond the limit, and cannot be read in parts.
    """
    size = layout.segment_width * layout.segment_length * layout.stored_samples * item_bytes
    if size > limits.MAX_CHUNK_BYTES and not layout.is_plain:
        raise UnsupportedFeatureError(
            f"{path}: one strip or tile decodes to {size} bytes, more than the {limits.MAX_CHUNK_BYTES} that are"
            " accepted",
            hint=limits.raised_by("MAX_CHUNK_BYTES", size),
            path=path,
        )
