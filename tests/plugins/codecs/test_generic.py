"""Filters and compressors that numcodecs builds, before and after `bytes`."""

from __future__ import annotations

import numcodecs
import numpy as np
import pytest

from openreadout.codecs import ByteSize, ChunkSpec, CodecChain, CodecSpec
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.registry import find_codec

DATA = (np.arange(600, dtype="<u2").reshape(20, 30) * 7) % 500
FLOATS = np.linspace(0, 10, 600, dtype="<f4").reshape(20, 30)
TRUTH = DATA % 3 == 0
LITTLE = CodecSpec("bytes", {"endian": "little"})

FILTERS = {
    "delta": (DATA, {"dtype": "<u2"}),
    "delta-wider": (DATA, {"dtype": "<u2", "astype": "<i4"}),
    "fixedscaleoffset": (FLOATS, {"offset": 0, "scale": 100, "dtype": "<f4", "astype": "<u2"}),
    "quantize": (FLOATS, {"digits": 2, "dtype": "<f4"}),
    "bitround": (FLOATS, {"keepbits": 8}),
    "astype": (DATA, {"encode_dtype": "<f8", "decode_dtype": "<u2"}),
    "packbits": (TRUTH, {}),
}
BYTES_ONLY = {
    "shuffle": (DATA, {"elementsize": 2}),
    "adler32": (DATA, {}),
    "crc32": (DATA, {}),
    "crc32c": (DATA, {}),
    "fletcher32": (DATA, {}),
    "jenkins_lookup3": (DATA, {}),
    "base64": (DATA, {}),
}


def chain(*specs):
    return CodecChain.build(specs, find_codec)


def spec_of(array):
    return ChunkSpec(array.shape, array.dtype.name)


@pytest.mark.parametrize("label", [*FILTERS, *BYTES_ONLY])
def test_a_filter_after_bytes_undoes_what_numcodecs_did(label):
    array, config = (FILTERS | BYTES_ONLY)[label]
    name = label.split("-")[0]
    theirs = numcodecs.get_codec({"id": name, **config})
    encoded = theirs.encode(array)
    stored = numcodecs.Zlib(1).encode(encoded)
    expected = np.frombuffer(theirs.decode(encoded), array.dtype).reshape(array.shape)
    ours = chain(LITTLE, CodecSpec(f"numcodecs.{name}", config), CodecSpec("zlib"))
    decoded = ours.decode(stored, spec_of(array))
    np.testing.assert_array_equal(decoded, expected)
    if name == "bitround":
        with pytest.raises(UnsupportedFeatureError):
            ours.encode(array, spec_of(array))
        return
    again = ours.decode(ours.encode(array, spec_of(array)), spec_of(array))
    np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize("label", FILTERS)
def test_a_filter_before_bytes_works_on_the_array(label):
    array, config = FILTERS[label]
    name = label.split("-")[0]
    theirs = numcodecs.get_codec({"id": name, **config})
    encoded = np.asarray(theirs.encode(array))
    expected = np.asarray(theirs.decode(encoded)).reshape(-1).view(array.dtype).reshape(array.shape)
    ours = chain(CodecSpec(f"numcodecs.{name}", config), LITTLE)
    stored = encoded.astype(encoded.dtype.newbyteorder("<")).tobytes()
    np.testing.assert_array_equal(ours.decode(stored, spec_of(array)), expected)
    assert ours.encode(array, spec_of(array)) == stored


@pytest.mark.parametrize("name", ["zfpy", "pcodec", "no-such-codec"])
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_codec_that_is_not_installed_is_unsupported(name, place):
    if name in numcodecs.registry.codec_registry:
        pytest.skip(f"{name} is installed here")
    spec = CodecSpec(f"numcodecs.{name}", {})
    with pytest.raises(UnsupportedFeatureError, match=name):
        chain(spec) if place == "first" and name != "no-such-codec" else chain(LITTLE, spec)


@pytest.mark.parametrize("name", ["pickle", "json2", "msgpack2", "categorize", "vlen-utf8"])
def test_codecs_of_python_objects_are_never_built(name, monkeypatch):
    def forbidden(config):
        raise AssertionError(f"built {config}")

    monkeypatch.setattr(numcodecs, "get_codec", forbidden)
    with pytest.raises(UnsupportedFeatureError, match="objects"):
        chain(LITTLE, CodecSpec(f"numcodecs.{name}", {}))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("delta", {}),
        ("delta", {"dtype": "O"}),
        ("delta", {"dtype": "<U8"}),
        ("delta", {"dtype": "V9"}),
        ("delta", {"dtype": "<f16"}),
        ("delta", {"dtype": ["<u2"]}),
        ("delta", {"dtype": "<u2", "astype": "no"}),
        ("delta", {"dtype": "<u2", "extra": 1}),
        ("astype", {"encode_dtype": "<u2"}),
        ("shuffle", {"elementsize": -1}),
        ("shuffle", {"elementsize": "2"}),
        ("shuffle", {"elementsize": 1 << 40}),
        ("bitround", {"keepbits": -5}),
        ("bitround", {}),
    ],
    ids=str,
)
def test_a_bad_filter_configuration_is_corrupt(name, config):
    with pytest.raises(CorruptDataError):
        chain(LITTLE, CodecSpec(f"numcodecs.{name}", config)).encoded(spec_of(DATA))


@pytest.mark.parametrize("label", [*FILTERS, *BYTES_ONLY])
@pytest.mark.parametrize("data", [b"", b"\xff", b"\x09" * 77, bytes(1201)], ids=len)
def test_a_filter_of_foreign_bytes_gives_the_right_size_or_an_error(label, data):
    array, config = (FILTERS | BYTES_ONLY)[label]
    codec = chain(LITTLE, CodecSpec(f"numcodecs.{label.split('-')[0]}", config)).bytes_bytes[0]
    with pytest.raises(CorruptDataError):
        codec.decode(data, ByteSize(array.nbytes))


def test_a_filter_made_for_another_type_is_refused():
    with pytest.raises(CorruptDataError, match="float32"):
        chain(CodecSpec("numcodecs.delta", {"dtype": "<f4"}), LITTLE).encoded(spec_of(DATA))


class Toy(numcodecs.abc.Codec):
    """A serializer as `zfpy` and `pcodec` are: it takes and gives arrays."""

    codec_id = "zfpy"

    def encode(self, buf):
        return np.asarray(buf).astype("<u2").tobytes()[::-1]

    def decode(self, buf, out=None):
        if bytes(buf[:1]) == b"!":
            raise KeyError("anything")
        return np.frombuffer(bytes(buf)[::-1], "<u2")


@pytest.mark.parametrize("place", ["first", "last"])
def test_an_installed_serializer_works_in_either_place(place, monkeypatch):
    monkeypatch.setitem(numcodecs.registry.codec_registry, "zfpy", Toy)
    spec = CodecSpec("numcodecs.zfpy")
    ours = chain(spec) if place == "first" else chain(LITTLE, spec)
    stored = DATA.tobytes()[::-1]
    np.testing.assert_array_equal(ours.decode(stored, spec_of(DATA)), DATA)
    if place == "first":
        assert ours.encode(DATA, spec_of(DATA)) == stored
    for damaged in (b"!" + stored[1:], stored[:-2], stored + b"ab"):
        with pytest.raises(CorruptDataError, match="zfpy"):
            ours.decode(damaged, spec_of(DATA))


def test_a_filter_that_gives_another_number_of_samples_is_corrupt():
    ours = chain(CodecSpec("numcodecs.packbits"), LITTLE)
    with pytest.raises(CorruptDataError, match="packbits"):
        ours.decode(b"\x09" + bytes(75), spec_of(TRUTH))
    with pytest.raises(CorruptDataError, match="packbits"):
        ours.decode(b"\x05" + bytes(75), spec_of(TRUTH))
