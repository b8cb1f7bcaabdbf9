"""Reader for OME-TIFF: one file, sets of files, companion files, pyramids.

Nothing but the descriptor and the detection is imported before the first data set is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openreadout.contracts import FormatDescriptor

if TYPE_CHECKING:
    from openreadout.contracts import Detection, OpenContext, Source
    from openreadout.model import Dataset


class OmeTiffReader:
    """Opens OME-TIFF files and companion files."""

    descriptor = FormatDescriptor(
        id="ome-tiff",
        name="OME-TIFF",
        extensions=(".ome.tif", ".ome.tiff", ".ome.tf2", ".ome.tf8", ".ome.btf", ".companion.ome"),
        summary="TIFF and BigTIFF files with OME-XML, alone, in sets, or with a companion file",
        known_gaps=(
            "old-style JPEG (compression 6), Jetraw and EER are not decoded",
            "IFDs that hold a volume (ImageDepth) are not read",
            "pixels inside the XML (BinData) are not read",
        ),
    )

    def detect(self, source: Source) -> Detection | None:
        """Look for a TIFF header with OME-XML behind it, or an XML document whose root is OME."""
        head = source.head
        if source.is_directory or not head:
            return None
        if head[:2] not in (b"II", b"MM") and b"<" not in head[:2048] and head[:2] != b"\xff\xfe":
            return None
        from openreadout_ome_tiff.detect import detect

        return detect(source)

    def open(self, source: Source, context: OpenContext) -> Dataset:
        """Open the data set that the file belongs to."""
        from openreadout_ome_tiff.reader import open_source

        return open_source(source)


READER = OmeTiffReader()
