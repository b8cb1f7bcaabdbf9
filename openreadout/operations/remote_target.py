"""The target of an export in an object store: no name to rename, so the root's metadata come last.

Until then what is there is no store: whoever opens the address finds no document that says what it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from openreadout.errors import OpenReadoutError, UsageError
from openreadout.operations.target import ARCHIVES, Partial
from openreadout.remote.transport import WritingTransport, transport, writing_transport
from openreadout.remote.urls import shown, split

ROOT_DOCUMENTS = ("zarr.json", ".zgroup", ".zattrs", ".zarray")


def guard_remote(source: str, target: str, *, overwrite: bool, resume: bool) -> None:
    """Refuse an address that cannot be written to, or where something is that may not be replaced.

    Raises
    ------
    UsageError
        It is no S3 address below a bucket, is an archive, holds or lies inside the source, or is taken.
    RemoteError
        The server fails.
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
    taken = _names(target)
    if not taken:
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
def remote_output(target: str) -> Iterator[Partial]:
    """Give the address to write to, cleared; when the body raises, what it wrote is removed again.

    The documents of the root go first, so that what is half removed is no store either.
    """
    speaker = writing_transport(target)
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
