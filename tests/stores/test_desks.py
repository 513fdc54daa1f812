"""Several desks on one PostgreSQL database: each tells what happens at the others, and losing one loses nothing."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx2
import pytest

from handraise.app import open_store
from handraise.asks import Answer, Ask, Option, Origin, Question
from handraise.client import Client
from handraise.config import Settings
from handraise.errors import AlreadyAnswered
from handraise.events import Asked
from handraise.stores import Query
from handraise.testing.postgres import PostgresServer, postgres_server
from tests.helpers.serving import (
    PATIENCE,
    START,
    DeskProcess,
    Listener,
    Served,
    a_body,
    a_client,
    eventually,
    listening,
    path_of,
    refused,
    serving,
    told,
)

pytestmark = pytest.mark.slow

TOKEN = "hr_for-every-desk-of-this-database"
WAIT = {"wait": "30"}
RACES = 1000
AT_ONCE = 50
EVERYTHING = 1_000_000  # more than any test here writes


class Told(NamedTuple):
    """What a stream or the store tells of an event."""

    cursor: int
    type: str
    ask: str


class Pair(NamedTuple):
    """Two desks in this process on one database, each with a home and connections of its own."""

    a: Served
    b: Served


@pytest.fixture
async def pair(tmp_path: Path, new_database: Callable[[], str]) -> AsyncIterator[Pair]:
    database = new_database()
    async with serving(tmp_path / "a", database=database) as a, serving(tmp_path / "b", database=database) as b:
        yield Pair(a, b)


@asynccontextmanager
async def two_processes(folder: Path, *, database: str) -> AsyncIterator[tuple[DeskProcess, DeskProcess]]:
    """Two `handraise serve` that start at the same time. Both take TOKEN."""
    shared = {"HANDRAISE_DATABASE": database, "HANDRAISE_TOKEN": TOKEN}
    a, b = (DeskProcess(folder / name, **shared) for name in "ab")
    async with AsyncExitStack() as stack:
        await asyncio.gather(*(stack.enter_async_context(desk) for desk in (a, b)))
        yield a, b


async def stored_events(database: str) -> list[Told]:
    """Everything that was told, as the database holds it."""
    store = await open_store(database)
    try:
        events = await store.history(Query(), after=0, limit=EVERYTHING)
    finally:
        await store.close()
    return [Told(event.cursor, event.type, event.ask.id) for event in events]


async def stored_answers(database: str) -> dict[str, str | None]:
    """What was said to each ask, as the database holds it."""
    store = await open_store(database)
    try:
        found = [stored.ask() for stored in await store.find(Query(), limit=EVERYTHING)]
    finally:
        await store.close()
    return {ask.id: None if ask.answer is None else ask.answer.value for ask in found}


async def frames(listener: Listener, count: int) -> list[Told]:
    found: list[Told] = []
    for _ in range(count):
        frame = await listener.frame()
        found.append(Told(int(frame.id or 0), frame.event, ask_of(frame.data)))
    return found


def ask_of(data: str) -> str:
    return str(json.loads(data)["ask"]["id"])


# What one desk does, the other tells ------------------------------------------------------------------------


async def test_whatever_happens_at_one_desk_is_told_at_both_once_and_in_the_same_order(pair: Pair) -> None:
    a, b = pair
    async with listening(a.http) as at_a, listening(b.http) as at_b:
        await a.ask(id="q1")
        await b.ask(id="q2", question_timeout=60)
        await b.answer("q1", "SQLite")
        await told(a.http.post(path_of("q2", "keep-waiting")), 200)
        await told(a.http.post("/v1/deliveries", json={"deliveries": [{"id": "q1"}]}), 200)
        await told(a.http.post(path_of("q2", "withdraw")), 200)
        await told(b.http.post("/v1/asks", json=a_body(id="q2", question_timeout=60)), 200)
        await told(a.http.post(path_of("q2", "reject")), 200)
        expected = [
            *(("asked", "q1"), ("asked", "q2"), ("answered", "q1"), ("deadline_moved", "q2"), ("delivered", "q1")),
            *(("withdrawn", "q2"), ("asked", "q2"), ("rejected", "q2")),
        ]
        heard_a, heard_b = await frames(at_a, len(expected)), await frames(at_b, len(expected))
    assert heard_a == heard_b
    assert [(type, id) for _, type, id in heard_a] == expected
    assert [cursor for cursor, _, _ in heard_a] == list(range(1, len(expected) + 1))


@pytest.mark.parametrize("by", ["asking", "reading"])
@pytest.mark.parametrize(
    ("action", "body", "state"),
    [
        ("answer", {"answers": [["Postgres"]]}, "answered"),
        ("reject", {"reason": "not now"}, "rejected"),
        ("withdraw", {"reason": "moved on"}, "withdrawn"),
    ],
)
async def test_what_settles_an_ask_at_one_desk_wakes_who_waits_at_the_other(
    pair: Pair, by: str, action: str, body: dict[str, Any], state: str
) -> None:
    waiting, acting = pair
    await acting.ask(id="q1")
    call = asyncio.create_task(
        waiting.http.post("/v1/asks", params=WAIT, json=a_body(id="q1"))
        if by == "asking"
        else waiting.http.get(path_of("q1"), params=WAIT)
    )
    await eventually(lambda: waiting.broker.waits == 1)
    await waiting.ask(id="q2")  # written behind: by now the first call has joined, and opens nothing again
    settled = await told(acting.http.post(path_of("q1", action), json=body), 200)
    async with asyncio.timeout(PATIENCE):
        woken = await told(call, 200)
    assert (woken["state"], woken["answer"]) == (state, settled["answer"])


async def test_an_answer_written_to_who_waits_at_one_desk_is_delivered_at_both(pair: Pair) -> None:
    a, b = pair
    async with listening(a.http) as at_a, listening(b.http) as at_b:
        call = asyncio.create_task(a.http.post("/v1/asks", params=WAIT, json=a_body(id="q1")))
        await frames(at_b, 1)
        await b.answer("q1", "SQLite")
        await told(call, 201)
        assert [type for _, type, _ in await frames(at_b, 2)] == ["answered", "delivered"]
        assert [type for _, type, _ in await frames(at_a, 3)] == ["asked", "answered", "delivered"]
    for desk in (a, b):
        assert (await desk.get("q1"))["delivered_at"] is not None


async def test_the_same_id_at_two_desks_at_once_is_one_ask(pair: Pair) -> None:
    for number in range(20):
        body = a_body(id=f"q{number}")
        replies = await asyncio.gather(*(desk.http.post("/v1/asks", json=body) for desk in pair for _ in range(3)))
        assert sorted(reply.status_code for reply in replies) == [200] * 5 + [201]
        numbered = await asyncio.gather(
            *(desk.http.post("/v1/asks", json={**body, "id": "hash", "ordinal": True}) for desk in pair)
        )
        assert {reply.json()["id"] for reply in numbered} == {"hash#1"}
    other = {"questions": [{"question": "Something else?"}]}
    await refused(pair.b.http.post("/v1/asks", json=a_body(id="q0", **other)), 409, "ask_differs")


# Races ------------------------------------------------------------------------------------------------------


async def test_of_two_people_at_two_desks_exactly_one_wins_and_the_other_hears_who(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    database = new_database()
    said = {"ana": "SQLite", "ben": "Postgres"}
    winners: dict[str, str] = {}
    asked = {f"race-{number}": asyncio.Barrier(3) for number in range(RACES)}
    answered: dict[str, list[str]] = {"a": [], "b": []}

    async def listen(name: str, listener: Listener) -> None:
        async with asyncio.TaskGroup() as telling:
            while len(answered[name]) < RACES:
                [heard] = await frames(listener, 1)
                listener.raw = b""  # it would grow to megabytes, copied with every event
                if heard.type == "answered":
                    answered[name].append(heard.ask)
                elif heard.type == "asked":
                    telling.create_task(asked[heard.ask].wait())

    async def say(client: httpx2.AsyncClient, id: str, person: str) -> httpx2.Response:
        return await client.post(path_of(id, "answer"), json={"answers": [[said[person]]], "by": person})

    async def race(id: str, here: httpx2.AsyncClient, there: httpx2.AsyncClient) -> None:
        waiting = asyncio.create_task(here.post("/v1/asks", params=WAIT, json=a_body(id=id)))
        await asked[id].wait()  # until both streams told it
        ana, ben = await asyncio.gather(say(here, id, "ana"), say(there, id, "ben"))
        assert sorted((ana.status_code, ben.status_code)) == [200, 409], (ana.text, ben.text)
        won, lost, winner = (ana, ben, "ana") if ana.status_code == 200 else (ben, ana, "ben")
        winners[id] = said[winner]
        assert (won.json()["answer"]["by"], won.json()["answer"]["answers"]) == (winner, [[said[winner]]])
        assert lost.json()["error"] == "already_answered"
        assert (lost.json()["by"], lost.json()["answer"]["answers"]) == (winner, [[said[winner]]])
        woken = await told(waiting, 201)
        assert woken["answer"] == won.json()["answer"]

    async def race_in_turn(numbers: Iterable[int], here: httpx2.AsyncClient, there: httpx2.AsyncClient) -> None:
        for number in numbers:
            await race(f"race-{number}", here, there)

    async with (
        two_processes(tmp_path, database=database) as (a, b),
        a_client(a.url, TOKEN) as at_a,
        a_client(b.url, TOKEN) as at_b,
        listening(at_a) as stream_a,
        listening(at_b) as stream_b,
        asyncio.timeout(120),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(listen("a", stream_a))
        tasks.create_task(listen("b", stream_b))
        for lane in range(AT_ONCE):
            here, there = (at_a, at_b) if lane % 2 else (at_b, at_a)
            tasks.create_task(race_in_turn(range(lane, RACES, AT_ONCE), here, there))
    assert len(winners) == RACES
    assert len(set(winners.values())) == 2, "one desk always won, which is no race"
    for name in "ab":
        assert set(answered[name]) == winners.keys(), f"the stream of {name} told an answer twice"
    assert {id: value for id, value in (await stored_answers(database)).items() if id in winners} == winners
    assert Counter(type for _, type, _ in await stored_events(database))["answered"] == RACES


# Deadlines --------------------------------------------------------------------------------------------------


async def test_a_deadline_passes_once_though_two_desks_watch_it(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    database = new_database()
    asks = [f"q{number}" for number in range(100)]
    async with (
        serving(tmp_path / "a", database=database) as a,
        serving(tmp_path / "b", database=database) as b,
        listening(b.http) as listener,
    ):
        await asyncio.gather(
            *((a if number % 2 else b).ask(id=id, question_timeout=0.5) for number, id in enumerate(asks))
        )
        await frames(listener, 2 * len(asks))
    counts = Counter((type, id) for _, type, id in await stored_events(database))
    assert counts == Counter([(type, id) for type in ("asked", "answered") for id in asks])


async def test_the_deadlines_of_a_desk_that_was_killed_pass_at_another(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    database = new_database()
    asks = [f"q{number}" for number in range(20)]
    async with two_processes(tmp_path, database=database) as (a, b), b.client() as at_b:
        async with listening(at_b) as listener:
            async with a.client() as at_a:
                body = a_body(question_timeout=2)
                await asyncio.gather(*(told(at_a.post("/v1/asks", json={**body, "id": id}), 201) for id in asks))
            await a.kill()
            assert [type for _, type, _ in await frames(listener, len(asks))] == ["asked"] * len(asks)
            passed = await frames(listener, len(asks))
        assert sorted((type, id) for _, type, id in passed) == sorted(("answered", id) for id in asks)
        await a.start()  # which finds nothing left to do
        for id in asks:
            assert (await told(at_b.get(path_of(id)), 200))["answer"]["by"] == "policy:timeout"
        assert await a.stop() == 0
    assert Counter(type for _, type, _ in await stored_events(database)) == {"asked": 20, "answered": 20}


async def test_a_deadline_that_was_moved_at_one_desk_is_moved_at_the_other(pair: Pair) -> None:
    a, b = pair
    async with listening(b.http) as listener:
        await a.ask(id="moved", question_timeout=1)
        await told(b.http.post(path_of("moved", "keep-waiting")), 200)
        await a.ask(id="marker", question_timeout=1.1)
        heard = [(type, id) for _, type, id in await frames(listener, 5)]
    assert heard[:3] == [("asked", "moved"), ("deadline_moved", "moved"), ("asked", "marker")]
    assert heard[3:] == [("answered", "marker"), ("answered", "moved")]


# Tokens and homes -------------------------------------------------------------------------------------------


async def eventually_status(call: Callable[[], Awaitable[httpx2.Response]], status: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await call()).status_code != status:
            await asyncio.sleep(0.01)


async def test_a_token_made_or_revoked_at_one_desk_is_known_at_the_other(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    async with two_processes(tmp_path, database=new_database()) as (a, b), a.client() as at_a, b.client() as at_b:
        for _ in range(3):
            made = await told(at_a.post("/v1/tokens", json={"name": "ana", "scopes": ["answer"]}), 201)
            async with a_client(b.url, made["token"]) as ana:
                await eventually_status(lambda ana=ana: ana.get("/v1/asks"), 200)  # type: ignore[misc]
                async with listening(ana) as hers, listening(at_b) as ours:
                    await told(at_a.post("/v1/asks", json=a_body()), 201)
                    await hers.frame()
                    assert (await at_a.delete("/v1/tokens/ana")).status_code == 204
                    await eventually_status(lambda ana=ana: ana.get("/v1/asks"), 401)  # type: ignore[misc]
                    await told(at_a.post("/v1/asks", json=a_body(origin={"agent": "after", "session": "s"})), 201)
                    await frames(ours, 2)
                    with pytest.raises(StopAsyncIteration):
                        await hers.frame()
                assert b"after" not in hers.raw


async def test_a_browser_that_signed_in_at_one_desk_is_known_at_the_other(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    async with two_processes(tmp_path, database=new_database()) as (a, b), a.client() as at_a:
        async with a_client(a.url, None) as browser:
            done = await browser.post((await told(at_a.post("/v1/signin"), 201))["url"])
            (cookie,) = browser.cookies.jar
        [secret] = re.findall(r'data-secret="([\w-]+)"', done.text)
        port = b.url.rpartition(":")[2]
        halves = {"Cookie": f"handraise-{port}={cookie.value}", "X-Handraise-Session": secret}
        async with a_client(b.url, None, **halves) as there:
            await eventually_status(lambda: there.get("/v1/asks"), 200)
            [name] = [name for name in await names_of(at_a) if name.startswith("browser-")]
            assert (await at_a.delete(f"/v1/tokens/{name}")).status_code == 204
            await eventually_status(lambda: there.get("/v1/asks"), 401)


async def names_of(client: httpx2.AsyncClient) -> list[str]:
    return [token["name"] for token in (await told(client.get("/v1/tokens"), 200))["tokens"]]


async def test_each_home_keeps_its_admin_token(tmp_path: Path, new_database: Callable[[], str]) -> None:
    async with two_processes(tmp_path, database=new_database()) as (a, b):
        tokens = [a.token, b.token]
        await admin_at_both(a, b, *tokens)
        assert [await a.stop(), await b.stop()] == [0, 0]
        await asyncio.gather(a.start(), b.start())
        assert [a.token, b.token] == tokens
        await admin_at_both(a, b, *tokens)


async def admin_at_both(a: DeskProcess, b: DeskProcess, *tokens: str) -> None:
    for url in (a.url, b.url):
        for token in tokens:
            async with a_client(url, token) as admin:
                await eventually_status(lambda admin=admin: admin.get("/v1/tokens"), 200)  # type: ignore[misc]
        async with a_client(url, tokens[0]) as admin:
            found = (await told(admin.get("/v1/tokens"), 200))["tokens"]
            assert [entry["scopes"] for entry in found] == [["admin"], ["admin"]]


# A desk is lost ---------------------------------------------------------------------------------------------


async def test_the_asks_of_a_desk_that_was_killed_are_joined_and_answered_at_another(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    async with two_processes(tmp_path, database=new_database()) as (a, b), b.client() as at_b:
        async with a.client() as at_a:
            for id in ("q1", "q2"):
                await told(at_a.post("/v1/asks", json=a_body(id=id)), 201)
            parked = asyncio.create_task(at_a.post("/v1/asks", params=WAIT, json=a_body(id="q1")))
            await told(at_a.get(path_of("q2")), 200)
            await a.kill()
            with pytest.raises(httpx2.TransportError):
                await parked
        waiting = await told(at_b.get("/v1/asks", params={"state": "asked"}), 200)
        assert [ask["id"] for ask in waiting["asks"]] == ["q1", "q2"]
        joined = asyncio.create_task(at_b.post("/v1/asks", params=WAIT, json=a_body(id="q1")))
        for id in ("q1", "q2"):
            await told(at_b.post(path_of(id, "answer"), json={"answers": [["SQLite"]]}), 200)
        assert (await told(joined, 200))["answer"]["answers"] == [["SQLite"]]
        again = await told(at_b.post("/v1/asks", json=a_body(id="q2")), 200)
        assert again["answer"]["answers"] == [["SQLite"]]


class Wire:
    """Between a desk and its database, and can be cut. Use as a context."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._is_cut = False
        self._ends: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = int(self._listening.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        self.cut()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._listening.wait_closed()

    def cut(self) -> None:
        self._is_cut = True
        for end in self._ends:
            end.transport.abort()

    def mend(self) -> None:
        self._is_cut = False

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        if self._is_cut:
            writer.transport.abort()
            return
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        self._ends.add(to_server)
        self._pumps |= {asyncio.create_task(pump(reader, to_server)), asyncio.create_task(pump(from_server, writer))}


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    writer.transport.abort()


async def test_a_desk_cut_off_from_the_database_falls_silent_and_catches_up(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    schema = "cut_off"
    async with (
        Wire(postgres.port) as wire,
        serving(tmp_path / "a", database=postgres.address(schema=schema)) as a,
        serving(
            tmp_path / "b", database=postgres.address(schema=schema).replace(f":{postgres.port}/", f":{wire.port}/")
        ) as b,
        listening(b.http) as listener,
    ):
        await a.ask(id="before")
        assert await frames(listener, 1) == [Told(1, "asked", "before")]
        wire.cut()
        async with asyncio.timeout(START):
            while "listening" not in b.broker.store.troubles:
                await asyncio.sleep(0.01)
        await a.ask(id="q1")
        b.broker.feeds.poke()
        wire.mend()
        assert await frames(listener, 1) == [Told(2, "asked", "q1")]
        assert b"heartbeat" not in listener.raw, "who listens here must notice that nothing is heard"
        await eventually(lambda: "listening" not in b.broker.store.troubles)
        b.broker.feeds.poke()
        await listener.until(b": heartbeat")
        await b.answer("q1", "SQLite")
        assert await frames(listener, 1) == [Told(3, "answered", "q1")]


# Everything at once -----------------------------------------------------------------------------------------

ASKERS = 50
OPTIONS = ("SQLite", "PostgreSQL", "None")
LEFT_OPEN = "left-"


def a_question(id: str, *, session: str) -> Ask:
    question = Question("Which database?", tuple(Option(label) for label in OPTIONS), header="Storage")
    return Ask(id=id, questions=(question,), origin=Origin(agent="chaos", session=session))


class Crowd:
    """Fifty agents that ask and fifty people who answer, and everything they were told."""

    def __init__(self, urls: list[str], *, settings: Settings, chance: random.Random) -> None:
        self.raised: set[str] = set()  # acknowledged asks
        self.accepted: dict[str, str | None] = {}  # acknowledged answers
        self.woken: dict[str, str | None] = {}  # what agents got
        self.heard: list[list[Told]] = [[], []]  # by two who listen, one who begins at each desk
        self.taken: list[set[str]] = [set(), set()]  # asks whose delivery they heard of
        self.stop = asyncio.Event()
        self._kept: dict[str, asyncio.Event] = {url: asyncio.Event() for url in urls}  # set when an ask was taken there
        self._chance = chance
        self._orders = (urls, urls[::-1])
        self._settings = settings
        self._queues: list[asyncio.Queue[str]] = [asyncio.Queue() for _ in range(ASKERS)]

    def clients(self) -> list[Client]:
        return [Client(order, settings=self._settings) for order in self._orders]

    async def ask_until_stopped(self, client: Client, asker: int) -> None:
        turn = 0
        while not self.stop.is_set():
            ask, left = (
                a_question(f"{name}{asker}-{turn}", session=f"session-{asker}") for name in ("chaos-", LEFT_OPEN)
            )
            if turn % 3 == 0:
                await client.open(left)
                self.raised.add(left.id)
                self._kept[client.url].set()
            self.woken[ask.id] = (await client.ask(ask)).value
            client.delivered(ask.id)
            self.raised.add(ask.id)
            turn += 1

    async def answer_everything(self, client: Client, person: int) -> None:
        while True:
            id = await self._queues[person].get()
            said = Answer(answers=((self._chance.choice(OPTIONS),),), by=f"person-{person}")
            try:
                settled = await client.answer(id, said)
            except AlreadyAnswered as lost:
                value = lost.fields["answer"]["answers"][0][0]
            else:
                assert settled.answer is not None
                value = settled.answer.value
            assert self.accepted.setdefault(id, value) == value, f"{id} was acknowledged with two answers"

    async def hear(self, client: Client, number: int) -> None:
        async for event in client.events(after=0):
            self.heard[number].append(Told(event.cursor, event.type, event.ask.id))
            if event.type == "delivered":
                self.taken[number].add(event.ask.id)
            if number == 0 and isinstance(event, Asked) and not event.ask.id.startswith(LEFT_OPEN):
                for queue in self._chance.sample(self._queues, 2):  # two people race for every ask
                    queue.put_nowait(event.ask.id)

    async def kept_one_more(self, desk: DeskProcess) -> None:
        """Until this desk acknowledged an ask that nobody will repeat: it must have it by now."""
        self._kept[desk.url].clear()
        async with asyncio.timeout(START):
            await self._kept[desk.url].wait()

    async def some_more(self) -> None:
        """Until a good number of agents got their answer from now on."""
        enough = len(self.woken) + self._chance.randrange(ASKERS // 2, ASKERS)
        async with asyncio.timeout(START):
            while len(self.woken) < enough:
                await asyncio.sleep(0.002)

    async def check(self, database: str) -> None:
        """What was acknowledged until now is what the database holds, and what agents got."""
        raised, accepted, woken = set(self.raised), dict(self.accepted), dict(self.woken)
        # On a loop of its own: on the crowd's every step of it would queue behind a hundred others.
        stored = await asyncio.to_thread(lambda: asyncio.run(stored_answers(database)))
        assert raised <= stored.keys(), "an acknowledged ask was lost"
        assert {id: stored[id] for id in accepted} == accepted, "an acknowledged answer was lost or replaced"
        assert {id: stored[id] for id in woken} == woken, "an agent was told something else than the database holds"


async def test_nothing_is_lost_when_a_desk_is_killed_and_the_database_restarts_under_load(tmp_path: Path) -> None:
    with postgres_server() as server:
        database = server.address()
        async with two_processes(tmp_path, database=database) as (a, b):
            crowd = Crowd(
                [a.url, b.url],
                settings=Settings(home=tmp_path / "crowd", token=TOKEN),
                chance=random.Random(4263),
            )
            async with AsyncExitStack() as stack, asyncio.TaskGroup() as people:
                listeners = [await stack.enter_async_context(client) for client in crowd.clients()]
                agents = [await stack.enter_async_context(client) for client in crowd.clients()]
                for client in (*listeners, *agents):
                    await client.cursor()  # from here on a desk was reached
                serving = [people.create_task(crowd.hear(client, n)) for n, client in enumerate(listeners)]
                serving += [people.create_task(crowd.answer_everything(listeners[n % 2], n)) for n in range(ASKERS)]
                async with asyncio.timeout(60), asyncio.TaskGroup() as asking:
                    for n in range(ASKERS):
                        asking.create_task(crowd.ask_until_stopped(agents[n % 2], n))
                    await crowd.some_more()
                    await crowd.kept_one_more(a)
                    await a.kill()
                    await crowd.some_more()
                    await asyncio.to_thread(server.restart, mode="immediate")
                    await crowd.check(database)
                    await crowd.some_more()
                    await a.start()
                    await asyncio.to_thread(server.restart, mode="fast")
                    await crowd.check(database)
                    await crowd.some_more()
                    await crowd.kept_one_more(b)
                    await b.kill()
                    await crowd.some_more()
                    crowd.stop.set()
                await eventually(lambda: all(crowd.woken.keys() <= taken for taken in crowd.taken))
                for task in serving:
                    task.cancel()
            await crowd.check(database)
            events = await stored_events(database)
            async with a.client() as person:
                said = {"answers": [["None"]]}
                answers = [person.post(path_of(id, "answer"), json=said) for id in crowd.raised - crowd.woken.keys()]
                assert {response.status_code for response in await asyncio.gather(*answers)} == {200}
    assert crowd.raised - crowd.woken.keys() == {id for id in crowd.raised if id.startswith(LEFT_OPEN)}
    assert len(crowd.woken) > 2 * ASKERS, "too little happened to prove anything"
    counts = Counter((type, id) for _, type, id in events)
    for id in crowd.raised:
        times = 0 if id.startswith(LEFT_OPEN) else 1
        assert [counts[type, id] for type in ("asked", "answered", "delivered")] == [1, times, times], id
    for heard in crowd.heard:
        assert heard == events, "a stream missed an event or told one twice"
