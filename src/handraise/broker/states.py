"""The states of an ask: every change of its state, each as one conditional write. No I/O; `Broker` carries them out.

    asked ── answer ──▶ answered ┐
      │ ├─── reject ──▶ rejected ┴─ delivered, or why not; after a minute of silence: nobody came for it
      │ └── deadline ─▶ answered or rejected, as the verdict said when it was asked
      └─── withdraw ──▶ withdrawn ── asked again ──▶ asked

Each arrow is one conditional write, which decides every race: two people, a person against the clock, a person against
the agent's own terminal. Timers and waiters hold no truth; losing all of them loses nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from handraise.asks import NOBODY_CAME, Answer, Ask, Judgement
from handraise.asks.card import to_card
from handraise.errors import AlreadyAnswered, AskWithdrawn, HandraiseError
from handraise.policies import Forward, Verdict
from handraise.stores import AlsoWrite, Change, NewAsk, writable
from handraise.wire import Stored, answer_text, judgement_text

__all__ = [
    "BY_AGENT",
    "BY_UNSEEN",
    "SETTLED",
    "alarm",
    "already_answered",
    "close",
    "deliver",
    "fallback_of",
    "is_over",
    "move_deadline",
    "nobody_came",
    "open_with",
    "refusal",
    "unseen_answer",
    "withdraw",
]

SETTLED = frozenset({"answered", "rejected", "withdrawn"})
BY_UNSEEN = "policy:unseen"  # who gave an answer because nobody could be asked
BY_AGENT = "agent"  # who gave an answer that an agent learned without us


# What is written ----------------------------------------------------------------------------------------------


def open_with(
    verdict: Verdict,
    ask: Ask,
    *,
    at: int,
    content: str,
    judgement: Judgement | None,
    owner: str,
    worker: str | None,
    base: str | None,
) -> NewAsk:
    """The row of a new ask with policy's verdict in it. Nobody evaluates policy again for it."""
    row = NewAsk(
        id=ask.id,
        base=base,
        owner=owner,
        worker=worker,
        session=ask.origin.session,
        run=ask.origin.run,
        agent=ask.origin.agent,
        content=content,
        state="asked",
        asked_at=at,
        timeout=None,
        deadline=None,
        fallback=None,
        answer=None,
        judgement=None if judgement is None else judgement_text(judgement, card=to_card(ask, judgement)),
        events=("asked",),
    )
    if isinstance(verdict, Forward):
        if verdict.timeout is None or verdict.then is None:
            return row
        timeout = round(verdict.timeout * 1000)
        return row._replace(timeout=timeout, deadline=at + timeout, fallback=answer_text(verdict.then))
    state, told = _state_after(verdict)
    return row._replace(state=state, answer=answer_text(verdict, at=at), events=("asked", told))


def close(
    answer: Answer, *, at: int, due: int | None = None, source: str | None = None, also_write: AlsoWrite
) -> Change:
    """Answered or rejected. With `due` only where the deadline is at or before that."""
    state, told = _state_after(answer)
    values = {"state": state, "answer": answer_text(answer, at=at)}
    return Change(states=("asked",), set=values, event=told, at=at, due=due, source=source, also_write=also_write)


def withdraw(reason: str | None, *, at: int, source: str | None, also_write: AlsoWrite) -> Change:
    values = {"state": "withdrawn", "withdrawn_reason": writable(reason)}
    return Change(states=("asked",), set=values, event="withdrawn", at=at, source=source, also_write=also_write)


def move_deadline(stored: Stored, *, at: int, source: str | None) -> Change | None:
    """Later by the time that the ask was given. None where there is no deadline to move."""
    if stored.state != "asked" or stored.deadline is None or stored.timeout is None:
        return None
    values = {"deadline": max(stored.deadline, at) + stored.timeout}
    return Change(states=("asked",), set=values, event="deadline_moved", at=at, source=source)


def alarm(*, at: int) -> Change:
    """It goes on waiting, and it is told that nobody could be shown it."""
    return Change(states=("asked",), set={"state": "asked"}, event="unseen", at=at)


def deliver(*, at: int, error: str | None) -> Change:
    """The agent took the answer, or could not."""
    values = {"delivered_at": at, "delivery_error": None} if error is None else {"delivery_error": writable(error)}
    return Change(states=("answered", "rejected"), empty=("delivered_at",), set=values, event="delivered", at=at)


def nobody_came(*, at: int) -> Change:
    """Nobody took the answer in time. An agent that comes later still gets it."""
    return deliver(at=at, error=NOBODY_CAME)._replace(empty=("delivered_at", "delivery_error"))


def _state_after(answer: Answer) -> tuple[Any, str]:
    """The state an answer leads to, and the event that tells it."""
    return ("rejected", "rejected") if answer.rejected else ("answered", "answered")


# What is read -------------------------------------------------------------------------------------------------


def fallback_of(stored: Stored) -> Answer:
    """What happens when nobody answers, for an ask that has such an answer."""
    fallback = stored._replace(answer=stored.fallback).settled()
    assert fallback is not None
    return fallback


def unseen_answer(stored: Stored, *, trouble: str) -> Answer:
    """The fallback, given at once because nobody could be shown the ask."""
    fallback, reason = fallback_of(stored), f"nobody could be shown this ({trouble})"
    return replace(
        fallback,
        by=BY_UNSEEN,
        reason=reason if fallback.rejected else None,
        why=(reason, *fallback.why[1:]),
    )


def is_over(stored: Stored) -> bool:
    """Settled, and nobody still waits to be told."""
    return stored.state == "withdrawn" or (stored.state != "asked" and stored.delivered_at is not None)


def refusal(stored: Stored) -> HandraiseError:
    """Why an ask that is settled takes no answer."""
    if stored.state == "withdrawn":
        return AskWithdrawn(stored.id, reason=stored.withdrawn_reason)
    return already_answered(stored)


def already_answered(stored: Stored) -> AlreadyAnswered:
    winner = stored.settled()
    assert winner is not None
    assert stored.answer is not None
    verb = "rejected" if winner.rejected else "answered"
    told = json.loads(stored.answer)
    return AlreadyAnswered(
        f"ask {stored.id!r} was already {verb} by {winner.by or 'somebody'}"
        + (f" in {winner.via}" if winner.via else ""),
        id=stored.id,
        by=winner.by,
        via=winner.via,
        at=told["at"],
        answer=told,
    )
