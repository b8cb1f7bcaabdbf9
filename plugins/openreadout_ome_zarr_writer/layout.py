"""Metadata documents of arrays and groups, Zarr v3 and v2, as plain JSON."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from openreadout.codecs import ITEM_BYTES, CodecSpec

if TYPE_CHECKING:
    from openreadout.contracts import PlannedLevel

_NESTED = dict, list, tuple
_V2_KINDS = {"bool": "b1", "complex64": "c8", "complex128": "c16"}


_flat = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def encode_json(document: dict[str, Any]) -> bytes:
    """A document as UTF-8, two spaces a level; what holds plain values only stands in one line.

    Metadata that are carried along may hold NaN and infinities, which JSON lacks; they become null.
    """
    try:
        text = _laid_out(document, "\n")
    except ValueError:
        text = _laid_out(_finite(document), "\n")
    return text.encode("utf-8", "backslashreplace")


def _laid_out(value: Any, line: str) -> str:
    """A JSON value, `line` being the line break and the indentation where it stands.

    The standard library lays out in Python, value by value, what it otherwise encodes in C; a plate has thousands of
    documents.
    """
    if isinstance(value, dict) and any(isinstance(v, _NESTED) for v in value.values()):
        inner = line + "  "
        items = (f"{_flat(str(k))}: {_laid_out(v, inner)}" for k, v in value.items())
        return f"{{{inner}{f',{inner}'.join(items)}{line}}}"
    if isinstance(value, list | tuple) and any(isinstance(v, _NESTED) for v in value):
        inner = line + "  "
        return f"[{inner}{f',{inner}'.join(_laid_out(v, inner) for v in value)}{line}]"
    return _flat(value)


def _finite(value: Any) -> Any:
    """A JSON value with null for the numbers that JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def array_codecs(level: PlannedLevel) -> tuple[CodecSpec, ...]:
    """The chain of the stored chunk: the chunk's own, or sharding around it."""
    if level.shard is None:
        return level.codecs
    inner = [{"name": c.name, "configuration": dict(c.configuration)} for c in level.codecs]
    return (
        CodecSpec(
            "sharding_indexed",
            {
                "chunk_shape": list(level.chunk),
                "codecs": inner,
                "index_codecs": [
                    {"name": "bytes", "configuration": {"endian": "little"}},
                    {"name": "crc32c"},
                ],
                "index_location": "end",
            },
        ),
    )


def array_v3(level: PlannedLevel, axes: str) -> dict[str, Any]:
    """`zarr.json` of an array; Zarr v3 core specification, section "Array metadata"."""
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(level.shape),
        "data_type": level.dtype,
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": list(level.shard or level.chunk)},
        },
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_v3(level.fill_value),
        "codecs": [
            {"name": c.name, "configuration": dict(c.configuration)}
            if c.configuration
            else {"name": c.name}
            for c in array_codecs(level)
        ],
        "attributes": {},
        "dimension_names": list(axes),
    }


def array_v2(level: PlannedLevel) -> dict[str, Any]:
    """`.zarray`; Zarr v2 specification, section "Arrays", with nested keys as NGFF 0.4 wants them."""
    return {
        "zarr_format": 2,
        "shape": list(level.shape),
        "chunks": list(level.chunk),
        "dtype": v2_dtype(level.dtype),
        "compressor": _compressor(level.codecs),
        "fill_value": _fill_v2(level.fill_value),
        "order": "C",
        "filters": None,
        "dimension_separator": "/",
    }


def v2_dtype(dtype: str) -> str:
    """The type as numpy writes it, little-endian."""
    size = ITEM_BYTES[dtype]
    code = _V2_KINDS.get(dtype) or f"{dtype[0]}{size}"
    return f"{'<' if size > 1 else '|'}{code}"


def _compressor(codecs: tuple[CodecSpec, ...]) -> dict[str, Any] | None:
    if len(codecs) < 2:
        return None
    spec = codecs[-1]
    configuration = dict(spec.configuration)
    if spec.name == "blosc":
        shuffle = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}[configuration["shuffle"]]
        return {
            "id": "blosc",
            "cname": configuration["cname"],
            "clevel": configuration["clevel"],
            "shuffle": shuffle,
            "blocksize": 0,
        }
    if spec.name == "zstd":
        return {"id": "zstd", "level": configuration["level"]}
    return {"id": spec.name, **configuration}


def _special(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def fill_v3(value: Any) -> Any:
    """A fill value as `zarr.json` has it; Zarr v3 core specification, section "Fill value"."""
    if isinstance(value, complex):
        return [_special(value.real), _special(value.imag)]
    return _special(value) if isinstance(value, float) else value


def _fill_v2(value: Any) -> Any:
    """As v3, but a complex number has no agreed form in v2: only 0 and null can be written."""
    if isinstance(value, complex):
        return [_special(value.real), _special(value.imag)]
    return _special(value) if isinstance(value, float) else value


def group_v3(attributes: dict[str, Any]) -> dict[str, Any]:
    """`zarr.json` of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes}
