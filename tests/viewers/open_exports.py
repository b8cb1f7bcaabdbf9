"""Opens exports in napari-ome-zarr, ome-zarr-py, napari and neuroglancer; see README.md beside this file.

python tests/viewers/open_exports.py FOLDER
"""

from __future__ import annotations

import functools
import http.server
import io
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tifffile

import openreadout

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SOURCES = [
    FIXTURES / "ome-tiff/pyramid/cells.ome.tiff",
    FIXTURES / "ome-tiff/rgb-planar/image.ome.tiff",
    FIXTURES / "ome-zarr/v2-blosc-channels/cells.ome.zarr",
    FIXTURES / "ome-zarr/v3-labels/labelled.zarr",
    FIXTURES / "n5/z5py-viewer-pyramid/pyramid.n5",
]
CELLS = 12


def draw(path, noise, edge):
    """A picture of cells, 2 channels of 512 × 768, as OME-TIFF: nuclei and bodies; `edge` is how hard they end."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[:512, :768]
    nuclei, bodies = np.zeros(y.shape), np.zeros(y.shape)
    for row in range(3):
        for column in range(4):
            away = np.hypot(y - 85 - 170 * row, x - 96 - 192 * column)
            nuclei += np.exp(-((away / 26) ** edge))
            bodies += 0.6 * np.exp(-((away / 62) ** edge))
    data = np.stack([nuclei, bodies]) * 3000 + rng.normal(200, noise, (2, 512, 768))
    tifffile.imwrite(
        path,
        data.clip(0, 4095).astype(np.uint16),
        tile=(256, 256),
        compression="zlib",
        metadata={
            "axes": "CYX",
            "Channel": {"Name": ["nuclei", "bodies"]},
            "PhysicalSizeX": 0.25,
            "PhysicalSizeY": 0.25,
        },
    )


def export(source, target, *options):
    """Run the program as people do."""
    command = [sys.executable, "-m", "openreadout", "export", source, "--to", "ome-zarr", "-o", target]  # fmt: skip
    subprocess.run(
        [*command, "--overwrite", "--quiet", *options], check=True, stdout=subprocess.DEVNULL
    )
    return target


def same(name, theirs, ours):
    """Compare a viewer's arrays with ours, axes of length 1 left out."""
    assert len(theirs) == len(ours), f"{name}: {len(theirs)} levels, expected {len(ours)}"
    for level, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        a, b = np.squeeze(np.asarray(their)), np.squeeze(np.asarray(our))
        assert a.shape == b.shape, f"{name}: level {level} is {a.shape}, expected {b.shape}"
        assert np.array_equal(a, b), f"{name}: level {level} differs"
    print(f"  {name}: {len(ours)} levels are the same")


def levels(image):
    """All levels as this program reads them; the samples of colour as channels, as exports have them."""
    arrays = [image.read_region(level) for level in range(len(image.levels))]
    return [np.moveaxis(a[:, 0], -1, 1) if "s" in image.axis_names else a for a in arrays]


def napari_ome_zarr(path, dataset):
    """The reader of napari-ome-zarr; label images come as labels layers."""
    from napari_ome_zarr._reader import napari_get_reader

    layers = napari_get_reader(str(path))(str(path))
    kinds = [layer[2] if len(layer) > 2 else "image" for layer in layers]
    assert kinds == ["labels" if image.label else "image" for image in dataset.images], kinds
    for layer, image in zip(layers, dataset.images, strict=True):
        data = layer[0] if isinstance(layer[0], list) else [layer[0]]
        same("napari-ome-zarr", data, levels(image))


def ome_zarr_py(path, dataset):
    """The reader of ome-zarr-py: nodes that have data, the image before its labels."""
    from ome_zarr.io import parse_url
    from ome_zarr.reader import Reader

    nodes = [node for node in Reader(parse_url(str(path)))() if node.data]
    assert len(nodes) == len(dataset.images), f"{len(nodes)} nodes"
    for node, image in zip(nodes, dataset.images, strict=True):
        same("ome-zarr-py", node.data, levels(image))


def napari(path, dataset):
    """napari's viewer without a window, with the reader of this distribution, on the source itself."""
    from napari.components import ViewerModel
    from napari.plugins import _initialize_plugins

    _initialize_plugins()
    layers = ViewerModel().open(str(path), plugin="openreadout-microscopy")
    at = iter(layers)
    for image in dataset.images:
        split = "c" in image.axis_names and not image.label
        whole = [image.read_region(level) for level in range(len(image.levels))]
        for channel in range(image.size("c") if split else 1):
            layer = next(at)
            data = list(layer.data) if layer.multiscale else [layer.data]
            same(f"napari, {layer.name}", data, [a[:, channel] if split else a for a in whole])
    assert next(at, None) is None, "more layers than images and channels"


class Files(http.server.SimpleHTTPRequestHandler):
    """Files for a page from elsewhere, in parts, as object stores give them."""

    def end_headers(self):
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Access-Control-Expose-Headers", "*")
        super().end_headers()

    def log_message(self, *arguments):
        pass


@contextmanager
def served(folder):
    """The address of a server of a folder on this machine."""
    from RangeHTTPServer import RangeRequestHandler

    handler = type("Handler", (Files, RangeRequestHandler), {})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


@contextmanager
def browser(address, profile):
    """A headless Chromium at an address, with WebGL in software."""
    command = [shutil.which("chromium"), "--headless=new", "--use-angle=swiftshader"]
    command += ["--enable-unsafe-swiftshader", "--ignore-gpu-blocklist", "--window-size=900,700"]
    command += [f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    process = subprocess.Popen([*command, address], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


def neuroglancer(url, picture, profile):
    """What neuroglancer draws of the cells, as a PNG file; the bright nuclei in it are counted."""
    import neuroglancer
    from PIL import Image
    from scipy import ndimage

    neuroglancer.set_server_bind_address("127.0.0.1")
    viewer = neuroglancer.Viewer()
    with viewer.txn() as state:
        state.layers["cells"] = neuroglancer.ImageLayer(
            source=url,
            local_dimensions=neuroglancer.CoordinateSpace(names=["c'"], units=[""], scales=[1]),
            local_position=[0],
            shader="#uicontrol invlerp normalized(range=[0, 3000])\nvoid main() { emitGrayscale(normalized()); }",
        )
        state.dimensions = neuroglancer.CoordinateSpace(
            names=["x", "y", "z", "t"], units=["um", "um", "", ""], scales=[0.25, 0.25, 1, 1]
        )
        state.position = [384, 256, 0, 0]
        state.cross_section_scale = 1
        state.layout = "xy"
        state.show_axis_lines = state.show_scale_bar = state.show_default_annotations = False
    came = threading.Event()
    replies = []
    with browser(str(viewer), profile):
        viewer.async_screenshot(lambda reply: (replies.append(reply), came.set()))
        assert came.wait(90), "neuroglancer drew nothing in 90 s"
    data = replies[0].screenshot.image
    picture.write_bytes(data)
    grey = np.asarray(Image.open(io.BytesIO(data)).convert("L"))
    _, found = ndimage.label(ndimage.binary_opening(grey > 150, iterations=2))
    print(f"  neuroglancer: {found} nuclei of {CELLS} in {picture}")
    assert found == CELLS, f"{picture} shows {found} nuclei, not {CELLS}"


def attempt(failures, name, action, *arguments):
    """Go on after a failure, and remember it."""
    try:
        action(*arguments)
    except Exception as error:  # whatever a viewer raises is a finding
        failures.append(name)
        print(f"  {name}: {type(error).__name__}: {error}")


def main():
    """Export, open, compare."""
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    draw(out / "drawn.ome.tiff", noise=30, edge=4)
    draw(out / "clean.ome.tiff", noise=0, edge=100)
    failures = []
    for number, source in enumerate([out / "drawn.ome.tiff", *SOURCES]):
        with openreadout.open(source) as dataset:
            print(source.name)
            attempt(failures, f"napari on {source}", napari, source, dataset)
        for version in ("0.5", "0.4"):
            path = export(source, out / f"{number}-{version}.ome.zarr", "--ngff", version)
            with openreadout.open(path) as exported:
                attempt(failures, f"napari-ome-zarr on {path}", napari_ome_zarr, path, exported)
                attempt(failures, f"ome-zarr-py on {path}", ome_zarr_py, path, exported)
    if shutil.which("chromium") is None:
        print("no chromium on the path: neuroglancer is left out")
    else:
        # neuroglancer 2.41 looks in the wrong place in ZIP64 archives of more than 64 KiB
        archive = export(out / "clean.ome.tiff", out / "clean.ozx", "--codec", "zstd:9")
        assert archive.stat().st_size < 65536
        with served(out) as address:
            cases = {"0-0.5.ome.zarr": "/", "0-0.4.ome.zarr": "/", "clean.ozx": "|zip:|zarr3:"}
            for name, inside in cases.items():
                arguments = f"{address}/{name}{inside}", out / f"{name}.png", out / "profile"
                attempt(failures, f"neuroglancer on {name}", neuroglancer, *arguments)
    if failures:
        raise SystemExit("failed: " + "; ".join(failures))


if __name__ == "__main__":
    main()
