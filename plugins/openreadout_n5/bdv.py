"""BigDataViewer containers as a whole: one set of time points for all setups, and the XML beside the container."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from openreadout.errors import CorruptDataError, InputError
from openreadout.model import Channel
from openreadout_n5 import bdv_xml, geometry
from openreadout_n5.bdv_xml import BdvXml, Setup
from openreadout_n5.conventions import Found, Level, at_times, level_factors
from openreadout_n5.geometry import Frame
from openreadout_n5.tree import Report

MAX_PARTS = 5_000_000
"""Datasets, absent ones included, of all setups, levels and time points."""


def complete(folder: str, xml_path: str | None, found: list[Found], report: Report) -> list[Found]:
    """Lay all setups along the same time points, and give them what the XML tells of them.

    Parameters
    ----------
    folder : str
        The container.
    xml_path : str or None
        The XML, when that is what was opened; otherwise it is looked for beside the container.
    found : list of Found
        All images; those of other conventions stay as they are.
    """
    xml = _read(folder, xml_path, report)
    times = {t for image in found if image.convention == "bdv" for t in image.extra["timepoints"]}
    every = sorted(times | set(xml.timepoints if xml else ()))
    levels = sum(len(image.levels) for image in found if image.convention == "bdv")
    if xml is not None and len(every) * levels > MAX_PARTS:
        report.warn(
            "it lists too many time points; those found were used", os.path.basename(xml.file)
        )
        every = sorted(times)
    done = [
        _setup(at_times(image, every), xml, report) if image.convention == "bdv" else image
        for image in found
    ]
    if xml is not None:
        _absent(xml, found, report)
    return done


def _read(folder: str, xml_path: str | None, report: Report) -> BdvXml | None:
    path = xml_path or bdv_xml.beside(folder)
    if path is None:
        return None
    try:
        xml = bdv_xml.read_xml(path)
    except CorruptDataError as error:
        if xml_path is not None:
            raise
        # Beside the container any file may stand; a damaged or foreign one takes nothing from the pixels.
        name = os.path.basename(path)
        if name != "dataset.xml" or "not a BigDataViewer" not in error.message:
            report.warn(f"not used: {error.message}", name)
        return None
    except InputError as error:
        report.warn(f"not used: {error.message}", os.path.basename(path))
        return None
    target = os.path.realpath(os.path.join(os.path.dirname(path), *xml.container.split("/")))
    return xml if target == os.path.realpath(folder) else None


def _absent(xml: BdvXml, found: list[Found], report: Report) -> None:
    there = {image.extra.get("setup") for image in found if image.convention == "bdv"}
    for number in sorted(set(xml.setups) - there):
        report.warn(
            f"setup {number} is listed and absent; it was left out", os.path.basename(xml.file)
        )


def _setup(image: Found, xml: BdvXml | None, report: Report) -> Found:
    number = image.extra.get("setup")
    missing = image.extra.get("missing_timepoints", [])
    declared = xml.missing if xml is not None else frozenset()
    lost = [t for t in missing if (t, number) not in declared]
    if lost:
        shown = ", ".join(map(str, lost[:10])) + (", ..." if len(lost) > 10 else "")
        report.warn(f"time points {shown} are not stored and read as 0", image.path or "/")
    setup = xml.setups.get(number) if xml is not None and isinstance(number, int) else None
    return image if setup is None else _described(image, setup)


def _described(image: Found, setup: Setup) -> Found:
    extra: Mapping[str, Any] = {**image.extra, **bdv_xml.extra_of(setup)}
    named = image.channels or ((Channel(name=setup.channel_name),) if setup.channel_name else ())
    levels = image.levels
    if setup.voxel_size is not None:
        base = _voxel_frame(image, setup)
        levels = tuple(_rescaled(image, n, level, base) for n, level in enumerate(image.levels))
    return image._replace(name=setup.name, extra=extra, channels=named, levels=levels)


def _voxel_frame(image: Found, setup: Setup) -> Frame:
    ndim = len(image.levels[0].model.shape)
    size = setup.voxel_size or ()
    pad: list[float | None] = [None] * ndim
    scale = tuple(([*size, *pad])[:ndim])
    units = (setup.unit,) * ndim if setup.unit else None
    return Frame(image.levels[0].frame.names, units, scale, None)


def _rescaled(image: Found, number: int, level: Level, base: Frame) -> Level:
    """A level with the XML's voxel size in place of the container's, its factors kept."""
    first, own = image.levels[0].frame, level.frame
    by: list[float | None] = []
    for n in range(len(level.model.shape)):
        full = first.scale[n] if first.scale else None
        part = own.scale[n] if own.scale else None
        by.append(part / full if part is not None and full else 1.0 if number == 0 else None)
    stated = level_factors(level.model.attributes, {}, number, len(by))
    return level._replace(frame=geometry.downsampled(base, stated or tuple(by)))
