"""The trace of a run: merged by time, read on from anywhere, and as lines that nobody's text can break."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from handraise.asks import Answer, Ask, AutoRule, Option, Origin, Permission, Question
from handraise.policies import auto
from handraise.wire import Stored, StoredEvent, answer_text, content_text, time_text
from handraise.workflow.journal import Event, event_id
from handraise.workflow.trace import _LOOKS, TYPES, Position, line, merged, told, values

RUN = "run_1"
QUESTION = Question("Which database?", (Option("SQLite"), Option("Postgres")), header="Database")
ORIGIN = Origin(agent="opencode", session="ses_1", run=RUN, step="plan")


def own(number: int, type: str, at: int, *, step: str | None = "plan", **data: Any) -> Event:
    return Event(id=event_id(RUN, number), run=RUN, type=type, step=step, at=at, data=data)


def of_ask(cursor: int, type: str, at: int, *, ask: Ask | None = None, **changes: Any) -> StoredEvent:
    ask = ask or Ask(id="que_1", questions=(QUESTION,), origin=ORIGIN)
    stored = Stored(
        seq=1,
        id=ask.id,
        owner="",
        worker=None,
        session=ask.origin.session,
        run=RUN,
        agent=ask.origin.agent,
        content=content_text(ask),
        openings=1,
        state="asked",
        asked_at=at,
        timeout=None,
        deadline=None,
        fallback=None,
        answer=None,
        delivered_at=None,
        delivery_error=None,
        withdrawn_reason=None,
    )
    return StoredEvent(cursor, type, at, stored._replace(**changes))


def answered(cursor: int, at: int, answer: Answer, *, ask: Ask | None = None) -> StoredEvent:
    state = "rejected" if answer.rejected else "answered"
    return of_ask(cursor, state, at, ask=ask, state=state, answer=answer_text(answer, at=at))


def shape(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def test_a_step_begins_asks_and_ends_also_within_one_millisecond() -> None:
    events, position = merged(
        [own(1, "step_started", 5), own(2, "step_completed", 5)],
        [of_ask(7, "asked", 5), answered(8, 5, Answer(answers=(("SQLite",),), by="ana"))],
        after=Position(),
        limit=100,
    )
    assert shape(events) == ["step_started", "agent_question_asked", "agent_question_answered", "step_completed"]
    assert position == Position(2, 8)


def test_what_was_written_late_is_not_missed() -> None:
    first, position = merged([], [of_ask(7, "asked", 50)], after=Position(), limit=100)
    late, position = merged([own(1, "step_started", 40)], [], after=position, limit=100)
    assert shape(first + late) == ["agent_question_asked", "step_started"]
    assert str(position) == "1-7"


@given(
    some.lists(some.integers(0, 20), max_size=12), some.lists(some.integers(0, 20), max_size=12), some.integers(1, 5)
)
def test_page_by_page_is_the_same_as_at_once(own_times: list[int], ask_times: list[int], limit: int) -> None:
    rows = [own(number, "step_failed", at) for number, at in enumerate(own_times, 1)]
    asks = [of_ask(cursor, "asked", at) for cursor, at in enumerate(ask_times, 1)]
    whole, end = merged(rows, asks, after=Position(), limit=1000)
    assert len(whole) == len(rows) + len(asks)
    paged: list[dict[str, Any]] = []
    position = Position()
    for _ in range(len(whole) + 1):
        own_rest, ask_rest = rows[position.number :][:limit], asks[position.cursor :][:limit]
        page, position = merged(own_rest, ask_rest, after=position, limit=limit)
        assert len(page) <= limit
        paged += page
    assert (paged, position) == (whole, end)


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "a-1", "1-1-1", "²-1", "1-" + "9" * 19, "+1-1", " 1-1"])
def test_what_is_no_position_is_none(text: str) -> None:
    assert Position.parse(text) is None
    assert Position.parse("12-345") == Position(12, 345)


def test_an_agents_step_begins_with_its_session() -> None:
    row = own(2, "step_started", 5, attempt=1, kind="agent", agent="codex", session_id="ses_1")
    started, session = told(row)
    assert (started["type"], started["kind"], session["type"]) == ("step_started", "agent", "session_started")
    assert (session["session_id"], session["agent"], session["step_id"]) == ("ses_1", "codex", "plan")
    assert session["id"] != started["id"]
    assert shape(told(own(3, "step_started", 5, attempt=1, kind="shell"))) == ["step_started"]


def test_question_events_have_the_names_and_fields_of_seed_000() -> None:
    (asked,) = told(of_ask(7, "asked", 1_700_000_000_000))
    assert asked == {
        "id": "run_1-ask-000000000007",
        "type": "agent_question_asked",
        "run_id": RUN,
        "step_id": "plan",
        "session_id": "ses_1",
        "question": {
            "id": "que_1",
            "session_id": "ses_1",
            "step_id": "plan",
            "questions": [
                {
                    "question": "Which database?",
                    "header": "Database",
                    "options": [{"label": "SQLite", "description": ""}, {"label": "Postgres", "description": ""}],
                    "multiple": False,
                    "custom": True,
                }
            ],
            "asked_at": "2023-11-14T22:13:20.000Z",
        },
        "timestamp": "2023-11-14T22:13:20.000Z",
    }
    (event,) = told(answered(8, 1_700_000_001_000, Answer(answers=(("Postgres",),), by="ana")))
    assert event["type"] == "agent_question_answered"
    assert {key: event[key] for key in ("step_id", "session_id", "question_id", "answers", "timestamp", "by")} == {
        "step_id": "plan",
        "session_id": "ses_1",
        "question_id": "que_1",
        "answers": [["Postgres"]],
        "timestamp": "2023-11-14T22:13:21.000Z",
        "by": "ana",
    }


def test_other_ends_of_a_question_have_names_of_their_own() -> None:
    (rejected,) = told(answered(8, 1, Answer(rejected=True, reason="later", by="ana")))
    assert (rejected["type"], rejected["reason"], rejected["by"]) == ("agent_question_rejected", "later", "ana")
    (withdrawn,) = told(of_ask(9, "withdrawn", 1, state="withdrawn", withdrawn_reason="aborted"))
    assert (withdrawn["type"], withdrawn["reason"]) == ("agent_question_withdrawn", "aborted")
    assert told(of_ask(10, "delivered", 1)) == told(of_ask(10, "something new", 1)) == []


def test_a_question_without_a_header_gets_the_beginning_of_its_text() -> None:
    ask = Ask(id="q", questions=(Question("x" * 100),), origin=ORIGIN)
    (asked,) = told(of_ask(1, "asked", 1, ask=ask))
    assert asked["question"]["questions"][0]["header"] == "x" * 30


def test_a_header_has_thirty_characters_at_most() -> None:
    ask = Ask(id="q", questions=(Question("Which?", header="y" * 31),), origin=ORIGIN)
    (asked,) = told(of_ask(1, "asked", 1, ask=ask))
    assert asked["question"]["questions"][0]["header"] == "y" * 30


def test_an_answer_of_policy_names_the_rules_that_decided_and_those_that_were_skipped() -> None:
    misfit, fits = AutoRule(match="database", answers=("Oracle",)), AutoRule(match="re:^Which", answers=("Postgres",))
    ask = Ask(id="q", questions=(Question("Which database?", (Option("Postgres"),), custom=False),), origin=ORIGIN)
    answer = auto(misfit, fits)(ask)
    assert isinstance(answer, Answer)
    (event,) = told(answered(8, 1_700_000_001_000, answer, ask=ask))
    assert event["why"] == list(answer.why)
    assert "rule 1 ('database') skipped" in event["why"][0] and "rule 2 ('re:^Which')" in event["why"][1]
    assert line(event).startswith(
        "22:13:21 INFO      → plan: answered: Postgres ('Which database?': rule 1 ('database')"
    )
    denied = Answer(reply="reject", rejected=True, by="policy:rule", why=("rule \x1b[31m of the desk",))
    (event,) = told(answered(9, 1, denied, ask=replace(ask, questions=(), permission=Permission(tool="Bash"))))
    assert event["why"] == ["rule \x1b[31m of the desk"]
    assert "\x1b" not in line(event)
    (by_ana,) = told(answered(8, 1, Answer(answers=(("Postgres",),), by="ana")))
    assert "why" not in by_ana


@given(some.lists(some.sampled_from("abc"), min_size=1, max_size=5))
def test_every_option_can_be_named_by_what_is_shown(labels: list[str]) -> None:
    options = tuple(Option(label, value=chr(ord("c") - at % 3) * (at + 1)) for at, label in enumerate(labels))
    ask = Ask(id="q", questions=(Question("Which?", options),), origin=ORIGIN)
    (asked,) = told(of_ask(1, "asked", 1, ask=ask))
    shown = [option["label"] for option in asked["question"]["questions"][0]["options"]]
    assert [values(ask, [[name]])[0][0] for name in shown] == [option.value for option in ask.questions[0].options]


# Lines --------------------------------------------------------------------------------------------------------------


def a_line(type: str, *, color: bool = False, **fields: Any) -> str:
    return line({"type": type, "timestamp": time_text(1_700_000_000_000), **fields}, color=color)


def test_question_lines_are_as_seed_000_draws_them() -> None:
    (asked,) = told(of_ask(7, "asked", 1_700_000_000_000))
    (event,) = told(answered(8, 1_700_000_001_000, Answer(answers=(("Postgres",),), by="ana")))
    assert line(asked) == "22:13:20 WARN      ? plan: agent asks: Database"
    assert line(event) == "22:13:21 INFO      → plan: answered: Postgres"
    assert "    \x1b[33m?\x1b[0m plan: agent asks: Database" in line(asked, color=True)
    assert "    \x1b[32m→\x1b[0m plan: answered: Postgres" in line(event, color=True)


def test_every_event_has_words_a_look_and_a_line() -> None:
    assert set(TYPES) == set(_LOOKS)
    (asked,) = told(of_ask(7, "asked", 1))
    permission = Ask(id="per_1", permission=Permission(tool="Bash", command="rm x"), origin=ORIGIN)
    (wanted,) = told(of_ask(7, "asked", 1, ask=permission))
    about = {**wanted, **asked, "reply": "once", "answers": [["x"]], "error": "why"}
    for type in TYPES:
        shown = line({**about, "type": type, "timestamp": "2023-11-14T22:13:20.000Z"})
        assert shown.startswith("22:13:20 ") and "\n" not in shown


def test_an_event_of_a_newer_desk_has_a_line_too() -> None:
    assert a_line("moon_landed", step_id="plan") == "22:13:20 INFO      · plan: moon_landed"
    assert line({}) == "--:--:-- INFO      · "


@given(some.text(max_size=50))
def test_no_text_of_an_agent_breaks_out_of_its_line(text: str) -> None:
    question = Question(text or "x", (Option(text or "x"),), header=text)
    ask = Ask(id="q", questions=(question,), origin=ORIGIN)
    (asked,) = told(of_ask(1, "asked", 1, ask=ask))
    (event,) = told(answered(2, 1, Answer(answers=((text or "x",),), by="ana"), ask=ask))
    lines = [line(asked), line(event), a_line("step_failed", step_id="plan", error=text), a_line(text)]
    for shown in lines:
        assert len(shown.splitlines()) == 1
        assert not any(character in shown for character in "\x1b\x07\r\n\u202e\u2028")


def test_a_long_text_is_cut() -> None:
    assert len(a_line("step_failed", step_id="plan", error="x" * 100_000)) < 400


def test_what_is_told_is_json() -> None:
    events, _ = merged(
        [own(1, "run_started", 1, step=None, input={"a": 1})], [of_ask(1, "asked", 1)], after=Position(), limit=10
    )
    assert json.loads(json.dumps(events)) == events
