"""The short run: the same damaged inputs each time, over all commands and over every decoder and parser."""

from __future__ import annotations

import warnings
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openreadout.errors import OpenReadoutError
from openreadout.jsons import parse_json
from tests.robustness import fuzz, guards, mutations, seeds, units

INPUTS = 60
TRIES = 60


@pytest.fixture(scope="module")
def start():
    return fuzz.all_seeds(corpus=False)


@pytest.mark.skipif(not guards.MEASURES, reason="needs /proc")
@pytest.mark.parametrize("command", guards.COMMANDS)
def test_damaged_inputs_end_in_an_exit_code(tmp_path, start, command):
    offset = 1000 * list(guards.COMMANDS).index(command)
    for number in range(offset, offset + INPUTS // (3 if command.startswith("export") else 1)):
        case = fuzz.Case(number, start)
        done = case.put(tmp_path)(command)
        assert done.faults == [], (number, case.seed.name)


@pytest.mark.parametrize(
    "unit", [*units.codec_units(), *units.parser_units()], ids=lambda unit: unit.name
)
def test_decoders_and_parsers_give_what_is_asked_or_our_error(unit):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(TRIES):
            units.attempt(unit, Random(number))


@pytest.mark.parametrize("unit", units.codec_units(), ids=lambda unit: unit.name)
@given(data=st.binary(max_size=200))
def test_any_bytes_decode_or_are_refused(unit, data):
    try:
        unit.call(data)
    except OpenReadoutError:
        return


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(document=JSON, number=st.integers(0, 1 << 32))
def test_damage_to_json_is_json_or_is_refused(document, number):
    import json

    data = mutations.document(Random(number), json.dumps(document).encode())
    try:
        parse_json(data, "key", "path")
    except OpenReadoutError:
        return


def test_a_number_makes_the_same_damage_again(start):
    for number in range(50):
        assert fuzz.Case(number, start).files == fuzz.Case(number, start).files


def test_damage_is_done(start):
    changed = sum(fuzz.Case(n, start).files != fuzz.Case(n, start).seed.files for n in range(100))
    assert changed > 90


def test_the_guards_see_what_is_broken(tmp_path, monkeypatch):
    """A harness that finds nothing might not look: each promise is broken once on purpose."""
    seed = next(item for item in seeds.from_fixtures() if item.name.endswith("v3-sharded"))
    made = guards.put(seed.files, tmp_path / "in")
    source = tmp_path / "in" / seed.entry

    def broken(arguments):
        (tmp_path / "out" / ".left").write_text("x", encoding="utf-8")
        (tmp_path / "in" / "new").write_text("x", encoding="utf-8")
        print("Traceback (most recent call last)")  # noqa: T201
        return 1

    monkeypatch.setattr(guards.cli, "run", broken)
    text = " ".join(guards.judge("info", source, made, tmp_path / "in", tmp_path / "out").faults)
    for word in (
        "exit code 1",
        "traceback",
        "not one JSON document",
        "the source changed",
        "left behind",
    ):
        assert word in text
