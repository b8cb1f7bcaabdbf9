"""Stores: bytes by key, read-only, from a directory, from behind a URL, or in place from a zip archive.

Keys are `/`-separated and relative, as in the Zarr v3 core specification, section "Stores". A key from a file is made
with `join_key`, which refuses everything that would leave the store.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from openreadout import system
from openreadout.errors import (
    CorruptDataError,
    StorageError,
    UnsupportedFeatureError,
    storage_error,
)
from openreadout.limits import (
    MAX_ENCODED_BYTES,
    MAX_JSON_BYTES,
    MAX_JSON_CONTAINERS,
    MAX_JSON_DEPTH,
    MAX_ZIP_ENTRIES,
)
from openreadout.remote.urls import is_url


class Store(Protocol):
    """Bytes by key. All methods may be called from several threads."""

    kind: str
    """`directory` or `zip`, as people are told."""

    path: str
    """The directory or archive."""

    @property
    def can_list(self) -> bool:
        """Whether `list_dir` can tell what is in a folder; a web server often cannot, and then it raises."""
        ...

    @property
    def can_walk(self) -> bool:
        """Whether `walk` can give every key."""
        ...

    def get(self, key: str, limit: int = MAX_ENCODED_BYTES) -> bytes | None:
        """The whole value, or None when the key is absent.

        Raises `StorageError` when the system refuses to read it and `CorruptDataError` when it exceeds `limit`.
        """
        ...

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """At most `length` bytes from `offset`; fewer where the value ends. None when the key is absent."""
        ...

    def size(self, key: str) -> int | None:
        """Length of the value in bytes, or None when the key is absent."""
        ...

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        """Names of the folders and of the values directly below a prefix, each sorted; empty when it is absent.

        A link to another folder of the store is left out: it is listed under its own name, and links may go in circles.
        """
        ...

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Every key below a prefix with its size, in no particular order.

        A folder without anything in it is given too, with a `/` at its end: it may stand where a value belongs.
        """
        ...

    def close(self) -> None:
        """Release what is open."""
        ...


def join_key(*parts: str) -> str:
    """Join parts of a key; `""` and `/` parts vanish.

    Raises
    ------
    CorruptDataError
        A part climbs (`..`), is absolute on some system, or holds a NUL: a file must not point outside its store.
    """
    names = [name for part in parts for name in part.split("/") if name not in ("", ".")]
    for name in names:
        if name == ".." or "\0" in name or "\\" in name or (len(name) == 2 and name[1] == ":"):
            raise CorruptDataError(
                f"the path {'/'.join(parts)!r} leads out of the data set",
                hint="the metadata may have been tampered with",
            )
    return "/".join(names)


MAX_REMEMBERED = 1 << 16
"""Folders of a store that are remembered as its own."""


class DirectoryStore:
    """The files below a directory. Links are followed as long as they stay below it."""

    kind = "directory"
    can_list = can_walk = True

    def __init__(self, path: str) -> None:
        self.path = path
        self._root: str | None = None
        self._own: set[str] = set()

    def _file(self, key: str) -> str:
        return os.path.join(self.path, *key.split("/")) if key else self.path

    def _stay(self, key: str) -> None:
        """Refuse a key whose file or one of whose folders is a link out of the store.

        Folders that were looked at are remembered, so a key costs one more system call than without this.
        """
        at = 0
        while at >= 0:
            at = key.find("/", at + 1)
            part = key if at < 0 else key[:at]
            if part in self._own:
                continue
            try:
                link = stat.S_ISLNK(os.lstat(self._file(part)).st_mode)
            except (OSError, ValueError):
                return  # it is not there, or whoever opens it says why not
            if link:
                self._refuse_leaving(part)
            if at >= 0:
                if len(self._own) >= MAX_REMEMBERED:
                    self._own.clear()
                self._own.add(part)

    def _leaves(self, file: str) -> bool:
        """Whether a path leads out of the store once its links are resolved."""
        if self._root is None:
            self._root = os.path.realpath(self.path)
        target = os.path.realpath(file)
        return target != self._root and not target.startswith(self._root.rstrip(os.sep) + os.sep)

    def _refuse_leaving(self, key: str) -> None:
        if self._leaves(self._file(key)):
            raise CorruptDataError(
                "a link leads out of the data set",
                path=self.path,
                where=key,
                hint="copy the data set with what its links point to (cp -rL), and use the copy",
            )

    def _open(self, key: str) -> tuple[int, int] | None:
        """Descriptor and size of the file of a key; only of a regular file, and never waiting for a pipe's writer."""
        file = self._file(key)
        self._stay(key)
        try:
            fd = os.open(file, os.O_RDONLY | system.OPEN_FLAGS)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            return None
        except (OSError, ValueError) as error:
            if isinstance(error, OSError):
                if error.errno == errno.ENAMETOOLONG:
                    return None
                raise storage_error(error, file, where=key) from error
            raise StorageError(f"{file!r}: not a file name", path=file, where=key) from error
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode):
            return fd, status.st_size
        os.close(fd)
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise StorageError(f"{what} stands where a file belongs", path=file, where=key)

    def get(self, key: str, limit: int = MAX_ENCODED_BYTES) -> bytes | None:
        opened = self._open(key)
        if opened is None:
            return None
        fd, size = opened
        try:
            if size > limit:
                raise CorruptDataError(
                    f"{size} bytes, more than the {limit} that are accepted",
                    path=self.path,
                    where=key,
                )
            return _read_exactly(fd, 0, size)
        except OSError as error:
            raise storage_error(error, self._file(key), where=key) from error
        finally:
            os.close(fd)

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        opened = self._open(key)
        if opened is None:
            return None
        fd, size = opened
        try:
            return _read_exactly(fd, offset, max(0, min(length, size - offset)))
        except OSError as error:
            raise storage_error(error, self._file(key), where=key) from error
        finally:
            os.close(fd)

    def size(self, key: str) -> int | None:
        self._stay(key)
        try:
            status = os.stat(self._file(key))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise storage_error(error, self._file(key), where=key) from error
        if not stat.S_ISREG(status.st_mode):
            raise StorageError("not a regular file", path=self._file(key), where=key)
        return status.st_size

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        folders: list[str] = []
        files: list[str] = []
        if prefix:
            self._stay(prefix)
        try:
            with os.scandir(self._file(prefix)) as entries:
                for entry in entries:
                    if not entry.is_dir():
                        files.append(entry.name)
                    elif not entry.is_symlink() or self._leaves(entry.path):
                        folders.append(entry.name)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return [], []
        except OSError as error:
            raise storage_error(error, self._file(prefix), where=prefix) from error
        return sorted(folders), sorted(files)

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        pending = [prefix]
        while pending:
            folder = pending.pop()
            try:
                empty = True
                with os.scandir(self._file(folder)) as entries:
                    for entry in entries:
                        empty = False
                        key = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(key)
                        else:
                            yield key, entry.stat(follow_symlinks=False).st_size
                if empty and folder != prefix:
                    yield f"{folder}/", 0
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise storage_error(error, self._file(folder), where=folder) from error

    def close(self) -> None:
        """Nothing stays open between calls."""


def _read_exactly(fd: int, offset: int, length: int) -> bytes:
    """Read `length` bytes, or up to the end of the file; a system call may give fewer than asked for."""
    data = system.pread(fd, length, offset)
    if len(data) in (0, length):
        return data
    parts = [data]
    done = len(data)
    while done < length:
        data = system.pread(fd, length - done, offset + done)
        if not data:
            break
        parts.append(data)
        done += len(data)
    return b"".join(parts)


class PositionalFile(Protocol):
    """A file that several threads read by position."""

    size: int

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`; fewer where the file ends. Raises `OSError`."""
        ...

    def ahead(self, offset: int, length: int) -> None:
        """Told of what is read next in pieces, which costs a request each where the file is far away."""
        ...

    def release(self) -> None:
        """What `ahead` fetched is not needed any more."""
        ...

    def close(self) -> None:
        """Release what is open; more than once does no harm."""
        ...


class LocalFile:
    """A file on a disk that is read by position."""

    def __init__(self, path: str) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | system.OPEN_FLAGS)
        except OSError as error:
            raise storage_error(error, path) from error
        self._closed = False
        self.size = 0
        try:
            self.size = os.fstat(self._fd).st_size
        except OSError as error:
            self.close()
            raise storage_error(error, path) from error

    def read(self, offset: int, length: int) -> bytes:
        # The system call allocates what it is asked for, so it is not asked for more than there is.
        length = max(0, min(length, self.size - offset))
        return _read_exactly(self._fd, offset, length) if length else b""

    def ahead(self, offset: int, length: int) -> None:
        """The system reads ahead itself."""

    def release(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._fd)


def open_positional(path: str) -> PositionalFile:
    """A file on a disk or behind a URL, to be read by position."""
    if is_url(path):
        from openreadout.remote.store import RemoteFile

        return RemoteFile(path)
    return LocalFile(path)


def open_store(path: str, *, trust_consolidated: bool = False) -> Store:
    """The store of a folder, on a disk or behind a URL."""
    if is_url(path):
        from openreadout.remote.store import RemoteStore

        return RemoteStore(path, trust_consolidated=trust_consolidated)
    return DirectoryStore(path)


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

    def get(self, key: str, limit: int = MAX_ENCODED_BYTES) -> bytes | None:
        entry = self._entry(key)
        if entry is None:
            return None
        if entry.size > limit or entry.packed > MAX_ENCODED_BYTES:
            raise CorruptDataError(
                f"{entry.size} bytes, more than the {limit} that are accepted",
                path=self.path,
                where=key,
            )
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
        if count > MAX_ZIP_ENTRIES or size > self.length:
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


class StoredObject:
    """One value of a store, read by byte range."""

    def __init__(self, store: Store, key: str, size: int) -> None:
        self._store = store
        self._key = key
        self._size = size

    def size(self) -> int:
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        data = (
            self._store.get_range(self._key, offset, length) if offset >= 0 and length >= 0 else b""
        )
        if data is None or len(data) != length:
            raise CorruptDataError(
                f"bytes {offset} to {offset + length} are not all there: it has {self._size}",
                where=self._key,
            )
        return data


class MemoryObject:
    """Bytes in memory, read by range; what a nested shard is decoded from."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = memoryview(data).cast("B")

    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > len(self._data):
            raise CorruptDataError(
                f"bytes {offset} to {offset + length} are not all there: it has {len(self._data)}"
            )
        return bytes(self._data[offset : offset + length])


def read_json(store: Store, key: str) -> Any:
    """Parse a JSON document of a store; None when it is absent.

    Raises
    ------
    CorruptDataError
        Empty, not UTF-8, not JSON, too large or nested too deep.
    """
    data = store.get(key, MAX_JSON_BYTES)
    return None if data is None else parse_json(data, key, store.path)


def parse_json(data: bytes, key: str, path: str) -> Any:
    """Parse a JSON document; NaN and Infinity, which some writers leave, are taken as Python does."""
    import json

    if data.count(b"[") + data.count(b"{") > MAX_JSON_CONTAINERS:
        raise CorruptDataError(
            f"the JSON has more than {MAX_JSON_CONTAINERS} lists and objects", path=path, where=key
        )
    try:
        document = json.loads(data)
    except RecursionError:
        raise CorruptDataError("the JSON is nested too deep", path=path, where=key) from None
    except ValueError as error:
        what = "is empty" if not data.strip() else f"is not whole JSON ({error})"
        raise CorruptDataError(f"the document {what}", path=path, where=key) from error
    if len(data) > MAX_JSON_DEPTH and _depth_exceeds(document, MAX_JSON_DEPTH):
        raise CorruptDataError("the JSON is nested too deep", path=path, where=key)
    return document


def _depth_exceeds(document: Any, limit: int) -> bool:
    """Whether containers are nested deeper than `limit`, found level by level without recursion."""
    level = [document]
    for _ in range(limit):
        level = [
            child for node in level for child in _children(node) if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _children(node: Any) -> Sequence[Any]:
    return list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else ()


def total_size(path: str) -> int | None:
    """Bytes of a file, or of all files below a directory (links are not followed).

    None for a folder behind a URL: adding it up would take as long as listing all its chunks.
    """
    if is_url(path):
        from openreadout.remote.store import size_of

        return size_of(path)
    try:
        status = os.stat(path)
    except OSError as error:
        raise storage_error(error, path) from error
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    return sum(size for _, size in DirectoryStore(path).walk(""))


def total_sizes(paths: Iterable[str]) -> int | None:
    """`total_size` of several; None when one of them is not known."""
    sizes = [total_size(path) for path in paths]
    return None if None in sizes else sum(size or 0 for size in sizes)


def source_state(path: str) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of change (ns) of a file, or of every file below a directory in order of name.

    Links below the directory stand for themselves: they may go in circles, or lead to nothing. Of what lies behind a
    URL the size alone is known, and that only of a single file.
    """
    if is_url(path):
        yield path, total_size(path) or 0, 0
        return
    pending = [path]
    while pending:
        current = pending.pop()
        try:
            status = os.stat(current) if current == path else os.lstat(current)
            if stat.S_ISDIR(status.st_mode):
                pending += sorted(
                    (os.path.join(current, n) for n in os.listdir(current)), reverse=True
                )
            else:
                yield current, status.st_size, status.st_mtime_ns
        except OSError as error:
            raise storage_error(error, current) from error
