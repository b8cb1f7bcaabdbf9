"""Limits as users set them: by name, with a number or a size, within what the program can hold."""

from __future__ import annotations

from collections.abc import Mapping

from openreadout import limits
from openreadout.errors import UsageError

_POWERS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
UNITS = {"": 1, "B": 1, **_POWERS, **{f"{letter}IB": power for letter, power in _POWERS.items()}}
FIXED = (
    "HEAD_BYTES",
    "MAX_ROOT_NAMES",
    "MAX_JSON_DEPTH",
    "MAX_AXIS",
    "REMOTE_THREADS",
    "SHARD_EDGE_BYTES",
    "SHARD_WHOLE_BYTES",
)
PAGE = "docs/limits.md tells what each limit bounds"
DIGITS = 24
"""Of a number that is looked at; the largest ceiling has nineteen."""


def checked(name: str, value: object) -> int:
    """The value of a limit, a whole number or text such as `4GiB`.

    Raises
    ------
    UsageError
        There is no such limit, nobody can set it, or the value is none or out of range.
    """
    if name not in limits.RANGES:
        raise _unknown(name)
    number = _number(value)
    least, most = limits.RANGES[name]
    if number is None:
        example = "4GiB" if name.endswith("BYTES") else "100000"
        raise UsageError(
            f"limit {name}: {str(value)[:40]!r} is neither a whole number nor a size",
            hint=f"for example {name}={example}",
        )
    if not least <= number <= most:
        raise UsageError(f"limit {name}: {number} is not from {least} to {most}", hint=PAGE)
    return number


def set_limits(values: Mapping[str, object]) -> dict[str, int]:
    """Set limits for this process, all or none; the values that they had before.

    A larger chunk may also be stored in more bytes, so that `MAX_ENCODED_BYTES` follows `MAX_CHUNK_BYTES` up, unless it
    is given as well.
    """
    wanted = {name: checked(name, value) for name, value in values.items()}
    chunk = wanted.get("MAX_CHUNK_BYTES", 0)
    if chunk and "MAX_ENCODED_BYTES" not in wanted:
        room = min(chunk + 64 * limits.MIB, limits.RANGES["MAX_ENCODED_BYTES"][1])
        wanted["MAX_ENCODED_BYTES"] = max(room, limits.MAX_ENCODED_BYTES)
    before = {name: int(getattr(limits, name)) for name in wanted}
    limits.assign(wanted)
    return before


def set_by_options(texts: tuple[str, ...]) -> None:
    """Set limits from the values of `--limit`, each `NAME=VALUE`; the last one of a name counts."""
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(
                f"--limit {text[:80]}: not NAME=VALUE",
                hint="for example --limit MAX_JSON_BYTES=256MiB",
            )
        values[name.strip().upper().replace("-", "_")] = value
    set_limits(values)


def _unknown(name: str) -> UsageError:
    if name in FIXED:
        return UsageError(f"limit {name} cannot be set", hint=PAGE)
    import difflib

    near = difflib.get_close_matches(name.upper(), limits.RANGES, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    return UsageError(f"there is no limit {name[:80]!r}{meant}", hint=PAGE)


def _number(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    word = value.strip().upper().replace(" ", "").replace("_", "")
    digits = word.rstrip("BKMGTI")
    unit = UNITS.get(word[len(digits) :])
    if unit is None or not (digits.isascii() and digits.isdigit()) or len(digits) > DIGITS:
        return None
    return int(digits) * unit
