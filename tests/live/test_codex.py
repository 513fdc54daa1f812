"""Codex as we start it: the real program, a scripted model, a desk in memory."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from handraise.agents import AgentSettings, Cut, Message, Start
from handraise.agents.codex import Codex
from handraise.asks import Answer, Ask, Handling
from handraise.broker import Broker
from handraise.errors import AgentFailed
from handraise.testing import AgentDriver, Late, ScriptedModel, ScriptedPerson, call, check_agent, repeat
from handraise.testing.model import Call, Request
from handraise.transports.process import identify, is_running
from tests.helpers.hearing import Heard
from tests.helpers.serving import eventually
from tests.live.conversations import (
    NO_TERMINAL,
    PATIENCE,
    answered_and_taken_up,
    asks,
    driver_of,
    killed_while_asking,
    let_go,
    opened,
    question,
    taken,
)
from tests.live.homes import Home, codex_home, written_down
from tests.live.programs import CACHE

FORMS = Path(__file__).with_name("form_server.py")


def asking(*questions: dict[str, Any]) -> Call:
    return call("question", questions=list(questions or (question(),)))


def run(command: str, **rest: Any) -> Call:
    """A command that wants out of the sandbox, which is what Codex asks about."""
    return call("exec_command", cmd=command, sandbox_permissions="require_escalated", justification="May I?", **rest)


def patch(*lines: str) -> Call:
    body = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
    return call("exec_command", cmd=f"apply_patch <<'EOF'\n{body}\nEOF\n")


def wait_for_it(request: Request) -> Call:
    """For the subagent that was just started."""
    return call("multi_agent_v1__wait_agent", targets=[json.loads(request.tool_results[-1])["agent_id"]])


@pytest.fixture
def agent(codex: Path, codex_env: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Codex:
    return an_agent(codex, codex_env, tmp_path, monkeypatch)


def an_agent(codex: Path, home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> Codex:
    for name in [name for name in os.environ if name.startswith(("CODEX", "OPENAI"))]:
        monkeypatch.delenv(name)
    return Codex(AgentSettings(home=folder, command=(str(codex), *options), env=home.env))


@pytest.fixture
def start(codex_env: Home) -> Start:
    return Start(session="s1", cwd=str(codex_env.project))


def said_by_user(model: ScriptedModel, number: int) -> str:
    """What the model was told by its user in one request, all of it."""
    items = model.requests[number].body["input"]
    return "\n".join(json.dumps(item["content"]) for item in items if item.get("role") == "user")


# The contract -------------------------------------------------------------------------------------------------------


async def test_it_is_an_agent(
    model: ScriptedModel, codex: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.scenarios |= {
        "one": [asking(), repeat],
        "two": [asking(), asking(question("Which name?", "desk", "board", header="Name")), repeat],
        "late": [run(Late.COMMAND, yield_time_ms=250), "done"],
        "malformed": [asking({**question(), "options": "none"}), repeat],
        "parent": [call("multi_agent_v1__spawn_agent", message="SCENARIO:child"), wait_for_it, repeat],
        "child": [run("touch by-a-child"), "made it"],
    }
    model.hold("late", step=1)  # the command is one that Codex does not wait for, and the turn goes on beside it
    numbers, turns = count(1), count(1)

    async def beside() -> None:
        await model.requested(2 * next(turns), scenario="late")

    def driver() -> AgentDriver:
        home = codex_home(tmp_path / f"codex-{next(numbers)}", model=model.url)
        agent = an_agent(codex, home, tmp_path, monkeypatch)

        async def written(ask: Ask) -> None:
            await written_down(home, ask.id)

        cannot = {
            "announced twice": "a process of our own announces a request once; after it died nothing is replayed",
            **NO_TERMINAL,
        }
        return driver_of(agent, home, cannot=cannot, before_leaving=written, beside=beside)

    report = await check_agent(driver, patience=PATIENCE)
    assert len(report.passed) == 10


# Questions ----------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_by_its_option_under_codexs_own_id(
    model: ScriptedModel, agent: Codex, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["one"] = [["Let me ask.", asking()], repeat]
    person.on("Database", [["Postgres"]])
    heard = Heard()
    async with opened(agent, broker, replace(start, listener=heard)) as session:
        reply = await session.prompt("SCENARIO:one")
        handle = session.handle
    assert reply.text == 'The answer to "Which database?" is: "Postgres".'
    [ask] = await asks(broker)
    assert re.fullmatch(rf"codex:{handle['thread']}:[\w-]+:call_\w+", ask.id)
    assert (ask.origin.agent, ask.origin.session, ask.origin.parent) == ("codex", "s1", None)
    assert (await taken(broker, ask.id)).delivery_error is None
    assert handle["turns"] == 1
    assert heard.messages[0] == Message(role="agent", text="Let me ask.")
    assert heard.messages[1].extra is not None and heard.messages[1].extra["name"] == "question"
    assert heard.messages[-1].text == reply.text


async def test_three_questions_in_one_ask_take_several_choices_own_words_and_notes(
    model: ScriptedModel, agent: Codex, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    parts = question("Which parts?", "Search, fast", "Login", "Billing", header="Parts", multiple=True)
    model.scenarios["three"] = [asking(question(), parts, question("Which name?", "desk", header="Name")), repeat]
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:three"))
        ask = await person.sees("database")
        answers = (("Postgres",), ("Search, fast", "Billing"), ("call it counter",))
        await broker.answer(ask.id, Answer(answers=answers, notes=(None, None, "it is short"), by="ana"))
        told = (await turn).text
    assert told.splitlines() == [
        'The answer to "Which database?" is: "Postgres".',
        'The answer to "Which parts?" is: "Search, fast" and "Billing".',
        'The answer to "Which name?" is: "call it counter" (note: it is short).',
    ]


async def test_the_question_tool_is_not_offered_where_questions_are_rejected(
    model: ScriptedModel, agent: Codex, start: Start, broker: Broker
) -> None:
    rejecting = replace(start, handling=Handling(question_policy="reject"))
    async with opened(agent, broker, rejecting) as session:
        await session.prompt("SCENARIO:none")
    async with opened(agent, broker, start) as session:
        await session.prompt("SCENARIO:none")
    without, offered = model.requests
    assert "question" not in without.tools
    assert "question" in offered.tools


async def test_policies_answer_and_the_model_is_told_that_no_person_did(
    model: ScriptedModel, agent: Codex, start: Start, broker: Broker
) -> None:
    model.scenarios["one"] = [asking(), repeat]
    async with opened(agent, broker, replace(start, handling=Handling(question_policy="accept-first"))) as session:
        told = (await session.prompt("SCENARIO:one")).text
    assert 'is: "SQLite".' in told
    assert "chosen by policy accept-first, no person was asked" in told


async def test_in_plan_mode_codexs_own_questions_are_asked_too(
    model: ScriptedModel, agent: Codex, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    questions = [
        {**question(), "id": "db"},
        {**question("Which region?", "EU", "US", header="Region"), "id": "region"},
        {**question("Which name?", "desk", "board", header="Name"), "id": "name"},
    ]
    own = call("request_user_input", questions=questions)
    model.scenarios["plan"] = [own, own, repeat]
    async with opened(agent, broker, replace(start, mode="plan")) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:plan"))
        first = await person.sees("database")
        answer = Answer(answers=(("Postgres",), ("EU",), ("counter",)), notes=(None, "close by", None), by="ana")
        await broker.answer(first.id, answer)
        await person.until(lambda: len(person.seen) == 2)
        await broker.reject(person.seen[1].id, reason="enough asked", by="ana")
        told = (await turn).text.splitlines()
    assert json.loads(told[0])["answers"] == {
        "db": {"answers": ["Postgres"]},
        "region": {"answers": ["EU", "user_note: close by"]},
        "name": {"answers": ["None of the above", "user_note: counter"]},
    }
    assert json.loads(told[1])["answers"]["db"] == {"answers": ["None of the above", "user_note: enough asked"]}
    assert [(await taken(broker, ask.id)).delivery_error for ask in await asks(broker)] == [None, None]


# Permissions --------------------------------------------------------------------------------------------------------


async def test_a_command_is_allowed_once_or_for_the_session_and_no_rule_is_written(
    model: ScriptedModel, agent: Codex, start: Start, codex_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["make"] = [run("touch one"), run("touch two"), run("touch two"), run("touch three"), repeat]
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:make"))
        ask = await person.sees("touch one")
        assert ask.permission is not None
        assert (ask.permission.tool, ask.permission.command) == ("shell", "touch one")
        assert ask.permission.summary == "touch one (May I?)"
        assert ask.permission.replies == ("once", "always", "reject")
        assert [scope.id for scope in ask.permission.scopes] == ["session", "rules"]
        assert not ask.permission.editable
        assert not (codex_env.project / "one").exists()
        await broker.answer(ask.id, Answer(reply="once", by="ana"))
        ask = await person.sees("touch two")
        await broker.answer(ask.id, Answer(reply="always", by="ana"))
        ask = await person.sees("touch three")
        await broker.answer(ask.id, Answer(reply="once", by="ana"))
        await turn
    assert [(await taken(broker, ask.id)).delivery_error for ask in await asks(broker)] == [None, None, None]
    assert {path.name for path in codex_env.project.iterdir()} == {"one", "two", "three"}
    assert not (codex_env.settings.parent / "rules" / "default.rules").exists()


async def test_a_rule_for_all_sessions_is_written_only_where_a_person_chose_exactly_that(
    model: ScriptedModel, agent: Codex, start: Start, codex_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["make"] = [run("touch one"), repeat]
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:make"))
        ask = await person.sees("touch one")
        assert ask.permission is not None and ask.permission.scopes[1].patterns == ("touch one",)
        await broker.answer(ask.id, Answer(reply="always", scope="rules", by="ana"))
        await turn
    assert '["touch", "one"]' in (codex_env.settings.parent / "rules" / "default.rules").read_text()


async def test_a_refused_command_is_not_run_and_the_reason_is_the_next_thing_the_model_reads(
    model: ScriptedModel, agent: Codex, start: Start, codex_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["make"] = [run("touch bad"), run("touch worse"), "I stop."]
    person.on("touch bad", reject="not on Fridays")
    person.on("touch worse", reject="")
    async with opened(agent, broker, start) as session:
        reply = await session.prompt("SCENARIO:make")
    assert reply.text == "I stop."
    assert "Refused: to run `touch bad`. not on Fridays" in said_by_user(model, 1)
    assert "Refused: to run `touch worse`. The person does not allow this" in said_by_user(model, 2)
    assert "rejected by user" in model.requests[1].tool_results[0]
    assert len(model.requests) == 3
    assert not list(codex_env.project.iterdir())
    assert [(await taken(broker, ask.id)).delivery_error for ask in await asks(broker)] == [None, None]


async def test_a_patch_is_shown_with_its_paths_and_as_a_diff(
    model: ScriptedModel, agent: Codex, start: Start, codex_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    (codex_env.project / "old.txt").write_text("one\ntwo\nthree\n")
    adding, changing = ["*** Add File: new.txt", "+hello"], ["*** Update File: old.txt", "@@", " one", "-two", "+2"]
    model.scenarios["patch"] = [patch(*adding, *changing), patch("*** Delete File: old.txt"), repeat]
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:patch"))
        ask = await person.sees("new.txt")
        assert ask.permission is not None and ask.permission.diff is not None
        assert ask.permission.tool == "apply_patch"
        assert {Path(path).name for path in ask.permission.paths} == {"new.txt", "old.txt"}
        new, old = str(codex_env.project / "new.txt"), str(codex_env.project / "old.txt")
        assert f"--- /dev/null\n+++ {new}\n@@ -0,0 +1,1 @@\n+hello" in ask.permission.diff
        assert f"--- {old}\n+++ {old}\n@@ " in ask.permission.diff
        assert "\n-two\n+2" in ask.permission.diff
        await broker.answer(ask.id, Answer(reply="once", by="ana"))
        ask = await person.sees("Delete")
        assert ask.permission is not None and "+++ /dev/null" in (ask.permission.diff or "")
        await broker.reject(ask.id, reason="keep it", by="ana")
        await turn
    assert (codex_env.project / "new.txt").read_text() == "hello\n"
    assert (codex_env.project / "old.txt").read_text() == "one\n2\nthree\n"
    assert "keep it" in said_by_user(model, 2)


async def test_more_permissions_are_granted_for_the_turn_or_refused(
    model: ScriptedModel,
    codex: Path,
    start: Start,
    codex_env: Home,
    broker: Broker,
    person: ScriptedPerson,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = an_agent(codex, codex_env, tmp_path, monkeypatch, "--enable", "request_permissions_tool")
    wanted = {"file_system": {"write": [str(tmp_path / "cache")]}, "network": {"enabled": True}}
    asked = call("request_permissions", reason="for the cache", permissions=wanted)
    model.scenarios["more"] = [asked, asked, repeat]
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:more"))
        ask = await person.sees("for the cache")
        assert ask.permission is not None
        assert ask.permission.summary.startswith(f"Allow Codex to write {tmp_path / 'cache'}, use the network")
        await broker.answer(ask.id, Answer(reply="once", by="ana"))
        await person.until(lambda: len(person.seen) == 2)
        await broker.reject(person.seen[1].id, reason="not that", by="ana")
        granted, refused = (json.loads(line) for line in (await turn).text.splitlines())
    assert granted["scope"] == "turn" and granted["permissions"]["network"] == {"enabled": True}
    assert str(tmp_path / "cache") in json.dumps(granted["permissions"]["file_system"])
    assert not any((refused["permissions"] or {}).values())


async def test_a_person_is_asked_also_where_the_configuration_lets_a_model_decide(
    model: ScriptedModel,
    codex: Path,
    broker: Broker,
    person: ScriptedPerson,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = codex_home(tmp_path / "reviewed", model=model.url, approvals_reviewer="auto_review")
    agent = an_agent(codex, home, tmp_path, monkeypatch)
    model.scenarios["make"] = [run("touch one"), repeat]
    person.on("touch one", reject="no")
    async with opened(agent, broker, Start(session="s1", cwd=str(home.project))) as session:
        await session.prompt("SCENARIO:make")
    [ask] = await asks(broker)
    assert ask.answer is not None and ask.answer.by == "person"
    assert len(model.requests) == 2


# MCP ----------------------------------------------------------------------------------------------------------------


async def test_a_tool_of_an_mcp_server_is_a_permission_and_its_form_a_question(
    model: ScriptedModel,
    codex: Path,
    broker: Broker,
    person: ScriptedPerson,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = f"[mcp_servers.forms]\ncommand = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(FORMS))}]\n"
    home = codex_home(tmp_path / "with-forms", model=model.url, more=server)
    agent = an_agent(codex, home, tmp_path, monkeypatch)
    model.scenarios["form"] = [call("mcp__forms__ask")] * 4 + [repeat]
    async with opened(agent, broker, Start(session="s1", cwd=str(home.project))) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:form"))
        ask = await person.sees("Call ask of the MCP server forms")
        assert ask.permission is not None
        assert (ask.permission.tool, ask.permission.input) == ("mcp__forms__ask", {})
        await broker.reject(ask.id, reason="not yet", by="ana")
        await person.until(lambda: len(person.seen) == 2)
        await broker.answer(person.seen[1].id, Answer(reply="once", by="ana"))
        await person.until(lambda: len(person.seen) == 3)
        form = person.seen[2]
        assert [question.header for question in form.questions] == ["Colour", "How many", "sure"]
        await broker.answer(form.id, Answer(answers=(("green",), ("3",), ("true",)), by="ana"))
        await person.until(lambda: len(person.seen) == 4)
        await broker.answer(person.seen[3].id, Answer(reply="always", by="ana"))
        await person.until(lambda: len(person.seen) == 5)
        await broker.reject(person.seen[4].id, reason="no forms", by="ana")
        await person.until(lambda: len(person.seen) == 6)  # the tool itself is allowed for the session by now
        await broker.answer(person.seen[5].id, Answer(answers=(("red",), (), ()), by="ana"))
        told = (await turn).text
    assert '"content": {"colour": "green", "count": 3, "sure": true}' in told
    assert '{"action": "decline"}' in told
    assert '"content": {"colour": "red"}' in told
    assert [ask.permission is None for ask in person.seen] == [False, False, True, False, True, True]
    assert re.fullmatch(r"codex:[\w-]+:[\w-]+:elicitation:[0-9a-f]{16}#1", form.id)
    assert [(await taken(broker, ask.id)).delivery_error for ask in await asks(broker)] == [None] * 6
    assert "not yet" in said_by_user(model, 1)
    assert "persist" not in home.settings.read_text() and "approve" not in home.settings.read_text()


# Stopping -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [asking(), run("touch one")], ids=["a question", "a command"])
async def test_an_abort_withdraws_what_is_open_and_the_session_stays(
    what: Call,
    model: ScriptedModel,
    agent: Codex,
    start: Start,
    codex_env: Home,
    broker: Broker,
    person: ScriptedPerson,
) -> None:
    model.scenarios |= {"wait": [what, repeat], "text": ["just text"]}
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:wait"))
        ask = await person.sees("touch|database")
        await session.abort()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert (await broker.get(ask.id)).state == "withdrawn"
        assert (await session.prompt("SCENARIO:text")).text == "just text"
    assert not list(codex_env.project.iterdir())


async def test_an_abort_stops_a_subagent_that_waits(
    model: ScriptedModel, agent: Codex, start: Start, codex_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    spawn = call("multi_agent_v1__spawn_agent", message="SCENARIO:child")
    model.scenarios |= {"parent": [spawn, wait_for_it, repeat], "child": [run("touch one"), "made it"]}
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:parent"))
        ask = await person.sees("touch one")
        assert (ask.origin.session.split("/")[0], ask.origin.parent) == ("s1", "s1")
        await session.abort()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert (await broker.get(ask.id)).state == "withdrawn"
        assert (await session.prompt("SCENARIO:none")).text
    assert not list(codex_env.project.iterdir())


@pytest.mark.parametrize("is_closed", [False, True])
async def test_an_abort_ends_what_a_subagent_left_running(
    model: ScriptedModel,
    agent: Codex,
    start: Start,
    broker: Broker,
    person: ScriptedPerson,
    codex_env: Home,
    is_closed: bool,
) -> None:
    def close_it(request: Request) -> Call:
        started = next(json.loads(each) for each in request.tool_results if "agent_id" in each)
        return call("multi_agent_v1__close_agent", target=started["agent_id"])

    spawn = call("multi_agent_v1__spawn_agent", message="SCENARIO:child")
    model.scenarios["parent"] = [spawn, wait_for_it, *([close_it] if is_closed else []), "done"]
    model.scenarios["child"] = [run(Late.COMMAND, yield_time_ms=250), "started it"]
    last = model.hold("parent", step=3 if is_closed else 2)
    person.on(".", reply="once")
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:parent"))
        await last.reached()
        file = codex_env.project / "started"
        await eventually(file.exists)
        started = identify(int(file.read_text()))
        if is_closed:
            await eventually(lambda: not is_running(started))
        else:
            assert is_running(started)
        await session.abort()
        await eventually(lambda: not is_running(started))
        with pytest.raises(asyncio.CancelledError):
            await turn
        model.scenarios["more"] = ["still here"]
        assert (await session.prompt("SCENARIO:more")).text == "still here"


async def test_an_abort_while_the_model_thinks(
    model: ScriptedModel, agent: Codex, start: Start, broker: Broker
) -> None:
    model.scenarios |= {"slow": ["never said"], "text": ["just text"]}
    hold = model.hold("slow", step=0)
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:slow"))
        await hold.reached()
        await session.abort()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert (await session.prompt("SCENARIO:text")).text == "just text"


async def test_an_agent_that_dies_leaves_no_ask_open_and_says_so(
    model: ScriptedModel, agent: Codex, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["one"] = [run("touch one"), repeat]
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:one"))
        ask = await person.sees("touch")
        os.kill(session.pid, signal.SIGKILL)
        with pytest.raises(AgentFailed, match="ended in the middle of its turn: its process ended with exit code -9"):
            await turn
        with pytest.raises(AgentFailed, match="has ended"):
            await session.prompt("SCENARIO:one")
        withdrawn = await broker.get(ask.id)
    assert withdrawn.withdrawn_reason == "codex ended: its process ended with exit code -9"


async def test_a_turn_that_the_model_refuses_fails_with_its_words(
    model: ScriptedModel, agent: Codex, start: Start, broker: Broker
) -> None:
    model.scenarios |= {"broken": ["never said"], "text": ["just text"]}
    model.failing("broken", step=0, status=400, times=20)
    async with opened(agent, broker, start) as session:
        with pytest.raises(AgentFailed, match="this failure was asked for"):
            await session.prompt("SCENARIO:broken")
        assert (await session.prompt("SCENARIO:text")).text == "just text"


# Letting go, and going on -------------------------------------------------------------------------------------------


async def test_a_permission_that_was_left_is_granted_to_the_same_call_once_and_to_no_other(
    model: ScriptedModel, agent: Codex, start: Start, codex_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["make"] = [run("touch one"), run("touch other"), run("touch one"), run("touch one"), repeat]
    session = await agent.open(broker, start)
    turn = asyncio.create_task(session.prompt("SCENARIO:make"))
    ask = await person.sees("touch one")
    await written_down(codex_env, ask.id)
    await let_go(session, turn)
    assert (await broker.get(ask.id)).state == "asked"
    assert not list(codex_env.project.iterdir())
    await broker.answer(ask.id, Answer(reply="once", by="ana"))
    cut = Cut(handle=session.handle, prompt="SCENARIO:make", asks=(await broker.get(ask.id),))
    person.on("touch", reject="not this one")
    async with opened(agent, broker, replace(start, cut=cut)) as session:
        reply = await session.go_on()
    assert reply is not None and reply.text.count("rejected by user") == 2
    assert (await taken(broker, ask.id)).delivery_error is None
    asked = [each.permission.command for each in await asks(broker) if each.permission is not None]
    assert asked == ["touch one", "touch other", "touch one"]
    assert [path.name for path in codex_env.project.iterdir()] == ["one"]
    assert "make exactly that call again" in said_by_user(model, 1)


async def test_a_grant_for_a_call_that_never_comes_again_is_reported(
    model: ScriptedModel, agent: Codex, start: Start, codex_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["make"] = [run("touch one"), "I changed my mind"]
    session = await agent.open(broker, start)
    turn = asyncio.create_task(session.prompt("SCENARIO:make"))
    ask = await person.sees("touch one")
    await written_down(codex_env, ask.id)
    await let_go(session, turn)
    cut = Cut(handle=session.handle, prompt="SCENARIO:make", asks=(await broker.get(ask.id),))
    async with opened(agent, broker, replace(start, cut=cut)) as session:
        going = asyncio.create_task(session.go_on())
        await broker.answer(ask.id, Answer(reply="once", by="ana"))
        reply = await going
    assert reply is not None and reply.text == "I changed my mind"
    assert (await taken(broker, ask.id)).delivery_error == "codex did not make that call again"


async def test_a_turn_that_was_cut_off_without_an_ask_says_how_to_go_on(
    model: ScriptedModel, agent: Codex, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios |= {"text": ["just text"], "one": [asking(), repeat]}
    person.on("Database", [["Postgres"]])
    async with opened(agent, broker, start) as session:
        await session.prompt("SCENARIO:text")
    lost = Cut(handle=session.handle, prompt="SCENARIO:text")
    async with opened(agent, broker, replace(start, cut=lost)) as session:
        with pytest.raises(AgentFailed, match="prompt the session"):
            await session.go_on()
        assert (await session.prompt("SCENARIO:text")).text == "just text"
        assert 'is: "Postgres"' in (await session.prompt("SCENARIO:one")).text  # the thread has kept the tool
        assert session.handle["turns"] == 3
    unknown = {"thread": "01a1e05a-aed0-75f3-a52f-c6225fc1045e", "turns": 0}
    async with opened(agent, broker, replace(start, cut=Cut(handle=unknown, prompt="SCENARIO:text"))) as session:
        begun_again = await session.go_on()
        assert begun_again is not None and begun_again.text == "just text"
        assert session.handle["thread"] != unknown["thread"]
    with pytest.raises(AgentFailed, match="no rollout found"):
        await agent.open(broker, replace(start, cut=Cut(handle={**unknown, "turns": 2})))


async def test_a_worker_killed_while_a_question_waits_leaves_no_agent_behind_and_the_next_one_tells_the_answer(
    model: ScriptedModel, codex: Path, agent: Codex, start: Start, codex_env: Home, tmp_path: Path
) -> None:
    model.scenarios["one"] = [asking(), "The rest is a matter of taste."]
    database = tmp_path / "desk.db"
    prompt, heard = "SCENARIO:one", Heard()
    said = await killed_while_asking("codex", database=database, program=codex, home=codex_env, prompt=prompt)
    assert len(model.requests) == 1, "it went on unattended"

    answer = Answer(answers=(("Postgres",),), notes=("as always",), by="ana")
    listening = replace(start, listener=heard)
    reply = await answered_and_taken_up(agent, listening, answer, database=database, said=said, prompt=prompt)
    assert reply is not None and reply.text == "The rest is a matter of taste."
    told = 'You asked: "Which database?". The answer to "Which database?" is: "Postgres" (note: as always).'
    assert json.dumps(told)[1:-1] in said_by_user(model, 1)
    assert heard.messages[0].role == "notice" and told in heard.messages[0].text


# Modes and looks ----------------------------------------------------------------------------------------------------


async def test_modes(
    model: ScriptedModel, agent: Codex, start: Start, codex_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    """A plain command is not asked about in any mode: the sandbox lets it, or it does not."""
    person.on("Database", [["SQLite"]])
    inside: dict[Any, bool] = {
        "read-only": False,
        "plan": False,
        "accept-edits": True,
        "workspace-write": True,
        "bypass": True,
        "full-access": True,
    }
    # Codex counts temporary folders to the workspace, such as the one of this test, unless it is told not to.
    temporary = Path(codex_env.env["HOME"])
    with tempfile.TemporaryDirectory(dir=CACHE) as elsewhere:
        for mode, is_written in inside.items():
            outside = Path(elsewhere) / mode
            tries = call("exec_command", cmd=f"echo it ran; touch {mode}; touch {temporary / mode}; touch {outside}")
            model.scenarios[mode] = [tries, asking(), repeat]
            async with opened(agent, broker, replace(start, mode=mode)) as session:
                told = (await session.prompt(f"SCENARIO:{mode}")).text
            assert "it ran" in told
            assert (codex_env.project / mode).exists() is is_written, (mode, told)
            assert not ((temporary / mode).exists() and mode in ("read-only", "plan", "workspace-write")), (mode, told)
            assert outside.exists() is (mode in ("bypass", "full-access")), (mode, told)
            assert 'is: "SQLite".' in told
    assert all(ask.permission is None for ask in await asks(broker))


async def test_looking_tells_the_version_and_probing_asks_the_program(agent: Codex, codex: Path) -> None:
    seen = await agent.look()
    assert seen.installed and seen.program == str(codex) and seen.problem is None
    assert seen.version is not None and re.fullmatch(r"\d+\.\d+\.\d+", seen.version)
    probed = await agent.look(probe=True)
    assert probed.problem is None
    assert set(probed.checked) == {"installed", "version", "questions", "permissions"}


async def test_a_configuration_that_cannot_be_read_is_said_in_codexs_words(
    agent: Codex, start: Start, codex_env: Home, broker: Broker
) -> None:
    codex_env.settings.write_text("sandbox_mode = 3\n")
    with pytest.raises(AgentFailed, match="codex did not start: failed to load configuration"):
        await agent.open(broker, start)
