"""Positional reads of the files of a set, with a bound on how many are open at once.

Each file has a descriptor of its own that only positional reads use, so any number of threads may read. Sets of
thousands of files share a few dozen descriptors.
"""

from __future__ import annotations

import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from openreadout import system
from openreadout.errors import CorruptDataError, FileError, storage_error
from openreadout.remote.urls import child, is_url, name_of, parent
from openreadout.stores import PositionalFile, open_positional, total_size

if TYPE_CHECKING:
    from openreadout.contracts import Source

MAX_OPEN = 64
"""Files held open at once; the usual limit of a process is 256 on macOS and 1024 on Linux."""


class Handles:
    """Descriptors by path, opened when needed; the one unused for longest is closed first."""

    def __init__(self, limit: int = MAX_OPEN) -> None:
        self._limit = limit
        self._remote: dict[str, PositionalFile] = {}
        self._lock = threading.Lock()
        self._open: OrderedDict[str, int] = OrderedDict()
        self._users: dict[int, int] = {}
        self._leaving: set[int] = set()

    @classmethod
    def of(cls, source: Source) -> Handles:
        """Handles for a set that is opened by one of its files, which may have been looked at already."""
        handles = cls()
        if source.file is not None:
            handles._remote[source.path] = source.file
        return handles

    def remote(self, url: str) -> PositionalFile:
        """A file behind a URL; one for each, with what it keeps of it."""
        with self._lock:
            file = self._remote.get(url)
        if file is None:
            file = open_positional(url)
            with self._lock:
                file = self._remote.setdefault(url, file)
        return file

    def acquire(self, path: str) -> int:
        """A descriptor of the file, which stays open until `release`."""
        with self._lock:
            fd = self._open.get(path)
            if fd is None:
                fd = open_file(path)
                self._open[path] = fd
                self._users[fd] = 0
            self._open.move_to_end(path)
            self._users[fd] += 1
            self._trim()
            return fd

    def release(self, fd: int) -> None:
        """The caller is done with a descriptor."""
        with self._lock:
            self._users[fd] -= 1
            if fd in self._leaving and self._users[fd] == 0:
                self._leaving.discard(fd)
                del self._users[fd]
                os.close(fd)

    def _trim(self) -> None:
        for path in list(self._open):
            if len(self._open) <= self._limit:
                return
            fd = self._open[path]
            if self._users[fd] == 0:
                del self._open[path], self._users[fd]
                os.close(fd)

    def close(self) -> None:
        """Close everything; a later read opens its file again."""
        with self._lock:
            for fd in self._open.values():
                if self._users[fd]:  # a read is under way in another thread
                    self._leaving.add(fd)
                else:
                    del self._users[fd]
                    os.close(fd)
            self._open.clear()


def open_file(path: str) -> int:
    """A descriptor of a regular file.

    Raises
    ------
    StorageError
        The system refuses, or something else than a file stands there.
    """
    try:
        fd = os.open(path, os.O_RDONLY | system.OPEN_FLAGS)
    except ValueError as error:
        raise FileError(f"{path!r}: not a file name", path=path) from error
    except OSError as error:
        raise storage_error(error, path) from error
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise FileError(f"{path}: not a regular file", path=path)


def is_file(path: str) -> bool:
    """Whether a file stands there, on a disk or behind a URL."""
    return total_size(path) is not None if is_url(path) else os.path.isfile(path)


def file_name(path: str) -> str:
    """The name of a file in its folder."""
    return name_of(path) if is_url(path) else os.path.basename(path)


def beside(folder: str, key: str) -> str:
    """The path of a file below a folder."""
    return child(folder, key) if is_url(folder) else os.path.join(folder, *key.split("/"))


def folder_of(path: str) -> str:
    """The folder that a file lies in."""
    return parent(path) if is_url(path) else os.path.dirname(path) or "."


class File:
    """One file, read by position.

    Parameters
    ----------
    path : str
    handles : Handles
        Shared by the files of a set.
    """

    def __init__(self, path: str, handles: Handles) -> None:
        self.path = path
        self._handles = handles
        self._far: PositionalFile | None = handles.remote(path) if is_url(path) else None
        if self._far is not None:
            self.size = self._far.size
            return
        fd = handles.acquire(path)
        try:
            self.size = os.fstat(fd).st_size
        finally:
            handles.release(fd)

    @property
    def is_far(self) -> bool:
        """Whether it lies behind a URL, where each read may be a request."""
        return self._far is not None

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Told of short ranges (offset, length) that are read next; those of a file far away are asked for together."""
        if self._far is not None:
            self._far.expect(ranges)

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`; fewer where the file ends."""
        length = min(length, self.size - offset)
        if length <= 0 or offset < 0:
            return b""
        if self._far is not None:
            return self._far.read(offset, length)
        fd = self._handles.acquire(self.path)
        try:
            data = system.pread(fd, length, offset)
            while 0 < len(data) < length:
                more = system.pread(fd, length - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise storage_error(error, self.path) from error
        finally:
            self._handles.release(fd)
        return data

    def read_exactly(self, offset: int, length: int, what: str) -> bytes:
        """Exactly `length` bytes.

        Raises
        ------
        CorruptDataError
            The file ends before them; `what` says what they are.
        """
        data = self.read(offset, length)
        if len(data) != length:
            raise self.truncated(f"{what} lies past the end", offset)
        return data

    def truncated(self, what: str, offset: int) -> CorruptDataError:
        """The error for something that the file ends before; `check` reports it as `truncated`."""
        error = CorruptDataError(
            f"{what}: the file is truncated at {self.size} bytes",
            path=self.path,
            where=f"byte {offset}",
        )
        error.finding = "truncated"
        return error
