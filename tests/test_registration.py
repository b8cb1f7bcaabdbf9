"""What pyproject.toml declares is what is installed."""

from __future__ import annotations

import tomllib
from importlib import metadata

import pytest

from openreadout import registry

ADVICE = "run `make install` (or `pip install -e .`): entry points are written when the package is installed"


@pytest.fixture(scope="module")
def declared(repository):
    document = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    return document["project"]


def installed(group):
    distribution = metadata.distribution("openreadout-microscopy")
    return {e.name: e.value for e in distribution.entry_points if e.group == group}


@pytest.mark.parametrize(
    "group", [*registry.GROUPS, "zarr.codecs", "napari.manifest", "bioio.readers"]
)
def test_declared_entry_points_are_installed(declared, group):
    assert installed(group) == declared["entry-points"][group], ADVICE


@pytest.mark.parametrize("group", registry.GROUPS)
def test_registry_finds_what_importlib_finds(group):
    """The registry reads the files itself, for speed; the standard library is the second opinion."""
    ours = {entry.name: entry.value for entry in registry.entry_points(group)}
    theirs = {entry.name: entry.value for entry in metadata.entry_points(group=group)}
    assert ours == theirs


def test_command_is_installed(declared):
    assert installed("console_scripts") == declared["scripts"], ADVICE


def test_version_is_the_distribution_s():
    import openreadout

    assert metadata.version("openreadout-microscopy") == openreadout.__version__, ADVICE


@pytest.mark.parametrize("group", [*registry.GROUPS, "zarr.codecs"])
def test_every_entry_point_loads(group):
    for entry in metadata.distribution("openreadout-microscopy").entry_points:
        if entry.group == group:
            assert entry.load() is not None
