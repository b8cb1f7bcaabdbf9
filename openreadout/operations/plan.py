"""The plan of an export: images, levels, chunks, shards, codecs. Pure; `--dry-run` prints it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from openreadout.codecs import ITEM_BYTES, CodecLookup, CodecSpec
from openreadout.contracts import ExportPlan, PlannedImage, PlannedLevel
from openreadout.errors import CorruptDataError, UnsupportedFeatureError, UsageError
from openreadout.limits import MAX_CHANNELS, MAX_CHUNK_BYTES, MAX_LEVELS
from openreadout.model import Channel, Dataset, Image, Plate, Well
from openreadout.operations.check import chosen_images, codec_problem
from openreadout.operations.copying import CopySource, copy_source, stored_in_chunks, uncommon
from openreadout.operations.extent import refuse_unwalkable
from openreadout.operations.sources import LevelSource, target_array, target_axes
from openreadout.planes import Selection
from openreadout.pyramid import SMALLEST, axes_to_halve, next_scale, next_shape
from openreadout.units import length_um, time_s, unit_name

CHUNK_SIDE = 512
"""Side of a chunk where the source's own chunks are of no use as a guide."""
CHUNK_BYTES = 4 << 20
SMALL_CHUNK = 64
SHARD_BYTES = 16 << 20
SHARDS_WANTED = 256
MAX_SHARD_BYTES = 256 << 20
BLOCK_BYTES = 16 << 20
"""Samples of a block: what one thread holds of the source at a time."""

NGFF_LENGTHS = frozenset(
    (
        "angstrom attometer centimeter decimeter exameter femtometer foot gigameter hectometer "
        "inch kilometer megameter meter micrometer mile millimeter nanometer parsec petameter "
        "picometer terameter yard yoctometer yottameter zeptometer zettameter"
    ).split()
)
NGFF_TIMES = frozenset(
    (
        "attosecond centisecond day decisecond exasecond femtosecond gigasecond hectosecond hour "
        "kilosecond megasecond microsecond millisecond minute nanosecond petasecond picosecond "
        "second terasecond yoctosecond yottasecond zeptosecond zettasecond"
    ).split()
)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a person asked for; None leaves the choice to the plan.

    `chunks` and `shards` are lengths of the last axes, slowest first; `shards` of () writes none. `codec` is a name
    with an optional level.
    """

    selection: Selection = field(default_factory=Selection)
    level: int = 0
    pyramid: str = "auto"
    levels: int | None = None
    chunks: tuple[int, ...] | None = None
    shards: tuple[int, ...] | None = None
    codec: str | None = None
    version: str = "0.5"
    fill_missing: bool = False
    memory: int | None = None


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
    places, layout, plate = _places(dataset, chosen, everything)
    planned = []
    if plate is not None:
        listed = [index for well in plate.wells for index in well.images]
        chosen.sort(key=lambda item: listed.index(item[0]) if item[0] in listed else len(listed))
    for number, image in chosen:
        _refuse(number, image, options)
    walked = ((n, i, options.level) for n, i in chosen if not _listed(i, options))
    refuse_unwalkable(dataset, walked, options.selection)
    for number, image in chosen:
        planned.append(_plan_image(number, image, places[number], options))
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
    if image.size("c") * image.samples_per_pixel > MAX_CHANNELS:
        raise UnsupportedFeatureError(
            f"image {number} has {image.size('c')} channels, more than the {MAX_CHANNELS} that are described",
            hint="export a part of them with --select c=...",
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


def _listed(image: Image, options: PlanOptions) -> bool:
    """Whether what is not stored costs nothing: all of the level is wanted, and its chunks can be listed."""
    source = level_source(image, options.level, options)
    return source.whole and stored_in_chunks(source.array)


def absent_planes(image: Image, selection: Selection) -> list[tuple[int, int, int]]:
    """Planes that the selection asks for and the source never stored."""
    if not image.absent:
        return []
    chosen = {axis: set(selection.indices(axis, image.size(axis))) for axis in "tcz"}
    return sorted(
        p for p in image.absent if all(i in chosen[a] for a, i in zip("tcz", p, strict=True))
    )


# -- where images go -------------------------------------------------------------------------------


def _places(
    dataset: Dataset, chosen: list[tuple[int, Image]], everything: bool
) -> tuple[dict[int, str], str, Plate | None]:
    """The group of each chosen image, the layout, and the plate of the output."""
    main = [n for n, image in chosen if not (image.label and image.label_of is not None)]
    plate = dataset.plate if everything else None
    places: dict[int, str] = {}
    layout = "collection"
    kept_plate: Plate | None = None
    fields = (
        None if plate is None else _fields(dataset, plate, [n for n, i in chosen if not i.label])
    )
    if plate is not None and fields is not None:
        layout = "plate"
        places, kept_plate = fields
    elif len(main) == 1:
        layout = "image"
        places[main[0]] = ""
    else:
        series = [n for n in main if not dataset.images[n].label]
        for at, index in enumerate(series):
            places[index] = str(at)
    _place_labels(dataset, chosen, places, layout)
    return places, layout, kept_plate


def _fields(
    dataset: Dataset, plate: Plate, images: list[int]
) -> tuple[dict[int, str], Plate] | None:
    """The group of each field and the plate as it is written, its names as NGFF allows them.

    None when not every image is a field of one well, or when names can't be told apart as NGFF would have them.
    Wells and fields are listed in the order of the images, so that the output shows the images in that order too.
    """
    listed = [index for well in plate.wells for index in well.images]
    rows = [_alphanumeric(name) for name in plate.rows]
    columns = [_alphanumeric(name) for name in plate.columns]
    if not listed or sorted(listed) != sorted(images):
        return None
    if len(set(rows)) < len(rows) or len(set(columns)) < len(columns):
        return None
    places: dict[int, str] = {}
    wells = []
    for well in plate.wells:
        row, column = _alphanumeric(well.row), _alphanumeric(well.column)
        for at, index in enumerate(well.images):
            name = dataset.images[index].extra.get("field")
            place = f"{row}/{column}/{_alphanumeric(str(at if name is None else name))}"
            places[index] = (
                place if place not in places.values() else f"{row}/{column}/{at}x{index}"
            )
        wells.append(Well(f"{row}/{column}", row, column, tuple(sorted(well.images))))
    wells.sort(key=lambda well: well.images[0] if well.images else len(images))
    kept = replace(plate, rows=tuple(rows), columns=tuple(columns), wells=tuple(wells))
    return places, kept


def _place_labels(
    dataset: Dataset, chosen: list[tuple[int, Image]], places: dict[int, str], layout: str
) -> None:
    """Labels go below the image they annotate, or below the root when that image is not exported."""
    for number, image in chosen:
        if number in places:
            continue
        parent = places.get(image.label_of) if image.label_of is not None else ""
        if parent is None:
            parent = ""
        group = str(image.extra.get("group") or "")
        name = group.rpartition("/labels/")[2] if "/labels/" in f"/{group}" else group or image.name
        safe = _safe_name(name.removeprefix("labels/") if name else f"label{number}")
        place = f"{parent}/labels/{safe}".lstrip("/")
        while place in places.values():
            place += "_"
        places[number] = place
    if layout == "image" and all(place.startswith("labels/") for place in places.values()):
        raise UnsupportedFeatureError(
            "a label image alone cannot be exported without the image it annotates"
        )


def _safe_name(name: str) -> str:
    """A name that is one harmless path segment."""
    kept = "".join(c if c.isalnum() or c in "._- " else "_" for c in name).strip(" .")
    return kept or "_"


def _alphanumeric(name: str) -> str:
    kept = "".join(c for c in name if c.isascii() and c.isalnum())
    return kept or "0"


# -- one image -------------------------------------------------------------------------------------


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
    units = tuple(_unit(image, axis) for axis in axes)
    own = _source_levels(image, options, base)
    levels: list[PlannedLevel] = []
    for level in own:
        source = level_source(image, level, options)
        if source.array.dtype not in ITEM_BYTES:
            raise UnsupportedFeatureError(
                f"image {number}: data type {source.array.dtype} of level {level} is not one of pixels",
                hint="leave the level out with --pyramid none",
            )
        scale, translation = _geometry(image, level, axes, units, source)
        levels.append(
            _storage(
                PlannedLevel(
                    path=str(len(levels)),
                    shape=source.shape,
                    dtype=source.array.dtype,
                    chunk=source.array.chunk_shape,
                    shard=None,
                    block=(),
                    codecs=_codecs(options.codec, source.array.dtype),
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
    blocked = _blocks(levels, axes, base.array.chunk_shape, options)
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
    limit = min(options.levels or MAX_LEVELS, MAX_LEVELS)
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
            _storage(
                replace(
                    last,
                    path=str(len(levels)),
                    shape=shape,
                    chunk=levels[0].chunk,
                    scale=scale,
                    translation=translation,
                    source_level=None,
                    copied=False,
                    codecs=_codecs(options.codec, last.dtype),
                    halve=halve,
                ),
                axes,
                options,
            )
        )


def _unit(image: Image, axis: str) -> str | None:
    """The unit of an axis as NGFF allows it; a length or time of another name is told in µm or s."""
    place = image.axis_names.find(axis)
    unit = unit_name(image.axes[place].unit) if place >= 0 else None
    if unit is None or not _known(image.levels[0].scale[place]):
        return None
    if axis in "xyz":
        return None if length_um(unit) is None else unit if unit in NGFF_LENGTHS else "micrometer"
    if axis == "t":
        return None if time_s(unit) is None else unit if unit in NGFF_TIMES else "second"
    return None


def _known(scale: float | None) -> bool:
    """Whether a scale is a number that a spacing can be."""
    return scale is not None and math.isfinite(scale) and scale > 0


def _factor(image: Image, axis: str, unit: str | None) -> float:
    """What a number in the image's unit is multiplied by to be in `unit`."""
    stored = unit_name(image.axes[image.axis_names.index(axis)].unit)
    if unit is None or stored == unit:
        return 1.0
    length, time = length_um(stored), time_s(stored)
    return length if length is not None else time if time is not None else 1.0


def _geometry(
    image: Image, level: int, axes: str, units: tuple[str | None, ...], source: LevelSource
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Scale and translation of a level in the target's units; an unknown scale is 1, as NGFF demands a number."""
    scales, translations = [], []
    item = image.levels[level]
    for axis, unit, pick in zip(axes, units, source.picks, strict=True):
        place = image.axis_names.find(axis)
        if place < 0:
            scales.append(1.0)
            translations.append(0.0)
            continue
        factor = _factor(image, axis, unit)
        scale = item.scale[place]
        known = _known(scale)
        value = scale * factor if known and scale is not None else _relative(image, level, axis)
        moved = item.translation[place]
        start = (moved or 0.0) * factor if moved is not None and math.isfinite(moved) else 0.0
        if pick:
            start += pick[0] * value if known and axis != "c" else 0.0
            value *= _step(pick) if known and axis != "c" else 1
        scales.append(value)
        translations.append(start)
    return tuple(scales), tuple(translations)


def _relative(image: Image, level: int, axis: str) -> float:
    """How many samples of level 0 one of this level covers, where no scale is known."""
    full, size = image.size(axis), image.size(axis, level)
    if size < 1 or full == size or axis in "tc":
        return 1.0
    return float(2 ** round(math.log2(full / size))) if full > size else full / size


def _step(pick: tuple[int, ...]) -> int:
    """The spacing of evenly chosen indices, 1 for others."""
    steps = {b - a for a, b in itertools.pairwise(pick)}
    return steps.pop() if len(steps) == 1 else 1


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


# -- chunks, shards, blocks, codecs ----------------------------------------------------------------


def _codecs(asked: str | None, dtype: str) -> tuple[CodecSpec, ...]:
    """The chain of a chunk: bytes and a compressor."""
    size = ITEM_BYTES[dtype]
    first = CodecSpec("bytes", {"endian": "little"} if size > 1 else {})
    name, _, level_text = (asked or "blosc-zstd").partition(":")
    if level_text and not level_text.lstrip("-").isdigit():
        raise UsageError(
            f"--codec {asked}: the level is not a number", hint="for example --codec blosc-zstd:3"
        )
    level = int(level_text) if level_text else None
    if name in ("none", "keep"):
        return (first,) if name == "none" else _codecs(None, dtype)
    if name in ("blosc-zstd", "blosc-lz4"):
        chosen = 1 if level is None else level
        if not 0 <= chosen <= 9:
            raise UsageError(f"--codec {asked}: blosc levels go from 0 to 9")
        blosc = {"cname": name[6:], "clevel": chosen, "typesize": size, "blocksize": 0}
        return (
            first,
            CodecSpec("blosc", {**blosc, "shuffle": "bitshuffle" if size > 1 else "noshuffle"}),
        )
    if name == "zstd":
        chosen = 3 if level is None else level
        if not -131072 <= chosen <= 22:
            raise UsageError(f"--codec {asked}: zstd levels go up to 22")
        return (first, CodecSpec("zstd", {"level": chosen, "checksum": False}))
    if name == "gzip":
        chosen = 5 if level is None else level
        if not 0 <= chosen <= 9:
            raise UsageError(f"--codec {asked}: gzip levels go from 0 to 9")
        return (first, CodecSpec("gzip", {"level": chosen}))
    raise UsageError(
        f"--codec {asked}: not a codec for exports",
        hint="blosc-zstd, blosc-lz4, zstd, gzip, none or keep, with :LEVEL where it has one",
    )


def _storage(
    level: PlannedLevel, axes: str, options: PlanOptions, *, copy: CopySource | None = None
) -> PlannedLevel:
    """Choose chunk and shard of a level."""
    item = ITEM_BYTES[level.dtype]
    if copy is not None:
        chunk = copy.chunk
        level = replace(level, codecs=copy.codecs, copied=True)
    elif options.chunks is not None:
        chunk = _given("--chunks", options.chunks, axes, level.shape)
    else:
        chunk = _chunk(level.chunk, level.shape, axes, item)
    if math.prod(chunk) * item > MAX_CHUNK_BYTES // 2:
        raise UsageError(
            f"a chunk of {chunk} samples is larger than the {MAX_CHUNK_BYTES // 2} bytes allowed"
        )
    if options.version == "0.4" or options.shards == ():
        return replace(level, chunk=chunk, shard=None)
    if options.shards is not None:
        shard = _given("--shards", options.shards, axes, level.shape, whole=False)
        shard = tuple(-(-max(s, c) // c) * c for s, c in zip(shard, chunk, strict=True))
    else:
        shard = _shard(chunk, level.shape, item)
    return replace(level, chunk=chunk, shard=shard)


def _given(
    name: str, asked: tuple[int, ...], axes: str, shape: Sequence[int], *, whole: bool = True
) -> tuple[int, ...]:
    """Lengths given for the last axes; the others get 1."""
    if len(asked) > len(axes):
        raise UsageError(f"{name}: {len(asked)} lengths for the {len(axes)} axes {' '.join(axes)}")
    full = (1,) * (len(axes) - len(asked)) + asked
    return tuple(min(c, n) for c, n in zip(full, shape, strict=True)) if whole else full


def _chunk(own: Sequence[int], shape: Sequence[int], axes: str, item: int) -> tuple[int, ...]:
    """Chunk of a level: near the source's own, so that each of its chunks is decoded once, within sensible bounds."""
    chunk = []
    for axis, c, n in zip(axes, own, shape, strict=True):
        if axis in "tc":
            chunk.append(1)
        elif axis == "z":
            chunk.append(min(c, n, 128))
        else:
            side = c if SMALL_CHUNK <= c <= 2 * CHUNK_SIDE else CHUNK_SIDE
            chunk.append(min(side, n))
    for place in (axes.find("z"), axes.index("y"), axes.index("x")):
        while place >= 0 and math.prod(chunk) * item > CHUNK_BYTES and chunk[place] > 1:
            chunk[place] = -(-chunk[place] // 2)
    return tuple(chunk)


def _shard(chunk: tuple[int, ...], shape: Sequence[int], item: int) -> tuple[int, ...]:
    """Shard of a level: whole rows and planes first, sized so that an image ends in a few hundred files.

    It grows by doubling, along the innermost axes first, until it holds the wanted bytes or the whole array.
    """
    total = math.prod(shape) * item
    wanted = max(SHARD_BYTES, min(MAX_SHARD_BYTES, total // SHARDS_WANTED))
    shard = list(chunk)
    order = [len(shape) - 1, len(shape) - 2, *range(len(shape) - 3, -1, -1)]
    pair = order[:2]
    grown = True
    while grown and math.prod(shard) * item * 2 <= wanted:
        grown = False
        inner = sorted((a for a in pair if shard[a] < shape[a]), key=lambda a: shard[a])
        for axis in [*inner, *order[2:]]:
            if shard[axis] < shape[axis]:
                shard[axis] *= 2
                grown = True
                break
    return tuple(min(s, -(-n // c) * c) for s, n, c in zip(shard, shape, chunk, strict=True))


def _blocks(
    levels: list[PlannedLevel], axes: str, source_chunk: Sequence[int], options: PlanOptions
) -> list[PlannedLevel]:
    """Choose what is worked on at a time.

    A block covers whole chunks of its level and, where memory allows, whole chunks of the source and whole chunks of
    the levels that are made from it while it is in memory. Its size on those levels is half of it along each halved
    axis.
    """
    budget = BLOCK_BYTES if options.memory is None else max(1 << 20, options.memory // 6)
    done: list[PlannedLevel] = []
    for n, level in enumerate(levels):
        if level.source_level is None and done and _fits(done[-1].block, level):
            half = tuple(
                b // 2 if h else b for b, h in zip(done[-1].block, level.halve, strict=True)
            )
            done.append(replace(level, block=half))
            continue
        following = []
        for later in levels[n + 1 :]:
            if later.source_level is not None:
                break
            following.append(later.halve)
        derived = level.source_level is None
        own = level.chunk if derived else source_chunk
        # a derived level that starts a pass is made from a block of the level before, which is up to 8 times larger
        done.append(
            replace(level, block=_block(level, own, following, budget // 4 if derived else budget))
        )
    return done


def _fits(block: tuple[int, ...], level: PlannedLevel) -> bool:
    """Whether half of a block is whole chunks of the next level, or reaches over a whole axis of it."""
    for b, h, c, n in zip(block, level.halve, level.chunk, level.shape, strict=True):
        half = b // 2 if h else b
        if (h and b % 2 and half < n) or (half % c and half < n) or half == 0:
            return False
    return True


def _block(
    level: PlannedLevel, own: Sequence[int], following: list[tuple[bool, ...]], budget: int
) -> tuple[int, ...]:
    item = ITEM_BYTES[level.dtype]
    block = list(level.chunk)

    def size(lengths: Sequence[int]) -> int:
        return math.prod(min(b, n) for b, n in zip(lengths, level.shape, strict=True)) * item

    # a source chunk that reaches over several blocks would be decoded for each of them; it is held whole anyway
    covered = [-(-min(c, n) // b) * b for b, c, n in zip(block, own, level.shape, strict=True)]
    if size(covered) <= 2 * max(budget, size(own)):
        block = covered
    for halve in following:
        doubled = [b * 2 if h else b for b, h in zip(block, halve, strict=True)]
        if size(doubled) > budget:
            break
        block = doubled
    if following and block == list(level.chunk):
        block = [b * 2 if h else b for b, h in zip(block, following[0], strict=True)]
    return tuple(block)
