"""Kill an export before and after each step that it takes on the disk: by hand, `python -m tests.export.kill_at`.

`kill_many.py` kills at random moments, and the few between two steps of a rename are rarely among them. Here every
call of the system that opens, writes, renames or removes is counted, and a process is killed at a chosen one. All
processes are forks of one that has imported everything already, so that a moment costs a tenth of a second.

    python -m tests.export.kill_at [--signal NAME] [--lines] [--every N] [--way NAME]
    python -m tests.export.kill_at --random COUNT [--lines] [--seed N]

With `--lines` the moments are lines of Python instead, anywhere in the program and its libraries: none of them may
swallow an interruption, or make another error of it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openreadout.cli import run
from openreadout.ending import leave_at_once, on_signal
from tests.export import kill_many as killing

STEPS = frozenset(
    "open write ftruncate rename replace unlink link mkdir rmdir close fsync flock".split()
)
OWN = ("target.py", "journal.py", "outputs.py")
"""Modules in which every call of any function counts as a step too."""
OPTIONS = (
    "--chunks",
    "32,32",
    "--shards",
    "64,64",
    "--codec",
    "zstd",
    "--levels",
    "2",
    "--no-sync",
)
WAYS = {
    "new": (".ome.zarr", []),
    "resumed": (".ome.zarr", ["--resume"]),
    "overwrite": (".ome.zarr", ["--overwrite"]),
    "two-renames": (".ome.zarr", ["--overwrite"]),
    "archive": (".ozx", []),
    "archive-overwrite": (".ozx", ["--overwrite"]),
}


def export(source: Path, target: Path, *options: str) -> list[str]:
    return [
        "export", str(source), "--to", "ome-zarr", "-o", str(target), "-q", "--threads", "1", *OPTIONS, *options,
    ]  # fmt: skip


def _is_step(frame: Any, event: str, arg: Any) -> bool:
    if event in ("c_call", "c_return"):
        return getattr(arg, "__name__", "") in STEPS
    return os.path.basename(frame.f_code.co_filename) in OWN


class _Counter:
    """Counts moments of a run, and calls something at one of them."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.count = 0
        self.at = at
        self.act = act

    def _moment(self) -> None:
        self.count += 1
        if self.count == self.at:
            self.act()

    def steps(self, frame: Any, event: str, arg: Any) -> None:
        if _is_step(frame, event, arg):
            self._moment()

    def lines(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "line":
            self._moment()
        return self.lines


class Forked:
    """Runs the program in forks of this process, and kills it at a counted moment."""

    def __init__(self, folder: Path, way: str, *, lines: bool = False) -> None:
        self.folder = folder
        self.lines = lines
        self.way = way
        self.ending, self.options = WAYS[way]
        self.source = killing.make_source(folder / "source.ome.zarr", side=96)
        self.untouched = killing.tree(self.source)
        reference = folder / f"reference{self.ending}"
        assert run(export(self.source, reference)) == 0  # imports what is needed, too
        self.wanted = killing.tree(reference)
        self.place = folder / "place"
        self.target = self.place / f"out{self.ending}"
        self.old = None
        if "--overwrite" in self.options:
            old = folder / f"old{self.ending}"
            assert run(export(self.source, old, "--image", "0", "--select", "c=0")) == 0
            self.old = killing.tree(old)
        if way == "resumed":
            self._begin()
        self.moments = self.count()

    def _begin(self) -> None:
        """Keep what a kill halfway leaves, to go on with each time."""
        half = self.count() // 2
        self._fresh()
        self._fork(
            export(self.source, self.target), half, lambda: os.kill(os.getpid(), signal.SIGKILL)
        )
        (self.place / f".{self.target.name}.partial" / "0" / "cut.part").write_text("cut")
        shutil.copytree(self.place, self.folder / "half")

    def _fork(self, arguments: list[str], at: int, act: Callable[[], None]) -> tuple[int, int, str]:
        """Exit code, moments counted, and what was said."""
        said = self.folder / "said.txt"
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            self._child(arguments, at, act, said, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            counted = int(pipe.read() or b"0")
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, counted, said.read_text()

    def _child(
        self, arguments: list[str], at: int, act: Callable[[], None], said: Path, writing: int
    ) -> None:
        code = 99
        try:
            fd = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(fd, 1)
            os.dup2(fd, 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            on_signal(leave_at_once)  # as the program does before it loads anything
            if self.way == "two-renames":
                from openreadout.operations import target

                target.exchange = lambda *_: False
            counter = _Counter(at, act)
            if self.lines:
                sys.settrace(counter.lines)
            else:
                threading.setprofile(counter.steps)
                sys.setprofile(counter.steps)
            try:
                code = run(arguments)
            finally:
                sys.settrace(None)
                sys.setprofile(None)
            os.write(writing, b"%d" % counter.count)
            sys.stderr.flush()
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def _fresh(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        half = self.folder / "half"
        if half.exists():
            shutil.copytree(half, self.place)
        else:
            self.place.mkdir()
        if self.old is not None:
            old = self.folder / f"old{self.ending}"
            (shutil.copytree if old.is_dir() else shutil.copyfile)(old, self.target)

    def count(self) -> int:
        """Moments of a run that nobody disturbs."""
        self._fresh()
        code, counted, said = self._fork(
            export(self.source, self.target, *self.options), -1, lambda: None
        )
        assert code == 0, said
        assert killing.tree(self.target) == self.wanted
        return counted

    def kill(self, at: int, sent: signal.Signals) -> str:
        """Kill at a moment, look at what is left, and go on; tells how it ended."""
        self._fresh()
        me = f"{self.way} {sent.name} at {at} of {self.moments}"
        code, _, said = self._fork(
            export(self.source, self.target, *self.options),
            at,
            lambda: os.kill(os.getpid(), sent),
        )
        assert code == killing.EXIT_CODES[sent], (me, code, said)
        assert "Traceback" not in said, (me, said)
        assert "ignored" not in said, (me, said)
        found = killing.tree(self.target) if self.target.exists() else None
        neither = self.way == "two-renames" and sent == signal.SIGKILL and found is None
        assert neither or found in (self.old, self.wanted), f"{me}: an incomplete output"
        assert killing.tree(self.source) == self.untouched, f"{me}: the source was changed"
        complete = found == self.wanted
        kept = sorted(p.name for p in self.place.iterdir())
        if sent != signal.SIGKILL and self.way != "resumed" and "--resume" not in said:
            assert kept == [self.target.name] * (found is not None), f"{me}: left behind: {kept}"
        more = ["--overwrite"] if complete and self.old is None else []
        code, _, said = self._fork(
            export(self.source, self.target, *self.options, *more, "--resume"), -1, lambda: None
        )
        assert code == 0, (me, code, said)
        assert killing.tree(self.target) == self.wanted, f"{me}: other bytes after --resume"
        left = [p.name for p in self.place.iterdir()]
        assert left == [self.target.name], f"{me}: left behind: {left}"
        return "neither" if neither else "complete" if complete else "as it was"


def at_random(count: int, seed: int, *, lines: bool) -> None:
    """Kill at random moments, with each way and each signal in turn."""
    chance = random.Random(seed)
    ends: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        forked = {}
        for way in WAYS:
            place = Path(folder) / way
            place.mkdir()
            forked[way] = Forked(place, way, lines=lines)
        for number in range(count):
            way = list(WAYS)[number // len(killing.SIGNALS) % len(WAYS)]
            sent = killing.SIGNALS[number % len(killing.SIGNALS)]
            how = forked[way].kill(chance.randint(1, forked[way].moments), sent)
            ends[f"{sent.name} {how}"] = ends.get(f"{sent.name} {how}", 0) + 1
    sys.stdout.write(f"{count} kills: {ends}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--signal", default="SIGKILL")
    parser.add_argument("--way", choices=list(WAYS))
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument(
        "--random", type=int, metavar="COUNT", help="random moments and all signals"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.random:
        at_random(options.random, options.seed, lines=options.lines)
        return
    for way in [options.way] if options.way else list(WAYS):
        ends: dict[str, int] = {}
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            forked = Forked(Path(folder), way, lines=options.lines)
            for at in range(options.first, forked.moments + 1, options.every):
                how = forked.kill(at, signal.Signals[options.signal])
                ends[how] = ends.get(how, 0) + 1
        sys.stdout.write(
            f"{options.signal} {way}: {sum(ends.values())} of {forked.moments}: {ends}\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
