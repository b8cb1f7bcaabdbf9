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


EXTREMES = [
    ("uint64", [2**64 - 1]),
    ("uint64", [2**64 - 1, 2**64 - 2, 0]),
    ("int64", [2**63 - 1, 2**63 - 2, 2**63 - 1]),
    ("int64", [-(2**63), -(2**63), -(2**63) + 1]),
    ("int64", [-(2**63), 2**63 - 1]),
    ("int64", [-1, 0, -2, -1]),
    ("int8", [-128, -128, -127]),
    ("int8", [127, 127, 126]),
    ("uint32", [2**32 - 1, 2**32 - 1, 2**32 - 2]),
]


@pytest.mark.parametrize("sides", [(4,), (3, 3), (2, 2, 2), (3, 2, 5)], ids=str)
@pytest.mark.parametrize(("dtype", "values"), EXTREMES, ids=str)
def test_integers_at_the_ends_of_their_range_are_exact(dtype, values, sides):
    block = np.resize(np.array(values, dtype=dtype), sides)
    halve = (True,) * len(sides)
    found = downsample(block, halve)
    assert found.dtype == block.dtype
    for index, samples in groups(block, halve):
        assert int(found[index]) == math.floor(
            Fraction(sum(samples), len(samples)) + Fraction(1, 2)
        )


@given(blocks(("bool",)))
def test_truth_values_are_rounded_as_numbers(drawn):
    block, halve = drawn
    found = downsample(block, halve)
    assert found.dtype == bool
    for index, samples in groups(block, halve):
        assert found[index] == (2 * sum(samples) >= len(samples))


def test_doubles_near_the_end_of_their_range_do_not_overflow():
    big = np.finfo("float64").max
    block = np.array([[big, big, big], [big, -big, -big], [big, big, big]])
    found = downsample(block, (True, True))
    for index, samples in groups(block, (True, True)):
        exact = sum(map(Fraction, samples)) / len(samples)
        assert found[index] == pytest.approx(float(exact), rel=1e-15)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_infinities_and_not_a_number(dtype):
    inf, nan = math.inf, math.nan
    block = np.array([[inf, 1, inf, -inf, nan, inf], [1, 1, inf, inf, 1, 1]], dtype=dtype)
    found = downsample(block, (True, True))
    assert found.dtype == block.dtype
    assert found[0, 0] == inf
    assert np.isnan(found[0, 1])
    assert np.isnan(found[0, 2])


def test_an_infinity_beside_doubles_that_overflow_decides():
    big = np.finfo("float64").max
    found = downsample(np.array([[big, big], [-math.inf, 0.0]]), (True, True))
    assert found[0, 0] == -math.inf


PARTS = st.sampled_from([0.0, 1.5, -2.0, 1e300, 1.7e308, -1.7e308, math.inf, -math.inf, math.nan])


@given(st.lists(PARTS, min_size=4, max_size=4), st.lists(PARTS, min_size=4, max_size=4))
def test_real_and_imaginary_parts_are_averaged_apart(real, imaginary):
    block = np.empty((2, 2), "complex128")
    block.real, block.imag = np.reshape(real, (2, 2)), np.reshape(imaginary, (2, 2))
    found = downsample(block, (True, True))
    assert found.dtype == block.dtype
    for part in ("real", "imag"):
        alone = downsample(getattr(block, part).copy(), (True, True))
        np.testing.assert_array_equal(getattr(found, part), alone)


@given(blocks(("complex64", "complex128"), elements={"allow_nan": False, "max_magnitude": 1e6}))
def test_complex_numbers_are_the_mean(drawn):
    block, halve = drawn
    found = downsample(block, halve)
    assert (found.dtype, found.shape) == (block.dtype, next_shape(block.shape, halve))
    eps = float(np.finfo(block.dtype).eps)
    for index, samples in groups(block, halve):
        for part in ("real", "imag"):
            values = [Fraction(getattr(sample, part)) for sample in samples]
            exact = sum(values) / len(values)
            spread = max(map(abs, values))
            error = abs(Fraction(float(getattr(found[index], part))) - exact)
            assert error <= spread * Fraction(eps) + Fraction(1, 10**30)


def test_labels_of_the_largest_numbers_stay_what_they_are():
    block = np.array([[2**64 - 1, 2**64 - 1, 7], [5, 2**64 - 2, 9], [1, 1, 3]], dtype="uint64")
    assert downsample(block, (True, True), label=True).tolist() == [[2**64 - 1, 7], [1, 3]]


@given(blocks(("uint8", "int16", "float32", "int64"), elements=st.integers(0, 3)))
def test_the_block_itself_is_left_as_it_was(drawn):
    block, halve = drawn
    before = block.copy()
    for label in (False, True):
        downsample(block, halve, label=label)
    assert np.array_equal(block, before)


@given(blocks(("uint8", "int64", "float64"), elements=st.integers(0, 100)), st.booleans())
def test_parts_that_start_on_even_samples_give_the_parts_of_the_whole(drawn, label):
    """An export makes levels block by block: where the blocks are cut must not show."""
    block, halve = drawn
    whole = downsample(block, halve, label=label)
    cut = [range(0, n, 2) for n in block.shape]
    for start in np.ndindex(*map(len, cut)):
        spans = [slice(c[i], c[i] + 2) for c, i in zip(cut, start, strict=True)]
        part = downsample(block[tuple(spans)], halve, label=label)
        to = [
            slice(s.start // 2, s.start // 2 + n) if h else slice(s.start, s.start + n)
            for s, h, n in zip(spans, halve, part.shape, strict=True)
        ]
        assert np.array_equal(whole[tuple(to)], part)
