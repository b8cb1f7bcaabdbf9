"""Exceptions: codes, exit codes, hints, built-in bases."""

from __future__ import annotations

import errno
import inspect
import pickle

import pytest

from openreadout import errors
from openreadout.errors import (
    CorruptDataError,
    FileError,
    InputError,
    OpenReadoutError,
    RemoteError,
    StorageError,
    UnknownFormatError,
    UnseenError,
    UnsupportedFeatureError,
    UsageError,
    VerificationError,
)

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, OpenReadoutError)
]
CONTRACT = {
    OpenReadoutError: ("error", 1, Exception),
    VerificationError: ("error", 1, Exception),
    UsageError: ("usage", 2, ValueError),
    UnknownFormatError: ("unknown_format", 3, ValueError),
    CorruptDataError: ("corrupt_file", 4, ValueError),
    RemoteError: ("io", 5, OSError),
    StorageError: ("io", 5, OSError),
    InputError: ("error", 1, Exception),
    FileError: ("io", 5, OSError),
    UnseenError: ("io", 5, OSError),
    UnsupportedFeatureError: ("unsupported_feature", 6, NotImplementedError),
}


@pytest.mark.parametrize("cls", CONTRACT, ids=lambda cls: cls.__name__)
def test_class_has_code_exit_code_and_built_in_base(cls):
    code, exit_code, base = CONTRACT[cls]
    assert (cls.code, cls.exit_code) == (code, exit_code)
    assert issubclass(cls, base)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_class_is_in_the_contract_and_has_a_hint(cls):
    assert cls in CONTRACT
    assert cls("x").hint == cls.default_hint
    assert cls("x").hint
    assert cls("x", hint="do that").hint == "do that"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_place_stands_before_the_message(cls):
    error = cls("it is cut short", where="0/c/1", path="a.zarr")
    assert str(error) == "0/c/1: it is cut short"
    assert str(cls("it is cut short")) == "it is cut short"
    assert (error.where, error.path, error.format_id) == ("0/c/1", "a.zarr", None)


def test_operating_system_error_keeps_its_reason():
    cause = OSError(errno.ENOSPC, "No space left on device")
    error = errors.storage_error(cause, "/data/x", where="0/0")
    assert isinstance(error, StorageError)
    assert error.message == "/data/x: no space left on device"
    assert error.where == "0/0"


def test_operating_system_error_without_text_still_says_something():
    assert errors.storage_error(TimeoutError(), "x").message == "x: timeouterror"


def test_errors_are_caught_as_built_in_ones():
    with pytest.raises(OSError, match="gone"):
        raise StorageError("gone")
    with pytest.raises(ValueError, match="cut"):
        raise CorruptDataError("cut")


def test_error_survives_pickling():
    """Worker processes hand errors back this way."""
    error = pickle.loads(pickle.dumps(UsageError("x")))
    assert isinstance(error, UsageError)
    assert str(error) == "x"


def test_readers_may_pass_over_parts_of_an_input_and_nothing_else():
    passed = {cls for cls in CLASSES if issubclass(cls, InputError)}
    assert passed == {
        InputError,
        CorruptDataError,
        FileError,
        UnknownFormatError,
        UnsupportedFeatureError,
    }
    assert issubclass(FileError, StorageError)
    assert issubclass(RemoteError, StorageError)
