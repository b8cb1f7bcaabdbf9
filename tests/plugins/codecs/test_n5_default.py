"""Blocks of `n5_default` against the specification, z5py, tensorstore and plain zarr-python."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import struct
import zlib

import imagecodecs
import numcodecs
import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import given
from hypothesis import strategies as st

from openreadout.codecs import ChunkSpec, CodecSpec
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.registry import find_codec
from openreadout_codec_n5_default.zarr_codec import N5DefaultZarrCodec

pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")

DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")  # fmt: skip
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}


def transpose(ndim):
    return {"name": "transpose", "configuration": {"order": list(reversed(range(ndim)))}}


def configuration(ndim, *compressor):
    return {"codecs": [transpose(ndim), BIG, *compressor]}


def codec(config):
    return find_codec("n5_default").from_spec(CodecSpec("n5_default", config), find_codec)


def block(array, compress=bytes, mode=0):
    """An N5 block by the specification; the array's axis 0 is the fastest."""
    header = struct.pack(f">HH{array.ndim}I", mode, array.ndim, *array.shape)
    return header + compress(array.astype(array.dtype.newbyteorder(">")).tobytes(order="F"))


@st.composite
def blocks(draw):
    """An array, a chunk shape that may be longer or shorter, and a compressor with its encoder."""
    ndim = draw(st.integers(1, 5))
    sides = st.tuples(*[st.integers(1, 6)] * ndim)
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape, chunk = draw(sides), draw(sides)
    seed = draw(st.integers(0, 2**32 - 1))
    array = np.random.default_rng(seed).integers(0, 100, shape).astype(dtype)
    return array, chunk, draw(st.sampled_from(sorted(COMPRESSORS)))


COMPRESSORS = {
    "raw": ((), bytes),
    "gzip": ((GZIP,), gzip.compress),
    "zlib": (({"name": "zlib"},), zlib.compress),
    "bz2": (({"name": "numcodecs.bz2"},), bz2.compress),
    "xz": (({"name": "numcodecs.lzma"},), lzma.compress),
    "zstd": (({"name": "zstd"},), numcodecs.Zstd(1).encode),
    "blosc": (({"name": "blosc"},), numcodecs.Blosc("lz4").encode),
    "lz4-sized": (({"name": "n5.lz4"},), numcodecs.LZ4().encode),
    "lz4-bare": (({"name": "n5.lz4"},), lambda d: bytes(imagecodecs.lz4_encode(d))),
}


@given(case=blocks())
def test_blocks_are_cropped_and_padded_to_the_chunk(case):
    array, chunk, name = case
    specs, compress = COMPRESSORS[name]
    spec = ChunkSpec(chunk, array.dtype.name, 5)
    decoded = codec(configuration(array.ndim, *specs)).decode(block(array, compress), spec)
    expected = np.full(chunk, 5, array.dtype)
    overlap = tuple(slice(0, min(a, b)) for a, b in zip(array.shape, chunk, strict=True))
    expected[overlap] = array[overlap]
    assert decoded.dtype == array.dtype
    np.testing.assert_array_equal(decoded, expected)


@pytest.mark.parametrize("name", ["raw", "gzip", "bz2", "xz", "zstd", "blosc"])
def test_tensorstore_reads_what_is_written(tmp_path, name):
    compression = {
        "raw": {"type": "raw"}, "gzip": {"type": "gzip"}, "bz2": {"type": "bzip2"}, "xz": {"type": "xz"},
        "zstd": {"type": "zstd"}, "blosc": {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1},
    }[name]  # fmt: skip
    data = np.arange(7 * 5 * 3, dtype="uint16").reshape(7, 5, 3)
    attributes = {
        "dimensions": [7, 5, 3], "blockSize": [7, 5, 3], "dataType": "uint16", "compression": compression,
    }  # fmt: skip
    (tmp_path / "attributes.json").write_text(json.dumps(attributes))
    (tmp_path / "0" / "0").mkdir(parents=True)
    encoded = codec(configuration(3, *COMPRESSORS[name][0])).encode(data, ChunkSpec(data.shape, "uint16"))  # fmt: skip
    (tmp_path / "0" / "0" / "0").write_bytes(encoded)
    store = {"driver": "n5", "kvstore": {"driver": "file", "path": str(tmp_path)}}
    np.testing.assert_array_equal(tensorstore.open(store).result().read().result(), data)


@pytest.mark.parametrize("compression", [None, "raw", "gzip", "bzip2", "xz", "blosc"])
def test_what_z5py_writes_is_read(tmp_path, compression):
    import z5py

    names = {None: "gzip", "raw": "raw", "gzip": "gzip", "bzip2": "bz2", "xz": "xz", "blosc": "blosc"}  # fmt: skip
    data = np.arange(5 * 6 * 7, dtype="float32").reshape(5, 6, 7)
    with z5py.File(str(tmp_path / "a.n5"), mode="w", use_zarr_format=False) as file:
        options = {} if compression is None else {"compression": compression}
        file.create_dataset("d", data=data, chunks=(4, 4, 4), **options)
    ours = codec(configuration(3, *COMPRESSORS[names[compression]][0]))
    whole = np.full((8, 8, 8), -1, "f4")
    for path in sorted((tmp_path / "a.n5" / "d").glob("*/*/*")):
        x, y, z = (4 * int(n) for n in path.relative_to(tmp_path / "a.n5" / "d").parts)
        part = ours.decode(path.read_bytes(), ChunkSpec((4, 4, 4), "float32", -1))
        whole[z : z + 4, y : y + 4, x : x + 4] = part.transpose(2, 1, 0)
    np.testing.assert_array_equal(whole[:5, :6, :7], data)
    assert (whole[5:] == -1).all()


def test_one_byte_samples_need_no_byte_order():
    data = np.arange(6, dtype="uint8").reshape(3, 2)
    config = {"codecs": [transpose(2), {"name": "bytes"}]}
    decoded = codec(config).decode(block(data), ChunkSpec((3, 2), "uint8"))
    np.testing.assert_array_equal(decoded, data)
    with pytest.raises(CorruptDataError, match="endian"):
        codec(config).encoded(ChunkSpec((3, 2), "uint16"))


@pytest.mark.parametrize("dtype", ["bool", "float16", "complex64"])
def test_data_types_that_n5_lacks_are_unsupported(dtype):
    with pytest.raises(UnsupportedFeatureError, match=dtype):
        codec(configuration(1)).encode(np.zeros(3, dtype), ChunkSpec((3,), dtype))


def test_the_header_that_is_written_is_the_specifications():
    encoded = codec(configuration(2)).encode(np.zeros((3, 260), "u1"), ChunkSpec((3, 260), "uint8"))
    assert encoded[:12] == bytes.fromhex("0000 0002 00000003 00000104")


def test_a_side_that_the_header_cannot_hold_is_unsupported():
    spec = ChunkSpec((1 << 32, 0), "uint8")
    with pytest.raises(UnsupportedFeatureError, match="header"):
        codec(configuration(2)).encode(np.zeros((1, 0), "u1"), spec)


# -- blocks that are not sound ----------------------------------------------------------------------

ARRAY = np.arange(12, dtype="uint16").reshape(4, 3)
SPEC = ChunkSpec((4, 3), "uint16")
GOOD = block(ARRAY)


@pytest.mark.parametrize(("mode", "word"), [(1, "varlength"), (2, "object")])
def test_other_modes_are_unsupported_by_name(mode, word):
    with pytest.raises(UnsupportedFeatureError, match=word):
        codec(configuration(2)).decode(block(ARRAY, mode=mode), SPEC)


@pytest.mark.parametrize(
    "data",
    [
        b"", GOOD[:3], GOOD[:4], GOOD[:11], GOOD[:12], GOOD[:-1], GOOD + b"\0", b"\0\3" + GOOD[2:],
        block(ARRAY.reshape(12)), block(ARRAY.reshape(2, 2, 3)),
        struct.pack(">HHII", 0, 2, 0, 3), struct.pack(">HHII", 0, 2, 2**31 - 1, 2**31 - 1) + bytes(24),
        struct.pack(">HHII", 0, 2, 2**32 - 1, 1) + bytes(24), struct.pack(">HH", 0, 65535) + bytes(300),
        b"\x89PNG\r\n\x1a\n" + bytes(40),
    ],
    ids=lambda data: f"{len(data)}-{data[:12].hex()}",
)  # fmt: skip
@pytest.mark.parametrize("through", ["ours", "zarr"])
def test_a_damaged_block_is_corrupt(data, through):
    array, store = zarr_array((4, 3), (4, 3), configuration(2)["codecs"])
    store["0/0"] = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(data)
    ours = codec(configuration(2))
    with pytest.raises(CorruptDataError):
        ours.decode(data, SPEC) if through == "ours" else array[...]


def test_absurd_sizes_with_a_small_compressed_payload_allocate_nothing():
    import tracemalloc

    bomb = struct.pack(">HHII", 0, 2, 1 << 15, 1 << 15) + gzip.compress(bytes(1 << 20))
    tracemalloc.start()
    with pytest.raises(CorruptDataError):
        codec(configuration(2, GZIP)).decode(bomb, SPEC)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@given(part=st.floats(0, 1, exclude_max=True), name=st.sampled_from(sorted(COMPRESSORS)))
def test_cut_blocks_are_corrupt(part, name):
    specs, compress = COMPRESSORS[name]
    encoded = block(np.arange(5000, dtype="uint16").reshape(50, 100) % 70, compress)
    ours = codec(configuration(2, *specs))
    with pytest.raises(CorruptDataError):
        ours.decode(encoded[: int(part * len(encoded))], ChunkSpec((50, 100), "uint16"))


@given(
    where=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7),
    name=st.sampled_from(sorted(COMPRESSORS)),
)
def test_a_flipped_bit_is_an_error_or_gives_the_right_shape(where, bit, name):
    specs, compress = COMPRESSORS[name]
    encoded = bytearray(block(np.arange(500, dtype="uint16").reshape(50, 10) % 70, compress))
    encoded[int(where * len(encoded))] ^= 1 << bit
    ours = codec(configuration(2, *specs))
    try:
        decoded = ours.decode(bytes(encoded), ChunkSpec((50, 10), "uint16"))
    except (CorruptDataError, UnsupportedFeatureError):
        return
    assert decoded.shape == (50, 10)


# -- plain zarr-python ------------------------------------------------------------------------------


def zarr_array(shape, chunks, codecs, dtype="uint16", **more):
    store = {}
    array = zarr.create_array(
        zarr.storage.MemoryStore(store), shape=shape, chunks=chunks, dtype=dtype, filters=None, compressors=None,
        serializer=N5DefaultZarrCodec(codecs=codecs), fill_value=0,
        chunk_key_encoding={"name": "v2", "separator": "/"}, **more,
    )  # fmt: skip
    return array, store


@pytest.mark.parametrize("dtype", DTYPES)
def test_plain_zarr_writes_blocks_that_we_read_and_reads_its_own(dtype):
    data = np.arange(7 * 5 * 3).reshape(7, 5, 3).astype(dtype)
    bytes_codec = {"name": "bytes"} if data.itemsize == 1 else BIG
    array, store = zarr_array(data.shape, (4, 4, 2), [transpose(3), bytes_codec, GZIP], dtype)
    array[...] = data
    reopened = zarr.open_array(zarr.storage.MemoryStore(store), mode="r")
    np.testing.assert_array_equal(reopened[...], data)
    (described,) = json.loads(store["zarr.json"].to_bytes())["codecs"]
    ours = codec(described["configuration"]).decode(store["0/1/0"].to_bytes(), ChunkSpec((4, 4, 2), dtype))  # fmt: skip
    np.testing.assert_array_equal(ours[:, :1], data[:4, 4:, :2])


BLOSC = {"typesize": 1, "cname": "lz4", "clevel": 1, "shuffle": "noshuffle", "blocksize": 0}


@pytest.mark.parametrize("name", sorted(set(COMPRESSORS) - {"zlib"}))
def test_plain_zarr_reads_blocks_of_any_length(name):
    specs, compress = COMPRESSORS[name]
    specs = [{"configuration": {}} | spec for spec in specs]
    if name == "blosc":
        specs = [{"name": "blosc", "configuration": BLOSC}]
    array, store = zarr_array((8, 6), (4, 3), [transpose(2), BIG, *specs])
    longer = np.arange(30, dtype="uint16").reshape(5, 6)
    shorter = np.arange(4, dtype="uint16").reshape(2, 2)
    make = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes
    store["0/0"], store["1/1"] = make(block(longer, compress)), make(block(shorter, compress))
    expected = np.zeros((8, 6), "uint16")
    expected[:4, :3] = longer[:4, :3]
    expected[4:6, 3:5] = shorter
    np.testing.assert_array_equal(array[...], expected)


def test_blocks_inside_shards_through_plain_zarr():
    data = np.arange(8 * 8, dtype="uint16").reshape(8, 8)
    array, store = zarr_array((8, 8), (2, 4), [transpose(2), BIG, GZIP], shards=(4, 8))
    array[...] = data
    np.testing.assert_array_equal(zarr.open_array(zarr.storage.MemoryStore(store))[...], data)


def test_java_lz4_is_written_by_plain_zarr_and_read_by_us():
    data = np.arange(64, dtype="uint16").reshape(8, 8)
    lz4 = {"name": "n5.lz4", "configuration": {"blockSize": 64}}
    array, store = zarr_array((8, 8), (8, 8), [transpose(2), BIG, lz4])
    array[...] = data
    np.testing.assert_array_equal(zarr.open_array(zarr.storage.MemoryStore(store))[...], data)
    stored = store["0/0"].to_bytes()
    assert stored[12:20] == b"LZ4Block"
    decoded = codec(configuration(2, lz4)).decode(stored, ChunkSpec((8, 8), "uint16"))
    np.testing.assert_array_equal(decoded, data)


# -- N5's jpeg --------------------------------------------------------------------------------------

FLAT = np.repeat(np.arange(8, dtype="uint8") * 30, 64).reshape(8, 8, 8)
"""Axis 0 slowest: planes of one grey value, which JPEG keeps."""


@pytest.mark.parametrize("shape", [(64, 8), (8, 64), (1, 512), (512, 1)], ids=str)
@pytest.mark.parametrize("through", ["ours", "zarr"])
def test_a_jpeg_block_is_the_flattened_samples(shape, through):
    wanted = FLAT.transpose(2, 1, 0)  # N5 order
    image = FLAT.reshape(shape)

    def compress(raw):
        assert raw == FLAT.tobytes()
        return bytes(imagecodecs.jpeg8_encode(image, level=100))

    data = block(wanted, compress)
    if through == "ours":
        config = {"codecs": [transpose(3), {"name": "bytes"}, {"name": "n5.jpeg"}]}
        decoded = codec(config).decode(data, ChunkSpec((8, 8, 8), "uint8"))
    else:
        jpeg = {"name": "n5.jpeg", "configuration": {}}
        array, store = zarr_array((8, 8, 8), (8, 8, 8), [transpose(3), BIG, jpeg], "uint8")
        store["0/0/0"] = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(data)
        decoded = array[...]
    assert np.abs(decoded.astype(int) - wanted).max() <= 3


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (np.zeros((8, 65), "u1"), CorruptDataError),
        (np.zeros((8, 63), "u1"), CorruptDataError),
        (np.zeros((8, 64, 3), "u1"), UnsupportedFeatureError),
    ],
    ids=["more", "fewer", "colour"],
)
def test_a_jpeg_block_that_leaves_its_samples_open_is_refused(image, error):
    data = block(FLAT, lambda raw: bytes(imagecodecs.jpeg8_encode(image, level=100)))
    config = {"codecs": [transpose(3), {"name": "bytes"}, {"name": "n5.jpeg"}]}
    with pytest.raises(error):
        codec(config).decode(data, ChunkSpec((8, 8, 8), "uint8"))


def test_a_jpeg_block_holds_one_byte_samples_only():
    with pytest.raises(CorruptDataError, match="uint8"):
        codec(configuration(3, {"name": "n5.jpeg"})).encoded(ChunkSpec((8, 8, 8), "uint16"))


def test_zarr_refuses_an_inner_codec_that_it_does_not_know():
    with pytest.raises(ValueError, match="no-such-codec"):
        N5DefaultZarrCodec(codecs=[transpose(2), BIG, {"name": "no-such-codec"}])


def test_an_inner_codec_that_we_do_not_know_is_unsupported():
    with pytest.raises(UnsupportedFeatureError, match="no-such-codec"):
        codec(configuration(2, {"name": "no-such-codec"}))


def test_zarr_codec_objects_may_be_given():
    given = [
        zarr.codecs.TransposeCodec(order=(1, 0)),
        zarr.codecs.BytesCodec(endian="big"),
        zarr.codecs.GzipCodec(level=1),
    ]
    described = N5DefaultZarrCodec(codecs=[transpose(2), BIG, GZIP]).to_dict()
    assert N5DefaultZarrCodec(codecs=given).to_dict() == described


def test_a_transpose_for_other_dimensions_is_refused_by_both():
    with pytest.raises(CorruptDataError, match="axes"):
        codec(configuration(3)).decode(GOOD, SPEC)
    _, store = zarr_array((4, 3), (4, 3), [transpose(2), BIG])
    document = json.loads(store["zarr.json"].to_bytes())
    document["codecs"][0]["configuration"]["codecs"][0] = transpose(3)
    make = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes
    store["zarr.json"], store["0/0"] = make(json.dumps(document).encode()), make(GOOD)
    with pytest.raises(ValueError, match=r"dimensions|axes"):
        zarr.open_array(zarr.storage.MemoryStore(store))[...]
