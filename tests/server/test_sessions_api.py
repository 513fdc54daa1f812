"""Sessions over HTTP: started, told something, stopped and read, at whichever desk one calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from handraise.agents import Message
from handraise.agents.scripted import Scripted
from handraise.asks import Handling, Option, Question
from handraise.client import Client
from handraise.config import Settings
from handraise.errors import DeskBroke, SessionEnded, SessionNotFound
from handraise.events import Asked, Event, Withdrawn
from handraise.tables.sessions import NewSession
from tests.helpers.serving import Served, a_client, eventually, first_event, path_of, refused, serving, told

DATABASE = Question("Which database?", (Option("SQLite"), Option("Postgres")), header="Database")
ODD = [
    "a/b",
    "with space",
    "%2F",
    "?x=1#y",
    "ünïcode 😀",
    "ends/messages",
    "ends/prompt",
    "ends/abort",
    "a/close",
    "..a",
]
STEERING = ("prompt", "abort", "close")


def an_agent() -> Scripted:
    agent = Scripted()
    agent.on_question("database", DATABASE)
    agent.on("database", lambda answers: f"it is {answers[0].value or answers[0].reason}")
    return agent.on("hello", "hello yourself").on("", "as you say")


@pytest.fixture
def agent() -> Scripted:
    return an_agent()


@pytest.fixture
async def desk(tmp_path: Path, database: str, agent: Scripted) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database, staff=[agent]) as desk:
        yield desk


def session_path(id: str, action: str = "") -> str:
    return f"/v1/sessions/{quote(id, safe='')}" + (f"/{action}" if action else "")


async def start(http: httpx2.AsyncClient, prompt: str, **changes: Any) -> str:
    body = {"agent": "scripted", "prompt": prompt, **changes}
    return str((await told(http.post("/v1/sessions", json=body), 201))["id"])


async def ended(http: httpx2.AsyncClient, id: str) -> dict[str, Any]:
    return await told(http.get(session_path(id), params={"wait": 5}), 200)


async def said(http: httpx2.AsyncClient, id: str, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await told(http.get(session_path(id, "messages"), params=params), 200))["messages"]
    return found


def texts(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(message["role"], message["text"]) for message in messages]


async def asked(desk: Served, id: str) -> str:
    """The id of the ask that the session raised, once it did."""

    def is_its(event: Event) -> bool:
        return isinstance(event, Asked) and event.ask.origin.session == id and event.ask.state == "asked"

    return (await first_event(desk.broker, is_its)).ask.id


# One desk ---------------------------------------------------------------------------------------------------


async def test_a_session_is_started_waited_for_and_read(desk: Served, tmp_path: Path) -> None:
    started = await told(
        desk.http.post(
            "/v1/sessions", json={"agent": "scripted", "prompt": "hello", "cwd": str(tmp_path), "mode": "plan"}
        ),
        201,
    )
    assert (started["agent"], started["managed"], started["mode"]) == ("scripted", True, "plan")
    assert started["cwd"] == str(tmp_path)
    session = await ended(desk.http, started["id"])
    assert (session["state"], session["error"], session["open_asks"]) == ("idle", None, 0)
    assert texts(await said(desk.http, started["id"])) == [("person", "hello"), ("agent", "hello yourself")]
    listed = (await told(desk.http.get("/v1/sessions"), 200))["sessions"]
    assert [each["id"] for each in listed] == [started["id"]]


async def test_a_session_of_a_run_says_which_step_it_works_on(desk: Served) -> None:
    wanted = NewSession(agent="scripted", prompt="hello", run="run_1", step="plan")
    record = await desk.broker.sessions.create(wanted, worker=None, machine=None, at=desk.broker.clock.now())
    session = await told(desk.http.get(session_path(record.id)), 200)
    assert (session["run"], session["step"]) == ("run_1", "plan")


async def test_a_session_whose_agent_asks_is_waiting_until_somebody_answers(desk: Served) -> None:
    id = await start(desk.http, "database")
    ask = await asked(desk, id)
    session = await told(desk.http.get(session_path(id), params={"wait": 0.01}), 200)
    assert (session["state"], session["open_asks"]) == ("waiting", 1)
    await desk.answer(ask, "Postgres")
    assert (await ended(desk.http, id))["state"] == "idle"
    assert texts(await said(desk.http, id))[-1] == ("agent", "it is Postgres")


async def test_a_prompt_makes_it_run_from_the_moment_it_was_taken(desk: Served, agent: Scripted) -> None:
    id = await start(desk.http, "hello")
    await ended(desk.http, id)
    answer = await told(desk.http.post(session_path(id, "prompt"), json={"prompt": "and more"}), 202)
    assert answer["state"] == "running"
    assert (await ended(desk.http, id))["state"] == "idle"
    assert [prompted.text for prompted in agent.prompted] == ["hello", "and more"]
    assert texts(await said(desk.http, id))[-1] == ("agent", "as you say")


async def test_messages_are_read_on_after_the_last_one_and_waited_for(desk: Served) -> None:
    id = await start(desk.http, "database")
    ask = await asked(desk, id)
    first = await said(desk.http, id, wait=5)
    assert texts(first) == [("person", "database")]
    waiting = asyncio.create_task(said(desk.http, id, after=first[-1]["id"], wait=5))
    await desk.answer(ask, "SQLite")
    assert texts(await waiting) == [("agent", "it is SQLite")]
    assert await said(desk.http, id, after=(await waiting)[-1]["id"], wait=0.01) == []


async def test_messages_are_read_backwards_from_the_newest(desk: Served) -> None:
    id = await start(desk.http, "hello")
    await ended(desk.http, id)
    for number in range(5):
        message = Message(role="notice", text=str(number))
        await desk.broker.sessions.said(id, message, at=desk.broker.clock.now())
    everything = await said(desk.http, id)
    assert await said(desk.http, id, before="") == everything
    newest = await said(desk.http, id, before="", limit=2)
    assert texts(newest) == [("notice", "3"), ("notice", "4")]
    older = await said(desk.http, id, before=newest[0]["id"], limit=3, wait=5)
    assert older == everything[2:5]
    assert await said(desk.http, id, before=older[0]["id"]) == everything[:2]
    assert await said(desk.http, id, before=everything[0]["id"], wait=300) == []  # nothing is waited for
    assert await said(desk.http, id, after=everything[1]["id"], before=newest[0]["id"]) == older
    assert await said(desk.http, id, limit=1) == everything[:1]


async def test_an_abort_withdraws_what_it_asks_and_leaves_the_session_usable(desk: Served) -> None:
    id = await start(desk.http, "database")
    ask = await asked(desk, id)
    await told(desk.http.post(session_path(id, "abort")), 202)
    assert (await ended(desk.http, id))["state"] == "idle"
    assert (await desk.get(ask))["state"] == "withdrawn"
    notice = (await said(desk.http, id))[-1]
    assert (notice["role"], notice["extra"]) == ("notice", {"turn": "aborted"})
    await told(desk.http.post(session_path(id, "prompt"), json={"prompt": "hello"}), 202)
    assert (await ended(desk.http, id))["state"] == "idle"
    assert texts(await said(desk.http, id))[-1] == ("agent", "hello yourself")


async def test_a_closed_session_is_done_and_cannot_be_steered(desk: Served) -> None:
    id = await start(desk.http, "database")
    ask = await asked(desk, id)
    await told(desk.http.post(session_path(id, "close")), 202)
    assert (await ended(desk.http, id))["state"] == "done"
    assert (await desk.get(ask))["state"] == "withdrawn"
    for action in STEERING:
        body = await refused(desk.http.post(session_path(id, action), json={"prompt": "x"}), 409, "session_ended")
        assert (body["id"], body["state"]) == (id, "done")


async def test_an_abort_that_comes_before_the_turn_began_is_heard(desk: Served, agent: Scripted) -> None:
    id = await start(desk.http, "database")
    for action, body in (("abort", {}), ("prompt", {"prompt": "database"}), ("abort", {})):
        await told(desk.http.post(session_path(id, action), json=body), 202)
    assert (await ended(desk.http, id))["state"] == "idle"
    notices = [message for message in await said(desk.http, id) if message["role"] == "notice"]
    assert [notice["extra"] for notice in notices] == [{"turn": "aborted"}] * 2
    assert not [ask async for ask in desk.broker.asks(state="asked")]


async def test_a_session_that_names_a_policy_leaves_nothing_to_the_desk(tmp_path: Path, agent: Scripted) -> None:
    own = Handling(question_policy="accept-first", question_timeout=60)
    async with serving(tmp_path, handling=own, staff=[agent]) as desk:
        decided = await start(desk.http, "database")
        await ended(desk.http, decided)
        assert texts(await said(desk.http, decided))[-1] == ("agent", "it is SQLite")
        forwarded = await start(desk.http, "database", question_policy="forward")
        assert (await desk.get(await asked(desk, forwarded)))["deadline"] is None
        bounded = await start(desk.http, "database", question_policy="forward", question_timeout=30)
        assert (await desk.get(await asked(desk, bounded)))["remaining"] > 1


# Refusals ---------------------------------------------------------------------------------------------------


async def test_what_cannot_be_started_is_refused_with_the_reason(desk: Served) -> None:
    clippy = await refused(
        desk.http.post("/v1/sessions", json={"agent": "clippy", "prompt": "x"}), 404, "plugin_not_found"
    )
    assert (clippy["name"], "scripted" in clippy["names"]) == ("clippy", True)
    for folder in ("/no/such/folder", __file__, "x" * 5000, "nul\0"):
        nowhere = {"agent": "scripted", "prompt": "x", "cwd": folder}
        assert "no folder" in (await refused(desk.http.post("/v1/sessions", json=nowhere), 422, "settings"))["message"]
    for wrong in ({}, {"agent": "scripted"}, {"agent": "scripted", "prompt": ""}, {"agent": "nul\0", "prompt": "x"}):
        await refused(desk.http.post("/v1/sessions", json=wrong), 400, "bad_request")
    for wrong in ({"mode": "yolo"}, {"stale_after": 0.5}, {"permission_policy": "accept-first"}, {"cwd": ""}):
        body = {"agent": "scripted", "prompt": "x", **wrong}
        await refused(desk.http.post("/v1/sessions", json=body), 400, "bad_request")
    assert (await told(desk.http.get("/v1/sessions"), 200))["sessions"] == []


async def test_a_session_nobody_knows_is_not_found(desk: Served) -> None:
    for id in ("nobody", "a/b", "nul\0", "x" * 5000):
        await refused(desk.http.get(session_path(id)), 404, "session_not_found")
        await refused(desk.http.get(session_path(id, "messages")), 404, "session_not_found")
        for action in STEERING:
            await refused(desk.http.post(session_path(id, action), json={"prompt": "x"}), 404, "session_not_found")
    await refused(desk.http.get("/v1/sessions/a/b/c"), 404, "not_found")


@pytest.mark.parametrize("query", ["wait=-1", "wait=301", "wait=nan", "wait=soon", "wait=1&wait=2", "later=1"])
async def test_a_query_that_cannot_be_read_is_refused(desk: Served, query: str) -> None:
    id = await start(desk.http, "hello")
    await refused(desk.http.get(f"{session_path(id)}?{query}"), 400, "bad_request")
    await refused(desk.http.get(f"{session_path(id, 'messages')}?{query}"), 400, "bad_request")
    await refused(desk.http.get(f"{session_path(id)}?after=1"), 400, "bad_request")
    for limit in ("0", "201", "many"):
        await refused(desk.http.get(f"{session_path(id, 'messages')}?limit={limit}"), 400, "bad_request")
    await refused(desk.http.get("/v1/agents?probe=2"), 400, "bad_request")
    await refused(desk.http.post(session_path(id, "prompt"), json={"prompt": 1}), 400, "bad_request")


async def test_a_place_to_read_on_from_may_be_any_text(desk: Served) -> None:
    id = await start(desk.http, "hello")
    await ended(desk.http, id)
    assert len(await said(desk.http, id, after="")) == 2
    for after in ("z", "\0", "ünïcode 😀"):
        await said(desk.http, id, after=after)
        await said(desk.http, id, before=after)


@pytest.mark.parametrize("id", ODD)
async def test_a_session_that_only_asked_may_have_any_id_and_cannot_be_steered(desk: Served, id: str) -> None:
    await desk.ask(id="build-7", origin={"agent": "claude", "session": id})
    session = await told(desk.http.get(session_path(id)), 200)
    assert (session["id"], session["managed"], session["state"]) == (id, False, "waiting")
    assert await said(desk.http, id) == []
    for action in STEERING:
        body = await refused(desk.http.post(session_path(id, action), json={"prompt": "x"}), 409, "session_ended")
        assert "not one that was started here" in body["message"]


async def test_the_client_raises_what_the_desk_said(desk: Served) -> None:
    id = await start(desk.http, "hello")
    await told(desk.http.post(session_path(id, "close")), 202)
    await ended(desk.http, id)
    async with Client(desk.url, token=desk.token, settings=desk.settings) as client:
        with pytest.raises(SessionEnded, match="is done; start a new one"):
            await client.call("POST", session_path(id, "prompt"), body={"prompt": "x"})
        with pytest.raises(SessionNotFound, match="nobody"):
            await client.call("GET", session_path("nobody"))


async def test_what_must_not_happen_twice_is_not_sent_again_where_nobody_knows_whether_it_did(tmp_path: Path) -> None:
    sent: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.append((await reader.readuntil(b"\r\n")).strip())
        if b"/healthz" in sent[-1]:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Client(url, token="t", settings=Settings(home=tmp_path)) as client:
            await client.call("GET", "/healthz")
            with pytest.raises(DeskBroke, match="`handraise sessions` shows it"):
                async with asyncio.timeout(5):
                    await client.call("POST", "/v1/sessions", body={}, once=True)
    assert sent == [b"GET /healthz HTTP/1.1", b"POST /v1/sessions HTTP/1.1"]


# Access -----------------------------------------------------------------------------------------------------


async def test_reading_takes_the_scope_answer_and_steering_the_scope_admin(desk: Served) -> None:
    id = await start(desk.http, "hello")
    await ended(desk.http, id)
    reads = ("/v1/sessions", session_path(id), session_path(id, "messages"), "/v1/agents")
    asks, answers = await desk.caller("ci", "ask"), await desk.caller("ana", "answer")
    for path in reads:
        await refused((await desk.client()).get(path), 401, "unauthorized")
        await refused(asks.get(path), 403, "forbidden")
        await told(answers.get(path), 200)
    await refused(answers.get("/v1/agents?probe=1"), 403, "forbidden")
    for caller in (asks, answers):
        body = {"agent": "scripted", "prompt": "x"}
        await refused(caller.post("/v1/sessions", json=body), 403, "forbidden")
        await refused(caller.post("/v1/sessions"), 403, "forbidden")
        for action in STEERING:
            await refused(caller.post(session_path(id, action), json={"prompt": "x"}), 403, "forbidden")
            await refused(caller.post(session_path("nobody", action)), 403, "forbidden")
    assert (await told(desk.http.get(session_path(id)), 200))["state"] == "idle"


async def test_the_agents_of_a_desk_are_listed_without_those_for_tests(desk: Served) -> None:
    listed = (await told(desk.http.get("/v1/agents"), 200))["agents"]
    names = [agent["agent"] for agent in listed]
    assert {"claude", "opencode"} <= set(names)
    assert "scripted" not in names
    assert names == sorted(names)
    assert all(agent["installed"] or agent["problem"] for agent in listed)


# Restarts and several desks ---------------------------------------------------------------------------------


async def test_a_turn_goes_on_after_a_restart_of_the_desk(lasting_database: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as after:
        async with serving(tmp_path, database=lasting_database, staff=[an_agent()]) as desk:
            id = await start(desk.http, "database")
            ask = await asked(desk, id)
            http = await after.enter_async_context(a_client(desk.url, desk.token))
            parked = asyncio.create_task(told(http.get(session_path(id), params={"wait": 60}), 200))
            await eventually(lambda: desk.broker.sessions.waits == 1)
        assert (await parked)["state"] == "waiting", "a desk that stops lets its callers go"
    async with serving(tmp_path, database=lasting_database, staff=[an_agent()]) as desk:
        assert (await told(desk.http.get(session_path(id)), 200))["state"] == "waiting"
        await desk.answer(ask, "Postgres")
        assert (await ended(desk.http, id))["state"] == "idle"
        assert texts(await said(desk.http, id)) == [("person", "database"), ("agent", "it is Postgres")]


async def test_a_session_is_steered_and_read_at_a_desk_that_does_not_have_it(
    new_database: Callable[[], str], tmp_path: Path
) -> None:
    address, here, there = new_database(), an_agent(), an_agent()
    async with (
        serving(tmp_path / "a", database=address, staff=[here]) as owner,
        serving(tmp_path / "b", database=address, staff=[there]) as other,
    ):
        id = await start(owner.http, "hello")
        assert (await ended(other.http, id))["state"] == "idle"
        taken = await told(other.http.post(session_path(id, "prompt"), json={"prompt": "database"}), 202)
        assert taken["state"] == "running"
        ask = await asked(other, id)
        reading = asyncio.create_task(said(other.http, id, after=(await said(other.http, id))[-1]["id"], wait=5))
        await other.answer(ask, "Postgres")
        assert texts(await reading)[-1] == ("agent", "it is Postgres")
        assert (await ended(other.http, id))["state"] == "idle"
        await told(other.http.post(session_path(id, "prompt"), json={"prompt": "database again"}), 202)
        again = (await first_event(other.broker, lambda event: isinstance(event, Asked) and event.ask.id != ask)).ask.id
        await told(other.http.post(session_path(id, "abort")), 202)
        assert (await ended(other.http, id))["state"] == "idle"
        await first_event(other.broker, lambda event: isinstance(event, Withdrawn) and event.ask.id == again)
        await told(other.http.post(session_path(id, "close")), 202)
        assert (await ended(owner.http, id))["state"] == "done"
        assert [prompted.text for prompted in here.prompted] == ["hello", "database", "database again"]
        assert there.prompted == []


async def test_what_is_started_at_a_desk_without_a_worker_is_run_by_one_that_has_one(
    new_database: Callable[[], str], tmp_path: Path
) -> None:
    address, agent = new_database(), an_agent()
    async with serving(tmp_path / "a", database=address, has_worker=False) as front:
        id = await start(front.http, "hello")
        assert (await told(front.http.get(session_path(id), params={"wait": 0.01}), 200))["state"] == "running"
        assert (await told(front.http.get("/v1/agents"), 200))["agents"] == []
        async with serving(tmp_path / "b", database=address, staff=[agent]):
            assert (await ended(front.http, id))["state"] == "idle"
            second = await start(front.http, "database")
            await front.answer(await asked(front, second), "SQLite")
            assert (await ended(front.http, second))["state"] == "idle"
    assert [prompted.session for prompted in agent.prompted] == [id, second]


async def test_asks_of_a_subagent_count_for_the_session_that_it_works_for(desk: Served) -> None:
    id = await start(desk.http, "hello")
    await ended(desk.http, id)
    await desk.ask(id="child", origin={"agent": "scripted", "session": "sub", "parent": id})
    assert (await told(desk.http.get(session_path(id)), 200))["open_asks"] == 1
    assert (await told(desk.http.get(session_path("sub")), 200))["parent"] == id
    await told(desk.http.post(path_of("child", "withdraw")), 200)
    assert (await told(desk.http.get(session_path(id)), 200))["open_asks"] == 0


# Repeated -----------------------------------------------------------------------------------------------------------


async def test_a_session_that_is_started_twice_under_one_id_is_one(desk: Served, agent: Scripted) -> None:
    body = {"agent": "scripted", "prompt": "hello", "id": "nightly-7", "question_timeout": 60}
    first = await told(desk.http.post("/v1/sessions", json=body), 201)
    assert first["id"] == "nightly-7"
    await ended(desk.http, "nightly-7")
    again = await told(desk.http.post("/v1/sessions", json=body), 200)
    assert (again["id"], again["state"]) == ("nightly-7", "idle")
    await told(desk.http.post(session_path("nightly-7", "prompt"), json={"prompt": "more"}), 202)
    await told(desk.http.post("/v1/sessions", json=body), 200)
    for other in ({"prompt": "something else"}, {"question_timeout": 61}, {"stale_after": 5}, {"mode": "plan"}):
        await refused(desk.http.post("/v1/sessions", json=body | other), 409, "session_differs")
    await ended(desk.http, "nightly-7")
    assert [prompt.text for prompt in agent.prompted] == ["hello", "more"]


async def test_two_calls_at_once_start_one_session(desk: Served, agent: Scripted) -> None:
    body = {"agent": "scripted", "prompt": "hello", "id": "once"}
    replies = await asyncio.gather(*(desk.http.post("/v1/sessions", json=body) for _ in range(5)))
    assert {reply.status_code for reply in replies} <= {200, 201}
    await ended(desk.http, "once")
    assert len(agent.prompted) == 1


@pytest.mark.parametrize("id", ["", ".", "..", "a/b", "a b", "\x1b[31m", "x" * 201, 7, "-x"])
async def test_an_id_that_is_none_is_refused(desk: Served, id: Any) -> None:
    body = {"agent": "scripted", "prompt": "hello", "id": id}
    await refused(desk.http.post("/v1/sessions", json=body), 400, "bad_request")


async def test_a_session_that_was_only_mentioned_keeps_its_id(desk: Served) -> None:
    await desk.ask(id="q", origin={"agent": "scripted", "session": "theirs"})
    body = {"agent": "scripted", "prompt": "hello", "id": "theirs"}
    await refused(desk.http.post("/v1/sessions", json=body), 409, "session_differs")


# Told again ---------------------------------------------------------------------------------------------------------


async def test_an_answer_that_was_not_taken_is_told_again_over_http(desk: Served, agent: Scripted) -> None:
    agent.on_failure("^fail", "it broke")
    id = await start(desk.http, "fail")
    await ended(desk.http, id)
    await desk.ask(id="lost", questions=[{"question": "Which port?"}], origin={"agent": "scripted", "session": id})
    await refused(desk.http.post(path_of("lost", "deliver")), 409, "nothing_to_deliver")
    await desk.answer("lost", "8080")
    await told(desk.http.post("/v1/deliveries", json={"deliveries": [{"id": "lost", "error": "its turn ended"}]}), 200)
    await refused((await desk.caller("asker", "ask")).post(path_of("lost", "deliver")), 403, "forbidden")
    await refused(desk.http.post(path_of("nobody", "deliver")), 404, "ask_not_found")
    ana = await desk.caller("ana", "answer")
    await told(ana.post(path_of("lost", "deliver")), 202)
    await first_event(desk.broker, lambda event: event.ask.id == "lost" and event.ask.delivered_at is not None)
    assert 'the answer is: "8080"' in agent.prompted[-1].text
    await refused(ana.post(path_of("lost", "deliver")), 409, "nothing_to_deliver")
    await desk.ask(id="theirs", origin={"agent": "x", "session": "elsewhere"})
    await desk.answer("theirs", "Postgres")
    await told(desk.http.post("/v1/deliveries", json={"deliveries": [{"id": "theirs", "error": "gone"}]}), 200)
    await refused(ana.post(path_of("theirs", "deliver")), 409, "session_ended")
