"""Texts with places in braces for what came before: `Plan {input.goal}. {explore}`. Checked before anything runs."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from string import Formatter
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from handraise.errors import SettingsError

__all__ = ["check", "names", "render", "render_shell"]

_FORMATTER = Formatter()
_PLACE = re.compile(r"([A-Za-z_]\w*)((?:\.\w+|\[\w+\])*)")


def _places(template: str) -> Iterator[list[str | int]]:
    """Each place as its name and the way into it: `plan.steps[0]` is plan, steps, 0. Raises SettingsError."""
    try:
        parsed = list(_FORMATTER.parse(template))
    except ValueError as problem:
        raise SettingsError(f"{problem}; a brace that is meant as one is written twice") from None
    for _, place, form, conversion in parsed:
        if place is None:
            continue
        if form or conversion or not place:
            raise SettingsError(f"{{{place}}}: a place holds a name, such as {{input}}; a brace is written {{{{")
        yield _way(place)


def _way(place: str) -> list[str | int]:
    found = _PLACE.fullmatch(place)
    if found is None:
        raise SettingsError(f"{{{place}}}: a place holds a name and the way into it, such as {{plan.steps[0]}}")
    inside = re.findall(r"\.(\w+)|\[(\w+)\]", found[2])
    return [found[1], *(name or (int(key) if key.isdecimal() else key) for name, key in inside)]


def names(template: str) -> set[str]:
    """What is filled in. Raises SettingsError."""
    return {str(name) for name, *_ in _places(template)}


def check(template: str, known: Mapping[str, Any]) -> None:
    """Raises SettingsError where a place is not among `known`, which gives the type of each; Any is not looked into."""
    for name, *way in _places(template):
        if name not in known:
            raise SettingsError(f"{{{name}}}: nothing before it is called {name!r}; there is {', '.join(known)}")
        kind = known[str(name)]
        said = str(name)
        for step in way:
            kind = _inside(kind, step, said=said)
            said = f"{said}[{step}]" if isinstance(step, int) else f"{said}.{step}"


def _inside(kind: Any, step: str | int, *, said: str) -> Any:
    """The type one step further in."""
    if get_origin(kind) in (Union, UnionType):
        rest = [each for each in get_args(kind) if each is not type(None)]
        kind = rest[0] if len(rest) == 1 else Any
    fields: Mapping[str, Any] | None = None
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {name: field.annotation for name, field in kind.model_fields.items()}
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        fields = {field.name: Any if isinstance(field.type, str) else field.type for field in dataclasses.fields(kind)}
    if fields is not None:
        if step not in fields:
            raise SettingsError(f"{{{said}.{step}}}: {said} has no {step!r}; it has {', '.join(fields)}")
        return fields[str(step)]
    if kind in (str, int, float, bool):
        raise SettingsError(f"{{{said}.{step}}}: {said} is a {kind.__name__} and has nothing inside")
    inner = get_args(kind)
    if get_origin(kind) in (list, Sequence) and inner and isinstance(step, int):
        return inner[0]
    return inner[1] if get_origin(kind) is dict and len(inner) == 2 else Any


def render(template: str, values: Mapping[str, Any], *, quote: Callable[[str], str] = lambda text: text) -> str:
    """The text with every place filled. Raises SettingsError where a value turns out to have no such part."""
    pieces: list[str] = []
    for literal, place, _, _ in _FORMATTER.parse(template):
        pieces.append(literal)
        if place is not None:
            pieces.append(quote(_text(_found(_way(place), values, place=place))))
    return "".join(pieces)


def render_shell(template: str, values: Mapping[str, Any]) -> str:
    """The same for a command: what is filled in is one word each, whatever an agent wrote."""
    return render(template, values, quote=shlex.quote)


def _found(way: Sequence[str | int], values: Mapping[str, Any], *, place: str) -> Any:
    value: Any = values
    for step in way:
        try:
            value = getattr(value, str(step)) if step in _fields(value) else value[step]
        except (KeyError, IndexError, TypeError):
            raise SettingsError(f"{{{place}}}: there is no {step!r} in what came before") from None
    return value


def _fields(value: Any) -> Collection[Any]:
    """Names that may be taken from a value; nothing else of an object is reached."""
    if isinstance(value, BaseModel):
        return type(value).model_fields
    return [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else ()


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump_json(indent=2)
    return json.dumps(to_jsonable_python(value), indent=2, ensure_ascii=False)
