"""Opens a source as a store and its images as a data set."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from openreadout.errors import UnsupportedFeatureError
from openreadout.model import Dataset
from openreadout.stores import DirectoryStore
from openreadout_ome_zarr.detect import DOCUMENTS, is_document
from openreadout_ome_zarr.layouts import Found, Opening

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from openreadout.contracts import OpenContext, Source
    from openreadout.model import Finding
    from openreadout.stores import Store
    from openreadout.zips import ZipStore


def open_source(source: Source, context: OpenContext) -> Dataset:
    """Open a directory, the path of its root document, or a zip archive.

    Raises
    ------
    CorruptDataError
        The archive or the only image is damaged.
    UnsupportedFeatureError
        There is no NGFF metadata, or a feature of zip or Zarr that is not read.
    StorageError
        The system refuses to read.
    """
    store = _open_store(source)
    try:
        opening = Opening(store, context.lookup, context.axes, older=context.older)
        found = opening.run()
    except BaseException:
        store.close()
        raise
    return _dataset(source.path, store, found)


def _dataset(path: str, store: Store, found: Found) -> Dataset:
    def structure() -> Mapping[str, Any]:
        from openreadout_ome_zarr.structure import describe

        return describe(store)

    def inspect(full: bool) -> Iterable[Finding]:
        from openreadout_ome_zarr.rules import inspect_groups

        return inspect_groups(store, found.images, found.zarr_format)

    version = found.version or "version unknown"
    return Dataset(
        path=path,
        format_id="ome-zarr",
        format_name="OME-Zarr",
        format_version=f"{version} (NGFF, Zarr v{found.zarr_format}, {store.kind} store)",
        images=found.images,
        plate=found.plate,
        notes=found.notes,
        findings=found.findings,
        checks=("NGFF metadata",),
        inspect=inspect,
        structure=structure,
        source_xml=found.source_xml,
        release=store.close,
    )


def _open_store(source: Source) -> Store:
    if source.store is not None:
        return source.store
    if source.is_directory:
        return DirectoryStore(source.path)
    if is_document(source.path):
        return DirectoryStore(os.path.dirname(source.path) or ".")
    from openreadout.zips import ZipStore

    store = ZipStore(source.path, file=source.file)
    try:
        return store.below(_top_folder(store))
    except BaseException:
        store.close()
        raise


def _top_folder(store: ZipStore) -> str:
    """The folder of the archive that holds the hierarchy's root document, `""` for the archive's own root.

    Raises
    ------
    UnsupportedFeatureError
        Several hierarchies stand side by side.
    """
    roots: set[tuple[str, ...]] = set()
    for key in store.names():
        folder, _, name = key.rpartition("/")
        if name in DOCUMENTS:
            parts = tuple(folder.split("/")) if folder else ()
            if not parts or not parts[0].startswith(("__MACOSX", ".")):
                roots.add(parts)
    least = min((len(parts) for parts in roots), default=0)
    tops = sorted("/".join(parts) for parts in roots if len(parts) == least)
    if len(tops) > 1:
        raise UnsupportedFeatureError(
            f"the archive holds several Zarr hierarchies: {', '.join(tops[:5])}",
            path=store.path,
            hint="unpack it and give one of them",
        )
    return tops[0] if tops else ""
