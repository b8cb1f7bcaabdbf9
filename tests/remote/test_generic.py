"""Object stores by way of any fsspec file system, with one in memory in place of Google's."""

from __future__ import annotations

import json

import pytest

ZARR3 = "ome-zarr/v3-sharded/sharded.ome.zarr"
ZARR2 = "ome-zarr/ome-zarr-py-0.4/image.ome.zarr"
TIFF = "ome-tiff/pyramid/cells.ome.tiff"
N5 = "n5/z5py-viewer-pyramid/pyramid.n5"


@pytest.fixture
def memory(fixtures, monkeypatch):
    """A file system in memory that `gs://` leads to, with some fixtures in it."""
    from fsspec.implementations.memory import MemoryFileSystem

    from openreadout.remote import generic

    system = MemoryFileSystem()
    for data in (ZARR3, ZARR2, TIFF, N5):
        for file in [fixtures / data, *(fixtures / data).rglob("*")]:
            if file.is_file():
                system.pipe_file(f"/bucket/{file.relative_to(fixtures)}", file.read_bytes())
    monkeypatch.setattr(generic, "google", lambda: generic.SystemTransport(system))
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.mark.parametrize("data", [ZARR3, ZARR2, TIFF, N5])
@pytest.mark.usefixtures("memory")
def test_every_plane_has_the_digest_that_other_libraries_found(command, fixtures, data):
    code, said, _ = command("check", "--planes", "--level", "all", "--json", f"gs://bucket/{data}")
    expected = json.loads((fixtures / data).parent.joinpath("expected.json").read_text("utf-8"))
    assert (code, said["data"]["findings"]) == (0, [])
    assert sorted(p["xxh3"] for p in said["data"]["planes"]) == sorted(
        p["xxh3"] for p in expected["planes"]
    )


@pytest.mark.parametrize("call", ["cat_file", "info", "ls"])
def test_whatever_the_file_system_raises_is_one_plain_error(memory, command, monkeypatch, call):
    def fail(*arguments, **options):
        raise RuntimeError("token expired")

    monkeypatch.setattr(type(memory), call, fail)
    code, said, _ = command("info", "--json", f"gs://bucket/{ZARR3}")
    assert (code, said["error"]["code"]) == (5, "io")
    assert "token expired" in said["error"]["message"]
