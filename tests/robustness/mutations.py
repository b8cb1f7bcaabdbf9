"""Ways to damage a data set: bits, cuts, spliced runs, numbers, and values of JSON, XML, TIFF tags and zip members.

Everything is drawn from one `random.Random`, so that a seed number makes the same damage again.
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
import zipfile
import zlib
from random import Random
from typing import Any

NUMBERS = (
    -1, 0, 1, 2, 3, 7, 255, 256, 65535, 65536,
    2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53, 2**60, 2**62,
    2**63 - 1, 2**63, 2**64, 10**30,
    -(2**31), -(2**63), 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308, math.nan, math.inf, -math.inf,
)  # fmt: skip
WORDS = (
    "", " ", ".", "..", "/", "//", "../..", "../../../../etc/passwd", "/etc/passwd", "C:\\x", "a\\..\\b", "0",
    "s0", "0/0", "c", "x", "y", "z", "t", "\0", "\x1b[31mred\x1b[0m", "\r\n", "\u202e", "\ud800", "\U0001f52c",
    "e\u0301" * 40, "NaN", "Infinity", "-Infinity", "nan", "0x7fc00000", "AAAA", "uint8", "<u2", ">f8", "|b1", "|O",
    "|S4", "<U3", "<M8[ns]", "bool", "float16", "complex128", "r8", "bytes", "zstd", "blosc", "gzip", "lz4", "jpeg",
    "raw", "bzip2", "xz", "sharding_indexed", "transpose", "crc32c", "numcodecs.delta", "numcodecs.pcodec",
    "n5_default", "reshape", "micrometer", "nm", "\xb5m", "parsec", "second", "space", "time", "channel", "little",
    "big", "F", "C", "start", "end", "0.4", "0.5", "0.6-dev", "99", "2", "3", "A/1", "FFFFFF", "#000000",
)  # fmt: skip


def deep() -> Any:
    """Lists in lists; made anew, since what is put into a document may be damaged again."""
    nest: Any = []
    for _ in range(150):
        nest = [nest]
    return nest


def value(rng: Random) -> Any:
    """A value that does not belong where it is put."""
    kind = rng.randrange(12)
    if kind < 5:
        return rng.choice(NUMBERS)
    if kind < 8:
        return rng.choice(WORDS)
    return rng.choice(
        (
            None,
            True,
            False,
            [],
            {},
            [[]],
            [None],
            [{}],
            [1] * 40,
            [rng.choice(NUMBERS) for _ in range(rng.randrange(1, 6))],
            [rng.choice(WORDS) for _ in range(rng.randrange(1, 6))],
            {rng.choice(WORDS): rng.choice(NUMBERS)},
            deep(),
            "x" * rng.choice((300, 5000, 1 << 20)),
            list(range(rng.choice((100, 3000)))),
            [{"path": rng.choice(WORDS)}] * rng.choice((2, 65, 500)),
        )
    )


# -- JSON ------------------------------------------------------------------------------------------


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    found, pending = [], [node]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            keys: Any = item.keys()
        elif isinstance(item, list):
            keys = range(len(item))
        else:
            continue
        for key in keys:
            found.append((item, key))
            pending.append(item[key])
    return found


def document(rng: Random, data: bytes) -> bytes:
    """A JSON document with one to three of its values replaced, removed, doubled, renamed or swapped."""
    try:
        tree = json.loads(data)
    except (ValueError, MemoryError):
        return binary(rng, data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = _places(tree)
        if not places:
            return json.dumps(value(rng)).encode()
        container, key = rng.choice(places)
        what = rng.randrange(10)
        if what < 6:
            container[key] = value(rng)
        elif what == 6:
            del container[key]
        elif what == 7 and isinstance(container, list):
            container.extend([container[key]] * rng.choice((1, 2, 40, 1000)))
        elif what == 7:
            container[rng.choice(WORDS)] = container.pop(key)
        elif what == 8:
            other, place = rng.choice(places)
            container[key] = json.loads(json.dumps(other[place]))
        else:
            container[key] = _nearby(rng, container[key])
    try:
        text = json.dumps(tree)
    except MemoryError:  # lists within lists, doubled a thousand times each
        return binary(rng, data)
    if rng.random() < 0.03:
        text = text.replace("1", "1" + "0" * rng.choice((50, 400, 5000)), 1)
    return text.encode("utf-8", "surrogatepass")


def _nearby(rng: Random, old: Any) -> Any:
    if isinstance(old, bool) or old is None:
        return not old
    if isinstance(old, int | float):
        return rng.choice((old + 1, old - 1, -old, old * 2, float(old), str(old), [old]))
    if isinstance(old, str):
        return rng.choice(
            (old[:-1], old + "x", old.upper(), [old], old.encode("utf-8", "surrogatepass").hex())
        )
    if isinstance(old, list):
        return rng.choice((old[::-1], old[:-1], [*old, *old[-1:]], old * 2, {"0": old}))
    return [old]


# -- bytes -----------------------------------------------------------------------------------------

RUNS = (
    b"\0", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80\0\0\0", b"\0\0\0\x80", b"\xff" * 8, b"\0" * 8,
    b"\x01\0\0\0", b"\0\0\0\x01",
)  # fmt: skip


def _at(rng: Random, length: int) -> int:
    """A position: near the start, near the end, or anywhere."""
    where = rng.randrange(10)
    if where < 4:
        return rng.randrange(min(length, 64))
    if where < 6:
        return length - 1 - rng.randrange(min(length, 128))
    return rng.randrange(length)


def binary(rng: Random, data: bytes, at: int | None = None) -> bytes:
    """Bytes with bits flipped, runs overwritten, cut out, doubled or moved, or the end cut off."""
    if not data:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 40)))
    out = bytearray(data)
    what = rng.randrange(12)
    place = _at(rng, len(out)) if at is None else min(at, len(out) - 1)
    if what < 4:
        for _ in range(rng.choice((1, 1, 1, 2, 8))):
            out[place] ^= 1 << rng.randrange(8)
            place = _at(rng, len(out)) if at is None else place
    elif what < 7:
        run = rng.choice(RUNS)
        out[place : place + len(run)] = run
    elif what == 7:
        width = rng.choice((1, 2, 4, 8))
        number = rng.choice((0, 1, 2**width, 2 ** (8 * width - 1), 2 ** (8 * width) - 1, len(data)))
        number %= 1 << (8 * width)
        out[place : place + width] = number.to_bytes(width, rng.choice(("big", "little")))
    elif what == 8:
        del out[place:]
    elif what == 9:
        del out[place : place + rng.choice((1, 2, 4, 64, 1000))]
    elif what == 10:
        run = bytes(out[place : place + rng.choice((1, 4, 64, 1000))])
        out[place:place] = run * rng.choice((1, 2, 30))
    else:
        other = rng.randrange(len(out))
        width = rng.choice((2, 4, 16, 100))
        out[place : place + width] = out[other : other + width]
    return bytes(out)


# -- XML, TIFF and zip -----------------------------------------------------------------------------

_ATTRIBUTE = re.compile(rb'="([^"]*)"')


def xml(rng: Random, data: bytes, *, same_length: bool = False) -> bytes:
    """An XML document with the value of an attribute replaced, or an element doubled."""
    found = list(_ATTRIBUTE.finditer(data))
    if not found:
        return binary(rng, data)
    match = rng.choice(found)
    if not same_length and rng.random() < 0.2:
        start = data.rfind(b"<", 0, match.start())
        end = data.find(b">", match.end()) + 1
        return data[:end] + data[start:end] * rng.choice((1, 3, 500)) + data[end:]
    new = rng.choice((str(rng.choice(NUMBERS)), rng.choice(WORDS), "&bomb;", "x" * 3000))
    text = new.encode("utf-8", "replace").replace(b'"', b"").replace(b"\0", b"")
    if same_length:
        width = match.end(1) - match.start(1)
        text = text[:width].ljust(width)
    return data[: match.start(1)] + text + data[match.end(1) :]


def _ifds(data: bytes) -> list[tuple[int, int, int, str]]:
    """Offset, number of entries, size of an entry and byte order of the directories of a TIFF."""
    if data[:2] not in (b"II", b"MM") or len(data) < 16:
        return []
    order = "<" if data[:2] == b"II" else ">"
    big = struct.unpack(order + "H", data[2:4])[0] == 43
    at = struct.unpack(order + ("Q" if big else "I"), data[8:16] if big else data[4:8])[0]
    found: list[tuple[int, int, int, str]] = []
    head, size = (8, 20) if big else (2, 12)
    while 0 < at < len(data) - head and len(found) < 64:
        count = struct.unpack(order + ("Q" if big else "H"), data[at : at + head])[0]
        end = at + head + count * size
        if count > 500 or end + 8 > len(data):
            break
        found.append((at + head, count, size, order))
        at = struct.unpack(order + ("Q" if big else "I"), data[end : end + (8 if big else 4)])[0]
    return found


def tiff(rng: Random, data: bytes) -> bytes:
    """A TIFF with an entry of a directory, its OME-XML, or any bytes changed."""
    directories = _ifds(data)
    what = rng.randrange(10)
    start, end = data.find(b"<OME"), data.find(b"</OME>")
    if what < 3 and 0 <= start < end:
        return data[:start] + xml(rng, data[start:end], same_length=True) + data[end:]
    if what < 8 and directories:
        at, count, size, order = rng.choice(directories)
        entry = at + size * rng.randrange(count + 1)  # the last is the next directory's offset
        out = bytearray(data)
        field = rng.randrange(4)
        numbers = (
            0,
            1,
            2,
            3,
            4,
            5,
            12,
            16,
            17,
            18,
            254,
            256,
            270,
            2**16 - 1,
            2**31,
            2**32 - 1,
            len(data),
            at,
            at - 2,
        )
        if field == 0:
            out[entry : entry + 2] = struct.pack(order + "H", rng.choice(numbers) & 0xFFFF)
        elif field == 1:
            out[entry + 2 : entry + 4] = struct.pack(order + "H", rng.choice(numbers) & 0xFFFF)
        elif field == 2:
            out[entry + 4 : entry + 8] = struct.pack(order + "I", rng.choice(numbers))
        else:
            last = entry + size - 4
            out[last : last + 4] = struct.pack(order + "I", rng.choice(numbers))
        return bytes(out)
    return binary(rng, data)


def archive(rng: Random, data: bytes) -> bytes:
    """A zip with a member changed and packed again, or with the bytes of the archive changed."""
    if rng.random() < 0.5:
        return binary(rng, data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as source:
            members = {name: source.read(name) for name in source.namelist()}
    except (zipfile.BadZipFile, zlib.error, RuntimeError, ValueError, EOFError, OSError):
        return binary(rng, data)
    if not members:
        return binary(rng, data)
    name = rng.choice(list(members))
    what = rng.randrange(6)
    if what < 4:
        members[name] = member(rng, name, members[name])
    elif what == 4:
        members[rng.choice(WORDS).replace("\0", "") or "x"] = members.pop(name)
    else:
        members[f"{name}/x"] = members[name]
    out = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(out, "w", method) as target:
        for key, body in members.items():
            target.writestr(zipfile.ZipInfo(key.encode("utf-8", "replace").decode()), body, method)
    return out.getvalue()


def member(rng: Random, name: str, data: bytes) -> bytes:
    """One file, damaged in the way that suits it."""
    if rng.random() < 0.1:
        return rng.choice((b"", b"{}", b"[]", b"null", b"\0" * 100, data + b"\0", data * 2))
    if name.endswith((".json", ".zattrs", ".zgroup", ".zarray", ".zmetadata")):
        return document(rng, data) if rng.random() < 0.85 else binary(rng, data)
    if name.endswith((".xml", ".ome")):
        return xml(rng, data) if rng.random() < 0.8 else binary(rng, data)
    if data[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return tiff(rng, data)
    if data[:2] == b"PK":
        return archive(rng, data)
    return binary(rng, data)


_METADATA = (".json", ".zattrs", ".zgroup", ".zarray", ".zmetadata", ".xml", ".ome")


def damaged(rng: Random, files: dict[str, bytes]) -> dict[str, bytes]:
    """The files of a data set with one to three kinds of damage."""
    out = dict(files)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        names = sorted(out)
        if not names:
            break
        metadata = [name for name in names if name.endswith(_METADATA)]
        name = rng.choice(metadata if metadata and rng.random() < 0.6 else names)
        if rng.random() < 0.95:
            out[name] = member(rng, name, out[name])
        elif rng.random() < 0.5 or len(names) < 2:
            del out[name]
        else:
            out[name] = out[rng.choice(names)]
    return out
