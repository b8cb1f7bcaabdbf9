"""The target of an export in an object store: no name to rename, so the root's metadata come last.

Until then what is there is no store: whoever opens the address finds no document that says what it is. That there are
pages of notes beside it (`remote_journal`) says that a run has not come to its end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import xxhash

from openreadout import limits
from openreadout.errors import CorruptDataError, OpenReadoutError, UsageError
from openreadout.operations.remote_claim import RemoteClaim, claimed_remote
from openreadout.operations.remote_journal import (
    CLEARED,
    Pages,
    RemoteJournal,
    mark_cleared,
    pages_of,
    read_pages,
)
from openreadout.operations.target import (
    ARCHIVES,
    Partial,
    came_from_outside,
    not_the_same,
    tell_kept,
)
from openreadout.remote.transport import (
    WritingTransport,
    remove_keys,
    transport,
    writing_transport,
)
from openreadout.remote.urls import child, shown, split

ROOT_DOCUMENTS = ("zarr.json", ".zgroup", ".zattrs", ".zarray")


def guard_remote(source: str, target: str) -> None:
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
    origin, _ = split(source)
    if origin == base or origin.startswith(f"{base}/") or base.startswith(f"{origin}/"):
        raise UsageError(
            f"{target}: the target must not be, hold or lie inside the input {source}",
            hint="choose another place with -o",
        )


def finished_remote(target: str) -> bool:
    """Whether anything is at an address or below it that no export is about to write, or did not write to its end."""
    return bool(_names(target)) and not read_pages(writing_transport(target), pages_of(target)).keys


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
def remote_output(
    target: str, *, overwrite: bool, fingerprint: str, resume: bool
) -> Iterator[Partial]:
    """Give the address to write to, cleared or with what an earlier run completed.

    When the body raises, what was written is removed again, documents of the root first, but for interruptions and
    refusals of the system or a server, after which `resume` can go on; `kept` is then set on the exception.

    Raises
    ------
    UsageError
        Something is there that may not be replaced, another export writes there, or what is there to resume was made
        from something else.
    """
    speaker = writing_transport(target)
    place = pages_of(target)

    def same(writing: str) -> bool:
        asked_for = resume and writing == fingerprint
        return asked_for and read_pages(speaker, place).fingerprints == {fingerprint}

    with claimed_remote(speaker, target, same, resume=resume) as claim:
        pages = read_pages(speaker, place)
        _refuse_taken(speaker, target, pages, overwrite=overwrite, resume=resume)
        resumed = resume and _can_resume(pages, fingerprint, target)
        if resumed:
            speaker.sweep(target)
        else:
            _clear(speaker, target, pages.keys)
            pages = Pages()
        claim.declare(fingerprint)
        journal = RemoteJournal(speaker, place, fingerprint, pages, claim.permit)
        try:
            yield Partial(target, resumed, journal)
            claim.declare(fingerprint)
            speaker.delete(place, journal.keys)
        except BaseException as error:
            _leave(speaker, target, claim, journal, error)
            raise


def _refuse_taken(
    speaker: WritingTransport, target: str, pages: Pages, *, overwrite: bool, resume: bool
) -> None:
    """Refuse keys that are there, but for a store that is to be overwritten and what an unfinished export left."""
    taken = _names(target)
    roots = taken & set(ROOT_DOCUMENTS)
    if not taken or (pages.keys and not roots):
        return
    unfinished = bool(roots) and all(_is_noted(speaker, target, key, pages) for key in roots)
    if not overwrite and not (unfinished and resume):
        if unfinished:
            raise UsageError(
                f"{target}: already exists; the run that wrote it did not come to its end",
                hint="--resume goes on with it, --overwrite replaces it",
            )
        raise UsageError(
            f"{target}: already exists",
            hint="--overwrite removes it, and then writes the new store",
        )
    if not roots:
        raise UsageError(
            f"{target}: keys that are no Zarr store are not replaced",
            hint="remove them yourself, or choose another place",
        )


def _is_noted(speaker: WritingTransport, target: str, key: str, pages: Pages) -> bool:
    """Whether a document of the root is the one that an unfinished run was about to put."""
    noted = pages.known.get(key)
    try:
        there = speaker.fetch(child(target, key), None, limits.MAX_JSON_BYTES) if noted else None
    except CorruptDataError:
        return False
    return there is not None and xxhash.xxh3_128_hexdigest(there.data) == noted


def _can_resume(pages: Pages, fingerprint: str, target: str) -> bool:
    """Whether an earlier run left something to go on with; what was being removed is nothing of the kind.

    Raises
    ------
    UsageError
        It was made from another source or with other options.
    """
    if not pages.keys or CLEARED in pages.fingerprints:
        return False
    if pages.fingerprints != {fingerprint}:
        raise not_the_same(target)
    return True


def _leave(
    speaker: WritingTransport,
    target: str,
    claim: RemoteClaim,
    journal: RemoteJournal,
    error: BaseException,
) -> None:
    """Keep or remove what was written, after an error."""
    if claim.lost or isinstance(error, UsageError):
        return  # another run, or another program, writes there now: nothing of it is ours to remove
    try:
        if came_from_outside(error) and journal.holds_any:
            tell_kept(error, target)
            journal.flush()
        else:
            claim.declare("")
            _clear(speaker, target, journal.keys)
    except OpenReadoutError as second:
        if isinstance(error, OpenReadoutError) and not hasattr(error, "kept"):
            error.hint = (
                f"{error.hint.rstrip('.')}; parts of the output are left ({second.message})"
            )


def _clear(speaker: WritingTransport, target: str, pages: Sequence[str]) -> None:
    """Remove everything below a target, and the notes of it; whoever comes in between finds a note of that."""
    keys = [key for key, _ in speaker.walk(target) or ()]
    more = [mark_cleared(speaker, pages_of(target))] if keys else []
    remove_keys(speaker, target, keys)
    speaker.sweep(target)
    speaker.delete(pages_of(target), [*pages, *more])
