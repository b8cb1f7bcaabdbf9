"""`python -m openreadout` is the same as `openreadout`."""

from openreadout.cli import main

if __name__ == "__main__":
    main()
