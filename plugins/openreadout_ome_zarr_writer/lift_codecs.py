"""The codecs of an array that stays as it is, as Zarr v3 names them: those of Zarr v2, and those of N5."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from openreadout.codecs import ITEM_BYTES, CodecSpec
from openreadout.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from openreadout.encoded import EncodedArray

PREFIX = "numcodecs."
ARRAY_FILTERS = frozenset(("delta", "fixedscaleoffset", "bitround", "quantize", "astype"))
"""Filters of Zarr v2 that Zarr v3 has at the array's side of `bytes`."""
BYTE_FILTERS = frozenset(
    "zlib lz4 bz2 lzma shuffle adler32 crc32 fletcher32 jenkins_lookup3".split()
)
"""Filters and compressors of Zarr v2 that Zarr v3 has under `numcodecs.`, bytes to bytes."""
TYPE_KEYS = {
    "delta": ("dtype", "astype"),
    "fixedscaleoffset": ("dtype", "astype"),
    "quantize": ("dtype", "astype"),
    "astype": ("decode_dtype", "encode_dtype"),
}
"""Where a filter tells the type that it takes, and the one that it gives if that is another."""
BLOSC_SHUFFLES = {0: "noshuffle", 1: "shuffle", 2: "bitshuffle"}
BLOSC_NAMES = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
CORE = frozenset(("blosc", "gzip", "zstd"))
EXPORT_A_COPY = "export a copy instead: leave out --in-place and name it with -o"


def from_v2(array: EncodedArray) -> list[CodecSpec]:
    """The Zarr v3 chain that decodes the chunks of a Zarr v2 array.

    Raises
    ------
    UnsupportedFeatureError
        A filter or compressor has no equal in Zarr v3, or stands where v3 cannot have it.
    """
    specs = list(array.codecs)
    turned = [spec for spec in specs if spec.name == "transpose"]
    place = len(turned)
    encoding, rest = specs[place], specs[place + 1 :]
    filters = list(itertools.takewhile(lambda spec: _id(spec) in ARRAY_FILTERS, rest))
    stored = _stored_type(array, filters)
    compressors = [_bytes_codec(spec, stored.itemsize, array) for spec in rest[len(filters) :]]
    if filters:
        encoding = CodecSpec("bytes", {"endian": stored.endian} if stored.itemsize > 1 else {})
    named = [CodecSpec(f"{PREFIX}{_id(spec)}", spec.configuration) for spec in filters]
    return [*turned, *named, encoding, *compressors]


def from_n5(array: EncodedArray) -> list[CodecSpec]:
    """The chain `n5_default` of an N5 dataset, its compressor under a name that Zarr v3 has."""
    (spec,) = array.codecs
    chain = []
    for entry in spec.configuration["codecs"]:
        zlib = entry["name"] == "zlib"
        chain.append({**entry, "name": f"{PREFIX}zlib"} if zlib else entry)
    return [CodecSpec(spec.name, {"codecs": chain})]


def inner_names(specs: list[CodecSpec]) -> list[str]:
    """Names of all codecs, those inside `n5_default` included."""
    names = []
    for spec in specs:
        names.append(spec.name)
        inner = spec.configuration.get("codecs") if spec.name == "n5_default" else None
        names += [entry["name"] for entry in inner or ()]
    return names


def as_json(spec: CodecSpec) -> dict[str, Any]:
    """A codec's object for `zarr.json`; zarr-python wants a configuration of its numcodecs codecs, be it empty."""
    body: dict[str, Any] = {"name": spec.name}
    if spec.configuration or spec.name.startswith(PREFIX):
        body["configuration"] = dict(spec.configuration)
    return body


class _Stored:
    """The type of the samples that reach `bytes`."""

    def __init__(self, name: str, endian: str) -> None:
        self.endian = endian
        self.itemsize = ITEM_BYTES[name]


def _id(spec: CodecSpec) -> str:
    return spec.name.removeprefix(PREFIX)


def _refused(array: EncodedArray, what: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{array.path or '/'}: {what}", where=array.path or "/", hint=EXPORT_A_COPY
    )


def _stored_type(array: EncodedArray, filters: list[CodecSpec]) -> _Stored:
    """The type after the last filter; each must take what the one before it gives."""
    encoding = next(spec for spec in array.codecs if spec.name == "bytes")
    name, endian = array.dtype, str(encoding.configuration.get("endian", "little"))
    for spec in filters:
        kind = _id(spec)
        if kind == "bitround":
            continue
        taken = _numpy_type(spec, TYPE_KEYS[kind][0], array)
        if taken is None or taken[0] != name:
            raise _refused(array, f"the filter {kind} is not made for samples of {name}")
        name, endian = _numpy_type(spec, TYPE_KEYS[kind][1], array) or taken
    return _Stored(name, endian)


def _numpy_type(spec: CodecSpec, key: str, array: EncodedArray) -> tuple[str, str] | None:
    """A filter's data type as its name and byte order; None where it does not say."""
    import numpy as np

    value = spec.configuration.get(key)
    if value is None:
        return None
    try:
        dtype = np.dtype(value) if isinstance(value, str) else None
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    if dtype is None or dtype.name not in ITEM_BYTES:
        raise _refused(array, f"the filter {_id(spec)} has no type of numbers at {key}")
    swapped = dtype.newbyteorder("=") != dtype
    native = "little" if np.little_endian else "big"
    other = "big" if np.little_endian else "little"
    return str(dtype.name), other if swapped else native


def _bytes_codec(spec: CodecSpec, item_bytes: int, array: EncodedArray) -> CodecSpec:
    name, settings = _id(spec), spec.configuration
    if spec.name == "blosc":
        return CodecSpec("blosc", _blosc(settings, item_bytes))
    if spec.name == "gzip":
        return CodecSpec("gzip", {"level": _integer(settings.get("level"), 0, 9, 5)})
    if spec.name == "zstd":
        level = _integer(settings.get("level"), -131072, 22, 0)
        return CodecSpec("zstd", {"level": level, "checksum": settings.get("checksum") is True})
    if name in BYTE_FILTERS:
        return CodecSpec(f"{PREFIX}{name}", settings)
    raise _refused(array, f"the codec {name} of Zarr v2 has no equal in Zarr v3")


def _blosc(settings: Mapping[str, Any], item_bytes: int) -> dict[str, Any]:
    """Settings for encoding, all of which v3 wants to be there; a buffer tells those it was made with itself."""
    automatic = "bitshuffle" if item_bytes == 1 else "shuffle"
    name = settings.get("cname")
    return {
        "cname": name if name in BLOSC_NAMES else "lz4",
        "clevel": _integer(settings.get("clevel"), 0, 9, 5),
        "shuffle": BLOSC_SHUFFLES.get(_integer(settings.get("shuffle"), 0, 2, -1), automatic),
        "typesize": item_bytes,
        "blocksize": _integer(settings.get("blocksize"), 0, (1 << 31) - 1, 0),
    }


def _integer(value: object, low: int, high: int, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        return default
    return value
