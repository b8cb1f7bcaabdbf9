"""openreadout reads microscopy data sets (OME-Zarr, N5, OME-TIFF) and writes them as OME-Zarr."""

from __future__ import annotations

__version__ = "0.1.0"
