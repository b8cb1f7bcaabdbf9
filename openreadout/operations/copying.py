"""Chunks that an export can take over as they are stored, each still decoded once to prove it whole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openreadout.arrays import AxisView, ChunkedArray, ChunkIndex, Stack, chunk_region, region_shape
from openreadout.codecs import CodecSpec, CoreForm
from openreadout.encoded import EncodedArray
from openreadout.errors import CorruptDataError, OpenReadoutError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Axes = tuple[int | None, ...]


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
        Copy codecs of the `numcodecs.` namespace too.
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
    """The array as one whose chunks can be copied, or None; reads one stored chunk to find out.

    A chunk that is damaged decides nothing: encoding anew meets it again and says so.
    """
    if not stored_in_chunks(array):
        return None
    first = next(iter(array.stored_indices()), None)
    if first is None:
        return None
    try:
        form = _take(array, first, keep=keep).form
    except OpenReadoutError:
        return None
    return None if form is None else CopySource(array, form.codecs, keep)


def stored_in_chunks(array: ChunkedArray) -> bool:
    """Whether the array is stored chunks, seen through views that keep chunks whole."""
    if isinstance(array, EncodedArray):
        return True
    if isinstance(array, Stack):
        return all(part is None or stored_in_chunks(part) for part in array.parts)
    if isinstance(array, AxisView):
        shown = {axis for axis in array.axes if axis is not None}
        hidden = [n for n in range(len(array.array.shape)) if n not in shown]
        return all(array.array.chunk_shape[n] == 1 for n in hidden) and stored_in_chunks(
            array.array
        )
    return False


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
    if form is None:
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


def same_codecs(one: tuple[CodecSpec, ...], other: tuple[CodecSpec, ...]) -> bool:
    """Whether a decoder of one chain decodes data of the other: compressors read their settings from the data."""
    return [_essence(spec) for spec in one] == [_essence(spec) for spec in other]


def _essence(spec: CodecSpec) -> tuple[str, Any]:
    keys = {"transpose": "order", "bytes": "endian"}
    key = keys.get(spec.name)
    value = spec.configuration.get(key) if key else None
    return spec.name, list(value) if isinstance(value, list | tuple) else value


def chunk_bytes(chunk: tuple[int, ...], item: int) -> int:
    """Bytes of a decoded chunk."""
    return math.prod(chunk) * item
