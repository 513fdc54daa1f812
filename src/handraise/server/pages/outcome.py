"""The pages that say what became of an ask: sent, or over before the person pressed a button."""

from __future__ import annotations

from datetime import datetime

from htpy import fragment, p
from starlette.responses import HTMLResponse

from handraise.asks import Answer, Ask
from handraise.asks.card import MOST_LABEL, MOST_NAME
from handraise.server.pages._page import page
from handraise.server.pages._text import cut, cut_inert, show, word_or
from handraise.text.inert import inert
from handraise.text.words import Words
from handraise.wire import Stored

__all__ = ["over_page", "sent_page", "time_in_words"]


def sent_page(t: Words, stored: Stored) -> HTMLResponse:
    said = p(class_="said", dir="auto")[show(_outcome(t, stored.ask()))]
    return page(t, t("link.sent"), fragment[said, p[t("link.close")]])


def over_page(t: Words, stored: Stored | None, *, was_used: bool = False, status: int = 410) -> HTMLResponse:
    """Why there is nothing to answer any more: who was first, and with what."""
    if stored is None:
        return page(t, t("link.expired"), p[t("link.expired.text")], status=410)
    ask = stored.ask()
    if ask.answer is None:
        agent = cut_inert(ask.origin.agent, MOST_NAME)
        return page(t, t("link.withdrawn"), p[t("state.withdrawn", agent=agent)], status=410)
    title = t("link.used") if was_used else t("link.settled")
    return page(t, title, p(class_="said", dir="auto")[show(_outcome(t, ask))], status=status)


def _outcome(t: Words, ask: Ask) -> str:
    answer = ask.answer or Answer()
    person = inert(answer.by or "?", keep="")[:MOST_NAME]
    if answer.rejected:
        kind = "declined" if ask.permission is None else "denied"
        if answer.reason:
            return t(f"state.{kind}Why", person=person, reason=answer.reason)
        return t(f"state.{kind}", person=person)
    channel = word_or(t, f"channel.{answer.via}", answer.via or "?")
    time = time_in_words(answer.at) if answer.at is not None else ""
    return t("state.delivered", answer=_answer_in_words(t, ask, answer), person=person, channel=channel, time=time)


def _answer_in_words(t: Words, ask: Ask, answer: Answer) -> str:
    """An answer in the words that were offered."""
    if ask.permission is not None:
        scope = next((each for each in ask.permission.scopes if each.id == answer.scope), None)
        name = word_or(t, f"reply.{answer.reply}", answer.reply or "")
        return f"{name} ({scope.label or scope.id})" if scope is not None else name
    return "; ".join(
        ", ".join(cut(question.label_of(value), MOST_LABEL) for value in values) or t("question.notAnswered")
        for question, values in zip(ask.questions, answer.answers or (), strict=False)
    )


def time_in_words(time: datetime) -> str:
    """Nobody told us where the reader is, so the zone is named."""
    return f"{time:%Y-%m-%d %H:%M} UTC"
