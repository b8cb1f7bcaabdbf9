"""Limits that users set: what names and values are taken, and that each acts in every module that has it."""

from __future__ import annotations

import json
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest

import openreadout
from openreadout import bounds, limits
from openreadout.cli import run
from openreadout.errors import UsageError
from tests.robustness import build

CELLS = "ome-zarr/ome-zarr-py-0.5/image.ome.zarr"


@pytest.fixture(autouse=True)
def _defaults():
    yield
    limits.restore({})


@pytest.fixture
def told(capsys, tmp_path):
    """Run a command here with `--limit`s: its exit code and its JSON document."""

    def call(command, source, *settings):
        given = [word for text in settings for word in ("--limit", text)]
        place = ["-o", str(tmp_path / "out.png"), "--overwrite"] if command == "preview" else []
        place += ["--to", "ome-zarr", "--dry-run"] if command == "export" else []
        words = command.split()
        code = run([words[0], str(source), *words[1:], "--json", *place, *given])
        return code, json.loads(capsys.readouterr().out)

    return call


# -- names and values ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        ("7", 7),
        (" 1_000 ", 1000),
        ("4GiB", 4 << 30),
        ("4 gib", 4 << 30),
        ("3k", 3 << 10),
        ("1T", 1 << 40),
        ("512B", 512),
    ],
)
def test_a_value_is_a_number_or_a_size_in_binary_units(value, number):
    assert bounds.checked("MAX_JSON_BYTES", value) == number


@pytest.mark.parametrize(
    "value",
    ["", "x", "1.5GiB", "4GB", "-1", "1e6", "nan", "٣", "9" * 5000, "GiB", 1.5, True, None, [4]],
)
def test_anything_else_is_refused_with_an_example(value):
    with pytest.raises(UsageError, match="neither a whole number nor a size") as caught:
        bounds.checked("MAX_JSON_BYTES", value)
    assert "4GiB" in caught.value.hint


@pytest.mark.parametrize("name", sorted(limits.RANGES))
def test_no_limit_goes_beyond_its_range(name):
    least, most = limits.RANGES[name]
    assert least <= getattr(limits, name) <= most
    assert bounds.checked(name, least) == least
    assert bounds.checked(name, most) == most
    for value in (least - 1, most + 1):
        with pytest.raises(UsageError, match=f"limit {name}: {value} is not from"):
            bounds.checked(name, value)


def test_a_wrong_name_is_told_the_nearest_one():
    with pytest.raises(
        UsageError, match=r"there is no limit 'MAX_JSN_BYTES'; did you mean MAX_JSON_BYTES\?"
    ):
        openreadout.set_limits(MAX_JSN_BYTES=1)
    with pytest.raises(UsageError, match="there is no limit 'KIB'"):
        openreadout.set_limits(KIB=1)


@pytest.mark.parametrize("name", bounds.FIXED)
def test_a_limit_that_nothing_raises_says_so(name):
    assert isinstance(getattr(limits, name), int)
    with pytest.raises(UsageError, match=f"limit {name} cannot be set"):
        bounds.checked(name, 5)


def test_limits_are_set_all_or_none():
    with pytest.raises(UsageError):
        openreadout.set_limits(MAX_LEVELS=100, MAX_DIMENSIONS=65)
    assert limits.changed() == {}


def test_what_was_before_comes_back():
    before = openreadout.set_limits(MAX_LEVELS=100, MAX_JSON_BYTES="1GiB")
    assert before == {"MAX_LEVELS": 64, "MAX_JSON_BYTES": 64 << 20}
    assert (limits.MAX_LEVELS, limits.MAX_JSON_BYTES) == (100, 1 << 30)
    openreadout.set_limits(**before)
    assert limits.changed() == {}


def test_a_larger_chunk_may_be_stored_in_more_bytes():
    openreadout.set_limits(MAX_CHUNK_BYTES="8GiB")
    assert limits.MAX_ENCODED_BYTES == (8 << 30) + (64 << 20)
    openreadout.set_limits(MAX_CHUNK_BYTES="1MiB")
    assert limits.MAX_ENCODED_BYTES == (8 << 30) + (64 << 20)
    openreadout.set_limits(MAX_CHUNK_BYTES="1TiB", MAX_ENCODED_BYTES="5MiB")
    assert limits.MAX_ENCODED_BYTES == 5 << 20
    openreadout.set_limits(MAX_CHUNK_BYTES="1TiB")
    assert limits.MAX_ENCODED_BYTES == 1 << 40


@pytest.mark.parametrize("name", sorted(limits.RANGES))
@pytest.mark.parametrize("needed", [2, 33, 1023, 1025, 70_000, (64 << 20) + 1, 1 << 33])
def test_a_hint_names_a_value_that_is_taken_and_is_enough(name, needed):
    hint = limits.raised_by(name, needed)
    if needed > limits.RANGES[name][1]:
        assert hint is None
        return
    value = hint.partition(f"--limit {name}=")[2].split()[0]
    assert needed <= bounds.checked(name, value) <= 2 * needed


# -- the option ------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["info", "check", "export", "preview"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MAX_JSON_BYTES", "not NAME=VALUE"),
        ("MAX_JSON_BYTES=", "neither a whole number nor a size"),
        ("MAX_JSON_BYTES=much", "neither a whole number nor a size"),
        ("MAX_DIMENSIONS=65", "not from 1 to 64"),
        ("MAX_XML_BYTES=2GiB", "not from 1 to 2147483647"),
        ("MAX_LEVEL=70", "did you mean MAX_LEVELS?"),
        ("MAX_AXIS=5", "cannot be set"),
        ("=5", "there is no limit ''"),
    ],
)
def test_nonsense_is_usage(told, fixtures, command, text, message):
    code, document = told(command, fixtures / CELLS, text)
    assert (code, document["error"]["code"]) == (2, "usage")
    assert message in document["error"]["message"]
    assert limits.changed() == {}


def test_a_name_may_be_written_as_an_option_is(told, fixtures):
    assert told("info", fixtures / CELLS, "max-json-bytes=1KiB")[0] == 4


def test_the_option_holds_for_one_run(told, fixtures):
    openreadout.set_limits(MAX_LEVELS=100)
    assert told("info", fixtures / CELLS, "MAX_JSON_BYTES=10", "MAX_LEVELS=1000")[0] == 4
    assert limits.changed() == {"MAX_LEVELS": 100}
    assert told("info", fixtures / CELLS)[0] == 0


# -- a raised limit lets a document through --------------------------------------------------------


def many_levels(folder):
    return build.ome_zarr(folder, multiscales=build.multiscales(*["0"] * 70))


def many_multiscales(folder):
    return build.ome_zarr(folder, multiscales=build.multiscales("0") * 1001)


def many_codecs(folder):
    """Checksum after checksum, each over what is there and the one before."""
    import google_crc32c

    data = build.PIXELS
    for _ in range(40):
        data += google_crc32c.value(data).to_bytes(4, "little")
    codecs = [*build.RAW, *[{"name": "crc32c"}] * 40]
    return build.ome_zarr(folder, build.array3(codecs=codecs), data)


def long_document(folder):
    source = build.ome_zarr(folder)
    document = source / "zarr.json"
    document.write_bytes(document.read_bytes() + b" " * (64 << 20))
    return source


def absent_wells(folder):
    """A plate of which one well is there."""
    names = [*map(str, range(10_001)), "there"]
    wells = [{"path": f"A/{name}", "rowIndex": 0, "columnIndex": 0} for name in names]
    field = build.group3(well={"images": [{"path": "0"}]})
    build.put(folder / "A" / "there" / "zarr.json", field)
    build.ome_zarr(folder / "A" / "there" / "0")
    plate = {"rows": [{"name": "A"}], "columns": [{"name": "1"}], "wells": wells}
    build.put(folder / "zarr.json", build.group3(plate=plate))
    return folder


def many_dimensions(folder):
    """A sound N5 dataset of 40 axes; the block lies as deep."""
    axes = [8, 8] + [1] * 38
    source = build.n5(folder, dimensions=axes, blockSize=axes)
    place = source / "a" / "0" / "0"
    pixels = place.read_bytes()[12:]
    place.unlink()
    block = place.joinpath(*["0"] * 38)
    block.parent.mkdir(parents=True)
    block.write_bytes(struct.pack(">HH40I", 0, 40, *axes) + pixels)
    return source


def many_samples(folder):
    """A pixel of 5000 samples: a line of a spectrometer in one TIFF."""
    import tifffile

    folder.mkdir()
    path = folder / "line.ome.tiff"
    pixels = np.arange(2 * 5000, dtype="u1").reshape(1, 2, 5000)
    tifffile.imwrite(
        path, pixels, photometric="minisblack", planarconfig="contig", metadata={"axes": "YXS"}
    )
    return path


def empty_parts(folder):
    array = build.array3(shape=[320, 320], chunk_grid=build.grid(1, 1))
    return build.ome_zarr(folder, array, None)


def long_row(folder):
    array = build.array3(shape=[1, 1 << 28], chunk_grid=build.grid(1, 1 << 26))
    return build.ome_zarr(folder, array, None)


RAISED = [
    (
        "info",
        many_levels,
        "MAX_LEVELS=70",
        4,
        lambda data: data["images"][0]["pyramid_levels"] == 70,
    ),
    ("check", many_multiscales, "MAX_MULTISCALES=1001", 4, lambda data: data["ok"]),
    ("check --full", many_codecs, "MAX_CODECS=41", 4, lambda data: data["ok"]),
    (
        "info",
        long_document,
        "MAX_JSON_BYTES=128MiB",
        4,
        lambda data: data["images"][0]["size_x"] == 8,
    ),
    ("info", absent_wells, "MAX_FINDINGS=10001", 6, lambda data: len(data["images"]) == 1),
    (
        "info",
        many_samples,
        "MAX_SAMPLES=5000",
        4,
        lambda data: data["images"][0]["samples_per_pixel"] == 5000,
    ),
    (
        "check --planes",
        empty_parts,
        "MAX_EMPTY_PARTS=102401",
        6,
        lambda data: len(data["planes"]) == 1,
    ),
    ("check --planes", long_row, "MAX_ROW_BYTES=512MiB", 6, lambda data: len(data["planes"]) == 1),
]


@pytest.mark.parametrize(
    ("command", "make", "setting", "refused", "holds"),
    RAISED,
    ids=[setting.partition("=")[0] for _, _, setting, _, _ in RAISED],
)
def test_a_raised_limit_lets_a_document_through(
    told, tmp_path, command, make, setting, refused, holds
):
    source = make(tmp_path / "in")
    code, document = told(command, source)
    assert code == refused
    if "error" in document:
        assert f"--limit {setting.partition('=')[0]}=" in document["error"]["hint"]
    code, document = told(command, source, setting)
    assert (code, document["ok"]) == (0, True), document
    assert holds(document["data"])


LOWERED = [
    ("info", "ome-zarr/v3-zip/*", "MAX_ZIP_ENTRIES=2", 4),
    ("info", "ome-zarr/v3-labels/*.zarr", "MAX_IMAGES=1", 0),
    ("info", "ome-zarr/ome-zarr-py-0.5/*.zarr", "MAX_JSON_CONTAINERS=3", 4),
    ("check --planes", "ome-zarr/ome-zarr-py-0.5/*.zarr", "MAX_ENCODED_BYTES=20", 4),
    ("check --planes", "ome-zarr/ome-zarr-py-0.5/*.zarr", "MAX_CHUNK_BYTES=20", 4),
    ("check --planes", "ome-zarr/ome-zarr-py-0.5/*.zarr", "MAX_ROW_BYTES=20", 6),
    ("preview", "ome-zarr/v2-blosc-channels/*.zarr", "MAX_PICTURE_CHUNKS=1", 2),
    ("export", "ome-zarr/v2-blosc-channels/*.zarr", "MAX_CHANNELS=1", 6),
    ("info", "ome-tiff/pyramid/*.tiff", "MAX_PLANES=1", 0),
    ("info", "ome-tiff/two-images/*.tiff", "MAX_IFDS=1", 0),
    ("info", "ome-tiff/pyramid/*.tiff", "MAX_TAG_BYTES=1", 4),
    ("info", "ome-tiff/pyramid/*.tiff", "MAX_XML_BYTES=100", 0),
    ("info", "ome-tiff/rgb-interleaved/*.tiff", "MAX_SAMPLES=2", 4),
    ("info", "n5/z5py-viewer-pyramid/*.n5", "MAX_NODES=1", 4),
    ("check --planes", "n5/z5py-viewer-pyramid/*.n5", "MAX_CHUNK_BYTES=20", 4),
]


@pytest.mark.parametrize(("command", "pattern", "setting", "code"), LOWERED)
def test_a_lowered_limit_acts_where_it_is_used(told, fixtures, command, pattern, setting, code):
    (source,) = (path for path in fixtures.glob(pattern) if path.suffix not in (".md", ".json"))
    assert told(command, source)[0] == 0
    before = told("info", source)[1]
    found, document = told(command, source, setting)
    assert found == code
    if code == 0:  # described from something else, which the notes tell
        assert document["data"]["notes"] != before["data"]["notes"]


@pytest.mark.parametrize("command", ["info", "check --planes", "export"])
@pytest.mark.parametrize("name", sorted(limits.RANGES))
def test_the_least_value_of_every_limit_ends_with_an_exit_code(told, fixtures, command, name):
    for source in ("ome-zarr/v3-sharded/sharded.ome.zarr", "ome-tiff/pyramid/cells.ome.tiff"):
        code, document = told(command, fixtures / source, f"{name}={limits.RANGES[name][0]}")
        assert code in (0, 4, 6), document


# -- other processes -------------------------------------------------------------------------------


def test_a_pickled_image_takes_its_limits_along(tmp_path):
    source = many_levels(tmp_path / "in")
    openreadout.set_limits(MAX_LEVELS=70)
    with openreadout.open(source) as dataset:
        data = pickle.dumps(dataset.images[0])
    code = (
        "import pickle, sys\n"
        "image = pickle.loads(sys.stdin.buffer.read())\n"
        "print(len(image.levels), int(image.read_plane().sum()))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert done.stdout.split() == [b"70", b"2016"]  # 0 + 1 + … + 63
    limits.restore({"MAX_LEVELS": 65})
    with pytest.raises(openreadout.CorruptDataError, match="70 entries, more than 65"):
        pickle.loads(data)  # what was set here counts


def test_a_task_of_a_cluster_has_the_limits_of_its_export():
    from openreadout.operations.cells import Job, attempt

    def look(job, task):
        return limits.changed()

    given = {"MAX_LEVELS": 70}
    job = Job("token", "in", "out", "permit", None, "plan", limits=given)
    limits.restore({"MAX_LEVELS": 3, "MAX_IMAGES": 5})  # those of the export before
    assert attempt(look, job, None) == given
