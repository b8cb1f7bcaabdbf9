"""`--part I/N` and `--commit`: processes that know nothing of each other give the bytes of a plain export."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from openreadout.operations import parts as parts_module
from openreadout.operations import walk
from openreadout.operations.claim import claimed
from openreadout.testing import find_cases

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES = find_cases(FIXTURES)
SMALL = ("--chunks", "16,16", "--shards", "32,32")


@pytest.fixture
def many_cells(monkeypatch):
    """Small images have as many cells as large ones."""
    monkeypatch.setattr(walk, "SMALL_CELL", 0)


@pytest.fixture
def in_parts(export):
    """Export in parts, each part run once, in another order than their numbers tell; the report of the commit."""

    def call(source, target, *options, count=3):
        order = [*range(count, 0, -2), *range(count - 1, 0, -2)]
        reports = [export(source, target, *options, "--part", f"{n}/{count}") for n in order]
        assert not target.exists()
        report = export(source, target, *options, "--commit")
        assert report["verified"]
        assert [r["part"] for r in reports] == [f"{n}/{count}" for n in order]
        return report

    return call


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def counts(report):
    return {key: value for key, value in report.items() if key not in ("seconds", "output")}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_of_every_fixture_give_the_bytes_of_one_export(
    case, tmp_path, export, in_parts, killing, monkeypatch
):
    one = export(case.data, tmp_path / "one.ome.zarr")
    monkeypatch.setattr(walk, "SMALL_CELL", 0)
    parts = in_parts(case.data, tmp_path / "parts.ome.zarr")
    assert killing.tree(tmp_path / "parts.ome.zarr") == killing.tree(tmp_path / "one.ome.zarr")
    assert counts(parts) == counts(one)
    assert names(tmp_path) == ["one.ome.zarr", "parts.ome.zarr"]


def sources(make, folder):
    """Images of kinds that differ in how levels above the first come about."""
    yield (
        "plain",
        make.image(folder / "plain", [make.noise((2, 3, 150, 170))], "czyx", chunks=(1, 2, 16, 16)),
        (),
    )
    yield (
        "volume",
        make.image(folder / "volume", [make.noise((40, 90, 100))], "zyx", chunks=(8, 20, 16)),
        (),
    )
    floats = make.noise((2, 200, 130)).astype("float32") - 500
    floats[0, 3, 4] = np.nan
    yield "floats", make.image(folder / "floats", [floats], "cyx", chunks=(1, 40, 40)), ()
    sparse = np.zeros((300, 300), "uint16")
    sparse[250:270, 20:40] = 7
    few = make.image(folder / "sparse", [sparse], "yx", chunks=(16, 16))
    yield "sparse", few, ()
    yield "sparse in one shard", few, ("--chunks", "16,16", "--shards", "304,304")
    copied = make.image(folder / "copied", [make.noise((120, 140))], "yx", chunks=(16, 16))
    yield "copied", copied, ("--shards", "32,32")
    yield "kept", copied, ("--codec", "keep", "--shards", "none")
    yield "selected", copied, ("--region", "3,5,100,90")
    yield "old", copied, ("--ngff", "0.4", "--chunks", "16,16")


@pytest.mark.parametrize(("levels", "count"), [(1, 7), (2, 2), (5, 3)])
@pytest.mark.usefixtures("many_cells")
def test_levels_made_from_several_parts_are_the_same(
    levels, count, make, tmp_path, export, in_parts, killing
):
    for name, source, options in sources(make, tmp_path / "in"):
        options = (*(options or SMALL), "--pyramid", "mean", "--levels", levels)
        one, parts = (tmp_path / f"{name}-{kind}.ome.zarr" for kind in ("one", "parts"))
        export(source, one, *options)
        in_parts(source, parts, *options, count=count)
        assert killing.tree(parts) == killing.tree(one), name


@pytest.mark.usefixtures("many_cells")
def test_every_part_has_its_share(make, tmp_path, export):
    source = make.image(tmp_path / "a", [make.noise((256, 256))], "yx", chunks=(16, 16))
    target = tmp_path / "out.ome.zarr"
    options = (*SMALL, "--pyramid", "none")
    files = [
        export(source, target, *options, "--part", f"{n}/4")["files_written"] for n in (1, 2, 3, 4)
    ]
    assert files == [16, 16, 16, 16]
    again = export(source, target, *options, "--part", "2/4")
    assert again["files_written"] == 0


@pytest.mark.usefixtures("many_cells")
def test_more_parts_than_work_are_no_error(make, tmp_path, in_parts):
    source = make.image(tmp_path / "a", [make.noise((8, 8))], "yx")
    assert in_parts(source, tmp_path / "out.ome.zarr", count=5)["planes_written"] == 1


# -- parts that are missing, killed, run again -----------------------------------------------------


@pytest.fixture
def source(make, tmp_path):
    pixels = make.noise((3, 140, 150))
    return make.image(tmp_path / "in" / "a.ome.zarr", [pixels], "zyx", chunks=(1, 20, 20))


@pytest.mark.usefixtures("many_cells")
def test_a_commit_names_the_parts_that_are_missing(source, tmp_path, export, killing):
    target = tmp_path / "out.ome.zarr"
    assert "no part" in export(source, target, *SMALL, "--commit", code=2)["message"]
    assert names(tmp_path) == ["in"]
    export(source, target, *SMALL, "--part", "2/4")
    for _ in range(2):
        error = export(source, target, *SMALL, "--commit", code=2)
        assert "3 of 4 parts are not complete: 1, 3, 4" in error["message"]
        assert not target.exists()
    for n in (1, 3, 4):
        export(source, target, *SMALL, "--part", f"{n}/4")
    export(source, target, *SMALL, "--commit")
    export(source, tmp_path / "one.ome.zarr", *SMALL)
    assert killing.tree(target) == killing.tree(tmp_path / "one.ome.zarr")


@pytest.mark.usefixtures("many_cells")
def test_parts_of_other_options_another_number_or_another_source_are_refused(
    source, tmp_path, export, killing
):
    target = tmp_path / "out.ome.zarr"
    export(source, target, *SMALL, "--part", "1/2")
    before = killing.tree(tmp_path)
    for other in (("--part", "2/2", "--name", "x"), ("--part", "2/3"), ("--commit", "--name", "x")):
        error = export(source, target, *SMALL, *other, code=2)
        assert "options" in error["message"]
    export(source, target, *SMALL, "--resume", code=2)
    assert killing.tree(tmp_path) == before
    document = source / "zarr.json"
    document.write_text(document.read_text() + " ")
    for other in (("--part", "2/2"), ("--commit",)):
        assert "source" in export(source, target, *SMALL, *other, code=2)["message"]


def test_what_cannot_be_written_in_parts_is_refused(source, tmp_path, export, command):
    for wrong in ("0/3", "4/3", "1", "1/", "a/b", "1/0", "-1/3", "1/9999999", "²/3"):
        assert "3/16" in export(source, tmp_path / "o", f"--part={wrong}", code=2)["message"]
    for how in (("--part", "1/2"), ("--commit",)):
        assert "folder" in export(source, "s3://bucket/o.zarr", *how, code=2)["message"]
    for target in ("o.ozx", "o.zip"):
        for how in (("--part", "1/2"), ("--commit",)):
            assert "archive" in export(source, tmp_path / target, *how, code=2)["message"]
    for others in ("--part 1/2 --commit", "--part 1/2 --resume", "--commit --dry-run"):
        assert "exclude" in export(source, tmp_path / "o", *others.split(), code=2)["message"]
    command("export", source, "--to", "ome-zarr", "--in-place", "--part", "1/2", code=2)
    assert names(tmp_path) == ["in"]


def test_parts_and_other_exports_keep_out_of_each_others_way(source, tmp_path, export):
    target = tmp_path / "out.ome.zarr"
    lock = str(tmp_path / ".out.ome.zarr.partial.lock")
    export(source, target, "--part", "1/2")
    with claimed(lock, str(target), shared=True) as claim:  # a part that is still at work
        claim.keep = True
        export(source, target, "--part", "2/2")
        assert "another export" in export(source, target, "--commit", code=2)["message"]
        assert "another export" in export(source, target, code=2)["message"]
    with claimed(lock, str(target)) as claim:  # a commit
        claim.keep = True
        assert "another export" in export(source, target, "--part", "1/2", code=2)["message"]
    export(source, target, "--commit")
    assert "--overwrite" in export(source, target, "--part", "1/2", code=2)["hint"]
    assert names(tmp_path) == ["in", "out.ome.zarr"]


def test_an_interrupted_export_is_not_taken_for_parts(source, tmp_path, export):
    (tmp_path / ".out.ome.zarr.partial" / "0").mkdir(parents=True)
    error = export(source, tmp_path / "out.ome.zarr", "--part", "1/2", code=2)
    assert "interrupted" in error["message"]


@pytest.mark.usefixtures("many_cells")
def test_a_plain_export_starts_anew_where_parts_were_given_up(source, tmp_path, export):
    export(source, tmp_path / "out.ome.zarr", *SMALL, "--part", "1/2")
    export(source, tmp_path / "out.ome.zarr")
    assert names(tmp_path) == ["in", "out.ome.zarr"]


@pytest.mark.usefixtures("many_cells")
def test_a_note_that_was_cut_is_written_again(source, tmp_path, export, killing):
    target = tmp_path / "out.ome.zarr"
    export(source, target, *SMALL, "--part", "1/1")
    notes = next((tmp_path / ".out.ome.zarr.partial" / ".parts").glob("*.cells"))
    notes.write_bytes(notes.read_bytes()[:-9])
    assert "not complete: 1" in export(source, target, *SMALL, "--commit", code=2)["message"]
    assert export(source, target, *SMALL, "--part", "1/1")["files_written"] > 0
    export(source, target, *SMALL, "--commit")


@pytest.mark.usefixtures("many_cells")
@pytest.mark.parametrize("old", [False, True], ids=["new", "overwrite"])
def test_a_flipped_byte_between_part_and_commit_is_caught(old, source, tmp_path, export, killing):
    target = tmp_path / "out.ome.zarr"
    if old:
        export(source, target, "--name", "old")
    more = (*SMALL, *(["--overwrite"] if old else []))
    before = killing.tree(target)
    export(source, target, *more, "--part", "1/1")
    file = next(
        p for p in (tmp_path / ".out.ome.zarr.partial" / "0").rglob("c/*/*/*") if p.is_file()
    )
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 4
    file.write_bytes(data)
    assert export(source, target, *more, "--commit", code=1)["code"] == "error"
    assert killing.tree(target) == before
    assert names(tmp_path) == sorted(["in", *(["out.ome.zarr"] if old else [])])


@pytest.mark.usefixtures("many_cells")
@pytest.mark.parametrize("stage", ["write_passes", "verify"])
def test_an_interrupted_commit_can_be_run_again(
    stage, source, tmp_path, export, command, killing, monkeypatch
):
    target = tmp_path / "out.ome.zarr"
    options = (*SMALL, "--pyramid", "mean", "--levels", "3")
    for n in (1, 2):
        export(source, target, *options, "--part", f"{n}/2")

    def stop(*_):
        raise KeyboardInterrupt

    owner = parts_module.Writing if stage == "write_passes" else parts_module.ReadBack
    monkeypatch.setattr(owner, stage, stop)
    from openreadout.cli import run

    assert (
        run(
            [
                "export",
                str(source),
                "--to",
                "ome-zarr",
                "-o",
                str(target),
                "--no-sync",
                *options,
                "--commit",
            ]
        )
        == 130
    )
    monkeypatch.undo()
    monkeypatch.setattr(walk, "SMALL_CELL", 0)
    assert not target.exists()
    assert export(source, target, *options, "--part", "1/2")["files_written"] == 0
    export(source, target, *options, "--commit")
    export(source, tmp_path / "one.ome.zarr", *options)
    assert killing.tree(target) == killing.tree(tmp_path / "one.ome.zarr")
    assert names(tmp_path) == ["in", "one.ome.zarr", "out.ome.zarr"]


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_killed_parts_that_run_again_give_the_same_bytes(tmp_path, killing):
    source = killing.make_source(tmp_path / "source.ome.zarr", side=768)
    target = tmp_path / "out.ome.zarr"
    options = ("--shards", "128,128")  # cells of a part come one after the other
    killing.finish(source, tmp_path / "one.ome.zarr", *options)
    records = tmp_path / ".out.ome.zarr.partial" / ".parts"
    kills = 0
    for n in (1, 2, 3):
        for _ in range(3):
            # killed as soon as it has begun a file of notes, and as soon as it has noted a cell
            for noted in (0, 1):
                before = {path: path.stat().st_size for path in records.glob("*.cells")}
                running = subprocess.Popen(
                    [
                        *killing.command(source, target, *options),
                        "--part",
                        f"{n}/3",
                        "--threads",
                        "1",
                    ],
                    stdout=subprocess.DEVNULL,
                )
                while running.poll() is None:
                    sizes = {path: path.stat().st_size for path in records.glob("*.cells")}
                    if any(size >= noted and path not in before for path, size in sizes.items()):
                        running.send_signal(signal.SIGKILL)
                        break
                    time.sleep(0.001)
                kills += running.wait() == -signal.SIGKILL
        killing.finish(source, target, *options, "--part", f"{n}/3")
        assert not target.exists()
    assert kills > 0
    killing.finish(source, target, *options, "--commit")
    assert killing.tree(target) == killing.tree(tmp_path / "one.ome.zarr")
    assert names(tmp_path) == ["one.ome.zarr", "out.ome.zarr", "source.ome.zarr"]


def test_parts_that_run_at_the_same_time_give_the_same_bytes(tmp_path, killing):
    source = killing.make_source(tmp_path / "source.ome.zarr")
    target = tmp_path / "out.ome.zarr"
    killing.finish(source, tmp_path / "one.ome.zarr")
    running = [
        subprocess.Popen(
            [*killing.command(source, target), "--part", f"{n}/4"], stdout=subprocess.DEVNULL
        )
        for n in (1, 2, 3, 4, 1, 2)
    ]
    assert [process.wait() for process in running] == [0] * 6
    killing.finish(source, target, "--commit")
    assert killing.tree(target) == killing.tree(tmp_path / "one.ome.zarr")
