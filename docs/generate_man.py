"""Writes a man page for the program and for each command from the commands themselves: `make man`.

    python docs/generate_man.py FOLDER

Plain man(7): groff and mandoc both show it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import click
from generate_cli import meaning, value_of

from openreadout import __version__
from openreadout.cli import cli

NAME = "openreadout"
SUMMARY = "microscopy data: what is in it, is it whole, and export as OME-Zarr"


def escape(text: str) -> str:
    """Text as roff takes it: backslashes, hyphens that must stay hyphens, and lines that would be requests."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.MULTILINE)


def bold(text: str) -> str:
    """Words to type as they stand."""
    return f"\\fB{escape(text)}\\fR"


def code(text: str) -> str:
    """Running text, in which what stands between backquotes is to be typed."""
    parts = text.split("`")
    return "".join(bold(part) if n % 2 else escape(part) for n, part in enumerate(parts))


def prose(text: str | None) -> Iterable[str]:
    """Paragraphs of a help text; the backspace before a block keeps its lines, as in the program."""
    for block in inspect.cleandoc(text or "").split("\n\n"):
        lines = block.splitlines()
        if lines and lines[0].strip() == "\b":
            yield ".PP\n.nf\n" + "\n".join(map(escape, lines[1:])) + "\n.fi"
        elif block:
            yield ".PP\n" + code(" ".join(line.strip() for line in lines))


def options(command: click.Command) -> Iterable[str]:
    """Every option with its meaning."""
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            value = escape(value_of(option))
            names = [bold(name) + value for name in option.opts]
            names += [bold(name) for name in option.secondary_opts]
            yield ".TP\n" + ", ".join(names) + "\n" + code(meaning(option))


def page(name: str, summary: str, usage: str, command: click.Command, more: Iterable[str]) -> str:
    """One page; `more` are sections after the options."""
    title = escape(name.upper())
    parts = [
        f'.TH "{title}" 1 "" "openreadout {escape(__version__)}"',
        ".ad l\n.nh",  # lines are neither stretched nor words cut
        f".SH NAME\n{escape(name)} \\- {escape(summary)}",
        f".SH SYNOPSIS\n{usage}",
        ".SH DESCRIPTION",
        *prose(command.help),
        ".SH OPTIONS",
        *options(command),
        *more,
    ]
    return "\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    context = click.Context(cli)
    commands = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    found: dict[str, str] = {}
    listed = []
    for name, command in commands.items():
        if command is None:
            raise SystemExit(f"there is no command {name}")
        arguments = [p for p in command.params if isinstance(p, click.Argument)]
        usage = " ".join(
            [bold(f"{NAME} {name}"), "[OPTIONS]"]
            + [escape((a.metavar or a.name or "").upper()) for a in arguments]
        )
        summary = command.get_short_help_str(100).rstrip(".")
        listed.append(f".TP\n{bold(f'{NAME}-{name}')}(1)\n{code(summary)}")
        examples = (command.epilog or "").replace("Examples:\n", "")
        more = [".SH EXAMPLES", *prose(examples), f".SH SEE ALSO\n{bold(NAME)}(1)"]
        found[f"{NAME}-{name}.1"] = page(f"{NAME}-{name}", summary, usage, command, more)
    more = [".SH COMMANDS", *listed, ".SH EXIT STATUS", *prose(cli.epilog)]
    usage = f"{bold(NAME)} COMMAND [OPTIONS] [ARGUMENTS]"
    found[f"{NAME}.1"] = page(NAME, SUMMARY, usage, cli, more)
    return found


def main() -> None:
    """Write the pages into the folder that is named."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
