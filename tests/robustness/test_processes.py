"""Damaged and hostile inputs end to end: a process of its own for each command, measured from outside."""

from __future__ import annotations

import sys

import pytest

from tests.robustness import build, fuzz, guards

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="counts memory as Linux does"
)
COMMANDS = ("info", "check-full", "check-planes", "export")


@pytest.fixture(scope="module")
def start():
    return fuzz.all_seeds(corpus=False)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("command", COMMANDS)
def test_damaged_inputs_in_processes_of_their_own(tmp_path, measured, start, command, number):
    case = fuzz.Case(70_000 + number, start)
    made = guards.put(case.files, tmp_path / "in")
    (tmp_path / "out").mkdir()
    source = tmp_path / "in" / case.seed.entry
    done = measured(
        *guards.arguments_for(command, source, tmp_path / "out"), timeout=guards.MAX_SECONDS * 4
    )
    assert done.code in {0, 2, 3, 4, 5, 6}, done.err
    assert "Traceback" not in done.err
    assert isinstance(done.data["ok"], bool)
    assert done.cpu < guards.MAX_SECONDS
    assert done.peak < guards.MAX_BYTES
    assert guards.listing(tmp_path / "in") == made
    assert len(list((tmp_path / "out").iterdir())) == (command == "export" and done.code == 0)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_enormous_image_costs_no_more_than_a_small_one(tmp_path, measured, command):
    array = build.array3(shape=[2**60, 2**60])
    source = build.ome_zarr(tmp_path / "in" / "a.zarr", array)
    small = build.ome_zarr(tmp_path / "in" / "b.zarr")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    usual = measured(*guards.arguments_for(command, small, tmp_path / "one"))
    done = measured(*guards.arguments_for(command, source, tmp_path / "two"))
    assert usual.code == 0
    assert done.code == {"info": 0, "check-full": 0}.get(command, 6)
    assert done.cpu < usual.cpu + 2
    assert done.peak < usual.peak + (100 << 20)
