"""Whether time and memory grow with the size of an image and with the number of images of a plate.

    python benchmarks/growth.py FOLDER [-n 3]

Makes an OME-TIFF of 128 MiB, 512 MiB and 4 GiB, and plates of 96, 960 and 9984 images, and exports each. Needs some
15 GB below FOLDER.
"""

import argparse
import shutil
import statistics
import sys
from pathlib import Path

import inputs
import run

OURS = Path(sys.executable).with_name("openreadout")
TIFF = {"128 MiB": 0.25, "512 MiB": 1, "4 GiB": 8}
PLATES = {"96 images": 0.25, "960 images": 2.5, "9984 images": 26}


def rows(folder: Path, name: str, sizes: dict[str, float], turns: int) -> list[str]:
    """A table of one kind of input, each size exported in turn with the others."""
    sources = {}
    for label, scale in sizes.items():
        sources[label] = folder / f"{scale}" / name
        if not sources[label].exists():
            sources[label].parent.mkdir(parents=True, exist_ok=True)
            inputs.MAKERS[name](sources[label], scale)
    target = folder / "out.ome.zarr"
    found: dict[str, list[tuple[float, float, float, int]]] = {label: [] for label in sizes}
    for _ in range(turns + 1):
        for label, source in sources.items():
            shutil.rmtree(target, ignore_errors=True)
            command = f"{OURS} export {source} --to ome-zarr --no-sync -o {target}"
            found[label].append(run.measure(command))
    shutil.rmtree(target, ignore_errors=True)
    smallest = min(sizes.values())
    table = [
        "| input | wall s | CPU s | peak MiB | wall, each part | CPU, each part |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    first: tuple[float, float] | None = None
    for label, scale in sizes.items():
        runs = found[label][1:]
        wall, cpu, memory = (statistics.median(r[n] for r in runs) for n in range(3))
        share = wall * smallest / scale, cpu * smallest / scale
        first = first or share
        parts = f"{share[0] / first[0]:.2f} | {share[1] / first[1]:.2f}"
        table.append(f"| {label} | {wall:.2f} | {cpu:.2f} | {memory:.0f} | {parts} |")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("-n", type=int, default=3)
    options = parser.parse_args()
    for name, sizes in (("deflate.ome.tif", TIFF), ("plate.ome.zarr", PLATES)):
        print(f"\n### {name}\n")
        print("\n".join(rows(options.folder, name, sizes, options.n)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
