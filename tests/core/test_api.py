"""`import openreadout`: opening, planes and regions, lazy arrays, pickling; compared with other libraries' arrays."""

from __future__ import annotations

import concurrent.futures
import doctest
import multiprocessing
import pickle
import shutil

import numpy as np
import pytest
import tifffile
import zarr

import openreadout
from openreadout import access, api, errors, model

ZARR = "ome-zarr/v2-blosc-channels/cells.ome.zarr"
TIFF = "ome-tiff/pyramid/cells.ome.tiff"
RGB = "ome-tiff/rgb-planar/image.ome.tiff"


@pytest.fixture
def cells(fixtures):
    with openreadout.open(fixtures / ZARR) as dataset:
        yield dataset.images[0]


def theirs(fixtures, level=0):
    """The level as zarr-python reads it, with t, c, z, y, x."""
    group = zarr.open_group(str(fixtures / ZARR), mode="r")
    scales = group.attrs["multiscales"][0]
    array = group[scales["datasets"][level]["path"]][...]
    names = "".join(axis["name"] for axis in scales["axes"])
    for place, axis in enumerate("tczyx"):
        if axis not in names:
            array = np.expand_dims(array, place)
    return array


def test_every_public_name_is_there_and_listed():
    for name in openreadout.__all__:
        assert getattr(openreadout, name) is not None
        assert name in dir(openreadout)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = openreadout.nonsense


def test_every_error_class_is_public():
    for name, value in vars(errors).items():
        if isinstance(value, type):
            assert getattr(openreadout, name) is value


@pytest.mark.parametrize("module", [openreadout, api, model, access])
def test_examples_in_docstrings_run(module, repository, monkeypatch):
    monkeypatch.chdir(repository)
    failed, tried = doctest.testmod(module)
    assert failed == 0
    assert tried or module is access


def test_detect_names_the_format(fixtures):
    assert openreadout.detect(fixtures / TIFF).id == "ome-tiff"
    assert openreadout.detect(str(fixtures / ZARR)).name == "OME-Zarr"
    with pytest.raises(openreadout.UnknownFormatError):
        openreadout.detect(fixtures / "malformed" / "text-file" / "notes.txt")
    with pytest.raises(openreadout.StorageError):
        openreadout.detect(fixtures / "nothing-here")


def test_axes_name_those_of_an_input_without(fixtures):
    path = fixtures / "n5/z5py-codecs/codecs.n5"
    with openreadout.open(path) as plain, openreadout.open(path, axes="xyc") as named:
        assert plain.images[0].axis_names == "zyx"
        assert named.images[0].axis_names == "cyx"


def test_planes_are_those_of_zarr_python(cells, fixtures):
    for level in range(len(cells.levels)):
        whole = theirs(fixtures, level)
        for c in range(whole.shape[1]):
            for z in range(whole.shape[2]):
                plane = cells.read_plane(c=c, z=z, level=level)
                np.testing.assert_array_equal(plane, whole[0, c, z])
                assert plane.dtype == whole.dtype


def test_negative_indices_count_from_the_end(cells, fixtures):
    np.testing.assert_array_equal(cells.read_plane(c=-1, z=-1), theirs(fixtures)[0, -1, -1])


@pytest.mark.parametrize(
    "places",
    [
        {},
        {"x": slice(3, 41), "y": slice(5, 6)},
        {"c": 0, "z": slice(None), "y": slice(10, 40, 7), "x": slice(None, None, 3)},
        {"t": 0, "c": 1, "z": -1, "y": 17, "x": 2},
        {"c": slice(1, None), "x": slice(-9, None), "y": slice(1000, None)},
        {"x": slice(20, 4)},
        {"c": np.int64(1), "y": slice(np.int32(2), np.int32(9))},
    ],
)
def test_regions_are_what_numpy_takes_from_the_whole(cells, fixtures, places):
    for level in range(len(cells.levels)):
        whole = theirs(fixtures, level)
        index = tuple(places.get(axis, slice(None)) for axis in "tczyx")
        if any(
            not isinstance(p, slice) and p >= n for p, n in zip(index, whole.shape, strict=True)
        ):
            continue
        got = cells.read_region(level, **places)
        np.testing.assert_array_equal(got, whole[index])
        assert got.dtype == whole.dtype
        assert got.shape == whole[index].shape


@pytest.mark.parametrize(
    "places",
    [{"z": 99}, {"c": -3}, {"t": 2}, {"x": slice(5, 1, -1)}, {"y": 1.5}, {"x": "3"}, {"x": slice("a", None)}],
)  # fmt: skip
def test_wrong_places_are_usage_errors(cells, places):
    with pytest.raises(openreadout.UsageError):
        cells.read_region(**places)


@pytest.mark.parametrize("level", [-1, 2, 99])
def test_levels_out_of_range_are_usage_errors(cells, level):
    for read in (cells.read_plane, cells.read_region, cells.to_dask, cells.to_xarray):
        with pytest.raises(openreadout.UsageError, match="level"):
            read(level=level)


def test_only_the_chunks_of_a_region_are_read(cells, monkeypatch):
    seen = []
    array = cells.levels[0].array
    stored = access.full(array, cells.axis_names)
    place_chunk = access.place_chunk
    monkeypatch.setattr(
        access, "place_chunk", lambda out, region, a, index: seen.append(index) or place_chunk(out, region, a, index)
    )  # fmt: skip
    y, x = stored.chunk_shape[3:]
    cells.read_region(c=1, z=0, t=0, y=slice(y - 1, y + 1), x=slice(x - 1, x + 1))
    assert {index[3:] for index in seen} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert len(seen) == 4


def test_asarray_is_the_whole_of_level_0(cells, fixtures):
    np.testing.assert_array_equal(np.asarray(cells), theirs(fixtures))
    assert np.asarray(cells, dtype="float32").dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        np.array(cells, copy=False)


def test_what_is_read_may_be_written_to(cells):
    plane = cells.read_plane()
    plane[:] = 0
    assert cells.read_plane().any()


def test_colour_planes_have_samples_last(fixtures):
    path = fixtures / RGB
    page = tifffile.imread(path)
    whole = np.moveaxis(page, -3, -1)
    with openreadout.open(path) as dataset:
        image = dataset.images[0]
        np.testing.assert_array_equal(image.read_plane(), whole)
        np.testing.assert_array_equal(image.read_region(t=0, c=0, z=0, x=4), whole[:, 4])
        assert image.to_dask().shape == (1, 1, 1, *whole.shape)
        assert image.to_xarray().dims == ("t", "c", "z", "y", "x", "s")


def test_widened_types_say_so(tmp_path):
    group = zarr.open_group(str(tmp_path / "b.zarr"), mode="w", zarr_format=2)
    for dtype, wide in (("bool", "uint8"), ("float16", "float32")):
        name = dtype
        sub = group.create_group(name)
        array = sub.create_array("0", shape=(4, 6), chunks=(2, 3), dtype=dtype)
        array[...] = np.arange(24).reshape(4, 6) % 2
        sub.attrs["multiscales"] = [
            {
                "version": "0.4",
                "axes": [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}],
                "datasets": [
                    {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 1]}]}
                ],
            }
        ]
        with openreadout.open(tmp_path / "b.zarr" / name) as dataset:
            image = dataset.images[0]
            assert image.read_plane().dtype == wide
            assert image.to_dask().dtype == wide
            np.testing.assert_array_equal(
                image.to_dask().compute()[0, 0, 0], array[...].astype(wide)
            )


# -- lazy arrays -----------------------------------------------------------------------------------


def test_dask_has_the_pixels_and_reads_by_chunk(cells, fixtures):
    for level in range(len(cells.levels)):
        whole = theirs(fixtures, level)
        lazy = cells.to_dask(level)
        assert (lazy.shape, lazy.dtype) == (whole.shape, whole.dtype)
        np.testing.assert_array_equal(lazy.compute(scheduler="threads"), whole)
        small = cells.to_dask(level, chunks=(1, 1, 1, 10, 7))
        assert small.chunksize[-2:] == (10, 7)
        np.testing.assert_array_equal(small[0, 1, :, 3:30:4, ::-1], whole[0, 1, :, 3:30:4, ::-1])


def test_dask_tasks_hold_whole_stored_chunks(cells):
    stored = access.full(cells.levels[0].array, cells.axis_names).chunk_shape
    for wanted, chunk in zip(cells.to_dask().chunksize, stored, strict=True):
        assert wanted % chunk == 0 or wanted < chunk or wanted in cells.to_dask().shape


@pytest.mark.parametrize(
    "data", [ZARR, TIFF, "ome-zarr/v3-zip/packed.ozx", "n5/z5py-viewer-pyramid/pyramid.n5"]
)
def test_a_process_that_knows_nothing_reads_the_same(fixtures, data, tmp_path, monkeypatch):
    source = fixtures / data
    monkeypatch.chdir(source.parent)
    with openreadout.open(source.name) as dataset:
        image = dataset.images[0]
        part, lazy = pickle.dumps(image), pickle.dumps(image.to_dask())
        whole = np.asarray(image)
    monkeypatch.chdir(tmp_path)
    with concurrent.futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        np.testing.assert_array_equal(pool.submit(_whole, part).result(), whole)
        np.testing.assert_array_equal(pool.submit(_compute, lazy).result(), whole)


def _whole(pickled):
    return np.asarray(pickle.loads(pickled))


def _compute(pickled):
    return pickle.loads(pickled).compute(scheduler="single-threaded")


def test_data_sets_and_what_was_changed_survive_pickling(fixtures):
    from dataclasses import replace

    with openreadout.open(fixtures / ZARR) as dataset:
        again = pickle.loads(pickle.dumps(dataset))
        assert [i.name for i in again.images] == [i.name for i in dataset.images]
        assert again.path.endswith(ZARR)
        renamed = pickle.loads(pickle.dumps(replace(dataset.images[0], name="other")))
        assert renamed.name == "other"
        np.testing.assert_array_equal(renamed.read_plane(), dataset.images[0].read_plane())


def test_a_replaced_store_is_opened_anew(fixtures, tmp_path):
    path = tmp_path / "data.ome.zarr"
    shutil.copytree(fixtures / ZARR, path)
    with openreadout.open(path) as dataset:
        pickled = pickle.dumps(dataset.images[0])
        before = pickle.loads(pickled).shape
    shutil.rmtree(path)
    shutil.copytree(fixtures / "ome-zarr/v3-sharded/sharded.ome.zarr", path)
    with openreadout.open(path) as dataset:
        after = dataset.images[0].shape
    assert pickle.loads(pickled).shape == after != before


def test_pickling_an_image_whose_file_is_gone_says_so(fixtures, tmp_path):
    path = tmp_path / "data.ome.zarr"
    shutil.copytree(fixtures / ZARR, path)
    with openreadout.open(path) as dataset:
        pickled = pickle.dumps(dataset.images[0])
    shutil.rmtree(path)
    with pytest.raises(openreadout.StorageError):
        pickle.loads(pickled)


def test_coordinates_are_in_micrometres_and_seconds(tmp_path):
    group = zarr.open_group(str(tmp_path / "t.zarr"), mode="w", zarr_format=2)
    group.create_array("0", shape=(3, 2, 2, 4, 6), chunks=(1, 1, 1, 4, 6), dtype="uint8")
    units = {"t": "minute", "z": "nanometer", "y": "micrometer"}
    kinds = {"t": "time", "c": "channel"}
    group.attrs["multiscales"] = [
        {
            "version": "0.4",
            "axes": [
                {"name": a, "type": kinds.get(a, "space"), **({"unit": units[a]} if a in units else {})}
                for a in "tczyx"
            ],
            "datasets": [
                {
                    "path": "0",
                    "coordinateTransformations": [
                        {"type": "scale", "scale": [0.5, 1, 250, 0.2, 0.3]},
                        {"type": "translation", "translation": [1, 0, 1000, 7, 0]},
                    ],
                }
            ],
        }
    ]  # fmt: skip
    group.attrs["omero"] = {"channels": [{"label": "a"}, {"label": "b"}]}
    with openreadout.open(tmp_path / "t.zarr") as dataset:
        array = dataset.images[0].to_xarray()
    np.testing.assert_allclose(array.t, [60, 90, 120])
    np.testing.assert_allclose(array.z, [1.0, 1.25])
    np.testing.assert_allclose(array.y, [7, 7.2, 7.4, 7.6])
    assert array.t.attrs == {"units": "s"}
    assert array.z.attrs == {"units": "µm"}
    assert "x" not in array.coords  # its unit is not known
    assert list(array.c.values) == ["a", "b"]
    assert array.sel(c="b", t=90).shape == (2, 4, 6)


def test_without_dask_and_xarray_the_extra_is_named(cells, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dask.array", None)
    with pytest.raises(openreadout.UsageError) as caught:
        cells.to_dask()
    assert "[dask]" in caught.value.hint
    monkeypatch.setitem(__import__("sys").modules, "xarray", None)
    with pytest.raises(openreadout.UsageError) as caught:
        cells.to_xarray()
    assert "[xarray]" in caught.value.hint


# -- hostile ---------------------------------------------------------------------------------------


@pytest.fixture
def endless(tmp_path):
    """An image whose metadata promises more than any memory holds."""
    group = zarr.open_group(str(tmp_path / "e.zarr"), mode="w", zarr_format=2)
    group.create_array("0", shape=(1 << 40, 1 << 40), chunks=(64, 64), dtype="uint16")
    group.attrs["multiscales"] = [
        {
            "version": "0.4",
            "axes": [{"name": a, "type": "space", "unit": "micrometer"} for a in "yx"],
            "datasets": [
                {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 1]}]}
            ],
        }
    ]
    with openreadout.open(tmp_path / "e.zarr") as dataset:
        yield dataset.images[0]


def test_an_endless_image_is_refused_before_it_is_allocated(endless):
    for read in (endless.read_plane, endless.read_region, endless.to_dask, endless.to_xarray):
        with pytest.raises(openreadout.UsageError):
            read()
    with pytest.raises(openreadout.UsageError):
        np.asarray(endless)
    assert not endless.read_region(y=slice(0, 3), x=slice(1 << 39, (1 << 39) + 2)).any()


def test_a_damaged_chunk_is_our_error(fixtures):
    path = fixtures / "malformed" / "zarr-chunk-cut" / "plain.zarr"
    with openreadout.open(path) as dataset:
        image = dataset.images[0]
        with pytest.raises(openreadout.CorruptDataError):
            np.asarray(image)
        with pytest.raises(openreadout.CorruptDataError):
            image.to_dask().compute()


def test_an_unknown_codec_is_our_error(fixtures):
    path = fixtures / "malformed" / "zarr-unknown-codec" / "time.zarr"
    with openreadout.open(path) as dataset, pytest.raises(openreadout.UnsupportedFeatureError):
        dataset.images[0].read_plane()
