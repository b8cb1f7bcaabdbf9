"""Structured annotations as JSON values, and the modulo dimensions among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openreadout_ome_xml.elements import attributes, child, children, number, tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lxml.etree import _Element

MODULO = "openmicroscopy.org/omero/dimension/modulo"


def structured_annotations(root: _Element) -> dict[str, Any]:
    """Every structured annotation of a document by its id; those without an id are numbered."""
    found: dict[str, Any] = {}
    for holder in children(root, "StructuredAnnotations"):
        for element in holder:
            if tag(element):
                found[element.get("ID") or f"#{len(found)}"] = _annotation(element)
    return found


def _annotation(element: _Element) -> dict[str, Any]:
    described: dict[str, Any] = {"kind": tag(element), **attributes(element)}
    value = child(element, "Value")
    if value is not None:
        described["value"] = _value(element, value)
    modulo = _modulo(element)
    if modulo:
        described["modulo"] = modulo
    references = [
        part.get("ID") for part in element if tag(part).endswith("Ref") and part.get("ID")
    ]
    if references:
        described["refers_to"] = references
    file = child(element, "BinaryFile")
    if file is not None:
        described["binary_file"] = attributes(file)
    return described


def _value(element: _Element, value: _Element) -> Any:
    if tag(element) == "MapAnnotation":
        return {pair.get("K", ""): pair.text or "" for pair in children(value, "M")}
    if len(value):
        from lxml import etree

        return "".join(etree.tostring(part, encoding="unicode", with_tail=False) for part in value)
    text = (value.text or "").strip()
    if tag(element) in ("DoubleAnnotation", "LongAnnotation"):
        parsed = number(text)
        if parsed is not None:
            return int(text) if text.lstrip("+-").isdigit() and len(text) < 20 else parsed
    if tag(element) == "BooleanAnnotation":
        return text.lower() == "true"
    return text


def _modulo(element: _Element) -> dict[str, Any]:
    """What a modulo annotation folds into t, c or z (OME "6D, 7D and 8D storage")."""
    found: dict[str, Any] = {}
    for along in element.iter():
        name = tag(along)
        if name in ("ModuloAlongT", "ModuloAlongC", "ModuloAlongZ"):
            described = attributes(along)
            described.pop("label", None)
            labels = [(part.text or "").strip() for part in children(along, "Label")]
            found[name[-1].lower()] = {**described, **({"labels": labels} if labels else {})}
    return found


def referenced(elements: Iterable[_Element], known: Mapping[str, Any]) -> list[str]:
    """Ids of the annotations that elements refer to, each once, in order."""
    ids = [
        reference.get("ID", "")
        for element in elements
        for reference in children(element, "AnnotationRef")
    ]
    return [name for name in dict.fromkeys(ids) if name in known]
