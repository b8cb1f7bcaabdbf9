"""Archives as RFC-9 recommends them, and read by what others wrote."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import zarr

from openreadout.testing import find_cases

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES = find_cases(FIXTURES)
SOME = [
    case
    for case in CASES
    if case.name in ("v3-sharded", "v3-plate", "v3-labels", "two-images", "z5py-missing-blocks")
]
JAVA = """
import java.util.zip.*;
public class Read {
    public static void main(String[] names) throws Exception {
        long total = 0;
        try (ZipFile file = new ZipFile(names[0])) {
            for (var all = file.entries(); all.hasMoreElements();)
                total += file.getInputStream(all.nextElement()).readAllBytes().length;
        }
        long streamed = 0;
        try (var in = new ZipInputStream(new java.io.FileInputStream(names[0]))) {
            while (in.getNextEntry() != null) streamed += in.readAllBytes().length;
        }
        System.out.println(total + " " + streamed);
    }
}
"""


@pytest.fixture
def archive(make, tmp_path, export):
    """An archive and the pixels it was made of."""
    pixels = make.noise((2, 3, 300, 310))
    source = make.image(tmp_path / "a.ome.zarr", [pixels], "czyx", chunks=(1, 1, 100, 90))
    export(source, tmp_path / "out.ozx")
    return tmp_path / "out.ozx", pixels


def local_headers(path):
    """Every member's local header, read front to back without the directory at the end."""
    data = path.read_bytes()
    at, found = 0, []
    while data[at : at + 4] == b"PK\x03\x04":
        _, version, flags, method, _, _, _, small, large, name_size, extra_size = struct.unpack(
            "<4sHHHHHIIIHH", data[at : at + 30]
        )
        name = data[at + 30 : at + 30 + name_size].decode()
        extra = data[at + 30 + name_size : at + 30 + name_size + extra_size]
        kind, length, plain, stored = struct.unpack("<HHQQ", extra)
        assert (kind, length) == (1, 16), "the ZIP64 field, with both sizes"
        found.append((name, version, flags, method, small, large, plain, stored))
        at += 30 + name_size + extra_size + stored
    assert data[at : at + 4] == b"PK\x01\x02", "members lie one after the other up to the directory"
    return found


def test_members_are_stored_with_zip64_sizes_and_without_descriptors(archive):
    path, _ = archive
    for _, version, flags, method, small, large, plain, stored in local_headers(path):
        assert version == 45
        assert flags & 0x8 == 0, "no data descriptor"
        assert flags & 0x1 == 0, "not encrypted"
        assert method == zipfile.ZIP_STORED
        assert (small, large) == (0xFFFFFFFF, 0xFFFFFFFF)
        assert plain == stored


def test_the_directory_agrees_with_what_lies_in_front(archive):
    path, _ = archive
    front = local_headers(path)
    with zipfile.ZipFile(path) as file:
        infos = file.infolist()
        assert [info.filename for info in infos] == [name for name, *_ in front]
        assert [info.file_size for info in infos] == [header[-1] for header in front]
        assert len({info.filename for info in infos}) == len(infos)
    data = path.read_bytes()
    end = data.rfind(b"PK\x05\x06")
    assert struct.unpack("<HHHHII", data[end + 4 : end + 20]) == (
        0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF,
    )  # fmt: skip
    assert data[end - 20 : end - 16] == b"PK\x06\x07"
    assert data[end - 76 : end - 72] == b"PK\x06\x06"


@pytest.mark.parametrize("case", SOME, ids=str)
def test_the_root_document_is_first_and_documents_come_breadth_first(case, tmp_path, export):
    export(case.data, tmp_path / "out.ozx")
    with zipfile.ZipFile(tmp_path / "out.ozx") as file:
        names = file.namelist()
        comment = json.loads(file.comment)
        documents = [name for name in names if name.endswith("zarr.json")]
        assert file.testzip() is None
        for name in documents:
            json.loads(file.read(name))
    assert names[0] == "zarr.json"
    assert names[: len(documents)] == documents
    depths = [name.count("/") for name in documents]
    assert depths == sorted(depths)
    assert comment == {
        "ome": {"version": "0.5", "zipFile": {"centralDirectory": {"jsonFirst": True}}}
    }


def test_zarr_python_reads_it(archive):
    path, pixels = archive
    store = zarr.storage.ZipStore(path, mode="r")
    with store:
        group = zarr.open_group(store, mode="r")
        assert group.attrs["ome"]["version"] == "0.5"
        assert np.array_equal(group["0"][...], pixels)


def test_tensorstore_reads_it(archive):
    tensorstore = pytest.importorskip("tensorstore")
    path, pixels = archive
    found = tensorstore.open(
        {
            "driver": "zarr3",
            "kvstore": {
                "driver": "zip",
                "base": {"driver": "file", "path": str(path)},
                "path": "0/",
            },
        }
    ).result()
    assert np.array_equal(found.read().result(), pixels)


def test_fsspec_reads_it(archive):
    fsspec = pytest.importorskip("fsspec")
    path, _ = archive
    files = fsspec.filesystem("zip", fo=str(path))
    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            assert files.cat(name) == file.read(name)


@pytest.mark.skipif(shutil.which("unzip") is None, reason="unzip is not installed")
def test_unzip_finds_nothing_wrong(archive):
    done = subprocess.run(["unzip", "-t", archive[0]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "No errors" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed")
def test_java_reads_it_by_its_directory_and_as_a_stream(archive, tmp_path):
    (tmp_path / "Read.java").write_text(JAVA)
    done = subprocess.run(
        ["java", tmp_path / "Read.java", archive[0]], capture_output=True, text=True, check=False
    )
    if "compiler" in done.stderr:
        pytest.skip("this Java has no compiler")
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(archive[0]) as file:
        total = sum(info.file_size for info in file.infolist())
    assert done.stdout.split() == [str(total), str(total)]


@pytest.mark.parametrize("case", SOME, ids=str)
def test_an_archive_holds_what_the_folder_holds(case, tmp_path, export):
    export(case.data, tmp_path / "out.ozx")
    export(case.data, tmp_path / "out.ome.zarr")
    with zipfile.ZipFile(tmp_path / "out.ozx") as file:
        packed = {name: file.read(name) for name in file.namelist()}
    loose = {
        p.relative_to(tmp_path / "out.ome.zarr").as_posix(): p.read_bytes()
        for p in (tmp_path / "out.ome.zarr").rglob("*")
        if p.is_file()
    }
    assert packed.keys() == loose.keys()
    for name, data in packed.items():
        if name.endswith(".json"):
            assert json.loads(data) == json.loads(loose[name])
        else:
            assert data.rstrip() == loose[name].rstrip()


def test_version_0_4_and_several_inputs_do_not_go_into_an_archive(archive, tmp_path, export):
    source = tmp_path / "a.ome.zarr"
    export(source, tmp_path / "b.ozx", "--ngff", "0.4", code=2)
    export(source, tmp_path / "b.zip", archive[0], code=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.ome.zarr", "out.ozx"]


def test_nothing_but_the_archive_is_written(make, tmp_path, export, monkeypatch):
    """No tree of files beside it, not even for a moment."""
    made = []
    sys.addaudithook(
        lambda event, arguments: (
            made.append(arguments[0]) if event == "os.mkdir" and made is not None else None
        )
    )
    source = make.image(tmp_path / "a.ome.zarr", [make.noise((4, 100, 100))], "zyx")
    made.clear()
    export(source, tmp_path / "out.ozx")
    assert [path for path in made if str(tmp_path) in str(path)] == []
