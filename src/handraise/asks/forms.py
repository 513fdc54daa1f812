"""A form that a server or an agent wants filled in (an elicitation) as questions, and answers as its content. Pure.

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
SEPARATOR = ", "  # between several own texts in one property
# How agents call the text beside a choice: claude-agent-acp and OpenCode the first way, codex-acp the second.
COMPANIONS = ("_custom", "__other")


def to_questions(
    schema: Any, *, message: str, order: Sequence[str] | None = None, companions: bool = False
) -> tuple[Question, ...]:
    """One question for each property, `order` first; the first one carries the message. Raises AskDoesNotFit.

    A form without properties only wants a yes: it becomes a question with the one option "OK". With `companions` it is
    read as agents write one for their own questions: an optional text beside a choice, `x_custom` beside `x`, is the
    choice's own text and no question; and where nothing is required, nothing is called optional.
    """
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties", {}), Mapping):
        raise AskDoesNotFit("the form has no properties; `requestedSchema` must be an object schema")
    properties: Mapping[str, Any] = schema.get("properties", {})
    names = [name for name in dict.fromkeys(order or ()) if name in properties]
    names += [name for name in properties if name not in names]
    if not names:
        return (Question(message or "Go on?", (Option("OK"),), header="Confirm", custom=False, extra={"form": {}}),)
    listed = schema.get("required")
    required = [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
    beside = _companions(properties, required=required) if companions else {}
    questions = [
        _to_question(
            name,
            properties[name],
            required=name in required,
            marked=bool(required) or not companions,
            companion=beside.get(name),
        )
        for name in names
        if name not in beside.values()
    ]
    first = questions[0]
    if message:
        alone = len(questions) == 1 and (not _own_words(first, titles=not companions) or first.question == message)
        text = message if alone else f"{message}\n{first.question}"
        questions[0] = _with_text(first, text)
    return tuple(questions)


def to_visit(url: str, *, message: str) -> tuple[Question, ...]:
    """An elicitation that wants a page opened: the question shows the address, and "Done" says that it was."""
    text = "\n".join(each for each in (message, url) if each)
    return (Question(text, (Option(DONE),), header="Open a page", custom=False, extra={"form": {}, "url": url}),)


def to_content(questions: Sequence[Question], answers: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The form's content. Raises AnswerDoesNotFit with every entry that the form does not take.

    A property that was skipped takes its default if it is required, else it is left out. Own text beside a choice goes
    into the choice's companion: instead of a single choice, together with several.
    """
    content: dict[str, Any] = {}
    problems: list[dict[str, Any]] = []
    for index, (question, values) in enumerate(zip(questions, answers, strict=True)):
        form = (question.extra or {}).get("form") or {}
        if not form:
            continue
        if companion := form.get("companion"):
            own = [value for value in values if question.value_of(value) is None]
            if own:
                content[companion] = SEPARATOR.join(own)
                values = [value for value in values if value not in own]
                if not values:
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


def _companions(properties: Mapping[str, Any], *, required: Sequence[str]) -> dict[str, str]:
    """By the name of a choice, the property that takes its own text."""
    found: dict[str, str] = {}
    for name, schema in properties.items():
        if name in required or not isinstance(schema, Mapping) or schema.get("type", "string") != "string":
            continue
        main = next((name.removesuffix(suffix) for suffix in COMPANIONS if name.endswith(suffix)), "")
        choice = properties.get(main)
        if isinstance(choice, Mapping) and any(_constants(choice)) and not any(_constants(schema)):
            found.setdefault(main, name)
    return found


def _to_question(
    name: str, schema: Any, *, required: bool, marked: bool = True, companion: str | None = None
) -> Question:
    if not isinstance(schema, Mapping):
        raise AskDoesNotFit(f"the property {name!r} of the form has no schema")
    title = _text(schema, "title") or name
    text = _text(schema, "description") or title
    if marked and not required:
        text += " (optional)"
    kind: Kind = "choice"
    choices = list(_choices(schema))
    if not choices:
        kind = "number" if schema.get("type") in ("number", "integer") else "text"
    defaults = schema.get("default")
    defaults = defaults if isinstance(defaults, list) else [defaults]
    options = tuple(
        Option(
            label,
            value=value,
            description=description,
            recommended=any(_spelled(each) == value for each in defaults if each is not None),
        )
        for value, label, description in choices
    )
    form: dict[str, Any] = {"name": name, "schema": dict(schema), "required": required}
    if companion is not None:
        form["companion"] = companion
    return Question(
        text,
        options,
        header=title,
        multiple=schema.get("type") == "array",
        custom=not options or companion is not None,
        kind=kind,
        extra={"form": form},
    )


def _own_words(question: Question, *, titles: bool = True) -> bool:
    """Whether the form says more about the property than its name; a title is the header anyway."""
    form = (question.extra or {})["form"]
    return bool(_text(form["schema"], "description") or (titles and _text(form["schema"], "title")))


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


def _choices(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Value, label and description of each option; none where the property takes any text or number."""
    if schema.get("type") == "boolean":
        yield from ((YES, "Yes", ""), (NO, "No", ""))
        return
    for value, label, description in _constants(schema):
        yield _spelled(value), label, description


def _constants(schema: Mapping[str, Any]) -> Iterator[tuple[Any, str, str]]:
    """What a choice may be, in the form's own types, each with its label and description."""
    if schema.get("type") == "array":
        items = schema.get("items")
        yield from _constants({**items, "type": None} if isinstance(items, Mapping) else {})
        return
    titled = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(titled, list):
        for each in titled:
            if isinstance(each, Mapping) and "const" in each:
                yield each["const"], _text(each, "title") or _spelled(each["const"]), _text(each, "description")
        return
    values, names = schema.get("enum"), schema.get("enumNames")
    if isinstance(values, list):
        for index, value in enumerate(values):
            named = isinstance(names, list) and index < len(names) and isinstance(names[index], str)
            yield value, names[index] if named and names else _spelled(value), ""


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
    constants = {_spelled(value): value for value, *_ in _constants(schema)}
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
