"""The `reshape` codec: the same samples in C order under another shape."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from openreadout import limits
from openreadout.codecs import ChunkSpec, CodecLookup, CodecSpec
from openreadout.errors import CorruptDataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Entry = int | tuple[int, ...]


def parse_shape(value: object) -> tuple[Entry, ...]:
    """Check the `shape` of a configuration as far as that goes without knowing the array.

    Returns
    -------
    tuple
        For each output axis a length, -1, or the input axes whose lengths are multiplied.

    Raises
    ------
    CorruptDataError
        An entry is of another form, -1 stands more than once, or the input axes do not rise.

    Notes
    -----
    Zarr extension codec `reshape`, section "Configuration parameters".
    """
    if not isinstance(value, list | tuple) or len(value) > limits.MAX_DIMENSIONS:
        raise CorruptDataError(f"codec reshape: shape {value!r:.200} is not a list of axes")
    entries = tuple(_entry(entry) for entry in value)
    if entries.count(-1) > 1:
        raise CorruptDataError("codec reshape: shape has more than one -1")
    named = [axis for entry in entries if isinstance(entry, tuple) for axis in entry]
    if any(b <= a for a, b in itertools.pairwise(named)):
        raise CorruptDataError(f"codec reshape: the input axes {named} are not in rising order")
    return entries


def _entry(entry: object) -> Entry:
    if type(entry) is int and (entry == -1 or 0 < entry <= limits.MAX_AXIS):
        return entry
    axes = tuple(entry) if isinstance(entry, list | tuple) else ()
    whole = all(type(axis) is int and 0 <= axis < limits.MAX_DIMENSIONS for axis in axes)
    if whole and 0 < len(axes) <= limits.MAX_DIMENSIONS:
        return axes
    raise CorruptDataError(
        f"codec reshape: {entry!r:.200} is neither a length above 0, nor -1, nor a list of input axes"
    )


def output_shape(entries: Sequence[Entry], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that `entries` make of the input `shape`; raises `CorruptDataError` when they do not fit it.

    Notes
    -----
    An entry that lists input axes demands more than equal products: all that stands before its axes must be what
    stands before it in the output, so that whole input axes really end up in it.
    """
    named = [axis for entry in entries if isinstance(entry, tuple) for axis in entry]
    if named and named[-1] >= len(shape):
        raise CorruptDataError(
            f"codec reshape: input axis {named[-1]} is named, the array has {len(shape)} axes"
        )
    total = math.prod(shape)
    sizes = [
        math.prod(shape[axis] for axis in entry) if isinstance(entry, tuple) else entry
        for entry in entries
    ]
    if -1 in entries:
        rest = math.prod(size for size, entry in zip(sizes, entries, strict=True) if entry != -1)
        if rest == 0 or total % rest:
            raise CorruptDataError(
                f"codec reshape: {total} samples cannot be divided by {rest} for the axis of -1"
            )
        sizes[entries.index(-1)] = total // rest
    if math.prod(sizes) != total:
        raise CorruptDataError(
            f"codec reshape: shape {sizes} holds {math.prod(sizes)} samples, the array {total}"
        )
    _check_alignment(entries, sizes, shape)
    return tuple(sizes)


def _check_alignment(
    entries: Sequence[Entry], sizes: Sequence[int], shape: tuple[int, ...]
) -> None:
    for n, entry in enumerate(entries):
        if not isinstance(entry, tuple):
            continue
        spanned = shape[entry[0] : entry[-1] + 1]
        same_before = math.prod(sizes[:n]) == math.prod(shape[: entry[0]])
        if not same_before or math.prod(spanned) != sizes[n]:
            raise CorruptDataError(
                f"codec reshape: input axes {list(entry)} do not line up with output axis {n}"
            )


@dataclass(frozen=True, slots=True)
class ReshapeCodec:
    """Zarr extension codec `reshape`."""

    kind: ClassVar[str] = "array-array"
    shape: tuple[Entry, ...]

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> ReshapeCodec:
        """Check the configuration, which is `shape` and nothing else."""
        return cls(parse_shape(spec.configuration.get("shape")))

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """`spec` under its new shape."""
        return replace(spec, shape=output_shape(self.shape, spec.shape))

    def decode(self, data: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """The array under its own shape."""
        return data.reshape(spec.shape)

    def encode(self, data: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """The array under its new shape, in C order."""
        return data.reshape(output_shape(self.shape, spec.shape))
