"""Zarr's own codecs against zarr-python and tensorstore, and against hostile shards."""

from __future__ import annotations

import gzip
import itertools
import struct

import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from openreadout.codecs import ByteSize, ChunkSpec, CodecChain, CodecSpec, PartialDecoder
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.registry import find_codec

DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
    "complex64", "complex128",
)  # fmt: skip
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
CRC = {"name": "crc32c"}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": True}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}


def chain(codecs):
    specs = [CodecSpec(codec["name"], codec.get("configuration", {})) for codec in codecs]
    return CodecChain.build(specs, find_codec)


def one_chunk(store):
    """The only chunk object of a zarr-python memory store."""
    (key,) = (key for key in store if key.startswith("c"))
    return store[key].to_bytes(), key


def written_by_zarr(array, codecs, fill_value=0):
    """The single chunk that zarr-python stores of `array`, None when it stores none."""
    store = {}
    filters = [codec for codec in codecs if codec["name"] == "transpose"]
    serializer, *compressors = codecs[len(filters) :]
    target = zarr.create_array(
        zarr.storage.MemoryStore(store), shape=array.shape, chunks=array.shape, dtype=array.dtype,
        filters=filters or None, serializer=zarr_codec(serializer), compressors=compressors or None,
        fill_value=fill_value, config={"write_empty_chunks": True},
    )  # fmt: skip
    target[...] = array
    return one_chunk(store)[0]


def zarr_codec(codec):
    return zarr.registry.get_codec_class(codec["name"]).from_dict(codec)


def read_by_zarr(data, array, codecs, fill_value=0):
    """What zarr-python reads of the single chunk `data` that is said to have been `array`."""
    store = {}
    filters = [codec for codec in codecs if codec["name"] == "transpose"]
    serializer, *compressors = codecs[len(filters) :]
    target = zarr.create_array(
        zarr.storage.MemoryStore(store), shape=array.shape, chunks=array.shape, dtype=array.dtype,
        filters=filters or None, serializer=zarr_codec(serializer), compressors=compressors or None,
        fill_value=fill_value, config={"write_empty_chunks": True},
    )  # fmt: skip
    target[...] = array
    _, key = one_chunk(store)
    store[key] = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(data)
    return target[...]


@st.composite
def stored_arrays(draw):
    """An array, and a random chain of Zarr v3 codecs for it, sometimes sharded."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    ndim = draw(st.integers(1, 4))
    inner = draw(st.tuples(*[st.integers(1, 4)] * ndim))
    grid = draw(st.tuples(*[st.integers(1, 3)] * ndim))
    shape = tuple(a * b for a, b in zip(inner, grid, strict=True))
    array = draw(hnp.arrays(dtype, shape, fill=st.just(dtype.type(0))))
    order = list(draw(st.permutations(range(ndim))))
    tail = draw(st.sampled_from(([], [ZSTD], [GZIP], [CRC], [ZSTD, CRC])))
    core = [draw(st.sampled_from((BIG, LITTLE))), *tail]
    transpose = [{"name": "transpose", "configuration": {"order": order}}]
    if draw(st.booleans()):
        return array, [*draw(st.sampled_from(([], transpose))), *core]
    config = {
        "chunk_shape": list(inner), "codecs": [*draw(st.sampled_from(([], transpose))), *core],
        "index_codecs": draw(st.sampled_from(([LITTLE, CRC], [LITTLE], [BIG, CRC]))),
        "index_location": draw(st.sampled_from(("start", "end"))),
    }  # fmt: skip
    return array, [{"name": "sharding_indexed", "configuration": config}]


def same(a, b):
    """Equal to the bit, so that NaN equals itself and -0 differs from 0."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@given(case=stored_arrays())
def test_random_chains_agree_with_zarr_python_both_ways(case):
    array, codecs = case
    spec = ChunkSpec(array.shape, array.dtype.name)
    ours = chain(codecs)
    assert same(ours.decode(written_by_zarr(array, codecs), spec), array)
    assert same(read_by_zarr(ours.encode(array, spec), array, codecs), array)


@pytest.mark.parametrize("location", ["start", "end"])
def test_shards_of_tensorstore_are_read_part_by_part(tmp_path, location):
    data = np.arange(16 * 24, dtype="uint16").reshape(16, 24)
    data[4:8, 8:16] = 7
    config = {
        "chunk_shape": [4, 8], "codecs": [BIG, GZIP], "index_codecs": [LITTLE, CRC], "index_location": location,
    }  # fmt: skip
    codecs = [{"name": "sharding_indexed", "configuration": config}]
    grid = {"name": "regular", "configuration": {"chunk_shape": [16, 24]}}
    metadata = {
        "shape": [16, 24], "data_type": "uint16", "codecs": codecs, "fill_value": 7, "chunk_grid": grid,
    }  # fmt: skip
    store = tensorstore.open(
        {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path)}, "metadata": metadata},
        create=True,
    ).result()  # fmt: skip
    store.write(data).result()
    shard = Shard((tmp_path / "c" / "0" / "0").read_bytes())
    spec = ChunkSpec((16, 24), "uint16", 7)
    partial = chain(codecs).partial
    assert isinstance(partial, PartialDecoder)
    index = partial.load_index(shard, spec)
    positions = list(itertools.product(range(4), range(3)))
    assert partial.stored_parts(index, spec) == [p for p in positions if p != (1, 1)]
    for y, x in positions:
        part = partial.decode_part(shard, index, (y, x), spec)
        assert partial.is_stored(index, (y, x)) == ((y, x) != (1, 1))
        if (y, x) == (1, 1):
            assert part is None
        else:
            np.testing.assert_array_equal(part, data[4 * y : 4 * y + 4, 8 * x : 8 * x + 8])
    np.testing.assert_array_equal(chain(codecs).decode(shard.data, spec), data)
    assert shard.largest < len(shard.data) / 2


class Shard:
    """A stored object that notes the largest range asked for."""

    def __init__(self, data):
        self.data = data
        self.largest = 0

    def size(self):
        return len(self.data)

    def read(self, offset, length):
        assert 0 <= offset <= offset + length <= len(self.data)
        self.largest = max(self.largest, length)
        return self.data[offset : offset + length]


# -- shards that are not sound ----------------------------------------------------------------------


def sharded(index_codecs=(LITTLE,), inner=(2, 2), codecs=(LITTLE,), **more):
    config = {
        "chunk_shape": list(inner),
        "codecs": list(codecs),
        "index_codecs": list(index_codecs),
    }
    return [{"name": "sharding_indexed", "configuration": config | more}]


SPEC = ChunkSpec((4, 2), "uint8", 9)
EMPTY = 2**64 - 1
GZIP_OF_FOUR = gzip.compress(b"abcd")


def shard_bytes(entries, body=b"abcdefgh"):
    return body + b"".join(struct.pack("<QQ", *entry) for entry in entries)


def test_parts_may_be_out_of_order_and_share_bytes():
    decoded = chain(sharded()).decode(shard_bytes([(4, 4), (2, 4)]), SPEC)
    assert decoded.tobytes() == b"efghcdef"


def test_parts_that_are_not_stored_hold_the_fill_value():
    decoded = chain(sharded()).decode(shard_bytes([(EMPTY, EMPTY), (0, 4)]), SPEC)
    assert decoded.tolist() == [[9, 9], [9, 9], [97, 98], [99, 100]]


@pytest.mark.parametrize(
    "entry",
    [
        (0, 41), (40, 1), (41, 0), (EMPTY, 4), (0, EMPTY), (EMPTY - 1, 4), (EMPTY - 1, EMPTY), (2**63, 2**63),
        (0, 3), (0, 5), (0, 0), (2**32, 4),
    ],
    ids=str,
)  # fmt: skip
def test_an_index_entry_that_points_astray_is_corrupt(entry):
    with pytest.raises(CorruptDataError, match="sharding_indexed"):
        chain(sharded()).decode(shard_bytes([(0, 4), entry]), SPEC)


@pytest.mark.parametrize("length", [0, 1, 31])
def test_a_shard_shorter_than_its_index_is_corrupt(length):
    with pytest.raises(CorruptDataError, match="index"):
        chain(sharded()).decode(bytes(length), SPEC)


def test_a_wrong_index_checksum_is_corrupt():
    good = chain(sharded([LITTLE, CRC])).encode(np.ones((4, 2), "u1"), SPEC)
    for n in range(len(good) - 36, len(good)):
        bad = bytearray(good)
        bad[n] ^= 0x10
        with pytest.raises(CorruptDataError, match="checksum"):
            chain(sharded([LITTLE, CRC])).decode(bytes(bad), SPEC)


def test_one_long_range_that_every_entry_names_is_never_read():
    body = GZIP_OF_FOUR + bytes(1 << 18)  # padding that gzip allows
    entries = [(0, len(body))] * 2
    shard = Shard(shard_bytes(entries, body))
    partial = chain(sharded(codecs=(LITTLE, GZIP))).partial
    index = partial.load_index(shard, SPEC)
    with pytest.raises(CorruptDataError, match="at most"):
        partial.decode_part(shard, index, (0, 0), SPEC)
    assert shard.largest == 32


def test_a_huge_grid_in_a_small_object_allocates_nothing():
    spec = ChunkSpec((1 << 15, 1 << 15), "uint8")
    with pytest.raises(CorruptDataError, match="index"):
        chain(sharded(inner=(1, 1))).decode(bytes(100), spec)


@pytest.mark.parametrize(
    "codecs",
    [
        sharded(inner=(0, 2)), sharded(inner=(-2, 2)), sharded(inner=(2.0, 2)), sharded(inner=(True, 2)),
        sharded(codecs=()), sharded(index_codecs=()), sharded(codecs=(CRC,)), sharded(codecs=(CRC, LITTLE)),
        sharded(codecs=(LITTLE, BIG)), sharded(codecs=(5,)), sharded(codecs=({"name": 5},)),
        sharded(codecs=({"name": "bytes", "configuration": []},)), sharded(index_location="middle"),
        [{"name": "sharding_indexed", "configuration": {}}], [{"name": "sharding_indexed"}],
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_sharding_configuration_is_refused(codecs):
    with pytest.raises(CorruptDataError):
        chain(codecs)


@pytest.mark.parametrize(
    "codecs",
    [sharded(inner=(3, 2)), sharded(inner=(2,)), sharded(inner=(8, 2)), sharded([LITTLE, GZIP])],
    ids=str,
)
def test_a_sharding_configuration_that_does_not_fit_the_array_is_refused(codecs):
    with pytest.raises(CorruptDataError, match="sharding_indexed"):
        chain(codecs).encoded(SPEC)


def test_shards_within_shards():
    inner = sharded(inner=(2, 1), codecs=(LITTLE, ZSTD))
    codecs = sharded(inner=(2, 2), codecs=inner)
    data = np.arange(8, dtype="u1").reshape(4, 2)
    encoded = chain(codecs).encode(data, SPEC)
    np.testing.assert_array_equal(chain(codecs).decode(encoded, SPEC), data)
    np.testing.assert_array_equal(read_by_zarr(encoded, data, codecs), data)


def test_thousands_of_shards_within_shards_are_refused():
    codecs = [LITTLE]
    for _ in range(3000):
        codecs = sharded(inner=(4, 2), codecs=codecs)
    with pytest.raises(CorruptDataError, match="too many"):
        chain(codecs)


@pytest.mark.parametrize("fill", [0.0, -0.0, float("nan")])
def test_only_parts_with_the_very_bits_of_the_fill_value_are_left_out(fill):
    spec = ChunkSpec((4, 1), "float32", fill)
    codecs = sharded(inner=(1, 1))
    data = np.array([0.0, -0.0, np.nan, 1.0], "f4").reshape(4, 1)
    encoded = chain(codecs).encode(data, spec)
    assert len(encoded) == 3 * 4 + 4 * 16
    assert chain(codecs).decode(encoded, spec).tobytes() == data.tobytes()


# -- bytes, transpose, reshape, crc32c --------------------------------------------------------------


def test_samples_of_several_bytes_need_a_byte_order():
    with pytest.raises(CorruptDataError, match="endian"):
        chain([{"name": "bytes"}]).encoded(ChunkSpec((2,), "uint16"))
    assert chain([{"name": "bytes"}]).decode(b"ab", ChunkSpec((2,), "uint8")).tolist() == [97, 98]


@pytest.mark.parametrize("endian", ["native", 1, True, ["big"]])
def test_an_unknown_byte_order_is_refused(endian):
    with pytest.raises(CorruptDataError, match="endian"):
        chain([{"name": "bytes", "configuration": {"endian": endian}}])


@pytest.mark.parametrize("size", [0, 5, 7, 100])
def test_bytes_of_another_length_are_corrupt(size):
    with pytest.raises(CorruptDataError, match="bytes"):
        chain([LITTLE]).decode(bytes(size), ChunkSpec((3,), "uint16"))


def test_any_byte_but_zero_is_true():
    decoded = chain([LITTLE]).decode(b"\0\1\2\xff", ChunkSpec((4,), "bool"))
    assert (decoded == [False, True, True, True]).all()
    assert decoded.tobytes() == b"\0\1\1\1"


def test_an_unknown_data_type_is_unsupported():
    with pytest.raises(UnsupportedFeatureError, match="float128"):
        chain([LITTLE]).decode(bytes(16), ChunkSpec((1,), "float128"))


@pytest.mark.parametrize(("order", "expected"), [("C", (2, 3, 4)), ("F", (4, 3, 2))])
def test_orders_of_old_drafts(order, expected):
    codec = find_codec("transpose").from_spec(CodecSpec("transpose", {"order": order}), find_codec)
    assert codec.encoded(ChunkSpec((2, 3, 4), "uint8")).shape == expected


@pytest.mark.parametrize(
    "order", [None, "A", [0, 0], [1, 2], [0, 1.0], [True, 0], 5, list(range(40)), [[0]]]
)
def test_a_transpose_order_that_is_no_permutation_is_refused(order):
    with pytest.raises(CorruptDataError, match="transpose"):
        chain([{"name": "transpose", "configuration": {"order": order}}, LITTLE])


def test_a_transpose_for_another_number_of_axes_is_refused():
    codecs = [{"name": "transpose", "configuration": {"order": [1, 0]}}, LITTLE]
    with pytest.raises(CorruptDataError, match="axes"):
        chain(codecs).encoded(ChunkSpec((2, 2, 2), "uint8"))


def reshape(shape):
    return find_codec("reshape").from_spec(CodecSpec("reshape", {"shape": shape}), find_codec)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ([24], (24,)), ([-1], (24,)), ([6, 4], (6, 4)), ([6, -1], (6, 4)), ([[0, 1], [2]], (6, 4)),
        ([[0], [1, 2]], (2, 12)), ([[0], -1], (2, 12)), ([-1, [2]], (6, 4)), ([1, [0], [1], [2], 1], (1, 2, 3, 4, 1)),
        ([2, 3, [2]], (2, 3, 4)),
    ],
    ids=str,
)  # fmt: skip
def test_reshape_gives_the_shape_that_its_entries_say(shape, expected):
    codec, spec = reshape(shape), ChunkSpec((2, 3, 4), "uint8")
    data = np.arange(24, dtype="u1").reshape(2, 3, 4)
    assert codec.encoded(spec).shape == expected
    encoded = codec.encode(data.transpose(0, 2, 1).transpose(0, 2, 1), spec)
    assert encoded.shape == expected
    assert encoded.tobytes() == data.tobytes()
    np.testing.assert_array_equal(codec.decode(encoded, spec), data)


BAD_RESHAPES = [
    None, "24", 24, [0], [-2], [1.0], [True], ["6"], [[]], [[-1]], [[0.5]], [-1, -1], [[0], [0]], [[1], [0]], [[1, 0]],
    [[0, 0]], [None], [[[0]]], [1] * 40,
]  # fmt: skip
UNFIT_RESHAPES = [
    [25],
    [5, -1],
    [[0], [1], [3]],
    [[1], -1],
    [[0, 2], -1],
    [3, [0], 4],
    [[0], 3],
    [48, -1],
]


@pytest.mark.parametrize("shape", BAD_RESHAPES, ids=str)
def test_a_bad_reshape_is_refused_when_parsed(shape):
    with pytest.raises(CorruptDataError, match="reshape"):
        reshape(shape)
    described = {"name": "reshape", "configuration": {"shape": shape}}
    with pytest.raises((ValueError, TypeError)):
        zarr_codec(described)


@pytest.mark.parametrize("shape", UNFIT_RESHAPES, ids=str)
def test_a_reshape_that_does_not_fit_the_array_is_refused(shape):
    with pytest.raises(CorruptDataError, match="reshape"):
        reshape(shape).encoded(ChunkSpec((2, 3, 4), "uint8"))


def test_plain_zarr_writes_and_reads_reshape():
    data = np.arange(4 * 6 * 8, dtype="uint16").reshape(4, 6, 8)
    store = {}
    codec = zarr_codec({"name": "reshape", "configuration": {"shape": [[0, 1], [2]]}})
    array = zarr.create_array(
        zarr.storage.MemoryStore(store), shape=data.shape, chunks=(2, 3, 8), dtype="uint16",
        filters=[codec], compressors=None, fill_value=0,
    )  # fmt: skip
    array[...] = data
    reopened = zarr.open_array(zarr.storage.MemoryStore(store), mode="r")
    np.testing.assert_array_equal(reopened[...], data)
    described = [{"name": "reshape", "configuration": {"shape": [[0, 1], [2]]}}, LITTLE]
    ours = chain(described).decode(store["c/0/1/0"].to_bytes(), ChunkSpec((2, 3, 8), "uint16"))
    np.testing.assert_array_equal(ours, data[:2, 3:])


def test_lengths_made_for_a_chunk_open_under_the_shape_of_the_array():
    data = np.arange(8 * 6, dtype="uint16").reshape(8, 6)
    store = {}
    codec = zarr_codec({"name": "reshape", "configuration": {"shape": [2, 2, 3]}})
    array = zarr.create_array(
        zarr.storage.MemoryStore(store), shape=data.shape, chunks=(4, 3), dtype="uint16", filters=[codec],
        compressors=None, fill_value=0,
    )  # fmt: skip
    assert len(codec.resolve_metadata(whole_array(array)).shape) == 3
    array[...] = data
    np.testing.assert_array_equal(zarr.open_array(zarr.storage.MemoryStore(store))[...], data)


def whole_array(array):
    """zarr-python's own specification of a whole array, as metadata are checked with."""
    return zarr.core.array_spec.ArraySpec(
        shape=array.shape, dtype=array.metadata.data_type, fill_value=0,
        config=zarr.core.array_spec.ArrayConfig.from_dict({}),
        prototype=zarr.core.buffer.default_buffer_prototype(),
    )  # fmt: skip


@pytest.mark.parametrize("direction", ["reading", "writing"])
def test_plain_zarr_refuses_chunks_that_a_reshape_does_not_fit(direction):
    codec = zarr_codec({"name": "reshape", "configuration": {"shape": [5, 5]}})
    store = {}
    array = zarr.create_array(
        zarr.storage.MemoryStore(store), shape=(8, 6), chunks=(4, 3), dtype="uint8", filters=[codec], compressors=None,
        fill_value=0,
    )  # fmt: skip
    store["c/0/0"] = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(bytes(12))
    with pytest.raises(ValueError, match="reshape"):
        array[...] if direction == "reading" else array.set_basic_selection(..., 1)


@pytest.mark.parametrize("location", ["start", "end"])
def test_a_crc32c_on_either_side(location):
    codec = find_codec("crc32c").from_spec(CodecSpec("crc32c", {"location": location}), find_codec)
    encoded = codec.encode(b"123456789")
    check = (0xE3069283).to_bytes(4, "little")  # the check value of RFC 3720's polynomial
    assert encoded == (check + b"123456789" if location == "start" else b"123456789" + check)
    assert codec.decode(encoded, ByteSize(9)) == b"123456789"
    with pytest.raises(CorruptDataError, match="checksum"):
        codec.decode(encoded[:4] + b"x" + encoded[5:], ByteSize(9))
