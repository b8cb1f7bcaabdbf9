"""`jpeg` and N5's `jpeg` as codecs of zarr-python."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from zarr.abc.codec import ArrayBytesCodec, BytesBytesCodec

from openreadout.codecs import ByteSize
from openreadout.errors import CorruptDataError
from openreadout_codec_jpeg.codec import N5JpegCodec, decode_jpeg, encode_jpeg
from openreadout_codec_jpeg.configuration import (
    Configuration,
    check_chunk,
    components_of,
    parse_configuration,
)

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer, NDBuffer
    from zarr.core.common import JSON

DEFAULT_QUALITY = 95
"""What the specification recommends to programs that offer a default."""
SAMPLE_SHAPE = (1, 1)


@dataclass(frozen=True)
class JpegZarrCodec(ArrayBytesCodec):
    """Chunks as baseline JPEG images, which lose precision.

    Parameters
    ----------
    quality : int
        1 to 100, 95 unless given.
    encoded_color_space : str
        `grayscale`, `ycbcr` or `rgb`.
    decoded_color_space : str, optional
        That of the array: `grayscale` or `rgb` unless given.
    subsampling : iterable of pair of int, optional
        (horizontal, vertical) factors of each component; needed for `ycbcr`.

    Raises
    ------
    ValueError
        The configuration breaks one of the rules of `jpeg`.
    """

    is_fixed_size = False

    configuration: Configuration

    def __init__(
        self,
        *,
        quality: int = DEFAULT_QUALITY,
        encoded_color_space: str,
        decoded_color_space: str | None = None,
        subsampling: Iterable[Iterable[int]] | None = None,
    ) -> None:
        given: dict[str, Any] = {"quality": quality, "encoded_color_space": encoded_color_space}
        if decoded_color_space is not None:
            given["decoded_color_space"] = decoded_color_space
        if subsampling is not None:
            given["subsampling"] = [list(pair) for pair in subsampling]
        object.__setattr__(self, "configuration", parse_configuration(given))

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Build the codec from its object in the metadata; nothing has a default there."""
        configuration = data.get("configuration")
        if not isinstance(configuration, Mapping):
            raise CorruptDataError("codec jpeg: the configuration is missing")
        parse_configuration(configuration)
        return cls(**configuration)  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, JSON]:
        """The codec's object for the metadata; `decoded_color_space` only where it differs from its default."""
        config = self.configuration
        out: dict[str, JSON] = {
            "quality": config.quality,
            "encoded_color_space": config.encoded_color_space,
        }
        if config.decoded_color_space == "ycbcr":
            out["decoded_color_space"] = "ycbcr"
        if config.encoded_color_space == "ycbcr":
            out["subsampling"] = [list(pair) for pair in config.subsampling]
        return {"name": "jpeg", "configuration": out}

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """Check the data type; the shape is the array's own even after `reshape` and says nothing."""
        components_of(SAMPLE_SHAPE, array_spec.dtype.to_native_dtype().name)
        return self

    def _decode(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        _check(chunk_spec, self.configuration)
        space = self.configuration.decoded_color_space
        array = decode_jpeg(chunk_data.to_bytes(), tuple(chunk_spec.shape), space)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(array)

    def _encode(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        _check(chunk_spec, self.configuration)
        encoded = encode_jpeg(chunk_data.as_numpy_array(), self.configuration)
        return chunk_spec.prototype.buffer.from_bytes(encoded)

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return await asyncio.to_thread(self._decode, chunk_data, chunk_spec)

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        return await asyncio.to_thread(self._encode, chunk_data, chunk_spec)

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        """Not known before encoding."""
        raise NotImplementedError


def _check(spec: ArraySpec, configuration: Configuration) -> None:
    check_chunk(tuple(spec.shape), spec.dtype.to_native_dtype().name, configuration)


@dataclass(frozen=True)
class N5JpegZarrCodec(BytesBytesCodec):
    """N5's `jpeg` inside `n5_default`: a grey image of the block's samples in their order; read only."""

    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Take any configuration: it matters to the encoder only."""
        return cls()

    def to_dict(self) -> dict[str, JSON]:
        """The codec's object for the metadata."""
        return {"name": "n5.jpeg", "configuration": {}}

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        item = chunk_spec.dtype.to_native_dtype().itemsize
        size = ByteSize(math.prod(chunk_spec.shape) * item)
        decoded = await asyncio.to_thread(N5JpegCodec().decode, chunk_data.to_bytes(), size)
        return chunk_spec.prototype.buffer.from_bytes(bytes(decoded))

    async def _encode_single(self, chunk_data: Buffer, _chunk_spec: ArraySpec) -> Buffer:
        return chunk_data.from_bytes(N5JpegCodec().encode(chunk_data.to_bytes()))

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        """Not known before encoding."""
        raise NotImplementedError
