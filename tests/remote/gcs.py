"""Google's object store on loopback: as much of its JSON API as listing and reading take, with faults on demand."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

OBJECT = re.compile(r"(?:/download)?/storage/v1/b/([^/]+)/o/([^/]+)$")
LIST = re.compile(r"/storage/v1/b/([^/]+)/o/?$")
RANGE = re.compile(r"bytes=(\d*)-(\d*)$")


class Bucket(ThreadingHTTPServer):
    """Objects by name in one bucket. `fault(name, turn)` may name what goes wrong with a request for one."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, name: str) -> None:
        self.name = name
        self.objects: dict[str, bytes] = {}
        self.listed = True
        self.page = 1000
        self.fault: Callable[[str, int], str | None] = lambda name, turn: None
        self.requests: list[str] = []
        self.logins: set[str | None] = set()
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request, client_address) -> None:
        """A client that hangs up is nothing to tell of."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Bucket

    def log_message(self, *arguments) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        listing, found = LIST.fullmatch(parts.path), OBJECT.fullmatch(parts.path)
        if listing and unquote(listing[1]) == self.server.name:
            return self._list(query)
        if found and unquote(found[1]) == self.server.name:
            return self._object(unquote(found[2]), media=query.get("alt") == "media")
        return self._error(404, "Not Found")

    def _list(self, query: dict[str, str]) -> None:
        if not self.server.listed:
            return self._error(401, "Anonymous caller does not have storage.objects.list access")
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        start = query.get("pageToken", "")
        entries: dict[str, str] = {}
        for name in sorted(self.server.objects):
            if name.startswith(prefix):
                head, cut, _ = name[len(prefix) :].partition(delimiter or "\0")
                entries[prefix + head + cut if cut else name] = "prefix" if cut else "item"
        names = [name for name in entries if name > start]
        most = min(self.server.page, int(query.get("maxResults", 1000)))
        page, rest = names[:most], names[most:]
        said = {
            "kind": "storage#objects",
            "items": [self._about(name) for name in page if entries[name] == "item"],
            "prefixes": [name for name in page if entries[name] == "prefix"],
        }
        if rest:
            said["nextPageToken"] = page[-1]
        return self._send(200, json.dumps(said).encode())

    def _about(self, name: str) -> dict[str, str]:
        size = str(len(self.server.objects[name]))
        return {"kind": "storage#object", "bucket": self.server.name, "name": name, "size": size}

    def _object(self, name: str, *, media: bool) -> None:
        with self.server.lock:
            turn = self.server.requests.count(name)
            self.server.requests.append(name)
            self.server.logins.add(self.headers.get("Authorization"))
        fault = self.server.fault(name, turn)
        if fault is not None and fault.isdigit():
            return self._error(int(fault), "no")
        if name not in self.server.objects:
            return self._error(404, f"No such object: {self.server.name}/{name}")
        if not media:
            return self._send(200, json.dumps(self._about(name)).encode())
        data = self.server.objects[name]
        wanted = RANGE.match(self.headers.get("Range", ""))
        if not wanted:
            return self._send(200, data, cut=fault == "cut")
        total = len(data)
        if wanted[1]:
            start, stop = int(wanted[1]), min(int(wanted[2] or total) + 1, total)
        else:
            start, stop = max(0, total - int(wanted[2])), total
        if start >= total:
            return self._send(416, b"", {"Content-Range": f"bytes */{total}"})
        span = {"Content-Range": f"bytes {start}-{stop - 1}/{total}"}
        return self._send(206, data[start:stop], span, cut=fault == "cut")

    def _error(self, status: int, message: str) -> None:
        self._send(status, json.dumps({"error": {"code": status, "message": message}}).encode())

    def _send(self, status: int, data: bytes, headers=None, *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", "CJjl")
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True


@contextmanager
def bucket(name: str):
    """A bucket that is there for as long as the block."""
    server = Bucket(name)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
