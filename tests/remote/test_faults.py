"""A server that fails, lies or never ends: one plain error, never other pixels."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from server import serving

import openreadout
from openreadout.errors import RemoteError

ZARR3 = "ome-zarr/v3-sharded/sharded.ome.zarr"
ZARR2 = "ome-zarr/ome-zarr-py-0.4/image.ome.zarr"
ZIP = "ome-zarr/v3-zip/packed.ozx"
TIFF = "ome-tiff/pyramid/cells.ome.tiff"
N5 = "n5/z5py-viewer-pyramid/pyramid.n5/em"

FAILING = ["403", "429", "500", "503", "cut", "hang up"]
COMMANDS = [["info"], ["check"], ["check", "--planes"], ["check", "--full"]]


def chunks_only(fault):
    """The fault for what is no metadata document."""
    return lambda path, turn: (
        None if path.endswith((".json", ".zattrs", ".zarray", ".zgroup", ".xml")) else fault
    )


@pytest.mark.parametrize("fault", FAILING)
@pytest.mark.parametrize("data", [ZARR3, ZARR2, ZIP, TIFF, N5])
def test_a_server_that_fails_is_an_error_of_input_and_output(server, command, data, fault):
    server.fault = lambda path, turn: fault
    code, said, err = command("info", "--json", f"{server.url}/{data}")
    assert (code, said["error"]["code"]) == (5, "io")
    assert server.url in said["error"]["message"]
    assert "Traceback" not in err


@pytest.mark.parametrize("fault", ["403", "500", "cut"])
@pytest.mark.parametrize("data", [ZARR3, ZARR2, N5])
@pytest.mark.parametrize("arguments", COMMANDS[1:], ids=" ".join)
def test_a_chunk_that_the_server_fails_to_give_is_no_black_image(
    server, command, data, fault, arguments
):
    server.fault = chunks_only(fault)
    code, said, _ = command(*arguments, "--json", f"{server.url}/{data}")
    assert (code, said["error"]["code"]) == (5, "io")


@pytest.mark.parametrize("fault", ["403", "500", "cut"])
def test_an_export_from_a_failing_server_leaves_no_output(server, command, tmp_path, fault):
    server.fault = chunks_only(fault)
    target = tmp_path / "a.zarr"
    code, _, err = command("export", f"{server.url}/{ZARR3}", "--to", "ome-zarr", "-o", target)
    assert code == 5, err
    assert not target.exists()
    assert command("preview", f"{server.url}/{ZARR3}", "-o", tmp_path / "a.png")[0] == 5
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize("fault", ["500", "503", "cut", "hang up", "403"])
@pytest.mark.parametrize("data", [ZARR3, ZARR2, ZIP, TIFF])
def test_what_fails_twice_and_then_works_is_read(server, command, data, fault):
    server.fault = lambda path, turn: fault if turn < 2 else None
    code, said, _ = command("check", "--planes", "--json", f"{server.url}/{data}")
    assert (code, said["data"]["ok"]) == (0, True)


@pytest.mark.parametrize(
    "document", ["zarr.json", "labels/zarr.json", "0/zarr.json", "OME/METADATA.ome.xml"]
)
@pytest.mark.parametrize("fault", ["403", "500"])
def test_a_document_that_is_refused_is_not_taken_for_absent(server, command, document, fault):
    server.fault = lambda path, turn: fault if path.endswith(f"{ZARR3}/{document}") else None
    assert command("info", f"{server.url}/{ZARR3}")[0] == 5


@pytest.mark.parametrize("document", ["attributes.json", "s1/attributes.json"])
def test_an_attribute_document_of_n5_that_is_refused_is_not_taken_for_damaged(
    server, command, document
):
    server.fault = lambda path, turn: "403" if path.endswith(f"{N5}/{document}") else None
    assert command("info", f"{server.url}/{N5}")[0] == 5


@pytest.mark.parametrize("data", [ZIP, TIFF])
@pytest.mark.parametrize("fault", ["other range", "packed"])
def test_other_bytes_than_asked_for_are_refused(server, command, data, fault):
    server.fault = lambda path, turn: fault
    code, said, _ = command("info", "--json", f"{server.url}/{data}")
    assert (code, said["error"]["code"]) == (5, "io")


def big_tiff(folder):
    """An OME-TIFF whose pixels lie behind the first 64 KiB, which are read at once."""
    import numpy as np
    import tifffile

    pixels = np.random.default_rng(0).integers(0, 65535, (4, 300, 300), np.uint16)
    tifffile.imwrite(folder / "big.ome.tiff", pixels, ome=True, metadata={"axes": "ZYX"})
    return pixels


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    pixels = big_tiff(tmp_path)
    with serving(tmp_path) as server, openreadout.open(f"{server.url}/big.ome.tiff") as dataset:
        image = dataset.images[0]
        assert (image.read_plane(z=1) == pixels[1]).all()
        server.fault = lambda path, turn: "new tag"
        with pytest.raises(RemoteError, match="changed on the server"):
            image.read_plane(z=3)


def test_a_server_without_byte_ranges_is_told_apart(tmp_path, command):
    big_tiff(tmp_path)
    with serving(tmp_path, ranges=False) as server:
        code, said, _ = command("check", "--planes", "--json", f"{server.url}/big.ome.tiff")
    assert code == 5
    assert "no byte ranges" in said["error"]["message"]
    assert "download" in said["error"]["hint"]


@pytest.mark.parametrize("data", [ZARR3, TIFF])
def test_a_body_without_end_is_left_soon_and_not_held(server, command, data):
    server.fault = lambda path, turn: "endless"
    tracemalloc.start()
    code, _, _ = command("info", "--json", f"{server.url}/{data}")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert code in (3, 4, 5)  # no document, and no file of a known length
    assert peak < 300 << 20


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "ftp://127.0.0.1/a", "gopher://127.0.0.1/"]
)
def test_a_redirect_to_something_else_than_the_web_is_refused(server, command, place):
    server.fault = lambda path, turn: f"to {place}"
    code, said, _ = command("info", "--json", f"{server.url}/{TIFF}")
    assert code == 5
    assert "elsewhere" in said["error"]["message"]


def test_redirects_in_a_circle_end(server, command):
    server.fault = lambda path, turn: f"to {server.url}{path}"
    assert command("info", f"{server.url}/{TIFF}")[0] == 5
    assert len(server.requests) < 40


def test_a_silent_server_is_left(server, command, monkeypatch):
    from openreadout.remote import http

    monkeypatch.setattr(http, "SILENCE_SECONDS", 0.1)
    server.fault = lambda path, turn: "slow"
    started = time.monotonic()
    code, said, _ = command("info", "--json", f"{server.url}/{TIFF}")
    assert code == 5
    assert "in time" in said["error"]["message"]
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("threads", [[], ["--threads", "1"]], ids=["many", "one"])
def test_an_interruption_does_not_wait_for_the_server(server, tmp_path, threads):
    import signal
    import subprocess
    import sys

    server.fault = chunks_only("silent")
    source, target = f"{server.url}/{ZARR2}", tmp_path / "a.zarr"
    command = [
        sys.executable,
        "-m",
        "openreadout",
        "export",
        source,
        "--to",
        "ome-zarr",
        "-o",
        target,
    ]
    run = subprocess.Popen([*command, *threads], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while not any("/s0/0/" in path for _, path in server.requests) and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.3)
    started = time.monotonic()
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode == 130
    assert time.monotonic() - started < 10
    assert list(tmp_path.iterdir()) == []


def test_nobody_at_the_address(command):
    code, said, _ = command("info", "--json", "http://127.0.0.1:9/a.zarr")
    assert (code, said["error"]["code"]) == (5, "io")
    assert "not reached" in said["error"]["message"]


def test_nothing_at_the_address(server, command):
    code, said, _ = command("info", "--json", f"{server.url}/nothing.zarr")
    assert (code, said["error"]["code"]) == (5, "io")
    assert "nothing at this address" in said["error"]["message"]


@pytest.mark.parametrize(
    "address", ["http://", "http:///a.zarr", "https://[::1/a.zarr", "http://a b/c"]
)
def test_an_address_that_is_none_is_one_error(command, address):
    code, _, err = command("info", address)
    assert code in (2, 5)
    assert "Traceback" not in err


def test_a_web_page_for_everything_is_no_data_set(server, command):
    server.fault = lambda path, turn: "page"
    code, _, err = command("info", f"{server.url}/{ZARR3}")
    assert code in (3, 4)
    assert "Traceback" not in err


def test_a_page_for_a_chunk_is_damage_and_no_black_image(server, command):
    server.fault = chunks_only("page")
    code, said, _ = command("check", "--full", "--json", f"{server.url}/{ZARR2}")
    assert code == 4
    assert "chunk_decode" in {f["code"] for f in said["data"]["findings"]}


def test_a_secret_in_the_address_is_not_shown(server, command):
    server.fault = lambda path, turn: "500"
    _, said, _ = command("info", "--json", f"{server.url}/{TIFF}?token=opensesame")
    assert "opensesame" not in said["error"]["message"]


@pytest.mark.parametrize("scheme", ["https", "s3", "gs"])
@pytest.mark.without_extra
def test_without_the_extra_the_hint_says_what_to_install(command, monkeypatch, scheme):
    import sys

    for name in (
        "fsspec",
        "aiohttp",
        "s3fs",
        "gcsfs",
        "openreadout.remote.http",
        "openreadout.remote.s3",
    ):
        monkeypatch.setitem(sys.modules, name, None)
    code, said, _ = command("info", "--json", f"{scheme}://somewhere/a.zarr")
    assert (code, said["error"]["code"]) == (2, "usage")
    assert "pip install 'openreadout-microscopy[remote]'" in said["error"]["hint"]


@pytest.mark.without_extra
def test_without_the_extra_nothing_is_written_to_a_bucket(command, monkeypatch, fixtures):
    import sys

    for name in ("fsspec", "aiohttp", "s3fs", "openreadout.remote.s3"):
        monkeypatch.setitem(sys.modules, name, None)
    code, said, _ = command(
        "export", fixtures / TIFF, "--to", "ome-zarr", "-o", "s3://somewhere/a.zarr", "--json"
    )
    assert (code, said["error"]["code"]) == (2, "usage")
    assert "pip install" in said["error"]["hint"]
