"""`info`: describe a data set from its metadata; no pixel is read."""

from __future__ import annotations

from dataclasses import replace

from openreadout import registry
from openreadout.results import InfoResult
from openreadout.stores import total_sizes


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
        return InfoResult(dataset, total_sizes(members), view, max_images)
