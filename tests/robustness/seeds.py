"""Sound and damaged data sets to start from: the fixtures, and the collection of real files where it is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_FILES = 400
MAX_BYTES = 512 << 10


@dataclass(frozen=True)
class Seed:
    """One input: the name of the file or folder to open, and every file by its path from the input's parent."""

    name: str
    entry: str
    files: dict[str, bytes]


def load(name: str, data: Path, *, beside: bool = False) -> Seed | None:
    """Take an input into memory, or nothing when it is large; `beside` takes its neighbours too."""
    base = data.parent
    found = (
        sorted(base.rglob("*")) if beside else sorted(data.rglob("*")) if data.is_dir() else [data]
    )
    files = [path for path in found if path.is_file()]
    if len(files) > MAX_FILES or sum(path.stat().st_size for path in files) > MAX_BYTES:
        return None
    return Seed(name, data.name, {str(p.relative_to(base)): p.read_bytes() for p in files})


def from_fixtures() -> Iterator[Seed]:
    """Every fixture, the damaged ones too."""
    for document in sorted((ROOT / "fixtures").glob("*/*/expected.json")):
        data = document.parent / json.loads(document.read_text(encoding="utf-8"))["path"]
        seed = load(f"fixtures/{'/'.join(document.parts[-3:-1])}", data)
        if seed is not None:
            yield seed


def from_corpus() -> Iterator[Seed]:
    """Small inputs of the collection beside the checkout; none where it is not there."""
    folder = ROOT.parent / "shared" / "corpus"
    if not (folder / "manifest.json").is_file():
        return
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for case in manifest:
        data = folder / case["path"]
        if case["kind"] in ("codec", "metadata-json") or not data.exists():
            continue
        several = data.is_file() and case["kind"] == "ome-tiff" and data.parent.name == case["id"]
        seed = load(f"corpus/{case['id']}", data, beside=several)
        if seed is not None:
            yield seed
