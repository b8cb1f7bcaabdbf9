"""OME-XML of collections (`OME/METADATA.ome.xml`) laid over what NGFF says.

Imported only where there is such a document, because it brings lxml.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from openreadout import limits
from openreadout.model import Axis, Channel, Image, ResolutionLevel
from openreadout_ome_xml import OmeDocument, OmeImage, parse_ome_xml

if TYPE_CHECKING:
    from openreadout.stores import Store

METADATA = "OME/METADATA.ome.xml"


def read_ome(store: Store, key: str) -> OmeDocument | None:
    """Parse the collection's OME-XML; None when there is none.

    Raises
    ------
    CorruptDataError
        It is not OME-XML, or larger than is accepted.
    """
    data = store.get(key, limits.MAX_XML_BYTES)
    return None if data is None else parse_ome_xml(data)


def merge_ome(image: Image, ome: OmeImage) -> Image:
    """Name, channels, optics, dates, and sizes where the scale gives none, from the OME image of the same series."""
    image = replace(
        image,
        name=ome.name or image.name,
        channels=_channels(image, ome),
        objective=ome.objective or image.objective,
        instrument=ome.instrument or image.instrument,
        acquired_at=ome.acquired_at or image.acquired_at,
        extra={**ome.extra, **image.extra},
    )
    if image.physical_size is None:
        for axis, (value, unit) in ome.physical_size.items():
            image = _with_scale(image, axis, value, unit)
    if image.time_increment_s is None and ome.time_increment is not None:
        image = _with_scale(image, "t", *ome.time_increment)
    return image


def _channels(image: Image, ome: OmeImage) -> tuple[Channel, ...]:
    """OME's channels, one for each along c, with the windows of omero and what else only omero has."""
    count = image.size("c")
    described = [c.channel for c in ome.channels]
    samples = [c.samples_per_pixel or 1 for c in ome.channels]
    if len(described) != count and sum(samples) == count <= limits.MAX_CHANNELS:
        described = [
            _of_samples(channel, n)
            for channel, n in zip(described, samples, strict=True)
            for _ in range(n)
        ]
    if not described:
        return image.channels
    known = list(image.channels[: len(described)])
    known += [Channel()] * (len(described) - len(known))
    merged = [_over(first, second) for first, second in zip(described, known, strict=True)]
    return (*merged, *image.channels[len(merged) :])


def _of_samples(channel: Channel, samples: int) -> Channel:
    """One sample's description: name and colour of a colour channel are those of all its samples together."""
    return channel if samples == 1 else replace(channel, name=None, color=None)


def _over(ome: Channel, omero: Channel) -> Channel:
    return replace(
        ome,
        name=ome.name or omero.name,
        color=ome.color or omero.color,
        window=ome.window or omero.window,
    )


def _with_scale(image: Image, axis: str, value: float, unit: str | None) -> Image:
    """The image with the size of one axis set, and those of its other levels in proportion."""
    place = image.axis_names.find(axis)
    if place < 0 or unit is None:
        return image
    base = image.levels[0]
    levels = []
    for level in image.levels:
        ours, first = level.scale[place], base.scale[place]
        if ours is not None and first is not None:
            factor = ours / first
        else:
            factor = base.array.shape[place] / max(1, level.array.shape[place])
        levels.append(_level_with(level, place, value * factor))
    axes = tuple(Axis(item.name, unit) if n == place else item for n, item in enumerate(image.axes))
    return replace(image, axes=axes, levels=tuple(levels))


def _level_with(level: ResolutionLevel, place: int, value: float) -> ResolutionLevel:
    scale = tuple(value if n == place else old for n, old in enumerate(level.scale))
    return replace(level, scale=scale)
