"""Options that the commands share, the list of inputs, and the loop over them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from openreadout import limits
from openreadout.errors import (
    InputError,
    OpenReadoutError,
    UnknownFormatError,
    UsageError,
    storage_error,
)
from openreadout.record import record
from openreadout.remote.urls import is_url

if TYPE_CHECKING:
    from openreadout.planes import Selection

Command = TypeVar("Command", bound=Callable[..., Any])


@record
class Outcome:
    """What a command made of one input.

    `data` is the payload for JSON, `text` prints it for people (told whether it stands alone), `exit_code` is the
    input's own.
    """

    data: Callable[[], Mapping[str, Any]]
    text: Callable[[bool], None]
    exit_code: int = 0


def input_options(command: Command) -> Command:
    """Inputs and how results are printed."""
    for option in reversed(
        (
            click.argument("paths", nargs=-1, type=click.Path(), metavar="PATH..."),
            click.option(
                "-r", "--recursive", is_flag=True, help="Look for data sets below each folder."
            ),
            click.option(
                "--files-from",
                metavar="FILE",
                help="Read more paths from FILE, one a line ('-': standard input).",
            ),
            click.option("-0", "--null", is_flag=True, help="Paths in --files-from end with NUL."),
            click.option("--fail-fast", is_flag=True, help="Stop at the first input that fails."),
            click.option(
                "--skip-unknown", is_flag=True, help="Pass over inputs of no known format."
            ),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
            click.option(
                "--jsonl",
                "as_jsonl",
                is_flag=True,
                help="Print one line of JSON for each input as it is ready.",
            ),
            click.option("-q", "--quiet", is_flag=True, help="No progress and no warnings."),
            click.option(
                "--color/--no-color",
                "color",
                default=None,
                help="Colour; by default on a terminal only.",
            ),
            click.option("--debug", is_flag=True, help="Show the traceback of an error."),
        )
    ):
        command = option(command)
    return command


def only_option(command: Command) -> Command:
    """One value in place of the whole result."""
    return click.option(
        "--only",
        metavar="POINTER",
        help="Print only this part of the JSON data: /images/0/physical_size.",
    )(command)


def selection_options(command: Command) -> Command:
    """Which part of the images a command works on."""
    for option in reversed(
        (
            click.option(
                "--image", "images", multiple=True, type=int, help="Only image N (may be repeated)."
            ),
            click.option(
                "--level", help="Pyramid level: a number, 0 is full resolution, or 'all'."
            ),
            click.option(
                "--select",
                "selects",
                multiple=True,
                metavar="AXIS=RANGES",
                help="Only these indices of t, c or z, such as c=0,2 or z=3-9.",
            ),
            click.option(
                "--region", metavar="X,Y,W,H", help="Only this part of each plane, in pixels."
            ),
        )
    ):
        command = option(command)
    return command


def limit_option(command: Command) -> Command:
    """The bounds on what a file may declare; set before anything is opened."""

    def set_them(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> None:
        if texts:
            from openreadout.bounds import set_by_options

            set_by_options(texts)

    return click.option(
        "--limit",
        multiple=True,
        metavar="NAME=VALUE",
        expose_value=False,
        callback=set_them,
        help="Accept more than usual of a file, such as MAX_JSON_BYTES=256MiB (may be repeated); see docs/limits.md.",
    )(command)


def remote_option(command: Command) -> Command:
    """How metadata behind a URL are read."""
    return click.option(
        "--trust-consolidated",
        is_flag=True,
        help="Of an input behind a URL, believe its consolidated metadata, which saves most requests.",
    )(command)


def threads_for(threads: int | None, *paths: str | None) -> int | None:
    """How many threads read: what was asked for, else more than there are processors where a network is waited for."""
    far = any(path is not None and is_url(path) for path in paths)
    return threads or (limits.REMOTE_THREADS if far else None)


def work_options(command: Command) -> Command:
    """How much of the machine a command may use, and how axes are named."""
    for option in reversed(
        (
            click.option(
                "--axes",
                metavar="LETTERS",
                help="Axis letters, fastest first, of an input that names none: xyzct.",
            ),
            click.option(
                "--threads",
                type=click.IntRange(1, 1024),
                help="Threads; by default one for each CPU, 16 for data behind a URL.",
            ),
            click.option(
                "--memory", metavar="SIZE", help="Bound on pixel buffers, such as 512MiB."
            ),
            click.option(
                "--progress/--no-progress",
                "progress",
                default=None,
                help="Progress; by default on a terminal only.",
            ),
        )
    ):
        command = option(command)
    return command


# -- parsing ---------------------------------------------------------------------------------------


def parse_selection(
    images: tuple[int, ...], selects: tuple[str, ...], region: str | None
) -> Selection:
    """The selection options as one object; raises `UsageError` for what does not parse."""
    from openreadout.planes import Selection

    if any(n < 0 for n in images):
        raise UsageError(f"--image {min(images)}: images are numbered from 0")
    chosen: dict[str, tuple[int, ...]] = {}
    for text in selects:
        axis, _, ranges = text.partition("=")
        axis = axis.strip().lower()
        if axis not in ("t", "c", "z") or not ranges:
            raise UsageError(
                f"--select {text}: not AXIS=RANGES",
                hint="for example --select c=0,2 --select z=3-9",
            )
        chosen[axis] = tuple(sorted({*chosen.get(axis, ()), *_ranges(text, ranges)}))
    return Selection(images=tuple(dict.fromkeys(images)) or None, region=_region(region), **chosen)


def _ranges(text: str, ranges: str) -> Iterator[int]:
    for part in ranges.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(
                f"--select {text}: {part!r} is not a number or a range",
                hint="ranges are zero-based: z=3-9",
            )
        start, stop = int(first), int(last) if dash else int(first)
        if stop < start or stop - start > 1 << 24:
            raise UsageError(f"--select {text}: {part!r} is not a range that goes up")
        yield from range(start, stop + 1)


def _region(text: str | None) -> tuple[int, int, int, int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 4 or not all(part.strip().isdigit() for part in parts):
        raise UsageError(
            f"--region {text}: not X,Y,WIDTH,HEIGHT", hint="for example --region 0,0,512,512"
        )
    x, y, w, h = (int(part) for part in parts)
    return x, y, w, h


def parse_level(text: str | None) -> int | None:
    """`--level`: a number, -1 for `all`, None when not given."""
    if text is None:
        return None
    if text == "all":
        return -1
    if not text.isdigit():
        raise UsageError(
            f"--level {text}: not a number", hint="0 is full resolution; 'all' takes every level"
        )
    return int(text)


def parse_size(text: str | None) -> int | None:
    """A size such as `512MiB` or `1.5GB` in bytes."""
    if text is None:
        return None
    units = {
        "": 1,
        "b": 1,
        "k": 1 << 10,
        "m": 1 << 20,
        "g": 1 << 30,
        "t": 1 << 40,
        "kib": 1 << 10,
        "mib": 1 << 20,
    }
    units |= {"gib": 1 << 30, "tib": 1 << 40, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
    word = text.strip().lower().replace(" ", "")
    number = word.rstrip("bkmgti")
    try:
        size = float(number) * units[word[len(number) :]]
    except (KeyError, ValueError):
        raise UsageError(f"--memory {text}: not a size", hint="for example 512MiB or 2GB") from None
    if not 1 << 20 <= size < 1 << 60:
        raise UsageError(f"--memory {text}: less than 1 MiB or absurdly large")
    return int(size)


def parse_axes(text: str | None) -> str | None:
    """`--axes`: letters among x y z c t, each once."""
    if text is None:
        return None
    letters = text.strip().lower().replace(",", "")
    if not letters or set(letters) - set("xyzct") or len(set(letters)) != len(letters):
        raise UsageError(
            f"--axes {text}: not letters of x y z c t, each once", hint="for example --axes xyzc"
        )
    return letters


# -- inputs ----------------------------------------------------------------------------------------


def gather(
    paths: tuple[str, ...], files_from: str | None, null: bool, recursive: bool
) -> Iterator[str]:
    """Every input, in the order given; raises `UsageError` when there is none."""
    any_path = False
    for path in _given(paths, files_from, null):
        any_path = True
        if recursive and os.path.isdir(path):
            yield from _walk(path)
        else:
            yield path
    if not any_path:
        raise UsageError("no input was given", hint="name a file or folder, or use --files-from")


def _given(paths: tuple[str, ...], files_from: str | None, null: bool) -> Iterator[str]:
    yield from paths
    if files_from is None:
        return
    try:
        if files_from == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(files_from, "rb") as file:
                data = file.read()
    except OSError as error:
        raise storage_error(error, files_from) from error
    for line in data.split(b"\0" if null else b"\n"):
        name = os.fsdecode(line if null else line.rstrip(b"\r"))
        if name:
            yield name


def _walk(folder: str) -> Iterator[str]:
    """Data sets below a folder; one that is a data set itself is not walked into, links to folders are not followed."""
    from openreadout import registry

    if _recognised(folder, registry.detect):
        yield folder
        return
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise storage_error(error, folder) from error
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)
        elif entry.is_file() and _recognised(entry.path, registry.detect):
            yield entry.path


def _recognised(path: str, detect: Callable[[str], object]) -> bool:
    try:
        detect(path)
    except InputError:
        return False
    return True


# -- the loop --------------------------------------------------------------------------------------


@record
class Printing:
    """How results are printed."""

    mode: str
    fail_fast: bool
    skip_unknown: bool
    debug: bool
    quiet: bool = False
    only: str | None = None


def printing(options: dict[str, Any]) -> Printing:
    """Take the printing options out of a command's options."""
    if options["as_json"] and options["as_jsonl"]:
        raise UsageError("--json and --jsonl exclude one another")
    mode = "json" if options["as_json"] else "jsonl" if options["as_jsonl"] else "text"
    only = options.get("only")
    if only is not None and not only.startswith("/"):
        raise UsageError(
            f"--only {only}: not a JSON pointer", hint="for example --only /images/0/physical_size"
        )
    return Printing(
        mode=mode,
        fail_fast=options["fail_fast"],
        skip_unknown=options["skip_unknown"],
        debug=options["debug"],
        quiet=options["quiet"],
        only=only,
    )


def run_inputs(inputs: Iterator[str], how: Printing, work: Callable[[str], Outcome]) -> int:
    """Work on every input, print each result, and return the highest exit code.

    One input prints its own envelope with `--json`; several (also when a second one is only known later) are
    collected into one document.
    """
    from openreadout.cli import output
    from openreadout.ending import raise_if_ended

    worst = 0
    envelopes: list[dict[str, Any]] = []
    first: str | None = None
    alone: bool | None = None
    codes: dict[int, int] = {}
    for path, following in _with_next(inputs):
        raise_if_ended()
        if alone is None:
            first, alone = path, not following
        envelope, code = _one(path, how, work, alone)
        worst = max(worst, code)
        codes[code] = codes.get(code, 0) + 1
        if envelope is not None:
            envelopes.append(envelope)
        if code and how.fail_fast:
            break
    if how.mode == "json":
        if alone and envelopes:
            output.write_json(envelopes[0])
        else:
            output.write_json({"ok": True, "schema_version": "1", "data": {"inputs": envelopes}})
    elif how.mode == "text" and not how.quiet:
        if first is None:
            output.note("no data set was found")
        elif not alone:
            output.note(_summary(codes))
    return worst


_CODES = {
    1: "failed",
    2: "refused",
    3: "of unknown format",
    4: "damaged",
    5: "not read or written",
    6: "not supported",
}


def _summary(codes: dict[int, int]) -> str:
    """How several inputs fared, for stderr: `31 inputs: 12 done, 17 damaged`."""
    told = [f"{codes[0]} done"] if 0 in codes else []
    told += [f"{codes[code]} {_CODES.get(code, 'failed')}" for code in sorted(codes) if code]
    count = sum(codes.values())  # one, where the first of several ends all
    return f"{count} {'input' if count == 1 else 'inputs'}: {', '.join(told)}"


def _with_next(inputs: Iterator[str]) -> Iterator[tuple[str, bool]]:
    """Each input with whether another one follows."""
    current = next(inputs, None)
    while current is not None:
        following = next(inputs, None)
        yield current, following is not None
        current = following


def _one(
    path: str, how: Printing, work: Callable[[str], Outcome], alone: bool
) -> tuple[dict[str, Any] | None, int]:
    """Work on one input: its envelope (None when it was passed over) and exit code."""
    from openreadout import serialize
    from openreadout.cli import output, unexpected
    from openreadout.ending import raise_if_ended

    try:
        outcome = work(path)
        if how.mode == "text" and how.only is None:
            outcome.text(alone)
            return {}, outcome.exit_code
        data = outcome.data()
        if how.only is not None:
            data = point(data, how.only)
        if how.mode == "text":
            output.write_value(data)
            return {}, outcome.exit_code
        envelope = serialize.success(data)
        code = outcome.exit_code
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except OpenReadoutError as error:
        raise_if_ended()
        if how.debug:
            raise
        if how.skip_unknown and isinstance(error, UnknownFormatError):
            return None, 0
        envelope, code = _failed(error, path, how)
    except Exception as error:  # a fault of this program, which ends this input and not the others
        raise_if_ended()
        if how.debug:
            raise
        envelope, code = _failed(unexpected(error), path, how)
    if how.mode == "jsonl":
        output.write_json({"ok": envelope["ok"], "path": path, **envelope}, compact=True)
    return envelope, code


def _failed(error: OpenReadoutError, path: str, how: Printing) -> tuple[dict[str, Any], int]:
    from openreadout import serialize
    from openreadout.cli import output

    error.path = path
    output.say_error(error, path)
    return serialize.failure(error), error.exit_code


def point(document: Any, pointer: str) -> Any:
    """The part of a JSON document that a pointer names (RFC 6901); raises `UsageError` when there is none."""
    value = document
    for word in pointer.split("/")[1:]:
        key = word.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif (
            isinstance(value, list)
            and key.isascii()
            and key.isdigit()
            and len(key) < 10
            and int(key) < len(value)
        ):
            value = value[int(key)]
        else:
            raise UsageError(
                f"--only {pointer}: there is no {key!r}{_choices(value)}",
                hint="--json shows what there is",
            )
    return value


def _choices(value: Any) -> str:
    if isinstance(value, list):
        return f" in a list of {len(value)}"
    if not isinstance(value, dict):
        return ""
    return f" among {', '.join(list(value)[:12])}" if value else ""


def progress_bar(how: Printing, wanted: bool | None, label: str, unit: str = "planes") -> Any:
    """A progress reporter on stderr, or None; see `openreadout.cli.progress`."""
    if how.quiet or wanted is False or (wanted is None and not sys.stderr.isatty()):
        return None
    from openreadout.cli.progress import Progress

    return Progress(label, plain=not sys.stderr.isatty(), unit=unit)
