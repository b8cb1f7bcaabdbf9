"""Channel elements to the model's channels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from openreadout.model import Channel
from openreadout_ome_xml.document import OmeChannel, OmePlane
from openreadout_ome_xml.elements import attributes, child, children, nanometres, snake, whole

if TYPE_CHECKING:
    from lxml.etree import _Element

    from openreadout_ome_xml.hardware import Hardware

_KEPT = (
    "AcquisitionMode", "Mode", "IlluminationType", "ContrastMethod", "PinholeSize", "PinholeSizeUnit", "NDFilter",
    "PockelCellSetting",
)  # fmt: skip
_SETTINGS = {
    "DetectorSettings": "detector_settings", "DetectorRef": "detector_settings",
    "LightSourceSettings": "light_source_settings", "LightSourceRef": "light_source_settings",
    "FilterSetRef": "filter_set",
}  # fmt: skip


def color(text: str | None) -> str | None:
    """`#RRGGBB` of OME's colour, a signed 32-bit number whose bytes are red, green, blue, alpha from the top."""
    try:
        value = int((text or "").strip()[:12])
    except ValueError:
        return None
    if not -(1 << 31) <= value < 1 << 32:
        return None
    return f"#{(value >> 8) & 0xFFFFFF:06X}"


def color_number(text: str | None) -> int | None:
    """OME's number for `#RRGGBB`, opaque; the inverse of `color`."""
    digits = (text or "").removeprefix("#")
    if len(digits) != 6:
        return None
    try:
        value = int(digits, 16) << 8 | 0xFF
    except ValueError:
        return None
    return value - (1 << 32) if value >= 1 << 31 else value


def channels(
    image: _Element,
    pixels: _Element,
    planes: Iterable[OmePlane],
    hardware: Hardware,
    size_c: int,
) -> tuple[OmeChannel, ...]:
    """The channels of an image in order, at most `SizeC`; before 2009 they are LogicalChannel elements of the image."""
    found = list(children(pixels, "Channel")) or list(children(image, "LogicalChannel"))
    exposures = _exposures(planes)
    return tuple(
        _channel(element, hardware, exposures.get(n, ()))
        for n, element in enumerate(found[:size_c])
    )


def _exposures(planes: Iterable[OmePlane]) -> dict[int, tuple[float, float, float]]:
    """First, smallest and largest exposure of each channel in seconds."""
    found: dict[int, tuple[float, float, float]] = {}
    for plane in planes:
        value = plane.exposure_s
        if value is not None:
            known = found.get(plane.c)
            found[plane.c] = (
                (value, value, value)
                if known is None
                else (known[0], min(known[1], value), max(known[2], value))
            )
    return found


def _channel(element: _Element, hardware: Hardware, exposure: tuple[float, ...]) -> OmeChannel:
    extra: dict[str, Any] = {snake(n): element.attrib[n] for n in _KEPT if n in element.attrib}
    if "mode" in extra:  # 2008
        extra.setdefault("acquisition_mode", extra.pop("mode"))
    for name in ("pinhole_size", "nd_filter", "pockel_cell_setting"):
        if name in extra:
            extra[name] = attributes(element).get(name)
    for part in element:
        key = _SETTINGS.get(str(part.tag).rpartition("}")[2])
        if key and key not in extra:
            extra[key] = attributes(part)
    extra.update(_light_path(element, hardware))
    if exposure and exposure[1] != exposure[2]:
        extra["exposure_s_range"] = [exposure[1], exposure[2]]
    get = element.get
    return OmeChannel(
        id=get("ID"),
        samples_per_pixel=whole(get("SamplesPerPixel"), "Channel/@SamplesPerPixel"),
        channel=Channel(
            name=get("Name"),
            color=color(get("Color")),
            fluorophore=get("Fluor") or None,
            excitation_nm=nanometres(element, "ExcitationWavelength")
            or nanometres(element, "ExWave"),
            emission_nm=nanometres(element, "EmissionWavelength") or nanometres(element, "EmWave"),
            exposure_s=exposure[0] if exposure else None,
            extra=extra,
        ),
    )


def _light_path(element: _Element, hardware: Hardware) -> dict[str, Any]:
    """Bands of the filters on the light's way, in nm: from the light path, else from the filter set."""
    path = child(element, "LightPath")
    if path is None:
        reference = child(element, "FilterSetRef")
        path = hardware.find(reference.get("ID")) if reference is not None else None
    if path is None:
        return {}
    found = {}
    for name, old, key in (
        ("ExcitationFilterRef", "ExFilterRef", "excitation_band_nm"),
        ("EmissionFilterRef", "EmFilterRef", "detection_band_nm"),
    ):
        reference = child(path, name)
        band = hardware.band_nm(reference.get("ID") if reference is not None else path.get(old))
        if band is not None:
            found[key] = band
    return found
