"""A permission as a form: all of what the agent wants to do, and the replies it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from urllib.parse import quote

from htpy import Element, Node, a, details, fieldset, legend, ol, p, pre, summary
from markupsafe import Markup

from handraise.asks import Permission, Scope
from handraise.asks.card import MOST_DESCRIPTION, MOST_LABEL, MOST_NAME, Card, Part, is_longer
from handraise.people import reason_not_to_allow
from handraise.server.pages._inputs import button, buttons, choice, reason_field
from handraise.server.pages._text import (
    Template,
    between,
    cut,
    cut_inert,
    join_markup,
    show,
    show_line,
    show_spaces,
    show_verbatim,
)
from handraise.server.pages.typed import Typed
from handraise.text.inert import inert
from handraise.text.words import Words

__all__ = ["PermissionForm"]

LONGEST_SHOWN = 40_000  # characters of a permission; drawing megabytes takes seconds, and nobody reads them here
MOST_SHOWN = 2_000  # of its paths
FOLD_DIFF = 200  # changed lines from which a diff starts folded
CHANGES = {
    "+": Template('<span class="add">{}</span>'),
    "-": Template('<span class="del">{}</span>'),
    "@": Template('<span class="hunk">{}</span>'),
}
SCOPED = Template("{}: {}")
LIST = Template("<ul>{}</ul>")
ITEM = Template('<li><code dir="ltr">{}</code></li>')


class PermissionForm:
    """One permission. `refusal` says why it can only be denied here, if it can."""

    def __init__(self, t: Words, card: Card, permission: Permission) -> None:
        self._t = t
        self._card = card
        self._permission = permission
        self._is_cut = len(permission.paths) > MOST_SHOWN or is_longer(permission, LONGEST_SHOWN)
        # Nobody would see all of it, or: a link proves no more than that somebody holds it.
        self.refusal = "it is too long" if self._is_cut else reason_not_to_allow(card.ask, identity="shared")
        self._ways = [
            (reply, scope)
            for reply, scope in (() if self._is_cut else card.ways)
            if reason_not_to_allow(card.ask, identity="shared", reply=reply) is None
        ]

    def read_reply(self, typed: Typed) -> tuple[str, str | None] | None:
        """The reply and its scope, or None where it is not clear which one was picked."""
        picked = typed.places("reply") or ([0] if len(self._ways) == 1 else [])
        if len(picked) != 1 or picked[0] >= len(self._ways):
            return None
        return self._ways[picked[0]]

    def draw(self, typed: Typed, *, deadline: Node) -> list[Node]:
        return [self._object(), self._warnings(), deadline, self._scopes(typed), self._decision(typed)]

    def _object(self) -> list[Node]:
        """What it is about, with a warning where something in it is hidden."""
        t, card = self._t, self._card
        return [
            [self._part(part) for part in card.parts],
            p[t("perm.notAll")] if self._is_cut else None,
            p[t("perm.noDiff")] if card.lacks_diff else None,
            _warning(t("text.hidden")) if card.is_hiding(within=LONGEST_SHOWN) else None,
            p(class_="facts", dir="auto")[between(" · ", self._facts())],
        ]

    def _part(self, part: Part) -> Node:
        match part.name:
            case "commands":
                return [p[self._t("link.parts")], ol[_verbatim_items(part.texts)]]
            case "diff":
                return self._diff(cut(part.text, LONGEST_SHOWN))
            case "command" | "paths" | "url":
                return [pre(class_="object", dir="ltr")[show_verbatim(each)] for each in _first(part.texts)]
            case _:
                return pre(class_="object", dir="auto")[show(cut(part.text, LONGEST_SHOWN))]

    def _facts(self) -> Iterator[Node]:
        card = self._card
        if card.cwd:
            yield show_line(self._t("perm.cwd", path=card.cwd))
        yield show_line(cut(card.tool, MOST_LABEL))
        if card.claim:
            agent = cut_inert(card.ask.origin.agent, MOST_NAME)
            yield show_line(self._t("perm.says", agent=agent, text=cut(card.claim, MOST_DESCRIPTION)))

    def _diff(self, diff: str) -> Element:
        lines = diff.removesuffix("\n").split("\n")
        drawn = pre(class_="diff", dir="ltr")[Markup("\n").join(map(_diff_line, lines))]
        changed = sum(line.startswith(("+", "-")) for line in lines)
        return drawn if changed <= FOLD_DIFF else details[summary[self._t("text.showAll", count=len(diff))], drawn]

    def _warnings(self) -> list[Node]:
        return [_warning(show_line(each)) for each in self._card.warnings(self._t)]

    def _scopes(self, typed: Typed) -> Element | None:
        """How far it goes, where that can be chosen, with exactly what each choice will save."""
        if len(self._ways) < 2:
            return None
        picked = typed.picked("reply") or (["0"] if self._ways[0][0] == "once" else [])
        scopes = {scope.id: scope for scope in self._permission.scopes}
        return fieldset[
            legend[self._t("link.scope")],
            [
                self._way(str(place), reply, scope=None if id is None else scopes[id], checked=str(place) in picked)
                for place, (reply, id) in enumerate(self._ways)
            ],
        ]

    def _way(self, place: str, reply: str, *, scope: Scope | None, checked: bool) -> Markup:
        known = {"once": self._t("perm.allowOnce"), "always": self._t("link.always")}
        name = known.get(reply, inert(reply, keep=""))
        if scope is None:
            return choice("reply", place, name, checked=checked)
        label = SCOPED(name, show_line(scope.label or scope.id))  # whole: it says what is allowed
        patterns = LIST(_verbatim_items(scope.patterns)) if scope.patterns else ""
        return choice("reply", place, label, checked=checked, below=patterns)

    def _decision(self, typed: Typed) -> list[Node]:
        t, ask = self._t, self._card.ask
        card = f"/#/ask/{quote(ask.id, safe='')}"  # of the desk at which this page was opened
        message = t("link.message", agent=cut_inert(ask.origin.agent, MOST_NAME))
        only_once = len(self._ways) == 1 and self._ways[0][0] == "once"
        allow = button("allow", t("perm.allowOnce") if only_once else t("link.allow"), kind="first")
        return [
            p[t("link.atDesk"), " ", a(href=card)[t("link.card")]] if self.refusal is not None else None,
            reason_field(message, text=typed.text("reason")),
            buttons(*([allow] if self._ways else []), button("deny", t("perm.deny"))),
        ]


def _first(texts: Sequence[str]) -> list[str]:
    """As many of them as are shown."""
    sizes = accumulate(map(len, texts))
    return [text for text, size in zip(texts, sizes, strict=True) if size <= LONGEST_SHOWN][:MOST_SHOWN]


def _verbatim_items(texts: Sequence[str]) -> Markup:
    return join_markup(ITEM(show_verbatim(each)) for each in texts)


def _diff_line(line: str) -> Markup:
    kind = CHANGES.get(line[:1])
    return kind(show_spaces(line)) if kind is not None else show_spaces(line)


def _warning(text: Node) -> Element:
    return p(class_="warning")["⚠ ", text]
