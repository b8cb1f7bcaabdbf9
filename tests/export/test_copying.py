"""Chunks that are taken over as they are stored, each proved whole; what cannot be is encoded anew."""

from __future__ import annotations

import gzip
import json
import struct
import zlib

import numpy as np
import pytest
import zarr

numcodecs = pytest.importorskip("numcodecs")
imagecodecs = pytest.importorskip("imagecodecs")

SHAPE, CHUNK = (2, 40, 50), (1, 20, 25)
COUNT = 8


def pixels(shape=SHAPE, dtype="uint16"):
    return np.random.default_rng(4).integers(0, 300, shape).astype(dtype)


V2 = {
    "blosc": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE),
    "blosc-bit": numcodecs.Blosc("zstd", 3, numcodecs.Blosc.BITSHUFFLE),
    "zstd": numcodecs.Zstd(3),
    "gzip": numcodecs.GZip(4),
}


def v2_store(make, path, codec, data=None, **more):
    data = pixels() if data is None else data
    return make.image(
        path, [data], "zyx", zarr_format=2, chunks=CHUNK, compressors=[codec], filters=None, **more
    )


def chunk_files(root, key_prefix=""):
    """Bytes of the chunks of an unsharded array, by index."""
    base = root / key_prefix if key_prefix else root
    return {
        tuple(map(int, p.relative_to(base).parts)): p.read_bytes()
        for p in base.rglob("*")
        if p.is_file() and not p.name.startswith(".z") and not p.name.endswith(".json")
    }


def export_plain(export, source, target, *options):
    return export(source, target, "--shards", "none", "--pyramid", "none", *options)


def assert_reads(target, wanted):
    """zarr-python and tensorstore read the same samples."""
    tensorstore = pytest.importorskip("tensorstore")
    assert np.array_equal(zarr.open_array(target / "0", mode="r")[...], wanted)
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{target / '0'}/"}}
    assert np.array_equal(tensorstore.open(spec).result().read().result(), wanted)


@pytest.mark.parametrize("name", V2)
def test_chunks_of_version_2_are_the_same_bytes(name, make, tmp_path, export):
    source = v2_store(make, tmp_path / "a.ome.zarr", V2[name])
    report = export_plain(export, source, tmp_path / "out.ome.zarr")
    assert (report["chunks_copied"], report["chunks_encoded"]) == (COUNT, 0)
    found = chunk_files(tmp_path / "out.ome.zarr" / "0", "c")
    assert found == chunk_files(source / "0")
    assert len(found) == COUNT
    assert_reads(tmp_path / "out.ome.zarr", pixels())


@pytest.mark.parametrize("dtype", ["|u1", ">u2", "<f4", ">i8"])
def test_byte_orders_are_told_and_not_changed(dtype, make, tmp_path, export):
    data = pixels(dtype=dtype)
    source = v2_store(make, tmp_path / "a.ome.zarr", V2["zstd"], data)
    report = export_plain(export, source, tmp_path / "out.ome.zarr")
    assert report["chunks_copied"] == COUNT
    assert_reads(tmp_path / "out.ome.zarr", data)


def test_zlib_streams_get_the_wrapping_of_gzip(make, tmp_path, export):
    source = v2_store(make, tmp_path / "a.ome.zarr", numcodecs.Zlib(6))
    report = export_plain(export, source, tmp_path / "out.ome.zarr")
    assert (report["chunks_copied"], report["chunks_encoded"]) == (COUNT, 0)
    before = chunk_files(source / "0")
    for index, data in chunk_files(tmp_path / "out.ome.zarr" / "0", "c").items():
        assert gzip.decompress(data) == zlib.decompress(before[index])
        assert before[index][2:-4] in data, "the deflated bytes themselves are taken over"
    assert_reads(tmp_path / "out.ome.zarr", pixels())


@pytest.mark.parametrize("shards", [None, (2, 40, 50)])
def test_chunks_of_version_3_are_the_same_bytes(shards, make, tmp_path, export):
    more = {} if shards is None else {"shards": shards}
    source = make.image(tmp_path / "a.ome.zarr", [pixels()], "zyx", chunks=CHUNK, **more)
    report = export_plain(export, source, tmp_path / "out.ome.zarr")
    assert (report["chunks_copied"], report["chunks_encoded"]) == (COUNT, 0)
    found = chunk_files(tmp_path / "out.ome.zarr" / "0", "c")
    if shards is None:
        assert found == chunk_files(source / "0", "c")
    else:
        (shard,) = chunk_files(source / "0", "c").values()
        entries = struct.iter_unpack("<QQ", shard[-COUNT * 16 - 4 : -4])
        inner = dict(zip(np.ndindex(2, 2, 2), (shard[o : o + n] for o, n in entries), strict=True))
        assert found == inner
    assert_reads(tmp_path / "out.ome.zarr", pixels())


def test_copied_chunks_lie_in_shards_too(make, tmp_path, export):
    source = v2_store(make, tmp_path / "a.ome.zarr", V2["zstd"])
    report = export(source, tmp_path / "out.ome.zarr", "--pyramid", "none")
    assert report["chunks_copied"] == COUNT
    (shard,) = chunk_files(tmp_path / "out.ome.zarr" / "0", "c").values()
    for data in chunk_files(source / "0").values():
        assert data in shard
    assert_reads(tmp_path / "out.ome.zarr", pixels())


def test_fortran_order_is_a_transpose(make, tmp_path, export):
    source = v2_store(make, tmp_path / "a.ome.zarr", V2["zstd"], order="F")
    report = export_plain(export, source, tmp_path / "out.ome.zarr")
    assert report["chunks_copied"] == COUNT
    document = json.loads((tmp_path / "out.ome.zarr" / "0" / "zarr.json").read_text())
    assert document["codecs"][0] == {"name": "transpose", "configuration": {"order": [2, 1, 0]}}
    assert chunk_files(tmp_path / "out.ome.zarr" / "0", "c") == chunk_files(source / "0")
    assert_reads(tmp_path / "out.ome.zarr", pixels())


# -- what cannot be copied -------------------------------------------------------------------------


def two_members(raw, stored):
    return gzip.compress(raw[:100]) + gzip.compress(raw[100:])


def two_frames(raw, stored):
    return imagecodecs.zstd_encode(raw[:100]) + imagecodecs.zstd_encode(raw[100:])


def blosc2(raw, stored):
    return imagecodecs.blosc2_encode(raw)


def snappy(raw, stored):
    return imagecodecs.blosc_encode(raw, compressor="snappy", typesize=2)


ODD = {
    "several gzip members": ("gzip", two_members),
    "zeros after a gzip member": ("gzip", lambda raw, stored: stored + bytes(8)),
    "several zstd frames": ("zstd", two_frames),
    "a Blosc2 buffer": ("blosc", blosc2),
    "snappy inside Blosc": ("blosc", snappy),
}


@pytest.mark.parametrize("name", ODD)
def test_what_others_fail_on_is_encoded_anew(name, make, tmp_path, export, command):
    codec, change = ODD[name]
    source = v2_store(make, tmp_path / "a.ome.zarr", V2[codec])
    raw = np.ascontiguousarray(pixels()[0:1, 20:40, 25:50]).tobytes()
    file = source / "0" / "0" / "1" / "1"
    try:
        changed = change(raw, file.read_bytes())
    except (ValueError, RuntimeError) as error:
        pytest.skip(f"this build of imagecodecs does not write it: {error}")
    file.write_bytes(changed)
    target = tmp_path / "out.ome.zarr"
    report = export_plain(export, source, target)
    assert (report["chunks_copied"], report["chunks_encoded"]) == (COUNT - 1, 1)
    found = chunk_files(target / "0", "c")
    assert found[0, 1, 1] != changed
    before = chunk_files(source / "0")
    assert {k: v for k, v in found.items() if k != (0, 1, 1)} == {
        k: v for k, v in before.items() if k != (0, 1, 1)
    }
    assert_reads(target, pixels())


@pytest.mark.parametrize("name", V2)
@pytest.mark.parametrize("options", [[], ["--no-verify"]], ids=["verified", "not verified"])
def test_a_damaged_chunk_is_never_copied(options, name, make, tmp_path, export):
    source = v2_store(make, tmp_path / "a.ome.zarr", V2[name])
    file = source / "0" / "1" / "1" / "0"
    file.write_bytes(file.read_bytes()[:-20])
    error = export_plain_error(export, source, tmp_path / "out.ome.zarr", *options)
    assert error["code"] == "corrupt_file"
    assert "0/1/1/0" in error["message"] + str(error.get("path"))
    assert [p.name for p in tmp_path.iterdir()] == ["a.ome.zarr"]


def export_plain_error(export, source, target, *options):
    return export(source, target, "--shards", "none", "--pyramid", "none", *options, code=4)


@pytest.mark.parametrize(
    "asked", ["--codec zstd", "--chunks 20,25", "--ngff 0.4", "--region 0,0,40,30"]
)
def test_nothing_is_copied_where_something_else_is_asked_for(asked, make, tmp_path, export):
    source = v2_store(make, tmp_path / "a.ome.zarr", V2["zstd"])
    report = export(source, tmp_path / "out.ome.zarr", "--pyramid", "none", *asked.split())
    assert report["chunks_copied"] == 0
    assert report["chunks_encoded"] > 0


# -- N5 --------------------------------------------------------------------------------------------

N5_CODECS = {"gzip": "gzip", "zstd": "zstd", "blosc": "blosc"}


def n5_store(path, data, chunks, compression, **attributes):
    z5py = pytest.importorskip("z5py")
    with z5py.File(str(path), mode="w", use_zarr_format=False) as file:
        try:
            dataset = file.create_dataset(
                "data", shape=data.shape, dtype=data.dtype.name, chunks=chunks, compression=compression
            )  # fmt: skip
        except RuntimeError as error:
            pytest.skip(f"this z5py does not write {compression}: {error}")
        dataset[...] = data
        for key, value in attributes.items():
            dataset.attrs[key] = value
    return path


@pytest.mark.parametrize("compression", N5_CODECS)
def test_whole_blocks_of_n5_are_copied_without_their_header(compression, tmp_path, export):
    data = pixels((4, 45, 50))
    source = n5_store(tmp_path / "a.n5", data, (2, 20, 25), compression)
    report = export_plain(export, source, tmp_path / "out.ome.zarr")
    whole, cut = 2 * 2 * 2, 2 * 1 * 2  # the last row of blocks is cut short
    assert (report["chunks_copied"], report["chunks_encoded"]) == (whole, cut)
    blocks = chunk_files(source / "data")
    for (z, y, x), chunk in chunk_files(tmp_path / "out.ome.zarr" / "0", "c").items():
        block = next(b for k, b in blocks.items() if k == (x, y, z))
        if y < 2:
            assert block.endswith(chunk)
            assert len(block) - len(chunk) == 4 + 3 * 4, "the header of three dimensions"
    assert_reads(tmp_path / "out.ome.zarr", data)


def test_axes_in_another_order_are_a_transpose(tmp_path, export):
    """Channels slower than planes in the source, the other way round in the output."""
    data = pixels((3, 2, 20, 25))  # z c y x as stored, slowest first
    source = n5_store(tmp_path / "a.n5", data, (1, 1, 20, 25), "gzip", axes=["x", "y", "c", "z"])
    report = export_plain(export, source, tmp_path / "out.ome.zarr")
    assert (report["chunks_copied"], report["chunks_encoded"]) == (6, 0)
    assert_reads(tmp_path / "out.ome.zarr", data.transpose(1, 0, 2, 3))


def test_axes_in_another_order_with_thick_blocks(tmp_path, export):
    data = pixels((4, 2, 20, 25))
    source = n5_store(tmp_path / "a.n5", data, (2, 2, 10, 25), "gzip", axes=["x", "y", "c", "z"])
    report = export_plain(export, source, tmp_path / "out.ome.zarr")
    assert report["chunks_copied"] == 4
    document = json.loads((tmp_path / "out.ome.zarr" / "0" / "zarr.json").read_text())
    assert document["codecs"][0]["name"] == "transpose"
    assert_reads(tmp_path / "out.ome.zarr", data.transpose(1, 0, 2, 3))


def test_a_pyramid_is_made_from_copied_chunks(make, tmp_path, export):
    data = pixels((1, 600, 500))
    source = make.image(
        tmp_path / "a.ome.zarr", [data], "zyx", zarr_format=2, chunks=(1, 130, 110), compressors=[V2["zstd"]]
    )  # fmt: skip
    report = export(source, tmp_path / "out.ome.zarr")
    assert report["chunks_copied"] == 5 * 5
    made = zarr.open_array(tmp_path / "out.ome.zarr" / "1", mode="r")[...]
    wide = data.astype("uint32").reshape(1, 300, 2, 250, 2).sum(axis=(2, 4))
    assert np.array_equal(made, (wide + 2) // 4)
