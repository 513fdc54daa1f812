"""Codex without Codex: what its messages become, what goes back, and recordings replayed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handraise.agents import AgentSettings, Listener, Silent, Start
from handraise.agents._conversation import MOST_OPEN
from handraise.agents.codex import Codex
from handraise.agents.codex.session import CodexSession
from handraise.agents.codex.translate import (
    COMMAND,
    ELICITATION,
    FILES,
    INPUT,
    METHODS,
    PERMISSIONS,
    TOOL,
    ask_id,
    content_id,
    from_answer,
    is_same_call,
    refused,
    to_ask,
    to_steer,
    told_later,
)
from handraise.asks import Answer, Ask, Mode, Origin, bound, fit
from handraise.broker import Broker
from handraise.errors import AgentFailed, AskDoesNotFit, HandraiseError, SettingsError
from handraise.events import Delivered
from handraise.plugins import load
from handraise.testing import ScriptedPerson
from tests.helpers.hearing import Heard

WIRE = Path(__file__).parents[1] / "wire" / "codex"
PATIENCE = 10.0  # seconds for a conversation with a program in Python
ORIGIN = Origin(agent="codex", session="s1", cwd="/repo")
POLICY = "policy:remembered"


def messages(name: str, direction: str) -> Iterator[dict[str, Any]]:
    for line in (WIRE / f"{name}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry["dir"] == direction:
            yield entry["msg"]


def requested(name: str) -> dict[str, Any]:
    """The request in a recording."""
    return next(each for each in messages(name, "out") if each["method"] in METHODS)


def replied(name: str) -> dict[str, Any]:
    """What a host answered in a recording, and Codex took."""
    result: dict[str, Any] = next(each["result"] for each in messages(name, "in") if "result" in each)
    return result


def announced(name: str) -> dict[str, Any] | None:
    """The item of the request in a recording."""
    kinds = ("fileChange", "mcpToolCall")
    started = (each["params"]["item"] for each in messages(name, "out") if each["method"] == "item/started")
    return next((item for item in started if item["type"] in kinds), None)


def asked(method: str, params: dict[str, Any], item: dict[str, Any] | None = None) -> Ask:
    ask = to_ask(method, params, id="codex:t:u:i", origin=ORIGIN, item=item)
    bound(ask)
    return ask


def recorded(name: str) -> tuple[str, Ask]:
    request = requested(name)
    return request["method"], asked(request["method"], request["params"], announced(name))


def command(text: str = "/bin/bash -lc 'touch made.txt'", **rest: Any) -> Ask:
    return asked(COMMAND, {"itemId": "call_1", "command": text, "cwd": "/repo", **rest})


def answered(method: str, ask: Ask, answer: Answer) -> Any:
    """What Codex gets once the desk has checked the answer."""
    return from_answer(method, ask, fit(ask, answer))


# Both ways ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recording", "answer"),
    [
        ("command-approval-accept", Answer(reply="once")),
        ("command-approval-accept-for-session", Answer(reply="always")),
        ("command-approval-accept-for-session", Answer(reply="always", scope="session")),
        ("command-approval-decline", Answer(reply="reject")),
        ("file-change-accept", Answer(reply="once")),
        ("file-change-accept-for-session", Answer(reply="always")),
        ("file-change-decline", Answer(rejected=True, reason="no")),
        ("question-plan-mode-answered", Answer(answers=(("SQLite",), ("EU",)), notes=(None, "closest to customers"))),
        ("question-free-text-note", Answer(answers=(("use DuckDB",), ()))),
        (
            "mcp-elicitation-accept",
            Answer(answers=(("green",), ("a", "c"), ("hi",), ("true",))),
        ),
        ("mcp-elicitation-decline", Answer(rejected=True)),
        ("mcp-tool-approval-accept", Answer(reply="once")),
        ("mcp-tool-approval-decline", Answer(reply="reject")),
        ("mcp-tool-approval-persist-session", Answer(reply="always")),
        ("request-permissions-denied", Answer(reply="reject")),
    ],
)
def test_what_goes_back_is_what_was_seen_to_work(recording: str, answer: Answer) -> None:
    method, ask = recorded(recording)
    assert answered(method, ask, answer) == replied(recording)


def test_a_page_to_open_is_a_question_with_its_address() -> None:
    method, ask = recorded("mcp-elicitation-url")
    assert ask.questions[0].question == "Open this\nhttp://127.0.0.1/x"
    assert answered(method, ask, Answer(answers=(("Done",),))) == {"action": "accept", "content": {}}


def test_granted_permissions_are_those_that_were_asked_for() -> None:
    method, ask = recorded("request-permissions-granted")
    assert ask.permission is not None
    assert ask.permission.summary == ("Allow Codex to write /home/dev/cache, use the network (need to write the cache)")
    assert ask.permission.paths == ("/home/dev/cache",)
    granted = answered(method, ask, Answer(reply="once"))
    assert granted["scope"] == "turn"
    assert granted["permissions"]["fileSystem"]["write"] == ["/home/dev/cache"]
    assert "read" not in granted["permissions"]["fileSystem"]
    assert answered(method, ask, Answer(reply="always"))["scope"] == "session"


# Commands -----------------------------------------------------------------------------------------------------------


def test_a_command_is_shown_as_it_runs_without_the_shell_around_it() -> None:
    _, ask = recorded("command-approval-accept")
    assert ask.permission is not None
    assert (ask.permission.tool, ask.permission.command) == ("shell", "touch made_accept.txt")
    assert ask.permission.summary == "touch made_accept.txt (May I create the file?)"
    assert ask.permission.extra is not None and ask.permission.extra["tool"] == "exec_command"
    hidden = command("/bin/bash -lc 'cat a; rm -rf b'", commandActions=[{"type": "read", "command": "cat a"}])
    assert hidden.permission is not None and hidden.permission.command == "cat a; rm -rf b"
    for odd in ("python3 'a b'", "/bin/bash -lc 'unclosed", "bash -x -c true", "/bin/bash -lc a b"):
        shown = command(odd).permission
        assert shown is not None and shown.command == odd
    only_read = asked(COMMAND, {"itemId": "c", "commandActions": [{"type": "unknown", "command": "ls"}]})
    assert only_read.permission is not None and only_read.permission.command is None  # it is made for display
    assert only_read.permission.summary == "Codex does not show the command that it wants to run. It says: ls"


def test_a_rule_for_all_sessions_needs_a_person_who_chose_exactly_that() -> None:
    ask = command(proposedExecpolicyAmendment=["touch", "made.txt"])
    assert ask.permission is not None
    assert "permanently" in ask.permission.scopes[1].label
    rule = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "made.txt"]}}

    def decided(**answer: Any) -> Any:
        return answered(COMMAND, ask, Answer(reply="always", **answer))["decision"]

    assert decided(scope="rules", by="ana") == rule
    assert decided(scope="rules", patterns=("touch made.txt",), by="ana") == rule
    assert decided(scope="rules", patterns=(), by="ana") == "accept"
    assert decided(scope="rules", by=POLICY) == "acceptForSession"
    assert decided(by="ana") == "acceptForSession"
    without = command(proposedExecpolicyAmendment=["touch", 1]).permission
    assert without is not None and [scope.id for scope in without.scopes] == ["session"]


def test_a_tool_of_an_mcp_server_is_never_allowed_for_good_by_a_policy() -> None:
    method, ask = recorded("mcp-tool-approval-accept")
    assert ask.permission is not None
    assert (ask.permission.tool, ask.permission.input) == ("mcp__handraise__danger", {"x": "1"})
    assert ask.permission.summary == 'Call danger of the MCP server handraise with {"x": "1"}'
    assert answered(method, ask, Answer(reply="always", scope="always", by="ana"))["_meta"] == {"persist": "always"}
    assert answered(method, ask, Answer(reply="always", scope="always", by=POLICY))["_meta"] == {"persist": "session"}


def test_typing_into_a_running_command_and_a_connection_say_what_they_are() -> None:
    typing = command(kind="writeStdin").permission
    assert typing is not None
    assert typing.summary.startswith("Type into a running command") and typing.replies == ("once", "reject")
    connecting = command(networkApprovalContext={"host": "example.com", "protocol": "https"}).permission
    assert connecting is not None
    assert connecting.summary == "Connect to example.com for: touch made.txt"
    assert connecting.url == "https://example.com"


# Files --------------------------------------------------------------------------------------------------------------


def test_a_patch_is_shown_as_a_diff_of_what_was_announced_before() -> None:
    _, ask = recorded("file-change-accept")
    assert ask.permission is not None
    [path] = ask.permission.paths
    assert ask.permission.summary == f"Write {path}"
    assert ask.permission.diff == f"--- /dev/null\n+++ {path}\n@@ -0,0 +1,1 @@\n+hello"
    changes = [
        {"path": "a", "kind": {"type": "update", "move_path": "b"}, "diff": "@@ -1 +1 @@\n-x\n+y\n"},
        {"path": "c", "kind": {"type": "delete"}, "diff": "1\n2\n"},
    ]
    moved = asked(FILES, {"itemId": "i", "grantRoot": "/repo/sub", "reason": "tidy"}, {"changes": changes}).permission
    assert moved is not None
    assert moved.paths == ("a", "b", "c", "/repo/sub")
    assert moved.summary == "Change a, b, c, and from then on everything under /repo/sub (tidy)"
    assert moved.diff == "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n--- c\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-1\n-2"


def test_a_patch_that_was_not_announced_can_only_be_allowed_once() -> None:
    permission = asked(FILES, {"itemId": "i"}).permission
    assert permission is not None
    assert (permission.summary, permission.replies) == ("Change files; Codex does not say which", ("once", "reject"))


# Questions ----------------------------------------------------------------------------------------------------------


def test_codexs_own_question_keeps_what_it_said() -> None:
    _, ask = recorded("question-plan-mode-answered")
    database, region = ask.questions
    assert (database.header, database.multiple, database.custom) == ("Database", False, True)
    assert [option.recommended for option in database.options] == [True, False]
    assert region.extra == {"id": "region"}
    secret = asked(INPUT, {"itemId": "i", "questions": [{"id": "k", "question": "Key?", "isSecret": True}]})
    assert secret.questions[0].extra == {"id": "k", "secret": True}
    assert answered(INPUT, secret, Answer(answers=(("abc",),))) == {"answers": {"k": {"answers": ["abc"]}}}


def test_a_refused_question_says_so_in_each_of_its_answers() -> None:
    method, ask = recorded("question-plan-mode-answered")
    said = {"answers": ["None of the above", "user_note: decide yourself"]}
    refusal = Answer(rejected=True, reason="decide yourself", by="ana")
    assert answered(method, ask, refusal) == {"answers": {"db_choice": said, "region": said}}
    assert to_steer(method, ask, refusal) is None


def tool_question(**rest: Any) -> dict[str, Any]:
    return {"question": "Which?", "options": [{"label": "A"}, {"label": "B"}, {"label": "C"}], **rest}


def test_the_answer_of_our_tool_is_a_sentence_for_each_question() -> None:
    questions = [tool_question(multiple=True), {"question": "Name?"}, tool_question(question="And?")]
    ask = asked(TOOL, {"callId": "c", "tool": "question", "arguments": {"questions": questions}})
    assert [(each.multiple, each.kind) for each in ask.questions] == [
        (True, "choice"),
        (False, "text"),
        (False, "choice"),
    ]
    answer = Answer(answers=(("A", "B", "C"), ("x y",), ()), notes=(None, "short", None))
    result = answered(TOOL, ask, answer)
    assert result["success"] is True
    assert result["contentItems"][0]["text"].splitlines() == [
        'The answer to "Which?" is: "A", "B" and "C".',
        'The answer to "Name?" is: "x y" (note: short).',
        '"And?" was left unanswered.',
    ]
    no = answered(TOOL, ask, Answer(rejected=True, reason="later", by="ana"))
    assert no == {"contentItems": [{"type": "inputText", "text": "later"}], "success": False}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (TOOL, {"arguments": None}),
        (TOOL, {"arguments": {"questions": []}}),
        (TOOL, {"arguments": {"questions": ["Which?"]}}),
        (TOOL, {"arguments": {"questions": [{"question": "Which?", "options": "A"}]}}),
        (TOOL, {"arguments": {"questions": [{"question": "Which?", "options": [{}]}]}}),
        (INPUT, {"questions": [{"question": "Which?"}]}),
        (INPUT, {"questions": [{"id": "a", "question": "1?"}, {"id": "a", "question": "2?"}]}),
        (COMMAND, {}),
        (PERMISSIONS, {"permissions": {"network": None}}),
        (ELICITATION, {"requestedSchema": 3}),
        ("item/new/request", {}),
    ],
)
def test_what_is_no_ask_is_said_in_a_sentence(method: str, params: dict[str, Any]) -> None:
    with pytest.raises(AskDoesNotFit):
        to_ask(method, params, id="i", origin=ORIGIN)
    assert isinstance(refused(method, params, "why"), dict)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = ["itemId", "command", "commandActions", "permissions", "questions", "arguments", "requestedSchema", "_meta"]
NAMES += [
    "proposedExecpolicyAmendment",
    "networkApprovalContext",
    "additionalPermissions",
    "reason",
    "mode",
    "grantRoot",
]


@given(st.sampled_from(sorted(METHODS)), st.dictionaries(st.sampled_from(NAMES), JSON), st.none() | JSON)
def test_whatever_comes_is_an_ask_or_a_misfit(method: str, params: dict[str, Any], changes: Any) -> None:
    with suppress(HandraiseError):
        to_ask(method, params, id="i", origin=ORIGIN, item={"changes": changes})
    refused(method, params, "why")
    content_id(params, thread="t")


# Ids ----------------------------------------------------------------------------------------------------------------


def test_ids_are_codexs_own_where_it_has_one() -> None:
    params = {"turnId": "u", "itemId": "call_1"}
    assert ask_id(COMMAND, params, thread="t") == "codex:t:u:call_1"
    assert ask_id(COMMAND, {**params, "approvalId": "a"}, thread="t") == "codex:t:u:call_1:a"
    assert ask_id(TOOL, {"turnId": "u", "callId": "call_2"}, thread="t") == "codex:t:u:call_2"
    assert ask_id(ELICITATION, {"turnId": "u"}, thread="t") is None
    one, two = (content_id({"turnId": "u", "message": each}, thread="t") for each in ("a", "b"))
    assert one != two and one.startswith("codex:t:u:elicitation:")


# Afterwards ---------------------------------------------------------------------------------------------------------


def test_only_the_very_same_call_is_the_same() -> None:
    ask = command()
    assert is_same_call(ask, command(reason="another reason", startedAtMs=3))
    assert not is_same_call(ask, command("/bin/bash -lc 'touch other'"))
    assert not is_same_call(ask, command(cwd="/elsewhere"))
    assert not is_same_call(ask, command(additionalPermissions={"network": {"enabled": True}}))
    assert not is_same_call(ask, command(networkApprovalContext={"host": "example.com"}))
    add = {"changes": [{"path": "a", "kind": {"type": "add"}, "diff": "x"}]}
    more = {"changes": [{"path": "a", "kind": {"type": "add"}, "diff": "y"}]}
    assert is_same_call(asked(FILES, {"itemId": "1"}, add), asked(FILES, {"itemId": "2"}, add))
    assert not is_same_call(asked(FILES, {"itemId": "1"}, add), asked(FILES, {"itemId": "2"}, more))


def test_what_is_told_later_names_what_was_asked() -> None:
    ask = command()
    assert told_later(ask, Answer(reply="once")) == (
        "You asked for permission: to run `touch made.txt`. That is allowed: make exactly that call again, it was not "
        "run."
    )
    assert told_later(ask, Answer(rejected=True, reply="reject", reason="no", by="ana")).endswith("refused: no")


def test_nobody_but_a_person_talks_an_agent_into_another_way() -> None:
    ask = command()
    by_person = to_steer(COMMAND, ask, Answer(rejected=True, reply="reject", by="ana"))
    by_policy = to_steer(COMMAND, ask, Answer(rejected=True, reply="reject", reason="not allowed here", by=POLICY))
    assert by_person is not None and "ask what to do instead" in by_person
    assert by_policy is not None and by_policy.endswith(
        "not allowed here. Do not try it in another way: go on without it, and note what is missing."
    )
    assert to_steer(COMMAND, ask, Answer(reply="once")) is None


# A program that plays Codex -----------------------------------------------------------------------------------------

PROGRAM = """
import json, sys

script, sent, thread = sys.argv[1:4]  # and `app-server`
lines = [json.loads(line) for line in open(script)]
log = open(sent, "a")

def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    log.write(line)
    log.flush()
    return json.loads(line)

def write(message):
    print(json.dumps(message), flush=True)

opened = {"thread": {"id": thread}, "approvalsReviewer": "user", "model": "m"}
while True:
    message = read()
    match message.get("method"):
        case "config/read":
            write({"id": message["id"], "result": {"config": {"mcp_servers": {"a.b": {"command": "c"}}}}})
        case "thread/start":
            write({"id": message["id"], "result": opened})
        case "turn/start":
            write({"id": message["id"], "result": {"turn": {"id": "u"}}})
            break
        case _ if "id" in message:
            write({"id": message["id"], "result": {}})
for line in lines:
    match line:
        case {"wait": method}:
            while (message := read()).get("method", "") != method:
                pass
            if "id" in message and method:
                write({"id": message["id"], "result": {}})
        case {"exit": words}:
            sys.stderr.write(words)
            sys.exit(3)
        case {"raw": raw}:
            print(raw, flush=True)
        case _:
            write(line)
while True:
    read()
"""
REQUEST = {"itemId": "call_1", "command": "/bin/bash -lc 'touch one'", "cwd": "/repo"}
DONE = {"method": "turn/completed", "params": {"threadId": "t", "turn": {"id": "u", "status": "completed"}}}


def request(id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"id": id, "method": method, "params": {"threadId": "t", "turnId": "u", **params}}


def told(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": "t", **params}}


class Playing:
    """A session with a program that does what the lines say."""

    def __init__(self, folder: Path) -> None:
        self.sent_file = folder / "sent.jsonl"
        self.session: CodexSession

    def sent(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.sent_file.read_text().splitlines()]

    def replies(self) -> dict[int, Any]:
        return {each["id"]: each.get("result", each.get("error")) for each in self.sent() if "method" not in each}


@asynccontextmanager
async def playing(
    folder: Path, broker: Broker, *lines: Any, mode: Mode | None = None, listener: Listener | None = None
) -> AsyncIterator[Playing]:
    program, script, play = folder / "program.py", folder / "script.jsonl", Playing(folder)
    program.write_text(PROGRAM)
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = (sys.executable, str(program), str(script), str(play.sent_file), "t")
    play.session = await Codex(AgentSettings(home=folder, command=command)).open(
        broker, Start(session="s1", cwd=str(folder), mode=mode, listener=listener or Silent())
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield play
    finally:
        await play.session.close()


async def deliveries(broker: Broker, number: int) -> dict[str, str | None]:
    """What became of so many answers."""
    found: dict[str, str | None] = {}
    async with asyncio.timeout(PATIENCE):
        async for event in broker.events(after=0):
            if isinstance(event, Delivered):
                found[event.ask.id] = event.ask.delivery_error
                if len(found) == number:
                    break
    return found


async def test_a_thread_is_opened_so_that_we_are_asked(tmp_path: Path, broker: Broker) -> None:
    async with playing(tmp_path, broker, DONE) as play:
        await play.session.prompt("hello")
        by_method = {each.get("method"): each for each in play.sent()}
    assert by_method["initialize"]["params"]["capabilities"] == {"experimentalApi": True}
    started = by_method["thread/start"]["params"]
    assert (started["approvalsReviewer"], started["cwd"]) == ("user", str(tmp_path))
    assert not {"sandbox", "approvalPolicy"} & started.keys()
    assert [tool["name"] for tool in started["dynamicTools"]] == ["question"]
    assert "jsonrpc" not in by_method["initialize"]


async def test_a_broken_request_hurts_no_other(tmp_path: Path, broker: Broker, person: ScriptedPerson) -> None:
    person.on("touch one", reply="once")
    lines = [
        {"raw": "{no json"},
        {"raw": "[]"},
        told("item/started", item="none"),
        told("item/completed"),
        {"method": "turn/completed", "params": {"turn": None}},
        request(0, "item/new/request"),
        request(1, COMMAND, itemId="call_0"),
        request(2, TOOL, callId="call_2", tool="question", arguments={"questions": "none"}),
        request(3, TOOL, callId="call_3", tool="another", arguments={}),
        request(4, ELICITATION, serverName="s", requestedSchema=[], _meta=[]),
        request(5, COMMAND, **REQUEST),
        *({"wait": ""} for _ in range(6)),
        told("serverRequest/resolved", requestId=5),
        DONE,
    ]
    heard = Heard()
    async with playing(tmp_path, broker, *lines, listener=heard) as play:
        await play.session.prompt("hello")
        replies = play.replies()
    assert heard.translation("codex:t:u:call_1") == ([lines[10]], [{"id": 5, "result": {"decision": "accept"}}])
    assert "{no json" in [wire.body for wire in heard.wires]
    assert replies[0]["code"] == -32601
    assert replies[1] == {"decision": "decline"}
    assert (replies[2]["success"], replies[3]["success"]) == (False, False)
    assert replies[4] == {"action": "cancel"}
    assert replies[5] == {"decision": "accept"}
    assert await deliveries(broker, 1) == {"codex:t:u:call_1": None}


async def test_a_request_that_was_settled_elsewhere_is_withdrawn(
    tmp_path: Path, broker: Broker, person: ScriptedPerson
) -> None:
    other = {**REQUEST, "itemId": "call_2", "command": "bash -c 'touch two'"}
    lines = [request(0, COMMAND, **REQUEST), request(1, COMMAND, **other), {"wait": ""}]
    async with playing(tmp_path, broker, *lines, told("serverRequest/resolved", requestId=0)) as play:
        turn = asyncio.create_task(play.session.prompt("hello"))
        ask, second = await person.sees("touch one"), await person.sees("touch two")
        await broker.answer(second.id, Answer(reply="once", by="ana"))
        assert (await broker.wait(ask.id)).withdrawn_reason == "codex no longer waits for it"
        turn.cancel()


async def test_a_request_that_was_over_before_it_was_looked_at_becomes_no_ask(tmp_path: Path, broker: Broker) -> None:
    # As when all of it comes in one piece: the end is heard before anybody has begun to work on the request.
    lines = [
        told("turn/started", turn={"id": "u"}),
        told("serverRequest/resolved", requestId=0),
        request(0, COMMAND, **REQUEST),
        told("turn/completed", turn={"id": "before", "status": "interrupted"}),
        {"id": 1, "method": COMMAND, "params": {"threadId": "t", "turnId": "before", **REQUEST}},
    ]
    async with playing(tmp_path, broker, *lines, {"wait": ""}, {"wait": ""}, DONE) as play:
        await play.session.prompt("hello")
        assert [reply["message"] for reply in play.replies().values()] == ["nobody waits for this any more"] * 2
    assert [ask async for ask in broker.asks()] == []


async def test_the_end_of_a_turn_withdraws_what_it_asked_and_an_answer_that_was_not_taken_is_told(
    tmp_path: Path, broker: Broker, person: ScriptedPerson
) -> None:
    lines = [
        request(0, COMMAND, **REQUEST),
        request(1, COMMAND, **{**REQUEST, "itemId": "call_2", "command": "bash -c 'touch two'"}),
        {"wait": ""},
        DONE,
    ]
    async with playing(tmp_path, broker, *lines) as play:
        turn = asyncio.create_task(play.session.prompt("hello"))
        one, two = await person.sees("touch one"), await person.sees("touch two")
        await broker.answer(one.id, Answer(reply="once", by="ana"))
        await turn
        assert (await broker.wait(two.id)).withdrawn_reason == "the turn ended"
    assert await deliveries(broker, 1) == {one.id: "the turn ended before codex took it"}


async def test_two_forms_that_are_the_same_are_two_asks(tmp_path: Path, broker: Broker, person: ScriptedPerson) -> None:
    form = {"serverName": "s", "mode": "form", "message": "Sure?", "requestedSchema": {"type": "object"}}
    lines = [request(0, ELICITATION, **form), request(1, ELICITATION, **form), {"wait": ""}, {"wait": ""}, DONE]
    async with playing(tmp_path, broker, *lines) as play:
        turn = asyncio.create_task(play.session.prompt("hello"))
        await person.until(lambda: len(person.open) == 2)
        first, second = person.open
        await broker.answer(first.id, Answer(answers=(("OK",),), by="ana"))
        await broker.reject(second.id, by="ana")
        await turn
        assert play.replies() == {0: {"action": "accept", "content": {}}, 1: {"action": "decline"}}


async def test_a_flood_is_refused_with_a_reason_and_the_rest_is_withdrawn_at_the_end(
    tmp_path: Path, broker: Broker
) -> None:
    flood = [request(number, COMMAND, **{**REQUEST, "itemId": f"call_{number}"}) for number in range(MOST_OPEN)]
    asking = {"questions": [{"question": "Which?", "options": []}]}
    more = [
        request(MOST_OPEN, TOOL, callId="one", tool="question", arguments=asking),
        {"wait": ""},
        request(MOST_OPEN + 1, COMMAND, **REQUEST),
        {"wait": ""},
    ]
    async with playing(tmp_path, broker, *flood, *more, DONE) as play:
        await play.session.prompt("hello")
        replies = play.replies()
    assert replies.keys() == {MOST_OPEN, MOST_OPEN + 1}
    assert f"{MOST_OPEN} requests of this session wait" in replies[MOST_OPEN]["contentItems"][0]["text"]
    assert replies[MOST_OPEN + 1] == {"decision": "decline"}
    assert [ask.state async for ask in broker.asks()] == ["withdrawn"] * MOST_OPEN


async def test_the_interrupt_of_a_recording_withdraws_what_was_open(
    tmp_path: Path, broker: Broker, person: ScriptedPerson
) -> None:
    name = "interrupt-while-approval-pending"
    out = json.loads(
        json.dumps(list(messages(name, "out")))
        .replace("01a1e057-9524-7f93-8ee5-a3a79e87a76f", "t")
        .replace("01a1e057-c82a-7ff2-8816-e9bc7092694c", "u")
    )
    place = next(number for number, each in enumerate(out) if "result" in each)
    ending = [*out[place + 1 :], {"wait": "thread/backgroundTerminals/clean"}]
    async with playing(tmp_path, broker, *out[:place], {"wait": "turn/interrupt"}, *ending) as play:
        turn = asyncio.create_task(play.session.prompt("hello"))
        ask = await person.sees("rm -f zz")
        await play.session.abort()
        with pytest.raises(asyncio.CancelledError):
            await turn
    assert (await broker.get(ask.id)).withdrawn_reason == "the turn was aborted"


async def test_a_program_that_ends_says_its_last_words(tmp_path: Path, broker: Broker) -> None:
    log = "\x1b[2m2026-11-16T03:37:04.655911Z\x1b[0m \x1b[31mERROR\x1b[0m something\n"
    async with playing(tmp_path, broker, {"exit": f"{log}Error: the disk is full\n"}) as play:
        with pytest.raises(AgentFailed, match=r"in the middle of its turn: Error: the disk is full$"):
            await play.session.prompt("hello")


# The agent ----------------------------------------------------------------------------------------------------------


def test_it_is_found_by_its_name_and_knows_its_modes(tmp_path: Path) -> None:
    agent = load("agents", "codex")(AgentSettings(home=tmp_path))
    assert isinstance(agent, Codex)
    for mode in Codex.modes.names:
        agent.check(Start(session="s1", mode=mode))  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="choose one of: default"):
        agent.check(Start(session="s1", mode="yolo"))  # type: ignore[arg-type]


async def test_a_codex_that_does_not_say_that_it_keeps_to_a_promise_is_not_started(
    tmp_path: Path, broker: Broker
) -> None:
    with pytest.raises(AgentFailed, match="it does not keep to the mode 'read-only'"):
        async with playing(tmp_path, broker, mode="read-only"):
            pass
    [opened] = [each["params"] for each in Playing(tmp_path).sent() if each["method"] == "thread/start"]
    assert opened["config"]["mcp_servers"] == {"a.b": {"enabled": False}}
    async with playing(tmp_path, broker, mode="accept-edits") as play:
        assert play.sent()[-1]["params"]["sandbox"] == "workspace-write"


async def test_a_program_that_is_not_there_is_said_in_a_sentence(tmp_path: Path, broker: Broker) -> None:
    agent = Codex(AgentSettings(home=tmp_path, env={"PATH": str(tmp_path)}))
    seen = await agent.look()
    assert not seen.installed and "npm install -g @openai/codex" in (seen.problem or "")
    with pytest.raises(AgentFailed, match="there is no program `codex`"):
        await agent.open(broker, Start(session="s1"))
