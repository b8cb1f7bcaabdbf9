"""The codec chain: order, bounds, and what it makes of codecs that are not there."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from openreadout.codecs import (
    ITEM_BYTES,
    ByteSize,
    ChunkSpec,
    CodecChain,
    CodecSpec,
    filled,
    native,
)
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.registry import find_codec


class Flip:
    kind = "array-array"

    @classmethod
    def from_spec(cls, spec, lookup):
        return cls()

    def encoded(self, spec):
        return ChunkSpec(spec.shape[::-1], spec.dtype, spec.fill_value)

    def encode(self, data, spec):
        return data.T

    decode = encode


class Plain:
    kind = "array-bytes"

    @classmethod
    def from_spec(cls, spec, lookup):
        return cls()

    def encoded(self, spec):
        return ByteSize(spec.byte_count)

    def encode(self, data, spec):
        return np.ascontiguousarray(data).tobytes()

    def decode(self, data, spec):
        self.encoded(spec).check(len(data), "plain")
        return np.frombuffer(data, spec.dtype).reshape(spec.shape)


class Squeeze:
    """zlib, as the simplest codec whose output has an upper bound only."""

    kind = "bytes-bytes"
    bounds: list = []  # noqa: RUF012 - what decode was told, for the tests to look at

    @classmethod
    def from_spec(cls, spec, lookup):
        return cls()

    def encoded(self, size):
        return size.grown(64)

    def encode(self, data):
        return zlib.compress(bytes(data))

    def decode(self, data, size):
        self.bounds.append(size)
        found = zlib.decompressobj().decompress(bytes(data), size.count + 1)
        size.check(len(found), "squeeze")
        return found


KNOWN = {"flip": Flip, "plain": Plain, "squeeze": Squeeze}


def lookup(name):
    try:
        return KNOWN[name]
    except KeyError:
        raise UnsupportedFeatureError(f"codec {name} is not supported") from None


def chain(*names):
    return CodecChain.build([CodecSpec(name) for name in names], lookup)


DATA = np.arange(12, dtype="int16").reshape(3, 4)
SPEC = ChunkSpec((3, 4), "int16")


def test_chain_undoes_itself_through_all_three_kinds():
    built = chain("flip", "flip", "flip", "plain", "squeeze", "squeeze")
    assert np.array_equal(built.decode(built.encode(DATA, SPEC), SPEC), DATA)
    assert tuple(spec.name for spec in built.specs) == (
        "flip",
        "flip",
        "flip",
        "plain",
        "squeeze",
        "squeeze",
    )


def test_chain_encodes_in_order():
    assert chain("flip", "plain").encode(DATA, SPEC) == DATA.T.tobytes()


def test_each_step_is_told_the_size_it_must_give():
    Squeeze.bounds.clear()
    built = chain("plain", "squeeze", "squeeze")
    built.decode(built.encode(DATA, SPEC), SPEC)
    assert Squeeze.bounds == [ByteSize(24 + 64, exact=False), ByteSize(24)]
    assert built.encoded(SPEC) == ByteSize(24 + 128, exact=False)


@pytest.mark.parametrize("names", [(), ("squeeze",), ("flip",), ("flip", "squeeze")])
def test_chain_without_an_array_to_bytes_codec_is_damage(names):
    with pytest.raises(CorruptDataError, match="no array-to-bytes"):
        chain(*names)


@pytest.mark.parametrize(
    "names",
    [("plain", "flip"), ("squeeze", "plain"), ("plain", "plain"), ("plain", "squeeze", "flip")],
)
def test_codecs_at_the_wrong_place_are_damage(names):
    with pytest.raises(CorruptDataError, match="not allowed at this place"):
        chain(*names)


def test_a_chain_of_a_thousand_codecs_is_damage():
    specs = [CodecSpec("bytes", {"endian": "little"}), *[CodecSpec("zstd", {"level": 0})] * 1000]
    with pytest.raises(CorruptDataError, match="1001 codecs"):
        CodecChain.build(specs, find_codec)


def test_unknown_codec_is_named():
    with pytest.raises(UnsupportedFeatureError, match="nobody"):
        chain("plain", "nobody")


@pytest.mark.parametrize("data", [b"", bytes(23), bytes(25)])
def test_wrong_size_is_damage(data):
    with pytest.raises(CorruptDataError, match="where 24 belong"):
        chain("plain").decode(data, SPEC)


@pytest.mark.parametrize(("bound", "size", "fits"), [
    (ByteSize(5), 5, True), (ByteSize(5), 4, False), (ByteSize(5), 6, False),
    (ByteSize(5, exact=False), 5, True), (ByteSize(5, exact=False), 0, True), (ByteSize(5, exact=False), 6, False),
])  # fmt: skip
def test_bound_is_exact_or_upper(bound, size, fits):
    if fits:
        bound.check(size, "x")
    else:
        with pytest.raises(CorruptDataError):
            bound.check(size, "x")


@pytest.mark.parametrize(("name", "size"), ITEM_BYTES.items())
def test_item_sizes_are_numpy_s(name, size):
    assert np.dtype(name).itemsize == size
    assert native(name).isnative
    assert ChunkSpec((2, 3), name).byte_count == 6 * size


@pytest.mark.parametrize(
    "name", ["object", "datetime64[s]", "str", "S8", "float128", "[('a', 'u1')]"]
)
def test_other_types_are_not_pixels(name):
    with pytest.raises(UnsupportedFeatureError):
        native(name)
    with pytest.raises(UnsupportedFeatureError):
        ChunkSpec((1,), name).item_bytes  # noqa: B018


def test_filled_chunk_holds_its_fill_value():
    assert np.array_equal(
        filled(ChunkSpec((2, 2), "float32", -1.5)), np.full((2, 2), -1.5, "float32")
    )


def test_only_a_lone_partial_decoder_decodes_parts():
    assert chain("plain").partial is None
