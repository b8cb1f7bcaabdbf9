"""The tree of groups and datasets of a container, for people to look at."""

from __future__ import annotations

from typing import Any

from openreadout_n5.attributes import DatasetInfo, n5_default
from openreadout_n5.tree import Node, Tree

MAX_ATTRIBUTES = 1000
"""Names of attributes that are shown of one group or dataset."""


def describe(tree: Tree, images: frozenset[str]) -> dict[str, Any]:
    """The hierarchy as nested JSON objects of `kind`, `path` and `children`.

    Parameters
    ----------
    tree : Tree
        The container; no deeper than its walk goes.
    images : frozenset of str
        Paths of the images, whose groups are of kind `image`.

    Returns
    -------
    dict
        Datasets are of kind `array`; their shape and chunk are slowest axis first, as everywhere but in N5 itself.
    """
    return _node(tree, tree.root, images)


def _node(tree: Tree, node: Node, images: frozenset[str]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "kind": "image" if node.path in images else "group",
        "name": node.path.rpartition("/")[2] or "/",
        "path": node.path or "/",
    }
    if node.broken is not None:
        body |= {"kind": "damaged", "error": node.broken.message}
    if node.dataset is not None:
        return {**body, "kind": "array", **_dataset(node.dataset)}
    if node.attributes:
        body["attributes"] = sorted(node.attributes)[:MAX_ATTRIBUTES]
    children = [_node(tree, child, images) for child in tree.children(node.path)]
    if children:
        body["children"] = children
    return body


def _dataset(info: DatasetInfo) -> dict[str, Any]:
    codecs = [n5_default(len(info.shape), info.compressor).name]
    return {
        "shape": list(info.shape[::-1]),
        "dtype": info.dtype,
        "chunk": list(info.block[::-1]),
        "shard": None,
        "codecs": codecs if info.compressor is None else [*codecs, info.compressor.name],
    }
