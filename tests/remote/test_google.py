"""`gs://` by way of gcsfs, against a bucket on loopback that speaks Google's JSON API."""

from __future__ import annotations

import asyncio
import json

import pytest
from conftest import needs
from gcs import bucket

import openreadout

pytestmark = needs("gcsfs")

ZARR3 = "ome-zarr/v3-sharded/sharded.ome.zarr"
ZARR2 = "ome-zarr/ome-zarr-py-0.4/image.ome.zarr"
ZIP = "ome-zarr/v3-zip/packed.ozx"
TIFF = "ome-tiff/pyramid/cells.ome.tiff"
N5 = "n5/z5py-viewer-pyramid/pyramid.n5"
DATA = [ZARR3, ZARR2, ZIP, TIFF, N5]


@pytest.fixture
def google(fixtures, monkeypatch):
    """A bucket with some fixtures in it, that `gs://` leads to without credentials."""
    with bucket("cells") as server:
        for data in DATA:
            for file in [fixtures / data, *(fixtures / data).rglob("*")]:
                if file.is_file():
                    server.objects[str(file.relative_to(fixtures))] = file.read_bytes()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
        yield server


@pytest.fixture
def hasty(monkeypatch):
    """No waiting between the tries of gcsfs itself."""
    from gcsfs import retry

    class Hasty:
        @staticmethod
        async def sleep(seconds):
            await asyncio.sleep(0)

    monkeypatch.setattr(retry, "asyncio", Hasty)


def of_chunks(fault):
    """The fault for what is no metadata document."""
    return lambda name, turn: (
        None if name.endswith((".json", ".zattrs", ".zarray", ".zgroup", ".xml")) else fault
    )


@pytest.mark.usefixtures("google")
@pytest.mark.parametrize("data", DATA)
def test_every_plane_has_the_digest_that_other_libraries_found(command, fixtures, data):
    code, said, _ = command("check", "--planes", "--level", "all", "--json", f"gs://cells/{data}")
    expected = json.loads((fixtures / data).parent.joinpath("expected.json").read_text("utf-8"))
    assert (code, said["data"]["findings"]) == (0, [])
    assert sorted(p["xxh3"] for p in said["data"]["planes"]) == sorted(
        p["xxh3"] for p in expected["planes"]
    )


@pytest.mark.usefixtures("google")
@pytest.mark.parametrize("data", DATA)
def test_info_says_what_it_says_of_the_same_data_on_a_disk(command, fixtures, data):
    _, there, _ = command("info", "--json", f"gs://cells/{data}")
    _, here, _ = command("info", "--json", fixtures / data)
    for said in (there["data"], here["data"]):
        for key in ("path", "size_bytes", "format_version"):
            del said[key]
    assert there == here


@pytest.mark.usefixtures("google")
def test_an_export_from_a_bucket_is_the_data_on_a_disk(command, fixtures, tmp_path):
    target = tmp_path / "a.zarr"
    code, _, err = command("export", f"gs://cells/{ZARR3}", "--to", "ome-zarr", "-o", target)
    assert code == 0, err
    assert command("check", target, "--against", fixtures / ZARR3)[0] == 0


def test_lists_of_several_pages_are_read_to_the_end(google, command):
    google.page = 3
    code, said, _ = command("check", "--json", f"gs://cells/{ZARR3}")
    assert (code, said["data"]["findings"]) == (0, [])


def test_an_absent_object_is_an_absent_chunk(google, command):
    chunk = next(name for name in google.objects if name.startswith(f"{ZARR3}/0/c/"))
    google.fault = lambda name, turn: "404" if name == chunk else None
    with openreadout.open(f"gs://cells/{ZARR3}") as dataset:
        assert (dataset.images[0].read_region() == 0).any()
    del google.objects[chunk]
    code, said, _ = command("check", "--json", f"gs://cells/{ZARR3}")
    assert code == 0
    assert "missing_chunks" in {f["code"] for f in said["data"]["findings"]}


@pytest.mark.parametrize("fault", ["401", "403", "429", "500", "503", "cut"])
@pytest.mark.parametrize("data", [ZARR3, ZARR2, TIFF, N5])
@pytest.mark.parametrize("arguments", [["check"], ["check", "--planes"]], ids=" ".join)
def test_a_chunk_that_is_not_given_is_no_black_image(google, command, data, fault, arguments):
    google.fault = of_chunks(fault)
    code, said, err = command(*arguments, "--json", f"gs://cells/{data}")
    assert (code, said["error"]["code"]) == (5, "io")
    assert f"gs://cells/{data}" in said["error"]["message"]
    assert "Traceback" not in err


@pytest.mark.parametrize("fault", ["403", "500", "cut"])
@pytest.mark.parametrize("data", [ZARR3, TIFF])
def test_a_bucket_that_fails_is_an_error(google, command, data, fault):
    google.fault = lambda name, turn: fault
    code, said, err = command("info", "--json", f"gs://cells/{data}")
    assert (code, said["error"]["code"]) == (5, "io")
    assert "Traceback" not in err


@pytest.mark.parametrize("fault", ["500", "cut"])
@pytest.mark.parametrize("data", [ZARR3, TIFF])
def test_what_fails_once_is_asked_for_again(google, command, data, fault):
    google.fault = lambda name, turn: fault if turn == 0 else None
    assert command("check", "--full", f"gs://cells/{data}")[0] == 0


@pytest.mark.usefixtures("hasty")
def test_a_bucket_that_may_be_read_and_not_listed(google, command):
    google.listed = False
    code, said, err = command("check", "--planes", "--json", f"gs://cells/{ZARR3}")
    assert (code, said["data"]["ok"]) == (0, True)
    assert "Traceback" not in err


@pytest.mark.usefixtures("google")
@pytest.mark.parametrize("address", ["gs://cells/nothing.zarr", "gs://nobucket/a.zarr"])
def test_nothing_at_the_address(command, address):
    code, _, err = command("info", address)
    assert code in (3, 5)
    assert "Traceback" not in err


def test_a_shard_takes_one_request(google, command):
    assert command("check", "--full", f"gs://cells/{ZARR3}")[0] == 0
    shards = [name for name in google.requests if "/c/" in name]
    assert len(shards) == len(set(shards))


def test_a_login_goes_with_every_request_for_an_object(google, command, monkeypatch):
    from openreadout.remote import generic

    class Signed:
        """gcsfs with credentials, as far as objects take it."""

        def __init__(self, system):
            self._system = system

        def __getattr__(self, name):
            return getattr(self._system, name)

        def _get_headers(self, headers):
            return {"User-Agent": "other", "Authorization": "Bearer token"}

    make = generic.GoogleTransport
    monkeypatch.setattr(generic, "GoogleTransport", lambda system: make(Signed(system)))
    assert command("check", "--planes", f"gs://cells/{ZARR3}")[0] == 0
    assert google.logins == {"Bearer token"}


def test_credentials_that_are_not_there_are_one_plain_error(command, monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    code, said, err = command("info", "--json", "gs://cells/a.zarr")
    assert (code, said["error"]["code"]) == (5, "io")
    assert "GOOGLE_APPLICATION_CREDENTIALS" in said["error"]["hint"]
    assert "Traceback" not in err
