"""Pyramid arithmetic: level shapes, scales and downsampling by two, as pure functions on numpy arrays.

A value of the next level is `floor(mean + 0.5)` over the samples of its block that exist (floats: the mean), and for
labels the most frequent value. An axis of odd length keeps its last sample: it is doubled to fill the block, which
leaves means and the most frequent value as they are over the samples that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from openreadout.units import length_um

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALLEST = 256
"""Levels are added until y and x are at most this long."""

SLAB_BYTES = 1 << 20
"""What is downsampled at a time; its sums are twice as large and belong in the processor's second cache."""

FEW_SAMPLES = 8
"""Length of a last axis that is taken apart when pixels are summed."""

_SUM_TYPE = {
    "bool": "uint16", "uint8": "uint16", "int8": "int16", "uint16": "uint32", "int16": "int32",
    "uint32": "uint64", "int32": "int64", "float16": "float64", "float32": "float64", "float64": "float64",
}  # fmt: skip


def next_shape(shape: Sequence[int], halve: Sequence[bool]) -> tuple[int, ...]:
    """Sizes after halving the given axes: `ceil(n / 2)`."""
    return tuple(-(-n // 2) if h else n for n, h in zip(shape, halve, strict=True))


def axes_to_halve(
    axes: Sequence[str],
    shape: Sequence[int],
    scale: Sequence[float | None],
    units: Sequence[str | None],
) -> tuple[bool, ...]:
    """Which axes the next level halves.

    y and x, where longer than 1; z too once its spacing is known and no coarser than that of x and y.
    """
    spacing: dict[str, float | None] = {}
    for axis, value, unit in zip(axes, scale, units, strict=True):
        factor = length_um(unit)
        spacing[axis] = value * factor if value and factor else None
    z, others = spacing.get("z"), [spacing.get("y"), spacing.get("x")]
    fine = z is not None and all(value is not None and z <= value * (1 + 1e-9) for value in others)
    return tuple(
        n > 1 and (axis in "yx" or (axis == "z" and fine))
        for axis, n in zip(axes, shape, strict=True)
    )


def next_scale(
    scale: Sequence[float], translation: Sequence[float], halve: Sequence[bool]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Scale and translation of the next level: twice the spacing, half a sample further on."""
    scales = tuple(s * 2 if h else s for s, h in zip(scale, halve, strict=True))
    moved = tuple(t + s / 2 if h else t for t, s, h in zip(translation, scale, halve, strict=True))
    return scales, moved


def downsample(block: NDArray[Any], halve: Sequence[bool], *, label: bool = False) -> NDArray[Any]:
    """Halve the given axes of a block whose start lies on even samples.

    Parameters
    ----------
    block : numpy.ndarray
        Any shape and numeric type.
    halve : sequence of bool
        One for each axis.
    label : bool
        Take the most frequent value of each block (the smallest on a tie) in place of the mean.

    Returns
    -------
    numpy.ndarray
        The type of `block`, sizes by `next_shape`.
    """
    axes = [axis for axis, h in enumerate(halve) if h and block.shape[axis] > 1]
    if not axes or block.size == 0:
        return block
    # Slab by slab, so that the wide sums stay in the cache and little memory is held.
    along = next(axis for axis, n in enumerate(block.shape) if n > 1)
    step = max(2, SLAB_BYTES // max(1, block.nbytes // block.shape[along]) // 2 * 2)
    if step >= block.shape[along]:
        return _halved(_even(block, axes), axes, label=label)
    out: NDArray[Any] = np.empty(next_shape(block.shape, halve), block.dtype)
    before = (slice(None),) * along
    into = step // 2 if along in axes else step
    for n in range(-(-block.shape[along] // step)):
        slab = _even(block[(*before, slice(n * step, (n + 1) * step))], axes)
        out[(*before, slice(n * into, (n + 1) * into))] = _halved(slab, axes, label=label)
    return out


def _halved(even: NDArray[Any], axes: Sequence[int], *, label: bool) -> NDArray[Any]:
    """A block of which each halved axis has an even length."""
    if label:
        return _most_frequent(_corners(even, axes))
    if even.dtype.kind in "iu" and even.dtype.itemsize == 8:
        return _mean_64(even, axes)
    if even.dtype.kind == "c":
        return _mean_complex(even, axes)
    return _mean(even, axes)


def _even(block: NDArray[Any], axes: Sequence[int]) -> NDArray[Any]:
    """Double the last sample of each halved axis of odd length."""
    odd = [axis for axis in axes if block.shape[axis] % 2]
    if not odd:
        return block
    return np.pad(block, [(0, 1 if axis in odd else 0) for axis in range(block.ndim)], mode="edge")


def _pair(block: NDArray[Any], axis: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The even and the odd samples along an axis."""
    before = (slice(None),) * axis
    return block[(*before, slice(0, None, 2))], block[(*before, slice(1, None, 2))]


def _sum(block: NDArray[Any], axes: Sequence[int], dtype: Any) -> NDArray[Any]:
    total: NDArray[Any] = block
    for axis in axes:
        first, second = _pair(total, axis)
        if axis == total.ndim - 2 and total.shape[-1] <= FEW_SAMPLES:
            # Colour samples one by one: loops along pixels take a quarter of the time of loops along three samples.
            total = np.empty(first.shape, dtype)
            for n in range(total.shape[-1]):
                np.add(first[..., n], second[..., n], out=total[..., n], dtype=dtype)
        else:
            total = np.add(first, second, dtype=dtype)
    return total


def _mean(block: NDArray[Any], axes: Sequence[int]) -> NDArray[Any]:
    kind, name = block.dtype.kind, block.dtype.name
    wide = np.dtype(_SUM_TYPE[name])
    shift = len(axes)
    if kind in "biu":
        total = _sum(block, axes, wide)
        total += np.asarray(1 << (shift - 1), dtype=wide)
        total >>= np.asarray(shift, dtype=wide)
        return total.astype(block.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        total = _sum(block, axes, wide) / (1 << shift)
        lost = ~np.isfinite(total)
        if name == "float64" and lost.any():
            # the sum of finite doubles can exceed their range although the mean does not
            parts = _sum(block / (1 << shift), axes, wide)
            total = np.where(lost, parts, total)
        mean: NDArray[Any] = total.astype(block.dtype)
        return mean


def _mean_complex(block: NDArray[Any], axes: Sequence[int]) -> NDArray[Any]:
    """The mean of each part by itself: dividing complex numbers spreads an infinity of one part to the other."""
    parts = np.ascontiguousarray(block)[..., None].view(block.real.dtype)
    mean: NDArray[Any] = np.ascontiguousarray(_mean(parts, axes)).view(block.dtype)[..., 0]
    return mean


def _mean_64(block: NDArray[Any], axes: Sequence[int]) -> NDArray[Any]:
    """The mean of 64-bit integers without a wider type: quotients and remainders are summed apart."""
    dtype, shift = block.dtype, len(axes)
    quotient = _sum(block >> np.asarray(shift, dtype), axes, dtype)
    rest = _sum(block & np.asarray((1 << shift) - 1, dtype), axes, dtype)
    rest = (rest + np.asarray(1 << (shift - 1), dtype)) >> np.asarray(shift, dtype)
    mean: NDArray[Any] = np.add(quotient, rest, out=quotient)
    return mean


def _corners(block: NDArray[Any], axes: Sequence[int]) -> list[NDArray[Any]]:
    parts = [block]
    for axis in axes:
        parts = [half for part in parts for half in _pair(part, axis)]
    return parts


def _most_frequent(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The most frequent of the values at each place, the smallest on a tie."""
    values = np.sort(np.stack(parts), axis=0)
    best: NDArray[Any] = values[0].copy()
    best_count = np.zeros(best.shape, dtype=np.uint8)
    for candidate in values:
        count = np.zeros(best.shape, dtype=np.uint8)
        for other in values:
            count += candidate == other
        better = count > best_count
        best[better] = candidate[better]
        best_count[better] = count[better]
    return best
