"""The names on a page with which a web server lists a folder.

Only pages that are such a list by their title are believed (nginx, Apache, lighttpd and Python's own server): a page
that merely has links would make a folder of them.
"""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import unquote

_TITLES = ("index of ", "directory listing for ")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.links: list[str] = []
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = tag == "title"
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False

    def handle_data(self, data: str) -> None:
        if self._in_title and len(self.title) < 1000:
            self.title += data


def index_names(page: bytes) -> tuple[frozenset[str], frozenset[str]] | None:
    """Folders and files that a page lists, or None for a page that is no list of a folder."""
    parser = _Page()
    parser.feed(page.decode("utf-8", "replace"))
    if not parser.title.strip().lower().startswith(_TITLES):
        return None
    folders: set[str] = set()
    files: set[str] = set()
    for link in parser.links:
        name = unquote(link.removeprefix("./"))
        kept = folders if name.endswith("/") else files
        name = name.removesuffix("/")
        if name and name not in (".", "..") and not set(name) & set("/\\?#:\0"):
            kept.add(name)
    return frozenset(folders), frozenset(files)
