"""S3: the session routes of sandbox-agent, for questions that any agent asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.helpers.serving import (
    Listener,
    Served,
    a_body,
    a_permission_body,
    listening,
    path_of,
    refused,
    serving,
    told,
)

FIELDS = {"question_id", "prompt", "options", "response", "status"}  # QuestionEventData of seed 001
EVENTS = "/v1/sessions/s1/events"

Json = dict[str, Any]


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database) as running:
        yield running


def path(id: str, action: str, *, session: str = "s1") -> str:
    return f"/v1/sessions/{quote(session, safe='')}/questions/{quote(id, safe='')}/{action}"


async def reply(http: httpx2.AsyncClient, id: str, *answers: list[str], session: str = "s1") -> httpx2.Response:
    return await http.post(path(id, "reply", session=session), json={"answers": answers})


async def next_event(listener: Listener) -> Json:
    frame = await listener.frame()
    data: Json = json.loads(frame.data)
    assert data["type"] == frame.event
    assert data.keys() == FIELDS | {"type", "session_id", "at"}
    return data


async def test_a_question_is_requested_answered_and_resolved(desk: Served) -> None:
    await desk.ask(id="before")  # from its first ask on there is a session to listen to
    async with listening(desk.http, EVENTS) as events, asyncio.TaskGroup() as agents:
        asking = agents.create_task(desk.http.post("/v1/asks?wait=30", json=a_body(id="q")))
        requested = await next_event(events)
        assert {key: requested[key] for key in FIELDS} == {
            "question_id": "q",
            "prompt": "Which database should I use?",
            "options": ["SQLite", "Postgres"],
            "response": None,
            "status": "requested",
        }
        assert (requested["type"], requested["session_id"]) == ("question.requested", "s1")

        replied = await reply(desk.http, "q", ["Postgres"])
        assert (replied.status_code, replied.content) == (204, b"")
        resolved = await next_event(events)
        assert resolved["type"] == "question.resolved"
        expected = requested | {"type": "question.resolved", "response": "Postgres", "status": "answered"}
        assert {**resolved, "at": ""} == {**expected, "at": ""}
    answer = asking.result().json()["answer"]
    assert (answer["answers"], answer["by"], answer["via"]) == ([["Postgres"]], desk.admin, "sandbox-agent")


async def test_a_rejection_and_a_withdrawal_are_both_told_as_rejected(desk: Served) -> None:
    await desk.ask(id="no")
    await desk.ask(id="gone")
    async with listening(desk.http, EVENTS) as events:
        assert (await desk.http.post(path("no", "reject"))).status_code == 204
        await told(desk.http.post(path_of("gone", "withdraw"), json={}), 200)
        for id in ("no", "gone"):
            resolved = await next_event(events)
            assert (resolved["type"], resolved["question_id"]) == ("question.resolved", id)
            assert (resolved["status"], resolved["response"]) == ("rejected", None)
    assert (await desk.get("no"))["state"] == "rejected"


async def test_several_questions_become_one_prompt(desk: Served) -> None:
    first = {"question": "Which?", "options": [{"label": "A", "value": "a"}, {"label": "B", "value": "b"}]}
    second = {"question": "Why?"}
    await desk.ask(id="both", questions=[first, second])
    await desk.ask(id="skipped", questions=[first, second])
    async with listening(desk.http, EVENTS, after=0) as events:
        requested = await next_event(events)
        assert (requested["prompt"], requested["options"]) == ("Which?\nWhy?", ["A", "B"])
        await next_event(events)
        assert (await reply(desk.http, "both", ["B"], ["because"])).status_code == 204
        assert (await next_event(events))["response"] == "b"
        assert (await reply(desk.http, "skipped", [], ["because"])).status_code == 204
        assert (await next_event(events))["response"] is None


async def test_a_stream_goes_on_where_it_was_left(desk: Served) -> None:
    await desk.ask(id="first")
    async with listening(desk.http, EVENTS, after=0) as events:
        assert (await next_event(events))["question_id"] == "first"
        left_at = events.cursor
    await reply(desk.http, "first", ["SQLite"])
    await desk.ask(id="second")
    async with listening(desk.http, EVENTS, last_event_id=left_at) as events:
        heard = [await next_event(events) for _ in range(2)]
    assert [(event["question_id"], event["status"]) for event in heard] == [
        ("first", "answered"),
        ("second", "requested"),
    ]


async def test_a_session_hears_only_its_own_questions_and_no_permissions(desk: Served) -> None:
    await desk.ask(id="mine")
    async with listening(desk.http, EVENTS) as events:
        await desk.ask(id="other", origin={"agent": "a", "session": "s2"})
        await told(desk.http.post("/v1/asks", json=a_permission_body(id="p")), 201)
        await told(desk.http.post(path_of("p", "answer"), json={"reply": "once"}), 200)
        await desk.answer("mine", "SQLite")
        await told(desk.http.post("/v1/deliveries", json={"deliveries": [{"id": "mine"}]}), 200)
        await desk.ask(id="last")
        heard = [await next_event(events) for _ in range(2)]
    assert [event["question_id"] for event in heard] == ["mine", "last"]


async def test_a_permission_is_not_answered_here(desk: Served) -> None:
    await told(desk.http.post("/v1/asks", json=a_permission_body(id="p")), 201)
    await refused(reply(desk.http, "p", ["once"]), 404, "ask_not_found")
    await refused(desk.http.post(path("p", "reject")), 404, "ask_not_found")
    assert (await desk.get("p"))["state"] == "asked"


async def test_a_question_belongs_to_its_session(desk: Served) -> None:
    await desk.ask(id="q")
    await desk.ask(id="other", origin={"agent": "a", "session": "s2"})
    await refused(reply(desk.http, "q", ["SQLite"], session="s2"), 404, "ask_not_found")
    await refused(reply(desk.http, "q", ["SQLite"], session="s3"), 404, "session_not_found")
    await refused(reply(desk.http, "nobody's", ["SQLite"]), 404, "ask_not_found")
    await refused(desk.http.get("/v1/sessions/s3/events"), 404, "session_not_found")
    assert (await desk.get("q"))["state"] == "asked"


async def test_who_comes_second_is_told_who_won(desk: Served) -> None:
    await desk.ask(id="q")
    ana, ben = await desk.caller("ana", "answer"), await desk.caller("ben", "answer")
    assert (await reply(ana, "q", ["SQLite"])).status_code == 204
    assert (await reply(ben, "q", ["SQLite"])).status_code == 204, "the same again is fine"
    lost = await refused(reply(ben, "q", ["Postgres"]), 409, "already_answered")
    assert (lost["by"], lost["via"], lost["answer"]["answers"]) == ("ana", "sandbox-agent", [["SQLite"]])
    await refused(ben.post(path("q", "reject")), 409, "already_answered")


async def test_a_withdrawn_question_takes_no_answer(desk: Served) -> None:
    await desk.ask(id="q")
    await told(desk.http.post(path_of("q", "withdraw"), json={}), 200)
    await refused(reply(desk.http, "q", ["SQLite"]), 410, "ask_withdrawn")


@pytest.mark.parametrize("body", [{}, {"answers": []}, {"answers": [["a", "b"]]}, {"answers": [[1]]}, {"answers": "x"}])
async def test_an_answer_that_does_not_fit_leaves_the_question_open(desk: Served, body: Json) -> None:
    await desk.ask(id="q")
    problem = await refused(desk.http.post(path("q", "reply"), json=body), 422, "answer_does_not_fit")
    assert problem["problems"]
    assert (await desk.get("q"))["state"] == "asked"


@pytest.mark.parametrize("id", ["a:b/c", "x/reply", "per cent %41", "q?x=1#2", "größe"])
async def test_ids_may_hold_any_character(desk: Served, id: str) -> None:
    session = f"of/{id}/questions"
    await desk.ask(id=id, origin={"agent": "a", "session": session})
    async with listening(desk.http, f"/v1/sessions/{quote(session, safe='')}/events", after=0) as events:
        assert (await next_event(events))["session_id"] == session
        assert (await reply(desk.http, id, ["SQLite"], session=session)).status_code == 204
        assert (await next_event(events))["question_id"] == id


async def test_a_stream_beats_while_nothing_happens(desk: Served) -> None:
    await desk.ask(id="q")
    async with listening(desk.http, EVENTS, after=0) as events:
        await next_event(events)
        desk.broker.feeds.poke()
        await events.until(b": heartbeat\n\n")


async def test_a_token_that_may_only_ask_hears_and_answers_nothing_here(desk: Served) -> None:
    await desk.ask(id="q")
    agent = await desk.caller("agent", "ask")
    await refused(agent.get(EVENTS), 403, "forbidden")
    await refused(reply(agent, "q", ["SQLite"]), 403, "forbidden")
    await refused(agent.post(path("q", "reject")), 403, "forbidden")


async def test_what_the_routes_do_not_know_is_refused(desk: Served) -> None:
    await desk.ask(id="q")
    await refused(desk.http.get(EVENTS, params={"directory": "/"}), 400, "bad_request")
    await refused(desk.http.get(EVENTS, params={"after": "x"}), 400, "bad_request")
    await refused(desk.http.post(EVENTS), 405, "method_not_allowed")
    for elsewhere in ("s1/questions/a/b/reply", "s1/questions/reply", "s1/asks/q/reply", "s1/reply"):
        await refused(desk.http.post(f"/v1/sessions/{elsewhere}", json={"answers": [["a"]]}), 404, "not_found")
