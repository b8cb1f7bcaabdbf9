"""`info`: describe a data set from its metadata; no pixel is read."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from openreadout import registry
from openreadout.arrays import AxisView
from openreadout.encoded import EncodedArray
from openreadout.results import InfoResult
from openreadout.stores import sizes_below, total_sizes

if TYPE_CHECKING:
    from openreadout.model import Dataset


def describe(
    path: str,
    *,
    view: str = "summary",
    max_images: int | None = None,
    axes: str | None = None,
    trust_consolidated: bool = False,
) -> InfoResult:
    """Open an input and describe it.

    Raises
    ------
    StorageError, UnknownFormatError, CorruptDataError, UnsupportedFeatureError
    """
    with registry.open_dataset(path, axes=axes, trust_consolidated=trust_consolidated) as dataset:
        members = dataset.members or (dataset.path,)
        if view in ("structure", "full") and dataset.structure is not None:
            tree = (
                dataset.structure()
            )  # while the files are open; later they would be opened again and stay so
            dataset = replace(dataset, structure=lambda: tree)
        places = _places(dataset)
        if not places or dataset.members or not os.path.isdir(dataset.path):
            return InfoResult(dataset, total_sizes(members), view, max_images)
        size, below = sizes_below(dataset.path, {*places.values()})
        stored = {place: below[key] for place, key in places.items()}
        return InfoResult(dataset, size, view, max_images, stored)


def _places(dataset: Dataset) -> dict[tuple[int, int], str]:
    """Where in the data set's store each level of each image lies; levels that share a place are left out."""
    found: dict[tuple[int, int], str] = {}
    for n, image in enumerate(dataset.images):
        for k, level in enumerate(image.levels):
            array = level.array
            while isinstance(array, AxisView):
                array = array.array
            if isinstance(array, EncodedArray) and array.store.path == dataset.path:
                found[n, k] = array.path
    used = Counter(found.values())
    return {place: key for place, key in found.items() if used[key] == 1}
