"""What every reader must do, whatever its format."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from openreadout import serialize
from openreadout.contracts import LIKELY, Reader
from openreadout.model import Dataset, Image
from openreadout.planes import Selection, digest_planes, little, read_plane
from openreadout.registry import make_source, open_context
from openreadout.results import InfoResult
from openreadout.stores import total_size
from openreadout.testing.cases import Case, find_cases, matches
from openreadout.workers import Workers

Check = tuple[str, Callable[[], None]]


def reader_checks(reader: Reader, fixtures: Path) -> list[Check]:
    """The checks of one reader over a folder of fixtures.

    Parameters
    ----------
    reader : Reader
        Its own cases are those below the folder that has its id; all others must leave it silent.
    fixtures : Path
        `<format id>/<case>/` with the data and `expected.json`.

    Returns
    -------
    list of (str, callable)
        A name and a check, which raises `AssertionError` where the reader breaks its contract.
    """
    checks: list[Check] = []
    for case in find_cases(fixtures):
        if case.format_id != reader.descriptor.id:
            checks.append((f"{case}-silent", partial(check_silent, reader, case)))
            continue
        for check in OWN_CASE:
            name = check.__name__.removeprefix("check_")
            checks.append((f"{case}-{name}", partial(check, reader, case)))
    checks.append(("descriptor", partial(check_descriptor, reader)))
    return checks


def check_descriptor(reader: Reader) -> None:
    """The descriptor tells what `openreadout formats` shows."""
    descriptor = reader.descriptor
    assert descriptor.id == descriptor.id.lower().strip(), "an id is lower case, without spaces"
    assert descriptor.name, "a format has a name"
    assert all(e.startswith(".") for e in descriptor.extensions), "extensions begin with a dot"


def check_silent(reader: Reader, case: Case) -> None:
    """Data of another format: the reader is not sure of it."""
    detection = reader.detect(make_source(str(case.data)))
    assert detection is None or detection.confidence < LIKELY, detection


def check_detect(reader: Reader, case: Case) -> None:
    """The reader is sure of its own fixtures, and says why."""
    detection = reader.detect(make_source(str(case.data)))
    assert detection is not None, "the reader does not recognise its own fixture"
    assert detection.confidence >= LIKELY, detection
    assert detection.reason, "detection gives a reason"


def check_info(reader: Reader, case: Case) -> None:
    """`info` says what another library says."""
    with opened(reader, case) as dataset:
        found = serialize.info(InfoResult(dataset, total_size(str(case.data))))
    serialize.dumps(found)
    differences = matches(case.expected["info"], found)
    assert not differences, "\n".join(differences)


def check_planes(reader: Reader, case: Case) -> None:
    """Every plane of every level has the digest that another library's pixels have."""
    expected = {plane_key(plane): plane["xxh3"] for plane in case.expected["planes"]}
    with opened(reader, case) as dataset:
        found = dict(digests(dataset, "xxh3"))
    assert set(found) == set(expected), "other planes than expected"
    wrong = [key for key in expected if found[key] != expected[key]]
    assert not wrong, f"wrong pixels (image, level, t, c, z, width, height): {wrong[:5]}"


def check_single_planes(reader: Reader, case: Case) -> None:
    """One plane read alone holds the same samples as when all are read."""
    expected = {plane_key(plane): plane["sha256"] for plane in case.expected["planes"]}
    with opened(reader, case) as dataset:
        for key in list(expected)[:: max(1, len(expected) // 4)]:
            image, level, t, c, z = key[:5]
            plane = little(read_plane(dataset.images[image], t=t, c=c, z=z, level=level))
            assert hashlib.sha256(plane.tobytes()).hexdigest() == expected[key], key


def check_axes(reader: Reader, case: Case) -> None:
    """Axes are in the model's order, and each level has a length, a scale and a translation for each."""
    with opened(reader, case) as dataset:
        for image in dataset.images:
            names = image.axis_names
            assert list(names) == sorted(names, key="tczyxs".index), names
            assert len(set(names)) == len(names), names
            for level in image.levels:
                lengths = (len(level.array.shape), len(level.scale), len(level.translation))
                assert lengths == (len(names),) * 3, (names, lengths)


def check_opening_reads_no_chunk(reader: Reader, case: Case) -> None:
    """A data set opens, and is described, with every chunk of it emptied."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / case.data.name
        if case.data.is_dir():
            shutil.copytree(case.data, copy)
            for file in copy.rglob("*"):
                if file.is_file() and not is_metadata(file):
                    file.write_bytes(b"")
        else:
            shutil.copyfile(
                case.data, copy
            )  # the metadata of one file cannot be told from its chunks
        with opened(reader, replace(case, data=copy)) as dataset:
            found = serialize.info(InfoResult(dataset, 0))
    differences = matches(case.expected["info"], found)
    assert not differences, "\n".join(differences)


def is_metadata(file: Path) -> bool:
    """Whether a file of a store is a document rather than a chunk."""
    return file.suffix in (".json", ".xml") or file.name.startswith(".z")


def check_closing_leaves_no_open_file(reader: Reader, case: Case) -> None:
    """After closing, the process holds as many files as before; closing twice does no harm."""
    with opened(reader, case) as dataset:
        first_plane(dataset)
        dataset.close()
    before = open_files()
    with opened(reader, case) as dataset:
        first_plane(dataset)
    assert open_files() == before, "closing left a file open"


def check_source_unchanged(reader: Reader, case: Case) -> None:
    """Opening, describing and reading change no byte of the source, and add no file to it."""
    before = snapshot(case.data)
    with opened(reader, case) as dataset:
        serialize.info(InfoResult(dataset, 0, view="full"))
        list(dataset.inspect(False) if dataset.inspect is not None else ())
        list(digests(dataset, "xxh3"))
    assert snapshot(case.data) == before, "the source was changed"


def check_inspection_finds_no_error(reader: Reader, case: Case) -> None:
    """A sound fixture has no finding of severity `error`, however hard one looks."""
    with opened(reader, case) as dataset:
        found = [*dataset.findings, *(dataset.inspect(True) if dataset.inspect is not None else ())]
    assert not [finding for finding in found if finding.severity == "error"]


OWN_CASE: tuple[Callable[[Reader, Case], None], ...] = (
    check_detect,
    check_info,
    check_planes,
    check_single_planes,
    check_axes,
    check_opening_reads_no_chunk,
    check_closing_leaves_no_open_file,
    check_source_unchanged,
    check_inspection_finds_no_error,
)


@contextmanager
def opened(reader: Reader, case: Case) -> Iterator[Dataset]:
    """The case's data set, opened by this reader and closed at the end."""
    dataset = reader.open(make_source(str(case.data)), open_context())
    try:
        yield dataset
    finally:
        dataset.close()


def digests(dataset: Dataset, algorithm: str) -> Iterator[tuple[tuple[int, ...], str | None]]:
    """Every plane's place (image, level, t, c, z, width, height) and digest."""
    with Workers(2) as workers:
        for number, image in enumerate(dataset.images):
            for level in range(len(image.levels)):
                yield from level_digests(image, number, level, algorithm, workers)


def level_digests(
    image: Image, number: int, level: int, algorithm: str, workers: Workers
) -> Iterator[tuple[tuple[int, ...], str | None]]:
    """The planes of one level; an error of a chunk is raised."""

    def fail(index: tuple[int, ...], error: Exception) -> None:
        raise AssertionError(f"chunk {index} cannot be read: {error}")

    for plane in digest_planes(image, level, Selection(), algorithm, workers, fail):
        yield (number, level, plane.t, plane.c, plane.z, plane.width, plane.height), plane.digest


def plane_key(plane: Mapping[str, Any]) -> tuple[int, ...]:
    """A plane's place, as `digests` gives it."""
    return tuple(plane[key] for key in ("image", "level", "t", "c", "z", "width", "height"))


def first_plane(dataset: Dataset) -> None:
    """Read something, so that whatever opens lazily is open."""
    read_plane(dataset.images[0])


def open_files() -> int | None:
    """Files that this process holds open; None where the system does not tell."""
    folder = "/proc/self/fd" if sys.platform.startswith("linux") else "/dev/fd"
    return len(os.listdir(folder)) if os.path.isdir(folder) else None


def snapshot(path: Path) -> dict[str, tuple[int, str]]:
    """Time of change and digest of each file."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return {
        str(file): (file.stat().st_mtime_ns, hashlib.sha256(file.read_bytes()).hexdigest())
        for file in sorted(files)
    }
