"""The target of an export on disk: where it may lie, its temporary sibling, and the final rename."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from openreadout.errors import (
    OpenReadoutError,
    StorageError,
    UsageError,
    VerificationError,
    storage_error,
)
from openreadout.operations.journal import Journal
from openreadout.remote.urls import is_url, name_of
from openreadout.system import exchange, lock_file, sync_file, sync_folder

ARCHIVES = (".ozx", ".zip")
RECORDS = ".parts"
"""Folder of what several processes noted: in the hidden output while parts are written, beside it otherwise."""
JOURNAL = ".files"
"""Ending of the file beside a partial output in which its complete files are noted."""
FINGERPRINT_HEX = 32


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
    name = name_of(path) if is_url(path) else os.path.basename(os.path.abspath(path))
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
    journal: Journal | None = None


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
        _restore_old(claim, target, overwrite=overwrite)
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
            if not claim.replaced(path) and _worth_keeping(path, error):
                claim.keep = True
                error.kept = path  # type: ignore[attr-defined]
                if isinstance(error, OpenReadoutError):
                    error.hint = (
                        f"{error.hint.rstrip('.')}; then run the same command with --resume"
                    )
            else:
                claim.keep = False
                remove(path)
                remove(path + RECORDS)
                remove(path + JOURNAL)
            raise


@dataclass(frozen=True, slots=True)
class Parts:
    """An output that is written in parts: its hidden folder, where processes note, and how many parts it has."""

    path: str
    records: str
    count: int


@contextlib.contextmanager
def part_output(target: str, *, fingerprint: str, count: int) -> Iterator[Parts]:
    """Give the hidden folder that all parts write to, and keep others from clearing it away meanwhile.

    Raises
    ------
    UsageError
        An export that is not in parts, or a commit, is writing or was interrupted; or the parts that are there were
        made from another source, with other options or in another number.
    """
    path = hidden(target)
    with claimed(f"{path}.lock", target, shared=True) as claim:
        claim.keep = True
        records = os.path.join(path, RECORDS)
        if claim.replaced(path) or os.path.isdir(path + RECORDS):
            _refuse_left(target, path)
        if not os.path.lexists(path):
            _begin_parts(path, f"{fingerprint} {count}")
        known = _begun(records)
        if known is None:
            _refuse_left(target, path)
        if known != f"{fingerprint} {count}":
            raise UsageError(
                f"{target}: the parts that are there were made from another source, with other options or as "
                f"{known.partition(' ')[2]} parts",
                hint=f"run all parts with the same options, or remove {path} to start anew",
            )
        yield Parts(path, records, count)


def _refuse_left(target: str, path: str) -> NoReturn:
    raise UsageError(
        f"{target}: {path} is there, which an interrupted export or commit left",
        hint="end that with --resume or --commit, or remove the folder to start anew",
    )


PLAN = "plan"
"""File in the folder of records: the fingerprint and the number of parts."""


def _begin_parts(path: str, plan: str) -> None:
    """Make the hidden folder with its plan in one step, so that every part sees both or neither."""
    fresh = f"{path}-{secrets.token_hex(4)}"
    try:
        os.makedirs(os.path.join(fresh, RECORDS))
        with open(os.path.join(fresh, RECORDS, PLAN), "w", encoding="ascii") as file:
            file.write(plan)
        with contextlib.suppress(OSError):  # another part was first, as the one who asks next sees
            os.rename(fresh, path)
    except OSError as error:
        raise storage_error(error, path) from error
    finally:
        remove(fresh)


def _begun(records: str) -> str | None:
    """Fingerprint and number of the parts that are there; None where there are none."""
    try:
        with open(os.path.join(records, PLAN), encoding="ascii", errors="replace") as file:
            return file.read(MAX_PLAN)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error(error, records) from error


MAX_PLAN = 200


@contextlib.contextmanager
def parts_to_commit(target: str, *, overwrite: bool, fingerprint: str) -> Iterator[Parts]:
    """Give what the parts of a target wrote, and rename it to the target at the end.

    When the body raises, the target is as it was and the parts stay, but for a failed verification.

    Raises
    ------
    UsageError
        There are no parts, some are being written, or they were made from another source or with other options.
    """
    path = hidden(target)
    aside = path + RECORDS
    with claimed(f"{path}.lock", target) as claim:
        claim.keep = os.path.lexists(path)
        _restore_old(claim, target, overwrite=overwrite)
        if claim.replaced(path):
            claim.keep = False
            remove(path)
            remove(aside)
            raise UsageError(f"{target}: the parts are already committed")
        inside = os.path.join(path, RECORDS)
        _put_back(aside, inside)
        known, _, count = (_begun(inside) or "").partition(" ")
        if not known:
            raise UsageError(
                f"{target}: no part of it has been written",
                hint="run --part 1/N to --part N/N with the same options first",
            )
        if known != fingerprint:
            raise UsageError(
                f"{target}: the source or the options are not those of the parts",
                hint=f"give --commit the options of the parts, or remove {path} to start anew",
            )
        try:
            os.rename(
                inside, aside
            )  # beside it, so that nothing but the output gets the final name
            claim.write(fingerprint)
            yield Parts(path, aside, int(count))
            rename_into_place(path, target, claim, overwrite=overwrite)
            claim.keep = False
            remove(aside)
        except BaseException as error:
            if isinstance(error, VerificationError):
                claim.keep = False
                remove(path)
                remove(aside)
            elif not claim.replaced(path):
                claim.write("")
                _put_back(aside, inside)
            if isinstance(error, OSError) and not isinstance(error, OpenReadoutError):
                raise storage_error(error, path) from error
            raise


def _put_back(aside: str, inside: str) -> None:
    """Move what parts noted to where they look for it."""
    if os.path.isdir(aside) and os.path.isdir(os.path.dirname(inside)):
        with contextlib.suppress(OSError):
            os.rename(aside, inside)


def hidden(target: str) -> str:
    """The hidden sibling under which a target is written."""
    folder, name = os.path.split(os.path.abspath(target))
    return os.path.join(folder, f".{name}.partial")


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


_MOVED = "old "


@contextlib.contextmanager
def claimed(path: str, target: str, *, shared: bool = False) -> Iterator[Claim]:
    """Hold the lock file of a target; with `shared` together with others that do the same.

    Raises
    ------
    UsageError
        Somebody else holds it.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
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


def _remove_old(claim: Claim, target: str) -> None:
    """Remove what was moved aside, where the new output has its name already and the run was stopped after that."""
    if os.path.lexists(target):
        for aside in claim.old(target):
            remove(aside)


def _restore_old(claim: Claim, target: str, *, overwrite: bool) -> None:
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
            raise UsageError(
                f"{target}: cannot be resumed, the source or the options are not those of the run that was interrupted",
                hint="run again without --resume to start anew",
            )
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


def _worth_keeping(path: str, error: BaseException) -> bool:
    """Whether a later run can go on: the run was stopped from outside, and something is complete."""
    outside = isinstance(error, KeyboardInterrupt | StorageError) and not isinstance(
        error, UsageError
    )
    if not outside or not os.path.isdir(path):
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


def remove(path: str) -> None:
    """Remove a file or a folder of ours; what cannot be removed is left."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)
