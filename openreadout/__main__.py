"""The program: `python -m openreadout` is the same as `openreadout`."""

from openreadout.ending import leave_at_once, on_signal


def main() -> None:
    """Run the program; never returns. A signal that comes while it is still being loaded ends it without a word."""
    on_signal(leave_at_once)
    from openreadout.cli import main as run

    run()


if __name__ == "__main__":
    main()
