"""Claude Code as we start it: the real program, a scripted model, a desk in memory."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from handraise.agents import AgentSettings, Cut, Message, Start
from handraise.agents.claude import Claude
from handraise.asks import Answer, AutoRule, Handling
from handraise.broker import Broker
from handraise.errors import AgentFailed, SettingsError
from handraise.testing import (
    AgentDriver,
    FakeClock,
    Late,
    ScriptedModel,
    ScriptedPerson,
    call,
    check_agent,
    repeat,
)
from handraise.testing.model import Call, Request
from handraise.transports.process import identify, is_running
from tests.helpers.hearing import Heard
from tests.helpers.serving import eventually
from tests.live import conversations
from tests.live.conversations import (
    NO_TERMINAL,
    PATIENCE,
    answered_and_taken_up,
    asks,
    driver_of,
    killed_while_asking,
    let_go,
    opened,
    taken,
)
from tests.live.homes import Home, claude_home, transcripts, written_down

question = partial(conversations.question, multiSelect=False)


def asking(*questions: dict[str, Any]) -> Call:
    return call("AskUserQuestion", questions=list(questions or (question(),)))


def touch(name: str) -> Call:
    return call("Bash", command=f"touch {name}", description="make a file")


def write_plan(request: Request) -> Call:
    """In plan mode the model is told a file for its plan, and the plan is what stands there."""
    path = re.search(r"/[^\s\"\\]+/plans/[\w.-]+\.md", json.dumps(request.body))
    assert path is not None
    return call("Write", file_path=path[0], content="# Tidy up\n1. Make a file\n")


@pytest.fixture
def agent(claude: Path, claude_env: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Claude:
    return an_agent(claude, claude_env, tmp_path, monkeypatch)


def an_agent(claude: Path, home: Home, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Claude:
    for name in [name for name in os.environ if name.startswith(("CLAUDE", "ANTHROPIC"))]:
        monkeypatch.delenv(name)
    return Claude(AgentSettings(home=folder, command=(str(claude),), env=home.env))


@pytest.fixture
def start(claude_env: Home) -> Start:
    return Start(session="s1", cwd=str(claude_env.project))


# The contract -------------------------------------------------------------------------------------------------------


async def test_it_is_an_agent(
    model: ScriptedModel, claude: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.scenarios |= {
        "one": [asking(), repeat],
        "two": [asking(), asking(question("Which name?", "desk", "board", header="Name")), repeat],
        "late": [call("Bash", command=Late.COMMAND, description="wait"), "done"],
        "malformed": [asking({**question(), "options": "none"}), repeat],
        "parent": [call("Agent", description="look", prompt="SCENARIO:child", subagent_type="general-purpose"), repeat],
        "child": [touch("by-a-child"), "made it"],
    }
    numbers = count(1)

    def driver() -> AgentDriver:
        home = claude_home(tmp_path / f"claude-{next(numbers)}", model=model.url)
        agent = an_agent(claude, home, tmp_path, monkeypatch)

        cannot = {
            "announced twice": "a live session announces a request once; a resumed one is the case of the restart",
            **NO_TERMINAL,
        }
        return driver_of(agent, home, cannot=cannot)

    report = await check_agent(driver, patience=PATIENCE)
    assert len(report.passed) == 10


# Questions ----------------------------------------------------------------------------------------------------------


async def test_a_question_is_answered_by_its_option_under_claudes_own_id(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["one"] = [["Let me ask.", asking()], repeat]
    person.on("Database", [["Postgres"]])
    heard = Heard()
    async with opened(agent, broker, replace(start, listener=heard)) as session:
        reply = await session.prompt("SCENARIO:one")
        handle = session.handle
    assert '"Which database?"="Postgres"' in reply.text
    [ask] = await asks(broker)
    assert re.fullmatch(rf"claude:{handle['session']}:toolu_\w+", ask.id)
    assert (ask.origin.agent, ask.origin.session, ask.origin.parent) == ("claude", "s1", None)
    assert (await taken(broker, ask.id)).delivery_error is None
    sent, got = heard.translation(ask.id)
    assert sent[0]["type"] == "control_request" and sent[0]["request"]["subtype"] == "hook_callback"
    assert got[0]["type"] == "control_response" and "Postgres" in json.dumps(got[0])
    assert heard.messages[0] == Message(role="agent", text="Let me ask.")
    assert heard.messages[1].extra is not None and heard.messages[1].extra["name"] == "AskUserQuestion"
    assert heard.messages[-1].text == reply.text
    assert heard.signs > len(heard.messages)


async def test_three_questions_in_one_ask_take_several_choices_own_words_notes_and_a_preview(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    layout = question("Which layout?", header="Layout")
    layout["options"] = [
        {"label": "Wide", "description": "", "preview": "[      ]"},
        {"label": "Tall", "description": "", "preview": "[]"},
    ]
    parts = question("Which parts?", "Search, fast", "Login", "Billing", header="Parts", multiSelect=True)
    model.scenarios["three"] = [asking(layout, parts, question("Which name?", "desk", "board", header="Name")), repeat]
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:three"))
        ask = await person.sees("layout")
        assert ask.questions[0].options[1].preview == "[]"
        answers = (("Tall",), ("Search, fast", "Billing"), ("call it counter",))
        await broker.answer(ask.id, Answer(answers=answers, notes=(None, None, "it is short"), by="ana"))
        told = (await turn).text
    assert '"Which layout?"="Tall" selected preview:\n[]' in told
    assert '"Which parts?"="Search, fast, Billing"' in told
    assert 'chosen: "Search, fast"; "Billing"' in told
    assert '"Which name?"="call it counter"' in told
    assert "it is short" in told


async def test_two_questions_in_one_message_are_answered_in_any_order(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["both"] = [[asking(), asking(question("Which name?", "desk", "board", header="Name"))], repeat]
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:both"))
        first, second = await person.sees("database"), await person.sees("name")
        await broker.answer(second.id, Answer(answers=(("board",),)))
        await broker.answer(first.id, Answer(answers=(("SQLite",),)))
        told = (await turn).text
    assert '"Which database?"="SQLite"' in told
    assert '"Which name?"="board"' in told


async def test_a_refusal_reaches_the_model_in_the_persons_words_and_it_goes_on(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["one"] = [asking(), repeat]
    person.on("Database", reject="neither; use files")
    async with opened(agent, broker, start) as session:
        reply = await session.prompt("SCENARIO:one")
    assert reply.text == "neither; use files"
    [ask] = await asks(broker)
    assert (await taken(broker, ask.id)).delivery_error is None


async def test_the_question_tool_is_not_offered_where_questions_are_rejected(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker
) -> None:
    rejecting = replace(start, handling=Handling(question_policy="reject"))
    async with opened(agent, broker, rejecting) as session:
        await session.prompt("SCENARIO:none")
    async with opened(agent, broker, start) as session:
        await session.prompt("SCENARIO:none")
    without, offered = model.requests
    assert "AskUserQuestion" not in without.tools
    assert "AskUserQuestion" in offered.tools


async def test_policies_answer_and_the_model_is_told_that_no_person_did(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker
) -> None:
    model.scenarios["one"] = [asking(), repeat]
    for policy, expected in {
        "accept-first": ('"Which database?"="SQLite"', "chosen by policy accept-first, no person was asked"),
        (AutoRule(match="database", answers=("Postgres",)),): (
            '"Which database?"="Postgres"',
            "chosen by policy auto, no person was asked",
        ),
    }.items():
        handling = Handling(question_policy=policy)  # type: ignore[arg-type]
        async with opened(agent, broker, replace(start, handling=handling)) as session:
            told = (await session.prompt("SCENARIO:one")).text
        assert all(each in told for each in expected), told


async def test_a_timeout_answers_and_says_so(
    model: ScriptedModel,
    agent: Claude,
    start: Start,
    broker: Broker,
    person: ScriptedPerson,
    fake_clock: FakeClock,
) -> None:
    model.scenarios["one"] = [asking(), repeat]
    async with opened(agent, broker, replace(start, handling=Handling(question_timeout=60))) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:one"))
        await person.sees("database")
        await fake_clock.advance(60)
        told = (await turn).text
    assert '"Which database?"="SQLite"' in told
    assert "chosen by policy accept-first, since there was no answer in 60 s" in told


# Permissions --------------------------------------------------------------------------------------------------------


async def test_a_permission_is_for_once_or_for_the_session_and_no_settings_file_is_written(
    model: ScriptedModel, agent: Claude, start: Start, claude_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios |= {"make": [touch("one"), touch("two"), touch("two"), repeat]}
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:make"))
        ask = await person.sees("touch one")
        assert ask.permission is not None
        assert ask.permission.command == "touch one"
        assert ask.permission.replies == ("once", "always", "reject")
        assert not (claude_env.project / "one").exists()
        await broker.answer(ask.id, Answer(reply="once"))
        ask = await person.sees("touch two")
        assert ask.permission is not None
        rule, folder = ask.permission.scopes[0].patterns
        assert rule.startswith("Bash(touch two")
        assert folder == start.cwd
        await broker.answer(ask.id, Answer(reply="always", scope="session", patterns=(rule,)))
        await turn
    assert [ask.delivery_error for ask in [await taken(broker, ask.id) for ask in await asks(broker)]] == [None, None]
    assert {path.name for path in claude_env.project.iterdir()} == {"one", "two"}


async def test_an_always_may_go_to_the_settings_file_that_its_scope_names(
    model: ScriptedModel, agent: Claude, start: Start, claude_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["make"] = [touch("one"), repeat]
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:make"))
        ask = await person.sees("touch one")
        await broker.answer(ask.id, Answer(reply="always", scope="localSettings"))
        await turn
    written = json.loads((claude_env.project / ".claude" / "settings.local.json").read_text())
    assert ask.permission is not None
    assert written["permissions"]["allow"] == [ask.permission.scopes[1].patterns[0]]


async def test_a_permission_is_refused_with_words_or_granted_with_another_input(
    model: ScriptedModel, agent: Claude, start: Start, claude_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["make"] = [touch("bad"), touch("one"), repeat]
    person.on("touch bad", reject="not here")
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:make"))
        ask = await person.sees("touch one")
        await broker.answer(ask.id, Answer(reply="once", input={"command": "touch other"}))
        told = (await turn).text
    assert told.startswith("not here")
    assert [path.name for path in claude_env.project.iterdir()] == ["other"]
    assert (await taken(broker, ask.id)).delivery_error is None


async def test_an_edited_input_that_claude_does_not_take_is_told_to_people(
    model: ScriptedModel, agent: Claude, start: Start, claude_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["make"] = [touch("one"), repeat]
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:make"))
        ask = await person.sees("touch one")
        await broker.answer(ask.id, Answer(reply="once", input={"command": 7}))
        await turn
    assert "schema validation" in str((await taken(broker, ask.id)).delivery_error)
    assert not list(claude_env.project.iterdir())


async def test_a_file_is_shown_as_a_diff(
    model: ScriptedModel, agent: Claude, start: Start, claude_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    path = str(claude_env.project / "notes.md")
    model.scenarios["write"] = [call("Write", file_path=path, content="one\ntwo\n"), repeat]
    person.on("notes", reply="always")
    async with opened(agent, broker, start) as session:
        await session.prompt("SCENARIO:write")
    [ask] = await asks(broker)
    assert ask.permission is not None
    assert ask.permission.paths == (path,)
    assert ask.permission.diff == f"--- {path}\n+++ {path}\n@@ -0,0 +1,2 @@\n+one\n+two"
    assert Path(path).read_text() == "one\ntwo\n"


async def test_a_background_subagents_permission_names_its_parent_and_outlives_the_result(
    model: ScriptedModel, agent: Claude, start: Start, claude_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    starting = call(
        "Agent",
        description="look",
        prompt="SCENARIO:child",
        subagent_type="general-purpose",
        run_in_background=True,
    )
    model.scenarios |= {"parent": [starting, "started", "all done"], "child": [touch("by-a-child"), "made it"]}
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:parent"))
        ask = await person.sees("touch by-a-child")
        await model.requested(2, scenario="parent")
        assert ask.origin.session.startswith("s1/")
        assert ask.origin.parent == "s1"
        await broker.answer(ask.id, Answer(reply="once"))
        assert (await turn).text == "all done"
    assert (claude_env.project / "by-a-child").exists()


# Plans --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "told", "asks_to_write"),
    [
        (Answer(reply="once"), "User has approved your plan", True),
        (Answer(reply="once", input={"plan": "# Only look"}), "Approved Plan (edited by user):\n# Only look", True),
        (Answer(reply="always", scope="mode:acceptEdits"), "User has approved your plan", False),
        (Answer(rejected=True, reason="too much at once"), "too much at once", True),
    ],
    ids=["approved", "edited", "approved with edits accepted", "refused"],
)
async def test_a_plan_is(
    model: ScriptedModel,
    agent: Claude,
    start: Start,
    claude_env: Home,
    broker: Broker,
    person: ScriptedPerson,
    answer: Answer,
    told: str,
    asks_to_write: bool,
) -> None:
    path = str(claude_env.project / "made.txt")
    model.scenarios["plan"] = [
        write_plan,
        call("ExitPlanMode"),
        call("Write", file_path=path, content="made"),
        repeat,
    ]
    person.on("made.txt", reject="no need")
    async with opened(agent, broker, replace(start, mode="plan")) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:plan"))
        ask = await person.sees("Tidy up")
        assert ask.permission is not None
        assert (ask.permission.kind, ask.permission.summary) == ("plan", "Plan: Tidy up")
        await broker.answer(ask.id, answer)
        assert told in (await turn).text
    assert (await taken(broker, ask.id)).delivery_error is None
    assert len(await asks(broker)) == 1 + asks_to_write
    assert Path(path).exists() is not asks_to_write


# Forms of MCP servers -----------------------------------------------------------------------------------------------

FORM_SERVER = Path(__file__).with_name("form_server.py")


async def test_a_form_of_an_mcp_server_is_filled_in_or_declined(
    model: ScriptedModel, agent: Claude, start: Start, claude_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    server = {"command": sys.executable, "args": [str(FORM_SERVER)]}
    (claude_env.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"forms": server}}))
    local = claude_env.project / ".claude" / "settings.local.json"
    local.parent.mkdir()
    local.write_text(json.dumps({"enableAllProjectMcpServers": True, "permissions": {"allow": ["mcp__forms__ask"]}}))
    model.scenarios["form"] = [call("mcp__forms__ask"), call("mcp__forms__ask"), repeat]
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:form"))
        ask = await person.sees("Which colour")
        assert [each.header for each in ask.questions] == ["Colour", "How many", "sure"]
        await broker.answer(ask.id, Answer(answers=(("green",), ("3",), ("Yes",))))
        await taken(broker, ask.id)
        person.on("Which colour", reject="no forms")
        told = (await turn).text
    assert told.splitlines() == [
        '{"action": "accept", "content": {"colour": "green", "count": 3, "sure": true}}',
        '{"action": "decline"}',
    ]


# Ends ---------------------------------------------------------------------------------------------------------------


async def test_an_abort_ends_a_command_in_the_background(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker, person: ScriptedPerson, claude_env: Home
) -> None:
    model.scenarios["late"] = [call("Bash", command=Late.COMMAND, description="wait", run_in_background=True), "done"]
    model.scenarios["more"] = ["still here"]
    going_on = model.hold("late", step=1)
    person.on(".", reply="once")
    started = claude_env.project / "started"
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:late"))
        await going_on.reached()
        await eventually(started.exists)
        process = identify(int(started.read_text()))
        await session.abort()
        await eventually(lambda: not is_running(process))
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert (await session.prompt("SCENARIO:more")).text == "still here"
    assert (
        len([request for request in model.requests if request.scenario == "late"]) == 2
    )  # it was not told and went on


async def test_an_abort_withdraws_and_the_next_prompt_works(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    starting = call("Agent", description="look", prompt="SCENARIO:child", run_in_background=True)
    model.scenarios |= {
        "one": [asking(), repeat],
        "make": [touch("one"), repeat],
        "parent": [starting, "started"],
        "child": [touch("by-a-child"), "made it"],
        "text": ["just text"],
    }
    async with opened(agent, broker, start) as session:
        for scenario, seen in (("one", "database"), ("make", "touch one"), ("parent", "touch by-a-child")):
            turn = asyncio.create_task(session.prompt(f"SCENARIO:{scenario}"))
            ask = await person.sees(seen)
            await session.abort()
            with pytest.raises(asyncio.CancelledError):
                await turn
            assert (await broker.get(ask.id)).state == "withdrawn"
        held = model.hold("text", step=0)
        turn = asyncio.create_task(session.prompt("SCENARIO:text"))
        await held.reached()
        await session.abort()
        with pytest.raises(asyncio.CancelledError):
            await turn
        held.release()
        assert (await session.prompt("SCENARIO:text")).text == "just text"


async def test_an_agent_that_dies_leaves_no_ask_open_and_says_its_last_words(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["one"] = [asking(), repeat]
    async with opened(agent, broker, start) as session:
        turn = asyncio.create_task(session.prompt("SCENARIO:one"))
        ask = await person.sees("database")
        os.kill(session.pid, signal.SIGKILL)
        with pytest.raises(AgentFailed, match="ended in the middle of its turn"):
            await turn
        with pytest.raises(AgentFailed, match="has ended"):
            await session.prompt("SCENARIO:one")
    withdrawn = await broker.get(ask.id)
    assert withdrawn.state == "withdrawn"
    assert "claude ended" in str(withdrawn.withdrawn_reason)


async def test_a_turn_that_the_model_refuses_fails_with_its_words(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker
) -> None:
    model.scenarios["broken"] = ["never said"]
    model.failing("broken", step=0, status=400, times=20)
    async with opened(agent, broker, start) as session:
        with pytest.raises(AgentFailed, match="this failure was asked for"):
            await session.prompt("SCENARIO:broken")


# Letting go, and going on -------------------------------------------------------------------------------------------


BY_CLAUDE = "never said"  # in this place it puts words of its own into the model's mouth when it resumes a turn


async def test_a_question_that_was_left_comes_again_under_the_same_id(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["one"] = [asking(), repeat]
    session = await agent.open(broker, start)
    turn = asyncio.create_task(session.prompt("SCENARIO:one"))
    ask = await person.sees("database")
    await let_go(session, turn)
    assert (await broker.get(ask.id)).state == "asked"
    cut = Cut(handle=session.handle, prompt="SCENARIO:one", asks=(await broker.get(ask.id),))
    # Left once more before anybody answered, as when a machine is restarted twice.
    session = await agent.open(broker, replace(start, cut=cut))
    turn = asyncio.create_task(session.go_on())  # type: ignore[arg-type]
    await let_go(session, turn)
    async with opened(agent, broker, replace(start, cut=cut)) as session:
        turn = asyncio.create_task(session.go_on())  # type: ignore[arg-type]
        await broker.answer(ask.id, Answer(answers=(("Postgres",),)))
        reply = await turn
        assert reply is not None and '"Which database?"="Postgres"' in reply.text
        assert (await taken(broker, ask.id)).delivery_error is None
        assert (await session.prompt("SCENARIO:none")).text
    assert [each.id for each in await asks(broker)] == [ask.id]


async def test_a_question_that_was_left_is_given_up_for_another_prompt(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios |= {"one": [asking(), repeat], "text": ["just text"]}
    session = await agent.open(broker, start)
    turn = asyncio.create_task(session.prompt("SCENARIO:one"))
    ask = await person.sees("database")
    await let_go(session, turn)
    cut = Cut(handle=session.handle, asks=(await broker.get(ask.id),))
    async with opened(agent, broker, replace(start, cut=cut)) as session:
        assert (await session.prompt("SCENARIO:text")).text == "just text"
    assert (await broker.get(ask.id)).state == "withdrawn"


async def test_a_plan_that_was_left_takes_the_answer_that_was_given_meanwhile(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["plan"] = [write_plan, call("ExitPlanMode"), repeat]
    planning = replace(start, mode="plan")
    session = await agent.open(broker, planning)
    turn = asyncio.create_task(session.prompt("SCENARIO:plan"))
    ask = await person.sees("Tidy up")
    await let_go(session, turn)
    await broker.answer(ask.id, Answer(reply="once", input={"plan": "# Only look"}))
    cut = Cut(handle=session.handle, prompt="SCENARIO:plan", asks=(await broker.get(ask.id),))
    async with opened(agent, broker, replace(planning, cut=cut)) as session:
        reply = await session.go_on()
    assert reply is not None and "Approved Plan (edited by user):\n# Only look" in reply.text
    assert (await taken(broker, ask.id)).delivery_error is None
    assert [each.id for each in await asks(broker)] == [ask.id]


async def test_a_permission_that_was_left_is_granted_to_the_same_call_once_and_to_no_other(
    model: ScriptedModel, agent: Claude, start: Start, claude_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["make"] = [touch("one"), BY_CLAUDE, touch("other"), touch("one"), touch("one"), repeat]
    session = await agent.open(broker, start)
    turn = asyncio.create_task(session.prompt("SCENARIO:make"))
    ask = await person.sees("touch one")
    await written_down(claude_env, ask.id)
    await let_go(session, turn)
    assert not list(claude_env.project.iterdir())
    await broker.answer(ask.id, Answer(reply="once", by="ana"))
    cut = Cut(handle=session.handle, prompt="SCENARIO:make", asks=(await broker.get(ask.id),))
    person.on("touch", reject="not this one")
    async with opened(agent, broker, replace(start, cut=cut)) as session:
        reply = await session.go_on()
    assert reply is not None and reply.text.count("not this one") == 2
    assert (await taken(broker, ask.id)).delivery_error is None
    asked = [each.permission.command for each in await asks(broker) if each.permission is not None]
    assert asked == ["touch one", "touch other", "touch one"]
    assert [path.name for path in claude_env.project.iterdir()] == ["one"]
    prompt = json.dumps(model.requests[1].body["messages"][-1])
    assert "make exactly that call again" in prompt


async def test_a_grant_for_a_call_that_never_comes_again_is_reported(
    model: ScriptedModel, agent: Claude, start: Start, claude_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["make"] = [touch("one"), BY_CLAUDE, "I changed my mind"]
    session = await agent.open(broker, start)
    turn = asyncio.create_task(session.prompt("SCENARIO:make"))
    ask = await person.sees("touch one")
    await written_down(claude_env, ask.id)
    await let_go(session, turn)
    cut = Cut(handle=session.handle, prompt="SCENARIO:make", asks=(await broker.get(ask.id),))
    async with opened(agent, broker, replace(start, cut=cut)) as session:
        going = asyncio.create_task(session.go_on())
        await broker.answer(ask.id, Answer(reply="once"))
        reply = await going
    assert reply is not None and reply.text == "I changed my mind"
    assert (await taken(broker, ask.id)).delivery_error == "claude did not make that call again"


async def test_a_first_turn_that_claude_had_not_written_down_is_begun_again(
    model: ScriptedModel, agent: Claude, start: Start, claude_env: Home, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["make"] = [touch("one"), "done"]
    session = await agent.open(broker, start)
    turn = asyncio.create_task(session.prompt("SCENARIO:make"))
    ask = await person.sees("touch one")
    await let_go(session, turn)
    for transcript in transcripts(claude_env):
        transcript.unlink()
    await broker.answer(ask.id, Answer(reply="once"))
    cut = Cut(handle=session.handle, prompt="SCENARIO:make", asks=(await broker.get(ask.id),))
    async with opened(agent, broker, replace(start, cut=cut)) as session:
        reply = await session.go_on()
    assert reply is not None and reply.text == "done"
    assert (await taken(broker, ask.id)).delivery_error is None
    assert len(await asks(broker)) == 1
    assert (claude_env.project / "one").exists()
    later = replace(cut, handle={"session": "7c89d00f-ded9-4af1-a0d6-73db2470cd0a", "turns": 2})
    with pytest.raises(AgentFailed, match="No conversation found"):
        await agent.open(broker, replace(start, cut=later))


async def test_a_turn_that_was_cut_off_without_an_ask_says_how_to_go_on(
    model: ScriptedModel, agent: Claude, start: Start, broker: Broker
) -> None:
    model.scenarios["text"] = ["just text"]
    async with opened(agent, broker, start) as session:
        await session.prompt("SCENARIO:text")
    idle, lost = Cut(handle=session.handle), Cut(handle=session.handle, prompt="SCENARIO:text")
    async with opened(agent, broker, replace(start, cut=lost)) as session:
        with pytest.raises(AgentFailed, match="prompt the session"):
            await session.go_on()
        assert (await session.prompt("SCENARIO:text")).text == "just text"
    unknown = {"session": "7c89d00f-ded9-4af1-a0d6-73db2470cd0a", "turns": 0}
    async with opened(agent, broker, replace(start, cut=Cut(handle=unknown, prompt="SCENARIO:text"))) as session:
        begun_again = await session.go_on()
        assert begun_again is not None and begun_again.text == "just text"
    for cut in (idle, Cut(handle={**unknown, "session": "7c89d00f-ded9-4af1-a0d6-73db2470cd0b"})):
        async with opened(agent, broker, replace(start, cut=cut)) as session:
            assert await session.go_on() is None
            assert (await session.prompt("SCENARIO:text")).text == "just text"


async def test_a_worker_killed_while_a_question_waits_leaves_no_agent_behind_and_the_next_one_tells_the_answer(
    model: ScriptedModel, claude: Path, agent: Claude, start: Start, claude_env: Home, tmp_path: Path
) -> None:
    model.scenarios["one"] = [asking(), BY_CLAUDE, "The rest is a matter of taste."]
    database = tmp_path / "desk.db"
    prompt, heard = "SCENARIO:one", Heard()
    said = await killed_while_asking("claude", database=database, program=claude, home=claude_env, prompt=prompt)
    assert len(model.requests) == 1, "it went on unattended"

    answer = Answer(answers=(("Postgres",),), notes=("as always",), by="ana")
    listening = replace(start, listener=heard)
    reply = await answered_and_taken_up(agent, listening, answer, database=database, said=said, prompt=prompt)
    assert reply is not None and reply.text == "The rest is a matter of taste."
    told = 'You asked: "Which database?"; the answer is: "Postgres" (note: as always).'
    assert told in json.loads(json.dumps(str(model.requests[1].body["messages"])))
    assert heard.messages[0].role == "notice" and told in heard.messages[0].text


# Modes and looks ----------------------------------------------------------------------------------------------------


async def test_what_cannot_be_expressed_is_refused_before_anything_starts(agent: Claude, start: Start) -> None:
    with pytest.raises(SettingsError, match="cannot be kept to the working folder"):
        agent.check(replace(start, mode="workspace-write"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
async def test_bypass_as_root_fails_with_the_programs_own_words(
    claude: Path, claude_env: Home, start: Start, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = replace(claude_env, env={**claude_env.env, "IS_SANDBOX": ""})
    with pytest.raises(AgentFailed, match="cannot be used with root"):
        await an_agent(claude, bare, tmp_path, monkeypatch).open(broker, replace(start, mode="bypass"))


async def test_looking_tells_the_version_and_probing_asks_the_program(agent: Claude, claude: Path) -> None:
    seen = await agent.look()
    assert seen.installed and seen.program == str(claude) and seen.problem is None
    assert seen.version is not None and re.fullmatch(r"\d+\.\d+\.\d+", seen.version)
    probed = await agent.look(probe=True)
    assert probed.version == seen.version
    assert set(probed.checked) == {"installed", "version", "questions", "permissions", "plans", "resume"}
