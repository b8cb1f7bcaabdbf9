"""`export --in-place`: metadata of OME-Zarr 0.5 beside that of N5 or Zarr v2, over the chunks that are there.

Only documents are added. Every plane is digested before and after; when the two differ, or anything else goes wrong,
the documents are taken away again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from openreadout import registry
from openreadout.arrays import AxisView, ChunkedArray, Stack
from openreadout.codecs import ITEM_BYTES
from openreadout.contracts import Lift, LiftedImage, LiftedLevel, Lifter, LiftPlan, PlannedImage
from openreadout.encoded import EncodedArray
from openreadout.errors import (
    OpenReadoutError,
    UnsupportedFeatureError,
    UsageError,
    VerificationError,
)
from openreadout.model import AXIS_TYPES, Dataset, Image
from openreadout.operations.plan import make_plan
from openreadout.operations.storage import PlanOptions
from openreadout.planes import Selection, digest_planes
from openreadout.remote.urls import is_url
from openreadout.results import InPlaceReport
from openreadout.stores import Store
from openreadout.workers import Workers

Digests = dict[str, list[tuple[int, int, int, str | None]]]
Progress = Callable[[int, int], None]
EXPORT_A_COPY = "export a copy instead: leave out --in-place and name it with -o"
NGFF_TYPES = frozenset(("time", "channel", "space"))


@dataclass(frozen=True, slots=True)
class InPlaceOptions:
    """How to lift: which images, whether documents may be replaced, and whether the older ones are dropped."""

    images: tuple[int, ...] | None = None
    axes: str | None = None
    overwrite: bool = False
    drop_old: bool = False
    verify: bool = True
    sync: bool = True
    dry_run: bool = False


def lift_in_place(
    path: str, options: InPlaceOptions, workers: Workers, progress: Progress | None = None
) -> InPlaceReport:
    """Add OME-Zarr 0.5 documents to an N5 container, or to an OME-Zarr of Zarr v2.

    Raises
    ------
    UsageError
        It is neither, is an archive, or has such documents already and `overwrite` is off.
    UnsupportedFeatureError
        NGFF or Zarr v3 cannot describe the arrays as they are stored.
    VerificationError
        What was added does not show the same images; it is taken away again.
    CorruptDataError, StorageError, UnknownFormatError
        The input cannot be read, or not be written to.
    """
    started = time.monotonic()
    if is_url(path):
        raise UsageError(f"{path}: nothing behind a URL is changed in place", hint=EXPORT_A_COPY)
    with registry.open_dataset(path, axes=options.axes, older=True) as dataset:
        plan, notes = _plan(dataset, options)
        lift = _lifter().lift(plan)
        left = _left_out(dataset, plan)
        _refuse(plan.store, lift, left, options)
        removed: tuple[str, ...] = lift.older if options.drop_old else ()
        if not options.dry_run:
            _Run(plan, options, workers, progress).run(lift)
            if options.drop_old:
                lift.drop_older()
    return InPlaceReport(
        input=path,
        output=plan.store.path,
        files_added=lift.documents,
        files_removed=removed,
        verified=options.verify and not options.dry_run,
        seconds=time.monotonic() - started,
        notes=(*notes, *lift.notes, *(f"{name}: no image, left as it is" for name in left)),
    )


def _lifter() -> Lifter:
    writer = registry.find_writer("ome-zarr")
    if not isinstance(writer, Lifter):
        raise UnsupportedFeatureError("the writer for ome-zarr cannot work in place")
    return writer


# -- the plan ---------------------------------------------------------------------------------------


def _plan(dataset: Dataset, options: InPlaceOptions) -> tuple[LiftPlan, list[str]]:
    """What is to be described, and what people should know of it."""
    found = _stored(dataset.images[0])
    if isinstance(found, Stack):
        found = _encoded(dataset.images[0], 0, 0)  # which refuses it
    if not isinstance(found, EncodedArray) or found.documents[:1] == ("zarr.json",):
        already = isinstance(found, EncodedArray)
        said = "is Zarr v3 already" if already else f"is {dataset.format_name}"
        raise UsageError(
            f"{dataset.path} {said}: --in-place lifts N5, and OME-Zarr of Zarr v2",
            hint=EXPORT_A_COPY,
        )
    if found.store.kind != "directory":
        raise UsageError(f"{dataset.path}: an archive is not changed in place", hint=EXPORT_A_COPY)
    chosen = PlanOptions(selection=Selection(images=options.images), pyramid="source")
    geometry = make_plan(dataset, chosen, registry.find_codec)
    notes: list[str] = []
    images = tuple(_image(planned, notes) for planned in geometry.images)
    images = tuple(sorted(images, key=lambda image: image.index))
    groups = tuple(
        path for path, node in _nodes(dataset) if node["kind"] not in ("array", "damaged")
    )
    return LiftPlan(found.store, images, _with_documents(found, groups)), notes


def _with_documents(array: EncodedArray, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Groups that the older metadata knows; a folder that just lies there is none."""
    own = (".zgroup", ".zattrs") if array.documents[:1] == (".zarray",) else ("attributes.json",)
    base = array.store
    return tuple(
        path
        for path in groups
        if any(base.size(f"{path}/{name}" if path else name) is not None for name in own)
    )


def _nodes(dataset: Dataset) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every group and array of the container with its path."""
    pending = [dataset.structure()] if dataset.structure is not None else []
    while pending:
        node = pending.pop()
        yield str(node["path"]).strip("/"), node
        pending.extend(node.get("children", ()))


def _stored(image: Image, level: int = 0) -> ChunkedArray:
    return _unwrapped(image.levels[level].array)[0]


def _unwrapped(array: ChunkedArray) -> tuple[ChunkedArray, list[int | None]]:
    """The stored array behind views, and the stored axis that each axis of the outermost view shows."""
    axes: list[int | None] = list(range(len(array.shape)))
    while True:
        if isinstance(array, AxisView):
            axes = [None if axis is None else array.axes[axis] for axis in axes]
            array = array.array
        elif isinstance(array, Stack) and len(array.parts) == 1 and array.parts[0] is not None:
            axes = [axis - 1 if axis else None for axis in axes]
            array = array.parts[0]
        else:
            return array, axes


def _image(planned: PlannedImage, notes: list[str]) -> LiftedImage:
    image, number = planned.image, planned.source_index
    levels, kept = [], []
    for item in planned.levels:
        if item.source_level is not None:
            kept.append(image.levels[item.source_level])
            array = _encoded(image, number, item.source_level)
            scale = _by_stored(image, item.source_level, planned.axes, item.scale, 1.0)
            shift = _by_stored(image, item.source_level, planned.axes, item.translation, 0.0)
            stated = any(shift) or (_is_v2(array) and "translation" in image.extra)
            listed = image.levels[item.source_level].path if _is_v2(array) else None
            levels.append(LiftedLevel(array, scale, shift if stated else None, listed))
    if len(levels) < len(image.levels):
        notes.append(f"image {number}: {len(image.levels) - len(levels)} levels are left out")
    axes = _axes(planned, levels[0].array)
    image = replace(image, levels=tuple(kept))
    return LiftedImage(replace(planned, image=image), _group(image, levels), axes, tuple(levels))


def _is_v2(array: EncodedArray) -> bool:
    return array.documents[:1] == (".zarray",)


def _encoded(image: Image, number: int, level: int) -> EncodedArray:
    array = _stored(image, level)
    if isinstance(array, Stack):
        raise UnsupportedFeatureError(
            f"image {number} is kept in {len(array.parts)} arrays, and an NGFF image has one for each level",
            hint=EXPORT_A_COPY,
        )
    if not isinstance(array, EncodedArray) or "s" in image.axis_names:
        raise UnsupportedFeatureError(
            f"image {number} is not stored as one array of samples", hint=EXPORT_A_COPY
        )
    return array


def _letters(image: Image, level: int) -> list[str | None]:
    """The letter of each stored axis; None for one that the model lacks."""
    array, shown = _unwrapped(image.levels[level].array)
    letters: list[str | None] = [None] * len(array.shape)
    for letter, axis in zip(image.axis_names, shown, strict=True):
        if axis is not None:
            letters[axis] = letter
    return letters


def _by_stored(
    image: Image, level: int, axes: str, values: tuple[float, ...], default: float
) -> tuple[float, ...]:
    known = dict(zip(axes, values, strict=True))
    return tuple(known.get(letter or "", default) for letter in _letters(image, level))


def _axes(planned: PlannedImage, array: EncodedArray) -> tuple[Mapping[str, str], ...]:
    """NGFF axes in stored order: named as stored where NGFF metadata name them, otherwise by their letters."""
    image = planned.image
    letters = _letters(image, 0)
    units = dict(zip(planned.axes, planned.units, strict=True))
    stored = image.extra.get("axes")
    told = list(stored) if isinstance(stored, list) else []
    told = (told + [None] * len(letters))[: len(letters)]
    return tuple(
        _axis(letter, item, units.get(letter or ""), n)
        for n, (letter, item) in enumerate(zip(letters, told, strict=True))
    )


def _axis(letter: str | None, told: Any, unit: str | None, n: int) -> dict[str, str]:
    own = told if isinstance(told, dict) else {}
    name = own.get("name") or letter or (told if isinstance(told, str) else f"dim_{n}")
    kind = own.get("type")
    if letter is not None and kind not in NGFF_TYPES:
        kind = AXIS_TYPES[letter]
    axis = {"name": str(name)}
    if isinstance(kind, str):
        axis["type"] = kind
    unit = unit if letter is not None else own.get("unit")
    return {**axis, "unit": unit} if unit else axis


def _group(image: Image, levels: list[LiftedLevel]) -> str:
    """The group that is the image: the one that says so, or the folder that holds all its arrays."""
    if levels[0].path is not None:
        return str(image.extra.get("group", "/")).strip("/")
    folders = [level.array.path.split("/")[:-1] for level in levels]
    common: list[str] = []
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return "/".join(common)


# -- refusing ---------------------------------------------------------------------------------------


def _left_out(dataset: Dataset, plan: LiftPlan) -> list[str]:
    """Arrays of the container that are not described."""
    lifted = {level.array.path for image in plan.images for level in image.levels}
    arrays = [path for path, node in _nodes(dataset) if node["kind"] in ("array", "damaged")]
    return [path or "/" for path in arrays if path not in lifted]


def _refuse(store: Store, lift: Lift, left: list[str], options: InPlaceOptions) -> None:
    there = [key for key in lift.documents if store.size(key) is not None]
    if there and not options.overwrite:
        raise UsageError(
            f"{store.path}: {there[0]} is there already, as {len(there)} of the "
            f"{len(lift.documents)} documents are",
            hint="--overwrite replaces these documents and nothing else",
        )
    if options.drop_old and left:
        raise UnsupportedFeatureError(
            f"{left[0]} and {len(left) - 1} more keep only their older metadata, which --drop-old would strand"
            if len(left) > 1
            else f"{left[0]} keeps only its older metadata, which --drop-old would strand",
            hint="lift every image, or leave out --drop-old",
        )


# -- doing it ---------------------------------------------------------------------------------------


class _Run:
    """Writes the documents between two rounds of digests."""

    def __init__(
        self,
        plan: LiftPlan,
        options: InPlaceOptions,
        workers: Workers,
        progress: Progress | None,
    ) -> None:
        self.plan = plan
        self.options = options
        self.workers = workers
        self.progress = progress
        self.done = 0
        self.total = 2 * sum(_bytes(image.image) for image in plan.images)

    def run(self, lift: Lift) -> None:
        before = self._digests({i.levels[0].array.path: i.image for i in self.plan.images})
        try:
            lift.write(sync=self.options.sync)
            if self.options.verify:
                self._verify(before)
        except BaseException:
            lift.undo()
            raise

    def _digests(self, images: Mapping[str, Image]) -> Digests:
        """The digest of every plane of every level, by the path of the image's first array."""
        if not self.options.verify:
            return {}
        found: Digests = {}
        for path, image in images.items():
            planes = found.setdefault(path, [])
            for level in range(len(image.levels)):
                for p in digest_planes(image, level, Selection(), "xxh3", self.workers, _damaged):
                    planes.append((p.t, p.c, p.z, p.digest))
                    self._advance(image, level)
        return found

    def _advance(self, image: Image, level: int) -> None:
        self.done += _bytes(image, level) // max(1, image.plane_count)
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)

    def _verify(self, before: Digests) -> None:
        """Open the container as a stranger would and compare what it shows."""
        with registry.open_dataset(self.plan.store.path) as dataset:
            after = {
                stored.path: image
                for image in dataset.images
                if isinstance(stored := _stored(image), EncodedArray)
            }
            for image in self.plan.images:
                path = image.levels[0].array.path
                if path not in after:
                    raise VerificationError(f"image {image.index} is not found at {path}")
                told = _different(image.image, after[path])
                if told is not None:
                    raise VerificationError(f"image {image.index}: {told}")
            wanted = {path: after[path] for path in before}
            if self._digests(wanted) != before:
                raise VerificationError("the planes are not those that were there before")


def _damaged(index: tuple[int, ...], error: OpenReadoutError) -> None:
    """A damaged chunk stays what it is, before and after; a codec that is lacking leaves nothing to compare."""
    if isinstance(error, UnsupportedFeatureError):
        raise error


def _different(before: Image, after: Image) -> str | None:
    """What of the geometry differs, in words."""
    for axis in "tczyx":
        if before.size(axis) != after.size(axis):
            return f"size_{axis} is {after.size(axis)}, not {before.size(axis)}"
    if len(after.levels) != len(before.levels):
        return f"{len(after.levels)} levels, not {len(before.levels)}"
    if before.dtype != after.dtype:
        return f"samples are {after.dtype}, not {before.dtype}"
    for name in ("name", "physical_size", "time_increment_s"):
        one, two = getattr(before, name), getattr(after, name)
        if one != two:
            return f"{name} is {two}, not {one}"
    return None


def _bytes(image: Image, level: int | None = None) -> int:
    levels = image.levels if level is None else image.levels[level : level + 1]
    return sum(math.prod(item.array.shape) * ITEM_BYTES.get(item.array.dtype, 1) for item in levels)
