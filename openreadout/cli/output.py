"""Writing to stdout and stderr: JSON, errors, and the words for sizes and names."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from openreadout import serialize

if TYPE_CHECKING:
    from openreadout.errors import OpenReadoutError


def write_json(document: dict[str, Any], *, compact: bool = False) -> None:
    """One JSON document on stdout, in UTF-8 whatever the locale."""
    write_json_text(serialize.dumps(document, indent=None if compact else 1))


def write_json_text(text: str) -> None:
    """Text on stdout as UTF-8 bytes."""
    # a file name that is not UTF-8 holds lone surrogates, which backslashreplace turns into JSON escapes
    data = text.encode("utf-8", "backslashreplace") + b"\n"
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(data.decode("utf-8"))
    else:
        sys.stdout.flush()
        buffer.write(data)
    sys.stdout.flush()


def write_value(value: Any) -> None:
    """One JSON value on a line of stdout; a string stands there bare, as shells want it."""
    text = escape(value) if isinstance(value, str) else serialize.dumps(value)
    write_json_text(text)


def write_text(text: str) -> None:
    """Lines for people on stdout; characters that the terminal's encoding lacks are replaced."""
    _write(sys.stdout, text)


def note(text: str) -> None:
    """A line on stderr."""
    _write(sys.stderr, text)


def _write(stream: Any, text: str) -> None:
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if not unicode_ok(stream):
        text = text.translate(_PLAIN)
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    stream.flush()


_PLAIN = str.maketrans(
    {"×": "x", "·": ",", "■": "#", "µ": "u", "…": "...", "→": "->", "━": "=", "╸": "-", "–": "-"}
)


def unicode_ok(stream: Any) -> bool:
    """Whether the stream can show more than ASCII."""
    encoding = (getattr(stream, "encoding", None) or "").lower().replace("-", "")
    return encoding.startswith("utf")


def say_error(error: OpenReadoutError, path: str | None = None) -> None:
    """`error:` and `hint:` lines on stderr; the file's name always stands in the first."""
    message = str(error)
    if path and error.where and error.message.startswith(f"{path}: "):
        message = f"{path}: {error.where}: {error.message.removeprefix(f'{path}: ')}"
    elif path and path not in message:
        message = f"{path}: {message}"
    try:
        note(f"error: {escape(message)}")
        note(f"hint: {escape(error.hint)}")
    except (OSError, ValueError):
        pass  # stderr is closed; the exit code still tells


def print_error(error: OpenReadoutError, mode: str) -> None:
    """An error of the command itself: lines on stderr, with JSON modes the envelope on stdout as well."""
    say_error(error, error.path)
    if mode == "json":
        write_json(serialize.failure(error))
    elif mode == "jsonl":
        write_json({"ok": False, "path": error.path, **serialize.failure(error)}, compact=True)


def escape(text: str) -> str:
    """Text with control characters shown, so that a name from a file cannot steer the terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def human_bytes(count: float) -> str:
    """A size in decimal units with three digits."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{_three(count)} {unit}"
        count /= 1000
    return f"{count:.0f} PB"


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def number(value: float) -> str:
    """A number without trailing zeros, to six digits."""
    return f"{value:.6g}"


def human_seconds(seconds: float) -> str:
    """A duration in s, min or h."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"


def use_color(wanted: bool | None, stream: Any) -> bool:
    """Whether to colour: as asked, else on a terminal unless NO_COLOR is set."""
    if wanted is not None:
        return wanted
    return (
        not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
        and bool(stream.isatty())
    )


class Style:
    """Colours, or none."""

    def __init__(self, on: bool) -> None:
        self.on = on

    def _wrap(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.on else text

    def bold(self, text: str) -> str:
        """For the name of a thing."""
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        """For words that label a value."""
        return self._wrap("2", text)

    def severity(self, severity: str, text: str) -> str:
        """Red, yellow or blue."""
        return self._wrap({"error": "31", "warning": "33"}.get(severity, "34"), text)

    def swatch(self, color: str | None) -> str:
        """A square in a channel's colour."""
        if color is None or len(color) != 7:
            return "■"
        try:
            red, green, blue = (int(color[n : n + 2], 16) for n in (1, 3, 5))
        except ValueError:
            return "■"
        return f"\033[38;2;{red};{green};{blue}m■\033[0m" if self.on else "■"
