"""What stands at a URL: a hierarchy, told by the metadata documents at its root, or a single file."""

from __future__ import annotations

from typing import NamedTuple

from openreadout.errors import UnsupportedFeatureError
from openreadout.remote.store import DOCUMENTS, RemoteFile, RemoteStore
from openreadout.remote.urls import name_of, parent

FILE_ENDINGS = (
    ".tif", ".tiff", ".btf", ".tf2", ".tf8", ".ome", ".xml", ".ozx", ".zip", ".czi", ".nd2", ".lif", ".ims", ".h5",
)  # fmt: skip
"""Endings of names that stand for files; whatever else has no metadata documents is tried as a file last."""
_FIRST = "zarr.json"
_SECOND = (".zattrs", "attributes.json")
_THIRD = (".zgroup", ".zarray", "s0/attributes.json")
"""What tells a group without attributes, and an array; the last one a pyramid of N5 whose group has no attributes."""


class Look(NamedTuple):
    """What was found: a folder as a store with the names that are known of it, or a file."""

    url: str
    store: RemoteStore | None
    names: frozenset[str]
    file: RemoteFile | None


def look_at(url: str, *, trust_consolidated: bool = False) -> Look:
    """Look at an address with as few requests as can be: one for Zarr v3, two more at once for Zarr v2 and N5.

    Groups without attributes take another three.

    Raises
    ------
    RemoteError
        The server fails, or there is nothing.
    UsageError
        What speaks to such servers is not installed.
    """
    name = name_of(url)
    if name.lower().endswith(FILE_ENDINGS):
        return Look(url, None, frozenset(), RemoteFile(url))
    if name in DOCUMENTS:
        url = parent(url)
    store = RemoteStore(url, trust_consolidated=trust_consolidated)
    names = _names(store)
    if names & set(DOCUMENTS):
        store.use_copies()
    elif not names:
        return Look(url, None, frozenset(), RemoteFile(url))
    return Look(url, store, names, None)


def _there(store: RemoteStore, names: tuple[str, ...]) -> set[str]:
    store.expect(names)
    return {name.partition("/")[0] for name in names if store.size(name) is not None}


def _names(store: RemoteStore) -> frozenset[str]:
    listing = store.look()
    if listing is not None:
        return frozenset((*listing.folders, *listing.files))
    if store.size(_FIRST) is not None:
        return frozenset((_FIRST,))
    found = _there(store, _SECOND)
    if _SECOND[0] not in found:
        found |= _there(store, _THIRD)
    if not found:
        try:
            found.update(*store.list_dir(""))
        except UnsupportedFeatureError:
            return frozenset()
    return frozenset(found)
