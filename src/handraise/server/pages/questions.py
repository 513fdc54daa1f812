"""The questions of an ask: each as a fieldset with native choices, and what the person answered with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import htpy
from htpy import Element, Fragment, Node, br, details, fieldset, fragment, label, legend, p, span, summary, textarea
from markupsafe import Markup

from handraise.asks import Ask, Option, Question
from handraise.asks.card import (
    MOST_DESCRIPTION,
    MOST_HEADER,
    MOST_LABEL,
    MOST_PREVIEW,
    MOST_QUESTION,
    badges_of,
    names,
    picked_by_silence,
)
from handraise.server.pages._inputs import FOLDED, button, buttons, choice, reason_field, whole_text
from handraise.server.pages._text import NOTHING, Template, cut, join_markup, show, show_line
from handraise.server.pages.typed import Problems, Typed
from handraise.text.words import Words

__all__ = ["Answers", "draw_questions", "read_answers", "send_or_decline"]

Answers = tuple[tuple[str, ...], ...]

OWN, SKIPPED = "own", ""  # the radios beside the options
ABOUT = Template('<p class="about" id="{}" dir="auto">{}</p>')
BADGE = Template(' <span class="badge">{}</span>')


def read_answers(t: Words, ask: Ask, typed: Typed) -> tuple[Answers, Problems]:
    """The values that were chosen or typed. They count only where there are no problems."""
    answers: list[tuple[str, ...]] = []
    problems: dict[int, Sequence[str]] = {}
    for index, question in enumerate(ask.questions):
        values, problem = _values(t, index, question, typed)
        answers.append(tuple(values))
        if problem:
            problems[index] = [problem]
    return tuple(answers), Problems(questions=problems)


def _values(t: Words, index: int, question: Question, typed: Typed) -> tuple[list[str], str]:
    picked, own = typed.places(f"q{index}"), typed.text(f"own{index}").strip()
    if any(place >= len(question.options) for place in picked):
        return [], t("link.press")
    values = [question.options[place].value for place in picked]
    if question.multiple:
        return [*values, own] if own else values, ""
    if OWN in typed.picked(f"q{index}"):
        return ([own], "") if own else ([], t("link.ownEmpty"))
    if values and own:
        return [], t("link.both", own=t("question.own.label"))
    return values or ([own] if own else []), ""


def draw_questions(t: Words, ask: Ask, *, typed: Typed, problems: Problems) -> list[Element]:
    return [
        _Fieldset(t, ask=ask, index=index, question=question).draw(typed, problems=problems.questions.get(index, ()))
        for index, question in enumerate(ask.questions)
    ]


def send_or_decline(t: Words, *, typed: Typed) -> list[Element]:
    reason = typed.text("reason")
    decline = details(class_="decline", open=bool(reason))[
        summary[t("action.decline")],
        reason_field(t("action.decline.reason"), text=reason),
        buttons(button("decline", t("action.decline"))),
    ]
    return [buttons(button("send", t("action.send"), kind="first")), decline]


@dataclass(frozen=True)
class _Fieldset:
    """One question of a form."""

    t: Words
    ask: Ask
    index: int
    question: Question

    def draw(self, typed: Typed, *, problems: Sequence[str]) -> Element:
        question, name = self.question, f"q{self.index}"
        hint = self.t("question.hint.multi" if question.multiple else "question.hint.single")
        problem = f"{name}-problem" if problems else None
        return fieldset(id=name, aria_describedby=problem)[
            self._legend(),
            whole_text(self.t, question.question, limit=MOST_QUESTION),
            p(class_="problem", id=problem)[_lines(problems)] if problems else None,
            p(class_="hint")[hint] if question.options else None,
            self._choices(typed),
        ]

    def _legend(self) -> Element:
        question, total = self.question, len(self.ask.questions)
        step = self.t("question.step", current=self.index + 1, total=total)
        has_header = question.header and question.header != question.question
        return legend[
            span(class_="step")[step] if total > 1 else None,
            span(class_="header", dir="auto")[show_line(cut(question.header, MOST_HEADER))] if has_header else None,
            span(class_="text", dir="auto")[show(cut(question.question, MOST_QUESTION))],
        ]

    def _choices(self, typed: Typed) -> list[Node]:
        t, question, name = self.t, self.question, f"q{self.index}"
        picked, silent = typed.picked(name), picked_by_silence(self.ask, self.index)
        options = enumerate(zip(question.options, names(question.options, t=t), strict=True))
        choices: list[Node] = [
            join_markup(
                self._option(place, option, label, checked=str(place) in picked, silent=silent)
                for place, (option, label) in options
            )
        ]
        one_of = bool(question.options) and not question.multiple
        takes_own = question.custom or not question.options
        if one_of and takes_own:
            choices.append(choice(name, OWN, t("question.own.label"), checked=OWN in picked))
        if takes_own:
            choices.append(self._own(typed.text(f"own{self.index}"), has_radio=one_of))
        if one_of and len(self.ask.questions) > 1:
            choices.append(choice(name, SKIPPED, t("question.notAnswered"), checked=picked == [SKIPPED]))
        return choices

    def _option(self, place: int, option: Option, name: str, *, checked: bool, silent: Sequence[str]) -> Markup:
        t, about = self.t, f"q{self.index}-{place}-about" if option.description else ""
        below = [
            whole_text(t, option.label, limit=MOST_LABEL),
            ABOUT(about, show(cut(option.description, MOST_DESCRIPTION))) if option.description else NOTHING,
            whole_text(t, option.description, limit=MOST_DESCRIPTION),
            FOLDED(t("link.preview"), show(cut(option.preview, MOST_PREVIEW))) if option.preview else NOTHING,
        ]
        badges = badges_of(option, is_default=option.value in silent)
        return choice(
            f"q{self.index}",
            str(place),
            show(name),
            kind="checkbox" if self.question.multiple else "radio",
            checked=checked,
            described=about,
            beside=join_markup(BADGE(t(f"question.{badge}")) for badge in badges) if badges else NOTHING,
            below=join_markup(below),
        )

    def _own(self, text: str, *, has_radio: bool) -> Fragment:
        """The field for own text. Its radio has the visible label already; a second one would be read twice."""
        name, own = self.t("question.own.label"), f"own{self.index}"
        hidden_label = name if has_radio else None
        if self.question.kind == "number":
            field: Node = htpy.input(
                id=own, name=own, inputmode="decimal", autocomplete="off", value=text, aria_label=hidden_label
            )
        else:
            # A form drops the first end of a line, so it begins with one.
            field = textarea(id=own, name=own, rows="3", dir="auto", aria_label=hidden_label)["\n", text]
        return fragment[None if has_radio else label(for_=own)[name], field]


def _lines(sentences: Sequence[str]) -> list[Node]:
    return [[br if place else None, show_line(each)] for place, each in enumerate(sentences)]
