"""Stores: bytes by key, read-only, from a directory or in place from a zip archive.

Keys are `/`-separated and relative, as in the Zarr v3 core specification, section "Stores". A key from a file is made
with `join_key`, which refuses everything that would leave the store.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from openreadout import system
from openreadout.errors import (
    CorruptDataError,
    StorageError,
    UnsupportedFeatureError,
    storage_error,
)
from openreadout.limits import MAX_ENCODED_BYTES, MAX_JSON_BYTES, MAX_JSON_DEPTH, MAX_ZIP_ENTRIES

if TYPE_CHECKING:
    import zipfile


class Store(Protocol):
    """Bytes by key. All methods may be called from several threads."""

    kind: str
    """`directory` or `zip`, as people are told."""

    path: str
    """The directory or archive."""

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
        """Names of the folders and of the values directly below a prefix, each sorted; empty when it is absent."""
        ...

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Every key below a prefix with its size, in no particular order."""
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


class DirectoryStore:
    """The files below a directory."""

    kind = "directory"

    def __init__(self, path: str) -> None:
        self.path = path

    def _file(self, key: str) -> str:
        return os.path.join(self.path, *key.split("/")) if key else self.path

    def _open(self, key: str) -> tuple[int, int] | None:
        """Descriptor and size of the file of a key; only of a regular file, and never waiting for a pipe's writer."""
        file = self._file(key)
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
        folders, files = [], []
        try:
            with os.scandir(self._file(prefix)) as entries:
                for entry in entries:
                    (folders if entry.is_dir() else files).append(entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        except OSError as error:
            raise storage_error(error, self._file(prefix), where=prefix) from error
        return sorted(folders), sorted(files)

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        pending = [prefix]
        while pending:
            folder = pending.pop()
            try:
                with os.scandir(self._file(folder)) as entries:
                    for entry in entries:
                        key = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(key)
                        else:
                            yield key, entry.stat(follow_symlinks=False).st_size
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


class ZipStore:
    """The members of a zip archive, read in place.

    Sizes and offsets come from the central directory; the last of two entries of one name counts. Stored members are
    read by byte range. Deflated members are inflated whole, bounded by the size that the directory declares.

    Parameters
    ----------
    path : str
        The archive.
    prefix : str
        Folder inside the archive that is the root of the keys, without a trailing slash.
    """

    kind = "zip"

    def __init__(self, path: str, prefix: str = "") -> None:
        import zipfile

        self.path = path
        self.prefix = prefix
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - open for as long as the store is
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            with zipfile.ZipFile(self._file) as archive:
                entries = archive.infolist()
        except (
            zipfile.BadZipFile,
            zipfile.LargeZipFile,
            ValueError,
            EOFError,
            NotImplementedError,
        ) as error:
            self._file.close()
            raise _zip_error(path, error) from error
        except OSError as error:
            self._file.close()
            raise storage_error(error, path) from error
        # ZipFile closed nothing: the file object is ours. Reopen by descriptor so that reads need no shared position.
        self._fd = self._file.fileno()
        if len(entries) > MAX_ZIP_ENTRIES:
            raise CorruptDataError(
                f"{path}: {len(entries)} members, more than are accepted", path=path
            )
        base = f"{prefix}/" if prefix else ""
        self._members: dict[str, zipfile.ZipInfo] = {}
        for entry in entries:
            name = entry.filename
            if name.startswith(base) and not name.endswith("/"):
                self._members[name.removeprefix(base)] = entry
        self._folders: dict[str, tuple[set[str], set[str]]] | None = None

    def names(self) -> list[str]:
        """Every key."""
        return list(self._members)

    def _data_offset(self, key: str, entry: zipfile.ZipInfo) -> int:
        """Where a member's data starts, after its local header (whose name and extra field have lengths of their own)."""
        header = self._pread(entry.header_offset, 30, key)
        if len(header) < 30 or header[:4] != b"PK\x03\x04":
            raise CorruptDataError(
                "the archive's directory points to something else than a member",
                path=self.path,
                where=key,
            )
        names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        return entry.header_offset + 30 + names

    def _pread(self, offset: int, length: int, key: str) -> bytes:
        try:
            return _read_exactly(self._fd, offset, length)
        except OSError as error:
            raise storage_error(error, self.path, where=key) from error

    def _entry(self, key: str) -> zipfile.ZipInfo | None:
        entry = self._members.get(key)
        if entry is None:
            return None
        if entry.flag_bits & 0x41:
            raise UnsupportedFeatureError(
                f"{self.path}: the archive is encrypted",
                path=self.path,
                where=key,
                hint="unpack it with its password first",
            )
        if entry.compress_type not in (0, 8):
            raise UnsupportedFeatureError(
                f"{self.path}: zip method {entry.compress_type} is not read",
                path=self.path,
                where=key,
                hint="zip the data again with stored or deflated members",
            )
        return entry

    def get(self, key: str, limit: int = MAX_ENCODED_BYTES) -> bytes | None:
        entry = self._entry(key)
        if entry is None:
            return None
        if entry.file_size > limit:
            raise CorruptDataError(
                f"{entry.file_size} bytes, more than the {limit} that are accepted",
                path=self.path,
                where=key,
            )
        if entry.compress_type == 0:
            return self._whole(
                self._pread(self._data_offset(key, entry), entry.file_size, key), entry, key
            )
        packed = self._pread(
            self._data_offset(key, entry), min(entry.compress_size, MAX_ENCODED_BYTES), key
        )
        return self._whole(_inflate(packed, entry.file_size, self.path, key), entry, key)

    def _whole(self, data: bytes, entry: zipfile.ZipInfo, key: str) -> bytes:
        import zlib

        if len(data) != entry.file_size:
            raise CorruptDataError(
                f"{len(data)} of {entry.file_size} bytes are there", path=self.path, where=key
            )
        if zlib.crc32(data) != entry.CRC:
            raise CorruptDataError(
                "the archive's checksum does not match", path=self.path, where=key
            )
        return data

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        entry = self._entry(key)
        if entry is None:
            return None
        if entry.compress_type == 0:
            length = max(0, min(length, entry.file_size - offset))
            return self._pread(self._data_offset(key, entry) + offset, length, key)
        data = self.get(key)
        return None if data is None else data[offset : offset + length]

    def size(self, key: str) -> int | None:
        entry = self._members.get(key)
        return None if entry is None else entry.file_size

    def _tree(self) -> dict[str, tuple[set[str], set[str]]]:
        if self._folders is None:
            tree: dict[str, tuple[set[str], set[str]]] = {}
            for key in self._members:
                folder, _, name = key.rpartition("/")
                tree.setdefault(folder, (set(), set()))[1].add(name)
                while folder and name:
                    parent, _, name = folder.rpartition("/")
                    known = tree.setdefault(parent, (set(), set()))[0]
                    if name in known:
                        break
                    known.add(name)
                    folder = parent
            self._folders = tree
        return self._folders

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        folders, files = self._tree().get(prefix, (set(), set()))
        return sorted(folders), sorted(files)

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        base = f"{prefix}/" if prefix else ""
        return (
            (key, entry.file_size) for key, entry in self._members.items() if key.startswith(base)
        )

    def close(self) -> None:
        self._file.close()


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


def _zip_error(path: str, error: Exception) -> Exception:
    text = str(error)
    if "multiple disks" in text or isinstance(error, NotImplementedError):
        return UnsupportedFeatureError(
            f"{path}: a zip archive in several parts is not read",
            path=path,
            hint="join the parts into one archive first",
        )
    return CorruptDataError(
        f"{path}: the zip archive is cut short or damaged ({text.lower()})",
        path=path,
        hint="download or copy the archive again",
    )


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
            self._store.get_range(self._key, offset, length) if 0 <= offset and length >= 0 else b""
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


def total_size(path: str) -> int:
    """Bytes of a file, or of all files below a directory (links are not followed)."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise storage_error(error, path) from error
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    return sum(size for _, size in DirectoryStore(path).walk(""))
