"""The pool: order, bound, errors."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from openreadout.errors import StorageError
from openreadout.workers import Workers


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_results_come_in_order(threads):
    def work(n):
        time.sleep(0.001 * (n % 3))
        return n * n

    with Workers(threads) as workers:
        assert list(workers.map(work, range(50))) == [n * n for n in range(50)]


@pytest.mark.parametrize("threads", [1, 3])
def test_no_more_than_ahead_items_are_taken(threads):
    taken = []

    def items():
        for n in range(100):
            taken.append(n)
            yield n

    with Workers(threads) as workers:
        results = workers.map(lambda n: n, items(), ahead=5)
        for done, _ in enumerate(results):
            assert len(taken) <= done + 6


def test_all_threads_work_at_once():
    barrier = threading.Barrier(4, timeout=10)
    with Workers(4) as workers:
        assert list(workers.map(lambda n: barrier.wait() >= 0 and n, range(4))) == [0, 1, 2, 3]


@pytest.mark.parametrize("threads", [1, 4])
def test_first_error_is_raised_and_nothing_new_is_started(threads):
    started = []

    def work(n):
        started.append(n)
        if n == 3:
            raise ValueError("three")
        return n

    with Workers(threads) as workers:
        results = workers.map(work, range(1000))
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="three"):
            next(results)
    assert len(started) < 20


def test_leaving_early_stops_the_work():
    done = []
    with Workers(2) as workers:
        for n in workers.map(lambda n: done.append(n) or n, range(1000)):
            if n == 5:
                break
    assert len(done) < 20


def test_threads_end_on_close():
    before = threading.active_count()
    workers = Workers(3)
    assert list(workers.map(str, range(5))) == list("01234")
    workers.close()
    assert threading.active_count() == before


def test_a_closed_pool_can_be_used_again():
    workers = Workers(2)
    for _ in range(2):
        assert list(workers.map(abs, [-1, -2])) == [1, 2]
        workers.close()


INTERRUPTED = """
import os, random, signal, sys, threading, time
from openreadout.errors import StorageError
from openreadout.workers import Workers

class Stop(BaseException):
    pass

def stop(*_):
    raise Stop

signal.signal(signal.SIGUSR1, stop)
chance = random.Random(int(sys.argv[1]))
for _ in range(60):
    delay = chance.random() * 0.02
    timer = threading.Thread(target=lambda: (time.sleep(delay), os.kill(os.getpid(), signal.SIGUSR1)))
    try:
        timer.start()
        with Workers(3) as workers:
            for _ in workers.map(lambda n: sum(range(n % 50)), range(100000), ahead=4):
                pass
    except Stop:
        pass
    try:
        timer.join()
    except Stop:
        pass
print("done")
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_exception_of_a_signal_at_any_moment_leaves_no_thread_waiting():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, "5"], capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.stdout == "done\n", done.stderr


def test_a_system_that_starts_no_more_threads_is_an_error_of_ours(monkeypatch):
    start, started = threading.Thread.start, []

    def refused(thread):
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    with Workers(4) as workers:
        with pytest.raises(StorageError, match="no more threads") as caught:
            list(workers.map(lambda n: n, range(9)))
        assert "--threads" in caught.value.hint
        assert list(Workers(1).map(lambda n: n, range(9))) == list(range(9))
    assert not any(thread.is_alive() for thread in started)
