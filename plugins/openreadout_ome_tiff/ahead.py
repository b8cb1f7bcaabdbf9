"""Where the next IFDs of a chain may lie, so that those of a file far away are asked for together.

An IFD tells where the next one is, and nothing else does: read one by one, a thousand planes are a thousand waits. Only
guesses are made here. The chain itself is walked as it is, and a wrong guess costs bytes and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openreadout.limits import KIB, MIB

if TYPE_CHECKING:
    from openreadout_ome_tiff.files import File

IFD_BYTES = 1024
"""Bytes read of an IFD at once, enough for fifty BigTIFF entries."""
SURE = 3
"""Steps that were alike before the next ones are taken to be, and IFDs before anything is guessed."""
FIRST_AHEAD, MAX_AHEAD = 4, 64
"""IFDs that are asked for together, at first and once that has gone well."""
MIN_THROUGH, MAX_THROUGH = MIB, 8 * MIB
"""Bytes read through at once where the IFDs are close and their distances differ, as those of compressed planes do."""
FAR_STEP = MIB
"""A longer way is not read through: the wait that it saves is shorter than the time that its bytes take."""
NEAR_STEP = 64 * KIB
"""On a shorter way next to everything is read anyway, in the pieces that are asked for."""
MOST_THROUGH = 256 * MIB
"""Bytes of one file that are read through in all."""


class ChainAhead:
    """Follows the walk along the chain of one file, and has the file fetch what seems to come.

    Parameters
    ----------
    file : File
    first : int
        Byte offset of the first IFD.
    """

    def __init__(self, file: File, first: int) -> None:
        self._file = file
        self._at = self._until = first
        self._step = self._alike = self._seen = 0
        self._count = FIRST_AHEAD
        self._through = MIN_THROUGH
        self._spent = 0

    def reached(self, offset: int) -> None:
        """The next IFD that is read is the one at `offset`. Raises `RemoteError`."""
        step = offset - self._at
        if step == self._step:
            self._alike += 1
        else:
            self._alike, self._count = 1, FIRST_AHEAD
        self._at, self._step = offset, step
        self._seen += 1
        if self._seen <= SURE or offset < self._until or step <= 0:
            return
        if step > NEAR_STEP and self._alike >= SURE:
            self._alone(offset, step)
        elif step <= NEAR_STEP or (step <= FAR_STEP and self._spent < MOST_THROUGH):
            self._whole(offset, step)

    def _alone(self, offset: int, step: int) -> None:
        """IFDs at equal distances, and nothing between them."""
        self._file.expect([(offset + n * step, IFD_BYTES) for n in range(self._count)])
        self._until = offset + self._count * step
        self._count = min(2 * self._count, MAX_AHEAD)

    def _whole(self, offset: int, step: int) -> None:
        """All bytes for a while."""
        self._file.expect([(offset, self._through)])
        self._until = offset + self._through - step  # the last one may reach beyond
        if step > NEAR_STEP:
            self._spent += self._through
        self._through = min(2 * self._through, MAX_THROUGH)
