"""Make the inputs of the benchmarks: pictures with real shot noise, which zstd halves as it does a camera's.

    python benchmarks/inputs.py FOLDER [--scale 1.0] [NAME ...]

Every input is written by a library that is not ours. `--scale` multiplies the number of planes or rows.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np

SIDE = 4096
TILE = 512


def scene(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Smooth structure with edges, in photons a pixel."""
    y, x = np.mgrid[0:height, 0:width].astype("f4")
    shapes = ((x // 300 + y // 200 + seed) % 2) * 100
    return 200 + 150 * np.sin(x / 90 + seed) * np.cos(y / 70) + shapes


def planes(count: int, side: int = SIDE):
    """uint16 planes, each with its own noise."""
    rng = np.random.default_rng(1)
    base = scene(side, side)
    for n in range(count):
        yield rng.poisson(base * (1 + 0.01 * n)).astype("u2")


def write_tiff(path: Path, count: int, compression: str | None) -> None:
    """OME-TIFF of `count` planes of 4096 x 4096 uint16 in tiles of 512 x 512."""
    import tifffile

    steps = range(0, SIDE, TILE)
    tiles = (p[a : a + TILE, b : b + TILE] for p in planes(count) for a in steps for b in steps)
    metadata = {"axes": "ZYX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5, "PhysicalSizeZ": 2.0}
    with tifffile.TiffWriter(path, bigtiff=True, ome=True) as tiff:
        tiff.write(
            tiles,
            shape=(count, SIDE, SIDE),
            dtype="u2",
            tile=(TILE, TILE),
            compression=compression,
            metadata=metadata,
        )


def write_slide(path: Path, scale: float) -> None:
    """A whole slide: RGB JPEG tiles of 512, with levels in SubIFDs."""
    import tifffile

    height, width = int(16000 * scale), 20000
    levels = [(height >> n, width >> n) for n in range(6)]
    rng = np.random.default_rng(2)

    def tiles(h: int, w: int):
        for a in range(0, h, TILE):
            for b in range(0, w, TILE):
                base = scene(TILE, TILE, a // TILE + b // TILE)[..., None] / 3 + np.array(
                    [90, 40, 70]
                )
                yield np.clip(rng.normal(base, 6), 0, 255).astype("u1")

    common = {
        "tile": (TILE, TILE),
        "compression": "jpeg",
        "compressionargs": {"level": 85},
        "photometric": "rgb",
    }
    with tifffile.TiffWriter(path, bigtiff=True, ome=True) as tiff:
        for n, (h, w) in enumerate(levels):
            options = (
                {"subifds": len(levels) - 1, "metadata": {"axes": "YXS"}}
                if n == 0
                else {"subfiletype": 1}
            )
            tiff.write(tiles(h, w), shape=(h, w, 3), dtype="u1", **common, **options)


def write_n5(path: Path, scale: float, compression: dict, block: int) -> None:
    """N5 of 512 MiB: 16-bit, cubic blocks, by tensorstore."""
    import tensorstore as ts

    shape = [1024, 1024, max(block, int(256 * scale))]
    spec = {
        "driver": "n5",
        "kvstore": {"driver": "file", "path": str(path)},
        "metadata": {
            "dimensions": shape,
            "blockSize": [block] * 3,
            "dataType": "uint16",
            "compression": compression,
        },
        "create": True,
    }
    store = ts.open(spec).result()
    rng = np.random.default_rng(3)
    base = scene(1024, 1024).T
    for z in range(0, shape[2], block):
        stop = min(z + block, shape[2])
        store[:, :, z:stop] = np.stack(
            [rng.poisson(base).astype("u2") for _ in range(z, stop)], axis=-1
        )


def write_ome_zarr(path: Path, scale: float) -> None:
    """NGFF 0.4 with blosc-lz4 chunks of 1024 x 1024 and two further levels, by zarr-python."""
    import numcodecs
    import zarr

    group = zarr.open_group(path, mode="w", zarr_format=2)
    count = max(1, int(16 * scale))
    arrays = [
        group.create_array(
            str(n), shape=(count, SIDE >> n, SIDE >> n), chunks=(1, 1024, 1024), dtype="u2",
            compressors=numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE),
            chunk_key_encoding={"name": "v2", "separator": "/"},
        )
        for n in range(3)
    ]  # fmt: skip
    for z, plane in enumerate(planes(count)):
        for n, array in enumerate(arrays):
            array[z] = plane[:: 1 << n, :: 1 << n]
    axes = [{"name": "z", "type": "space", "unit": "micrometer"}]
    axes += [{"name": a, "type": "space", "unit": "micrometer"} for a in "yx"]
    datasets = [
        {
            "path": str(n),
            "coordinateTransformations": [
                {"type": "scale", "scale": [2.0, 0.5 * 2**n, 0.5 * 2**n]}
            ],
        }
        for n in range(3)
    ]
    group.attrs["multiscales"] = [
        {"version": "0.4", "name": "bench", "axes": axes, "datasets": datasets}
    ]


def write_plate(path: Path, scale: float) -> None:
    """96 wells of 4 fields of 3 channels of 256 x 256, by zarr-python."""
    import zarr

    root = zarr.open_group(path, mode="w", zarr_format=2)
    rng = np.random.default_rng(4)
    rows, columns = "ABCDEFGH", [str(n + 1) for n in range(12)]
    fields = max(1, int(4 * scale))
    wells = [(r, c) for r in rows for c in columns]
    base = np.stack([scene(256, 256, n) for n in range(3)])
    for row, column in wells:
        well = root.create_group(f"{row}/{column}")
        well.attrs["well"] = {"version": "0.4", "images": [{"path": str(f)} for f in range(fields)]}
        for f in range(fields):
            image = well.create_group(str(f))
            array = image.create_array(
                "0", shape=(3, 256, 256), chunks=(1, 256, 256), dtype="u2",
                chunk_key_encoding={"name": "v2", "separator": "/"},
            )  # fmt: skip
            array[...] = rng.poisson(base).astype("u2")
            axes = [{"name": "c", "type": "channel"}] + [{"name": a, "type": "space"} for a in "yx"]
            step = [{"type": "scale", "scale": [1.0, 0.65, 0.65]}]
            datasets = [{"path": "0", "coordinateTransformations": step}]
            image.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": datasets}]
    root.attrs["plate"] = {
        "version": "0.4",
        "name": "bench",
        "rows": [{"name": r} for r in rows],
        "columns": [{"name": c} for c in columns],
        "wells": [
            {"path": f"{r}/{c}", "rowIndex": rows.index(r), "columnIndex": columns.index(c)}
            for r, c in wells
        ],
        "field_count": fields,
    }


MAKERS = {
    "raw.ome.tif": lambda p, s: write_tiff(p, max(1, int(16 * s)), None),
    "deflate.ome.tif": lambda p, s: write_tiff(p, max(1, int(16 * s)), "zlib"),
    "zstd.ome.tif": lambda p, s: write_tiff(p, max(1, int(16 * s)), "zstd"),
    "slide.ome.tif": write_slide,
    "gzip64.n5": lambda p, s: write_n5(p, s, {"type": "gzip"}, 64),
    "zstd128.n5": lambda p, s: write_n5(p, s, {"type": "zstd"}, 128),
    "blosc128.n5": lambda p, s: write_n5(
        p, s, {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1}, 128
    ),
    "image.ome.zarr": write_ome_zarr,
    "plate.ome.zarr": write_plate,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MAKERS)}; all by default")
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or MAKERS:
        path = options.folder / name
        if path.exists():
            continue
        partial = path.with_name(f"partial-{name}")
        shutil.rmtree(partial, ignore_errors=True) if partial.is_dir() else partial.unlink(
            missing_ok=True
        )
        MAKERS[name](partial, options.scale)
        partial.rename(path)
        print(path)


if __name__ == "__main__":
    main()
