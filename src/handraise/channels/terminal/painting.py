"""A card of full mode as lines of text: what was asked, what is filled in, and what the keys are. Pure.

Everything an agent wrote is made inert before it is measured; a colour never says anything that the words do not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from handraise.asks import Ask, Option, Permission, Question, Scope
from handraise.asks.card import (
    MOST_DESCRIPTION,
    MOST_HEADER,
    MOST_LABEL,
    MOST_NAME,
    MOST_QUESTION,
    badges_of,
    cut,
    names,
    picked_by_silence,
    silence_of,
)
from handraise.asks.changes import changed_files
from handraise.channels.terminal.drawing import NARROW, CardLines, Ink, agent_of, card_of, middle, said, width
from handraise.channels.terminal.filling import Field, Form, key_help, key_hints
from handraise.channels.terminal.reading import Problem, takes_own_text
from handraise.text.inert import inert
from handraise.text.words import Words

__all__ = ["Painted", "Painter", "height", "title_line"]

SOON = 60  # seconds under which they are counted
MOST_PREVIEW_LINES = 12  # of a preview, on the card
LEAST_CHIPS = 24  # cells that the steps get beside the header
_COLOUR = re.compile(r"\x1b\[\d+m")


@dataclass(slots=True)
class Painted:
    """`top` is what is asked, `bottom` what stands under the text field. `marked` is the line to keep in sight."""

    top: list[str] = field(default_factory=list)
    bottom: list[str] = field(default_factory=list)
    label: str | None = None  # before the text field, where one is open
    marked: int = 0


def height(lines: Sequence[str], *, columns: int) -> int:
    """How many rows of a terminal they fill."""
    return sum(max(1, math.ceil(width(_COLOUR.sub("", line)) / columns)) for line in lines)


def title_line(ask: Ask, *, colour: bool, columns: int, heading: str = "", t: Words) -> str:
    """The first line of what is left of a card: who asked, and what."""
    about = " ".join(dict.fromkeys(cut(each, MOST_LABEL, t=t) for each in _about(ask, t=t) if each))
    whole = f"{agent_of(ask, t=t)}: {heading + ': ' if heading else ''}{about}"
    return f"{Ink(colour).warning('?')} {_shortened(whole, columns - 2)}"


def _about(ask: Ask, *, t: Words) -> Iterator[str]:
    if ask.permission is not None:
        heading = card_of(ask).heading
        says = replace(heading, texts={**heading.texts, "agent": ""})
        yield says.say(t, show=lambda text, limit: cut(text, limit, t=t)).strip()
        yield ask.title
    for question in ask.questions[:1]:
        yield question.header
        yield question.question
    if len(ask.questions) > 1:
        yield t("terminal.andMore", count=len(ask.questions) - 1)


def _shortened(text: str, cells: int) -> str:
    if width(text) <= cells:
        return text
    shown = ""
    for character in text:
        if width(shown + character) > cells - 1:
            break
        shown += character
    return f"{shown}…"


def _wrapped(text: str, cells: int) -> Iterator[str]:
    """Broken between words; what is longer than a line is left to the terminal."""
    for paragraph in text.replace("\t", "    ").split("\n"):
        line, used = "", 0
        for word in re.split(r"(?<=\S)(?= )", paragraph):
            size = width(word)
            if line and used + size > cells:
                yield line
                word = word.lstrip(" ")
                line, used = word, width(word)
            else:
                line, used = line + word, used + size
        yield line


class Painter:
    """One card as it is now. `waiting` counts this one too; `rows` is the height of the terminal."""

    def __init__(
        self,
        form: Form,
        *,
        columns: int,
        rows: int,
        colour: bool,
        now: datetime,
        waiting: int = 1,
        heading: str = "",
        is_above: bool = False,
        is_sending: bool = False,
    ) -> None:
        """`is_above` says that what a permission is about was printed above the card, since it did not fit."""
        self._form = form
        self._t = form.t
        self._ask = form.ask
        self._columns = max(10, columns)
        self._rows = rows
        self._ink = Ink(colour)
        self._now = now
        self._waiting = waiting
        self._heading = heading
        self._is_above = is_above
        self._is_sending = is_sending
        self._card = CardLines(
            form.ask,
            t=form.t,
            colour=colour,
            columns=max(20, self._columns - 20),
            now=now,
            card=form.card,
            brief=False,
        )
        self._is_narrow = columns < NARROW

    def paint(self) -> Painted:
        painted = Painted(top=[self._rule()])
        if self._ask.permission is not None:
            painted.top += self.object(self._ask.permission)
            painted.marked = len(painted.top)
            self._permission(painted)
        elif self._form.is_review:
            painted.top += self._head(self._t("question.review"))
            self._review(painted)
        else:
            self._question(painted, self._ask.questions[self._form.at])
        if self._form.field is not None:
            painted.label = self._field_label(self._form.field)
        painted.bottom += self._foot()
        return painted

    def _field_label(self, field: Field) -> str:
        match field:
            case "own":
                return self._t("question.own.label")
            case "note":
                return self._t("question.note")
            case "reason":
                return self._t("action.decline.reason")

    # The parts ----------------------------------------------------------------------------------------------

    def _cut(self, text: str, limit: int, *, keep: str = "") -> str:
        return cut(text, limit, keep=keep, t=self._t)

    def _rule(self) -> str:
        count = f" {self._t('inbox.waiting', count=self._waiting)} ──"
        origin = " · ".join(filter(None, (self._heading, self._card.origin())))
        origin = middle(origin, max(1, self._columns - width(count) - 5))
        line = "─" * max(1, self._columns - width(origin) - width(count) - 4)
        return self._ink.frame("── ") + origin + self._ink.frame(f" {line}{count}")

    def _head(self, header: str) -> list[str]:
        """The agent's short label, and where we are among several questions."""
        header = self._cut(header, MOST_HEADER)
        shown = f"  {self._ink.strong(header)}" if header else ""
        if not self._form.is_several:
            return [shown] if shown else []
        chips = self._chips()
        room = self._columns - width(header) - 4
        gap = " " * max(1, room - width(chips) + 1)
        if width(chips) <= room:
            return [f"{shown or '  '}{gap}{self._ink.quiet(chips)}"]
        strip = chips if width(chips) <= self._columns - 2 else self._place()
        return [*([shown] if shown else []), f"  {self._ink.quiet(strip)}"]

    def _place(self) -> str:
        """Where we are, where there is no room for more."""
        if self._form.is_review:
            return self._t("question.review")
        return self._t("question.step", current=self._form.at + 1, total=len(self._ask.questions))

    def _chips(self) -> str:
        questions = self._ask.questions
        called = [
            _shortened(
                self._cut(question.header or self._t("terminal.question", number=number), MOST_HEADER), LEAST_CHIPS
            )
            for number, question in enumerate(questions, 1)
        ]
        marks = ["✓" if self._form.is_answered(index) else "○" for index in range(len(questions))]
        named = [*zip(marks, called, strict=True), ("○", self._t("question.review"))]
        return " ".join(f"{'●' if index == self._form.at else mark} {name}" for index, (mark, name) in enumerate(named))

    def _text(self, text: str, *, indent: str = "  ") -> list[str]:
        return [indent + line for line in _wrapped(text, self._columns - len(indent))]

    def _question(self, painted: Painted, question: Question) -> None:
        filled, index = self._form.filled[self._form.at], self._form.at
        painted.top += self._head(question.header)
        if question.question:
            painted.top += self._text(self._cut(question.question, MOST_QUESTION, keep="\n\t"))
        painted.top.append("")
        shown = names(question.options, t=self._t)
        widest = min(24, max(map(width, shown), default=0))
        picked = picked_by_silence(self._ask, index)
        for row, (option, name) in enumerate(zip(question.options, shown, strict=True)):
            is_marked = row == filled.marked and self._form.field is None
            if is_marked:
                painted.marked = len(painted.top)
            badges = [self._t(f"question.{badge}") for badge in badges_of(option, is_default=option.value in picked)]
            is_chosen = option.value in filled.chosen
            if question.multiple:
                name = f"[{'x' if is_chosen else ' '}] {name}"
            elif is_chosen:
                badges.insert(0, self._t("terminal.chosen"))
            painted.top += self._row(row, name, badges=badges, is_marked=is_marked, widest=widest)
            painted.top += self._about_option(option, is_marked=row == filled.marked)
        if takes_own_text(question):
            row = len(question.options)
            is_marked = row == filled.marked or self._form.field == "own"
            if is_marked:
                painted.marked = len(painted.top)
            own = _shortened(inert(filled.own.strip(), keep=""), max(8, self._columns - 26))
            is_typed = own and self._form.field != "own"
            name = f"{self._t('question.own.label')}: {own}" if is_typed else self._t("terminal.own")
            painted.top += self._row(row, name, badges=[], is_marked=is_marked, widest=widest)
        if filled.note and self._form.field != "note":
            painted.top += ["", *self._note(filled.note)]

    def _note(self, text: str, *, indent: str = "  ") -> list[str]:
        return self._text(f"{self._t('question.note')}: {inert(text, keep='')}", indent=indent)

    def _row(self, row: int, name: str, *, badges: Sequence[str], is_marked: bool, widest: int) -> list[str]:
        number = str(row + 1) if not self._form.card.needs_second_press else " "
        label = self._ink.strong(name) if is_marked else name
        gap = " " * (2 + max(0, widest - width(name))) if badges else ""
        return [f"  {'›' if is_marked else ' '} {number:<2} {label}{gap}{self._ink.warning(' · '.join(badges))}"]

    def _about_option(self, option: Option, *, is_marked: bool) -> list[str]:
        indent = "" if self._is_narrow else "       "
        lines: list[str] = []
        if option.description:
            described = self._cut(option.description, MOST_DESCRIPTION, keep="\n\t")
            lines += [self._ink.quiet(line) for line in self._text(described, indent=indent)]
        if option.preview and is_marked and self._form.shows_previews:
            whole = self.preview(option.preview)
            most = self._most_preview
            lines += [indent + line for line in whole[:most]]
            if len(whole) > most:
                lines.append(indent + self._t("terminal.moreLines", count=len(whole) - most))
        return lines

    @property
    def _most_preview(self) -> int:
        return max(3, min(MOST_PREVIEW_LINES, self._rows // 3))

    def cuts(self, preview: str) -> bool:
        """Whether the card has room for a part of it only."""
        return len(self.preview(preview)) > self._most_preview

    def _review(self, painted: Painted) -> None:
        painted.top.append("")
        for index, question in enumerate(self._ask.questions):
            values = self._form.values(index)
            given = (
                []
                if isinstance(values, Problem)
                else [self._cut(question.label_of(value), MOST_LABEL) for value in values]
            )
            name = self._cut(question.title, MOST_HEADER)
            answered = ", ".join(given) or self._t("terminal.said.nothing")
            painted.top += self._text(f"{index + 1:<2} {name}: {answered}", indent="    ")
            if note := self._form.filled[index].note:
                painted.top += self._note(note, indent="       ")
        done = sum(self._form.is_answered(index) for index in range(len(self._ask.questions)))
        total = len(self._ask.questions)
        send = self._t("action.send") if done == total else self._t("action.sendPartial", done=done, total=total)
        painted.top += ["", f"  › {self._ink.strong(send)}"]
        painted.marked = len(painted.top) - 1

    # Permissions --------------------------------------------------------------------------------------------

    def object(self, permission: Permission) -> list[str]:
        """The sentence, and what it is about: whole, and before anything can be pressed."""
        sentence = [f"  {self._ink.strong(self._card.wants())}"]
        if self._is_above:
            return [*sentence, f"  {self._t('terminal.isAbove')}"]
        return [*sentence, *self.whole(permission, with_diff=not self._form.is_folded)]

    def whole(self, permission: Permission, *, with_diff: bool = True) -> list[str]:
        """All of it. A diff begins with its files."""
        files = changed_files(permission.diff or "")
        lines = [
            f"  {self._file(name, permission)}  {self._ink.good(f'+{more}')} {self._ink.bad(f'-{less}')}"
            for name, more, less in files
        ]
        lines += self._card.object(with_diff=with_diff)
        if files and not with_diff:
            changed = sum(more + less for _, more, less in files)
            lines.append(f"  {self._t('terminal.changedLines', count=changed)}")
        return [line.replace("\t", "    ") for line in lines]

    def _file(self, name: str, permission: Permission) -> str:
        return self._cut(name or next(iter(permission.paths), "") or self._t("terminal.change"), MOST_LABEL)

    def preview(self, text: str) -> list[str]:
        return [line.replace("\t", "    ") for line in self._card.preview(text)]

    def _permission(self, painted: Painted) -> None:
        painted.top += [f"  {line}" for line in (*self._card.facts(), *self._card.warnings())]
        painted.top.append("")
        if self._form.panel is not None:
            self._panel(painted)
        elif self._form.armed is None:
            for row, action in enumerate(self._form.actions):
                if row == self._form.marked:
                    painted.marked = len(painted.top)
                label = self._cut(action.label, MOST_NAME)
                painted.top += self._row(
                    row, label, badges=[action.key] if action.key else [], is_marked=row == self._form.marked, widest=14
                )
        if self._form.armed is not None:
            painted.top.append(f"  › {self._ink.strong(self._t('perm.risky.confirm'))}")
            painted.marked = len(painted.top) - 1
        elif self._form.panel is None:
            painted.marked = len(painted.top) - 1

    def _panel(self, painted: Painted) -> None:
        panel = self._form.panel
        assert panel is not None
        scope = panel.scope
        painted.top += self._text(self._remembers(scope))
        for row, (number, pattern) in enumerate(panel.rows()):
            is_marked = row == panel.marked
            if is_marked:
                painted.marked = len(painted.top)
            if pattern is None:
                told = panel.scopes[number]
                label = self._cut(told.label or told.id, MOST_LABEL)
                badges = [self._t("terminal.chosen")] if told is scope else []
                painted.top += self._row(number, label, badges=badges, is_marked=is_marked, widest=14)
                continue
            kept = " " if (number, pattern) in panel.removed else "x"
            lines = self._card.pattern(panel.scopes[number].patterns[pattern])
            painted.top.append(f"  {'›' if is_marked else ' '}    [{kept}] {lines[0]}")
            painted.top += [f"           {line}" for line in lines[1:]]

    def _remembers(self, scope: Scope | None) -> str:
        """Who remembers what, where more is allowed."""
        t, agent = self._t, agent_of(self._ask, t=self._t)
        if scope is None:
            return t("perm.more.unsaid", agent=agent)
        if scope.by_desk:
            return t("terminal.more.desk") if scope.patterns else t("terminal.more.deskNoPatterns")
        if scope.patterns:
            return t("terminal.more.patterns", agent=agent)
        return t("terminal.more.noPatterns", agent=agent)

    # The foot -----------------------------------------------------------------------------------------------

    def _foot(self) -> list[str]:
        lines = [""]
        if self._form.problem:
            lines += [self._ink.warning(line) for line in self._text(inert(self._form.problem))]
        if deadline := self.deadline():
            lines.append(self._beside(deadline, self._t("terminal.hint.wait")))
        if self._is_sending:
            return [*lines, f"  {self._t('state.sending')}"]
        if self._form.helps:
            return [*lines, *key_help(self._ask, t=self._t).split("\n")]
        return [*lines, *(self._ink.quiet(line) for line in self._hints(key_hints(self._form)))]

    def _beside(self, left: str, right: str) -> str:
        gap = self._columns - width(left) - width(right) - 4
        return f"  {left}{' ' * gap}{self._ink.quiet(right)}" if gap > 1 else f"  {left} · {right}"

    def _hints(self, hints: Sequence[str]) -> Iterator[str]:
        line = ""
        for hint in hints:
            if line and width(line) + width(hint) + 5 > self._columns:
                yield f"  {line}"
                line = hint
            else:
                line = f"{line} · {hint}" if line else hint
        yield f"  {line}"

    @property
    def is_overdue(self) -> bool:
        silence = silence_of(self._ask, now=self._now)
        return silence is not None and silence.at <= self._now

    def deadline(self) -> str | None:
        """What silence does, and when; at the end it is counted, and then waited for."""
        silence, fallback = silence_of(self._ask, now=self._now), self._ask.fallback
        if silence is None or fallback is None:
            return None
        due, then = silence.at, said(self._ask, fallback, t=self._t)
        then = then if fallback.rejected else _shortened(then, max(10, self._columns // 2))
        left = (due - self._now).total_seconds()
        if left <= 0:
            return self._t("terminal.due.declining") if fallback.rejected else self._t("deadline.picking", choice=then)
        if left < SOON:
            return self._t("terminal.due.in", seconds=math.ceil(left), then=then)
        on = f"{due:%H:%M}" if due.date() == self._now.date() else f"{due:%Y-%m-%d %H:%M}"
        return self._t("terminal.due.at", time=on, then=then)
