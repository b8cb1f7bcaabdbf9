"""NGFF metadata of one image to the model."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openreadout.errors import CorruptDataError, UnsupportedFeatureError, UsageError
from openreadout.registry import open_dataset
from openreadout_ome_zarr.ngff import (
    axis_roles,
    compose,
    parse_color,
    parse_multiscales,
    parse_omero,
    version_of,
)


def opened(path):
    return open_dataset(str(path)).images[0]


# -- axes ------------------------------


@pytest.mark.parametrize(
    ("axes", "roles"),
    [
        ([("t", None), ("c", None), ("z", None), ("y", None), ("x", None)], "tczyx"),
        (
            [("T", "time"), ("C", "channel"), ("Z", "space"), ("Y", "space"), ("X", "space")],
            "tczyx",
        ),
        ([("time", "time"), ("fluor", "channel"), ("v", "space"), ("u", "space")], "tcyx"),
        ([("a", "space"), ("b", "space"), ("d", "space")], "zyx"),
        ([("x", None), ("y", None), ("depth", "space")], "xyz"),
        ([("angle", None), ("y", "space"), ("x", "space")], "-yx"),
        ([("angle", "custom"), ("lifetime", None), ("x", "space")], "--x"),
        ([("x", "space"), ("x", "space")], "xy"),
        ([("c", "channel"), ("k", "channel"), ("y", None), ("x", None)], "c-yx"),
    ],
)
def test_axis_roles(axes, roles):
    assert "".join(role or "-" for role in axis_roles(axes)) == roles


def test_axes_by_name_whatever_their_order(tmp_path, make):
    pixels = make.image(tmp_path, (4, 5, 6), "xyz", scale=[0.1, 0.2, 0.3])
    image = opened(tmp_path)
    assert image.axis_names == "zyx"
    assert image.shape == (6, 5, 4)
    assert image.dimension_order == "XYZCT"
    assert image.physical_size == {"x": 0.1, "y": 0.2, "z": 0.3}
    block = image.levels[0].array.read_chunk((0, 0, 0))
    assert (block == pixels.transpose(2, 1, 0)).all()


@pytest.mark.parametrize(
    ("names", "order"),
    [
        ("tczyx", "XYZCT"),
        ("tzcyx", "XYCZT"),
        ("cztyx", "XYTZC"),
        ("yx", "XYZCT"),
        ("zcyx", "XYCZT"),
    ],
)
def test_dimension_order_is_that_of_the_store(tmp_path, make, names, order):
    make.image(tmp_path, (2,) * len(names), names)
    assert opened(tmp_path).dimension_order == order


def test_other_axes_are_read_at_index_0_and_listed(tmp_path, make):
    axes = [{"name": "angle"}, *make.axes("yx")]
    pixels = make.image(tmp_path, (3, 4, 5), "zyx", axes=axes)
    image = opened(tmp_path)
    assert image.axis_names == "yx"
    assert image.extra["unmapped_axes"] == ["angle"]
    assert (image.levels[0].array.read_chunk((0, 0)) == pixels[0]).all()


def test_axes_as_plain_names(tmp_path, make):
    make.image(tmp_path, (3, 4, 5), "cyx", axes=["c", "y", "x"], version="0.3")
    image = opened(tmp_path)
    assert image.size("c") == 3
    assert image.physical_size is None
    assert image.extra["axes"] == [{"name": "c"}, {"name": "y"}, {"name": "x"}]


def test_no_axes_mean_t_c_z_y_x(tmp_path, make, codes):
    entry = {"version": "0.1", "datasets": [{"path": "0"}]}
    make.image(tmp_path, (2, 3, 1, 4, 5), "tczyx")
    make.put(tmp_path, ".zattrs", {"multiscales": [entry]})
    image = opened(tmp_path)
    assert image.axis_names == "tczyx"
    assert image.physical_size is None
    assert image.time_increment_s is None
    assert "scale" not in image.extra
    assert codes(open_dataset(str(tmp_path))) == []


def test_no_axes_of_a_lower_rank_are_assumed_aloud(tmp_path, make, codes):
    make.image(tmp_path, (4, 5))
    make.put(tmp_path, ".zattrs", {"multiscales": [{"datasets": [{"path": "0"}]}]})
    dataset = open_dataset(str(tmp_path))
    assert dataset.images[0].axis_names == "yx"
    assert codes(dataset) == [("metadata", "warning")]


def test_axes_that_a_person_names(tmp_path, make, codes):
    make.image(tmp_path, (2, 4, 6), "zyx")
    assert open_dataset(str(tmp_path), axes="xyt").images[0].axis_names == "zyx"
    make.put(tmp_path, ".zattrs", {"multiscales": [{"datasets": [{"path": "0"}]}]})
    dataset = open_dataset(str(tmp_path), axes="xyt")
    assert dataset.images[0].axis_names == "tyx"
    assert codes(dataset) == []
    for wrong in ("xy", "xyy", "xyq", "xyzct"):
        with pytest.raises(UsageError, match="3 dimensions"):
            open_dataset(str(tmp_path), axes=wrong)


def test_no_x_axis_is_refused(tmp_path, make):
    make.image(tmp_path, (2, 2), "tc")
    with pytest.raises(UnsupportedFeatureError, match="no axis is x"):
        open_dataset(str(tmp_path))


def test_rank_that_disagrees_with_the_axes_is_array_metadata(tmp_path, make):
    make.image(tmp_path, (2, 2, 2), "yx")
    with pytest.raises(CorruptDataError, match="3 dimensions") as caught:
        open_dataset(str(tmp_path))
    assert caught.value.finding == "array_metadata"
    assert caught.value.where == "0/.zarray"


# -- transformations ------------------------------


def scale(*values):
    return {"type": "scale", "scale": list(values)}


def translation(*values):
    return {"type": "translation", "translation": list(values)}


def test_dataset_and_multiscales_transformations_are_composed():
    found, oddities = compose(
        2, [scale(2, 3), translation(10, 20)], [scale(5, 7), translation(1, 2)]
    )
    assert found.scale == (10, 21)
    assert found.translation == (51, 142)
    assert oddities == ()


def test_translation_before_a_scale_is_scaled():
    assert compose(1, [translation(4), scale(3)])[0].translation == (12,)


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(-10, 10)), min_size=1, max_size=5),
    st.floats(-50, 50),
)
def test_composition_is_applying_one_after_the_other(steps, index):
    listed = [step for s, t in steps for step in (scale(s), translation(t))]
    expected = index
    for s, t in steps:
        expected = expected * s + t
    found, _ = compose(1, listed)
    assert found.scale[0] * index + found.translation[0] == pytest.approx(
        expected, abs=1e-6, rel=1e-6
    )


def test_no_transformations_are_unknown_and_identity_is_one():
    assert compose(2, None, None)[0].stated is False
    assert compose(2, None, None)[0].scale == (None, None)
    assert compose(2, [{"type": "identity"}])[0].scale == (1.0, 1.0)


@pytest.mark.parametrize(
    "step",
    [
        {"type": "scale", "scale": [1]}, {"type": "scale", "scale": "12"}, {"type": "scale"}, {"type": "rotation"},
        {"type": "scale", "path": "s"}, {"type": "affine", "affine": [[1, 1, 0], [0, 1, 0]]}, {"type": 3}, 3,
        {"type": "scale", "scale": [1, "2"]}, {"type": "scale", "scale": [True, 2]},
    ],
)  # fmt: skip
def test_what_cannot_be_applied_makes_the_scale_unknown(step):
    found, oddities = compose(2, [scale(2, 2), step])
    assert found.scale == (None, None)
    assert len(oddities) == 1


def test_draft_transformations_along_the_axes_are_applied():
    matrix = [[4, 0, 32], [0, 3, 21]]
    assert compose(2, [{"type": "affine", "affine": matrix}])[0].scale == (4, 3)
    nested = {"type": "sequence", "transformations": [scale(2, 2), translation(1, 1)]}
    assert compose(2, [nested])[0].translation == (1, 1)


@pytest.mark.parametrize("bad", [0, 0.0, -1.5, math.nan, math.inf, 10**400])
def test_scale_that_is_no_length_is_unknown(tmp_path, make, bad):
    make.image(tmp_path, (4, 6), scale=[bad, 0.5])
    image = opened(tmp_path)
    assert image.levels[0].scale[0] is None
    assert (image.physical_size or {}).get("y") is None


def test_zero_scale_stays_visible_as_stored(tmp_path, make):
    make.image(tmp_path, (4, 6), scale=[0.0, 0.5])
    assert opened(tmp_path).extra["scale"] == [0.0, 0.5]


def test_units(tmp_path, make):
    axes = make.axes("tzyx", "nanometer")
    axes[0]["unit"] = "millisecond"
    make.image(tmp_path, (2, 2, 4, 6), "tzyx", axes=axes, scale=[250, 2000, 50, 50])
    image = opened(tmp_path)
    assert image.physical_size == {"x": 0.05, "y": 0.05, "z": 2.0}
    assert image.time_increment_s == 0.25


def test_unknown_unit_gives_no_size_but_keeps_its_number(tmp_path, make):
    make.image(tmp_path, axes=make.axes("yx", "pixel"), scale=[0.5, 0.25])
    image = opened(tmp_path)
    assert image.physical_size is None
    assert image.extra["scale"] == [0.5, 0.25]
    assert image.extra["axes"][0]["unit"] == "pixel"


def test_translation_and_origin(tmp_path, make):
    make.image(tmp_path, axes=make.axes("yx", "millimeter"))
    entry = make.multiscale(axes=make.axes("yx", "millimeter"))
    entry["datasets"][0]["coordinateTransformations"].append(translation(-0.02, 0.0125))
    make.put(tmp_path, ".zattrs", {"multiscales": [entry]})
    image = opened(tmp_path)
    assert image.levels[0].translation == (-0.02, 0.0125)
    assert image.extra["translation"] == [-0.02, 0.0125]
    assert image.extra["origin_um"] == {"x": 12.5, "y": -20.0}


# -- versions ------------------------------


@pytest.mark.parametrize(
    ("ngff", "version"),
    [
        ({"version": "0.5", "multiscales": []}, "0.5"),
        ({"multiscales": [{"version": "0.4"}]}, "0.4"),
        ({"multiscales": [{"version": 0.4}]}, "0.4"),
        ({"plate": {"version": "0.2"}}, "0.2"),
        ({"well": {"version": "0.3"}}, "0.3"),
        ({"multiscales": [{}]}, None),
        ({"multiscales": 3, "plate": []}, None),
    ],
)
def test_version_of(ngff, version):
    assert version_of(ngff) == version


@pytest.mark.parametrize("version", ["0.6.dev1", "9.1", "0.5-dev-spatialdata"])
def test_unknown_version_that_reads_is_a_warning_and_a_note(tmp_path, make, codes, version):
    make.image(tmp_path, version=version)
    dataset = open_dataset(str(tmp_path))
    assert codes(dataset) == [("metadata", "warning")]
    assert any(version in note for note in dataset.notes)
    assert dataset.format_version.startswith(version)


def test_unknown_version_that_does_not_read_is_unsupported(tmp_path, make):
    make.put(tmp_path, ".zgroup", {"zarr_format": 2})
    make.put(tmp_path, ".zattrs", {"multiscales": [{"version": "9.1", "scales": {}}]})
    with pytest.raises(UnsupportedFeatureError, match=r"9\.1"):
        open_dataset(str(tmp_path))


def test_keys_outside_ome_are_read_with_a_warning(tmp_path, make, codes):
    make.put(tmp_path, "zarr.json", make.group_json(multiscales=[make.multiscale()]))
    make.put(tmp_path, "0/zarr.json", make.array_json((4, 6)))
    dataset = open_dataset(str(tmp_path))
    assert dataset.images[0].shape == (4, 6)
    assert codes(dataset) == [("metadata", "warning")]


def test_group_with_the_image_metadata_counts(tmp_path, make):
    make.put(
        tmp_path,
        "zarr.json",
        make.group_json({"version": "0.5", "multiscales": [make.multiscale()]}),
    )
    make.put(tmp_path, "0/zarr.json", make.array_json((4, 6)))
    make.put(tmp_path, ".zgroup", {"zarr_format": 2})
    make.put(tmp_path, ".zattrs", {})
    assert "Zarr v3" in open_dataset(str(tmp_path)).format_version
    make.put(tmp_path, "zarr.json", make.group_json())
    make.image(tmp_path)
    assert "Zarr v2" in open_dataset(str(tmp_path)).format_version


# -- omero ------------------------------


@pytest.mark.parametrize(
    ("value", "color"),
    [
        ("ff00FF", "#FF00FF"),
        ("#00ff00", "#00FF00"),
        ("F00", None),
        (255, None),
        ("", None),
        (None, None),
        ("GGGGGG", None),
    ],
)
def test_colors(value, color):
    assert parse_color(value) == color


def test_odd_channels_stay_at_their_index():
    found = parse_omero(
        {"omero": {"channels": [{"label": "a"}, 3, {"color": "FF0000"}, {"label": 7}]}}
    )
    assert [channel.name for channel in found] == ["a", None, None, "7"]
    assert found[2].color == "#FF0000"


def test_window_keeps_the_numbers_that_are_there():
    window = parse_omero(
        {"omero": {"channels": [{"window": {"start": 3, "end": "9", "max": math.inf}}]}}
    )[0].window
    assert (window.min, window.max, window.start, window.end) == (None, None, 3, None)


@pytest.mark.parametrize("count", [1, 3])
def test_channel_count_that_differs_is_a_warning(tmp_path, make, codes, count):
    channels = [{"label": str(n)} for n in range(count)]
    make.image(tmp_path, (2, 4, 6), "cyx", attributes={"omero": {"channels": channels}})
    dataset = open_dataset(str(tmp_path))
    assert codes(dataset) == [("omero_channels", "warning")]
    assert len(dataset.images[0].channels) == min(count, 2)


# -- levels ------------------------------


def pyramid(tmp_path, make, second, **more):
    make.image(tmp_path, (8, 8), paths=("0", "1"), **more)
    make.put(tmp_path, "1/.zarray", second)
    return open_dataset(str(tmp_path))


def test_levels_have_scales_of_their_own(tmp_path, make):
    image = pyramid(tmp_path, make, make.zarray((4, 4)), scale=[0.5, 0.5]).images[0]
    assert [level.scale for level in image.levels] == [(0.5, 0.5), (1.0, 1.0)]
    assert [level.path for level in image.levels] == ["0", "1"]


@pytest.mark.parametrize(
    ("second", "code", "levels"),
    [
        ("no json", ("array_metadata", "error"), 1),
        ({"zarr_format": 2}, ("array_metadata", "error"), 1),
        ((4,), ("pyramid", "error"), 1),
        ((16, 16), ("pyramid", "warning"), 2),
    ],
)
def test_lower_levels_that_are_wrong_do_not_stop_the_image(
    tmp_path, make, codes, second, code, levels
):
    if isinstance(second, tuple):
        second = make.zarray(second)
    dataset = pyramid(tmp_path, make, second)
    assert codes(dataset) == [code]
    assert dataset.findings[0].location == "1/.zarray"
    assert len(dataset.images[0].levels) == levels


def test_missing_level_is_an_error_and_a_note(tmp_path, make, codes):
    make.image(tmp_path, (8, 8), paths=("0", "gone"))
    dataset = open_dataset(str(tmp_path))
    assert codes(dataset) == [("array_metadata", "error")]
    assert any("1 of 2 levels" in note for note in dataset.notes)


@pytest.mark.parametrize("path", ["../secret", "a/../../b", "", None, 7.5, ["0"]])
def test_first_level_without_a_path_inside_is_corrupt(tmp_path, make, path):
    make.put(tmp_path, "secret/.zarray", make.zarray((4, 6)))
    make.image(tmp_path / "in")
    make.put(
        tmp_path / "in",
        ".zattrs",
        {"multiscales": [make.multiscale() | {"datasets": [{"path": path}]}]},
    )
    with pytest.raises(CorruptDataError) as caught:
        open_dataset(str(tmp_path / "in"))
    assert caught.value.finding == "array_metadata"


@pytest.mark.parametrize(
    "multiscales",
    [[], {}, None, 3, [3], [{}], [{"datasets": []}], [{"datasets": 3}], [{"datasets": [{"path": "0"}] * 65}],
     [{"datasets": [{"path": "0"}], "axes": []}], [{"datasets": [{"path": "0"}], "axes": [{}]}],
     [{"datasets": [{"path": "0"}], "axes": 7}], [{"datasets": [{"path": "0"}]}] * 1001],
)  # fmt: skip
def test_multiscales_that_are_none(multiscales):
    with pytest.raises(CorruptDataError):
        parse_multiscales({"multiscales": multiscales})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("0"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from("name type unit path scale translation datasets version label window".split()),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(
    st.sampled_from(["axes", "datasets", "coordinateTransformations", "name", "type", "version"]),
    JSON,
    JSON,
)
def test_any_metadata_opens_or_is_refused(tmp_path_factory, key, value, omero):
    import json

    root = tmp_path_factory.mktemp("any")
    (root / "0").mkdir()
    document = {
        "zarr_format": 2,
        "shape": [4, 6],
        "chunks": [4, 6],
        "dtype": "|u1",
        "compressor": None,
        "order": "C",
    }
    (root / "0/.zarray").write_text(json.dumps(document))
    entry = {"axes": ["y", "x"], "datasets": [{"path": "0"}]} | {key: value}
    (root / ".zgroup").write_text('{"zarr_format": 2}')
    (root / ".zattrs").write_text(
        json.dumps({"multiscales": [entry], "omero": {"channels": omero}})
    )
    try:
        dataset = open_dataset(str(root))
    except (CorruptDataError, UnsupportedFeatureError):
        return
    for image in dataset.images:
        assert image.axis_names
        json.dumps(dict(image.extra), allow_nan=False).encode()
        assert all(value is None or value > 0 for level in image.levels for value in level.scale)
    assert list(dataset.inspect(False)) is not None
    assert dataset.structure()["kind"] == "image"
