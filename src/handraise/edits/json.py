"""JSON of somebody else's file, changed in its text: what is not ours stays as it is, byte for byte.

The text is read to find the places and never written anew: order, comments, indentation and line ends are kept. Where a
program takes comments and commas at the end of lists, so does this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from handraise.errors import SettingsError

__all__ = ["Member", "Span", "cut", "decoded", "inserted", "put", "read", "take_out", "text_to_change", "without"]

DEEPEST = 200  # tables and lists in each other; far beyond any settings, and far from what Python's stack holds

_BOM = "\ufeff"
_SPACE = re.compile(r"[ \t\r\n]*")
_GAP = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_TEXT = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"[^\s,\]}\[{\":/]+")
_REST_OF_LINE = re.compile(r"(?:[ \t]|/\*(?:[^*\r\n]|\*(?!/))*\*/)*(?://[^\r\n]*)?(?=\r?\n)")


class Member(NamedTuple):
    key: str | None  # None in a list
    start: int  # of the key, where there is one
    value: Span


@dataclass(frozen=True, slots=True)
class Span:
    """A value and where it stands."""

    start: int
    end: int
    value: Any
    members: tuple[Member, ...] = ()

    def last(self, key: str) -> Span | None:
        """Of keys that are there twice the last one counts, as it does for most programs."""
        return next((member.value for member in reversed(self.members) if member.key == key), None)

    def index(self, value: Span) -> int:
        return next(index for index, member in enumerate(self.members) if member.value is value)


# Files ----------------------------------------------------------------------------------------------------------------


def decoded(content: bytes, *, path: Path) -> str:
    """Raises SettingsError where it is no text."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SettingsError(
            f"{path} is not UTF-8, so its own program cannot read it either; correct it first"
        ) from None


def text_to_change(before: bytes | None, *, path: Path) -> str:
    """What a file holds, or an empty object where that is nothing. Raises SettingsError where it is no text."""
    text = "" if before is None else decoded(before, path=path)
    if not _is_blank(text):
        return text
    return (_BOM if text.startswith(_BOM) else "") + "{}" + _newline(text)


def without(now: bytes, taking_out: Callable[[str], str], *, path: Path) -> bytes | None:
    """A file after something was taken out of its text; None where nothing is left, not even a comment."""
    text = decoded(now, path=path)
    left = text if _is_blank(text) else taking_out(text)
    if left == text:
        return now
    return None if _is_blank(left.replace("{}", "", 1)) else left.encode()


def _is_blank(text: str) -> bool:
    return not text.strip(_BOM + " \t\r\n")


# Reading --------------------------------------------------------------------------------------------------------------


def read(text: str, *, path: Path, comments: bool = False) -> Span:
    """Where everything stands. `comments` allows them, and commas at the end of tables and lists.

    Raises SettingsError where it is no JSON object, with the line in which it goes wrong.
    """
    try:
        root = _Reader(text, comments=comments).read()
    except ValueError as problem:
        raise SettingsError(f"{path} is not JSON ({problem}), nothing was changed; correct it first") from None
    except RecursionError:
        raise SettingsError(f"{path} is nested too deep, nothing was changed; correct it first") from None
    if not isinstance(root.value, dict):
        raise SettingsError(f"{path} holds no JSON object, nothing was changed; correct it first")
    return root


class _Reader:
    """Raises ValueError, and RecursionError where it is nested too deep."""

    def __init__(self, text: str, *, comments: bool) -> None:
        self._text = text
        self._comments = comments
        self._gap = _GAP if comments else _SPACE

    def read(self) -> Span:
        root = self._value(self._after_gap(len(_BOM) if self._text.startswith(_BOM) else 0), depth=0)
        rest = self._after_gap(root.end)
        if rest < len(self._text):
            raise self._wrong(rest)
        return root

    def _wrong(self, at: int) -> ValueError:
        line = self._text.count("\n", 0, at) + 1
        is_comment = not self._comments and self._text.startswith(("//", "/*"), at)
        return ValueError(f"line {line} holds a comment" if is_comment else f"line {line} cannot be read")

    def _after_gap(self, at: int) -> int:
        return _end(self._gap, self._text, at)

    def _is(self, mark: str, at: int) -> bool:
        return self._text.startswith(mark, at)

    def _value(self, at: int, *, depth: int) -> Span:
        if self._is("{", at) or self._is("[", at):
            return self._members(at, depth=depth + 1)
        return self._plain(_TEXT if self._is('"', at) else _SCALAR, at)

    def _plain(self, pattern: re.Pattern[str], at: int) -> Span:
        found = pattern.match(self._text, at)
        if found is None:
            raise self._wrong(at)
        try:
            return Span(at, found.end(), json.loads(found[0], parse_constant=_refuse))
        except ValueError:
            raise self._wrong(at) from None

    def _members(self, start: int, *, depth: int) -> Span:
        if depth > DEEPEST:
            raise RecursionError
        is_table = self._is("{", start)
        close = "}" if is_table else "]"
        members: list[Member] = []
        here = self._after_gap(start + 1)
        while not self._is(close, here):
            begins, key = here, None
            if is_table:
                name = self._plain(_TEXT, here)
                key = str(name.value)
                here = self._after_gap(name.end)
                if not self._is(":", here):
                    raise self._wrong(here)
                here = self._after_gap(here + 1)
            value = self._value(here, depth=depth)
            members.append(Member(key, begins, value))
            here = self._after_gap(value.end)
            if self._is(",", here):
                here = self._after_gap(here + 1)
                if self._is(close, here) and not self._comments:
                    raise self._wrong(here)
            elif not self._is(close, here):
                raise self._wrong(here)
        held: Any = (
            {str(each.key): each.value.value for each in members} if is_table else [m.value.value for m in members]
        )
        return Span(start, here + 1, held, tuple(members))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where a pattern ends that may match nothing at all."""
    found = pattern.match(text, at)
    return at if found is None else found.end()


# Changing what stands under keys --------------------------------------------------------------------------------------


def put(text: str, keys: Sequence[str], value: Any, *, path: Path, comments: bool = False) -> str:
    """The text with one more member under a path of keys. Tables on the way are made; the last key must be free.

    Raises SettingsError where the text is no JSON or something on the way is no table.
    """
    *tables, key = keys
    for depth, name in enumerate(tables):
        root, place = _tables(text, tables[:depth], path=path, comments=comments)
        if place[-1].last(name) is None:
            text = inserted(text, place[-1], name, {}, root=root)
    root, place = _tables(text, tables, path=path, comments=comments)
    return inserted(text, place[-1], key, value, root=root)


def take_out(text: str, keys: Sequence[str], *, path: Path, comments: bool = False) -> str:
    """The text without the member that counts under a path of keys, and without the tables that it leaves empty.

    A table whose key is there twice stays, empty: without it the one before it would count. Raises SettingsError where
    the text is no JSON, something on the way is no table, or nothing stands there.
    """
    *tables, key = keys
    _, places = _tables(text, tables, path=path, comments=comments)
    member = places[-1].last(key)
    if member is None:
        raise SettingsError(f'{path} has no "{key}" to take out')
    while len(places) > 1 and len(places[-1].members) == 1:
        above, name = places[-2], keys[len(places) - 2]
        if sum(each.key == name for each in above.members) > 1:
            break
        member = places.pop()
    return cut(text, places[-1], places[-1].index(member))


def _tables(text: str, keys: Sequence[str], *, path: Path, comments: bool) -> tuple[Span, list[Span]]:
    """The whole, and each table on the way from it."""
    root = read(text, path=path, comments=comments)
    places = [root]
    for name in keys:
        found = places[-1].last(name)
        if found is None or not isinstance(found.value, dict):
            raise SettingsError(f'{path}: "{name}" is no table, nothing was changed; correct it first')
        places.append(found)
    return root, places


# Changing what stands in a place --------------------------------------------------------------------------------------


def inserted(text: str, place: Span, key: str | None, value: Any, *, root: Span, first: bool = False) -> str:
    """The text with one more member in a table or list, on a line of its own where the others have one.

    It becomes the last one, or the `first`.
    """
    if not place.members:
        return _filled(text, place, _written(key, value), root=root)
    lead = _lead(text, place, 0 if first else -1)
    if lead is None:  # on the same line as its neighbour
        is_tight = len(place.members) > 1 and text[place.members[-1].start - 1] == ","
        comma, written = "," if is_tight else ", ", _written(key, value, is_tight=is_tight)
        if first:
            here = place.members[0].start
            return f"{text[:here]}{written}{comma}{text[here:]}"
        here = place.members[-1].value.end
        return f"{text[:here]}{comma}{written}{text[here:]}"
    # A comment at the end of a line belongs to what stands there.
    written = _written(key, value)
    if first:
        here = _end(_REST_OF_LINE, text, place.start + 1)
        return f"{text[:here]}{lead}{written},{text[here:]}"
    end = place.members[-1].value.end
    comma_at = _comma(text, end)
    if comma_at is not None:  # as after every other
        here = _end(_REST_OF_LINE, text, comma_at + 1)
        return f"{text[:here]}{lead}{written},{text[here:]}"
    here = _end(_REST_OF_LINE, text, end)
    return f"{text[:end]},{text[end:here]}{lead}{written}{text[here:]}"


def _filled(text: str, place: Span, written: str, *, root: Span) -> str:
    """The text with a first member in a place that is empty but for comments."""
    outer = _indent(text, place.start)
    lead = f"{_newline(text)}{outer}{_step(text, root)}"
    inner = text[place.start + 1 : place.end - 1]
    comments = inner.rstrip(" \t\r\n")
    below = inner[len(comments) :] if comments else f"{_newline(text)}{outer}"
    return f"{text[: place.start + 1]}{comments}{lead}{written}{below}{text[place.end - 1 :]}"


def cut(text: str, place: Span, index: int) -> str:
    """The text without one member, its line, and the comma that would be left over. Comments stay."""
    start, end = place.members[index].start, place.members[index].value.end
    is_first, is_last = index == 0, index == len(place.members) - 1
    before, after = text[place.start + 1 : start], text[end : place.end - 1]
    if is_first and is_last and not (before + after.replace(",", "", 1)).strip(" \t\r\n"):
        return text[: place.start + 1] + text[place.end - 1 :]
    head, rest = text[:start], text[end:]
    lead, comma = _lead(text, place, index), _comma(text, end)
    goes_before = is_last and not is_first and (comma is None or lead is None)  # the comma of what is the last one now
    if comma is not None and not goes_before:
        between = text[end:comma]
        rest = (between if between.strip() else "") + text[comma + 1 :]
    if lead is not None and _may_join(text, place, index, lead=lead, rest=rest):
        head = head.removesuffix(lead)
    elif is_last and not is_first:
        head = head.rstrip(" \t")
    elif not is_last:
        rest = rest.lstrip(" \t")
    if goes_before:
        its_comma = _comma(text, place.members[index - 1].value.end)
        assert its_comma is not None
        head = head[:its_comma] + head[its_comma + 1 :]
    return head + rest


def _may_join(text: str, place: Span, index: int, *, lead: str, rest: str) -> bool:
    """Whether what follows a member may move up to the line before it: nothing may end up in a comment there."""
    line_end = place.members[index].start - len(lead)
    above = place.members[index - 1].value.end if index else place.start + 1
    comments = list(_COMMENT.finditer(text, above, line_end))
    is_open = bool(comments) and comments[-1][0].startswith("//") and comments[-1].end() == line_end
    return not is_open or _REST_OF_LINE.match(rest) is not None


def _comma(text: str, at: int) -> int | None:
    """Where the comma stands that follows a value, if one does."""
    comma = _end(_GAP, text, at)
    return comma if text.startswith(",", comma) else None


def _lead(text: str, place: Span, index: int) -> str | None:
    """The line end and indentation before a member; None where it begins on the line of what is before it."""
    index %= len(place.members)
    start = place.members[index].start
    above = place.members[index - 1].value.end if index else place.start + 1
    line = re.search(r"\r?\n[ \t]*\Z", text[above:start])
    return None if line is None else line[0]


def _written(key: str | None, value: Any, *, is_tight: bool = False) -> str:
    comma, colon = (",", ":") if is_tight else (", ", ": ")
    written = _dumped(value, separators=(comma, colon))
    return written if key is None else f"{_dumped(key, separators=(comma, colon))}{colon}{written}"


def _dumped(value: Any, *, separators: tuple[str, str]) -> str:
    written = json.dumps(value, separators=separators, ensure_ascii=False)
    try:
        written.encode()
    except UnicodeEncodeError:  # the name of a file may be no text
        return json.dumps(value, separators=separators)
    return written


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent(text: str, at: int) -> str:
    """The white space that begins the line of a place."""
    line = text[text.rfind("\n", 0, at) + 1 : at].removeprefix(_BOM)
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(text: str, root: Span) -> str:
    """One step of indentation, as the file has it."""
    lead = _lead(text, root, 0) if root.members else None
    return (lead or "").strip("\r\n") or "  "
