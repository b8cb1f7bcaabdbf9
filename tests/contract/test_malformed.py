"""Damaged fixtures: the exit code, what is said, and that nothing escapes as a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "malformed"
CASES = sorted(FOLDER.glob("*/expected.json"))
COMMANDS = {"info": ["info"], "check": ["check"], "check_planes": ["check", "--planes"]}


@pytest.mark.parametrize("document", [pytest.param(p, id=p.parent.name) for p in CASES])
@pytest.mark.parametrize("command", COMMANDS)
def test_damage_gives_its_exit_code(document, command, openreadout):
    expected = json.loads(document.read_text(encoding="utf-8"))
    allowed = expected["exit"][command]
    path = document.parent / expected["path"]
    run = openreadout(*COMMANDS[command], "--json", path)
    shown = f"{run.stdout}\n{run.stderr}"
    assert run.returncode in (allowed if isinstance(allowed, list) else [allowed]), shown
    assert "Traceback" not in shown
    envelope = json.loads(run.stdout)
    if not envelope["ok"]:
        error = envelope["error"]
        assert error["exit_code"] == run.returncode
        assert error["message"]
        assert error["hint"]
        assert error["path"] == str(path)
    if command == "check_planes":
        assert expected["says"] in shown
        if expected["findings"]:
            found = {finding["code"] for finding in envelope["data"]["findings"]}
            assert set(expected["findings"]) <= found


def test_there_are_damaged_fixtures_of_every_kind():
    names = {path.parent.name.split("-")[0] for path in CASES}
    assert names >= {"zarr", "shard", "zip", "n5", "tiff", "empty"}
