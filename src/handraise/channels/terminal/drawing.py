"""Asks as text: one line, or the whole card. Pure, and the place where everything an agent wrote is made inert.

Texts are shortened here for display only; what is sent is always the agent's own value. Our own words come from the
catalogue, by the `t` that whoever draws is given.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TextIO

from handraise.asks import Answer, Ask, Option, Scope
from handraise.asks.card import (
    MOST_DESCRIPTION,
    MOST_HEADER,
    MOST_LABEL,
    MOST_NAME,
    MOST_PREVIEW,
    MOST_QUESTION,
    Card,
    Part,
    badges_of,
    cut,
    due_of,
    names,
    picked_by_silence,
    silence_of,
    to_card,
)
from handraise.text.inert import inert, pieces
from handraise.text.words import Words, speak

__all__ = [
    "ENGLISH",
    "NARROW",
    "CardLines",
    "Ink",
    "agent_of",
    "card_of",
    "draw",
    "lost_line",
    "middle",
    "on_our_clock",
    "outcome_line",
    "record_line",
    "said",
    "summary_line",
    "undelivered_line",
    "unseen_line",
    "wants_colour",
    "width",
]

NARROW = 60  # columns under which a description gets lines of its own
SOON = timedelta(minutes=2)  # a deadline this near is told with its seconds
ENGLISH = speak("en")  # for whoever draws without a person's language
_SILENCE = re.compile(r"no answer in (?P<seconds>\S{1,40}) s")  # as the desk says why it did not wait any longer
_UNSEEN = re.compile(r"nobody could be shown this \((?P<reason>.*)\)", re.DOTALL)  # and why it did not wait at all


def width(text: str) -> int:
    """How many cells of a terminal the text fills."""
    if text.isascii():
        return len(text)
    from prompt_toolkit.utils import get_cwidth

    return get_cwidth(text)


def middle(text: str, cells: int) -> str:
    """Shortened in the middle to so many cells: the ends of a path say more."""
    if width(text) <= cells:
        return text
    head = tail = ""
    for character in text:
        if width(head + character) > (cells - 1) // 2:
            break
        head += character
    for character in reversed(text):
        if width(head + character + tail) > cells - 1:
            break
        tail = character + tail
    return f"{head}…{tail}"


def card_of(ask: Ask) -> Card:
    """What to show of it. An ask that no desk has seen is judged now."""
    if ask.permission is None or ask.risks is not None:
        return to_card(ask)
    from handraise.rules.risks import judge  # for start-up: what a desk tells was judged there

    return to_card(ask, judge(ask))


def agent_of(ask: Ask, *, t: Words) -> str:
    return cut(ask.origin.agent, MOST_NAME, t=t)


def summary_line(ask: Ask, *, t: Words = ENGLISH) -> str:
    """One line for lists: id, agent, title."""
    return f"{inert(ask.id, keep='')}  {agent_of(ask, t=t)}  {cut(ask.title, MOST_LABEL, t=t)}"


def outcome_line(ask: Ask, *, t: Words = ENGLISH) -> str:
    """What became of it, who decided, and whether the agent has taken it."""
    outcome = _outcome(ask, t=t)
    if ask.answer is None:
        return outcome
    if ask.delivery_error is not None:
        return f"{outcome} · {_undelivered(ask, t=t)}"
    if ask.delivered_at is None:
        return f"{outcome} · {t('terminal.outcome.untaken', agent=agent_of(ask, t=t))}"
    return f"{outcome} · {t('terminal.outcome.taken', time=f'{ask.delivered_at.astimezone():%H:%M}')}"


def record_line(ask: Ask, *, colour: bool = False, heading: str = "", t: Words = ENGLISH) -> str:
    """One line for a log: that it was asked, or what became of it. `heading` names what it is where it is no ask."""
    ink = Ink(colour)
    mark = ink.warning("?") if ask.state == "asked" else ink.good("→")
    return f"{mark} {agent_of(ask, t=t)}: {_record(ask, heading=heading, t=t)}"


def _record(ask: Ask, *, heading: str, t: Words) -> str:
    outcome, title = _outcome(ask, t=t), cut(ask.title, MOST_LABEL, t=t)
    if heading:
        named = heading if t.language == "de" else heading.lower()  # a German noun keeps its capital
        given = t("terminal.record.given", outcome=outcome)
        became = {"asked": t("terminal.record.waits"), "answered": given}.get(ask.state, outcome)
        return f"{named} {cut(ask.origin.step or '', MOST_NAME, t=t)}: {became}"
    if ask.state == "asked":
        is_question = ask.permission is None
        return t("terminal.record.asks", title=title) if is_question else t("terminal.record.wants", title=title)
    if ask.state == "withdrawn":
        return f"{outcome}: {title}"
    if ask.state == "answered" and ask.permission is None and not _by_timeout(ask):
        return t("terminal.record.answered", outcome=outcome)
    return outcome


def undelivered_line(ask: Ask, *, colour: bool = False, t: Words) -> str:
    """One line for a log: that the agent could not be given the answer."""
    return f"{Ink(colour).bad('!')} {_undelivered(ask, t=t)}"


def unseen_line(ask: Ask, *, colour: bool = False, t: Words) -> str:
    """One line for a log: that no channel could show it to anybody."""
    title = cut(ask.title, MOST_LABEL, t=t)
    return f"{Ink(colour).bad('!')} {t('terminal.unseen', agent=agent_of(ask, t=t), title=title)}"


def _undelivered(ask: Ask, *, t: Words) -> str:
    reason = cut(ask.delivery_error or "", MOST_DESCRIPTION, t=t)
    return t("state.deliveryFailed", agent=agent_of(ask, t=t), reason=reason)


def _outcome(ask: Ask, *, t: Words) -> str:
    answer = ask.answer
    if ask.state == "withdrawn":
        reason = f" ({cut(ask.withdrawn_reason, MOST_DESCRIPTION, t=t)})" if ask.withdrawn_reason else ""
        return t("terminal.outcome.gone") + reason
    if answer is None:
        return t("terminal.outcome.waiting")
    if _by_timeout(ask):
        return f"{_waited(answer, t=t)}: {said(ask, t=t)}"
    if not answer.rejected:
        return f"{said(ask, t=t)} · {_who(answer, between=', ', t=t)}"
    reason = f": {cut(answer.reason, MOST_DESCRIPTION, t=t)}" if answer.reason else ""
    return t("terminal.outcome.refused", said=said(ask, t=t), person=_who(answer, between=" ", t=t)) + reason


def lost_line(ask: Ask, *, t: Words) -> str:
    """Why the person who is typing can stop: who was faster, where, and with what."""
    agent, answer = agent_of(ask, t=t), ask.answer
    if ask.state == "withdrawn":
        reason = cut(ask.withdrawn_reason or "", MOST_DESCRIPTION, t=t)
        return t("terminal.lost.gone", agent=agent, reason=reason) if reason else t("state.withdrawn", agent=agent)
    if answer is None:
        return t("terminal.lost.waiting", agent=agent)
    if _by_timeout(ask):
        waited = _waited(answer, t=t)
        waited = waited[:1].upper() + waited[1:]
        if answer.rejected:
            return f"{waited}: {said(ask, t=t)}."
        return t("terminal.lost.picked", waited=waited, answer=said(ask, t=t))
    if answer.rejected:
        return t("terminal.lost.refused", outcome=_outcome(ask, t=t))
    person, given = _who(answer, between=" ", t=t), said(ask, t=t)
    if ask.permission is None:
        return t("terminal.lost.answered", person=person, answer=given)
    return t("terminal.lost.decided", person=person, answer=given)


def _by_timeout(ask: Ask) -> bool:
    """Whether policy answered because nobody did, or because nobody could be asked."""
    return ask.answer is not None and ask.answer.by in ("policy:timeout", "policy:unseen")


def _waited(answer: Answer, *, t: Words) -> str:
    """Why nobody was waited for any longer. The desk says it in English."""
    if not answer.why:
        return t("terminal.outcome.late")
    if unseen := _UNSEEN.fullmatch(answer.why[0]):
        return t("terminal.outcome.unseen", reason=cut(unseen["reason"], MOST_DESCRIPTION, t=t))
    silence = _SILENCE.fullmatch(answer.why[0])
    if silence is None:
        return cut(answer.why[0], MOST_LABEL, t=t)
    return t("terminal.outcome.silence", seconds=inert(silence["seconds"], keep=""))


def _who(answer: Answer, *, between: str, t: Words) -> str:
    """Who answered and where, with this between the two."""
    if answer.by_policy:
        return t("terminal.by.policy", name=cut(answer.by.removeprefix("policy:"), MOST_NAME, t=t))
    who = cut(answer.by, MOST_NAME, t=t) or t("terminal.by.somebody")
    return f"{who}{between}{_place(answer.via, t=t)}" if answer.via else who


def _place(via: str, *, t: Words) -> str:
    match via:
        case "web":
            return t("terminal.via.web")
        case "cli":
            return t("terminal.via.cli")
        case "terminal":
            return t("terminal.via.terminal")
        case "http":
            return t("terminal.via.http")
        case "link":
            return t("terminal.via.link")
        case "agent":
            return t("terminal.via.agent")
        case _:
            return t("terminal.via.named", channel=cut(via, MOST_NAME, t=t))


def said(ask: Ask, answer: Answer | None = None, *, t: Words) -> str:
    """An answer in the words that were offered."""
    answer = answer or ask.answer or Answer()
    if answer.rejected:
        return t("terminal.said.declined") if ask.permission is None else t("terminal.said.denied")
    if ask.permission is not None:
        known = {"once": t("terminal.said.once"), "always": t("terminal.said.always")}
        scope = f" ({cut(answer.scope, MOST_NAME, t=t)})" if answer.scope else ""
        return known.get(answer.reply or "", cut(answer.reply or "", MOST_NAME, t=t)) + scope
    return "; ".join(
        ", ".join(cut(question.label_of(value), MOST_LABEL, t=t) for value in values) or t("terminal.said.nothing")
        for question, values in zip(ask.questions, answer.answers or (), strict=False)
    )


# Drawing ----------------------------------------------------------------------------------------------------


def draw(
    ask: Ask, *, colour: bool = False, columns: int | None = None, now: datetime | None = None, t: Words = ENGLISH
) -> str:
    """The whole card: who asks, what, the choices, and what happens if nobody answers, or what became of it.

    `ask.remaining` counts from `now`, the local time at which it was told.
    """
    lines = CardLines(ask, colour=colour, columns=columns, now=now, t=t)
    blocks = [lines.question(index) for index in range(len(ask.questions))]
    if ask.permission is not None:
        blocks.append(lines.permission())
    end = lines.deadline() if ask.state == "asked" else outcome_line(ask, t=t)
    blocks += [[end]] if end else []
    return "\n".join([*lines.head(), "\n\n".join(map("\n".join, blocks)), lines.bar()])


def wants_colour(stream: TextIO | None = None) -> bool:
    """Whether to colour what goes to the stream (standard output): NO_COLOR, then FORCE_COLOR, then whether it can."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


class Ink:
    """ANSI colours, or none. A colour never says anything that the words do not."""

    def __init__(self, on: bool) -> None:
        self._on = on

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._on and text else text

    def strong(self, text: str) -> str:
        return self._paint("1", text)

    def quiet(self, text: str) -> str:
        return self._paint("2", text)

    def frame(self, text: str) -> str:
        return self._paint("36", text)

    def warning(self, text: str) -> str:
        return self._paint("33", text)

    def good(self, text: str) -> str:
        return self._paint("32", text)

    def bad(self, text: str) -> str:
        return self._paint("31", text)


class CardLines:
    """A card as lines, part by part, so that a terminal can stop between them.

    Where it is brief, it says of what is not risky only what it always said: a line that an agent or a script may know.
    """

    def __init__(
        self,
        ask: Ask,
        *,
        t: Words,
        colour: bool,
        columns: int | None = None,
        now: datetime | None = None,
        heading: str = "",
        card: Card | None = None,
        brief: bool = True,
    ) -> None:
        self._ask = ask
        self._t = t
        self._given = card
        self._wants_brief = brief
        self._now = now or datetime.now().astimezone()
        self._ink = Ink(colour)
        self._columns = columns or shutil.get_terminal_size().columns  # honours COLUMNS
        usual = t("terminal.title.question") if ask.permission is None else t("terminal.title.permission")
        self._title = f"━━━ {heading or usual} ━━━"

    @cached_property
    def _card(self) -> Card:
        return self._given or card_of(self._ask)

    @property
    def _is_brief(self) -> bool:
        return self._wants_brief and not self._card.risks

    def _cut(self, text: str, limit: int, *, keep: str = "") -> str:
        return cut(text, limit, keep=keep, t=self._t)

    def bar(self) -> str:
        return self._ink.frame("━" * len(self._title))

    def head(self) -> list[str]:
        return [self._ink.frame(self._title), self._ink.quiet(self.origin())]

    def origin(self) -> str:
        t, origin = self._t, self._ask.origin
        session = None if origin.run and origin.run in origin.session else origin.session  # that one says nothing new
        named = [
            self._cut(origin.agent, MOST_NAME),
            t("session.run", run=self._cut(origin.run, MOST_NAME)) if origin.run else "",
            t("session.step", step=self._cut(origin.step, MOST_NAME)) if origin.step else "",
            t("terminal.session", session=self._cut(session, MOST_NAME)) if session else "",
        ]
        line = " · ".join(filter(None, named))
        if not origin.cwd:
            return line
        left = self._columns - width(line) - 3
        return f"{line} · {middle(inert(origin.cwd, keep=''), max(left, 20))}"

    def question(self, index: int) -> list[str]:
        question, total = self._ask.questions[index], len(self._ask.questions)
        lines = [self._t("question.step", current=index + 1, total=total)] if total > 1 else []
        if question.header:
            lines.append(self._ink.strong(self._cut(question.header, MOST_HEADER)))
        if question.question:
            lines += self._cut(question.question, MOST_QUESTION, keep="\n\t").split("\n")
        picked = picked_by_silence(self._ask, index)
        shown = names(question.options, t=self._t)
        for number, (option, name) in enumerate(zip(question.options, shown, strict=True), 1):
            lines += self._option(number, option, name, is_default=option.value in picked)
        return lines

    def _option(self, number: int, option: Option, name: str, *, is_default: bool) -> Iterator[str]:
        badges = [self._t(f"question.{badge}") for badge in badges_of(option, is_default=is_default)]
        line = f"  {number}. {name}" + (self._ink.warning(f" [{', '.join(badges)}]") if badges else "")
        indent = "" if self._columns < NARROW else "     "
        description = self._cut(option.description, MOST_DESCRIPTION, keep="\n\t")
        if description and indent and "\n" not in description:
            yield f"{line} — {description}"
        else:
            yield line
            yield from (indent + text for text in description.split("\n") if description)
        if option.preview:
            yield from (indent + line for line in self.preview(option.preview))

    def permission(self) -> list[str]:
        """What the agent wants, and the thing itself: verbatim and whole, however long."""
        return [self._ink.strong(self.wants()), *self.object(), *self.facts(), *self.warnings()]

    def wants(self) -> str:
        """The sentence that says what the agent wants."""
        return self._card.heading.say(self._t, show=self._cut)

    def object(self, *, with_diff: bool = True) -> list[str]:
        """What it is about, verbatim."""
        lines: list[str] = []
        for part in self._card.parts:
            if part.name == "commands":
                lines += self._commands(part)
            elif part.name != "diff" or with_diff:
                lines += [*self._before(part, is_first=not lines), *(f"  │ {line}" for line in self._lines(part))]
        return lines

    def _commands(self, part: Part) -> list[str]:
        listed = [] if self._is_brief else part.texts
        return [f"  {self._t('terminal.runs')}", *(f"    {inert(each, keep='')}" for each in listed)] if listed else []

    def _before(self, part: Part, *, is_first: bool) -> list[str]:
        """What tells arguments from what is above them."""
        if is_first or part.name not in ("arguments", "approved"):
            return []
        return ["  │ "] if self._card.named("plan") else [self._t("terminal.with")]

    def _lines(self, part: Part) -> Iterator[str]:
        match part.name:
            case "diff":
                yield from self._diff(part.text)
            case "command" | "paths" | "url":
                yield from (line for text in part.texts for line in self._verbatim(text))
            case _:
                yield from self._escaped(part.text, keep="\n\t").split("\n")

    def facts(self) -> list[str]:
        """What else there is to know about it. What the agent says of it comes last."""
        return [*self._notes(), *self._facts()]

    def warnings(self) -> list[str]:
        """What to think twice about."""
        return [self._ink.warning(f"⚠ {says}") for says in self._card.warnings(self._t)]

    def preview(self, text: str) -> list[str]:
        return [f"│ {line}" for line in self._cut(text, MOST_PREVIEW, keep="\n\t").split("\n")]

    def pattern(self, text: str) -> list[str]:
        return list(self._verbatim(text))

    def _notes(self) -> Iterator[str]:
        if self._card.lacks_diff:
            yield self._t("perm.noDiff")
        if self._card.is_hiding():
            yield self._ink.warning(f"⚠ {self._t('text.hidden')}")

    def _facts(self) -> Iterator[str]:
        card, permission = self._card, self._ask.permission
        if permission is not None and permission.cwd:  # that of the session is in the first line
            yield self._t("perm.cwd", path="".join(self._verbatim(permission.cwd)))
        yield self._t("terminal.tool", tool=self._cut(card.tool, MOST_LABEL))
        if card.claim:
            claim = self._cut(card.claim, MOST_DESCRIPTION)
            agent = agent_of(self._ask, t=self._t)
            yield claim if self._is_brief else self._ink.quiet(self._t("perm.says", agent=agent, text=claim))

    def scope(self, number: int, scope: Scope) -> list[str]:
        """One way to say `always`, with exactly the patterns that it saves."""
        label = self._cut(scope.label or scope.id, MOST_LABEL)
        return [f"  {number}. {label}", *(f"     │ {line}" for text in scope.patterns for line in self._verbatim(text))]

    def _verbatim(self, text: str) -> Iterator[str]:
        """Every line whole, with what an eye would miss made visible: spaces at its ends, tabs, line ends."""
        *lines, last = text.split("\n")
        for line, end in [*((line, "⏎") for line in lines), (last, "")]:
            inside = line.lstrip(" ")
            before, after = len(line) - len(inside), len(inside) - len(inside.rstrip(" "))
            dot = self._ink.warning("·")
            yield dot * before + self._escaped(inside.rstrip(" "), keep="") + dot * after + self._ink.warning(end)

    def _diff(self, text: str) -> Iterator[str]:
        for line in text.removesuffix("\n").split("\n") if text else ():
            inside = line[:1] + line[1:].rstrip(" ")
            shown = self._escaped(inside, keep="\t") + "·" * (len(line) - len(inside))
            yield {"+": self._ink.good, "-": self._ink.bad}.get(line[:1], str)(shown)

    def _escaped(self, text: str, *, keep: str) -> str:
        return "".join(self._ink.warning(shown) if hidden else shown for shown, hidden in pieces(text, keep=keep))

    def deadline(self) -> str | None:
        """What silence does, and when, on this machine's clock."""
        silence, fallback = silence_of(self._ask, now=self._now), self._ask.fallback
        if silence is None or fallback is None:
            return None
        due = silence.at
        near, today = due - self._now < SOON, due.date() == self._now.date()
        time = f"{due:%H:%M:%S}" if near else f"{due:%H:%M}" if today else f"{due:%Y-%m-%d %H:%M}"
        return silence.say(self._t, time=time, choice=said(self._ask, fallback, t=self._t))


def on_our_clock(ask: Ask) -> Ask:
    """With its deadline as this machine's clock will show it, however long the ask is kept."""
    return replace(ask, remaining=None, deadline=due_of(ask, datetime.now().astimezone()))
