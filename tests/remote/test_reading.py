"""The fixtures behind a web server, read as they are read from a disk."""

from __future__ import annotations

import json

import pytest
from server import serving

import openreadout

ZARR3 = "ome-zarr/v3-sharded/sharded.ome.zarr"
ZARR2 = "ome-zarr/ome-zarr-py-0.4/image.ome.zarr"
ZIP = "ome-zarr/v3-zip/packed.ozx"
TIFF = "ome-tiff/pyramid/cells.ome.tiff"
N5 = "n5/z5py-viewer-pyramid/pyramid.n5"
LISTED = [
    ZARR3,
    ZARR2,
    ZIP,
    TIFF,
    "ome-zarr/v3-plate/plate.zarr",
    "ome-zarr/v3-labels/labelled.zarr",
]


def expected(fixtures, data):
    return json.loads((fixtures / data).parent.joinpath("expected.json").read_text("utf-8"))


def hashes(planes):
    return sorted(
        (p["image"], p["level"], p["t"], p["c"], p["z"], p["xxh3"]) for p in planes if "xxh3" in p
    )


@pytest.mark.parametrize("data", LISTED)
def test_every_plane_has_the_digest_that_other_libraries_found(server, command, fixtures, data):
    code, said, _ = command("check", "--planes", "--level", "all", "--json", f"{server.url}/{data}")
    assert code == 0
    assert hashes(said["data"]["planes"]) == hashes(expected(fixtures, data)["planes"])


def test_n5_is_walked_where_the_server_lists_folders(fixtures, command):
    with serving(fixtures, index=True) as server:
        code, said, _ = command(
            "check", "--planes", "--level", "all", "--json", f"{server.url}/{N5}"
        )
    assert code == 0
    assert hashes(said["data"]["planes"]) == hashes(expected(fixtures, N5)["planes"])


def test_n5_without_a_listing_is_found_by_the_usual_names(server, command):
    code, said, _ = command("info", "--json", f"{server.url}/{N5}/em")
    assert code == 0
    assert [level["path"] for level in said["data"]["images"][0]["resolution_levels"]] == [
        "s0",
        "s1",
    ]


def test_n5_that_cannot_be_found_says_what_to_give(server, command):
    code, said, err = command("info", "--json", f"{server.url}/{N5}")
    assert (code, said["error"]["code"]) == (6, "unsupported_feature")
    assert "does not list" in err
    assert "the address of a dataset" in said["error"]["hint"]


@pytest.mark.parametrize("data", [ZARR3, ZARR2, ZIP, TIFF])
def test_info_says_what_it_says_of_the_same_data_on_a_disk(server, command, fixtures, data):
    _, there, _ = command("info", "--json", f"{server.url}/{data}")
    _, here, _ = command("info", "--json", fixtures / data)
    for said in (there["data"], here["data"]):
        for key in ("path", "size_bytes", "format_version"):
            del said[key]
    assert there == here


def test_the_size_of_a_file_is_told_and_that_of_a_folder_is_not(server, command, fixtures):
    _, file, _ = command("info", "--json", f"{server.url}/{TIFF}")
    _, folder, _ = command("info", "--json", f"{server.url}/{ZARR3}")
    assert file["data"]["size_bytes"] == (fixtures / TIFF).stat().st_size
    assert folder["data"]["size_bytes"] is None


@pytest.mark.parametrize(
    ("data", "most"),
    [
        (ZARR3, 3 + 2),  # root, OME-XML, labels, and each of two levels
        (
            ZARR2,
            5 + 2 * 2,
        ),  # three documents, OME-XML, labels; each level, and where its chunks lie
        (ZIP, 1),
        (TIFF, 1),
    ],
)
def test_info_asks_no_more_than_the_page_on_remote_stores_says(server, command, data, most):
    assert command("info", f"{server.url}/{data}")[0] == 0
    assert len(server.requests) <= most, server.requests


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_trusted_consolidated_metadata_save_the_requests(tmp_path, command):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=3)
    for n in range(3):
        group.create_array(str(n), shape=(8, 8), chunks=(8, 8), dtype="uint8")
    group.attrs["ome"] = {
        "version": "0.5",
        "multiscales": [
            {
                "axes": [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}],
                "datasets": [
                    {
                        "path": str(n),
                        "coordinateTransformations": [{"type": "scale", "scale": [2.0**n] * 2}],
                    }
                    for n in range(3)
                ],
            }
        ],
    }
    zarr.consolidate_metadata(tmp_path / "a.zarr")
    with serving(tmp_path) as server:
        code, said, _ = command("info", "--json", "--trust-consolidated", f"{server.url}/a.zarr")
        trusting = len(server.requests)
        command("info", "--json", f"{server.url}/a.zarr")
        wary = len(server.requests) - trusting
    assert code == 0
    assert len(said["data"]["images"][0]["resolution_levels"]) == 3
    assert (trusting, wary) == (2, 6)


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_stale_consolidated_metadata_are_not_used_unless_trusted(tmp_path, command):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=3)
    group.create_array("0", shape=(8, 8), chunks=(8, 8), dtype="uint8")
    axes = [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
    scale = [{"type": "scale", "scale": [1.0, 1.0]}]
    datasets = [{"path": "0", "coordinateTransformations": scale}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    zarr.consolidate_metadata(tmp_path / "a.zarr")
    zarr.create_array(
        tmp_path / "a.zarr" / "0", shape=(16, 8), chunks=(8, 8), dtype="uint8", overwrite=True
    )
    with serving(tmp_path) as server:
        sizes = [
            command("info", "--json", *options, f"{server.url}/a.zarr")[1]["data"]["images"][0][
                "size_y"
            ]
            for options in ([], ["--trust-consolidated"])
        ]
    assert sizes == [16, 8]


def test_an_absent_chunk_is_the_fill_value(server, command, fixtures):
    server.fault = lambda path, turn: "404" if path.endswith("/c/0/0/1/1") else None
    code, said, _ = command("check", "--json", f"{server.url}/{ZARR3}")
    assert code == 0
    assert "missing_chunks" in {f["code"] for f in said["data"]["findings"]}


def test_an_export_of_a_remote_store_is_the_export_of_the_local_one(
    server, command, fixtures, tmp_path
):
    for name, source in (("far", f"{server.url}/{ZARR3}"), ("near", fixtures / ZARR3)):
        code, _, err = (
            command("export", source, "--to", "ome-zarr", "-o", tmp_path / name / "a.zarr")
            if ((tmp_path / name).mkdir() is None)
            else (1, "", "")
        )
        assert code == 0, err
    far, near = (
        {
            p.relative_to(tmp_path / name): p.read_bytes()
            for p in (tmp_path / name).rglob("*")
            if p.is_file()
        }
        for name in ("far", "near")
    )
    assert far == near


@pytest.mark.parametrize(
    "options", [(), ("--chunks", "24,24"), ("--codec", "zstd:1")], ids=" ".join
)
def test_an_export_asks_once_for_each_chunk(server, command, fixtures, tmp_path, options):
    code, _, err = command(
        "export", f"{server.url}/{ZARR2}", "--to", "ome-zarr", "-o", tmp_path / "a.zarr", "--no-verify", *options
    )  # fmt: skip
    assert code == 0, err
    chunks = {
        f"/{p.relative_to(fixtures)}"
        for p in (fixtures / ZARR2).rglob("*")
        if p.is_file() and not p.name.startswith(".") and p.suffix != ".xml"
    }
    asked = [path for _, path in server.requests if path in chunks]
    beyond = {path for path in asked if asked.count(path) > 1}
    # one chunk of each level is looked at before the export is planned, to see what can be copied
    assert len(beyond) <= 2, beyond
    assert chunks == set(asked)


def test_a_remote_tiff_is_exported_and_previewed(server, command, tmp_path):
    code, _, err = command(
        "export", f"{server.url}/{TIFF}", "--to", "ome-zarr", "-o", tmp_path / "a.zarr"
    )
    assert code == 0, err
    assert command("check", f"{server.url}/{TIFF}", "--against", tmp_path / "a.zarr")[0] == 0
    assert command("preview", f"{server.url}/{TIFF}", "-o", tmp_path / "a.png")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_chunks_are_asked_for_at_the_same_time_and_not_too_many(server, command):
    server.fault = lambda path, turn: None
    command("check", "--full", f"{server.url}/{ZARR2}")
    from openreadout.limits import MAX_REQUESTS

    assert server.most_busy <= MAX_REQUESTS


def test_an_image_behind_a_url_is_pickled_by_it(server):
    import pickle

    with openreadout.open(f"{server.url}/{ZARR2}") as dataset:
        image = dataset.images[0]
        plane = image.read_plane()
        again = pickle.loads(pickle.dumps(image))
    assert (again.read_plane() == plane).all()


def test_the_address_of_a_document_stands_for_its_folder(server, command):
    code, said, _ = command("info", "--json", f"{server.url}/{ZARR3}/zarr.json")
    assert (code, said["data"]["format"]["id"]) == (0, "ome-zarr")


def test_nothing_is_changed_in_place_behind_a_url(server, command):
    code, _, err = command("export", "--in-place", "--to", "ome-zarr", f"{server.url}/{N5}")
    assert code == 2
    assert "changed in place" in err


def test_a_signature_behind_the_address_goes_with_every_request(server, command):
    code, said, _ = command("check", "--json", f"{server.url}/{ZARR2}?sig=a%2Fb")
    assert (code, said["data"]["ok"]) == (0, True)


@pytest.mark.parametrize(
    "data", [ZARR3, "ome-zarr/v3-plate/plate.zarr", "ome-zarr/v3-labels/labelled.zarr"]
)
def test_the_structure_has_what_metadata_mention_where_nothing_is_listed(
    server, command, fixtures, data
):
    def paths(node):
        return {node["path"]} | {
            path for child in node.get("children", ()) for path in paths(child)
        }

    places = (f"{server.url}/{data}", fixtures / data)
    far, near = (
        paths(command("info", "--view", "structure", "--json", place)[1]["data"]["structure"])
        for place in places
    )
    assert far == near


def test_parts_of_an_export_from_a_server_make_the_export_of_the_local_data(
    server, command, fixtures, tmp_path
):
    source, target = f"{server.url}/{ZARR3}", tmp_path / "a.zarr"
    for step in (["--part", "1/2"], ["--part", "2/2"], ["--commit"]):
        code, _, err = command("export", source, "--to", "ome-zarr", "-o", target, *step)
        assert code == 0, err
    assert command("check", target, "--against", fixtures / ZARR3)[0] == 0
