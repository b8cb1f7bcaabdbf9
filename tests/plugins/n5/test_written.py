"""Containers that tensorstore, z5py and pyn5's blocks make, read here sample for sample."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorstore
import z5py
from hypothesis import given
from hypothesis import strategies as st

from openreadout.arrays import read_region
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.registry import open_dataset

TYPES = [
    "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64",
]  # fmt: skip
COMPRESSIONS = [
    {"type": "raw"},
    {"type": "gzip", "level": 5, "useZlib": False},
    {"type": "gzip", "level": 5, "useZlib": True},
    {"type": "bzip2", "blockSize": 3},
    {"type": "xz", "preset": 1},
    {"type": "zstd", "level": 2},
    {"type": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0},
    {"type": "blosc", "cname": "blosclz", "clevel": 9, "shuffle": 1, "blocksize": 0},
]


def _pixels(shape, dtype, seed=0):
    return (np.random.default_rng(seed).random(shape) * 250).astype(dtype)


def _whole(array):
    return read_region(array, tuple((0, n) for n in array.shape))


def _tensorstore(path, data, block, compression):
    """Write `data`, axes fastest first as tensorstore shows N5."""
    spec = {
        "driver": "n5",
        "kvstore": {"driver": "file", "path": str(path)},
        "metadata": {
            "dimensions": list(data.shape), "blockSize": list(block), "dataType": data.dtype.name,
            "compression": compression,
        },
        "create": True,
    }  # fmt: skip
    store = tensorstore.open(spec).result()
    store.write(data).result()
    return store


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("compression", COMPRESSIONS, ids=lambda c: "-".join(map(str, c.values())))
def test_what_tensorstore_writes_is_read(tmp_path, dtype, compression):
    data = _pixels((13, 7, 5), dtype)
    _tensorstore(tmp_path / "c.n5/a", data, (4, 3, 2), compression)
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        found = _whole(dataset.images[0].levels[0].array)
    assert found.dtype == data.dtype
    np.testing.assert_array_equal(found, data.T)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("compression", ["raw", "gzip", "bzip2", "xz", "blosc", "zstd"])
def test_what_z5py_writes_is_read(tmp_path, dtype, compression):
    data = _pixels((5, 7, 13), dtype)
    with z5py.File(str(tmp_path / "c.n5"), mode="w", use_zarr_format=False) as file:
        file.create_dataset("a", data=data, chunks=(2, 3, 4), compression=compression, n_threads=1)
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        np.testing.assert_array_equal(_whole(dataset.images[0].levels[0].array), data)


@given(st.data())
def test_regions_of_any_shape_are_those_that_tensorstore_reads(tmp_path_factory, data):
    ndim = data.draw(st.integers(1, 5))
    sides = st.tuples(*[st.integers(1, 7)] * ndim)
    shape, block = data.draw(sides), data.draw(sides)
    pixels = _pixels(shape, "uint16", seed=data.draw(st.integers(0, 99)))
    path = tmp_path_factory.mktemp("n5")
    store = _tensorstore(path / "c.n5/a", pixels, block, {"type": "raw"})
    ends = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
    wanted = store[tuple(slice(*pair) for pair in ends)].read().result()
    with open_dataset(str(path / "c.n5")) as dataset:
        array = dataset.images[0].levels[0].array
        region = tuple(tuple(pair) for pair in reversed(ends))
        np.testing.assert_array_equal(read_region(array, region), wanted.T)


def test_missing_blocks_read_as_zero_and_are_counted(tmp_path):
    data = _pixels((8, 8), "uint16") + np.uint16(1)
    _tensorstore(tmp_path / "c.n5/a", data, (4, 4), {"type": "raw"})
    (tmp_path / "c.n5/a/1/0").unlink()
    data[4:, :4] = 0
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        array = dataset.images[0].levels[0].array
        np.testing.assert_array_equal(_whole(array), data.T)
        found = array.presence()
        assert (found.total, found.stored) == (4, 3)
        # In the order of the model's axes, y before x: block 1/0 is x 1, y 0.
        assert not array.is_stored((0, 1))
        assert set(array.stored_indices()) == {(0, 0), (1, 0), (1, 1)}


def test_stray_file_among_the_blocks_is_told(tmp_path):
    _tensorstore(tmp_path / "c.n5/a", _pixels((8, 8), "uint8"), (4, 4), {"type": "raw"})
    (tmp_path / "c.n5/a/9").mkdir()
    (tmp_path / "c.n5/a/9/9").write_bytes(b"x")
    (tmp_path / "c.n5/a/notes.txt").write_text("mine")
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        strays = dataset.images[0].levels[0].array.presence().strays
    assert sorted(strays) == ["a/9/9", "a/notes.txt"]


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda block: b"", CorruptDataError),
        (lambda block: block[:3], CorruptDataError),
        (lambda block: block[:10], CorruptDataError),
        (lambda block: block[:-1], CorruptDataError),
        (lambda block: block + b"more", CorruptDataError),
        (lambda block: b"\0\0\0\3" + block[4:], CorruptDataError),
        (lambda block: block[:4] + b"\x7f\xff\xff\xff" * 2 + block[12:], CorruptDataError),
        (lambda block: b"\0\1" + block[2:], UnsupportedFeatureError),
        (lambda block: b"\0\2" + block[2:], UnsupportedFeatureError),
        (lambda block: b"\x89PNG" + block, (CorruptDataError, UnsupportedFeatureError)),
    ],
    ids=["empty", "cut-header", "cut-sizes", "cut", "longer", "rank", "huge", "varlength", "object", "foreign"],
)  # fmt: skip
def test_bad_block_is_told_by_its_key_and_the_others_are_read(tmp_path, damage, error):
    data = _pixels((8, 8), "uint16")
    _tensorstore(tmp_path / "c.n5/a", data, (4, 4), {"type": "raw"})
    file = tmp_path / "c.n5/a/1/0"
    file.write_bytes(damage(file.read_bytes()))
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        array = dataset.images[0].levels[0].array
        with pytest.raises(error) as caught:
            array.read_chunk((0, 1))
        assert caught.value.where == "a/1/0"
        np.testing.assert_array_equal(array.read_chunk((1, 1)), data.T[4:, 4:])


def test_unknown_compression_is_named_and_only_reading_fails(tmp_path):
    _tensorstore(tmp_path / "c.n5/a", _pixels((8, 8), "uint16"), (4, 4), {"type": "raw"})
    file = tmp_path / "c.n5/a/attributes.json"
    attributes = json.loads(file.read_text())
    file.write_text(json.dumps({**attributes, "compression": {"type": "turbo", "speed": 11}}))
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        array = dataset.images[0].levels[0].array
        assert [codec.name for codec in array.layout.codecs] == ["n5_default", "turbo"]
        with pytest.raises(UnsupportedFeatureError, match="turbo"):
            array.read_chunk((0, 0))
