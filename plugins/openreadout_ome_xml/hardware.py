"""Instruments, objectives, filters: what the images of a document refer to by id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openreadout_ome_xml.elements import attributes, child, children, number, tag, tree

if TYPE_CHECKING:
    from lxml.etree import _Element

_LIGHTS = (
    "LightSource",
    "Laser",
    "Arc",
    "Filament",
    "LightEmittingDiode",
    "GenericExcitationSource",
)
_PARTS = {
    "Microscope": "microscope", "Detector": "detectors", "Objective": "objectives", "Filter": "filters",
    "FilterSet": "filter_sets", "Dichroic": "dichroics",
}  # fmt: skip


class Hardware:
    """The instruments of a document, looked up by the ids that images and channels give."""

    def __init__(self, root: _Element) -> None:
        self._instruments = list(children(root, "Instrument"))
        self._by_id: dict[str, _Element] = {}
        for instrument in self._instruments:
            for part in (instrument, *instrument):
                name = part.get("ID")
                if name:
                    self._by_id.setdefault(name, part)
        self._described: dict[_Element, dict[str, Any]] = {}

    def find(self, name: str | None) -> _Element | None:
        """The part of an id."""
        return self._by_id.get(name) if name else None

    def objective(self, image: _Element) -> dict[str, Any] | None:
        """The objective that an image was taken with, with its settings for the image."""
        settings = child(image, "ObjectiveSettings")
        if settings is None:
            settings = child(image, "ObjectiveRef")
        if settings is None:
            return None
        found = self.find(settings.get("ID"))
        used = {key: value for key, value in attributes(settings).items() if key != "id"}
        if found is None:
            return used or None
        return {**attributes(found), **({"settings": used} if used else {})}

    def instrument(self, image: _Element) -> dict[str, Any] | None:
        """The instrument that an image refers to."""
        reference = child(image, "InstrumentRef")
        found = self.find(reference.get("ID")) if reference is not None else None
        if found is None or tag(found) != "Instrument":
            return None
        if found not in self._described:
            self._described[found] = _instrument(found)
        return self._described[found]

    def band_nm(self, name: str | None) -> list[float] | None:
        """Cut-in and cut-out wavelengths of a filter in nm."""
        found = self.find(name)
        band = child(found, "TransmittanceRange") if found is not None else None
        if band is None:
            return None
        low, high = number(band.get("CutIn")), number(band.get("CutOut"))
        return [low, high] if low is not None and high is not None else None


def _instrument(element: _Element) -> dict[str, Any]:
    described: dict[str, Any] = attributes(element)
    for part in element:
        kind = tag(part)
        if kind == "Microscope":
            described["microscope"] = attributes(part)
        elif kind in _PARTS:
            described.setdefault(_PARTS[kind], []).append(tree(part))
        elif kind in _LIGHTS:
            described.setdefault("light_sources", []).append(_light(part))
    return described


def _light(element: _Element) -> dict[str, Any]:
    """A light source; before 2015 its kind is an element inside LightSource."""
    if tag(element) != "LightSource":
        return {"kind": tag(element), **tree(element)}
    kind = next(iter(children(element, *_LIGHTS)), None)
    if kind is None:
        return {"kind": "LightSource", **attributes(element)}
    return {"kind": tag(kind), **attributes(element), **tree(kind)}
