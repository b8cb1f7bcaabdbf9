"""A light parser of TIFF and BigTIFF structure: header, chain of IFDs, tags.

Every IFD is read once, by one positional read; values that lie elsewhere in the file are fetched when asked for.
TIFF revision 6.0, section 2; BigTIFF as libtiff defines it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from openreadout import limits
from openreadout.errors import CorruptDataError, InputError
from openreadout.limits import KIB
from openreadout.stores import batches
from openreadout_ome_tiff.ahead import IFD_BYTES, ChainAhead
from openreadout_ome_tiff.files import File

MAX_TAGS = 4096
"""Entries of one IFD; a hundred is already unusual."""
KEPT_IFDS = 200_000
"""IFDs whose entries are kept after the chain was walked; those of longer chains are read again."""
FIRST_BATCHES = (1, 8)
"""IFDs that are asked for together at first: often nobody wants more."""
NEAR_BYTES = 32 * KIB
"""Values that are no longer than that are asked for together; longer ones are worth a request of their own."""

IMAGE_WIDTH, IMAGE_LENGTH, BITS_PER_SAMPLE, COMPRESSION, PHOTOMETRIC = 256, 257, 258, 259, 262
FILL_ORDER, IMAGE_DESCRIPTION, STRIP_OFFSETS, SAMPLES_PER_PIXEL = 266, 270, 273, 277
ROWS_PER_STRIP, STRIP_BYTE_COUNTS, PLANAR_CONFIGURATION, SOFTWARE = 278, 279, 284, 305
PREDICTOR, TILE_WIDTH, TILE_LENGTH, TILE_OFFSETS, TILE_BYTE_COUNTS = 317, 322, 323, 324, 325
SUB_IFDS, EXTRA_SAMPLES, SAMPLE_FORMAT, JPEG_TABLES, YCBCR_SUBSAMPLING = 330, 338, 339, 347, 530
NEW_SUBFILE_TYPE, IMAGE_DEPTH, T4_OPTIONS = 254, 32997, 292
_LOOKED_AT = (
    BITS_PER_SAMPLE, STRIP_OFFSETS, STRIP_BYTE_COUNTS, TILE_OFFSETS, TILE_BYTE_COUNTS, SUB_IFDS, EXTRA_SAMPLES,
    SAMPLE_FORMAT, JPEG_TABLES,
)  # fmt: skip
"""Tags of every IFD whose values may be too long to stand in it."""

_SIZES = {
    1: 1,
    2: 1,
    3: 2,
    4: 4,
    5: 8,
    6: 1,
    7: 1,
    8: 2,
    9: 4,
    10: 8,
    11: 4,
    12: 8,
    13: 4,
    16: 8,
    17: 8,
    18: 8,
}
_LETTERS = {
    1: "B",
    3: "H",
    4: "I",
    6: "b",
    8: "h",
    9: "i",
    11: "f",
    12: "d",
    13: "I",
    16: "Q",
    17: "q",
    18: "Q",
}


class Tag(NamedTuple):
    """One entry: its data type, number of values, and where these lie in the file."""

    kind: int
    values: int
    offset: int

    @property
    def item_bytes(self) -> int:
        """Bytes of one value."""
        return _SIZES.get(self.kind, 1)


class Chain(NamedTuple):
    """The offsets of the IFDs in order, and what broke the chain off, in words with its severity."""

    offsets: tuple[int, ...]
    fault: str | None


class Ifd(NamedTuple):
    """One image file directory."""

    offset: int
    tags: Mapping[int, Tag]
    next_offset: int


class TiffFile:
    """The structure of one TIFF file.

    Parameters
    ----------
    file : File

    Raises
    ------
    CorruptDataError
        It does not start like a TIFF file.
    """

    def __init__(self, file: File) -> None:
        self.file = file
        head = file.read(0, 16)
        orders: dict[bytes, Literal["<", ">"]] = {b"II": "<", b"MM": ">"}
        order = orders.get(head[:2])
        if order is None or len(head) < 8:
            raise CorruptDataError("the file does not start like a TIFF", path=file.path)
        self.order: Literal["<", ">"] = order
        magic = struct.unpack_from(f"{order}H", head, 2)[0]
        if magic not in (42, 43):
            raise CorruptDataError("the file does not start like a TIFF", path=file.path)
        self.is_bigtiff = magic == 43
        if self.is_bigtiff:
            if len(head) < 16 or struct.unpack_from(f"{order}HH", head, 4) != (8, 0):
                raise CorruptDataError("the BigTIFF header is not valid", path=file.path)
            self.first_offset: int = struct.unpack_from(f"{order}Q", head, 8)[0]
        else:
            self.first_offset = struct.unpack_from(f"{order}I", head, 4)[0]
        self._entry_bytes = 20 if self.is_bigtiff else 12
        self._count_format = f"{order}Q" if self.is_bigtiff else f"{order}H"
        self._offset_format = f"{order}Q" if self.is_bigtiff else f"{order}I"
        self._entry_format = f"{order}HHQ" if self.is_bigtiff else f"{order}HHI"
        self._inline = 8 if self.is_bigtiff else 4
        self._kept: dict[int, bytes] = {}
        self._chain: Chain | None = None

    @property
    def byte_order(self) -> str:
        """`little` or `big`."""
        return "little" if self.order == "<" else "big"

    # -- the chain ---------------------------------------------------------------------------------

    def chain(self) -> Chain:
        """Walk the chain of IFDs, once; a fault ends it, and the IFDs before it count."""
        if self._chain is None:
            self._chain = self._walk()
        return self._chain

    def _walk(self) -> Chain:
        offsets: dict[int, None] = {}
        offset = self.first_offset
        ahead = ChainAhead(self.file, offset) if self.file.is_far else None
        while offset:
            if offset in offsets:
                return Chain(tuple(offsets), f"the chain of IFDs loops back to byte {offset}")
            if len(offsets) >= limits.MAX_IFDS:
                return Chain(tuple(offsets), f"the chain has more than {limits.MAX_IFDS} IFDs")
            if ahead is not None:
                ahead.reached(offset)
            try:
                raw, next_offset = self._raw(offset)
            except CorruptDataError as error:
                return Chain(tuple(offsets), error.message)
            if len(self._kept) < KEPT_IFDS:
                self._kept[offset] = raw
            offsets[offset] = None
            offset = next_offset
        return Chain(tuple(offsets), None)

    def _raw(self, offset: int) -> tuple[bytes, int]:
        """The entries of the IFD at `offset` as bytes, and the offset of the next one."""
        size = struct.calcsize(self._count_format)
        data = self.file.read(offset, IFD_BYTES)
        if len(data) < size:
            raise self.file.truncated(f"an IFD should start at byte {offset}", offset)
        count = struct.unpack_from(self._count_format, data)[0]
        if not 0 < count <= MAX_TAGS:
            raise CorruptDataError(
                f"the IFD at byte {offset} has {count} entries, which cannot be",
                path=self.file.path,
                where=f"byte {offset}",
            )
        length = size + count * self._entry_bytes
        if len(data) < length + self._inline:
            data = self.file.read(offset, length + self._inline)
        if len(data) < length:
            raise self.file.truncated(f"the IFD at byte {offset} is cut", offset)
        if len(data) < length + self._inline:  # the link to the next IFD alone is missing
            raise self.file.truncated(f"the IFD at byte {offset} is cut before its link", offset)
        next_offset: int = struct.unpack_from(self._offset_format, data, length)[0]
        return data[size:length], next_offset

    # -- tags --------------------------------------------------------------------------------------

    def ifd(self, offset: int) -> Ifd:
        """The IFD at a byte offset.

        Raises
        ------
        CorruptDataError
            It is cut, or what lies there is not an IFD.
        """
        raw, next_offset = self._kept.get(offset), 0
        if raw is None:
            raw, next_offset = self._raw(offset)
        base = offset + struct.calcsize(self._count_format)
        tags: dict[int, Tag] = {}
        for place in range(0, len(raw), self._entry_bytes):
            code, kind, count = struct.unpack_from(self._entry_format, raw, place)
            value = place + (12 if self.is_bigtiff else 8)
            if count * _SIZES.get(kind, 1) <= self._inline:
                where = base + value
            else:
                where = struct.unpack_from(self._offset_format, raw, value)[0]
            tags.setdefault(code, Tag(kind, count, where))
        return Ifd(offset, tags, next_offset)

    def in_turn(self, offsets: Iterable[int]) -> Iterator[int]:
        """The same offsets of IFDs, which are read next; in a file far away a few of them are asked for at once."""
        if not self.file.is_far:
            yield from offsets
            return
        for some in batches(offsets, *FIRST_BATCHES):
            self.expect(some)
            yield from some

    def expect(self, offsets: Sequence[int]) -> None:
        """Ask for a few IFDs of a file far away together, and then for what `read_page` needs of them."""
        self.file.expect([(offset, IFD_BYTES) for offset in offsets if offset not in self._kept])
        # many writers put the values behind the IFD, and some behind all pixels
        self.file.expect([part for offset in offsets for part in self._beside(offset)])

    def _beside(self, offset: int) -> Iterator[tuple[int, int]]:
        """Offset and length of the values of an IFD that do not stand in it, but for the long ones."""
        try:
            tags = self.ifd(offset).tags
        except InputError:
            return
        for code in _LOOKED_AT:
            tag = tags.get(code)
            if tag is not None and self._inline < (n := tag.values * tag.item_bytes) <= NEAR_BYTES:
                yield tag.offset, n

    def raw_value(self, tag: Tag, limit: int | None = None) -> bytes:
        """The bytes of a tag's values, checked against the file before anything is read."""
        length = tag.values * tag.item_bytes
        if length > (limits.MAX_TAG_BYTES if limit is None else limit):
            most = limits.MAX_TAG_BYTES if limit is None else limit
            raise CorruptDataError(
                f"a tag of {length} bytes, more than the {most} that are accepted",
                hint=limits.raised_by("MAX_TAG_BYTES", length)
                if length <= self.file.size
                else None,
                path=self.file.path,
                where=f"byte {tag.offset}",
            )
        return self.file.read_exactly(tag.offset, length, "the value of a tag")

    def numbers(self, ifd: Ifd, code: int, limit: int = 64) -> tuple[int, ...]:
        """The values of a tag of whole numbers; empty when the IFD lacks it.

        Raises
        ------
        CorruptDataError
            It holds something else, more than `limit` values, or lies past the end of the file.
        """
        tag = ifd.tags.get(code)
        if tag is None or tag.values == 0:
            return ()
        letter = _LETTERS.get(tag.kind)
        if letter is None or letter in "fd" or tag.values > limit:
            raise CorruptDataError(
                f"tag {code} is not {'one number' if limit == 1 else 'a few numbers'}",
                path=self.file.path,
                where=f"IFD at byte {ifd.offset}",
            )
        raw = self.raw_value(tag)
        return struct.unpack(f"{self.order}{tag.values}{letter}", raw)

    def number(self, ifd: Ifd, code: int, default: int | None = None) -> int:
        """The first value of a tag.

        Raises
        ------
        CorruptDataError
            The IFD lacks the tag and there is no default.
        """
        values = self.numbers(ifd, code)
        if values:
            return values[0]
        if default is None:
            raise CorruptDataError(
                f"tag {code} is missing", path=self.file.path, where=f"IFD at byte {ifd.offset}"
            )
        return default

    def text(self, ifd: Ifd, code: int, limit: int | None = None) -> bytes | None:
        """The bytes of a text tag, at most `limit` of them, or None."""
        tag = ifd.tags.get(code)
        if tag is None or tag.kind not in (1, 2, 7):
            return None
        most = limits.MAX_TAG_BYTES if limit is None else limit
        if tag.values > most:
            tag = tag._replace(values=most)
        return self.raw_value(tag, most)

    def sub_offsets(self, ifd: Ifd) -> Sequence[int]:
        """Offsets of the SubIFDs."""
        return self.numbers(ifd, SUB_IFDS, limit=4096)
