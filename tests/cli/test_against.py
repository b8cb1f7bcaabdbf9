"""`check --against`: what differs between two data sets is told, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr

from openreadout.cli import run
from tests.robustness import build


@pytest.fixture
def differences(capsys, tmp_path):
    """Exit code and differences of two arrays, or of arrays of several levels, as images."""

    def image(name, levels):
        folder = tmp_path / name
        axes = "zyx"[-levels[0].ndim :]
        paths = [str(n) for n in range(len(levels))]
        build.put(
            folder / "zarr.json",
            build.group3(multiscales=build.multiscales(*paths, axes=axes, name="same")),
        )
        for n, level in enumerate(levels):
            array = zarr.create_array(
                folder / str(n), shape=level.shape, dtype=level.dtype, overwrite=True
            )
            array[...] = level
        return folder

    def call(one, two, *options):
        made = [item if isinstance(item, list) else [item] for item in (one, two)]
        paths = [image(name, levels) for name, levels in zip("ab", made, strict=True)]
        code = run(["check", str(paths[0]), "--against", str(paths[1]), "--json", *options])
        said = json.loads(capsys.readouterr().out)
        return code, said["data"]["differences"] if said["ok"] else said["error"]["message"]

    return call


def whole(dtype, *values):
    return np.array(values, dtype).reshape(1, -1)


def test_the_same_twice_is_the_same(differences):
    assert differences(whole("u2", 1, 2), whole("u2", 1, 2)) == (0, [])


@pytest.mark.parametrize(
    ("one", "two", "words"),
    [
        (whole("u2", 1, 2), whole("i2", 1, 2), "pixel type uint16 and int16"),
        (whole("u2", 1, 2), whole("u2", 1, 2, 3), "sizes"),
        (whole("u2", 1, 2), whole("u2", 1, 3), "other pixels"),
        ([whole("u2", 1, 2), whole("u2", 1)], whole("u2", 1, 2), "level 1 is only in"),
        ([whole("u2", 1, 2), whole("u2", 1)], [whole("u2", 1, 2), whole("u2", 1, 2)], "shape"),
        (whole("f4", 0.0), whole("f4", -0.0), "other pixels"),
    ],
)
def test_what_differs_is_told(differences, one, two, words):
    code, found = differences(one, two)
    assert code == 1
    assert any(words in line for line in found), found


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("dtype", "one", "two", "tolerance", "same"),
    [
        ("u1", 0, 255, "254", False),
        ("u1", 0, 255, "255", True),
        ("u1", 255, 0, "255", True),
        ("i1", -128, 127, "254.9", False),
        ("i1", -128, 127, "255", True),
        ("u8", 2**53, 2**53 + 1, "0", False),
        ("u8", 2**53, 2**53 + 1, "1", True),
        ("u8", 0, 2**64 - 1, "1e300", True),
        ("i8", -(2**63), 2**63 - 1, "1e18", False),
        ("i8", -(2**63), 2**63 - 1, "2e19", True),
        ("f4", 1.0, 1.5, "0.5", True),
        ("f4", 1.0, 1.5, "0.49", False),
        ("f8", NAN, NAN, "0", True),
        ("f8", NAN, 0.0, "1e9", False),
        ("f8", INF, INF, "0", True),
        ("f8", INF, -INF, "1e9", False),
        ("f4", 0.0, -0.0, "0", True),
        ("c8", 1 + 1j, 1 + 2j, "1", True),
        ("c8", 1 + 1j, 1 + 2j, "0.9", False),
    ],
)
def test_tolerance_is_the_distance_that_samples_may_have(
    differences, dtype, one, two, tolerance, same
):
    found = differences(
        whole(dtype, 0, one), whole(dtype, 0, two), "--tolerance", tolerance, "--no-metadata"
    )
    assert (found[0] == 0, found[1] == []) == (same, same), found


@pytest.mark.parametrize("tolerance", ["nan", "inf", "-1", "x"])
def test_a_tolerance_that_is_no_number_is_usage(differences, tolerance):
    code, message = differences(whole("u1", 1), whole("u1", 1), "--tolerance", tolerance)
    assert code == 2
    assert "tolerance" in message


def test_only_pixels_or_only_metadata(differences):
    one, two = whole("u1", 1, 2), whole("u1", 1, 3)
    assert differences(one, two, "--no-pixels") == (0, [])
    assert differences(one, one, "--no-metadata") == (0, [])
    assert differences(one, two, "--no-metadata")[0] == 1
