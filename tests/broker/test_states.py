"""The states of an ask: what each change writes, and on which condition. Nothing here needs a store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handraise.asks import Answer
from handraise.broker import states
from handraise.errors import AlreadyAnswered, AskWithdrawn
from handraise.policies import Forward, Verdict
from handraise.stores import NO_EXTRA_WRITES, Change, NewAsk
from handraise.testing import an_ask
from handraise.wire import Stored, answer_text, content_text

NOW = 1_000_000
YES, NO = Answer(answers=(("SQLite",),), by="ana"), Answer(rejected=True, reason="not now", by="ben")


def opened(verdict: Verdict) -> NewAsk:
    ask = an_ask()
    given: dict[str, Any] = {"judgement": None, "owner": "t1", "worker": None, "base": None}
    return states.open_with(verdict, ask, at=NOW, content=content_text(ask), **given)


def stored(**changes: Any) -> Stored:
    columns = opened(Forward())._asdict()
    given = {name: columns[name] for name in Stored._fields if name in columns}
    rest = dict.fromkeys(("delivered_at", "delivery_error", "withdrawn_reason"))
    return Stored(**{**given, **rest, "seq": 1, "openings": 1, **changes})


def test_an_ask_that_policy_answers_is_closed_in_the_write_that_opens_it() -> None:
    row = opened(YES)
    assert (row.state, row.events, row.deadline) == ("answered", ("asked", "answered"), None)
    assert opened(NO).state == "rejected"


def test_an_ask_that_waits_keeps_its_deadline_and_what_happens_then() -> None:
    row = opened(Forward(timeout=2.5, then=YES))
    assert (row.state, row.timeout, row.deadline) == ("asked", 2500, NOW + 2500)
    assert json.loads(row.fallback or "")["answers"] == [["SQLite"]]
    assert opened(Forward()).deadline is None


@pytest.mark.parametrize(
    ("change", "event"),
    [
        (states.close(YES, at=NOW, also_write=NO_EXTRA_WRITES), "answered"),
        (states.close(NO, at=NOW, also_write=NO_EXTRA_WRITES), "rejected"),
        (states.withdraw("gone", at=NOW, source=None, also_write=NO_EXTRA_WRITES), "withdrawn"),
        (states.alarm(at=NOW), "unseen"),
    ],
)
def test_only_an_open_ask_is_closed_withdrawn_or_told_as_unseen(change: Change, event: str) -> None:
    assert (change.states, change.event, change.at) == (("asked",), event, NOW)


def test_only_an_answer_that_was_not_taken_yet_is_delivered() -> None:
    taken, failed = states.deliver(at=NOW, error=None), states.deliver(at=NOW, error="the process had died")
    for change in (taken, failed):
        assert (change.states, change.empty) == (("answered", "rejected"), ("delivered_at",))
    assert taken.set == {"delivered_at": NOW, "delivery_error": None}
    assert failed.set == {"delivery_error": "the process had died"}
    assert states.nobody_came(at=NOW).empty == ("delivered_at", "delivery_error")


def test_a_deadline_moves_from_the_later_of_now_and_itself() -> None:
    early, late = stored(timeout=500, deadline=NOW + 100), stored(timeout=500, deadline=NOW - 100)
    for waiting, moved in ((early, NOW + 600), (late, NOW + 500)):
        change = states.move_deadline(waiting, at=NOW, source=None)
        assert change is not None and change.set == {"deadline": moved}
    assert states.move_deadline(stored(), at=NOW, source=None) is None
    assert states.move_deadline(early._replace(state="withdrawn"), at=NOW, source=None) is None


def test_what_nobody_could_be_shown_gets_its_fallback_and_the_reason() -> None:
    waiting = stored(fallback=answer_text(Answer(rejected=True, reason="time is up", by="policy:timeout")))
    answer = states.unseen_answer(waiting, trouble="the place is away")
    assert (answer.rejected, answer.by) == (True, states.BY_UNSEEN)
    assert answer.reason == "nobody could be shown this (the place is away)"


def test_the_refusal_names_who_was_first() -> None:
    closed = stored(state="answered", answer=answer_text(YES, at=NOW))
    refused = states.refusal(closed)
    assert isinstance(refused, AlreadyAnswered) and "by ana" in str(refused)
    assert isinstance(states.refusal(stored(state="withdrawn")), AskWithdrawn)


@pytest.mark.parametrize(
    ("changes", "is_over"),
    [
        ({"state": "asked"}, False),
        ({"state": "answered"}, False),
        ({"state": "answered", "delivered_at": NOW}, True),
        ({"state": "withdrawn"}, True),
    ],
)
def test_an_ask_is_over_when_nobody_waits_to_be_told(changes: dict[str, Any], is_over: bool) -> None:
    assert states.is_over(stored(**changes)) is is_over
