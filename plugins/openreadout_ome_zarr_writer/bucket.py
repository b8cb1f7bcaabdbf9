"""An output in an S3 bucket: one object for each value, shards in parts as they grow, the root's documents last."""

from __future__ import annotations

import threading

from openreadout.errors import OpenReadoutError
from openreadout.limits import MIB
from openreadout.remote.store import RemoteStore
from openreadout.remote.transport import writing_transport
from openreadout.remote.urls import child
from openreadout.stores import Store

PART_BYTES = 16 * MIB
"""What is sent of a value at once. S3 takes 10 000 parts, of at least 5 MiB each but for the last."""


class Bucket:
    """Objects below an address. An object appears when all of it is there, so none is ever half written."""

    ordered = False

    def __init__(self, url: str) -> None:
        self.path = url
        self.speaker = writing_transport(url)
        self._read_back = RemoteStore(url, live=True)
        self.store: Store = self._read_back
        self.files = 0
        self.size = 0
        self._lock = threading.Lock()
        self._open: set[_Upload] = set()

    def expect(self, key: str) -> None:
        """Objects have no order."""

    def skip(self, key: str) -> None:
        """There is no object for it, which need not be asked for."""
        self._read_back.note(key, there=False)

    def complete(self, key: str) -> bool:
        """Of an export to a bucket nothing is gone on with."""
        return False

    def put(self, key: str, data: bytes) -> None:
        self.speaker.put(child(self.path, key), data)
        self._count(key, len(data))

    def stream(self, key: str) -> _Upload:
        upload = _Upload(self, key, child(self.path, key))
        with self._lock:
            self._open.add(upload)
        return upload

    def _count(self, key: str, size: int) -> None:
        self._read_back.note(key, there=True)
        with self._lock:
            self.files += 1
            self.size += size

    def done(self, upload: _Upload, key: str, size: int) -> None:
        """Count an object that is complete."""
        with self._lock:
            self._open.discard(upload)
        self._count(key, size)

    def finish(self, documents: dict[str, bytes], *, sync: bool) -> None:
        """The root's documents are the first of them, so they go last; a bucket needs no syncing."""
        for key in reversed(documents):
            self.put(key, documents[key])

    def abort(self) -> None:
        with self._lock:
            uploads, self._open = list(self._open), set()
        for upload in uploads:
            upload.drop()


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
            speaker.put(self._url, bytes(self._waiting))
        else:
            if self._waiting:
                self._send()
            speaker.complete(self._url, self._id, self._tags)
        self._bucket.done(self, self._key, self._size)

    def drop(self) -> None:
        """Take back what was sent; a server that fails at that keeps it until its own rules remove it."""
        if self._id is not None:
            try:
                self._bucket.speaker.drop(self._url, self._id)
            except OpenReadoutError:
                return  # the error that led here is the one to tell
