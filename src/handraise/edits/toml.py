"""One table in a person's TOML, put at its end and taken out again. Nothing else in the file is touched."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from handraise.transports.files import problem_of_toml

__all__ = ["put", "read", "take_out"]

_HEADER = re.compile(r"[ \t]*\[\[?(?P<key>[^\[\]#\r\n]*)\]?\][ \t]*(?:#[^\r\n]*)?\r?\n?")
_PART = re.compile(r'[ \t]*(?:"(?P<quoted>[^"\\]*)"|\'(?P<literal>[^\']*)\'|(?P<bare>[A-Za-z0-9_-]+))[ \t]*(?:\.|$)')


def read(text: str) -> dict[str, Any]:
    """Raises ValueError where it is no TOML."""
    if (problem := problem_of_toml(text)) is not None:
        raise ValueError(problem)
    return tomllib.loads(text.replace("\r\n", "\n"))


def put(text: str, path: Sequence[str], fields: Mapping[str, Any], *, mark: str) -> str:
    """The text with the table at its end, under a comment. Raises ValueError where it has no place there."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"# {mark}", f"[{'.'.join(path)}]", *(f"{key} = {_written(value)}" for key, value in fields.items())]
    apart = "" if not text else newline if text.endswith("\n") else newline * 2
    changed = text + apart + newline.join(lines) + newline
    wanted = _with(read(text), path, dict(fields))
    if _read_or_none(changed) != wanted:
        raise ValueError(f"there is no place for a table [{'.'.join(path)}]")
    return changed


def take_out(text: str, path: Sequence[str], *, mark: str) -> str:
    """The text without the table, its own tables and the comment. Raises ValueError where they cannot be told apart."""
    kept: list[str] = []
    for section in _sections(text):
        if section.key[: len(path)] != tuple(path):
            kept.append(section.text)
            continue
        _take_mark(kept, mark)
        kept.append(_after_the_last_field(section.text))
    changed = "".join(kept)
    if _read_or_none(changed) != _without(read(text), path):
        raise ValueError(f"[{'.'.join(path)}] cannot be told apart from the rest")
    return changed


class _Section(NamedTuple):
    key: tuple[str, ...]  # of its header; empty for what is before the first one
    text: str


def _sections(text: str) -> Iterator[_Section]:
    """Each header with what follows. Other lines may look like one, as in a list of lists; whoever calls compares."""
    key: tuple[str, ...] = ()
    gathered: list[str] = []
    quoted = ""  # what ends the text of several lines that we are in
    for line in text.splitlines(keepends=True):
        header = None if quoted else _HEADER.fullmatch(line)
        if header is not None:
            yield _Section(key, "".join(gathered))
            key, gathered = _parts(header["key"]), []
        gathered.append(line)
        for quotes in ('"""', "'''"):
            if line.count(quotes) % 2 and quoted in ("", quotes):
                quoted = "" if quoted else quotes
    yield _Section(key, "".join(gathered))


def _parts(key: str) -> tuple[str, ...]:
    return tuple(next(part for part in found.groups() if part is not None) for found in _PART.finditer(key))


def _after_the_last_field(section: str) -> str:
    """Comments and empty lines at the end of a section belong to what comes next."""
    lines = section.splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return section[len("".join(lines)) :]


def _take_mark(kept: list[str], mark: str) -> None:
    """Takes the comment, and the empty line before it, off the end."""
    if not kept:
        return
    kept[-1] = re.sub(rf"(?:(?<=\n)\r?\n|\A\r?\n)?# {re.escape(mark)}\r?\n\Z", "", kept[-1])


def _read_or_none(text: str) -> dict[str, Any] | None:
    try:
        return read(text)
    except ValueError:
        return None


def _with(tables: Mapping[str, Any], path: Sequence[str], fields: Any) -> dict[str, Any]:
    """Raises ValueError where something on the way is no table."""
    if not path:
        return dict(fields)
    inner = tables.get(path[0], {})
    if not isinstance(inner, dict):
        raise ValueError(f"{path[0]} is no table")
    return {**tables, path[0]: _with(inner, path[1:], fields)}


def _without(tables: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Without the value at the path, and the tables that it leaves empty."""
    name, rest = path[0], path[1:]
    inner = _without(tables[name], rest) if rest else {}
    return {key: value for key, value in {**tables, name: inner}.items() if key != name or inner}


def _written(value: Any) -> str:
    match value:
        case dict():
            return "{ " + ", ".join(f"{key} = {_written(each)}" for key, each in value.items()) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(_written, value)) + "]"
        case _:
            # What JSON escapes TOML does too, but for characters beyond the first plane, which stay as they are.
            return json.dumps(value, ensure_ascii=False)
