"""EncodedArray over a store that is a dictionary; the codec is a plain one, so that only this class is tested."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openreadout.arrays import grid_shape, read_region
from openreadout.codecs import ByteSize, CodecSpec
from openreadout.encoded import ChunkKeys, EncodedArray
from openreadout.errors import CorruptDataError, StorageError, UnsupportedFeatureError


class MemoryStore:
    """Bytes by key from a dictionary, counting what is read."""

    kind, path = "memory", "memory"

    can_list = can_walk = True
    far = False

    def __init__(self, values=None):
        self.values = dict(values or {})
        self.reads = 0

    def get(self, key, limit=1 << 40):
        self.reads += 1
        return self.values.get(key)

    def get_range(self, key, offset, length):
        data = self.get(key)
        return None if data is None else data[offset : offset + length]

    def size(self, key):
        return len(self.values[key]) if key in self.values else None

    def has(self, key, limit=1 << 40):
        return key in self.values

    def list_dir(self, prefix):
        return [], []

    def walk(self, prefix):
        base = f"{prefix}/" if prefix else ""
        return iter([(key, len(data)) for key, data in self.values.items() if key.startswith(base)])

    def close(self):
        pass


class Plain:
    """Little-endian samples in C order."""

    kind = "array-bytes"

    @classmethod
    def from_spec(cls, spec, lookup):
        return cls()

    def encoded(self, spec):
        return ByteSize(spec.byte_count)

    def decode(self, data, spec):
        ByteSize(spec.byte_count).check(len(data), "plain")
        return np.frombuffer(data, spec.dtype).reshape(spec.shape)


def lookup(name):
    if name == "plain":
        return Plain
    raise UnsupportedFeatureError(f"codec {name} is not supported")


def build(
    store,
    shape,
    chunk,
    *,
    dtype="uint16",
    fill=9,
    codec="plain",
    path="0",
    style="default",
    separator="/",
):
    return EncodedArray(
        store=store, path=path, shape=shape, stored_chunk=chunk, dtype=dtype, fill_value=fill,
        keys=ChunkKeys(style, separator, len(shape)), codecs=(CodecSpec(codec),), lookup=lookup,
        documents=("zarr.json",),
    )  # fmt: skip


def fill_store(whole, chunk, present, keys, path="0"):
    """Write the chunks that are to be present, padded to the full chunk."""
    store = MemoryStore({f"{path}/zarr.json": b"{}"})
    for index in present:
        block = np.zeros(chunk, whole.dtype)
        part = whole[tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, chunk, strict=True))]
        block[tuple(slice(0, n) for n in part.shape)] = part
        store.values[f"{path}/{keys.key(index)}"] = block.tobytes()
    return store


@st.composite
def layouts(draw):
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(ndim))
    chunk = tuple(draw(st.integers(1, 5)) for _ in range(ndim))
    every = list(np.ndindex(grid_shape(shape, chunk)))
    present = draw(st.sets(st.sampled_from(every)))
    keys = draw(st.sampled_from([("default", "/"), ("default", "."), ("v2", "/"), ("v2", ".")]))
    return shape, chunk, present, keys


@given(layouts())
def test_array_is_read_with_absent_chunks_as_the_fill_value(layout):
    shape, chunk, present, (style, separator) = layout
    whole = (np.arange(np.prod(shape)) % 1000).astype("uint16").reshape(shape)
    keys = ChunkKeys(style, separator, len(shape))
    store = fill_store(whole, chunk, present, keys)
    array = build(store, shape, chunk, style=style, separator=separator)
    wanted = np.full(shape, 9, "uint16")
    for index in present:
        part = tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, chunk, strict=True))
        wanted[part] = whole[part]
    assert np.array_equal(read_region(array, tuple((0, n) for n in shape)), wanted)
    found = array.presence()
    assert found.total == int(np.prod(grid_shape(shape, chunk)))
    assert (found.stored, found.exact, found.strays) == (len(present), True, ())
    assert list(array.stored_indices()) == sorted(present)
    assert (found.first, found.last) == (min(present, default=None), max(present, default=None))


@given(st.data())
def test_keys_go_there_and_back(data):
    style = data.draw(st.sampled_from(["default", "v2"]))
    separator = data.draw(st.sampled_from("./"))
    index = tuple(data.draw(st.lists(st.integers(0, 10**12), max_size=5)))
    keys = ChunkKeys(style, separator, len(index))
    assert keys.index(keys.key(index)) == index


@pytest.mark.parametrize(
    ("style", "separator", "index", "key"),
    [
        ("default", "/", (1, 23, 45), "c/1/23/45"),
        ("default", ".", (1, 23, 45), "c.1.23.45"),
        ("default", "/", (), "c"),
        ("v2", ".", (1, 23, 45), "1.23.45"),
        ("v2", "/", (0,), "0"),
        ("v2", ".", (), "0"),
    ],
)
def test_keys_are_those_of_the_specification(style, separator, index, key):
    """Zarr v3 core specification, "Chunk key encoding"."""
    assert ChunkKeys(style, separator, len(index)).key(index) == key


@pytest.mark.parametrize(
    "name",
    [
        "c/1",
        "c/01/2",
        "c/-1/2",
        "c/a/b",
        "d/1/2",
        "1/2",
        "c/1/2/3",
        "c/\u0661/2",
        "c/ 1/2",
        "",
        "c",
    ],
)
def test_other_names_are_no_chunk(name):
    assert ChunkKeys("default", "/", 2).index(name) is None


def test_files_that_nothing_explains_are_strays():
    whole = np.zeros((4, 4), "uint16")
    store = fill_store(whole, (2, 2), [(0, 0), (1, 1)], ChunkKeys("default", "/", 2))
    store.values |= {"0/c/7/7": b"", "0/.DS_Store": b"", "0/c/0/x": b"", "1/c/0/0": b""}
    found = build(store, (4, 4), (2, 2)).presence()
    assert found.strays == ("0/.DS_Store", "0/c/0/x", "0/c/7/7")
    assert found.stored == 2


def test_describing_builds_no_chain_and_reads_nothing():
    store = MemoryStore()
    array = build(store, (4, 4), (2, 2), codec="unknown")
    assert (array.shape, array.chunk_shape, array.layout.codecs[0].name) == (
        (4, 4),
        (2, 2),
        "unknown",
    )
    assert store.reads == 0
    store.values["0/c/0/0"] = bytes(8)
    with pytest.raises(UnsupportedFeatureError, match="unknown"):
        array.read_chunk((0, 0))


def test_damage_names_the_codec_and_the_key():
    store = MemoryStore({"0/c/0/1": bytes(5)})
    with pytest.raises(CorruptDataError, match="0/c/0/1: plain: 5 bytes where 8 belong") as caught:
        build(store, (4, 4), (2, 2)).read_chunk((0, 1))
    assert (caught.value.where, caught.value.path) == ("0/c/0/1", "memory")


def test_a_chunk_larger_than_the_limit_is_refused_before_it_is_allocated():
    store = MemoryStore({"0/c/0/0": b"x"})
    with pytest.raises(CorruptDataError, match="more than the"):
        build(store, (2**40, 2**40), (2**40, 2**40)).read_chunk((0, 0))


def test_an_absent_chunk_of_a_huge_array_costs_nothing():
    array = build(MemoryStore(), (2**40, 2**14), (2**10, 2**14), dtype="uint8")
    chunk = array.read_chunk((2**29, 0))
    assert chunk.shape == (2**10, 2**14)
    assert (chunk[0, :5] == 9).all()


def test_a_type_that_is_no_pixel_is_named():
    with pytest.raises(UnsupportedFeatureError, match="datetime64"):
        build(MemoryStore({"0/c/0": b""}), (4,), (2,), dtype="datetime64[ns]").read_chunk((0,))


def test_refusal_of_the_system_keeps_its_class():
    class Refusing(MemoryStore):
        def get(self, key, limit=0):
            raise StorageError("permission denied", path="disk")

    with pytest.raises(StorageError) as caught:
        build(Refusing(), (4,), (2,)).read_chunk((0,))
    assert (caught.value.where, caught.value.path) == ("0/c/0", "disk")


def test_presence_of_more_chunks_than_can_be_listed_is_an_estimate(monkeypatch):
    from openreadout import encoded, limits

    monkeypatch.setattr(encoded, "MAX_LISTED", 10)
    monkeypatch.setattr(limits, "PRESENCE_SAMPLES", 20)
    keys = ChunkKeys("v2", ".", 1)
    store = MemoryStore({f"0/{keys.key((n,))}": b"" for n in range(0, 200, 2)})
    found = build(store, (200,), (1,), style="v2", separator=".").presence()
    assert (found.total, found.exact) == (200, False)
    assert found.first == (0,)
