"""What a client reads and writes without pydantic is what the desk writes and reads with it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from handraise import wire
from handraise.asks import Answer, Ask, AutoRule, Handling, Option, Origin, Permission, Question, Scope
from handraise.client.records import answer_fields, ask_fields, handling_fields
from handraise.wire.plain import from_plain

ORIGIN = Origin(agent="claude", session="ses_1", run="run_1", cwd="/home/ana", extra={"a": None})
AT = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)
ASKS = [
    Ask(
        id="a/ü", questions=(Question("Which?", (Option("A (recommended)"), Option("A (recommended)"))),), origin=ORIGIN
    ),
    Ask(
        id="p",
        permission=Permission(
            tool="shell",
            command="rm -rf build",
            input={"command": "rm", "nested": [None, {"x": None}]},
            replies=("once", "always", "reject"),
            scopes=(Scope(id="s", patterns=("rm *",)),),
            resolved=(),
        ),
        origin=replace(ORIGIN, parent="ses_0"),
        extra={"unknown": {"deep": None}},
    ),
    Ask(id="t", questions=(Question("How many?", kind="number", custom=False, extra={"max": 3}),), origin=ORIGIN),
]
ANSWERS = [
    Answer(answers=(("A",), ()), notes=(None, "why"), by="ana", via="cli", at=AT),
    Answer(rejected=True, reason="no", by="policy:reject", why=("rule 1",)),
    Answer(reply="always", scope="s", patterns=(), input={}, by="ana"),
]


@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: str(ask.id))
def test_an_ask_is_written_as_the_desk_writes_it(ask: Ask) -> None:
    assert json.loads(json.dumps(ask_fields(ask))) == wire.ask_fields(ask)


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_is_written_as_the_desk_writes_it(answer: Answer) -> None:
    assert json.loads(json.dumps(answer_fields(answer))) == json.loads(wire.answer_text(answer))


@pytest.mark.parametrize("handling", [Handling(), Handling(question_policy=(AutoRule(match="x", answers=("1",)),))])
def test_a_handling_is_written_as_the_desk_writes_it(handling: Handling) -> None:
    assert json.loads(json.dumps(handling_fields(handling))) == json.loads(json.dumps(wire.handling_fields(handling)))


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("ask", ASKS, ids=lambda ask: str(ask.id))
def test_an_ask_is_read_as_the_desk_reads_it(ask: Ask, answer: Answer) -> None:
    told = {**ask_fields(ask), "state": "answered", "asked_at": "2026-03-01T12:30:15.250Z", "remaining": 3}
    told |= {"answer": answer_fields(answer), "risks": ["unreadable"], "of_a_newer_desk": True}
    text = json.dumps(told)
    assert from_plain(Ask, json.loads(text)) == wire.parse_ask(text)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        None,
        {},
        {"id": 1},
        {"questions": {}},
        {"questions": [{"question": None}]},
        {"state": "lost"},
        {"asked_at": "yesterday"},
        {"asked_at": 5},
        {"remaining": True},
        {"origin": {"agent": "a"}},
        {"permission": {"tool": ["x"]}},
        {"extra": []},
    ],
)
def test_what_is_no_ask_is_refused(wrong: Any) -> None:
    told = {**ask_fields(ASKS[0]), **wrong} if isinstance(wrong, dict) and wrong else wrong
    with pytest.raises((TypeError, ValueError, KeyError)):
        from_plain(Ask, told)
