"""A plate that an export carried along where NGFF has no place for it, whole and damaged."""

from __future__ import annotations

import pytest

from openreadout_ome_zarr.carried import VERSION, carried_plate

WELL = {"path": "A/1", "row": "A", "column": "1", "images": [0, 1]}
PLATE = {
    "name": "p",
    "rows": ["A", 5, "B"],
    "columns": ["1"],
    "wells": [WELL],
    "acquisitions": [{"id": 0}, 7],
    "extra": {"k": 1},
}


def carried(plate):
    return carried_plate({"openreadout": {"version": VERSION, "plate": plate}}, 2)


def test_a_carried_plate_has_its_wells_and_names():
    plate = carried(PLATE)
    assert (plate.name, plate.rows, plate.columns) == ("p", ("A", "5", "B"), ("1",))
    (well,) = plate.wells
    assert (well.path, well.row, well.column, well.images) == ("A/1", "A", "1", (0, 1))
    assert plate.acquisitions == ({"id": 0},)
    assert plate.extra == {"k": 1}


def test_a_plate_of_another_version_is_none():
    assert carried_plate({"openreadout": {"version": "0", "plate": PLATE}}, 2) is None
    assert carried_plate({}, 2) is None


@pytest.mark.parametrize(
    "change",
    [{"path": None}, {"row": []}, {"column": []}, {"images": 3}, {"images": [2]}, {"images": [-1]},
     {"images": [True]}, {"images": ["0"]}, {"images": [0.0]}],
    ids=str,
)  # fmt: skip
def test_a_well_that_does_not_hold_takes_the_plate_with_it(change):
    assert carried(PLATE | {"wells": [WELL, WELL | change]}) is None


@pytest.mark.parametrize("plate", [None, 5, [], "x", {}, {"wells": {}}, {"wells": None}], ids=str)
def test_what_is_no_plate_is_none(plate):
    assert carried(plate) is None


def test_names_and_lists_that_are_none_are_empty():
    plate = carried({"wells": [], "rows": 5, "columns": None, "acquisitions": {}, "extra": []})
    assert (plate.rows, plate.columns, plate.wells, plate.acquisitions) == ((), (), (), ())
    assert not plate.extra
