"""The `jpeg` codec against its specification, Pillow and plain zarr-python."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from openreadout.codecs import ChunkSpec, CodecChain, CodecSpec
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.registry import find_codec
from openreadout_codec_jpeg.stream import parse_stream
from openreadout_codec_jpeg.zarr_codec import JpegZarrCodec

GREY = (np.add.outer(np.arange(40), np.arange(56)) * 2).astype("uint8")
COLOUR = np.stack([GREY, GREY[::-1], 255 - GREY], axis=-1)
SCHEMES = {"4:4:4": [1, 1], "4:2:2": [2, 1], "4:4:0": [1, 2], "4:2:0": [2, 2], "4:1:1": [4, 1]}
ONES = [[1, 1], [1, 1]]
PLAIN = {"quality": 95, "encoded_color_space": "ycbcr", "subsampling": [[1, 1], *ONES]}
RGB = {"quality": 95, "encoded_color_space": "rgb"}
GRAYSCALE = {"quality": 95, "encoded_color_space": "grayscale"}
YCBCR = PLAIN | {"decoded_color_space": "ycbcr"}


def codec(**configuration):
    return find_codec("jpeg").from_spec(CodecSpec("jpeg", configuration), find_codec)


def spec(array):
    return ChunkSpec(array.shape, array.dtype.name)


def difference(a, b):
    return float(np.abs(a.astype(int) - b.astype(int)).mean())


def frame(data):
    """Marker, (height, width), and the (horizontal, vertical) factors of each component."""
    found = re.search(rb"\xff([\xc0-\xc2])\x00.\x08(.{4})([\x01\x03])", data, re.DOTALL)
    start = found.end()
    factors = [data[start + 3 * n + 1] for n in range(found[3][0])]
    sides = (int.from_bytes(found[2][:2], "big"), int.from_bytes(found[2][2:], "big"))
    return found[1][0], sides, [[f >> 4, f & 15] for f in factors]


def pillow(data):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    return image.open(io.BytesIO(data))


# -- encoding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_named_subsampling_is_written_and_read(scheme):
    factors = [SCHEMES[scheme], *ONES]
    tool = codec(**PLAIN | {"subsampling": factors})
    encoded = tool.encode(COLOUR, spec(COLOUR))
    assert frame(encoded) == (0xC0, (40, 56), factors)
    assert difference(tool.decode(encoded, spec(COLOUR)), COLOUR) < 3


@pytest.mark.parametrize("factors", [[3, 1], [1, 3], [2, 4], [4, 4], [1, 4]])
def test_other_factors_are_a_valid_configuration_that_is_read_but_not_written(factors):
    tool = codec(**PLAIN | {"subsampling": [factors, *ONES]})
    with pytest.raises(UnsupportedFeatureError, match="subsampling"):
        tool.encode(COLOUR, spec(COLOUR))
    other = codec(**PLAIN).encode(COLOUR, spec(COLOUR))
    assert difference(tool.decode(other, spec(COLOUR)), COLOUR) < 3


def test_rgb_is_stored_as_it_is_with_an_adobe_marker_of_no_transform():
    encoded = codec(**RGB).encode(COLOUR, spec(COLOUR))
    at = encoded.index(b"\xff\xee")
    assert encoded[at + 4 : at + 9] == b"Adobe"
    assert encoded[at + 15] == 0
    assert frame(encoded)[2] == [[1, 1]] * 3
    assert difference(codec(**RGB).decode(encoded, spec(COLOUR)), COLOUR) < 2


def test_ycbcr_samples_are_kept_and_come_back():
    encoded = codec(**YCBCR).encode(COLOUR, spec(COLOUR))
    assert difference(codec(**YCBCR).decode(encoded, spec(COLOUR)), COLOUR) < 2
    assert difference(codec(**PLAIN).decode(encoded, spec(COLOUR)), COLOUR) > 20


def test_the_components_do_not_mix_in_rgb():
    """Independent channels: a bright pixel in one leaves no trace in the others."""
    data = np.zeros((32, 32, 3), "uint8")
    data[8:16, 8:16, 1] = 255
    decoded = codec(**RGB).decode(codec(**RGB).encode(data, spec(data)), spec(data))
    assert decoded[..., 0].max() == decoded[..., 2].max() == 0
    assert (decoded[10:14, 10:14, 1] > 240).all()


@pytest.mark.parametrize(
    ("config", "data", "mode"),
    [(GRAYSCALE, GREY, "L"), (PLAIN, COLOUR, "RGB"), (RGB, COLOUR, "RGB"), (GRAYSCALE, GREY[..., None], "L")],
    ids=["grey", "ycbcr", "rgb", "grey-hw1"],
)  # fmt: skip
def test_pillow_reads_what_is_written(config, data, mode):
    image = pillow(codec(**config).encode(data, spec(data)))
    assert (image.mode, image.size) == (mode, (56, 40))
    assert difference(np.asarray(image).reshape(data.shape), data) < 3
    if config is RGB:
        assert image.info["adobe_transform"] == 0


@given(
    height=st.integers(1, 40), width=st.integers(1, 40), scheme=st.sampled_from(sorted(SCHEMES)),
    quality=st.integers(1, 100), kind=st.sampled_from(("grey", "grey1", "ycbcr", "rgb", "kept")),
)  # fmt: skip
def test_every_size_comes_back_with_its_shape(height, width, scheme, quality, kind):
    config = {
        "grey": GRAYSCALE, "grey1": GRAYSCALE, "ycbcr": PLAIN | {"subsampling": [SCHEMES[scheme], *ONES]}, "rgb": RGB,
        "kept": YCBCR,
    }[kind] | {"quality": quality}  # fmt: skip
    shape = {"grey": (), "grey1": (1,)}.get(kind, (3,))
    data = np.full((height, width, *shape), 130, "uint8")
    tool = codec(**config)
    decoded = tool.decode(tool.encode(data, spec(data)), spec(data))
    assert decoded.shape == data.shape
    assert np.abs(decoded.astype(int) - 130).max() <= 12


def test_higher_quality_takes_more_bytes_and_is_nearer():
    rough, fine = (codec(**PLAIN | {"quality": q}) for q in (10, 95))
    a, b = rough.encode(COLOUR, spec(COLOUR)), fine.encode(COLOUR, spec(COLOUR))
    assert len(a) < len(b)
    near = difference(fine.decode(b, spec(COLOUR)), COLOUR)
    assert difference(rough.decode(a, spec(COLOUR)), COLOUR) > near


@pytest.mark.parametrize("sides", [(1, 65535), (65535, 1)])
def test_the_longest_side_is_65535(sides):
    data = np.full(sides, 77, "uint8")
    tool = codec(**GRAYSCALE)
    assert (tool.decode(tool.encode(data, spec(data)), spec(data)) == 77).all()
    longer = ChunkSpec(tuple(n + 1 if n > 1 else n for n in sides), "uint8")
    with pytest.raises(CorruptDataError, match="65535"):
        tool.encoded(longer)


@pytest.mark.parametrize(
    ("shape", "config"),
    [
        ((8,), GRAYSCALE), ((8, 8, 2), PLAIN), ((8, 8, 4), PLAIN), ((8, 8, 8, 1), GRAYSCALE), ((1, 8, 8, 3), PLAIN),
        ((), GRAYSCALE), ((0, 8), GRAYSCALE), ((8, 8, 3), GRAYSCALE), ((8, 8), PLAIN), ((8, 8, 1), RGB),
    ],
    ids=str,
)  # fmt: skip
def test_chunk_shapes_that_do_not_fit_are_refused(shape, config):
    with pytest.raises(CorruptDataError, match=r"chunks|side"):
        codec(**config).encoded(ChunkSpec(shape, "uint8"))
    with pytest.raises(CorruptDataError):
        codec(**config).encode(np.zeros(shape, "u1"), ChunkSpec(shape, "uint8"))
    with pytest.raises(CorruptDataError):
        codec(**config).decode(b"", ChunkSpec(shape, "uint8"))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "bool", "float32"])
def test_other_data_types_are_refused(dtype):
    with pytest.raises(UnsupportedFeatureError, match=dtype):
        codec(**GRAYSCALE).encoded(ChunkSpec((8, 8), dtype))
    with pytest.raises(NotImplementedError):
        zarr.create_array(
            {}, shape=(8, 8), dtype=dtype, serializer=JpegZarrCodec(encoded_color_space="grayscale"), compressors=None,
        )  # fmt: skip


# -- decoding what others wrote ---------------------------------------------------------------------


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_streams_of_pillow_are_read(progressive, subsampling):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    out = io.BytesIO()
    image.fromarray(COLOUR).save(
        out, "jpeg", quality=95, subsampling=subsampling, progressive=progressive
    )
    expected = np.asarray(image.open(io.BytesIO(out.getvalue())))
    decoded = codec(**PLAIN).decode(out.getvalue(), spec(COLOUR))
    assert np.abs(decoded.astype(int) - expected).max() <= 2


def test_the_streams_own_colour_space_counts_not_the_configurations():
    stored_rgb = codec(**RGB).encode(COLOUR, spec(COLOUR))
    stored_ycbcr = codec(**PLAIN).encode(COLOUR, spec(COLOUR))
    assert difference(codec(**PLAIN).decode(stored_rgb, spec(COLOUR)), COLOUR) < 3
    assert difference(codec(**RGB).decode(stored_ycbcr, spec(COLOUR)), COLOUR) < 3


def test_a_stream_whose_transform_cannot_be_honoured_is_refused():
    stored_rgb = codec(**RGB).encode(COLOUR, spec(COLOUR))
    with pytest.raises(UnsupportedFeatureError, match="ycbcr"):
        codec(**YCBCR).decode(stored_rgb, spec(COLOUR))


def with_adobe(data, transform):
    """A stream with an Adobe marker after its JFIF one."""
    end = 4 + int.from_bytes(data[4:6], "big") if data[2:4] == b"\xff\xe0" else 2
    marker = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00" + bytes([transform])
    return data[:end] + marker + data[end:]


@pytest.mark.parametrize(("transform", "space"), [(0, "rgb"), (1, "ycbcr")])
def test_the_adobe_marker_counts_more_than_jfif(transform, space):
    data = codec(**PLAIN).encode(COLOUR, spec(COLOUR))
    assert b"JFIF" in data
    assert parse_stream(with_adobe(data, transform)).color_space == space


def test_an_adobe_marker_of_an_unknown_transform_is_unsupported():
    data = with_adobe(codec(**PLAIN).encode(COLOUR, spec(COLOUR)), 2)
    with pytest.raises(UnsupportedFeatureError, match="transform 2"):
        codec(**PLAIN).decode(data, spec(COLOUR))


UNREAD = {
    "CMYK": lambda: imagecodecs.jpeg8_encode(np.zeros((40, 56, 4), "u1"), colorspace="CMYK", outcolorspace="CMYK"),
    "12 bits": lambda: imagecodecs.jpeg8_encode(GREY.astype("u2"), bitspersample=12),
    "lossless": lambda: imagecodecs.jpeg8_encode(GREY, lossless=True),
}  # fmt: skip


@pytest.mark.parametrize("word", UNREAD)
def test_kinds_of_jpeg_that_the_codec_does_not_have_are_unsupported(word):
    with pytest.raises(UnsupportedFeatureError, match=word):
        codec(**GRAYSCALE).decode(bytes(UNREAD[word]()), spec(GREY))


def test_arithmetic_coding_is_unsupported():
    data = bytearray(codec(**GRAYSCALE).encode(GREY, spec(GREY)))
    data[data.index(b"\xff\xc0") + 1] = 0xC9
    with pytest.raises(UnsupportedFeatureError, match="arithmetic"):
        codec(**GRAYSCALE).decode(bytes(data), spec(GREY))


# -- damage -----------------------------------------------------------------------------------------

ENCODED = codec(**PLAIN).encode(COLOUR, spec(COLOUR))


@given(end=st.integers(0, len(ENCODED) - 1))
def test_a_cut_stream_is_corrupt(end):
    with pytest.raises(CorruptDataError, match="jpeg"):
        codec(**PLAIN).decode(ENCODED[:end], spec(COLOUR))


@given(at=st.integers(0, len(ENCODED) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_an_error_or_gives_the_right_shape(at, bit):
    data = bytearray(ENCODED)
    data[at] ^= 1 << bit
    try:
        decoded = codec(**PLAIN).decode(bytes(data), spec(COLOUR))
    except (CorruptDataError, UnsupportedFeatureError):
        return
    assert decoded.shape == COLOUR.shape


@pytest.mark.parametrize("shape", [(40, 57, 3), (41, 56, 3), (56, 40, 3), (8, 8, 3)])
def test_an_image_of_another_size_is_corrupt_before_it_is_decoded(shape, monkeypatch):
    monkeypatch.setattr(imagecodecs, "jpeg8_decode", None)
    with pytest.raises(CorruptDataError, match="40 x 56"):
        codec(**PLAIN).decode(ENCODED, ChunkSpec(shape, "uint8"))


def test_an_image_of_other_components_is_corrupt():
    grey = codec(**GRAYSCALE).encode(GREY, spec(GREY))
    with pytest.raises(CorruptDataError, match="components"):
        codec(**PLAIN).decode(grey, spec(COLOUR))
    with pytest.raises(CorruptDataError, match="components"):
        codec(**GRAYSCALE).decode(ENCODED, spec(GREY))


def test_a_stream_of_endless_scans_is_corrupt():
    at = ENCODED.index(b"\xff\xda")
    scan = ENCODED[at:-2]
    with pytest.raises(CorruptDataError, match="scan"):
        codec(**PLAIN).decode(ENCODED[:at] + scan * 200 + b"\xff\xd9", spec(COLOUR))


# -- in chains and through plain zarr-python --------------------------------------------------------


def test_the_channel_axis_is_moved_by_a_transpose_before():
    data = np.ascontiguousarray(COLOUR.transpose(2, 0, 1))
    specs = [CodecSpec("transpose", {"order": [1, 2, 0]}), CodecSpec("jpeg", PLAIN)]
    chain = CodecChain.build(specs, find_codec)
    assert difference(chain.decode(chain.encode(data, spec(data)), spec(data)), data) < 3


def test_neuroglancers_layout_by_a_reshape_before():
    data = np.repeat(GREY[None, :16, :16], 4, axis=0)[..., None]
    specs = [CodecSpec("reshape", {"shape": [[0, 1], [2], [3]]}), CodecSpec("jpeg", GRAYSCALE)]
    chain = CodecChain.build(specs, find_codec)
    encoded = chain.encode(data, spec(data))
    assert frame(encoded)[1] == (64, 16)
    assert difference(chain.decode(encoded, spec(data)), data) < 3


@pytest.mark.parametrize(
    "config", [GRAYSCALE, PLAIN, RGB, YCBCR], ids=["grey", "ycbcr", "rgb", "kept"]
)
@pytest.mark.parametrize("shards", [None, 32])
def test_plain_zarr_writes_and_reads(config, shards):
    data = GREY if config is GRAYSCALE else COLOUR
    rest = data.shape[2:]
    store = {}
    array = zarr.create_array(
        zarr.storage.MemoryStore(store), shape=data.shape, chunks=(16, 16, *rest), dtype="uint8", compressors=None,
        shards=shards and (shards, shards, *rest), serializer=JpegZarrCodec(**config), fill_value=0,
    )  # fmt: skip
    array[...] = data
    assert difference(zarr.open_array(zarr.storage.MemoryStore(store), mode="r")[...], data) < 3
    described = json.loads(store["zarr.json"].to_bytes())["codecs"]
    chain = CodecChain.build([CodecSpec(c["name"], c["configuration"]) for c in described], find_codec)  # fmt: skip
    side = shards or 16
    first = store["c/0/0" + "/0" * len(rest)].to_bytes()
    ours = chain.decode(first, ChunkSpec((side, side, *rest), "uint8"))
    assert difference(ours, data[:side, :side]) < 3
    if not shards:
        assert described[0]["configuration"] == config


def test_the_default_quality_when_building_is_95_and_metadata_say_it():
    described = JpegZarrCodec(encoded_color_space="grayscale").to_dict()
    assert described == {"name": "jpeg", "configuration": GRAYSCALE}


@pytest.mark.corpus
def test_streams_of_the_corpus_decode_to_its_pixels(corpus):
    folder = corpus / "zarr-array" / "jpeg-v3"
    for document in sorted(folder.glob("*.zarr/*/zarr.json")):
        metadata = json.loads(document.read_text("utf-8"))
        shape = tuple(metadata["chunk_grid"]["configuration"]["chunk_shape"])
        expected = np.load(folder / "jpeg-v3.expected" / f"{document.parent.name}.npy")
        config = PLAIN if shape[2:] == (3,) else GRAYSCALE
        chunks = [path for path in (document.parent / "c").rglob("*") if path.is_file()]
        assert chunks
        for path in chunks:
            index = [int(n) for n in path.relative_to(document.parent / "c").parts]
            decoded = codec(**config).decode(path.read_bytes(), ChunkSpec(shape, "uint8"))
            at = tuple(slice(i * n, (i + 1) * n) for i, n in zip(index, shape, strict=True))
            wanted = expected[at]
            inside = decoded[tuple(slice(0, n) for n in wanted.shape)]
            assert np.abs(inside.astype(int) - wanted).max() <= 2, Path(path).name


START, END = b"\xff\xd8", b"\xff\xd9"
FRAME = b"\xff\xc0\x00\x0b\x08\x00\x08\x00\x08\x01\x01\x11\x00"
SCAN = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (START + END, "no image"), (START + FRAME + END, "no image"), (START + SCAN + END, "before the frame"),
        (START + FRAME + FRAME + SCAN + END, "more than one"), (START + b"\xff\xff\xff", "cut"),
        (START + b"abc", "no marker"), (START + b"\xff\xe0\x00\x01" + END, "segment"),
        (START + b"\xff\xe0\x7f\xff" + END, "segment"),
        (START + b"\xff\xc0\x00\x04\x08\x00" + SCAN + END, "header is cut"),
        (START + FRAME.replace(b"\x08\x00\x08", b"\x00\x00\x08", 1) + SCAN + END, "contradicts|bits"),
        (START + FRAME[:-3] + b"\x01\x11" + SCAN + END, "segment|contradicts|no marker"),
        (START + b"\xff\xe1\x00\x02" * 20_000 + END, "segments"), (START + FRAME + SCAN + b"abc", "cut"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[:24].hex(),
)  # fmt: skip
def test_markers_that_break_the_rules_are_corrupt_or_unsupported(data, word):
    with pytest.raises((CorruptDataError, UnsupportedFeatureError), match=word):
        parse_stream(data)


def test_fill_bytes_and_restart_markers_are_passed_over():
    found = parse_stream(
        START + b"\xff\xff" + FRAME[1:] + b"\xff\x01" + SCAN + b"ab\xff\x00\xff\xd3cd" + END
    )
    assert (found.height, found.width, found.color_space) == (8, 8, "grayscale")


def test_n5_jpeg_is_not_written():
    tool = find_codec("n5.jpeg").from_spec(CodecSpec("n5.jpeg"), find_codec)
    with pytest.raises(UnsupportedFeatureError, match="not written"):
        tool.encode(b"abcd")


def test_a_long_run_of_fill_bytes_takes_no_time():
    data = START + FRAME + SCAN + b"\xff" * 60_000 + b"\x00" + END
    started = time.perf_counter()
    assert parse_stream(data).width == 8
    assert (
        time.perf_counter() - started < 1
    )  # a search that begins anew at each of them takes a minute
