"""The XML that BigDataViewer and BigStitcher keep beside a container: setups, time points, what is missing."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from openreadout.errors import CorruptDataError
from openreadout.limits import MIB
from openreadout.stores import DirectoryStore, join_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lxml.etree import _Element

MAX_BDV_XML_BYTES = 128 * MIB
"""Registrations of thousands of views stay well below."""
MAX_TIMEPOINTS = 100_000
MAX_SETUPS = 100_000
ATTRIBUTES = ("channel", "tile", "angle", "illumination")


class Setup(NamedTuple):
    """One ViewSetup: `voxel_size` x, y, z in `unit`; `attributes` the ids of channel, tile, angle, illumination."""

    name: str | None
    voxel_size: tuple[float, ...] | None
    unit: str | None
    attributes: dict[str, int]
    channel_name: str | None


class BdvXml(NamedTuple):
    """What the XML says: the container's name beside it, setups by id, time points, views declared missing."""

    file: str
    container: str
    setups: dict[int, Setup]
    timepoints: tuple[int, ...]
    missing: frozenset[tuple[int, int]]
    """Pairs of time point and setup."""


def beside(container: str) -> str | None:
    """The XML file beside a container that may describe it: of the same stem, or dataset.xml."""
    folder, name = os.path.split(os.path.abspath(container))
    stem = name.removesuffix(".n5")
    for candidate in dict.fromkeys((f"{stem}.xml", f"{name}.xml", "dataset.xml")):
        path = os.path.join(folder, candidate)
        if os.path.isfile(path):
            return path
    return None


def read_xml(path: str) -> BdvXml:
    """Parse a BigDataViewer XML file; entities, DTDs and the network are off.

    Raises
    ------
    CorruptDataError
        Not well-formed, too large, not SpimData, or it points out of its own folder.
    StorageError
        It cannot be read.
    """
    from lxml import etree

    folder, name = os.path.split(path)
    data = DirectoryStore(folder or ".").get(name, MAX_BDV_XML_BYTES)
    if data is None:
        raise CorruptDataError("the file is gone", where=name)
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise CorruptDataError(f"not well-formed XML ({error})", where=name) from error
    loader = root.find("SequenceDescription/ImageLoader")
    if root.tag != "SpimData" or loader is None or loader.get("format") != "bdv.n5":
        raise CorruptDataError("not a BigDataViewer description of an N5 container", where=name)
    return BdvXml(
        path,
        _container(root, loader, name),
        dict(_setups(root)),
        _timepoints(root.find("SequenceDescription/Timepoints"), name),
        frozenset(_missing(root)),
    )


def _container(root: _Element, loader: _Element, name: str) -> str:
    """The container's path below the XML's folder, `/` between names."""
    node = loader.find("n5")
    base = root.find("BasePath")
    if node is None or not (node.text or "").strip():
        raise CorruptDataError("ImageLoader names no N5 container", where=name)
    text = (node.text or "").strip().replace("\\", "/")
    if node.get("type") == "absolute":
        # Where it was on another machine says nothing here; a container of that name beside the XML is meant.
        return join_key(text.rstrip("/").rpartition("/")[2])
    before = (base.text or "").strip() if base is not None else ""
    return join_key(before, text)


def _integer(text: str | None) -> int | None:
    word = (text or "").strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) < 10 else None


def _words(node: _Element | None, tag: str) -> str | None:
    text = node.findtext(tag) if node is not None else None
    return text.strip()[:1000] or None if text else None


def _numbers(text: str | None) -> tuple[float, ...] | None:
    words = (text or "").split()
    try:
        found = tuple(float(word) for word in words)
    except ValueError:
        return None
    return found if len(found) == 3 and all(math.isfinite(n) and n > 0 for n in found) else None


def _setups(root: _Element) -> Iterator[tuple[int, Setup]]:
    channel_names = {
        _integer(entry.findtext("id")): _words(entry, "name")
        for entry in root.findall(
            "SequenceDescription/ViewSetups/Attributes[@name='channel']/Channel"
        )
    }
    found = root.findall("SequenceDescription/ViewSetups/ViewSetup")[:MAX_SETUPS]
    for node in found:
        number = _integer(node.findtext("id"))
        if number is None:
            continue
        ids = {key: _integer(node.findtext(f"attributes/{key}")) for key in ATTRIBUTES}
        voxel = node.find("voxelSize")
        channel = ids["channel"]
        yield (
            number,
            Setup(
                _words(node, "name"),
                _numbers(_words(voxel, "size")),
                _words(voxel, "unit"),
                {key: value for key, value in ids.items() if value is not None},
                None if channel is None else channel_names.get(channel),
            ),
        )


def _timepoints(node: _Element | None, name: str) -> tuple[int, ...]:
    """Ids of the time points: a range, a list such as `0,2,5-9:2`, or one without numbers (a single one)."""
    if node is None:
        return ()
    if node.get("type") == "range":
        first, last = _integer(node.findtext("first")), _integer(node.findtext("last"))
        spans = [range(first, last + 1)] if first is not None and last is not None else []
    else:
        pattern = node.findtext("integerpattern") or ""
        spans = [span for part in pattern[:100_000].split(",") if (span := _span(part)) is not None]
    if sum(len(span) for span in spans) > MAX_TIMEPOINTS:
        raise CorruptDataError(f"more than {MAX_TIMEPOINTS} time points", where=name)
    return tuple(sorted({t for span in spans for t in span}))


def _span(part: str) -> range | None:
    """`5`, `0-9` or `0-9:2`."""
    bounds, _, step = part.partition(":")
    low, dash, high = bounds.partition("-")
    first, last = _integer(low), _integer(high if dash else low)
    by = _integer(step) if step else 1
    return None if first is None or last is None or not by else range(first, last + 1, by)


def _missing(root: _Element) -> Iterator[tuple[int, int]]:
    for node in root.findall("SequenceDescription/MissingViews/MissingView"):
        t, setup = _integer(node.get("timepoint")), _integer(node.get("setup"))
        if t is not None and setup is not None:
            yield t, setup


def extra_of(setup: Setup) -> dict[str, Any]:
    """What goes into an image's `extra`."""
    return dict(setup.attributes)
