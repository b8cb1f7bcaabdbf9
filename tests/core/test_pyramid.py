"""Pyramid arithmetic against exact fractions, block by block."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from openreadout.pyramid import axes_to_halve, downsample, next_scale, next_shape

INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")


@st.composite
def blocks(draw, dtypes=INTEGERS, **options):
    shape = draw(npst.array_shapes(min_dims=1, max_dims=3, max_side=5))
    dtype = draw(st.sampled_from(dtypes))
    block = draw(npst.arrays(dtype, shape, **options))
    return block, tuple(draw(st.booleans()) for _ in shape)


def groups(block, halve):
    """The index of each value of the next level, with the samples that it is made of."""
    for index in np.ndindex(next_shape(block.shape, halve)):
        part = tuple(
            slice(2 * i, 2 * i + 2) if h else slice(i, i + 1)
            for i, h in zip(index, halve, strict=True)
        )
        yield index, block[part].ravel().tolist()


@given(blocks())
def test_integers_are_the_floor_of_the_mean_plus_a_half(drawn):
    block, halve = drawn
    found = downsample(block, halve)
    assert (found.dtype, found.shape) == (block.dtype, next_shape(block.shape, halve))
    for index, samples in groups(block, halve):
        assert found[index] == math.floor(Fraction(sum(samples), len(samples)) + Fraction(1, 2))


@given(blocks(("float32", "float64"), elements={"allow_nan": False, "allow_infinity": False}))
def test_floats_are_the_mean_without_overflow(drawn):
    block, halve = drawn
    found = downsample(block, halve)
    limits = np.finfo(block.dtype)
    for index, samples in groups(block, halve):
        exact = sum(map(Fraction, samples)) / len(samples)
        assert math.isfinite(found[index])
        spread = max(abs(Fraction(s)) for s in samples)
        assert abs(Fraction(float(found[index])) - exact) <= spread * Fraction(
            float(limits.eps)
        ) + Fraction(float(limits.tiny))


@given(blocks(("float32",), elements={"allow_nan": True, "allow_infinity": False}))
def test_nan_stays_nan(drawn):
    block, halve = drawn
    found = downsample(block, halve)
    for index, samples in groups(block, halve):
        assert math.isnan(found[index]) == any(map(math.isnan, samples))


@given(blocks(("uint8", "uint32", "int64"), elements=st.integers(0, 3)))
def test_labels_take_the_most_frequent_value_and_the_smallest_on_a_tie(drawn):
    block, halve = drawn
    found = downsample(block, halve, label=True)
    for index, samples in groups(block, halve):
        counts = Counter(samples)
        most = max(counts.values())
        assert found[index] == min(value for value, count in counts.items() if count == most)


@given(st.integers(1, 12), st.floats(0.01, 100), st.floats(-1000, 1000))
def test_scale_and_translation_keep_the_image_in_place(levels, scale, translation):
    """The first sample of level k is the mean of 2^k samples, so it lies (2^k - 1) / 2 samples further on."""
    s, t = (scale,), (translation,)
    for _ in range(levels):
        s, t = next_scale(s, t, (True,))
    factor = 2**levels
    assert s[0] == pytest.approx(scale * factor)
    assert t[0] == pytest.approx(translation + scale * (factor - 1) / 2)
    assert next_scale(s, t, (False,)) == (s, t)


@pytest.mark.parametrize(
    ("axes", "shape", "scale", "unit", "halve"),
    [
        ("yx", (10, 10), (1, 1), "micrometer", (True, True)),
        ("yx", (1, 10), (1, 1), None, (False, True)),
        ("zyx", (10, 10, 10), (1, 1, 1), "micrometer", (True, True, True)),
        ("zyx", (10, 10, 10), (2, 1, 1), "micrometer", (False, True, True)),
        ("zyx", (10, 10, 10), (0.5, 1, 1), "micrometer", (True, True, True)),
        ("zyx", (10, 10, 10), (0.5, 1, 1), None, (False, True, True)),
        ("zyx", (10, 10, 10), (None, 1, 1), "micrometer", (False, True, True)),
        (
            "tczyx",
            (9, 9, 1, 9, 9),
            (1, 1, 1, 1, 1),
            "micrometer",
            (False, False, False, True, True),
        ),
    ],
)
def test_which_axes_are_halved(axes, shape, scale, unit, halve):
    assert axes_to_halve(list(axes), shape, scale, [unit] * len(axes)) == halve
