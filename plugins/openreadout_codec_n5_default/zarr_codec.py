"""`n5_default` as a codec of zarr-python, which builds the inner codecs itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec
from zarr.registry import get_codec_class

from openreadout.codecs import ChunkSpec
from openreadout.errors import CorruptDataError, OpenReadoutError
from openreadout_codec_n5_default.blocks import (
    block_header,
    check_block_size,
    check_dimensions,
    check_dtype,
    parse_block_header,
    parse_configuration,
)
from openreadout_codec_n5_default.codec import fitted

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer, NDBuffer
    from zarr.core.common import JSON


def _build(entry: Codec | Mapping[str, Any]) -> Codec:
    if isinstance(entry, ArrayArrayCodec | ArrayBytesCodec | BytesBytesCodec):
        return entry
    name, entry = str(entry["name"]), dict(entry)
    if name == "bytes" and not (entry.get("configuration") or {}).get("endian"):
        entry["configuration"] = {"endian": None}  # zarr would take this machine's byte order
    try:
        factory = get_codec_class(name)
    except KeyError as error:
        raise ValueError(f"codec n5_default: zarr knows no codec {name!r:.100}") from error
    return factory.from_dict(entry)


def _described(entry: Any) -> Any:
    return entry.to_dict() if hasattr(entry, "to_dict") else entry


@dataclass(frozen=True)
class N5DefaultZarrCodec(ArrayBytesCodec):
    """N5 blocks in default mode.

    Parameters
    ----------
    codecs : iterable of codec or dict
        A full transposition, big-endian bytes, and at most one compressor.

    Raises
    ------
    ValueError
        The codecs break one of the rules of `n5_default`.
    """

    is_fixed_size = False

    codecs: tuple[Codec, ...]

    def __init__(self, *, codecs: Iterable[Codec | Mapping[str, Any]]) -> None:
        listed = tuple(codecs)
        parse_configuration({"codecs": [_described(entry) for entry in listed]})
        built = tuple(_build(entry) for entry in listed)
        if len(built) == 3 and not isinstance(built[2], BytesBytesCodec):
            raise CorruptDataError("codec n5_default: the last codec is no bytes-to-bytes codec")
        object.__setattr__(self, "codecs", built)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """Build the codec from its object in the metadata, every rule checked."""
        configuration = data.get("configuration")
        if not isinstance(configuration, Mapping):
            raise CorruptDataError("codec n5_default: the configuration is missing")
        parse_configuration(configuration)
        return cls(codecs=configuration["codecs"])  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, JSON]:
        """The codec's object for the metadata."""
        return {
            "name": "n5_default",
            "configuration": {"codecs": [codec.to_dict() for codec in self.codecs]},
        }

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """Check the data type and let the inner codecs adapt to it.

        The shape is not looked at: zarr gives every codec that of the array, also after one that changes it.
        """
        configuration = {"codecs": [codec.to_dict() for codec in self.codecs]}
        dtype = array_spec.dtype.to_native_dtype().name
        check_dtype(dtype, parse_configuration(configuration))
        transpose, *others = self.codecs
        evolved = [codec.evolve_from_array_spec(array_spec=array_spec) for codec in others]
        return type(self)(codecs=(transpose, *evolved))

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        data = chunk_data.to_bytes()
        header = parse_block_header(data, len(chunk_spec.shape))
        wanted = _chunk_spec(chunk_spec)
        check_block_size(header.shape, wanted.shape, wanted.item_bytes)
        specs = self._specs(replace(chunk_spec, shape=header.shape))
        encoded: Any = chunk_spec.prototype.buffer.from_bytes(data[header.size :])
        try:
            for codec, spec in zip(reversed(self.codecs), reversed(specs), strict=True):
                (encoded,) = await codec.decode([(encoded, spec)])
        except Exception as error:  # codecs of any package, which raise anything on damage
            if isinstance(error, OpenReadoutError | MemoryError):
                raise
            raise CorruptDataError(f"n5_default: the block is damaged ({error!s:.200})") from error
        block = fitted(encoded.as_numpy_array(), wanted)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(block)

    async def _encode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> Buffer:
        header = block_header(chunk_spec.shape)
        encoded: Any = chunk_data
        for codec, spec in zip(self.codecs, self._specs(chunk_spec), strict=True):
            (encoded,) = await codec.encode([(encoded, spec)])
        return chunk_spec.prototype.buffer.from_bytes(header + encoded.to_bytes())

    def _specs(self, spec: ArraySpec) -> list[ArraySpec]:
        """What each inner codec is given when encoding an array of `spec`."""
        configuration = parse_configuration({"codecs": [codec.to_dict() for codec in self.codecs]})
        check_dimensions(spec.shape, configuration)
        specs = [spec]
        for codec in self.codecs[:-1]:
            specs.append(codec.resolve_metadata(specs[-1]))
        return specs

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        """Not known before encoding."""
        raise NotImplementedError


def _chunk_spec(spec: ArraySpec) -> ChunkSpec:
    fill = 0 if spec.fill_value is None else spec.fill_value
    return ChunkSpec(tuple(spec.shape), spec.dtype.to_native_dtype().name, fill)
