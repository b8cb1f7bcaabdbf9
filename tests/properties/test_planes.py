"""Planes and their digests, whatever the chunks, the threads and the memory."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openreadout.arrays import ArrayLayout, chunk_region
from openreadout.errors import CorruptDataError, UsageError
from openreadout.model import Axis, Image, ResolutionLevel
from openreadout.planes import Selection, digest_planes, hasher, read_plane
from openreadout.workers import Workers


class Chunks:
    """A chunked array over numpy; the chunks in `bad` do not decode."""

    fill_value = 0

    def __init__(self, whole, chunk, bad=()):
        self.whole, self.chunk_shape, self.bad = whole, chunk, set(bad)
        self.shape, self.dtype = whole.shape, whole.dtype.name
        self.layout = ArrayLayout(chunk, None, ())
        self.decoded = []

    def is_stored(self, index):
        return True

    def read_chunk(self, index):
        self.decoded.append(index)
        if index in self.bad:
            raise CorruptDataError("damaged", where=str(index))
        return self.whole[
            tuple(slice(*s) for s in chunk_region(index, self.shape, self.chunk_shape))
        ]


def as_image(array, axes, **more):
    level = ResolutionLevel("0", array, (1.0,) * len(axes), (0.0,) * len(axes))
    return Image("x", tuple(map(Axis, axes)), (level,), **more)


@st.composite
def images(draw):
    axes = "".join(a for a in "tcz" if draw(st.booleans())) + draw(
        st.sampled_from(["yx", "yxs", "x"])
    )
    shape = tuple(draw(st.integers(1, 4 if a in "tczs" else 9)) for a in axes)
    chunk = tuple(
        n if a == "s" else draw(st.integers(1, n + 1)) for a, n in zip(axes, shape, strict=True)
    )
    dtype = draw(st.sampled_from(["uint8", "uint16", "float32", "bool", "float16"]))
    whole = (np.arange(math.prod(shape)) % 251).astype(dtype).reshape(shape)
    return as_image(Chunks(whole, chunk), axes)


def plane_bytes(image, t, c, z):
    """The samples of a plane, worked out from the whole array."""
    at = {"t": t, "c": c, "z": z}
    array = image.levels[0].array.whole
    plane = array[tuple(at.get(a, slice(None)) for a in image.axis_names)]
    wide = {"bool": "uint8", "float16": "float32"}.get(array.dtype.name, array.dtype.name)
    return np.ascontiguousarray(plane, dtype=np.dtype(wide).newbyteorder("<")).tobytes()


def digests(image, selection=None, *, threads=1, budget=1 << 20, on_error=None, algorithm="sha256"):
    def fail(index, error):
        raise AssertionError(error)

    with Workers(threads) as workers:
        planes = digest_planes(
            image, 0, selection or Selection(), algorithm, workers, on_error or fail, budget=budget
        )
        return {(p.t, p.c, p.z): p.digest for p in planes}


@given(images(), st.sampled_from([1, 3]), st.sampled_from([1, 100, 1 << 20]))
def test_every_plane_has_the_digest_of_its_samples(image, threads, budget):
    sizes = [image.size(a) for a in "tcz"]
    wanted = {
        place: hashlib.sha256(plane_bytes(image, *place)).hexdigest()
        for place in np.ndindex(*sizes)
    }
    assert digests(image, threads=threads, budget=budget) == wanted


@given(images())
def test_no_chunk_is_decoded_twice(image):
    array = image.levels[0].array
    digests(image)
    assert len(array.decoded) == len(set(array.decoded))


@given(st.data())
def test_a_region_is_that_part_of_the_plane(data):
    image = data.draw(images())
    width, height = image.size("x"), image.size("y")
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    w, h = data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y))
    spans = {"x": slice(x, x + w), "y": slice(y, y + h)}
    array = image.levels[0].array
    cut = array.whole[tuple(spans.get(a, slice(None)) for a in image.axis_names)]
    small = as_image(Chunks(np.ascontiguousarray(cut), cut.shape), image.axis_names)
    assert digests(image, Selection(region=(x, y, w, h))) == digests(small)


@given(st.data())
def test_chosen_planes_have_the_same_digests_as_when_all_are_read(data):
    image = data.draw(images())
    chosen = {
        a: tuple(sorted(data.draw(st.sets(st.integers(0, image.size(a) - 1), min_size=1))))
        for a in "tcz"
    }
    every = digests(image)
    found = digests(image, Selection(**chosen))
    assert found == {
        p: d for p, d in every.items() if all(i in chosen[a] for a, i in zip("tcz", p, strict=True))
    }


@given(st.data())
def test_a_damaged_chunk_spoils_its_own_planes_only(data):
    image = data.draw(images())
    array = image.levels[0].array
    grid = [-(-n // c) for n, c in zip(array.shape, array.chunk_shape, strict=True)]
    bad = tuple(data.draw(st.integers(0, n - 1)) for n in grid)
    wanted = digests(image)
    array.bad.add(bad)
    errors = []
    found = digests(
        image, threads=data.draw(st.sampled_from([1, 2])), on_error=lambda i, e: errors.append(i)
    )
    assert errors == [bad]
    sides = dict(
        zip(image.axis_names, chunk_region(bad, array.shape, array.chunk_shape), strict=True)
    )
    for place, digest in wanted.items():
        touched = all(
            a not in sides or sides[a][0] <= i < sides[a][1]
            for a, i in zip("tcz", place, strict=True)
        )
        assert found[place] == (None if touched else digest)


@given(images())
def test_read_plane_gives_the_samples_of_the_digest(image):
    last = tuple(image.size(a) - 1 for a in "tcz")
    t, c, z = last
    plane = read_plane(image, t=t, c=c, z=z)
    ordered = np.ascontiguousarray(plane, dtype=plane.dtype.newbyteorder("<"))
    assert hashlib.sha256(ordered.tobytes()).hexdigest() == digests(image)[last]


def test_absent_planes_are_left_out():
    whole = np.zeros((3, 4, 5), "uint8")
    image = as_image(Chunks(whole, (1, 4, 5)), "zyx", absent=frozenset({(0, 0, 1)}))
    assert set(digests(image)) == {(0, 0, 0), (0, 0, 2)}


@pytest.mark.parametrize(
    "selection",
    [Selection(z=(3,)), Selection(t=(1,)), Selection(region=(0, 0, 6, 1)), Selection(region=(0, 0, 0, 1)),
     Selection(region=(4, 4, 1, 1))],
)  # fmt: skip
def test_what_is_not_there_is_a_usage_error(selection):
    image = as_image(Chunks(np.zeros((3, 4, 5), "uint8"), (1, 4, 5)), "zyx")
    with pytest.raises(UsageError):
        digests(image, selection)


def test_digests_are_those_of_the_algorithms():
    """XXH3-128 of no bytes, from the specification of xxHash."""
    assert hasher("xxh3").hexdigest() == "99aa06d3014798d86001c324468d497f"
    assert hasher("sha256").hexdigest() == hashlib.sha256().hexdigest()
