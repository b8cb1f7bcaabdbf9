"""JSON documents from files that nobody vouches for, bounded in what they may hold and how deep they may go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openreadout import limits
from openreadout.errors import CorruptDataError


def parse_json(data: bytes, key: str, path: str) -> Any:
    """Parse a JSON document; NaN and Infinity, which some writers leave, are taken as Python does."""
    import json

    containers = data.count(b"[") + data.count(b"{")
    if containers > limits.MAX_JSON_CONTAINERS:
        raise CorruptDataError(
            f"the JSON has more than {limits.MAX_JSON_CONTAINERS} lists and objects",
            hint=limits.raised_by("MAX_JSON_CONTAINERS", containers),
            path=path,
            where=key,
        )
    try:
        document = json.loads(data)
    except RecursionError:
        raise CorruptDataError("the JSON is nested too deep", path=path, where=key) from None
    except ValueError as error:
        what = "is empty" if not data.strip() else f"is not whole JSON ({error})"
        raise CorruptDataError(f"the document {what}", path=path, where=key) from error
    if len(data) > limits.MAX_JSON_DEPTH and _depth_exceeds(document, limits.MAX_JSON_DEPTH):
        raise CorruptDataError("the JSON is nested too deep", path=path, where=key)
    return document


def _depth_exceeds(document: Any, limit: int) -> bool:
    """Whether containers are nested deeper than `limit`, found level by level without recursion."""
    level = [document]
    for _ in range(limit):
        level = [
            child for node in level for child in _children(node) if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _children(node: Any) -> Sequence[Any]:
    return list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else ()
