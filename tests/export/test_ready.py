"""Cells are begun once what they are made from is there, and whatever ends first, the bytes are those of one run."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from openreadout import registry
from openreadout.errors import UnseenError
from openreadout.operations import cells, storage, walk
from openreadout.operations.cells import Job, write_cell
from openreadout.operations.order import ExportOptions, plan_fingerprint, planned
from openreadout.operations.ready import Ready
from openreadout.operations.records import key_of
from openreadout.operations.walk import stages
from openreadout.operations.writing import Writing
from openreadout.workers import Workers


def whole(make, folder):
    return make.image(folder, [make.noise((2, 300, 350)) + 1], "zyx", chunks=(1, 32, 32))


def sparse(make, folder):
    """Whole on the left, so that some cells have all they are made from, and almost empty on the right."""
    samples = np.zeros((512, 1024), "uint16")
    samples[:, :160] = make.noise((512, 160)) + 1
    samples[300:310, 900:910] = 7
    return make.image(folder, [samples], "yx", chunks=(16, 16))


def uneven(make, folder):
    return make.image(folder, [make.noise((3, 5, 97, 131)) + 1], "czyx", chunks=(1, 2, 16, 24))


def own_levels(make, folder):
    """The second level is taken from the source, the third is made from it."""
    levels = [make.noise((256, 256)) + 1, make.noise((128, 128)) + 1]
    return make.image(folder, levels, "yx", chunks=(32, 32), scales=[(1.0, 1.0), (2.0, 2.0)])


SOURCES = {"whole": whole, "sparse": sparse, "uneven": uneven, "own levels": own_levels}
OPTIONS = (
    "--chunks",
    "16,16",
    "--shards",
    "32,32",
    "--no-sync",
    "--pyramid",
    "mean",
    "--levels",
    4,
)


class Rig:
    """An export of which the test says what is done when."""

    def __init__(self, source, folder, **options):
        self.folder = folder
        for name in ("partial", "permit"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        asked = ExportOptions(sync=False)
        asked = replace(asked, plan=replace(asked.plan, **options))
        self.plan = planned(registry.open_dataset(str(source)), asked)
        self.job = Job(
            str(folder), str(source), str(folder / "partial"), str(folder / "permit"), asked,
            plan_fingerprint(self.plan, asked),
        )  # fmt: skip
        self.found = {}

    def writing(self, wanted=1 << 30):
        steps = tuple(stages(self.plan, wanted))
        sink = registry.find_writer("ome-zarr").create(self.plan, self.job.partial, resume=True)
        return Writing(
            self.plan, self.job.options.plan, sink, Workers(1), None, verified=False, steps=steps
        )

    def run(self, ready, rng, most=None):
        """Do what is ready, a few tasks at a time that end in any order; all, or so many. Every task that was given."""
        given, under_way, ended = [], [], 0
        while most is None or ended < most:
            # as many as several workers have at a time
            new = ready.take(max(0, rng.randrange(1, 9) - len(under_way)))
            given += new
            under_way += new
            if not under_way:
                return given
            task = under_way.pop(rng.randrange(len(under_way)))
            ready.done(write_cell(self.job, task))
            ended += 1
        return given


@pytest.fixture
def rig(request, make, tmp_path, monkeypatch):
    # small images have as many cells and passes as large ones
    monkeypatch.setattr(walk, "SMALL_CELL", 0)
    monkeypatch.setattr(storage, "BLOCK_BYTES", 8192)
    source = SOURCES[getattr(request, "param", "whole")](make, tmp_path / "in")

    def build(name):
        # the levels as OPTIONS ask for them
        return Rig(
            source, tmp_path / name, chunks=(16, 16), shards=(32, 32), pyramid="mean", levels=4
        )

    return build


def chunks(killing, folder):
    documents = ("zarr.json", ".zattrs", ".zgroup", ".zarray", "METADATA.ome.xml")
    return {k: v for k, v in killing.tree(folder).items() if not k.endswith(documents)}


@pytest.mark.parametrize("rig", SOURCES, indirect=True)
def test_any_order_gives_the_bytes_of_one_run(rig, tmp_path, command, killing):
    plain = tmp_path / "plain.ome.zarr"
    command("export", tmp_path / "in", "--to", "ome-zarr", "-o", plain, *OPTIONS)
    wanted = chunks(killing, plain)
    assert len(wanted) > 20
    for seed in range(4):
        some = rig(f"run-{seed}")
        run = some.writing()
        assert len(run.steps) > 1
        given = some.run(Ready(run, some.found), random.Random(seed))
        assert chunks(killing, tmp_path / f"run-{seed}" / "partial") == wanted
        keys = [key_of(task.step, task.index) for task in given]
        assert len(keys) == len(set(keys))
        assert set(keys) == set(some.found)
        assert set(keys) == {key_of(s, i) for s in run.steps for i in some.writing().cells(s)}


@pytest.mark.parametrize("rig", SOURCES, indirect=True)
def test_what_is_noted_is_not_given_again(rig, tmp_path, killing):
    """After an interruption at any moment the rest is given, once, and comes to the same."""
    whole_run = rig("once")
    whole_run.run(Ready(whole_run.writing(), whole_run.found), random.Random(0))
    count = len(whole_run.found)
    for seed in range(5):
        rng = random.Random(seed)
        some = rig(f"run-{seed}")
        some.run(Ready(some.writing(), some.found), rng, most=rng.randrange(1, count))
        before = set(some.found)
        rest = some.run(Ready(some.writing(), some.found), rng)
        keys = [key_of(task.step, task.index) for task in rest]
        assert len(keys) == len(set(keys)) == count - len(before)
        assert not before.intersection(keys)
        assert chunks(killing, tmp_path / f"run-{seed}/partial") == chunks(
            killing, tmp_path / "once/partial"
        )


def test_levels_are_begun_before_those_below_are_complete(rig):
    """Nobody waits for the last cell of a level, and what is begun early is closest to the end."""
    some = rig("run")
    given = some.run(Ready(some.writing(), some.found), random.Random(1))
    of_source = [n for n, task in enumerate(given) if task.step.first == 0]
    made = [n for n, task in enumerate(given) if task.step.first > 0]
    # the lower plane of the first cell of the second level is in the other half
    assert made[0] < of_source[len(of_source) * 3 // 4]
    assert all(given[n].whole for n in made)


@pytest.mark.parametrize("rig", ["sparse"], indirect=True)
def test_a_sparse_level_is_seen_as_a_whole_first(rig):
    """Cells that are made from absent chunks too wait for all: whether they are to be written depends on what is."""
    some = rig("run")
    given = some.run(Ready(some.writing(), some.found), random.Random(1))
    made = [task for task in given if task.step.first > 0]
    assert {task.whole for task in made} == {False, True}
    last_of_source = max(n for n, task in enumerate(given) if task.step.first == 0)
    first = given.index(next(task for task in made if not task.whole))
    assert first > last_of_source


@pytest.fixture
def hidden(rig):
    """A cell that is to be made from others, one of whose shards is not where it was written; and its place."""
    some = rig("run")
    ready = Ready(some.writing(), some.found)
    while (task := ready.take(1)[0]).step.first == 0:
        ready.done(write_cell(some.job, task))
    assert task.whole
    chunks = some.folder / "partial" / some.plan.images[0].path / "0" / "c"
    first = next(p for p in sorted(chunks.rglob("*")) if p.is_file())
    elsewhere = first.rename(some.folder / "elsewhere")
    return some.job, task, elsewhere, first


def test_chunks_that_another_wrote_and_that_are_not_seen_are_an_error(hidden, monkeypatch):
    """On a file system that shows late what one has written they would read as the fill value."""
    job, task, *_ = hidden
    monkeypatch.setattr(cells, "PAUSES", (0, 0))
    with pytest.raises(UnseenError, match="not to be seen") as caught:
        write_cell(job, task)
    assert caught.value.exit_code == 5
    assert "file system" in caught.value.hint


def test_chunks_that_are_seen_a_little_later_are_waited_for(hidden, monkeypatch):
    job, task, elsewhere, place = hidden
    paused = []

    def sleep(seconds):
        paused.append(seconds)
        if len(paused) == 2:
            elsewhere.rename(place)

    monkeypatch.setattr(cells.time, "sleep", sleep)
    late = write_cell(job, task)
    assert paused == list(cells.PAUSES[:2])
    assert late == write_cell(job, task)
