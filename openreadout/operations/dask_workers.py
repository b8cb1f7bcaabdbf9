"""The workers of a Dask cluster: tasks are sent to them a few at a time, and their results come as they end.

The scheduler holds no more of a million tasks than of a thousand, and what is lost with a worker is done again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.metadata
import itertools
import logging
import math
import queue
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from types import ModuleType
from typing import Any, TypeVar, cast

from openreadout.ending import deferred
from openreadout.errors import OpenReadoutError, StorageError, UsageError
from openreadout.operations.cells import Failure, Job, Task, attempt
from openreadout.system import allow_open_files, remove

Result = TypeVar("Result")

AHEAD = 8
"""Tasks that the scheduler knows of, for each thread of a worker."""
LOSSES = 20
"""Workers that may be lost with one task before it is given up."""
CONNECT_SECONDS = 20
START_SECONDS = 60
"""Time for a worker process here to begin; on a system that refuses it threads it never does."""
WAKE_SECONDS = 1
ANSWER_SECONDS = 5
"""Time for the scheduler to say which workers there are."""
SILENT_SECONDS = 120
"""Time without any worker, or with paused ones alone, after which an export gives up."""
HEARTBEAT_SECONDS = 10
"""Time within which a worker has told the scheduler what it is doing."""
POLL_SECONDS = 0.02
STOP_SECONDS = 30
"""Time that is given to tasks that are under way when an export ends early."""
MAX_LOCAL = 1024
OPEN_FILES, OPEN_FILES_PER_WORKER = 48, 12
"""Files that this process has open at most for workers that it started: some, and more for each of these."""
DISTRIBUTION = "openreadout-microscopy"
_MALLOC = "distributed.nanny.pre-spawn-environ.MALLOC_"
HOARDING = {f"{_MALLOC}TRIM_THRESHOLD_": 256 << 20, f"{_MALLOC}MMAP_THRESHOLD_": 32 << 20}
"""Dask has workers give freed memory back at 64 KiB, and the system then zeroes it anew for the next block."""


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
        except Exception as error:  # its settings are read when it is imported
            raise UsageError(
                f"Dask cannot be loaded: {error}"[:300].partition("\n")[0],
                hint="look at its settings: DASK_… in the environment, and the files that DASK_CONFIG names or "
                "~/.config/dask holds",
            ) from error
        self._dask: Any = distributed
        self.token = secrets.token_hex(8)
        self._stack = contextlib.ExitStack()
        self._threads = threads or 1
        self._address = address
        self._client: Any = None
        self._counted = -math.inf
        self._known = AHEAD
        self._answers = True

    def __enter__(self) -> Cluster:
        _quiet()
        local = _local_workers(self._address)
        if local is None:
            _ask(self._dask, self._address)
        else:
            _allow_files(self._address, local)
        try:
            self._connect(local)
            if local is None:
                self._same_versions()
        except BaseException:
            self._close()
            raise
        return self

    def _connect(self, local: int | None) -> None:
        """Connect to the scheduler, or to one that is started here with so many workers.

        Raises
        ------
        StorageError
            Dask cannot begin.
        """
        try:
            with deferred():
                target = self._address if local is None else self._started(local)
                self._client = self._dask.Client(
                    target, timeout=CONNECT_SECONDS, set_as_default=False, direct_to_workers=False
                )
                _quiet_loop(self._client.loop)
                self._stack.callback(self._client.close, timeout=5)
        except Exception as error:  # whatever Dask raises says that it could not begin
            said = f"{type(error).__name__}: {error}"[:300]
            raise StorageError(
                f"--dask {self._address}: Dask could not be started ({said})",
                path=self._address,
                hint="look at its settings (DASK_… in the environment, dask.yaml), and whether the system allows more "
                "processes and open files",
            ) from error

    def __exit__(self, *exc: object) -> None:
        self._close()

    def _close(self) -> None:
        with deferred(), contextlib.suppress(OSError, TimeoutError):
            self._stack.close()

    def _same_versions(self) -> None:
        """Ask the workers that are there for their version: one without the program ends when a task is sent to it.

        Raises
        ------
        UsageError
            Some have another version, or none.
        """
        mine = own_version()
        with contextlib.suppress(OSError, TimeoutError):  # busy ones find out with their first task
            found = self._client.sync(
                self._client._run,
                importlib.metadata.version,
                DISTRIBUTION,
                on_error="return",
                callback_timeout=CONNECT_SECONDS,
            )
            lacking = [n for n in found.values() if isinstance(n, ModuleNotFoundError)]
            others = sorted({n for n in found.values() if isinstance(n, str) and n != mine})
            if lacking or others:
                has = f"version {', '.join(others)}"[:300] if others else "none"
                raise UsageError(
                    f"{self._address}: workers need version {mine} of {DISTRIBUTION}, and some have {has}",
                    hint="install the same version, with the same plugins, on every worker",
                )

    def _started(self, count: int) -> Any:
        """A scheduler in this process, with worker processes of their own.

        The settings are Dask's own: those of a user are for clusters of theirs, and some would end this one.
        """
        import dask

        class Nanny(self._dask.Nanny):  # type: ignore[misc, name-defined]
            """Starts a worker, also in place of one that was lost."""

            async def instantiate(self) -> Any:
                with _without_main():
                    return await super().instantiate()

        settings = dask.config.merge(*dask.config.defaults)
        # Dask never removes the folder that it makes itself
        folder = tempfile.TemporaryDirectory(prefix="openreadout-dask-", ignore_cleanup_errors=True)
        settings["temporary-directory"] = self._stack.enter_context(folder)
        self._stack.enter_context(dask.config.set(settings))
        self._stack.enter_context(dask.config.set(HOARDING))
        begin = functools.partial(
            self._dask.LocalCluster,
            worker_class=Nanny,
            n_workers=count,
            threads_per_worker=self._threads,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=None,
            death_timeout=START_SECONDS,
            silence_logs=logging.CRITICAL,
        )
        with _deaf_children():
            cluster = _in_time(begin, 2 * START_SECONDS)
        # it would swallow an interruption that comes in it
        self._dask.gc.disable_gc_diagnosis(force=True)
        return self._stack.enter_context(cluster)

    def map(
        self,
        work: Callable[[Job, Task], Result],
        job: Job,
        take: Callable[[int], Sequence[Task]],
        look: Callable[[], None],
    ) -> Generator[Result, None, None]:
        """Run tasks on workers and give the results as they come.

        `take` gives so many tasks at most; fewer when the others wait for results, which it is asked after each of.
        A task whose worker is lost is run again. The first error is raised; what is under way then is waited for.
        `look` is called from time to time while nothing comes, and may raise.
        """
        ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        under_way: dict[str, tuple[Task, int, Any]] = {}
        numbers = itertools.count()

        def submit(tasks: Sequence[Task], losses: int) -> None:
            keys = [
                f"{work.__name__}-{job.token}-{next(numbers)}-{secrets.token_hex(4)}" for _ in tasks
            ]
            do = functools.partial(attempt, work, job)
            for task, future in zip(
                tasks, self._client.map(do, tasks, key=keys, pure=False), strict=True
            ):
                under_way[future.key] = task, losses, future
                future.add_done_callback(ready.put)

        try:
            while True:
                limit = self._limit()
                if len(under_way) * 2 <= limit:
                    # together, once a part of them has ended: each message costs the scheduler as much as a task
                    new = take(limit - len(under_way))
                    if new:
                        submit(new, 0)
                if not under_way:
                    return
                future = self._next(ready, look)
                task, losses, _ = under_way.pop(future.key)
                done, value = self._outcome(future, losses)
                if not done:
                    submit([task], losses + 1)
                    continue
                yield value
        finally:
            self._stop(job, [future for _, _, future in under_way.values()])

    def _limit(self) -> int:
        """Tasks that may be under way; workers come and go, and are counted from time to time."""
        now = time.monotonic()
        if now - self._counted > WAKE_SECONDS:
            self._counted = now
            self._known = AHEAD * max(1, self.threads())
        return self._known

    def threads(self) -> int:
        """Tasks that the workers there are can do at a time; 0 where none has arrived."""
        return sum(self._seen().values())

    def _seen(self) -> dict[str, int]:
        """Workers that the scheduler knows of, and their threads; none where it does not answer for now."""
        try:
            found = self._client.sync(
                self._client.scheduler.ncores, workers=None, callback_timeout=ANSWER_SECONDS
            )
        except TimeoutError:
            self._answers = False
            return {}
        except OSError as error:
            raise self._lost() from error
        self._answers = True
        return dict(found)

    def _paused(self) -> bool:
        """Whether Dask has stopped all workers for their use of memory, and none has a task that may end."""
        scheduler = self._client.scheduler
        try:
            if self._client.sync(
                scheduler.ncores_running, workers=None, callback_timeout=ANSWER_SECONDS
            ):
                return False
            found = self._client.sync(scheduler.identity, callback_timeout=ANSWER_SECONDS)
        except (OSError, TimeoutError):
            return False
        return all(
            one.get("status") == "paused" and not one["metrics"]["task_counts"].get("executing")
            for one in found["workers"].values()
        )

    def _lost(self) -> StorageError:
        return StorageError(
            f"{self._address}: the Dask scheduler does not answer any more",
            path=self._address,
            hint="start the cluster again",
        )

    def _next(self, ready: queue.SimpleQueue[Any], look: Callable[[], None]) -> Any:
        """The next task that has ended, however long it takes while there are workers."""
        heard = time.monotonic()
        there: set[str] = set()
        gone: set[str] = set()
        while True:
            with contextlib.suppress(queue.Empty):
                return ready.get(timeout=WAKE_SECONDS)
            look()
            if self._client.status not in ("running", "connecting"):
                raise self._lost()
            seen = self._seen() if self._client.status == "running" else {}
            stuck = bool(seen) and self._paused()
            if seen and not stuck:
                heard = time.monotonic()
            if seen:
                gone |= there - set(seen)
                there = set(seen)
                if len(gone) > max(LOSSES, 2 * len(there)):
                    raise self._dying()  # before they take a task, so that none counts as lost
            if time.monotonic() - heard >= SILENT_SECONDS:
                raise self._silent(stuck=stuck)

    def _silent(self, *, stuck: bool) -> StorageError:
        """The error for workers that have not been there, or have been stuck, for too long."""
        if not self._answers:
            return self._lost()
        if stuck:
            return StorageError(
                f"{self._address}: all workers have been paused for {SILENT_SECONDS} seconds: their memory is full",
                path=self._address,
                hint="start workers with more memory (--memory-limit), or give --memory and --chunks for smaller tasks",
            )
        return StorageError(
            f"{self._address}: there has been no worker for {SILENT_SECONDS} seconds",
            path=self._address,
            hint="start workers; the logs of those that ended say why",
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
            raise self._dying()
        return False, None

    def _dying(self) -> StorageError:
        return StorageError(
            f"{LOSSES} workers were lost one after the other, and ended nothing",
            path=self._address,
            hint="look into the log of the workers; they may run out of memory, which --memory and --chunks change",
        )

    def _stop(self, job: Job, futures: list[Any]) -> None:
        """End what is under way, and wait for it: no worker may write where things are about to be cleared away."""
        remove(
            job.permit
        )  # tasks look for it before each block and each file, and those that wait when they begin
        began = looked = time.monotonic()
        with contextlib.suppress(OpenReadoutError):
            while not all(future.done() for future in futures):
                time.sleep(POLL_SECONDS)
                now = time.monotonic()
                if now - began > STOP_SECONDS:
                    break
                if now - looked > WAKE_SECONDS:
                    looked = now
                    if self._client.status != "running" or not self._seen():
                        break
                    if now - began > HEARTBEAT_SECONDS and self._paused():
                        break


def _allow_files(address: str, workers: int) -> None:
    """See that enough files can be open: Dask goes on for ever where it can accept no connection.

    Raises
    ------
    StorageError
        The system allows fewer.
    """
    needed = OPEN_FILES + workers * OPEN_FILES_PER_WORKER
    allowed = allow_open_files(needed)
    if allowed < needed:
        raise StorageError(
            f"--dask {address}: {workers} workers take {needed} open files, and the system allows {allowed}",
            hint=f"ulimit -n {needed}, or fewer workers",
        )


def _ask(dask: Any, address: str) -> None:
    """Ask who answers at an address: Dask itself goes on trying for long, and complains on stderr.

    Raises
    ------
    StorageError
        It is no scheduler.
    """

    async def identity() -> Any:
        arguments = dask.security.Security().get_connection_args("client")
        comm = await dask.comm.connect(address, timeout=CONNECT_SECONDS, **arguments)
        try:
            await comm.write({"op": "identity", "reply": True})
            return await comm.read()
        finally:
            comm.abort()

    def work() -> Any:
        place = dask.comm.get_address_host_port(address)
        # nobody there is known at once so; Dask tries again until its time is over
        socket.create_connection(place, timeout=CONNECT_SECONDS).close()
        return asyncio.run(asyncio.wait_for(identity(), CONNECT_SECONDS))

    found: Any
    try:
        # not in this thread, where a loop may be running, as in a notebook
        found = _in_time(work, 3 * CONNECT_SECONDS)
    except Exception as error:  # what listens may send anything
        found = error
    kind = found.get("type") if isinstance(found, dict) else None
    if kind != "Scheduler":
        other = f", but a {kind}".lower()[:50] if isinstance(kind, str) else ""
        raise StorageError(
            f"{address}: no Dask scheduler answers there{other}",
            path=address,
            hint="give the address that the scheduler prints, such as tcp://host:8786, or local:N",
        ) from (found if isinstance(found, Exception) else None)


def _in_time(work: Callable[[], Result], seconds: float) -> Result:
    """What a call gives that Dask may never come back from; it is made in a thread of its own.

    Raises
    ------
    TimeoutError
        It has not ended by then.
    """
    answer: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def call() -> None:
        try:
            answer.put((work(), None))
        except BaseException as error:
            answer.put((None, error))

    threading.Thread(target=call, daemon=True).start()
    try:
        value, error = answer.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"nothing has begun within {seconds} seconds") from None
    if error is not None:
        raise error
    return cast("Result", value)


def own_version() -> str:
    """Of the distribution as it is installed here."""
    return importlib.metadata.version(DISTRIBUTION)


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


_BARE = threading.RLock()
_MAINS: list[ModuleType] = []


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Processes that are started in the context do not run the script that is run here.

    They would to import what it defines, of which a worker needs nothing; one without a guard would export in each.
    """
    with _BARE:
        _MAINS.append(sys.modules["__main__"])
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        with (
            _BARE
        ):  # several begin and end in any order: the first one that was found is the script
            script = _MAINS[0]
            _MAINS.pop()
            if not _MAINS:
                sys.modules["__main__"] = script


def _local_workers(address: str) -> int | None:
    """N of `local:N`; None for the address of a scheduler.

    Raises
    ------
    UsageError
        It is neither.
    """
    name, _, count = address.partition(":")
    if name != "local":
        host, _, port = address.rpartition(":")
        if host and port.rstrip("/").isdigit():
            return None
        raise UsageError(
            f"--dask {address}: no address of a scheduler",
            hint="give what the scheduler prints, such as tcp://host:8786, or local:N for N worker processes here",
        )
    if count.isascii() and count.isdigit() and 1 <= int(count[:9]) <= MAX_LOCAL:
        return int(count)
    raise UsageError(
        f"--dask {address}: not a number of workers",
        hint=f"local:N starts N worker processes, at most {MAX_LOCAL}",
    )


def _quiet() -> None:
    """Dask tells on stderr of every worker that is lost; here that is nothing to tell.

    Its settings give some loggers levels of their own, which hold whatever those above them say.
    """
    names = ("distributed", "tornado")
    below = [n for n in logging.Logger.manager.loggerDict if n.partition(".")[0] in names]
    for name in (*names, *below):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").addFilter(_is_of_others)


def _is_of_others(record: logging.LogRecord) -> bool:
    """Whether a message does not come from the thread in which Dask's loop runs."""
    return record.threadName != "IO loop"


def _quiet_loop(loop: Any) -> None:
    """What nobody in Dask waits for any more, as after an interruption, is nothing to tell either.

    `_is_of_others` holds from the start on; what the loop leaves behind may be found by any thread.
    """
    loop.asyncio_loop.set_exception_handler(lambda _loop, _context: None)
