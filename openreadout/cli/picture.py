"""A picture drawn with characters: two pixels in each, one above the other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHADES = " ░▒▓█"
_PLAIN_SHADES = " .:-=+*#%@"
_CUBE = (0, 95, 135, 175, 215, 255)


def draw(pixels: NDArray[Any], *, color: bool, unicode: bool) -> list[str]:
    """Lines of an 8-bit RGB picture; without colour as shades of grey."""
    height, width, _ = pixels.shape
    if not (color and unicode):
        return _shaded(pixels, _SHADES if unicode else _PLAIN_SHADES)
    paint = _true if os.environ.get("COLORTERM") in ("truecolor", "24bit") else _cube
    lines = []
    for y in range(0, height, 2):
        parts, last = [], None
        for x in range(width):
            upper = paint(pixels[y, x])
            lower = paint(pixels[y + 1, x]) if y + 1 < height else None
            if (upper, lower) != last:
                parts.append(f"\033[38;{upper}m" + (f"\033[48;{lower}m" if lower else "\033[49m"))
                last = (upper, lower)
            parts.append("▀")
        lines.append("".join(parts) + "\033[0m")
    return lines


def _true(rgb: Any) -> str:
    return f"2;{rgb[0]};{rgb[1]};{rgb[2]}"


def _cube(rgb: Any) -> str:
    """The nearest of the 216 colours that terminals without more have."""
    red, green, blue = (min(range(6), key=lambda n: abs(_CUBE[n] - int(part))) for part in rgb)
    return f"5;{16 + 36 * red + 6 * green + blue}"


def _shaded(pixels: NDArray[Any], shades: str) -> list[str]:
    grey = pixels.max(axis=2).astype(int)
    lines = []
    for y in range(0, len(grey), 2):
        rows = grey[y : y + 2].mean(axis=0)
        lines.append("".join(shades[int(v) * len(shades) // 256] for v in rows).rstrip())
    return lines
