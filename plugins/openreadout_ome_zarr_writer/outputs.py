"""Where bytes go: a folder of files, or one RFC-9 archive. Both can be read back while they are being written."""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Protocol

import xxhash

from openreadout import limits
from openreadout.errors import OpenReadoutError, StorageError, storage_error
from openreadout.stores import DirectoryStore, Store
from openreadout.system import sync_file, sync_folder

if TYPE_CHECKING:
    from openreadout.contracts import Journal, Share

PARTIAL = ".part"
"""Ending of a file that is not complete."""
_READ_BYTES = 1 << 20


class Stream(Protocol):
    """One value that is written piece by piece."""

    def write(self, data: bytes) -> None:
        """Append."""
        ...

    def close(self) -> None:
        """Make the value complete, under its key."""
        ...


class Output(Protocol):
    """Takes values by key."""

    store: Store
    files: int
    size: int
    ordered: bool
    """Whether values lie one after the other, so that their order must be told."""

    def expect(self, key: str) -> None:
        """The next value in order."""
        ...

    def skip(self, key: str) -> None:
        """A value that was expected has nothing in it and is not written."""
        ...

    def complete(self, key: str) -> bool:
        """Whether an earlier run wrote the value already."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write one value."""
        ...

    def stream(self, key: str) -> Stream:
        """Start a value that is written piece by piece."""
        ...

    def finish(self, documents: dict[str, bytes], *, sync: bool) -> None:
        """Write the metadata documents, the root's last."""
        ...

    def abort(self) -> None:
        """Release what is open."""
        ...


class Folder:
    """A directory store; files appear under their names only when they are complete.

    With `resume`, complete files stay and all others are removed: those count as complete that the journal holds with
    the digest that they have, and without a journal those that have their names. With `share`, other processes write to
    the folder too: files have temporary names of their own.
    """

    ordered = False

    def expect(self, key: str) -> None:
        """Files have no order."""

    def skip(self, key: str) -> None:
        """There is no file for it."""

    def __init__(
        self,
        path: str,
        *,
        resume: bool = False,
        share: Share | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.path = path
        self.share = share
        self.ending = PARTIAL if share is None else f".{secrets.token_hex(6)}{PARTIAL}"
        self._journal = journal
        self._there: dict[str, int] = self._left(path) if resume else {}
        self.store: Store = DirectoryStore(path)
        self.files = 0
        self.size = 0
        self._made: set[str] = set()
        self._lock = threading.Lock()
        self._open: set[_FileStream] = set()
        if share is None:
            self._make(path)

    def _left(self, path: str) -> dict[str, int]:
        """Complete files of an earlier run with their sizes, by key."""
        left = {}
        try:
            for folder, inside, names in os.walk(path):
                links = [name for name in inside if os.path.islink(os.path.join(folder, name))]
                for name in [*names, *links]:
                    file = os.path.join(folder, name)
                    key = os.path.relpath(file, path).replace(os.sep, "/")
                    if self._is_whole(key, file):
                        left[key] = os.stat(file).st_size
                    else:
                        os.unlink(file)
        except OSError as error:
            raise storage_error(error, path) from error
        return left

    def _is_whole(self, key: str, file: str) -> bool:
        if os.path.islink(file) or not os.path.isfile(file) or key.endswith(PARTIAL):
            return False
        if self._journal is None:
            return True
        noted = self._journal.noted(key)
        return noted is not None and noted == _digest_of(file)

    def complete(self, key: str) -> bool:
        return key in self._there

    def _make(self, folder: str) -> None:
        if folder not in self._made:
            try:
                os.makedirs(folder, exist_ok=True)
            except OSError as error:
                raise storage_error(error, folder) from error
            self._made.add(folder)

    def _file(self, key: str) -> str:
        file = os.path.join(self.path, *key.split("/"))
        self._make(os.path.dirname(file))
        return file

    def put(self, key: str, data: bytes) -> None:
        stream = self.stream(key)
        stream.write(data)
        stream.close()

    def stream(self, key: str) -> Stream:
        self.permitted()
        stream = _FileStream(self, key, self._file(key))
        with self._lock:
            self._open.add(stream)
        return stream

    def permitted(self) -> None:
        """Raise when nobody wants what is written any more."""
        if self.share is not None:
            self.share.permit()

    def done(self, stream: _FileStream, key: str, size: int, digest: str) -> None:
        """Count a file that is complete, and note it for a run that goes on with this one."""
        if self._journal is not None:
            self._journal.note(key, digest)
        with self._lock:
            self._open.discard(stream)
            self.files += 1
            self.size += size

    def finish(self, documents: dict[str, bytes], *, sync: bool) -> None:
        for key in reversed(documents):
            self._there.pop(key, None)
            self.put(key, documents[key])
        self.files += len(self._there)
        self.size += sum(self._there.values())
        if sync:
            self._sync()

    def _sync(self) -> None:
        try:
            for folder, _, names in os.walk(self.path):
                for name in names:
                    fd = os.open(os.path.join(folder, name), os.O_RDWR)
                    try:
                        sync_file(fd)
                    finally:
                        os.close(fd)
                sync_folder(folder)
        except OSError as error:
            raise storage_error(error, self.path) from error

    def abort(self) -> None:
        with self._lock:
            streams, self._open = list(self._open), set()
        for stream in streams:
            stream.drop()


def _digest_of(file: str) -> str:
    hashed = xxhash.xxh3_128()
    with open(file, "rb", buffering=0) as stream:
        while data := stream.read(_READ_BYTES):
            hashed.update(data)
    return hashed.hexdigest()


class _FileStream:
    """A file that is written under a temporary name."""

    def __init__(self, folder: Folder, key: str, path: str) -> None:
        self._folder = folder
        self._key = key
        self._path = path
        self._partial = f"{path}{folder.ending}"
        self._size = 0
        self._hashed = xxhash.xxh3_128()
        try:
            self._file: BinaryIO = open(self._partial, "wb", buffering=0)  # noqa: SIM115 - closed in close or drop
        except OSError as error:
            raise storage_error(error, path) from error

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        self._size += len(view)
        self._hashed.update(view)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise storage_error(error, self._path) from error

    def close(self) -> None:
        self._folder.permitted()
        share = self._folder.share
        try:
            if share is not None and share.sync:
                sync_file(self._file.fileno())
            self._file.close()
            os.replace(self._partial, self._path)
        except OSError as error:
            raise storage_error(error, self._path) from error
        self._folder.done(self, self._key, self._size, self._hashed.hexdigest())

    def drop(self) -> None:
        """Close the file and remove it."""
        with contextlib.suppress(OSError):
            self._file.close()
        # otherwise the whole folder is about to be removed, or resumed
        if self._folder.share is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._partial)


def open_bucket(url: str, *, resume: bool, journal: Journal | None) -> Output:
    """An output in an object store."""
    from openreadout_ome_zarr_writer.bucket import Bucket

    return Bucket(url, resume=resume, journal=journal)


# -- archives --------------------------------------------------------------------------------------

_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR = struct.Struct("<4sIQI")
_END = struct.Struct("<4sHHHHIIH")
_VERSION = 45
_UTF8 = 0x800
_DATE = (
    1 << 5
) | 1  # 1980-01-01: no clock in the bytes, so that one input always gives one archive
COMMENT = b'{"ome": {"version": "0.5", "zipFile": {"centralDirectory": {"jsonFirst": true}}}}'
_LOCAL_EXTRA_BYTES = 20
_CENTRAL_EXTRA_BYTES = 28
END_BYTES = _END64.size + _LOCATOR.size + _END.size + len(COMMENT)
"""What ends an archive, beside the entries of its directory."""


def member_bytes(name: str) -> int:
    """Bytes that a member takes beside its data: its header, and its entry in the directory."""
    length = len(name.encode("utf-8"))
    return _LOCAL.size + _LOCAL_EXTRA_BYTES + _CENTRAL.size + _CENTRAL_EXTRA_BYTES + 2 * length


class _Member:
    """Where a member lies in the archive."""

    __slots__ = ("crc", "data", "header", "size")

    def __init__(self, header: int, data: int, size: int, crc: int) -> None:
        self.header = header
        self.data = data
        self.size = size
        self.crc = crc


class Archive:
    """A zip archive of stored members, as RFC-9 recommends: documents first, ZIP64 throughout, no data descriptors.

    The documents' places are reserved at the start, with the widest numbers that they may come to hold, since some are
    known only at the end; what is left of the room is filled with spaces, which JSON and XML allow. Chunks and shards
    lie in the order that `expect` told, whichever thread is done first, so that one input always gives one archive.
    """

    ordered = True

    def __init__(self, path: str, documents: dict[str, bytes]) -> None:
        self.path = path
        self.files = 1
        self.size = 0
        self._members: dict[str, _Member] = {}
        self._expected: deque[str] = deque()
        self._ready: dict[str, bytes | None] = {}
        self._lock = threading.Lock()
        try:
            self._file: BinaryIO = open(path, "x+b")  # noqa: SIM115 - closed in finish or abort
        except OSError as error:
            raise storage_error(error, path) from error
        self.store: Store = _ArchiveStore(self)
        for key, data in documents.items():
            self._append(key, b" " * len(data))

    def _append(self, key: str, data: bytes) -> None:
        name = key.encode("utf-8")
        try:
            self._file.seek(0, os.SEEK_END)
            header = self._file.tell()
            crc = zlib.crc32(data)
            self._file.write(_local(name, len(data), crc) + data)
        except OSError as error:
            raise storage_error(error, self.path) from error
        self._members[key] = _Member(
            header, header + _LOCAL.size + len(name) + _LOCAL_EXTRA_BYTES, len(data), crc
        )

    def expect(self, key: str) -> None:
        with self._lock:
            self._expected.append(key)

    def skip(self, key: str) -> None:
        self._take(key, None)

    def _take(self, key: str, data: bytes | None) -> None:
        """Keep a value until those before it are there, then write all whose turn it is."""
        with self._lock:
            self._ready[key] = data
            while self._expected and self._expected[0] in self._ready:
                following = self._expected.popleft()
                value = self._ready.pop(following)
                if value is not None:
                    self._append(following, value)

    def complete(self, key: str) -> bool:
        return False

    def put(self, key: str, data: bytes) -> None:
        self._take(key, data)

    def stream(self, key: str) -> Stream:
        return _ArchiveStream(self, key)

    def read(self, key: str, offset: int, length: int) -> bytes | None:
        """Bytes of a member that is written."""
        member = self._members.get(key)
        if member is None:
            return None
        with self._lock:
            try:
                self._file.flush()
                self._file.seek(member.data + offset)
                return self._file.read(max(0, min(length, member.size - offset)))
            except OSError as error:
                raise storage_error(error, self.path) from error

    def member_size(self, key: str) -> int | None:
        """Length of a member."""
        member = self._members.get(key)
        return None if member is None else member.size

    def names(self) -> list[str]:
        """Every member's name."""
        return list(self._members)

    def finish(self, documents: dict[str, bytes], *, sync: bool) -> None:
        if self._ready or self._expected:
            raise OpenReadoutError(f"{len(self._ready)} members of the archive were never due")
        try:
            for key, data in documents.items():
                self._patch(key, data)
            self._file.seek(0, os.SEEK_END)
            self._file.write(self._directory())
            self._file.flush()
            self.size = self._file.tell()
            if sync:
                sync_file(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise storage_error(error, self.path) from error

    def _patch(self, key: str, data: bytes) -> None:
        """Write a document into the room reserved for it."""
        member = self._members.get(key)
        if member is None:
            self._append(key, data)
            return
        if len(data) > member.size:
            raise StorageError(
                f"{self.path}: the metadata grew beyond the room reserved for it", path=self.path
            )
        padded = data.ljust(member.size)
        member.crc = zlib.crc32(padded)
        name = key.encode("utf-8")
        self._file.seek(member.header)
        self._file.write(_local(name, member.size, member.crc) + padded)

    def _directory(self) -> bytes:
        start = self._file.tell()
        parts = []
        for key, member in self._members.items():
            name = key.encode("utf-8")
            extra = struct.pack("<HHQQQ", 1, 24, member.size, member.size, member.header)
            parts.append(
                _CENTRAL.pack(
                    b"PK\x01\x02", _VERSION, _VERSION, _UTF8, 0, 0, _DATE, member.crc, 0xFFFFFFFF, 0xFFFFFFFF,
                    len(name), len(extra), 0, 0, 0, 0, 0xFFFFFFFF,
                ) + name + extra
            )  # fmt: skip
        body = b"".join(parts)
        count = len(self._members)
        end64 = _END64.pack(
            b"PK\x06\x06",
            _END64.size - 12,
            _VERSION,
            _VERSION,
            0,
            0,
            count,
            count,
            len(body),
            start,
        )
        locator = _LOCATOR.pack(b"PK\x06\x07", 0, start + len(body), 1)
        end = _END.pack(b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, len(COMMENT))
        return body + end64 + locator + end + COMMENT

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()


def _local(name: bytes, size: int, crc: int) -> bytes:
    extra = struct.pack("<HHQQ", 1, 16, size, size)
    header = _LOCAL.pack(
        b"PK\x03\x04",
        _VERSION,
        _UTF8,
        0,
        0,
        _DATE,
        crc,
        0xFFFFFFFF,
        0xFFFFFFFF,
        len(name),
        len(extra),
    )
    return header + name + extra


class _ArchiveStream:
    """A member that is collected in memory, since members lie one after the other."""

    def __init__(self, archive: Archive, key: str) -> None:
        self._archive = archive
        self._key = key
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def close(self) -> None:
        self._archive.put(self._key, b"".join(self._parts))


class _ArchiveStore:
    """The members that are written, as a store to read back from."""

    kind = "zip"
    can_list = can_walk = True
    far = False

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.path = archive.path

    def get(self, key: str, limit: int | None = None) -> bytes | None:
        return self._archive.read(key, 0, limits.MAX_ENCODED_BYTES if limit is None else limit)

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        return self._archive.read(key, offset, length)

    def size(self, key: str) -> int | None:
        return self._archive.member_size(key)

    def has(self, key: str, limit: int | None = None) -> bool:
        return self.size(key) is not None

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        return [], []

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        base = f"{prefix}/" if prefix else ""
        return ((key, self.size(key) or 0) for key in self._archive.names() if key.startswith(base))

    def close(self) -> None:
        """The archive is closed by its writer."""
