"""Copies of metadata that a server gives in one document, damaged; and images that are declared and not stored."""

from __future__ import annotations

import json

import pytest
from server import serving

from openreadout.errors import CorruptDataError
from openreadout.remote.consolidated import copies
from tests.robustness import build


def found(root=None, older=None):
    data = None if root is None else json.dumps(root).encode()
    return copies(data, lambda: None if older is None else json.dumps(older).encode(), "a.zarr")


def test_copies_are_those_of_the_newer_document():
    block = {"metadata": {"/0/": {"node_type": "array"}, "": {"x": 1}, "/": {}}}
    documents, absent = found({"consolidated_metadata": block}, {"metadata": {"0/.zarray": {}}})
    assert documents == {"0/zarr.json": b'{"node_type": "array"}'}
    assert {"zarr.json", ".zarray", ".zgroup", ".zattrs"} <= absent
    documents, _ = found(None, {"metadata": {"0/.zarray": {"shape": [1]}}})
    assert documents == {"0/.zarray": b'{"shape": [1]}'}


def test_without_copies_there_are_none():
    assert found({"consolidated_metadata": None}) is None
    assert found({}, {"metadata": {}}) is None
    assert found() is None


@pytest.mark.parametrize("root", [[], 5, None, "x"])
def test_a_document_that_is_no_object_is_damage(root):
    with pytest.raises(CorruptDataError, match="not a JSON object"):
        copies(json.dumps(root).encode(), lambda: None, "a.zarr")
    with pytest.raises(CorruptDataError, match="not a JSON object"):
        copies(None, lambda: json.dumps(root).encode(), "a.zarr")


@pytest.mark.parametrize("metadata", [None, [], 5, "x"])
def test_copies_without_documents_are_damage_and_the_hint_says_how_to_do_without(metadata):
    for given in (
        {"root": {"consolidated_metadata": {"metadata": metadata}}},
        {"older": {"metadata": metadata}},
    ):
        with pytest.raises(CorruptDataError, match="hold no documents") as caught:
            found(**given)
        assert "leave out --trust-consolidated" in caught.value.hint


def test_copies_that_are_damaged_are_trusted_only_when_asked(tmp_path, command):
    source = build.ome_zarr(tmp_path / "a.zarr")
    document = source / "zarr.json"
    root = json.loads(document.read_text(encoding="utf-8"))
    document.write_text(json.dumps(root | {"consolidated_metadata": {"metadata": 5}}), "utf-8")
    with serving(tmp_path) as server:
        code, said, _ = command("info", "--json", f"{server.url}/a.zarr")
        assert (code, said["data"]["images"][0]["size_x"]) == (0, 8)
        code, said, _ = command("info", "--json", "--trust-consolidated", f"{server.url}/a.zarr")
    assert (code, said["error"]["code"]) == (4, "corrupt_file")
    assert "hold no documents" in said["error"]["message"]


@pytest.mark.parametrize(
    "limit", ["MAX_EMPTY_PARTS=5", "MAX_EMPTY_BYTES=20"], ids=["parts", "bytes"]
)
def test_an_image_behind_an_address_of_which_nothing_is_stored_is_not_walked_through(
    tmp_path, command, limit
):
    array = build.array3(shape=[16, 16], chunk_grid=build.grid(2, 2))
    build.ome_zarr(tmp_path / "empty.zarr", array, None)
    build.ome_zarr(tmp_path / "full.zarr", array, bytes(8))
    words = ("check", "--planes", "--json", "--limit", limit)
    with serving(tmp_path) as server:
        code, said, _ = command(*words, f"{server.url}/empty.zarr")
        assert (code, said["error"]["code"]) == (6, "unsupported_feature")
        assert "64 chunks are declared, and none of 64" in said["error"]["message"]
        assert f"--limit {limit.partition('=')[0]}=" in said["error"]["hint"]
        assert command(*words, f"{server.url}/full.zarr")[0] == 0
        assert command("check", "--planes", "--json", f"{server.url}/empty.zarr")[0] == 0
