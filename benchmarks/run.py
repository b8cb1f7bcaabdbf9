"""Time commands against each other, in turn (A B A B ...), and print medians and their ratios.

    python benchmarks/run.py [-n 5] [--clean PATH ...] LABEL='COMMAND' LABEL='COMMAND' ...

For each command: wall and CPU seconds, and the peak memory of the largest process, as the system accounts them. The
ratios are of medians, against the last command. `--clean` names what is removed before every run.
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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument("--clean", action="append", default=[])
    parser.add_argument("commands", nargs="+", metavar="LABEL=COMMAND")
    options = parser.parse_args()
    commands = [tuple(text.split("=", 1)) for text in options.commands]
    figures: dict[str, list[tuple[float, float, float, int]]] = {label: [] for label, _ in commands}
    for turn in range(options.n + 1):
        for label, command in commands:
            clean(options.clean)
            found = measure(command)
            if turn:  # the first round warms the page cache
                figures[label].append(found)
    clean(options.clean)
    base = statistics.median(f[0] for f in figures[commands[-1][0]])
    print("| command | wall s | CPU s | cores | peak MiB | wall to the last |")
    print("| --- | --- | --- | --- | --- | --- |")
    for label, _ in commands:
        wall, cpu, memory = (statistics.median(f[n] for f in figures[label]) for n in range(3))
        failed = sum(f[3] != 0 for f in figures[label])
        note = f" ({failed} runs failed)" if failed else ""
        print(
            f"| {label}{note} | {wall:.2f} | {cpu:.2f} | {cpu / wall:.2f} | {memory:.0f} | {wall / base:.2f} |"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
