"""A format added from outside, by following docs/adding-a-format.md to the letter."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct

import numpy as np
import pytest

WIDTH, HEIGHT = 90, 130
PIXELS = (
    (np.arange(WIDTH * HEIGHT, dtype="uint32") * 31 % 65521).astype("uint16").reshape(HEIGHT, WIDTH)
)


def distribution(folder, name, entries, files):
    """A distribution as pip leaves it: a package, and a dist-info folder with entry points."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entries)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.fixture(scope="module")
def page(repository):
    return (repository / "docs" / "adding-a-format.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def toy(page, tmp_path_factory):
    """The plugin of the page, in its own distribution, and the environment that finds it."""
    files = dict(re.findall(r"File `([^`]+)`:\n\n```python\n(.*?)```", page, re.DOTALL))
    assert set(files) == {"toyraw/__init__.py", "toyraw/reader.py"}
    line = re.search(r'```toml\n\[project\.entry-points\."(.+?)"\]\n(.+?)\n```', page)
    entry = line[2].replace('"', "")
    folder = tmp_path_factory.mktemp("site")
    distribution(folder, "toyraw", f"[{line[1]}]\n{entry}\n", files)
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    }


@pytest.fixture
def ramp(tmp_path):
    file = tmp_path / "ramp.toyraw"
    file.write_bytes(
        struct.pack("<8sII", b"TOYRAW1\n", WIDTH, HEIGHT) + PIXELS.astype("<u2").tobytes()
    )
    return file


def payload(run, code=0):
    assert run.returncode == code, run.stdout + run.stderr
    return json.loads(run.stdout)["data"]


def test_formats_lists_it(toy, openreadout):
    run = openreadout("formats", "--json", env=toy)
    assert run.returncode == 0, run.stderr
    assert "toyraw" in run.stdout
    assert ".toyraw" in run.stdout


def test_without_the_distribution_nobody_knows_it(ramp, openreadout):
    run = openreadout("info", "--json", ramp)
    assert run.returncode == 3, run.stdout


def test_info_describes_it(toy, ramp, openreadout):
    data = payload(openreadout("info", "--json", ramp, env=toy))
    assert data["format"] == {"id": "toyraw", "name": "Toy raw"}
    image = data["images"][0]
    assert (image["size_x"], image["size_y"], image["pixel_type"]) == (WIDTH, HEIGHT, "uint16")


def test_check_planes_hashes_it(toy, ramp, openreadout):
    data = payload(openreadout("check", "--planes", "--hash", "sha256", "--json", ramp, env=toy))
    assert [plane["sha256"] for plane in data["planes"]] == [
        hashlib.sha256(PIXELS.astype("<u2").tobytes()).hexdigest()
    ]
    assert data["findings"] == []


def test_check_finds_it_cut(toy, ramp, openreadout):
    ramp.write_bytes(ramp.read_bytes()[:-1])
    data = payload(openreadout("check", "--json", ramp, env=toy), code=4)
    assert [finding["code"] for finding in data["findings"]] == ["chunk_decode"]


def test_export_converts_it(toy, ramp, tmp_path, openreadout):
    import zarr

    out = tmp_path / "out.ome.zarr"
    report = payload(openreadout("export", ramp, "--to", "ome-zarr", "-o", out, "--json", env=toy))
    assert report["verified"] is True
    ome = zarr.open_group(out, mode="r").attrs["ome"]
    path = ome["multiscales"][0]["datasets"][0]["path"]
    found = np.asarray(zarr.open_array(out / path, mode="r")[...])
    assert np.array_equal(found.reshape(HEIGHT, WIDTH), PIXELS)


def test_its_own_fixture_passes_the_contract_tests(toy, ramp, tmp_path, page):
    """The three lines of the page, run by pytest in a process of its own."""
    import subprocess
    import sys

    import xxhash

    case = tmp_path / "fixtures" / "toyraw" / "ramp"
    case.mkdir(parents=True)
    ramp.rename(case / "ramp.toyraw")
    expected = json.loads(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    data = PIXELS.astype("<u2").tobytes()
    size = {"size_x": WIDTH, "size_y": HEIGHT}
    expected["info"]["images"][0] |= size
    expected["planes"][0] |= {
        "width": WIDTH, "height": HEIGHT,
        "xxh3": xxhash.xxh3_128_hexdigest(data), "sha256": hashlib.sha256(data).hexdigest(),
    }  # fmt: skip
    (case / "expected.json").write_text(json.dumps(expected))
    code = re.search(r"```python\n(import pytest\n.*?)```", page, re.DOTALL)[1]
    test = tmp_path / "test_toyraw.py"
    test.write_text(
        f"import pathlib\nFIXTURES = pathlib.Path({str(tmp_path / 'fixtures')!r})\n{code}"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | toy,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert re.search(r"\b1[0-9] passed", run.stdout), run.stdout


def test_a_plugin_that_does_not_import_disables_only_itself(toy, ramp, tmp_path, openreadout):
    folder = tmp_path / "broken"
    entries = "[openreadout.readers]\nbroken = brokenplugin:READER\n"
    entries += "\n[openreadout.codecs]\nexample.broken = nosuchmodule:Codec\n"
    distribution(
        folder, "brokenplugin", entries, {"brokenplugin.py": "raise RuntimeError('no such luck')\n"}
    )
    env = {"PYTHONPATH": f"{folder}{os.pathsep}{toy['PYTHONPATH']}"}
    run = openreadout("formats", "--json", env=env)
    assert run.returncode == 0, run.stderr
    assert "no such luck" in run.stdout
    assert "nosuchmodule" in run.stdout
    assert payload(openreadout("info", "--json", ramp, env=env))["format"]["id"] == "toyraw"
