"""What a worker of a cluster does: writes one cell of an export, or compares it with what was noted of it.

A worker opens the source and works out the plan itself, once for each export, and proves that it is the plan of whoever
asked. So what is sent for a task is a path, the options and the number of a cell, and what is sent back are digests.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from openreadout import limits, registry
from openreadout.arrays import ChunkIndex
from openreadout.contracts import ExportPlan, Share
from openreadout.errors import OpenReadoutError, StorageError, UnseenError, UsageError
from openreadout.model import Dataset
from openreadout.operations.order import ExportOptions, plan_fingerprint, planned
from openreadout.operations.readback import ReadBack
from openreadout.operations.walk import Pass
from openreadout.operations.writing import Cell, Writing
from openreadout.workers import Workers

PAUSES = (0.1, 1, 3, 10, 30, 60)
"""Seconds between looks for what another worker wrote: clients of NFS keep what they know of folders for a minute."""
MAX_KEPT = 2
"""Data sets that a worker keeps open: the one that is worked on, and the one before it."""


@dataclass(frozen=True, slots=True)
class Job:
    """One export, as its workers are told of it.

    `token` tells it from all others. `path` is the source and `partial` the folder that is written, both absolute;
    `fingerprint` is that of the plan. `permit` is a file that is there for as long as somebody wants the result.
    `limits` are those that are not at their defaults.
    """

    token: str
    path: str
    partial: str
    permit: str
    options: ExportOptions
    fingerprint: str
    limits: Mapping[str, int] = field(default_factory=dict)

    def permitted(self) -> None:
        """Raise when nobody wants the result any more."""
        if not os.path.exists(self.permit):
            raise StorageError(
                "the export was ended, or this worker does not see its files",
                path=self.permit,
                hint="every worker needs the file system that the output lies on",
            )


@dataclass(frozen=True, slots=True)
class Task:
    """A cell that is to be written, or to be read back and compared with what was `noted` of it: digests by level.

    `whole` says that every chunk it reads is stored: were each task to look at all keys of what it reads, the file
    server would do little else.
    """

    step: Pass
    index: ChunkIndex
    whole: bool = False
    noted: tuple[bytes, ...] = ()


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that ended with an error. What comes back says no more than is to be told, and can always be sent."""

    error: OpenReadoutError


def attempt(work: Callable[[Job, Task], Result], job: Job, task: Task) -> Result | Failure:
    """Do a task; whatever it raises is given back as one of our errors."""
    limits.restore(job.limits)
    try:
        return work(job, task)
    except OpenReadoutError as error:
        return Failure(error.lightened())
    except MemoryError:
        hint = "--memory makes do with less of it"
        return Failure(StorageError("there is not enough memory on a worker", hint=hint))
    except Exception as error:  # one that cannot be unpickled would leave the other side waiting
        text = f"{type(error).__name__}: {error}"[:500]
        return Failure(
            OpenReadoutError(
                f"an unexpected error on a worker, which is a fault of this program ({text})",
                hint="run the same command without --dask and with --debug, and report what it shows",
            )
        )


def write_cell(job: Job, task: Task) -> Cell:
    """Write a cell; a second time, or at the same time as another worker, gives the same files."""
    job.permitted()
    plan = _opened(("plan", job.token, job.path), lambda: _plan(job))
    for pause in PAUSES:
        with contextlib.suppress(UnseenError):
            return _written(job, plan, task)
        time.sleep(pause)
        job.permitted()
    return _written(job, plan, task)


def _written(job: Job, plan: ExportPlan, task: Task) -> Cell:
    share = Share(job.options.sync, job.permitted)
    sink = registry.find_writer("ome-zarr").create(plan, job.partial, share=share)
    step = task.step
    whole = frozenset({(step.image, step.first)}) if task.whole else frozenset()
    try:
        return next(_run(job, plan, sink, whole).write_cells(step, [task.index]))
    except BaseException:
        sink.abort()
        raise


def compare_cell(job: Job, task: Task) -> int:
    """Compare a cell of the output with what was noted of it; its bytes of samples."""
    job.permitted()
    plan = _opened(("plan", job.token, job.path), lambda: _plan(job))
    written = _opened(("output", job.token, job.partial), lambda: _output(job))
    return ReadBack(_run(job, plan, None)).same_cell(task.step, task.index, task.noted, written)


def _run(
    job: Job, plan: ExportPlan, sink: Any, whole: frozenset[tuple[int, int]] = frozenset()
) -> Writing:
    def look(done: int, total: int) -> None:
        job.permitted()

    return Writing(
        plan, job.options.plan, sink, Workers(1), look, verified=False, steps=(), whole=whole
    )


def _plan(job: Job) -> ExportPlan:
    try:
        dataset = registry.open_dataset(
            job.path,
            axes=job.options.axes,
            trust_consolidated=job.options.trust_consolidated,
        )
    except StorageError as error:
        error.hint = f"every worker needs to see the input under the same path; {error.hint}"
        raise
    plan = planned(dataset, job.options)
    if plan_fingerprint(plan, job.options) != job.fingerprint:
        dataset.close()
        raise UsageError(
            f"{job.path}: a worker plans another export than the program that asked for it",
            hint="all need the same input under the same path, and the same versions of the program and its plugins",
        )
    return plan


def _output(job: Job) -> Dataset:
    return registry.open_dataset(job.partial)


_OPENED: dict[tuple[str, str, str], Any] = {}
_LOCK = threading.Lock()


def _opened(key: tuple[str, str, str], open_it: Callable[[], Any]) -> Any:
    """What was opened under a key, once in each process; the tasks of a worker share it."""
    with _LOCK:
        found = _OPENED.pop(key, None)
        if found is None:
            same = [known for known in _OPENED if known[0] == key[0]]
            for old in same[: len(same) - MAX_KEPT + 1]:
                del _OPENED[old]  # closed with the last task that still uses it
            found = open_it()
        _OPENED[key] = found
        return found
