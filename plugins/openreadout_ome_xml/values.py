"""Values of attributes as the 2016-06 schema takes them: kept where they are valid, else put right or refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import cache

from openreadout.units import unit_name
from openreadout_ome_xml.elements import number
from openreadout_ome_xml.schema import KINDS, LISTS, UNITS, WORDS

_FLOAT = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?|-?INF|NaN", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,19}(?:\.0*)?", re.ASCII)
_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|[+-](?:0\d|1[0-3]):[0-5]\d)?", re.ASCII
)
_UUID = re.compile(r"(?:urn:uuid:)?([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
_LSID = re.compile(r"urn:lsid:(?:[\w.-]+\.[\w.-]+):([A-Za-z]+):\S+", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_LONGEST_NUMBER = 400
_INFINITE = {
    "infinity": "INF", "+infinity": "INF", "inf": "INF", "-infinity": "-INF", "-inf": "-INF", "nan": "NaN",
}  # fmt: skip
_OTHER_WORDS = {
    "LaserMedium": {"argon": "Ar", "krypton": "Kr", "xenon": "Xe", "nitrogen": "N", "e-": "EMinus"},
    "ArcType": {"xenon": "Xe", "mercury": "Hg"},
    "AcquisitionMode": dict.fromkeys(
        ("laserscanningconfocal", "laserscanningmicroscopy"), "LaserScanningConfocalMicroscopy"
    ),
    "ExperimentTypes": {
        "4-d+": "FourDPlus", "frap": "Photobleaching", "photoablation": "Photobleaching",
    },
    "FontFamily": {
        "arial": "sans-serif", "helvetica": "sans-serif", "courier": "monospace", "timesnewroman": "serif",
    },
    "FontStyle": {"regular": "Normal"},
    "PixelType": {"int64": "double", "uint64": "double"},
}  # fmt: skip
"""Words of earlier schemas that the 2016-06 enumerations call otherwise."""


def fit(kind: str, text: str) -> str | None:
    """A value of one of the types of `schema`; None when it has no valid form.

    Parameters
    ----------
    kind : str
        A type: a simple one, an enumeration, or a kind of identifier.
    text : str
        As the document has it.
    """
    if kind == "string":
        return text
    if kind in WORDS:
        return _words(kind, text)
    if kind in KINDS:
        return identifier(kind, text)
    return _SIMPLE[kind](text.strip())


def identifier(kind: str, text: str) -> str | None:
    """An identifier of a kind, `Kind:...` or an LSID; one text always gives the same, so that references hold."""
    word = "_".join(text.split())
    if not word:
        return None
    lsid = _LSID.fullmatch(word)
    if lsid is not None and (kind in ("ROI", lsid.group(1))):
        return word
    if kind == "ROI" and word.partition(":")[0] and word.partition(":")[2]:
        return word
    prefix = f"{kind}:"
    return word if word.startswith(prefix) and word != prefix else prefix + word


def unit(quantity: str, text: str) -> str | None:
    """The symbol of a unit; None when the schema has none for it."""
    word = text.strip().translate({0x3BC: "µ", 0x212B: "Å"})
    if word in UNITS[quantity]:
        return word
    if quantity not in ("length", "time"):
        return None
    from openreadout_ome_xml.render import SYMBOLS

    symbol = SYMBOLS.get(unit_name(word) or "")
    return symbol if symbol in UNITS[quantity] else None


def _words(kind: str, text: str) -> str | None:
    words = WORDS[kind]
    if kind in LISTS:
        parts = [text] if _word(kind, text) not in (None, "Other") else text.split()
        found = [word for part in parts if (word := _word(kind, part)) is not None]
        return " ".join(found) or None
    return text if text in words else _word(kind, text)


def _word(kind: str, text: str) -> str | None:
    word = text.strip().lower()
    if not word:
        return None
    if kind == "Marker":
        return "Arrow"
    plain = re.sub(r"[^a-z0-9]", "", word)
    others = _OTHER_WORDS.get(kind, {})
    found = _plain_words(kind).get(plain) or others.get(word) or others.get(plain)
    return found or ("Other" if "Other" in WORDS[kind] else None)


@cache
def _plain_words(kind: str) -> dict[str, str]:
    return {re.sub(r"[^a-z0-9]", "", word.lower()): word for word in WORDS[kind]}


def _float(text: str) -> str | None:
    if len(text) > _LONGEST_NUMBER:
        return None
    if _FLOAT.fullmatch(text):
        return text
    if text.lower() in _INFINITE:
        return _INFINITE[text.lower()]
    value = number(text)
    return None if value is None or "_" in text else repr(value)


def _bounded(least: float, most: float, *, above: bool = False) -> Callable[[str], str | None]:
    def bounded(text: str) -> str | None:
        found = _float(text)
        if found is None:
            return None
        value = float(found)
        return found if least <= value <= most and not (above and value <= least) else None

    return bounded


def _whole(least: int, most: int) -> Callable[[str], str | None]:
    def whole(text: str) -> str | None:
        if not _INTEGER.fullmatch(text):
            return None
        word = text.partition(".")[0]
        return word if least <= int(word) <= most else None

    return whole


def _color(text: str) -> str | None:
    """Signed since 2010-06, unsigned before."""
    value = _whole(-(1 << 31), (1 << 32) - 1)(text)
    if value is None or int(value) < 1 << 31:
        return value
    return str(int(value) - (1 << 32))


def _boolean(text: str) -> str | None:
    word = text.lower()
    return word if word in ("true", "false", "1", "0") else None


def _date(text: str) -> str | None:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    try:
        datetime.fromisoformat(f"{found.group(1)}T{found.group(2)}")
    except ValueError:
        return None
    return text.replace(" ", "T")


def _uuid(text: str) -> str | None:
    found = _UUID.fullmatch(text)
    return f"urn:uuid:{found.group(1)}" if found else None


def _uri(text: str) -> str | None:
    """Escapes what no URI may hold."""
    first, hash_mark, rest = text.partition("#")
    escaped = first + hash_mark + rest.replace("#", "%23")
    escaped = re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", escaped)
    return re.sub(r"[\s\[\]]", lambda found: f"%{ord(found.group()):02X}", escaped)


def _hash(text: str) -> str | None:
    return text if re.fullmatch(r"[0-9a-fA-F]{40}", text) else None


def _base64(text: str) -> str | None:
    word = "".join(text.split())
    return word if len(word) % 4 == 0 and _BASE64.fullmatch(word) else None


_INFINITY = float("inf")
_SIMPLE: dict[str, Callable[[str], str | None]] = {
    "float": _float,
    "positive": _bounded(0, _INFINITY, above=True),
    "notnegative": _bounded(0, _INFINITY),
    "fraction": _bounded(0, 1),
    "int": _whole(-(1 << 31), (1 << 31) - 1),
    "natural": _whole(0, (1 << 31) - 1),
    "count": _whole(1, (1 << 31) - 1),
    "size": _whole(0, (1 << 63) - 1),
    "long": _whole(-(1 << 63), (1 << 63) - 1),
    "color": _color,
    "boolean": _boolean,
    "date": _date,
    "uuid": _uuid,
    "uri": _uri,
    "hash": _hash,
    "base64": _base64,
}
