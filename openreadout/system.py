"""What differs between operating systems: positional reads, syncing to disk, renaming folders."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from typing import Any

OPEN_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
"""Flags for opening a source: never wait for a pipe's writer, never translate line ends."""
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""Flag that refuses to open a link; 0 where the system has none."""

if hasattr(os, "pread"):
    pread = os.pread
else:  # Windows
    _POSITION = threading.Lock()

    def pread(fd: int, length: int, offset: int, /) -> bytes:
        """Read at a position; the descriptor's own position is shared, so one reader at a time."""
        with _POSITION:
            os.lseek(fd, offset, os.SEEK_SET)
            return os.read(fd, length)


def open_own(path: str, flags: int) -> int:
    """Open a file that stands beside an output, or make it: never through a link, and never anything but a file.

    Where others may write to the folder, a link of that name could lead to any file of ours, and a pipe would be waited
    for without end.

    Raises
    ------
    OSError
    """
    fd = os.open(path, flags | OPEN_FLAGS | NO_FOLLOW, 0o644)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file", path)


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


def exchange(one: str, other: str) -> bool:
    """Let two entries of one file system take each other's name in one step; False where the system cannot.

    Raises
    ------
    OSError
        It can, and refuses: one of them is not there, or may not be renamed.
    """
    first, second, here, swap = os.fsencode(one), os.fsencode(other), -100, 2
    arguments: tuple[Any, ...]
    if sys.platform == "linux":
        name, arguments = "renameat2", (here, first, here, second, swap)
    elif sys.platform == "darwin":
        name, arguments = "renamex_np", (first, second, swap)
    else:
        return False
    import ctypes

    rename = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if rename is None:
        return False
    if rename(*arguments) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), one, None, other)


def usable_cpus() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def allow_open_files(count: int) -> int:
    """Raise the number of files that this process may have open, if it is lower and the system lets it.

    Returns the number that holds now, which is that of processes started from now on too.
    """
    if sys.platform == "win32":
        return count  # its handles are not counted so
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return count
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        return soft
    return most


def lock_file(fd: int, *, shared: bool = False) -> bool:
    """Take a lock on an open file, which ends with the process; False when somebody else holds it.

    With `shared` others may hold it too, if they share it. Windows has no such locks here: that nobody holds it alone
    is then all that is made sure of.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
            if shared:
                msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
        else:
            import fcntl

            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        # a file system without locks: two exports to one target then differ in the order of their renames only
        return error.errno in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS)
    return True


def is_running(pid: int) -> bool:
    """Whether there is a process of this number; taken for granted where the system cannot be asked."""
    if os.name == "nt":  # there, asking would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def remove(path: str) -> None:
    """Remove a file or a folder of ours; what cannot be removed is left."""
    import contextlib
    import shutil

    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)
