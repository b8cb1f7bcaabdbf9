"""Damaged, cut, foreign and hostile files: the right error, never another exception."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from openreadout.contracts import DEFINITE, LIKELY
from openreadout.errors import CorruptDataError, OpenReadoutError, UnsupportedFeatureError
from openreadout.registry import detect_all, make_source, open_dataset
from openreadout_ome_tiff import READER

tifffile = pytest.importorskip("tifffile")


@pytest.fixture
def sound(write, samples):
    return write(samples("uint16", (3, 20, 30)), "ZYX", compression="zlib", rowsperstrip=8)


def codes(dataset):
    return {(f.code, f.severity) for f in [*dataset.findings, *dataset.inspect(True)]}


def test_header_that_points_past_the_end_is_truncated(tmp_path, sound):
    data = sound.read_bytes()
    path = tmp_path / "cut.ome.tif"
    path.write_bytes(data[:4] + struct.pack("<I", 1 << 30) + data[8:])
    with pytest.raises(CorruptDataError, match="truncated") as raised:
        open_dataset(str(path))
    assert raised.value.finding == "truncated"
    assert detect_all(make_source(str(path)))[0].reader is READER


def test_cut_chain_opens_what_is_there(tmp_path, sound):
    with tifffile.TiffFile(sound) as tif:
        last = tif.pages[2].offset
    path = tmp_path / "cut.ome.tif"
    data = bytearray(sound.read_bytes())
    with tifffile.TiffFile(sound) as tif:
        link = tif.pages[1].offset + 2 + 12 * len(tif.pages[1].tags)
    assert struct.unpack_from("<I", data, link)[0] == last
    struct.pack_into("<I", data, link, len(data) + 1000)
    path.write_bytes(data)
    with open_dataset(str(path)) as dataset:
        assert ("truncated", "error") in codes(dataset)
        assert dataset.images[0].absent == {(0, 0, 2)}
        dataset.images[0].levels[0].array.read_chunk((0, 0, 1, 0, 0))


def test_looping_chain_ends(tmp_path, sound):
    data = bytearray(sound.read_bytes())
    with tifffile.TiffFile(sound) as tif:
        first = tif.pages[0].offset
        link = tif.pages[2].offset + 2 + 12 * len(tif.pages[2].tags)
    struct.pack_into("<I", data, link, first)
    path = tmp_path / "loop.ome.tif"
    path.write_bytes(data)
    with open_dataset(str(path)) as dataset:
        assert any("loops" in finding.message for finding in dataset.findings)
        assert dataset.images[0].size("z") == 3


def test_strip_past_the_end_is_a_finding_with_its_ifd(tmp_path, sound):
    data = bytearray(sound.read_bytes())
    with tifffile.TiffFile(sound) as tif:
        place = tif.pages[1].tags["StripOffsets"].valueoffset
    struct.pack_into("<I", data, place, 1 << 30)
    path = tmp_path / "past.ome.tif"
    path.write_bytes(data)
    with open_dataset(str(path)) as dataset:
        found = [f for f in dataset.inspect(False) if f.code == "truncated"]
        assert found
        assert "IFD 1" in found[0].location


def test_overlapping_strips_are_a_finding(tmp_path, sound):
    data = bytearray(sound.read_bytes())
    with tifffile.TiffFile(sound) as tif:
        offsets = tif.pages[0].dataoffsets
        place = tif.pages[0].tags["StripOffsets"].valueoffset
    struct.pack_into("<I", data, place + 4, offsets[0] + 3)
    path = tmp_path / "overlap.ome.tif"
    path.write_bytes(data)
    with open_dataset(str(path)) as dataset:
        assert any("overlap" in finding.message for finding in dataset.inspect(True))


def test_broken_xml_leaves_the_pixels_and_says_so(tmp_path):
    path = tmp_path / "broken.ome.tif"
    data = np.arange(48, dtype=np.uint8).reshape(6, 8)
    tifffile.imwrite(
        path, data, description='<OME xmlns="x"><Image ID="Image:0"><Pix', metadata=None
    )
    with open_dataset(str(path)) as dataset:
        np.testing.assert_array_equal(
            dataset.images[0].levels[0].array.read_chunk((0,) * 5)[0, 0, 0], data
        )
        assert ("metadata", "error") in codes(dataset)
        assert dataset.notes


def test_sizes_that_disagree_are_told_and_the_tags_count(tmp_path):
    xml = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0"><Pixels ID="Pixels:0"'
        ' DimensionOrder="XYZCT" Type="uint16" SizeX="9" SizeY="6" SizeZ="1" SizeC="1" SizeT="1">'
        '<TiffData IFD="0"/></Pixels></Image></OME>'
    )
    path = tmp_path / "sizes.ome.tif"
    tifffile.imwrite(path, np.zeros((6, 8), np.uint8), description=xml, metadata=None)
    with open_dataset(str(path)) as dataset:
        assert (dataset.images[0].size("x"), dataset.images[0].dtype) == (8, "uint8")
        assert ("metadata", "error") in codes(dataset)


@pytest.mark.parametrize(
    "sizes", [("1000000", "1000000", "1000000"), ("1", "1", "90000000000"), ("5000000", "1", "1")]
)
def test_absurd_plane_counts_are_refused_quickly(tmp_path, sizes):
    z, c, t = sizes
    xml = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0"><Pixels ID="Pixels:0"'
        f' DimensionOrder="XYZCT" Type="uint8" SizeX="8" SizeY="6" SizeZ="{z}" SizeC="{c}" SizeT="{t}">'
        "<TiffData/></Pixels></Image></OME>"
    )
    path = tmp_path / "many.ome.tif"
    tifffile.imwrite(path, np.zeros((6, 8), np.uint8), description=xml, metadata=None)
    try:
        with open_dataset(
            str(path)
        ) as dataset:  # broken metadata may leave the structure of the TIFF
            assert dataset.images[0].plane_count == 1
            assert ("metadata", "error") in codes(dataset)
    except CorruptDataError:
        pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"imagej": True}, "ImageJ"),
        ({"metadata": None}, "plain TIFF"),
        ({"metadata": None, "description": "Aperio Image Library v1"}, "Aperio"),
        ({"metadata": None, "software": "Scope 1"}, "Scope 1"),
    ],
)
def test_a_tiff_without_ome_xml_is_named(tmp_path, options, words):
    path = tmp_path / "plain.tif"
    tifffile.imwrite(path, np.zeros((6, 8), np.uint8), **options)
    assert READER.detect(make_source(str(path))).confidence == LIKELY
    with pytest.raises(UnsupportedFeatureError, match=words) as raised:
        open_dataset(str(path))
    assert raised.value.hint


def test_pixels_inside_the_xml_are_refused_in_words(tmp_path):
    path = tmp_path / "inline.ome"
    path.write_text(
        '<?xml version="1.0"?><!-- note --><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
        '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint8" SizeX="1" SizeY="1" SizeZ="1"'
        ' SizeC="1" SizeT="1"><BinData Length="4">AAAA</BinData></Pixels></Image></OME>',
        encoding="utf-8",
    )
    assert READER.detect(make_source(str(path))).confidence == DEFINITE
    with pytest.raises(UnsupportedFeatureError, match="BinData"):
        open_dataset(str(path))


def test_detection_finds_xml_that_lies_at_the_end(tmp_path):
    path = tmp_path / "late.ome.tif"
    with tifffile.TiffWriter(path, ome=True) as writer:
        writer.write(np.zeros((2, 512, 512), np.uint16), metadata={"axes": "ZYX"})
    assert READER.detect(make_source(str(path))).confidence == DEFINITE


def test_other_files_are_not_ours(tmp_path):
    for name, data in (
        ("a.xml", b"<html><OME/></html>"),
        ("b.bin", bytes(100)),
        ("c.txt", b"II is a text"),
    ):
        (tmp_path / name).write_bytes(data)
        assert READER.detect(make_source(str(tmp_path / name))) is None


def read_everything(path):
    """Open a file and read every chunk of it; only our own errors may come out."""
    with open_dataset(str(path)) as dataset:
        list(dataset.inspect(True))
        dataset.structure()
        for image in dataset.images:
            for level in image.levels:
                array = level.array
                if array.shape[3] * array.shape[4] > 1 << 24:
                    continue
                array.presence()
                for n, index in enumerate(array.stored_indices()):
                    if n > 50:
                        break
                    array.locate(index)
                    try:
                        array.read_chunk(index)
                    except OpenReadoutError:
                        continue


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("compression", ["zlib", "jpeg", "lzw", "png", None])
def test_cut_and_flipped_files_give_our_errors_only(tmp_path, write, samples, compression, seed):
    sound = write(
        samples("uint8", (2, 40, 48)), "ZYX", compression=compression, tile=(16, 16)
    ).read_bytes()
    rng = random.Random(f"{compression} {seed}")
    for turn in range(40):
        data = bytearray(sound)
        if turn % 4 == 0:
            data = data[: rng.randrange(1, len(data))]
        for _ in range(rng.choice([1, 3, 10])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path = tmp_path / "bad.ome.tif"
        path.write_bytes(data)
        try:
            read_everything(path)
        except OpenReadoutError:
            continue


def test_closing_leaves_no_file_open(sound):
    import os
    from pathlib import Path

    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("open files can only be listed on Linux")
    with open_dataset(str(sound)) as dataset:
        dataset.images[0].levels[0].array.read_chunk((0,) * 5)
    targets = {os.path.realpath(entry) for entry in folder.iterdir()}
    assert str(sound) not in targets


def test_millions_of_planes_in_a_lost_file_are_refused_quickly(tmp_path):
    lost = (
        '<TiffData PlaneCount="7000000"><UUID FileName="gone.tif">urn:uuid:gone</UUID></TiffData>'
    )
    xml = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0"><Pixels ID="Pixels:0"'
        ' DimensionOrder="XYZCT" Type="uint8" SizeX="8" SizeY="6" SizeZ="1" SizeC="1" SizeT="7000000">'
        f"{lost}</Pixels></Image></OME>"
    )
    path = tmp_path / "lost.ome.tif"
    tifffile.imwrite(path, np.zeros((6, 8), np.uint8), description=xml, metadata=None)
    with pytest.raises(CorruptDataError):
        open_dataset(str(path))


def test_elements_that_repeat_one_another_end_quickly(tmp_path):
    import time

    inside = '<TiffData IFD="0" PlaneCount="1000"/>' * 20_000
    xml = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0"><Pixels ID="Pixels:0"'
        ' DimensionOrder="XYZCT" Type="uint8" SizeX="4" SizeY="4" SizeZ="1" SizeC="1" SizeT="1000">'
        f"{inside}</Pixels></Image></OME>"
    )
    path = tmp_path / "again.ome.tif"
    with tifffile.TiffWriter(path) as writer:
        for n in range(1000):
            writer.write(
                np.zeros((4, 4), np.uint8), description=xml if n == 0 else None, metadata=None
            )
    start = time.perf_counter()
    with pytest.raises(CorruptDataError, match="over and over"):
        open_dataset(str(path))
    assert time.perf_counter() - start < 10


def test_images_without_tiff_data_follow_one_another(tmp_path):
    image = (
        '<Image ID="Image:{0}"><Pixels ID="Pixels:{0}" DimensionOrder="XYZCT" Type="uint8" SizeX="4" SizeY="4"'
        ' SizeZ="2" SizeC="1" SizeT="1"/></Image>'
    )
    xml = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">'
        f"{image.format(0)}{image.format(1)}</OME>"
    )
    path = tmp_path / "two.ome.tif"
    with tifffile.TiffWriter(path) as writer:
        for n in range(4):
            writer.write(
                np.full((4, 4), n, np.uint8), description=xml if n == 0 else None, metadata=None
            )
    with open_dataset(str(path)) as dataset:
        arrays = [image.levels[0].array for image in dataset.images]
        found = [int(array.read_chunk((0, 0, z, 0, 0)).max()) for array in arrays for z in range(2)]
    assert found == [0, 1, 2, 3]


def test_closing_while_others_read_gives_their_data_or_opens_again(sound):
    from concurrent.futures import ThreadPoolExecutor

    dataset = open_dataset(str(sound))
    array = dataset.images[0].levels[0].array
    expected = array.read_chunk((0,) * 5).copy()
    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(array.read_chunk, (0,) * 5) for _ in range(400)]
        for _ in range(50):
            dataset.close()
        for read in reads:
            np.testing.assert_array_equal(read.result(), expected)
    dataset.close()
