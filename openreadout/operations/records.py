"""What processes that write one export together note of the cells that they have written."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import xxhash

from openreadout.arrays import ChunkIndex
from openreadout.errors import storage_error
from openreadout.operations.walk import DIGEST_BYTES, Pass
from openreadout.operations.writing import Cell
from openreadout.system import open_own, sync_file

ENDING = ".cells"
LINE_BYTES = 1 << 26
"""The longest line that is read; a cell of a thousand channels and levels takes some kilobytes."""
Key = tuple[int, int, int, ChunkIndex]
"""Image, first and last level, and index of a cell."""


def key_of(step: Pass, index: ChunkIndex) -> Key:
    """What tells a cell from all others of an export."""
    return step.image, step.first, step.last, index


class Notes:
    """A file to which one process adds a line for each cell that it has written.

    Each line begins with a digest of itself, so that one that was cut by a kill is known as such and passed over.

    Parameters
    ----------
    folder : str
        Where all processes note; it is there already.
    sync : bool
        Bring every line to the disk.
    """

    def __init__(self, folder: str, *, sync: bool) -> None:
        self.path = os.path.join(folder, f"{secrets.token_hex(8)}{ENDING}")
        self._sync = sync
        try:
            self._fd = open_own(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise storage_error(error, self.path) from error

    def add(self, cell: Cell) -> None:
        """Note a cell of which every shard is complete."""
        text = json.dumps(_as_json(cell), separators=(",", ":")).encode()
        line = memoryview(xxhash.xxh3_64_hexdigest(text).encode() + b" " + text + b"\n")
        try:
            while line:
                line = line[os.write(self._fd, line) :]
            if self._sync:
                sync_file(self._fd)
        except OSError as error:
            raise storage_error(error, self.path) from error

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Notes:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_notes(folder: str) -> dict[Key, Cell]:
    """Every cell that any process has noted in a folder; none where there is no such folder."""
    found: dict[Key, Cell] = {}
    if not os.path.isdir(folder):
        return found
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(ENDING))
        for name in names:
            with open(open_own(os.path.join(folder, name), os.O_RDONLY), "rb") as file:
                for cell in _cells(iter(lambda: file.readline(LINE_BYTES), b"")):
                    found[key_of(cell.step, cell.index)] = cell
    except OSError as error:
        raise storage_error(error, folder) from error
    return found


def _cells(lines: Iterator[bytes]) -> Iterator[Cell]:
    for line in lines:
        proof, _, text = line.rstrip(b"\n").partition(b" ")
        if line.endswith(b"\n") and proof.decode("ascii", "replace") == xxhash.xxh3_64_hexdigest(
            text
        ):
            cell = _from_json(text)
            if cell is not None:
                yield cell


def _as_json(cell: Cell) -> dict[str, Any]:
    return {
        "step": [cell.step.image, cell.step.first, cell.step.last],
        "index": cell.index,
        "digests": [level.hex() for level in cell.digests],
        "seen": cell.seen,
        "counts": [cell.size, cell.copied, cell.encoded],
    }


def _from_json(text: bytes) -> Cell | None:
    """The cell of a line; None where it is none, which counts as not written."""
    try:
        value = json.loads(text)
        cell = Cell(
            Pass(*_whole(value["step"], 3)),
            tuple(_whole(value["index"])),
            tuple(bytes.fromhex(level) for level in value["digests"]),
            tuple(_seen(*entry) for entry in value["seen"]),
            *_whole(value["counts"], 3),
        )
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
    levels = 1 + cell.step.last - cell.step.first
    even = all(len(digests) % DIGEST_BYTES == 0 for digests in cell.digests)
    return cell if len(cell.digests) == levels and even else None


def _whole(values: Any, count: int | None = None) -> Sequence[int]:
    """A list of whole numbers that are not negative, `count` of them; raises `ValueError` for anything else."""
    good = isinstance(values, list) and (count is None or len(values) == count)
    if not good or not all(type(n) is int and 0 <= n < 1 << 63 for n in values):
        raise ValueError("not whole numbers")
    return values  # type: ignore[no-any-return]


def _seen(channel: Any, low: Any, high: Any) -> tuple[int, float, float]:
    if not all(type(n) in (int, float) for n in (low, high)):
        raise ValueError("not numbers")
    return _whole([channel])[0], low, high
