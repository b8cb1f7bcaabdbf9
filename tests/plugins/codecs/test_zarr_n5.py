"""What `n5_default` encodes, the distribution zarr-n5 reads: another implementation of the codec, for zarr-python.

`make test` installs it beside the environment, not into it: it registers a codec of the same name, and every test that
opens N5 with zarr-python would have to say which of the two it means. It needs Python 3.12.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from openreadout.arrays import chunks_in
from openreadout.codecs import ChunkSpec, CodecSpec
from openreadout.operations.in_place import InPlaceOptions, lift_in_place
from openreadout.registry import find_codec
from openreadout.workers import Workers

ASIDE = Path(sys.prefix) / "aside"
pytestmark = pytest.mark.skipif(
    not (ASIDE / "zarr_n5").is_dir(), reason="zarr-n5 is not installed; it needs Python 3.12"
)
READ = """
import sys
import numpy as np
import zarr
with zarr.config.set({"codecs.n5_default": "zarr_n5.codec.default.N5DefaultCodec"}):
    array = zarr.open_array(sys.argv[1], mode="r", zarr_format=3)
    assert type(array.metadata.codecs[0]).__module__.startswith("zarr_n5")
    np.save(sys.argv[2], array[...])
"""
COMPRESSORS = {
    "raw": [],
    "gzip": [{"name": "gzip", "configuration": {"level": 5}}],
    "zstd": [{"name": "zstd", "configuration": {"level": 3, "checksum": False}}],
    "blosc": [{"name": "blosc", "configuration": {
        "cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0,
    }}],
}  # fmt: skip


def opened_by_zarr_n5(path):
    copy = path / "read.npy"
    subprocess.run(
        [sys.executable, "-c", READ, str(path), str(copy)],
        env=os.environ | {"PYTHONPATH": str(ASIDE)},
        check=True,
        capture_output=True,
        timeout=120,
    )
    return np.load(copy)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "float32", "uint64"])
@pytest.mark.parametrize("name", COMPRESSORS)
def test_zarr_n5_reads_the_blocks_that_we_encode(name, dtype, tmp_path):
    shape, block = (7, 5, 4), (4, 3, 2)
    data = np.random.default_rng(5).integers(0, 100, shape).astype(dtype)
    inner = [
        {"name": "transpose", "configuration": {"order": [2, 1, 0]}},
        {"name": "bytes", "configuration": {"endian": "big"}},
        *COMPRESSORS[name],
    ]
    spec = CodecSpec("n5_default", {"codecs": inner})
    codec = find_codec("n5_default").from_spec(spec, find_codec)
    for index in chunks_in(tuple((0, n) for n in shape), block):
        # Blocks at the far edges are cut to the array in one half of the cases and padded in the other.
        start = [i * b for i, b in zip(index, block, strict=True)]
        part = data[tuple(slice(s, s + b) for s, b in zip(start, block, strict=True))]
        if sum(index) % 2:
            padded = np.zeros(block, dtype)
            padded[tuple(slice(0, n) for n in part.shape)] = part
            part = padded
        file = tmp_path.joinpath(*map(str, index))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(codec.encode(part, ChunkSpec(part.shape, dtype, 0)))
    document = {
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype, "fill_value": 0, "attributes": {},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": block}},
        "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}},
        "codecs": [{"name": "n5_default", "configuration": {"codecs": inner}}],
    }  # fmt: skip
    (tmp_path / "zarr.json").write_text(json.dumps(document), encoding="utf-8")
    np.testing.assert_array_equal(opened_by_zarr_n5(tmp_path), data)


def test_zarr_n5_reads_a_container_that_was_lifted_in_place(fixtures, tmp_path):
    import shutil

    import tensorstore

    path = shutil.copytree(fixtures / "n5" / "z5py-cosem-pyramid" / "cosem.n5", tmp_path / "c.n5")
    with Workers(1) as workers:
        lift_in_place(str(path), InPlaceOptions(), workers)
    for level in ("em/s0", "em/s1"):
        spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(path / level)}}
        wanted = tensorstore.open(spec, read=True).result().read().result()
        np.testing.assert_array_equal(opened_by_zarr_n5(path / level), wanted)
