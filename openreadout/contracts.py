"""What a plugin implements, and what it is handed: sources, readers, writers, sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from openreadout.arrays import ChunkIndex, Region
    from openreadout.codecs import CodecLookup, CodecSpec
    from openreadout.model import Dataset, Image

DEFINITE = 1.0
LIKELY = 0.6
POSSIBLE = 0.3


@dataclass(frozen=True, slots=True)
class FormatDescriptor:
    """What people are told of a format, and its place when two readers are sure (`priority`, higher first)."""

    id: str
    name: str
    extensions: tuple[str, ...]
    summary: str = ""
    known_gaps: tuple[str, ...] = ()
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """An input before any reader has opened it.

    `head` is the first 64 KiB of a file (empty for a folder); `names` are names in a folder, at most a few thousand.
    `peek` reads at most so many bytes of a file directly in the folder, or gives None.
    """

    path: str
    is_directory: bool
    size: int
    head: bytes = b""
    names: frozenset[str] = frozenset()
    peek: Callable[[str, int], bytes | None] = lambda name, limit: None  # noqa: ARG005


@dataclass(frozen=True, slots=True)
class Detection:
    """What a reader makes of a source: how sure it is (`DEFINITE`, `LIKELY`, `POSSIBLE`) and why, in a few words."""

    confidence: float
    reason: str


@dataclass(frozen=True, slots=True)
class OpenContext:
    """What a reader is handed: the codec lookup, and axis letters (fastest first) that a person gave for the input."""

    lookup: CodecLookup
    axes: str | None = None


class Reader(Protocol):
    """Opens one format."""

    @property
    def descriptor(self) -> FormatDescriptor:
        """Id, name, extensions, known gaps."""
        ...

    def detect(self, source: Source) -> Detection | None:
        """Look at the head and the root names only; None when it is not this format."""
        ...

    def open(self, source: Source, context: OpenContext) -> Dataset:
        """Parse the metadata; no pixel is read.

        Raises `CorruptDataError`, `UnsupportedFeatureError` or `StorageError`.
        """
        ...


@dataclass(frozen=True, slots=True)
class PlannedLevel:
    """One array to be written.

    Shapes are in the order of the planned image's axes. `copied` tells that stored chunks can be taken over as they
    are. `downsample` is, for a level made from the one before it, whether each axis is halved; None for a level that
    the source has.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    chunk: tuple[int, ...]
    shard: tuple[int, ...] | None
    codecs: tuple[CodecSpec, ...]
    scale: tuple[float, ...]
    translation: tuple[float, ...]
    fill_value: Any = 0
    source_level: int | None = None
    downsample: tuple[bool, ...] | None = None
    copied: bool = False


@dataclass(frozen=True, slots=True)
class PlannedImage:
    """One image to be written: the source image's index, where it goes, and its levels."""

    source_index: int
    path: str
    axes: tuple[str, ...]
    image: Image
    levels: tuple[PlannedLevel, ...]
    region_origin: Mapping[str, int] = field(default_factory=dict)
    selected: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """Everything that an export will write, decided before the first byte is written."""

    dataset: Dataset
    images: tuple[PlannedImage, ...]
    layout: str
    """`image` (one image at the root), `collection` (bioformats2raw.layout) or `plate` (HCS)."""
    version: str
    """NGFF version: `0.5` or `0.4`."""
    changes: tuple[str, ...] = ()


class Sink(Protocol):
    """One output being written; blocks and chunks may come from several threads, in any order."""

    def write_block(self, image: int, level: int, region: Region, block: NDArray[Any]) -> None:
        """Write a region of an array; its sides lie on the chunk grid or at the array's end."""
        ...

    def write_encoded(self, image: int, level: int, index: ChunkIndex, chunk: bytes | None) -> None:
        """Take over one stored chunk as it is; None for one that the source does not store."""
        ...

    def read_block(self, image: int, level: int, region: Region) -> NDArray[Any]:
        """Read back what was written."""
        ...

    def finish(self) -> None:
        """Write what makes it a store: root metadata, or an archive's directory."""
        ...

    def abort(self) -> None:
        """Give up and release what is open."""
        ...


class Writer(Protocol):
    """Lays out one format."""

    @property
    def descriptor(self) -> FormatDescriptor:
        """Id, name, extensions, known gaps."""
        ...

    def create(self, plan: ExportPlan, path: str) -> Sink:
        """Start an output at `path`, which does not exist yet."""
        ...
