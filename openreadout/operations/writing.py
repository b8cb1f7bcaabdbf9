"""Writing the levels of an export: blocks of the source, encoded or taken over, and the levels made from them."""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from openreadout.arrays import (
    ChunkedArray,
    ChunkIndex,
    Region,
    chunk_region,
    chunks_in,
    expect_all,
    grid_shape,
    read_region,
    region_shape,
)
from openreadout.codecs import CodecChain
from openreadout.contracts import ExportPlan, PlannedImage, PlannedLevel, Sink
from openreadout.errors import UnseenError, UnsupportedFeatureError
from openreadout.operations.absence import (
    Stored,
    absent_after,
    absent_chunks,
    blanked,
    doubled,
    full,
    listed,
)
from openreadout.operations.copying import CopySource, Taken, is_decoded_again, same_codecs
from openreadout.operations.plan import level_source
from openreadout.operations.storage import PlanOptions
from openreadout.operations.walk import (
    ABSENT,
    AHEAD,
    Pass,
    all_cells,
    blocks,
    cell_blocks,
    cells,
    count_blocks,
    digest,
    half,
    passes,
)
from openreadout.pyramid import downsample
from openreadout.workers import Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray

Progress = Callable[[int, int], None]
FEW_CHUNKS = 256
"""Levels of fewer chunks are walked through, stored or not."""


@dataclass(frozen=True, slots=True)
class _TakenOver:
    """A digest of the bytes of chunks that were taken over, and how many were copied and how many encoded anew."""

    digest: bytes
    copied: int
    encoded: int


_Read = Callable[[Region], "tuple[NDArray[Any] | None, _TakenOver | None]"]
"""Gives the samples of a block, None where nothing is stored, and what was taken over."""


@dataclass(frozen=True, slots=True)
class Block:
    """What is noted of a block: digests by level, the range of values of channels, and counts.

    `size` is the bytes of its samples at all levels; `copied` and `encoded` are numbers of chunks.
    """

    step: Pass
    digests: tuple[bytes, ...]
    seen: tuple[tuple[int, float, float], ...]
    size: int
    copied: int
    encoded: int


_Job = tuple[Callable[[Region], Block], Region]
"""A block of a pass and what writes it."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is noted of one of the largest cells of a pass: for each level the digests of its blocks in one row."""

    step: Pass
    index: ChunkIndex
    digests: tuple[bytes, ...]
    seen: tuple[tuple[int, float, float], ...]
    size: int
    copied: int
    encoded: int

    @classmethod
    def of(cls, step: Pass, index: ChunkIndex, done: Sequence[Block]) -> Cell:
        """Put together what was noted of its blocks."""
        digests = zip(*(block.digests for block in done), strict=True)
        seen: dict[int, tuple[float, float]] = {}
        for channel, low, high in itertools.chain.from_iterable(block.seen for block in done):
            before = seen.get(channel, (low, high))
            seen[channel] = min(before[0], low), max(before[1], high)
        return cls(
            step,
            index,
            tuple(b"".join(level) for level in digests),
            tuple((channel, *seen[channel]) for channel in sorted(seen)),
            *(sum(getattr(b, name) for b in done) for name in ("size", "copied", "encoded")),
        )


class Writing:
    """One export under way: writes every level, and notes the digest of every block.

    `whole` names passes, by image and first level, that read an array of which every chunk is stored, where somebody
    has found that out already: one look at all keys of an array is enough for all who write a part of it.
    """

    def __init__(
        self,
        plan: ExportPlan,
        options: PlanOptions,
        sink: Sink,
        workers: Workers,
        progress: Progress | None,
        *,
        verified: bool,
        steps: Sequence[Pass] | None = None,
        whole: frozenset[tuple[int, int]] | None = None,
    ) -> None:
        self.plan = plan
        self._whole = whole
        self.steps = tuple(passes(plan)) if steps is None else tuple(steps)
        self._ends = {(step.image, step.last): step for step in self.steps}
        self.options = options
        self.sink = sink
        self.workers = workers
        self.progress = progress
        self.digests: dict[tuple[int, int], bytearray] = {}
        self.occupied: dict[tuple[int, int], set[ChunkIndex] | None] = {}
        self.busy: dict[tuple[int, int], set[ChunkIndex]] = {}
        self._noted: Counter[tuple[int, int]] = Counter()
        """Chunks that hold something, at all levels of a pass; by image and last level of it."""
        self.done = 0
        self.total = sum(
            math.prod(level.shape) * np.dtype(level.dtype).itemsize
            for image in plan.images
            for level in image.levels
        ) * (2 if verified else 1)

    def write(self) -> None:
        """Write every level of every image, and note the digests of their blocks.

        Small images follow one another without a wait for the last block of each: only a pass over a level that is made
        from a written one needs those before it.
        """
        first = 0
        while first < len(self.steps):
            after = first + 1
            while after < len(self.steps) and self.steps[after].first == 0:
                after += 1
            self.write_passes(self.steps[first:after])
            first = after

    def write_passes(self, steps: Sequence[Pass]) -> None:
        """Write the levels of passes that need nothing of one another, and note the digests of their blocks."""

        def jobs() -> Iterator[_Job]:
            for step in steps:
                work = self._work(step)
                for region in self._announced(step):
                    yield work, region

        with closing(self._blocks(jobs())) as results:
            for block in results:
                self.note(block)

    def levels(self, step: Pass) -> tuple[PlannedLevel, ...]:
        """The levels of a pass."""
        return self.plan.images[step.image].levels[step.first : step.last + 1]

    def _found(self, step: Pass) -> set[ChunkIndex] | None:
        key = step.image, step.first
        if key not in self.occupied:
            self.occupied[key] = self._occupied(step, self.levels(step))
        return self.occupied[key]

    def walk(self, step: Pass) -> Iterator[Region]:
        """The blocks of a pass; the same each time it is asked for."""
        return blocks(self.levels(step), self._found(step))

    def cells(self, step: Pass) -> Iterator[ChunkIndex]:
        """The largest cells of a pass in the order in which `walk` goes through them, but for those of no block."""
        found = self._found(step)
        return all_cells(self.levels(step)) if found is None else iter(sorted(found))

    def _occupied(self, step: Pass, levels: Sequence[PlannedLevel]) -> set[ChunkIndex] | None:
        """Cells of a sparse level that hold anything; None for a level that is better walked through.

        A store can declare terabytes and hold a few chunks: what is not stored must cost nothing.
        """
        cell = cells(levels)[0]
        first = levels[0]
        if math.prod(grid_shape(first.shape, first.chunk)) < FEW_CHUNKS:
            return None
        array, halve = self._origin(step, first)
        presence = array.presence() if array is not None and listed(array) else None
        if array is None or presence is None or not presence.exact:
            return None
        if presence.stored * 2 > presence.total:
            return None
        found: set[ChunkIndex] = set()
        busy = self.busy[step.image, step.first] = set()
        for index in array.stored_indices():
            covers = chunk_region(index, array.shape, array.chunk_shape)
            shown = [
                (a // 2, -(-b // 2)) if h else (a, b)
                for (a, b), h in zip(covers, halve, strict=True)
            ]
            found.update(chunks_in(tuple(shown), cell))
            busy.update(chunks_in(tuple(shown), first.block))
        return found

    def _origin(
        self, step: Pass, first: PlannedLevel
    ) -> tuple[ChunkedArray | None, Sequence[bool]]:
        """The array that a pass reads, and which of its axes are halved; None where a selection hides parts of it."""
        if first.source_level is None:
            return self.sink.readable(step.image, step.first - 1), first.halve
        image = self.plan.images[step.image].image
        source = level_source(image, first.source_level, self.options)
        return (source.array if source.whole else None), (False,) * len(first.shape)

    def write_cells(self, step: Pass, wanted: Iterable[ChunkIndex]) -> Iterator[Cell]:
        """Write some of the largest cells of a pass, which others need not wait for; each is given once it is done."""
        levels = self.levels(step)
        waiting: deque[tuple[ChunkIndex, int]] = deque()
        work = self._work(step)

        def jobs() -> Iterator[_Job]:
            for index in wanted:
                waiting.append((index, count_blocks(levels, index)))
                for region in cell_blocks(levels, index):
                    yield work, region

        done: list[Block] = []
        with closing(self._blocks(jobs())) as results:
            for block in results:
                done.append(block)
                if len(done) == waiting[0][1]:
                    yield Cell.of(step, waiting.popleft()[0], done)
                    done = []

    def note(self, done: Block | Cell) -> None:
        """Note the digests of what follows in the order of `walk`, and what was seen in it."""
        step = done.step
        self._noted[step.image, step.last] += done.copied + done.encoded
        for level, noted in enumerate(done.digests, step.first):
            self.digests.setdefault((step.image, level), bytearray()).extend(noted)
        for channel, low, high in done.seen:
            self.sink.observe(step.image, channel, low, high)

    def _work(self, step: Pass) -> Callable[[Region], Block]:
        """What writes a block of a pass, and gives what is to be noted of it."""
        image = self.plan.images[step.image]
        origin, _ = self._origin(step, image.levels[step.first])
        if origin is not None:
            expect_all(origin)
        watched = step.first == 0 and _wants_range(image)
        read = self._taker(image, step) or self._reader(image, step)
        stored = self._stored(image, step)

        def work(region: Region) -> Block:
            block, taken = (None, None) if self._idle(step, image, region) else read(region)
            seen = _observed(image, region, block) if block is not None and watched else ()
            return self._write_block(step, image, region, block, taken, stored, seen)

        return work

    def _blocks(self, jobs: Iterator[_Job]) -> Generator[Block, None, None]:
        """Write blocks, and give what is to be noted of each, in order."""

        def work(job: _Job) -> Block:
            return job[0](job[1])

        # closed whatever happens: no thread writes on while an interrupted output is being cleared away
        with closing(self.workers.map(work, jobs, ahead=AHEAD * self.workers.threads)) as results:
            for block in results:
                self.advance(block.size)
                yield block

    def _idle(self, step: Pass, image: PlannedImage, region: Region) -> bool:
        """Whether a block of a sparse level is known to hold nothing, without a look at each of its chunks."""
        busy = self.busy.get((step.image, step.first))
        size = image.levels[step.first].block
        at = tuple(start // n for (start, _), n in zip(region, size, strict=True))
        return busy is not None and at not in busy

    def _announced(self, step: Pass) -> Iterator[Region]:
        """The blocks of a pass, each told to the output before any thread works on it."""
        levels = self.plan.images[step.image].levels
        for region in self.walk(step):
            part = region
            for number in range(step.first, step.last + 1):
                part = half(part, levels[number]) if number > step.first else part
                self.sink.expect(step.image, number, part)
            yield region

    def _taker(self, image: PlannedImage, step: Pass) -> _Read | None:
        """What takes over chunks of the pass's first level as they are stored; None where they are not."""
        level = image.levels[step.first]
        if not level.copied or level.source_level is None:
            return None
        array = level_source(image.image, level.source_level, self.options).array
        source = CopySource(array, level.codecs, self.options.codec == "keep")
        lossy = self.lossy(level)
        wanted = step.last > step.first or _wants_range(image)
        return lambda region: self._copy_block(step, source, region, wanted=wanted, lossy=lossy)

    def lossy(self, level: PlannedLevel) -> bool:
        """Whether chunks of a level would come to other samples if they were encoded."""
        return level.copied and CodecChain.build(level.codecs, self.plan.lookup).lossy

    def _copy_block(
        self, step: Pass, source: CopySource, region: Region, *, wanted: bool, lossy: bool
    ) -> tuple[NDArray[Any] | None, _TakenOver]:
        """Take over the chunks of a block, encoding anew those that cannot be.

        Every chunk is decoded, which proves it whole. Returns the samples, where `wanted`, and a digest of the bytes;
        where the codec is lossy, of the samples of some chunks too: that the output's metadata make the same of the
        bytes has to be seen by decoding, but it is a question to an array and not to each of its chunks.
        """
        array = source.array
        block: NDArray[Any] | None = None
        hashed = xxhash.xxh3_128()
        copied = encoded = 0
        for index in chunks_in(region, array.chunk_shape):
            taken = source.take(index)
            data = self._write_taken(step, source, index, taken, lossy=lossy)
            if wanted and taken.samples is not None:
                block = _placed(block, region, array, index, taken.samples)
            hashed.update(b"-" if data is None else xxhash.xxh3_128_digest(data))
            if data is not None:
                same = taken.form is not None and same_codecs(taken.form.codecs, source.codecs)
                copied, encoded = copied + same, encoded + (not same)
            if lossy and taken.samples is not None and is_decoded_again(index):
                hashed.update(digest(taken.samples))
            del taken, data  # or they are held while the next chunk is decoded
        return block, _TakenOver(hashed.digest(), copied, encoded)

    def _write_taken(
        self, step: Pass, source: CopySource, index: ChunkIndex, taken: Taken, *, lossy: bool
    ) -> bytes | None:
        """Write one chunk, as it is stored where that is possible; the bytes that stand in the output.

        Raises
        ------
        UnsupportedFeatureError
            The chunk cannot be taken over, and encoding it anew would change its samples.
        """
        form = taken.form
        if taken.samples is None:
            self.sink.write_encoded(step.image, step.first, index, None)
            return None
        if form is None or not same_codecs(form.codecs, source.codecs):
            if lossy:
                raise UnsupportedFeatureError(
                    "a chunk cannot be kept as others of the image are, and encoding it anew would change its pixels",
                    where=source.array.locate(index),
                    hint="export without --codec keep",
                )
            covers = chunk_region(index, source.array.shape, source.array.chunk_shape)
            return self.sink.write_chunk(step.image, step.first, covers, taken.samples)
        data = bytes(form.data)
        self.sink.write_encoded(step.image, step.first, index, data)
        return data

    def _reader(self, image: PlannedImage, step: Pass) -> _Read:
        """What reads blocks of the pass's first level: from the source, or made from the level before."""
        level = image.levels[step.first]
        if level.source_level is not None:
            source = level_source(image.image, level.source_level, self.options)
            return lambda region: (
                source.read(region) if source.is_stored(region) else None,
                None,
            )
        before = image.levels[step.first - 1]
        known = self._whole is not None and (step.image, step.first) in self._whole

        def made(region: Region) -> tuple[NDArray[Any] | None, None]:
            wide = doubled(region, level, before)
            finished = self.sink.readable(step.image, step.first - 1)
            there = (finished.is_stored(n) for n in chunks_in(wide, finished.chunk_shape))
            if known and not all(there):
                # read as absent it would become black pixels
                raise UnseenError(
                    f"image {step.image} level {step.first - 1}: chunks that were written are not to be seen here"
                )
            if not known and not any(there):
                return None, None
            block = read_region(finished, wide)
            return downsample(block, level.halve, label=image.image.label), None

        return made

    def reads_whole(self, step: Pass) -> bool:
        """Whether every chunk of what a pass reads is stored; of a source this may look at all its keys."""
        if self._whole is not None:
            return (step.image, step.first) in self._whole
        image = self.plan.images[step.image]
        number = image.levels[step.first].source_level
        if number is None:
            before = self._ends[step.image, step.first - 1]
            chunks = sum(math.prod(grid_shape(n.shape, n.chunk)) for n in self.levels(before))
            return self._noted[step.image, before.last] == chunks
        return full(level_source(image.image, number, self.options).array)

    def _stored(self, image: PlannedImage, step: Pass) -> Stored | None:
        """What tells whether anything of a region of the pass's first level is stored; None where everything is."""
        if self.reads_whole(step):
            return None
        level = image.levels[step.first]
        if level.source_level is not None:
            return level_source(image.image, level.source_level, self.options).is_stored
        before = image.levels[step.first - 1]
        finished = self.sink.readable(step.image, step.first - 1)

        def stored(region: Region) -> bool:
            wide = doubled(region, level, before)
            return any(finished.is_stored(n) for n in chunks_in(wide, finished.chunk_shape))

        return stored

    def _write_block(
        self,
        step: Pass,
        image: PlannedImage,
        region: Region,
        block: NDArray[Any] | None,
        taken: _TakenOver | None,
        stored: Stored | None,
        seen: tuple[tuple[int, float, float], ...],
    ) -> Block:
        """Write a block and what is made from it; what is to be noted of all.

        `taken` stands for a first level that is written already, its chunks having been taken over. Chunks of
        which nothing is stored in the source are not stored in the output, at any level.
        """
        digests, size, encoded = [], 0, 0
        absent: set[ChunkIndex] = set()
        for number in range(step.first, step.last + 1):
            level = image.levels[number]
            if number > step.first:
                region = half(region, level)
                if block is not None:
                    block = downsample(block, level.halve, label=image.image.label)
                    absent = absent_after(region, level, image.levels[number - 1], absent)
            elif block is not None and stored is not None:
                absent = absent_chunks(region, level, stored)
            if block is not None:
                block = blanked(block, region, level, absent)
            if number == step.first and taken is not None:
                digests.append(taken.digest)
            else:
                if block is not None:
                    block = np.ascontiguousarray(
                        block
                    )  # once, not for the digest and for each chunk
                self.sink.write_block(step.image, number, region, block, absent)
                digests.append(ABSENT if block is None else digest(block))
                if block is not None:
                    encoded += sum(n not in absent for n in chunks_in(region, level.chunk))
            size += math.prod(b - a for a, b in region) * np.dtype(level.dtype).itemsize
        copied = 0 if taken is None else taken.copied
        anew = encoded + (0 if taken is None else taken.encoded)
        return Block(step, tuple(digests), seen, size, copied, anew)

    def advance(self, size: int) -> None:
        self.done += size
        if self.progress is not None:
            self.progress(self.done, self.total)


def _observed(
    image: PlannedImage, region: Region, block: NDArray[Any]
) -> tuple[tuple[int, float, float], ...]:
    """The range of values of each channel, which NGFF wants and floats do not tell."""
    place = image.axes.find("c")
    start = region[place][0] if place >= 0 else 0
    parts = np.moveaxis(block, place, 0) if place >= 0 else block[None]
    seen = []
    for offset, part in enumerate(parts):
        finite = part[np.isfinite(part)]
        if finite.size:
            seen.append((start + offset, float(finite.min()), float(finite.max())))
    return tuple(seen)


def _placed(
    block: NDArray[Any] | None,
    region: Region,
    array: ChunkedArray,
    index: ChunkIndex,
    samples: NDArray[Any],
) -> NDArray[Any]:
    """The block with the samples of one of its chunks; chunks that are not stored hold the fill value."""
    if block is None:
        block = np.full(region_shape(region), array.fill_value, dtype=samples.dtype)
    covers = chunk_region(index, array.shape, array.chunk_shape)
    spans = zip(covers, region, strict=True)
    block[tuple(slice(a - start, b - start) for (a, b), (start, _) in spans)] = samples
    return block


def _wants_range(image: PlannedImage) -> bool:
    """Whether a channel of floats lacks the window that NGFF demands."""
    if image.image.label or not image.levels[0].dtype.startswith("float"):
        return False
    known = image.image.channels
    count = dict(zip(image.axes, image.levels[0].shape, strict=True)).get("c", 1)
    return len(known) < count or any(
        c.window is None or None in (c.window.min, c.window.max) for c in known
    )
