"""Filters and compressors that numcodecs builds by name: checksums, delta, packbits, and whatever is installed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from openreadout.codecs import ITEM_BYTES, Buffer, ByteSize, ChunkSpec, CodecLookup, CodecSpec
from openreadout.errors import CorruptDataError, OpenReadoutError, UnsupportedFeatureError

if TYPE_CHECKING:
    from numpy.typing import NDArray

PREFIX = "numcodecs."
OBJECTS = frozenset({"pickle", "json2", "msgpack2", "categorize", "vlen-utf8", "vlen-bytes", "vlen-array"})  # fmt: skip
"""Codecs of Python objects: no pixels, and unpickling runs whatever the file holds."""
ARRAY_FILTERS = frozenset({"delta", "fixedscaleoffset", "packbits", "bitround", "quantize", "astype"})  # fmt: skip
"""Array to array where Zarr v3 names them before `bytes`; bytes to bytes as filters of Zarr v2."""
SERIALIZERS = frozenset({"pcodec", "zfpy"})
"""Array to bytes in Zarr v3, compressors in Zarr v2."""
CHECKSUMS = frozenset({"adler32", "crc32", "fletcher32", "jenkins_lookup3"})
CHECKSUM_BYTES = 4
DTYPE_KEYS = ("dtype", "astype", "encode_dtype", "decode_dtype")
NUMBER_KINDS = "biufc"


def codec_id(spec: CodecSpec) -> str:
    """numcodecs' own name of a codec."""
    return str(spec.name).removeprefix(PREFIX)


def build(spec: CodecSpec) -> Any:
    """Build the numcodecs codec that `spec` names.

    Raises
    ------
    UnsupportedFeatureError
        numcodecs has no such codec here, or it is one of Python objects.
    CorruptDataError
        The configuration is not one that the codec takes.
    """
    import numcodecs
    from numcodecs.errors import UnknownCodecError

    name = codec_id(spec)
    if name in OBJECTS:
        raise UnsupportedFeatureError(f"codec {spec.name} is for Python objects, not for pixels")
    config = {key: value for key, value in spec.configuration.items() if key != "id"}
    _check_numbers(spec)
    try:
        return numcodecs.get_codec({"id": name, **config})
    except (UnknownCodecError, ImportError) as error:
        raise UnsupportedFeatureError(
            f"codec {spec.name} is not installed",
            hint="install the package that brings it to numcodecs, or convert with the tool that wrote the data",
        ) from error
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:
        raise CorruptDataError(f"codec {spec.name}: {error}") from error


def _check_numbers(spec: CodecSpec) -> None:
    for key in DTYPE_KEYS:
        if spec.configuration.get(key) is not None:
            item_type(spec, key)
    if "elementsize" in spec.configuration:
        spec.integer("elementsize", 0, 1 << 16)


def item_type(spec: CodecSpec, key: str, default: str | None = None) -> Any:
    """A data type of the configuration; raises `CorruptDataError` unless it is one of numbers."""
    import numpy as np

    value = spec.configuration.get(key)
    value = value if value is not None else default and spec.configuration.get(default)
    try:
        dtype = np.dtype(value) if isinstance(value, str) else None
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    if dtype is None or dtype.kind not in NUMBER_KINDS or dtype.name not in ITEM_BYTES:
        raise CorruptDataError(f"codec {spec.name}: {key} {value!r:.100} is no type of numbers")
    return dtype


def types_of(spec: CodecSpec) -> tuple[Any, Any]:
    """The data types before and after encoding of a filter that may change them."""
    if codec_id(spec) == "astype":
        return item_type(spec, "decode_dtype"), item_type(spec, "encode_dtype")
    return item_type(spec, "dtype"), item_type(spec, "astype", "dtype")


def encoded_size(spec: CodecSpec, size: ByteSize) -> ByteSize:
    """The bound on what `size` bytes encode to, exact where the codec's rule is known."""
    name = codec_id(spec)
    if name in ("delta", "fixedscaleoffset", "quantize", "astype"):
        decoded, encoded = types_of(spec)
        return ByteSize(size.count // decoded.itemsize * encoded.itemsize, size.exact)
    if name in ("shuffle", "bitround"):
        return size
    if name in CHECKSUMS:
        return ByteSize(size.count + CHECKSUM_BYTES, size.exact)
    if name == "packbits":
        return ByteSize(1 + -(-size.count // 8), size.exact)
    return size.grown(size.count + (1 << 16))


def run(spec: CodecSpec, work: Callable[[Any], Any], data: Any) -> Any:
    """Let a numcodecs codec work on `data`; whatever it raises leaves as `CorruptDataError`."""
    try:
        return work(data)
    except (OpenReadoutError, MemoryError):
        raise
    except Exception as error:  # codecs of other packages raise anything at all
        reason = str(error) or type(error).__name__
        raise CorruptDataError(f"{spec.name}: the data are damaged ({reason:.200})") from error


def as_bytes(value: Any) -> memoryview:
    """The bytes of what a codec returned, an array or a buffer."""
    import numpy as np

    array = value if isinstance(value, np.ndarray) else np.frombuffer(value, np.uint8)
    array = np.ascontiguousarray(array)
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


@dataclass(frozen=True, slots=True)
class NumcodecsCodec:
    """A codec of numcodecs, bytes to bytes; the name is `numcodecs.<id>`."""

    kind: ClassVar[str] = "bytes-bytes"
    spec: CodecSpec
    codec: Any

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> NumcodecsCodec:
        """Check the configuration and build the codec."""
        return cls(spec, build(spec))

    @classmethod
    def placed(cls, spec: CodecSpec, after_bytes: bool) -> Any:
        """The factory for the codec's place in the chain: Zarr v3 has some of these work on arrays."""
        if not after_bytes and codec_id(spec) in ARRAY_FILTERS:
            return NumcodecsArrayCodec
        if not after_bytes and codec_id(spec) in SERIALIZERS:
            return NumcodecsSerializer
        return cls

    def encoded(self, size: ByteSize) -> ByteSize:
        """Exact where the codec's rule is known, otherwise twice as much."""
        return encoded_size(self.spec, size)

    def decode(self, data: Buffer, size: ByteSize) -> Buffer:
        """Decode; these codecs tell their size only when they are done."""
        if codec_id(self.spec) == "packbits":
            _check_packbits(data)
        decoded = as_bytes(run(self.spec, self.codec.decode, data))
        size.check(len(decoded), self.spec.name)
        return decoded

    def encode(self, data: Buffer) -> bytes:
        """Encode; `bitround` cannot, since bytes do not say which floats they are."""
        if codec_id(self.spec) == "bitround":
            raise UnsupportedFeatureError(f"{self.spec.name} is not written after bytes")
        return bytes(as_bytes(run(self.spec, self.codec.encode, data)))


def _check_packbits(data: Buffer) -> None:
    """The first byte counts the unused bits of the last one; numcodecs takes it as it is."""
    if not len(data) or data[0] > 7:
        raise CorruptDataError("numcodecs.packbits: the data do not begin with a count below 8")


@dataclass(frozen=True, slots=True)
class NumcodecsArrayCodec:
    """A filter of numcodecs at the array's side of a Zarr v3 chain."""

    kind: ClassVar[str] = "array-array"
    spec: CodecSpec
    codec: Any

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> NumcodecsArrayCodec:
        """Check the configuration and build the codec."""
        return cls(spec, build(spec))

    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """The filter's data type; `packbits` also flattens the array."""
        name = codec_id(self.spec)
        if name == "bitround":
            return spec
        if name == "packbits":
            return replace(spec, shape=(1 + -(-math.prod(spec.shape) // 8),), dtype="uint8")
        decoded, encoded = types_of(self.spec)
        if decoded.name != spec.dtype:
            raise CorruptDataError(
                f"codec {self.spec.name}: made for {decoded.name}, the array is {spec.dtype}"
            )
        return replace(spec, dtype=str(encoded.name))

    def decode(self, data: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Undo the filter."""
        import numpy as np

        if codec_id(self.spec) == "packbits":
            _check_packbits(data.tobytes())
        decoded = run(self.spec, self.codec.decode, np.ascontiguousarray(data))
        return self._shaped(decoded, spec)

    def encode(self, data: NDArray[Any], spec: ChunkSpec) -> NDArray[Any]:
        """Apply the filter."""
        import numpy as np

        encoded = run(self.spec, self.codec.encode, np.ascontiguousarray(data))
        return self._shaped(encoded, self.encoded(spec))

    def _shaped(self, value: Any, spec: ChunkSpec) -> NDArray[Any]:
        import numpy as np

        array: NDArray[Any] = np.asarray(value)
        if codec_id(self.spec) == "bitround" and array.dtype.itemsize == spec.item_bytes:
            array = array.view(np.dtype(spec.dtype))  # it hands out the floats' bits as integers
        if array.size != math.prod(spec.shape) or array.dtype.name != spec.dtype:
            raise CorruptDataError(
                f"{self.spec.name}: {array.size} samples of {array.dtype} where"
                f" {math.prod(spec.shape)} of {spec.dtype} belong"
            )
        return array.astype(np.dtype(spec.dtype), copy=False).reshape(spec.shape)


@dataclass(frozen=True, slots=True)
class NumcodecsSerializer:
    """A numcodecs codec that turns an array into bytes at once (`pcodec`, `zfpy`)."""

    kind: ClassVar[str] = "array-bytes"
    spec: CodecSpec
    codec: Any

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> NumcodecsSerializer:
        """Check the configuration and build the codec."""
        return cls(spec, build(spec))

    def encoded(self, spec: ChunkSpec) -> ByteSize:
        """Twice the array's size at most."""
        return encoded_size(self.spec, ByteSize(spec.byte_count))

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode to an array of `spec`."""
        import numpy as np

        decoded = as_bytes(run(self.spec, self.codec.decode, data))
        ByteSize(spec.byte_count).check(len(decoded), self.spec.name)
        return np.frombuffer(decoded, np.dtype(spec.dtype)).reshape(spec.shape)

    def encode(self, data: NDArray[Any], spec: ChunkSpec) -> bytes:
        """Encode an array of `spec`."""
        import numpy as np

        return bytes(as_bytes(run(self.spec, self.codec.encode, np.ascontiguousarray(data))))
