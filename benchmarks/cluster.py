"""Exports on a Dask cluster: what the scheduler holds of many tasks, and what a second worker brings.

    python benchmarks/cluster.py FOLDER --memory [--blocks 20000]
    python benchmarks/cluster.py FOLDER --ratio [--planes 32] [-n 5]

`--memory` starts a scheduler and four worker processes, exports an image of so many shards through them, and prints the
memory of the scheduler and of the program that asks as the shards are done. Each shard is a task of its own here, and
another one when it is read back; elsewhere tasks are of 16 MB and more, which the scheduler does not see. `--ratio`
exports an OME-TIFF with `--dask local:1` and `local:2` in turn; 32 planes are 1 GiB. Inputs are made in the folder
when they are not there. Linux only: memory is read from `/proc`.
"""

import argparse
import contextlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import inputs
import numpy as np
import run

WORKERS = 4
SIDE = 64
"""Of a shard of the many."""
SMALL_CELLS = "from openreadout.operations import walk; walk.SMALL_CELL = 0"
"""Makes every shard a task."""
PYTHON = sys.executable
OPENREADOUT = Path(PYTHON).with_name("openreadout")


# -- memory -----------------------------------------------------------------------------------------------------------


def make_many(path: Path, blocks: int) -> None:
    """An image of at least so many chunks of 64 x 64, by zarr-python."""
    import zarr

    count = int(np.ceil(blocks**0.5))
    group = zarr.open_group(path, mode="w", zarr_format=3)
    shape = (count * SIDE, count * SIDE)
    # as small as the shards that are written: a block is as large as the chunks that it is made of
    array = group.create_array("0", shape=shape, chunks=(SIDE, SIDE), dtype="u2", compressors=None)
    rng = np.random.default_rng(0)
    for row in range(0, shape[0], SIDE):
        array[row : row + SIDE] = rng.integers(0, 1000, (SIDE, shape[1]), np.uint16)
    scale = [{"type": "scale", "scale": [1.0, 1.0]}]
    group.attrs["ome"] = {
        "version": "0.5",
        "multiscales": [
            {
                "axes": [{"name": a, "type": "space"} for a in "yx"],
                "datasets": [{"path": "0", "coordinateTransformations": scale}],
            }
        ],
    }


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """A scheduler and its workers, each a process; the address, and the scheduler."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "preload.py").write_text(SMALL_CELLS)
    where = folder / "scheduler.json"
    started: list[subprocess.Popen] = []

    def start(kind: str, *arguments: object) -> subprocess.Popen:
        command = [PYTHON, "-m", f"distributed.cli.dask_{kind}", *map(str, arguments)]
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        started.append(process)
        return process

    try:
        at = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        scheduler = start("scheduler", *at, "--scheduler-file", where)
        while not (where.exists() and where.read_text().rstrip().endswith("}")):
            time.sleep(0.1)
        address = json.loads(where.read_text())["address"]
        for number in range(WORKERS):
            start(
                "worker", address, "--nthreads", 1, "--no-nanny", "--no-dashboard",
                "--name", f"w{number}", "--memory-limit", 0, "--preload", folder / "preload.py",
                "--local-directory", folder,
            )  # fmt: skip
        yield address, scheduler
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:  # it waits for another that is gone
                process.kill()
                process.wait()


def resident(pid: int) -> float:
    """Memory of a process in MiB; of one that is gone, 0."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def count_lines(folder: Path, seen: dict[str, tuple[int, int]]) -> int:
    """Tasks that were noted as written; `seen` keeps how far each file was read, and what was in it."""
    for path in folder.glob("*.cells") if folder.is_dir() else ():
        at, lines = seen.get(path.name, (0, 0))
        with path.open("rb") as file:
            file.seek(at)
            data = file.read()
        seen[path.name] = at + len(data), lines + data.count(b"\n")
    return sum(lines for _, lines in seen.values())


def memory(folder: Path, blocks: int) -> None:
    source, target = folder / f"many-{blocks}.ome.zarr", folder / "out.ome.zarr"
    if not source.exists():
        print(f"making {source} …", flush=True)
        make_many(source, blocks)
    shutil.rmtree(target, ignore_errors=True)
    arguments = [
        "export", str(source), "--to", "ome-zarr", "-o", str(target), "--no-sync", "--json", "--chunks", "32,32",
        "--shards", f"{SIDE},{SIDE}", "--pyramid", "none", "--codec", "zstd:1",
    ]  # fmt: skip
    tasks = told(source)
    program = (
        f"{SMALL_CELLS}; import sys; from openreadout.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    wanted = [blocks * n // 8 for n in (1, 2, 4, 8)]
    seen: dict[str, tuple[int, int]] = {}
    notes = target.with_name(f".{target.name}.partial.parts")
    with cluster(folder / "cluster") as (address, scheduler):
        time.sleep(5)  # workers arrive
        print(
            "| after | seconds | scheduler MiB | caller MiB |",
            "| --- | --- | --- | --- |",
            sep="\n",
        )
        print(f"| start | 0 | {resident(scheduler.pid):.1f} | |", flush=True)
        began = time.monotonic()
        caller = subprocess.Popen(
            [PYTHON, "-c", program, *arguments, "--dask", address], stdout=subprocess.PIPE, text=True
        )  # fmt: skip
        highest = 0.0
        since = began
        while caller.poll() is None:
            time.sleep(0.25)
            highest = max(highest, resident(scheduler.pid))
            done = count_lines(notes, seen)
            at = time.monotonic() - began
            if wanted and done >= wanted[0]:
                said = f"{resident(scheduler.pid):.1f} | {resident(caller.pid):.1f}"
                print(f"| {done} written | {at:.0f} | {said} |", flush=True)
                wanted.pop(0)
                since = time.monotonic()
            elif not wanted and time.monotonic() - since > 20:
                said = f"{resident(scheduler.pid):.1f} | {resident(caller.pid):.1f}"
                print(f"| reading back | {at:.0f} | {said} |", flush=True)
                since = time.monotonic()
        seconds = time.monotonic() - began
        print(f"| all read back | {seconds:.0f} | {resident(scheduler.pid):.1f} | |")
        out, _ = caller.communicate()
        report = json.loads(out)["data"]
        assert report["verified"], report
        done = count_lines(notes, seen)
    print(
        f"\n{WORKERS} workers; {tasks} tasks twice; at most {highest:.1f} MiB in the scheduler; "
        f"{report['files_written']} files; {seconds / (2 * tasks) * 1000:.1f} ms a task"
    )
    shutil.rmtree(target, ignore_errors=True)


def told(source: Path) -> int:
    """Print what is sent of a task; how many there are."""
    from openreadout import registry
    from openreadout.operations import cells, walk
    from openreadout.operations.order import ExportOptions, plan_fingerprint, planned
    from openreadout.operations.storage import PlanOptions

    walk.SMALL_CELL = 0
    shards = (SIDE, SIDE)
    plan_options = PlanOptions(pyramid="none", chunks=(32, 32), shards=shards, codec="zstd:1")
    options = ExportOptions(plan_options, sync=False)
    with registry.open_dataset(str(source)) as dataset:
        plan = planned(dataset, options)
        (step,) = walk.stages(plan, 64)
        found = list(walk.all_cells(plan.images[0].levels))
        job = cells.Job(
            "0" * 16, str(source), f"{source}.partial", f"{source}.run", options,
            plan_fingerprint(plan, options),
        )  # fmt: skip
        task = cells.attempt, cells.write_cell, job, cells.Task(step, found[-1])
    print(
        f"{len(found)} tasks; each is sent as {len(pickle.dumps(task))} bytes before Dask wraps it, "
        "and 16 more for each block when it is read back"
    )
    return len(found)


# -- ratio ------------------------------------------------------------------------------------------------------------


def ratio(folder: Path, planes: int, turns: int, more: str) -> None:
    source, target = folder / f"noise-{planes}.ome.tif", folder / "out.ome.zarr"
    if not source.exists():
        print(f"making {source} …", flush=True)
        inputs.write_tiff(source, planes, "zlib")
    common = f"{OPENREADOUT} export {source} --to ome-zarr --no-sync -o {target} {more}"
    commands = [(f"local:{n}", f"{common} --dask local:{n}") for n in (2, 1)]
    commands.insert(0, ("2 threads, no cluster", f"{common} --threads 2"))
    print("\n".join(run.compare(commands, [str(target)], turns)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--blocks", type=int, default=20000)
    parser.add_argument("--ratio", action="store_true")
    parser.add_argument("--planes", type=int, default=32)
    parser.add_argument("-n", type=int, default=5)
    parser.add_argument(
        "--more", default="", help="further options of the export, such as --no-verify"
    )
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ.pop("DASK_SCHEDULER_ADDRESS", None)
    if options.memory:
        memory(options.folder, options.blocks)
    if options.ratio:
        ratio(options.folder, options.planes, options.n, options.more)


if __name__ == "__main__":
    main()
