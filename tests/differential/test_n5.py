"""N5 datasets that tensorstore and z5py write, read by us."""

from __future__ import annotations

import math
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openreadout import registry
from openreadout.arrays import read_region

tensorstore = pytest.importorskip("tensorstore", reason="tensorstore has no wheel for this Python")
z5py = pytest.importorskip("z5py", reason="z5py has no wheel for this Python")

DTYPES = (
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float32",
    "float64",
)
COMPRESSIONS = (
    {"type": "raw"}, {"type": "gzip", "level": 1}, {"type": "gzip", "useZlib": True}, {"type": "bzip2"}, {"type": "xz"},
    {"type": "zstd"}, {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
    {"type": "blosc", "cname": "zstd", "clevel": 5, "shuffle": 2},
)  # fmt: skip


@st.composite
def pictures(draw):
    ndim = draw(st.integers(1, 5))
    shape = tuple(draw(st.integers(1, 11)) for _ in range(ndim))
    block = tuple(draw(st.integers(1, 8)) for _ in range(ndim))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    data = random.integers(0, 2**62, math.prod(shape), dtype="int64").astype(
        draw(st.sampled_from(DTYPES))
    )
    return data.reshape(shape), block


def assert_same(path, data):
    """The one dataset of the container, turned so that its slowest axis is first."""
    with registry.open_dataset(path) as dataset:
        (image,) = dataset.images
        array = image.levels[0].array
        assert array.dtype == data.dtype.name
        found = read_region(array, tuple((0, n) for n in array.shape))
    assert image.axis_names == {1: "x", 2: "yx", 3: "zyx", 4: "czyx", 5: "tczyx"}[data.ndim]
    assert np.array_equal(found, data)


@given(pictures(), st.sampled_from(COMPRESSIONS), st.booleans())
def test_tensorstore_dataset_is_read(picture, compression, partly):
    data, block = picture
    with tempfile.TemporaryDirectory() as folder:
        spec = {
            "driver": "n5", "kvstore": f"file://{folder}/a.n5/data/",
            "metadata": {
                "dimensions": list(data.shape[::-1]), "blockSize": list(block[::-1]), "dataType": data.dtype.name,
                "compression": compression,
            },
        }  # fmt: skip
        store = tensorstore.open(spec, create=True).result()
        if partly:
            data = data.copy()
            data[tuple(slice(0, b) for b in block)] = 0
        store.write(np.transpose(data)).result()
        assert_same(f"{folder}/a.n5", data)


@given(pictures(), st.sampled_from(["raw", "gzip", "bzip2", "xz", "zstd", "blosc", "lz4"]))
def test_z5py_dataset_is_read(picture, compression):
    """z5py cuts edge blocks; its lz4 is a bare block."""
    data, block = picture
    block = tuple(min(b, n) for b, n in zip(block, data.shape, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        container = z5py.File(f"{folder}/a.n5", mode="w", use_zarr_format=False)
        container.create_dataset("data", data=data, chunks=block, compression=compression)
        assert_same(f"{folder}/a.n5", data)
