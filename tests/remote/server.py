"""A web server on loopback that gives files by byte ranges and fails on demand; and how it is started."""

from __future__ import annotations

import html
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

RANGE = re.compile(r"bytes=(\d*)-(\d*)$")


class Server(ThreadingHTTPServer):
    """Gives the files of a folder. `fault(path, turn)` may name what goes wrong with a request, counted from 0.

    `suffix` is what it makes of a range without a beginning: `understood`, `whole` file, `first` bytes, or a status.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        folder: Path,
        *,
        index: bool = False,
        ranges: bool = True,
        suffix: str = "understood",
    ) -> None:
        self.folder = folder
        self.suffix = suffix
        self.index = index
        self.ranges = ranges
        self.fault: Callable[[str, int], str | None] = lambda path, turn: None
        self.requests: list[tuple[str, str]] = []
        self.busy = self.most_busy = 0
        self.lock = threading.Lock()
        self.ended = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address) -> None:
        """A client that hangs up is nothing to tell of."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *arguments) -> None:
        pass

    def do_HEAD(self) -> None:
        self._serve(head=True)

    def do_GET(self) -> None:
        self._serve(head=False)

    def _serve(self, *, head: bool) -> None:
        server = self.server
        path = unquote(self.path.partition("?")[0])
        with server.lock:
            turn = sum(seen == path for _, seen in server.requests)
            server.requests.append((self.command, path))
            server.busy += 1
            server.most_busy = max(server.most_busy, server.busy)
        try:
            self._answer(path, head, server.fault(path, turn))
        finally:
            with server.lock:
                server.busy -= 1

    def _answer(self, path: str, head: bool, fault: str | None) -> None:
        if fault is not None and fault.isdigit():
            return self._send(int(fault), b"no", head)
        if fault == "hang up":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return None
        if fault is not None and fault.startswith("to "):
            self.send_response(302)
            self.send_header("Location", fault[3:])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None
        if fault == "slow":
            time.sleep(1.5)
        if fault == "silent":
            self.server.ended.wait(60)
        file = self.server.folder / path.strip("/")
        if fault == "page":
            page = b"<html><title>welcome</title><a href='0/'>0</a></html>"
            return self._send(200, page, head, {"Content-Type": "text/html"})
        if file.is_dir() and self.server.index and path.endswith("/"):
            return self._send(200, self._page(file), head, {"Content-Type": "text/html"})
        if not file.is_file():
            return self._send(404, b"not found", head)
        return self._file(file.read_bytes(), head, fault)

    def _file(self, data: bytes, head: bool, fault: str | None) -> None:
        headers = {"ETag": f'"{hash(data):x}"', "Content-Type": "application/octet-stream"}
        if fault == "new tag":
            headers["ETag"] = '"other"'
        wanted = RANGE.match(self.headers.get("Range", ""))
        match = self.headers.get("If-Match")
        if match is not None and match != headers["ETag"]:
            return self._send(412, b"changed", head)
        status, part, total = 200, data, len(data)
        suffix = self.server.suffix if wanted and not wanted[1] else ""
        # some refuse only what is longer than the value
        if suffix.isdigit() and (suffix != "416" or int(wanted[2]) > total):
            return self._send(int(suffix), b"no", head)
        if wanted and self.server.ranges and fault != "whole" and suffix != "whole":
            start, stop = _span(wanted, total, suffix)
            if start >= total:
                return self._send(416, b"", head, {"Content-Range": f"bytes */{total}"})
            if fault == "other range":
                start, stop = start + 1, stop + 1
            status, part = 206, data[start:stop]
            told = {"no total": "*", "other total": total + 1}.get(fault, total)
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{told}"
        if fault == "cut":
            return self._send(status, part, head, headers, cut=True)
        if fault == "endless":
            return self._endless()
        if fault == "packed":
            headers["Content-Encoding"] = "gzip"
        return self._send(status, part, head, headers)

    def _endless(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        piece = bytes(1 << 20)
        for _ in range(100_000):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def _page(self, folder: Path) -> bytes:
        names = sorted(
            entry.name + "/" * entry.is_dir()
            for entry in folder.iterdir()
            if not entry.name.startswith(".")
        )
        links = "".join(f'<a href="{html.escape(n)}">{html.escape(n)}</a>\n' for n in names)
        return f'<html><title>Index of /</title><a href="../">../</a>\n{links}</html>'.encode()

    def _send(
        self, status: int, data: bytes, head: bool, headers=None, *, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if head:
            return
        self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True


def _span(wanted: re.Match[str], total: int, suffix: str) -> tuple[int, int]:
    """The bytes that a `Range` asks for, as a server that treats suffixes as it is told takes them."""
    if suffix in ("understood", "416"):
        return max(0, total - int(wanted[2])), total
    return int(wanted[1] or 0), min(int(wanted[2] or total) + 1, total)


@contextmanager
def serving(folder: Path, **how):
    """A server that is there for as long as the block."""
    server = Server(folder, **how)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
