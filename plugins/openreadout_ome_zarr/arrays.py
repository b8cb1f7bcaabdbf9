"""Zarr arrays: `.zarray` and `zarr.json` to `EncodedArray`.

Zarr v2 specification, section "Arrays"; Zarr v3 core specification, section "Array metadata". Codecs become
`CodecSpec`s in the order of v3 and are built when the first chunk is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from openreadout import limits
from openreadout.codecs import ITEM_BYTES, CodecSpec
from openreadout.encoded import ChunkKeys, EncodedArray
from openreadout.errors import CorruptDataError, FileError, UnsupportedFeatureError
from openreadout_ome_zarr.checked import clean, items, mapping, whole
from openreadout_ome_zarr.documents import json_object, key_of
from openreadout_ome_zarr.dtypes import DataType, parse_fill, parse_v2_type, parse_v3_type

if TYPE_CHECKING:
    from openreadout.codecs import CodecFactory, CodecLookup
    from openreadout.stores import Store

V2_DOCUMENTS = (".zarray", ".zattrs", "zarr.json", "attributes.json")
V3_DOCUMENTS = ("zarr.json", ".zarray", ".zattrs", "attributes.json")
"""Names beside the chunks that are no strays: a folder may carry the metadata of more than one format."""
V3_ONLY = frozenset(
    ("bytes", "transpose", "reshape", "crc32c", "sharding_indexed", "jpeg", "n5_default")
)
"""Codec names whose meaning in Zarr v3 is not that of a Zarr v2 codec with the same id."""
KNOWN_KEYS = frozenset(
    ("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs",
     "attributes", "storage_transformers", "dimension_names", "consolidated_metadata", "must_understand")
)  # fmt: skip
KEYS_LOOKED_AT = 32
"""Names below an array that are looked at to tell the separator of its chunk keys."""


class Shape(NamedTuple):
    """What both versions say of an array."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: DataType
    fill_value: Any
    keys: ChunkKeys
    codecs: tuple[CodecSpec, ...]
    zarr_format: int


class OpenedArray(NamedTuple):
    """An array with the key of its document, its Zarr version, and what is odd about its chunk keys, in words."""

    array: EncodedArray
    document: str
    zarr_format: int
    oddity: str | None = None


def open_array(store: Store, path: str, lookup: CodecLookup) -> EncodedArray:
    """Open the array at a path, whichever Zarr version it is of.

    Parameters
    ----------
    store : Store
    path : str
        Key of the array, `""` for the root.
    lookup : CodecLookup
        Used when the first chunk is read.

    Returns
    -------
    EncodedArray
        Shape and chunks in the order of the metadata; its codecs may name some that are not installed.

    Raises
    ------
    CorruptDataError
        There is no array, or its metadata breaks the rules of Zarr.
    UnsupportedFeatureError
        It uses a chunk grid, chunk key encoding or storage transformer that is not read.
    StorageError
        The system refuses to read a document.
    """
    return load_array(store, path, lookup).array


def load_array(store: Store, path: str, lookup: CodecLookup, preferred: int = 3) -> OpenedArray:
    """`open_array`, with what else the reader wants to know; documents of version `preferred` are tried first."""
    path = key_of(path)
    for version in (3, 2) if preferred == 3 else (2, 3):
        key = key_of(path, "zarr.json" if version == 3 else ".zarray")
        document = json_object(store, key)
        if document is None or (version == 3 and document.get("node_type", "array") != "array"):
            continue
        try:
            parsed = parse_v3(document) if version == 3 else parse_v2(document)
        except (CorruptDataError, UnsupportedFeatureError) as error:
            error.where, error.path = key, store.path
            raise
        return _opened(store, path, key, parsed, lookup)
    raise CorruptDataError(
        "there is no array: its metadata document is missing",
        path=store.path,
        where=key_of(path, "zarr.json" if preferred == 3 else ".zarray"),
    )


def _opened(
    store: Store, path: str, document: str, parsed: Shape, lookup: CodecLookup
) -> OpenedArray:
    keys, oddity = parsed.keys, None
    if parsed.zarr_format == 2:
        keys = stored_keys(store, path, keys)
        if keys is not parsed.keys:
            oddity = (
                f"chunks are stored under the separator {keys.separator!r}, "
                f"not {parsed.keys.separator!r} as the metadata says or implies"
            )
        lookup = V2Lookup(lookup)
    array = EncodedArray(
        store=store,
        path=path,
        shape=parsed.shape,
        stored_chunk=parsed.chunk,
        dtype=parsed.dtype.name,
        fill_value=parsed.fill_value,
        keys=keys,
        codecs=parsed.codecs,
        lookup=lookup,
        documents=V2_DOCUMENTS if parsed.zarr_format == 2 else V3_DOCUMENTS,
    )
    return OpenedArray(array, document, parsed.zarr_format, oddity)


# -- chunk keys --------------------------------------------------


def stored_keys(store: Store, path: str, keys: ChunkKeys) -> ChunkKeys:
    """The chunk keys that an array is stored under: those that its metadata says, unless only others exist.

    Writers that nest their chunks and forget `dimension_separator` are common. One look-up settles it for an array
    whose first chunk is stored; a sparse one has a few of its names looked at.
    """
    if keys.ndim < 2:
        return keys
    other = ChunkKeys(keys.style, "." if keys.separator == "/" else "/", keys.ndim)
    first = (0,) * keys.ndim
    if _exists(store, key_of(path, keys.key(first))):
        return keys
    if _exists(store, key_of(path, other.key(first))):
        return other
    if not store.can_walk:
        return keys
    base = f"{path}/" if path else ""
    for key, _ in itertools.islice(store.walk(path), KEYS_LOOKED_AT):
        name = key.removeprefix(base)
        if keys.index(name) is not None:
            return keys
        if other.index(name) is not None:
            return other
    return keys


def _exists(store: Store, key: str) -> bool:
    try:
        return store.size(key) is not None
    except FileError:  # something stands there that is no file; reading the chunk will say so
        return True


# -- codecs of Zarr v2 --------------------------------------------------


class V2Lookup:
    """Finds codecs by the ids of Zarr v2: by their own name, else through numcodecs."""

    def __init__(self, lookup: CodecLookup) -> None:
        self._lookup = lookup

    def __call__(self, name: str) -> CodecFactory:
        try:
            return self._lookup(name)
        except UnsupportedFeatureError:
            if name.startswith("numcodecs."):
                raise
        return Renamed(self._lookup(f"numcodecs.{name}"), f"numcodecs.{name}")


class Renamed:
    """A codec factory that is told another name than the metadata's."""

    def __init__(self, factory: CodecFactory, name: str) -> None:
        self.kind = factory.kind
        self._factory = factory
        self._name = name

    def from_spec(self, spec: CodecSpec, lookup: CodecLookup) -> Any:
        """Build the codec under the other name."""
        return self._factory.from_spec(CodecSpec(self._name, spec.configuration), lookup)


def _v2_codecs(document: Mapping[str, Any], ndim: int, dtype: DataType) -> tuple[CodecSpec, ...]:
    order = document.get("order", "C")
    if order not in ("C", "F"):
        raise CorruptDataError(f"order is {clean(order)!r}, neither C nor F")
    specs = []
    if order == "F" and ndim > 1:
        specs.append(CodecSpec("transpose", {"order": list(range(ndim))[::-1]}))
    wide = ITEM_BYTES.get(dtype.name, 1) > 1
    specs.append(CodecSpec("bytes", {"endian": dtype.endian} if wide else {}))
    filters = document.get("filters")
    if filters is not None and not isinstance(filters, list):
        raise CorruptDataError("filters is not a list")
    compressor = document.get("compressor")
    stored = [*(filters or []), *([] if compressor is None else [compressor])]
    specs.extend(_v2_codec(item) for item in stored)
    return tuple(specs)


def _v2_codec(item: object) -> CodecSpec:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str) or not item["id"]:
        raise CorruptDataError("a filter or compressor has no id")
    name = clean(item["id"])
    configuration = {key: value for key, value in clean(item).items() if key != "id"}
    return CodecSpec(f"numcodecs.{name}" if name in V3_ONLY else name, configuration)


# -- documents --------------------------------------------------


def parse_v2(document: Mapping[str, Any]) -> Shape:
    """Read the content of `.zarray`; raises `CorruptDataError` where it breaks the Zarr v2 specification."""
    if document.get("zarr_format", 2) != 2:
        raise CorruptDataError(f"zarr_format is {clean(document.get('zarr_format'))!r}, not 2")
    shape = _lengths(document.get("shape"), "shape", 0)
    chunk = _chunk(document.get("chunks"), "chunks", shape)
    if "dtype" not in document:
        raise CorruptDataError("dtype is missing")
    dtype = parse_v2_type(document["dtype"])
    separator = document.get("dimension_separator", ".")
    if separator not in (".", "/"):
        raise CorruptDataError(f"dimension_separator is {clean(separator)!r}, neither . nor /")
    return Shape(
        shape,
        chunk,
        dtype,
        parse_fill(document.get("fill_value"), dtype),
        ChunkKeys("v2", separator, len(shape)),
        _v2_codecs(document, len(shape), dtype),
        2,
    )


def parse_v3(document: Mapping[str, Any]) -> Shape:
    """Read the content of an array's `zarr.json`.

    Raises
    ------
    CorruptDataError
        It breaks the Zarr v3 core specification.
    UnsupportedFeatureError
        Its chunk grid, chunk key encoding, storage transformers or an extension key that must be understood.
    """
    if document.get("zarr_format", 3) != 3:
        raise CorruptDataError(f"zarr_format is {clean(document.get('zarr_format'))!r}, not 3")
    shape = _lengths(document.get("shape"), "shape", 0)
    _refuse_extensions(document)
    if "data_type" not in document:
        raise CorruptDataError("data_type is missing")
    dtype = parse_v3_type(document["data_type"])
    codecs = document.get("codecs")
    if not isinstance(codecs, list) or not codecs:
        raise CorruptDataError("codecs is not a list with at least one codec")
    return Shape(
        shape,
        _regular_chunk(document.get("chunk_grid"), shape),
        dtype,
        parse_fill(document.get("fill_value"), dtype),
        _chunk_keys(document.get("chunk_key_encoding", "default"), len(shape)),
        tuple(_named(item, "a codec") for item in codecs),
        3,
    )


def _refuse_extensions(document: Mapping[str, Any]) -> None:
    if document.get("storage_transformers"):
        raise UnsupportedFeatureError("storage transformers are not supported")
    for key, value in document.items():
        if key not in KNOWN_KEYS and mapping(value).get("must_understand", True) is not False:
            raise UnsupportedFeatureError(f"the metadata key {clean(key)!r} is not understood")


def _named(item: object, what: str) -> CodecSpec:
    """A `{"name", "configuration"}` object; text alone is its name (Zarr v3.1, "Extension definition")."""
    if isinstance(item, str) and item:
        return CodecSpec(clean(item))
    if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not item["name"]:
        raise CorruptDataError(f"{what} has no name")
    configuration = item.get("configuration")
    if configuration is not None and not isinstance(configuration, dict):
        raise CorruptDataError(f"the configuration of {clean(item['name'])} is not an object")
    return CodecSpec(clean(item["name"]), clean(configuration or {}))


def _regular_chunk(value: object, shape: tuple[int, ...]) -> tuple[int, ...]:
    grid = _named(value, "chunk_grid")
    if grid.name != "regular":
        raise UnsupportedFeatureError(f"the chunk grid {clean(grid.name)!r} is not supported")
    return _chunk(grid.configuration.get("chunk_shape"), "chunk_grid: chunk_shape", shape)


def _chunk_keys(value: object, ndim: int) -> ChunkKeys:
    encoding = _named(value, "chunk_key_encoding")
    if encoding.name not in ("default", "v2"):
        raise UnsupportedFeatureError(
            f"the chunk key encoding {clean(encoding.name)!r} is not supported"
        )
    usual = "/" if encoding.name == "default" else "."
    separator = encoding.configuration.get("separator", usual)
    if separator not in (".", "/"):
        raise CorruptDataError(
            f"the separator of chunk keys is {clean(separator)!r}, neither . nor /"
        )
    return ChunkKeys(encoding.name, separator, ndim)


def _lengths(value: object, what: str, least: int) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise CorruptDataError(f"{what} is not a list of lengths")
    if len(value) > limits.MAX_DIMENSIONS:
        raise CorruptDataError(
            f"{what} has {len(value)} dimensions, more than {limits.MAX_DIMENSIONS}",
            hint=limits.raised_by("MAX_DIMENSIONS", len(value)),
        )
    lengths = [whole(item) for item in items(value)]
    if any(n is None or not least <= n <= limits.MAX_AXIS for n in lengths):
        raise CorruptDataError(f"{what} holds something else than lengths from {least} up")
    return tuple(n for n in lengths if n is not None)


def _chunk(value: object, what: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Chunk lengths; along an axis of length 0, which has no chunks, some writers leave 0."""
    chunk = _lengths(value, what, 0)
    if len(chunk) != len(shape):
        raise CorruptDataError(f"{what} has {len(chunk)} dimensions, the array has {len(shape)}")
    if any(c == 0 and n > 0 for c, n in zip(chunk, shape, strict=True)):
        raise CorruptDataError(f"{what} holds a chunk length of 0")
    return tuple(max(1, c) for c in chunk)
