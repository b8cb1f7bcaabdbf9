"""Which IFD is which plane; sets of files; pyramids."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import pytest

from openreadout.errors import CorruptDataError
from openreadout.registry import open_dataset

tifffile = pytest.importorskip("tifffile")

NAMESPACE = "http://www.openmicroscopy.org/Schemas/OME/2016-06"


def document(inside, sizes="", order="XYZCT", uuid="", after="", channels=""):
    """An OME-XML document of one 8 x 6 uint8 image."""
    z, c, t = (sizes or "1 1 1").split()
    root = f' UUID="urn:uuid:{uuid}"' if uuid else ""
    return (
        f'<OME xmlns="{NAMESPACE}"{root}><Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="{order}"'
        f' Type="uint8" SizeX="8" SizeY="6" SizeZ="{z}" SizeC="{c}" SizeT="{t}">{channels}{inside}</Pixels></Image>'
        f"{after}</OME>"
    )


def write_pages(path, count, xml, start=0, shape=(6, 8), **options):
    """A TIFF whose n-th page holds start + n throughout."""
    with tifffile.TiffWriter(path) as writer:
        for n in range(count):
            writer.write(
                np.full(shape, start + n, np.uint8),
                description=xml if n == 0 else None,
                metadata=None,
                contiguous=False,
                **options,
            )
    return path


def values(dataset, image=0):
    """First sample of each plane, by t, c, z."""
    array = dataset.images[image].levels[0].array
    return {
        key: int(array.read_chunk((*key, 0, 0)).flat[0])
        for key in itertools.product(*map(range, array.shape[:3]))
    }


@pytest.mark.parametrize("order", ["XY" + "".join(p) for p in itertools.permutations("ZCT")])
def test_every_dimension_order(tmp_path, order):
    path = write_pages(tmp_path / "a.ome.tif", 24, document("<TiffData/>", "2 3 4", order))
    sizes = {"Z": 2, "C": 3, "T": 4}
    expected = {}
    for n in range(24):
        rest, at = n, {}
        for letter in order[2:]:
            rest, at[letter] = divmod(rest, sizes[letter])
        expected[at["T"], at["C"], at["Z"]] = n
    with open_dataset(str(path)) as dataset:
        assert values(dataset) == expected
        assert dataset.images[0].dimension_order == order


def test_plane_count_counts_on_in_dimension_order(tmp_path):
    inside = (
        '<TiffData IFD="3" FirstC="1" PlaneCount="3"/><TiffData IFD="0" PlaneCount="3" FirstC="0"/>'
    )
    path = write_pages(tmp_path / "a.ome.tif", 6, document(inside, "3 2 1"))
    with open_dataset(str(path)) as dataset:
        found = values(dataset)
    assert found == {(0, c, z): 3 * c + z for c in range(2) for z in range(3)}


def test_plane_count_without_ifd_starts_at_the_first(tmp_path):
    path = write_pages(tmp_path / "a.ome.tif", 3, document('<TiffData PlaneCount="2"/>', "3 1 1"))
    with open_dataset(str(path)) as dataset:
        assert dataset.images[0].absent == {(0, 0, 2)}
        assert values(dataset) == {(0, 0, 0): 0, (0, 0, 1): 1, (0, 0, 2): 0}


def test_planes_counted_from_one_are_put_right_and_told(tmp_path):
    inside = "".join(f'<TiffData IFD="{n}" FirstT="{n + 1}"/>' for n in range(3))
    path = write_pages(tmp_path / "a.ome.tif", 3, document(inside, "1 1 3"))
    with open_dataset(str(path)) as dataset:
        assert values(dataset) == {(t, 0, 0): t for t in range(3)}
        assert [f.severity for f in dataset.findings] == ["warning"]


def test_missing_planes_are_listed_and_never_replaced(tmp_path):
    inside = "".join(f'<TiffData IFD="{n}" FirstT="{t}"/>' for n, t in enumerate((0, 2, 5)))
    path = write_pages(tmp_path / "a.ome.tif", 3, document(inside, "1 1 6"))
    with open_dataset(str(path)) as dataset:
        assert dataset.images[0].absent == {(1, 0, 0), (3, 0, 0), (4, 0, 0)}
        (finding,) = dataset.findings
        assert (finding.code, finding.severity) == ("missing_planes", "error")
        assert "3 planes t=1,3-4 c=0 z=0" in finding.message
        array = dataset.images[0].levels[0].array
        assert not array.is_stored((1, 0, 0, 0, 0))
        assert array.presence().stored == 3
        assert values(dataset)[5, 0, 0] == 2


def test_plane_given_twice_keeps_its_first_place(tmp_path):
    path = write_pages(
        tmp_path / "a.ome.tif", 2, document('<TiffData IFD="1"/><TiffData IFD="0"/>')
    )
    with open_dataset(str(path)) as dataset:
        assert values(dataset) == {(0, 0, 0): 1}
        assert [f.severity for f in dataset.findings] == ["warning"]


def make_set(folder, uuids=("u-0", "u-1")):
    """Two files with a channel each; file n holds the value 10 * n."""
    folder.mkdir(exist_ok=True)
    inside = "".join(
        f'<TiffData IFD="0" FirstC="{n}" PlaneCount="1"><UUID FileName="c{n}.ome.tif">urn:uuid:{uuid}</UUID></TiffData>'
        for n, uuid in enumerate(uuids)
    )
    return [
        write_pages(folder / f"c{n}.ome.tif", 1, document(inside, "1 2 1", uuid=uuid), 10 * n)
        for n, uuid in enumerate(uuids)
    ]


def test_a_set_opens_from_any_member(tmp_path):
    for path in make_set(tmp_path):
        with open_dataset(str(path)) as dataset:
            assert values(dataset) == {(0, 0, 0): 0, (0, 1, 0): 10}
            assert len(dataset.members) == 2


def test_a_renamed_set_is_told_apart_by_uuid(tmp_path):
    first, second = make_set(tmp_path)
    swap = tmp_path / "swap"
    first.rename(swap)
    second.rename(first)
    swap.rename(second)
    with open_dataset(str(first)) as dataset:
        assert values(dataset) == {(0, 0, 0): 0, (0, 1, 0): 10}


def test_another_sets_file_of_the_same_name_is_not_taken(tmp_path):
    first, second = make_set(tmp_path / "one")
    _, foreign = make_set(tmp_path / "two", ("v-0", "v-1"))
    shutil.copy(foreign, second)
    with open_dataset(str(first)) as dataset:
        assert dataset.images[0].absent == {(0, 1, 0)}
        (finding,) = dataset.findings
        assert finding.code == "missing_file"
        assert "another set" in finding.message


def test_a_lost_member_gives_one_finding_with_its_planes(tmp_path):
    first, second = make_set(tmp_path)
    second.unlink()
    with open_dataset(str(first)) as dataset:
        (finding,) = dataset.findings
        assert (finding.code, finding.severity) == ("missing_file", "error")
        assert "c1.ome.tif" in finding.message
        assert "t=0 c=1 z=0" in finding.message
        assert values(dataset)[0, 1, 0] == 0


@pytest.mark.parametrize(
    "name", ["../secret.ome.tif", "/etc/passwd", "C:\\x.tif", "..\\secret.ome.tif"]
)
def test_names_that_lead_out_of_the_folder_are_not_followed(tmp_path, name):
    folder = tmp_path / "set"
    folder.mkdir()
    write_pages(tmp_path / "secret.ome.tif", 1, "x", 99)
    inside = f'<TiffData IFD="0"/><TiffData IFD="0" FirstC="1"><UUID FileName="{name}">urn:uuid:other</UUID></TiffData>'
    path = write_pages(folder / "a.ome.tif", 1, document(inside, "1 2 1", uuid="own"))
    with open_dataset(str(path)) as dataset:
        assert dataset.images[0].absent == {(0, 1, 0)}
        assert "leads out" in dataset.findings[0].message
        assert all(str(folder) in member for member in dataset.members)


def companion_set(folder):
    """A companion file and a TIFF that only points to it."""
    inside = (
        '<TiffData IFD="0" PlaneCount="1"><UUID FileName="p.ome.tif">urn:uuid:p</UUID></TiffData>'
    )
    companion = folder / "all.companion.ome"
    companion.write_text(document(inside, uuid="companion"), encoding="utf-8")
    pointer = (
        f'<OME xmlns="{NAMESPACE}" UUID="urn:uuid:p"><BinaryOnly MetadataFile="all.companion.ome"'
        ' UUID="urn:uuid:companion"/></OME>'
    )
    return companion, write_pages(folder / "p.ome.tif", 1, pointer, 7)


def test_companion_opens_itself_from_its_tiff_and_renamed(tmp_path):
    companion, tiff = companion_set(tmp_path)
    for path in (companion, tiff):
        with open_dataset(str(path)) as dataset:
            assert values(dataset) == {(0, 0, 0): 7}
            assert not dataset.findings
    companion.rename(tmp_path / "other.companion.ome")
    with open_dataset(str(tiff)) as dataset:
        assert not dataset.findings
        assert dataset.source_xml is not None


def test_lost_companion_leaves_the_structure_and_says_so(tmp_path):
    companion, tiff = companion_set(tmp_path)
    companion.unlink()
    with open_dataset(str(tiff)) as dataset:
        assert values(dataset) == {(0, 0, 0): 7}
        (finding,) = dataset.findings
        assert (finding.code, finding.severity) == ("missing_file", "error")
        assert dataset.notes


def test_lost_pixels_of_a_companion_cannot_be_opened(tmp_path):
    companion, tiff = companion_set(tmp_path)
    tiff.unlink()
    with pytest.raises(CorruptDataError, match=r"p\.ome\.tif"):
        open_dataset(str(companion))


def test_sub_ifd_pyramid_has_exact_scales(tmp_path, read_whole):
    path = tmp_path / "pyramid.ome.tif"
    data = np.arange(2 * 96 * 128, dtype=np.uint16).reshape(2, 96, 128)
    with tifffile.TiffWriter(path, ome=True) as writer:
        writer.write(
            data, subifds=2, tile=(32, 32), metadata={"axes": "CYX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.25}
        )  # fmt: skip
        for step in (2, 4):
            writer.write(data[:, ::step, ::step], subfiletype=1, tile=(32, 32))
    with open_dataset(str(path)) as dataset:
        image = dataset.images[0]
        assert len(image.levels) == 3
        for level, step in zip(image.levels, (1, 2, 4), strict=True):
            np.testing.assert_array_equal(read_whole(level.array)[0, :, 0], data[:, ::step, ::step])
            assert level.scale[3:] == (0.25 * step, 0.5 * step)


@pytest.mark.parametrize("after_each", [False, True])
def test_page_series_pyramid(tmp_path, read_whole, after_each):
    path = tmp_path / "old.ome.tif"
    planes = [np.full((64, 96), 1 + n, np.uint8) for n in range(2)]
    order = [(n, step) for n in range(2) for step in (1, 2, 4)]
    if not after_each:
        order.sort(key=lambda entry: entry[1])
    first = {n: order.index((n, 1)) for n in range(2)}
    inside = "".join(f'<TiffData IFD="{first[n]}" FirstZ="{n}"/>' for n in range(2))
    xml = document(inside, "2 1 1").replace('SizeX="8" SizeY="6"', 'SizeX="96" SizeY="64"')
    with tifffile.TiffWriter(path) as writer:
        for place, (n, step) in enumerate(order):
            writer.write(
                planes[n][::step, ::step], description=xml if place == 0 else None, metadata=None,
                subfiletype=int(step > 1), contiguous=False,
            )  # fmt: skip
    with open_dataset(str(path)) as dataset:
        levels = dataset.images[0].levels
        assert [level.array.shape[3:] for level in levels] == [(64, 96), (32, 48), (16, 24)]
        for level in levels:
            found = read_whole(level.array)
            assert [int(found[0, 0, z].max()) for z in range(2)] == [1, 2]
            assert [int(found[0, 0, z].min()) for z in range(2)] == [1, 2]


def test_thumbnail_is_no_level(tmp_path):
    path = tmp_path / "thumb.ome.tif"
    with tifffile.TiffWriter(path) as writer:
        writer.write(
            np.zeros((6, 8), np.uint8), description=document('<TiffData IFD="0"/>'), metadata=None
        )
        writer.write(np.zeros((5, 5), np.uint8), metadata=None, subfiletype=1)
    with open_dataset(str(path)) as dataset:
        assert len(dataset.images[0].levels) == 1


def test_a_plane_laid_out_differently_is_read_from_its_own_segments(tmp_path, read_plane):
    path = tmp_path / "mixed.ome.tif"
    planes = [np.arange(64 * 64, dtype=np.uint8).reshape(64, 64) + n for n in range(3)]
    xml = document("<TiffData/>", "3 1 1").replace('SizeX="8" SizeY="6"', 'SizeX="64" SizeY="64"')
    options = [
        {"tile": (32, 32)},
        {"rowsperstrip": 5, "compression": "lzw"},
        {"tile": (16, 48), "compression": "zlib"},
    ]
    with tifffile.TiffWriter(path) as writer:
        for n, (data, option) in enumerate(zip(planes, options, strict=True)):
            writer.write(data, description=xml if n == 0 else None, metadata=None, **option)
    with open_dataset(str(path)) as dataset:
        for z, data in enumerate(planes):
            np.testing.assert_array_equal(read_plane(dataset.images[0], 0, 0, z), data)


def test_a_plane_of_another_size_is_damage(tmp_path):
    path = tmp_path / "odd.ome.tif"
    with tifffile.TiffWriter(path) as writer:
        writer.write(
            np.zeros((6, 8), np.uint8), description=document("<TiffData/>", "2 1 1"), metadata=None
        )
        writer.write(np.zeros((5, 8), np.uint8), metadata=None)
    with open_dataset(str(path)) as dataset:
        array = dataset.images[0].levels[0].array
        assert array.presence().stored == 2
        with pytest.raises(CorruptDataError, match="8 x 5"):
            array.read_chunk((0, 0, 1, 0, 0))
        assert "metadata" in {f.code for f in dataset.inspect(True) if f.severity == "error"}


def test_several_rgb_channels(tmp_path):
    channels = '<Channel ID="Channel:0:0" SamplesPerPixel="3"/><Channel ID="Channel:0:1" SamplesPerPixel="3"/>'
    inside = '<TiffData IFD="0" FirstC="0"/><TiffData IFD="1" FirstC="1"/>'
    xml = document(inside, "1 6 1", channels=channels)
    path = write_pages(tmp_path / "rgb.ome.tif", 2, xml, shape=(6, 8, 3), photometric="rgb")
    with open_dataset(str(path)) as dataset:
        image = dataset.images[0]
        assert (image.size("c"), image.samples_per_pixel, len(image.channels)) == (2, 3, 2)
        array = image.levels[0].array
        assert [int(array.read_chunk((0, c, 0, 0, 0, 0)).max()) for c in range(2)] == [0, 1]


def test_tens_of_thousands_of_ifds_open_without_reading_tags_twice(tmp_path):
    path = tmp_path / "many.ome.tif"
    with tifffile.TiffWriter(path, ome=True) as writer:
        writer.write(
            np.zeros((10_000, 4, 4), np.uint8),
            metadata={"axes": "TYX"},
            photometric="minisblack",
            compression="zlib",
        )
    import time

    start = time.perf_counter()
    with open_dataset(str(path)) as dataset:
        assert dataset.images[0].size("t") == 10_000
        assert not dataset.findings
    assert time.perf_counter() - start < 10
