"""`export --part I/N` and `--commit`: one export written by processes that know nothing of each other.

Every part works out the same plan and takes its share of the cells that are made from the source. What a level is made
of may come from several parts, so the levels above are written by the commit, which also proves the whole and gives it
its name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

from openreadout import registry
from openreadout.arrays import ChunkIndex
from openreadout.contracts import Share, Written
from openreadout.errors import UsageError
from openreadout.operations.order import Order
from openreadout.operations.part_target import Parts, part_output, parts_to_commit
from openreadout.operations.readback import ReadBack
from openreadout.operations.records import Key, Notes, key_of, read_notes
from openreadout.operations.target import ARCHIVES
from openreadout.operations.walk import Pass, stages
from openreadout.operations.writing import Cell, Progress, Writing
from openreadout.remote.urls import is_url
from openreadout.results import ExportReport
from openreadout.workers import Workers

CELLS_OF_A_PART = 4
"""Cells that a part should have, so that all have about the same."""
MAX_NAMED = 20


def write_part(
    order: Order,
    part: tuple[int, int],
    workers: Workers,
    progress: Progress | None,
    started: float,
) -> ExportReport:
    """Write one part of an export, but for what an earlier run of any part has written.

    Raises
    ------
    UsageError
        The target is an archive, another export is writing to it, or the other parts are of another export.
    """
    number, count = part
    with part_output(order.target, fingerprint=order.fingerprint(), count=count) as parts:
        share = Share(order.options.sync, lambda: None)
        sink = registry.find_writer("ome-zarr").create(order.plan, parts.path, share=share)
        steps = _steps(order, count)
        run = Writing(
            order.plan, order.options.plan, sink, workers, progress, verified=False, steps=steps
        )
        shared = shares(run, count)
        there = read_notes(parts.records)
        todo = [cell for cell in shared[number - 1] if key_of(*cell) not in there]
        run.total = run.total * len(todo) // max(1, sum(map(len, shared)))
        copied = encoded = 0
        try:
            with Notes(parts.records, sync=order.options.sync) as notes:
                for cell in _written(run, todo):
                    notes.add(cell)
                    copied, encoded = copied + cell.copied, encoded + cell.encoded
        except BaseException:
            workers.close()
            sink.abort()
            raise
        written = sink.written()
    counts = Written(written.files, written.size, copied, encoded, written.not_carried)
    report = order.report(counts, time.monotonic() - started, verified=False)
    images = {step.image for step, _ in todo}
    return replace(
        report,
        images_written=len(images),
        planes_written=0,
        levels_written=len({(s.image, n) for s, _ in todo for n in range(s.first, s.last + 1)}),
        part=f"{number}/{count}",
    )


def _written(run: Writing, todo: Sequence[tuple[Pass, ChunkIndex]]) -> Iterator[Cell]:
    for step, cells in groupby(todo, lambda cell: cell[0]):
        yield from run.write_cells(step, (index for _, index in cells))


def _steps(order: Order, count: int) -> tuple[Pass, ...]:
    return tuple(stages(order.plan, CELLS_OF_A_PART * count))


def from_source(run: Writing, step: Pass) -> bool:
    """Whether a pass reads the source, and not a level that was written before."""
    return run.levels(step)[0].source_level is not None


def shares(run: Writing, count: int) -> list[list[tuple[Pass, ChunkIndex]]]:
    """The cells of each part: those that follow each other, since they may share chunks of the source."""
    steps = [step for step in run.steps if from_source(run, step)]
    cells = [(step, index) for step in steps for index in run.cells(step)]
    bounds = [len(cells) * n // count for n in range(count + 1)]
    return [cells[a:b] for a, b in pairwise(bounds)]


def refuse_other_than_folder(target: str) -> None:
    """Refuse a target that several processes cannot write to: an archive, or a bucket, where nothing is renamed."""
    if is_url(target):
        raise UsageError(
            f"{target}: several processes write to a folder on a file system that all see",
            hint="write a directory store, and copy that to the bucket afterwards",
        )
    if target.lower().endswith(ARCHIVES):
        raise UsageError(
            f"{target}: an archive is written by one process",
            hint="write a directory store, and export that to an archive afterwards",
        )


def commit(
    order: Order, workers: Workers, progress: Progress | None, started: float
) -> ExportReport:
    """Put the parts of an export together: write the levels above them, read all back, rename.

    Raises
    ------
    UsageError
        Parts are missing, are being written, or were made from something else.
    VerificationError
        What was written does not read back as what was read.
    """
    options = order.options
    with parts_to_commit(
        order.target, overwrite=options.overwrite, fingerprint=order.fingerprint()
    ) as parts:
        counts = (
            _commit_here(order, parts, workers, progress)
            if options.dask is None
            else _commit_on_cluster(order, parts, options.dask, workers.threads, progress)
        )
    return order.report(counts, time.monotonic() - started, verified=options.verify)


def _commit_here(
    order: Order, parts: Parts, workers: Workers, progress: Progress | None
) -> Written:
    options = order.options
    sink = registry.find_writer("ome-zarr").create(order.plan, parts.path, resume=True)
    run = Writing(
        order.plan,
        options.plan,
        sink,
        workers,
        progress,
        verified=options.verify,
        steps=_steps(order, parts.count),
    )
    try:
        found = _complete(run, parts, order.target)
        for step in run.steps:
            if from_source(run, step):
                take_notes(run, step, found)
            else:
                run.write_passes((step,))
        sink.finish(sync=options.sync)
    except BaseException:
        workers.close()
        sink.abort()
        raise
    if options.verify:
        ReadBack(run).verify(parts.path)
    written = sink.written()
    copied = written.copied + sum(cell.copied for cell in found.values())
    encoded = written.encoded + sum(cell.encoded for cell in found.values())
    return Written(written.files, written.size, copied, encoded, written.not_carried)


def _commit_on_cluster(
    order: Order, parts: Parts, address: str, threads: int, progress: Progress | None
) -> Written:
    from openreadout.operations.cluster import commit_on_cluster

    share = Share(order.options.sync, lambda: None)
    sink = registry.find_writer("ome-zarr").create(order.plan, parts.path, share=share)
    steps = _steps(order, parts.count)
    run = Writing(
        order.plan, order.options.plan, sink, workers=Workers(1), progress=None, verified=False, steps=steps
    )  # fmt: skip
    found = _complete(run, parts, order.target)
    return commit_on_cluster(order, address, threads, progress, steps, found, parts.path)


def take_notes(run: Writing, step: Pass, found: dict[Key, Cell]) -> None:
    """Note what others wrote of a pass as if it had been written here."""
    for index in run.cells(step):
        cell = found[key_of(step, index)]
        run.note(cell)
        run.advance(cell.size)


def _complete(run: Writing, parts: Parts, target: str) -> dict[Key, Cell]:
    """What was noted of every cell that is made from the source.

    Raises
    ------
    UsageError
        Parts lack cells.
    """
    found = read_notes(parts.records)
    wanted = [[key_of(*cell) for cell in cells] for cells in shares(run, parts.count)]
    lacking = [
        number for number, keys in enumerate(wanted, 1) if any(key not in found for key in keys)
    ]
    if lacking:
        named = ", ".join(map(str, lacking[:MAX_NAMED]))
        more = f" and {len(lacking) - MAX_NAMED} more" if len(lacking) > MAX_NAMED else ""
        raise UsageError(
            f"{target}: {len(lacking)} of {parts.count} parts are not complete: {named}{more}",
            hint=f"run --part {lacking[0]}/{parts.count} and so on again; what is done of them stays",
        )
    return {key: found[key] for keys in wanted for key in keys}
