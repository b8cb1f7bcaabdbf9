"""What an export is asked for: options, the plan that follows from them, and what tells two orders apart."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import xxhash

from openreadout import __version__, registry
from openreadout.contracts import ExportPlan, PlannedImage, Written
from openreadout.errors import UsageError
from openreadout.model import Dataset
from openreadout.operations.corrections import Corrections, corrected
from openreadout.operations.plan import absent_planes, make_plan
from openreadout.operations.storage import PlanOptions
from openreadout.operations.target import default_output
from openreadout.remote.urls import absolute
from openreadout.results import ExportReport
from openreadout.stores import source_state, total_sizes


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How to write, beside what the plan decides.

    `part` is the number, from 1, and the count of parts; with `commit` the parts are put together. `dask` is the
    address of a scheduler, or `local:N`.
    """

    plan: PlanOptions = field(default_factory=PlanOptions)
    corrections: Corrections = field(default_factory=Corrections)
    overwrite: bool = False
    verify: bool = True
    sync: bool = True
    resume: bool = False
    skip_done: bool = False
    axes: str | None = None
    trust_consolidated: bool = False
    part: tuple[int, int] | None = None
    commit: bool = False
    dask: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """One export that is to be done: from where, to where, how."""

    path: str
    target: str
    members: tuple[str, ...]
    plan: ExportPlan
    options: ExportOptions
    source_bytes: int = 0

    def sized(self) -> Order:
        """With the size of the source, which may be gone when the report is made."""
        return replace(self, source_bytes=total_sizes(self.members) or 0)

    def fingerprint(self) -> str:
        """Stands for the source as it is, for what is asked for and for everything that the plan decides."""
        hashed = xxhash.xxh3_128(plan_fingerprint(self.plan, self.options).encode())
        for member in self.members:
            for name, size, changed in source_state(absolute(member)):
                hashed.update(f"{name!r} {size} {changed}\n".encode("utf-8", "backslashreplace"))
        return hashed.hexdigest()

    def report(self, counts: Written, seconds: float, *, verified: bool) -> ExportReport:
        """The report on the whole of it."""
        plan = self.plan
        return ExportReport(
            input=self.path,
            output=self.target,
            format=f"OME-Zarr {plan.version}",
            images_written=len(plan.images),
            planes_written=sum(_plane_count(image) for image in plan.images),
            levels_written=sum(len(image.levels) for image in plan.images),
            chunks_copied=counts.copied,
            chunks_encoded=counts.encoded,
            files_written=counts.files,
            bytes_written=counts.size,
            verified=verified,
            seconds=seconds,
            source_bytes=self.source_bytes,
            changes=plan.changes,
            filled_planes=_filled(plan, self.options.plan),
            not_carried=counts.not_carried,
            notes=plan.notes,
        )


@contextlib.contextmanager
def ordered(path: str, output: str | None, options: ExportOptions) -> Iterator[Order]:
    """Open a data set and plan its export.

    Raises
    ------
    UsageError
        A selection or option cannot be met.
    CorruptDataError, StorageError, UnsupportedFeatureError, UnknownFormatError
        The source cannot be read.
    """
    with registry.open_dataset(
        path, axes=options.axes, trust_consolidated=options.trust_consolidated
    ) as dataset:
        target = default_output(path) if output is None else output.rstrip("/") or output
        if not target:
            raise UsageError("the output has an empty name", hint="-o NAME, or no -o at all")
        yield Order(path, target, dataset.members or (path,), planned(dataset, options), options)


def planned(dataset: Dataset, options: ExportOptions) -> ExportPlan:
    """The plan for a data set that is open."""
    fixed, changes = corrected(dataset, options.corrections)
    return replace(make_plan(fixed, options.plan, registry.find_codec), changes=changes)


def plan_fingerprint(plan: ExportPlan, options: ExportOptions) -> str:
    """Stands for what is asked for and everything that the plan decides, without a look at the source's files."""
    hashed = xxhash.xxh3_128(__version__.encode())
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


def _plane_count(image: PlannedImage) -> int:
    shape = dict(zip(image.axes, image.levels[0].shape, strict=True))
    return math.prod(shape.get(axis, 1) for axis in "tcz")


def _filled(plan: ExportPlan, options: PlanOptions) -> tuple[str, ...]:
    return tuple(
        f"image {image.source_index}: t={t} c={c} z={z}"
        for image in plan.images
        for t, c, z in absent_planes(image.image, options.selection)
    )
