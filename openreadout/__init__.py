"""openreadout reads microscopy data sets (OME-Zarr, N5, OME-TIFF) and writes them as OME-Zarr.

`open` gives a data set, whose images read planes and regions as numpy arrays:

>>> import openreadout
>>> with openreadout.open("fixtures/ome-tiff/pyramid/cells.ome.tiff") as dataset:
...     plane = dataset.images[0].read_plane(c=1)
>>> plane.shape, plane.dtype
((64, 80), dtype('uint16'))
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from openreadout.api import detect as detect
    from openreadout.api import open_dataset as open  # noqa: A004
    from openreadout.api import set_limits as set_limits
    from openreadout.contracts import FormatDescriptor as FormatDescriptor
    from openreadout.errors import CorruptDataError as CorruptDataError
    from openreadout.errors import FileError as FileError
    from openreadout.errors import InputError as InputError
    from openreadout.errors import OpenReadoutError as OpenReadoutError
    from openreadout.errors import RemoteError as RemoteError
    from openreadout.errors import StorageError as StorageError
    from openreadout.errors import UnknownFormatError as UnknownFormatError
    from openreadout.errors import UnseenError as UnseenError
    from openreadout.errors import UnsupportedFeatureError as UnsupportedFeatureError
    from openreadout.errors import UsageError as UsageError
    from openreadout.errors import VerificationError as VerificationError
    from openreadout.model import Dataset as Dataset
    from openreadout.model import Image as Image

__version__ = "0.1.0"

# Loaded when they are first used: `import openreadout` and the quick commands pay for nothing else.
_PUBLIC = {
    "open": "openreadout.api:open_dataset",
    "detect": "openreadout.api:detect",
    "set_limits": "openreadout.api:set_limits",
    "Dataset": "openreadout.model:Dataset",
    "Image": "openreadout.model:Image",
    "FormatDescriptor": "openreadout.contracts:FormatDescriptor",
    "OpenReadoutError": "openreadout.errors:OpenReadoutError",
    "InputError": "openreadout.errors:InputError",
    "FileError": "openreadout.errors:FileError",
    "VerificationError": "openreadout.errors:VerificationError",
    "UsageError": "openreadout.errors:UsageError",
    "UnknownFormatError": "openreadout.errors:UnknownFormatError",
    "CorruptDataError": "openreadout.errors:CorruptDataError",
    "StorageError": "openreadout.errors:StorageError",
    "RemoteError": "openreadout.errors:RemoteError",
    "UnseenError": "openreadout.errors:UnseenError",
    "UnsupportedFeatureError": "openreadout.errors:UnsupportedFeatureError",
}

__all__ = [
    "CorruptDataError",
    "Dataset",
    "FileError",
    "FormatDescriptor",
    "Image",
    "InputError",
    "OpenReadoutError",
    "RemoteError",
    "StorageError",
    "UnknownFormatError",
    "UnseenError",
    "UnsupportedFeatureError",
    "UsageError",
    "VerificationError",
    "__version__",
    "detect",
    "open",
    "set_limits",
]


def __getattr__(name: str) -> object:
    target = _PUBLIC.get(name)
    if target is None:
        raise AttributeError(f"module 'openreadout' has no attribute {name!r}")
    import importlib

    module, _, attribute = target.partition(":")
    value: object = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
