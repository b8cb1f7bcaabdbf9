"""Recognise N5: attributes of a container or dataset in the folder, or datasets a few folders below it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from openreadout.contracts import DEFINITE, LIKELY, Detection, Source
from openreadout.errors import InputError
from openreadout.stores import DirectoryStore
from openreadout_n5.attributes import ATTRIBUTES, is_dataset
from openreadout_n5.tree import natural

PEEK_BYTES = 4 << 20
"""Of an attributes.json that is looked at; real ones are far smaller."""
MAX_LOOKS = 256
"""Folders below the input that are looked at before giving up."""
MAX_LOOK_DEPTH = 5
_OTHER_CONTAINERS = (".n5", ".zarr", ".git")
_GROUP_KEYS = ("multiscales", "downsamplingFactors", "pixelResolution", "scales")

Peek = Callable[[str, int], bytes | None]


def detect(source: Source) -> Detection | None:
    """Say how sure it is that a source is N5."""
    if source.is_directory:
        return _detect_folder(source)
    name = os.path.basename(source.path)
    if name == ATTRIBUTES:
        return _detect_attributes(source)
    if name.lower().endswith(".xml") and _is_bdv_xml(source.head):
        return Detection(DEFINITE, "BigDataViewer XML of an N5 container")
    return None


def _is_bdv_xml(head: bytes) -> bool:
    return b"<SpimData" in head and b"bdv.n5" in head


def _detect_attributes(source: Source) -> Detection | None:
    """The input is an attributes.json: the folder that holds it is meant."""
    attributes = _parse(source.head)
    if attributes is not None and ("n5" in attributes or is_dataset(attributes)):
        return Detection(DEFINITE, "attributes of N5")
    folder = os.path.dirname(source.path) or "."
    try:
        folders, files = DirectoryStore(folder).list_dir("")
    except InputError:
        return None

    def peek(name: str, limit: int) -> bytes | None:
        try:
            return DirectoryStore(folder).get_range(name, 0, limit)
        except InputError:
            return None

    names = frozenset((*folders, *files))
    return _detect_folder(Source(folder, True, 0, b"", names, peek))


def _parse(data: bytes | None) -> dict[str, Any] | None:
    if not data:
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _detect_folder(source: Source) -> Detection | None:
    # Not looked for among the names, of which a dataset with many blocks has more than are listed.
    head = source.peek(ATTRIBUTES, PEEK_BYTES)
    attributes = _parse(head)
    if attributes is not None and "n5" in attributes:
        return Detection(DEFINITE, "attributes.json states an N5 version")
    if attributes is not None and is_dataset(attributes):
        return Detection(DEFINITE, "attributes.json describes an N5 dataset")
    if attributes is not None and any(key in attributes for key in _GROUP_KEYS):
        return Detection(LIKELY, "attributes.json describes an N5 group")
    if _holds_dataset(source):
        return Detection(LIKELY, "the folder holds N5 datasets")
    if head is not None and attributes is None:
        return Detection(LIKELY, "the folder has an attributes.json")
    if source.path.rstrip("/\\").endswith(".n5"):
        return Detection(LIKELY, "the folder is named .n5")
    return None


def _holds_dataset(source: Source) -> bool:
    """Whether one of the first few folders below is an N5 dataset or group; containers of their own do not count."""
    return any(
        attributes is not None and ("n5" in attributes or is_dataset(attributes))
        for attributes in _nearby(source)
    )


def _nearby(source: Source) -> Iterator[dict[str, Any] | None]:
    store = source.store or DirectoryStore(source.path)
    level = _worth(source.names)
    looks = 0
    for _ in range(MAX_LOOK_DEPTH):
        deeper: list[str] = []
        for path in level:
            looks += 1
            if looks > MAX_LOOKS:
                return
            yield _parse(source.peek(f"{path}/{ATTRIBUTES}", PEEK_BYTES))
            try:
                folders = store.list_dir(path)[0] if len(deeper) < MAX_LOOKS else []
            except InputError:
                folders = []
            deeper += [f"{path}/{name}" for name in _worth(folders)]
        level = deeper[:MAX_LOOKS]


def _worth(names: Any) -> list[str]:
    """Names that may be folders of this container, in natural order."""
    kept = (
        name
        for name in names
        if not name.startswith(".") and not name.lower().endswith(_OTHER_CONTAINERS)
    )
    return sorted(kept, key=natural)[:MAX_LOOKS]
