"""Decoders and parsers by themselves, where a damaged input costs microseconds.

A decoder gives data of the size that it was told, or raises one of our errors; nothing else, in bounded memory.

    python -m tests.robustness.units --count 100000 --first 0
"""

# ruff: noqa: T201  # a program that prints

from __future__ import annotations

import argparse
import bz2
import gzip
import lzma
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import imagecodecs
import numcodecs
import numpy as np

from openreadout.codecs import ByteSize, ChunkSpec, CodecSpec
from openreadout.errors import OpenReadoutError
from openreadout.jsons import parse_json
from openreadout.registry import find_codec
from openreadout.zips import ZipStore
from openreadout_codec_jpeg.stream import parse_stream
from openreadout_codec_n5_default.blocks import parse_block_header
from openreadout_ome_xml import parse_ome_xml
from tests.robustness import build, mutations, seeds

MAX_SECONDS = 5.0
RAMP = (np.arange(1200, dtype="<u2") * 7 % 1000).tobytes()
NOISE = np.random.default_rng(5).integers(0, 65535, 1200).astype("<u2").tobytes()
GREY = (np.add.outer(np.arange(16), np.arange(24)) * 3).astype("uint8")


@dataclass(frozen=True)
class Unit:
    """Something that takes bytes: its name, sound bytes to start from, and a call that checks what comes out."""

    name: str
    start: Sequence[bytes]
    call: Callable[[bytes], None]


def _bytes_codec(
    name: str, start: Sequence[bytes], raw: bytes = RAMP, **configuration: Any
) -> list[Unit]:
    codec = find_codec(name).from_spec(CodecSpec(name, configuration), find_codec)

    def decode(size: ByteSize) -> Callable[[bytes], None]:
        def call(data: bytes) -> None:
            found = memoryview(codec.decode(data, size)).nbytes
            assert found == size.count if size.exact else found <= size.count, (found, size)

        return call

    roomy = ByteSize(len(raw) + 100, exact=False)
    return [
        Unit(f"{name}", start, decode(ByteSize(len(raw)))),
        Unit(f"{name} at most", start, decode(roomy)),
    ]


def _array_codec(name: str, start: Sequence[bytes], spec: ChunkSpec, **configuration: Any) -> Unit:
    codec = find_codec(name).from_spec(CodecSpec(name, configuration), find_codec)

    def call(data: bytes) -> None:
        found = codec.decode(data, spec)
        assert found.shape == spec.shape
        assert found.dtype == np.dtype(spec.dtype)

    return Unit(name, start, call)


def _lz4(raw: bytes) -> bytes:
    return struct.pack("<I", len(raw)) + bytes(imagecodecs.lz4_encode(raw))


def _shard(location: str) -> Unit:
    inner = {
        "chunk_shape": [4, 8], "index_location": location,
        "codecs": [*build.RAW, {"name": "zstd", "configuration": {"level": 1, "checksum": False}}],
        "index_codecs": [*build.RAW, {"name": "crc32c"}],
    }  # fmt: skip
    codec = find_codec("sharding_indexed").from_spec(
        CodecSpec("sharding_indexed", inner), find_codec
    )
    spec = ChunkSpec((16, 16), "uint16")
    data = codec.encode(np.arange(256, dtype="uint16").reshape(16, 16), spec)
    plain = CodecSpec("sharding_indexed", inner | {"index_codecs": build.RAW})
    bare = find_codec("sharding_indexed").from_spec(plain, find_codec)
    start = [bytes(data), bytes(bare.encode(np.arange(256, dtype="uint16").reshape(16, 16), spec))]
    return _array_codec("sharding_indexed", start, spec, **(inner | {"index_codecs": build.RAW}))


def codec_units() -> list[Unit]:
    """Every codec, with what other libraries encode."""
    blosc = [
        numcodecs.Blosc(cname, 5, shuffle).encode(np.frombuffer(RAMP, "<u2"))
        for cname in ("blosclz", "lz4", "lz4hc", "zlib", "zstd")
        for shuffle in (0, 1, 2)
    ]
    jpeg = bytes(imagecodecs.jpeg8_encode(GREY))
    members = gzip.compress(RAMP[:9]) + gzip.compress(RAMP[9:])
    java = [b"LZ4Block" + struct.pack("<BIII", 0x10, 0, 0, 0)]
    units = [
        *_bytes_codec("blosc", blosc, cname="zstd", clevel=5, shuffle="shuffle", typesize=2, blocksize=0),
        *_bytes_codec("zstd", [numcodecs.Zstd(1).encode(RAMP), numcodecs.Zstd(3, checksum=True).encode(RAMP)]),
        *_bytes_codec("lz4", [_lz4(RAMP), bytes(imagecodecs.lz4f_encode(RAMP))]),
        *_bytes_codec("n5.lz4", [_lz4(RAMP), bytes(imagecodecs.lz4_encode(RAMP)), *java]),
        *_bytes_codec("gzip", [gzip.compress(RAMP), members, zlib.compress(RAMP)]),
        *_bytes_codec("numcodecs.zlib", [zlib.compress(RAMP)]),
        *_bytes_codec("numcodecs.bz2", [bz2.compress(RAMP), bz2.compress(RAMP[:9]) + bz2.compress(RAMP[9:])]),
        *_bytes_codec("numcodecs.lzma", [lzma.compress(RAMP), lzma.compress(RAMP, check=lzma.CHECK_SHA256)]),
        *_bytes_codec("xz", [lzma.compress(RAMP)]),
        *_bytes_codec("crc32c", [RAMP + b"\0\0\0\0"]),
        *_bytes_codec("numcodecs.fletcher32", [bytes(numcodecs.Fletcher32().encode(RAMP))]),
        *_bytes_codec("numcodecs.shuffle", [bytes(numcodecs.Shuffle(2).encode(RAMP))], elementsize=2),
        _array_codec("bytes", [RAMP], ChunkSpec((30, 40), "uint16"), endian="big"),
        _array_codec("jpeg", [jpeg], ChunkSpec(GREY.shape, "uint8"), quality=90, encoded_color_space="grayscale"),
        _shard("end"),
        _shard("start"),
    ]  # fmt: skip
    gz = {"name": "gzip", "configuration": {"level": 1}}
    order = {"name": "transpose", "configuration": {"order": [1, 0]}}
    big = {"name": "bytes", "configuration": {"endian": "big"}}
    head = struct.pack(">HHII", 0, 2, 40, 30)
    units.append(
        _array_codec(
            "n5_default", [head + RAMP], ChunkSpec((40, 30), "uint16"), codecs=[order, big]
        )
    )
    packed = [
        head + gzip.compress(RAMP),
        struct.pack(">HHII", 0, 2, 9, 9) + gzip.compress(RAMP[:162]),
    ]
    units.append(
        _array_codec("n5_default", packed, ChunkSpec((40, 30), "uint16"), codecs=[order, big, gz])
    )
    for name, configuration in _GENERIC.items():
        codec = numcodecs.get_codec({"id": name} | configuration)
        start = [bytes(codec.encode(np.frombuffer(NOISE, "<u2").astype("<f4").reshape(30, 40)))]
        units.append(
            _array_codec(
                f"numcodecs.{name}", start, ChunkSpec((30, 40), "float32"), **configuration
            )
        )
    return units


_GENERIC: dict[str, dict[str, Any]] = {
    "zfpy": {"mode": 4, "tolerance": 0.01},
    "pcodec": {"level": 8},
}
for _name in tuple(_GENERIC):
    try:
        numcodecs.get_codec({"id": _name})
    except (ValueError, ImportError):  # the library behind it is not installed
        del _GENERIC[_name]


def parser_units() -> list[Unit]:
    """What reads structures."""
    found = list(seeds.from_fixtures())
    files = [(name, data) for seed in found for name, data in seed.files.items()]
    json_files = [data for name, data in files if name.endswith((".json", ".zattrs", ".zarray"))]
    archives = [data for _, data in files if data[:4] == b"PK\3\4"]
    xml = [
        data[data.find(b"<OME") : data.find(b"</OME>") + 6]
        for _, data in files
        if b"</OME>" in data
    ]

    def opened(data: bytes) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            store = ZipStore(file.name)
            try:
                for key in store.names()[:50]:
                    try:
                        store.get(key, 1 << 24)
                        store.get_range(key, 3, 10)
                    except OpenReadoutError:
                        continue
            finally:
                store.close()

    def header(data: bytes) -> None:
        found = parse_block_header(data, 2)
        assert len(found.shape) == 2

    return [
        Unit("json", json_files, lambda data: parse_json(data, "k", "p")),
        Unit("zip", archives, opened),
        Unit("ome-xml", [*xml, build.xml().encode()], lambda data: parse_ome_xml(data)),
        Unit(
            "n5-header",
            [struct.pack(">HHII", 0, 2, 8, 8), struct.pack(">HHIII", 1, 2, 8, 8, 64)],
            header,
        ),
        Unit(
            "jpeg-header", [bytes(imagecodecs.jpeg8_encode(GREY))], lambda data: parse_stream(data)
        ),
    ]


class BrokenPromiseError(AssertionError):
    """A unit that broke a promise."""


def attempt(unit: Unit, rng: Random) -> bool:
    """Damage an input of a unit and hand it over; whether it was taken.

    Raises
    ------
    BrokenPromiseError
    """
    data = rng.choice(unit.start)
    if unit.name == "json":
        data = mutations.document(rng, data) if rng.random() < 0.5 else mutations.binary(rng, data)
    elif unit.name == "ome-xml":
        data = mutations.xml(rng, data) if rng.random() < 0.6 else mutations.binary(rng, data)
    else:
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = mutations.binary(rng, data)
    started = time.process_time()
    try:
        unit.call(data)
    except OpenReadoutError:
        taken = False
    except Exception as error:
        text = "".join(traceback.format_exception(error)[-3:])
        raise BrokenPromiseError(
            f"{unit.name}: {text}\n{data[:200]!r} ({len(data)} bytes)"
        ) from error
    else:
        taken = True
    used = time.process_time() - started
    if used > MAX_SECONDS:
        raise BrokenPromiseError(f"{unit.name}: {used:.1f} s for {data[:200]!r}")
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--count", type=int, default=10000, help="how many inputs")
    options = parser.parse_args()
    warnings.simplefilter("error")
    from tests.robustness import guards

    guards.limit_memory()
    units = [*codec_units(), *parser_units()]
    tried: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    faults = 0
    for number in range(options.first, options.first + options.count):
        unit = units[number % len(units)]
        before = guards.restart_peak() if number % 50 < len(units) else 0
        try:
            taken[unit.name] += attempt(unit, Random(number))
        except BrokenPromiseError as fault:
            faults += 1
            print(f"FAULT input {number}: {fault}", flush=True)
        tried[unit.name] += 1
        peak = guards.status("VmHWM") - before if before else 0
        if peak > 200 << 20:
            faults += 1
            print(f"FAULT input {number}: {unit.name} took {peak >> 20} MiB", flush=True)
    for name, count in sorted(tried.items()):
        print(f"{name}: {count} tried, {taken[name]} taken")
    print(f"inputs {options.first} to {options.first + options.count - 1}: {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
