"""How many chunks a region touches, against the list of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openreadout.arrays import chunks_in, count_chunks

SIDES = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9))


@given(st.lists(SIDES, min_size=1, max_size=3))
def test_chunks_are_counted_as_they_are_listed(sides):
    """Also for regions that are empty along an axis, or end before they start."""
    region = tuple((start, stop) for start, stop, _ in sides)
    chunk = tuple(length for *_, length in sides)
    assert count_chunks(region, chunk) == len(list(chunks_in(region, chunk)))
