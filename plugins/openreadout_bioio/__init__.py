"""OME-Zarr, N5 and OME-TIFF in bioio: a reader for the entry-point group `bioio.readers`. It needs the extra `bioio`.

Local files only; each image is a scene. bioio prefers a reader of fewer formats where one is installed, unless `reader`
says otherwise: `bioio.BioImage(path, reader=openreadout_bioio.Reader)`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bioio_base import constants, exceptions, io, reader, reader_metadata, types
from fsspec.implementations.local import LocalFileSystem
from ome_types import OME

import openreadout


class Reader(reader.Reader):
    """One data set; `metadata` is the `openreadout.Image` of the current scene."""

    NAME = "openreadout"

    def __init__(self, image: types.PathLike, fs_kwargs: Any = None, **kwargs: Any) -> None:
        self._fs, self._path = io.pathlike_to_fs(image, True, fs_kwargs or {})
        self._is_supported_image(self._fs, self._path)
        self._dataset = openreadout.open(self._path)

    @staticmethod
    def _is_supported_image(fs: Any, path: str, **kwargs: Any) -> bool:
        if not isinstance(fs, LocalFileSystem):
            raise exceptions.UnsupportedFileFormatError("openreadout", path, "Local files only.")
        try:
            openreadout.detect(path)
        except openreadout.OpenReadoutError as error:
            raise exceptions.UnsupportedFileFormatError("openreadout", path, str(error)) from error
        return True

    @property
    def scenes(self) -> tuple[str, ...]:
        """The images' names, or `Image:0` and so on where they are not all known and different."""
        names = [image.name or "" for image in self._dataset.images]
        known = all(names) and len(set(names)) == len(names)
        return tuple(name if known else f"Image:{n}" for n, name in enumerate(names))

    @property
    def _image(self) -> openreadout.Image:
        return self._dataset.images[self._current_scene_index]

    def set_scene(self, scene_id: str | int) -> None:
        """Choose an image by name or number; it is shown at full resolution if it lacks the level that was chosen."""
        super().set_scene(scene_id)
        if self._current_resolution_level not in self.resolution_levels:
            self.set_resolution_level(0)

    @property
    def resolution_levels(self) -> tuple[int, ...]:
        return tuple(range(len(self._image.levels)))

    def _read_delayed(self) -> Any:
        array = self._image.to_xarray(self._current_resolution_level)
        array = array.rename({name: str(name).upper() for name in array.dims})
        if "C" not in array.coords:
            array = array.assign_coords(C=[f"Channel:{n}" for n in range(array.sizes["C"])])
        return array.assign_attrs({constants.METADATA_PROCESSED: self._image})

    def _read_immediate(self) -> Any:
        return self.xarray_dask_data.compute()

    @property
    def ome_metadata(self) -> OME:
        """The source's own OME-XML, for the data that have one."""
        return OME.from_xml(xml) if (xml := self._dataset.source_xml) else super().ome_metadata

    @property
    def physical_pixel_sizes(self) -> types.PhysicalPixelSizes:
        """µm along z, y and x at the current resolution level; None where unknown."""
        image = self._image
        full, here = (image.levels[n].scale for n in (0, self._current_resolution_level))
        grown = {a: h / f for a, f, h in zip(image.axis_names, full, here, strict=True) if f and h}
        known = (image.physical_size or {}).items()
        sizes = {a: size * grown[a] for a, size in known if size and a in grown}
        return types.PhysicalPixelSizes(*map(sizes.get, "zyx"))

    @property
    def time_interval(self) -> types.TimeInterval:
        return timedelta(seconds=s) if (s := self._image.time_increment_s) else None


class ReaderMetadata(reader_metadata.ReaderMetadata):
    """What bioio asks about the reader."""

    @staticmethod
    def get_supported_extensions() -> list[str]:
        return ["ome.zarr", "zarr", "n5", "ozx", "ome.tiff", "ome.tif", "ome.tf8", "ome.btf"]

    @staticmethod
    def get_reader() -> Any:
        return Reader
