"""The desk is killed with SIGKILL again and again while fifty agents ask and people answer."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from handraise.asks import Answer, Ask, Option, Origin, Question
from handraise.client import Client
from handraise.config import Settings
from handraise.errors import AlreadyAnswered
from handraise.events import Asked

pytestmark = pytest.mark.slow

ASKERS = 50
KILLS = 12
OPTIONS = ("SQLite", "PostgreSQL", "None")


class KilledDesk:
    """A desk in a process of its own, on one port, that can be shot and started again."""

    def __init__(self, home: Path, *, database: str) -> None:
        self.settings = Settings(home=home, database=database)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handraise", "serve", "--port", str(self.port)),
            env={
                **os.environ,
                "HANDRAISE_HOME": str(self.settings.home),
                "HANDRAISE_DATABASE": self.settings.database,
            },
            stdout=asyncio.subprocess.PIPE,
        )
        assert self.process.stdout is not None
        ready = await asyncio.wait_for(self.process.stdout.readline(), 20)
        assert ready, "the desk did not start"

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait()


async def read(database: str, sql: str) -> list[tuple[Any, ...]]:
    """What the database holds, read without the desk and before anybody could repair it by asking again."""
    if database.startswith("sqlite:"):
        with closing(sqlite3.connect(database.removeprefix("sqlite:///"))) as file:
            return file.execute(sql).fetchall()
    address, _, schema = database.partition("?schema=")
    connection = await asyncpg.connect(address, server_settings={"search_path": schema})
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def stored_answers(database: str) -> dict[str, str | None]:
    rows = await read(database, "select id, answer from asks")
    return {id: None if answer is None else json.loads(answer)["answers"][0][0] for id, answer in rows}


def a_question(id: str, *, session: str) -> Ask:
    question = Question("Which database?", tuple(Option(label) for label in OPTIONS), header="Storage")
    return Ask(id=id, questions=(question,), origin=Origin(agent="chaos", session=session))


@pytest.fixture
async def desk(tmp_path: Path, lasting_database: str) -> AsyncIterator[KilledDesk]:
    desk = KilledDesk(tmp_path, database=lasting_database)
    await desk.start()
    yield desk
    await desk.kill()


async def test_nothing_acknowledged_is_lost_when_the_desk_is_killed_under_load(
    desk: KilledDesk, lasting_database: str
) -> None:
    raised: set[str] = set()
    accepted: dict[str, str] = {}
    woken: dict[str, str | None] = {}
    stop = asyncio.Event()
    chance = random.Random(4263)

    async def ask_until_stopped(client: Client, asker: int) -> None:
        turn = 0
        while not stop.is_set():
            ask = a_question(f"chaos-{asker}-{turn}", session=f"session-{asker}")
            await client.open(ask)
            raised.add(ask.id)
            woken[ask.id] = (await client.ask(ask)).value
            turn += 1

    async def answer_everything(client: Client, asked: asyncio.Queue[str], person: str) -> None:
        while True:
            id = await asked.get()
            said = Answer(answers=((chance.choice(OPTIONS),),), by=person)
            try:
                settled = await client.answer(id, said)
            except AlreadyAnswered as lost:
                value = lost.fields["answer"]["answers"][0][0]
            else:
                assert settled.answer is not None
                value = settled.answer.value
            assert accepted.setdefault(id, value) == value, f"{id} was acknowledged with two answers"

    async def hear(client: Client, queues: list[asyncio.Queue[str]]) -> None:
        async for event in client.events(after=0):
            if isinstance(event, Asked):
                for queue in chance.sample(queues, 2):  # two people race for every ask
                    queue.put_nowait(event.ask.id)

    async with Client(settings=desk.settings) as client, asyncio.TaskGroup() as people:
        await client.call("GET", "/healthz")
        queues: list[asyncio.Queue[str]] = [asyncio.Queue() for _ in range(ASKERS)]
        serving = [people.create_task(hear(client, queues))]
        serving += [
            people.create_task(answer_everything(client, queue, f"person-{n}")) for n, queue in enumerate(queues)
        ]
        async with asyncio.TaskGroup() as agents:
            for asker in range(ASKERS):
                agents.create_task(ask_until_stopped(client, asker))
            for _ in range(KILLS):
                before = len(woken)
                async with asyncio.timeout(30):
                    while len(woken) < before + chance.randrange(1, 200):
                        await asyncio.sleep(0.002)
                await desk.kill()
                stored = await stored_answers(lasting_database)
                assert raised <= stored.keys(), "an acknowledged ask was lost"
                assert {id: stored[id] for id in accepted} == accepted, "an acknowledged answer was lost or replaced"
                await desk.start()
            stop.set()
        for task in serving:
            task.cancel()
    await desk.kill()

    assert len(woken) > ASKERS, "too little happened to prove anything"
    assert woken.keys() == raised, "an agent was left waiting"
    stored = await stored_answers(lasting_database)
    told = Counter(await read(lasting_database, "select asks.id, type from events join asks on asks.seq = events.ask"))
    assert {id: stored[id] for id in woken} == woken, "an agent was told something else than the desk remembers"
    for id in raised:
        assert (told[id, "asked"], told[id, "answered"]) == (1, 1), f"{id} was asked or answered twice"
