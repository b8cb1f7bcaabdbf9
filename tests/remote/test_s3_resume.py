"""Exports into a bucket that are killed, interrupted or refused, and gone on with, to the objects of any other."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import threading
from datetime import UTC, datetime, timedelta

import pytest
from conftest import needs

pytestmark = [
    needs("moto", "boto3", "flask"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="forks"),
    pytest.mark.usefixtures("signed"),
]

WAY = (
    *("--chunks", "64,32", "--shards", "64,64", "--codec", "zstd", "--levels", "2"),
    *("--select", "c=0", "--select", "z=1", "--threads", "2"),
)
SHARDS = 5
REQUESTS = 28
"""Of an export that overwrites; how many there are beyond these depends on how often notes are put."""
UNDER_WAY = 2
"""Shards that were being put when an interruption came; the server may come to their end."""
EXIT_CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143, signal.SIGINT: 130}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    from tests.export.kill_many import make_source

    return make_source(tmp_path_factory.mktemp("in") / "a.ome.zarr", side=128)


@pytest.fixture(scope="module")
def whole(source, tmp_path_factory):
    """The files of an export to a disk, by version of NGFF."""
    from openreadout.cli import run

    found = {}
    for version in ("0.5", "0.4"):
        folder = tmp_path_factory.mktemp("whole") / "a.ome.zarr"
        code = run(
            [
                "export",
                str(source),
                "--to",
                "ome-zarr",
                "-o",
                str(folder),
                "--ngff",
                version,
                "-q",
                *WAY,
            ]
        )
        assert code == 0
        files = (file for file in folder.rglob("*") if file.is_file())
        found[version] = {f.relative_to(folder).as_posix(): f.read_bytes() for f in files}
    assert len(shards(found["0.5"])) == SHARDS
    return found


@pytest.fixture(scope="module")
def forks():
    from s3_server import forking

    with forking() as process:
        yield process


class Bucket:
    """What lies in the bucket at and beside a target of its own, and what was asked of the server."""

    def __init__(self, moto, source, name) -> None:
        self.door, self.client = moto
        self.source = source
        self.rename(f"{name}.zarr")

    def rename(self, name):
        self.name = name
        self.target = f"s3://target/{name}"
        self.lock = f".{name}.lock"

    def command(self, *more):
        return ["export", self.source, "--to", "ome-zarr", "-o", self.target, *WAY, *more]

    def keys(self, prefix=""):
        """Bodies of objects below the target, by key."""
        place = f"{self.name}/{prefix}"
        return {k.removeprefix(f"{self.name}/"): self.body(k) for k in self._list(place)}

    def beside(self):
        """Keys of what is hidden beside the target."""
        return sorted(self._list(f".{self.name}."))

    def _list(self, prefix):
        found = self.client.list_objects_v2(Bucket="target", Prefix=prefix).get("Contents", ())
        return [entry["Key"] for entry in found]

    def body(self, key):
        return self.client.get_object(Bucket="target", Key=key)["Body"].read()

    def put(self, key, data):
        self.client.put_object(Bucket="target", Key=key, Body=data)

    def pages(self):
        return [key for key in self.beside() if key.startswith(f".{self.name}.files/")]

    def noted(self):
        """Keys of the shards that are noted as complete."""
        lines = b"".join(map(self.body, self.pages())).decode().splitlines()
        return shards(text.partition(" ")[2] for text in lines)

    def written(self, since):
        """Keys of shards below the target that were put since a number of requests, in order."""
        return [k for k in self.door.puts(f"target/{self.name}/", since) if k in shards([k])]

    @property
    def count(self):
        return len(self.door.requests)


def shards(keys):
    return {key for key in keys if re.fullmatch(r"\d/(c/)?\d+(/\d+)*", key)}


@pytest.fixture
def bucket(moto, source, request):
    """Nothing is at its target yet, and nothing happens at the door."""
    name = re.sub(r"\W+", "-", request.node.name)
    yield Bucket(moto, source, name)
    moto[0].open()


@pytest.fixture
def start(forks, bucket, tmp_path):
    """Run the export in a process of its own."""
    from s3_server import Running

    def call(*more, note_seconds=0.0):
        names = [name for name in os.environ if name.startswith("AWS_")]
        settings = {
            "environment": {name: os.environ[name] for name in names},
            "note_seconds": note_seconds,
        }
        return Running(forks, tmp_path / "said.txt", bucket.command(*more), settings)

    return call


@pytest.fixture
def stop(start, bucket):
    """Send a signal to an export at a request; its exit code and what it said."""

    def call(sent, when, *more, count=1, after=False, **how):
        started, box, seen, lock = threading.Event(), [], [], threading.Lock()

        def act(request):
            with lock:
                if not when(request, bucket):
                    return None
                seen.append(request)
                if len(seen) != count:
                    return len(seen) > count and sent == signal.SIGKILL
            assert started.wait(30)
            os.kill(box[0].pid, sent)
            # it is gone before the server does anything, or before the answer goes out
            return sent == signal.SIGKILL and box[0].gone.wait(30)

        setattr(bucket.door, "after" if after else "before", act)
        box.append(start(*more, **how))
        started.set()
        code, said = box[0].wait()
        bucket.door.open()
        assert len(seen) >= count, said
        assert "Traceback" not in said
        return code, said

    return call


# -- moments -----------------------------------------------------------------------------------------------------------


def a_shard(request, bucket):
    key = request.path.removeprefix(f"target/{bucket.name}/")
    return request.method == "PUT" and bool(shards([key]))


def a_document(request, bucket):
    return request.method == "PUT" and request.path == f"target/{bucket.name}/1/zarr.json"


def the_root(request, bucket):
    return request.method == "PUT" and request.path == f"target/{bucket.name}/zarr.json"


def one_of_two_roots(request, bucket):
    return request.method == "PUT" and request.path in {
        f"target/{bucket.name}/{n}" for n in (".zgroup", ".zattrs")
    }


def reading_back(request, bucket):
    found = any(the_root(r, bucket) for r in list(bucket.door.requests))
    return found and request.method == "GET" and "/c/" in request.path


def the_last_notes(request, bucket):
    """All that is removed after the root was put are pages."""
    found = any(the_root(r, bucket) for r in list(bucket.door.requests))
    return found and request.method == "POST" and "delete" in request.query


KILL, TERM, INT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT
MOMENTS = {
    "before any shard": (KILL, a_shard, {}),
    "amid shards": (KILL, a_shard, {"count": 3}),
    "once a shard is there": (KILL, a_shard, {"count": 3, "after": True}),
    "at a document": (KILL, a_document, {}),
    "before the root": (KILL, the_root, {}),
    "once the root is there": (KILL, the_root, {"after": True}),
    "between two roots": (KILL, one_of_two_roots, {"after": True}),
    "while it is read back": (KILL, reading_back, {"count": 3}),
    "at the very end": (KILL, the_last_notes, {}),
    "SIGTERM amid shards": (TERM, a_shard, {"count": 3, "note_seconds": 1e9}),
    "SIGTERM while it is read back": (TERM, reading_back, {}),
    "SIGINT amid shards": (INT, a_shard, {"count": 3, "note_seconds": 1e9}),
    "SIGINT at the root": (INT, the_root, {}),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_export_that_was_stopped_is_gone_on_with(moment, stop, bucket, command, whole):
    sent, when, how = MOMENTS[moment]
    version = "0.4" if when is one_of_two_roots else "0.5"
    more = ("--ngff", version)
    expected = whole[version]
    code, said = stop(sent, when, *more, **how)
    assert code == EXIT_CODES[sent], said
    left, noted = bucket.keys(), bucket.noted()
    roots = {"zarr.json", ".zgroup", ".zattrs"} & set(left)
    if when in (a_shard, a_document):
        assert not roots
        assert command("info", bucket.target)[0] in (3, 5, 6)
    assert all(left[key] == expected[key] for key in left)
    assert noted <= shards(left)
    if sent != KILL:
        assert "the same command with --resume" in said
        assert bucket.lock not in bucket.beside()
        lost = shards(left) - noted
        assert len(lost) <= UNDER_WAY, "an interruption loses nothing that is complete"
    bucket.client.create_multipart_upload(Bucket="target", Key=f"{bucket.name}/0/c/9")
    since = bucket.count
    code, _, err = command(*bucket.command(*more, "--resume"))
    assert code == 0, err
    again = bucket.written(since)
    assert sorted(again) == sorted(shards(expected) - noted), "no finished shard is written again"
    assert bucket.keys() == expected
    assert bucket.beside() == []
    assert "Uploads" not in bucket.client.list_multipart_uploads(Bucket="target")
    put = bucket.door.puts(f"target/{bucket.name}/", since)
    assert all("/" not in key for key in put[-1 if version == "0.5" else -2 :]), "the root is last"
    assert not any("/" not in key for key in put[:-2])


def test_a_kill_at_any_request_can_be_gone_on_with(stop, bucket, command, whole):
    """A sample of requests, another one each time, of an export that overwrites; `OPENREADOUT_ALL=1` all of them."""
    name, expected = bucket.name, whole["0.5"]
    every = os.environ.get("OPENREADOUT_ALL") == "1"
    moments = range(1, REQUESTS) if every else random.sample(range(1, REQUESTS), 2)
    for number, after in itertools.product(moments, (False, True) if every else (False,)):
        bucket.rename(f"{number}-{after}-{name}")
        assert command(*bucket.command("--name", "old", "--pyramid", "none"))[0] == 0
        old = bucket.keys()
        code, said = stop(
            KILL, lambda *_: True, "--overwrite", count=number, after=after, note_seconds=1e9
        )
        assert code == -KILL, (number, said)
        left = bucket.keys()
        assert left in (old, expected) or "zarr.json" not in left, number
        code, _, err = command(*bucket.command("--overwrite", "--resume"))
        assert code == 0, (number, err)
        assert bucket.keys() == expected, number
        assert bucket.beside() == [], number


def test_what_a_kill_loses_is_bounded_by_the_time_between_notes(stop, bucket, command, whole):
    """The clock decides, not the number of shards; but all is noted before the root is put."""
    stop(KILL, a_shard, note_seconds=1e9, count=3)
    assert bucket.noted() == set()
    stop(KILL, the_root, "--resume", note_seconds=1e9)
    assert bucket.noted() == shards(whole["0.5"])


def test_a_kill_before_the_lock_is_removed_leaves_a_finished_store(stop, bucket, command, whole):
    def the_lock(request, bucket):
        return request.method == "DELETE" and request.path == f"target/{bucket.lock}"

    assert stop(KILL, the_lock)[0] == -KILL
    assert bucket.keys() == whole["0.5"]
    assert bucket.beside() == [bucket.lock]
    assert command(*bucket.command("--skip-done"))[0] == 0
    code, _, err = command(*bucket.command("--resume"))
    assert (code, "already exists" in err) == (2, True)
    assert bucket.keys() == whole["0.5"]
    assert bucket.beside() == []


# -- requests ----------------------------------------------------------------------------------------------------------


def test_notes_take_few_requests(bucket, command, monkeypatch, whole):
    from openreadout.operations import remote_journal

    monkeypatch.setattr(remote_journal, "NOTE_SECONDS", 1e9)
    since = bucket.count
    assert command(*bucket.command("--no-verify"))[0] == 0
    asked = bucket.door.requests[since:]
    # the first page and, before the root is put, what was noted; the lock when it is taken, when the writing begins
    # and when it is over
    assert len(bucket.door.puts(f"target/.{bucket.name}.files/", since)) == 2
    assert len(bucket.door.puts(f"target/{bucket.lock}", since)) == 3
    beside = [r for r in asked if not r.path.startswith(f"target/{bucket.name}/")]
    assert len(beside) <= 13, beside
    assert sorted(bucket.door.puts(f"target/{bucket.name}/", since)) == sorted(whole["0.5"])


def test_full_pages_are_followed_by_others(bucket, command, whole, monkeypatch):
    from openreadout.operations import remote_journal

    monkeypatch.setattr(remote_journal, "PAGE_BYTES", 100)

    def fail(request):
        return the_root(request, bucket)

    bucket.door.before = fail
    assert command(*bucket.command())[0] == 5
    bucket.door.open()
    assert len(bucket.pages()) > 3
    assert bucket.noted() == shards(whole["0.5"])
    since = bucket.count
    assert command(*bucket.command("--resume"))[0] == 0
    assert bucket.written(since) == []
    assert bucket.keys() == whole["0.5"]
    assert bucket.beside() == []


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_server_that_refuses_from_some_moment_on(start, bucket, command, whole):
    """As credentials that end: neither notes nor the lock can be put right any more."""
    seen = []

    def refuse(request):
        seen.append(a_shard(request, bucket))
        return sum(seen) > 4

    bucket.door.before = refuse
    code, said = start().wait()
    bucket.door.open()
    assert code == 5
    assert "run the same command with --resume" in said
    noted = bucket.noted()
    assert len(noted) >= 2
    assert bucket.lock in bucket.beside()
    since = bucket.count
    assert command(*bucket.command("--resume"))[0] == 0
    assert not set(bucket.written(since)) & noted
    assert bucket.keys() == whole["0.5"]
    assert bucket.beside() == []


@pytest.fixture
def left(bucket, command):
    """An export that the server refused a document of, so that all shards are there and noted."""
    bucket.door.before = lambda request: a_document(request, bucket)
    code, said, _ = command(*bucket.command("--json"))
    bucket.door.open()
    assert (code, said["error"]["code"]) == (5, "io")
    assert said["error"]["hint"].endswith("then run the same command with --resume")
    assert len(bucket.noted()) == SHARDS
    assert len(bucket.pages()) == 1
    return bucket


def test_an_error_of_the_output_removes_everything(bucket, command, monkeypatch):
    from openreadout.operations.readback import ReadBack

    monkeypatch.setattr(ReadBack, "_same_samples", lambda *_: False)
    code, _, _ = command(*bucket.command())
    assert code == 1
    assert bucket.keys() == {}
    assert bucket.beside() == []


OTHER_WAYS = {"codec": ["--codec", "gzip"], "version": ["--ngff", "0.4"]}


@pytest.mark.parametrize("other", OTHER_WAYS)
def test_other_options_are_refused_and_what_is_there_stays(other, left, command, whole):
    before = left.keys()
    code, _, err = command(*left.command(*OTHER_WAYS[other], "--resume"))
    assert code == 2
    assert "cannot be resumed, the source or the options are not those of the run" in err
    assert "run again without --resume to start anew" in err
    assert left.keys() == before
    since = left.count
    assert command(*left.command("--resume"))[0] == 0
    assert left.written(since) == []
    assert left.keys() == whole["0.5"]


def test_another_source_is_refused_and_without_resume_all_is_done_anew(
    left, command, whole, source
):
    chunk = max((p for p in source.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    before = chunk.stat()
    os.utime(chunk, (1, 1))
    try:
        code, _, err = command(*left.command("--resume"))
        assert (code, "cannot be resumed" in err) == (2, True)
        since = left.count
        assert command(*left.command())[0] == 0
        assert set(left.written(since)) == shards(whole["0.5"])
        assert left.keys() == whole["0.5"]
        assert left.beside() == []
    finally:
        os.utime(chunk, ns=(before.st_atime_ns, before.st_mtime_ns))


# -- what lies in the bucket is not as it was noted --------------------------------------------------------------------


@pytest.mark.parametrize("verify", [[], ["--no-verify"]], ids=["verified", "not"])
def test_what_is_not_as_noted_is_written_again(verify, left, command, whole):
    gone, flipped, cut, *_ = sorted(left.noted())
    name = left.name
    left.client.delete_object(Bucket="target", Key=f"{name}/{gone}")
    data = whole["0.5"][flipped]
    left.put(f"{name}/{flipped}", bytes([data[0] ^ 1]) + data[1:])
    left.put(f"{name}/{cut}", whole["0.5"][cut][:-1])
    left.put(f"{name}/0/c/9/9/9/9", b"of somebody else")
    left.put(f"{name}/letter.txt", b"dear")
    since = left.count
    code, said, _ = command(*left.command("--resume", "--json", *verify))
    assert code == 0
    assert said["data"]["verified"] is (not verify)
    assert sorted(left.written(since)) == sorted([gone, flipped, cut])
    assert left.keys() == whole["0.5"]
    assert said["data"]["files_written"] == len(whole["0.5"])
    assert said["data"]["bytes_written"] == sum(map(len, whole["0.5"].values()))


PAGES = {
    "nothing": b"",
    "no fingerprint": b"x" * 33 + b"\n",
    "no lines": b"\xff\x00" * 1000,
    "deep": b"[" * 100_000,
    "a bomb of lines": b"\n" * 1_000_000,
    "huge": b"0123456789abcdef" * (1 << 17),
    "JSON of other types": json.dumps({"fingerprint": 1, "files": [[]]}).encode(),
}


def test_what_is_no_page_of_notes_is_passed_over_and_left(left, command, whole):
    strange = {
        f".{left.name}.files/0000000{n}-{0:016x}": data for n, data in enumerate(PAGES.values())
    }
    (page,) = left.pages()
    for name in ("99999999-0", "00000002-x", "mine/00000001-0123456789abcdef"):
        strange[f".{left.name}.files/{name}"] = left.body(page)[:33] + b"0" * 32 + b" letter.txt\n"
    for key, data in strange.items():
        left.put(key, data)
    since = left.count
    code, _, err = command(*left.command("--resume"))
    assert code == 0, err
    assert left.written(since) == []
    assert left.keys() == whole["0.5"]
    assert left.beside() == sorted(strange)


def _cut(data):
    return data[:-7]


def _other_digests(data):
    head, *lines = data.splitlines()
    return b"\n".join([head, *(b"0" * 32 + line[32:] for line in lines), b""])


def _long_line(data):
    head, _, rest = data.partition(b"\n")
    return head + b"\n" + b"k" * 70_000 + b"\n" + rest


def _strange_keys(data):
    return (
        data
        + b"0" * 32
        + b" ../../target/victim\n"
        + b"1" * 32
        + b" \xff\xfe\x00\n"
        + b"2" * 32
        + b" \n"
    )


LIES = {_cut: 1, _other_digests: SHARDS, _long_line: SHARDS, _strange_keys: 0}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__[1:])
def test_notes_that_lie_count_as_not_written(lie, left, command, whole):
    left.put("victim", b"mine")
    (page,) = left.pages()
    left.put(page, lie(left.body(page)))
    since = left.count
    assert command(*left.command("--resume", "--no-verify"))[0] == 0
    assert len(left.written(since)) == LIES[lie]
    assert left.keys() == whole["0.5"]
    assert left.beside() == []
    assert left.body("victim") == b"mine"


def test_notes_of_two_runs_and_of_one_that_was_clearing_away(left, command, whole):
    """Of two sources nothing is gone on with; what was being removed is begun anew."""
    other = f".{left.name}.files/00000002-{5:016x}"
    left.put(other, b"12" * 16 + b"\n")
    assert command(*left.command("--resume"))[0] == 2
    left.put(other, b"0" * 32 + b"\n")
    since = left.count
    assert command(*left.command("--resume"))[0] == 0
    assert set(left.written(since)) == shards(whole["0.5"])
    assert left.keys() == whole["0.5"]
    assert left.beside() == []


# -- together with other options, and with other programs --------------------------------------------------------------


def test_overwriting_is_gone_on_with_and_a_kill_while_clearing_away_is_begun_anew(
    stop, bucket, command, whole
):
    assert command(*bucket.command("--name", "old", "--pyramid", "none"))[0] == 0
    bucket.put(f"{bucket.name}/9/left/over", b"old")
    old = bucket.keys()

    def clearing(request, bucket):
        return request.method == "POST" and "delete" in request.query

    # before the first of the old keys, the root's, and before the others
    stop(KILL, clearing, "--overwrite")
    assert bucket.keys() == old
    code, _, err = command(*bucket.command("--resume"))
    assert (code, "already exists" in err) == (2, True)
    stop(KILL, clearing, "--overwrite", "--resume", count=2)
    assert set(bucket.keys()) == set(old) - {"zarr.json"}
    stop(TERM, a_shard, "--resume", "--overwrite", count=3, after=True)
    noted = bucket.noted()
    assert noted
    since = bucket.count
    assert command(*bucket.command("--overwrite", "--resume"))[0] == 0
    assert not noted & set(bucket.written(since))
    assert bucket.keys() == whole["0.5"]
    assert bucket.beside() == []
    since = bucket.count
    assert command(*bucket.command("--overwrite", "--resume"))[0] == 0
    assert set(bucket.written(since)) == shards(whole["0.5"]), "one that is finished is replaced"


def test_what_was_not_read_back_is_not_done(stop, bucket, command, whole):
    """All objects are there, and nobody has proven them."""
    stop(KILL, reading_back)
    assert bucket.keys() == whole["0.5"]
    code, _, err = command(*bucket.command())
    assert code == 2
    assert "already exists; the run that wrote it did not come to its end" in err
    assert "--resume goes on with it, --overwrite replaces it" in err
    code, said, _ = command(*bucket.command("--skip-done", "--resume", "--json"))
    assert code == 0
    assert not said["data"].get("skipped")
    assert said["data"]["verified"]
    code, said, _ = command(*bucket.command("--skip-done", "--resume", "--json"))
    assert (code, said["data"]["skipped"]) == (0, True)
    assert bucket.keys() == whole["0.5"]


@pytest.mark.parametrize("by", ["another program", "another run"])
def test_a_target_that_somebody_else_completed_in_between(by, left, command, whole, source):
    if by == "another run":
        assert command(*left.command("--name", "theirs"))[0] == 0
        assert left.beside() == []
    else:
        left.put(f"{left.name}/0/c/0/0/0/0", b"theirs")
        left.put(f"{left.name}/zarr.json", b'{"zarr_format": 3, "node_type": "group"}')
    theirs = left.keys()
    for more in (["--resume"], []):
        code, _, err = command(*left.command(*more))
        assert code == 2
        assert "already exists" in err
        assert "--overwrite removes it, and then writes the new store" in err
    assert left.keys() == theirs
    since = left.count
    assert command(*left.command("--overwrite", "--resume"))[0] == 0
    again = 1 if by == "another program" else SHARDS
    assert len(left.written(since)) == again
    assert left.keys() == whole["0.5"]
    assert left.beside() == []


def test_a_store_that_appears_while_it_is_written_is_left_alone(bucket, command, whole):
    theirs = b'{"zarr_format": 3, "node_type": "group", "attributes": {"theirs": true}}'

    def appear(request):
        if the_root(request, bucket) and f"{bucket.name}/zarr.json" not in bucket._list(
            bucket.name
        ):
            bucket.door.open()
            bucket.put(f"{bucket.name}/zarr.json", theirs)

    bucket.door.before = appear
    code, _, err = command(*bucket.command())
    assert code == 2
    assert "appeared while it was being written" in err
    assert bucket.keys() == whole["0.5"] | {"zarr.json": theirs}
    assert command(*bucket.command("--resume"))[0] == 2
    assert bucket.keys()["zarr.json"] == theirs
    assert command(*bucket.command("--resume", "--overwrite"))[0] == 0
    assert bucket.keys() == whole["0.5"]
    assert bucket.beside() == []


# -- locks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(stop, bucket):
    """An export that was killed on another machine amid its shards; ages its lock by minutes of the server's clock."""
    stop(KILL, a_shard, count=4)
    owner = json.loads(bucket.body(bucket.lock))
    bucket.put(bucket.lock, json.dumps(owner | {"host": "elsewhere"}).encode())

    def age(minutes):
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        keys = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets["target"].keys
        written = datetime.now(UTC).replace(tzinfo=None) - timedelta(minutes=minutes)
        keys[bucket.lock].last_modified = written

    return age


def test_a_lock_of_another_machine_is_taken_over_once_it_is_old(elsewhere, bucket, command, whole):
    kept = bucket.keys()
    noted = bucket.noted()
    assert noted
    elsewhere(9)
    for more in ([], ["--resume"], ["--overwrite"]):
        code, _, err = command(*bucket.command(*more))
        assert code == 2
        assert "another export is writing to it (elsewhere, since 20" in err
        hint = " ".join(err.split())
        assert "--resume goes on 10 minutes after its last sign of life (9 minutes ago)" in hint
    elsewhere(11)
    code, _, err = command(*bucket.command())
    assert code == 2
    assert "--resume goes on with it, by its last sign of life (11 minutes ago)" in " ".join(
        err.split()
    )
    code, _, err = command(*bucket.command("--resume", "--name", "other"))
    assert code == 2
    assert "only with the same source and options" in " ".join(err.split())
    assert f"remove s3://target/{bucket.lock}" in " ".join(err.split())
    assert bucket.keys() == kept
    since = bucket.count
    code, _, err = command(*bucket.command("--resume"))
    assert code == 0, err
    assert not noted & set(bucket.written(since))
    assert bucket.keys() == whole["0.5"]
    assert bucket.beside() == []


def test_a_lock_whose_owner_is_clearing_away_is_never_taken_over(elsewhere, bucket, command):
    owner = json.loads(bucket.body(bucket.lock))
    bucket.put(bucket.lock, json.dumps(owner | {"writing": ""}).encode())
    elsewhere(1000)
    assert command(*bucket.command("--resume"))[0] == 2


def test_without_its_lock_what_was_left_is_begun_anew_too(elsewhere, bucket, command, whole):
    bucket.client.delete_object(Bucket="target", Key=bucket.lock)
    assert command(*bucket.command())[0] == 0
    assert bucket.keys() == whole["0.5"]
    assert bucket.beside() == []


def test_a_lock_stays_young_while_its_owner_is_at_work(bucket, command, monkeypatch):
    from openreadout.operations import remote_claim

    monkeypatch.setattr(remote_claim, "REFRESH_SECONDS", 0.01)
    alive = threading.Event()
    seen = []

    def wait(request):
        if request.method == "PUT" and request.path == f"target/{bucket.lock}":
            seen.append(bucket.body(bucket.lock))
            if len(seen) > 4:
                alive.set()
        elif a_shard(request, bucket):
            assert alive.wait(30)

    bucket.door.after = wait
    assert command(*bucket.command())[0] == 0
    said = [json.loads(data) for data in seen]
    assert len({data["beats"] for data in said}) == len(said)
    assert len({(data["run"], data["pid"], data["since"]) for data in said}) == 1
    assert bucket.beside() == []


@pytest.mark.parametrize("how", ["taken over", "removed"])
def test_an_owner_that_lost_its_lock_stops_and_removes_nothing(
    how, bucket, command, whole, monkeypatch
):
    from openreadout.operations import remote_claim

    monkeypatch.setattr(remote_claim, "REFRESH_SECONDS", 0.01)
    lost, told = threading.Event(), threading.Event()
    theirs = b'{"host": "elsewhere", "pid": 1, "run": "theirs"}'

    def meddle(request):
        if a_shard(request, bucket) and not lost.is_set():
            lost.set()
            if how == "removed":
                bucket.client.delete_object(Bucket="target", Key=bucket.lock)
            else:
                bucket.put(bucket.lock, theirs)
        if a_shard(request, bucket):
            assert told.wait(30)

    def listen(request):
        # after a sign of life that was refused, the owner looks whose lock it is
        if lost.is_set() and request.method == "GET" and request.path == f"target/{bucket.lock}":
            told.set()

    bucket.door.before, bucket.door.after = meddle, listen
    code, _, err = command(*bucket.command())
    bucket.door.open()
    assert code == 5
    assert "was removed or taken over, so this export stops" in err
    left = bucket.keys()
    assert left
    assert all(left[key] == whole["0.5"][key] for key in left)
    locks = [bucket.lock] if how == "taken over" else []
    assert [key for key in bucket.beside() if key not in bucket.pages()] == locks
    if locks:
        assert bucket.body(bucket.lock) == theirs
    assert bucket.pages()


def test_a_condition_that_is_not_met_since_the_first_answer_was_lost_is_no_conflict(
    bucket, command, whole
):
    """The client asks again, and finds the lock, its sign of life and the root that it has put itself."""
    seen = []
    places = (f"target/{bucket.lock}", f"target/{bucket.name}/zarr.json")

    def lose(request):
        """Every other answer: of the first try of each."""
        seen.extend([request.path] if request.method == "PUT" and request.path in places else [])
        return request.path in places and request.method == "PUT" and seen.count(request.path) % 2

    bucket.door.after = lose
    code, _, err = command(*bucket.command())
    assert code == 0, err
    # the lock is put when it is taken, when the writing begins and when it is over, each time twice
    assert [seen.count(place) for place in places] == [6, 2]
    assert bucket.keys() == whole["0.5"]
    assert bucket.beside() == []
