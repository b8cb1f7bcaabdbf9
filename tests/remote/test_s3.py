"""The fixtures in an S3 bucket on loopback (moto): public ones, private ones, and exports into it."""

from __future__ import annotations

import json
import logging
import socket

import pytest
from conftest import needs

pytestmark = needs("moto", "boto3", "flask")

ZARR3 = "ome-zarr/v3-sharded/sharded.ome.zarr"
ZARR2 = "ome-zarr/ome-zarr-py-0.4/image.ome.zarr"
ZIP = "ome-zarr/v3-zip/packed.ozx"
TIFF = "ome-tiff/pyramid/cells.ome.tiff"
N5 = "n5/z5py-viewer-pyramid/pyramid.n5"
PLATE = "ome-zarr/v3-plate/plate.zarr"
BUCKETS = ("public", "private", "target")


@pytest.fixture(scope="module")
def s3(fixtures):
    """A client of a server with the fixtures in two buckets, of which anybody may read the first."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client(
        "s3",
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",  # noqa: S106 - what moto takes
        endpoint_url=f"http://{host}:{port}",
    )
    for bucket in BUCKETS:
        client.create_bucket(Bucket=bucket)
    for data in (ZARR3, ZARR2, ZIP, TIFF, N5, PLATE):
        for file in [fixtures / data, *(fixtures / data).rglob("*")]:
            if file.is_file():
                key, body = str(file.relative_to(fixtures)), file.read_bytes()
                client.put_object(Bucket="public", Key=key, Body=body, ACL="public-read")
                client.put_object(Bucket="private", Key=key, Body=body)
    yield client
    server.stop()


@pytest.fixture
def anonymous(s3, monkeypatch):
    """No credentials in the environment."""
    from openreadout.remote.s3 import CREDENTIALS

    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.meta.endpoint_url)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")


@pytest.fixture
def signed(anonymous, monkeypatch):
    """Credentials that the server knows."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def hashes(planes):
    return sorted((p["image"], p["level"], p["t"], p["c"], p["z"], p["xxh3"]) for p in planes)


@pytest.mark.parametrize("data", [ZARR3, ZARR2, ZIP, TIFF, N5, PLATE])
@pytest.mark.usefixtures("anonymous")
def test_a_public_bucket_is_read_without_credentials(command, fixtures, data):
    code, said, _ = command("check", "--planes", "--level", "all", "--json", f"s3://public/{data}")
    expected = json.loads((fixtures / data).parent.joinpath("expected.json").read_text("utf-8"))
    assert (code, said["data"]["findings"]) == (0, [])
    assert hashes(said["data"]["planes"]) == hashes(expected["planes"])


@pytest.mark.parametrize("data", [ZARR3, ZARR2, ZIP, TIFF, N5])
@pytest.mark.usefixtures("anonymous")
def test_a_private_bucket_is_an_error_without_credentials(command, data):
    code, said, _ = command("info", "--json", f"s3://private/{data}")
    assert (code, said["error"]["code"]) == (5, "io")
    assert "anonymous" in said["error"]["hint"]


@pytest.mark.usefixtures("signed")
def test_a_private_bucket_is_read_with_credentials(command):
    assert command("check", f"s3://private/{ZARR3}")[0] == 0


@pytest.mark.usefixtures("anonymous")
@pytest.mark.parametrize(
    "address", ["s3://public/nothing.zarr", "s3://nobucket/a.zarr", "s3://public"]
)
def test_nothing_at_the_address(command, address):
    code, _, err = command("info", address)
    assert code in (3, 5)
    assert "Traceback" not in err


def test_nobody_at_the_endpoint(command, anonymous, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
        code, said, _ = command("info", "--json", "s3://public/a.zarr")
    assert (code, said["error"]["code"]) == (5, "io")


def test_presence_is_counted_from_a_listing(command, s3, anonymous, fixtures):
    chunk = next((fixtures / ZARR2 / "s0").rglob("0/0/0/1")).relative_to(fixtures)
    for file in (fixtures / ZARR2).rglob("*"):
        if file.is_file() and file.relative_to(fixtures) != chunk:
            key = f"sparse/{file.relative_to(fixtures / ZARR2)}"
            s3.put_object(Bucket="public", Key=key, Body=file.read_bytes(), ACL="public-read")
    s3.put_object(Bucket="public", Key="sparse/s0/stray", Body=b"?", ACL="public-read")
    code, said, _ = command("check", "--json", "s3://public/sparse")
    found = {f["code"]: f["message"] for f in said["data"]["findings"]}
    assert code == 0
    assert found["missing_chunks"].startswith("1 of 4 chunks")
    assert "unexpected_file" in found
