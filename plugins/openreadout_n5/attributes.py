"""The attributes of an N5 dataset, checked, and the chunked array that they describe.

N5 lists dimensions fastest first; everything here keeps that order. N5 specification 4.0.0, "File-system
specification"; versions before 2 say `compressionType` where later ones have a `compression` object.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from openreadout import limits
from openreadout.arrays import ArrayLayout
from openreadout.codecs import ITEM_BYTES, CodecLookup, CodecSpec
from openreadout.encoded import ChunkKeys, EncodedArray
from openreadout.errors import CorruptDataError
from openreadout.stores import Store

ATTRIBUTES = "attributes.json"
# What may lie beside the blocks of a dataset without being one of them.
DOCUMENTS = (ATTRIBUTES, "zarr.json", ".zarray", ".zattrs", ".zgroup")
DATA_TYPES = frozenset(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)) | {
    "float32",
    "float64",
}
LABEL_MULTISET = "label multiset"
MAX_BLOCK_SIDE = (1 << 32) - 1
"""A block header holds each side in 32 bits."""

_BLOSC_SHUFFLES = {0: "noshuffle", 1: "shuffle", 2: "bitshuffle"}


class DatasetInfo(NamedTuple):
    """One N5 dataset: `shape` and `block` fastest axis first, `dtype` as numpy or the file itself names it."""

    path: str
    shape: tuple[int, ...]
    block: tuple[int, ...]
    dtype: str
    compressor: CodecSpec | None
    attributes: Mapping[str, Any]


def is_dataset(attributes: Mapping[str, Any]) -> bool:
    """Whether these are meant as the attributes of a dataset; `dimensions` alone may be anything."""
    return "dimensions" in attributes and ("dataType" in attributes or "blockSize" in attributes)


def finite(value: object) -> float | None:
    """A JSON number as a finite float, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def finite_list(value: object, limit: int | None = None) -> list[float | None] | None:
    """A JSON list of at most `limit` entries, each a finite float or None; None when it is no such list.

    Without `limit`, as many as an array may have axes.
    """
    if not isinstance(value, list) or not value or len(value) > (limit or limits.MAX_DIMENSIONS):
        return None
    return [finite(entry) for entry in value]


def parse_dataset(path: str, key: str, attributes: Mapping[str, Any]) -> DatasetInfo:
    """Check the attributes of a dataset.

    Raises
    ------
    CorruptDataError
        A field is absent, of the wrong type or out of range; the message names it and `key`.
    """
    shape = _lengths(attributes, "dimensions", key, 0, limits.MAX_AXIS)
    block = _lengths(attributes, "blockSize", key, 1, MAX_BLOCK_SIDE)
    if len(shape) != len(block):
        raise _wrong(key, "blockSize", f"{len(block)} entries where dimensions has {len(shape)}")
    dtype = attributes.get("dataType")
    if not isinstance(dtype, str) or not dtype or len(dtype) > 200:
        raise _wrong(key, "dataType", "not the name of a data type")
    dtype = dtype.lower() if dtype.lower() in DATA_TYPES else _foreign_type(dtype)
    if attributes.get("isLabelMultiset") is True:
        # Paintera stores lists of label counts in blocks that call themselves uint8: no pixels in it.
        dtype = LABEL_MULTISET
    compressor = compressor_spec(_compression(attributes, key), dtype)
    return DatasetInfo(path, shape, block, dtype, compressor, attributes)


def _foreign_type(name: str) -> str:
    """The file's own word for a type that N5 does not have as numbers; never mistaken for one that can be read."""
    return f"N5 {name}" if name in ITEM_BYTES else name


def _wrong(key: str, field: str, what: str) -> CorruptDataError:
    return CorruptDataError(f"/{field}: {what}", where=key, format_id="n5")


def _lengths(
    attributes: Mapping[str, Any], field: str, key: str, low: int, high: int
) -> tuple[int, ...]:
    value = attributes.get(field)
    if not isinstance(value, list) or not 1 <= len(value) <= limits.MAX_DIMENSIONS:
        error = _wrong(key, field, f"expected a list of 1 to {limits.MAX_DIMENSIONS} lengths")
        if isinstance(value, list) and value:
            error.hint = limits.raised_by("MAX_DIMENSIONS", len(value)) or error.hint
        raise error
    for n in value:
        if isinstance(n, bool) or not isinstance(n, int) or not low <= n <= high:
            raise _wrong(key, field, f"{str(n)[:40]} is not a length")
    return tuple(value)


def _compression(attributes: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The `compression` object, made from the older forms where a file has one of those."""
    value = attributes.get("compression", attributes.get("compressionType"))
    if isinstance(value, str):
        value = {"type": value}
    if not isinstance(value, dict):
        raise _wrong(key, "compression", "expected an object with a type")
    name = value.get("type", value.get("id"))
    if not isinstance(name, str) or not name or len(name) > 200:
        raise _wrong(key, "compression/type", "not the name of a compression")
    return {**value, "type": name}


def _integer(value: object, low: int, high: int, default: int) -> int:
    """A setting for the encoder; decoding never depends on it, so that a strange one does no harm."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        return default
    return value


def compressor_spec(compression: Mapping[str, Any], dtype: str) -> CodecSpec | None:
    """The bytes-to-bytes codec of an N5 `compression` object, or None for raw blocks.

    Parameters
    ----------
    compression : mapping
        With a string `type`.
    dtype : str
        The dataset's type, from whose size Blosc's `typesize` comes.

    Notes
    -----
    `level` -1 is the Java library's word for zlib's default, 6. Blosc's shuffle -1 is bit shuffle for one-byte items
    and byte shuffle otherwise. A compression of another name keeps it, so that it can be told.
    """
    name = compression["type"]
    level = compression.get("level")
    if name == "raw":
        return None
    if name == "gzip":
        codec = "zlib" if compression.get("useZlib") is True else "gzip"
        return CodecSpec(codec, {"level": _integer(level, 0, 9, 6)})
    if name == "bzip2":
        return CodecSpec(
            "numcodecs.bz2", {"level": _integer(compression.get("blockSize"), 1, 9, 9)}
        )
    if name == "xz":
        preset = _integer(compression.get("preset"), 0, 9, 6)
        return CodecSpec("numcodecs.lzma", {"preset": preset})
    if name == "lz4":
        size = _integer(compression.get("blockSize"), 64, 1 << 25, 1 << 16)
        return CodecSpec("n5.lz4", {"blockSize": size})
    if name == "zstd":
        checksum = compression.get("checksum") is True
        return CodecSpec("zstd", {"level": _integer(level, -131072, 22, 3), "checksum": checksum})
    if name == "blosc":
        return CodecSpec("blosc", _blosc(compression, ITEM_BYTES.get(dtype, 1)))
    if name == "jpeg":
        return CodecSpec("n5.jpeg", {"quality": _integer(compression.get("quality"), 1, 100, 75)})
    return CodecSpec(name, {k: v for k, v in compression.items() if k not in ("type", "id")})


def _blosc(compression: Mapping[str, Any], item_bytes: int) -> dict[str, Any]:
    automatic = "bitshuffle" if item_bytes == 1 else "shuffle"
    shuffle = compression.get("shuffle")
    cname = compression.get("cname")
    known = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
    return {
        "cname": cname if cname in known else "lz4",
        "clevel": _integer(compression.get("clevel"), 0, 9, 5),
        "shuffle": _BLOSC_SHUFFLES.get(_integer(shuffle, 0, 2, -1), automatic),
        "typesize": item_bytes,
        "blocksize": _integer(compression.get("blocksize"), 0, 1 << 31, 0),
    }


def n5_default(ndim: int, compressor: CodecSpec | None) -> CodecSpec:
    """The codec `n5_default` of a dataset; codec specification, "Configuration parameters"."""
    chain: list[dict[str, Any]] = [
        {"name": "transpose", "configuration": {"order": list(range(ndim - 1, -1, -1))}},
        {"name": "bytes", "configuration": {"endian": "big"}},
    ]
    if compressor is not None:
        inner: dict[str, Any] = {"name": compressor.name}
        if compressor.configuration:
            inner["configuration"] = dict(compressor.configuration)
        chain.append(inner)
    return CodecSpec("n5_default", {"codecs": chain})


def encoded_array(store: Store, info: DatasetInfo, lookup: CodecLookup) -> EncodedArray:
    """The chunked array of a dataset, axes in N5 order (fastest first).

    Its `layout`, which people read, has the chunk slowest axis first and names the compressor beside `n5_default`.
    """
    codec = n5_default(len(info.shape), info.compressor)
    array = EncodedArray(
        store=store,
        path=info.path,
        shape=info.shape,
        stored_chunk=info.block,
        dtype=info.dtype,
        fill_value=0,
        keys=ChunkKeys("v2", "/", len(info.shape)),
        codecs=(codec,),
        lookup=lookup,
        documents=DOCUMENTS,
    )
    # People want to see the compressor; that a block is transposed and big-endian goes without saying.
    named = CodecSpec(codec.name)
    shown = (named,) if info.compressor is None else (named, info.compressor)
    array.layout = ArrayLayout(info.block[::-1], None, shown)
    return array
