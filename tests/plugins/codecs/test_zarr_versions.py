"""The adapters work with every zarr-python that is supported: this module runs under each of them.

What is asked of zarr here is its public interface; a warning that something goes away is a failure.
"""

from __future__ import annotations

import ast
import pickle
from importlib.metadata import entry_points, version
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.registry import get_codec_class

ROOT = Path(__file__).resolve().parents[3]
N5_INNER = [
    {"name": "transpose", "configuration": {"order": [2, 1, 0]}},
    {"name": "bytes", "configuration": {"endian": "big"}},
    {"name": "zstd", "configuration": {"level": 1, "checksum": False}},
]
CHAINS = {
    "n5_default": ("uint16", [{"name": "n5_default", "configuration": {"codecs": N5_INNER}}]),
    "reshape": ("uint16", [
        {"name": "reshape", "configuration": {"shape": [[0], [1, 2]]}},
        {"name": "bytes", "configuration": {"endian": "little"}},
    ]),
    "jpeg": ("uint8", [
        {"name": "jpeg", "configuration": {"quality": 100, "encoded_color_space": "rgb"}},
    ]),
}  # fmt: skip
NAMES = sorted(
    {
        entry.name
        for entry in entry_points(group="zarr.codecs")
        if entry.module.startswith("openreadout_")
    }
)


def document(dtype, codecs, *, shard):
    chunk = [2, 4, 3]
    if shard:
        inner = {
            "chunk_shape": chunk,
            "codecs": codecs,
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        }
        codecs, chunk = [{"name": "sharding_indexed", "configuration": inner}], [4, 8, 3]
    return {
        "zarr_format": 3, "node_type": "array", "shape": [5, 10, 3], "data_type": dtype, "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": codecs, "attributes": {},
    }  # fmt: skip


def created(path, dtype, codecs, *, shard):
    import json

    path.mkdir(exist_ok=True)
    body = json.dumps(document(dtype, codecs, shard=shard))
    (path / "zarr.json").write_text(body, encoding="utf-8")
    return zarr.open_array(path, mode="r+", zarr_format=3)


def test_the_version_is_one_that_is_supported():
    major, minor, *_ = version("zarr").split(".")
    assert (3, 1) <= (int(major), int(minor)) < (4, 0)


@pytest.mark.parametrize("name", NAMES)
def test_zarr_finds_the_codec_by_its_entry_point(name):
    assert get_codec_class(name).__module__.startswith("openreadout_")


@pytest.mark.parametrize("shard", [False, True])
@pytest.mark.parametrize("name", CHAINS)
def test_arrays_are_written_and_read_whole_and_in_parts(name, shard, tmp_path):
    dtype, codecs = CHAINS[name]
    array = created(tmp_path / "a", dtype, codecs, shard=shard)
    # One value in a chunk and a channel survives JPEG at its best quality as it is.
    data = np.zeros(array.shape, dtype)
    for number, start in enumerate(range(0, 10, 4)):
        data[:, start : start + 4] = (number * 50, number * 50, number * 50)
    array[...] = data
    again = zarr.open_array(tmp_path / "a", mode="r", zarr_format=3)
    np.testing.assert_array_equal(again[...], data)
    np.testing.assert_array_equal(again[1:4, 3:9, :2], data[1:4, 3:9, :2])
    np.testing.assert_array_equal(
        again.oindex[[0, 4], [1, 9], [2]], data[np.ix_([0, 4], [1, 9], [2])]
    )


@pytest.mark.parametrize("name", CHAINS)
def test_codecs_survive_their_json_and_pickling(name, tmp_path):
    dtype, codecs = CHAINS[name]
    array = created(tmp_path / "a", dtype, codecs, shard=False)
    for codec in array.metadata.codecs:
        assert type(codec).from_dict(codec.to_dict()) == codec
        assert pickle.loads(pickle.dumps(codec)) == codec
    data = np.full(array.shape, 7, dtype)
    array[...] = data
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(array))[...], data)


def test_no_adapter_needs_numcodecs():
    files = [file for file in (ROOT / "plugins").rglob("*.py") if file.name.startswith("zarr_")]
    assert len(files) > 3
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {
            alias.name if isinstance(node, ast.Import) else node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not {name for name in names if name.startswith("numcodecs")}, file
