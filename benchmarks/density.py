"""Bytes of an export's first level against zstd of level 3 over the same pixels in the same chunks.

python benchmarks/density.py INPUT ...
"""

import itertools
import subprocess
import sys
import tempfile
from pathlib import Path

import imagecodecs
import numpy as np
import zarr

OURS = Path(sys.executable).with_name("openreadout")


def density(source: Path) -> tuple[int, int, int]:
    """Bytes of the pixels, of what the export stores of them, and of zstd."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "out.ome.zarr"
        options = "--no-sync --no-verify --pyramid none --codec blosc-zstd -q".split()
        command = [OURS, "export", source, "--to", "ome-zarr", "-o", target, *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        array = zarr.open_array(target / "0", mode="r")
        stored = sum(f.stat().st_size for f in (target / "0").rglob("*") if f.is_file())
        chunks = [range(0, n, c) for n, c in zip(array.shape, array.chunks, strict=True)]
        zstd = 0
        for at in itertools.product(*chunks):
            part = array[tuple(slice(a, a + c) for a, c in zip(at, array.chunks, strict=True))]
            zstd += len(imagecodecs.zstd_encode(np.ascontiguousarray(part), level=3))
        return array.nbytes, stored, zstd


def main() -> int:
    print("| input | pixels MB | export MB | zstd-3 MB | export to zstd-3 |")
    print("| --- | --- | --- | --- | --- |")
    for name in sys.argv[1:]:
        pixels, stored, zstd = density(Path(name))
        print(
            f"| {Path(name).name} | {pixels / 1e6:.0f} | {stored / 1e6:.0f} | {zstd / 1e6:.0f} | {stored / zstd:.2f} |"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
