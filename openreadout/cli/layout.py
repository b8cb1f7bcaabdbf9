"""Lines that fit the terminal: packing, hanging indents, columns."""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterable, Sequence

from openreadout.cli.output import Style, escape

LABEL = 9
MARGIN = 5
"""Columns before a label."""
MAX_CODECS = 64
_COLOR = re.compile("\033\\[[0-9;]*m")


def width() -> int:
    """Columns of the terminal; elsewhere those of COLUMNS, or 100."""
    try:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError, AttributeError):
        text = os.environ.get("COLUMNS", "")
        columns = int(text) if text.isdecimal() and len(text) < 6 else 100
    return max(40, columns or 80)


def visible(text: str) -> int:
    """Columns that a text takes; colours take none."""
    return len(_COLOR.sub("", text))


def hang(head: str, parts: Iterable[str], separator: str = " ") -> list[str]:
    """Parts one after the other behind a head, and on more lines below the first part where they do not fit.

    A part that alone is too long is not broken: a path must stay whole.
    """
    indent = visible(head)
    limit = width()
    lines = [head]
    empty = True
    for part in parts:
        if empty:
            lines[-1] += part
        elif visible(lines[-1]) + len(separator) + visible(part) <= limit:
            lines[-1] += separator + part
        else:
            lines.append(" " * indent + part)
        empty = False
    return [line.rstrip() for line in lines]


def prose(head: str, text: str) -> list[str]:
    """A sentence behind a head, wrapped."""
    return hang(head, text.split(" "))


def row(label: str, parts: Sequence[str], style: Style, separator: str = "    ") -> list[str]:
    """A labelled value below an image."""
    return hang(labelled(label, style), parts, separator)


def labelled(label: str, style: Style) -> str:
    """What stands before a value below an image."""
    return f"{' ' * MARGIN}{style.dim(label.ljust(LABEL))}  "


def notes(word: str, values: Iterable[str], style: Style) -> list[str]:
    """Sentences under one word, such as `note`."""
    return [line for text in values for line in prose(f"  {style.dim(word)}  ", escape(text))]


def title(name: str, facts: Sequence[str], style: Style) -> list[str]:
    """The name of a thing and what it is; on a line of its own where both do not fit on one."""
    text = ", ".join(facts)
    first = f"{style.bold(escape(name))}    {text}"
    if visible(first) <= width():
        return [first]
    return [style.bold(escape(name)), *hang("  ", [f"{f}," for f in facts[:-1]] + [*facts[-1:]])]


SHORT = 4
"""Characters of a first column, such as numbers, below which nothing is written."""


def table(rows: Sequence[Sequence[str]], head: str, gap: str = "   ") -> list[str]:
    """Cells below one another behind a head; a row that does not fit goes on in the next line."""
    columns = max((len(cells) for cells in rows), default=0)
    widths = [max((visible(r[n]) for r in rows if n < len(r)), default=0) for n in range(columns)]
    lines: list[str] = []
    for n, cells in enumerate(rows):
        padded = [pad(cell, size) for cell, size in zip(cells, widths, strict=False)]
        shown = [text for text, size in zip(padded, widths, strict=False) if size]
        before = head if n == 0 else " " * visible(head)
        # what goes on leaves the first column free
        if len(shown) > 1 and visible(shown[0]) <= SHORT:
            before += shown.pop(0) + gap
        lines += hang(before, shown, gap)
    return lines


def pad(text: str, size: int) -> str:
    """Text filled up with blanks, not counting colours."""
    return text + " " * (size - visible(text))


class Columns:
    """Rows that come one by one, each column as wide as the widest cell so far."""

    def __init__(self) -> None:
        self.widths: list[int] = []

    def line(self, cells: Sequence[str]) -> str:
        """One row."""
        self.widths += [0] * (len(cells) - len(self.widths))
        for n, cell in enumerate(cells):
            # one very long path must not push everything after it off the screen
            self.widths[n] = max(
                self.widths[n], min(visible(cell), max(width() // 2, width() - 64))
            )
        return "   ".join(
            pad(cell, size) for cell, size in zip(cells, self.widths, strict=False)
        ).rstrip()


def count(number: int, word: str) -> str:
    """`1 image`, `2 images`."""
    plural = {"entry": "entries"}.get(word, f"{word}s")
    return f"{number} {word if number == 1 else plural}"


def codec_label(specs: Iterable[object]) -> str:
    """The compression of an array in a few words: `blosc-zstd`; codecs that only lay out bytes are left out."""
    names = [
        text
        for name, settings in itertools.islice(_flat(specs), MAX_CODECS)
        if (text := _codec_name(name, settings)) is not None
    ]
    return ", ".join(escape(name) for name in names) or "not compressed"


_LAYOUT_ONLY = {
    "bytes", "sharding_indexed", "n5_default", "transpose", "reshape", "endian", "none", "raw",
}  # fmt: skip


def _codec_name(name: str, settings: object) -> str | None:
    short = name.removeprefix("numcodecs.").removeprefix("n5.")
    if short in _LAYOUT_ONLY:
        return None
    inner = settings.get("cname") if isinstance(settings, dict) else None
    return f"{short}-{inner}" if short == "blosc" and isinstance(inner, str) else short


def _flat(specs: Iterable[object]) -> Iterable[tuple[str, object]]:
    """Names and settings of codecs, those inside a shard or an N5 block after the one that holds them."""
    for spec in specs:
        if isinstance(spec, dict):
            name, settings = spec.get("name"), spec.get("configuration")
        else:
            name, settings = getattr(spec, "name", None), getattr(spec, "configuration", None)
        if isinstance(name, str):
            yield name, settings
        inner = settings.get("codecs") if isinstance(settings, dict) else None
        if isinstance(inner, list | tuple):
            yield from _flat(inner)


def lengths(*shapes: Sequence[int] | None) -> list[str]:
    """Shapes as `512 × 512`, without the leading axes along which all of them are 1."""
    known = [shape for shape in shapes if shape is not None]
    shortest = min((len(shape) for shape in known), default=0)
    skip = 0
    while skip < shortest - 2 and all(shape[skip] == 1 for shape in known):
        skip += 1
    return ["" if s is None else " × ".join(map(str, s[skip:])) for s in shapes]
