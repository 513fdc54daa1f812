"""OpenCode itself, on a scripted model: what it asks reaches a desk, and what the desk says reaches the model (A1)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from handraise.agents import AgentSettings, Cut, Message, Reply, Silent, Start
from handraise.agents._handled import Handled
from handraise.agents.opencode import OpenCode
from handraise.agents.opencode.events import Event as OpenCodeEvent
from handraise.agents.opencode.events import read
from handraise.agents.opencode.server import Server, Servers
from handraise.agents.opencode.session import OpenCodeSession
from handraise.agents.opencode.translate import request_of
from handraise.asks import Answer, Ask, AutoRule, Handling
from handraise.broker import Broker
from handraise.errors import AgentFailed, SettingsError
from handraise.events import Asked, Delivered, Event
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing import AgentDriver, FakeClock, Late, ScriptedModel, Stage, call, check_agent, repeat
from handraise.testing.model import Request
from handraise.transports.process import end, is_running
from tests.helpers import hearing
from tests.helpers.serving import eventually
from tests.live.homes import Home, opencode_home
from tests.live.test_programs import opencode_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE = 60.0  # seconds; a busy machine takes several to start a program of this size

DATABASE = {
    "header": "Database",
    "question": "Which database?",
    "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": "a server"}],
}
LANGUAGES = {
    "header": "Languages",
    "question": "Which languages?",
    "options": [{"label": name, "description": name} for name in ("Go", "Rust", "Zig")],
    "multiple": True,
}
NAME = {"header": "Name", "question": "Which name?", "options": []}
ASKED = call("question", questions=[DATABASE])


@dataclass(kw_only=True)
class House:
    """An OpenCode whose server runs as long as the tests of this file, and the model it talks to."""

    model: ScriptedModel
    home: Home
    settings: AgentSettings
    agent: OpenCode
    nobody: Broker
    keeper: OpenCodeSession | None = None

    def start(self, name: str, **given: Any) -> Start:
        return Start(session=name, cwd=str(self.home.project), **given)

    @property
    def directory(self) -> str:
        return str(self.home.project)

    async def keep(self) -> None:
        """The server ends with its last session, so one stays open; after the server was killed it is another one."""
        if self.keeper is None or self.keeper._folder.is_over:
            self.keeper = await self.agent.open(self.nobody, self.start("keeper"))

    async def open(self, asker: Any, start: Start) -> OpenCodeSession:
        await self.keep()
        return await self.agent.open(asker, start)

    @asynccontextmanager
    async def own_client(self) -> AsyncIterator[Server]:
        """OpenCode's own terminal, as far as its server can tell."""
        server = await Servers(self.settings).running(self.directory)
        assert server is not None
        try:
            yield server
        finally:
            await server.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(opencode: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("opencode")
    async with ScriptedModel() as model, a_house(opencode, folder, model) as built:
        yield built


@asynccontextmanager
async def a_house(opencode: Path, folder: Path, model: ScriptedModel) -> AsyncIterator[House]:
    permissions = {"bash": "ask", "edit": {"*": "ask", "*secret.txt": "deny"}}
    general = {"permission": {"question": "allow"}}
    home = opencode_home(folder / "opencode", model=model.url, permission=permissions, agent={"general": general})
    settings = AgentSettings(home=folder / "handraise", command=(str(opencode),), env=home.env)
    async with a_broker() as nobody:
        built = House(model=model, home=home, settings=settings, agent=OpenCode(settings), nobody=nobody)
        try:
            yield built
        finally:
            await built.agent.close()
            left = await Servers(settings).running(built.directory)
            if left is not None and left.process is not None:
                await left.close()
                await end(left.process, patience=0)
                pytest.fail("a server was left running")


@pytest_asyncio.fixture(loop_scope="module")
async def clock() -> FakeClock:
    return FakeClock()


@pytest_asyncio.fixture(loop_scope="module")
async def broker(clock: FakeClock) -> AsyncIterator[Broker]:
    async with a_broker(clock) as opened:
        yield opened


@asynccontextmanager
async def a_broker(clock: FakeClock | None = None) -> AsyncIterator[Broker]:
    store = await SqliteStore.open_file(MEMORY)
    try:
        async with Broker(store, clock=clock or FakeClock()) as broker:
            yield broker
    finally:
        await store.close()


async def until(broker: Broker, wanted: Callable[[Event], bool]) -> Event:
    async with asyncio.timeout(PATIENCE):
        async for event in broker.events(after=0):
            if wanted(event):
                return event
    raise AssertionError("the desk closed")


async def asked(broker: Broker, number: int = 1) -> Ask:
    ids: list[str] = []

    def is_it(event: Event) -> bool:
        if isinstance(event, Asked) and event.ask.id not in ids:
            ids.append(event.ask.id)
        return len(ids) == number

    return (await until(broker, is_it)).ask


async def taken(broker: Broker, ask: Ask) -> Ask:
    return (await until(broker, lambda event: isinstance(event, Delivered) and event.ask.id == ask.id)).ask


async def kill_server(session: OpenCodeSession) -> None:
    process = session._folder.server.process
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    await eventually(lambda: not is_running(process))


def last_words(request: Request) -> str:
    """A step that repeats what the user said last."""
    said = [message["content"] for message in request.body["messages"] if message["role"] == "user"][-1]
    return said if isinstance(said, str) else "".join(part["text"] for part in said)


def driver(house: House) -> AgentDriver:
    """How to make OpenCode do what the cases of the suite need. The agent is always the same one, as in a worker."""

    async def open_it(asker: Any, start: Start) -> OpenCodeSession:
        return await house.open(asker, replace(start, cwd=house.directory))

    def session(stage: Stage) -> OpenCodeSession:
        assert isinstance(stage.session, OpenCodeSession)
        return stage.session

    async def again(stage: Stage) -> None:
        # A break of the connection: whatever is open is read from the lists once more.
        await session(stage)._folder.relay.relist(house.directory)

    async def subagent(stage: Stage) -> None:
        await stage.prompt("SCENARIO:parent")

    async def own_terminal(stage: Stage) -> None:
        ask = await stage.asked()
        _, request = request_of(ask)
        async with house.own_client() as server:
            await server.post(f"/question/{request}/reply", {"answers": [["Postgres"]]}, directory=house.directory)

    async def found_again(stage: Stage) -> None:
        handle = session(stage).handle
        await session(stage).leave()
        cut = Cut(handle=handle, prompt="SCENARIO:one", asks=tuple(await stage.asks()))
        stage.session = await open_it(stage.broker, replace(stage.start, cut=cut))
        stage.tasks.create_task(stage.session.go_on())

    async def kill(stage: Stage) -> None:
        await kill_server(session(stage))

    house.model.scenarios["one"] = [ASKED, repeat]
    house.model.scenarios["two"] = [
        [ASKED, call("question", questions=[NAME | {"options": LANGUAGES["options"]}])],
        repeat,
    ]
    house.model.scenarios["malformed"] = [call("question", questions=[]), repeat]
    house.model.scenarios["late"] = [call("bash", command=Late.COMMAND, description="wait"), "done"]
    house.model.scenarios["parent"] = [
        call("task", description="ask it", prompt="SCENARIO:one", subagent_type="general"),
        repeat,
    ]
    return AgentDriver(
        open=open_it,
        one="SCENARIO:one",
        two="SCENARIO:two",
        malformed="SCENARIO:malformed",
        late=Late("SCENARIO:late", house.home.project),
        again=again,
        subagent=subagent,
        own_terminal=own_terminal,
        found_again=found_again,
        kill=kill,
    )


async def test_it_passes_the_suite_for_agents(house: House) -> None:
    report = await check_agent(lambda: driver(house), patience=PATIENCE)
    assert not report.cannot


# Questions ----------------------------------------------------------------------------------------------------------


async def told(broker: Broker, session: OpenCodeSession, answer: Answer, *, scenario: str) -> str:
    """What the model heard of an answer."""
    turn = asyncio.create_task(session.prompt(f"SCENARIO:{scenario}"))
    count = len([ask async for ask in broker.asks()])
    ask = await asked(broker, count + 1)
    await broker.answer(ask.id, answer)
    async with asyncio.timeout(PATIENCE):
        reply = await turn
    assert (await taken(broker, ask)).delivery_error is None
    return reply.text


async def test_every_kind_of_answer_reaches_the_model(house: House, broker: Broker) -> None:
    house.model.scenarios["kinds"] = [call("question", questions=[DATABASE, LANGUAGES, NAME]), repeat]
    house.model.scenarios["one"] = [ASKED, repeat]
    session = await house.open(broker, house.start("s1"))
    several = Answer(answers=(("Postgres",), ("Go", "Zig"), ('my own, with "quotes"',)), by="ana")
    heard = await told(broker, session, several, scenario="kinds")
    assert '"Which database?"="Postgres"' in heard
    assert '"Which languages?"="Go, Zig"' in heard
    assert '"Which name?"="my own, with "quotes""' in heard
    noted = Answer(answers=(("SQLite",), (), ("desk",)), notes=("only for tests", None, None), by="ana")
    heard = await told(broker, session, noted, scenario="kinds")
    assert '"Which database?"="SQLite, note: only for tests", "Which languages?"="Unanswered"' in heard
    ask = await asked(broker)
    assert (ask.origin.agent, ask.origin.session, ask.origin.cwd) == ("opencode", "s1", house.directory)
    assert ask.id.startswith(f"opencode:{session.handle['session']}:que_")
    await session.close()


async def test_policy_answers_without_anybody(house: House, broker: Broker) -> None:
    house.model.scenarios["policy"] = [call("question", questions=[DATABASE, LANGUAGES]), repeat]
    rules = (AutoRule(match="database", answers=("Postgres",)),)
    for number, (policy, expected) in enumerate(
        [("accept-first", '"Which database?"="SQLite"'), (rules, '"Which database?"="Postgres"')], start=1
    ):
        handling = Handling(question_policy=policy)  # type: ignore[arg-type]
        session = await house.open(Handled(broker, handling), house.start(f"s{number}", handling=handling))
        async with asyncio.timeout(PATIENCE):
            reply = await session.prompt("SCENARIO:policy")
        assert expected in reply.text
        assert '"Which languages?"="Go"' in reply.text
        await session.close()


async def test_silence_is_answered_when_the_time_is_up(house: House, broker: Broker, clock: FakeClock) -> None:
    house.model.scenarios["one"] = [ASKED, repeat]
    for number, (on_timeout, expected) in enumerate(
        [("accept-first", '="SQLite"'), ("reject", "No person is available (no answer in 60 s)")], start=1
    ):
        handling = Handling(question_timeout=60, on_timeout=on_timeout)  # type: ignore[arg-type]
        session = await house.open(Handled(broker, handling), house.start(f"s{number}", handling=handling))
        turn = asyncio.create_task(session.prompt("SCENARIO:one"))
        ask = await asked(broker, number)
        await clock.advance(60)
        async with asyncio.timeout(PATIENCE):
            assert expected in (await turn).text
        assert (await taken(broker, ask)).delivery_error is None
        await session.close()


async def test_a_session_that_asks_nobody_is_not_offered_the_tool(house: House, broker: Broker) -> None:
    house.model.scenarios["silent"] = [ASKED, repeat]
    session = await house.open(broker, house.start("s1", handling=Handling(question_policy="reject")))
    async with asyncio.timeout(PATIENCE):
        reply = await session.prompt("SCENARIO:silent")
    assert "unavailable tool 'question'" in reply.text
    offered = [each.tools for each in house.model.requests if each.scenario == "silent"]
    assert offered and all("question" not in tools for tools in offered)
    assert not [ask async for ask in broker.asks()]
    await session.close()


class Heard(Silent):
    """A listener that keeps what is said."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        self.signs = 0

    def said(self, message: Message) -> None:
        self.messages.append((message.role, message.text))

    def active(self) -> None:
        self.signs += 1


async def test_what_is_said_is_told_to_the_listener(house: House, broker: Broker) -> None:
    listener = Heard()
    house.model.scenarios["said"] = [["I look.", call("glob", pattern="*.md")], "there is nothing"]
    session = await house.open(broker, house.start("s1", listener=listener))
    async with asyncio.timeout(PATIENCE):
        assert await session.prompt("SCENARIO:said") == Reply(text="there is nothing")
    *before, last = listener.messages
    assert sorted(before) == [("agent", "I look."), ("tool", "glob *.md")]  # OpenCode tells them in either order
    assert last == ("agent", "there is nothing")
    assert listener.signs > 3
    await session.close()


async def test_what_was_on_the_wire_is_told_to_the_listener(house: House, broker: Broker) -> None:
    listener = hearing.Heard()
    house.model.scenarios["wire"] = [ASKED, repeat]
    session = await house.open(broker, house.start("s1", listener=listener))
    turn = asyncio.create_task(session.prompt("SCENARIO:wire"))
    ask = await asked(broker)
    await broker.answer(ask.id, Answer(answers=((ask.questions[0].options[0].value,),), by="ana"))
    async with asyncio.timeout(PATIENCE):
        await turn
    (event, *signs), got = listener.translation(ask.id)
    assert event["type"] == "question.asked" and event["properties"]["id"] in ask.id
    assert got == [{"answers": [[ask.questions[0].options[0].label]]}]
    assert "question.replied" in {sign["type"] for sign in signs if isinstance(sign, dict)}
    named = {(wire.way, wire.name) for wire in listener.wires}
    assert {("out", "POST /session"), ("in", "200 POST /session"), ("in", "message.updated")} <= named
    await session.close()


# Permissions --------------------------------------------------------------------------------------------------------


def shell(command: str) -> Any:
    return call("bash", command=command, description="run it")


async def test_a_permission_is_granted_once_always_and_refused(house: House, broker: Broker) -> None:
    house.model.scenarios["shell"] = [
        shell("echo one"),
        shell("printf two"),
        shell("printf three"),
        shell("touch four.txt"),
        repeat,
    ]
    session = await house.open(broker, house.start("s1"))
    turn = asyncio.create_task(session.prompt("SCENARIO:shell"))
    first = await asked(broker)
    assert first.permission is not None
    assert (first.permission.tool, first.permission.summary) == ("bash", "echo one")
    await broker.answer(first.id, Answer(reply="once", by="ana"))
    second = await asked(broker, 2)
    await broker.answer(second.id, Answer(reply="always", by="ana"))
    third = await asked(broker, 3)  # printf three: decided by what ana said before
    fourth = await asked(broker, 4)
    assert fourth.permission is not None and fourth.permission.command == "touch four.txt"
    await broker.reject(fourth.id, reason="no new files", by="ana")
    async with asyncio.timeout(PATIENCE):
        reply = await turn
    assert "one" in reply.text and "two" in reply.text and "three" in reply.text
    assert "with the following feedback: no new files" in reply.text
    assert not (house.home.project / "four.txt").exists()
    remembered = (await taken(broker, third)).answer
    assert remembered is not None and remembered.by_policy
    assert [(await taken(broker, each)).delivery_error for each in (first, second, fourth)] == [None] * 3
    await session.close()


async def test_a_session_does_not_profit_from_the_always_of_another(house: House, broker: Broker) -> None:
    house.model.scenarios["always"] = [shell("uname -s"), repeat]
    for number in (1, 2):
        session = await house.open(broker, house.start(f"s{number}"))
        turn = asyncio.create_task(session.prompt("SCENARIO:always"))
        ask = await asked(broker, number)
        await broker.answer(ask.id, Answer(reply="always", by="ana"))
        async with asyncio.timeout(PATIENCE):
            await turn
        answer = (await taken(broker, ask)).answer
        assert answer is not None and answer.by == "ana"
        await session.close()


async def test_one_refusal_in_opencodes_own_terminal_settles_all_of_the_turn(house: House, broker: Broker) -> None:
    house.model.scenarios["both"] = [[shell("echo a"), shell("echo b")], repeat]
    session = await house.open(broker, house.start("s1"))
    turn = asyncio.create_task(session.prompt("SCENARIO:both"))
    first, second = await asked(broker, 1), await asked(broker, 2)
    async with house.own_client() as server:
        path = f"/permission/{request_of(first)[1]}/reply"
        await server.post(path, {"reply": "reject"}, directory=house.directory)
    async with asyncio.timeout(PATIENCE):
        settled = [await broker.wait(each.id) for each in (first, second)]
        await turn  # it goes on, as we started the server like that
    assert [each.state for each in settled] == ["rejected", "rejected"]
    assert [each.ask().answer.by for each in settled] == ["agent", "agent"]  # type: ignore[union-attr]
    await session.close()


# Modes --------------------------------------------------------------------------------------------------------------


async def test_modes_let_it_do_what_they_say(house: House, broker: Broker) -> None:
    project = house.home.project

    def writes(name: str) -> Any:
        return call("write", filePath=str(project / name), content="written")

    expected = {"accept-edits": True, "bypass": True, "full-access": True, "read-only": False}
    for mode, is_written in expected.items():
        house.model.scenarios[mode] = [writes(f"{mode}.txt"), call("read", filePath=str(house.home.settings)), repeat]
        session = await house.open(broker, house.start(mode, mode=mode))
        async with asyncio.timeout(PATIENCE):
            reply = await session.prompt(f"SCENARIO:{mode}")
        assert (project / f"{mode}.txt").exists() is is_written, f"{mode}: {reply.text}"
        assert "enabled_providers" in reply.text, f"{mode} does not let it read"
        await session.close()
    assert not [ask async for ask in broker.asks()]


async def test_a_mode_loosens_nothing_that_is_forbidden(house: House, broker: Broker) -> None:
    project = house.home.project
    for mode in ("accept-edits", "bypass"):
        house.model.scenarios[f"{mode}-secret"] = [
            call("write", filePath=str(project / "secret.txt"), content="written"),
            repeat,
        ]
        session = await house.open(broker, house.start(mode, mode=mode))
        async with asyncio.timeout(PATIENCE):
            await session.prompt(f"SCENARIO:{mode}-secret")
        assert not (project / "secret.txt").exists()
        await session.close()


async def test_a_shell_is_asked_for_or_not_as_the_mode_says(house: House, broker: Broker) -> None:
    for mode in ("bypass", "read-only"):
        house.model.scenarios[f"{mode}-shell"] = [shell("touch from-the-shell"), repeat]
        session = await house.open(broker, house.start(mode, mode=mode))
        async with asyncio.timeout(PATIENCE):
            await session.prompt(f"SCENARIO:{mode}-shell")
        assert (house.home.project / "from-the-shell").exists() is (mode == "bypass")
        (house.home.project / "from-the-shell").unlink(missing_ok=True)
        await session.close()
    assert not [ask async for ask in broker.asks()]


async def test_while_it_plans_it_asks_before_it_changes_anything(house: House, broker: Broker) -> None:
    file = house.home.project / "planned.txt"
    house.model.scenarios["plan"] = [
        [call("write", filePath=str(file), content="x"), shell(f"touch {file}")],
        call("read", filePath=str(house.home.settings)),
        repeat,
    ]
    session = await house.open(broker, house.start("s1", mode="plan"))
    turn = asyncio.create_task(session.prompt("SCENARIO:plan"))
    for number in (1, 2):
        await broker.reject((await asked(broker, number)).id, reason="only plan", by="ana")
    async with asyncio.timeout(PATIENCE):
        reply = await turn
    assert "enabled_providers" in reply.text
    assert reply.text.count("only plan") >= 1
    assert not file.exists()
    await session.close()


async def test_the_mode_of_a_session_is_that_of_its_subagents(house: House, broker: Broker) -> None:
    file = house.home.project / "child.txt"
    house.model.scenarios["child"] = [
        call("write", filePath=str(file), content="x"),
        shell("echo from-the-child"),
        repeat,
    ]
    task = call("task", description="do it", prompt="SCENARIO:child", subagent_type="general")
    house.model.scenarios["free"] = [task, repeat]
    for mode in ("bypass", "full-access", "accept-edits"):
        session = await house.open(broker, house.start(mode, mode=mode))
        turn = asyncio.create_task(session.prompt("SCENARIO:free"))
        if mode == "accept-edits":
            ask = await asked(broker)
            assert ask.permission is not None
            assert (ask.permission.command, ask.origin.parent) == ("echo from-the-child", mode)
            await broker.answer(ask.id, Answer(reply="once", by="ana"))
        async with asyncio.timeout(PATIENCE):
            assert "from-the-child" in (await turn).text
        assert file.exists()
        file.unlink()
        await session.close()
    assert len([ask async for ask in broker.asks()]) == 1


async def test_a_mode_it_does_not_have_is_refused(house: House, broker: Broker) -> None:
    with pytest.raises(SettingsError, match="not confined"):
        await house.agent.open(broker, house.start("s1", mode="workspace-write"))


# Trouble ------------------------------------------------------------------------------------------------------------


async def test_after_an_abort_nothing_is_left_and_the_session_goes_on(house: House, broker: Broker) -> None:
    house.model.scenarios["one"] = [ASKED, repeat]
    house.model.scenarios["asks-shell"] = [shell("echo a"), repeat]
    house.model.scenarios["hello"] = ["hello yourself"]
    session = await house.open(broker, house.start("s1"))
    for number, scenario in enumerate(("one", "asks-shell"), start=1):
        turn = asyncio.create_task(session.prompt(f"SCENARIO:{scenario}"))
        ask = await asked(broker, number)
        await session.abort()
        await asyncio.wait([turn])
        assert turn.cancelled()
        assert (await broker.get(ask.id)).state == "withdrawn"
    async with asyncio.timeout(PATIENCE):
        assert (await session.prompt("SCENARIO:hello")).text == "hello yourself"
    async with house.own_client() as server:
        assert await server.get("/question", directory=house.directory) == []
        assert await server.get("/permission", directory=house.directory) == []
    await session.close()


async def test_a_turn_that_breaks_says_why_and_the_next_one_works(house: House, broker: Broker) -> None:
    house.model.scenarios["broken"] = ["never said"]
    house.model.failing("broken", step=0, status=400)
    house.model.scenarios["hello"] = ["hello yourself"]
    session = await house.open(broker, house.start("s1"))
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(AgentFailed, match="this failure was asked for"):
            await session.prompt("SCENARIO:broken")
        assert (await session.prompt("SCENARIO:hello")).text == "hello yourself"
    await session.close()


async def test_a_server_that_died_ends_the_turn_and_the_next_prompt_starts_another(
    house: House, broker: Broker
) -> None:
    house.model.scenarios["one"] = [ASKED, repeat]
    house.model.scenarios["hello"] = ["hello yourself"]
    session = await house.open(broker, house.start("s1"))
    turn = asyncio.create_task(session.prompt("SCENARIO:one"))
    ask = await asked(broker)
    await kill_server(session)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(AgentFailed, match="server ended"):
            await turn
        settled = await broker.wait(ask.id)
        assert settled.ask().withdrawn_reason == "OpenCode's server ended"
        assert (await session.prompt("SCENARIO:hello")).text == "hello yourself"
    await house.keep()
    await session.close()


async def test_answers_are_told_to_a_new_server_when_the_old_one_is_gone(house: House, broker: Broker) -> None:
    house.model.scenarios["lost"] = [[ASKED, shell("echo a")], last_words]
    start = house.start("s1")
    session = await house.open(broker, start)
    turn = asyncio.create_task(session.prompt("SCENARIO:lost"))
    asks = [await asked(broker, 1), await asked(broker, 2)]
    question = next(ask for ask in asks if ask.permission is None)
    permission = next(ask for ask in asks if ask.permission is not None)
    handle = session.handle
    await session.leave()
    await asyncio.wait([turn])
    await kill_server(session)

    session = await house.open(broker, replace(start, cut=Cut(handle=handle, prompt="SCENARIO:lost", asks=tuple(asks))))
    going_on = asyncio.create_task(session.go_on())
    async with asyncio.timeout(PATIENCE):
        assert (await broker.wait(permission.id)).state == "withdrawn"
        await broker.answer(question.id, Answer(answers=(("Postgres",),), by="ana"))
        reply = await going_on
    assert reply is not None
    assert "You asked: Which database? The answer is: Postgres" in reply.text
    assert (await taken(broker, question)).delivery_error is None
    await session.close()


async def test_a_turn_that_was_lost_says_so(house: House, broker: Broker) -> None:
    house.model.scenarios["slow"] = ["never said"]
    held = house.model.hold("slow", step=0)
    start = house.start("s1")
    session = await house.open(broker, start)
    turn = asyncio.create_task(session.prompt("SCENARIO:slow"))
    async with asyncio.timeout(PATIENCE):
        await held.reached()
    handle = session.handle
    await session.leave()
    await asyncio.wait([turn])
    await kill_server(session)
    session = await house.open(broker, replace(start, cut=Cut(handle=handle, prompt="SCENARIO:slow")))
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(AgentFailed, match="in the middle of the turn"):
            await session.go_on()
    await session.close()


WORKER = """
import asyncio, json, sys
from pathlib import Path
from handraise.agents import AgentSettings, Start
from handraise.agents._handled import Handled
from handraise.agents.opencode import OpenCode
from handraise.broker import Broker
from handraise.events import Asked
from handraise.stores.sqlite import SqliteStore

async def main(home, command, env, cwd, database):
    async with Broker(await SqliteStore.open_file(database)) as broker:
        agent = OpenCode(AgentSettings(home=Path(home), command=(command,), env=env))
        session = await agent.open(broker, Start(session="s1", cwd=cwd))
        turn = asyncio.create_task(session.prompt("SCENARIO:worker"))
        async for event in broker.events(after=0):
            if isinstance(event, Asked):
                print(json.dumps(dict(session.handle)), flush=True)

asyncio.run(main(*json.loads(sys.argv[1])))
"""


async def test_a_session_outlives_its_worker(house: House, tmp_path: Path) -> None:
    house.model.scenarios["worker"] = [ASKED, repeat]
    await house.keep()
    database = tmp_path / "desk.db"
    given = [
        str(house.settings.home),
        house.settings.command[0],
        dict(house.settings.env),
        house.directory,
        str(database),
    ]
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, json.dumps(given), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert worker.stdout is not None
        async with asyncio.timeout(PATIENCE):
            handle = json.loads(await worker.stdout.readline())
    finally:
        worker.kill()
        await worker.wait()

    store = await SqliteStore.open_file(database)
    async with Broker(store) as broker:
        asks = tuple([ask async for ask in broker.asks()])
        assert [ask.state for ask in asks] == ["asked"]
        cut = Cut(handle=handle, prompt="SCENARIO:worker", asks=asks)
        session = await house.open(broker, house.start("s1", cut=cut))
        going_on = asyncio.create_task(session.go_on())
        await broker.answer(asks[0].id, Answer(answers=(("Postgres",),), by="ana"))
        async with asyncio.timeout(PATIENCE):
            reply = await going_on
        assert reply is not None and '"Which database?"="Postgres"' in reply.text
        assert (await taken(broker, asks[0])).delivery_error is None
        assert len([ask async for ask in broker.asks()]) == 1
        await session.close()
    await store.close()


async def test_a_turn_that_ended_while_no_worker_was_there_is_found(house: House, broker: Broker) -> None:
    house.model.scenarios["away"] = [ASKED, repeat]
    await house.keep()
    start = house.start("s1")
    other = OpenCode(house.settings)
    session = await other.open(broker, start)
    turn = asyncio.create_task(session.prompt("SCENARIO:away"))
    ask = await asked(broker)
    handle = session.handle
    await session.leave()
    await asyncio.wait([turn])
    await other.close()  # the server is busy, and stays
    assert (await broker.get(ask.id)).state == "asked"
    async with house.own_client() as server:
        path = f"/question/{request_of(ask)[1]}/reply"
        events = server.events("/event", directory=house.directory)
        await anext(events)
        await server.post(path, {"answers": [["Postgres"]]}, directory=house.directory)
        async with asyncio.timeout(PATIENCE):
            async for event in events:
                if event["type"] == "session.idle" and event["properties"]["sessionID"] == handle["session"]:
                    break
        await events.aclose()  # type: ignore[attr-defined]
    session = await house.open(broker, replace(start, cut=Cut(handle=handle, prompt="SCENARIO:away", asks=(ask,))))
    async with asyncio.timeout(PATIENCE):
        reply = await session.go_on()
    assert reply is not None and '"Which database?"="Postgres"' in reply.text
    settled = await broker.get(ask.id)
    assert settled.answer is not None
    assert (settled.answer.by, settled.answer.answers) == ("agent", (("Postgres",),))
    await session.close()


async def test_a_turn_that_was_stopped_while_no_worker_was_there_leaves_nothing(house: House, broker: Broker) -> None:
    house.model.scenarios["stopped"] = [ASKED, repeat]
    start = house.start("s1")
    session = await house.open(broker, start)
    turn = asyncio.create_task(session.prompt("SCENARIO:stopped"))
    ask = await asked(broker)
    handle = session.handle
    await session.leave()
    await asyncio.wait([turn])
    async with house.own_client() as server:
        await server.post(f"/session/{handle['session']}/abort", directory=house.directory)
        assert len(await server.get("/question", directory=house.directory)) == 1  # a ghost
        cut = Cut(handle=handle, prompt="SCENARIO:stopped", asks=(ask,))
        session = await house.open(broker, replace(start, cut=cut))
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(AgentFailed, match="Aborted"):
                await session.go_on()
            assert (await broker.wait(ask.id)).state == "withdrawn"
        await session.close()
        assert await server.get("/question", directory=house.directory) == []


def event(type: str, session: str, **properties: Any) -> OpenCodeEvent:
    """As the relay tells it."""
    told = read({"type": type, "properties": {"sessionID": session, **properties}}, directory="/project")
    assert told is not None
    return told


async def test_the_end_of_a_turn_that_is_told_late_does_not_end_the_next(house: House, broker: Broker) -> None:
    house.model.scenarios["long"] = [["Let me see. ", "It is done."]]
    hold = house.model.pause("long", step=0)
    session = await house.open(broker, house.start("s1"))
    id = session.handle["session"]
    turn = asyncio.create_task(session.prompt("SCENARIO:long"))
    async with asyncio.timeout(PATIENCE):
        await eventually(lambda: bool(session._answering))
        session._hear(event("session.error", id, error={"name": "Aborted"}))
        session._hear(event("session.idle", id))
        await asyncio.gather(*session._tasks._tasks)
        assert not turn.done()
        hold.release()
        assert (await turn).text == "Let me see. It is done."
    await session.close()


async def test_the_end_of_a_turn_that_is_told_before_the_next_was_taken_does_not_end_it(
    house: House, broker: Broker
) -> None:
    house.model.scenarios["first"] = ["the first"]
    house.model.scenarios["second"] = ["the second"]
    session = await house.open(broker, house.start("s1"))
    id = session.handle["session"]
    async with asyncio.timeout(PATIENCE):
        assert (await session.prompt("SCENARIO:first")).text == "the first"
        turn = asyncio.create_task(session.prompt("SCENARIO:second"))
        while session._current is None:
            await asyncio.sleep(0)
        session._hear(event("session.status", id, status={"type": "busy"}))
        session._hear(event("session.idle", id))
        assert (await turn).text == "the second"
    await session.close()


async def test_a_folder_that_opencode_lets_go_of_leaves_no_ask(house: House, broker: Broker) -> None:
    house.model.scenarios["one"] = [ASKED, repeat]
    house.model.scenarios["hello"] = ["hello yourself"]
    session = await house.open(broker, house.start("s1"))
    turn = asyncio.create_task(session.prompt("SCENARIO:one"))
    ask = await asked(broker)
    async with house.own_client() as server:
        await server.post("/instance/dispose", directory=house.directory)
    async with asyncio.timeout(PATIENCE):
        assert (await broker.wait(ask.id)).state == "withdrawn"
        with pytest.raises(AgentFailed, match="Aborted"):
            await turn
        assert (await session.prompt("SCENARIO:hello")).text == "hello yourself"
    await session.close()


# Servers that run by themselves -------------------------------------------------------------------------------------


async def test_a_server_that_runs_by_itself_is_watched(opencode: Path, tmp_path: Path, broker: Broker) -> None:
    async with ScriptedModel({"one": [ASKED, repeat]}) as model:
        home = opencode_home(tmp_path, model=model.url)
        agent = OpenCode(AgentSettings(home=tmp_path / "handraise", command=(str(opencode),), env=home.env))
        locked = replace(home, env={**home.env, "OPENCODE_SERVER_PASSWORD": "secret"})
        async with opencode_server(opencode, locked) as url:
            address = url.replace("http://", "http://opencode:secret@")
            server = Server.at(address)
            session = (await server.post("/session", {"title": "its own"}))["id"]
            body = {"parts": [{"type": "text", "text": "SCENARIO:one"}]}
            await server.post(f"/session/{session}/prompt_async", body)
            async with asyncio.timeout(PATIENCE):
                await model.requested(1)
                with pytest.raises(SettingsError, match="wants another password"):
                    await agent.watch(broker, url)
            ready = asyncio.Event()
            watching = asyncio.create_task(agent.watch(broker, address, ready=ready.set))
            async with asyncio.timeout(PATIENCE):
                await ready.wait()
            first = await asked(broker)
            assert (first.origin.session, first.origin.cwd) == (session, str(home.project))
            await broker.answer(first.id, Answer(answers=(("Postgres",),), by="ana"))
            assert (await taken(broker, first)).delivery_error is None

            async with asyncio.timeout(PATIENCE):
                await model.requested(2)
            await server.post(f"/session/{session}/prompt_async", body)
            second = await asked(broker, 2)
            await server.post(f"/question/{request_of(second)[1]}/reply", {"answers": [["my own"]]})
            async with asyncio.timeout(PATIENCE):
                answer = (await broker.wait(second.id)).ask().answer
            assert answer is not None
            assert (answer.by, answer.answers) == ("agent", (("my own",),))

            newer = (await server.post("/api/session", {}))["data"]["id"]
            await server.post(f"/api/session/{newer}/prompt", {"prompt": {"text": "SCENARIO:one"}})
            third = await asked(broker, 3)
            await broker.answer(third.id, Answer(answers=(("Postgres",),), by="ana"))
            assert (await taken(broker, third)).delivery_error is None
            async with asyncio.timeout(PATIENCE):
                heard = [await model.requested(number) for number in range(1, 7)]
            assert any('"Which database?"="Postgres"' in " ".join(each.tool_results) for each in heard[4:])

            await server.post(f"/session/{session}/prompt_async", body)
            fourth = await asked(broker, 4)
            await server.close()
        async with asyncio.timeout(PATIENCE):
            assert (await broker.wait(fourth.id)).ask().withdrawn_reason == "OpenCode's server ended"
        watching.cancel()
        await asyncio.wait([watching])


async def test_it_tells_what_it_can_do(house: House) -> None:
    await house.keep()
    seen = await house.agent.look(probe=True)
    assert (seen.installed, seen.problem) == (True, None)
    assert seen.version is not None and seen.version.startswith("1.")
    assert {"questions", "permissions", "version"} <= set(seen.checked)
    assert seen.questions and seen.permissions and seen.subagents and seen.resume
    records = list((house.settings.home / "agents" / "opencode").iterdir())
    assert records and all(record.stat().st_mode & 0o077 == 0 for record in records)  # a password is in one of them


async def test_it_says_what_to_do_where_it_is_not_installed(tmp_path: Path) -> None:
    seen = await OpenCode(AgentSettings(home=tmp_path, env={"PATH": str(tmp_path)})).look()
    assert not seen.installed
    assert seen.problem is not None and "install it" in seen.problem
