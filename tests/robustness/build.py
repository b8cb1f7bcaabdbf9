"""Small data sets made by hand, byte by byte, so that any part of them can be made to lie."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

Json = dict[str, Any]
RAW = [{"name": "bytes", "configuration": {"endian": "little"}}]
PIXELS = np.arange(64, dtype="<u2").tobytes()
"""An 8 × 8 chunk."""


def put(path: Path, document: Any) -> None:
    """Write a JSON document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")


def array3(**changes: Any) -> Json:
    """The document of a Zarr v3 array of 8 × 8 pixels in one raw chunk."""
    return {
        "zarr_format": 3, "node_type": "array", "shape": [8, 8], "data_type": "uint16", "fill_value": 0,
        "attributes": {},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 8]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": RAW,
    } | changes  # fmt: skip


def grid(*lengths: int) -> Json:
    """A chunk grid."""
    return {"name": "regular", "configuration": {"chunk_shape": list(lengths)}}


def multiscales(*paths: str, axes: str = "yx", name: Any = "im") -> list[Json]:
    """A multiscale of levels of one size each."""
    kinds = {"t": "time", "c": "channel"}
    return [
        {
            "name": name,
            "axes": [{"name": axis, "type": kinds.get(axis, "space")} for axis in axes],
            "datasets": [
                {
                    "path": path,
                    "coordinateTransformations": [{"type": "scale", "scale": [1.0] * len(axes)}],
                }
                for path in paths
            ],
        }
    ]


def group3(**ome: Any) -> Json:
    """The document of a Zarr v3 group with NGFF 0.5 metadata."""
    return {"zarr_format": 3, "node_type": "group", "attributes": {"ome": {"version": "0.5"} | ome}}


def ome_zarr(
    folder: Path, array: Json | None = None, chunk: bytes | None = PIXELS, **ome: Any
) -> Path:
    """An OME-Zarr image of one level; `chunk` is its first chunk."""
    ome = {"multiscales": multiscales("0")} | ome
    put(folder / "zarr.json", group3(**ome))
    put(folder / "0" / "zarr.json", array or array3())
    if chunk is not None:
        rank = len((array or array3())["shape"])
        place = folder.joinpath("0", "c", *["0"] * rank)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(chunk)
    return folder


def n5(folder: Path, block: bytes | None = None, **changes: Any) -> Path:
    """An N5 container with one dataset `a` of 8 × 8 pixels."""
    attributes = {
        "dimensions": [8, 8],
        "blockSize": [8, 8],
        "dataType": "uint16",
        "compression": {"type": "raw"},
    }
    put(folder / "attributes.json", {"n5": "2.5.0"})
    put(folder / "a" / "attributes.json", attributes | changes)
    place = folder / "a" / "0" / "0"
    place.parent.mkdir(parents=True, exist_ok=True)
    default = struct.pack(">HHII", 0, 2, 8, 8) + np.arange(64, dtype=">u2").tobytes()
    place.write_bytes(default if block is None else block)
    return folder


def xml(
    body: str = "", *, prolog: str = "", tiff_data: str = '<TiffData IFD="0"/>', size: str = "8"
) -> str:
    """OME-XML of one image of 8 × 8 pixels."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>{prolog}'
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0" Name="im">'
        f'<Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16" SizeX="{size}" SizeY="8" SizeZ="1" SizeC="1" '
        f'SizeT="1"><Channel ID="Channel:0:0" SamplesPerPixel="1"/>{tiff_data}</Pixels>{body}</Image></OME>'
    )


def tiff(
    path: Path, description: str, *, next_ifd: int = 0, count: int | None = None, **tags: Any
) -> Path:
    """A little-endian classic TIFF of one strip; `tags` replace (type, count, value) by decimal number (`t256=...`)."""
    text = description.encode("utf-8") + b"\0"
    entries = {
        256: (3, 1, 8), 257: (3, 1, 8), 258: (3, 1, 16), 259: (3, 1, 1), 262: (3, 1, 1), 270: (2, len(text), 0),
        273: (4, 1, 8), 277: (3, 1, 1), 278: (3, 1, 8), 279: (4, 1, 128),
    }  # fmt: skip
    entries |= {int(name[1:]): value for name, value in tags.items()}
    start = 8 + len(PIXELS)
    at = start + 2 + 12 * len(entries) + 4
    if "t270" not in tags:
        entries[270] = (2, len(text), at)
    table = b"".join(struct.pack("<HHII", tag, *entries[tag]) for tag in sorted(entries))
    number = len(entries) if count is None else count
    head = b"II*\0" + struct.pack("<I", start) + PIXELS
    path.write_bytes(head + struct.pack("<H", number) + table + struct.pack("<I", next_ifd) + text)
    return path
