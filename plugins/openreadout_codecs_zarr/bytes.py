"""The `bytes` codec: samples one after another in C order, in a given byte order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from openreadout.codecs import Buffer, ByteSize, ChunkSpec, CodecLookup, CodecSpec, native
from openreadout.errors import CorruptDataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def decode_samples(data: Buffer, spec: ChunkSpec, endian: str | None) -> NDArray[Any]:
    """The array of `spec` that `data` holds, in this machine's byte order; read-only where no copy was needed."""
    import numpy as np

    ByteSize(spec.byte_count).check(len(data), "bytes")
    if (
        spec.dtype == "bool"
    ):  # any byte but 0 would otherwise be a bool that equals neither True nor False
        truth: NDArray[Any] = np.frombuffer(data, np.uint8) != 0
        return truth.reshape(spec.shape)
    stored = native(spec.dtype).newbyteorder(">" if endian == "big" else "<")
    array = np.frombuffer(data, stored) if spec.byte_count else np.empty(0, stored)
    return array.astype(native(spec.dtype), copy=False).reshape(spec.shape)


def encode_samples(array: NDArray[Any], spec: ChunkSpec, endian: str | None) -> memoryview:
    """The samples of `array` in C order and the byte order `endian`; a view of them where they lie that way."""
    import numpy as np

    stored = native(spec.dtype).newbyteorder(">" if endian == "big" else "<")
    samples = np.ascontiguousarray(array, stored).reshape(-1)
    return samples.view(np.uint8).data if samples.size else memoryview(b"")


@dataclass(frozen=True, slots=True)
class BytesCodec:
    """Zarr v3 core codec `bytes`, which is also how Zarr v2 and N5 lay out samples.

    `endian` may be left out for types of one byte.
    """

    kind: ClassVar[str] = "array-bytes"
    endian: str | None

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> BytesCodec:
        """Check the configuration: `endian` is `little`, `big` or absent."""
        if spec.configuration.get("endian") is None:
            return cls(None)
        return cls(spec.choice("endian", ("little", "big")))

    def encoded(self, spec: ChunkSpec) -> ByteSize:
        """The exact size; raises `CorruptDataError` when samples of several bytes have no byte order."""
        if self.endian is None and spec.item_bytes > 1:
            raise CorruptDataError(f"codec bytes: no endian is given, which {spec.dtype} needs")
        return ByteSize(spec.byte_count)

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """The samples as an array of `spec`."""
        self.encoded(spec)
        return decode_samples(data, spec, self.endian)

    def encode(self, data: NDArray[Any], spec: ChunkSpec) -> Buffer:
        """The samples in C order; without a copy where that can be."""
        self.encoded(spec)
        return encode_samples(data, spec, self.endian)
