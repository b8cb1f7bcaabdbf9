"""`export --dask`: the cells of an export on the workers of a Dask cluster.

The plan, the order of the work, what is noted, the documents, the rename and the report stay in the process that asks.
Tasks are submitted a few at a time, so that the scheduler holds no more of a million than of a thousand; what comes
back of each is a few kilobytes of digests. Pixels go from the source to a worker and from there to the output.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
from collections.abc import Iterator

from openreadout import limits, registry
from openreadout.contracts import Share, Written
from openreadout.errors import storage_error
from openreadout.operations.cells import Job, Task, compare_cell, write_cell
from openreadout.operations.dask_workers import Cluster
from openreadout.operations.order import Order, plan_fingerprint
from openreadout.operations.parts import take_notes
from openreadout.operations.readback import ReadBack
from openreadout.operations.ready import Ready
from openreadout.operations.records import Key, Notes, key_of, read_notes
from openreadout.operations.target import RECORDS, partial_output
from openreadout.operations.walk import Pass, stages
from openreadout.operations.writing import Cell, Progress, Writing
from openreadout.remote.urls import absolute
from openreadout.system import remove
from openreadout.workers import Workers

CELLS_WANTED = (16, 32, 64)
"""Cells that an image should have, so that workers can share it; fewer for few of them, since larger ones cost less."""
CELLS_OF_A_THREAD = 8
CELL_BYTES = 512 << 20
"""Samples of a cell, which is one task: what is lost with a worker."""
RUN = ".run"


def write_on_cluster(
    order: Order, address: str, threads: int | None, progress: Progress | None
) -> Written:
    """Write and prove on workers, and rename.

    Raises
    ------
    UsageError
        The extra is not installed, or workers plan another export.
    StorageError
        The scheduler does not answer, or workers are lost time and again.
    VerificationError
        What was written does not read back as what was read.
    """
    options = order.options
    with (
        Cluster(address, threads) as cluster,
        partial_output(
            order.target,
            overwrite=options.overwrite,
            fingerprint=order.fingerprint(),
            resume=options.resume,
        ) as partial,
    ):
        found = _begin(partial.path, partial.path + RECORDS, resumed=partial.resumed)
        steps = _steps(order, cluster.threads(), found)
        return _finished(cluster, order, steps, found, partial.path, progress)


def _steps(order: Order, threads: int, found: dict[Key, Cell]) -> tuple[Pass, ...]:
    """The passes for so many threads, or those that an earlier run on more or fewer of them has begun with."""
    wanted = threads * CELLS_OF_A_THREAD or CELLS_WANTED[-1]  # workers may arrive later
    choices = sorted(CELLS_WANTED, key=lambda cells: abs(cells - wanted))
    cut = [tuple(stages(order.plan, cells, CELL_BYTES)) for cells in choices]
    noted = {cell.step for cell in found.values()}
    return max(cut, key=lambda steps: len(noted.intersection(steps)))


def commit_on_cluster(
    order: Order,
    address: str,
    threads: int | None,
    progress: Progress | None,
    steps: tuple[Pass, ...],
    found: dict[Key, Cell],
    partial: str,
) -> Written:
    """Write on workers what parts left to do, which is the levels that are not in `found`, and prove the whole there.

    Raises what `write_on_cluster` raises.
    """
    with Cluster(address, threads) as cluster:
        _begin(partial, partial + RECORDS, resumed=False)
        return _finished(cluster, order, steps, found, partial, progress)


def _finished(
    cluster: Cluster,
    order: Order,
    steps: tuple[Pass, ...],
    found: dict[Key, Cell],
    partial: str,
    progress: Progress | None,
) -> Written:
    """Write on workers what is not in `found`, then the documents here, and compare on workers."""
    plan, options = order.plan, order.options
    create = registry.find_writer("ome-zarr").create
    run = Writing(
        plan,
        options.plan,
        create(plan, partial, share=Share(options.sync, lambda: None)),
        Workers(1),
        progress,
        verified=options.verify,
        steps=steps,
    )
    with Notes(partial + RECORDS, sync=options.sync) as notes:
        for cell in _written(cluster, order, run, found, partial):
            notes.add(cell)
    sink = create(plan, partial, resume=True)
    try:
        run.sink, run.done = sink, 0
        for step in run.steps:
            take_notes(run, step, found)
        sink.finish(sync=options.sync)
    except BaseException:
        sink.abort()
        raise
    if options.verify:
        _compare(cluster, order, run, found, partial)
    written = sink.written()
    known = [found[key_of(step, index)] for step in run.steps for index in run.cells(step)]
    copied, encoded = (sum(getattr(c, name) for c in known) for name in ("copied", "encoded"))
    return Written(written.files, written.size, copied, encoded, written.not_carried)


def _begin(partial: str, records: str, *, resumed: bool) -> dict[Key, Cell]:
    """Make the folders; what an earlier run noted, whose tasks are to end where some are still at work."""
    try:
        os.makedirs(partial, exist_ok=True)
        os.makedirs(records, exist_ok=True)
        for name in os.listdir(records):
            if name.endswith(RUN):
                remove(os.path.join(records, name))
    except OSError as error:
        raise storage_error(error, records) from error
    return read_notes(records) if resumed else {}


@contextlib.contextmanager
def _job(order: Order, partial: str, token: str) -> Iterator[Job]:
    """A job that workers may work on while the context lasts."""
    permit = os.path.join(partial + RECORDS, f"{token}-{secrets.token_hex(4)}{RUN}")
    try:
        with open(permit, "xb"):
            pass
    except OSError as error:
        raise storage_error(error, permit) from error
    try:
        yield Job(
            token,
            absolute(order.path),
            partial,
            permit,
            order.options,
            plan_fingerprint(order.plan, order.options),
            limits=limits.changed(),
        )
    finally:
        remove(permit)


def _written(
    cluster: Cluster, order: Order, run: Writing, found: dict[Key, Cell], partial: str
) -> Iterator[Cell]:
    """Write every cell that is not in `found`, and add it there."""
    ready = Ready(run, found)
    with (
        _job(order, partial, cluster.token) as job,
        contextlib.closing(
            cluster.map(write_cell, job, ready.take, lambda: run.advance(0))
        ) as results,
    ):
        for cell in results:
            ready.done(cell)
            run.advance(cell.size)
            yield cell


def _compare(
    cluster: Cluster, order: Order, run: Writing, found: dict[Key, Cell], partial: str
) -> None:
    """Read everything back on the workers; axes, sizes and scales here."""
    ReadBack(run).verify(partial, steps=())
    tasks = (
        Task(step, index, noted=found[key_of(step, index)].digests)
        for step in run.steps
        for index in run.cells(step)
    )
    with (
        _job(order, partial, cluster.token) as job,
        contextlib.closing(
            cluster.map(
                compare_cell,
                job,
                lambda n: list(itertools.islice(tasks, n)),
                lambda: run.advance(0),
            )
        ) as results,
    ):
        for size in results:
            run.advance(size)
