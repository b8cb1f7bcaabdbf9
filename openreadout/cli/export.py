"""`openreadout export`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from openreadout.cli.common import (
    Outcome,
    gather,
    input_options,
    limit_option,
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

if TYPE_CHECKING:
    from openreadout.operations.in_place import InPlaceOptions
    from openreadout.operations.order import ExportOptions


@click.command(
    epilog="\b\nExamples:\n"
    "  openreadout export scan.ome.tiff --to ome-zarr\n"
    "  openreadout export em.n5 --to ome-zarr -o em.ozx --axes xyz --pixel-size 4,4,40nm\n"
    "  openreadout export plate.ome.zarr --to ome-zarr -o copy.ome.zarr --select c=0 --dry-run\n"
    "  openreadout export em.n5 --to ome-zarr --in-place"
)
@input_options
@click.option(
    "--to", "target", type=click.Choice(["ome-zarr"]), required=True, help="Format to write."
)
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    help="Directory store, or .ozx or .zip for one archive; a folder for several inputs. Also s3://…",
)
@click.option(
    "--ngff",
    type=click.Choice(["0.5", "0.4"]),
    default="0.5",
    show_default=True,
    help="NGFF version.",
)
@click.option("--overwrite", is_flag=True, help="Replace OUT once the new store is complete.")
@click.option(
    "--verify/--no-verify", default=True, help="Read everything back and compare (default)."
)
@click.option(
    "--sync/--no-sync",
    default=True,
    help="Bring all files to the disk before the rename (default).",
)
@click.option(
    "--resume", is_flag=True, help="Go on with an export that was interrupted; finished files stay."
)
@click.option(
    "--part",
    metavar="I/N",
    help="Write part I of N, beside other processes that write the others; --commit puts them together.",
)
@click.option(
    "--commit",
    is_flag=True,
    help="Check that all parts are there, prove the whole, and give it its name.",
)
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Write on the workers of a Dask scheduler; local:N starts N worker processes here.",
)
@click.option("--skip-done", is_flag=True, help="Leave complete outputs of an earlier run alone.")
@click.option("--dry-run", is_flag=True, help="Print the plan, write nothing.")
@click.option(
    "--fill-missing", is_flag=True, help="Write zeros for planes that a TIFF declares and lacks."
)
@click.option(
    "--pyramid",
    type=click.Choice(["auto", "source", "mean", "none"]),
    default="auto",
    show_default=True,
    help="Levels: the source's own, or made by averaging.",
)
@click.option("--levels", type=click.IntRange(1, 64), help="Number of levels, level 0 included.")
@click.option("--chunks", metavar="Y,X", help="Chunk lengths of the last axes, slowest first.")
@click.option("--shards", metavar="Y,X", help="Shard lengths of the last axes, or 'none'.")
@click.option(
    "--codec",
    metavar="NAME[:LEVEL]",
    help="blosc-zstd (default), blosc-lz4, zstd, gzip or none; keep copies chunks and JPEG tiles.",
)
@click.option("--pixel-size", metavar="X,Y[,Z]UNIT", help="Correct the pixel size.")
@click.option(
    "--time-increment", type=float, metavar="SECONDS", help="Correct the time between frames."
)
@click.option("--channel-names", metavar="A,B", help="Name the channels.")
@click.option("--channel-colors", metavar="RRGGBB,...", help="Colour the channels.")
@click.option("--name", help="Name the image.")
@click.option(
    "--in-place",
    is_flag=True,
    help="Add OME-Zarr 0.5 metadata to an N5 container, or to an OME-Zarr of Zarr v2, over the chunks it has.",
)
@click.option(
    "--drop-old", is_flag=True, help="With --in-place: remove the older metadata documents."
)
@selection_options
@remote_option
@limit_option
@work_options
def export(**options: Any) -> int:
    """Write data sets as OME-Zarr, proved by reading back.

    The target appears under its name only when it is complete; the source is never changed.
    """
    how = printing(options)
    if options["in_place"]:
        return _in_place(options, how)
    if options["drop_old"]:
        raise UsageError("--drop-old goes with --in-place: an export leaves its source as it is")
    _refuse_together(options)
    wanted = _options(options)
    inputs = list(
        gather(options["paths"], options["files_from"], options["null"], options["recursive"])
    )
    output = options["output"]
    if output is not None and output.lower().endswith((".ozx", ".zip")):
        if options["ngff"] == "0.4":
            raise UsageError(
                "an archive holds NGFF 0.5 only",
                hint="leave out --ngff 0.4, or write a directory store",
            )
        if len(inputs) > 1:
            raise UsageError(
                "several inputs cannot go into one archive", hint="give a folder with -o"
            )

    from openreadout.operations.export import output_names

    names = (
        output_names(inputs, output) if not options["dry_run"] else dict.fromkeys(inputs, output)
    )

    def work(path: str) -> Outcome:
        if options["dry_run"]:
            return _plan(path, wanted, options)
        return _export(path, names[path], wanted, options, how)

    return run_inputs(iter(inputs), how, work)


def _options(options: dict[str, Any]) -> ExportOptions:
    from openreadout.operations.corrections import Corrections, parse_pixel_size
    from openreadout.operations.order import ExportOptions
    from openreadout.operations.storage import PlanOptions

    level = parse_level(options["level"])
    if level == -1:
        level = None
    size, unit = (
        parse_pixel_size(options["pixel_size"]) if options["pixel_size"] else (None, "micrometer")
    )
    increment = options["time_increment"]
    if increment is not None and not 0 < increment < 1e12:
        raise UsageError(f"--time-increment {increment}: not a positive number of seconds")
    return ExportOptions(
        plan=PlanOptions(
            selection=parse_selection(options["images"], options["selects"], options["region"]),
            level=level or 0,
            pyramid=options["pyramid"],
            levels=options["levels"],
            chunks=_lengths("--chunks", options["chunks"]),
            shards=() if options["shards"] == "none" else _lengths("--shards", options["shards"]),
            codec=options["codec"],
            version=options["ngff"],
            fill_missing=options["fill_missing"],
            memory=parse_size(options["memory"]),
        ),
        corrections=Corrections(
            pixel_size=size,
            pixel_unit=unit,
            time_increment_s=increment,
            names=_names(options["channel_names"]),
            colors=_colors(options["channel_colors"]),
            image_name=options["name"],
        ),
        overwrite=options["overwrite"],
        verify=options["verify"],
        sync=options["sync"],
        resume=options["resume"],
        skip_done=options["skip_done"],
        axes=parse_axes(options["axes"]),
        trust_consolidated=options["trust_consolidated"],
        part=_part(options["part"]),
        commit=options["commit"],
        dask=options["dask"],
    )


_NOT_WITH = {
    "part": "commit resume dask dry_run",
    "commit": "resume dry_run",
    "dask": "dry_run",
}
"""Options that exclude one another."""


def _refuse_together(options: dict[str, Any]) -> None:
    for name, others in _NOT_WITH.items():
        for other in others.split():
            if options[name] and options[other]:
                raise UsageError(
                    f"--{name} and --{other.replace('_', '-')} exclude one another",
                    hint="a part and a commit always go on with what is there"
                    if other == "resume"
                    else None,
                )


def _part(text: str | None) -> tuple[int, int] | None:
    """`I/N`, counted from 1."""
    if text is None:
        return None
    from openreadout.operations.part_target import MAX_PARTS

    number, slash, count = text.partition("/")
    if slash and all(
        part.isascii() and part.isdigit() and len(part) < 7 for part in (number, count)
    ):
        part = int(number), int(count)
        if 1 <= part[0] <= part[1] <= MAX_PARTS:
            return part
    raise UsageError(
        f"--part {text}: not a part such as 3/16",
        hint=f"parts are counted from 1; there are at most {MAX_PARTS}",
    )


def _lengths(name: str, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise UsageError(f"{name} {text}: not lengths such as 512,512")
    return tuple(int(part) for part in parts)


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(part.strip() for part in text.split(","))


def _colors(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    colors = tuple(part.strip().lstrip("#") for part in text.split(","))
    for color in colors:
        if len(color) != 6 or set(color.lower()) - set("0123456789abcdef"):
            raise UsageError(
                f"--channel-colors {text}: {color!r} is not RRGGBB",
                hint="for example 0000FF,00FF00",
            )
    return colors


def _export(
    path: str, output: str | None, wanted: ExportOptions, options: dict[str, Any], how: Any
) -> Outcome:
    from openreadout import serialize
    from openreadout.operations.export import export as run
    from openreadout.workers import Workers

    bar = progress_bar(how, options["progress"], output or path, "bytes")
    try:
        # the workers of a cluster have a thread each unless more are asked for
        threads = (
            threads_for(options["threads"], path, output)
            if wanted.dask is None
            else options["threads"] or 1
        )
        with Workers(threads) as workers:
            progress = bar if wanted.dask is None else _watched(bar)
            report = run(path, output, wanted, workers, progress)
    finally:
        if bar is not None:
            bar.close()

    def text(alone: bool) -> None:
        from openreadout.cli import output as out
        from openreadout.cli import text as words

        style = out.Style(out.use_color(options["color"], sys.stdout))
        out.write_text("\n".join(words.export(report, style)))

    return Outcome(lambda: serialize.export(report), text)


def _watched(bar: Any) -> Any:
    """Progress that notices an interruption which somebody swallowed: Dask has callbacks that no error leaves."""
    from openreadout.ending import raise_if_ended

    def look(done: int, total: int) -> None:
        raise_if_ended()
        if bar is not None:
            bar(done, total)

    return look


def _plan(path: str, wanted: ExportOptions, options: dict[str, Any]) -> Outcome:
    from openreadout.operations.estimate import estimate
    from openreadout.operations.export import plan_export

    plan, _ = plan_export(path, wanted)
    data = estimate(plan, path, options["output"])

    def text(alone: bool) -> None:
        from openreadout.cli import output as out
        from openreadout.cli import text as words

        style = out.Style(out.use_color(options["color"], sys.stdout))
        out.write_text("\n".join(words.plan(data, style)))

    return Outcome(lambda: data, text)


_NOT_IN_PLACE = (
    "output ngff fill_missing pyramid levels chunks shards codec pixel_size time_increment "
    "channel_names channel_colors name selects region level resume skip_done part commit dask"
).split()
"""Options that ask for other pixels or another place than in-place lifting leaves."""


def _in_place(options: dict[str, Any], how: Any) -> int:
    """Lift every input where it is."""
    from openreadout.operations.in_place import InPlaceOptions

    context = click.get_current_context()
    for name in _NOT_IN_PLACE:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = next(p for p in context.command.params if p.name == name).opts[-1]
            raise UsageError(
                f"{option} cannot be met with --in-place, which changes metadata documents alone",
                hint="export a copy instead: leave out --in-place",
            )
    wanted = InPlaceOptions(
        images=tuple(options["images"]) or None,
        axes=parse_axes(options["axes"]),
        overwrite=options["overwrite"],
        drop_old=options["drop_old"],
        verify=options["verify"],
        sync=options["sync"],
        dry_run=options["dry_run"],
    )
    paths = gather(options["paths"], options["files_from"], options["null"], options["recursive"])
    return run_inputs(iter(paths), how, lambda path: _lift(path, wanted, options, how))


def _lift(path: str, wanted: InPlaceOptions, options: dict[str, Any], how: Any) -> Outcome:
    from openreadout import serialize
    from openreadout.operations.in_place import lift_in_place
    from openreadout.workers import Workers

    bar = progress_bar(how, options["progress"], path)
    if bar is not None:
        bar.unit = "bytes"
    try:
        with Workers(options["threads"]) as workers:
            report = lift_in_place(path, wanted, workers, bar)
    finally:
        if bar is not None:
            bar.close()

    def text(alone: bool) -> None:
        from openreadout.cli import output as out
        from openreadout.cli import text as words

        style = out.Style(out.use_color(options["color"], sys.stdout))
        out.write_text("\n".join(words.in_place(report, style, planned=wanted.dry_run)))

    return Outcome(lambda: serialize.in_place(report), text)
