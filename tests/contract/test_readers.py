"""Every registered reader over every fixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from openreadout import registry
from openreadout.testing import find_cases, reader_checks

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CHECKS = [check for reader in registry.readers() for check in reader_checks(reader, FIXTURES)]


@pytest.mark.parametrize("check", [pytest.param(run, id=name) for name, run in CHECKS])
def test_reader_keeps_its_contract(check):
    check()


def test_every_reader_has_a_fixture():
    folders = {case.format_id for case in find_cases(FIXTURES)}
    assert {reader.descriptor.id for reader in registry.readers()} <= folders


def test_every_folder_of_fixtures_has_a_reader():
    ids = {reader.descriptor.id for reader in registry.readers()}
    assert {case.format_id for case in find_cases(FIXTURES)} <= ids


def test_every_case_tells_its_origin():
    missing = [
        str(document.parent)
        for document in FIXTURES.glob("*/*/expected.json")
        if not (document.parent / "ORIGIN.md").is_file()
    ]
    assert missing == []


def test_no_registered_plugin_is_broken():
    assert registry.broken_plugins() == []
