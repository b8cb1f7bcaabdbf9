"""The target of an export on disk: where it may lie, its temporary sibling, and the final rename."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator

from openreadout.errors import OpenReadoutError, StorageError, UsageError, storage_error
from openreadout.system import sync_folder

ARCHIVES = (".ozx", ".zip")


def default_output(path: str) -> str:
    """`<stem>.ome.zarr` beside the input; the input's own name is never taken."""
    folder, name = os.path.split(os.path.abspath(path))
    lower = name.lower()
    for ending in (
        ".companion.ome", ".ome.tiff", ".ome.tif", ".ome.btf", ".ome.zarr.zip", ".ome.zarr", ".zarr.zip", ".ome.xml",
        ".ozx", ".zarr", ".n5", ".tiff", ".tif", ".btf", ".tf8", ".tf2", ".ome", ".zip", ".xml",
    ):  # fmt: skip
        if lower.endswith(ending) and len(name) > len(ending):
            name = name[: -len(ending)]
            break
    target = os.path.join(folder, f"{name}.ome.zarr")
    if os.path.abspath(path) == target:
        target = os.path.join(folder, f"{name}.export.ome.zarr")
    return target


def guard(source: str, members: tuple[str, ...], target: str, *, overwrite: bool) -> None:
    """Refuse a target that could harm the source, or that is there and may not be replaced.

    Raises
    ------
    UsageError
        It is the source, lies inside it or holds it, exists without `overwrite`, or is a link or a mount point.
    StorageError
        The folder that it is to lie in does not exist.
    """
    real = os.path.realpath(target)
    for input_path in (source, *members):
        original = os.path.realpath(input_path)
        if real == original or _inside(real, original) or _inside(original, real):
            raise UsageError(
                f"{target}: the target must not be, hold or lie inside the input {source}",
                hint="choose another place with -o",
            )
    folder = os.path.dirname(os.path.abspath(target))
    if not os.path.isdir(folder):
        raise StorageError(
            f"{target}: the folder {folder} does not exist",
            path=target,
            hint="make the folder first",
        )
    if not os.path.lexists(target):
        return
    if not overwrite:
        raise UsageError(
            f"{target}: already exists",
            hint="--overwrite replaces it once the new store is complete",
        )
    if os.path.islink(target) or os.path.ismount(target):
        raise UsageError(
            f"{target}: a link or a mount point is not replaced",
            hint="choose another place with -o",
        )
    if os.path.isdir(target) and not _replaceable(target):
        raise UsageError(
            f"{target}: a folder that is no Zarr store is not replaced",
            hint="remove it yourself, or choose another place",
        )


def _inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _replaceable(folder: str) -> bool:
    """Whether a folder looks like a store, so that --overwrite cannot take a home directory away."""
    names = set(os.listdir(folder))
    return not names or bool(names & {"zarr.json", ".zgroup", ".zattrs", ".zarray"})


@contextlib.contextmanager
def partial_output(target: str, *, overwrite: bool) -> Iterator[str]:
    """Give a temporary sibling to write to, and rename it to the target at the end.

    When the body raises, whatever stands under the sibling's name is removed and the target is as it was.
    """
    folder, name = os.path.split(os.path.abspath(target))
    partial = os.path.join(folder, f".{name}.partial-{secrets.token_hex(4)}")
    try:
        yield partial
        _commit(partial, target, overwrite=overwrite)
    except BaseException:
        remove(partial)
        raise


def _commit(partial: str, target: str, *, overwrite: bool) -> None:
    """Rename into place; an old output is moved aside first and put back if that fails."""
    aside: str | None = None
    try:
        if os.path.lexists(target):
            if not overwrite:
                raise UsageError(
                    f"{target}: appeared while it was being written",
                    hint="choose another place with -o",
                )
            folder, name = os.path.split(os.path.abspath(target))
            aside = os.path.join(folder, f".{name}.old-{secrets.token_hex(4)}")
            os.rename(target, aside)
        try:
            _rename_new(partial, target)
        except BaseException:
            if aside is not None:
                os.rename(aside, target)
            raise
    except OpenReadoutError:
        raise
    except OSError as error:
        raise storage_error(error, target) from error
    if aside is not None:
        remove(aside)


def _rename_new(partial: str, target: str) -> None:
    """Rename to a name that must not exist; a file must not silently replace one that has just appeared."""
    if os.path.isfile(partial):
        try:
            os.link(partial, target)
        except FileExistsError:
            raise UsageError(f"{target}: appeared while it was being written") from None
        except OSError:  # a file system without hard links
            os.rename(partial, target)
        else:
            os.unlink(partial)
    else:
        os.rename(partial, target)
    with contextlib.suppress(OSError):
        sync_folder(os.path.dirname(os.path.abspath(target)))


def remove(path: str) -> None:
    """Remove a file or a folder of ours; what cannot be removed is left."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


def free_bytes(folder: str) -> int | None:
    """Free space of the disk that a folder lies on."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
