"""Stores: bytes by key, read-only; the one of a directory, and how the others are opened.

Keys are `/`-separated and relative, as in the Zarr v3 core specification, section "Stores". A key from a file is made
with `join_key`, which refuses everything that would leave the store.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from openreadout import limits, system
from openreadout.errors import CorruptDataError, FileError, storage_error
from openreadout.jsons import parse_json
from openreadout.remote.urls import is_url

BATCH = 64
"""Images, wells of a plate or IFDs that are asked for together where each is a wait."""
Item = TypeVar("Item")


class Store(Protocol):
    """Bytes by key. All methods may be called from several threads."""

    kind: str
    """`directory` or `zip`, as people are told."""

    path: str
    """The directory or archive."""

    far: bool
    """Whether to look up a single key costs a request to a server."""

    @property
    def can_list(self) -> bool:
        """Whether `list_dir` can tell what is in a folder; a web server often cannot, and then it raises."""
        ...

    @property
    def can_walk(self) -> bool:
        """Whether `walk` can give every key."""
        ...

    def get(self, key: str, limit: int | None = None) -> bytes | None:
        """The whole value, or None when the key is absent.

        Raises `StorageError` when the system refuses to read it and `CorruptDataError` when it exceeds `limit`, or
        without one what a stored chunk may have.
        """
        ...

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """At most `length` bytes from `offset`; fewer where the value ends. None when the key is absent."""
        ...

    def size(self, key: str) -> int | None:
        """Length of the value in bytes, or None when the key is absent."""
        ...

    def has(self, key: str, limit: int | None = None) -> bool:
        """Whether there is a value, which is likely to be read next if there is.

        Where each question is a request, the value may come with the answer; then this raises what `get` raises.
        """
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


@runtime_checkable
class FarStore(Protocol):
    """What a store behind a URL can do beside, so that a shard takes one request before its first chunk."""

    def get_edge(self, key: str, length: int, *, start: bool = False) -> tuple[bytes, int] | None:
        """The last (with `start` the first) `length` bytes of a value and its whole length, None when it is absent.

        All of a value that is no longer than that. The store keeps it for a while, for ranges that lie in it. Raises
        what `Store.get` raises.
        """
        ...

    def expect(self, keys: Iterable[str]) -> None:
        """Ask for metadata documents, and for the sizes of other values, all at once, before they are asked for singly.

        What is known already is not asked for. Raises `RemoteError`; other errors wait for whoever wants the value.
        """
        ...


def batches(items: Iterable[Item], *first: int) -> Iterator[list[Item]]:
    """The same in lists of what is expected together; the first ones may be shorter, where often nobody wants more."""
    items = iter(items)
    for size in itertools.chain(first, itertools.repeat(BATCH)):
        if not (batch := list(itertools.islice(items, size))):
            return
        yield batch


def expect(store: Store, keys: Iterable[str]) -> None:
    """Tell a store what is looked at next, documents and sizes; where each costs a request they are made at once."""
    if isinstance(store, FarStore):
        store.expect(keys)


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


LINK = -2
"""Stands for a descriptor where a link lies."""
MAX_REMEMBERED = 1 << 16
"""Folders of a store that are remembered as its own."""


class DirectoryStore:
    """The files below a directory. Links are followed as long as they stay below it."""

    kind = "directory"
    can_list = can_walk = True
    far = False

    def __init__(self, path: str) -> None:
        self.path = path
        self._below = os.path.join(path, "")
        self._root: str | None = None
        self._own: set[str] = set()
        self._last = threading.local()

    def _file(self, key: str) -> str:
        return (
            self._below + (key if os.sep == "/" else key.replace("/", os.sep)) if key else self.path
        )

    def _stay(self, key: str) -> None:
        """Refuse a key whose file or one of whose folders is a link out of the store."""
        self._stay_above(key)
        if self._is_link(key):
            self._refuse_leaving(key)

    def _is_link(self, key: str) -> bool | None:
        """Whether a link stands there; None where nothing is, or the system refuses: whoever opens it says why."""
        try:
            return stat.S_ISLNK(os.lstat(self._file(key)).st_mode)
        except (OSError, ValueError):
            return None

    def _stay_above(self, key: str) -> None:
        """Refuse a key one of whose folders is a link out of the store; folders that were looked at are remembered."""
        at = key.find("/", 1)
        while at >= 0:
            folder = key[:at]
            if folder not in self._own:
                link = self._is_link(folder)
                if link is None:
                    return
                if link:
                    self._refuse_leaving(folder)
                if len(self._own) >= MAX_REMEMBERED:
                    self._own.clear()
                self._own.add(folder)
            at = key.find("/", at + 1)

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
        if system.NO_FOLLOW:
            self._stay_above(key)
        else:
            self._stay(key)
        fd = self._descriptor(key, system.NO_FOLLOW)
        if fd == LINK:
            self._refuse_leaving(key)
            fd = self._descriptor(key, 0)
        if fd is None:
            return None
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode):
            return fd, status.st_size
        os.close(fd)
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise FileError(f"{what} stands where a file belongs", path=file, where=key)

    def _descriptor(self, key: str, more: int) -> int | None:
        """The file of a key opened, `LINK` where `more` forbids to follow one, None where there is none."""
        file = self._file(key)
        try:
            return os.open(file, os.O_RDONLY | system.OPEN_FLAGS | more)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            if more and error.errno in (errno.ELOOP, errno.EMLINK):
                return LINK
            raise storage_error(error, file, where=key) from error
        except ValueError as error:
            raise FileError(f"{file!r}: not a file name", path=file, where=key) from error

    def get(self, key: str, limit: int | None = None) -> bytes | None:
        opened = self._open(key)
        if opened is None:
            return None
        fd, size = opened
        try:
            if size > (limit := limits.MAX_ENCODED_BYTES if limit is None else limit):
                raise too_long(size, limit, self.path, key)
            return _read_exactly(fd, 0, size)
        except OSError as error:
            raise storage_error(error, self._file(key), where=key) from error
        finally:
            os.close(fd)

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        handle: _Handle | None = getattr(self._last, "handle", None)
        if handle is None or handle.key != key:
            opened = self._open(key)
            if opened is None:
                return None
            handle = self._last.handle = _Handle(key, *opened)
        try:
            return _read_exactly(handle.fd, offset, max(0, min(length, handle.size - offset)))
        except OSError as error:
            raise storage_error(error, self._file(key), where=key) from error

    def size(self, key: str) -> int | None:
        self._stay_above(key)
        status = self._status(key, os.lstat)
        if status is not None and stat.S_ISLNK(status.st_mode):
            self._refuse_leaving(key)
            status = self._status(key, os.stat)
        if status is None:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise FileError("not a regular file", path=self._file(key), where=key)
        return status.st_size

    def _status(self, key: str, look: Callable[[str], os.stat_result]) -> os.stat_result | None:
        try:
            return look(self._file(key))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise storage_error(error, self._file(key), where=key) from error

    def has(self, key: str, limit: int | None = None) -> bool:
        return self.size(key) is not None

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
        """Close the files that threads have kept open; one that is just being read closes when that is done."""
        self._last = threading.local()


class _Handle:
    """A file that a thread reads ranges of, open until it reads another, as the chunks of a shard lie in one."""

    __slots__ = ("fd", "key", "size")

    def __init__(self, key: str, fd: int, size: int) -> None:
        self.key = key
        self.fd = fd
        self.size = size

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)  # bound here: at the very end of a process modules lose their names


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

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Told of short ranges (offset, length) that are read next: where each costs a request they are made at once.

        A guess may be wrong, and lie past the end. Raises `RemoteError`.
        """
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

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """The system keeps what was read."""

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


class StoredObject:
    """One value of a store, read by byte range.

    Parameters
    ----------
    store : Store
    key : str
    size : int
    held : bytes
        A part of the value that is in memory already.
    held_from : int
        Where that part begins.
    """

    def __init__(
        self, store: Store, key: str, size: int, held: bytes = b"", held_from: int = 0
    ) -> None:
        self._store = store
        self._key = key
        self._size = size
        self._held = held
        self._held_from = held_from

    def size(self) -> int:
        return self._size

    def let_go(self) -> None:
        """Forget the part that is in memory."""
        self._held = b""

    def read(self, offset: int, length: int) -> bytes:
        held, inside = self._held, offset - self._held_from
        if inside >= 0 <= length and inside + length <= len(held):
            return held[inside : inside + length]
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


def too_long(size: int, limit: int, path: str, key: str) -> CorruptDataError:
    """The error for a value of `size` bytes where at most `limit` are taken."""
    return CorruptDataError(
        f"{size} bytes, more than the {limit} that are accepted",
        hint=limits.size_raised_by(limit, size),
        path=path,
        where=key,
    )


def read_json(store: Store, key: str) -> Any:
    """Parse a JSON document of a store; None when it is absent.

    Raises
    ------
    CorruptDataError
        Empty, not UTF-8, not JSON, too large or nested too deep.
    """
    data = store.get(key, limits.MAX_JSON_BYTES)
    return None if data is None else parse_json(data, key, store.path)


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


def sizes_below(path: str, folders: Collection[str]) -> tuple[int, dict[str, int]]:
    """Bytes of all files below a directory, and of those below each of some folders in it.

    A file counts for the innermost folder that it is in, and links are not followed.
    """
    total, found = 0, dict.fromkeys(folders, 0)
    owners: dict[str, str | None] = {"": None, **{folder: folder for folder in folders}}
    for key, size in DirectoryStore(path).walk(""):
        total += size
        place = here = key.rpartition("/")[0]
        while place not in owners:
            place = place.rpartition("/")[0]
        owner = owners[here] = owners[place]
        if owner is not None:
            found[owner] += size
    return total, found


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
