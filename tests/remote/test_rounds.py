"""How often `info` and `check` wait for a server: requests that depend on nothing are made at once."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import zarr
from server import serving

ZARR3 = "ome-zarr/v3-sharded/sharded.ome.zarr"
ZARR2 = "ome-zarr/ome-zarr-py-0.4/image.ome.zarr"
ZIP = "ome-zarr/v3-zip/packed.ozx"
TIFF = "ome-tiff/pyramid/cells.ome.tiff"
N5 = "n5/z5py-viewer-pyramid/pyramid.n5/em"
WELLS, FIELDS = 12, 2


@pytest.mark.parametrize(
    ("data", "most"),
    [
        (ZARR3, 2),  # the root; everything that it names
        (ZARR2, 4),  # is it Zarr v3; the root; everything that it names; where the chunks lie
        (ZIP, 1),
        (TIFF, 1),
    ],
)
def test_info_waits_no_more_often_than_the_page_on_remote_stores_says(
    server, command, rounds, data, most
):
    assert command("info", f"{server.url}/{data}")[0] == 0
    assert rounds[0] <= most


def test_n5_is_looked_for_in_few_rounds(fixtures, command, rounds):
    with serving(fixtures) as server:
        assert command("info", f"{server.url}/{N5}")[0] == 0
        # Zarr v3; Zarr v2 and N5; groups without attributes; a list; the usual names, each time their own and inside
        assert rounds[0] <= 9
        assert len(server.requests) <= 18


def image(path, zarr_format):
    axes = [{"name": n, "type": "space"} for n in "yx"]
    datasets = [
        {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1.0, 1.0]}]}
    ]
    multiscales = [{"axes": axes, "datasets": datasets, "version": "0.4"}]
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    more = {"chunk_key_encoding": {"name": "v2", "separator": "/"}} if zarr_format == 2 else {}
    array = group.create_array("0", shape=(8, 8), chunks=(8, 8), dtype="uint8", **more)
    array[:] = np.arange(64, dtype="uint8").reshape(8, 8)
    attributes = {"multiscales": multiscales}
    group.attrs.update(
        attributes if zarr_format == 2 else {"ome": {"version": "0.5", **attributes}}
    )


def plate(path, zarr_format):
    """A plate of many wells of two fields each."""
    attributes = {
        "plate": {
            "version": "0.4",
            "rows": [{"name": "A"}],
            "columns": [{"name": str(n)} for n in range(WELLS)],
            "wells": [{"path": f"A/{n}", "rowIndex": 0, "columnIndex": n} for n in range(WELLS)],
        }
    }
    inside = {"well": {"version": "0.4", "images": [{"path": str(n)} for n in range(FIELDS)]}}
    root = zarr.open_group(path, mode="w", zarr_format=zarr_format)

    def attrs(block):
        return block if zarr_format == 2 else {"ome": {"version": "0.5", **block}}

    root.attrs.update(attrs(attributes))
    root.create_group("A")
    for n in range(WELLS):
        zarr.open_group(path / "A" / str(n), mode="w", zarr_format=zarr_format).attrs.update(
            attrs(inside)
        )
        for field in range(FIELDS):
            image(path / "A" / str(n) / str(field), zarr_format)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("arguments", [["info"], ["check"]])
def test_a_plate_takes_as_many_rounds_as_it_is_deep(
    tmp_path, command, rounds, zarr_format, arguments
):
    plate(tmp_path / "a.zarr", zarr_format)
    with serving(tmp_path) as server:
        code, said, _ = command(*arguments, "--json", f"{server.url}/a.zarr")
    assert code == 0
    if arguments == ["info"]:
        assert len(said["data"]["images"]) == WELLS * FIELDS
    # is it Zarr v3; the root; OME-XML and labels; wells; fields; their arrays and labels; where the chunks lie
    assert rounds[0] <= 7
    documents = [p for m, p in server.requests if p.endswith((".json", ".zattrs", ".zarray"))]
    assert len(documents) == len(set(documents))
    from openreadout.limits import MAX_REQUESTS

    assert server.most_busy <= MAX_REQUESTS


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_nothing_depends_on_what_was_asked_ahead(tmp_path, command, monkeypatch, zarr_format):
    from openreadout.remote import store

    plate(tmp_path / "a.zarr", zarr_format)
    monkeypatch.setattr(store, "MAX_AHEAD", 3)
    with serving(tmp_path) as server:
        _, far, _ = command("info", "--json", f"{server.url}/a.zarr")
        _, near, _ = command("info", "--json", tmp_path / "a.zarr")
    assert far["data"]["images"] == near["data"]["images"]
    assert far["data"]["plate"] == near["data"]["plate"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_wells_and_fields_that_are_lacking_or_damaged_are_told_as_on_a_disk(
    tmp_path, command, zarr_format
):
    folder = tmp_path / "a.zarr"
    plate(folder, zarr_format)
    document = ".zattrs" if zarr_format == 2 else "zarr.json"
    array = ".zarray" if zarr_format == 2 else "zarr.json"
    shutil.rmtree(folder / "A" / "1")
    shutil.rmtree(folder / "A" / "2" / "1")
    (folder / "A" / "3" / document).write_text("{")
    (folder / "A" / "4" / "0" / document).write_text("[]")
    (folder / "A" / "5" / "0" / "0" / array).write_text("{}")
    with serving(tmp_path) as server:
        far = command("check", "--json", f"{server.url}/a.zarr")
        near = command("check", "--json", folder)
    assert far[0] == near[0]

    def told(said):
        # a server does not tell which keys no array explains
        return [
            (f["code"], f["severity"], f["message"], f.get("location"))
            for f in said["data"]["findings"]
            if f["code"] != "unexpected_file"
        ]

    assert told(far[1]) == told(near[1])


@pytest.mark.parametrize("fault", ["403", "500", "cut"])
@pytest.mark.parametrize("where", ["/A/7/zarr.json", "/A/7/1/zarr.json", "/A/7/1/0/zarr.json"])
def test_a_document_of_a_plate_that_fails_is_an_error(tmp_path, command, fault, where):
    plate(tmp_path / "a.zarr", 3)
    with serving(tmp_path) as server:
        server.fault = lambda path, turn: fault if path.endswith(where) else None
        for arguments in (["info"], ["check"]):
            code, said, _ = command(*arguments, "--json", f"{server.url}/a.zarr")
            assert (code, said["error"]["code"]) == (5, "io")
            assert where in said["error"]["message"]
