"""Which cells of an export can be written now: those of the source, and those that are made from what is written.

A level that is made from one in the output needs no more of it than the cells that it lies over. So its cells are begun
as those are done, and no worker waits for the last cell of a level.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Iterable, Iterator

from openreadout.arrays import ChunkIndex, Region, chunk_region, chunks_in, count_chunks
from openreadout.operations.absence import doubled
from openreadout.operations.cells import Task
from openreadout.operations.records import Key, key_of
from openreadout.operations.walk import Pass, cells, half
from openreadout.operations.writing import Cell, Writing


class Ready:
    """The cells of an export in an order in which they can be written.

    Parameters
    ----------
    run : Writing
    found : dict of Key to Cell
        What is noted already, and is not given again; `done` adds to it.
    """

    def __init__(self, run: Writing, found: dict[Key, Cell]) -> None:
        self._run = run
        self._found = found
        self._next = {
            before: step
            for before, step in itertools.pairwise(run.steps)
            if before.image == step.image and run.levels(step)[0].source_level is None
        }
        self._before = {step: before for before, step in self._next.items()}
        # all images come to their first levels before any comes to others of the source
        first = sorted((s for s in run.steps if s not in self._before), key=lambda s: s.first > 0)
        self._walks: deque[Iterator[Task]] = deque(map(self._walk, first))
        self._early: list[tuple[int, int, Task]] = []
        self._numbers = itertools.count()
        self._begun: set[Key] = set()
        self._whole: set[Key] = set()
        self._full: dict[Pass, bool] = {}
        self._done: Counter[Pass] = Counter()
        self._total: dict[Pass, int] = {}
        self._opened: set[Pass] = set()
        self._sizes: dict[Pass, tuple[int, ...]] = {}

    def take(self, count: int) -> list[Task]:
        """As many tasks as can be begun now, at most `count`; those of the smallest levels come first."""
        taken: list[Task] = []
        while len(taken) < count:
            if self._early:
                taken.append(heapq.heappop(self._early)[2])
            elif not self._walks:
                break
            elif (task := next(self._walks[0], None)) is not None:
                taken.append(task)
            else:
                self._walks.popleft()
        return taken

    def done(self, cell: Cell) -> None:
        """Note a cell that is written: others may be made from it."""
        self._found[key_of(cell.step, cell.index)] = cell
        self._count(cell)

    def _walk(self, step: Pass) -> Iterator[Task]:
        """The cells of a pass of which all that it reads is there, but for those that were begun or noted before."""
        indices = list(self._run.cells(step))
        self._total[step] = len(indices)
        for index in indices:
            key = key_of(step, index)
            if key in self._begun:
                continue
            self._begun.add(key)
            if key in self._found:
                self._count(self._found[key])
            else:
                yield Task(step, index, self._reads_whole(step, index))
        self._end(step)

    def _reads_whole(self, step: Pass, index: ChunkIndex) -> bool:
        """Whether every chunk of what a cell is made from is stored."""
        if step in self._before:
            return self._whole.issuperset(self._under(step, index))
        if step not in self._full:
            self._full[step] = self._run.reads_whole(step)
        return self._full[step]

    def _count(self, cell: Cell) -> None:
        """Begin what has waited for a cell, if that was the last of it."""
        step = cell.step
        self._done[step] += 1
        if self._is_whole(cell):
            self._whole.add(key_of(step, cell.index))
            if step in self._next:
                for index in self._over(step, cell.index):
                    self._begin(self._next[step], index)
        self._end(step)

    def _begin(self, step: Pass, index: ChunkIndex) -> None:
        """Begin a cell whose inputs are there, in every chunk; of others the whole level before has to be seen."""
        key = key_of(step, index)
        if key in self._begun or not self._whole.issuperset(self._under(step, index)):
            return
        self._begun.add(key)
        if key in self._found:
            self._count(self._found[key])
        else:
            heapq.heappush(
                self._early, (-step.first, next(self._numbers), Task(step, index, whole=True))
            )

    def _end(self, step: Pass) -> None:
        """Once a pass is complete, begin what is left of the next: sparse levels, and what was noted before."""
        after = self._next.get(step)
        if after is None or after in self._opened or self._done[step] != self._total.get(step):
            return
        self._opened.add(after)
        self._walks.append(self._walk(after))

    def _size(self, step: Pass) -> tuple[int, ...]:
        if step not in self._sizes:
            self._sizes[step] = cells(self._run.levels(step))[0]
        return self._sizes[step]

    def _over(self, step: Pass, index: ChunkIndex) -> Iterator[ChunkIndex]:
        """Cells of the next pass that are made from a cell, or from a part of it."""
        levels = self._run.levels(step)
        region = chunk_region(index, levels[0].shape, self._size(step))
        after = self._next[step]
        for level in (*levels[1:], self._run.levels(after)[0]):
            region = half(region, level)
        return chunks_in(region, self._size(after))

    def _under(self, step: Pass, index: ChunkIndex) -> Iterable[Key]:
        """Cells of the pass before that a cell is made from."""
        levels = self._run.plan.images[step.image].levels
        region: Region = chunk_region(index, levels[step.first].shape, self._size(step))
        before = self._before[step]
        for number in range(step.first, before.first, -1):
            region = doubled(region, levels[number], levels[number - 1])
        return (key_of(before, i) for i in chunks_in(region, self._size(before)))

    def _is_whole(self, cell: Cell) -> bool:
        """Whether every chunk of a cell, at all its levels, holds something."""
        levels = self._run.levels(cell.step)
        region = chunk_region(cell.index, levels[0].shape, self._size(cell.step))
        chunks = 0
        for number, level in enumerate(levels):
            region = half(region, level) if number else region
            chunks += count_chunks(region, level.chunk)
        return cell.copied + cell.encoded == chunks
