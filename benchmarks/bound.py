"""The smallest program that does an export's work: decode, halve, encode, with two threads. What we are measured by.

    python benchmarks/bound.py INPUT OUTPUT
    python benchmarks/bound.py INPUT -          # decode alone

Reads tiles of a TIFF through tifffile's page offsets, or chunks of a Zarr v2 or N5 array by file; writes blosc-zstd-1
chunks one after the other into one file a level. No metadata, no checks, no verification.
"""

import itertools
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import imagecodecs
import numpy as np


def halve(block: np.ndarray) -> np.ndarray:
    """Mean of 2 x 2, rounded half up."""
    wide = np.add(block[..., ::2, :], block[..., 1::2, :], dtype="u4")
    wide = wide[..., ::2] + wide[..., 1::2]
    wide += 2
    wide >>= 2
    return wide.astype(block.dtype)


def encode(block: np.ndarray) -> bytes:
    data = np.ascontiguousarray(block)
    return imagecodecs.blosc_encode(
        data, level=1, compressor="zstd", shuffle="bitshuffle" if data.itemsize > 1 else "noshuffle",
        typesize=data.itemsize, numthreads=1,
    )  # fmt: skip


def tiff_blocks(path: Path):
    """Jobs that give a block of 4 x 4 tiles of a tiled uint16 TIFF."""
    import tifffile

    with tifffile.TiffFile(path) as tiff:
        pages = [
            (p.dataoffsets, p.databytecounts, p.compression, p.imagewidth // p.tilewidth)
            for p in tiff.pages
        ]
    fd = os.open(path, os.O_RDONLY)

    def block(page, a, b):
        offsets, counts, compression, across = page
        out = np.empty((2048, 2048), "u2")
        for i, j in itertools.product(range(4), range(4)):
            n = (a + i) * across + b + j
            data = os.pread(fd, counts[n], offsets[n])
            if compression == 1:
                tile = np.frombuffer(data, "u2").reshape(512, 512)
            elif compression == 50000:
                tile = np.frombuffer(imagecodecs.zstd_decode(data), "u2").reshape(512, 512)
            else:
                tile = np.empty((512, 512), "u2")
                imagecodecs.deflate_decode(data, out=tile.reshape(-1).view("u1"))
            out[i * 512 : i * 512 + 512, j * 512 : j * 512 + 512] = tile
        return out

    for page in pages:
        for a, b in itertools.product(range(0, page[3], 4), repeat=2):
            yield lambda page=page, a=a, b=b: block(page, a, b)


def chunk_blocks(path: Path):
    """Jobs that give one chunk of every array of a Zarr v2 or N5 folder."""
    for meta in sorted(path.rglob(".zarray")):
        spec = json.loads(meta.read_text())
        shape = spec["chunks"]
        for file in sorted(
            p for p in meta.parent.rglob("*") if p.is_file() and not p.name.startswith(".")
        ):
            yield lambda file=file, shape=shape: np.frombuffer(
                imagecodecs.blosc_decode(file.read_bytes(), numthreads=1), "u2"
            ).reshape(shape)
    for meta in sorted(path.rglob("attributes.json")):
        spec = json.loads(meta.read_text())
        if "blockSize" not in spec:
            continue
        decode = {
            "gzip": imagecodecs.gzip_decode,
            "zstd": imagecodecs.zstd_decode,
            "blosc": imagecodecs.blosc_decode,
        }
        function = decode[spec["compression"]["type"]]
        for file in sorted(
            p for p in meta.parent.rglob("*") if p.is_file() and p.name != "attributes.json"
        ):
            yield (
                lambda file=file, function=function, spec=spec: (
                    np.frombuffer(function(file.read_bytes()[16:]), ">u2")
                    .astype("u2")
                    .reshape(spec["blockSize"][::-1])
                )
            )


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    if sys.argv[2] == "-":
        jobs = tiff_blocks(source) if source.is_file() else chunk_blocks(source)
        with ThreadPoolExecutor(2) as pool:
            for _ in pool.map(lambda job: job().size, jobs):
                pass
        return
    target.mkdir(parents=True)
    files = [open(target / str(n), "wb") for n in range(3)]
    jobs = tiff_blocks(source) if source.is_file() else chunk_blocks(source)

    def work(job):
        parts, block = [], job()
        for _ in files:
            side = min(512, block.shape[-1])
            steps = range(0, block.shape[-1], side)
            parts.append(
                [encode(block[..., a : a + side, b : b + side]) for a in steps for b in steps]
            )
            block = halve(block)
        return parts

    with ThreadPoolExecutor(2) as pool:
        jobs = iter(jobs)
        waiting = [pool.submit(work, job) for job in itertools.islice(jobs, 4)]
        while waiting:
            for file, parts in zip(files, waiting.pop(0).result(), strict=True):
                for part in parts:
                    file.write(part)
            waiting += [pool.submit(work, job) for job in itertools.islice(jobs, 1)]
    for file in files:
        file.close()


if __name__ == "__main__":
    main()
