"""Plate, Well and WellSample elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openreadout.errors import CorruptDataError
from openreadout_ome_xml.document import OmePlate, OmeWell
from openreadout_ome_xml.elements import attributes, child, children, whole

if TYPE_CHECKING:
    from collections.abc import Collection

    from lxml.etree import _Element

MAX_SIDE = 10_000
"""Rows or columns of a plate; 1536-well plates have 48."""
MAX_NAMES = 1_000_000
"""Rows and columns of all plates of a document together."""


def plates(root: _Element, images: Collection[str]) -> tuple[OmePlate, ...]:
    """Every plate of a document.

    Parameters
    ----------
    root : element
    images : collection of str
        Ids of the document's images; wells keep only these.

    Raises
    ------
    CorruptDataError
        A row or column is not a number, or beyond any plate.
    """
    found, names = [], 0
    for element in children(root, "Plate"):
        plate = _plate(element, images)
        names += len(plate.rows) + len(plate.columns)
        if names > MAX_NAMES:
            raise CorruptDataError(f"plates with more than {MAX_NAMES} rows and columns")
        found.append(plate)
    return tuple(found)


def letters(number: int) -> str:
    """Row names as on plates: A to Z, then AA."""
    name = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def _plate(element: _Element, images: Collection[str]) -> OmePlate:
    wells = [_well(well, images) for well in children(element, "Well")]
    rows = max([_side(element, "Rows"), *(well.row + 1 for well in wells)])
    columns = max([_side(element, "Columns"), *(well.column + 1 for well in wells)])
    by_letter = element.get("RowNamingConvention", "letter") != "number"
    columns_by_letter = element.get("ColumnNamingConvention", "number") == "letter"
    runs = [
        {
            "id": n,
            **{k: v for k, v in attributes(run).items() if k != "id"},
            "ome_id": run.get("ID"),
        }
        for n, run in enumerate(children(element, "PlateAcquisition", "ScreenAcquisition"))
    ]
    kept = ("external_identifier", "status", "description", "well_origin_x", "well_origin_y")
    about = attributes(element)
    return OmePlate(
        id=element.get("ID"),
        name=element.get("Name") or None,
        rows=tuple(letters(n) if by_letter else str(n + 1) for n in range(rows)),
        columns=tuple(letters(n) if columns_by_letter else str(n + 1) for n in range(columns)),
        wells=tuple(sorted(wells, key=lambda well: (well.row, well.column))),
        acquisitions=tuple(runs),
        extra={key: about[key] for key in kept if key in about},
    )


def _side(element: _Element, name: str) -> int:
    value = whole(element.get(name), f"Plate/@{name}") or 0
    return _bounded(value, name)


def _bounded(value: int, name: str) -> int:
    if value > MAX_SIDE:
        raise CorruptDataError(f"Plate: {name} is {value}, more than any plate has")
    return value


def _well(element: _Element, images: Collection[str]) -> OmeWell:
    samples = []
    for place, sample in enumerate(children(element, "WellSample")):
        reference = child(sample, "ImageRef")
        name = reference.get("ID") if reference is not None else None
        if name in images:
            index = whole(sample.get("Index"), "WellSample/@Index")
            samples.append((index if index is not None else place, place, str(name)))
    return OmeWell(
        row=_bounded(whole(element.get("Row"), "Well/@Row") or 0, "Well/@Row"),
        column=_bounded(whole(element.get("Column"), "Well/@Column") or 0, "Well/@Column"),
        image_ids=tuple(name for _, _, name in sorted(samples)),
    )
