"""The fixtures in an S3 bucket on loopback (moto): public ones, private ones, and exports into it."""

from __future__ import annotations

import json
import re
import socket
import time

import pytest
from conftest import needs

pytestmark = [needs("moto", "boto3", "flask"), pytest.mark.usefixtures("s3")]

ZARR3 = "ome-zarr/v3-sharded/sharded.ome.zarr"
ZARR2 = "ome-zarr/ome-zarr-py-0.4/image.ome.zarr"
ZIP = "ome-zarr/v3-zip/packed.ozx"
TIFF = "ome-tiff/pyramid/cells.ome.tiff"
N5 = "n5/z5py-viewer-pyramid/pyramid.n5"
PLATE = "ome-zarr/v3-plate/plate.zarr"


@pytest.fixture(scope="module")
def s3(moto, fixtures):
    """A client of a server with the fixtures in two buckets, of which anybody may read the first."""
    _, client = moto
    for data in (ZARR3, ZARR2, ZIP, TIFF, N5, PLATE):
        for file in [fixtures / data, *(fixtures / data).rglob("*")]:
            if file.is_file():
                key, body = str(file.relative_to(fixtures)), file.read_bytes()
                client.put_object(Bucket="public", Key=key, Body=body, ACL="public-read")
                client.put_object(Bucket="private", Key=key, Body=body)
    return client


def hashes(planes):
    return sorted((p["image"], p["level"], p["t"], p["c"], p["z"], p["xxh3"]) for p in planes)


@pytest.mark.parametrize("data", [ZARR3, ZARR2, ZIP, TIFF, N5, PLATE])
@pytest.mark.usefixtures("anonymous")
def test_a_public_bucket_is_read_without_credentials(command, fixtures, data):
    code, said, _ = command("check", "--planes", "--level", "all", "--json", f"s3://public/{data}")
    expected = json.loads((fixtures / data).parent.joinpath("expected.json").read_text("utf-8"))
    assert (code, said["data"]["findings"]) == (0, [])
    assert hashes(said["data"]["planes"]) == hashes(expected["planes"])


@pytest.mark.parametrize("data", [ZARR3, ZARR2, ZIP, TIFF, N5])
@pytest.mark.usefixtures("anonymous")
def test_a_private_bucket_is_an_error_without_credentials(command, data):
    code, said, _ = command("info", "--json", f"s3://private/{data}")
    assert (code, said["error"]["code"]) == (5, "io")
    assert "anonymous" in said["error"]["hint"]


@pytest.mark.usefixtures("signed")
def test_a_private_bucket_is_read_with_credentials(command):
    assert command("check", f"s3://private/{ZARR3}")[0] == 0


@pytest.mark.usefixtures("anonymous")
@pytest.mark.parametrize(
    "address", ["s3://public/nothing.zarr", "s3://nobucket/a.zarr", "s3://public"]
)
def test_nothing_at_the_address(command, address):
    code, _, err = command("info", address)
    assert code in (3, 5)
    assert "Traceback" not in err


def test_nobody_at_the_endpoint(command, anonymous, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
        code, said, _ = command("info", "--json", "s3://public/a.zarr")
    assert (code, said["error"]["code"]) == (5, "io")


def test_presence_is_counted_from_a_listing(command, s3, anonymous, fixtures):
    chunk = next((fixtures / ZARR2 / "s0").rglob("0/0/0/1")).relative_to(fixtures)
    for file in (fixtures / ZARR2).rglob("*"):
        if file.is_file() and file.relative_to(fixtures) != chunk:
            key = f"sparse/{file.relative_to(fixtures / ZARR2)}"
            s3.put_object(Bucket="public", Key=key, Body=file.read_bytes(), ACL="public-read")
    s3.put_object(Bucket="public", Key="sparse/s0/stray", Body=b"?", ACL="public-read")
    code, said, _ = command("check", "--json", "s3://public/sparse")
    found = {f["code"]: f["message"] for f in said["data"]["findings"]}
    assert code == 0
    assert found["missing_chunks"].startswith("1 of 4 chunks")
    assert "unexpected_file" in found


# -- consolidated metadata ---------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """What S3 is asked for: names of methods with keys, or with the prefix that is listed."""
    import s3fs

    found = []
    call = s3fs.S3FileSystem._call_s3

    def count(self, method, *more, **arguments):
        found.append((method, arguments.get("Key", arguments.get("Prefix"))))
        return call(self, method, *more, **arguments)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", count)
    return found


def consolidated(folder, version, levels=4):
    """An image by zarr-python whose root holds copies of all documents."""
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(folder, mode="w", zarr_format=version)
    for n in range(levels):
        array = group.create_array(str(n), shape=(64 >> n,) * 2, chunks=(8, 8), dtype="uint8")
        array[...] = n
    datasets = [
        {
            "path": str(n),
            "coordinateTransformations": [{"type": "scale", "scale": [2.0**n] * 2}],
        }
        for n in range(levels)
    ]
    axes = [{"name": name, "type": "space"} for name in "yx"]
    image = {"axes": axes, "datasets": datasets}
    if version == 3:
        group.attrs["ome"] = {"version": "0.5", "multiscales": [image]}
    else:
        group.attrs["multiscales"] = [{"version": "0.4", **image}]
    zarr.consolidate_metadata(folder, zarr_format=version)
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def put_consolidated(s3, name, files, *, pause=1.1):
    """Everything, and a second later the document that holds copies; times in S3 have no fractions."""
    holder = ".zmetadata" if ".zmetadata" in files else "zarr.json"
    for key in sorted(files, key=lambda key: key == holder):
        if key == holder:
            time.sleep(pause)
        s3.put_object(Bucket="public", Key=f"{name}/{key}", Body=files[key], ACL="public-read")
    return holder


def array_documents(asked):
    return [
        key for method, key in asked if method == "get_object" and re.search(r"/\d/\.?z\w+", key)
    ]


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.usefixtures("anonymous")
@pytest.mark.parametrize("version", [2, 3])
def test_copies_that_are_newer_than_their_documents_save_requests(
    command, s3, asked, tmp_path, version
):
    files = consolidated(tmp_path / "a.zarr", version)
    put_consolidated(s3, f"fresh{version}", files)
    code, said, _ = command("info", "--json", f"s3://public/fresh{version}")
    assert code == 0
    assert array_documents(asked) == []
    listed = [what for what in asked if what[0] == "list_objects_v2"]
    with_copies = len(asked)
    # the names at the root, one page with the dates of all documents, and in Zarr v2 what separates chunk indices
    assert len(listed) == 5 - version, listed
    asked.clear()
    del files[".zmetadata" if version == 2 else "zarr.json"]
    if version == 3:
        document = json.loads((tmp_path / "a.zarr/zarr.json").read_text())
        del document["consolidated_metadata"]
        files["zarr.json"] = json.dumps(document).encode()
    for key, data in files.items():
        s3.put_object(Bucket="public", Key=f"bare{version}/{key}", Body=data, ACL="public-read")
    _, bare, _ = command("info", "--json", f"s3://public/bare{version}")
    # as the page on remote stores says
    assert (with_copies, len(asked)) == {3: (3, 6), 2: (9, 12)}[version]
    for document in (said, bare):
        for image in document["data"]["images"]:
            del image["name"]
    assert said["data"]["images"] == bare["data"]["images"]


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.usefixtures("anonymous")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("when", ["later", "in the same second", "with --trust-consolidated"])
def test_a_copy_is_not_used_when_its_document_may_be_newer(
    command, s3, asked, tmp_path, version, when
):
    name = f"stale{version}{when[0]}"
    files = consolidated(tmp_path / "a.zarr", version)
    put_consolidated(s3, name, files, pause=0)
    if when != "in the same second":
        time.sleep(1.1)
    key = "0/zarr.json" if version == 3 else "0/.zarray"
    document = json.loads(files[key])
    document["shape"] = [72, 64]
    body = json.dumps(document)
    s3.put_object(Bucket="public", Key=f"{name}/{key}", Body=body, ACL="public-read")
    trusted = when.startswith("with")
    options = ["--trust-consolidated"] if trusted else []
    code, said, _ = command("info", "--json", *options, f"s3://public/{name}")
    assert code == 0
    assert said["data"]["images"][0]["size_y"] == (64 if trusted else 72)
    assert (f"{name}/{key}" in array_documents(asked)) != trusted


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.usefixtures("anonymous")
def test_a_copy_of_a_document_that_is_gone_is_not_used(command, s3, tmp_path):
    put_consolidated(s3, "gone", consolidated(tmp_path / "a.zarr", 3))
    s3.delete_object(Bucket="public", Key="gone/3/zarr.json")
    _, said, _ = command("check", "--json", "s3://public/gone")
    assert "array_metadata" in {f["code"] for f in said["data"]["findings"]}


@pytest.mark.usefixtures("anonymous")
def test_dates_take_as_many_requests_as_are_allowed(s3, asked, monkeypatch):
    from openreadout.remote import s3 as speaker
    from openreadout.remote.transport import transport

    monkeypatch.setattr(speaker, "KEYS_AT_ONCE", 3)
    for n in range(3):
        for key in (*(f"{n}/c/{i}" for i in range(5)), f"{n}/zarr.json"):
            s3.put_object(Bucket="public", Key=f"dated/{key}", Body=b"x", ACL="public-read")
    wanted = ["2/zarr.json", "0/zarr.json", "1/zarr.json", "absent/zarr.json", "1/c/0"]
    place = "s3://public/dated"
    found = transport(place).ages(place, wanted, 10)
    assert {key for key, age in found.items() if age is None} == {"absent/zarr.json"}
    assert set(found) == set(wanted)
    # the first page holds 0/zarr.json and the start of the next folder
    assert len(asked) == 3
    assert set(transport(place).ages(place, wanted, 1)) == {"0/zarr.json", "1/c/0"}


@pytest.mark.usefixtures("signed")
def test_an_export_asks_once_for_each_chunk(command, asked, fixtures):
    code, _, err = command(
        "export", f"s3://public/{ZARR2}", "--to", "ome-zarr", "-o", "s3://target/once.zarr",
        "--chunks", "24,24", "--shards", "none", "--no-verify", "--pyramid", "none",
    )  # fmt: skip
    assert code == 0, err
    read = [what for what in asked if re.search(r"/s0/\d", what[1] or "")]
    # that the first chunk is there is asked before the export is planned, and what form it has
    first = min(key for _, key in read)
    assert len([key for _, key in read if key == first]) <= 3
    later = [what for what in read if what[1] != first]
    assert {method for method, _ in later} == {"get_object"}
    assert len(later) == len(set(later)) > 1
    written = [what for what in asked if re.search(r"once.zarr/.*c/\d", what[1] or "")]
    assert len(written) == len(set(written)) > 1


# -- exports into a bucket -----------------------------------------------------------------------------------------


def keys(s3, prefix):
    found = s3.list_objects_v2(Bucket="target", Prefix=f"{prefix}/").get("Contents", ())
    return {entry["Key"].removeprefix(f"{prefix}/"): entry for entry in found}


def body(s3, key):
    return s3.get_object(Bucket="target", Key=key)["Body"].read()


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize("data", [TIFF, ZARR2, N5])
@pytest.mark.parametrize("version", ["0.5", "0.4"])
def test_an_export_into_a_bucket_has_the_bytes_of_one_on_a_disk(
    command, s3, fixtures, tmp_path, data, version
):
    name = f"{data.replace('/', '-')}-{version}.zarr"
    for target in (tmp_path / name, f"s3://target/{name}"):
        code, said, _ = command(
            "export", fixtures / data, "--to", "ome-zarr", "--ngff", version, "-o", target, "--json"
        )
        assert code == 0, said
    assert said["data"]["verified"] is True
    files = {
        str(p.relative_to(tmp_path / name)): p.read_bytes()
        for p in (tmp_path / name).rglob("*")
        if p.is_file()
    }
    assert {key: body(s3, f"{name}/{key}") for key in keys(s3, name)} == files
    assert command("check", f"s3://target/{name}", "--against", fixtures / data)[0] == 0


@pytest.mark.usefixtures("signed")
def test_what_is_written_opens_in_zarr(command, s3, fixtures):
    zarr = pytest.importorskip("zarr")
    command("export", fixtures / TIFF, "--to", "ome-zarr", "-o", "s3://target/opens.zarr")
    endpoint = s3.meta.endpoint_url
    options = {"endpoint_url": endpoint, "key": "testing", "secret": "testing"}
    group = zarr.open_group("s3://target/opens.zarr", mode="r", storage_options=options)
    assert group["0"].shape == (1, 2, 1, 64, 80)


@pytest.mark.usefixtures("signed")
def test_a_shard_larger_than_a_part_is_sent_in_parts_and_not_again_by_a_run_that_goes_on(
    command, s3, moto, tmp_path, monkeypatch
):
    import numpy as np
    import tifffile

    from openreadout_ome_zarr_writer import bucket

    monkeypatch.setattr(bucket, "PART_BYTES", 5 << 20)
    pixels = np.random.default_rng(0).integers(0, 65535, (3, 2048, 2048), np.uint16)
    tifffile.imwrite(tmp_path / "a.ome.tiff", pixels, ome=True, metadata={"axes": "ZYX"})
    arguments = (
        "export", tmp_path / "a.ome.tiff", "--to", "ome-zarr", "-o", "s3://target/parts.zarr",
        "--chunks", "1,512,512", "--shards", "3,2048,2048", "--pyramid", "none",
    )  # fmt: skip
    door, _ = moto
    root = "target/parts.zarr/zarr.json"
    door.before = lambda request: request.method == "PUT" and request.path == root
    code, _, err = command(*arguments)
    door.open()
    assert (code, "--resume" in err) == (5, True)
    since = len(door.requests)
    code, _, err = command(*arguments, "--resume")
    assert code == 0, err
    assert not [request for request in door.requests[since:] if "uploadId" in request.query]
    large = [entry for entry in keys(s3, "parts.zarr").values() if entry["Size"] > 20 << 20]
    assert [entry["ETag"].strip('"').rpartition("-")[2] for entry in large] == ["5"]
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="target")


@pytest.mark.usefixtures("signed")
def test_the_root_document_is_written_last(command, fixtures, monkeypatch):
    from openreadout.remote.s3 import S3Transport

    order = []
    put = S3Transport._put

    def noting(self, url, data, **condition):
        if "/order.zarr/" in url:
            order.append(url)
        return put(self, url, data, **condition)

    monkeypatch.setattr(S3Transport, "_put", noting)
    command("export", fixtures / TIFF, "--to", "ome-zarr", "-o", "s3://target/order.zarr")
    assert order[-1] == "s3://target/order.zarr/zarr.json"
    assert order.count(order[-1]) == 1


@pytest.mark.usefixtures("signed")
def test_a_target_that_is_there_is_replaced_only_when_asked_for(command, s3, fixtures):
    arguments = ("export", fixtures / TIFF, "--to", "ome-zarr", "-o", "s3://target/again.zarr")
    assert command(*arguments)[0] == 0
    before = {key: entry["LastModified"] for key, entry in keys(s3, "again.zarr").items()}
    s3.put_object(Bucket="target", Key="again.zarr/left/over", Body=b"x")
    code, _, err = command(*arguments)
    assert (code, "already exists" in err) == (2, True)
    assert command(*arguments, "--skip-done")[0] == 0
    assert command(*arguments, "--overwrite")[0] == 0
    assert set(keys(s3, "again.zarr")) == set(before)


@pytest.mark.usefixtures("signed")
def test_what_is_no_store_is_never_replaced(command, s3, fixtures):
    s3.put_object(Bucket="target", Key="home/letter.txt", Body=b"dear")
    code, _, _ = command(
        "export", fixtures / TIFF, "--to", "ome-zarr", "-o", "s3://target/home", "--overwrite"
    )
    assert code == 2
    assert body(s3, "home/letter.txt") == b"dear"


@pytest.mark.usefixtures("signed")
def test_two_exports_to_one_address_are_kept_apart(command, s3, fixtures, monkeypatch):
    """The second one begins while the first is writing, and again in the very moment of its claim."""
    from openreadout.remote.s3 import S3Transport

    arguments = ("export", fixtures / TIFF, "--to", "ome-zarr", "-o", "s3://target/both.zarr")
    put, seen = S3Transport.put, []

    def meanwhile(self, url, data):
        if not seen:
            seen.append(None)
            seen.extend(command(*arguments, *more) for more in ((), ("--overwrite",)))
        return put(self, url, data)

    monkeypatch.setattr(S3Transport, "put", meanwhile)
    code, _, err = command(*arguments)
    assert code == 0, err
    assert [found[0] for found in seen[1:]] == [2, 2]
    assert all("another export is writing" in found[2] for found in seen[1:])
    monkeypatch.undo()
    assert "zarr.json" in keys(s3, "both.zarr")
    assert s3.list_objects_v2(Bucket="target", Prefix=".both")["KeyCount"] == 0


@pytest.mark.usefixtures("signed")
def test_a_claim_in_the_same_moment_is_lost_by_one(s3, fixtures):
    from openreadout.remote.transport import writing_transport

    speaker = writing_transport("s3://target/claim")
    first, second = (speaker.put_new("s3://target/claim", word) for word in (b"a", b"b"))
    assert first
    assert second is None
    assert body(s3, "claim") == b"a"
    assert [bool(speaker.replace("s3://target/claim", word, first)) for word in (b"c", b"d")] == [
        True,
        False,
    ]
    assert body(s3, "claim") == b"c"
    assert speaker.replace("s3://target/no-claim", b"e", first) is None
    speaker.delete_same("s3://target/claim", first)
    assert body(s3, "claim") == b"c"


@pytest.mark.usefixtures("signed")
def test_what_a_killed_export_left_is_replaced_by_the_next(command, s3, fixtures, tmp_path):
    """Its claim names a process that is gone; shards without a root document, and parts of one more, are its own."""
    import os
    import subprocess
    import sys

    target = "s3://target/killed.zarr"
    code = (
        "import os, signal, sys; from openreadout.remote.s3 import S3Transport as T; put = T.put; "
        "T.put = lambda s, u, d: os.kill(os.getpid(), signal.SIGKILL) if u.endswith('/1/zarr.json') else put(s, u, d);"
        "from openreadout.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    arguments = ["export", str(fixtures / TIFF), "--to", "ome-zarr", "-o", target]
    killed = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=dict(os.environ), timeout=120, check=False
    )
    assert killed.returncode == -9
    left = keys(s3, "killed.zarr")
    assert left
    assert "zarr.json" not in left
    assert command("info", target)[0] in (3, 5, 6)
    s3.create_multipart_upload(Bucket="target", Key="killed.zarr/0/c/9")
    assert command(*arguments)[0] == 0
    assert "zarr.json" in keys(s3, "killed.zarr")
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="target")
    assert command("check", target, "--against", fixtures / TIFF)[0] == 0


@pytest.mark.usefixtures("signed")
def test_a_claim_of_another_machine_is_respected(command, s3, fixtures):
    owner = {"host": "elsewhere", "pid": 1, "since": "2026-01-01T00:00:00Z"}
    s3.put_object(Bucket="target", Key=".other.zarr.lock", Body=json.dumps(owner))
    arguments = ("export", fixtures / TIFF, "--to", "ome-zarr", "-o", "s3://target/other.zarr")
    code, said, _ = command(*arguments, "--overwrite", "--json")
    assert code == 2
    assert "elsewhere, since 2026-01-01" in said["error"]["message"]
    assert "remove s3://target/.other.zarr.lock" in said["error"]["hint"]
    assert keys(s3, "other.zarr") == {}


CLAIMS = {
    "nothing": b"",
    "no JSON": b"\xff{",
    "deep": b"[" * 4000,
    "a list": b"[1]",
    "long": b" " * 5000,
    "a huge number": json.dumps({"host": socket.gethostname(), "pid": 1 << 70}).encode(),
    "no number": json.dumps({"host": socket.gethostname(), "pid": "1"}).encode(),
    "escapes": json.dumps({"host": "\x1b[2J", "pid": 1, "since": "\x07"}).encode(),
}


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_that_is_none_is_respected_too(claim, command, s3, fixtures):
    s3.put_object(Bucket="target", Key=".odd.zarr.lock", Body=CLAIMS[claim])
    arguments = ("export", fixtures / TIFF, "--to", "ome-zarr", "-o", "s3://target/odd.zarr")
    code, said, error = command(*arguments, "--json")
    assert code == 2
    assert "another export is writing" in said["error"]["message"]
    assert "\x1b" not in error
    assert keys(s3, "odd.zarr") == {}


@pytest.mark.usefixtures("signed")
def test_an_output_that_does_not_read_back_is_removed(command, s3, fixtures, monkeypatch):
    from openreadout.remote.s3 import S3Transport

    put = S3Transport.put
    flip = lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]  # noqa: E731
    monkeypatch.setattr(
        S3Transport,
        "put",
        lambda self, url, data: put(self, url, flip(data) if "/c/" in url else data),
    )
    code, _, _ = command(
        "export", fixtures / TIFF, "--to", "ome-zarr", "-o", "s3://target/flip.zarr"
    )
    assert code == 1
    assert keys(s3, "flip.zarr") == {}


@pytest.mark.usefixtures("signed")
@pytest.mark.parametrize(
    ("target", "more", "word"),
    [
        ("s3://target/a.ozx", [], "archive"),
        ("s3://target", [], "bucket"),
        ("https://127.0.0.1/a.zarr", [], "only s3"),
        ("gs://target/a.zarr", [], "only s3"),
        ("s3://target/a.ozx", ["--resume"], "archive"),
        ("s3://target/a.zarr", ["--part", "1/2"], "several processes"),
        ("s3://target/a.zarr", ["--commit"], "several processes"),
    ],
)
def test_what_cannot_be_written_to_is_a_usage_error(command, fixtures, target, more, word):
    code, _, err = command("export", fixtures / TIFF, "--to", "ome-zarr", "-o", target, *more)
    assert (code, word in err) == (2, True)


@pytest.mark.usefixtures("signed")
def test_a_bucket_that_is_not_there_is_an_error_of_output(command, fixtures):
    code, _, err = command(
        "export", fixtures / TIFF, "--to", "ome-zarr", "-o", "s3://nobucket/a.zarr"
    )
    assert code in (2, 5)
    assert "bucket" in err


@pytest.mark.usefixtures("signed")
def test_a_store_is_not_written_into_itself(command):
    code, _, err = command(
        "export", f"s3://private/{ZARR3}", "--to", "ome-zarr", "-o", f"s3://private/{ZARR3}/x.zarr"
    )
    assert (code, "must not be" in err) == (2, True)


@pytest.mark.usefixtures("signed")
def test_several_inputs_go_below_the_address(command, s3, fixtures):
    code, _, err = command(
        "export", fixtures / TIFF, fixtures / ZARR2, "--to", "ome-zarr", "-o", "s3://target/many"
    )
    assert code == 0, err
    assert {key.partition("/")[0] for key in keys(s3, "many")} == {
        "cells.ome.zarr",
        "image.ome.zarr",
    }
