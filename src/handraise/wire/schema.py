"""The JSON Schema of our shapes: what a desk takes from the checks of pydantic, what it tells from the dataclass alone.

A field of a reply that has the default None is left out where there is nothing to tell; every other field is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from handraise.asks import LONGEST_NAME, LONGEST_TEXT, MOST_OPTIONS, MOST_QUESTIONS
from handraise.asks.card import PartName
from handraise.rules.risks import RISKS
from handraise.wire.asks import ASK_EXAMPLE
from handraise.wire.fields import Doc, Format, Limits, OrNull
from handraise.wire.parsing import json_schemas

__all__ = ["Schema", "body_schemas", "reference", "reply_schema", "shapes_in", "type_schema"]

Schema = dict[str, Any]

_REFS = "#/components/schemas/{model}"
_PLAIN: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_LIMITS = {
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
}


def reference(name: str) -> Schema:
    return {"$ref": _REFS.format(model=name)}


# What is told -----------------------------------------------------------------------------------------------


def reply_schema(shape: type) -> Schema:
    """The schema of one shape. Others that it holds are references, but for those with `IN_PLACE`."""
    hints = get_type_hints(shape, include_extras=True)
    properties: Schema = {}
    required: list[str] = []
    for field in fields(shape):
        is_optional = field.default is not MISSING
        properties[field.name] = type_schema(hints[field.name], is_optional=is_optional)
        if not is_optional:
            required.append(field.name)
    schema: Schema = {"type": "object", "properties": properties, "required": required}
    return schema | _beside(shape)


def type_schema(kind: Any, *, is_optional: bool = False) -> Schema:
    """The schema of a type. One that may be left out is never null, unless it says so with `OR_NULL`."""
    if get_origin(kind) is Annotated:
        plain, *notes = get_args(kind)
        is_never_null = is_optional and not any(isinstance(note, OrNull) for note in notes)
        schema = type_schema(plain, is_optional=is_never_null)
        for note in notes:
            schema |= _noted(note)
        return schema
    if get_origin(kind) in (Union, UnionType):
        return _union([part for part in get_args(kind) if not (is_optional and part is NoneType)])
    if get_origin(kind) is Literal:
        return _literal(get_args(kind))
    if get_origin(kind) is tuple:
        return {"type": "array", "items": type_schema(get_args(kind)[0])}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if is_dataclass(kind):
        assert isinstance(kind, type)
        return reply_schema(kind) if "IN_PLACE" in kind.__dict__ else reference(kind.__name__)
    if kind is Any:
        return {}
    values = get_args(kind)[1]  # a mapping by text
    return {"type": "object"} | ({} if values is Any else {"additionalProperties": type_schema(values)})


def _noted(note: Any) -> Schema:
    match note:
        case Doc():
            return {"description": note.text} | ({"examples": list(note.examples)} if note.examples else {})
        case Format():
            return {"format": note.name}
        case Limits():
            given = {schema: getattr(note, name) for name, schema in _LIMITS.items()}
            return {name: limit for name, limit in given.items() if limit is not None}
        case _:
            return {}


def _union(parts: list[Any]) -> Schema:
    schemas = [type_schema(part) for part in parts]
    if len(schemas) == 1:
        return schemas[0]
    if not all("type" in schema for schema in schemas):
        return {"anyOf": schemas}
    found: Schema = {}
    for schema in schemas:  # each but the first is a bare type
        found |= {key: value for key, value in schema.items() if key != "type"}
    if "enum" in found and NoneType in parts:
        found["enum"] = [*found["enum"], None]
    return {"type": [schema["type"] for schema in schemas], **found}


def _literal(values: tuple[Any, ...]) -> Schema:
    kind = _PLAIN[type(values[0])]
    return {"type": kind, "enum": list(values)} if kind == "string" else {"type": kind, "const": values[0]}


def shapes_in(kind: Any) -> Iterator[type]:
    """The shapes that a type holds, and those that they hold, itself among them."""
    found: dict[type, None] = {}
    left = [kind]
    while left:
        kind = left.pop()
        if isinstance(kind, type) and is_dataclass(kind):
            if kind not in found:
                found[kind] = None
                left += get_type_hints(kind, include_extras=True).values()
        else:
            left += get_args(kind)
    yield from found


def _beside(shape: type) -> Schema:
    """What a shape says of itself beside its fields: more that has to hold, and an example."""
    said: Schema = dict(shape.__dict__.get("ALSO", {}))
    if "EXAMPLE" in shape.__dict__:
        said["examples"] = [shape.__dict__["EXAMPLE"]]
    return said


# What is taken ----------------------------------------------------------------------------------------------

# `asks.bound` checks more of the records than their types say. The tests hold both to it.
_PRINTABLE = r"^(?: |[^\p{Cc}\p{Cf}\p{Co}\p{Z}])+$"  # of the separators only the plain space, and nothing hidden
_TEXT: Schema = {"maxLength": LONGEST_TEXT}
_FULL: Schema = {"minLength": 1, **_TEXT}
_NAME: Schema = {"minLength": 1, "maxLength": LONGEST_NAME, "pattern": _PRINTABLE}
_NAME_OR_EMPTY: Schema = {"maxLength": LONGEST_NAME, "pattern": f"^$|{_PRINTABLE}"}
_MORE_LIMITS: Mapping[str, Mapping[str, Schema]] = {
    "AskBody": {
        "id": {"pattern": _PRINTABLE, "not": {"pattern": r"^(?:@|\.\.?$)"}},
        "questions": {"maxItems": MOST_QUESTIONS},
    },
    "Origin": {
        **dict.fromkeys(("agent", "session"), _NAME),
        **dict.fromkeys(("run", "step", "parent"), _NAME_OR_EMPTY),
        **dict.fromkeys(("cwd", "machine"), _TEXT),
    },
    "Question": {"question": _FULL, "header": _TEXT, "options": {"maxItems": MOST_OPTIONS}},
    "Option": {"label": _FULL, **dict.fromkeys(("description", "value", "preview"), _TEXT)},
    "Permission": {
        "tool": _FULL,
        **dict.fromkeys(("summary", "command", "cwd", "url"), _TEXT),
        "replies": {"minItems": 1},
    },
}
# Without options and own text nobody could answer.
_UNANSWERABLE: Schema = {
    "required": ["custom"],
    "properties": {"custom": {"const": False}, "options": {"maxItems": 0}, "kind": {"const": "choice"}},
}
_BY_DESK = (
    "The desk keeps it as rules for the session and its subagents, and the agent is only ever told `once`. A pattern "
    "that no rule can say for certain is not kept."
)


def body_schemas(*bodies: type) -> dict[str, Schema]:
    """The schema of each body and of every record in it, by name, as pydantic checks it."""
    schemas = json_schemas(*bodies, refs=_REFS)
    by_name = {shape.__name__: shape for body in bodies for shape in shapes_in(body)}
    for name, schema in schemas.items():
        schema.pop("title", None)
        for field in schema["properties"].values():
            field.pop("title", None)
        for key, limits in _MORE_LIMITS.get(name, {}).items():
            field = schema["properties"][key]
            given = next((branch for branch in field.get("anyOf", ()) if branch.get("type") != "null"), field)
            given |= limits
        for key, kind in get_type_hints(by_name[name], include_extras=True).items():
            for note in get_args(kind)[1:] if get_origin(kind) is Annotated else ():
                if isinstance(note, Doc):
                    schema["properties"][key.rstrip("_")]["description"] = note.text
        schema |= _beside(by_name[name])
    if "Question" in schemas:
        schemas["Question"]["not"] = _UNANSWERABLE
    if "Scope" in schemas:
        schemas["Scope"]["properties"]["by_desk"]["description"] = _BY_DESK
    if "Ask" in schemas:
        _complete_ask(schemas)
    return schemas


# An ask as it is told ---------------------------------------------------------------------------------------


def _list_of(items: Schema, meaning: str) -> Schema:
    return {"type": "array", "items": items, "description": meaning}


# What the desk found out about a permission when it was asked.
_OF_PERMISSIONS: Schema = {
    "risks": {
        "type": "array",
        "items": {"type": "string", "enum": list(RISKS)},
        "description": "Of a permission: what it can do that people should think twice about. It leaves out nothing "
        "that it knows, and it does not know everything.",
    },
    "commands": {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 2,
        "description": "Of a permission: the commands of its line, in order, where there is more than one.",
    },
    "doubt": {
        "type": "string",
        "description": "Of a permission: why it cannot be said for certain what it does. Not there where it can be.",
    },
    "only_at_desk": {
        "type": "string",
        "description": "Of a permission: why an answer link, a notification or a place that does not say for sure who "
        "answers can only refuse it. Not there where they can allow it.",
    },
    "card": {
        "type": "object",
        "properties": {
            "heading": {
                "type": "object",
                "properties": {"key": {"type": "string"}, "count": {"type": "integer", "minimum": 0}},
                "required": ["key"],
                "description": "What the agent wants: a key of the word catalogue, and what the ask does not say.",
            },
            "parts": _list_of(
                {"type": "string", "enum": list(get_args(PartName))},
                "What it is about, in the order in which it is read.",
            ),
            "arguments": _list_of(
                {"type": "string"},
                "The names in `permission.input` that no other part shows; all, where this is missing.",
            ),
            "approved": _list_of(
                {"type": "string"}, "The names in `permission.extra.input`, which goes back to the agent with its plan."
            ),
            "elsewhere": _list_of(
                {"type": "integer", "minimum": 0},
                "Places in `permission.paths` where a link leads elsewhere: see `permission.resolved`.",
            ),
            "host": {
                "type": "string",
                "description": "Of `permission.url`, where programs agree which host that names.",
            },
            "claim": {
                "type": "boolean",
                "description": "`permission.summary` says something that no part says. It may be a lie.",
            },
            "lacks_diff": {
                "type": "boolean",
                "description": "Files are to be changed, and the agent does not show how.",
            },
            "notification": {"type": "boolean", "description": "The button of a notification may allow it."},
        },
        "required": ["heading", "parts"],
        "description": "Of a permission: what people have to see of it. It names fields of the ask. "
        "Asks of older desks have none.",
    },
}


def _complete_ask(schemas: dict[str, Schema]) -> None:
    """An ask and its answer are told by `wire.stored`, which leaves fewer fields out than a body may."""
    schemas["Answer"]["required"] = ["answers", "reply", "rejected", "reason", "notes", "by", "via", "at"]
    schemas["Ask"]["required"] = list(ASK_EXAMPLE)
    schemas["Ask"]["properties"] |= {"asked_at": {"type": "string", "format": "date-time"}, **_OF_PERMISSIONS}
    schemas["Ask"]["examples"] = [ASK_EXAMPLE]
