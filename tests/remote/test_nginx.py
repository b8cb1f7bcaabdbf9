"""The fixtures behind nginx, with byte ranges and with faults: the server that most data on the web lies behind.

It is started on loopback and stopped; without it these tests skip. What is asked of it is counted from its own log.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

NGINX = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")

ZARR3 = "ome-zarr/v3-sharded/sharded.ome.zarr"
ZARR2 = "ome-zarr/ome-zarr-py-0.4/image.ome.zarr"
ZIP = "ome-zarr/v3-zip/packed.ozx"
TIFF = "ome-tiff/pyramid/cells.ome.tiff"
N5 = "n5/z5py-viewer-pyramid/pyramid.n5"
ALL = [ZARR3, ZARR2, ZIP, TIFF]
CHUNK = r"/c/|/s\d+/\d|\.ozx$|\.tiff$"
CONFIGURATION = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log {folder}/access.log; default_type application/octet-stream;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{
    listen 127.0.0.1:{port}; root {root};
    location /files/ {{ alias {root}/; }}
    location /index/ {{ alias {root}/; autoindex on; }}
    location /whole/ {{ alias {root}/; max_ranges 0; }}
    location /slow/ {{ alias {root}/; limit_rate 20k; }}
    location ~ "^/refused/.*({chunk})" {{ return 403; }}
    location /refused/ {{ alias {root}/; }}
    location ~ "^/absent/.*({chunk})" {{ return 404; }}
    location /absent/ {{ alias {root}/; }}
    location ~ "^/failing/.*({chunk})" {{ return 500; }}
    location /failing/ {{ alias {root}/; }}
    location ~ "^/cut/.*({chunk})" {{ return 444; }}
    location /cut/ {{ alias {root}/; }}
  }}
}}
"""


@dataclass
class Nginx:
    """A running nginx, and what it was asked."""

    url: str
    log: Path

    def requests(self) -> int:
        time.sleep(0.1)  # a request is logged after it is answered
        return len(self.log.read_text().splitlines())


@pytest.fixture(scope="module")
def nginx(fixtures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nginx")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    configuration = folder / "nginx.conf"
    configuration.write_text(
        CONFIGURATION.format(folder=folder, root=fixtures.resolve(), port=port, chunk=CHUNK)
    )
    running = subprocess.Popen(
        [str(NGINX), "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(configuration)],
        stderr=subprocess.PIPE,
    )
    try:
        for _ in range(200):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert running.poll() is None, running.communicate()[1]
            time.sleep(0.05)
        yield Nginx(f"http://127.0.0.1:{port}", folder / "access.log")
    finally:
        running.terminate()
        running.communicate(timeout=20)


def hashes(planes):
    return sorted((p["image"], p["level"], p["t"], p["c"], p["z"], p["xxh3"]) for p in planes)


@pytest.mark.parametrize(
    "place", [*(f"{how}/{d}" for how in ("files", "index") for d in ALL), f"index/{N5}"]
)
def test_every_plane_has_its_digest(nginx, command, fixtures, place):
    code, said, err = command(
        "check", "--planes", "--level", "all", "--json", f"{nginx.url}/{place}"
    )
    data = place.partition("/")[2]
    expected = json.loads((fixtures / data).parent.joinpath("expected.json").read_text("utf-8"))
    assert code == 0, err
    assert hashes(said["data"]["planes"]) == hashes(expected["planes"])


@pytest.mark.parametrize(("data", "count"), [(ZARR3, 5), (ZARR2, 9), (ZIP, 1), (TIFF, 1)], ids=str)
def test_info_takes_the_requests_that_the_page_states(nginx, command, data, count):
    before = nginx.requests()
    assert command("info", f"{nginx.url}/files/{data}")[0] == 0
    assert nginx.requests() - before == count


@pytest.mark.parametrize("fault", ["refused", "failing", "cut"])
@pytest.mark.parametrize("data", ALL)
@pytest.mark.parametrize("arguments", [["check", "--full"], ["check", "--planes"]], ids=" ".join)
def test_a_chunk_that_is_not_given_is_no_black_image(nginx, command, fault, data, arguments):
    code, said, _ = command(*arguments, "--json", f"{nginx.url}/{fault}/{data}")
    assert (code, said["error"]["code"]) == (5, "io")


@pytest.mark.parametrize("fault", ["refused", "failing", "cut"])
def test_an_export_from_it_leaves_nothing(nginx, command, tmp_path, fault):
    source, target = f"{nginx.url}/{fault}/{ZARR3}", tmp_path / "a.zarr"
    assert command("export", source, "--to", "ome-zarr", "-o", target)[0] == 5
    assert list(tmp_path.iterdir()) == []


def test_an_absent_chunk_is_the_fill_value(nginx, command):
    code, said, _ = command("check", "--json", f"{nginx.url}/absent/{ZARR2}")
    assert code == 0
    assert "missing_chunks" in {f["code"] for f in said["data"]["findings"]}


@pytest.mark.parametrize("data", [ZARR3, ZARR2])
def test_a_slow_server_is_waited_for(nginx, command, fixtures, tmp_path, data):
    source, target = f"{nginx.url}/slow/{data}", tmp_path / "a.zarr"
    assert command("export", source, "--to", "ome-zarr", "-o", target)[0] == 0
    assert command("check", target, "--against", fixtures / data)[0] == 0


@pytest.mark.parametrize("data", ALL)
def test_without_ranges_it_is_an_answer_or_one_error(nginx, command, data):
    code, said, _ = command("check", "--planes", "--json", f"{nginx.url}/whole/{data}")
    if code:
        assert (code, said["error"]["code"]) == (5, "io")
        assert "no byte ranges" in said["error"]["message"]
    else:
        assert all("xxh3" in plane for plane in said["data"]["planes"])
