"""The files of a set: found beside the metadata by name, and told apart by UUID when they were renamed."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable

from openreadout.errors import CorruptDataError, FileError, InputError
from openreadout.remote.urls import is_url
from openreadout.stores import join_key
from openreadout_ome_tiff.detect import is_ome_xml, is_tiff
from openreadout_ome_tiff.files import File, Handles, beside, file_name, is_file
from openreadout_ome_tiff.ifd import IMAGE_DESCRIPTION, TiffFile

MAX_FOLDER = 20_000
"""Files of a folder that are looked into for a UUID."""
MAX_TOGETHER = 1024
"""Files behind URLs that are opened together; what each begins with is held in memory."""
UUID_HEAD = 64 << 10
_UUID = re.compile(
    rb"<(?:[A-Za-z_][A-Za-z0-9_.-]*:)?OME\b[^>]*?\bUUID\s*=\s*[\"']([^\"']{1,100})[\"']"
)


def normal_uuid(text: str | None) -> str | None:
    """A UUID in one form: lower case, without `urn:uuid:`."""
    if not text:
        return None
    return text.strip().lower().removeprefix("urn:uuid:") or None


def uuid_in(xml: bytes) -> str | None:
    """The UUID that the root element of a document gives."""
    found = _UUID.search(xml[:UUID_HEAD])
    return normal_uuid(found.group(1).decode("latin-1")) if found else None


def member_label(name: str | None, uuid: str | None) -> str:
    """What a member is called in messages."""
    if name:
        return name
    uuid = normal_uuid(uuid)
    return f"the file with UUID {uuid}" if uuid else "a file that the XML does not name"


def inner_key(name: str) -> str | None:
    """The name of a file below the folder of the set, or None for one that leads out of it."""
    try:
        return None if name.startswith("/") else join_key(name) or None
    except CorruptDataError:
        return None


class Members:
    """The files of a set in the order they were first asked for.

    Parameters
    ----------
    folder : str
        Where the metadata is; members are below it.
    handles : Handles
    own : TiffFile or None
        The file that was opened, or None for a companion file.
    own_uuid : str or None
        The UUID of the metadata document, which is that of `own` if it stands in it.
    """

    def __init__(
        self, folder: str, handles: Handles, own: TiffFile | None, own_uuid: str | None
    ) -> None:
        self.folder = folder
        self.handles = handles
        self.files: list[TiffFile] = [own] if own is not None else []
        self.faults: dict[str, str] = {}
        self._own = own
        self._own_uuid = normal_uuid(own_uuid)
        self._found: dict[tuple[str | None, str | None], int | None] = {}
        self._by_path: dict[str, int] = {os.path.abspath(own.file.path): 0} if own else {}
        self._uuids: dict[str, str | None] = {}
        self._folder_uuids: dict[str, str] | None = None

    def expect(self, names: Iterable[str | None]) -> None:
        """Open members that are asked for next, those far away together, as each is a wait. Raises `RemoteError`."""
        if not is_url(self.folder):
            return
        keys = [inner_key(name) for name in dict.fromkeys(names) if name]
        paths = [beside(self.folder, key) for key in keys if key is not None][:MAX_TOGETHER]
        if len(paths) < 2:
            return
        from openreadout.remote.transport import at_once

        at_once(self._look, paths)

    def _look(self, path: str) -> None:
        if is_file(path):
            with contextlib.suppress(InputError):  # whoever asks for it meets the error again
                tiff = TiffFile(File(path, self.handles))
                tiff.ifd(tiff.first_offset)

    def find(self, name: str | None, uuid: str | None) -> int | None:
        """The place in `files` of the member with this name and UUID, or None when it is not there.

        A file of the right name with another UUID is not the member: sets are copied and renamed, and another set's
        pixels must not stand in for the right ones. What was wrong is in `faults`, by name.
        """
        key = (name, normal_uuid(uuid))
        if key not in self._found:
            self._found[key] = self._find(*key)
        return self._found[key]

    def _find(self, name: str | None, uuid: str | None) -> int | None:
        if self._own is not None and (uuid is None or uuid == self._own_uuid):
            if uuid is not None or name is None:
                return 0
            if name == file_name(self._own.file.path):
                return 0
        label = member_label(name, uuid)
        path = self._path(name, label)
        if path is not None and self._fits(path, uuid):
            return self._open(path, label)
        if uuid is not None:
            other = self._by_uuid().get(uuid)
            if other is not None:
                return self._open(other, label)
        if path is not None:
            self.faults.setdefault(
                label, f"{label} is there, but belongs to another set (its UUID differs)"
            )
        self.faults.setdefault(label, f"{label} is not there")
        return None

    def _path(self, name: str | None, label: str) -> str | None:
        """The path of a name that the XML gives, if such a file is there."""
        if not name:
            return None
        key = inner_key(name)
        if key is None:
            self.faults[label] = (
                f"the name {name!r} leads out of the folder of the set, and is not followed"
            )
            return None
        path = beside(self.folder, key)
        return path if is_file(path) else None

    def _fits(self, path: str, uuid: str | None) -> bool:
        found = self._uuid_of(path)
        return uuid is None or found is None or found == uuid

    def _uuid_of(self, path: str) -> str | None:
        if path not in self._uuids:
            self._uuids[path] = file_uuid(path, self.handles)
        return self._uuids[path]

    def _by_uuid(self) -> dict[str, str]:
        """Paths of the TIFF files of the folder by UUID; looked through once, and only when a name does not do."""
        if self._folder_uuids is None:
            self._folder_uuids = {}
            for name in _names(self.folder):
                if name.lower().endswith((".tif", ".tiff", ".tf2", ".tf8", ".btf")):
                    path = os.path.join(self.folder, name)
                    found = self._uuid_of(path)
                    if found:
                        self._folder_uuids.setdefault(found, path)
        return self._folder_uuids

    def _open(self, path: str, label: str) -> int | None:
        place = self._by_path.get(os.path.abspath(path))
        if place is not None:
            return place
        try:
            tiff = TiffFile(File(path, self.handles))
        except CorruptDataError as error:
            self.faults[label] = f"{label} cannot be read: {error.message}"
            return None
        self.files.append(tiff)
        self._by_path[os.path.abspath(path)] = len(self.files) - 1
        return len(self.files) - 1


def _names(folder: str) -> list[str]:
    names: list[str] = []
    if is_url(folder):
        return names  # looking into every file of a server's folder would be far too many requests
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) >= MAX_FOLDER:
                    break
    except OSError:
        return []
    return sorted(names)


def file_uuid(path: str, handles: Handles) -> str | None:
    """The UUID in the OME-XML of a TIFF or companion file, or None."""
    try:
        file = File(path, handles)
        head = file.read(0, 4)
        if is_tiff(head):
            tiff = TiffFile(file)
            return uuid_in(
                tiff.text(tiff.ifd(tiff.first_offset), IMAGE_DESCRIPTION, UUID_HEAD) or b""
            )
        return uuid_in(file.read(0, UUID_HEAD))
    except InputError:
        return None


def find_companion(folder: str, name: str, uuid: str | None, handles: Handles) -> str | None:
    """The path of a companion file, by name or, when it was renamed, by UUID; None when it is not there."""
    key = inner_key(name)
    if key:
        path = beside(folder, key)
        if is_file(path):
            return path
    wanted = normal_uuid(uuid)
    for other in _names(folder):
        if wanted and other.lower().endswith((".ome", ".ome.xml", ".xml")):
            path = os.path.join(folder, other)
            try:
                head = File(path, handles).read(0, UUID_HEAD)
            except FileError:
                continue
            if is_ome_xml(head) and uuid_in(head) == wanted:
                return path
    return None
