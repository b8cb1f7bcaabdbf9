"""N5 attributes as Zarr v3 metadata documents, and back.

The codec specification of `n5_default`, "Compatibility notes". User attributes keep their names in both; the members by
which N5 describes a dataset, and the version at the root, are not shown as attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openreadout.codecs import CodecSpec
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout_n5.attributes import DATA_TYPES, is_dataset, n5_default, parse_dataset

N5_VERSION = "2.0.0"
"""What a new root states: blocks of default mode have been the same since, and older libraries refuse newer ones."""
VERSION_KEY = "n5"
DATASET_KEYS = frozenset(("dimensions", "blockSize", "dataType", "compression", "compressionType"))
GROUP: dict[str, Any] = {"zarr_format": 3, "node_type": "group"}
MAX_BLOCK_SIDE = (1 << 31) - 1
_SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
_ARRAY_KEYS = frozenset(
    (
        "zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs",
        "attributes", "dimension_names", "storage_transformers",
    )
)  # fmt: skip


def to_zarr(attributes: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The Zarr v3 document of a group or dataset.

    Raises
    ------
    CorruptDataError
        The attributes of a dataset are damaged; `key` is named.
    UnsupportedFeatureError
        The data type has no equivalent.
    """
    if not is_dataset(attributes):
        return {**GROUP, "attributes": _user(attributes, {VERSION_KEY})}
    info = parse_dataset("", key, attributes)
    if info.dtype not in DATA_TYPES:
        raise UnsupportedFeatureError(
            f"data type {info.dtype} has no equivalent in Zarr", where=key
        )
    document: dict[str, Any] = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(info.shape),
        "data_type": info.dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(info.block)}},
        "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}},
        "fill_value": 0.0 if info.dtype.startswith("float") else 0,
        "codecs": [_codec(len(info.shape), info.compressor)],
        "attributes": _user(attributes, DATASET_KEYS | {VERSION_KEY}),
    }
    names = attributes.get("axes")
    named = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if isinstance(names, list) and named and len(names) == len(info.shape):
        document["dimension_names"] = names
    return document


def _user(attributes: Mapping[str, Any], hidden: frozenset[str] | set[str]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if name not in hidden}


def _codec(ndim: int, compressor: CodecSpec | None) -> dict[str, Any]:
    if compressor is not None and compressor.name == "zlib":
        compressor = CodecSpec("numcodecs.zlib", compressor.configuration)
    spec = n5_default(ndim, compressor)
    return {"name": spec.name, "configuration": dict(spec.configuration)}


# -- writing --------------------------------------------------------------------------------------------


def from_zarr(
    document: Mapping[str, Any], known: Mapping[str, Any], key: str, *, root: bool
) -> dict[str, Any]:
    """The N5 attributes of a Zarr v3 document.

    Parameters
    ----------
    document : mapping
        A Zarr v3 group or array.
    known : mapping
        The attributes that stand there so far; a version in them is kept.
    key : str
        Key of the document, for messages.
    root : bool
        Whether it is the root, which states the N5 version.

    Raises
    ------
    UnsupportedFeatureError
        The document uses what N5 cannot express; the message says what.
    CorruptDataError
        The document is not one of Zarr v3.
    """
    user = document.get("attributes", {})
    if not isinstance(user, dict):
        raise CorruptDataError("/attributes: expected an object", where=key)
    version = known.get(VERSION_KEY) or (N5_VERSION if root else None)
    stated = {} if version is None else {VERSION_KEY: version}
    taken = sorted((DATASET_KEYS | {VERSION_KEY}) & set(user))
    if taken:
        raise _cannot(key, f"an attribute named {taken[0]}, which N5 uses itself")
    if document.get("node_type") == "group":
        if document.get("consolidated_metadata") is not None:
            raise _cannot(key, "consolidated metadata")
        return {**stated, **user}
    if document.get("node_type") != "array":
        raise CorruptDataError("/node_type: expected group or array", where=key)
    return {**stated, **_array(document, user, key), **user}


def _cannot(key: str, what: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"N5 cannot hold {what}",
        where=key,
        hint="create the array with the codec n5_default, key encoding v2 with /, and fill value 0",
    )


def _array(document: Mapping[str, Any], user: Mapping[str, Any], key: str) -> dict[str, Any]:
    unknown = sorted(
        name
        for name, value in document.items()
        if name not in _ARRAY_KEYS
        and not (isinstance(value, dict) and value.get("must_understand") is False)
    )
    if unknown or document.get("storage_transformers"):
        raise _cannot(key, unknown[0] if unknown else "storage transformers")
    shape = _lengths(document.get("shape"), key, "shape")
    grid = _extension(document, "chunk_grid", key)
    block = _lengths(grid[1].get("chunk_shape"), key, "chunk_grid")
    encoding = _extension(document, "chunk_key_encoding", key)
    if grid[0] != "regular" or not shape or len(block) != len(shape):
        raise _cannot(key, f"a chunk grid {grid[0]} over {len(shape)} dimensions")
    if any(not 0 < n <= MAX_BLOCK_SIDE for n in block):
        raise _cannot(key, f"blocks of {block}")
    if encoding[0] != "v2" or encoding[1].get("separator") != "/":
        raise _cannot(key, "chunk keys other than v2 with /")
    if not isinstance(document.get("data_type"), str) or document["data_type"] not in DATA_TYPES:
        raise _cannot(key, f"data type {str(document.get('data_type'))[:80]}")
    fill = document.get("fill_value")
    if fill is not None and (
        isinstance(fill, bool) or not isinstance(fill, int | float) or fill != 0
    ):
        raise _cannot(key, f"the fill value {str(fill)[:80]}")
    attributes: dict[str, Any] = {
        "dimensions": shape,
        "blockSize": block,
        "dataType": document["data_type"],
        "compression": _compression(document.get("codecs"), len(shape), key),
    }
    names = document.get("dimension_names")
    if isinstance(names, list) and any(name is not None for name in names):
        if user.get("axes", names) != names or not all(isinstance(name, str) for name in names):
            raise _cannot(key, "dimension names that are partly unset or differ from its axes")
        attributes["axes"] = names
    return attributes


def _lengths(value: object, key: str, field: str) -> list[int]:
    if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
        raise CorruptDataError(f"/{field}: expected a list of lengths", where=key)
    return list(value)


def _extension(document: Mapping[str, Any], field: str, key: str) -> tuple[str, Mapping[str, Any]]:
    value = document.get(field)
    if isinstance(value, str):
        return value, {}
    name = value.get("name") if isinstance(value, dict) else None
    settings = value.get("configuration", {}) if isinstance(value, dict) else None
    if not isinstance(name, str) or not isinstance(settings, dict):
        raise CorruptDataError(f"/{field}: expected a name and a configuration", where=key)
    return name, settings


def _compression(codecs: object, ndim: int, key: str) -> dict[str, Any]:
    """The `compression` object of an array whose only codec is `n5_default`."""
    if not isinstance(codecs, list) or len(codecs) != 1:
        raise _cannot(key, "codecs other than n5_default alone")
    name, settings = _extension({"codec": codecs[0]}, "codec", key)
    inner = settings.get("codecs")
    if name != "n5_default" or not isinstance(inner, list) or len(inner) not in (2, 3):
        raise _cannot(key, "codecs other than n5_default alone")
    _check_order(inner, ndim, key)
    if len(inner) == 2:
        return {"type": "raw"}
    return _compressor(*_extension({"codec": inner[2]}, "codec", key), key)


def _check_order(inner: Sequence[object], ndim: int, key: str) -> None:
    transpose = _extension({"codec": inner[0]}, "codec", key)
    order = transpose[1].get("order")
    if transpose[0] != "transpose" or order != list(range(ndim - 1, -1, -1)):
        raise _cannot(key, "an n5_default codec without a full transposition")
    encoding = _extension({"codec": inner[1]}, "codec", key)
    if encoding[0] != "bytes" or encoding[1].get("endian", "big") not in ("big", None):
        raise _cannot(key, "bytes that are not big-endian")


def _compressor(name: str, settings: Mapping[str, Any], key: str) -> dict[str, Any]:
    level = settings.get("level")
    if name in ("gzip", "numcodecs.gzip"):
        return {"type": "gzip", "level": 5 if level is None else level, "useZlib": False}
    if name in ("zlib", "numcodecs.zlib"):
        return {"type": "gzip", "level": 1 if level is None else level, "useZlib": True}
    if name in ("bz2", "numcodecs.bz2"):
        return {"type": "bzip2", "blockSize": 1 if level is None else level}
    if name in ("zstd", "numcodecs.zstd"):
        return {"type": "zstd", "level": 0 if level is None else level}
    if name in ("lzma", "xz", "numcodecs.lzma"):
        if settings.get("format", 1) != 1 or settings.get("filters") is not None:
            raise _cannot(key, "xz in another container or with filters of its own")
        preset = settings.get("preset")
        return {"type": "xz", "preset": 6 if preset is None else preset}
    if name == "blosc":
        return _blosc(settings, key)
    if name == "n5.lz4":
        return {"type": "lz4", "blockSize": settings.get("blockSize", 65536)}
    raise _cannot(key, f"the compressor {name[:80]}")


def _blosc(settings: Mapping[str, Any], key: str) -> dict[str, Any]:
    shuffle = settings.get("shuffle", "noshuffle")
    if shuffle not in _SHUFFLES:
        raise _cannot(key, f"blosc with shuffle {str(shuffle)[:40]}")
    return {
        "type": "blosc",
        "cname": settings.get("cname", "lz4"),
        "clevel": settings.get("clevel", 5),
        "shuffle": _SHUFFLES[shuffle],
        "blocksize": settings.get("blocksize", 0),
    }
