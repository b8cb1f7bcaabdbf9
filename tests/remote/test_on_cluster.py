"""Workers of a cluster read from a server: the bytes are those of the local data, and a server that fails ends it."""

from __future__ import annotations

import pytest
from conftest import needs
from test_faults import chunks_only
from test_reading import TIFF, ZARR3

pytestmark = needs("distributed")


def tree(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("data", [ZARR3, TIFF])
def test_workers_read_from_a_server(data, server, command, fixtures, tmp_path):
    here, there = tmp_path / "here.ome.zarr", tmp_path / "there.ome.zarr"
    for source, target, more in (
        (fixtures / data, here, ()),
        (f"{server.url}/{data}", there, ("--dask", "local:1")),
    ):
        code, _, err = command("export", source, "--to", "ome-zarr", "-o", target, *more)
        assert code == 0, err
    assert tree(there) == tree(here)
    assert server.requests


@pytest.mark.parametrize("fault", ["500"])
def test_a_server_that_fails_workers_ends_the_export(fault, server, command, tmp_path, monkeypatch):
    from openreadout.operations.dask_workers import Cluster

    begun = []
    enter = Cluster.__enter__
    # the plan looks at a chunk too; the server fails once there are workers
    monkeypatch.setattr(Cluster, "__enter__", lambda self: begun.append(self) or enter(self))
    fails = chunks_only(fault)
    server.fault = lambda path, turn: fails(path, turn) if begun else None
    code, _, err = command(
        "export", f"{server.url}/{ZARR3}", "--to", "ome-zarr", "-o", tmp_path / "a.ome.zarr", "--dask", "local:1"
    )  # fmt: skip
    assert begun
    assert code == 5, err
    assert fault in err
    assert not list(tmp_path.iterdir())
