"""Object stores through the plain interface of any fsspec file system; Google's by way of gcsfs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NoReturn

from openreadout.errors import CorruptDataError, RemoteError
from openreadout.remote.transport import Answer, Listing, failed
from openreadout.remote.urls import shown

_NOT_HERE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


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
            raise CorruptDataError(
                f"{size} bytes, more than the {length} that are accepted", path=url
            )
        stop = min(size, start + length)
        if stop <= start:
            return Answer(b"", size)
        try:
            data = bytes(self._system.cat_file(_plain(url), start=start, end=stop))
        except _NOT_HERE:
            return None
        except Exception as error:
            _fail(error, url)
        if len(data) != stop - start:
            raise failed(RemoteError(f"{shown(url)}: the server gave other bytes than asked for"))
        return Answer(data, size)

    def size(self, url: str) -> int | None:
        try:
            said = self._system.info(_plain(url))
        except _NOT_HERE:
            return None
        except Exception as error:
            _fail(error, url)
        return int(said["size"]) if said.get("type") == "file" else None

    def listing(self, url: str) -> Listing | None:
        try:
            entries = self._system.ls(_plain(url), detail=True)
        except _NOT_HERE:
            return Listing(frozenset(), frozenset())
        except PermissionError:
            return None
        except Exception as error:
            _fail(error, url)
        names: dict[str, list[str]] = {"directory": [], "file": []}
        for entry in entries:
            names.setdefault(entry["type"], []).append(entry["name"].rstrip("/").rpartition("/")[2])
        return Listing(frozenset(names["directory"]), frozenset(names["file"]))

    def walk(self, url: str) -> Iterator[tuple[str, int]] | None:
        base = _plain(url)
        try:
            found = self._system.find(base, detail=True)
        except _NOT_HERE:
            found = {}
        except Exception as error:
            _fail(error, url)
        start = len(base.strip("/")) + 1
        return (
            (name.strip("/")[start:], int(entry["size"]))
            for name, entry in found.items()
            if entry.get("type") == "file"
        )


def _plain(url: str) -> str:
    return url.partition("://")[2].rstrip("/")


def _fail(error: Exception, url: str) -> NoReturn:
    text = " ".join(str(error).split())[:200] or type(error).__name__
    raise failed(
        RemoteError(f"{shown(url)}: the server did not give it ({text})", path=url)
    ) from error
