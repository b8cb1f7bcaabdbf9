"""`export`: write a data set as OME-Zarr, prove that it reads back, and only then give it its name.

Levels are written in passes. A pass reads blocks of the source (or of the level before), writes them, and makes the
levels that follow from them while they are in memory. Every block's digest is noted and compared with what a fresh
opening of the output reads back.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np

from openreadout import registry
from openreadout.contracts import ExportPlan, Written
from openreadout.errors import InputError, StorageError, storage_error
from openreadout.model import Dataset
from openreadout.operations.copying import stored_in_chunks
from openreadout.operations.order import ExportOptions, Order, ordered, planned
from openreadout.operations.parts import commit, refuse_other_than_folder, write_part
from openreadout.operations.readback import ReadBack
from openreadout.operations.sources import target_array
from openreadout.operations.target import ARCHIVES, Partial, guard, partial_output, stem
from openreadout.operations.writing import Progress, Writing
from openreadout.remote.urls import child, is_url
from openreadout.results import ExportReport
from openreadout.workers import Workers


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
    with ordered(path, output, options) as order:
        target = order.target
        if options.skip_done and _there(target) and _is_output(order.plan, target):
            return _skipped(path, target, order.plan, time.monotonic() - started)
        order = order.sized()
        if options.part is not None or options.commit:
            refuse_other_than_folder(target)
            guard(path, order.members, target, overwrite=options.overwrite)
            if options.part is not None:
                return write_part(order, options.part, workers, progress, started)
            return commit(order, workers, progress, started)
        if options.dask is not None:
            refuse_other_than_folder(target)
            guard(path, order.members, target, overwrite=options.overwrite)
            _refuse_full_disk(order.plan, target)
            from openreadout.operations.cluster import write_on_cluster

            counts = write_on_cluster(order, options.dask, workers.threads, progress)
        else:
            counts = _write(order, workers, progress)
        return order.report(counts, time.monotonic() - started, verified=options.verify)


def _write(order: Order, workers: Workers, progress: Progress | None) -> Written:
    """Write, prove and rename in this process alone."""
    plan, options, target = order.plan, order.options, order.target
    with _output(order) as partial:
        sink = registry.find_writer("ome-zarr").create(
            plan,
            partial.path,
            archive=target.lower().endswith(ARCHIVES),
            resume=partial.resumed,
            journal=partial.journal,
        )
        try:
            run = Writing(plan, options.plan, sink, workers, progress, verified=options.verify)
            run.write()
            sink.finish(sync=options.sync)
        except BaseException:
            workers.close()  # no thread writes on while what it wrote is cleared away
            sink.abort()
            raise
        if options.verify:
            ReadBack(run).verify(partial.path)
        return sink.written()


def _there(target: str) -> bool:
    """Whether something is where the output is to be, and no run is about to write it."""
    if is_url(target):
        from openreadout.operations.remote_target import finished_remote

        return finished_remote(target)
    return os.path.lexists(target)


def _output(order: Order) -> AbstractContextManager[Partial]:
    """Where to write, once nothing speaks against it: a hidden sibling of the target, or its keys in a bucket."""
    target, options = order.target, order.options
    if is_url(target):
        from openreadout.operations.remote_target import guard_remote, remote_output

        guard_remote(order.path, target)
        begin = remote_output
    else:
        guard(order.path, order.members, target, overwrite=options.overwrite)
        _refuse_full_disk(order.plan, target)
        begin = partial_output
    return begin(
        target,
        overwrite=options.overwrite,
        fingerprint=order.fingerprint(),
        resume=options.resume,
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
    except InputError:
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


def plan_export(path: str, options: ExportOptions) -> tuple[ExportPlan, Dataset]:
    """The plan alone, for `--dry-run`; the data set is closed again."""
    with registry.open_dataset(
        path, axes=options.axes, trust_consolidated=options.trust_consolidated
    ) as dataset:
        return planned(dataset, options), dataset


def output_names(paths: Sequence[str], output: str | None) -> dict[str, str | None]:
    """Where each of several inputs goes: beside it, or into the folder `output`; never two under one name."""
    if output is None or len(paths) == 1:
        return dict.fromkeys(paths, output)
    if not is_url(output):
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
        name = f"{name}.ome.zarr"
        names[path] = child(output, name) if is_url(output) else os.path.join(output, name)
    return names
