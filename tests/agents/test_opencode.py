"""OpenCode's messages, recorded from 1.18.33, and what becomes of them (A1). The program itself is in tests/live."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handraise.agents import AgentSettings, Start
from handraise.agents.opencode import OpenCode
from handraise.agents.opencode.relay import Relay
from handraise.agents.opencode.requests import Owner
from handraise.agents.opencode.server import Server, Servers
from handraise.agents.opencode.translate import clearing, from_answer, local_answer, refusal, request_of, to_ask
from handraise.asks import Answer, Ask, Origin, bound, fit
from handraise.broker import Broker
from handraise.errors import AgentFailed, AskDoesNotFit, SettingsError
from handraise.events import Asked, Delivered
from handraise.plugins import load
from handraise.transports.process import is_running
from tests.helpers.serving import eventually, first_event

WIRE = Path(__file__).parents[1] / "wire" / "opencode"
PATIENCE = 5.0
ORIGIN = Origin(agent="opencode", session="s1")


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (WIRE / f"{name}.jsonl").read_text().splitlines()]


def an_ask(questions: list[Any], **given: Any) -> Ask:
    return to_ask(
        {"id": "que_1", "sessionID": "ses_1", "questions": questions, **given}, kind="question", origin=ORIGIN
    )


def asked_for(permission: str) -> Ask:
    """The first recorded request of a permission."""
    events = [line["event"] for line in recorded("permission-kinds") if line["permission"] == permission]
    return to_ask(events[0]["properties"], kind="permission", origin=replace(ORIGIN, cwd="/home/dev/demo"))


# Questions ----------------------------------------------------------------------------------------------------------

DATABASE = {
    "question": "Which database?",
    "header": "Database",
    "options": [{"label": "Postgres (Recommended)", "description": "relational"}, {"label": "SQLite"}],
}
PLAN = {
    "question": "Switch to the build agent?",
    "header": "Build Agent",
    "options": [{"label": "Yes", "description": ""}, {"label": "No", "description": ""}],
    "custom": False,
}


def test_every_recorded_question_becomes_an_ask_that_a_desk_takes() -> None:
    lines = [line for line in recorded("question-answers") if line["asked_questions"]]
    assert len(lines) > 10
    for line in lines:
        ask = an_ask(line["asked_questions"])
        bound(ask)
        assert [question.question for question in ask.questions] == [
            each["question"] for each in line["asked_questions"]
        ]


def test_a_question_keeps_what_it_says_and_what_we_do_not_know() -> None:
    ask = an_ask([DATABASE | {"multiple": True, "shape": "round"}], tool={"messageID": "msg_1", "callID": "c"}, mood=1)
    assert ask.id == "opencode:ses_1:que_1"
    assert ask.extra == {"tool": {"messageID": "msg_1", "callID": "c"}, "mood": 1}
    (question,) = ask.questions
    assert (question.header, question.multiple, question.custom, question.extra) == (
        "Database",
        True,
        True,
        {"shape": "round"},
    )
    assert [option.recommended for option in question.options] == [True, False]
    assert request_of(ask) == ("ses_1", "que_1")


def test_an_answer_goes_back_in_labels_with_its_notes() -> None:
    ask = an_ask([DATABASE, DATABASE | {"multiple": True}, {"question": "Name?", "options": []}])
    answers = (("SQLite",), ("SQLite", "something else"), ())
    answer = fit(ask, Answer(answers=answers, notes=("for now", None, None)))
    call = from_answer(ask, answer)
    assert call.path == "/question/que_1/reply"
    assert call.body == {"answers": [["SQLite", "note: for now"], ["SQLite", "something else"], []]}


def test_options_with_one_label_go_back_by_that_label() -> None:
    ask = an_ask([{"question": "Which?", "options": [{"label": "a"}, {"label": "a"}]}])
    assert from_answer(ask, Answer(answers=(("a#2",),))).body == {"answers": [["a"]]}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer(rejected=True, reason="not now", by="ana"), "The user declined to answer this. Reason: not now"),
        (Answer(rejected=True, by="ana"), "The user declined to answer this."),
        (
            Answer(rejected=True, reason="no answer in 60 s", by="policy:timeout"),
            "No person is available (no answer in 60 s); decide yourself and note the assumption.",
        ),
    ],
)
def test_a_refusal_is_a_reply_so_that_the_turn_goes_on(answer: Answer, told: str) -> None:
    ask = an_ask([DATABASE, DATABASE])
    call = from_answer(ask, answer)
    assert (call.path, call.body) == ("/question/que_1/reply", {"answers": [[told], [told]]})
    assert from_answer(an_ask([PLAN]), answer).body == {"answers": [["No"]]}


def test_the_newer_routes_are_for_the_newer_requests() -> None:
    event = next(line["data"] for line in recorded("v2-events") if line["data"].get("type") == "question.v2.asked")
    ask = to_ask(event["properties"], kind="question", origin=ORIGIN, generation=2)
    session, request = request_of(ask)
    call = from_answer(ask, Answer(answers=(("b",),)))
    assert (call.path, call.body) == (f"/api/session/{session}/question/{request}/reply", {"answers": [["b"]]})
    assert clearing(ask).path == f"/api/session/{session}/question/{request}/reject"
    told = {"id": "per_1", "sessionID": "ses_1", "action": "bash", "resources": ["ls"], "save": ["ls *"]}
    ask = to_ask(told, kind="permission", origin=ORIGIN, generation=2)
    assert ask.permission is not None
    assert (ask.permission.tool, ask.permission.scopes[0].patterns) == ("bash", ("ls *",))
    assert from_answer(ask, Answer(reply="always")).path == "/api/session/ses_1/permission/per_1/reply"


@pytest.mark.parametrize(
    "questions",
    [
        None,
        "x",
        ["x"],
        [{"options": []}],
        [{"question": 1, "options": []}],
        [{"question": "a"}],
        [DATABASE | {"options": [1]}],
    ],
)
def test_what_is_no_question_is_refused_with_a_reason(questions: Any) -> None:
    request = {"id": "que_1", "sessionID": "ses_1", "questions": questions}
    with pytest.raises(AskDoesNotFit) as misfit:
        to_ask(request, kind="question", origin=ORIGIN)
    call = refusal(request, kind="question", problem=misfit.value.message)
    assert call.path == "/question/que_1/reply"
    replies = (call.body or {})["answers"]
    assert len(replies) == (len(questions) if isinstance(questions, list) else 0)
    assert all("could not be asked" in reply[0] for reply in replies)


def test_an_id_cannot_lead_a_call_elsewhere() -> None:
    ask = to_ask({"id": "../x?y", "sessionID": "ses_1", "questions": [DATABASE]}, kind="question", origin=ORIGIN)
    assert from_answer(ask, Answer(answers=(("SQLite",),))).path == "/question/..%2Fx%3Fy/reply"


def test_what_was_said_in_opencodes_own_terminal_is_an_answer() -> None:
    ask = an_ask([DATABASE, {"question": "Which?", "options": [{"label": "a"}, {"label": "a"}]}])
    event = {"type": "question.replied", "properties": {"requestID": "que_1", "answers": [["SQLite"]]}}
    assert local_answer(ask, event) == Answer(answers=(("SQLite",), ()), by="agent", via="opencode")
    rejected = local_answer(ask, {"type": "question.rejected", "properties": {"requestID": "que_1"}})
    assert rejected.rejected
    for line in recorded("question-answers"):
        if line["response"]["status"] == 200 and line["asked_questions"] and line["request"]["path"].endswith("/reply"):
            ask = an_ask(line["asked_questions"])
            local_answer(ask, {"properties": line["request"]["body"]})


# Permissions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permission", "summary"),
    [
        ("bash", "cat /etc/hostname > /dev/null && rm -f a.tmp"),
        ("edit", "edit a.txt"),
        ("read", "read a.txt"),
        ("grep", "grep alpha"),
        ("webfetch", "fetch http://127.0.0.1:PORT/v1/models"),
        ("task", "start the subagent general: sub"),
        ("todowrite", "change its list of things to do"),
        ("external_directory", "reach outside the project: /etc/*, for cat /etc/hostname > /dev/null && rm -f a.tmp"),
    ],
)
def test_a_permission_says_in_one_line_what_is_wanted(permission: str, summary: str) -> None:
    ask = asked_for(permission)
    bound(ask)
    assert ask.permission is not None
    assert (ask.permission.tool, ask.permission.summary) == (permission, summary)
    assert ask.permission.replies == ("once", "always", "reject")
    assert [scope.by_desk for scope in ask.permission.scopes] == [True]


def test_a_permission_shows_what_it_is_about() -> None:
    bash, edit, fetch = (asked_for(each).permission for each in ("bash", "edit", "webfetch"))
    assert bash is not None and edit is not None and fetch is not None
    assert bash.command == "cat /etc/hostname > /dev/null && rm -f a.tmp"
    assert bash.extra == {"patterns": ["cat /etc/hostname > /dev/null", "rm -f a.tmp"]}
    assert bash.scopes[0].patterns == ("cat *", "rm *")
    assert edit.paths == ("/home/dev/demo/a.txt",)
    assert edit.diff is not None and "+gamma" in edit.diff
    assert fetch.url == "http://127.0.0.1:PORT/v1/models"
    assert fetch.input == {"url": "http://127.0.0.1:PORT/v1/models", "format": "text"}


def test_a_summary_stays_one_short_line() -> None:
    told = {"id": "per_1", "sessionID": "ses_1", "permission": "bash", "patterns": [], "always": []}
    ask = to_ask(told | {"metadata": {"command": "echo a\n" * 1000}}, kind="permission", origin=ORIGIN)
    assert ask.permission is not None
    assert len(ask.permission.summary) == 300 and "\n" not in ask.permission.summary
    assert ask.permission.replies == ("once", "reject")  # there is nothing to remember


def test_always_is_never_told_to_opencode() -> None:
    ask = asked_for("bash")
    path = f"/permission/{request_of(ask)[1]}/reply"
    for reply in ("once", "always"):
        call = from_answer(ask, Answer(reply=reply, by="ana"))
        assert (call.path, call.body) == (path, {"reply": "once"})


def test_a_refused_permission_always_says_why() -> None:
    ask = asked_for("bash")
    for answer, message in [
        (Answer(reply="reject", rejected=True, reason="use printf", by="ana"), "use printf"),
        (Answer(reply="reject", rejected=True, by="ana"), "The user does not allow this. Go on without it."),
        (
            Answer(reply="reject", rejected=True, reason="no answer in 60 s", by="policy:timeout"),
            "Nobody is there to allow this (no answer in 60 s). Go on without it.",
        ),
    ]:
        assert from_answer(ask, answer).body == {"reply": "reject", "message": message}


# A server -----------------------------------------------------------------------------------------------------------

QUESTION = {
    "id": "que_1",
    "sessionID": "ses_1",
    "questions": [DATABASE],
    "tool": {"messageID": "msg_1", "callID": "call_1"},
}
RUNNING = {"status": "running"}
INTERRUPTED = {"status": "error", "error": "Tool execution aborted", "metadata": {"interrupted": True}}
FOLDER = "/home/dev/demo"


def a_permission(number: int) -> dict[str, Any]:
    return {
        "id": f"per_{number}",
        "sessionID": "ses_1",
        "permission": "bash",
        "patterns": [f"echo {number}"],
        "metadata": {"command": f"echo {number}"},
        "always": [],
    }


class Impostor:
    """As much of a server of OpenCode as the relay needs, with the bad luck that a test wants."""

    def __init__(self) -> None:
        self.lists: dict[str, Any] = {
            "/question": [],
            "/permission": [],
            "/session/status": {"ses_1": {"type": "busy"}},
        }
        self.sessions: dict[str, Any] = {"ses_1": {"id": "ses_1"}, "ses_2": {"id": "ses_2", "parentID": "ses_1"}}
        self.part: dict[str, Any] = RUNNING
        self.called: list[tuple[str, Any]] = []
        self.replies: Callable[[str, Any], int] = lambda path, body: 200
        self.connections = 0
        self._streams: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        finally:
            listener.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def tell(self, type: str, **properties: Any) -> None:
        await self.send(json.dumps({"id": "evt_1", "type": type, "properties": properties}))

    async def send(self, data: str) -> None:
        for stream in self._streams:
            stream.write(f"data: {data}\n\n".encode())
            await stream.drain()

    async def hang_up(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams.clear()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split(" ", 2)
            length = next(
                (int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")), 0
            )
            body = json.loads(await reader.readexactly(length) or b"null")
            path = target.partition("?")[0]
            if path == "/event":
                self.connections += 1
                self._streams.append(writer)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
                await self.tell("server.connected")
                await reader.read()
                return
            status, told = 200, self._told(method, path, body)
            if method == "POST":
                self.called.append((path, body))
                status = self.replies(path, body)
            reply = json.dumps(told).encode()
            writer.write(
                f"HTTP/1.1 {status} x\r\ncontent-length: {len(reply)}\r\nconnection: close\r\n\r\n".encode() + reply
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    def _told(self, method: str, path: str, body: Any) -> Any:
        if path == "/global/health":
            return {"healthy": True, "version": "1.18.33"}
        if path in self.lists:
            return self.lists[path]
        if method == "GET" and "/message/" in path:
            return {"info": {}, "parts": [{"type": "tool", "callID": "call_1", "state": self.part}]}
        return self.sessions.get(path.rpartition("/")[2], True)


@pytest.fixture
async def impostor() -> Impostor:
    return Impostor()


@pytest.fixture
async def relay(impostor: Impostor, broker: Broker) -> AsyncIterator[Relay]:
    """Not followed yet: a test prepares the server first and then calls `following`."""
    async with impostor.listening() as url:
        server = Server(url)
        made = Relay(server, directory=FOLDER)
        made.own("ses_1", Owner(asker=broker, start=Start(session="s1")), lambda happened: None)
        yield made
        await made.close()
        await server.close()


@asynccontextmanager
async def following(relay: Relay) -> AsyncIterator[None]:
    task = asyncio.create_task(relay.follow())
    try:
        async with asyncio.timeout(PATIENCE):
            await relay.until_connected()
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def asked(broker: Broker, number: int = 1) -> Ask:
    ids: list[str] = []

    def is_it(event: Any) -> bool:
        if isinstance(event, Asked) and event.ask.id not in ids:
            ids.append(event.ask.id)
        return len(ids) == number

    return (await first_event(broker, is_it)).ask


async def delivered(broker: Broker, ask: Ask) -> str | None:
    event = await first_event(broker, lambda event: isinstance(event, Delivered) and event.ask.id == ask.id)
    return event.ask.delivery_error


async def settled(broker: Broker, ask: Ask) -> Ask:
    async with asyncio.timeout(PATIENCE):
        return (await broker.wait(ask.id)).ask()


POSTGRES = Answer(answers=(("Postgres (Recommended)",),), by="ana")
TAKEN = {
    "type": "tool",
    "messageID": "msg_1",
    "callID": "call_1",
    "sessionID": "ses_1",
    "state": {"status": "completed"},
}


async def test_what_was_asked_before_we_listened_is_in_the_list(
    impostor: Impostor, relay: Relay, broker: Broker
) -> None:
    impostor.lists["/question"] = [QUESTION]
    async with following(relay):
        ask = await asked(broker)
        await broker.answer(ask.id, POSTGRES)
        await eventually(lambda: bool(impostor.called))
        assert impostor.called == [("/question/que_1/reply", {"answers": [["Postgres (Recommended)"]]})]
        await impostor.tell("message.part.updated", part=TAKEN)
        assert await delivered(broker, ask) is None


async def test_what_is_settled_does_not_come_up_again(impostor: Impostor, relay: Relay, broker: Broker) -> None:
    impostor.lists["/question"] = [QUESTION]
    async with following(relay):
        ask = await asked(broker)
        await broker.answer(ask.id, POSTGRES)
        await impostor.tell("message.part.updated", part=TAKEN)
        await eventually(lambda: bool(impostor.called))
        await impostor.tell("message.part.updated", part=TAKEN)
        await delivered(broker, ask)
        await impostor.hang_up()
        await eventually(lambda: impostor.connections == 2)
        await impostor.tell("question.asked", **QUESTION)
        await impostor.tell("question.asked", **QUESTION | {"id": "que_2"})
        await broker.answer((await asked(broker, 2)).id, POSTGRES)
        await eventually(lambda: "/question/que_2/reply" in dict(impostor.called))
        assert [path for path, _ in impostor.called] == ["/question/que_1/reply", "/question/que_2/reply"]


async def test_what_vanished_from_the_list_is_withdrawn_or_answered(
    impostor: Impostor, relay: Relay, broker: Broker
) -> None:
    impostor.lists["/question"] = [QUESTION]
    async with following(relay):
        ask = await asked(broker)
        impostor.lists["/question"] = []
        impostor.part = {"status": "completed", "metadata": {"answers": [["SQLite"]]}}
        await impostor.hang_up()
        closed = await settled(broker, ask)
        assert closed.answer is not None
        assert (closed.answer.by, closed.answer.answers) == ("agent", (("SQLite",),))


async def test_a_ghost_is_never_shown_and_is_cleared(impostor: Impostor, relay: Relay, broker: Broker) -> None:
    impostor.lists["/question"] = [QUESTION]
    impostor.part = INTERRUPTED
    async with following(relay):
        await eventually(lambda: ("/question/que_1/reject", None) in impostor.called)
    assert not [ask async for ask in broker.asks()]


async def test_the_end_of_a_turn_withdraws_what_it_asked(impostor: Impostor, relay: Relay, broker: Broker) -> None:
    async with following(relay):
        await impostor.tell("question.asked", **QUESTION)
        ask = await asked(broker)
        await impostor.tell("session.idle", sessionID="ses_1")
        assert (await settled(broker, ask)).withdrawn_reason == "the turn was stopped"
        await eventually(lambda: ("/question/que_1/reject", None) in impostor.called)


async def test_a_success_that_nobody_heard_is_not_delivered(impostor: Impostor, relay: Relay, broker: Broker) -> None:
    async with following(relay):
        await impostor.tell("question.asked", **QUESTION)
        ask = await asked(broker)
        await broker.answer(ask.id, POSTGRES)
        await eventually(lambda: bool(impostor.called))
        await impostor.tell(
            "question.replied", sessionID="ses_1", requestID="que_1", answers=[["Postgres (Recommended)"]]
        )
        await impostor.tell("session.idle", sessionID="ses_1")
        assert await delivered(broker, ask) == "the turn was over before it took the answer"


@pytest.mark.parametrize(("theirs", "error"), [("SQLite", True), ("Postgres (Recommended)", False)])
async def test_whoever_was_faster_in_opencode_wins(
    impostor: Impostor, relay: Relay, broker: Broker, theirs: str, error: bool
) -> None:
    impostor.replies = lambda path, body: 404
    async with following(relay):
        await impostor.tell("question.asked", **QUESTION)
        ask = await asked(broker)
        await broker.answer(ask.id, POSTGRES)
        await eventually(lambda: bool(impostor.called))
        await impostor.tell("question.replied", sessionID="ses_1", requestID="que_1", answers=[[theirs]])
        said = await delivered(broker, ask)
        assert said == ("it was settled in OpenCode first" if error else None)


async def test_an_answer_in_opencodes_own_terminal_closes_the_ask(
    impostor: Impostor, relay: Relay, broker: Broker
) -> None:
    async with following(relay):
        await impostor.tell("permission.asked", **a_permission(1))
        ask = await asked(broker)
        await impostor.tell("permission.replied", sessionID="ses_1", requestID="per_1", reply="once")
        answer = (await settled(broker, ask)).answer
        assert answer is not None
        assert (answer.by, answer.reply) == ("agent", "once")
        assert impostor.called == []


async def test_a_broken_message_hurts_nobody_else(impostor: Impostor, relay: Relay, broker: Broker) -> None:
    async with following(relay):
        for data in ("no json", "[]", '{"type": 1}', '{"type": "question.asked", "properties": []}', "null"):
            await impostor.send(data)
        await impostor.tell("question.asked", id="que_7", sessionID="ses_1", questions=["what?"])
        await impostor.tell("question.asked", id="que_8", sessionID="ses_1", questions=[])
        await impostor.tell("question.asked", id="que_9", sessionID=None, questions=None)
        await impostor.tell("message.part.updated", part="x")
        await impostor.tell("session.status", sessionID="ses_1", status="x")
        await impostor.tell("question.asked", **QUESTION)
        assert (await asked(broker)).id == "opencode:ses_1:que_1"
        await eventually(lambda: len(impostor.called) == 2)
        calls = dict(impostor.called)
        assert calls["/question/que_7/reply"] == {
            "answers": [["This could not be asked: questions.0: an object is expected. No person has seen it."]]
        }
        assert calls["/question/que_8/reply"] == {"answers": []}


async def test_a_subagent_belongs_to_the_session_that_started_it(
    impostor: Impostor, relay: Relay, broker: Broker
) -> None:
    async with following(relay):
        await impostor.tell("question.asked", **QUESTION | {"sessionID": "ses_2"})
        origin = (await asked(broker)).origin
        assert (origin.session, origin.parent) == ("ses_2", "s1")


async def test_what_others_ask_on_the_same_server_is_theirs(impostor: Impostor, relay: Relay, broker: Broker) -> None:
    impostor.sessions["ses_9"] = {"id": "ses_9"}
    async with following(relay):
        await impostor.tell("question.asked", **QUESTION | {"sessionID": "ses_9", "id": "que_9"})
        await impostor.tell("question.asked", **QUESTION)
        assert (await asked(broker)).id == "opencode:ses_1:que_1"
        assert len([ask async for ask in broker.asks()]) == 1


async def test_a_refusal_waits_for_what_is_still_to_be_granted(
    impostor: Impostor, relay: Relay, broker: Broker
) -> None:
    """OpenCode refuses everything else of the session along with it."""
    async with following(relay):
        for number in (1, 2, 3):
            await impostor.tell("permission.asked", **a_permission(number))
        asks = [await asked(broker, number) for number in (1, 2, 3)]
        await broker.reject(asks[0].id, reason="not one", by="ana")
        await broker.reject(asks[1].id, reason="not two", by="ana")
        await broker.answer(asks[2].id, Answer(reply="once", by="ana"))
        await eventually(lambda: bool(impostor.called))
        assert impostor.called == [("/permission/per_3/reply", {"reply": "once"})]
        impostor.replies = lambda path, body: 200 if "per_1" in path else 404
        await impostor.tell("permission.replied", sessionID="ses_1", requestID="per_3", reply="once")
        await eventually(lambda: len(impostor.called) == 3)
        assert dict(impostor.called)["/permission/per_1/reply"]["message"] == "not one; not two"
        for number in (1, 2):
            await impostor.tell("permission.replied", sessionID="ses_1", requestID=f"per_{number}", reply="reject")
        assert [await delivered(broker, ask) for ask in asks] == [None, None, None]


# Settings -----------------------------------------------------------------------------------------------------------


def test_it_is_found_by_its_name(tmp_path: Path) -> None:
    assert isinstance(load("agents", "opencode")(AgentSettings(home=tmp_path)), OpenCode)


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        (Start(session="s1", mode="workspace-write"), "not confined"),
        (Start(session="s1", cwd="/there/is/no/such/folder"), "no folder"),
        (Start(session="s1"), "no program `opencode`"),
    ],
)
def test_what_cannot_be_started_says_why(tmp_path: Path, start: Start, problem: str) -> None:
    agent = OpenCode(AgentSettings(home=tmp_path, env={"PATH": str(tmp_path)}))
    with pytest.raises(SettingsError, match=problem):
        agent.check(start)


@pytest.mark.parametrize("address", ["", "nonsense", "ftp://host", "http://", "http://host:x"])
def test_an_address_that_is_none_says_what_one_looks_like(address: str) -> None:
    with pytest.raises(SettingsError, match="http://opencode:PASSWORD@"):
        Server.at(address)


async def test_a_program_that_does_not_serve_says_what_it_said(tmp_path: Path) -> None:
    settings = AgentSettings(home=tmp_path, command=("/bin/sh", "-c", "echo out of order; exit 3", "--"))
    with pytest.raises(AgentFailed, match="did not start; it said last: out of order"):
        await Servers(settings).get(str(tmp_path))
    assert not list(tmp_path.rglob("*.json"))


# Its password -------------------------------------------------------------------------------------------------------

# What `serve` of a program like OpenCode does that checks a password, or not.
SERVER = """
import base64, http.server, json, os, sys
from pathlib import Path
is_open = Path(sys.argv[1])
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        wanted = base64.b64encode(f"opencode:{os.environ['OPENCODE_SERVER_PASSWORD']}".encode()).decode()
        may = is_open.exists() or self.headers.get("authorization") == f"Basic {wanted}"
        body = json.dumps({"healthy": True, "version": "1.0.0"} if "health" in self.path else {}).encode()
        self.send_response(200 if may else 401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


def its_servers(folder: Path) -> tuple[Servers, Path]:
    program, is_open = folder / "server.py", folder / "open"
    program.write_text(SERVER)
    command = (sys.executable, str(program), str(is_open))
    return Servers(AgentSettings(home=folder / "home", command=command)), is_open


async def test_a_server_that_answers_without_its_password_is_ended_and_refused(tmp_path: Path) -> None:
    servers, is_open = its_servers(tmp_path)
    is_open.touch()
    with pytest.raises(AgentFailed, match="answers without the password that it was given"):
        await servers.get(str(tmp_path))
    assert await servers.running(str(tmp_path)) is None
    assert not servers.file(str(tmp_path)).exists()


async def test_a_server_that_is_found_again_and_answers_without_its_password_is_ended(tmp_path: Path) -> None:
    servers, is_open = its_servers(tmp_path)
    server = await servers.get(str(tmp_path))
    assert server.process is not None
    await server.close()
    is_open.touch()
    assert await servers.running(str(tmp_path)) is None
    with pytest.raises(AgentFailed, match="answers without the password"):
        await servers.get(str(tmp_path))
    assert not is_running(server.process)
