"""Finds plugins by entry point, detects the format of an input, opens data sets, looks up codecs.

`importlib.metadata` costs several times what an empty interpreter does, so entry points are read straight from the
`entry_points.txt` files that name one of our groups.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from openreadout import limits
from openreadout.codecs import CodecFactory
from openreadout.contracts import DEFINITE, Detection, OpenContext, Source
from openreadout.errors import (
    CorruptDataError,
    InputError,
    OpenReadoutError,
    UnknownFormatError,
    UnsupportedFeatureError,
    storage_error,
)
from openreadout.remote.urls import is_url, shown

if TYPE_CHECKING:
    from openreadout.contracts import Reader, Writer
    from openreadout.model import Dataset

READERS = "openreadout.readers"
WRITERS = "openreadout.writers"
CODECS = "openreadout.codecs"
GROUPS = (READERS, WRITERS, CODECS)


class EntryPoint(NamedTuple):
    """A name that a distribution registers: `module:attribute` under a group."""

    name: str
    value: str
    distribution: str

    def load(self) -> Any:
        """Import the module and return the attribute."""
        import importlib

        module, _, attribute = self.value.partition(":")
        loaded = importlib.import_module(module.strip())
        for part in attribute.split("[")[0].strip().split("."):
            loaded = getattr(loaded, part)
        return loaded


class BrokenPlugin(NamedTuple):
    """A plugin that does not import, and what it said."""

    group: str
    entry: EntryPoint
    reason: str


_CACHE: dict[str, Any] = {}


def entry_points(group: str) -> list[EntryPoint]:
    """The entry points of one of our groups, in order of name; the first distribution on the path wins a name."""
    if "entries" not in _CACHE:
        found: dict[str, dict[str, EntryPoint]] = {name: {} for name in GROUPS}
        for folder in dict.fromkeys(os.path.realpath(p) if p else os.getcwd() for p in sys.path):
            _scan(folder, found)
        _CACHE["entries"] = {
            name: [entries[key] for key in sorted(entries)] for name, entries in found.items()
        }
    return _CACHE["entries"][group]  # type: ignore[no-any-return]


def _scan(folder: str, found: dict[str, dict[str, EntryPoint]]) -> None:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in sorted(names):
        if name.endswith((".dist-info", ".egg-info")):
            try:
                with open(f"{folder}/{name}/entry_points.txt", encoding="utf-8") as file:
                    text = file.read()
            except (OSError, UnicodeDecodeError):
                continue
            if "[openreadout." in text:
                _parse_entry_points(text, name.rpartition(".")[0].partition("-")[0], found)


def _parse_entry_points(
    text: str, distribution: str, found: dict[str, dict[str, EntryPoint]]
) -> None:
    group = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            group = stripped[1:-1].strip()
        elif "=" in stripped and not stripped.startswith(("#", ";")) and group in found:
            name, _, value = stripped.partition("=")
            found[group].setdefault(
                name.strip(), EntryPoint(name.strip(), value.strip(), distribution)
            )


def _plugins(group: str) -> tuple[list[Any], list[BrokenPlugin]]:
    if group not in _CACHE:
        loaded: list[Any] = []
        broken: list[BrokenPlugin] = []
        for entry in entry_points(group):
            try:
                loaded.append(entry.load())
            except Exception as error:
                broken.append(BrokenPlugin(group, entry, f"{type(error).__name__}: {error}"))
        _CACHE[group] = (loaded, broken)
    return _CACHE[group]  # type: ignore[no-any-return]


def readers() -> list[Reader]:
    """Every reader that imports."""
    return _plugins(READERS)[0]


def writers() -> list[Writer]:
    """Every writer that imports."""
    return _plugins(WRITERS)[0]


def broken_plugins() -> list[BrokenPlugin]:
    """Every plugin that does not import, codecs included."""
    bad = [*_plugins(READERS)[1], *_plugins(WRITERS)[1]]
    for entry in entry_points(CODECS):
        try:
            find_codec(entry.name)
        except InputError as error:
            bad.append(BrokenPlugin(CODECS, entry, error.message))
    return bad


def find_writer(format_id: str) -> Writer:
    """The writer of a format; raises `UnsupportedFeatureError` for one we lack."""
    for writer in writers():
        if writer.descriptor.id == format_id:
            return writer
    raise UnsupportedFeatureError(
        f"there is no writer for {format_id}", hint="openreadout formats lists the writers"
    )


def find_codec(name: str) -> CodecFactory:
    """The factory of a codec by name; an alias in the entry points is a name like any other.

    Raises
    ------
    UnsupportedFeatureError
        No plugin offers the codec, or the plugin does not import.
    """
    known: dict[str, CodecFactory] = _CACHE.setdefault("codecs", {})
    if name not in known:
        entry = next((e for e in entry_points(CODECS) if e.name == name), None)
        if entry is None and name.startswith("numcodecs."):
            entry = next((e for e in entry_points(CODECS) if e.name == "numcodecs.*"), None)
        if entry is None:
            raise UnsupportedFeatureError(
                f"codec {name} is not supported",
                hint="openreadout formats lists the codecs; a plugin can add one",
            )
        try:
            known[name] = entry.load()
        except Exception as error:
            raise UnsupportedFeatureError(
                f"codec {name} cannot be loaded ({type(error).__name__}: {error})"
            ) from error
    return known[name]


def open_context(axes: str | None = None, *, older: bool = False) -> OpenContext:
    """What readers are handed."""
    return OpenContext(lookup=find_codec, axes=axes, older=older)


# -- detection -------------------------------------------------------------------------------------


def make_source(path: str, *, trust_consolidated: bool = False) -> Source:
    """Look at an input: its kind, its first 64 KiB or the names in it.

    Raises
    ------
    StorageError
        It is not there, may not be read, or is neither a file nor a folder; or a server fails.
    CorruptDataError
        A file without a single byte.
    UsageError
        It is a URL, and what reads those is not installed.
    """
    if is_url(path):
        return _remote_source(path, trust_consolidated)
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            names = []
            with os.scandir(path) as entries:
                for entry in entries:
                    names.append(entry.name)
                    if len(names) >= limits.MAX_ROOT_NAMES:
                        break
            return Source(path, True, 0, b"", frozenset(names), _peeker(path))
        if not stat.S_ISREG(status.st_mode):
            raise CorruptDataError(f"{path}: neither a file nor a folder", path=path)
        with open(path, "rb") as file:
            head = file.read(limits.HEAD_BYTES)
    except ValueError as error:
        if isinstance(error, OpenReadoutError):
            raise
        raise storage_error(OSError(str(error)), path) from error
    except OSError as error:
        raise storage_error(error, path) from error
    if not head:
        raise CorruptDataError(
            f"{path}: the file is empty (0 bytes)",
            path=path,
            hint="the copy or the writing of it failed",
        )
    return Source(path, False, status.st_size, head)


def _remote_source(url: str, trust_consolidated: bool) -> Source:
    from openreadout.remote.look import look_at

    look = look_at(url, trust_consolidated=trust_consolidated)
    if look.file is not None:
        head = look.file.read(0, limits.HEAD_BYTES)
        if not head:
            raise CorruptDataError(f"{shown(url)}: the file is empty (0 bytes)", path=url)
        return Source(url, False, look.file.size, head, file=look.file)
    store = look.store

    def peek(name: str, limit: int) -> bytes | None:
        # of what is known to be absent nothing is asked
        asked = store is not None and ("/" in name or name in look.names)
        return store.get_range(name, 0, limit) if asked and store is not None else None

    return Source(look.url, True, 0, b"", look.names, peek, store=store)


def _peeker(path: str) -> Any:
    def peek(name: str, limit: int) -> bytes | None:
        from openreadout.stores import DirectoryStore

        try:
            return DirectoryStore(path).get_range(name, 0, limit)
        except InputError:
            return None

    return peek


def _without(source: Source, hidden: str) -> Source:
    """The source as if a file were not in its folder."""
    peek = source.peek
    return replace(
        source,
        names=source.names - {hidden},
        peek=lambda name, limit: None if name == hidden else peek(name, limit),
    )


class Detected(NamedTuple):
    """A reader that recognises a source, and what it says."""

    reader: Reader
    detection: Detection


def detect_all(source: Source) -> list[Detected]:
    """Every reader that recognises the source, the surest first."""
    found = [
        Detected(reader, said)
        for reader in readers()
        if (said := reader.detect(source)) is not None
    ]
    return sorted(found, key=lambda d: (-d.detection.confidence, -d.reader.descriptor.priority))


def detect(path: str) -> Detected:
    """The reader for an input.

    Raises
    ------
    StorageError
        It cannot be read.
    UnknownFormatError
        No reader recognises it; the message names a foreign format that its first bytes give away.
    """
    return _choose(make_source(path))[0]


def _choose(source: Source) -> list[Detected]:
    found = detect_all(source)
    if not found:
        raise _unknown(source)
    return found


def open_dataset(
    path: str, *, axes: str | None = None, older: bool = False, trust_consolidated: bool = False
) -> Dataset:
    """Detect the format of an input and open it; only metadata is read.

    With `older`, documents of Zarr v3 are looked past where others stand beside them. `trust_consolidated` is for
    inputs behind a URL: consolidated metadata stand for all metadata there.

    Raises
    ------
    StorageError, UnknownFormatError, CorruptDataError, UnsupportedFeatureError
    """
    if is_url(path):
        from openreadout.remote.transport import Watch

        with Watch() as watch:
            dataset = _open_dataset(path, axes, older, trust_consolidated)
            try:
                watch.settle()
            except OpenReadoutError:
                dataset.close()
                raise
        return dataset
    return _open_dataset(path, axes, older, trust_consolidated)


def _open_dataset(path: str, axes: str | None, older: bool, trust_consolidated: bool) -> Dataset:
    source = make_source(path, trust_consolidated=trust_consolidated)
    found = (older and detect_all(_without(source, "zarr.json"))) or _choose(source)
    try:
        dataset = found[0].reader.open(source, open_context(axes, older=older))
    except OpenReadoutError as error:
        error.path = error.path or path
        error.format_id = error.format_id or found[0].reader.descriptor.id
        raise
    others = [d.reader.descriptor.name for d in found[1:] if d.detection.confidence >= DEFINITE]
    if others and found[0].detection.confidence >= DEFINITE:
        note = f"the data set can also be read as {', '.join(others)}; it was read as {dataset.format_name}"
        dataset = replace(dataset, notes=(*dataset.notes, note))
    return dataset


_FOREIGN: tuple[tuple[bytes, int, str, str], ...] = (
    (b"ZISRAWFILE", 0, "Zeiss CZI", "bioformats2raw or czi2zarr converts it"),
    (
        b"\xda\xce\xbe\x0a",
        0,
        "Nikon ND2",
        "bioformats2raw converts it, and the Python package nd2 reads it",
    ),
    (
        b"\x0a\xbe\xce\xda",
        0,
        "Nikon ND2",
        "bioformats2raw converts it, and the Python package nd2 reads it",
    ),
    (b"jP  \r\n\x87\n", 4, "JPEG 2000 (old ND2 files too)", "bioformats2raw converts it"),
    (
        b"\x89HDF\r\n\x1a\n",
        0,
        "HDF5 (Imaris .ims and BigDataViewer .h5 are of this kind)",
        "bioformats2raw converts .ims and .h5",
    ),
    (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        0,
        "an OLE container (Olympus OIB, Zeiss ZVI, old Office)",
        "bioformats2raw converts .oib and .zvi",
    ),
    (
        b"\x89PNG\r\n\x1a\n",
        0,
        "PNG",
        "tifffile's or ImageJ's OME-TIFF export brings it into a microscopy format",
    ),
    (b"\xff\xd8\xff", 0, "JPEG", "ImageJ's OME-TIFF export brings it into a microscopy format"),
    (b"DICM", 128, "DICOM", "bioformats2raw or wsidicomizer converts it"),
    (b"NRRD000", 0, "NRRD", "bioformats2raw converts it"),
    (b"ICRC", 0, "an Icechunk repository", "open it with the icechunk package and copy the arrays"),
    (b"\x93NUMPY", 0, "a numpy array", "save it as OME-Zarr with ome-zarr-py"),
    (b"%PDF", 0, "PDF", "no image data is expected in it"),
    (b"\x1f\x8b", 0, "gzip", "unpack it first"),
    (b"\xfd7zXZ\x00", 0, "xz", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", 0, "zstd", "unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", 0, "7-Zip", "unpack it first"),
    (b"Rar!", 0, "RAR", "unpack it first"),
    (
        b"PK\x03\x04",
        0,
        "a zip archive without Zarr metadata",
        "unpack it, and look for images inside",
    ),
    (b"PK\x05\x06", 0, "an empty zip archive", "zip the data again"),
    (b"GIF8", 0, "GIF", "ImageJ's OME-TIFF export brings it into a microscopy format"),
    (b"BM", 0, "BMP", "ImageJ's OME-TIFF export brings it into a microscopy format"),
    (b"SIMPLE  =", 0, "FITS", "bioformats2raw converts it"),
)


def _unknown(source: Source) -> UnknownFormatError:
    if source.is_directory:
        if not source.names:
            return UnknownFormatError(f"{source.path}: the folder is empty", path=source.path)
        if "repo" in source.names and "snapshots" in source.names:
            return UnknownFormatError(
                f"{source.path}: an Icechunk repository, which no reader here opens",
                path=source.path,
                hint="open it with the icechunk package and copy the arrays",
            )
        return UnknownFormatError(
            f"{source.path}: no reader recognises this folder",
            path=source.path,
            hint="give the folder of the data set itself, or -r to look for data sets below it",
        )
    head = source.head
    if head[:4] == b"\x70\x00\x00\x00" and head[8:9] == b"\x2a":
        return _foreign(source, "Leica LIF", "bioformats2raw converts it")
    for magic, offset, name, hint in _FOREIGN:
        if head[offset : offset + len(magic)] == magic:
            return _foreign(source, name, hint)
    text = b"\0" not in head and _is_text(head)
    hint = f"{'it reads as plain text; ' if text else ''}openreadout formats lists what can be read"
    return UnknownFormatError(
        f"{source.path}: no reader recognises this file", path=source.path, hint=hint
    )


def _foreign(source: Source, name: str, hint: str) -> UnknownFormatError:
    return UnknownFormatError(
        f"{source.path}: this is {name}, which no reader here opens", path=source.path, hint=hint
    )


def _is_text(head: bytes) -> bool:
    try:
        head[:-4].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
