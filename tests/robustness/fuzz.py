"""The long run: damaged inputs over all commands, each made again from its number.

    python -m tests.robustness.fuzz --count 20000 --first 0
    python -m tests.robustness.fuzz --case 1234

Every number stands for one damaged input. A process of its own works through them, so that a hang, a crash of a library
or an endless allocation is seen from outside and the rest goes on.
"""

# ruff: noqa: T201  # a program that prints

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from tests.robustness import guards, mutations, seeds

DEFAULT_COMMANDS = ("info", "check", "check-full", "check-planes", "export")


def all_seeds(*, corpus: bool) -> list[seeds.Seed]:
    """What is damaged, in a fixed order."""
    return [*seeds.from_fixtures(), *(seeds.from_corpus() if corpus else ())]


class Case:
    """One damaged input."""

    def __init__(self, number: int, start: Sequence[seeds.Seed]) -> None:
        rng = Random(number)
        self.number = number
        self.seed = start[rng.randrange(len(start))]
        self.files = mutations.damaged(rng, self.seed.files)
        self.rng = rng

    def commands(self, wanted: Sequence[str], each: int) -> list[str]:
        """The commands that this input is given to: `each` of those wanted, or all."""
        return list(wanted) if each <= 0 else self.rng.sample(list(wanted), min(each, len(wanted)))

    def put(self, folder: Path) -> Callable[[str], guards.Outcome]:
        """Write the input below a folder; gives what runs a command on it."""
        base, target = folder / "in", folder / "out"
        made = guards.put(self.files, base)
        return lambda command: guards.judge(command, base / self.seed.entry, made, base, target)


# -- the process that works ------------------------------------------------------------------------


def work(options: argparse.Namespace) -> None:
    """Work through the numbers and print a line of JSON before and after each command."""
    warnings.simplefilter("always")
    with contextlib.suppress(ModuleNotFoundError):
        import tifffile  # noqa: F401

        import openreadout_ome_zarr_writer.sink  # noqa: F401  # so that the first input does not pay for imports
    start = all_seeds(corpus=options.corpus)
    guards.limit_memory()
    folder = Path(options.folder)
    for number in range(options.first, options.first + options.count):
        case = Case(number, start)
        commands = case.commands(options.commands, options.each)
        run = case.put(folder)
        for command in commands:
            _say(begin=number, command=command, seed=case.seed.name)
            done = run(command)
            _say(
                end=number, command=command, seed=case.seed.name, code=done.code, seconds=round(done.seconds, 3),
                cpu=round(done.cpu, 3), peak=done.peak, faults=done.faults,
            )  # fmt: skip


def _say(**what: object) -> None:
    sys.__stdout__.write(json.dumps(what) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


# -- the process that watches ----------------------------------------------------------------------


class Watch:
    """Starts workers, notes what they say, and starts another one behind an input that ended one."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.runs: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.inputs = 0
        self.faults: list[dict[str, object]] = []
        self.slowest = 0.0
        self.largest = 0

    def run(self) -> None:
        number, end = self.options.first, self.options.first + self.options.count
        while number < end:
            number = self._worker(number, end - number)

    def _worker(self, first: int, count: int) -> int:
        """Run one worker to its end; the number to go on with."""
        folder = tempfile.mkdtemp(prefix="fuzz-", dir=self.options.scratch)
        command = [
            sys.executable, "-m", "tests.robustness.fuzz", "--work", "--first", str(first), "--count", str(count),
            "--folder", folder, "--each", str(self.options.each), "--commands", *self.options.commands,
        ]  # fmt: skip
        if self.options.corpus:
            command.append("--corpus")
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=seeds.ROOT)
        at = {"begin": first, "command": "start", "seed": "?"}
        try:
            for line in self._lines(worker):
                if "begin" in line:
                    at = line
                    continue
                self._note(line)
            if worker.wait() == 0:
                return first + count
            if at["command"] == "start":
                raise RuntimeError("the process that works does not start")
            self._fault(at, f"the process ended with {worker.returncode} (hang or crash)")
            return int(str(at["begin"])) + 1
        finally:
            worker.kill()
            worker.wait()
            shutil.rmtree(folder, ignore_errors=True)

    def _lines(self, worker: subprocess.Popen[bytes]) -> Iterator[dict[str, object]]:
        """What the worker says; it is ended when it says nothing for longer than a command may take."""
        assert worker.stdout is not None
        rest = b""
        while True:
            ready, _, _ = select.select(
                [worker.stdout], [], [], guards.MAX_SECONDS * guards.PATIENCE
            )
            if not ready:
                worker.kill()
                return
            data = os.read(worker.stdout.fileno(), 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield json.loads(line)

    def _note(self, line: dict[str, object]) -> None:
        self.runs[str(line["command"])] += 1
        self.codes[int(str(line["code"]))] += 1
        self.slowest = max(self.slowest, float(str(line["cpu"])))
        self.largest = max(self.largest, int(str(line["peak"])))
        slow = float(str(line["cpu"])) > 5 or int(str(line["peak"])) > 400 << 20
        if slow:
            print(f"heavy: {line}", flush=True)
        for fault in line["faults"]:  # type: ignore[attr-defined]
            self._fault(line, str(fault))

    def _fault(self, line: dict[str, object], what: str) -> None:
        number = line.get("begin", line.get("end"))
        found = {"case": number, "command": line["command"], "seed": line["seed"], "fault": what}
        self.faults.append(found)
        print(f"FAULT case {number} {line['command']} {line['seed']}\n  {what}", flush=True)

    def summary(self, seconds: float) -> str:
        runs = ", ".join(f"{name} {count}" for name, count in sorted(self.runs.items()))
        codes = ", ".join(f"{code}: {count}" for code, count in sorted(self.codes.items()))
        return (
            f"inputs {self.options.first} to {self.options.first + self.options.count - 1}, "
            f"{sum(self.runs.values())} runs ({runs}) in {seconds:.0f} s; exit codes {codes}; "
            f"slowest {self.slowest:.1f} s (processor); most memory {self.largest >> 20} MiB; {len(self.faults)} faults"
        )


def show(options: argparse.Namespace) -> None:
    """Run one case and keep its files, for whoever looks into it."""
    case = Case(options.case, all_seeds(corpus=options.corpus))
    folder = Path(options.scratch or tempfile.gettempdir()) / f"case-{options.case}"
    print(f"case {options.case}: {case.seed.name}, written to {folder / 'in'}")
    for name, data in case.files.items():
        if case.seed.files.get(name) != data:
            print(f"  changed: {name} ({len(case.seed.files.get(name, b''))} to {len(data)} bytes)")
    run = case.put(folder)
    for command in case.commands(options.commands, 0):
        done = run(command)
        print(f"{command}: exit {done.code}, {done.seconds:.2f} s, {done.peak >> 20} MiB")
        print(f"  {done.err.strip()[:400]}")
        for fault in done.faults:
            print(f"  FAULT {fault}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--count", type=int, default=1000, help="how many inputs")
    parser.add_argument("--case", type=int, help="run this one input and keep it")
    parser.add_argument(
        "--corpus", action="store_true", help="start from the collection of real files too"
    )
    parser.add_argument(
        "--commands", nargs="+", choices=list(guards.COMMANDS), default=list(DEFAULT_COMMANDS)
    )
    parser.add_argument(
        "--each", type=int, default=0, help="commands for each input, drawn anew; 0: all"
    )
    parser.add_argument("--scratch", help="folder for the inputs, best in memory")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options)
        return 0
    if options.case is not None:
        show(options)
        return 0
    watch = Watch(options)
    started = time.monotonic()
    watch.run()
    print(watch.summary(time.monotonic() - started))
    return 1 if watch.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
