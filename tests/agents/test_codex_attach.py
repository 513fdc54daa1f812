"""A person's own Codex, without Codex: a daemon that says what the real one was heard to say, and a desk in memory."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import Server, ServerConnection, unix_serve
from websockets.exceptions import ConnectionClosed

from handraise.agents import AgentSettings, Watchable
from handraise.agents.codex import Codex
from handraise.agents.codex import attach as attach_module
from handraise.agents.codex.attach import (
    CLOSES,
    ENDED,
    FIRST,
    IN_THE_TERMINAL,
    MEANWHILE,
    OVER,
    STOPPED,
    UNSEEN,
    Relay,
    check_owner,
    socket_of,
)
from handraise.agents.codex.translate import COMMAND, ELICITATION, FILES, INPUT, METHODS, PERMISSIONS, TOOL
from handraise.asks import Answer, Ask, Handling, Origin, Permission
from handraise.broker import Broker
from handraise.errors import AlreadyAnswered, AskWithdrawn, SettingsError
from handraise.events import Answered, Asked, Delivered, Event, Rejected, Withdrawn
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing import FakeClock
from tests.helpers.serving import PATIENCE, eventually, first_event

WIRE = Path(__file__).parents[1] / "wire" / "codex"
THREAD, TURN, CALL = "thread-1", "turn-1", "call_1"
WAITS = {"type": "active", "activeFlags": ["waitingOnApproval"]}
RUNS: dict[str, Any] = {"type": "active", "activeFlags": []}
IDLE = {"type": "idle"}
QUESTION = {
    "id": "db",
    "header": "Database",
    "question": "Which database?",
    "options": [{"label": "Postgres (Recommended)"}, {"label": "SQLite"}],
}


class Daemon:
    """One that listens at `path`. Its threads have what is open in them; whoever joins one is told that again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.threads: dict[str, dict[str, Any]] = {}
        self.turns: dict[str, list[dict[str, Any]]] = {}
        self.open: dict[int, dict[str, Any]] = {}
        self.joined: set[str] = set()
        self.calls: list[tuple[str, dict[str, Any]]] = []  # what it was asked
        self.responses: list[dict[str, Any]] = []  # what it was answered
        self.refusals: dict[str, int] = {}  # by method: how often it says no before it says yes
        self.held: dict[str, asyncio.Event] = {}  # by method: it answers once that is set
        self._connections: set[ServerConnection] = set()
        self._server: Server | None = None

    async def start(self) -> None:
        self._server = await unix_serve(self._serve, str(self.path))

    async def stop(self) -> None:
        """As if it were killed, also for those who try again."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None
        self.path.unlink(missing_ok=True)

    async def hang_up(self) -> None:
        for connection in list(self._connections):
            await connection.close()

    async def tell(self, method: str, **params: Any) -> None:
        await self.send({"method": method, "params": params, "emittedAtMs": 1})

    async def send(self, message: Any) -> None:
        frame = message if isinstance(message, str | bytes) else json.dumps(message)
        for connection in list(self._connections):
            await connection.send(frame)

    async def ask(self, method: str, id: int = 0, **params: Any) -> None:
        """Wait for an answer. Who has joined the thread is told; everybody else hears only that it waits."""
        params = {"threadId": THREAD, "turnId": TURN, **params}
        self.open[id] = {"method": method, "id": id, "params": params}
        thread = params["threadId"]
        self.threads.setdefault(thread, {"id": thread, "cwd": "/repo", "parentThreadId": None})
        await self.status(WAITS, thread=thread)
        if thread in self.joined:
            await self.send(self.open[id])

    async def status(self, status: dict[str, Any], *, thread: str = THREAD) -> None:
        self.threads[thread]["status"] = status
        await self.tell("thread/status/changed", threadId=thread, status=status)

    async def resolve(self, id: int = 0, *, thread: str = THREAD) -> None:
        self.open.pop(id, None)
        await self.tell("serverRequest/resolved", threadId=thread, requestId=id)
        await self.status(RUNS, thread=thread)

    async def complete(self, item: dict[str, Any], *, thread: str = THREAD) -> None:
        await self.tell("item/completed", threadId=thread, turnId=TURN, item={"id": CALL, **item})

    async def end_turn(self, status: str = "completed", *, thread: str = THREAD, turn: str = TURN) -> None:
        self.open = {id: each for id, each in self.open.items() if each["params"]["threadId"] != thread}
        await self.status(IDLE, thread=thread)
        await self.tell("turn/completed", threadId=thread, turn={"id": turn, "status": status, "items": []})

    async def answer(self) -> dict[str, Any]:
        """The first answer that comes, once it is there."""
        await eventually(lambda: bool(self.responses))
        return self.responses[0]

    def called(self, method: str) -> list[dict[str, Any]]:
        return [params for name, params in self.calls if name == method]

    async def _serve(self, connection: ServerConnection) -> None:
        self._connections.add(connection)
        try:
            async for frame in connection:
                message = json.loads(frame)
                if "method" not in message:
                    self.responses.append(message)
                    continue
                method, params = message["method"], message.get("params") or {}
                self.calls.append((method, params))
                if method in self.held:
                    await self.held[method].wait()
                reply = self._reply(method, params)
                if "id" in message:
                    await connection.send(json.dumps({"id": message["id"], **reply}))
                if method == "thread/unsubscribe":
                    self.joined.discard(_of(params))
                if method == "thread/resume" and "result" in reply:
                    self.joined.add(_of(params))
                    for request in [each for each in self.open.values() if _of(each["params"]) == _of(params)]:
                        await connection.send(json.dumps(request))
        except ConnectionClosed:
            return
        finally:
            self._connections.discard(connection)
            self.joined.clear()

    def _reply(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if self.refusals.get(method):
            self.refusals[method] -= 1
            return {"error": {"code": -32600, "message": f"no rollout found for thread id {_of(params)}"}}
        if method == "thread/loaded/list":
            return {"result": {"data": list(self.threads), "nextCursor": None}}
        if method in ("thread/read", "thread/resume"):
            if _of(params) not in self.threads:
                return {"error": {"code": -32600, "message": "thread not loaded"}}
            page = {"data": self.turns.get(_of(params), [])}
            return {"result": {"thread": self.threads[_of(params)], "initialTurnsPage": page}}
        return {"result": {}}


def _of(params: dict[str, Any]) -> Any:
    return params.get("threadId")


@pytest.fixture
async def daemon() -> AsyncIterator[Daemon]:
    with tempfile.TemporaryDirectory() as folder:  # the name of a socket has to be short
        daemon = Daemon(Path(folder) / "s")
        await daemon.start()
        yield daemon
        await daemon.stop()


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    store = await SqliteStore.open_file(MEMORY)
    async with Broker(store) as broker:
        yield broker
    await store.close()


@asynccontextmanager
async def watching(daemon: Daemon, broker: Broker, **options: Any) -> AsyncIterator[Relay]:
    """A relay that knows what is open; leaving it lets go as a desk does that stops."""
    relay = Relay(broker, daemon.path, **{"grace": 0.05, **options})
    ready = asyncio.Event()
    following = asyncio.create_task(relay.follow(ready=ready.set))
    try:
        async with asyncio.timeout(PATIENCE):
            await ready.wait()
        yield relay
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await relay.close()


async def happened(broker: Broker, kind: type[Event], number: int = 1) -> Ask:
    """The ask of the so-and-so-manyth event of a kind."""
    seen: list[Ask] = []

    def is_it(event: Event) -> bool:
        if isinstance(event, kind):
            seen.append(event.ask)
        return len(seen) == number

    return (await first_event(broker, is_it)).ask


async def answered(broker: Broker, **said: Any) -> Ask:
    """The first ask, once a person has answered it."""
    ask = await happened(broker, Asked)
    return await broker.answer(ask.id, Answer(**{"by": "ana", **said}))


def command(text: str = "touch made.txt") -> dict[str, Any]:
    return {"itemId": CALL, "command": f"/bin/bash -lc '{text}'", "cwd": "/repo", "reason": "May I?"}


def asking(**rest: Any) -> dict[str, Any]:
    return {"itemId": CALL, "questions": [QUESTION], "isBlocking": True, **rest}


# What was recorded --------------------------------------------------------------------------------------------------


async def test_a_recorded_terminal_is_answered_at_the_desk_and_answers_itself(daemon: Daemon, broker: Broker) -> None:
    entries = [json.loads(line) for line in (WIRE / "attached-terminal.jsonl").read_text().splitlines()]
    thread = "01a1e05b-7726-7ee3-9073-14f16e59b41c"
    daemon.threads[thread] = {"id": thread, "cwd": "/home/dev/project", "parentThreadId": None, "status": RUNS}
    said = iter((Answer(reply="once", by="ana"), Answer(answers=(("SQLite",),), by="ana")))
    number = 0
    async with watching(daemon, broker):
        for entry in entries:
            message = entry["msg"]
            if entry["dir"] == "in":
                ask = await happened(broker, Asked, number)
                await broker.answer(ask.id, next(said))
                assert await daemon.answer() == message
                daemon.responses.clear()
                continue
            number += message["method"] in METHODS
            await daemon.send(message)
            if message["method"] in METHODS:
                await happened(broker, Asked, number)
        await happened(broker, Delivered, 3)
    first, second, third = [ask async for ask in broker.asks()]
    assert first.id == f"codex:{thread}:01a1e05c-0ee3-7fa3-b1cb-e1b1aa7590bc:call_85"
    assert first.permission is not None and first.permission.command == "echo from-tui2"
    assert (first.origin.session, first.origin.cwd) == (thread, "/home/dev/project")
    assert second.questions[0].question == "Which database should I use?"
    assert third.answer is not None and (third.answer.reply, third.answer.by) == ("once", "agent")
    assert [ask.delivery_error for ask in (first, second, third)] == [None] * 3
    assert daemon.responses == []  # the third was answered in the terminal


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("command-approval-accept", Answer(reply="once")),
        ("command-approval-accept-for-session", Answer(reply="always")),
        ("file-change-accept", Answer(reply="once")),
        ("file-change-decline", Answer(rejected=True, reason="no")),
        ("question-plan-mode-answered", Answer(answers=(("SQLite",), ("EU",)), notes=(None, "closest to customers"))),
        ("mcp-elicitation-accept", Answer(answers=(("green",), ("a", "c"), ("hi",), ("true",)))),
        ("mcp-elicitation-decline", Answer(rejected=True)),
        ("mcp-tool-approval-accept", Answer(reply="once")),
        ("mcp-tool-approval-persist-session", Answer(reply="always")),
        ("request-permissions-denied", Answer(reply="reject")),
    ],
)
async def test_every_kind_of_request_is_answered_as_one_of_our_own(
    daemon: Daemon, broker: Broker, name: str, answer: Answer
) -> None:
    """Joined late: what was announced before the request is in the newest turn of the thread."""
    lines = [json.loads(line) for line in (WIRE / f"{name}.jsonl").read_text().splitlines()]
    out = [line["msg"] for line in lines if line["dir"] == "out"]
    request = next(each for each in out if each.get("method") in METHODS)
    items = [each["params"]["item"] for each in out if each.get("method") == "item/started"]
    params = request["params"]
    daemon.turns[params["threadId"]] = [{"id": params["turnId"], "items": items}]
    async with watching(daemon, broker):
        await daemon.ask(request["method"], request["id"], **params)
        ask = await happened(broker, Asked)
        await broker.answer(ask.id, replace(answer, by="ana"))
        response = await daemon.answer()
    expected = next(line["msg"]["result"] for line in lines if line["dir"] == "in" and "result" in line["msg"])
    assert response == {"id": request["id"], "result": expected}
    if request["method"] == FILES:
        assert ask.permission is not None and ask.permission.diff


# Both outcomes of every race ----------------------------------------------------------------------------------------


async def test_the_desk_is_first(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        ask = await answered(broker, reply="once")
        assert await daemon.answer() == {"id": 0, "result": {"decision": "accept"}}
        assert (await broker.get(ask.id)).delivered_at is None  # nobody has seen yet that it was taken
        await daemon.resolve()
        await daemon.complete({"type": "commandExecution", "status": "completed"})
        taken = await happened(broker, Delivered)
    assert taken.delivery_error is None and taken.delivered_at is not None


@pytest.mark.parametrize(
    ("method", "item", "state", "reply"),
    [
        (COMMAND, {"type": "commandExecution", "status": "completed", "exitCode": 0}, "answered", "once"),
        (COMMAND, {"type": "commandExecution", "status": "failed", "exitCode": 1}, "answered", "once"),
        (COMMAND, {"type": "commandExecution", "status": "declined"}, "rejected", "reject"),
        (COMMAND, {"type": "commandExecution", "status": "failed"}, "withdrawn", None),
        (COMMAND, {"type": "somethingNew", "status": "completed"}, "withdrawn", None),
        (COMMAND, None, "withdrawn", None),
        (FILES, {"type": "fileChange", "status": "completed"}, "answered", "once"),
        (FILES, {"type": "fileChange", "status": "declined"}, "rejected", "reject"),
        (INPUT, {"type": "commandExecution", "status": "completed"}, "withdrawn", None),
        (PERMISSIONS, None, "withdrawn", None),
    ],
)
async def test_the_terminal_is_first(
    daemon: Daemon, broker: Broker, method: str, item: dict[str, Any] | None, state: str, reply: str | None
) -> None:
    params = {COMMAND: command(), FILES: {"itemId": CALL}, INPUT: asking()}.get(
        method, {"itemId": CALL, "permissions": {"network": {"enabled": True}}}
    )
    async with watching(daemon, broker):
        await daemon.ask(method, **params)
        ask = await happened(broker, Asked)
        await daemon.resolve()
        if item is not None:
            await daemon.complete(item)
        kinds = {"answered": Answered, "rejected": Rejected, "withdrawn": Withdrawn}
        ask = await happened(broker, kinds[state])
        with pytest.raises((AlreadyAnswered, AskWithdrawn)):
            await broker.answer(ask.id, Answer(reply="always") if ask.permission else Answer(answers=(("own",),)))
        if state == "withdrawn":
            assert ask.withdrawn_reason == IN_THE_TERMINAL
        else:
            assert ask.answer is not None
            assert (ask.answer.by, ask.answer.rejected) == ("agent", reply == "reject")
    assert daemon.responses == []


async def test_the_desk_answers_while_it_is_learned_how_the_terminal_did(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker, grace=PATIENCE) as relay:
        await daemon.ask(COMMAND, **command())
        ask = await happened(broker, Asked)
        await daemon.resolve()
        await eventually(lambda: all(request.is_resolved for request in relay._open.values()))
        await broker.answer(ask.id, Answer(rejected=True, by="ana"))
        await daemon.complete({"type": "commandExecution", "status": "completed"})
        late = await happened(broker, Delivered)
    assert (late.delivered_at, late.delivery_error) == (None, FIRST)
    assert daemon.responses == []


async def test_the_terminal_is_first_while_the_reason_is_on_its_way(daemon: Daemon, broker: Broker) -> None:
    daemon.held["turn/steer"] = asyncio.Event()
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        await answered(broker, rejected=True, reason="not today")
        await eventually(lambda: bool(daemon.called("turn/steer")))
        await daemon.resolve()
        late = await happened(broker, Delivered)
        daemon.held["turn/steer"].set()
        await daemon.ask(COMMAND, 1, **{**command("touch other.txt"), "itemId": "call_2"})
        second = await happened(broker, Asked, 2)
        await broker.answer(second.id, Answer(reply="once", by="ana"))
        assert await daemon.answer() == {"id": 1, "result": {"decision": "accept"}}  # and nothing for the first
    assert (late.delivered_at, late.delivery_error) == (None, FIRST)


async def test_an_answer_that_the_outcome_contradicts_came_second(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker, grace=PATIENCE):
        await daemon.ask(COMMAND, **command())
        await answered(broker, reply="once")
        await daemon.answer()
        await daemon.resolve()
        await daemon.complete({"type": "commandExecution", "status": "declined"})
        late = await happened(broker, Delivered)
    assert (late.delivered_at, late.delivery_error) == (None, FIRST)


async def test_a_turn_that_is_stopped_withdraws_what_it_asked(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        await happened(broker, Asked)
        await daemon.end_turn("interrupted")
        await daemon.resolve()  # which comes behind it then
        assert (await happened(broker, Withdrawn)).withdrawn_reason == STOPPED


async def test_a_no_in_the_terminal_ends_the_turn(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker, grace=PATIENCE):
        await daemon.ask(FILES, itemId=CALL)
        await happened(broker, Asked)
        await daemon.resolve()
        await daemon.end_turn("interrupted")
        refused = await happened(broker, Rejected)
    assert refused.answer is not None and refused.answer.by == "agent"


async def test_a_turn_that_ends_before_it_took_the_answer_is_told(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        await answered(broker, reply="once")
        await daemon.answer()
        await daemon.end_turn("interrupted")
        assert (await happened(broker, Delivered)).delivery_error == OVER


async def test_what_was_over_before_anybody_looked_asks_nobody(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker):
        request = {"method": COMMAND, "id": 0, "params": {"threadId": THREAD, "turnId": TURN, **command()}}
        daemon.threads[THREAD] = {"id": THREAD, "status": RUNS}
        await daemon.send(request)
        await daemon.resolve()
        ended = {"method": COMMAND, "id": 1, "params": {"threadId": THREAD, "turnId": "turn-0", **command()}}
        await daemon.send(ended)
        await daemon.end_turn(turn="turn-0")
        await daemon.ask(COMMAND, 2, **{**command("true"), "itemId": "call_2"})
        ask = await happened(broker, Asked)
    assert ask.permission is not None and ask.permission.command == "true"


@pytest.mark.parametrize("how", ["thread/closed", "notLoaded"])
async def test_a_thread_that_is_closed_withdraws_what_it_asked(daemon: Daemon, broker: Broker, how: str) -> None:
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        await happened(broker, Asked)
        if how == "notLoaded":
            await daemon.status({"type": how})
        else:
            await daemon.tell(how, threadId=THREAD)
        await happened(broker, Withdrawn)


# What is said to Codex, and what is not -----------------------------------------------------------------------------


async def test_a_refusal_carries_its_reason(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        await answered(broker, rejected=True, reason="not today")
        assert await daemon.answer() == {"id": 0, "result": {"decision": "decline"}}
    [steer] = daemon.called("turn/steer")
    assert (steer["threadId"], steer["expectedTurnId"]) == (THREAD, TURN)
    assert "not today" in steer["input"][0]["text"]


async def test_a_refused_question_is_answered_with_the_reason(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker):
        await daemon.ask(INPUT, **asking())
        await answered(broker, rejected=True, reason="ask later")
        said = {"answers": {"db": {"answers": ["None of the above", "user_note: ask later"]}}}
        assert await daemon.answer() == {"id": 0, "result": said}
    assert daemon.called("turn/steer") == []


async def test_joining_a_thread_says_nothing_but_which_one(daemon: Daemon, broker: Broker) -> None:
    """A setting, a folder or a policy in it would become those of the person's own session."""
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        await happened(broker, Asked)
    [joined] = daemon.called("thread/resume")
    assert joined.pop("threadId") == THREAD
    assert set(joined) == {"excludeTurns", "initialTurnsPage"}  # how much is told to us


async def test_a_thread_is_left_when_its_turn_is_over_and_joined_anew(daemon: Daemon, broker: Broker) -> None:
    """As long as somebody listens to it, Codex does not let go of it."""
    async with watching(daemon, broker):
        for number in (1, 2):
            await daemon.ask(COMMAND, number, **{**command(), "turnId": f"turn-{number}"})
            await happened(broker, Asked, number)
            await daemon.end_turn(turn=f"turn-{number}")
            await eventually(lambda number=number: len(daemon.called("thread/unsubscribe")) == number)  # type: ignore[misc]
        assert len(daemon.called("thread/resume")) == 2


async def test_a_thread_that_is_not_written_down_yet_is_joined_a_little_later(daemon: Daemon, broker: Broker) -> None:
    daemon.refusals["thread/resume"] = 2
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        await happened(broker, Asked)
    assert len(daemon.called("thread/resume")) == 3


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("account/chatgptAuthTokens/refresh", {}),
        ("something/new", {"anything": [1]}),
        (TOOL, {"callId": "c", "tool": "question", "arguments": {"questions": [QUESTION]}}),  # of another client
        (INPUT, {"itemId": "i", "questions": []}),
        (INPUT, {"itemId": "i", "questions": "none"}),
        (INPUT, {"itemId": "i", "questions": [{"question": "x"}]}),
        (COMMAND, {"itemId": "i"}),
        (COMMAND, {"itemId": "i", "command": 7, "threadId": None}),
        (PERMISSIONS, {"itemId": "i", "permissions": []}),
        (ELICITATION, {"serverName": "forms", "mode": "form", "message": 1, "requestedSchema": 3}),
        (COMMAND, {"itemId": "x" * 600, "command": "true"}),
    ],
    ids=str,
)
async def test_what_is_not_for_the_desk_is_left_to_the_terminal(
    daemon: Daemon, broker: Broker, method: str, params: dict[str, Any]
) -> None:
    """An error would be an answer, and the first one counts."""
    async with watching(daemon, broker):
        daemon.threads[THREAD] = {"id": THREAD, "status": RUNS}
        await daemon.send({"method": method, "id": 7, "params": {"threadId": THREAD, "turnId": TURN, **params}})
        await daemon.ask(COMMAND, 8, **{**command("the good one"), "itemId": "call_8"})
        ask = await happened(broker, Asked)
        assert ask.permission is not None and ask.permission.command == "the good one"
        await broker.answer(ask.id, Answer(reply="once", by="ana"))
        assert (await daemon.answer())["id"] == 8
    assert [response["id"] for response in daemon.responses] == [8]


async def test_a_flood_and_broken_frames_hurt_nobody(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker) as relay:
        daemon.threads[THREAD] = {"id": THREAD, "status": RUNS}
        for frame in (
            "{",
            "[]",
            "7",
            "",
            '"x"',
            b"\xff\xfe",
            '{"id": true}',
            '{"method": 3}',
            '{"id": 99, "result": 1}',
        ):
            await daemon.send(frame)
        for params in ({}, {"threadId": 3}, {"status": 3}, {"item": []}, {"turn": 1}, {"requestId": {}}, {"thread": 1}):
            for method in ("thread/status/changed", "thread/started", "item/started", "item/completed"):
                await daemon.send({"method": method, "params": params})
            for method in ("serverRequest/resolved", "turn/completed", "thread/closed", "turn/started"):
                await daemon.send({"method": method, "params": params})
        for number in range(10_000):
            kind = ("item/started", "item/completed", "item/agentMessage/delta", "serverRequest/resolved")[number % 4]
            item = {"id": f"i{number // 4}", "type": "commandExecution", "status": "inProgress"}
            await daemon.tell(kind, threadId=THREAD, turnId=TURN, item=item, requestId=number + 100)
        await daemon.ask(COMMAND, **command())
        await answered(broker, reply="once")
        assert await daemon.answer() == {"id": 0, "result": {"decision": "accept"}}
        assert len(relay._over) <= attach_module.REMEMBERED and len(relay._items) < 10


async def test_two_forms_that_are_the_same_are_two_asks(daemon: Daemon, broker: Broker) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    form = {"serverName": "forms", "mode": "form", "message": "Your name?", "requestedSchema": schema}
    async with watching(daemon, broker):
        await daemon.ask(ELICITATION, 0, **form)
        await daemon.ask(ELICITATION, 1, **form)
        await happened(broker, Asked)
        await daemon.hang_up()
        await eventually(lambda: len(daemon.called("thread/resume")) == 2)
        second = await happened(broker, Asked, 2)
        first = next(ask for ask in [ask async for ask in broker.asks()] if ask.id != second.id)
        await broker.answer(first.id, Answer(answers=(("Ana",),), by="ana"))
        await daemon.answer()
        await broker.answer(second.id, Answer(answers=(("Bo",),), by="ana"))
        await eventually(lambda: len(daemon.responses) == 2)
    said = sorted(response["result"]["content"]["name"] for response in daemon.responses)
    assert said == ["Ana", "Bo"]


async def test_a_subagent_asks_under_its_parent(daemon: Daemon, broker: Broker) -> None:
    """Codex lets everybody hear the threads of subagents, so the request comes without our joining."""
    async with watching(daemon, broker):
        daemon.threads["child"] = {"id": "child", "cwd": "/repo/sub", "parentThreadId": THREAD, "status": RUNS}
        await daemon.tell("turn/started", threadId="child", turn={"id": TURN})
        params = {"threadId": "child", "turnId": TURN, **command()}
        await daemon.send({"method": COMMAND, "id": 0, "params": params})
        await daemon.status(WAITS, thread="child")
        ask = await answered(broker, reply="once")
        await daemon.answer()
    assert (ask.origin.session, ask.origin.parent, ask.origin.cwd) == ("child", THREAD, "/repo/sub")


async def test_a_subagent_that_asks_nothing_is_left_all_the_same(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker):
        daemon.threads["child"] = {"id": "child", "parentThreadId": THREAD, "status": RUNS}
        await daemon.tell("turn/started", threadId="child", turn={"id": TURN})
        await daemon.end_turn(thread="child")
        await eventually(lambda: daemon.called("thread/unsubscribe") == [{"threadId": "child"}])
    assert daemon.called("thread/resume") == []


# A question that the terminal closes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "asked", "seconds"),
    [
        (None, {"isBlocking": False}, 100),
        (30.0, {"isBlocking": False}, 30),
        (600.0, {"isBlocking": False}, 100),
        (None, {"isBlocking": False, "autoResolutionMs": 60_000}, 50),
        (None, {"isBlocking": True}, None),
    ],
)
async def test_the_desk_is_faster_than_the_countdown_of_the_terminal(
    daemon: Daemon, own: float | None, asked: dict[str, Any], seconds: int | None
) -> None:
    clock, store = FakeClock(), await SqliteStore.open_file(MEMORY)
    handling = Handling(question_timeout=own)
    async with Broker(store, clock=clock) as broker, watching(daemon, broker, handling=handling):
        await daemon.ask(INPUT, **asking(**asked))
        ask = await happened(broker, Asked)
        assert ((ask.extra or {}).get("terminal") == CLOSES) == (seconds is not None)
        assert (ask.deadline is not None) == (seconds is not None)
        if seconds is not None:
            await clock.advance(seconds - 1)
            assert daemon.responses == []
            await clock.advance(1)
            answers = (await daemon.answer())["result"]["answers"]
            assert answers["db"]["answers"][0] == "Postgres (Recommended)"
    await store.close()


async def test_what_happens_when_the_time_is_up_is_a_setting(daemon: Daemon) -> None:
    clock, store = FakeClock(), await SqliteStore.open_file(MEMORY)
    handling = Handling(on_timeout="reject")
    async with Broker(store, clock=clock) as broker, watching(daemon, broker, handling=handling):
        await daemon.ask(INPUT, **asking(isBlocking=False))
        await happened(broker, Asked)
        await clock.advance(100)
        assert (await daemon.answer())["result"]["answers"]["db"]["answers"][0] == "None of the above"
    await store.close()


# Breaks -------------------------------------------------------------------------------------------------------------


async def test_a_desk_that_stops_leaves_the_terminal_alone_and_finds_it_again(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        ask = await happened(broker, Asked)
    assert daemon.responses == []
    assert (await broker.get(ask.id)).state == "asked"
    await broker.answer(ask.id, Answer(reply="once", by="ana"))  # while nobody listens
    async with watching(daemon, broker):
        assert await daemon.answer() == {"id": 0, "result": {"decision": "accept"}}
        await daemon.resolve()
        await daemon.complete({"type": "commandExecution", "status": "completed"})
        assert (await happened(broker, Delivered)).id == ask.id
    assert len([each async for each in broker.asks()]) == 1


async def test_a_connection_that_breaks_is_made_again_and_its_asks_are_joined(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        ask = await happened(broker, Asked)
        await daemon.hang_up()
        await eventually(lambda: len(daemon.called("thread/resume")) == 2)
        await broker.answer(ask.id, Answer(reply="once", by="ana"))
        assert await daemon.answer() == {"id": 0, "result": {"decision": "accept"}}
        events = [event async for event in _so_far(broker)]
    assert not any(isinstance(event, Withdrawn) for event in events)


async def _so_far(broker: Broker) -> AsyncIterator[Event]:
    until = await broker.cursor()
    async for event in broker.events(after=0):
        yield event
        if event.cursor >= until:
            return


async def test_what_was_settled_during_a_break_is_withdrawn(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        await happened(broker, Asked)
        daemon.open.clear()
        daemon.threads[THREAD]["status"] = RUNS
        await daemon.hang_up()
        assert (await happened(broker, Withdrawn)).withdrawn_reason == MEANWHILE


async def test_an_answer_whose_fate_was_not_seen_is_told_as_such(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        await answered(broker, reply="once")
        await daemon.answer()
        daemon.open.clear()
        daemon.threads[THREAD]["status"] = RUNS
        await daemon.hang_up()
        assert (await happened(broker, Delivered)).delivery_error == UNSEEN


async def test_a_daemon_that_is_gone_withdraws_what_it_asked_and_its_next_one_is_found(
    daemon: Daemon, broker: Broker
) -> None:
    async with watching(daemon, broker):
        await daemon.ask(COMMAND, **command())
        await happened(broker, Asked)
        await daemon.stop()
        assert (await happened(broker, Withdrawn)).withdrawn_reason == ENDED
        daemon.open.clear()
        daemon.threads.clear()
        await daemon.start()
        await eventually(lambda: len(daemon.called("initialize")) == 2)
        await daemon.ask(COMMAND, **{**command(), "turnId": "turn-2"})
        await happened(broker, Asked, 2)


async def test_it_is_waited_for_in_silence(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with tempfile.TemporaryDirectory() as folder:
        late = Daemon(Path(folder) / "later" / "s")
        waiting = asyncio.create_task(_until_ready(late, broker))
        await asyncio.sleep(0)
        late.path.parent.mkdir()
        await late.start()
        async with asyncio.timeout(PATIENCE):
            await waiting
        await late.stop()
    assert [record.message for record in caplog.records if record.name.startswith("handraise")] == []


async def _until_ready(daemon: Daemon, broker: Broker) -> None:
    async with watching(daemon, broker):
        return


async def test_something_else_at_that_place_is_told_once_and_tried_again(
    daemon: Daemon, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    await daemon.stop()
    seen: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readline())
        writer.close()

    other = await asyncio.start_unix_server(hang_up, str(daemon.path))
    following = asyncio.create_task(_until_ready(daemon, broker))
    await eventually(lambda: len(seen) >= 2)
    other.close()
    daemon.path.unlink()
    await daemon.start()
    async with asyncio.timeout(PATIENCE):
        await following
    warnings = [record for record in caplog.records if record.levelname == "WARNING" and "codex" in record.name]
    assert len(warnings) == 1 and "did not shake hands" in warnings[0].getMessage()


async def test_what_was_left_open_before_the_desk_started_is_looked_after(daemon: Daemon, broker: Broker) -> None:
    def left(thread: str, *, session: str | None = None) -> Ask:
        permission = Permission(tool="shell", command="true", replies=("once", "reject"))
        origin = Origin(agent="codex", session=session or thread)
        return Ask(id=f"codex:{thread}:t:c", permission=permission, origin=origin)

    asks = {
        "over": left("over"),
        "waits": left("waits"),
        "elsewhere": left("elsewhere"),  # of a daemon on another machine
        "ours": left("ours", session="ses_1"),  # of a session that this desk started
    }
    for ask in asks.values():
        await broker.open(ask)
    for thread in ("over", "waits", "ours", "ses_1"):
        daemon.threads[thread] = {"id": thread, "status": WAITS if thread == "waits" else IDLE}
    async with watching(daemon, broker):
        withdrawn = await happened(broker, Withdrawn)
    assert (withdrawn.id, withdrawn.withdrawn_reason) == (asks["over"].id, MEANWHILE)
    states = {name: (await broker.get(ask.id)).state for name, ask in asks.items()}
    assert states == {"over": "withdrawn", "waits": "asked", "elsewhere": "asked", "ours": "asked"}


# Where it is --------------------------------------------------------------------------------------------------------


def test_an_address_is_the_daemon_or_a_socket() -> None:
    socket = Path("app-server-control/app-server-control.sock")
    assert socket_of("daemon", environ={"CODEX_HOME": "/c", "HOME": "/h"}) == "/c" / socket
    assert socket_of("daemon", environ={"HOME": "/h"}) == "/h/.codex" / socket
    assert socket_of("unix:///run/my%20codex.sock", environ={}) == Path("/run/my codex.sock")


@pytest.mark.parametrize(
    "address", ["", "nonsense", "unix://", "unix:relative", "unix://host/x", "http://[", "ws://h/x"]
)
def test_another_address_is_refused_in_a_sentence(address: str) -> None:
    with pytest.raises(SettingsError, match="`daemon`, which your own `codex` starts"):
        socket_of(address, environ={})


async def test_a_socket_of_somebody_else_is_refused(
    daemon: Daemon, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to(daemon.path)
    assert check_owner(link) == daemon.path.resolve()
    agent = Codex(AgentSettings(home=tmp_path))
    daemon.path.parent.chmod(0o777)
    with pytest.raises(SettingsError, match="not yours alone"):
        await asyncio.wait_for(agent.watch(broker, f"unix://{link}"), PATIENCE)
    daemon.path.parent.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(SettingsError, match="not yours alone"):
        await asyncio.wait_for(agent.watch(broker, f"unix://{link}"), PATIENCE)
    assert daemon.calls == []


async def test_a_missing_extra_says_its_name(
    daemon: Daemon, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "websockets.asyncio.client", None)
    with pytest.raises(SettingsError, match=r"pip install 'handraise\[codex\]'"):
        await asyncio.wait_for(Codex(AgentSettings(home=tmp_path)).watch(broker, f"unix://{daemon.path}"), PATIENCE)


async def test_the_agent_listens_with_the_handling_of_the_settings(
    daemon: Daemon, broker: Broker, tmp_path: Path
) -> None:
    agent = Codex(AgentSettings(home=tmp_path, handling=Handling(question_timeout=30.0)))
    assert isinstance(agent, Watchable) and agent.found_at == "daemon"
    watched = asyncio.create_task(agent.watch(broker, f"unix://{daemon.path}"))
    await eventually(lambda: bool(daemon.called("thread/loaded/list")))
    await daemon.ask(INPUT, **asking(isBlocking=False))
    ask = await happened(broker, Asked)
    assert ask.deadline is not None and ask.asked_at is not None
    assert (ask.deadline - ask.asked_at).total_seconds() == 30
    watched.cancel()
    await asyncio.gather(watched, return_exceptions=True)
    assert daemon.responses == []
