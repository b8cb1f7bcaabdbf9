"""The `jpeg` codec in our own chain, and N5's `jpeg`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from openreadout.codecs import LIBRARY_ERRORS, Buffer, ByteSize, ChunkSpec, CodecLookup, CodecSpec
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout_codec_jpeg.configuration import Configuration, check_chunk, parse_configuration
from openreadout_codec_jpeg.stream import Stream, parse_stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENCODED_SUBSAMPLING = frozenset({(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)})
"""Factors of the first component that libjpeg-turbo is set to here; all are read."""
LARGEST_OVERHEAD = 1 << 20
"""Room for the segments that other programs put into a stream: profiles, previews, comments."""


def decode_stream(data: Buffer, stream: Stream, color_space: str) -> NDArray[Any]:
    """Decode a stream to uint8 samples of shape (H, W) or (H, W, 3) in `color_space`.

    Raises
    ------
    CorruptDataError
        The stream cannot be decoded.
    UnsupportedFeatureError
        Its stored colour space cannot be turned into `color_space`.
    """
    import imagecodecs
    import numpy as np

    if (color_space, stream.color_space) not in (
        ("grayscale", "grayscale"), ("rgb", "rgb"), ("rgb", "ycbcr"), ("ycbcr", "ycbcr"),
    ):  # fmt: skip
        raise UnsupportedFeatureError(
            f"jpeg: the stream holds {stream.color_space}, which is not turned into {color_space}"
        )
    shape = (stream.height, stream.width) + ((3,) if stream.components == 3 else ())
    out: NDArray[np.uint8] = np.empty(shape, np.uint8)
    try:
        imagecodecs.jpeg8_decode(
            bytes(data), colorspace=stream.color_space, outcolorspace=color_space, out=out
        )
    except LIBRARY_ERRORS as error:
        raise CorruptDataError(f"jpeg: the image is damaged ({error!s:.200})") from error
    return out


def decode_jpeg(data: Buffer, shape: tuple[int, ...], color_space: str) -> NDArray[Any]:
    """Decode a chunk of `shape` (H, W), (H, W, 1) or (H, W, 3); sizes are compared before anything is decoded."""
    stream = parse_stream(data)
    components = shape[2] if len(shape) == 3 else 1
    if (stream.height, stream.width, stream.components) != (shape[0], shape[1], components):
        raise CorruptDataError(
            f"jpeg: an image of {stream.height} x {stream.width} with {stream.components} components"
            f" where {list(shape)} belongs"
        )
    return decode_stream(data, stream, color_space).reshape(shape)


def encode_jpeg(array: NDArray[Any], configuration: Configuration) -> bytes:
    """Encode a chunk that `check_chunk` has let pass to a baseline JPEG stream.

    Raises
    ------
    UnsupportedFeatureError
        The subsampling is one that cannot be written here.
    """
    import imagecodecs
    import numpy as np

    factors = configuration.subsampling[0]
    if factors not in ENCODED_SUBSAMPLING:
        raise UnsupportedFeatureError(f"jpeg: subsampling of {list(factors)} is read but not written")  # fmt: skip
    samples = np.ascontiguousarray(array)
    if configuration.components == 1:
        samples = samples.reshape(array.shape[:2])
    options: dict[str, Any] = (
        {} if configuration.encoded_color_space != "ycbcr" else {"subsampling": factors}
    )
    encoded = imagecodecs.jpeg8_encode(
        samples, level=configuration.quality, colorspace=configuration.decoded_color_space,
        outcolorspace=configuration.encoded_color_space, **options,
    )  # fmt: skip
    return bytes(encoded)


@dataclass(frozen=True, slots=True)
class JpegCodec:
    """Zarr extension codec `jpeg`: a chunk as one JPEG image, which loses precision."""

    kind: ClassVar[str] = "array-bytes"
    lossy: ClassVar[bool] = True
    configuration: Configuration

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> JpegCodec:
        """Check the configuration."""
        return cls(parse_configuration(spec.configuration))

    def encoded(self, spec: ChunkSpec) -> ByteSize:
        """Twice the samples at most, and room for other segments."""
        check_chunk(spec.shape, spec.dtype, self.configuration)
        return ByteSize(2 * spec.byte_count + LARGEST_OVERHEAD, exact=False)

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Decode an image of exactly the chunk's size."""
        check_chunk(spec.shape, spec.dtype, self.configuration)
        return decode_jpeg(data, spec.shape, self.configuration.decoded_color_space)

    def encode(self, data: NDArray[Any], spec: ChunkSpec) -> bytes:
        """Encode to a baseline image."""
        check_chunk(spec.shape, spec.dtype, self.configuration)
        return encode_jpeg(data, self.configuration)


@dataclass(frozen=True, slots=True)
class N5JpegCodec:
    """N5's `jpeg`, bytes to bytes: the samples of a uint8 block in their order, as one grey image of any proportions.

    The image's rows one after another are the block. An image with more or fewer samples, or with colour, leaves open
    which sample is which and is refused.
    """

    kind: ClassVar[str] = "bytes-bytes"

    @classmethod
    def from_spec(cls, spec: CodecSpec, lookup: CodecLookup) -> N5JpegCodec:
        """Take any configuration: it matters to the encoder only."""
        return cls()

    def encoded(self, size: ByteSize) -> ByteSize:
        """Twice the samples at most, and room for other segments."""
        return size.grown(size.count + LARGEST_OVERHEAD)

    def decode(self, data: Buffer, size: ByteSize) -> Buffer:
        """Decode an image of exactly the block's number of samples."""
        stream = parse_stream(data)
        if stream.components != 1:
            raise UnsupportedFeatureError(
                "n5.jpeg: a colour image, which does not say how its samples fill an N5 block"
            )
        size.check(stream.height * stream.width, "n5.jpeg")
        return decode_stream(data, stream, "grayscale").tobytes()

    def encode(self, data: Buffer) -> bytes:
        """Refuse: how wide the image should be is known to nobody."""
        raise UnsupportedFeatureError("n5.jpeg is read but not written")
