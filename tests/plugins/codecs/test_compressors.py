"""Compressors against other libraries' encoders and decoders, and against damage."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import struct
import threading
import zlib

import imagecodecs
import numcodecs
import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from openreadout.codecs import ByteSize, CodecSpec
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.registry import find_codec

DTYPES = ("u1", "i1", "<u2", ">u2", "<i4", "<f4", "<f8", "<u8")
RAMP = (np.arange(5000, dtype="<u2") * 7 % 1000).tobytes()
SIZE = ByteSize(len(RAMP))


def codec(name, **configuration):
    return find_codec(name).from_spec(CodecSpec(name, configuration), find_codec)


@st.composite
def samples(draw):
    """Arrays that compress well, badly and not at all, in one dimension."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    length = draw(st.integers(1, 3000))
    seed = draw(st.integers(0, 2**32 - 1))
    spread = draw(st.sampled_from((1, 4, 100, 1 << 30)))
    values = np.random.default_rng(seed).integers(0, spread, length)
    return values.astype("u8").astype(dtype)


def lz4_java(data, block=100):
    """A stream of lz4-java's LZ4BlockOutputStream, by its source."""
    out = []
    for start in range(0, len(data), block):
        raw = data[start : start + block]
        packed = bytes(imagecodecs.lz4_encode(raw))
        check = xxhash.xxh32_intdigest(raw, 0x9747B28C) & 0x0FFFFFFF
        method, body = (0x20, packed) if len(packed) < len(raw) else (0x10, raw)
        out.append(b"LZ4Block" + struct.pack("<BIII", method, len(body), len(raw), check) + body)
    return b"".join(out) + b"LZ4Block" + struct.pack("<BIII", 0x10, 0, 0, 0)


ENCODERS = {
    "zstd": (
        lambda d: numcodecs.Zstd(3).encode(d),
        lambda d: numcodecs.Zstd(1, checksum=True).encode(d),
        lambda d: bytes(imagecodecs.zstd_encode(d[:1])) + bytes(imagecodecs.zstd_encode(d[1:])),
        lambda d: b"\x5a\x2a\x4d\x18\x04\0\0\0skip" + numcodecs.Zstd(1).encode(d),
    ),
    "lz4": (lambda d: numcodecs.LZ4().encode(d), lambda d: bytes(imagecodecs.lz4f_encode(d))),
    "n5.lz4": (
        lz4_java,
        lambda d: bytes(imagecodecs.lz4_encode(d)),
        lambda d: numcodecs.LZ4().encode(d),
    ),
    "gzip": (
        gzip.compress,
        lambda d: gzip.compress(d[:1]) + gzip.compress(d[1:], 1),
        lambda d: gzip.compress(d) + bytes(100),
        zlib.compress,
    ),
    "zlib": (zlib.compress, lambda d: zlib.compress(d, 0)),
    "bz2": (bz2.compress, lambda d: bz2.compress(d[:1]) + bz2.compress(d[1:])),
    "lzma": (
        lzma.compress,
        lambda d: lzma.compress(d[:1]) + bytes(8) + lzma.compress(d[1:], check=lzma.CHECK_SHA256),
    ),
}


@pytest.mark.parametrize("name", ENCODERS)
@given(data=samples())
def test_decoding_undoes_every_encoder(name, data):
    raw = data.tobytes()
    for encode in ENCODERS[name]:
        encoded = encode(raw)
        assert bytes(codec(name).decode(encoded, ByteSize(len(raw)))) == raw
        if name != "n5.lz4":  # told apart by its exact size, which an N5 block's header gives
            roomy = ByteSize(len(raw) + 9, exact=False)
            assert bytes(codec(name).decode(memoryview(encoded), roomy)) == raw


@given(
    data=samples(),
    cname=st.sampled_from(("blosclz", "lz4", "lz4hc", "zlib", "zstd")),
    level=st.integers(0, 9),
    shuffle=st.sampled_from((-1, 0, 1, 2)),
    blocksize=st.sampled_from((0, 0, 256, 1000)),
)
def test_blosc_decodes_what_numcodecs_encodes(data, cname, level, shuffle, blocksize):
    encoded = numcodecs.Blosc(cname, level, shuffle, blocksize).encode(data)
    assert bytes(codec("blosc").decode(encoded, ByteSize(data.nbytes))) == data.tobytes()


@given(
    data=samples(),
    cname=st.sampled_from(("blosclz", "lz4", "lz4hc", "zlib", "zstd")),
    level=st.integers(0, 9),
    shuffle=st.sampled_from(("noshuffle", "shuffle", "bitshuffle", -1, 0, 1, 2)),
)
def test_numcodecs_decodes_the_blosc_that_is_written(data, cname, level, shuffle):
    setting = {"cname": cname, "clevel": level, "shuffle": shuffle, "typesize": data.itemsize}
    encoded = codec("blosc", blocksize=0, **setting).encode(data.tobytes())
    assert numcodecs.Blosc().decode(encoded) == data.tobytes()
    assert encoded[0] == 2  # the format of Blosc 1
    assert encoded[3] == data.itemsize


DECODERS = {
    ("zstd", ("level", 3)): lambda e: numcodecs.Zstd().decode(e),
    ("zstd", ("checksum", True)): lambda e: numcodecs.Zstd().decode(e),
    ("lz4", ("acceleration", 3)): lambda e: numcodecs.LZ4().decode(e),
    ("gzip", ("level", 0)): gzip.decompress,
    ("gzip", ("level", 9)): gzip.decompress,
    ("zlib", ("level", 6)): zlib.decompress,
    ("bz2", ("level", 9)): bz2.decompress,
    ("lzma", ("preset", 1)): lzma.decompress,
    ("lzma", ("format", 2)): lzma.decompress,
}


@pytest.mark.parametrize("setting", DECODERS, ids=str)
@given(data=samples())
def test_other_libraries_decode_what_is_written(setting, data):
    name, (key, value) = setting
    encoded = codec(name, **{key: value}).encode(data.tobytes())
    assert bytes(DECODERS[setting](encoded)) == data.tobytes()


def test_equal_data_give_equal_gzip_bytes():
    assert codec("gzip").encode(RAMP) == codec("gzip").encode(RAMP)


# -- damage ---------------------------------------------------------------------------------------

CHECKED = (
    "gzip",
    "zlib",
    "bz2",
    "lzma",
    "n5.lz4",
    "numcodecs.crc32",
    "numcodecs.adler32",
    "crc32c",
)
"""Codecs whose data carry a checksum."""
ALL = (*ENCODERS, "blosc", "crc32c", "numcodecs.crc32", "numcodecs.adler32", "numcodecs.fletcher32")


@pytest.mark.parametrize("name", ALL)
@given(part=st.floats(0, 1, exclude_max=True))
def test_cut_data_are_corrupt(name, part):
    encoded = codec(name).encode(RAMP)
    with pytest.raises(CorruptDataError, match=name.split(".")[-1]):
        codec(name).decode(encoded[: int(part * len(encoded))], SIZE)


@pytest.mark.parametrize("name", ALL)
def test_data_cut_within_their_header_are_corrupt(name):
    encoded = codec(name).encode(RAMP)
    for length in range(min(40, len(encoded))):
        with pytest.raises(CorruptDataError, match=name.split(".")[-1]):
            codec(name).decode(encoded[:length], SIZE)
        with contextlib.suppress(CorruptDataError):  # a bare block may be whole by chance
            found = codec(name).decode(encoded[:length], ByteSize(SIZE.count, exact=False))
            assert len(found) < length  # what a few bytes hold, and nothing made up


@pytest.mark.parametrize("error", [ValueError, IndexError, ZeroDivisionError, EOFError, KeyError])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("gzip", "gzip_decode"),
        ("zlib", "deflate_decode"),
        ("zstd", "zstd_decode"),
        ("lz4", "lz4_decode"),
        ("blosc", "blosc_decode"),
    ],
)
def test_whatever_the_library_raises_no_traceback_leaves(monkeypatch, name, function, error):
    def refuse(*args, **options):
        raise error("invalid header")

    encoded = codec(name).encode(RAMP)
    monkeypatch.setattr(imagecodecs, function, refuse)
    with pytest.raises(CorruptDataError, match=name):
        codec(name).decode(encoded[:-5], SIZE)


@pytest.mark.parametrize("name", ALL)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), exact=st.booleans())
def test_a_flipped_bit_is_an_error_or_gives_the_right_size(name, where, bit, exact):
    encoded = bytearray(codec(name).encode(RAMP))
    encoded[int(where * len(encoded))] ^= 1 << bit
    try:
        decoded = codec(name).decode(bytes(encoded), ByteSize(len(RAMP), exact))
    except CorruptDataError:
        return
    assert len(decoded) == len(RAMP) or not exact
    assert len(decoded) <= len(RAMP)
    if name in CHECKED:
        assert bytes(decoded) == RAMP


@pytest.mark.parametrize("name", ALL)
@given(data=st.binary(max_size=300))
def test_foreign_bytes_are_corrupt(name, data):
    with pytest.raises((CorruptDataError, UnsupportedFeatureError)):
        codec(name).decode(data, ByteSize(123_457))


@pytest.mark.parametrize("name", ["gzip", "zlib", "bz2", "lzma", "zstd", "blosc", "n5.lz4"])
def test_a_bomb_stops_at_the_bound(name):
    bomb = codec(name).encode(bytes(1 << 24))
    with pytest.raises(CorruptDataError):
        codec(name).decode(bomb, ByteSize(1000))
    with pytest.raises(CorruptDataError):
        codec(name).decode(bomb, ByteSize(1000, exact=False))


@pytest.mark.parametrize("name", ["gzip", "zlib", "bz2", "lzma", "n5.lz4"])
def test_garbage_after_the_end_is_corrupt(name):
    with pytest.raises(CorruptDataError):
        codec(name).decode(codec(name).encode(RAMP) + b"garbage!", SIZE)


def test_many_empty_gzip_members_are_not_walked_for_ever():
    with pytest.raises(CorruptDataError):
        codec("gzip").decode(gzip.compress(b"") * 100_000, ByteSize(1))


# -- blosc ----------------------------------------------------------------------------------------


def header(version=2, flags=0x01, typesize=2, nbytes=1000, blocksize=1000, cbytes=100, body=b""):
    start = bytes([version, 1, flags, typesize]) + struct.pack("<III", nbytes, blocksize, cbytes)
    return start + body


def test_a_stored_buffer_that_names_snappy_is_a_plain_copy():
    buffer = header(flags=0x02 | 2 << 5, cbytes=1016, body=RAMP[:1000])
    assert bytes(codec("blosc", cname="snappy").decode(buffer, ByteSize(1000))) == RAMP[:1000]


@pytest.mark.parametrize(
    "buffer",
    [
        b"",
        header()[:15],
        header(cbytes=5000, body=bytes(84)),
        header(version=9, body=bytes(84)),
        header(flags=7 << 5, body=bytes(84)),
        header(typesize=0, body=bytes(84)),
        header(blocksize=0, body=bytes(84)),
        header(blocksize=2000, body=bytes(84)),
        header(nbytes=1001, body=bytes(84)),
        header(blocksize=1, body=bytes(84)),
        header(flags=0x02, body=bytes(84)),
        header(nbytes=2**32 - 1, blocksize=2**31, body=bytes(84)),
    ],
    ids=lambda buffer: buffer[:16].hex(),
)
def test_a_blosc_header_that_contradicts_itself_is_corrupt(buffer):
    with pytest.raises(CorruptDataError, match="blosc"):
        codec("blosc").decode(buffer, ByteSize(1000))


def test_snappy_is_named_where_the_library_lacks_it(monkeypatch):
    def lacking(*args, **options):
        raise RuntimeError("returned -5")

    buffer = header(flags=2 << 5, body=bytes(84))
    monkeypatch.setattr(imagecodecs, "blosc_encode", lacking)
    monkeypatch.setattr(imagecodecs, "blosc_decode", lacking)
    with pytest.raises(UnsupportedFeatureError, match="snappy"):
        codec("blosc").decode(buffer, ByteSize(1000))


@pytest.mark.parametrize(("flag", "kind"), [(0x08, "lazy"), (0x40, "never set")])
def test_blosc_2_buffers_whose_data_are_elsewhere_are_unsupported(flag, kind):
    buffer = header(version=5, flags=0x05, cbytes=32, body=bytes(15) + bytes([flag]))
    with pytest.raises(UnsupportedFeatureError, match=kind):
        codec("blosc").decode(buffer, ByteSize(1000))


def test_bit_shuffle_with_a_remainder_is_undone_as_c_blosc_1_does_it():
    data = np.random.default_rng(0).integers(0, 50, 4003).astype("<u4").tobytes()[:-1]
    samples = np.frombuffer(data[: len(data) // 4 * 4], "<u4")
    for cname in ("lz4", "zstd"):
        encoded = numcodecs.Blosc(cname, 5, 2).encode(samples)
        assert bytes(codec("blosc").decode(encoded, ByteSize(samples.nbytes))) == samples.tobytes()


# -- lz4 ------------------------------------------------------------------------------------------


def test_a_cut_lz4_frame_is_corrupt():
    frame = bytes(imagecodecs.lz4f_encode(RAMP))
    for end in range(4, len(frame), 7):
        with pytest.raises(CorruptDataError):
            codec("lz4").decode(frame[:end], SIZE)


def test_a_changed_block_of_a_java_stream_fails_its_checksum():
    stream = bytearray(lz4_java(bytes(range(256)), block=64))
    stream[21 + 5] ^= 1
    with pytest.raises(CorruptDataError, match="checksum"):
        codec("n5.lz4").decode(bytes(stream), ByteSize(256))


def test_a_java_stream_without_its_end_mark_is_corrupt():
    with pytest.raises(CorruptDataError, match="end mark"):
        codec("n5.lz4").decode(lz4_java(RAMP)[:-21], SIZE)


@pytest.mark.parametrize("size", [63, 1 << 26, "64", True, None])
def test_a_block_size_out_of_range_is_refused(size):
    with pytest.raises(CorruptDataError, match="blockSize"):
        codec("n5.lz4", blockSize=size)


# -- lzma -----------------------------------------------------------------------------------------

FILTERS = [{"id": lzma.FILTER_DELTA, "dist": 2}, {"id": lzma.FILTER_LZMA2, "preset": 2}]


@pytest.mark.parametrize(
    "config",
    [
        {"format": lzma.FORMAT_XZ, "check": lzma.CHECK_CRC32, "preset": 4, "filters": None},
        {"format": lzma.FORMAT_ALONE, "check": -1, "preset": 1, "filters": None},
        {"format": lzma.FORMAT_RAW, "check": -1, "preset": None, "filters": FILTERS},
    ],
    ids=["xz", "alone", "raw"],
)
def test_every_lzma_format_of_numcodecs_decodes(config):
    encoded = numcodecs.LZMA(**config).encode(RAMP)
    assert bytes(codec("lzma", **config).decode(encoded, SIZE)) == RAMP
    ours = codec("lzma", **config).encode(RAMP)
    assert bytes(numcodecs.LZMA(**config).decode(ours)) == RAMP


@pytest.mark.parametrize(
    "config",
    [
        {"format": 3},
        {"format": 4},
        {"format": "xz"},
        {"filters": "delta"},
        {"filters": []},
        {"filters": [{"dist": 1}]},
        {"filters": [{"id": "x"}]},
        {"filters": [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 32}]},
    ],
    ids=str,
)
def test_an_lzma_configuration_that_breaks_the_rules_is_refused(config):
    with pytest.raises(CorruptDataError, match="lzma"):
        codec("lzma", **config)


def test_raw_lzma_with_filters_that_do_not_exist_is_corrupt():
    with pytest.raises(CorruptDataError):
        codec("lzma", format=3, filters=[{"id": 77}]).decode(RAMP, SIZE)


@pytest.mark.parametrize("zeros", [1, 2, 3, 5])
def test_xz_padding_that_is_no_multiple_of_four_is_corrupt(zeros):
    with pytest.raises(CorruptDataError):
        codec("xz").decode(lzma.compress(RAMP) + bytes(zeros), SIZE)


# -- encoding configurations ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("blosc", {"cname": "gzip"}),
        ("blosc", {"clevel": 10}),
        ("blosc", {"shuffle": "zigzag"}),
        ("blosc", {"shuffle": 3}),
        ("blosc", {"typesize": 0}),
        ("blosc", {"blocksize": -1}),
        ("zstd", {"level": 23}),
        ("zstd", {"checksum": 1}),
        ("gzip", {"level": 10}),
        ("zlib", {"level": "9"}),
        ("bz2", {"level": 0}),
        ("lz4", {"acceleration": 1.5}),
        ("lzma", {"preset": -1}),
    ],
    ids=str,
)
def test_encoding_by_a_bad_configuration_is_refused_and_decoding_is_not_hindered(name, config):
    encoded = codec(name).encode(RAMP)
    assert bytes(codec(name, **config).decode(encoded, SIZE)) == RAMP
    with pytest.raises(CorruptDataError, match=next(iter(config))):
        codec(name, **config).encode(RAMP)


@pytest.mark.parametrize("name", ["blosc", "zstd", "gzip", "lz4", "lzma"])
def test_many_threads_decode_and_encode_at_once(name):
    data = np.random.default_rng(1).integers(0, 40, 1 << 17).astype("<u2").tobytes()
    setting = {"cname": "zstd", "typesize": 2, "shuffle": "bitshuffle"} if name == "blosc" else {}
    tool = codec(name, **setting)
    results = []

    def work():
        results.extend(bytes(tool.decode(tool.encode(data), ByteSize(len(data)))) for _ in range(4))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [data] * 24
