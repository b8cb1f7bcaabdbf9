"""The target of an export in parts: one hidden folder that several processes write to, until a commit renames it."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from openreadout.errors import OpenReadoutError, UsageError, VerificationError, storage_error
from openreadout.operations.claim import claimed
from openreadout.operations.target import RECORDS, hidden, rename_into_place, restore_old
from openreadout.system import open_own, remove

PLAN = "plan"
"""File in the folder of records: the fingerprint and the number of parts."""
MAX_PARTS = 100_000
"""Parts of one export; schedulers allow arrays of some thousand jobs."""
MAX_PLAN = 200
"""Characters of that file."""


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
        fd = open_own(os.path.join(records, PLAN), os.O_RDONLY)
        with open(fd, encoding="ascii", errors="replace") as file:
            return file.read(MAX_PLAN)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error(error, records) from error


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
        restore_old(claim, target, overwrite=overwrite)
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
        if not (count.isascii() and count.isdigit() and 0 < int(count) <= MAX_PARTS):
            raise UsageError(
                f"{target}: {inside} does not tell how many parts there are",
                hint=f"remove {path} to start anew",
            )
        try:
            # beside it, so that nothing but the output gets the final name
            os.rename(inside, aside)
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
