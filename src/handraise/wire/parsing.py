"""What callers send, checked and turned into the shapes of this room. Here pydantic does its work."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from handraise.asks import Handling
from handraise.errors import AnswerDoesNotFit, AskDoesNotFit, HandraiseError, SettingsError
from handraise.wire.asks import AnswerBody, AskBody, HandlingBody

__all__ = [
    "MOST_VALUES",
    "BadBody",
    "check_values",
    "handling_fields",
    "json_schemas",
    "parse",
    "parse_ask_body",
    "parse_handling",
]

T = TypeVar("T")


class BadBody(HandraiseError):
    """The body is not JSON, or not of the form that is documented."""

    code = "bad_request"
    status = 400


MOST_VALUES = 25_000  # in a body; parsing more of them takes longer than others should wait
MOST_PROBLEMS = 1_000  # that are looked at one by one
_STRUCTURE = b'"{[,'
_OTHERS = bytes(set(range(256)) - set(_STRUCTURE))


def _values_in(body: bytes) -> int:
    """About how many values a JSON text has, found without parsing it: commas and brackets outside of its strings."""
    if len(body) <= MOST_VALUES or len(body.translate(None, _OTHERS)) <= MOST_VALUES:
        return 0
    # Without what is escaped, every quote begins or ends a string.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    quotes = plain.count(b'"')
    if quotes > 4 * MOST_VALUES:  # a key and a text for each; taken apart they would cost what we avoid
        return quotes // 2
    return sum(map(len, plain.split(b'"')[::2]))


def check_values(body: bytes) -> None:
    """Raises BadBody where a JSON text holds so many values that it would take too long to parse them."""
    if _values_in(body) > MOST_VALUES:
        raise BadBody(f"the body holds more than {MOST_VALUES:,} values; send fewer")


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def adapter(kind: type[T]) -> TypeAdapter[T]:
    found = _ADAPTERS.get(kind)
    if found is None:
        found = _ADAPTERS[kind] = TypeAdapter(kind)
    return found


def parse(kind: type[T], body: bytes) -> T:
    """The body as `kind`. Raises BadBody, or for asks and answers the error that lists what does not fit."""
    check_values(body)
    try:
        return adapter(kind).validate_json(body or b"{}", strict=True)
    except ValidationError as invalid:
        raise _refusal(kind, invalid) from None


def json_schemas(*kinds: type, refs: str) -> dict[str, Any]:
    """The JSON schema of each kind and of everything it holds, by name. `refs` is where `{model}` will be found."""
    wanted: list[Any] = [(kind, "validation", adapter(kind)) for kind in kinds]
    _, schemas = TypeAdapter.json_schemas(wanted, ref_template=refs)
    definitions: dict[str, Any] = schemas["$defs"]
    return definitions


def parse_handling(table: Mapping[str, Any], *, onto: Handling) -> Handling:
    """A `[policy]` table over the settings it refines. Raises SettingsError."""
    unknown = table.keys() - _known(HandlingBody)
    if unknown:
        raise SettingsError(f"does not know {sorted(unknown)[0]!r}; it knows {', '.join(sorted(_known(HandlingBody)))}")
    try:
        return parse(HandlingBody, to_json(table)).handling(onto=onto)
    except BadBody as unfit:
        raise SettingsError(str(unfit)) from None


def handling_fields(handling: Handling) -> dict[str, Any]:
    """A handling as the fields of an ask's body."""
    policy: Any = handling.question_policy
    if isinstance(policy, tuple):
        policy = {"auto": [{"match": rule.match, "answers": rule.answers} for rule in policy]}
    return {
        "question_policy": policy,
        "permission_policy": handling.permission_policy,
        "question_timeout": handling.question_timeout,
        "on_timeout": handling.on_timeout,
    }


def parse_ask_body(body: bytes) -> AskBody:
    """`parse` for asks, with the fields we do not know kept in `extra` of the record they came with."""
    check_values(body)
    try:
        return adapter(AskBody).validate_json(body, strict=True, extra="forbid")
    except ValidationError:  # wrong, or with fields we do not know: the slow way finds out which
        parsed = parse(AskBody, body)
    raw = from_json(body or b"{}")
    questions = tuple(
        _keep(question, told, options=_keep_all(question.options, told.get("options")))
        for question, told in zip(parsed.questions, raw.get("questions", ()), strict=True)
    )
    permission, origin = parsed.permission, parsed.origin
    if permission is not None:
        told = raw["permission"]
        permission = _keep(permission, told, scopes=_keep_all(permission.scopes, told.get("scopes")))
    if origin is not None:
        origin = _keep(origin, raw["origin"])
    return _keep(parsed, raw, questions=questions, permission=permission, origin=origin)


def _keep_all(records: tuple[T, ...], raw: Any) -> tuple[T, ...]:
    return tuple(_keep(record, told) for record, told in zip(records, raw or (), strict=True))


@cache
def _known(kind: Any) -> frozenset[str]:
    return frozenset(entry.name for entry in dataclasses.fields(kind))


def _keep(record: T, raw: Mapping[str, Any], **changed: Any) -> T:
    kind: Any = type(record)
    known = _known(kind)
    if not raw.keys() <= known:
        unknown = {key: value for key, value in raw.items() if key not in known}
        changed["extra"] = {**(raw.get("extra") or {}), **unknown}
    elif all(getattr(record, key) == value for key, value in changed.items()):
        return record
    return replace(record, **changed)  # type: ignore[type-var]


def _refusal(kind: type, invalid: ValidationError) -> HandraiseError:
    if invalid.error_count() > MOST_PROBLEMS:  # to describe each would take longer than to find them
        sentence = f"{invalid.error_count():,} things of it do not fit"
        if kind is AnswerBody:
            return AnswerDoesNotFit([{"question": None, "problem": sentence}])
        return AskDoesNotFit(sentence, [{"at": "", "problem": sentence}]) if kind is AskBody else BadBody(sentence)
    problems = invalid.errors(include_url=False, include_context=False, include_input=False)
    if problems[0]["type"] == "json_invalid":
        return BadBody(f"the body is not JSON: {problems[0]['msg'].removeprefix('Invalid JSON: ')}")
    said = [{"at": ".".join(map(str, entry["loc"])), "problem": entry["msg"]} for entry in problems[:20]]
    if kind is AnswerBody:
        return AnswerDoesNotFit([_question_problem(entry) for entry in problems[:20]])
    sentence = "; ".join(f"{entry['at'] or 'body'}: {entry['problem']}" for entry in said[:3])
    if kind is AskBody:
        return AskDoesNotFit(sentence, said)
    return BadBody(sentence)


def _question_problem(entry: Any) -> dict[str, Any]:
    where = entry["loc"]
    index = where[1] if len(where) > 1 and where[0] == "answers" and isinstance(where[1], int) else None
    at = ".".join(map(str, where)) or "body"
    return {"question": index, "problem": f"{at}: {entry['msg']}"}
