"""Reader for N5 containers (N5 file-system specification 4.0.0 and older) and the conventions laid over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from openreadout.contracts import FormatDescriptor

if TYPE_CHECKING:
    from openreadout.contracts import Detection, OpenContext, Source
    from openreadout.model import Dataset


ZARR_DOCUMENTS = frozenset(("zarr.json", ".zgroup", ".zattrs", ".zarray"))


class N5Reader:
    """Opens N5 containers, groups and datasets inside them, and BigDataViewer XML files that point to one."""

    descriptor = FormatDescriptor(
        id="n5",
        name="N5",
        extensions=(".n5",),
        summary="N5 datasets, n5-viewer, COSEM, BigDataViewer, Fiji and NGFF pyramids",
        known_gaps=(
            "varlength and object blocks (strings, label multisets)",
            "rotations and shears between voxels and space",
            "containers inside a zip archive",
        ),
        # A folder may be N5 and Zarr at once: NGFF metadata makes it OME-Zarr, whose reader stands above this one.
        priority=5,
    )

    def detect(self, source: Source) -> Detection | None:
        """Look for attributes of N5 in the folder and a few folders below it, or for a BigDataViewer XML file.

        A folder with documents of Zarr and no attributes of its own is Zarr's whatever lies below: nothing is looked
        for, nor imported for it, since most inputs are of this kind.
        """
        if source.names & ZARR_DOCUMENTS and source.peek("attributes.json", 1) is None:
            return None
        from openreadout_n5.detect import detect

        return detect(source)

    def open(self, source: Source, context: OpenContext) -> Dataset:
        """Parse every attributes.json; no block is read."""
        from openreadout_n5.reader import open_source

        return open_source(source, context)


READER = N5Reader()
