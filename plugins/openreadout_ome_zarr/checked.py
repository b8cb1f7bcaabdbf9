"""Values of JSON documents, taken only when they are of the kind that belongs there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

EMPTY: Mapping[str, Any] = {}
SHORT = 64
MAX_MET = 4096
_MET: dict[str, str] = {}
"""Short texts of documents, at most `MAX_MET`: thousands of fields of a plate repeat the same keys and names."""


def number(value: object) -> float | None:
    """A number as a float, infinite ones and NaN included; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def plain_number(value: object) -> float | int | None:
    """A finite number as it is written, so that whole ones stay whole; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    known = number(value)
    return value if known is not None and math.isfinite(known) else None


def whole(value: object) -> int | None:
    """An integer; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(value: object) -> str | None:
    """Text that is not empty, without lone surrogates; numbers, which some writers use as names, become text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        return None
    return _plain(value)


def _plain(value: str) -> str:
    """Text without lone surrogates; short ones that were met before are that very object."""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode("utf-8")
    if len(value) > SHORT:
        return value
    known = _MET.get(value)
    if known is None and len(_MET) < MAX_MET:
        _MET[value] = value
    return known or value


def mapping(value: object) -> Mapping[str, Any]:
    """A JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else EMPTY


def items(value: object) -> list[Any]:
    """A JSON list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def clean(value: Any) -> Any:
    """A JSON value without what strict JSON and UTF-8 lack: NaN and infinities become None.

    Nesting is bounded by the parser that made the value.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return _plain(value)
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    return value
