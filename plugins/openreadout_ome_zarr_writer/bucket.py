"""An output in an S3 bucket: one object for each value, shards in parts as they grow, the root's documents last."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import xxhash

from openreadout.errors import CorruptDataError, OpenReadoutError, UsageError
from openreadout.limits import MIB
from openreadout.remote.store import RemoteStore
from openreadout.remote.transport import remove_keys, writing_transport
from openreadout.remote.urls import child, shown
from openreadout.stores import Store

if TYPE_CHECKING:
    from openreadout.contracts import Journal

PART_BYTES = 16 * MIB
"""What is sent of a value at once. S3 takes 10 000 parts, of at least 5 MiB each but for the last."""


class Bucket:
    """Objects below an address. An object appears when all of it is there, so none is ever half written.

    With `resume`, objects stay whose size and tag are those that the journal holds; all others are removed. The
    documents of the root are among these: they are put last, on the condition that there are none.
    """

    ordered = False

    def __init__(self, url: str, *, resume: bool = False, journal: Journal | None = None) -> None:
        self.path = url
        self.speaker = writing_transport(url)
        self._journal = journal
        self._read_back = RemoteStore(url, live=True)
        self.store: Store = self._read_back
        self.files = 0
        self.size = 0
        self._lock = threading.Lock()
        self._open: set[_Upload] = set()
        self._there: dict[str, int] = {}
        if resume and journal is not None:
            self._there = self._left(journal)

    def _left(self, journal: Journal) -> dict[str, int]:
        """Objects of an earlier run with their sizes, by key; all others are removed."""
        left, others = {}, []
        for key, size, tag in self.speaker.tags(self.path):
            if journal.noted(key) == _seal(size, tag):
                left[key] = size
                self._read_back.note(key, there=True)
            else:
                others.append(key)
        remove_keys(self.speaker, self.path, others)
        return left

    def expect(self, key: str) -> None:
        """Objects have no order."""

    def skip(self, key: str) -> None:
        """There is no object for it, which need not be asked for."""
        self._read_back.note(key, there=False)

    def complete(self, key: str) -> bool:
        return key in self._there

    def put(self, key: str, data: bytes) -> None:
        tag = self.speaker.put(child(self.path, key), data)
        self._count(key, len(data), tag)

    def stream(self, key: str) -> _Upload:
        upload = _Upload(self, key, child(self.path, key))
        with self._lock:
            self._open.add(upload)
        return upload

    def _count(self, key: str, size: int, tag: str | None) -> None:
        self._read_back.note(key, there=True)
        with self._lock:
            self.files += 1
            self.size += size
        if self._journal is not None and tag is not None:
            self._journal.note(key, _seal(size, tag))

    def done(self, upload: _Upload, key: str, size: int, tag: str) -> None:
        """Count an object that is complete."""
        with self._lock:
            self._open.discard(upload)
        self._count(key, size, tag)

    def finish(self, documents: dict[str, bytes], *, sync: bool) -> None:
        """The root's documents go last; a bucket needs no syncing.

        Those are noted before they are put, by their bytes: whoever finds them can tell that they are of this run, and
        that it may not have come to its end.
        """
        roots = [key for key in documents if "/" not in key]
        for key in reversed(documents):
            self._there.pop(key, None)
            if key not in roots:
                self.put(key, documents[key])
        if self._journal is not None:
            for key in roots:
                self._journal.note(key, xxhash.xxh3_128_hexdigest(documents[key]))
            self._journal.flush()
        for key in reversed(roots):
            self._put_root(key, documents[key])
        self.files += len(self._there)
        self.size += sum(self._there.values())

    def _put_root(self, key: str, data: bytes) -> None:
        """Write a document of the root where none is.

        Raises
        ------
        UsageError
            Another program has made a store of what is below the address.
        """
        url = child(self.path, key)
        if self.speaker.put_new(url, data) is None and not self._is(url, data):
            raise UsageError(
                f"{shown(self.path)}: appeared while it was being written",
                hint="see which other program writes there; --overwrite replaces what is there, -o takes another place",
            )
        self._count(key, len(data), None)

    def _is(self, url: str, data: bytes) -> bool:
        """Whether an object has these bytes, as after a first try of which the answer was lost."""
        try:
            there = self.speaker.fetch(url, None, len(data))
        except CorruptDataError:  # it is longer
            return False
        return there is not None and there.data == data

    def abort(self) -> None:
        with self._lock:
            uploads, self._open = list(self._open), set()
        for upload in uploads:
            upload.drop()


def _seal(size: int, tag: str) -> str:
    """Stands for an object as a listing shows it; servers put the tag in quotes or leave them out."""
    return xxhash.xxh3_128_hexdigest(f"{size} {tag.strip(chr(34))}".encode())


class _Upload:
    """One object that grows; sent in parts once it is larger than one of them."""

    def __init__(self, bucket: Bucket, key: str, url: str) -> None:
        self._bucket = bucket
        self._key = key
        self._url = url
        self._waiting = bytearray()
        self._id: str | None = None
        self._tags: list[str] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._waiting += data
        self._size += len(data)
        if len(self._waiting) >= PART_BYTES:
            self._send()

    def _send(self) -> None:
        speaker = self._bucket.speaker
        if self._id is None:
            self._id = speaker.begin(self._url)
        part = bytes(self._waiting)
        self._waiting.clear()
        self._tags.append(speaker.part(self._url, self._id, len(self._tags) + 1, part))

    def close(self) -> None:
        speaker = self._bucket.speaker
        if self._id is None:
            tag = speaker.put(self._url, bytes(self._waiting))
        else:
            if self._waiting:
                self._send()
            tag = speaker.complete(self._url, self._id, self._tags)
        self._bucket.done(self, self._key, self._size, tag)

    def drop(self) -> None:
        """Take back what was sent; a server that fails at that keeps it until its own rules remove it."""
        if self._id is not None:
            try:
                self._bucket.speaker.drop(self._url, self._id)
            except OpenReadoutError:
                return  # the error that led here is the one to tell
