"""TIFF files of many planes behind URLs: IFDs that lie far apart are asked for together, and answers stay the same."""

from __future__ import annotations

import struct
import threading
import time

import numpy as np
import pytest
import tifffile
from server import serving

import openreadout
from openreadout.remote.store import RemoteFile
from openreadout_ome_tiff import ahead

PLANES = 150
OME = (
    '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"{uuid}><Image ID="Image:0"><Pixels ID="Pixels:0"'
    ' DimensionOrder="XYZCT" Type="{dtype}" SizeX="{x}" SizeY="{y}" SizeZ="{z}" SizeC="1" SizeT="1">'
    '<Channel ID="Channel:0:0" SamplesPerPixel="1"/>{places}</Pixels></Image></OME>'
)


def document(planes, places="<TiffData/>", uuid=""):
    z, y, x = planes.shape
    uuid = f' UUID="urn:uuid:{uuid}"' if uuid else ""
    return OME.format(dtype=planes.dtype, z=z, y=y, x=x, places=places, uuid=uuid)


def written(path, planes, **how):
    """One IFD after another, each before its pixels; returns where they are."""
    with tifffile.TiffWriter(path) as tiff:
        for n, plane in enumerate(planes):
            text = document(planes) if n == 0 else None
            tiff.write(
                plane, contiguous=False, description=text, metadata=None, software=False, **how
            )
    with tifffile.TiffFile(path) as tiff:
        return [page.offset for page in tiff.pages]


def noise(shape, dtype, bits):
    return np.random.default_rng(7).integers(0, 1 << bits, shape, dtype=dtype)


def uneven():
    """Planes that compress to lengths of their own."""
    planes = noise((PLANES, 300, 300), "uint16", 14)
    for n, plane in enumerate(planes):
        plane[: n * 37 % 90] = 0
    return planes


def even():
    return noise((PLANES, 200, 200), "uint16", 16)


KINDS = {
    "alike": (even, {}, 14),
    "strips": (even, {"rowsperstrip": 8}, 14),
    "uneven": (uneven, {"compression": "zlib", "rowsperstrip": 50}, 16),
    "near": (lambda: noise((PLANES * 3, 70, 70), "uint8", 8), {}, 9),
}
"""What makes the planes, how they are written, and the most waits that `info` may take."""


@pytest.fixture(params=KINDS)
def kind(request, tmp_path):
    make, how, most = KINDS[request.param]
    planes = make()
    offsets = written(tmp_path / "many.ome.tif", planes, **how)
    steps = np.diff(offsets[1:])
    assert (len(set(steps)) == 1) == (request.param != "uneven")
    assert all(steps > ahead.NEAR_STEP) == (request.param != "near")
    return planes, most


def answers(command, name, url):
    code, document, _ = command(*name, url, "--json")
    text = str(document["data"] if document["ok"] else document["error"])
    return code, text.replace(str(url), "FILE")


@pytest.mark.parametrize("name", [("info",), ("check",), ("check", "--planes")], ids=" ".join)
def test_answers_are_those_of_the_file_on_a_disk(command, kind, tmp_path, name):
    with serving(tmp_path) as server:
        there = answers(command, name, f"{server.url}/many.ome.tif")
    assert there == answers(command, name, tmp_path / "many.ome.tif")
    assert there[0] == 0


def test_info_and_check_wait_for_few_rounds(command, kind, tmp_path, rounds):
    planes, most = kind
    with serving(tmp_path) as server:
        url = f"{server.url}/many.ome.tif"
        assert command("info", url)[0] == 0
        assert rounds[0] <= most
        rounds[0] = 0
        assert command("check", url)[0] == 0
        assert rounds[0] <= most + -(-len(planes) // 64)


def test_requests_are_made_at_once(command, tmp_path):
    written(tmp_path / "many.ome.tif", noise((40, 200, 200), "uint16", 14))
    met = threading.Event()
    with serving(tmp_path) as server:

        def wait_for_another(path, turn):
            end = time.monotonic() + 20
            while turn > 8 and server.busy < 2 and not met.is_set() and time.monotonic() < end:
                time.sleep(0.005)
            if server.busy > 1:
                met.set()

        server.fault = wait_for_another
        assert command("info", f"{server.url}/many.ome.tif")[0] == 0
    assert met.is_set()


def test_an_export_waits_for_few_rounds_too_and_gives_the_same_bytes(
    command, kind, tmp_path, rounds
):
    planes, most = kind
    source, options = (
        tmp_path / "many.ome.tif",
        ("--to", "ome-zarr", "--no-sync", "--no-verify", "-q"),
    )
    assert command("export", source, *options, "-o", tmp_path / "here.ome.zarr")[0] == 0
    with serving(tmp_path) as server:
        url = f"{server.url}/many.ome.tif"
        rounds[0] = 0
        assert command("export", url, *options, "-o", tmp_path / "there.ome.zarr")[0] == 0
        assert rounds[0] <= most + 3 * -(-len(planes) // 64)
    here, there = (
        {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        for folder in (tmp_path / "here.ome.zarr", tmp_path / "there.ome.zarr")
    )
    assert here == there


def test_pixels_are_those_that_were_written(kind, tmp_path):
    planes, _ = kind
    with serving(tmp_path) as server, openreadout.open(f"{server.url}/many.ome.tif") as data:
        assert np.array_equal(data.images[0].read_region(t=0, c=0), planes)


@pytest.fixture
def asked(monkeypatch):
    """The lengths of what is fetched of files, but for what each begins with."""
    lengths, real = [], RemoteFile._fetch

    def fetch(self, offset, length):
        lengths.append(length)
        return real(self, offset, length)

    monkeypatch.setattr(RemoteFile, "_fetch", fetch)
    return lengths


def test_guesses_ask_for_little_that_is_not_needed(command, tmp_path, asked):
    """Of a file whose IFDs are far apart and whose steps differ, only the IFDs are read."""
    planes = noise((12, 1200, 1200), "uint16", 16)
    for n, plane in enumerate(planes):
        plane[: n * 37 % 90] = 0
    written(tmp_path / "many.ome.tif", planes, compression="zlib", predictor=False)
    with serving(tmp_path) as server:
        assert command("info", f"{server.url}/many.ome.tif")[0] == 0
    assert sum(asked) <= len(planes) * 2 * (64 << 10)


def test_a_file_is_read_through_no_farther_than_said(command, tmp_path, monkeypatch, asked):
    monkeypatch.setattr(ahead, "MOST_THROUGH", 1 << 20)
    offsets = written(tmp_path / "many.ome.tif", uneven(), compression="zlib")
    with serving(tmp_path) as server:
        assert command("info", f"{server.url}/many.ome.tif")[0] == 0
    assert 1 << 20 < sum(asked) <= (1 << 20) + len(offsets) * (64 << 10)
    assert max(asked) == 1 << 20


def link_of(data, offset):
    """Where the link of the IFD at an offset stands, in a little-endian TIFF that is no BigTIFF."""
    return offset + 2 + 12 * struct.unpack_from("<H", data, offset)[0]


@pytest.mark.parametrize("at", [2, 5, 9, 40])
@pytest.mark.parametrize(
    "to", ["itself", "the first", "back", "ahead", "past the end", "pixels", "nothing"]
)
@pytest.mark.parametrize("how", [{}, {"compression": "zlib"}], ids=["alike", "uneven"])
def test_a_chain_that_leads_elsewhere_is_followed_as_it_is(command, tmp_path, how, at, to):
    planes = noise((50, 130, 130), "uint16", 14)
    path = tmp_path / "many.ome.tif"
    offsets = written(path, planes, rowsperstrip=20, **how)
    data = bytearray(path.read_bytes())
    target = {
        "itself": offsets[at], "the first": offsets[0], "back": offsets[at - 1] + 2, "ahead": offsets[at + 3],
        "past the end": len(data) + 100, "pixels": offsets[at] + 3000, "nothing": 0,
    }[to]  # fmt: skip
    struct.pack_into("<I", data, link_of(data, offsets[at]), target)
    path.write_bytes(data)
    with serving(tmp_path) as server:
        for name in [("info",), ("check",)]:
            assert answers(command, name, f"{server.url}/many.ome.tif") == answers(
                command, name, path
            )


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.97])
@pytest.mark.parametrize("how", [{}, {"compression": "zlib"}], ids=["alike", "uneven"])
def test_a_file_that_is_cut_is_told_of_alike(command, tmp_path, how, kept):
    path = tmp_path / "many.ome.tif"
    written(path, noise((50, 200, 200), "uint16", 14), **how)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * kept)])
    with serving(tmp_path) as server:
        for name in [("info",), ("check",)]:
            there = answers(command, name, f"{server.url}/many.ome.tif")
            assert there == answers(command, name, path)


@pytest.mark.parametrize(
    ("fault", "says"), [("503", "(503)"), ("403", "(403)"), ("new tag", "changed")]
)
def test_a_server_that_fails_on_the_way_is_an_error(command, tmp_path, fault, says):
    written(tmp_path / "many.ome.tif", noise((60, 200, 200), "uint16", 14))
    with serving(tmp_path) as server:
        server.fault = lambda path, turn: fault if turn >= 20 else None
        code, out, err = command("info", f"{server.url}/many.ome.tif")
        assert code == 5
        assert says in err
        assert "Traceback" not in out + err


# -- sets of files -------------------------------------------------------------------------------------------------


@pytest.fixture
def spread(tmp_path):
    """A set of one plane in each file, all with the same document."""
    planes = noise((30, 64, 64), "uint16", 14)
    places = "".join(
        f'<TiffData FirstZ="{n}" IFD="0" PlaneCount="1"><UUID FileName="p{n}.ome.tif">urn:uuid:0000-{n}</UUID>'
        "</TiffData>"
        for n in range(len(planes))
    )
    for n, plane in enumerate(planes):
        text = document(planes, places, uuid=f"0000-{n}")
        tifffile.imwrite(tmp_path / f"p{n}.ome.tif", plane, description=text, metadata=None)
    return planes


def test_files_of_a_set_are_opened_together(command, spread, tmp_path, rounds):
    with serving(tmp_path) as server:
        url = f"{server.url}/p0.ome.tif"
        assert command("info", url)[0] == 0
        assert rounds[0] <= 3
        with openreadout.open(url) as data:
            assert np.array_equal(data.images[0].read_region(t=0, c=0), spread)


@pytest.mark.parametrize("fault", ["404", "cut short"])
def test_files_that_a_set_lacks_are_told_of_as_on_a_disk(command, spread, tmp_path, fault):
    for n in (3, 17):
        lost = tmp_path / f"p{n}.ome.tif"
        if fault == "404":
            lost.unlink()
        else:
            lost.write_bytes(lost.read_bytes()[:10])
    with serving(tmp_path) as server:
        there = answers(command, ("info",), f"{server.url}/p0.ome.tif")
        assert (
            there[1].replace(server.url, str(tmp_path))
            == answers(command, ("info",), tmp_path / "p0.ome.tif")[1]
        )
        assert there[0] == 0
        server.fault = lambda path, turn: "503" if path.endswith("p5.ome.tif") else None
        assert command("info", f"{server.url}/p0.ome.tif")[0] == 5
