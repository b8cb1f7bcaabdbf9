"""The largest sizes and counts that are accepted from a file, each with its reason.

They are read as attributes of this module wherever they are needed, so that one assignment acts everywhere: `--limit`
and `openreadout.set_limits` change those that stand in `RANGES`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

HEAD_BYTES = 64 * KIB
"""What detection reads of a file."""

MAX_ROOT_NAMES = 4096
"""Names of a folder that detection looks at."""

MAX_CHUNK_BYTES = 2 * GIB
"""A decoded chunk. Blosc and N5 cannot hold more than 2 GiB, and no sensible writer comes near."""

MAX_ENCODED_BYTES = MAX_CHUNK_BYTES + 64 * MIB
"""A stored chunk; incompressible data grows a little when encoded."""

MAX_JSON_BYTES = 64 * MIB
"""A metadata document; consolidated metadata of large plates reaches tens of MiB."""

MAX_JSON_CONTAINERS = 2_000_000
"""Lists and objects of a metadata document, which take far more memory than text; plates have some 100 000."""

MAX_JSON_DEPTH = 200
"""Nesting of a metadata document, well below what the parser itself can take."""

MAX_XML_BYTES = 512 * MIB
"""An OME-XML document; one Plane element for each of a million planes comes to about 200 MiB."""

MAX_DIMENSIONS = 32
"""Axes of an array; NGFF allows five, n5 and numpy stay well below."""

MAX_LEVELS = 64
"""Levels of one pyramid; halving a 64-bit axis takes no more."""

MAX_AXIS = 1 << 62
"""Length of one axis: below the signed 64-bit range, so that sums of two do not overflow anywhere."""

MAX_MULTISCALES = 1000
"""Entries of one group's `multiscales`; normally there is one."""

MAX_IMAGES = 1_000_000
"""Images of one data set."""

MAX_FINDINGS = 10_000
"""Listed wells, fields, series and labels that are absent or damaged, each of which costs a look at the disk."""

MAX_NODES = 200_000
"""Groups and datasets of an N5 container that are looked at."""

MAX_PLANES = 8_000_000
"""Planes of one image of an OME-XML; each costs a table entry. Half a million is the most that was seen."""

MAX_SAMPLES = 4096
"""Colour samples of a pixel of a TIFF; spectral cameras write a few hundred."""

MAX_IFDS = 16_000_000
"""IFDs of one chain of a TIFF; the offset of each is held in memory."""

MAX_TAG_BYTES = 512 * MIB
"""The value of one tag of a TIFF; the offsets of sixty million tiles come to as much."""

MAX_CHANNELS = 1 << 16
"""Channels that are described one by one."""

MAX_ZIP_ENTRIES = 2_000_000
"""Members of an archive; their directory is held in memory, some 350 bytes for each."""

MAX_CODECS = 32
"""Codecs of one chain; each may need a little more room than what it is given, and real chains have up to five."""

CHUNK_SLACK_BYTES = 1 * MIB
"""What a stored chunk or shard may have beyond four times the most that its codecs should give."""

PRESENCE_SAMPLES = 100_000
"""Chunks of one array whose presence `check` looks up one by one; beyond that it samples evenly."""

MAX_ROW_BYTES = 256 * MIB
"""One row of a plane; a plane is read band by band, and no camera or scanner makes a row of this length."""

MAX_EMPTY_PARTS = 100_000
"""Planes and chunks of an image that are walked through however little of them is stored."""

MAX_LISTED_PARTS = 300_000
"""The same for an export that passes over what is not stored."""

MIN_BYTES_PER_PART = 16
"""Bytes that a data set must have for each plane and chunk beyond `MAX_EMPTY_PARTS`; real ones have thousands."""

MAX_EMPTY_BYTES = 8 * GIB
"""Pixels of an image that are walked through however little of them is stored."""

MAX_EXPANSION = 100_000
"""How many times larger than the data set an image beyond `MAX_EMPTY_BYTES` may be; no codec packs pictures so well."""

MAX_PICTURE_CHUNKS = 100_000
"""Chunks that one picture of `preview` may take."""

MAX_TASKS = 5_000_000
"""Tasks of one lazy array; a graph of more takes gigabytes before anything is read."""

MAX_REQUESTS = 32
"""Requests to servers that one process has under way."""

MAX_KEPT_BYTES = 128 * MIB
"""Metadata documents of one remote store that are kept, so that each is asked for once."""

MAX_INDEX_BYTES = 16 * MIB
"""A server's page that lists a folder; some 100 000 names."""

REMOTE_SAMPLES = 64
"""Chunks of one array whose presence is asked for where a server does not list them, each with a request."""

SHARD_EDGE_BYTES = 64 * KIB
"""What is asked for with the index of a remote shard, which is then whole when it is small; an index may be longer."""

SHARD_WHOLE_BYTES = 4 * MIB
"""The same beside the index, where every chunk of the array is going to be read."""

SHARDS_HELD_BYTES = 64 * MIB
"""Bytes of one store that came with the indexes of remote shards, and are kept for the chunks that lie in them."""

REMOTE_THREADS = 16
"""Chunks of a remote input that are read at a time; they wait for the network more than for a processor."""


_COUNT = (1, (1 << 31) - 1)
_SIZE = (1, 1 << 40)
_RATIO = (1, 1 << 62)

RANGES: Mapping[str, tuple[int, int]] = {
    "MAX_CHUNK_BYTES": _SIZE,
    "MAX_ENCODED_BYTES": _SIZE,
    "MAX_JSON_BYTES": _SIZE,
    "MAX_JSON_CONTAINERS": _COUNT,
    "MAX_XML_BYTES": (1, (1 << 31) - 1),
    "MAX_DIMENSIONS": (1, 64),
    "MAX_LEVELS": (1, 1 << 16),
    "MAX_MULTISCALES": _COUNT,
    "MAX_IMAGES": _COUNT,
    "MAX_FINDINGS": _COUNT,
    "MAX_NODES": _COUNT,
    "MAX_PLANES": _COUNT,
    "MAX_SAMPLES": (1, (1 << 16) - 1),
    "MAX_IFDS": _COUNT,
    "MAX_TAG_BYTES": _SIZE,
    "MAX_CHANNELS": _COUNT,
    "MAX_ZIP_ENTRIES": _COUNT,
    "MAX_CODECS": (1, 1000),
    "CHUNK_SLACK_BYTES": (0, 1 << 40),
    "PRESENCE_SAMPLES": _COUNT,
    "MAX_ROW_BYTES": _SIZE,
    "MAX_EMPTY_PARTS": _RATIO,
    "MAX_LISTED_PARTS": _RATIO,
    "MIN_BYTES_PER_PART": (0, 1 << 62),
    "MAX_EMPTY_BYTES": _RATIO,
    "MAX_EXPANSION": _RATIO,
    "MAX_PICTURE_CHUNKS": _COUNT,
    "MAX_TASKS": _COUNT,
    "MAX_REQUESTS": (1, 1024),
    "MAX_KEPT_BYTES": (0, 1 << 40),
    "MAX_INDEX_BYTES": _SIZE,
    "REMOTE_SAMPLES": (2, 1024),
    "SHARDS_HELD_BYTES": (0, 1 << 40),
}
"""Limits that a user may set, with the least and the largest value.

numpy has 64 dimensions, and the XML parser counts bytes in 31 bits. Single values are held in memory whole, so that a
tebibyte is beyond every machine; counts of things that are held stay within 31 bits, and what is compared with the
numbers of a file within the signed 64 bits of an axis.
"""

_DEFAULTS = {name: int(globals()[name]) for name in RANGES}


def assign(values: Mapping[str, int]) -> None:
    """Set limits by name, in this process; `bounds.checked` has looked at what users give."""
    globals().update(values)


def changed() -> dict[str, int]:
    """The limits that are not at their defaults; what another process has to be told."""
    return {name: globals()[name] for name, value in _DEFAULTS.items() if globals()[name] != value}


def restore(values: Mapping[str, int]) -> None:
    """Set the limits to what `changed` gave before, all others to their defaults."""
    assign({**_DEFAULTS, **values})


def raised_by(name: str, needed: int) -> str | None:
    """A hint that names the option with which `needed` would be let through; None where nothing lets it through."""
    if needed > RANGES[name][1]:
        return None
    return f"if the data are sound, --limit {name}={written(name, needed)} lets them through"


def size_raised_by(limit: int, needed: int) -> str | None:
    """The same for a value of `needed` bytes that was refused for being longer than `limit`, whichever limit it is."""
    names = ("MAX_JSON_BYTES", "MAX_XML_BYTES", "MAX_ENCODED_BYTES")
    hints = (raised_by(name, needed) for name in names if globals()[name] == limit)
    return next((hint for hint in hints if hint is not None), None)


def written(name: str, value: int) -> str:
    """A value that is at least `value`, as a user would write it: sizes in a power of two of a binary unit."""
    if not name.endswith("BYTES") or value < KIB:
        return str(value)
    power = min((value - 1).bit_length(), RANGES[name][1].bit_length() - 1)
    if value > 1 << power:
        return str(value)
    unit = min(power // 10, 4)
    return f"{1 << power - 10 * unit}{('', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"
