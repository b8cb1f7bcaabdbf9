"""The tour, the how-tos and the pages on export and Python: every example runs, and prints what the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [DOCS / "tour.md", DOCS / "export.md", DOCS / "python.md", *sorted((DOCS / "howto").glob("*.md"))]  # fmt: skip
# What differs from run to run, or with the version of a compressor.
CHANGING = re.compile(r"\d+(\.\d+)? (s|ms|B|kB|MB)\b|\d+(\.\d+)? (× (larger|smaller)|×\))|as large")


def examples(page):
    """Blocks of a page that can run, in order: language and text."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(console|python)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def steps(block):
    """Commands of a console block, each with the output that the page shows."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


@pytest.fixture
def place(tmp_path):
    """A folder as a reader has it: the fixtures, and `openreadout` and `python` on the path."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name, arguments in (("openreadout", "-m openreadout"), ("python", "")):
        script = bin_folder / name
        script.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8"
        )
        script.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    (work / "fixtures").symlink_to(ROOT / "fixtures")
    env = os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8"}
    env["PATH"] = f"{bin_folder}{os.pathsep}{env['PATH']}"

    def run(*command):
        options = {"capture_output": True, "text": True, "timeout": 120, "check": False}
        return subprocess.run(command, cwd=work, env=env, **options)

    return run


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_examples_run_and_print_what_the_page_shows(page, place):
    found = examples(page)
    assert found
    for language, block in found:
        if language == "python":
            done = place(sys.executable, "-c", block)
            assert done.returncode == 0, done.stderr
            continue
        for command, shown in steps(block):
            if "| jq" in command and shutil.which("jq") is None:
                pytest.skip("jq is not installed")
            done = place("bash", "-c", command)
            assert "Traceback" not in done.stderr, command
            assert CHANGING.sub("#", done.stdout.strip()) == CHANGING.sub("#", shown.strip()), (
                command
            )


def test_every_page_is_reached_from_the_index():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert f"({page.relative_to(DOCS)})" in index, page.name
