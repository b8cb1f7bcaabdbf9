"""Lengths and times: from the names that files use to micrometres and seconds.

NGFF names units as UDUNITS does (`micrometer`); OME-XML uses symbols (`µm`); N5 tools use either.
"""

from __future__ import annotations

_METRE_PREFIXES = {
    "yotta": 1e24, "zetta": 1e21, "exa": 1e18, "peta": 1e15, "tera": 1e12, "giga": 1e9, "mega": 1e6,
    "kilo": 1e3, "hecto": 1e2, "deca": 1e1, "": 1.0, "deci": 1e-1, "centi": 1e-2, "milli": 1e-3,
    "micro": 1e-6, "nano": 1e-9, "pico": 1e-12, "femto": 1e-15, "atto": 1e-18, "zepto": 1e-21, "yocto": 1e-24,
}  # fmt: skip
_SYMBOLS = {
    "Y": "yotta", "Z": "zetta", "E": "exa", "P": "peta", "T": "tera", "G": "giga", "M": "mega", "k": "kilo",
    "h": "hecto", "da": "deca", "d": "deci", "c": "centi", "m": "milli", "µ": "micro", "n": "nano",
    "p": "pico", "f": "femto", "a": "atto", "z": "zepto", "y": "yocto",
}  # fmt: skip
_OTHER_LENGTHS_M = {
    "angstrom": 1e-10, "inch": 0.0254, "foot": 0.3048, "yard": 0.9144, "mile": 1609.344,
    "parsec": 3.0856775814913673e16, "astronomical unit": 149597870700.0, "light year": 9460730472580800.0,
    "line": 0.0254 / 12, "thou": 2.54e-5, "point": 0.0254 / 72,
}  # fmt: skip
_OTHER_TIMES_S = {"minute": 60.0, "hour": 3600.0, "day": 86400.0}
_ALIASES = {
    "m": "meter", "metre": "meter", "meters": "meter", "metres": "meter",
    "micron": "micrometer", "microns": "micrometer",
    "um": "micrometer", "Å": "angstrom", "\u212b": "angstrom", "angstroms": "angstrom", "ångström": "angstrom",
    "in": "inch", "inches": "inch", "ft": "foot", "feet": "foot", "yd": "yard", "mi": "mile", "li": "line",
    "pt": "point", "ua": "astronomical unit", "ly": "light year", "pc": "parsec",
    "s": "second", "sec": "second", "seconds": "second", "min": "minute", "minutes": "minute",
    "h": "hour", "hours": "hour", "hr": "hour", "d": "day", "days": "day", "us": "microsecond", "msec": "millisecond",
}  # fmt: skip
_MICRO_SIGNS = str.maketrans({"\u03bc": "µ", "\ufffd": "µ"})


def unit_name(text: object) -> str | None:
    """Return the UDUNITS name of a unit as files write it, or None when it is not a length or time we know.

    Takes long names in British or American spelling, plurals, and symbols with either micro sign.
    """
    if not isinstance(text, str):
        return None
    word = text.strip().translate(_MICRO_SIGNS)
    if word in _ALIASES:
        return _ALIASES[word]
    lower = word.lower()
    for candidate in (
        lower,
        _ALIASES.get(lower, lower),
        lower.removesuffix("s"),
        lower.removesuffix("s").replace("metre", "meter"),
    ):
        if candidate in _OTHER_LENGTHS_M or candidate in _OTHER_TIMES_S:
            return candidate
        for base in ("meter", "second"):
            if candidate.endswith(base) and candidate.removesuffix(base) in _METRE_PREFIXES:
                return candidate
    for symbol, base in (("m", "meter"), ("s", "second")):
        prefix = _SYMBOLS.get(word.removesuffix(symbol)) if word.endswith(symbol) else None
        if prefix:
            return prefix + base
    return None


def length_um(unit: object) -> float | None:
    """Return how many micrometres one `unit` is, or None when it is not a length."""
    name = unit_name(unit)
    if name is None:
        return None
    if name in _OTHER_LENGTHS_M:
        return _OTHER_LENGTHS_M[name] * 1e6
    if name.endswith("meter"):
        return _round_power(_METRE_PREFIXES[name.removesuffix("meter")] * 1e6)
    return None


def time_s(unit: object) -> float | None:
    """Return how many seconds one `unit` is, or None when it is not a time."""
    name = unit_name(unit)
    if name is None:
        return None
    if name in _OTHER_TIMES_S:
        return _OTHER_TIMES_S[name]
    return _METRE_PREFIXES[name.removesuffix("second")] if name.endswith("second") else None


def _round_power(value: float) -> float:
    """Undo the last-digit error of multiplying two powers of ten."""
    return float(f"{value:.12g}")
