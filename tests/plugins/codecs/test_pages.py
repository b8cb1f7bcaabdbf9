"""The codec pages name tests and cases that exist, and show code that runs."""

from __future__ import annotations

import fnmatch
import re
import sys

import pytest

from openreadout.codecs import ByteSize, CodecSpec

FOLDER = "tests/plugins/codecs"


def test_every_test_that_the_tables_name_exists(repository):
    page = (repository / "docs" / "codecs.md").read_text("utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    sources = "\n".join(path.read_text("utf-8") for path in (repository / FOLDER).glob("*.py"))
    assert len(named) > 30
    assert named <= set(re.findall(r"^def (test_\w+)", sources, re.MULTILINE))


def test_every_case_that_the_tables_name_exists(repository):
    page = (repository / "docs" / "codecs.md").read_text("utf-8")
    source = (repository / FOLDER / "test_invalid_configurations.py").read_text("utf-8")
    labels = re.findall(r'^    "([a-z0-9-]+)": ', source, re.MULTILINE)
    rows = re.findall(r"listed: ([^;|]+)", page)
    named = [case for row in rows for case in re.findall(r"`([^`]+)`", row)]
    assert len(named) > 20
    for case in named:
        assert fnmatch.filter(labels, case), case
    for label in labels:
        if label not in (
            "empty",
            "unknown-key",
            "bytes-only",
        ):  # rules without a row
            assert any(fnmatch.fnmatch(label, case) for case in named), label


def test_the_toy_codec_of_the_page_works(repository, tmp_path, monkeypatch):
    page = (repository / "docs" / "adding-a-codec.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "inverted.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "inverted", raising=False)
    toy = __import__("inverted").InvertedCodec.from_spec(CodecSpec("inverted"), lambda name: None)
    assert toy.decode(toy.encode(b"abc"), ByteSize(3)) == b"abc"
    with pytest.raises(ValueError, match="inverted"):
        toy.decode(b"abcd", ByteSize(3))


def test_the_zarr_example_of_the_page_runs(repository, tmp_path, monkeypatch):
    page = (repository / "docs" / "codecs.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(code, names)  # noqa: S102
    assert names["array"][0, 0].tolist() == [0, 0, 0]
    assert (tmp_path / "image.zarr" / "zarr.json").is_file()
