"""What the quick commands must not import: start-up is most of their time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "numpy",
    "zarr",
    "imagecodecs",
    "rich",
    "tifffile",
    "numcodecs",
    "lxml",
    "dask",
    "xxhash",
    "importlib.metadata",
    "fsspec",
    "aiohttp",
    "s3fs",
    "asyncio",
    "urllib.parse",
}
PROBE = """
import json, sys
from openreadout.cli import run
code = run(sys.argv[1:])
print(json.dumps({"code": code, "modules": sorted(sys.modules)}), file=sys.stderr)
"""


def modules_of(*arguments):
    """Modules that a command has imported when it ends."""
    run = subprocess.run(
        [sys.executable, "-c", PROBE, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = json.loads(run.stderr.splitlines()[-1])
    assert said["code"] == 0, run.stderr
    return set(said["modules"])


@pytest.mark.parametrize(
    "data",
    [
        "ome-zarr/v2-blosc-channels/cells.ome.zarr",
        "ome-zarr/v3-sharded/sharded.ome.zarr",
        "ome-zarr/v3-plate/plate.zarr",
        "n5/z5py-viewer-pyramid/pyramid.n5",
        "n5/z5py-codecs/codecs.n5",
    ],
)
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_info_of_a_store_imports_no_array_library(fixtures, data, options):
    assert modules_of("info", *options, fixtures / data) & HEAVY == set()


@pytest.mark.parametrize("arguments", [["--help"], ["info", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments):
    assert modules_of(*arguments) & HEAVY == set()


def test_importing_the_package_costs_nothing():
    probe = "import openreadout, sys; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True
    )
    assert set(run.stdout.split()) & (HEAVY | {"click", "asyncio", "dataclasses"}) == set()
