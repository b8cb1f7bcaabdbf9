"""Where each plane of an image is: TiffData elements against the IFDs that are there.

OME-TIFF specification, "The TiffData element": without IFD and PlaneCount an element means all IFDs of its file, with
an IFD alone a single plane, with a PlaneCount that many, counted on in the image's dimension order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from openreadout.errors import CorruptDataError
from openreadout_ome_tiff.array import PlaneKey, PlaneRef
from openreadout_ome_tiff.members import member_label

if TYPE_CHECKING:
    from openreadout_ome_tiff.members import Members
    from openreadout_ome_xml import OmeImage, TiffData

MAX_ABSENT = 1_000_000
"""Planes that may be missing and are listed one by one; more says that the metadata is not this file's."""


@dataclass(slots=True)
class PlaneTable:
    """The planes of one image.

    Attributes
    ----------
    found : dict
        Where the stored planes are.
    lost : dict
        Planes whose file is not there, with its name.
    doubled : list of PlaneKey
        Planes that were given twice; the first counts.
    beyond : int
        Planes that lie outside the image's sizes, or whose IFD is not in its file.
    """

    found: dict[PlaneKey, PlaneRef] = field(default_factory=dict)
    lost: dict[PlaneKey, str] = field(default_factory=dict)
    doubled: list[PlaneKey] = field(default_factory=list)
    beyond: int = 0
    notes: list[str] = field(default_factory=list)
    steps: int = 0

    def spend(self, count: int, total: int, lost: int = 0) -> None:
        """Count the planes that elements give, so that elements which repeat one another cannot go on for ever.

        Raises
        ------
        CorruptDataError
            Planes are given several times over, or far too many are in files that are not there.
        """
        self.steps += count
        if self.steps > 4 * total + 1000 or len(self.lost) + lost > MAX_ABSENT:
            raise CorruptDataError(
                "the TiffData elements place planes over and over, or millions in files that are not there"
            )


def plane_order(order: str, z: int, c: int, t: int) -> Callable[[int], PlaneKey]:
    """The t, c, z of the n-th plane of an image stored in a dimension order (`XYZCT`: z varies fastest)."""
    sizes = {"Z": z, "C": c, "T": t}
    first, second, third = tuple(order[2:5])

    def place(n: int) -> PlaneKey:
        n, a = divmod(n, sizes[first])
        n, b = divmod(n, sizes[second])
        at = {first: a, second: b, third: n}
        return at["T"], at["C"], at["Z"]

    return place


def build_table(
    image: OmeImage,
    size_c: int,
    samples: int,
    elements: Sequence[TiffData],
    members: Members,
    used: set[tuple[int, int]],
) -> PlaneTable:
    """Place the planes of an image.

    Parameters
    ----------
    image : OmeImage
    size_c : int
        Channels, not counting colour samples.
    samples : int
        Colour samples of a pixel.
    elements : sequence of TiffData
        In the order of the document.
    members : Members
    used : set of (file, IFD number)
        Taken planes of all images; added to.
    """
    table = PlaneTable()
    sizes = (image.size_t, size_c, image.size_z)
    total = sizes[0] * sizes[1] * sizes[2]
    place = plane_order(image.dimension_order, image.size_z, size_c, image.size_t)
    numbers = {key: n for n, key in enumerate(map(place, range(total)))} if total <= 4096 else None
    firsts = _firsts(elements, sizes, samples, table)
    for element, first in zip(elements, firsts, strict=True):
        start = _number(first, image, size_c) if numbers is None else numbers.get(first)
        if start is None or not all(0 <= i < n for i, n in zip(first, sizes, strict=True)):
            table.beyond += 1
            continue
        _place_element(element, start, total, place, members, table, used)
    return table


def _number(key: PlaneKey, image: OmeImage, size_c: int) -> int:
    """The inverse of `plane_order`."""
    at = {"T": key[0], "C": key[1], "Z": key[2]}
    sizes = {"T": image.size_t, "C": size_c, "Z": image.size_z}
    first, second, third = tuple(image.dimension_order[2:5])
    return (at[third] * sizes[second] + at[second]) * sizes[first] + at[first]


def _firsts(
    elements: Sequence[TiffData], sizes: tuple[int, int, int], samples: int, table: PlaneTable
) -> list[PlaneKey]:
    """First t, c and z of each element, with two habits of writers put right where they show without a doubt.

    Some count from 1 (no element says 0, and the highest is one too high), and some count FirstC in colour samples.
    """
    columns = [
        [e.first_t for e in elements], [e.first_c for e in elements], [e.first_z for e in elements]
    ]  # fmt: skip
    for place, (column, size) in enumerate(zip(columns, sizes, strict=True)):
        by_sample = place == 1 and samples > 1 and bool(column) and max(column) >= size
        if by_sample and all(value % samples == 0 for value in column):
            columns[place] = column = [value // samples for value in column]
        if column and min(column) >= 1 and max(column) == size:
            columns[place] = [value - 1 for value in column]
            table.notes.append(f"First{'TCZ'[place]} counts from 1; it was read so")
    return list(zip(*columns, strict=True))


def _place_element(
    element: TiffData,
    start: int,
    total: int,
    place: Callable[[int], PlaneKey],
    members: Members,
    table: PlaneTable,
    used: set[tuple[int, int]],
) -> None:
    member = members.find(element.file_name, element.uuid)
    all_of_it = element.ifd is None and element.plane_count is None
    single = 1 if element.plane_count is None else element.plane_count
    if member is None:
        count = min(total - start, total if all_of_it else single)
        table.spend(count, total, lost=count)
        name = member_label(element.file_name, element.uuid)
        for n in range(start, start + count):
            key = place(n)
            if key not in table.found:
                table.lost.setdefault(key, name)
        return
    offsets = members.files[member].chain().offsets
    first = element.ifd or 0
    count = len(offsets) if all_of_it else single
    if not all_of_it and first + count > len(offsets):
        table.beyond += first + count - max(first, len(offsets))
    count = max(0, min(count, len(offsets) - first, total - start))
    table.spend(count, total)
    for number in range(first, first + count):
        key = place(start + number - first)
        ref = PlaneRef(member, offsets[number], number)
        if table.found.setdefault(key, ref) != ref:
            table.doubled.append(key)
            continue
        table.lost.pop(key, None)
        used.add((member, number))
