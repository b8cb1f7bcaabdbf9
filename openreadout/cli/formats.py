"""`openreadout formats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from openreadout import payloads


@click.command(
    epilog="\b\nExamples:\n  openreadout formats\n  openreadout formats --json | jq '.data.codecs[].name'"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def formats(as_json: bool, debug: bool) -> int:
    """List readers, writers and codecs.

    With the extensions of each format, and what is not read of it yet.
    """
    from openreadout import registry, serialize
    from openreadout.cli import output

    data: payloads.Formats = {
        "readers": [_descriptor(reader.descriptor) for reader in registry.readers()],
        "writers": [_descriptor(writer.descriptor) for writer in registry.writers()],
        "codecs": [
            {"name": entry.name, "distribution": entry.distribution}
            for entry in registry.entry_points(registry.CODECS)
        ],
        "broken": [
            {
                "group": bad.group,
                "name": bad.entry.name,
                "distribution": bad.entry.distribution,
                "reason": bad.reason,
            }
            for bad in registry.broken_plugins()
        ],
    }
    if as_json:
        output.write_json(serialize.success(data))
    else:
        output.write_text("\n".join(_lines(data)))
    return 0


def _descriptor(item: Any) -> payloads.FormatDescription:
    return {
        "id": item.id,
        "name": item.name,
        "extensions": list(item.extensions),
        "summary": item.summary,
        "known_gaps": list(item.known_gaps),
    }


def _lines(data: payloads.Formats) -> list[str]:
    from openreadout.cli.layout import hang, prose
    from openreadout.cli.output import escape

    lines = []
    for what, items in (("readers", data["readers"]), ("writers", data["writers"])):
        lines.append(what)
        for item in items:
            head = f"  {escape(item['id']).ljust(10)} "
            lines += hang(head, [escape(item["name"]), *map(escape, item["extensions"])], "  ")
            indent = " " * len(head)
            lines += prose(indent, escape(item["summary"])) if item["summary"] else []
            for gap in item["known_gaps"]:
                lines += prose(f"{indent}not yet: ", escape(gap))
        lines.append("")
    names = [escape(item["name"]) for item in data["codecs"]]
    lines += ["codecs", *hang("  ", [f"{name}," for name in names[:-1]] + names[-1:])]
    for bad in data["broken"]:
        text = f"{escape(bad['name'])} of {escape(bad['distribution'])}: {escape(bad['reason'])}"
        lines += prose("broken plugin ", text)
    return lines
