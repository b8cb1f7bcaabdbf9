"""Sources, detection, what foreign files are called, and codecs by name."""

from __future__ import annotations

import os
import zipfile

import pytest

from openreadout import registry
from openreadout.contracts import DEFINITE, LIKELY, Detection, FormatDescriptor, OpenContext
from openreadout.errors import (
    CorruptDataError,
    OpenReadoutError,
    StorageError,
    UnknownFormatError,
    UnsupportedFeatureError,
)
from openreadout.limits import HEAD_BYTES
from openreadout.model import Dataset


class Fake:
    """A reader that says what it is told to."""

    def __init__(self, name, confidence, priority=0, error=None):
        self.descriptor = FormatDescriptor(
            id=name, name=name.title(), extensions=(), priority=priority
        )
        self.confidence, self.error = confidence, error

    def detect(self, source):
        return None if self.confidence is None else Detection(self.confidence, "told so")

    def open(self, source, context):
        assert isinstance(context, OpenContext)
        if self.error:
            raise self.error
        return Dataset(source.path, self.descriptor.id, self.descriptor.name, "1", ())


@pytest.fixture
def use(monkeypatch):
    def install(*readers):
        monkeypatch.setattr(registry, "readers", lambda: list(readers))

    return install


@pytest.fixture
def some_file(tmp_path):
    file = tmp_path / "some.dat"
    file.write_bytes(b"\1\2\3" * 50_000)
    return str(file)


def test_source_of_a_file_has_its_head(some_file):
    source = registry.make_source(some_file)
    assert (source.is_directory, source.size, len(source.head)) == (False, 150_000, HEAD_BYTES)


def test_source_of_a_folder_has_its_names(tmp_path):
    (tmp_path / "zarr.json").write_text("{}")
    (tmp_path / "0").mkdir()
    source = registry.make_source(str(tmp_path))
    assert (source.is_directory, source.names, source.head) == (True, {"zarr.json", "0"}, b"")
    assert source.peek("zarr.json", 100) == b"{}"
    assert source.peek("absent", 100) is None


def test_absent_input_is_an_io_error(tmp_path):
    with pytest.raises(StorageError, match="no such file"):
        registry.make_source(str(tmp_path / "absent"))


def test_empty_file_is_damage(tmp_path):
    (tmp_path / "empty.ome.tiff").write_bytes(b"")
    with pytest.raises(CorruptDataError):
        registry.make_source(str(tmp_path / "empty.ome.tiff"))


@pytest.mark.skipif(os.name == "nt", reason="no named pipes in the file system there")
def test_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OpenReadoutError, match="neither a file nor a folder"):
        registry.make_source(str(tmp_path / "pipe"))


@pytest.mark.skipif(
    os.name == "nt" or os.geteuid() == 0, reason="needs a user who may not read everything"
)
def test_unreadable_file_is_an_io_error(some_file):
    os.chmod(some_file, 0)
    with pytest.raises(StorageError, match="permission"):
        registry.make_source(some_file)


def test_surest_reader_wins(use, some_file):
    use(Fake("a", LIKELY, priority=9), Fake("b", DEFINITE), Fake("c", None))
    assert registry.detect(some_file).reader.descriptor.id == "b"
    assert registry.open_dataset(some_file).notes == ()


def test_priority_decides_between_two_that_are_sure_and_a_note_names_the_other(use, some_file):
    use(Fake("a", DEFINITE), Fake("b", DEFINITE, priority=1))
    dataset = registry.open_dataset(some_file)
    assert dataset.format_id == "b"
    assert any("A" in note for note in dataset.notes)


def test_no_reader_is_an_unknown_format(use, some_file):
    use(Fake("a", None))
    with pytest.raises(UnknownFormatError) as caught:
        registry.open_dataset(some_file)
    assert caught.value.path == some_file


def test_error_of_a_reader_gets_path_and_format(use, some_file):
    use(Fake("a", DEFINITE, error=CorruptDataError("cut")))
    with pytest.raises(CorruptDataError) as caught:
        registry.open_dataset(some_file)
    assert (caught.value.path, caught.value.format_id) == (some_file, "a")


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"ZISRAWFILE", "CZI"), (b"\xda\xce\xbe\x0a", "ND2"), (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"\x89PNG\r\n\x1a\n", "PNG"), (bytes(128) + b"DICM", "DICOM"), (b"\x70\0\0\0\x10\0\0\0\x2a", "LIF"),
        (b"\xff\xd8\xff\xe0", "JPEG"), (b"\x93NUMPY", "numpy"), (b"PK\x03\x04" + bytes(60), "zip archive"),
    ],
)  # fmt: skip
def test_foreign_format_is_named_with_a_way_out(use, tmp_path, head, name):
    use()
    file = tmp_path / "foreign"
    file.write_bytes(head + bytes(200))
    with pytest.raises(UnknownFormatError, match=name) as caught:
        registry.detect(str(file))
    assert caught.value.hint


def test_zip_of_other_things_is_unknown(tmp_path):
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    with pytest.raises(UnknownFormatError):
        registry.open_dataset(str(tmp_path / "book.xlsx"))


def test_empty_folder_is_unknown(tmp_path):
    with pytest.raises(UnknownFormatError, match="empty"):
        registry.open_dataset(str(tmp_path))


def test_icechunk_is_named(tmp_path):
    for name in ("repo", "snapshots"):
        (tmp_path / name).mkdir()
    with pytest.raises(UnknownFormatError, match="Icechunk"):
        registry.open_dataset(str(tmp_path))


def test_codec_by_name_and_by_numcodecs_rule():
    assert registry.find_codec("zstd").kind == "bytes-bytes"
    assert registry.find_codec("zstd") is registry.find_codec("zstd")
    assert registry.find_codec("numcodecs.delta") is registry.find_codec("numcodecs.*")
    with pytest.raises(UnsupportedFeatureError, match=r"example\.x"):
        registry.find_codec("example.x")


def test_a_plugin_that_does_not_import_is_reported(monkeypatch):
    entry = registry.EntryPoint("bad", "nosuchmodule:X", "somewhere")
    monkeypatch.setattr(registry, "_CACHE", {})
    monkeypatch.setattr(
        registry, "entry_points", lambda group: [entry] if group == registry.READERS else []
    )
    assert registry.readers() == []
    broken = registry.broken_plugins()
    assert [(b.group, b.entry, "nosuchmodule" in b.reason) for b in broken] == [
        (registry.READERS, entry, True)
    ]
