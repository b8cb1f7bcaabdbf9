"""Zip archives read in place, as stores: the central directory once, then members by byte range.

APPNOTE 6.3 with ZIP64 fields; of two entries of one name the last counts, and data in front of the archive is passed
over.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from openreadout import limits
from openreadout.errors import (
    CorruptDataError,
    StorageError,
    UnsupportedFeatureError,
    storage_error,
)
from openreadout.stores import PositionalFile, open_positional, too_long

ZIP_SLACK_BYTES = 1024
"""What the local header of a zip member may have beyond its name, and is fetched with the member."""


class ZipMember(NamedTuple):
    """What the central directory says of one member; `offset` is that of its local header."""

    method: int
    flags: int
    crc: int
    packed: int
    size: int
    offset: int


class ZipStore:
    """The members of a zip archive, read in place (APPNOTE.TXT 6.3, sections 4.3 and 4.5.3).

    Sizes and offsets come from the central directory, so members that were streamed are read like any other; the last
    of two entries of one name counts. Stored members are read by byte range. Deflated members are inflated whole,
    bounded by the size that the directory declares, and one of them is kept for the byte ranges asked of it.

    Parameters
    ----------
    path : str
        The archive.
    prefix : str
        Folder inside the archive that is the root of the keys, without a trailing slash.
    """

    kind = "zip"
    can_list = can_walk = True
    far = False

    def __init__(self, path: str, prefix: str = "", file: PositionalFile | None = None) -> None:
        self.path = path
        self.prefix = ""
        self._file = open_positional(path) if file is None else file
        self._lock = threading.Lock()
        self._inflated: tuple[str, bytes] | None = None
        self._folders: dict[str, tuple[set[str], set[str]]] | None = None
        try:
            self._members = _ZipDirectory(path, self._file).members()
        except OSError as error:
            self.close()
            if isinstance(error, StorageError):
                raise
            raise storage_error(error, path) from error
        except BaseException:
            self.close()
            raise
        if prefix:
            self.below(prefix)

    def below(self, prefix: str) -> ZipStore:
        """Make a folder of the archive the root of the keys; gives the store itself."""
        if prefix:
            base = f"{prefix}/"
            self._members = {
                name.removeprefix(base): member
                for name, member in self._members.items()
                if name.startswith(base)
            }
            self.prefix = f"{self.prefix}/{prefix}" if self.prefix else prefix
            self._folders = None
        return self

    def names(self) -> list[str]:
        """Every key."""
        return list(self._members)

    def _data_offset(self, key: str, entry: ZipMember) -> int:
        """Where a member's data starts: after its local header, whose name and extra field may differ in length."""
        header = self._pread(entry.offset, 30, key)
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise CorruptDataError(
                "the archive's directory points to something else than a member",
                path=self.path,
                where=key,
            )
        names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        return entry.offset + 30 + names

    def _pread(self, offset: int, length: int, key: str) -> bytes:
        try:
            return self._file.read(offset, length)
        except OSError as error:
            if isinstance(error, StorageError):
                error.where = key
                raise
            raise storage_error(error, self.path, where=key) from error

    def _entry(self, key: str) -> ZipMember | None:
        entry = self._members.get(key)
        if entry is None:
            return None
        if entry.flags & 0x2041:
            raise UnsupportedFeatureError(
                f"{self.path}: the archive is encrypted",
                path=self.path,
                where=key,
                hint="unpack it with its password first",
            )
        if entry.method not in (0, 8):
            raise UnsupportedFeatureError(
                f"{self.path}: zip method {entry.method} is not read",
                path=self.path,
                where=key,
                hint="zip the data again with stored or deflated members",
            )
        if entry.method == 0 and entry.packed != entry.size:
            raise CorruptDataError(
                f"a stored member has {entry.packed} bytes and declares {entry.size}",
                path=self.path,
                where=key,
            )
        return entry

    def get(self, key: str, limit: int | None = None) -> bytes | None:
        entry = self._entry(key)
        if entry is None:
            return None
        limit = limits.MAX_ENCODED_BYTES if limit is None else limit
        if entry.size > limit:
            raise too_long(entry.size, limit, self.path, key)
        if entry.packed > limits.MAX_ENCODED_BYTES:
            raise too_long(entry.packed, limits.MAX_ENCODED_BYTES, self.path, key)
        self._file.ahead(entry.offset, 30 + len(key) + ZIP_SLACK_BYTES + entry.packed)
        data = self._pread(self._data_offset(key, entry), entry.packed, key)
        self._file.release()
        if entry.method == 8:
            data = _inflate(data, entry.size, self.path, key)
        return self._whole(data, entry, key)

    def _whole(self, data: bytes, entry: ZipMember, key: str) -> bytes:
        import zlib

        if len(data) != entry.size:
            raise CorruptDataError(
                f"{len(data)} of {entry.size} bytes are there", path=self.path, where=key
            )
        if zlib.crc32(data) != entry.crc:
            raise CorruptDataError(
                "the archive's checksum does not match", path=self.path, where=key
            )
        return data

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        entry = self._entry(key)
        if entry is None:
            return None
        if entry.method == 0:
            length = max(0, min(length, entry.size - offset))
            return self._pread(self._data_offset(key, entry) + offset, length, key)
        with self._lock:
            kept = self._inflated
        if kept is None or kept[0] != key:
            kept = (key, self.get(key) or b"")
            with self._lock:
                self._inflated = kept
        return kept[1][offset : offset + length]

    def size(self, key: str) -> int | None:
        entry = self._members.get(key)
        return None if entry is None else entry.size

    def _tree(self) -> dict[str, tuple[set[str], set[str]]]:
        """Names of folders and values by folder, built once."""
        with self._lock:
            if self._folders is None:
                self._folders = _zip_tree(self._members)
            return self._folders

    def has(self, key: str, limit: int | None = None) -> bool:
        return self.size(key) is not None

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        folders, files = self._tree().get(prefix, (set(), set()))
        return sorted(folders), sorted(files)

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        tree = self._tree()
        pending = [prefix]
        while pending:
            folder = pending.pop()
            folders, files = tree.get(folder, (set(), set()))
            base = f"{folder}/" if folder else ""
            pending.extend(base + name for name in folders)
            for name in files:
                yield base + name, self._members[base + name].size

    def close(self) -> None:
        self._file.close()


def _zip_tree(members: Iterable[str]) -> dict[str, tuple[set[str], set[str]]]:
    tree: dict[str, tuple[set[str], set[str]]] = {}
    for key in members:
        folder, _, name = key.rpartition("/")
        tree.setdefault(folder, (set(), set()))[1].add(name)
        while folder:
            parent, _, name = folder.rpartition("/")
            known = tree.setdefault(parent, (set(), set()))[0]
            if name in known:
                break
            known.add(name)
            folder = parent
    return tree


class _ZipDirectory:
    """Reads the central directory of an archive, with or without ZIP64 fields."""

    def __init__(self, path: str, file: PositionalFile) -> None:
        self.path = path
        self.file = file
        self.length = file.size

    def members(self) -> dict[str, ZipMember]:
        """The members by name; directories are left out."""
        count, size, offset, end = self._locate()
        if limits.MAX_ZIP_ENTRIES < count <= size // 46 and size <= self.length:
            raise CorruptDataError(
                f"{self.path}: the zip archive has {count} members, more than the {limits.MAX_ZIP_ENTRIES} that are"
                " accepted",
                hint=limits.raised_by("MAX_ZIP_ENTRIES", count),
                path=self.path,
            )
        if count > limits.MAX_ZIP_ENTRIES or size > self.length:
            raise self._damaged(f"it claims {count} members in a directory of {size} bytes")
        # Data in front of the archive (a self-extracting one, say) moves every offset by its length.
        shift = end - size - offset
        if shift < 0 or count * 46 > size:
            raise self._damaged("its directory does not lie where the end record says")
        return self._parse(self.file.read(end - size, size), count, shift)

    def _damaged(self, why: str) -> CorruptDataError:
        return CorruptDataError(
            f"{self.path}: the zip archive is cut short or damaged ({why})",
            path=self.path,
            hint="download or copy the archive again",
        )

    def _parts(self) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"{self.path}: a zip archive in several parts is not read",
            path=self.path,
            hint="join the parts into one archive first",
        )

    def _locate(self) -> tuple[int, int, int, int]:
        """Number of entries, size and offset of the directory, and where the directory ends in the file."""
        start = max(0, self.length - 22 - 0xFFFF)
        tail = self.file.read(start, self.length - start)
        at = _end_record(tail)
        if at < 0:
            raise self._damaged("the end of its directory is not there")
        disk, first, here, count, size, offset, _ = struct.unpack("<4H2LH", tail[at + 4 : at + 22])
        end = start + at
        if end >= 20:
            locator = self.file.read(end - 20, 20)
            if locator[:4] == b"PK\x06\x07":
                return self._locate_64(locator, end - 20)
        if disk not in (0, 0xFFFF) or first not in (0, 0xFFFF) or here != count:
            raise self._parts()
        return count, size, offset, end

    def _locate_64(self, locator: bytes, end: int) -> tuple[int, int, int, int]:
        disk, where, disks = struct.unpack("<LQL", locator[4:20])
        if disk != 0 or disks > 1:
            raise self._parts()
        for place in (where, end - 56):  # the second where data stands in front of the archive
            if 0 <= place <= end - 56:
                record = self.file.read(place, 56)
                if record[:4] == b"PK\x06\x06":
                    numbers = struct.unpack("<2L4Q", record[16:56])
                    if numbers[0] or numbers[1] or numbers[2] != numbers[3]:
                        raise self._parts()
                    return numbers[3], numbers[4], numbers[5], place
        raise self._damaged("its ZIP64 end record is not there")

    def _parse(self, data: bytes, count: int, shift: int) -> dict[str, ZipMember]:
        members: dict[str, ZipMember] = {}
        header = struct.Struct("<4s4xHH4xLLLHHH8xL")  # 46 bytes, without what is of no use here
        at = 0
        for _ in range(count):
            if at + 46 > len(data):
                raise self._damaged("its directory ends early")
            magic, flags, method, crc, packed, size, name_len, extra_len, note_len, offset = (
                header.unpack_from(data, at)
            )
            if magic != b"PK\x01\x02":
                raise self._damaged("an entry of its directory has a wrong signature")
            names = at + 46
            extra_at = names + name_len
            at = extra_at + extra_len + note_len
            if at > len(data):
                raise self._damaged("its directory ends early")
            if 0xFFFFFFFF in (packed, size, offset):
                extra = data[extra_at : extra_at + extra_len]
                packed, size, offset = self._wide(extra, packed, size, offset)
            name = _zip_name(data[names:extra_at])
            if not name.endswith("/"):
                members[name] = ZipMember(method, flags, crc, packed, size, offset + shift)
        return members

    def _wide(self, extra: bytes, packed: int, size: int, offset: int) -> tuple[int, int, int]:
        """Replace the numbers that did not fit 32 bits by those of the ZIP64 extra field."""
        at = 0
        while at + 4 <= len(extra):
            kind, length = struct.unpack_from("<HH", extra, at)
            if kind == 1:
                field = extra[at + 4 : at + 4 + length]
                numbers = iter(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
                wanted = (size, packed, offset)
                found = [next(numbers, -1) if n == 0xFFFFFFFF else n for n in wanted]
                if -1 in found:
                    break
                return found[1], found[0], found[2]
            at += 4 + length
        raise self._damaged("an entry lacks its ZIP64 numbers")


def _end_record(tail: bytes) -> int:
    """Where the end record starts in the archive's last bytes, -1 when it is not there.

    Its signature may be in the comment too, so the record whose comment ends with the file counts first; next comes the
    last one that is whole, since some tools leave bytes behind it.
    """
    whole = -1
    at = tail.rfind(b"PK\x05\x06", 0, max(0, len(tail) - 18))
    while at >= 0:
        end = at + 22 + int.from_bytes(tail[at + 20 : at + 22], "little")
        if end == len(tail):
            return at
        whole = at if whole < 0 and end < len(tail) else whole
        at = tail.rfind(b"PK\x05\x06", 0, at)
    return whole


def _zip_name(raw: bytes) -> str:
    """A member's name: UTF-8, whether its flag says so or not, else the code page of old archives.

    Some archivers of Windows separate folders by backslashes, and some put `./` in front.
    """
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        name = raw.decode("cp437")
    return name.replace("\\", "/").removeprefix("./")


def _inflate(packed: bytes, size: int, path: str, key: str) -> bytes:
    """Inflate a raw deflate stream to exactly `size` bytes; never more, so that a bomb stops early."""
    import zlib

    machine = zlib.decompressobj(-15)
    try:
        data = machine.decompress(packed, size + 1)
    except zlib.error as error:
        raise CorruptDataError(f"deflate: {error}", path=path, where=key) from error
    if len(data) != size or not machine.eof:
        raise CorruptDataError(
            f"the member does not inflate to the {size} bytes it declares", path=path, where=key
        )
    return data
