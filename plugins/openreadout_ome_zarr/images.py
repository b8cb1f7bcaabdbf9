"""One `multiscales` entry and its arrays to `Image`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from openreadout.arrays import with_axes
from openreadout.codecs import ITEM_BYTES
from openreadout.errors import CorruptDataError, UnsupportedFeatureError, UsageError
from openreadout.model import WIDENED, Axis, Image, ResolutionLevel
from openreadout.units import length_um, unit_name
from openreadout_ome_zarr.arrays import load_array
from openreadout_ome_zarr.checked import EMPTY, clean, mapping
from openreadout_ome_zarr.documents import key_of
from openreadout_ome_zarr.ngff import (
    ROLES,
    Dataset,
    Multiscale,
    StoredAxis,
    Transform,
    compose,
    finite,
    implied_axes,
    known_scale,
    parse_omero,
)

if TYPE_CHECKING:
    from openreadout.codecs import CodecLookup
    from openreadout.model import Channel
    from openreadout.stores import Store
    from openreadout_ome_xml import OmeImage
    from openreadout_ome_zarr.arrays import OpenedArray
    from openreadout_ome_zarr.carried import Carried
    from openreadout_ome_zarr.documents import Group

CARRIED_KEY = "openreadout"
"""Where the exporter of this program keeps, beside NGFF, what NGFF has no place for."""
STRUCTURAL = frozenset(
    ("group", "axes", "dtype", "unsupported_dtype", "ngff_version", "label", "label_of", "labels")
)
"""Keys of `extra` that tell of this store; carried metadata, which tells of the source, has no say in them."""

KNOWN_KEYS = frozenset(
    "ome multiscales omero labels image-label plate well bioformats2raw.layout series".split()
) | {CARRIED_KEY}
"""Attributes of a group that are read; others are those of other programs."""

DEFAULT_IMAGE_LABEL = {"source": {"image": "../../"}, "version": None}
"""What the exporter writes for a label whose source says nothing of it, whatever the version."""

GEOMETRIC = ("scale", "translation", "origin_um")


class Fault(NamedTuple):
    """Something to report of an image whose number is not known yet; `level` counts the entries of `datasets`."""

    code: str
    severity: str
    message: str
    level: int | None = None
    location: str | None = None


class Arrays:
    """The arrays of one store, each opened once."""

    def __init__(self, store: Store, lookup: CodecLookup) -> None:
        self.store = store
        self._lookup = lookup
        self._known: dict[str, OpenedArray] = {}

    def load(self, path: str, zarr_format: int) -> OpenedArray:
        """The array at a path; raises what `load_array` raises."""
        if path not in self._known:
            self._known[path] = load_array(self.store, path, self._lookup, zarr_format)
        return self._known[path]


class Request(NamedTuple):
    """What the place of an image in its store says of it, before its own metadata is looked at."""

    group: Group
    entry: Multiscale
    version: str | None
    name: str | None = None
    extra: Mapping[str, Any] = EMPTY
    ome: OmeImage | None = None
    label: bool = False
    label_of: int | None = None
    labels: tuple[str, ...] = ()
    given_axes: str | None = None


class Level(NamedTuple):
    """One level that opened, with its transformation along the stored axes."""

    path: str
    opened: OpenedArray
    transform: Transform


def build_image(request: Request, arrays: Arrays) -> tuple[Image, list[Fault], list[str]]:
    """Open the arrays of a multiscales entry and put together its image.

    Returns
    -------
    Image
        Axes in the model's order; stored axes without a role are at index 0.
    list of Fault
    list of str
        Notes for people.

    Raises
    ------
    CorruptDataError
        Level 0 cannot be opened, or does not agree with the axes.
    UnsupportedFeatureError
        Level 0 uses a feature of Zarr that is not read, or no axis can be x.
    UsageError
        The axes that a person gave do not fit the array.
    """
    faults: list[Fault] = []
    notes: list[str] = []
    first = _first_level(request, arrays)
    axes = _axes(request, len(first.opened.array.shape), faults, notes)
    if len(axes) != len(first.opened.array.shape):
        raise _array_error(
            f"the array has {len(first.opened.array.shape)} dimensions and its image {len(axes)} axes",
            first.opened.document,
        )
    roles = [axis.role for axis in axes]
    if "x" not in roles:
        raise UnsupportedFeatureError(
            "no axis is x, so there are no rows of pixels", where=request.group.document
        )
    levels = [first, *_lower_levels(request, arrays, first, roles, faults)]
    _report_levels(request, levels, faults, notes)
    carried = _carried(request)
    if carried is not None and carried.ignored:
        notes.append(
            f"{_place(request)}: carried metadata of the wrong kind was left out: "
            f"{', '.join(carried.ignored)}"
        )
    omero = parse_omero(request.group.ngff)
    image = _assemble(request, axes, levels, omero or (), carried)
    count = image.size("c")
    if omero is not None and len(omero) != count:
        text = f"omero describes {len(omero)} channels, the image has {count}"
        faults.append(Fault("omero_channels", "warning", text, None, request.group.document))
    return image, faults, notes


def _carried(request: Request) -> Carried | None:
    if CARRIED_KEY not in request.group.attributes:
        return None
    from openreadout_ome_zarr.carried import carried_image

    return carried_image(request.group.attributes)


def _place(request: Request) -> str:
    return request.group.path or "/"


def _array_error(message: str, where: str | None) -> CorruptDataError:
    error = CorruptDataError(message, where=where)
    error.finding = "array_metadata"
    return error


# -- levels --------------------------------------------------


def _first_level(request: Request, arrays: Arrays) -> Level:
    try:
        return _open_level(request, arrays, request.entry.datasets[0])
    except CorruptDataError as error:
        error.finding = "array_metadata"
        error.where = error.where or request.group.document
        raise


def _open_level(request: Request, arrays: Arrays, dataset: Dataset) -> Level:
    if not dataset.path:
        raise CorruptDataError("a level has no path", where=request.group.document)
    opened = arrays.load(key_of(request.group.path, dataset.path), request.group.zarr_format)
    ndim = len(opened.array.shape)
    transform, oddities = compose(ndim, dataset.transformations, request.entry.transformations)
    told = [text for text in (opened.oddity, *oddities) if text]
    level = Level(dataset.path, opened, transform)
    return level if not told else level._replace(opened=opened._replace(oddity="; ".join(told)))


def _lower_levels(
    request: Request,
    arrays: Arrays,
    first: Level,
    roles: list[str | None],
    faults: list[Fault],
) -> list[Level]:
    """The levels below the first that can be used; the others are reported and left out."""
    levels: list[Level] = []
    before = first
    for n, dataset in enumerate(request.entry.datasets[1:], start=1):
        try:
            level = _open_level(request, arrays, dataset)
        except CorruptDataError as error:
            where = error.where or request.group.document
            faults.append(Fault("array_metadata", "error", error.message, n, where))
            continue
        except UnsupportedFeatureError as error:
            faults.append(Fault("metadata", "warning", error.message, n, error.where))
            continue
        array, document = level.opened.array, level.opened.document
        if len(array.shape) != len(roles):
            text = f"level {n} has {len(array.shape)} dimensions, level 0 has {len(roles)}"
            faults.append(Fault("pyramid", "error", text, n, document))
            continue
        if array.dtype != first.opened.array.dtype:
            text = f"level {n} is of type {array.dtype}, level 0 of {first.opened.array.dtype}"
            faults.append(Fault("pyramid", "warning", text, n, document))
        if any(a > b for a, b in zip(array.shape, before.opened.array.shape, strict=True)):
            text = f"level {n} is larger than the one before it"
            faults.append(Fault("pyramid", "warning", text, n, document))
        levels.append(level)
        before = level
    return levels


def _report_levels(
    request: Request, levels: list[Level], faults: list[Fault], notes: list[str]
) -> None:
    faults += [
        Fault("metadata", "warning", text, None, request.group.document)
        for text in request.entry.oddities
    ]
    told: set[str] = set()
    for n, level in enumerate(levels):
        if level.opened.oddity:
            faults.append(
                Fault("metadata", "warning", level.opened.oddity, n, level.opened.document)
            )
            if level.opened.oddity not in told:
                notes.append(f"{level.opened.array.path or '/'}: {level.opened.oddity}")
            told.add(level.opened.oddity)
    missing = len(request.entry.datasets) - len(levels)
    if missing:
        notes.append(
            f"{_place(request)}: {missing} of {len(request.entry.datasets)} levels cannot be used and were left out"
        )


# -- axes --------------------------------------------------


def _axes(
    request: Request, ndim: int, faults: list[Fault], notes: list[str]
) -> tuple[StoredAxis, ...]:
    if request.entry.axes is not None:
        return request.entry.axes
    if request.given_axes is not None:
        return _given_axes(request.given_axes, ndim)
    axes = implied_axes(ndim)
    if ndim != len(ROLES):
        names = ", ".join(axis.name for axis in axes)
        text = f"no axes are named and the array has {ndim} dimensions; they were taken for {names}"
        faults.append(Fault("metadata", "warning", text, None, request.group.document))
        notes.append(f"{_place(request)}: {text}")
    return axes


def _given_axes(letters: str, ndim: int) -> tuple[StoredAxis, ...]:
    """Axes that a person named, fastest first, for an image that names none."""
    names = letters.lower()[::-1]
    if len(names) != ndim or len(set(names)) != ndim or not set(names) <= set(ROLES):
        raise UsageError(
            f"--axes {letters}: the array has {ndim} dimensions, each of which needs one of the letters x y z c t",
            hint="name them fastest first, x for the columns of a row",
        )
    return tuple(StoredAxis(name, None, None, name) for name in names)


def _stored_order(roles: list[str | None]) -> str | None:
    """OME's dimension order where the stored one is not the model's, fastest axis first."""
    stored = [role for role in reversed(roles) if role is not None and role in "zct"]
    usual = [role for role in reversed(ROLES) if role in stored]
    if stored == usual:
        return None
    return "XY" + "".join([*stored, *(name for name in "zct" if name not in stored)]).upper()


# -- putting it together --------------------------------------------------


def _assemble(
    request: Request,
    axes: tuple[StoredAxis, ...],
    levels: list[Level],
    channels: tuple[Channel, ...],
    carried: Carried | None,
) -> Image:
    roles = [axis.role for axis in axes]
    order = [roles.index(letter) for letter in ROLES if letter in roles]
    shown = tuple(Axis(str(axes[n].role), _unit(axes[n].unit)) for n in order)
    own = {**_own_extra(request, axes, levels[0]), **request.extra}
    image = Image(
        name=request.name or request.entry.name,
        axes=shown,
        levels=tuple(_level(level, order) for level in levels),
        channels=channels,
        dimension_order_stored=_stored_order(roles),
        label=request.label,
        label_of=request.label_of,
        extra=own,
        attributes=_foreign(request),
    )
    if request.ome is not None:
        from openreadout_ome_zarr.ome_xml import merge_ome

        image = merge_ome(image, request.ome)
    if carried is not None:
        image = _merge_carried(image, carried)
    return _fit_channels(image)


def _foreign(request: Request) -> Mapping[str, Any]:
    """Attributes of the image's group that are neither NGFF's nor ours."""
    attributes = request.group.attributes
    return {key: clean(value) for key, value in attributes.items() if key not in KNOWN_KEYS}


def _unit(unit: str | None) -> str | None:
    return unit_name(unit) or unit


def _level(level: Level, order: list[int]) -> ResolutionLevel:
    scale, translation = level.transform.scale, level.transform.translation
    return ResolutionLevel(
        level.path,
        with_axes(level.opened.array, order),
        tuple(known_scale(scale[n]) for n in order),
        tuple(finite(translation[n]) for n in order),
    )


def _own_extra(request: Request, axes: tuple[StoredAxis, ...], level: Level) -> dict[str, Any]:
    """The facts of this store that the model has no field for."""
    extra: dict[str, Any] = {"group": _place(request)}
    if request.version is not None:
        extra["ngff_version"] = request.version
    extra["axes"] = [axis.as_json() for axis in axes]
    transform = level.transform
    if transform.stated:
        extra["scale"] = [finite(value) for value in transform.scale]
    if transform.translated:
        extra["translation"] = [finite(value) for value in transform.translation]
        origin = _origin_um(axes, transform)
        if origin:
            extra["origin_um"] = origin
    unmapped = [axis.name for axis in axes if axis.role is None]
    if unmapped:
        extra["unmapped_axes"] = unmapped
    dtype = level.opened.array.dtype
    if dtype in WIDENED:
        extra["dtype"] = dtype
    elif dtype not in ITEM_BYTES:
        extra["unsupported_dtype"] = dtype
    if request.entry.method is not None:
        extra["downsampling"] = request.entry.method
    if request.labels:
        extra["labels"] = list(request.labels)
    return {**extra, **_label_extra(request)}


def _label_extra(request: Request) -> dict[str, Any]:
    if not request.label:
        return {}
    extra: dict[str, Any] = {"label": True}
    if request.label_of is not None:
        extra["label_of"] = request.label_of
    block = mapping(request.group.ngff.get("image-label"))
    if block:
        extra["image_label"] = clean(dict(block))
    return extra


def _origin_um(axes: tuple[StoredAxis, ...], transform: Transform) -> dict[str, float]:
    """Position of the first sample in µm along the axes that have a unit of length."""
    found = {}
    for axis, value in zip(axes, transform.translation, strict=True):
        factor, place = length_um(axis.unit), finite(value)
        if (
            axis.role is not None
            and axis.role in "xyz"
            and factor is not None
            and place is not None
        ):
            found[axis.role] = float(f"{place * factor:.15g}")
    return {name: found[name] for name in "xyz" if name in found}


def _label_of_source(block: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    """A label's block with the version that the source's had: the store's own is that of the store."""
    if not source:
        return dict(block)
    label = {key: value for key, value in block.items() if key != "version"}
    return {**label, "version": source["version"]} if "version" in source else label


def _merge_carried(image: Image, carried: Carried) -> Image:
    """What the exporter noted of the source counts before what NGFF made of it."""
    from dataclasses import replace

    kept = {key: value for key, value in image.extra.items() if key in STRUCTURAL}
    block = image.extra.get("image_label")
    made_up = block is not None and {**block, "version": None} == DEFAULT_IMAGE_LABEL
    if block is not None and ("image_label" in carried.extra or not made_up):
        kept["image_label"] = _label_of_source(block, mapping(carried.extra.get("image_label")))
    brought = {key: value for key, value in carried.extra.items() if key not in STRUCTURAL}
    if "translation" not in brought and any(image.extra.get("translation", ())):
        # A part of the source was exported: where it lies is a fact of this store.
        kept |= {key: image.extra[key] for key in GEOMETRIC if key in image.extra}
    return replace(
        image,
        name=carried.name or image.name,
        channels=image.channels if carried.channels is None else carried.channels,
        objective=carried.objective or image.objective,
        instrument=carried.instrument or image.instrument,
        acquired_at=carried.acquired_at or image.acquired_at,
        attributes={**carried.attributes, **image.attributes},
        extra={**brought, **kept},
    )


def _fit_channels(image: Image) -> Image:
    """Drop descriptions of channels that the array does not have."""
    count = image.size("c")
    if len(image.channels) <= count:
        return image
    from dataclasses import replace

    return replace(image, channels=image.channels[:count])
