"""Pages exist, links lead somewhere, what they show is what the program does."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from openreadout import bounds, errors, limits, registry

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md"])
# What may differ from run to run or with the version of a compressor.
CHANGING = re.compile(r"\d+(\.\d+)? (s|ms|B|kB|MB)\b|\d+(\.\d+)? (× (larger|smaller)|×\))|as large")


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_something(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_cli_page_is_current():
    run = subprocess.run(
        [sys.executable, DOCS / "generate_cli.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_every_command_and_option_has_help_and_examples():
    from openreadout.cli import cli

    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command.help, name
        shown = f"{command.help}{command.epilog or ''}"
        assert len(re.findall(rf"^ *openreadout {name}", shown, re.MULTILINE)) >= 2, name
        for option in command.params:
            assert option.param_type_name == "argument" or option.help, f"{name} {option.name}"


def test_every_reader_and_writer_has_a_page():
    for plugin in [*registry.readers(), *registry.writers()]:
        assert (DOCS / "formats" / f"{plugin.descriptor.id}.md").is_file(), plugin.descriptor.id


def test_every_known_gap_stands_on_the_page_of_its_format():
    for reader in registry.readers():
        assert reader.descriptor.known_gaps is not None
        page = (DOCS / "formats" / f"{reader.descriptor.id}.md").read_text(encoding="utf-8")
        assert re.search(
            r"^##? .*(gaps|not supported|not read)", page, re.IGNORECASE | re.MULTILINE
        )


def test_every_codec_has_a_line():
    page = (DOCS / "codecs.md").read_text(encoding="utf-8")
    for entry in registry.entry_points(registry.CODECS):
        assert f"`{entry.name}`" in page, entry.name


def limits_page():
    """The rows of the page of limits by name: value, what is bounded, what raises it."""
    page = (DOCS / "limits.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    assert len(rows) == len({row[0] for row in rows})
    return {name: tuple(cells) for name, *cells in rows}


def number_of(text):
    """`64 KiB`, `2^62`, `2^31-1` or `65 536`."""
    if text.startswith("2^"):
        power, _, less = text[2:].partition("-")
        return 2 ** int(power) - int(less or 0)
    units = {
        "KiB": limits.KIB,
        "MiB": limits.MIB,
        "GiB": limits.GIB,
        "TiB": limits.KIB * limits.GIB,
    }
    number, _, unit = text.rpartition(" ") if text.endswith("iB") else (text, "", "")
    return int(number.replace(" ", "")) * units.get(unit, 1)


def test_every_limit_has_a_line_with_its_value():
    tree = ast.parse(Path(limits.__file__).read_text(encoding="utf-8"))
    names = {n.targets[0].id for n in tree.body if isinstance(n, ast.Assign)}
    names = {n for n in names if not n.startswith("_")} - {"KIB", "MIB", "GIB", "TYPE_CHECKING"}
    rows = limits_page()
    assert set(rows) == names == {*limits.RANGES, *bounds.FIXED}
    for name, (value, *_) in rows.items():
        assert number_of(value) == getattr(limits, name), name


def test_every_limit_says_what_raises_it_or_why_nothing_does():
    from openreadout.cli.check import check

    options = {word for option in check.params for word in option.opts}
    for name, (_, _, raised) in limits_page().items():
        if name in bounds.FIXED:
            option = re.match(r"`(--[a-z]+)`, up to", raised)
            assert (option and option[1] in options) or re.match(r"none: \w+ \w+", raised), name
            continue
        option, way, value = re.fullmatch(r"`(--limit)`, (up|down) to (.+)", raised).groups()
        assert option in options
        assert number_of(value) == limits.RANGES[name][way == "up"], name


def test_every_error_class_has_its_line():
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    for cls in vars(errors).values():
        if isinstance(cls, type) and issubclass(cls, errors.OpenReadoutError):
            row = next(line for line in page.splitlines() if f"`{cls.__name__}`" in line)
            assert row.startswith(f"| {cls.exit_code} | `{cls.code}` |")


def test_every_dependency_has_a_line():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (DOCS / "dependencies.md").read_text(encoding="utf-8")
    for requirement in project["dependencies"]:
        assert f"| {re.match('[a-z0-9-]+', requirement)[0]} |" in page, requirement


def test_commands_of_the_readme_print_what_it_shows(openreadout, tmp_path):
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    (console,) = [
        block for block in blocks(ROOT / "README.md", "console") if "$ openreadout" in block
    ]
    shown = re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]
    assert len(shown) == 3
    for block in shown:
        command, _, wanted = block.partition("\n")
        run = openreadout(*command.split()[1:], cwd=tmp_path, env={"COLUMNS": "100"})
        assert run.returncode == 0, run.stderr
        assert CHANGING.sub("#", run.stdout.strip()) == CHANGING.sub("#", wanted.strip())


def test_python_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    (code,) = blocks(ROOT / "README.md", "python")
    script = tmp_path / "example.py"
    script.write_text(code, encoding="utf-8")
    monkeypatch.chdir(ROOT)
    runpy.run_path(str(script))
    import z5py

    theirs = z5py.File(
        "fixtures/n5/z5py-missing-blocks/sparse.n5", mode="r", use_zarr_format=False
    )["sparse"][...]
    assert capsys.readouterr().out == f"{theirs.sum()}\n"


def test_readme_fits_a_screen_or_two():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 70


@pytest.mark.parametrize("word", ["info", "check", "check --planes", "export"])
def test_make_run_shows_every_command(word):
    recipe = (
        (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nrun:")[2].partition("\n\n")[0]
    )
    assert f"openreadout {word}" in recipe


@pytest.fixture(scope="module")
def man_pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, DOCS / "generate_man.py", folder], check=True)
    return {path.name: path for path in folder.iterdir()}


def test_every_command_has_a_man_page_with_its_options(man_pages):
    from openreadout.cli import cli

    context = click.Context(cli)
    names = cli.list_commands(context)
    assert set(man_pages) == {"openreadout.1", *(f"openreadout-{name}.1" for name in names)}
    for name in names:
        text = man_pages[f"openreadout-{name}.1"].read_text(encoding="utf-8").replace("\\-", "-")
        for option in cli.get_command(context, name).params:
            if isinstance(option, click.Option):
                assert all(f"\\fB{opt}\\fR" in text for opt in option.opts), option.name
        assert f"openreadout {name} " in text.partition(".SH EXAMPLES")[2]


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_man_pages_are_valid_and_show_their_text(man_pages):
    for path in man_pages.values():
        command = ["groff", "-Kutf8", "-man", "-ww", "-z", path]
        checked = subprocess.run(command, capture_output=True, text=True, check=True)
        assert checked.stderr == ""
    shown = subprocess.run(
        ["groff", "-Kutf8", "-Tutf8", "-P-cbou", "-man", man_pages["openreadout-check.1"]],
        capture_output=True, text=True, encoding="utf-8", check=True,
    ).stdout  # fmt: skip
    assert "openreadout check [OPTIONS] PATH..." in shown
    assert re.search(r"^ +openreadout check --planes", shown, re.MULTILINE)


def test_every_page_is_on_the_site():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ *- ([\w/-]+\.md)$", site, re.MULTILINE)
    assert set(listed) == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
