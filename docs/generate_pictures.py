"""Draws the pictures of the README with the program itself: `make pictures`.

The data set is drawn here, so that the pictures can be made again anywhere: nuclei, cell bodies and spots.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tifffile
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

TARGET = Path(__file__).with_name("pictures")
COLUMNS = 80
SIZE = 640, 960
COLORS = {"nuclei": 0x3C6CFF, "bodies": 0x1E9E4A, "spots": 0xFF4060}


def field() -> np.ndarray:
    """Three channels (c, y, x) of a field of cells, uint16, with shot noise."""
    rng = np.random.default_rng(11)
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    channels = np.zeros((3, *SIZE))
    for row in range(6):
        for column in range(8):
            cy = (row + 0.5) * SIZE[0] / 6 + rng.normal(0, 12)
            cx = (column + 0.5 * (row % 2) + 0.25) * SIZE[1] / 8 + rng.normal(0, 12)
            turn, long, short = rng.uniform(0, np.pi), rng.uniform(24, 34), rng.uniform(18, 24)
            u = (x - cx) * np.cos(turn) + (y - cy) * np.sin(turn)
            v = (y - cy) * np.cos(turn) - (x - cx) * np.sin(turn)
            away = np.hypot(u / long, v / short)
            channels[0] += rng.uniform(0.6, 1) * np.exp(-((away / 0.8) ** 6))
            channels[1] += 0.7 * np.exp(-((away / 2) ** 4)) * (1 - 0.6 * np.exp(-((away / 0.9) ** 6)))  # fmt: skip
            for _ in range(rng.integers(4, 12)):
                angle, part = rng.uniform(0, 2 * np.pi), rng.uniform(1, 1.7)
                sy, sx = cy + part * short * np.sin(angle), cx + part * long * np.cos(angle)
                channels[2] += np.exp(-((y - sy) ** 2 + (x - sx) ** 2) / 9)
    return rng.poisson(channels.clip(0, 1.2) * 30000 + 900).astype(np.uint16)


def write(path: Path) -> None:
    """The field as an OME-TIFF with names, colours and sizes."""
    rgba = [(value << 8 | 0xFF) for value in COLORS.values()]
    channel = {"Name": list(COLORS), "Color": [v - (1 << 32) if v >> 31 else v for v in rgba]}
    metadata = {"axes": "CYX", "Channel": channel, "Name": "field 3"}
    metadata |= {"PhysicalSizeX": 0.325, "PhysicalSizeY": 0.325}
    tifffile.imwrite(path, field(), tile=(256, 256), compression="zlib", metadata=metadata)


def openreadout(*arguments: str, folder: str) -> str:
    """What a command prints, in colour."""
    command = [sys.executable, "-m", "openreadout", *arguments]
    environment = {"COLUMNS": str(COLUMNS), "PYTHONUTF8": "1", "PYTHONPATH": ":".join(sys.path)}
    # nothing in the command comes from outside, whatever the linter fears
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)  # noqa: S603
    return done.stdout.decode()


def screen(shown: str, title: str) -> str:
    """A terminal with the text in it, as SVG without anything from elsewhere."""
    nowhere = io.StringIO()
    console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
    console.print(Text.from_ansi(shown), end="")
    svg = console.export_svg(title=title, theme=DIMMED_MONOKAI, unique_id="screen")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


def main() -> None:
    """Write both pictures."""
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "cells.ome.tiff")
        openreadout("export", "cells.ome.tiff", "--to", "ome-zarr", folder=folder)
        shown = "$ openreadout info cells.ome.zarr\n"
        shown += openreadout("info", "--color", "cells.ome.zarr", folder=folder)
        (TARGET / "info.svg").write_text(screen(shown, "openreadout info"), encoding="utf-8")
        picture = str(TARGET / "preview.png")
        options = ["--size", "480", "--overwrite", "-o", picture]
        openreadout("preview", "cells.ome.zarr", *options, folder=folder)


if __name__ == "__main__":
    main()
