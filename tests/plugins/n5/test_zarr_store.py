"""The stores that show N5 as Zarr v3: zarr-python's own tests of stores, and what others write and read."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorstore
import z5py
import zarr
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore
from zarr.testing.store import StoreTests

from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout_n5.zarr_metadata import from_zarr, to_zarr
from openreadout_n5.zarr_store import ImplicitGroupStore, N5DefaultStore

pytestmark = [
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3"),
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
]


class _Conformance(StoreTests):
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, tmp_path):
        (tmp_path / "store").mkdir()
        return {"store": LocalStore(str(tmp_path / "store"))}

    @pytest.fixture
    def store(self, open_kwargs):
        return sync(self.store_cls.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs):
        return self.store_cls(**store_kwargs)

    async def set(self, store, key: str, value: Buffer) -> None:
        file = store._store.root / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(value.to_bytes())

    async def get(self, store, key: str) -> Buffer:
        return self.buffer_cls.from_bytes((store._store.root / key).read_bytes())

    def test_store_repr(self, store) -> None:
        assert repr(store).startswith(type(store).__name__)

    def test_store_supports_writes(self, store) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store) -> None:
        assert store.supports_listing


class TestN5DefaultStore(_Conformance):
    store_cls = N5DefaultStore


class TestImplicitGroupStore(_Conformance):
    store_cls = ImplicitGroupStore


def _pixels(*shape, dtype="uint16"):
    data = np.random.default_rng(5).integers(0, 100, shape)
    return data.astype(dtype)


N5_BLOCKS = {"name": "v2", "separator": "/"}


def _create(group, name, data, chunks, compressor=None, **options):
    inner = [
        {"name": "transpose", "configuration": {"order": list(range(data.ndim))[::-1]}},
        {"name": "bytes", "configuration": {"endian": "big"}},
        *([compressor] if compressor else []),
    ]
    array = group.create_array(
        name,
        shape=data.shape,
        chunks=chunks,
        dtype=data.dtype,
        serializer={"name": "n5_default", "configuration": {"codecs": inner}},
        compressors=None,
        filters=None,
        chunk_key_encoding=N5_BLOCKS,
        **options,
    )
    array[...] = data
    return array


COMPRESSORS = {
    "raw": None,
    "gzip": {"name": "gzip", "configuration": {"level": 4}},
    "zstd": {"name": "zstd", "configuration": {"level": 2, "checksum": False}},
    "blosc": {
        "name": "blosc",
        "configuration": {
            "cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0,
        },
    },
    "bzip2": {"name": "numcodecs.bz2", "configuration": {"level": 3}},
    "xz": {"name": "numcodecs.lzma", "configuration": {"preset": 2}},
}  # fmt: skip


@pytest.mark.parametrize("name", COMPRESSORS)
def test_what_zarr_writes_through_the_store_tensorstore_and_z5py_read(tmp_path, name):
    data = _pixels(11, 9, 7)
    group = zarr.open_group(N5DefaultStore(LocalStore(str(tmp_path / "c.n5"))), mode="w")
    _create(group, "a/b", data, (4, 4, 4), COMPRESSORS[name], attributes={"resolution": [1, 2, 3]})
    path = tmp_path / "c.n5/a/b"
    assert json.loads((path / "attributes.json").read_text())["compression"]["type"] == name
    assert not list((tmp_path / "c.n5").rglob("zarr.json"))
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path)}}
    np.testing.assert_array_equal(tensorstore.open(spec).result().read().result(), data)
    with z5py.File(str(tmp_path / "c.n5"), mode="r", use_zarr_format=False) as file:
        np.testing.assert_array_equal(file["a/b"][...], data.T)
        assert file["a/b"].attrs["resolution"] == [1, 2, 3]


@pytest.mark.parametrize("compression", ["raw", "gzip", "bzip2", "xz", "blosc", "zstd"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint64", "float32", "float64"])
def test_what_z5py_writes_zarr_reads_through_the_store(tmp_path, compression, dtype):
    data = _pixels(5, 7, 9, dtype=dtype)
    with z5py.File(str(tmp_path / "c.n5"), mode="w", use_zarr_format=False) as file:
        file.create_dataset(
            "g/a", data=data, chunks=(2, 3, 4), compression=compression, n_threads=1
        )
    group = zarr.open_group(N5DefaultStore(LocalStore(str(tmp_path / "c.n5"))), mode="r")
    np.testing.assert_array_equal(group["g/a"][...].T, data)


@pytest.mark.parametrize(
    "compression",
    [{"type": "raw"}, {"type": "gzip", "level": 3, "useZlib": True}, {"type": "zstd", "level": 1}],
)
def test_what_tensorstore_writes_zarr_reads_through_the_store(tmp_path, compression):
    data = _pixels(11, 9)
    spec = {
        "driver": "n5",
        "kvstore": {"driver": "file", "path": str(tmp_path / "c.n5/deep/er/a")},
        "metadata": {
            "dimensions": [11, 9], "blockSize": [4, 5], "dataType": "uint16",
            "compression": compression, "axes": ["x", "y"],
        },
        "create": True,
    }  # fmt: skip
    tensorstore.open(spec).result().write(data).result()
    # None of the folders above the dataset has an attributes.json.
    group = zarr.open_group(N5DefaultStore(LocalStore(str(tmp_path / "c.n5"))), mode="r")
    array = group["deep/er/a"]
    np.testing.assert_array_equal(array[...], data)
    np.testing.assert_array_equal(array[3:8, 2:7], data[3:8, 2:7])
    assert array.metadata.dimension_names == ("x", "y")
    names = [name for name, _ in group.members(max_depth=None)]
    assert names == ["deep", "deep/er", "deep/er/a"]


def test_folders_of_blocks_are_no_groups(tmp_path):
    with z5py.File(str(tmp_path / "c.n5"), mode="w", use_zarr_format=False) as file:
        file.create_dataset("a", data=_pixels(5, 7, 9), chunks=(2, 3, 4), n_threads=1)
    group = zarr.open_group(N5DefaultStore(LocalStore(str(tmp_path / "c.n5"))), mode="r")
    assert "a/0" not in group
    assert "nothing" not in group
    assert "a" in group


def test_version_is_kept_and_not_an_attribute(tmp_path):
    (tmp_path / "c.n5").mkdir()
    file = tmp_path / "c.n5/attributes.json"
    file.write_text(json.dumps({"n5": "1.5.0", "mine": 1}))
    group = zarr.open_group(N5DefaultStore(LocalStore(str(tmp_path / "c.n5"))), mode="r+")
    assert dict(group.attrs) == {"mine": 1}
    group.attrs["more"] = 2
    assert json.loads(file.read_text()) == {"n5": "1.5.0", "mine": 1, "more": 2}


def test_attributes_of_an_array_are_kept_beside_its_own(tmp_path):
    group = zarr.open_group(N5DefaultStore(LocalStore(str(tmp_path / "c.n5"))), mode="w")
    array = _create(group, "a", _pixels(5, 7), (4, 4))
    array.attrs["units"] = ["nm", "nm"]
    again = zarr.open_array(N5DefaultStore(LocalStore(str(tmp_path / "c.n5"))), path="a", mode="r")
    assert dict(again.attrs) == {"units": ["nm", "nm"]}
    np.testing.assert_array_equal(again[...], _pixels(5, 7))


def test_read_only_refuses_to_write(tmp_path):
    zarr.open_group(N5DefaultStore(LocalStore(str(tmp_path / "c.n5"))), mode="w")
    store = N5DefaultStore(LocalStore(str(tmp_path / "c.n5")), read_only=True)
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_group(store, mode="r+").attrs["a"] = 1
    assert asyncio.run(_keys(store)) == ["zarr.json"]


async def _keys(store, prefix=""):
    return sorted([key async for key in store.list_prefix(prefix)])


def test_listing_shows_documents_in_place_of_attributes():
    async def run():
        inner = MemoryStore()
        store = N5DefaultStore(inner)
        make = cpu.Buffer.from_bytes
        await inner.set("attributes.json", make(b"{}"))
        await inner.set("zarr.json", make(b"{}"))
        await inner.set("a/attributes.json", make(b"{}"))
        await inner.set("a/0/0", make(b"x"))
        await inner.set("zoo/0", make(b"x"))
        assert await _keys(store) == ["a/0/0", "a/zarr.json", "zarr.json", "zoo/0"]
        assert await _keys(store, "a/") == ["a/0/0", "a/zarr.json"]
        assert await _keys(store, "a/z") == ["a/zarr.json"]
        assert sorted([n async for n in store.list_dir("a")]) == ["0", "zarr.json"]
        assert sorted([n async for n in store.list_dir("")]) == ["a", "zarr.json", "zoo"]
        await store.delete("a/zarr.json")
        assert not await inner.exists("a/attributes.json")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("request_", "part"),
    [
        (zarr.abc.store.RangeByteRequest(1, 5), slice(1, 5)),
        (zarr.abc.store.OffsetByteRequest(4), slice(4, None)),
        (zarr.abc.store.SuffixByteRequest(3), slice(-3, None)),
        (zarr.abc.store.SuffixByteRequest(10_000), slice(0, None)),
    ],
)
def test_parts_of_a_document_are_parts_of_the_whole(request_, part):
    async def run():
        inner = MemoryStore()
        await inner.set("attributes.json", cpu.Buffer.from_bytes(b'{"a": 1}'))
        store, prototype = N5DefaultStore(inner), default_buffer_prototype()
        whole = (await store.get("zarr.json", prototype)).to_bytes()
        assert json.loads(whole)["attributes"] == {"a": 1}
        assert await store.getsize("zarr.json") == len(whole)
        cut = await store.get("zarr.json", prototype, request_)
        assert cut.to_bytes() == whole[part]
        with pytest.raises(ValueError, match="Unexpected byte_range"):
            await store.get("zarr.json", prototype, (0, 2))

    asyncio.run(run())


def test_implicit_groups_over_a_store_that_cannot_list():
    class Blind(MemoryStore):
        supports_listing = False

    async def run():
        store = ImplicitGroupStore(Blind())
        found = await store.get("any/zarr.json", default_buffer_prototype())
        assert json.loads(found.to_bytes()) == {"zarr_format": 3, "node_type": "group"}
        assert await store.get("any/0", default_buffer_prototype()) is None

    asyncio.run(run())


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"dimensions": [-1], "blockSize": [1], "dataType": "uint8"}']
)
def test_damaged_attributes_are_an_error_and_not_an_empty_group(tmp_path, text):
    (tmp_path / "c.n5").mkdir()
    (tmp_path / "c.n5/attributes.json").write_text(text)
    with pytest.raises(CorruptDataError, match=r"attributes\.json"):
        zarr.open_group(N5DefaultStore(LocalStore(str(tmp_path / "c.n5"))), mode="r")


def test_type_without_equivalent_is_refused():
    attributes = {
        "dimensions": [1],
        "blockSize": [1],
        "dataType": "string",
        "compression": {"type": "raw"},
    }
    with pytest.raises(UnsupportedFeatureError, match="string"):
        to_zarr(attributes, "attributes.json")


GOOD = {
    "zarr_format": 3, "node_type": "array", "shape": [4, 6], "data_type": "uint16",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
    "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}},
    "fill_value": 0, "attributes": {},
    "codecs": [{"name": "n5_default", "configuration": {"codecs": [
        {"name": "transpose", "configuration": {"order": [1, 0]}},
        {"name": "bytes", "configuration": {"endian": "big"}},
    ]}}],
}  # fmt: skip


def _n5(*inner):
    return [{"name": "n5_default", "configuration": {"codecs": list(inner)}}]


TRANSPOSE, BYTES = GOOD["codecs"][0]["configuration"]["codecs"]
REFUSED = {
    "bool": {"data_type": "bool"},
    "complex": {"data_type": "complex64"},
    "float16": {"data_type": "float16"},
    "structured": {"data_type": {"name": "struct", "configuration": {}}},
    "fill": {"fill_value": 1},
    "fill-nan": {"fill_value": "NaN"},
    "fill-bool": {"fill_value": False},
    "keys-dot": {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "."}}},
    "keys-default": {
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}
    },
    "grid": {"chunk_grid": {"name": "rectilinear", "configuration": {"chunk_shape": [2, 3]}}},
    "block-huge": {
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1 << 31, 3]}}
    },
    "block-zero": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 3]}}},
    "block-rank": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2]}}},
    "scalar": {
        "shape": [],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": []}},
    },
    "codecs-plain": {"codecs": [BYTES]},
    "codecs-none": {"codecs": []},
    "codecs-after": {"codecs": [*GOOD["codecs"], {"name": "gzip", "configuration": {"level": 1}}]},
    "little": {"codecs": _n5(TRANSPOSE, {"name": "bytes", "configuration": {"endian": "little"}})},
    "order": {"codecs": _n5({"name": "transpose", "configuration": {"order": [0, 1]}}, BYTES)},
    "two-compressors": {"codecs": _n5(TRANSPOSE, BYTES, {"name": "gzip"}, {"name": "gzip"})},
    "crc32c": {"codecs": _n5(TRANSPOSE, BYTES, {"name": "crc32c"})},
    "lzma-alone": {
        "codecs": _n5(TRANSPOSE, BYTES, {"name": "numcodecs.lzma", "configuration": {"format": 2}})
    },
    "transformers": {"storage_transformers": [{"name": "x"}]},
    "extension": {"new_thing": {"name": "x"}},
    "attribute-dimensions": {"attributes": {"dimensions": [1]}},
    "attribute-version": {"attributes": {"n5": "4"}},
    "names-partly": {"dimension_names": ["x", None]},
    "names-differ": {"dimension_names": ["x", "y"], "attributes": {"axes": ["y", "x"]}},
}


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED)
def test_document_that_n5_cannot_hold_is_refused_and_nothing_is_written(change):
    async def run():
        inner = MemoryStore()
        data = cpu.Buffer.from_bytes(json.dumps({**GOOD, **change}).encode())
        with pytest.raises(UnsupportedFeatureError, match="N5 cannot hold"):
            await N5DefaultStore(inner).set("a/zarr.json", data)
        assert [key async for key in inner.list()] == []

    asyncio.run(run())


@pytest.mark.parametrize(
    "change",
    [
        {"shape": "4"}, {"shape": [4, -6]}, {"shape": [4.0, 6]}, {"shape": None}, {"node_type": "thing"},
        {"attributes": []}, {"chunk_grid": None}, {"codecs": [5]}, {"chunk_key_encoding": {"name": 5}},
    ],
)  # fmt: skip
def test_document_that_breaks_the_rules_of_zarr_is_corrupt(change):
    with pytest.raises(CorruptDataError):
        from_zarr({**GOOD, **change}, {}, "zarr.json", root=True)


def test_document_survives_both_ways():
    attributes = from_zarr({**GOOD, "dimension_names": ["x", "y"]}, {}, "zarr.json", root=True)
    assert attributes == {
        "n5": "2.0.0", "dimensions": [4, 6], "blockSize": [2, 3], "dataType": "uint16",
        "compression": {"type": "raw"}, "axes": ["x", "y"],
    }  # fmt: skip
    again = to_zarr(attributes, "attributes.json")
    assert again.pop("attributes") == {"axes": ["x", "y"]}
    assert again == {
        **{key: value for key, value in GOOD.items() if key != "attributes"},
        "dimension_names": ["x", "y"],
    }


@pytest.mark.corpus
def test_corpus_containers_read_through_the_store(corpus, tmp_path):
    entries = json.loads((Path(corpus) / "manifest.json").read_text())
    read = 0
    for case in (entry for entry in entries if entry["kind"] == "n5"):
        copy = tmp_path / case["id"]
        shutil.copytree(Path(corpus) / case["path"], copy)
        store = N5DefaultStore(LocalStore(str(copy)), read_only=True)
        group = zarr.open_group(store, mode="r")
        for wanted in case["expect"].get("arrays", []):
            attributes = json.loads((copy / wanted["path"] / "attributes.json").read_text())
            compression = attributes.get("compression", {}).get("type")
            if compression == "lz4" or not wanted.get("sha256"):
                continue  # zarr-python has no codec for the framings of lz4 in N5
            block = np.asarray(group[wanted["path"]][...]).T
            little = block.astype(block.dtype.newbyteorder("<"), copy=False)
            digest = hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest()
            assert digest == wanted["sha256"], (case["id"], wanted["path"])
            read += 1
    assert read > 50
