"""The exceptions of openreadout, each with the code, exit code and hint that the command line shows."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing import Self


class OpenReadoutError(Exception):
    """Anything that went wrong and is not covered by a narrower class (exit code 1).

    Parameters
    ----------
    message : str
        One sentence on what is wrong, without class names.
    hint : str, optional
        One sentence on what to do; the class has a default.
    path : str, optional
        The input or output file concerned.
    where : str, optional
        The key, IFD or byte offset inside `path`.
    format_id : str, optional
        The format whose rules are concerned.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    default_hint: ClassVar[str] = "run the command again with --debug for details"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        path: str | None = None,
        where: str | None = None,
        format_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint
        self.path = path
        self.where = where
        self.format_id = format_id

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    def lightened(self) -> Self:
        """The error without its traceback, whose frames would keep the chunk's bytes for as long as it is kept."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


class VerificationError(OpenReadoutError):
    """What was written does not read back as what was meant (exit code 1)."""

    default_hint = "the target was left as it was; check the disk and run the export again"


class UsageError(OpenReadoutError, ValueError):
    """A request that cannot be met, whatever the input holds (exit code 2)."""

    code = "usage"
    exit_code = 2
    default_hint = "openreadout COMMAND --help shows the options with examples"


class InputError(OpenReadoutError):
    """What a part of an input is to blame for: readers may pass over it, tell of it, and describe the rest.

    Nothing else may be passed over: a server that fails, memory that runs out or a wrong request say nothing of the
    data, and a description without what they kept back would be wrong. So `except OpenReadoutError` is for those who
    raise it again or end with it.
    """


class UnknownFormatError(InputError, ValueError):
    """No reader recognises the input (exit code 3)."""

    code = "unknown_format"
    exit_code = 3
    default_hint = "openreadout formats lists what can be read"


class CorruptDataError(InputError, ValueError):
    """The input breaks the rules of its own format: cut, damaged, empty (exit code 4).

    `finding` is the code under which `check` reports the error when it keeps a data set from being opened.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        path: str | None = None,
        where: str | None = None,
        format_id: str | None = None,
        finding: str = "metadata",
    ) -> None:
        super().__init__(message, hint=hint, path=path, where=where, format_id=format_id)
        self.finding = finding

    code = "corrupt_file"
    exit_code = 4
    default_hint = (
        "compare with the original or copy the data again; openreadout check lists all damage"
    )


class StorageError(OpenReadoutError, OSError):
    """The operating system refused to read or write (exit code 5)."""

    code = "io"
    exit_code = 5
    default_hint = (
        "check that the path exists, that it may be read or written, and that the disk has room"
    )

    def __str__(self) -> str:  # OSError has a __str__ of its own, which knows nothing of `where`
        return OpenReadoutError.__str__(self)


class UnseenError(StorageError):
    """What another process is known to have written is not to be seen here yet (exit code 5)."""

    default_hint = "the output must lie on a file system that shows to all what one has written"


class FileError(StorageError, InputError):
    """A file or folder that the operating system does not let us read or write (exit code 5)."""


class RemoteError(StorageError):
    """A server did not give what was asked for, after several tries (exit code 5).

    What is not there is no error; everything that leaves it open whether something is there is one.
    """

    default_hint = "check the address, the network and the permission to read, and try again"


class UnsupportedFeatureError(InputError, NotImplementedError):
    """A known format that uses something this program does not read (exit code 6)."""

    code = "unsupported_feature"
    exit_code = 6
    default_hint = "openreadout formats lists formats and codecs with their known gaps"


def storage_error(error: OSError, path: str, *, where: str | None = None) -> FileError:
    """Wrap an operating system error, with the path and a plain word for the reason."""
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    hint = _HINTS.get(error.errno or 0)
    return FileError(f"{path}: {reason}", hint=hint, path=path, where=where)


def no_more_threads() -> StorageError:
    """The error for a thread that the system does not let us start."""
    return StorageError(
        "the system lets this process start no more threads",
        hint="--threads 1 makes do with fewer; ulimit -u shows how many processes and threads a user may have",
    )


_HINTS = {
    errno.ENOENT: "check the spelling, and that the disk or share it lies on is mounted",
    errno.EACCES: "check the permissions of the file and of the folders above it",
    errno.EPERM: "check the permissions of the file and of the folders above it",
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room in your quota",
}
"""What to do about the reasons that people meet most; for the others the general hint."""
