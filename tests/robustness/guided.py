"""Inputs that grow towards unseen code: libFuzzer, by way of atheris, on one decoder or parser at a time.

    python -m pip install atheris
    python -m tests.robustness.guided --list
    python -m tests.robustness.guided tiff --seconds 300

Every branch of the packages in `INSTRUMENTED` counts; an input that reaches a new one is kept and changed further. It
ends with exit code 0 when the time is up, and with another one at the first broken promise, whose input is written
to `--keep`. A promise is broken by an exception that is not one of our errors, by a result of the wrong size, by more
than 10 s for one input, or by more than 2 GiB.
"""

# ruff: noqa: T201  # a program that prints

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

INSTRUMENTED = [
    "openreadout", "openreadout_codec_jpeg", "openreadout_codec_n5_default", "openreadout_codecs_compress",
    "openreadout_codecs_zarr", "openreadout_n5", "openreadout_ome_tiff", "openreadout_ome_xml", "openreadout_ome_zarr",
]  # fmt: skip


def _documents(files: Sequence[tuple[str, bytes]]) -> dict[str, tuple[list[bytes], Callable]]:
    """Parsers of JSON documents, each with documents of its kind."""
    from openreadout.jsons import parse_json
    from openreadout.registry import find_codec
    from openreadout_n5.attributes import parse_dataset
    from openreadout_ome_zarr.arrays import parse_v2, parse_v3
    from openreadout_ome_zarr.ngff import parse_multiscales
    from openreadout_ome_zarr.rules import broken_rules, crossed_indices, unmet_advice

    def tree(data: bytes) -> dict[str, Any]:
        found = parse_json(data, "key", "path")
        return found if isinstance(found, dict) else {}

    def array(parse: Callable) -> Callable[[bytes], None]:
        def call(data: bytes) -> None:
            document = tree(data)
            found = parse(document)
            assert len(found.shape) == len(document["shape"])

        return call

    def ngff(data: bytes) -> None:
        document = tree(data)
        attributes = document.get("attributes", document)
        inner = attributes.get("ome", attributes) if isinstance(attributes, dict) else {}
        if isinstance(inner, dict):
            broken_rules(inner)
            unmet_advice(inner)
            crossed_indices(inner)
            parse_multiscales(inner)

    def n5(data: bytes) -> None:
        info = parse_dataset("a", "a/attributes.json", tree(data))
        if info.compressor is not None:
            find_codec(info.compressor.name).from_spec(info.compressor, find_codec)

    def named(*ends: str) -> list[bytes]:
        return [data for name, data in files if name.endswith(ends)]

    return {
        "zarray": (named(".zarray"), array(parse_v2)),
        "zarr-json": (named("zarr.json"), array(parse_v3)),
        "ngff": (named(".zattrs", "zarr.json"), ngff),
        "n5-attributes": (named("attributes.json"), n5),
    }


def _tiff(files: Sequence[tuple[str, bytes]]) -> tuple[list[bytes], Callable[[bytes], None]]:
    """A whole TIFF: opened, looked through, and its first chunk read."""
    from openreadout.registry import open_dataset

    folder = tempfile.mkdtemp(prefix="guided-")
    path = os.path.join(folder, "a.ome.tif")

    def call(data: bytes) -> None:
        Path(path).write_bytes(data)
        with open_dataset(path) as dataset:
            for image in dataset.images[:2]:
                array = image.levels[-1].array
                if 0 not in array.shape:
                    array.read_chunk((0,) * len(array.shape))
            for _ in zip(range(100), dataset.inspect(False), strict=False):
                pass

    small = [data for _, data in files if data[:2] in (b"II", b"MM") and len(data) < 40_000]
    return small, call


def all_units() -> dict[str, tuple[list[bytes], Callable[[bytes], None]]]:
    """Name, sound inputs, and the call of each unit."""
    from tests.robustness import seeds, units

    found: dict[str, tuple[list[bytes], Callable[[bytes], None]]] = {}
    for unit in [*units.codec_units(), *units.parser_units()]:
        name = unit.name.replace(" ", "-")
        while name in found:
            name += "+"
        found[name] = (list(unit.start), unit.call)
    files = [(n, d) for seed in seeds.from_fixtures() for n, d in seed.files.items()]
    return found | _documents(files) | {"tiff": _tiff(files)}


def work(name: str, arguments: Sequence[str]) -> None:
    """Run one unit; libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        units = all_units()
    from openreadout.errors import OpenReadoutError

    warnings.simplefilter("ignore")
    _, call = units[name]

    def once(data: bytes) -> None:
        with contextlib.suppress(OpenReadoutError):
            call(data)

    atheris.Setup([sys.argv[0], *arguments], once)
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("unit", nargs="*", help="units to run, one after another; all without any")
    parser.add_argument("--list", action="store_true", help="name the units")
    parser.add_argument("--seconds", type=int, default=60, help="time for each unit")
    parser.add_argument("--seed", type=int, default=1, help="of libFuzzer's choices")
    parser.add_argument("--keep", default=".", help="folder for an input that breaks a promise")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    if options.work:
        work(options.work, [*options.unit, *rest])
        return 0
    units = all_units()
    if options.list:
        print(json.dumps(sorted(units), indent=1))
        return 0
    faults = 0
    for name in options.unit or sorted(units):
        with tempfile.TemporaryDirectory() as folder:
            for n, data in enumerate(units[name][0]):
                Path(folder, f"seed-{n}").write_bytes(data)
            command = [
                sys.executable, "-m", "tests.robustness.guided", "--work", name, folder,
                f"-max_total_time={options.seconds}", f"-seed={options.seed}", "-timeout=10", "-rss_limit_mb=2048",
                "-max_len=65536", f"-artifact_prefix={options.keep}/{name}-", "-print_final_stats=1",
            ]  # fmt: skip
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = run.stderr.splitlines()
        executed = [line.split()[-1] for line in lines if "number_of_executed_units" in line]
        reached = [line for line in lines if " cov: " in line]
        branches = reached[-1].split(" cov: ")[1].split()[0] if reached else "?"
        count = executed[-1] if executed else "?"
        print(f"{name}: {count} inputs, {branches} branches, exit {run.returncode}", flush=True)
        if run.returncode:
            faults += 1
            print("\n".join(lines[-40:]), flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
