"""Corrections to metadata that a person gives for an export: sizes, times, names, colours."""

from __future__ import annotations

from dataclasses import dataclass, replace

from openreadout.errors import UsageError
from openreadout.model import Axis, Channel, Dataset, Image, ResolutionLevel
from openreadout.units import length_um, unit_name


@dataclass(frozen=True, slots=True)
class Corrections:
    """What the source lacks or has wrong; None leaves it.

    `pixel_size` has x, y and perhaps z in `pixel_unit` (a UDUNITS name); `colors` are RRGGBB.
    """

    pixel_size: tuple[float, ...] | None = None
    pixel_unit: str = "micrometer"
    time_increment_s: float | None = None
    names: tuple[str, ...] | None = None
    colors: tuple[str, ...] | None = None
    image_name: str | None = None


def parse_pixel_size(text: str) -> tuple[tuple[float, ...], str]:
    """Parse `X,Y[,Z]UNIT`, such as `0.65,0.65,2um`; raises `UsageError`."""
    body = text.strip()
    letters = len(body) - len(
        body.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZµμÅ ")
    )
    unit = unit_name(body[len(body) - letters :]) if letters else "micrometer"
    try:
        values = tuple(float(part) for part in body[: len(body) - letters].split(","))
    except ValueError:
        values = ()
    if (
        unit is None
        or length_um(unit) is None
        or len(values) not in (2, 3)
        or not all(0 < v < 1e12 for v in values)
    ):
        raise UsageError(
            f"--pixel-size {text}: not X,Y[,Z]UNIT", hint="for example --pixel-size 0.65,0.65,2um"
        )
    return values, unit


def corrected(dataset: Dataset, wanted: Corrections) -> tuple[Dataset, tuple[str, ...]]:
    """The data set with the corrections applied to every image that is no label, and what they changed."""
    changes: list[str] = []
    images = []
    for number, image in enumerate(dataset.images):
        fixed = image
        if wanted.pixel_size is not None:
            fixed = _with_pixel_size(fixed, wanted.pixel_size, wanted.pixel_unit)
        if wanted.time_increment_s is not None and "t" in image.axis_names:
            fixed = _with_scale(fixed, "t", wanted.time_increment_s, "second")
        if not image.label:
            fixed = _with_channels(fixed, wanted)
            if wanted.image_name is not None:
                fixed = replace(fixed, name=wanted.image_name)
        changes += _differences(number, image, fixed)
        images.append(fixed)
    return replace(dataset, images=tuple(images)), tuple(changes)


def _with_pixel_size(image: Image, values: tuple[float, ...], unit: str) -> Image:
    for axis, value in zip("xyz", values, strict=False):
        if axis in image.axis_names:
            image = _with_scale(image, axis, value, unit)
    return image


def _with_scale(image: Image, axis: str, value: float, unit: str) -> Image:
    """The image with another spacing along an axis; the other levels keep their ratio to level 0."""
    place = image.axis_names.index(axis)
    axes = tuple(Axis(a.name, unit) if n == place else a for n, a in enumerate(image.axes))
    base = image.levels[0].scale[place]
    levels = []
    for number, level in enumerate(image.levels):
        own = level.scale[place]
        ratio = own / base if own and base else image.size(axis) / max(1, image.size(axis, number))
        scale = tuple(value * ratio if n == place else s for n, s in enumerate(level.scale))
        moved = level.translation[place]
        start = moved * value / base if moved and base else moved
        translation = tuple(start if n == place else t for n, t in enumerate(level.translation))
        levels.append(ResolutionLevel(level.path, level.array, scale, translation))
    extra = {
        key: v for key, v in image.extra.items() if key not in ("scale", "translation", "origin_um")
    }
    return replace(image, axes=axes, levels=tuple(levels), extra=extra)


def _with_channels(image: Image, wanted: Corrections) -> Image:
    if wanted.names is None and wanted.colors is None:
        return image
    count = image.size("c") * image.samples_per_pixel
    for option, given in (("--channel-names", wanted.names), ("--channel-colors", wanted.colors)):
        if given is not None and len(given) != count:
            raise UsageError(f"{option}: {len(given)} given, the image has {count} channels")
    channels = list(image.channels) + [Channel()] * (count - len(image.channels))
    for n in range(count):
        if wanted.names is not None:
            channels[n] = replace(channels[n], name=wanted.names[n])
        if wanted.colors is not None:
            channels[n] = replace(channels[n], color=f"#{wanted.colors[n].upper()}")
    return replace(image, channels=tuple(channels[:count]))


def _differences(number: int, before: Image, after: Image) -> list[str]:
    """Each correction in words: `image 0 pixel size: unknown is now 0.5 × 0.5 µm`."""
    changes = []
    for what, show in (
        ("name", _text),
        ("physical_size", _voxel),
        ("time_increment_s", lambda value: "unknown" if value is None else f"{value:g} s"),
    ):
        old, new = getattr(before, what), getattr(after, what)
        if old != new:
            changes.append(f"image {number} {_WORDS[what]}: {show(old)} is now {show(new)}")
    for n, channel in enumerate(after.channels):
        old_channel = before.channels[n] if n < len(before.channels) else Channel()
        for what in ("name", "color"):
            old, new = getattr(old_channel, what), getattr(channel, what)
            if old != new:
                changes.append(
                    f"image {number} channel {n} {what}: {_text(old)} is now {_text(new)}"
                )
    return changes


_WORDS = {"name": "name", "physical_size": "pixel size", "time_increment_s": "time increment"}


def _text(value: str | None) -> str:
    return "unknown" if value is None else value


def _voxel(size: dict[str, float | None] | None) -> str:
    if size is None:
        return "unknown"
    known = {axis: value for axis in "xyz" if (value := size[axis]) is not None}
    return f"{' × '.join(f'{value:g}' for value in known.values())} µm ({' '.join(known)})"
