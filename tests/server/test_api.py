"""The routes that others rely on, each with its shapes and codes, over HTTP on a real socket."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from pydantic_core import from_json

from handraise.asks import Handling
from handraise.server.gate import Gate
from handraise.server.routes.asks import AskRoutes
from handraise.tables.tokens import Tokens
from tests.helpers.serving import (
    BASH,
    DATABASE,
    PATIENCE,
    Served,
    a_body,
    a_permission_body,
    eventually,
    first_event,
    listening,
    path_of,
    refused,
    serving,
    told,
)

WAIT = {"wait": PATIENCE}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

ASK_FIELDS = {
    *("id", "state", "questions", "permission", "origin", "asked_at", "deadline", "remaining", "fallback"),
    *("answer", "delivered_at", "delivery_error", "withdrawn_reason"),
}
ANSWER_FIELDS = {"answers", "reply", "rejected", "reason", "notes", "by", "via", "at"}


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database) as desk:
        yield desk


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory, shared_database: str) -> AsyncIterator[Served]:
    """One desk for the tests that go through a table and do not mind what else was asked."""
    async with serving(tmp_path_factory.mktemp("shared"), database=shared_database) as desk:
        yield desk


in_one_loop = pytest.mark.asyncio(loop_scope="module")


async def a_permission(desk: Served, **changes: Any) -> dict[str, Any]:
    return await told(desk.http.post("/v1/asks", json=a_permission_body(**changes)), 201)


def time(text: str) -> datetime:
    assert TIME.fullmatch(text), text
    return datetime.fromisoformat(text)


# Asking -----------------------------------------------------------------------------------------------------


async def test_a_new_ask_is_told_in_full_with_201(desk: Served) -> None:
    ask = await told(desk.http.post("/v1/asks", json=a_body(id="q1")), 201)
    assert ask.keys() == ASK_FIELDS
    assert ask["id"] == "q1"
    assert ask["state"] == "asked"
    assert ask["origin"] == {"agent": "scripted", "session": "s1"}
    assert ask["permission"] is None
    assert ask["questions"] == [
        {
            "header": "Database",
            "question": "Which database should I use?",
            "options": [
                {"label": "SQLite", "description": "one file", "value": "SQLite", "recommended": False},
                {"label": "Postgres", "description": "", "value": "Postgres", "recommended": False},
            ],
            "multiple": False,
            "custom": True,
            "kind": "choice",
        }
    ]
    nothing_yet = ("deadline", "remaining", "fallback", "answer", "delivered_at", "delivery_error", "withdrawn_reason")
    assert all(ask[field] is None for field in nothing_yet)
    assert abs(time(ask["asked_at"]) - datetime.now(UTC)) < timedelta(seconds=PATIENCE)
    assert await desk.get("q1") == ask


async def test_asking_again_under_the_same_id_joins_with_200(desk: Served) -> None:
    first = await told(desk.http.post("/v1/asks", json=a_body(id="q1")), 201)
    again = await told(desk.http.post("/v1/asks", json=a_body(id="q1")), 200)
    assert again == first
    await desk.answer("q1", "SQLite")
    answered = await told(desk.http.post("/v1/asks", json=a_body(id="q1")), 200)
    assert answered["answer"]["answers"] == [["SQLite"]]


async def test_the_same_id_with_other_content_is_refused_and_changes_nothing(desk: Served) -> None:
    first = await desk.ask(id="q1")
    other = a_body(id="q1", questions=[{"question": "Which colour?"}])
    refusal = await refused(desk.http.post("/v1/asks", json=other), 409, "ask_differs")
    assert refusal["id"] == "q1"
    assert await desk.get("q1") == first


async def test_an_ask_without_an_id_and_origin_gets_both(desk: Served) -> None:
    one = await told(desk.http.post("/v1/asks", json={"questions": [{"question": "Really?"}]}), 201)
    two = await told(desk.http.post("/v1/asks", json={"questions": [{"question": "Really?"}]}), 201)
    assert one["id"] != two["id"]
    assert one["origin"] == {"agent": "script", "session": f"script:{desk.admin}"}


async def test_the_whole_origin_is_told(desk: Served) -> None:
    origin = {"agent": "a", "session": "s", "run": "r", "step": "t", "parent": "p", "cwd": "/w", "machine": "m"}
    assert (await desk.ask(origin=origin))["origin"] == origin


async def test_unknown_fields_are_kept_with_the_record_they_came_with(desk: Served) -> None:
    option = {"label": "a", "shortcut": "x"}
    question = {"question": "q", "options": [option], "colour": "red", "extra": {"mine": 1}}
    ask = await desk.ask(
        questions=[question], origin={"agent": "a", "session": "s", "shell": "zsh"}, priority=[1, None]
    )
    assert ask["extra"] == {"priority": [1, None]}
    assert ask["origin"]["extra"] == {"shell": "zsh"}
    assert ask["questions"][0]["extra"] == {"mine": 1, "colour": "red"}
    assert ask["questions"][0]["options"][0]["extra"] == {"shortcut": "x"}
    permission = {**BASH, "risk": "high", "scopes": [{"id": "session", "until": "noon"}]}
    wanted = (await a_permission(desk, permission=permission))["permission"]
    assert wanted["extra"] == {"risk": "high"}
    assert wanted["scopes"][0]["extra"] == {"until": "noon"}


async def test_options_get_values_of_their_own_and_recommendations_are_seen(desk: Served) -> None:
    options = [{"label": "a"}, {"label": "a"}, {"label": "b (Recommended)", "value": "b", "preview": "shown"}]
    ask = await desk.ask(questions=[{"question": "q", "options": options}])
    first, second, third = ask["questions"][0]["options"]
    assert (first["value"], second["value"]) == ("a", "a#2")
    assert (third["value"], third["recommended"], third["preview"]) == ("b", True, "shown")


async def test_a_permission_is_told_with_what_it_can_do_everywhere(desk: Served) -> None:
    wanted = {"tool": "Bash", "command": "cd web && rm -rf build | tee log.txt"}
    ask = await a_permission(desk, id='p "1"', permission=wanted)
    async with listening(desk.http, after=0) as events:
        event = from_json((await events.frame()).data)
    assert ask["risks"] == ["delete"]
    assert ask["commands"] == ["cd web", "rm -rf build", "tee log.txt"]
    assert event["ask"] == ask == await told(desk.http.get(path_of('p "1"')), 200)
    assert (await told(desk.http.get("/v1/asks"), 200))["asks"] == [ask]
    assert wanted.items() <= ask["permission"].items() and "risks" not in ask["permission"]
    settled = await told(desk.http.post(path_of('p "1"', "answer"), json={"reply": "once"}), 200)
    assert (settled["risks"], settled["commands"]) == (ask["risks"], ask["commands"])


async def test_a_harmless_permission_has_no_risks_and_a_question_not_even_the_field(desk: Served) -> None:
    harmless = await a_permission(desk, permission={"tool": "Bash", "command": "git status"})
    assert harmless["risks"] == [] and "commands" not in harmless
    plan = await a_permission(desk, permission={"tool": "plan", "kind": "plan", "input": {"plan": "rm x && rm y"}})
    assert plan["risks"] == [] and "commands" not in plan
    more = await a_permission(desk, id="p2", permission={"tool": "plan", "kind": "plan", "command": "rm x"})
    assert more["risks"] == ["delete"], "a command behind a plan is looked at as every command is"
    for id in ("q1", 'a "quoted" \\ id'):
        assert (await desk.ask(id=id)).keys() == ASK_FIELDS


async def test_what_a_permission_can_do_is_no_part_of_what_was_asked(desk: Served) -> None:
    first = await a_permission(desk, id="p1")
    stored = await desk.running.broker.store.get("p1")
    assert stored is not None and "risks" not in stored.content
    again = await told(desk.http.post("/v1/asks", json=a_permission_body(id="p1")), 200)
    assert again == first, "it was not joined"


async def test_a_permission_is_told_whole_and_has_no_questions(desk: Served) -> None:
    ask = await a_permission(desk)
    assert ask["questions"] == []
    assert ask["permission"] == {**BASH, "kind": "tool", "paths": []}
    plain = await a_permission(desk, permission={"tool": "Edit"})
    assert plain["permission"]["replies"] == ["once", "reject"]
    assert plain["permission"]["editable"] is False


@in_one_loop
@pytest.mark.parametrize("id", ["a/b", "a b", "é/ü 漢字 🙋", "per%cent", "a?b#c", "...", "answer", "x:y@z;w=1", "\\"])
async def test_an_id_may_hold_any_printable_character(shared: Served, id: str) -> None:
    ask = await shared.ask(id=id)
    assert ask["id"] == id
    assert (await shared.get(id))["id"] == id
    assert (await shared.answer(id, "SQLite"))["state"] == "answered"
    reported = await told(shared.http.post("/v1/deliveries", json={"deliveries": [{"id": id}]}), 200)
    assert reported == {"reported": 1, "unknown": []}


@in_one_loop
@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"questions": []}, "questions"),
        ({"permission": BASH}, "questions"),
        ({"questions": [{"question": ""}]}, "questions.0.question"),
        ({"questions": [{"question": "q", "options": [{"label": ""}]}]}, "questions.0.options"),
        ({"questions": [{"question": "q", "custom": False}]}, "questions.0.options"),
        ({"questions": [{"header": "no text"}]}, "questions.0.question"),
        ({"questions": [{**DATABASE, "kind": "colour"}]}, "questions.0.kind"),
        ({"questions": [{**DATABASE, "multiple": "yes"}]}, "questions.0.multiple"),
        ({"origin": {"agent": "a"}}, "origin.session"),
        ({"origin": {"agent": "", "session": "s"}}, "origin.agent"),
        ({"id": ""}, "id"),
        ({"id": 7}, "id"),
        ({"id": "line\nbreak"}, "id"),
        ({"id": "\u2028"}, "id"),
        ({"id": ".."}, "id"),
        ({"id": "@ci:q1"}, "id"),
        ({"id": "x" * 401}, "id"),
        ({"question_policy": "guess"}, "question_policy"),
        ({"permission_policy": "accept-first"}, "permission_policy"),
        ({"on_timeout": "forward"}, "on_timeout"),
        ({"question_timeout": 0}, "question_timeout"),
        ({"question_timeout": "60"}, "question_timeout"),
        ({"question_timeout": 31_536_001}, "question_timeout"),
    ],
)
async def test_an_ask_that_does_not_fit_says_where(shared: Served, changes: dict[str, Any], at: str) -> None:
    refusal = await refused(shared.http.post("/v1/asks", json=a_body(**changes)), 422, "ask_does_not_fit")
    assert any(problem["at"].startswith(at) and problem["problem"] for problem in refusal["problems"]), refusal


async def test_a_permission_without_tool_or_replies_does_not_fit(desk: Served) -> None:
    for permission in ({"tool": ""}, {"tool": "Bash", "replies": []}, {}):
        body = a_permission_body(permission=permission)
        await refused(desk.http.post("/v1/asks", json=body), 422, "ask_does_not_fit")


# Policies in the body ---------------------------------------------------------------------------------------


async def test_policy_answers_at_once_and_says_that_it_did(desk: Served) -> None:
    options = [{"label": "a"}, {"label": "b", "recommended": True}]
    questions = [{"question": "q", "options": options}]
    first = await desk.ask(questions=questions, question_policy="accept-first")
    assert (first["state"], first["answer"]["answers"]) == ("answered", [["a"]])
    assert (first["answer"]["by"], first["answer"]["via"]) == ("policy:accept-first", "policy")
    assert first["answer"]["at"] == first["asked_at"]
    recommended = await desk.ask(questions=questions, question_policy="accept-recommended")
    assert recommended["answer"]["answers"] == [["b"]]
    rejected = await desk.ask(questions=questions, question_policy="reject")
    assert (rejected["state"], rejected["answer"]["rejected"]) == ("rejected", True)
    assert rejected["answer"]["by"] == "policy:reject"
    free_text = await desk.ask(questions=[{"question": "Why?"}], question_policy="accept-first")
    assert free_text["state"] == "rejected"


async def test_rules_answer_each_question_by_itself(desk: Served) -> None:
    rules = [
        {"match": "re:(?i)^which data", "answers": ["Postgres"]},
        {"match": "colour", "answers": ["mauve"]},
    ]
    questions = [
        DATABASE,
        {"question": "Colour?", "options": [{"label": "red"}], "custom": False},
        {"question": "Size?", "options": [{"label": "S"}]},
    ]
    ask = await desk.ask(questions=questions, question_policy={"auto": rules})
    assert ask["answer"]["answers"] == [["Postgres"], ["red"], ["S"]]
    assert ask["answer"]["by"] == "policy:auto"
    assert any("skipped" in line for line in ask["answer"]["why"])
    broken = a_body(question_policy={"auto": [{"match": "re:(", "answers": ["x"]}]})
    await refused(desk.http.post("/v1/asks", json=broken), 422, "ask_does_not_fit")


async def test_no_question_policy_grants_a_permission(desk: Served) -> None:
    for policy in ("accept-first", "accept-recommended", {"auto": [{"match": "", "answers": ["once"]}]}):
        assert (await a_permission(desk, question_policy=policy))["state"] == "asked"
    refusal = await a_permission(desk, permission_policy="reject")
    assert (refusal["state"], refusal["answer"]["reply"]) == ("rejected", "reject")


async def test_an_ask_that_names_a_policy_inherits_nothing_from_the_desk(tmp_path: Path, database: str) -> None:
    async with serving(tmp_path, database=database, handling=Handling(question_timeout=60)) as desk:
        body = {"questions": [{"question": "Which?", "options": [{"label": "a"}]}]}
        inherited = (await desk.http.post("/v1/asks", json=body)).json()
        named = (await desk.http.post("/v1/asks", json={**body, "question_policy": "forward"})).json()
    assert inherited["deadline"] is not None
    assert (named["state"], named["deadline"], named["fallback"]) == ("asked", None, None)


async def test_the_desks_own_policy_counts_where_the_body_gives_none(tmp_path: Path, database: str) -> None:
    async with serving(tmp_path, database=database, handling=Handling(question_policy="accept-first")) as desk:
        assert (await desk.ask())["state"] == "answered"
        assert (await desk.ask(question_policy="forward"))["state"] == "asked"


# Deadlines --------------------------------------------------------------------------------------------------


async def test_a_timeout_is_told_as_deadline_remaining_and_fallback(desk: Served) -> None:
    ask = await desk.ask(question_timeout=60)
    assert time(ask["deadline"]) - time(ask["asked_at"]) == timedelta(seconds=60)
    assert 55 < ask["remaining"] <= 60
    fallback = ask["fallback"]
    assert fallback.keys() == ANSWER_FIELDS | {"why"}
    assert (fallback["answers"], fallback["rejected"]) == ([["SQLite"]], False)
    assert (fallback["by"], fallback["via"], fallback["at"]) == ("policy:timeout", "policy", None)
    assert (await desk.ask(question_timeout=60, on_timeout="reject"))["fallback"]["rejected"] is True
    answered = await desk.answer(ask["id"], "Postgres")
    assert answered["remaining"] is None
    assert answered["deadline"] == ask["deadline"]


async def test_when_the_time_is_up_the_fallback_is_the_answer(desk: Served) -> None:
    for on_timeout, state in (("accept-first", "answered"), ("reject", "rejected")):
        body = a_body(question_timeout=0.05, on_timeout=on_timeout)
        ask = await told(desk.http.post("/v1/asks", params=WAIT, json=body), 201)
        assert ask["state"] == state
        assert ask["answer"]["by"] == "policy:timeout"
        assert time(ask["answer"]["at"]) >= time(ask["deadline"])


async def test_silence_never_grants_a_permission(desk: Served) -> None:
    body = a_permission_body(question_timeout=0.05, on_timeout="accept-first")
    ask = await told(desk.http.post("/v1/asks", params=WAIT, json=body), 201)
    assert (ask["state"], ask["answer"]["reply"]) == ("rejected", "reject")
    assert "no answer in" in ask["answer"]["reason"]


async def test_keep_waiting_moves_the_deadline_by_the_time_the_ask_was_given(desk: Served) -> None:
    ask = await desk.ask(question_timeout=60)
    moved = await told(desk.http.post(path_of(ask["id"], "keep-waiting")), 200)
    assert time(moved["deadline"]) - time(ask["deadline"]) == timedelta(seconds=60)
    assert moved["remaining"] > 100
    endless = await desk.ask()
    assert (await told(desk.http.post(path_of(endless["id"], "keep-waiting")), 200))["deadline"] is None


async def test_keep_waiting_on_a_settled_ask_says_what_became_of_it(desk: Served) -> None:
    answered, withdrawn = await desk.ask(question_timeout=60), await desk.ask()
    await desk.answer(answered["id"], "SQLite")
    await told(desk.http.post(path_of(withdrawn["id"], "withdraw")), 200)
    await refused(desk.http.post(path_of(answered["id"], "keep-waiting")), 409, "already_answered")
    await refused(desk.http.post(path_of(withdrawn["id"], "keep-waiting")), 410, "ask_withdrawn")
    await refused(desk.http.post(path_of("nobody", "keep-waiting")), 404, "ask_not_found")


# Waiting ----------------------------------------------------------------------------------------------------


async def was_asked(desk: Served, id: str) -> None:
    await happened(desk, "asked", id)


async def happened(desk: Served, type: str, id: str) -> None:
    await first_event(desk.broker, lambda event: (event.type, event.ask.id) == (type, id))


async def eventually_delivered(desk: Served, id: str) -> None:
    await happened(desk, "delivered", id)
    ask = await desk.get(id)
    assert time(ask["delivered_at"]) >= time(ask["asked_at"])
    assert ask["delivery_error"] is None


async def test_a_parked_ask_wakes_with_the_answer_and_counts_as_delivered(desk: Served) -> None:
    call = asyncio.create_task(desk.http.post("/v1/asks", params=WAIT, json=a_body(id="q1")))
    await was_asked(desk, "q1")
    await desk.answer("q1", "Postgres")
    ask = await told(call, 201)
    assert ask["answer"]["answers"] == [["Postgres"]]
    assert ask["delivered_at"] is None  # it was not yet, when this was written
    await eventually_delivered(desk, "q1")


async def test_an_answer_that_was_there_already_is_delivered_by_waiting_for_it(desk: Served) -> None:
    await desk.ask(id="q1")
    await desk.answer("q1", "SQLite")
    await told(desk.http.post("/v1/asks", params={"wait": 0}, json=a_body(id="q1")), 200)
    await eventually_delivered(desk, "q1")


async def test_what_policy_answers_counts_as_delivered_only_to_a_call_that_waits(desk: Served) -> None:
    await desk.ask(id="told", question_policy="accept-first")
    body = a_body(id="waited", question_policy="accept-first")
    await told(desk.http.post("/v1/asks", params=WAIT, json=body), 201)
    await eventually_delivered(desk, "waited")
    assert (await desk.get("told"))["delivered_at"] is None


async def test_reading_wakes_too_but_never_counts_as_delivered(desk: Served) -> None:
    await desk.ask(id="q1")
    call = asyncio.create_task(desk.http.get(path_of("q1"), params=WAIT))
    await eventually(lambda: desk.broker.waits == 1)
    await desk.answer("q1", "SQLite")
    assert (await told(call, 200))["state"] == "answered"
    await told(desk.http.get(path_of("q1"), params=WAIT), 200)
    await desk.ask(id="q2", question_policy="accept-first")  # a commit later it still is not
    assert (await desk.get("q1"))["delivered_at"] is None


async def test_an_expired_wait_returns_the_ask_as_it_is(desk: Served) -> None:
    waited = await told(desk.http.post("/v1/asks", params={"wait": 0.02}, json=a_body(id="q1")), 201)
    assert (waited["state"], waited["answer"]) == ("asked", None)
    assert await told(desk.http.get(path_of("q1"), params={"wait": "0.02"}), 200) == waited
    assert await told(desk.http.get(path_of("q1"), params={"wait": 0}), 200) == waited


async def test_a_withdrawal_wakes_those_who_wait(desk: Served) -> None:
    call = asyncio.create_task(desk.http.post("/v1/asks", params=WAIT, json=a_body(id="q1")))
    await was_asked(desk, "q1")
    await told(desk.http.post(path_of("q1", "withdraw"), json={"reason": "aborted"}), 200)
    assert (await told(call, 201))["withdrawn_reason"] == "aborted"


async def hang_up(call: asyncio.Task[Any]) -> None:
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call


async def test_nothing_is_delivered_to_a_caller_that_hung_up(desk: Served) -> None:
    call = asyncio.create_task(desk.http.post("/v1/asks", params=WAIT, json=a_body(id="q1")))
    await was_asked(desk, "q1")
    await hang_up(call)
    assert (await desk.get("q1"))["state"] == "asked"  # hanging up withdraws nothing
    await desk.answer("q1", "SQLite")
    await desk.ask(id="q2")
    assert (await desk.get("q1"))["delivered_at"] is None
    await told(desk.http.post("/v1/asks", params=WAIT, json=a_body(id="q1")), 200)  # asking again fetches it
    await eventually_delivered(desk, "q1")


async def test_hanging_up_just_as_the_answer_comes_breaks_nothing(desk: Served) -> None:
    for number in range(40):
        id = f"q{number}"
        call = asyncio.create_task(desk.http.post("/v1/asks", params=WAIT, json=a_body(id=id)))
        await was_asked(desk, id)
        answering = asyncio.create_task(desk.answer(id, "SQLite"))
        for _ in range(number % 20):
            await asyncio.sleep(0)
        await hang_up(call)
        assert (await answering)["state"] == "answered"
    assert desk.broker.waits == 0


async def test_no_token_takes_every_place_to_wait_from_others(desk: Served) -> None:
    tokens = Tokens(desk.broker.store, clock=desk.broker.clock)
    await tokens.load()
    secrets = {name: await tokens.add(name, scopes=["ask"]) for name in ("one", "two", "three")}
    routes = AskRoutes(desk.broker, most_waits=8)
    door = Gate(routes, tokens=tokens, port=1, allowed_hosts=["desk"], public=(), entries=(), files=())
    parked: list[asyncio.Task[httpx2.Response]] = []
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(door), base_url="http://desk") as client:

        async def waits(secret: str, id: str) -> bool:
            headers = {"Authorization": f"Bearer {secret}"}
            ask = await told(client.post("/v1/asks", json=a_body(id=id), headers=headers), 201)
            before = desk.broker.waits
            call = asyncio.create_task(client.get(path_of(ask["id"]), params=WAIT, headers=headers))
            await eventually(lambda: call.done() or desk.broker.waits > before)
            if not call.done():
                parked.append(call)
                return True
            assert call.result().status_code == 503
            return False

        assert [await waits(secrets["one"], f"q{n}") for n in range(5)] == [True] * 4 + [False]
        assert [await waits(secrets["two"], f"q{n}") for n in range(3)] == [True] * 2 + [False]
        assert [await waits(secrets["three"], "q1"), await waits(desk.token, "q1"), await waits(desk.token, "q2")] == [
            False,
            True,
            True,
        ]
        for call in parked:
            await hang_up(call)


async def test_too_many_calls_that_wait_are_sent_to_a_stream_and_what_they_asked_is_kept(desk: Served) -> None:
    tokens = Tokens(desk.broker.store, clock=desk.broker.clock)
    await tokens.load()
    door = Gate(
        AskRoutes(desk.broker, most_waits=1),
        tokens=tokens,
        port=1,
        allowed_hosts=["desk"],
        public=(),
        entries=(),
        files=(),
    )
    authorization = {"Authorization": f"Bearer {desk.token}"}
    transport = httpx2.ASGITransport(door)
    async with httpx2.AsyncClient(transport=transport, base_url="http://desk", headers=authorization) as client:
        parked = asyncio.create_task(client.post("/v1/asks", params=WAIT, json=a_body(id="q1")))
        await was_asked(desk, "q1")
        for call in (
            client.post("/v1/asks", params=WAIT, json=a_body(id="q2")),
            client.get(path_of("q1"), params=WAIT),
        ):
            response = await call
            assert (response.status_code, response.json()["error"]) == (503, "overloaded")
            assert response.headers["retry-after"] == "1"
        await told(client.get(path_of("q1")), 200)
        for id in ("q1", "q2"):
            await desk.answer(id, "SQLite")
        await told(parked, 201)
        await told(client.post("/v1/asks", params=WAIT, json=a_body(id="q2")), 200)


# Answering --------------------------------------------------------------------------------------------------


async def test_an_answer_is_stored_with_who_where_and_when(desk: Served) -> None:
    await desk.ask(id="q1")
    ask = await told(desk.http.post(path_of("q1", "answer"), json={"answers": [["Postgres"]]}), 200)
    answer = ask["answer"]
    assert ask["state"] == "answered"
    assert answer.keys() == ANSWER_FIELDS
    assert answer["answers"] == [["Postgres"]]
    assert (answer["reply"], answer["rejected"], answer["reason"], answer["notes"]) == (None, False, None, [])
    assert (answer["by"], answer["via"]) == (desk.admin, "http")
    assert time(answer["at"]) >= time(ask["asked_at"])
    assert await desk.get("q1") == ask


async def test_an_entry_is_a_value_else_a_label_else_own_text(desk: Served) -> None:
    options = [{"label": "one", "value": "1"}, {"label": "1", "value": "two"}]
    await desk.ask(id="q1", questions=[{"question": "q", "options": options, "multiple": True}])
    ask = await desk.answer("q1", "1", "none of them")
    assert ask["answer"]["answers"] == [["1", "none of them"]]
    await desk.ask(id="q2", questions=[{"question": "q", "options": options}])
    assert (await desk.answer("q2", "one"))["answer"]["answers"] == [["1"]]


async def test_notes_and_a_skipped_question_go_along(desk: Served) -> None:
    await desk.ask(id="q1", questions=[DATABASE, {"question": "Why?"}])
    body = {"answers": [["SQLite"], []], "notes": ["for now", None]}
    answer = (await told(desk.http.post(path_of("q1", "answer"), json=body), 200))["answer"]
    assert (answer["answers"], answer["notes"]) == ([["SQLite"], []], ["for now", None])


@in_one_loop
@pytest.mark.parametrize(
    ("answers", "question", "says"),
    [
        ([["SQLite"]], None, "3 lists"),
        ([["SQLite"], ["a"], ["1"], ["x"]], None, "3 lists"),
        ([["SQLite", "Postgres"], ["a"], ["1"]], 0, "one value only"),
        ([["SQLite"], ["a", "a"], ["1"]], 1, "twice"),
        ([["SQLite"], ["z"], ["1"]], 1, "not a choice"),
        ([["SQLite"], ["a"], ["many"]], 2, "not a number"),
        ([["SQLite"], ["a"], ["NaN"]], 2, "not a number"),
        ([["SQLite"], ["a"], ["Infinity"]], 2, "not a number"),
        ([[" "], ["a"], ["1"]], 0, "empty text"),
        ([[], [], []], 0, "nothing is answered"),
        ([["SQLite"], "a", ["1"]], 1, "array"),
        ([["SQLite"], ["a"], [1]], 2, "string"),
        ("SQLite", None, "array"),
        (None, None, "give `answers`"),
    ],
)
async def test_what_does_not_fit_is_said_per_question_and_the_ask_stays_open(
    shared: Served, answers: Any, question: int | None, says: str
) -> None:
    questions = [
        DATABASE,
        {"question": "Which?", "options": [{"label": "a"}, {"label": "b"}], "multiple": True, "custom": False},
        {"question": "How many?", "kind": "number"},
    ]
    ask = await shared.ask(questions=questions)
    call = shared.http.post(path_of(ask["id"], "answer"), json={"answers": answers})
    refusal = await refused(call, 422, "answer_does_not_fit")
    (problem,) = refusal["problems"]
    assert problem["question"] == question
    assert says in problem["problem"]
    assert (await shared.get(ask["id"]))["state"] == "asked"


async def test_every_question_that_does_not_fit_is_named(desk: Served) -> None:
    await desk.ask(id="q1", questions=[{"question": "n", "kind": "number"}] * 3)
    body = {"answers": [["x"], ["1"], ["y"]], "notes": ["one note for three"]}
    refusal = await refused(desk.http.post(path_of("q1", "answer"), json=body), 422, "answer_does_not_fit")
    assert [problem["question"] for problem in refusal["problems"]] == [None, 0, 2]


async def test_the_same_answer_again_is_fine_whoever_gives_it(desk: Served) -> None:
    ana = await desk.caller("ana", "answer")
    bob = await desk.caller("bob", "answer")
    await desk.ask(id="q1")
    first = await told(ana.post(path_of("q1", "answer"), json={"answers": [["SQLite"]]}), 200)
    again = await told(bob.post(path_of("q1", "answer"), json={"answers": [["SQLite"]], "notes": ["me too"]}), 200)
    assert again == first
    assert first["answer"]["by"] == "ana"


async def test_a_different_second_answer_is_told_who_won(desk: Served) -> None:
    ana = await desk.caller("ana", "answer")
    bob = await desk.caller("bob", "answer")
    await desk.ask(id="q1")
    body = {"answers": [["SQLite"]], "via": "phone"}
    winner = (await told(ana.post(path_of("q1", "answer"), json=body), 200))["answer"]
    for action, other in (
        ("answer", {"answers": [["Postgres"]]}),
        ("reject", {}),
        ("answer", {"answers": [["?"], []]}),
    ):
        lost = await refused(bob.post(path_of("q1", action), json=other), 409, "already_answered")
        assert (lost["by"], lost["via"], lost["at"]) == ("ana", "phone", winner["at"])
        assert lost["answer"] == winner
    await refused(bob.post(path_of("q1", "withdraw")), 403, "forbidden")
    await refused(desk.http.post(path_of("q1", "withdraw")), 409, "already_answered")


async def test_of_two_people_within_a_millisecond_one_wins_and_the_other_learns_who(desk: Served) -> None:
    people = {name: await desk.caller(name, "answer") for name in ("ana", "bob")}
    says = {"ana": "SQLite", "bob": "Postgres"}
    winners = set()
    for number in range(50):
        id = f"race/{number}"
        await desk.ask(id=id)
        order = sorted(people, reverse=number % 2 == 1)
        calls = (people[name].post(path_of(id, "answer"), json={"answers": [[says[name]]]}) for name in order)
        replies = dict(zip(order, await asyncio.gather(*calls), strict=True))
        assert sorted(reply.status_code for reply in replies.values()) == [200, 409]
        (winner,) = (name for name, reply in replies.items() if reply.status_code == 200)
        (lost,) = (reply.json() for reply in replies.values() if reply.status_code == 409)
        assert (lost["by"], lost["answer"]["answers"]) == (winner, [[says[winner]]])
        assert (await desk.get(id))["answer"] == lost["answer"]
        winners.add(winner)
    assert winners == {"ana", "bob"}


async def test_the_same_answer_from_two_people_at_once_is_200_for_both(desk: Served) -> None:
    ana, bob = await desk.caller("ana", "answer"), await desk.caller("bob", "answer")
    for number in range(25):
        ask = await desk.ask(id=f"race/{number}")
        calls = (person.post(path_of(ask["id"], "answer"), json={"answers": [["SQLite"]]}) for person in (ana, bob))
        one, two = await asyncio.gather(*calls)
        assert (one.status_code, two.status_code) == (200, 200)
        assert one.json()["answer"] == two.json()["answer"]


async def test_a_reject_is_final_and_carries_its_reason(desk: Served) -> None:
    await desk.ask(id="q1", question_timeout=60)
    ask = await told(desk.http.post(path_of("q1", "reject"), json={"reason": "let us talk first"}), 200)
    assert (ask["state"], ask["answer"]["rejected"], ask["answer"]["answers"]) == ("rejected", True, None)
    assert (ask["answer"]["reason"], ask["answer"]["reply"]) == ("let us talk first", None)
    again = await told(desk.http.post(path_of("q1", "reject"), json={"reason": "no"}), 200)
    assert again["answer"] == ask["answer"]
    await refused(desk.http.post(path_of("q1", "answer"), json={"answers": [["SQLite"]]}), 409, "already_answered")
    await desk.ask(id="q2")
    assert (await told(desk.http.post(path_of("q2", "reject")), 200))["answer"]["reason"] is None


async def test_a_withdrawn_ask_takes_no_answer(desk: Served) -> None:
    await desk.ask(id="q1")
    await told(desk.http.post(path_of("q1", "withdraw"), json={"reason": "aborted"}), 200)
    for action, body in (("answer", {"answers": [["SQLite"]]}), ("answer", {"answers": []}), ("reject", {})):
        refusal = await refused(desk.http.post(path_of("q1", action), json=body), 410, "ask_withdrawn")
        assert (refusal["id"], refusal["reason"]) == ("q1", "aborted")


async def test_an_unknown_ask_is_404_on_every_route(desk: Served) -> None:
    await refused(desk.http.get(path_of("nobody")), 404, "ask_not_found")
    await refused(desk.http.get(path_of("nobody"), params=WAIT), 404, "ask_not_found")
    for action in ("reject", "keep-waiting", "withdraw"):
        refusal = await refused(desk.http.post(path_of("nobody", action)), 404, "ask_not_found")
        assert refusal["id"] == "nobody"
    await refused(desk.http.post(path_of("nobody", "answer"), json={"answers": [["x"]]}), 404, "ask_not_found")


async def test_who_answers_is_said_by_the_token_and_claimed_only_by_an_admin(desk: Served) -> None:
    ana = await desk.caller("ana", "answer")

    async def by(person: Any, **claimed: str) -> tuple[str, str]:
        ask = await desk.ask()
        body = {"answers": [["SQLite"]], **claimed}
        answer = (await told(person.post(path_of(ask["id"], "answer"), json=body), 200))["answer"]
        return answer["by"], answer["via"]

    assert await by(ana) == ("ana", "http")
    assert await by(ana, by="bob", via="slack") == ("ana", "slack")
    assert await by(desk.http, by="bob", via="slack") == ("bob", "slack")
    for pretended in ("policy:accept-first", "agent"):
        assert await by(desk.http, by=pretended, via="policy") == (desk.admin, "http")


# Permissions ------------------------------------------------------------------------------------------------


async def reply(desk: Served, id: str, **body: Any) -> dict[str, Any]:
    return await told(desk.http.post(path_of(id, "answer"), json=body), 200)


async def test_a_permission_is_granted_once_or_always(desk: Served) -> None:
    once = await reply(desk, (await a_permission(desk))["id"], reply="once", message="mind the cache")
    assert (once["state"], once["answer"]["reply"], once["answer"]["answers"]) == ("answered", "once", None)
    assert once["answer"]["reason"] == "mind the cache"
    assert once["answer"].keys() == ANSWER_FIELDS
    always = await reply(desk, (await a_permission(desk))["id"], reply="always", scope="session", patterns=["rm *"])
    assert (always["answer"]["scope"], always["answer"]["patterns"]) == ("session", ["rm *"])
    plain = await reply(desk, (await a_permission(desk))["id"], reply="always")
    assert "scope" not in plain["answer"]


async def test_a_permission_is_granted_with_edited_input(desk: Served) -> None:
    edited = {"command": "rm -rf build/cache"}
    ask = await reply(desk, (await a_permission(desk))["id"], reply="once", input=edited)
    assert ask["answer"]["input"] == edited
    assert ask["permission"]["input"] == BASH["input"]


async def test_replying_reject_and_rejecting_are_the_same_thing(desk: Served) -> None:
    one, two = await a_permission(desk), await a_permission(desk)
    replied = await reply(desk, one["id"], reply="reject", message="too broad")
    rejected = await told(desk.http.post(path_of(two["id"], "reject"), json={"reason": "too broad"}), 200)
    for ask in (replied, rejected):
        answer = {key: value for key, value in ask["answer"].items() if key != "at"}
        assert ask["state"] == "rejected"
        assert answer == {
            "answers": None,
            "reply": "reject",
            "rejected": True,
            "reason": "too broad",
            "notes": [],
            "by": desk.admin,
            "via": "http",
        }
    again = await reply(desk, two["id"], reply="reject")
    assert again["answer"] == rejected["answer"]


@in_one_loop
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"answers": [["once"]]}, "give `reply`"),
        ({}, "give `reply`"),
        ({"reply": "sometimes"}, "not a reply"),
        ({"reply": "always", "scope": "world"}, "not a scope"),
        ({"reply": "always", "patterns": ["*"]}, "not widened"),
        ({"reply": "always", "scope": "session", "patterns": ["rm -rf *"]}, "not widened"),
        ({"reply": "once", "scope": "session"}, "always"),
        ({"reply": 1}, "string"),
        ({"reply": "once", "input": "rm"}, "object"),
    ],
)
async def test_a_reply_that_does_not_fit_leaves_the_permission_open(
    shared: Served, body: dict[str, Any], says: str
) -> None:
    ask = await a_permission(shared)
    refusal = await refused(shared.http.post(path_of(ask["id"], "answer"), json=body), 422, "answer_does_not_fit")
    assert says in refusal["problems"][0]["problem"]
    assert (await shared.get(ask["id"]))["state"] == "asked"


async def test_edited_input_is_refused_where_the_agent_takes_none(desk: Served) -> None:
    ask = await a_permission(desk, permission={**BASH, "editable": False})
    body = {"reply": "once", "input": {}}
    await refused(desk.http.post(path_of(ask["id"], "answer"), json=body), 422, "answer_does_not_fit")


async def test_a_question_takes_no_reply(desk: Served) -> None:
    await desk.ask(id="q1")
    for body in ({"reply": "once"}, {"reply": "reject"}):
        await refused(desk.http.post(path_of("q1", "answer"), json=body), 422, "answer_does_not_fit")


# Withdrawing and delivering ---------------------------------------------------------------------------------


async def test_a_withdrawn_ask_opens_again_when_it_is_asked_again(desk: Served) -> None:
    await desk.ask(id="q1", question_timeout=60)
    gone = await told(desk.http.post(path_of("q1", "withdraw"), json={"reason": "aborted"}), 200)
    assert (gone["state"], gone["withdrawn_reason"], gone["answer"]) == ("withdrawn", "aborted", None)
    assert await told(desk.http.post(path_of("q1", "withdraw")), 200) == gone
    again = await told(desk.http.post("/v1/asks", json=a_body(id="q1")), 200)
    assert (again["state"], again["withdrawn_reason"], again["deadline"]) == ("asked", None, None)
    assert (await desk.answer("q1", "SQLite"))["state"] == "answered"


async def test_deliveries_are_reported_in_batches_with_what_went_wrong(desk: Served) -> None:
    for id in ("taken", "failed", "open"):
        await desk.ask(id=id)
    for id in ("taken", "failed"):
        await desk.answer(id, "SQLite")
    entries = [{"id": "taken"}, {"id": "failed", "error": "the agent had died"}, {"id": "open"}, {"id": "nobody"}]
    reported = await told(desk.http.post("/v1/deliveries", json={"deliveries": entries}), 200)
    assert reported == {"reported": 3, "unknown": ["nobody"]}
    taken, failed, still_open = [await desk.get(id) for id in ("taken", "failed", "open")]
    assert time(taken["delivered_at"]) >= time(taken["asked_at"])
    assert taken["delivery_error"] is None
    assert (failed["delivered_at"], failed["delivery_error"]) == (None, "the agent had died")
    assert (still_open["state"], still_open["delivered_at"]) == ("asked", None)
    later = {"deliveries": [{"id": "failed"}, {"id": "taken", "error": "too late to fail"}]}
    await told(desk.http.post("/v1/deliveries", json=later), 200)
    assert (await desk.get("failed"))["delivery_error"] is None
    assert await desk.get("taken") == taken


async def test_an_ask_that_a_report_names_again_and_again_is_told_once(desk: Served) -> None:
    for id in ("taken", "failed"):
        await desk.ask(id=id)
        await desk.answer(id, "SQLite")
    wrong = [{"id": id, "error": f"attempt {number}"} for number in range(3) for id in ("taken", "failed")]
    entries = [*wrong[:4], {"id": "taken"}, *wrong[4:], *([{"id": "nobody"}] * 1_900)]
    reported = await told(desk.http.post("/v1/deliveries", json={"deliveries": entries}), 200)
    assert (reported["reported"], set(reported["unknown"])) == (7, {"nobody"})
    taken, failed = await desk.get("taken"), await desk.get("failed")
    assert (taken["delivered_at"] is not None, taken["delivery_error"]) == (True, None)
    assert (failed["delivered_at"], failed["delivery_error"]) == (None, "attempt 2")
    assert await told(desk.http.get("/v1/cursor"), 200) == {"cursor": 6}


async def test_an_id_with_an_ordinal_joins_only_until_its_answer_was_taken(desk: Served) -> None:
    body = a_permission_body(id="hash", ordinal=True)
    first = await told(desk.http.post("/v1/asks", json=body), 201)
    assert first["id"] == "hash#1"
    assert (await told(desk.http.post("/v1/asks", json=body), 200))["id"] == "hash#1"
    await reply(desk, "hash#1", reply="once")
    joined = await told(desk.http.post("/v1/asks", json=body), 200)
    assert (joined["id"], joined["answer"]["reply"]) == ("hash#1", "once")
    await told(desk.http.post("/v1/deliveries", json={"deliveries": [{"id": "hash"}]}), 200)
    next_time = await told(desk.http.post("/v1/asks", json=body), 201)
    assert (next_time["id"], next_time["state"]) == ("hash#2", "asked")
    assert (await told(desk.http.post(path_of("hash", "withdraw")), 200))["id"] == "hash#2"


# Lists ------------------------------------------------------------------------------------------------------


async def listed(desk: Served, **asked: Any) -> list[str]:
    return [ask["id"] for ask in (await told(desk.http.get("/v1/asks", params=asked), 200))["asks"]]


async def test_asks_are_listed_in_every_state_and_filtered(desk: Served) -> None:
    await desk.ask(id="a", origin={"agent": "x", "session": "s1", "run": "r1"})
    await desk.ask(id="b", origin={"agent": "x", "session": "s2"})
    await desk.ask(id="c", origin={"agent": "y", "session": "s1", "run": "r2"})
    await desk.answer("a", "SQLite")
    await told(desk.http.post(path_of("b", "reject")), 200)
    assert await listed(desk) == ["a", "b", "c"]
    assert await listed(desk, state="asked") == ["c"]
    assert await listed(desk, state="answered") == ["a"]
    assert await listed(desk, state="rejected") == ["b"]
    assert await listed(desk, state="withdrawn") == []
    assert await listed(desk, agent="x") == ["a", "b"]
    assert await listed(desk, session="s1") == ["a", "c"]
    assert await listed(desk, run="r2") == ["c"]
    assert await listed(desk, agent="x", session="s1") == ["a"]


async def test_a_list_is_read_page_by_page(desk: Served) -> None:
    ids = [(await desk.ask(id=f"q{number}"))["id"] for number in range(7)]
    seen, after = [], None
    while True:
        asked = {"limit": "3"} | ({"after": after} if after else {})
        page = await told(desk.http.get("/v1/asks", params=asked), 200)
        assert page.keys() <= {"asks", "next"} and len(page["asks"]) <= 3
        seen += [ask["id"] for ask in page["asks"]]
        after = page.get("next")
        if after is None:
            break
    assert seen == ids
    assert await listed(desk, limit=7) == ids


async def test_what_happened_is_searched_newest_first_page_by_page(desk: Served) -> None:
    for number in range(9):
        await desk.ask(id=f"q{number}", origin={"agent": "x" if number % 2 else "y", "session": "s1"})
    for number in range(5):
        await desk.answer(f"q{number}", "SQLite")
    await told(desk.http.post(path_of("q5", "reject"), json={"reason": "Überflüssig: 100%"}), 200)
    assert await listed(desk, order="newest", limit=2) == ["q8", "q7"]
    assert await listed(desk, order="oldest", limit=2) == ["q0", "q1"]
    assert await listed(desk, state="settled", order="newest") == ["q5", "q4", "q3", "q2", "q1", "q0"]
    assert await listed(desk, state="settled", agent="y", q="WHICH database", order="newest") == ["q4", "q2", "q0"]
    assert await listed(desk, q="überFLÜSSIG") == await listed(desk, q="100%") == ["q5"]
    assert await listed(desk, q="1_0%") == await listed(desk, q="multiple") == []
    assert len(await listed(desk, q="")) == 9, "an empty search is none"
    seen: list[str] = []
    asked = {"q": "database", "order": "newest", "limit": "2"}
    while True:
        page = await told(desk.http.get("/v1/asks", params=asked), 200)
        seen += [ask["id"] for ask in page["asks"]]
        if "next" not in page:
            break
        asked["after"] = page["next"]
        await desk.ask(id=f"meanwhile {asked['after']}")
    assert seen == [f"q{number}" for number in range(8, -1, -1)]


async def test_an_ask_in_a_list_is_told_as_it_is_by_itself(desk: Served) -> None:
    ask = await desk.ask(id="q1")
    assert await told(desk.http.get("/v1/asks"), 200) == {"asks": [ask]}


@in_one_loop
@pytest.mark.parametrize(
    "asked",
    [
        *("state=open", "limit=0", "limit=1001", "limit=x", "limit=1.5", "limit=%F0%9D%9F%99", "after=-1", "after=x"),
        *(
            "after=99999999999999999999",
            "colour=red",
            "agent=a&agent=b",
            "agent=%ff",
            "state=",
            "order=",
            "order=asked",
        ),
        *(f"q={'x' * 501}", "q=a&q=b"),
    ],
)
async def test_a_query_that_cannot_be_understood_is_refused(shared: Served, asked: str) -> None:
    await refused(shared.http.get(f"/v1/asks?{asked}"), 400, "bad_request")


@in_one_loop
@pytest.mark.parametrize("wait", ["-1", "301", "x", "nan", "inf", "", "1&wait=2", "1&colour=red"])
async def test_a_wait_that_cannot_be_understood_is_refused(shared: Served, wait: str) -> None:
    ask = await shared.ask()
    await refused(shared.http.get(f"/v1/asks/{ask['id']}?wait={wait}"), 400, "bad_request")
    await refused(shared.http.post(f"/v1/asks?wait={wait}", json=a_body()), 400, "bad_request")


# Sessions ---------------------------------------------------------------------------------------------------


async def test_a_session_is_created_when_an_ask_first_mentions_it(desk: Served) -> None:
    origin = {"agent": "x", "session": "se/ss 1", "parent": "p", "cwd": "/w", "machine": "m"}
    ask = await desk.ask(id="q1", origin=origin)
    session = await told(desk.http.get("/v1/sessions/se%2Fss%201"), 200)
    assert session == {
        "id": "se/ss 1",
        "agent": "x",
        "state": "waiting",
        "managed": False,
        "parent": "p",
        "cwd": "/w",
        "machine": "m",
        "run": None,
        "step": None,
        "mode": None,
        "command": None,
        "error": None,
        "created_at": ask["asked_at"],
        "updated_at": ask["asked_at"],
        "open_asks": 1,
    }
    await desk.answer("q1", "SQLite")
    sessions = (await told(desk.http.get("/v1/sessions"), 200))["sessions"]
    assert sessions == [{**session, "state": "idle", "open_asks": 0}]


async def test_an_unknown_session_is_404(desk: Served) -> None:
    for path in ("/v1/sessions/nobody", "/v1/sessions/no%2Fbody", "/v1/sessions/"):
        await refused(desk.http.get(path), 404, "session_not_found")
    await refused(desk.http.get("/v1/sessions/no/body"), 404, "not_found")


# The rest ---------------------------------------------------------------------------------------------------


async def test_health_metrics_cursor_and_document(desk: Served) -> None:
    health = await told(desk.http.get("/healthz"), 200)
    assert health["status"] == "ok" and health["version"]
    assert await told(desk.http.get("/v1/cursor"), 200) == {"cursor": 0}
    await desk.ask()
    assert await told(desk.http.get("/v1/cursor"), 200) == {"cursor": 1}
    metrics = await desk.http.get("/metrics")
    assert metrics.headers["content-type"].startswith("application/openmetrics-text")
    lines = metrics.text.splitlines()
    assert {"handraise_asks_open 1", "handraise_listeners 0", "handraise_waits 0"} < set(lines)
    assert lines[-1] == "# EOF"
    assert (await told(desk.http.get("/openapi.json"), 200))["openapi"].startswith("3.")


@in_one_loop
@pytest.mark.parametrize(
    "path", ["/nope", "/v1", "/v1/asks/q1/burn", "/v1/asks/q1/answer/again", "/v1/events/", "//v1/asks", "/v1%2Fasks"]
)
async def test_an_unknown_route_is_404_in_our_words(shared: Served, path: str) -> None:
    await refused(shared.http.get(path), 404, "not_found")


@in_one_loop
@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/asks", {"GET", "POST"}),
        ("/v1/asks/q1", {"GET"}),
        ("/v1/asks/q1/answer", {"POST"}),
        ("/v1/asks/q1/reject", {"POST"}),
        ("/v1/asks/q1/keep-waiting", {"POST"}),
        ("/v1/asks/q1/withdraw", {"POST"}),
        ("/v1/deliveries", {"POST"}),
        ("/v1/events", {"GET"}),
        ("/v1/cursor", {"GET", "HEAD"}),
        ("/v1/sessions", {"GET", "HEAD", "POST"}),
        ("/v1/sessions/s1", {"GET", "HEAD"}),
        ("/v1/sessions/s1/messages", {"GET", "HEAD"}),
        ("/v1/sessions/s1/prompt", {"POST"}),
        ("/v1/sessions/s1/abort", {"POST"}),
        ("/v1/sessions/s1/close", {"POST"}),
        ("/v1/agents", {"GET", "HEAD"}),
        ("/v1/tokens", {"GET", "HEAD", "POST"}),
        ("/v1/tokens/ci", {"DELETE"}),
        ("/v1/signin", {"POST"}),
        ("/signin/code", {"GET", "HEAD", "POST"}),
        ("/healthz", {"GET", "HEAD"}),
        ("/metrics", {"GET", "HEAD"}),
        ("/openapi.json", {"GET", "HEAD"}),
    ],
)
async def test_a_wrong_method_is_405_and_says_which_are_right(shared: Served, path: str, allowed: set[str]) -> None:
    for method in ("PUT", "PATCH"):
        response = await shared.http.request(method, path)
        assert (response.status_code, response.json()["error"]) == (405, "method_not_allowed")
        assert set(response.headers["allow"].split(", ")) == allowed


async def test_nothing_is_to_be_cached_or_sniffed(desk: Served) -> None:
    await desk.ask(id="q1")
    for path in ("/v1/asks", "/v1/asks/q1", "/v1/asks/nobody", "/v1/sessions", "/v1/sessions/nobody", "/nope"):
        response = await desk.http.get(path)
        assert response.headers["content-type"] == "application/json"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-content-type-options"] == "nosniff"
