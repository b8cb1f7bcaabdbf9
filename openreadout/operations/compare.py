"""`check --against`: whether two data sets are the same in metadata, geometry and every plane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from openreadout import registry, serialize
from openreadout.errors import InputError
from openreadout.model import Dataset, Finding, Image
from openreadout.operations.check import chosen_images, chosen_levels
from openreadout.operations.extent import refuse_unwalkable
from openreadout.operations.sources import target_array, target_axes
from openreadout.planes import Selection, widen
from openreadout.results import CompareReport
from openreadout.workers import Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from openreadout.arrays import ChunkedArray, Region

NOT_COMPARED = frozenset(
    (
        "path",
        "dimension_order",
        "resolution_levels",
        "pyramid_levels",
        "index",
        "extra",
        "name",
        "plane_count",
    )
)
"""Keys of an image that tell how it is stored and not what it shows, or are compared in a way of their own."""
STORAGE_EXTRA = frozenset(
    "group axes dtype ngff_version scale translation unmapped_axes downsampling labels series "
    "well field row column label_of image_label".split()
)
COLOUR_KEYS = frozenset(("size_c", "samples_per_pixel", "channels"))
MAX_DIFFERENCES = 1000


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What to compare; `tolerance` is how far two samples may differ."""

    selection: Selection = field(default_factory=Selection)
    level: int | None = None
    tolerance: float | None = None
    metadata: bool = True
    pixels: bool = True
    axes: str | None = None
    trust_consolidated: bool = False


def compare(path: str, other: str, options: CompareOptions, workers: Workers) -> CompareReport:
    """Compare two inputs.

    Raises
    ------
    StorageError, UnknownFormatError, CorruptDataError, UnsupportedFeatureError
        One of the two cannot be opened.
    """
    with (
        registry.open_dataset(
            path, axes=options.axes, trust_consolidated=options.trust_consolidated
        ) as first,
        registry.open_dataset(
            other, axes=options.axes, trust_consolidated=options.trust_consolidated
        ) as second,
    ):
        return _Compare(first, second, options, workers).run()


class _Compare:
    def __init__(
        self, first: Dataset, second: Dataset, options: CompareOptions, workers: Workers
    ) -> None:
        self.first = first
        self.second = second
        self.options = options
        self.workers = workers
        self.differences: list[str] = []
        self.findings: list[Finding] = []
        self.planes = 0

    def run(self) -> CompareReport:
        if len(self.first.images) != len(self.second.images):
            self.differences.append(
                f"{len(self.first.images)} images and {len(self.second.images)}"
            )
        pairs = [
            (n, image, self.second.images[n])
            for n, image in chosen_images(self.first, self.options.selection)
            if n < len(self.second.images)
        ]
        for number, one, two in pairs:
            same_shape = self._geometry(number, one, two)
            if self.options.metadata:
                self._metadata(number, one, two)
            if self.options.pixels and same_shape:
                self._pixels(number, one, two)
        return CompareReport(
            self.first.path,
            self.second.path,
            tuple(self.differences[:MAX_DIFFERENCES]),
            self.planes,
            tuple(self.findings),
        )

    def _geometry(self, number: int, one: Image, two: Image) -> bool:
        left, right = _sizes(one), _sizes(two)
        if left != right:
            self.differences.append(f"image {number}: sizes {left} and {right}")
        if one.pixel_type != two.pixel_type:
            self.differences.append(
                f"image {number}: pixel type {one.pixel_type} and {two.pixel_type}"
            )
            return False
        return left == right

    def _metadata(self, number: int, one: Image, two: Image) -> None:
        left, right = serialize.image(number, one), serialize.image(number, two)
        ignored = set(NOT_COMPARED)
        if one.samples_per_pixel != two.samples_per_pixel:
            ignored |= COLOUR_KEYS
        for (key, a), b in zip(left.items(), right.values(), strict=True):
            if key not in ignored and not _same(a, b):
                self.differences.append(f"image {number}: {key} {a} and {b}")
        for key in sorted({*left["extra"], *right["extra"]} - STORAGE_EXTRA):
            a, b = left["extra"].get(key), right["extra"].get(key)
            if not _same(a, b):
                self.differences.append(f"image {number}: extra.{key} {a} and {b}")

    def _pixels(self, number: int, one: Image, two: Image) -> None:
        for _, image, level in chosen_levels(
            [(number, one)], self.options.level if self.options.level is not None else -1
        ):
            if level >= len(two.levels):
                self.differences.append(
                    f"image {number}: level {level} is only in {self.first.path}"
                )
                continue
            left, right = _aligned(image, level), _aligned(two, level)
            if left.shape != right.shape:
                self.differences.append(
                    f"image {number} level {level}: shape {left.shape} and {right.shape}"
                )
                continue
            for dataset, whole in ((self.first, one), (self.second, two)):
                refuse_unwalkable(dataset, [(number, whole, level)], Selection())
            self._level(number, level, left, right)

    def _level(self, number: int, level: int, left: ChunkedArray, right: ChunkedArray) -> None:
        """Compare two arrays of one shape band by band; a plane is named once however many samples differ."""
        bad: set[tuple[int, ...]] = set()
        for region, differs, error in self.workers.map(
            lambda region: (region, *self._differs(left, right, region)),
            _bands(left.shape, left.chunk_shape),
        ):
            place = tuple(start for start, _ in region[:3])
            if error is not None:
                self.findings.append(Finding("chunk_decode", "error", error, number, level))
            if (differs or error is not None) and place not in bad:
                bad.add(place)
                t, c, z = place
                what = "cannot be compared" if error is not None else "other pixels"
                self.differences.append(f"image {number} level {level} t={t} c={c} z={z}: {what}")
        self.planes += left.shape[0] * left.shape[1] * left.shape[2]

    def _differs(
        self, left: ChunkedArray, right: ChunkedArray, region: Region
    ) -> tuple[bool, str | None]:
        from openreadout.arrays import read_region

        try:
            a, b = widen(read_region(left, region)), widen(read_region(right, region))
        except InputError as error:
            return True, str(error)
        return not _equal(a, b, self.options.tolerance), None


def _equal(a: NDArray[Any], b: NDArray[Any], tolerance: float | None) -> bool:
    if tolerance is None:
        if a.dtype != b.dtype:
            return False
        left, right = np.ascontiguousarray(a), np.ascontiguousarray(b)
        return bool((left.view(np.uint8) == right.view(np.uint8)).all())
    if a.dtype.kind in "iu" and a.dtype == b.dtype:
        # doubles do not hold all 64 bits; the difference of two whole numbers, modulo 2^64, does
        high, low = np.maximum(a, b).astype(np.uint64), np.minimum(a, b).astype(np.uint64)
        return bool((high - low <= np.uint64(min(int(tolerance), 2**64 - 1))).all())
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):
        gap = np.abs(a.astype(wide) - b.astype(wide))
    both_nan = np.isnan(a) & np.isnan(b) if a.dtype.kind in "fc" else np.zeros(a.shape, bool)
    return bool(((gap <= tolerance) | both_nan | (a == b)).all())


def _aligned(image: Image, level: int) -> ChunkedArray:
    """A level with all five axes, colour samples as channels."""
    from openreadout.arrays import with_axes

    axes = target_axes(image)
    return with_axes(
        target_array(image, level), [axes.index(a) if a in axes else None for a in "tczyx"]
    )


def _bands(shape: tuple[int, ...], chunk: tuple[int, ...]) -> Iterator[Region]:
    """Bands of one plane each, as many rows as a chunk has."""
    t, c, z, y, x = shape
    for index in np.ndindex(t, c, z):
        for start in range(0, y, max(1, chunk[3])):
            yield (*((i, i + 1) for i in index), (start, min(y, start + max(1, chunk[3]))), (0, x))


def _sizes(image: Image) -> dict[str, int]:
    sizes = {axis: image.size(axis) for axis in "xyzt"}
    return {**sizes, "c": image.size("c") * image.samples_per_pixel}


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float | int) and isinstance(b, float | int) and not isinstance(a, bool):
        return abs(a - b) <= 1e-9 * max(abs(a), abs(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
