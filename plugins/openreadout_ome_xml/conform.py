"""Build a 2016-06 document of what is valid in a tree that has the names of 2016-06; count what is not."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING

from openreadout_ome_xml.schema import FREE_REFERENCES, KINDS, Child, Rule, rules
from openreadout_ome_xml.values import fit, unit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lxml.etree import _Element

MAX_VALUE_DEPTH = 200
"""Nesting of the content of an XMLAnnotation; modulo annotations go three deep."""
_DEFAULTS = {
    "Pixels": {"DimensionOrder": "XYZCT", "Type": "uint8", "SizeZ": "1", "SizeC": "1", "SizeT": "1"},
    "Plane": {"TheZ": "0", "TheC": "0", "TheT": "0"},
    "StageLabel": {"Name": ""},
    "Mask": {"Width": "1", "Height": "1"},
}  # fmt: skip
"""What stands for attributes that 2016-06 demands and that a document lacks: as this reader takes them, and as the
published upgrade gives masks, which had no size before 2010-06."""


class Conformed:
    """The elements of a source, one after another, as far as they are valid.

    Attributes
    ----------
    removed : Counter
        How many elements and attributes (`Element/@Name`) were left out, by name; an element counts with all in it.
    """

    def __init__(self, namespace: str, removed: Counter[str]) -> None:
        self._namespace = f"{{{namespace}}}"
        self.removed = removed
        self._rules = rules()
        self._taken: dict[str, set[str]] = {kind: set() for kind in KINDS}
        self._defined: list[tuple[_Element, str]] = []
        self._references: list[tuple[_Element, str, str]] = []

    def fill(self, source: _Element, target: _Element) -> None:
        """Put the content of a source's root into the root of the new document; the source is used up."""
        rule = self._rules["OME"]
        for name, text in (self._attributes(source, "OME", rule) or {}).items():
            target.set(name, text)
        self._children(source, target, rule)
        self._resolve(target)

    def _element(self, source: _Element, parent: _Element, name: str, rule_name: str) -> bool:
        """Add an element with all that is valid in it; False when it cannot be."""
        from lxml import etree

        rule = self._rules[rule_name]
        values = self._attributes(source, rule_name, rule)
        text = self._text(source, rule)
        if values is None or (rule.text is not None and text is None):
            self.removed[name] += 1
            return False
        element = etree.SubElement(parent, self._namespace + name, values)
        element.text = text or None
        if rule.text == "anything":
            self._anything(source, element)
        elif not self._children(source, element, rule):
            parent.remove(element)
            self.removed[name] += 1
            return False
        for attribute, about in rule.attributes.items():
            if about.type in KINDS and attribute in values:
                if attribute == "ID" and not _is_reference(rule_name):
                    self._defined.append((element, about.type))
                else:
                    self._references.append((element, attribute, about.type))
        source.clear()
        return True

    def _anything(self, source: _Element, target: _Element) -> None:
        """Copy elements of any schema; text between them has no place in 2016-06."""
        texts = [source.text]
        for inner in source:
            texts.append(inner.tail)
            copied = copy.deepcopy(inner)
            copied.tail = None
            target.append(copied)
        if any((text or "").strip() for text in texts):
            self.removed["XMLAnnotation/Value text"] += 1

    def _children(self, source: _Element, target: _Element, rule: Rule) -> bool:
        """Add the children in the schema's order; False when one is missing."""
        by_name: dict[str, list[tuple[int, _Element]]] = {}
        if rule.text is None:
            for place, inner in enumerate(source):
                by_name.setdefault(str(inner.tag), []).append((place, inner))
        complete = True
        for child in rule.children:
            complete &= self._place(by_name, target, child)
        for name, left in by_name.items():
            self.removed[name] += len(left)
        return complete

    def _place(
        self, by_name: dict[str, list[tuple[int, _Element]]], target: _Element, child: Child
    ) -> bool:
        found = sorted(
            (item for name in child.rules for item in by_name.pop(name, ())),
            key=lambda item: item[0],
        )
        count = 0
        for _, inner in found:
            name = str(inner.tag)
            if child.most is not None and count >= child.most:
                self.removed[name] += 1
            else:
                count += self._element(inner, target, name, child.rules[name])
        return count >= child.least

    def _attributes(self, source: _Element, rule_name: str, rule: Rule) -> dict[str, str] | None:
        """The valid attributes; None when one that the schema demands is missing."""
        found: dict[str, str] = {}
        given = {str(name): str(text) for name, text in source.attrib.items()}
        for name, about in rule.attributes.items():
            text = given.pop(name, None)
            measure = given.pop(f"{name}Unit", None) if about.unit else None
            value = None if text is None else fit(about.type, text)
            symbol = None if measure is None or about.unit is None else unit(about.unit, measure)
            if value is not None and measure is not None and symbol is None:
                value = None  # under the default unit it would be another quantity
            if text is not None and text.strip() and value is None:
                self.removed[f"{rule_name}/@{name}"] += 1
            if about.type in KINDS and name == "ID" and not _is_reference(rule_name):
                value = self._own_name(about.type, value)
            if value is None and about.required:
                value = _DEFAULTS.get(rule_name, {}).get(name)
                if value is None:
                    return None
            if value is not None:
                found[name] = value
                if symbol is not None:
                    found[f"{name}Unit"] = symbol
        for name in given:
            if not name.startswith("{http://www.w3.org/"):
                self.removed[f"{rule_name}/@{name.rpartition('}')[2]}"] += 1
        return found

    def _own_name(self, kind: str, value: str | None) -> str:
        """An identifier that no other element of the kind has; references keep to the first that had it."""
        taken = self._taken[kind]
        stem = f"{kind}:unnamed" if value is None else f"{value}:again"
        name = value
        number = len(taken)
        while name is None or name in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name)
        return name

    def _text(self, source: _Element, rule: Rule) -> str | None:
        if rule.text is None:
            return None
        if rule.text == "anything":
            return "" if _depth(source) <= MAX_VALUE_DEPTH else None
        return fit(rule.text, "".join(map(str, source.itertext())))

    def _resolve(self, root: _Element) -> None:
        """Take out references that lead nowhere, where the schema demands that they lead somewhere."""
        while True:
            known: dict[str, set[str]] = {kind: set() for kind in KINDS}
            for element, kind in self._defined:
                if _attached(element, root):
                    known[kind].add(str(element.get("ID")))
            dangling = [
                (element, attribute)
                for element, attribute, kind in self._references
                if element.get(attribute) is not None
                and element.get(attribute) not in known[kind]
                and _attached(element, root)
                and not _is_free(element)
            ]
            for element, attribute in dangling:
                self._take_out(element, attribute)
            incomplete = self._without_experimenter(root)
            for element in incomplete:
                self._take_out(element, "ID")
            if not dangling and not incomplete:
                return

    def _without_experimenter(self, root: _Element) -> list[_Element]:
        """Manipulations whose experimenter was taken out."""
        path = f"{self._namespace}Experiment/{self._namespace}MicrobeamManipulation"
        return [
            element
            for element in root.iterfind(path)
            if element.find(f"{self._namespace}ExperimenterRef") is None
        ]

    def _take_out(self, element: _Element, attribute: str) -> None:
        name = _name(element)
        parent = element.getparent()
        if attribute != "ID":
            del element.attrib[attribute]
            self.removed[f"{name}/@{attribute}"] += 1
        elif parent is not None:
            parent.remove(element)
            self.removed[name] += 1


def _is_reference(rule_name: str) -> bool:
    return rule_name.endswith(("Ref", "Settings")) or rule_name == "Pump"


def _is_free(element: _Element) -> bool:
    parent = element.getparent()
    return parent is not None and (_name(parent), _name(element)) in FREE_REFERENCES


def _name(element: _Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _attached(element: _Element, root: _Element) -> bool:
    while (parent := element.getparent()) is not None:
        element = parent
    return element is root


def _depth(element: _Element) -> int:
    """How deep the elements below one are nested, without recursion."""
    deepest, level = 0, list(element)
    while level and deepest <= MAX_VALUE_DEPTH:
        deepest += 1
        level = _below(level)
    return deepest


def _below(elements: Iterable[_Element]) -> list[_Element]:
    return [inner for element in elements for inner in element]
