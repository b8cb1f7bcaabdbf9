"""The image model that every reader fills and every command works on: frozen, without input or output.

Axes are in the order t, c, z, y, x and, for colour samples, s; an image has those that its source stores. Scales and
translations have one number for each axis, in the axis's own unit; unknown is None, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from openreadout.codecs import ITEM_BYTES
from openreadout.codecs import WIDENED as WIDENED
from openreadout.errors import UsageError
from openreadout.record import record
from openreadout.units import length_um, time_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from openreadout.access import Origin, Place
    from openreadout.arrays import ChunkedArray

AXIS_ORDER = "tczyxs"
AXIS_TYPES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space", "s": "sample"}
ALL = slice(None)
PIXEL_TYPES = {
    "bool": "uint8", "int8": "int8", "uint8": "uint8", "int16": "int16", "uint16": "uint16", "int32": "int32",
    "uint32": "uint32", "int64": "int64", "uint64": "uint64", "float16": "float", "float32": "float",
    "float64": "double", "complex64": "complex", "complex128": "double-complex",
}  # fmt: skip
"""OME's name of each data type; bool and float16 are widened when planes are read."""


@record
class Finding:
    """One result of a check: `severity` is `error`, `warning` or `info`; `location` a key, IFD or byte offset."""

    code: str
    severity: str
    message: str
    image: int | None = None
    level: int | None = None
    location: str | None = None


@record
class Axis:
    """One axis: `name` (one of t c z y x s) and `unit`, the UDUNITS name, or None."""

    name: str
    unit: str | None = None

    @property
    def type(self) -> str:
        """`time`, `channel`, `space` or `sample`."""
        return AXIS_TYPES[self.name]


@record
class ResolutionLevel:
    """One level of a pyramid: an array whose axes are the image's; level 0 is full resolution."""

    path: str
    array: ChunkedArray
    scale: tuple[float | None, ...]
    translation: tuple[float | None, ...]


@record
class Window:
    """Display window of a channel: the range of the data and the part of it that is shown."""

    min: float | None = None
    max: float | None = None
    start: float | None = None
    end: float | None = None


@record
class Channel:
    """One channel; `color` is `#RRGGBB`, wavelengths are in nm, the exposure is in seconds."""

    name: str | None = None
    color: str | None = None
    fluorophore: str | None = None
    excitation_nm: float | None = None
    emission_nm: float | None = None
    exposure_s: float | None = None
    window: Window | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@record
class Image:
    """One image: a `multiscales` entry, an OME-XML `Image`, an N5 pyramid or dataset.

    Parameters
    ----------
    name : str or None
    axes : tuple of Axis
        In the order of `AXIS_ORDER`; at least x.
    levels : tuple of ResolutionLevel
    channels : tuple of Channel
        One for each channel, or empty when nothing is known of any.
    dimension_order : str or None
        OME's name of the stored order, fastest axis first; worked out from the axes when None.
    label : bool
        A label image, whose samples are object ids.
    label_of : int or None
        Index of the image it annotates.
    absent : frozenset of (t, c, z)
        Planes that the source declares and never stored.
    objective, instrument : mapping or None
        As JSON shows them.
    acquired_at : str or None
        ISO 8601.
    extra : mapping
        Facts that the format has and this model has no field for; JSON values.
    attributes : mapping
        What else stands in the attributes of the image's group: of other programs, kept as it is for exports.
    origin : tuple of Origin and int, or None
        The data set and the number under which another process finds the image; from `openreadout.open`.

    Examples
    --------
    >>> import openreadout
    >>> with openreadout.open("fixtures/ome-tiff/pyramid/cells.ome.tiff") as dataset:
    ...     image = dataset.images[0]
    ...     plane = image.read_plane(c=1)
    ...     corner = image.read_region(level=1, c=0, z=0, t=0, y=slice(0, 8), x=slice(0, 16))
    >>> plane.shape, corner.shape
    ((64, 80), (8, 16))
    >>> image.physical_size
    {'x': 0.5, 'y': 0.5, 'z': None}
    >>> [channel.name for channel in image.channels]
    ['nuclei', 'membranes']
    """

    name: str | None
    axes: tuple[Axis, ...]
    levels: tuple[ResolutionLevel, ...]
    channels: tuple[Channel, ...] = ()
    dimension_order_stored: str | None = None
    label: bool = False
    label_of: int | None = None
    absent: frozenset[tuple[int, int, int]] = frozenset()
    objective: Mapping[str, Any] | None = None
    instrument: Mapping[str, Any] | None = None
    acquired_at: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    origin: tuple[Origin, int] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of level 0."""
        return self.levels[0].array.shape

    @property
    def dtype(self) -> str:
        """numpy name of the stored type."""
        return self.levels[0].array.dtype

    @property
    def axis_names(self) -> str:
        """The axes' letters, slowest first."""
        return "".join(axis.name for axis in self.axes)

    def size(self, axis: str, level: int = 0) -> int:
        """Length of an axis, 1 when the image does not have it."""
        place = self.axis_names.find(axis)
        return 1 if place < 0 else self.levels[level].array.shape[place]

    @property
    def samples_per_pixel(self) -> int:
        """Colour samples of one pixel."""
        return self.size("s")

    @property
    def plane_count(self) -> int:
        """Planes of level 0, over t, c and z."""
        return self.size("t") * self.size("c") * self.size("z")

    @property
    def pixel_type(self) -> str | None:
        """OME's name of the type that planes are read as, or None when the type is not one of pixels."""
        return PIXEL_TYPES.get(self.dtype)

    @property
    def readable(self) -> bool:
        """Whether samples are of a type that can be read."""
        return self.dtype in ITEM_BYTES

    @property
    def dimension_order(self) -> str:
        """OME's dimension order, fastest axis first."""
        if self.dimension_order_stored:
            return self.dimension_order_stored
        rest = [name for name in reversed(self.axis_names) if name in "zct"]
        return "XY" + "".join([*rest, *(name for name in "zct" if name not in rest)]).upper()

    def _scale(self, axis: str) -> tuple[float | None, str | None]:
        place = self.axis_names.find(axis)
        return (None, None) if place < 0 else (self.levels[0].scale[place], self.axes[place].unit)

    @property
    def physical_size(self) -> dict[str, float | None] | None:
        """Size of a voxel along x, y and z in µm; None for an axis without a known one, and in place of none at all."""
        sizes: dict[str, float | None] = {}
        for axis in "xyz":
            value, unit = self._scale(axis)
            factor = length_um(unit)
            known = value is not None and factor is not None and math.isfinite(value) and value > 0
            sizes[axis] = (
                _tidy(value * factor)
                if known and value is not None and factor is not None
                else None
            )
        return sizes if any(value is not None for value in sizes.values()) else None

    @property
    def time_increment_s(self) -> float | None:
        """Seconds between time points."""
        value, unit = self._scale("t")
        factor = time_s(unit)
        if value is None or factor is None or not math.isfinite(value) or value <= 0:
            return None
        return _tidy(value * factor)

    # -- pixels ------------------------------------------------------------------------------------

    def read_plane(self, c: int = 0, z: int = 0, t: int = 0, level: int = 0) -> NDArray[Any]:
        """Read one plane.

        Parameters
        ----------
        c, z, t : int
            Zero-based; a negative one counts from the end.
        level : int
            0 is full resolution.

        Returns
        -------
        numpy.ndarray
            (y, x), or (y, x, samples) for colour; bool as uint8 0 and 1, float16 as float32. A plane of `absent`, and
            chunks that are not stored, read as the fill value.

        Raises
        ------
        UsageError
            An index is out of range.
        CorruptDataError, StorageError, UnsupportedFeatureError
            A chunk of the plane cannot be read.
        """
        return self.read_region(level, t=t, c=c, z=z)

    def read_region(
        self,
        level: int = 0,
        *,
        t: Place = ALL,
        c: Place = ALL,
        z: Place = ALL,
        y: Place = ALL,
        x: Place = ALL,
    ) -> NDArray[Any]:
        """Read a part of one level; of the stored chunks only those that it touches.

        Parameters
        ----------
        level : int
            0 is full resolution; indices are pixels of the level.
        t, c, z, y, x : int or slice
            As numpy takes them: all by default, an integer takes its axis away, a slice may have a positive step.

        Returns
        -------
        numpy.ndarray
            Axes t, c, z, y, x without those given as integers, then samples for colour.

        Raises
        ------
        UsageError
            An index is out of range, or the result does not fit into memory.
        CorruptDataError, StorageError, UnsupportedFeatureError
            A chunk cannot be read.
        """
        from openreadout import access

        array = access.full(self._level(level).array, self.axis_names)
        places: list[Place] = [t, c, z, y, x]
        places += [ALL] * (len(array.shape) - len(places))
        return access.read(array, places, threads=access.threads(self.origin))

    def to_dask(self, level: int = 0, chunks: Any = None) -> Any:
        """The level as a dask array: t, c, z, y, x, and samples for colour. Needs the extra `dask`.

        Its tasks open the data set again by its path, so that they run in other processes and on other machines that
        see the same files. `chunks` is what dask takes; by default tasks read whole stored chunks, several MB each.
        """
        from openreadout import access

        self._level(level)
        return access.to_dask(access.Lazy(self, level), chunks)

    def to_xarray(self, level: int = 0, chunks: Any = None) -> Any:
        """The level as an `xarray.DataArray` over a dask array. Needs the extra `xarray`.

        z, y and x have coordinates in µm and t in s where their spacing is known; c has the channels' names.
        """
        from openreadout import access

        self._level(level)
        return access.to_xarray(
            access.Lazy(self, level), self._coordinates(level), self.name, chunks
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All of level 0, for `numpy.asarray(image)`."""
        if copy is False:
            raise ValueError("the pixels are read from a file, which makes a copy")
        whole = self.read_region()
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def _level(self, level: int) -> ResolutionLevel:
        if not 0 <= level < len(self.levels):
            raise UsageError(
                f"level {level} is out of range: the image has {len(self.levels)}",
                hint="openreadout info lists the levels",
            )
        return self.levels[level]

    def _coordinates(self, level: int) -> dict[str, Any]:
        from openreadout.access import positions

        found: dict[str, Any] = {}
        item = self._level(level)
        for place, axis in enumerate(self.axes):
            factor = time_s(axis.unit) if axis.name == "t" else length_um(axis.unit)
            scale, start = item.scale[place], item.translation[place] or 0.0
            known = scale is not None and factor is not None and math.isfinite(scale * factor)
            if axis.name in "tzyx" and known and scale is not None and factor is not None:
                values = positions(item.array.shape[place], scale * factor, start * factor)
                found[axis.name] = (axis.name, values, {"units": "s" if axis.name == "t" else "µm"})
        names = [channel.name for channel in self.channels]
        if len(names) == self.size("c") and all(names) and len(set(names)) == len(names):
            found["c"] = ("c", names)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, name) for name in self.__dataclass_fields__]
        if self.origin is None:
            return type(self), tuple(values)
        from openreadout.access import restore_image

        # the levels hold open files and locks: the other process opens its own
        names = list(self.__dataclass_fields__)
        values[names.index("levels")] = None
        return restore_image, (*self.origin, type(self), tuple(values))


def _tidy(value: float) -> float:
    """Undo the last-digit error of a change of unit."""
    return float(f"{value:.15g}")


@record
class Well:
    """One well of a plate: its path (`A/1`), row and column names, and the indices of its images."""

    path: str
    row: str
    column: str
    images: tuple[int, ...]


@record
class Plate:
    """The layout of a high-content screen; `acquisitions` as JSON shows them (`id`, `name`, …)."""

    name: str | None
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    wells: tuple[Well, ...]
    acquisitions: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@record
class Dataset:
    """An opened file or store; a context manager that closes what its reader holds open.

    `findings` are faults that the reader met while opening. `inspect(full)` looks further than opening needs to and is
    called by `check` alone. `source_xml` is the source's own OME-XML document, kept whole for exports.
    `structure` describes the container as a tree of JSON values, for `info --view structure`. `origin` lets another
    process open the data set again; from `openreadout.open`.
    """

    path: str
    format_id: str
    format_name: str
    format_version: str
    images: tuple[Image, ...]
    plate: Plate | None = None
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    checks: tuple[str, ...] = ()
    inspect: Callable[[bool], Iterable[Finding]] | None = None
    structure: Callable[[], Mapping[str, Any]] | None = None
    source_xml: str | None = None
    members: tuple[str, ...] = ()
    release: Callable[[], None] | None = None
    origin: Origin | None = None

    def close(self) -> None:
        """Close the files that the reader holds open."""
        if self.release is not None:
            self.release()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.origin is None:
            return type(self), tuple(getattr(self, name) for name in self.__dataclass_fields__)
        from openreadout.access import restore_dataset

        return restore_dataset, (self.origin,)


def order_axes(names: Iterable[str]) -> list[str]:
    """Axis letters in the model's order."""
    return sorted(names, key=AXIS_ORDER.index)
