"""Writes src/handraise/web/types/api.d.ts, the types of the web app, from the OpenAPI document; `--check` as elsewhere.

Each schema becomes a type of its name. Records that are both sent and told, such as a question, become two: what is
sent may leave out whatever has a default, and what the desk tells has it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from handraise.server.openapi import document

FILE = Path(__file__).parent.parent / "src" / "handraise" / "web" / "types" / "api.d.ts"
HEAD = "// Written by docs/generate_types.py from the OpenAPI document. Change it there, then `make docs`."
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
SENT = "Sent"  # the end of the name of a record as it is sent

Schema = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the file is stale")
    check = parser.parse_args().check
    text = types()
    if FILE.exists() and FILE.read_text() == text:
        return
    name = FILE.relative_to(Path(__file__).parent.parent)
    if check:
        sys.exit(f"stale, run `make docs`: {name}")
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(text)
    print(f"wrote {name}")


def types() -> str:
    """The text of the file."""
    return "\n".join([HEAD, "", *_types()]).rstrip() + "\n"


def shared() -> set[str]:
    """The records that are sent, as part of a body, and told as well."""
    schemas = document()["components"]["schemas"]
    bodies = {name for name in schemas if name.endswith("Body")}
    return _reached(schemas, from_=bodies) & _reached(schemas, from_=schemas.keys() - _reached(schemas, from_=bodies))


def always_told(name: str) -> set[str]:
    """The fields that are there whenever the desk tells such a record; those that could be null are left out then."""
    schema = document()["components"]["schemas"][name]
    required = set(schema.get("required", ()))
    if name not in shared():
        return required
    return required | {key for key, field in schema["properties"].items() if field.get("default") is not None}


def _reached(schemas: Schema, *, from_: set[str]) -> set[str]:
    """These and whatever they refer to."""
    found: set[str] = set()
    left = list(from_)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += re.findall(r'"#/components/schemas/(\w+)"', json.dumps(schemas[name]))
    return found


def _types() -> Iterator[str]:
    schemas = document()["components"]["schemas"]
    twice = shared()
    for name, schema in schemas.items():
        yield from _type(name, schema, told=not name.endswith("Body"))
        if name in twice and _differs(name, schemas):
            yield from _type(name + SENT, schema, told=False)
    refusals = [name for name, schema in schemas.items() if _is_refusal(schema)]
    yield "/** What the desk answers where it refuses; `error` says which. */"
    yield "export type Refusal =\n  | " + "\n  | ".join(refusals) + ";"


def _differs(name: str, schemas: Schema) -> bool:
    """Whether a shared record leaves something out when it is sent, itself or in what it refers to."""
    reached = _reached(schemas, from_={name}) & shared()
    return any(always_told(each) != set(schemas[each].get("required", ())) for each in reached)


def _is_refusal(schema: Schema) -> bool:
    return "const" in schema.get("properties", {}).get("error", {})


def _type(name: str, schema: Schema, *, told: bool) -> Iterator[str]:
    yield from _comment(schema, "")
    if "properties" in schema and schema.get("type") == "object":
        plain = name.removesuffix(SENT) if not told else name
        required = always_told(plain) if told else set(schema.get("required", ()))
        is_open = schema.get("additionalProperties") is True
        yield f"export interface {name} {{"
        yield from _fields(
            schema["properties"], required, indent="  ", told=told, drops_null=told and plain in shared()
        )
        if is_open:
            yield "  [name: string]: unknown;"
        yield "}"
    else:
        yield f"export type {name} = {_written(schema, indent='', told=told)};"
    yield ""


def _fields(
    properties: Schema, required: set[str], *, indent: str, told: bool, drops_null: bool = False
) -> Iterator[str]:
    for key, schema in properties.items():
        yield from _comment(schema, indent)
        mark = "" if key in required else "?"
        written = _written(schema, indent=indent, told=told)
        if drops_null and key not in required:
            written = written.removesuffix(" | null")
        yield f"{indent}{key if key.isidentifier() else json.dumps(key)}{mark}: {written};"


def _written(schema: Schema, *, indent: str, told: bool) -> str:
    """One schema as a type. What a type cannot say, such as the length of a string, is left to the desk."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        schemas = document()["components"]["schemas"]
        return name + SENT if not told and name in shared() and _differs(name, schemas) else name
    if "const" in schema:
        return json.dumps(schema["const"], ensure_ascii=False)
    if "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not kinds:
        branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        return _union(_written(branch, indent=indent, told=told) for branch in branches)
    return _union(_kind(kind, schema, indent=indent, told=told) for kind in kinds)


def _kind(kind: str, schema: Schema, *, indent: str, told: bool) -> str:
    if kind in PLAIN:
        return PLAIN[kind]
    if kind == "array":
        of = _written(schema.get("items", {}), indent=indent, told=told)
        return f"({of})[]" if " | " in of and not of.startswith("{") else f"{of}[]"
    if "properties" in schema:
        inner = _fields(schema["properties"], set(schema.get("required", ())), indent=indent + "  ", told=told)
        return "\n".join(["{", *inner, indent + "}"])
    values = schema.get("additionalProperties", True)
    of = "unknown" if values is True else _written(values, indent=indent, told=told)
    return f"Record<string, {of}>"


def _union(parts: Iterator[str]) -> str:
    different = list(dict.fromkeys(parts))
    different.sort(key=lambda part: part == "null")
    return " | ".join(different) or "unknown"


def _comment(schema: Schema, indent: str) -> Iterator[str]:
    text = " ".join(schema.get("description", "").split()).replace("*/", "* /")
    if text:
        yield f"{indent}/** {text} */"


if __name__ == "__main__":
    main()
