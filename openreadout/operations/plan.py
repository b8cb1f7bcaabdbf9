"""The plan of an export: images, levels, chunks, shards, codecs. Pure; `--dry-run` prints it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from openreadout import limits
from openreadout.codecs import ITEM_BYTES, CodecLookup
from openreadout.contracts import ExportPlan, PlannedImage, PlannedLevel
from openreadout.errors import CorruptDataError, UnsupportedFeatureError, UsageError
from openreadout.model import Channel, Dataset, Image
from openreadout.operations.check import chosen_images, codec_problem
from openreadout.operations.copying import CopySource, copy_source, stored_in_chunks, uncommon
from openreadout.operations.extent import refuse_unwalkable
from openreadout.operations.geometry import geometry, unit_of
from openreadout.operations.places import places_of
from openreadout.operations.sources import LevelSource, target_array, target_axes
from openreadout.operations.storage import PlanOptions, codecs_of, stored, with_blocks
from openreadout.planes import Selection
from openreadout.pyramid import SMALLEST, axes_to_halve, next_scale, next_shape


def make_plan(dataset: Dataset, options: PlanOptions, lookup: CodecLookup) -> ExportPlan:
    """Decide everything that will be written.

    Raises
    ------
    UsageError
        The selection or an option cannot be met.
    UnsupportedFeatureError
        A data type or codec is not read, or the images cannot be laid out.
    CorruptDataError
        Planes are missing and `fill_missing` is off.
    """
    chosen = chosen_images(dataset, options.selection)
    chosen = [(n, image) for n, image in chosen if options.level < len(image.levels)]
    if not chosen:
        raise UsageError(
            f"no image has a level {options.level}", hint="openreadout info lists the levels"
        )
    everything = options.selection.images is None and len(chosen) == len(dataset.images)
    places, layout, plate = places_of(dataset, chosen, everything)
    planned = []
    if plate is not None:
        listed = [index for well in plate.wells for index in well.images]
        chosen.sort(key=lambda item: listed.index(item[0]) if item[0] in listed else len(listed))
    for number, image in chosen:
        _refuse(number, image, options)
    _refuse_unwalkable(dataset, [(n, i, options.level) for n, i in chosen], options)
    for number, image in chosen:
        planned.append(_plan_image(number, image, places[number], options))
    taken = [
        (p.source_index, p.image, level.source_level)
        for p in planned
        for level in p.levels
        if level.source_level is not None and level.source_level != options.level
    ]
    _refuse_unwalkable(dataset, taken, options)
    notes = [
        f"image {number}: axis {axis} is exported at index 0"
        for number, image in chosen
        for axis in image.extra.get("unmapped_axes") or ()
    ]
    notes += _kept_notes(planned, options)
    return ExportPlan(
        dataset, tuple(planned), layout, options.version, lookup, plate, notes=tuple(notes)
    )


def _kept_notes(planned: Sequence[PlannedImage], options: PlanOptions) -> list[str]:
    """What to know of an export that keeps codecs."""
    if options.codec != "keep":
        return []
    levels = [level for image in planned for level in image.levels if level.copied]
    names = list(dict.fromkeys(name for level in levels for name in uncommon(level.codecs)))
    notes = []
    for image in planned:
        own = [level for level in image.levels if level.source_level is not None]
        anew = [level.path for level in own if not level.copied]
        if anew:
            which = "chunks" if len(anew) == len(own) else f"chunks of level {', '.join(anew)}"
            notes.append(
                f"image {image.source_index}: its {which} cannot be kept as they are stored, and are encoded anew"
            )
    if names:
        notes.append(f"chunks are kept under {', '.join(names)}, which few other readers open")
    return notes


def _refuse(number: int, image: Image, options: PlanOptions) -> None:
    if image.dtype not in ITEM_BYTES:
        raise UnsupportedFeatureError(
            f"image {number}: data type {image.dtype} is not one of pixels",
            hint="leave the image out with --image",
        )
    channels = image.size("c") * image.samples_per_pixel
    if channels > limits.MAX_CHANNELS:
        raise UnsupportedFeatureError(
            f"image {number} has {channels} channels, more than the {limits.MAX_CHANNELS} that are described",
            hint=f"export a part of them with --select c=...; --limit MAX_CHANNELS={channels} takes them all",
        )
    problem = codec_problem(image.levels[options.level].array)
    if problem is not None:
        raise problem
    if 0 in image.levels[options.level].array.shape:
        raise UnsupportedFeatureError(
            f"image {number} has an axis of length 0: there is nothing to export"
        )
    missing = absent_planes(image, options.selection)
    if missing and not options.fill_missing:
        t, c, z = missing[0]
        count = f"{len(missing)} of {image.plane_count} planes are not stored"
        raise CorruptDataError(
            f"image {number}: {count}, the first is t={t} c={c} z={z}",
            hint="--fill-missing writes zeros in their place and lists them in the report",
        )


def _refuse_unwalkable(
    dataset: Dataset, parts: Sequence[tuple[int, Image, int]], options: PlanOptions
) -> None:
    """Refuse levels (number, image, level) that are enormous and hardly stored."""
    for listed in (False, True):
        walked = (part for part in parts if _listed(part[1], part[2], options) == listed)
        refuse_unwalkable(dataset, walked, options.selection, listed=listed)


def _listed(image: Image, level: int, options: PlanOptions) -> bool:
    """Whether what is not stored costs nothing: all of the level is wanted, and its chunks can be listed."""
    source = level_source(image, level, options)
    return source.whole and stored_in_chunks(source.array)


def absent_planes(image: Image, selection: Selection) -> list[tuple[int, int, int]]:
    """Planes that the selection asks for and the source never stored."""
    if not image.absent:
        return []
    chosen = {axis: set(selection.indices(axis, image.size(axis))) for axis in "tcz"}
    return sorted(
        p for p in image.absent if all(i in chosen[a] for a, i in zip("tcz", p, strict=True))
    )


def level_source(image: Image, level: int, options: PlanOptions) -> LevelSource:
    """A level of the source with the axes of the target and the selection applied."""
    array = target_array(image, level)
    axes = target_axes(image)
    picks: list[tuple[int, ...] | None] = [None] * len(axes)
    samples = image.samples_per_pixel
    for axis in "tcz":
        chosen = getattr(options.selection, axis)
        if chosen is None:
            continue
        indices = options.selection.indices(axis, image.size(axis, level))
        if axis not in axes:
            continue
        if axis == "c" and samples > 1:
            indices = [i * samples + s for i in indices for s in range(samples)]
        picks[axes.index(axis)] = tuple(indices)
    if options.selection.region is not None:
        x0, y0, x1, y1 = options.selection.window(image.size("x", level), image.size("y", level))
        picks[axes.index("x")] = tuple(range(x0, x1))
        picks[axes.index("y")] = tuple(range(y0, y1))
    return LevelSource(array, tuple(picks))


def _plan_image(number: int, image: Image, path: str, options: PlanOptions) -> PlannedImage:
    axes = target_axes(image)
    base = level_source(image, options.level, options)
    units = tuple(unit_of(image, axis) for axis in axes)
    own = _source_levels(image, options, base)
    levels: list[PlannedLevel] = []
    for level in own:
        source = level_source(image, level, options)
        if source.array.dtype not in ITEM_BYTES:
            raise UnsupportedFeatureError(
                f"image {number}: data type {source.array.dtype} of level {level} is not one of pixels",
                hint="leave the level out with --pyramid none",
            )
        if 0 in source.array.shape:
            raise UnsupportedFeatureError(
                f"image {number}: level {level} has an axis of length 0",
                hint="leave the source's smaller levels out with --pyramid none, or make new ones with --pyramid mean",
            )
        scale, translation = geometry(image, level, axes, units, source)
        levels.append(
            stored(
                PlannedLevel(
                    path=str(len(levels)),
                    shape=source.shape,
                    dtype=source.array.dtype,
                    chunk=source.array.chunk_shape,
                    shard=None,
                    block=(),
                    codecs=codecs_of(options.codec, source.array.dtype, label=image.label),
                    scale=scale,
                    translation=translation,
                    fill_value=_fill_value(source.array.fill_value, source.array.dtype),
                    source_level=level,
                ),
                axes,
                options,
                copy=_copied(source, options),
            )
        )
    _add_levels(levels, image, axes, units, options)
    blocked = with_blocks(levels, axes, base.array.chunk_shape, options)
    return PlannedImage(
        source_index=number,
        path=path,
        axes=axes,
        units=units,
        image=_with_chosen_channels(image, options.selection),
        levels=tuple(blocked),
        samples_as_channels=image.samples_per_pixel > 1,
        whole=base.whole and options.level == 0,
    )


def _with_chosen_channels(image: Image, selection: Selection) -> Image:
    """The image with the descriptions of the channels that are exported."""
    if selection.c is None or not image.channels:
        return image
    known = image.channels
    if len(known) > image.size("c"):  # given for each colour sample
        return image
    chosen = [known[i] if i < len(known) else Channel() for i in selection.c]
    return replace(image, channels=tuple(chosen))


def _copied(source: LevelSource, options: PlanOptions) -> CopySource | None:
    """The level as one whose chunks are taken over, where nothing asks for other chunks or codecs."""
    if options.version == "0.4" or options.chunks is not None or not source.whole:
        return None
    if options.codec not in (None, "keep"):
        return None
    return copy_source(source.array, keep=options.codec == "keep")


def _source_levels(image: Image, options: PlanOptions, base: LevelSource) -> list[int]:
    """Levels of the source that are exported as they are."""
    wanted = options.pyramid in ("auto", "source") and options.selection.region is None
    if options.selection.z is not None and base.picks and options.pyramid != "source":
        wanted = False
    if not wanted:
        return [options.level]
    own = range(options.level, len(image.levels))
    keep = [n for n in own if all(image.size(a, n) == image.size(a, own[0]) for a in "tc")]
    if options.selection.z is not None:
        keep = [n for n in keep if image.size("z", n) == image.size("z", keep[0])]
    return keep[: options.levels] if options.levels else keep


def _add_levels(
    levels: list[PlannedLevel],
    image: Image,
    axes: str,
    units: tuple[str | None, ...],
    options: PlanOptions,
) -> None:
    """Levels made by halving: up to `--levels`, or until y and x are small, where the source has none of its own."""
    if options.pyramid in ("none", "source") or (
        options.pyramid == "auto" and len(levels) > 1 and not options.levels
    ):
        return
    limit = min(options.levels or limits.MAX_LEVELS, limits.MAX_LEVELS)
    while len(levels) < limit:
        last = levels[-1]
        known = [s if u is not None else None for s, u in zip(last.scale, units, strict=True)]
        halve = axes_to_halve(axes, last.shape, known, units)
        small = all(n <= SMALLEST for a, n in zip(axes, last.shape, strict=True) if a in "yx")
        if not any(halve) or (small and options.levels is None):
            return
        scale, translation = next_scale(last.scale, last.translation, halve)
        shape = next_shape(last.shape, halve)
        levels.append(
            stored(
                replace(
                    last,
                    path=str(len(levels)),
                    shape=shape,
                    chunk=levels[0].chunk,
                    scale=scale,
                    translation=translation,
                    source_level=None,
                    copied=False,
                    codecs=codecs_of(options.codec, last.dtype, label=image.label),
                    halve=halve,
                ),
                axes,
                options,
            )
        )


def _fill_value(value: Any, dtype: str) -> Any:
    """A fill value that the type can hold, as a plain Python number; 0 for anything else."""
    if dtype == "bool":
        return bool(value)
    if dtype.startswith("complex"):
        return complex(value) if isinstance(value, complex | float | int) else 0j
    try:
        return float(value) if dtype.startswith("float") else int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
