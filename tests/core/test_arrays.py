"""Grids, views and regions, against numpy doing the same on the whole array."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openreadout.arrays import (
    ArrayLayout,
    AxisView,
    Presence,
    Stack,
    chunk_region,
    chunks_in,
    grid_shape,
    nth_index,
    read_region,
    region_shape,
    with_axes,
)
from openreadout.errors import CorruptDataError


class Numbers:
    """A chunked array over numpy, some of whose chunks are absent or damaged."""

    fill_value = 7

    def __init__(self, shape, chunk, absent=(), bad=()):
        self.whole = np.arange(math.prod(shape), dtype="int32").reshape(shape)
        self.shape, self.chunk_shape, self.dtype = shape, chunk, "int32"
        self.absent, self.bad = set(absent), set(bad)
        for index in self.absent:
            self.whole[self._slices(index)] = self.fill_value
        self.layout = ArrayLayout(chunk, None, ())

    def _slices(self, index):
        return tuple(slice(*side) for side in chunk_region(index, self.shape, self.chunk_shape))

    def is_stored(self, index):
        return index not in self.absent

    def read_chunk(self, index):
        if index in self.bad:
            raise CorruptDataError("damaged", where=self.locate(index))
        return self.whole[self._slices(index)]

    def locate(self, index):
        return ".".join(map(str, index))

    def _all(self):
        return np.ndindex(grid_shape(self.shape, self.chunk_shape))

    def stored_indices(self):
        return (index for index in self._all() if index not in self.absent)

    def presence(self):
        there = list(self.stored_indices())
        total = math.prod(grid_shape(self.shape, self.chunk_shape))
        return Presence(
            total, len(there), there[0] if there else None, there[-1] if there else None
        )


@st.composite
def arrays(draw, max_ndim=4):
    ndim = draw(st.integers(1, max_ndim))
    shape = tuple(draw(st.integers(1, 7)) for _ in range(ndim))
    chunk = tuple(draw(st.integers(1, 8)) for _ in range(ndim))
    every = list(np.ndindex(grid_shape(shape, chunk)))
    return Numbers(shape, chunk, absent=draw(st.lists(st.sampled_from(every), max_size=4)))


@st.composite
def regions(draw, shape):
    return tuple(tuple(sorted((draw(st.integers(0, n)), draw(st.integers(0, n))))) for n in shape)


def cut(whole, region):
    return whole[tuple(slice(*side) for side in region)]


def whole_region(array):
    return tuple((0, n) for n in array.shape)


@given(arrays())
def test_a_grid_covers_every_element_once(array):
    seen = np.zeros(array.shape, int)
    for index in np.ndindex(grid_shape(array.shape, array.chunk_shape)):
        seen[
            tuple(slice(*side) for side in chunk_region(index, array.shape, array.chunk_shape))
        ] += 1
    assert (seen == 1).all()


@given(st.data())
def test_region_equals_the_slice_of_the_whole(data):
    array = data.draw(arrays())
    region = data.draw(regions(array.shape))
    found = read_region(array, region)
    assert found.shape == region_shape(region)
    assert np.array_equal(found, cut(array.whole, region))


@given(st.data())
def test_chunks_of_a_region_are_those_that_overlap_it(data):
    array = data.draw(arrays())
    region = data.draw(regions(array.shape))
    touched = {
        index
        for index in np.ndindex(grid_shape(array.shape, array.chunk_shape))
        if all(
            max(a, c) < min(b, d)
            for (a, b), (c, d) in zip(
                region, chunk_region(index, array.shape, array.chunk_shape), strict=True
            )
        )
    }
    assert set(chunks_in(region, array.chunk_shape)) == touched


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_nth_index_counts_in_c_order(grid, data):
    n = data.draw(st.integers(0, math.prod(grid) - 1))
    assert nth_index(n, grid) == tuple(np.unravel_index(n, grid))


def test_an_axis_of_length_zero_has_no_chunk():
    assert grid_shape((0, 5), (2, 2)) == (0, 3)
    assert list(chunks_in(((0, 0), (0, 5)), (2, 2))) == []


@given(st.data())
def test_view_reorders_fixes_and_adds_axes(data):
    array = data.draw(arrays())
    ndim = len(array.shape)
    shown = data.draw(
        st.permutations(range(ndim)).flatmap(lambda p: st.integers(1, ndim).map(lambda k: p[:k]))
    )
    fixed = tuple(data.draw(st.integers(0, n - 1)) for n in array.shape)
    axes = list(shown)
    axes.insert(data.draw(st.integers(0, len(axes))), None)
    view = AxisView(array, tuple(axes), fixed)
    picked = array.whole[tuple(slice(None) if a in shown else fixed[a] for a in range(ndim))]
    kept = sorted(shown)
    wanted = np.expand_dims(picked.transpose([kept.index(a) for a in shown]), axes.index(None))
    assert view.shape == wanted.shape
    assert np.array_equal(read_region(view, whole_region(view)), wanted)


@given(st.data())
def test_view_knows_which_of_its_chunks_are_stored(data):
    array = data.draw(arrays())
    axes = tuple(data.draw(st.permutations(range(len(array.shape)))))
    view = AxisView(array, axes)
    every = set(np.ndindex(grid_shape(view.shape, view.chunk_shape)))
    stored = set(view.stored_indices())
    assert stored == {index for index in every if view.is_stored(index)}
    assert len(stored) == array.presence().stored


def test_with_axes_leaves_an_array_alone_whose_axes_are_right():
    array = Numbers((4, 5), (2, 2))
    assert with_axes(array, [0, 1]) is array
    assert with_axes(array, [1, 0]).shape == (5, 4)


@given(st.lists(st.booleans(), min_size=1, max_size=5).filter(any))
def test_stack_lays_arrays_along_a_new_axis(there):
    part = Numbers((3, 5), (2, 2), absent=[(0, 1)])
    stack = Stack(tuple(part if flag else None for flag in there))
    absent = np.full(part.shape, part.fill_value)
    wanted = np.stack([part.whole if flag else absent for flag in there])
    assert stack.shape == wanted.shape
    assert np.array_equal(read_region(stack, whole_region(stack)), wanted)
    stored = list(stack.stored_indices())
    found = stack.presence()
    assert (found.total, found.stored) == (6 * len(there), 5 * sum(there))
    assert (found.first, found.last) == (stored[0], stored[-1])
    assert stored == sorted(stored)
    assert all(stack.is_stored(index) for index in stored)


def test_a_damaged_chunk_is_raised_with_its_place():
    array = Numbers((6, 6), (2, 3), bad=[(1, 0)])
    with pytest.raises(CorruptDataError) as caught:
        read_region(array, ((0, 6), (0, 6)))
    assert caught.value.where == "1.0"


def test_a_damaged_chunk_is_reported_and_the_rest_is_read():
    array = Numbers((6, 6), (2, 3), bad=[(1, 0)])
    seen = []
    found = read_region(
        array, ((0, 6), (0, 6)), lambda index, error: seen.append((index, error.message))
    )
    assert seen == [((1, 0), "damaged")]
    wanted = array.whole.copy()
    wanted[2:4, 0:3] = 0
    assert np.array_equal(found, wanted)
