"""Checking what people give at a checkpoint against the schema that its author wrote. Pure.

The desk checks it, also where the author's code is on another machine. So the schema itself is checked first: nothing
is fetched, patterns run in linear time, and neither it nor what is held against it may hold up the desk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

__all__ = ["check_schema", "problems_of"]

MOST_PROBLEMS = 20
DEEPEST = 64
MOST_NODES = 5_000  # with every reference followed
MOST_WORK = 5_000_000  # nodes times values; takes about 50 ms
MOST_TO_LIST = 20_000  # nodes times values with which every problem is found, and not the first alone
LOCAL = "#/"


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises ValueError with a sentence where nothing can be checked against it."""
    nodes = _nodes(schema, schema, {}, depth=0)
    if nodes > MOST_NODES:
        raise ValueError(f"a schema has at most {MOST_NODES} parts, counting what it refers to each time")
    _validator(schema)


def problems_of(schema: Mapping[str, Any], output: Any) -> list[dict[str, str]]:
    """What is wrong with an output, by the place where it is."""
    try:
        check_schema(schema)
    except ValueError as unusable:
        return [{"at": "", "problem": f"it cannot be checked: {unusable}"}]
    work = _nodes(schema, schema, {}, depth=0) * _values(output)
    if work > MOST_WORK:
        return [{"at": "", "problem": "it has too many values for the schema of this checkpoint"}]
    validator = _validator(schema)
    if validator.is_valid(output):
        return []
    found = sorted(_errors(validator, output, all_of_them=work <= MOST_TO_LIST), key=lambda error: error[0])
    return [
        {"at": ".".join(path), "problem": f"{'.'.join(path) or 'it'}: {_short(message)}"}
        for path, message in found[:MOST_PROBLEMS]
    ]


def _errors(validator: Draft202012Validator, output: Any, *, all_of_them: bool) -> Iterator[tuple[list[str], str]]:
    from jsonschema_rs import ValidationError

    if all_of_them:
        for error in validator.iter_errors(output):
            yield [str(each) for each in error.instance_path], error.message
        return
    try:
        validator.validate(output)
    except ValidationError as error:
        yield [str(each) for each in error.instance_path], error.message


def _validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    try:
        return Draft202012Validator(dict(schema), offline=True, pattern_options=RegexOptions())
    except (ValidationError, ValueError) as problem:
        raise ValueError(_short(getattr(problem, "message", "") or str(problem))) from None


def _nodes(part: Any, schema: Mapping[str, Any], known: dict[str, int], *, depth: int) -> int:
    """How many parts a schema has with every reference followed, or more than the limit. A circle is followed once."""
    if depth > DEEPEST:
        raise ValueError(f"a schema is at most {DEEPEST} levels deep")
    if not isinstance(part, Mapping | Sequence) or isinstance(part, str):
        return 1
    count = 1
    for key, value in part.items() if isinstance(part, Mapping) else enumerate(part):
        if key in ("$ref", "$dynamicRef") and isinstance(value, str):
            if value not in known:
                known[value] = 1  # for a circle
                known[value] = _nodes(_referred(value, schema), schema, known, depth=depth + 1)
            count += known[value]
        elif key != "$defs" or depth:
            count += _nodes(value, schema, known, depth=depth + 1)
        if count > MOST_NODES:
            break
    return count


def _referred(reference: str, schema: Mapping[str, Any]) -> Any:
    part: Any = schema
    if reference == "#":
        return None  # itself, which is counted already
    if not reference.startswith(LOCAL):
        raise ValueError(f"a schema refers to its own parts alone ({LOCAL}$defs/…), and not to {_short(reference)}")
    for name in reference.removeprefix(LOCAL).split("/"):
        part = part.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(part, Mapping) else None
    return part


def _values(output: Any) -> int:
    """How many values something is made of. It came as JSON, so it is as deep as that may be."""
    count, left = 0, [output]
    while left:
        each = left.pop()
        count += 1
        if isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each
    return count


def _short(message: str) -> str:
    """Without most of what was given, which the message repeats."""
    return message if len(message) <= 500 else f"{message[:200]} … {message[-200:]}"
