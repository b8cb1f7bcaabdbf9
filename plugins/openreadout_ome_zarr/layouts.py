"""Which groups of a hierarchy are images: root multiscales, plates, collections, labels, and groups further down.

OME-NGFF specification, sections "plate", "well", "labels" and "bioformats2raw.layout".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from openreadout import limits
from openreadout.errors import (
    CorruptDataError,
    InputError,
    OpenReadoutError,
    UnsupportedFeatureError,
)
from openreadout.model import Finding, Image, Plate, Well
from openreadout.stores import BATCH, batches, expect
from openreadout_ome_zarr.ahead import Ahead
from openreadout_ome_zarr.checked import EMPTY, clean, items, mapping, text, whole
from openreadout_ome_zarr.documents import Documents, Group, key_of
from openreadout_ome_zarr.images import CARRIED_KEY, Arrays, Fault, Request, build_image
from openreadout_ome_zarr.ngff import KNOWN_VERSIONS, parse_multiscales, version_of

if TYPE_CHECKING:
    from openreadout.codecs import CodecLookup
    from openreadout.stores import Store
    from openreadout_ome_xml import OmeDocument, OmeImage

NOTES_OF_A_KIND = 20
"""Notes of one kind that are given one by one; the rest are counted."""
MAX_FOLDERS = 20_000
"""Folders that are looked into for images below a root that has none itself."""
MAX_DEPTH = 12
LAYOUT = "bioformats2raw.layout"
SIBLING_XML = "METADATA.ome.xml"


class Found(NamedTuple):
    """Everything that was found in a store."""

    images: tuple[Image, ...]
    plate: Plate | None
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    version: str | None
    zarr_format: int
    source_xml: str | None


class Member(NamedTuple):
    """One entry of a list of paths: the name as listed, its key, and the whole entry."""

    name: str
    path: str
    item: Any


class PendingLabel(NamedTuple):
    """A label group whose image is added after all others; `label_of` is the index of the image it annotates."""

    path: str
    label_of: int | None


class Opening:
    """Collects the images of one store, with what there is to report of them."""

    def __init__(
        self,
        store: Store,
        lookup: CodecLookup,
        axes: str | None = None,
        *,
        older: bool = False,
    ) -> None:
        self.store = store
        self.axes = axes
        self.documents = Documents(store)
        if older:
            self.documents.preferred = 2
        self.arrays = Arrays(store, lookup)
        self.ahead = Ahead(store, self.documents)
        self.images: list[Image] = []
        self.findings: list[Finding] = []
        self.plate: Plate | None = None
        self.version: str | None = None
        self.source_xml: str | None = None
        self._labels: list[PendingLabel] = []
        self._notes: list[str] = []
        self._counts: dict[str, int] = {}
        self._odd_versions: set[str] = set()
        self._outside: set[str] = set()

    # -- the root --------------------------------------------------

    def run(self) -> Found:
        """Find every image.

        Raises
        ------
        CorruptDataError
            The store's only image, or all of them, cannot be opened.
        UnsupportedFeatureError
            There is no NGFF metadata, or it is of an unknown version and does not read like a known one.
        """
        root = self._root()
        try:
            self._open_root(root)
            self._add_labels()
        except CorruptDataError as error:
            raise self._of_unknown_version(error) from error
        if not self.images:
            raise self._nothing_opened()
        return Found(
            tuple(self.images),
            self._carried_plate(root) or self.plate,
            tuple(self.findings),
            self._all_notes(),
            self.version,
            root.zarr_format,
            self.source_xml,
        )

    def _root(self) -> Group:
        root = self.documents.group("")
        if root is not None:
            self.documents.preferred = root.zarr_format
            self.documents.settled = True
            return root
        for name in ("zarr.json", ".zarray"):
            if self.store.size(name) is not None:
                raise UnsupportedFeatureError(
                    "a single Zarr array without image metadata (NGFF)",
                    where=name,
                    hint="write multiscales metadata for it with ome-zarr-py, or open it with zarr-python",
                )
        return Group("", 2, EMPTY, EMPTY, ".zgroup")

    def _open_root(self, root: Group) -> None:
        ngff = root.ngff
        if "multiscales" in ngff:
            self._open_single(root)
        elif "plate" in ngff:
            self._open_plate(root)
        elif LAYOUT in ngff or LAYOUT in root.attributes:
            self._open_collection(root)
        elif "well" in ngff:
            self._note_version(root, required=True)
            self._add_well(root, EMPTY)
        else:
            self._open_below(root)

    def _open_single(self, root: Group) -> None:
        self._note_version(root, required=True)
        self.ahead.images([""], f"OME/{SIBLING_XML}")
        ome = self._read_xml(f"OME/{SIBLING_XML}")
        self._add_group(
            root, ome=ome.images[0] if ome is not None and len(ome.images) == 1 else None
        )

    def _of_unknown_version(self, error: CorruptDataError) -> OpenReadoutError:
        """Metadata of a version that nobody knows yet is not damaged when it does not read like an old one."""
        if not self._odd_versions or error.finding == "array_metadata":
            return error
        names = ", ".join(sorted(self._odd_versions))
        return UnsupportedFeatureError(
            f"NGFF {names} is not supported, and the metadata does not read like 0.1 to 0.5: {error.message}",
            where=error.where,
        )

    def _nothing_opened(self) -> OpenReadoutError:
        damaged = [finding for finding in self.findings if finding.severity == "error"]
        about = damaged or self.findings
        if not about:
            return UnsupportedFeatureError(
                "no image metadata (NGFF) was found in this Zarr hierarchy",
                hint="give the group that holds an image, or write multiscales metadata with ome-zarr-py",
            )
        error = CorruptDataError(
            f"none of the images that are listed can be opened: {about[0].message}",
            where=about[0].location,
        )
        error.finding = about[0].code
        return error

    # -- plates --------------------------------------------------

    def _carried_plate(self, root: Group) -> Plate | None:
        """The plate that the exporter noted of its source, where the layout of this store cannot hold it."""
        if CARRIED_KEY not in root.attributes:
            return None
        from openreadout_ome_zarr.carried import carried_plate

        return carried_plate(root.attributes, len(self.images))

    def _open_plate(self, root: Group) -> None:
        self._note_version(root, required=True)
        block = mapping(root.ngff.get("plate"))
        wells = block.get("wells")
        if not isinstance(wells, list):
            raise CorruptDataError("the plate lists no wells", where=root.document)
        series = self._plate_series()
        found = []
        for members in batches(self._members("", wells, "well", root.document, "path")):
            self.ahead.wells([member.path for member in members])
            for member in members:
                try:
                    found.append(self._add_well(self._well_group(member.path), series))
                except CorruptDataError as error:
                    self._left_out("well", f"well {member.path}", error)
        self.plate = _plate(block, tuple(found), root)
        self._labels += self._labels_of(root, None)[1]

    def _plate_series(self) -> Mapping[str, OmeImage]:
        """The OME images of a plate's fields by path, where bioformats2raw left its series list and OME-XML."""
        expect(self.store, [f"OME/{SIBLING_XML}", *self.documents.keys("labels")])
        ome = self._read_xml(f"OME/{SIBLING_XML}")
        if ome is None:
            return EMPTY
        paths = self._series_list() or []
        return dict(zip(paths, ome.images, strict=False))

    def _well_group(self, path: str) -> Group:
        group = self.documents.group(path)
        if group is None:
            raise CorruptDataError("it is listed, but not there", where=path)
        if "well" not in group.ngff:
            raise CorruptDataError("it has no well metadata", where=group.document)
        return group

    def _add_well(self, group: Group, series: Mapping[str, OmeImage]) -> Well:
        row, _, column = group.path.rpartition("/")
        row = row.rpartition("/")[2]
        indices: list[int] = []
        fields = items(mapping(group.ngff.get("well")).get("images"))
        for member in self._members(group.path, fields, "field", group.document, "path"):
            extra = {"well": group.path, "field": member.name, "row": row, "column": column}
            acquisition = mapping(member.item).get("acquisition")
            if acquisition is not None:
                extra["acquisition"] = clean(acquisition)
            indices += self._open_field(member, extra, series)
        if not fields:
            said = f"well {group.path or '/'} lists no images"
            finding = Finding("metadata", "warning", said, location=group.document)
            self._report("well", said, finding)
        return Well(group.path, row, column, tuple(indices))

    def _open_field(
        self, member: Member, extra: Mapping[str, Any], series: Mapping[str, OmeImage]
    ) -> list[int]:
        try:
            group = self._image_group(member.path)
            ome = series.get(member.path)
            return self._add_group(group, name=member.path, extra=extra, ome=ome)
        except (CorruptDataError, UnsupportedFeatureError) as error:
            self._left_out("field", f"field {member.path}", error)
            return []

    def _members(
        self, base: str, listed: list[Any], kind: str, document: str, key: str | None = None
    ) -> Iterator[Member]:
        """What a document lists below a group, each path once; entries that are no path are reported.

        `key` names the member of an entry that holds its path; without it the entry is the path.
        """
        if len(listed) > limits.MAX_IMAGES:
            raise CorruptDataError(
                f"{len(listed)} entries, more than {limits.MAX_IMAGES}",
                hint=limits.raised_by("MAX_IMAGES", len(listed)),
                where=document,
            )
        done: set[str] = set()
        for item in listed:
            value = item if key is None else mapping(item).get(key)
            name = str(value) if whole(value) is not None else value
            try:
                path = _listed_key(base, name, document)
            except CorruptDataError as error:
                self._left_out(kind, f"a {kind} of {base or '/'}", error)
                continue
            if path not in done:
                done.add(path)
                yield Member(str(clean(name)), path, item)

    # -- collections --------------------------------------------------

    def _open_collection(self, root: Group) -> None:
        self._note_version(root, required=False)
        keys = [*self.documents.keys("OME"), *self.documents.keys("labels")]
        expect(self.store, [f"OME/{SIBLING_XML}", *keys])
        ome = self._read_xml(f"OME/{SIBLING_XML}") or self._sibling_xml(root)
        images = ome.images if ome is not None else ()
        listed = self._series_list()
        numbered = enumerate(listed if listed is not None else self._numbered())
        for batch in batches(numbered):
            self.ahead.images([path for _, path in batch])
            for n, path in batch:
                described = images[n] if n < len(images) else None
                try:
                    group = self._image_group(path)
                    self._add_group(group, extra={"series": n}, ome=described)
                except (CorruptDataError, UnsupportedFeatureError) as error:
                    self._left_out("series", f"series {path}", error)
        self._labels += self._labels_of(root, None)[1]

    def _series_list(self) -> list[str] | None:
        """The paths that the group `OME` lists, each once; None when it lists none."""
        try:
            group = self.documents.group("OME")
        except CorruptDataError as error:
            self._left_out("OME", "the list of series", error)
            return None
        series = group.ngff.get("series") if group is not None else None
        if group is None or not isinstance(series, list):
            return None
        return [member.path for member in self._members("", series, "series", group.document)]

    def _numbered(self) -> Iterator[str]:
        """The paths 0, 1, 2, … for as long as there are groups."""
        for n in range(limits.MAX_IMAGES):
            try:
                if self.documents.group(str(n)) is None:
                    return
            except CorruptDataError:
                pass  # there is something, and opening it says what is wrong
            yield str(n)

    def _read_xml(self, key: str) -> OmeDocument | None:
        if self.store.size(key) is None:
            return None
        from openreadout_ome_zarr.ome_xml import read_ome

        try:
            document = read_ome(self.store, key)
        except CorruptDataError as error:
            self._left_out("xml", key, error)
            return None
        if document is not None:
            self.source_xml = document.text
            for repair in document.repairs:
                self._report(
                    "xml", f"{key}: {repair}", Finding("metadata", "warning", repair, location=key)
                )
        return document

    def _sibling_xml(self, root: Group) -> OmeDocument | None:
        """The OME-XML of the first bioformats2raw layouts, which stands beside a store called `data.zarr`."""
        layout = root.ngff.get(LAYOUT, root.attributes.get(LAYOUT))
        if self.store.kind != "directory" or layout not in (1, 2):
            return None
        import os

        from openreadout.stores import DirectoryStore
        from openreadout_ome_zarr.ome_xml import read_ome

        beside = DirectoryStore(os.path.dirname(os.path.abspath(self.store.path)))
        try:
            document = read_ome(beside, SIBLING_XML)
        except CorruptDataError as error:
            self._left_out("xml", SIBLING_XML, error)
            return None
        if document is not None:
            self.source_xml = document.text
        return document

    # -- images below a root that is none itself --------------------------------------------------

    def _open_below(self, root: Group) -> None:
        """Open every image group below a root without NGFF metadata, in natural order of their paths."""
        if root.ngff.get("version") is not None:
            self._note_version(root, required=False)
        for paths in batches(sorted(self._image_groups(), key=_natural)):
            self.ahead.images(paths)
            for path in paths:
                try:
                    self._add_group(self._image_group(path), extra={})
                except (CorruptDataError, UnsupportedFeatureError) as error:
                    self._left_out("image", f"the image {path}", error)
        if self.images:
            self._note(
                "below",
                "the root group has no image metadata; the images of the groups below it are shown",
            )

    def _image_groups(self) -> Iterator[str]:
        pending = [("", 0)]
        seen = 0
        while pending:
            path, depth = pending.pop()
            for name in self.store.list_dir(path)[0]:
                seen += 1
                if seen > MAX_FOLDERS:
                    self._note(
                        "below", f"only the first {MAX_FOLDERS} folders were searched for images"
                    )
                    return
                below = f"{path}/{name}" if path else name
                kind = self._kind_below(below)
                if kind == "image":
                    yield below
                elif kind == "group" and depth < MAX_DEPTH:
                    pending.append((below, depth + 1))

    def _kind_below(self, path: str) -> str | None:
        """`image`, `group`, or None for a folder that holds an array or whose name no key can have."""
        try:
            group = self.documents.group(key_of(path))
        except InputError:
            return None
        if group is not None:
            return "image" if "multiscales" in group.ngff else "group"
        there = any(
            self.store.size(f"{path}/{name}") is not None for name in ("zarr.json", ".zarray")
        )
        return None if there else "group"

    # -- one image group --------------------------------------------------

    def _image_group(self, path: str) -> Group:
        group = self.documents.group(path)
        if group is None:
            raise CorruptDataError("it is listed, but not there", where=path or "/")
        if "multiscales" not in group.ngff:
            raise CorruptDataError("it has no multiscales metadata", where=group.document)
        return group

    def _add_group(
        self,
        group: Group,
        *,
        name: str | None = None,
        extra: Mapping[str, Any] = EMPTY,
        ome: OmeImage | None = None,
        label: bool = False,
        label_of: int | None = None,
    ) -> list[int]:
        """Add the images of a group's multiscales entries and note its labels; gives the images' numbers."""
        version = self._note_version(group, required=True)
        try:
            entries = parse_multiscales(group.ngff)
        except CorruptDataError as error:
            error.where = error.where or group.document
            raise
        first = len(self.images)
        names, pending = ((), []) if label else self._labels_of(group, first)
        numbers = []
        for entry in entries:
            request = Request(
                group, entry, version, name, extra, ome, label, label_of, names, self.axes
            )
            numbers += self._add_entry(request, alone=len(entries) == 1)
        if numbers:
            self._labels += pending
        return numbers

    def _add_entry(self, request: Request, *, alone: bool) -> list[int]:
        if len(self.images) >= limits.MAX_IMAGES:
            raise CorruptDataError(
                f"more than {limits.MAX_IMAGES} images",
                hint=limits.raised_by("MAX_IMAGES", 2 * limits.MAX_IMAGES),
                where=request.group.document,
            )
        try:
            image, faults, notes = build_image(request, self.arrays)
        except (CorruptDataError, UnsupportedFeatureError) as error:
            if alone:
                raise
            self._left_out("image", f"one image of {request.group.path or '/'}", error)
            return []
        number = len(self.images)
        self.images.append(image)
        self.findings += [_finding(fault, number) for fault in faults]
        for note in notes:
            self._note("image", note)
        return [number]

    def _note_version(self, group: Group, *, required: bool) -> str | None:
        """The version that a group's metadata claims, reported once where it is not one that we know."""
        version = version_of(group.ngff)
        if self.version is None and version is not None:
            self.version = version
        if group.outside and required and group.document not in self._outside:
            self._outside.add(group.document)
            place = "outside the key ome" if group.zarr_format == 3 else "under the key ome"
            said = f"the NGFF metadata stands {place}, where its Zarr version does not keep it"
            self._report(
                "outside", said, Finding("metadata", "warning", said, location=group.document)
            )
        if (
            version is not None
            and version not in KNOWN_VERSIONS
            and version not in self._odd_versions
        ):
            self._odd_versions.add(version)
            kind = "is a draft" if version.startswith("0.6") else "is not a version that is known"
            said = (
                f"NGFF {version} {kind}; the metadata was read by the rules of 0.5 and may say more"
            )
            self._report(
                "version", said, Finding("metadata", "warning", said, location=group.document)
            )
        return version

    # -- labels --------------------------------------------------

    def _labels_of(
        self, group: Group, image: int | None
    ) -> tuple[tuple[str, ...], list[PendingLabel]]:
        """Names of a group's labels, each once, and what is to be opened after all images."""
        path = f"{group.path}/labels" if group.path else "labels"
        try:
            labels = self.documents.attributes(path)
        except CorruptDataError as error:
            self._left_out("labels", f"the labels of {group.path or '/'}", error)
            return (), []
        listed = labels.ngff.get("labels") if labels is not None else None
        if labels is None or not isinstance(listed, list):
            return (), []
        members = list(self._members(path, listed, "label", labels.document))
        self.ahead.images([member.path for member in members[:BATCH]])
        pending = [PendingLabel(member.path, image) for member in members]
        there = tuple(member.name for member in members if self._is_there(member.path))
        return there, pending

    def _is_there(self, path: str) -> bool:
        """Whether a group can be read; what is wrong with one that cannot is told when it is opened."""
        try:
            return self.documents.group(path) is not None
        except CorruptDataError:
            return False

    def _add_labels(self) -> None:
        for path, label_of in self._labels:
            what = f"the label {path}"
            try:
                group = self._image_group(path)
                self._add_group(group, name=path, label=True, label_of=label_of)
            except (CorruptDataError, UnsupportedFeatureError) as error:
                self._left_out("label", what, error)

    # -- reporting --------------------------------------------------

    def _left_out(self, kind: str, what: str, error: OpenReadoutError) -> None:
        """Something that is listed and cannot be opened: a warning, or an error where an array is damaged."""
        damaged = isinstance(error, CorruptDataError) and error.finding == "array_metadata"
        code, severity = ("array_metadata", "error") if damaged else ("metadata", "warning")
        finding = Finding(
            code, severity, f"{what} was left out: {error.message}", location=error.where
        )
        self._report(kind, finding.message, finding)

    def _report(self, kind: str, note: str, finding: Finding) -> None:
        self.findings.append(finding)
        if len(self.findings) > limits.MAX_FINDINGS:
            # raised from here it passes whoever leaves a single entry out
            raise UnsupportedFeatureError(
                f"more than {limits.MAX_FINDINGS} entries are listed that are absent or damaged; the last: {note}",
                hint="the metadata or the copy is damaged; open its images one by one, or let --limit MAX_FINDINGS=N "
                "list more",
            )
        self._note(kind, note)

    def _note(self, kind: str, note: str) -> None:
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count <= NOTES_OF_A_KIND:
            self._notes.append(note)

    def _all_notes(self) -> tuple[str, ...]:
        more = sum(max(0, count - NOTES_OF_A_KIND) for count in self._counts.values())
        extra = (
            [f"{more} more notes of these kinds; openreadout check lists them all"] if more else []
        )
        return tuple(dict.fromkeys([*self._notes, *extra]))


def _finding(fault: Fault, number: int) -> Finding:
    return Finding(fault.code, fault.severity, fault.message, number, fault.level, fault.location)


def _listed_key(base: str, name: object, document: str) -> str:
    """The key of something that a document lists below `base`."""
    if not isinstance(name, str) or not name.strip("/. "):
        raise CorruptDataError("it is listed without a path inside the data set", where=document)
    return key_of(base, name)


def _natural(path: str) -> list[tuple[int, int, str]]:
    """A sort key in which numbers inside names count as numbers."""
    import re

    parts = re.split(r"(\d+)", path)
    return [(1, int(p), "") if p.isdecimal() and len(p) < 20 else (0, 0, p) for p in parts]


def _names(value: object) -> tuple[str, ...]:
    """Names of a plate's rows or columns."""
    found = [text(mapping(item).get("name")) for item in items(value)]
    return tuple(name for name in found if name is not None)


def _plate(block: Mapping[str, Any], wells: tuple[Well, ...], root: Group) -> Plate:
    acquisitions = tuple(
        clean(item) for item in items(block.get("acquisitions")) if isinstance(item, dict)
    )
    extra: dict[str, Any] = {}
    if CARRIED_KEY in root.attributes:
        from openreadout_ome_zarr.carried import carried_block

        carried = carried_block(root.attributes, "plate") or EMPTY
        extra = clean(dict(mapping(carried.get("extra"))))
    rows, columns = _names(block.get("rows")), _names(block.get("columns"))
    return Plate(
        name=text(block.get("name")),
        rows=rows or tuple(dict.fromkeys(well.row for well in wells)),
        columns=columns or tuple(dict.fromkeys(well.column for well in wells)),
        wells=wells,
        acquisitions=acquisitions,
        extra=extra,
    )
