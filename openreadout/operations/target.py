"""The target of an export on disk: where it may lie, its temporary sibling, and the final rename."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

from openreadout import contracts
from openreadout.errors import OpenReadoutError, StorageError, UsageError, storage_error
from openreadout.operations.claim import Claim, claimed
from openreadout.operations.journal import Journal
from openreadout.remote.urls import is_url, last_name
from openreadout.system import exchange, remove, sync_folder

ARCHIVES = (".ozx", ".zip")
RECORDS = ".parts"
"""Folder of what several processes noted: in the hidden output while parts are written, beside it otherwise."""
JOURNAL = ".files"
"""Ending of the file beside a partial output in which its complete files are noted."""


def default_output(path: str) -> str:
    """`<stem>.ome.zarr` beside the input, or here for one behind a URL; the input's own name is never taken."""
    if is_url(path):
        return os.path.join(os.getcwd(), f"{stem(path)}.ome.zarr")
    folder = os.path.dirname(os.path.abspath(path))
    target = os.path.join(folder, f"{stem(path)}.ome.zarr")
    if os.path.abspath(path) == target:
        target = os.path.join(folder, f"{stem(path)}.export.ome.zarr")
    return target


def stem(path: str) -> str:
    """An input's name without the endings of its format."""
    name = last_name(path)
    lower = name.lower()
    for ending in (
        ".companion.ome", ".ome.tiff", ".ome.tif", ".ome.btf", ".ome.zarr.zip", ".ome.zarr", ".zarr.zip", ".ome.xml",
        ".ozx", ".zarr", ".n5", ".tiff", ".tif", ".btf", ".tf8", ".tf2", ".ome", ".zip", ".xml",
    ):  # fmt: skip
        if lower.endswith(ending) and len(name) > len(ending):
            return name[: -len(ending)]
    return name


def guard(source: str, members: tuple[str, ...], target: str, *, overwrite: bool) -> None:
    """Refuse a target that could harm the source, or that is there and may not be replaced.

    Raises
    ------
    UsageError
        It is the source, lies inside it or holds it, exists without `overwrite`, or is a link or a mount point.
    StorageError
        The folder that it is to lie in does not exist.
    """
    real = os.path.realpath(target)
    for input_path in (source, *members):
        original = os.path.realpath(input_path)
        if real == original or _inside(real, original) or _inside(original, real):
            raise UsageError(
                f"{target}: the target must not be, hold or lie inside the input {source}",
                hint="choose another place with -o",
            )
    folder = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise StorageError(
            f"{target}: the folder {folder} does not exist",
            path=target,
            hint="make the folder first",
        )
    if not os.path.lexists(target):
        return
    if not overwrite:
        raise UsageError(
            f"{target}: already exists",
            hint="--overwrite replaces it once the new store is complete",
        )
    if os.path.islink(target) or os.path.ismount(target):
        raise UsageError(
            f"{target}: a link or a mount point is not replaced",
            hint="choose another place with -o",
        )
    if os.path.isdir(target) and not _replaceable(target):
        raise UsageError(
            f"{target}: a folder that is no Zarr store is not replaced",
            hint="remove it yourself, or choose another place",
        )


def _inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _replaceable(folder: str) -> bool:
    """Whether a folder looks like a store, so that --overwrite cannot take a home directory away."""
    names = set(os.listdir(folder))
    return not names or bool(names & {"zarr.json", ".zgroup", ".zattrs", ".zarray"})


@dataclass(frozen=True, slots=True)
class Partial:
    """What is being written: a hidden sibling of the target, and what is noted of its complete files.

    `resumed` tells that part of it is there already.
    """

    path: str
    resumed: bool
    journal: contracts.Journal | None = None


@contextlib.contextmanager
def partial_output(
    target: str, *, overwrite: bool, fingerprint: str, resume: bool
) -> Iterator[Partial]:
    """Give a hidden sibling of the target to write to, and rename it to the target at the end.

    When the body raises, the target is as it was. What was written is removed, but for interruptions and refusals of
    the operating system, after which `resume` can go on; `kept` is then set on the exception. A process that is killed
    at any moment leaves the target as it was or complete, and something that `resume` can go on with or starts anew.

    Parameters
    ----------
    target : str
    overwrite : bool
        An output that is there is replaced.
    fingerprint : str
        Stands for the source and the options; a partial output of another fingerprint is not gone on with.
    resume : bool
        Go on with what an earlier run left.

    Raises
    ------
    UsageError
        Another export is writing to the same target, or what is there to resume was made from something else.
    """
    path = hidden(target)
    with claimed(f"{path}.lock", target) as claim:
        restore_old(claim, target, overwrite=overwrite)
        resumed = _prepare(path, claim, fingerprint, target, resume=resume)
        claim.keep = resumed
        try:
            with Journal(path + JOURNAL, fingerprint, resume=resumed) as journal:
                yield Partial(path, resumed, journal)
                rename_into_place(path, target, claim, overwrite=overwrite)
            remove(path + JOURNAL)
            remove(path + RECORDS)
            claim.keep = False
        except BaseException as error:
            _remove_old(claim, target)
            if not claim.replaced(path) and came_from_outside(error) and _holds_any(path):
                claim.keep = True
                tell_kept(error, path)
            else:
                claim.keep = False
                remove(path)
                remove(path + RECORDS)
                remove(path + JOURNAL)
            raise


def hidden(target: str) -> str:
    """The hidden sibling under which a target is written."""
    folder, name = os.path.split(os.path.abspath(target))
    return os.path.join(folder, f".{name}.partial")


def _remove_old(claim: Claim, target: str) -> None:
    """Remove what was moved aside, where the new output has its name already and the run was stopped after that."""
    if os.path.lexists(target):
        for aside in claim.old(target):
            remove(aside)


def restore_old(claim: Claim, target: str, *, overwrite: bool) -> None:
    """Give an old output its name again, which a run moved aside and was killed before the new one took the name.

    Raises
    ------
    UsageError
        The target is there again, and is not to be replaced.
    """
    for aside in claim.old(target):
        if not os.path.lexists(aside):
            continue
        if os.path.lexists(target):
            remove(aside)
            continue
        try:
            os.rename(aside, target)
        except OSError as error:
            raise storage_error(error, target) from error
        if not overwrite:
            claim.keep = True
            raise UsageError(
                f"{target}: already exists; a run that was to replace it did not come to its end",
                hint="--overwrite replaces it once the new store is complete",
            )


def _prepare(path: str, claim: Claim, fingerprint: str, target: str, *, resume: bool) -> bool:
    """Clear the way, or find what can be gone on with; whether something is resumed."""
    resumed = False
    if os.path.isdir(os.path.join(path, RECORDS)) and resume:
        claim.keep = True
        raise UsageError(
            f"{target}: is being written in parts",
            hint="go on with --part, and end with --commit; or run without --resume to start anew",
        )
    if os.path.lexists(path):
        resumed = resume and os.path.isdir(path) and not os.path.islink(path)
        if resumed and (claim.replaced(path) or not claim.read()):
            resumed = (
                False  # the old output, or what a run left that could not clear away all of it
            )
        if resumed and claim.read() != fingerprint:
            claim.keep = True
            raise not_the_same(target)
    if resumed:  # nothing is written to the lock file: between two steps of that nobody could go on
        return True
    remove(path)
    remove(path + JOURNAL)
    remove(path + RECORDS)
    try:
        claim.write(fingerprint)
    except OSError as error:
        raise storage_error(error, claim.path) from error
    return False


def not_the_same(target: str) -> UsageError:
    """The refusal to go on with what was made from something else."""
    return UsageError(
        f"{target}: cannot be resumed, the source or the options are not those of the run that was interrupted",
        hint="run again without --resume to start anew",
    )


def came_from_outside(error: BaseException) -> bool:
    """Whether a run was stopped from outside, so that a later one can go on."""
    return isinstance(error, KeyboardInterrupt | StorageError) and not isinstance(error, UsageError)


def tell_kept(error: BaseException, path: str) -> None:
    """Note on the error what was kept, for whoever prints it."""
    error.kept = path  # type: ignore[attr-defined]
    if isinstance(error, OpenReadoutError):
        error.hint = f"{error.hint.rstrip('.')}; then run the same command with --resume"


def _holds_any(path: str) -> bool:
    """Whether anything of a partial output is complete."""
    if not os.path.isdir(path):
        return False
    return any(not name.endswith(".part") for _, _, names in os.walk(path) for name in names)


def rename_into_place(partial: str, target: str, claim: Claim, *, overwrite: bool) -> None:
    """Rename into place. Where the system allows it, an old output and the new one change names in one step."""
    try:
        if not os.path.lexists(target):
            _rename_new(partial, target)
            return
        if not overwrite:
            raise UsageError(
                f"{target}: appeared while it was being written",
                hint="choose another place with -o",
            )
        claim.mark(partial)
        if os.path.isfile(partial) and os.path.isfile(target):
            os.replace(partial, target)
        elif exchange(partial, target):
            remove(partial)
        else:
            _replace_by_two_renames(partial, target, claim)
        _sync_parent(target)
    except OpenReadoutError:
        raise
    except OSError as error:
        raise storage_error(error, target) from error


def _replace_by_two_renames(partial: str, target: str, claim: Claim) -> None:
    """Move the old output aside, put the new one in its place, and remove the old one; undone where that fails.

    A kill between the two leaves neither; whoever writes to the target next puts the old one back.
    """
    folder, name = os.path.split(os.path.abspath(target))
    aside = os.path.join(folder, f".{name}.old-{secrets.token_hex(4)}")
    claim.moved(os.path.basename(aside))
    try:
        os.rename(target, aside)
        _rename_new(partial, target)
    except BaseException:
        if os.path.lexists(aside) and not os.path.lexists(target):
            os.rename(aside, target)
        raise
    remove(aside)


def _rename_new(partial: str, target: str) -> None:
    """Rename to a name that must not exist; a file must not silently replace one that has just appeared."""
    if os.path.isfile(partial):
        try:
            os.link(partial, target)
        except FileExistsError:
            raise UsageError(f"{target}: appeared while it was being written") from None
        except OSError:  # a file system without hard links
            os.rename(partial, target)
        else:
            os.unlink(partial)
    else:
        os.rename(partial, target)
    _sync_parent(target)


def _sync_parent(target: str) -> None:
    with contextlib.suppress(OSError):
        sync_folder(os.path.dirname(os.path.abspath(target)))
