"""The scripted agent (A9): what it asks, in which order, and what becomes of it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from handraise.agents import AgentSettings, Start
from handraise.agents._handled import Handled
from handraise.agents.scripted import Prompted, Scripted, plugin
from handraise.asks import Answer, Ask, Handling, Option, Permission, Question
from handraise.broker import Broker
from handraise.errors import AgentFailed
from handraise.events import Delivered
from handraise.testing import AgentDriver, FakeClock, ScriptedPerson, Stage, check_agent

DATABASE = Question("Which database?", (Option("SQLite"), Option("Postgres")), header="Database")
NAME = Question("Which name?", (Option("desk"), Option("board")), header="Name")
PUSH = Permission(tool="Bash", command="git push", replies=("once", "always", "reject"))
START = Start(session="s1")


def told(answers: list[Answer]) -> str:
    """Repeats everything it was told."""
    return ", ".join(answer.reason or "rejected" if answer.rejected else str(answer.value) for answer in answers)


async def taken(broker: Broker) -> Ask:
    """The first ask of which the agent said whether it took the answer."""
    async with asyncio.timeout(5):
        async for event in broker.events(after=0):
            if isinstance(event, Delivered):
                return event.ask
    raise AssertionError("the desk closed")


def a_script() -> Scripted:
    agent = Scripted().on_question("explore|both", DATABASE).on_question("both", [NAME])
    return agent.on_question("malformed", Question("")).on("", told)


async def test_a_question_is_asked_answered_and_taken(
    broker: Broker, person: ScriptedPerson, scripted_agent: Scripted
) -> None:
    scripted_agent.on_question(re.compile("EXPLORE", re.IGNORECASE), DATABASE)
    scripted_agent.on("explore", lambda answers: f"explored with {answers[0].value}")
    person.on("Database", [["Postgres"]])
    session = await scripted_agent.open(broker, START)
    assert (await session.prompt("explore the code")).text == "explored with Postgres"
    assert scripted_agent.prompted == [Prompted("s1", "explore the code")]
    assert [ask.id for ask in scripted_agent.asked] == ["scripted:s1:1:1"]
    assert (await taken(broker)).delivered_at is not None


async def test_everything_that_matches_is_asked_in_order_and_a_rejection_ends_nothing(
    broker: Broker, person: ScriptedPerson
) -> None:
    agent = Scripted().on_question("go", [DATABASE, NAME]).on_permission("go", PUSH).on_question("stay", NAME)
    agent.on("go", told)
    person.on("git push", reject="not today").on("Database", [["SQLite"], ["desk"]])
    session = await agent.open(broker, START)
    assert (await session.prompt("go")).text == "SQLite, not today"
    assert [ask.title for ask in person.seen] == ["Database, Name", "git push"]


async def test_a_delayed_question_is_asked_later_and_an_abort_before_that_asks_nothing(broker: Broker) -> None:
    agent = Scripted().on_question("soon", DATABASE, delay=0.01).on_question("never", NAME, delay=60)
    session = await agent.open(broker, START)
    turn = asyncio.create_task(session.prompt("soon, and never"))
    async with asyncio.timeout(5):
        async for event in broker.events(after=0):
            await broker.answer(event.ask.id, Answer(answers=(("SQLite",),)))
            break
        while not (await broker.get("scripted:s1:1:1")).delivered_at:  # then it waits for the second
            await asyncio.sleep(0.01)
    assert not turn.done()
    await session.abort()
    assert turn.cancelled()
    assert [ask.questions[0].header for ask in agent.asked] == ["Database"]


async def test_a_prompt_without_a_line_gets_an_empty_reply(broker: Broker) -> None:
    session = await Scripted().on("hello", "hi").open(broker, START)
    assert [(await session.prompt(text)).text for text in ("hello", "goodbye")] == ["hi", ""]


async def test_a_session_that_is_played_again_joins(broker: Broker, person: ScriptedPerson) -> None:
    agent = a_script()
    person.on("Database", [["SQLite"]])
    first, again = [await agent.open(broker, START) for _ in range(2)]
    for session in (first, again):
        assert (await session.prompt("explore")).text == "SQLite"
    assert [ask.id for ask in person.seen] == ["scripted:s1:1:1"]
    assert (await again.prompt("explore")).text == "SQLite"
    assert [ask.id for ask in person.seen] == ["scripted:s1:1:1", "scripted:s1:2:1"]


async def test_it_asks_with_the_handling_and_the_origin_it_was_started_with(broker: Broker) -> None:
    handling = Handling(question_policy="accept-first", permission_policy="reject")
    start = Start(session="s1", cwd="/c", run="r", step="explore", parent="p", handling=handling)
    agent = a_script().on_permission("explore", PUSH)
    session = await agent.open(Handled(broker, handling), start)
    assert (await session.prompt("explore")).text == "SQLite, no person is asked here (policy: reject)"
    origin = (await broker.get("scripted:s1:1:1")).origin
    assert (origin.agent, origin.session, origin.run, origin.step) == ("scripted", "s1", "r", "explore")
    assert (origin.parent, origin.cwd) == ("p", "/c")


async def test_an_abort_cancels_the_prompt_and_withdraws_what_is_open(broker: Broker, person: ScriptedPerson) -> None:
    session = await a_script().open(broker, START)
    turn = asyncio.create_task(session.prompt("explore"))
    await person.sees("Database")
    await session.abort()
    with pytest.raises(asyncio.CancelledError):
        await turn
    ask = await broker.get("scripted:s1:1:1")
    assert (ask.state, ask.withdrawn_reason) == ("withdrawn", "the turn was aborted")
    await session.abort()
    person.on("Database", [["SQLite"]])
    assert (await session.prompt("explore")).text == "SQLite"


class Deaf:
    """A desk that opens asks, and whose answers never arrive."""

    def __init__(self, broker: Broker) -> None:
        self.withdraw = broker.withdraw
        self.delivered = broker.delivered
        self._broker = broker

    async def ask(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Answer:
        await self._broker.open(ask, handling=handling, ordinal=ordinal)
        never: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        return await never


async def test_an_answer_that_the_abort_overtook_is_not_shown_as_delivered(
    broker: Broker, person: ScriptedPerson
) -> None:
    session = await a_script().open(Deaf(broker), START)
    turn = asyncio.create_task(session.prompt("explore"))
    await person.on("Database", [["SQLite"]]).sees("Database")
    await broker.wait("scripted:s1:1:1")
    await session.abort()
    assert turn.cancelled()
    ask = await taken(broker)
    assert (ask.delivered_at, ask.delivery_error) == (None, "the turn was aborted before it took the answer")


async def test_cancelling_a_prompt_withdraws_nothing_nor_does_closing_then(
    broker: Broker, person: ScriptedPerson
) -> None:
    session = await a_script().open(broker, START)
    turn = asyncio.create_task(session.prompt("explore"))
    await person.sees("Database")
    turn.cancel()
    await asyncio.wait([turn])
    await session.close()
    assert (await broker.get("scripted:s1:1:1")).state == "asked"


async def test_a_timeout_answers_it_too(broker: Broker, person: ScriptedPerson, fake_clock: FakeClock) -> None:
    session = await a_script().open(Handled(broker, Handling(question_timeout=60)), START)
    turn = asyncio.create_task(session.prompt("explore"))
    await person.sees("Database")
    await fake_clock.advance(60)
    assert (await turn).text == "SQLite"


def a_driver() -> AgentDriver:
    agent = a_script()

    async def again(stage: Stage) -> None:
        session = await agent.open(stage.broker, stage.start)
        stage.tasks.create_task(session.prompt("explore"))

    async def subagent(stage: Stage) -> None:
        session = await agent.open(stage.broker, Start(session="child", parent=stage.start.session))
        stage.tasks.create_task(session.prompt("explore"))

    return AgentDriver(
        open=agent.open,
        one="explore",
        two="both",
        malformed="malformed",
        again=again,
        subagent=subagent,
        found_again=again,
        cannot={
            "answered in the agents own terminal": "it has no terminal",
            "abort while a command runs": "it runs no commands",
            "close while a command runs": "it runs no commands",
            "agent killed while pending": "it is a part of the test, not a process",
        },
    )


async def test_it_fits_the_contract_of_agents() -> None:
    report = await check_agent(a_driver)
    assert len(report.passed) == 8
    assert "agent killed while pending: cannot, it is a part of the test, not a process" in str(report)


def test_it_is_loaded_like_any_other_agent() -> None:
    assert plugin is Scripted
    assert plugin().name == "scripted"


async def test_a_turn_fails_as_often_as_the_script_says(broker: Broker, scripted_agent: Scripted) -> None:
    scripted_agent.on_failure("go", "the model is away", times=1).on("go", "gone")
    session = await scripted_agent.open(broker, START)
    with pytest.raises(AgentFailed, match="the model is away"):
        await session.prompt("go")
    assert (await session.prompt("go")).text == "gone"


async def test_a_silent_turn_ends_when_it_is_aborted(broker: Broker, scripted_agent: Scripted) -> None:
    session = await scripted_agent.on_silence("go").open(broker, START)
    turn = asyncio.create_task(session.prompt("go"))
    while not scripted_agent.prompted:
        await asyncio.sleep(0)
    await session.abort()
    with pytest.raises(asyncio.CancelledError):
        await turn


async def test_one_that_a_desk_starts_by_its_name_repeats_what_it_is_told(broker: Broker, tmp_path: Path) -> None:
    session = await plugin(AgentSettings(home=tmp_path)).open(broker, START)
    assert (await session.prompt("hello")).text == "hello"
