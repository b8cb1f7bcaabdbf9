"""Metadata of OME-Zarr 0.5 beside that of N5 and Zarr v2: other libraries read it, and it comes off without a trace."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorstore
import zarr

from openreadout import registry
from openreadout.errors import (
    OpenReadoutError,
    UnsupportedFeatureError,
    UsageError,
    VerificationError,
)
from openreadout.operations.in_place import InPlaceOptions, lift_in_place
from openreadout.planes import Selection, digest_planes
from openreadout.workers import Workers
from openreadout_ome_zarr_writer.lift import OmeZarrLift

# zarr-python says of its own numcodecs codecs that no specification has them.
pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")
N5_CASES = [
    "z5py-cosem-pyramid/cosem.n5",
    "z5py-viewer-pyramid/pyramid.n5",
    "z5py-codecs/codecs.n5",
    "z5py-types/types.n5",
    "z5py-missing-blocks/sparse.n5",
]
V2_CASES = [
    "ome-zarr-py-0.4/image.ome.zarr",
    "v2-blosc-channels/cells.ome.zarr",
    "v2-fortran-big-endian/volume.zarr",
    "v2-gzip-raw/plain.zarr",
]


def tree(folder):
    """Every file with its bytes, and every folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in Path(folder).rglob("*")
    }


def copied(source, target):
    shutil.copytree(source, target)
    return target


def lift(path, **options):
    with Workers(2) as workers:
        return lift_in_place(str(path), InPlaceOptions(**options), workers)


def added_arrays(path, report):
    for key in report.files_added:
        document = json.loads((path / key).read_text(encoding="utf-8"))
        if document["node_type"] == "array":
            yield (path / key).parent


def digests(dataset):
    with Workers(1) as workers:
        return [
            [
                plane.digest
                for plane in digest_planes(
                    image, level, Selection(), "xxh3", workers, lambda *a: None
                )
            ]
            for image in dataset.images
            for level in range(len(image.levels))
        ]


def tensorstore_array(driver, path):
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}}
    return tensorstore.open(spec, read=True).result().read().result()


# -- pixels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", N5_CASES)
def test_zarr_reads_of_n5_what_z5py_reads(case, fixtures, tmp_path):
    z5py = pytest.importorskip("z5py", reason="z5py has no build for this Python")
    path = copied(fixtures / "n5" / case, tmp_path / "data.n5")
    report = lift(path)
    assert report.verified
    # z5py opens no folder that holds documents of both, so it reads the container as it was.
    theirs = z5py.File(str(fixtures / "n5" / case), mode="r", use_zarr_format=False)
    seen = 0
    for folder in added_arrays(path, report):
        ours = zarr.open_array(folder, mode="r", zarr_format=3)
        assert ours.metadata.codecs[0].to_dict()["name"] == "n5_default"
        # z5py turns N5's order round, zarr shows it as it is.
        np.testing.assert_array_equal(ours[...].T, theirs[str(folder.relative_to(path))][...])
        seen += 1
    assert seen


@pytest.mark.parametrize("case", V2_CASES)
def test_zarr_and_tensorstore_read_of_v2_what_they_read_before(case, fixtures, tmp_path):
    path = copied(fixtures / "ome-zarr" / case, tmp_path / "data.zarr")
    before = {
        folder.parent: zarr.open_array(folder.parent, mode="r", zarr_format=2)[...]
        for folder in path.rglob(".zarray")
    }
    report = lift(path)
    assert set(added_arrays(path, report)) == set(before)
    for folder, wanted in before.items():
        array = zarr.open_array(folder, mode="r", zarr_format=3)
        np.testing.assert_array_equal(array[...], wanted)
        np.testing.assert_array_equal(tensorstore_array("zarr3", folder), wanted)


@pytest.mark.parametrize(
    "case", [*(f"n5/{c}" for c in N5_CASES), *(f"ome-zarr/{c}" for c in V2_CASES)]
)
def test_it_reads_as_ome_zarr_with_the_same_planes_and_facts(case, fixtures, tmp_path, openreadout):
    path = copied(fixtures / case, tmp_path / "data")
    with registry.open_dataset(str(path)) as dataset:
        before = digests(dataset)
    lift(path)
    with registry.open_dataset(str(path)) as dataset:
        assert (dataset.format_id, dataset.format_version[:3]) == ("ome-zarr", "0.5")
        assert sorted(digests(dataset)) == sorted(before)
    assert openreadout("check", "--full", path).returncode == 0
    if (
        len(before) < 4
    ):  # containers of many images come in the order of their names, which differs from N5's
        assert openreadout("check", path, "--against", fixtures / case).returncode == 0


@pytest.mark.parametrize("filters", [
    [{"id": "delta", "dtype": "<u2"}],
    [{"id": "delta", "dtype": "<u2", "astype": "<i4"}],
    [{"id": "fixedscaleoffset", "dtype": "<u2", "astype": "|u1", "scale": 1, "offset": 0}],
    [{"id": "shuffle", "elementsize": 2}],
    [{"id": "crc32"}],
])  # fmt: skip
@pytest.mark.parametrize("compressor", [None, {"id": "zlib", "level": 3}, {"id": "lz4"}])
def test_filters_of_v2_are_placed_where_zarr_has_them_in_v3(filters, compressor, tmp_path):
    import numcodecs

    path = tmp_path / "image.zarr"
    data = np.arange(60, dtype="<u2").reshape(1, 1, 3, 4, 5)
    built = [numcodecs.get_codec(dict(item)) for item in filters]
    packed = None if compressor is None else numcodecs.get_codec(dict(compressor))
    group = zarr.create_group(path, zarr_format=2)
    array = group.create_array(
        "0",
        shape=data.shape,
        chunks=(1, 1, 2, 4, 5),
        dtype="<u2",
        filters=built,
        compressors=packed,
    )
    array[...] = data
    group.attrs["multiscales"] = [{"version": "0.1", "datasets": [{"path": "0"}]}]
    lift(path)
    again = zarr.open_array(path / "0", mode="r", zarr_format=3)
    np.testing.assert_array_equal(again[...], data)


# -- metadata --------------------------------------------------------------------------------------


def test_axes_of_n5_follow_its_order_and_the_names_of_the_dimensions_are_theirs(fixtures, tmp_path):
    path = copied(fixtures / "n5" / N5_CASES[0], tmp_path / "cosem.n5")
    lift(path)
    wanted = json.loads((path / "em" / "attributes.json").read_text(encoding="utf-8"))
    transform = wanted["multiscales"][0]["datasets"][0]["transform"]
    attributes = zarr.open_group(path / "em", mode="r", zarr_format=3).attrs.asdict()
    (entry,) = attributes["ome"]["multiscales"]
    assert [axis["name"] for axis in entry["axes"]] == transform["axes"][::-1]
    (scale, *_) = entry["datasets"][0]["coordinateTransformations"]
    assert scale["scale"] == transform["scale"][::-1]
    array = zarr.open_array(path / "em" / "s0", mode="r", zarr_format=3)
    assert list(array.metadata.dimension_names) == transform["axes"][::-1]
    assert attributes["n5"]["multiscales"] == wanted["multiscales"]


def test_a_plate_of_old_ngff_becomes_one_of_0_5(tmp_path):
    yaozarrs = pytest.importorskip("yaozarrs", reason="the validator yaozarrs is not installed")
    path = tmp_path / "plate.zarr"
    root = zarr.create_group(path, zarr_format=2)
    root.attrs["plate"] = {
        "version": "0.2", "name": "p", "rows": [{"name": "A"}, {"name": "B"}], "columns": [{"name": "1"}],
        "wells": [{"path": "B/1"}], "field_count": 1, "acquisitions": [{"id": 0}],
    }  # fmt: skip
    root.require_group("B")
    well = root.require_group("B/1")
    well.attrs["well"] = {"version": "0.2", "images": [{"path": "0", "acquisition": 0}]}
    field = root.require_group("B/1/0")
    field.attrs["multiscales"] = [{"version": "0.2", "name": "f", "datasets": [{"path": "0"}]}]
    field.attrs["kept"] = {"mine": [1, 2.5]}
    array = field.create_array("0", shape=(1, 1, 1, 4, 5), chunks=(1, 1, 1, 4, 5), dtype="u1")
    array[...] = 7
    lift(path)
    plate = zarr.open_group(path, mode="r", zarr_format=3).attrs["ome"]
    assert plate["plate"]["wells"] == [{"path": "B/1", "rowIndex": 1, "columnIndex": 0}]
    assert (plate["version"], "version" in plate["plate"]) == ("0.5", False)
    assert zarr.open_group(path / "B/1/0", mode="r", zarr_format=3).attrs["kept"] == {
        "mine": [1, 2.5]
    }
    yaozarrs.validate_zarr_store(str(path))
    with registry.open_dataset(str(path)) as dataset:
        assert dataset.plate.wells[0].images == (0,)
        assert dataset.images[0].axis_names == "tczyx"


@pytest.mark.corpus
@pytest.mark.parametrize("case", [
    "omezarr-0_1-5d", "omezarr-0_2-plate", "omezarr-0_3-5d", "omezarr-0_4-labels", "omezarr-0_4-plate",
    "iohub-0_4-plate",
])  # fmt: skip
def test_every_old_version_becomes_one_that_a_validator_takes(case, corpus, tmp_path):
    yaozarrs = pytest.importorskip("yaozarrs", reason="the validator yaozarrs is not installed")
    (source,) = (p for p in (corpus / "ome-zarr" / case).iterdir() if p.suffix == ".zarr")
    path = copied(source, tmp_path / source.name)
    assert lift(path).verified
    yaozarrs.validate_zarr_store(str(path))


# -- undoing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [f"n5/{N5_CASES[0]}", f"ome-zarr/{V2_CASES[1]}"])
def test_removing_the_listed_files_undoes_it(case, fixtures, tmp_path):
    path = copied(fixtures / case, tmp_path / "data")
    before = tree(path)
    report = lift(path)
    after = tree(path)
    assert set(after) - set(before) == set(report.files_added)
    assert report.files_removed == ()
    for key in report.files_added:
        (path / key).unlink()
    assert tree(path) == before


@pytest.mark.parametrize("case", [f"n5/{N5_CASES[0]}", f"ome-zarr/{V2_CASES[1]}"])
def test_planes_that_differ_take_the_documents_away_again(case, fixtures, tmp_path, monkeypatch):
    path = copied(fixtures / case, tmp_path / "data")
    write = OmeZarrLift.write

    def damage(self, *, sync):
        write(self, sync=sync)
        for key in self.documents:
            file = path / key
            document = json.loads(file.read_text(encoding="utf-8"))
            if document["node_type"] == "array":
                document["chunk_key_encoding"]["configuration"]["separator"] = "."
                document["fill_value"] = 1
                document["chunk_key_encoding"]["name"] = "default"
                file.write_text(json.dumps(document), encoding="utf-8")

    monkeypatch.setattr(OmeZarrLift, "write", damage)
    before = tree(path)
    with pytest.raises(VerificationError):
        lift(path)
    assert tree(path) == before


def test_an_interrupt_leaves_nothing_and_the_root_comes_last(fixtures, tmp_path, monkeypatch):
    from openreadout_ome_zarr_writer.outputs import Folder

    path = copied(fixtures / "n5" / N5_CASES[0], tmp_path / "data.n5")
    put, written = Folder.put, []

    def interrupted(self, key, data):
        if key == "zarr.json":
            raise KeyboardInterrupt
        written.append(key)
        put(self, key, data)

    monkeypatch.setattr(Folder, "put", interrupted)
    before = tree(path)
    with pytest.raises(KeyboardInterrupt):
        lift(path)
    assert sorted(written) == ["em/s0/zarr.json", "em/s1/zarr.json", "em/zarr.json"]
    assert tree(path) == before


def test_documents_are_replaced_with_overwrite_only_and_put_back_when_it_fails(
    fixtures, tmp_path, monkeypatch
):
    path = copied(fixtures / "n5" / N5_CASES[0], tmp_path / "data.n5")
    wanted = lift(path)
    lifted = tree(path)
    (path / "em" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}', "utf-8")
    changed = tree(path)
    with pytest.raises(UsageError, match="is there already"):
        lift(path)
    with monkeypatch.context() as patch:
        patch.setattr("openreadout.operations.in_place._different", lambda *a: "made to differ")
        with pytest.raises(VerificationError):
            lift(path, overwrite=True)
    assert tree(path) == changed
    assert lift(path, overwrite=True).files_added == wanted.files_added
    assert tree(path) == lifted


# -- dropping the older documents ------------------------------------------------------------------


@pytest.mark.parametrize("case", [f"n5/{N5_CASES[0]}", f"ome-zarr/{V2_CASES[1]}"])
def test_drop_old_removes_documents_and_no_chunk(case, fixtures, tmp_path):
    path = copied(fixtures / case, tmp_path / "data")
    names = {"attributes.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}
    before = tree(path)
    with registry.open_dataset(str(path)) as dataset:
        planes = digests(dataset)
    report = lift(path, drop_old=True)
    gone = {key for key in before if Path(key).name in names}
    assert set(report.files_removed) == gone
    left = tree(path)
    assert set(left) == set(before) - gone | set(report.files_added)
    with registry.open_dataset(str(path)) as dataset:
        assert digests(dataset) == planes
        assert dataset.notes == ()


def test_drop_old_is_refused_where_an_array_has_nothing_else(fixtures, tmp_path):
    path = copied(fixtures / "n5" / "z5py-types/types.n5", tmp_path / "types.n5")
    before = tree(path)
    with pytest.raises(UnsupportedFeatureError, match="only their older metadata"):
        lift(path, drop_old=True, images=(0, 1))
    assert tree(path) == before
    report = lift(path, images=(0, 1))
    assert [note for note in report.notes if "left as it is" in note]
    assert report.files_added == ("zarr.json", "0-uint8/zarr.json", "1-uint16/zarr.json")


# -- refusing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", [0, 3, 4])
def test_orders_that_ngff_does_not_allow_are_refused(image, fixtures, tmp_path):
    path = copied(fixtures / "n5" / "z5py-dimensions/dimensions.n5", tmp_path / "dimensions.n5")
    before = tree(path)
    with pytest.raises(UnsupportedFeatureError, match="NGFF wants time first") as caught:
        lift(path, images=(image,))
    assert "export a copy" in caught.value.hint
    assert tree(path) == before


def test_an_order_with_time_first_is_lifted(tmp_path):
    path = tmp_path / "time.n5"
    spec = {
        "driver": "n5", "kvstore": {"driver": "file", "path": str(path / "movie")},
        "metadata": {"dimensions": [2, 5, 4], "blockSize": [1, 5, 4], "dataType": "uint8",
                     "compression": {"type": "gzip"}, "axes": ["t", "x", "y"]},
    }  # fmt: skip
    data = np.arange(40, dtype="u1").reshape(2, 5, 4)
    tensorstore.open(spec, create=True).result().write(data).result()
    lift(path)
    np.testing.assert_array_equal(zarr.open_array(path / "movie", zarr_format=3)[...], data)
    with registry.open_dataset(str(path)) as dataset:
        assert (dataset.format_id, dataset.images[0].axis_names) == ("ome-zarr", "tyx")


@pytest.mark.parametrize(
    "case",
    [
        "ome-zarr/v3-sharded/sharded.ome.zarr",
        "ome-zarr/v3-zip/packed.ozx",
        "ome-tiff/pyramid/cells.ome.tiff",
    ],
)
def test_other_inputs_are_a_usage_error(case, fixtures):
    with pytest.raises(UsageError):
        lift(fixtures / case, dry_run=True)


def test_a_dataset_without_a_group_is_refused(fixtures, tmp_path):
    path = copied(
        fixtures / "n5" / "z5py-missing-blocks/sparse.n5" / "sparse", tmp_path / "root.n5"
    )
    with pytest.raises(UnsupportedFeatureError, match="no group around it"):
        lift(path)


def test_codecs_that_zarr_v3_lacks_are_refused(tmp_path):
    import numcodecs

    path = tmp_path / "image.zarr"
    group = zarr.create_group(path, zarr_format=2)
    filters = [numcodecs.PackBits()]
    array = group.create_array("0", shape=(4, 5), chunks=(4, 5), dtype="bool", filters=filters)
    array[...] = True
    group.attrs["multiscales"] = [
        {"version": "0.3", "axes": ["y", "x"], "datasets": [{"path": "0"}]}
    ]
    before = tree(path)
    with pytest.raises(UnsupportedFeatureError, match="packbits of Zarr v2 has no equal"):
        lift(path)
    assert tree(path) == before


def test_a_level_of_a_type_without_pixels_is_refused(fixtures, tmp_path):
    path = copied(fixtures / "ome-zarr" / V2_CASES[1], tmp_path / "data")
    file = path / "1" / ".zarray"
    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(document | {"dtype": "|S4"}), encoding="utf-8")
    with pytest.raises(UnsupportedFeatureError, match="of level 1 is not one of pixels"):
        lift(path)


def test_a_folder_that_leads_elsewhere_is_not_written_to(fixtures, tmp_path):
    inside = copied(fixtures / "n5" / N5_CASES[0], tmp_path / "data.n5")
    shutil.move(inside / "em" / "s1", tmp_path / "elsewhere")
    (inside / "em" / "s1").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    before = tree(tmp_path)
    with pytest.raises(OpenReadoutError, match="leads out"):
        lift(inside)
    assert tree(tmp_path) == before


# -- the command -----------------------------------------------------------------------------------


def test_the_command_reports_every_file(fixtures, tmp_path, openreadout):
    path = copied(fixtures / "n5" / N5_CASES[0], tmp_path / "data.n5")
    before = tree(path)
    planned = openreadout("export", path, "--to", "ome-zarr", "--in-place", "--dry-run", "--json")
    assert tree(path) == before
    run = openreadout("export", path, "--to", "ome-zarr", "--in-place", "--json")
    assert run.returncode == 0, run.stderr
    data = json.loads(run.stdout)["data"]
    assert set(data) - {"notes"} == {
        "input", "output", "files_added", "files_removed", "verified", "seconds",
    }  # fmt: skip
    assert set(tree(path)) - set(before) == set(data["files_added"])
    assert json.loads(planned.stdout)["data"]["files_added"] == data["files_added"]
    again = openreadout("export", path, "--to", "ome-zarr", "--in-place")
    assert (again.returncode, "--overwrite" in again.stderr) == (2, True)


@pytest.mark.parametrize("options", [
    ["-o", "x.ome.zarr"], ["--ngff", "0.4"], ["--codec", "zstd"], ["--chunks", "8,8"], ["--select", "c=0"],
    ["--pyramid", "mean"], ["--pixel-size", "1,1um"],
])  # fmt: skip
def test_options_that_ask_for_other_pixels_or_places_are_refused(options, fixtures, openreadout):
    path = fixtures / "n5" / N5_CASES[0]
    run = openreadout("export", path, "--to", "ome-zarr", "--in-place", "--dry-run", *options)
    assert (run.returncode, options[0] in run.stderr) == (2, True)


def test_drop_old_alone_is_refused(fixtures, openreadout, tmp_path):
    run = openreadout(
        "export",
        fixtures / "n5" / N5_CASES[0],
        "--to",
        "ome-zarr",
        "--drop-old",
        "-o",
        tmp_path / "x.zarr",
    )
    assert (run.returncode, "--in-place" in run.stderr) == (2, True)
