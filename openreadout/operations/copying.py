"""Chunks that an export can take over as they are stored, each still decoded once to prove it whole."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openreadout.arrays import (
    AxisView,
    ChunkedArray,
    ChunkIndex,
    PortableChunks,
    SamplesAsChannels,
    Stack,
    chunk_region,
    grid_shape,
    nth_index,
    region_shape,
)
from openreadout.codecs import CodecSpec, CoreForm
from openreadout.encoded import EncodedArray
from openreadout.errors import CorruptDataError, InputError, OpenReadoutError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Axes = tuple[int | None, ...]
TRIED = 16
"""Chunks, spread over an array, that must all be of one form before the array is said to be copied."""
DECODED_AGAIN = 16
CORE_CODECS = frozenset({"bytes", "transpose", "blosc", "zstd", "gzip", "crc32c"})
ESSENTIAL = {
    "transpose": ("order",),
    "bytes": ("endian",),
    "reshape": ("shape",),
    "jpeg": ("encoded_color_space", "decoded_color_space", "subsampling"),
}
"""Settings that decide how a chunk decodes; other codecs read them from the data."""


@dataclass(frozen=True, slots=True)
class Taken:
    """One chunk: its samples (clipped to the array), and its stored bytes under the target's chain, or None for both.

    `form` is None where the chunk has to be encoded anew.
    """

    samples: NDArray[Any] | None
    form: CoreForm | None


@dataclass(frozen=True, slots=True)
class CopySource:
    """An array whose chunks can be copied.

    Parameters
    ----------
    array : ChunkedArray
        With the axes of the target.
    codecs : tuple of CodecSpec
        The chain of the target's chunk: found by looking at a stored chunk, since writers put what they like into
        metadata.
    keep : bool
        Copy what core Zarr v3 cannot hold too: codecs of the `numcodecs.` namespace, and `PortableChunks`.
    """

    array: ChunkedArray
    codecs: tuple[CodecSpec, ...]
    keep: bool

    @property
    def chunk(self) -> tuple[int, ...]:
        """Shape of a stored chunk, not clipped to the array."""
        return self.array.chunk_shape

    def take(self, index: ChunkIndex) -> Taken:
        """Read one chunk.

        Raises
        ------
        CorruptDataError, StorageError, UnsupportedFeatureError
            It cannot be read or does not decode.
        """
        return _take(self.array, index, keep=self.keep)


def copy_source(array: ChunkedArray, *, keep: bool) -> CopySource | None:
    """The array as one whose chunks can be copied, or None; reads some stored chunks to find out.

    A chunk that is damaged decides nothing: encoding anew meets it again and says so.
    """
    if stored_in_chunks(array):
        tried: Iterator[ChunkIndex] = itertools.islice(array.stored_indices(), 1)
    elif keep and _whole_chunks(array, lambda leaf: isinstance(leaf, PortableChunks)):
        tried = _spread(array)
    else:
        return None
    try:
        forms = [_take(array, index, keep=keep).form for index in tried]
    except InputError:
        return None
    first = forms[0] if forms else None
    if first is None:
        return None
    alike = all(form is not None and same_codecs(form.codecs, first.codecs) for form in forms)
    return CopySource(array, first.codecs, keep) if alike else None


def _spread(array: ChunkedArray) -> Iterator[ChunkIndex]:
    """Some stored chunks: corners of the grid, where chunks differ most, and others evenly between them."""
    grid = grid_shape(array.shape, array.chunk_shape)
    corners = itertools.product(
        *((0, n - 1) if axis >= len(grid) - 2 else (0,) for axis, n in enumerate(grid))
    )
    total = math.prod(grid)
    evenly = (nth_index(n * (total - 1) // (TRIED - 1), grid) for n in range(TRIED))
    chosen = dict.fromkeys(index for index in (*corners, *evenly) if array.is_stored(index))
    return iter(chosen or itertools.islice(array.stored_indices(), 1))


def stored_in_chunks(array: ChunkedArray) -> bool:
    """Whether the array is chunks of a Zarr or N5 store, seen through views that keep chunks whole."""
    return _whole_chunks(array, lambda leaf: isinstance(leaf, EncodedArray))


def _whole_chunks(array: ChunkedArray, leaf: Callable[[ChunkedArray], bool]) -> bool:
    """Whether the arrays below all views are as `leaf` demands, and the views keep their chunks whole."""
    if isinstance(array, Stack):
        return all(part is None or _whole_chunks(part, leaf) for part in array.parts)
    if isinstance(array, SamplesAsChannels):
        single = array.array.chunk_shape[array.channel_axis] == 1
        return single and _whole_chunks(array.array, leaf)
    if isinstance(array, AxisView):
        shown = {axis for axis in array.axes if axis is not None}
        hidden = [n for n in range(len(array.array.shape)) if n not in shown]
        return all(array.array.chunk_shape[n] == 1 for n in hidden) and _whole_chunks(
            array.array, leaf
        )
    return leaf(array)


def _take(array: ChunkedArray, index: ChunkIndex, *, keep: bool) -> Taken:
    if isinstance(array, AxisView):
        inner = _take(array.array, array.stored_index(index), keep=keep)
        samples = None if inner.samples is None else array.turned(inner.samples)
        return Taken(samples, _seen(inner.form, array.axes, len(array.array.shape)))
    if isinstance(array, Stack):
        part = array.parts[index[0]]
        if part is None:
            return Taken(None, None)
        inner = _take(part, index[1:], keep=keep)
        samples = None if inner.samples is None else inner.samples[None]
        axes: Axes = (None, *range(len(part.shape)))
        return Taken(samples, _seen(inner.form, axes, len(part.shape)))
    if isinstance(array, SamplesAsChannels):
        inner = _take(array.array, (*index, 0), keep=keep)
        samples = None if inner.samples is None else array.turned(inner.samples)
        folded = list(range(len(array.shape)))
        folded[array.channel_axis] = len(folded)
        return Taken(samples, _seen(inner.form, tuple(folded), len(folded) + 1))
    if isinstance(array, PortableChunks):
        return Taken(*array.take_portable(index))
    if not isinstance(array, EncodedArray):
        raise CorruptDataError("only stored chunks can be copied")
    return _take_stored(array, index, keep=keep)


def _take_stored(array: EncodedArray, index: ChunkIndex, *, keep: bool) -> Taken:
    key = array.locate(index)
    try:
        data = array.read_encoded(index)
        if data is None:
            return Taken(None, None)
        chain, spec = array.unit
        chunk, form = chain.decode_portable(data, spec, keep=keep)
    except OpenReadoutError as error:
        error.where = error.where or key
        error.path = error.path or array.store.path
        raise
    wanted = region_shape(chunk_region(index, array.shape, array.chunk_shape))
    return Taken(chunk[tuple(slice(0, n) for n in wanted)], form)


def _seen(form: CoreForm | None, axes: Axes, stored_axes: int) -> CoreForm | None:
    """The form of a chunk that is seen with other axes: the same bytes, with a `transpose` where the order differs.

    Axes that the view hides or adds have length 1 in a chunk and change nothing in its bytes.
    """
    if form is None or (axes != tuple(range(stored_axes)) and _counts_axes(form.codecs)):
        return None
    order = list(range(stored_axes))
    rest = list(form.codecs)
    while rest and rest[0].name == "transpose":
        step = rest.pop(0).configuration["order"]
        order = [order[n] for n in step]
    added = [n for n, axis in enumerate(axes) if axis is None]
    encoded = added + [axes.index(axis) for axis in order if axis in axes]
    if encoded != list(range(len(axes))):
        rest.insert(0, CodecSpec("transpose", {"order": encoded}))
    return CoreForm(tuple(rest), form.data)


def _counts_axes(codecs: tuple[CodecSpec, ...]) -> bool:
    """Whether a `reshape` names axes by number, which a view counts otherwise."""
    shapes = [spec.configuration.get("shape") for spec in codecs if spec.name == "reshape"]
    return any(not isinstance(entry, int) for shape in shapes for entry in shape or ())


def same_codecs(one: tuple[CodecSpec, ...], other: tuple[CodecSpec, ...]) -> bool:
    """Whether a decoder of one chain decodes data of the other: compressors read their settings from the data."""
    return [_essence(spec) for spec in one] == [_essence(spec) for spec in other]


def _essence(spec: CodecSpec) -> tuple[str, list[Any]]:
    values = [spec.configuration.get(key) for key in ESSENTIAL.get(spec.name, ())]
    return spec.name, [list(value) if isinstance(value, tuple) else value for value in values]


def uncommon(codecs: tuple[CodecSpec, ...]) -> list[str]:
    """Names of codecs that are not part of core Zarr v3."""
    return [spec.name for spec in codecs if spec.name not in CORE_CODECS]


def is_decoded_again(index: ChunkIndex) -> bool:
    """Whether a chunk of a lossy codec is decoded again from the output: the first, and some all over the array."""
    return sum(index) % DECODED_AGAIN == 0


def chunk_bytes(chunk: tuple[int, ...], item: int) -> int:
    """Bytes of a decoded chunk."""
    return math.prod(chunk) * item
