"""Reading an export back: opened as anybody would, every block compared with what was noted while writing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import xxhash

from openreadout import registry
from openreadout.arrays import ChunkIndex, Region, chunks_in, read_region
from openreadout.errors import OpenReadoutError, StorageError, VerificationError
from openreadout.model import Dataset
from openreadout.operations.copying import is_decoded_again
from openreadout.operations.sources import LevelSource
from openreadout.operations.walk import ABSENT, AHEAD, DIGEST_BYTES, Pass, cell_blocks, digest, half
from openreadout.operations.writing import Writing

_Comparison = Callable[[tuple[int, Region]], int]
"""Compares a block, numbered as it was noted, and gives its bytes of samples."""


class ReadBack:
    """The proof of an export that is written."""

    def __init__(self, run: Writing) -> None:
        self._run = run

    def verify(self, path: str, steps: Sequence[Pass] | None = None) -> None:
        """Open the output as anybody would and compare geometry and every block with what was written.

        With `steps` the blocks of those passes alone are compared.

        Raises
        ------
        VerificationError
        StorageError
            The system refuses to read what was written.
        """
        try:
            with registry.open_dataset(path) as written:
                self.same_geometry(written)
                self._same_blocks(self._run.steps if steps is None else steps, written)
        except (VerificationError, StorageError):
            raise  # a disk that refuses to be read says nothing of what is on it
        except OpenReadoutError as error:
            raise VerificationError(f"the output does not read back: {error}", path=path) from error

    def same_geometry(self, written: Dataset) -> None:
        """Compare images, axes, sizes, types and scales."""
        if len(written.images) != len(self._run.plan.images):
            raise VerificationError(
                f"the output shows {len(written.images)} images where {len(self._run.plan.images)} were written"
            )
        for number, (image, found) in enumerate(
            zip(self._run.plan.images, written.images, strict=True)
        ):
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

    def _same_blocks(self, steps: Sequence[Pass], written: Dataset) -> None:
        def jobs() -> Iterator[tuple[_Comparison, tuple[int, Region]]]:
            for step in steps:
                numbers = range(step.first, step.last + 1)
                notes = [self._run.digests.get((step.image, n), b"") for n in numbers]
                compare = self._comparing(step, written, notes)
                for numbered in enumerate(self._run.walk(step)):
                    yield compare, numbered

        def work(job: tuple[_Comparison, tuple[int, Region]]) -> int:
            return job[0](job[1])

        ahead = AHEAD * self._run.workers.threads
        with closing(self._run.workers.map(work, jobs(), ahead=ahead)) as results:
            for size in results:
                self._run.advance(size)

    def same_cell(
        self, step: Pass, index: ChunkIndex, noted: Sequence[bytes], written: Dataset
    ) -> int:
        """Compare one of the largest cells of a pass with what was noted of it; its bytes of samples.

        Raises
        ------
        VerificationError
        StorageError
        """
        work = self._comparing(step, written, noted)
        try:
            return sum(map(work, enumerate(cell_blocks(self._run.levels(step), index))))
        except (VerificationError, StorageError):
            raise
        except OpenReadoutError as error:
            raise VerificationError(f"the output does not read back: {error}") from error

    def _comparing(
        self, step: Pass, written: Dataset, noted: Sequence[bytes | bytearray]
    ) -> _Comparison:
        """What compares a block, numbered as it was noted, and gives its bytes of samples."""
        image = self._run.plan.images[step.image]
        found = written.images[step.image]
        numbers = range(step.first, step.last + 1)
        lossy = {n: self._run.lossy(image.levels[n]) for n in numbers}
        notes = [memoryview(level) for level in noted]

        def work(numbered: tuple[int, Region]) -> int:
            at, region = numbered
            size = 0
            for number, expected in zip(numbers, notes, strict=True):
                level = image.levels[number]
                if number > step.first:
                    region = half(region, level)
                noted = bytes(expected[at * DIGEST_BYTES : (at + 1) * DIGEST_BYTES])
                array = found.levels[number].array
                if level.copied and noted != ABSENT:
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

        return work

    def _same_bytes(self, array: Any, region: Region, noted: bytes, *, lossy: bool) -> bool:
        """What was taken over must be there byte for byte; some chunks of a lossy codec are decoded again too."""
        hashed = xxhash.xxh3_128()
        for index in chunks_in(region, array.chunk_shape):
            data = array.read_encoded(index)
            hashed.update(b"-" if data is None else xxhash.xxh3_128_digest(data))
            if lossy and data is not None and is_decoded_again(index):
                hashed.update(digest(array.read_chunk(index)))
        return hashed.digest() == noted

    def _same_samples(self, array: Any, region: Region, noted: bytes) -> bool:
        if noted == ABSENT:
            return not LevelSource(array, (None,) * len(region)).is_stored(region)
        return digest(read_region(array, region)) == noted
