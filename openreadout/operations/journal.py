"""What one run noted of the files that it completed, so that a later one keeps those and no others.

That a file is there says little: a kill leaves it as it was, but a machine that loses power may keep a name and lose
the bytes behind it. A file counts as complete when its digest is the one that was noted once it had its name.
"""

from __future__ import annotations

import contextlib
import os
import re

import xxhash

from openreadout.errors import storage_error
from openreadout.system import open_own

LINE_BYTES = 1 << 16
"""The longest line that is read: a digest and the key of a file."""
DIGEST_HEX = 32
"""Characters of a digest: XXH3 of 128 bits."""
_LINE = re.compile(rb"([0-9a-f]{%d}) ([^\n]+)" % DIGEST_HEX)
_READ_BYTES = 1 << 20


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
        head = fingerprint.encode("ascii")
        try:
            if resume:
                self._known = self._read(head)
            if not self._known:
                os.ftruncate(self._fd, 0)
                self._append(head + b"\n")
        except OSError as error:
            os.close(self._fd)
            raise storage_error(error, path) from error

    def _read(self, head: bytes) -> dict[str, str]:
        """What is noted; nothing where it is of another run. A line that was cut counts for nothing."""
        found: dict[str, str] = {}
        with open(os.dup(self._fd), "rb") as file:
            file.seek(0)
            if file.readline(len(head) + 1) != head + b"\n":
                return {}
            while line := file.readline(LINE_BYTES):
                match = _LINE.fullmatch(line.rstrip(b"\n"))
                if match:
                    found[match[2].decode("utf-8", "replace")] = match[1].decode("ascii")
                if not line.endswith(b"\n"):
                    # cut, or longer than any line of ours
                    self._append(b"\n")
                    break
        return found

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def note(self, key: str, digest: str) -> None:
        """Tell that a file has its name and all its bytes; from any thread."""
        try:
            self._append(f"{digest} {key}\n".encode())
        except OSError as error:
            raise storage_error(error, self.path) from error

    def holds(self, key: str, file: str) -> bool:
        """Whether the file of a key is what an earlier run noted.

        Raises
        ------
        OSError
            The file cannot be read.
        """
        expected = self._known.get(key)
        if expected is None:
            return False
        hashed = xxhash.xxh3_128()
        with open(file, "rb", buffering=0) as stream:
            while data := stream.read(_READ_BYTES):
                hashed.update(data)
        return hashed.hexdigest() == expected

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)
