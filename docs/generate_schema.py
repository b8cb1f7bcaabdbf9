"""Write `docs/schema/*.json` from the types in `openreadout.payloads`; `--check` compares instead of writing."""

from __future__ import annotations

import inspect
import json
import sys
import types
import typing
from pathlib import Path

from openreadout import payloads, serialize

FOLDER = Path(__file__).with_name("schema")
DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class Generator:
    """Turns types into schemas; each TypedDict becomes a definition of its own."""

    def __init__(self, *, closed: bool) -> None:
        self.closed = closed
        self.definitions: dict[str, dict[str, object]] = {}

    def schema(self, kind: object) -> dict[str, object]:
        """The schema of a type as an annotation names it."""
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind is typing.Any:
            return {}
        if isinstance(kind, type) and kind in PLAIN:
            return {"type": PLAIN[kind]}
        if origin is typing.NotRequired:
            return self.schema(arguments[0])
        if origin is typing.Annotated:
            return {**self.schema(arguments[0]), "description": arguments[1]}
        if origin is list:
            return {"type": "array", "items": self.schema(arguments[0])}
        if origin is dict:
            return {"type": "object"}
        if origin in (types.UnionType, typing.Union):
            return self._union([self.schema(item) for item in arguments])
        if typing.is_typeddict(kind):
            return self._reference(typing.cast("type", kind))
        raise TypeError(f"no schema for {kind}")

    @staticmethod
    def _union(options: list[dict[str, object]]) -> dict[str, object]:
        """`X | None` of a plain type is one schema with two types."""
        if all(isinstance(o.get("type"), str) and len(o) <= 2 for o in options[:1]) and (
            options[1:] == [{"type": "null"}]
        ):
            return {**options[0], "type": [options[0]["type"], "null"]}
        return {"anyOf": options}

    def _reference(self, kind: type) -> dict[str, object]:
        if kind.__name__ not in self.definitions:
            self.definitions[kind.__name__] = {}  # so that a type may refer to itself
            self.definitions[kind.__name__] = self._object(kind)
        return {"$ref": f"#/$defs/{kind.__name__}"}

    def _object(self, kind: type) -> dict[str, object]:
        hints = typing.get_type_hints(kind, include_extras=True)
        body: dict[str, object] = {
            "description": " ".join(inspect.getdoc(kind).split()),
            "type": "object",
            "properties": {key: self.schema(hint) for key, hint in hints.items()},
            "required": sorted(kind.__required_keys__, key=list(hints).index),
        }
        if self.closed:
            body["additionalProperties"] = False
        return body


def envelope(name: str, *, closed: bool = False) -> dict[str, object]:
    """The schema of what a command prints with `--json` for one input."""
    generator = Generator(closed=closed)
    data = generator.schema(payloads.COMMANDS[name])
    error = generator.schema(payloads.Error)
    version = {"const": serialize.SCHEMA_VERSION}
    path = {"path": {"type": ["string", "null"]}}  # beside `ok` with --jsonl
    done = {"ok": {"const": True}, "schema_version": version, **path, "data": data}
    failed = {"ok": {"const": False}, "schema_version": version, **path, "error": error}
    return {
        "$schema": DIALECT,
        "title": f"openreadout {name.replace('-', ' --', 1) if name.startswith(('check-', 'export-')) else name}",
        "oneOf": [
            {"type": "object", "properties": done, "required": ["ok", "schema_version", "data"]},
            {"type": "object", "properties": failed, "required": ["ok", "schema_version", "error"]},
        ],
        "$defs": generator.definitions,
    }


def files() -> dict[str, str]:
    """Every file of the folder with its text."""
    return {
        f"{name}.json": json.dumps(envelope(name), indent=2, ensure_ascii=False) + "\n"
        for name in payloads.COMMANDS
    }


def main() -> None:
    """Write the files, or compare them."""
    wanted = files()
    if "--check" not in sys.argv:
        FOLDER.mkdir(exist_ok=True)
        for name, text in wanted.items():
            (FOLDER / name).write_text(text, encoding="utf-8")
        return
    found = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.json")}
    if found != wanted:
        raise SystemExit(f"{FOLDER.name}/ is not current: run `make docs`")


if __name__ == "__main__":
    main()
