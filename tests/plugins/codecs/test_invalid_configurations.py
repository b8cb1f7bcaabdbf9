"""Configurations that `jpeg` and `n5_default` must reject, through our codecs and through plain zarr-python."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr

from openreadout.codecs import ChunkSpec, CodecChain, CodecSpec
from openreadout.errors import CorruptDataError
from openreadout.registry import find_codec

ONES = [[1, 1], [1, 1], [1, 1]]
GREY = {"quality": 90, "encoded_color_space": "grayscale"}
COLOUR = {"quality": 90, "encoded_color_space": "ycbcr", "subsampling": ONES}
RGB = {"quality": 90, "encoded_color_space": "rgb"}


def without(config, key):
    return {k: v for k, v in config.items() if k != key}


JPEG = {
    "quality-missing": without(GREY, "quality"),
    "quality-0": GREY | {"quality": 0},
    "quality-101": GREY | {"quality": 101},
    "quality-negative": GREY | {"quality": -5},
    "quality-float": GREY | {"quality": 90.0},
    "quality-text": GREY | {"quality": "90"},
    "quality-true": GREY | {"quality": True},
    "quality-null": GREY | {"quality": None},
    "encoded-missing": without(GREY, "encoded_color_space"),
    "encoded-missing-colour": {"quality": 90, "subsampling": ONES},
    "encoded-unknown": GREY | {"encoded_color_space": "cmyk"},
    "encoded-capitals": GREY | {"encoded_color_space": "Grayscale"},
    "encoded-number": GREY | {"encoded_color_space": 1},
    "encoded-list": GREY | {"encoded_color_space": ["grayscale"]},
    "decoded-unknown": COLOUR | {"decoded_color_space": "hsv"},
    "decoded-null": COLOUR | {"decoded_color_space": None},
    "rgb-from-grayscale": RGB | {"decoded_color_space": "grayscale"},
    "rgb-from-ycbcr": RGB | {"decoded_color_space": "ycbcr"},
    "grayscale-from-rgb": GREY | {"decoded_color_space": "rgb"},
    "grayscale-from-ycbcr": GREY | {"decoded_color_space": "ycbcr"},
    "ycbcr-from-grayscale": COLOUR | {"decoded_color_space": "grayscale"},
    "subsampling-missing": without(COLOUR, "subsampling"),
    "subsampling-null": COLOUR | {"subsampling": None},
    "subsampling-text": COLOUR | {"subsampling": "4:2:0"},
    "subsampling-short": COLOUR | {"subsampling": [[2, 2], [1, 1]]},
    "subsampling-long": COLOUR | {"subsampling": [[2, 2], [1, 1], [1, 1], [1, 1]]},
    "subsampling-empty": COLOUR | {"subsampling": []},
    "subsampling-flat": COLOUR | {"subsampling": [2, 1, 1]},
    "subsampling-triple": COLOUR | {"subsampling": [[2, 2, 1], [1, 1], [1, 1]]},
    "factor-0": COLOUR | {"subsampling": [[0, 1], [1, 1], [1, 1]]},
    "factor-5": COLOUR | {"subsampling": [[5, 1], [1, 1], [1, 1]]},
    "factor-float": COLOUR | {"subsampling": [[2.0, 1], [1, 1], [1, 1]]},
    "factor-true": COLOUR | {"subsampling": [[True, 1], [1, 1], [1, 1]]},
    "chroma-2": COLOUR | {"subsampling": [[2, 2], [2, 1], [1, 1]]},
    "chroma-larger": COLOUR | {"subsampling": [[1, 1], [1, 1], [2, 2]]},
    "rgb-subsampled": RGB | {"subsampling": [[2, 2], [1, 1], [1, 1]]},
    "rgb-one-factor": RGB | {"subsampling": [[1, 1]]},
    "grayscale-subsampled": GREY | {"subsampling": [[2, 2]]},
    "grayscale-three-factors": GREY | {"subsampling": ONES},
    "unknown-key": GREY | {"progressive": True},
    "empty": {},
}

TRANSPOSE = {"name": "transpose", "configuration": {"order": [1, 0]}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}


def order(value):
    return {"name": "transpose", "configuration": {"order": value}}


N5_DEFAULT = {
    "codecs-missing": {},
    "codecs-null": {"codecs": None},
    "codecs-text": {"codecs": "raw"},
    "codecs-object": {"codecs": {"name": "bytes"}},
    "codecs-empty": {"codecs": []},
    "bytes-only": {"codecs": [BIG]},
    "transpose-only": {"codecs": [TRANSPOSE]},
    "no-transpose": {"codecs": [BIG, GZIP]},
    "no-bytes": {"codecs": [TRANSPOSE, GZIP]},
    "bytes-first": {"codecs": [BIG, TRANSPOSE]},
    "identity": {"codecs": [order([0, 1]), BIG]},
    "rotation": {"codecs": [order([1, 2, 0]), BIG]},
    "order-twice": {"codecs": [order([1, 1]), BIG]},
    "order-text": {"codecs": [order("F"), BIG]},
    "order-floats": {"codecs": [order([1.0, 0.0]), BIG]},
    "order-empty": {"codecs": [order([]), BIG]},
    "order-missing": {"codecs": [{"name": "transpose", "configuration": {}}, BIG]},
    "two-transposes": {"codecs": [TRANSPOSE, TRANSPOSE, BIG]},
    "little": {"codecs": [TRANSPOSE, {"name": "bytes", "configuration": {"endian": "little"}}]},
    "endian-unknown": {
        "codecs": [TRANSPOSE, {"name": "bytes", "configuration": {"endian": "pdp"}}]
    },
    "two-compressors": {"codecs": [TRANSPOSE, BIG, GZIP, {"name": "crc32c"}]},
    "array-codec-last": {"codecs": [TRANSPOSE, BIG, TRANSPOSE]},
    "serializer-last": {"codecs": [TRANSPOSE, BIG, BIG]},
    "codec-number": {"codecs": [TRANSPOSE, BIG, 7]},
    "codec-without-name": {"codecs": [TRANSPOSE, BIG, {"configuration": {}}]},
    "codec-name-number": {"codecs": [TRANSPOSE, BIG, {"name": 7}]},
    "codec-configuration-list": {
        "codecs": [TRANSPOSE, BIG, {"name": "gzip", "configuration": [1]}]
    },
    "unknown-key": {"codecs": [TRANSPOSE, BIG], "fill": 0},
}
"""All for two-byte samples in two dimensions."""
CASES = [
    *(pytest.param("jpeg", config, id=f"jpeg-{label}") for label, config in JPEG.items()),
    *(pytest.param("n5_default", config, id=f"n5-{label}") for label, config in N5_DEFAULT.items()),
]


def test_there_are_enough_of_them():
    assert len(JPEG) >= 25
    assert len(N5_DEFAULT) >= 25


@pytest.mark.parametrize(("name", "config"), CASES)
def test_our_codecs_refuse_it_when_it_is_parsed(name, config):
    with pytest.raises(CorruptDataError, match=name):
        CodecChain.build([CodecSpec(name, config)], find_codec)


def document(name, config):
    colour = config.get("encoded_color_space") in ("ycbcr", "rgb")
    shape = [8, 8, 3] if colour else [8, 8]
    return {
        "zarr_format": 3, "node_type": "array", "shape": shape, "fill_value": 0, "attributes": {},
        "data_type": "uint8" if name == "jpeg" else "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
        "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}},
        "codecs": [{"name": name, "configuration": config}],
    }  # fmt: skip


@pytest.mark.parametrize(("name", "config"), CASES)
def test_plain_zarr_refuses_it_when_the_array_is_opened(name, config, tmp_path):
    (tmp_path / "zarr.json").write_text(json.dumps(document(name, config)))
    with pytest.raises((ValueError, TypeError)):
        zarr.open_array(tmp_path, mode="r")


@pytest.mark.parametrize("name", ["jpeg", "n5_default"])
def test_plain_zarr_refuses_a_codec_without_configuration(name, tmp_path):
    described = document(name, {}) | {"codecs": [{"name": name}]}
    (tmp_path / "zarr.json").write_text(json.dumps(described))
    with pytest.raises(ValueError, match=name):
        zarr.open_array(tmp_path, mode="r")


VALID = [
    ("jpeg", GREY), ("jpeg", COLOUR), ("jpeg", RGB), ("jpeg", GREY | {"subsampling": [[1, 1]]}),
    ("jpeg", RGB | {"subsampling": ONES, "decoded_color_space": "rgb"}), ("jpeg", GREY | {"quality": 1}),
    ("jpeg", GREY | {"quality": 100, "decoded_color_space": "grayscale"}),
    ("jpeg", COLOUR | {"decoded_color_space": "ycbcr"}), ("jpeg", COLOUR | {"subsampling": [[4, 3], [1, 1], [1, 1]]}),
    ("n5_default", {"codecs": [TRANSPOSE, BIG]}), ("n5_default", {"codecs": [TRANSPOSE, BIG, GZIP]}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "config"), VALID, ids=str)
def test_their_sound_neighbours_are_taken(name, config, tmp_path):
    described = document(name, config)
    spec = ChunkSpec(tuple(described["shape"]), described["data_type"])
    assert CodecChain.build([CodecSpec(name, config)], find_codec).encoded(spec).count > 0
    (tmp_path / "zarr.json").write_text(json.dumps(described))
    np.testing.assert_array_equal(zarr.open_array(tmp_path, mode="r")[...], 0)


def test_a_byte_order_is_needed_by_samples_of_several_bytes(tmp_path):
    config = {"codecs": [TRANSPOSE, {"name": "bytes"}]}
    chain = CodecChain.build([CodecSpec("n5_default", config)], find_codec)
    with pytest.raises(CorruptDataError, match="endian"):
        chain.encoded(ChunkSpec((8, 8), "uint16"))
    (tmp_path / "zarr.json").write_text(json.dumps(document("n5_default", config)))
    with pytest.raises(ValueError, match="endian"):
        zarr.open_array(tmp_path, mode="r")


def test_a_transposition_for_other_dimensions_is_refused():
    config = {"codecs": [order([2, 1, 0]), BIG]}
    chain = CodecChain.build([CodecSpec("n5_default", config)], find_codec)
    with pytest.raises(CorruptDataError, match="axes"):
        chain.encoded(ChunkSpec((8, 8), "uint16"))
