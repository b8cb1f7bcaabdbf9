"""The command line: parses options, prints results, maps errors to exit codes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any

import click

from openreadout import __version__, limits
from openreadout.ending import Ending, Terminated, leave_at_once, listening, on_signal
from openreadout.errors import OpenReadoutError, StorageError, UsageError, storage_error

COMMANDS = {
    "info": "openreadout.cli.info:info",
    "check": "openreadout.cli.check:check",
    "export": "openreadout.cli.export:export",
    "preview": "openreadout.cli.preview:preview",
    "formats": "openreadout.cli.formats:formats",
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used: `info` then loads no array library."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order people need them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        import importlib

        module, _, name = target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command when the one asked for does not exist."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if near:
                raise click.UsageError(
                    f"there is no command {args[0]!r}; did you mean {near[0]!r}?", ctx
                ) from error
            raise


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 error, 2 usage, 3 unknown format, 4 damaged, 5 input/output, 6 not supported.",
)
@click.version_option(__version__, "--version", message="openreadout %(version)s")
def cli() -> None:
    """Read microscopy data (OME-Zarr, N5, OME-TIFF): what is in it, is it whole, give it to me as OME-Zarr.

    \b
    Examples:
      openreadout info cells.ome.zarr
      openreadout check --planes scan.ome.tiff
      openreadout export em.n5 --to ome-zarr -o em.ome.zarr
      openreadout preview plate.ome.zarr -o plate.png
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the program; never returns."""
    _fill_streams()
    try:
        code = run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt as error:  # it came when everything else was done
        code = _interrupted(error)
    _leave(code)


def _fill_streams() -> None:
    """Open what was closed before the start, so that no file of ours gets the number of stdout or stderr."""
    if sys.stdin is not None and sys.stdout is not None and sys.stderr is not None:
        return
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        fd = os.dup(fd)
    os.close(fd)
    # they stay open to the end, as those that they stand for would
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _leave(code: int) -> None:
    """End at once: nothing is left to clean up, and tearing down big libraries costs time."""
    on_signal(leave_at_once)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
    except (OSError, ValueError):
        _drop_stdout()
        code = code or StorageError.exit_code
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    if "numpy" not in sys.modules and "coverage" not in sys.modules:
        # Only metadata was read: no thread, child or temporary file is left, and taking the interpreter apart would
        # cost a tenth of the whole run.
        os._exit(code)
    # Of an interruption that came while a string was evaluated, as dataclasses and named tuples do when a module is
    # imported, `python -m` kills itself in the end, whoever caught it. Another string makes it forget that.
    exec("")  # noqa: S102
    raise SystemExit(code)


def _drop_stdout() -> None:
    """Point stdout nowhere, so that the interpreter's own last flush cannot complain about a closed pipe."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
    except OSError:
        pass


def run(arguments: list[str]) -> int:
    """Run the program and return its exit code: the one place where errors become codes."""
    before = limits.changed()
    with listening() as ending:
        try:
            code = _run(arguments, ending)
        except KeyboardInterrupt as error:
            return _interrupted(error)
        finally:
            limits.restore(before)  # `--limit` holds for one run
        # whoever swallowed the signal's exception has let the work go on to its end
        return code if ending.came is None else _interrupted(ending.came)


def _run(arguments: list[str], ending: Ending) -> int:
    """The exit code of what ended by itself; raises `KeyboardInterrupt` for what was interrupted."""
    debug = "--debug" in arguments
    try:
        result = cli.main(args=arguments, prog_name="openreadout", standalone_mode=False)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort as error:  # what click makes of an interruption
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        raise KeyboardInterrupt from error
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return UsageError.exit_code
    except click.ClickException as error:
        if debug:
            raise
        return _report(_usage(error), arguments)
    except BrokenPipeError:
        _drop_stdout()
        return 0
    except Exception as error:
        if ending.came is not None:
            raise ending.came from None
        if debug:
            raise
        known = error if isinstance(error, OpenReadoutError) else unexpected(error)
        return _report(known, arguments)
    return result if isinstance(result, int) else 0


def _interrupted(cause: BaseException | None) -> int:
    """The exit code after an interruption, and a word on what was kept."""
    if getattr(cause, "kept", None):
        from openreadout.cli import output

        with contextlib.suppress(OSError, ValueError):
            output.note("interrupted; the same command with --resume goes on from here")
    return 128 + signal.SIGTERM if isinstance(cause, Terminated) else 130


def unexpected(error: Exception) -> OpenReadoutError:
    """An exception that is none of ours is our fault; say so without a traceback. Memory may run out anywhere."""
    if isinstance(error, MemoryError):
        return StorageError(
            "there is not enough memory", hint="--memory and --threads 1 make do with less of it"
        )
    if isinstance(
        error, OSError
    ):  # the files of inputs and outputs are named where they are opened
        name = error.filename
        named = isinstance(name, str | bytes)
        return storage_error(error, os.fsdecode(name) if named else "the output")
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return OpenReadoutError(
        f"an unexpected error, which is a fault of this program ({text})",
        hint="run the same command with --debug and report what it shows",
    )


def _usage(error: click.ClickException) -> UsageError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "openreadout"
    message = " ".join(error.format_message().split()).rstrip(".")
    return UsageError(
        message[:1].lower() + message[1:], hint=f"{command} --help shows the options with examples"
    )


def _report(error: OpenReadoutError, arguments: list[str]) -> int:
    """Print an error that no single input is to blame for."""
    from openreadout.cli import output

    mode: Any = "json" if "--json" in arguments else "jsonl" if "--jsonl" in arguments else "text"
    try:
        output.print_error(error, mode)
    except OSError:  # closed, or nothing more can be written to it; the exit code still tells
        _drop_stdout()
    return error.exit_code
