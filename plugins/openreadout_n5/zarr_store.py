"""Stores for zarr-python that show an N5 container as Zarr v3, for reading and for writing.

```python
import zarr
from zarr.storage import LocalStore
from openreadout_n5.zarr_store import N5DefaultStore

group = zarr.open_group(N5DefaultStore(LocalStore("data.n5")), mode="r")
```

The codec specification of `n5_default`, "Compatibility notes", describes both stores. Arrays have the axes of N5,
fastest first. Only this module of the package imports zarr.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Self

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype

from openreadout.errors import CorruptDataError
from openreadout.jsons import parse_json
from openreadout_n5.attributes import ATTRIBUTES, is_dataset
from openreadout_n5.zarr_metadata import GROUP, from_zarr, to_zarr

DOCUMENT = "zarr.json"


def _is_document(key: str) -> bool:
    return key == DOCUMENT or key.endswith(f"/{DOCUMENT}")


def _folder(key: str) -> str:
    """The prefix of a key's folder: empty, or with a slash at its end."""
    return key[: len(key) - len(key.rpartition("/")[2])]


def _cut(data: bytes, byte_range: ByteRequest | None) -> bytes:
    if byte_range is None:
        return data
    if isinstance(byte_range, RangeByteRequest):
        return data[byte_range.start : byte_range.end]
    if isinstance(byte_range, OffsetByteRequest):
        return data[byte_range.offset :]
    if isinstance(byte_range, SuffixByteRequest):
        return data[max(0, len(data) - byte_range.suffix) :]
    raise ValueError(f"Unexpected byte_range, got {byte_range}.")


def _dumped(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()


class _Wrapping(Store):
    """A store that hands everything to another one.

    Parameters
    ----------
    store : zarr.abc.store.Store
        The store that is wrapped.
    read_only : bool
        Refuse to write, whatever the wrapped store allows.
    """

    def __init__(self, store: Store, *, read_only: bool = False) -> None:
        if read_only and not store.read_only:
            store = store.with_read_only(read_only=True)
        super().__init__(read_only=store.read_only)
        self._store = store

    async def _open(self) -> None:
        await self._store._ensure_open()
        await super()._open()

    def close(self) -> None:
        self._store.close()
        super().close()

    def with_read_only(self, read_only: bool = False) -> Self:
        return type(self)(self._store.with_read_only(read_only=read_only))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other._store == self._store

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"

    def __str__(self) -> str:
        return f"n5+{self._store}"

    @property
    def supports_writes(self) -> bool:
        return self._store.supports_writes

    @property
    def supports_deletes(self) -> bool:
        return self._store.supports_deletes

    @property
    def supports_listing(self) -> bool:
        return self._store.supports_listing

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        return await self._store.get(key, prototype, byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, part) for key, part in key_ranges]

    async def exists(self, key: str) -> bool:
        return await self._store.exists(key)

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        await self._store.set(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        self._check_writable()
        if not _is_document(key):
            await self._store.set_if_not_exists(key, value)
        elif not await self.exists(key):
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        self._check_writable()
        await self._store.delete(key)

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        await self._store.delete_dir(prefix)

    async def clear(self) -> None:
        self._check_writable()
        await self._store.clear()

    async def is_empty(self, prefix: str) -> bool:
        return await self._store.is_empty(prefix)

    def list(self) -> AsyncIterator[str]:
        return self.list_prefix("")

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        return self._store.list_prefix(prefix)

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        return self._store.list_dir(prefix)

    async def _holds_something(self, folder: str) -> bool:
        """Whether anything lies below a prefix; a store that cannot list may hold anything."""
        if not self._store.supports_listing:
            return True
        async for _ in self._store.list_dir(folder.rstrip("/")):
            return True
        return False


class ImplicitGroupStore(_Wrapping):
    """Shows every folder without metadata as a Zarr v3 group.

    Where the wrapped store can list, a folder in which nothing lies is no group: otherwise nothing could be created, as
    every name would be taken. Where it cannot, every name without metadata is a group, as the specification has it.
    """

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        value = await self._store.get(key, prototype, byte_range)
        if value is not None or not _is_document(key):
            return value
        if not await self._holds_something(_folder(key)):
            return None
        return prototype.buffer.from_bytes(_cut(_dumped(GROUP), byte_range))


class N5DefaultStore(_Wrapping):
    """Shows N5 as Zarr v3: `zarr.json` is made from `attributes.json`, and the other way round.

    Blocks and all other keys are those of the wrapped store. A folder without attributes that holds something is a
    group, as in N5. A value for `zarr.json` that is no Zarr v3 document is kept under that key as it is; so is a
    `zarr.json` of a folder without attributes.

    Raises
    ------
    CorruptDataError, a ValueError
        The attributes are damaged, or a document to be written is.
    UnsupportedFeatureError, a NotImplementedError
        The dataset has no Zarr equivalent, or the document uses what N5 cannot express.
    """

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        if not _is_document(key):
            return await self._store.get(key, prototype, byte_range)
        folder = _folder(key)
        attributes = await self._attributes(folder)
        if attributes is not None:
            document = to_zarr(attributes, f"{folder}{ATTRIBUTES}")
            return prototype.buffer.from_bytes(_cut(_dumped(document), byte_range))
        value = await self._store.get(key, prototype, byte_range)
        if value is None and self.supports_listing and await self._is_implicit_group(folder):
            value = prototype.buffer.from_bytes(_cut(_dumped(GROUP), byte_range))
        return value

    async def _attributes(self, folder: str) -> Mapping[str, Any] | None:
        key = f"{folder}{ATTRIBUTES}"
        value = await self._store.get(key, default_buffer_prototype())
        if value is None:
            return None
        attributes = parse_json(value.to_bytes(), key, str(self._store))
        if not isinstance(attributes, dict):
            raise CorruptDataError("expected an object of attributes", where=key)
        return attributes

    async def _is_implicit_group(self, folder: str) -> bool:
        """Whether a folder holds something and does not lie inside a dataset, where folders hold blocks."""
        if not await self._holds_something(folder):
            return False
        while folder:
            folder = _folder(folder.rstrip("/"))
            above = await self._attributes(folder)
            if above is not None:
                return not is_dataset(above)
        return True

    async def exists(self, key: str) -> bool:
        if not _is_document(key):
            return await self._store.exists(key)
        folder = _folder(key)
        if await self._store.exists(f"{folder}{ATTRIBUTES}") or await self._store.exists(key):
            return True
        return self.supports_listing and await self._is_implicit_group(folder)

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        document = _zarr_document(value) if _is_document(key) else None
        if document is None:
            await self._store.set(key, value)
            return
        folder = _folder(key)
        known = await self._attributes(folder) or {}
        attributes = from_zarr(document, known, key, root=not folder)
        data = default_buffer_prototype().buffer.from_bytes(_dumped(attributes))
        await self._store.set(f"{folder}{ATTRIBUTES}", data)

    async def _set_many(self, values: Iterable[tuple[str, Buffer]]) -> None:
        for key, value in values:
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        self._check_writable()
        if _is_document(key):
            await self._store.delete(f"{_folder(key)}{ATTRIBUTES}")
        await self._store.delete(key)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        last = prefix.rpartition("/")[2]
        # A prefix that ends inside the name of the document is looked for among the keys of its folder.
        whole = bool(last) and DOCUMENT.startswith(last)
        async for key in self._store.list_prefix(_folder(prefix) if whole else prefix):
            shown = await self._shown(key)
            if shown is not None and shown.startswith(prefix):
                yield shown

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        folder = f"{prefix.rstrip('/')}/" if prefix.rstrip("/") else ""
        async for name in self._store.list_dir(prefix):
            shown = await self._shown(f"{folder}{name}")
            if shown is not None:
                yield shown.removeprefix(folder)

    async def _shown(self, key: str) -> str | None:
        """The name under which a key of the wrapped store is listed; None for one that another stands for."""
        folder, name = _folder(key), key.rpartition("/")[2]
        if name == ATTRIBUTES:
            return f"{folder}{DOCUMENT}"
        if name == DOCUMENT and await self._store.exists(f"{folder}{ATTRIBUTES}"):
            return None
        return key


def _zarr_document(value: Buffer) -> Mapping[str, Any] | None:
    """The Zarr v3 document that a value is, or None for anything else."""
    try:
        document = json.loads(value.to_bytes())
    except (ValueError, RecursionError):
        return None
    found = isinstance(document, dict) and document.get("zarr_format") == 3
    return document if found else None
