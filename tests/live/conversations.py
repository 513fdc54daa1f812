"""What tests of conversations with real agents share: sessions, what became of asks, and workers that are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import pytest

from handraise.agents import Asker, Cut, HandlingAsker, Reply, Session, Start
from handraise.agents._handled import Handled
from handraise.asks import Answer, Ask
from handraise.broker import Broker
from handraise.events import Delivered
from handraise.stores.sqlite import SqliteStore
from handraise.testing import AgentDriver, Late, Stage
from tests.live.homes import Home, written_down

PATIENCE = 60.0  # seconds; a busy machine takes several to start a program of this size
NO_TERMINAL = {"answered in the agents own terminal": "a session that we started has no terminal"}


def question(text: str = "Which database?", *labels: str, header: str = "Database", **rest: Any) -> dict[str, Any]:
    options = [{"label": label, "description": f"about {label}"} for label in labels or ("SQLite", "Postgres")]
    return {"question": text, "header": header, "options": options, **rest}


class Running(Session, Protocol):
    """A session with a program of its own."""

    @property
    def pid(self) -> int: ...


S_co = TypeVar("S_co", bound=Running, covariant=True)


class Opening(Protocol[S_co]):
    """An agent, as far as it is needed here."""

    async def open(self, asker: Asker, start: Start) -> S_co: ...


@asynccontextmanager
async def opened(agent: Opening[S_co], asker: HandlingAsker, start: Start) -> AsyncIterator[S_co]:
    session = await agent.open(Handled(asker, start.handling), start)
    try:
        async with asyncio.timeout(PATIENCE):
            yield session
    finally:
        await session.close()


async def let_go(session: Running, turn: asyncio.Task[Any]) -> None:
    """Leave the session, and see that its program is gone and its turn cancelled."""
    pid = session.pid
    await session.leave()
    assert not is_alive(pid)
    with pytest.raises(asyncio.CancelledError):
        await turn


async def taken(broker: Broker, id: str) -> Ask:
    """The ask once the agent took its answer, or could not."""
    async with asyncio.timeout(PATIENCE):
        async for event in broker.events(after=0):
            if isinstance(event, Delivered) and event.ask.id == id:
                return event.ask
    raise AssertionError("the desk closed")


async def asks(broker: Broker) -> list[Ask]:
    return [ask async for ask in broker.asks()]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


# The contract -------------------------------------------------------------------------------------------------------


def driver_of(
    agent: Opening[Running],
    home: Home,
    *,
    cannot: Mapping[str, str],
    before_leaving: Callable[[Ask], Awaitable[None]] | None = None,
    again: bool = True,
    beside: Callable[[], Awaitable[object]] | None = None,
) -> AgentDriver:
    """For `check_agent`, with the scenarios `one`, `two`, `malformed`, `late` and `parent`, whose subagent asks.

    `beside` is as in `Late`. Without `again` the agent is neither found again nor has it subagents that ask.
    """

    async def opening(asker: Asker, start: Start) -> Session:
        return await agent.open(asker, replace(start, cwd=str(home.project)))

    async def kill(stage: Stage) -> None:
        assert stage.session is not None
        os.kill(cast(Running, stage.session).pid, signal.SIGKILL)

    async def found_again(stage: Stage) -> None:
        assert stage.session is not None
        if before_leaving is not None:
            await before_leaving((await stage.asks())[0])
        await stage.session.leave()
        cut = Cut(handle=stage.session.handle, prompt="SCENARIO:one", asks=tuple(await stage.asks()))
        stage.session = await opening(stage.broker, replace(stage.start, cut=cut))
        stage.tasks.create_task(stage.session.go_on())

    async def subagent(stage: Stage) -> None:
        await stage.prompt("SCENARIO:parent")

    return AgentDriver(
        open=opening,
        one="SCENARIO:one",
        two="SCENARIO:two",
        malformed="SCENARIO:malformed",
        late=Late("SCENARIO:late", home.project, beside),
        subagent=subagent if again else None,
        found_again=found_again if again else None,
        kill=kill,
        cannot=cannot,
    )


# A worker that is killed --------------------------------------------------------------------------------------------

WORKER = """
import asyncio, json, sys
from pathlib import Path
from handraise.agents import AgentSettings, Start
from handraise.broker import Broker
from handraise.plugins import load
from handraise.stores.sqlite import SqliteStore

async def main():
    name, database, program, env, cwd, prompt = sys.argv[1:]
    store = await SqliteStore.open_file(Path(database))
    async with Broker(store) as broker:
        agent = load("agents", name)(AgentSettings(home=Path(cwd), command=(program,), env=json.loads(env)))
        session = await agent.open(broker, Start(session="s1", cwd=cwd))
        turn = asyncio.create_task(session.prompt(prompt))
        async for event in broker.events(after=0):
            print(json.dumps({"pid": session.pid, "handle": dict(session.handle), "ask": event.ask.id}), flush=True)
            await turn

asyncio.run(main())
"""


async def killed_while_asking(name: str, *, database: Path, program: Path, home: Home, prompt: str) -> dict[str, Any]:
    """What was under way in a worker of its own that was killed in the middle of it: `handle` and `ask`.

    Returns once the agent is gone too.
    """
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", WORKER, name, str(database), str(program), json.dumps(home.env), str(home.project), prompt),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert worker.stdout is not None
        async with asyncio.timeout(PATIENCE):
            said: dict[str, Any] = json.loads(await worker.stdout.readline())
            await written_down(home, said["ask"])
    finally:
        worker.kill()
        await worker.communicate()
    async with asyncio.timeout(PATIENCE):
        while is_alive(said["pid"]):  # it is nobody's child here, so nothing tells us
            await asyncio.sleep(0.02)
    return said


async def answered_and_taken_up(
    agent: Opening[Running], start: Start, answer: Answer, *, database: Path, said: Mapping[str, Any], prompt: str
) -> Reply | None:
    """Answer what the killed worker left, and let the next one go on with it. Its answer has to be taken."""
    store = await SqliteStore.open_file(database)
    async with Broker(store) as broker:
        await broker.answer(said["ask"], answer)
        cut = Cut(handle=said["handle"], prompt=prompt, asks=(await broker.get(said["ask"]),))
        async with opened(agent, broker, replace(start, cut=cut)) as session:
            reply = await session.go_on()
        assert (await taken(broker, said["ask"])).delivery_error is None
        assert len(await asks(broker)) == 1
    await store.close()
    return reply
