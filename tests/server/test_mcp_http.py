"""The question tool at the desk itself, by MCP over HTTP: the package's own client, a real desk, hostile callers."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Implementation

from handraise.asks import Ask, Handling
from handraise.mcp.tools import Caller, Place
from tests.helpers.serving import (
    PATIENCE,
    START,
    DeskProcess,
    Served,
    a_client,
    eventually,
    first_event,
    path_of,
    refused,
    serving,
    told,
)

OLD, NEW = "legacy", "2026-07-28"
ERAS = [OLD, NEW]
WHICH = {"questions": [{"question": "Which database?", "header": "DB", "options": ["SQLite", {"label": "Postgres"}]}]}
BASH = {"tool_name": "Bash", "input": {"command": "rm -rf build"}, "tool_use_id": "toolu_1"}
LOOK = {"wait_seconds": 0}
ACCEPT = {"Accept": "application/json, text/event-stream"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path / "home", database=database) as served:
        yield served


@pytest.fixture
async def small_desk(tmp_path: Path) -> AsyncIterator[Served]:
    """Where what is looked at does not depend on the database."""
    async with serving(tmp_path / "home", database="sqlite:///:memory:") as served:
        yield served


async def a_token(desk: Served, name: str = "laptop", *scopes: str) -> str:
    body = {"name": name, "scopes": scopes or ("ask",)}
    return str((await told(desk.http.post("/v1/tokens", json=body), 201))["token"])


@asynccontextmanager
async def an_agent(
    url: str, token: str, *, mode: str = OLD, name: str = "codex", settings: str = "", deletes: bool = True
) -> AsyncIterator[Client]:
    """A client of the desk's own MCP. `deletes`: it says that it ends, in the era in which that can be said."""
    async with a_client(url, token) as http:
        transport = streamable_http_client(f"{url}/mcp{settings}", http_client=http, terminate_on_close=deletes)
        async with Client(transport, mode=mode, client_info=Implementation(name=name, version="1")) as client:
            yield client


async def call(agent: Client, tool: str, arguments: Mapping[str, Any], **how: Any) -> CallToolResult:
    async with asyncio.timeout(START):
        return await agent.call_tool(tool, dict(arguments), **how)


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content]  # type: ignore[union-attr]


def result_of(result: CallToolResult) -> dict[str, Any]:
    """The JSON of a result that is none of an error."""
    assert not result.is_error, texts(result)
    parsed: dict[str, Any] = json.loads(texts(result)[0])
    return parsed


async def happened(desk: Served, type: str, *, number: int = 1) -> Ask:
    """The ask of the first, second, … event of that type."""
    seen = 0

    def is_it(event: Any) -> bool:
        nonlocal seen
        seen += event.type == type
        return seen == number

    found: Any = await first_event(desk.broker, is_it)
    ask: Ask = found.ask
    return ask


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def count(desk: Served) -> int:
    return len((await told(desk.http.get("/v1/asks"), 200))["asks"])


# Questions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_a_question_is_answered_and_only_then_delivered(mode: str, desk: Served) -> None:
    heard = asyncio.Event()

    async def progress(at: float, total: float | None, message: str | None) -> None:
        heard.set()

    async with an_agent(desk.url, await a_token(desk), mode=mode) as agent, asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call(agent, "question", WHICH, progress_callback=progress))
        ask = await happened(desk, "asked")
        await asyncio.wait_for(heard.wait(), PATIENCE)
        assert (ask.origin.agent, ask.origin.cwd, ask.origin.machine) == ("codex", None, socket.gethostname())
        assert ask.origin.session.startswith("mcp:")
        assert ask.id.startswith("@laptop:mcp_")
        assert (await desk.answer(ask.id, "Postgres"))["delivered_at"] is None
        result = await calling
        assert result_of(result) == {"status": "answered", "answers": [["Postgres"]], "request_id": ask.id}
        assert texts(result)[1] == 'The answer: DB → "Postgres".'
        assert (await happened(desk, "delivered")).id == ask.id


@pytest.mark.parametrize("mode", ERAS)
async def test_a_question_that_takes_long_is_pending_and_picked_up(mode: str, desk: Served) -> None:
    async with an_agent(desk.url, await a_token(desk), mode=mode, settings="?limit=1") as agent:
        pending = result_of(await call(agent, "question", WHICH))
        id = pending["request_id"]
        assert pending == {"status": "pending", "request_id": id}
        assert (await desk.answer(id, "SQLite"))["delivered_at"] is None
        result = await call(agent, "question_result", {"request_id": id})
        assert result_of(result) == {"status": "answered", "answers": [["SQLite"]], "request_id": id}
        assert (await happened(desk, "delivered")).id == id


@pytest.mark.parametrize("mode", ERAS)
async def test_a_call_that_was_given_up_leaves_the_question_and_the_same_one_joins(mode: str, desk: Served) -> None:
    async with an_agent(desk.url, await a_token(desk), mode=mode) as agent, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(call(agent, "question", WHICH))
        ask = await happened(desk, "asked")
        await cancelled(first)
        await eventually(lambda: desk.broker.waits == 0)
        again = {"questions": [{**WHICH["questions"][0], "question": " Which database? "}]}
        second = tasks.create_task(call(agent, "question", again))
        await eventually(lambda: desk.broker.waits == 1)
        await desk.answer(ask.id, "SQLite")
        assert result_of(await second) == {"status": "answered", "answers": [["SQLite"]], "request_id": ask.id}
        assert await count(desk) == 1


@pytest.mark.parametrize("mode", ERAS)
async def test_an_answer_to_a_call_that_had_gone_is_kept_for_the_next(mode: str, desk: Served) -> None:
    async with an_agent(desk.url, await a_token(desk), mode=mode) as agent, asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call(agent, "question", WHICH))
        ask = await happened(desk, "asked")
        await cancelled(calling)
        await eventually(lambda: desk.broker.waits == 0)
        assert (await desk.answer(ask.id, "SQLite"))["delivered_at"] is None
        assert (await desk.get(ask.id))["delivered_at"] is None
        assert result_of(await call(agent, "question", WHICH))["request_id"] == ask.id
        await happened(desk, "delivered")
        # What was taken is over: the same question is a new one.
        calling = tasks.create_task(call(agent, "question", WHICH))
        newer = await happened(desk, "asked", number=2)
        assert newer.id != ask.id
        await desk.answer(newer.id, "Postgres")
        assert result_of(await calling)["answers"] == [["Postgres"]]


@pytest.mark.parametrize(("first", "then"), [(OLD, OLD), (OLD, NEW), (NEW, OLD), (NEW, NEW)])
async def test_a_question_is_picked_up_from_another_connection(first: str, then: str, desk: Served) -> None:
    token = await a_token(desk)
    async with an_agent(desk.url, token, mode=first, settings="?limit=1", deletes=False) as agent:
        id = result_of(await call(agent, "question", WHICH))["request_id"]
    await desk.answer(id, "SQLite")
    async with an_agent(desk.url, token, mode=then) as agent:
        assert result_of(await call(agent, "question_result", {"request_id": id}))["answers"] == [["SQLite"]]
        await happened(desk, "delivered")


async def test_where_there_are_no_sessions_the_same_question_joins_from_another_connection(desk: Served) -> None:
    token = await a_token(desk)
    ids = set()
    for _ in range(2):
        async with an_agent(desk.url, token, mode=NEW, settings="?limit=1") as agent:
            ids.add(result_of(await call(agent, "question", WHICH))["request_id"])
    assert len(ids) == 1
    assert (await desk.get(ids.pop()))["origin"]["session"] == "mcp:laptop:codex"


async def test_two_sessions_that_ask_the_same_are_two_agents(desk: Served) -> None:
    token = await a_token(desk)
    async with an_agent(desk.url, token, settings="?limit=1") as one, an_agent(desk.url, token) as other:
        mine = result_of(await call(one, "question", WHICH))["request_id"]
        async with asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(call(other, "question", WHICH))
            theirs = await happened(desk, "asked", number=2)
            assert theirs.id != mine
            assert theirs.origin.session == "mcp:laptop:codex:2"
            await desk.answer(theirs.id, "Postgres")
            await calling
        assert (await desk.get(mine))["state"] == "asked"


@pytest.mark.parametrize("mode", ERAS)
async def test_another_token_sees_nothing(mode: str, desk: Served) -> None:
    mine, theirs = await a_token(desk), await a_token(desk, "other")
    async with (
        an_agent(desk.url, mine, mode=mode, settings="?limit=1") as agent,
        an_agent(desk.url, theirs, mode=mode, settings="?limit=1") as other,
    ):
        id = result_of(await call(agent, "question", WHICH))["request_id"]
        await desk.answer(id, "SQLite")
        for told_id in (id, id.partition(":")[2]):
            result = await call(other, "question_result", {"request_id": told_id, **LOOK})
            assert result.is_error and "there is no question" in texts(result)[0]
        async with an_agent(desk.url, desk.token, mode=mode) as admin:
            assert (await call(admin, "question_result", {"request_id": id, **LOOK})).is_error
        # The same content under the same name is an ask of its own.
        assert result_of(await call(other, "question", WHICH))["request_id"].startswith("@other:")
        assert result_of(await call(agent, "question_result", {"request_id": id}))["answers"] == [["SQLite"]]


async def test_the_address_says_which_conversation_it_is(small_desk: Served) -> None:
    token = await a_token(small_desk)
    settings = "?session=release&cwd=%2Fsrv%2Fshop&limit=1"
    for mode in ERAS:
        async with an_agent(small_desk.url, token, mode=mode, settings=settings, deletes=False) as agent:
            id = result_of(await call(agent, "question", WHICH))["request_id"]
    origin = (await small_desk.get(id))["origin"]
    assert (origin["session"], origin["cwd"]) == ("release", "/srv/shop")
    assert await count(small_desk) == 1


@pytest.mark.parametrize("mode", ERAS)
async def test_the_agent_says_which_conversation_asks(mode: str, small_desk: Served) -> None:
    async with an_agent(small_desk.url, await a_token(small_desk), mode=mode, settings="?limit=1") as agent:
        meta: Any = {"threadId": "thread-7"}
        id = result_of(await call(agent, "question", WHICH, meta=meta))["request_id"]
        assert (await small_desk.get(id))["origin"]["session"] == "thread-7"


async def test_the_policy_of_the_desk_decides(tmp_path: Path) -> None:
    handling = Handling(question_policy="accept-first")
    async with serving(tmp_path, handling=handling) as desk, an_agent(desk.url, await a_token(desk)) as agent:
        result = await call(agent, "question", WHICH)
        assert result_of(result)["answers"] == [["SQLite"]]
        assert "No person was asked" in texts(result)[1]


async def test_malformed_arguments_are_corrected_and_nobody_is_asked(small_desk: Served) -> None:
    async with an_agent(small_desk.url, await a_token(small_desk)) as agent:
        for tool, arguments in (("question", {"questions": [{}]}), ("question_result", {}), ("unknown", {})):
            assert (await call(agent, tool, arguments)).is_error
    assert await count(small_desk) == 0


def test_a_client_that_hears_nothing_until_the_result_gets_one_before_it_gives_up() -> None:
    async def silent(at: float, message: str) -> None: ...

    def limit(*, wants_progress: bool, **place: float) -> float:
        here = Place(otherwise="s", **place)
        return Caller(name="c", place=here, meta={}, wants_progress=wants_progress, progress=silent).limit

    assert limit(wants_progress=False) < 50 < limit(wants_progress=True) < 300
    assert limit(wants_progress=True, limit=7.0) == 7


# Permissions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_a_permission_is_decided_and_withdrawn_with_its_call(mode: str, desk: Served) -> None:
    async with an_agent(desk.url, await a_token(desk), mode=mode) as agent, asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call(agent, "permission_prompt", BASH))
        ask = await happened(desk, "asked")
        await told(desk.http.post(path_of(ask.id, "answer"), json={"reply": "once"}), 200)
        assert result_of(await calling) == {"behavior": "allow", "updatedInput": {"command": "rm -rf build"}}
        await happened(desk, "delivered")
        calling = tasks.create_task(call(agent, "permission_prompt", BASH))
        await happened(desk, "asked", number=2)
        await cancelled(calling)
        assert (await happened(desk, "withdrawn")).withdrawn_reason == "the agent gave up the call"


@pytest.mark.parametrize("mode", ERAS)
async def test_what_one_agent_was_granted_does_not_fall_to_another(mode: str, small_desk: Served) -> None:
    token = await a_token(small_desk)
    nameless = {key: value for key, value in BASH.items() if key != "tool_use_id"}
    async with an_agent(small_desk.url, token, mode=mode, deletes=False) as agent:
        calling = asyncio.create_task(call(agent, "permission_prompt", nameless))
        ask = await happened(small_desk, "asked")
        await told(small_desk.http.post(path_of(ask.id, "answer"), json={"reply": "once"}), 200)
        assert result_of(await calling)["behavior"] == "allow"
    async with an_agent(small_desk.url, token, mode=mode, deletes=False) as agent, asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(call(agent, "permission_prompt", nameless)) for _ in range(2)]
        asks = [await happened(small_desk, "asked", number=number) for number in (2, 3)]
        assert len({ask.id, *(each.id for each in asks)}) == 3
        for each in calls:
            await cancelled(each)


# Coming and going ---------------------------------------------------------------------------------------------------


async def test_a_session_that_is_deleted_withdraws_what_nobody_took(desk: Served) -> None:
    async with an_agent(desk.url, await a_token(desk), settings="?limit=1") as agent:
        left = result_of(await call(agent, "question", WHICH))["request_id"]
        other = {"questions": [{"question": "Which name?"}]}
        answered = result_of(await call(agent, "question", other))["request_id"]
        await desk.answer(answered, "Bird")
    assert (await happened(desk, "withdrawn")).withdrawn_reason == "the agent that asked is gone"
    assert (await desk.get(left))["state"] == "withdrawn"
    await happened(desk, "delivered")
    assert "had not taken the answer" in (await desk.get(answered))["delivery_error"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_just_leaves_withdraws_nothing(mode: str, desk: Served) -> None:
    async with an_agent(desk.url, await a_token(desk), mode=mode, deletes=False) as agent:
        calling = asyncio.create_task(call(agent, "question", WHICH))
        ask = await happened(desk, "asked")
        await cancelled(calling)
    assert (await desk.get(ask.id))["state"] == "asked"


async def test_nobody_deletes_the_session_of_another_token(small_desk: Served) -> None:
    mine, theirs = await small_desk.caller("mine", "ask"), await small_desk.caller("theirs", "ask")
    session = await opened(mine)
    asking = asyncio.create_task(posted(mine, "tools/call", {"name": "question", "arguments": WHICH}, session=session))
    ask = await happened(small_desk, "asked")
    for other in (theirs, small_desk.http):
        assert (await other.delete("/mcp", headers=session)).status_code == 404
        assert (await posted(other, "tools/list", {}, session=session)).status_code == 404
    await small_desk.answer(ask.id, "SQLite")
    assert "SQLite" in (await asking).text
    assert (await mine.delete("/mcp", headers=session)).status_code == 200
    assert (await posted(mine, "tools/list", {}, session=session)).status_code == 404


@pytest.mark.parametrize("mode", ERAS)
async def test_a_question_outlasts_a_restart_of_the_desk(mode: str, tmp_path: Path) -> None:
    async with DeskProcess(tmp_path / "home") as desk:
        async with desk.client() as http:
            token = (await told(http.post("/v1/tokens", json={"name": "laptop", "scopes": ["ask"]}), 201))["token"]
        async with an_agent(desk.url, token, mode=mode, settings="?limit=1", deletes=False) as agent:
            id = result_of(await call(agent, "question", WHICH))["request_id"]
            await desk.kill()
        await desk.start()
        async with desk.client() as http:
            await told(http.post(path_of(id, "answer"), json={"answers": [["SQLite"]]}), 200)
        for tool, arguments in (("question", WHICH), ("question_result", {"request_id": id})):
            async with an_agent(desk.url, token, mode=mode) as agent:
                result = await call(agent, tool, arguments)
                assert result_of(result) == {"status": "answered", "answers": [["SQLite"]], "request_id": id}


@pytest.mark.parametrize("mode", ERAS)
async def test_calls_end_with_the_desk_and_their_asks_stay_open(
    mode: str, tmp_path: Path, lasting_database: str
) -> None:
    home = tmp_path / "home"
    async with asyncio.TaskGroup() as tasks:
        async with serving(home, database=lasting_database) as desk:
            token = await a_token(desk)

            async def asks() -> list[dict[str, Any]]:
                async with an_agent(desk.url, token, mode=mode, deletes=False) as agent, asyncio.TaskGroup() as both:
                    await agent.list_tools()  # else the client does so after its first call
                    question = both.create_task(call(agent, "question", WHICH))
                    permission = both.create_task(call(agent, "permission_prompt", BASH))
                return [result_of(question.result()), result_of(permission.result())]

            asking = tasks.create_task(asks())
            ids = [(await happened(desk, "asked", number=number)).id for number in (1, 2)]
        question, permission = await asyncio.wait_for(asking, PATIENCE)
    assert question["status"] == "pending" and question["request_id"] in ids
    assert permission["behavior"] == "deny" and "stopping" in permission["message"]
    async with serving(home, database=lasting_database) as desk:
        assert [(await desk.get(id))["state"] for id in ids] == ["asked", "asked"]


# At the door --------------------------------------------------------------------------------------------------------


async def posted(
    client: httpx2.AsyncClient, method: str, params: Any, *, session: Mapping[str, str] | None = None, **headers: str
) -> httpx2.Response:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await client.post("/mcp", json=message, headers={**ACCEPT, **(session or {}), **headers})


async def opened(client: httpx2.AsyncClient) -> dict[str, str]:
    """The headers of a new session in the older era."""
    hello = await posted(client, "initialize", HELLO)
    assert hello.status_code == 200, hello.text
    session = {"Mcp-Session-Id": hello.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await client.post("/mcp", json=ready, headers={**ACCEPT, **session})).status_code == 202
    return session


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_nothing_is_to_be_had_without_a_token_that_may_ask(method: str, small_desk: Served) -> None:
    nobody = await small_desk.client()
    await refused(nobody.request(method, "/mcp"), 401, "unauthorized")
    reader = await small_desk.caller("reader", "answer")
    await refused(reader.request(method, "/mcp"), 403, "forbidden")
    page = await small_desk.caller("page", "ask")
    await refused(page.request(method, "/mcp", headers={"Origin": "https://evil.example"}), 403, "forbidden")
    await refused(page.request(method, "/mcp", headers={"Host": "evil.example"}), 403, "forbidden")


async def test_every_request_of_a_session_needs_the_token(small_desk: Served) -> None:
    client = await small_desk.caller("laptop", "ask")
    session = await opened(client)
    await told(small_desk.http.request("GET", "/v1/tokens"), 200)
    assert (await small_desk.http.delete("/v1/tokens/laptop")).status_code == 204
    assert (await posted(client, "tools/list", {}, session=session)).status_code == 401


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        pytest.param(b"{", {}, 400, id="no JSON"),
        pytest.param(b"\xff\xfe", {}, 400, id="no text"),
        pytest.param(b"[" * 100_000, {}, 400, id="nested deep"),
        pytest.param(b"[]", {}, 400, id="a batch"),
        pytest.param(b'"initialize"', {}, 400, id="a text"),
        pytest.param(b'{"jsonrpc": "1.0", "id": 1, "method": "x"}', {}, 400, id="another JSON-RPC"),
        pytest.param(b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}', {}, 400, id="no session"),
        pytest.param(b"{}", {"MCP-Protocol-Version": "1999-01-01"}, 400, id="an unknown era"),
        pytest.param(b"{}", {"Content-Type": "text/plain"}, 400, id="another type"),
        pytest.param(b"{}", {"Accept": "text/html"}, 406, id="nothing we have is wanted"),
        pytest.param(b"{}", {"Mcp-Session-Id": "x" * 1000}, 404, id="an unknown session"),
        pytest.param(b" " * (4 * 1024 * 1024 + 1), {}, 413, id="too large"),
    ],
)
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_what_is_malformed_is_refused_at_once(
    content: bytes, headers: dict[str, str], status: int, era: str, small_desk: Served
) -> None:
    client = await small_desk.caller("laptop", "ask")
    given = {"Content-Type": "application/json", "MCP-Protocol-Version": era, **ACCEPT, **headers}
    async with asyncio.timeout(PATIENCE):
        response = await client.post("/mcp", content=content, headers=given)
    if status == 404 and era == "2026-07-28":
        status = 400  # there are no sessions
    assert response.status_code == status, response.text
    assert await count(small_desk) == 0


async def test_a_hostile_call_hurts_nobody(small_desk: Served) -> None:
    client = await small_desk.caller("laptop", "ask")
    session = await opened(client)
    for params in (
        None,
        [],
        {"name": 7},
        {"name": "question", "arguments": []},
        {"name": "question", "arguments": {"questions": "x"}},
        {"name": "\x1b[2J" * 1000, "arguments": {}},
        {"name": "question_result", "arguments": {"request_id": "x" * 100_000, "wait_seconds": 1e308}},
        {"name": "question", "arguments": {"questions": [{"question": "x" * 1_000_000}]}},
    ):
        async with asyncio.timeout(PATIENCE):
            response = await posted(client, "tools/call", params, session=session)
        assert response.status_code in (200, 400), response.text
        assert "error" in response.text or '"isError":true' in response.text
    assert (await posted(client, "tools/list", {}, session=session)).status_code == 200
    assert await count(small_desk) == 0


@pytest.mark.parametrize("settings", ["?limit=0", "?limit=nan", "?limit=1e9", "?session=%1B", "?cwd=", "?other=1"])
async def test_an_address_with_odd_settings_is_refused(settings: str, small_desk: Served) -> None:
    await refused(small_desk.http.get(f"/mcp{settings}"), 400, "bad_request")


async def test_a_connection_that_is_cut_in_the_older_era_keeps_the_answer(small_desk: Served) -> None:
    client = await small_desk.caller("laptop", "ask")
    session = await opened(client)
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "question", "arguments": WHICH}}
    async with client.stream("POST", "/mcp", json=message, headers={**ACCEPT, **session}) as response:
        assert response.status_code == 200
        ask = await happened(small_desk, "asked")
    await small_desk.answer(ask.id, "SQLite")
    again = {"name": "question", "arguments": WHICH}
    assert ask.id in (await posted(client, "tools/call", again, session=session)).text
    assert (await happened(small_desk, "delivered")).id == ask.id
    assert await count(small_desk) == 1


async def test_streams_of_sessions_do_not_hold_up_a_desk_that_stops(tmp_path: Path) -> None:
    async with DeskProcess(tmp_path / "home") as desk, desk.client() as client:
        session = await opened(client)
        async with client.stream("GET", "/mcp", headers={**session, "Accept": "text/event-stream"}) as stream:
            assert stream.status_code == 200
            assert await desk.stop() == 0
            chunks: Any = stream.aiter_bytes()
            async with asyncio.timeout(PATIENCE), aclosing(chunks):
                async for _ in chunks:
                    pass
        assert "Cancel" not in desk.log.read_text()  # as uvicorn says when it has waited in vain


async def test_a_desk_without_the_package_says_the_name_of_its_extra(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules |= {'mcp': None, 'mcp_types': None}; "
        "sys.argv = ['handraise', 'serve', '--port', '0']; "
        "from handraise.cli import main; main()"
    )
    mine = {key: value for key, value in os.environ.items() if not key.startswith("HANDRAISE_")}
    desk = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-c", script),
        env={**mine, "HANDRAISE_HOME": str(tmp_path)},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        assert desk.stdout is not None
        url = (await asyncio.wait_for(desk.stdout.readline(), START)).decode().split()[-1]
        async with a_client(url, (tmp_path / "token").read_text().strip()) as client:
            for _ in range(2):
                said = await refused(client.get("/mcp"), 501, "extra_missing")
            assert "handraise[mcp]" in said["message"]
            assert (await client.get("/healthz")).status_code == 200
    finally:
        desk.terminate()
        await desk.communicate()


async def test_what_is_called_is_there_for_the_inspector_without_secrets(desk: Served) -> None:
    secret = "ghp_" + "a1B2" * 9
    asks = {"questions": [{**WHICH["questions"][0], "question": f"Is {secret} the token?"}]}
    async with an_agent(desk.url, await a_token(desk), mode="legacy") as agent, asyncio.TaskGroup() as tasks:
        calling = tasks.create_task(call(agent, "question", asks))
        ask = await happened(desk, "asked")
        await desk.answer(ask.id, ask.questions[0].options[0].value)
        await calling
        path = f"/v1/sessions/{quote(ask.origin.session, safe='')}/wire"
        async with asyncio.timeout(PATIENCE):
            while len(found := (await told(desk.http.get(path), 200))["wire"]) < 2:
                await asyncio.sleep(0.02)
    assert [(each["way"], each["name"]) for each in found] == [("in", "tools/call"), ("out", "tools/call")]
    assert "arguments" in str(found[0]["body"]) and secret not in str(found)
    assert found[1]["ask"] == ask.id
