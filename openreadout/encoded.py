"""The chunked array that Zarr and N5 share: a store, a rule from chunk index to key, and a codec chain."""

from __future__ import annotations

import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from openreadout import limits
from openreadout.arrays import (
    ArrayLayout,
    ChunkIndex,
    Presence,
    chunk_region,
    grid_shape,
    nth_index,
    region_shape,
)
from openreadout.codecs import ITEM_BYTES, ChunkSpec, CodecChain, CodecLookup, CodecSpec
from openreadout.errors import (
    CorruptDataError,
    InputError,
    OpenReadoutError,
    UnsupportedFeatureError,
)
from openreadout.record import record
from openreadout.stores import FarStore, Store, StoredObject, join_key
from openreadout.workers import Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_LISTED = 5_000_000
"""Keys of one array that are listed to count its chunks; beyond that, presence is sampled."""
FEW_CHUNKS = 16
"""Chunks that are looked up one by one where listing their folders would cost more."""
INDEXES_AHEAD = 8
"""Indexes of shards far away that are fetched at a time, ahead of the chunks that are read."""
MAX_FETCHED = 1 << 16
"""Shards far away that are fetched whole, and remembered; those after them are read chunk by chunk."""
INDEX_CACHE = 64
"""Shard indexes kept for one array."""


@record
class ChunkKeys:
    """From chunk index to key and back; Zarr v3 core specification, section "Chunk key encoding".

    `style` is `default` (`c/0/1`) or `v2` (`0.1`; N5 is `v2` with `/`, its axes fastest first).
    """

    style: str
    separator: str
    ndim: int

    def key(self, index: ChunkIndex) -> str:
        """The key below the array's own."""
        text = self.separator.join(map(str, index))
        if self.style == "default":
            return f"c{self.separator}{text}" if index else "c"
        return text or "0"

    def index(self, key: str) -> ChunkIndex | None:
        """The index that a key stands for, or None when it is no chunk's key."""
        text = key
        if self.style == "default":
            if self.ndim == 0:
                return () if key == "c" else None
            if not key.startswith(f"c{self.separator}"):
                return None
            text = key[2:]
        elif self.ndim == 0:
            return () if key == "0" else None
        parts = text.split(self.separator)
        if len(parts) != self.ndim or not all(
            p.isascii() and p.isdigit() and (p == "0" or p[0] != "0") for p in parts
        ):
            return None
        return tuple(map(int, parts))


class EncodedArray:
    """A chunked array stored as encoded chunks under keys.

    Parameters
    ----------
    store : Store
    path : str
        Key of the array; `""` is the root.
    shape, stored_chunk : tuple of int
        Lengths of the array and of the stored chunk (the shard, for a sharded array), in the order of the metadata.
    dtype : str
        numpy name, or the file's own word for a type that is not read.
    fill_value : object
        What absent chunks hold.
    keys : ChunkKeys
    codecs : tuple of CodecSpec
    lookup : CodecLookup
        Used when the first chunk is read; an unknown codec raises `UnsupportedFeatureError` only then.
    documents : tuple of str
        Names of the metadata documents beside the chunks, which are no strays.
    """

    def __init__(
        self,
        *,
        store: Store,
        path: str,
        shape: tuple[int, ...],
        stored_chunk: tuple[int, ...],
        dtype: str,
        fill_value: Any,
        keys: ChunkKeys,
        codecs: tuple[CodecSpec, ...],
        lookup: CodecLookup,
        documents: tuple[str, ...] = (),
    ) -> None:
        self.store = store
        self.path = path
        self.shape = shape
        self.stored_chunk = stored_chunk
        self.dtype = dtype
        self.fill_value = fill_value
        self.keys = keys
        self.codecs = codecs
        self.documents = documents
        self._lookup = lookup
        self._chain: CodecChain | None = None
        self._limit: int | None = None
        self._indexes: OrderedDict[str, tuple[StoredObject, Any] | None] = OrderedDict()
        self._loading: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._fetched: set[str] = set()
        self.read_whole = False
        """Whether every chunk is going to be read, so that shards far away are fetched whole where they are small."""
        shard = _inner_shape(codecs, len(shape))
        fits = shard is not None and all(
            c and s % c == 0 for c, s in zip(shard, stored_chunk, strict=True)
        )
        self.chunk_shape = shard if fits and shard is not None else stored_chunk
        self.layout = ArrayLayout(self.chunk_shape, stored_chunk if fits else None, codecs)

    # -- keys -------------------------------------------------------------------------------------------------------

    def stored_index(self, index: ChunkIndex) -> ChunkIndex:
        """The stored chunk (shard) that holds the chunk `index`."""
        return tuple(
            i * c // s for i, c, s in zip(index, self.chunk_shape, self.stored_chunk, strict=True)
        )

    def key(self, stored: ChunkIndex) -> str:
        """Key of a stored chunk (shard) in the store."""
        return join_key(self.path, self.keys.key(stored))

    def locate(self, index: ChunkIndex) -> str:
        return self.key(self.stored_index(index))

    # -- reading ----------------------------------------------------------------------------------------------------

    @property
    def chain(self) -> CodecChain:
        """The codec chain, built on first use."""
        if self._chain is None:
            self._chain = CodecChain.build(self.codecs, self._lookup)
        return self._chain

    @property
    def spec(self) -> ChunkSpec:
        """What a stored chunk decodes to."""
        if self.dtype not in ITEM_BYTES:
            raise UnsupportedFeatureError(
                f"{self.path or '/'}: data type {self.dtype} is not read",
                hint="only numbers and booleans can be pixels; leave this array out with --image",
            )
        spec = ChunkSpec(self.stored_chunk, self.dtype, self.fill_value)
        if spec.byte_count > limits.MAX_CHUNK_BYTES:
            raise CorruptDataError(
                f"{self.path or '/'}: one chunk would take {spec.byte_count} bytes, "
                f"more than the {limits.MAX_CHUNK_BYTES} that are accepted",
                hint=limits.raised_by("MAX_CHUNK_BYTES", spec.byte_count),
            )
        return spec

    @property
    def _partial(self) -> bool:
        return self.layout.shard is not None and self.chain.partial is not None

    @property
    def unit(self) -> tuple[CodecChain, ChunkSpec]:
        """The chain of a chunk of `chunk_shape`, and what it decodes to: for a sharded array, those inside a shard."""
        partial = self.chain.partial if self._partial else None
        if partial is None:
            return self.chain, self.spec
        return partial.chain, partial.inner_spec(self.spec)

    def read_encoded(self, index: ChunkIndex) -> bytes | None:
        """The stored bytes of the chunk `index` as they are, or None when it is absent.

        Raises the same errors as `read_chunk`, but for those of decoding.
        """
        if not self._partial:
            return self.store.get(self.locate(index), self._most(self.spec))
        loaded, partial = self._shard(self.stored_index(index)), self.chain.partial
        if loaded is None or partial is None:
            return None
        return partial.encoded_part(loaded[0], loaded[1], self._position(index), self.spec)

    def is_stored(self, index: ChunkIndex) -> bool:
        stored = self.stored_index(index)
        if not self._partial:
            return self.store.has(self.key(stored), self._most(self.spec))
        loaded = self._shard(stored)
        partial = self.chain.partial
        return (
            loaded is not None
            and partial is not None
            and partial.is_stored(loaded[1], self._position(index))
        )

    def read_chunk(self, index: ChunkIndex) -> NDArray[Any]:
        """The chunk, clipped to the array.

        Raises
        ------
        CorruptDataError
            The stored bytes do not decode to the chunk; the message names codec and key.
        StorageError
            The system refuses to read the key.
        UnsupportedFeatureError
            The data type or a codec is not read.
        """
        key = self.locate(index)
        try:
            chunk = self._decode(index, key)
        except OpenReadoutError as error:
            error.where = error.where or key
            error.path = error.path or self.store.path
            raise
        except MemoryError as error:
            raise CorruptDataError(
                "there is not enough memory for the size that the data declares", where=key
            ) from error
        wanted = region_shape(chunk_region(index, self.shape, self.chunk_shape))
        if chunk is None:
            return self._absent(wanted)
        return chunk if chunk.shape == wanted else chunk[tuple(slice(0, n) for n in wanted)]

    def _absent(self, shape: tuple[int, ...]) -> NDArray[Any]:
        import numpy as np

        return np.broadcast_to(np.asarray(self.fill_value, dtype=np.dtype(self.dtype)), shape)

    def _decode(self, index: ChunkIndex, key: str) -> NDArray[Any] | None:
        spec = self.spec
        if self._partial:
            loaded = self._shard(self.stored_index(index))
            partial = self.chain.partial
            if loaded is None or partial is None:
                return None
            return partial.decode_part(loaded[0], loaded[1], self._position(index), spec)
        data = self.store.get(key, self._most(spec))
        if data is None:
            return None
        chunk = self.chain.decode(data, spec)
        if self.chunk_shape == self.stored_chunk:
            return chunk
        within = tuple(
            slice(i * c, (i + 1) * c)
            for i, c in zip(self._position(index), self.chunk_shape, strict=True)
        )
        return chunk[within]

    def _most(self, spec: ChunkSpec) -> int:
        """Bytes that a stored chunk of `spec` may have: enough for padding, too few to fill the memory with."""
        if self._limit is None:
            most = 4 * self.chain.encoded(spec).count + limits.CHUNK_SLACK_BYTES
            self._limit = min(limits.MAX_ENCODED_BYTES, most)
        return self._limit

    def _position(self, index: ChunkIndex) -> ChunkIndex:
        """Grid position of a chunk inside its shard."""
        return tuple(
            i % (s // c) for i, c, s in zip(index, self.chunk_shape, self.stored_chunk, strict=True)
        )

    def _shard(self, stored: ChunkIndex) -> tuple[StoredObject, Any] | None:
        """A shard and its index, from the cache where it is known; None when the shard is absent."""
        key = self.key(stored)
        with self._lock:
            if key in self._indexes:
                self._indexes.move_to_end(key)
                return self._indexes[key]
            loading = self._loading.setdefault(key, threading.Lock())
        with loading:  # threads that begin the same shard together ask for its index once
            with self._lock:
                if key in self._indexes:
                    return self._indexes[key]
            try:
                loaded = self._load(key)
            finally:
                with self._lock:
                    self._loading.pop(key, None)
            with self._lock:
                self._indexes[key] = loaded
                while len(self._indexes) > INDEX_CACHE:
                    self._indexes.popitem(last=False)
        return loaded

    def _load(self, key: str) -> tuple[StoredObject, Any] | None:
        partial = self.chain.partial
        if partial is None:
            return None
        shard = self._look(key, *partial.index_place(self.spec))
        if shard is None:
            return None
        if shard.size() > self._most(self.spec):
            raise CorruptDataError(
                f"a shard of {shard.size()} bytes, far more than its chunks can take", where=key
            )
        index = partial.load_index(shard, self.spec)
        shard.let_go()
        return shard, index

    def _wants_whole(self, key: str) -> bool:
        """Whether a shard is to be fetched whole: once, since one that comes back was given up before it was read."""
        with self._lock:
            if not self.read_whole or key in self._fetched or len(self._fetched) >= MAX_FETCHED:
                return False
            self._fetched.add(key)
            return True

    def _look(self, key: str, length: int, start: bool) -> StoredObject | None:
        """A shard whose index of `length` bytes stands at its start or end; far away the index comes with the look."""
        if not isinstance(self.store, FarStore):
            size = self.store.size(key)
            return None if size is None else StoredObject(self.store, key, size)
        more = length + limits.SHARD_WHOLE_BYTES if self._wants_whole(key) else 0
        wanted = max(length, limits.SHARD_EDGE_BYTES, more)
        edge = self.store.get_edge(key, min(wanted, self._most(self.spec)), start=start)
        if edge is None:
            return None
        data, size = edge
        return StoredObject(self.store, key, size, data, 0 if start else size - len(data))

    # -- presence ---------------------------------------------------------------------------------------------------

    @property
    def grid(self) -> tuple[int, ...]:
        """Stored chunks (shards) along each axis."""
        return grid_shape(self.shape, self.stored_chunk)

    def presence(self) -> Presence:
        total = math.prod(self.grid)
        stored, strays, complete = self._listed()
        if not complete:
            return self._sampled(total)
        first = min(stored, default=None)
        last = max(stored, default=None)
        return Presence(
            total,
            len(stored),
            self._edge(first, 0),
            self._edge(last, -1),
            strays=tuple(sorted(strays)),
        )

    def _chunk_at(self, name: str, grid: tuple[int, ...]) -> ChunkIndex | None:
        """The index of the chunk that a key below the array's stands for; None when it lies outside the grid."""
        index = self.keys.index(name)
        inside = index is not None and all(i < g for i, g in zip(index, grid, strict=True))
        return index if inside else None

    def _listed(self) -> tuple[list[ChunkIndex], list[str], bool]:
        """Indices of the stored chunks inside the grid, keys that are no chunk's, and whether all keys were seen."""
        grid, base = self.grid, f"{self.path}/" if self.path else ""
        found: list[ChunkIndex] = []
        strays: list[str] = []
        if not self.store.can_walk:
            return found, strays, False
        # Folders where chunks belong count as stored: reading such a chunk says what is wrong.
        blocked: set[ChunkIndex] = set()
        for n, (key, _) in enumerate(self.store.walk(self.path)):
            if n >= MAX_LISTED:
                return found, strays, False
            name = key.removeprefix(base)
            index = self._chunk_at(name.removesuffix("/"), grid)
            if index is not None:
                found.append(index)
            elif name.endswith("/"):
                continue  # an empty folder is no chunk and does no harm
            elif (folder := self._chunk_at(name.rpartition("/")[0], grid)) is not None:
                blocked.add(folder)
            elif name not in self.documents:
                strays.append(key)
        found += blocked.difference(found)
        return found, strays, True

    def _sampled(self, total: int) -> Presence:
        """Estimate presence from evenly spaced chunks."""
        most, threads = (
            (limits.PRESENCE_SAMPLES, 1)
            if self.store.can_walk
            else (limits.REMOTE_SAMPLES, limits.MAX_REQUESTS)
        )
        step = max(1, -(-total // most))
        tried = [nth_index(n, self.grid) for n in range(0, total, step)]
        with Workers(min(threads, len(tried))) as workers:
            sizes = list(workers.map(lambda index: self.store.size(self.key(index)), tried))
        there = [index for index, size in zip(tried, sizes, strict=True) if size is not None]
        first, last = (there[0], there[-1]) if there else (None, None)
        return Presence(
            total,
            len(there) * total // max(1, len(tried)),
            self._edge(first, 0),
            self._edge(last, -1),
            len(tried) == total,
            len(tried),
        )

    def all_there(self) -> bool | None:
        """Whether every chunk is stored, where that can be told without listing folders; None elsewhere."""
        if not self._few or self.layout.shard is not None:
            return None
        return all(map(self._occupied, itertools.product(*map(range, self.grid))))

    @property
    def _few(self) -> bool:
        """Whether looking up each chunk costs less than a listing, one request of which tells of many far away."""
        near = self.store.can_walk and not self.store.far
        return near and math.prod(self.grid) <= FEW_CHUNKS

    def _occupied(self, stored: ChunkIndex) -> bool:
        """Whether anything stands where a chunk belongs; what is no file is met again by whoever reads it."""
        try:
            return self.store.size(self.key(stored)) is not None
        except InputError:
            return True

    def _edge(self, stored: ChunkIndex | None, which: int) -> ChunkIndex | None:
        """The first (0) or last (-1) chunk inside a stored chunk, in units of `chunk_shape`."""
        if stored is None or self.layout.shard is None:
            return stored
        try:
            parts = self._parts(stored)
        except InputError:
            parts = []  # reading any of its chunks raises the error again, for the caller to report
        return parts[which] if parts else self._inside(stored, (0,) * len(stored))

    def _inside(self, stored: ChunkIndex, position: ChunkIndex) -> ChunkIndex:
        return tuple(
            i * (s // c) + p
            for i, s, c, p in zip(
                stored, self.stored_chunk, self.chunk_shape, position, strict=True
            )
        )

    def _parts(self, stored: ChunkIndex) -> list[ChunkIndex]:
        """The stored chunks inside a shard that lie inside the array, in C order."""
        if not self._partial:
            positions: Iterator[ChunkIndex] | list[ChunkIndex] = [
                nth_index(n, grid_shape(self.stored_chunk, self.chunk_shape))
                for n in range(math.prod(grid_shape(self.stored_chunk, self.chunk_shape)))
            ]
        else:
            loaded, partial = self._shard(stored), self.chain.partial
            if loaded is None or partial is None:
                return []
            positions = partial.stored_parts(loaded[1], self.spec)
        limit = grid_shape(self.shape, self.chunk_shape)
        inside = (self._inside(stored, position) for position in positions)
        return [index for index in inside if all(i < g for i, g in zip(index, limit, strict=True))]

    def stored_indices(self) -> Iterator[ChunkIndex]:
        found, _, complete = ([], [], False) if self._few else self._listed()
        stored: Iterator[ChunkIndex] = iter(sorted(found))
        if not complete:
            everything = (nth_index(n, self.grid) for n in range(math.prod(self.grid)))
            # where each question costs a request, the reading of the chunk is the question
            stored = filter(self._occupied, everything) if self.store.can_walk else everything
        if self.layout.shard is None:
            yield from stored
            return
        for first in stored:  # alone, since often no more than that is wanted
            yield from self._parts_or_first(first)
            break
        with Workers(INDEXES_AHEAD if self.store.far else 1) as workers:
            for parts in workers.map(self._parts_or_first, stored):
                yield from parts

    def _parts_or_first(self, stored: ChunkIndex) -> list[ChunkIndex]:
        """The stored chunks inside a shard; of a damaged one the first, whoever reads it meets the error."""
        try:
            return self._parts(stored)
        except InputError:
            return [self._inside(stored, (0,) * len(stored))]


def _inner_shape(codecs: tuple[CodecSpec, ...], ndim: int) -> tuple[int, ...] | None:
    """The chunk shape inside a shard, when sharding is the whole chain."""
    if len(codecs) != 1 or codecs[0].name != "sharding_indexed":
        return None
    shape = codecs[0].configuration.get("chunk_shape")
    if (
        not isinstance(shape, list | tuple)
        or len(shape) != ndim
        or not all(isinstance(n, int) and n > 0 for n in shape)
    ):
        return None
    return tuple(shape)
