"""Walk a container: every group and dataset below a root, breadth first and bounded."""

from __future__ import annotations

import itertools
import os
import re
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from openreadout import limits
from openreadout.errors import (
    CorruptDataError,
    FileError,
    InputError,
    OpenReadoutError,
)
from openreadout.model import Finding
from openreadout.stores import FarStore, Store, expect, join_key, read_json
from openreadout_n5.attributes import ATTRIBUTES, DatasetInfo, is_dataset, parse_dataset

MAX_SERIES = 10_000
"""Members of one numbered series that are looked for where a server does not list them."""
MAX_DEPTH = 32
"""Groups within groups."""
MAX_MESSAGES = 200
"""Findings of one kind about a container's metadata; a damaged tree repeats itself."""

_DIGITS = re.compile(r"(\d+)")


class Report:
    """Notes and findings that come up while the metadata is read."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.findings: list[Finding] = []

    def note(self, text: str) -> None:
        """Say something once."""
        if text not in self.notes and len(self.notes) < MAX_MESSAGES:
            self.notes.append(text)

    def find(self, code: str, severity: str, message: str, location: str) -> None:
        """Add a finding about a key."""
        finding = Finding(code, severity, message, location=location)
        if finding not in self.findings and len(self.findings) < MAX_MESSAGES:
            self.findings.append(finding)

    def warn(self, message: str, location: str) -> None:
        """Metadata that strays, but can be read around: a note and a warning."""
        self.note(f"{location}: {message}")
        self.find("metadata", "warning", message, location)


class Node:
    """A group or dataset: its attributes (empty where it has none), and the names of the folders in it."""

    __slots__ = ("attributes", "broken", "dataset", "folders", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.attributes: Mapping[str, Any] = {}
        self.dataset: DatasetInfo | None = None
        self.broken: OpenReadoutError | None = None
        self.folders: list[str] = []

    @property
    def key(self) -> str:
        """Key of its attributes.json."""
        return join_key(self.path, ATTRIBUTES)


class Tree:
    """All nodes by path; `""` is the root."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.nodes: dict[str, Node] = {}

    def children(self, path: str) -> list[Node]:
        """The nodes directly below a group, in natural order of name."""
        names = sorted(self.nodes[path].folders, key=natural)
        found = (self.nodes.get(join_key(path, name)) for name in names)
        return [node for node in found if node is not None]

    @property
    def root(self) -> Node:
        """The node that was opened."""
        return self.nodes[""]


def natural(text: str) -> list[tuple[int, int, str]]:
    """Sort key that puts s2 before s10."""
    return [
        (0, int(part), "") if part.isascii() and part.isdigit() else (1, 0, part)
        for part in _DIGITS.split(text)
        if part
    ]


def natural_path(path: str) -> list[list[tuple[int, int, str]]]:
    """Sort key of a path, part by part."""
    return [natural(part) for part in path.split("/")]


def read_node(store: Store, path: str) -> Node:
    """Read one attributes.json; damage is kept in `broken`, for whoever needs to tell of it."""
    node = Node(path)
    try:
        node.attributes = _as_object(read_json(store, node.key), node.key)
        if is_dataset(node.attributes):
            node.dataset = parse_dataset(path, node.key, node.attributes)
    except (CorruptDataError, FileError) as error:
        node.broken = error
    return node


def _as_object(document: Any, key: str) -> Mapping[str, Any]:
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise CorruptDataError("expected an object of attributes", where=key)
    return document


def walk(store: Store, report: Report) -> Tree:
    """Find every group and dataset below the root of a store.

    Raises
    ------
    StorageError
        A folder may not be read.
    """
    tree = Tree(store)
    pending, ahead = deque([("", 0)]), 0
    while pending:
        if not ahead:
            ahead = min(NODES_AHEAD, len(pending))
            nearest = itertools.islice(pending, ahead)
            expect(store, [join_key(path, ATTRIBUTES) for path, _ in nearest])
        ahead -= 1
        path, depth = pending.popleft()
        if len(tree.nodes) >= limits.MAX_NODES:
            report.warn(
                f"more than {limits.MAX_NODES} groups; the rest was not looked at, --limit MAX_NODES=N looks at more",
                path or "/",
            )
            break
        node = read_node(store, path)
        tree.nodes[path] = node
        if node.broken is not None:
            report.find("array_metadata", "error", node.broken.message, node.key)
            report.note(f"{node.key}: {node.broken.message}; it was left out")
        if node.dataset is not None:
            continue
        node.folders = _subfolders(store, node)
        if depth >= MAX_DEPTH and node.folders:
            report.warn(f"groups nested deeper than {MAX_DEPTH} were not looked at", path)
            continue
        pending.extend((join_key(path, name), depth + 1) for name in node.folders)
    return tree


def _subfolders(store: Store, node: Node) -> list[str]:
    """Names of the folders of a group that may be groups or datasets; chunk folders of a Zarr array are not."""
    if not store.can_list:
        return usual_names(store, node)
    folders, files = store.list_dir(node.path)
    if ATTRIBUTES not in files and _is_zarr_array(store, node.path, files):
        return []
    plain = [name for name in folders if not name.startswith(".") and _safe(name)]
    if node.broken is not None:
        # Most likely a dataset, whose numbered folders hold blocks.
        plain = [name for name in plain if not name.isdigit()]
    return [name for name in plain if not _loops(store, join_key(node.path, name))]


SERIES_AHEAD = 32
"""Members of a series that are looked for together, of one that has as many already."""
NODES_AHEAD = 64
"""Groups and datasets whose attributes are asked for together."""
USUAL_SERIES = ("s", "c", "setup", "timepoint")
"""What groups call their numbered members: levels, channels, and BigDataViewer's setups and time points."""


def usual_names(store: Store, node: Node) -> list[str]:
    """Names of members of a group that are there, where the server does not list them.

    Those that the group's metadata name, and for each of the usual series as many as follow one another from 0. Groups
    without attributes are found by the dataset `s0` in them.
    """
    named = dict.fromkeys(path.split("/")[0] for path in _named(node.attributes))
    _look_ahead(store, node.path, [f"{series}0" for series in USUAL_SERIES])
    found = [name for name in named if _safe(name) and name]
    for series in USUAL_SERIES:
        found += _in_series(store, node.path, series, named)
    return found


def _in_series(store: Store, path: str, series: str, named: Container[str]) -> Iterator[str]:
    """Names of the members of a series that are there and not named anyway, as many as follow one another from 0."""
    looked = 0
    for number in range(MAX_SERIES):
        if number == looked:
            looked += max(1, min(number, SERIES_AHEAD))
            _look_ahead(store, path, [f"{series}{n}" for n in range(number, looked)])
        name = f"{series}{number}"
        if name in named:
            continue
        # a group may have no attributes of its own; its first level then shows that it is there
        inside = (ATTRIBUTES, f"s0/{ATTRIBUTES}")
        if all(store.size(join_key(path, name, key)) is None for key in inside):
            return
        yield name


def _look_ahead(store: Store, path: str, names: Iterable[str]) -> None:
    """Ask at once whether members of a group are there: for their own attributes, then for those of their `s0`."""
    if not isinstance(store, FarStore):
        return
    own = {name: join_key(path, name, ATTRIBUTES) for name in names}
    store.expect(own.values())
    bare = [name for name, key in own.items() if store.size(key) is None]
    store.expect(join_key(path, name, "s0", ATTRIBUTES) for name in bare)


def _named(attributes: Mapping[str, Any]) -> Iterator[str]:
    """Paths of datasets that multiscale metadata name."""
    multiscales = attributes.get("multiscales")
    for entry in multiscales if isinstance(multiscales, list) else ():
        datasets = entry.get("datasets") if isinstance(entry, dict) else None
        for dataset in datasets if isinstance(datasets, list) else ():
            path = dataset.get("path") if isinstance(dataset, dict) else None
            if isinstance(path, str):
                yield path


def _safe(name: str) -> bool:
    try:
        return join_key(name) == name
    except CorruptDataError:
        return False


def _is_zarr_array(store: Store, path: str, files: list[str]) -> bool:
    if ".zarray" in files:
        return True
    if "zarr.json" not in files:
        return False
    try:
        document = read_json(store, join_key(path, "zarr.json"))
    except InputError:
        return False
    return isinstance(document, dict) and document.get("node_type") == "array"


def _loops(store: Store, key: str) -> bool:
    """Whether a folder is a link to one of the folders that hold it: walking it would never end."""
    if store.kind != "directory":
        return False
    path = os.path.join(store.path, *key.split("/"))
    if not os.path.islink(path):
        return False
    real = os.path.realpath(path)
    parent = os.path.realpath(os.path.dirname(path))
    return parent == real or parent.startswith(real.rstrip(os.sep) + os.sep)
