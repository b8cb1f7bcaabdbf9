"""moto's S3 server on loopback, told what to do at a request; and the program in processes that can be killed."""

from __future__ import annotations

import importlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

MODULES = (
    *("s3fs", "zarr", "openreadout.cli.export", "openreadout.operations.export"),
    *("openreadout.operations.remote_target", "openreadout_ome_zarr_writer.bucket"),
)
"""What an export loads."""
REFUSED = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


class Request(NamedTuple):
    """A method and what it is about: bucket and key, and what follows the `?`."""

    method: str
    path: str
    query: str = ""


class Door:
    """What every request to the server passes: noted, and met by what a test sets.

    `before` is called with a request before the server sees it; when it gives True the request is refused. `after` is
    called when the server has done what it asks for, before the answer goes out; when it gives True the answer is lost.
    """

    def __init__(self, app) -> None:
        self._app = app
        self.requests: list[Request] = []
        self.open()

    def open(self) -> None:
        self.before: Callable[[Request], bool | None] = lambda request: None
        self.after: Callable[[Request], bool | None] = lambda request: None

    def puts(self, prefix: str, since: int = 0) -> list[str]:
        """Keys below a prefix that were written, by whole objects or in parts."""
        found = []
        for method, path, query in self.requests[since:]:
            whole = method == "PUT" and "partNumber" not in query
            if path.startswith(prefix) and (whole or (method == "POST" and "uploadId" in query)):
                found.append(path.removeprefix(prefix))
        return found

    def __call__(self, environ, start):
        request = Request(
            environ["REQUEST_METHOD"],
            environ["PATH_INFO"].lstrip("/"),
            environ.get("QUERY_STRING", ""),
        )
        self.requests.append(request)
        length = [("Content-Length", str(len(REFUSED)))]
        if self.before(request):
            start("403 Forbidden", length)
            return [REFUSED]
        told = []
        answer = list(self._app(environ, lambda *more: told.append(more)))
        if self.after(request):
            start("503 Service Unavailable", length)
            return [REFUSED]
        start(*told[-1])
        return answer


@contextmanager
def moto_server():
    """The door of a server, and its address."""
    from moto.moto_server import threaded_moto_server as moto

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    doors = []

    class Server(moto.ThreadedMotoServer):
        def _server_entry(self) -> None:
            make = moto.make_server

            def behind_door(host, port, app, *more, **options):
                doors.append(Door(app))
                return make(host, port, doors[0], *more, **options)

            moto.make_server = behind_door
            try:
                super()._server_entry()
            finally:
                moto.make_server = make

    server = Server(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield doors[0], f"http://{host}:{port}"
    server.stop()


class Running:
    """One run of the program in a process of its own."""

    def __init__(self, forks: subprocess.Popen, said: Path, arguments, settings) -> None:
        self._forks = forks
        self._said = said
        order = {"arguments": [str(a) for a in arguments], "said": str(said), **settings}
        forks.stdin.write(json.dumps(order) + "\n")
        forks.stdin.flush()
        self.pid = int(forks.stdout.readline())
        self.gone = threading.Event()

    def wait(self) -> tuple[int, str]:
        """Its exit code and what it said."""
        code = int(self._forks.stdout.readline())
        self.gone.set()
        return code, self._said.read_text()


@contextmanager
def forking():
    """A process that has imported everything, whose forks run the program one at a time."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, __file__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=root, **pipes) as forks:
        yield forks
        forks.stdin.close()
        assert forks.wait(timeout=30) == 0


def _run(order) -> int:
    import signal

    from openreadout.cli import run
    from openreadout.ending import leave_at_once, on_signal
    from openreadout.operations import remote_journal

    os.environ.update(order["environment"])
    remote_journal.NOTE_SECONDS = order["note_seconds"]
    fd = os.open(order["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    on_signal(leave_at_once)
    return run(order["arguments"])


def main() -> None:
    for name in MODULES:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                code = _run(json.loads(line))
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
