"""Runs one command in this process and says what it broke of what is promised for every input."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from openreadout import cli

MEASURES = os.path.exists("/proc/self/clear_refs")
"""Whether this system tells how much memory a call took."""
MAX_SECONDS = 30
PATIENCE = 6
"""How many times longer a watcher waits, on a machine that has other work."""
MAX_BYTES = 1 << 30
ROOM = 3 << 30
"""Address space a command may take beyond what the process has: an allocation past it fails instead of being made."""

COMMANDS = {
    "info": ("info",),
    "info-full": ("info", "--view", "full"),
    "info-structure": ("info", "--view", "structure"),
    "check": ("check",),
    "check-full": ("check", "--full"),
    "check-planes": ("check", "--planes", "--level", "all"),
    "export": ("export", "--to", "ome-zarr", "--no-sync"),
    "export-archive": ("export", "--to", "ome-zarr", "--no-sync"),
    "export-0.4": ("export", "--to", "ome-zarr", "--no-sync", "--ngff", "0.4", "--pyramid", "mean"),
    "export-keep": ("export", "--to", "ome-zarr", "--no-sync", "--fill-missing", "--pyramid", "none"),
}  # fmt: skip


@dataclass
class Outcome:
    """What one command did."""

    code: int
    out: str
    err: str
    seconds: float
    cpu: float
    peak: int
    faults: list[str] = field(default_factory=list)


def status(key: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(key):
                return int(line.split()[1]) << 10
    return 0


def restart_peak() -> int:
    """Make the kernel measure the peak of the resident set anew; what is resident now."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return 0
    return status("VmRSS")


class _Text(io.TextIOWrapper):
    """A stream in memory, as a pipe would be."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode("utf-8")  # type: ignore[attr-defined]


def call(arguments: list[str]) -> Outcome:
    """Run the command in this process, measured."""
    out, err = _Text(), _Text()
    before = restart_peak()
    started, used = time.monotonic(), time.process_time()
    faults = []
    code = -1
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.run(arguments)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        faults.append("escaped: " + "".join(traceback.format_exception(error)))
    seconds = time.monotonic() - started
    peak = max(0, status("VmHWM") - before) if before else 0
    cpu = time.process_time() - used
    return Outcome(code, out.text(), err.text(), seconds, cpu, peak, faults)


def listing(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            short = os.path.relpath(path, folder)
            if os.path.islink(path):
                found[short] = os.fsencode(os.readlink(path))
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    found[short] = file.read()
            else:
                found[short] = b""
    return found


def put(files: dict[str, bytes], folder: Path) -> dict[str, bytes]:
    """Write files below a folder; those whose names cannot stand beside each other are left out."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made = {}
    for name, data in files.items():
        path = folder / name
        with contextlib.suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            made[name] = data
    return made


def arguments_for(command: str, source: Path, target: Path) -> list[str]:
    """The command line of one of `COMMANDS`."""
    words = [*COMMANDS[command], str(source), "--json"]
    if command.startswith("export"):
        ending = "out.ozx" if command == "export-archive" else "out.ome.zarr"
        words += ["-o", str(target / ending)]
    return words


def judge(command: str, source: Path, files: dict[str, bytes], base: Path, target: Path) -> Outcome:
    """Run a command on an input and note every promise that it breaks."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    done = call(arguments_for(command, source, target))
    faults = done.faults
    if done.code not in (0, 2, 3, 4, 5, 6):
        faults.append(f"exit code {done.code}: {done.err.strip()[-600:]}")
    shown = done.out + done.err
    if "Traceback (most recent call last)" in shown or "unexpected error" in shown:
        faults.append(f"a traceback or an unexpected error: {shown[-800:]}")
    if "Warning:" in done.err:
        faults.append(f"a warning of a library: {done.err[-600:]}")
    try:
        envelope = json.loads(done.out)
    except ValueError:
        faults.append(f"stdout is not one JSON document: {done.out[-300:]!r}")
    else:
        faults += _envelope_faults(command, envelope, done.code)
    if (
        min(done.seconds, done.cpu) > MAX_SECONDS
    ):  # what the machine does besides is not held against it
        faults.append(f"{done.seconds:.1f} s, {done.cpu:.1f} s of processor time")
    if done.peak > MAX_BYTES:
        faults.append(f"{done.peak >> 20} MiB")
    if len(os.listdir("/proc/self/fd")) > descriptors:
        faults.append("a file stays open")
    if threading.active_count() > threads:
        faults.append("a thread stays alive")
    if listing(base) != files:
        faults.append("the source changed")
    faults += _left_behind(command, done, target)
    return done


def _left_behind(command: str, done: Outcome, target: Path) -> list[str]:
    """What stands in the target's folder beside a whole export."""
    left = os.listdir(target)
    if done.code == 5 and "--resume" in done.err:  # said, and hidden, for a later run to go on with
        left = [
            name
            for name in left
            if not name.endswith((".partial", ".partial.lock", ".partial.files"))
        ]
    wanted = 1 if command.startswith("export") and done.code == 0 else 0
    whole = len(left) == wanted and not any(name.startswith(".") for name in left)
    return [] if whole else [f"left behind: {left}"]


def _envelope_faults(command: str, envelope: object, code: int) -> list[str]:
    if not isinstance(envelope, dict) or not isinstance(envelope.get("ok"), bool):
        return ["the envelope is not one"]
    if envelope["ok"]:
        report_of_damage = command.startswith("check") and code == 4
        good = code == 0 or report_of_damage
        return [] if good else [f"ok with exit code {code}"]
    error = envelope.get("error", {})
    bad = [key for key in ("message", "hint", "code") if not error.get(key)]
    return [f"the error has no {key}" for key in bad] + (
        [] if error.get("exit_code") == code else ["the error has another exit code"]
    )


def limit_memory() -> None:
    """Let allocations far beyond what is promised fail in this process, rather than bring the machine down."""
    import resource

    size = status("VmSize") + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
