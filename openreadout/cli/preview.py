"""`openreadout preview`."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from openreadout.cli.common import (
    limit_option,
    parse_axes,
    progress_bar,
    remote_option,
    threads_for,
)
from openreadout.errors import UsageError, storage_error

if TYPE_CHECKING:
    from openreadout.cli.common import Printing
    from openreadout.results import PreviewReport

PICTURE = 1024
"""Longest side of a picture in a file, unless `--size` is given."""


@click.command(
    epilog="\b\nExamples:\n"
    "  openreadout preview cells.ome.zarr\n"
    "  openreadout preview plate.ome.zarr -o plate.png --size 2000\n"
    "  openreadout preview stack.ome.tiff -o max.png --z max --channel 0 --channel 2"
)
@click.argument("path", type=click.Path())
@click.option("-o", "--output", metavar="FILE", help="Write a PNG file ('-': to standard output).")
@click.option("--overwrite", is_flag=True, help="Replace FILE.")
@click.option("--image", type=click.IntRange(0), help="Only image N.")
@click.option(
    "--channel",
    "channels",
    type=click.IntRange(0),
    multiple=True,
    help="Only channel N (may be repeated).",
)
@click.option(
    "--z",
    default="mid",
    metavar="mid|max|N",
    show_default=True,
    help="Middle plane, maximum of all planes, or plane N.",
)
@click.option("--t", type=click.IntRange(0), default=0, show_default=True, help="Time point.")
@click.option(
    "--size", type=click.IntRange(8, 8192), help="Longest side of the picture, in pixels."
)
@click.option(
    "--contrast",
    type=click.Choice(["auto", "window"]),
    default="auto",
    show_default=True,
    help="Percentiles of what is shown, or the display windows of the metadata.",
)
@click.option(
    "--axes", metavar="LETTERS", help="Axis letters, fastest first, of an input that names none."
)
@click.option(
    "--threads", type=click.IntRange(1, 1024), help="Threads; by default one for each CPU."
)
@click.option(
    "--progress/--no-progress", default=None, help="Progress; by default on a terminal only."
)
@click.option("--json", "as_json", is_flag=True, help="Tell what was shown as one JSON document.")
@remote_option
@limit_option
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes.")
@click.option("--color/--no-color", default=None, help="Colour; by default on a terminal only.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def preview(path: str, **options: Any) -> int:
    """Show a picture of a data set.

    In the terminal, or as a PNG file with -o. Channels are mixed in their colours, labels have one colour for each
    object; plates and data sets of several images give a contact sheet. Only the smallest level with enough pixels is
    read.
    """
    from openreadout.cli.common import Printing
    from openreadout.errors import OpenReadoutError
    from openreadout.operations.preview import PreviewOptions
    from openreadout.operations.preview import preview as run
    from openreadout.workers import Workers

    output = options["output"]
    _refuse_early(output, options)
    wanted = PreviewOptions(
        box=_box(output, options["size"]),
        image=options["image"],
        channels=options["channels"],
        z=_depth(options["z"]),
        t=options["t"],
        contrast=options["contrast"],
        axes=parse_axes(options["axes"]),
        trust_consolidated=options["trust_consolidated"],
    )
    how = Printing("text", False, False, options["debug"], options["quiet"])
    bar = progress_bar(how, options["progress"], path)
    if bar is not None:
        bar.unit = "images"
    try:
        with Workers(threads_for(options["threads"], path)) as workers:
            report = run(path, wanted, workers, bar)
    except OpenReadoutError as error:
        error.path = error.path or path
        raise
    finally:
        if bar is not None:
            bar.close()
    return _show(report, output, options, how)


def _refuse_early(output: str | None, options: dict[str, Any]) -> None:
    if output is None:
        return
    if output == "-":
        if options["as_json"]:
            raise UsageError("--json and -o - exclude one another")
        if sys.stdout.isatty():
            raise UsageError(
                "a PNG file is nothing for a terminal",
                hint="leave out -o to draw in the terminal, or give a file",
            )
    elif os.path.lexists(output) and not options["overwrite"]:
        raise UsageError(
            f"{output}: exists already", hint="choose another name, or use --overwrite"
        )


def _depth(text: str) -> int | str:
    if text in ("mid", "max"):
        return text
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise UsageError(f"--z {text}: not mid, max or a number", hint="for example --z max")
    return int(text)


def _box(output: str | None, size: int | None) -> tuple[int, int]:
    """Largest width and height; a character cell of the terminal shows two pixels, one above the other."""
    if output is not None:
        return size or PICTURE, size or PICTURE
    columns, lines = shutil.get_terminal_size((80, 24))
    width, height = max(8, min(columns, 400)), max(8, 2 * min(lines - 3, 200))
    return min(width, size or width), min(height, size or height)


def _show(report: PreviewReport, output: str | None, options: dict[str, Any], how: Printing) -> int:
    from dataclasses import replace

    from openreadout import serialize
    from openreadout.cli import output as out
    from openreadout.cli import picture
    from openreadout.cli import text as words
    from openreadout.operations import png

    if output == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(png.encode(report.pixels))
        sys.stdout.flush()
    elif output is not None:
        _write(output, png.encode(report.pixels))
        report = replace(report, output=output)
    style = out.Style(out.use_color(options["color"], sys.stdout))
    if options["as_json"]:
        out.write_json(serialize.success(serialize.preview(report)))
    elif output is None:
        report = replace(report, notes=() if how.quiet else report.notes)
        drawn = picture.draw(report.pixels, color=style.on, unicode=out.unicode_ok(sys.stdout))
        out.write_text("\n".join([*drawn, *words.preview(report, style)]))
    elif output != "-":
        report = replace(report, notes=() if how.quiet else report.notes)
        out.write_text("\n".join(words.preview(report, style)))
    for error in report.failures:
        out.say_error(error, report.path)
    if output == "-" and not how.quiet:
        for note in report.notes:
            out.note(f"note: {out.escape(note)}")
    return max((error.exit_code for error in report.failures), default=0)


def _write(path: str, data: bytes) -> None:
    """Write under another name beside it, then rename: the name never shows half a picture."""
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "xb") as file:
            file.write(data)
        os.replace(partial, path)
    except OSError as error:
        raise storage_error(error, path) from error
    finally:
        if os.path.lexists(partial):
            os.unlink(partial)
