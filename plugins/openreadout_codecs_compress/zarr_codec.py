"""N5's `lz4` as a codec of zarr-python."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from zarr.abc.codec import BytesBytesCodec

from openreadout.codecs import ByteSize, CodecSpec
from openreadout.errors import UnsupportedFeatureError
from openreadout_codecs_compress.lz4 import STREAM_BLOCK, N5Lz4Codec

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer
    from zarr.core.common import JSON


def _no_lookup(name: str) -> object:
    raise UnsupportedFeatureError(f"codec {name} is not supported here")


@dataclass(frozen=True)
class N5Lz4ZarrCodec(BytesBytesCodec):
    """N5's `lz4` inside `n5_default`: reads all framings of N5 writers, writes Java's.

    Parameters
    ----------
    blockSize : int
        Bytes in each block of the stream that is written.
    """

    is_fixed_size = False

    blockSize: int = STREAM_BLOCK  # noqa: N815

    def __post_init__(self) -> None:
        self._codec()

    def _codec(self) -> N5Lz4Codec:
        spec = CodecSpec("n5.lz4", {"blockSize": self.blockSize})
        return N5Lz4Codec.from_spec(spec, _no_lookup)  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Build the codec from its object in the metadata."""
        configuration = data.get("configuration") or {}
        given = configuration.get("blockSize") if isinstance(configuration, Mapping) else None
        return cls() if given is None else cls(given)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, JSON]:
        """The codec's object for the metadata."""
        return {"name": "n5.lz4", "configuration": {"blockSize": self.blockSize}}

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        item = chunk_spec.dtype.to_native_dtype().itemsize
        size = ByteSize(math.prod(chunk_spec.shape) * item)
        decoded = await asyncio.to_thread(self._codec().decode, chunk_data.to_bytes(), size)
        return chunk_spec.prototype.buffer.from_bytes(bytes(decoded))

    async def _encode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        encoded = await asyncio.to_thread(self._codec().encode, chunk_data.to_bytes())
        return chunk_spec.prototype.buffer.from_bytes(encoded)

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        """Not known before encoding."""
        raise NotImplementedError
