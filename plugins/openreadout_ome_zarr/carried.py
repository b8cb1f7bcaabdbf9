"""What the exporter of this program wrote beside NGFF, because NGFF has no place for it: `attributes["openreadout"]`.

It is JSON from a file like any other: what is not of the kind that belongs there is left out, with a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from openreadout import limits
from openreadout.model import Channel, Plate, Well
from openreadout_ome_zarr.checked import EMPTY, clean, mapping, plain_number, text
from openreadout_ome_zarr.images import CARRIED_KEY
from openreadout_ome_zarr.ngff import parse_color, parse_window

VERSION = 1


class Carried(NamedTuple):
    """The carried part of one image; `channels` is None when nothing is said of them."""

    name: str | None
    objective: Mapping[str, Any] | None
    instrument: Mapping[str, Any] | None
    acquired_at: str | None
    channels: tuple[Channel, ...] | None
    extra: Mapping[str, Any]
    attributes: Mapping[str, Any]
    ignored: tuple[str, ...]


def carried_block(attributes: Mapping[str, Any], what: str) -> Mapping[str, Any] | None:
    """The block `what` (`image`, `plate`, `dataset`) of a group's carried metadata, or None."""
    holder = mapping(attributes.get(CARRIED_KEY))
    block = holder.get(what)
    return block if holder.get("version") == VERSION and isinstance(block, dict) else None


def carried_plate(attributes: Mapping[str, Any], images: int) -> Plate | None:
    """The carried plate, with wells that name images of this store; None when there is none or it does not hold."""
    block = carried_block(attributes, "plate")
    if block is None or not isinstance(block.get("wells"), list):
        return None
    wells = []
    for item in block["wells"]:
        entry = mapping(item)
        path, row, column = (text(entry.get(key)) for key in ("path", "row", "column"))
        numbers = entry.get("images")
        if path is None or row is None or column is None or not isinstance(numbers, list):
            return None
        if not all(type(n) is int and 0 <= n < images for n in numbers):
            return None
        wells.append(Well(path, row, column, tuple(numbers)))
    rows, columns = (_texts(block.get(key)) for key in ("rows", "columns"))
    acquisitions = block.get("acquisitions")
    listed = acquisitions if isinstance(acquisitions, list) else []
    return Plate(
        name=text(block.get("name")),
        rows=rows,
        columns=columns,
        wells=tuple(wells),
        acquisitions=tuple(clean(item) for item in listed if isinstance(item, dict)),
        extra=clean(dict(mapping(block.get("extra")))),
    )


def _texts(value: object) -> tuple[str, ...]:
    found = [text(item) for item in value] if isinstance(value, list) else []
    return tuple(item for item in found if item is not None)


def carried_image(attributes: Mapping[str, Any]) -> Carried | None:
    """The carried part of an image group's attributes, or None when there is none that this version knows."""
    block = carried_block(attributes, "image")
    if block is None:
        return None
    ignored: list[str] = []

    def taken(source: Mapping[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
        value = source.get(key)
        if value is None:
            return None
        if isinstance(value, kind) and not isinstance(value, bool):
            return clean(value)
        ignored.append(key)
        return None

    def channel(item: object) -> Channel:
        entry = mapping(item)
        numbers = {}
        for key in ("excitation_nm", "emission_nm", "exposure_s"):
            numbers[key] = plain_number(taken(entry, key, (int, float)))
        return Channel(
            name=text(taken(entry, "name", str)),
            color=parse_color(taken(entry, "color", str)),
            fluorophore=text(taken(entry, "fluorophore", str)),
            window=parse_window(taken(entry, "window", dict)),
            extra=taken(entry, "extra", dict) or {},
            **numbers,
        )

    channels = taken(block, "channels", list)
    return Carried(
        name=text(taken(block, "name", str)),
        objective=taken(block, "objective", dict),
        instrument=taken(block, "instrument", dict),
        acquired_at=text(taken(block, "acquired_at", str)),
        channels=None if channels is None else tuple(map(channel, channels[: limits.MAX_CHANNELS])),
        extra=taken(block, "extra", dict) or EMPTY,
        attributes=taken(block, "attributes", dict) or EMPTY,
        ignored=tuple(dict.fromkeys(ignored)),
    )
