"""Object stores through the plain interface of any fsspec file system; Google's by way of gcsfs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from openreadout.errors import RemoteError
from openreadout.remote.transport import Answer, Listing, failed, other_bytes, plain, too_large
from openreadout.remote.urls import shown

_NOT_HERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_UNLISTED = object()
"""Stands for the entries of a folder that may not be listed."""


def google() -> SystemTransport:
    """For `gs://`: anonymous unless the environment names credentials."""
    import gcsfs

    signed = bool(os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"))
    return SystemTransport(
        gcsfs.GCSFileSystem(token="google_default" if signed else "anon", use_listings_cache=False)
    )


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
            except PermissionError:
                return _UNLISTED

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


def _place(url: str) -> str:
    """An address as fsspec's file systems take it, without its scheme."""
    return url.partition("://")[2].rstrip("/")
