"""OpenCode in a person's own terminal, as its plugin talks to a desk: recorded events in, the calls to make out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from handraise.agents import Asker
from handraise.agents.opencode.attach import GONE, ID_PREFIX, Terminals, edits
from handraise.asks import Answer, Ask
from handraise.broker import Broker
from handraise.errors import SettingsError
from handraise.events import Answered, Asked, Delivered, Event, Rejected, Withdrawn
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.tables.tokens import ADMIN
from tests.helpers.serving import PATIENCE, Served, eventually, first_event, refused, serving, told

WIRE = Path(__file__).parents[1] / "wire" / "opencode"
FOLDER = "/home/dev/demo"


def recorded(file: str, kind: str) -> dict[str, Any]:
    """The first event of a kind in a recording, as the plugin passes it on."""
    lines = (json.loads(line) for line in (WIRE / file).read_text().splitlines())
    event = next(line["event"] for line in lines if line.get("event", {}).get("type") == kind)
    return {"type": event["type"], "properties": event["properties"]}


QUESTION = {**recorded("plugin-bridge.jsonl", "question.asked"), "directory": FOLDER}
REPLIED = recorded("plugin-bridge.jsonl", "question.replied")
IDLE = recorded("plugin-bridge.jsonl", "session.idle")
PERMISSION = {**recorded("permission-flow.jsonl", "permission.asked"), "directory": FOLDER}
REQUEST = QUESTION["properties"]["id"]
SESSION = QUESTION["properties"]["sessionID"]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as served:
        yield served


@pytest.fixture
async def plugin(desk: Served) -> httpx2.AsyncClient:
    """The plugin in a terminal, with a token that may ask."""
    return await desk.caller("opencode-laptop", "ask")


@asynccontextmanager
async def brought(plugin: httpx2.AsyncClient, event: Mapping[str, Any]) -> AsyncIterator[asyncio.Task[httpx2.Response]]:
    """A held call. Leaving it hangs up."""
    call = asyncio.create_task(plugin.post("/attach/opencode/ask", json=event))
    try:
        yield call
    finally:
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


async def happened(desk: Served | Broker, kind: type[Event], *, after: int = 0) -> Ask:
    """The ask of the first event of a kind."""
    broker = desk.broker if isinstance(desk, Served) else desk
    return (await first_event(broker, lambda event: isinstance(event, kind) and event.cursor > after)).ask


async def the_reply(call: Awaitable[httpx2.Response], status: int = 200) -> Any:
    async with asyncio.timeout(PATIENCE):
        response = await call
    assert response.status_code == status, response.text
    return response.json() if response.content else None


async def settled(plugin: httpx2.AsyncClient, asked: Mapping[str, Any], event: Mapping[str, Any]) -> None:
    await the_reply(plugin.post("/attach/opencode/settled", json={"asked": asked, "event": event}), 204)


async def test_an_answer_comes_back_as_the_call_to_make(desk: Served, plugin: httpx2.AsyncClient) -> None:
    async with brought(plugin, QUESTION) as call:
        ask = await happened(desk, Asked)
        await desk.answer(ask.id, "b")
        reply = await the_reply(call)
    assert reply == {
        "id": f"{ID_PREFIX}{SESSION}:{REQUEST}",
        "path": f"/question/{REQUEST}/reply",
        "body": {"answers": [["b"]]},
    }
    assert ask.questions[0].question == "tui q?"
    assert (ask.origin.agent, ask.origin.session, ask.origin.cwd) == ("opencode", SESSION, FOLDER)
    assert (await desk.get(ask.id))["delivered_at"] is None
    await the_reply(plugin.post("/attach/opencode/delivered", json={"id": reply["id"], "status": 200}), 204)
    taken = await happened(desk, Delivered)
    assert taken.delivered_at is not None and taken.delivery_error is None


async def test_a_subagents_ask_names_its_parent(desk: Served, plugin: httpx2.AsyncClient) -> None:
    async with brought(plugin, {**QUESTION, "parent": "ses_parent"}):
        assert (await happened(desk, Asked)).origin.parent == "ses_parent"


@pytest.mark.parametrize(
    ("said", "body"),
    [
        ({"reply": "once"}, {"reply": "once"}),
        ({"reply": "always"}, {"reply": "once"}),
        ({"reply": "reject", "message": "not today"}, {"reply": "reject", "message": "not today"}),
    ],
)
async def test_a_permission_is_replied_to(
    desk: Served, plugin: httpx2.AsyncClient, said: dict[str, str], body: dict[str, str]
) -> None:
    async with brought(plugin, PERMISSION) as call:
        ask = await happened(desk, Asked)
        await told(desk.http.post(f"/v1/asks/{ask.id}/answer", json=said), 200)
        reply = await the_reply(call)
    assert ask.permission is not None and ask.permission.command == "echo one; ls -la | head -3"
    assert reply["path"] == f"/permission/{PERMISSION['properties']['id']}/reply"
    assert reply["body"] == body


async def test_a_refused_question_lets_the_turn_go_on(desk: Served, plugin: httpx2.AsyncClient) -> None:
    async with brought(plugin, QUESTION) as call:
        ask = await happened(desk, Asked)
        await told(desk.http.post(f"/v1/asks/{ask.id}/reject", json={"reason": "ask later"}), 200)
        reply = await the_reply(call)
    assert reply["path"].endswith("/reply")
    assert "ask later" in reply["body"]["answers"][0][0]


async def test_what_was_answered_in_the_terminal_closes_the_ask(desk: Served, plugin: httpx2.AsyncClient) -> None:
    async with brought(plugin, QUESTION) as call:
        await happened(desk, Asked)
        await settled(plugin, QUESTION, REPLIED)
        await the_reply(call, 410)
    ask = await happened(desk, Answered)
    assert ask.answer is not None
    assert (ask.answer.by, ask.answer.answers) == ("agent", (("b",),))
    assert (await happened(desk, Delivered)).delivery_error is None


async def test_what_was_dismissed_in_the_terminal_is_rejected(desk: Served, plugin: httpx2.AsyncClient) -> None:
    async with brought(plugin, QUESTION):
        await happened(desk, Asked)
        properties = {"sessionID": SESSION, "requestID": REQUEST}
        await settled(plugin, QUESTION, {"type": "question.rejected", "properties": properties})
    ask = await happened(desk, Rejected)
    assert ask.answer is not None and ask.answer.by == "agent"


async def test_a_turn_that_was_stopped_withdraws_its_ask(desk: Served, plugin: httpx2.AsyncClient) -> None:
    async with brought(plugin, QUESTION) as call:
        await happened(desk, Asked)
        await settled(plugin, QUESTION, IDLE)
        await the_reply(call, 410)
    assert "stopped" in ((await happened(desk, Withdrawn)).withdrawn_reason or "")


async def test_an_answer_that_came_too_late_is_told_as_such(desk: Served, plugin: httpx2.AsyncClient) -> None:
    async with brought(plugin, QUESTION) as call:
        ask = await happened(desk, Asked)
        await desk.answer(ask.id, "a")
        await the_reply(call)
    await settled(plugin, QUESTION, REPLIED)
    late = await happened(desk, Delivered)
    assert late.answer is not None and late.answer.answers == (("a",),)
    assert late.delivered_at is None
    assert late.delivery_error == "it was answered in the terminal first"


@pytest.mark.parametrize(
    ("status", "error"),
    [(404, "it was answered in the terminal first"), (400, "status 400"), (None, "OpenCode did not take it")],
)
async def test_a_call_that_opencode_refused_is_told(
    desk: Served, plugin: httpx2.AsyncClient, status: int | None, error: str
) -> None:
    async with brought(plugin, QUESTION) as call:
        ask = await happened(desk, Asked)
        await desk.answer(ask.id, "a")
        reply = await the_reply(call)
    await the_reply(plugin.post("/attach/opencode/delivered", json={"id": reply["id"], "status": status}), 204)
    assert error in ((await happened(desk, Delivered)).delivery_error or "")


async def test_what_was_settled_before_it_was_brought_is_nobodys_trouble(
    desk: Served, plugin: httpx2.AsyncClient
) -> None:
    await settled(plugin, QUESTION, REPLIED)
    assert await desk.broker.cursor() == 0


async def test_a_terminal_that_comes_back_finds_its_ask(desk: Served, plugin: httpx2.AsyncClient) -> None:
    async with brought(plugin, QUESTION):
        ask = await happened(desk, Asked)
    async with brought(plugin, QUESTION) as call:
        await eventually(lambda: desk.broker.waits == 2)
        await eventually(lambda: desk.broker.waits == 1)  # the first call is given up, and the ask is not
        await desk.answer(ask.id, "a")
        assert (await the_reply(call))["body"] == {"answers": [["a"]]}


async def test_a_terminal_that_is_gone_withdraws_its_ask(desk: Served, plugin: httpx2.AsyncClient) -> None:
    async with brought(plugin, QUESTION):
        await happened(desk, Asked)
    assert (await happened(desk, Withdrawn)).withdrawn_reason == GONE
    async with brought(plugin, QUESTION) as call:  # a laptop that slept
        again = await happened(desk, Asked, after=await desk.broker.cursor() - 1)
        await desk.answer(again.id, "a")
        await the_reply(call)


async def test_an_ask_outlives_the_restart_of_a_desk(tmp_path: Path) -> None:
    async with serving(tmp_path) as desk:
        added = await told(desk.http.post("/v1/tokens", json={"name": "laptop", "scopes": ["ask"]}), 201)
        plugin = await desk.client(added["token"])
        call = asyncio.create_task(plugin.post("/attach/opencode/ask", json=QUESTION))
        ask = await happened(desk, Asked)
        desk.broker.cancel_waits()  # as a desk does that shuts down
        await the_reply(call, 503)
    async with serving(tmp_path) as desk:
        plugin = await desk.client(added["token"])
        async with brought(plugin, QUESTION) as call:
            await desk.answer(ask.id, "a")
            assert (await the_reply(call))["body"] == {"answers": [["a"]]}


async def test_terminals_of_two_tokens_do_not_meet(desk: Served, plugin: httpx2.AsyncClient) -> None:
    other = await desk.caller("opencode-desktop", "ask")
    async with brought(plugin, QUESTION):
        first = await happened(desk, Asked)
        call = asyncio.create_task(other.post("/attach/opencode/ask", json=QUESTION))
        second = await happened(desk, Asked, after=1)
    assert second.id != first.id
    assert (await happened(desk, Withdrawn)).id == first.id  # the second call is not this terminal come back
    await desk.answer(second.id, "a")
    assert (await the_reply(call))["body"] == {"answers": [["a"]]}


async def test_only_a_token_that_may_ask_gets_in(desk: Served) -> None:
    for path in ("ask", "settled", "delivered"):
        await refused((await desk.client()).post(f"/attach/opencode/{path}", json=QUESTION), 401, "unauthorized")
    answering = await desk.caller("ana", "answer")
    await refused(answering.post("/attach/opencode/ask", json=QUESTION), 403, "forbidden")


async def test_the_token_of_a_terminal_cannot_answer(desk: Served, plugin: httpx2.AsyncClient) -> None:
    async with brought(plugin, PERMISSION):
        ask = await happened(desk, Asked)
        await refused(plugin.post(f"/v1/asks/{ask.id}/answer", json={"reply": "once"}), 403, "forbidden")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'{"type": "question.asked"}', 400),
        (b'{"type": "session.idle", "properties": {}}', 400),
        (b'{"type": "question.asked", "properties": {}}', 422),
        (b'{"type": "question.asked", "properties": {"id": "q", "sessionID": "s", "questions": []}}', 422),
        (b'{"type": "question.asked", "properties": {"id": 1, "sessionID": 2, "questions": 3}}', 422),
        (b'{"type": "permission.asked", "properties": {"id": "p", "sessionID": "s"}}', 422),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_broken_event_asks_nothing(
    desk: Served, plugin: httpx2.AsyncClient, body: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    response = await plugin.post("/attach/opencode/ask", content=body)
    assert response.status_code == status, response.text
    assert response.json()["message"]
    assert await desk.broker.cursor() == 0
    assert [record.message.count("does not fit") for record in caplog.records] == [1]


async def test_a_body_beyond_the_limit_is_refused(desk: Served, plugin: httpx2.AsyncClient) -> None:
    large = {**QUESTION, "properties": {**QUESTION["properties"], "more": "x" * 5_000_000}}
    told = await refused(plugin.post("/attach/opencode/ask", json=large), 413, "too_large")
    assert "MiB" in told["message"]


# Without a desk around it, where the times are ours to choose -----------------------------------------------


@asynccontextmanager
async def bare(terminals: Terminals) -> AsyncIterator[tuple[Broker, httpx2.AsyncClient]]:
    store = await SqliteStore.open_file(MEMORY)
    async with Broker(store) as broker:
        transport = httpx2.ASGITransport(app=with_asker(Starlette(routes=terminals.routes()), broker))
        async with httpx2.AsyncClient(transport=transport, base_url="http://desk") as http:
            yield broker, http
    await store.close()


def with_asker(app: Starlette, asker: Asker) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    async def called(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "asker": asker, "token": ADMIN}, receive, send)

    return called


async def test_a_call_that_was_held_long_enough_is_asked_again() -> None:
    async with bare(Terminals(hold=0.01, grace=0.01)) as (broker, http):
        response = await http.post("/ask", json=QUESTION)  # in process it returns after what is done after the reply
        assert response.status_code == 204
        assert (await happened(broker, Withdrawn)).withdrawn_reason == GONE


async def test_an_answer_between_two_calls_waits_for_the_next() -> None:
    async with bare(Terminals(hold=0.01, grace=PATIENCE)) as (broker, http):
        first = asyncio.create_task(http.post("/ask", json=QUESTION))
        ask = await happened(broker, Asked)
        await broker.answer(ask.id, Answer(answers=(("a",),), by="ana"))
        await asyncio.wait_for(first, PATIENCE)
        assert (await the_reply(http.post("/ask", json=QUESTION)))["body"] == {"answers": [["a"]]}


async def test_a_desk_that_was_restarted_keeps_what_a_terminal_still_waits_for() -> None:
    terminals = Terminals(back=0.05)
    gone = {**QUESTION, "properties": {**QUESTION["properties"], "id": "que_gone"}}
    async with bare(Terminals(hold=0.01, grace=PATIENCE)) as (broker, http):
        left = [asyncio.create_task(http.post("/ask", json=event)) for event in (QUESTION, gone)]
        await eventually(lambda: broker.waits == 2)
        transport = httpx2.ASGITransport(app=with_asker(Starlette(routes=terminals.routes()), broker))
        async with httpx2.AsyncClient(transport=transport, base_url="http://desk") as again:
            back = asyncio.create_task(again.post("/ask", json=QUESTION))
            await eventually(lambda: broker.waits == 3)
            await terminals.retire(broker)
            states = {ask.id.rpartition(":")[2]: ask.state async for ask in broker.asks()}
            assert states == {REQUEST: "asked", "que_gone": "withdrawn"}
            broker.cancel_waits()
            await asyncio.gather(*left, back)


# The file ---------------------------------------------------------------------------------------------------


def an_edit(**environ: str) -> Any:
    [edit] = edits(url="http://127.0.0.1:4263/", token="hr_secret", environ=environ)
    return edit


def test_the_plugin_knows_its_desk_and_is_for_its_owner_alone() -> None:
    edit = an_edit(HOME="/home/ana")
    assert edit.private
    written = edit.add(None).decode()
    [line] = [line for line in written.splitlines() if line.startswith("const DESK = ")]
    assert json.loads(line.removeprefix("const DESK = ")) == {"url": "http://127.0.0.1:4263", "token": "hr_secret"}
    assert written.count("hr_secret") == 1


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"HOME": "/home/ana"}, "/home/ana/.config/opencode/plugins/handraise.js"),
        ({"HOME": "/home/ana", "XDG_CONFIG_HOME": "/xdg"}, "/xdg/opencode/plugins/handraise.js"),
        ({"HOME": "/home/ana", "OPENCODE_CONFIG_DIR": "/own"}, "/own/plugins/handraise.js"),
    ],
)
def test_the_plugin_lies_where_opencode_looks(environ: dict[str, str], path: str) -> None:
    assert an_edit(**environ).path == Path(path)


def test_the_plugin_is_replaced_and_removed_and_nobody_elses_is() -> None:
    edit = an_edit(HOME="/home/ana")
    [newer] = edits(url="http://127.0.0.1:4263", token="hr_newer", environ={"HOME": "/home/ana"})
    assert newer.add(edit.add(None)) == newer.add(None)
    assert edit.remove(newer.add(None)) is None
    foreign = b"export const Mine = async () => ({})\n"
    assert edit.remove(foreign) == foreign
    with pytest.raises(SettingsError, match="not handraise's"):
        edit.add(foreign)
