"""The `transpose` codec: axes in another order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from openreadout import limits
from openreadout.codecs import ChunkSpec, CodecLookup, CodecSpec
from openreadout.errors import CorruptDataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes `order`."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def parse_order(spec: CodecSpec) -> tuple[int, ...] | str:
    """The `order` of a configuration: a permutation, or `C` or `F` as drafts of the specification wrote it."""
    order = spec.configuration.get("order")
    if order in ("C", "F") and isinstance(order, str):
        return order
    if isinstance(order, list | tuple) and len(order) <= limits.MAX_DIMENSIONS:
        whole = all(type(axis) is int for axis in order)
        if whole and sorted(order) == list(range(len(order))):
            return tuple(order)
    raise CorruptDataError(f"codec transpose: order {order!r:.200} is no permutation of axes")


@dataclass(frozen=True, slots=True)
class TransposeCodec:
    """Zarr v3 core codec `transpose`: axis n of what is stored is axis `order[n]` of the array."""

    kind: ClassVar[str] = "array-array"
    order: tuple[int, ...] | str

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> TransposeCodec:
        """Check the configuration: `order` is a permutation, or `C` or `F`."""
        return cls(parse_order(spec))

    def permutation(self, ndim: int) -> tuple[int, ...]:
        """The order for `ndim` axes; raises `CorruptDataError` when it is made for another number of them."""
        if isinstance(self.order, str):
            return tuple(range(ndim)) if self.order == "C" else tuple(reversed(range(ndim)))
        if len(self.order) != ndim:
            raise CorruptDataError(
                f"codec transpose: order {list(self.order)} where the array has {ndim} axes"
            )
        return self.order

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """`spec` with its axes in the stored order."""
        order = self.permutation(len(spec.shape))
        return replace(spec, shape=tuple(spec.shape[axis] for axis in order))

    def decode(self, data: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """A view with the axes in the array's order."""
        return data.transpose(inverse(self.permutation(len(spec.shape))))

    def encode(self, data: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """A view with the axes in the stored order."""
        return data.transpose(self.permutation(len(spec.shape)))
