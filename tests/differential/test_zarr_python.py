"""Arrays that zarr-python writes, in all the ways it can, read by us; damaged ones too."""

from __future__ import annotations

import math
import tempfile
import warnings
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

from openreadout import registry
from openreadout.arrays import read_region
from openreadout.errors import CorruptDataError, UnsupportedFeatureError

DTYPES = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float32",
    "float64",
    "complex64",
    "bool",
)
V2_COMPRESSORS = (
    None, numcodecs.Blosc("lz4", 5, 1), numcodecs.Blosc("zstd", 3, 2), numcodecs.Blosc("zlib", 5, 0),
    numcodecs.Blosc("lz4hc", 5, -1),
    numcodecs.Zstd(3), numcodecs.GZip(5), numcodecs.Zlib(5), numcodecs.BZ2(5), numcodecs.LZ4(),
    numcodecs.LZMA(preset=1),
)  # fmt: skip
V3_COMPRESSORS = (
    (), (GzipCodec(level=5),), (ZstdCodec(level=3),), (ZstdCodec(level=1, checksum=True),),
    (BloscCodec(cname="lz4", clevel=5, shuffle="shuffle"),),
    (BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle"),),
    (Crc32cCodec(),), (ZstdCodec(level=3), Crc32cCodec()),
)  # fmt: skip


def random_array(draw, dtype, shape):
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    if draw(st.booleans()):
        values = random.integers(0, 2**63, math.prod(shape), dtype="int64")
    else:
        values = np.arange(math.prod(shape)) // 3
    return values.astype(dtype).reshape(shape)


@st.composite
def pictures(draw):
    ndim = draw(st.integers(2, 5))
    shape = tuple(draw(st.integers(1, 12)) for _ in range(ndim))
    chunk = tuple(draw(st.integers(1, 9)) for _ in range(ndim))
    data = random_array(draw, draw(st.sampled_from(DTYPES)), shape)
    missing = draw(st.booleans())
    if missing:
        data[tuple(slice(0, c) for c in chunk)] = 0
    return data, chunk


@st.composite
def v2_options(draw, data):
    dtype = (
        data.dtype
        if data.dtype.itemsize == 1
        else data.dtype.newbyteorder(draw(st.sampled_from("<>")))
    )
    return dtype, {
        "order": draw(st.sampled_from("CF")),
        "compressors": draw(st.sampled_from(V2_COMPRESSORS)),
        "chunk_key_encoding": {"name": "v2", "separator": draw(st.sampled_from("./"))},
    }


@st.composite
def v3_options(draw, data, chunk):
    options = {
        "serializer": BytesCodec(endian=draw(st.sampled_from(["little", "big"]))),
        "compressors": draw(st.sampled_from(V3_COMPRESSORS)),
        "chunk_key_encoding": {
            "name": draw(st.sampled_from(["default", "v2"])), "separator": draw(st.sampled_from("./")),
        },
    }  # fmt: skip
    if draw(st.booleans()):
        options["filters"] = [TransposeCodec(order=tuple(draw(st.permutations(range(data.ndim)))))]
    if draw(st.booleans()):
        options["shards"] = tuple(c * draw(st.integers(1, 3)) for c in chunk)
    return data.dtype, options


def write(folder, data, chunk, zarr_format, dtype, options):
    """An NGFF image of one level around the array."""
    axes = "tczyx"[-data.ndim :]
    types = {"t": "time", "c": "channel"}
    group = zarr.create_group(folder, zarr_format=zarr_format)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = group.create_array(
            "0", shape=data.shape, dtype=dtype, chunks=chunk, fill_value=0, **options
        )
        array[...] = data
    scale = {"type": "scale", "scale": [1.0] * data.ndim}
    multiscales = [{
        "axes": [{"name": a, "type": types.get(a, "space")} for a in axes],
        "datasets": [{"path": "0", "coordinateTransformations": [scale]}],
    }]  # fmt: skip
    if zarr_format == 2:
        group.attrs["multiscales"] = [multiscales[0] | {"version": "0.4"}]
    else:
        group.attrs["ome"] = {"version": "0.5", "multiscales": multiscales}


def assert_same(folder, data, region):
    with registry.open_dataset(str(folder)) as dataset:
        array = dataset.images[0].levels[0].array
        assert (array.shape, array.dtype) == (data.shape, data.dtype.name)
        whole = read_region(array, tuple((0, n) for n in data.shape))
        assert np.array_equal(whole, data)
        part = data[tuple(slice(*side) for side in region)]
        assert np.array_equal(read_region(array, region), part)


@given(st.data())
def test_zarr_v2_array_is_read(data):
    picture, chunk = data.draw(pictures())
    dtype, options = data.draw(v2_options(picture))
    region = tuple(
        tuple(sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))))
        for n in picture.shape
    )
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/a.zarr", picture, chunk, 2, dtype, options)
        assert_same(f"{folder}/a.zarr", picture, region)


@given(st.data())
def test_zarr_v3_array_is_read(data):
    picture, chunk = data.draw(pictures())
    dtype, options = data.draw(v3_options(picture, chunk))
    region = tuple(
        tuple(sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))))
        for n in picture.shape
    )
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/a.zarr", picture, chunk, 3, dtype, options)
        assert_same(f"{folder}/a.zarr", picture, region)


@given(st.data())
def test_damaged_chunks_give_the_right_shape_or_corrupt_data(data):
    picture, chunk = data.draw(pictures())
    zarr_format = data.draw(st.sampled_from([2, 3]))
    draw = v2_options(picture) if zarr_format == 2 else v3_options(picture, chunk)
    dtype, options = data.draw(draw)
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/a.zarr", picture, chunk, zarr_format, dtype, options)
        files = [
            p
            for p in Path(folder).rglob("*")
            if p.is_file() and p.suffix != ".json" and p.name[:2] != ".z"
        ]
        for file in files:
            damage(file, data)
        with registry.open_dataset(f"{folder}/a.zarr") as dataset:
            array = dataset.images[0].levels[0].array
            errors = []
            found = read_region(
                array, tuple((0, n) for n in picture.shape), lambda i, e: errors.append(e)
            )
    assert found.shape == picture.shape
    for error in errors:
        assert isinstance(error, CorruptDataError | UnsupportedFeatureError)
        assert error.where


def damage(file, data):
    raw = bytearray(file.read_bytes())
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw)))]
    for _ in range(data.draw(st.integers(0, 3)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(bytes(raw))


@pytest.mark.parametrize(
    "filters",
    [
        [numcodecs.Delta(dtype="<u2")],
        [numcodecs.FixedScaleOffset(offset=0, scale=1, dtype="<u2", astype="<u4")],
        [numcodecs.Shuffle(elementsize=2)],
        [numcodecs.Delta(dtype="<u2"), numcodecs.Shuffle(elementsize=2)],
    ],
    ids=["delta", "fixedscaleoffset", "shuffle", "delta-shuffle"],
)
def test_zarr_v2_filters_are_read(tmp_path, filters):
    picture = np.arange(600, dtype="uint16").reshape(20, 30)
    write(
        tmp_path / "a.zarr",
        picture,
        (8, 16),
        2,
        "uint16",
        {"filters": filters, "compressors": numcodecs.Zlib(1)},
    )
    assert_same(tmp_path / "a.zarr", picture, ((3, 17), (5, 6)))


def test_fill_values_are_read_as_zarr_python_reads_them(tmp_path):
    for n, (dtype, fill) in enumerate(
        [("float32", np.nan), ("float64", -np.inf), ("uint8", 255), ("int16", -3), ("bool", True)]
    ):
        for zarr_format in (2, 3):
            folder = tmp_path / f"{n}-{zarr_format}.zarr"
            picture = np.full((4, 6), fill, dtype)
            write(folder, picture, (4, 4), zarr_format, dtype, {})
            array = zarr.open_group(folder)["0"]
            group = zarr.open_group(folder, mode="a")
            del group["0"]
            array = group.create_array(
                "0", shape=(4, 6), chunks=(4, 4), dtype=dtype, fill_value=fill
            )
            with registry.open_dataset(str(folder)) as dataset:
                found = read_region(dataset.images[0].levels[0].array, ((0, 4), (0, 6)))
            assert np.array_equal(found, array[...], equal_nan=dtype.startswith("float"))
