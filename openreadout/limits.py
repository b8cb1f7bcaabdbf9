"""The largest sizes and counts that are accepted from a file, each with its reason."""

from __future__ import annotations

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

MAX_IMAGES = 1_000_000
"""Images of one data set."""

MAX_FINDINGS = 10_000
"""Listed wells, fields, series and labels that are absent or damaged, each of which costs a look at the disk."""

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

MAX_REQUESTS = 32
"""Requests to servers that one process has under way."""

MAX_KEPT_BYTES = 128 * MIB
"""Metadata documents of one remote store that are kept, so that each is asked for once."""

MAX_INDEX_BYTES = 16 * MIB
"""A server's page that lists a folder; some 100 000 names."""

REMOTE_SAMPLES = 64
"""Chunks of one array whose presence is asked for where a server does not list them, each with a request."""

REMOTE_THREADS = 16
"""Chunks of a remote input that are read at a time; they wait for the network more than for a processor."""
