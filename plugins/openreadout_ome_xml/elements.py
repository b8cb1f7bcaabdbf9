"""Small helpers on lxml elements: local names, children, numbers with units."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from openreadout.errors import CorruptDataError
from openreadout.units import length_um, time_s

if TYPE_CHECKING:
    from lxml.etree import _Element

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORDS = {"LensNA": "lens_na", "ID": "id", "DeltaT": "delta_t"}
_TEXT_ATTRIBUTES = {
    "id", "model", "manufacturer", "serial_number", "lot_number", "type", "immersion", "correction", "medium",
    "binning", "filter_wheel", "name", "external_identifier",
}  # fmt: skip
MAX_DEPTH = 40
"""Nesting of elements that are turned into JSON; OME's own goes five deep."""


def tag(element: _Element) -> str:
    """The local name."""
    name = element.tag
    return name.rpartition("}")[2] if isinstance(name, str) else ""


def children(element: _Element, *names: str) -> Iterator[_Element]:
    """The children of these local names."""
    return (found for found in element if tag(found) in names)


def child(element: _Element, name: str) -> _Element | None:
    """The first child of a local name."""
    return next(children(element, name), None)


def number(text: str | None) -> float | None:
    """A finite number, or None; takes a decimal comma, as some programs write by their locale."""
    if text is None or len(text) > 400:
        return None
    try:
        value = float(text.strip().replace(",", ".") if text.count(",") == 1 else text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def whole(text: str | None, where: str) -> int | None:
    """A whole number that is not negative; None when there is none.

    Raises
    ------
    CorruptDataError
        The text is something else.
    """
    if text is None or not text.strip():
        return None
    word = text.strip()
    word = word.removesuffix(".0")
    if not (word.isascii() and word.removeprefix("+").isdigit() and len(word) <= 19):
        raise CorruptDataError(f"{where} is {text[:40]!r}, not a count")
    return int(word)


def seconds(element: _Element, name: str) -> float | None:
    """A time attribute in seconds; without a unit it is in seconds."""
    text = element.get(name)
    if text is None:
        return None
    value, factor = number(text), time_s(element.get(f"{name}Unit", "s"))
    return None if value is None or factor is None else _tidy(value * factor)


def nanometres(element: _Element, name: str) -> float | None:
    """A wavelength attribute in nm, the unit it has when none is written."""
    value, factor = number(element.get(name)), length_um(element.get(f"{name}Unit", "nm"))
    return None if value is None or factor is None or value <= 0 else _tidy(value * factor * 1e3)


def _tidy(value: float) -> float:
    """Undo the last-digit error of a change of unit."""
    return float(f"{value:.15g}")


def snake(name: str) -> str:
    """`NominalMagnification` as `nominal_magnification`."""
    return _WORDS.get(name) or _CAMEL.sub("_", name).lower()


def json_value(key: str, text: str) -> Any:
    """The value of an attribute: a number or a flag where it is one, and text otherwise."""
    text = text.strip()
    if key in _TEXT_ATTRIBUTES or key.endswith(("_unit", "_id", "_ref")):
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    value = number(text) if text[:1] in "+-.0123456789" else None
    if value is None or text.count(",") == 1:
        return text
    return int(value) if value.is_integer() and abs(value) < 1 << 53 and "." not in text else value


def attributes(element: _Element) -> dict[str, Any]:
    """Attributes as JSON values; children that hold text alone count too, as schemas before 2010 wrote them."""
    found = {}
    for name, text in element.attrib.items():
        key = snake(str(name).rpartition("}")[2])
        found[key] = json_value(key, str(text))
    for inner in element:
        if len(inner) == 0 and not inner.attrib and (inner.text or "").strip():
            key = snake(tag(inner))
            found.setdefault(key, json_value(key, inner.text or ""))
    return found


def tree(element: _Element, depth: int = 0) -> dict[str, Any]:
    """An element with everything in it as JSON values; children under `children`, each with its `element` name."""
    if depth > MAX_DEPTH:
        raise CorruptDataError("the OME-XML is nested deeper than is accepted")
    found = attributes(element)
    inner = [
        {"element": tag(sub), **tree(sub, depth + 1)}
        for sub in element
        if tag(sub) and (len(sub) or sub.attrib)
    ]
    return {**found, **({"children": inner} if inner else {})}
