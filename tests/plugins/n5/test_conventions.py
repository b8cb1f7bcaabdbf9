"""Each convention laid over N5: axes, sizes, levels, channels and time points as its writers mean them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import z5py

from openreadout.arrays import read_region
from openreadout.errors import CorruptDataError, UsageError
from openreadout.registry import open_dataset

NM, UM = "nanometer", "micrometer"


def _file(path):
    _describe(path, {"n5": "2.0.0"})
    return z5py.File(str(path), mode="a", use_zarr_format=False)


def _put(path, where, data, chunks=None, **attributes):
    """Write `data` (slowest axis first) with z5py, then its attributes."""
    chunks = chunks or tuple(max(1, (n + 1) // 2) for n in data.shape)
    _file(path).create_dataset(where, data=data, chunks=chunks, compression="gzip", n_threads=1)
    _describe(path / where, attributes)


def _describe(folder, attributes):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "attributes.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**known, **attributes}))


def _pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 60000, shape, dtype=np.uint16)


def _whole(array):
    return read_region(array, tuple((0, n) for n in array.shape))


def _only(path, **options):
    with open_dataset(str(path), **options) as dataset:
        assert len(dataset.images) == 1, [i.extra["group"] for i in dataset.images]
        return dataset.images[0], dataset


def _units(image):
    return {axis.name: axis.unit for axis in image.axes}


# -- plain datasets


@pytest.mark.parametrize(
    ("shape", "names", "order"),
    [
        ((7,), "x", None), ((5, 7), "yx", "XYZCT"), ((4, 5, 7), "zyx", "XYZCT"),
        ((3, 4, 5, 7), "czyx", "XYZCT"), ((2, 3, 4, 5, 7), "tczyx", "XYZCT"),
    ],
)  # fmt: skip
def test_axes_that_nobody_names_are_assumed_with_a_note(tmp_path, shape, names, order):
    data = _pixels(*shape)
    _put(tmp_path / "c.n5", "a", data)
    image, dataset = _only(tmp_path / "c.n5")
    assert image.axis_names == names
    np.testing.assert_array_equal(_whole(image.levels[0].array), data)
    assert any("assumed" in note for note in dataset.notes)
    assert image.physical_size is None
    assert order is None or image.dimension_order == order


def test_axes_units_and_resolution_are_believed(tmp_path):
    data = _pixels(2, 3, 4, 5)
    _put(
        tmp_path / "c.n5", "a", data,
        axes=["x", "y", "c", "t"], units=["nm", "nm", "", "s"], resolution=[100, 200, 1, 0.5],
    )  # fmt: skip
    image, dataset = _only(tmp_path / "c.n5")
    assert image.axis_names == "tcyx"
    assert image.dimension_order == "XYCTZ"
    np.testing.assert_array_equal(_whole(image.levels[0].array), data)
    assert image.physical_size == {"x": 0.1, "y": 0.2, "z": None}
    assert image.time_increment_s == 0.5
    assert image.extra["axes"] == ["x", "y", "c", "t"]
    assert image.extra["scale"] == [100.0, 200.0, 1.0, 0.5]
    assert dataset.notes == ()


def test_axes_in_another_order_turn_the_array(tmp_path):
    data = _pixels(3, 4, 5)
    _put(tmp_path / "c.n5", "a", data, axes=["z", "y", "x"])
    image, _ = _only(tmp_path / "c.n5")
    assert image.axis_names == "zyx"
    np.testing.assert_array_equal(_whole(image.levels[0].array), data.T)


def test_person_names_the_axes(tmp_path):
    data = _pixels(3, 4, 5, 6)
    _put(tmp_path / "c.n5", "a", data)
    image, dataset = _only(tmp_path / "c.n5", axes="xyct")
    assert image.axis_names == "tcyx"
    np.testing.assert_array_equal(_whole(image.levels[0].array), data)
    assert dataset.notes == ()


def test_names_in_the_file_stand_over_a_persons(tmp_path):
    _put(tmp_path / "c.n5", "a", _pixels(3, 4, 5), axes=["x", "y", "t"])
    image, dataset = _only(tmp_path / "c.n5", axes="xyz")
    assert image.axis_names == "tyx"
    assert any("--axes" in note for note in dataset.notes)


@pytest.mark.parametrize("axes", ["xy", "xyzc", "xxy", "abc", "yzc", "", "xy z"])
def test_letters_that_cannot_be_are_refused(tmp_path, axes):
    _put(tmp_path / "c.n5", "a", _pixels(3, 4, 5))
    with pytest.raises(UsageError):
        open_dataset(str(tmp_path / "c.n5"), axes=axes)


@pytest.mark.parametrize(
    "axes", [["x", "x", "z"], ["a", "b", "c"], [1, 2, 3], ["x"], "xyz", {"x": 0}, [None] * 3]
)
def test_axes_that_make_no_sense_are_not_used(tmp_path, axes):
    _put(tmp_path / "c.n5", "a", _pixels(3, 4, 5), axes=axes)
    image, dataset = _only(tmp_path / "c.n5")
    assert image.axis_names == "zyx"
    assert any("assumed" in note for note in dataset.notes)


def test_colour_samples_can_be_named(tmp_path):
    data = _pixels(4, 5, 3)
    _put(tmp_path / "c.n5", "a", data)
    image, _ = _only(tmp_path / "c.n5", axes="sxy")
    assert (image.axis_names, image.samples_per_pixel, image.size("c")) == ("yxs", 3, 1)
    np.testing.assert_array_equal(_whole(image.levels[0].array), data)


def test_axis_that_the_model_lacks_is_read_at_its_first_index(tmp_path):
    data = _pixels(3, 4, 5)
    _put(tmp_path / "c.n5", "a", data, axes=["x", "y", "angle"])
    image, _ = _only(tmp_path / "c.n5")
    assert image.axis_names == "yx"
    assert image.extra["unmapped_axes"] == ["angle"]
    np.testing.assert_array_equal(_whole(image.levels[0].array), data[0])


def test_sizes_without_a_unit_are_kept_raw(tmp_path):
    _put(tmp_path / "c.n5", "a", _pixels(3, 4, 5), resolution=[4, 4, 40], offset=[8, 0, 80])
    image, _ = _only(tmp_path / "c.n5")
    assert image.physical_size is None
    assert image.extra["scale"] == [4.0, 4.0, 40.0]
    assert image.levels[0].translation == (80.0, 0.0, 8.0)


@pytest.mark.parametrize(
    "bad", [[0, 4, 40], [-1, 4, 40], [1e400, 4, 40], ["4", 4, 40], [None, 4, 40]]
)
def test_size_that_is_none_is_unknown(tmp_path, bad):
    _put(tmp_path / "c.n5", "a", _pixels(3, 4, 5), resolution=bad, units=["nm"] * 3)
    image, _ = _only(tmp_path / "c.n5")
    assert image.physical_size == {"x": None, "y": 0.004, "z": 0.04}


# -- n5-viewer


@pytest.mark.parametrize("as_object", [True, False])
@pytest.mark.parametrize("key", ["scales", "downsamplingFactors"])
def test_viewer_pyramid(tmp_path, key, as_object):
    data = _pixels(4, 8, 12)
    resolution = {"unit": "nm", "dimensions": [4, 5, 40]} if as_object else [4, 5, 40]
    _describe(tmp_path / "c.n5/vol", {"pixelResolution": resolution, key: [[1, 1, 1], [2, 2, 1]]})
    _put(tmp_path / "c.n5", "vol/s0", data)
    _put(tmp_path / "c.n5", "vol/s1", data[:, ::2, ::2])
    image, dataset = _only(tmp_path / "c.n5")
    assert (image.extra["group"], image.extra["convention"]) == ("vol", "n5-viewer")
    assert [level.path for level in image.levels] == ["s0", "s1"]
    assert [level.scale for level in image.levels] == [(40, 5, 4), (40, 10, 8)]
    assert [level.translation for level in image.levels] == [(0, 0, 0), (0, 2.5, 2)]
    expected = {"x": 0.004, "y": 0.005, "z": 0.04} if as_object else None
    assert image.physical_size == expected
    np.testing.assert_array_equal(_whole(image.levels[1].array), data[:, ::2, ::2])
    assert dataset.notes == ()
    assert list(dataset.inspect(True)) == []


def test_factors_in_each_level(tmp_path):
    _put(
        tmp_path / "c.n5",
        "s0",
        _pixels(4, 8, 12),
        pixelResolution={"unit": "um", "dimensions": [1, 1, 3]},
    )
    _put(tmp_path / "c.n5", "s1", _pixels(1, 4, 6), downsamplingFactors=[2, 2, 4])
    image, _ = _only(tmp_path / "c.n5")
    assert image.extra["group"] == "/"
    assert image.levels[1].scale == (12, 2, 2)
    assert image.levels[1].translation == (4.5, 0.5, 0.5)


def test_ten_levels_keep_their_order(tmp_path):
    _describe(tmp_path / "c.n5/v", {"scales": [[n + 1] * 3 for n in range(12)]})
    for n in range(12):
        _put(tmp_path / "c.n5", f"v/s{n}", _pixels(2, 24 // (n + 1), 24 // (n + 1)))
    image, _ = _only(tmp_path / "c.n5")
    assert [level.path for level in image.levels] == [f"s{n}" for n in range(12)]
    assert [level.scale[-1] for level in image.levels] == [n + 1.0 for n in range(12)]


def test_channel_groups_are_one_image(tmp_path):
    data = _pixels(2, 4, 8, 12)
    _describe(
        tmp_path / "c.n5",
        {
            "scales": [[1, 1, 1], [2, 2, 1]],
            "pixelResolution": {"unit": "um", "dimensions": [1, 1, 2]},
        },
    )
    for c in range(2):
        _put(tmp_path / "c.n5", f"c{c}/s0", data[c])
        _put(tmp_path / "c.n5", f"c{c}/s1", data[c, :, ::2, ::2])
    image, _ = _only(tmp_path / "c.n5")
    assert image.extra["group"] == "/"
    assert image.axis_names == "czyx"
    assert image.physical_size == {"x": 1.0, "y": 1.0, "z": 2.0}
    np.testing.assert_array_equal(_whole(image.levels[0].array), data)
    np.testing.assert_array_equal(_whole(image.levels[1].array), data[:, :, ::2, ::2])
    assert image.levels[1].scale == (None, 2, 2, 2)


def test_channel_groups_of_different_size_stay_images(tmp_path):
    for c in range(2):
        _put(tmp_path / "c.n5", f"c{c}/s0", _pixels(2 + c, 4, 4), downsamplingFactors=[1, 1, 1])
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        assert [image.extra["group"] for image in dataset.images] == ["c0", "c1"]
        assert any("differ" in note for note in dataset.notes)


def test_shrinking_levels_without_a_word_get_the_factors_of_their_size(tmp_path):
    for n, shape in enumerate([(9, 16, 20), (9, 8, 10), (5, 4, 5)]):
        _put(tmp_path / "c.n5", f"v/s{n}", _pixels(*shape))
    image, dataset = _only(tmp_path / "c.n5")
    assert [level.scale for level in image.levels] == [(1, 1, 1), (1, 2, 2), (2, 4, 4)]
    assert any("factors" in note for note in dataset.notes)


def test_samples_named_like_levels_stay_images(tmp_path):
    for n in range(3):
        _put(tmp_path / "c.n5", f"v/s{n}", _pixels(4, 8, 8, seed=n))
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        assert [image.extra["group"] for image in dataset.images] == ["v/s0", "v/s1", "v/s2"]


def test_level_of_another_rank_is_told_and_stays_an_image(tmp_path):
    _describe(tmp_path / "c.n5/v", {"scales": [[1, 1, 1], [2, 2, 2]]})
    _put(tmp_path / "c.n5", "v/s0", _pixels(4, 8, 8))
    _put(tmp_path / "c.n5", "v/s1", _pixels(4, 4))
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        assert [image.extra["group"] for image in dataset.images] == ["v", "v/s1"]
        assert [(f.code, f.location) for f in dataset.findings] == [
            ("pyramid", "v/s1/attributes.json")
        ]


def test_check_tells_of_factors_that_do_not_fit(tmp_path):
    _describe(tmp_path / "c.n5/v", {"scales": [[1, 1, 1], [4, 4, 4], [8, 8, 8]]})
    _put(tmp_path / "c.n5", "v/s0", _pixels(8, 8, 8))
    _put(tmp_path / "c.n5", "v/s1", _pixels(4, 4, 4))
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        messages = [f.message for f in dataset.inspect(False)]
    assert len(messages) == 2
    assert "lists 3 levels" in messages[0]
    assert "downsampling by 4" in messages[1]


# -- COSEM, canonical, NGFF


def _transform(order, scale, translate):
    fields = {"axes": ["z", "y", "x"], "units": ["nm"] * 3, "scale": scale, "translate": translate}
    return {key: value[::order] for key, value in fields.items()}


@pytest.mark.parametrize("order", [1, -1], ids=["slowest-first", "fastest-first"])
@pytest.mark.parametrize("where", ["group", "levels"])
def test_cosem_transform(tmp_path, order, where):
    transforms = [
        _transform(order, [3.24, 4.0, 5.0], [0.0, 8.0, 16.0]),
        _transform(order, [6.48, 8.0, 10.0], [1.62, 10.0, 18.5]),
    ]
    for n, transform in enumerate(transforms):
        own = {"transform": transform} if where == "levels" else {}
        _put(tmp_path / "c.n5", f"em/s{n}", _pixels(4 // (n + 1), 6, 8), **own)
    if where == "group":
        datasets = [{"path": f"s{n}", "transform": t} for n, t in enumerate(transforms)]
        _describe(tmp_path / "c.n5/em", {"multiscales": [{"name": "fib", "datasets": datasets}]})
    image, _ = _only(tmp_path / "c.n5")
    assert (image.extra["group"], image.extra["convention"]) == ("em", "cosem")
    assert image.name == ("fib" if where == "group" else "em")
    assert [level.scale for level in image.levels] == [(3.24, 4.0, 5.0), (6.48, 8.0, 10.0)]
    assert [level.translation for level in image.levels] == [(0.0, 8.0, 16.0), (1.62, 10.0, 18.5)]
    assert image.physical_size == {"x": 0.005, "y": 0.004, "z": 0.00324}
    assert image.extra["scale"] == [5.0, 4.0, 3.24]


def test_levels_in_another_unit_are_brought_to_the_first_ones(tmp_path):
    for n, (unit, scale) in enumerate(
        [("um", [1, 0.5, 0.5]), ("nm", [2000, 1000, 1000]), ("furlong", [1, 1, 1])]
    ):
        transform = {
            "axes": ["z", "y", "x"],
            "units": [unit] * 3,
            "scale": scale,
            "translate": scale,
        }
        _put(tmp_path / "c.n5", f"s{n}", _pixels(4, 8 >> n, 8 >> n), transform=transform)
    image, _ = _only(tmp_path / "c.n5")
    assert [level.scale for level in image.levels] == [(1, 0.5, 0.5), (2, 1, 1), (None,) * 3]
    assert image.levels[1].translation == (2, 1, 1)


def test_check_tells_of_a_resolution_that_contradicts_the_transform(tmp_path):
    transform = {
        "axes": ["z", "y", "x"],
        "units": ["um"] * 3,
        "scale": [1, 0.5, 0.5],
        "translate": [0, 0, 0],
    }
    for name, size in (("same", [500, 500, 1000]), ("other", [400, 500, 1000])):
        resolution = {"unit": "nm", "dimensions": size}
        _put(
            tmp_path / "c.n5",
            name,
            _pixels(4, 8, 8),
            transform=transform,
            pixelResolution=resolution,
        )
    with open_dataset(str(tmp_path / "c.n5")) as dataset:
        found = [(f.code, f.severity, f.image, f.location) for f in dataset.inspect(False)]
    assert found == [("metadata", "warning", 0, "other/attributes.json")]


@pytest.mark.parametrize(("order", "scale"), [("C", (3, 2, 1)), ("F", (1, 2, 3))])
def test_stated_order_of_a_transform_decides(tmp_path, order, scale):
    transform = {"order": order, "scale": [3, 2, 1], "translate": [0, 0, 0], "units": ["nm"] * 3}
    _put(tmp_path / "c.n5", "a", _pixels(4, 6, 8), transform=transform)
    image, _ = _only(tmp_path / "c.n5")
    assert image.levels[0].scale == scale


def test_canonical_pyramid(tmp_path):
    datasets = []
    for n in range(2):
        _put(tmp_path / "c.n5", f"m/{'ab'[n]}", _pixels(4 >> n, 6 >> n, 8 >> n))
        affine = [2.0 * 2**n, 0, 0, n, 0, 3.0 * 2**n, 0, n, 0, 0, 4.0 * 2**n, n]
        transform = {"transform": {"type": "affine", "affine": affine}, "unit": "um"}
        datasets.append({"path": "ab"[n], "spatialTransform": transform})
    _describe(tmp_path / "c.n5/m", {"multiscales": {"path": "", "datasets": datasets}})
    image, dataset = _only(tmp_path / "c.n5")
    assert (image.extra["group"], image.extra["convention"]) == ("m", "canonical")
    assert [level.scale for level in image.levels] == [(4, 3, 2), (8, 6, 4)]
    assert [level.translation for level in image.levels] == [(0, 0, 0), (1, 1, 1)]
    assert image.physical_size == {"x": 2.0, "y": 3.0, "z": 4.0}
    assert dataset.notes == ()


@pytest.mark.parametrize("order", [1, -1], ids=["slowest-first", "fastest-first"])
def test_ngff_in_n5_attributes(tmp_path, order):
    names = ["t", "c", "z", "y", "x"]
    kinds = ["time", "channel", "space", "space", "space"]
    units = ["second", None, UM, UM, UM]
    axes = [
        {"name": n, "type": k, **({"unit": u} if u else {})}
        for n, k, u in zip(names, kinds, units, strict=True)
    ]
    data = _pixels(2, 3, 4, 8, 6)
    levels = [data, data[..., ::2, ::2]]
    datasets = []
    for n, level in enumerate(levels):
        _put(tmp_path / "c.n5", f"im/{n}", level)
        steps = [
            {"type": "scale", "scale": [1, 1, 2, 2**n, 2**n][::order]},
            {"type": "translation", "translation": [0, 0, 0, n * 0.5, n * 0.5][::order]},
        ]
        datasets.append({"path": str(n), "coordinateTransformations": steps})
    whole = [{"type": "scale", "scale": [0.1, 1, 0.5, 0.5, 0.5][::order]}]
    multiscale = {
        "version": "0.4", "name": "cells", "axes": axes[::order], "datasets": datasets,
        "coordinateTransformations": whole,
    }  # fmt: skip
    omero = {
        "channels": [
            {"label": n, "color": c} for n, c in zip("abc", ["FF0000", "00FF00", "zz"], strict=True)
        ]
    }
    _describe(tmp_path / "c.n5/im", {"multiscales": [multiscale], "omero": omero})
    image, dataset = _only(tmp_path / "c.n5")
    assert (image.name, image.axis_names, image.extra["convention"]) == ("cells", "tczyx", "ngff")
    assert [level.scale for level in image.levels] == [(0.1, 1, 1, 0.5, 0.5), (0.1, 1, 1, 1, 1)]
    assert image.levels[1].translation == (0, 0, 0, 0.25, 0.25)
    assert image.physical_size == {"x": 0.5, "y": 0.5, "z": 1.0}
    assert image.time_increment_s == 0.1
    assert [c.name for c in image.channels] == ["a", "b", "c"]
    assert [c.color for c in image.channels] == ["#FF0000", "#00FF00", None]
    np.testing.assert_array_equal(_whole(image.levels[1].array), levels[1])
    assert dataset.notes == ()


@pytest.mark.parametrize(
    "path", ["../other", "/etc", "a/../../b", "s0\0", "c:", "..\\x", 5, None, ["s0"], {}]
)
def test_level_path_that_leads_out_is_not_followed(tmp_path, path):
    _put(tmp_path, "other", _pixels(2, 3))
    _put(tmp_path / "c.n5", "g/s0", _pixels(2, 3))
    datasets = [{"path": path}, {"path": "s0"}]
    _describe(tmp_path / "c.n5/g", {"multiscales": [{"datasets": datasets}]})
    image, dataset = _only(tmp_path / "c.n5")
    assert [level.path for level in image.levels] == ["s0"]
    assert {f.location for f in dataset.findings} == {"g/attributes.json"}


@pytest.mark.parametrize(
    "multiscales",
    [5, "x", [], [5], [None], [{"datasets": 5}], [{"datasets": []}], {"datasets": {}}, [[[]]]],
)
def test_multiscales_of_another_shape_leaves_plain_datasets(tmp_path, multiscales):
    _put(tmp_path / "c.n5", "g/a", _pixels(2, 3))
    _describe(tmp_path / "c.n5/g", {"multiscales": multiscales})
    image, _ = _only(tmp_path / "c.n5")
    assert image.extra["group"] == "g/a"


@pytest.mark.parametrize(
    ("transform", "scale", "translation"),
    [
        ({"type": "affine", "affine": [2, 0, 0, 7, 0, 3, 0, 8, 0, 0, 4, 9]}, (4, 3, 2), (9, 8, 7)),
        ({"type": "scale", "scale": [2, 3, 4]}, (4, 3, 2), (0, 0, 0)),
        ({"type": "translation", "translation": [5, 6, 7]}, (1, 1, 1), (7, 6, 5)),
        ({"type": "identity"}, (1, 1, 1), (0, 0, 0)),
        (
            {"type": "sequence", "transformations": [
                {"type": "translation", "translation": [1, 1, 1]}, {"type": "scale", "scale": [2, 3, 4]},
            ]},
            (4, 3, 2), (4, 3, 2),
        ),
    ],
)  # fmt: skip
def test_canonical_transforms(tmp_path, transform, scale, translation):
    spatial = {"transform": transform, "unit": "um"}
    _put(
        tmp_path / "c.n5",
        "a",
        _pixels(3, 4, 5),
        spatialTransform=spatial,
        intensityLimits={"min": 1, "max": 9},
    )
    image, _ = _only(tmp_path / "c.n5")
    assert image.extra["convention"] == "canonical"
    assert image.levels[0].scale == scale
    assert image.levels[0].translation == translation
    assert image.physical_size["x"] == scale[2]
    assert (image.channels[0].window.start, image.channels[0].window.end) == (1.0, 9.0)


def test_turning_affine_gives_no_scale_and_a_warning(tmp_path):
    affine = [0, -2, 0, 0, 2, 0, 0, 0, 0, 0, 4, 0]
    spatial = {"transform": {"type": "affine", "affine": affine}, "unit": "um"}
    _put(tmp_path / "c.n5", "a", _pixels(3, 4, 5), spatialTransform=spatial)
    image, dataset = _only(tmp_path / "c.n5")
    assert image.physical_size is None
    assert any("turns" in f.message for f in dataset.findings)


# -- Fiji


@pytest.mark.parametrize(
    ("shape", "counts", "names"),
    [((2, 5, 3, 6, 7), (3, 5, 2), "tczyx"), ((5, 6, 7), (1, 5, 1), "zyx"), ((3, 6, 7), (3, 1, 1), "cyx"),
     ((2, 3, 6, 7), (3, 1, 2), "tcyx")],
)  # fmt: skip
def test_imageplus_attributes(tmp_path, shape, counts, names):
    data = _pixels(*shape)
    _put(
        tmp_path / "c.n5", "a", data, name="mitosis.tif", numChannels=counts[0], numSlices=counts[1],
        numFrames=counts[2], pixelWidth=0.1, pixelHeight=0.2, pixelDepth=0.5, pixelUnit="micron",
        frameInterval=30, xOrigin=10, yOrigin=0, zOrigin=0,
    )  # fmt: skip
    image, dataset = _only(tmp_path / "c.n5")
    assert (image.name, image.axis_names) == ("mitosis.tif", names)
    assert image.extra["convention"] == "imagej"
    sizes = image.physical_size
    assert (sizes["x"], sizes["y"]) == (0.1, 0.2)
    assert sizes["z"] == (0.5 if "z" in names else None)
    assert image.time_increment_s == (30.0 if "t" in names else None)
    assert image.levels[0].translation[-1] == -1.0
    assert dataset.notes == ()
    # ImageJ's order is x y c z t; the model's is t c z y x.
    stored = "".join(a for a in "tzcyx" if a in names)
    order = [stored.index(a) for a in names]
    np.testing.assert_array_equal(_whole(image.levels[0].array), data.transpose(order))


# -- BigDataViewer

XML = """<?xml version="1.0" encoding="UTF-8"?>
<SpimData version="0.2"><BasePath type="relative">.</BasePath><SequenceDescription>
<ImageLoader format="bdv.n5" version="1.0"><n5 type="relative">{container}</n5></ImageLoader>
<ViewSetups>{setups}
<Attributes name="channel"><Channel><id>0</id><name>GFP</name></Channel></Attributes></ViewSetups>
<Timepoints type="pattern"><integerpattern>{times}</integerpattern></Timepoints>
<MissingViews>{missing}</MissingViews></SequenceDescription></SpimData>"""
SETUP = """<ViewSetup><id>{n}</id><name>tile {n}</name><size>12 8 4</size><voxelSize><unit>um</unit>
<size>0.5 0.25 2.0</size></voxelSize><attributes><illumination>0</illumination><channel>0</channel>
<tile>{n}</tile><angle>1</angle></attributes></ViewSetup>"""


def _bdv(path, times=(0, 1), setups=(0, 1)):
    data = {}
    for s in setups:
        _describe(
            path / f"setup{s}",
            {"downsamplingFactors": [[1, 1, 1], [2, 2, 1]], "dataType": "uint16"},
        )
        for t in times:
            data[s, t] = _pixels(4, 8, 12, seed=10 * s + t)
            where = f"setup{s}/timepoint{t}"
            _put(path, f"{where}/s0", data[s, t])
            _put(path, f"{where}/s1", data[s, t][:, ::2, ::2])
            _describe(path / where, {"multiScale": True, "resolution": [0.5, 0.5, 2.0]})
    return data


def _xml(path, container="d.n5", setups=(0, 1), times="0-1", missing=""):
    each = "".join(SETUP.format(n=n) for n in setups)
    path.write_text(XML.format(container=container, setups=each, times=times, missing=missing))


def test_each_setup_is_an_image_with_its_time_points(tmp_path):
    data = _bdv(tmp_path / "d.n5")
    with open_dataset(str(tmp_path / "d.n5")) as dataset:
        assert [image.extra["group"] for image in dataset.images] == ["setup0", "setup1"]
        for s, image in enumerate(dataset.images):
            assert image.axis_names == "tzyx"
            assert image.extra["setup"] == s
            assert image.physical_size is None
            assert image.extra["scale"][:3] == [0.5, 0.5, 2.0]
            expected = np.stack([data[s, 0], data[s, 1]])
            np.testing.assert_array_equal(_whole(image.levels[0].array), expected)
            np.testing.assert_array_equal(_whole(image.levels[1].array), expected[..., ::2, ::2])
            assert image.levels[1].scale == (None, 2.0, 1.0, 1.0)
            assert image.levels[1].translation == (None, 0.0, 0.25, 0.25)
        assert dataset.notes == ()


@pytest.mark.parametrize("name", ["d.xml", "d.n5.xml", "dataset.xml"])
@pytest.mark.parametrize("opened", ["container", "xml"])
def test_xml_beside_the_container_names_setups(tmp_path, name, opened):
    _bdv(tmp_path / "d.n5")
    _xml(tmp_path / name)
    with open_dataset(str(tmp_path / ("d.n5" if opened == "container" else name))) as dataset:
        image = dataset.images[1]
    assert image.name == "tile 1"
    assert image.physical_size == {"x": 0.5, "y": 0.25, "z": 2.0}
    assert [c.name for c in image.channels] == ["GFP"]
    told = {key: image.extra[key] for key in ("setup", "channel", "tile", "angle", "illumination")}
    assert told == {"setup": 1, "channel": 0, "tile": 1, "angle": 1, "illumination": 0}
    assert image.levels[1].scale == (None, 2.0, 0.5, 1.0)
    assert image.levels[1].translation == (None, 0.0, 0.125, 0.25)


def test_missing_time_point_reads_as_zero_and_is_told(tmp_path):
    data = _bdv(tmp_path / "d.n5", times=(0, 1, 3))
    import shutil

    shutil.rmtree(tmp_path / "d.n5/setup1/timepoint1")
    with open_dataset(str(tmp_path / "d.n5")) as dataset:
        image = dataset.images[1]
        whole = _whole(image.levels[0].array)
        assert image.extra["timepoints"] == [0, 1, 3]
        assert image.extra["missing_timepoints"] == [1]
        np.testing.assert_array_equal(whole[0], data[1, 0])
        assert not whole[1].any()
        np.testing.assert_array_equal(whole[2], data[1, 3])
        assert [(f.code, f.severity, f.location) for f in dataset.findings] == [
            ("metadata", "warning", "setup1")
        ]


def test_view_that_the_xml_declares_missing_is_no_fault(tmp_path):
    import shutil

    _bdv(tmp_path / "d.n5")
    shutil.rmtree(tmp_path / "d.n5/setup1/timepoint1")
    _xml(tmp_path / "d.xml", missing='<MissingView timepoint="1" setup="1"/>')
    with open_dataset(str(tmp_path / "d.n5")) as dataset:
        assert dataset.images[1].size("t") == 2
        assert dataset.findings == ()


def test_setup_that_the_xml_lists_and_the_container_lacks_is_told(tmp_path):
    _bdv(tmp_path / "d.n5")
    _xml(tmp_path / "d.xml", setups=(0, 1, 7))
    with open_dataset(str(tmp_path / "d.n5")) as dataset:
        assert len(dataset.images) == 2
        assert any("setup 7" in note for note in dataset.notes)


def test_time_points_of_another_size_are_an_image_of_their_own(tmp_path):
    _bdv(tmp_path / "d.n5", setups=(0,))
    import shutil

    shutil.rmtree(tmp_path / "d.n5/setup0/timepoint1")
    _put(tmp_path / "d.n5", "setup0/timepoint1/s0", _pixels(4, 9, 12))
    with open_dataset(str(tmp_path / "d.n5")) as dataset:
        assert [image.extra["group"] for image in dataset.images] == ["setup0", "setup0"]
        assert [image.size("y") for image in dataset.images] == [8, 9]


ENTITY = '<!DOCTYPE SpimData [<!ENTITY a "{big}"><!ENTITY b SYSTEM "file:///etc/passwd">]>'
BAD_XML = {
    "cut": lambda text: text[:200],
    "empty": lambda text: "",
    "climbs": lambda text: text.replace(">d.n5<", ">../d.n5<"),
    "no-container": lambda text: text.replace(">d.n5<", "><"),
    "hdf5": lambda text: text.replace("bdv.n5", "bdv.hdf5"),
    "endless-times": lambda text: text.replace("0-1", "0-999999999"),
}


@pytest.mark.parametrize("change", BAD_XML.values(), ids=BAD_XML)
def test_bad_xml_takes_nothing_from_the_pixels(tmp_path, change):
    _bdv(tmp_path / "d.n5")
    _xml(tmp_path / "d.xml")
    (tmp_path / "d.xml").write_text(change((tmp_path / "d.xml").read_text()))
    with open_dataset(str(tmp_path / "d.n5")) as dataset:
        assert [image.name for image in dataset.images] == ["setup0", "setup1"]
        assert any("d.xml" in note for note in dataset.notes)


@pytest.mark.parametrize("name", ["climbs", "no-container", "endless-times"])
def test_bad_xml_is_corrupt_when_it_is_the_input(tmp_path, name):
    _bdv(tmp_path / "d.n5")
    _xml(tmp_path / "d.xml")
    (tmp_path / "d.xml").write_text(BAD_XML[name]((tmp_path / "d.xml").read_text()))
    with pytest.raises(CorruptDataError):
        open_dataset(str(tmp_path / "d.xml"))


@pytest.mark.parametrize("opened", ["d.xml", "d.n5"])
def test_absolute_path_means_the_container_beside_the_xml(tmp_path, opened):
    _bdv(tmp_path / "d.n5")
    _xml(tmp_path / "d.xml", container="/elsewhere/on/another/machine/d.n5")
    text = (tmp_path / "d.xml").read_text()
    (tmp_path / "d.xml").write_text(text.replace('<n5 type="relative"', '<n5 type="absolute"'))
    with open_dataset(str(tmp_path / opened)) as dataset:
        assert [image.name for image in dataset.images] == ["tile 0", "tile 1"]


def test_container_that_the_xml_names_and_lacks_is_corrupt(tmp_path):
    _xml(tmp_path / "d.xml", container="gone.n5")
    with pytest.raises(CorruptDataError, match=r"gone\.n5"):
        open_dataset(str(tmp_path / "d.xml"))


def test_xml_entities_are_not_expanded(tmp_path):
    _bdv(tmp_path / "d.n5")
    _xml(tmp_path / "d.xml")
    text = (tmp_path / "d.xml").read_text().replace("tile 0", "&b;").replace("tile 1", "&a;")
    head, rest = text.split("\n", 1)
    (tmp_path / "d.xml").write_text(f"{head}\n{ENTITY.format(big='x' * 100)}\n{rest}")
    with open_dataset(str(tmp_path / "d.n5")) as dataset:
        shown = repr(dataset.images)
    assert "root:" not in shown
    assert "xxxx" not in shown


def test_xml_with_more_time_points_than_the_setups_can_bear_is_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr("openreadout_n5.bdv.MAX_PARTS", 1000)
    _bdv(tmp_path / "d.n5")
    _xml(tmp_path / "d.xml", times="0-9999")
    with open_dataset(str(tmp_path / "d.n5")) as dataset:
        assert [image.size("t") for image in dataset.images] == [2, 2]
        assert [image.name for image in dataset.images] == ["tile 0", "tile 1"]
        assert any("too many time points" in note for note in dataset.notes)


def test_xml_of_another_container_is_not_used(tmp_path):
    _bdv(tmp_path / "d.n5")
    _xml(tmp_path / "dataset.xml", container="other.n5")
    with open_dataset(str(tmp_path / "d.n5")) as dataset:
        assert [image.name for image in dataset.images] == ["setup0", "setup1"]
        assert dataset.notes == ()
