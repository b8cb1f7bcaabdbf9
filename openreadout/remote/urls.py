"""Addresses: what is one, and how names are put behind it or taken off. Plain text work, which costs no import."""

from __future__ import annotations

import os

SCHEMES = ("http", "https", "s3", "gs")


def is_url(path: str) -> bool:
    """Whether an input is an address that is read over the network."""
    scheme, colon, rest = path.partition("://")
    return bool(colon) and scheme.lower() in SCHEMES and bool(rest)


def scheme_of(url: str) -> str:
    """The scheme in lower case."""
    return url.partition("://")[0].lower()


def split(url: str) -> tuple[str, str]:
    """The address without what follows a `?`, and that with the `?`; keys of object stores may hold question marks.

    A slash at the end and a fragment of a web address are dropped.
    """
    if scheme_of(url) not in ("http", "https"):
        return url.rstrip("/"), ""
    base, mark, query = url.partition("#")[0].partition("?")
    return base.rstrip("/"), f"{mark}{query}" if query else ""


def child(url: str, key: str) -> str:
    """The address of a key below another address; what follows a `?` (a signature, say) goes with it."""
    base, query = split(url)
    if not key:
        return base + query
    if scheme_of(url) in ("http", "https"):
        from urllib.parse import quote

        key = quote(key, safe="/~!$'()*+,;=:@")
    return f"{base}/{key}{query}"


def parent(url: str) -> str:
    """The address of the folder that something lies in."""
    base, query = split(url)
    start = base.index("://") + 3
    slash = base.rfind("/", start)
    return (base[:slash] if slash > 0 else base) + query


def name_of(url: str) -> str:
    """The last part of an address, as people write it."""
    base, _ = split(url)
    name = base[base.index("://") + 3 :].rpartition("/")[2]
    if "%" in name and scheme_of(url) in ("http", "https"):
        from urllib.parse import unquote

        name = unquote(name)
    return name


def absolute(place: str) -> str:
    """A path as another process finds it; an address stays as it is."""
    return place if is_url(place) else os.path.abspath(place)


def last_name(place: str) -> str:
    """The last part of a path or an address."""
    return name_of(place) if is_url(place) else os.path.basename(os.path.abspath(place))


def shown(url: str) -> str:
    """The address for messages: without what follows a `?`, which may be a key to it."""
    base, query = split(url)
    at = base.index("://") + 3
    host, slash, rest = base[at:].partition("/")
    host = host.rpartition("@")[2]
    return f"{base[:at]}{host}{slash}{rest}{'?…' if query else ''}"
