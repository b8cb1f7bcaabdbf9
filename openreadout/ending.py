"""Signals that ask the program to end: what they raise, and that nobody on the way loses it.

Ctrl-C (SIGINT) and SIGTERM raise an exception once, so that everything is cleared away or kept for `--resume`. A
library may swallow that, or make another error of it; then it is raised again where somebody asks. A second signal,
some time after the first, ends the process at once, which is safe at any moment: a kill could have come as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

PATIENCE_SECONDS = 1.0
"""How long a second signal is taken for the first one: some programs signal a process and then its whole group."""
RAISE_AGAIN_SECONDS = 0.02


class Terminated(KeyboardInterrupt):
    """Somebody asked the program to end (SIGTERM); it cleans up as after Ctrl-C."""


class Ending:
    """Handles the signals that ask the program to end, and remembers the exception that it raised."""

    def __init__(self) -> None:
        self.came: KeyboardInterrupt | None = None
        self._number = 0
        self._at = 0.0
        self._lost = False

    def __call__(self, number: int, frame: object) -> None:
        if self.came is None:
            self._number, self._at = number, time.monotonic()
            self.came = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
        elif self._lost:
            self._lost = False
        elif time.monotonic() - self._at < PATIENCE_SECONDS:
            return
        else:
            leave_at_once(number, frame)
        raise self.came

    def again(self) -> None:
        """Raise once more a little later: Python has thrown away what was raised, as it came inside a `__del__`."""
        import _thread

        def send() -> None:
            time.sleep(RAISE_AGAIN_SECONDS)
            self._lost = True
            _thread.interrupt_main(signal.Signals(self._number))

        threading.Thread(target=send, daemon=True).start()


def leave_at_once(number: int, frame: object) -> None:
    """A handler for when there is nothing to clear away."""
    os._exit(128 + number)


def on_signal(handler: Any) -> None:
    """Set the handler of both signals; a SIGINT that whoever started the program lets it ignore stays ignored."""
    with contextlib.suppress(ValueError):  # only the main thread may set handlers
        signal.signal(signal.SIGTERM, handler)
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            signal.signal(signal.SIGINT, handler)


@contextlib.contextmanager
def listening() -> Iterator[Ending]:
    """Raise an exception for a signal, in the main thread, until this is left; then the handlers are what they were."""
    ending = Ending()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    before = sys.unraisablehook

    def hook(lost: Any) -> None:
        if ending.came is not None and isinstance(lost.exc_value, KeyboardInterrupt):
            ending.again()
        else:
            before(lost)

    on_signal(ending)
    sys.unraisablehook = hook
    try:
        yield ending
    finally:
        sys.unraisablehook = before
        with contextlib.suppress(ValueError):
            for number, handler in handlers.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Signals that ask the program to end are heard when this is left: some libraries are broken by them half-way."""
    if threading.current_thread() is not threading.main_thread():
        yield  # none is raised in another thread
        return
    came: list[tuple[int, float]] = []

    def hold(number: int, frame: object) -> None:
        if came and time.monotonic() - came[0][1] >= PATIENCE_SECONDS:
            leave_at_once(number, frame)
        came.append((number, time.monotonic()))

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    on_signal(hold)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0][0])


def raise_if_ended() -> None:
    """Raise again what a signal raised, where something has caught it on the way."""
    ending = signal.getsignal(signal.SIGTERM)
    if isinstance(ending, Ending) and ending.came is not None:
        raise ending.came
