"""The target shows nothing, what was there, or a complete output; the source stays as it is."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from openreadout.operations import target as target_module
from openreadout.testing import find_cases

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES = find_cases(FIXTURES)


@pytest.fixture
def source(make, tmp_path):
    return make.image(tmp_path / "in" / "a.ome.zarr", [make.noise((3, 40, 50))], "zyx")


def names(folder):
    return sorted(p.name for p in folder.iterdir())


# -- where a target may lie ------------------------------------------------------------------------


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]], ids=["new", "overwrite"])
@pytest.mark.parametrize(
    "place", ["in/a.ome.zarr", "in/a.ome.zarr/0", "in/a.ome.zarr/new.ome.zarr", "in", "in/../in/a.ome.zarr", "."]
)  # fmt: skip
def test_a_target_that_is_holds_or_lies_in_the_source_is_refused(
    place, overwrite, source, tmp_path, export, killing
):
    before = killing.tree(tmp_path)
    error = export(source, tmp_path / place, *overwrite, code=2)
    assert error["code"] == "usage"
    assert killing.tree(tmp_path) == before


@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]], ids=["new", "overwrite"])
@pytest.mark.parametrize("place", ["link/a.ome.zarr", "link/a.ome.zarr/x.ome.zarr", "straight"])
def test_links_do_not_hide_that_the_target_is_the_source(
    place, overwrite, source, tmp_path, export, killing
):
    (tmp_path / "link").symlink_to(tmp_path / "in", target_is_directory=True)
    (tmp_path / "straight").symlink_to(source, target_is_directory=True)
    before = killing.tree(tmp_path)
    export(source, tmp_path / place, *overwrite, code=2)
    export(tmp_path / "straight", source, *overwrite, code=2)
    assert killing.tree(tmp_path) == before


@pytest.mark.parametrize("kind", ["store", "dangling", "file"])
def test_a_link_is_never_replaced(kind, source, tmp_path, export, killing):
    other = tmp_path / "other"
    if kind == "store":
        shutil.copytree(source, other)
    elif kind == "file":
        other.write_text("mine")
    link = tmp_path / "out.ome.zarr"
    link.symlink_to(other)
    before = killing.tree(tmp_path / "in")
    for options in ([], ["--overwrite"]):
        export(source, link, *options, code=2)
    assert link.is_symlink()
    assert os.readlink(link) == str(other)
    assert other.exists() == (kind != "dangling")
    assert killing.tree(tmp_path / "in") == before
    assert names(tmp_path) == sorted(["in", "out.ome.zarr", *(["other"] if other.exists() else [])])


def test_a_mount_point_is_not_replaced(source, tmp_path, export, monkeypatch):
    target = tmp_path / "out.ome.zarr"
    target.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == str(target))
    assert "mount" in export(source, target, "--overwrite", code=2)["message"]
    assert names(target) == []


def test_a_folder_that_is_no_store_is_not_replaced(source, tmp_path, export):
    target = tmp_path / "home"
    target.mkdir()
    (target / "thesis.txt").write_text("years")
    for options in ([], ["--overwrite"]):
        export(source, target, *options, code=2)
    assert (target / "thesis.txt").read_text() == "years"


def test_a_target_that_exists_needs_overwrite(source, tmp_path, export, killing):
    for name, other in (("out.ome.zarr", "--pyramid"), ("out.ozx", "--pyramid")):
        target = tmp_path / name
        export(source, target, other, "none")
        before = killing.tree(target)
        assert "--overwrite" in export(source, target, code=2)["hint"]
        assert killing.tree(target) == before
        export(source, target, "--overwrite", "--name", "second")
        assert killing.tree(target) != before
        assert names(tmp_path) == sorted({"in", "out.ome.zarr", name})


@pytest.mark.parametrize(("old", "new"), [("file", ".ome.zarr"), ("store", ".ozx")])
def test_a_file_gives_way_to_a_store_and_a_store_to_a_file(
    old, new, source, tmp_path, export, command
):
    target = tmp_path / f"out{new}"
    if old == "file":
        target.write_text("an older export")
    else:
        shutil.copytree(source, target)
    export(source, target, code=2)
    export(source, target, "--overwrite")
    assert target.is_file() == (new == ".ozx")
    assert command("check", "--full", target)["ok"]
    assert names(tmp_path) == ["in", target.name]


@pytest.mark.parametrize("place", ["missing/out.ome.zarr", "in/a.ome.zarr.txt/out.ome.zarr"])
def test_a_folder_that_is_not_there_is_an_error_of_the_system(place, source, tmp_path, export):
    (tmp_path / "in" / "a.ome.zarr.txt").write_text("a file")
    assert export(source, tmp_path / place, code=5)["code"] == "io"


def test_an_empty_target_is_refused(source, tmp_path, export, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    export(source, "", code=2)
    assert names(tmp_path) == ["here", "in"]


@pytest.mark.parametrize("case", CASES[::5], ids=str)
@pytest.mark.parametrize("name", ["out.ome.zarr", "out.ozx"])
def test_nothing_changes_in_the_source(case, name, tmp_path, export, killing):
    copy = tmp_path / case.data.name
    (shutil.copytree if case.data.is_dir() else shutil.copyfile)(case.data, copy)
    before = killing.tree(copy)
    times = {p: p.stat().st_mtime_ns for p in [copy, *copy.rglob("*")]}
    export(copy, tmp_path / name)
    assert killing.tree(copy) == before
    assert {p: p.stat().st_mtime_ns for p in [copy, *copy.rglob("*")]} == times


# -- replacing an old output -----------------------------------------------------------------------


def refuse(*_):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("name", ["out.ome.zarr", "out.ozx"])
@pytest.mark.parametrize("way", ["exchange", "rename", "second rename"])
def test_an_old_output_stays_when_it_cannot_be_replaced(
    way, name, source, tmp_path, export, killing, monkeypatch
):
    target = tmp_path / name
    export(source, target, "--pyramid", "none", "--name", "old")
    before = killing.tree(target)
    real = os.rename
    if way == "exchange":
        monkeypatch.setattr(target_module, "exchange", refuse)
    else:
        monkeypatch.setattr(target_module, "exchange", lambda *_: False)
        calls = []

        def rename(one, other):
            calls.append(one)
            if way == "rename" or (len(calls) == 2 and not str(one).count(".old-")):
                refuse()
            real(one, other)

        monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "replace", _refuse_final(os.replace, target))
    export(source, target, "--overwrite", code=5)
    assert killing.tree(target) == before
    monkeypatch.undo()
    export(source, target, "--overwrite", "--resume")
    assert killing.tree(target) != before
    assert names(tmp_path) == ["in", name]


def _refuse_final(real, target):
    """`os.replace` that works for the files of a store and fails for the target."""

    def replace(one, other):
        if str(other) == str(target):
            refuse()
        real(one, other)

    return replace


def test_without_an_exchange_of_names_an_old_output_is_replaced_too(
    source, tmp_path, export, killing, monkeypatch
):
    target = tmp_path / "out.ome.zarr"
    export(source, target)
    wanted = killing.tree(target)
    export(source, target, "--overwrite", "--pyramid", "none", "--name", "old")
    monkeypatch.setattr(target_module, "exchange", lambda *_: False)
    export(source, target, "--overwrite")
    assert killing.tree(target) == wanted
    assert names(tmp_path) == ["in", "out.ome.zarr"]


def test_a_kill_after_the_exchange_leaves_the_new_output_and_resume_starts_anew(
    source, tmp_path, export, killing, monkeypatch
):
    """The old output then lies under the hidden name; nothing of it may come into the new one."""
    target = tmp_path / "out.ome.zarr"
    export(source, target, "--name", "old", "--no-verify", "--codec", "none")
    real = target_module.remove
    monkeypatch.setattr(target_module, "remove", lambda path: None)  # as if killed before it
    export(source, target, "--overwrite")
    monkeypatch.setattr(target_module, "remove", real)
    wanted = killing.tree(target)
    assert ".out.ome.zarr.partial" in names(tmp_path)
    export(source, target, "--overwrite", "--resume", "--no-verify")
    assert killing.tree(target) == wanted
    assert names(tmp_path) == ["in", "out.ome.zarr"]


def test_a_target_that_appears_meanwhile_is_left_alone(
    source, tmp_path, export, monkeypatch, killing
):
    for name in ("out.ome.zarr", "out.ozx"):
        target = tmp_path / name
        real = target_module.rename_into_place

        def commit(*arguments, target=target, real=real, **options):
            target.write_text("somebody else's")
            real(*arguments, **options)

        monkeypatch.setattr(target_module, "rename_into_place", commit)
        export(source, target, code=2)
        assert target.read_text() == "somebody else's"
        monkeypatch.undo()
    assert names(tmp_path) == ["in", "out.ome.zarr", "out.ozx"]


# -- verification ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.ome.zarr", "out.ozx"])
@pytest.mark.parametrize("options", [[], ["--codec", "none"], ["--pyramid", "none"]], ids=" ".join)
@pytest.mark.parametrize("old", [False, True], ids=["new", "overwrite"])
def test_a_flipped_byte_is_caught_before_the_output_gets_its_name(
    old, options, name, make, tmp_path, export, killing, monkeypatch
):
    from openreadout_ome_zarr_writer.sink import OmeZarrSink

    # odd chunks are encoded anew where a codec is asked for, else they are copied; both are verified
    source = make.image(
        tmp_path / "a.ome.zarr", [make.noise((2, 70, 90))], "zyx", chunks=(1, 30, 31)
    )
    target = tmp_path / name
    if old:
        export(source, target)
    before = killing.tree(target) if old else None
    real = OmeZarrSink.finish

    def finish(self, **how):
        real(self, **how)
        path = Path(self._output.path)
        file = path if path.is_file() else max(path.rglob("c/**/0"), key=lambda p: p.stat().st_size)
        data = bytearray(file.read_bytes())
        place = len(data) // 2 if path.is_dir() else data.find(b"0/c/0") + 5 + 40 + 20
        data[place] ^= 1
        file.write_bytes(data)

    monkeypatch.setattr(OmeZarrSink, "finish", finish)
    error = export(source, target, *options, *(["--overwrite"] if old else []), code=1)
    assert error["code"] == "error"
    assert (killing.tree(target) if old else None) == before
    assert target.exists() == old
    assert names(tmp_path) == sorted(["a.ome.zarr", *([name] if old else [])])


@pytest.mark.parametrize("level", [0, 1])
def test_other_samples_are_caught_at_every_level(level, make, tmp_path, export, monkeypatch):
    from openreadout_ome_zarr_writer.sink import OmeZarrSink

    source = make.image(tmp_path / "a.ome.zarr", [make.noise((2, 600, 600))], "zyx")
    real = OmeZarrSink.write_block

    def write(self, image, number, region, block, absent=()):
        if number == level and block is not None and region[-1][0] == 0:
            block = block.copy()
            block[..., -1, -1] += 1
        real(self, image, number, region, block, absent)

    monkeypatch.setattr(OmeZarrSink, "write_block", write)
    error = export(source, tmp_path / "out.ome.zarr", "--codec", "zstd", code=1)
    assert f"level {level}" in error["message"]
    assert names(tmp_path) == ["a.ome.zarr"]


# -- interruptions ---------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_kills_at_random_moments_leave_nothing_incomplete_and_can_be_resumed(killing, tmp_path):
    killer = killing.Killer(tmp_path, seed=random.randrange(1 << 30))
    for number in range(12):
        killer.round(number)
    assert sum(killer.ends.values()) == 12


def partial_of(source, target, export, monkeypatch, *options, after=3):
    """An export that the system stops after some files; the files that stay."""
    from openreadout_ome_zarr_writer import outputs

    real, count = os.replace, [0]

    def replace(one, other):
        count[0] += 1
        if count[0] > after:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(other))
        real(one, other)

    monkeypatch.setattr(outputs.os, "replace", replace)
    error = export(source, target, *options, "--threads", "1", code=5)
    monkeypatch.undo()
    hidden = target.parent / f".{target.name}.partial"
    assert not target.exists()
    left = [p for p in hidden.rglob("*") if p.is_file() and p.suffix != ".part"]
    return error, {p: p.stat().st_mtime_ns for p in left}


WAY = ("--chunks", "16,16", "--shards", "32,32")


def test_resume_writes_no_finished_file_again(source, tmp_path, export, monkeypatch, killing):
    export(source, tmp_path / "whole.ome.zarr", *WAY)
    target = tmp_path / "out.ome.zarr"
    error, kept = partial_of(source, target, export, monkeypatch, *WAY)
    assert "--resume" in error["hint"]
    assert len(kept) == 3
    kept_keys = {p.relative_to(tmp_path / ".out.ome.zarr.partial") for p in kept}
    times = {k: (tmp_path / ".out.ome.zarr.partial" / k).stat().st_mtime_ns for k in kept_keys}
    export(source, target, *WAY, "--resume")
    assert {k: (target / k).stat().st_mtime_ns for k in kept_keys} == times
    assert killing.tree(target) == killing.tree(tmp_path / "whole.ome.zarr")


def _emptied(file):
    file.write_bytes(b"")


def _zeros(file):
    file.write_bytes(bytes(file.stat().st_size))


def _cut(file):
    file.write_bytes(file.read_bytes()[:-5])


def _flipped(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 16
    file.write_bytes(data)


def _longer(file):
    file.write_bytes(file.read_bytes() + bytes(7))


@pytest.mark.parametrize(
    "torn", [_emptied, _zeros, _cut, _flipped, _longer], ids=lambda f: f.__name__[1:]
)
@pytest.mark.parametrize("which", [".out.ome.zarr.partial", "lock", "files"])
def test_resume_trusts_nothing_that_a_loss_of_power_tore(
    which, torn, source, tmp_path, export, monkeypatch, killing
):
    """The output's own files, the lock file and the list of what is complete; nothing is read back to find it out."""
    way = [*WAY, "--codec", "none"]
    export(source, tmp_path / "whole.ome.zarr", *way)
    target = tmp_path / "out.ome.zarr"
    _, kept = partial_of(source, target, export, monkeypatch, *way)
    if which.startswith("."):
        kept_files = sorted(kept)
        assert len(kept_files) == 3
        torn(kept_files[0])
    else:
        torn(tmp_path / f".out.ome.zarr.partial.{which}")
    export(source, target, *way, "--resume", "--no-verify")
    assert killing.tree(target) == killing.tree(tmp_path / "whole.ome.zarr")
    assert names(tmp_path) == ["in", "out.ome.zarr", "whole.ome.zarr"]


def test_what_was_not_noted_as_complete_is_written_again(
    source, tmp_path, export, monkeypatch, killing
):
    export(source, tmp_path / "whole.ome.zarr", *WAY)
    target = tmp_path / "out.ome.zarr"
    partial_of(source, target, export, monkeypatch, *WAY)
    hidden = tmp_path / ".out.ome.zarr.partial"
    (hidden / "0" / "strange").write_text("of somebody else")
    (hidden / "0" / "elsewhere").symlink_to(tmp_path / "in", target_is_directory=True)
    (hidden / "0" / "nowhere").symlink_to(tmp_path / "missing")
    before = killing.tree(tmp_path / "in")
    export(source, target, *WAY, "--resume")
    assert killing.tree(target) == killing.tree(tmp_path / "whole.ome.zarr")
    assert killing.tree(tmp_path / "in") == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize(
    "way", ["new", "resumed", "overwrite", "two-renames", "archive", "archive-overwrite"]
)
def test_a_kill_before_or_after_any_step_can_be_resumed(way):
    """A sample of moments, another one each time; `kill_at.py` tries all of them."""
    moments = ["--first", str(random.randrange(1, 200)), "--every", "199"]
    told = kill_at("--way", way, *moments)
    assert way in told


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_an_interruption_at_any_line_ends_as_one(name):
    """Anywhere in the program and the libraries it calls; again a sample, another one each time."""
    way = random.choice(["new", "overwrite", "archive"])
    first = str(random.randrange(1, 30000))
    told = kill_at("--lines", "--signal", name, "--way", way, "--first", first, "--every", "29989")
    assert name in told


def kill_at(*arguments):
    """Run the script of that name to its end; what it says last."""
    script = [sys.executable, "-m", "tests.export.kill_at", *arguments]
    checkout = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        script, cwd=checkout, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout.splitlines()[-1]


OTHER_WAYS = {
    "name": ["--name", "other"],
    "codec": ["--codec", "gzip"],
    "plane": ["--select", "z=1"],
    "pyramid": ["--levels", "2"],
    "version": ["--ngff", "0.4"],
}


@pytest.mark.parametrize("name", OTHER_WAYS)
def test_resume_refuses_other_options(name, source, tmp_path, export, monkeypatch):
    target = tmp_path / "out.ome.zarr"
    first = ["--select", "z=0"] if name == "plane" else []
    _, kept = partial_of(source, target, export, monkeypatch, *WAY, *first)
    error = export(source, target, *WAY, *OTHER_WAYS[name], "--resume", code=2)
    assert "resumed" in error["message"]
    assert all(p.exists() for p in kept), "what can still be resumed stays"
    export(source, target, *WAY, *first, "--resume")


def test_resume_starts_anew_where_nobody_knows_what_was_left(source, tmp_path, export, killing):
    export(source, tmp_path / "whole.ome.zarr", *WAY)
    left = tmp_path / ".out.ome.zarr.partial"
    (left / "0").mkdir(parents=True)
    (left / "0" / "strange").write_text("x")
    export(source, tmp_path / "out.ome.zarr", *WAY, "--resume")
    assert killing.tree(tmp_path / "out.ome.zarr") == killing.tree(tmp_path / "whole.ome.zarr")
    assert names(tmp_path) == ["in", "out.ome.zarr", "whole.ome.zarr"]


def test_resume_refuses_another_source(source, tmp_path, export, monkeypatch):
    target = tmp_path / "out.ome.zarr"
    partial_of(source, target, export, monkeypatch, *WAY)
    chunk = max((p for p in source.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    os.utime(chunk, (1, 1))
    export(source, target, *WAY, "--resume", code=2)
    export(source, target, *WAY)
    assert names(tmp_path) == ["in", "out.ome.zarr"]


def test_resume_without_anything_to_resume_is_an_ordinary_export(source, tmp_path, export):
    for name in ("out.ome.zarr", "out.ozx"):
        export(source, tmp_path / name, "--resume")
    assert names(tmp_path) == ["in", "out.ome.zarr", "out.ozx"]


def test_a_second_export_to_one_target_is_refused_and_the_first_goes_on(killing, tmp_path, export):
    source = killing.make_source(tmp_path / "a.ome.zarr")
    target = tmp_path / "out.ome.zarr"
    with subprocess.Popen(killing.command(source, target)) as first:
        while first.poll() is None and not (tmp_path / ".out.ome.zarr.partial").exists():
            time.sleep(0.002)
        error = export(source, target, *killing.OPTIONS, code=2)
        assert "another export" in error["message"]
    assert first.returncode == 0
    assert names(tmp_path) == ["a.ome.zarr", "out.ome.zarr"]


# -- a full disk -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of a size; the folder, and a function that changes the size."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a small file system")
    folder = tmp_path / "small"
    folder.mkdir()

    def size(count, *options):
        how = ",".join([f"size={count}", "nr_inodes=20000", *options])
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", how, "tmpfs", folder], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip(f"this system does not mount tmpfs: {done.stderr.decode()}")

    size(1 << 20)
    yield folder, lambda count: size(count, "remount")
    subprocess.run(["umount", folder], check=True)


def disk_bytes(path):
    return sum(-(-p.stat().st_size // 4096) * 4096 for p in path.rglob("*") if p.is_file())


@pytest.mark.parametrize("sync", ["--sync", "--no-sync"])
@pytest.mark.parametrize("name", ["out.ome.zarr", "out.ozx"])
def test_a_full_disk_leaves_the_target_as_it_was_and_can_be_resumed(
    name, sync, make, tmp_path, small_disk, command, killing
):
    disk, resize = small_disk
    source = make.image(tmp_path / "a.ome.zarr", [make.noise((4, 200, 200), top=60000)], "zyx")
    arguments = ["export", source, "--to", "ome-zarr", *WAY, "--codec", "zstd", sync, "-o"]
    command(*arguments, tmp_path / name)
    wanted = killing.tree(tmp_path / name)
    whole = (tmp_path / name).stat().st_size if name == "out.ozx" else disk_bytes(tmp_path / name)
    chance = random.Random(sum(map(ord, name + sync)))
    for number in range(5):
        resize(4096 * max(1, int(whole / 4096 * chance.uniform(0.02, 0.95))))
        error = command(*arguments, disk / name, code=5)
        assert error["code"] == "io"
        assert not (disk / name).exists()
        if number % 2:
            error = command(*arguments, disk / name, "--resume", code=5)
        resize(64 << 20)
        command(*arguments, disk / name, "--resume")
        assert killing.tree(disk / name) == wanted
        assert names(disk) == [name]
        old = killing.tree(disk / name)
        if name == "out.ome.zarr":
            used = disk_bytes(disk / name)
            resize(used + 4096 * max(2, int(used / 4096 * chance.uniform(0.05, 0.9))))
            command(*arguments, disk / name, "--overwrite", "--name", "other", code=5)
            assert killing.tree(disk / name) == old
            resize(64 << 20)
        shutil.rmtree(disk / name) if (disk / name).is_dir() else (disk / name).unlink()
        for left in disk.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()


# -- batches and plans -----------------------------------------------------------------------------


def test_skip_done_leaves_complete_outputs_alone(source, tmp_path, command, killing, make):
    other = make.image(tmp_path / "in" / "b.ome.zarr", [make.noise((3, 40, 50), seed=5)], "zyx")
    arguments = ["export", source, other, "--to", "ome-zarr", "--no-sync", "-o", tmp_path / "out"]
    command(*arguments)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*")}
    again = command(*arguments, code=2)["inputs"]
    assert [entry["ok"] for entry in again] == [False, False]
    shutil.rmtree(tmp_path / "out" / "b.ome.zarr")
    third = [entry["data"] for entry in command(*arguments, "--skip-done")["inputs"]]
    assert [entry["files_written"] > 0 for entry in third] == [False, True]
    after = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*")}
    assert {p: t for p, t in after.items() if "a.ome.zarr" in str(p)} == {
        p: t for p, t in before.items() if "a.ome.zarr" in str(p)
    }


def test_skip_done_does_not_take_something_else_for_the_output(source, tmp_path, export, make):
    target = make.image(tmp_path / "out.ome.zarr", [make.noise((3, 40, 51))], "zyx")
    assert "--overwrite" in export(source, target, "--skip-done", code=2)["hint"]


@pytest.mark.parametrize("name", ["out.ome.zarr", "out.ozx"])
def test_a_plan_bounds_an_output_whose_numbers_are_seen_only_while_writing(
    name, make, tmp_path, export, command
):
    """Windows of floats stand in the documents, whose room in an archive is reserved before a pixel is read."""
    random = np.random.default_rng(1)
    pixels = (random.random((150, 3, 4)) * -1e-300).astype("float64")
    source = make.image(tmp_path / "a.ome.zarr", [pixels], "cyx", chunks=(1, 3, 4))
    plan = export(source, tmp_path / name, "--dry-run")
    report = export(source, tmp_path / name)
    assert report["bytes_written"] <= plan["bytes_at_most"]
    assert report["files_written"] <= plan["files_at_most"]
    assert command("check", "--full", tmp_path / name)["ok"]


PLANS = ([], ["--ngff", "0.4"], ["--codec", "none", "--shards", "none"], ["--chunks", "7,7"])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_plan_bounds_the_bytes_of_an_archive(case, tmp_path, export):
    target = tmp_path / "out.ozx"
    plan = export(case.data, target, "--dry-run")
    report = export(case.data, target)
    assert target.stat().st_size == report["bytes_written"] <= plan["bytes_at_most"]
    assert report["files_written"] == plan["files_at_most"] == 1


@pytest.mark.parametrize("options", PLANS, ids=" ".join)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_plan_bounds_the_files_and_bytes_of_the_output(case, options, tmp_path, export):
    target = tmp_path / "out.ome.zarr"
    plan = export(case.data, target, *options, "--dry-run")
    assert names(tmp_path) == [], "a plan writes nothing"
    report = export(case.data, target, *options)
    files = [p for p in target.rglob("*") if p.is_file()]
    assert report["files_written"] == len(files)
    assert report["bytes_written"] == sum(p.stat().st_size for p in files)
    assert len(files) <= plan["files_at_most"]
    assert report["bytes_written"] <= plan["bytes_at_most"]
    assert sum(len(i["levels"]) for i in plan["images"]) == report["levels_written"]
