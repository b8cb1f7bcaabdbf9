"""Whether a folder, a zip archive or a single document is OME-Zarr: by what they hold, never by their name's ending."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from openreadout import limits
from openreadout.contracts import DEFINITE, LIKELY, Detection
from openreadout.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from openreadout.contracts import Source

GROUP_DOCUMENTS = ("zarr.json", ".zattrs", ".zgroup")
DOCUMENTS = (*GROUP_DOCUMENTS, ".zarray")
NGFF_KEYS = (b'"multiscales"', b'"plate"', b'"well"', b'"bioformats2raw.layout"')
PEEK_BYTES = 16 * MIB
"""What is looked at of one document; those of the largest public plates are below 1 MiB."""

_LOCAL_HEADER = b"PK\x03\x04"


def detect(source: Source) -> Detection | None:
    """Say how sure it is that `source` is OME-Zarr; None when nothing speaks for it."""
    if source.is_directory:
        return _folder(source.names, source.peek)
    if source.head.startswith(_LOCAL_HEADER):
        named = _zip_names_documents(source.head)
        return Detection(DEFINITE, "a zip archive with Zarr documents") if named else None
    return _document(source)


def _folder(names: frozenset[str], peek: Callable[[str, int], bytes | None]) -> Detection | None:
    # Of a folder with very many entries only some names are known; there each document is asked for.
    partly = len(names) >= limits.MAX_ROOT_NAMES
    there = [n for n in DOCUMENTS if n in names or (partly and peek(n, 1) is not None)]
    if not there:
        return None
    for name in GROUP_DOCUMENTS:
        if name in there and mentions_ngff(peek(name, PEEK_BYTES)):
            return Detection(DEFINITE, f"{name} holds NGFF metadata")
    return Detection(LIKELY, f"a Zarr directory ({there[0]})")


def mentions_ngff(data: bytes | None) -> bool:
    """Whether a metadata document has one of the keys that make a group an image or a collection of images."""
    return data is not None and any(key in data for key in NGFF_KEYS)


def _zip_names_documents(head: bytes) -> bool:
    """Whether a member in the archive's head is a Zarr document, told by the names in the local headers."""
    at = head.find(_LOCAL_HEADER)
    while at >= 0:
        length = int.from_bytes(head[at + 26 : at + 28], "little")
        name = head[at + 30 : at + 30 + length].replace(b"\\", b"/")
        if name.rpartition(b"/")[2].decode("latin-1") in DOCUMENTS:
            return True
        at = head.find(_LOCAL_HEADER, at + 4)
    return False


def is_document(path: str) -> bool:
    """Whether a path is that of a group document, which stands for the folder that it lies in."""
    return os.path.basename(path) in GROUP_DOCUMENTS


def _document(source: Source) -> Detection | None:
    """A document stands for its folder, whose other documents may hold the NGFF metadata."""
    if not is_document(source.path) or b'"zarr_format"' not in source.head:
        return _attributes(source)
    from openreadout.errors import InputError
    from openreadout.stores import DirectoryStore

    store = DirectoryStore(os.path.dirname(source.path) or ".")

    def peek(name: str, limit: int) -> bytes | None:
        try:
            return store.get_range(name, 0, limit)
        except InputError:
            return None

    return _folder(frozenset(GROUP_DOCUMENTS), peek)


def _attributes(source: Source) -> Detection | None:
    """`.zattrs` holds nothing but the attributes, so only NGFF keys tell that it is ours."""
    if is_document(source.path) and mentions_ngff(source.head):
        return Detection(DEFINITE, f"{os.path.basename(source.path)} holds NGFF metadata")
    return None
