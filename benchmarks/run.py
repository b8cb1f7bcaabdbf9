"""Time commands against each other, in turn (A B A B ...), and print medians and their ratios.

    python benchmarks/run.py [-n 5] [--clean PATH ...] LABEL='COMMAND' LABEL='COMMAND' ...

For each command: wall and CPU seconds as the system accounts them, the peak memory of the largest process or, by looks
twenty times a second, of all its processes together, and the bytes and files of what it wrote. The ratios are of
medians, against the last command. `--clean` names what is removed before every run, and what is counted after it.
"""

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


class Watcher(threading.Thread):
    """Adds up the resident memory of a process and all below it; their shared pages count for each of them."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._ended = threading.Event()
        self.peak = 0
        self.start()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            self.peak = max(self.peak, sum(map(resident, family(self._pid))))

    def stop(self) -> None:
        self._ended.set()
        self.join()


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(found for child in below for found in family(int(child)))]


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 once it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def measure(command: str) -> tuple[float, float, float, int]:
    start = time.perf_counter()
    process = subprocess.Popen(
        shlex.split(command), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    watcher = Watcher(process.pid)
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    watcher.stop()
    code = os.waitstatus_to_exitcode(status)
    if code:
        sys.stderr.write(error.decode("utf-8", "replace"))
    return (
        time.perf_counter() - start,
        usage.ru_utime + usage.ru_stime,
        max(usage.ru_maxrss / 1024, watcher.peak / 2**20),
        code,
    )


def clean(paths: list[str]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.path.exists(
            path
        ) and os.unlink(path)


def written(paths: list[str]) -> tuple[int, int]:
    """Bytes and files below paths."""
    sizes = [
        os.path.getsize(os.path.join(folder, name))
        for path in paths
        for folder, _, names in os.walk(path)
        for name in names
    ]
    sizes += [os.path.getsize(path) for path in paths if os.path.isfile(path)]
    return sum(sizes), len(sizes)


def compare(commands: list[tuple[str, str]], outputs: list[str], turns: int) -> list[str]:
    """A table, one row for each command (label, command line); ratios are against the last one."""
    figures: dict[str, list[tuple[float, ...]]] = {label: [] for label, _ in commands}
    for turn in range(turns + 1):
        for label, command in commands:
            clean(outputs)
            found = measure(command)
            if turn:  # the first round warms the page cache
                figures[label].append((*found, *written(outputs)))
    clean(outputs)
    base = statistics.median(f[0] for f in figures[commands[-1][0]])
    rows = [
        "| command | wall s | CPU s | cores | peak MiB | written MB | files | wall to the last |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for label, _ in commands:
        wall, cpu, memory, _, size, files = (
            statistics.median(f[n] for f in figures[label]) for n in range(6)
        )
        failed = sum(f[3] != 0 for f in figures[label])
        note = f" ({failed} runs failed)" if failed else ""
        rows.append(
            f"| {label}{note} | {wall:.2f} | {cpu:.2f} | {cpu / wall:.2f} | {memory:.0f} | {size / 1e6:.0f} "
            f"| {files:.0f} | {wall / base:.2f} |"
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("--clean", action="append", default=[])
    parser.add_argument("commands", nargs="+", metavar="LABEL=COMMAND")
    options = parser.parse_args()
    commands = [
        (label, command) for label, _, command in (t.partition("=") for t in options.commands)
    ]
    print("\n".join(compare(commands, options.clean, options.n)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
