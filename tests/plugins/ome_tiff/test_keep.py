"""`export --codec keep` of JPEG in OME-TIFF: the pixels as tifffile decodes them, in the bytes that are stored."""

from __future__ import annotations

import io
import json
import math
import struct

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from openreadout.cli import run

tifffile = pytest.importorskip("tifffile")
images = pytest.importorskip("PIL.Image")

PLAIN = [[1, 1], [1, 1], [1, 1]]


def picture(height, width, samples, seed=0):
    """Waves and a little noise, which JPEG is made for."""
    noise = np.random.default_rng(seed).normal(0, 5, (height, width, samples))
    y, x = np.mgrid[:height, :width]
    waves = [
        127 + 60 * np.sin(x / (17 + 5 * k) + k) + 50 * np.cos(y / (23 - 3 * k))
        for k in range(samples)
    ]
    return (np.stack(waves, -1) + noise).clip(0, 255).astype(np.uint8)


def write_tiff(path, data, axes, levels=0, **options):
    """One image with tifffile, its lower levels as SubIFDs."""
    with tifffile.TiffWriter(path, ome=True) as writer:
        writer.write(data, metadata={"axes": axes}, subifds=levels, **options)
        for level in range(1, levels + 1):
            step = 2**level
            at = tuple(slice(None, None, step if axis in "YX" else None) for axis in axes)
            writer.write(np.ascontiguousarray(data[at]), subfiletype=1, **options)
    return path


def write_streams(path, streams, shape, tile, photometric, **options):
    """Streams that are encoded already as the tiles of one image; an empty one is a tile that is not stored."""
    if photometric == "rgb":
        options["compressionargs"] = {"outcolorspace": "rgb"}  # or tifffile says YCbCr
    with tifffile.TiffWriter(path, ome=True) as writer:
        writer.write(
            iter(streams),
            shape=shape,
            dtype=np.uint8,
            tile=tile,
            compression="jpeg",
            photometric=photometric,
            metadata={"axes": "YXS"[: len(shape)]},
            **options,
        )
    return path


def tiles(data, side):
    """Tiles in the order of TIFF, those at the edges filled up."""
    down, across = (-(-n // side) for n in data.shape[:2])
    filled = np.zeros((down * side, across * side, *data.shape[2:]), data.dtype)
    filled[: data.shape[0], : data.shape[1]] = data
    for y in range(down):
        for x in range(across):
            yield filled[y * side : (y + 1) * side, x * side : (x + 1) * side]


def pillow(samples, mode, **options):
    """A stream by Pillow of samples that are in `mode` already."""
    if samples.ndim == 3 and samples.shape[2] == 1:
        samples = samples[..., 0]
    size = samples.shape[1], samples.shape[0]
    out = io.BytesIO()
    picture = images.frombytes(mode, size, np.ascontiguousarray(samples).tobytes())
    picture.save(out, "JPEG", **{"quality": 88} | options)
    return out.getvalue()


def without_jfif(stream):
    """The stream without its JFIF marker, as slide scanners write."""
    assert stream[2:4] == b"\xff\xe0"
    return stream[:2] + stream[4 + int.from_bytes(stream[4:6], "big") :]


def export(capsys, source, target, *options, code=0):
    found = run([
        "export", str(source), "--to", "ome-zarr", "-o", str(target), "--no-sync", "--json", *options,
    ])  # fmt: skip
    printed = capsys.readouterr()
    assert found == code, printed.err
    answer = json.loads(printed.out)
    return answer["data"] if code == 0 else answer["error"]


def decoded(source, level=0):
    """What tifffile decodes, as t, c, z, y, x."""
    with tifffile.TiffFile(source) as tiff:
        series = tiff.series[0].levels[level]
        data, axes = series.asarray(), series.axes
    for axis in "TCZYX":
        if axis not in axes:
            data, axes = data[None], axis + axes
    order = [axes.index(axis) for axis in "TCZYX"]
    if "S" not in axes:
        return data.transpose(order)
    data = data.transpose([*order, axes.index("S")])
    return np.concatenate([np.moveaxis(data[:, c], -1, 1) for c in range(data.shape[1])], axis=1)


def codecs(target, level=0):
    """The inner chain of a sharded array, or the chain of another."""
    found = json.loads((target / str(level) / "zarr.json").read_text())["codecs"]
    if found[0]["name"] == "sharding_indexed":
        found = found[0]["configuration"]["codecs"]
    return found


def same(source, target, level=0):
    return np.array_equal(
        zarr.open_array(target / str(level), mode="r")[...], decoded(source, level)
    )


VARIANTS = {
    "ycbcr-420": (3, {"photometric": "rgb", "subsampling": (2, 2)}, "ycbcr", [[2, 2], [1, 1], [1, 1]]),
    "ycbcr-422": (3, {"photometric": "rgb", "subsampling": (2, 1)}, "ycbcr", [[2, 1], [1, 1], [1, 1]]),
    "ycbcr-444": (3, {"photometric": "rgb", "subsampling": (1, 1)}, "ycbcr", PLAIN),
    "rgb": (3, {"photometric": "rgb", "compressionargs": {"level": 90, "outcolorspace": "rgb"}}, "rgb", None),
    "grey": (1, {"photometric": "minisblack"}, "grayscale", None),
    "grey-inverse": (1, {"photometric": "miniswhite"}, "grayscale", None),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_tiles_are_kept_and_plain_zarr_reads_the_same_pixels(name, tmp_path, capsys):
    samples, options, space, subsampling = VARIANTS[name]
    data = picture(150, 201, samples)
    data, axes = (data, "YXS") if samples == 3 else (data[..., 0], "YX")
    options = {"compressionargs": {"level": 90}} | options
    source = write_tiff(
        tmp_path / "in.ome.tif", data, axes, tile=(64, 64), compression="jpeg", **options
    )
    target = tmp_path / "out.ome.zarr"
    report = export(capsys, source, target, "--codec", "keep")
    assert (report["chunks_copied"], report["chunks_encoded"]) == (3 * 4, 0)
    assert report["verified"] is True
    assert any("jpeg" in note and "few other readers" in note for note in report["notes"])
    assert same(source, target)
    jpeg = codecs(target)[-1]
    assert jpeg["name"] == "jpeg"
    assert jpeg["configuration"]["encoded_color_space"] == space
    assert jpeg["configuration"].get("subsampling") == subsampling
    assert jpeg["configuration"]["quality"] in range(89, 92)
    assert "decoded_color_space" not in jpeg["configuration"]


def test_planes_of_colour_stay_apart(tmp_path, capsys):
    data = picture(96, 64, 18).reshape(96, 64, 3, 2, 3).transpose(3, 2, 0, 1, 4)  # t, z, y, x, s
    source = write_tiff(
        tmp_path / "in.ome.tif", np.ascontiguousarray(data), "TZYXS", tile=(32, 32),
        compression="jpeg", photometric="rgb",
    )  # fmt: skip
    report = export(capsys, source, tmp_path / "out", "--codec", "keep")
    assert report["chunks_copied"] == 2 * 3 * 6
    assert same(source, tmp_path / "out")


def test_channels_of_colour_stay_apart(tmp_path, capsys):
    """Two channels of three samples become six channels, and a chunk holds those of one."""
    data = np.ascontiguousarray(picture(64, 96, 6).reshape(64, 96, 2, 3).transpose(2, 0, 1, 3))
    source = write_tiff(
        tmp_path / "in.ome.tif", data, "CYXS", tile=(32, 32), compression="jpeg", photometric="rgb"
    )
    report = export(capsys, source, tmp_path / "out", "--codec", "keep")
    assert report["chunks_copied"] == 2 * 6
    assert zarr.open_array(tmp_path / "out" / "0", mode="r").shape == (1, 6, 1, 64, 96)
    assert same(source, tmp_path / "out")


def test_every_chunk_is_a_picture_of_its_own(tmp_path, capsys):
    source = write_tiff(
        tmp_path / "in.ome.tif", picture(100, 100, 3), "YXS", tile=(64, 64), compression="jpeg",
        photometric="rgb", subsampling=(2, 2),
    )  # fmt: skip
    export(capsys, source, tmp_path / "out", "--codec", "keep", "--shards", "none")
    pixels = decoded(source)[0, :, 0]
    for y in range(2):
        for x in range(2):
            with images.open(tmp_path / "out" / "0" / "c" / f"0/0/0/{y}/{x}") as chunk:
                assert (chunk.format, chunk.mode, chunk.size) == ("JPEG", "RGB", (64, 64))
                assert [list(layer[1:3]) for layer in chunk.layer] == [[2, 2], [1, 1], [1, 1]]
                found = np.moveaxis(np.asarray(chunk), -1, 0)
            inside = pixels[:, y * 64 : y * 64 + 64, x * 64 : x * 64 + 64]
            assert np.array_equal(found[:, : inside.shape[1], : inside.shape[2]], inside)


def test_levels_are_kept_too(tmp_path, capsys):
    source = write_tiff(
        tmp_path / "in.ome.tif", picture(200, 256, 3), "YXS", levels=2, tile=(64, 64),
        compression="jpeg", photometric="rgb", subsampling=(2, 1),
    )  # fmt: skip
    report = export(capsys, source, tmp_path / "out", "--codec", "keep")
    assert (report["levels_written"], report["chunks_encoded"]) == (3, 0)
    assert report["chunks_copied"] == 4 * 4 + 2 * 2 + 1
    assert all(same(source, tmp_path / "out", level) for level in range(3))


def test_a_level_of_another_compression_is_told(tmp_path, capsys):
    data = picture(128, 128, 3)
    source = tmp_path / "in.ome.tif"
    with tifffile.TiffWriter(source, ome=True) as writer:
        writer.write(
            data, metadata={"axes": "YXS"}, subifds=1, tile=(64, 64), compression="jpeg",
            photometric="rgb",
        )  # fmt: skip
        writer.write(
            np.ascontiguousarray(data[::2, ::2]), subfiletype=1, tile=(64, 64),
            compression="zlib", photometric="rgb",
        )  # fmt: skip
    report = export(capsys, source, tmp_path / "out", "--codec", "keep")
    assert report["chunks_copied"] == 4
    assert any("level 1 cannot be kept" in note for note in report["notes"])
    assert same(source, tmp_path / "out")
    assert same(source, tmp_path / "out", 1)


def test_levels_that_are_made_are_not_lossy(tmp_path, capsys):
    source = write_tiff(
        tmp_path / "in.ome.tif", picture(300, 280, 3), "YXS", tile=(128, 128), compression="jpeg",
        photometric="rgb",
    )  # fmt: skip
    report = export(capsys, source, tmp_path / "out", "--codec", "keep")
    assert (report["levels_written"], report["chunks_copied"]) == (2, 9)
    assert [codec["name"] for codec in codecs(tmp_path / "out", 1)] == ["bytes", "blosc"]
    full = decoded(source).astype(int)
    halved = full.reshape(1, 3, 1, 150, 2, 140, 2).sum((4, 6))
    found = zarr.open_array(tmp_path / "out" / "1", mode="r")[...]
    assert np.array_equal(found, (halved + 2) // 4)


def test_without_keep_pixels_are_encoded_anew(tmp_path, capsys):
    source = write_tiff(
        tmp_path / "in.ome.tif", picture(64, 64, 3), "YXS", tile=(32, 32), compression="jpeg",
        photometric="rgb",
    )  # fmt: skip
    report = export(capsys, source, tmp_path / "out")
    assert report["chunks_copied"] == 0
    assert [codec["name"] for codec in codecs(tmp_path / "out")] == ["bytes", "blosc"]
    assert same(source, tmp_path / "out")


def test_an_export_takes_about_the_bytes_of_its_source(tmp_path, capsys):
    source = write_tiff(
        tmp_path / "in.ome.tif", picture(2048, 2048, 3), "YXS", levels=3, tile=(512, 512),
        compression="jpeg", photometric="rgb", subsampling=(2, 2), compressionargs={"level": 90},
    )  # fmt: skip
    report = export(capsys, source, tmp_path / "out", "--codec", "keep")
    assert report["chunks_encoded"] == 0
    assert report["bytes_written"] <= 1.05 * source.stat().st_size


def test_an_export_of_the_export_keeps_the_tiles_again(tmp_path, capsys):
    source = write_tiff(
        tmp_path / "in.ome.tif", picture(100, 80, 3), "YXS", tile=(32, 32), compression="jpeg",
        photometric="rgb", subsampling=(2, 2),
    )  # fmt: skip
    one = export(capsys, source, tmp_path / "one", "--codec", "keep")
    two = export(capsys, tmp_path / "one", tmp_path / "two", "--codec", "keep")
    assert one["chunks_copied"] == two["chunks_copied"] == 12
    assert codecs(tmp_path / "one") == codecs(tmp_path / "two")
    assert same(source, tmp_path / "two")
    anew = export(capsys, tmp_path / "one", tmp_path / "three")
    assert anew["chunks_copied"] == 0
    assert same(source, tmp_path / "three")


# -- streams of other writers ----------------------------------------------------------------------


@pytest.mark.parametrize("extra", [{}, {"restart_marker_blocks": 2}, {"optimize": True}], ids=str)
def test_tables_of_the_ifd_are_merged_in(extra, tmp_path, capsys):
    data = picture(96, 96, 3)
    tables = pillow(np.ascontiguousarray(data[:32, :32]), "RGB", streamtype=1)
    kept = "optimize" in extra  # tables made for one picture stand in its own stream
    streams = [
        pillow(t, "RGB", subsampling=2, **({} if kept else {"streamtype": 2}), **extra)
        for t in tiles(data, 32)
    ]
    source = write_streams(
        tmp_path / "in.ome.tif", streams, data.shape, (32, 32), "ycbcr", jpegtables=tables
    )
    report = export(capsys, source, tmp_path / "out", "--codec", "keep")
    assert report["chunks_copied"] == 9
    assert same(source, tmp_path / "out")


def test_tables_that_outweigh_the_pixels_are_not_copied_into_every_chunk(tmp_path, capsys):
    data = picture(64, 64, 3)
    tables = pillow(np.ascontiguousarray(data[:32, :32]), "RGB", streamtype=1)
    tables = tables[:-2] + tables[2:-2] * 40 + tables[-2:]
    streams = [pillow(tile, "RGB", streamtype=2) for tile in tiles(data, 32)]
    source = write_streams(
        tmp_path / "in.ome.tif", streams, data.shape, (32, 32), "ycbcr", jpegtables=tables
    )
    report = export(capsys, source, tmp_path / "out", "--codec", "keep")
    assert report["chunks_copied"] == 0
    assert same(source, tmp_path / "out")


@pytest.mark.parametrize("marker", ["none", "ycbcr", "names"])
def test_rgb_that_no_marker_tells_gets_one(marker, tmp_path, capsys):
    """RGB samples whose streams have no marker, a wrong one, or the letters R, G, B as component numbers."""
    data = picture(96, 70, 3)
    streams = []
    for tile in tiles(data, 32):
        if marker == "names":
            stream = pillow(tile, "RGB", keep_rgb=True, subsampling=0)
            if b"Adobe" in stream:
                at = stream.index(b"\xff\xee")
                stream = stream[:at] + stream[at + 16 :]
        else:
            stream = without_jfif(pillow(tile, "YCbCr", subsampling=0))
        if marker == "ycbcr":
            adobe = (
                b"\xff\xee" + struct.pack(">H", 14) + b"Adobe" + struct.pack(">HHHB", 100, 0, 0, 1)
            )
            stream = stream[:2] + adobe + stream[2:]
        streams.append(stream)
    source = write_streams(tmp_path / "in.ome.tif", streams, data.shape, (32, 32), "rgb")
    assert np.abs(decoded(source)[0, :, 0].transpose(1, 2, 0).astype(int) - data).mean() < 5
    report = export(capsys, source, tmp_path / "out", "--codec", "keep", "--shards", "none")
    assert report["chunks_copied"] == 9
    assert codecs(tmp_path / "out")[-1]["configuration"]["encoded_color_space"] == "rgb"
    assert same(source, tmp_path / "out")
    with images.open(tmp_path / "out" / "0" / "c" / "0/0/0/0/0") as chunk:
        assert chunk.info["adobe_transform"] == 0
        assert np.array_equal(
            np.moveaxis(np.asarray(chunk), -1, 0), decoded(source)[0, :, 0, :32, :32]
        )


def test_subsampled_rgb_is_encoded_anew(tmp_path, capsys):
    data = picture(64, 64, 3)
    streams = [without_jfif(pillow(tile, "YCbCr", subsampling=2)) for tile in tiles(data, 32)]
    source = write_streams(tmp_path / "in.ome.tif", streams, data.shape, (32, 32), "rgb")
    report = export(capsys, source, tmp_path / "out", "--codec", "keep")
    assert report["chunks_copied"] == 0
    assert same(source, tmp_path / "out")


def test_progressive_streams_are_encoded_anew(tmp_path, capsys):
    data = picture(64, 64, 1)[..., 0]
    streams = [pillow(tile, "L", progressive=True) for tile in tiles(data, 32)]
    source = write_streams(tmp_path / "in.ome.tif", streams, data.shape, (32, 32), "minisblack")
    report = export(capsys, source, tmp_path / "out", "--codec", "keep")
    assert report["chunks_copied"] == 0
    assert any("anew" in note for note in report["notes"])
    assert same(source, tmp_path / "out")


def test_tiles_that_are_cut_at_the_edge_are_encoded_anew(tmp_path, capsys):
    data = picture(48, 64, 1)[..., 0]
    streams = [pillow(data[y : y + 32, x : x + 32], "L") for y in (0, 32) for x in (0, 32)]
    source = write_streams(tmp_path / "in.ome.tif", streams, data.shape, (32, 32), "minisblack")
    report = export(capsys, source, tmp_path / "out", "--codec", "keep")
    assert report["chunks_copied"] == 0
    assert same(source, tmp_path / "out")


@pytest.mark.parametrize(("rows", "copied"), [(160, 1), (80, 0), (64, 0)])
def test_a_strip_is_kept_where_it_is_a_whole_chunk(rows, copied, tmp_path, capsys):
    source = write_tiff(
        tmp_path / "in.ome.tif", picture(160, 96, 3), "YXS", rowsperstrip=rows, compression="jpeg",
        photometric="rgb",
    )  # fmt: skip
    report = export(capsys, source, tmp_path / "out", "--codec", "keep")
    assert report["chunks_copied"] == copied
    assert same(source, tmp_path / "out")


def test_tiles_that_are_not_stored_stay_so(tmp_path, capsys):
    data = picture(64, 96, 1)[..., 0]
    streams = [pillow(tile, "L") for tile in tiles(data, 32)]
    streams[0] = streams[4] = b""
    source = write_streams(tmp_path / "in.ome.tif", streams, data.shape, (32, 32), "minisblack")
    report = export(capsys, source, tmp_path / "out", "--codec", "keep", "--shards", "none")
    assert report["chunks_copied"] == 4
    assert not (tmp_path / "out" / "0" / "c" / "0/0/0/0/0").exists()
    assert same(source, tmp_path / "out")


def test_bytes_behind_a_stream_are_left_out(tmp_path, capsys):
    data = picture(64, 64, 1)[..., 0]
    streams = [pillow(tile, "L") + b"\0" * 5000 for tile in tiles(data, 32)]
    source = write_streams(tmp_path / "in.ome.tif", streams, data.shape, (32, 32), "minisblack")
    export(capsys, source, tmp_path / "out", "--codec", "keep", "--shards", "none")
    chunk = (tmp_path / "out" / "0" / "c" / "0/0/0/1/1").read_bytes()
    assert chunk == streams[3][:-5000]
    assert same(source, tmp_path / "out")


# -- what cannot be kept ---------------------------------------------------------------------------


def one_odd_tile(path, odd):
    """400 tiles, of which one in the middle is another; the plan cannot try them all."""
    data = picture(320, 320, 3)
    streams = [pillow(tile, "RGB", subsampling=2) for tile in tiles(data, 16)]
    streams[145] = odd(list(tiles(data, 16))[145])
    return write_streams(path, streams, data.shape, (16, 16), "ycbcr")


@pytest.mark.parametrize("odd", [{"progressive": True}, {"subsampling": 0}], ids=str)
def test_a_tile_that_turns_out_unlike_the_others_ends_the_export(odd, tmp_path, capsys):
    source = one_odd_tile(
        tmp_path / "in.ome.tif", lambda tile: pillow(tile, "RGB", **{"subsampling": 2} | odd)
    )
    error = export(capsys, source, tmp_path / "out", "--codec", "keep", code=6)
    assert "without --codec keep" in error["hint"]
    assert "IFD 0" in error["message"]
    assert not (tmp_path / "out").exists()
    export(capsys, source, tmp_path / "out")
    assert same(source, tmp_path / "out")


@pytest.mark.parametrize("options", [(), ("--codec", "keep")], ids=str)
def test_a_damaged_tile_is_damage(options, tmp_path, capsys):
    source = one_odd_tile(tmp_path / "in.ome.tif", lambda tile: pillow(tile, "RGB")[:-40])
    error = export(capsys, source, tmp_path / "out", *options, code=4)
    assert error["code"] == "corrupt_file"
    assert not (tmp_path / "out").exists()


def reference(data):
    """What libjpeg makes of a stream by itself, or None."""
    import imagecodecs

    try:
        return imagecodecs.jpeg8_decode(data)
    except RuntimeError:
        return None


WHOLE = picture(16, 16, 3)
STREAM = pillow(WHOLE, "RGB", streamtype=2, subsampling=1)
TABLES = pillow(WHOLE, "RGB", streamtype=1)


@given(st.data())
def test_no_bytes_make_it_stumble(data):
    """Whatever the bytes, there is no form, or one that a bare decoder reads as the very samples."""
    from openreadout_ome_tiff.standalone import StandAlone

    parts = []
    for part in (STREAM, TABLES):
        changed = bytearray(part)
        for _ in range(data.draw(st.integers(0, 3))):
            changed[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
        parts.append(bytes(changed[: data.draw(st.integers(len(part) - 3, len(part)))]))
    samples = reference(merge_by_hand(*parts))
    samples = WHOLE if samples is None or samples.shape != WHOLE.shape else samples
    form = StandAlone().form(parts[0], parts[1], (16, 16, 3), samples)
    if form is not None:
        assert np.array_equal(reference(bytes(form.data)), samples)


def merge_by_hand(stream, tables):
    return tables[:-2] + stream[2:]


def test_a_sound_stream_has_a_form():
    from openreadout_ome_tiff.standalone import StandAlone

    samples = reference(merge_by_hand(STREAM, TABLES))
    form = StandAlone().form(STREAM, TABLES, (16, 16, 3), samples)
    assert form is not None
    other = samples.copy()
    other[5, 5, 1] ^= 1
    assert StandAlone().form(STREAM, TABLES, (16, 16, 3), other) is None
    assert StandAlone().form(STREAM, TABLES, (16, 8, 3), samples[:, :8]) is None


@pytest.mark.parametrize("quality", [25, 50, 75, 90, 95, 100])
def test_the_quality_is_about_what_the_encoder_was_told(quality):
    from openreadout_ome_tiff.standalone import StandAlone

    stream = pillow(WHOLE[..., 0], "L", quality=quality)
    form = StandAlone().form(stream, None, (16, 16, 1), reference(stream)[..., None])
    assert math.isclose(form.codecs[-1].configuration["quality"], quality, abs_tol=2)


def tile_of(samples):
    """A stream of RGB without a marker that says so, without tables, and what the TIFF holds in it."""
    import imagecodecs

    stream = pillow(samples, "RGB", streamtype=2, subsampling=0, keep_rgb=True)
    stream = without_adobe(stream)
    return stream, imagecodecs.jpeg_decode(
        stream, tables=TABLES, colorspace="RGB", outcolorspace="RGB"
    )


def without_adobe(stream):
    at = stream.find(b"\xff\xee")
    return (
        stream
        if at < 0
        else stream[:at] + stream[at + 2 + int.from_bytes(stream[at + 2 : at + 4], "big") :]
    )


def test_what_one_tile_has_shown_holds_for_others_that_begin_alike():
    from openreadout_ome_tiff.standalone import StandAlone

    streams = StandAlone()
    grey = np.full_like(WHOLE, 128)
    for samples in (grey, *(picture(16, 16, 3, seed) for seed in range(4)), grey):
        stream, held = tile_of(samples)
        form = streams.form(stream, TABLES, held.shape, held)
        assert form is not None
        assert np.array_equal(reference(bytes(form.data)), held)
        names = form.codecs[-1].configuration["encoded_color_space"]
        assert names == "rgb" or np.array_equal(held, grey)
    assert len(streams._proven) == 1


def test_other_rules_or_tables_are_proven_anew():
    from openreadout_ome_tiff.standalone import StandAlone

    streams = StandAlone()
    samples = reference(merge_by_hand(STREAM, TABLES))
    assert streams.form(STREAM, TABLES, (16, 16, 3), samples, "as YCbCr") is not None
    assert streams.form(STREAM, TABLES, (16, 16, 3), samples[..., ::-1], "as BGR") is None
    assert streams.form(STREAM, None, (16, 16, 3), samples, "as YCbCr") is None


def test_output_that_decodes_to_other_samples_is_refused(tmp_path, capsys, monkeypatch):
    """The bytes are there, but whoever opens the output makes something else of them."""
    from openreadout_codec_jpeg import codec

    source = write_tiff(
        tmp_path / "in.ome.tif", picture(150, 201, 3), "YXS", tile=(64, 64), compression="jpeg"
    )
    real = codec.decode_jpeg
    monkeypatch.setattr(codec, "decode_jpeg", lambda *given: real(*given) ^ 1)
    error = export(capsys, source, tmp_path / "out.ome.zarr", "--codec", "keep", code=1)
    assert "read back as others" in error["message"]
    assert not (tmp_path / "out.ome.zarr").exists()
