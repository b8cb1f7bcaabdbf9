"""Open a container: walk it, recognise its images, and put them into the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from openreadout.contracts import OpenContext, Source
from openreadout.errors import CorruptDataError, OpenReadoutError, UnsupportedFeatureError
from openreadout.model import Dataset, Finding
from openreadout.stores import DirectoryStore, Store
from openreadout_n5 import conventions
from openreadout_n5.attributes import ATTRIBUTES
from openreadout_n5.conventions import Found
from openreadout_n5.images import AxisNames, build_image
from openreadout_n5.inspection import inspect
from openreadout_n5.tree import Report, Tree, walk

FORMAT_ID = "n5"
FORMAT_NAME = "N5"
NEWEST_MAJOR = 4
_ZARR_DOCUMENTS = frozenset(("zarr.json", ".zgroup", ".zattrs", ".zarray"))


def open_source(source: Source, context: OpenContext) -> Dataset:
    """Open a container, a group or dataset inside one, its attributes.json, or a BigDataViewer XML file.

    Raises
    ------
    CorruptDataError
        Nothing in it can be read.
    StorageError
        The system refuses to read a folder or file.
    UsageError
        `context.axes` fits no dataset that leaves its axes unnamed.
    """
    names = AxisNames(context.axes)
    folder, xml_path = _locate(source)
    store = source.store or DirectoryStore(folder)
    report = Report()
    tree = walk(store, report)
    found = conventions.discover(tree, report)
    if any(image.convention == "bdv" for image in found):
        found = _with_xml(folder, xml_path, found, report)
    if not found:
        raise _nothing(source, tree, report)
    images = tuple(
        replace(
            build_image(store, image, context.lookup, names, report),
            attributes=_foreign(tree, image.path),
        )
        for image in found
    )
    names.conclude(report)
    if source.is_directory and source.names & _ZARR_DOCUMENTS:
        report.note("the folder also holds Zarr metadata; it was read as N5")
    return Dataset(
        path=source.path,
        format_id=FORMAT_ID,
        format_name=FORMAT_NAME,
        format_version=format_version(tree.root.attributes, store, report),
        images=images,
        notes=tuple(report.notes),
        findings=tuple(report.findings),
        checks=("attributes", "dataset metadata", "multiscale metadata"),
        inspect=_inspector(tree, found),
        structure=_describer(tree, found),
    )


def _inspector(tree: Tree, found: list[Found]) -> Callable[[bool], Iterable[Finding]]:
    return lambda full: inspect(tree, found, full=full)


def _describer(tree: Tree, found: list[Found]) -> Callable[[], Mapping[str, Any]]:
    def structure() -> Mapping[str, Any]:
        from openreadout_n5.structure import describe

        return describe(tree, frozenset(image.path for image in found))

    return structure


def _locate(source: Source) -> tuple[str, str | None]:
    """The folder that an input means, and the BigDataViewer XML that it is, if it is one."""
    if source.is_directory:
        return source.path, None
    if os.path.basename(source.path) == ATTRIBUTES:
        return os.path.dirname(source.path) or ".", None
    from openreadout_n5.bdv_xml import read_xml

    xml = read_xml(source.path)
    folder = os.path.join(os.path.dirname(source.path), *xml.container.split("/"))
    if not os.path.isdir(folder):
        raise CorruptDataError(
            f"the N5 container {xml.container} that it describes is not beside it",
            path=source.path,
            hint="put the container where the XML says, or open the container itself",
        )
    return folder, source.path


STRUCTURAL = frozenset(
    ("n5", "dimensions", "blockSize", "dataType", "compression", "compressionType", "id")
)
"""Attributes that tell how blocks are stored."""


def _foreign(tree: Tree, path: str) -> dict[str, Any]:
    """Attributes of an image's group or dataset, but for those that tell how blocks are stored."""
    node = tree.nodes.get(path)
    if node is None:
        return {}
    return {key: value for key, value in node.attributes.items() if key not in STRUCTURAL}


def _nothing(source: Source, tree: Tree, report: Report) -> OpenReadoutError:
    """Why not one image came out."""
    where: str | None
    broken = next((node for node in tree.nodes.values() if node.broken is not None), None)
    if broken is not None and broken.broken is not None:
        where, message = broken.key, broken.broken.message
    elif report.findings:
        where, message = report.findings[0].location, report.findings[0].message
    elif not tree.store.can_list:
        return UnsupportedFeatureError(
            "the server does not list what is in the container, and no dataset was found under the usual names",
            path=source.path,
            hint="give the address of a dataset in it, such as …/volume/s0",
            format_id=FORMAT_ID,
        )
    else:
        where, message = None, "the container holds no dataset"
    return CorruptDataError(message, path=source.path, where=where, format_id=FORMAT_ID)


def format_version(attributes: Mapping[str, Any], store: Store, report: Report) -> str:
    """The version that the root states, and what kind of store it is."""
    version = attributes.get("n5")
    if version is None:
        return f"N5 (no version stated, {store.kind} store)"
    if not isinstance(version, str) or not version[:1].isdigit() or len(version) > 40:
        report.warn("the N5 version is not a version number", ATTRIBUTES)
        return f"N5 (version not readable, {store.kind} store)"
    major = version.split(".")[0]
    if major.isascii() and major.isdigit() and int(major) > NEWEST_MAJOR:
        report.warn(
            f"N5 version {version} is newer than {NEWEST_MAJOR}; it was read as that", ATTRIBUTES
        )
    return f"{version} (N5, {store.kind} store)"


# -- BigDataViewer ---------------------------------------------------------------------------------


def _with_xml(folder: str, xml_path: str | None, found: list[Found], report: Report) -> list[Found]:
    """Lay every setup along the same time points, and add what the XML beside the container tells."""
    from openreadout_n5 import bdv

    return bdv.complete(folder, xml_path, found, report)
