"""Data types and fill values of Zarr v2 and v3 metadata.

Zarr v2 specification, sections "Data type encoding" and "Fill value encoding"; Zarr v3 core specification, sections
"Data types" and "Fill value".
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from openreadout.codecs import ITEM_BYTES
from openreadout.errors import CorruptDataError
from openreadout_ome_zarr.checked import number

_V2_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
_FORMATS = {"float16": "e", "float32": "f", "float64": "d", "complex64": "ff", "complex128": "dd"}
_WORDS = {"nan": float("nan"), "infinity": float("inf"), "-infinity": float("-inf")}
MAX_WORD = 80


class DataType(NamedTuple):
    """A data type: numpy's `name`, or the file's own word for a type that is not read; and its `endian` in Zarr v2."""

    name: str
    endian: str | None = None


def parse_v2_type(value: object) -> DataType:
    """Read the `dtype` of `.zarray`; raises `CorruptDataError` for one that is neither text nor a list of fields."""
    if isinstance(value, list):
        return DataType(_shorten(repr(value)))
    if not isinstance(value, str) or not value:
        raise CorruptDataError("dtype is neither text nor a list of fields")
    order, kind, size = value[0], value[1:2], value[2:]
    if (
        order in "<>|="
        and kind in _V2_KINDS
        and size.isascii()
        and size.isdigit()
        and len(size) < 3
    ):
        name = "bool" if kind == "b" and size == "1" else f"{_V2_KINDS[kind]}{int(size) * 8}"
        if name in ITEM_BYTES:
            return DataType(name, "big" if order == ">" else "little")
    return DataType(_shorten(value))


def parse_v3_type(value: object) -> DataType:
    """Read the `data_type` of `zarr.json`; an object without a configuration stands for its name."""
    if isinstance(value, str) and value:
        return DataType(_shorten(value))
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        name = value["name"]
        return DataType(_shorten(name if not value.get("configuration") else repr(value)))
    raise CorruptDataError("data_type is neither text nor an object with a name")


def _shorten(word: str) -> str:
    word = word.encode("utf-8", "replace").decode("utf-8")
    return word if len(word) <= MAX_WORD else f"{word[:MAX_WORD]}…"


def parse_fill(value: object, dtype: DataType) -> Any:
    """Read a fill value of any form that Zarr and its writers use.

    Null is 0. Text may be a number, `NaN`, `Infinity`, a bit pattern in hex (`0x7fc00000`) or base64 of the bytes.

    Returns
    -------
    bool, int, float or complex
        A value that the type can hold; 0 for a type that is not read.

    Raises
    ------
    CorruptDataError
        The type cannot hold the value, or it is of another kind.
    """
    if value is None or dtype.name not in ITEM_BYTES:
        return 0
    try:
        found = _parse(value, dtype)
    except (ValueError, OverflowError, struct.error):
        found = None
    if found is None:
        raise CorruptDataError(f"fill_value {_shorten(repr(value))} is not a value of {dtype.name}")
    return found


def _parse(value: object, dtype: DataType) -> Any:
    name = dtype.name
    if name == "bool":
        return _bool(value, dtype)
    if name.startswith("complex"):
        return _complex(value, dtype)
    if name.startswith("float"):
        return _float(value, dtype, name)
    return _int(value, dtype)


def _bool(value: object, dtype: DataType) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        known = {"true": True, "false": False, "1": True, "0": False}.get(value.lower())
        return known if known is not None else bool(_bytes(value, dtype)[0])
    known_number = number(value)
    return bool(known_number) if known_number in (0.0, 1.0) else None


def _int(value: object, dtype: DataType) -> int | None:
    bits = ITEM_BYTES[dtype.name] * 8
    signed = not dtype.name.startswith("u")
    if isinstance(value, str):
        value = _int_text(value, dtype, signed=signed)
    if isinstance(value, float):
        if not value.is_integer():
            return None
        value = int(value)
    if not isinstance(value, int):
        return None
    value = int(value)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return value if low <= value <= high else None


def _int_text(value: str, dtype: DataType, *, signed: bool) -> int | float:
    if value.lower().startswith("0x"):
        return int(value, 16)
    try:
        return int(value) if value.strip().lstrip("+-").isdigit() else float(value)
    except ValueError:
        return int.from_bytes(_bytes(value, dtype), _order(dtype), signed=signed)


def _float(value: object, dtype: DataType, name: str) -> float | None:
    form = _FORMATS[name]
    if isinstance(value, str):
        known = _WORDS.get(value.lower())
        if known is not None:
            return known
        if value.lower().startswith("0x"):
            raw = int(value, 16).to_bytes(ITEM_BYTES[name], "big")
            return float(struct.unpack(f">{form}", raw)[0])
        try:
            found = float(value)
        except ValueError:
            mark = ">" if _order(dtype) == "big" else "<"
            return float(struct.unpack(f"{mark}{form}", _bytes(value, dtype))[0])
    else:
        plain = number(value)
        if plain is None:
            return None
        found = plain
    struct.pack(f"<{form}", found)  # raises OverflowError for a number beyond the type's range
    return found


def _complex(value: object, dtype: DataType) -> complex | None:
    part = "float32" if dtype.name == "complex64" else "float64"
    if isinstance(value, list) and len(value) == 2:
        real, imaginary = (_float(item, DataType(part, dtype.endian), part) for item in value)
        return None if real is None or imaginary is None else complex(real, imaginary)
    if isinstance(value, str):
        mark = ">" if _order(dtype) == "big" else "<"
        form = f"{mark}{_FORMATS[dtype.name]}"
        return complex(*struct.unpack(form, _bytes(value, dtype)))
    real = _float(value, DataType(part, dtype.endian), part)
    return None if real is None else complex(real, 0.0)


def _bytes(value: str, dtype: DataType) -> bytes:
    """The bytes of one sample in base64; raises `ValueError` for another number of bytes."""
    import base64  # seldom needed, and not free to import

    raw = base64.b64decode(value, validate=True)
    if len(raw) != ITEM_BYTES[dtype.name]:
        raise ValueError(value)
    return raw


def _order(dtype: DataType) -> Any:
    return "big" if dtype.endian == "big" else "little"
