"""What a signal raised ends the program as an interruption, whatever a library made of it on the way."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from openreadout import registry
from openreadout.cli import run
from openreadout.ending import PATIENCE_SECONDS
from openreadout.errors import CorruptDataError, UnsupportedFeatureError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(autouse=True)
def handlers():
    """The handlers of the test run itself are put back."""
    before = {number: signal.getsignal(number) for number in CODES}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def sent(number, raised):
    """A reader that is interrupted, and a library that gives out another error for it."""

    def open_dataset(*_, **__):
        try:
            os.kill(os.getpid(), number)
            for _ in range(10**6):
                pass
        except KeyboardInterrupt:
            if raised is None:
                raise
        raise raised

    return open_dataset


@pytest.mark.parametrize("form", [[], ["--json"], ["--jsonl"], ["--debug"]], ids=str)
@pytest.mark.parametrize(
    "raised",
    [None, ImportError("cut short"), SystemError("odd"), CorruptDataError("odd"), UnsupportedFeatureError("odd")],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_an_interruption_ends_as_one(number, raised, form, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(registry, "open_dataset", sent(number, raised))
    assert run(["info", str(tmp_path), *form]) == CODES[number]
    printed = capsys.readouterr()
    assert "odd" not in printed.out + printed.err
    assert "fault of this program" not in printed.out + printed.err


@pytest.mark.parametrize("raised", [None, ImportError("cut short")], ids=repr)
def test_what_was_kept_is_told_once(raised, tmp_path, monkeypatch, capsys):
    def open_dataset(*_, **__):
        try:
            sent(signal.SIGINT, None)()
        except KeyboardInterrupt as error:
            error.kept = str(tmp_path)  # as `partial_output` does
            if raised is None:
                raise
            raise raised from error

    monkeypatch.setattr(registry, "open_dataset", open_dataset)
    assert run(["info", str(tmp_path)]) == 130
    assert capsys.readouterr().err.count("--resume") == 1


def test_an_error_without_a_signal_stays_an_error(tmp_path, monkeypatch):
    def open_dataset(*_, **__):
        raise ImportError("nobody interrupted")

    monkeypatch.setattr(registry, "open_dataset", sent(signal.SIGINT, ImportError("cut short")))
    assert run(["info", str(tmp_path)]) == 130
    monkeypatch.setattr(registry, "open_dataset", open_dataset)
    assert run(["info", str(tmp_path)]) == 1


def test_an_ignored_signal_stays_ignored(fixtures, capsys):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert run(["formats"]) == 0
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


class Dying:
    """Interrupted while it is taken away, when Python passes over whatever is raised."""

    def __init__(self, number):
        self.number = number

    def __del__(self):
        os.kill(os.getpid(), self.number)
        for _ in range(10**6):
            pass


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_an_interruption_that_python_throws_away_comes_again(number, tmp_path, monkeypatch, capsys):
    def open_dataset(*_, **__):
        Dying(number)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            time.sleep(0.01)

    monkeypatch.setattr(registry, "open_dataset", open_dataset)
    started = time.monotonic()
    assert run(["info", str(tmp_path)]) == CODES[number]
    assert time.monotonic() - started < 10
    assert "ignored" not in capsys.readouterr().err


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_an_interruption_that_a_library_swallows_ends_the_run_all_the_same(
    number, fixtures, monkeypatch, capsys
):
    real = registry.open_dataset
    opened = []

    def open_dataset(path, **options):
        with contextlib.suppress(BaseException):
            os.kill(os.getpid(), number)
            for _ in range(10**6):
                pass
        opened.append(path)
        return real(path, **options)

    monkeypatch.setattr(registry, "open_dataset", open_dataset)
    source = str(fixtures / "ome-tiff" / "pyramid" / "cells.ome.tiff")
    assert run(["info", source, source]) == CODES[number]
    assert opened == [source], "the second input is not begun"


def test_handlers_are_put_back(fixtures, capsys):
    before = [signal.getsignal(number) for number in CODES]
    hook = sys.unraisablehook
    assert run(["formats"]) == 0
    assert [signal.getsignal(number) for number in CODES] == before
    assert sys.unraisablehook is hook


LOADING = """
import os, sys
from openreadout.__main__ import main

class Finder:
    def find_spec(self, name, *_):
        if name == "click":
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Finder())
main()
"""


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_an_interruption_while_the_program_is_loaded_ends_it_without_a_word(number):
    done = subprocess.run(
        [sys.executable, "-c", LOADING.format(number=int(number))],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout, done.stderr) == (CODES[number], "", "")


STUCK = """
import time
from openreadout import registry

def open_dataset(*_, **__):
    try:
        print("begun", flush=True)
        time.sleep(60)
    finally:
        print("clearing away", flush=True)
        time.sleep(60)

registry.open_dataset = open_dataset
import sys
from openreadout.cli import main
main(["info", "x"])
"""


@pytest.mark.parametrize("number", CODES, ids=lambda number: number.name)
def test_a_second_signal_is_not_waited_for(number):
    with subprocess.Popen(
        [sys.executable, "-c", STUCK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as running:
        assert running.stdout.readline() == "begun\n"
        running.send_signal(number)
        assert running.stdout.readline() == "clearing away\n"
        running.send_signal(number)  # at once: taken for the first one
        time.sleep(PATIENCE_SECONDS + 0.2)
        assert running.poll() is None
        running.send_signal(number)
        assert running.wait(timeout=20) == CODES[number]
        assert running.stderr.read() == ""
