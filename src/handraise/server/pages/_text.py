"""Text of an agent or a person as markup: escaped, and with every hidden character as a marked escape."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import LiteralString

from htpy import Node
from markupsafe import Markup, escape

from handraise.text.inert import inert, pieces
from handraise.text.words import Words

__all__ = [
    "NOTHING",
    "Template",
    "between",
    "cut",
    "cut_inert",
    "join_markup",
    "show",
    "show_line",
    "show_spaces",
    "show_verbatim",
    "word_or",
]


NOTHING = Markup("")


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def cut_inert(text: str, limit: int) -> str:
    """Plain text on one line, for a place inside a sentence."""
    return inert(cut(text, limit), keep="")


def word_or(t: Words, key: str, otherwise: str) -> str:
    """What a key says, where the catalogue has it. Only for our own short lists of names."""
    try:
        return t(key)
    except KeyError:
        return otherwise


def between(separator: str, nodes: Iterable[Node]) -> list[Node]:
    """The nodes with the separator between them."""
    joined = [each for node in nodes for each in (separator, node)]
    return joined[1:]


def show(text: str, *, keep: str = "\n\t") -> Markup:
    """A text of several lines. `keep` names the control characters that stay as they are."""
    if text.isascii() and text.isprintable():
        return escape(text)
    if "\n" in text and "\n" in keep:
        return Markup("\n").join(show(line, keep=keep) for line in text.split("\n"))
    parts: list[Markup] = []
    for hidden, run in groupby(pieces(text, keep=keep), key=itemgetter(1)):
        shown = [each for each, _ in run]
        parts += map(_mark, shown) if hidden else (escape("".join(shown)),)
    return join_markup(parts)


def show_line(text: str) -> Markup:
    """A text on one line: the ends of its lines are marked escapes as well."""
    return show(text, keep="")


def show_verbatim(text: str) -> Markup:
    """All of it, with what an eye would miss made visible: spaces at the ends of a line, tabs, the ends of lines."""
    *lines, last = text.split("\n")
    end = (_mark("⏎"), Markup("\n"))
    parts = [part for line in lines for part in (show_spaces(line, keep=""), *end)]
    return join_markup((*parts, show_spaces(last, keep="")))


def show_spaces(line: str, *, keep: str = "\t") -> Markup:
    """One line with dots for the spaces at its end, and for those at its start where nothing is kept."""
    inside = line.lstrip(" ") if keep == "" else line
    kept = inside.rstrip(" ")
    if kept == line:
        return show(line, keep=keep)
    dot = (_mark("·"),)
    return join_markup(dot * (len(line) - len(inside)) + (show(kept, keep=keep),) + dot * (len(inside) - len(kept)))


def join_markup(parts: Iterable[Markup]) -> Markup:
    """As `Markup.join`, which looks at each of a million parts once more."""
    return Markup("".join(parts))  # noqa: S704 - each part is markup already


class Template:
    """Markup of ours with places for texts, which are escaped, and for markup.

    It does what an element does in a tenth of the time, for what a hostile ask has thousands of."""

    def __init__(self, markup: LiteralString) -> None:
        first, *self._rest = [Markup(part) for part in markup.split("{}")]  # noqa: S704 - a literal
        self._first = first

    def __call__(self, *values: str) -> Markup:
        parts = [self._first]
        for value, rest in zip(values, self._rest, strict=True):
            parts += (value if isinstance(value, Markup) else escape(value), rest)
        return join_markup(parts)


MARK = Template("<mark>{}</mark>")


@lru_cache(maxsize=1024)
def _mark(shown: str) -> Markup:
    """Few characters are hidden, and a hostile text has a million of them."""
    return MARK(shown)
