"""Time commands against each other, in turn (A B A B ...), and print medians and their ratios.

    python benchmarks/run.py [-n 5] [--clean PATH ...] LABEL='COMMAND' LABEL='COMMAND' ...

For each command: wall and CPU seconds, and the peak memory of the largest process, as the system accounts them, and the
bytes and files of what it wrote. The ratios are of medians, against the last command. `--clean` names what is removed
before every run, and what is counted after it.
"""

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time


def measure(command: str) -> tuple[float, float, float, int]:
    start = time.perf_counter()
    process = subprocess.Popen(
        shlex.split(command), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code:
        sys.stderr.write(error.decode("utf-8", "replace"))
    return (
        time.perf_counter() - start,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
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
