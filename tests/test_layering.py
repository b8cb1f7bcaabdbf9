"""What plugins may import; the layers of the core are in pyproject.toml, for import-linter."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

import openreadout

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
CORE = Path(__file__).resolve().parents[1] / "openreadout"
ALLOWED_CORE = {
    "contracts", "results", "encoded", "planes", "pyramid", "model", "stores", "arrays", "codecs", "errors", "limits",
    "jsons", "zips", "record", "units", "system", "workers", "remote", "__version__",
}  # fmt: skip
SHARED = {"openreadout_ome_xml"}
VIEWERS = {
    "openreadout_bioio",
    "openreadout_napari",
}  # of other programs: they use what any script may use
FORBIDDEN_IN_CORE = {"zarr", "tifffile", "imagecodecs", "lxml", "numcodecs"}
MODULES = sorted(PLUGINS.glob("*/**/*.py"))
FORMATS = [file for file in MODULES if file.relative_to(PLUGINS).parts[0] not in VIEWERS]


def imported(file):
    """Every module that a file imports, wherever in it, as dotted names."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("file", FORMATS, ids=lambda file: str(file.relative_to(PLUGINS)))
def test_plugin_imports_contracts_and_below(file):
    own = file.relative_to(PLUGINS).parts[0]
    for name in imported(file):
        first, _, rest = name.partition(".")
        if first == "openreadout":
            assert rest.split(".")[0] in ALLOWED_CORE, f"{file.name} imports {name}"
        elif first.startswith("openreadout_"):
            assert first in {own} | SHARED, f"{file.name} imports {name}"


@pytest.mark.parametrize("package", sorted(VIEWERS))
def test_readers_for_other_programs_use_the_public_interface_only(package):
    files = list((PLUGINS / package).rglob("*.py"))
    assert files
    for file in files:
        names = {name for name in imported(file) if name.startswith("openreadout")}
        assert names == {"openreadout"}, file
        used = re.findall(r"\bopenreadout\.(\w+)", file.read_text(encoding="utf-8"))
        assert set(used) <= set(openreadout.__all__), file
        assert len(file.read_text(encoding="utf-8").splitlines()) < 100, file


@pytest.mark.parametrize(
    "file", sorted(CORE.rglob("*.py")), ids=lambda file: str(file.relative_to(CORE))
)
def test_core_decodes_no_format_itself(file):
    firsts = {name.partition(".")[0] for name in imported(file)}
    assert firsts & FORBIDDEN_IN_CORE == set()
    assert not {name for name in firsts if name.startswith("openreadout_")}


def test_support_package_imports_no_plugin():
    for package in SHARED:
        for file in (PLUGINS / package).rglob("*.py"):
            firsts = {name.partition(".")[0] for name in imported(file)}
            assert not {n for n in firsts if n.startswith("openreadout_")} - {package}


def test_third_party_imports_are_declared(repository):
    import tomllib

    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {requirement.split(">")[0].split("[")[0] for requirement in project["dependencies"]}
    # fsspec, ome-types and xarray come with bioio-base; the rest of the second line with the extra remote
    optional = {"dask", "xarray", "pytest", "hypothesis", "bioio_base", "fsspec", "ome_types"}
    optional |= {"aiohttp", "yarl", "s3fs", "gcsfs", "distributed"}
    known = (
        {name.replace("-", "_") for name in declared}
        | optional
        | set(sys.stdlib_module_names)
        | {"openreadout"}
    )
    for file in [*MODULES, *CORE.rglob("*.py")]:
        firsts = {name.partition(".")[0] for name in imported(file)}
        assert {n for n in firsts if not n.startswith("openreadout_")} <= known, file


# -- errors that are passed over -------------------------------------------------------------------

ENDS_WITH_IT = {
    "cli/__init__.py", "cli/common.py",  # errors become exit codes
    "operations/cells.py",  # sent to whoever asked
    "operations/remote_target.py",  # told beside the error that came first
    "openreadout_ome_zarr_writer/bucket.py",  # the same
}  # fmt: skip


def caught(handler):
    """Names of the classes that a handler catches."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {kind.id for kind in kinds if isinstance(kind, ast.Name)}


def ours(file):
    """Handlers of our own errors that do not raise, with what they catch."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ExceptHandler) or node.type is None:
            continue
        if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
            yield node, caught(node) & {"OpenReadoutError", "StorageError", "RemoteError"}


@pytest.mark.parametrize(
    "file",
    [*sorted(CORE.glob("**/*.py")), *MODULES],
    ids=lambda file: "/".join(file.parts[-2:]),
)
def test_what_is_passed_over_is_an_input_error(file):
    if "testing" in file.parts or any(file.as_posix().endswith(name) for name in ENDS_WITH_IT):
        return
    for node, wide in ours(file):
        if "RemoteError" in wide:  # the transports themselves, where a listing is not vital
            assert "remote" in file.parts, f"{file.name}:{node.lineno}"
            continue
        assert not wide, f"{file.name}:{node.lineno} passes over a server that fails"
