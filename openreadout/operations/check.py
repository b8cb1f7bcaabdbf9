"""`check`: is a data set whole? Structure, stored chunks, planes and their digests, comparison with another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from openreadout import registry
from openreadout.arrays import expect_all
from openreadout.errors import (
    CorruptDataError,
    InputError,
    OpenReadoutError,
    UnsupportedFeatureError,
    UsageError,
)
from openreadout.model import Dataset, Finding, Image
from openreadout.operations.extent import refuse_unwalkable
from openreadout.planes import Selection, digest_planes
from openreadout.results import CheckReport, PlaneDigest
from openreadout.workers import Workers

if TYPE_CHECKING:
    from openreadout.arrays import ChunkedArray, ChunkIndex, Presence

MAX_PER_ARRAY = 100
"""Damaged chunks of one array that are listed one by one; the rest are counted."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """What to look at.

    `level` is None for level 0 (planes) and all levels (chunks), a number, or -1 for all levels.
    """

    full: bool = False
    planes: bool = False
    algorithm: str = "xxh3"
    selection: Selection = field(default_factory=Selection)
    level: int | None = None
    axes: str | None = None
    trust_consolidated: bool = False
    budget: int | None = None


def check(
    path: str, options: CheckOptions, workers: Workers, progress: Progress | None = None
) -> CheckReport:
    """Check one input.

    A data set that is recognised and cannot be opened gives a report whose finding says what stopped it.

    Raises
    ------
    StorageError, UnknownFormatError, UnsupportedFeatureError, UsageError
    """
    try:
        dataset = registry.open_dataset(
            path, axes=options.axes, trust_consolidated=options.trust_consolidated
        )
    except CorruptDataError as error:
        if error.format_id is None:
            raise
        return CheckReport(path, error.format_id, (_stopped(error),), ("metadata",))
    with dataset:
        return _Check(dataset, options, workers, progress).run()


def _stopped(error: CorruptDataError) -> Finding:
    """The finding for an error that kept a data set from being opened."""
    return Finding(error.finding, "error", error.message, location=error.where)


@dataclass(frozen=True, slots=True)
class _Probe:
    """What a look at an array gave: what is wrong with its codecs, which chunks there are, and those that are bad."""

    problem: OpenReadoutError | None
    presence: Presence | None = None
    error: OpenReadoutError | None = None
    bad: tuple[tuple[ChunkIndex, OpenReadoutError], ...] = ()


def _bad(
    array: ChunkedArray, indices: Iterable[ChunkIndex]
) -> Iterator[tuple[ChunkIndex, OpenReadoutError]]:
    """The chunks among these that do not decode, with what is wrong."""
    for index in indices:
        try:
            array.read_chunk(index)
        except InputError as error:
            yield index, error.lightened()


class _Check:
    """One run over an opened data set."""

    def __init__(
        self, dataset: Dataset, options: CheckOptions, workers: Workers, progress: Progress | None
    ) -> None:
        self.dataset = dataset
        self.options = options
        self.workers = workers
        self.progress = progress
        self.findings: list[Finding] = list(dataset.findings)
        self.bad: dict[tuple[int, int], int] = {}
        self.seen_bad: set[tuple[int, int, str]] = set()
        self.chunks = 0
        self.absent = 0

    def run(self) -> CheckReport:
        chosen = chosen_images(self.dataset, self.options.selection)
        if self.options.planes:
            self._refuse_unreadable(chosen)
            walked = self._walked(chosen)
            refuse_unwalkable(self.dataset, walked, self.options.selection)
            if self.options.selection.everything:
                for _, image, level in walked:
                    expect_all(image.levels[level].array)
        if self.dataset.inspect is not None:
            self.findings += self.dataset.inspect(self.options.full)
        done = ["metadata", "pyramid", "presence"]
        jobs = ((image, level.array) for _, image in chosen for level in image.levels)
        # ahead of the findings, which come in order: the arrays of a plate are many, and may be far away
        with closing(self.workers.map(self._probe, jobs)) as probes:
            for number, image in chosen:
                self._structure(number, image)
                for level in range(len(image.levels)):
                    self._array(number, image, level, next(probes))
        done.append(
            "all chunks decoded" if self.options.full else "first and last chunk of each array"
        )
        planes = tuple(self._planes(chosen)) if self.options.planes else None
        if planes is not None:
            done.append("planes")
        self._count_rest()
        return CheckReport(
            self.dataset.path,
            self.dataset.format_id,
            tuple(self.findings),
            tuple(done),
            planes,
            self.chunks,
            self.absent,
        )

    # -- what is there ------------------------------------------------------------------------------------------

    def _refuse_unreadable(self, chosen: list[tuple[int, Image]]) -> None:
        for number, image in chosen:
            if not image.readable:
                raise UnsupportedFeatureError(
                    f"image {number}: data type {image.dtype} is not one of pixels",
                    hint="leave the image out with --image",
                )
            problem = codec_problem(image.levels[0].array)
            if isinstance(problem, UnsupportedFeatureError):
                raise problem

    def _structure(self, number: int, image: Image) -> None:
        previous = None
        for level, item in enumerate(image.levels):
            size = math.prod(item.array.shape)
            larger = previous is not None and any(
                n > before for n, before in zip(item.array.shape, previous, strict=True)
            )
            if larger and not self._told("pyramid", number, level):
                self._add(
                    "pyramid",
                    "warning",
                    f"level {level} is larger than the one before",
                    number,
                    level,
                )
            if size == 0:
                self._add(
                    "metadata", "warning", f"level {level} has an axis of length 0", number, level
                )
            previous = item.array.shape
        channels = len(image.channels)
        if channels > image.size("c") and not self._told("omero_channels", number, None):
            text = f"{channels} channels are described, the c axis has {image.size('c')}"
            self._add("omero_channels", "warning", text, number, None)

    def _told(self, code: str, image: int, level: int | None) -> bool:
        """Whether the reader has reported the same thing while opening."""
        return any(
            f.code == code and f.image in (image, None) and f.level in (level, None)
            for f in self.findings
        )

    def _probe(self, job: tuple[Image, ChunkedArray]) -> _Probe:
        """What is asked of an array before anything is reported of it; runs in any thread."""
        image, array = job
        problem = codec_problem(array) if image.readable else None
        if problem is not None and not isinstance(problem, UnsupportedFeatureError):
            return _Probe(problem)
        if self.options.full:
            expect_all(array)
        try:
            presence = array.presence()
        except InputError as error:
            return _Probe(problem, error=error.lightened())
        edges = (presence.first, presence.last)
        if self.options.full or problem is not None or not image.readable:
            return _Probe(problem, presence)
        tried = dict.fromkeys(index for index in edges if index is not None)
        return _Probe(problem, presence, bad=tuple(_bad(array, tried)))

    def _array(self, number: int, image: Image, level: int, probe: _Probe) -> None:
        array, problem = image.levels[level].array, probe.problem
        if not image.readable:
            if level == 0:
                text = f"data type {image.dtype} is not one of pixels"
                self._add("unsupported_dtype", "info", text, number, level)
        elif isinstance(problem, UnsupportedFeatureError):
            self._add("unsupported_codec", "info", problem.message, number, level)
        elif problem is not None:
            self._add("array_metadata", "error", problem.message, number, level, problem.where)
            return
        self._presence(number, level, probe)
        if self.options.full and image.readable and problem is None:
            self._decode_all(number, level, array)
        for index, error in probe.bad:
            self._bad_chunk(number, level, array, index, error)

    def _presence(self, number: int, level: int, probe: _Probe) -> None:
        found, error = probe.presence, probe.error
        if error is not None:
            self._add("chunk_decode", "error", error.message, number, level, error.where)
        if found is None:
            return
        missing = found.total - found.stored
        self.chunks += found.total
        self.absent += missing
        if missing > 0:
            about = "" if found.exact else f"about (from {found.samples} samples) "
            text = f"{about}{missing} of {found.total} chunks are not stored and read as the fill value"
            self._add("missing_chunks", "info", text, number, level)
        self._strays(number, level, found.strays)

    def _strays(self, number: int, level: int, strays: tuple[str, ...]) -> None:
        for key in strays[:MAX_PER_ARRAY]:
            self._add(
                "unexpected_file",
                "info",
                "no array or group explains this file",
                number,
                level,
                key,
            )
        if len(strays) > MAX_PER_ARRAY:
            text = f"{len(strays) - MAX_PER_ARRAY} more files that no array or group explains"
            self._add("unexpected_file", "info", text, number, level)

    # -- decoding -----------------------------------------------------------------------------------------------

    def _decode_all(self, number: int, level: int, array: ChunkedArray) -> None:
        def one(index: ChunkIndex) -> tuple[ChunkIndex, OpenReadoutError | None]:
            try:
                array.read_chunk(index)
            except InputError as error:
                return index, error.lightened()
            return index, None

        for n, (index, error) in enumerate(self.workers.map(one, array.stored_indices(), ahead=64)):
            if error is not None:
                self._bad_chunk(number, level, array, index, error)
            if self.progress is not None and n % 64 == 0:
                self.progress(n, 0)

    def _bad_chunk(
        self,
        number: int,
        level: int,
        array: ChunkedArray,
        index: ChunkIndex,
        error: OpenReadoutError,
    ) -> None:
        """One finding for each damaged key, a bounded number for each array."""
        where = error.where or array.locate(index)
        unread = isinstance(error, UnsupportedFeatureError)
        seen = (number, level, error.message if unread else where)
        if seen in self.seen_bad:
            return
        self.seen_bad.add(seen)
        if unread:  # a stored form that is not read is no damage
            self._add("unsupported_codec", "info", error.message, number, level, where)
            return
        count = self.bad[number, level] = self.bad.get((number, level), 0) + 1
        if count <= MAX_PER_ARRAY:
            self._add("chunk_decode", "error", error.message, number, level, where)

    def _count_rest(self) -> None:
        for (number, level), count in self.bad.items():
            if count > MAX_PER_ARRAY:
                text = f"{count - MAX_PER_ARRAY} more chunks do not decode"
                self._add("chunk_decode", "error", text, number, level)

    # -- planes -------------------------------------------------------------------------------------------------

    def _walked(self, chosen: list[tuple[int, Image]]) -> list[tuple[int, Image, int]]:
        """The levels whose planes are read: not those of which the structure's findings tell that no chunk decodes."""
        levels = chosen_levels(chosen, self.options.level)
        return [(n, i, k) for n, i, k in levels if codec_problem(i.levels[k].array) is None]

    def _planes(self, chosen: list[tuple[int, Image]]) -> Iterator[PlaneDigest]:
        total = sum(image.plane_count for _, image in chosen)
        done = 0
        for number, image, level in self._walked(chosen):
            array = image.levels[level].array

            def failed(
                index: ChunkIndex,
                error: OpenReadoutError,
                number: int = number,
                level: int = level,
                array: ChunkedArray = array,
            ) -> None:
                if isinstance(error, UnsupportedFeatureError):
                    raise error
                self._bad_chunk(number, level, array, index, error)

            extra = {} if self.options.budget is None else {"budget": self.options.budget}
            found = digest_planes(
                image,
                level,
                self.options.selection,
                self.options.algorithm,
                self.workers,
                failed,
                **extra,
            )
            digested = []
            for plane in found:
                done += 1
                if self.progress is not None:
                    self.progress(done, total)
                if plane.digest is not None:
                    digested.append((plane, plane.digest))
            # planes that share chunks come together, which is not the order that people look for
            for plane, digest in sorted(digested, key=lambda p: (p[0].t, p[0].c, p[0].z)):
                yield PlaneDigest(
                    image=number,
                    level=level,
                    c=plane.c,
                    z=plane.z,
                    t=plane.t,
                    width=plane.width,
                    height=plane.height,
                    pixel_type=image.pixel_type or image.dtype,
                    samples_per_pixel=image.samples_per_pixel,
                    algorithm=self.options.algorithm,
                    digest=digest,
                )

    def _add(
        self,
        code: str,
        severity: str,
        message: str,
        image: int,
        level: int | None,
        location: str | None = None,
    ) -> None:
        self.findings.append(Finding(code, severity, message, image, level, location))


def codec_problem(array: ChunkedArray) -> OpenReadoutError | None:
    """What keeps the array's codec chain from being built, or any chunk from being allocated; or None."""
    for spec_array in _encoded_parts(array):
        try:
            getattr(spec_array, "chain", None)  # building it is what may fail
            getattr(spec_array, "spec", None)  # refuses a chunk larger than is accepted
        except InputError as error:
            return error
    return None


def _encoded_parts(array: ChunkedArray) -> Iterator[object]:
    """The stored arrays below views."""
    inner = getattr(array, "array", None)
    parts = getattr(array, "parts", None)
    if inner is not None:
        yield from _encoded_parts(inner)
    elif parts:
        for part in parts:
            if part is not None:
                yield from _encoded_parts(part)
    else:
        yield array


def chosen_images(dataset: Dataset, selection: Selection) -> list[tuple[int, Image]]:
    """The selected images with their numbers; raises `UsageError` for a number that is not there."""
    if selection.images is None:
        return list(enumerate(dataset.images))
    count = len(dataset.images)
    bad = [n for n in selection.images if n >= count]
    if bad:
        raise UsageError(
            f"image {bad[0]} is out of range: the data set has {count}",
            hint="openreadout info lists the images with their numbers",
        )
    return [(n, dataset.images[n]) for n in selection.images]


def chosen_levels(
    chosen: list[tuple[int, Image]], level: int | None
) -> list[tuple[int, Image, int]]:
    """The selected images with the levels asked for; images without the level are left out.

    Raises `UsageError` when no image has it.
    """
    if level == -1:
        return [(n, image, k) for n, image in chosen for k in range(len(image.levels))]
    wanted = level or 0
    found = [(n, image, wanted) for n, image in chosen if wanted < len(image.levels)]
    if chosen and not found:
        most = max(len(image.levels) for _, image in chosen)
        raise UsageError(
            f"level {wanted} is out of range: no image has more than {most} levels",
            hint="openreadout info lists the levels",
        )
    return found
