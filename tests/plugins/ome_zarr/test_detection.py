"""What is taken for OME-Zarr, and how sure that is."""

from __future__ import annotations

import shutil
import zipfile

import pytest

from openreadout.contracts import DEFINITE, LIKELY, Source
from openreadout.errors import CorruptDataError, UnknownFormatError, UnsupportedFeatureError
from openreadout.limits import MAX_ROOT_NAMES
from openreadout.registry import make_source, open_dataset
from openreadout_ome_zarr import READER


def sure(path) -> float | None:
    found = READER.detect(make_source(str(path)))
    return None if found is None else found.confidence


@pytest.mark.parametrize("key", ["multiscales", "plate", "well", "bioformats2raw.layout"])
@pytest.mark.parametrize("version", [2, 3])
def test_ngff_keys_are_definite(tmp_path, make, key, version):
    if version == 2:
        make.put(tmp_path, ".zgroup", {"zarr_format": 2})
        make.put(tmp_path, ".zattrs", {key: {}})
    else:
        make.put(tmp_path, "zarr.json", make.group_json({key: {}}))
    assert sure(tmp_path) == DEFINITE


@pytest.mark.parametrize("name", ["zarr.json", ".zgroup", ".zattrs", ".zarray"])
def test_plain_zarr_is_likely_and_refused(tmp_path, make, name):
    make.put(tmp_path, name, {"zarr_format": 3 if name == "zarr.json" else 2})
    assert sure(tmp_path) == LIKELY
    with pytest.raises(UnsupportedFeatureError, match="image metadata"):
        open_dataset(str(tmp_path))


def test_bare_array_is_refused(tmp_path, make):
    make.put(tmp_path, "zarr.json", make.array_json((4, 4)))
    with pytest.raises(UnsupportedFeatureError, match="single Zarr array"):
        open_dataset(str(tmp_path))


def test_extension_alone_says_nothing(tmp_path):
    folder = tmp_path / "image.ome.zarr"
    folder.mkdir()
    (folder / "notes.txt").write_text("multiscales")
    assert sure(folder) is None
    with pytest.raises(UnknownFormatError):
        open_dataset(str(folder))


def test_no_extension_is_needed(tmp_path, make):
    make.image(tmp_path / "IMAGE of é")
    assert open_dataset(f"{tmp_path / 'IMAGE of é'}/").images[0].shape == (4, 6)


@pytest.mark.parametrize("name", [".zattrs", ".zgroup"])
def test_opened_by_a_root_document_of_zarr_2(tmp_path, make, name):
    make.image(tmp_path / "im.zarr")
    path = tmp_path / "im.zarr" / name
    assert sure(path) == DEFINITE
    assert open_dataset(str(path)).images[0].size("x") == 6


def test_opened_by_its_zarr_json(tmp_path, make, monkeypatch):
    make.put(
        tmp_path,
        "zarr.json",
        make.group_json({"version": "0.5", "multiscales": [make.multiscale()]}),
    )
    make.put(tmp_path, "0/zarr.json", make.array_json((4, 6)))
    assert open_dataset(str(tmp_path / "zarr.json")).images[0].size("x") == 6
    monkeypatch.chdir(tmp_path)
    assert open_dataset("zarr.json").images[0].size("x") == 6


def test_document_among_very_many_names_is_found():
    names = frozenset(str(n) for n in range(MAX_ROOT_NAMES))
    documents = {"zarr.json": b'{"attributes": {"ome": {"bioformats2raw.layout": 3}}}'}
    source = Source(
        "x", True, 0, b"", names, lambda name, limit: documents.get(name, b"")[:limit] or None
    )
    assert READER.detect(source).confidence == DEFINITE
    few = Source("x", True, 0, b"", frozenset(["0"]), source.peek)
    assert READER.detect(few) is None


def test_other_json_is_not_ours(tmp_path):
    (tmp_path / "package.json").write_text('{"multiscales": []}')
    (tmp_path / "zarr.json").write_text('{"name": "a crate"}')
    assert sure(tmp_path / "package.json") is None
    assert sure(tmp_path / "zarr.json") is None


def test_zip_without_documents_in_its_head_is_not_ours(tmp_path, make):
    make.image(tmp_path / "im.zarr")
    archive = tmp_path / "late.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("readme", b"zarr.json .zattrs " * 5000)
        out.write(tmp_path / "im.zarr/.zattrs", ".zattrs")
    assert sure(archive) is None


def test_cut_zip_is_corrupt(tmp_path, make):
    make.image(tmp_path / "im.zarr", (50, 60))
    archive = make.zipped(tmp_path / "im.zarr", tmp_path / "im.zarr.zip")
    data = archive.read_bytes()
    archive.write_bytes(data[: len(data) // 2])
    assert sure(archive) == DEFINITE
    with pytest.raises(CorruptDataError, match="cut short or damaged"):
        open_dataset(str(archive))


def test_ngff_wins_over_n5_in_one_folder(tmp_path, make):
    make.image(tmp_path)
    make.put(tmp_path, "attributes.json", {"n5": "4.0.0"})
    with open_dataset(str(tmp_path)) as dataset:
        assert dataset.format_id == "ome-zarr"
        assert any("N5" in note for note in dataset.notes)


def test_only_documents_are_read_when_opening(tmp_path, make):
    make.image(tmp_path)
    shutil.rmtree(tmp_path / "0" / "0.0", ignore_errors=True)
    (tmp_path / "0" / "0.0").unlink()
    assert open_dataset(str(tmp_path)).images[0].shape == (4, 6)
