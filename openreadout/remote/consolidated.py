"""Consolidated metadata: copies of all documents of a hierarchy in one of them.

Zarr v3 keeps them inline in the root's `zarr.json`, Zarr v2 in `.zmetadata`. Nothing keeps them up to date, so they are
used only when somebody says that they can be trusted, or one by one when the document that they are a copy of is older.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from openreadout.errors import CorruptDataError
from openreadout.jsons import parse_json

V2 = frozenset((".zattrs", ".zgroup", ".zarray"))
V3 = frozenset(("zarr.json",))


def copies(
    root: bytes | None, older: Callable[[], bytes | None], path: str
) -> tuple[dict[str, bytes], frozenset[str]] | None:
    """The documents by key, and the names of which every other is absent; None when there are no copies."""
    if root is not None:
        block = _object(root, "zarr.json", path).get("consolidated_metadata")
        if not isinstance(block, dict):
            return None
        return _documents(block, "zarr.json", path, lambda key: f"{key}/zarr.json"), V3 | V2
    data = older()
    if data is None:
        return None
    return _documents(_object(data, ".zmetadata", path), ".zmetadata", path, str), V2 | V3


def _object(data: bytes, where: str, path: str) -> dict[str, Any]:
    found = parse_json(data, where, path)
    if not isinstance(found, dict):
        raise CorruptDataError("the document is not a JSON object", path=path, where=where)
    return found


def _documents(
    block: dict[str, Any], where: str, path: str, key_of: Callable[[str], str]
) -> dict[str, bytes]:
    metadata = block.get("metadata")
    if not isinstance(metadata, dict):
        raise CorruptDataError(
            "the consolidated metadata hold no documents",
            path=path,
            where=where,
            hint="leave out --trust-consolidated, so that the documents themselves are read",
        )
    return {
        key_of(key.strip("/")): json.dumps(document).encode()
        for key, document in metadata.items()
        if key.strip("/")
    }
