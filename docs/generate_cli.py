"""Writes docs/cli.md from the commands themselves: `make docs`. With `--check` it only tells whether that is needed."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import click

from openreadout.cli import cli

TARGET = Path(__file__).with_name("cli.md")
HEAD = """# Commands

This page is made from the program by `make docs`. `openreadout COMMAND --help` shows the same.

Results go to stdout, everything else to stderr. [Exit codes](errors.md) and [JSON](json.md) have pages of their own.
"""


def prose(text: str | None) -> str:
    """A command's help text; the backspace before a block keeps its lines, as in the program."""
    blocks = []
    for block in inspect.cleandoc(text or "").split("\n\n"):
        lines = block.splitlines()
        if lines and lines[0].strip() == "\b":
            blocks.append("```text\n" + "\n".join(lines[1:]) + "\n```")
        else:
            blocks.append(" ".join(line.strip() for line in lines))
    return "\n\n".join(blocks)


def value_of(option: click.Option) -> str:
    """What stands after an option's name."""
    if option.is_flag or option.count:
        return ""
    if isinstance(option.type, click.Choice):
        return " " + "|".join(map(str, option.type.choices))
    return f" {option.metavar or option.type.name.split(' ')[0].upper()}"


def table(command: click.Command) -> str:
    """The options of a command."""
    lines = ["| option | meaning |", "| --- | --- |"]
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            names = ", ".join(f"`{name}{value_of(option)}`" for name in option.opts)
            if option.secondary_opts:
                names += " / " + ", ".join(f"`{name}`" for name in option.secondary_opts)
            lines.append(f"| {cell(names)} | {cell(meaning(option))} |")
    return "\n".join(lines)


def meaning(option: click.Option) -> str:
    """An option's help, with its default."""
    text = " ".join((option.help or "").split())
    if option.show_default and option.default is not None and not option.is_flag:
        text += f" Default: `{option.default}`."
    return text


def cell(text: str) -> str:
    """Text for a table: a bar would end the cell."""
    return text.replace("|", "\\|")


def page() -> str:
    """The whole page."""
    context = click.Context(cli)
    parts = [HEAD, prose(cli.help)]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if command is None:
            raise SystemExit(f"there is no command {name}")
        arguments = [p for p in command.params if isinstance(p, click.Argument)]
        usage = " ".join(
            [
                "openreadout",
                name,
                "[OPTIONS]",
                *(f"{(a.metavar or a.name or '').upper()}" for a in arguments),
            ]
        )
        parts += [
            f"## {name}",
            f"```text\n{usage}\n```",
            prose(command.help),
            table(command),
            prose(command.epilog),
        ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def main() -> None:
    """Write the page, or compare it."""
    text = page()
    if "--check" not in sys.argv:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != text:
        raise SystemExit(f"{TARGET.name} is not current: run `make docs`")


if __name__ == "__main__":
    main()
