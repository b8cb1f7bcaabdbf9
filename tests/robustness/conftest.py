"""Runs the command in a process of its own with its time and memory measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Runs a command, and writes its wall time, processor time and largest resident set to a file.
MEASURE = textwrap.dedent(
    """
    import json, os, resource, subprocess, sys, time
    started = time.monotonic()
    code = subprocess.call(sys.argv[2:])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(sys.argv[1], "w") as file:
        json.dump([code, time.monotonic() - started, used.ru_utime + used.ru_stime, used.ru_maxrss << 10], file)
    """
)


@dataclass(frozen=True)
class Run:
    """What a measured command did; `cpu` is processor time, which other work on the machine does not change."""

    code: int
    out: str
    err: str
    wall: float
    cpu: float
    peak: int

    @property
    def data(self) -> Any:
        """The JSON document on stdout."""
        return json.loads(self.out)


@pytest.fixture
def measured(tmp_path_factory):
    """Run the command and measure it."""

    def run(*arguments, timeout=60, env=None, **options):
        note = tmp_path_factory.mktemp("measured") / "note.json"
        command = [sys.executable, "-c", MEASURE, str(note), sys.executable, "-m", "openreadout"]
        done = subprocess.run(
            [*command, *map(os.fspath, arguments)],
            cwd=ROOT,
            env=os.environ | {"NO_COLOR": "1"} | (env or {}),
            capture_output=True,
            timeout=timeout,
            check=False,
            **options,
        )
        code, wall, cpu, peak = json.loads(note.read_text(encoding="utf-8"))
        out, err = (
            stream.decode("utf-8", "backslashreplace") for stream in (done.stdout, done.stderr)
        )
        return Run(code, out, err, wall, cpu, peak)

    return run
