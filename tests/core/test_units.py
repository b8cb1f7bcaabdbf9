"""Units: every spelling that files use, against factors from the definitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openreadout.units import length_um, time_s, unit_name

# Names that NGFF 0.4 allows (UDUNITS-2), with metres or seconds by definition of the prefix or unit.
NGFF_LENGTHS = {
    "angstrom": 1e-10, "attometer": 1e-18, "centimeter": 1e-2, "decimeter": 1e-1, "exameter": 1e18, "femtometer": 1e-15,
    "foot": 0.3048, "gigameter": 1e9, "hectometer": 1e2, "inch": 0.0254, "kilometer": 1e3, "megameter": 1e6, "meter": 1,
    "micrometer": 1e-6, "mile": 1609.344, "millimeter": 1e-3, "nanometer": 1e-9, "parsec": 3.0856775814913673e16,
    "petameter": 1e15, "picometer": 1e-12, "terameter": 1e12, "yard": 0.9144, "yoctometer": 1e-24, "yottameter": 1e24,
    "zeptometer": 1e-21, "zettameter": 1e21,
}  # fmt: skip
NGFF_TIMES = {
    "attosecond": 1e-18, "centisecond": 1e-2, "day": 86400, "decisecond": 1e-1, "exasecond": 1e18, "femtosecond": 1e-15,
    "gigasecond": 1e9, "hectosecond": 1e2, "hour": 3600, "kilosecond": 1e3, "megasecond": 1e6, "microsecond": 1e-6,
    "millisecond": 1e-3, "minute": 60, "nanosecond": 1e-9, "petasecond": 1e15, "picosecond": 1e-12, "second": 1,
    "terasecond": 1e12, "yoctosecond": 1e-24, "yottasecond": 1e24, "zeptosecond": 1e-21, "zettasecond": 1e21,
}  # fmt: skip


@pytest.mark.parametrize(("name", "metres"), NGFF_LENGTHS.items())
def test_ngff_length(name, metres):
    assert unit_name(name) == name
    assert length_um(name) == pytest.approx(metres * 1e6, rel=1e-12)
    assert time_s(name) is None


@pytest.mark.parametrize(("name", "seconds"), NGFF_TIMES.items())
def test_ngff_time(name, seconds):
    assert unit_name(name) == name
    assert time_s(name) == pytest.approx(seconds, rel=1e-12)
    assert length_um(name) is None


@pytest.mark.parametrize(
    "text",
    [
        "\u00b5m",
        "\u03bcm",
        "um",
        "micron",
        "microns",
        "Micrometer",
        "micrometre",
        "micrometers",
        " µm ",
    ],
)
def test_spellings_of_the_micrometre(text):
    assert unit_name(text) == "micrometer"
    assert length_um(text) == 1.0


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        ("nm", 1e-3),
        ("mm", 1e3),
        ("cm", 1e4),
        ("m", 1e6),
        ("pm", 1e-6),
        ("Mm", 1e12),
        ("\u212b", 1e-4),
        ("\u00c5", 1e-4),
        ("Nanometer", 1e-3),
    ],
)
def test_symbols_of_lengths(text, factor):
    assert length_um(text) == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "factor"),
    [("s", 1), ("ms", 1e-3), ("µs", 1e-6), ("min", 60), ("h", 3600), ("sec", 1), ("d", 86400)],
)
def test_symbols_of_times(text, factor):
    assert time_s(text) == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", "pixel", "px", "reference frame", "none", None, 5, ["nm"], {}, "xm", "furlongs"]
)
def test_what_is_no_unit_is_unknown(text):
    assert unit_name(text) is None
    assert length_um(text) is None
    assert time_s(text) is None


@given(st.text(max_size=12))
def test_any_text_is_a_unit_or_none(text):
    name = unit_name(text)
    assert name is None or unit_name(name) == name
    assert name is None or (length_um(name) is None) != (time_s(name) is None)
