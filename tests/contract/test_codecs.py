"""Every registered codec over examples, most of them encoded by numcodecs or zarr-python too."""

from __future__ import annotations

import asyncio

import numcodecs
import numpy as np
import pytest
import zarr

from openreadout import registry
from openreadout.codecs import CodecSpec
from openreadout.errors import UnsupportedFeatureError
from openreadout.testing import CodecExample, codec_checks

RAMP = (np.arange(6 * 20 * 17, dtype="uint16").reshape(6, 20, 17) * 7) % 1000
TEXT = np.frombuffer(b"all work and no play " * 400, dtype="uint8").copy()
NOISE = np.random.default_rng(5).integers(0, 255, 3000, dtype="uint8")
GREY = (np.add.outer(np.arange(24), np.arange(40)) * 3).astype("uint8")
COLOUR = np.stack([GREY, GREY[::-1], 255 - GREY], axis=-1)

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
CRC = {"name": "crc32c"}


def packed(name, configuration, theirs, data=RAMP, label=""):
    """A bytes-to-bytes example that numcodecs encodes too."""
    encoded = None if theirs is None else bytes(theirs.encode(np.ascontiguousarray(data)))
    return CodecExample(CodecSpec(name, configuration), data, encoded, name=label)


def blosc(name):
    shuffles = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
    for cname in ("blosclz", "lz4", "lz4hc", "zlib", "zstd"):
        for word, number in shuffles.items():
            for data in (RAMP, NOISE):
                setting = {
                    "cname": cname,
                    "clevel": 5,
                    "shuffle": word,
                    "typesize": data.itemsize,
                    "blocksize": 0,
                }
                theirs = numcodecs.Blosc(cname, 5, number)
                yield packed(name, setting, theirs, data, f"{cname}-{word}-{data.dtype}")


def stored_chunk(data, codecs):
    """The one chunk of a Zarr v3 array, as zarr-python writes it."""
    store = zarr.storage.MemoryStore()
    array_bytes = {"serializer": codecs[0]} if codecs[0]["name"] == "bytes" else {}
    array = zarr.create_array(
        store, shape=data.shape, chunks=data.shape, dtype=data.dtype, compressors=codecs[1:] or None, fill_value=0,
        **array_bytes,
    )  # fmt: skip
    array[...] = data

    async def fetch():
        return await store.get(
            "c/" + "/".join("0" * data.ndim), zarr.core.buffer.default_buffer_prototype()
        )

    return asyncio.run(fetch()).to_bytes()


def sharded(location):
    configuration = {
        "chunk_shape": [2, 10, 17], "codecs": [BIG, ZSTD], "index_codecs": [BYTES, CRC], "index_location": location,
    }  # fmt: skip
    return CodecExample(CodecSpec("sharding_indexed", configuration), RAMP, name=location)


def n5_block(data, compressor=b""):
    """An N5 block by its specification: mode 0, dimensions fastest first, big-endian samples."""
    header = np.array([0, data.ndim], ">u2").tobytes() + np.array(data.shape, ">u4").tobytes()
    return (
        header
        + np.ascontiguousarray(data.T, dtype=data.dtype.newbyteorder(">")).tobytes()
        + compressor
    )


def n5_default(*more):
    order = {"name": "transpose", "configuration": {"order": [2, 1, 0]}}
    return CodecSpec("n5_default", {"codecs": [order, BIG, *more]})


def jpeg(space, data, tolerance, **more):
    configuration = {"quality": 95, "encoded_color_space": space} | more
    return CodecExample(CodecSpec("jpeg", configuration), data, tolerance=tolerance, name=space)


def lz4_block_stream(data):
    """The framing of lz4-java around one block that is not compressed; its checksum is not looked at by readers."""
    import xxhash

    raw = np.ascontiguousarray(data).tobytes()
    check = xxhash.xxh32_intdigest(raw, 0x9747B28C) & 0x0FFFFFFF
    size = len(raw).to_bytes(4, "little")
    block = b"LZ4Block" + bytes([0x10 | 6]) + size + size + check.to_bytes(4, "little") + raw
    return block + b"LZ4Block" + bytes([0x10 | 6]) + bytes(12)


def examples():
    """Examples of every codec, by the name under which it is registered."""
    gzip, zlib, bz2 = numcodecs.GZip(5), numcodecs.Zlib(5), numcodecs.BZ2(5)
    zstd, lz4, lzma = numcodecs.Zstd(3), numcodecs.LZ4(), numcodecs.LZMA()
    found = {
        "bytes": [
            CodecExample(CodecSpec("bytes", {"endian": "little"}), RAMP, RAMP.astype("<u2").tobytes(), name="little"),
            CodecExample(CodecSpec("bytes", {"endian": "big"}), RAMP, RAMP.astype(">u2").tobytes(), name="big"),
            CodecExample(CodecSpec("bytes"), GREY, GREY.tobytes(), name="one-byte"),
        ],
        "transpose": [CodecExample(CodecSpec("transpose", {"order": [2, 0, 1]}), RAMP)],
        "reshape": [CodecExample(CodecSpec("reshape", {"shape": [[0, 1], -1]}), RAMP)],
        "sharding_indexed": [sharded("start"), sharded("end")],
        "blosc": list(blosc("blosc")),
        "numcodecs.blosc": list(blosc("numcodecs.blosc"))[:4],
        "zstd": [packed("zstd", {"level": 3, "checksum": False}, zstd, d) for d in (RAMP, TEXT, NOISE)],
        "numcodecs.zstd": [packed("numcodecs.zstd", {"level": 3}, zstd)],
        "lz4": [packed("lz4", {"acceleration": 1}, lz4, d) for d in (RAMP, TEXT, NOISE)],
        "numcodecs.lz4": [packed("numcodecs.lz4", {"acceleration": 1}, lz4)],
        "n5.lz4": [CodecExample(CodecSpec("n5.lz4", {"blockSize": 65536}), RAMP, lz4_block_stream(RAMP))],
        "gzip": [packed("gzip", {"level": 5}, gzip, d) for d in (RAMP, TEXT)],
        "numcodecs.gzip": [packed("numcodecs.gzip", {"level": 5}, gzip)],
        "zlib": [packed("zlib", {"level": 5}, zlib, d) for d in (RAMP, TEXT)],
        "numcodecs.zlib": [packed("numcodecs.zlib", {"level": 5}, zlib)],
        "bz2": [packed("bz2", {"level": 5}, bz2)],
        "numcodecs.bz2": [packed("numcodecs.bz2", {"level": 5}, bz2)],
        "lzma": [packed("lzma", {"preset": 1}, lzma)],
        "numcodecs.lzma": [packed("numcodecs.lzma", {"preset": 1}, lzma)],
        "xz": [packed("xz", {"preset": 1}, lzma)],
        "n5_default": [
            CodecExample(n5_default(), RAMP, n5_block(RAMP), name="raw"),
            CodecExample(n5_default({"name": "gzip", "configuration": {"level": 5}}), RAMP, name="gzip"),
        ],
        "jpeg": [
            jpeg("grayscale", GREY, 12),
            jpeg("rgb", COLOUR, 20),
            jpeg("ycbcr", COLOUR, 40, subsampling=[[1, 1], [1, 1], [1, 1]]),
        ],
    }  # fmt: skip
    for name in ("crc32c", "numcodecs.crc32c"):
        chunk = stored_chunk(RAMP, [BYTES, CRC])
        found[name] = [CodecExample(CodecSpec(name), RAMP, chunk if name == "crc32c" else None)]
    return found


EXAMPLES = examples()
NOT_HERE = {
    "numcodecs.*": "the rule that numcodecs' other codecs follow; tested with the codecs themselves",
    "n5.jpeg": "needs the block's own layout; tested with the codec",
}
NAMES = [entry.name for entry in registry.entry_points(registry.CODECS)]
CHECKS = [
    check
    for name in NAMES
    if name in EXAMPLES
    for check in codec_checks(registry.find_codec(name), registry.find_codec, EXAMPLES[name])
]


def numbered(checks):
    """Several examples of a codec may have one name."""
    seen = {}
    for name, run in checks:
        seen[name] = seen.get(name, 0) + 1
        yield pytest.param(run, id=name if seen[name] == 1 else f"{name}-{seen[name]}")


@pytest.mark.parametrize("check", list(numbered(CHECKS)))
def test_codec_keeps_its_contract(check):
    check()


def test_every_registered_codec_has_examples():
    assert set(NAMES) - set(EXAMPLES) - set(NOT_HERE) == set()


def test_a_codec_that_nobody_has_is_named():
    with pytest.raises(UnsupportedFeatureError, match=r"example\.unknown"):
        registry.find_codec("example.unknown")
