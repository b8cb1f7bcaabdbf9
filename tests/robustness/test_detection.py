"""Every flipped byte of a chunk that carries a checksum is found by `check --full`, or changes no pixel."""

from __future__ import annotations

import gzip
import json
import struct

import numcodecs
import numpy as np
import pytest

from openreadout.codecs import CodecSpec
from openreadout.registry import find_codec
from tests.robustness import build, guards

SAMPLES = (np.arange(64, dtype="<u2") * 7919 % 251).reshape(8, 8)
RAW = SAMPLES.tobytes()
BIG = SAMPLES.astype(">u2").tobytes()
BLOSC = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0}


def zarr_array(*codecs):
    return build.array3(codecs=[*build.RAW, *({"name": n, "configuration": c} for n, c in codecs)])


def checksummed():
    codec = find_codec("crc32c").from_spec(CodecSpec("crc32c", {}), find_codec)
    return bytes(codec.encode(RAW))


CHUNKS = {
    "zstd": (zarr_array(("zstd", {"level": 3, "checksum": True})), numcodecs.Zstd(3, checksum=True).encode(RAW)),
    "crc32c": (zarr_array(("crc32c", {})), checksummed()),
    "gzip": (zarr_array(("gzip", {"level": 5})), gzip.compress(RAW, 5, mtime=0)),
}  # fmt: skip
GZIP_HEADER = range(10)
"""The flags, time and system of a gzip member, which its checksum does not cover and which change no data."""


def said(source):
    """Whether `check --full` has something to say.

    A flip may also turn a block into one of a kind that is not read, which is told and is no damage.
    """
    full = guards.call(["check", "--full", "--json", str(source)])
    assert full.faults == []
    return bool(json.loads(full.out)["data"]["findings"])


def read(source):
    """The digests of the planes that are read."""
    planes = guards.call(["check", "--planes", "--json", str(source)])
    assert planes.faults == []
    return [plane["xxh3"] for plane in json.loads(planes.out).get("data", {"planes": []})["planes"]]


def look(source):
    """What is said, and the digests of what is read."""
    return said(source), read(source)


def flips(path, data, places):
    """The file with each byte changed, one after the other: some of its bits, and all of them."""
    for place in places:
        for bits in (0x01, 0x08, 0x80, 0xFF):
            changed = bytearray(data)
            changed[place] ^= bits
            path.write_bytes(changed)
            yield place, bits
    path.write_bytes(data)


@pytest.mark.parametrize("name", CHUNKS)
def test_flips_in_zarr_chunks_are_found(tmp_path, name):
    array, data = CHUNKS[name]
    source = build.ome_zarr(tmp_path / "a.zarr", array, data)
    found, sound = look(source)
    assert not found
    assert len(sound) == 1
    for place, bits in flips(source / "0" / "c" / "0" / "0", data, range(len(data))):
        found = said(source)
        assert found or read(source) == sound, (place, bits)
        # single bits may lie behind the end of a deflate stream, in the rest of its last byte
        if name == "crc32c" or (name == "gzip" and place not in GZIP_HEADER and bits == 0xFF):
            assert found, (place, bits)


def test_flips_in_the_sizes_of_blosc_are_found(tmp_path):
    data = numcodecs.Blosc("lz4", 5, 1).encode(SAMPLES)
    source = build.ome_zarr(tmp_path / "a.zarr", zarr_array(("blosc", BLOSC)), data)
    found, sound = look(source)
    assert not found
    for place, bits in flips(source / "0" / "c" / "0" / "0", data, [*range(4, 8), *range(12, 16)]):
        assert look(source) == (True, []), (place, bits)
    assert look(source) == (False, sound)


def test_flips_in_n5_gzip_blocks_are_found(tmp_path):
    head = struct.pack(">HHII", 0, 2, 8, 8)
    data = head + gzip.compress(BIG, 5, mtime=0)
    source = build.n5(tmp_path / "a.n5", data, compression={"type": "gzip", "level": 5})
    found, sound = look(source)
    assert not found
    for place, bits in flips(source / "a" / "0" / "0", data, range(len(data))):
        found = said(source)
        assert found or read(source) == sound, (place, bits)
        if place - len(head) not in GZIP_HEADER and bits == 0xFF:
            assert found, (place, bits)
