"""Object stores through the plain interface of any fsspec file system; Google's by way of gcsfs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from openreadout.errors import OpenReadoutError, RemoteError
from openreadout.remote.transport import Answer, Listing, failed, other_bytes, plain, too_large
from openreadout.remote.urls import shown

_NOT_HERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_UNLISTED = object()
"""Stands for the entries of a folder that may not be listed."""


def google() -> SystemTransport:
    """For `gs://`: anonymous unless the environment names credentials."""
    # not the class that gcsfs gives by default: it asks another service, by gRPC, what kind of bucket each is
    from gcsfs.core import GCSFileSystem

    # what it says of errors that it raises as well would come before ours, with a traceback
    logging.getLogger("gcsfs").addHandler(logging.NullHandler())
    signed = bool(os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"))
    try:
        system = GCSFileSystem(
            token="google_default" if signed else "anon",
            use_listings_cache=False,
            skip_instance_cache=True,
        )
    except Exception as error:  # the credentials library's own, or what reading their file raises
        raise failed(
            RemoteError(
                f"the credentials of the environment cannot be used ({plain(error)})",
                hint="unset GOOGLE_APPLICATION_CREDENTIALS to read public buckets without any",
            )
        ) from error
    return GoogleTransport(system)


class SystemTransport:
    """Speaks through `cat_file`, `info`, `ls` and `find`; retries are the file system's own."""

    lists_all = True

    def __init__(self, system: Any) -> None:
        self._system = system

    def fetch(
        self, url: str, offset: int | None, length: int, tag: str | None = None
    ) -> Answer | None:
        start = offset or 0
        size = self.size(url)
        if size is None:
            return None
        if offset is None and size > length:
            raise too_large(url, size, length)
        return self._range(url, start, min(size, start + length), size)

    def _range(self, url: str, start: int, stop: int, size: int) -> Answer | None:
        if stop <= start:
            return Answer(b"", size)
        data = self._ask(url, lambda place: self._system.cat_file(place, start=start, end=stop))
        if data is None:
            return None
        if len(data) != stop - start:
            raise failed(other_bytes(url))
        return Answer(bytes(data), size)

    def tail(self, url: str, length: int) -> Answer | None:
        size = self.size(url)
        if size is None:
            return None
        return self._range(url, max(0, size - length), size, size)

    def size(self, url: str) -> int | None:
        said = self._ask(url, self._system.info)
        return int(said["size"]) if said is not None and said.get("type") == "file" else None

    def listing(self, url: str) -> Listing | None:
        def entries(place: str) -> Any:
            try:
                return self._system.ls(place, detail=True)
            except Exception as error:  # each file system raises its own, of no common kind
                if _refused(error):
                    return _UNLISTED
                raise

        found = self._ask(url, entries)
        if found is _UNLISTED:
            return None
        names: dict[str, list[str]] = {"directory": [], "file": []}
        for entry in found or ():
            names.setdefault(entry["type"], []).append(entry["name"].rstrip("/").rpartition("/")[2])
        return Listing(frozenset(names["directory"]), frozenset(names["file"]))

    def walk(self, url: str) -> Iterator[tuple[str, int]] | None:
        found = self._ask(url, lambda place: self._system.find(place, detail=True)) or {}
        start = len(_place(url).strip("/")) + 1
        return (
            (name.strip("/")[start:], int(entry["size"]))
            for name, entry in found.items()
            if entry.get("type") == "file"
        )

    def ages(self, url: str, keys: Sequence[str], most: int) -> dict[str, float | None]:
        return {}  # the plain interface lists a whole tree or one folder

    def _ask(self, url: str, work: Callable[[str], Any]) -> Any:
        """What the file system answers, None when there is nothing."""
        try:
            return work(_place(url))
        except _NOT_HERE:
            return None
        except Exception as error:  # each file system of fsspec raises its own, of no common kind
            raise failed(
                RemoteError(f"{shown(url)}: the server did not give it ({plain(error)})", path=url)
            ) from error


class GoogleTransport(SystemTransport):
    """Google's object store: credentials and lists of gcsfs, and values by HTTP, with all that is checked there."""

    def __init__(self, system: Any) -> None:
        from openreadout.remote.http import HttpTransport

        super().__init__(system)
        self._web = HttpTransport(lambda: self._login(system))

    @staticmethod
    def _login(system: Any) -> dict[str, str]:
        return {
            name: value
            for name, value in system._get_headers(None).items()
            if name.lower() == "authorization"
        }

    def fetch(
        self, url: str, offset: int | None, length: int, tag: str | None = None
    ) -> Answer | None:
        # its tags are for conditions of its own, so ranges go without: their total tells another length
        return self._get(url, lambda media: self._web.fetch(media, offset, length))

    def tail(self, url: str, length: int) -> Answer | None:
        return self._get(url, lambda media: self._web.tail(media, length))

    def size(self, url: str) -> int | None:
        answer = self.fetch(url, 0, 1)
        if answer is None:
            return None
        if answer.total is not None:
            return answer.total
        if answer.data:
            raise failed(RemoteError(f"{shown(url)}: the server tells no length", path=url))
        return 0

    def _get(self, url: str, ask: Callable[[str], Answer | None]) -> Answer | None:
        """What the address of an object's bytes gives; errors name the object's own."""
        if not _place(url).partition("/")[2]:
            return None  # a bucket is no object
        media = self._system.url(_place(url))
        try:
            answer = ask(media)
        except OpenReadoutError as error:
            error.message = error.message.replace(shown(media), shown(url))
            error.path = url
            raise
        return None if answer is None else answer._replace(tag=None)


def _refused(error: Exception) -> bool:
    """Whether a server said that something may not be had: gcsfs tells it in words, or by a code."""
    text = str(error)
    return (
        isinstance(error, PermissionError)
        or text.startswith("Forbidden")
        or getattr(error, "code", None) in (401, 403)
    )


def _place(url: str) -> str:
    """An address as fsspec's file systems take it, without its scheme."""
    return url.partition("://")[2].rstrip("/")
