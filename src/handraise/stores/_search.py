"""Looking for a text in asks: the same in every SQL database, whatever it knows of letters.

The database narrows it down by the longest piece of the text that it cannot mistake, some thousand asks at a time, so
that nobody waits behind a search. What is left is read here: only what people see of an ask counts, and in any case.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from handraise.asks import Ask, Option, Origin, Permission, Question, Scope
from handraise.stores._asks import CONTENT, FOUND_TOGETHER, find_seqs, until_full, window
from handraise.wire import LARGE, Stored

__all__ = ["Dialect", "Search", "holds", "search"]

WINDOW = 4_000  # asks that the database looks through in one statement
PART = 64 * 1024  # characters that are looked through at once
MOST_IGNORED = 6
MOST_LETTERS = 6
# As they stand in JSON, where no value can look like them: its quotes are escaped.
_NAMES = (
    *{f'"{field.name}":' for kind in (Ask, Question, Option, Permission, Scope, Origin) for field in fields(kind)},
    *('"kind":"choice"', '"kind":"text"', '"kind":"number"', '"kind":"tool"', '"once"', '"always"', '"reject"'),
)
_HIDDEN = frozenset({"kind", "replies", "scopes", "extra", "editable"})  # the same in many asks, or shown to nobody


class Dialect(NamedTuple):
    """How a database says that a column holds a text. The letters A to Z are to be taken for a to z, and no others."""

    contains: str  # with `{column}`, and `?` for the text
    value: Callable[[str], str] = str  # the text as it goes there; in small letters it is already


class Search:
    """A text that is wanted, in any case."""

    def __init__(self, text: str) -> None:
        self._wanted = text.casefold()
        # As it stands inside of JSON.
        self._written = json.dumps(text, ensure_ascii=False)[1:-1].casefold()
        self.pieces = _pieces(text)  # one of them is in every ask that is found
        # Of the fields of an ask, those that are called like it.
        names = [name for name in _NAMES if self.pieces[0] in name]
        self.ignored = names if len(names) <= MOST_IGNORED else []

    def finds(self, stored: Stored) -> bool:
        plain = (stored.withdrawn_reason or "", stored.delivery_error or "")
        if any(holds(text, self._wanted) for text in plain):
            return True
        in_content = holds(stored.content, self._written)
        in_answer = stored.answer is not None and holds(stored.answer, self._written)
        texts: list[str] = []
        if in_content:  # it may still be the name of a field
            texts += _texts_of_content(json.loads(f"{{{stored.content}}}"))
        if in_answer:
            texts += _texts_of_answer(json.loads(stored.answer or "{}"))
        return any(holds(text, self._wanted) for text in texts)


def holds(text: str, folded: str, *, part: int = PART) -> bool:
    """Whether it is in a text, in any case. A large one is folded in parts: for some characters that takes twelve times
    the memory. Each character folds to at least one, so no part needs to reach further than what is looked for."""
    return any(
        folded in text[start : start + part + len(folded)].casefold() for start in range(0, len(text) or 1, part)
    )


async def search(
    text: str,
    wanted: Iterable[tuple[str, str | None]],
    *,
    after: int,
    limit: int,
    newest: bool,
    most: int | None = None,
    dialect: Dialect,
    fetch: Callable[[str, Sequence[Any]], Awaitable[Sequence[Sequence[Any]]]],
    at_once: int = WINDOW,
) -> list[Stored]:
    """The asks that a query wants and that hold the text, in the order of their `seq`, or against it."""
    looking, conditions, found = Search(text), tuple(wanted), list[Stored]()
    while True:
        sql, values = window(
            conditions,
            after=after,
            limit=at_once,
            newest=newest,
            contains=dialect.contains,
            pieces=[dialect.value(piece) for piece in looking.pieces],
            ignored=looking.ignored,
        )
        rows = await fetch(sql, values)
        for together in _groups([(seq, size) for seq, is_likely, size in rows if is_likely]):
            sql, values = find_seqs(together)
            by_seq = {stored.seq: stored for stored in map(Stored._make, await fetch(sql, values))}
            # Some may have been pruned since.
            found += [by_seq[seq] for seq in together if seq in by_seq and looking.finds(by_seq[seq])]
            if len(found) >= limit or (most is not None and sum(len(each.content) for each in found) >= most):
                return until_full(found[:limit], contents=(CONTENT,), most=most)
        if len(rows) < at_once:
            return found
        after = rows[-1][0]


def _groups(likely: Iterable[tuple[int, int]]) -> Iterator[list[int]]:
    """What is read at once, from numbers of asks and the sizes of their contents: large ones one by one."""
    group, size = list[int](), 0
    for seq, length in likely:
        if group and (len(group) == FOUND_TOGETHER or size + length > LARGE):
            yield group
            group, size = [], 0
        group.append(seq)
        size += length
    if group:
        yield group


def _pieces(text: str) -> list[str]:
    """The longest part that every database finds: letters without case, or of ASCII, that JSON does not escape.

    Two s are left out, since they may stand for a German ß. Of a text without such a part it is one of its letters, as
    all those that fold to it.
    """
    plain = "".join(each if _is_plain(each) else "\0" for each in text)
    piece = max(re.split(r"\0|[sS]{2}", plain), key=len).lower()
    if piece:
        return [piece]
    foreign = [each for each in text.casefold() if not each.isascii() and each.isprintable()]
    letters = [[each, *_folding_to().get(each, ())] for each in foreign]
    return min((each for each in letters if len(each) <= MOST_LETTERS), key=len, default=[""])


@cache
def _folding_to() -> dict[str, list[str]]:
    """By a character without case, the others of which it is a part when those have none. ASCII is not asked for."""
    found = defaultdict[str, list[str]](list)
    for number in range(0x80, 0x20000):
        letter = chr(number)
        folded = letter.casefold()
        if folded != letter:
            for each in set(folded):
                if not each.isascii():
                    found[each].append(letter)
    return dict(found)


def _is_plain(character: str) -> bool:
    if character.isascii():
        return character.isprintable() and character not in '"\\'
    return character.isprintable() and character.casefold() == character == character.upper() == character.lower()


def _texts_of_content(content: Mapping[str, Any]) -> Iterator[str]:
    yield from _texts([content["id"], content["origin"], content.get("extra")])
    for question in content["questions"]:
        yield from _texts([value for key, value in question.items() if key not in (*_HIDDEN, "options")])
        for option in question.get("options", ()):
            yield from _texts([value for key, value in option.items() if key not in _HIDDEN])
    if content["permission"] is not None:
        yield from _texts([value for key, value in content["permission"].items() if key not in _HIDDEN])


def _texts_of_answer(answer: Mapping[str, Any]) -> Iterator[str]:
    yield from _texts([answer.get(key) for key in ("answers", "reason", "notes", "input", "by")])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
