"""Servers that the tests start on loopback and stop, and the command run in this process."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skip where the extra `remote`, or what stands in for a server, is not installed."""
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(lacking), reason=f"not installed: {', '.join(lacking)}")


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    mark = needs("fsspec", "aiohttp", "s3fs")
    for item in items:
        if here in item.path.parents and item.get_closest_marker("without_extra") is None:
            item.add_marker(mark)


@pytest.fixture(autouse=True)
def _plain_network(monkeypatch):
    """No proxy between us and loopback, no waiting between tries, and transports that know this environment."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    from openreadout.remote import transport

    transport.forget()
    monkeypatch.setattr(transport, "BACKOFF_SECONDS", 0.01)
    yield
    transport.forget()


@pytest.fixture
def server(fixtures):
    """The fixtures behind HTTP."""
    from server import serving

    with serving(fixtures) as running:
        yield running


@pytest.fixture(scope="module")
def moto():
    """The door of moto's S3 server, and a client of it; the server has three buckets."""
    boto3 = pytest.importorskip("boto3")
    from s3_server import moto_server

    with moto_server() as (door, endpoint):
        client = boto3.client(
            "s3",
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",  # noqa: S106 - what moto takes
            endpoint_url=endpoint,
        )
        for bucket in ("public", "private", "target"):
            client.create_bucket(Bucket=bucket)
        yield door, client


@pytest.fixture
def anonymous(moto, monkeypatch):
    """No credentials in the environment."""
    from openreadout.remote.s3 import CREDENTIALS

    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto[1].meta.endpoint_url)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")


@pytest.fixture
def signed(anonymous, monkeypatch):
    """Credentials that the server knows."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture
def command(capsys):
    """Run the command here: exit code, standard output (parsed with `--json`) and standard error."""
    from openreadout.cli import run

    def call(*arguments):
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in arguments else out, err

    return call


@pytest.fixture
def rounds(monkeypatch):
    """Counts how often the main thread waits: for one request of its own, or for several that are made at once."""
    from openreadout.remote.http import HttpTransport
    from openreadout.remote.store import RemoteFile, RemoteStore

    main, count, asked = threading.main_thread(), [0], [0]

    def counted(name):
        real = getattr(HttpTransport, name)

        def call(self, *arguments):
            asked[0] += 1
            count[0] += threading.current_thread() is main
            return real(self, *arguments)

        return call

    for name in ("fetch", "size", "tail", "listing"):
        monkeypatch.setattr(HttpTransport, name, counted(name))

    def together(kind):
        real = kind.expect

        def expect(self, what):
            before = asked[0]
            real(self, what)
            count[0] += asked[0] > before

        monkeypatch.setattr(kind, "expect", expect)

    together(RemoteStore)
    together(RemoteFile)
    return count
