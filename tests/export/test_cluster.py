"""`--dask`: on a cluster that each test run starts and stops, exports have the bytes of those made here."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from openreadout import registry
from openreadout.errors import OpenReadoutError, StorageError, UsageError
from openreadout.operations import dask_workers, walk
from openreadout.operations.cells import Job, Task, compare_cell, write_cell
from openreadout.operations.order import ExportOptions, Order, plan_fingerprint, planned
from openreadout.operations.records import key_of
from openreadout.operations.walk import all_cells, stages
from openreadout.operations.writing import Cell

distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

WORKERS = 4
SMALL = ("--chunks", "32,32", "--shards", "64,64", "--no-sync")
PRELOAD = """
import os, time
from openreadout.operations import walk, writing

walk.SMALL_CELL = 0  # small images have as many cells as large ones
pause = os.path.join(os.path.dirname(__file__), "pause")
if not hasattr(writing, "real"):  # a module that is preloaded may be loaded twice
    writing.real = writing.Writing._write_block


def slow(self, *arguments):
    if os.path.exists(pause):
        with open(pause) as file:
            time.sleep(float(file.read() or 0))
    return writing.real(self, *arguments)


writing.Writing._write_block = slow
"""


@dataclass
class Cluster:
    """A scheduler and its workers, each a process."""

    folder: Path
    address: str = ""
    scheduler: subprocess.Popen | None = None
    workers: list = field(default_factory=list)

    def start(self, workers=WORKERS) -> None:
        (self.folder / "preload.py").write_text(PRELOAD)
        where = self.folder / "scheduler.json"
        self.scheduler = self._process(
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            where,
        )
        self._wait(where.exists)
        self._wait(lambda: where.read_text().rstrip().endswith("}"))
        self.address = json.loads(where.read_text())["address"]
        for _ in range(workers):
            self.add()

    def _process(self, kind, *arguments) -> subprocess.Popen:
        with (self.folder / f"{kind}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{kind}", *map(str, arguments)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def add(self, *more) -> None:
        self.workers.append(
            self._process(
                "worker",
                self.address,
                "--no-nanny",
                "--nthreads",
                "1",
                "--host",
                "127.0.0.1",
                "--no-dashboard",
                "--local-directory",
                self.folder,
                "--preload",
                self.folder / "preload.py",
                *more,
            )
        )

    def kill(self) -> None:
        """Kill the worker that lives longest, without a word."""
        worker = self.workers.pop(0)
        worker.kill()
        worker.wait()

    def slow(self, seconds) -> None:
        (self.folder / "pause").write_text(str(seconds))

    def _wait(self, ready, seconds=60) -> None:
        end = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < end, (self.folder / "scheduler.log").read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        for process in [*self.workers, self.scheduler]:
            if process is not None:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(autouse=True)
def _at_full_speed(request):
    if "cluster" in request.fixturenames:
        found = request.getfixturevalue("cluster")
        found.slow(0)
        yield
        found.slow(0)
    else:
        yield


def start(source, target, *options):
    """The command as a process, with cells as small as those of the workers."""
    code = (
        "import sys; from openreadout.operations import walk; walk.SMALL_CELL = 0; "
        "from openreadout.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, "export", str(source), "--to", "ome-zarr", "-o", str(target), "--json",
         *map(str, options)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(process, code=0):
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, out + err
    assert "Traceback" not in out + err
    document = json.loads(out)
    return document["data"] if document["ok"] else document["error"]


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def facts(report):
    return {k: v for k, v in report.items() if k not in ("seconds", "output")}


def sources(make, folder):
    """Images of kinds that differ in how their levels come about."""
    yield (
        "plain",
        make.image(folder / "a", [make.noise((2, 3, 300, 350))], "czyx", chunks=(1, 1, 32, 32)),
        (),
    )
    floats = make.noise((2, 200, 130)).astype("float32") - 500
    floats[0, 3, 4] = np.nan
    yield (
        "floats",
        make.image(folder / "f", [floats], "cyx", chunks=(1, 32, 32)),
        ("--pyramid", "mean", "--levels", 4),
    )
    sparse = np.zeros((700, 700), "uint16")
    sparse[250:270, 20:40] = 7
    yield (
        "sparse",
        make.image(folder / "s", [sparse], "yx", chunks=(16, 16)),
        ("--pyramid", "mean", "--levels", 3),
    )
    yield (
        "sparse in one shard",
        make.image(folder / "o", [sparse], "yx", chunks=(16, 16)),
        ("--pyramid", "mean", "--levels", 3, "--chunks", "16,16", "--shards", "704,704"),
    )


@pytest.mark.parametrize("kind", ["plain", "floats", "sparse", "sparse in one shard"])
def test_workers_give_the_bytes_of_one_process(kind, cluster, make, tmp_path, killing):
    source, options = next((s, o) for n, s, o in sources(make, tmp_path / "in") if n == kind)
    here = finish(start(source, tmp_path / "here.ome.zarr", *SMALL, *options))
    there = finish(
        start(source, tmp_path / "there.ome.zarr", *SMALL, *options, "--dask", cluster.address)
    )
    assert killing.tree(tmp_path / "there.ome.zarr") == killing.tree(tmp_path / "here.ome.zarr")
    assert facts(there) == facts(here)
    assert there["verified"]
    assert names(tmp_path) == ["here.ome.zarr", "in", "there.ome.zarr"]


def test_many_images_are_written_together(cluster, fixtures, tmp_path, killing):
    for case in (
        "ome-tiff/two-images/two.ome.tiff",
        "ome-zarr/v3-plate/plate.zarr",
        "ome-zarr/v3-labels/labelled.zarr",
    ):
        source = fixtures / case
        assert source.exists()
        finish(start(source, tmp_path / "here.ome.zarr", "--overwrite"))
        finish(start(source, tmp_path / "there.ome.zarr", "--overwrite", "--dask", cluster.address))
        assert killing.tree(tmp_path / "there.ome.zarr") == killing.tree(tmp_path / "here.ome.zarr")


@pytest.fixture
def source(make, tmp_path):
    return make.image(tmp_path / "in", [make.noise((4, 512, 512))], "zyx", chunks=(1, 32, 32))


def wait_for_notes(running, notes):
    """Until a cell has been written and noted, so that an export is half-way whatever the speed of the machine."""
    end = time.monotonic() + 60
    while not any(p.stat().st_size for p in notes.glob("*.cells")):
        assert time.monotonic() < end
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)


def test_a_worker_killed_every_two_seconds_changes_nothing(cluster, source, tmp_path, killing):
    finish(start(source, tmp_path / "here.ome.zarr", *SMALL))
    cluster.slow(0.06)
    running = start(source, tmp_path / "there.ome.zarr", *SMALL, "--dask", cluster.address)
    wait_for_notes(running, tmp_path / ".there.ome.zarr.partial.parts")
    kills = 0
    while running.poll() is None:
        if kills < 30:
            cluster.kill()
            cluster.add()
            kills += 1
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(2)
    assert finish(running)["verified"]
    assert kills
    assert killing.tree(tmp_path / "there.ome.zarr") == killing.tree(tmp_path / "here.ome.zarr")
    assert names(tmp_path) == ["here.ome.zarr", "in", "there.ome.zarr"]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name
)
def test_an_export_that_is_stopped_shows_nothing_and_can_be_resumed(
    number, cluster, source, tmp_path, killing
):
    finish(start(source, tmp_path / "here.ome.zarr", *SMALL))
    cluster.slow(0.05)
    target = tmp_path / "there.ome.zarr"
    running = start(source, target, *SMALL, "--dask", cluster.address)
    notes = tmp_path / ".there.ome.zarr.partial.parts"
    wait_for_notes(running, notes)
    running.send_signal(number)
    running.communicate(timeout=60)
    assert running.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(number, -number)
    assert not target.exists()
    cluster.slow(0)
    done = {
        p: p.stat().st_mtime_ns
        for p in (tmp_path / ".there.ome.zarr.partial").rglob("c/*/*/*")
        if p.is_file() and p.suffix != ".part"
    }
    noted = b"".join(p.read_bytes() for p in notes.glob("*.cells")).count(b"\n")
    assert noted
    finish(start(source, target, *SMALL, "--dask", cluster.address, "--resume"))
    assert killing.tree(target) == killing.tree(tmp_path / "here.ome.zarr")
    hidden = tmp_path / ".there.ome.zarr.partial"
    kept = [
        p for p, at in done.items() if (target / p.relative_to(hidden)).stat().st_mtime_ns == at
    ]
    assert len(kept) >= noted // 2
    assert names(tmp_path) == ["here.ome.zarr", "in", "there.ome.zarr"]


def test_an_export_on_more_workers_is_gone_on_with_on_fewer(source, monkeypatch):
    """More workers cut an image into smaller cells; what is noted of those is kept by fewer."""
    from openreadout.operations import cluster as ours

    monkeypatch.setattr(walk, "SMALL_CELL", 0)
    with registry.open_dataset(str(source)) as dataset:
        options = ExportOptions(sync=False)
        plan_options = replace(options.plan, chunks=(32, 32), shards=(64, 64))
        order = Order(
            str(source), "", (), planned(dataset, replace(options, plan=plan_options)), options
        )
        many, few = (ours._steps(order, threads, {}) for threads in (64, 2))
        assert many != few
        assert ours._steps(order, 0, {}) == many
        noted = Cell(many[0], (0, 0, 0), (b"",), (), 0, 0, 0)
        assert ours._steps(order, 2, {key_of(many[0], (0, 0, 0)): noted}) == many
        noted = replace(noted, step=few[0])
        assert ours._steps(order, 64, {key_of(few[0], (0, 0, 0)): noted}) == few


def test_damage_that_a_worker_finds_ends_as_it_does_here(cluster, source, tmp_path):
    chunk = next(p for p in source.rglob("c/2/7/*") if p.is_file())
    chunk.write_bytes(chunk.read_bytes()[:50])
    here = finish(start(source, tmp_path / "here.ome.zarr", *SMALL), code=4)
    there = finish(
        start(source, tmp_path / "there.ome.zarr", *SMALL, "--dask", cluster.address), code=4
    )
    assert there == here
    assert names(tmp_path) == ["in"]


def test_parts_are_committed_by_workers(cluster, source, tmp_path, killing):
    """The levels that several parts have a share in are written on the cluster, and all is read back there."""
    finish(start(source, tmp_path / "here.ome.zarr", *SMALL))
    target = tmp_path / "there.ome.zarr"
    finish(start(source, target, *SMALL, "--part", "1/2"))
    error = finish(start(source, target, *SMALL, "--commit", "--dask", cluster.address), code=2)
    assert "not complete: 2" in error["message"]
    finish(start(source, target, *SMALL, "--part", "2/2"))
    report = finish(start(source, target, *SMALL, "--commit", "--dask", cluster.address))
    assert report["verified"]
    assert killing.tree(target) == killing.tree(tmp_path / "here.ome.zarr")
    assert names(tmp_path) == ["here.ome.zarr", "in", "there.ome.zarr"]


def test_a_part_that_was_damaged_afterwards_is_found_by_workers(cluster, source, tmp_path):
    target = tmp_path / "there.ome.zarr"
    finish(start(source, target, *SMALL, "--part", "1/1"))
    shard = next(
        p for p in (tmp_path / ".there.ome.zarr.partial").rglob("0/c/1/2/*") if p.is_file()
    )
    data = bytearray(shard.read_bytes())
    data[50] ^= 1
    shard.write_bytes(data)
    error = finish(start(source, target, *SMALL, "--commit", "--dask", cluster.address), code=1)
    assert "read" in error["message"]
    assert not target.exists()


def test_a_folder_that_workers_write_to_is_not_left_behind_by_them(cluster, source, tmp_path):
    """Tasks that are at work when an export fails end before its folder is cleared away."""
    cluster.slow(0.3)
    chunk = next(p for p in source.rglob("c/0/3/*") if p.is_file())
    chunk.write_bytes(b"x")
    finish(start(source, tmp_path / "there.ome.zarr", *SMALL, "--dask", cluster.address), code=4)
    time.sleep(1.5)
    assert names(tmp_path) == ["in"]


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """Where temporary files go."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_workers_of_this_machine(make, tmp_path, killing, scratch):
    source = make.image(tmp_path / "in", [make.noise((3, 1500, 1500))], "zyx", chunks=(1, 512, 512))
    finish(start(source, tmp_path / "here.ome.zarr", "--no-sync"))
    finish(start(source, tmp_path / "there.ome.zarr", "--no-sync", "--dask", "local:2"))
    assert killing.tree(tmp_path / "there.ome.zarr") == killing.tree(tmp_path / "here.ome.zarr")
    assert names(tmp_path) == ["here.ome.zarr", "in", "there.ome.zarr", "tmp"]
    assert names(scratch) == []


def test_a_script_without_a_guard_is_run_once(source, tmp_path):
    """Worker processes that ran it again would export too, each of them."""
    script = tmp_path / "convert.py"
    script.write_text(
        f"""
import sys
print("begun")
from openreadout.cli import run
code = run(["export", {str(source)!r}, "--to", "ome-zarr", "-o", {str(tmp_path / "o.ome.zarr")!r}, "-q", "--no-sync",
            "--dask", "local:2"])
import __main__
print(code, __main__.code is code)
"""
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (done.stderr, done.returncode) == ("", 0)
    first, *report, last = done.stdout.splitlines()
    assert (first, last) == ("begun", "0 True")
    assert "verified" in report[-1]


def test_ctrl_c_ends_the_workers_of_this_machine_too(source, tmp_path, scratch):
    """A terminal sends SIGINT to the program and all that it started."""
    code = "import sys; from openreadout.cli import run; sys.exit(run(sys.argv[1:]))"
    running = subprocess.Popen(
        [sys.executable, "-c", code, "export", str(source), "--to", "ome-zarr", "-o", str(tmp_path / "o.ome.zarr"),
         "--chunks", "16,16", "--codec", "zstd:22", "--dask", "local:2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    end = time.monotonic() + 60
    while not (tmp_path / ".o.ome.zarr.partial").exists() and running.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode in (0, 130), out + err
    assert "Traceback" not in out + err
    end = time.monotonic() + 20
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(running.pid, 0)
            assert time.monotonic() < end, "something that it started is still there"
            time.sleep(0.2)
    assert names(scratch) == []


def test_what_cannot_be_done_is_refused(source, tmp_path):
    for address, code in (
        ("tcp://127.0.0.1:9", 5),
        ("local:0", 2),
        ("local:x", 2),
        ("local", 2),
        ("nowhere", 2),
        ("tcp://nowhere.invalid:80", 5),
    ):
        error = finish(start(source, tmp_path / "o.ome.zarr", "--dask", address), code=code)
        assert address in error["message"]
    error = finish(start(source, tmp_path / "o.ozx", "--dask", "local:1"), code=2)
    assert "archive" in error["message"]
    for others in ("--part 1/2", "--dry-run"):
        error = finish(start(source, tmp_path / "o", "--dask", "local:1", *others.split()), code=2)
        assert "exclude" in error["message"]
    assert names(tmp_path) == ["in"]


@contextlib.contextmanager
def listener(says):
    """Something that listens, says that to whoever connects, and keeps the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    kept.append(connection)
                    connection.sendall(says)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        finally:
            for connection in kept:
                connection.close()


@pytest.mark.parametrize(
    "says",
    [b"", b"SSH-2.0-x\r\n", bytes(range(256)) * 16, struct.pack("<QQ", 1, 1 << 60)],
    ids=["silence", "text", "noise", "a huge frame"],
)
def test_what_listens_and_is_no_scheduler_is_told(says, source, tmp_path, command, monkeypatch):
    monkeypatch.setattr(dask_workers, "CONNECT_SECONDS", 1)
    with listener(says) as address:
        error = command(
            "export", source, "--to", "ome-zarr", "-o", tmp_path / "o.ome.zarr", "--dask", address, code=5
        )  # fmt: skip
    assert "no Dask scheduler answers" in error["message"]
    assert names(tmp_path) == ["in"]


def test_the_address_of_a_worker_is_told_from_that_of_a_scheduler(
    cluster, source, tmp_path, command
):
    with distributed.Client(cluster.address, set_as_default=False) as client:
        worker = next(iter(client.nthreads()))
    error = command(
        "export", source, "--to", "ome-zarr", "-o", tmp_path / "o.ome.zarr", "--dask", worker, code=5
    )  # fmt: skip
    assert "but a worker" in error["message"]


SETTINGS = {
    "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_SATURATION": "bogus",
    "DASK_DISTRIBUTED__SCHEDULER__IDLE_TIMEOUT": "1s",
    "DASK_DISTRIBUTED__WORKER__LIFETIME__DURATION": "1s",
    "DASK_DISTRIBUTED__WORKER__PRELOAD": "no_such_module",
}
"""Of a user's cluster; a cluster that is started here could not live with them."""


def test_settings_of_the_user_are_not_those_of_workers_here(source, tmp_path, monkeypatch):
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    assert finish(start(source, tmp_path / "o.ome.zarr", "--no-sync", "--dask", "local:1"))[
        "verified"
    ]
    assert names(tmp_path) == ["in", "o.ome.zarr"]


def test_settings_that_dask_cannot_begin_with_are_told(cluster, source, tmp_path, monkeypatch):
    monkeypatch.setenv("DASK_DISTRIBUTED__CLIENT__SCHEDULER_INFO_INTERVAL", "bogus")
    error = finish(start(source, tmp_path / "o.ome.zarr", "--dask", cluster.address), code=5)
    assert "Dask could not be started" in error["message"]
    assert "settings" in error["hint"]
    (tmp_path / "dask.yaml").write_text("a: [b")
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path / "dask.yaml"))
    error = finish(start(source, tmp_path / "o.ome.zarr", "--dask", "local:1"), code=2)
    assert "malformed" in error["message"]
    assert names(tmp_path) == ["dask.yaml", "in"]


@pytest.mark.parametrize(
    ("distribution", "words"),
    [("openreadout-microscopy", "version 0.1.0"), ("no-such-distribution", "none")],
)
def test_workers_of_another_version_are_found_at_the_start(
    distribution, words, cluster, source, tmp_path, command, monkeypatch
):
    """One without the program would end with the first task that it gets, and say so in its log alone."""
    monkeypatch.setattr(dask_workers, "DISTRIBUTION", distribution)
    monkeypatch.setattr(dask_workers, "own_version", lambda: "9.9")
    error = command(
        "export", source, "--to", "ome-zarr", "-o", tmp_path / "o.ome.zarr", "--dask", cluster.address, code=2
    )  # fmt: skip
    assert f"need version 9.9 of {distribution}, and some have {words}" in error["message"]
    assert "install the same version" in error["hint"]
    assert names(tmp_path) == ["in"]


def test_a_scheduler_that_hangs_does_not_hold_up_a_signal(source, tmp_path):
    own = Cluster(tmp_path)
    try:
        own.start()
        own.slow(0.05)
        running = start(source, tmp_path / "o.ome.zarr", *SMALL, "--dask", own.address)
        wait_for_notes(running, tmp_path / ".o.ome.zarr.partial.parts")
        own.scheduler.send_signal(signal.SIGSTOP)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=100)
        assert running.returncode == 130
        assert "Traceback" not in out + err
        assert not (tmp_path / "o.ome.zarr").exists()
    finally:
        own.stop()


def test_workers_that_are_paused_for_good_are_not_waited_for(
    source, tmp_path, command, monkeypatch
):
    """Dask gives a worker nothing to do while its process has more than a part of the memory that it may have."""
    monkeypatch.setattr(dask_workers, "SILENT_SECONDS", 3)
    monkeypatch.setattr(dask_workers, "HEARTBEAT_SECONDS", 2)
    own = Cluster(tmp_path)
    try:
        own.start(workers=0)
        own.add("--memory-limit", "40MB")
        own._wait(lambda: "Pausing worker" in (tmp_path / "worker.log").read_text())
        error = command(
            "export", source, "--to", "ome-zarr", "-o", tmp_path / "o.ome.zarr", "--dask", own.address, code=5
        )  # fmt: skip
        assert "paused for 3 seconds: their memory is full" in error["message"]
        assert "--memory-limit" in error["hint"]
        own.add()  # one that is not
        assert finish(start(source, tmp_path / "o.ome.zarr", "--dask", own.address))["verified"]
    finally:
        own.stop()


def limited(source, target, address, soft, hard):
    """The command in a process that may have so many files open."""
    resource = pytest.importorskip("resource")
    code = "import sys; from openreadout.cli import run; sys.exit(run(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, "export", str(source), "--to", "ome-zarr", "-o", str(target), "-q", "--dask",
         address],
        capture_output=True, text=True, timeout=100, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    )  # fmt: skip


@pytest.mark.parametrize("files", [12, 24, 60])
def test_workers_that_take_more_open_files_than_there_may_be_are_not_begun(source, tmp_path, files):
    """Dask tries for ever to accept a connection for which no file is left, and tells of each try."""
    done = limited(source, tmp_path / "o.ome.zarr", "local:2", files, files)
    assert done.returncode == 5
    assert f"2 workers take 72 open files, and the system allows {files}" in done.stderr
    assert "ulimit -n 72" in done.stderr
    assert len(done.stderr) < 500
    assert names(tmp_path) == ["in"]


def test_the_usual_limit_of_open_files_is_raised_where_that_may_be(source, tmp_path):
    done = limited(source, tmp_path / "o.ome.zarr", "local:2", 40, 400)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("files", [10, 16, 24, 40])
def test_few_open_files_end_in_one_error_or_well(cluster, source, tmp_path, files):
    done = limited(source, tmp_path / "o.ome.zarr", cluster.address, files, files)
    assert done.returncode in (0, 5)
    assert "Traceback" not in done.stderr
    assert len(done.stderr) < 1000
    assert (tmp_path / "o.ome.zarr").exists() == (done.returncode == 0)


def test_a_start_that_comes_to_no_end_is_given_up(source, tmp_path, command, monkeypatch):
    import distributed

    ended = threading.Event()
    monkeypatch.setattr(dask_workers, "START_SECONDS", 0.2)
    monkeypatch.setattr(distributed, "LocalCluster", lambda **how: ended.wait(60))
    try:
        error = command(
            "export", source, "--to", "ome-zarr", "-o", tmp_path / "o.ome.zarr", "--dask", "local:2", code=5
        )  # fmt: skip
    finally:
        ended.set()
    assert "nothing has begun within 0.4 seconds" in error["message"]
    assert names(tmp_path) == ["in"]


def test_what_nobody_waits_for_any_more_says_nothing(cluster, tmp_path):
    """An interrupted call leaves callbacks and tasks behind, which fail in Dask's thread whenever they are reached."""
    code = """
import asyncio, gc, sys, time
from openreadout.operations.dask_workers import Cluster
if __name__ == "__main__":
    reached = []
    with Cluster(sys.argv[1], 1) as cluster:
        def callback():
            reached.append(1)
            raise NameError("a callback")
        async def awaited():
            callback()
        def task():
            asyncio.ensure_future(awaited())
        loop = cluster._client.loop
        for one in (callback, awaited, task):
            loop.add_callback(one)
        while len(reached) < 3:
            time.sleep(0.02)
        loop.add_callback(gc.collect)
        time.sleep(0.1)
    print("reached")
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, script, cluster.address], capture_output=True, text=True, timeout=100, check=False
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("reached\n", "", 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_while_workers_start_is_heard_once_they_have(number, source, tmp_path):
    """Dask interrupted half-way through its start complains at the end, and may leave processes."""
    code = f"""
import os, sys
import distributed
from openreadout.cli import run
real = distributed.LocalCluster.__init__
def begin(self, *arguments, **options):
    os.kill(os.getpid(), {int(number)})
    print("going on", flush=True)
    real(self, *arguments, **options)
distributed.LocalCluster.__init__ = begin
sys.exit(run(sys.argv[1:]))
"""
    running = subprocess.run(
        [sys.executable, "-c", code, "export", str(source), "--to", "ome-zarr", "-o", str(tmp_path / "o.ome.zarr"),
         "--dask", "local:2"],
        capture_output=True, text=True, start_new_session=True, timeout=100, check=False,
    )  # fmt: skip
    assert running.returncode == 128 + number
    assert running.stdout == "going on\n"
    assert "Traceback" not in running.stderr
    assert names(tmp_path) == ["in"]


# -- tasks -----------------------------------------------------------------------------------------


@pytest.fixture
def job(source, tmp_path, monkeypatch):
    """A job with its tasks, as a worker gets them."""
    monkeypatch.setattr(walk, "SMALL_CELL", 0)
    options = ExportOptions(sync=False)
    options = replace(options, plan=replace(options.plan, chunks=(32, 32), shards=(64, 64)))
    (tmp_path / "partial").mkdir()
    (tmp_path / "permit").touch()
    with registry.open_dataset(str(source)) as dataset:
        plan = planned(dataset, options)
        step = next(stages(plan, 1 << 30))
        tasks = [
            Task(step, index)
            for index in all_cells(plan.images[0].levels[step.first : step.last + 1])
        ]
        fingerprint = plan_fingerprint(plan, options)
        found = Job(
            "x" + str(tmp_path),
            str(source),
            str(tmp_path / "partial"),
            str(tmp_path / "permit"),
            options,
            fingerprint,
        )
        yield found, tasks


def test_the_same_task_twice_at_the_same_time_gives_the_same_files(job, tmp_path, killing):
    job, tasks = job
    first = [write_cell(job, task) for task in tasks]
    wanted = killing.tree(tmp_path / "partial")
    assert len(wanted) >= len(tasks) > 100
    results = {}

    def work(name):
        results[name] = [write_cell(job, task) for task in tasks]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found == first for found in results.values())
    assert killing.tree(tmp_path / "partial") == wanted


def test_a_task_that_nobody_wants_any_more_writes_nothing(job, tmp_path):
    job, tasks = job
    (tmp_path / "permit").unlink()
    for work in (write_cell, compare_cell):
        with pytest.raises(StorageError, match="ended"):
            work(job, tasks[0])
    assert names(tmp_path / "partial") == []


def test_a_worker_that_plans_another_export_refuses(job, tmp_path):
    job, tasks = job
    other = replace(job, token="y" + job.token, fingerprint="0" * 32)
    with pytest.raises(UsageError, match="plans another export"):
        write_cell(other, tasks[0])
    assert names(tmp_path / "partial") == []


def test_without_the_extra_the_option_says_what_to_install(source, tmp_path, command, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    error = command(
        "export",
        source,
        "--to",
        "ome-zarr",
        "-o",
        tmp_path / "o.ome.zarr",
        "--dask",
        "local:1",
        code=2,
    )
    assert "[dask]" in error["hint"]
    assert names(tmp_path) == ["in"]


def test_whatever_a_task_raises_comes_back_as_one_of_our_errors(job):
    """Also memory that runs out, and an error that cannot be sent."""
    from openreadout.errors import CorruptDataError
    from openreadout.operations.cells import attempt

    class LocalError(Exception):
        def __reduce__(self):
            raise TypeError("not to be sent")

    job, (task, *_) = job
    for raised, code, words in (
        (CorruptDataError("it is cut", where="0/c/0"), 4, "it is cut"),
        (MemoryError(), 5, "not enough memory on a worker"),
        (LocalError("x" * 9000), 1, "a fault of this program (LocalError: xxx"),
        (ZeroDivisionError("division"), 1, "ZeroDivisionError: division"),
    ):

        def work(job, task, raised=raised):
            raise raised

        failure = pickle.loads(pickle.dumps(attempt(work, job, task)))
        assert failure.error.exit_code == code
        assert words in failure.error.message
        assert len(failure.error.message) < 700
        assert failure.error.__traceback__ is None


def test_tasks_that_have_begun_are_waited_for_when_one_fails(job, cluster, tmp_path):
    """Else they would go on writing where things are cleared away."""
    job, tasks = job
    given = iter(tasks[:4])

    def work(job, task):  # sent as it is: workers cannot import this module
        import pathlib
        import time

        from openreadout.errors import StorageError

        name = "-".join(map(str, task.index))
        (pathlib.Path(job.partial) / f"{name}.begun").touch()
        time.sleep(0.4)
        if name == "0-0-0":
            raise StorageError("the disk is full")
        time.sleep(1)
        (pathlib.Path(job.partial) / f"{name}.ended").touch()
        return name

    with dask_workers.Cluster(cluster.address, None) as workers:
        results = workers.map(work, job, lambda n: list(itertools.islice(given, n)), lambda: None)
        with pytest.raises(OpenReadoutError, match="the disk is full"):
            list(results)
        found = names(tmp_path / "partial")
    assert found.count("0-0-1.ended") == 1
    assert sorted(n.removesuffix(".ended") for n in found if n.endswith(".ended")) == [
        n.removesuffix(".begun") for n in found if n.endswith(".begun") and n != "0-0-0.begun"
    ]
    assert not (tmp_path / "permit").exists()


def test_workers_that_end_before_they_take_a_task_are_not_waited_for_without_end(monkeypatch):
    """As those do whose memory limit is too small for the program itself, and that are started again each time."""
    monkeypatch.setattr(dask_workers, "WAKE_SECONDS", 0.001)
    numbers = itertools.count()
    found = dask_workers.Cluster("tcp://127.0.0.1:1", None)
    monkeypatch.setattr(found, "_client", SimpleNamespace(status="running"))
    monkeypatch.setattr(found, "_seen", lambda: {f"worker-{next(numbers)}": 1})
    monkeypatch.setattr(found, "_paused", lambda: False)
    with pytest.raises(OpenReadoutError, match="workers were lost") as caught:
        found._next(queue.SimpleQueue(), lambda: None)
    assert caught.value.exit_code == 5
    assert "memory" in caught.value.hint
    assert next(numbers) > dask_workers.LOSSES
