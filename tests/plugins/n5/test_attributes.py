"""Attributes of a dataset: what is accepted, what is refused and how, and which codec a compression becomes."""

from __future__ import annotations

import json

import pytest

from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.registry import find_codec, open_dataset
from openreadout.stores import DirectoryStore
from openreadout_n5.attributes import LABEL_MULTISET, encoded_array, parse_dataset
from openreadout_n5.tree import read_node

GOOD = {
    "dimensions": [5, 4, 3],
    "blockSize": [2, 2, 2],
    "dataType": "uint16",
    "compression": {"type": "raw"},
}
WRONG = {
    "dimensions-negative": ({"dimensions": [5, -4, 3]}, "dimensions"),
    "dimensions-fraction": ({"dimensions": [5, 4.5, 3]}, "dimensions"),
    "dimensions-text": ({"dimensions": ["5", 4, 3]}, "dimensions"),
    "dimensions-bool": ({"dimensions": [True, 4, 3]}, "dimensions"),
    "dimensions-huge": ({"dimensions": [5, 4, 1 << 63]}, "dimensions"),
    "dimensions-astronomic": ({"dimensions": [5, 4, 10**400]}, "dimensions"),
    "dimensions-empty": ({"dimensions": []}, "dimensions"),
    "dimensions-object": ({"dimensions": {"x": 5}}, "dimensions"),
    "dimensions-number": ({"dimensions": 5}, "dimensions"),
    "dimensions-null": ({"dimensions": None}, "dimensions"),
    "dimensions-many": ({"dimensions": [1] * 33, "blockSize": [1] * 33}, "dimensions"),
    "block-zero": ({"blockSize": [2, 0, 2]}, "blockSize"),
    "block-negative": ({"blockSize": [2, -2, 2]}, "blockSize"),
    "block-rank": ({"blockSize": [2, 2]}, "blockSize"),
    "block-beyond-32-bits": ({"blockSize": [1 << 32, 2, 2]}, "blockSize"),
    "block-absent": ({"blockSize": None}, "blockSize"),
    "type-number": ({"dataType": 5}, "dataType"),
    "type-empty": ({"dataType": ""}, "dataType"),
    "type-long": ({"dataType": "x" * 10_000}, "dataType"),
    "compression-number": ({"compression": 7}, "compression"),
    "compression-list": ({"compression": ["gzip"]}, "compression"),
    "compression-without-type": ({"compression": {"level": 3}}, "compression"),
    "compression-type-number": ({"compression": {"type": 3}}, "compression"),
}


def _write(folder, attributes):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "attributes.json").write_text(json.dumps(attributes))


@pytest.mark.parametrize(("change", "field"), WRONG.values(), ids=WRONG)
def test_wrong_attribute_is_named_with_its_key(change, field):
    with pytest.raises(CorruptDataError, match=field) as caught:
        parse_dataset("a", "a/attributes.json", {**GOOD, **change})
    assert caught.value.where == "a/attributes.json"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("change", "field"), WRONG.values(), ids=WRONG)
def test_wrong_dataset_is_a_finding_and_the_sound_one_beside_it_is_read(tmp_path, change, field):
    _write(tmp_path / "c.n5", {"n5": "4.0.0"})
    _write(tmp_path / "c.n5/bad", {**GOOD, **change})
    _write(tmp_path / "c.n5/good", GOOD)
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        assert [image.extra["group"] for image in dataset.images] == ["good"]
        finding = next(f for f in dataset.findings if f.severity == "error")
    assert (finding.code, finding.location) == ("array_metadata", "bad/attributes.json")
    assert field in finding.message


@pytest.mark.parametrize(
    ("compression", "name", "configuration"),
    [
        ({"type": "raw"}, None, None),
        ({"type": "gzip", "level": 3}, "gzip", {"level": 3}),
        ({"type": "gzip", "level": -1}, "gzip", {"level": 6}),
        ({"type": "gzip", "level": "high"}, "gzip", {"level": 6}),
        ({"type": "gzip", "level": 2, "useZlib": True}, "zlib", {"level": 2}),
        ({"type": "bzip2", "blockSize": 5}, "numcodecs.bz2", {"level": 5}),
        ({"type": "xz", "preset": 4}, "numcodecs.lzma", {"preset": 4}),
        ({"type": "lz4", "blockSize": 4096}, "n5.lz4", {"blockSize": 4096}),
        ({"type": "zstd", "level": 7}, "zstd", {"level": 7, "checksum": False}),
        ({"type": "jpeg", "quality": 80}, "n5.jpeg", {"quality": 80}),
        ({"id": "gzip", "level": 1}, "gzip", {"level": 1}),
        ("gzip", "gzip", {"level": 6}),
        ({"type": "turbo", "speed": 11}, "turbo", {"speed": 11}),
    ],
)
def test_compression_becomes_a_codec(compression, name, configuration):
    spec = parse_dataset("", "attributes.json", {**GOOD, "compression": compression}).compressor
    assert (spec and spec.name) == name
    assert (spec and dict(spec.configuration)) == configuration


@pytest.mark.parametrize(
    ("dtype", "shuffle", "expected"),
    [
        ("uint8", -1, "bitshuffle"), ("uint16", -1, "shuffle"), ("uint16", 2, "bitshuffle"),
        ("uint16", 0, "noshuffle"), ("uint16", 77, "shuffle"), ("uint16", None, "shuffle"),
    ],
)  # fmt: skip
def test_blosc_shuffle_is_a_name(dtype, shuffle, expected):
    compression = {
        "type": "blosc",
        "cname": "zstd",
        "clevel": 4,
        "shuffle": shuffle,
        "blocksize": 0,
    }
    spec = parse_dataset(
        "", "k", {**GOOD, "dataType": dtype, "compression": compression}
    ).compressor
    assert dict(spec.configuration) == {
        "cname": "zstd", "clevel": 4, "shuffle": expected, "blocksize": 0,
        "typesize": 1 if dtype == "uint8" else 2,
    }  # fmt: skip


def test_old_compression_type_is_read():
    old = {key: value for key, value in GOOD.items() if key != "compression"}
    info = parse_dataset("", "attributes.json", {**old, "compressionType": "bzip2"})
    assert info.compressor.name == "numcodecs.bz2"


@pytest.mark.parametrize("name", ["string", "object", "complex64", "bool", "float16", "uint128"])
def test_type_that_n5_has_no_numbers_for_keeps_a_name_and_is_not_read(tmp_path, name):
    _write(tmp_path, {**GOOD, "dataType": name})
    (tmp_path / "0/0").mkdir(parents=True)
    (tmp_path / "0/0/0").write_bytes(b"\0\0\0\3\0\0\0\2\0\0\0\2\0\0\0\2" + bytes(64))
    store = DirectoryStore(str(tmp_path))
    array = encoded_array(store, read_node(store, "").dataset, find_codec)
    assert name in array.dtype
    with pytest.raises(UnsupportedFeatureError, match=name):
        array.read_chunk((0, 0, 0))


def test_label_multiset_is_never_read_as_uint8():
    info = parse_dataset("", "k", {**GOOD, "dataType": "uint8", "isLabelMultiset": True})
    assert info.dtype == LABEL_MULTISET


def test_type_that_is_not_read_is_told(tmp_path):
    _write(tmp_path, {**GOOD, "dataType": "string"})
    with open_dataset(str(tmp_path)) as dataset:
        image = dataset.images[0]
        assert (image.pixel_type, image.readable) == (None, False)
        assert image.extra["unsupported_dtype"] == "string"


def test_absurd_block_size_opens_and_allocates_nothing(tmp_path):
    side = (1 << 31) - 1
    _write(tmp_path, {**GOOD, "dimensions": [side] * 3, "blockSize": [side] * 3})
    (tmp_path / "0/0").mkdir(parents=True)
    (tmp_path / "0/0/0").write_bytes(b"\0\0\0\3" + side.to_bytes(4, "big") * 3 + bytes(16))
    with open_dataset(str(tmp_path)) as dataset:
        array = dataset.images[0].levels[0].array
        assert array.shape == (side, side, side)
        with pytest.raises(CorruptDataError, match="bytes"):
            array.read_chunk((0, 0, 0))


def test_layout_shows_the_chunk_slowest_first_and_the_compressor(tmp_path):
    _write(tmp_path, {**GOOD, "blockSize": [4, 3, 2], "compression": {"type": "gzip"}})
    with open_dataset(str(tmp_path)) as dataset:
        layout = dataset.images[0].levels[0].array.layout
    assert layout.chunk == (2, 3, 4)
    assert [codec.name for codec in layout.codecs] == ["n5_default", "gzip"]
