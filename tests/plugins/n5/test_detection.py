"""What is recognised as N5, how surely, and from which paths a container opens."""

from __future__ import annotations

import json
import os

import pytest

from openreadout.contracts import DEFINITE, LIKELY
from openreadout.errors import CorruptDataError, StorageError
from openreadout.registry import make_source, open_context
from openreadout_n5 import READER

DATASET = {
    "dimensions": [6, 5],
    "blockSize": [4, 4],
    "dataType": "uint8",
    "compression": {"type": "raw"},
}


def _write(folder, attributes):
    folder.mkdir(parents=True, exist_ok=True)
    text = attributes if isinstance(attributes, str) else json.dumps(attributes)
    (folder / "attributes.json").write_text(text)


def _confidence(path):
    said = READER.detect(make_source(str(path)))
    return None if said is None else said.confidence


def _open(path):
    return READER.open(make_source(str(path)), open_context())


def test_container_and_dataset_are_definite(tmp_path):
    _write(tmp_path / "c", {"n5": "2.0.0"})
    _write(tmp_path / "d", DATASET)
    assert _confidence(tmp_path / "c") == DEFINITE
    assert _confidence(tmp_path / "d") == DEFINITE


def test_dataset_with_more_blocks_than_are_listed_is_definite(tmp_path):
    _write(tmp_path / "d", {**DATASET, "dimensions": [20_000, 5]})
    for n in range(4200):
        (tmp_path / "d" / str(n)).mkdir()
    assert _confidence(tmp_path / "d") == DEFINITE


def test_folder_whose_datasets_lie_below_is_likely(tmp_path):
    _write(tmp_path / "c/a/b/data", DATASET)
    assert _confidence(tmp_path / "c") == LIKELY


@pytest.mark.parametrize(
    "attributes", ["[]", "{}", '{"a": 1}', "nonsense", "", "[" * 100_000, '{"dimensions": [1]}']
)
def test_other_attributes_are_not_n5_for_sure(tmp_path, attributes):
    _write(tmp_path / "c", attributes)
    assert _confidence(tmp_path / "c") != DEFINITE


def test_folder_of_anything_else_is_not_n5(tmp_path):
    (tmp_path / "pictures/2020").mkdir(parents=True)
    (tmp_path / "pictures/2020/a.txt").write_text("a")
    assert _confidence(tmp_path / "pictures") is None


def test_folder_that_holds_whole_containers_is_not_one(tmp_path):
    for name in ("a.n5", "b.n5"):
        _write(tmp_path / "many" / name, {"n5": "2.0.0"})
        _write(tmp_path / "many" / name / "data", DATASET)
    assert _confidence(tmp_path / "many") is None


def test_detection_looks_at_a_bounded_number_of_folders(tmp_path, monkeypatch):
    for n in range(600):
        (tmp_path / f"c/{n}/{n}").mkdir(parents=True)
    looked = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looked.append(path) or real(path))
    assert _confidence(tmp_path / "c") is None
    assert len(looked) < 600


@pytest.mark.parametrize(
    ("inside", "groups"),
    [
        ("", ["a/b", "a/c"]),
        ("attributes.json", ["a/b", "a/c"]),
        ("a", ["b", "c"]),
        ("a/b", ["/"]),
        ("a/b/attributes.json", ["/"]),
    ],
)
def test_container_opens_by_its_folder_its_attributes_a_group_or_a_dataset(
    tmp_path, inside, groups
):
    _write(tmp_path / "c.n5", {"n5": "2.0.0"})
    _write(tmp_path / "c.n5/a/b", DATASET)
    _write(tmp_path / "c.n5/a/c", DATASET)
    path = tmp_path / "c.n5" / inside
    assert _confidence(path) is not None
    assert [image.extra["group"] for image in _open(path).images] == groups


def test_attributes_of_a_group_that_is_no_dataset_open_it(tmp_path):
    _write(tmp_path / "c.n5/g", {"mine": 1})
    _write(tmp_path / "c.n5/g/a", DATASET)
    path = tmp_path / "c.n5/g/attributes.json"
    assert _confidence(path) == LIKELY
    assert [image.extra["group"] for image in _open(path).images] == ["a"]


def test_attributes_beside_nothing_of_n5_are_not_n5(tmp_path):
    _write(tmp_path / "web", {"mine": 1})
    assert _confidence(tmp_path / "web/attributes.json") is None


@pytest.mark.parametrize(
    ("name", "text"), [(".zarray", "{}"), ("zarr.json", '{"node_type": "array"}')]
)
def test_folders_of_a_zarr_array_inside_are_not_walked(tmp_path, name, text):
    _write(tmp_path / "c.n5", {"n5": "2.0.0"})
    _write(tmp_path / "c.n5/a", DATASET)
    _write(tmp_path / "c.n5/z/0/0", DATASET)
    (tmp_path / "c.n5/z" / name).write_text(text)
    assert [image.extra["group"] for image in _open(tmp_path / "c.n5").images] == ["a"]


def test_zarr_group_inside_is_walked_and_noted_at_the_root(tmp_path):
    _write(tmp_path / "c.n5", {"n5": "2.0.0"})
    _write(tmp_path / "c.n5/a/b", DATASET)
    for folder in ("c.n5", "c.n5/a"):
        (tmp_path / folder / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    dataset = _open(tmp_path / "c.n5")
    assert [image.extra["group"] for image in dataset.images] == ["a/b"]
    assert any("Zarr" in note for note in dataset.notes)


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        ("4.0.0", "4.0.0 (N5, directory store)"),
        ("1.5.0", "1.5.0 (N5, directory store)"),
        (None, "N5 (no version stated, directory store)"),
        (17, "N5 (version not readable, directory store)"),
        ("9.1", "9.1 (N5, directory store)"),
    ],
)
def test_version_is_told(tmp_path, version, shown):
    _write(tmp_path, {**DATASET, **({} if version is None else {"n5": version})})
    dataset = _open(tmp_path)
    assert dataset.format_version == shown
    assert bool(dataset.findings) == (version in (17, "9.1"))


def test_images_come_in_natural_order_of_path(tmp_path):
    names = ["s10/x", "s2/x", "a", "B/x", "s1/x"]
    for name in names:
        _write(tmp_path / "c" / name, DATASET)
    groups = [image.extra["group"] for image in _open(tmp_path / "c").images]
    assert groups == ["B/x", "a", "s1/x", "s2/x", "s10/x"]


@pytest.mark.parametrize("broken", ["{", "[1]", '"text"', "", "{\xff"])
def test_broken_group_attributes_are_a_finding_and_its_datasets_are_read(tmp_path, broken):
    _write(tmp_path / "c.n5", broken)
    _write(tmp_path / "c.n5/a", DATASET)
    dataset = _open(tmp_path / "c.n5")
    assert [image.extra["group"] for image in dataset.images] == ["a"]
    assert [(f.code, f.severity, f.location) for f in dataset.findings] == [
        ("array_metadata", "error", "attributes.json")
    ]


def test_nothing_readable_is_corrupt_and_names_the_key(tmp_path):
    _write(tmp_path / "c.n5", {"n5": "2.0.0"})
    _write(tmp_path / "c.n5/a", "{")
    with pytest.raises(CorruptDataError) as caught:
        _open(tmp_path / "c.n5")
    assert caught.value.where == "a/attributes.json"


def test_container_without_a_dataset_is_corrupt(tmp_path):
    _write(tmp_path / "c.n5", {"n5": "2.0.0"})
    with pytest.raises(CorruptDataError, match="no dataset"):
        _open(tmp_path / "c.n5")


def test_folder_in_place_of_attributes_is_a_finding(tmp_path):
    _write(tmp_path / "c.n5", {"n5": "2.0.0"})
    _write(tmp_path / "c.n5/a", DATASET)
    (tmp_path / "c.n5/b/attributes.json").mkdir(parents=True)
    dataset = _open(tmp_path / "c.n5")
    assert [f.location for f in dataset.findings] == ["b/attributes.json"]


def test_link_to_a_folder_above_is_not_followed(tmp_path):
    _write(tmp_path / "c.n5", {"n5": "2.0.0"})
    _write(tmp_path / "c.n5/a/b", DATASET)
    (tmp_path / "c.n5/a/again").symlink_to(tmp_path / "c.n5", target_is_directory=True)
    assert [image.extra["group"] for image in _open(tmp_path / "c.n5").images] == ["a/b"]


def test_deep_groups_end(tmp_path):
    _write(tmp_path / "c.n5", {"n5": "2.0.0"})
    _write(tmp_path / "c.n5/top", DATASET)
    _write(tmp_path / "c.n5" / "/".join(["g"] * 60), DATASET)
    dataset = _open(tmp_path / "c.n5")
    assert [image.extra["group"] for image in dataset.images] == ["top"]
    assert any("deeper" in f.message for f in dataset.findings)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_folder_that_may_not_be_read_is_an_io_error(tmp_path):
    _write(tmp_path / "c.n5", {"n5": "2.0.0"})
    (tmp_path / "c.n5/a").mkdir()
    (tmp_path / "c.n5/a").chmod(0)
    try:
        with pytest.raises(StorageError):
            _open(tmp_path / "c.n5")
    finally:
        (tmp_path / "c.n5/a").chmod(0o755)


def test_info_loads_neither_numpy_nor_zarr_nor_lxml(tmp_path, openreadout):
    import subprocess
    import sys

    _write(tmp_path / "c.n5", {"n5": "2.0.0"})
    _write(tmp_path / "c.n5/a", DATASET)
    code = (
        "import sys; from openreadout.registry import open_dataset; "
        f"open_dataset({str(tmp_path / 'c.n5')!r}); "
        "print([m for m in ('numpy', 'zarr', 'imagecodecs', 'lxml', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_structure_is_a_tree_of_groups_and_arrays(tmp_path):
    _write(tmp_path / "c.n5", {"n5": "2.0.0"})
    _write(tmp_path / "c.n5/g/s0", {**DATASET, "downsamplingFactors": [1, 1]})
    _write(tmp_path / "c.n5/h", "{")
    tree = _open(tmp_path / "c.n5").structure()
    json.dumps(tree)
    assert (tree["kind"], tree["path"], tree["attributes"]) == ("group", "/", ["n5"])
    image, damaged = tree["children"]
    assert (image["kind"], image["path"]) == ("image", "g")
    assert (damaged["kind"], damaged["path"]) == ("damaged", "h")
    (array,) = image["children"]
    assert (array["kind"], array["path"], array["shape"], array["chunk"]) == (
        "array", "g/s0", [5, 6], [4, 4],
    )  # fmt: skip
