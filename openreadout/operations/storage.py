"""How a level is stored: codecs, chunks, shards, and the blocks that are worked on at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from openreadout.codecs import ITEM_BYTES, CodecSpec
from openreadout.contracts import PlannedLevel
from openreadout.errors import UsageError
from openreadout.operations.copying import CopySource
from openreadout.planes import Selection

CHUNK_SIDE = 512
"""Side of a chunk where the source's own chunks are of no use as a guide."""
CHUNK_BYTES = 4 << 20
SMALL_CHUNK = 64
SHARD_BYTES = 16 << 20
SHARDS_WANTED = 256
MAX_SHARD_BYTES = 256 << 20
MAX_WRITTEN_BYTES = 1 << 30
"""A chunk that is written; Blosc takes less than 2 GiB, and readers hold whole chunks."""
BLOCK_BYTES = 16 << 20
"""Samples of a block: what one thread holds of the source at a time."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a person asked for; None leaves the choice to the plan.

    `chunks` and `shards` are lengths of the last axes, slowest first; `shards` of () writes none. `codec` is a name
    with an optional level.
    """

    selection: Selection = field(default_factory=Selection)
    level: int = 0
    pyramid: str = "auto"
    levels: int | None = None
    chunks: tuple[int, ...] | None = None
    shards: tuple[int, ...] | None = None
    codec: str | None = None
    version: str = "0.5"
    fill_missing: bool = False
    memory: int | None = None


def codecs_of(asked: str | None, dtype: str, *, label: bool = False) -> tuple[CodecSpec, ...]:
    """The chain of a chunk: bytes and a compressor.

    Blosc sorts by bits what comes from a camera, where the upper ones change slowly; labels and masks of one byte have
    few values in long runs, which sorting tears apart.
    """
    size = ITEM_BYTES[dtype]
    first = CodecSpec("bytes", {"endian": "little"} if size > 1 else {})
    name, _, level_text = (asked or "blosc-zstd").partition(":")
    if level_text and not level_text.lstrip("-").isdigit():
        raise UsageError(
            f"--codec {asked}: the level is not a number", hint="for example --codec blosc-zstd:3"
        )
    level = int(level_text) if level_text else None
    if name in ("none", "keep"):
        return (first,) if name == "none" else codecs_of(None, dtype, label=label)
    if name in ("blosc-zstd", "blosc-lz4"):
        chosen = 1 if level is None else level
        if not 0 <= chosen <= 9:
            raise UsageError(f"--codec {asked}: blosc levels go from 0 to 9")
        blosc = {"cname": name[6:], "clevel": chosen, "typesize": size, "blocksize": 0}
        sorts = size > 1 or not (label or dtype == "bool")
        return (
            first,
            CodecSpec("blosc", {**blosc, "shuffle": "bitshuffle" if sorts else "noshuffle"}),
        )
    if name == "zstd":
        chosen = 3 if level is None else level
        if not -131072 <= chosen <= 22:
            raise UsageError(f"--codec {asked}: zstd levels go up to 22")
        return (first, CodecSpec("zstd", {"level": chosen, "checksum": False}))
    if name == "gzip":
        chosen = 5 if level is None else level
        if not 0 <= chosen <= 9:
            raise UsageError(f"--codec {asked}: gzip levels go from 0 to 9")
        return (first, CodecSpec("gzip", {"level": chosen}))
    raise UsageError(
        f"--codec {asked}: not a codec for exports",
        hint="blosc-zstd, blosc-lz4, zstd, gzip, none or keep, with :LEVEL where it has one",
    )


def stored(
    level: PlannedLevel, axes: str, options: PlanOptions, *, copy: CopySource | None = None
) -> PlannedLevel:
    """Choose chunk and shard of a level."""
    item = ITEM_BYTES[level.dtype]
    if copy is not None:
        chunk = copy.chunk
        level = replace(level, codecs=copy.codecs, copied=True)
    elif options.chunks is not None:
        chunk = _given("--chunks", options.chunks, axes, level.shape)
    else:
        chunk = _chunk(level.chunk, level.shape, axes, item)
    if math.prod(chunk) * item > MAX_WRITTEN_BYTES:
        raise UsageError(
            f"a chunk of {chunk} samples is larger than the {MAX_WRITTEN_BYTES} bytes allowed"
        )
    if options.version == "0.4" or options.shards == ():
        return replace(level, chunk=chunk, shard=None)
    if options.shards is not None:
        shard = _given("--shards", options.shards, axes, level.shape, whole=False)
        shard = tuple(-(-max(s, c) // c) * c for s, c in zip(shard, chunk, strict=True))
    else:
        shard = _shard(chunk, level.shape, item)
    return replace(level, chunk=chunk, shard=shard)


def _given(
    name: str, asked: tuple[int, ...], axes: str, shape: Sequence[int], *, whole: bool = True
) -> tuple[int, ...]:
    """Lengths given for the last axes; the others get 1."""
    if len(asked) > len(axes):
        raise UsageError(f"{name}: {len(asked)} lengths for the {len(axes)} axes {' '.join(axes)}")
    full = (1,) * (len(axes) - len(asked)) + asked
    return tuple(min(c, n) for c, n in zip(full, shape, strict=True)) if whole else full


def _chunk(own: Sequence[int], shape: Sequence[int], axes: str, item: int) -> tuple[int, ...]:
    """Chunk of a level: near the source's own, so that each of its chunks is decoded once, within sensible bounds."""
    chunk = []
    for axis, c, n in zip(axes, own, shape, strict=True):
        if axis in "tc":
            chunk.append(1)
        elif axis == "z":
            chunk.append(min(c, n, 128))
        else:
            side = c if SMALL_CHUNK <= c <= 2 * CHUNK_SIDE else CHUNK_SIDE
            chunk.append(min(side, n))
    for place in (axes.find("z"), axes.index("y"), axes.index("x")):
        while place >= 0 and math.prod(chunk) * item > CHUNK_BYTES and chunk[place] > 1:
            chunk[place] = -(-chunk[place] // 2)
    return tuple(chunk)


def _shard(chunk: tuple[int, ...], shape: Sequence[int], item: int) -> tuple[int, ...]:
    """Shard of a level: whole rows and planes first, sized so that an image ends in a few hundred files.

    It grows by doubling, along the innermost axes first, until it holds the wanted bytes or the whole array.
    """
    total = math.prod(shape) * item
    wanted = max(SHARD_BYTES, min(MAX_SHARD_BYTES, total // SHARDS_WANTED))
    shard = list(chunk)
    order = [len(shape) - 1, len(shape) - 2, *range(len(shape) - 3, -1, -1)]
    pair = order[:2]
    grown = True
    while grown and math.prod(shard) * item * 2 <= wanted:
        grown = False
        inner = sorted((a for a in pair if shard[a] < shape[a]), key=lambda a: shard[a])
        for axis in [*inner, *order[2:]]:
            if shard[axis] < shape[axis]:
                shard[axis] *= 2
                grown = True
                break
    return tuple(min(s, -(-n // c) * c) for s, n, c in zip(shard, shape, chunk, strict=True))


def with_blocks(
    levels: list[PlannedLevel], axes: str, source_chunk: Sequence[int], options: PlanOptions
) -> list[PlannedLevel]:
    """Choose what is worked on at a time.

    A block covers whole chunks of its level and, where memory allows, whole chunks of the source and whole chunks of
    the levels that are made from it while it is in memory. Its size on those levels is half of it along each halved
    axis.
    """
    budget = BLOCK_BYTES if options.memory is None else max(1 << 20, options.memory // 6)
    done: list[PlannedLevel] = []
    for n, level in enumerate(levels):
        if level.source_level is None and done and _fits(done[-1].block, level):
            half = tuple(
                b // 2 if h else b for b, h in zip(done[-1].block, level.halve, strict=True)
            )
            done.append(_aligned(replace(level, block=half), options))
            continue
        following = []
        for later in levels[n + 1 :]:
            if later.source_level is not None:
                break
            following.append(later.halve)
        derived = level.source_level is None
        own = level.chunk if derived else source_chunk
        # a derived level that starts a pass is made from a block of the level before, which is up to 8 times larger
        block = _block(level, own, following, budget // 4 if derived else budget)
        done.append(_aligned(replace(level, block=block), options))
    return done


def _aligned(level: PlannedLevel, options: PlanOptions) -> PlannedLevel:
    """The level with shards of whole blocks, where they are larger and nobody asked for others.

    Blocks that reach over the edge of a shard would keep many shards open, and tie cells of a sparse level together.
    """
    if level.shard is None or options.shards is not None:
        return level
    grown = tuple(
        -(-s // b) * b if s % b and b % s and b < n else s
        for s, b, n in zip(level.shard, level.block, level.shape, strict=True)
    )
    whole = (-(-n // c) * c for n, c in zip(level.shape, level.chunk, strict=True))
    return replace(level, shard=tuple(min(s, w) for s, w in zip(grown, whole, strict=True)))


def _fits(block: tuple[int, ...], level: PlannedLevel) -> bool:
    """Whether half of a block is whole chunks of the next level, or reaches over a whole axis of it."""
    for b, h, c, n in zip(block, level.halve, level.chunk, level.shape, strict=True):
        half = b // 2 if h else b
        if (h and b % 2 and half < n) or (half % c and half < n) or half == 0:
            return False
    return True


def _block(
    level: PlannedLevel, own: Sequence[int], following: list[tuple[bool, ...]], budget: int
) -> tuple[int, ...]:
    item = ITEM_BYTES[level.dtype]
    block = list(level.chunk)

    def size(lengths: Sequence[int]) -> int:
        return math.prod(min(b, n) for b, n in zip(lengths, level.shape, strict=True)) * item

    # a source chunk that reaches over several blocks would be decoded for each of them; it is held whole anyway
    covered = [-(-min(c, n) // b) * b for b, c, n in zip(block, own, level.shape, strict=True)]
    if size(covered) <= 2 * max(budget, size(own)):
        block = covered
    for halve in following:
        doubled = [b * 2 if h else b for b, h in zip(block, halve, strict=True)]
        if size(doubled) > budget:
            break
        block = doubled
    if following and block == list(level.chunk):
        block = [b * 2 if h else b for b, h in zip(block, following[0], strict=True)]
    return tuple(block)
