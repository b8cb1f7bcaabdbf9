"""What `openreadout` offers to Python: opening a data set, and telling its format."""

from __future__ import annotations

import os
from dataclasses import replace

from openreadout import bounds, limits, registry
from openreadout.access import Origin
from openreadout.contracts import FormatDescriptor
from openreadout.model import Dataset
from openreadout.remote.urls import absolute


def open_dataset(path: str | os.PathLike[str], axes: str | None = None) -> Dataset:
    """Open a file, folder or archive of any known format; only its metadata is read.

    Parameters
    ----------
    path : str or path-like
    axes : str, optional
        Axis letters, fastest first (`xyzct`), for an input that does not name its own.

    Returns
    -------
    Dataset
        Use it in a `with` statement, or call its `close`.

    Raises
    ------
    StorageError
        The path is not there, or may not be read.
    UnknownFormatError
        No reader recognises it.
    CorruptDataError
        It is damaged.
    UnsupportedFeatureError
        It uses something that is not read.

    Examples
    --------
    >>> import openreadout
    >>> with openreadout.open("fixtures/n5/z5py-viewer-pyramid/pyramid.n5") as dataset:
    ...     print(dataset.format_name, len(dataset.images), dataset.images[0].axis_names)
    N5 1 zyx
    """
    name = os.fsdecode(path)
    dataset = registry.open_dataset(name, axes=axes)
    origin = Origin(open_dataset, absolute(name), axes, tuple(limits.changed().items()))
    images = tuple(replace(item, origin=(origin, n)) for n, item in enumerate(dataset.images))
    return replace(dataset, images=images, origin=origin)


def set_limits(**values: int | str) -> dict[str, int]:
    """Change how much is accepted of a file, for this process and from now on.

    Parameters
    ----------
    **values : int or str
        Limits by name, each a whole number or a size such as `"256MiB"`; docs/limits.md lists them. `MAX_ENCODED_BYTES`
        follows `MAX_CHUNK_BYTES` up unless it is given too.

    Returns
    -------
    dict of str to int
        What they were before: `set_limits(**before)` undoes it.

    Raises
    ------
    UsageError
        There is no such limit, or the value is out of its range; nothing is changed then.

    Examples
    --------
    >>> import openreadout
    >>> before = openreadout.set_limits(MAX_JSON_BYTES="256MiB")
    >>> before
    {'MAX_JSON_BYTES': 67108864}
    >>> _ = openreadout.set_limits(**before)
    """
    return bounds.set_limits(values)


def detect(path: str | os.PathLike[str]) -> FormatDescriptor:
    """Tell the format of an input from its first bytes or the names in it.

    Raises
    ------
    StorageError
        The path is not there, or may not be read.
    UnknownFormatError
        No reader recognises it; the message names a foreign format that its first bytes give away.

    Examples
    --------
    >>> import openreadout
    >>> openreadout.detect("fixtures/ome-tiff/pyramid/cells.ome.tiff").id
    'ome-tiff'
    """
    return registry.detect(os.fsdecode(path)).reader.descriptor
