"""Rules of NGFF that `check` tells of and reading does without."""

from __future__ import annotations

import pytest

from openreadout.registry import open_dataset
from openreadout_ome_zarr.rules import broken_rules, crossed_indices, unmet_advice

WELL = {"path": "A/1", "rowIndex": 0, "columnIndex": 0}
PLATE = {
    "version": "0.4",
    "name": "P",
    "rows": [{"name": "A"}],
    "columns": [{"name": "1"}],
    "wells": [WELL],
}


def test_sound_metadata_breaks_nothing(make):
    assert broken_rules({"multiscales": [make.multiscale("tczyx")]}) == []
    assert broken_rules({"plate": PLATE}) == []
    assert crossed_indices({"plate": PLATE}) == []
    assert unmet_advice({"plate": PLATE}) == []
    assert broken_rules({"multiscales": [{"version": "0.1", "datasets": [{"path": "0"}]}]}) == []
    assert (
        broken_rules(
            {"multiscales": [{"version": "0.3", "axes": ["y", "x"], "datasets": [{"path": "0"}]}]}
        )
        == []
    )


@pytest.mark.parametrize("names", ["xyzct", "zyxt", "x", "tczyxx", "ttyx"])
def test_axes_out_of_order_or_number(make, names):
    assert broken_rules({"multiscales": [make.multiscale(names)]})


@pytest.mark.parametrize(
    "well",
    [
        {**WELL, "rowIndex": 1},
        {**WELL, "columnIndex": 5},
        {**WELL, "path": "B/1"},
        {**WELL, "path": "1/A"},
    ],
)
def test_indices_that_belong_to_another_well(well):
    assert crossed_indices({"plate": {**PLATE, "wells": [well]}})


def test_advice(make):
    plate = {key: value for key, value in PLATE.items() if key not in ("name", "version")}
    assert len(unmet_advice({"plate": {**plate, "acquisitions": [{"id": 0}]}})) == 4


@pytest.mark.parametrize("value", [None, 3, [], [3], {"a": []}, "x", [{"version": 4}], [[]]])
@pytest.mark.parametrize("key", ["multiscales", "omero", "plate", "well", "image-label"])
def test_no_value_stops_the_rules(key, value):
    assert isinstance(broken_rules({key: value}), list)
    assert isinstance(crossed_indices({key: value}), list)
    assert isinstance(unmet_advice({key: value}), list)


def test_check_tells_with_the_document_and_never_as_an_error(tmp_path, make):
    make.image(tmp_path, (4, 4), "xy", attributes={"omero": {"channels": [{"color": "#FF0000"}]}})
    with open_dataset(str(tmp_path)) as dataset:
        found = list(dataset.inspect(False))
    assert {(f.severity, f.location, f.image) for f in found} == {("warning", ".zattrs", 0)}
    assert any("color" in f.message for f in found)
