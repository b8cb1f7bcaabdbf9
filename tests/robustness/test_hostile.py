"""Inputs that mean harm: every command ends at once, in little memory, with an exit code of its own."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import struct
import sys
import zipfile
import zlib

import imagecodecs
import numcodecs
import numpy as np
import pytest

from tests.robustness import build, guards

MAX_SECONDS = 2.0
MAX_BYTES = 200 << 20
COMMANDS = ("info", "info-full", "check", "check-full", "check-planes", "export")
DAMAGED = {4}
ANY = {0, 2, 3, 4, 5, 6}
MARK = "openreadout-4711"  # what must not be shown

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="measures memory by /proc"
)


@pytest.fixture(scope="module", autouse=True)
def _warm(tmp_path_factory):
    """Import what the commands import before anything is measured."""
    folder = tmp_path_factory.mktemp("warm")
    source = build.ome_zarr(folder / "in" / "a.zarr")
    for command in COMMANDS:
        assert (
            guards.judge(
                command, source, guards.listing(folder / "in"), folder / "in", folder / "out"
            ).code
            == 0
        )


@pytest.fixture
def attack(tmp_path):
    """Give an input to every command, and hold each to the promise."""

    def run(source, codes, *, commands=COMMANDS, seconds=MAX_SECONDS, most=MAX_BYTES):
        base = tmp_path / "in"
        before = guards.listing(base)
        found = {}
        for command in commands:
            done = guards.judge(command, source, before, base, tmp_path / "out")
            assert done.faults == [], command
            assert done.code in codes, (command, done.code, done.out[-500:], done.err)
            assert done.cpu < seconds, (command, done.cpu)
            assert done.peak < most, (command, done.peak >> 20)
            assert MARK not in done.out + done.err
            found[command] = done
        return found

    (tmp_path / "in").mkdir()
    run.folder = tmp_path / "in"
    return run


def secret(folder):
    path = folder / "secret.txt"
    path.write_text(MARK, encoding="utf-8")
    return path


# -- XML -------------------------------------------------------------------------------------------

LAUGHS = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(12))


def prologs(folder):
    path = secret(folder)
    return {
        "bomb": f'<!DOCTYPE OME [<!ENTITY l0 "ha">{LAUGHS}]>',
        "quadratic": f'<!DOCTYPE OME [<!ENTITY l12 "{"x" * 100000}">]>',
        "external": f'<!DOCTYPE OME [<!ENTITY l12 SYSTEM "file://{path}">]>',
        "parameter": f'<!DOCTYPE OME [<!ENTITY % p SYSTEM "file://{path}"> %p;]>',
        "network": '<!DOCTYPE OME SYSTEM "http://192.0.2.1/ome.dtd">',
    }


@pytest.mark.parametrize("kind", ["bomb", "quadratic", "external", "parameter", "network"])
@pytest.mark.parametrize("place", ["tiff", "zarr", "companion"])
def test_entities_of_xml_are_neither_expanded_nor_fetched(attack, tmp_path, kind, place):
    body = f"<Description>{'&l12;' * 1000}</Description>"
    text = build.xml(body, prolog=prologs(tmp_path)[kind])
    if place == "tiff":
        source = build.tiff(attack.folder / "a.ome.tiff", text)
    elif place == "companion":
        source = attack.folder / "a.companion.ome"
        source.write_text(text, encoding="utf-8")
    else:
        source = build.ome_zarr(attack.folder / "a.zarr" / "0").parent
        build.put(source / "zarr.json", build.group3(**{"bioformats2raw.layout": 3}))
        build.put(source / "OME" / "zarr.json", build.group3(series=["0"]))
        (source / "OME" / "METADATA.ome.xml").write_text(text, encoding="utf-8")
    attack(source, {0, 3, 4})


def test_xml_nested_a_million_deep(attack):
    text = build.xml("<Description>" + "<a>" * 1_000_000)
    attack(build.tiff(attack.folder / "a.ome.tiff", text), {0, 4})


# -- JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["zarr.json", "0/zarr.json", ".zattrs", "attributes.json", "a/attributes.json"]
)
@pytest.mark.parametrize("text", [b"[", b'{"a":'], ids=["lists", "objects"])
def test_100_mb_of_nested_json(attack, name, text):
    n5 = "attributes" in name
    source = build.n5(attack.folder / "a.n5") if n5 else build.ome_zarr(attack.folder / "a.zarr")
    if name == ".zattrs":
        (source / "zarr.json").unlink()
        build.put(source / ".zgroup", {"zarr_format": 2})
    (source / name).write_bytes(text * (100_000_000 // len(text)))
    attack(source, {0, 3, 4, 6})


@pytest.mark.parametrize("text", [b"[],", b'{"":0},', b'{"a":[{}]},'])
def test_60_mb_of_small_lists_and_objects(attack, text):
    source = build.ome_zarr(attack.folder / "a.zarr")
    head = json.dumps(build.group3(multiscales=build.multiscales("0")))[:-1].encode()
    (source / "zarr.json").write_bytes(head + b',"x":[' + text * (60_000_000 // len(text)) + b"0]}")
    attack(source, {3, 4}, commands=("info", "check"))


# -- paths that lead out ---------------------------------------------------------------------------

PATHS = (
    "../outside",
    "/etc",
    "..",
    "a/../../outside",
    "..\\outside",
    "C:\\outside",
    "\0",
    "0/../../outside",
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("place", ["datasets", "labels", "wells", "images", "series"])
def test_paths_that_leave_the_store_are_refused(attack, path, place):
    build.ome_zarr(attack.folder / "outside")
    source = attack.folder / "a.zarr"
    if place == "datasets":
        build.ome_zarr(source, multiscales=build.multiscales(path))
    elif place == "labels":
        build.ome_zarr(source)
        build.put(source / "labels" / "zarr.json", build.group3(labels=[path]))
    elif place == "series":
        build.ome_zarr(source / "0")
        build.put(source / "zarr.json", build.group3(**{"bioformats2raw.layout": 3}))
        build.put(source / "OME" / "zarr.json", build.group3(series=[path]))
    else:
        well, field = (path, "0") if place == "wells" else ("A/1", path)
        plate = {
            "name": "p", "rows": [{"name": "A"}], "columns": [{"name": "1"}],
            "wells": [{"path": well, "rowIndex": 0, "columnIndex": 0}],
        }  # fmt: skip
        build.put(source / "zarr.json", build.group3(plate=plate))
        build.put(
            source / "A" / "1" / "zarr.json", build.group3(well={"images": [{"path": field}]})
        )
    found = attack(source, {0, 4, 6})
    assert "outside" not in json.loads(found["info"].out).get("data", {}).get("images", [{}])[:1]
    shown = json.loads(found["info"].out)
    if shown["ok"] and place != "datasets":
        names = [image["extra"].get("group") for image in shown["data"]["images"]]
        assert not any("outside" in str(name) or "etc" in str(name) for name in names)


@pytest.mark.parametrize(
    "path", ["../outside.ome.tiff", "/etc/passwd", "..\\outside.ome.tiff", "../../secret.txt"]
)
def test_file_names_of_a_tiff_set_stay_beside_it(attack, tmp_path, path):
    secret(tmp_path)
    uuid = "urn:uuid:00000000-0000-0000-0000-000000000001"
    build.tiff(tmp_path / "outside.ome.tiff", build.xml().replace("<OME ", f'<OME UUID="{uuid}" '))
    data = f'<TiffData IFD="0"><UUID FileName="{path}">{uuid}</UUID></TiffData>'
    source = build.tiff(attack.folder / "a.ome.tiff", build.xml(tiff_data=data))
    found = attack(source, {0, 4, 6})
    assert found["check-planes"].code == 4 or "missing" in found["check-planes"].out


@pytest.mark.parametrize(
    "name", ["../evil/zarr.json", "/etc/zarr.json", "..\\evil\\zarr.json", "C:/zarr.json"]
)
def test_names_of_zip_members_lead_nowhere(attack, tmp_path, name):
    source = attack.folder / "a.zip"
    with zipfile.ZipFile(source, "w") as target:
        target.writestr(name, json.dumps(build.group3(multiscales=build.multiscales("0"))))
        target.writestr(
            "zarr.json", json.dumps(build.group3(multiscales=build.multiscales("../evil")))
        )
    attack(source, {3, 4, 6})
    assert not (tmp_path / "evil").exists()


# -- zip bombs -------------------------------------------------------------------------------------


def zip_store(path, chunk, *, method=zipfile.ZIP_DEFLATED, array=None):
    with zipfile.ZipFile(path, "w", method) as target:
        target.writestr("zarr.json", json.dumps(build.group3(multiscales=build.multiscales("0"))))
        target.writestr("0/zarr.json", json.dumps(array or build.array3()))
        target.writestr("0/c/0/0", chunk)
    return path


def test_zip_member_that_inflates_far_beyond_its_chunk(attack):
    source = zip_store(attack.folder / "a.zip", bytes(500 << 20))
    found = attack(source, {0, 4})
    assert found["check"].code == 4
    assert found["export"].code == 4


def test_zip_member_that_lies_about_its_size(attack):
    source = zip_store(attack.folder / "a.zip", bytes(100 << 20))
    data = bytearray(source.read_bytes())
    data[:] = data.replace(struct.pack("<I", 100 << 20), struct.pack("<I", 128))
    source.write_bytes(data)
    assert attack(source, {0, 4})["check"].code == 4


def test_zip_with_deflated_shard_that_inflates_far_beyond_its_chunks(attack):
    inner = {
        "chunk_shape": [8, 8],
        "codecs": build.RAW,
        "index_codecs": build.RAW,
        "index_location": "end",
    }
    array = build.array3(codecs=[{"name": "sharding_indexed", "configuration": inner}])
    source = zip_store(attack.folder / "a.zip", bytes(500 << 20), array=array)
    assert attack(source, {0, 4})["check"].code == 4


def test_zip_entries_that_overlap(attack):
    """Many names for one member of 10 MiB: each is bounded by itself, none is kept."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("0/c/0/0", bytes(10 << 20))
        target.writestr("zarr.json", json.dumps(build.group3(multiscales=build.multiscales("0"))))
        target.writestr("0/zarr.json", json.dumps(build.array3(shape=[8 * 500, 8])))
        info = target.getinfo("0/c/0/0")
        for n in range(1, 500):
            copy = zipfile.ZipInfo(f"0/c/{n}/0")
            for name in (
                "header_offset",
                "CRC",
                "compress_size",
                "file_size",
                "compress_type",
                "flag_bits",
            ):
                setattr(copy, name, getattr(info, name))
            target.filelist.append(copy)
            target.NameToInfo[copy.filename] = copy
    source = attack.folder / "a.zip"
    source.write_bytes(buffer.getvalue())
    attack(source, {0, 4})


def test_zip_of_millions_of_entries(attack):
    entry = (
        struct.pack(
            "<4s4B4HL2L5H2L", b"PK\1\2", 20, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0
        )
        + b"x"
    )
    count = 3_000_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    source = attack.folder / "a.zip"
    with source.open("wb") as file:
        file.write(b"PK\3\4" + bytes(26))
        for _ in range(count // 10_000):
            file.write(entry * 10_000)
        at = file.tell()
        file.write(
            struct.pack(
                "<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(entry) * count, 30
            )
        )
        file.write(struct.pack("<4sLQL", b"PK\6\7", 0, at, 1) + end)
    attack(source, {3, 4}, commands=("info", "check", "export"))


# -- links, pipes and devices ----------------------------------------------------------------------


def test_links_out_of_the_store_are_refused(attack, tmp_path):
    (tmp_path / "secret.bin").write_bytes(build.PIXELS)
    source = build.ome_zarr(attack.folder / "a.zarr", chunk=None)
    (source / "0" / "c" / "0").mkdir(parents=True)
    (source / "0" / "c" / "0" / "0").symlink_to(tmp_path / "secret.bin")
    found = attack(source, {0, 4})
    assert found["check"].code == 4
    assert found["export"].code == 4
    assert "leads out" in found["export"].err


@pytest.mark.parametrize("place", ["0", "zarr.json", "0/c", "0/zarr.json"])
def test_linked_folders_and_documents_outside_are_refused(attack, tmp_path, place):
    other = build.ome_zarr(tmp_path / "other")
    source = build.ome_zarr(attack.folder / "a.zarr")
    (source / place).rename(source.parent / "gone")
    (source / place).symlink_to(other / place)
    assert attack(source, {0, 3, 4})["export"].code in {3, 4}


def test_links_inside_the_store_are_followed(attack):
    source = build.ome_zarr(attack.folder / "a.zarr")
    (source / "0").rename(source / "real")
    (source / "0").symlink_to("real")
    attack(source, {0})


def test_links_that_loop(attack):
    source = build.ome_zarr(attack.folder / "a.zarr", chunk=None)
    (source / "0" / "c" / "0").mkdir(parents=True)
    (source / "0" / "c" / "0" / "0").symlink_to("0")
    (source / "0" / "c" / "1").symlink_to("..")
    attack(source, {0, 4, 5})


def test_linked_folders_in_circles_are_not_walked(attack):
    source = build.n5(attack.folder / "a.n5")
    for name in "pqrst":
        (source / name).mkdir()
    for name in "pqrst":
        for other in "pqrst":
            (source / name / f"l{other}").symlink_to(f"../{other}")
    attack(source, {0})


@pytest.mark.parametrize("kind", ["pipe", "zero", "folder"])
@pytest.mark.parametrize("place", ["0/c/0/0", "0/zarr.json", "zarr.json"])
def test_pipes_and_devices_in_place_of_files(attack, kind, place):
    source = build.ome_zarr(attack.folder / "a.zarr")
    (source / place).unlink()
    if kind == "pipe":
        os.mkfifo(source / place)
    elif kind == "zero":
        (source / place).symlink_to("/dev/zero")
    else:
        (source / place).mkdir()
    assert attack(source, {0, 3, 4, 5, 6})["export"].code != 0


@pytest.mark.parametrize("name", ["a.zarr", "a.ome.tiff", "a.zip", "a.n5"])
def test_a_pipe_as_input(attack, name):
    os.mkfifo(attack.folder / name)
    attack(attack.folder / name, {3, 4, 5})


# -- sizes that nobody has -------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [(8, 8), (1, 1), (2**40, 2**40), (2**20, 2**10), (1, 2**30)])
@pytest.mark.parametrize("shape", [(2**60, 2**60), (2**31, 2**31), (2**60, 1), (1, 2**60)])
def test_enormous_shapes_and_chunks_of_zarr(attack, shape, chunk):
    array = build.array3(shape=list(shape), chunk_grid=build.grid(*chunk))
    attack(build.ome_zarr(attack.folder / "a.zarr", array), {0, 4, 6})


@pytest.mark.parametrize("block", [[8, 8], [2**31 - 1, 2**31 - 1], [1, 1], [2**40, 2**40]])
def test_enormous_shapes_and_blocks_of_n5(attack, block):
    source = build.n5(attack.folder / "a.n5", dimensions=[2**60, 2**60], blockSize=block)
    attack(source, {0, 4, 6})


@pytest.mark.parametrize(
    "numbers", [(0, 2, 2**32 - 1, 2**32 - 1), (0, 65535, 8, 8), (1, 2, 8, 8), (0, 2, 8, 2**31)]
)
def test_enormous_block_headers_of_n5(attack, numbers):
    block = struct.pack(">HHII", *numbers) + bytes(128)
    assert attack(build.n5(attack.folder / "a.n5", block), {0, 4, 6})["check"].code in (0, 4)


def test_thousands_of_dimensions(attack):
    ones = [1] * 5000
    array = build.array3(shape=ones, chunk_grid=build.grid(*ones))
    source = build.ome_zarr(
        attack.folder / "a.zarr", array, None, multiscales=build.multiscales("0", axes="y" * 5000)
    )
    attack(source, {4, 6})


def test_thousands_of_dimensions_of_n5(attack):
    attack(
        build.n5(attack.folder / "a.n5", dimensions=[1] * 5000, blockSize=[1] * 5000), {0, 3, 4, 6}
    )


def test_thousands_of_levels(attack):
    attack(
        build.ome_zarr(attack.folder / "a.zarr", multiscales=build.multiscales(*["0"] * 5000)),
        {4, 6},
    )


def test_thousands_of_multiscales(attack):
    attack(
        build.ome_zarr(attack.folder / "a.zarr", multiscales=build.multiscales("0") * 5000),
        {0, 4, 6},
    )


def test_label_lists_of_millions(attack):
    source = build.ome_zarr(attack.folder / "a.zarr")
    build.put(
        source / "labels" / "zarr.json", build.group3(labels=[f"l{n}" for n in range(2_000_000)])
    )
    attack(source, {0, 4}, commands=("info", "check"))


def test_well_lists_of_millions(attack):
    well = {"path": "A/1", "rowIndex": 0, "columnIndex": 0}
    wells = [well | {"path": f"A/{n}"} for n in range(300_000)]
    plate = {"name": "p", "rows": [{"name": "A"}], "columns": [{"name": "1"}], "wells": wells}
    build.put(attack.folder / "a.zarr" / "zarr.json", build.group3(plate=plate))
    attack(attack.folder / "a.zarr", {0, 4, 6}, commands=("info", "check"))


# -- decompression bombs ---------------------------------------------------------------------------

ZEROS = bytes(64 << 20)


def frame(raw):
    return struct.pack("<I", len(raw)) + bytes(imagecodecs.lz4_encode(raw))


BOMBS = {
    "zstd": ({"level": 1, "checksum": False}, lambda: numcodecs.Zstd(1).encode(ZEROS)),
    "gzip": ({"level": 1}, lambda: gzip.compress(ZEROS, 1)),
    "numcodecs.zlib": ({"level": 1}, lambda: zlib.compress(ZEROS, 1)),
    "numcodecs.bz2": ({"level": 1}, lambda: bz2.compress(ZEROS, 1)),
    "numcodecs.lzma": ({"preset": 0}, lambda: lzma.compress(ZEROS, preset=0)),
    "numcodecs.lz4": ({"acceleration": 1}, lambda: frame(ZEROS)),
    "blosc": (
        {"cname": "zstd", "clevel": 1, "shuffle": "noshuffle", "typesize": 2, "blocksize": 0},
        lambda: numcodecs.Blosc("zstd", 1, 0).encode(ZEROS),
    ),
    "numcodecs.packbits": ({}, lambda: b"\0" * 1000),
    "numcodecs.zfpy": ({"mode": 4, "tolerance": 0.1}, lambda: b"zfp\5" + b"\xff" * 60),
    "numcodecs.pcodec": ({"level": 8}, lambda: b"pco!" + b"\xff" * 60),
}


@pytest.mark.parametrize("name", BOMBS)
def test_decompression_bombs_of_zarr(attack, name):
    configuration, make = BOMBS[name]
    array = build.array3(codecs=[*build.RAW, {"name": name, "configuration": configuration}])
    source = build.ome_zarr(attack.folder / "a.zarr", array, bytes(make()))
    found = attack(source, {0, 4, 6}, most=64 << 20)
    assert found["export"].code != 0


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "lz4", "blosc"])
def test_decompression_bombs_of_n5(attack, kind):
    make = {
        "gzip": BOMBS["gzip"][1], "bzip2": BOMBS["numcodecs.bz2"][1], "xz": BOMBS["numcodecs.lzma"][1],
        "blosc": BOMBS["blosc"][1], "lz4": lambda: frame(ZEROS),
    }[kind]  # fmt: skip
    configuration = {
        "type": kind,
        "level": 1,
        "cname": "zstd",
        "clevel": 1,
        "shuffle": 0,
        "blockSize": 65536,
    }
    block = struct.pack(">HHII", 0, 2, 8, 8) + bytes(make())
    source = build.n5(attack.folder / "a.n5", block, compression=configuration)
    assert attack(source, {0, 4}, most=64 << 20)["check"].code == 4


@pytest.mark.parametrize("compression", [8, 32946, 34925, 50000])
def test_decompression_bombs_of_tiff(attack, compression):
    packed = {
        8: lambda: zlib.compress(ZEROS), 32946: lambda: zlib.compress(ZEROS),
        34925: lambda: lzma.compress(ZEROS, preset=0), 50000: lambda: numcodecs.Zstd(1).encode(ZEROS),
    }[compression]()  # fmt: skip
    source = attack.folder / "a.ome.tiff"
    build.tiff(source, build.xml(), t259=(3, 1, compression), t279=(4, 1, len(packed)))
    size = source.stat().st_size
    build.tiff(
        source, build.xml(), t259=(3, 1, compression), t273=(4, 1, size), t279=(4, 1, len(packed))
    )
    with source.open("ab") as file:
        file.write(packed)
    assert attack(source, {0, 4}, most=64 << 20)["check-planes"].code == 4


def big_jpeg():
    """A grey JPEG whose header says 65535 × 65535."""
    data = bytearray(imagecodecs.jpeg8_encode(np.zeros((16, 16), "u1")))
    at = data.find(b"\xff\xc0") + 5
    data[at : at + 4] = b"\xff\xff\xff\xff"
    return bytes(data)


def test_jpeg_of_65535_squared_in_a_small_chunk(attack):
    codec = {"name": "jpeg", "configuration": {"quality": 90, "encoded_color_space": "grayscale"}}
    array = build.array3(
        data_type="uint8", shape=[16, 16], chunk_grid=build.grid(16, 16), codecs=[codec]
    )
    assert (
        attack(build.ome_zarr(attack.folder / "a.zarr", array, big_jpeg()), {0, 4, 6})[
            "export"
        ].code
        != 0
    )


def test_jpeg_of_65535_squared_in_a_tiff_tile(attack):
    source = attack.folder / "a.ome.tiff"
    tags = {"t258": (3, 1, 8), "t259": (3, 1, 7), "t279": (4, 1, len(big_jpeg()))}
    text = build.xml().replace("uint16", "uint8")
    build.tiff(source, text, **tags)
    build.tiff(source, text, **tags, t273=(4, 1, source.stat().st_size))
    with source.open("ab") as file:
        file.write(big_jpeg())
    assert attack(source, {0, 4})["check-planes"].code == 4


# -- TIFF ------------------------------------------------------------------------------------------


def test_tiff_whose_directories_loop(attack):
    at = 8 + len(build.PIXELS)
    attack(build.tiff(attack.folder / "a.ome.tiff", build.xml(), next_ifd=at), {0, 4})


def test_tiff_of_65535_tags(attack):
    attack(build.tiff(attack.folder / "a.ome.tiff", build.xml(), count=65535), {3, 4})


@pytest.mark.parametrize("count", [2**32, 2**63, 2**64 - 1])
def test_bigtiff_of_more_tags_than_there_can_be(attack, count):
    text = build.xml().encode()
    data = (
        b"II+\0\x08\0\0\0"
        + struct.pack("<QQ", 16, count)
        + struct.pack("<HHQQ", 270, 2, len(text), 44)
        + text
    )
    (attack.folder / "a.ome.tiff").write_bytes(data)
    attack(attack.folder / "a.ome.tiff", {3, 4})


@pytest.mark.parametrize("tag", [256, 257, 258, 273, 277, 278, 279])
def test_tiff_tags_with_numbers_that_nobody_has(attack, tag):
    for value in ((4, 1, 2**32 - 1), (4, 2**32 - 1, 8), (4, 1, 0), (12, 2**31, 0)):
        source = build.tiff(attack.folder / "a.ome.tiff", build.xml(), **{f"t{tag}": value})
        attack(source, {0, 3, 4, 6})


@pytest.mark.parametrize("axis", "XYZCT")
def test_sizes_of_ome_xml_that_nobody_has(attack, axis):
    text = build.xml()
    old = "1" if axis in "ZCT" else "8"
    text = text.replace(f'Size{axis}="{old}"', f'Size{axis}="{2**31 - 1}"')
    attack(build.tiff(attack.folder / "a.ome.tiff", text), {0, 4, 6})


# -- names -----------------------------------------------------------------------------------------

NAMES = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "a\rb",
    "a\nerror: b",
    "\u202etxt",
    "\x9b31m",
    "\ud800",
    "\0",
)


@pytest.mark.parametrize("name", NAMES)
def test_control_characters_in_names_are_shown_escaped(attack, name, capsys):
    from openreadout.cli import run

    source = build.ome_zarr(attack.folder / "a.zarr", multiscales=build.multiscales("0", name=name))
    attack(source, {0})
    for words in (["info"], ["check"], ["info", "--view", "full"], ["info", "--view", "structure"]):
        run([*words, str(source)])
        shown = "".join(capsys.readouterr())
        assert not any(c for c in shown if c != "\n" and not c.isprintable()), words
        assert "\nerror: b" not in shown


@pytest.mark.parametrize(
    "raw", [b"caf\xe9.zarr", b"\xff\xfe.zarr", b"a\x1b[31m.zarr", b"a\nb.zarr"]
)
def test_file_names_that_are_not_utf_8_or_hold_control_characters(attack, raw, capsys):
    from openreadout.cli import run

    source = build.ome_zarr(attack.folder / "x")
    target = os.path.join(os.fsencode(attack.folder), raw)
    os.rename(source, target)
    for words in (["info"], ["check"], ["info", "--json"], ["check", "--jsonl"]):
        assert run([*words, os.fsdecode(target)]) == 0
        shown = capsys.readouterr()
        assert not any(c for c in shown.out if c != "\n" and not c.isprintable())
    attack(os.fsdecode(target), {0})


# -- faults that the long run found ----------------------------------------------------------------


@pytest.mark.parametrize("well", ["B/1", "A/2"])
def test_a_well_outside_the_rows_and_columns_of_its_plate(attack, well):
    row, column = well.split("/")
    plate = {
        "name": "p", "rows": [{"name": "A"}], "columns": [{"name": "1"}],
        "wells": [{"path": well, "rowIndex": 9, "columnIndex": 9}],
    }  # fmt: skip
    source = attack.folder / "a.zarr"
    build.put(source / "zarr.json", build.group3(plate=plate))
    build.put(source / row / column / "zarr.json", build.group3(well={"images": [{"path": "0"}]}))
    build.ome_zarr(source / row / column / "0")
    attack(source, {0, 4, 6}, commands=(*COMMANDS, "export-archive", "export-0.4", "export-keep"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 10**400])
@pytest.mark.parametrize("key", ["pixelResolution", "resolution", "offset", "mine"])
def test_numbers_that_json_lacks_in_what_is_carried_along(attack, value, key):
    source = build.n5(attack.folder / "a.n5", **{key: [value, value]})
    attack(source, {0, 4, 6}, commands=(*COMMANDS, "export-archive", "export-0.4"))


def test_a_damaged_directory_of_a_tiff_is_told_once(attack):
    """The tiles of a plane whose directory is damaged may be counted in millions."""
    text = build.xml(size="8")
    tags = {
        "t257": (4, 1, 2**24),
        "t322": (3, 1, 16),
        "t323": (3, 1, 16),
        "t324": (4, 1, 8),
        "t325": (4, 1, 128),
    }
    source = build.tiff(attack.folder / "a.ome.tiff", text, **tags)
    found = json.loads(attack(source, {0, 4, 6})["check-full"].out)["data"]["findings"]
    assert 1 <= len([item for item in found if item["severity"] == "error"]) <= 3


@pytest.mark.parametrize("view", ["info-full", "info-structure"])
def test_describing_the_structure_of_a_tiff_leaves_it_closed(attack, view):
    attack(build.tiff(attack.folder / "a.ome.tiff", build.xml()), {0}, commands=(view,))


def test_one_row_longer_than_is_read_at_a_time(attack):
    array = build.array3(shape=[1, 2**30], chunk_grid=build.grid(1, 2**20))
    found = attack(build.ome_zarr(attack.folder / "a.zarr", array, None), {0, 6})
    assert found["check-planes"].code == 6
    assert "--region" in found["check-planes"].err
