"""In a shell: pipes, lists of files, interrupts, terminals; always with processes of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

import pytest

fcntl = pytest.importorskip("fcntl", reason="terminals and shells of Unix")
pty = pytest.importorskip("pty")
termios = pytest.importorskip("termios")

COMMAND = f"{sys.executable} -m openreadout"


def shell(command, cwd, **env):
    environment = os.environ | {"PYTHONUTF8": "1"} | env
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_jsonl_of_a_folder_through_jq(fixtures):
    run = shell(
        f"{COMMAND} info --jsonl -r ome-tiff | jq -r '.data.images[0].pixel_type'", fixtures
    )
    assert run.returncode == 0, run.stderr
    wanted = [
        json.loads(case.read_text(encoding="utf-8")) for case in sorted(fixtures.glob("ome-tiff/*/expected.json"))
    ]  # fmt: skip
    assert len(run.stdout.split()) == len(wanted)
    assert "complex" in run.stdout


def test_find_with_nul_into_files_from(fixtures, tmp_path):
    strange = tmp_path / "a\nname with 'quotes'.ome.tiff"
    shutil.copy(fixtures / "ome-tiff/pyramid/cells.ome.tiff", strange)
    shutil.copy(fixtures / "malformed/tiff-cut/image.ome.tiff", tmp_path / "cut.ome.tiff")
    run = shell(f"find . -type f -print0 | {COMMAND} check -0 --files-from - --jsonl", tmp_path)
    assert run.returncode == 4
    assert run.stderr == ""
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert {line["path"].rpartition("/")[2]: line["data"]["ok"] for line in lines} == {
        strange.name: True,
        "cut.ome.tiff": False,
    }


@pytest.mark.parametrize("options", ["", "--json", "--jsonl", "--only /size_bytes"])
@pytest.mark.parametrize("command", ["info -r .", "check -r ome-zarr", "check --planes -r n5"])
def test_a_reader_that_leaves_early_ends_it_quietly(fixtures, command, options):
    if command == "check -r ome-zarr" and options.startswith("--only"):
        options = "--only /ok"
    run = shell(f"({COMMAND} {command} -q {options} | head -c 1) 2>&1 >/dev/null", fixtures)
    assert "Traceback" not in run.stdout + run.stderr
    assert "Broken" not in run.stdout + run.stderr


def test_head_gets_its_line(fixtures):
    run = shell(f"{COMMAND} info -r ome-tiff | head -1", fixtures)
    assert run.stdout.startswith("ome-tiff/")
    assert run.stdout.count("\n") == 1
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("command", ["info -r", "check --planes -r"])
def test_an_interrupt_ends_quietly_with_130(fixtures, command):
    many = ["."] * 50  # so that it is not done when the first line comes
    process = subprocess.Popen(
        [sys.executable, "-m", "openreadout", *command.split(), *many],
        cwd=fixtures,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert "Traceback" not in error
    assert process.returncode == 130


def test_an_interrupt_inside_of_a_string_that_is_evaluated_ends_with_130_too(tmp_path):
    (tmp_path / "interrupted.py").write_text("""
import numpy
from openreadout import cli
from openreadout.__main__ import main
text = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)"
cli._run = lambda arguments, ending: exec(text)
main()
""")
    run = subprocess.run(
        [sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (130, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_while_python_takes_itself_apart_changes_nothing(fixtures, number):
    code = f"""
import os, sys
import numpy
from openreadout.__main__ import main
class Late:
    def __del__(self):
        os.write(1, b"late")
        os.kill(os.getpid(), {int(number)})
late = Late()
sys.argv = ["openreadout", "info", "-q", "ome-tiff/pyramid/cells.ome.tiff", "--only", "/format/id"]
main()
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=fixtures, capture_output=True, text=True, check=False
    )
    assert run.stdout.endswith("late")
    assert (run.returncode, run.stderr) == (0, "")


def test_nothing_but_the_result_stands_on_stdout(fixtures, tmp_path):
    out = tmp_path / "o.ome.zarr"
    run = shell(
        f"{COMMAND} export ome-tiff/pyramid/cells.ome.tiff --to ome-zarr -o {out} --progress --json",
        fixtures,
    )
    assert json.loads(run.stdout)["ok"] is True


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_scripts_are_there(shell_name, fixtures):
    run = shell(COMMAND, fixtures, _OPENREADOUT_COMPLETE=f"{shell_name}_source")
    assert run.returncode == 0
    assert "_OPENREADOUT_COMPLETE" in run.stdout


def test_completion_knows_commands_and_options(fixtures):
    env = {"_OPENREADOUT_COMPLETE": "bash_complete"}
    commands = shell(COMMAND, fixtures, COMP_WORDS="openreadout ", COMP_CWORD="1", **env).stdout
    assert {line.split(",")[1] for line in commands.split()} >= {"info", "check", "export", "preview"}  # fmt: skip
    options = shell(COMMAND, fixtures, COMP_WORDS="openreadout export --chu", COMP_CWORD="2", **env)
    assert "--chunks" in options.stdout


# -- terminals -------------------------------------------------------------------------------------


def on_a_terminal(*arguments, cwd, columns=80, lines=24, **env):
    """What the program writes on a terminal of this size."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    environment |= {"TERM": "xterm-256color", "PYTHONUTF8": "1"} | env
    process = subprocess.Popen(
        [sys.executable, "-m", "openreadout", *map(str, arguments)],
        cwd=cwd,
        env=environment,
        stdin=child,
        stdout=child,
        stderr=child,
        close_fds=True,
    )
    os.close(child)
    said = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            part = os.read(parent, 65536)
        except OSError:  # what Linux says when the other side is closed
            break
        if not part:
            break
        said += part
    os.close(parent)
    process.wait(timeout=60)
    return said.decode("utf-8").replace("\r\n", "\n")


def test_a_terminal_gets_colours_unless_they_are_not_wanted(fixtures):
    arguments = ("info", "ome-zarr/v2-blosc-channels/cells.ome.zarr")
    assert "\033[1m" in on_a_terminal(*arguments, cwd=fixtures)
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\033[" not in on_a_terminal(*arguments, cwd=fixtures, **env)
    assert "\033[" not in on_a_terminal(*arguments, "--no-color", cwd=fixtures)


@pytest.mark.parametrize("columns", [60, 80, 132])
def test_the_width_is_that_of_the_terminal(fixtures, columns):
    text = on_a_terminal(
        "info", "cells.ome.zarr", cwd=fixtures / "ome-zarr/v2-blosc-channels", columns=columns, NO_COLOR="1"
    )  # fmt: skip
    widest = max(map(len, text.splitlines()))
    assert 55 < widest <= columns


def test_a_picture_fits_the_terminal(fixtures):
    text = on_a_terminal(
        "preview", "cells.ome.tiff", cwd=fixtures / "ome-tiff/pyramid", columns=50, lines=20, COLORTERM="truecolor"
    )  # fmt: skip
    drawn = [line for line in text.splitlines() if "▀" in line]
    assert 10 <= len(drawn) <= 17
    assert max(line.count("▀") for line in drawn) <= 50
    assert "\033[38;2;" in drawn[0]


def test_png_bytes_are_kept_from_a_terminal(fixtures):
    text = on_a_terminal("preview", "ome-tiff/pyramid/cells.ome.tiff", "-o", "-", cwd=fixtures)
    assert "PNG" in text
    assert "IHDR" not in text


def test_progress_is_for_terminals(fixtures, tmp_path):
    arguments = ("export", fixtures / "ome-tiff/pyramid/cells.ome.tiff", "--to", "ome-zarr")
    text = on_a_terminal(*arguments, "-o", tmp_path / "a.ome.zarr", "--no-progress", cwd=tmp_path)
    assert "%" not in text
    assert "verified" in text


@pytest.mark.parametrize("columns", [40, 80])
def test_the_bar_takes_one_line(fixtures, tmp_path, columns):
    arguments = ("export", fixtures / "ome-tiff/pyramid/cells.ome.tiff", "--to", "ome-zarr")
    name = "a-name-as-long-as-those-that-microscopes-give.ome.zarr"
    text = on_a_terminal(*arguments, "-o", tmp_path / name, cwd=tmp_path, columns=columns)
    bars = [part for part in re.split(r"\033\[2K|\r|\n", text) if "%" in part]
    assert bars
    for bar in bars:
        shown = re.sub(r"\033\[[0-9;?]*[A-Za-z]", "", bar)
        assert "…" in shown
        assert len(shown) <= columns
        assert ("kB" in shown) == (columns == 80)
        assert shown.rstrip().endswith((":00", ":01", ":--", ":02"))
