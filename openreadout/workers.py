"""One pool of threads for decoding and encoding, with a bound on what is in flight.

Every codec call releases the interpreter lock for a chunk's worth of work and is told to use one thread itself, so a
pool of as many threads as there are processors keeps them all busy.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from openreadout.system import usable_cpus

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """A pool of threads; with one thread everything runs in the caller.

    Parameters
    ----------
    threads : int, optional
        By default as many as the processors that this process may use.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or usable_cpus()
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="openreadout")
            return self._pool

    def map(
        self, work: Callable[[Item], Result], items: Iterable[Item], *, ahead: int | None = None
    ) -> Generator[Result, None, None]:
        """Apply `work` to each item and give the results in order.

        At most `ahead` items (by default one more than there are threads) are in work or waiting to be taken, so
        memory stays flat whatever the number of items. The first error is raised; nothing new is started after it.
        """
        if self.threads == 1:
            yield from map(work, items)
            return
        pool = self._executor()
        waiting: deque[Future[Result]] = deque()
        limit = ahead or self.threads + 1
        source = iter(items)
        try:
            for item in source:
                waiting.append(pool.submit(work, item))
                if len(waiting) >= limit:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            for future in waiting:
                if not future.cancelled():
                    future.exception()

    def close(self) -> None:
        """Wait for what is running and end the threads; a later `map` starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
