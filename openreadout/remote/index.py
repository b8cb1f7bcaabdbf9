"""The names on a page with which a web server lists a folder.

Only pages that are such a list by their title are believed (nginx, Apache, lighttpd and Python's own server): a page
that merely has links would make a folder of them.

The page is searched with expressions that take a time in proportion to its length, whatever it holds; `html.parser`
takes the square of it for some pages, and raises errors of several kinds.
"""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import unquote

_TITLES = ("index of ", "directory listing for ")
_TITLE = re.compile(r"<title\b[^<>]{0,1000}>([^<]{0,1000})", re.IGNORECASE)
_LINK = re.compile(r"<a\s([^<>]{0,10000})>", re.IGNORECASE)
_TARGET = re.compile(
    r"""(?:^|\s)href\s{0,9}=\s{0,9}(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE
)
_HIDDEN = ((re.compile("<!--"), "-->"), (re.compile(r"<script\b", re.IGNORECASE), "</script"))
"""What begins and ends parts of a page that are not shown."""


def index_names(page: bytes) -> tuple[frozenset[str], frozenset[str]] | None:
    """Folders and files that a page lists, or None for a page that is no list of a folder."""
    text = page.decode("utf-8", "replace")
    for start, end in _HIDDEN:
        first, *others = start.split(text)
        text = first + "".join(other.partition(end)[2] for other in others)
    title = _TITLE.search(text)
    if title is None or not unescape(title[1]).strip().lower().startswith(_TITLES):
        return None
    folders: set[str] = set()
    files: set[str] = set()
    for attributes in _LINK.findall(text):
        target = _TARGET.search(attributes)
        if target is None:
            continue
        name = unquote(unescape(next(filter(None, target.groups()), "")).removeprefix("./"))
        kept = folders if name.endswith("/") else files
        name = name.removesuffix("/")
        if name and name not in (".", "..") and not set(name) & set("/\\?#:\0"):
            kept.add(name)
    return frozenset(folders), frozenset(files)
