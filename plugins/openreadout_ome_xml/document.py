"""What an OME-XML document says, as plain frozen values.

Lengths and times keep the unit of the document under its UDUNITS name; what has no field here stands in `extra` as JSON
values. Indices of planes are zero-based.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from openreadout.model import Channel, Plate, Well

Quantity = tuple[float, str | None]
"""A number and the UDUNITS name of its unit, None for a unit that is not a length or a time."""


class TiffData(NamedTuple):
    """One TiffData element; None where an attribute is not there (OME-TIFF specification, "The TiffData element")."""

    ifd: int | None
    plane_count: int | None
    first_z: int
    first_c: int
    first_t: int
    uuid: str | None
    file_name: str | None


class OmePlane(NamedTuple):
    """One Plane element: its indices, exposure and time since the start in seconds, and stage position."""

    z: int
    c: int
    t: int
    exposure_s: float | None
    delta_t_s: float | None
    position: Mapping[str, tuple[float, str]]


class BinaryOnly(NamedTuple):
    """A document that only points to the companion file which holds the metadata."""

    metadata_file: str
    uuid: str | None


@dataclass(frozen=True, slots=True)
class OmeChannel:
    """One Channel: `samples_per_pixel` counts colour samples, None when the document does not say."""

    id: str | None
    samples_per_pixel: int | None
    channel: Channel


@dataclass(frozen=True, slots=True)
class OmeImage:
    """One Image with its Pixels.

    Attributes
    ----------
    size_c : int
        `SizeC` as written: colour samples count as channels here.
    pixel_type : str or None
        OME's name (`uint8`, `float`, `bit`, ...).
    physical_size : mapping
        Voxel sizes by axis letter (`x y z`), only those above zero.
    time_increment : Quantity or None
    objective, instrument : mapping or None
        JSON values, with names in lower case and underscores.
    extra : mapping
        JSON values: annotations, modulo dimensions, stage positions, irregular times.
    """

    id: str | None
    name: str | None
    size_x: int
    size_y: int
    size_z: int
    size_c: int
    size_t: int
    dimension_order: str
    pixel_type: str | None
    big_endian: bool | None
    channels: tuple[OmeChannel, ...]
    physical_size: Mapping[str, Quantity]
    time_increment: Quantity | None
    objective: Mapping[str, Any] | None
    instrument: Mapping[str, Any] | None
    acquired_at: str | None
    tiff_data: tuple[TiffData, ...]
    planes: tuple[OmePlane, ...]
    has_binary: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OmeWell:
    """One Well: zero-based `row` and `column`, and the ids of its images in order of WellSample/@Index."""

    row: int
    column: int
    image_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OmePlate:
    """One Plate, with the names of its rows and columns by its naming conventions."""

    id: str | None
    name: str | None
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    wells: tuple[OmeWell, ...]
    acquisitions: tuple[Mapping[str, Any], ...]
    extra: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OmeDocument:
    """A parsed document.

    Attributes
    ----------
    version : str or None
        Schema version from the namespace (`2016-06`).
    annotations : mapping
        Every structured annotation by id, as JSON values; XML values are text.
    text : str
        The document as it was parsed.
    repairs : tuple of str
        What had to be mended before it could be parsed, in words.
    """

    version: str | None
    uuid: str | None
    creator: str | None
    images: tuple[OmeImage, ...]
    plates: tuple[OmePlate, ...]
    annotations: Mapping[str, Any]
    binary_only: BinaryOnly | None
    text: str
    repairs: tuple[str, ...] = ()

    def model_plate(self) -> Plate | None:
        """The first plate with wells as the model has it, its wells pointing to indices of `images`.

        Images that the plate names and the document lacks are left out. Further plates stand in `extra`.
        """
        if not self.plates:
            return None
        places = {image.id: n for n, image in enumerate(self.images) if image.id is not None}
        first = next((plate for plate in self.plates if plate.wells), self.plates[0])
        wells = tuple(_model_well(first, well, places) for well in first.wells)
        others = [plate.name or plate.id for plate in self.plates if plate is not first]
        extra = {**first.extra, **({"other_plates": others} if others else {})}
        return Plate(first.name, first.rows, first.columns, wells, first.acquisitions, extra)


def _model_well(plate: OmePlate, well: OmeWell, places: Mapping[str, int]) -> Well:
    row, column = plate.rows[well.row], plate.columns[well.column]
    images = tuple(places[name] for name in well.image_ids if name in places)
    return Well(f"{row}/{column}", row, column, images)
