"""Where the images of an export go: at the root, in a collection, in the wells of a plate, below their image."""

from __future__ import annotations

from dataclasses import replace

from openreadout.model import Dataset, Image, Plate, Well


def places_of(
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
    elif len(main) == 1 and not dataset.images[main[0]].label:
        layout = "image"
        places[main[0]] = ""
    else:
        series = [n for n in main if not dataset.images[n].label]
        for at, index in enumerate(series):
            places[index] = str(at)
    _place_labels(dataset, chosen, places)
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
    dataset: Dataset, chosen: list[tuple[int, Image]], places: dict[int, str]
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


def _safe_name(name: str) -> str:
    """A name that is one harmless path segment."""
    kept = "".join(c if c.isalnum() or c in "._- " else "_" for c in name).strip(" .")
    return kept or "_"


def _alphanumeric(name: str) -> str:
    kept = "".join(c for c in name if c.isascii() and c.isalnum())
    return kept or "0"
