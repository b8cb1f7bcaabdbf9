"""Every table of README.md: the inputs of `inputs.py`, this program, its peers, and what bounds it.

    python benchmarks/inputs.py FOLDER
    python benchmarks/workloads.py FOLDER [-n 3] [--peers FOLDER] [NAME ...]

`--peers` holds one environment for each of openreadout (0.4.0, another program of the same name), eubi-bridge-lite,
ngff-zarr and zarrify, named like the distribution; those that are absent are left out. Outputs go beside the inputs.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

import run

HERE = Path(__file__).resolve().parent
PYTHON = sys.executable
OURS = f"{Path(PYTHON).with_name('openreadout')} export"
QUIET = "--to ome-zarr --no-sync"


class Workloads:
    """Command lines for one folder of inputs."""

    def __init__(self, folder: Path, peers: Path | None) -> None:
        self.folder = folder
        self.peers = peers
        names = ("o.ome.zarr", "o2", "o3.zarr", "o4.ome.zarr", "bound")
        self.outputs = [str(folder / name) for name in names]

    def ours(self, name: str, *options: str, label: str = "openreadout") -> tuple[str, str]:
        source, target = self.folder / name, self.outputs[0]
        return label, f"{OURS} {source} {QUIET} -o {target} {' '.join(options)}"

    def bound(self, name: str) -> tuple[str, str]:
        return "bound", f"{PYTHON} {HERE / 'bound.py'} {self.folder / name} {self.outputs[4]}"

    def peer(self, distribution: str, command: str) -> list[tuple[str, str]]:
        """The command of a peer, with `{bin}` for the programs of its environment; empty when it is absent."""
        if self.peers is None or not (self.peers / distribution).is_dir():
            return []
        return [(distribution, command.format(bin=self.peers / distribution / "bin"))]

    def rust(self, name: str) -> list[tuple[str, str]]:
        script = f"import openreadout; openreadout.export('{self.folder / name}', '{self.outputs[3]}', to='ome-zarr')"
        found = self.peer("openreadout", f'{{bin}}/python -c "{script}"')
        return [("openreadout 0.4.0 (Rust)", command) for _, command in found]

    def eubi(self, name: str) -> list[tuple[str, str]]:
        return self.peer(
            "eubi-bridge-lite",
            f"{{bin}}/eubi to_zarr {self.folder / name} --output_path={self.outputs[1]}",
        )

    def tables(self) -> dict[str, list[tuple[str, str]]]:
        """Commands of each table, the one that ratios are against at its end."""
        found: dict[str, list[tuple[str, str]]] = {}
        for kind in ("deflate", "raw"):
            name = f"{kind}.ome.tif"
            found[kind] = [
                self.ours(name), self.ours(name, "--no-verify", label="openreadout --no-verify"),
                *self.rust(name), *self.eubi(name), self.bound(name),
            ]  # fmt: skip
        store = "image.ome.zarr"
        copy = ("cp -r", f"cp -r {self.folder / store} {self.outputs[2]}")
        found["zarr-copy"] = [self.ours(store), *self.eubi(store), copy]
        encoded = self.ours(
            store, "--codec", "blosc-zstd:1", label="openreadout --codec blosc-zstd:1"
        )
        found["zarr-encode"] = [encoded, self.bound(store)]
        for name in ("gzip64.n5", "zstd128.n5", "blosc128.n5"):
            script = (
                f"{PYTHON} {HERE / 'tensorstore_copy.py'} {self.folder / name} {self.outputs[2]}"
            )
            zarrify = self.peer(
                "zarrify",
                f"{{bin}}/zarrify -s {self.grouped(name)} -d {self.outputs[2]} -w 2 -c local",
            )
            found[name] = [
                self.ours(name), self.ours(name, "--pyramid", "none", label="openreadout --pyramid none"),
                *zarrify, ("tensorstore", script),
            ]  # fmt: skip
        slide = "slide.ome.tif"
        found["slide"] = [
            self.ours(slide), self.ours(slide, "--codec", "keep", label="openreadout --codec keep"),
            *self.rust(slide), *self.eubi(slide),
        ]  # fmt: skip
        found["plate"] = [self.ours("plate.ome.zarr"), *self.rust("plate.ome.zarr")]
        check = f"{Path(PYTHON).with_name('openreadout')} check"
        tiff = self.folder / "deflate.ome.tif"
        alone = ("decode alone", f"{PYTHON} {HERE / 'bound.py'} {tiff} -")
        found["check"] = [
            ("check --planes", f"{check} --planes {tiff}"),
            ("check --full", f"{check} --full {tiff}"),
            alone,
        ]
        return found

    def grouped(self, name: str) -> Path:
        """The N5 array below a group, as zarrify wants it; it writes into its source, so it gets links."""
        group = self.folder / f"grouped-{name}"
        if not group.exists():
            shutil.copytree(self.folder / name, group / "s0", copy_function=os.link)
            (group / "attributes.json").write_text('{"n5": "2.0.0"}', encoding="utf-8")
        return group


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("-n", type=int, default=3)
    parser.add_argument("--peers", type=Path)
    options = parser.parse_intermixed_args()
    workloads = Workloads(options.folder, options.peers)
    tables = workloads.tables()
    for name in options.names or tables:
        print(f"\n### {name}\n")
        print("\n".join(run.compare(tables[name], workloads.outputs, options.n)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
