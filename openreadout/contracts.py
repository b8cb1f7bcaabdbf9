"""What a plugin implements, and what it is handed: sources, readers, writers, sinks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from openreadout.record import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from openreadout.arrays import ChunkedArray, ChunkIndex, Region
    from openreadout.codecs import CodecLookup, CodecSpec
    from openreadout.encoded import EncodedArray
    from openreadout.model import Dataset, Image, Plate
    from openreadout.stores import PositionalFile, Store

DEFINITE = 1.0
LIKELY = 0.6
POSSIBLE = 0.3


@record
class FormatDescriptor:
    """What people are told of a format, and its place when two readers are sure (`priority`, higher first)."""

    id: str
    name: str
    extensions: tuple[str, ...]
    summary: str = ""
    known_gaps: tuple[str, ...] = ()
    priority: int = 0


@record
class Source:
    """An input before any reader has opened it.

    `head` is the first 64 KiB of a file (empty for a folder); `names` are names in a folder, at most a few thousand.
    `peek` reads at most so many bytes of a file directly in the folder, or gives None. Of an input behind a URL,
    `store` or `file` is what it was looked at through, so that nothing is asked for twice; else both are None.
    """

    path: str
    is_directory: bool
    size: int
    head: bytes = b""
    names: frozenset[str] = frozenset()
    peek: Callable[[str, int], bytes | None] = lambda name, limit: None
    store: Store | None = None
    file: PositionalFile | None = None


@record
class Detection:
    """What a reader makes of a source: how sure it is (`DEFINITE`, `LIKELY`, `POSSIBLE`) and why, in a few words."""

    confidence: float
    reason: str


@record
class OpenContext:
    """What a reader is handed: the codec lookup, and axis letters (fastest first) that a person gave for the input.

    `older` asks for the metadata of Zarr v2 where a folder has documents of Zarr v3 too.
    """

    lookup: CodecLookup
    axes: str | None = None
    older: bool = False


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


@record
class PlannedLevel:
    """One array to be written.

    Shapes are in the order of the planned image's axes. `block` is what is written at a time: blocks lie on its grid.
    `source_level` is the level of the source that it shows; None for one made from the level before it by halving the
    axes of `halve`. `codecs` is the chain of a chunk, without sharding.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    chunk: tuple[int, ...]
    shard: tuple[int, ...] | None
    block: tuple[int, ...]
    codecs: tuple[CodecSpec, ...]
    scale: tuple[float, ...]
    translation: tuple[float, ...]
    fill_value: Any = 0
    source_level: int | None = None
    halve: tuple[bool, ...] = ()
    copied: bool = False


@record
class PlannedImage:
    """One image to be written.

    `image` is the source's image with corrections applied; `source_index` its number. `axes` are the letters of the
    written axes, slowest first; `units` their NGFF units. `path` is the group in the output (`""` is the root), for a
    label below the image it annotates.
    """

    source_index: int
    path: str
    axes: str
    units: tuple[str | None, ...]
    image: Image
    levels: tuple[PlannedLevel, ...]
    samples_as_channels: bool = False
    whole: bool = True


@record
class ExportPlan:
    """Everything that an export will write, decided before the first byte is written."""

    dataset: Dataset
    images: tuple[PlannedImage, ...]
    layout: str
    """`image` (one image at the root), `collection` (bioformats2raw.layout) or `plate` (HCS)."""
    version: str
    """NGFF version: `0.5` or `0.4`."""
    lookup: CodecLookup
    plate: Plate | None = None
    """The plate with the planned images' places in `images`, for the layout `plate`."""
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@record
class Written:
    """Files and bytes of an output, its stored chunks (as they were, or encoded), and what it lacks, in words."""

    files: int
    size: int
    copied: int
    encoded: int
    not_carried: tuple[str, ...] = ()


@record
class Bound:
    """The most that an output can take: files and bytes in all, and those of each array by image and level."""

    files: int
    size: int
    arrays: tuple[tuple[tuple[int, int], ...], ...]


@record
class Share:
    """How one of several processes writes into one folder at the same time as others.

    Files get their names when they are complete, and may replace one that another process wrote, which has the same
    bytes. With `sync` each is brought to the disk before. `permit` is called before a file is begun and before it gets
    its name; it raises when the output is wanted no more.
    """

    sync: bool
    permit: Callable[[], None]


class Journal(Protocol):
    """Remembers the complete values of an output from one run to the next."""

    def note(self, key: str, digest: str) -> None:
        """Tell that a value is complete, from any thread. The digest, 32 hex digits, changes with the value."""
        ...

    def noted(self, key: str) -> str | None:
        """The digest that an earlier run noted for a key."""
        ...

    def flush(self) -> None:
        """Bring what is noted to where a later run finds it; no other thread notes anything meanwhile."""
        ...


class Sink(Protocol):
    """One output being written; blocks and chunks may come from several threads, in any order."""

    def expect(self, image: int, level: int, region: Region) -> None:
        """Told of each block before it is written, from one thread: the order in which values are to lie."""
        ...

    def write_block(
        self,
        image: int,
        level: int,
        region: Region,
        block: NDArray[Any] | None,
        absent: Collection[ChunkIndex] = (),
    ) -> None:
        """Write a region that lies on the block grid; None for one that the source does not store.

        Of chunks in `absent` nothing is stored in the source: they hold the fill value and are left out.
        """
        ...

    def write_chunk(self, image: int, level: int, region: Region, samples: NDArray[Any]) -> bytes:
        """Encode and write one chunk, given clipped to the array; the bytes that were written."""
        ...

    def write_encoded(self, image: int, level: int, index: ChunkIndex, chunk: bytes | None) -> None:
        """Take over one stored chunk as it is; None for one that the source does not store."""
        ...

    def readable(self, image: int, level: int) -> ChunkedArray:
        """A level that is written completely, to read back."""
        ...

    def observe(self, image: int, channel: int, low: float, high: float) -> None:
        """Tell the range of values that a channel of an image was seen to have."""
        ...

    def finish(self, *, sync: bool) -> None:
        """Write what makes it a store: root metadata, or an archive's directory; with `sync` bring it to the disk."""
        ...

    def abort(self) -> None:
        """Give up and release what is open."""
        ...

    def written(self) -> Written:
        """What was written so far."""
        ...


class Writer(Protocol):
    """Lays out one format."""

    @property
    def descriptor(self) -> FormatDescriptor:
        """Id, name, extensions, known gaps."""
        ...

    def create(
        self,
        plan: ExportPlan,
        path: str,
        *,
        archive: bool = False,
        resume: bool = False,
        share: Share | None = None,
        journal: Journal | None = None,
    ) -> Sink:
        """Start an output at `path`, which does not exist yet; `archive` asks for a single file.

        With `resume` a folder stands there that an earlier run of the same plan left: complete files stay, all others
        are removed. What is complete the `journal` knows, in which every file is noted; without one, files that have
        their names are. The same holds for the objects below an address.
        With `share` a folder stands there that others write to as well; such a sink is never finished.
        """
        ...

    def bound(self, plan: ExportPlan, *, archive: bool = False) -> Bound:
        """The files and bytes that an output of the plan has at most, worked out without reading a pixel."""
        ...


@record
class LiftedLevel:
    """One array that stays where it is; `scale` and `translation` have one number for each stored axis.

    The translation is None where none is stated. `path` is the one that the image's group lists, or None where it is
    for the writer to work out.
    """

    array: EncodedArray
    scale: tuple[float, ...]
    translation: tuple[float, ...] | None
    path: str | None = None


@record
class LiftedImage:
    """One image that gets metadata of another format beside what it has.

    `axes` are the NGFF axes in the order in which the arrays store them; `group` is the path of the group that is the
    image. `planned` is the image as an export would have it.
    """

    planned: PlannedImage
    group: str
    axes: tuple[Mapping[str, str], ...]
    levels: tuple[LiftedLevel, ...]

    @property
    def image(self) -> Image:
        """The image as it was read."""
        return self.planned.image

    @property
    def index(self) -> int:
        """Its number in the data set."""
        return self.planned.source_index


@record
class LiftPlan:
    """A container whose arrays stay as they are; `groups` are the paths of all groups that it has."""

    store: Store
    images: tuple[LiftedImage, ...]
    groups: tuple[str, ...]


class Lift(Protocol):
    """Metadata documents that are added to a container in place."""

    @property
    def documents(self) -> tuple[str, ...]:
        """Keys of the documents, the root's first."""
        ...

    @property
    def older(self) -> tuple[str, ...]:
        """Keys of the documents that say the same in the older way."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know of the result."""
        ...

    def write(self, *, sync: bool) -> None:
        """Add the documents, the root's last; each appears under its name only when it is complete."""
        ...

    def undo(self) -> None:
        """Remove what was added and put back what was replaced."""
        ...

    def drop_older(self) -> None:
        """Remove the documents of `older`."""
        ...


@runtime_checkable
class Lifter(Protocol):
    """A writer that can also describe arrays where they are."""

    def lift(self, plan: LiftPlan) -> Lift:
        """Prepare the documents; nothing is written yet.

        Raises `UnsupportedFeatureError` where the format cannot describe the arrays as they are.
        """
        ...
