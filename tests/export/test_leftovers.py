"""What runs leave beside an output, damaged or made to do harm.

A later run ends at once, with an exit code, and nothing that is not its own is touched.
"""

from __future__ import annotations

import json
import os
import shutil
from random import Random

import pytest
import xxhash

from openreadout.operations import part_target, records, walk
from openreadout.operations.records import read_notes
from tests.robustness import mutations

SMALL = ("--chunks", "16,16", "--shards", "32,32")
PARTS = 2


@pytest.fixture(autouse=True)
def _many_cells(monkeypatch):
    monkeypatch.setattr(walk, "SMALL_CELL", 0)


@pytest.fixture
def source(make, tmp_path):
    return make.image(tmp_path / "in", [make.noise((2, 150, 170))], "cyx", chunks=(1, 40, 40))


@pytest.fixture
def in_parts(source, tmp_path, export):
    """All parts of an export, not yet put together, and the files that notes of them are in."""
    target = tmp_path / "out.ome.zarr"
    for n in range(1, PARTS + 1):
        export(source, target, *SMALL, "--part", f"{n}/{PARTS}")
    folder = tmp_path / ".out.ome.zarr.partial"
    notes = sorted(folder.rglob("*.cells"))
    assert len(notes) == PARTS
    assert all(path.stat().st_size for path in notes)
    (plan,) = folder.rglob(part_target.PLAN)
    return target, notes, plan


@pytest.fixture
def told(source, capsys):
    """Run an export: its exit code, and its error if there is one."""
    from openreadout.cli import run

    def call(target, *options):
        words = ["export", source, "--to", "ome-zarr", "-o", target, "--no-sync", "--json", *SMALL]
        code = run([str(word) for word in (*words, *options)])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        error = json.loads(printed.out).get("error")
        assert error is None or "unexpected" not in error["message"], error
        return code, error

    return call


def proven(text):
    """A line of notes whose digest is right, whatever it says."""
    data = text.encode("utf-8", "surrogatepass")
    return xxhash.xxh3_64_hexdigest(data).encode() + b" " + data + b"\n"


def told_lies(line):
    """The notes of a cell with one thing in it that cannot be."""
    known = json.loads(line.partition(b" ")[2])
    wrong = (None, -1, 1.5, True, "x", [], {}, [[]], 2**63, 10**30, [0] * 9, ["00"], [[0, "a", 1]])
    for key in known:
        yield {name: value for name, value in known.items() if name != key}
        for value in wrong:
            yield known | {key: value}
        for place in range(len(known[key])):
            for value in wrong:
                changed = list(known[key])
                changed[place] = value
                yield known | {key: changed}
    yield from ([], 5, None, "cell", {})


def test_notes_that_lie_count_as_not_written(in_parts, told):
    target, notes, _ = in_parts
    whole = notes[0].read_bytes()
    first, *others = whole.splitlines(keepends=True)
    sound = read_notes(str(notes[0].parent))
    missing = {key for key, cell in sound.items() if proven(records_text(cell)) == first}
    assert len(missing) == 1
    tried = 0
    for lie in told_lies(first):
        notes[0].write_bytes(proven(json.dumps(lie)) + b"".join(others))
        for key, cell in read_notes(str(notes[0].parent)).items():
            assert all(type(n) is int and n >= 0 for n in (*cell.index, cell.size, cell.copied))
            assert all(len(digests) % 16 == 0 for digests in cell.digests)
            assert key in missing or key not in sound or cell == sound[key]
        tried += 1
    assert tried > 200
    notes[0].write_bytes(proven("{}") + b"".join(others))
    code, error = told(target, "--commit", "--no-verify")
    assert (code, error["code"]) == (2, "usage")
    assert "1 of 2 parts are not complete" in error["message"]
    notes[0].write_bytes(whole)
    assert told(target, "--commit")[0] == 0


def records_text(cell):
    return json.dumps(records._as_json(cell), separators=(",", ":"))


@pytest.mark.parametrize("seed", range(12))
def test_damaged_notes_and_plans_end_a_commit_with_an_exit_code(
    in_parts, told, source, export, tmp_path, killing, seed
):
    target, notes, plan = in_parts
    folder = plan.parent.parent
    rng = Random(seed)
    export(source, tmp_path / "whole.ome.zarr", *SMALL)
    shutil.copytree(folder, tmp_path / "kept")
    file = rng.choice([*notes, *notes, plan])
    data = mutations.binary(rng, file.read_bytes())
    file.write_bytes(data)
    code, _ = told(target, "--commit")
    assert code in (0, 1, 2), code
    if code == 0:
        assert killing.tree(target) == killing.tree(tmp_path / "whole.ome.zarr")
        return
    assert not target.exists()
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(tmp_path / "kept", folder)
    assert told(target, "--commit")[0] == 0
    assert killing.tree(target) == killing.tree(tmp_path / "whole.ome.zarr")


@pytest.mark.parametrize("count", ["", "0", "-1", "2x", "٣", "1e9", "9" * 30, "100001"])
def test_a_plan_of_no_number_of_parts_is_refused(in_parts, told, count):
    target, _, plan = in_parts
    fingerprint = plan.read_text(encoding="ascii").partition(" ")[0]
    plan.write_text(f"{fingerprint} {count}", encoding="utf-8")
    code, error = told(target, "--commit")
    assert (code, error["code"]) == (2, "usage")
    assert "how many parts" in error["message"] or "not those of the parts" in error["message"]
    assert plan.exists()


def pipe(path, aside):
    os.mkfifo(path)


def link(path, aside):
    path.symlink_to(aside)


def device(path, aside):
    path.symlink_to("/dev/zero")


def folder(path, aside):
    path.mkdir()


@pytest.mark.skipif(os.name == "nt", reason="pipes and links of this kind are of other systems")
@pytest.mark.parametrize("stands", [pipe, link, device, folder], ids=lambda make: make.__name__)
@pytest.mark.parametrize("which", ["notes", "plan", "lock"])
def test_what_stands_in_place_of_a_file_of_parts_is_neither_waited_for_nor_followed(
    in_parts, told, tmp_path, stands, which
):
    target, notes, plan = in_parts
    lock = tmp_path / ".out.ome.zarr.partial.lock"
    place = {"notes": notes[0], "plan": plan, "lock": lock}[which]
    aside = tmp_path / "mine.txt"
    aside.write_text("mine", encoding="utf-8")
    place.unlink(missing_ok=True)
    stands(place, aside)
    code, error = told(target, "--commit")
    assert (code, error["code"]) == (5, "io"), error
    assert aside.read_text(encoding="utf-8") == "mine"
    assert not target.exists()


@pytest.mark.skipif(os.name == "nt", reason="pipes and links of this kind are of other systems")
@pytest.mark.parametrize("stands", [pipe, link, device, folder], ids=lambda make: make.__name__)
@pytest.mark.parametrize("which", ["lock", "files"])
def test_what_stands_in_place_of_the_journal_is_neither_waited_for_nor_followed(
    told, tmp_path, stands, which
):
    """A fresh export clears the way; the lock file is never taken away from under whoever may hold it."""
    target = tmp_path / "out.ome.zarr"
    aside = tmp_path / "mine.txt"
    aside.write_text("mine", encoding="utf-8")
    stands(tmp_path / f".out.ome.zarr.partial.{which}", aside)
    code, _ = told(target)
    assert code == (5 if which == "lock" else 0)
    assert aside.read_text(encoding="utf-8") == "mine"
    assert target.exists() is (code == 0)
