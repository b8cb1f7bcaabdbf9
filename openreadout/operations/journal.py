"""What one run noted of the values that it completed, so that a later one keeps those and no others.

That a file is there says little: a kill leaves it as it was, but a machine that loses power may keep a name and lose
the bytes behind it. A file counts as complete when its digest is the one that was noted once it had its name. An object
in a bucket is there whole or not at all, but anybody may have put another one in its place: see `remote_journal`.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import BinaryIO, NamedTuple

from openreadout.errors import storage_error
from openreadout.operations.claim import FINGERPRINT_HEX
from openreadout.system import open_own

LINE_BYTES = 1 << 16
"""The longest line that is read: a digest and the key of a value."""
DIGEST_HEX = 32
"""Characters of a digest: XXH3 of 128 bits."""
_HEAD = re.compile(rb"[0-9a-f]{%d}\n" % FINGERPRINT_HEX)
_LINE = re.compile(rb"([0-9a-f]{%d}) ([^\n]+)" % DIGEST_HEX)


class Noted(NamedTuple):
    """What notes say: the fingerprint of the run that made them, digests by key, and whether their last line is whole.

    The fingerprint is empty, and nothing else counts, where the notes do not begin with one.
    """

    fingerprint: str
    digests: dict[str, str]
    whole: bool


def head(fingerprint: str) -> bytes:
    """The line that notes begin with."""
    return fingerprint.encode("ascii") + b"\n"


def line(key: str, digest: str) -> bytes:
    """The line that notes a value."""
    return f"{digest} {key}\n".encode()


def read(file: BinaryIO) -> Noted:
    """Read notes that may be cut, damaged or no notes at all. A line that was cut counts for nothing."""
    first = file.readline(FINGERPRINT_HEX + 1)
    found: dict[str, str] = {}
    if not _HEAD.fullmatch(first):
        return Noted("", found, whole=False)
    while text := file.readline(LINE_BYTES):
        match = _LINE.fullmatch(text.rstrip(b"\n"))
        if match:
            found[match[2].decode("utf-8", "replace")] = match[1].decode("ascii")
        if not text.endswith(b"\n"):  # cut, or longer than any line of ours
            return Noted(first.decode("ascii").rstrip("\n"), found, whole=False)
    return Noted(first.decode("ascii").rstrip("\n"), found, whole=True)


class Journal:
    """A text file beside a partial output: the fingerprint of the run, then a line for every complete file.

    Parameters
    ----------
    path : str
    fingerprint : str
        Stands for the source and the options.
    resume : bool
        Keep what an earlier run of the same fingerprint noted.

    Raises
    ------
    StorageError
    """

    def __init__(self, path: str, fingerprint: str, *, resume: bool) -> None:
        self.path = path
        self._known: dict[str, str] = {}
        try:
            self._fd = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            if resume:
                self._known = self._read(fingerprint)
            if not self._known:
                os.ftruncate(self._fd, 0)
                self._append(head(fingerprint))
        except OSError as error:
            os.close(self._fd)
            raise storage_error(error, path) from error

    def _read(self, fingerprint: str) -> dict[str, str]:
        """What is noted; nothing where it is of another run."""
        with open(os.dup(self._fd), "rb") as file:
            file.seek(0)
            noted = read(file)
        if noted.fingerprint != fingerprint:
            return {}
        if not noted.whole:
            self._append(b"\n")
        return noted.digests

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def note(self, key: str, digest: str) -> None:
        """Tell that a file has its name and all its bytes; from any thread."""
        try:
            self._append(line(key, digest))
        except OSError as error:
            raise storage_error(error, self.path) from error

    def noted(self, key: str) -> str | None:
        """The digest that an earlier run noted of a file."""
        return self._known.get(key)

    def flush(self) -> None:
        """Every line is written at once."""

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)
