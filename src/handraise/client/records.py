"""Records of ours from the JSON that a desk tells, and back, with the standard library alone.

A desk reads what strangers send with `wire`, which is strict and says what is wrong. Here a desk has spoken, so only
what is no such record at all is refused, and fields that a newer desk adds are left out.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from handraise.asks import Answer, Ask, Handling

__all__ = ["answer_fields", "ask_fields", "handling_fields", "time_text", "to_fields", "to_record"]

T = TypeVar("T")

_Read = Callable[[Any], Any]
_SIMPLE: dict[Any, tuple[type, ...]] = {str: (str,), int: (int,), float: (int, float), bool: (bool,)}


def to_record(kind: type[T], told: Any) -> T:
    """What JSON became in Python, as a record of this kind. Raises TypeError and ValueError where it is none."""
    reader: Callable[[Any], T] = _reader(kind)  # type: ignore[arg-type]
    return reader(told)


@cache
def _reader(kind: Any) -> _Read:
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _reader(inside[0])
    if kind in _SIMPLE:
        return _simple(kind)
    if dataclasses.is_dataclass(kind):
        return _record(kind)
    if kind is datetime:
        return _time
    if kind is types.NoneType or origin is Literal:
        return _one_of((None,) if kind is types.NoneType else inside)
    if origin in (Union, types.UnionType):
        return _either([_reader(each) for each in inside])
    if origin in (tuple, list, Sequence):
        return _several(_reader(inside[0]), into=list if origin is list else tuple)
    if origin in (dict, Mapping):
        return _mapping(_reader(inside[1]))
    if kind is Any or kind is object:
        return lambda told: told
    raise NotImplementedError(f"{kind} is read from no JSON")


def _simple(kind: Any) -> _Read:
    kinds = _SIMPLE[kind]

    def take(told: Any) -> Any:
        if type(told) not in kinds:  # True is an int too, and is none here
            raise TypeError(f"{kind.__name__} wanted")
        return kind(told)

    return take


def _record(kind: Any) -> _Read:
    hints = get_type_hints(kind, include_extras=True)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}

    def take(told: Any) -> Any:
        if not isinstance(told, dict):
            raise TypeError(f"{kind.__name__} wanted")
        return kind(**{name: readers[name](value) for name, value in told.items() if name in readers})

    return take


def _time(told: Any) -> datetime:
    time = datetime.fromisoformat(told)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _one_of(values: tuple[Any, ...]) -> _Read:
    def take(told: Any) -> Any:
        if told not in values:
            raise ValueError(f"one of {values} wanted")
        return told

    return take


def _either(readers: list[_Read]) -> _Read:
    def take(told: Any) -> Any:
        for reader in readers:
            try:
                return reader(told)
            except (TypeError, ValueError):
                continue
        raise ValueError("nothing of what was wanted")

    return take


def _several(reader: _Read, *, into: Callable[[Any], Any]) -> _Read:
    def take(told: Any) -> Any:
        if not isinstance(told, list):
            raise TypeError("a list wanted")
        return into([reader(each) for each in told])

    return take


def _mapping(reader: _Read) -> _Read:
    def take(told: Any) -> Any:
        if not isinstance(told, dict):
            raise TypeError("an object wanted")
        return {str(key): reader(value) for key, value in told.items()}

    return take


# The other way ----------------------------------------------------------------------------------------------


def to_fields(value: Any) -> Any:
    """A record as the fields of a body, without those that are None. What is in free form stays as it is."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        told = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: to_fields(inside) for name, inside in told if inside is not None}
    if isinstance(value, tuple | list):
        return [to_fields(each) for each in value]
    return time_text(value) if isinstance(value, datetime) else value


def time_text(time: datetime | None) -> str | None:
    """RFC 3339 in UTC with milliseconds."""
    if time is None:
        return None
    milliseconds = round(time.timestamp() * 1000)
    return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


def ask_fields(ask: Ask) -> dict[str, Any]:
    """What an adapter filled in of an ask."""
    permission = None if ask.permission is None else to_fields(ask.permission)
    fields = {"id": ask.id, "questions": to_fields(ask.questions), "permission": permission}
    return {**fields, "origin": to_fields(ask.origin), **({"extra": ask.extra} if ask.extra else {})}


def answer_fields(answer: Answer) -> dict[str, Any]:
    """An answer as a desk tells it."""
    told: dict[str, Any] = {
        name: getattr(answer, name) for name in ("answers", "reply", "rejected", "reason", "notes", "by", "via")
    }
    told["at"] = time_text(answer.at)
    # Empty is not missing: an input edited away, no pattern left.
    told |= {name: given for name in ("input", "scope", "patterns") if (given := getattr(answer, name)) is not None}
    return told | ({"why": answer.why} if answer.why else {})


def handling_fields(handling: Handling) -> dict[str, Any]:
    """A handling as the fields of a body."""
    policy: Any = handling.question_policy
    if isinstance(policy, tuple):
        policy = {"auto": to_fields(policy)}
    return {
        "question_policy": policy,
        "permission_policy": handling.permission_policy,
        "question_timeout": handling.question_timeout,
        "on_timeout": handling.on_timeout,
    }
