"""What people see: everything fits the terminal, is told once, and comes from the file without steering the screen."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
import zarr

from openreadout.cli import layout
from openreadout.cli import run as run_here
from openreadout.cli.output import Style

PLAIN = Style(False)
DATA = [
    "ome-zarr/v2-blosc-channels/cells.ome.zarr",
    "ome-zarr/v3-sharded/sharded.ome.zarr",
    "ome-zarr/v3-plate/plate.zarr",
    "ome-zarr/v3-labels/labelled.zarr",
    "ome-zarr/v3-collection-types/types.zarr",
    "n5/z5py-cosem-pyramid/cosem.n5",
    "n5/z5py-types/types.n5",
    "ome-tiff/pyramid/cells.ome.tiff",
    "ome-tiff/rgb-interleaved/image.ome.tiff",
    "malformed/zarr-chunk-cut/plain.zarr",
    "malformed/tiff-cut/image.ome.tiff",
    "malformed/n5-attributes-cut/sparse.n5",
]


def zarr_image(path, shape=(4, 6), axes="yx", *, omero=None, name=None, chunks=None, zarr_format=2):
    group = zarr.open_group(str(path), mode="w", zarr_format=zarr_format)
    group.create_array("0", shape=shape, chunks=chunks or shape, dtype="uint16")
    kinds = {"t": "time", "c": "channel"}
    scale = [{"type": "scale", "scale": [1.0] * len(shape)}]
    group.attrs["multiscales"] = [
        {
            "version": "0.4",
            "axes": [{"name": a, "type": kinds.get(a, "space")} for a in axes],
            "datasets": [{"path": "0", "coordinateTransformations": scale}],
            **({"name": name} if name else {}),
        }
    ]
    if omero:
        group.attrs["omero"] = omero
    return path


def plate(path, rows, columns, wells, acquisitions=0):
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    places = [(r, c) for r, c in wells]
    group.attrs["plate"] = {
        "version": "0.4",
        "name": "screen",
        "rows": [{"name": r} for r in rows],
        "columns": [{"name": c} for c in columns],
        "wells": [
            {"path": f"{r}/{c}", "rowIndex": rows.index(r), "columnIndex": columns.index(c)}
            for r, c in places
        ],
        **({"acquisitions": [{"id": n} for n in range(acquisitions)]} if acquisitions else {}),
    }
    for (r, c), fields in wells.items():
        well = group.require_group(r).require_group(c)
        well.attrs["well"] = {
            "version": "0.4",
            "images": [{"path": str(n), "acquisition": 0} for n in range(fields)],
        }
        for n in range(fields):
            zarr_image(path / r / c / str(n))
    return path


# -- fitting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("command", ["info", "check", "preview"])
@pytest.mark.parametrize("data", DATA)
def test_no_line_is_wider_than_the_terminal(fixtures, columns, command, data, monkeypatch, capsys):
    folder, _, name = data.rpartition("/")
    monkeypatch.chdir(fixtures / folder)
    monkeypatch.setenv("COLUMNS", str(columns))
    code = run_here([command, name])
    text = capsys.readouterr().out
    assert text or code
    for line in text.splitlines():
        # one word that is longer than the screen stays whole: a path must be copied as it is
        assert len(line) <= columns or len(line.split()) <= 2, line


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_formats_and_plans_fit_too(openreadout, fixtures, tmp_path, columns):
    env = {"COLUMNS": str(columns)}
    for line in openreadout("formats", env=env).stdout.splitlines():
        assert len(line) <= columns
    plan = ("export", "cells.ome.tiff", "--to", "ome-zarr", "-o", "o.zarr", "--dry-run")
    run = openreadout(*plan, cwd=fixtures / "ome-tiff" / "pyramid", env=env)
    assert run.returncode == 0, run.stderr
    assert all(len(line) <= columns for line in run.stdout.splitlines())


def test_hanging_lines_keep_their_indent_and_lose_nothing(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    words = [f"word{n}" for n in range(30)]
    lines = layout.hang("  head  ", words)
    assert " ".join(lines).split() == ["head", *words]
    assert all(line.startswith(" " * 8) for line in lines[1:])
    assert all(len(line) <= 40 for line in lines)


def test_colours_take_no_room(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    plain = layout.row("channels", ["a" * 10] * 5, Style(False))
    colored = layout.row("channels", [Style(True).bold("a" * 10)] * 5, Style(True))
    assert [re.sub("\033\\[[0-9;]*m", "", line) for line in colored] == plain


@pytest.mark.parametrize(
    ("shapes", "wanted"),
    [
        (([1, 1, 1, 32, 64], None), ["32 × 64", ""]),
        (([1, 2, 3, 32, 32], [1, 2, 6, 64, 64]), ["2 × 3 × 32 × 32", "2 × 6 × 64 × 64"]),
        (([1, 1, 8, 8], [1, 4, 8, 8]), ["1 × 8 × 8", "4 × 8 × 8"]),
        (([1, 1], None), ["1 × 1", ""]),
        (([7], None), ["7", ""]),
    ],
)
def test_leading_ones_are_left_out(shapes, wanted):
    assert layout.lengths(*shapes) == wanted


@pytest.mark.parametrize(
    ("codecs", "wanted"),
    [
        ([{"name": "bytes"}], "not compressed"),
        ([{"name": "bytes"}, {"name": "blosc", "configuration": {"cname": "zstd"}}], "blosc-zstd"),
        ([{"name": "n5_default", "configuration": {"codecs": [{"name": "bytes"}, {"name": "gzip"}]}}], "gzip"),
        ([{"name": "sharding_indexed", "configuration": {"codecs": [{"name": "zstd"}]}}], "zstd"),
        ([{"name": "numcodecs.zlib"}, {"name": "x\033[31m"}], "zlib, x\\x1b[31m"),
    ],
)  # fmt: skip
def test_codecs_are_named_by_what_compresses(codecs, wanted):
    assert layout.codec_label(codecs) == wanted


# -- words -----------------------------------------------------------------------------------------


def test_one_of_a_thing_is_singular(openreadout, tmp_path):
    path = plate(tmp_path / "p.zarr", "A", ["1"], {("A", "1"): 1}, acquisitions=1)
    text = openreadout("info", path).stdout
    assert "1 well of 1, 1 field, 1 image, 1 acquisition\n" in text
    assert "1 image: --max-images 0 lists it" in text


def test_a_plate_is_a_grid_of_fields(openreadout, tmp_path):
    wells = {("A", "1"): 2, ("A", "2"): 1, ("B", "2"): 3}
    path = plate(tmp_path / "p.zarr", "AB", ["1", "2"], wells)
    text = openreadout("info", path).stdout
    assert "3 wells of 4, 6 images" in text
    assert re.search(r"^ +1  2\n +A  2  1\n +B  \.  3$", text, re.MULTILINE)
    assert "6 images: --max-images 0 lists them" in text


def test_a_384_well_plate_fits_80_columns(openreadout, tmp_path):
    rows, columns = "ABCDEFGHIJKLMNOP", [str(n) for n in range(1, 25)]
    path = plate(tmp_path / "p.zarr", rows, columns, {("P", "24"): 1})
    text = openreadout("info", path, env={"COLUMNS": "80"}).stdout
    assert re.search(r"^ +P( +\.){23} +1$", text, re.MULTILINE)
    assert "in all" not in text


def test_channels_are_cut_with_a_count(openreadout, tmp_path):
    channels = [{"label": f"ch-{n}"} for n in range(11)]
    path = zarr_image(tmp_path / "c.zarr", (11, 4, 6), "cyx", omero={"channels": channels})
    text = openreadout("info", path).stdout
    assert "ch-7" in text
    assert "ch-8" not in text
    assert "… 3 more" in text


def test_more_than_a_few_images_get_a_line_each(openreadout, fixtures):
    path = fixtures / "n5/z5py-types/types.n5"
    brief, whole = openreadout("info", path).stdout, openreadout("info", "--max-images", 0, path).stdout  # fmt: skip
    assert "chunk" not in brief
    assert whole.count("chunk") == 10
    for n in range(10):
        assert re.search(rf"^  {n}  {n}-\w+ ", brief, re.MULTILINE)


def test_names_from_files_cannot_steer_the_terminal(openreadout, tmp_path):
    evil = "a\033[2Jb\rc\nd\u202e"
    omero = {"channels": [{"label": evil, "color": "FF0000"}]}
    path = zarr_image(tmp_path / "e.zarr", name=evil, omero=omero)
    for command in (["info"], ["info", "--color"], ["check"], ["preview"], ["info", "--view", "structure"],
                    ["info", "--only", "/images/0/name"]):  # fmt: skip
        text = openreadout(*command, path).stdout
        assert "\033[2J" not in text
        assert "\r" not in text
        assert "\u202e" not in text


def test_findings_of_several_levels_stand_together(openreadout, tmp_path):
    group = zarr.open_group(str(tmp_path / "m.zarr"), mode="w", zarr_format=2)
    for n in range(3):
        group.create_array(str(n), shape=(8 >> n, 8 >> n), chunks=(8 >> n, 8 >> n), dtype="uint8")
    scales = [[{"type": "scale", "scale": [2.0**n] * 2}] for n in range(3)]
    datasets = [{"path": str(n), "coordinateTransformations": s} for n, s in enumerate(scales)]
    axes = [{"name": a, "type": "space"} for a in "yx"]
    group.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": datasets}]
    text = openreadout("check", tmp_path / "m.zarr").stdout
    assert text.count("missing_chunks") == 1
    assert "image 0, levels 0 to 2" in text


def test_several_inputs_stand_in_columns_and_end_with_a_summary(openreadout, fixtures):
    paths = [fixtures / data for data in DATA[:3]]
    run = openreadout("info", *paths, fixtures / "nothing", env={"COLUMNS": "300"})
    lines = run.stdout.splitlines()
    assert len(lines) == 3
    assert run.returncode == 5
    assert run.stderr.splitlines()[-1] == "4 inputs: 3 done, 1 not read or written"
    quiet = openreadout("info", "-q", *paths)
    assert quiet.stderr == ""
    ended = openreadout("info", "--fail-fast", fixtures / "nothing", *paths)
    assert ended.stderr.splitlines()[-1] == "1 input: 1 not read or written"


def test_errors_say_what_is_wrong_and_one_thing_to_do(openreadout, fixtures):
    run = openreadout("info", fixtures / "malformed/text-file/notes.txt")
    first, second = run.stderr.splitlines()
    assert first.startswith("error: ")
    assert "notes.txt: " in first
    assert second.startswith("hint: ")
    assert run.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["inf", "x"], "did you mean 'info'"),
        (["chek", "x"], "did you mean 'check'"),
        (["info", "--recursiv", "x"], "--recursive"),
        (["export", "--overwrit", "x"], "--overwrite"),
        (["check", "--plane", "x"], "--planes"),
    ],
)
def test_the_nearest_name_is_suggested(openreadout, arguments, word):
    run = openreadout(*arguments)
    assert run.returncode == 2
    assert word in run.stderr
    assert "hint: openreadout" in run.stderr


def test_without_unicode_everything_is_ascii(openreadout, fixtures):
    env = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    for command in ("info", "check", "preview"):
        run = openreadout(command, fixtures / DATA[0], env=env)
        assert run.returncode == 0, run.stderr
        assert run.stdout.isascii()
        assert "\\u" not in run.stdout


def test_chunks_are_in_the_order_of_the_sizes_beside_them(openreadout, tmp_path, fixtures):
    path = zarr_image(tmp_path / "x.zarr", (30, 20, 10), "xyz", chunks=(15, 10, 5))
    assert re.search(r"10 × 20 × 30 +chunk 5 × 10 × 15", openreadout("info", path).stdout)
    n5 = openreadout("info", fixtures / "n5/z5py-viewer-pyramid/pyramid.n5").stdout
    assert re.search(r"6 × 24 × 30 +chunk 4 × 16 × 16", n5)


# -- one value -------------------------------------------------------------------------------------


def test_only_prints_one_value(openreadout, fixtures):
    import json

    path = fixtures / DATA[0]
    data = json.loads(openreadout("info", "--json", path).stdout)["data"]
    for pointer, value in (
        ("/images/0/physical_size", data["images"][0]["physical_size"]),
        ("/images/0/size_x", 45),
        ("/images/0/channels/1/window/end", data["images"][0]["channels"][1]["window"]["end"]),
        ("/plate", None),
    ):
        run = openreadout("info", "--only", pointer, path)
        if value is None:
            assert run.returncode == 2
            assert "'plate'" in run.stderr
        else:
            assert json.loads(run.stdout) == value
        whole = openreadout("info", "--json", "--only", pointer, path)
        assert json.loads(whole.stdout)["ok"] is (value is not None)
    assert openreadout("info", "--only", "/images/0/channels/0/name", path).stdout == "DAPI\n"


def test_only_keeps_the_exit_code_and_takes_several_inputs(openreadout, fixtures):
    broken, sound = fixtures / DATA[9], fixtures / DATA[0]
    run = openreadout("check", "--only", "/ok", broken, sound)
    assert (run.stdout, run.returncode) == ("false\ntrue\n", 4)


@pytest.mark.parametrize(
    "pointer", ["images", "/images/-1", "/images/01x", "/images/9", "/nope", "/path/x"]
)
def test_only_refuses_what_is_not_there(openreadout, fixtures, pointer):
    run = openreadout("info", "--only", pointer, fixtures / DATA[0])
    assert (run.returncode, run.stdout) == (2, "")


def test_a_pointer_reads_as_rfc_6901_says():
    from openreadout.cli.common import point

    document = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "m~n": 8, " ": 7}
    for pointer, value in (
        ("/foo", ["bar", "baz"]), ("/foo/0", "bar"), ("/", 0), ("/a~1b", 1), ("/m~0n", 8), ("/ ", 7),
    ):  # fmt: skip
        assert point(document, pointer) == value


# -- preview ---------------------------------------------------------------------------------------


def test_preview_writes_a_png_and_refuses_to_replace_one(openreadout, fixtures, tmp_path):
    from PIL import Image

    out = tmp_path / "cells.png"
    path = fixtures / "ome-tiff/pyramid/cells.ome.tiff"
    assert openreadout("preview", path, "-o", out, "--size", 40).returncode == 0
    with Image.open(out) as picture:
        assert picture.size == (40, 32)
    before = out.read_bytes()
    again = openreadout("preview", path, "-o", out)
    assert again.returncode == 2
    assert out.read_bytes() == before
    assert openreadout("preview", path, "-o", out, "--overwrite").returncode == 0
    assert out.read_bytes() != before
    assert [p.name for p in tmp_path.iterdir()] == ["cells.png"]


def test_preview_to_standard_output_is_the_same_file(openreadout, fixtures, tmp_path):
    path = fixtures / "ome-tiff/pyramid/cells.ome.tiff"
    openreadout("preview", path, "-o", tmp_path / "a.png")
    run = openreadout("preview", path, "-o", "-", text=False)
    assert run.stdout == (tmp_path / "a.png").read_bytes()


def test_preview_tells_what_it_shows(openreadout, fixtures):
    import json

    run = openreadout("preview", "--json", "--channel", 1, "--size", 32, fixtures / DATA[0])
    data = json.loads(run.stdout)["data"]
    assert data["width"] == 32
    assert [c["index"] for c in data["images"][0]["channels"]] == [1]


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--image", 9], 2), (["--z", "top"], 2), (["--z", "99"], 2), (["--t", 5], 2), (["--channel", 7], 2),
     (["-o", "no/such/folder/x.png"], 5)],
)  # fmt: skip
def test_preview_refuses_with_the_right_code(openreadout, fixtures, tmp_path, options, code):
    run = openreadout("preview", fixtures / DATA[0], *options, cwd=tmp_path, env={"PYTHONPATH": ""})
    assert run.returncode == code, run.stderr
    assert "Traceback" not in run.stderr


def test_pictures_in_the_terminal_have_two_pixels_a_character(monkeypatch):
    from openreadout.cli.picture import draw

    pixels = np.zeros((3, 2, 3), np.uint8)
    pixels[0, 0], pixels[1, 0], pixels[2, 1] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    monkeypatch.setenv("COLORTERM", "truecolor")
    first, second = draw(pixels, color=True, unicode=True)
    assert first.startswith("\033[38;2;255;0;0m\033[48;2;0;255;0m▀")
    assert second.endswith("\033[38;2;0;0;255m\033[49m▀\033[0m")
    monkeypatch.setenv("COLORTERM", "")
    assert draw(pixels, color=True, unicode=True)[0].startswith("\033[38;5;196m\033[48;5;46m▀")
    assert all(line.isascii() for line in draw(pixels, color=False, unicode=False))


def test_the_first_line_tells_how_well_samples_are_compressed(openreadout, fixtures):
    path = fixtures / DATA[0]
    group = zarr.open_group(str(path), mode="r")
    samples = sum(array.nbytes for _, array in group.arrays())
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    shown = openreadout("info", path, env={"COLUMNS": "200"}).stdout.splitlines()[0]
    assert f"{size / 1000:.1f} kB for {samples / 1000:.1f} kB of samples" in shown
    assert f"({samples / size:.1f} ×)" in shown


def test_levels_tell_what_they_take_in_a_folder(openreadout, fixtures):
    path = fixtures / DATA[0]
    group = zarr.open_group(str(path), mode="r")
    for columns in ("80", "200"):
        lines = openreadout("info", path, env={"COLUMNS": columns}).stdout.splitlines()
        start = next(n for n, line in enumerate(lines) if line.startswith("     levels"))
        for row, name in zip(lines[start:], ("0", "1"), strict=False):
            size = sum(f.stat().st_size for f in (path / name).rglob("*") if f.is_file())
            ratio = group[name].nbytes / size
            assert re.search(rf" {size / 1000:.3g} kB \({ratio:.2g} ×\)$", row), row


def test_levels_of_a_single_file_tell_no_sizes(openreadout, fixtures):
    shown = openreadout("info", fixtures / "ome-tiff/pyramid/cells.ome.tiff").stdout
    assert shown.count(" kB") == 2  # the whole, and its samples


def test_a_size_that_nobody_has_stored_is_not_told(openreadout, tmp_path):
    path = zarr_image(tmp_path / "huge.zarr", (2**30, 2**30), chunks=(64, 64))
    shown = openreadout("info", path).stdout
    assert "1073741824" in shown
    assert "of samples" not in shown


def test_shards_get_lines_of_their_own_where_rows_are_too_wide(openreadout, tmp_path):
    path = tmp_path / "three.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    for level, size in enumerate((1920, 960)):
        group.create_array(
            str(level),
            shape=(3, 1, size, size),
            chunks=(1, 1, 240, 240),
            shards=(3, 1, size, size),
            dtype="uint16",
        )
    datasets = [
        {
            "path": str(level),
            "coordinateTransformations": [{"type": "scale", "scale": [1, 1, 2**level, 2**level]}],
        }
        for level in (0, 1)
    ]
    axes = [{"name": "c", "type": "channel"}, *({"name": a, "type": "space"} for a in "zyx")]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    wide = openreadout("info", path, env={"COLUMNS": "120"}).stdout
    assert re.search(r"^ +levels +0 .* chunk .* shard 3 × 1 × 1920 × 1920 ", wide, re.MULTILINE)
    narrow = openreadout("info", path, env={"COLUMNS": "76"}).stdout
    assert re.search(
        r"^ +levels +0   1920 × 1920   chunk 240 × 240   \w+   [^×]+×\)$", narrow, re.MULTILINE
    )
    assert re.search(r"^ +shards +0   3 × 1 × 1920 × 1920\n +1   3 × 1 × 960 × 960$", narrow, re.MULTILINE)  # fmt: skip


def test_preview_names_its_channels(openreadout, fixtures, tmp_path):
    shown = openreadout("preview", fixtures / DATA[0], "-o", tmp_path / "cells.png").stdout
    assert re.search(r"■ DAPI [\d.]+–[\d.]+ +■ GFP [\d.]+–[\d.]+", shown)


def test_rows_that_go_on_leave_their_number_alone(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = layout.table([("0", "x" * 30, "second"), ("1", "y" * 20, "second " * 2)], "  ")
    assert lines == [
        f"  0   {'x' * 30}",
        "      second",
        f"  1   {'y' * 20}",
        "      second second",
    ]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_has_a_hint_about_permissions(openreadout, tmp_path):
    path = tmp_path / "closed.ome.tiff"
    path.write_bytes(b"II*\0")
    path.chmod(0)
    run = openreadout("info", path)
    assert run.returncode == 5
    assert "hint: check the permissions" in run.stderr


def test_a_path_that_is_not_there_has_a_hint_about_its_spelling(openreadout, tmp_path):
    run = openreadout("info", tmp_path / "absent.zarr")
    assert run.returncode == 5
    assert "hint: check the spelling" in run.stderr
