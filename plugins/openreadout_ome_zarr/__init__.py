"""Reader for OME-Zarr: Zarr v2 and v3, OME-NGFF 0.1 to 0.5, in directories and zip archives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openreadout.contracts import FormatDescriptor

if TYPE_CHECKING:
    from openreadout.contracts import Detection, OpenContext, Source
    from openreadout.model import Dataset


class OmeZarrReader:
    """Opens images, plates, collections and labels of OME-NGFF in a Zarr hierarchy."""

    descriptor = FormatDescriptor(
        id="ome-zarr",
        name="OME-Zarr",
        extensions=(".ome.zarr", ".zarr", ".ozx", ".zarr.zip"),
        summary="OME-NGFF 0.1 to 0.5 on Zarr v2 and v3, in directories and zip archives",
        known_gaps=(
            "rectilinear chunk grids and storage transformers",
            "NGFF 0.6 drafts: rotations, shears and scenes are not applied",
            "text, record and date data types are described, not read",
        ),
        priority=10,
    )

    def detect(self, source: Source) -> Detection | None:
        """Look for Zarr documents, and for the keys of NGFF in them."""
        from openreadout_ome_zarr.detect import detect

        return detect(source)

    def open(self, source: Source, context: OpenContext) -> Dataset:
        """Parse the metadata documents; no chunk is read."""
        from openreadout_ome_zarr.reader import open_source

        return open_source(source, context)


READER = OmeZarrReader()
