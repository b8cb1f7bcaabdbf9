"""Arrays of Zarr v2 and v3 against zarr-python, and metadata that lies."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import struct

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from openreadout.arrays import read_region
from openreadout.codecs import ITEM_BYTES
from openreadout.errors import CorruptDataError, StorageError, UnsupportedFeatureError
from openreadout.registry import find_codec
from openreadout.stores import DirectoryStore
from openreadout_ome_zarr.arrays import load_array, open_array, parse_v2, parse_v3
from openreadout_ome_zarr.dtypes import DataType, parse_fill, parse_v2_type, parse_v3_type

DTYPES = list(ITEM_BYTES)
rng = np.random.default_rng(7)


def pixels(shape, dtype) -> np.ndarray:
    raw = rng.integers(0, 2 if dtype == "bool" else 100, shape)
    return (raw + 1j * raw).astype(dtype) if dtype.startswith("complex") else raw.astype(dtype)


def ours(root, path="a") -> np.ndarray:
    array = open_array(DirectoryStore(str(root)), path, find_codec)
    return read_region(array, tuple((0, n) for n in array.shape))


def check(root, expected, path="a") -> None:
    got = ours(root, path)
    assert got.dtype == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("version", [2, 3])
def test_every_data_type_reads_as_zarr_python_wrote_it(tmp_path, version, dtype):
    data = pixels((7, 11), dtype)
    array = zarr.create_array(
        str(tmp_path / "a"), shape=data.shape, chunks=(3, 4), dtype=dtype, zarr_format=version
    )
    array[:] = data
    check(tmp_path, data)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [">u2", "<u2", ">f8", "<c8", "|i1"])
@pytest.mark.parametrize("separator", [".", "/"])
def test_zarr_2_orders_and_separators(tmp_path, order, dtype, separator):
    data = pixels((3, 5, 7), np.dtype(dtype).name)
    array = zarr.create_array(
        str(tmp_path / "a"),
        shape=data.shape,
        chunks=(2, 3, 4),
        dtype=dtype,
        order=order,
        zarr_format=2,
        chunk_key_encoding={"name": "v2", "separator": separator},
    )
    array[:] = data
    check(tmp_path, data)
    assert ours(tmp_path).dtype.isnative


@pytest.mark.parametrize("name", ["default", "v2"])
@pytest.mark.parametrize("separator", [".", "/"])
def test_zarr_3_chunk_keys(tmp_path, name, separator):
    data = pixels((5, 6), "uint16")
    array = zarr.create_array(
        str(tmp_path / "a"),
        shape=data.shape,
        chunks=(2, 4),
        dtype="uint16",
        chunk_key_encoding={"name": name, "separator": separator},
    )
    array[:] = data
    check(tmp_path, data)


def test_shards_that_overhang(tmp_path):
    data = pixels((9, 13), "int32")
    array = zarr.create_array(
        str(tmp_path / "a"), shape=data.shape, chunks=(2, 3), shards=(4, 6), dtype="int32"
    )
    array[:] = data
    check(tmp_path, data)


def test_zarr_2_filters_and_compressors(tmp_path):
    import numcodecs

    data = pixels((6, 8), "int32")
    array = zarr.create_array(
        str(tmp_path / "a"),
        shape=data.shape,
        chunks=(4, 4),
        dtype="int32",
        zarr_format=2,
        filters=[numcodecs.Delta(dtype="<i4")],
        compressors=numcodecs.LZ4(),
    )
    array[:] = data
    assert [c["id"] for c in json.loads((tmp_path / "a/.zarray").read_text())["filters"]] == [
        "delta"
    ]
    check(tmp_path, data)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (), (1,), (3,)])
@pytest.mark.parametrize("version", [2, 3])
def test_odd_shapes(tmp_path, shape, version):
    data = pixels(shape, "uint8")
    array = zarr.create_array(
        str(tmp_path / "a"),
        shape=shape,
        chunks=tuple(max(1, n) for n in shape),
        dtype="uint8",
        zarr_format=version,
    )
    array[...] = data
    check(tmp_path, data)


@pytest.mark.parametrize("fill", [0, 7, -1])
def test_absent_chunks_hold_the_fill_value(tmp_path, fill):
    zarr.create_array(
        str(tmp_path / "a"), shape=(5, 5), chunks=(2, 2), dtype="int16", fill_value=fill
    )
    check(tmp_path, np.full((5, 5), fill, "int16"))


def test_chunk_larger_than_the_array(tmp_path):
    data = pixels((3, 5), "uint16")
    zarr.create_array(
        str(tmp_path / "a"), shape=(3, 5), chunks=(8, 8), dtype="uint16", zarr_format=2
    )[:] = data
    check(tmp_path, data)


# -- separators ------------------------------


@pytest.mark.parametrize(("said", "used"), [(None, "/"), (".", "/"), ("/", ".")])
def test_chunks_under_the_other_separator_are_read_and_told(tmp_path, make, said, used):
    data = pixels((4, 6), "uint16")
    more = {} if said is None else {"dimension_separator": said}
    make.put(tmp_path, "a/.zarray", make.zarray((4, 6), (2, 6), **more))
    for row in range(2):
        make.put(tmp_path, f"a/{row}{used}0", data[2 * row : 2 * row + 2].astype("<u2").tobytes())
    opened = load_array(DirectoryStore(str(tmp_path)), "a", find_codec)
    assert used in (opened.oddity or "")
    check(tmp_path, data)


def test_other_separator_of_a_sparse_array(tmp_path, make):
    data = np.zeros((4, 6), "uint16")
    data[2:] = 9
    make.put(tmp_path, "a/.zarray", make.zarray((4, 6), (2, 6)))
    make.put(tmp_path, "a/1/0", data[2:].astype("<u2").tobytes())
    check(tmp_path, data)


def test_own_separator_counts_where_both_are_there(tmp_path, make):
    make.put(tmp_path, "a/.zarray", make.zarray((2, 2), dtype="|u1"))
    make.put(tmp_path, "a/0.0", bytes([1, 2, 3, 4]))
    make.put(tmp_path, "a/0/0", bytes([9, 9, 9, 9]))
    check(tmp_path, np.array([[1, 2], [3, 4]], "uint8"))


# -- data types and fill values ------------------------------


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("order", "<>")
def test_numpy_type_strings(name, order):
    text = np.dtype(name).newbyteorder(order).str
    found = parse_v2_type(text)
    assert found.name == name
    if np.dtype(name).itemsize > 1:
        assert found.endian == {"<": "little", ">": "big"}[order]


@pytest.mark.parametrize("word", ["|S10", "<U5", "|O", "<M8[ns]", "|V4", "<f16", "<i3", "|b2", "u"])
def test_types_that_are_no_pixels_keep_their_word(word):
    assert parse_v2_type(word).name == word
    assert parse_v2_type(word).name not in ITEM_BYTES


def test_records_and_objects_are_named():
    assert "'a'" in parse_v2_type([["a", "<u2"], ["b", "<f4"]]).name
    assert parse_v3_type({"name": "uint8"}).name == "uint8"
    assert (
        parse_v3_type({"name": "numpy.datetime64", "configuration": {"unit": "s"}}).name
        not in ITEM_BYTES
    )


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (None, "uint16", 0),
        ("0", "uint8", 0),
        ("12", "int16", 12),
        (7.0, "int16", 7),
        ("0x10", "uint8", 16),
        (True, "bool", True),
        (1, "bool", True),
        ("Infinity", "float32", math.inf),
        ("-Infinity", "float64", -math.inf),
        ("1.5", "float16", 1.5),
        ("0x3fc00000", "float32", 1.5),
        ([1, "-Infinity"], "complex64", complex(1, -math.inf)),
        (3, "complex128", 3 + 0j),
        (base64.b64encode(struct.pack("<H", 513)).decode(), "uint16", 513),
        (base64.b64encode(struct.pack("<d", 2.25)).decode(), "float64", 2.25),
    ],
)
def test_fill_values(value, dtype, expected):
    assert parse_fill(value, DataType(dtype, "little")) == expected


@pytest.mark.parametrize("value", ["NaN", "nan", "0x7fc00000", float("nan")])
def test_fill_values_that_are_not_numbers(value):
    assert math.isnan(parse_fill(value, DataType("float32")))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (256, "uint8"), (-1, "uint8"), (0.5, "int16"), ("NaN", "int32"), (1e39, "float32"), ("x", "float32"),
        ([1], "complex64"), ({}, "uint8"), ([], "uint8"), (2, "bool"), (10**400, "float64"), ("0x1ffffffff", "float32"),
        ("AAAA", "uint8"), (True, "float32"),
    ],
)  # fmt: skip
def test_fill_values_that_the_type_cannot_hold(value, dtype):
    with pytest.raises(CorruptDataError, match="fill_value"):
        parse_fill(value, DataType(dtype, "little"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON, st.sampled_from(DTYPES))
def test_any_fill_value_is_one_of_the_type_or_refused(value, dtype):
    try:
        found = parse_fill(value, DataType(dtype, "big"))
    except CorruptDataError:
        return
    with np.errstate(all="raise"):
        assert np.full((1,), found, np.dtype(dtype)).dtype == dtype


# -- hostile metadata ------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [-1, 4]}, {"shape": "44"}, {"shape": [4.5, 4]}, {"shape": [True, 4]}, {"shape": [1 << 63, 4]},
        {"shape": [4] * 33}, {"shape": None}, {"chunks": [0, 4]}, {"chunks": [4]}, {"chunks": [4, -4]},
        {"chunks": None}, {"dtype": 7}, {"dtype": None}, {"dtype": ""}, {"order": "A"}, {"order": []},
        {"dimension_separator": ":"}, {"dimension_separator": None}, {"compressor": "zlib"}, {"compressor": {}},
        {"compressor": {"id": 3}}, {"filters": {}}, {"filters": [3]}, {"fill_value": "x"}, {"zarr_format": 3},
    ],
)  # fmt: skip
def test_zarr_2_metadata_that_breaks_its_rules(make, change):
    parse_v2(make.zarray((4, 4)))
    with pytest.raises(CorruptDataError):
        parse_v2(make.zarray((4, 4)) | change)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [-1, 4]}, {"shape": {}}, {"shape": [1 << 63, 4]}, {"chunk_grid": None}, {"chunk_grid": {"name": 3}},
        {"chunk_grid": {"name": "regular"}}, {"chunk_grid": {"name": "regular", "configuration": []}},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}}}, {"codecs": []}, {"codecs": None},
        {"codecs": [3]}, {"codecs": [{"name": ""}]}, {"data_type": 3}, {"data_type": None}, {"fill_value": "x"},
        {"chunk_key_encoding": 3}, {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "_"}}},
    ],
)  # fmt: skip
def test_zarr_3_metadata_that_breaks_its_rules(make, change):
    parse_v3(make.array_json((4, 4)))
    with pytest.raises(CorruptDataError):
        parse_v3(make.array_json((4, 4)) | change)


@pytest.mark.parametrize(
    "change",
    [
        {"chunk_grid": {"name": "rectilinear", "configuration": {}}},
        {"chunk_key_encoding": {"name": "fanout"}},
        {"storage_transformers": [{"name": "x"}]},
        {"extension": {"name": "x"}},
        {"extension": 3},
    ],
)
def test_zarr_3_features_that_are_not_read(make, change):
    with pytest.raises(UnsupportedFeatureError):
        parse_v3(make.array_json((4, 4)) | change)


def test_extension_that_need_not_be_understood_is_passed_over(make):
    assert parse_v3(make.array_json((4, 4), extension={"must_understand": False})).shape == (4, 4)
    assert parse_v3(make.array_json((4, 4), storage_transformers=[])).shape == (4, 4)


@given(
    st.sampled_from(
        [
            "shape",
            "chunks",
            "dtype",
            "order",
            "fill_value",
            "compressor",
            "filters",
            "dimension_separator",
        ]
    ),
    JSON,
)
def test_any_value_of_a_zarr_2_key_is_taken_or_refused(key, value):
    document = {
        "zarr_format": 2,
        "shape": [4, 4],
        "chunks": [2, 2],
        "dtype": "<u2",
        "compressor": None,
        "order": "C",
    }
    with contextlib.suppress(CorruptDataError, UnsupportedFeatureError):
        parse_v2(document | {key: value})


@given(
    st.sampled_from(
        ["shape", "chunk_grid", "data_type", "codecs", "fill_value", "chunk_key_encoding", "x"]
    ),
    JSON,
)
def test_any_value_of_a_zarr_3_key_is_taken_or_refused(key, value):
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4, 4],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}},
        "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes"}],
        "fill_value": 0,
    }
    with contextlib.suppress(CorruptDataError, UnsupportedFeatureError):
        parse_v3(document | {key: value})


def test_huge_chunk_allocates_nothing(tmp_path, make):
    side = 1 << 40
    make.put(tmp_path, "a/.zarray", make.zarray((side, side), (side, side), "<f8"))
    make.put(tmp_path, "a/0.0", b"x")
    array = open_array(DirectoryStore(str(tmp_path)), "a", find_codec)
    with pytest.raises(CorruptDataError, match="one chunk would take"):
        array.read_chunk((0, 0))


@pytest.mark.parametrize("inside", [None, "0/0/stray"])
def test_folder_where_a_chunk_belongs_is_no_absent_chunk(tmp_path, make, inside):
    make.put(tmp_path, "a/.zarray", make.zarray((2, 4), (2, 2), dimension_separator="/"))
    (tmp_path / "a/0/0").mkdir(parents=True)
    (tmp_path / "a/empty").mkdir()
    if inside is not None:
        make.put(tmp_path, f"a/{inside}", b"x")
    array = open_array(DirectoryStore(str(tmp_path)), "a", find_codec)
    found = array.presence()
    assert (found.total, found.stored, found.first, found.strays) == (2, 1, (0, 0), ())
    with pytest.raises(StorageError, match="a folder stands where a file belongs"):
        array.read_chunk((0, 0))


def test_codecs_that_are_no_text_can_still_be_shown(make):
    bad = {"id": "zst\ud800", "level": "\ud800"}
    specs = parse_v2(make.zarray((4, 4), compressor=bad)).codecs
    bad = [{"name": "byt\ud800", "configuration": {"endian": "\ud800", "x": math.nan}}]
    specs += parse_v3(make.array_json((4, 4), codecs=bad)).codecs
    for spec in specs:
        json.dumps(
            [spec.name, dict(spec.configuration)], ensure_ascii=False, allow_nan=False
        ).encode()


def test_unknown_codec_opens_and_is_named_when_read(tmp_path, make):
    make.put(tmp_path, "a/.zarray", make.zarray((2, 2), compressor={"id": "no_such_codec"}))
    make.put(tmp_path, "a/0.0", b"12345678")
    array = open_array(DirectoryStore(str(tmp_path)), "a", find_codec)
    assert [spec.name for spec in array.codecs] == ["bytes", "no_such_codec"]
    with pytest.raises(UnsupportedFeatureError, match="no_such_codec"):
        array.read_chunk((0, 0))


def test_path_that_climbs_is_not_followed(tmp_path, make):
    make.put(tmp_path, "secret/.zarray", make.zarray((2, 2)))
    (tmp_path / "store").mkdir()
    store = DirectoryStore(str(tmp_path / "store"))
    for path in ("../secret", "a/../../secret", "a\\..\\secret", "C:/secret", "a\0", "\ud800"):
        with pytest.raises(CorruptDataError):
            open_array(store, path, find_codec)


def test_missing_array_names_its_document(tmp_path):
    with pytest.raises(CorruptDataError) as caught:
        open_array(DirectoryStore(str(tmp_path)), "a/b", find_codec)
    assert caught.value.where == "a/b/zarr.json"


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "3", "{", "\ud800".encode("utf-8", "surrogatepass"), b"\xff"]
)
def test_document_that_is_no_object(tmp_path, make, text):
    make.put(tmp_path, "a/.zarray", text)
    with pytest.raises(CorruptDataError) as caught:
        open_array(DirectoryStore(str(tmp_path)), "a", find_codec)
    assert caught.value.where == "a/.zarray"
