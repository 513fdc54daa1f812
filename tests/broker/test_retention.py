"""What is too old goes, a little at a time; whoever stood before it is told so once, and goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from handraise import Desk
from handraise.agents import Message
from handraise.app import open_store
from handraise.asks import Answer, Ask, Option, Origin, Question
from handraise.broker import Broker
from handraise.broker.pruning import MOST_AT_ONCE
from handraise.channels.terminal import Terminal
from handraise.chat.transcript import Transcript
from handraise.client import Client
from handraise.config import Settings, load
from handraise.errors import AskNotFound, CursorTooOld, SettingsError
from handraise.server.openapi import document
from handraise.stores import Change, Query, Store
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.tables.sessions import NewSession, Sessions
from handraise.testing import FakeClock, an_ask
from handraise.wire import StoredEvent
from tests.helpers.serving import PATIENCE, Served, eventually, listening, path_of, serving, told

DAY = 24 * 60 * 60
KEEP = timedelta(days=30)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
FAR = 2**52  # milliseconds; everything was told before
SQLITE, POSTGRES = Answer(answers=(("SQLite",),), by="ana"), Answer(answers=(("Postgres",),), by="ana")


async def history(store: Store) -> list[StoredEvent]:
    return await store.history(Query(), after=0, limit=10_000)


async def kept(store: Store) -> list[str]:
    return [stored.id for stored in await store.find(Query(), limit=1000)]


async def settle(broker: Broker, *ids: str) -> None:
    for id in ids:
        await broker.open(an_ask(id=id))
        await broker.answer(id, SQLITE)


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await happened():
            await asyncio.sleep(0.002)


async def days_pass(clock: FakeClock, store: Store, *, days: float, through: int) -> None:
    """Let time go by until a desk that keeps KEEP has pruned up to this cursor."""
    await clock.advance(days * DAY)
    async with asyncio.timeout(PATIENCE):
        while await store.pruned() < through:
            await clock.advance(60)  # the desk looks once a minute
            await asyncio.sleep(0.002)
    assert await store.pruned() == through


# What goes and what stays -----------------------------------------------------------------------------------


async def test_settled_asks_and_their_events_go_after_the_time_and_open_ones_never(store: Store) -> None:
    clock = FakeClock()
    async with Broker(store, clock=clock, keep=KEEP, taken_within=None) as broker:
        await settle(broker, "answered")
        await broker.open(an_ask(id="open"))
        await broker.open(an_ask(id="rejected"))
        await broker.reject("rejected", reason="no")
        await broker.open(an_ask(id="withdrawn"))
        await broker.withdraw("withdrawn")
        assert await store.cursor() == 7
        await clock.advance(20 * DAY)
        await settle(broker, "young")
        await days_pass(clock, store, days=11, through=7)
        assert await kept(store) == ["open", "young"]
        assert [(event.cursor, event.type, event.ask.id) for event in await history(store)] == [
            (8, "asked", "young"),
            (9, "answered", "young"),
        ]
        for id in ("answered", "rejected", "withdrawn"):
            with pytest.raises(AskNotFound):
                await broker.get(id)
        await days_pass(clock, store, days=400, through=9)
        assert (await kept(store), await history(store)) == (["open"], [])

        waiting = asyncio.create_task(broker.ask(an_ask(id="open")))
        await eventually(lambda: broker.waits == 1)
        await broker.answer("open", POSTGRES)
        assert (await waiting).answers == POSTGRES.answers
        assert [(event.cursor, event.type) for event in await history(store)] == [(10, "answered")]
        await days_pass(clock, store, days=31, through=10)
        assert (await kept(store), await store.cursor()) == ([], 10)


async def test_a_desk_that_was_not_told_how_long_keeps_everything(store: Store) -> None:
    clock = FakeClock()
    async with Broker(store, clock=clock, taken_within=None) as broker:
        await settle(broker, "old")
        await clock.advance(10_000 * DAY)
        assert (await kept(store), len(await history(store)), await store.pruned()) == (["old"], 2, 0)


@pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
async def test_the_desk_that_is_served_keeps_what_its_settings_say(tmp_path: Path, database: str) -> None:
    store = await open_store(database)
    async with Broker(store, clock=FakeClock(start=LONG_AGO), taken_within=None) as broker:
        await settle(broker, "old")
    await store.close()
    async with serving(tmp_path, database=database, keep=KEEP) as desk:
        await desk.ask(id="new")
        await until(lambda: _is(desk.broker.store.pruned, 2))
        assert await kept(desk.broker.store) == ["new"]
        assert (await desk.http.get(path_of("old"))).status_code == 404


async def _is(read: Callable[[], Awaitable[int]], value: int) -> bool:
    return await read() == value


async def test_what_is_settled_in_the_very_commit_of_a_pruning_is_kept(store: Store) -> None:
    clock = FakeClock()
    async with Broker(store, clock=clock, taken_within=None) as broker:
        await broker.open(an_ask(id="patient"))
        await clock.advance(40 * DAY)
        now = clock.now()
        answered, gone = await asyncio.gather(  # both are handed in before the store begins
            broker.answer("patient", SQLITE), store.prune(before=now, limit=100)
        )
        assert (answered.state, gone) == ("answered", 1)
        assert (await broker.get("patient")).state == "answered"
        assert [(event.type, event.ask.id) for event in await history(store)] == [("answered", "patient")]


async def test_numbers_are_never_given_out_twice_also_where_the_newest_went(database: str) -> None:
    store = await open_store(database)
    async with Broker(store, clock=FakeClock(), taken_within=None) as broker:
        await settle(broker, "a", "b")
        newest = (await broker.stored("b")).seq
    assert await store.prune(before=FAR, limit=100) == 4
    assert (await kept(store), await store.cursor(), await store.pruned()) == ([], 4, 4)
    if MEMORY not in database:
        await store.close()
        store = await open_store(database)
    assert await store.cursor() == 4
    async with Broker(store, clock=FakeClock(), taken_within=None) as broker:
        again = (await broker.open(an_ask(id="a"))).stored
        assert again.seq > newest
    assert [event.cursor for event in await history(store)] == [5]
    await store.close()


async def test_no_settled_ask_is_left_behind_because_it_was_the_newest_once(store: Store) -> None:
    clock = FakeClock()
    async with Broker(store, clock=clock, taken_within=None) as broker:
        await broker.open(an_ask(id="first"))
        await settle(broker, "last")
        await clock.advance(DAY)
        await broker.answer("first", SQLITE)
        await store.prune(before=clock.now(), limit=100)
        assert await kept(store) == ["first"]


async def test_only_as_much_goes_at_once_as_was_said(store: Store) -> None:
    async with Broker(store, clock=FakeClock(), taken_within=None) as broker:
        await settle(broker, "a", "b")
    assert await store.prune(before=FAR, limit=3) == 3
    assert (await store.pruned(), await kept(store)) == (3, ["b"])
    assert await store.prune(before=FAR, limit=3) == 1
    assert await store.prune(before=FAR, limit=3) == 0
    assert (await store.pruned(), await kept(store)) == (4, [])


async def test_a_clock_that_was_set_back_leaves_no_hole(store: Store) -> None:
    """Events go from the front only, so an old one after a young one waits for it."""
    clock = FakeClock()
    async with Broker(store, clock=clock, taken_within=None) as broker:
        await broker.open(an_ask(id="young"))
    yesterday = FakeClock(start=LONG_AGO)
    async with Broker(store, clock=yesterday, taken_within=None) as broker:
        await settle(broker, "old")
    assert await store.prune(before=clock.now(), limit=100) == 0
    assert len(await history(store)) == 3


async def test_many_events_go_in_small_commits_between_which_others_write(store: Store) -> None:
    asks = 2 * MOST_AT_ONCE + 50  # two events each
    async with Broker(store, clock=FakeClock(start=LONG_AGO), taken_within=None) as broker:
        await asyncio.gather(*(broker.open(an_ask(id=f"old {number}")) for number in range(asks)))
        await asyncio.gather(*(broker.answer(f"old {number}", SQLITE) for number in range(asks)))
        await broker.open(an_ask(id="a session, so that nothing else is written below"))
    before = sum(store.commits.values())
    async with Broker(store, clock=FakeClock(), keep=KEEP, taken_within=None) as broker:
        await broker.open(an_ask(id="new"))
        assert await store.pruned() < 2 * asks, "the pruning was over before anybody else could write"
        await until(lambda: _is(store.pruned, 2 * asks + 1))
        assert await kept(store) == ["a session, so that nothing else is written below", "new"]
    prunings = -(-(2 * asks + 1) // MOST_AT_ONCE)
    # The session and the ask are two commits of their own, or one with a pruning each.
    assert prunings <= sum(store.commits.values()) - before <= prunings + 2


# Streams ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database) as running:
        yield running


async def prune(desk: Served, *, events: int = 10_000) -> int:
    await desk.broker.store.prune(before=FAR, limit=events)
    return await desk.broker.store.pruned()


def is_as_documented(data: Any) -> bool:
    schema = {"$ref": "#/components/schemas/Pruned", "components": document()["components"]}
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True).is_valid(data)


async def test_a_stream_from_too_old_a_cursor_is_told_so_once_and_then_everything_that_is_left(desk: Served) -> None:
    await desk.ask(id="a")
    await desk.answer("a", "SQLite")
    await desk.ask(id="b")
    await desk.ask(id="c")
    assert await prune(desk, events=2) == 2
    async with listening(desk.http, last_event_id=1) as stream:
        first = await stream.frame()
        assert (first.event, first.id) == ("pruned", "2")
        data = json.loads(first.data)
        assert is_as_documented(data)
        assert (data["type"], data["through"]) == ("pruned", 2)
        assert "list the asks again" in data["message"]
        assert [(frame.event, frame.id) for frame in (await stream.frame(), await stream.frame())] == [
            ("asked", "3"),
            ("asked", "4"),
        ]
        await desk.answer("b", "SQLite")
        assert [(frame.event, frame.id) for frame in (await stream.frame(),)] == [("answered", "5")]
    for cursor in (2, 3, 5):  # right after it was told, in the middle, at the end
        async with listening(desk.http, last_event_id=cursor) as stream:
            await desk.http.post(path_of("c", "keep-waiting"))
            await desk.ask(id=f"after {cursor}")
            while json.loads((await stream.frame()).data)["ask"]["id"] != f"after {cursor}":
                pass
            assert b"pruned" not in stream.raw


async def test_a_stream_after_which_nothing_is_left_is_told_so_and_stays(desk: Served) -> None:
    await desk.ask(id="a")
    await desk.answer("a", "SQLite")
    assert await prune(desk) == 2
    async with listening(desk.http, last_event_id=1) as stream:
        assert ((await stream.frame()).event, stream.cursor) == ("pruned", "2")
        await desk.ask(id="b")
        assert ((await stream.frame()).event, stream.cursor) == ("asked", "3")


async def test_a_stream_that_is_open_notices_nothing(desk: Served) -> None:
    await desk.ask(id="a")
    async with listening(desk.http) as stream, listening(desk.http, session="elsewhere") as other:
        await desk.answer("a", "SQLite")
        assert (await stream.frame()).event == "answered"
        there = {"agent": "scripted", "session": "elsewhere"}
        await desk.ask(id="b", origin=there)
        for listener in (stream, other):  # from here on both are past what is pruned
            assert ((await listener.frame()).event, listener.cursor) == ("asked", "3")
        assert await prune(desk, events=2) == 2
        await desk.ask(id="c", origin=there)
        for listener in (stream, other):
            assert ((await listener.frame()).event, listener.cursor) == ("asked", "4")
            assert b"pruned" not in listener.raw


async def test_the_beginning_is_what_there_is(desk: Served) -> None:
    await desk.ask(id="a")
    await desk.answer("a", "SQLite")
    await desk.ask(id="b")
    assert await prune(desk, events=2) == 2
    async with listening(desk.http, after=0) as stream:
        assert [(frame.event, frame.id) for frame in (await stream.frame(), await stream.frame())] == [
            ("pruned", "2"),
            ("asked", "3"),
        ]
    async with Client(desk.url, token=desk.token) as client:
        for inbox in (client, desk.broker):
            assert [event.cursor for event in await first(inbox.events(after=0), 1)] == [3]


async def first(events: Any, count: int) -> list[Any]:
    async with asyncio.timeout(PATIENCE), aclosing(events):
        return [await anext(events) for _ in range(count)]


async def test_followers_in_python_are_told_by_an_exception(desk: Served) -> None:
    await desk.ask(id="a")
    await desk.ask(id="b")
    assert await prune(desk) == 2
    async with Client(desk.url, token=desk.token) as client:
        for inbox in (client, desk.broker):
            with pytest.raises(CursorTooOld, match="list the asks again") as too_old:
                await first(inbox.events(after=1), 1)
            assert too_old.value.fields == {"through": 2}
            assert await inbox.cursor() == 2  # where to go on after listing


async def test_what_is_read_while_it_goes_is_told_in_order_and_not_as_missed() -> None:
    class Slow(SqliteStore):
        """Everything goes right after a page of it was read."""

        async def history(self, query: Query, **how: Any) -> list[StoredEvent]:
            page = await super().history(query, **how)
            await self.prune(before=FAR, limit=1000)
            return page

    store = Slow(MEMORY, lock=None)
    store._migrate()
    async with Broker(store, clock=FakeClock(), taken_within=None) as broker:
        await settle(broker, "a", "b")
        feed = broker.feeds.follow(Query(), after=1)
        async with asyncio.timeout(PATIENCE):
            [batch] = await anext(feed.batches())
        assert [event.cursor for event in batch.events] == [2, 3, 4]
        assert batch.pruned is None
        assert await store.pruned() == 4
    await store.close()


async def test_the_streams_of_other_surfaces_go_on_without_a_word(desk: Served) -> None:
    await desk.ask(id="a")
    await desk.answer("a", "SQLite")
    async with listening(desk.http, "/event") as opencode:
        assert await prune(desk) == 2
        async with listening(desk.http, "/v1/sessions/s1/events", last_event_id=1) as sandbox_agent:
            await desk.ask(id="b")
            frame = await sandbox_agent.frame()
            assert (frame.event, json.loads(frame.data)["question_id"]) == ("question.requested", "b")
        assert json.loads((await opencode.frame()).data)["type"] == "server.connected"
        assert json.loads((await opencode.frame()).data)["type"] == "question.asked"
        for stream in (opencode, sandbox_agent):
            assert b"pruned" not in stream.raw


# Followers that were away -----------------------------------------------------------------------------------


class Cable:
    """What a client is connected through, so that it can be pulled out. Use as a context."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._is_in = True
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[Cable]:
        async with await asyncio.start_server(self._carry, "127.0.0.1", 0) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self
            self.pull()

    def pull(self) -> None:
        self._is_in = False
        for writer in self._writers:
            writer.transport.abort()

    def plug(self) -> None:
        self._is_in = True

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_in:
            writer.transport.abort()
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        both = {writer, there_writer}
        self._writers |= both
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(_pour(reader, there_writer))
                ways.create_task(_pour(there_reader, writer))
        finally:
            self._writers -= both


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@pytest.fixture
async def cable(desk: Served) -> AsyncIterator[Cable]:
    async with Cable(desk.url).laid() as laid:
        yield laid


def settings(desk: Served, tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "elsewhere", token=desk.token)


async def test_a_follower_that_was_away_too_long_is_told_by_an_exception(
    desk: Served, cable: Cable, tmp_path: Path
) -> None:
    async with Client(cable.url, settings=settings(desk, tmp_path)) as client:
        events: Any = client.events()
        async with aclosing(events), asyncio.timeout(PATIENCE):
            heard = asyncio.ensure_future(anext(events))
            await eventually(lambda: len(desk.broker.feeds) == 1)
            await desk.ask(id="a")
            assert (await heard).cursor == 1
            cable.pull()
            await eventually(lambda: len(desk.broker.feeds) == 0)
            await desk.answer("a", "SQLite")
            await prune(desk)
            cable.plug()
            with pytest.raises(CursorTooOld):
                await anext(events)


async def test_a_follower_of_a_desk_at_which_nothing_had_happened_is_told_as_well(
    desk: Served, cable: Cable, tmp_path: Path
) -> None:
    async with Client(cable.url, settings=settings(desk, tmp_path)) as client:
        events: Any = client.events(after=0)
        async with asyncio.timeout(PATIENCE):
            heard = asyncio.ensure_future(anext(events))
            await eventually(lambda: client.connection.is_reached and len(desk.broker.feeds) == 1)
            cable.pull()
            await eventually(lambda: len(desk.broker.feeds) == 0)
            await desk.ask(id="a")
            await desk.answer("a", "SQLite")
            await prune(desk)
            cable.plug()
            with pytest.raises(CursorTooOld):
                await heard


async def test_a_handler_that_was_away_too_long_goes_on_by_itself(desk: Served, cable: Cable, tmp_path: Path) -> None:
    asked: list[str] = []

    def decide(ask: Ask) -> str:
        asked.append(ask.id)
        return "Postgres"

    await desk.ask(id="before")
    async with Desk(cable.url, settings=settings(desk, tmp_path)) as person:
        person.on_question(decide)
        await until(lambda: _is_answered(desk, "before"))
        await eventually(lambda: len(desk.broker.feeds) == 1)
        cable.pull()
        await eventually(lambda: len(desk.broker.feeds) == 0)
        await desk.ask(id="settled meanwhile")
        await desk.answer("settled meanwhile", "SQLite")
        await desk.ask(id="open meanwhile")
        await prune(desk)
        cable.plug()
        await eventually(lambda: asked == ["before", "open meanwhile"])
        await desk.ask(id="afterwards")
        await eventually(lambda: asked == ["before", "open meanwhile", "afterwards"])
        for id in asked:
            await until(lambda id=id: _is_answered(desk, id))


async def _is_answered(desk: Served, id: str) -> bool:
    stored = await desk.broker.store.get(id)
    return stored is None or stored.state == "answered"


async def test_the_terminal_that_was_away_too_long_looks_again(desk: Served, cable: Cable, tmp_path: Path) -> None:
    printed: list[str] = []

    async def ask(id: str) -> None:
        await desk.ask(id=id, questions=[{"header": id, "question": "Which?"}])

    def shows(*texts: str) -> bool:
        return any(all(text in line for text in texts) for block in printed for line in block.splitlines())

    terminal = Terminal(by="ana", interactive=False, colour=False, out=printed.append)
    for id in ("forgotten", "settled", "patient"):
        await ask(id)
    async with Client(cable.url, settings=settings(desk, tmp_path)) as client, asyncio.TaskGroup() as tasks:
        showing = tasks.create_task(terminal.run(client))
        await eventually(lambda: shows("forgotten") and shows("patient") and len(desk.broker.feeds) == 1)
        cable.pull()
        await eventually(lambda: len(desk.broker.feeds) == 0)
        printed.clear()
        await desk.answer("forgotten", "one")
        await prune(desk)
        await desk.answer("settled", "two")
        await ask("new")
        cable.plug()
        await eventually(lambda: shows("agent asks", "new"))
        assert shows("forgotten", "the desk no longer keeps it")
        assert shows("answered: two")
        assert not shows("patient")  # it was there before and still is
        await desk.answer("patient", "three")
        await eventually(lambda: shows("answered: three"))
        showing.cancel()


# Ids that come again ----------------------------------------------------------------------------------------


async def test_an_id_that_was_pruned_is_asked_anew_and_does_not_get_the_old_answer(desk: Served) -> None:
    await desk.ask(id="build-7")
    await desk.answer("build-7", "SQLite")
    joined = await told(
        desk.http.post("/v1/asks", json={"id": "build-7", **_body("Which database should I use?")}), 409
    )
    assert joined["error"] == "ask_differs"
    await prune(desk)
    asked = await told(desk.http.post("/v1/asks", json={"id": "build-7", **_body("Deploy?", "yes", "no")}), 201)
    assert (asked["state"], asked["answer"]) == ("asked", None)
    assert (await told(desk.http.post(path_of("build-7", "answer"), json={"answers": [["SQLite"]]}), 422))["error"]
    assert (await desk.answer("build-7", "yes"))["answer"]["answers"] == [["yes"]]


def _body(question: str, *labels: str) -> dict[str, Any]:
    options = [{"label": label} for label in labels]
    return {"questions": [{"question": question, "options": options, "custom": not labels}]}


async def test_a_desk_does_not_take_answers_by_what_another_one_asked_before_under_the_id(
    new_database: Callable[[], str],
) -> None:
    address = new_database()
    here, there = await open_store(address), await open_store(address)
    async with (
        Broker(here, clock=FakeClock(), taken_within=None) as first_desk,
        Broker(there, clock=FakeClock(), taken_within=None) as second_desk,
    ):
        before = Question("Which database?", (Option("SQLite"), Option("Postgres")), custom=False)
        await first_desk.open(an_ask(id="build-7", questions=(before,)))
        await first_desk.answer("build-7", SQLITE)
        await here.prune(before=FAR, limit=100)
        heard = asyncio.Event()
        here.tail(lambda events: heard.set())
        after = Question("Deploy?", (Option("yes"), Option("no")), custom=False)
        await second_desk.open(an_ask(id="build-7", questions=(after,)))
        await asyncio.wait_for(heard.wait(), PATIENCE)
        answered = await first_desk.answer("build-7", Answer(answers=(("yes",),)))
        assert answered.state == "answered"
    await here.close()
    await there.close()


async def test_ordinals_start_over_and_no_old_answer_comes_back(store: Store) -> None:
    clock = FakeClock()
    async with Broker(store, clock=clock, keep=KEEP, taken_within=None) as broker:
        for _ in range(2):
            opened = await broker.open(an_ask(id="rm"), ordinal=True)
            await broker.answer(opened.stored.id, SQLITE)
            await broker.report([("rm", None)])
        assert await kept(store) == ["rm#1", "rm#2"]
        await days_pass(clock, store, days=31, through=6)
        again = await broker.open(an_ask(id="rm"), ordinal=True)
        assert (again.how, again.stored.id, again.stored.state, again.stored.answer) == ("new", "rm#1", "asked", None)
        joined = await broker.open(an_ask(id="rm"), ordinal=True)
        assert (joined.how, joined.stored.id) == ("joined", "rm#1")
        await broker.answer("rm#1", POSTGRES)
        await broker.report([("rm", None)])
        assert (await broker.open(an_ask(id="rm"), ordinal=True)).stored.id == "rm#2"


async def test_an_ordinal_goes_on_after_the_ones_that_are_left(store: Store) -> None:
    clock = FakeClock()
    async with Broker(store, clock=clock, keep=KEEP, taken_within=None) as broker:
        for days in (0, 20):
            await clock.advance(days * DAY)
            opened = await broker.open(an_ask(id="rm"), ordinal=True)
            await broker.answer(opened.stored.id, SQLITE)
            await broker.report([("rm", None)])
        await days_pass(clock, store, days=11, through=3)
        assert await kept(store) == ["rm#2"]
        again = await broker.open(an_ask(id="rm"), ordinal=True)
        assert (again.how, again.stored.id, again.stored.answer) == ("new", "rm#3", None)


# Trouble and settings ---------------------------------------------------------------------------------------


async def test_a_store_forgets_nothing_of_an_ask_whose_delivery_is_still_told(store: Store) -> None:
    """The delivery is its last event, and keeps it until that is too old as well."""
    clock = FakeClock()
    async with Broker(store, clock=clock, taken_within=None) as broker:
        await settle(broker, "a")
        await clock.advance(40 * DAY)
        taken = Change(states=("answered",), set={"delivered_at": clock.now()}, event="delivered", at=clock.now())
        _, gone = await asyncio.gather(store.change("a", taken), store.prune(before=clock.now(), limit=100))
        assert gone == 2
        assert [(event.type, event.ask.answer is not None) for event in await history(store)] == [("delivered", True)]


@pytest.mark.parametrize("days", ["0", "-1", "0.5", "36501", '"30"', "true", "[30]", "nan", "inf"])
def test_a_number_of_days_that_is_none_is_refused_with_a_sentence(tmp_path: Path, days: str) -> None:
    with pytest.raises(SettingsError, match=r"config\.toml: \[desk\] keep_days is a number of days from 1 to 36500"):
        _loaded(tmp_path, own=f"[desk]\nkeep_days = {days}\n")


@pytest.mark.parametrize(("days", "keep"), [("1", 1), ("1.5", 1.5), ("36500", 36500)])
def test_a_number_of_days_is_taken_from_ones_own_file(tmp_path: Path, days: str, keep: float) -> None:
    assert _loaded(tmp_path, own=f"[desk]\nkeep_days = {days}\n").keep == timedelta(days=keep)
    assert _loaded(tmp_path, own="").keep is None


def test_a_project_cannot_make_a_desk_forget(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"handraise\.toml: \[desk\] says .* belongs in your own config\.toml"):
        _loaded(tmp_path, own="", project="[desk]\nkeep_days = 1\n")


def _loaded(folder: Path, *, own: str, project: str | None = None) -> Settings:
    (folder / "handraise").mkdir(exist_ok=True)
    (folder / "handraise" / "config.toml").write_text(own)
    work = folder / "work"
    work.mkdir(exist_ok=True)
    if project is not None:
        (work / "handraise.toml").write_text(project)
    return load({"XDG_CONFIG_HOME": str(folder), "HANDRAISE_HOME": str(folder)}, cwd=work)


# Sessions and chats -----------------------------------------------------------------------------------------


async def rows(store: Store, table: str) -> list[str]:
    return [id for (id,) in await store.read(f"select id from {table} order by id")]


async def forget_all(store: Store, forget: Callable[..., Awaitable[int]], *, before: int = FAR) -> None:
    async with asyncio.timeout(PATIENCE):
        while await forget(before=before, limit=2):
            pass


async def test_sessions_that_are_over_go_with_what_was_said_in_them(store: Store) -> None:
    sessions, old = Sessions(store), 1_000
    for id in ("ended", "works", "ordered", "in a run", "young"):
        wanted = NewSession(id=id, agent="x", prompt="p", run="r1" if id == "in a run" else None)
        await sessions.create(wanted, worker="w", machine=None, at=5_000 if id == "young" else old)
        await sessions.said(id, Message(role="agent", text="done"), at=old)
        for order in await sessions.orders(id):
            if id != "ordered":
                await sessions.done(order, at=old)
        if id != "works":
            await sessions.write(id, state="idle", at=5_000 if id == "young" else old, worker="w")
    await store.write(
        "insert into runs (id, workflow, file, cwd, input, state, epoch, idle_claims, cancelled, created_at, "
        "created_by, updated_at) values ('r1', 'w', 'f', '/', '{}', 'open', 1, 0, 0, 1, 'ana', 1)"
    )
    async with Broker(store) as broker:
        await broker.open(an_ask(id="open", session="asking"))
        await broker.open(an_ask(id="child", session="asking/child", parent="parent"))
        await sessions.mention(Origin(agent="x", session="parent"), at=old)
        await sessions.mention(Origin(agent="x", session="mentioned"), at=old)
        await store.write("update sessions set created_at = 1 where id like 'asking%'")
        await forget_all(store, sessions.forget, before=4_000)
        kept = ["asking", "asking/child", "in a run", "ordered", "parent", "works", "young"]
        assert sorted(await rows(store, "sessions")) == sorted(kept)
        assert [id for (id,) in await store.read("select distinct session from orders")].count("ended") == 0
        assert [id for (id,) in await store.read("select distinct session from messages")].count("ended") == 0
        await sessions.mention(Origin(agent="x", session="mentioned"), at=9)  # it comes back, and has a record again
        assert (await sessions.get("mentioned")).created_at == 9


async def test_chats_that_nobody_wrote_in_go_and_one_that_asks_stays(store: Store) -> None:
    transcript = Transcript(store)
    for id, state, at in (
        ("old", "idle", 1),
        ("asks", "asking", 1),
        ("writes", "writing", 1),
        ("young", "idle", 9_000),
    ):
        await store.write(
            "insert into chats (id, title, model, state, version, created_at, updated_at) "
            "values (?, 't', 'm', ?, 1, ?, ?)",
            *(id, state, at, at),
        )
        for number in range(5):
            await store.write(
                "insert into chat_messages (id, chat, role, state, blocks, at, version) "
                "values (?, ?, 'user', 'done', '[]', 1, 1)",
                *(f"{id} {number}", id),
            )
    await forget_all(store, transcript.forget, before=4_000)
    assert await rows(store, "chats") == ["asks", "writes", "young"]
    assert len(await rows(store, "chat_messages")) == 15


async def test_a_desk_that_keeps_for_some_days_forgets_sessions_by_itself(store: Store) -> None:
    clock = FakeClock()
    async with Broker(store, clock=clock, keep=KEEP, taken_within=None) as broker:
        await settle(broker, "answered")
        assert await rows(store, "sessions") == ["s1"]
        await clock.advance(31 * DAY)

        async def is_gone() -> bool:
            await clock.advance(60)
            return await rows(store, "sessions") == ["other"]

        await broker.open(an_ask(id="newest", session="other"))  # the newest event always stays
        await broker.withdraw("newest")
        await until(is_gone)
