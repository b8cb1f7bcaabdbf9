"""How many requests a shard takes, of servers that understand ranges without a beginning and of others."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from conftest import needs
from server import serving

import openreadout
from openreadout import limits

CHUNK = (1, 64, 64)
SHARD = (4, 128, 128)
SHAPE = (8, 256, 256)
SHARDS, CHUNKS = 8, 128
AXES = [{"name": name, "type": "space"} for name in "zyx"]
SCALE = [{"type": "scale", "scale": [1.0, 1.0, 1.0]}]
OTHERS = ["whole", "first", "400", "501"]


def store(path, *, index="end", shard=SHARD, shape=SHAPE):
    """A sharded image of noise, which no codec makes smaller: 16 chunks of 4 KiB in each shard of 64 KiB and more."""
    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.attrs["ome"] = {
        "version": "0.5",
        "multiscales": [
            {"axes": AXES, "datasets": [{"path": "0", "coordinateTransformations": SCALE}]}
        ],
    }
    samples = np.random.default_rng(7).integers(0, 255, shape, dtype="uint8")
    array = group.create_array(
        "0",
        shape=shape,
        chunks=CHUNK,
        shards={"shape": shard, "index_location": index},
        dtype="uint8",
        compressors=None,
    )
    array[:] = samples
    return samples


def of_shards(server):
    """The requests for shards."""
    return [(method, path) for method, path in server.requests if "/c/" in path]


@pytest.fixture(params=["end", "start"])
def sharded(request, tmp_path):
    """Where the index of each shard stands, and the samples."""
    return request.param, store(tmp_path / "a.zarr", index=request.param)


@pytest.mark.usefixtures("sharded")
def test_a_chunk_takes_its_shard_one_request_before_it(tmp_path):
    with serving(tmp_path) as server, openreadout.open(f"{server.url}/a.zarr") as dataset:
        image = dataset.images[0]
        assert of_shards(server) == []
        image.levels[0].array.read_chunk((2, 1, 1))
        assert [method for method, _ in of_shards(server)] in (["GET"], ["GET", "GET"])
        before = len(of_shards(server))
        image.levels[0].array.read_chunk((2, 1, 0))
        assert len(of_shards(server)) - before <= 1


def test_samples_are_those_of_the_shards(sharded, tmp_path):
    with serving(tmp_path) as server, openreadout.open(f"{server.url}/a.zarr") as dataset:
        for z in range(SHAPE[0]):
            assert (dataset.images[0].read_plane(z=z) == sharded[1][z]).all()


@pytest.mark.parametrize("limit", ["SHARD_EDGE_BYTES", "SHARDS_HELD_BYTES"])
def test_nothing_depends_on_what_is_kept(sharded, tmp_path, monkeypatch, limit):
    monkeypatch.setattr(limits, limit, 0)
    with serving(tmp_path) as server, openreadout.open(f"{server.url}/a.zarr") as dataset:
        assert (dataset.images[0].read_plane(z=5) == sharded[1][5]).all()


@pytest.mark.parametrize(
    "arguments", [["check", "--full"], ["check", "--planes"], ["check", "--full", "--threads", "1"]]
)
@pytest.mark.usefixtures("sharded")
def test_shards_that_are_read_whole_take_one_request_each(tmp_path, command, arguments):
    with serving(tmp_path) as server:
        assert command(*arguments, f"{server.url}/a.zarr")[0] == 0
        gets = [path for method, path in of_shards(server) if method == "GET"]
    assert len(gets) == len(set(gets)) == SHARDS


@pytest.mark.usefixtures("sharded")
def test_an_export_takes_small_shards_whole(tmp_path, command):
    target = tmp_path / "out.zarr"
    with serving(tmp_path) as server:
        code, _, err = command(
            "export", f"{server.url}/a.zarr", "--to", "ome-zarr", "-o", target, "--levels", "1"
        )
        gets = [path for method, path in of_shards(server) if method == "GET"]
    assert code == 0, err
    # the first shard is looked at before the export is planned, when only its index was asked for
    others = [path for path in gets if path != gets[0]]
    assert len(others) == len(set(others)) == SHARDS - 1
    assert command("check", tmp_path / "a.zarr", "--against", target)[0] == 0


@pytest.mark.parametrize("suffix", OTHERS)
def test_servers_that_do_not_know_the_end_of_a_value_are_asked_for_it_once(tmp_path, suffix):
    samples = store(
        tmp_path / "a.zarr", shard=(8, 128, 128)
    )  # longer than what comes with an index
    with (
        serving(tmp_path, suffix=suffix) as server,
        openreadout.open(f"{server.url}/a.zarr") as dataset,
    ):
        array = dataset.images[0].levels[0].array
        for n, index in enumerate([(0, 0, 0), (0, 2, 0), (0, 0, 2), (0, 2, 2)]):
            before = len(of_shards(server))
            found = array.read_chunk(index)
            z, y, x = (i * c for i, c in zip(index, CHUNK, strict=True))
            assert (found == samples[z : z + 1, y : y + 64, x : x + 64]).all()
            # the vain request, its size, its index, and the chunk
            assert len(of_shards(server)) - before == (3 if n else 4)


def test_a_server_that_refuses_ranges_longer_than_the_value_gives_short_shards(tmp_path, command):
    samples = store(tmp_path / "a.zarr", shard=(2, 64, 64))
    with serving(tmp_path, suffix="416") as server:
        with openreadout.open(f"{server.url}/a.zarr") as dataset:
            assert (dataset.images[0].read_plane(z=3) == samples[3]).all()
        assert command("check", "--full", f"{server.url}/a.zarr")[0] == 0


@pytest.mark.parametrize("shard", [(2, 64, 64), (8, 128, 128)])
def test_a_server_without_ranges_gives_small_shards_and_refuses_others(tmp_path, command, shard):
    store(tmp_path / "a.zarr", shard=shard)
    with serving(tmp_path, ranges=False) as server:
        code, said, _ = command("check", "--json", f"{server.url}/a.zarr")
    if shard[0] == 2:
        assert code == 0
    else:
        assert (code, said["error"]["code"]) == (5, "io")
        assert "no byte ranges" in said["error"]["message"]


@pytest.mark.parametrize("fault", ["403", "500", "503", "cut", "hang up", "packed", "endless"])
@pytest.mark.parametrize("index", ["end", "start"])
def test_a_shard_that_the_server_fails_to_give_is_no_black_image(tmp_path, command, fault, index):
    store(tmp_path / "a.zarr", index=index)
    with serving(tmp_path) as server:
        server.fault = lambda path, turn: fault if "/c/" in path else None
        code, said, _ = command("check", "--planes", "--json", f"{server.url}/a.zarr")
    assert (code, said["error"]["code"]) == (5, "io")


@pytest.mark.parametrize("fault", ["500", "cut", "hang up"])
@pytest.mark.usefixtures("sharded")
def test_what_fails_once_is_asked_for_again(tmp_path, command, fault):
    with serving(tmp_path) as server:
        server.fault = lambda path, turn: fault if "/c/" in path and turn < 2 else None
        assert command("check", "--full", f"{server.url}/a.zarr")[0] == 0


@pytest.mark.parametrize("fault", ["other range", "other total"])
@pytest.mark.usefixtures("sharded")
def test_a_server_that_gives_other_bytes_is_an_error(tmp_path, command, fault):
    with serving(tmp_path) as server:
        server.fault = lambda path, turn: fault if "/c/" in path else None
        code, said, _ = command("check", "--planes", "--json", f"{server.url}/a.zarr")
    assert code in (4, 5), said
    assert code == 5 or said["data"]["findings"]


@pytest.mark.usefixtures("sharded")
def test_a_total_that_is_not_told_is_asked_for(tmp_path, command):
    with serving(tmp_path) as server:
        server.fault = lambda path, turn: "no total" if "/c/" in path else None
        assert command("check", "--full", f"{server.url}/a.zarr")[0] == 0


@pytest.mark.usefixtures("sharded")
def test_an_absent_shard_is_the_fill_value(tmp_path, command):
    with serving(tmp_path) as server:
        server.fault = lambda path, turn: "404" if path.endswith("/c/1/0/0") else None
        with openreadout.open(f"{server.url}/a.zarr") as dataset:
            assert not dataset.images[0].read_plane(z=5)[:128, :128].any()


@pytest.mark.parametrize("left", [0, 10, 5000])
def test_a_shard_that_is_cut_on_the_server_is_damage(sharded, tmp_path, command, left):
    shard = tmp_path / "a.zarr" / "0" / "c" / "0" / "0" / "0"
    shard.write_bytes(shard.read_bytes()[:left])
    with serving(tmp_path) as server:
        code, said, _ = command("check", "--full", "--json", f"{server.url}/a.zarr")
    assert code == 4
    assert {f["location"] for f in said["data"]["findings"] if f["severity"] == "error"} == {
        "0/c/0/0/0"
    }


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """An S3 bucket with a sharded image, and the ranges that are asked of it; fails as `failing` says."""
    import logging

    import boto3
    import s3fs
    from moto.server import ThreadedMotoServer

    from openreadout.remote.s3 import CREDENTIALS

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    client = boto3.client(
        "s3",
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",  # noqa: S106 - what moto takes
        endpoint_url=f"http://{host}:{port}",
    )
    client.create_bucket(Bucket="shards")
    store(tmp_path / "a.zarr")
    for file in tmp_path.rglob("*"):
        if file.is_file():
            key = str(file.relative_to(tmp_path))
            client.put_object(Bucket="shards", Key=key, Body=file.read_bytes(), ACL="public-read")
    asked = []
    call = s3fs.S3FileSystem._call_s3

    async def noted(self, method, *more, **arguments):
        if "/c/" in arguments.get("Key", ""):
            asked.append((method, arguments["Key"], arguments.get("Range")))
        return await call(self, method, *more, **arguments)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", noted)
    yield client, asked
    running.stop()


@needs("moto", "boto3", "flask")
def test_shards_of_a_bucket_take_one_request_each(bucket, command):
    _, asked = bucket
    assert command("check", "--full", "s3://shards/a.zarr")[0] == 0
    assert [method for method, _, _ in asked] == ["get_object"] * SHARDS
    assert len({key for _, key, _ in asked}) == SHARDS


@needs("moto", "boto3", "flask")
def test_one_chunk_of_a_bucket_takes_two_requests(bucket, monkeypatch):
    _, asked = bucket
    monkeypatch.setattr(limits, "SHARD_EDGE_BYTES", 0)
    with openreadout.open("s3://shards/a.zarr") as dataset:
        dataset.images[0].levels[0].array.read_chunk((0, 0, 0))
    assert [method for method, _, _ in asked] == ["get_object", "get_object"]
    assert asked[0][2].startswith("bytes=-")


@needs("moto", "boto3", "flask")
@pytest.mark.parametrize("answer", ["whole", "400"])
def test_a_store_that_does_not_know_the_end_of_an_object_is_asked_for_it_once(
    bucket, monkeypatch, answer
):
    import s3fs
    from botocore.exceptions import ClientError

    _, asked = bucket
    monkeypatch.setattr(limits, "SHARD_EDGE_BYTES", 0)
    call = s3fs.S3FileSystem._call_s3

    async def ignorant(self, method, *more, **arguments):
        if str(arguments.get("Range", "")).startswith("bytes=-"):
            del arguments["Range"]
            if answer == "400":
                asked.append(("refused", arguments["Key"], None))
                said = {
                    "Error": {"Code": "InvalidArgument"},
                    "ResponseMetadata": {"HTTPStatusCode": 400},
                }
                raise OSError(22, "invalid argument") from ClientError(said, "GetObject")
        return await call(self, method, *more, **arguments)

    monkeypatch.setattr(s3fs.S3FileSystem, "_call_s3", ignorant)
    counts = []
    with openreadout.open("s3://shards/a.zarr") as dataset:
        for index in [(0, 0, 0), (0, 2, 0), (4, 0, 0)]:
            dataset.images[0].levels[0].array.read_chunk(index)
            counts.append(len(asked))
    assert counts == [4, 7, 10]


@needs("moto", "boto3", "flask")
def test_an_empty_shard_of_a_bucket_is_damage(bucket, command):
    client, _ = bucket
    client.put_object(Bucket="shards", Key="a.zarr/0/c/1/1/1", Body=b"", ACL="public-read")
    code, said, _ = command("check", "--full", "--json", "s3://shards/a.zarr")
    assert code == 4
    assert said["data"]["findings"][0]["location"] == "0/c/1/1/1"


def test_all_of_an_image_takes_small_shards_whole(tmp_path):
    samples = store(tmp_path / "a.zarr")
    with serving(tmp_path) as server, openreadout.open(f"{server.url}/a.zarr") as dataset:
        assert (np.asarray(dataset.images[0])[0, 0] == samples).all()
        assert len(of_shards(server)) == SHARDS
        server.requests.clear()
        dataset.images[0].read_plane(z=0)
        # what came with the indexes is still there, and no shard is fetched whole a second time
        assert len(of_shards(server)) <= SHARDS


def test_a_shard_that_was_given_up_is_not_fetched_whole_again(tmp_path, monkeypatch):
    from openreadout import encoded

    store(tmp_path / "a.zarr")
    monkeypatch.setattr(encoded, "INDEX_CACHE", 1)
    monkeypatch.setattr(limits, "SHARDS_HELD_BYTES", 0)
    monkeypatch.setattr(limits, "SHARD_EDGE_BYTES", 0)
    sizes = []
    with serving(tmp_path) as server, openreadout.open(f"{server.url}/a.zarr") as dataset:
        array = dataset.images[0].levels[0].array
        array.read_whole = True
        edge = array.store.get_edge

        def noted(key, length, *, start=False):
            sizes.append((key, length))
            return edge(key, length, start=start)

        monkeypatch.setattr(array.store, "get_edge", noted)
        for index in [(0, 0, 0), (0, 3, 3), (0, 0, 1), (0, 3, 2)]:
            array.read_chunk(index)
    assert [length > 1000 for _, length in sizes] == [True, True, False, False]
