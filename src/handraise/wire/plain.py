"""Shapes to plain JSON values and back, without pydantic and without checks.

A field that has the default None is left out where it is None. A field that a shape does not know is left out as well,
so that a program reads what a newer desk tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

__all__ = ["from_plain", "shape_of", "to_plain"]

T = TypeVar("T")
Read = Callable[[Any], Any]
_SIMPLE: dict[Any, tuple[type, ...]] = {str: (str,), int: (int,), float: (int, float), bool: (bool,)}


def to_plain(value: Any) -> Any:
    """What JSON can hold. What is no shape comes back as it is, so that a large body is never copied for nothing."""
    if is_dataclass(value):
        kind: Any = type(value)
        named = ((name, getattr(value, name), is_optional) for name, is_optional in _written(kind))
        told = {name: to_plain(entry) for name, entry, is_optional in named if not (is_optional and entry is None)}
        return {name.rstrip("_"): entry for name, entry in told.items()}  # `from_`, since Python keeps `from`
    # A list of anything but shapes is JSON already, from an agent or a workflow.
    if isinstance(value, tuple) or (isinstance(value, list) and value and is_dataclass(value[0])):
        return [to_plain(entry) for entry in value]
    return value


def shape_of(kind: type[T], record: object, **told: Any) -> T:
    """A shape that tells a record: the fields in `told`, and for the others the attributes of the same name."""
    named = (field.name for field in fields(cast(Any, kind)) if field.name not in told)
    return kind(**told, **{name: getattr(record, name) for name in named if hasattr(record, name)})


def from_plain(kind: type[T], value: Any) -> T:
    """The shape that a plain value tells. Raises KeyError where a field of it is missing."""
    wanted: Any = kind
    return cast(T, _reader(wanted)(value))


@cache
def _written(kind: Any) -> tuple[tuple[str, bool], ...]:
    """The fields of a shape, and whether each may be left out."""
    return tuple((field.name, field.default is None) for field in fields(kind))


@cache
def _reader(kind: Any) -> Read:
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _reader(inside[0])
    if kind in _SIMPLE:
        return _simple(kind)
    if is_dataclass(kind):
        return _shape(kind)
    if kind is datetime:
        return _time
    if kind is NoneType or origin is Literal:
        return _one_of((None,) if kind is NoneType else inside)
    if origin in (Union, UnionType):
        return _either([_reader(each) for each in inside])
    if origin in (tuple, list, Sequence):
        return _several(_reader(inside[0]), into=list if origin is list else tuple)
    if origin in (dict, Mapping):
        return _mapping(_reader(inside[1]))
    if kind is Any or kind is object:
        return lambda told: told
    raise NotImplementedError(f"{kind} is read from no JSON")


def _simple(kind: Any) -> Read:
    kinds = _SIMPLE[kind]

    def take(told: Any) -> Any:
        if type(told) not in kinds:  # True is an int too, and is none here
            raise TypeError(f"{kind.__name__} wanted")
        return kind(told)

    return take


def _shape(kind: Any) -> Read:
    readers: dict[str, Read] = {}
    required = {field.name for field in fields(kind) if field.default is field.default_factory is MISSING}

    def take(told: Any) -> Any:
        if not readers:  # only now: a shape may hold itself
            hints = get_type_hints(kind, include_extras=True)
            readers.update({field.name: _reader(hints[field.name]) for field in fields(kind)})
        if not isinstance(told, Mapping):
            raise TypeError(f"{kind.__name__} wanted")
        if missing := required - told.keys():
            raise KeyError(f"{kind.__name__} has no {min(missing)!r}")
        return kind(**{name: readers[name](value) for name, value in told.items() if name in readers})

    return take


def _time(told: Any) -> datetime:
    time = datetime.fromisoformat(told)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _one_of(values: tuple[Any, ...]) -> Read:
    def take(told: Any) -> Any:
        if told not in values:
            raise ValueError(f"one of {values} wanted")
        return told

    return take


def _either(readers: list[Read]) -> Read:
    def take(told: Any) -> Any:
        for reader in readers:
            try:
                return reader(told)
            except (TypeError, ValueError, KeyError):
                continue
        raise ValueError("nothing of what was wanted")

    return take


def _several(reader: Read, *, into: Callable[[Any], Any]) -> Read:
    def take(told: Any) -> Any:
        if not isinstance(told, list):
            raise TypeError("a list wanted")
        return into([reader(each) for each in told])

    return take


def _mapping(reader: Read) -> Read:
    def take(told: Any) -> Any:
        if not isinstance(told, dict):
            raise TypeError("an object wanted")
        return {str(key): reader(value) for key, value in told.items()}

    return take
