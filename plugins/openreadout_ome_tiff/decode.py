"""Decode one strip or tile, with its size known beforehand.

Everything goes through imagecodecs (LZMA through the standard library, which also verifies the stream's end), which
releases the interpreter lock. A segment that decodes to fewer samples than it must have is an error: tifffile and
libtiff fill up with zeros in places, which nobody can tell from data. More is cut where writers are known to pad.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from openreadout.codecs import LIBRARY_ERRORS
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout_ome_tiff.page import PageLayout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

IMAGE_CODECS = frozenset({"jpeg", "jpeg2000", "jpegxr", "webp", "lerc", "jpegxl", "png"})
"""Codecs whose streams carry their own shape and type."""
BYTE_CODECS = frozenset({"none", "lzw", "deflate", "packbits", "zstd", "lzma"})
_END_MARKED = frozenset({"jpeg", "jpeg2000"})
"""Codecs whose streams end with the marker 0xFFD9, which cannot be part of their data."""
_FAX_CODECS = frozenset({"ccitt_rle", "ccitt_fax3", "ccitt_fax4"})
_PREDICTOR_DISTANCE = {2: 1, 34892: 2, 34893: 4, 3: 1, 34894: 2, 34895: 4}
_FLOAT_PREDICTORS = frozenset({3, 34894, 34895})


def check_supported(layout: PageLayout, dtype: str) -> None:
    """Refuse what cannot be decoded, before any segment is read.

    Raises
    ------
    UnsupportedFeatureError
        The compression, the predictor or the type is not read.
    """
    from openreadout.codecs import ITEM_BYTES

    if layout.codec not in IMAGE_CODECS | BYTE_CODECS | _FAX_CODECS:
        raise UnsupportedFeatureError(f"TIFF compression {layout.compression} is not read")
    if dtype not in ITEM_BYTES:
        raise UnsupportedFeatureError(f"{dtype} are not read")
    if layout.codec in BYTE_CODECS:
        if layout.predictor != 1 and layout.predictor not in _PREDICTOR_DISTANCE:
            raise UnsupportedFeatureError(f"TIFF predictor {layout.predictor} is not read")
        if layout.predictor != 1 and (layout.bits % 8 or layout.bits == 24):
            raise UnsupportedFeatureError(f"a predictor on {layout.bits}-bit samples is not read")
        if layout.predictor in _FLOAT_PREDICTORS and layout.sample_format != 3:
            raise UnsupportedFeatureError("a floating-point predictor on whole numbers is not read")
        if layout.photometric == 6 and layout.subsampling != (1, 1) and layout.samples > 1:
            raise UnsupportedFeatureError("subsampled colour without JPEG is not read")


def decode_segment(
    layout: PageLayout, dtype: str, data: bytes | memoryview, rows: int, jpeg_tables: bytes | None
) -> NDArray[Any]:
    """Decode a segment.

    Parameters
    ----------
    layout : PageLayout
    dtype : str
        numpy name of the samples' type.
    data : bytes or memoryview
        The stored segment.
    rows : int
        Rows that it holds: a tile's own, or what is left for the last strip.
    jpeg_tables : bytes or None

    Returns
    -------
    numpy.ndarray
        Shape (rows, segment width, stored samples), native byte order; may be read-only. Image codecs may give a
        tile that is cut at the image's edge.

    Raises
    ------
    CorruptDataError
        The segment does not decode, or not to that many samples.
    UnsupportedFeatureError
        The codec is not installed.
    """
    import numpy as np

    try:
        if layout.codec in IMAGE_CODECS:
            return _decode_image(layout, np.dtype(dtype), data, rows, jpeg_tables)
        if layout.codec in _FAX_CODECS:
            return _decode_fax(layout, np.dtype(dtype), data, rows)
        return _decode_bytes(layout, np.dtype(dtype), data, rows)
    except (CorruptDataError, UnsupportedFeatureError):
        raise
    except ImportError as error:
        raise UnsupportedFeatureError(
            f"the codec {layout.codec} is not part of the installed imagecodecs"
        ) from error
    except MemoryError as error:
        raise CorruptDataError(
            f"{layout.codec}: there is no memory for the decoded size"
        ) from error
    except LIBRARY_ERRORS as error:
        raise CorruptDataError(f"{layout.codec}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


# -- codecs of bytes -------------------------------------------------------------------------------


def _decode_bytes(
    layout: PageLayout, dtype: np.dtype[Any], data: bytes | memoryview, rows: int
) -> NDArray[Any]:
    import imagecodecs
    import numpy as np

    if layout.fill_order == 2:
        data = bytes(imagecodecs.bitorder_decode(bytes(data)))
    size = rows * layout.row_bytes
    raw = _unpacked(layout, data, size)
    shape = (rows, layout.segment_width, layout.stored_samples)
    if layout.bits % 8 or layout.bits == 24:
        return _packed(layout, dtype, raw, shape)
    if layout.predictor in _FLOAT_PREDICTORS:
        return _float_predicted(layout, raw, shape)
    if layout.sample_format == 5:
        half = np.frombuffer(raw, np.dtype(f"i{layout.bits // 16}").newbyteorder(layout.order))
        return half.astype("f4").view("c8").reshape(shape)
    stored = dtype.newbyteorder(layout.order)
    samples = np.frombuffer(raw, stored).reshape(shape)
    if not samples.dtype.isnative:
        samples = samples.astype(dtype)
    if layout.predictor == 1:
        return samples
    whole = np.dtype(f"u{dtype.itemsize}")
    distance = _PREDICTOR_DISTANCE[layout.predictor]
    undone = _undo_differences(samples.view(whole), distance)
    return undone.view(dtype)


def _undo_differences(samples: NDArray[Any], distance: int) -> NDArray[Any]:
    """Add up along x, for each colour sample by itself."""
    import imagecodecs
    import numpy as np

    out = np.empty(samples.shape, samples.dtype)
    imagecodecs.delta_decode(samples, axis=-2, dist=distance, out=out)
    return out


def _float_predicted(layout: PageLayout, raw: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Undo the floating-point predictor, whose bytes are big-endian in every file (TIFF Technical Note 3)."""
    import imagecodecs
    import numpy as np

    encoded = np.frombuffer(raw, f"f{layout.bits // 8}").reshape(shape)
    out = np.empty(shape, encoded.dtype)
    imagecodecs.floatpred_decode(
        encoded, axis=-2, dist=_PREDICTOR_DISTANCE[layout.predictor], out=out
    )
    return out


def _packed(
    layout: PageLayout, dtype: np.dtype[Any], raw: Any, shape: tuple[int, ...]
) -> NDArray[Any]:
    """Samples that do not fill whole bytes, or that numpy has no type for."""
    import imagecodecs
    import numpy as np

    if layout.bits == 1:
        packed = np.frombuffer(raw, np.uint8).reshape(shape[0], layout.row_bytes)
        bits = np.unpackbits(packed, axis=1, count=shape[1] * shape[2])
        return bits.reshape(shape).view(dtype) if dtype.itemsize == 1 else bits.reshape(shape)
    if layout.bits == 24 and dtype.kind == "f":
        return imagecodecs.float24_decode(bytes(raw), byteorder=layout.order).reshape(shape)
    unpacked = imagecodecs.packints_decode(
        bytes(raw), dtype, layout.bits, runlen=shape[1] * shape[2]
    )
    return unpacked.reshape(shape)


def _unpacked(layout: PageLayout, data: bytes | memoryview, size: int) -> Any:
    """Exactly `size` bytes out of a compressed segment."""
    if layout.codec == "none":
        if len(data) < size:
            raise CorruptDataError(f"{len(data)} bytes where {size} belong")
        return memoryview(data)[:size]
    decode = _BYTE_DECODERS[layout.codec]
    full = layout.segment_length * layout.row_bytes
    try:
        raw = decode(data, size)
    except LIBRARY_ERRORS:
        if full <= size:
            raise
        raw = decode(data, full)  # some writers fill the last strip up to its full rows
    if len(raw) < size:
        raise CorruptDataError(f"{layout.codec}: {len(raw)} bytes where {size} belong")
    return raw[:size]


def _by_imagecodecs(name: str) -> Callable[[bytes | memoryview, int], Any]:
    def decode(data: bytes | memoryview, size: int) -> Any:
        import imagecodecs
        import numpy as np

        if len(data) == 0:
            return b""
        return getattr(imagecodecs, name)(data, out=np.empty(size, np.uint8))

    return decode


def _lzma(data: bytes | memoryview, size: int) -> Any:
    import lzma

    machine = lzma.LZMADecompressor()
    try:
        raw = machine.decompress(data, size + 1)
        if len(raw) == size and not machine.eof:
            raw += machine.decompress(b"", 1)
    except lzma.LZMAError as error:
        raise CorruptDataError(f"lzma: {error}") from error
    if len(raw) == size and not machine.eof:
        raise CorruptDataError("lzma: the stream is cut")
    if len(raw) > size:
        raise RuntimeError("more bytes than belong")
    return raw


_BYTE_DECODERS: dict[str, Callable[[bytes | memoryview, int], Any]] = {
    "lzw": _by_imagecodecs("lzw_decode"),
    "deflate": _by_imagecodecs("deflate_decode"),
    "packbits": _by_imagecodecs("packbits_decode"),
    "zstd": _by_imagecodecs("zstd_decode"),
    "lzma": _lzma,
}


def _decode_fax(
    layout: PageLayout, dtype: np.dtype[Any], data: bytes | memoryview, rows: int
) -> NDArray[Any]:
    """Bilevel fax codecs, which are told the size of what they decode."""
    import imagecodecs

    if layout.bits != 1 or layout.stored_samples != 1:
        raise CorruptDataError(f"{layout.codec}: only bilevel samples can have it")
    raw = bytes(data)
    if layout.fill_order == 2:
        raw = bytes(imagecodecs.bitorder_decode(raw))
    width = layout.segment_width
    if layout.codec == "ccitt_rle":
        found = imagecodecs.ccittrle_decode(raw, rows, width)
    elif layout.codec == "ccitt_fax3":
        found = imagecodecs.ccittfax3_decode(raw, rows, width, t4options=layout.t4_options)
    else:
        found = imagecodecs.ccittfax4_decode(raw, rows, width)
    return found.reshape(rows, width, 1).astype(dtype)


# -- codecs of images ------------------------------------------------------------------------------


def _decode_image(
    layout: PageLayout,
    dtype: np.dtype[Any],
    data: bytes | memoryview,
    rows: int,
    jpeg_tables: bytes | None,
) -> NDArray[Any]:
    shape = (rows, layout.segment_width, layout.stored_samples)
    stream = bytes(data)
    if (
        layout.codec in _END_MARKED
        and b"\xff\xd9" not in stream[-64:]
        and b"\xff\xd9" not in stream
    ):
        # Decoders fill the rest of a cut stream with grey and say nothing.
        raise CorruptDataError(f"{layout.codec}: the stream is cut, its end is missing")
    found = _shape_of(layout.codec, stream)
    if found is not None:
        _check_shape(layout, found, shape)
    image = _image_decoder(layout, stream, rows, jpeg_tables)
    if image.ndim == 2:
        image = image[..., None]
    if layout.codec == "webp" and shape[2] == 4 and image.ndim == 3 and image.shape[2] == 3:
        image = _with_opacity(image)
    if image.ndim != 3 or image.shape[2] != shape[2]:
        raise CorruptDataError(
            f"{layout.codec}: {_words(image.shape)} samples where {_words(shape)} belong"
        )
    _check_shape(layout, image.shape[:2], shape)
    image = image[: shape[0], : shape[1]]
    if image.dtype == dtype:
        return image
    if image.dtype.itemsize == dtype.itemsize and image.dtype.kind in "iu" and dtype.kind in "iu":
        return image.view(dtype)
    if layout.bits % 8 and image.dtype.kind == dtype.kind:  # such as 12 bits in 16
        return image.astype(dtype)
    raise CorruptDataError(f"{layout.codec}: samples of {image.dtype} where {dtype} belongs")


def _words(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _check_shape(layout: PageLayout, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """The rows and columns of a stream: the segment's, those of a tile cut at the image's edge or of a padded strip."""
    rows, columns = found[0], found[1]
    if rows > max(wanted[0], layout.segment_length) or columns > wanted[1]:
        right = False
    elif layout.tiled:
        right = rows >= min(
            wanted[0], _last(layout.length, layout.segment_length)
        ) and columns >= min(wanted[1], _last(layout.width, layout.segment_width))
    else:
        right = rows >= wanted[0] and columns == wanted[1]
    if not right:
        raise CorruptDataError(
            f"{layout.codec}: an image of {rows} x {columns} where {wanted[0]} x {wanted[1]} belongs"
        )


def _last(length: int, step: int) -> int:
    """Length of the last step along an axis."""
    return length - (length - 1) // step * step


def _image_decoder(
    layout: PageLayout, stream: bytes, rows: int, jpeg_tables: bytes | None
) -> NDArray[Any]:
    import imagecodecs

    codec = layout.codec
    if codec == "jpeg":
        return _decode_jpeg(layout, stream, rows, jpeg_tables)
    if codec == "jpeg2000":
        return imagecodecs.jpeg2k_decode(stream, numthreads=1)
    if codec == "webp":
        return imagecodecs.webp_decode(stream, hasalpha=layout.samples == 4)
    if codec == "jpegxl":
        return imagecodecs.jpegxl_decode(stream, numthreads=1)
    if codec == "jpegxr":
        from openreadout_ome_tiff.isolated import JPEGXR

        samples = layout.segment_length * layout.segment_width * layout.stored_samples
        return JPEGXR.decode(stream, samples * 16)
    if codec == "png":
        return imagecodecs.png_decode(stream)
    return imagecodecs.lerc_decode(stream)


def _with_opacity(image: NDArray[Any]) -> NDArray[Any]:
    """RGB with an opaque fourth sample: WebP leaves out an alpha channel that is opaque throughout."""
    import numpy as np

    out = np.full((*image.shape[:2], 4), np.iinfo(image.dtype).max, image.dtype)
    out[..., :3] = image
    return out


def _decode_jpeg(
    layout: PageLayout, stream: bytes, rows: int, jpeg_tables: bytes | None
) -> NDArray[Any]:
    """JPEG, with the tables of the IFD; colour comes back as RGB where the IFD says YCbCr or RGB."""
    import imagecodecs

    stored, wanted = _jpeg_colour(layout, has_jfif=stream[6:10] == b"JFIF")
    return imagecodecs.jpeg_decode(
        stream,
        bitspersample=layout.bits,
        tables=jpeg_tables,
        colorspace=stored,
        outcolorspace=wanted,
        shape=(rows, layout.segment_width),
    )


def _jpeg_colour(layout: PageLayout, *, has_jfif: bool) -> tuple[int | None, int | str | None]:
    """Colour space of the stream (None: as its markers say) and of the result.

    The photometric interpretation of the IFD counts, not the stream's markers: slide scanners write RGB samples
    without an Adobe marker, which a bare decoder would take for YCbCr.
    """
    if layout.planar:
        return None, 1
    if layout.extra_samples:
        return None, None
    if layout.photometric == 6:
        return None, 2
    if layout.photometric == 2:
        return (None if has_jfif else 2), 2
    if layout.photometric == 5:
        return None, 4
    return None, None


# -- shapes that streams declare -------------------------------------------------------------------


def _shape_of(codec: str, stream: bytes) -> tuple[int, int] | None:
    """Rows and columns that a stream declares, so that nothing larger is ever decoded; None where it is not known.

    Raises
    ------
    CorruptDataError
        The stream lacks its header.
    """
    finder = _SHAPES.get(codec)
    if finder is None:
        return None
    found = finder(stream)
    if found is None:
        raise CorruptDataError(f"{codec}: the stream has no header that gives its size")
    return found


def _jpeg_size(stream: bytes) -> tuple[int, int] | None:
    """From the frame header (ITU T.81, B.2.2); 0 rows are defined after the first scan, and not accepted."""
    place = 2
    if stream[:2] != b"\xff\xd8":
        return None
    while place + 4 <= len(stream):
        if stream[place] != 0xFF:
            return None
        marker = stream[place + 1]
        if marker == 0xFF or 0xD0 <= marker <= 0xD8 or marker == 1:
            place += 1 if marker == 0xFF else 2
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            if place + 9 > len(stream):
                return None
            rows, columns = struct.unpack_from(">HH", stream, place + 5)
            return rows, columns
        place += 2 + int(struct.unpack_from(">H", stream, place + 2)[0])
    return None


def _jpeg2000_size(stream: bytes) -> tuple[int, int] | None:
    """From the SIZ marker segment (ITU T.800, A.5.1)."""
    place = stream.find(b"\xff\x4f\xff\x51", 0, 1 << 16)
    if place < 0 or place + 24 > len(stream):
        return None
    right, bottom, left, top = struct.unpack_from(">IIII", stream, place + 8)
    return bottom - top, right - left


def _png_size(stream: bytes) -> tuple[int, int] | None:
    """From IHDR; every chunk's checksum is verified, since the decoder only prints a warning for some (PNG, 5.3)."""
    import zlib

    if stream[:8] != b"\x89PNG\r\n\x1a\n" or stream[12:16] != b"IHDR" or len(stream) < 33:
        return None
    place, kind = 8, b""
    while kind != b"IEND":
        if place + 12 > len(stream):
            raise CorruptDataError("png: the stream is cut")
        length = int(struct.unpack_from(">I", stream, place)[0])
        kind = stream[place + 4 : place + 8]
        end = place + 8 + length
        stored = stream[end : end + 4]
        if len(stored) < 4:
            raise CorruptDataError("png: the stream is cut")
        if zlib.crc32(stream[place + 4 : end]) != int.from_bytes(stored, "big"):
            raise CorruptDataError("png: a chunk's checksum does not match")
        place = end + 4
    columns, rows = struct.unpack_from(">II", stream, 16)
    return rows, columns


def _webp_size(stream: bytes) -> tuple[int, int] | None:
    """From the first chunk (WebP container specification)."""
    if stream[:4] != b"RIFF" or stream[8:12] != b"WEBP" or len(stream) < 30:
        return None
    kind = stream[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(stream[27:30], "little"), 1 + int.from_bytes(
            stream[24:27], "little"
        )
    if kind == b"VP8L":
        bits = int.from_bytes(stream[21:25], "little")
        return 1 + (bits >> 14 & 0x3FFF), 1 + (bits & 0x3FFF)
    columns, rows = struct.unpack_from("<HH", stream, 26)
    return rows & 0x3FFF, columns & 0x3FFF


def _lerc_size(stream: bytes) -> tuple[int, int] | None:
    """From the header of a Lerc2 blob."""
    if stream[:6] != b"Lerc2 " or len(stream) < 26:
        return None
    version = struct.unpack_from("<i", stream, 6)[0]
    rows, columns = struct.unpack_from("<ii", stream, 14 if version >= 3 else 10)
    return (rows, columns) if rows > 0 and columns > 0 else None


def _jpegxr_size(stream: bytes) -> tuple[int, int] | None:
    """From the tags ImageWidth and ImageHeight of the container (ITU T.832, annex A)."""
    if stream[:3] != b"II\xbc" or len(stream) < 8:
        return None
    start = struct.unpack_from("<I", stream, 4)[0]
    if start + 2 > len(stream):
        return None
    found = {}
    for n in range(struct.unpack_from("<H", stream, start)[0]):
        place = start + 2 + 12 * n
        if place + 12 > len(stream):
            return None
        code, kind, _, value = struct.unpack_from("<HHII", stream, place)
        found[code] = value & 0xFFFF if kind == 3 else value
    if 0xBC80 not in found or 0xBC81 not in found:
        return None
    return found[0xBC81], found[0xBC80]


_SHAPES: dict[str, Callable[[bytes], tuple[int, int] | None]] = {
    "jpeg": _jpeg_size,
    "jpeg2000": _jpeg2000_size,
    "png": _png_size,
    "webp": _webp_size,
    "lerc": _lerc_size,
    "jpegxr": _jpegxr_size,
}
