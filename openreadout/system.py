"""What differs between operating systems: positional reads, syncing to disk, renaming folders."""

from __future__ import annotations

import errno
import os
import sys
import threading

OPEN_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
"""Flags for opening a source: never wait for a pipe's writer, never translate line ends."""

if hasattr(os, "pread"):
    pread = os.pread
else:  # Windows
    _POSITION = threading.Lock()

    def pread(fd: int, length: int, offset: int, /) -> bytes:
        """Read at a position; the descriptor's own position is shared, so one reader at a time."""
        with _POSITION:
            os.lseek(fd, offset, os.SEEK_SET)
            return os.read(fd, length)


def sync_file(fd: int) -> None:
    """Bring a file's bytes to the disk."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def sync_folder(path: str) -> None:
    """Bring a folder's entries to the disk, where the system can."""
    if os.name == "nt":
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except (
        OSError
    ):  # some network file systems refuse to sync a folder; the files themselves are synced
        pass
    finally:
        os.close(fd)


def usable_cpus() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def lock_file(fd: int) -> bool:
    """Take an exclusive lock on an open file, which ends with the process; False when somebody else holds it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # a file system without locks: two exports to one target then differ in the order of their renames only
        return error.errno in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS)
    return True
