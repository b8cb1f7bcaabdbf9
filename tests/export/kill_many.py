"""Kill exports at random moments and go on with them: by hand, `python -m tests.export.kill_many [COUNT] [SEED]`.

Each round starts an export, sends it SIGKILL, SIGTERM or SIGINT at a random moment, and looks at what is left: the
final name shows nothing, the old store, or a complete new one, and the source is as it was. Then the same command
runs to its end with `--resume`, and must give the bytes of an export that nobody disturbed.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import zarr

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
EXIT_CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}
OPTIONS = ("--chunks", "64,64", "--shards", "128,128", "--codec", "zstd:17", "--no-sync")
WAYS = ("new", "overwrite", "archive", "archive-overwrite")


def make_source(path: Path, side: int = 384) -> Path:
    """An image of two channels and two planes that compresses a little, by zarr-python."""
    axes = [{"name": a, "type": "channel" if a == "c" else "space"} for a in "czyx"]
    scale = [{"type": "scale", "scale": [1.0, 1.0, 0.5, 0.5]}]
    datasets = [{"path": "0", "coordinateTransformations": scale}]
    multiscales = [{"name": "killed", "axes": axes, "datasets": datasets}]
    ome = {"version": "0.5", "multiscales": multiscales}
    group = zarr.open_group(path, mode="w", zarr_format=3, attributes={"ome": ome})
    array = group.create_array("0", shape=(2, 2, side, side), chunks=(1, 1, 96, 96), dtype="uint16")
    array[...] = np.random.default_rng(3).integers(0, 900, array.shape).astype("uint16")
    return path


def tree(path: Path) -> dict[str, str]:
    """Digest of every file below a path, or of the file itself."""
    if path.is_file():
        return {"": hashlib.sha256(path.read_bytes()).hexdigest()}
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def command(source: Path, target: Path, *options: str) -> list[str]:
    return [
        sys.executable, "-m", "openreadout", "export", str(source), "--to", "ome-zarr", "-o", str(target), "-q",
        *OPTIONS, *options,
    ]  # fmt: skip


def _listen() -> None:
    """A shell lets what it starts in the background ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def starting(said: str) -> bool:
    """Whether an interruption came while Python itself was being loaded, before a line of the program was run."""
    lines = said.splitlines()
    return bool(lines) and lines[-1] == "KeyboardInterrupt" and "/openreadout/" not in said


def finish(source: Path, target: Path, *options: str) -> None:
    """Run an export to its end."""
    done = subprocess.run(
        command(source, target, *options), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)


@dataclass
class Killer:
    """Kills exports of one source into a folder of its own."""

    folder: Path
    seed: int = 1
    ends: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.source = make_source(self.folder / "source.ome.zarr")
        self.untouched = tree(self.source)
        self.wanted = {}
        for ending in (".ome.zarr", ".ozx"):
            target = self.folder / f"reference{ending}"
            started = time.monotonic()
            finish(self.source, target)
            self.seconds = time.monotonic() - started
            self.wanted[ending] = tree(target)

    def round(self, number: int) -> str:
        """One kill and what follows; tells how it ended."""
        way = WAYS[number // len(SIGNALS) % len(WAYS)]
        sent = SIGNALS[number % len(SIGNALS)]
        ending = ".ozx" if "archive" in way else ".ome.zarr"
        place = self.folder / f"round{number}"
        place.mkdir()
        target = place / f"out{ending}"
        options = ["--overwrite"] if "overwrite" in way else []
        old = None
        if options:
            finish(self.source, target, "--image", "0", "--select", "c=0", "--pyramid", "none")
            old = tree(target)
        code = self._kill(target, options, sent)
        found = tree(target) if target.exists() else None
        assert found in (old, self.wanted[ending]), f"{way}: an incomplete output after {sent.name}"
        said = (self.folder / "said.txt").read_text()
        if not (code == 1 and found == old and starting(said)):
            assert code in (0, EXIT_CODES[sent], -sent), (way, sent.name, code, said)
        assert tree(self.source) == self.untouched, "the source was changed"
        complete = found is not None and found == self.wanted[ending]
        resume = [*options, *(["--overwrite"] if complete and not options else [])]
        finish(self.source, target, "--resume", *resume)
        assert tree(target) == self.wanted[ending], f"{way}: other bytes after --resume"
        left = sorted(p.name for p in place.iterdir())
        assert left == [target.name], f"{way}: left behind: {left}"
        shutil.rmtree(place)
        how = f"{sent.name} {'complete' if complete else 'as it was'}"
        self.ends[how] = self.ends.get(how, 0) + 1
        return f"{number} {way} {how}"

    def _kill(self, target: Path, options: list[str], sent: signal.Signals) -> int:
        with (self.folder / "said.txt").open("wb") as said:
            running = subprocess.Popen(
                command(self.source, target, *options),
                stdout=subprocess.DEVNULL,
                stderr=said,
                preexec_fn=_listen,
            )
        # half of the kills come once something is being written, which the start of Python would else swallow
        if self.random.random() < 0.5:
            while running.poll() is None and not any(target.parent.glob(".*.partial")):
                time.sleep(0.002)
            time.sleep(self.random.random() * self.seconds * 0.5)
        else:
            time.sleep(self.random.random() * self.seconds * 1.1)
        running.send_signal(sent)
        return running.wait(timeout=60)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as folder:
        killer = Killer(Path(folder), seed)
        for number in range(count):
            sys.stdout.write(killer.round(number) + "\n")
            sys.stdout.flush()
        sys.stdout.write(f"{count} kills: {killer.ends}\n")


if __name__ == "__main__":
    os.nice(5)
    main()
