"""HTTP and HTTPS: whole values and byte ranges (RFC 9110, sections 14 and 15), and the index pages of common servers.

Everything a server says is checked: the length of a body, the range that it claims to be, where it sends us.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import aiohttp
from fsspec.asyn import get_loop
from fsspec.implementations.http import HTTPFileSystem
from yarl import URL

from openreadout import limits
from openreadout.errors import CorruptDataError, RemoteError
from openreadout.remote.index import index_names
from openreadout.remote.transport import (
    CONNECT_SECONDS,
    NOT_UNDERSTOOD,
    PIECE,
    SILENCE_SECONDS,
    TRIES,
    Answer,
    Listing,
    Span,
    Watch,
    changed,
    content_range,
    failed,
    other_bytes,
    pause,
    plain,
    tail_by_size,
    too_large,
    wait_for,
)
from openreadout.remote.urls import shown, split

LONGEST_WAIT_SECONDS = 10.0
"""Whatever a server asks for in Retry-After."""
RESPONSE_SECONDS = 900.0
"""One response in all, so that a body that drips for ever ends."""
MAX_REDIRECTS = 5
AS_IS = {"Accept-Encoding": "identity"}
"""Asks for the bytes as they are stored; packed ones have other offsets."""

_MISSING = (404, 410)
_AGAIN = (403, 408, 425, 429, 500, 502, 503, 504)
_WORDS = {
    401: "the server wants a login (401)",
    403: "the server refuses to give it (403)",
    408: "the server waited in vain for the request (408)",
    429: "the server has had too many requests (429)",
    500: "the server failed (500)",
    502: "the server behind the gateway failed (502)",
    503: "the server is not available (503)",
    504: "the server behind the gateway did not answer in time (504)",
}
_HINTS = {
    401: "only data that is open to everybody is read over HTTP; download it with the program that you log in with",
    403: "it may be private; servers also say so of what is not there, to those who may not list what is",
}

Result = TypeVar("Result")


class _Again(Exception):  # noqa: N818 - no error, but the wish to try again
    """Something that may go away: what to say when it does not."""

    def __init__(self, what: str, hint: str | None = None, wait: float | None = None) -> None:
        super().__init__(what)
        self.hint = hint
        self.wait = wait


class _Wanted(NamedTuple):
    """Which bytes are wanted; `offset` None stands for all, of which there may be `length`.

    With `last` it is the last `length` bytes, or all where there are no more.
    """

    offset: int | None
    length: int
    tag: str | None
    last: bool = False

    def headers(self) -> dict[str, str]:
        headers = dict(AS_IS)
        if self.last:
            headers["Range"] = f"bytes=-{self.length}"
        elif self.offset is not None:
            headers["Range"] = f"bytes={self.offset}-{self.offset + self.length - 1}"
        if self.tag is not None:
            headers["If-Match"] = self.tag
        return headers


@dataclass(frozen=True, slots=True)
class _Request(Generic[Result]):
    """What is asked of a server, and what makes a result of its response.

    `otherwise` is the result of an answer that says that the server does not know what it was asked, `unknown`.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    take: Callable[[aiohttp.ClientResponse], Awaitable[Result]]
    unknown: tuple[int, ...] = ()
    otherwise: Result | None = None


async def _client(**options: Any) -> aiohttp.ClientSession:
    from openreadout import __version__

    timeout = aiohttp.ClientTimeout(
        total=RESPONSE_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
    )
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=limits.MAX_REQUESTS),
        timeout=timeout,
        auto_decompress=False,
        trust_env=True,
        headers={"User-Agent": f"openreadout/{__version__}"},
        **options,
    )


class HttpTransport:
    """Speaks to web servers, through the session of an fsspec file system.

    `more` gives headers that go with every request, such as a login that changes with time.
    """

    lists_all = False  # most index pages leave out names that begin with a dot, as Zarr v2 has them

    def __init__(self, more: Callable[[], Mapping[str, str]] = dict) -> None:
        self._more = more
        self._system = HTTPFileSystem(
            get_client=_client, loop=get_loop(), skip_instance_cache=True, use_listings_cache=False
        )
        self._no_tails: set[str] = set()
        """Servers that do not understand a range without a beginning."""

    def fetch(
        self, url: str, offset: int | None, length: int, tag: str | None = None
    ) -> Answer | None:
        if offset is not None and length <= 0:
            return Answer(b"")
        wanted = _Wanted(offset, length, tag)
        return self._ask(_Request("GET", url, wanted.headers(), lambda r: _body(r, url, wanted)))

    def tail(self, url: str, length: int) -> Answer | None:
        server = URL(url, encoded=True).authority
        if server in self._no_tails:
            return tail_by_size(self, url, length)
        wanted = _Wanted(None, length, None, last=True)

        async def last(response: aiohttp.ClientResponse) -> Answer:
            return await _last(response, url, wanted)

        answer = self._ask(
            _Request("GET", url, wanted.headers(), last, (400, 405, 501), NOT_UNDERSTOOD)
        )
        if answer is not NOT_UNDERSTOOD:
            return answer
        answer = tail_by_size(self, url, length)
        if answer is not None and (answer.total or 0) > length:
            # some refuse a range that is longer than the value, and that tells nothing of other values
            self._no_tails.add(server)
        return answer

    def size(self, url: str) -> int | None:
        async def length(response: aiohttp.ClientResponse) -> int:
            told = response.headers.get("Content-Length", "")
            return int(told) if told.isascii() and told.isdigit() and len(told) < 19 else -1

        found = self._ask(_Request("HEAD", url, AS_IS, length, (405, 501), -1))
        if found != -1:
            return found
        # a server that does not know HEAD, or answers it without a length
        answer = self.fetch(url, 0, 1)
        if answer is not None and answer.total is None:
            raise failed(RemoteError(f"{shown(url)}: the server tells no length", path=url))
        return None if answer is None else answer.total

    def listing(self, url: str) -> Listing | None:
        page = self._page(url)
        if page is None:
            return None
        names = index_names(page)
        if names is None:
            return None
        return Listing(*names)

    def _page(self, url: str) -> bytes | None:
        base, query = split(url)

        async def html(response: aiohttp.ClientResponse) -> bytes:
            if "html" not in response.headers.get("Content-Type", ""):
                return b""
            return (await _body(response, url, _Wanted(None, limits.MAX_INDEX_BYTES, None))).data

        try:
            with Watch():  # of its own: what comes here is no failure
                return self._ask(_Request("GET", f"{base}/{query}", AS_IS, html), tries=1)
        except (RemoteError, CorruptDataError):
            # it does not list, whatever its reason; nobody takes that for an empty folder
            return None

    def walk(self, url: str) -> Iterator[tuple[str, int]] | None:
        return None  # index pages tell no exact sizes

    def ages(self, url: str, keys: Sequence[str], most: int) -> dict[str, float | None]:
        return {}  # asking for the date of a document costs what the document costs

    def _ask(self, request: _Request[Result], tries: int = TRIES) -> Result | None:
        work = self._tries(request, tries)
        return wait_for(work, request.url)

    async def _tries(self, request: _Request[Result], tries: int) -> Result | None:
        for turn in range(1, tries + 1):
            try:
                return await self._once(request)
            except _Again as again:
                if turn == tries:
                    often = f", {turn} times" if turn > 1 else ""
                    raise RemoteError(
                        f"{shown(request.url)}: {again}{often}", hint=again.hint, path=request.url
                    ) from again.__cause__
                await asyncio.sleep(min(LONGEST_WAIT_SECONDS, max(pause(turn), again.wait or 0.0)))
        raise AssertionError("the last turn returns or raises")

    async def _once(self, request: _Request[Result]) -> Result | None:
        url = request.url
        session = await self._system.set_session()
        try:
            # of its own, since interim responses may follow one another without end and without silence
            async with asyncio.timeout(CONNECT_SECONDS + SILENCE_SECONDS):
                response = await session.request(
                    request.method,
                    URL(url, encoded=True),
                    headers={**self._more(), **request.headers},
                    max_redirects=MAX_REDIRECTS,
                )
            async with response:
                if response.status in _MISSING:
                    return None
                if response.status in request.unknown:
                    return request.otherwise
                _refuse(response, url)
                return await request.take(response)
        except RemoteError:  # which is an OSError too
            raise
        except (
            aiohttp.TooManyRedirects,
            aiohttp.InvalidURL,
            aiohttp.RedirectClientError,
        ) as error:
            # also a redirect to something that is no web address
            raise RemoteError(
                f"{shown(url)}: the server sends us elsewhere, to no good address ({plain(error)})",
                path=url,
            ) from error
        except aiohttp.ClientConnectorCertificateError as error:
            raise RemoteError(f"{shown(url)}: {plain(error)}", path=url) from error
        except TimeoutError as error:
            raise _Again("the server did not answer in time") from error
        except aiohttp.ClientPayloadError as error:
            raise _Again("the connection was cut inside the response") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Again(f"the server was not reached or hung up ({plain(error)})") from error
        except ValueError as error:
            if isinstance(error, CorruptDataError):
                raise
            raise RemoteError(f"{shown(url)}: no address ({plain(error)})", path=url) from error


def _refuse(response: aiohttp.ClientResponse, url: str) -> None:
    """Raise for a status that brings no value."""
    status = response.status
    if status in (200, 206, 416):
        return
    if status == 412:
        raise changed(url)
    words = _WORDS.get(status, f"the server answered {status}, which brings no data")
    if status in _AGAIN:
        asked = response.headers.get("Retry-After", "")
        wait = float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 6 else None
        raise _Again(words, _HINTS.get(status), wait)
    raise RemoteError(f"{shown(url)}: {words}", hint=_HINTS.get(status), path=url)


def _tag(response: aiohttp.ClientResponse) -> str | None:
    """What changes with the value, where the server tells it for certain."""
    tag = response.headers.get("ETag")
    return None if tag is None or tag.startswith("W/") or len(tag) > 256 else tag


def _refuse_packed(response: aiohttp.ClientResponse, url: str) -> None:
    coding = response.headers.get("Content-Encoding", "identity").lower()
    if coding not in ("identity", ""):
        raise RemoteError(
            f"{shown(url)}: the server packs what it was asked to give as it is ({coding[:40]})",
            path=url,
        )


async def _last(response: aiohttp.ClientResponse, url: str, wanted: _Wanted) -> Answer:
    """The end of a value; `NOT_UNDERSTOOD` where it is not for certain the end that was asked for."""
    _refuse_packed(response, url)
    if response.status == 206:
        span = _span(response)
        if span is None or not span.is_end(wanted.length):
            response.close()
            return NOT_UNDERSTOOD
        data = await _promised(response, url, span.stop - span.start)
        return Answer(data, span.stop, _tag(response))
    total = response.content_length
    if response.status == 416:
        return Answer(b"", 0) if _total_of(response) == 0 else NOT_UNDERSTOOD
    if total is not None and total > wanted.length:
        response.close()
        return NOT_UNDERSTOOD
    data = await _read(response, wanted.length + 1)
    if len(data) > wanted.length:
        response.close()  # the whole value, which is not wanted, may have no end
        return NOT_UNDERSTOOD
    return Answer(data, len(data), _tag(response))


async def _body(response: aiohttp.ClientResponse, url: str, wanted: _Wanted) -> Answer:
    """The bytes of a response, no more than were wanted."""
    _refuse_packed(response, url)
    tag = _tag(response)
    if response.status == 416:
        return _past_the_end(response, url, wanted)
    if response.status == 206:
        return await _part(response, url, wanted, tag)
    total = response.content_length
    if wanted.offset is None:
        if total is not None and total > wanted.length:
            raise too_large(url, total, wanted.length)
        data = await _read(response, wanted.length + 1)
        if len(data) > wanted.length:
            response.close()  # the rest, which may have no end, is not waited for
            raise too_large(url, len(data), wanted.length)
        return Answer(data, len(data), tag)
    if wanted.offset > 0:
        response.close()
        raise RemoteError(
            f"{shown(url)}: the server gives whole files only, no byte ranges",
            hint="download the file, and give its path",
            path=url,
        )
    data = await _read(response, wanted.length)
    response.close()
    return Answer(data, total, tag)


def _past_the_end(response: aiohttp.ClientResponse, url: str, wanted: _Wanted) -> Answer:
    if wanted.offset is None:
        raise RemoteError(f"{shown(url)}: the server answered 416 without being asked for a range")
    return Answer(b"", _total_of(response))


def _total_of(response: aiohttp.ClientResponse) -> int | None:
    """The length of the whole value, from an answer that a range lies behind its end."""
    total = response.headers.get("Content-Range", "").partition("/")[2]
    return int(total) if total.isascii() and total.isdigit() and len(total) < 19 else None


def _span(response: aiohttp.ClientResponse) -> Span | None:
    """The range that a response claims to be; None when that is no range."""
    return content_range(response.headers.get("Content-Range", ""))


async def _part(
    response: aiohttp.ClientResponse, url: str, wanted: _Wanted, tag: str | None
) -> Answer:
    span = _span(response)
    if span is None or wanted.offset is None:
        raise other_bytes(url)
    most = wanted.offset + wanted.length
    if span.start != wanted.offset or span.stop > most:
        raise other_bytes(url)
    total = span.total
    if total is not None and (span.stop > total or span.stop < min(most, total)):
        raise other_bytes(url)
    return Answer(await _promised(response, url, span.stop - span.start), total, tag)


async def _promised(response: aiohttp.ClientResponse, url: str, length: int) -> bytes:
    """The body of a response that is said to have `length` bytes."""
    data = await _read(response, length + 1)
    if len(data) > length:
        response.close()
        raise other_bytes(url)
    if len(data) < length:
        raise _Again("the response ended before the bytes that it promised")
    return data


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """Up to `most` bytes of a body; what comes after them is left where it is."""
    data = bytearray()
    while len(data) < most:
        # what a connection carries beside the body, such as extensions of chunks, breaks no silence
        async with asyncio.timeout(SILENCE_SECONDS):
            piece = await response.content.read(min(PIECE, most - len(data)))
        if not piece:
            break
        data += piece
    return bytes(data)
