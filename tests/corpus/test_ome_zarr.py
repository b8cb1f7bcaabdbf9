"""OME-Zarr of the corpus and of the cases: every image, plane, array and metadata document against other readers."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from zarr.core.chunk_key_encodings import parse_chunk_key_encoding
from zarr.core.dtype import get_data_type_from_json

from openreadout.arrays import read_region
from openreadout.codecs import ITEM_BYTES, CodecChain
from openreadout.errors import CorruptDataError, OpenReadoutError, UnsupportedFeatureError
from openreadout.registry import find_codec, make_source, open_dataset
from openreadout.stores import DirectoryStore
from openreadout.units import length_um
from openreadout.zips import ZipStore
from openreadout_ome_zarr import READER
from openreadout_ome_zarr.arrays import open_array, parse_v2, parse_v3
from openreadout_ome_zarr.ngff import parse_multiscales
from openreadout_ome_zarr.rules import broken_rules, crossed_indices, unmet_advice

pytestmark = pytest.mark.corpus

SHARED = Path(__file__).resolve().parents[3] / "shared"
CORPUS = SHARED / "corpus"
CASES = SHARED / "cases"
KINDS = ("layout", "ngff", "zip", "collections", "channels", "dtype", "limits")
MAX_SAMPLES = 1 << 25
"""Samples of the largest array that is read whole."""
OTHER_CODECS = {
    "real-zarrs-v2-pcodec-c",
    "real-zarrs-v3-zfpy",
    "imagecodecs-jpeg-v3",
}
"""Arrays under codecs outside the program's list."""


def _manifest() -> list[dict]:
    file = CORPUS / "manifest.json"
    if not file.is_file():
        return []
    found = json.loads(file.read_text(encoding="utf-8"))
    return found if isinstance(found, list) else found["cases"]


ENTRIES = {entry["id"]: entry for entry in _manifest()}
IMAGES = [pytest.param(e, id=k) for k, e in ENTRIES.items() if e["kind"] == "ome-zarr"]
ARRAYS = [
    pytest.param(e, a, id=f"{k}-{a['path']}")
    for k, e in ENTRIES.items()
    if e["kind"] in ("ome-zarr", "zarr-array")
    for a in e["expect"].get("arrays", [])
    if "sha256" in a and "in doubt" not in str(a.get("note", ""))
]


def _sha256(block: np.ndarray) -> str:
    little = block.astype(block.dtype.newbyteorder("<"), copy=False)
    return hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest()


def _plane(image, level: int, t: int, c: int, z: int) -> np.ndarray:
    array = image.levels[level].array
    place = {"t": t, "c": c, "z": z}
    region = tuple(
        (place[axis], place[axis] + 1) if axis in place else (0, size)
        for axis, size in zip(image.axis_names, array.shape, strict=True)
    )
    block = read_region(array, region)
    return block.reshape(block.shape[-2:])


def _by_group(dataset) -> dict:
    return {image.extra["group"].strip("/"): image for image in dataset.images}


def test_corpus_is_there(corpus):
    assert corpus == CORPUS
    assert len(IMAGES) >= 60
    assert len(ARRAYS) >= 350


# -- images ------------------------------


@pytest.mark.parametrize("entry", IMAGES)
def test_image_facts(entry):
    expected = entry["expect"]["images"]
    with open_dataset(str(CORPUS / entry["path"])) as dataset:
        found = _by_group(dataset)
        assert sorted(found) == sorted(image["path"] for image in expected)
        for want in expected:
            _check_image(want, found[want["path"]])
        plate = entry["expect"].get("plate")
        if plate is not None:
            assert dataset.plate is not None
            assert [well.path for well in dataset.plate.wells if well.images] == [
                path
                for path in plate["wells"]
                if any(i["path"].startswith(f"{path}/") for i in expected)
            ]
        assert not [f for f in dataset.findings if f.severity == "error"]
        assert not [f for f in dataset.inspect(True) if f.severity == "error"]


def _check_image(want: dict, image) -> None:
    for axis in "xyzct":
        if f"size_{axis}" in want:
            assert image.size(axis) == want[f"size_{axis}"]
    assert image.dtype == want["dtype"]
    assert image.label == bool(want.get("label"))
    names = [axis.lower() for axis in want["axes"] or []]
    for n, shape in enumerate(want["levels"] if names else ()):
        for axis, size in zip(names, shape, strict=True):
            if axis in "xyzct":
                assert image.size(axis, n) == size
    for axis, quantity in (want.get("physical_size") or {}).items():
        factor = length_um(quantity["unit"])
        if factor is not None and quantity["value"]:
            assert image.physical_size[axis] == pytest.approx(quantity["value"] * factor)
    if want.get("channel_names"):
        known = [channel.name for channel in image.channels]
        assert known == [None if name is None else str(name) for name in want["channel_names"]]


@pytest.mark.parametrize("entry", IMAGES)
def test_planes_have_the_digests_of_other_readers(entry):
    with open_dataset(str(CORPUS / entry["path"])) as dataset:
        found = _by_group(dataset)
        for want in entry["expect"]["images"]:
            for where, digest in (want.get("plane_sha256") or {}).items():
                assert (
                    _sha256(_plane(found[want["path"]], *map(int, where.split("/")))) == digest
                ), where


# -- arrays ------------------------------


def _store(entry: dict):
    path = CORPUS / entry["path"]
    if path.is_dir():
        return DirectoryStore(str(path))
    return ZipStore(str(path))


@pytest.mark.parametrize(("entry", "want"), ARRAYS)
def test_whole_arrays_have_the_digests_of_other_readers(entry, want):
    if np.prod(want["shape"], dtype=object) > MAX_SAMPLES:
        pytest.skip("too large to be read whole in a test")
    store = _store(entry)
    try:
        array = open_array(store, want["path"], find_codec)
        assert array.shape == tuple(want["shape"])
        if entry["id"] in OTHER_CODECS:
            with pytest.raises(UnsupportedFeatureError):
                array.read_chunk((0,) * len(array.shape))
            return
        assert array.dtype == want["dtype"]
        if "expected_pixels" in entry["expect"]:
            pytest.skip("lossy; decoders differ by a grey level")
        assert _sha256(read_region(array, tuple((0, n) for n in array.shape))) == want["sha256"]
    finally:
        store.close()


@pytest.mark.parametrize(
    "entry", [pytest.param(e, id=k) for k, e in ENTRIES.items() if e["kind"] == "zarr-array"]
)
def test_arrays_without_image_metadata_are_refused(entry):
    with pytest.raises(OpenReadoutError) as caught:
        open_dataset(str(CORPUS / entry["path"])).close()
    assert caught.value.exit_code in (3, 6)


# -- damage ------------------------------


@pytest.mark.parametrize("name", ["bad-zarr2-json", "bad-zarr2-no-level", "bad-zip-truncated"])
def test_damaged_stores_give_our_errors_or_findings(name):
    if name not in ENTRIES:
        pytest.skip("not in this corpus")
    entry = ENTRIES[name]
    try:
        dataset = open_dataset(str(CORPUS / entry["path"]))
    except CorruptDataError:
        assert 4 in entry["expect"]["exit_info"]
        return
    with dataset:
        assert [f for f in dataset.findings if f.severity == "error"]


def test_plate_that_is_broken_in_many_ways_opens_what_is_whole():
    entry = ENTRIES.get("real-yaozarrs-broken-0_5")
    if entry is None:
        pytest.skip("not in this corpus")
    with open_dataset(str(CORPUS / entry["path"])) as dataset:
        found = _by_group(dataset)
        for want in entry["expect"]["images"]:
            image = found.get(want["path"])
            if (
                image is not None
                and want.get("size_x")
                and len(want["axes"] or []) == len(want["levels"][0])
            ):
                assert (image.size("x"), image.size("y")) == (want["size_x"], want["size_y"])
        assert len(found) >= 5
        assert [f for f in dataset.findings if f.severity == "error"]
        assert list(dataset.inspect(True))
        assert dataset.structure()["kind"] == "plate"


@pytest.mark.parametrize("name", ["real-zip-failure", "real-zip-notzarr"])
def test_zip_files_without_zarr_are_not_ours(name):
    if name not in ENTRIES:
        pytest.skip("not in this corpus")
    for file in sorted((CORPUS / ENTRIES[name]["path"]).iterdir()):
        try:
            assert READER.detect(make_source(str(file))) is None
        except CorruptDataError:  # an empty file
            assert file.stat().st_size == 0


# -- metadata documents ------------------------------


def _suites() -> list:
    found = []
    for name, entry in ENTRIES.items():
        if entry["kind"] == "metadata-json" and "verdicts" in entry["expect"]:
            tests = json.loads((CORPUS / entry["path"]).read_text(encoding="utf-8"))["tests"]
            for verdict in entry["expect"]["verdicts"]:
                test = tests[verdict["index"]]
                found.append(
                    pytest.param(
                        name, test["data"], verdict["valid"], id=f"{name}-{verdict['index']}"
                    )
                )
    return found


@pytest.mark.parametrize(("name", "document", "valid"), _suites())
def test_specification_suites(name, document, valid):
    ngff = document.get("ome", document)
    faults = broken_rules(ngff)
    if "strict" in name:
        faults += unmet_advice(ngff)
    if name == "real-ngff-0_5-plate":
        faults += crossed_indices(ngff)
    if not any(key in ngff for key in ("multiscales", "plate", "well", "image-label")):
        faults.append("no image metadata")
    assert bool(faults) is not valid
    if valid and "multiscales" in ngff:
        assert parse_multiscales(ngff)


def _documents(*names: str) -> list:
    return [
        pytest.param(
            CORPUS / ENTRIES[name]["path"] / item["file"], item, id=f"{name}-{item['file']}"
        )
        for name in names
        if name in ENTRIES
        for item in ENTRIES[name]["expect"]["documents"]
    ]


@pytest.mark.parametrize(
    ("file", "item"),
    _documents(
        "real-ngff-0_1-examples", "real-ngff-0_4-spec-examples", "real-ngff-0_5-spec-examples", "real-iohub-0_5",
        "real-models-v04", "real-models-v05",
    ),
)  # fmt: skip
def test_ngff_documents(file, item):
    text = re.sub(r"^\s*//.*$|\s//.*$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    document = json.loads(text)
    attributes = document.get("attributes", document)
    ngff = attributes.get("ome", attributes)
    faults = broken_rules(ngff)
    if item.get("valid", True) is False:
        assert faults
        return
    if "multiscales" in ngff:
        assert parse_multiscales(ngff)[0].datasets
    if not ("0_1" in str(file) and "multiscales" in ngff):  # 0.1 had neither axes nor scales
        assert faults == []


@pytest.mark.parametrize(("file", "item"), _documents("real-zarr-metadata"))
def test_zarr_documents(file, item):
    document = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or "shape" not in document:
        pytest.skip("not the document of an array")
    parse = parse_v2 if document.get("zarr_format") == 2 else parse_v3
    if "rectilinear" in file.name:
        with pytest.raises(UnsupportedFeatureError, match="rectilinear"):
            parse(document)
    else:
        assert parse(document).shape == tuple(document["shape"])


PLAIN = {
    "zarr_format": 3, "node_type": "array", "shape": [4, 6, 8], "data_type": "uint8", "fill_value": 0,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3, 4]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
}  # fmt: skip


def _fragments(name: str) -> list:
    """Parts of documents, each with the folder that says what it is."""
    files = [param.values[0] for param in _documents("real-zarr-metadata")]
    return [
        pytest.param(file.parent, value, id=f"{file.parent.parent.name}-{file.parent.name}-{key}")
        for file in files
        if file.name == name
        for key, value in json.loads(file.read_text(encoding="utf-8")).items()
    ]


@pytest.mark.parametrize(("folder", "value"), _fragments("fill_values.json"))
def test_zarr_fill_values(folder, value):
    found = parse_v3(PLAIN | {"data_type": folder.name, "fill_value": value})
    if found.dtype.name not in ITEM_BYTES:
        assert folder.name in ("numpy_datetime64", "numpy_timedelta64", "raw", "struct")
        return
    theirs = get_data_type_from_json(folder.name, zarr_format=3)
    wanted = np.asarray(theirs.from_json_scalar(value, zarr_format=3))
    assert np.array_equal(np.asarray(found.fill_value, wanted.dtype), wanted, equal_nan=True)


@pytest.mark.parametrize(("folder", "value"), _fragments("cases.json"))
def test_zarr_codecs_and_keys(folder, value):
    kind, name = folder.parent.name, folder.name
    if kind == "chunk_grid":
        with pytest.raises(UnsupportedFeatureError, match=name):
            parse_v3(PLAIN | {"chunk_grid": value})
    elif kind == "chunk_key_encoding":
        theirs = parse_chunk_key_encoding({"name": value} if isinstance(value, str) else value)
        found = parse_v3(PLAIN | {"chunk_key_encoding": value})
        assert found.keys.key((1, 2, 3)) == theirs.encode_chunk_key((1, 2, 3))
    else:
        before = () if name in ("bytes", "gzip", "zstd") else (value,)
        after = (value,) if name in ("gzip", "zstd") else ()
        bytes_codec = (value,) if name == "bytes" else tuple(PLAIN["codecs"])
        found = parse_v3(PLAIN | {"codecs": [*before, *bytes_codec, *after]})
        if name in ("cast_value", "scale_offset"):
            with pytest.raises(UnsupportedFeatureError, match=name):
                CodecChain.build(found.codecs, find_codec)
        else:
            CodecChain.build(found.codecs, find_codec)


@pytest.mark.parametrize(
    "entry", [pytest.param(e, id=k) for k, e in ENTRIES.items() if k.startswith("real-public-")]
)
def test_groups_without_their_arrays_are_corrupt_and_say_so(entry):
    with pytest.raises((CorruptDataError, UnsupportedFeatureError)) as caught:
        open_dataset(str(CORPUS / entry["path"]))
    assert str(caught.value)
    assert caught.value.hint


# -- cases ------------------------------


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> Path:
    if not (CASES / "make_cases.py").is_file():
        pytest.skip(f"the cases are not beside the checkout ({CASES})")
    target = tmp_path_factory.mktemp("cases")
    command = [sys.executable, str(CASES / "make_cases.py"), str(target)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return target


def _case_list() -> list:
    file = CASES / "cases.json"
    listed = json.loads(file.read_text(encoding="utf-8"))["cases"] if file.is_file() else []
    return [
        pytest.param(c, id=c["id"])
        for c in listed
        if c["kind"] in KINDS and "tiff" not in c["path"]
    ]


@pytest.mark.parametrize("case", _case_list())
def test_case(cases, case):
    if 0 not in case["exit"]["info"]:
        with pytest.raises(OpenReadoutError) as caught:
            open_dataset(str(cases / case["path"]))
        assert caught.value.exit_code in case["exit"]["info"]
        return
    if case["id"] == "path-climbs":
        with pytest.raises(CorruptDataError, match="leads out of the data set"):
            open_dataset(str(cases / case["path"]))
        return
    with open_dataset(str(cases / case["path"])) as dataset:
        wanted = [*case.get("images", []), *case.get("labels", [])]
        if wanted:
            assert len(dataset.images) == len(wanted)
        for want, image in zip(wanted, dataset.images, strict=False):
            _check_case_image(want, image)
        told = {finding.code for finding in dataset.findings}
        later = {"missing_chunks", "unsupported_dtype"}  # found when arrays are looked at
        assert set(case.get("findings", ())) - later <= told
        if case.get("unmapped_axes"):
            assert dataset.images[0].extra["unmapped_axes"] == case["unmapped_axes"]


def _check_case_image(want: dict, image) -> None:
    assert {axis: image.size(axis) for axis in want["size"]} == want["size"]
    assert image.dtype == want["dtype"]
    assert image.pixel_type == want["pixel_type"]
    if "name" in want:
        assert image.name == want["name"]
    if "path" in want:
        assert image.extra["group"] == want["path"]
    if "channels" in want:
        assert [channel.name for channel in image.channels] == want["channels"]
        colors = [channel.color and channel.color.removeprefix("#") for channel in image.channels]
        assert colors == want["colors"]
    for axis, value in want.get("translation", {}).items():
        assert image.levels[0].translation[image.axis_names.index(axis)] == value
    for plane in want.get("planes", ()):
        block = _plane(image, 0, plane["t"], plane["c"], plane["z"])
        widened = {"bool": "uint8", "float16": "float32"}.get(image.dtype)
        assert _sha256(block.astype(widened) if widened else block) == plane["sha256"]
