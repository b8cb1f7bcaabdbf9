"""Faults of the machine while a command works: each ends in an exit code, and nothing half-written is left."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
import zarr

from openreadout import stores, system
from tests.robustness import build, guards

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="uses what Linux offers"
)
ROOT = Path(__file__).resolve().parents[2]
OPENREADOUT = [sys.executable, "-m", "openreadout"]
CODES = {0, 2, 3, 4, 5, 6}


def many_chunks(folder, *, shape=(200, 200), chunks=(10, 10), noise=False):
    """An OME-Zarr image of many chunks, written by zarr-python."""
    group = zarr.open_group(
        folder,
        mode="w",
        zarr_format=3,
        attributes={"ome": {"version": "0.5", "multiscales": build.multiscales("0")}},
    )
    array = group.create_array("0", shape=shape, chunks=chunks, dtype="uint16")
    values = (
        np.random.default_rng(1).integers(0, 60000, shape)
        if noise
        else np.arange(np.prod(shape)).reshape(shape)
    )
    array[...] = values.astype("uint16")
    return folder


def tiff_set(folder, count):
    """An OME-TIFF of as many files as it has planes."""
    folder.mkdir(parents=True)
    uuids = [f"urn:uuid:00000000-0000-0000-0000-{n:012d}" for n in range(count)]
    data = "".join(
        f'<TiffData FirstZ="{n}" IFD="0" PlaneCount="1"><UUID FileName="p{n}.ome.tiff">{uuid}</UUID></TiffData>'
        for n, uuid in enumerate(uuids)
    )
    for n, uuid in enumerate(uuids):
        text = (
            build.xml(tiff_data=data)
            .replace("<OME ", f'<OME UUID="{uuid}" ')
            .replace('SizeZ="1"', f'SizeZ="{count}"')
        )
        build.tiff(folder / f"p{n}.ome.tiff", text)
    return folder / "p0.ome.tiff"


def sources(folder):
    """One input of each kind of storage, all of the same pixels or of their own."""
    directory = many_chunks(folder / "a.zarr", shape=(40, 40))
    pixels = np.arange(3 * 40 * 40, dtype="uint16").reshape(3, 40, 40)
    tifffile.imwrite(
        folder / "a.ome.tiff", pixels, tile=(16, 16), metadata={"axes": "ZYX"}, compression="zlib"
    )
    shutil.make_archive(str(folder / "b.zarr"), "zip", directory)
    return {
        "zarr": directory, "n5": build.n5(folder / "a.n5"), "tiff": folder / "a.ome.tiff", "zip": folder / "b.zarr.zip",
    }  # fmt: skip


KINDS = ("zarr", "n5", "tiff", "zip")
COMMANDS = ("info", "check", "check-full", "check-planes", "export")


@pytest.fixture
def judge(tmp_path):
    """Run a command in this process; all promises are kept but those about the source, which the fault may change."""

    def run(command, source, codes=CODES):
        done = guards.judge(command, source, {}, tmp_path / "nothing", tmp_path / "out")
        assert done.faults == []
        assert done.code in codes, (done.code, done.err)
        return done

    return run


# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_reads_that_give_a_few_bytes_at_a_time_change_nothing(tmp_path, judge, monkeypatch, kind):
    source = sources(tmp_path)[kind]
    whole = json.loads(judge("check-planes", source, {0}).out)["data"]["planes"]
    real = system.pread
    calls = []

    def few(fd, length, offset):
        calls.append(length)
        return real(fd, min(length, 7), offset)

    monkeypatch.setattr(system, "pread", few)
    assert json.loads(judge("check-planes", source, {0}).out)["data"]["planes"] == whole
    assert max(calls) > 7
    judge("export", source, {0})


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ENOMEM, errno.EINTR]
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [0, 2, 5])
def test_reads_that_fail(tmp_path, judge, monkeypatch, kind, number, after):
    source = sources(tmp_path)[kind]
    real = system.pread
    for command in COMMANDS:
        left = [after]

        def failing(fd, length, offset, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(number, os.strerror(number))
            return real(fd, length, offset)

        monkeypatch.setattr(system, "pread", failing)
        done = judge(command, source)
        monkeypatch.setattr(system, "pread", real)
        if after == 0 and kind != "tiff":
            assert done.code in {3, 4, 5}


def test_one_chunk_that_may_not_be_read_is_named(tmp_path, judge, monkeypatch):
    source = many_chunks(tmp_path / "a.zarr", shape=(40, 40))
    real = os.open

    def denied(path, *rest, **more):
        if os.fspath(path).endswith("0/c/1/1"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, *rest, **more)

    monkeypatch.setattr(stores.os, "open", denied)
    found = json.loads(judge("check-full", source, {4, 5}).out)["data"]["findings"]
    assert [item["location"] for item in found if item["severity"] == "error"] == ["0/c/1/1"]
    assert "0/c/1/1" in judge("export", source, {5}).err


@pytest.mark.parametrize("what", ["cut", "deleted", "emptied"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [1, 4, 9])
def test_a_source_that_is_cut_or_deleted_while_it_is_read(
    tmp_path, judge, monkeypatch, kind, what, after
):
    real = system.pread
    for command in COMMANDS:
        folder = tmp_path / command
        folder.mkdir()
        source = sources(folder)[kind]
        left = [after]

        def vanishing(fd, length, offset, left=left, source=source):
            left[0] -= 1
            if left[0] == 0:
                hurt(source, what)
            return real(fd, length, offset)

        monkeypatch.setattr(system, "pread", vanishing)
        judge(command, source)
        monkeypatch.setattr(system, "pread", real)


def hurt(source, what):
    files = [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]
    if what == "deleted" and source.is_dir():
        shutil.rmtree(source)
        return
    for path in files:
        if what == "deleted":
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size // 2 if what == "cut" else 0)


def test_the_source_is_never_mapped_into_memory():
    """A mapped file that is cut while it is read ends the process by a signal that nothing can catch."""
    files = [*ROOT.glob("openreadout/**/*.py"), *ROOT.glob("plugins/**/*.py")]
    assert len(files) > 50
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert "import mmap" not in text, path
        assert "memmap(" not in text, path


# -- writing ---------------------------------------------------------------------------------------


def in_namespace(script, *words):
    """Run a shell script where mounts are ours alone; skips where the system does not allow that."""
    probe = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("mount namespaces are not allowed here")
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *map(str, words)], cwd=ROOT, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["out.ome.zarr", "out.ozx"])
def test_a_disk_that_fills_leaves_nothing(tmp_path, name):
    source = many_chunks(tmp_path / "a.zarr", shape=(600, 600), chunks=(100, 100), noise=True)
    (tmp_path / "disk").mkdir()
    script = (
        'mount -t tmpfs -o size=200k none "$2" || exit 77; '
        '"$3" -m openreadout export "$1" --to ome-zarr -o "$2/$4"; code=$?; ls -A "$2"; exit $code'
    )
    done = in_namespace(script, source, tmp_path / "disk", sys.executable, name)
    if done.returncode == 77:
        pytest.skip("tmpfs cannot be mounted here")
    assert done.returncode == 5, done.stderr
    assert done.stdout.strip() == ""
    assert "Traceback" not in done.stderr
    assert "error:" in done.stderr


@pytest.mark.parametrize("name", ["out.ome.zarr", "out.ozx"])
def test_a_target_that_may_not_be_written(tmp_path, name):
    source = many_chunks(tmp_path / "a.zarr", shape=(40, 40))
    (tmp_path / "disk").mkdir()
    script = 'mount -t tmpfs -o ro none "$2" || exit 77; "$3" -m openreadout export "$1" --to ome-zarr -o "$2/$4"'
    done = in_namespace(script, source, tmp_path / "disk", sys.executable, name)
    if done.returncode == 77:
        pytest.skip("tmpfs cannot be mounted here")
    assert done.returncode == 5, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["out.ome.zarr", "out.ozx"])
def test_a_quota_on_file_sizes(tmp_path, name):
    source = many_chunks(tmp_path / "a.zarr", shape=(600, 600), chunks=(100, 100), noise=True)
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        [*OPENREADOUT, "export", source, "--to", "ome-zarr", "-o", tmp_path / "disk" / name], cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)), capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "disk").iterdir()) == []


@pytest.mark.parametrize("name", ["out.ome.zarr", "out.ozx"])
def test_a_target_that_is_removed_while_it_is_written(tmp_path, name):
    source = many_chunks(tmp_path / "a.zarr", shape=(2000, 2000), chunks=(100, 100), noise=True)
    folder = tmp_path / "disk"
    folder.mkdir()
    process = subprocess.Popen(
        [*OPENREADOUT, "export", source, "--to", "ome-zarr", "-o", folder / name, "--threads", "1"], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 100
    while process.poll() is None and time.monotonic() < deadline:
        for path in folder.iterdir():
            if path.name.startswith("."):
                shutil.rmtree(path, ignore_errors=True)
                with contextlib.suppress(OSError):
                    path.unlink()
        time.sleep(0.005)
    _, err = process.communicate(timeout=60)
    assert process.returncode in {1, 2, 5}, err
    assert "Traceback" not in err
    assert "unexpected" not in err
    assert not (folder / name).exists()


@pytest.mark.parametrize("name", ["out.ome.zarr", "out.ozx"])
def test_two_exports_to_one_target_do_not_mix(tmp_path, name):
    folder = tmp_path / "disk"
    folder.mkdir()
    made = [
        many_chunks(tmp_path / f"{n}.zarr", shape=(400, 400), chunks=(50, 50), noise=n == 1)
        for n in (0, 1)
    ]
    command = [*OPENREADOUT, "export", "--to", "ome-zarr", "-o", folder / name]
    running = [
        subprocess.Popen(
            [*command, source], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for source in made
    ]
    ends = [(process.communicate(timeout=120)[1], process.returncode) for process in running]
    codes = [code for _, code in ends]
    assert codes.count(0) == 1, ends
    assert set(codes) <= {0, 2, 5}
    winner = made[codes.index(0)]
    same = subprocess.run(
        [*OPENREADOUT, "check", folder / name, "--against", winner, "--level", "0", "--no-metadata"], cwd=ROOT,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert same.returncode == 0, same.stdout
    assert [path.name for path in folder.iterdir()] == [name]


# -- the surroundings ------------------------------------------------------------------------------

WORDS = (
    ["info"],
    ["info", "--json"],
    ["check", "--planes"],
    ["formats"],
    ["export", "--to", "ome-zarr", "--dry-run"],
)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_locale_c_and_no_home(tmp_path, words):
    source = build.ome_zarr(
        tmp_path / "caf\xe9 \xb5m.zarr",
        multiscales=build.multiscales("0", name="\xb5 \u65e5\u672c"),
    )
    env = {
        key: value for key, value in os.environ.items() if key not in ("HOME", "LANG", "PYTHONUTF8")
    }
    env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    inputs = [] if words == ["formats"] else [source]
    done = subprocess.run(
        [*OPENREADOUT, *words, *inputs],
        cwd=ROOT,
        env=env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
@pytest.mark.parametrize(
    "redirect", [">&-", "2>&-", ">&- 2>&-", ">/dev/full", ">/dev/full 2>/dev/full", "<&-"]
)
def test_closed_and_full_streams(tmp_path, words, redirect):
    source = build.ome_zarr(tmp_path / "a.zarr")
    for path in (source, tmp_path / "missing"):
        inputs = [] if words == ["formats"] else [path]
        done = subprocess.run(
            ["sh", "-c", f'"$@" {redirect}', "sh", *OPENREADOUT, *words, *inputs], cwd=ROOT, capture_output=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode in {0, 5}, (done.returncode, done.stderr)
        assert b"Traceback" not in done.stderr
        assert b"Exception ignored" not in done.stderr
        if path is source and "full" in redirect:
            assert done.returncode == 5


@pytest.mark.parametrize("command", ["check-planes", "export"])
def test_256_open_files_are_enough(tmp_path, command):
    inputs = [
        tiff_set(tmp_path / "set", 400),
        many_chunks(tmp_path / "a.zarr", shape=(300, 300), chunks=(10, 10)),
    ]
    for n, source in enumerate(inputs):
        target = tmp_path / f"out{n}"
        target.mkdir()
        done = subprocess.run(
            [*OPENREADOUT, *guards.arguments_for(command, source, target)], cwd=ROOT, capture_output=True, text=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)), timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-500:]


@pytest.mark.parametrize("size", [400 << 20, 700 << 20, 1500 << 20])
@pytest.mark.parametrize("command", COMMANDS)
def test_little_address_space(tmp_path, command, size):
    source = many_chunks(tmp_path / "a.zarr", shape=(2000, 2000), chunks=(1000, 1000))
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [*OPENREADOUT, *guards.arguments_for(command, source, tmp_path / "out")], cwd=ROOT, capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)), text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode in {0, 1, 5, 6}, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    if size == 1500 << 20 or command == "info":
        assert done.returncode == 0, done.stderr
    if done.returncode:
        assert list((tmp_path / "out").iterdir()) == []
