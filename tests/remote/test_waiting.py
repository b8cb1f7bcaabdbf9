"""Requests under way at the same time: as many as are allowed, and none twice."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tifffile
import xxhash
import zarr
from server import serving

import openreadout
from openreadout import limits

ZARR2 = "ome-zarr/ome-zarr-py-0.4/image.ome.zarr"


class Crowd:
    """Holds requests for chunks back until as many have come as are expected, or a while has passed."""

    def __init__(self, wanted, of):
        self.wanted, self.of = wanted, of
        self.here = 0
        self.most = 0
        self.full = threading.Event()
        self.lock = threading.Lock()

    def __call__(self, path, turn):
        if not self.of(path):
            return
        with self.lock:
            self.here += 1
            self.most = max(self.most, self.here)
            if self.here >= self.wanted:
                self.full.set()
        self.full.wait(5)
        with self.lock:
            self.here -= 1


@pytest.fixture
def chunked(tmp_path):
    """A Zarr v2 image of 64 chunks and its samples."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    samples = np.random.default_rng(3).integers(0, 255, (64, 64), dtype="uint8")
    array = group.create_array(
        "0",
        shape=(64, 64),
        chunks=(8, 8),
        dtype="uint8",
        compressors=None,
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )
    array[:] = samples
    axes = [{"name": n, "type": "space"} for n in "yx"]
    datasets = [
        {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1.0, 1.0]}]}
    ]
    group.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": datasets}]
    return samples


def test_a_region_is_read_with_as_many_requests_as_threads_for_a_server(chunked, tmp_path):
    with serving(tmp_path) as server, openreadout.open(f"{server.url}/a.zarr") as dataset:
        crowd = Crowd(limits.REMOTE_THREADS, lambda path: path.count("/") == 4)
        server.fault = crowd
        plane = dataset.images[0].read_plane()
        assert crowd.most == limits.REMOTE_THREADS
        chunks = [path for _, path in server.requests if path.count("/") == 4]
    assert (plane == chunked).all()
    assert len(set(chunks)) == 64


def test_a_lazy_array_waits_for_several_chunks_of_a_task_together(chunked, tmp_path):
    pytest.importorskip("dask")
    with serving(tmp_path) as server, openreadout.open(f"{server.url}/a.zarr") as dataset:
        crowd = Crowd(limits.REMOTE_THREADS, lambda path: path.count("/") == 4)
        server.fault = crowd
        samples = dataset.images[0].to_dask().compute(scheduler="synchronous")
    assert crowd.most == limits.REMOTE_THREADS
    assert (samples[0, 0, 0] == chunked).all()


def test_the_chunks_of_a_single_plane_are_waited_for_together(chunked, tmp_path, command):
    with serving(tmp_path) as server:
        # where chunks are stored is asked for first, and the first and the last are read by themselves
        edges = ("/a.zarr/0/0/0", "/a.zarr/0/7/7")
        crowd = Crowd(
            limits.REMOTE_THREADS, lambda path: path.count("/") == 4 and path not in edges
        )
        server.fault = lambda path, turn: crowd(path, turn) if turn > 0 else None
        code, said, _ = command("check", "--planes", "--json", f"{server.url}/a.zarr")
    assert code == 0
    assert crowd.most == limits.REMOTE_THREADS
    assert said["data"]["planes"][0]["xxh3"] == xxhash.xxh3_128_hexdigest(chunked.tobytes())


@pytest.fixture
def tiled(tmp_path):
    """A TIFF of many tiles, and its samples."""
    samples = np.random.default_rng(5).integers(0, 255, (2, 768, 1024), dtype="uint8")
    tifffile.imwrite(
        tmp_path / "a.ome.tiff", samples, tile=(128, 128), metadata={"axes": "ZYX"}, ome=True,
        photometric="minisblack",
    )  # fmt: skip
    return samples


def test_parts_of_a_file_that_threads_share_are_asked_for_once(tiled, tmp_path, command):
    with serving(tmp_path) as server:
        source = f"{server.url}/a.ome.tiff"
        code, _, err = command(
            "export", source, "--to", "ome-zarr", "-o", tmp_path / "a.zarr", "--threads", "16",
            "--levels", "1", "--no-verify",
        )  # fmt: skip
        assert code == 0, err
        asked = len(server.requests)
    size = (tmp_path / "a.ome.tiff").stat().st_size
    assert asked <= -(-size // (64 << 10)) + 1
    with openreadout.open(tmp_path / "a.zarr") as dataset:
        assert (dataset.images[0].read_region()[0, 0] == tiled).all()


@pytest.mark.parametrize("fault", ["500", "cut"])
def test_nobody_waits_for_a_part_that_failed(tiled, tmp_path, fault):
    with serving(tmp_path) as server, openreadout.open(f"{server.url}/a.ome.tiff") as dataset:
        server.fault = lambda path, turn: fault
        with pytest.raises(openreadout.StorageError):
            dataset.images[0].read_plane(z=1)
        server.fault = lambda path, turn: None
        plane = dataset.images[0].read_plane(z=1)
    assert (plane == tiled[1]).all()
