"""The JSON that commands print, as types.

What `serialize` returns is checked against them, and `docs/schema/` is made from them. A key that is not there when it
says nothing is `NotRequired`; one whose value is not known is None. Annotations are evaluated, since the schemas need
them; nothing imports this module while a command runs.
"""

from typing import Annotated, Any, NotRequired, TypedDict

Micrometres = Annotated[float, "micrometres"]
Seconds = Annotated[float, "seconds"]
Nanometres = Annotated[float, "nanometres"]
Color = Annotated[str, "#RRGGBB"]
Number = Annotated[int, "counted from 0"]
FreeForm = Annotated[dict[str, Any], "keys depend on the format; see its page"]


class Error(TypedDict):
    """What went wrong; `code` and `exit_code` belong together, see docs/errors.md."""

    code: str
    message: str
    hint: str
    exit_code: int
    path: str | None


class Format(TypedDict):
    """The format of an input."""

    id: str
    name: str


class PhysicalSize(TypedDict):
    """Size of a voxel; null along an axis where it is not known."""

    x: Micrometres | None
    y: Micrometres | None
    z: Micrometres | None
    unit: str


class Window(TypedDict):
    """Display window: the range of the data (`min`, `max`) and the part that is shown (`start`, `end`)."""

    min: float | None
    max: float | None
    start: float | None
    end: float | None


class Channel(TypedDict):
    """One channel."""

    index: Number
    name: str | None
    color: Color | None
    fluorophore: str | None
    excitation_nm: Nanometres | None
    emission_nm: Nanometres | None
    exposure_s: Seconds | None
    window: Window | None
    extra: NotRequired[FreeForm]


class CodecConfiguration(TypedDict):
    """A codec as the metadata names it."""

    name: str
    configuration: dict[str, Any]


class ResolutionLevel(TypedDict):
    """One level of a pyramid; lists are in the order of the stored axes. Keys from `axes` on are in the full view."""

    level: Number
    path: str
    size_x: int
    size_y: int
    size_z: int
    downsample_x: float
    downsample_y: float
    downsample_z: float
    chunk: list[int]
    shard: list[int] | None
    codecs: list[str]
    axes: NotRequired[list[str]]
    shape: NotRequired[list[int]]
    dtype: NotRequired[str]
    fill_value: NotRequired[Any]
    scale: NotRequired[list[float | None]]
    translation: NotRequired[list[float | None]]
    codec_configurations: NotRequired[list[CodecConfiguration]]


class Image(TypedDict):
    """One image."""

    index: Number
    name: str | None
    size_x: int
    size_y: int
    size_z: int
    size_c: int
    size_t: int
    dimension_order: str
    pixel_type: str | None
    samples_per_pixel: int
    physical_size: PhysicalSize | None
    time_increment_s: Seconds | None
    channels: list[Channel]
    objective: FreeForm | None
    instrument: FreeForm | None
    acquired_at: Annotated[str, "ISO 8601"] | None
    pyramid_levels: int
    resolution_levels: list[ResolutionLevel]
    plane_count: int
    extra: FreeForm


class Well(TypedDict):
    """One well of a plate, with the indices of its images."""

    path: str
    row: str
    column: str
    images: list[Number]


class Plate(TypedDict):
    """The layout of a high-content screen."""

    name: str | None
    rows: list[str]
    columns: list[str]
    acquisitions: list[dict[str, Any]]
    wells: list[Well]
    extra: NotRequired[FreeForm]


class Finding(TypedDict):
    """One result of a check; `severity` is error, warning or info."""

    code: str
    severity: str
    message: str
    image: NotRequired[Number]
    level: NotRequired[Number]
    location: NotRequired[Annotated[str, "a key, an IFD or a byte offset"]]


class Info(TypedDict):
    """`info`. The views `format` and `structure` leave out the images; `full` adds findings and members."""

    path: str
    size_bytes: int | None
    format: Format
    format_version: str
    images: NotRequired[list[Image]]
    images_total: NotRequired[Annotated[int, "there when not all images are listed"]]
    plate: NotRequired[Plate]
    plane_count: NotRequired[int]
    notes: list[str]
    findings: NotRequired[list[Finding]]
    members: NotRequired[list[str]]
    structure: NotRequired[FreeForm]


class Plane(TypedDict):
    """One plane and its digest, under the name of its algorithm."""

    image: Number
    level: Number
    c: Number
    z: Number
    t: Number
    width: int
    height: int
    pixel_type: str
    samples_per_pixel: int
    xxh3: NotRequired[Annotated[str, "128 bits, hexadecimal"]]
    sha256: NotRequired[Annotated[str, "256 bits, hexadecimal"]]


class Check(TypedDict):
    """`check`; `planes` is there with --planes."""

    path: str
    format: str
    ok: bool
    checks_performed: list[str]
    planes: NotRequired[list[Plane]]
    findings: list[Finding]


class Compare(TypedDict):
    """`check --against`."""

    path: str
    against: str
    ok: bool
    planes_compared: int
    differences: list[str]
    findings: list[Finding]


class Export(TypedDict):
    """`export`; `skipped` is there when --skip-done left an output alone, `part` when one part was written."""

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
    seconds: Seconds
    skipped: NotRequired[bool]
    part: NotRequired[Annotated[str, "I/N, as --part asked for"]]
    changes: NotRequired[list[str]]
    filled_planes: NotRequired[list[str]]
    not_carried: NotRequired[list[str]]
    notes: NotRequired[list[str]]


class PlannedLevel(TypedDict):
    """An array that an export would write."""

    path: str
    shape: list[int]
    dtype: str
    chunk: list[int]
    shard: list[int] | None
    codecs: list[str]
    source_level: Annotated[int, "the level of the source; null for one made by halving"] | None
    files_at_most: int
    bytes_at_most: int


class PlannedImage(TypedDict):
    """An image that an export would write."""

    image: Number
    name: str | None
    path: str
    axes: list[str]
    levels: list[PlannedLevel]
    files_at_most: int
    bytes_at_most: int


class Plan(TypedDict):
    """`export --dry-run`; bytes are the most that codecs and documents can take, chunks the most that are copied."""

    input: str
    output: str
    format: str
    layout: str
    images: list[PlannedImage]
    files_at_most: int
    bytes_at_most: int
    chunks_copied: int
    changes: list[str]
    notes: list[str]


class InPlace(TypedDict):
    """`export --in-place`."""

    input: str
    output: str
    files_added: list[str]
    files_removed: list[str]
    verified: bool
    seconds: Seconds
    notes: NotRequired[list[str]]


class ShownChannel(TypedDict):
    """A channel of a picture: its colour, and the values shown as black and as full colour."""

    index: Number
    name: str | None
    color: Color
    low: float
    high: float


class ShownImage(TypedDict):
    """One image of a picture; `z` is the first and last plane of the level."""

    image: Number
    name: str | None
    well: str | None
    level: Number
    z: list[Number]
    t: Number
    channels: list[ShownChannel]


class Preview(TypedDict):
    """`preview`."""

    path: str
    format: str
    output: str | None
    width: int
    height: int
    columns: int
    images: list[ShownImage]
    failures: list[Error]
    notes: list[str]


class FormatDescription(TypedDict):
    """A reader or a writer."""

    id: str
    name: str
    extensions: list[str]
    summary: str
    known_gaps: list[str]


class CodecEntry(TypedDict):
    """A codec that can be read, and the distribution that brings it."""

    name: str
    distribution: str


class BrokenPlugin(TypedDict):
    """A plugin that does not import."""

    group: str
    name: str
    distribution: str
    reason: str


class Formats(TypedDict):
    """`formats`."""

    readers: list[FormatDescription]
    writers: list[FormatDescription]
    codecs: list[CodecEntry]
    broken: list[BrokenPlugin]


COMMANDS = {
    "info": Info,
    "check": Check,
    "check-against": Compare,
    "export": Export,
    "export-dry-run": Plan,
    "export-in-place": InPlace,
    "preview": Preview,
    "formats": Formats,
}
"""The payload (`data` of the envelope) of each command."""
