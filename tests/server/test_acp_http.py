"""S4: agents over ACP for clients by HTTP, with a client that was written against the document that asked for it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from starlette.types import ASGIApp

from handraise.agents import AgentSettings
from handraise.agents.acp.answers import declined, to_answer
from handraise.agents.acp.backlog import Backlog, Overrun
from handraise.agents.acp.proxy import Caller, Proxy
from handraise.agents.acp.translate import METHODS, from_answer, to_ask
from handraise.asks import Answer, Ask, Handling, Origin, fit
from handraise.broker import Broker
from handraise.broker.counts import Lag
from handraise.clock import SystemClock
from handraise.config import AgentTable
from handraise.errors import AnswerDoesNotFit, MessagesGone
from handraise.server import create_app
from handraise.server.routes.acp import Acp
from handraise.server.routes.api import SignIn
from handraise.tables.tokens import Tokens
from handraise.testing import FakeClock
from handraise.transports.process import Started, is_running
from handraise.worker import Agents, Worker
from tests.helpers.raw_acp_agent import ASKS
from tests.helpers.seed_client import QUESTION, Json, SeedClient, connected
from tests.helpers.serving import DeskProcess, Served, eventually, listening, path_of, refused, serving, told
from tests.helpers.trusting import trust_project

RAW = (sys.executable, str(Path(__file__).parents[1] / "helpers" / "raw_acp_agent.py"))
PLAYER = (sys.executable, "-m", "handraise.testing.acp_agent")
PATIENCE = 20.0  # seconds for a conversation with a program in Python, on a busy machine
TABLES = {"raw": AgentTable(command=RAW), "player": AgentTable(command=PLAYER)}
ORIGIN = Origin(agent="acp", session="s1")
SELECTED = {"outcome": {"outcome": "selected", "optionId": "now"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
ANSWERED = {"status": "answered", "answers": [["option-a"]]}


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path, agents=TABLES, database="sqlite:///:memory:") as running:
        yield running


@pytest.fixture
async def client(desk: Served) -> AsyncIterator[SeedClient]:
    """A client that has begun with the raw agent and reads its stream."""
    async with a_reader(desk) as reader:
        yield reader


@asynccontextmanager
async def a_reader(desk: Served, server: str = "demo", agent: str = "raw") -> AsyncIterator[SeedClient]:
    async with connected(desk.url, desk.token, server) as client:
        await client.begin(agent)
        async with client.reading():
            yield client


@asynccontextmanager
async def asking(client: SeedClient, text: str, *methods: str) -> AsyncIterator[list[Json]]:
    """A turn under way; what it asks, once a client has heard it. Leaving waits for the end of the turn."""
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        turn = tasks.create_task(client.prompt(text))
        yield [await client.hear_method(method) for method in methods]
        ended = await turn
        assert ended["result"] == {"stopReason": "end_turn"}
        assert await client.hear_response(ended["id"]) == ended, "the stream has it too"


async def play(client: SeedClient, text: str) -> None:
    """A turn that needs nobody."""
    async with asking(client, text):
        pass


async def the_ask(desk: Served, *, state: str | None = None) -> Ask:
    asks = [ask async for ask in desk.broker.asks() if state is None or ask.state == state]
    assert len(asks) == 1, asks
    return asks[0]


async def listed(desk: Served) -> list[Json]:
    servers: list[Json] = (await told(desk.http.get("/v1/acp"), 200))["servers"]
    return servers


async def told_of(desk: Served, *, messages: int) -> None:
    """Once the one agent that runs here has said so much, whether or not somebody reads it."""
    async with asyncio.timeout(PATIENCE):
        while (await listed(desk))[0]["lastEventId"] < messages:
            await asyncio.sleep(0)


def echoed(client: SeedClient) -> list[Any]:
    """What the raw agent says that it was sent, one entry for each word of its prompt."""
    entries: list[Any] = json.loads(client.said)
    return entries


# What the agent asks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "result", "state", "answer"),
    [
        ("question", ANSWERED, "answered", [["option-a"]]),
        ("question", {"status": "answered", "answers": [["Option B"]], "_meta": {"x": 1}}, "answered", [["option-b"]]),
        ("question", {"status": "rejected"}, "rejected", None),
        ("several", {"status": "answered", "answers": [["SQLite", "Postgres"], ["why not"]]}, "answered", None),
        ("permission", SELECTED, "answered", "once"),
        ("permission", {"outcome": {"outcome": "selected", "optionId": "forever"}, "x": []}, "answered", "always"),
        ("permission", {"outcome": {"outcome": "selected", "optionId": "no"}}, "rejected", "reject"),
        ("permission", {"outcome": {"outcome": "cancelled"}}, "rejected", "reject"),
        ("qwen", {**SELECTED, "answers": {"0": "Postgres"}}, "answered", [["Postgres"]]),
        ("qwen", {"outcome": {"outcome": "cancelled"}}, "rejected", None),
        (
            "form",
            {"action": "accept", "content": {"db": "sqlite", "copies": 3, "parts": ["api"], "fast": False, "own": 1}},
            "answered",
            [["sqlite"], ["3"], ["api"], ["false"]],
        ),
        ("form", {"action": "accept", "content": {"db_custom": "DuckDB"}}, "answered", [["DuckDB"], [], [], []]),
        ("form", {"action": "decline"}, "rejected", None),
        ("form", {"action": "cancel"}, "rejected", None),
        ("url", {"action": "accept"}, "answered", [["Done"]]),
    ],
)
async def test_what_a_client_answers_reaches_the_agent_as_it_was_sent(
    desk: Served, client: SeedClient, word: str, result: Json, state: str, answer: Any
) -> None:
    method, params = ASKS[word]
    async with asking(client, word, method) as (asked,):
        assert asked == {
            "jsonrpc": "2.0",
            "id": "ask-1",
            "method": method,
            "params": {"sessionId": client.session, **params},
        }
        accepted = await client.answer("ask-1", result=result)
        assert (accepted.status_code, accepted.content) == (202, b"")
    assert echoed(client) == [{"jsonrpc": "2.0", "id": "ask-1", "result": result}]
    settled = await the_ask(desk)
    assert settled.answer is not None
    assert (settled.state, settled.answer.by, settled.answer.via) == (state, desk.admin, "acp")
    if answer is not None:
        given = settled.answer.reply or [list(values) for values in settled.answer.answers or ()]
        assert given == answer
    over = await client.hear_method("$/cancel_request")
    who = {"state": state, "by": desk.admin, "via": "acp"}
    assert over["params"] == {"requestId": "ask-1", "_meta": {"handraise": who}}
    await eventually_delivered(desk, settled.id)


async def eventually_delivered(desk: Served, id: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async for event in desk.broker.events(after=0):
            if event.type == "delivered" and event.ask.id == id:
                assert event.ask.delivery_error is None
                return


async def test_an_agent_of_the_official_package_asks_in_every_form(desk: Served) -> None:
    async with a_reader(desk, agent="player") as client:
        words = [("form", "elicitation/create"), ("permission", "session/request_permission"), ("question", QUESTION)]
        results: list[Json] = [
            {"action": "accept", "content": {"question_0": "Postgres"}},
            SELECTED,
            {"status": "answered", "answers": [["pg"]]},
        ]
        async with asking(client, "SCRIPT: form permission question url"):
            for (_, method), result in zip(words, results, strict=True):
                asked = await client.hear_method(method)
                assert (await client.answer(asked["id"], result=result)).status_code == 202
            asked = await client.hear(lambda message: message.get("params", {}).get("mode") == "url")
            assert (await client.answer(asked["id"], result={"action": "accept"})).status_code == 202
        assert json.loads(client.said) == [*results, {"action": "accept"}]
    permission = [ask.permission async for ask in desk.broker.asks()][1]
    assert permission is not None and permission.diff is not None, "what the call said before is known"
    assert [ask.origin.cwd async for ask in desk.broker.asks()] == ["/work"] * 4


async def test_whoever_answers_first_at_the_desk_counts_and_the_client_hears_that_it_is_over(
    desk: Served, client: SeedClient
) -> None:
    ana = await desk.caller("ana", "answer")
    async with asking(client, "question", QUESTION):
        ask = await the_ask(desk)
        await told(ana.post(path_of(ask.id, "answer"), json={"answers": [["Option B"]]}), 200)
        over = await client.hear_method("$/cancel_request")
        assert over["params"]["requestId"] == "ask-1"
        assert over["params"]["_meta"]["handraise"] == {"state": "answered", "by": "ana", "via": "http"}
    assert echoed(client)[0]["result"] == {"status": "answered", "answers": [["option-b"]]}
    lost = await refused(client.answer("ask-1", result=ANSWERED), 409, "already_answered")
    assert (lost["by"], lost["answer"]["answers"]) == ("ana", [["option-b"]]) and lost["at"]
    same = {"status": "answered", "answers": [["option-b"]]}
    assert (await client.answer("ask-1", result=same)).status_code == 202, "the same again is fine"


async def test_of_many_answers_at_once_one_counts_and_the_agent_hears_that_one(
    desk: Served, client: SeedClient
) -> None:
    async with asking(client, "question", QUESTION):
        results = [{"status": "answered", "answers": [[f"my {n}"]]} for n in range(20)]
        said = await asyncio.gather(*(client.answer("ask-1", result=result) for result in results))
    (winner,) = [result for result, response in zip(results, said, strict=True) if response.status_code == 202]
    assert {response.status_code for response in said} == {202, 409}
    assert [entry["result"] for entry in echoed(client)] == [winner]


async def test_what_policy_answers_no_client_hears(tmp_path: Path) -> None:
    handling = Handling(question_policy="accept-first")
    async with serving(tmp_path, agents=TABLES, handling=handling) as desk, a_reader(desk) as client:
        await play(client, "question")
        told = echoed(client)[0]["result"]
        assert told.pop("_meta")["handraise"]["by"] == "policy:accept-first"
        assert told == ANSWERED
        assert not [message for message in client.heard if message.get("method") in (QUESTION, "$/cancel_request")]
        await refused(client.answer("ask-1", result=ANSWERED), 404, "request_not_found")


async def test_a_question_is_answered_by_the_routes_of_its_session(desk: Served, client: SeedClient) -> None:
    (server,) = await listed(desk)
    session = f"/v1/sessions/{quote(server['session'], safe='')}"
    async with asking(client, "question several", QUESTION):
        events = desk.http.stream("GET", f"{session}/events", params={"after": 0})
        async with asyncio.timeout(PATIENCE), events as response:
            lines = response.aiter_lines()
            for action, body in (("reply", {"answers": [["option-a"]]}), ("reject", None)):
                while True:
                    line = await anext(lines)
                    if line.startswith("data:") and "requested" in line:
                        break
                asked = json.loads(line.removeprefix("data: "))
                path = f"{session}/questions/{quote(asked['question_id'], safe='')}/{action}"
                assert (await desk.http.post(path, json=body)).status_code == 204
    assert [entry["result"] for entry in echoed(client)] == [ANSWERED, {"status": "rejected"}]


async def test_what_was_on_the_wire_is_kept_with_the_ask(desk: Served, client: SeedClient) -> None:
    async with asking(client, "question", QUESTION) as (asked,):
        await client.answer(asked["id"], result=ANSWERED)
    ask = await the_ask(desk)
    path, wires = f"/v1/sessions/{quote(ask.origin.session, safe='')}/wire", list[Json]()
    async with asyncio.timeout(PATIENCE):
        while "session/prompt" not in [wire["name"] for wire in wires if wire["way"] == "in"]:  # which ends the turn
            after = wires[-1]["id"] if wires else ""
            wires += (await told(desk.http.get(path, params={"after": after, "wait": 5}), 200))["wire"]
    sent, got = (await told(desk.http.get(path, params={"ask": ask.id}), 200))["wire"]
    assert (sent["way"], sent["name"], got["way"], got["name"]) == ("in", QUESTION, "out", QUESTION)
    assert sent["body"] == asked and got["body"]["result"] == ANSWERED


async def test_an_error_declines(desk: Served, client: SeedClient) -> None:
    async with asking(client, "permission question form", "session/request_permission"):
        error = {"code": -32601, "message": "no such method"}
        assert (await client.answer("ask-1", error=error)).status_code == 202
        for number, method in ((2, QUESTION), (3, "elicitation/create")):
            await client.hear_method(method)
            assert (await client.answer(f"ask-{number}", error=error)).status_code == 202
            assert (await the_ask(desk, state="asked")).answer is None, "who does not know it decides nothing"
            declining = {"code": -32000, "message": "not today"}
            assert (await client.answer(f"ask-{number}", error=declining)).status_code == 202
    assert [entry["result"] for entry in echoed(client)] == [
        {"outcome": {"outcome": "selected", "optionId": "no"}},
        {"status": "rejected"},
        {"action": "decline"},
    ]
    reasons = [ask.answer.reason async for ask in desk.broker.asks() if ask.answer is not None]
    assert reasons == ["no such method", "not today", "not today"]


@pytest.mark.parametrize(
    ("word", "result"),
    [
        ("question", {}),
        ("question", {"status": "answered", "answers": [["a"], ["b"]]}),
        ("question", {"status": "answered", "answers": [[1]]}),
        ("permission", {"outcome": {"outcome": "selected", "optionId": "sudo"}}),
        ("permission", {"outcome": "selected"}),
        ("qwen", SELECTED),
        ("form", {"action": "accept", "content": {"parts": ["database"]}}),
        ("form", {"action": "accept", "content": {"copies": {"a": 1}}}),
        ("form", {"action": "accept", "content": {}}),
        ("form", None),
    ],
)
async def test_an_answer_that_does_not_fit_leaves_the_request_open(
    desk: Served, client: SeedClient, word: str, result: Any
) -> None:
    async with asking(client, word, ASKS[word][0]):
        problem = await refused(client.answer("ask-1", result=result), 422, "answer_does_not_fit")
        assert problem["problems"]
        ask = await the_ask(desk, state="asked")
        await desk.broker.reject(ask.id, by="ana")


async def test_an_answer_to_nothing_that_was_asked_is_refused(desk: Served, client: SeedClient) -> None:
    for id in ("nonexistent", 1, "1"):
        await refused(client.answer(id, result=ANSWERED), 404, "request_not_found")
    await play(client, "hello")
    assert echoed(client) == ["hello"], "and is not passed on"


async def test_an_id_that_comes_again_is_another_request(desk: Served, client: SeedClient) -> None:
    async with asking(client, "reused", "session/request_permission"):
        await told_202(client.answer(0, result=SELECTED))
        await client.hear(lambda message: len(requests(client, "session/request_permission")) == 2)
        assert (await the_ask(desk, state="asked")).answer is None, "the first answer does not grant the second"
        refusal = {"outcome": {"outcome": "selected", "optionId": "no"}}
        await told_202(client.answer(0, result=refusal))
    assert [entry["result"] for entry in echoed(client)[0]] == [SELECTED, refusal]


async def told_202(call: Any) -> None:
    response = await call
    assert response.status_code == 202, response.text


def requests(client: SeedClient, method: str) -> list[Json]:
    return [message for message in client.heard if message.get("method") == method]


async def test_two_requests_wait_at_once(desk: Served, client: SeedClient) -> None:
    async with asking(client, "both", QUESTION, "session/request_permission"):
        await told_202(client.answer("ask-2", result=SELECTED))
        await told_202(client.answer("ask-1", result=ANSWERED))
    assert [entry["result"] for entry in echoed(client)[0]] == [ANSWERED, SELECTED]


async def test_a_subagents_question_belongs_to_its_parent(desk: Served, client: SeedClient) -> None:
    (server,) = await listed(desk)
    async with asking(client, "child", QUESTION):
        origin = (await the_ask(desk)).origin
        assert (origin.session, origin.parent) == (f"{server['session']}/{client.session}-child", server["session"])
        await told_202(client.answer("ask-1", result=ANSWERED))


async def test_what_the_agent_withdraws_is_withdrawn_everywhere(desk: Served, client: SeedClient) -> None:
    async with asking(client, "withdraw:late", QUESTION):
        await client.post({"method": "_told"})
    assert echoed(client)[0]["error"]["code"] == -32800
    assert [each["params"] for each in requests(client, "$/cancel_request")] == [{"requestId": "ask-1"}]
    assert (await the_ask(desk)).state == "withdrawn"
    await refused(client.answer("ask-1", result=ANSWERED), 410, "ask_withdrawn")
    cancelled = {"code": -32800, "message": "cancelled"}
    await told_202(client.answer("ask-1", error=cancelled))


async def test_a_question_that_is_withdrawn_at_once_leaves_nothing_open(desk: Served, client: SeedClient) -> None:
    await play(client, "withdraw")
    assert (await the_ask(desk)).state == "withdrawn"


async def test_cancelling_the_turn_withdraws_what_it_asked(desk: Served, client: SeedClient) -> None:
    async with asking(client, "permission", "session/request_permission"):
        cancelled = {"outcome": {"outcome": "cancelled"}}
        await told_202(client.post({"method": "session/cancel", "params": {"sessionId": client.session}}))
        await client.hear_method("$/cancel_request")
        await told_202(client.answer("ask-1", result=cancelled))
    assert echoed(client)[0]["result"] == cancelled
    assert (await the_ask(desk)).state == "withdrawn"
    assert (await client.hear_method("_heard"))["params"]["method"] == "session/cancel"


async def test_what_cannot_be_asked_is_refused_towards_the_agent(desk: Served, client: SeedClient) -> None:
    await play(client, "odd empty hello")
    assert [entry["error"]["code"] for entry in echoed(client)[:2]] == [-32602, -32602]
    assert [ask async for ask in desk.broker.asks()] == []


async def test_it_is_the_same_on_every_database(tmp_path: Path, database: str) -> None:
    async with serving(tmp_path, agents=TABLES, database=database) as desk, a_reader(desk) as client:
        noted = {**ANSWERED, "_meta": {"kept": True}}
        async with asking(client, "question permission", QUESTION):
            await told_202(client.answer("ask-1", result=noted))
            await client.hear_method("session/request_permission")
            ask = await the_ask(desk, state="asked")
            await desk.broker.answer(ask.id, Answer(reply="always", by="ana"))
            await refused(client.answer("ask-2", result=SELECTED), 409, "already_answered")
        always = {"outcome": {"outcome": "selected", "optionId": "forever"}}
        assert [entry["result"] for entry in echoed(client)] == [noted, always]
        turn = asyncio.create_task(client.prompt("form"))
        await client.hear_method("elicitation/create")
        assert (await desk.http.delete(client.path)).status_code == 204
        assert "error" in await turn
        assert [ask.state async for ask in desk.broker.asks()] == ["answered", "answered", "withdrawn"]


class LateDoor:
    """A desk that everybody knows the answer of before whoever gave it is told that it counted."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.delivered = broker.delivered
        self.told = asyncio.Event()

    async def open(self, ask: Ask) -> Ask:
        return (await self._broker.open(ask)).stored.ask()

    async def wait(self, id: str) -> Ask:
        settled = (await self._broker.wait(id)).ask()
        self.told.set()
        return settled

    async def settle(self, id: str, answer: Answer, *, again: bool, source: str) -> None:
        await self._broker.answer_stored(id, answer, allow_repeat=again, source=source)
        await self.told.wait()
        for _ in range(10):
            await asyncio.sleep(0)

    async def withdraw(self, id: str, *, reason: str) -> None:
        await self._broker.withdraw(id, reason=reason)


async def test_a_clients_own_words_wait_for_the_desk_to_say_that_they_counted(broker: Broker) -> None:
    result = {**ANSWERED, "_meta": {"kept": True}}
    proxy = await Proxy.start(RAW, env=os.environ, desk=LateDoor(broker), session="s1")
    caller = Caller("ana", "ana@127.0.0.1")
    prompt = {"sessionId": "s1", "prompt": [{"type": "text", "text": "question"}]}
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        tasks.create_task(proxy.run())
        message = {"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": prompt}
        call = await proxy.request(message, caller=caller)
        await eventually(lambda: proxy.backlog.last == 1)
        await proxy.respond({"jsonrpc": "2.0", "id": "ask-1", "result": result}, caller=caller)
        await call.response
        await proxy.end(reason="the test is over")
        await proxy.close()
    pages = [page async for page in proxy.backlog.read(after=0, held=False, silence=1)]
    said = [json.loads(data) for page in pages for _, data in page]
    text = next(each["params"]["update"]["content"]["text"] for each in said if each.get("method") == "session/update")
    assert json.loads(text)[0]["result"] == result


# What is passed on --------------------------------------------------------------------------------------------------


async def test_what_the_desk_brings_is_added_and_nothing_is_dropped(desk: Served) -> None:
    async with connected(desk.url, desk.token) as client:
        able = {
            "fs": {"readTextFile": True},
            "elicitation": {"form": {"x": 1}},
            "_meta": {"sandboxagent.dev": {"y": 2}},
        }
        result = (await client.begin("raw", **able))["result"]
    assert result["_meta"]["got"]["clientCapabilities"] == {
        "fs": {"readTextFile": True},
        "elicitation": {"form": {"x": 1}, "url": {}},
        "_meta": {"sandboxagent.dev": {"y": 2, "sessionRequestQuestion": True}},
    }
    assert result["agentCapabilities"] == {
        "loadSession": True,
        "_meta": {"mine": 1, "sandboxagent.dev": {"extensions": {"sessionRequestQuestion": True}}},
    }
    assert result["unknown"] == {"kept": True}


async def test_other_requests_wait_for_a_client_and_pass_as_they_are(desk: Served) -> None:
    async with connected(desk.url, desk.token) as client:
        await client.begin("raw")
        async with asyncio.TaskGroup() as tasks:
            turn = tasks.create_task(client.prompt("file"))
            await told_of(desk, messages=3)
            async with client.reading():  # nobody was there when it was asked
                asked = await client.hear_method("fs/read_text_file")
                assert asked["params"] == {"sessionId": "s1", "path": "/etc/motd"}
                error = {"code": -32002, "message": "not found", "data": {"uri": "/etc/motd"}}
                await told_202(client.answer(asked["id"], error=error))
                await told_202(client.answer(asked["id"], error=error))
                lost = await refused(client.answer(asked["id"], result={"content": ""}), 409, "request_answered")
                assert lost["by"] == desk.admin
                await turn
                await client.hear_response(3)
        assert echoed(client)[0] == {"jsonrpc": "2.0", "id": asked["id"], "error": error}
    assert [ask async for ask in desk.broker.asks()] == []


async def test_a_request_about_a_clients_own_names_it_by_the_clients_id(desk: Served, client: SeedClient) -> None:
    async with asking(client, "login", "elicitation/create") as (asked,):
        prompted = {"id": "again", "method": "session/prompt", "params": client.turn("hello")}
        assert asked["params"]["requestId"] == 3, "towards the agent it has another"
        await told_202(client.answer("ask-1", result={"action": "accept"}))
    assert (await client.post(prompted)).json()["id"] == "again"


async def test_a_refusal_of_the_agent_comes_back_whole(client: SeedClient) -> None:
    said = await client.request("fail", {}, extra={"kept": True})
    assert said["error"] == {"code": -32007, "message": "no", "data": {"why": [1, None]}}
    assert await client.hear_response(said["id"]) == said


async def test_lines_that_are_no_messages_are_told_and_hurt_nothing(client: SeedClient) -> None:
    await play(client, "noise hello")
    invalid = [each["params"] for each in requests(client, "_adapter/invalid_stdout")]
    raw = ["Loading...", "[1, 2]", '{"id": 1}', "NaN", '{"jsonrpc":"2.0","id":99,"result":{}}']
    assert [each["raw"] for each in invalid] == raw
    assert all(each["error"] for each in invalid)


async def test_what_is_nested_too_deep_is_told_as_such_and_hurts_nothing(client: SeedClient) -> None:
    await play(client, "deep hello")
    assert len(requests(client, "_deep")) == 1
    invalid = requests(client, "_adapter/invalid_stdout")
    assert len(invalid) == 19 and {each["params"]["error"] for each in invalid} == {"it is nested too deep"}
    for depth in (200, 500, 900, 990):
        nested = "[" * depth + "]" * depth
        body = f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{nested}}}'
        await refused(client.http.post(client.path, content=body), 400, "bad_request")


async def test_the_id_of_an_open_request_is_not_taken_twice(desk: Served, client: SeedClient) -> None:
    async with asking(client, "twice", QUESTION):
        await client.hear_method("_adapter/invalid_stdout")
        await told_202(client.answer(0, result=ANSWERED))
    assert len([ask async for ask in desk.broker.asks()]) == 1


async def test_a_request_that_the_agent_no_longer_waits_for_is_over(client: SeedClient) -> None:
    async with asking(client, "unread:late", "fs/read_text_file"):
        await client.post({"method": "_told"})
    assert echoed(client)[0]["error"]["code"] == -32800
    await told_202(client.answer("ask-1", error={"code": -32800, "message": "cancelled"}))


# Calls that are cut, and several clients ----------------------------------------------------------------------------


async def test_a_prompt_that_is_cut_in_the_middle_is_joined_and_not_said_twice(
    desk: Served, client: SeedClient
) -> None:
    prompt = {"id": "turn", "method": "session/prompt", "params": client.turn("question")}
    first = asyncio.create_task(client.post(prompt))
    await client.hear_method(QUESTION)
    first.cancel()
    await asyncio.wait([first])
    async with asyncio.TaskGroup() as tasks:
        second = tasks.create_task(client.post(prompt))
        await told_202(client.answer("ask-1", result=ANSWERED))
    assert second.result().json() == {"jsonrpc": "2.0", "id": "turn", "result": {"stopReason": "end_turn"}}
    assert await client.hear_response("turn") == second.result().json()
    assert len(requests(client, QUESTION)) == 1 and echoed(client)[0]["result"] == ANSWERED


async def test_a_response_that_nobody_took_is_there_for_whoever_asks_again(desk: Served, client: SeedClient) -> None:
    prompt = {"id": "turn", "method": "session/prompt", "params": client.turn("question")}
    first = asyncio.create_task(client.post(prompt))
    await client.hear_method(QUESTION)
    first.cancel()
    await asyncio.wait([first])
    await told_202(client.answer("ask-1", result=ANSWERED))
    ended = await client.hear_response("turn")  # nobody holds the call
    assert (await client.post(prompt)).json() == ended
    assert len(requests(client, QUESTION)) == 1
    async with asyncio.TaskGroup() as tasks:  # that was taken, so this is another one
        again = tasks.create_task(client.post(prompt))
        await client.hear(lambda message: message.get("id") == "ask-2")
        await told_202(client.answer("ask-2", result=ANSWERED))
    assert again.result().json() == ended


async def test_a_client_that_prefers_not_to_wait_reads_the_response_on_the_stream(client: SeedClient) -> None:
    prompt = {"id": "turn", "method": "session/prompt", "params": client.turn("question")}
    accepted = await client.post(prompt, Prefer="respond-async")
    assert (accepted.status_code, accepted.content) == (202, b"")
    assert accepted.headers["preference-applied"] == "respond-async"
    await client.hear_method(QUESTION)
    assert (await client.post(prompt, Prefer="wait=5, respond-async")).status_code == 202, "it joins"
    await told_202(client.answer("ask-1", result=ANSWERED))
    assert (await client.hear_response("turn"))["result"] == {"stopReason": "end_turn"}
    assert len(requests(client, QUESTION)) == 1


async def test_two_clients_that_count_alike_get_each_their_own(desk: Served, client: SeedClient) -> None:
    added = await told(desk.http.post("/v1/tokens", json={"name": "ben", "scopes": ["admin"]}), 201)
    async with connected(desk.url, added["token"]) as other, other.reading():
        opened = [{"id": 7, "method": "session/new", "params": {"cwd": "/work", "mcpServers": []}}] * 2
        sessions = await asyncio.gather(client.post(opened[0]), other.post(opened[1]))
        assert {each.json()["result"]["sessionId"] for each in sessions} == {"s2", "s3"}
        other.session = "s2"
        async with asking(client, "question", QUESTION):
            await other.hear_method(QUESTION)
            await told_202(other.answer("ask-1", result=ANSWERED))
            lost = await refused(client.answer("ask-1", result={"status": "rejected"}), 409, "already_answered")
            assert (lost["by"], lost["via"], lost["answer"]["answers"]) == ("ben", "acp", [["option-a"]])
            assert (await client.hear_method("$/cancel_request"))["params"]["_meta"]["handraise"]["by"] == "ben"


async def test_a_client_cancels_its_own_request_by_its_own_id(desk: Served, client: SeedClient) -> None:
    prompt = {"id": "turn", "method": "session/prompt", "params": client.turn("question")}
    await client.post(prompt, Prefer="respond-async")
    await client.hear_method(QUESTION)
    cancel = {"method": "$/cancel_request", "params": {"requestId": "turn"}}
    await told_202(client.post({**cancel, "params": {"requestId": "somebody's"}}))
    await told_202(client.post(cancel))
    await told_202(client.answer("ask-1", result=ANSWERED))
    heard = await client.hear_method("_heard")
    assert heard["params"]["params"] == {"requestId": 3}, "the number that the agent knows it by"
    await client.hear_response("turn")
    assert len(requests(client, "_heard")) == 1


# The stream ---------------------------------------------------------------------------------------------------------


async def test_a_stream_goes_on_where_it_was_left(desk: Served, client: SeedClient) -> None:
    await play(client, "hello")
    assert client.last == str(len(client.heard)) == "4"
    async with connected(desk.url, desk.token) as late, late.reading(after="2"):
        await late.hear_response(3)
        assert late.heard == client.heard[2:]
    async with listening(desk.http, client.path, after=3) as listener:
        frame = await listener.frame()
    assert (frame.event, frame.id, json.loads(frame.data)) == ("message", "4", client.heard[3])


@pytest.mark.parametrize("after", ["99", "5"])
async def test_a_place_that_the_agent_never_reached_is_not_waited_for(client: SeedClient, after: str) -> None:
    await play(client, "hello")
    gone = await refused(client.http.get(client.path, headers={"Last-Event-ID": after}), 410, "messages_gone")
    assert (gone["after"], gone["first"], gone["last"]) == (int(after), 1, 4)


@pytest.mark.parametrize("after", ["-1", "x", "1e3", "9" * 30])
async def test_a_place_is_a_number(client: SeedClient, after: str) -> None:
    await refused(client.http.get(client.path, params={"after": after}), 400, "bad_request")


async def test_a_slow_reader_loses_nothing(desk: Served) -> None:
    async with connected(desk.url, desk.token) as client:
        await client.begin("raw")
        async with client.http.stream("GET", client.path) as response:
            await client.prompt("flood:10000")
            numbers: list[int] = []
            data: list[str] = []
            async with asyncio.timeout(PATIENCE):
                async for line in response.aiter_lines():
                    if line.startswith("id: "):
                        numbers.append(int(line.removeprefix("id: ")))
                    elif line.startswith("data: ") and '"session/update"' in line:
                        data.append(json.loads(line.removeprefix("data: "))["params"]["update"]["content"]["text"])
                    if len(data) == 10_001:
                        break
        assert numbers == list(range(1, 10_004))
        assert [text.partition(" ")[0] for text in data[:-1]] == [str(number) for number in range(10_000)]


@asynccontextmanager
async def an_app(broker: Broker, **limits: Any) -> AsyncIterator[tuple[ASGIApp, httpx2.AsyncClient]]:
    """The desk's application without a server, on a broker of the test's own."""
    settings = {name: AgentSettings(home=Path(), command=table.command) for name, table in TABLES.items()}
    agents = Agents(lambda name: settings.get(name, AgentSettings(home=Path())))
    worker = Worker(broker, broker.sessions, agents, name="here", clock=broker.clock)
    async with AsyncExitStack() as stack:
        tokens = await stack.enter_async_context(Tokens(broker.store, clock=SystemClock()))
        tokens.accept("secret")
        acp = await stack.enter_async_context(Acp(broker, worker=worker, **limits))
        app = create_app(broker, tokens=tokens, sign_in=SignIn(clock=broker.clock), port=80, lag=Lag(), acp=acp)
        transport = httpx2.ASGITransport(app=app)
        headers = {"Authorization": "Bearer secret"}
        http = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers)
        yield app, await stack.enter_async_context(http)


async def test_a_person_who_takes_an_hour_loses_nobodys_call(broker: Broker, fake_clock: FakeClock) -> None:
    async with asyncio.timeout(PATIENCE), an_app(broker) as (_, http):
        client = SeedClient(http, "demo", patience=PATIENCE)
        await client.begin("raw")
        turn = asyncio.create_task(client.prompt("question"))
        asked = await anext(aiter(broker.events(after=0)))
        await fake_clock.advance(3600)
        assert not turn.done()
        await told_202(client.answer("ask-1", result=ANSWERED))
        assert (await turn)["result"] == {"stopReason": "end_turn"}
    ask = await broker.get(asked.ask.id)
    assert ask.answer is not None and ask.answer.at is not None and ask.asked_at is not None
    assert (ask.answer.at - ask.asked_at).total_seconds() == 3600


class Reader:
    """A reader of the stream that takes each piece only when it is told to."""

    def __init__(self, app: ASGIApp, *headers: tuple[bytes, bytes]) -> None:
        self.read = b""
        self.status = 0
        self.ended = False
        self.may_read = asyncio.Semaphore(0)
        all_headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer secret"), *headers]
        scope = {"type": "http", "method": "GET", "path": "/v1/acp/demo", "raw_path": b"/v1/acp/demo"}
        scope |= {"query_string": b"", "headers": all_headers, "http_version": "1.1", "scheme": "http"}
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        await self.may_read.acquire()
        self.read += message.get("body", b"")
        self.ended = self.ended or not message.get("more_body", False)


async def test_a_reader_that_is_overrun_is_cut_and_told_what_is_gone(broker: Broker) -> None:
    async with asyncio.timeout(PATIENCE), an_app(broker, most=50) as (app, http):
        client = SeedClient(http, "demo", patience=PATIENCE)
        await client.begin("raw")
        reader = Reader(app)
        reader.may_read.release()  # where the stream begins
        await eventually(lambda: b"retry" in reader.read)
        await client.prompt("flood:100")
        for _ in range(100):
            reader.may_read.release()
        await reader.task
        assert not reader.ended, "the connection is cut, so that the reader comes back"
        last = reader.read.count(b"\nevent: message")
        assert last < 50
        again = Reader(app, (b"last-event-id", b"%d" % last))
        again.may_read.release()
        await again.task
        assert again.status == 410 and b'"messages_gone"' in again.read
        fresh = Reader(app)
        for _ in range(100):
            fresh.may_read.release()
        await eventually(lambda: b"id: 104\n" in fresh.read)
        assert b'"_adapter/messages_gone","params":{"through":54}' in fresh.read and b"id: 55\n" in fresh.read
        fresh.task.cancel()
        await asyncio.wait([fresh.task])


async def test_a_request_that_still_waits_is_told_to_whoever_comes_however_late(broker: Broker) -> None:
    async with asyncio.timeout(PATIENCE), an_app(broker, most=50) as (app, http):
        client = SeedClient(http, "demo", patience=PATIENCE)
        await client.begin("raw")
        turn = asyncio.create_task(client.prompt("busy:100"))
        while (await http.get("/v1/acp")).json()["servers"][0]["lastEventId"] < 103:
            await asyncio.sleep(0)
        reader = Reader(app)
        for _ in range(100):
            reader.may_read.release()
        await eventually(lambda: b"id: 103\n" in reader.read)
        frames = [frame.partition(b"\n")[0] for frame in reader.read.split(b"\n\n")[2:]]
        assert frames[:2] == [b"id: 3", b"id: 54"] and b"fs/read_text_file" in reader.read
        await told_202(client.answer("ask-1", result={"content": ""}))
        await turn
        reader.task.cancel()
        await asyncio.wait([reader.task])


async def test_a_silent_stream_says_that_it_is_there(broker: Broker) -> None:
    async with asyncio.timeout(PATIENCE), an_app(broker, heartbeat=0.01) as (app, http):
        await SeedClient(http, "demo", patience=PATIENCE).begin("raw")
        reader = Reader(app)
        for _ in range(100):
            reader.may_read.release()
        await eventually(lambda: b": heartbeat\n\n" in reader.read)
        reader.task.cancel()
        await asyncio.wait([reader.task])


async def test_only_so_many_agents_run(broker: Broker) -> None:
    async with asyncio.timeout(PATIENCE), an_app(broker, most_servers=1) as (_, http):
        await SeedClient(http, "demo", patience=PATIENCE).begin("raw")
        other = SeedClient(http, "other", patience=PATIENCE)
        await refused(other.post({"method": "_told"}, agent="raw"), 503, "overloaded")
        assert (await http.delete("/v1/acp/demo")).status_code == 204
        await told_202(other.post({"method": "_told"}, agent="raw"))


async def test_the_oldest_messages_go_by_number_and_by_size() -> None:
    by_number, by_size = Backlog(most=2), Backlog(most_bytes=25)
    for number in range(1, 5):
        by_number.add(b"x", hold=number == 1)
        by_size.add(b"x" * 10)
    assert (by_number.gone, by_size.gone) == (2, 2)
    with pytest.raises(MessagesGone):
        by_number.check(1)
    by_number.check(2)
    reading = by_number.read(after=2, held=True, silence=1)
    assert [await anext(reading), await anext(reading)] == [[(1, b"x")], [(3, b"x"), (4, b"x")]]
    by_number.add(b"y" * 1000)
    by_number.add(b"y")
    by_number.add(b"y")
    with pytest.raises(Overrun):
        await anext(reading)
    by_number.let_go(1)
    by_number.close()
    assert [page async for page in by_number.read(after=5, held=True, silence=1)] == [[(6, b"y"), (7, b"y")]]


# Ends ---------------------------------------------------------------------------------------------------------------


async def test_an_agent_that_dies_leaves_nobody_waiting(desk: Served, client: SeedClient) -> None:
    async with asyncio.TaskGroup() as tasks:
        turn = tasks.create_task(client.prompt("both"))
        await client.hear_method("session/request_permission")
        await told_202(client.post({"method": "_die"}))
        assert "ended" in (await turn)["error"]["message"]
    assert await client.hear_response(3) == turn.result()
    exited = await client.hear_method("_adapter/agent_exited")
    assert exited["params"] == {"success": False, "code": 3}
    asks = [ask async for ask in desk.broker.asks()]
    assert [ask.state for ask in asks] == ["withdrawn", "withdrawn"]
    assert "out of ink" in (asks[0].withdrawn_reason or "")
    (server,) = await listed(desk)
    assert (server["state"], server["exitCode"]) == ("ended", 3)
    await refused(client.post({"method": "_told"}), 409, "acp_ended")
    await refused(client.answer("ask-1", result=ANSWERED), 409, "acp_ended")
    assert (await desk.http.delete(client.path)).status_code == 204
    assert await listed(desk) == []


async def test_an_answer_that_a_dead_agent_did_not_take_is_not_shown_as_delivered(desk: Served) -> None:
    async with connected(desk.url, desk.token) as client:
        pid = (await client.begin("raw"))["result"]["_meta"]["pid"]
        async with client.reading():
            turn = asyncio.create_task(client.prompt("question"))
            await client.hear_method(QUESTION)
            os.kill(pid, signal.SIGSTOP)
            await told_202(client.answer("ask-1", result=ANSWERED))
            await client.hear_method("$/cancel_request")
            os.kill(pid, signal.SIGKILL)
            assert "error" in await turn
    async with asyncio.timeout(PATIENCE):
        async for event in desk.broker.events(after=0):
            if event.type == "delivered":
                assert event.ask.delivered_at is None
                assert "before it took the answer" in (event.ask.delivery_error or "")
                return


async def test_ending_an_agent_withdraws_what_it_asks_and_returns_while_it_lives(desk: Served) -> None:
    async with connected(desk.url, desk.token) as client:
        pid = (await client.begin("raw"))["result"]["_meta"]["pid"]
        reading = asyncio.create_task(client.read())
        turn = asyncio.create_task(client.prompt("question"))
        await client.hear_method(QUESTION)
        os.kill(pid, signal.SIGSTOP)  # it would not end by itself
        async with asyncio.timeout(PATIENCE):
            assert (await desk.http.delete(client.path)).status_code == 204
            assert (await the_ask(desk)).state == "withdrawn"
            assert await listed(desk) == []
            assert "ended" in (await turn)["error"]["message"]
            await reading  # to its end
        await eventually(lambda: not is_running(Started(pid, None)))
        await refused(desk.http.delete(client.path), 404, "acp_not_found")
        await refused(client.http.get(client.path), 404, "acp_not_found")
        await client.begin("player")  # the id is free


async def test_the_agents_end_with_the_desk_and_streams_before_it(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'desk.db'}"
    async with AsyncExitStack() as later:
        async with serving(tmp_path, agents=TABLES, database=database) as desk:
            client = await later.enter_async_context(connected(desk.url, desk.token))
            pid = (await client.begin("raw"))["result"]["_meta"]["pid"]
            reading = asyncio.create_task(client.read())
            turn = asyncio.create_task(
                client.post({"id": 9, "method": "session/prompt", "params": client.turn("both")})
            )
            await client.hear_method("session/request_permission")
        async with asyncio.timeout(PATIENCE):
            await reading
            await refused(turn, 503, "overloaded")
    assert not is_running(Started(pid, None))
    async with serving(tmp_path, agents=TABLES, database=database) as desk:
        assert {(ask.state, ask.withdrawn_reason) async for ask in desk.broker.asks()} == {
            ("withdrawn", "the desk was stopped")
        }
        assert await listed(desk) == []


async def test_what_agents_of_a_killed_desk_had_asked_is_withdrawn_by_the_next(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "handraise.toml").write_text(f"[agents.raw]\ncommand = {json.dumps(RAW)}\n")
    trust_project(home, home=home)
    async with DeskProcess(home) as desk:
        async with connected(desk.url, desk.token) as client:
            pid = (await client.begin("raw"))["result"]["_meta"]["pid"]
            async with client.reading():
                prompt = {"id": 9, "method": "session/prompt", "params": client.turn("question")}
                await client.post(prompt, Prefer="respond-async")
                await client.hear_method(QUESTION)
                await desk.kill()
        await eventually(lambda: not is_running(Started(pid, None)))
        await desk.start()
        async with desk.client() as http:
            (ask,) = (await told(http.get("/v1/asks"), 200))["asks"]
    assert ask["state"] == "withdrawn" and "anew" in ask["withdrawn_reason"]


# What is refused ----------------------------------------------------------------------------------------------------


NO_MESSAGES = [
    b"",
    b"{",
    b"null",
    b'"text"',
    b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]',
    b"[]",
    b'{"id":1,"method":"initialize"}',
    b'{"jsonrpc":"1.0","id":1,"method":"initialize"}',
    b'{"jsonrpc":"2.0","id":null,"method":"initialize"}',
    b'{"jsonrpc":"2.0","id":1.5,"method":"initialize"}',
    b'{"jsonrpc":"2.0","id":true,"method":"initialize"}',
    b'{"jsonrpc":"2.0","id":1,"method":7}',
    b'{"jsonrpc":"2.0","id":1,"method":"m","params":"text"}',
    b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"n":NaN}}',
    b'{"jsonrpc":"2.0","id":1}',
    b'{"jsonrpc":"2.0","result":{}}',
    b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1}}',
    b'{"jsonrpc":"2.0","id":1,"error":"no"}',
    b"\xff\xfe",
    b'{"jsonrpc":"2.0","id":1,"method":"m","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
]


async def test_what_is_no_message_starts_nothing(desk: Served) -> None:
    for body in NO_MESSAGES:
        await refused(desk.http.post("/v1/acp/new?agent=raw", content=body), 400, "bad_request")
    await refused(desk.http.post("/v1/acp/new?agent=raw", content=b" " * (4 * 1024 * 1024 + 1)), 413, "too_large")
    response = {"jsonrpc": "2.0", "id": 1, "result": {}}
    await refused(desk.http.post("/v1/acp/new?agent=raw", json=response), 404, "acp_not_found")
    assert await listed(desk) == []


async def test_only_an_admin_is_served(desk: Served) -> None:
    strangers = [(await desk.client(), 401, "unauthorized")]
    for scope in ("ask", "answer"):
        strangers.append((await desk.caller(f"only-{scope}", scope), 403, "forbidden"))
    for http, status, code in strangers:
        await refused(http.post("/v1/acp/new?agent=raw", json=INITIALIZE), status, code)
        await refused(http.get("/v1/acp/new"), status, code)
        await refused(http.get("/v1/acp"), status, code)
        await refused(http.delete("/v1/acp/new"), status, code)
    assert await listed(desk) == []


async def test_an_agent_is_one_that_is_known_under_an_id(desk: Served) -> None:
    for path, status, code in [
        ("new", 400, "bad_request"),
        ("new?agent=", 422, "settings"),
        ("new?agent=clippy", 422, "settings"),
        ("new?agent=claude", 422, "settings"),
        ("new?agent=raw&agent=raw", 400, "bad_request"),
        ("new?command=rm", 400, "bad_request"),
        ("a/b?agent=raw", 404, "not_found"),
        ("?agent=raw", 404, "not_found"),
        (f"{'x' * 201}?agent=raw", 400, "bad_request"),
        ("a%07b?agent=raw", 400, "bad_request"),
    ]:
        await refused(desk.http.post(f"/v1/acp/{path}", json=INITIALIZE), status, code)
    assert await listed(desk) == []
    odd = quote("a/b?ü", safe="")
    assert (await desk.http.post(f"/v1/acp/{odd}?agent=raw", json=INITIALIZE)).status_code == 200
    assert [server["serverId"] for server in await listed(desk)] == ["a/b?ü"]
    assert (await desk.http.delete(f"/v1/acp/{odd}")).status_code == 204


async def test_another_agent_under_the_same_id_is_refused(client: SeedClient) -> None:
    differs = await refused(client.post({"method": "_told"}, agent="player"), 409, "acp_differs")
    assert (differs["id"], differs["agent"]) == ("demo", "raw")
    await told_202(client.post({"method": "_told"}, agent="raw"))


async def test_the_settings_say_what_a_known_name_starts(tmp_path: Path) -> None:
    tables = {"acp": TABLES["raw"], "qwen": AgentTable(command=RAW, env={"TINT": "blue"})}
    async with serving(tmp_path, agents=tables, database="sqlite:///:memory:") as desk:
        for name, table in tables.items():
            said = await told(desk.http.post(f"/v1/acp/{name}?agent={name}", json=INITIALIZE), 200)
            assert said["result"]["_meta"]["tint"] == table.env.get("TINT")
        assert [server["agent"] for server in await listed(desk)] == ["acp", "qwen"]


async def test_a_program_that_is_not_there_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    missing = {"none": AgentTable(command=("/no/such/program",))}
    async with serving(tmp_path, agents=missing, database="sqlite:///:memory:") as desk:
        await refused(desk.http.post("/v1/acp/new?agent=none", json=INITIALIZE), 502, "process_failed")
        assert await listed(desk) == []


async def test_a_desk_without_a_worker_starts_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, agents=TABLES, has_worker=False) as desk:
        await refused(desk.http.post("/v1/acp/new?agent=raw", json=INITIALIZE), 422, "settings")


async def test_the_first_messages_of_several_clients_start_one_agent(desk: Served) -> None:
    async with connected(desk.url, desk.token) as client:
        message = {"method": "initialize", "params": {}}
        said = await asyncio.gather(*(client.post({"id": id, **message}, agent="raw") for id in range(5)))
    assert len({each.json()["result"]["_meta"]["pid"] for each in said}) == 1
    assert [each.json()["id"] for each in said] == list(range(5))


# Answers, read back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("question", Answer(answers=(("option-b",),))),
        ("question", Answer(answers=(("something else",),))),
        ("question", Answer(rejected=True)),
        ("several", Answer(answers=(("SQLite", "Postgres"), ()))),
        ("permission", Answer(reply="once")),
        ("permission", Answer(reply="always", scope="forever")),
        ("permission", Answer(reply="reject")),
        ("qwen", Answer(answers=(("SQLite",),))),
        ("qwen", Answer(answers=(("my own, really",),))),
        ("qwen", Answer(rejected=True)),
        ("form", Answer(answers=(("sqlite",), ("3",), ("web", "api"), ("true",)))),
        ("form", Answer(answers=(("DuckDB",), (), (), ()))),
        ("form", Answer(rejected=True)),
        ("url", Answer(answers=(("Done",),))),
    ],
)
def test_what_was_made_of_an_answer_is_read_as_that_answer(word: str, answer: Answer) -> None:
    method, params = ASKS[word]
    ask = to_ask(METHODS[method], {"sessionId": "s", **params}, id="a", origin=ORIGIN)
    fitted = fit(ask, answer)
    assert fit(ask, to_answer(ask, from_answer(ask, fitted))).same_as(fitted)


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ("Auth, Billing", ("Auth", "Billing")),
        ("Search, fast, Auth", ("Search, fast", "Auth")),
        ("Search, slow", ("Search", "slow")),
        (["Auth", "mine"], ("Auth", "mine")),
        ("", ()),
    ],
)
def test_several_choices_in_one_text_are_told_apart(said: Any, values: tuple[str, ...]) -> None:
    labels = ("Auth", "Billing", "Search, fast")
    entries = [
        {"question": "Parts?", "multiSelect": True, "options": [{"label": label} for label in labels]},
        {"question": "Why?"},
    ]
    params = {
        "toolCall": {"toolCallId": "c", "rawInput": {"questions": entries}},
        "options": ASKS["qwen"][1]["options"],
    }
    ask = to_ask("permission", params, id="a", origin=ORIGIN)
    assert to_answer(ask, {**SELECTED, "answers": {"0": said, "1": "so"}}).answers == (values, ("so",))


def test_a_choice_made_of_options_is_read_as_that_choice() -> None:
    options = [{"optionId": f"{n}", "name": "Same", "kind": "allow_once"} for n in range(3)]
    params = {"toolCall": {"toolCallId": "c", "title": "Which?"}, "options": options}
    ask = to_ask("permission", params, id="a", origin=ORIGIN)
    answer = to_answer(ask, {"outcome": {"outcome": "selected", "optionId": "2"}})
    assert from_answer(ask, fit(ask, answer)) == {"outcome": {"outcome": "selected", "optionId": "2"}}


def test_a_text_beside_a_choice_is_a_note_and_a_default_is_what_leaving_out_means() -> None:
    schema = {
        "properties": {
            "db": {"type": "string", "enum": ["a", "b"], "default": "b"},
            "db_custom": {"type": "string"},
            "more": {"type": "array", "items": {"enum": ["x"]}},
            "more_custom": {"type": "string"},
        }
    }
    ask = to_ask("form", {"mode": "form", "message": "?", "requestedSchema": schema}, id="a", origin=ORIGIN)
    noted = to_answer(ask, {"action": "accept", "content": {"db": "a", "db_custom": "why", "more_custom": "own"}})
    assert (noted.answers, noted.notes) == ((("a",), ("own",)), ("why", None))
    left_out = to_answer(ask, {"action": "accept", "content": {"more": ["x"], "more_custom": "own"}})
    assert (left_out.answers, left_out.notes) == ((("b",), ("x", "own")), ())


def test_what_is_no_result_is_refused_and_an_error_has_its_words() -> None:
    method, params = ASKS["form"]
    ask = to_ask(METHODS[method], params, id="a", origin=ORIGIN)
    for result in (None, [], {}, {"action": 1}, {"action": "accept", "content": []}):
        with pytest.raises(AnswerDoesNotFit):
            to_answer(ask, result)
    assert to_answer(ask, {"action": "_later"}).rejected
    assert declined({"code": 1, "message": "x" * 5000}) == Answer(rejected=True, reason="x" * 1000)
    assert declined({"code": 1}) == Answer(rejected=True)
    assert declined({"code": 1, "message": "half \ud83d"}) == Answer(rejected=True, reason="half ?")


# The page -----------------------------------------------------------------------------------------------------------


def blocks_of(page: str, language: str) -> list[str]:
    text = (Path(__file__).parents[2] / "docs" / "howto" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


async def run_the_client(desk: Served, program: str) -> str:
    """What it prints."""
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-W", "error", "-c", program.replace("http://127.0.0.1:4263", desk.url)),
        env={**os.environ, "TOKEN": desk.token},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(PATIENCE):
        out, _ = await run.communicate()
    assert run.returncode == 0, out.decode()
    return out.decode()


async def test_the_client_of_the_page_drives_an_agent_that_asks_nothing(tmp_path: Path) -> None:
    (_, program), (printed,) = (blocks_of("acp.md", language) for language in ("python", "text"))
    expected = re.sub(r"It asks: .*\nOver: .*\nIt says: .*\n", "It says: …\n", printed)
    async with serving(tmp_path, agents={"asker": TABLES["raw"]}, database="sqlite:///:memory:") as desk:
        said = await run_the_client(desk, program)
    assert re.fullmatch(re.escape(expected).replace("…", ".+"), said), said


async def test_agent_and_client_of_the_page_ask_and_answer(tmp_path: Path) -> None:
    (agent, program), (printed,) = (blocks_of("acp.md", language) for language in ("python", "text"))
    file = tmp_path / "asker.py"
    file.write_text(agent)
    tables = {"asker": AgentTable(command=(sys.executable, str(file)))}
    async with serving(tmp_path / "home", agents=tables, database="sqlite:///:memory:") as desk:
        assert await run_the_client(desk, program) == printed
        ask = await the_ask(desk)
    assert (ask.state, ask.questions[0].question, ask.answer and ask.answer.via) == (
        "answered",
        "Which database?",
        "acp",
    )
