"""`openreadout check`."""

from __future__ import annotations

import math
import sys
from typing import Any

import click

from openreadout.cli.common import (
    Outcome,
    gather,
    input_options,
    limit_option,
    only_option,
    parse_axes,
    parse_level,
    parse_selection,
    parse_size,
    printing,
    progress_bar,
    remote_option,
    run_inputs,
    selection_options,
    threads_for,
    work_options,
)
from openreadout.errors import UsageError


@click.command(
    epilog="\b\nExamples:\n"
    "  openreadout check broken.ome.zarr\n"
    "  openreadout check --planes --hash sha256 --json scan.ome.tiff\n"
    "  openreadout check copy.ome.zarr --against scan.ome.tiff"
)
@input_options
@only_option
@click.option("--full", is_flag=True, help="Decode every stored chunk.")
@click.option("--planes", is_flag=True, help="Read every selected plane and print its hash.")
@click.option(
    "--hash",
    "algorithm",
    type=click.Choice(["xxh3", "sha256"]),
    default="xxh3",
    show_default=True,
    help="Hash of the planes.",
)
@click.option(
    "--against", metavar="OTHER", help="Compare metadata, geometry and every plane with OTHER."
)
@click.option(
    "--tolerance", type=click.FloatRange(0), help="With --against: how far samples may differ."
)
@click.option("--no-metadata", is_flag=True, help="With --against: compare pixels only.")
@click.option("--no-pixels", is_flag=True, help="With --against: compare metadata only.")
@selection_options
@remote_option
@limit_option
@work_options
def check(**options: Any) -> int:
    """Tell whether a data set is whole.

    Looks at the metadata, at the presence of every stored chunk, and decodes the first and last one of each array;
    --full decodes all, --planes reads and hashes every plane.
    """
    how = printing(options)
    if options["against"] is None:
        for name in ("tolerance", "no_metadata", "no_pixels"):
            if options[name]:
                raise UsageError(f"--{name.replace('_', '-')} needs --against")
    if options["tolerance"] is not None and not math.isfinite(options["tolerance"]):
        raise UsageError(f"--tolerance {options['tolerance']}: not a number")
    inputs = gather(options["paths"], options["files_from"], options["null"], options["recursive"])

    def work(path: str) -> Outcome:
        return (
            _compare(path, options)
            if options["against"] is not None
            else _check(path, options, how)
        )

    return run_inputs(inputs, how, work)


def _check(path: str, options: dict[str, Any], how: Any) -> Outcome:
    from openreadout import serialize
    from openreadout.operations.check import CheckOptions
    from openreadout.operations.check import check as run
    from openreadout.workers import Workers

    wanted = CheckOptions(
        full=options["full"],
        planes=options["planes"],
        algorithm=options["algorithm"],
        selection=parse_selection(options["images"], options["selects"], options["region"]),
        level=parse_level(options["level"]),
        axes=parse_axes(options["axes"]),
        trust_consolidated=options["trust_consolidated"],
        budget=parse_size(options["memory"]),
    )
    bar = progress_bar(how, options["progress"], path)
    try:
        with Workers(threads_for(options["threads"], path)) as workers:
            report = run(path, wanted, workers, bar)
    finally:
        if bar is not None:
            bar.close()

    def text(alone: bool) -> None:
        from openreadout.cli import output
        from openreadout.cli import text as words

        style = output.Style(output.use_color(options["color"], sys.stdout))
        output.write_text("\n".join(words.check(report, style, alone=alone)))

    return Outcome(lambda: serialize.check(report), text, 0 if report.ok else 4)


def _compare(path: str, options: dict[str, Any]) -> Outcome:
    from openreadout import serialize
    from openreadout.operations.compare import CompareOptions, compare
    from openreadout.workers import Workers

    wanted = CompareOptions(
        selection=parse_selection(options["images"], options["selects"], options["region"]),
        level=parse_level(options["level"]),
        tolerance=options["tolerance"],
        metadata=not options["no_metadata"],
        pixels=not options["no_pixels"],
        axes=parse_axes(options["axes"]),
        trust_consolidated=options["trust_consolidated"],
    )
    with Workers(threads_for(options["threads"], path, options["against"])) as workers:
        report = compare(path, options["against"], wanted, workers)

    def text(alone: bool) -> None:
        from openreadout.cli import output
        from openreadout.cli import text as words

        style = output.Style(output.use_color(options["color"], sys.stdout))
        output.write_text("\n".join(words.compare(report, style)))

    return Outcome(lambda: serialize.compare(report), text, 1 if report.differences else 0)
