"""The configuration of the `jpeg` codec and the chunk shapes that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openreadout.errors import CorruptDataError, UnsupportedFeatureError

KEYS = frozenset({"quality", "encoded_color_space", "decoded_color_space", "subsampling"})
COMPONENTS = {"grayscale": 1, "ycbcr": 3, "rgb": 3}
"""Components of each colour space."""
CONVERSIONS = frozenset(
    {("grayscale", "grayscale"), ("rgb", "ycbcr"), ("rgb", "rgb"), ("ycbcr", "ycbcr")}
)
"""Allowed pairs of decoded and encoded colour space."""
LARGEST_FACTOR = 4
LARGEST_SIDE = 65535

Factors = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """A checked configuration; `subsampling` has (horizontal, vertical) for each component."""

    quality: int
    encoded_color_space: str
    decoded_color_space: str
    subsampling: Factors

    @property
    def components(self) -> int:
        """Components of a pixel."""
        return COMPONENTS[self.encoded_color_space]


def parse_configuration(configuration: Mapping[str, Any]) -> Configuration:
    """Check a configuration.

    Raises
    ------
    CorruptDataError
        It breaks one of the rules; the message says which.

    Notes
    -----
    Zarr extension codec `jpeg`, section "Configuration parameters". Keys that the specification does not have are
    refused: they may come with a later one and change what the data mean.
    """
    extra = sorted(set(configuration) - KEYS)
    if extra:
        raise CorruptDataError(f"codec jpeg: {extra[0]!r:.100} is no key of its configuration")
    quality = configuration.get("quality")
    if type(quality) is not int or not 1 <= quality <= 100:
        raise CorruptDataError(f"codec jpeg: quality {quality!r:.100} is no whole number from 1 to 100")  # fmt: skip
    encoded = configuration.get("encoded_color_space")
    if not isinstance(encoded, str) or encoded not in COMPONENTS:
        raise CorruptDataError(
            f"codec jpeg: encoded_color_space is {encoded!r:.100}, not grayscale, ycbcr or rgb"
        )
    default = "grayscale" if encoded == "grayscale" else "rgb"
    decoded = configuration.get("decoded_color_space", default)
    if not isinstance(decoded, str) or (decoded, encoded) not in CONVERSIONS:
        raise CorruptDataError(f"codec jpeg: {decoded!r:.100} cannot be encoded as {encoded}")
    return Configuration(quality, encoded, decoded, _subsampling(configuration, encoded))


def _subsampling(configuration: Mapping[str, Any], encoded: str) -> Factors:
    plain: Factors = ((1, 1),) * COMPONENTS[encoded]
    if "subsampling" not in configuration:
        if encoded == "ycbcr":
            raise CorruptDataError("codec jpeg: ycbcr needs subsampling, which is missing")
        return plain
    factors = _factors(configuration["subsampling"])
    if len(factors) != len(plain):
        raise CorruptDataError(
            f"codec jpeg: subsampling has {len(factors)} entries for {len(plain)} components"
        )
    if factors[1:] != plain[1:] or (encoded != "ycbcr" and factors != plain):
        raise CorruptDataError(
            f"codec jpeg: subsampling {[list(f) for f in factors]} is not possible for {encoded}"
        )
    return factors


def _factors(value: object) -> Factors:
    if isinstance(value, list | tuple):
        pairs = [pair for pair in value if _is_pair(pair)]
        if len(pairs) == len(value):
            return tuple((h, v) for h, v in pairs)
    raise CorruptDataError(
        f"codec jpeg: subsampling {value!r:.100} is no list of pairs of whole numbers from 1 to 4"
    )


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(type(factor) is int and 1 <= factor <= LARGEST_FACTOR for factor in value)
    )


def components_of(shape: tuple[int, ...], dtype: str) -> int:
    """The components of a chunk: 1 for (H, W) and (H, W, 1), 3 for (H, W, 3).

    Raises
    ------
    CorruptDataError
        JPEG cannot hold a chunk of that shape.
    UnsupportedFeatureError
        The data type is not uint8.

    Notes
    -----
    Zarr extension codec `jpeg`, sections "Supported data types" and "Supported chunk shapes".
    """
    if dtype != "uint8":
        raise UnsupportedFeatureError(f"codec jpeg: data type {dtype} is not possible, only uint8")
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3)):
        raise CorruptDataError(
            f"codec jpeg: chunks of {list(shape)} are not possible, only (H, W), (H, W, 1) and (H, W, 3)"
        )
    if not all(0 < side <= LARGEST_SIDE for side in shape[:2]):
        raise CorruptDataError(f"codec jpeg: a side of {list(shape[:2])} is longer than 65535")
    return shape[2] if len(shape) == 3 else 1


def check_chunk(shape: tuple[int, ...], dtype: str, configuration: Configuration) -> None:
    """Raise unless a chunk of this shape and type can be encoded with the configuration."""
    components = components_of(shape, dtype)
    if components != configuration.components:
        raise CorruptDataError(
            f"codec jpeg: chunks of {components} components cannot be {configuration.encoded_color_space}"
        )
