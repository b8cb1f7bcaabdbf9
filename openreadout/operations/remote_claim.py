"""The lock object beside a target in a bucket: who writes there, and whether they still do.

Its owner writes it anew every half minute, on the condition that it is still the one that was written last. Another
run takes it over, on the same condition, when its process is known to be gone (it ran on this machine), or when by the
server's clock it has been silent for long and was writing from the same source with the same options. An owner that
only slept, and wakes to finish a request, then writes the bytes that the other run writes too; it learns that the lock
is lost before it notes or removes anything, and stops. One that is clearing things away says so in the lock, and is
never taken for gone because of its silence.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from openreadout.errors import (
    CorruptDataError,
    OpenReadoutError,
    StorageError,
    UsageError,
    no_more_threads,
)
from openreadout.remote.transport import Answer, WritingTransport
from openreadout.remote.urls import name_of, parent, shown
from openreadout.system import is_running

LARGEST_PID = 1 << 31
MAX_CLAIM = 4096
"""Bytes of the object that says who writes to a target."""
REFRESH_SECONDS = 30.0
"""How often the owner of a lock gives a sign of life."""
STALE_SECONDS = 600.0
"""Silence after which a lock may be taken over: twenty signs of life that did not come."""
JOIN_SECONDS = 5.0


class RemoteClaim:
    """The lock of a target, from the moment it is taken.

    Parameters
    ----------
    speaker : WritingTransport
    target : str
    """

    def __init__(self, speaker: WritingTransport, target: str) -> None:
        self.target = target
        self.place = f"{parent(target)}/.{name_of(target)}.lock"
        self.lost = False
        self._speaker = speaker
        self._run = secrets.token_hex(8)
        self._since = time.strftime("%FT%TZ", time.gmtime())
        self._beats = 0
        self._writing_of = ""
        self._tag = ""
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="openreadout-lock", daemon=True)

    def take(self, same: Callable[[str], bool], *, resume: bool) -> None:
        """Write the lock where there is none, or take over one whose owner is gone.

        Parameters
        ----------
        same : callable
            Whether what another run was writing, of a fingerprint, is what this one could go on with.
        resume : bool
            For the message: whether to go on with it is asked for.

        Raises
        ------
        UsageError
            Another export writes there, or may still do.
        StorageError
            The server fails, or the system lets this process start no more threads.
        """
        tag = self._speaker.put_new(self.place, self._says())
        if tag is None:
            left = self._look()
            tag = self._mine(left) or self._taken_over(left, same)
            if tag is None:
                raise self._refusal(left, resume=resume)
        self._tag = tag
        try:
            self._thread.start()
        except RuntimeError as error:
            raise no_more_threads() from error

    def _taken_over(self, left: Answer | None, same: Callable[[str], bool]) -> str | None:
        """The tag of our lock in place of one whose owner is gone; None where it is not, or somebody was faster."""
        if left is None or left.tag is None:
            return None
        if not _ended(left.data) and not (_is_long(left) and same(_fingerprint(left.data))):
            return None
        return self._settled(self._speaker.replace(self.place, self._says(), left.tag))

    def declare(self, fingerprint: str) -> None:
        """Tell in the lock what is being written; with an empty fingerprint, that things are being cleared away.

        Raises
        ------
        StorageError
            The lock is no longer ours, or the server fails.
        """
        self._writing_of = fingerprint
        self.refresh()
        self.permit()

    def refresh(self) -> None:
        """Give a sign of life; `lost` is set when the lock is no longer ours.

        Raises
        ------
        RemoteError
        """
        with self._lock:
            tag = self._settled(self._speaker.replace(self.place, self._says(), self._tag))
            self.lost = tag is None
            self._tag = tag or self._tag

    def permit(self) -> None:
        """Raise `StorageError` once the lock is known to be lost."""
        if self.lost:
            raise StorageError(
                f"{self.target}: the lock {shown(self.place)} was removed or taken over, so this export stops",
                path=self.target,
                hint="see whether another export writes there, and wait for it to end",
            )

    def release(self) -> None:
        """Remove the lock; one that stays is known to be of a process that is gone."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(JOIN_SECONDS)
        if not self.lost and self._tag:
            with contextlib.suppress(OpenReadoutError):
                self._speaker.delete_same(self.place, self._tag)

    def _beat(self) -> None:
        while not self.lost and not self._over.wait(REFRESH_SECONDS):
            # a server that fails now may answer the next time; long before others take over, what is written fails too
            with contextlib.suppress(OpenReadoutError):
                self.refresh()

    def _says(self) -> bytes:
        """What the lock says; never the same twice, so that its tag tells which sign of life it is."""
        self._beats += 1
        said = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": self._since,
            "run": self._run,
            "beats": self._beats,
            "writing": self._writing_of,
        }
        return json.dumps(said).encode()

    def _settled(self, tag: str | None) -> str | None:
        """The tag of our lock after a conditional write; a second try fails when the answer to the first was lost."""
        return self._mine(self._look()) if tag is None else tag

    def _look(self) -> Answer | None:
        """The lock; None where there is none, or something that is too long to be one."""
        try:
            return self._speaker.fetch(self.place, None, MAX_CLAIM)
        except CorruptDataError:
            return None

    def _mine(self, found: Answer | None) -> str | None:
        return (
            found.tag if found is not None and _owner(found.data).get("run") == self._run else None
        )

    def _refusal(self, left: Answer | None, *, resume: bool) -> UsageError:
        owner = {} if left is None else _owner(left.data)
        who = f" ({owner.get('host')}, since {owner.get('since')})" if owner else ""
        silent = None if left is None else _silence(left)
        ago = "" if silent is None else f" ({_ago(silent)} ago)"
        lock = shown(self.place)
        if left is None or not _is_long(left):
            what = (
                f"the same command with --resume goes on {_ago(STALE_SECONDS)} after its last sign of life{ago}; "
                f"to start anew, remove {lock} first"
            )
        elif resume:
            what = (
                f"remove {lock} and run without --resume to start anew: since its last sign of life{ago} it could be "
                "gone on with, but only with the same source and options"
            )
        else:
            what = (
                f"the same command with --resume goes on with it, by its last sign of life{ago}; "
                f"to start anew, remove {lock} first"
            )
        return UsageError(
            f"{self.target}: another export is writing to it{who[:200]}",
            hint=f"wait for it to end; if it was killed, {what}",
        )


@contextlib.contextmanager
def claimed_remote(
    speaker: WritingTransport, target: str, same: Callable[[str], bool], *, resume: bool
) -> Iterator[RemoteClaim]:
    """Hold the lock of a target in a bucket.

    Raises
    ------
    UsageError
        Somebody else holds it.
    """
    claim = RemoteClaim(speaker, target)
    try:
        claim.take(same, resume=resume)
        yield claim
    finally:
        claim.release()


def _owner(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _ended(data: bytes) -> bool:
    """Whether an export of this machine that claimed a target is gone."""
    owner = _owner(data)
    pid = owner.get("pid")
    if owner.get("host") != socket.gethostname() or type(pid) is not int:
        return False
    return 0 < pid < LARGEST_PID and not is_running(pid)


def _fingerprint(data: bytes) -> str:
    """What the owner of a lock is writing; empty where it says nothing of the kind."""
    said = _owner(data).get("writing")
    return said if isinstance(said, str) else ""


def _is_long(left: Answer) -> bool:
    """Whether a lock has been silent for longer than any owner that is alive."""
    silent = _silence(left)
    return silent is not None and silent > STALE_SECONDS


def _silence(left: Answer) -> float | None:
    """Seconds since a lock was written, by the clock of the server alone; None where it does not tell."""
    if left.served is None or left.written is None:
        return None
    return max(0.0, left.served - left.written)


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{math.floor(seconds / 60)} minutes"
