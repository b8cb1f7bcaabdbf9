"""What the operations return; `serialize` turns it into JSON and the command line into text."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from openreadout.record import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from openreadout.errors import OpenReadoutError
    from openreadout.model import Dataset, Finding


@record
class InfoResult:
    """What `info` found: the opened data set and its size in bytes; None for a folder behind a URL.

    `stored` has the bytes of levels, by image and level, where counting the whole has told them: in a folder.
    """

    dataset: Dataset
    size_bytes: int | None
    view: str = "summary"
    max_images: int | None = None
    stored: Mapping[tuple[int, int], int] = field(default_factory=dict)


@record
class PlaneDigest:
    """One plane and the digest of its samples (little-endian, rows of x, samples interleaved)."""

    image: int
    level: int
    c: int
    z: int
    t: int
    width: int
    height: int
    pixel_type: str
    samples_per_pixel: int
    algorithm: str
    digest: str


@record
class CheckReport:
    """The result of `check`; `planes` is None unless planes were asked for."""

    path: str
    format_id: str
    findings: tuple[Finding, ...]
    checks: tuple[str, ...] = ()
    planes: tuple[PlaneDigest, ...] | None = None
    chunks_seen: int = 0
    chunks_absent: int = 0

    @property
    def ok(self) -> bool:
        """No finding is an error."""
        return all(finding.severity != "error" for finding in self.findings)


@record
class CompareReport:
    """The result of `check --against`."""

    path: str
    other: str
    differences: tuple[str, ...]
    planes_compared: int = 0
    findings: tuple[Finding, ...] = ()


@record
class ExportReport:
    """The result of `export`."""

    input: str
    output: str
    format: str
    images_written: int
    planes_written: int
    levels_written: int
    chunks_copied: int
    chunks_encoded: int
    files_written: int
    bytes_written: int
    verified: bool
    seconds: float
    source_bytes: int = 0
    skipped: bool = False
    changes: tuple[str, ...] = ()
    filled_planes: tuple[str, ...] = ()
    not_carried: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    images: tuple[str, ...] = field(default_factory=tuple)
    part: str | None = None
    """`I/N` where one part of the output was written, which shows under its name once all are committed."""


@record
class ShownChannel:
    """A channel of a picture: its colour, and the values that are shown as black and as full colour."""

    index: int
    color: str
    low: float
    high: float
    name: str | None = None


@record
class ShownImage:
    """One image of a picture; `z` is first and last plane of the level, `well` its place on a plate."""

    image: int
    name: str | None
    level: int
    z: tuple[int, int]
    t: int
    channels: tuple[ShownChannel, ...] = ()
    well: str | None = None


@record
class PreviewReport:
    """The result of `preview`; `pixels` is 8-bit RGB (height, width, 3), `columns` counts images side by side."""

    path: str
    format_id: str
    pixels: NDArray[Any]
    columns: int
    images: tuple[ShownImage, ...]
    notes: tuple[str, ...] = ()
    failures: tuple[OpenReadoutError, ...] = ()
    output: str | None = None


@record
class InPlaceReport:
    """The result of `export --in-place`; files are keys below `output`, the container that was lifted."""

    input: str
    output: str
    files_added: tuple[str, ...]
    files_removed: tuple[str, ...]
    verified: bool
    seconds: float
    notes: tuple[str, ...] = ()
