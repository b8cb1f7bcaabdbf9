"""The metadata documents of Zarr groups and arrays, each read once.

Zarr v2 keeps `.zgroup` or `.zarray` beside `.zattrs`, Zarr v3 one `zarr.json`. A folder may hold both, after a writer
of one version ran over the other's output; the one with NGFF metadata counts then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from openreadout.errors import CorruptDataError, OpenReadoutError
from openreadout.stores import expect, join_key, read_json
from openreadout_ome_zarr.checked import EMPTY, mapping

if TYPE_CHECKING:
    from collections.abc import Iterable

    from openreadout.stores import Store

GROUP_KEYS = ("multiscales", "plate", "well", "bioformats2raw.layout", "labels", "series")
"""Keys whose presence makes a group's attributes NGFF metadata."""


class Group(NamedTuple):
    """A Zarr group and its NGFF metadata.

    `ngff` is where NGFF keeps its keys: `attributes` itself in Zarr v2, `attributes["ome"]` in v3. `outside` tells that
    they were found where the other Zarr version keeps them. `document` is the key that they were read from.
    """

    path: str
    zarr_format: int
    attributes: Mapping[str, Any]
    ngff: Mapping[str, Any]
    document: str
    outside: bool = False


def key_of(*parts: str) -> str:
    """Join the parts of a key; raises `CorruptDataError` for one that leaves the store or is no file name at all."""
    key = join_key(*parts)
    try:
        key.encode("utf-8")
    except UnicodeEncodeError as error:
        raise CorruptDataError(f"the path {key!r} is not text") from error
    return key


class Documents:
    """Reads groups of one store; `preferred` is the Zarr version whose documents are tried first.

    Where a server does not tell all names, those of the root's own version alone are tried.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.preferred = 3
        self.settled = False
        """Whether `preferred` is the version of the root, and no guess."""
        self._groups: dict[str, Group | None] = {}

    def group(self, path: str) -> Group | None:
        """The group at a path, or None when no document says that there is one.

        Raises
        ------
        CorruptDataError
            A document is not a JSON object.
        StorageError
            The system refuses to read a document.
        """
        if path not in self._groups:
            self._groups[path] = self._read(path)
        return self._groups[path]

    def keys(self, path: str) -> list[str]:
        """The documents that are asked for a group, where each costs a request."""
        name = "zarr.json" if self.preferred == 3 else ".zattrs"
        try:
            return [key_of(path, name)]
        except CorruptDataError:
            return []  # whoever opens the path says so

    def expect(self, paths: Iterable[str]) -> None:
        """Tell the store that the groups at these paths are opened next."""
        expect(self.store, [key for path in paths for key in self.keys(path)])

    def attributes(self, path: str) -> Group | None:
        """`group` for whoever wants attributes: a group of Zarr v2 without any need not be told from none."""
        if self.preferred == 2 and self.settled and not self.store.can_walk:
            return self.group(path) if self.store.size(join_key(path, ".zattrs")) else None
        return self.group(path)

    def _read(self, path: str) -> Group | None:
        order: tuple[int, ...] = (3, 2) if self.preferred == 3 else (2, 3)
        if self.settled and not self.store.can_walk:
            order = order[:1]  # each document that is not there costs a request
        found = []
        failed: OpenReadoutError | None = None
        for version in order:
            try:
                group = _read_v3(self.store, path) if version == 3 else _read_v2(self.store, path)
            except CorruptDataError as error:
                failed = failed or error
                continue
            if group is not None:
                if any(key in group.ngff for key in GROUP_KEYS):
                    return group
                found.append(group)
        if found:
            return found[0]
        if failed is not None:
            raise failed
        return None


def json_object(store: Store, key: str) -> Mapping[str, Any] | None:
    """A document that must be a JSON object; None when it is absent."""
    document = read_json(store, key)
    if document is None:
        # A document may hold the word null, which is not the same as no document.
        if store.size(key) is None:
            return None
    elif isinstance(document, dict):
        return document
    raise CorruptDataError("the document is not a JSON object", path=store.path, where=key)


def _read_v3(store: Store, path: str) -> Group | None:
    key = join_key(path, "zarr.json")
    document = json_object(store, key)
    if document is None or document.get("node_type", "group") != "group":
        return None
    attributes = mapping(document.get("attributes"))
    ome = attributes.get("ome")
    if isinstance(ome, dict):
        return Group(path, 3, attributes, ome, key)
    outside = any(name in attributes for name in GROUP_KEYS)
    return Group(path, 3, attributes, attributes if outside else EMPTY, key, outside)


def _read_v2(store: Store, path: str) -> Group | None:
    key = join_key(path, ".zattrs")
    attributes = json_object(store, key)
    if attributes is None:
        there = store.size(join_key(path, ".zgroup")) is not None
        return Group(path, 2, EMPTY, EMPTY, key) if there else None
    ome = attributes.get("ome")
    inside = isinstance(ome, dict) and not any(name in attributes for name in GROUP_KEYS)
    return Group(path, 2, attributes, mapping(ome) if inside else attributes, key, inside)
