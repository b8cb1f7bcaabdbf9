"""Paths that tests need, and the profiles of hypothesis."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]
pytest.register_assert_rewrite("openreadout.testing")

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=20, **_COMMON)
settings.register_profile("ci", max_examples=50, derandomize=True, **_COMMON)
settings.register_profile("long", max_examples=2000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_configure() -> None:
    """Take signals as a shell in a terminal has them, so that the processes which tests start can be interrupted.

    A shell lets its background jobs ignore SIGINT, and whatever they start inherits that.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) == signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of small data sets that other libraries wrote."""
    return ROOT / "fixtures"


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The collection of real files beside the checkout; tests that use it are marked `corpus`."""
    folder = ROOT.parent / "shared" / "corpus"
    if not (folder / "manifest.json").is_file():
        pytest.skip(f"the corpus is not beside the checkout ({folder})")
    return folder


@pytest.fixture(scope="session")
def openreadout():
    """Run the command in a process of its own, from the checkout unless told otherwise."""

    def run(*arguments, cwd=ROOT, env=None, **options):
        command = [sys.executable, "-m", "openreadout", *map(str, arguments)]
        environment = (
            os.environ | {"COLUMNS": "120", "NO_COLOR": "1", "PYTHONUTF8": "1"} | (env or {})
        )
        options = {"capture_output": True, "text": True, "timeout": 120, "check": False} | options
        return subprocess.run(command, cwd=cwd, env=environment, **options)

    return run
