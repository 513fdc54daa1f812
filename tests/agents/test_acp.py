"""Agents over ACP: what their messages become, what goes back, and whole conversations with an agent of our own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handraise.agents import AgentSettings, Asker, Cut, Message, Session, Start
from handraise.agents._conversation import MOST_OPEN
from handraise.agents.acp import Acp
from handraise.agents.acp.modes import mode_of
from handraise.agents.acp.quirks import PRESETS, Quirks, command_of, quirks_of
from handraise.agents.acp.session import AcpSession
from handraise.agents.acp.translate import METHODS, from_answer, is_same_call, to_ask, told_later
from handraise.asks import Answer, Ask, Mode, Origin, bound, fit
from handraise.broker import Broker
from handraise.errors import AgentFailed, AnswerDoesNotFit, AskDoesNotFit, SettingsError
from handraise.events import Asked, Delivered
from handraise.plugins import load
from handraise.testing import AgentDriver, ScriptedPerson, Stage, check_agent
from tests.helpers.hearing import Heard

WIRE = Path(__file__).parents[1] / "wire" / "acp"
PLAYER = (sys.executable, "-m", "handraise.testing.acp_agent")
PATIENCE = 20.0  # seconds for a conversation with a program in Python, on a busy machine
ORIGIN = Origin(agent="acp", session="s1", cwd="/repo")
COPILOT, CLAUDE = PRESETS["copilot"].quirks, PRESETS["claude-agent-acp"].quirks
ONCE = {"optionId": "proceed_once", "name": "Allow", "kind": "allow_once"}
ALWAYS = {"optionId": "proceed_always", "name": "Allow for this session", "kind": "allow_always"}
REJECT = {"optionId": "cancel", "name": "Reject", "kind": "reject_once"}
NEVER = {"optionId": "never", "name": "Never", "kind": "reject_always"}
COPILOT_PLAN = "https://agentclientprotocol.com/protocol/session-modes#plan"
CANCELLED = {"outcome": {"outcome": "cancelled"}}


def asked(method: str, params: Mapping[str, Any], call: Mapping[str, Any] | None = None) -> Ask:
    ask = to_ask(METHODS[method], params, id="acp:c:s:1", origin=ORIGIN, call=call)
    bound(ask)
    return ask


def permission(*options: Mapping[str, Any], **call: Any) -> Ask:
    call = {"toolCallId": "c1", "title": "touch g.txt", "kind": "execute", **call}
    params = {"sessionId": "s", "toolCall": call, "options": list(options or (ALWAYS, ONCE, REJECT))}
    return asked("session/request_permission", params)


def form(schema: Any, message: str = "Please answer.", **rest: Any) -> Ask:
    return asked("elicitation/create", {"mode": "form", "message": message, "requestedSchema": schema, **rest})


def answered(ask: Ask, answer: Answer, quirks: Quirks | None = None) -> dict[str, Any]:
    """What the agent gets once the desk has checked the answer."""
    return from_answer(ask, fit(ask, answer), quirks=quirks)


def selected(id: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": id}}


def recorded() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each request of claude-agent-acp 0.99.1 to its client, with the answer that it took."""
    entries = [json.loads(line) for line in (WIRE / "claude-agent-acp.jsonl").read_text().splitlines()]
    for place, entry in enumerate(entries):
        message = entry["msg"]
        if entry["dir"] == "agent->client" and "id" in message and "method" in message:
            replies = [each["msg"] for each in entries[place:] if each["dir"] == "client->agent"]
            yield (
                message["method"],
                message["params"],
                next(e for e in replies if e.get("id") == message["id"])["result"],
            )


# Questions ----------------------------------------------------------------------------------------------------------


def test_what_a_real_agent_asked_and_took_is_what_we_show_and_send() -> None:
    (first, form_params, form_reply), (second, call_params, call_reply) = recorded()
    ask = asked(first, form_params)
    database, extras = ask.questions
    assert (database.header, database.multiple, database.custom) == ("Database", False, True)
    assert database.question == "Please answer the following questions.\nWhich database should we use?"
    assert [(each.label, each.description) for each in database.options] == [
        ("SQLite", "One file, no server"),
        ("PostgreSQL", "Full server"),
    ]
    assert (extras.question, extras.multiple, extras.custom) == ("Which extras do you want?", True, True)
    assert ask.extra is not None and ask.extra["toolCallId"] == "toolu_ask1"
    answer = Answer(answers=(("PostgreSQL",), ("Cache", "Rate limits")), notes=("version 16 please", None))
    assert answered(ask, answer, CLAUDE) == form_reply
    ask = asked(second, call_params)
    assert ask.permission is not None
    assert (ask.permission.tool, ask.permission.command) == ("Bash", "touch made-by-agent.txt && ls")
    assert ask.permission.paths == ("/project/made-by-agent.txt",)
    assert ask.permission.replies == ("once", "reject")
    assert answered(ask, Answer(reply="once")) == call_reply


@pytest.mark.parametrize("companion", ["db_custom", "db__other"])
def test_own_text_goes_where_the_agent_reads_it(companion: str) -> None:
    choices = [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]
    single = {"properties": {"db": {"type": "string", "oneOf": choices}, companion: {"type": "string"}}}
    ask = form(single, "Which?")
    assert [question.question for question in ask.questions] == ["Which?"]
    assert answered(ask, Answer(answers=(("B",),)))["content"] == {"db": "b"}
    assert answered(ask, Answer(answers=(("both",),)))["content"] == {companion: "both"}
    several = {"properties": {"db": {"type": "array", "items": {"anyOf": choices}}, companion: {"type": "string"}}}
    content = answered(form(several), Answer(answers=(("A", "mine"),)))["content"]
    assert content == {"db": ["a"], companion: "mine"}


def test_a_text_that_stands_for_itself_is_a_question_of_its_own() -> None:
    choices = {"type": "string", "enum": ["a", "b"]}
    alone = {"properties": {"name_custom": {"type": "string"}, "db": choices}}
    wanted = {"properties": {"db": choices, "db_custom": {"type": "string"}}, "required": ["db_custom"]}
    for schema in (alone, wanted):
        assert len(form(schema).questions) == 2
    assert not form(wanted).questions[0].custom


def test_a_note_is_sent_only_to_an_agent_that_reads_it() -> None:
    schema = {"properties": {"db": {"type": "string", "enum": ["a", "b"]}, "db_custom": {"type": "string"}}}
    answer = Answer(answers=(("a",),), notes=("only for now",))
    assert answered(form(schema), answer, CLAUDE)["content"] == {"db": "a", "db_custom": "only for now"}
    assert answered(form(schema), answer)["content"] == {"db": "a"}


def test_an_agent_is_told_when_no_person_decided() -> None:
    fields = form({"type": "object", "properties": {"name": {"type": "string"}}})
    by_ana = answered(fields, Answer(answers=(("x",),), by="ana"))
    assert "_meta" not in by_ana
    why = ("no answer in 5 s", "accept-first")
    for ask, answer in (
        (fields, Answer(answers=(("x",),), by="policy:timeout", why=why)),
        (permission({"optionId": "a", "kind": "allow_once"}), Answer(reply="once", by="policy:rule", why=("a rule",))),
    ):
        told = answered(ask, answer)
        assert told["_meta"]["handraise"]["by"] == answer.by
        assert told["_meta"]["handraise"]["reason"].startswith("chosen by policy")
    told = answered(fields, Answer(rejected=True, by="policy:reject", reason="no person is asked here"))
    assert told["action"] == "decline"
    expected = "no person is asked here. Decide yourself and note the assumption."
    assert told["_meta"] == {"handraise": {"by": "policy:reject", "reason": expected}}


def test_a_rejected_form_is_declined_and_one_that_only_wants_a_visit_has_no_content() -> None:
    ask = form({"properties": {"db": {"enum": ["a"]}}})
    assert answered(ask, Answer(rejected=True, reason="no")) == {"action": "decline"}
    visit = asked(
        "elicitation/create", {"mode": "url", "message": "Log in", "url": "https://x.test/", "elicitationId": "e"}
    )
    assert "https://x.test/" in visit.questions[0].question
    assert answered(visit, Answer(answers=(("Done",),))) == {"action": "accept"}


def test_a_form_that_does_not_take_the_answer_says_so() -> None:
    ask = form({"properties": {"count": {"type": "integer", "maximum": 3}}})
    with pytest.raises(AnswerDoesNotFit, match="at most 3"):
        answered(ask, Answer(answers=(("4",),)))


@pytest.mark.parametrize(
    ("params", "answer", "sent"),
    [
        ({"prompt": "Which?", "options": [["a", "Option A"], ["b", "Option B"]]}, "Option B", "b"),
        ({"prompt": "Which?", "options": ["A", "B"]}, "B", "B"),
        ({"prompt": "Which?"}, "my own", "my own"),
        ({"questions": [{"question": "Which?", "options": [{"label": "A", "description": "first"}]}]}, "A", "A"),
    ],
)
def test_both_shapes_of_the_question_extension_are_understood(params: dict[str, Any], answer: str, sent: str) -> None:
    ask = asked("_sandboxagent/session/request_question", {"sessionId": "s", "questionId": "q1", **params})
    assert ask.questions[0].question == "Which?"
    assert answered(ask, Answer(answers=((answer,),))) == {"status": "answered", "answers": [[sent]]}
    assert answered(ask, Answer(rejected=True)) == {"status": "rejected"}


def test_questions_inside_a_permission_are_answered_beside_its_outcome() -> None:
    """As Qwen Code asks; allowed without answers, its model would get empty ones."""
    options = [{"label": "Postgres", "description": "robust"}, {"label": "SQLite", "description": "tiny"}]
    questions = [
        {"question": "Which database?", "header": "Database", "options": options, "multiSelect": True},
        {"question": "Which region?", "header": "Region", "options": [{"label": "EU"}, {"label": "US"}]},
        {"question": "Which name?", "header": "Name", "options": []},
    ]
    ask = permission(ONCE, REJECT, title="Ask user 3 questions", kind="think", rawInput={"questions": questions})
    assert [question.header for question in ask.questions] == ["Database", "Region", "Name"]
    sent = answered(ask, Answer(answers=(("Postgres", "SQLite"), (), ("shop",))))
    assert sent == {**selected("proceed_once"), "answers": {"0": "Postgres, SQLite", "2": "shop"}}
    assert answered(ask, Answer(rejected=True)) == selected("cancel")


def test_choices_that_were_made_options_of_a_permission_are_a_question() -> None:
    colours = [{"optionId": f"c{n}", "name": name, "kind": "allow_once"} for n, name in enumerate(("Red", "Green"))]
    ask = permission(*colours, REJECT, title="Which colour?", kind="other")
    [question] = ask.questions
    assert (question.question, [option.label for option in question.options]) == ("Which colour?", ["Red", "Green"])
    assert not question.custom
    assert answered(ask, Answer(answers=(("Green",),))) == selected("c1")
    assert answered(ask, Answer(rejected=True)) == selected("cancel")


# Permissions --------------------------------------------------------------------------------------------------------


def test_options_are_chosen_by_their_kind_and_never_by_their_place() -> None:
    everywhere = {"optionId": "user", "name": "Always, everywhere", "kind": "allow_always"}
    ask = permission(ALWAYS, everywhere, NEVER, ONCE, REJECT)
    assert ask.permission is not None
    assert ask.permission.replies == ("once", "always", "reject")
    assert [scope.id for scope in ask.permission.scopes] == ["proceed_always", "user"]
    assert answered(ask, Answer(reply="once")) == selected("proceed_once")
    assert answered(ask, Answer(reply="always")) == selected("proceed_always")
    assert answered(ask, Answer(reply="always", scope="user")) == selected("user")
    assert answered(ask, Answer(reply="reject")) == selected("cancel")


@pytest.mark.parametrize(
    ("options", "quirks", "sent"),
    [
        ((ONCE, NEVER, REJECT), None, selected("cancel")),
        ((ONCE, NEVER), None, selected("never")),
        ((ONCE, ALWAYS), None, CANCELLED),
        ((ONCE, REJECT), COPILOT, CANCELLED),  # its own reject would end the turn
    ],
)
def test_a_refusal_takes_the_mildest_way_there_is(
    options: tuple[Mapping[str, Any], ...], quirks: Quirks | None, sent: dict[str, Any]
) -> None:
    assert answered(permission(*options), Answer(rejected=True), quirks) == sent


def test_a_permission_shows_what_will_be_done_rather_than_what_the_model_says_of_it() -> None:
    ask = permission(title="make a file", rawInput={"command": "touch c.txt", "commands": ["touch c.txt"]})
    assert ask.permission is not None
    assert (ask.permission.command, ask.permission.summary) == ("touch c.txt", "touch c.txt")
    bare = permission(title="touch g.txt")
    assert bare.permission is not None and bare.permission.command is None
    listed = permission(rawInput={"command": ["bash", "-c", "echo hi"]})
    assert listed.permission is not None and listed.permission.command == "bash -c 'echo hi'"


def test_a_change_to_a_file_is_shown_as_a_diff() -> None:
    change = {"type": "diff", "path": "/repo/a.txt", "oldText": "one\ntwo\n", "newText": "one\nthree\n"}
    ask = permission(title="Edit a.txt", kind="edit", content=[change], locations=[{"path": "/repo/b.txt"}])
    assert ask.permission is not None and ask.permission.diff is not None
    assert ask.permission.diff.splitlines()[:2] == ["--- /repo/a.txt", "+++ /repo/a.txt"]
    assert {"-two", "+three"} <= set(ask.permission.diff.splitlines())
    assert ask.permission.paths == ("/repo/b.txt", "/repo/a.txt")


def test_what_was_said_of_a_call_before_completes_the_request() -> None:
    before = {"toolCallId": "c1", "title": "rm -rf build", "kind": "execute", "rawInput": {"command": "rm -rf build"}}
    params = {"sessionId": "s", "toolCall": {"toolCallId": "c1", "title": None}, "options": [ONCE, REJECT]}
    ask = asked("session/request_permission", params, before)
    assert ask.permission is not None and ask.permission.command == "rm -rf build"


def test_a_plan_is_a_plan() -> None:
    ask = permission(title="Ready to code?", kind="switch_mode", rawInput={"plan": "# Ship it\n1. build"})
    assert ask.permission is not None
    assert (ask.permission.kind, ask.permission.summary) == ("plan", "Plan: Ship it")


@pytest.mark.parametrize(
    "call",
    [
        {"kind": "execute"},
        {"kind": "other", "rawInput": {"command": "rm -rf /"}},
        {"kind": "other", "content": [{"type": "diff", "path": "a", "newText": "b"}]},
        {"kind": "delete", "rawInput": {"questions": [{"question": "Sure?"}]}},
    ],
)
def test_a_call_that_changes_something_is_a_permission_however_odd_its_options_are(call: dict[str, Any]) -> None:
    twice = {"optionId": "b", "name": "Allow too", "kind": "allow_once"}
    odd = {"optionId": "odd", "name": "Perhaps", "kind": "_odd"}
    ask = permission(odd, ONCE, twice, **call)
    assert ask.permission is not None and not ask.questions
    assert answered(ask, Answer(reply="once")) == selected("proceed_once")
    assert [scope.id for scope in ask.permission.scopes] == ["odd", "b"]
    assert answered(ask, Answer(rejected=True)) == CANCELLED


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/request_permission", {}),
        ("session/request_permission", {"toolCall": "ls", "options": [ONCE]}),
        ("session/request_permission", {"toolCall": {"toolCallId": "c"}, "options": []}),
        ("session/request_permission", {"toolCall": {"toolCallId": "c"}, "options": [{"name": "no id"}]}),
        ("session/request_permission", {"toolCall": {"rawInput": {"questions": [7]}}, "options": [ONCE]}),
        ("elicitation/create", {"mode": "form", "message": "?"}),
        ("elicitation/create", {"mode": "form", "requestedSchema": {"properties": {"a": 7}}}),
        ("_sandboxagent/session/request_question", {}),
        ("_sandboxagent/session/request_question", {"prompt": "?", "options": "A"}),
        ("_sandboxagent/session/request_question", {"questions": [{"header": "no text"}]}),
    ],
)
def test_what_is_no_question_is_refused(method: str, params: dict[str, Any]) -> None:
    with pytest.raises(AskDoesNotFit):
        asked(method, params)


KINDS = st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always", "_odd", None, 7])


@settings(deadline=None)
@given(
    kinds=st.lists(KINDS, min_size=1, max_size=5),
    kind=st.sampled_from(["execute", "edit", "other", None]),
    quirks=st.sampled_from([Quirks(), COPILOT]),
)
def test_no_answer_selects_more_than_was_said(kinds: list[Any], kind: Any, quirks: Quirks) -> None:
    options = [{"optionId": str(n), "name": f"o{n}", "kind": each} for n, each in enumerate(kinds)]
    ask = permission(*options, kind=kind)

    def chosen(answer: Answer) -> Any:
        id = from_answer(ask, answer, quirks=quirks)["outcome"].get("optionId")
        return None if id is None else kinds[int(id)]

    assert chosen(Answer(rejected=True)) in ("reject_once", "reject_always", None)
    if ask.permission is not None:
        assert chosen(Answer(reply="once")) in ("allow_once", None)
        assert chosen(Answer(reply="always")) not in ("reject_once", "reject_always")


NAMES = """
    toolCall options rawInput questions content type newText optionId kind command title mode requestedSchema
    properties a a_custom enum oneOf const prompt question label
"""
KEYS = st.sampled_from(NAMES.split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no finding
@given(method=st.sampled_from(sorted(METHODS)), params=st.dictionaries(KEYS, JSON, max_size=5))
def test_whatever_an_agent_sends_becomes_an_ask_or_is_refused(method: str, params: dict[str, Any]) -> None:
    try:
        ask = to_ask(METHODS[method], params, id="acp:c:s:1", origin=ORIGIN)
    except AskDoesNotFit:
        return
    from_answer(ask, Answer(rejected=True))
    assert bool(ask.questions) != (ask.permission is not None)


def test_what_is_told_later_names_what_was_asked_and_what_became_of_it() -> None:
    ask = permission(rawInput={"command": "ls"})
    assert "That is allowed: do exactly that again" in told_later(ask, Answer(reply="once"))
    assert "refused: not on a Friday" in told_later(ask, Answer(rejected=True, reason="not on a Friday"))
    question = form({"properties": {"db": {"oneOf": [{"const": "pg", "title": "Postgres"}]}}}, "Which?")
    assert told_later(question, Answer(answers=(("pg",),))) == 'You asked: "Which?"; the answer is: "Postgres".'


def test_only_exactly_the_same_call_is_the_same() -> None:
    ask = permission(rawInput={"command": "ls"})
    assert is_same_call(ask, permission(ONCE, REJECT, rawInput={"command": "ls"}))
    assert not is_same_call(ask, permission(rawInput={"command": "ls", "cwd": "/"}))
    titled = permission(title="Terminal", kind="other")
    assert not is_same_call(titled, titled)


# The table of agents ------------------------------------------------------------------------------------------------


def test_an_agent_is_known_by_the_name_it_gives_else_by_its_program() -> None:
    assert quirks_of({"name": "@agentclientprotocol/claude-agent-acp"}, ["npx"]) == CLAUDE
    assert quirks_of(None, ["/usr/bin/copilot", "--acp"]) == COPILOT
    assert quirks_of({"name": "another"}, ["copilot"]) == Quirks()
    assert command_of(["gemini"]) == ("gemini", "--acp")
    assert command_of(["gemini", "--experimental-acp"]) == ("gemini", "--experimental-acp")
    assert command_of(["/opt/mine"]) == ("/opt/mine",)


@pytest.mark.parametrize(
    ("wanted", "offered", "mode"),
    [
        ("accept-edits", ["default", "acceptEdits", "plan"], "acceptEdits"),
        ("accept-edits", ["default", "auto-edit", "yolo"], "auto-edit"),
        ("bypass", ["default", "autoEdit", "yolo"], "yolo"),
        ("plan", [COPILOT_PLAN], COPILOT_PLAN),
        ("full-access", ["read-only", "auto", "full-access"], "full-access"),
        ("read-only", ["read-only", "auto", "full-access"], None),
        ("plan", ["default"], None),
        ("workspace-write", ["auto"], None),
    ],
)
def test_a_mode_is_one_that_the_agent_offers(wanted: Mode, offered: list[str], mode: str | None) -> None:
    assert mode_of(wanted, offered) == mode


# An agent of our own, written with the protocol's official package --------------------------------------------------


def an_agent(home: Path, *arguments: str, command: tuple[str, ...] = PLAYER) -> Acp:
    agent = load("agents", "acp")(AgentSettings(home=home, command=(*command, *arguments)))
    assert isinstance(agent, Acp)
    return agent


@pytest.fixture
def start(tmp_path: Path) -> Start:
    return Start(session="s1", cwd=str(tmp_path))


@asynccontextmanager
async def opened(agent: Acp, broker: Broker, start: Start) -> AsyncIterator[AcpSession]:
    async with asyncio.timeout(PATIENCE):
        session = await agent.open(broker, start)
        try:
            yield session
        finally:
            await session.close()


async def asks(broker: Broker) -> list[Ask]:
    return [ask async for ask in broker.asks()]


async def first_ask(broker: Broker, number: int = 1) -> Ask:
    seen: list[str] = []
    async for event in broker.events(after=0):
        if isinstance(event, Asked) and event.ask.id not in seen:
            seen.append(event.ask.id)
            if len(seen) == number:
                return event.ask
    raise AssertionError("the desk closed")


async def taken(broker: Broker, id: str) -> Ask:
    async for event in broker.events(after=0):
        if isinstance(event, Delivered) and event.ask.id == id:
            return event.ask
    raise AssertionError("the desk closed")


async def test_it_keeps_what_every_adapter_must(tmp_path: Path) -> None:
    agent = an_agent(tmp_path)

    async def opening(asker: Asker, start: Start) -> Session:
        return await agent.open(asker, replace(start, cwd=str(tmp_path)))

    async def kill(stage: Stage) -> None:
        assert isinstance(stage.session, AcpSession)
        os.kill(stage.session.pid, signal.SIGKILL)

    async def found_again(stage: Stage) -> None:
        assert stage.session is not None
        await stage.session.leave()
        cut = Cut(handle=stage.session.handle, prompt="SCRIPT: form", asks=tuple(await stage.asks()))
        stage.session = await opening(stage.broker, replace(stage.start, cut=cut))
        stage.tasks.create_task(stage.session.go_on())

    async def subagent(stage: Stage) -> None:
        await stage.prompt("SCRIPT: child")

    def driver() -> AgentDriver:
        return AgentDriver(
            open=opening,
            one="SCRIPT: form",
            two="SCRIPT: form permission",
            malformed="SCRIPT: malformed",
            subagent=subagent,
            found_again=found_again,
            kill=kill,
            cannot={
                "announced twice": "a request is made once in a connection, and dies with it",
                "abort while a command runs": "it runs no commands",
                "close while a command runs": "it runs no commands",
                "answered in the agents own terminal": "an agent that we started has no terminal",
                "a refusal with a reason does not end the turn": "the protocol has no room for a reason",
            },
        )

    report = await check_agent(driver, patience=PATIENCE)
    assert len(report.passed) == 7


async def test_a_turn_brings_every_kind_of_ask_and_what_was_said(
    tmp_path: Path, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    person.on("Database", [["my own"]])
    person.on("Which database", [["Postgres"]])
    person.on("log in", [["Done"]])
    person.on("make a note", reply="once")
    heard = Heard()
    script = "SCRIPT: form permission question url unknown"
    async with opened(an_agent(tmp_path), broker, replace(start, listener=heard)) as session:
        reply = await session.prompt(script)
        handle = session.handle
    told = json.loads(reply.text)
    assert told[0] == {"action": "accept", "content": {"question_0_custom": "my own"}}
    assert told[1]["outcome"] == {"outcome": "selected", "optionId": "now"}
    assert told[2] == {"status": "answered", "answers": [["pg"]]}
    assert told[3]["action"] == "accept"
    assert told[4]["code"] == -32601
    named, *_ = found = await asks(broker)
    assert named.id.startswith("acp:") and f":{handle['session']}:form:" in named.id
    assert len({ask.id for ask in found}) == 4
    for ask in found:
        assert (await taken(broker, ask.id)).delivery_error is None
    for number, ask in enumerate(found):
        [request], [response] = heard.translation(ask.id)
        assert request["id"] == response["id"] and response["result"] == told[number]
    assert heard.wires[0].name == "initialize"
    assert "session/update agent_message_chunk" in {wire.name for wire in heard.wires if wire.is_piece}
    wanted = found[1].permission
    assert wanted is not None and wanted.diff is not None and "+new" in wanted.diff
    assert [(each.role, each.text) for each in heard.messages] == [("tool", "make a note"), ("agent", reply.text)]


async def test_a_refusal_ends_neither_the_turn_nor_the_session(
    tmp_path: Path, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    person.on(".", reject="not today")
    async with opened(an_agent(tmp_path), broker, start) as session:
        told = json.loads((await session.prompt("SCRIPT: form permission question")).text)
        assert json.loads((await session.prompt("hello")).text) == ["hello"]
    assert told[0] == {"action": "decline"}
    assert told[1]["outcome"] == {"outcome": "selected", "optionId": "no"}
    assert told[2] == {"status": "rejected"}


async def test_a_prompt_with_the_word_question_makes_it_ask_one(
    tmp_path: Path, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    person.on("Which database", [["Postgres"]])
    async with opened(an_agent(tmp_path), broker, start) as session:
        told = json.loads((await session.prompt("Ask me a Question, please")).text)
    assert told[1] == {"status": "answered", "answers": [["pg"]]}


async def test_an_abort_answers_what_is_open_and_the_next_turn_is_like_any_other(
    tmp_path: Path, start: Start, broker: Broker
) -> None:
    async with opened(an_agent(tmp_path), broker, start) as session:
        for number, script in enumerate(("SCRIPT: permission", "SCRIPT: form"), start=1):
            turn = asyncio.create_task(session.prompt(script))
            ask = await first_ask(broker, number)
            await session.abort()
            with pytest.raises(asyncio.CancelledError):
                await turn
            assert (await broker.get(ask.id)).state == "withdrawn"
        assert json.loads((await session.prompt("hello")).text) == ["hello"]


async def test_one_that_dies_says_why_and_leaves_nothing_open(tmp_path: Path, start: Start, broker: Broker) -> None:
    async with opened(an_agent(tmp_path), broker, start) as session:
        with pytest.raises(AgentFailed, match="ended in the middle of its turn: out of ink"):
            await session.prompt("SCRIPT: die")
        with pytest.raises(AgentFailed, match="has ended: out of ink"):
            await session.prompt("hello")


async def test_a_grant_given_while_nobody_was_there_is_told_and_covers_that_call_once(
    tmp_path: Path, start: Start, broker: Broker
) -> None:
    agent = an_agent(tmp_path, "--loading")
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCRIPT: permission"))
        ask = await first_ask(broker)
        await session.leave()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert (await broker.get(ask.id)).state == "asked"
    await broker.answer(ask.id, Answer(reply="once", by="ana"))
    heard = Heard()
    cut = Cut(handle=session.handle, prompt="SCRIPT: permission", asks=(await broker.get(ask.id),))
    async with opened(agent, broker, replace(start, cut=cut, listener=heard)) as again:
        going = asyncio.create_task(again.go_on())
        second = await first_ask(broker, 2)  # the same once more, for which nobody was asked yet
        await broker.answer(second.id, Answer(reply="reject", by="ana"))
        reply = await going
    assert reply is not None
    told, once, twice = json.loads(reply.text)
    assert "You asked to be allowed: make a note" in told
    assert [each["outcome"]["optionId"] for each in (once, twice)] == ["now", "no"]
    assert (await taken(broker, ask.id)).delivery_error is None
    assert not [message for message in heard.messages if "what was said before" in message.text]


async def test_one_that_cannot_take_a_session_up_again_says_so(tmp_path: Path, start: Start, broker: Broker) -> None:
    cut = Cut(handle={"session": "gone"}, prompt="hello")
    with pytest.raises(AgentFailed, match="cannot take up a session again; start a new one"):
        await an_agent(tmp_path, "--forgetful").open(broker, replace(start, cut=cut))
    async with opened(an_agent(tmp_path), broker, replace(start, cut=cut)) as session:
        with pytest.raises(AgentFailed, match="prompt the session to go on"):
            await session.go_on()


async def test_a_mode_is_set_where_the_agent_offers_it(tmp_path: Path, start: Start, broker: Broker) -> None:
    agent = an_agent(tmp_path)
    async with opened(agent, broker, replace(start, mode="plan")) as session:
        assert json.loads((await session.prompt("SCRIPT: mode")).text) == ["plan"]
    with pytest.raises(SettingsError, match="it offers default, plan"):
        await agent.open(broker, replace(start, mode="bypass"))
    with pytest.raises(SettingsError, match="choose one of"):
        agent.check(replace(start, mode="workspace-write"))


async def test_a_session_may_name_its_own_program(tmp_path: Path, start: Start, broker: Broker) -> None:
    agent = Acp(AgentSettings(home=tmp_path))
    with pytest.raises(SettingsError, match="name one with"):
        agent.check(start)
    async with opened(agent, broker, replace(start, command=PLAYER)) as session:
        assert json.loads((await session.prompt("hello")).text) == ["hello"]


async def test_looking_says_what_is_there_and_what_to_do(tmp_path: Path) -> None:
    found = await an_agent(tmp_path).look(probe=True)
    assert (found.installed, found.version, found.resume, found.problem) == (True, "1.0", True, None)
    assert not (await an_agent(tmp_path, "--forgetful").look(probe=True)).resume
    nothing = await Acp(AgentSettings(home=tmp_path)).look()
    assert not nothing.installed and "[agents.acp]" in (nothing.problem or "")
    missing = await Acp(AgentSettings(home=tmp_path, command=("/no/such/agent",))).look()
    assert not missing.installed and "/no/such/agent" in (missing.problem or "")


async def test_a_program_that_speaks_something_else_is_named(tmp_path: Path, start: Start, broker: Broker) -> None:
    with pytest.raises(AgentFailed, match="did not start"):
        await an_agent(tmp_path, command=("false",)).open(broker, start)
    with pytest.raises(AgentFailed, match="speaks version 2 of ACP and not 1"):
        await a_hostile(tmp_path, "", version=2).open(broker, start)


# Agents that misbehave ----------------------------------------------------------------------------------------------

HOSTILE = """
import json, os, sys, time
def raw(text): sys.stdout.write(text); sys.stdout.flush()
def line(**message): return json.dumps({{"jsonrpc": "2.0", **message}}) + "\\n"
def write(**message): raw(line(**message))
def read(): return json.loads(sys.stdin.readline())
def permission(id, command="ls", after=""):
    call = {{"toolCallId": str(id), "kind": "execute", "title": "List", "rawInput": {{"command": command}}}}
    options = [{{"optionId": "y", "name": "Yes", "kind": "allow_once"}}]
    asked = {{"sessionId": "h", "toolCall": call, "options": options}}
    raw(line(id=id, method="session/request_permission", params=asked) + after)
def end(text):
    said = {{"sessionUpdate": "agent_message_chunk", "content": {{"type": "text", "text": text}}}}
    write(method="session/update", params={{"sessionId": "h", "update": said}})
    write(id=prompt["id"], result={{"stopReason": "end_turn"}})
    sys.stdin.read()
write(id=read()["id"], result={{"protocolVersion": {version}}})
write(id=read()["id"], result={{"sessionId": "h"}})
prompt = read()
"""


@pytest.mark.parametrize("kind", [[], {}, ["allow_once"], 3, None, True])
def test_a_kind_that_is_no_text_is_an_unknown_one(kind: Any) -> None:
    asked = permission({"optionId": "a", "name": "A", "kind": kind}, kind=kind, title="x")
    assert [question.options[0].value for question in asked.questions] == ["a"]


def a_hostile(folder: Path, script: str, *, version: int = 1) -> Acp:
    program = folder / "hostile.py"
    program.write_text(HOSTILE.format(version=version) + script)
    return an_agent(folder, str(program), command=(sys.executable, "-I", "-S"))


async def test_a_frame_that_is_no_message_hurts_nothing(
    tmp_path: Path, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    person.on("ls", reply="once")
    script = """
raw("Welcome!\\n\\n[1, 2]\\n{\\"id\\": {}, \\"method\\": 7}\\n\\xff\\n")
write(method="session/update", params={"sessionId": "h", "update": {"sessionUpdate": "tool_call", "toolCallId": 7}})
write(method="session/update", params=[1]); write(id=99, result={}); write(method="$/cancel_request", params={})
permission(0)
end(json.dumps(read()))
"""
    heard = Heard()
    async with opened(a_hostile(tmp_path, script), broker, replace(start, listener=heard)) as session:
        reply = await session.prompt("go")
    assert json.loads(reply.text)["result"] == selected("y")
    called = {"name": "execute", "input": {"command": "ls"}}  # of which nothing was said before it was asked for
    assert heard.messages[0] == Message(role="tool", text="List", extra=called)


async def test_an_id_that_comes_again_is_never_granted_by_the_answer_before(
    tmp_path: Path, start: Start, broker: Broker
) -> None:
    script = """
pieces, write_now = [], raw
raw = pieces.append  # both in one piece, so that the second is there before the first can be answered
permission(1); permission(1)
raw = write_now
raw("".join(pieces))
read()
permission(1)
read()
end("done")
"""
    async with opened(a_hostile(tmp_path, script), broker, start) as session:
        turn = asyncio.create_task(session.prompt("go"))
        first = await first_ask(broker)
        await broker.answer(first.id, Answer(reply="once", by="ana"))
        second = await first_ask(broker, 2)
        assert second.id == f"{first.id}#2"
        await broker.answer(second.id, Answer(reply="reject", by="ana"))
        assert (await turn).text == "done"
    assert len(await asks(broker)) == 2  # the one that came while the first was open is dropped


async def test_a_text_and_a_number_are_different_ids(tmp_path: Path, start: Start, broker: Broker) -> None:
    script = 'permission(1)\npermission("1")\nread(), read()\nend("done")\n'
    async with opened(a_hostile(tmp_path, script), broker, start) as session:
        turn = asyncio.create_task(session.prompt("go"))
        for number in (1, 2):
            await broker.answer((await first_ask(broker, number)).id, Answer(reply="once", by="ana"))
        assert (await turn).text == "done"


async def test_a_flood_is_refused_with_a_reason_and_the_rest_is_withdrawn_at_the_end(
    tmp_path: Path, start: Start, broker: Broker
) -> None:
    script = f"""
for number in range(10_000): permission(number)
refused = [read() for _ in range(10_000 - {MOST_OPEN})]
end(refused[0]["error"]["message"] + str(len({{each["id"] for each in refused}})))
"""
    async with opened(a_hostile(tmp_path, script), broker, start) as session:
        reply = await session.prompt("go")
        assert f"{MOST_OPEN} requests of this session wait" in reply.text
        assert reply.text.endswith(str(10_000 - MOST_OPEN))
        assert [ask.state for ask in await asks(broker)] == ["asked"] * MOST_OPEN
    assert {ask.state for ask in await asks(broker)} == {"withdrawn"}


async def test_death_in_the_middle_of_a_frame_withdraws_what_it_asked(
    tmp_path: Path, start: Start, broker: Broker
) -> None:
    script = """
permission(0); permission(1)
read()
sys.stderr.write("power cut\\n"); sys.stderr.flush()
raw('{"jsonrpc": "2.0", "id": 1, "meth')
os._exit(9)
"""
    async with opened(a_hostile(tmp_path, script), broker, start) as session:
        turn = asyncio.create_task(session.prompt("go"))
        first, second = await first_ask(broker), await first_ask(broker, 2)
        await broker.answer(second.id, Answer(reply="once", by="ana"))
        with pytest.raises(AgentFailed, match="power cut"):
            await turn
        closed = await broker.get(first.id)
        assert closed.state == "withdrawn" and "power cut" in (closed.withdrawn_reason or "")
        assert "power cut" in ((await taken(broker, second.id)).delivery_error or "")


async def test_what_the_agent_cancels_is_withdrawn_and_told_so(
    tmp_path: Path, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    script = """
permission("q")
while not os.path.exists("seen"): time.sleep(0.01)
write(method="$/cancel_request", params={"requestId": "q"})
end(str(read()["error"]["code"]))
"""
    async with opened(a_hostile(tmp_path, script), broker, start) as session:
        turn = asyncio.create_task(session.prompt("go"))
        await person.sees("ls")
        (tmp_path / "seen").touch()
        assert (await turn).text == "-32800"
    [ask] = await asks(broker)
    assert ask.state == "withdrawn"


async def test_what_the_agent_cancels_at_once_bothers_nobody(tmp_path: Path, start: Start, broker: Broker) -> None:
    script = """
permission("q", after=line(method="$/cancel_request", params={"requestId": "q"}))
end(str(read()["error"]["code"]))
"""
    async with opened(a_hostile(tmp_path, script), broker, start) as session:
        assert (await session.prompt("go")).text == "-32800"
    assert [ask.state for ask in await asks(broker)] in ([], ["withdrawn"])  # it may have been at the desk already


async def test_a_mode_of_asking_that_nobody_knows_is_an_error(tmp_path: Path, start: Start, broker: Broker) -> None:
    script = """
write(id=0, method="elicitation/create", params={"mode": "_dream", "requestedSchema": {}})
end(str(read()["error"]["code"]))
"""
    async with opened(a_hostile(tmp_path, script), broker, start) as session:
        assert (await session.prompt("go")).text == "-32602"
    assert await asks(broker) == []
