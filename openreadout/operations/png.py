"""A PNG file from an 8-bit RGB array (PNG specification, third edition)."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB, _UP = 2, 2


def encode(pixels: NDArray[Any]) -> bytes:
    """The file's bytes; `pixels` is uint8 of shape (height, width, 3)."""
    height, width, _ = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _RGB, 0, 0, 0)
    # filter "up": each row as its difference from the one above, which neighbouring rows make small
    above = np.concatenate([np.zeros_like(pixels[:1]), pixels[:-1]])
    rows = np.full((height, 1 + 3 * width), _UP, dtype=np.uint8)
    rows[:, 1:] = (pixels - above).reshape(height, 3 * width)
    data = zlib.compress(rows.tobytes(), 6)
    chunks = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
