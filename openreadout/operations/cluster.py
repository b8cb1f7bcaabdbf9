"""`export --dask`: the cells of an export on the workers of a Dask cluster.

The plan, the order of the work, what is noted, the documents, the rename and the report stay in the process that asks.
Tasks are submitted a few at a time, so that the scheduler holds no more of a million than of a thousand; what comes
back of each is a few kilobytes of digests. Pixels go from the source to a worker and from there to the output.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import queue
import secrets
import signal
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from openreadout import limits, registry
from openreadout.contracts import Share, Written
from openreadout.errors import OpenReadoutError, StorageError, UsageError, storage_error
from openreadout.operations.cells import Failure, Job, Task, attempt, compare_cell, write_cell
from openreadout.operations.order import Order, plan_fingerprint
from openreadout.operations.parts import take_notes
from openreadout.operations.readback import ReadBack
from openreadout.operations.records import Key, Notes, key_of, read_notes
from openreadout.operations.target import RECORDS, partial_output
from openreadout.operations.walk import Pass, stages
from openreadout.operations.writing import Cell, Progress, Writing
from openreadout.remote.urls import absolute
from openreadout.system import remove
from openreadout.workers import Workers

Result = TypeVar("Result")

CELLS_WANTED = 64
"""Cells that an image should have, so that some workers can share it."""
CELL_BYTES = 512 << 20
"""Samples of a cell, which is one task: what is lost with a worker."""
AHEAD = 4
"""Tasks that the scheduler knows of, for each thread of a worker."""
LOSSES = 20
"""Workers that may be lost with one task before it is given up."""
CONNECT_SECONDS = 20
WAKE_SECONDS = 1
SILENT_SECONDS = 120
"""Time without any worker after which an export gives up."""
STOP_SECONDS = 30
"""Time that is given to tasks that are under way when an export ends early."""
MAX_LOCAL = 1024
_MALLOC = "distributed.nanny.pre-spawn-environ.MALLOC_"
HOARDING = {f"{_MALLOC}TRIM_THRESHOLD_": 256 << 20, f"{_MALLOC}MMAP_THRESHOLD_": 32 << 20}
"""Dask has workers give freed memory back at 64 KiB, and the system then zeroes it anew for the next block."""
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
        steps = tuple(stages(order.plan, CELLS_WANTED, CELL_BYTES))
        return _finished(cluster, order, steps, found, partial.path, progress)


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
    """Write every cell that is not in `found`, and add it there.

    All images come to their first levels before any comes to those that are made from these.
    """
    with _job(order, partial, cluster.token) as job:
        for steps in _turns(run.steps):
            cells = ((step, index) for step in steps for index in run.cells(step))
            todo = ((*cell, ()) for cell in cells if key_of(*cell) not in found)
            whole = frozenset((step.image, step.first) for step in steps if run.reads_whole(step))
            with contextlib.closing(
                cluster.map(write_cell, replace(job, whole=whole), todo, lambda: run.advance(0))
            ) as results:
                for cell in results:
                    found[key_of(cell.step, cell.index)] = cell
                    run.advance(cell.size)
                    yield cell


def _turns(steps: Iterable[Pass]) -> list[list[Pass]]:
    """The first passes of all images, their second ones, and so on."""
    turns: list[list[Pass]] = []
    for _, own in itertools.groupby(steps, lambda step: step.image):
        for number, step in enumerate(own):
            if number == len(turns):
                turns.append([])
            turns[number].append(step)
    return turns


def _compare(
    cluster: Cluster, order: Order, run: Writing, found: dict[Key, Cell], partial: str
) -> None:
    """Read everything back on the workers; axes, sizes and scales here."""
    ReadBack(run).verify(partial, steps=())
    tasks = (
        (step, index, found[key_of(step, index)].digests)
        for step in run.steps
        for index in run.cells(step)
    )
    with (
        _job(order, partial, cluster.token) as job,
        contextlib.closing(
            cluster.map(compare_cell, job, tasks, lambda: run.advance(0))
        ) as results,
    ):
        for size in results:
            run.advance(size)


class Cluster:
    """Workers that run tasks: those of a scheduler, or of one that is started here and ends with the context.

    Parameters
    ----------
    address : str
        Of a scheduler, such as `tcp://host:8786`, or `local:N` for N worker processes on this machine.
    threads : int, optional
        Of each worker process that is started here; by default 1.
    """

    def __init__(self, address: str, threads: int | None) -> None:
        try:
            import distributed
        except ImportError as error:
            raise UsageError(
                "--dask needs distributed", hint="pip install 'openreadout-microscopy[dask]'"
            ) from error
        self._dask: Any = distributed
        self.token = secrets.token_hex(8)
        self._stack = contextlib.ExitStack()
        self._threads = threads or 1
        self._address = address
        self._client: Any = None
        self._counted = -math.inf
        self._known = AHEAD

    def __enter__(self) -> Cluster:
        _quiet()
        local = _local_workers(self._address)
        try:
            target = self._answering() if local is None else self._started(local)
            self._client = self._dask.Client(
                target, timeout=CONNECT_SECONDS, set_as_default=False, direct_to_workers=False
            )
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            self._stack.close()
            raise StorageError(
                f"{self._address}: no Dask scheduler answers there",
                path=self._address,
                hint="give the address that the scheduler prints, such as tcp://host:8786, or local:N",
            ) from error
        except BaseException:
            self._stack.close()
            raise
        self._stack.callback(self._client.close, timeout=5)
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            self._stack.close()

    def _answering(self) -> str:
        """The address, once somebody listens there: Dask itself goes on trying, and complains of it on stderr."""
        host, port = self._dask.comm.get_address_host_port(self._address)
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS):
            return self._address

    def _started(self, count: int) -> Any:
        """A scheduler in this process, with worker processes of their own."""
        import dask

        with _deaf_children(), dask.config.set(HOARDING):
            cluster = self._dask.LocalCluster(
                n_workers=count,
                threads_per_worker=self._threads,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                memory_limit=None,
                silence_logs=logging.CRITICAL,
            )
        # it would swallow an interruption that comes in it
        self._dask.gc.disable_gc_diagnosis(force=True)
        return self._stack.enter_context(cluster)

    def map(
        self,
        work: Callable[[Job, Task], Result],
        job: Job,
        tasks: Iterable[Task],
        look: Callable[[], None],
    ) -> Generator[Result, None, None]:
        """Run tasks on workers and give the results as they come.

        A task whose worker is lost is run again. The first error is raised; what is under way then is waited for.
        `look` is called from time to time while nothing comes, and may raise.
        """
        ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        waiting = iter(tasks)
        under_way: dict[str, tuple[Task, int, Any]] = {}
        numbers = itertools.count()

        def submit(task: Task, losses: int) -> None:
            key = f"{work.__name__}-{job.token}-{next(numbers)}-{secrets.token_hex(4)}"
            future = self._client.submit(attempt, work, job, task, key=key, pure=False)
            under_way[key] = task, losses, future
            future.add_done_callback(ready.put)

        try:
            for task in itertools.islice(waiting, self._limit()):
                submit(task, 0)
            while under_way:
                future = self._next(ready, look)
                task, losses, _ = under_way.pop(future.key)
                done, value = self._outcome(future, losses)
                if not done:
                    submit(task, losses + 1)
                    continue
                for more in itertools.islice(waiting, max(0, self._limit() - len(under_way))):
                    submit(more, 0)
                yield value
        finally:
            self._stop(job, [future for _, _, future in under_way.values()])

    def _limit(self) -> int:
        """Tasks that may be under way; workers come and go, and are counted from time to time."""
        now = time.monotonic()
        if now - self._counted > WAKE_SECONDS:
            self._counted = now
            self._known = AHEAD * max(1, sum(self._seen().values()))
        return self._known

    def _seen(self) -> dict[str, int]:
        """Workers that the scheduler knows of, and their threads."""
        try:
            return dict(self._client.nthreads())
        except (OSError, TimeoutError) as error:
            raise self._lost() from error

    def _lost(self) -> StorageError:
        return StorageError(
            f"{self._address}: the Dask scheduler does not answer any more",
            path=self._address,
            hint="start the cluster again",
        )

    def _next(self, ready: queue.SimpleQueue[Any], look: Callable[[], None]) -> Any:
        """The next task that has ended, however long it takes while there are workers."""
        silent = 0
        while True:
            with contextlib.suppress(queue.Empty):
                return ready.get(timeout=WAKE_SECONDS)
            look()
            if self._client.status not in ("running", "connecting"):
                raise self._lost()
            silent = 0 if self._client.status == "running" and self._seen() else silent + 1
            if silent >= SILENT_SECONDS:
                raise StorageError(
                    f"{self._address}: there has been no worker for {SILENT_SECONDS} seconds",
                    path=self._address,
                    hint="start workers",
                )

    def _outcome(self, future: Any, losses: int) -> tuple[bool, Any]:
        """Whether a task came to its end, and its result; one that was lost with its worker did not."""
        error: Any = None
        if future.status == "finished":
            try:
                value = future.result(timeout=CONNECT_SECONDS)
            except (OSError, TimeoutError, self._dask.CancelledError):
                value = None  # the worker was lost with the result
            if isinstance(value, Failure):
                raise value.error
            if value is not None:
                return True, value
        elif future.status == "error":
            error = future.exception()
        if error is not None and not isinstance(error, self._dask.scheduler.KilledWorker):
            raise _translated(error)
        if losses >= LOSSES:
            raise StorageError(
                f"{LOSSES} workers were lost one after the other with the same part of the image",
                path=self._address,
                hint="look into the log of the workers; they may run out of memory, which --memory and --chunks change",
            )
        return False, None

    def _stop(self, job: Job, futures: list[Any]) -> None:
        """End what is under way, and wait for it: no worker may write where things are about to be cleared away."""
        if not futures:
            return
        remove(job.permit)  # tasks look for it before each block and each file
        with contextlib.suppress(Exception):
            self._client.cancel([f for f in futures if f.status == "pending"][::-1], force=True)
        with contextlib.suppress(Exception):
            self._dask.wait(futures, timeout=STOP_SECONDS)


def _translated(error: BaseException) -> BaseException:
    """What a task raised, as one of our errors where the worker's installation is at fault."""
    if isinstance(error, OpenReadoutError):
        return error
    if isinstance(error, ImportError | AttributeError):
        return UsageError(
            f"a worker cannot run the task: {error}",
            hint="install the same version of openreadout, with its plugins, on every worker",
        )
    return error


@contextlib.contextmanager
def _deaf_children() -> Iterator[None]:
    """Threads that are started in the context, and the processes that these start, are not interrupted by Ctrl-C.

    A terminal sends it to every process; workers end when whoever started them says so.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # its start would lift what is blocked here
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _local_workers(address: str) -> int | None:
    """N of `local:N`; None for an address."""
    name, colon, count = address.partition(":")
    if name != "local" or not colon:
        return None
    if count.isascii() and count.isdigit() and 1 <= int(count[:9]) <= MAX_LOCAL:
        return int(count)
    raise UsageError(
        f"--dask {address}: not a number of workers",
        hint=f"local:N starts N worker processes, at most {MAX_LOCAL}",
    )


def _quiet() -> None:
    """Dask tells on stderr of every worker that is lost; here that is nothing to tell."""
    for name in (
        "distributed",
        "distributed.nanny",
        "distributed.scheduler",
        "distributed.worker",
        "tornado",
    ):
        logging.getLogger(name).setLevel(logging.CRITICAL)
