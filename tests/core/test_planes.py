"""Digests of planes against hashlib and xxhash over arrays that zarr-python wrote and read."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import xxhash
import zarr

from openreadout import registry
from openreadout.planes import Selection, digest_planes, read_plane
from openreadout.workers import Workers

WIDE = {"bool": "uint8", "float16": "float32"}
SHAPE = (2, 3, 4, 19, 29)
STORES = {
    "v2-odd": {"zarr_format": 2, "chunks": (1, 2, 3, 7, 11)},
    "v2-long-rows": {"zarr_format": 2, "chunks": (2, 3, 4, 1, 29)},
    "v2-columns": {"zarr_format": 2, "chunks": (1, 1, 2, 19, 5)},
    "v2-one-chunk": {"zarr_format": 2, "chunks": SHAPE},
    "v2-larger-than-the-array": {"zarr_format": 2, "chunks": (4, 4, 8, 64, 64)},
    "v2-fortran": {"zarr_format": 2, "chunks": (1, 2, 2, 16, 9), "order": "F"},
    "v3-odd": {"zarr_format": 3, "chunks": (1, 1, 2, 10, 13)},
    "v3-sharded": {"zarr_format": 3, "chunks": (1, 1, 1, 8, 8), "shards": (1, 3, 4, 16, 32)},
    "v3-slabs": {"zarr_format": 3, "chunks": (2, 1, 4, 4, 29)},
}
TYPES = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


def pixels(dtype, shape=SHAPE):
    random = np.random.default_rng(7)
    whole = random.integers(-120, 120, shape)
    if dtype == "bool":
        return whole > 0
    found = whole.astype(dtype)
    if found.dtype.kind in "fc":
        found.reshape(-1)[::17] = np.nan
        found.reshape(-1)[5::31] = np.inf
    return found


def store(path, dtype, how, shape=SHAPE, written=True):
    """An NGFF image with one level, by zarr-python; gives what zarr-python reads."""
    version = "0.4" if how["zarr_format"] == 2 else "0.5"
    body = {
        "multiscales": [
            {
                "version": "0.4",
                "axes": [
                    {"name": a, "type": {"t": "time", "c": "channel"}.get(a, "space")}
                    for a in "tczyx"
                ],
                "datasets": [
                    {
                        "path": "0",
                        "coordinateTransformations": [{"type": "scale", "scale": [1.0] * 5}],
                    }
                ],
            }
        ]
    }
    attributes = body if version == "0.4" else {"ome": {"version": "0.5", **body}}
    group = zarr.open_group(path, mode="w", zarr_format=how["zarr_format"], attributes=attributes)
    options = {key: value for key, value in how.items() if key != "zarr_format"}
    if how["zarr_format"] == 2:
        options["chunk_key_encoding"] = {"name": "v2", "separator": "/"}
    array = group.create_array("0", shape=shape, dtype=dtype, fill_value=0, **options)
    if written:
        array[...] = pixels(dtype, shape)
    return zarr.open_array(f"{path}/0", mode="r")[...]


def wanted(whole, t, c, z, algorithm, region=None):
    plane = whole[t, c, z]
    if region is not None:
        x, y, w, h = region
        plane = plane[y : y + h, x : x + w]
    wide = np.dtype(WIDE.get(plane.dtype.name, plane.dtype.name)).newbyteorder("<")
    data = np.ascontiguousarray(plane, dtype=wide).tobytes()
    if algorithm == "xxh3":
        return xxhash.xxh3_128(data).hexdigest()
    return hashlib.new(algorithm, data).hexdigest()


def digests(path, selection=None, *, algorithm="xxh3", threads=1, budget=1 << 26):
    def fail(index, error):
        raise AssertionError(f"{index}: {error}")

    with registry.open_dataset(str(path)) as dataset, Workers(threads) as workers:
        planes = digest_planes(
            dataset.images[0], 0, selection or Selection(), algorithm, workers, fail, budget=budget
        )
        return {(p.t, p.c, p.z): (p.width, p.height, p.digest) for p in planes}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("budget", [1, 4000, 1 << 26], ids=lambda n: f"{n}-bytes")
@pytest.mark.parametrize("name", STORES)
def test_planes_of_every_chunking_have_the_digests_of_what_zarr_reads(
    name, budget, threads, tmp_path
):
    whole = store(tmp_path / "a.zarr", "uint16", STORES[name])
    found = digests(tmp_path / "a.zarr", budget=budget, threads=threads)
    assert sorted(found) == list(np.ndindex(SHAPE[:3]))
    for place, plane in found.items():
        assert plane == (29, 19, wanted(whole, *place, "xxh3"))


@pytest.mark.parametrize("algorithm", ["xxh3", "sha256", "md5"])
@pytest.mark.parametrize("dtype", TYPES)
def test_planes_of_every_type_have_the_digests_of_what_zarr_reads(dtype, algorithm, tmp_path):
    whole = store(tmp_path / "a.zarr", dtype, STORES["v2-odd"])
    for place, (_, _, digest) in digests(tmp_path / "a.zarr", algorithm=algorithm).items():
        assert digest == wanted(whole, *place, algorithm)


def test_big_endian_samples_are_digested_little_endian(tmp_path):
    whole = store(tmp_path / "a.zarr", ">i4", STORES["v2-odd"])
    for place, (_, _, digest) in digests(tmp_path / "a.zarr").items():
        assert digest == wanted(whole, *place, "xxh3")


@pytest.mark.parametrize("region", [(0, 0, 29, 19), (3, 5, 11, 12), (28, 18, 1, 1), (0, 6, 29, 2)])
@pytest.mark.parametrize("budget", [1, 1 << 26])
def test_a_region_of_chosen_planes(region, budget, tmp_path):
    whole = store(tmp_path / "a.zarr", "uint16", STORES["v3-odd"])
    chosen = Selection(t=(1,), c=(0, 2), z=(1, 2, 3), region=region)
    found = digests(tmp_path / "a.zarr", chosen, budget=budget, threads=2)
    assert list(found) == [(1, c, z) for c in (0, 2) for z in (1, 2, 3)]
    for place, plane in found.items():
        assert plane == (*region[2:], wanted(whole, *place, "xxh3", region))


@pytest.mark.parametrize("name", ["v2-odd", "v3-sharded"])
def test_chunks_that_are_not_stored_are_the_fill_value(name, tmp_path):
    whole = store(tmp_path / "a.zarr", "int16", STORES[name], written=False)
    array = zarr.open_array(tmp_path / "a.zarr" / "0", mode="r+")
    array[1, 2, 3, 5:9, 5:9] = 7
    whole = array[...]
    for place, (_, _, digest) in digests(tmp_path / "a.zarr", threads=2).items():
        assert digest == wanted(whole, *place, "xxh3")


@pytest.mark.parametrize("name", ["v2-odd", "v2-fortran", "v3-sharded"])
def test_a_plane_read_alone_is_what_zarr_reads(name, tmp_path):
    whole = store(tmp_path / "a.zarr", "float32", STORES[name])
    with registry.open_dataset(str(tmp_path / "a.zarr")) as dataset:
        plane = read_plane(dataset.images[0], t=1, c=2, z=3)
    np.testing.assert_array_equal(plane, whole[1, 2, 3])


@pytest.mark.parametrize(
    "arguments", [[], ["--memory", "1MiB", "--threads", "1"], ["--threads", "4"]], ids=str
)
def test_command_prints_the_digests_of_what_zarr_reads(arguments, tmp_path, capsys):
    from openreadout.cli import run

    shape = (1, 2, 3, 700, 900)
    how = {"zarr_format": 3, "chunks": (1, 2, 2, 300, 211)}
    whole = store(tmp_path / "a.zarr", "uint16", how, shape)
    assert run(["check", "--planes", "--json", str(tmp_path / "a.zarr"), *arguments]) == 0
    planes = json.loads(capsys.readouterr().out)["data"]["planes"]
    assert [(p["t"], p["c"], p["z"]) for p in planes] == list(np.ndindex(shape[:3]))
    for plane in planes:
        assert plane["xxh3"] == wanted(whole, plane["t"], plane["c"], plane["z"], "xxh3")
        assert (plane["width"], plane["height"], plane["pixel_type"]) == (900, 700, "uint16")
