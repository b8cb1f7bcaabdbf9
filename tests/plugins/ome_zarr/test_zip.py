"""Zip archives: layouts that writers leave, and damage."""

from __future__ import annotations

import io
import struct
import sys
import zipfile
import zlib

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from openreadout.arrays import read_region
from openreadout.errors import (
    CorruptDataError,
    OpenReadoutError,
    UnknownFormatError,
    UnsupportedFeatureError,
)
from openreadout.registry import open_dataset


def whole(path) -> np.ndarray:
    with open_dataset(str(path)) as dataset:
        array = dataset.images[0].levels[0].array
        return read_region(array, tuple((0, n) for n in array.shape))


@pytest.fixture
def store(tmp_path, make):
    """An image, and its pixels."""
    return tmp_path / "im.zarr", make.image(tmp_path / "im.zarr", (40, 60))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("prefix", ["", "im.zarr/", "some/way/down/", "./"])
def test_hierarchy_at_the_root_or_in_a_folder(tmp_path, make, store, method, prefix):
    root, pixels = store
    archive = make.zipped(root, tmp_path / "a b é.ZIP", prefix, method)
    assert (whole(archive) == pixels).all()
    assert "zip store" in open_dataset(str(archive)).format_version


def test_strays_beside_the_folder_are_ignored(tmp_path, make, store):
    root, pixels = store
    archive = make.zipped(root, tmp_path / "a.zip", "im.zarr/")
    with zipfile.ZipFile(archive, "a") as out:
        out.writestr("__MACOSX/.zattrs", b"x")
        out.writestr("__MACOSX/im.zarr/._.zattrs", b"x")
        out.writestr(".trash/.zattrs", b"x")
        out.writestr("readme.txt", b"x")
        out.writestr("im.zarr/", b"")
    assert (whole(archive) == pixels).all()


def test_two_hierarchies_side_by_side_are_refused(tmp_path, make, store):
    archive = make.zipped(store[0], tmp_path / "a.zip", "one/")
    with zipfile.ZipFile(archive, "a") as out:
        out.writestr("two/.zattrs", b"{}")
    with pytest.raises(UnsupportedFeatureError, match="several Zarr hierarchies: one, two"):
        open_dataset(str(archive))


def test_last_of_two_entries_of_one_name_counts(tmp_path, make, store):
    archive = make.zipped(store[0], tmp_path / "a.zip")
    with zipfile.ZipFile(archive, "a") as out, pytest.warns(UserWarning, match="Duplicate name"):
        out.writestr("0/0.0", np.full((40, 60), 7, "<u2").tobytes())
    assert (whole(archive) == 7).all()


class Pipe(io.RawIOBase):
    """A stream that cannot seek, so that zipfile writes data descriptors."""

    def __init__(self):
        self.data = bytearray()

    def writable(self):
        return True

    def write(self, data):
        self.data += bytes(data)
        return len(data)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_data_descriptors(tmp_path, store, method):
    root, pixels = store
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", method) as out:
        for key in (".zgroup", ".zattrs", "0/.zarray", "0/0.0"):
            with out.open(key, "w") as member:
                member.write((root / key).read_bytes())
    archive = tmp_path / "a.zip"
    archive.write_bytes(pipe.data)
    assert (whole(archive) == pixels).all()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("version", [2, 3])
def test_archives_that_zarr_python_writes(tmp_path, make, version):
    pixels = np.arange(70, dtype="uint16").reshape(7, 10)
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as out:
        group = zarr.open_group(out, mode="w", zarr_format=version)
        entry = make.multiscale()
        ngff = {"multiscales": [entry]}
        group.attrs.update(ngff if version == 2 else {"ome": {"version": "0.5", **ngff}})
        more = {} if version == 2 else {"shards": (4, 8)}
        group.create_array("0", shape=(7, 10), chunks=(2, 4), dtype="uint16", **more)[:] = pixels
    assert (whole(tmp_path / "a.zip") == pixels).all()


def test_zip64_records(tmp_path, store, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    root, pixels = store
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for key in (".zgroup", ".zattrs", "0/.zarray", "0/0.0"):
            out.writestr(key, (root / key).read_bytes())
    assert b"PK\x06\x06" in archive.read_bytes()
    assert (whole(archive) == pixels).all()


def test_comment_with_the_signature_of_the_end_record_in_it(tmp_path, make, store):
    root, pixels = store
    archive = make.zipped(root, tmp_path / "a.zip")
    with zipfile.ZipFile(archive, "a") as out:
        out.comment = b"PK\x05\x06" + b"\0" * 30
    assert (whole(archive) == pixels).all()


def test_central_directory_behind_other_bytes(tmp_path, make, store):
    root, pixels = store
    archive = make.zipped(root, tmp_path / "a.zip")
    data = archive.read_bytes()
    front = make.zipped(root, tmp_path / "b.zip").read_bytes()
    archive.write_bytes(front[: front.index(b"PK\x01\x02")] + data)
    assert (whole(archive) == pixels).all()


def patched(archive, at, form, value):
    """Change a number of every entry of the central directory."""
    data = bytearray(archive.read_bytes())
    place = data.find(b"PK\x01\x02")
    while place >= 0:
        struct.pack_into(form, data, place + at, value)
        place = data.find(b"PK\x01\x02", place + 4)
    archive.write_bytes(data)
    return archive


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (8, "<H", 1, "encrypted"),
        (8, "<H", 0x2001, "encrypted"),
        (10, "<H", 99, "method 99"),
        (10, "<H", 12, "method 12"),
    ],
)
def test_members_that_are_not_read(tmp_path, make, store, at, form, value, message):
    archive = patched(make.zipped(store[0], tmp_path / "a.zip"), at, form, value)
    with pytest.raises(UnsupportedFeatureError, match=message):
        open_dataset(str(archive))


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (16, "<L", 1),  # checksum
        (24, "<L", 5),  # size
        (24, "<L", 1 << 31),
        (20, "<L", 1 << 31),  # packed size
        (42, "<L", 1 << 30),  # offset
        (42, "<L", 3),
        (24, "<L", 0xFFFFFFFF),  # in a ZIP64 field that is not there
        (0, "<L", 0),
    ],
)
def test_directory_that_lies_is_corrupt(tmp_path, make, store, at, form, value):
    archive = patched(make.zipped(store[0], tmp_path / "a.zip"), at, form, value)
    with pytest.raises(CorruptDataError):
        open_dataset(str(archive))


@pytest.mark.parametrize("disk", [1, 7])
def test_archive_in_parts_is_refused(tmp_path, make, store, disk):
    archive = make.zipped(store[0], tmp_path / "a.zip")
    data = bytearray(archive.read_bytes())
    struct.pack_into("<H", data, data.rindex(b"PK\x05\x06") + 4, disk)
    archive.write_bytes(data)
    with pytest.raises(UnsupportedFeatureError, match="several parts"):
        open_dataset(str(archive))


def test_deflate_bomb_is_stopped(tmp_path):
    archive = tmp_path / "a.zip"
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = bomb.compress(b" " * (1 << 26)) + bomb.flush()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr(".zattrs", b" " * (1 << 26))
    data = bytearray(archive.read_bytes())
    place = data.rindex(b"PK\x01\x02")
    assert len(packed) < len(data)
    struct.pack_into("<L", data, place + 24, 100)
    archive.write_bytes(data)
    with pytest.raises(CorruptDataError, match="does not inflate"):
        open_dataset(str(archive))


@given(st.data())
def test_any_damage_gives_the_pixels_or_our_error(tmp_path_factory, make, data):
    tmp_path = tmp_path_factory.mktemp("flip")
    make.image(tmp_path / "s", (3, 4))
    archive = make.zipped(tmp_path / "s", tmp_path / "a.zip")
    raw = bytearray(archive.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.integers(0, 255))
    archive.write_bytes(raw[: data.draw(st.integers(len(raw) - 30, len(raw)))])
    try:
        found = whole(archive)
    except (UnknownFormatError, CorruptDataError, UnsupportedFeatureError):
        return
    assert found.dtype.kind in "biufc"


@pytest.mark.skipif(sys.platform == "win32", reason="counts descriptors through /proc")
def test_nothing_stays_open(tmp_path, make, store):
    import os

    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    archive = make.zipped(store[0], tmp_path / "a.zip")
    whole(archive)
    archive.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(OpenReadoutError):
        open_dataset(str(archive))
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after == before
