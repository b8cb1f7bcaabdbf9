"""`reshape` as a codec of zarr-python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from zarr.abc.codec import ArrayArrayCodec

from openreadout.errors import CorruptDataError
from openreadout_codecs_zarr.reshape import Entry, output_shape, parse_shape

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import NDBuffer
    from zarr.core.common import JSON


def _lengths(entries: Sequence[Entry], shape: tuple[int, ...]) -> tuple[int, ...]:
    """A length for each output axis, whether they fit the array or not."""
    return tuple(
        math.prod(shape[axis] for axis in entry if axis < len(shape))
        if isinstance(entry, tuple)
        else max(1, entry)
        for entry in entries
    )


@dataclass(frozen=True)
class ReshapeZarrCodec(ArrayArrayCodec):
    """The same samples in C order under another shape.

    Parameters
    ----------
    shape : iterable
        For each output axis a length, -1, or a list of input axes.

    Raises
    ------
    ValueError
        An entry is of another form, or the entries contradict one another.
    """

    is_fixed_size = True

    shape: tuple[Entry, ...]

    def __init__(self, *, shape: Iterable[Any]) -> None:
        object.__setattr__(self, "shape", parse_shape(list(shape)))

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Build the codec from its object in the metadata."""
        configuration = data.get("configuration")
        if not isinstance(configuration, Mapping):
            raise CorruptDataError("codec reshape: the configuration is missing")
        return cls(shape=parse_shape(configuration.get("shape")))

    def to_dict(self) -> dict[str, JSON]:
        """The codec's object for the metadata."""
        shape = [list(entry) if isinstance(entry, tuple) else entry for entry in self.shape]
        return {"name": "reshape", "configuration": {"shape": shape}}

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        """The chunk under its new shape.

        zarr-python from 3.2 asks with the shape of the whole array too, which lengths that are made for a chunk do not
        fit; only the number of axes matters then. Chunks that they do not fit are refused when they come.
        """
        shape = tuple(chunk_spec.shape)
        try:
            resolved = output_shape(self.shape, shape)
        except CorruptDataError:
            resolved = _lengths(self.shape, shape)
        return replace(chunk_spec, shape=resolved)

    async def _decode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        output_shape(self.shape, tuple(chunk_spec.shape))
        return chunk_data.reshape(chunk_spec.shape)

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        return chunk_data.reshape(output_shape(self.shape, tuple(chunk_spec.shape)))

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        """Unchanged."""
        return input_byte_length
