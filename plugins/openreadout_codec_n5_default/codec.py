"""The `n5_default` codec in our own chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from openreadout.codecs import (
    Buffer,
    ByteSize,
    ChunkSpec,
    CodecChain,
    CodecLookup,
    CodecSpec,
    CoreForm,
    filled,
)
from openreadout.errors import CorruptDataError
from openreadout_codec_n5_default.blocks import (
    START,
    Configuration,
    block_header,
    check_block_size,
    check_dimensions,
    check_dtype,
    parse_block_header,
    parse_configuration,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def fitted(block: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
    """`block` cropped and padded with the fill value to the shape of `spec`; itself where it has that shape."""
    if block.shape == spec.shape:
        return block
    overlap = tuple(slice(0, min(a, b)) for a, b in zip(block.shape, spec.shape, strict=True))
    # a block's samples lie with axis 0 fastest, so the copy is quick when those of `out` do too
    out = filled(replace(spec, shape=spec.shape[::-1])).T
    out[overlap] = block[overlap]
    return out


def decode_block(
    data: Buffer, spec: ChunkSpec, decode: Callable[[Buffer, ChunkSpec], NDArray[Any]]
) -> NDArray[Any]:
    """Decode an N5 block to an array of `spec`.

    Parameters
    ----------
    data : bytes-like
        The block with its header.
    spec : ChunkSpec
        Shape in N5 order: axis 0 is the fastest.
    decode : callable
        Decodes what follows the header to an array of the block's own shape.

    Returns
    -------
    numpy.ndarray
        Blocks shorter than `spec` are padded with its fill value, longer ones cropped.
    """
    header = parse_block_header(data, len(spec.shape))
    check_block_size(header.shape, spec.shape, spec.item_bytes)
    block = decode(memoryview(data)[header.size :], replace(spec, shape=header.shape))
    return fitted(block, spec)


@dataclass(frozen=True, slots=True)
class N5DefaultCodec:
    """Zarr extension codec `n5_default`: a header with the block's shape, then its samples through an inner chain."""

    kind: ClassVar[str] = "array-bytes"
    configuration: Configuration
    chain: CodecChain

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> N5DefaultCodec:
        """Check the configuration and build the inner chain."""
        configuration = parse_configuration(spec.configuration)
        compressor = configuration.compressor
        if compressor is not None and lookup(compressor.name).kind != "bytes-bytes":
            raise CorruptDataError(
                f"codec n5_default: {compressor.name!r:.100} is no bytes-to-bytes codec"
            )
        return cls(configuration, CodecChain.build(configuration.codecs, lookup))

    def _check(self, spec: ChunkSpec) -> None:
        check_dtype(spec.dtype, self.configuration)
        check_dimensions(spec.shape, self.configuration)

    def encoded(self, spec: ChunkSpec) -> ByteSize:
        """At most the header and the encoded samples of a full block."""
        self._check(spec)
        return self.chain.encoded(spec).grown(START.size + 4 * len(spec.shape))

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode a block; raises `UnsupportedFeatureError` for the modes varlength and object."""
        self._check(spec)
        return decode_block(data, spec, self.chain.decode)

    def decode_portable(
        self, data: Buffer, spec: ChunkSpec
    ) -> tuple[NDArray[Any], CoreForm | None]:
        """Decode; a full block without its header is a chunk of the inner chain, which is a core one.

        A block that is cut or padded is not: its samples must be laid out anew.
        """
        self._check(spec)
        header = parse_block_header(data, len(spec.shape))
        if header.shape != spec.shape:
            return self.decode(data, spec), None
        return self.chain.decode_portable(memoryview(data)[header.size :], spec)

    def encode(self, data: NDArray[Any], spec: ChunkSpec) -> bytes:
        """Encode a full block."""
        self._check(spec)
        return block_header(spec.shape) + self.chain.encode(data, spec)
