"""Documents of many images asked for at once, before each is opened: far away, it is the wait that takes time.

Nothing is decided here. What cannot be read is passed over, and whoever opens it meets the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from openreadout.errors import InputError
from openreadout.stores import FarStore, batches, expect
from openreadout_ome_zarr.arrays import parse_v2
from openreadout_ome_zarr.checked import items, mapping, text, whole
from openreadout_ome_zarr.documents import json_object, key_of
from openreadout_ome_zarr.ngff import parse_multiscales

if TYPE_CHECKING:
    from openreadout.stores import Store
    from openreadout_ome_zarr.documents import Documents, Group


class Ahead:
    """Asks for what is opened next, kind by kind; does nothing for a store in which a look costs nothing."""

    def __init__(self, store: Store, documents: Documents) -> None:
        self._store = store
        self._documents = documents

    @property
    def _idle(self) -> bool:
        return not isinstance(self._store, FarStore)

    def wells(self, paths: Iterable[str]) -> None:
        """The documents of wells, of their fields and of the arrays of those."""
        if self._idle:
            return
        paths = list(paths)
        self._documents.expect(paths)
        fields = [field for group in self._groups(paths) for field in _fields(group)]
        for batch in batches(fields):
            self.images(batch)

    def images(self, paths: Iterable[str], *more: str) -> None:
        """The documents of images and of their arrays, and where the chunks of those lie; and `more` keys."""
        if self._idle:
            return
        paths = list(paths)
        self._documents.expect(paths)
        arrays = [array for group in self._groups(paths) for array in _arrays(group)]
        beside = [key for path in paths for key in self._documents.keys(f"{path}/labels")]
        name = "zarr.json" if self._documents.preferred == 3 else ".zarray"
        expect(self._store, [*more, *beside, *(f"{array}/{name}" for array in arrays)])
        if name == ".zarray":
            expect(self._store, [key for array in arrays for key in self._first_chunk(array)])

    def _groups(self, paths: Iterable[str]) -> Iterator[Group]:
        for path in paths:
            try:
                group = self._documents.group(path)
            except InputError:
                continue
            if group is not None:
                yield group

    def _first_chunk(self, array: str) -> Iterator[str]:
        """The key that tells under which separator an array of Zarr v2 keeps its chunks."""
        try:
            document = json_object(self._store, f"{array}/.zarray")
            keys = None if document is None else parse_v2(document).keys
        except InputError:
            return
        if keys is not None and keys.ndim > 1:
            yield f"{array}/{keys.key((0,) * keys.ndim)}"


def _fields(group: Group) -> Iterator[str]:
    for entry in items(mapping(group.ngff.get("well")).get("images")):
        value = mapping(entry).get("path")
        name = text(value) if whole(value) is None else str(value)
        if name is not None:
            yield from _key(group.path, name)


def _arrays(group: Group) -> Iterator[str]:
    """Paths of the arrays that a group's multiscales name."""
    if "multiscales" not in group.ngff:
        return
    try:
        entries = parse_multiscales(group.ngff)
    except InputError:
        return
    for entry in entries:
        for dataset in entry.datasets:
            if dataset.path:
                yield from _key(group.path, dataset.path)


def _key(*parts: str) -> Iterator[str]:
    try:
        yield key_of(*parts)
    except InputError:
        return
