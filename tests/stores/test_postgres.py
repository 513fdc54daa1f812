"""What only a server can do to a store: restart, hang, lose an answer, kill a connection, refuse. All for real."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import asyncpg
import pytest

from handraise.app import open_store
from handraise.errors import SettingsError, StoreError, StoreFailed, StoreTooNew
from handraise.stores import Query, Store
from handraise.stores.postgres import MOST_WAITING, Patience, PostgresStore
from handraise.testing.postgres import PostgresServer, postgres_server
from handraise.testing.stores import NOW, closing, history, row
from handraise.wire import StoredEvent

LONG = 30.0  # seconds a server may take to start on a busy machine, and whatever waits for it
AT_ONCE = Patience(start=0, hello=0.5)
SHORT = Patience(write=0.5, read=0.5, poll=0.1, close=0.3)
SECRET = "s3cret-word"

SCHEMAS = count(1)


@pytest.fixture(scope="module")
def own() -> Iterator[PostgresServer]:
    """A server of this file, to be stopped and changed at will, and left running."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def address(own: PostgresServer) -> str:
    return own.address(schema=f"own_{next(SCHEMAS)}")


@asynccontextmanager
async def opened(address: str, *, patience: Patience | None = None) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open_address(address, patience=patience or Patience())
    try:
        yield store
    finally:
        await store.close()


async def eventually(happened: Callable[[], Any]) -> None:
    async with asyncio.timeout(LONG):
        while not happened():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def asking(server: PostgresServer, database: str = "postgres") -> AsyncIterator[Any]:
    """A connection beside the stores, for what an administrator does."""
    connection = await asyncpg.connect(server.address(database))
    try:
        yield connection
    finally:
        await connection.close()


async def backends(server: PostgresServer) -> list[int]:
    """Whoever is connected for a store."""
    async with asking(server) as admin:
        rows = await admin.fetch("select pid from pg_stat_activity where application_name = 'handraise'")
    return [found["pid"] for found in rows]


async def at_most(number: int, server: PostgresServer) -> None:
    """Wait until no more connections than these are left; a server takes a moment to see that one is gone."""
    async with asyncio.timeout(LONG):
        while len(await backends(server)) > number:
            await asyncio.sleep(0.01)


async def increment(store: Store) -> int:
    """A write that shows when it is done twice."""
    [[value]] = await store.write(
        "insert into sessions (id, agent, created_at) values ('counter', '', 1) "
        "on conflict (id) do update set created_at = sessions.created_at + 1 returning created_at"
    )
    return int(value)


# The database goes away -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_while_the_database_restarts_every_write_is_kept_once_or_refused(
    own: PostgresServer, address: str, mode: str
) -> None:
    async with opened(address) as store, opened(address) as other:
        told: list[StoredEvent] = []
        told_elsewhere: list[StoredEvent] = []
        store.tail(told.extend)
        other.tail(told_elsewhere.extend)
        outcomes: Counter[str] = Counter()
        kept: set[tuple[str, str]] = set()
        is_over = False

        async def attempt(name: str, write: Any) -> Any:
            try:
                done = await write
            except StoreFailed:
                outcomes[f"{name} refused"] += 1
                return None
            outcomes[name] += 1
            return done

        async def write(desk: Store, name: str) -> None:
            for number in count():
                if is_over:
                    return
                id = f"{name}{number}"
                if (asked := await attempt("ask", desk.open(row(id)))) is not None:
                    assert asked.how == "new"
                    kept.add(("asked", id))
                    if (closed := await attempt("answer", desk.change(id, closing()))) is not None:
                        assert closed.done
                        kept.add(("answered", id))
                await attempt("count", increment(desk))

        async with asyncio.timeout(LONG), asyncio.TaskGroup() as writers:
            for number in range(10):
                writers.create_task(write(store, f"one{number}-"))
                writers.create_task(write(other, f"other{number}-"))
            await eventually(lambda: outcomes["count"] > 50)
            restart = writers.create_task(asyncio.to_thread(own.restart, mode=mode, pause=1))
            await eventually(lambda: store.trouble is not None and other.trouble is not None)
            assert "is away" in str(store.trouble)
            await restart
            before = outcomes["count"]
            await eventually(lambda: outcomes["count"] > before + 50)
            is_over = True
        await eventually(lambda: store.trouble is None and other.trouble is None)
        events = await history(store, limit=1000)
        there = Counter((event.type, event.ask.id) for event in events)
        assert set(there.values()) == {1}, "something was written twice"
        assert kept <= there.keys(), "something is lost that was acknowledged"
        [[counted]] = await store.read("select created_at from sessions where id = 'counter'")
        assert outcomes["count"] <= counted <= outcomes["count"] + outcomes["count refused"]
        await eventually(lambda: len(told) >= len(events) and len(told_elsewhere) >= len(events))
        assert told == told_elsewhere == events


async def test_a_database_that_is_away_for_too_long_is_said_and_works_again_afterwards(
    own: PostgresServer, address: str
) -> None:
    async with opened(address, patience=SHORT) as store:
        await store.open(row("before"))
        await asyncio.to_thread(own.stop)
        try:
            with pytest.raises(StoreFailed, match=r"is away: .*; nothing of this was kept\. What was .*; try again"):
                await store.open(row("while away"))
            with pytest.raises(StoreFailed, match=r"is away: .*; try again"):
                await store.get("before")
            assert set(store.troubles) == {"writing", "reading", "listening"}
        finally:
            await asyncio.to_thread(own.start)
        await eventually(lambda: store.trouble is None)  # by itself: nobody writes
        assert (await store.open(row("after"))).how == "new"
        assert [stored.id for stored in await store.find(Query())] == ["before", "after"]


async def test_a_write_that_waits_for_the_database_may_be_given_up_by_its_caller(
    own: PostgresServer, address: str
) -> None:
    async with opened(address) as store:
        await asyncio.to_thread(own.stop)
        try:
            impatient = [asyncio.create_task(store.open(row(f"given up {number}"))) for number in range(3)]
            patient = asyncio.create_task(store.open(row("waited for")))
            await eventually(lambda: "writing" in store.troubles)
            for task in impatient:
                task.cancel()
        finally:
            await asyncio.to_thread(own.start)
        assert (await patient).how == "new"
        assert all(task.cancelled() for task in impatient)
        assert set(Counter(event.ask.id for event in await history(store)).values()) == {1}


async def test_closing_does_not_wait_for_a_database_that_is_away(own: PostgresServer, address: str) -> None:
    before = asyncio.all_tasks()
    store = await PostgresStore.open_address(address, patience=Patience(close=0.3))
    await asyncio.to_thread(own.stop)
    try:
        writes = [asyncio.create_task(store.open(row(f"ask {number}"))) for number in range(3)]
        reading = asyncio.create_task(store.get("ask 1"))
        await eventually(lambda: "writing" in store.troubles)
        writes += [asyncio.create_task(store.open(row(f"later {number}"))) for number in range(3)]
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await store.close()
            outcomes = await asyncio.gather(*writes, reading, return_exceptions=True)
        assert all(isinstance(outcome, StoreFailed) for outcome in outcomes), outcomes
        assert "before the database answered" in str(outcomes[0])
        assert "nothing of this was kept" in str(outcomes[3])
        await eventually(lambda: asyncio.all_tasks() == before)
    finally:
        await asyncio.to_thread(own.start)


async def test_a_close_that_is_cancelled_lets_go_all_the_same(own: PostgresServer, address: str) -> None:
    before = asyncio.all_tasks()
    store = await PostgresStore.open_address(address)
    await asyncio.to_thread(own.stop)
    try:
        write = asyncio.create_task(store.open(row("a")))
        await eventually(lambda: "writing" in store.troubles)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await store.close()
        with pytest.raises(StoreFailed):
            await write
        await eventually(lambda: asyncio.all_tasks() == before)
    finally:
        await asyncio.to_thread(own.start)


async def test_no_more_writes_wait_for_a_database_that_is_away_than_memory_bears(
    own: PostgresServer, address: str
) -> None:
    async with opened(address, patience=Patience(write=1.0, close=0.1)) as store:
        await asyncio.to_thread(own.stop)
        try:
            first = asyncio.create_task(store.write("select 1"))
            await eventually(lambda: "writing" in store.troubles)
            waiting = [asyncio.create_task(store.write("select 1")) for _ in range(MOST_WAITING)]
            await asyncio.sleep(0)
            with pytest.raises(StoreFailed, match="too many wait for it already"):
                await store.write("select 1")
            outcomes = await asyncio.gather(first, *waiting, return_exceptions=True)
            assert all(isinstance(outcome, StoreFailed) for outcome in outcomes)
        finally:
            await asyncio.to_thread(own.start)


# Connections are lost ---------------------------------------------------------------------------------------

COMMIT = b"Q\x00\x00\x00\x0bcommit\x00"
NOTIFICATION = b"A"


class Proxy:
    """Between a store and its server. It does with the next COMMIT what `cut` says. Use as a context."""

    def __init__(self, server: PostgresServer, *, is_pool: bool = False) -> None:
        self.cut: str | None = None
        self.is_pool = is_pool  # which takes LISTEN, and keeps what it is told to itself
        self.is_open = True
        self.version: bytes | None = None  # that the server is said to have
        self.happened = asyncio.Event()
        self._server = server
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._listening.wait_closed()

    def address(self, schema: str) -> str:
        port = self._listening.sockets[0].getsockname()[1]
        return f"postgresql://desk@127.0.0.1:{port}/postgres?sslmode=disable&schema={schema}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if not self.is_open:
            writer.transport.abort()
            return
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server.port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(to_server)
        connection = _Proxied(self, reader, writer, from_server, to_server)
        pumps = {asyncio.create_task(connection.up()), asyncio.create_task(connection.down())}
        self._pumps |= pumps


class _Proxied:
    def __init__(self, proxy: Proxy, reader: Any, writer: Any, from_server: Any, to_server: Any) -> None:
        self.proxy = proxy
        self.reader, self.writer, self.from_server, self.to_server = reader, writer, from_server, to_server
        self.is_mute = False

    async def up(self) -> None:
        with suppress(ConnectionError):
            while data := await self.reader.read(1 << 16):
                if self.proxy.cut is not None and data.endswith(COMMIT):
                    how, self.proxy.cut = self.proxy.cut, None
                    self.proxy.happened.set()
                    match how:
                        case "before it is sent":
                            break
                        case "after it is done":
                            self.is_mute = True
                        case "while it is done":
                            self.to_server.write(data)
                            await self.to_server.drain()
                            break
                        case "never":  # and nobody says so
                            continue
                self.to_server.write(data)
        self.hang_up()

    async def down(self) -> None:
        rest = b""
        with suppress(ConnectionError):
            while data := await self.from_server.read(1 << 16):
                if self.is_mute:
                    break
                if self.proxy.version is not None:
                    data = re.sub(rb"(?<=server_version\x00)\d\d", self.proxy.version, data)
                data, rest = whole_messages(rest + data, but=NOTIFICATION if self.proxy.is_pool else b"")
                self.writer.write(data)
        self.hang_up()

    def hang_up(self) -> None:
        self.writer.transport.abort()
        self.to_server.transport.abort()


def whole_messages(data: bytes, *, but: bytes) -> tuple[bytes, bytes]:
    """Without those of one kind, and the beginning of one that is not whole yet."""
    kept = b""
    while len(data) >= 5 and len(data) > (size := int.from_bytes(data[1:5])):
        if data[:1] != but:
            kept += data[: size + 1]
        data = data[size + 1 :]
    return kept, data


@pytest.mark.parametrize("cut", ["before it is sent", "while it is done", "after it is done"])
async def test_a_commit_whose_answer_is_lost_happens_once_and_its_caller_hears_how(
    own: PostgresServer, cut: str
) -> None:
    schema = f"own_{next(SCHEMAS)}"
    async with Proxy(own) as proxy, opened(proxy.address(schema)) as store:
        told: list[StoredEvent] = []
        heard: list[str] = []
        store.tail(told.extend)
        store.hear("rules", lambda: heard.append("rules"))

        async def losing(write: Any) -> Any:
            proxy.cut = cut
            proxy.happened.clear()
            async with asyncio.timeout(LONG):
                done = await write
            assert proxy.happened.is_set()
            return done

        assert (await losing(store.open(row("a")))).how == "new"
        assert (await losing(store.change("a", closing()))).done
        assert [await losing(increment(store)) for _ in range(2)] == [1, 2]
        await losing(store.write("delete from sessions", topic="rules"))
        assert heard
        both = asyncio.gather(store.open(row("b")), store.open(row("b")))
        assert sorted(opened.how for opened in await losing(both)) == ["joined", "new"]
        assert await losing(store.prune(before=NOW + 1, limit=1)) == 1
        assert [(event.type, event.ask.id) for event in told] == [("asked", "a"), ("answered", "a"), ("asked", "b")]
        assert await history(store) == told[1:]
        assert store.trouble is None


async def test_a_commit_lost_in_a_crash_is_written_again_whatever_others_wrote_since(own: PostgresServer) -> None:
    """After a crash PostgreSQL numbers transactions as if those that were lost had never been."""
    schema = f"own_{next(SCHEMAS)}"
    async with (
        Proxy(own) as proxy,
        opened(own.address(schema=schema)) as other,
        opened(proxy.address(schema)) as store,
        asyncio.timeout(LONG),
    ):
        proxy.cut = "never"
        write = asyncio.create_task(store.open(row("a")))
        await proxy.happened.wait()
        proxy.is_open = False
        await asyncio.to_thread(own.restart, mode="immediate")
        for number in range(20):
            await other.open(row(f"other {number}"))
        proxy.is_open = True
        assert (await write).how == "new"
        assert (await other.get("a")) is not None, "it was acknowledged and is not there"
        assert Counter(event.ask.id for event in await history(store))["a"] == 1


async def test_a_write_whose_end_nobody_knows_is_refused_as_such(own: PostgresServer) -> None:
    schema = f"own_{next(SCHEMAS)}"
    async with (
        Proxy(own) as proxy,
        opened(own.address(schema=schema)) as other,
        opened(proxy.address(schema), patience=SHORT) as store,
    ):
        told: list[StoredEvent] = []
        heard: list[str] = []
        store.tail(told.extend)
        store.hear("rules", lambda: heard.append("rules"))
        proxy.cut = "after it is done"
        proxy.happened.clear()
        writes = [
            asyncio.create_task(store.open(row("a"))),
            asyncio.create_task(store.write("delete from sessions", topic="rules")),
        ]
        await proxy.happened.wait()
        proxy.is_open = False
        for write in writes:
            with pytest.raises(StoreFailed, match="may have been kept or not: ask again under the same id, or look"):
                await write
        assert await other.get("a") is not None
        proxy.is_open = True
        await eventually(lambda: [event.ask.id for event in told] == ["a"] and heard)
        assert (await store.open(row("a"))).how == "joined"


async def test_a_killed_connection_is_made_again_and_what_it_missed_is_read(own: PostgresServer, address: str) -> None:
    await at_most(0, own)
    async with opened(address, patience=Patience(poll=2 * LONG)) as store:
        await store.get("a")
        await at_most(3, own)
        own_backends = await backends(own)
        assert len(own_backends) == 3, "one that writes, one that reads, one that listens"
        told: list[StoredEvent] = []
        heard: Counter[str] = Counter()
        store.tail(told.extend)
        store.hear("rules", lambda: heard.update(["rules"]))
        async with opened(address) as other, asking(own) as admin:
            for number, pid in enumerate(own_backends):
                before = heard["rules"]
                assert await admin.fetchval("select pg_terminate_backend($1)", pid)
                await other.write("delete from sessions", topic="rules")
                await other.open(row(f"elsewhere {number}"))
                assert (await store.open(row(f"here {number}"))).how == "new"
                assert (await store.get(f"elsewhere {number}")) is not None
                events = await history(other)
                await eventually(lambda events=events: len(told) >= len(events))
                await eventually(lambda before=before: heard["rules"] > before)
                assert told == events
                await eventually(lambda: store.trouble is None)
        await at_most(6, own)  # one that writes, one that listens, up to four that read


async def test_what_no_notification_told_is_told_before_our_own_or_soon_after(own: PostgresServer) -> None:
    schema = f"own_{next(SCHEMAS)}"
    async with (
        Proxy(own) as proxy,
        opened(own.address(schema=schema)) as other,
        opened(proxy.address(schema), patience=Patience(poll=2 * LONG)) as store,
        opened(proxy.address(schema), patience=Patience(poll=0.1)) as looking,
    ):
        told: list[str] = []
        found: list[str] = []
        store.tail(lambda events: told.extend(event.ask.id for event in events))
        looking.tail(lambda events: found.extend(event.ask.id for event in events))
        proxy.is_pool = True
        await other.open(row("elsewhere"))
        await store.open(row("own"))
        assert told == ["elsewhere", "own"]
        await eventually(lambda: len(found) >= 2)
        assert found == ["elsewhere", "own"]


async def test_a_wrong_statement_is_no_trouble_of_the_database(address: str) -> None:
    async with opened(address) as store:
        for attempt in (store.read, store.write):
            with pytest.raises(asyncpg.UndefinedColumnError):
                await attempt("select nonsense")
        assert store.trouble is None


async def test_reading_goes_on_while_every_connection_is_killed_again_and_again(
    own: PostgresServer, address: str
) -> None:
    async with opened(address) as store, asking(own) as admin, asyncio.timeout(LONG):
        await store.open(row("a"))
        for _ in range(5):
            reads = [asyncio.create_task(store.get("a")) for _ in range(20)]
            await asyncio.sleep(0)
            await admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'handraise'"
            )
            assert all(stored is not None for stored in await asyncio.gather(*reads))
        await eventually(lambda: store.trouble is None)
        await at_most(6, own)


async def test_a_server_that_hangs_counts_as_away(own: PostgresServer, address: str) -> None:
    await at_most(0, own)
    patience = Patience(answer=0.5, write=0.5, read=0.5, close=0.1, poll=0.1)
    async with opened(address, patience=patience) as store:
        stopped = await backends(own)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreFailed, match="it did not answer in time"):
                async with asyncio.timeout(LONG):
                    await store.open(row("a"))
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        await eventually(lambda: store.trouble is None)
        await store.open(row("b"))


async def test_a_standby_that_was_behind_takes_over_and_what_happens_there_is_told(
    own: PostgresServer, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(address) as store, asking(own) as admin:
        told: list[str] = []
        store.tail(lambda events: told.extend(event.ask.id for event in events))
        for id in "abc":
            await store.open(row(id))
        schema = address.rpartition("=")[2]
        await admin.execute(
            f"set search_path = {schema}; begin; "
            "delete from events where cursor > 1; delete from asks where id <> 'a'; "
            "update counters set value = 1 where name = 'cursor'; commit; "
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'handraise'"
        )
        await store.open(row("d"))
        await store.open(row("b"))
        await eventually(lambda: store.trouble is None)
        assert told == ["a", "b", "c", "d", "b"]
        assert "has lost the events 2 to 3" in caplog.text


# A desk is suspended ----------------------------------------------------------------------------------------

SUSPENDED = """
import asyncio, sys
from handraise.stores.postgres import Patience, PostgresStore
from handraise.testing.stores import closing, row

async def main() -> None:
    store = await PostgresStore.open_address(sys.argv[1], patience=Patience(stuck=1))
    content = "x" * int(sys.argv[2])
    number = 0
    while True:
        number += 1
        ids = [f"suspended {number} {one}" for one in range(50)]
        await asyncio.gather(*(store.open(row(id, content=content)) for id in ids))
        await asyncio.gather(*(store.change(id, closing()) for id in ids))  # which brings the contents back
        print(number, flush=True)

asyncio.run(main())
"""
HOLDERS = """
select activity.pid, state, wait_event from pg_locks join pg_stat_activity as activity on activity.pid = pg_locks.pid
where locktype = 'advisory' and granted and application_name = 'handraise'"""


@pytest.mark.parametrize(
    ("size", "waits_for"),
    [(10, "ClientRead"), (100_000, "ClientWrite")],
    ids=["between statements", "in the middle of an answer"],
)
@pytest.mark.parametrize("by_socket", [False, True], ids=["tcp", "socket"])
async def test_a_desk_suspended_in_a_commit_does_not_hold_up_the_others_for_ever(
    own: PostgresServer, size: int, waits_for: str, by_socket: bool
) -> None:
    schema = f"own_{next(SCHEMAS)}"
    async with opened(own.address(schema=schema), patience=Patience(lock=0.3, stuck=1)) as store, asking(own) as admin:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SUSPENDED, own.address(schema=schema, by_socket=by_socket), str(size)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(LONG):
                await process.stdout.readline()
                await suspend_in_a_commit(process, admin, waits_for=waits_for)
                assert (await store.open(row("of another desk"))).how == "new"
            process.send_signal(signal.SIGCONT)
            async with asyncio.timeout(LONG):
                last = int(await process.stdout.readline())
                while int(await process.stdout.readline()) < last + 3:
                    pass
        finally:
            process.kill()
            await process.communicate()
        there = Counter((event.type, event.ask.id) for event in await history(store, limit=1000))
        assert set(there.values()) == {1}, "what was interrupted was written twice"
        ids = [f"suspended {number} {one}" for number in range(1, last + 1) for one in range(50)]
        assert {(type, id) for type in ("asked", "answered") for id in ids} <= there.keys()


async def suspend_in_a_commit(process: Any, admin: Any, *, waits_for: str) -> None:
    """Stop it at a moment at which it holds the lock of the commit, and the server waits for it."""
    for attempt in range(1000):
        for _ in range(attempt % 10):  # another moment each time
            await admin.execute("select")
        process.send_signal(signal.SIGSTOP)
        found = [await admin.fetch(HOLDERS) for _ in range(20)]  # what was on its way arrives meanwhile
        if all(holders and holders[0]["wait_event"] == waits_for for holders in found[10:]):
            return
        process.send_signal(signal.SIGCONT)
    raise AssertionError("it could not be stopped in a commit")


# How it is reached ------------------------------------------------------------------------------------------

GUARDED = f"guarded:{SECRET}"


@pytest.fixture(scope="module")
def guarded(own: PostgresServer) -> PostgresServer:
    """The same server, which lets `guarded` in with a password only and `plain` make nothing."""
    rules = own.folder / "data" / "pg_hba.conf"
    rules.write_text(
        f"local all guarded scram-sha-256\nhost all guarded 127.0.0.1/32 scram-sha-256\n{rules.read_text()}"
    )

    async def set_up() -> None:
        async with asking(own) as admin:
            await admin.execute(
                f"create role guarded login superuser password '{SECRET}'; create role plain login; "
                "create schema theirs; create role strict login superuser; "
                "alter role strict set default_transaction_read_only = on; "
                "alter role strict set default_transaction_isolation = 'serializable'; select pg_reload_conf()"
            )
            await admin.execute("create database narrow encoding 'LATIN1' template template0 locale 'C'")

    asyncio.run(set_up())
    return own


def as_user(address: str, user: str) -> str:
    return address.replace("://desk@", f"://{user}@")


async def test_a_store_opens_by_the_folder_of_a_socket(own: PostgresServer) -> None:
    store = await open_store(own.address(schema=f"own_{next(SCHEMAS)}", by_socket=True))
    assert await store.read("select inet_client_addr()") == [(None,)]
    await store.close()


@pytest.mark.parametrize("by_socket", [False, True])
async def test_a_password_stands_in_the_address_or_in_the_environment(
    guarded: PostgresServer, monkeypatch: pytest.MonkeyPatch, by_socket: bool
) -> None:
    plain = guarded.address(schema=f"own_{next(SCHEMAS)}", by_socket=by_socket)
    for address in (as_user(plain, GUARDED), f"{as_user(plain, 'guarded')}&password={SECRET}"):
        await (await open_store(address)).close()
    monkeypatch.setenv("PGPASSWORD", SECRET)
    await (await open_store(as_user(plain, "guarded"))).close()


async def test_a_schema_of_any_name_is_a_place_of_its_own(own: PostgresServer) -> None:
    names = ["handraise", 'My "own" desk', "ümläut", "a%b"]
    for name in names:
        async with opened(own.address(schema=quote(name))) as store:
            assert (await store.open(row("a"))).how == "new"
    async with asking(own) as admin:
        rows = await admin.fetch("select nspname from pg_namespace where nspname = any($1)", names)
    assert sorted(found["nspname"] for found in rows) == sorted(names)
    async with opened(own.address()) as store:
        assert (await store.open(row("a"))).how == "joined", "without a name it is another one than `handraise`"
    with pytest.raises(SettingsError, match="schema= is empty"):
        await open_store(f"{own.address()}?schema=")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def test_of_several_hosts_the_one_that_takes_writes_is_used(own: PostgresServer) -> None:
    with postgres_server() as standby:
        async with asking(standby) as admin:
            await admin.execute("alter system set default_transaction_read_only = on")
            await admin.execute("select pg_reload_conf()")
        hosts = f"127.0.0.1:{free_port()},127.0.0.1:{standby.port},127.0.0.1:{own.port}"
        async with opened(f"postgresql://desk@{hosts}/postgres?schema=own_{next(SCHEMAS)}") as store:
            assert (await store.open(row("a"))).how == "new"
            assert await store.read("select inet_server_port()") == [(own.port,)]


REFUSED = {
    "a wrong password": (f"guarded:{SECRET}x@127.0.0.1:PORT/postgres", "password authentication failed .* PGPASSWORD"),
    "an unknown user": (f"nobody:{SECRET}@127.0.0.1:PORT/postgres", 'role "nobody" does not exist'),
    "an unknown database": (f"{GUARDED}@127.0.0.1:PORT/none", '"none" does not exist; create it with `createdb`'),
    "nobody who listens": (f"{GUARDED}@127.0.0.1:FREE/postgres", "no PostgreSQL answers at .*; is it running"),
    "no such socket": (f"{GUARDED}@/postgres?host=/nowhere&port=1", "no PostgreSQL answers at .*; is it running"),
    "no right to make the schema": ("plain@127.0.0.1:PORT/postgres?schema=new", "permission denied .*`create schema"),
    "somebody else's schema": ("plain@127.0.0.1:PORT/postgres?schema=theirs", "belongs to another user; connect as"),
    "too few characters": (f"{GUARDED}@127.0.0.1:PORT/narrow", "keeps text as LATIN1, .*--encoding=UTF8"),
    "TLS that is not there": (f"{GUARDED}@127.0.0.1:PORT/postgres?sslmode=require", "rejected SSL upgrade"),
    "an sslmode that is none": (f"{GUARDED}@127.0.0.1:PORT/postgres?sslmode=maybe", "`sslmode`? parameter must be"),
    "an option that is none": (f"{GUARDED}@127.0.0.1:PORT/postgres?colour=blue", "unrecognized .*colour"),
    "a port that is none": (f"{GUARDED}@127.0.0.1:port/postgres", "cannot be read as an address"),
    "an @ in the password": (f"guarded:a@{SECRET}@127.0.0.1:PORT/postgres", "no PostgreSQL answers|cannot be read"),
    "a / in the password": (f"guarded:a/{SECRET}@127.0.0.1:PORT/postgres", "cannot be read as an address"),
    "a # in the password": (f"guarded:a#{SECRET}@127.0.0.1:PORT/postgres", "cannot be read as an address"),
    "a ? in the password": (f"guarded:a?{SECRET}@127.0.0.1:PORT/postgres", "cannot be read as an address"),
    "a [ in the password": (f"guarded:[{SECRET}@127.0.0.1:PORT/postgres", "cannot be read as an address"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_cannot_be_used_is_explained_without_showing_a_password(
    guarded: PostgresServer, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    address, sentence = REFUSED[name]
    address = f"postgresql://{address}".replace("PORT", str(guarded.port)).replace("FREE", str(free_port()))
    with caplog.at_level("DEBUG"), pytest.raises((StoreError, SettingsError), match=sentence) as refused:
        await PostgresStore.open_address(address, patience=AT_ONCE)
    assert "\n" not in str(refused.value)
    shown = "".join(traceback.format_exception(refused.value, chain=True)) + caplog.text
    assert SECRET not in shown
    await at_most(0, guarded)


@pytest.mark.parametrize("scheme", ["postgressql", "mysql", ""])
async def test_another_kind_of_database_is_refused_without_showing_a_password(scheme: str) -> None:
    address = f"{scheme}://guarded:{SECRET}@127.0.0.1/postgres"
    with pytest.raises(SettingsError, match="HANDRAISE_DATABASE") as refused:
        await open_store(address)
    assert SECRET not in str(refused.value)


async def test_a_schema_that_somebody_else_made_is_used(guarded: PostgresServer) -> None:
    schema = f"own_{next(SCHEMAS)}"
    async with asking(guarded) as admin:
        await admin.execute(f"create schema {schema} authorization plain")
    async with opened(as_user(guarded.address(schema=schema), "plain")) as store:
        assert (await store.open(row("a"))).how == "new"


async def test_what_a_role_has_as_its_default_does_not_matter(guarded: PostgresServer) -> None:
    address = as_user(guarded.address(schema=f"own_{next(SCHEMAS)}"), "strict")
    async with opened(address) as one, opened(address) as other:
        answers = await asyncio.gather(*(increment(desk) for desk in (one, other) for _ in range(20)))
        assert sorted(answers) == list(range(1, 41))
        assert one.trouble is None and other.trouble is None


async def test_a_password_that_is_changed_while_the_desk_runs_is_trouble_until_it_is_right_again(
    guarded: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    address = as_user(guarded.address(schema=f"own_{next(SCHEMAS)}"), GUARDED)
    async with opened(address, patience=SHORT) as store, asking(guarded) as admin:
        await admin.execute("alter role guarded password 'another'")
        await admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'handraise'"
        )
        try:
            outcomes = await asyncio.gather(
                *(store.open(row(f"ask {number}")) for number in range(10)), store.get("a"), return_exceptions=True
            )
            assert all(isinstance(outcome, StoreFailed) for outcome in outcomes), outcomes
            assert "password authentication failed" in str(outcomes[0])
            assert SECRET not in f"{outcomes} {store.troubles} {caplog.text}"
        finally:
            await admin.execute(f"alter role guarded password '{SECRET}'")
        await eventually(lambda: store.trouble is None)
        assert (await store.open(row("ask 1"))).how == "new"


async def test_a_database_that_is_started_beside_the_desk_gets_time_to_come_up(
    own: PostgresServer, address: str
) -> None:
    await asyncio.to_thread(own.stop)
    opening = asyncio.create_task(open_store(address))
    await asyncio.to_thread(own.start)
    store = await asyncio.wait_for(opening, LONG)
    assert (await store.open(row("a"))).how == "new"
    await store.close()


async def test_tls_is_used_where_it_is_asked_for(own: PostgresServer, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl here to make a certificate with")
    data = own.folder / "data"
    make_certificate(data)
    root, other = tmp_path / "root.crt", tmp_path / "other"
    shutil.copyfile(data / "server.crt", root)
    other.mkdir()
    make_certificate(other)
    schema = f"own_{next(SCHEMAS)}"
    async with asking(own) as admin:
        try:
            await admin.execute("alter system set ssl = on")
        except asyncpg.PostgresError as without:
            pytest.skip(f"the PostgreSQL here was built without TLS: {without}")
        await admin.execute("select pg_reload_conf()")
        try:
            for options in ("sslmode=require", f"sslmode=verify-full&sslrootcert={root}"):
                async with opened(f"{own.address(schema=schema)}&{options}") as store:
                    assert await store.read("select ssl from pg_stat_ssl where pid = pg_backend_pid()") == [(True,)]
                    clear = "select count(*) from pg_stat_ssl join pg_stat_activity using (pid) where not ssl "
                    assert await admin.fetchval(f"{clear} and application_name = 'handraise'") == 0
            options = f"sslmode=verify-full&sslrootcert={other / 'server.crt'}"
            with pytest.raises(StoreError, match=r"certificate verify failed.*sslrootcert"):
                await PostgresStore.open_address(f"{own.address(schema=schema)}&{options}", patience=AT_ONCE)
        finally:
            await admin.execute("alter system reset ssl")
            await admin.execute("select pg_reload_conf()")


def make_certificate(folder: Path) -> None:
    """Self-signed, for 127.0.0.1, and readable by whom the folder belongs to alone."""
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-keyout",
                "server.key",
                "-out",
                "server.crt",
            ),
            *("-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=LONG,
    )
    for name in ("server.key", "server.crt"):
        (folder / name).chmod(0o600)
        os.chown(folder / name, folder.stat().st_uid, folder.stat().st_gid)


# Proxies that pool ------------------------------------------------------------------------------------------

POOLED = r"is a proxy that pools transactions .*; give the address of PostgreSQL itself, or .*pool_mode=session"


async def test_a_proxy_that_swallows_notifications_is_refused_and_nothing_is_made(own: PostgresServer) -> None:
    schema = f"own_{next(SCHEMAS)}"
    async with Proxy(own, is_pool=True) as proxy:
        with pytest.raises(StoreError, match=POOLED):
            await PostgresStore.open_address(proxy.address(schema), patience=AT_ONCE)
    async with asking(own) as admin:
        assert await admin.fetchval("select to_regnamespace($1)", schema) is None


@asynccontextmanager
async def pgbouncer(server: PostgresServer, *, pool_mode: str) -> AsyncIterator[int]:
    """The port of a real one."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("there is no pgbouncer here")
    port = free_port()
    settings = server.folder / f"{pool_mode}.ini"
    settings.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port} user=desk\n"
        f"[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\nunix_socket_dir=\nauth_type=any\n"
        f"pool_mode={pool_mode}\n"
    )
    owner = {"user": server.folder.stat().st_uid, "group": server.folder.stat().st_gid} if os.geteuid() == 0 else {}
    process = await asyncio.create_subprocess_exec(
        *(program, "-q", str(settings)), cwd=server.folder, stderr=asyncio.subprocess.DEVNULL, **owner
    )
    try:
        async with asyncio.timeout(LONG):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    break
                except ConnectionRefusedError:
                    await asyncio.sleep(0.02)
        writer.close()
        yield port
    finally:
        process.kill()
        await process.wait()


async def test_a_pgbouncer_that_pools_transactions_is_refused(own: PostgresServer) -> None:
    schema = f"own_{next(SCHEMAS)}"
    async with pgbouncer(own, pool_mode="transaction") as port:
        with pytest.raises(StoreError, match=POOLED):
            await PostgresStore.open_address(
                f"postgresql://desk@127.0.0.1:{port}/postgres?schema={schema}", patience=AT_ONCE
            )
    async with asking(own) as admin:
        assert await admin.fetchval("select to_regnamespace($1)", schema) is None


async def test_a_pgbouncer_that_pools_sessions_works(own: PostgresServer) -> None:
    async with pgbouncer(own, pool_mode="session") as port:
        address = f"postgresql://desk@127.0.0.1:{port}/postgres?schema=own_{next(SCHEMAS)}"
        async with opened(address) as one, opened(address) as other:
            told: list[StoredEvent] = []
            other.tail(told.extend)
            for number in range(10):
                await one.open(row(f"ask {number}"))
            events = await history(one)
            await eventually(lambda: len(told) >= len(events))
            assert told == events


# Versions ---------------------------------------------------------------------------------------------------


async def test_a_server_that_is_too_old_is_refused(own: PostgresServer) -> None:
    async with Proxy(own) as proxy:
        proxy.version = b"12"
        with pytest.raises(StoreError, match="is PostgreSQL 12; handraise needs 13 or newer"):
            await PostgresStore.open_address(proxy.address(f"own_{next(SCHEMAS)}"), patience=AT_ONCE)


async def test_a_database_of_a_newer_handraise_is_refused_and_left_as_it_is(own: PostgresServer, address: str) -> None:
    async with opened(address) as store:
        await store.open(row("a"))
        await store.write("insert into versions values (9999)")
    for _ in range(2):
        with pytest.raises(StoreTooNew, match="upgrade handraise"):
            await open_store(address)
    await at_most(0, own)


async def test_desks_that_start_at_the_same_time_on_an_empty_database_all_come_up(address: str) -> None:
    stores = await asyncio.gather(*(open_store(address) for _ in range(5)))
    try:
        opened = await asyncio.gather(*(store.open(row("a")) for store in stores))
        assert Counter(each.how for each in opened) == {"new": 1, "joined": 4}
        [[versions, newest]] = await stores[0].read("select count(*), max(version) from versions")
        assert versions == newest, "something was applied twice, or not at all"
    finally:
        for store in stores:
            await store.close()


def test_without_the_driver_the_extra_is_named() -> None:
    script = (
        "import asyncio, sys; sys.modules['asyncpg'] = None\n"
        "from handraise.app import open_store\n"
        "from handraise.errors import SettingsError\n"
        "try:\n    asyncio.run(open_store('postgresql://desk@127.0.0.1/postgres'))\n"
        "except SettingsError as missing:\n    print(missing)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LONG)
    assert "pip install 'handraise[postgres]'" in done.stdout, done.stderr
