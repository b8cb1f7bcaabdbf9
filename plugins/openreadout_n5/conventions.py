"""Which datasets of a container are images, which are levels, channels or time points of one, and where they lie.

N5 itself knows groups and datasets only. The conventions recognised here are those of n5-viewer, COSEM / OpenOrganelle,
n5-universe ("canonical"), Fiji (n5-ij), BigDataViewer, and NGFF metadata kept in attributes.json.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from openreadout import limits
from openreadout.errors import CorruptDataError
from openreadout.model import Channel, Window
from openreadout.stores import join_key
from openreadout_n5 import geometry
from openreadout_n5.attributes import DatasetInfo, finite
from openreadout_n5.geometry import Frame
from openreadout_n5.tree import Node, Report, Tree, natural_path

_LEVEL = re.compile(r"s(\d{1,4})\Z")
_CHANNEL = re.compile(r"c(\d{1,6})\Z")
_TIMEPOINT = re.compile(r"timepoint(\d{1,9})\Z")
_GROUP_MARKS = (
    "scales",
    "downsamplingFactors",
    "pixelResolution",
    "multiScale",
    "resolution",
    "axes",
)
_LEVEL_MARKS = ("downsamplingFactors", "pixelResolution", "transform", "spatialTransform")
VOLUMES = ("n5-viewer", "bdv", "canonical")
"""Conventions whose three-dimensional datasets are x, y, z by definition."""


class Level(NamedTuple):
    """One resolution level: one dataset, or one for each time point or channel (None: not there)."""

    path: str
    parts: tuple[DatasetInfo | None, ...]
    frame: Frame

    @property
    def model(self) -> DatasetInfo:
        """A dataset that is there."""
        return next(part for part in self.parts if part is not None)


class Found(NamedTuple):
    """One image: its place, its levels, and the axis (`t` or `c`) along which its parts are laid, if any."""

    path: str
    name: str | None
    convention: str
    levels: tuple[Level, ...]
    stacked: str | None = None
    channels: tuple[Channel, ...] = ()
    extra: Mapping[str, Any] = {}


def discover(tree: Tree, report: Report) -> list[Found]:
    """Every image of a container, in natural order of path."""
    claimed: set[str] = set()
    found: list[Found] = []
    for node in tree.nodes.values():
        if node.dataset is None:
            found += _bdv_setup(tree, node, claimed, report)
    for node in list(tree.nodes.values()):
        if node.dataset is None and node.path not in claimed:
            found += _pyramids(tree, node, claimed, report)
    found = _join_channels(found, report)
    for node in tree.nodes.values():
        if node.dataset is not None and node.path not in claimed:
            found.append(_plain(node.dataset))
    return sorted(found, key=lambda image: natural_path(image.path))


# -- single datasets -------------------------------------------------------------------------------


def _plain(info: DatasetInfo) -> Found:
    frame, convention = level_frame(info, info.attributes, None, 0)
    if convention != "imagej" and frame.scale is None:
        by = geometry.factors(info.attributes.get("downsamplingFactors"), len(info.shape))
        frame = geometry.downsampled(frame, by) if by else frame
    name = info.attributes.get("name") if convention == "imagej" else None
    return Found(
        info.path,
        name if isinstance(name, str) and name else None,
        convention,
        (Level("" if not info.path else info.path.rpartition("/")[2], (info,), frame),),
        None,
        channels(info.attributes),
    )


def level_frame(
    info: DatasetInfo,
    group: Mapping[str, Any],
    stated: Frame | None,
    number: int,
    base: Frame | None = None,
) -> tuple[Frame, str]:
    """The frame of one dataset and the convention that gave it.

    Parameters
    ----------
    info : DatasetInfo
    group : mapping
        Attributes of the group that holds the level; the dataset's own for a plain dataset.
    stated : Frame or None
        What the group's multiscale metadata says of this level; it comes first.
    number : int
        The level's number, for factors that the group lists.
    base : Frame, optional
        Full resolution, where the dataset does not say it itself.
    """
    ndim, own = len(info.shape), info.attributes
    transform = geometry.cosem(own.get("transform"), ndim)
    spatial = geometry.canonical(own.get("spatialTransform"), ndim)
    frame, convention = stated, ""
    if frame is None or frame.scale is None:
        names = frame.names if frame is not None else None
        units = frame.units if frame is not None else None
        frame, convention = transform or spatial, "cosem" if transform else "canonical"
        if frame is None:
            frame, convention = _by_resolution(info, group, number, base)
        frame = frame._replace(
            names=names or frame.names, units=frame.units if frame.scale else units or frame.units
        )
    names = frame.names
    for source in (own, group):
        names = names or geometry.explicit_axes(source, ndim)
    return frame._replace(names=names), convention


def _by_resolution(
    info: DatasetInfo, group: Mapping[str, Any], number: int, base: Frame | None
) -> tuple[Frame, str]:
    ndim, own = len(info.shape), info.attributes
    plus = geometry.imageplus(own, info.shape) or geometry.imageplus(group, info.shape)
    start = base or geometry.resolution(group, ndim) or geometry.resolution(own, ndim) or plus
    by = level_factors(own, group, number, ndim)
    marked = "pixelResolution" in own or "downsamplingFactors" in own
    convention = "imagej" if plus else "n5-viewer" if marked else "plain"
    if by is None:
        # Some writers give each level the size of its own samples in place of factors.
        own_frame = geometry.resolution(own, ndim)
        rival = own_frame if number and own_frame is not None and start is not None else None
        if rival is not None and start is not None and not geometry.same_scale(rival, start):
            return rival._replace(names=start.names), convention
        return start or Frame(), convention
    return geometry.downsampled(start or Frame(), by), convention


def level_factors(
    own: Mapping[str, Any], group: Mapping[str, Any], number: int, ndim: int
) -> geometry.Numbers | None:
    """Downsampling factors of a level: its own, or the entry in its group's list."""
    found = geometry.factors(own.get("downsamplingFactors"), ndim)
    for key in ("downsamplingFactors", "scales"):
        listed = group.get(key)
        if found is None and isinstance(listed, list) and number < len(listed):
            found = geometry.factors(listed[number], ndim)
    return found


# -- pyramids --------------------------------------------------------------------------------------


def _pyramids(tree: Tree, node: Node, claimed: set[str], report: Report) -> list[Found]:
    """The images that a group's metadata or its s0, s1, ... children make."""
    found = []
    for multiscale in _multiscales(node.attributes)[:1024]:
        image = _stated_pyramid(tree, node, multiscale, claimed, report)
        if image is not None:
            found.append(image)
    if not found:
        image = _numbered_pyramid(tree, node, claimed, report)
        found = [image] if image is not None else []
    return found


def _multiscales(attributes: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    ome = attributes.get("ome")
    value = attributes.get("multiscales", ome.get("multiscales") if isinstance(ome, dict) else None)
    entries = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [
        entry
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("datasets"), list)
    ]


def _stated_pyramid(
    tree: Tree, node: Node, multiscale: Mapping[str, Any], claimed: set[str], report: Report
) -> Found | None:
    """An image whose levels a `multiscales` entry lists."""
    levels: list[Level] = []
    convention = "ngff" if isinstance(multiscale.get("axes"), list) else "cosem"
    for number, entry in enumerate(multiscale["datasets"][: limits.MAX_LEVELS]):
        info = _listed_dataset(tree, node, entry, report)
        if info is None or not _fits(info, levels, node, report):
            continue
        stated = _stated_frame(multiscale, entry, len(info.shape))
        if isinstance(entry, dict) and "spatialTransform" in entry:
            convention = "canonical"
        base = levels[0].frame if levels and levels[0].frame.scale else None
        frame, _ = level_frame(info, node.attributes, stated, number, None if stated else base)
        levels.append(Level(_below(info.path, node.path), (info,), frame))
    if not levels:
        return None
    claimed.update(level.model.path for level in levels)
    name = multiscale.get("name")
    return Found(
        node.path,
        name if isinstance(name, str) and name else None,
        convention,
        tuple(levels),
        None,
        channels(node.attributes),
    )


def _stated_frame(multiscale: Mapping[str, Any], entry: object, ndim: int) -> Frame | None:
    if not isinstance(entry, dict):
        return None
    return (
        geometry.cosem(entry.get("transform"), ndim)
        or geometry.canonical(entry.get("spatialTransform"), ndim)
        or geometry.ngff(multiscale, entry, ndim)
    )


def _listed_dataset(tree: Tree, node: Node, entry: object, report: Report) -> DatasetInfo | None:
    path = entry.get("path") if isinstance(entry, dict) else entry
    if not isinstance(path, str):
        report.warn("a level of multiscales has no path; it was left out", node.key)
        return None
    try:
        target = tree.nodes.get(join_key(node.path, path))
    except CorruptDataError as error:
        report.find("metadata", "error", error.message, node.key)
        report.note(f"{node.key}: {error.message}; the level was left out")
        return None
    if target is not None and target.broken is not None:
        return None
    if target is None or target.dataset is None:
        report.warn(f"level {path[:200]!r} is listed and absent; it was left out", node.key)
        return None
    return target.dataset


def _fits(info: DatasetInfo, levels: Sequence[Level], node: Node, report: Report) -> bool:
    """Whether a level has the rank and type of those before it."""
    if not levels:
        return True
    first = levels[0].model
    if len(info.shape) == len(first.shape) and info.dtype == first.dtype:
        return True
    what = "data type" if len(info.shape) == len(first.shape) else "number of dimensions"
    message = f"level {info.path} has another {what} than {first.path}; it is no level of that one"
    report.find("pyramid", "error", message, join_key(info.path, "attributes.json"))
    report.note(message)
    return False


def _below(path: str, group: str) -> str:
    return path.removeprefix(f"{group}/") if group else path


def _numbered_pyramid(tree: Tree, node: Node, claimed: set[str], report: Report) -> Found | None:
    """An image whose levels are the datasets s0, s1, ... of a group, as n5-viewer and COSEM lay them out."""
    attributes = _with_parent(tree, node)
    numbered = [pair for pair in _numbered(tree, node) if pair[1].path not in claimed]
    if not numbered or not _is_pyramid(attributes, [info for _, info in numbered]):
        return None
    levels, convention = _levels(node, attributes, numbered, report)
    claimed.update(level.model.path for level in levels)
    name = attributes.get("name") if convention == "imagej" else None
    return Found(
        node.path,
        name if isinstance(name, str) and name else None,
        convention,
        tuple(levels),
        None,
        channels(node.attributes),
    )


def _with_parent(tree: Tree, node: Node) -> Mapping[str, Any]:
    """A group's attributes; those of a channel group (c0) are completed by the group's that holds the channels."""
    folder, _, name = node.path.rpartition("/")
    if not node.path or not _CHANNEL.match(name) or folder not in tree.nodes:
        return node.attributes
    parent = tree.nodes[folder].attributes
    inherited = {key: parent[key] for key in _GROUP_MARKS if key in parent}
    return {**inherited, **node.attributes}


def _numbered(tree: Tree, node: Node) -> list[tuple[int, DatasetInfo]]:
    found = []
    for child in tree.children(node.path):
        match = _LEVEL.match(child.path.rpartition("/")[2])
        if match and child.dataset is not None:
            found.append((int(match[1]), child.dataset))
    return sorted(found, key=lambda pair: pair[0])[: limits.MAX_LEVELS]


def _is_pyramid(attributes: Mapping[str, Any], infos: Sequence[DatasetInfo]) -> bool:
    """Whether s0, s1, ... are levels: something says so, or each is smaller than the one before."""
    if any(key in attributes for key in _GROUP_MARKS):
        return True
    if any(key in info.attributes for info in infos for key in _LEVEL_MARKS):
        return True
    if len(infos) < 2 or len({(len(info.shape), info.dtype) for info in infos}) != 1:
        return False
    return all(
        b.shape != a.shape and all(n <= m for m, n in zip(a.shape, b.shape, strict=True))
        for a, b in itertools.pairwise(infos)
    )


def _levels(
    node: Node,
    attributes: Mapping[str, Any],
    numbered: Sequence[tuple[int, DatasetInfo]],
    report: Report,
) -> tuple[list[Level], str]:
    levels: list[Level] = []
    first = numbered[0][1]
    ndim = len(first.shape)
    base = (
        geometry.resolution(attributes, ndim)
        or geometry.resolution(first.attributes, ndim)
        or geometry.imageplus(first.attributes, first.shape)
    )
    convention = ""
    for number, info in numbered:
        if not _fits(info, levels, node, report):
            continue
        frame, said = level_frame(info, attributes, None, number, base)
        convention = convention or said
        if (levels and frame.scale is None) or (levels and _unmoved(frame, levels[0].frame)):
            frame = _by_size(frame, levels[0], info, report)
        if frame.names is None:
            frame = frame._replace(names=levels[0].frame.names if levels else None)
        levels.append(Level(_below(info.path, node.path), (info,), frame))
    if len(levels) > 1 and levels[0].frame.scale is None:
        levels[0] = levels[0]._replace(
            frame=geometry.downsampled(levels[0].frame, (1.0,) * len(first.shape))
        )
    marks = ("scales", "downsamplingFactors", "pixelResolution")
    listed = any(key in source for source in (attributes, first.attributes) for key in marks)
    return levels, "n5-viewer" if listed or convention == "plain" else convention


def _unmoved(frame: Frame, first: Frame) -> bool:
    """Whether nothing tells a lower level's scale from the full resolution's."""
    return frame.scale == first.scale and frame.translation == first.translation


def _by_size(frame: Frame, first: Level, info: DatasetInfo, report: Report) -> Frame:
    """The frame of a level that states no factors, where its size leaves only one whole factor per axis."""
    by: list[float] = []
    for full, part in zip(first.model.shape, info.shape, strict=True):
        ratio = round(full / part) if part else 0
        if ratio < 1 or part not in (full // ratio, -(-full // ratio)):
            return frame._replace(scale=None, translation=None)
        by.append(float(ratio))
    if all(n == 1 for n in by):
        return frame
    report.note(f"{info.path}: its downsampling factors are not stated; they come from its size")
    return geometry.downsampled(first.frame, tuple(by))._replace(names=frame.names)


# -- channels in groups of their own ---------------------------------------------------------------


def _join_channels(found: list[Found], report: Report) -> list[Found]:
    """Make one image of the pyramids c0, c1, ... of a group, as n5-viewer shows them, where they are alike."""
    by_folder: dict[str, list[tuple[int, Found]]] = {}
    for image in found:
        folder, _, name = image.path.rpartition("/")
        match = _CHANNEL.match(name)
        if match and image.stacked is None and image.convention != "bdv":
            by_folder.setdefault(folder, []).append((int(match[1]), image))
    joined: list[Found] = []
    gone: set[str] = set()
    for folder, members in by_folder.items():
        images = [image for _, image in sorted(members, key=lambda pair: pair[0])]
        distinct = {image.path for image in images}
        if len(images) < 2 or len(images) > limits.MAX_CHANNELS or len(distinct) < len(images):
            continue
        if not all(_alike(images[0], other) for other in images[1:]):
            report.warn(
                "channels c0, c1, ... differ in size or type; each is an image", folder or "/"
            )
            continue
        joined.append(_one_of_channels(folder, images))
        gone.update(image.path for image in images)
    return [image for image in found if image.path not in gone] + joined


def _alike(a: Found, b: Found) -> bool:
    return (
        len(a.levels) == len(b.levels)
        and "c" not in _letters(a)
        and all(stackable(x.model, y.model) for x, y in zip(a.levels, b.levels, strict=True))
    )


def _letters(image: Found) -> list[str | None]:
    names = image.levels[0].frame.names
    if names is None:  # beyond three dimensions the fourth is taken for the channel
        return list(geometry.ASSUMED[: len(image.levels[0].model.shape)])
    return [geometry.axis_letter(name) for name in names]


def stackable(a: DatasetInfo, b: DatasetInfo) -> bool:
    """Whether two datasets can be laid along a new axis."""
    return a.shape == b.shape and a.block == b.block and a.dtype == b.dtype


def _one_of_channels(folder: str, images: Sequence[Found]) -> Found:
    levels = tuple(
        Level(same[0].path, tuple(level.model for level in same), same[0].frame)
        for same in zip(*(image.levels for image in images), strict=True)
    )
    described = tuple(
        image.channels[0] if len(image.channels) == 1 else Channel() for image in images
    )
    known = described if any(channel != Channel() for channel in described) else ()
    first = images[0]
    groups = [image.path for image in images]
    return Found(folder, None, first.convention, levels, "c", known, {"channel_groups": groups})


# -- BigDataViewer ---------------------------------------------------------------------------------


def _bdv_setup(tree: Tree, node: Node, claimed: set[str], report: Report) -> list[Found]:
    """The image of one BigDataViewer setup: groups timepointN, each with the levels s0, s1, ..."""
    timepoints: dict[int, list[tuple[int, DatasetInfo]]] = {}
    base: Frame | None = None
    for child in tree.children(node.path):
        match = _TIMEPOINT.match(child.path.rpartition("/")[2])
        levels = _numbered(tree, child) if match and child.dataset is None else []
        if match and levels:
            timepoints[int(match[1])] = levels
            base = base or geometry.resolution(child.attributes, len(levels[0][1].shape))
    if not timepoints:
        return []
    groups = _alike_timepoints(timepoints)
    if len(groups) > 1:
        report.warn(
            "time points differ in size, blocks or type; each kind is an image", node.path or "/"
        )
    found = []
    for times in groups:
        kept = {t: timepoints[t] for t in times}
        claimed.update(info.path for levels in kept.values() for _, info in levels)
        found.append(_setup_image(node, kept, base, report))
    return found


def _alike_timepoints(timepoints: Mapping[int, list[tuple[int, DatasetInfo]]]) -> list[list[int]]:
    kinds: dict[tuple[object, ...], list[int]] = {}
    for t in sorted(timepoints):
        kind = tuple((n, i.shape, i.block, i.dtype) for n, i in timepoints[t])
        kinds.setdefault(kind, []).append(t)
    return list(kinds.values())


def _setup_image(
    node: Node,
    timepoints: Mapping[int, list[tuple[int, DatasetInfo]]],
    base: Frame | None,
    report: Report,
) -> Found:
    times = sorted(timepoints)
    levels, _ = _levels(
        node, {**node.attributes, **_base_attributes(node, base)}, timepoints[times[0]], report
    )
    kept = {level.model.path.rpartition("/")[2] for level in levels}
    stacks = zip(
        *(
            [info for _, info in timepoints[t] if info.path.rpartition("/")[2] in kept]
            for t in times
        ),
        strict=True,
    )
    stacked = tuple(
        level._replace(parts=tuple(parts)) for level, parts in zip(levels, stacks, strict=True)
    )
    setup = re.search(r"setup(\d{1,9})\Z", node.path)
    extra: dict[str, Any] = {"timepoints": times}
    if setup:
        extra["setup"] = int(setup[1])
    return Found(node.path, None, "bdv", stacked, "t", channels(node.attributes), extra)


def _base_attributes(node: Node, base: Frame | None) -> Mapping[str, Any]:
    """The time point's `resolution` as if the setup had it, where the setup itself says nothing."""
    if base is None or base.scale is None or "resolution" in node.attributes:
        return {}
    found: dict[str, Any] = {"resolution": list(base.scale)}
    if base.units is not None:
        found["units"] = list(base.units)
    return found


def at_times(image: Found, times: Sequence[int]) -> Found:
    """A setup laid along the time points of the whole container; those that it lacks are None."""
    own = {t: n for n, t in enumerate(image.extra["timepoints"])}
    levels = tuple(
        level._replace(parts=tuple(level.parts[own[t]] if t in own else None for t in times))
        for level in image.levels
    )
    missing = [t for t in times if t not in own]
    extra = {**image.extra, "timepoints": list(times)}
    if missing:
        extra["missing_timepoints"] = missing
    return image._replace(levels=levels, extra=extra)


# -- channels --------------------------------------------------------------------------------------


def channels(attributes: Mapping[str, Any]) -> tuple[Channel, ...]:
    """Channels from `omero` (NGFF) or `intensityLimits` (n5-universe); empty when neither is there."""
    omero = attributes.get("omero")
    listed = omero.get("channels") if isinstance(omero, dict) else None
    if isinstance(listed, list) and 0 < len(listed) <= limits.MAX_CHANNELS:
        return tuple(_channel(entry) for entry in listed)
    shown = attributes.get("intensityLimits")
    if isinstance(shown, dict):
        window = Window(start=finite(shown.get("min")), end=finite(shown.get("max")))
        return (Channel(window=window),) if window != Window() else ()
    return ()


def _channel(entry: object) -> Channel:
    if not isinstance(entry, dict):
        return Channel()
    label, color, window = entry.get("label"), entry.get("color"), entry.get("window")
    shown = None
    if isinstance(window, dict):
        shown = Window(**{key: finite(window.get(key)) for key in ("min", "max", "start", "end")})
    valid = isinstance(color, str) and re.fullmatch(r"#?[0-9A-Fa-f]{6}", color)
    return Channel(
        name=label if isinstance(label, str) and label else None,
        color=f"#{str(color).lstrip('#').upper()}" if valid else None,
        window=shown,
    )
