"""Lists of planes in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MAX_NAMED = 200
"""Planes that are named one by one when they form no block."""


def list_planes(keys: Iterable[tuple[int, int, int]]) -> str:
    """An exact list of planes (t, c, z): as a block of ranges where they form one, else one by one.

    Returns
    -------
    str
        Such as `planes t=4-5 c=0 z=0` or `planes (t=0 c=1 z=2), (t=3 c=0 z=1)`.
    """
    planes = sorted(set(keys))
    if not planes:
        return "no planes"
    sides = [sorted({plane[n] for plane in planes}) for n in range(3)]
    word = "plane" if len(planes) == 1 else f"{len(planes)} planes"
    if len(planes) == len(sides[0]) * len(sides[1]) * len(sides[2]):
        return f"{word} " + " ".join(
            f"{name}={_ranges(side)}" for name, side in zip("tcz", sides, strict=True)
        )
    named = planes[:MAX_NAMED]
    listed = ", ".join(f"(t={t} c={c} z={z})" for t, c, z in named)
    more = f" and {len(planes) - len(named)} more" if len(planes) > len(named) else ""
    return f"{word} {listed}{more}"


def _ranges(values: Sequence[int]) -> str:
    """`0-3,7` of sorted numbers."""
    parts: list[list[int]] = []
    for value in values:
        if parts and parts[-1][1] + 1 == value:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
