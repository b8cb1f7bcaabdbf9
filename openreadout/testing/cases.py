"""Fixtures: a folder for each format, in it a folder for each case with `expected.json` and the data."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NO_FORMAT = ("malformed", "generators", "__pycache__")


@dataclass(frozen=True, slots=True)
class Case:
    """One fixture: the format it belongs to, its folder, the file or folder to open, and what must come out."""

    format_id: str
    name: str
    data: Path
    expected: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.format_id}/{self.name}"


def find_cases(fixtures: Path) -> list[Case]:
    """Every case below a folder of fixtures, by format and name.

    Raises
    ------
    FileNotFoundError
        A case names data that is not there.
    """
    cases = []
    for document in sorted(fixtures.glob("*/*/expected.json")):
        format_id, name = document.parts[-3:-1]
        if format_id in NO_FORMAT:
            continue
        expected = json.loads(document.read_text(encoding="utf-8"))
        data = document.parent / expected["path"]
        if not data.exists():
            raise FileNotFoundError(data)
        cases.append(Case(format_id, name, data, expected))
    return cases


def matches(expected: Any, found: Any, where: str = "") -> list[str]:
    """Compare JSON values and name each difference; keys that `expected` does not have may hold anything.

    Lists must have the same length. Numbers may differ by one part in 10^9, the error of a change of unit.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        return [
            line
            for key, value in expected.items()
            for line in (
                matches(value, found[key], f"{where}/{key}")
                if key in found
                else [f"{where}/{key}: missing"]
            )
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [
            line
            for n, pair in enumerate(zip(expected, found, strict=True))
            for line in matches(*pair, f"{where}/{n}")
        ]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (expected, found))
    if expected == found or (numbers and math.isclose(expected, found, rel_tol=1e-9)):
        return []
    return [f"{where}: {expected!r} expected, {found!r} found"]
