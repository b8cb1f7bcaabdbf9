"""The schemas in docs/schema are current, are schemas, and describe what the commands really print."""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
import subprocess
import sys

import jsonschema
import pytest

from openreadout import payloads
from openreadout.cli import run

SAMPLES = [
    "ome-zarr/v2-blosc-channels/cells.ome.zarr",
    "ome-zarr/v3-sharded/sharded.ome.zarr",
    "ome-zarr/v3-plate/plate.zarr",
    "ome-zarr/v3-labels/labelled.zarr",
    "ome-zarr/v3-collection-types/types.zarr",
    "ome-zarr/v3-zip/packed.ozx",
    "n5/z5py-viewer-pyramid/pyramid.n5",
    "n5/z5py-types/types.n5",
    "ome-tiff/pyramid/cells.ome.tiff",
    "ome-tiff/rgb-planar/image.ome.tiff",
    "ome-tiff/two-images/two.ome.tiff",
    "malformed/zarr-chunk-cut/plain.zarr",
    "malformed/tiff-cut/image.ome.tiff",
    "malformed/text-file/notes.txt",
    "malformed/zarr-unknown-codec/time.zarr",
    "malformed/nothing-is-here",
]


@pytest.fixture(scope="session")
def generator(repository):
    spec = importlib.util.spec_from_file_location(
        "generate_schema", repository / "docs" / "generate_schema.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def validators(generator):
    """A validator for each payload, allowing no other keys; that the schemas are schemas is a test of its own."""

    @functools.cache
    def of(name):
        return jsonschema.Draft202012Validator(generator.envelope(name, closed=True))

    return of


@pytest.fixture
def printed(validators, capsys):
    """Run a command with --json and validate what it prints against its schema."""

    def validate(name, *arguments):
        run([*map(str, arguments), "--json"])
        document = json.loads(capsys.readouterr().out)
        validators(name).validate(document)
        return document

    return validate


def test_files_are_current(repository):
    script = repository / "docs" / "generate_schema.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", payloads.COMMANDS)
def test_every_file_is_a_schema(repository, name):
    schema = json.loads((repository / "docs/schema" / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"ok": True, "schema_version": "1", "data": {}}, schema)


@pytest.mark.parametrize("data", SAMPLES)
@pytest.mark.parametrize("view", ["summary", "full", "structure", "format"])
def test_info(printed, fixtures, data, view):
    document = printed("info", "info", "--view", view, fixtures / data)
    assert document["ok"] or document["error"]["exit_code"]


@pytest.mark.parametrize("data", SAMPLES)
@pytest.mark.parametrize("options", [[], ["--full"], ["--planes"], ["--planes", "--hash", "sha256"]])  # fmt: skip
def test_check(printed, fixtures, data, options):
    printed("check", "check", *options, fixtures / data)


def test_check_against(printed, fixtures):
    one, two = (fixtures / data for data in SAMPLES[:2])
    assert printed("check-against", "check", one, "--against", one)["data"]["ok"] is True
    assert printed("check-against", "check", one, "--against", two)["data"]["ok"] is False


@pytest.mark.parametrize("data", SAMPLES[:11])
def test_export(printed, fixtures, tmp_path, data):
    arguments = ["export", fixtures / data, "--to", "ome-zarr", "-o", tmp_path / "out.ome.zarr"]
    assert printed("export-dry-run", *arguments, "--dry-run")["ok"] is True
    assert printed("export", *arguments, "--no-sync", "--name", "renamed")["data"]["verified"]
    assert printed("export", *arguments)["error"]["code"] == "usage"
    assert printed("export", *arguments, "--skip-done")["data"]["skipped"] is True


def test_export_in_place(printed, fixtures, tmp_path):
    path = tmp_path / "pyramid.n5"
    shutil.copytree(fixtures / "n5/z5py-viewer-pyramid/pyramid.n5", path)
    document = printed("export-in-place", "export", path, "--to", "ome-zarr", "--in-place")
    assert document["data"]["files_added"]


@pytest.mark.parametrize("data", SAMPLES)
def test_preview(printed, fixtures, data):
    printed("preview", "preview", fixtures / data)


def test_formats(printed):
    printed("formats", "formats")


def test_a_key_that_no_type_names_is_noticed(generator, capsys, fixtures):
    run(["info", "--json", str(fixtures / SAMPLES[0])])
    document = json.loads(capsys.readouterr().out)
    document["data"]["images"][0]["resolution_levels"][0]["surprise"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, generator.envelope("info", closed=True))
    jsonschema.validate(document, generator.envelope("info"))


@pytest.mark.corpus
def test_info_and_check_of_the_corpus(printed, corpus):
    for kind in ("ome-zarr", "n5", "ome-tiff", "bad-input"):
        for folder in sorted((corpus / kind).iterdir()):
            for path in sorted(folder.iterdir()):
                printed("info", "info", "--view", "full", path)
                printed("check", "check", path)
