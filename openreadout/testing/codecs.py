"""What every codec must do, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from openreadout.codecs import ByteSize, ChunkSpec, CodecChain, CodecFactory, CodecLookup, CodecSpec
from openreadout.errors import CorruptDataError, UnsupportedFeatureError

if TYPE_CHECKING:
    from numpy.typing import NDArray

CUTS = (0.0, 0.25, 0.5, 0.9)
"""Parts of an encoded chunk that are kept; none of them may decode."""
FLIPS = 40
"""Places of an encoded chunk where a byte is turned round, one at a time."""

Check = tuple[str, Callable[[], None]]


@dataclass(frozen=True, slots=True)
class CodecExample:
    """A configuration of a codec, and something to encode with it.

    Parameters
    ----------
    spec : CodecSpec
    data : numpy.ndarray
        What is encoded: the array itself, or for a bytes-to-bytes codec its C-order bytes.
    encoded : bytes or None
        The same as another library encodes it; needed for a codec that only decodes.
    tolerance : float
        The largest difference of a sample, for codecs that lose some.
    name : str
        Told apart in test names.
    """

    spec: CodecSpec
    data: NDArray[Any]
    encoded: bytes | None = None
    tolerance: float = 0
    name: str = ""

    @property
    def chunk(self) -> ChunkSpec:
        """Shape and dtype of `data`."""
        return ChunkSpec(self.data.shape, self.data.dtype.name)

    def __str__(self) -> str:
        return f"{self.spec.name}-{self.name}" if self.name else self.spec.name


def codec_checks(
    factory: CodecFactory, lookup: CodecLookup, examples: list[CodecExample]
) -> list[Check]:
    """The checks of one codec over its examples.

    Parameters
    ----------
    factory : CodecFactory
        The class that the entry point names.
    lookup : callable
        Finds the codecs that this one holds inside it.
    examples : list of CodecExample
        At least one.

    Returns
    -------
    list of (str, callable)
        A name and a check, which raises `AssertionError` where the codec breaks its contract.
    """
    assert factory.kind in ("array-array", "array-bytes", "bytes-bytes"), factory.kind
    checks = [] if factory.kind == "array-array" else list(BYTE_CHECKS)
    if factory.kind == "bytes-bytes":
        checks.append(check_bounded)
    return [
        (f"{example}-{check.__name__.removeprefix('check_')}", partial(check, subject))
        for example in examples
        for subject in (Subject(factory, lookup, example),)
        for check in (check_round_trip, check_size_is_bound, check_many_threads, *checks)
    ]


@dataclass(frozen=True, slots=True)
class Subject:
    """A codec with an example, and one way to call it for all three kinds."""

    factory: CodecFactory
    lookup: CodecLookup
    example: CodecExample

    def codec(self) -> Any:
        """The codec, built from its configuration."""
        return self.factory.from_spec(self.example.spec, self.lookup)

    def plain(self) -> Any:
        """What goes into the codec."""
        data = self.example.data
        return np.ascontiguousarray(data).tobytes() if self.in_bytes else data

    @property
    def in_bytes(self) -> bool:
        """Whether the codec takes bytes."""
        return self.factory.kind == "bytes-bytes"

    @property
    def size(self) -> ByteSize:
        """Bytes of the example."""
        return ByteSize(self.example.data.nbytes)

    def encode(self) -> Any:
        """The encoded example: by this codec, or by another library where this one only decodes."""
        try:
            codec = self.codec()
            args = () if self.in_bytes else (self.example.chunk,)
            return codec.encode(self.plain(), *args)
        except UnsupportedFeatureError:
            assert self.example.encoded is not None, "a codec that only decodes needs `encoded`"
            return self.example.encoded

    def decode(self, encoded: Any, size: ByteSize | None = None) -> Any:
        """Decode to the size of the example."""
        bound = (size or self.size) if self.in_bytes else self.example.chunk
        return self.codec().decode(encoded, bound)

    def assert_whole(self, decoded: Any) -> None:
        """What came out is what went in."""
        example = self.example
        if self.in_bytes:
            assert bytes(decoded) == self.plain()
            return
        assert decoded.shape == example.data.shape
        assert decoded.dtype == example.data.dtype, "native byte order, the type asked for"
        if not example.tolerance:
            assert np.array_equal(decoded, example.data)
            return
        difference = np.abs(decoded.astype(float) - example.data.astype(float))
        assert difference.max() <= example.tolerance


def check_round_trip(subject: Subject) -> None:
    """Decoding undoes encoding, and reads what another library encoded."""
    subject.assert_whole(subject.decode(subject.encode()))
    if subject.example.encoded is not None:
        subject.assert_whole(subject.decode(subject.example.encoded))
        subject.assert_whole(subject.decode(memoryview(subject.example.encoded)))


def check_size_is_bound(subject: Subject) -> None:
    """`encoded` tells the shape, or a size that the encoded data does not exceed."""
    encoded = subject.encode()
    if subject.factory.kind == "array-array":
        spec = subject.codec().encoded(subject.example.chunk)
        assert (spec.shape, spec.dtype) == (encoded.shape, encoded.dtype.name)
        return
    given = subject.size if subject.in_bytes else subject.example.chunk
    subject.codec().encoded(given).check(len(encoded), subject.example.spec.name)


def check_many_threads(subject: Subject) -> None:
    """One codec decodes in several threads at once."""
    encoded, codec = subject.encode(), subject.codec()
    bound = subject.size if subject.in_bytes else subject.example.chunk
    with ThreadPoolExecutor(4) as pool:
        for decoded in pool.map(lambda _: codec.decode(encoded, bound), range(16)):
            subject.assert_whole(decoded)


def check_bounded(subject: Subject) -> None:
    """Data that decodes to more or fewer bytes than there must be is refused; an upper bound is kept."""
    encoded, count = subject.encode(), subject.size.count
    subject.assert_whole(subject.decode(encoded, ByteSize(count, exact=False)))
    subject.assert_whole(subject.decode(encoded, ByteSize(count + 64, exact=False)))
    for size in (ByteSize(count - 1), ByteSize(count + 1), ByteSize(count - 1, exact=False)):
        assert_corrupt(subject, encoded, size)


def check_cut(subject: Subject) -> None:
    """Data that was cut short is refused, empty data too."""
    encoded = bytes(subject.encode())
    for part in CUTS:
        assert_corrupt(subject, encoded[: int(len(encoded) * part)])


def check_damaged(subject: Subject) -> None:
    """A turned byte gives data of the right shape, or `CorruptDataError`; never another exception."""
    encoded = bytes(subject.encode())
    step = max(1, len(encoded) // FLIPS)
    for place in sorted({*range(0, len(encoded), step), *range(min(32, len(encoded)))}):
        damaged = bytearray(encoded)
        damaged[place] ^= 0xA5
        try:
            decoded = subject.decode(bytes(damaged))
        except (CorruptDataError, UnsupportedFeatureError):
            continue
        if subject.in_bytes:
            assert len(decoded) == subject.size.count
        else:
            assert decoded.shape == subject.example.data.shape


def check_noise(subject: Subject) -> None:
    """Bytes that were never encoded are refused, or decode to the right shape."""
    random = np.random.default_rng(1)
    for length in (1, 7, 64, 4096):
        try:
            decoded = subject.decode(random.bytes(length))
        except (CorruptDataError, UnsupportedFeatureError):
            continue
        if not subject.in_bytes:
            assert decoded.shape == subject.example.data.shape


def check_in_chain(subject: Subject) -> None:
    """The codec does its part in a chain, over `bytes` where it takes bytes."""
    specs = [subject.example.spec]
    if subject.in_bytes:
        specs.insert(0, CodecSpec("bytes", {"endian": "little"}))
    chain = CodecChain.build(specs, subject.lookup)
    try:
        encoded = chain.encode(subject.example.data, subject.example.chunk)
    except UnsupportedFeatureError:
        assert subject.example.encoded is not None
        encoded = subject.example.encoded
    found = chain.decode(encoded, subject.example.chunk)
    assert found.shape == subject.example.data.shape
    if not subject.example.tolerance:
        assert np.array_equal(found, subject.example.data)


BYTE_CHECKS: tuple[Callable[[Subject], None], ...] = (
    check_cut,
    check_damaged,
    check_noise,
    check_in_chain,
)


def assert_corrupt(subject: Subject, encoded: bytes, size: ByteSize | None = None) -> None:
    """Decoding must raise `CorruptDataError` that names what is wrong."""
    try:
        subject.decode(encoded, size)
    except CorruptDataError as error:
        said = error.message
    else:
        raise AssertionError(f"{len(encoded)} bytes were decoded that are not whole")
    assert said, "an error has a message"
