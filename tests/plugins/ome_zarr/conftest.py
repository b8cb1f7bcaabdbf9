"""Small stores written document by document, so that a test holds just what it says."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest


def put(root: Path, key: str, value) -> None:
    """Write one value: bytes as they are, text as UTF-8, anything else as JSON."""
    path = root / key
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(value, bytes):
        path.write_bytes(value)
    else:
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def zarray(shape, chunks=None, dtype="<u2", **more) -> dict:
    """The content of `.zarray`."""
    body = {"zarr_format": 2, "shape": list(shape), "chunks": list(chunks or shape), "dtype": dtype}
    body |= {"compressor": None, "filters": None, "fill_value": 0, "order": "C"}
    return body | more


def array_json(shape, chunks=None, data_type="uint16", **more) -> dict:
    """The content of an array's `zarr.json`."""
    body = {"zarr_format": 3, "node_type": "array", "shape": list(shape), "data_type": data_type}
    body |= {
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": list(chunks or shape)},
        },
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    return body | more


def group_json(ome: dict | None = None, **attributes) -> dict:
    """The content of a group's `zarr.json`."""
    body = attributes if ome is None else {"ome": ome, **attributes}
    return {"zarr_format": 3, "node_type": "group", "attributes": body}


def axes(names: str, unit: str | None = "micrometer") -> list[dict]:
    """Axes as NGFF 0.4 writes them."""
    kinds = {"t": "time", "c": "channel"}
    found = []
    for name in names:
        axis = {"name": name, "type": kinds.get(name, "space")}
        if unit is not None and axis["type"] == "space":
            axis["unit"] = unit
        found.append(axis)
    return found


def multiscale(names: str = "yx", paths=("0",), scale=None, **more) -> dict:
    """One entry of `multiscales`; each level's scale is twice that of the one before, along y and x."""
    datasets = []
    for n, path in enumerate(paths):
        base = scale or [1.0] * len(names)
        steps = [v * 2**n if a in "yx" else v for a, v in zip(names, base, strict=True)]
        datasets.append(
            {"path": path, "coordinateTransformations": [{"type": "scale", "scale": steps}]}
        )
    return {"version": "0.4", "axes": axes(names), "datasets": datasets, **more}


def image(root: Path, shape=(4, 6), names="yx", group="", attributes=None, **more) -> np.ndarray:
    """An NGFF 0.4 image with one uncompressed chunk; gives its pixels."""
    pixels = np.arange(int(np.prod(shape)), dtype="<u2").reshape(shape)
    base = f"{group}/" if group else ""
    put(root, f"{base}.zgroup", {"zarr_format": 2})
    put(root, f"{base}.zattrs", {"multiscales": [multiscale(names, **more)], **(attributes or {})})
    put(root, f"{base}0/.zarray", zarray(shape))
    put(root, f"{base}0/{'.'.join('0' * len(shape))}", pixels.tobytes())
    return pixels


def zipped(root: Path, target: Path, prefix: str = "", method=zipfile.ZIP_STORED) -> Path:
    """The files below `root` as an archive, metadata documents first."""
    files = sorted(p for p in root.rglob("*") if p.is_file())
    files.sort(key=lambda p: not p.name.startswith((".z", "zarr.json")))
    with zipfile.ZipFile(target, "w", method) as archive:
        for file in files:
            archive.write(file, prefix + file.relative_to(root).as_posix())
    return target


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The functions of this module."""
    return SimpleNamespace(
        put=put, zarray=zarray, array_json=array_json, group_json=group_json, axes=axes, multiscale=multiscale,
        image=image, zipped=zipped,
    )  # fmt: skip


def codes(dataset) -> list[tuple[str, str]]:
    """Code and severity of every finding."""
    return [(finding.code, finding.severity) for finding in dataset.findings]


@pytest.fixture(name="codes")
def codes_fixture():
    """`codes`."""
    return codes
