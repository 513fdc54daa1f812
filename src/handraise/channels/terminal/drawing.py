"""Asks as text: one line, or the whole card. Pure, and the place where everything an agent wrote is made inert.

Texts are shortened here for display only; what is sent is always the agent's own value.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TextIO
from urllib.parse import urlsplit

from handraise.asks import RECOMMENDED, Answer, Ask, Option, Origin, Permission, Scope
from handraise.inert import has_hidden, inert, pieces

__all__ = [
    "Card",
    "cut",
    "draw",
    "lost_line",
    "names",
    "on_our_clock",
    "outcome_line",
    "record_line",
    "summary_line",
    "undelivered_line",
    "wants_colour",
]

# How much of each text is shown, in characters. Limits of display, not of what is accepted.
MOST_NAME = MOST_HEADER = 60
MOST_LABEL = 120
MOST_DESCRIPTION = 500
MOST_QUESTION = 4_000
MOST_PREVIEW = 20_000
NARROW = 60  # columns under which a description gets lines of its own
SOON = timedelta(minutes=2)  # a deadline this near is told with its seconds


def cut(text: str, limit: int, *, keep: str = "") -> str:
    """Inert, one line unless told otherwise, and no longer than its limit, with a mark where it was cut."""
    more = len(text) - limit
    return inert(text[:limit], keep=keep) + (f"… ({more} more characters)" if more > 0 else "")


def names(options: Sequence[Option]) -> list[str]:
    """The labels as they are shown. Those that look the same get an ordinal."""
    shown: dict[str, None] = {}
    ordinals: dict[str, int] = {}
    for option in options:
        name = label = cut(option.label, MOST_LABEL)
        while name in shown:
            ordinals[label] = ordinal = ordinals.get(label, 1) + 1
            name = f"{label} #{ordinal}"
        shown[name] = None
    return list(shown)


def _width(text: str) -> int:
    """How many cells of a terminal the text fills."""
    if text.isascii():
        return len(text)
    from prompt_toolkit.utils import get_cwidth

    return get_cwidth(text)


def _middle(text: str, cells: int) -> str:
    """Shortened in the middle to so many cells: the ends of a path say more."""
    if _width(text) <= cells:
        return text
    head = tail = ""
    for character in text:
        if _width(head + character) > (cells - 1) // 2:
            break
        head += character
    for character in reversed(text):
        if _width(head + character + tail) > cells - 1:
            break
        tail = character + tail
    return f"{head}…{tail}"


def _agent(ask: Ask) -> str:
    return cut(ask.origin.agent, MOST_NAME)


def summary_line(ask: Ask) -> str:
    """One line for lists: id, agent, title."""
    return f"{inert(ask.id, keep='')}  {_agent(ask)}  {cut(ask.title, MOST_LABEL)}"


def outcome_line(ask: Ask) -> str:
    """What became of it, who decided, and whether the agent has taken it."""
    if ask.answer is None:
        return _outcome(ask)
    if ask.delivery_error is not None:
        return f"{_outcome(ask)} · {_undelivered(ask)}"
    if ask.delivered_at is None:
        return f"{_outcome(ask)} · not yet taken by {_agent(ask)}"
    return f"{_outcome(ask)} · taken {ask.delivered_at.astimezone():%H:%M}"


def record_line(ask: Ask, *, colour: bool = False) -> str:
    """One line for a log: that it was asked, or what became of it."""
    ink = _Ink(colour)
    if ask.state == "asked":
        asks = "agent asks" if ask.permission is None else "agent wants permission"
        return f"{ink.warning('?')} {_agent(ask)}: {asks}: {cut(ask.title, MOST_LABEL)}"
    if ask.state == "withdrawn":
        return f"{ink.good('→')} {_agent(ask)}: {_outcome(ask)}: {cut(ask.title, MOST_LABEL)}"
    answered = "answered: " if ask.state == "answered" and ask.permission is None and not _by_timeout(ask) else ""
    return f"{ink.good('→')} {_agent(ask)}: {answered}{_outcome(ask)}"


def undelivered_line(ask: Ask, *, colour: bool = False) -> str:
    """One line for a log: that the agent could not be given the answer."""
    return f"{_Ink(colour).bad('!')} {_undelivered(ask)}"


def _undelivered(ask: Ask) -> str:
    return f"{_agent(ask)} did not take the answer: {cut(ask.delivery_error or '', MOST_DESCRIPTION)}"


def _outcome(ask: Ask) -> str:
    answer = ask.answer
    if ask.state == "withdrawn":
        reason = f" ({cut(ask.withdrawn_reason, MOST_DESCRIPTION)})" if ask.withdrawn_reason else ""
        return f"no longer waiting{reason}"
    if answer is None:
        return "waiting for an answer"
    if _by_timeout(ask):
        waited = cut((*answer.why, "no answer in time")[0], MOST_LABEL)
        return f"{waited}: {_said(ask)}"
    if not answer.rejected:
        return f"{_said(ask)} · {_who(answer, place=', in ')}"
    reason = f": {cut(answer.reason, MOST_DESCRIPTION)}" if answer.reason else ""
    return f"{_said(ask)} by {_who(answer, place=' in ')}{reason}"


def lost_line(ask: Ask) -> str:
    """Why the person who is typing can stop: who was faster, where, and with what."""
    if ask.state == "withdrawn" or ask.answer is None:
        return f"{_agent(ask)} is {_outcome(ask)}."
    if _by_timeout(ask):
        outcome = _outcome(ask)
        return f"{outcome[:1].upper()}{outcome[1:]}{'' if ask.answer.rejected else ' was picked'}."
    if ask.answer.rejected:
        return f"Already {_outcome(ask)}"
    done = "Already answered" if ask.permission is None else "Already decided"
    return f"{done} by {_who(ask.answer, place=' in ')}: {_said(ask)}"


def _by_timeout(ask: Ask) -> bool:
    return ask.answer is not None and ask.answer.by == "policy:timeout"


def _who(answer: Answer, *, place: str) -> str:
    if answer.by_policy:
        return f"policy {cut(answer.by.removeprefix('policy:'), MOST_NAME)}"
    who = cut(answer.by, MOST_NAME) or "somebody"
    return f"{who}{place}{cut(answer.via, MOST_NAME)}" if answer.via else who


def _said(ask: Ask, answer: Answer | None = None) -> str:
    """An answer in the words that were offered."""
    answer = answer or ask.answer or Answer()
    if answer.rejected:
        return "declined" if ask.permission is None else "denied"
    if ask.permission is not None:
        known = {"once": "allowed once", "always": "always allowed"}
        scope = f" ({cut(answer.scope, MOST_NAME)})" if answer.scope else ""
        return known.get(answer.reply or "", cut(answer.reply or "", MOST_NAME)) + scope
    return "; ".join(
        ", ".join(cut(question.label_of(value), MOST_LABEL) for value in values) or "not answered"
        for question, values in zip(ask.questions, answer.answers or (), strict=False)
    )


# Drawing ----------------------------------------------------------------------------------------------------


def draw(ask: Ask, *, colour: bool = False, columns: int | None = None, now: datetime | None = None) -> str:
    """The whole card: who asks, what, the choices, and what happens if nobody answers, or what became of it.

    `ask.remaining` counts from `now`, the local time at which it was told.
    """
    card = Card(ask, colour=colour, columns=columns, now=now)
    blocks = [card.question(index) for index in range(len(ask.questions))]
    if ask.permission is not None:
        blocks.append(card.permission(ask.permission))
    end = card.deadline() if ask.state == "asked" else outcome_line(ask)
    blocks += [[end]] if end else []
    return "\n".join([*card.head(), "\n\n".join(map("\n".join, blocks)), card.bar()])


def wants_colour(stream: TextIO | None = None) -> bool:
    """Whether to colour what goes to the stream (standard output): NO_COLOR, then FORCE_COLOR, then whether it can."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


class _Ink:
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


class Card:
    """The parts of one ask as lines, so that a terminal can stop between them."""

    def __init__(
        self, ask: Ask, *, colour: bool, columns: int | None = None, now: datetime | None = None, heading: str = ""
    ) -> None:
        self._ask = ask
        self._ink = _Ink(colour)
        self._columns = columns or shutil.get_terminal_size().columns  # honours COLUMNS
        self._now = now or datetime.now().astimezone()
        usual = "Agent Question" if ask.permission is None else "Agent Permission"
        self._title = f"━━━ {heading or usual} ━━━"

    def bar(self) -> str:
        return self._ink.frame("━" * len(self._title))

    def head(self) -> list[str]:
        return [self._ink.frame(self._title), self._ink.quiet(self._origin(self._ask.origin))]

    def _origin(self, origin: Origin) -> str:
        session = None if origin.run and origin.run in origin.session else origin.session  # that one says nothing new
        named = {"": origin.agent, "run ": origin.run, "step ": origin.step, "session ": session}
        line = " · ".join(f"{word}{cut(name, MOST_NAME)}" for word, name in named.items() if name)
        if not origin.cwd:
            return line
        left = self._columns - _width(line) - 3
        return f"{line} · {_middle(inert(origin.cwd, keep=''), max(left, 20))}"

    def question(self, index: int) -> list[str]:
        question, total = self._ask.questions[index], len(self._ask.questions)
        lines = [f"Question {index + 1} of {total}"] if total > 1 else []
        if question.header:
            lines.append(self._ink.strong(cut(question.header, MOST_HEADER)))
        if question.question:
            lines += cut(question.question, MOST_QUESTION, keep="\n\t").split("\n")
        picked = self._picked(index)
        for number, (option, name) in enumerate(zip(question.options, names(question.options), strict=True), 1):
            lines += self._option(number, option, name, is_default=option.value in picked)
        return lines

    def _picked(self, index: int) -> tuple[str, ...]:
        """The values that silence picks."""
        fallback = self._ask.fallback
        if fallback is None or fallback.rejected or not fallback.answers:
            return ()
        return fallback.answers[index]

    def _option(self, number: int, option: Option, name: str, *, is_default: bool) -> Iterator[str]:
        says_so = option.label.rstrip().lower().endswith(RECOMMENDED)
        badges = ["recommended"] if option.recommended and not says_so else []
        badges += ["default"] if is_default else []
        line = f"  {number}. {name}" + (self._ink.warning(f" [{', '.join(badges)}]") if badges else "")
        indent = "" if self._columns < NARROW else "     "
        description = cut(option.description, MOST_DESCRIPTION, keep="\n\t")
        if description and indent and "\n" not in description:
            yield f"{line} — {description}"
        else:
            yield line
            yield from (indent + text for text in description.split("\n") if description)
        if option.preview:
            preview = cut(option.preview, MOST_PREVIEW, keep="\n\t")
            yield from (f"{indent}│ {text}" for text in preview.split("\n"))

    def permission(self, permission: Permission) -> list[str]:
        """What the agent wants, and the thing itself: verbatim and whole, however long."""
        named = [*filter(None, (permission.command, *permission.paths, permission.url))]
        text = _arguments(permission)
        if permission.kind == "plan":
            named, text = [], _plan(permission)
        return [
            self._ink.strong(_wants(permission, agent=_agent(self._ask))),
            *(f"  │ {line}" for name in named for line in self._verbatim(name)),
            *(f"  │ {line}" for line in self._diff(permission.diff or "")),
            *(["with"] if text and named else []),
            *(f"  │ {line}" for line in self._escaped(text, keep="\n\t").split("\n") if text),
            *self._notes(permission, (*named, text)),
            *self._facts(permission, (*named, text)),
        ]

    def _notes(self, permission: Permission, shown: Sequence[str]) -> Iterator[str]:
        if _changes(permission) and permission.diff is None:
            yield "The agent gave no preview of the change."
        texts = (*shown, permission.diff or "", permission.cwd or "", permission.tool, permission.summary)
        if any(map(has_hidden, texts)):
            yield self._ink.warning("⚠ Contains hidden characters")

    def _facts(self, permission: Permission, shown: Sequence[str]) -> Iterator[str]:
        if permission.cwd:
            yield f"in {''.join(self._verbatim(permission.cwd))}"
        yield f"tool {cut(permission.tool, MOST_LABEL)}"
        if permission.summary and permission.summary not in shown:
            yield cut(permission.summary, MOST_DESCRIPTION)

    def scope(self, number: int, scope: Scope) -> list[str]:
        """One way to say `always`, with exactly the patterns that it saves."""
        label = cut(scope.label or scope.id, MOST_LABEL)
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
        due, fallback = _due(self._ask, self._now), self._ask.fallback
        if due is None or fallback is None:
            return None
        near, today = due - self._now < SOON, due.date() == self._now.date()
        time = f"{due:%H:%M:%S}" if near else f"{due:%H:%M}" if today else f"{due:%Y-%m-%d %H:%M}"
        if not fallback.rejected:
            then = f"“{_said(self._ask, fallback)}” is picked"
        else:
            then = "the question is declined" if self._ask.permission is None else "it is denied"
        return f"If nobody answers by {time}, {then}."


def _due(ask: Ask, now: datetime) -> datetime | None:
    """The deadline on our clock. Clocks differ, so the desk's word for what remains counts where it gave one."""
    if ask.remaining is not None:
        return now + timedelta(seconds=ask.remaining)
    return None if ask.deadline is None else ask.deadline.astimezone(now.tzinfo)


def on_our_clock(ask: Ask) -> Ask:
    """With its deadline as this machine's clock will show it, however long the ask is kept."""
    return replace(ask, remaining=None, deadline=_due(ask, datetime.now().astimezone()))


def _plan(permission: Permission) -> str:
    """The plan as text, with what else the agent wants approved along with it."""
    plan = (permission.input or {}).get("plan")
    if not isinstance(plan, str):
        return permission.summary or _arguments(permission)
    rest = _arguments(permission, shown=(plan,))
    return f"{plan}\n\n{rest}" if rest else plan


def _arguments(permission: Permission, *, shown: Sequence[str] = ()) -> str:
    """The tool's arguments that are not shown already, as JSON. A diff shows all of an edit's."""
    if permission.diff is not None:
        return ""
    shown = (*shown, permission.command or "", permission.url or "", permission.cwd or "", permission.summary)
    rest = {key: value for key, value in (permission.input or {}).items() if value not in (*shown, *permission.paths)}
    return json.dumps(rest, indent=2, ensure_ascii=False, default=str) if rest else ""


def _changes(permission: Permission) -> bool:
    """Whether it is about changing files. Agents name their tools as they like: edit, Write, apply_patch."""
    if permission.command is not None or permission.kind == "plan":
        return False
    named = any(word in permission.tool.casefold() for word in ("edit", "write", "patch"))
    return permission.diff is not None or (named and bool(permission.paths))


def _wants(permission: Permission, *, agent: str) -> str:
    """The sentence that says what the agent wants."""
    if permission.kind == "plan":
        return f"{agent} wants its plan approved"
    if permission.command is not None:
        return f"{agent} wants to run a command"
    if _changes(permission):
        count = max(1, len(permission.paths))
        return f"{agent} wants to change {count} file{'s' if count > 1 else ''}"
    if permission.paths and "read" in permission.tool.casefold():
        first, more = cut(permission.paths[0], MOST_LABEL), len(permission.paths) - 1
        return f"{agent} wants to read {first}" + (f" and {more} more" if more else "")
    if permission.url:
        return f"{agent} wants to open {_host(permission.url)}"
    return f"{agent} wants to use {cut(permission.tool, MOST_NAME)}"


def _host(url: str) -> str:
    with suppress(ValueError):
        return cut(urlsplit(url).hostname or url, MOST_LABEL)
    return cut(url, MOST_LABEL)
