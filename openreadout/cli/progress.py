"""Progress on stderr: a bar on a terminal, plain lines elsewhere when asked for."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

from openreadout.cli.output import escape, human_bytes

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

PLAIN_EVERY_S = 5.0
NARROW = 72
"""Columns of a terminal below which the bar tells its share and the time left alone: the rest would wrap."""


class Progress:
    """Called with how much is done and how much there is; `unit` is `bytes` or a word in the plural.

    Parameters
    ----------
    label : str
        What is worked on; its last path segment is shown.
    plain : bool
        Print a line every few seconds in place of a bar.
    unit : str
        What is counted.
    """

    def __init__(self, label: str, *, plain: bool, unit: str = "planes") -> None:
        self.label = escape(label.rstrip("/").rpartition("/")[2])
        self.unit = unit
        self._last = time.monotonic()
        self._bar: Bar | None = None if plain else _bar(unit)
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Show how far it is."""
        if self._bar is None:
            self._line(done, total)
            return
        if self._task is None:
            self._bar.start()
            longest = max(8, self._bar.console.width // 3)
            cut = len(self.label) > longest
            label = f"{self.label[: longest - 1]}…" if cut else self.label
            self._task = self._bar.add_task(label, total=total or None)
        self._bar.update(self._task, completed=done, total=total or None)

    def _line(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last < PLAIN_EVERY_S:
            return
        self._last = now
        counts = [human_bytes(n) if self.unit == "bytes" else str(n) for n in (done, total)]
        amount = f"{counts[0]} of {counts[1]}" if total else counts[0]
        words = "" if self.unit == "bytes" else f" {self.unit}"
        with contextlib.suppress(OSError, ValueError):  # nobody is looking any more
            sys.stderr.write(f"{self.label}  {amount}{words}\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None and self._task is not None:
            with contextlib.suppress(OSError, ValueError):
                self._bar.stop()


def _bar(unit: str) -> Bar:
    """A bar with amount, rate and time left, drawn ten times a second and gone at the end."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    counted: list[ProgressColumn] = (
        [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    )
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=40 if console.width >= NARROW else 8),
        TaskProgressColumn(),
        *(counted if console.width >= NARROW else []),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )
