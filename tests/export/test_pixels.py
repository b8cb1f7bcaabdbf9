"""What is written, read by zarr-python and tensorstore, against plain arithmetic on what the source holds."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import zarr

TYPES = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


def samples(shape, dtype, seed=0):
    """Random bits as samples, so that the ends of the range occur; for floats numbers, NaN and infinities."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.random(shape) < 0.5
    kind = np.dtype(dtype).kind
    if kind in "iu":
        count = math.prod(shape) * np.dtype(dtype).itemsize
        return np.frombuffer(random.bytes(count), dtype).reshape(shape)
    found = (random.standard_normal(shape) * 100).astype(dtype)
    if kind == "c":
        found = (found + 1j * random.standard_normal(shape)).astype(dtype)
    found[..., ::53, ::29] = np.nan
    found[..., ::61, ::31] = np.inf
    return found


def parts(array, halve):
    """For each place of the next level its samples along a new last axis, the last one doubled where one is missing."""
    pad = [(0, n % 2 if h else 0) for n, h in zip(array.shape, halve, strict=True)]
    array = np.pad(array, pad, mode="edge")
    lengths, moved = [], []
    for axis, (n, h) in enumerate(zip(array.shape, halve, strict=True)):
        moved.append(len(lengths))
        lengths += [n // 2, 2] if h else [n]
        del axis
    inner = [m + 1 for m, h in zip(moved, halve, strict=True) if h]
    grouped = array.reshape(lengths).transpose([*moved, *inner])
    return grouped.reshape(*(lengths[m] for m in moved), -1)


def next_level(array, halve):
    """The next level by exact integers, or by doubles."""
    grouped = parts(array, halve)
    count = grouped.shape[-1]
    if array.dtype.kind in "biu":
        total = grouped.astype(object).sum(axis=-1)
        return ((2 * total + count) // (2 * count)).astype(array.dtype)
    with np.errstate(all="ignore"):
        if array.dtype.kind == "c":
            out = np.empty(grouped.shape[:-1], array.dtype)
            out.real = grouped.real.astype("float64").mean(axis=-1)
            out.imag = grouped.imag.astype("float64").mean(axis=-1)
            return out
        return grouped.astype("float64").mean(axis=-1).astype(array.dtype)


def assert_same(found, wanted):
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype.kind == "c":
        assert_same(found.real.copy(), wanted.real.copy())
        assert_same(found.imag.copy(), wanted.imag.copy())
    elif wanted.dtype.kind == "f":
        rtol = 4 * float(np.finfo(wanted.dtype).eps)
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-13)
    else:
        assert np.array_equal(found, wanted)


def levels(target, group=""):
    """Paths of the levels that an output lists."""
    file = target / group / "zarr.json"
    if file.is_file():
        ome = json.loads(file.read_text())["attributes"]["ome"]
    else:
        ome = json.loads((target / group / ".zattrs").read_text())
    return [(d["path"], d["coordinateTransformations"]) for d in ome["multiscales"][0]["datasets"]]


def read(target, path):
    return zarr.open_array(target / path, mode="r")[...]


def tensorstore_read(target, path):
    tensorstore = pytest.importorskip("tensorstore")
    driver = "zarr3" if (target / path / "zarr.json").is_file() else "zarr"
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{target / path}/"}}
    return tensorstore.open(spec).result().read().result()


@pytest.mark.parametrize("version", ["0.5", "0.4"])
@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_and_its_pyramid(dtype, version, make, tmp_path, export):
    pixels = samples((3, 301, 277), dtype)
    source = make.image(
        tmp_path / "a.ome.zarr", [pixels], "zyx", scales=[(0.5, 1, 1)], chunks=(2, 100, 277)
    )
    target = tmp_path / "out.ome.zarr"
    export(source, target, "--ngff", version, "--levels", "4", "--codec", "zstd")
    listed = [path for path, _ in levels(target)]
    assert len(listed) == 4
    wanted = zarr.open_array(source / "0", mode="r")[...]
    first = read(target, "0")
    assert first.tobytes() == wanted.tobytes(), "level 0 is the source bit by bit"
    halve = (True, True, True)
    for path in listed[1:]:
        wanted = next_level(wanted, halve)
        found = read(target, path)
        assert_same(found, wanted)
        assert tensorstore_read(target, path).tobytes() == found.tobytes()
        wanted = found
        halve = (found.shape[0] > 1, True, True)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("memory", ["1MiB", "64MiB"])
def test_levels_of_an_image_of_many_blocks(memory, threads, make, tmp_path, export):
    """Larger than a block, with chunks that fit nothing: seams between blocks must not show."""
    pixels = make.noise((2, 1, 1111, 1303), "int16")
    source = make.image(tmp_path / "a.ome.zarr", [pixels], "czyx", chunks=(1, 1, 123, 201))
    target = tmp_path / "out.ome.zarr"
    export(
        source, target, "--chunks", "70,90", "--shards", "300,200", "--levels", "5",
        "--memory", memory, "--threads", threads,
    )  # fmt: skip
    wanted = pixels
    for path, _ in levels(target):
        assert np.array_equal(read(target, path), wanted)
        wanted = next_level(wanted, (False, False, True, True))


def test_labels_keep_their_numbers_at_every_level(make, tmp_path, export, command):
    pixels = make.noise((260, 311))
    labels = np.kron(make.noise((90, 110), "uint32", top=5), np.ones((3, 3), "uint32"))[:260, :311]
    labels = (labels * 1_000_003).astype("uint32")
    source = make.image(tmp_path / "a.ome.zarr", [pixels], "yx")
    zarr.open_group(
        source / "labels", mode="w", attributes={"ome": {"version": "0.5", "labels": ["cells"]}}
    )
    make.image(
        source / "labels" / "cells", [labels], "yx", attributes={"image-label": {"source": {"image": "../../"}}}
    )  # fmt: skip
    target = tmp_path / "out.ome.zarr"
    export(source, target, "--levels", "3")
    wanted = labels
    listed = levels(target, "labels/cells")
    assert len(listed) == 3
    for path, _ in listed:
        found = read(target / "labels" / "cells", path)
        assert np.array_equal(found, wanted)
        grouped = np.sort(parts(wanted, (True, True)), axis=-1)
        counts = (grouped[..., None] == grouped[..., None, :]).sum(axis=-1)
        best = np.argmax(counts, axis=-1)  # the first of the most frequent, which is the smallest
        wanted = np.take_along_axis(grouped, best[..., None], axis=-1)[..., 0]


@pytest.mark.parametrize("options", [(), ("--ngff", "0.4")], ids=["0.5", "0.4"])
def test_a_label_without_its_image_stays_a_label(make, tmp_path, export, command, options):
    labels = make.noise((20, 30), "uint32", top=5)
    source = tmp_path / "a.ome.zarr"
    zarr.open_group(source, mode="w", attributes={"ome": {"version": "0.5", "bioformats2raw.layout": 3}})  # fmt: skip
    zarr.open_group(
        source / "labels", mode="w", attributes={"ome": {"version": "0.5", "labels": ["cells"]}}
    )
    make.image(source / "labels" / "cells", [labels], "yx")
    target = tmp_path / "out.ome.zarr"
    export(source, target, *options)
    array = zarr.open_array(target / "labels" / "cells" / "0", mode="r")
    assert np.array_equal(array[...], labels)
    assert command("check", target, "--against", source)["ok"] is True


@pytest.mark.parametrize("empty", [(0, 50, 60), (3, 0, 60), (3, 50, 0)])
def test_a_level_without_samples_is_refused_and_can_be_left_out(
    make, tmp_path, export, command, empty
):
    pixels = make.noise((6, 100, 120))
    source = make.image(tmp_path / "a.ome.zarr", [pixels, np.zeros(empty, pixels.dtype)], "zyx")
    target = tmp_path / "out.ome.zarr"
    refused = command("export", source, "--to", "ome-zarr", "-o", target, code=6)
    assert "--pyramid none" in refused["hint"]
    assert not target.exists()
    export(source, target, "--pyramid", "none")
    assert np.array_equal(read(target, "0"), pixels)


def test_a_smaller_level_that_declares_the_world_is_refused(make, tmp_path, export, command):
    source = make.image(tmp_path / "a.ome.zarr", [make.noise((6, 90)), make.noise((3, 45))], "yx")
    document = json.loads((source / "1" / "zarr.json").read_text(encoding="utf-8"))
    document["shape"] = [3, 2**32 - 1]
    (source / "1" / "zarr.json").write_text(json.dumps(document), encoding="utf-8")
    target = tmp_path / "out.ome.zarr"
    refused = command("export", source, "--to", "ome-zarr", "-o", target, code=6)
    assert "level 1" in refused["message"]
    assert not target.exists()
    export(source, target, "--pyramid", "none")


def test_scale_and_translation_of_made_levels_keep_the_image_in_place(make, tmp_path, export):
    source = make.image(
        tmp_path / "a.ome.zarr", [make.noise((4, 600, 500))], "zyx",
        scales=[(1.0, 0.25, 0.3)], translations=[(5.0, -1.0, 7.0)],
    )  # fmt: skip
    export(source, tmp_path / "out.ome.zarr", "--levels", "4")
    for k, (path, steps) in enumerate(levels(tmp_path / "out.ome.zarr")):
        array = zarr.open_array(tmp_path / "out.ome.zarr" / path, mode="r")
        scale = steps[0]["scale"]
        z = 2 ** max(0, k - 2)  # planes are halved once y and x are as coarse as they
        assert scale == pytest.approx([1.0 * z, 0.25 * 2**k, 0.3 * 2**k])
        moved = [5.0 + (z - 1) / 2, -1.0 + 0.25 * (2**k - 1) / 2, 7.0 + 0.3 * (2**k - 1) / 2]
        assert steps[1]["translation"] == pytest.approx(moved)
        assert array.shape == (math.ceil(4 / z), math.ceil(600 / 2**k), math.ceil(500 / 2**k))


@pytest.mark.parametrize(
    ("options", "count"),
    [([], 2), (["--pyramid", "source"], 2), (["--pyramid", "none"], 1), (["--levels", "1"], 1),
     (["--pyramid", "mean", "--levels", "3"], 3), (["--levels", "4"], 4)],
    ids=str,
)  # fmt: skip
def test_a_pyramid_of_the_source_is_kept_unless_another_is_asked_for(
    options, count, make, tmp_path, export
):
    full, own = make.noise((400, 300)), make.noise((200, 150), seed=9)
    source = make.image(tmp_path / "a.ome.zarr", [full, own], "yx", scales=[(1, 1), (2, 2)])
    export(source, tmp_path / "out.ome.zarr", *options)
    listed = [path for path, _ in levels(tmp_path / "out.ome.zarr")]
    assert len(listed) == count
    if count > 1:
        made = "mean" in options
        found = read(tmp_path / "out.ome.zarr", listed[1])
        assert np.array_equal(found, next_level(full, (True, True)) if made else own)


# -- selections ------------------------------------------------------------------------------------


@pytest.fixture
def stack(make, tmp_path):
    """Two levels of a five-dimensional image with spacing and place on every axis."""
    full = make.noise((3, 4, 6, 50, 60))
    small = make.noise((3, 4, 6, 25, 30), seed=3)
    scales = [(2.0, 1.0, 1.5, 0.5, 0.25), (2.0, 1.0, 1.5, 1.0, 0.5)]
    moved = [(10.0, 0.0, 3.0, 100.0, 200.0), (10.0, 0.0, 3.0, 100.25, 200.125)]
    colors = ("FF0000", "00FF00", "0000FF", "FFFFFF")
    window = {"min": 0, "max": 1000, "start": 0, "end": 900}
    channels = [{"label": f"ch{n}", "color": c, "window": window} for n, c in enumerate(colors)]
    source = make.image(
        tmp_path / "a.ome.zarr", [full, small], "tczyx", scales=scales, translations=moved,
        attributes={"omero": {"channels": channels}}, chunks=(1, 1, 2, 20, 20),
    )  # fmt: skip
    return source, full, small


SELECTIONS = {
    "c=0,2": (["--select", "c=0,2"], np.s_[:, [0, 2]], {}, {}),
    "t=1": (["--select", "t=1"], np.s_[1:2], {"t": 12.0}, {}),
    "z=2-4": (["--select", "z=2-4"], np.s_[:, :, 2:5], {"z": 6.0}, {}),
    "z=1,3,5": (["--select", "z=1,3,5"], np.s_[:, :, 1::2], {"z": 4.5}, {"z": 3.0}),
    "region": (["--region", "10,5,20,30"], np.s_[..., 5:35, 10:30], {"y": 102.5, "x": 202.5}, {}),
    "all": (
        ["--select", "c=3", "--select", "z=5", "--select", "t=0-1", "--region", "1,2,3,4"],
        np.s_[0:2, 3:4, 5:6, 2:6, 1:4], {"z": 10.5, "y": 101.0, "x": 200.25}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("version", ["0.5", "0.4"])
@pytest.mark.parametrize("name", SELECTIONS)
def test_a_selection_is_that_part_in_its_place(name, version, stack, tmp_path, export):
    options, part, moved, spaced = SELECTIONS[name]
    source, full, _ = stack
    target = tmp_path / "out.ome.zarr"
    export(source, target, *options, "--ngff", version)
    (path, steps), *_ = levels(target)
    assert np.array_equal(read(target, path), full[part])
    axes = "tczyx"
    start = dict(zip(axes, (10.0, 0.0, 3.0, 100.0, 200.0), strict=True)) | moved
    scale = dict(zip(axes, (2.0, 1.0, 1.5, 0.5, 0.25), strict=True)) | spaced
    assert steps[0]["scale"] == pytest.approx(list(scale.values()))
    assert steps[1]["translation"] == pytest.approx(list(start.values()))


def test_chosen_channels_keep_their_names(stack, tmp_path, export, command):
    export(stack[0], tmp_path / "out.ome.zarr", "--select", "c=1,3")
    found = command("info", tmp_path / "out.ome.zarr")["images"][0]["channels"]
    assert [(c["name"], c["color"]) for c in found] == [("ch1", "#00FF00"), ("ch3", "#FFFFFF")]


def test_a_level_becomes_the_full_resolution(stack, tmp_path, export):
    source, _, small = stack
    export(source, tmp_path / "out.ome.zarr", "--level", "1")
    ((path, steps), *_) = levels(tmp_path / "out.ome.zarr")
    assert np.array_equal(read(tmp_path / "out.ome.zarr", path), small)
    assert steps[0]["scale"] == [2.0, 1.0, 1.5, 1.0, 0.5]
    assert steps[1]["translation"] == [10.0, 0.0, 3.0, 100.25, 200.125]
    export(source, tmp_path / "no.ome.zarr", "--level", "2", code=2)


@pytest.mark.parametrize(
    "options",
    [["--select", "c=4"], ["--select", "z=6"], ["--region", "0,0,61,1"], ["--image", "1"], ["--levels", "0"],
     ["--chunks", "0"], ["--codec", "lzma"], ["--codec", "zstd:99"], ["--chunks", "1,1,1,1,1,1"], ["--select", "q=1"]],
    ids=" ".join,
)  # fmt: skip
def test_what_cannot_be_met_is_a_usage_error_and_writes_nothing(options, stack, tmp_path, export):
    export(stack[0], tmp_path / "out.ome.zarr", *options, code=2)
    assert [p.name for p in tmp_path.iterdir()] == ["a.ome.zarr"]


def test_one_image_of_several_stands_alone(tmp_path, export, fixtures):
    tifffile = pytest.importorskip("tifffile")
    (source,) = (fixtures / "ome-tiff" / "two-images").glob("*.tif*")
    for number in (0, 1):
        target = tmp_path / f"{number}.ome.zarr"
        export(source, target, "--image", number)
        with tifffile.TiffFile(source) as tiff:
            wanted = tiff.series[number].asarray()
        found = read(target, levels(target)[0][0])
        assert np.array_equal(found.reshape(wanted.shape), wanted)


# -- storage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [None, "none", "128,128", "2,64,200"])
@pytest.mark.parametrize("chunks", [None, "64,64", "1,50,77", "3,200,200"])
def test_chunks_and_shards_as_asked(chunks, shards, make, tmp_path, export):
    pixels = make.noise((3, 200, 210))
    source = make.image(tmp_path / "a.ome.zarr", [pixels], "zyx", chunks=(1, 100, 100))
    options = ["--chunks", chunks] if chunks else []
    options += ["--shards", shards] if shards else []
    export(source, tmp_path / "out.ome.zarr", *options, "--pyramid", "none")
    array = zarr.open_array(tmp_path / "out.ome.zarr" / "0", mode="r")
    assert np.array_equal(array[...], pixels)
    assert np.array_equal(tensorstore_read(tmp_path / "out.ome.zarr", "0"), pixels)
    if chunks:
        given = [1] * (3 - len(chunks.split(","))) + [int(n) for n in chunks.split(",")]
        assert array.chunks == tuple(min(c, n) for c, n in zip(given, pixels.shape, strict=True))
    if shards == "none":
        assert array.shards is None
    elif shards:
        given = [1] * (3 - len(shards.split(","))) + [int(n) for n in shards.split(",")]
        for s, g, c in zip(array.shards, given, array.chunks, strict=True):
            assert s == -(-max(g, c) // c) * c, "whole chunks, at least what was asked for"


CODECS = {
    "blosc-zstd": "BloscCodec", "blosc-lz4:9": "BloscCodec", "zstd:10": "ZstdCodec", "gzip:1": "GzipCodec",
    "none": None,
}  # fmt: skip


@pytest.mark.parametrize("version", ["0.5", "0.4"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float64"])
def test_codecs_as_asked(dtype, codec, version, make, tmp_path, export):
    pixels = make.noise((2, 70, 90), dtype, top=200)
    source = make.image(tmp_path / "a.ome.zarr", [pixels], "zyx")
    target = tmp_path / "out.ome.zarr"
    report = export(source, target, "--codec", codec, "--ngff", version)
    assert report["chunks_copied"] == 0
    array = zarr.open_array(target / "0", mode="r")
    assert np.array_equal(array[...], pixels)
    assert np.array_equal(tensorstore_read(target, "0"), pixels)
    names = [type(c).__name__ for c in array.compressors]
    wanted = CODECS[codec]
    if version == "0.5":
        assert names == ([wanted] if wanted else [])
    else:
        assert [n.lower() for n in names] == ([wanted[: -len("Codec")].lower()] if wanted else [])


@pytest.mark.parametrize("name", ["out.ome.zarr", "out.ozx"])
@pytest.mark.parametrize(
    "options", ["", "--codec zstd --chunks 50,60 --shards 150,120", "--shards none"]
)
def test_the_number_of_threads_does_not_show(options, name, make, tmp_path, export, killing):
    pixels = make.noise((2, 3, 420, 330), "float32")
    source = make.image(tmp_path / "a.ome.zarr", [pixels], "czyx", chunks=(1, 2, 100, 100))
    found = []
    for threads in (1, 2, 4, 7):
        (tmp_path / str(threads)).mkdir()
        target = tmp_path / str(threads) / name
        export(source, target, *options.split(), "--threads", threads)
        found.append(killing.tree(tmp_path / str(threads) / name))
    assert all(tree == found[0] for tree in found[1:])


# -- sparse ----------------------------------------------------------------------------------------


def stored_files(target, path):
    return [p for p in (target / path).rglob("*") if p.is_file() and p.name != "zarr.json"]


@pytest.mark.parametrize("fill", [0, 7])
@pytest.mark.parametrize("side", [48, 500])
@pytest.mark.parametrize("shards", [[], ["--shards", "none"]], ids=["shards", "chunks"])
def test_a_chunk_that_is_not_stored_is_not_stored_at_any_level(
    shards, side, fill, make, tmp_path, export
):
    """Gigabytes on paper, two chunks on the disk."""
    source = tmp_path / "a.ome.zarr"
    make.image(source, [np.zeros((1, 1), "uint8")], "yx")
    n = (100_000 if side == 500 else 16_000) // side * side
    array = zarr.create_array(
        source / "0", shape=(n, 2 * n), chunks=(side, side), dtype="uint8", fill_value=fill,
        overwrite=True,
    )  # fmt: skip
    data = make.noise((side, side), "uint8", top=250, seed=2)
    data[0, 0] = 255
    first, last = (3 * side, 5 * side), (n - side, 2 * n - side)
    for y, x in (first, last):
        array[y : y + side, x : x + side] = data
    target = tmp_path / "out.ome.zarr"
    export(source, target, *shards)
    listed = [path for path, _ in levels(target)]
    assert len(listed) >= 7
    for path in listed:
        assert 1 <= len(stored_files(target, path)) <= 2
    written = zarr.open_array(target / "0", mode="r")
    for y, x in (first, last):
        assert np.array_equal(written[y : y + side, x : x + side], data)
    assert (written[10 * side : 10 * side + 50, :50] == fill).all()
    made = zarr.open_array(target / "1", mode="r")
    y, x = first
    around = np.full((side + 4, side + 4), fill, "uint8")
    around[2:-2, 2:-2] = data
    wanted = next_level(around, (True, True))
    assert np.array_equal(
        made[y // 2 - 1 : y // 2 + side // 2 + 1, x // 2 - 1 : x // 2 + side // 2 + 1], wanted
    )


@pytest.mark.parametrize("chunks", ["16,16", "8,8"])
def test_a_chunk_that_a_shard_lacks_is_not_stored(chunks, make, tmp_path, export):
    source = tmp_path / "a.ome.zarr"
    make.image(source, [np.zeros((64, 64), "uint8")], "yx", chunks=(16, 16), shards=(64, 64))
    array = zarr.open_array(source / "0")
    array[16:32, 32:48] = array[48:, :16] = 3
    target = tmp_path / "out.ome.zarr"
    export(
        source, target, "--pyramid", "mean", "--levels", 3, "--chunks", chunks, "--shards", "none"
    )
    side = int(chunks.partition(",")[0])
    assert len(stored_files(target, "0")) == 2 * (16 // side) ** 2
    assert len(stored_files(target, "1")) == 2
    assert np.array_equal(zarr.open_array(target / "0", mode="r")[...], array[...])


# -- corrections -----------------------------------------------------------------------------------


def test_corrections_stand_in_the_output_and_in_the_report(stack, tmp_path, export, command):
    target = tmp_path / "out.ome.zarr"
    report = export(
        stack[0], target, "--pixel-size", "0.5,0.75,2um", "--time-increment", "30", "--name", "better",
        "--channel-names", "a,b,c,d", "--channel-colors", "112233,445566,778899,AABBCC",
    )  # fmt: skip
    ome = json.loads((target / "zarr.json").read_text())["attributes"]["ome"]
    entry = ome["multiscales"][0]
    assert entry["name"] == "better"
    scales = [d["coordinateTransformations"][0]["scale"] for d in entry["datasets"]]
    assert scales[0] == [30.0, 1.0, 2.0, 0.75, 0.5]
    assert scales[1] == pytest.approx([30.0, 1.0, 2.0, 1.5, 1.0])
    assert [axis.get("unit") for axis in entry["axes"]] == ["second", None, *["micrometer"] * 3]
    assert [(c["label"], c["color"]) for c in ome["omero"]["channels"]] == [
        ("a", "112233"), ("b", "445566"), ("c", "778899"), ("d", "AABBCC"),
    ]  # fmt: skip
    told = " ".join(report["changes"])
    for word in ("better", "pixel size", "30", "channel 3"):
        assert word in told
    found = command("info", target)["images"][0]
    assert found["physical_size"] == {"x": 0.5, "y": 0.75, "z": 2.0, "unit": "µm"}
    assert found["time_increment_s"] == 30


@pytest.mark.parametrize(
    ("given", "unit", "scale"),
    [("4,4,40nm", "nanometer", [40, 4, 4]), ("1,2mm", "millimeter", [1.5, 2, 1]), ("3,3,3µm", "micrometer", [3, 3, 3])],
)  # fmt: skip
def test_pixel_sizes_in_their_own_unit(given, unit, scale, make, tmp_path, export):
    source = make.image(
        tmp_path / "a.ome.zarr", [make.noise((2, 5, 6))], "zyx", scales=[(1.5, 1, 1)]
    )
    export(source, tmp_path / "out.ome.zarr", "--pixel-size", given)
    ome = json.loads((tmp_path / "out.ome.zarr" / "zarr.json").read_text())["attributes"]["ome"]
    entry = ome["multiscales"][0]
    assert entry["datasets"][0]["coordinateTransformations"][0]["scale"] == scale
    assert entry["axes"][2]["unit"] == unit


@pytest.mark.parametrize(
    "options",
    [["--channel-names", "a"], ["--channel-colors", "zzzzzz"], ["--pixel-size", "1"], ["--pixel-size", "0,1um"],
     ["--pixel-size", "1,1parrot"], ["--time-increment", "0"], ["--time-increment", "nan"]],
    ids=" ".join,
)  # fmt: skip
def test_corrections_that_make_no_sense_are_usage_errors(options, stack, tmp_path, export):
    export(stack[0], tmp_path / "out.ome.zarr", *options, code=2)
    assert [p.name for p in tmp_path.iterdir()] == ["a.ome.zarr"]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "bool", "uint16"])
def test_what_a_camera_gives_is_sorted_by_bits_and_masks_and_labels_are_not(
    dtype, make, tmp_path, export
):
    pixels = make.noise((64, 64), dtype, top=2 if dtype == "bool" else 100)
    source = make.image(tmp_path / "a.ome.zarr", [pixels], "yx", compressors=None)
    if dtype != "bool":
        label = {"version": "0.5", "image-label": {"version": "0.5"}}
        make.image(source / "labels" / "cells", [pixels], "yx", compressors=None)
        group = zarr.open_group(source / "labels" / "cells", mode="r+")
        group.attrs["ome"] = {**group.attrs["ome"], **label}
        zarr.open_group(source / "labels", mode="a").attrs["ome"] = {"labels": ["cells"]}
    export(source, tmp_path / "out.ome.zarr")
    root = zarr.open_group(tmp_path / "out.ome.zarr", mode="r")

    def shuffle(array):
        (codec,) = (
            array.metadata.codecs[0].codecs[1:] if array.shards else array.metadata.codecs[1:]
        )
        return codec.to_dict()["configuration"]["shuffle"]

    assert np.array_equal(root["0"][...], pixels)
    assert shuffle(root["0"]) == ("noshuffle" if dtype == "bool" else "bitshuffle")
    if dtype != "bool":
        wide = dtype == "uint16"
        assert shuffle(root["labels/cells/0"]) == ("bitshuffle" if wide else "noshuffle")


@pytest.mark.parametrize("waiting", [-1, 0, 1 << 30])
def test_shards_are_the_same_however_long_chunks_may_wait(
    waiting, make, tmp_path, export, killing, monkeypatch
):
    from openreadout_ome_zarr_writer import sink

    source = make.image(tmp_path / "a.ome.zarr", [make.noise((4, 256, 256))], "zyx")
    options = ("--chunks", "32,32", "--shards", "128,128", "--codec", "zstd")
    export(source, tmp_path / "one.ome.zarr", *options, "--threads", "1")
    monkeypatch.setattr(sink, "WAITING_BYTES", waiting)
    export(source, tmp_path / "many.ome.zarr", *options, "--threads", "8")
    assert killing.tree(tmp_path / "many.ome.zarr") == killing.tree(tmp_path / "one.ome.zarr")
