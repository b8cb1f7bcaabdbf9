"""Progress on stderr: a bar on a terminal, plain lines elsewhere when asked for."""

from __future__ import annotations

import sys
import time

from openreadout.cli.output import escape, human_bytes, human_seconds, unicode_ok

EVERY_S = 0.1
PLAIN_EVERY_S = 5.0


class Progress:
    """Called with how much is done and how much there is; `unit` is `bytes` or a word."""

    def __init__(self, label: str, *, plain: bool, unit: str = "planes") -> None:
        self.label = escape(label.rstrip("/").rpartition("/")[2])
        self.plain = plain
        self.unit = unit
        self.start = time.monotonic()
        self.last = self.start if plain else 0.0
        self.shown = False

    def __call__(self, done: int, total: int) -> None:
        """Draw, at most ten times a second."""
        now = time.monotonic()
        if now - self.last < (PLAIN_EVERY_S if self.plain else EVERY_S):
            return
        self.last = now
        line = self._line(done, total, now - self.start)
        try:
            sys.stderr.write(f"{line}\n" if self.plain else f"\r\033[2K{line}")
            sys.stderr.flush()
            self.shown = True
        except (OSError, ValueError):
            pass  # nobody is looking any more

    def _line(self, done: int, total: int, seconds: float) -> str:
        rate = done / seconds if seconds > 0 else 0.0
        if self.unit == "bytes":
            amount = f"{human_bytes(done)} of {human_bytes(total)}  {human_bytes(rate)}/s"
        else:
            amount = f"{done} of {total} {self.unit}" if total else f"{done} {self.unit}"
        if not total:
            return f"{self.label}  {amount}"
        part = min(1.0, done / total)
        left = human_seconds((total - done) / rate) if rate > 0 else ""
        return f"{self.label}  {self._bar(part)}  {part:4.0%}  {amount}  {left}"

    def _bar(self, part: float) -> str:
        filled = int(part * 30)
        if unicode_ok(sys.stderr):
            return "━" * filled + "╸" * (filled < 30) + " " * (29 - filled)
        return "=" * filled + "-" * (30 - filled)

    def close(self) -> None:
        """Take the bar off the screen."""
        if self.shown and not self.plain:
            try:
                sys.stderr.write("\r\033[2K")
                sys.stderr.flush()
            except (OSError, ValueError):
                pass
