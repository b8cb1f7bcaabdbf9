"""The program: `python -m openreadout` is the same as `openreadout`."""

import atexit
import signal

from openreadout.ending import leave_at_once, on_signal


def main() -> None:
    """Run the program; never returns. A signal that comes while it is still being loaded ends it without a word."""
    on_signal(leave_at_once)
    # The last thing at the exit: Python takes its handlers away before it takes itself apart, and a signal would then
    # kill a program that has done all its work.
    atexit.register(on_signal, signal.SIG_IGN)
    from openreadout.cli import main as run

    run()


if __name__ == "__main__":
    main()
