"""The reader for napari, found and called by npe2 itself; pixels as tifffile, zarr and z5py read them."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pytest
import tifffile
import z5py
import zarr

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # npe2's own use of pydantic
    from npe2 import PluginManager, read

NAME = "openreadout-microscopy"


@pytest.fixture(scope="module", autouse=True)
def manager():
    """npe2 with the plugins of this environment, as napari starts it."""
    manager = PluginManager.instance()
    manager.discover()
    return manager


def layers(path):
    return read([str(path)], stack=False, plugin_name=NAME)


def test_npe2_finds_the_manifest_and_its_command(manager):
    manifest = manager.get_manifest(NAME)
    assert manifest.contributions.readers[0].accepts_directories
    assert callable(manager.commands.get(f"{NAME}.read"))


@pytest.mark.parametrize(
    "data",
    [
        "ome-tiff/pyramid/cells.ome.tiff",
        "ome-zarr/v3-zip/packed.ozx",
        "ome-zarr/v3-labels/labelled.zarr",
        "n5/z5py-viewer-pyramid/pyramid.n5",
    ],
)
def test_every_format_is_offered_by_its_name(manager, fixtures, data):
    offered = {reader.plugin_name for reader in manager.iter_compatible_readers([str(fixtures / data)])}  # fmt: skip
    assert NAME in offered


def test_a_pyramid_is_one_multiscale_layer_split_by_channel(fixtures):
    path = fixtures / "ome-tiff/pyramid/cells.ome.tiff"
    ((data, options, kind),) = layers(path)
    assert kind == "image"
    assert options["multiscale"] is True
    assert options["channel_axis"] == 1
    assert options["name"] == ["cells nuclei", "cells membranes"]
    assert options["scale"][-2:] == [0.5, 0.5]
    with tifffile.TiffFile(path) as file:
        for level, theirs in zip(data, file.series[0].levels, strict=True):
            assert np.array_equal(np.squeeze(level.compute()), np.squeeze(theirs.asarray()))


def test_colours_windows_and_time_are_those_of_the_file(fixtures):
    path = fixtures / "ome-zarr/v2-blosc-channels/cells.ome.zarr"
    ((data, options, _),) = layers(path)
    group = zarr.open_group(str(path), mode="r")
    channels = group.attrs["omero"]["channels"]
    assert options["colormap"] == [f"#{channel['color']}" for channel in channels]
    assert options["contrast_limits"] == [
        [channel["window"]["start"], channel["window"]["end"]] for channel in channels
    ]
    t, z, y, x = options["scale"]
    assert (t, z, y, x) == (30, 2, 0.5, 0.25)  # s and µm
    assert np.array_equal(data[0].compute(), group["0"][:])


def test_labels_are_a_labels_layer(fixtures):
    path = fixtures / "ome-zarr/v3-labels/labelled.zarr"
    (_, image, kind), (data, labels, label_kind) = layers(path)
    assert (kind, label_kind) == ("image", "labels")
    assert labels["scale"] == image["scale"]
    assert {"rgb", "multiscale", "channel_axis"}.isdisjoint(labels)
    assert np.array_equal(data.compute(), zarr.open_array(str(path / "labels/cells/0"), mode="r")[:])  # fmt: skip


def test_rgb_has_its_samples_last(fixtures):
    path = fixtures / "ome-tiff/rgb-planar/image.ome.tiff"
    ((data, options, _),) = layers(path)
    assert options["rgb"] is True
    theirs = np.moveaxis(np.squeeze(tifffile.imread(path)), 0, -1)
    assert np.array_equal(np.squeeze(data.compute()), theirs)


def test_volumes_keep_the_axes_that_are_stored(fixtures):
    path = fixtures / "n5/z5py-dimensions/dimensions.n5"
    found = {options["name"]: data for data, options, _ in layers(path)}
    theirs = z5py.File(str(path), mode="r", use_zarr_format=False)
    assert found["d1"].shape == (1, *theirs["d1"].shape)
    for name in ("d2", "d3"):
        assert np.array_equal(found[name].compute(), theirs[name][:])


@pytest.fixture
def plate(tmp_path):
    """A plate of two rows and two columns without B/1, two fields in A/1."""
    path = tmp_path / "plate.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    group.attrs["plate"] = {
        "version": "0.4",
        "name": "screen",
        "rows": [{"name": "A"}, {"name": "B"}],
        "columns": [{"name": "1"}, {"name": "2"}],
        "wells": [
            {"path": "A/1", "rowIndex": 0, "columnIndex": 0},
            {"path": "A/2", "rowIndex": 0, "columnIndex": 1},
            {"path": "B/2", "rowIndex": 1, "columnIndex": 1},
        ],
    }
    for number, (well, fields) in enumerate([("A/1", 2), ("A/2", 1), ("B/2", 1)]):
        place = group.create_group(well)
        place.attrs["well"] = {"version": "0.4", "images": [{"path": str(n)} for n in range(fields)]}  # fmt: skip
        for field in range(fields):
            image = place.create_group(str(field))
            scales = [[0.5, 0.5], [1.0, 1.0]]
            image.attrs["multiscales"] = [
                {
                    "version": "0.4",
                    "axes": [{"name": n, "type": "space", "unit": "micrometer"} for n in "yx"],
                    "datasets": [
                        {
                            "path": str(level),
                            "coordinateTransformations": [{"type": "scale", "scale": scale}],
                        }
                        for level, scale in enumerate(scales)
                    ],
                }
            ]
            value = 10 * (number + 1) + field
            image.create_array("0", data=np.full((4, 6), value, np.uint8))
            image.create_array("1", data=np.full((2, 3), value, np.uint8))
    return path


def test_a_plate_shows_every_field_in_the_place_of_its_well(plate):
    ((data, options, kind),) = layers(plate)
    assert kind == "image"
    assert options["name"] == "screen"
    assert options["scale"] == [0.5, 0.5]
    for level, (height, width) in zip(data, [(4, 6), (2, 3)], strict=True):
        fields = np.kron([[10, 11, 20, 0], [0, 0, 30, 0]], np.ones((height, width)))
        assert np.array_equal(level.compute(), fields)


def test_fields_of_a_well_lie_in_a_square(plate):
    well = zarr.open_group(str(plate / "A/2"))
    for name in ("1", "2", "3", "4"):
        shutil.copytree(plate / "B/2/0", plate / "A/2" / name)
    well.attrs["well"] = {"version": "0.4", "images": [{"path": str(n)} for n in range(5)]}
    ((data, _, _),) = layers(plate)
    fields = [[10, 11, 0, 20, 30, 30], [0, 0, 0, 30, 30, 0], [0, 0, 0, 30, 0, 0], [0] * 6]
    assert np.array_equal(data[0].compute(), np.kron(fields, np.ones((4, 6))))


def test_fields_of_different_size_are_layers_of_their_own(plate):
    image = zarr.open_group(str(plate / "B/2/0"))
    image.create_array("0", data=np.zeros((3, 6), np.uint8), overwrite=True)
    assert len(layers(plate)) == 4


def test_what_is_not_read_here_is_left_to_other_plugins(fixtures, tmp_path):
    from openreadout_napari import get_reader

    plain = tmp_path / "plain.zarr"
    plain.mkdir()
    assert get_reader(str(plain)) is None
    assert get_reader([str(fixtures / "malformed/text-file/notes.txt")]) is None
    with pytest.raises(ValueError, match="refused the file"):
        layers(plain)


def test_damage_is_said_when_it_is_read(fixtures):
    import openreadout

    with pytest.raises(openreadout.CorruptDataError):
        layers(fixtures / "malformed/tiff-cut/image.ome.tiff")
