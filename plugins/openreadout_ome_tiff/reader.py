"""Open an OME-TIFF data set: find its metadata and its files, place its planes, and describe its images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from openreadout import limits
from openreadout.codecs import ITEM_BYTES
from openreadout.errors import (
    CorruptDataError,
    InputError,
    OpenReadoutError,
    UnsupportedFeatureError,
)
from openreadout.model import (
    WIDENED,
    Axis,
    Channel,
    Dataset,
    Finding,
    Image,
    ResolutionLevel,
)
from openreadout_ome_tiff.array import Pages, PlaneKey, PlaneRef, TiffArray
from openreadout_ome_tiff.detect import OME_ROOT, foreign_kind, is_tiff
from openreadout_ome_tiff.files import File, Handles, file_name, folder_of
from openreadout_ome_tiff.ifd import IMAGE_DESCRIPTION, TiffFile
from openreadout_ome_tiff.levels import find_levels
from openreadout_ome_tiff.members import Members, find_companion
from openreadout_ome_tiff.page import PageLayout, dtype_name, read_layout
from openreadout_ome_tiff.planes import MAX_ABSENT, PlaneTable, build_table
from openreadout_ome_tiff.words import list_planes

if TYPE_CHECKING:
    from openreadout.contracts import Source
    from openreadout_ome_xml import OmeDocument, OmeImage, TiffData

DTYPES = {
    "bit": "bool", "int8": "int8", "int16": "int16", "int32": "int32", "uint8": "uint8", "uint16": "uint16",
    "uint32": "uint32", "float": "float32", "double": "float64", "complex": "complex64",
    "double-complex": "complex128",
}  # fmt: skip
"""numpy names of OME's pixel types; spellings of older schemas are the same."""
CHECKS = ("ome_xml", "planes", "members", "ifd_chain", "offsets", "xml_against_tags")


@dataclass(slots=True)
class OpenedImage:
    """One image with what `check` needs beyond the model."""

    image: Image
    source: OmeImage | None
    table: PlaneTable
    array: TiffArray


@dataclass(slots=True)
class Opening:
    """What is collected while a data set is opened."""

    path: str
    handles: Handles
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    absent: int = 0
    next_ifd: int = 0

    def fault(self, code: str, severity: str, message: str, **place: Any) -> None:
        """A finding, and the same in the notes."""
        self.findings.append(Finding(code, severity, message, **place))
        self.notes.append(message)


def open_source(source: Source) -> Dataset:
    """Open a TIFF file or a companion file.

    Raises
    ------
    CorruptDataError
        Nothing of it can be opened: no IFD can be read, or no plane is there.
    UnsupportedFeatureError
        A TIFF without OME-XML, or OME-XML that holds the pixels itself.
    StorageError
    """
    handles = Handles.of(source)
    try:
        opening = Opening(source.path, handles)
        if is_tiff(source.head):
            return _open_tiff(opening)
        return _open_companion(opening, source.path)
    except BaseException:
        handles.close()
        raise


def _open_tiff(opening: Opening) -> Dataset:
    tiff = TiffFile(File(opening.path, opening.handles))
    chain = tiff.chain()
    if not chain.offsets:
        error = CorruptDataError(
            f"{opening.path}: {chain.fault or 'the file has no IFD'}",
            path=opening.path,
            finding="truncated" if "truncated" in (chain.fault or "") else "metadata",
        )
        error.finding = fault_code(chain.fault)
        raise error
    first = tiff.ifd(chain.offsets[0])
    # one byte more, so that a longer document is refused as such and not read half
    xml = tiff.text(first, IMAGE_DESCRIPTION, limits.MAX_XML_BYTES + 1) or b""
    if not _is_ome(xml):
        kind, hint = foreign_kind(tiff, first)
        raise UnsupportedFeatureError(
            f"{opening.path}: this is {kind}, which no reader here opens",
            path=opening.path,
            hint=hint,
        )
    if chain.fault:
        opening.fault(fault_code(chain.fault), "error", chain.fault)
    return _open_with(opening, tiff, xml)


def fault_code(fault: str | None) -> str:
    """The code of the finding for what broke off a chain of IFDs."""
    return "truncated" if fault is not None and "truncated" in fault else "metadata"


def _is_ome(xml: bytes) -> bool:
    head = xml[: 1 << 20]
    return (
        OME_ROOT.search(head) is not None or OME_ROOT.search(head.replace(b"\0", b"")) is not None
    )


def _open_with(opening: Opening, tiff: TiffFile, xml: bytes) -> Dataset:
    """Open a TIFF by the document in it, or by its own structure where that cannot be parsed."""
    from openreadout_ome_xml import parse_ome_xml

    try:
        document = parse_ome_xml(xml)
    except CorruptDataError as error:
        pointer = _pointer_in(xml)
        folder = folder_of(opening.path)
        companion = find_companion(folder, *pointer, opening.handles) if pointer else None
        if companion is not None:
            opening.fault(
                "metadata",
                "warning",
                f"{error.message}; it names the companion file {pointer[0] if pointer else ''}, which was read",
            )
            return _open_companion(opening, companion, tiff)
        opening.fault(
            "metadata",
            "error",
            f"{error.message}; the images were taken from the structure of the TIFF",
        )
        return _by_structure(opening, tiff, None)
    if document.binary_only is not None and not document.images:
        return _open_binary_only(opening, tiff, document)
    if not document.images:
        opening.fault(
            "metadata",
            "error",
            "the OME-XML describes no image; the structure of the TIFF was used",
        )
        return _by_structure(opening, tiff, document)
    folder = folder_of(opening.path)
    members = Members(folder, opening.handles, tiff, document.uuid)
    return _dataset(opening, document, members, tiff)


def _pointer_in(xml: bytes) -> tuple[str, str | None] | None:
    """Companion file and its UUID as a broken document names them."""
    import re

    found = re.search(rb"<(?:\w+:)?BinaryOnly\b([^<>]{0,2000})", xml[: 1 << 20])
    if found is None:
        return None
    inside = found.group(1).decode("utf-8", "replace")
    name = re.search(r"MetadataFile\s*=\s*[\"']([^\"']+)", inside)
    uuid = re.search(r"UUID\s*=\s*[\"']([^\"']+)", inside)
    return (name.group(1), uuid.group(1) if uuid else None) if name else None


def _open_binary_only(opening: Opening, tiff: TiffFile, document: OmeDocument) -> Dataset:
    only = document.binary_only
    folder = folder_of(opening.path)
    companion = (
        find_companion(folder, only.metadata_file, only.uuid, opening.handles) if only else None
    )
    if companion is None:
        name = only.metadata_file if only else ""
        opening.fault(
            "missing_file",
            "error",
            f"the companion file {name!r}, which holds the metadata, is not there;"
            " the images were taken from the structure of the TIFF",
            location=name,
        )
        return _by_structure(opening, tiff, document)
    return _open_companion(opening, companion, tiff)


def _open_companion(opening: Opening, path: str, opened: TiffFile | None = None) -> Dataset:
    from openreadout_ome_xml import parse_ome_xml

    file = File(path, opening.handles)
    if file.size > limits.MAX_XML_BYTES:
        raise CorruptDataError(
            f"{path}: an OME-XML document of {file.size} bytes",
            hint=limits.raised_by("MAX_XML_BYTES", file.size),
            path=path,
        )
    try:
        document = parse_ome_xml(file.read(0, file.size))
    except CorruptDataError as error:
        error.path = path
        if opened is None:
            raise
        opening.fault(
            "metadata", "error",
            f"{file_name(path)}: {error.message}; the images were taken from the structure of the TIFF",
        )  # fmt: skip
        return _by_structure(opening, opened, None)
    if not document.images:
        raise UnsupportedFeatureError(
            f"{path}: this OME-XML describes no image",
            path=path,
            hint="open the file that holds the pixels",
        )
    if not any(image.tiff_data for image in document.images):
        what = (
            "in the XML itself (BinData)"
            if any(i.has_binary for i in document.images)
            else "nowhere"
        )
        raise UnsupportedFeatureError(
            f"{path}: this OME-XML document has its pixels {what}, which is not read",
            path=path,
            hint="bfconvert saves it as OME-TIFF",
        )
    members = Members(folder_of(path), opening.handles, None, None)
    return _dataset(opening, document, members, opened, companion=path)


# -- images from OME-XML ---------------------------------------------------------------------------


def _dataset(
    opening: Opening,
    document: OmeDocument,
    members: Members,
    opened: TiffFile | None,
    companion: str | None = None,
) -> Dataset:
    for repair in document.repairs:
        opening.fault("metadata", "warning", repair)
    members.expect(element.file_name for image in document.images for element in image.tiff_data)
    used: set[tuple[int, int]] = set()
    alone = len(document.images) == 1
    wells = _wells(document)
    tables = [
        _table(opening, n, image, members, used, alone=alone)
        for n, image in enumerate(document.images)
    ]
    if not members.files or not any(table.found for table in tables):
        raise _nothing_there(opening, members)
    pages = Pages(tuple(members.files))
    fallback = next(table for table in tables if table.found)
    images = [
        _image(opening, n, source, table, pages, used, wells, fallback, alone=alone)
        for n, (source, table) in enumerate(zip(document.images, tables, strict=True))
    ]
    _report_absent(opening, images, members)
    first = members.files[0] if opened is None else opened
    plate = document.model_plate()
    version = f"{document.version or 'unknown schema'} (OME-XML, {_kind(first)})"
    return _finish(opening, images, members.files, version, document, plate, companion)


def _kind(tiff: TiffFile) -> str:
    return f"{'BigTIFF' if tiff.is_bigtiff else 'TIFF'}, {tiff.byte_order}-endian"


def _nothing_there(opening: Opening, members: Members) -> OpenReadoutError:
    if members.faults:
        some = "; ".join(list(members.faults.values())[:5])
        return CorruptDataError(
            f"{opening.path}: none of the files that hold the pixels can be read: {some}",
            path=opening.path,
            hint="bring the files of the set into one folder",
        )
    return CorruptDataError(
        f"{opening.path}: no plane that the OME-XML declares is there", path=opening.path
    )


def _table(
    opening: Opening,
    n: int,
    image: OmeImage,
    members: Members,
    used: set[tuple[int, int]],
    *,
    alone: bool,
) -> PlaneTable:
    """The planes of an image, whose channel count depends on the samples of its first IFD."""
    elements = image.tiff_data or _implied(opening, members, alone=alone)
    layout = _first_layout(elements, members)
    size_c, samples = channel_split(image, layout)
    table = build_table(image, size_c, samples, elements, members, used)
    declared = image.size_t * size_c * image.size_z
    own = [ref.number for ref in table.found.values() if ref.member == 0]
    opening.next_ifd = max(opening.next_ifd, 1 + max(own, default=-1))
    opening.absent += declared - len(table.found)
    if opening.absent > MAX_ABSENT:
        raise CorruptDataError(
            f"{opening.path}: the OME-XML declares {declared} planes, and {len(table.found)} are there",
            path=opening.path,
        )
    for note in table.notes:
        opening.fault("metadata", "warning", f"image {n}: {note}", image=n)
    if table.doubled:
        opening.fault(
            "metadata", "warning",
            f"image {n}: {list_planes(table.doubled)} are placed twice; the first place counts", image=n,
        )  # fmt: skip
    return table


def _implied(opening: Opening, members: Members, *, alone: bool) -> Sequence[TiffData]:
    """What no TiffData at all means: the IFDs of this file in order, those of earlier images passed over."""
    from openreadout_ome_xml import TiffData

    first = opening.next_ifd
    if alone or not first:
        return (TiffData(None, None, 0, 0, 0, None, None),)
    left = len(members.files[0].chain().offsets) - first if members.files else 0
    return (TiffData(first, left, 0, 0, 0, None, None),) if left > 0 else ()


def _first_layout(elements: Sequence[TiffData], members: Members) -> PageLayout | None:
    """The layout of the first IFD of an image that can be read."""
    for element in elements[:1000]:
        member = members.find(element.file_name, element.uuid)
        if member is None:
            continue
        tiff = members.files[member]
        offsets = tiff.chain().offsets
        number = element.ifd or 0
        if number < len(offsets):
            try:
                return read_layout(tiff, tiff.ifd(offsets[number]))
            except InputError:
                continue
    return None


def channel_split(image: OmeImage, layout: PageLayout | None) -> tuple[int, int]:
    """Channels and colour samples: `SizeC` counts samples, and the IFD says how many a pixel has."""
    samples = (
        layout.samples
        if layout is not None
        else (image.channels[0].samples_per_pixel or 1 if image.channels else 1)
    )
    if samples <= 1:
        return image.size_c, 1
    if image.size_c % samples == 0:
        return image.size_c // samples, samples
    if len(image.channels) and image.size_c >= len(image.channels) > 1:
        return len(image.channels), samples
    return 1, samples


def _image(
    opening: Opening,
    n: int,
    source: OmeImage,
    table: PlaneTable,
    pages: Pages,
    used: set[tuple[int, int]],
    wells: Mapping[str, dict[str, Any]],
    fallback: PlaneTable,
    *,
    alone: bool,
) -> OpenedImage:
    first = min(table.found) if table.found else None
    layout = _layout_of(pages, table.found[first]) if first is not None else None
    size_c, samples = channel_split(source, layout)
    declared = DTYPES.get(source.pixel_type or "")
    if layout is None:
        layout = _assumed_layout(
            source, samples, _layout_of(pages, next(iter(fallback.found.values())))
        )
        dtype = declared or "uint8"
    else:
        dtype = dtype_name(layout, declared)
        _compare(opening, n, source, layout, dtype, declared, samples)
    leading = (source.size_t, size_c, source.size_z)
    tail = (samples,) if samples > 1 else ()
    array = TiffArray(
        pages, table.found, (*leading, layout.length, layout.width, *tail), dtype, layout, declared
    )
    arrays = [array, *find_levels(array, used, alone=alone)][: limits.MAX_LEVELS]
    axes, scale = _axes(source, samples)
    levels = tuple(
        ResolutionLevel(str(k), level, _level_scale(scale, array, level), (None,) * len(axes))
        for k, level in enumerate(arrays)
    )
    absent = (
        _absent(leading, table)
        if len(table.found) < leading[0] * leading[1] * leading[2]
        else frozenset()
    )
    image = Image(
        name=source.name,
        axes=axes,
        levels=levels,
        channels=_channels(source, size_c),
        dimension_order_stored=source.dimension_order,
        absent=absent,
        objective=source.objective,
        instrument=source.instrument,
        acquired_at=source.acquired_at,
        extra=_extra(source, layout, dtype, wells),
    )
    return OpenedImage(image, source, table, array)


def _layout_of(pages: Pages, ref: PlaneRef) -> PageLayout:
    tiff = pages.members[ref.member]
    return read_layout(tiff, tiff.ifd(ref.offset))


def _assumed_layout(source: OmeImage, samples: int, like: PageLayout) -> PageLayout:
    """What stands for an image without a single stored plane; nothing is ever read by it."""
    from dataclasses import replace

    return replace(
        like, width=source.size_x, length=source.size_y, samples=samples, tiled=False,
        segment_width=source.size_x, segment_length=source.size_y,
    )  # fmt: skip


def _compare(
    opening: Opening,
    n: int,
    source: OmeImage,
    layout: PageLayout,
    dtype: str,
    declared: str | None,
    samples: int,
) -> None:
    """Findings where the XML and the tags of the first IFD disagree; the tags count."""
    if (layout.width, layout.length) != (source.size_x, source.size_y):
        opening.fault(
            "metadata", "error",
            f"image {n}: the OME-XML says {source.size_x} x {source.size_y} pixels, the TIFF holds"
            f" {layout.width} x {layout.length}, which were used", image=n,
        )  # fmt: skip
    if declared is not None and declared != dtype:
        opening.fault(
            "metadata", "warning",
            f"image {n}: the OME-XML says {declared}, the TIFF holds {dtype}, which was used", image=n,
        )  # fmt: skip
    told = {channel.samples_per_pixel for channel in source.channels} - {None}
    if (told and told != {samples}) or source.size_c % samples:
        said = ", ".join(str(value) for value in sorted(v for v in told if v is not None)) or "none"
        opening.fault(
            "metadata", "warning",
            f"image {n}: the OME-XML says SizeC {source.size_c} and {said} samples per pixel, the TIFF"
            f" holds {samples} samples, which were used", image=n,
        )  # fmt: skip


def _axes(source: OmeImage, samples: int) -> tuple[tuple[Axis, ...], tuple[float | None, ...]]:
    quantities = {**source.physical_size, "t": source.time_increment}
    names = "tczyx" + ("s" if samples > 1 else "")
    axes, scale = [], []
    for name in names:
        quantity = quantities.get(name)
        axes.append(Axis(name, quantity[1] if quantity else None))
        scale.append(quantity[0] if quantity else None)
    return tuple(axes), tuple(scale)


def _level_scale(
    scale: tuple[float | None, ...], full: TiffArray, level: TiffArray
) -> tuple[float | None, ...]:
    """The pixel sizes of a level: the same extent over fewer pixels."""
    found = list(scale)
    for axis in (3, 4):
        value = scale[axis]
        if value is not None:
            found[axis] = value * full.shape[axis] / level.shape[axis]
    return tuple(found)


def _channels(source: OmeImage, size_c: int) -> tuple[Channel, ...]:
    known = [channel.channel for channel in source.channels][:size_c]
    return (*known, *(Channel() for _ in range(size_c - len(known))))


def _absent(sizes: tuple[int, int, int], table: PlaneTable) -> frozenset[PlaneKey]:
    return frozenset(
        (t, c, z)
        for t in range(sizes[0])
        for c in range(sizes[1])
        for z in range(sizes[2])
        if (t, c, z) not in table.found
    )


def _extra(
    source: OmeImage, layout: PageLayout, dtype: str, wells: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    extra: dict[str, Any] = dict(source.extra)
    raw = extra.pop("raw_physical_size", None)
    if raw:
        scale = [raw[axis][0] if axis in raw else None for axis in "tczyx"]
        for place, axis in enumerate("tczyx"):
            if axis in source.physical_size:
                scale[place] = source.physical_size[axis][0]
        extra["scale"] = scale
        extra["scale_units"] = {axis: unit for axis, (_, unit) in raw.items()}
    if source.id:
        extra["ome_id"] = source.id
        extra.update(wells.get(source.id, {}))
    if dtype in WIDENED:
        extra["dtype"] = dtype
    elif dtype not in ITEM_BYTES:
        extra["unsupported_dtype"] = dtype
    if 1 < layout.bits < 8 or layout.bits % 8:
        extra["stored_bits"] = layout.bits
    return extra


def _wells(document: OmeDocument) -> dict[str, dict[str, Any]]:
    """Where each image stands on its plate, by the image's id."""
    found: dict[str, dict[str, Any]] = {}
    for plate in document.plates:
        for well in plate.wells:
            row, column = plate.rows[well.row], plate.columns[well.column]
            for field_number, name in enumerate(well.image_ids):
                place = {"well": f"{row}/{column}", "row": row, "column": column}
                found.setdefault(name, {**place, "field": field_number})
    return found


def _report_absent(opening: Opening, images: Sequence[OpenedImage], members: Members) -> None:
    """One finding for lost files, one for planes that are simply not there, each with an exact list."""
    for n, opened in enumerate(images):
        lost: dict[str, list[PlaneKey]] = {}
        for key, name in opened.table.lost.items():
            lost.setdefault(name, []).append(key)
        if lost:
            parts = [
                f"{members.faults.get(name, name + ' is not there')}: {list_planes(keys)}"
                for name, keys in lost.items()
            ]
            opening.fault(
                "missing_file",
                "error",
                f"image {n}: {'; '.join(parts)}",
                image=n,
                location=next(iter(lost)),
            )
        missing = [key for key in opened.image.absent if key not in opened.table.lost]
        if missing:
            opening.fault(
                "missing_planes", "error",
                f"image {n}: the OME-XML declares {list_planes(missing)}, and the file does not hold"
                f" {'it' if len(missing) == 1 else 'them'}", image=n,
            )  # fmt: skip


# -- images from the structure of the TIFF ---------------------------------------------------------


def _by_structure(opening: Opening, tiff: TiffFile, document: OmeDocument | None) -> Dataset:
    """Images of the IFDs alone: those of one size and type that follow one another are the time points of an image."""
    groups: list[tuple[PageLayout, list[PlaneRef]]] = []
    for number, offset in enumerate(tiff.in_turn(tiff.chain().offsets)):
        try:
            layout = read_layout(tiff, tiff.ifd(offset))
        except InputError as error:
            opening.fault(
                "metadata", "error", f"IFD {number}: {error.message}", location=f"IFD {number}"
            )
            continue
        if groups and _alike(groups[-1][0], layout):
            groups[-1][1].append(PlaneRef(0, offset, number))
        else:
            groups.append((layout, [PlaneRef(0, offset, number)]))
    if not groups:
        raise CorruptDataError(f"{opening.path}: no IFD can be read", path=opening.path)
    pages = Pages((tiff,))
    images = [_plain_image(n, layout, refs, pages) for n, (layout, refs) in enumerate(groups)]
    if any(len(refs) > 1 for _, refs in groups):
        opening.notes.append("IFDs of one size and type were taken as time points")
    version = (
        f"{(document.version if document else None) or 'unknown schema'} (OME-XML, {_kind(tiff)})"
    )
    return _finish(opening, images, [tiff], version, document, None, None)


def _alike(a: PageLayout, b: PageLayout) -> bool:
    return (a.width, a.length, a.samples, dtype_name(a)) == (
        b.width,
        b.length,
        b.samples,
        dtype_name(b),
    )


def _plain_image(n: int, layout: PageLayout, refs: list[PlaneRef], pages: Pages) -> OpenedImage:
    planes = {(place, 0, 0): ref for place, ref in enumerate(refs)}
    tail = (layout.samples,) if layout.samples > 1 else ()
    shape = (len(refs), 1, 1, layout.length, layout.width, *tail)
    array = TiffArray(pages, planes, shape, dtype_name(layout), layout)
    axes = tuple(Axis(name) for name in "tczyx" + ("s" if tail else ""))
    arrays = [array, *find_levels(array, set(), alone=False)]
    nothing = (None,) * len(axes)
    levels = tuple(
        ResolutionLevel(str(k), level, nothing, nothing) for k, level in enumerate(arrays)
    )
    image = Image(f"Image:{n}", axes, levels, (Channel(),), "XYZCT")
    return OpenedImage(image, None, PlaneTable(found=planes), array)


# -- the data set ----------------------------------------------------------------------------------


def _finish(
    opening: Opening,
    images: Sequence[OpenedImage],
    files: Sequence[TiffFile],
    version: str,
    document: OmeDocument | None,
    plate: Any,
    companion: str | None,
) -> Dataset:
    from openreadout_ome_tiff.inspect import inspect

    paths = [tiff.file.path for tiff in files]
    members = tuple(dict.fromkeys([*([companion] if companion else []), *paths]))
    for tiff in files:
        fault = tiff.chain().fault
        if fault and tiff.file.path != opening.path:
            opening.fault(
                fault_code(fault), "error",
                f"{file_name(tiff.file.path)}: {fault}", location=file_name(tiff.file.path),
            )  # fmt: skip
    opened = tuple(images)
    return Dataset(
        path=opening.path,
        format_id="ome-tiff",
        format_name="OME-TIFF",
        format_version=version,
        images=tuple(item.image for item in opened),
        plate=plate,
        notes=tuple(dict.fromkeys(opening.notes)),
        findings=tuple(opening.findings),
        checks=CHECKS,
        inspect=lambda full: inspect(opened, tuple(files), full=full),
        structure=lambda: _structure(files, companion),
        source_xml=document.text if document is not None else None,
        members=members,
        release=opening.handles.close,
    )


def _structure(files: Sequence[TiffFile], companion: str | None) -> Mapping[str, Any]:
    """The files of the set and their IFDs, as JSON values."""
    return {
        "kind": "ome-tiff",
        **({"companion": file_name(companion)} if companion else {}),
        "files": [
            {
                "name": file_name(tiff.file.path),
                "bigtiff": tiff.is_bigtiff,
                "byte_order": tiff.byte_order,
                "ifd_count": len(tiff.chain().offsets),
                "ifds": [
                    _ifd_entry(tiff, n, o)
                    for n, o in enumerate(tiff.in_turn(tiff.chain().offsets[:1000]))
                ],
            }
            for tiff in files[:1000]
        ],
    }


def _ifd_entry(tiff: TiffFile, number: int, offset: int) -> dict[str, Any]:
    try:
        ifd = tiff.ifd(offset)
        layout = read_layout(tiff, ifd)
        return {
            "ifd": number,
            "offset": offset,
            "size_x": layout.width,
            "size_y": layout.length,
            "samples": layout.samples,
            "type": dtype_name(layout),
            "compression": layout.codec,
            "tiled": layout.tiled,
            "segment": [layout.segment_length, layout.segment_width],
            "sub_ifds": len(tiff.sub_offsets(ifd)),
        }
    except InputError as error:
        return {"ifd": number, "offset": offset, "fault": error.message}
