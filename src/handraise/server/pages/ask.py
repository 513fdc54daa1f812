"""One ask as a form: its frame, and what the person says with it."""

from __future__ import annotations

from htpy import Element, Node, a, div, form, li, p, span, ul
from htpy import button as plain_button
from starlette.responses import HTMLResponse

from handraise.asks import Answer, Ask
from handraise.asks.card import MOST_LABEL, to_card
from handraise.server.pages._inputs import button
from handraise.server.pages._page import page
from handraise.server.pages._text import between, cut, cut_inert, show_line
from handraise.server.pages.outcome import time_in_words
from handraise.server.pages.permission import PermissionForm
from handraise.server.pages.questions import draw_questions, read_answers, send_or_decline
from handraise.server.pages.typed import Problems, Typed
from handraise.text.words import Words
from handraise.wire import Stored

__all__ = ["AskForm"]


class AskForm:
    """The form of one ask, for one reader."""

    def __init__(self, t: Words, stored: Stored) -> None:
        self._t = t
        self._ask = stored.ask()
        self._card = to_card(self._ask)
        permission = self._ask.permission
        self._permission = None if permission is None else PermissionForm(t, self._card, permission)

    @property
    def may_allow(self) -> bool:
        return self._permission is None or self._permission.refusal is None

    def read(self, typed: Typed) -> tuple[Answer | None, Problems]:
        """What the person says; None and the problems where that is not clear yet."""
        reason = typed.text("reason").strip() or None
        if typed.button in ("decline", "deny"):
            return Answer(rejected=True, reason=reason), Problems()
        if typed.button == "send" and self._permission is None:
            answers, problems = read_answers(self._t, self._ask, typed)
            return (None, problems) if problems else (Answer(answers=answers), Problems())
        if typed.button == "allow" and self._permission is not None:
            way = self._permission.read_reply(typed)
            if way is None:
                return None, Problems(page=[self._t("link.pickScope")])
            return Answer(reply=way[0], scope=way[1], reason=reason), Problems()
        return None, Problems(page=[self._t("link.press")])

    def draw(
        self, typed: Typed, *, problems: Problems | None = None, notice: str = "", status: int = 200
    ) -> HTMLResponse:
        problems = problems or Problems()
        content: list[Node] = [
            _origin(self._ask),
            self._summary(problems) if problems else None,
            p(role="status", class_="notice")[notice] if notice else None,
            form(method="post", accept_charset="utf-8")[
                # Enter presses the first button of a form. This one does nothing, so nothing is answered by accident.
                plain_button(disabled=True, hidden=True),
                self._inside(typed, problems=problems),
            ],
        ]
        title = self._card.heading.say(self._t, show=cut_inert)
        return page(self._t, title, content, status=status, agent_title=True)

    def _inside(self, typed: Typed, *, problems: Problems) -> list[Node]:
        if self._permission is not None:
            return self._permission.draw(typed, deadline=self._deadline())
        questions = draw_questions(self._t, self._ask, typed=typed, problems=problems)
        return [questions, self._deadline(), send_or_decline(self._t, typed=typed)]

    def _summary(self, problems: Problems) -> Element:
        t, total = self._t, len(self._ask.questions)
        lines = [li[show_line(each)] for each in problems.page]
        for index, sentences in problems.questions.items():
            name = t("question.step", current=index + 1, total=total)
            lines += [li[a(href=f"#q{index}")[name], ": ", show_line(each)] for each in sentences]
        return div(role="alert", class_="problem")[p[t("link.fix")], ul[lines]]

    def _deadline(self) -> Element | None:
        silence = self._card.silence
        if silence is None:
            return None
        choice = silence.choice(show=lambda label: cut_inert(label, MOST_LABEL)) or self._t("question.notAnswered")
        sentence = silence.say(self._t, time=time_in_words(silence.at), choice=choice)
        return p(class_="deadline")[sentence, " ", button("wait", self._t("action.keepWaiting"))]


def _origin(ask: Ask) -> Element | None:
    """Where it comes from; who asks is in the title."""
    origin = ask.origin
    named = [each for each in (origin.run, origin.step, origin.machine, origin.cwd) if each]
    parts = [span(dir="auto")[show_line(cut(each, MOST_LABEL))] for each in named]
    return p(class_="origin")[between(" · ", parts)] if parts else None
