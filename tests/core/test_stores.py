"""Stores: the same answers from a directory and from an archive, and no way out of either."""

from __future__ import annotations

import os
import random
import struct
import threading
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openreadout.errors import CorruptDataError, StorageError, UnsupportedFeatureError
from openreadout.jsons import parse_json
from openreadout.stores import (
    DirectoryStore,
    MemoryObject,
    StoredObject,
    join_key,
    read_json,
    sizes_below,
    total_size,
)
from openreadout.zips import ZipStore

CONTENT = {
    "zarr.json": b'{"zarr_format": 3}',
    "0/zarr.json": b"{}",
    "0/c/0/0": bytes(range(200)),
    "0/c/0/1": b"",
    "labels/cell größe/x y": "µ".encode(),
}


def as_directory(folder):
    for key, data in CONTENT.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)
    return DirectoryStore(str(folder))


def as_zip(folder, method=zipfile.ZIP_STORED, prefix=""):
    file = folder / "store.zip"
    with zipfile.ZipFile(file, "w", method) as archive:
        for key, data in CONTENT.items():
            archive.writestr(f"{prefix}{key}", data)
    return ZipStore(str(file), prefix.rstrip("/"))


@pytest.fixture(params=["directory", "stored", "deflated", "prefixed"])
def store(request, tmp_path):
    made = {
        "directory": lambda: as_directory(tmp_path),
        "stored": lambda: as_zip(tmp_path),
        "deflated": lambda: as_zip(tmp_path, zipfile.ZIP_DEFLATED),
        "prefixed": lambda: as_zip(tmp_path, prefix="top folder/"),
    }[request.param]()
    yield made
    made.close()


def test_get_gives_the_whole_value(store):
    for key, data in CONTENT.items():
        assert store.get(key) == data
        assert store.size(key) == len(data)


def test_absent_keys_are_none(store):
    for key in ("nothing", "0/c/9", "zarr.json/below", "0/c/0/0/deeper"):
        assert store.get(key) is None
        assert store.size(key) is None
        assert store.get_range(key, 0, 5) is None


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 10), (190, 10), (195, 10), (200, 5), (500, 5), (7, 0)]
)
def test_get_range_gives_what_is_there(store, offset, length):
    assert (
        store.get_range("0/c/0/0", offset, length) == CONTENT["0/c/0/0"][offset : offset + length]
    )


def test_list_dir_separates_folders_from_values(store):
    folders, files = store.list_dir("")
    assert (folders, [f for f in files if f != "store.zip"]) == (["0", "labels"], ["zarr.json"])
    assert store.list_dir("0/c/0") == ([], ["0", "1"])
    assert store.list_dir("absent") == ([], [])


def test_walk_gives_every_key_with_its_size(store):
    assert dict(store.walk("")) == {key: len(data) for key, data in CONTENT.items()}
    assert dict(store.walk("0/c")) == {"0/c/0/0": 200, "0/c/0/1": 0}
    assert dict(store.walk("absent")) == {}


def test_a_value_larger_than_the_limit_is_refused(store):
    with pytest.raises(CorruptDataError, match="more than the 100"):
        store.get("0/c/0/0", limit=100)


def test_stored_object_reads_ranges_and_refuses_short_ones(store):
    found = StoredObject(store, "0/c/0/0", 200)
    assert found.size() == 200
    assert found.read(150, 50) == CONTENT["0/c/0/0"][150:]
    for offset, length in ((150, 51), (-1, 5), (0, -1), (10**12, 1)):
        with pytest.raises(CorruptDataError):
            found.read(offset, length)


@pytest.mark.parametrize(("offset", "length"), [(-1, 2), (0, 5), (4, 1), (0, -1)])
def test_memory_object_refuses_what_is_not_there(offset, length):
    whole = MemoryObject(b"abcd")
    assert (whole.size(), whole.read(1, 3)) == (4, b"bcd")
    with pytest.raises(CorruptDataError):
        whole.read(offset, length)


# -- keys --


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        (("",), ""),
        (("a", "b/c"), "a/b/c"),
        (("/a/", "./b"), "a/b"),
        (("", "0", ""), "0"),
        (("a..b", "...c"), "a..b/...c"),
    ],
)
def test_join_key_joins(parts, key):
    assert join_key(*parts) == key


@pytest.mark.parametrize(
    "part", ["..", "../x", "a/../../b", "a\\b", "..\\..", "C:", "C:/x", "a\0b"]
)
def test_join_key_refuses_to_leave_the_store(part):
    with pytest.raises(CorruptDataError, match="leads out"):
        join_key("group", part)


@given(st.lists(st.text(max_size=8), max_size=4))
def test_joined_key_stays_inside(parts):
    try:
        key = join_key(*parts)
    except CorruptDataError:
        return
    path = os.path.normpath(os.path.join("/store", *key.split("/")))
    assert path == "/store" or path.startswith("/store/")


# -- directories --


def test_a_folder_where_a_value_belongs_is_an_error(tmp_path):
    store = as_directory(tmp_path)
    with pytest.raises(StorageError):
        store.get("0/c")


@pytest.mark.skipif(os.name == "nt", reason="no named pipes in the file system there")
@pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="the system does not list open files"
)
def test_a_thread_keeps_one_file_open_and_closing_the_store_closes_it(tmp_path):
    def opened():
        links = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
        names = [os.readlink(link) for link in links if os.path.lexists(link)]
        return sum(name.startswith(str(tmp_path)) for name in names)

    store = DirectoryStore(str(tmp_path))
    for n in range(5):
        (tmp_path / f"{n}").write_bytes(bytes([n]) * 10)
    for n in (0, 0, 1, 2, 2, 3, 4, 4):
        assert store.get_range(f"{n}", 3, 4) == bytes([n]) * 4
        assert opened() == 1
    thread = threading.Thread(target=store.get_range, args=("1", 0, 1))
    thread.start()
    thread.join()
    assert opened() == 1
    store.close()
    assert opened() == 0
    assert store.get_range("1", 0, 2) == b"\1\1"


def test_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="not a regular file"):
        DirectoryStore(str(tmp_path)).get("pipe")


def test_a_name_too_long_is_absent(tmp_path):
    store = DirectoryStore(str(tmp_path))
    assert store.get("x" * 5000) is None
    assert store.size("x" * 5000) is None


def test_a_name_with_nul_is_an_error_or_absent(tmp_path):
    with pytest.raises(StorageError):
        DirectoryStore(str(tmp_path)).get("a\0b")


def test_sizes_below_count_a_file_for_the_innermost_folder(tmp_path):
    for name, size in {"a": 1, "0/b": 10, "0/c/0/0": 100, "0/in/d": 1000, "00/e": 10000}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(size))
    assert sizes_below(str(tmp_path), ["0", "0/in", "absent"]) == (
        11111,
        {"0": 110, "0/in": 1000, "absent": 0},
    )


def test_total_size_counts_every_file(tmp_path):
    as_directory(tmp_path)
    assert total_size(str(tmp_path)) == sum(map(len, CONTENT.values()))
    assert total_size(str(tmp_path / "0/c/0/0")) == 200
    with pytest.raises(StorageError):
        total_size(str(tmp_path / "absent"))


# -- archives --


def test_the_last_of_two_members_counts(tmp_path):
    file = tmp_path / "twice.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"old")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a", b"new")
    store = ZipStore(str(file))
    assert store.get("a") == b"new"
    store.close()


@pytest.mark.parametrize("keep", [0, 3, 30, 0.3, 0.7, -1, -22])
def test_a_cut_archive_is_damage(tmp_path, keep):
    as_zip(tmp_path).close()
    data = (tmp_path / "store.zip").read_bytes()
    (tmp_path / "store.zip").write_bytes(data[: int(len(data) * keep) if 0 < keep < 1 else keep])
    with pytest.raises(CorruptDataError):
        ZipStore(str(tmp_path / "store.zip"))


def test_an_encrypted_member_is_not_supported(tmp_path):
    as_zip(tmp_path).close()
    data = bytearray((tmp_path / "store.zip").read_bytes())
    data[data.find(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "store.zip").write_bytes(bytes(data))
    store = ZipStore(str(tmp_path / "store.zip"))
    with pytest.raises(UnsupportedFeatureError, match="encrypted"):
        store.get("zarr.json")
    store.close()


def test_another_method_is_not_supported(tmp_path):
    store = as_zip(tmp_path, zipfile.ZIP_LZMA)
    with pytest.raises(UnsupportedFeatureError, match="method 14"):
        store.get("0/c/0/0")
    store.close()


def test_a_bomb_stops_at_the_declared_size(tmp_path):
    """A deflated member that says it is small and is not."""
    file = tmp_path / "bomb.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(50_000_000))
    data = bytearray(file.read_bytes())
    at = data.find(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 100)
    file.write_bytes(bytes(data))
    store = ZipStore(str(file))
    with pytest.raises(CorruptDataError, match="100 bytes it declares"):
        store.get("a")
    store.close()


def test_a_wrong_checksum_is_damage(tmp_path):
    store = as_zip(tmp_path)
    data = bytearray((tmp_path / "store.zip").read_bytes())
    data[data.find(CONTENT["0/c/0/0"]) + 5] ^= 1
    (tmp_path / "store.zip").write_bytes(bytes(data))
    with pytest.raises(CorruptDataError, match="checksum"):
        store.get("0/c/0/0")
    store.close()


def test_a_damaged_archive_raises_nothing_but_our_errors(tmp_path):
    as_zip(tmp_path, zipfile.ZIP_DEFLATED).close()
    whole = (tmp_path / "store.zip").read_bytes()
    source = random.Random(3)
    file = tmp_path / "flipped.zip"
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(source.randint(1, 3)):
            data[source.randrange(len(data))] = source.randrange(256)
        file.write_bytes(bytes(data))
        try:
            store = ZipStore(str(file))
        except (CorruptDataError, UnsupportedFeatureError):
            continue
        for key in store.names():
            try:
                store.get(key)
                store.get_range(key, 0, 10)
            except (CorruptDataError, UnsupportedFeatureError):
                continue
        store.close()


def test_an_archive_that_is_not_there(tmp_path):
    with pytest.raises(StorageError):
        ZipStore(str(tmp_path / "absent.zip"))


# -- JSON --


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"  ",
        b"{",
        b"\xff\xfe",
        b'{"a": }',
        b"[" * 100_000,
        b"[" * 300 + b"]" * 300,
        b"1" * 5000,
    ],
)
def test_documents_that_are_not_whole_are_damage(data):
    with pytest.raises(CorruptDataError):
        parse_json(data, "zarr.json", "x.zarr")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda c: st.lists(c) | st.dictionaries(st.text(), c),
    )
)
def test_documents_parse_as_python_does(document):
    import json

    assert parse_json(json.dumps(document).encode(), "k", "p") == document


def test_read_json_of_an_absent_key_is_none(tmp_path):
    assert read_json(DirectoryStore(str(tmp_path)), "zarr.json") is None
