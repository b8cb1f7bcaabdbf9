"""A server that means harm: whatever it answers, the command ends soon, with an exit code."""

from __future__ import annotations

import gzip
import html
import resource
import socket
import sys
import threading
import time
import tracemalloc
from contextlib import contextmanager
from random import Random

import pytest

ZARR3 = "ome-zarr/v3-sharded/sharded.ome.zarr"
TIFF = "ome-tiff/pyramid/cells.ome.tiff"
N5 = "n5/z5py-viewer-pyramid/pyramid.n5"
ZIP = "ome-zarr/v3-zip/cells.ozx"
SECONDS = 20
BYTES = 300 << 20


@contextmanager
def answering(answer):
    """A server on loopback that sends, for each request's first line and headers, whatever bytes `answer` gives."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    ended = threading.Event()

    def serve(connection):
        with connection:
            connection.settimeout(5)
            try:
                head = b""
                while b"\r\n\r\n" not in head:
                    piece = connection.recv(65536)
                    if not piece:
                        return
                    head += piece
                for piece in answer(head.decode("latin-1")):
                    if ended.is_set():
                        return
                    connection.sendall(piece)
            except OSError:
                return  # the client has had enough

    def accept():
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR) if sys.platform == "linux" else None
        listener.close()
        thread.join(5)


@pytest.fixture
def held(command, monkeypatch):
    """Run `info` and `check` on an address; hold both to the promise, and give their codes."""

    from openreadout.remote import http

    monkeypatch.setattr(http, "SILENCE_SECONDS", 0.25)
    monkeypatch.setattr(http, "CONNECT_SECONDS", 0.25)
    monkeypatch.setattr(http, "LONGEST_WAIT_SECONDS", 0.05)  # whatever Retry-After asks for

    def call(url, commands=(("info",), ("check", "--planes"))):
        codes = []
        for words in commands:
            used = resource.getrusage(resource.RUSAGE_SELF)
            started = time.monotonic()
            tracemalloc.start()
            code, said, err = command(*words, "--json", url)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            after = resource.getrusage(resource.RUSAGE_SELF)
            assert code in (0, 3, 4, 5, 6), said
            assert "Traceback" not in err
            assert "Unclosed" not in err
            if not said["ok"]:
                assert said["error"]["exit_code"] == code
                assert "\x1b" not in err
            assert after.ru_utime - used.ru_utime < SECONDS
            assert time.monotonic() - started < 3 * SECONDS
            assert peak < BYTES
            codes.append(code)
        return codes

    return call


# -- answers drawn at random -----------------------------------------------------------------------

NUMBERS = (
    "0",
    "1",
    "-1",
    "7",
    "65535",
    "4294967296",
    "9" * 30,
    "1e9",
    "0x10",
    " 5",
    "٣",
    "",
    "NaN",
)
STATUS = (
    "200 OK", "206 Partial Content", "204 No Content", "205 Reset Content", "301 Moved", "302 Found", "303 See",
    "304 Not Modified", "307 To", "308 To", "400 Bad", "401 Who", "404 Not Found", "416 Range", "418 Tea", "500 Oh",
    "599 Odd", "999 No", "99 Low", "abc", "", "200", "-1 Less", "103 Early Hints",
)  # fmt: skip
PLACES = (
    "file:///etc/passwd", "//", "http://", "http://127.0.0.1:1/x", "http://[::1", "http://user:secret@127.0.0.1:1/",
    "javascript:alert(1)", "data:text/plain,x", "/" + "a" * 9000, "\t/x", "http://127.0.0.1:99999/", "ftp://127.0.0.1/",
    "gopher://127.0.0.1:70/", "?", "#", "http://\udcff/", "unix:/run/x", "/loop", "",
)  # fmt: skip
CODINGS = ("gzip", "deflate", "br", "zstd", "identity", "gzip, gzip", "x" * 500, "")


def headers(rng, data):
    """Header lines that contradict the data, the request or each other."""
    n = rng.choice(NUMBERS)
    lines = [
        f"Content-Length: {rng.choice((*NUMBERS, str(len(data)), str(len(data) + 9)))}",
        f"Content-Range: bytes {n}-{rng.choice(NUMBERS)}/{rng.choice((*NUMBERS, '*'))}",
        f"Content-Range: {rng.choice(('bits', 'bytes', ''))} {rng.choice(('*/5', '0-0/1', '5', '/', '0-/9'))}",
        f"Location: {rng.choice(PLACES)}",
        f"Content-Encoding: {rng.choice(CODINGS)}",
        f"Transfer-Encoding: {rng.choice(('chunked', 'gzip, chunked', 'identity', 'x'))}",
        f"ETag: {rng.choice((chr(34) * 3, 'W/x', 'x' * 7000, '', chr(27) + '[31m'))}",
        f"Content-Type: text/html; charset={rng.choice(('utf-7', 'x', 'rot13', 'zip'))}",
        f"Retry-After: {n}",
        f"Set-Cookie: {'a=b; ' * rng.randrange(1, 800)}",
        f"X-{'a' * rng.randrange(1, 9000)}: {'b' * rng.randrange(1, 9000)}",
        "Connection: keep-alive",
        ": no name",
        "no colon",
        " folded: line",
        "A\0B: \x1b[31mred",
    ]
    return rng.sample(lines, rng.randrange(1, 6))


def drawn(rng, data):
    """One answer: data of a fixture, or none, under headers that do not fit."""
    body = rng.choice(
        (data, data[: len(data) // 2], b"", data + b"more", gzip.compress(data), b"\0" * 9)
    )
    if rng.random() < 0.3:
        size = rng.choice((b"5", b"-5", b"ffffffffffffffffffff", b"0", b"zz", b""))
        body = size + b"\r\n" + body[:5] + b"\r\n0\r\n\r\n"
    text = "\r\n".join([f"HTTP/1.1 {rng.choice(STATUS)}", *headers(rng, data)])
    ends = rng.choice(("\r\n\r\n", "\n\n", "\r\n", ""))
    return text.encode("utf-8", "surrogateescape") + ends.encode() + body


@pytest.mark.parametrize("seed", range(24))
def test_answers_drawn_at_random_end_with_an_exit_code(seed, fixtures, held):
    """Some requests are answered as they should be, so that later ones get their turn."""
    rng = Random(seed)
    data = rng.choice((ZARR3, TIFF, N5, ZIP))
    lock = threading.Lock()
    spoiled = rng.choice((0.1, 0.3, 1.0))

    def answer(head):
        path = head.split(" ")[1].partition("?")[0].lstrip("/")
        file = fixtures / path
        found = file.read_bytes() if file.is_file() else b""
        with lock:
            if rng.random() < spoiled:
                return [drawn(rng, found)]
        if not file.is_file():
            return [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"]
        length = f"Content-Length: {len(found)}\r\nConnection: close\r\n\r\n".encode()
        return [b"HTTP/1.1 200 OK\r\n", length, b"" if head.startswith("HEAD") else found]

    with answering(answer) as url:
        held(f"{url}/{data}", (("info",),))


# -- each on purpose -------------------------------------------------------------------------------


def ok(*lines, body=b""):
    text = "\r\n".join(["HTTP/1.1 200 OK", *lines, "Connection: close"])
    return text.encode("latin-1") + b"\r\n\r\n" + body


def for_ever(first, piece):
    yield first
    for _ in range(1 << 20):
        yield piece


HARM = {
    "headers without end": lambda head: for_ever(b"HTTP/1.1 200 OK\r\n", b"A: b\r\n" * 1000),
    "a header line without end": lambda head: for_ever(b"HTTP/1.1 200 OK\r\nA: ", b"b" * 65536),
    "a status line without end": lambda head: for_ever(b"HTTP/1.1 200 ", b"O" * 65536),
    "early hints without end": lambda head: for_ever(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "a body without end": lambda head: for_ever(ok(), b"\0" * 65536),
    "chunks without end": lambda head: for_ever(
        ok("Transfer-Encoding: chunked"), b"10000\r\n" + b"\0" * 65536 + b"\r\n"
    ),
    "chunks of one byte": lambda head: [
        ok("Transfer-Encoding: chunked"),
        b"1\r\n \r\n" * 20_000 + b"0\r\n\r\n",
    ],
    "a chunk extension without end": lambda head: for_ever(
        ok("Transfer-Encoding: chunked") + b"5;", b"x" * 65536
    ),
    "a length beyond all bounds": lambda head: [ok(f"Content-Length: {10**18}", body=b"{}")],
    "a length of many digits": lambda head: [ok(f"Content-Length: {'9' * 5000}", body=b"{}")],
    "two lengths": lambda head: [ok("Content-Length: 2", "Content-Length: 7", body=b"{}")],
    "packed though nobody asked": lambda head: [
        ok("Content-Encoding: gzip", body=gzip.compress(b" " * (8 << 20)))
    ],
    "a line break in a place": lambda head: [
        b"HTTP/1.1 302 Found\r\nLocation: /x\rSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
    ],
    "no HTTP at all": lambda head: [b"SSH-2.0-OpenSSH_9.6\r\n"],
    "nothing": lambda head: [],
}


@pytest.mark.parametrize("name", HARM)
def test_harm_of_each_kind_is_left_soon(name, held):
    with answering(HARM[name]) as url:
        (code,) = held(f"{url}/{TIFF}", (("info",),))
    assert code != 0


def test_a_local_file_is_never_read_for_a_server(held, tmp_path, capsys):
    """Not by a redirect, and not by a name on a page."""
    secret = tmp_path / "secret.json"
    secret.write_text('{"zarr_format": 3, "openreadout-4711": 1}', encoding="utf-8")

    def answer(head):
        return [f"HTTP/1.1 302 Found\r\nLocation: {secret.as_uri()}\r\n\r\n".encode()]

    with answering(answer) as url:
        assert held(f"{url}/a.ome.zarr", (("info",),)) == [5]


# -- pages that list a folder ----------------------------------------------------------------------


def names(page):
    from openreadout.remote.index import index_names

    return index_names(page)


UNITS = (
    "<", "<!--", "<a ", "&#", '<a href="', "<a x=", "<![", "<!a ", "<?", "</a", "<a/", "<title>", "<script>",
    '<a href="x/">', '<a "', "<a '", "<![CDATA[", "<script></", "<a href=", "<a  href  =", "<title ", "-->",
)  # fmt: skip


@pytest.mark.parametrize("unit", UNITS)
def test_a_page_takes_a_time_in_proportion_to_its_length(unit):
    page = b"<title>Index of /</title>" + unit.encode() * ((1 << 20) // len(unit))
    started = time.process_time()
    folders, _ = names(page)
    assert time.process_time() - started < 5
    assert folders <= {"x"}


def test_names_of_a_page_are_those_that_are_shown():
    page = """<!DOCTYPE html><html><head><TITLE lang="en">Index of /data&#47;</TITLE>
      <!-- <a href="hidden/">no</a> --><script>var x = '<a href="script/">';</script></head>
      <A HREF='zarr.json'>doc</A> <a class="b" href="c/">c</a> <a href=plain.txt>p</a>
      <a href="./0/">0</a> <a href="%C3%A9%20x/">é x</a> <a href="R&amp;D/">R&amp;D</a> <a href="../">up</a>
      <a data-href="other/" href="real/">r</a> <a href="/root/">root</a> <a href="?C=N">sort</a> <a name="x">none</a>
      <a href="http://elsewhere/">e</a> <area href="area/"> <a href="">empty</a> <a href="%00/">nul</a></html>"""
    assert names(page.encode()) == (
        {"c", "0", "é x", "R&D", "real"},
        {"zarr.json", "plain.txt"},
    )
    assert names(b'<title>Welcome</title><a href="0/">0</a>') is None
    assert names(b'<a href="0/">0</a>') is None


@pytest.mark.parametrize("seed", range(30))
def test_pages_as_servers_write_them_read_as_by_an_html_parser(seed):
    from html.parser import HTMLParser

    rng = Random(seed)
    made = ["".join(rng.choices("aé&<>\"' ;=x0-", k=rng.randrange(1, 9))) for _ in range(30)]
    page = "<title>Index of /</title>" + "".join(
        f'<a {rng.choice(("", "class=n "))}href="{html.escape(name)}/">{html.escape(name)}</a>'
        for name in made
    )

    class Links(HTMLParser):
        def __init__(self):
            super().__init__()
            self.found = set()

        def handle_starttag(self, tag, attrs):
            self.found.add(dict(attrs)["href"].removesuffix("/")) if tag == "a" else None

    reference = Links()
    reference.feed(page)
    assert names(page.encode()) == (reference.found, frozenset())
