"""The reader for bioio, found and used by bioio itself; pixels as tifffile and zarr read them."""

from __future__ import annotations

from datetime import timedelta

import fsspec
import numpy as np
import pytest
import tifffile
import zarr
from bioio import BioImage, plugins
from bioio_base.exceptions import UnsupportedFileFormatError

from openreadout_bioio import Reader


def test_bioio_lists_the_reader():
    found = plugins.get_plugins(use_cache=False)
    for extension in (".n5", ".ome.zarr", ".ome.tiff", ".ozx"):
        names = [entry.entrypoint.name for entry in found[extension]]
        assert "openreadout-microscopy" in names


@pytest.mark.parametrize(
    "data",
    [
        "ome-tiff/pyramid/cells.ome.tiff",
        "ome-zarr/v3-zip/packed.ozx",
        "n5/z5py-viewer-pyramid/pyramid.n5",
    ],
)
def test_bioio_chooses_the_reader_by_itself(fixtures, data):
    assert isinstance(BioImage(fixtures / data).reader, Reader)


def test_levels_have_the_pixels_and_sizes_of_the_file(fixtures):
    path = fixtures / "ome-tiff/pyramid/cells.ome.tiff"
    image = BioImage(path, reader=Reader)
    assert image.scenes == ("cells",)
    assert image.dims.order == "TCZYX"
    assert image.channel_names == ["nuclei", "membranes"]
    with tifffile.TiffFile(path) as file:
        for level, theirs in enumerate(file.series[0].levels):
            image.set_resolution_level(level)
            assert np.array_equal(np.squeeze(image.data), np.squeeze(theirs.asarray()))
            assert image.physical_pixel_sizes == (None, 0.5 * 2**level, 0.5 * 2**level)
    assert image.resolution_level_dims[2] == (1, 2, 1, 16, 20)


def test_regions_and_orders_are_those_of_bioio(fixtures):
    path = fixtures / "ome-zarr/v2-blosc-channels/cells.ome.zarr"
    image = BioImage(path, reader=Reader)
    theirs = zarr.open_array(str(path / "0"), mode="r")[:]
    assert np.array_equal(image.get_image_data("ZYX", T=1, C=1), theirs[1, 1])
    assert np.array_equal(image.get_image_dask_data("XYZ", T=0, C=0).compute(), theirs[0, 0].T)
    assert image.channel_names == ["DAPI", "GFP"]
    assert image.physical_pixel_sizes == (2, 0.5, 0.25)
    assert image.time_interval == timedelta(seconds=30)


def test_images_are_scenes_and_the_level_follows(fixtures):
    path = fixtures / "ome-tiff/two-images/two.ome.tiff"
    image = BioImage(path, reader=Reader)
    with tifffile.TiffFile(path) as file:
        for number, series in enumerate(file.series):
            image.set_scene(number)
            assert np.array_equal(np.squeeze(image.data), np.squeeze(series.asarray()))
    assert len(set(image.scenes)) == 2


def test_a_scene_without_the_chosen_level_is_shown_whole(fixtures):
    reader = Reader(fixtures / "n5/z5py-types/types.n5")
    assert len(reader.scenes) > 1
    pyramid = Reader(fixtures / "ome-zarr/v3-collection-types/types.zarr")
    for number in range(len(pyramid.scenes)):
        pyramid.set_resolution_level(pyramid.resolution_levels[-1])
        pyramid.set_scene(number)
        assert pyramid.current_resolution_level in pyramid.resolution_levels
        assert pyramid.xarray_dask_data.dims[-2:] == ("Y", "X")


def test_ome_metadata_is_the_source_s_own(fixtures):
    path = fixtures / "ome-tiff/pyramid/cells.ome.tiff"
    image = BioImage(path, reader=Reader)
    assert image.ome_metadata.images[0].name == "cells"
    assert image.metadata.name == "cells"
    with pytest.raises(NotImplementedError):
        Reader(fixtures / "ome-zarr/v3-sharded/sharded.ome.zarr").ome_metadata  # noqa: B018


def test_rgb_has_its_samples_last(fixtures):
    path = fixtures / "ome-tiff/rgb-interleaved/image.ome.tiff"
    image = BioImage(path, reader=Reader)
    assert image.dims.order == "TCZYXS"
    assert np.array_equal(np.squeeze(image.data), np.squeeze(tifffile.imread(path)))


def test_what_is_not_read_is_refused_in_bioio_s_words(fixtures, tmp_path):
    with pytest.raises(UnsupportedFileFormatError, match="no reader recognises"):
        Reader(fixtures / "malformed/text-file/notes.txt")
    with pytest.raises(FileNotFoundError):
        Reader(tmp_path / "absent.zarr")


def test_other_file_systems_are_refused():
    fsspec.filesystem("memory").pipe("/x.zarr/.zattrs", b"{}")
    with pytest.raises(UnsupportedFileFormatError, match="Local files only"):
        Reader("memory://x.zarr")
