"""Containers that mean harm: whatever the attributes say, opening ends in the model or in one of our errors."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openreadout.arrays import read_region
from openreadout.errors import CorruptDataError, OpenReadoutError
from openreadout.registry import make_source, open_context, open_dataset
from openreadout_n5 import READER
from openreadout_n5.geometry import slowest_first

DATASET = {
    "dimensions": [5, 4, 3],
    "blockSize": [2, 2, 2],
    "dataType": "uint16",
    "compression": {"type": "raw"},
}
NUMBERS = st.one_of(
    st.integers(-3, 9), st.just(10**30), st.just(10**400), st.floats(), st.just(1 << 62)
)
WORDS = st.sampled_from(
    ["x", "y", "z", "c", "t", "nm", "um", "s0", "s1", "../s0", "", "/", "raw", "gzip", "scale", "affine",
     "sequence", "identity", "translation", "uint8", "object", "\x00", "\ud800", "ä" * 300]
)  # fmt: skip
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(
            st.sampled_from(
                ["path", "type", "name", "scale", "translation", "translate", "axes", "units", "unit", "transform",
                 "dimensions", "affine", "transformations", "datasets", "coordinateTransformations", "channels",
                 "label", "color", "window", "min", "max", "spatialTransform", "ome", "multiscales", "level", "offset"]
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=12,
)  # fmt: skip
KEYS = st.sampled_from(
    ["n5", "dimensions", "blockSize", "dataType", "compression", "compressionType", "multiscales", "transform",
     "spatialTransform", "pixelResolution", "resolution", "units", "unit", "axes", "scales", "downsamplingFactors",
     "offset", "omero", "intensityLimits", "isLabelMultiset", "pixelWidth", "numChannels", "numSlices", "numFrames",
     "xOrigin", "frameInterval", "pixelUnit", "name", "ome", "multiScale"]
)  # fmt: skip
ATTRIBUTES = st.dictionaries(KEYS, JSON, max_size=8)
PLACES = (
    "",
    "g",
    "g/s0",
    "g/s1",
    "c0/s0",
    "c1/s0",
    "setup0",
    "setup0/timepoint0",
    "setup0/timepoint0/s0",
    "a",
)


@given(
    st.dictionaries(st.sampled_from(PLACES), ATTRIBUTES, max_size=6),
    st.sets(st.sampled_from(PLACES[2:]), max_size=5),
    st.sampled_from([None, "xyz", "xyzct", "zyx", "q", ""]),
)
def test_any_attributes_open_or_give_one_of_our_errors(attributes, datasets, axes):
    with tempfile.TemporaryDirectory() as folder:
        for place in sorted({*attributes, *datasets}):
            known = DATASET if place in datasets else {}
            path = Path(folder) / place
            path.mkdir(parents=True, exist_ok=True)
            text = json.dumps({**known, **attributes.get(place, {})})
            (path / "attributes.json").write_text(text)
        source = make_source(folder)
        READER.detect(source)
        with contextlib.suppress(OpenReadoutError):
            dataset = READER.open(source, open_context(axes))
            list(dataset.inspect(True))
            json.dumps([dict(image.extra) for image in dataset.images])
            json.dumps(dataset.structure())
            for image in dataset.images:
                _sound(image)


def _sound(image):
    """What the rest of the program takes for granted of an image."""
    names = image.axis_names
    assert "x" in names
    assert list(names) == sorted(names, key="tczyxs".index)
    assert len(set(names)) == len(names)
    for level in image.levels:
        rank = len(level.array.shape)
        assert rank == len(names) == len(level.scale) == len(level.translation)
        assert len(level.array.chunk_shape) == rank
        assert all(size is None or size > 0 for size in level.scale)
        assert level.array.dtype == image.dtype
    assert len(image.channels) in (0, image.size("c"))
    assert image.physical_size is None or any(image.physical_size.values())


@pytest.mark.parametrize(
    "text", ["[" * 50_000, '{"a":' * 50_000, '{"n5":"2.0.0","a":' + "[" * 500 + "]" * 500 + "}"]
)
def test_attributes_nested_deep_are_corrupt(tmp_path, text):
    (tmp_path / "c.n5").mkdir()
    (tmp_path / "c.n5/attributes.json").write_text(text)
    with pytest.raises(CorruptDataError, match="deep"):
        open_dataset(str(tmp_path / "c.n5"))


def test_dimensions_of_any_length_cost_nothing(tmp_path):
    (tmp_path / "c.n5").mkdir()
    huge = {**DATASET, "n5": "4.0.0", "dimensions": [1 << 61] * 3}
    (tmp_path / "c.n5/attributes.json").write_text(json.dumps(huge))
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        image = dataset.images[0]
        found = image.levels[0].array.presence()
    assert image.size("x") == 1 << 61
    assert (found.stored, found.first) == (0, None)
    assert found.total == (1 << 60) ** 3


def test_axis_of_length_zero_is_read_as_nothing(tmp_path):
    (tmp_path / "c.n5").mkdir()
    (tmp_path / "c.n5/attributes.json").write_text(json.dumps({**DATASET, "dimensions": [0, 4, 3]}))
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        array = dataset.images[0].levels[0].array
        assert array.presence().total == 0
        assert read_region(array, tuple((0, n) for n in array.shape)).shape == (3, 4, 0)


def test_many_channels_and_time_points_stay_bounded(tmp_path):
    folder = tmp_path / "c.n5"
    folder.mkdir()
    omero = {"channels": [{"label": "a"}] * 70_000}
    (folder / "attributes.json").write_text(json.dumps({**DATASET, "n5": "4.0.0", "omero": omero}))
    with open_dataset(str(folder)) as dataset:
        assert dataset.images[0].channels == ()


@pytest.mark.parametrize(
    ("names", "slowest"),
    [
        ("zyx", True), ("xyz", False), ("tczyx", True), ("xyzct", False), ("yx", True), ("xy", False), ("x", True),
        ("yxc", True), ("cxy", False), ("zyxc", True),
    ],
)  # fmt: skip
def test_order_of_axis_names_is_told_by_x(names, slowest):
    assert slowest_first(list(names)) is slowest
