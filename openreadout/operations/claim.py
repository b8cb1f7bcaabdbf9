"""The lock file of a target: who writes there, from what, and which of two stores is the new one."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

from openreadout.errors import UsageError, storage_error
from openreadout.system import lock_file, open_own, remove, sync_file

FINGERPRINT_HEX = 32
_MOVED = "old "
"""What a line begins with that tells where an old output was moved to."""


class Claim:
    """The lock file of a target, held while an output is written.

    Its first line is the fingerprint. Others, written before an old output and the new one change names, tell the new
    one apart, and where the old one was moved to: after a kill, what lies under the hidden name may be the old output.
    A process can be killed between any two steps, so that each line may be missing or cut short.
    """

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.keep = False

    def _lines(self) -> list[str]:
        os.lseek(self.fd, 0, os.SEEK_SET)
        return os.read(self.fd, 1 << 16).decode("utf-8", "replace").split("\n")

    def read(self) -> str:
        """The fingerprint; empty where the one who was to write it did not come to its end."""
        first = self._lines()[0]
        whole = len(first) == FINGERPRINT_HEX and not set(first) - set("0123456789abcdef")
        return first if whole else ""

    def write(self, fingerprint: str) -> None:
        """Begin with a fingerprint."""
        os.ftruncate(self.fd, 0)
        os.lseek(self.fd, 0, os.SEEK_SET)
        os.write(self.fd, fingerprint.encode("utf-8"))

    def mark(self, path: str) -> None:
        """Note which entry is the new output."""
        self._add(str(os.lstat(path).st_ino))

    def moved(self, name: str) -> None:
        """Note the name beside the target that an old output is about to get."""
        self._add(f"{_MOVED}{name}")

    def _add(self, line: str) -> None:
        os.lseek(self.fd, 0, os.SEEK_END)
        os.write(self.fd, f"\n{line}".encode())
        sync_file(self.fd)  # what follows must not reach the disk before it

    def old(self, target: str) -> list[str]:
        """Paths that old outputs of the target were to get; nothing but names that this module gives."""
        folder, name = os.path.split(os.path.abspath(target))
        names = [line.removeprefix(_MOVED) for line in self._lines() if line.startswith(_MOVED)]
        ours = re.compile(rf"\.{re.escape(name)}\.old-[0-9a-f]{{8}}")
        return [os.path.join(folder, old) for old in names if ours.fullmatch(old)]

    def replaced(self, path: str) -> bool:
        """Whether what lies at `path` is not the output that was marked as the new one, but the one it replaced."""
        marks = [line for line in self._lines()[1:] if not line.startswith(_MOVED)]
        try:
            return bool(marks) and str(os.lstat(path).st_ino) not in marks
        except OSError:
            return False


@contextlib.contextmanager
def claimed(path: str, target: str, *, shared: bool = False) -> Iterator[Claim]:
    """Hold the lock file of a target; with `shared` together with others that do the same.

    Raises
    ------
    UsageError
        Somebody else holds it.
    """
    try:
        fd = open_own(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise storage_error(error, path) from error
    try:
        if (
            not lock_file(fd, shared=shared)
            or not os.path.exists(path)
            or os.stat(path).st_ino != os.fstat(fd).st_ino
        ):
            raise UsageError(
                f"{target}: another export is writing to it",
                hint="wait for it to end, or choose another place with -o",
            )
        claim = Claim(path, fd)
        try:
            yield claim
            if not claim.keep:
                remove(path)
        except BaseException:  # an interruption before the last line, too
            if not claim.keep:
                remove(path)
            raise
    finally:
        os.close(fd)
