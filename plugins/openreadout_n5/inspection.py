"""What `check` looks at beyond opening: attributes of one image that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from openreadout.model import Finding
from openreadout.stores import join_key
from openreadout_n5 import geometry
from openreadout_n5.attributes import ATTRIBUTES, DatasetInfo
from openreadout_n5.conventions import Found, Level, level_factors
from openreadout_n5.tree import Tree


def inspect(tree: Tree, found: Sequence[Found], *, full: bool) -> Iterator[Finding]:
    """Report attributes that disagree; blocks are the core's business, at either depth."""
    del full  # the attributes are all in memory, so there is nothing to save by looking at fewer
    for index, image in enumerate(found):
        node = tree.nodes.get(image.path)
        group: Mapping[str, Any] = node.attributes if node is not None else {}
        yield from _factor_count(index, image, group)
        for number, level in enumerate(image.levels):
            yield from _factors_against_size(index, image, number, level, group)
            yield from _rival_sizes(index, number, level.model, group)


def _warning(message: str, image: int, level: int | None, path: str) -> Finding:
    return Finding("metadata", "warning", message, image, level, join_key(path, ATTRIBUTES))


def _factor_count(index: int, image: Found, group: Mapping[str, Any]) -> Iterator[Finding]:
    for key in ("scales", "downsamplingFactors"):
        listed = group.get(key)
        if not isinstance(listed, list) or not all(isinstance(entry, list) for entry in listed):
            continue
        if len(listed) != len(image.levels):
            message = f"/{key} lists {len(listed)} levels where {len(image.levels)} are stored"
            yield _warning(message, index, None, image.path)


def _factors_against_size(
    index: int, image: Found, number: int, level: Level, group: Mapping[str, Any]
) -> Iterator[Finding]:
    """Factors that do not lead from the full resolution's size to the level's; writers round up or down."""
    first = image.levels[0].model
    ndim = len(first.shape)
    by = level_factors(level.model.attributes, group, number, ndim)
    base = level_factors(first.attributes, group, 0, ndim)
    if number == 0 or by is None:
        return
    ones = (1.0,) * ndim
    for full, part, f, g in zip(first.shape, level.model.shape, by, base or ones, strict=True):
        if f is None or not g:
            continue
        if abs(part - full * g / f) > 1:
            message = f"downsampling by {f:g} does not make {part} of {full} samples"
            yield _warning(message, index, number, level.model.path)
            return


def _rival_sizes(
    index: int, number: int, info: DatasetInfo, group: Mapping[str, Any]
) -> Iterator[Finding]:
    """A `transform` and a resolution that give one level different sizes; the transform was used."""
    ndim = len(info.shape)
    transform = geometry.cosem(info.attributes.get("transform"), ndim)
    base = geometry.resolution(info.attributes, ndim)
    if transform is None or base is None:
        return
    by = level_factors(info.attributes, group, number, ndim) or (1.0,) * ndim
    rivals = (base, geometry.downsampled(base, by))
    if not any(geometry.same_scale(transform, rival) for rival in rivals):
        message = "the transform and the resolution give different sizes; the transform was used"
        yield _warning(message, index, number, info.path)
