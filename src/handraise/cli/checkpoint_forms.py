"""A checkpoint as questions that a terminal can ask, and what was answered as its output. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from handraise.asks import Answer, Ask, Origin, Question
from handraise.asks.forms import to_content, to_questions
from handraise.errors import AnswerDoesNotFit, SettingsError

__all__ = ["output_of", "read_output", "read_value", "takes_text", "to_ask", "wanted"]

ALONE = "output"  # the name of the only field, where the output itself is no object
SIMPLE = ("string", "number", "integer", "boolean")
MOST_FIELDS = 10


def to_ask(checkpoint: Mapping[str, Any], *, skip: str = "`:s`") -> Ask:
    """The checkpoint as it now is: a question for each field where its output is flat, else one that takes JSON.

    `skip` is what one types to skip a question.
    """
    ask = Ask(
        id=checkpoint["id"],
        questions=_questions(checkpoint, skip=skip),
        origin=Origin(agent=checkpoint["workflow"], session="", run=checkpoint["run"], step=checkpoint["step"]),
        asked_at=datetime.fromisoformat(checkpoint["asked_at"]),
    )
    if checkpoint["state"] == "open":
        return ask
    if checkpoint["state"] == "withdrawn":
        return replace(ask, state="withdrawn")
    given = Answer(
        answers=((json.dumps(checkpoint["output"], ensure_ascii=False),),),
        by=checkpoint["by"] or "",
        via=checkpoint["via"] or "",
    )
    return replace(ask, questions=(Question("", custom=True),), state="answered", answer=given)


def output_of(checkpoint: Mapping[str, Any], ask: Ask, answer: Answer) -> Any:
    """What the answers say, as JSON has it. Raises AnswerDoesNotFit."""
    answers = answer.answers or ()
    form = _form(checkpoint["schema"])
    if form is not None:
        content = to_content(ask.questions, answers)
        return content.get(ALONE) if _is_alone(checkpoint["schema"]) else content
    try:
        return json.loads(answers[0][0])
    except ValueError as problem:
        raise AnswerDoesNotFit([{"question": None, "problem": f"That is no JSON: {problem}"}]) from None


def read_output(schema: Mapping[str, Any] | bool, text: str) -> Any:
    """What somebody typed as one word: JSON, or plain text where text is wanted. Raises SettingsError."""
    if not isinstance(schema, bool) and takes_text(schema):
        return text
    try:
        return json.loads(text)
    except ValueError:
        raise SettingsError(f"that is no JSON; what is wanted is {wanted(schema)}") from None


def read_value(schema: Mapping[str, Any] | None, text: str) -> Any:
    """The value of one field: text where text is wanted, else JSON, and text again where it is none."""
    if schema is not None and takes_text(schema):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def takes_text(schema: Mapping[str, Any]) -> bool:
    schema = _resolved(schema, schema)
    either = schema.get("anyOf") or schema.get("oneOf") or ()
    if any(isinstance(each, Mapping) and takes_text({**each, "$defs": schema.get("$defs", {})}) for each in either):
        return True
    choices = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    return schema.get("type") == "string" or (bool(choices) and all(isinstance(each, str) for each in choices))


def wanted(schema: Mapping[str, Any] | bool) -> str:
    """What an output has to be, in a few words."""
    if isinstance(schema, bool):
        return "any JSON"
    form = _form(schema)
    if form is None:
        return f"JSON of this form: {json.dumps(schema)}"
    if _is_alone(schema):
        return _kind(form["properties"][ALONE])
    required = form.get("required", ())
    fields = [f"{name}{'' if name in required else '?'}: {_kind(field)}" for name, field in form["properties"].items()]
    return "{" + ", ".join(fields) + "}"


def _kind(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(json.dumps(each) for each in field["enum"])
    if field.get("type") == "array":
        return f"a list of {_kind(field['items'])}"
    known = {"string": "text", "boolean": "true or false", "integer": "a whole number", "number": "a number"}
    return known.get(field.get("type", ""), "anything")


def _questions(checkpoint: Mapping[str, Any], *, skip: str) -> tuple[Question, ...]:
    """The first one carries what the checkpoint shows."""
    schema, step = checkpoint["schema"], checkpoint["step"]
    form = _form(schema)
    if form is None:
        asked = [Question(f"Give JSON of this form: {json.dumps(schema)}", header=step, kind="text")]
    else:
        required = form["required"]
        asked = [
            replace(
                question,
                header=step if _is_alone(schema) else name,
                question=_about(field, is_required=name in required, skip=skip),
            )
            for question, (name, field) in zip(to_questions(form, message=""), form["properties"].items(), strict=True)
        ]
    texts = [each for each in (checkpoint["input"], asked[0].question) if each]
    return (replace(asked[0], question="\n".join(texts)), *asked[1:])


def _about(field: Mapping[str, Any], *, is_required: bool, skip: str) -> str:
    description = str(field.get("description") or "")
    if is_required:
        return description
    default = field.get("default")
    left = "leaves it out" if default is None else f"leaves it at {json.dumps(default, ensure_ascii=False)}"
    return f"{description} (optional; {skip} {left})".strip()


def _is_alone(schema: Mapping[str, Any]) -> bool:
    return _resolved(schema, schema).get("type") != "object"


def _form(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The flat form it is, with a field of our own where it is no object; None where it is neither."""
    top = _resolved(schema, schema)
    if top.get("type") == "object":
        fields = top.get("properties")
        if not isinstance(fields, Mapping) or not 0 < len(fields) <= MOST_FIELDS or top.get("additionalProperties"):
            return None
        required = [each for each in top.get("required", ()) if isinstance(each, str)]
    else:
        fields, required = {ALONE: {**top, "title": ""}}, [ALONE]
    flat = {name: _flat(field, schema) for name, field in fields.items()}
    if any(field is None for field in flat.values()):
        return None
    return {"type": "object", "properties": flat, "required": required}


def _flat(field: Any, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """One field that fits into a line; None where it does not."""
    if not isinstance(field, Mapping):
        return None
    found = _resolved(field, schema)
    either = found.get("anyOf")
    if isinstance(either, list):  # an optional one: itself, or null
        rest = [each for each in either if not (isinstance(each, Mapping) and each.get("type") == "null")]
        if len(rest) != 1 or len(either) != 2:
            return None
        inner = _flat(rest[0], schema)
        return None if inner is None else {**{k: v for k, v in found.items() if k != "anyOf"}, **inner}
    if "const" in found:
        found = {**found, "enum": [found["const"]]}
    if isinstance(found.get("enum"), list):
        return {key: value for key, value in found.items() if key != "$defs"}
    if found.get("type") in SIMPLE:
        return {key: value for key, value in found.items() if key != "$defs"}
    items = found.get("items")
    if found.get("type") == "array" and isinstance(items, Mapping):
        inside = _resolved(items, schema)
        if isinstance(inside.get("enum"), list):
            return {**{key: value for key, value in found.items() if key != "$defs"}, "items": dict(inside)}
    return None


def _resolved(field: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The field with what its reference stands for, where it is one."""
    found = dict(field)
    for _ in range(10):  # a chain of references that is longer leads nowhere
        reference = found.pop("$ref", None)
        if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
            break
        target = (schema.get("$defs") or {}).get(reference.removeprefix("#/$defs/"))
        found = {**(target if isinstance(target, Mapping) else {}), **found}
    return found
