"""Where the samples of an N5 dataset lie in space: axis names, units, scale and translation from attributes.

A `Frame` has one entry per stored dimension, fastest first, whatever order the attributes use; None is unknown.
Every function takes attributes as they were parsed from JSON and gives None when they do not hold what it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from openreadout.units import unit_name
from openreadout_n5.attributes import finite, finite_list

Numbers = tuple[float | None, ...]
Words = tuple[str | None, ...]

_AXIS_WORDS = {
    "time": "t", "channel": "c", "channels": "c", "ch": "c", "frame": "t", "slice": "z",
}  # fmt: skip
ASSUMED = ("x", "y", "z", "c", "t")
"""What the dimensions of a dataset that names none are taken for, fastest first."""


class Frame(NamedTuple):
    """Axis names, units, scale and translation per stored dimension, each None as a whole where nothing is said."""

    names: tuple[str, ...] | None = None
    units: Words | None = None
    scale: Numbers | None = None
    translation: Numbers | None = None
    rotated: bool = False
    """An affine with off-diagonal entries, whose scale is not given."""


def axis_letter(name: str) -> str | None:
    """The model's letter for an axis name, or None for an axis that the model lacks."""
    lower = name.strip().lower()
    lower = _AXIS_WORDS.get(lower, lower)
    return lower if lower in ("t", "c", "z", "y", "x") else None


def _words(value: object, ndim: int) -> tuple[str, ...] | None:
    if not isinstance(value, list) or len(value) != ndim:
        return None
    if not all(isinstance(word, str) and len(word) <= 200 for word in value):
        return None
    return tuple(value)


def _numbers(value: object, ndim: int) -> Numbers | None:
    found = finite_list(value)
    return None if found is None or len(found) != ndim else tuple(found)


def _padded(value: object, ndim: int) -> Numbers | None:
    """Numbers for the first dimensions; conventions for volumes always give three."""
    found = finite_list(value)
    return None if found is None else tuple((found + [None] * ndim)[:ndim])


def slowest_first(names: Sequence[str]) -> bool:
    """Whether axis names are in C order, slowest first, as COSEM and NGFF write them.

    Some writers of both list the fastest first instead: then x comes first, where a C-order list has it last.
    """
    letters = [axis_letter(name) for name in names]
    if len(letters) > 1 and letters[0] == "x":
        return False
    if letters[-1] == "x" or "x" not in letters:
        return True
    # x in the middle, as in y x c: the spatial axes around it tell.
    y = letters.index("y") if "y" in letters else -1
    return y < letters.index("x")


def _turn(frame: Frame) -> Frame:
    """The frame with its dimensions in the other order."""
    return Frame(
        None if frame.names is None else frame.names[::-1],
        None if frame.units is None else frame.units[::-1],
        None if frame.scale is None else frame.scale[::-1],
        None if frame.translation is None else frame.translation[::-1],
        frame.rotated,
    )


def explicit_axes(attributes: Mapping[str, Any], ndim: int) -> tuple[str, ...] | None:
    """The `axes` attribute of a dataset or group, fastest first as N5 lists dimensions."""
    value = attributes.get("axes")
    if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
        value = [entry.get("label", entry.get("name")) for entry in value]
    return _words(value, ndim)


def cosem(transform: object, ndim: int) -> Frame | None:
    """COSEM / OpenOrganelle: `transform` with `axes`, `units`, `scale` and `translate`, slowest axis first.

    Later writers add `order`, `C` or `F`.
    """
    if not isinstance(transform, dict):
        return None
    scale = _numbers(transform.get("scale"), ndim)
    if scale is None:
        return None
    names = _words(transform.get("axes"), ndim)
    frame = Frame(
        names,
        _words(transform.get("units"), ndim),
        scale,
        _numbers(transform.get("translate", transform.get("translation")), ndim),
    )
    order = transform.get("order")
    if order in ("C", "F"):
        return _turn(frame) if order == "C" else frame
    return frame if names is not None and not slowest_first(names) else _turn(frame)


def canonical(spatial: object, ndim: int) -> Frame | None:
    """n5-universe's own: `spatialTransform` with a `transform`, a `unit` and sometimes `axes`, fastest axis first."""
    if not isinstance(spatial, dict):
        return None
    composed = _compose(spatial.get("transform"), ndim, 0)
    if composed is None:
        return None
    scale, translation, rotated = composed
    axes = spatial.get("axes")
    unit = spatial.get("unit")
    units: Words | None = (unit,) * min(3, ndim) + (None,) * (ndim - 3) if _is_word(unit) else None
    names = explicit_axes(spatial, ndim)
    if names is not None and isinstance(axes, list) and units is None:
        units = tuple(entry.get("unit") if isinstance(entry, dict) else None for entry in axes)
    return Frame(names, units, scale, translation, rotated)


def _is_word(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200


def _compose(transform: object, ndim: int, depth: int) -> tuple[Numbers, Numbers, bool] | None:
    """Scale, translation and whether more than these is in it, of one transform of n5-universe."""
    if not isinstance(transform, dict) or depth > 8:
        return None
    kind = transform.get("type")
    ones, zeros = (1.0,) * ndim, (0.0,) * ndim
    if kind == "identity":
        return ones, zeros, False
    if kind in ("scale", "translation", "scale_offset"):
        scale = _padded(transform.get("scale"), ndim) if "scale" in transform else ones
        moved = transform.get("translation", transform.get("offset"))
        shift = _padded(moved, ndim) if moved is not None else zeros
        return None if scale is None or shift is None else (scale, shift, False)
    if kind == "affine":
        return _affine(transform.get("affine"), ndim)
    if kind == "sequence":
        return _sequence(transform.get("transformations"), ndim, depth)
    return None


def _affine(value: object, ndim: int) -> tuple[Numbers, Numbers, bool] | None:
    flat = finite_list(value, 1 << 10)
    if flat is None:
        return None
    rows = next((n for n in (ndim, 3, 2) if len(flat) == n * (n + 1)), None)
    if rows is None:
        return None
    table = [flat[n * (rows + 1) : (n + 1) * (rows + 1)] for n in range(rows)]
    turned = any(table[i][j] not in (0.0, None) for i in range(rows) for j in range(rows) if i != j)
    pad: list[float | None] = [None] * ndim
    scale = tuple(([None if turned else table[n][n] for n in range(rows)] + pad)[:ndim])
    shift = tuple(([table[n][rows] for n in range(rows)] + pad)[:ndim])
    return scale, shift, turned


def _sequence(value: object, ndim: int, depth: int) -> tuple[Numbers, Numbers, bool] | None:
    if not isinstance(value, list) or len(value) > 64:
        return None
    scale: Numbers = (1.0,) * ndim
    shift: Numbers = (0.0,) * ndim
    turned = False
    for entry in value:
        step = _compose(entry, ndim, depth + 1)
        if step is None:
            return None
        scale, shift = apply(scale, shift, step[0], step[1])
        turned = turned or step[2]
    return scale, shift, turned


def apply(scale: Numbers, shift: Numbers, by: Numbers, add: Numbers) -> tuple[Numbers, Numbers]:
    """Follow one scale and translation with another; unknown stays unknown."""
    new_scale = tuple(_times(a, b) for a, b in zip(scale, by, strict=True))
    moved = (_times(a, b) for a, b in zip(shift, by, strict=True))
    return new_scale, tuple(_plus(a, b) for a, b in zip(moved, add, strict=True))


def _times(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b


def _plus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def ngff(multiscale: Mapping[str, Any], entry: Mapping[str, Any], ndim: int) -> Frame | None:
    """NGFF `multiscales` kept in N5 attributes, whose axes are in either order.

    The transformations of the level come first, those of the whole pyramid after them (NGFF 0.4, "multiscales").
    """
    axes = multiscale.get("axes")
    if not isinstance(axes, list) or len(axes) != ndim:
        return None
    named = [axis.get("name") if isinstance(axis, dict) else axis for axis in axes]
    names = _words(named, ndim)
    if names is None:
        return None
    units = tuple(axis.get("unit") if isinstance(axis, dict) else None for axis in axes)
    scale: Numbers | None = None
    shift: Numbers = (0.0,) * ndim
    for source in (entry, multiscale):
        steps = source.get("coordinateTransformations")
        for step in steps[:64] if isinstance(steps, list) else ():
            by, add = _ngff_step(step, ndim)
            scale, shift = apply(scale or (1.0,) * ndim, shift, by, add)
    frame = Frame(names, units, scale, None if scale is None else shift)
    return _turn(frame) if slowest_first(names) else frame


def _ngff_step(step: object, ndim: int) -> tuple[Numbers, Numbers]:
    ones: Numbers = (1.0,) * ndim
    zeros: Numbers = (0.0,) * ndim
    if not isinstance(step, dict):
        return ones, zeros
    scale = _numbers(step.get("scale"), ndim) if step.get("type") == "scale" else None
    shift = _numbers(step.get("translation"), ndim) if step.get("type") == "translation" else None
    return scale or ones, shift or zeros


def resolution(attributes: Mapping[str, Any], ndim: int) -> Frame | None:
    """Size of one sample of the full resolution: `pixelResolution` (a list, or an object with a unit) or `resolution`.

    n5-viewer writes the first; Fiji, Neuroglancer, Paintera and BigDataViewer the second, with or without `units`.
    """
    value = attributes.get("pixelResolution")
    unit: object = None
    if isinstance(value, dict):
        unit, value = value.get("unit"), value.get("dimensions")
    scale = _padded(value, ndim)
    if scale is not None:
        units = (unit if isinstance(unit, str) else None,) * ndim if _is_word(unit) else None
        return Frame(None, units, scale, None)
    scale = _padded(attributes.get("resolution"), ndim)
    if scale is None:
        return None
    words = attributes.get("units", attributes.get("unit"))
    shared = (words if isinstance(words, str) else None,) * ndim if _is_word(words) else None
    return Frame(
        None, _words(words, ndim) or shared, scale, _padded(attributes.get("offset"), ndim)
    )


def imageplus(attributes: Mapping[str, Any], shape: Sequence[int]) -> Frame | None:
    """Fiji's ImagePlus attributes (`pixelWidth`, `numChannels`, `frameInterval`, ...).

    ImageJ orders dimensions x, y, c, z, t and leaves out those of length 1; the counts tell which are there. An origin
    is in samples, at the place whose coordinate is 0.
    """
    if "pixelWidth" not in attributes or "numChannels" not in attributes:
        return None
    names = _imagej_axes(attributes, shape)
    if names is None:
        return None
    unit = attributes.get("pixelUnit")
    sizes = {"x": "pixelWidth", "y": "pixelHeight", "z": "pixelDepth", "t": "frameInterval"}
    scale = tuple(
        _positive(finite(attributes.get(sizes[name]))) if name in sizes else None for name in names
    )
    length = unit if isinstance(unit, str) else None
    units = tuple(
        "second" if name == "t" else length if name in ("x", "y", "z") else None for name in names
    )
    shift = tuple(
        None if name not in ("x", "y", "z") or size is None
        else -size * (finite(attributes.get(f"{name}Origin")) or 0.0)
        for name, size in zip(names, scale, strict=True)
    )  # fmt: skip
    return Frame(names, units, scale, tuple(0.0 if n == 0 else n for n in shift))


def _positive(value: float | None) -> float | None:
    return value if value is not None and value > 0 else None


def _imagej_axes(attributes: Mapping[str, Any], shape: Sequence[int]) -> tuple[str, ...] | None:
    counts = {"c": "numChannels", "z": "numSlices", "t": "numFrames"}
    rest = [(axis, attributes.get(key)) for axis, key in counts.items()]
    if len(shape) < 2:
        return None
    for kept in (rest, [(axis, n) for axis, n in rest if n != 1]):
        if [n for _, n in kept] == list(shape[2:]):
            return ("x", "y", *(axis for axis, _ in kept))
    return None


def factors(value: object, ndim: int) -> Numbers | None:
    """Downsampling factors of one level: positive numbers, 1 for dimensions that are not listed."""
    found = finite_list(value)
    if found is None or not all(n is not None and n > 0 for n in found):
        return None
    return tuple(([*found, *[1.0] * ndim])[:ndim])


def downsampled(base: Frame, by: Numbers) -> Frame:
    """The frame of a level whose samples each average `by` samples of the full resolution `base`.

    Their centres lie half of the samples averaged, less half a sample, further along (BigDataViewer's convention).
    """
    scale = base.scale or (1.0,) * len(by)
    origin = base.translation or (0.0,) * len(by)
    shift = tuple(_times(s, (f - 1) / 2 if f else None) for s, f in zip(scale, by, strict=True))
    return base._replace(
        scale=tuple(_times(s, f) for s, f in zip(scale, by, strict=True)),
        translation=tuple(_plus(a, b) for a, b in zip(shift, origin, strict=True)),
    )


def same_scale(a: Frame, b: Frame) -> bool:
    """Whether two frames agree on the size of a sample, in whatever units they give it."""
    from openreadout.units import length_um

    if a.scale is None or b.scale is None:
        return True
    units = [f.units or (None,) * len(f.scale or ()) for f in (a, b)]
    for s, t, u, v in zip(a.scale, b.scale, *units, strict=True):
        p, q = (length_um(u), length_um(v)) if u is not None and v is not None else (1.0, 1.0)
        if s is None or t is None or p is None or q is None:
            continue
        if abs(s * p - t * q) > 1e-6 * max(abs(s * p), abs(t * q)):
            return False
    return True


def known_unit(text: str | None) -> str | None:
    """The UDUNITS name of a raw unit, or None."""
    return unit_name(text)
