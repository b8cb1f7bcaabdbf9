"""What the model works out from axes and levels."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from openreadout.codecs import ITEM_BYTES
from openreadout.model import (
    PIXEL_TYPES,
    WIDENED,
    Axis,
    Dataset,
    Image,
    ResolutionLevel,
    order_axes,
)


@dataclasses.dataclass
class Flat:
    shape: tuple
    dtype: str = "uint16"


def image(axes, shape, scale=None, units=None, **more):
    scale = scale or (1.0,) * len(axes)
    level = ResolutionLevel("0", Flat(shape), scale, (0.0,) * len(axes))
    return Image("x", tuple(Axis(a, (units or {}).get(a)) for a in axes), (level,), **more)


def test_sizes_come_from_the_axes_and_absent_ones_are_one():
    made = image("tzyx", (2, 3, 4, 5))
    assert [made.size(a) for a in "tczyxs"] == [2, 1, 3, 4, 5, 1]
    assert made.plane_count == 6


@pytest.mark.parametrize(
    ("axes", "order"),
    [("tczyx", "XYZCT"), ("yx", "XYZCT"), ("zyx", "XYZCT"), ("cyx", "XYCZT"),
     ("tyx", "XYTZC"), ("tzyx", "XYZTC"), ("tcyx", "XYCTZ")],
)  # fmt: skip
def test_dimension_order_is_fastest_first(axes, order):
    assert image(axes, (2,) * len(axes)).dimension_order == order


def test_stored_dimension_order_wins():
    assert image("tczyx", (1,) * 5, dimension_order_stored="XYCTZ").dimension_order == "XYCTZ"


def test_physical_size_is_in_micrometres():
    units = {"z": "nanometer", "y": "millimeter", "x": "micrometer"}
    made = image("zyx", (1, 1, 1), (500.0, 0.001, 0.25), units)
    assert made.physical_size == {"x": 0.25, "y": 1.0, "z": 0.5}


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), None])
def test_impossible_sizes_are_unknown(value):
    assert (
        image("yx", (1, 1), (value, value), {"x": "micrometer", "y": "micrometer"}).physical_size
        is None
    )
    assert image("tyx", (1, 1, 1), (value, 1.0, 1.0), {"t": "second"}).time_increment_s is None


def test_a_length_without_unit_is_unknown():
    assert image("yx", (1, 1), (0.5, 0.5)).physical_size is None


def test_time_is_in_seconds():
    assert image("tyx", (1, 1, 1), (250.0, 1.0, 1.0), {"t": "millisecond"}).time_increment_s == 0.25


def test_every_pixel_type_has_an_ome_name():
    assert set(PIXEL_TYPES) == set(ITEM_BYTES)
    for name, wider in WIDENED.items():
        assert np.can_cast(name, wider, "safe") or name == "bool"


def test_a_type_that_is_no_pixel_has_no_ome_name():
    made = image("yx", (1, 1))
    other = dataclasses.replace(
        made, levels=(ResolutionLevel("0", Flat((1, 1), "str"), (None, None), (None, None)),)
    )
    assert (other.pixel_type, other.readable) == (None, False)


def test_axes_are_ordered():
    assert order_axes("xyczt") == list("tczyx")
    assert order_axes("sxy") == list("yxs")


def test_dataset_releases_what_its_reader_holds():
    closed = []
    with Dataset("p", "f", "F", "1", (), release=lambda: closed.append(1)):
        assert closed == []
    assert closed == [1]


def test_the_model_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        image("yx", (1, 1)).name = "other"
