"""A form that an MCP server wants filled in (an elicitation) as questions, and the answers as its content. Pure.

The schemas are the flat ones of MCP: an object whose properties are texts, numbers, booleans and choices. What a
property wants is kept in `Question.extra`, so that an ask that was stored can still be turned into content.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handraise.asks import Kind, Option, Question
from handraise.errors import AnswerDoesNotFit, AskDoesNotFit

__all__ = ["to_content", "to_questions", "to_visit"]

YES, NO = "true", "false"  # the values of a boolean's options, as JSON spells them
DONE = "Done"


def to_questions(schema: Any, *, message: str, order: Sequence[str] | None = None) -> tuple[Question, ...]:
    """One question for each property, `order` first; the first one carries the message. Raises AskDoesNotFit.

    A form without properties only wants a yes: it becomes a question with the one option "OK".
    """
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties", {}), Mapping):
        raise AskDoesNotFit("the form has no properties; `requestedSchema` must be an object schema")
    properties: Mapping[str, Any] = schema.get("properties", {})
    names = [name for name in dict.fromkeys(order or ()) if name in properties]
    names += [name for name in properties if name not in names]
    if not names:
        return (Question(message or "Go on?", (Option("OK"),), header="Confirm", custom=False, extra={"form": {}}),)
    required = schema.get("required")
    questions = [
        _to_question(name, properties[name], required=isinstance(required, list) and name in required) for name in names
    ]
    first = questions[0]
    if message:
        text = message if len(questions) == 1 and not _own_words(first) else f"{message}\n{first.question}"
        questions[0] = _with_text(first, text)
    return tuple(questions)


def to_visit(url: str, *, message: str) -> tuple[Question, ...]:
    """An elicitation that wants a page opened: the question shows the address, and "Done" says that it was."""
    text = "\n".join(each for each in (message, url) if each)
    return (Question(text, (Option(DONE),), header="Open a page", custom=False, extra={"form": {}, "url": url}),)


def to_content(questions: Sequence[Question], answers: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The form's content. Raises AnswerDoesNotFit with every entry that the form does not take.

    A property that was skipped takes its default if it is required, else it is left out.
    """
    content: dict[str, Any] = {}
    problems: list[dict[str, Any]] = []
    for index, (question, values) in enumerate(zip(questions, answers, strict=True)):
        form = (question.extra or {}).get("form") or {}
        if not form:
            continue
        try:
            value = _value(form["schema"], values)
        except ValueError as problem:
            problems.append({"question": index, "problem": str(problem)})
            continue
        if value is None and form["required"]:
            value = form["schema"].get("default")
            if value is None:
                problems.append({"question": index, "problem": "the form wants an answer here"})
        if value is not None:
            content[form["name"]] = value
    if problems:
        raise AnswerDoesNotFit(problems)
    return content


# Questions ----------------------------------------------------------------------------------------------------------


def _to_question(name: str, schema: Any, *, required: bool) -> Question:
    if not isinstance(schema, Mapping):
        raise AskDoesNotFit(f"the property {name!r} of the form has no schema")
    title = _text(schema, "title") or name
    text = _text(schema, "description") or title
    if not required:
        text += " (optional)"
    kind: Kind = "choice"
    choices = list(_choices(schema))
    if not choices:
        kind = "number" if schema.get("type") in ("number", "integer") else "text"
    defaults = schema.get("default")
    defaults = defaults if isinstance(defaults, list) else [defaults]
    options = tuple(
        Option(label, value=value, recommended=any(_spelled(each) == value for each in defaults if each is not None))
        for value, label in choices
    )
    return Question(
        text,
        options,
        header=title,
        multiple=schema.get("type") == "array",
        custom=not options,
        kind=kind,
        extra={"form": {"name": name, "schema": dict(schema), "required": required}},
    )


def _own_words(question: Question) -> bool:
    """Whether the form says more about the property than its name."""
    form = (question.extra or {})["form"]
    return bool(_text(form["schema"], "description") or _text(form["schema"], "title"))


def _with_text(question: Question, text: str) -> Question:
    return Question(
        text,
        question.options,
        header=question.header,
        multiple=question.multiple,
        custom=question.custom,
        kind=question.kind,
        extra=question.extra,
    )


def _choices(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Value and label of each option; none where the property takes any text or number."""
    if schema.get("type") == "boolean":
        yield from ((YES, "Yes"), (NO, "No"))
        return
    for value, label in _constants(schema):
        yield _spelled(value), label


def _constants(schema: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """What a choice may be, in the form's own types, each with its label."""
    if schema.get("type") == "array":
        items = schema.get("items")
        yield from _constants({**items, "type": None} if isinstance(items, Mapping) else {})
        return
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list):
        for each in titled:
            if isinstance(each, Mapping) and "const" in each:
                yield each["const"], _text(each, "title") or _spelled(each["const"])
        return
    values, names = schema.get("enum"), schema.get("enumNames")
    if isinstance(values, list):
        for index, value in enumerate(values):
            named = isinstance(names, list) and index < len(names) and isinstance(names[index], str)
            yield value, names[index] if named and names else _spelled(value)


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return YES if value else NO
    return value if isinstance(value, str) else str(value)


def _text(mapping: Mapping[str, Any], key: str) -> str:
    value = mapping.get(key)
    return value.strip() if isinstance(value, str) else ""


# Content ------------------------------------------------------------------------------------------------------------


def _value(schema: Mapping[str, Any], values: Sequence[str]) -> Any:
    """What the values are in the form's own type, None where it was skipped. Raises ValueError with the problem."""
    kind = schema.get("type")
    constants = {_spelled(value): value for value, _ in _constants(schema)}
    if kind == "array":
        return _several(schema, values, constants) if values else None
    if not values:
        return None
    value = values[0]
    if kind == "boolean":
        return value == YES
    if constants:
        return constants.get(value, value)
    if kind in ("number", "integer"):
        return _number(schema, value)
    return _string(schema, value)


def _several(schema: Mapping[str, Any], values: Sequence[str], constants: Mapping[str, Any]) -> list[Any]:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if isinstance(least, int) and len(values) < least:
        raise ValueError(f"choose at least {least}")
    if isinstance(most, int) and len(values) > most:
        raise ValueError(f"choose at most {most}")
    return [constants.get(value, value) for value in values]


def _number(schema: Mapping[str, Any], text: str) -> int | float:
    number = float(text)
    if schema.get("type") == "integer" and not number.is_integer():
        raise ValueError("a whole number is wanted")
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(least, int | float) and number < least:
        raise ValueError(f"at least {least} is wanted")
    if isinstance(most, int | float) and number > most:
        raise ValueError(f"at most {most} is wanted")
    return int(text) if text.strip().lstrip("+-").isdigit() else int(number) if number.is_integer() else number


def _string(schema: Mapping[str, Any], text: str) -> str:
    least, most = schema.get("minLength"), schema.get("maxLength")
    if isinstance(least, int) and len(text) < least:
        raise ValueError(f"at least {least} characters are wanted")
    if isinstance(most, int) and len(text) > most:
        raise ValueError(f"at most {most} characters are wanted")
    return text
