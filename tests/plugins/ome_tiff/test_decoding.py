"""Pixels against tifffile, for every type, compression and layout that it writes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from openreadout.arrays import chunks_in
from openreadout.errors import CorruptDataError
from openreadout.registry import open_dataset

tifffile = pytest.importorskip("tifffile")

TYPES = [
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
LOSSLESS = ["zlib", "lzw", "packbits", "zstd", "lzma"]


def assert_equals_tifffile(path, read_whole, axes="ZYX"):
    expected = tifffile.imread(path)
    with open_dataset(str(path)) as dataset:
        assert not [*dataset.findings, *dataset.inspect(True)]
        found = read_whole(dataset.images[0].levels[0].array)
    order = [axes.index(letter) for letter in "TCZYXS" if letter in axes]
    expected = expected.transpose(order).reshape(found.shape)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("tile", [None, (16, 32)])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_in_both_byte_orders(write, samples, read_whole, dtype, tile, byteorder):
    options = {"tile": tile} if tile else {}
    path = write(samples(dtype, (2, 37, 45)), "ZYX", byteorder=byteorder, **options)
    assert_equals_tifffile(path, read_whole)


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32", "float64"])
@pytest.mark.parametrize("compression", LOSSLESS)
def test_predictors(write, samples, read_whole, compression, dtype, byteorder):
    predictor = 3 if dtype.startswith("float") else 2
    path = write(
        samples(dtype, (2, 61, 75, 3)), "ZYXS", photometric="rgb", byteorder=byteorder, rowsperstrip=7,
        compression=compression, predictor=predictor,
    )  # fmt: skip
    assert_equals_tifffile(path, read_whole, "ZYXS")


@pytest.mark.parametrize("tile", [None, (32, 48)])
@pytest.mark.parametrize(
    ("compression", "dtype"),
    [(c, t) for c in LOSSLESS for t in ("uint8", "uint16")]
    + [
        ("jpeg", "uint8"),
        ("jpeg2000", "uint16"),
        ("jpegxl", "uint16"),
        ("png", "uint16"),
        ("lerc", "float32"),
    ],
)
def test_compressions_of_gray_samples(write, samples, read_whole, compression, dtype, tile):
    options = {"tile": tile} if tile else {"rowsperstrip": 16}
    path = write(samples(dtype, (2, 61, 75)), "ZYX", compression=compression, **options)
    assert_equals_tifffile(path, read_whole)


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("tile", [None, (32, 48)])
@pytest.mark.parametrize("compression", [None, "zlib", "lzw", "jpeg", "jpeg2000", "png"])
def test_colour_samples_interleaved_and_in_planes(
    write, samples, read_whole, compression, tile, planar
):
    data = samples("uint8", (2, 61, 75, 3))
    options = {"tile": tile} if tile else {"rowsperstrip": 16}
    if planar:
        data, options["planarconfig"] = np.moveaxis(data, -1, 1).copy(), "separate"
    path = write(
        data, "ZSYX" if planar else "ZYXS", photometric="rgb", compression=compression, **options
    )
    with open_dataset(str(path)) as dataset:
        image = dataset.images[0]
        assert (image.size("c"), image.samples_per_pixel) == (1, 3)
    assert_equals_tifffile(path, read_whole, "ZSYX" if planar else "ZYXS")


@pytest.mark.parametrize("subsampling", [(1, 1), (2, 1), (2, 2), (4, 1)])
def test_jpeg_subsampling(write, samples, read_whole, subsampling):
    path = write(
        samples("uint8", (2, 64, 64, 3)), "ZYXS", photometric="rgb", compression="jpeg", tile=(32, 32),
        subsampling=subsampling,
    )  # fmt: skip
    assert_equals_tifffile(path, read_whole, "ZYXS")


@pytest.mark.parametrize("alpha", [False, True])
def test_webp_keeps_an_opaque_fourth_sample(write, samples, read_whole, alpha):
    data = samples("uint8", (2, 48, 64, 4))
    if not alpha:
        data[..., 3] = 255
    path = write(
        data, "ZYXS", photometric="rgb", compression="webp", tile=(48, 64), compressionargs={"lossless": True}
    )  # fmt: skip
    with open_dataset(str(path)) as dataset:
        found = read_whole(dataset.images[0].levels[0].array)[0, 0]
    visible = data[..., 3] > 0  # WebP is free to change colours that cannot be seen
    np.testing.assert_array_equal(found[visible], data[visible])


@pytest.mark.parametrize("bits", [1, 2, 4, 6, 10, 12, 14, 17, 24])
def test_samples_that_do_not_fill_bytes(write, samples, read_whole, bits):
    dtype = "uint8" if bits <= 8 else "uint16" if bits <= 16 else "uint32"
    data = samples(dtype, (2, 33, 45)) & np.array((1 << bits) - 1, dtype)
    path = write(data, "ZYX", bitspersample=bits)
    with open_dataset(str(path)) as dataset:
        found = read_whole(dataset.images[0].levels[0].array)[0, 0]
    np.testing.assert_array_equal(found.astype(dtype), data)


def test_float16_stays_float16(tmp_path, samples, read_whole):
    data = samples("float16", (24, 40))
    xml = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0"><Pixels ID="Pixels:0"'
        ' DimensionOrder="XYZCT" Type="float" SizeX="40" SizeY="24" SizeZ="1" SizeC="1" SizeT="1">'
        '<TiffData IFD="0"/></Pixels></Image></OME>'
    )
    path = tmp_path / "half.ome.tif"
    tifffile.imwrite(path, data, description=xml, metadata=None)
    with open_dataset(str(path)) as dataset:
        image = dataset.images[0]
        assert (image.dtype, image.pixel_type) == ("float16", "float")
        np.testing.assert_array_equal(read_whole(image.levels[0].array)[0, 0, 0], data)


def test_many_threads_read_the_same_pixels(write, samples, read_whole):
    data = samples("uint16", (3, 300, 400))
    path = write(data, "ZYX", compression="zlib", tile=(64, 64), predictor=2)
    with open_dataset(str(path)) as dataset:
        array = dataset.images[0].levels[0].array
        indices = list(chunks_in(tuple((0, n) for n in array.shape), array.chunk_shape))
        alone = [array.read_chunk(index) for index in indices]
        with ThreadPoolExecutor(16) as pool:
            together = list(pool.map(array.read_chunk, indices * 4))
        np.testing.assert_array_equal(read_whole(array)[0, 0], data)
    for n, found in enumerate(together):
        np.testing.assert_array_equal(found, alone[n % len(alone)])


def test_uncompressed_plane_in_one_strip_is_read_in_parts(write, samples):
    data = samples("uint16", (1, 2048, 1024))
    path = write(data, "ZYX")
    with open_dataset(str(path)) as dataset:
        array = dataset.images[0].levels[0].array
        assert array.layout.chunk[3] == 2048
        assert array.chunk_shape[3] * 1024 * 2 <= 1 << 20
        part = array.read_chunk((0, 0, 0, 2, 0))
    rows = array.chunk_shape[3]
    np.testing.assert_array_equal(part[0, 0, 0], data[0, 2 * rows : 3 * rows])


@pytest.mark.parametrize("missing", [3, 0.5])
@pytest.mark.parametrize(
    "compression",
    ["zlib", "lzw", "zstd", "lzma", "packbits", "jpeg", "png", "jpeg2000", "jpegxl", "lerc", None],
)
def test_cut_segment_names_file_ifd_and_byte(write, samples, compression, missing):
    path = write(samples("uint8", (2, 64, 64)), "ZYX", compression=compression, tile=(64, 64))
    with tifffile.TiffFile(path) as tif:
        page = tif.pages[1]
        offset, count = page.dataoffsets[0], page.databytecounts[0]
        where = page.tags["TileByteCounts"].valueoffset
    data = bytearray(path.read_bytes())
    data[where : where + 4] = (count - missing if missing > 1 else count // 2).to_bytes(4, "little")
    path.write_bytes(data)
    with open_dataset(str(path)) as dataset:
        array = dataset.images[0].levels[0].array
        array.read_chunk((0, 0, 0, 0, 0))
        with pytest.raises(CorruptDataError) as raised:
            array.read_chunk((0, 0, 1, 0, 0))
    assert raised.value.path == str(path)
    assert "IFD 1" in str(raised.value)
    assert f"byte {offset}" in str(raised.value)


def test_a_tile_that_declares_a_huge_image_is_not_decoded(write, samples):
    path = write(samples("uint8", (1, 64, 64)), "ZYX", compression="jpeg", tile=(64, 64))
    data = path.read_bytes()
    place = data.index(b"\xff\xc0\x00\x0b\x08\x00\x40\x00\x40")
    path.write_bytes(data[: place + 5] + b"\xff\xff\xff\xff" + data[place + 9 :])
    with open_dataset(str(path)) as dataset, pytest.raises(CorruptDataError, match="65535"):
        dataset.images[0].levels[0].array.read_chunk((0, 0, 0, 0, 0))


def test_sparse_tiles_read_as_zeros_and_are_not_stored(write, samples):
    path = write(samples("uint8", (1, 64, 128)), "ZYX", compression="zlib", tile=(64, 64))
    with tifffile.TiffFile(path) as tif:
        tags = tif.pages[0].tags
        places = [tags[name].valueoffset for name in ("TileOffsets", "TileByteCounts")]
    data = bytearray(path.read_bytes())
    for place in places:
        data[place + 4 : place + 8] = bytes(4)
    path.write_bytes(data)
    with open_dataset(str(path)) as dataset:
        array = dataset.images[0].levels[0].array
        assert array.is_stored((0, 0, 0, 0, 0))
        assert not array.is_stored((0, 0, 0, 0, 1))
        assert not array.read_chunk((0, 0, 0, 0, 1)).any()
        assert array.presence().stored == 1
        assert list(array.stored_indices()) == [(0, 0, 0, 0, 0)]


def test_jpegxr_equals_tifffile(write, samples, read_whole):
    path = write(
        samples("uint8", (2, 61, 75)), "ZYX", compression="jpegxr", rowsperstrip=16, compressionargs={"level": 90}
    )  # fmt: skip
    assert_equals_tifffile(path, read_whole)


def test_a_jpegxr_stream_that_kills_its_decoder_is_damage():
    import os

    from openreadout_ome_tiff.isolated import IsolatedDecoder

    decoder = IsolatedDecoder()
    with pytest.raises(CorruptDataError):
        decoder.decode(b"not a stream", 100)
    os.kill(decoder._child.pid, 8)
    decoder._child.wait()
    with pytest.raises(CorruptDataError, match="broke down"):
        decoder.decode(b"not a stream", 100)
    with pytest.raises(CorruptDataError):  # and the next one is served again
        decoder.decode(b"not a stream", 100)
    decoder.close()
