"""What is asked of a server, whatever it speaks, and the loop in which it is asked.

Requests run in the event loop of fsspec, a thread of its own; callers are ordinary threads that wait for theirs.
"""

from __future__ import annotations

import concurrent.futures
import random
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from openreadout import limits
from openreadout.errors import CorruptDataError, RemoteError, UsageError
from openreadout.remote.urls import scheme_of, shown
from openreadout.workers import Workers, given_up

Item = TypeVar("Item")
Value = TypeVar("Value")
TRIES = 4
"""How often something is asked for that may go well the next time."""
BACKOFF_SECONDS = 0.25
"""Before the second try; twice as long before each further one."""
CONNECT_SECONDS = 15.0
SILENCE_SECONDS = 30.0
"""How long a server may be silent inside a response."""
PIECE = 1 << 18
WAKE_SECONDS = 0.2
"""How long a thread waits before it looks whether anybody still wants what it waits for."""


class Answer(NamedTuple):
    """Bytes that a server gave.

    `total` is the length of the whole value where the server tells it, `tag` what changes with the value, `written`
    the seconds since 1970 at which it was written, and `served` those at which the answer was given, by the same clock.
    """

    data: bytes
    total: int | None = None
    tag: str | None = None
    written: float | None = None
    served: float | None = None


class Listing(NamedTuple):
    """Names of the folders and of the values directly below an address."""

    folders: frozenset[str]
    files: frozenset[str]


class Transport(Protocol):
    """One way to talk to servers. All methods may be called from several threads and raise `RemoteError`."""

    lists_all: bool
    """Whether what it lists lacks nothing and costs one request for many keys, as in object stores."""

    def fetch(
        self, url: str, offset: int | None, length: int, tag: str | None = None
    ) -> Answer | None:
        """At most `length` bytes from `offset`; with None the whole value, refused when it has more than `length`.

        None when there is nothing at the address. With `tag`, a value that has changed since is refused.
        """
        ...

    def tail(self, url: str, length: int) -> Answer | None:
        """The last `length` bytes, or all where there are no more, with the `total`; None when there is nothing.

        One request where the server understands a range without a beginning, otherwise one more for the size.
        """
        ...

    def size(self, url: str) -> int | None:
        """Length of a value, None when there is none."""
        ...

    def listing(self, url: str) -> Listing | None:
        """What lies below an address; None where the server does not list it."""
        ...

    def walk(self, url: str) -> Iterator[tuple[str, int]] | None:
        """Every key below an address with its size; None where the server does not tell."""
        ...

    def ages(self, url: str, keys: Sequence[str], most: int) -> dict[str, float | None]:
        """When values below an address were written, in seconds since 1970; None for one that is not there.

        Keys of which that is not known after `most` requests are left out; all of them, where it takes a request for
        each key.
        """
        ...


class WritingTransport(Transport, Protocol):
    """One that can also write; what is written appears when all of it has arrived."""

    def put(self, url: str, data: bytes) -> str:
        """Write one value; gives its tag."""
        ...

    def put_new(self, url: str, data: bytes) -> str | None:
        """Write one value unless there is one; its tag, None when there is one. Some servers write it all the same."""
        ...

    def replace(self, url: str, data: bytes, tag: str) -> str | None:
        """Write one value where the one with a tag is; the new tag, None where another or none is.

        Some servers write it all the same.
        """
        ...

    def tags(self, url: str) -> Iterator[tuple[str, int, str]]:
        """Every key below an address with its size and its tag."""
        ...

    def sweep(self, url: str) -> None:
        """Forget the parts of all values below an address that were never completed, as far as that is allowed."""
        ...

    def begin(self, url: str) -> str:
        """Start a value that comes in parts; gives the upload's id."""
        ...

    def part(self, url: str, upload: str, number: int, data: bytes) -> str:
        """Send part `number` (from 1), at least 5 MiB but for the last; gives its tag."""
        ...

    def complete(self, url: str, upload: str, tags: Sequence[str]) -> str:
        """Make the value appear from its parts; gives its tag."""
        ...

    def drop(self, url: str, upload: str) -> None:
        """Forget the parts that were sent; without it they take room for ever."""
        ...

    def delete(self, url: str, keys: Sequence[str]) -> None:
        """Remove keys below an address; one that is not there is no error."""
        ...

    def delete_same(self, url: str, tag: str) -> None:
        """Remove one value unless it has another tag. Some servers remove it all the same."""
        ...


def remove_keys(speaker: WritingTransport, url: str, keys: Iterable[str]) -> None:
    """Remove keys below an address, those of the root first: what is half removed is no store any more."""
    found = list(keys)
    for at_root in (True, False):
        speaker.delete(url, [key for key in found if ("/" not in key) is at_root])


class Span(NamedTuple):
    """The bytes from `start` to before `stop` of a value, whose length is `total` where it is told."""

    start: int
    stop: int
    total: int | None

    def is_end(self, length: int) -> bool:
        """Whether these are for certain the last `length` bytes, or all where there are no more."""
        return self.stop == self.total and self.start == max(0, self.stop - length)


def content_range(said: str) -> Span | None:
    """What a `Content-Range` says (RFC 9110, section 14.4); None when that is no range of bytes."""
    unit, _, rest = said.strip().partition(" ")
    span, _, total = rest.partition("/")
    first, dash, last = span.partition("-")
    numbers = (first, last) if total == "*" else (first, last, total)
    if unit.lower() != "bytes" or not dash:
        return None
    if not all(n.isascii() and n.isdigit() and len(n) < 19 for n in numbers):
        return None
    found = Span(int(first), int(last) + 1, None if total == "*" else int(total))
    return found if found.start < found.stop else None


NOT_UNDERSTOOD = Answer(b"", -1)
"""Stands for what a server gave that did not understand a request for the end of a value."""


def tail_by_size(speaker: Transport, url: str, length: int) -> Answer | None:
    """The end of a value by its size and a range, for servers that understand nothing else."""
    size = speaker.size(url)
    if size is None:
        return None
    answer = speaker.fetch(url, max(0, size - length), min(length, size))
    if answer is None or answer.total not in (None, size):
        raise failed(changed(url))
    if len(answer.data) != min(length, size):
        raise failed(other_bytes(url))
    return answer._replace(total=size)


_TRANSPORTS: dict[str, Transport] = {}
_LOCK = threading.Lock()


def transport(url: str) -> Transport:
    """The one that speaks to an address; made once for each scheme.

    Raises
    ------
    UsageError
        What it needs is not installed.
    """
    scheme = scheme_of(url)
    with _LOCK:
        if scheme not in _TRANSPORTS:
            try:
                _TRANSPORTS[scheme] = _make(scheme)
            except ImportError as error:
                extra = "gcsfs beside the extra remote" if scheme == "gs" else "the extra remote"
                more = " gcsfs" if scheme == "gs" else ""
                raise UsageError(
                    f"{scheme}:// needs {extra}, which is not installed",
                    hint=f"pip install 'openreadout-microscopy[remote]'{more}",
                    path=url,
                ) from error
        return _TRANSPORTS[scheme]


WRITABLE = ("s3",)
"""Schemes that can be written to."""


def writing_transport(url: str) -> WritingTransport:
    """The one that writes to an address of a writable scheme.

    Raises
    ------
    UsageError
        The scheme cannot be written to, or what it needs is not installed.
    """
    if scheme_of(url) not in WRITABLE:
        raise UsageError(
            f"{shown(url)}: only s3:// can be written to",
            hint="write to a folder, and upload that",
        )
    return cast("WritingTransport", transport(url))


def _make(scheme: str) -> Transport:
    if scheme in ("http", "https"):
        from openreadout.remote.http import HttpTransport

        return HttpTransport()
    if scheme == "s3":
        from openreadout.remote.s3 import S3Transport

        return S3Transport()
    from openreadout.remote.generic import google

    return google()


def forget() -> None:
    """Drop every transport; the next request makes new ones, which look at the environment again."""
    with _LOCK:
        _TRANSPORTS.clear()


def wait_for(work: Coroutine[Any, Any, Value], url: str) -> Value:
    """Run something in fsspec's loop and wait for it; given up as soon as nobody wants the result any more."""
    try:
        return _wait_for(work, url)
    except RemoteError as error:
        raise failed(error) from error.__cause__


def _wait_for(work: Coroutine[Any, Any, Value], url: str) -> Value:
    import asyncio

    from fsspec.asyn import get_loop

    future = asyncio.run_coroutine_threadsafe(work, get_loop())
    try:
        while True:
            try:
                return future.result(WAKE_SECONDS)
            except concurrent.futures.TimeoutError:
                if future.done():  # in that very moment, or with a timeout of its own
                    return future.result()
                if given_up():
                    raise RemoteError(f"{shown(url)}: no longer wanted", path=url) from None
    finally:
        future.cancel()  # without effect on one that is done


def pause(turn: int) -> float:
    """Seconds before the next try; not the same for all threads that were turned away together."""
    return float(BACKOFF_SECONDS * 2 ** (turn - 1) * random.uniform(0.75, 1.25))  # noqa: S311 - no secret hangs on it


# -- what there is to say ---------------------------------------------------------------------------------------------


def plain(error: BaseException) -> str:
    """What a library said, in one line of bounded length."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def too_large(url: str, found: int, limit: int, where: str | None = None) -> CorruptDataError:
    """The error for a value of `found` bytes or more where at most `limit` are taken."""
    return CorruptDataError(
        f"{found} bytes or more, more than the {limit} that are accepted",
        hint=limits.size_raised_by(limit, found),
        path=url,
        where=where,
    )


def changed(url: str) -> RemoteError:
    """The error for a value that is another one than at the first request."""
    return RemoteError(f"{shown(url)}: it changed on the server while it was read", path=url)


def other_bytes(url: str) -> RemoteError:
    """The error for a range that is not the one that was asked for."""
    return RemoteError(
        f"{shown(url)}: the server gave other bytes than it was asked for",
        hint="its byte ranges are not to be relied on: download the data, and give their path",
        path=url,
    )


# -- errors that somebody may have passed over ------------------------------------------------------------------------


class _Seen(threading.local):
    """The errors of this thread, while somebody wants to know of them."""

    errors: list[RemoteError] | None = None


_SEEN = _Seen()


class Watch:
    """Remembers the errors of servers that are raised in this thread, so that none is taken for "not there".

    Readers pass over what they cannot read, and describe the rest. With a server that fails, the rest would be a wrong
    description: `settle` raises what came first.
    """

    def __enter__(self) -> Watch:
        self._before = _SEEN.errors
        self.errors: list[RemoteError] = []
        _SEEN.errors = self.errors
        return self

    def __exit__(self, *exc: object) -> None:
        _SEEN.errors = self._before

    def settle(self) -> None:
        """Raise the first error that came."""
        if self.errors:
            raise self.errors[0]


def failed(error: RemoteError) -> RemoteError:
    """Note an error for whoever watches this thread, and give it back."""
    if _SEEN.errors is not None:
        _SEEN.errors.append(error)
    return error


def at_once(ask: Callable[[Item], object], items: Collection[Item]) -> None:
    """Call `ask` for each item in threads, as many as requests may be under way. Raises `RemoteError`."""
    try:
        with Workers(min(len(items), limits.MAX_REQUESTS)) as workers:
            for _ in workers.map(ask, items):
                pass
    except RemoteError as error:
        raise failed(error) from error.__cause__  # it was noted for another thread
