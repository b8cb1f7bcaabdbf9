"""Encoded buffers of the corpus: each decodes to its digest, or is refused where other decoders refuse it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numcodecs
import pytest

from openreadout.codecs import ByteSize, CodecSpec
from openreadout.errors import CorruptDataError, UnsupportedFeatureError
from openreadout.registry import find_codec

pytestmark = pytest.mark.corpus

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
SUFFIXES = {".cdata": "blosc", ".xz": "xz", ".zst": "zstd"}
ROOM = 1 << 20
GOOD_WITHOUT_DIGEST = {"good-0pad-empty.xz": b""}
"""Python's lzma refuses padding between streams, which the XZ file format allows; the file is empty by its name."""
NUMCODECS_IDS = {"shuffle", "crc32", "packbits", "delta"}


def vectors():
    """(folder, vector) of every buffer in the corpus."""
    if not (CORPUS / "manifest.json").is_file():
        return []
    manifest = json.loads((CORPUS / "manifest.json").read_text("utf-8"))
    return [
        pytest.param(CORPUS / entry["path"], vector, id=f"{entry['id']}/{vector['file']}")
        for entry in manifest
        if entry["kind"] in ("codec", "bad-input")
        for vector in entry["expect"].get("vectors") or []
    ]


VECTORS = vectors()


def codec_of(vector):
    """Our codec for a vector, from its configuration or its file's name."""
    config = dict(vector.get("config") or {})
    name = config.pop("id", None) or SUFFIXES[Path(vector["file"]).suffix]
    name = f"numcodecs.{name}" if name in NUMCODECS_IDS else name
    return find_codec(name).from_spec(CodecSpec(name, config), find_codec)


def must_be_refused(vector):
    name = Path(vector["file"]).name
    if name in GOOD_WITHOUT_DIGEST:
        return False
    return (
        name.startswith("bad-")
        or "sha256" not in vector
        or "zstandard" in vector.get("refused_by", [])
    )


def test_the_corpus_has_its_vectors(corpus):
    assert len(VECTORS) >= 600
    assert sum(must_be_refused(param.values[1]) for param in VECTORS) >= 30


@pytest.mark.parametrize(
    ("folder", "vector"), [p for p in VECTORS if not must_be_refused(p.values[1])]
)
def test_a_sound_buffer_decodes_to_its_digest(folder, vector):
    data = (folder / vector["file"]).read_bytes()
    empty = GOOD_WITHOUT_DIGEST.get(Path(vector["file"]).name)
    digest = vector["sha256"] if empty is None else hashlib.sha256(empty).hexdigest()
    size = vector["decoded_bytes"] if empty is None else len(empty)
    codec = codec_of(vector)
    for bound in (ByteSize(size), ByteSize(size + 1000, exact=False)):
        assert hashlib.sha256(codec.decode(data, bound)).hexdigest() == digest


@pytest.mark.parametrize(
    ("folder", "vector"), [p for p in VECTORS if not must_be_refused(p.values[1])]
)
def test_a_sound_buffer_of_another_size_is_refused(folder, vector):
    data = (folder / vector["file"]).read_bytes()
    size = vector.get("decoded_bytes", 0)
    codec = codec_of(vector)
    with pytest.raises(CorruptDataError):
        codec.decode(data, ByteSize(size + 1))
    if size:
        with pytest.raises(CorruptDataError):
            codec.decode(data, ByteSize(size - 1, exact=False))


@pytest.mark.parametrize(("folder", "vector"), [p for p in VECTORS if must_be_refused(p.values[1])])
def test_a_bad_buffer_is_refused(folder, vector):
    data = (folder / vector["file"]).read_bytes()
    unsupported = Path(vector["file"]).name.startswith("unsupported-")
    with pytest.raises(UnsupportedFeatureError if unsupported else CorruptDataError):
        codec_of(vector).decode(data, ByteSize(ROOM, exact=False))


def test_delta_buffers_decode_as_numcodecs_decodes_them(corpus):
    folder = corpus / "codec" / "real-numcodecs-delta" / "delta"
    encoded = sorted(folder.glob("*/codec.*/encoded.*.dat"))
    assert encoded
    for path in encoded:
        config = json.loads((path.parent / "config.json").read_text("utf-8"))
        expected = bytes(numcodecs.get_codec(dict(config)).decode(path.read_bytes()))
        codec = codec_of({"file": path.name, "config": config})
        assert bytes(codec.decode(path.read_bytes(), ByteSize(len(expected)))) == expected
