"""The target of an export in an object store: no name to rename, so the root's metadata come last.

Until then what is there is no store: whoever opens the address finds no document that says what it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator

from openreadout.errors import CorruptDataError, OpenReadoutError, UsageError
from openreadout.operations.target import ARCHIVES, Partial
from openreadout.remote.transport import WritingTransport, transport, writing_transport
from openreadout.remote.urls import name_of, parent, shown, split
from openreadout.system import is_running

LARGEST_PID = 1 << 31
MAX_CLAIM = 4096
"""Bytes of the object that says who writes to a target."""
ROOT_DOCUMENTS = ("zarr.json", ".zgroup", ".zattrs", ".zarray")


def guard_remote(source: str, target: str, *, resume: bool) -> None:
    """Refuse an address that cannot be written to.

    Raises
    ------
    UsageError
        It is no S3 address below a bucket, is an archive, or holds or lies inside the source.
    """
    writing_transport(target)
    base, _ = split(target)
    if "/" not in base.partition("://")[2]:
        raise UsageError(f"{target}: a bucket is no name of a store", hint="add a name: …/a.zarr")
    if base.lower().endswith(ARCHIVES):
        raise UsageError(
            f"{target}: an archive is written by going back in it, which objects do not allow",
            hint="write it to a disk, and upload the file",
        )
    if resume:
        raise UsageError(
            "--resume: of an export to an address nothing is kept that could be gone on with",
            hint="start it again, with --overwrite if something is there",
        )
    origin, _ = split(source)
    if origin == base or origin.startswith(f"{base}/") or base.startswith(f"{origin}/"):
        raise UsageError(
            f"{target}: the target must not be, hold or lie inside the input {source}",
            hint="choose another place with -o",
        )


def _refuse_taken(target: str, *, overwrite: bool, ours: bool) -> None:
    """Refuse keys that are there, but for a store that is to be overwritten and what a killed export left."""
    taken = _names(target)
    if not taken or (ours and not taken & set(ROOT_DOCUMENTS)):
        return
    if not overwrite:
        raise UsageError(
            f"{target}: already exists",
            hint="--overwrite removes it, and then writes the new store",
        )
    if not taken & set(ROOT_DOCUMENTS):
        raise UsageError(
            f"{target}: keys that are no Zarr store are not replaced",
            hint="remove them yourself, or choose another place",
        )


def exists_remote(target: str) -> bool:
    """Whether anything is at an address or below it."""
    return bool(_names(target))


def _names(target: str) -> frozenset[str]:
    speaker = transport(target)
    listing = speaker.listing(target)
    if listing is None:
        raise UsageError(
            f"{shown(target)}: the bucket cannot be listed, so that nobody knows what would be overwritten",
            hint="check its name and the credentials of the environment",
        )
    itself = frozenset({"."} if speaker.size(target) is not None else ())
    return listing.folders | listing.files | itself


@contextlib.contextmanager
def _claimed(speaker: WritingTransport, target: str) -> Iterator[bool]:
    """Hold an object beside the target that says who writes there; whether one that was killed left it.

    Raises
    ------
    UsageError
        Another export writes there, or one on another machine was killed.
    """
    place = f"{parent(target)}/.{name_of(target)}.lock"
    try:
        left = speaker.fetch(place, None, MAX_CLAIM)
    except CorruptDataError:
        raise _writing(place, target, b"") from None
    ours = False
    if left is not None:
        if not _ended(left.data):
            raise _writing(place, target, left.data)
        speaker.delete(parent(target), [f".{name_of(target)}.lock"])
        ours = True
    since = time.strftime("%FT%TZ", time.gmtime())
    mine = {"host": socket.gethostname(), "pid": os.getpid(), "since": since}
    if not speaker.put_new(place, json.dumps(mine).encode()):
        raise _writing(place, target, b"")
    try:
        yield ours
    finally:
        # one that stays is known to be of a process that is gone
        with contextlib.suppress(OpenReadoutError):
            speaker.delete(parent(target), [f".{name_of(target)}.lock"])


def _owner(data: bytes) -> dict[str, object]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _ended(data: bytes) -> bool:
    """Whether an export of this machine that claimed a target is gone."""
    owner = _owner(data)
    pid = owner.get("pid")
    if owner.get("host") != socket.gethostname() or not isinstance(pid, int):
        return False
    return 0 < pid < LARGEST_PID and not is_running(pid)


def _writing(place: str, target: str, data: bytes) -> UsageError:
    owner = _owner(data)
    who = f" ({owner.get('host')}, since {owner.get('since')})" if owner else ""
    return UsageError(
        f"{target}: another export is writing to it{who[:200]}",
        hint=f"wait for it to end; if it was killed, remove {shown(place)} and what lies below the target",
    )


@contextlib.contextmanager
def remote_output(target: str, *, overwrite: bool) -> Iterator[Partial]:
    """Give the address to write to, cleared; when the body raises, what it wrote is removed again.

    The documents of the root go first, so that what is half removed is no store either.

    Raises
    ------
    UsageError
        Something is there that may not be replaced, or another export writes there.
    """
    speaker = writing_transport(target)
    _refuse_taken(target, overwrite=overwrite, ours=True)
    with _claimed(speaker, target) as ours:
        _refuse_taken(target, overwrite=overwrite, ours=ours)
        _clear(speaker, target)
        try:
            yield Partial(target, False)
        except BaseException as error:
            try:
                _clear(speaker, target)
            except OpenReadoutError as second:
                if isinstance(error, OpenReadoutError):
                    error.hint = (
                        f"{error.hint.rstrip('.')}; parts of the output are left ({second.message})"
                    )
            raise


def _clear(speaker: WritingTransport, target: str) -> None:
    keys = [key for key, _ in speaker.walk(target) or ()]
    first = [key for key in keys if key in ROOT_DOCUMENTS]
    for some in (first, [key for key in keys if key not in ROOT_DOCUMENTS]):
        speaker.delete(target, some)
    speaker.sweep(target)
