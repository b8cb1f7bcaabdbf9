"""From a recognised image to the model: axes t c z y x, units, scales, and arrays seen in that order."""

from __future__ import annotations

from typing import Any

from openreadout.arrays import AxisView, ChunkedArray, Stack, with_axes
from openreadout.codecs import ITEM_BYTES, CodecLookup
from openreadout.errors import UsageError
from openreadout.model import AXIS_ORDER, Axis, Channel, Image, ResolutionLevel, order_axes
from openreadout.remote.urls import last_name
from openreadout.stores import Store, join_key
from openreadout.units import length_um, time_s
from openreadout_n5 import geometry
from openreadout_n5.attributes import ATTRIBUTES, encoded_array
from openreadout_n5.conventions import VOLUMES, Found, Level
from openreadout_n5.tree import Report

Letters = tuple[str | None, ...]


class AxisNames:
    """Axis letters that a person gave, fastest first, and whether any dataset could use them."""

    def __init__(self, text: str | None) -> None:
        self.letters: tuple[str, ...] | None = None if text is None else tuple(text.lower())
        self.used = False
        self.other_ranks: set[int] = set()
        self.assumed: dict[str, list[str]] = {}
        """Paths of the images whose axes nobody named, by the names that were assumed."""
        if self.letters is None:
            return
        if not self.letters or len(set(self.letters)) != len(self.letters):
            raise UsageError(f"--axes {text}: every letter may be given once")
        if any(letter not in AXIS_ORDER for letter in self.letters) or "x" not in self.letters:
            raise UsageError(
                f"--axes {text}: expected letters of x y z c t (s for colour samples), with x among them"
            )

    def take(self, ndim: int) -> Letters | None:
        """The letters for a dataset of `ndim` dimensions that names none, or None when they do not fit."""
        if self.letters is None:
            return None
        if len(self.letters) != ndim:
            self.other_ranks.add(ndim)
            return None
        self.used = True
        return self.letters

    def conclude(self, report: Report) -> None:
        """Note what was assumed, and say so when the letters that were given came to nothing.

        Raises
        ------
        UsageError
            Datasets without names of their own are there, and none has that many dimensions.
        """
        for axes, paths in self.assumed.items():
            shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
            report.note(f"{shown}: axes are not named; {axes} (fastest first) assumed")
        if self.letters is None or self.used:
            return
        text = "".join(self.letters)
        if self.other_ranks:
            ranks = " or ".join(map(str, sorted(self.other_ranks)))
            raise UsageError(
                f"--axes {text}: one letter per stored dimension, of which there are {ranks}"
            )
        report.note(f"--axes {text} was not used: the data set names its axes")


def build_image(
    store: Store, found: Found, lookup: CodecLookup, names: AxisNames, report: Report
) -> Image:
    """Put one image into the model; no block is read."""
    letters = _letters(found, names, report)
    stored = order_axes(letter for letter in letters if letter)
    stacked = found.stacked
    shown = order_axes([*stored, stacked]) if stacked else stored
    units = _units(found, letters)
    if any(level.frame.rotated for level in found.levels):
        report.warn("its affine turns or shears, which no scale can say", found.path or "/")
    levels = tuple(
        ResolutionLevel(
            level.path,
            _array(store, level, letters, stored, shown, stacked, lookup),
            _per_axis(_sizes(found, level, report), letters, shown),
            _per_axis(_shifts(found, level), letters, shown),
        )
        for level in found.levels
    )
    image = Image(
        name=found.name or _path_name(found.path, store),
        axes=tuple(Axis(letter, units.get(letter)) for letter in shown),
        levels=levels,
        dimension_order_stored=_dimension_order(letters, stacked),
        extra=_extra(found, letters),
    )
    return _with_channels(image, found, report)


def _with_channels(image: Image, found: Found, report: Report) -> Image:
    from dataclasses import replace

    count = image.size("c")
    if not found.channels or found.channels == (Channel(),) * count:
        return image
    if len(found.channels) != count:
        message = f"{len(found.channels)} channels are described where there are {count}"
        report.note(f"{found.path or '/'}: {message}; they were left out")
        report.find("omero_channels", "warning", message, join_key(found.path, ATTRIBUTES))
        return image
    return replace(image, channels=found.channels)


def _path_name(path: str, store: Store) -> str | None:
    """The last part of an image's path; for the root, the container's own name."""
    if path:
        return path.rpartition("/")[2]
    return last_name(store.path).removesuffix(".n5") or None


# -- axes ------------------------------------------------------------------------------------------


def _letters(found: Found, names: AxisNames, report: Report) -> Letters:
    """The model's letter of each stored dimension, fastest first; None for one that the model lacks."""
    ndim = len(found.levels[0].model.shape)
    said = found.levels[0].frame.names
    if said is not None:
        letters = _without(tuple(geometry.axis_letter(name) for name in said), found.stacked)
        if "x" in letters and _distinct(letters):
            return letters
        report.warn(f"the axes {', '.join(said)[:200]} cannot be used", found.path or "/")
    given = names.take(ndim)
    if given is not None:
        return _without(given, found.stacked)
    assumed = _without(_assumed(ndim, found.stacked), found.stacked)
    if said is not None or not (found.convention in VOLUMES and ndim == 3):
        shown = " ".join(letter or "?" for letter in assumed)
        names.assumed.setdefault(shown, []).append(found.path or "/")
    return assumed


def _assumed(ndim: int, stacked: str | None) -> Letters:
    free = [letter for letter in geometry.ASSUMED if letter != stacked]
    return tuple(([*free, *[None] * ndim])[:ndim])


def _distinct(letters: Letters) -> bool:
    known = [letter for letter in letters if letter]
    return len(known) == len(set(known))


def _without(letters: Letters, stacked: str | None) -> Letters:
    """Letters of the stored dimensions, with that of the axis of the parts free for them."""
    return tuple(None if stacked and letter == stacked else letter for letter in letters)


def _units(found: Found, letters: Letters) -> dict[str, str | None]:
    units = found.levels[0].frame.units or (None,) * len(letters)
    return {
        letter: geometry.known_unit(unit)
        for letter, unit in zip(letters, units, strict=True)
        if letter and letter not in "cs"
    }


def _dimension_order(letters: Letters, stacked: str | None) -> str | None:
    """OME's dimension order, where the stored one starts with x and y."""
    if letters[:2] != ("x", "y"):
        return None
    rest = [letter for letter in (*letters[2:], stacked) if letter and letter in "zct"]
    return "XY" + "".join([*rest, *(name for name in "zct" if name not in rest)]).upper()


def _extra(found: Found, letters: Letters) -> dict[str, Any]:
    """The facts as stored, one entry per stored dimension, fastest first; the axis of the parts comes last."""
    frame = found.levels[0].frame
    names = frame.names or tuple(letter or f"dim_{n}" for n, letter in enumerate(letters))
    extra: dict[str, Any] = {"group": found.path or "/", "convention": found.convention}
    last = [found.stacked] if found.stacked else []
    extra["axes"] = [*names, *last]
    for key, values in (("scale", frame.scale), ("translation", frame.translation)):
        if values is not None and any(value is not None for value in values):
            extra[key] = [*values, *[None] * len(last)]
    units = frame.units or ()
    if any(unit and geometry.known_unit(unit) is None for unit in units):
        extra["units"] = [*units, *[None] * len(last)]
    dtype = found.levels[0].model.dtype
    if dtype not in ITEM_BYTES:
        extra["unsupported_dtype"] = dtype
    lacking = [name for name, letter in zip(names, letters, strict=True) if letter is None]
    if lacking:
        extra["unmapped_axes"] = lacking
    return {**extra, **found.extra}


# -- scales ----------------------------------------------------------------------------------------


def _ratio(unit: str | None, to: str | None) -> float | None:
    """How many of the unit `to` one `unit` is; 1 when they are spelled alike, None when that is not known."""
    if unit == to:
        return 1.0
    for measure in (length_um, time_s):
        a, b = measure(unit), measure(to)
        if a is not None and b is not None:
            return a / b
    return None


def _ratios(found: Found, level: Level) -> tuple[float | None, ...]:
    """Factors from a level's own units to those of the full resolution."""
    ndim = len(level.model.shape)
    first = found.levels[0].frame.units or (None,) * ndim
    own = level.frame.units or (first if level.frame.scale is None else (None,) * ndim)
    return tuple(_ratio(a, b) for a, b in zip(own, first, strict=True))


def _sizes(found: Found, level: Level, report: Report) -> geometry.Numbers:
    scale = level.frame.scale or (None,) * len(level.model.shape)
    if any(value is not None and value <= 0 for value in scale):
        report.warn(
            "a size of 0 or less is no size of a sample; it was left out", level.model.path or "/"
        )
    kept = (value if value is not None and value > 0 else None for value in scale)
    pairs = zip(kept, _ratios(found, level), strict=True)
    return tuple(None if v is None or r is None else v * r for v, r in pairs)


def _shifts(found: Found, level: Level) -> geometry.Numbers:
    shift = level.frame.translation or (None,) * len(level.model.shape)
    pairs = zip(shift, _ratios(found, level), strict=True)
    return tuple(None if v is None or r is None else v * r for v, r in pairs)


def _per_axis(values: geometry.Numbers, letters: Letters, shown: list[str]) -> geometry.Numbers:
    """Values per stored dimension in the order of the model's axes; None for the axis of the parts."""
    known = {letter: value for letter, value in zip(letters, values, strict=True) if letter}
    return tuple(known.get(letter) for letter in shown)


# -- arrays ----------------------------------------------------------------------------------------


def _array(
    store: Store,
    level: Level,
    letters: Letters,
    stored: list[str],
    shown: list[str],
    stacked: str | None,
    lookup: CodecLookup,
) -> ChunkedArray:
    """The array of a level in the order of the model's axes."""
    order = tuple(letters.index(letter) for letter in stored)
    parts = tuple(
        None if info is None else _view(encoded_array(store, info, lookup), order)
        for info in level.parts
    )
    if stacked is None:
        return next(part for part in parts if part is not None)
    laid = [stacked, *stored]
    return with_axes(Stack(parts), [laid.index(letter) for letter in shown])


def _view(array: ChunkedArray, order: tuple[int, ...]) -> ChunkedArray:
    if len(order) < len(array.shape):
        return AxisView(array, order)
    return with_axes(array, order)
