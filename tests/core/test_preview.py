"""Pictures: levels, projections, contrast, colours and sheets, against numpy on zarr-python's arrays and Pillow."""

from __future__ import annotations

import io

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image as Pillow

import openreadout
from openreadout import registry
from openreadout.arrays import AxisView
from openreadout.encoded import EncodedArray
from openreadout.operations import png
from openreadout.operations.preview import PreviewOptions, preview
from openreadout.workers import Workers

RNG = np.random.default_rng(7)


def write(path, levels, axes="yx", *, omero=None, chunks=None, attributes=None):
    """An OME-Zarr 0.4 image made with zarr-python alone; each level is an array."""
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    datasets = []
    for n, data in enumerate(levels):
        array = group.create_array(
            str(n), shape=data.shape, chunks=chunks or data.shape, dtype=data.dtype
        )
        array[...] = data
        scale = [2.0**n if a in "yx" else 1.0 for a in axes]
        transform = [{"type": "scale", "scale": scale}]
        datasets.append({"path": str(n), "coordinateTransformations": transform})
    kinds = {"t": "time", "c": "channel"}
    group.attrs["multiscales"] = [
        {
            "version": "0.4",
            "axes": [{"name": a, "type": kinds.get(a, "space")} for a in axes],
            "datasets": datasets,
        }
    ]
    if omero:
        group.attrs["omero"] = {"version": "0.4", "channels": omero}
    group.attrs.update(attributes or {})
    return path


def show(path, **options):
    with Workers(2) as workers:
        return preview(str(path), PreviewOptions(**options), workers)


def halves(data):
    return data.reshape(data.shape[0] // 2, 2, data.shape[1] // 2, 2).mean(axis=(1, 3))


def stretched(values, low, high):
    return np.clip((values - low) / (high - low), 0, 1)


# -- the file --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (33, 65)])
def test_pillow_reads_the_png_as_it_was(shape):
    pixels = RNG.integers(0, 256, (*shape, 3), dtype=np.uint8)
    with Pillow.open(io.BytesIO(png.encode(pixels))) as image:
        image.load()
        assert image.mode == "RGB"
        np.testing.assert_array_equal(np.asarray(image), pixels)


# -- levels and projections ------------------------------------------------------------------------


def test_the_smallest_level_with_enough_pixels_is_read_and_no_other(tmp_path, monkeypatch):
    levels = [np.full((n, n), n, np.uint16) for n in (128, 64, 32, 16)]
    path = write(tmp_path / "p.zarr", levels, chunks=(8, 8))
    read = []
    real = EncodedArray.read_chunk
    monkeypatch.setattr(
        EncodedArray, "read_chunk", lambda self, index: read.append(self.path) or real(self, index)
    )
    for side, level in ((128, 0), (65, 0), (64, 1), (33, 1), (32, 2), (17, 2), (16, 3), (9, 3)):
        read.clear()
        report = show(path, box=(side, side))
        assert report.images[0].level == level
        assert set(read) == {str(level)}
        assert len(read) == (128 // 2**level // 8) ** 2
        assert report.pixels.shape == (side, side, 3)


def test_pictures_are_never_larger_than_the_image(tmp_path):
    path = write(tmp_path / "p.zarr", [np.zeros((20, 30), np.uint8)])
    assert show(path, box=(1000, 1000)).pixels.shape == (20, 30, 3)
    assert show(path, box=(15, 1000)).pixels.shape == (10, 15, 3)
    assert show(path, box=(1000, 10)).pixels.shape == (10, 15, 3)


@pytest.mark.parametrize("chunks", [(64, 96), (7, 11), (16, 96), (1, 96)])
def test_a_pixel_is_the_mean_of_what_it_covers(tmp_path, chunks):
    data = RNG.integers(0, 60000, (64, 96), dtype=np.uint16)
    path = write(tmp_path / "p.zarr", [data], chunks=chunks)
    report = show(path, box=(48, 32))
    (channel,) = report.images[0].channels
    small = halves(data.astype(float))
    low, high = np.percentile(small, [0.5, 99.8])
    assert (channel.low, channel.high) == pytest.approx((low, high))
    wanted = stretched(small, low, high) * 255
    np.testing.assert_allclose(report.pixels[:, :, 1], wanted, atol=0.51)
    assert np.ptp(report.pixels, axis=2).max() == 0  # a single channel without a colour is grey


@pytest.mark.parametrize("chunks", [(1, 8, 8), (3, 5, 8), (9, 8, 8)])
def test_z_is_the_middle_the_largest_or_a_plane(tmp_path, chunks):
    data = RNG.random((9, 8, 8)).astype(np.float32)
    path = write(tmp_path / "p.zarr", [data], "zyx", chunks=chunks)
    for z, plane, span in (("mid", data[4], (4, 4)), ("max", data.max(0), (0, 8)), (7, data[7], (7, 7))):  # fmt: skip
        report = show(path, z=z)
        assert report.images[0].z == span
        low, high = np.percentile(plane, [0.5, 99.8])
        np.testing.assert_allclose(
            report.pixels[:, :, 0], stretched(plane, low, high) * 255, atol=0.51
        )


def test_one_plane_reads_only_its_chunks(tmp_path, monkeypatch):
    data = np.ones((4, 3, 5, 16, 16), np.uint8)
    path = write(tmp_path / "p.zarr", [data], "tczyx", chunks=(1, 1, 1, 8, 8))
    read = []
    real = EncodedArray.read_chunk
    monkeypatch.setattr(
        EncodedArray, "read_chunk", lambda self, index: read.append(index) or real(self, index)
    )
    show(path, t=2, z=1, channels=(0, 2))
    assert sorted(read) == [(2, c, 1, y, x) for c in (0, 2) for y in (0, 1) for x in (0, 1)]


def test_channels_that_share_a_chunk_decode_it_once(tmp_path, monkeypatch):
    data = RNG.integers(0, 255, (3, 8, 8), dtype=np.uint8)
    path = write(tmp_path / "p.zarr", [data], "cyx", chunks=(3, 8, 8))
    read = []
    real = EncodedArray.read_chunk
    monkeypatch.setattr(
        EncodedArray, "read_chunk", lambda self, index: read.append(index) or real(self, index)
    )
    show(path)
    assert read == [(0, 0, 0)]


def test_nothing_that_is_not_a_number_disturbs_the_contrast(tmp_path):
    data = np.linspace(0, 1, 256).reshape(16, 16)
    data[0, :3] = np.nan, np.inf, -np.inf
    report = show(write(tmp_path / "p.zarr", [data]))
    finite = data[np.isfinite(data)]
    low, high = np.percentile(finite, [0.5, 99.8])
    assert report.images[0].channels[0].low == pytest.approx(low)
    assert report.images[0].channels[0].high == pytest.approx(high)
    assert report.pixels[0, :3, 0].tolist() == [0, 255, 0]


@pytest.mark.parametrize("value", [0, 7])
def test_an_even_plane_is_black(tmp_path, value):
    report = show(write(tmp_path / "p.zarr", [np.full((4, 4), value, np.uint8)]))
    assert not report.pixels.any()


def test_a_few_bright_pixels_are_seen(tmp_path):
    data = np.zeros((100, 100), np.uint8)
    data[50, 50] = 9
    report = show(write(tmp_path / "p.zarr", [data]))
    assert np.argwhere(report.pixels[:, :, 0] == 255).tolist() == [[50, 50]]


# -- colours ---------------------------------------------------------------------------------------


@pytest.fixture
def two(tmp_path):
    data = RNG.integers(100, 1000, (2, 16, 16), dtype=np.uint16)
    omero = [
        {"label": "a", "color": "FF8000", "window": {"min": 0, "max": 65535, "start": 200, "end": 800}},
        {"label": "b", "color": "0000FF", "window": {"min": 0, "max": 65535, "start": 100, "end": 900}},
    ]  # fmt: skip
    return write(tmp_path / "two.zarr", [data], "cyx", omero=omero), data


def test_channels_are_mixed_in_their_colours_between_their_windows(two):
    path, data = two
    report = show(path, contrast="window")
    a, b = stretched(data[0].astype(float), 200, 800), stretched(data[1].astype(float), 100, 900)
    wanted = np.stack([a, a * 128 / 255, b], axis=2) * 255
    np.testing.assert_allclose(report.pixels, wanted, atol=0.51)
    assert [(c.color, c.low, c.high) for c in report.images[0].channels] == [
        ("#FF8000", 200, 800),
        ("#0000FF", 100, 900),
    ]


def test_channels_can_be_chosen(two):
    path, data = two
    report = show(path, contrast="window", channels=(1,))
    assert not report.pixels[:, :, :2].any()
    wanted = stretched(data[1].astype(float), 100, 900) * 255
    np.testing.assert_allclose(report.pixels[:, :, 2], wanted, atol=0.51)


def test_a_window_that_is_not_known_is_told(tmp_path):
    data = RNG.integers(0, 9, (4, 4), dtype=np.uint8)
    report = show(write(tmp_path / "p.zarr", [data]), contrast="window")
    assert any("no display window" in note for note in report.notes)


@pytest.mark.parametrize("case", ["rgb-planar", "rgb-interleaved"])
def test_colour_images_are_shown_as_they_are(fixtures, case):
    path = fixtures / "ome-tiff" / case / "image.ome.tiff"
    with tifffile.TiffFile(path) as file:
        whole, axes = file.series[0].asarray(), file.series[0].axes
    assert whole.dtype == np.uint8
    whole = np.moveaxis(whole, axes.index("S"), -1)
    for plane in range(whole.shape[0]) if whole.ndim == 4 else (0,):
        mine = show(path, **({"t": plane} if "T" in axes else {"z": plane}))
        np.testing.assert_array_equal(mine.pixels, whole[plane] if whole.ndim == 4 else whole)


def label_store(tmp_path, values, colors):
    write(tmp_path / "l.zarr", [np.zeros((16, 16), np.uint8)])
    group = zarr.open_group(str(tmp_path / "l.zarr"), mode="r+")
    group.create_group("labels").attrs["labels"] = ["cells"]
    write(
        tmp_path / "l.zarr" / "labels" / "cells",
        [values],
        attributes={"image-label": {"version": "0.4", "colors": colors}},
        chunks=(5, 5),
    )
    return tmp_path / "l.zarr"


def test_labels_have_their_colours_and_are_never_averaged(tmp_path):
    values = np.repeat(np.repeat(RNG.integers(0, 5, (8, 8)).astype(np.uint32), 2, 0), 2, 1)
    colors = [{"label-value": 1, "rgba": [9, 8, 7, 255]}, {"label-value": 3, "rgba": [1, 2, 300, 255]}]  # fmt: skip
    path = label_store(tmp_path, values, colors)
    report = show(path, image=1)
    assert (report.pixels[values == 1] == [9, 8, 7]).all()
    assert (report.pixels[values == 0] == 0).all()
    seen = {tuple(c) for v in (1, 2, 3, 4) for c in np.unique(report.pixels[values == v], axis=0)}
    assert len(seen) == len(np.unique(values)) - 1  # one colour for each object, none shared
    small = show(path, image=1, box=(8, 8))
    np.testing.assert_array_equal(small.pixels, report.pixels[1::2, 1::2])


def test_an_image_with_labels_is_no_sheet(tmp_path):
    path = label_store(tmp_path, np.ones((16, 16), np.uint8), [])
    assert [item.image for item in show(path).images] == [0]


# -- sheets ----------------------------------------------------------------------------------------


def plate(tmp_path, wells, rows="AB", columns=("1", "2", "3")):
    group = zarr.open_group(str(tmp_path / "plate.zarr"), mode="w", zarr_format=2)
    group.attrs["plate"] = {
        "version": "0.4",
        "name": "p",
        "rows": [{"name": r} for r in rows],
        "columns": [{"name": c} for c in columns],
        "wells": [
            {"path": f"{r}/{c}", "rowIndex": rows.index(r), "columnIndex": columns.index(c)}
            for r, c in wells
        ],
    }
    for (r, c), data in wells.items():
        well = group.require_group(r).create_group(c)
        well.attrs["well"] = {"version": "0.4", "images": [{"path": "0"}]}
        write(tmp_path / "plate.zarr" / r / c / "0", [data])
    return tmp_path / "plate.zarr"


def test_a_plate_is_a_grid_with_one_contrast(tmp_path):
    wells = {("A", "1"): 10, ("A", "3"): 20, ("B", "2"): 30}
    data = {place: np.full((10, 10), value, np.uint16) for place, value in wells.items()}
    report = show(plate(tmp_path, data), box=(200, 200))
    assert report.columns == 3
    assert report.pixels.shape == (22, 34, 3)
    centres = {(r, c): report.pixels[5 + 12 * r, 5 + 12 * c].tolist() for r in (0, 1) for c in (0, 1, 2)}  # fmt: skip
    low, high = np.percentile(np.repeat([10, 20, 30], 100), [0.5, 99.8])
    grey = round((20 - low) / (high - low) * 255)
    assert centres[0, 0] == [0] * 3
    assert centres[0, 2] == [grey] * 3
    assert centres[1, 1] == [255] * 3
    assert centres[0, 1] == centres[1, 0] == centres[1, 2] == [40] * 3
    assert [item.well for item in report.images] == ["A/1", "A/3", "B/2"]


def test_a_damaged_well_is_named_and_the_others_are_shown(tmp_path):
    data = {("A", c): RNG.integers(0, 99, (8, 8), dtype=np.uint8) for c in ("1", "2")}
    path = plate(tmp_path, data)
    (path / "A" / "1" / "0" / "0" / "0.0").write_bytes(b"\x01\x02")
    report = show(path)
    assert [item.well for item in report.images] == ["A/2"]
    (error,) = report.failures
    assert error.exit_code == 4
    assert "image 0" in str(error)


def test_several_images_are_a_sheet_row_by_row(fixtures):
    path = fixtures / "ome-zarr/v3-collection-types/types.zarr"
    with openreadout.open(path) as dataset:
        count = len(dataset.images)
    report = show(path, box=(400, 400))
    assert [item.image for item in report.images] == list(range(count))
    assert report.columns == int(np.ceil(np.sqrt(count)))


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [({"image": 5}, "image 5"), ({"channels": (2,)}, "channel 2"), ({"z": 4}, "z 4"), ({"t": 1}, "t 1")],
)  # fmt: skip
def test_indices_out_of_range_are_usage_errors(two, options, word):
    with pytest.raises(openreadout.UsageError, match=word):
        show(two[0], **options)


def test_damage_of_a_single_image_is_raised(fixtures):
    with pytest.raises(openreadout.CorruptDataError):
        show(fixtures / "malformed" / "zarr-chunk-cut" / "plain.zarr")


def test_an_image_without_a_small_level_is_refused_before_it_takes_forever(tmp_path):
    group = zarr.open_group(str(tmp_path / "e.zarr"), mode="w", zarr_format=2)
    group.create_array("0", shape=(1 << 40, 1 << 40), chunks=(64, 64), dtype="uint16")
    datasets = [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 1]}]}]
    axes = [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
    group.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": datasets}]
    with pytest.raises(openreadout.UsageError, match="no level is small enough"):
        show(tmp_path / "e.zarr")


@pytest.mark.corpus
def test_every_image_of_the_corpus_gives_a_picture_or_one_of_our_errors(corpus):
    shown = 0
    for kind in ("ome-zarr", "n5", "ome-tiff"):
        for folder in sorted((corpus / kind).iterdir()):
            for path in sorted(folder.iterdir()):
                try:
                    registry.detect(str(path))
                    report = show(path, box=(64, 64))
                except openreadout.OpenReadoutError:
                    continue
                shown += 1
                assert report.pixels.dtype == np.uint8
                assert report.pixels.shape[2] == 3
    assert shown > 100


def test_views_are_understood(fixtures):
    with openreadout.open(fixtures / "n5/z5py-viewer-pyramid/pyramid.n5") as dataset:
        assert isinstance(dataset.images[0].levels[0].array, AxisView)
    assert show(fixtures / "n5/z5py-viewer-pyramid/pyramid.n5").pixels.any()
