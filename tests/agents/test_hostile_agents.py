"""Agents that misbehave on their stdout, one program for each protocol, at a real desk beside a session that is well.

One ask or one session fails and says why. The desk, and the other session, go on as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from handraise.agents._conversation import MOST_OPEN
from handraise.asks import Ask
from handraise.config import AgentTable
from handraise.testing import ScriptedPerson
from handraise.transports.process import LONGEST_LINE
from tests.helpers.serving import Served, serving, told

PATIENCE = 60.0  # seconds; the flood is ten thousand messages, on a busy machine
FLOOD = 10_000

# What is the same for all: which case it is stands in the prompt.
COMMON = """
import json, os, sys
def raw(data):
    while data: data = data[os.write(1, data):]
def write(**message): raw(json.dumps(message).encode() + b"\\n")
def read():
    line = sys.stdin.readline()
    if not line: os._exit(0)
    return json.loads(line)
"""
CASES = """
case = begin()
if case == "good":
    ask(1, "ls good")
    end(json.dumps(answer()))
elif case == "malformed":
    raw(b'Welcome!\\n\\n[1, 2]\\n"text"\\nnull\\n{"id": {}, "method": 7}\\n{"type": 7}\\n{"half": \\n\\xff\\xfe\\n')
    odd()
    ask(1, None)
    refused = answer()
    ask(2, "ls after")
    end(json.dumps([refused, answer()]))
elif case == "duplicate":
    ask(1, "ls first")
    ask(1, "rm second", item="other")  # which is open: dropped
    first = answer()
    ask(1, "rm third", item="another")  # which is not: asked anew
    end(json.dumps([first, answer()]))
elif case == "flood":
    for number in range(FLOOD): ask(number, f"wait {number}")
    refused = [answer() for _ in range(FLOOD - MOST_OPEN)]
    end(json.dumps([len({each[0] for each in refused}), any(each[1] for each in refused), refused[0][2]]))
elif case == "dies":
    ask(1, "wait for it")
    pause()
    sys.stderr.write("power cut\\n"); sys.stderr.flush()
    raw(b'{"jsonrpc": "2.0", "type": "control_request", "id": 2, "meth')
    os._exit(9)
elif case == "too large":
    ask(1, "wait for it")
    pause()
    raw(b'{"text": "')
    for _ in range((LONGEST_LINE >> 20) + 2): raw(b"x" * (1 << 20))
    sys.stdin.read()
"""
# Until the desk has shown what was asked, which is when the test makes this file.
PAUSE = """
def pause():
    import time
    while not os.path.exists("go on"): time.sleep(0.01)
"""
CLAUDE = """
def begin():
    told(read()["request_id"], {})
    return read()["message"]["content"]
def told(id, response):
    write(type="control_response", response={"subtype": "success", "request_id": id, "response": response})
def ask(id, command, item=None):
    given = "ls" if command is None else {"command": command}
    call = item or f"call-{id}-{command}"
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": given, "tool_use_id": call}
    write(type="control_request", request_id=str(id), request=request)
    calls[str(id)] = call
def odd():
    write(type="control_request"); write(type="control_request", request_id="x", request=7)
    write(type="assistant", message=7); write(type="user", message={"content": [7]}); write(type="result_of_what")
    write(type="control_response", response={"request_id": "nobody"}); write(type="control_cancel_request")
def answer():
    answered = read()["response"]
    id, response = answered["request_id"], answered["response"]
    result = {"type": "tool_result", "tool_use_id": calls[id], "content": "done"}
    write(type="user", message={"content": [result]})
    return id, response["behavior"] == "allow", response.get("message", "")
def end(text):
    write(type="assistant", parent_tool_use_id=None, message={"content": [{"type": "text", "text": text}]})
    write(type="result", subtype="success", is_error=False, result=text)
    sys.stdin.read()
calls = {}
"""
CODEX = """
def begin():
    write(id=read()["id"], result={})
    assert read()["method"] == "initialized"
    write(id=read()["id"], result={"thread": {"id": "th"}, "approvalsReviewer": "user", "model": "m"})
    turn = read()
    write(id=turn["id"], result={"turn": {"id": "tu"}})
    return turn["params"]["input"][0]["text"]
def ask(id, command, item=None):
    place = {"threadId": "th", "turnId": "tu"}
    if (command or "").startswith("wait"):  # through the tool of ours, whose refusal has room for words
        questions = {"questions": [{"question": command, "options": [{"label": "yes"}]}]}
        params = {**place, "callId": f"call-{id}", "tool": "question", "arguments": questions}
        write(id=id, method="item/tool/call", params=params)
        return
    params = {**place, "itemId": item or f"item-{id}-{command}", "command": command}
    write(id=id, method="item/commandExecution/requestApproval", params=params)
def odd():
    write(method="turn/completed", params={"threadId": "another", "turn": 7}); write(method="turn/started", params=7)
    write(method="item/started", params={"threadId": "th", "item": 7}); write(method="item/completed", params=[1])
    write(id=99, result={}); write(method="serverRequest/resolved", params={"requestId": {}}); write(method="error")
def answer():
    while True:
        answered = read()
        if "method" not in answered: break
        write(id=answered["id"], result={})  # the words behind a refusal
    id, result = answered["id"], answered.get("result") or {}
    write(method="serverRequest/resolved", params={"threadId": "th", "requestId": id})
    words = "".join(each["text"] for each in result.get("contentItems", ()))
    return id, result.get("decision") == "accept", words
def end(text):
    item = {"id": "m1", "type": "agentMessage", "text": text}
    write(method="item/completed", params={"threadId": "th", "turnId": "tu", "item": item})
    write(method="turn/completed", params={"threadId": "th", "turn": {"id": "tu", "status": "completed"}})
    sys.stdin.read()
"""
ACP = """
def begin():
    write(jsonrpc="2.0", id=read()["id"], result={"protocolVersion": 1})
    write(jsonrpc="2.0", id=read()["id"], result={"sessionId": "h"})
    turn.update(read())
    return turn["params"]["prompt"][0]["text"]
def ask(id, command, item=None):
    call = {"toolCallId": item or f"call-{id}", "kind": "execute", "title": command, "rawInput": {"command": command}}
    options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
    asked = {"sessionId": "h", "toolCall": "ls" if command is None else call, "options": options}
    write(jsonrpc="2.0", id=id, method="session/request_permission", params=asked)
def odd():
    update = {"sessionUpdate": "tool_call", "toolCallId": 7}
    write(method="session/update", params={"sessionId": "h", "update": update}); write(method="session/update")
    write(id=99, result={}); write(method="$/cancel_request", params={"requestId": {}})
def answer():
    answered = read()
    outcome = (answered.get("result") or {}).get("outcome", {})
    return answered["id"], outcome.get("optionId") == "y", answered.get("error", {}).get("message", "")
def end(text):
    said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    write(jsonrpc="2.0", method="session/update", params={"sessionId": "h", "update": said})
    write(jsonrpc="2.0", id=turn["id"], result={"stopReason": "end_turn"})
    sys.stdin.read()
turn = {}
"""
PROGRAMS = {"acp": ACP, "claude": CLAUDE, "codex": CODEX}
LIMITS = f"FLOOD, MOST_OPEN, LONGEST_LINE = {FLOOD}, {MOST_OPEN}, {LONGEST_LINE}\n"


class Room:
    """A desk whose agents are all of one kind, and two sessions there: one that is well, and one that is not."""

    def __init__(self, desk: Served, *, agent: str, folder: Path, person: ScriptedPerson) -> None:
        self.desk = desk
        self.agent = agent
        self.folder = folder
        self.person = person

    async def start(self, case: str) -> str:
        body = {"agent": self.agent, "prompt": case, "cwd": str(self.folder)}
        id: str = (await told(self.desk.http.post("/v1/sessions", json=body), 201))["id"]
        return id

    async def ended(self, session: str) -> dict[str, Any]:
        """The session when its turn is over."""
        async with asyncio.timeout(PATIENCE):
            while True:
                record = await told(self.desk.http.get(f"/v1/sessions/{session}", params={"wait": 5}), 200)
                if record["state"] not in ("running", "waiting"):
                    return record

    async def said(self, session: str) -> Any:
        """What the program said at the end of its turn."""
        record = await self.ended(session)
        assert (record["state"], record["error"]) == ("idle", None)
        messages: list[dict[str, Any]] = []
        while page := await self._messages(session, after=messages[-1]["id"] if messages else ""):
            messages += page
        return json.loads([message["text"] for message in messages if message["role"] == "agent"][-1])

    async def _messages(self, session: str, *, after: str) -> list[dict[str, Any]]:
        path = f"/v1/sessions/{session}/messages"
        page: list[dict[str, Any]] = (await told(self.desk.http.get(path, params={"after": after}), 200))["messages"]
        return page

    async def asks(self, session: str) -> list[Ask]:
        return [ask async for ask in self.desk.broker.asks(session=session)]

    async def seen(self, pattern: str) -> Ask:
        async with asyncio.timeout(PATIENCE):
            return await self.person.sees(pattern)

    def go_on(self) -> None:
        (self.folder / "go on").touch()


@pytest.fixture(params=PROGRAMS)
async def room(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Room]:
    """After each test the session that was well all the while gets its answer, and the desk is healthy."""
    folder = tmp_path / "work"
    folder.mkdir()
    program = tmp_path / "hostile.py"
    program.write_text(COMMON + LIMITS + PAUSE + PROGRAMS[request.param] + CASES)
    agents = {request.param: AgentTable(command=(sys.executable, "-I", "-S", str(program)))}
    person = ScriptedPerson()
    async with serving(tmp_path / "desk", agents=agents) as desk:
        looking = asyncio.create_task(person.run(desk.broker))
        made = Room(desk, agent=request.param, folder=folder, person=person)
        try:
            good = await made.start("good")
            waiting = await made.seen("ls good")
            yield made
            assert (await desk.broker.get(waiting.id)).state == "asked"
            person.on("ls good", reply="once")
            assert (await made.said(good))[1] is True
            [answered] = await made.asks(good)
            assert answered.state == "answered" and answered.delivery_error is None
            assert (await told(desk.http.get("/healthz"), 200))["status"] == "ok"
        finally:
            looking.cancel()
            await asyncio.wait([looking])


async def test_what_is_no_message_hurts_nothing_and_what_is_no_ask_is_refused(room: Room) -> None:
    room.person.on("ls after", reply="once")
    session = await room.start("malformed")
    refused, after = await room.said(session)
    assert (refused[1], after[1]) == (False, True)
    assert [ask.permission.command for ask in await room.asks(session) if ask.permission] == ["ls after"]


async def test_an_id_that_is_open_is_dropped_and_no_answer_grants_what_comes_later(room: Room) -> None:
    room.person.on("rm", reject="no")
    room.person.on("ls first", reply="once")
    session = await room.start("duplicate")
    first, third = await room.said(session)
    assert (first[1], third[1]) == (True, False)
    asked = [(ask.permission.command, ask.state) for ask in await room.asks(session) if ask.permission is not None]
    assert asked == [("ls first", "answered"), ("rm third", "rejected")]


async def test_a_flood_is_refused_with_a_reason_and_what_was_taken_is_withdrawn_at_the_end(room: Room) -> None:
    session = await room.start("flood")
    refused, is_granted, words = await room.said(session)
    assert (refused, is_granted) == (FLOOD - MOST_OPEN, False)
    assert f"{MOST_OPEN} requests of this session wait for an answer" in words
    assert len(await room.asks(session)) == MOST_OPEN
    await told(room.desk.http.post(f"/v1/sessions/{session}/close"), 202)
    assert (await room.ended(session))["state"] == "done"
    assert {ask.state for ask in await room.asks(session)} == {"withdrawn"}


async def test_death_in_the_middle_of_a_frame_fails_the_session_with_its_last_words(room: Room) -> None:
    session = await room.start("dies")
    ask = await room.seen("wait for it")
    room.go_on()
    record = await room.ended(session)
    assert record["state"] == "failed" and "power cut" in record["error"]
    withdrawn = await room.desk.broker.get(ask.id)
    assert withdrawn.state == "withdrawn" and "power cut" in (withdrawn.withdrawn_reason or "")


async def test_a_frame_beyond_the_limit_fails_the_session_and_says_so(room: Room) -> None:
    session = await room.start("too large")
    ask = await room.seen("wait for it")
    room.go_on()
    record = await room.ended(session)
    assert record["state"] == "failed" and f"a line of more than {LONGEST_LINE >> 20} MiB" in record["error"]
    withdrawn = await room.desk.broker.get(ask.id)
    assert withdrawn.state == "withdrawn" and "MiB" in (withdrawn.withdrawn_reason or "")
