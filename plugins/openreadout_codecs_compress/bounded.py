"""Decoding into a buffer of known size, and turning what a library raises into our errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from openreadout.codecs import LIBRARY_ERRORS, Buffer, ByteSize
from openreadout.errors import CorruptDataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLACK = 1 << 16
FIRST_PIECE = 1 << 12
LARGEST_PIECE = 1 << 20


def call(codec: str, decoder: Callable[..., Any], data: Buffer, **options: Any) -> Any:
    """`decoder(data, **options)`, its complaints turned into `CorruptDataError`."""
    try:
        return decoder(data, **options)
    except LIBRARY_ERRORS as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise CorruptDataError(f"{codec}: the data are damaged ({reason})") from error


def decode_into(
    codec: str, decoder: Callable[..., Any], data: Buffer, size: ByteSize, **options: Any
) -> memoryview:
    """Run an imagecodecs decoder that writes into `out` and never past its end.

    Parameters
    ----------
    codec : str
        Named in errors.
    decoder : callable
        Takes `out`, a uint8 array, and returns the part of it that was filled.
    data : bytes-like
    size : ByteSize
        The room that `out` gets; what is not written to costs no memory.

    Returns
    -------
    memoryview
        Of bytes, writable.

    Raises
    ------
    CorruptDataError
        The decoder refuses, or gives another number of bytes than `size` allows.
    """
    import numpy as np

    out: NDArray[np.uint8] = np.empty(size.count, np.uint8)
    filled = len(call(codec, decoder, data, out=out, **options))
    size.check(filled, codec)
    return out[:filled].data


def compressed_bound(size: ByteSize) -> ByteSize:
    """The most that data may take once compressed, by any writer; general compressors add far less than this."""
    return size.grown(size.count // 8 + SLACK)


class Decompressor(Protocol):
    """What `zlib`, `bz2` and `lzma` decompressor objects have in common."""

    @property
    def eof(self) -> bool:
        """Whether the stream's end has been seen."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What followed the end of the stream."""
        ...

    def decompress(self, data: memoryview, max_length: int, /) -> bytes:
        """Decode a piece, to at most `max_length` bytes."""
        ...


class Streams:
    """Decodes one compressed stream after another from one buffer, never past a bound.

    Parameters
    ----------
    codec : str
        Named in errors.
    data : bytes-like
    size : ByteSize
    errors : tuple of exception classes
        What the decompressors raise on damage.
    """

    def __init__(
        self, codec: str, data: Buffer, size: ByteSize, errors: tuple[type[Exception], ...]
    ) -> None:
        self.codec = codec
        self.view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        self.size = size
        self.errors = errors
        self.at = 0
        self.out = bytearray()

    @property
    def rest(self) -> memoryview:
        """What has not been decoded yet."""
        return self.view[self.at :]

    def decode(self, decompressor: Decompressor) -> None:
        """Decode one stream from where the last one ended; raises `CorruptDataError` if it has no end."""
        piece = (
            FIRST_PIECE  # small at first: what follows a short stream is copied out of every piece
        )
        while not decompressor.eof:
            part = self.view[self.at : self.at + piece]
            if not part:
                raise CorruptDataError(f"{self.codec}: {self._shortfall()}")
            room = self.size.count - len(self.out)
            try:
                decoded = decompressor.decompress(part, room + 1)
            except self.errors as error:
                raise CorruptDataError(f"{self.codec}: the data are damaged ({error})") from error
            if len(decoded) > room:
                raise CorruptDataError(
                    f"{self.codec}: the data give more than the {self.size.count} bytes that belong here"
                )
            self.out += decoded
            self.at += len(part)
            piece = min(2 * piece, LARGEST_PIECE)
        self.at -= len(decompressor.unused_data)

    def _shortfall(self) -> str:
        wanted = f" of {self.size.count}" if self.size.exact else ""
        return f"the stream ends after {len(self.out)}{wanted} bytes without its end mark"

    def finish(self) -> bytearray:
        """What was decoded, once its length is right."""
        self.size.check(len(self.out), self.codec)
        return self.out
