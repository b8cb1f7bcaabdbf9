"""A hierarchy behind a URL, as a store; and a single file, as something that is read by position."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence

from openreadout import limits
from openreadout.errors import (
    CorruptDataError,
    InputError,
    OpenReadoutError,
    RemoteError,
    UnsupportedFeatureError,
)
from openreadout.limits import KIB, MIB
from openreadout.remote.transport import (
    WAKE_SECONDS,
    Answer,
    Listing,
    at_once,
    changed,
    failed,
    too_large,
    transport,
)
from openreadout.remote.urls import child, shown
from openreadout.workers import given_up

ZARR_DOCUMENTS = ("zarr.json", ".zattrs", ".zgroup", ".zarray")
DOCUMENTS = (*ZARR_DOCUMENTS, ".zmetadata", "attributes.json")
"""Values that are metadata by their name: read whole, once, and kept. A folder that has one is a hierarchy."""
XML = "METADATA.ome.xml"
"""Another of them, which says nothing of the folder that it lies in."""
CONSOLIDATED = ("zarr.json", ".zmetadata")
"""Documents of the root that hold copies of others, in Zarr v3 and v2."""
AHEAD_BYTES = 16 * MIB
MAX_AHEAD = 4096
"""Documents and sizes that were asked for before anybody wanted them, and are kept until somebody does."""
FEW_COPIES = 2
"""Fewer documents than this are read: to ask for their dates takes as many requests."""
MAX_NOTED = 1 << 16
"""Values of which it is remembered whether they are there."""


class RemoteStore:
    """The values below a URL, with the methods of the other stores.

    Metadata documents are kept, also that one is absent: a hierarchy is looked at as it was when it was opened.
    Chunks are not kept, but for those that came with the index of their shard.

    Parameters
    ----------
    url : str
    trust_consolidated : bool
        Take the copies of all metadata documents that stand in one document at the root for what is there.
    live : bool
        It is being written: nothing is kept of it, not even that something is absent.
    """

    kind = "remote directory"
    far = True

    def __init__(self, url: str, *, trust_consolidated: bool = False, live: bool = False) -> None:
        self.path = url
        self.live = live
        self.trust_consolidated = trust_consolidated
        self._transport = transport(url)
        self._lock = threading.Lock()
        self._kept: dict[str, bytes | None] = {}
        self._room = limits.MAX_KEPT_BYTES
        self._listings: dict[str, Listing | None] = {}
        _note_size(url, None)
        self._copies: frozenset[str] | None = None
        """Names of the documents that are absent when no copy of them was found, once copies are trusted."""
        self._written: dict[str, float] = {}
        """When documents of the root were written, where the server tells it."""
        self._noted: OrderedDict[str, bool] = OrderedDict()
        """Whether there is a value, of those that were asked for last."""
        self._held = _Held()
        self._edges: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        """Parts of values that were fetched together, with where they begin; the last used at the end."""
        self._edge_bytes = 0
        self._ahead: OrderedDict[str, bytes | None] = OrderedDict()
        self._ahead_bytes = 0
        self._sizes: OrderedDict[str, int | None] = OrderedDict()

    @property
    def can_list(self) -> bool:
        """Whether the server lists what is below a folder; the first time it is asked."""
        return self._listing("") is not None

    def get(self, key: str, limit: int | None = None) -> bytes | None:
        if _is_document(key):
            data = self._document(key)
            if data is not None and limit is not None and len(data) > limit:
                raise too_large(self.path, len(data), limit, where=key)
            return data
        held = self._held.take(key)
        most = limits.MAX_ENCODED_BYTES if limit is None else limit
        return self._answer(key, None, most) if held is None else held

    def has(self, key: str, limit: int | None = None) -> bool:
        """Whether there is a value. It is asked for itself, and kept until this thread reads it or asks for another."""
        if _is_document(key):
            return self._document(key) is not None
        with self._lock:
            noted = self._noted.get(key)
        if noted is None:
            most = limits.MAX_ENCODED_BYTES if limit is None else limit
            data = self._answer(key, None, most)
            self._held.key, self._held.data = key, data
            return data is not None
        return noted

    def note(self, key: str, *, there: bool) -> None:
        """Remember whether there is a value."""
        with self._lock:
            self._noted[key] = there
            self._noted.move_to_end(key)
            while len(self._noted) > MAX_NOTED:
                self._noted.popitem(last=False)

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        if _is_document(key):
            data = self._document(key)
            return None if data is None else data[offset : offset + length]
        part = self._from_edge(key, offset, length)
        return self._answer(key, offset, length) if part is None else part

    def _from_edge(self, key: str, offset: int, length: int) -> bytes | None:
        """A range out of what is kept of a value; None when it is not all there."""
        with self._lock:
            start, data = self._edges.get(key, (0, b""))
            if not data or not start <= offset <= offset + length <= start + len(data):
                return None
            self._edges.move_to_end(key)
        return data[offset - start : offset - start + length]

    def _keep_edge(self, key: str, start: int, data: bytes) -> None:
        with self._lock:
            self._edge_bytes += len(data) - len(self._edges.pop(key, (0, b""))[1])
            self._edges[key] = start, data
            while self._edge_bytes > limits.SHARDS_HELD_BYTES:
                self._edge_bytes -= len(self._edges.popitem(last=False)[1][1])

    def get_edge(self, key: str, length: int, *, start: bool = False) -> tuple[bytes, int] | None:
        speaker, url = self._transport, child(self.path, key)
        answer = self._asked(
            key, lambda: speaker.fetch(url, 0, length) if start else speaker.tail(url, length)
        )
        if answer is None:
            return None
        total = answer.total
        if total is None:
            total = self.size(key) if len(answer.data) == length else len(answer.data)
        if total is None or total < len(answer.data):
            raise failed(changed(url))
        if not self.live:
            self._keep_edge(key, 0 if start else total - len(answer.data), answer.data)
        return answer.data, total

    def _answer(self, key: str, offset: int | None, length: int) -> bytes | None:
        url = child(self.path, key)
        answer = self._asked(key, lambda: self._transport.fetch(url, offset, length))
        return None if answer is None else answer.data

    def _asked(self, key: str, ask: Callable[[], Answer | None]) -> Answer | None:
        """What the server answers about a key, which is noted."""
        if self._known_absent(key):
            return None
        try:
            answer = ask()
        except OpenReadoutError as error:
            self._place(error, key)
            raise
        if answer is not None and answer.written is not None and key in CONSOLIDATED:
            self._written[key] = answer.written
        if not _is_document(key) and not (self.live and answer is None):
            self.note(key, there=answer is not None)
        return answer

    def size(self, key: str) -> int | None:
        if _is_document(key):
            data = self._document(key)
            return None if data is None else len(data)
        if self._known_absent(key):
            return None
        with self._lock:
            if key in self._sizes:
                return self._sizes.pop(key)
        try:
            return self._transport.size(child(self.path, key))
        except OpenReadoutError as error:
            self._place(error, key)
            raise

    def _place(self, error: OpenReadoutError, key: str) -> None:
        """Tell the error its place in the store, unless its message names the whole address already."""
        error.path = self.path
        if not isinstance(error, RemoteError):
            error.where = key

    # -- documents -------------------------------------------------------------------------------------------------

    def _document(self, key: str) -> bytes | None:
        if key in self._kept:
            return self._kept[key]
        name = key.rpartition("/")[2]
        if self._copies is not None and name in self._copies:
            return None
        with self._lock:
            ahead = key in self._ahead
            data = self._ahead.pop(key, None)
            self._ahead_bytes -= len(data or b"")
        if not ahead:
            data = self._answer(key, None, _most(key))
        self._keep(key, data)
        return data

    def expect(self, keys: Iterable[str]) -> None:
        wanted = [key for key in dict.fromkeys(keys) if not self._is_known(key)]
        if len(wanted) < 2 or self.live:
            return
        at_once(self._ask_ahead, wanted)

    def _is_known(self, key: str) -> bool:
        """Whether nothing need be asked to tell what a document holds, or what size another value has."""
        with self._lock:
            if key in self._kept or key in self._ahead or key in self._sizes:
                return True
        copied = self._copies is not None and key.rpartition("/")[2] in self._copies
        return copied or self._known_absent(key)

    def _ask_ahead(self, key: str) -> None:
        if not _is_document(key):
            size = self._transport.size(child(self.path, key))
            with self._lock:
                self._sizes[key] = size
                while len(self._sizes) > MAX_AHEAD:
                    self._sizes.popitem(last=False)
            return
        try:
            data = self._answer(key, None, _most(key))
        except InputError:
            return  # whoever wants it meets the error again
        with self._lock:
            self._ahead[key] = data
            self._ahead_bytes += len(data or b"")
            while self._ahead_bytes > AHEAD_BYTES or len(self._ahead) > MAX_AHEAD:
                self._ahead_bytes -= len(self._ahead.popitem(last=False)[1] or b"")

    def _keep(self, key: str, data: bytes | None) -> None:
        if self.live:
            return
        with self._lock:
            self._room -= len(data or b"") + 256
            if self._room > 0:
                self._kept[key] = data

    def use_copies(self) -> None:
        """Take documents from the consolidated metadata of the root, where there are any.

        Those that are trusted stand for all metadata that there is. Of others a copy is used where the server tells,
        in fewer requests than reading would take, that the document was written before its copy.

        Raises
        ------
        CorruptDataError
            What is to be trusted is not what consolidated metadata are.
        """
        if not self.trust_consolidated and not self._transport.lists_all:
            return
        from openreadout.remote.consolidated import copies

        try:
            root, older = self._document("zarr.json"), lambda: self._document(".zmetadata")
            found = copies(root, older, self.path)
        except CorruptDataError:
            if self.trust_consolidated:
                raise
            return  # whatever is wrong with it, reading the documents tells
        if found is None:
            return
        documents, absent = found
        if self.trust_consolidated:
            self._copies = absent
        else:
            written = self._written.get(CONSOLIDATED[root is None])
            documents = {} if written is None else self._older(documents, written)
        for key, data in documents.items():
            if key not in self._kept:
                self._keep(key, data)

    def _older(self, documents: dict[str, bytes], written: float) -> dict[str, bytes]:
        """Copies of documents that were written before a time; in the same second they may have been written after."""
        wanted = [key for key in documents if key not in self._kept]
        if len(wanted) < FEW_COPIES:
            return {}
        ages = self._transport.ages(self.path, wanted, len(wanted) // 2)
        return {
            key: documents[key] for key, age in ages.items() if age is not None and age < written
        }

    # -- listing ---------------------------------------------------------------------------------------------------

    def _listing(self, prefix: str) -> Listing | None:
        if prefix not in self._listings:
            found = self._transport.listing(child(self.path, prefix))
            if self.live:
                return found
            with self._lock:
                if len(self._listings) > 4096:
                    self._listings.clear()
                self._listings[prefix] = found
        return self._listings[prefix]

    def _known_absent(self, key: str) -> bool:
        """Whether a listing that was asked for before, and that lacks nothing, does not have the key."""
        folder, at = "", 0
        while True:
            listing = self._listings.get(folder)
            end = key.find("/", at)
            name = key[at:] if end < 0 else key[at:end]
            if (
                listing is not None
                and self._transport.lists_all
                and name not in (listing.files if end < 0 else listing.folders)
            ):
                return True
            if end < 0:
                return False
            folder, at = key[:end], end + 1

    def look(self) -> Listing | None:
        """Names at the root, where listing costs one request and lacks nothing."""
        return self._listing("") if self._transport.lists_all else None

    def list_dir(self, prefix: str) -> tuple[list[str], list[str]]:
        listing = self._listing(prefix)
        if listing is None:
            raise self._unlisted(prefix)
        return sorted(listing.folders), sorted(listing.files)

    def walk(self, prefix: str) -> Iterator[tuple[str, int]]:
        found = self._transport.walk(child(self.path, prefix)) if self.can_walk else None
        if found is None:
            raise self._unlisted(prefix)
        base = f"{prefix}/" if prefix else ""
        for key, size in found:
            yield base + key, size

    @property
    def can_walk(self) -> bool:
        """Whether every key below a folder can be had at once, with sizes."""
        return self._transport.lists_all and self._listing("") is not None

    def _unlisted(self, prefix: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"{shown(child(self.path, prefix))}: the server does not list what is in this folder",
            path=self.path,
            where=prefix or None,
            hint="give the address of the group or dataset that holds the image",
        )

    def close(self) -> None:
        """Connections belong to the process."""


def _is_document(key: str) -> bool:
    name = key.rpartition("/")[2]
    return name in DOCUMENTS or name == XML


def _most(key: str) -> int:
    """Bytes that a document may have."""
    return limits.MAX_XML_BYTES if key.endswith(XML) else limits.MAX_JSON_BYTES


class _Held(threading.local):
    """A value that one thread has asked for and not read yet."""

    key: str | None = None
    data: bytes | None = None

    def take(self, key: str) -> bytes | None:
        """The value of a key, which is no longer kept then; None when it is not the one that is held."""
        data = self.data if self.key == key else None
        self.key = self.data = None
        return data


# -- single files ------------------------------------------------------------------------------------------------------

BLOCK_BYTES = 16 * KIB
MAX_BLOCKS = 2048
"""Blocks of one file that are kept: what is scattered in it, such as the directories of a TIFF."""
TOGETHER = 4
"""Blocks that a short read fetches with one request, aligned: what lies beside is often read next."""
SHORT_BYTES = TOGETHER * BLOCK_BYTES
"""A longer read is one request of its own, and also what a file begins with is asked for so."""
MAX_RUN = 64
"""Blocks that one request asks for when several are made at once."""
MAX_SPAN = 64 * MIB
"""What is read ahead at once, and kept by one thread until it reads elsewhere."""


class _Span(threading.local):
    start = 0
    data: bytes = b""


class _Flight:
    """A block that one thread is fetching and others wait for."""

    def __init__(self) -> None:
        self._landed = threading.Lock()
        self._landed.acquire()
        self._data: bytes | None = None

    def land(self, data: bytes | None) -> None:
        self._data = data
        self._landed.release()

    def wait(self, url: str) -> bytes | None:
        """What was fetched, None where that failed; raises as soon as nobody wants the result any more."""
        while not self._landed.acquire(timeout=WAKE_SECONDS):
            if given_up():
                raise RemoteError(f"{shown(url)}: no longer wanted", path=url)
        self._landed.release()
        return self._data


def _runs(numbers: Iterable[int]) -> Iterator[range]:
    """Numbers in rising order as ranges without gaps."""
    start = stop = -1
    for n in numbers:
        if n != stop:
            if stop > start:
                yield range(start, stop)
            start = n
        stop = n + 1
    if stop > start:
        yield range(start, stop)


class RemoteFile:
    """A file behind a URL, read by position; a change of it while it is read is an error.

    Short reads come from kept blocks, long ones go to the server as they are.

    Raises
    ------
    RemoteError
        The server fails, or gives the file without byte ranges.
    """

    def __init__(self, url: str) -> None:
        self.path = url
        self._transport = transport(url)
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._flying: dict[int, _Flight] = {}
        self._span = _Span()
        first = self._transport.fetch(url, 0, SHORT_BYTES)
        if first is None:
            raise missing(url)
        self._tag = first.tag
        self.size = self._length(first)
        self._first = first.data
        _note_size(url, self.size)

    def _length(self, first: Answer) -> int:
        if first.total is not None:
            return first.total
        if len(first.data) < SHORT_BYTES:
            return len(first.data)
        size = self._transport.size(self.path)
        if size is None:
            raise failed(RemoteError(f"{shown(self.path)}: the server tells no length"))
        return size

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset`; fewer where the file ends."""
        length = min(length, self.size - offset)
        if length <= 0 or offset < 0:
            return b""
        if offset + length <= len(self._first):
            return self._first[offset : offset + length]
        inside = offset - self._span.start
        if inside >= 0 and inside + length <= len(self._span.data):
            return self._span.data[inside : inside + length]
        if length > SHORT_BYTES:
            data = self._fetch(offset, length)
            if length <= MIB:
                self._span.start, self._span.data = offset, data
            return data
        numbers = self._numbers(offset, offset + length)
        data = b"".join(self._some(numbers))
        start = offset - numbers.start * BLOCK_BYTES
        return data[start : start + length]

    def _numbers(self, start: int, stop: int) -> range:
        """The blocks of some bytes, with those beside them unless they are there or on their way."""
        numbers = range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES))
        with self._lock:
            if all(n in self._blocks or n in self._flying for n in numbers):
                return numbers
        last = -(-self.size // BLOCK_BYTES)
        return range(
            numbers.start // TOGETHER * TOGETHER,
            min(last, -(-numbers.stop // TOGETHER) * TOGETHER),
        )

    def ahead(self, offset: int, length: int) -> None:
        """Fetch what is going to be read in pieces, with one request; this thread keeps it."""
        length = min(length, self.size - offset)
        if 0 < length <= MAX_SPAN and offset >= 0 and offset + length > len(self._first):
            self._span.start, self._span.data = offset, self._fetch(offset, length)

    def release(self) -> None:
        """Drop what was fetched ahead."""
        self._span.data = b""

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch the blocks of short ranges with requests that are made at once, at most half of what is kept."""
        numbers: set[int] = set()
        for offset, length in ranges:
            first, stop = offset // BLOCK_BYTES, min(offset + length, self.size)
            if offset >= 0 and stop > len(self._first):
                numbers.update(range(first, -(-stop // BLOCK_BYTES)))
        with self._lock:
            lacking = sorted(n for n in numbers if n not in self._blocks)[: MAX_BLOCKS // 2]
        if len(lacking) < 2:  # whoever reads it asks for it just as well
            return
        pieces = [
            run[at : at + MAX_RUN] for run in _runs(lacking) for at in range(0, len(run), MAX_RUN)
        ]
        at_once(self._some, pieces)

    def _some(self, numbers: range) -> list[bytes]:
        """Blocks that follow one another: with one request those that nobody has or is waiting for."""
        found: dict[int, bytes] = {}
        mine: dict[int, _Flight] = {}
        others: dict[int, _Flight] = {}
        with self._lock:
            for n in numbers:
                if n in self._blocks:
                    self._blocks.move_to_end(n)
                    found[n] = self._blocks[n]
                elif n in self._flying:
                    others[n] = self._flying[n]
                else:
                    mine[n] = self._flying[n] = _Flight()
        try:
            for run in _runs(mine):
                found.update(self._blocks_of(run))
        finally:
            self._land(mine, found)
        for n, flight in others.items():
            data = flight.wait(self.path)
            found.update(self._blocks_of(range(n, n + 1)) if data is None else {n: data})
        return [found[n] for n in numbers]

    def _blocks_of(self, run: range) -> dict[int, bytes]:
        start = run.start * BLOCK_BYTES
        data = self._fetch(start, min(run.stop * BLOCK_BYTES, self.size) - start)
        return {
            n: data[at : at + BLOCK_BYTES]
            for n, at in zip(run, range(0, len(data), BLOCK_BYTES), strict=True)
        }

    def _land(self, flights: dict[int, _Flight], found: dict[int, bytes]) -> None:
        """Give what was fetched to whoever waits for it; None where it failed, so that they try themselves."""
        with self._lock:
            for n in flights:
                self._flying.pop(n, None)
                if n in found:
                    self._blocks[n] = found[n]
            while len(self._blocks) > MAX_BLOCKS:
                self._blocks.popitem(last=False)
        for n, flight in flights.items():
            flight.land(found.get(n))

    def _fetch(self, offset: int, length: int) -> bytes:
        answer = self._transport.fetch(self.path, offset, length, self._tag)
        if answer is None or (answer.total is not None and answer.total != self.size):
            raise failed(changed(self.path))
        if len(answer.data) != length:
            raise failed(
                RemoteError(f"{shown(self.path)}: the server gave fewer bytes than it has")
            )
        return answer.data

    def close(self) -> None:
        """Drop what is kept."""
        with self._lock:
            self._blocks.clear()


_SIZES: dict[str, int | None] = {}
"""Sizes of the files that this process has opened, as they were last; None for a folder."""


MAX_SIZES = 1 << 16
"""Addresses whose size is remembered."""


def _note_size(url: str, size: int | None) -> None:
    if len(_SIZES) >= MAX_SIZES:
        _SIZES.clear()
    _SIZES[url] = size


def size_of(url: str) -> int | None:
    """The size of what was opened at an address, or of what a server says there is; None for a folder."""
    if url not in _SIZES:
        return transport(url).size(url)
    return _SIZES[url]


def missing(url: str) -> RemoteError:
    """The error for an address at which nothing is found."""
    return failed(
        RemoteError(
            f"{shown(url)}: there is nothing at this address",
            hint="check the address; upper and lower case are not the same",
            path=url,
        )
    )
