"""Shapes to plain JSON values and back, without pydantic and without checks.

A field that has the default None is left out where it is None. A field that a shape does not know is left out as well,
so that a program reads what a newer desk tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

__all__ = ["from_plain", "shape_of", "to_plain"]

T = TypeVar("T")
Read = Callable[[Any], Any]


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
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _reader(parts[0])
    if origin in (Union, UnionType):
        return _reader_of_one(tuple(part for part in parts if part is not NoneType))
    if origin is tuple:
        read = _reader(parts[0])
        return lambda value: tuple(read(entry) for entry in value)
    if kind is datetime:
        return datetime.fromisoformat
    if is_dataclass(kind):
        return _reader_of_shape(kind)
    return _same


def _reader_of_one(parts: tuple[Any, ...]) -> Read:
    """Of several kinds only one is more than a plain value."""
    readers = [read for read in map(_reader, parts) if read is not _same]
    if not readers:
        return _same
    (read,) = readers
    return lambda value: None if value is None else read(value)


def _reader_of_shape(kind: Any) -> Read:
    hints = get_type_hints(kind, include_extras=True)
    readers: dict[str, Read] = {}
    required = {field.name for field in fields(kind) if field.default is field.default_factory is MISSING}

    def read(value: Mapping[str, Any]) -> Any:
        if not readers:  # only now: a shape may hold itself
            readers.update({field.name: _reader(hints[field.name]) for field in fields(kind)})
        missing = required - value.keys()
        if missing:
            raise KeyError(f"{kind.__name__} has no {min(missing)!r}")
        return kind(**{name: readers[name](entry) for name, entry in value.items() if name in readers})

    return read


def _same(value: Any) -> Any:
    return value
