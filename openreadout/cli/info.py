"""`openreadout info`."""

from __future__ import annotations

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
    printing,
    remote_option,
    run_inputs,
)


@click.command(
    epilog="\b\nExamples:\n"
    "  openreadout info cells.ome.zarr\n"
    "  openreadout info --only /images/0/physical_size/x cells.ome.zarr\n"
    "  openreadout info --json plate.ome.zarr | jq '.data.images[0].channels'\n"
    "  openreadout info https://example.org/cells.ome.zarr\n"
    "  openreadout info -r --jsonl /data | jq -r '.path'"
)
@input_options
@only_option
@click.option(
    "--view",
    type=click.Choice(["summary", "full", "structure", "format"]),
    default="summary",
    show_default=True,
    help="How much to tell.",
)
@remote_option
@limit_option
@click.option("--max-images", type=click.IntRange(0), help="Describe at most N images; 0 is all.")
@click.option(
    "--axes",
    metavar="LETTERS",
    help="Axis letters, fastest first, of an input that names none: xyzct.",
)
def info(**options: Any) -> int:
    """Tell what is in a data set: images, sizes, channels, levels.

    Only metadata is read, so that it takes no longer for a terabyte than for a kilobyte.
    """
    how = printing(options)
    axes = parse_axes(options["axes"])
    inputs = gather(options["paths"], options["files_from"], options["null"], options["recursive"])

    from openreadout.cli.layout import Columns

    columns = Columns()

    def work(path: str) -> Outcome:
        from openreadout import serialize
        from openreadout.operations.info import describe

        result = describe(
            path,
            view=options["view"],
            max_images=options["max_images"],
            axes=axes,
            trust_consolidated=options["trust_consolidated"],
        )

        def text(alone: bool) -> None:
            from openreadout.cli import describe, output

            style = output.Style(output.use_color(options["color"], sys.stdout))
            lines = (
                describe.info(result, style)
                if alone
                else [columns.line(describe.info_cells(result, style))]
            )
            output.write_text("\n".join(lines))

        return Outcome(lambda: serialize.info(result), text)

    return run_inputs(inputs, how, work)
