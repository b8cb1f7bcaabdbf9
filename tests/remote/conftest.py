"""Servers that the tests start on loopback and stop, and the command run in this process."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
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
