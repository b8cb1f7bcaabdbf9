"""`TiffArray`: one resolution level of an image as a chunked array over the planes of one or several TIFF files."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from openreadout import limits
from openreadout.arrays import (
    ArrayLayout,
    ChunkIndex,
    Presence,
    chunk_region,
    grid_shape,
    region_shape,
)
from openreadout.codecs import ITEM_BYTES, CodecSpec, native
from openreadout.errors import CorruptDataError, OpenReadoutError, UnsupportedFeatureError
from openreadout.stores import batches
from openreadout_ome_tiff.ifd import FIRST_BATCHES, TiffFile
from openreadout_ome_tiff.page import Page, PageLayout, check_segment_size, dtype_name, read_page
from openreadout_ome_tiff.standalone import StandAlone

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from openreadout.codecs import CoreForm

CHUNK_BYTES = 512 << 10
"""What strips are grouped to: large enough to be worth a call, small enough to keep several threads busy."""
CACHE_BYTES = 64 << 20
"""Tables of strips and tiles that are kept."""
PlaneKey = tuple[int, int, int]
"""t, c, z."""


class PlaneRef(NamedTuple):
    """Where a plane is: the file of the set and the byte offset of its IFD, and the IFD's number for messages."""

    member: int
    offset: int
    number: int


class Pages:
    """The files of a set and the IFDs read from them; the least used are dropped beyond a number of bytes."""

    def __init__(self, members: tuple[TiffFile, ...]) -> None:
        self.members = members
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, int], Page] = OrderedDict()
        self._bytes = 0

    def page(self, ref: PlaneRef) -> Page:
        """The IFD of a plane."""
        key = (ref.member, ref.offset)
        with self._lock:
            page = self._known.get(key)
            if page is not None:
                self._known.move_to_end(key)
                return page
        page = read_page(self.members[ref.member], ref.offset)
        with self._lock:
            if key not in self._known:
                self._known[key] = page
                self._bytes += page.weight
                while self._bytes > CACHE_BYTES and len(self._known) > 1:
                    self._bytes -= self._known.popitem(last=False)[1].weight
        return page

    def in_turn(self, refs: Iterable[PlaneRef]) -> Iterator[PlaneRef]:
        """The same planes, whose IFDs are read next; of files far away a few are asked for at once."""
        if not self.members[0].file.is_far:  # the files of a set lie in one folder
            yield from refs
            return
        for some in batches(refs, *FIRST_BATCHES):
            for member, same in itertools.groupby(some, key=lambda ref: ref.member):
                offsets = [ref.offset for ref in same if (member, ref.offset) not in self._known]
                self.members[member].expect(offsets)
            yield from some

    def weight(self, ref: PlaneRef) -> int:
        """Bytes that the tables of an IFD come to, or 0 where it is damaged."""
        try:
            return self.page(ref).weight
        except (CorruptDataError, UnsupportedFeatureError):
            return 0


@dataclass(frozen=True, slots=True)
class TiffArray:
    """One level, in the order t, c, z, y, x and, for colour, s.

    Parameters
    ----------
    pages : Pages
    planes : mapping of (t, c, z) to PlaneRef
        Planes that are not in it are not stored, and read as zeros.
    shape : tuple of int
    dtype : str
        numpy name, or the file's own words for a type that is not read.
    model : PageLayout
        The layout of the first plane; its tiles, or groups of its strips, are the chunks. A plane laid out differently
        is read all the same, from its own segments.
    declared : str or None
        The type that the metadata names; see `dtype_name`.
    streams : StandAlone
        What has been proven of its JPEG streams.
    """

    pages: Pages
    planes: Mapping[PlaneKey, PlaneRef]
    shape: tuple[int, ...]
    dtype: str
    model: PageLayout
    declared: str | None = None
    streams: StandAlone = field(default_factory=StandAlone, compare=False, repr=False)

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        return (1, 1, 1, *self._chunk_yx(), *self.shape[5:])

    def _chunk_yx(self) -> tuple[int, int]:
        if self.model.tiled:
            return self.model.segment_length, self.model.segment_width
        row = self.model.width * self.model.samples * ITEM_BYTES.get(self.dtype, 1)
        if self.model.is_plain:
            return max(1, min(self.model.length, CHUNK_BYTES // max(1, row))), self.model.width
        strips = max(1, CHUNK_BYTES // max(1, row * self.model.segment_length))
        return min(self.model.length, strips * self.model.segment_length), self.model.width

    @property
    def fill_value(self) -> Any:
        return 0

    @property
    def layout(self) -> ArrayLayout:
        model = self.model
        stored = (1, 1, 1, model.segment_length, model.segment_width)
        if len(self.shape) > 5:
            stored = (*stored, model.stored_samples)  # type: ignore[assignment]
        configuration = {"predictor": model.predictor} if model.predictor != 1 else {}
        codecs = (
            (CodecSpec(model.codec, configuration),)
            if model.compression != 1
            else (CodecSpec("none"),)
        )
        return ArrayLayout(stored, None, codecs)

    # -- presence ----------------------------------------------------------------------------------

    def is_stored(self, index: ChunkIndex) -> bool:
        ref = self.planes.get(self._key(index))
        if ref is None:
            return False
        page = self._sound_page(ref)
        return page is None or any(page.segment(n)[1] for n in self._segments(page.layout, index))

    def _sound_page(self, ref: PlaneRef) -> Page | None:
        """The IFD of a plane, or None where it is damaged or of another size: reading the plane tells what is wrong."""
        try:
            page = self.pages.page(ref)
        except (CorruptDataError, UnsupportedFeatureError):
            return None
        return page if self._fits(page.layout) else None

    def _fits(self, layout: PageLayout) -> bool:
        samples = self.shape[5] if len(self.shape) > 5 else 1
        return (layout.length, layout.width, layout.samples) == (*self.shape[3:5], samples)

    def locate(self, index: ChunkIndex) -> str:
        ref = self.planes.get(self._key(index))
        if ref is None:
            t, c, z = self._key(index)
            return f"plane t={t} c={c} z={z}"
        where = self._where(ref)
        page = self._sound_page(ref)
        if page is None:
            return where
        segment = next(self._segments(page.layout, index))
        return f"{where}, byte {page.segment(segment)[0]}"

    def _where(self, ref: PlaneRef) -> str:
        name = self.pages.members[ref.member].file.path.replace("\\", "/").rpartition("/")[2]
        number = f"IFD {ref.number}" if ref.number >= 0 else f"SubIFD at byte {ref.offset}"
        return f"{name}: {number}" if len(self.pages.members) > 1 else number

    def presence(self) -> Presence:
        rows, columns = grid_shape(self.shape, self.chunk_shape)[3:5]
        planes = sorted(self.planes)
        total = self.shape[0] * self.shape[1] * self.shape[2] * rows * columns
        per_plane = rows * columns
        seen = planes[:: max(1, len(planes) * per_plane // limits.PRESENCE_SAMPLES + 1)]
        exact = len(seen) == len(planes)
        stored, first, last = 0, None, None
        for key in self._in_turn(seen):
            for index in self._stored_in(key, rows, columns):
                stored += 1
                first = first or index
                last = index
        if not exact and seen:
            stored = stored * len(planes) // len(seen)
        return Presence(total=total, stored=stored, first=first, last=last, exact=exact)

    def stored_indices(self) -> Iterator[ChunkIndex]:
        rows, columns = grid_shape(self.shape, self.chunk_shape)[3:5]
        for key in self._in_turn(sorted(self.planes)):
            yield from self._stored_in(key, rows, columns)

    def _in_turn(self, keys: Sequence[PlaneKey]) -> Iterator[PlaneKey]:
        """The same planes, whose IFDs are read next; see `Pages.in_turn`."""
        refs = self.pages.in_turn(self.planes[key] for key in keys)
        return (key for key, _ in zip(keys, refs, strict=True))

    def _stored_in(self, key: PlaneKey, rows: int, columns: int) -> Iterator[ChunkIndex]:
        """The stored chunks of one plane, or its first where the IFD is damaged: reading it tells what is wrong."""
        rest = (0,) * (len(self.shape) - 5)
        page = self._sound_page(self.planes[key])
        if page is None:
            yield (*key, 0, 0, *rest)
            return
        for y, x in itertools.product(range(rows), range(columns)):
            index = (*key, y, x, *rest)
            if any(page.segment(n)[1] for n in self._segments(page.layout, index)):
                yield index

    # -- reading -----------------------------------------------------------------------------------

    def _key(self, index: ChunkIndex) -> PlaneKey:
        return index[0], index[1], index[2]

    def _yx(self, index: ChunkIndex) -> tuple[int, int, int, int]:
        """First and last row and column of a chunk, clipped."""
        covers = chunk_region(index, self.shape, self.chunk_shape)
        return covers[3][0], covers[3][1], covers[4][0], covers[4][1]

    def _segments(self, layout: PageLayout, index: ChunkIndex) -> Iterator[int]:
        """Numbers of the segments that a chunk needs."""
        y0, y1, x0, x1 = self._yx(index)
        area = layout.across * layout.down
        for sample in range(layout.samples if layout.planar else 1):
            for down in range(y0 // layout.segment_length, -(-y1 // layout.segment_length)):
                for across in range(x0 // layout.segment_width, -(-x1 // layout.segment_width)):
                    yield sample * area + down * layout.across + across

    def read_chunk(self, index: ChunkIndex) -> NDArray[Any]:
        import numpy as np

        shape = region_shape(chunk_region(index, self.shape, self.chunk_shape))
        ref = self.planes.get(self._key(index))
        if ref is None:
            return np.zeros(shape, native(self.dtype))
        with self._telling(ref):
            plane = self._read(self._page(ref), index)
        return plane.reshape(shape)

    def take_portable(self, index: ChunkIndex) -> tuple[NDArray[Any] | None, CoreForm | None]:
        """The chunk, clipped to the array, and its JPEG stream as a chunk of Zarr; see `PortableChunks`."""
        ref = self.planes.get(self._key(index))
        if ref is None or not self.is_stored(index):
            return None, None
        shape = region_shape(chunk_region(index, self.shape, self.chunk_shape))
        with self._telling(ref):
            plane, form = self._take(self._page(ref), index)
        return plane.reshape(shape), form

    def _take(self, page: Page, index: ChunkIndex) -> tuple[NDArray[Any], CoreForm | None]:
        layout = page.layout
        numbers = list(self._segments(layout, index))
        size = self._chunk_yx()
        whole = (layout.segment_length, layout.segment_width) == size and len(numbers) == 1
        if layout.codec != "jpeg" or self.dtype != "uint8" or not whole:
            return self._read(page, index), None
        data = _fetch(page, numbers)[0] or b""
        block = self._decoded(page, numbers[0], data)
        y0, y1, x0, x1 = self._yx(index)
        part = self._part(page, numbers[0], block, (y0, y1, x0, x1))
        shape = (*size, layout.samples)
        return part, self.streams.form(bytes(data), page.jpeg_tables, shape, block, layout)

    def _page(self, ref: PlaneRef) -> Page:
        """The IFD of a plane, which fits the image and can be decoded."""
        page = self.pages.page(ref)
        self._check(page)
        return page

    @contextmanager
    def _telling(self, ref: PlaneRef) -> Iterator[None]:
        """Errors tell the file and the IFD."""
        try:
            yield
        except OpenReadoutError as error:
            path = self.pages.members[ref.member].file.path
            where = self._where(ref)
            if error.where and error.where.startswith("byte"):
                where = f"{where}, {error.where}"
            error.path, error.where, error.format_id = path, where, "ome-tiff"
            raise

    def _check(self, page: Page) -> None:
        from openreadout_ome_tiff.decode import check_supported

        layout = page.layout
        check_supported(layout, self.dtype)
        if not self._fits(layout):
            samples = self.shape[5] if len(self.shape) > 5 else 1
            raise CorruptDataError(
                f"the IFD holds {layout.width} x {layout.length} pixels of {layout.samples} samples,"
                f" and the image has {self.shape[4]} x {self.shape[3]} of {samples}"
            )
        if dtype_name(layout, self.declared) != self.dtype:
            raise CorruptDataError(
                f"the IFD holds {dtype_name(layout, self.declared)}, and the image {self.dtype}"
            )
        check_segment_size(layout, ITEM_BYTES[self.dtype], page.file.file.path)

    def _read(self, page: Page, index: ChunkIndex) -> NDArray[Any]:
        """The chunk's part of a plane, shape (y, x, samples)."""
        import numpy as np

        layout = page.layout
        y0, y1, x0, x1 = self._yx(index)
        if layout.is_plain and not layout.tiled:
            return self._read_rows(page, y0, y1)
        numbers = list(self._segments(layout, index))
        stored = _fetch(page, numbers)
        if len(numbers) == 1 and stored[0] is not None:
            return self._place(page, numbers[0], stored[0], (y0, y1, x0, x1), None)
        out = np.zeros((y1 - y0, x1 - x0, layout.samples), native(self.dtype))
        for number, data in zip(numbers, stored, strict=True):
            if data is not None:
                self._place(page, number, data, (y0, y1, x0, x1), out)
        return out

    def _place(
        self,
        page: Page,
        number: int,
        data: bytes | memoryview,
        region: tuple[int, int, int, int],
        out: NDArray[Any] | None,
    ) -> NDArray[Any]:
        """Decode a segment and put what lies in `region` into `out`, or return just that where `out` is None."""
        part = self._part(page, number, self._decoded(page, number, data), region)
        if out is None:
            return part
        layout = page.layout
        sample, down, across = _segment_place(layout, number)
        y, x = down * layout.segment_length, across * layout.segment_width
        y, x = max(region[0], y) - region[0], max(region[2], x) - region[2]
        channels = slice(sample, sample + 1) if layout.planar else slice(None)
        out[y : y + part.shape[0], x : x + part.shape[1], channels] = part
        return part

    def _decoded(self, page: Page, number: int, data: bytes | memoryview) -> NDArray[Any]:
        """All of a segment, the part outside the image too."""
        from openreadout_ome_tiff.decode import decode_segment

        layout = page.layout
        rows = layout.segment_rows(_segment_place(layout, number)[1])
        try:
            return decode_segment(layout, self.dtype, data, rows, page.jpeg_tables)
        except CorruptDataError as error:
            error.where = f"byte {page.segment(number)[0]}"
            raise

    def _part(
        self, page: Page, number: int, block: NDArray[Any], region: tuple[int, int, int, int]
    ) -> NDArray[Any]:
        """What lies in a region of the image of a decoded segment."""
        layout = page.layout
        _, down, across = _segment_place(layout, number)
        top, left = down * layout.segment_length, across * layout.segment_width
        y0, y1, x0, x1 = region
        bottom = min(y1, top + layout.segment_rows(down), layout.length)
        right = min(x1, left + layout.segment_width, layout.width)
        first, start = max(y0, top), max(x0, left)
        part = block[first - top : bottom - top, start - left : right - left]
        if part.shape[:2] != (bottom - first, right - start):
            raise CorruptDataError(
                f"{layout.codec}: the tile decodes to fewer pixels than it covers",
                where=f"byte {page.segment(number)[0]}",
            )
        return part

    def _read_rows(self, page: Page, y0: int, y1: int) -> NDArray[Any]:
        """Rows of uncompressed strips, read by position: a plane in one strip is never read whole."""
        import numpy as np

        layout = page.layout
        parts = [
            self._rows_of_sample(page, sample, y0, y1)
            for sample in range(layout.samples if layout.planar else 1)
        ]
        stored = np.dtype(native(self.dtype)).newbyteorder(layout.order)
        if layout.sample_format == 5:
            half = np.dtype(f"i{layout.bits // 16}").newbyteorder(layout.order)
            blocks = [np.frombuffer(part, half).astype("f4").view("c8") for part in parts]
        else:
            blocks = [np.frombuffer(part, stored) for part in parts]
        shape = (y1 - y0, layout.width, layout.stored_samples)
        if len(blocks) == 1:
            block = blocks[0].reshape(shape)
        else:
            block = np.concatenate([block.reshape(shape) for block in blocks], axis=2)
        return block if block.dtype.isnative else block.astype(native(self.dtype))

    def _rows_of_sample(self, page: Page, sample: int, y0: int, y1: int) -> bytes | bytearray:
        """The bytes of some rows; strips that follow one another in the file are read at once."""
        layout = page.layout
        row = layout.row_bytes
        runs: list[tuple[int, int]] = []
        for down in range(y0 // layout.segment_length, -(-y1 // layout.segment_length)):
            top = down * layout.segment_length
            offset, count = page.segment(sample * layout.down + down)
            first = max(y0, top) - top
            rows = min(y1, top + layout.segment_rows(down)) - top - first
            start, length = offset + first * row, rows * row
            if not count:
                start = -1
            elif count < (first + rows) * row:
                raise CorruptDataError(
                    f"a strip of {count} bytes where {layout.segment_rows(down) * row} belong",
                    where=f"byte {offset}",
                )
            if runs and start >= 0 and runs[-1][0] >= 0 and sum(runs[-1]) == start:
                runs[-1] = (runs[-1][0], runs[-1][1] + length)
            else:
                runs.append((start, length))
        file = page.file.file
        parts = [
            bytes(length) if start < 0 else file.read_exactly(start, length, "a strip")
            for start, length in runs
        ]
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _segment_place(layout: PageLayout, number: int) -> tuple[int, int, int]:
    """The colour sample that a segment holds (0 where it holds all), and its place down and across."""
    sample, place = divmod(number, layout.across * layout.down)
    return (sample, *divmod(place, layout.across))


def _fetch(page: Page, numbers: list[int]) -> list[bytes | memoryview | None]:
    """The stored bytes of segments, None for one that is not stored; neighbours in the file are read at once."""
    places = [page.segment(n) for n in numbers]
    file = page.file.file
    for offset, count in places:
        if count > limits.MAX_ENCODED_BYTES:
            raise CorruptDataError(
                f"a strip or tile of {count} bytes, more than the {limits.MAX_ENCODED_BYTES} that are accepted",
                hint=limits.raised_by("MAX_ENCODED_BYTES", count) if count <= file.size else None,
                where=f"byte {offset}",
            )
    stored = [(offset, count) for offset, count in places if count]
    if len(stored) > 1:
        start = min(offset for offset, _ in stored)
        end = max(offset + count for offset, count in stored)
        if end - start <= 2 * sum(count for _, count in stored) + 4096 and end <= file.size:
            whole = memoryview(file.read_exactly(start, end - start, "a strip or tile"))
            return [
                whole[offset - start : offset - start + count] if count else None
                for offset, count in places
            ]
    return [
        file.read_exactly(offset, count, "a strip or tile") if count else None
        for offset, count in places
    ]
