"""What a run noted of the objects that it completed, in pages beside a target in a bucket.

A page is an object like the journal of a folder: the fingerprint of the run, then a line for every complete object,
with a digest of its size and tag as a listing shows them. The page under way is put again with what was added every few
seconds, as objects do not grow; a full one is followed by the next. That there are pages says that what lies below the
target is of a run that did not come to its end; a page whose fingerprint is `CLEARED`, that it is being removed.
"""

from __future__ import annotations

import io
import itertools
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from openreadout.errors import CorruptDataError
from openreadout.limits import KIB
from openreadout.operations.claim import FINGERPRINT_HEX
from openreadout.operations.journal import head, line, read
from openreadout.remote.transport import WritingTransport
from openreadout.remote.urls import child, name_of, parent

NOTE_SECONDS = 5.0
"""How long what is complete may wait before it is noted: what a kill loses at most, beside what was being written."""
PAGE_BYTES = 256 * KIB
"""What a page has when it is full: some two thousand lines."""
MAX_PAGE = 4 * PAGE_BYTES
"""The longest page that is read; lines of threads that were faster than the server come on top."""
MAX_PAGES = 4096
"""Pages that are read: notes of eight million objects."""
CLEARED = "0" * FINGERPRINT_HEX
_NAME = re.compile(r"[0-9]{8}-[0-9a-f]{16}")


def pages_of(target: str) -> str:
    """The address below which the pages of a target lie."""
    return f"{parent(target)}/.{name_of(target)}.files"


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages that are there: their keys, the fingerprints of the runs that made them, and digests by key."""

    keys: tuple[str, ...] = ()
    fingerprints: frozenset[str] = frozenset()
    known: Mapping[str, str] = field(default_factory=dict)


def read_pages(speaker: WritingTransport, place: str) -> Pages:
    """Read the pages of a target; what is none is passed over, and left where it is."""
    found = speaker.walk(place) or ()
    names = sorted(key for key, size in found if _NAME.fullmatch(key) and size <= MAX_PAGE)
    keys: list[str] = []
    fingerprints: set[str] = set()
    known: dict[str, str] = {}
    for key in itertools.islice(names, MAX_PAGES):
        try:
            answer = speaker.fetch(child(place, key), None, MAX_PAGE)
        except CorruptDataError:  # it has become longer
            continue
        noted = read(io.BytesIO(b"" if answer is None else answer.data))
        if noted.fingerprint:
            keys.append(key)
            fingerprints.add(noted.fingerprint)
            known.update(noted.digests)
    return Pages(tuple(keys), frozenset(fingerprints), known)


def mark_cleared(speaker: WritingTransport, place: str) -> str:
    """Note that what lies below the target is being removed; the key of the page that says so."""
    key = _name(0)
    speaker.put(child(place, key), head(CLEARED))
    return key


class RemoteJournal:
    """Notes complete objects for a run that goes on with this one; the first page is put at once.

    Parameters
    ----------
    speaker : WritingTransport
    place : str
        Where the pages lie.
    fingerprint : str
        Stands for the source and the options.
    pages : Pages
        What earlier runs of the same fingerprint noted.
    permit : callable
        Raises when nobody wants what is written any more.

    Raises
    ------
    RemoteError
    """

    def __init__(
        self,
        speaker: WritingTransport,
        place: str,
        fingerprint: str,
        pages: Pages,
        permit: Callable[[], None],
    ) -> None:
        self._speaker = speaker
        self._place = place
        self._head = head(fingerprint)
        self._known = pages.known
        self._permit = permit
        self._number = 1 + max((int(key.partition("-")[0]) for key in pages.keys), default=0)
        self._names = [*pages.keys, _name(self._number)]
        self._page = bytearray(self._head)
        self.holds_any = bool(self._known)
        """Whether anything is noted as complete."""
        self._due = 0.0
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self.flush()

    @property
    def keys(self) -> Sequence[str]:
        """Keys of all pages that there are."""
        return tuple(self._names)

    def note(self, key: str, digest: str) -> None:
        self._permit()
        with self._lock:
            self.holds_any = True
            self._page += line(key, digest)
            full = len(self._page) >= PAGE_BYTES
            due = full or time.monotonic() >= self._due
        # one thread sends, and others wait for it only when they are faster than the server
        if due and self._sending.acquire(blocking=full):
            try:
                self._send()
            finally:
                self._sending.release()

    def noted(self, key: str) -> str | None:
        return self._known.get(key)

    def flush(self) -> None:
        self._send()

    def _send(self) -> None:
        """Put the page under way with all that it has by now."""
        with self._lock:
            page = bytes(self._page)
            self._due = time.monotonic() + NOTE_SECONDS
        self._speaker.put(child(self._place, self._names[-1]), page)
        if len(page) >= PAGE_BYTES:
            with self._lock:
                self._number += 1
                self._names.append(_name(self._number))
                self._page[:] = self._head + self._page[len(page) :]


def _name(number: int) -> str:
    return f"{number:08}-{secrets.token_hex(8)}"
