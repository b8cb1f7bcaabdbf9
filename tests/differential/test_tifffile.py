"""OME-TIFF files that tifffile writes, in all the ways it can, read by us and by tifffile."""

from __future__ import annotations

import math
import tempfile

import numpy as np
import tifffile
from hypothesis import given
from hypothesis import strategies as st

from openreadout import registry
from openreadout.arrays import read_region

DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64", "complex64")
COMPRESSIONS = (None, "zlib", "adobe_deflate", "lzw", "packbits", "zstd", "lzma")


@st.composite
def pictures(draw):
    axes = "".join(a for a in draw(st.permutations("TCZ")) if draw(st.booleans())) + "YX"
    shape = tuple(draw(st.integers(1, 3 if a in "TCZ" else 40)) for a in axes)
    dtype = draw(st.sampled_from(DTYPES))
    data = (np.arange(math.prod(shape)) * 37 % 1009).astype(dtype).reshape(shape)
    if draw(st.integers(0, 3)) == 0 and dtype in ("uint8", "uint16"):
        axes, data = f"{axes}S", np.stack([data, data[..., ::-1], data * 2], axis=-1)
    return axes, np.ascontiguousarray(data)


@st.composite
def options(draw, axes, data):
    chosen = {"compression": draw(st.sampled_from(COMPRESSIONS))}
    chosen["photometric"] = "rgb" if axes.endswith("S") else "minisblack"
    if draw(st.booleans()):
        chosen["tile"] = (draw(st.sampled_from([16, 32])), draw(st.sampled_from([16, 48])))
    else:
        chosen["rowsperstrip"] = draw(st.integers(1, 50))
    predictable = chosen["compression"] in ("zlib", "adobe_deflate", "lzw", "zstd", "lzma")
    if predictable and data.dtype.kind in "iuf" and draw(st.booleans()):
        chosen["predictor"] = 3 if data.dtype.kind == "f" else 2
    return chosen


@given(st.data())
def test_file_is_read(data):
    axes, picture = data.draw(pictures())
    chosen = data.draw(options(axes, picture))
    form = {"bigtiff": data.draw(st.booleans()), "byteorder": data.draw(st.sampled_from("<>"))}
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/a.ome.tif"
        with tifffile.TiffWriter(file, ome=True, **form) as tif:
            tif.write(picture, metadata={"axes": axes}, **chosen)
        with tifffile.TiffFile(file) as tif:
            theirs = tif.series[0].asarray().reshape(picture.shape)
        with registry.open_dataset(file) as dataset:
            (image,) = dataset.images
            array = image.levels[0].array
            found = read_region(array, tuple((0, n) for n in array.shape))
        names = image.axis_names
    assert np.array_equal(theirs, picture)
    assert found.dtype == picture.dtype
    assert np.array_equal(found, normalized(picture, axes.lower(), names))


def normalized(picture, axes, names):
    """The picture in the order of `names`, with axes of length 1 for those it does not have."""
    order = [axes.index(a) for a in names if a in axes]
    turned = np.transpose(picture, order)
    return np.expand_dims(turned, [n for n, a in enumerate(names) if a not in axes])
