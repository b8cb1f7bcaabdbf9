"""`export`: write a data set as OME-Zarr, prove that it reads back, and only then give it its name.

Levels are written in passes. A pass reads blocks of the source (or of the level before), writes them, and makes the
levels that follow from them while they are in memory. Every block's digest is noted and compared with what a fresh
opening of the output reads back.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from openreadout import __version__, registry
from openreadout.arrays import (
    ChunkedArray,
    ChunkIndex,
    Region,
    chunk_region,
    chunks_in,
    grid_shape,
    read_region,
    region_shape,
)
from openreadout.codecs import CodecChain
from openreadout.contracts import ExportPlan, PlannedImage, PlannedLevel, Sink
from openreadout.errors import (
    OpenReadoutError,
    StorageError,
    UnsupportedFeatureError,
    UsageError,
    VerificationError,
    storage_error,
)
from openreadout.model import Dataset
from openreadout.operations.copying import CopySource, Taken, same_codecs, stored_in_chunks
from openreadout.operations.corrections import Corrections, corrected
from openreadout.operations.plan import PlanOptions, absent_planes, level_source, make_plan
from openreadout.operations.sources import LevelSource, target_array
from openreadout.operations.target import ARCHIVES, default_output, guard, partial_output, stem
from openreadout.planes import little
from openreadout.pyramid import downsample
from openreadout.results import ExportReport
from openreadout.stores import source_state, total_size
from openreadout.workers import Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray

Progress = Callable[[int, int], None]
DIGEST_BYTES = 16
FEW_BLOCKS = 256
"""Levels of fewer blocks are walked through, stored or not."""
ABSENT = bytes(DIGEST_BYTES)


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How to write, beside what the plan decides."""

    plan: PlanOptions = field(default_factory=PlanOptions)
    corrections: Corrections = field(default_factory=Corrections)
    overwrite: bool = False
    verify: bool = True
    sync: bool = True
    resume: bool = False
    skip_done: bool = False
    axes: str | None = None


def export(
    path: str,
    output: str | None,
    options: ExportOptions,
    workers: Workers,
    progress: Progress | None = None,
) -> ExportReport:
    """Export one input.

    Raises
    ------
    UsageError
        The target exists, would harm the source, or a selection or option cannot be met.
    CorruptDataError, StorageError, UnsupportedFeatureError, UnknownFormatError
        The source cannot be read, or the target cannot be written.
    VerificationError
        What was written does not read back as what was read.
    """
    started = time.monotonic()
    with registry.open_dataset(path, axes=options.axes) as dataset:
        target = default_output(path) if output is None else output.rstrip("/") or output
        if not target:
            raise UsageError("the output has an empty name", hint="-o NAME, or no -o at all")
        members = dataset.members or (path,)
        fixed, changes = corrected(dataset, options.corrections)
        plan = replace(make_plan(fixed, options.plan, registry.find_codec), changes=changes)
        if options.skip_done and os.path.lexists(target) and _is_output(plan, target):
            return _skipped(path, target, plan, time.monotonic() - started)
        guard(path, members, target, overwrite=options.overwrite)
        writer = registry.find_writer("ome-zarr")
        _refuse_full_disk(plan, target)
        with partial_output(
            target,
            overwrite=options.overwrite,
            fingerprint=_fingerprint(plan, members, options),
            resume=options.resume,
        ) as partial:
            sink = writer.create(
                plan,
                partial.path,
                archive=target.lower().endswith(ARCHIVES),
                resume=partial.resumed,
            )
            run = _Run(plan, options, sink, workers, progress)
            try:
                run.write()
                sink.finish(sync=options.sync)
            except BaseException:
                sink.abort()
                raise
            if options.verify:
                run.verify(partial.path)
            counts = sink.written()
        return ExportReport(
            input=path,
            output=target,
            format=f"OME-Zarr {plan.version}",
            images_written=len(plan.images),
            planes_written=sum(_plane_count(image) for image in plan.images),
            levels_written=sum(len(image.levels) for image in plan.images),
            chunks_copied=counts.copied,
            chunks_encoded=counts.encoded,
            files_written=counts.files,
            bytes_written=counts.size,
            verified=options.verify,
            seconds=time.monotonic() - started,
            source_bytes=sum(total_size(member) for member in members),
            changes=plan.changes,
            filled_planes=_filled(plan, options.plan),
            notes=plan.notes,
        )


def _refuse_full_disk(plan: ExportPlan, target: str) -> None:
    """Refuse before writing when the disk cannot hold what is written without compression."""
    least = sum(
        math.prod(level.shape) * np.dtype(level.dtype).itemsize
        for image in plan.images
        for level in image.levels
        if len(level.codecs) == 1
        and level.source_level is not None
        and not level.copied
        # chunks that are not stored take no space, and how many these are is not known yet
        and not stored_in_chunks(target_array(image.image, level.source_level))
    )
    folder = os.path.dirname(os.path.abspath(target))
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise storage_error(error, folder) from error
    if least > free:
        raise StorageError(
            f"{target}: {least} bytes are to be written, the disk has {free} free",
            path=target,
            hint="free some space, choose another place with -o, or compress with --codec",
        )


def _is_output(plan: ExportPlan, target: str) -> bool:
    """Whether a store shows what the plan would write: a store under its final name is always complete."""
    try:
        with registry.open_dataset(target) as there:
            found = [[level.array.shape for level in image.levels] for image in there.images]
            types = [image.dtype for image in there.images]
    except OpenReadoutError:
        return False
    wanted = [[level.shape for level in image.levels] for image in plan.images]
    return found == wanted and types == [image.levels[0].dtype for image in plan.images]


def _skipped(path: str, target: str, plan: ExportPlan, seconds: float) -> ExportReport:
    """The report on an output that is there already."""
    return ExportReport(
        input=path,
        output=target,
        format=f"OME-Zarr {plan.version}",
        images_written=0,
        planes_written=0,
        levels_written=0,
        chunks_copied=0,
        chunks_encoded=0,
        files_written=0,
        bytes_written=0,
        verified=False,
        seconds=seconds,
        skipped=True,
        notes=("it was there already and complete, and was left alone",),
    )


def _fingerprint(plan: ExportPlan, members: Sequence[str], options: ExportOptions) -> str:
    """Stands for the source as it is, for what is asked for and for everything that the plan decides."""
    hashed = xxhash.xxh3_128(__version__.encode())
    for member in members:
        for name, size, changed in source_state(member):
            hashed.update(f"{name!r} {size} {changed}\n".encode("utf-8", "backslashreplace"))
    for image in plan.images:
        hashed.update(repr((image.source_index, image.path, image.axes, image.units)).encode())
        hashed.update(repr(image.levels).encode())
    hashed.update(
        repr((plan.version, plan.layout, plan.changes)).encode("utf-8", "backslashreplace")
    )
    # two selections may have the same shapes and places
    wanted = repr((replace(options.plan, memory=None), options.corrections, options.axes))
    hashed.update(wanted.encode("utf-8", "backslashreplace"))
    return hashed.hexdigest()


def plan_export(path: str, options: ExportOptions) -> tuple[ExportPlan, Dataset]:
    """The plan alone, for `--dry-run`; the data set is closed again."""
    with registry.open_dataset(path, axes=options.axes) as dataset:
        fixed, changes = corrected(dataset, options.corrections)
        plan = make_plan(fixed, options.plan, registry.find_codec)
        return replace(plan, changes=changes), dataset


def _plane_count(image: PlannedImage) -> int:
    shape = dict(zip(image.axes, image.levels[0].shape, strict=True))
    return math.prod(shape.get(axis, 1) for axis in "tcz")


def _filled(plan: ExportPlan, options: PlanOptions) -> tuple[str, ...]:
    return tuple(
        f"image {image.source_index}: t={t} c={c} z={z}"
        for image in plan.images
        for t, c, z in absent_planes(image.image, options.selection)
    )


_Read = Callable[[Region], "tuple[NDArray[Any] | None, bytes | None]"]
"""Gives the samples of a block, None where nothing is stored, and the digest of bytes that were taken over."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """Levels that are made together: `first` from the source or the level before, the others in memory."""

    image: int
    first: int
    last: int


class _Run:
    """One export under way."""

    def __init__(
        self,
        plan: ExportPlan,
        options: ExportOptions,
        sink: Sink,
        workers: Workers,
        progress: Progress | None,
    ) -> None:
        self.plan = plan
        self.options = options
        self.sink = sink
        self.workers = workers
        self.progress = progress
        self.digests: dict[tuple[int, int], bytearray] = {}
        self.occupied: dict[tuple[int, int], set[ChunkIndex] | None] = {}
        self.done = 0
        self.total = sum(
            math.prod(level.shape) * np.dtype(level.dtype).itemsize
            for image in plan.images
            for level in image.levels
        ) * (2 if options.verify else 1)

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write every level of every image."""
        for step in self._passes():
            self._write_pass(step)

    def _passes(self) -> Iterator[_Pass]:
        for number, image in enumerate(self.plan.images):
            first = 0
            while first < len(image.levels):
                last = first
                while last + 1 < len(image.levels) and _in_memory(image.levels, last):
                    last += 1
                yield _Pass(number, first, last)
                first = last + 1

    def _walk(self, step: _Pass) -> Iterator[Region]:
        """The blocks of a pass; the same each time it is asked for."""
        levels = self.plan.images[step.image].levels[step.first : step.last + 1]
        key = step.image, step.first
        if key not in self.occupied:
            self.occupied[key] = self._occupied(step, levels)
        return blocks(levels, self.occupied[key])

    def _occupied(self, step: _Pass, levels: Sequence[PlannedLevel]) -> set[ChunkIndex] | None:
        """Cells of a sparse level that hold anything; None for a level that is better walked through.

        A store can declare terabytes and hold a few chunks: what is not stored must cost nothing.
        """
        cell = _cells(levels)[0]
        first = levels[0]
        count = math.prod(grid_shape(first.shape, first.block))
        if count < FEW_BLOCKS or math.prod(grid_shape(first.shape, cell)) < 2:
            return None
        array, halve = self._origin(step, first)
        presence = None if array is None else array.presence()
        if array is None or presence is None or not presence.exact:
            return None
        if presence.stored * 2 > presence.total:
            return None
        found: set[ChunkIndex] = set()
        for index in array.stored_indices():
            covers = chunk_region(index, array.shape, array.chunk_shape)
            shown = [
                (a // 2, -(-b // 2)) if h else (a, b)
                for (a, b), h in zip(covers, halve, strict=True)
            ]
            found.update(chunks_in(tuple(shown), cell))
        return found

    def _origin(
        self, step: _Pass, first: PlannedLevel
    ) -> tuple[ChunkedArray | None, Sequence[bool]]:
        """The array that a pass reads, and which of its axes are halved; None where a selection hides parts of it."""
        if first.source_level is None:
            return self.sink.readable(step.image, step.first - 1), first.halve
        image = self.plan.images[step.image].image
        source = level_source(image, first.source_level, self.options.plan)
        return (source.array if source.whole else None), (False,) * len(first.shape)

    def _write_pass(self, step: _Pass) -> None:
        image = self.plan.images[step.image]
        watched = step.first == 0 and _wants_range(image)
        read = self._taker(image, step) or self._reader(image, step)

        def work(region: Region) -> tuple[list[bytes], int]:
            block, taken = read(region)
            if block is not None and watched:
                self._observe(step.image, image, region, block)
            return self._write_block(step, image, region, block, taken)

        walk = self._announced(step)
        # closed whatever happens: no thread writes on while an interrupted output is being cleared away
        with closing(self.workers.map(work, walk, ahead=self.workers.threads)) as results:
            for digests, size in results:
                for level, digest in enumerate(digests, step.first):
                    self.digests.setdefault((step.image, level), bytearray()).extend(digest)
                self._advance(size)

    def _announced(self, step: _Pass) -> Iterator[Region]:
        """The blocks of a pass, each told to the output before any thread works on it."""
        levels = self.plan.images[step.image].levels
        for region in self._walk(step):
            part = region
            for number in range(step.first, step.last + 1):
                part = _half(part, levels[number]) if number > step.first else part
                self.sink.expect(step.image, number, part)
            yield region

    def _taker(self, image: PlannedImage, step: _Pass) -> _Read | None:
        """What takes over chunks of the pass's first level as they are stored; None where they are not."""
        level = image.levels[step.first]
        if not level.copied or level.source_level is None:
            return None
        array = level_source(image.image, level.source_level, self.options.plan).array
        source = CopySource(array, level.codecs, self.options.plan.codec == "keep")
        lossy = self._lossy(level)
        wanted = step.last > step.first or _wants_range(image)
        return lambda region: self._copy_block(step, source, region, wanted=wanted, lossy=lossy)

    def _lossy(self, level: PlannedLevel) -> bool:
        """Whether chunks of a level would come to other samples if they were encoded."""
        return level.copied and CodecChain.build(level.codecs, self.plan.lookup).lossy

    def _copy_block(
        self, step: _Pass, source: CopySource, region: Region, *, wanted: bool, lossy: bool
    ) -> tuple[NDArray[Any] | None, bytes]:
        """Take over the chunks of a block, encoding anew those that cannot be.

        Every chunk is decoded, which proves it whole. Returns the samples, where `wanted`, and a digest of the bytes;
        of the samples too where the codec is lossy, since its chunks are proved by what they come back as.
        """
        array = source.array
        block: NDArray[Any] | None = None
        hashed = xxhash.xxh3_128()
        for index in chunks_in(region, array.chunk_shape):
            taken = source.take(index)
            data = self._write_taken(step, source, index, taken, lossy=lossy)
            if wanted and taken.samples is not None:
                block = _placed(block, region, array, index, taken.samples)
            hashed.update(b"-" if data is None else xxhash.xxh3_128_digest(data))
            if lossy and taken.samples is not None:
                hashed.update(digest(taken.samples))
        return block, hashed.digest()

    def _write_taken(
        self, step: _Pass, source: CopySource, index: ChunkIndex, taken: Taken, *, lossy: bool
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

    def _reader(self, image: PlannedImage, step: _Pass) -> _Read:
        """What reads blocks of the pass's first level: from the source, or made from the level before."""
        level = image.levels[step.first]
        if level.source_level is not None:
            source = level_source(image.image, level.source_level, self.options.plan)
            return lambda region: (
                source.read(region) if source.is_stored(region) else None,
                None,
            )
        before = image.levels[step.first - 1]

        def made(region: Region) -> tuple[NDArray[Any] | None, None]:
            wide = tuple(
                (a * 2, min(b * 2, n)) if h else (a, b)
                for (a, b), h, n in zip(region, level.halve, before.shape, strict=True)
            )
            finished = self.sink.readable(step.image, step.first - 1)
            if not any(finished.is_stored(n) for n in chunks_in(wide, finished.chunk_shape)):
                return None, None
            block = read_region(finished, wide)
            return downsample(block, level.halve, label=image.image.label), None

        return made

    def _write_block(
        self,
        step: _Pass,
        image: PlannedImage,
        region: Region,
        block: NDArray[Any] | None,
        taken: bytes | None,
    ) -> tuple[list[bytes], int]:
        """Write a block and what is made from it; the digests of all, and the bytes of samples.

        `taken` is the digest of a first level that is written already, its chunks having been taken over.
        """
        digests, size = [], 0
        for number in range(step.first, step.last + 1):
            level = image.levels[number]
            if number > step.first:
                region = _half(region, level)
                if block is not None:
                    block = downsample(block, level.halve, label=image.image.label)
            if number == step.first and taken is not None:
                digests.append(taken)
            else:
                self.sink.write_block(step.image, number, region, block)
                digests.append(ABSENT if block is None else digest(block))
            size += math.prod(b - a for a, b in region) * np.dtype(level.dtype).itemsize
        return digests, size

    def _observe(
        self, number: int, image: PlannedImage, region: Region, block: NDArray[Any]
    ) -> None:
        """Note the range of values of each channel, which NGFF wants and floats do not tell."""
        place = image.axes.find("c")
        start = region[place][0] if place >= 0 else 0
        parts = np.moveaxis(block, place, 0) if place >= 0 else block[None]
        for offset, part in enumerate(parts):
            finite = part[np.isfinite(part)]
            if finite.size:
                self.sink.observe(number, start + offset, float(finite.min()), float(finite.max()))

    def _advance(self, size: int) -> None:
        self.done += size
        if self.progress is not None:
            self.progress(self.done, self.total)

    # -- reading back -------------------------------------------------------------------------------------------

    def verify(self, path: str) -> None:
        """Open the output as anybody would and compare geometry and every block with what was written.

        Raises
        ------
        VerificationError
        """
        try:
            with registry.open_dataset(path) as written:
                self._same_geometry(written)
                for step in self._passes():
                    self._same_blocks(step, written)
        except VerificationError:
            raise
        except OpenReadoutError as error:
            raise VerificationError(f"the output does not read back: {error}", path=path) from error

    def _same_geometry(self, written: Dataset) -> None:
        if len(written.images) != len(self.plan.images):
            raise VerificationError(
                f"the output shows {len(written.images)} images where {len(self.plan.images)} were written"
            )
        for number, (image, found) in enumerate(zip(self.plan.images, written.images, strict=True)):
            shapes = [level.array.shape for level in found.levels]
            if shapes != [level.shape for level in image.levels] or found.axis_names != image.axes:
                raise VerificationError(
                    f"image {number} of the output has other axes or sizes than were written"
                )
            if found.dtype != image.levels[0].dtype or found.label != image.image.label:
                raise VerificationError(
                    f"image {number} of the output has another type than was written"
                )
            for mine, level in zip(image.levels, found.levels, strict=True):
                known = [s for s in level.scale if s is not None]
                if len(known) == len(mine.scale) and not np.allclose(
                    known, mine.scale, rtol=1e-9, atol=0
                ):
                    raise VerificationError(
                        f"image {number} of the output has another scale than was written"
                    )

    def _same_blocks(self, step: _Pass, written: Dataset) -> None:
        image = self.plan.images[step.image]
        found = written.images[step.image]
        numbers = range(step.first, step.last + 1)
        lossy = {n: self._lossy(image.levels[n]) for n in numbers}
        notes = [memoryview(self.digests.get((step.image, n), b"")) for n in numbers]

        def work(numbered: tuple[int, Region]) -> int:
            at, region = numbered
            size = 0
            for number, expected in zip(numbers, notes, strict=True):
                level = image.levels[number]
                if number > step.first:
                    region = _half(region, level)
                noted = bytes(expected[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES])
                array = found.levels[number].array
                if level.copied:
                    same = self._same_bytes(array, region, noted, lossy=lossy[number])
                else:
                    same = self._same_samples(array, region, noted)
                if not same:
                    where = " × ".join(f"{a}-{b - 1}" for a, b in region)
                    raise VerificationError(
                        f"image {step.image} level {number}: samples {where} read back as others"
                    )
                size += math.prod(b - a for a, b in region) * np.dtype(level.dtype).itemsize
            return size

        walk = enumerate(self._walk(step))
        with closing(self.workers.map(work, walk, ahead=self.workers.threads)) as results:
            for size in results:
                self._advance(size)

    def _same_bytes(self, array: Any, region: Region, noted: bytes, *, lossy: bool) -> bool:
        """What was taken over must be there byte for byte, and from a lossy codec come back sample by sample."""
        hashed = xxhash.xxh3_128()
        for index in chunks_in(region, array.chunk_shape):
            data = array.read_encoded(index)
            hashed.update(b"-" if data is None else xxhash.xxh3_128_digest(data))
            if lossy and data is not None:
                hashed.update(digest(array.read_chunk(index)))
        return hashed.digest() == noted

    def _same_samples(self, array: Any, region: Region, noted: bytes) -> bool:
        if noted == ABSENT:
            return not LevelSource(array, (None,) * len(region)).is_stored(region)
        return digest(read_region(array, region)) == noted


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


def _in_memory(levels: Sequence[PlannedLevel], number: int) -> bool:
    """Whether the level after `number` is made from blocks of it while they are in memory."""
    level, following = levels[number], levels[number + 1]
    if following.source_level is not None:
        return False
    half = tuple(b // 2 if h else b for b, h in zip(level.block, following.halve, strict=True))
    return half == following.block


def _half(region: Region, level: PlannedLevel) -> Region:
    """The part of a level that is made from a region of the level before."""
    return tuple(
        (a // 2, min(-(-b // 2), n)) if h else (a, b)
        for (a, b), h, n in zip(region, level.halve, level.shape, strict=True)
    )


def _wants_range(image: PlannedImage) -> bool:
    """Whether a channel of floats lacks the window that NGFF demands."""
    if image.image.label or not image.levels[0].dtype.startswith("float"):
        return False
    known = image.image.channels
    count = dict(zip(image.axes, image.levels[0].shape, strict=True)).get("c", 1)
    return len(known) < count or any(
        c.window is None or None in (c.window.min, c.window.max) for c in known
    )


def digest(block: NDArray[Any]) -> bytes:
    """Digest of a block's samples, little-endian in C order; never `ABSENT`."""
    ready = little(block)
    return xxhash.xxh3_128_digest(ready.reshape(-1).view(np.uint8).data) or ABSENT


def _cells(levels: Sequence[PlannedLevel]) -> list[tuple[int, ...]]:
    """Cells of the first level's grid, the largest first: what makes one shard of the last level, down to a block.

    Each is made of whole ones of the next, and the largest of whole shards of every level, so that no shard is left
    half written where cells are passed over.
    """
    first = levels[0]
    cells = [first.block]
    extents: list[list[int]] = []
    doubled = [1] * len(first.shape)
    for number, level in enumerate(levels):
        if number:
            doubled = [d * 2 if h else d for d, h in zip(doubled, level.halve, strict=True)]
        extent = [s * d for s, d in zip(level.shard or level.chunk, doubled, strict=True)]
        extents.append(extent)
        cells.append(tuple(-(-e // c) * c for e, c in zip(extent, cells[-1], strict=True)))
    whole = tuple(math.lcm(*sides) for sides in zip(*extents, cells[-1], strict=True))
    cells.append(
        tuple(
            -(-n // c) * c if side > n else side
            for side, n, c in zip(whole, first.shape, cells[-1], strict=True)
        )
    )
    return list(reversed(cells))


def blocks(
    levels: Sequence[PlannedLevel], occupied: set[ChunkIndex] | None = None
) -> Iterator[Region]:
    """Walk the blocks of the first of the levels that are made together.

    Blocks of one shard come after each other, and shards that make one shard of the next level too, so that few
    shards are open at a time. `occupied` names the largest cells that hold anything; the others are passed over.
    """
    cells = _cells(levels)
    whole = tuple((0, n) for n in levels[0].shape)
    if occupied is None:
        return _split(whole, cells)
    regions = (chunk_region(index, levels[0].shape, cells[0]) for index in sorted(occupied))
    return itertools.chain.from_iterable(_split(region, cells[1:]) for region in regions)


def _split(region: Region, cells: list[tuple[int, ...]]) -> Iterator[Region]:
    if not cells:
        yield region
        return
    spans = [
        [(start, min(start + cell, stop)) for start in range(begin, stop, cell)]
        for (begin, stop), cell in zip(region, cells[0], strict=True)
    ]
    for part in itertools.product(*spans):
        yield from _split(part, cells[1:])


def output_names(paths: Sequence[str], output: str | None) -> dict[str, str | None]:
    """Where each of several inputs goes: beside it, or into the folder `output`; never two under one name."""
    if output is None or len(paths) == 1:
        return dict.fromkeys(paths, output)
    try:
        os.makedirs(output, exist_ok=True)
    except OSError as error:
        raise storage_error(error, output) from error
    taken: set[str] = set()
    names: dict[str, str | None] = {}
    for path in paths:
        name, n = stem(path), 1
        while name in taken:
            n += 1
            name = f"{stem(path)}-{n}"
        taken.add(name)
        names[path] = os.path.join(output, f"{name}.ome.zarr")
    return names
