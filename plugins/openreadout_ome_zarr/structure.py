"""The tree of groups and arrays of a store, for people to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openreadout.errors import InputError
from openreadout_ome_zarr.arrays import load_array
from openreadout_ome_zarr.checked import clean, items, mapping
from openreadout_ome_zarr.documents import Documents, Group, key_of

if TYPE_CHECKING:
    from openreadout.codecs import CodecFactory
    from openreadout.stores import Store

MAX_NODES = 50_000
"""Groups and arrays that are shown."""
MAX_DEPTH = 32
KINDS = (
    ("image-label", "label"),
    ("multiscales", "image"),
    ("plate", "plate"),
    ("well", "well"),
    ("labels", "labels"),
    ("bioformats2raw.layout", "collection"),
    ("series", "series"),
)


def describe(store: Store) -> dict[str, Any]:
    """The hierarchy as nested JSON objects of `kind`, `path` and `children`; arrays tell how they are stored."""
    return _Walk(store).node("", "/", 0) or {"kind": "group", "path": "/"}


class _Walk:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.documents = Documents(store)
        self.seen = 0
        self.named: dict[str, set[str]] = {}
        """Names below a path that metadata mention, for servers that do not list what is there."""

    def node(self, path: str, name: str, depth: int) -> dict[str, Any] | None:
        """One group or array; None for a folder that is neither."""
        self.seen += 1
        try:
            key_of(path)
            group = self.documents.group(path)
            if group is None and self._is_array(path):
                return self._array(path, name)
        except InputError as error:
            return {
                "kind": "damaged",
                "name": clean(name),
                "path": path or "/",
                "error": error.message,
            }
        if group is not None and not self.store.can_list:
            self._remember(group)
        children = self._children(path, depth)
        if group is None and not children and depth:
            return None
        body: dict[str, Any] = {"kind": _kind(group), "name": clean(name), "path": path or "/"}
        if children:
            body["children"] = children
        if self.seen >= MAX_NODES or not self.store.can_list:
            body["truncated"] = True  # there may be more than is shown
        return body

    def _names(self, path: str) -> list[str]:
        if self.store.can_list:
            return self.store.list_dir(path)[0]
        return sorted(self.named.get(path, ()))

    def _remember(self, group: Group) -> None:
        """Note what a group's metadata mention below it."""
        ngff = group.ngff
        below = [("multiscales", "datasets"), ("well", "images"), ("plate", "wells")]
        mentioned: list[Any] = ["labels"] if "multiscales" in ngff else []
        for key, member in below:
            blocks = ngff.get(key)
            for block in blocks if isinstance(blocks, list) else (blocks,):
                mentioned += [
                    mapping(item).get("path") for item in items(mapping(block).get(member))
                ]
        for key in ("labels", "series"):
            mentioned += items(ngff.get(key))
        for text in mentioned:
            path = group.path
            for name in str(text).split("/") if isinstance(text, str) else ():
                if name in ("", ".", ".."):
                    break
                self.named.setdefault(path, set()).add(name)
                path = f"{path}/{name}" if path else name

    def _is_array(self, path: str) -> bool:
        return any(
            self.store.size(key_of(path, name)) is not None for name in (".zarray", "zarr.json")
        )

    def _array(self, path: str, name: str) -> dict[str, Any]:
        array = load_array(self.store, path, _no_codecs).array
        layout = array.layout
        return {
            "kind": "array",
            "name": clean(name),
            "path": path or "/",
            "shape": list(array.shape),
            "dtype": array.dtype,
            "chunk": list(layout.chunk),
            "shard": None if layout.shard is None else list(layout.shard),
            "codecs": [spec.name for spec in layout.codecs],
        }

    def _children(self, path: str, depth: int) -> list[dict[str, Any]]:
        found = []
        if depth < MAX_DEPTH:
            for name in self._names(path):
                if self.seen >= MAX_NODES:
                    break
                child = self.node(f"{path}/{name}" if path else name, name, depth + 1)
                if child is not None:
                    found.append(child)
        return found


def _no_codecs(name: str) -> CodecFactory:
    raise AssertionError(name)  # no chunk is read here


def _kind(group: Group | None) -> str:
    for key, kind in KINDS:
        if group is not None and key in group.ngff:
            return kind
    return "group"
