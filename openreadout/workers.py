"""One pool of threads for decoding and encoding, with a bound on what is in flight.

Every codec call releases the interpreter lock for a chunk's worth of work and is told to use one thread itself, so a
pool of as many threads as there are processors keeps them all busy.

The pool is made of what is whole at every moment: a signal's exception may be raised between any two steps of the main
thread, and the standard executor's conditions can then stay locked for ever, with a thread waiting for them.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

from openreadout.ending import raise_if_ended
from openreadout.errors import no_more_threads
from openreadout.system import usable_cpus

Item = TypeVar("Item")
Result = TypeVar("Result")
WAKE_SECONDS = 0.2
"""How long a wait lasts before the state itself is looked at again."""


class _Task(Generic[Item, Result]):
    """One call, its result or error, and whether it is done."""

    __slots__ = ("_finished", "cancelled", "done", "error", "item", "started", "value", "work")

    def __init__(self, work: Callable[[Item], Result], item: Item) -> None:
        self.work = work
        self.item = item
        self.value: Result
        self.error: BaseException | None = None
        self.started = self.cancelled = self.done = False
        self._finished = threading.Lock()
        self._finished.acquire()

    def run(self) -> None:
        self.started = True
        _HERE.task = self
        try:
            if not self.cancelled:
                self.value = self.work(self.item)
        except BaseException as error:
            self.error = error
        finally:
            _HERE.task = None
            self.done = True
            self._finished.release()

    def wait(self) -> None:
        while not self.done:
            self._finished.acquire(timeout=WAKE_SECONDS)

    def cancel(self) -> None:
        """Never start it, or wait for its end."""
        self.cancelled = True
        if self.started:
            self.wait()

    def result(self) -> Result:
        if self.error is not None:
            raise self.error
        return self.value


class _Here(threading.local):
    """The task that this thread is at work on."""

    task: _Task[Any, Any] | None = None


_HERE = _Here()


def given_up() -> bool:
    """Whether the task of this thread has been cancelled, so that what waits for a server need not wait longer."""
    task = _HERE.task
    return task is not None and task.cancelled


class Workers:
    """A pool of threads; with one thread everything runs in the caller.

    Parameters
    ----------
    threads : int, optional
        By default as many as the processors that this process may use.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or usable_cpus()
        self._tasks: queue.SimpleQueue[_Task[Any, Any] | None] = queue.SimpleQueue()
        self._running: list[threading.Thread] = []
        self._lock = threading.Lock()

    def _start(self) -> queue.SimpleQueue[_Task[Any, Any] | None]:
        with self._lock:
            while len(self._running) < self.threads:
                name = f"openreadout-{len(self._running)}"
                thread = threading.Thread(
                    target=_serve, args=(self._tasks,), name=name, daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    raise no_more_threads() from error
                self._running.append(thread)
            return self._tasks

    def map(
        self, work: Callable[[Item], Result], items: Iterable[Item], *, ahead: int | None = None
    ) -> Generator[Result, None, None]:
        """Apply `work` to each item and give the results in order.

        At most `ahead` items (by default one more than there are threads) are in work or waiting to be taken, so
        memory stays flat whatever the number of items. The first error is raised; nothing new is started after it.

        Raises
        ------
        StorageError
            The system lets this process start no more threads.
        """
        if self.threads == 1:
            yield from map(work, items)
            return
        tasks = self._start()
        waiting: deque[_Task[Item, Result]] = deque()
        limit = ahead or self.threads + 1
        try:
            for item in items:
                waiting.append(_Task(work, item))
                tasks.put(waiting[-1])
                if len(waiting) >= limit:
                    yield _first(waiting)
            while waiting:
                yield _first(waiting)
        finally:
            for task in waiting:
                task.cancelled = True
            for task in waiting:
                task.cancel()

    def close(self) -> None:
        """Wait for what is running and end the threads; a later `map` starts new ones."""
        with self._lock:
            running, self._running = self._running, []
            tasks, self._tasks = self._tasks, queue.SimpleQueue()
        tasks.put(None)
        for thread in running:
            while thread.is_alive():
                thread.join(WAKE_SECONDS)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _serve(tasks: queue.SimpleQueue[_Task[Any, Any] | None]) -> None:
    """Run tasks until the pool is closed; the word of that is passed on to the next thread."""
    while True:
        task = tasks.get()
        if task is None:
            tasks.put(None)
            return
        task.run()
        del task  # its result belongs to whoever asked for it


def _first(waiting: deque[_Task[Item, Result]]) -> Result:
    """The result of the task that was begun first, which stays listed until it is done."""
    raise_if_ended()  # a library may have swallowed the exception
    waiting[0].wait()
    return waiting.popleft().result()
