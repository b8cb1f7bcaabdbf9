"""The sink: encodes blocks into chunks, chunks into shards, and writes each shard once."""

from __future__ import annotations

import itertools
import struct
import threading
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from openreadout.arrays import ChunkIndex, Region, chunk_region, chunks_in, count_chunks, grid_shape
from openreadout.codecs import ChunkSpec, CodecChain, CodecSpec
from openreadout.contracts import Written
from openreadout.encoded import ChunkKeys, EncodedArray
from openreadout.errors import OpenReadoutError
from openreadout.remote.urls import is_url
from openreadout_ome_zarr_writer.documents import all_documents, not_carried, ome_xml, widest
from openreadout_ome_zarr_writer.layout import array_codecs
from openreadout_ome_zarr_writer.outputs import Archive, Folder, Output, Stream, open_bucket

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from openreadout.contracts import ExportPlan, Journal, PlannedImage, PlannedLevel, Share

NOT_STORED = (1 << 64) - 1
"""Offset and length in a shard's index of a chunk that is not stored; sharding codec specification."""


class OmeZarrSink:
    """One OME-Zarr output under way; implements `openreadout.contracts.Sink`."""

    def __init__(
        self,
        plan: ExportPlan,
        path: str,
        *,
        archive: bool,
        resume: bool,
        share: Share | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._plan = plan
        self._ranges: dict[int, dict[int, tuple[float, float]]] = {}
        self._lock = threading.Lock()
        self._not_carried: tuple[str, ...] = ()
        self._output: Output = (
            Archive(path, all_documents(plan, widest(plan)))
            if archive
            else open_bucket(path, resume=resume, journal=journal)
            if is_url(path)
            else Folder(path, resume=resume, share=share, journal=journal)
        )
        self._arrays: dict[tuple[int, int], _ArrayWriter] = {}

    def _array(self, image: int, level: int) -> _ArrayWriter:
        """The writer of an array, made when it is first asked for: one of many processes needs few of them."""
        with self._lock:
            found = self._arrays.get((image, level))
            if found is None:
                planned = self._plan.images[image]
                found = _ArrayWriter(self._plan, planned, planned.levels[level], self._output)
                self._arrays[image, level] = found
            return found

    def expect(self, image: int, level: int, region: Region) -> None:
        if self._output.ordered:
            self._array(image, level).expect(region)

    def write_block(
        self,
        image: int,
        level: int,
        region: Region,
        block: NDArray[Any] | None,
        absent: Collection[ChunkIndex] = (),
    ) -> None:
        self._array(image, level).write(region, block, absent)

    def write_chunk(self, image: int, level: int, region: Region, samples: NDArray[Any]) -> bytes:
        return self._array(image, level).write_one(region, samples)

    def write_encoded(self, image: int, level: int, index: ChunkIndex, chunk: bytes | None) -> None:
        self._array(image, level).take(index, chunk)

    def readable(self, image: int, level: int) -> EncodedArray:
        return self._array(image, level).readable

    def observe(self, image: int, channel: int, low: float, high: float) -> None:
        with self._lock:
            known = self._ranges.setdefault(image, {})
            before = known.get(channel, (low, high))
            known[channel] = (min(before[0], low), max(before[1], high))

    def finish(self, *, sync: bool) -> None:
        unfinished = [writer.path for writer in self._arrays.values() if writer.unfinished]
        if unfinished:
            raise OpenReadoutError(
                f"{len(unfinished)} arrays are not complete, the first is {unfinished[0]}"
            )
        xml = ome_xml(self._plan)
        self._not_carried = not_carried(xml)
        self._output.finish(all_documents(self._plan, self._ranges, xml), sync=sync)

    def abort(self) -> None:
        self._output.abort()

    def written(self) -> Written:
        arrays = self._arrays.values()
        return Written(
            self._output.files,
            self._output.size,
            sum(writer.copied for writer in arrays),
            sum(writer.encoded for writer in arrays),
            self._not_carried,
        )


class _ArrayWriter:
    """Writes the chunks of one array."""

    def __init__(
        self, plan: ExportPlan, planned: PlannedImage, level: PlannedLevel, output: Output
    ) -> None:
        self.path = f"{planned.path}/{level.path}".lstrip("/")
        self._level = level
        self._output = output
        self._plan = plan
        self._spec = ChunkSpec(level.chunk, level.dtype, level.fill_value)
        self._chain = CodecChain.build(level.codecs, plan.lookup)
        v3 = plan.version != "0.4"
        self._keys = ChunkKeys("default" if v3 else "v2", "/", len(level.shape))
        self._shards: dict[ChunkIndex, _Shard] = {}
        self._blocks_left: dict[ChunkIndex, int] = {}
        self._lock = threading.Lock()
        self._readable: EncodedArray | None = None
        self.copied = 0
        self.encoded = 0

    @property
    def unfinished(self) -> bool:
        """Whether a shard was begun and is not complete."""
        return bool(self._shards)

    @property
    def readable(self) -> EncodedArray:
        """The array as it can be read back; only once every chunk is written."""
        with self._lock:
            if self._readable is None:
                level = self._level
                self._readable = EncodedArray(
                    store=self._output.store,
                    path=self.path,
                    shape=level.shape,
                    stored_chunk=level.shard or level.chunk,
                    dtype=level.dtype,
                    fill_value=level.fill_value,
                    keys=self._keys,
                    codecs=array_codecs(level),
                    lookup=self._plan.lookup,
                )
            return self._readable

    def expect(self, region: Region) -> None:
        """Tell the output of the values that are complete once this block and those before it are written."""
        stored = self._level.shard or self._level.chunk
        for index in chunks_in(region, stored):
            left = self._blocks_left.pop(index, None) or self._blocks_of(index)
            if left > 1:
                self._blocks_left[index] = left - 1
            else:
                self._output.expect(f"{self.path}/{self._keys.key(index)}")

    def _blocks_of(self, stored: ChunkIndex) -> int:
        """How many blocks have a part in a stored chunk."""
        level = self._level
        covers = chunk_region(stored, level.shape, level.shard or level.chunk)
        return count_chunks(covers, level.block)

    def write(
        self, region: Region, block: NDArray[Any] | None, absent: Collection[ChunkIndex]
    ) -> None:
        """Encode and write the chunks of a block; None writes none of them, nor are those in `absent`."""
        level = self._level
        for index in chunks_in(region, level.chunk):
            if self._finished(index):
                continue
            if block is None or index in absent:
                self._put(index, None)
            else:
                self._write(index, region, block)

    def write_one(self, region: Region, samples: NDArray[Any]) -> bytes:
        """Encode and write the one chunk that a region covers."""
        index = tuple(a // c for (a, _), c in zip(region, self._level.chunk, strict=True))
        return self._write(index, region, samples)

    def _write(self, index: ChunkIndex, region: Region, block: NDArray[Any]) -> bytes:
        data = self._encode(index, region, block)
        self._put(index, data)
        with self._lock:
            self.encoded += 1
        return data

    def take(self, index: ChunkIndex, data: bytes | None) -> None:
        """Take over one stored chunk as it is, None for one that is not stored."""
        self._put(index, data)
        if data is not None:
            with self._lock:
                self.copied += 1

    def _encode(self, index: ChunkIndex, region: Region, block: NDArray[Any]) -> bytes:
        level = self._level
        covers = chunk_region(index, level.shape, level.chunk)
        part = block[
            tuple(
                slice(a - start, b - start)
                for (a, b), (start, _) in zip(covers, region, strict=True)
            )
        ]
        if part.shape != level.chunk:
            padded = np.full(level.chunk, level.fill_value, dtype=block.dtype)
            padded[tuple(slice(0, n) for n in part.shape)] = part
            part = padded
        return self._chain.encode(np.ascontiguousarray(part), self._spec)

    def _finished(self, index: ChunkIndex) -> bool:
        """Whether an earlier run wrote the file that holds a chunk."""
        level = self._level
        spans = zip(index, level.chunk, level.shard or level.chunk, strict=True)
        stored = tuple(i * c // s for i, c, s in spans)
        return self._output.complete(f"{self.path}/{self._keys.key(stored)}")

    def _put(self, index: ChunkIndex, data: bytes | None) -> None:
        level = self._level
        if self._finished(index):
            return
        if level.shard is None:
            key = f"{self.path}/{self._keys.key(index)}"
            if data is None:
                self._output.skip(key)
            else:
                self._output.put(key, data)
            return
        inside = grid_shape(level.shard, level.chunk)
        stored = tuple(i // n for i, n in zip(index, inside, strict=True))
        with self._lock:
            shard = self._shards.get(stored)
            if shard is None:
                shard = self._shards[stored] = self._begin(stored, inside)
        if shard.add(tuple(i % n for i, n in zip(index, inside, strict=True)), data):
            with self._lock:
                del self._shards[stored]

    def _begin(self, stored: ChunkIndex, inside: tuple[int, ...]) -> _Shard:
        level = self._level
        whole = grid_shape(level.shape, level.chunk)
        there = tuple(min(n, w - i * n) for i, n, w in zip(stored, inside, whole, strict=True))
        group = tuple(max(1, b // c) for b, c in zip(level.block, level.chunk, strict=True))
        checksum = self._plan.lookup("crc32c").from_spec(CodecSpec("crc32c"), self._plan.lookup)
        key = f"{self.path}/{self._keys.key(stored)}"
        return _Shard(self._output, key, inside, there, group, checksum)


WAITING_BYTES = 4 << 20
"""Bytes of chunks that may wait for the thread that writes a shard; beyond that the others wait too."""


class _Shard:
    """One shard being written.

    Chunks are written in one order whatever the order they come in: by groups that make one block, in C order inside
    a group. The same input thus gives the same bytes with any number of threads.
    """

    def __init__(
        self,
        output: Output,
        key: str,
        inside: tuple[int, ...],
        there: tuple[int, ...],
        group: tuple[int, ...],
        checksum: Any,
    ) -> None:
        self._output = output
        self._key = key
        self._inside = inside
        self._order = _grouped(there, group)
        self._next = next(self._order, None)
        self._pending: dict[ChunkIndex, bytes | None] = {}
        self._places: dict[ChunkIndex, tuple[int, int]] = {}
        self._offset = 0
        self._stream: Stream | None = None
        self._checksum = checksum
        self._waiting = 0
        self._lock = threading.Lock()
        self._writer = threading.Lock()

    def add(self, position: ChunkIndex, data: bytes | None) -> bool:
        """Take a chunk; True when the shard is complete.

        One thread writes while the others only leave their chunks with it, unless too many of them wait.
        """
        with self._lock:
            self._pending[position] = data
            self._waiting += len(data or b"")
        while self._writer.acquire(blocking=self._waiting > WAITING_BYTES):
            try:
                complete = self._write_next()
            finally:
                self._writer.release()
            if complete:
                return True
            # a chunk that was left after the last look, by a thread that found this one at work
            with self._lock:
                if self._next not in self._pending:
                    return False
        return False

    def _write_next(self) -> bool:
        """Write all that may be written now, by the one thread that holds `_writer`; True when that was the last."""
        if self._next is None:
            return False
        while True:
            with self._lock:
                if self._next is None or self._next not in self._pending:
                    break
                data = self._pending.pop(self._next)
                self._waiting -= len(data or b"")
            self._write(self._next, data)
            with self._lock:
                self._next = next(self._order, None)
        if self._next is not None:
            return False
        self._close()
        return True

    def _write(self, position: ChunkIndex, data: bytes | None) -> None:
        if data is None:
            return
        if self._stream is None:
            self._stream = self._output.stream(self._key)
        self._stream.write(data)
        self._places[position] = (self._offset, len(data))
        self._offset += len(data)

    def _close(self) -> None:
        """Write the index; a shard without any chunk is not stored at all."""
        if self._stream is None:
            self._output.skip(self._key)
            return
        index = bytearray()
        for position in itertools.product(*(range(n) for n in self._inside)):
            index += struct.pack("<QQ", *self._places.get(position, (NOT_STORED, NOT_STORED)))
        self._stream.write(self._checksum.encode(bytes(index)))
        self._stream.close()


def _grouped(there: tuple[int, ...], group: tuple[int, ...]) -> Iterator[ChunkIndex]:
    """Positions by groups, groups and positions inside them in C order."""
    starts = itertools.product(*(range(0, n, g) for n, g in zip(there, group, strict=True)))
    for start in starts:
        ranges = [range(s, min(s + g, n)) for s, g, n in zip(start, group, there, strict=True)]
        yield from itertools.product(*ranges)
