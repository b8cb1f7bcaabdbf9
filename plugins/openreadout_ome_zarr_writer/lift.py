"""Zarr v3 and NGFF 0.5 documents beside those of Zarr v2 or N5, over arrays that stay as they are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openreadout.codecs import ITEM_BYTES, CodecSpec
from openreadout.errors import (
    CorruptDataError,
    StorageError,
    UnsupportedFeatureError,
    storage_error,
)
from openreadout.stores import join_key, read_json
from openreadout.system import sync_file, sync_folder
from openreadout_ome_zarr_writer import layout, lift_attributes, lift_codecs, ngff
from openreadout_ome_zarr_writer.lift_codecs import EXPORT_A_COPY
from openreadout_ome_zarr_writer.outputs import Folder

if TYPE_CHECKING:
    from openreadout.contracts import LiftedImage, LiftPlan
    from openreadout.encoded import EncodedArray
    from openreadout.stores import Store

DOCUMENT = "zarr.json"
V2_DOCUMENTS = (".zarray", ".zattrs", ".zgroup", ".zmetadata")
N5_DOCUMENTS = ("attributes.json",)


class OmeZarrLift:
    """The documents of one container; implements `openreadout.contracts.Lift`."""

    def __init__(self, plan: LiftPlan) -> None:
        self._store = plan.store
        self._bodies = _Documents(plan).all()
        self._n5 = any(_is_n5(level.array) for image in plan.images for level in image.levels)
        self._before: dict[str, bytes | None] = {}
        self.notes = _notes(plan)

    @property
    def documents(self) -> tuple[str, ...]:
        return tuple(self._bodies)

    @property
    def older(self) -> tuple[str, ...]:
        names = N5_DOCUMENTS if self._n5 else V2_DOCUMENTS
        folders = [key.removesuffix(DOCUMENT).removesuffix("/") for key in self._bodies]
        keys = [join_key(folder, name) for folder in folders for name in names]
        return tuple(key for key in keys if self._store.size(key) is not None)

    def write(self, *, sync: bool) -> None:
        folder = Folder(self._store.path)
        for key in self._bodies:
            self._refuse_links(key)
        for key in reversed(self._bodies):
            self._before[key] = self._store.get(key)
            folder.put(key, self._bodies[key])
            if sync:
                self._sync(key)

    def undo(self) -> None:
        """Put everything back, the root first, so that it is never a root without the rest."""
        folder = Folder(self._store.path)
        for key, data in reversed(self._before.items()):
            with contextlib.suppress(FileNotFoundError):
                self._remove(f"{self._file(key)}.part")
            if data is None:
                with contextlib.suppress(FileNotFoundError):
                    self._remove(self._file(key))
            elif self._store.get(key) != data:
                folder.put(key, data)
        self._before.clear()

    def drop_older(self) -> None:
        for key in reversed(self.older):
            with contextlib.suppress(FileNotFoundError):
                self._remove(self._file(key))

    def _file(self, key: str) -> str:
        return os.path.join(self._store.path, *key.split("/"))

    def _remove(self, file: str) -> None:
        try:
            os.unlink(file)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(error, file) from error

    def _refuse_links(self, key: str) -> None:
        """A folder that is a link elsewhere belongs to something else, which must not be changed."""
        root = os.path.realpath(self._store.path)
        folder = os.path.realpath(os.path.dirname(self._file(key)))
        if folder != root and not folder.startswith(root.rstrip(os.sep) + os.sep):
            raise StorageError(
                f"{self._file(key)}: the folder is a link that leads out of the data set",
                path=self._store.path,
                hint=EXPORT_A_COPY,
            )

    def _sync(self, key: str) -> None:
        file = self._file(key)
        try:
            fd = os.open(file, os.O_RDWR)
            try:
                sync_file(fd)
            finally:
                os.close(fd)
            sync_folder(os.path.dirname(file))
        except OSError as error:
            raise storage_error(error, file) from error


def _is_n5(array: EncodedArray) -> bool:
    return "attributes.json" in array.documents[:1]


def _notes(plan: LiftPlan) -> tuple[str, ...]:
    """What other readers will make of it."""
    notes = []
    names = {
        name
        for image in plan.images
        for level in image.levels
        for name in lift_codecs.inner_names(_chain(level.array))
    }
    foreign = sorted(n for n in names if n == "n5_default" or n.startswith(("n5.", "numcodecs.")))
    if foreign:
        notes.append(f"few other readers have the codecs {', '.join(foreign)}")
    orders = {tuple(axis["name"] for axis in image.axes) for image in plan.images}
    for order in sorted(orders):
        space = [name for name in order if name in "zyx"]
        if space != sorted(space, reverse=True):
            notes.append(f"the axes are {', '.join(order)}, where NGFF recommends z, y, x")
    return tuple(notes)


def _chain(array: EncodedArray) -> list[CodecSpec]:
    return lift_codecs.from_n5(array) if _is_n5(array) else lift_codecs.from_v2(array)


class _Documents:
    """Makes the documents of all nodes."""

    def __init__(self, plan: LiftPlan) -> None:
        self._plan = plan
        self._store: Store = plan.store
        self._by_group: dict[str, list[LiftedImage]] = {}
        for image in plan.images:
            lift_attributes.check_axes(image)
            self._by_group.setdefault(image.group, []).append(image)

    def all(self) -> dict[str, bytes]:
        """Documents by key, from the root down."""
        arrays = self._arrays()
        groups = self._groups(arrays)
        found = {path: layout.group_v3(attributes) for path, attributes in groups.items()}
        bodies = {join_key(path, DOCUMENT): found[path] for path in found}
        bodies |= {join_key(path, DOCUMENT): body for path, body in arrays.items()}
        ordered = sorted(bodies, key=lambda key: (key.count("/"), key))
        return {key: layout.encode_json(lift_attributes.strict(bodies[key])) for key in ordered}

    def _attributes(self, path: str, name: str) -> Mapping[str, Any]:
        key = join_key(path, name)
        value = read_json(self._store, key)
        if value is not None and not isinstance(value, dict):
            raise CorruptDataError("the document is not a JSON object", where=key)
        return value or {}

    # -- arrays -------------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for image in self._plan.images:
            names = [axis["name"] for axis in image.axes]
            for level in image.levels:
                if level.array.path not in found:
                    found[level.array.path] = self._array(level.array, names)
        for path in found:
            inside = next((other for other in found if _holds(path, other)), None)
            if inside is not None or not path:
                what = f"holds {inside}" if inside else "has no group around it"
                raise UnsupportedFeatureError(
                    f"{path or '/'}: the array {what}, which a Zarr image cannot have",
                    hint=EXPORT_A_COPY,
                )
        return found

    def _array(self, array: EncodedArray, names: list[str]) -> dict[str, Any]:
        if array.dtype not in ITEM_BYTES:
            raise UnsupportedFeatureError(
                f"{array.path}: data type {array.dtype} is not one of pixels",
                hint="leave the image out with --image",
            )
        n5 = _is_n5(array)
        if n5:
            attributes = self._attributes(array.path, "attributes.json")
            attributes = lift_attributes.from_n5(attributes, group=False)
        else:
            attributes = self._attributes(array.path, ".zattrs")
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(array.shape),
            "data_type": array.dtype,
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": list(array.stored_chunk)},
            },
            "chunk_key_encoding": {
                "name": "v2",
                "configuration": {"separator": array.keys.separator},
            },
            "fill_value": layout.fill_v3(_typed(array.fill_value, array.dtype)),
            "codecs": [lift_codecs.as_json(spec) for spec in _chain(array)],
            "attributes": dict(attributes),
            "dimension_names": names,
        }

    # -- groups -------------------------------------------------------------------------------------

    def _groups(self, arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        paths = {"", *self._plan.groups, *self._by_group}
        for path in [*paths, *arrays]:
            while path:
                path = path.rpartition("/")[0]
                paths.add(path)
        n5 = any(_is_n5(level.array) for image in self._plan.images for level in image.levels)
        make = self._n5_group if n5 else self._v2_group
        return {path: make(path) for path in paths - set(arrays)}

    def _v2_group(self, path: str) -> dict[str, Any]:
        attributes = self._attributes(path, ".zattrs")
        return lift_attributes.from_v2(path, attributes, self._by_group.get(path, []))

    def _n5_group(self, path: str) -> dict[str, Any]:
        """An image group has its image; the root lists all, so that the whole container is one data set."""
        kept = lift_attributes.from_n5(self._attributes(path, "attributes.json"), group=True)
        images = self._by_group.get(path, []) if path else list(self._plan.images)
        if not images:
            return kept
        body: dict[str, Any] = {
            "multiscales": [lift_attributes.multiscale(image, path, {}) for image in images]
        }
        carried: dict[str, Any] = {}
        if len(images) == 1:
            body |= lift_attributes.omero(images[0])
            carried = {"openreadout": ngff.carried(images[0].planned)}
        return {"ome": {"version": lift_attributes.VERSION, **body}, **carried, **kept}


def _holds(path: str, other: str) -> bool:
    return other != path and (not path or other.startswith(f"{path}/"))


def _typed(value: Any, dtype: str) -> Any:
    """The fill value as JSON has it for the type: 0 stands for false, and for 0.0."""
    if dtype == "bool":
        return bool(value)
    if dtype.startswith("complex"):
        return complex(value)
    return float(value) if dtype.startswith("float") else value
