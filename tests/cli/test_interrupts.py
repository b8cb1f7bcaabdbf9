"""What a signal raised ends the program as an interruption, whatever a library made of it on the way."""

from __future__ import annotations

import os
import signal

import pytest

from openreadout import registry
from openreadout.cli import run
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
