"""Claude Code without Claude Code (A2): what its messages become, what goes back, and recordings replayed."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handraise.agents import AgentSettings, Message, Silent, Start
from handraise.agents._conversation import MOST_OPEN
from handraise.agents.claude import Claude
from handraise.agents.claude.session import ClaudeSession
from handraise.agents.claude.translate import from_answer, is_same_call, local_answer, to_ask, told_later
from handraise.asks import Answer, Ask, Option, Origin, bound, fit
from handraise.broker import Broker
from handraise.errors import AgentFailed, AskDoesNotFit
from handraise.events import Delivered
from handraise.plugins import load
from handraise.testing import ScriptedPerson
from handraise.transports.process import Process

WIRE = Path(__file__).parents[1] / "wire" / "claude"
REPLAYING = Path(__file__).parents[1] / "helpers" / "replaying.py"
PATIENCE = 10.0  # seconds for a conversation with a program in Python
ORIGIN = Origin(agent="claude", session="s1", cwd="/repo")
SUGGESTIONS = [
    {
        "type": "addRules",
        "rules": [{"toolName": "Bash", "ruleContent": "touch:*"}, {"toolName": "Bash", "ruleContent": "ls:*"}],
        "behavior": "allow",
        "destination": "localSettings",
    },
    {"type": "addDirectories", "directories": ["/repo"], "destination": "session"},
    {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
]


def messages(name: str, direction: str) -> Iterator[dict[str, Any]]:
    for line in (WIRE / f"{name}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if entry.get("dir") == direction:
            yield entry["msg"]


def requested(name: str, tool: str) -> dict[str, Any]:
    """The request for that tool in a recording."""
    found = (each["request"] for each in messages(name, "out") if each["type"] == "control_request")
    return next(request for request in found if request.get("tool_name") == tool)


def replied(name: str) -> list[dict[str, Any]]:
    """What a host answered in a recording, and Claude took."""
    return [each["response"]["response"] for each in messages(name, "in") if each["type"] == "control_response"]


def asked(tool: str, given: Any, **fields: Any) -> Ask:
    ask = to_ask(tool, given, id="claude:c:t", origin=ORIGIN, fields=fields)
    bound(ask)
    return ask


def question(text: str = "Which?", *labels: str, **rest: Any) -> dict[str, Any]:
    options = [{"label": label, "description": ""} for label in labels or ("A", "B")]
    return {"question": text, "header": text[:5], "options": options, "multiSelect": False, **rest}


def questions(*entries: dict[str, Any]) -> Ask:
    return asked("AskUserQuestion", {"questions": list(entries or (question(),))})


def answered(ask: Ask, answer: Answer) -> dict[str, Any]:
    """What Claude gets once the desk has checked the answer."""
    return from_answer(ask, fit(ask, answer))


# Questions ----------------------------------------------------------------------------------------------------------


def test_a_question_keeps_everything_claude_said_of_it() -> None:
    given = requested("several-questions", "AskUserQuestion")["input"]
    ask = asked("AskUserQuestion", given)
    database, features, layout = ask.questions
    assert (database.header, database.question, database.custom) == ("Database", "Which database?", True)
    assert features.multiple and not database.multiple
    assert layout.options[0] == Option("Grid", description="about Grid", preview="preview of Grid")
    goal, workers = asked("AskUserQuestion", requested("extended", "AskUserQuestion")["input"]).questions
    assert (goal.kind, workers.kind) == ("text", "number")
    assert workers.extra == {"min": 1, "max": 8, "step": 1, "defaultValue": 2, "unit": "procs"}


@pytest.mark.parametrize(
    ("recording", "tool", "answer"),
    [
        ("question-and-permission", "AskUserQuestion", Answer(answers=(("SQLite",),))),
        (
            "several-questions",
            "AskUserQuestion",
            Answer(answers=(("SQLite",), ("Auth", "Billing"), ("Grid",)), notes=(None, None, "make it dense")),
        ),
        ("extended", "AskUserQuestion", Answer(answers=(("ship it",), ("4",)))),
        ("refused", "AskUserQuestion", Answer(rejected=True, reason="The user rejected the question.")),
        ("plan", "ExitPlanMode", Answer(reply="once")),
    ],
)
def test_what_goes_back_is_what_was_seen_to_work(recording: str, tool: str, answer: Answer) -> None:
    ask = asked(tool, requested(recording, tool)["input"])
    assert answered(ask, answer) == replied(recording)[0]


def test_a_skipped_question_is_left_out_and_a_note_alone_is_said_as_the_terminal_does() -> None:
    ask = questions(question("First?"), question("Second?"), question("Third?"))
    updated = answered(ask, Answer(answers=((), ("A",), ()), notes=(None, None, "later")))["updatedInput"]
    assert updated["answers"] == {"Second?": "A", "Third?": "(notes only)"}
    assert updated["annotations"] == {"Third?": {"notes": "later"}}


def test_labels_that_hold_a_comma_are_told_apart_in_the_notes() -> None:
    ask = questions(question("Which?", "A, fast", "B", multiSelect=True))
    updated = answered(ask, Answer(answers=(("A, fast", "B"),), notes=("both",)))["updatedInput"]
    assert updated["answers"] == {"Which?": "A, fast, B"}
    assert updated["annotations"] == {"Which?": {"notes": 'both; chosen: "A, fast"; "B"'}}


def test_what_the_model_puts_where_the_answer_goes_is_not_an_answer() -> None:
    given = {"questions": [question()], "answers": {"Which?": "B"}, "annotations": {"Which?": {"notes": "B!"}}}
    updated = answered(asked("AskUserQuestion", given), Answer(answers=(("A",),)))["updatedInput"]
    assert updated == {"questions": [question()], "answers": {"Which?": "A"}}


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (Answer(answers=(("A",),), by="policy:accept-first"), "chosen by policy accept-first, no person was asked"),
        (
            Answer(answers=(("A",),), by="policy:timeout", why=("no answer in 60 s", "accept-first")),
            "chosen by policy accept-first, since there was no answer in 60 s",
        ),
        (
            Answer(answers=(("A",),), by="policy:unseen", why=("nobody could be shown this (x: y)", "accept-first")),
            "chosen by policy accept-first, since nobody could be shown this (x: y)",
        ),
        (Answer(answers=(("A",),), by="ana"), None),
    ],
)
def test_the_model_is_told_when_no_person_decided(answer: Answer, note: str | None) -> None:
    updated = answered(questions(), answer)["updatedInput"]
    assert updated.get("annotations") == (None if note is None else {"Which?": {"notes": note}})


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(rejected=True, reason="ask ben"), "ask ben"),
        (Answer(rejected=True), "The person does not want to answer this; go on without the answer"),
        (
            Answer(rejected=True, reason="no answer in 60 s", by="policy:timeout"),
            "no answer in 60 s. Decide yourself and note the assumption.",
        ),
    ],
)
def test_a_refusal_says_why_and_never_interrupts(answer: Answer, message: str) -> None:
    sent = answered(questions(), answer)
    assert sent["behavior"] == "deny"
    assert sent["message"].startswith(message)
    assert "interrupt" not in sent


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        {},
        {"questions": []},
        {"questions": "one"},
        {"questions": [7]},
        {"questions": [{"header": "no text"}]},
        {"questions": [{"question": "Which?", "options": "A"}]},
        {"questions": [{"question": "Which?", "options": ["A"]}]},
        {"questions": [question("Same?"), question("Same?")]},
    ],
)
def test_what_is_no_question_is_refused(given: Any) -> None:
    with pytest.raises(AskDoesNotFit):
        questions_of(given)


def questions_of(given: Any) -> Ask:
    return to_ask("AskUserQuestion", given, id="x", origin=ORIGIN, fields={})


# Permissions --------------------------------------------------------------------------------------------------------


def test_a_permission_shows_what_will_be_done() -> None:
    request = requested("question-and-permission", "Bash")
    permission = asked("Bash", request["input"], **request).permission
    assert permission is not None
    assert permission.summary == permission.command == "touch made_by_agent.txt && echo hello"
    assert (permission.paths, permission.cwd) == (("/repo/made_by_agent.txt",), "/repo")
    assert permission.input == request["input"] and permission.editable
    assert permission.replies == ("once", "always", "reject")
    assert [scope.id for scope in permission.scopes] == ["session", "localSettings", "mode:acceptEdits"]
    assert permission.scopes[0].patterns == ("Bash(touch made_by_agent.txt && echo hello)", "/repo")
    assert ".claude/settings.local.json" in permission.scopes[1].label
    assert permission.extra is not None and permission.extra["description"] == "Create a file"


def test_an_always_is_for_the_session_unless_its_scope_says_otherwise() -> None:
    ask = asked("Bash", {"command": "touch x"}, permission_suggestions=SUGGESTIONS)
    rules, directories, mode = SUGGESTIONS
    for scope in (None, "session"):
        updates = answered(ask, Answer(reply="always", scope=scope))["updatedPermissions"]
        assert updates == [{**rules, "destination": "session"}, directories]
    assert answered(ask, Answer(reply="always", scope="localSettings"))["updatedPermissions"] == [rules, directories]
    assert answered(ask, Answer(reply="always", scope="mode:acceptEdits"))["updatedPermissions"] == [mode]
    assert "updatedPermissions" not in answered(ask, Answer(reply="once"))


def test_patterns_narrow_what_is_remembered() -> None:
    ask = asked("Bash", {"command": "touch x"}, permission_suggestions=SUGGESTIONS)
    [update] = answered(ask, Answer(reply="always", patterns=("Bash(ls:*)",)))["updatedPermissions"]
    assert update["rules"] == [{"toolName": "Bash", "ruleContent": "ls:*"}]
    assert update["destination"] == "session"
    assert answered(ask, Answer(reply="always", patterns=())) == answered(ask, Answer(reply="once"))


def test_without_a_suggestion_that_allows_something_there_is_no_always() -> None:
    refusing = [{**SUGGESTIONS[0], "behavior": "deny"}, {"type": "removeRules", "rules": []}, 7, {"type": "addRules"}]
    for suggestions in (None, [], "all", refusing):
        permission = asked("Bash", {"command": "x"}, permission_suggestions=suggestions).permission
        assert permission is not None
        assert (permission.replies, permission.scopes) == (("once", "reject"), ())


def test_an_edited_input_replaces_and_an_empty_one_is_no_call() -> None:
    ask = asked("Bash", {"command": "touch x"})
    edited = answered(ask, Answer(reply="once", input={"command": "touch y"}))
    assert edited == {"behavior": "allow", "updatedInput": {"command": "touch y"}}
    assert answered(ask, Answer(reply="once", input={}))["behavior"] == "deny"


def test_nobody_but_a_person_talks_an_agent_into_another_way() -> None:
    ask = asked("Bash", {"command": "touch x"})
    refused = answered(ask, Answer(rejected=True, reply="reject", reason="no answer in 5 s", by="policy:timeout"))
    assert refused["message"].startswith("no answer in 5 s. Do not try it in another way")


@pytest.mark.parametrize(
    ("tool", "given", "fields", "summary"),
    [
        ("Edit", {"file_path": "/a.py"}, {}, "Change /a.py"),
        ("Write", {"file_path": "/a.py"}, {}, "Write /a.py"),
        ("WebFetch", {"url": "https://example.org"}, {}, "Fetch https://example.org"),
        ("mcp__el__ask_me", {}, {"mcp_server": {"name": "el"}}, "Call mcp__el__ask_me of the MCP server el"),
        ("Unheard", {"path": "/x"}, {"display_name": "Unheard of"}, "Use Unheard of on /x"),
        ("Bash", {"command": "a\n" * 500}, {}, "a " * 99 + "a…"),
        ("Bash", {"command": 7}, {}, "Run a command"),
    ],
)
def test_the_summary_is_one_line(tool: str, given: Any, fields: Any, summary: str) -> None:
    permission = asked(tool, given, **fields).permission
    assert permission is not None and permission.summary == summary


def test_an_edit_is_shown_as_a_diff() -> None:
    given = {"file_path": "/a.py", "old_string": "one\ntwo\nthree", "new_string": "one\n2\nthree"}
    permission = asked("Edit", given).permission
    assert permission is not None
    assert permission.diff == "--- /a.py\n+++ /a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    several = {
        "file_path": "/a.py",
        "edits": [{"old_string": "a", "new_string": "b"}, {"old_string": "", "new_string": "c"}],
    }
    permission = asked("MultiEdit", several).permission
    assert permission is not None
    assert permission.diff == "--- /a.py\n+++ /a.py\n@@ -1 +1 @@\n-a\n+b\n@@ -0,0 +1,1 @@\n+c"
    assert asked("Read", {"file_path": "/a.py"}).permission.diff is None  # type: ignore[union-attr]


def test_a_long_edit_is_not_compared_line_by_line() -> None:
    given = {"file_path": "/a", "old_string": "x\n" * 3000, "new_string": "y\n" * 3000}
    permission = asked("Edit", given).permission
    assert permission is not None and permission.diff is not None
    assert permission.diff.count("\n-x") == permission.diff.count("\n+y") == 3000


# Plans --------------------------------------------------------------------------------------------------------------


def test_a_plan_is_a_permission_that_may_be_edited_and_says_which_mode_follows() -> None:
    given = requested("plan", "ExitPlanMode")["input"]
    ask = asked("ExitPlanMode", given)
    assert ask.permission is not None
    assert (ask.permission.kind, ask.permission.summary) == ("plan", "Plan: The plan")
    assert ask.permission.input == {"plan": given["plan"]}
    edited = answered(ask, Answer(reply="once", input={"plan": "# Less"}))
    assert edited["updatedInput"] == {**given, "plan": "# Less"}
    for scope in (None, "mode:acceptEdits"):
        always = answered(ask, Answer(reply="always", scope=scope))
        assert always["updatedPermissions"] == [SUGGESTIONS[2]]
    assert is_same_call(ask, "ExitPlanMode", given)
    assert not is_same_call(ask, "ExitPlanMode", {**given, "plan": "# Other"})


def test_a_plan_without_a_text_can_still_be_approved() -> None:
    ask = asked("ExitPlanMode", {})
    assert ask.title == "A plan without a text"
    assert answered(ask, Answer(reply="once")) == {"behavior": "allow", "updatedInput": {}}


# What a person did in the terminal ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "annotations", "answers", "notes"),
    [
        ("A", {}, ("A",), ()),
        ("A, fast, B", {}, ("A, fast", "B"), ()),
        ("B, my own, words", {}, ("B", "my own", "words"), ()),
        ("(notes only)", {"Which?": {"notes": "hm"}}, (), ("hm",)),
    ],
)
def test_an_answer_given_in_the_terminal_is_read_back(
    chosen: str, annotations: Any, answers: tuple[str, ...], notes: tuple[str, ...]
) -> None:
    ask = questions(question("Which?", "A", "A, fast", "B", multiSelect=True))
    read = local_answer(ask, {}, {"answers": {"Which?": chosen}, "annotations": annotations})
    assert (read.answers, read.notes) == ((answers,), notes)


def test_a_permission_given_in_the_terminal_is_for_once_as_far_as_we_know() -> None:
    ask = asked("Bash", {"command": "ls"})
    assert local_answer(ask, {"command": "ls"}, {"stdout": ""}) == Answer(reply="once", by="agent", via="agent")
    assert local_answer(ask, {"command": "ls -l"}, {}).input == {"command": "ls -l"}
    plan = asked("ExitPlanMode", requested("plan", "ExitPlanMode")["input"])
    assert local_answer(plan, requested("plan", "ExitPlanMode")["input"], {}).input is None
    assert local_answer(questions(), None, "broken").answers == ((),)


# What is told when the call is gone ---------------------------------------------------------------------------------


def test_what_is_told_later_names_what_was_asked_and_what_was_said() -> None:
    told = told_later(
        questions(question("Which?"), question("Why?")), Answer(answers=(("A",), ("it is",)), notes=("!", None))
    )
    assert told == 'You asked: "Which?"; "Why?"; the answer is: "A" (note: !); "it is".'
    bash = asked("Bash", {"command": "touch x"})
    assert 'Bash with the input {"command": "touch x"}. That is allowed' in told_later(bash, Answer(reply="once"))
    refused = told_later(bash, Answer(rejected=True, reply="reject", reason="no"))
    assert refused.endswith("That was refused: no")
    assert is_same_call(bash, "Bash", {"command": "touch x"})
    assert not is_same_call(bash, "Bash", {"command": "touch x", "timeout": 1})
    assert not is_same_call(bash, "Write", {"command": "touch x"})


# Whatever comes -----------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(
    [
        *(
            "questions",
            "question",
            "options",
            "label",
            "header",
            "multiSelect",
            "kind",
            "command",
            "file_path",
            "edits",
        ),
        *("old_string", "new_string", "content", "plan", "permission_suggestions", "type", "rules", "mode"),
    ]
)
MESSAGES = st.recursive(
    st.none()
    | st.booleans()
    | st.text(max_size=8)
    | st.sampled_from(["addRules", "addDirectories", "setMode", "allow"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@given(st.sampled_from(["AskUserQuestion", "ExitPlanMode", "Bash", "Edit", "MultiEdit"]), MESSAGES, MESSAGES, JSON)
def test_whatever_claude_sends_becomes_an_ask_or_a_refusal(tool: str, sent: Any, fields: Any, response: Any) -> None:
    try:
        ask = to_ask(tool, sent, id="x", origin=ORIGIN, fields=fields if isinstance(fields, dict) else {})
        bound(ask)
    except AskDoesNotFit:
        return
    local_answer(ask, response, response)
    if ask.permission is not None:
        answers = [Answer(reply=reply) for reply in ask.permission.replies]
        answers += [Answer(reply="always", scope=scope.id) for scope in ask.permission.scopes]
    else:
        answers = [Answer(answers=tuple((("7",)) if not q.options else (q.options[0].value,) for q in ask.questions))]
    for answer in answers:
        decision = from_answer(ask, fit(ask, answer))
        assert decision["behavior"] in ("allow", "deny")
        json.dumps(decision)
        assert told_later(ask, fit(ask, answer))


# Recorded conversations ---------------------------------------------------------------------------------------------


def replaying(recording: Path, sent: Path) -> Claude:
    command = (sys.executable, str(REPLAYING), str(recording), str(sent))
    return Claude(AgentSettings(home=sent.parent, command=command))


@asynccontextmanager
async def replayed(recording: Path, broker: Broker, sent: Path, **start: Any) -> AsyncIterator[ClaudeSession]:
    session = await replaying(recording, sent).open(broker, Start(session="s1", **start))
    try:
        async with asyncio.timeout(PATIENCE):
            yield session
    finally:
        await session.close()


def sent_replies(sent: Path) -> dict[str, Any]:
    """What we sent, by the id of the request it answers."""
    lines = [json.loads(line) for line in sent.read_text().splitlines()]
    responses = [line["response"] for line in lines if line["type"] == "control_response"]
    return {response["request_id"]: response.get("response", response.get("error")) for response in responses}


def recorded_replies(name: str) -> dict[str, Any]:
    return {
        each["response"]["request_id"]: each["response"]["response"]
        for each in messages(name, "in")
        if each["type"] == "control_response"
    }


async def settled(broker: Broker, number: int) -> list[Ask]:
    """So many asks, each with what became of its answer."""
    found: dict[str, Ask] = {}
    async with asyncio.timeout(PATIENCE):
        async for event in broker.events(after=0):
            if isinstance(event, Delivered):
                found[event.ask.id] = event.ask
                if len(found) == number:
                    return list(found.values())
    raise AssertionError("the desk closed")


def a_person(person: ScriptedPerson) -> ScriptedPerson:
    person.on("Which database should", [["SQLite"]]).on("Second", [["D"]]).on("First", [["B"]])
    person.on("Describe", [["ship it"], ["4"]]).on("favourite", [["green"], ["calm"], ["Yes"]])
    return person.on("", reply="once")


@pytest.mark.parametrize(
    ("name", "number", "reply"),
    [
        ("question-and-permission", 2, "DONE all"),
        ("extended", 1, "DONE ext"),
        ("parallel", 4, "DONE par"),
        ("plan", 1, "DONE planreal"),
        ("form", 2, "DONE elicit"),
    ],
)
async def test_a_recorded_conversation_is_answered_as_it_was(
    name: str, number: int, reply: str, broker: Broker, person: ScriptedPerson, tmp_path: Path
) -> None:
    a_person(person)
    sent = tmp_path / "sent.jsonl"
    async with replayed(WIRE / f"{name}.jsonl", broker, sent) as session:
        assert (await session.prompt("go")).text == reply
        taken = await settled(broker, number)
    assert [ask.delivery_error for ask in taken] == [None] * number
    assert sent_replies(sent) == recorded_replies(name)


async def test_a_background_subagent_keeps_the_turn_open_past_its_first_result(
    broker: Broker, person: ScriptedPerson, tmp_path: Path
) -> None:
    a_person(person)
    async with replayed(WIRE / "background-subagent.jsonl", broker, tmp_path / "sent") as session:
        assert (await session.prompt("go")).text == "END"
    [ask] = await settled(broker, 1)
    assert (ask.origin.session, ask.origin.parent) == ("s1/abc891d590e1ad7db", "s1")


async def test_an_interrupted_question_is_withdrawn_and_the_session_goes_on(
    broker: Broker, person: ScriptedPerson, tmp_path: Path
) -> None:
    async with replayed(WIRE / "interrupted.jsonl", broker, tmp_path / "sent") as session:
        turn = asyncio.create_task(session.prompt("go"))
        ask = await person.sees("database")
        await session.abort()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert (await broker.get(ask.id)).state == "withdrawn"
        assert (await session.prompt("again")).text == "just text"


# What a program could say and the recordings do not -----------------------------------------------------------------

INITIALIZED: list[Mapping[str, Any]] = [
    {"wait": True},
    {"msg": {"type": "control_response", "response": {"subtype": "success", "response": {}}}},
]
IDLE = {"msg": {"type": "system", "subtype": "session_state_changed", "state": "idle"}}
RESULT = {"msg": {"type": "result", "subtype": "success", "is_error": False, "result": "done"}}


def requests(id: str, subtype: str, **fields: Any) -> dict[str, Any]:
    return {"msg": {"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}}}


def asks_which(id: str, **fields: Any) -> dict[str, Any]:
    given = {"questions": [question()]}
    return requests(id, "can_use_tool", tool_name="AskUserQuestion", input=given, tool_use_id=f"call-{id}", **fields)


@pytest.fixture
def recording(tmp_path: Path) -> Callable[..., Path]:
    def write(*entries: Mapping[str, Any]) -> Path:
        file = tmp_path / "recording.jsonl"
        file.write_text("".join(json.dumps(entry) + "\n" for entry in [*INITIALIZED, {"wait": True}, *entries]))
        return file

    return write


async def test_a_broken_message_hurts_itself_and_nobody_else(
    broker: Broker,
    person: ScriptedPerson,
    tmp_path: Path,
    recording: Callable[..., Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = "do-not-log-this"
    broken = recording(
        {"raw": "not json " + secret},
        {"raw": "[1, 2]"},
        {"msg": {"type": "control_request", "request": {"subtype": "can_use_tool"}}},
        {"msg": {"type": "control_cancel_request", "request_id": ["x"]}},
        {"msg": {"type": "assistant", "message": secret}},
        {"msg": {"type": "user", "message": {"content": [7, {"type": "tool_result", "tool_use_id": {}}]}}},
        requests("r1", "never_heard_of", note=secret),
        {"wait": True},
        requests("r2", "can_use_tool", tool_name="Bash", input=[secret], tool_use_id="t2"),
        {"wait": True},
        requests("r3", "can_use_tool", tool_name="AskUserQuestion", input={"questions": secret}, tool_use_id=None),
        {"wait": True},
        requests("r4", "elicitation", message="?", requested_schema=secret),
        {"wait": True},
        requests("r5", "hook_callback", input=secret),
        {"wait": True},
        asks_which("r6"),
        {"wait": True},
        RESULT,
        IDLE,
    )
    person.on("Which", [["B"]])
    async with replayed(broken, broker, tmp_path / "sent") as session:
        assert (await session.prompt("go")).text == "done"
    sent = sent_replies(tmp_path / "sent")
    assert sent["r1"] == "this host does not know that request"
    assert sent["r2"] == {"behavior": "deny", "message": "the input of Bash is not an object"}
    assert sent["r3"]["behavior"] == "deny" and "no questions" in sent["r3"]["message"]
    assert (sent["r4"], sent["r5"]) == ({"action": "cancel"}, {})
    assert sent["r6"]["updatedInput"]["answers"] == {"Which?": "B"}
    assert "r2" in caplog.text
    assert secret not in caplog.text


class Broken(Silent):
    def said(self, message: Message) -> None:
        raise RuntimeError("this listener is broken")


async def test_neither_a_listener_that_breaks_nor_a_late_idle_ends_a_turn(
    broker: Broker, tmp_path: Path, recording: Callable[..., Path]
) -> None:
    speaks = {"msg": {"type": "assistant", "message": {"content": [{"type": "text", "text": "well"}]}}}
    file = recording(IDLE, speaks, RESULT, IDLE)
    async with replayed(file, broker, tmp_path / "sent", listener=Broken()) as session:
        assert (await session.prompt("go")).text == "done"


async def test_what_claude_stops_waiting_for_is_withdrawn(
    broker: Broker, person: ScriptedPerson, tmp_path: Path, recording: Callable[..., Path]
) -> None:
    cancelled = recording(
        asks_which("r1"),
        {"wait": True},
        {"msg": {"type": "control_cancel_request", "request_id": "r1"}},
        asks_which("r2"),
        {"wait": True},
        RESULT,
    )
    async with replayed(cancelled, broker, tmp_path / "sent") as session:
        turn = asyncio.create_task(session.prompt("go"))
        ask = await person.sees("Which")
        await session._control.say("so that it goes on")
        assert (await broker.wait(ask.id)).state == "withdrawn"
        person.on("Which", [["A"]])
        await turn
    assert list(sent_replies(tmp_path / "sent")) == ["r2"]


async def test_an_answer_that_claude_never_took_is_reported(
    broker: Broker, person: ScriptedPerson, tmp_path: Path, recording: Callable[..., Path]
) -> None:
    burnt = {
        "type": "tool_result",
        "tool_use_id": "call-r1",
        "is_error": True,
        "content": "it failed schema validation",
    }
    person.on("Which", [["A"]])
    untaken = recording(
        asks_which("r1"),
        {"wait": True},
        {"msg": {"type": "user", "message": {"content": [burnt]}}},
        asks_which("r2"),
        {"wait": True},
        RESULT,
    )
    async with replayed(untaken, broker, tmp_path / "sent") as session:
        await session.prompt("go")
        first, second = await settled(broker, 2)
    assert first.delivery_error == "it failed schema validation"
    assert second.delivery_error == "the turn ended before claude took it"


async def test_a_flood_is_refused_with_a_reason_and_the_rest_is_withdrawn_at_the_end(
    broker: Broker, person: ScriptedPerson, tmp_path: Path, recording: Callable[..., Path]
) -> None:
    flood = [asks_which(f"r{number}") for number in range(MOST_OPEN + 1)]
    form = requests("form", "elicitation", message="?", requested_schema={"type": "object"})
    file = recording(*flood, {"wait": True}, form, {"wait": True}, RESULT)
    async with replayed(file, broker, tmp_path / "sent") as session:
        await session.prompt("go")
        await person.until(lambda: len(person.open) == MOST_OPEN)
    sent = sent_replies(tmp_path / "sent")
    assert sent.keys() == {f"r{MOST_OPEN}", "form"}
    assert sent[f"r{MOST_OPEN}"]["behavior"] == "deny"
    assert f"{MOST_OPEN} requests of this session wait" in sent[f"r{MOST_OPEN}"]["message"]
    assert sent["form"] == {"action": "cancel"}
    assert {ask.state async for ask in broker.asks()} == {"withdrawn"}


async def test_a_request_that_comes_twice_is_one(
    broker: Broker, person: ScriptedPerson, tmp_path: Path, recording: Callable[..., Path]
) -> None:
    file = recording(asks_which("r1"), asks_which("r1"), {"wait": True}, RESULT)
    async with replayed(file, broker, tmp_path / "sent") as session:
        turn = asyncio.create_task(session.prompt("go"))
        await person.sees("Which")
        person.on("Which", [["A"]])
        await turn
    assert len([ask async for ask in broker.asks()]) == 1


async def test_a_call_held_too_long_in_a_hook_goes_on_waiting_where_there_is_no_limit(
    broker: Broker, person: ScriptedPerson, tmp_path: Path, recording: Callable[..., Path]
) -> None:
    call = {"tool_name": "AskUserQuestion", "tool_input": {"questions": [question()]}, "tool_use_id": "call-r2"}
    long = recording(
        requests("r1", "hook_callback", input=call), {"wait": True}, asks_which("r2"), {"wait": True}, RESULT
    )
    process = await Process.start([sys.executable, str(REPLAYING), str(long), str(tmp_path / "sent")])
    session = ClaudeSession(process, asker=broker, start=Start(session="s1"), session="c1", hold=0.05)
    await session.begin()
    try:
        async with asyncio.timeout(PATIENCE):
            turn = asyncio.create_task(session.prompt("go"))
            ask = await person.sees("Which")
            while not (tmp_path / "sent").read_text().count("\n") >= 3:
                await asyncio.sleep(0.01)
            person.on("Which", [["A"]])
            await turn
    finally:
        await session.close()
    sent = sent_replies(tmp_path / "sent")
    assert sent["r1"] == {}
    assert sent["r2"]["updatedInput"]["answers"] == {"Which?": "A"}
    assert [each.id async for each in broker.asks()] == [ask.id]


async def test_a_program_that_says_why_it_ends_is_quoted(
    broker: Broker, person: ScriptedPerson, tmp_path: Path
) -> None:
    complaining = tmp_path / "claude.py"
    complaining.write_text("import sys; sys.stdin.readline(); sys.exit('please log in\\x1b[31m first')")
    agent = Claude(AgentSettings(home=tmp_path, command=(sys.executable, str(complaining))))
    with pytest.raises(AgentFailed, match=r"claude did not start: please log in.*first") as failed:
        await agent.open(broker, Start(session="s1"))
    assert "\x1b" not in failed.value.message


async def test_a_closed_session_takes_no_prompt_and_withdraws_what_was_open(
    broker: Broker, person: ScriptedPerson, tmp_path: Path, recording: Callable[..., Path]
) -> None:
    session = await replaying(recording(asks_which("r1"), {"wait": True}), tmp_path / "sent").open(
        broker, Start(session="s1")
    )
    turn = asyncio.create_task(session.prompt("go"))
    ask = await person.sees("Which")
    with pytest.raises(AgentFailed, match="still busy"):
        await session.prompt("more")
    await session.close()
    await session.close()
    with pytest.raises(asyncio.CancelledError):
        await turn
    closed = await broker.get(ask.id)
    assert (closed.state, closed.withdrawn_reason) == ("withdrawn", "the session was closed")
    with pytest.raises(AgentFailed):
        await session.prompt("more")


# Finding the program ------------------------------------------------------------------------------------------------


async def test_without_the_program_it_says_what_to_install(tmp_path: Path, broker: Broker) -> None:
    agent = load("agents", "claude")(AgentSettings(home=tmp_path, env={"PATH": str(tmp_path)}))
    seen = await agent.look(probe=True)
    assert not seen.installed
    assert "pip install 'handraise[claude]'" in str(seen.problem)
    with pytest.raises(AgentFailed, match="there is no program `claude`"):
        await agent.open(broker, Start(session="s1"))
    missing = Claude(AgentSettings(home=tmp_path, command=(str(tmp_path / "gone"),)))
    assert "there is no such program" in str((await missing.look()).problem)
    with pytest.raises(AgentFailed, match="there is no such program"):
        await missing.open(broker, Start(session="s1"))


async def test_an_agent_inherits_neither_our_token_nor_a_claude_around_us(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HANDRAISE_TOKEN", "HANDRAISE_DATABASE", "CLAUDECODE", "KEPT"):
        monkeypatch.setenv(name, "1")
    printing = tmp_path / "claude.py"
    printing.write_text("import json, os, sys; sys.stdin.readline(); sys.exit(json.dumps(sorted(os.environ)))")
    agent = Claude(AgentSettings(home=tmp_path, command=(sys.executable, str(printing)), env={"OURS": "1"}))
    with pytest.raises(AgentFailed) as failed:
        await agent.open(broker, Start(session="s1"))
    names = set(re.findall(r'"(\w+)"', failed.value.message))
    assert {"KEPT", "OURS", "HANDRAISE_SESSION", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"} <= names
    assert not names & {"HANDRAISE_TOKEN", "HANDRAISE_DATABASE", "CLAUDECODE"}
