"""Qwen Code over ACP: the real program, a scripted model, a desk in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from handraise.agents import AgentSettings, Cut, Start
from handraise.agents.acp import Acp
from handraise.asks import Answer, Ask
from handraise.broker import Broker
from handraise.events import Asked
from handraise.testing import AgentDriver, Late, ScriptedModel, ScriptedPerson, call, check_agent, repeat
from handraise.testing.model import Call, Request
from tests.live import conversations
from tests.live.conversations import NO_TERMINAL, PATIENCE, driver_of, opened
from tests.live.homes import Home, qwen_home


def an_agent(qwen: Path, home: Home) -> Acp:
    command = ("node", str(qwen), "--acp", "--auth-type", "openai")
    return Acp(AgentSettings(home=home.settings.parent, command=command, env=home.env))


question = partial(conversations.question, multiSelect=False)


def asking(*questions: dict[str, Any]) -> Call:
    return call("ask_user_question", questions=list(questions or (question(),)))


def touch(name: str) -> Call:
    return call("run_shell_command", command=f"touch {name}", description="make a file", is_background=False)


async def raised(broker: Broker) -> Ask:
    async for event in broker.events(after=0):
        if isinstance(event, Asked):
            return event.ask
    raise AssertionError("the desk closed")


async def test_it_keeps_what_every_adapter_must(model: ScriptedModel, qwen: Path, tmp_path: Path) -> None:
    model.scenarios |= {
        "one": [asking(), repeat],
        "two": [asking(), asking(question("Which region?", "EU", "US", header="Region")), repeat],
        "late": [call("run_shell_command", command=Late.COMMAND, description="wait", is_background=False), "done"],
        "malformed": [call("ask_user_question", questions=[{"header": "no text"}]), "never mind"],
    }
    numbers = count(1)

    def driver() -> AgentDriver:
        home = qwen_home(tmp_path / f"qwen-{next(numbers)}", model=model.url)
        agent = an_agent(qwen, home)

        cannot = {
            "announced twice": "a request is made once in a connection, and dies with it",
            "a subagents ask": "its subagents ask nothing over ACP that could be told apart",
            "desk restarted while pending": "told in words; a test of its own follows",
            "a refusal with a reason does not end the turn": "the protocol has no room for a reason",
            **NO_TERMINAL,
        }
        return driver_of(agent, home, cannot=cannot, again=False)

    report = await check_agent(driver, patience=PATIENCE)
    assert len(report.passed) == 7


async def test_answers_reach_the_model_and_a_command_runs_once_allowed(
    model: ScriptedModel, qwen: Path, tmp_path: Path, broker: Broker, person: ScriptedPerson
) -> None:
    several = question("Which parts?", "Auth", "Billing", header="Parts", multiSelect=True)
    model.scenarios["both"] = [asking(question(), several), touch("made"), repeat]
    person.on("Database", [["my own"], ["Auth", "Billing"]])
    person.on("touch made", reply="once")
    home = qwen_home(tmp_path / "qwen", model=model.url)
    async with opened(an_agent(qwen, home), broker, Start(session="s1", cwd=str(home.project))) as session:
        reply = await session.prompt("SCENARIO:both")
    assert "**Database**: my own" in reply.text
    assert "**Parts**: Auth, Billing" in reply.text
    assert (home.project / "made").exists()
    wanted = [ask.permission async for ask in broker.asks()][1]
    assert wanted is not None and wanted.command == "touch made" and wanted.scopes


async def test_a_refusal_runs_nothing_and_the_turn_goes_on(
    model: ScriptedModel, qwen: Path, tmp_path: Path, broker: Broker, person: ScriptedPerson
) -> None:
    model.scenarios["both"] = [asking(), touch("made"), repeat]
    person.on(".", reject="not today")
    home = qwen_home(tmp_path / "qwen", model=model.url)
    async with opened(an_agent(qwen, home), broker, Start(session="s1", cwd=str(home.project))) as session:
        reply = await session.prompt("SCENARIO:both")
    assert reply.text.count("canceled by the user") == 2
    assert not (home.project / "made").exists()


async def test_a_mode_of_its_own_is_set(model: ScriptedModel, qwen: Path, tmp_path: Path, broker: Broker) -> None:
    model.scenarios["touch"] = [touch("made"), "made it"]
    home = qwen_home(tmp_path / "qwen", model=model.url)
    start = Start(session="s1", cwd=str(home.project), mode="bypass")
    async with opened(an_agent(qwen, home), broker, start) as session:
        assert (await session.prompt("SCENARIO:touch")).text == "made it"
    assert (home.project / "made").exists()
    assert [ask async for ask in broker.asks()] == []


async def test_a_session_that_was_left_is_loaded_and_told_the_answer(
    model: ScriptedModel, qwen: Path, tmp_path: Path, broker: Broker
) -> None:

    def unless_told(request: Request) -> Call | str:
        """Whether it knows its prompt again depends on what it had written down when it ended."""
        return "Thank you." if "was interrupted before" in str(request.body["messages"][-1]) else asking()

    model.scenarios |= {"hello": ["hello", "Thank you."], "one": [unless_told, "Thank you."]}
    home = qwen_home(tmp_path / "qwen", model=model.url)
    agent, start = an_agent(qwen, home), Start(session="s1", cwd=str(home.project))
    async with opened(agent, broker, start) as session:
        await session.prompt("SCENARIO:hello")
        turn = asyncio.create_task(session.prompt("SCENARIO:one"))
        ask = await raised(broker)
        await session.leave()
        await asyncio.wait([turn])
    await broker.answer(ask.id, Answer(answers=(("Postgres",),), by="ana"))
    cut = Cut(handle=session.handle, prompt="SCENARIO:one", asks=(await broker.get(ask.id),))
    async with opened(agent, broker, replace(start, cut=cut)) as again:
        assert await again.go_on() is not None
    told = str(model.requests[-1].body["messages"][-1])
    assert "Which database?" in told and "Postgres" in told
