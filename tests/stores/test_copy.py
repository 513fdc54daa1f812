"""`handraise store copy`: real databases, real processes, and a desk that goes on where the copied one stopped."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from handraise.app import look_at, open_store
from handraise.channels.linear.room import LinearSession, Post, Room
from handraise.channels.linear.translate import thought
from handraise.chat import ChatSettings, ModelTable
from handraise.errors import StoreError
from handraise.stores import Page, Query, Store, without_password
from handraise.stores._asks import EVENT_COLUMNS, migrations
from handraise.testing import an_ask
from handraise.testing.postgres import PostgresServer
from handraise.testing.stores import NOW, row
from handraise.testing.stores import closing as settling
from handraise.wire import content_text
from tests.helpers.commands import Done
from tests.helpers.quick import quick_handraise
from tests.helpers.serving import BASH, START, Served, a_body, a_permission_body, listening, path_of, serving, told
from tests.helpers.talking import Talk
from tests.helpers.trusting import trust_project

MANY = 20_000
NOBODY = ChatSettings(models={"none": ModelTable(api="openai", model="none", url="http://127.0.0.1:9")})

# A copy that shoots itself, or presses Ctrl+C, when half of the rows are over.
STOPPING = """
import asyncio, os, sys
from handraise.app import open_store
from handraise.stores._copy import Progress, copy

source, target, number = sys.argv[1:]

def stop(progress: Progress) -> None:
    if progress.doing == "copying" and progress.done > progress.total / 2:
        os.kill(os.getpid(), int(number))

async def main() -> None:
    await copy(await open_store(source), await open_store(target), progress=stop)
    print("it went on")

asyncio.run(main())
"""


TABLES = (
    *("asks", "browsers", "chat_messages", "chats", "checkpoints", "events", "linear_activities", "linear_deliveries"),
    *("linear_sessions", "links", "messages", "orders", "rules", "runs", "sessions", "showings", "trace", "wires"),
)


class Databases:
    """Addresses of databases that are not there yet."""

    def __init__(self, folder: Path, *, new_database: Callable[[], str]) -> None:
        self._folder = folder
        self._new_database = new_database
        self._count = 0

    def new(self, kind: str) -> str:
        self._count += 1
        return self._new_database() if kind == "postgres" else f"sqlite:///{self._folder}/{self._count}/desk.db"


@pytest.fixture(scope="module", autouse=True)
def program() -> Iterator[None]:
    """`handraise` on the PATH. Each call is a process of its own, only quicker to start."""
    with quick_handraise() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture
def databases(tmp_path: Path, new_database: Callable[[], str]) -> Databases:
    return Databases(tmp_path, new_database=new_database)


WAYS = ["sqlite to postgres", "postgres to sqlite", "sqlite to sqlite", "postgres to postgres"]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, databases: Databases) -> tuple[str, str]:
    """Source and target."""
    source, _, target = request.param.partition(" to ")
    return databases.new(source), databases.new(target)


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def environ(**more: str) -> dict[str, str]:
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("HANDRAISE_", "PG"))}
    return {**mine, "NO_COLOR": "1", **more}


async def handraise(*words: str, **env: str) -> Done:
    process = await asyncio.create_subprocess_exec(
        *("handraise", *words),
        env=environ(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 2 * START)
    assert process.returncode is not None
    return Done(process.returncode, out.decode(), err.decode())


async def store_copy(source: str, target: str, *options: str, **env: str) -> Done:
    return await handraise("store", "copy", source, target, *options, **env)


async def refused(source: str, target: str, code: int = 1) -> str:
    """The one sentence with which a copy is refused."""
    done = await store_copy(source, target)
    assert (done.code, done.out) == (code, ""), done
    assert len(done.err.splitlines()) == 1 and done.err.startswith("handraise: "), done.err
    return done.err


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Store]:
    store = await open_store(address)
    try:
        yield store
    finally:
        await store.close()


async def everything(address: str) -> dict[str, Any]:
    """All that a store holds, read by other means than those of the copy."""
    async with opened(address) as store:
        tables = (*TABLES, "tokens")
        rows = {table: sorted(await store.read(f"select * from {table}"), key=repr) for table in tables}
        asks, told = await store.find(Query(), limit=MANY), await store.history(Query(), after=0, limit=2 * MANY)
        return {**rows, "found": asks, "told": told, "cursor": await store.cursor(), "pruned": await store.pruned()}


async def is_empty(address: str) -> bool:
    found = await everything(address)
    return not any(found.values())


async def make_desk(desk: Served) -> None:
    """One ask of each fate, a rule, a lasting grant, two sessions that ask and one started here, a run that waits for a
    person, a link to answer by, a chat, a session of Linear's, something shown in a channel, a second token."""
    file = desk.settings.home / ".handraise" / "workflows" / "one.py"
    file.parent.mkdir(parents=True)
    file.write_text('from handraise.workflow import *\none = Workflow("one", checkpoint("review"))\n')
    trust_project(desk.settings.home, home=desk.settings.home)
    run = await told(desk.http.post("/v1/runs", json={"workflow": "one", "cwd": str(desk.settings.home)}), 201)
    waiting = await told(desk.http.get(f"/v1/runs/{run['id']}?wait=5"), 200)
    assert waiting["state"] == "waiting"
    await told(desk.http.post("/v1/rules", json={"tool": "read", "action": "ask"}), 201)
    await desk.caller("phone", "answer")
    assert (await (await desk.client()).post(desk.running.sign_in_url)).status_code == 200
    await desk.ask(id="answered")
    await desk.answer("answered", "Postgres")
    await told(desk.http.post("/v1/deliveries", json={"deliveries": [{"id": "answered"}]}), 200)
    await desk.ask(id="ünïcode 😀", origin={"agent": "scripted", "session": "s2", "cwd": "/srv/shöp"})
    await told(desk.http.post(path_of("ünïcode 😀", "withdraw"), json={"reason": "line\nbreak ‮"}), 200)
    await desk.ask(id="decided", question_policy="accept-first")
    by_desk = {"id": "session", "patterns": ["make *"], "by_desk": True}
    permission = {**BASH, "scopes": [by_desk]}
    await told(desk.http.post("/v1/asks", json=a_permission_body(id="granted", permission=permission)), 201)
    await told(desk.http.post(path_of("granted", "answer"), json={"reply": "always", "scope": "session"}), 200)
    started = await told(desk.http.post("/v1/sessions", json={"agent": "scripted", "prompt": "hello"}), 201)
    await told(desk.http.get(f"/v1/sessions/{started['id']}?wait=5"), 200)
    await desk.ask(id="waits", question_timeout=86_400)
    await told(desk.http.post(path_of("waits", "link"), json={}), 201)
    await told(
        desk.http.post(path_of("waits", "showings"), json={"channel": "wall", "state": "sent", "place": "7"}), 200
    )
    room = Room(desk.broker.store, "linear")
    session = LinearSession(
        id="l1", session="linear:l1", kind="assignment", state="live", created_at=NOW, expires_at=NOW + 1
    )
    await room.create(session, Post("begun", thought("Looking at it — ünïcode")))
    await room.receive("created l1", {"session": "l1"}, at=NOW)
    await (await Talk.begin(desk.http, "Anybody?")).until()


async def make_many(address: str, *, events: int = MANY) -> None:
    """One ask after the other, each asked and answered."""
    content = content_text(an_ask())
    made = events // 2
    columns = ["seq", "id", "owner", "session", "agent", "content", "state", "asked_at", "answer"]
    answer = '{"answers": [["SQLite"]], "by": "ana"}'

    async def pages() -> AsyncIterator[Page]:
        yield (
            "asks",
            columns,
            [(n, f"a{n}", "", "s1", "x", content, "answered", NOW, answer) for n in range(1, made + 1)],
        )
        rows = []
        for n in range(1, made + 1):
            rows.append((2 * n - 1, "asked", NOW, None, n, "asked", NOW, None, None, None, None, None))
            rows.append((2 * n, "answered", NOW, None, n, "answered", NOW, None, answer, None, None, None))
        yield "events", list(EVENT_COLUMNS), rows
        yield "sessions", ["id", "agent", "created_at"], [("s1", "x", NOW)]
        yield "tokens", ["name", "hash", "scopes", "created_at"], [("admin", "00", "admin", NOW)]
        yield "counters", ["name", "value"], [("pruned", 0)]

    async with opened(address) as store:
        await store.fill(pages())


# What is taken over -----------------------------------------------------------------------------------------


async def test_everything_is_taken_over_in_every_direction(way: tuple[str, str], tmp_path: Path) -> None:
    source, target = way
    async with serving(tmp_path / "home", database=source, chat=NOBODY) as desk:
        await make_desk(desk)
    before = await everything(source)
    done = await store_copy(source, target, "--json")
    assert (done.code, done.err) == (0, "")
    assert await everything(target) == before
    assert await everything(source) == before, "the source was changed"
    summary = json.loads(done.out)
    counts = {table: len(before[table]) for table in TABLES}
    assert summary["rows"] == {**counts, "tokens": 2, "workers": 0, "leases": 0}
    assert all(counts.values())
    assert summary["cursor"] == before["cursor"] > 0
    assert (summary["source"], summary["target"]) == (source, target)


async def test_a_desk_on_the_copy_goes_on_where_the_other_stopped(way: tuple[str, str], tmp_path: Path) -> None:
    source, target = way
    home = tmp_path / "home"
    async with serving(home, database=source, chat=NOBODY) as desk:
        await make_desk(desk)
        async with listening(desk.http, after=0) as listener:
            await listener.frame()
            seen = listener.cursor
        token, tokens = desk.token, await told(desk.http.get("/v1/tokens"), 200)
        cursor = (await told(desk.http.get("/v1/cursor"), 200))["cursor"]
        kept = await desk.get("waits")
    assert (await store_copy(source, target)).code == 0
    async with serving(home, database=target) as desk:
        assert desk.token == token
        assert await told(desk.http.get("/v1/tokens"), 200) == tokens, "the token of the home was made again"
        joined = await desk.http.post("/v1/asks", json=a_body(id="waits", question_timeout=86_400))
        assert joined.status_code == 200, "an agent that asks again joins"
        assert (await desk.get("waits"))["deadline"] == kept["deadline"]
        async with listening(desk.http, last_event_id=seen) as listener:
            types = [(await listener.frame()).event for _ in range(int(cursor) - int(seen or 0))]
            assert listener.cursor == str(cursor)
            await desk.answer("waits", "SQLite")
            assert ((await listener.frame()).event, listener.cursor) == ("answered", str(cursor + 1))
        assert types[0] == "answered" and types[-1] == "asked"
        await desk.ask(id="new")
        listed = await told(desk.http.get("/v1/asks"), 200)
        assert [ask["id"] for ask in listed["asks"]] == ["answered", "ünïcode 😀", "decided", "granted", "waits", "new"]


@pytest.mark.parametrize("before", [NOW + 1, NOW + 1_000_000], ids=["some pruned", "all pruned"])
async def test_no_cursor_and_no_number_is_given_out_twice_after_a_copy(way: tuple[str, str], before: int) -> None:
    source, target = way
    async with opened(source) as store:
        for number in range(5):
            await store.open(row(f"a{number}", asked_at=NOW + number))
            await store.change(f"a{number}", settling())
        last = (await store.find(Query(), limit=10))[-1].seq
        while await store.prune(before=before, limit=3):
            pass
        cursor, pruned = await store.cursor(), await store.pruned()
        assert (cursor, pruned > 0) == (10, True)
    assert (await store_copy(source, target)).code == 0
    async with opened(target) as store:
        assert (await store.cursor(), await store.pruned()) == (cursor, pruned)
        assert (await store.open(row("new"))).stored.seq > last
        assert [event.cursor for event in await store.history(Query(), after=cursor, limit=10)] == [cursor + 1]


async def test_a_source_that_was_analyzed_is_copied_like_any_other(databases: Databases) -> None:
    source, target = databases.new("sqlite"), databases.new("sqlite")
    await make_many(source, events=10)
    with closing(sqlite3.connect(file_of(source))) as connection:
        connection.execute("analyze")
    assert (await store_copy(source, target)).code == 0
    assert await everything(target) == await everything(source)


async def test_people_are_told_how_many_of_what_and_what_comes_next(databases: Databases) -> None:
    source, target = databases.new("sqlite"), databases.new("postgres")
    await make_many(source, events=2)
    done = await store_copy(source, target)
    assert done.code == 0
    assert done.out.startswith("copied 1 ask, 2 events, 1 session and 1 token in ")
    assert done.out.endswith(" s; both databases hold the same\n")
    assert done.err == f"start the desk on it: HANDRAISE_DATABASE='{target}' handraise serve\n"


async def test_a_terminal_shows_how_far_it_is(databases: Databases) -> None:
    source, target = databases.new("sqlite"), databases.new("sqlite")
    await make_many(source, events=10)
    here, there = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handraise", "store", "copy", source, target, "--json"),
        env=environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=there,
    )
    os.close(there)
    out, _ = await asyncio.wait_for(process.communicate(), START)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while more := os.read(here, 1024):
            shown += more
    os.close(here)
    assert json.loads(out)["rows"]["events"] == 10
    lines = shown.decode().split("\r")
    assert "copying asks: 27 %, 5 of 18 rows" in [line.rstrip() for line in lines]
    assert "\n" not in shown.decode() and not lines[-1].strip(), "the line is gone at the end"


# What is refused --------------------------------------------------------------------------------------------

SOMETHING = {
    "sessions": "insert into sessions (id, agent, created_at) values ('s', 'x', 1) returning id",
    "tokens": "insert into tokens (name, hash, scopes, created_at) values ('t', 'h', 'ask', 1) returning name",
}


@pytest.mark.parametrize("what", ["asks", "sessions", "tokens"])
async def test_a_target_that_holds_anything_is_refused_and_left_as_it_is(
    kind: str, what: str, databases: Databases
) -> None:
    source, target = databases.new("sqlite"), databases.new(kind)
    await make_many(source, events=4)
    async with opened(target) as store:
        await (store.open(row("a")) if what == "asks" else store.write(SOMETHING[what]))
    before = await everything(target)
    sentence = await refused(source, target)
    assert f"is not empty, it holds 1 {what[:-1]}" in sentence and "Name another file, or another schema" in sentence
    assert await everything(target) == before


async def test_the_same_database_is_recognised_however_it_is_spelled(
    databases: Databases, postgres: PostgresServer, tmp_path: Path
) -> None:
    source = databases.new("sqlite")
    await make_many(source, events=2)
    link = tmp_path / "link.db"
    link.symlink_to(file_of(source))
    for target in (source, source.replace("sqlite:///", "sqlite://"), f"sqlite:///{link}"):
        assert "source and target are the same database" in await refused(source, target, 2)
    by_port, by_socket = postgres.address(schema="same"), postgres.address(schema="same", by_socket=True)
    await make_many(by_port, events=2)
    for target in (by_port, by_socket, by_port.replace("127.0.0.1", "localhost").replace("postgresql:", "postgres:")):
        assert "source and target are the same database" in await refused(by_port, target, 2)
    assert (await store_copy(by_socket, postgres.address(schema="another"))).code == 0


async def test_a_desk_that_holds_the_source_or_the_target_is_to_be_stopped_first(databases: Databases) -> None:
    held, free = databases.new("sqlite"), databases.new("sqlite")
    await make_many(free, events=2)
    async with opened(held):
        for source, target in ((held, databases.new("sqlite")), (free, held)):
            sentence = await refused(source, target)
            assert f"another desk (process {os.getpid()}) holds" in sentence
            assert sentence.endswith("; stop that desk first, then copy again\n")
            assert not file_of(target).exists() or target == held


async def test_a_source_that_is_not_there_is_an_error_and_is_not_made(kind: str, databases: Databases) -> None:
    source, target = databases.new(kind), databases.new(kind)
    assert "there is no desk in " in await refused(source, target)
    for address in (source, target):
        assert (await look_at(address)).version is None
    assert kind == "postgres" or not file_of(source).parent.exists()


async def test_a_source_of_an_older_handraise_is_refused_and_left_as_it_is(databases: Databases) -> None:
    source, target = databases.new("sqlite"), databases.new("sqlite")
    await make_many(target, events=2)
    file_of(source).parent.mkdir()
    with closing(sqlite3.connect(file_of(source))) as connection:
        number, statements = next(iter(migrations("sqlite", version=0)))
        connection.executescript(f"{statements}; pragma user_version = {number}")
    before = file_of(source).read_bytes()
    assert "written by an older handraise" in await refused(source, databases.new("sqlite"))
    assert "holds a desk of an older handraise" in await refused(target, source)
    assert file_of(source).read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("alter table events add column later text", "they differ in later in the table events"),
        ("create table rooms (name text primary key)", "they differ in the table rooms"),
    ],
)
async def test_databases_of_different_versions_are_refused_with_what_differs(
    statement: str, said: str, databases: Databases
) -> None:
    source, target = databases.new("sqlite"), databases.new("postgres")
    await make_many(source, events=2)
    with closing(sqlite3.connect(file_of(source))) as connection:
        connection.execute(statement)
    assert said in await refused(source, target)
    assert await is_empty(target)


@pytest.mark.parametrize("address", ["sqlite:///:memory:", "mysql://ana:geheim@host/desk", "desk.db"])
async def test_an_address_that_keeps_nothing_or_is_none_is_named(address: str, databases: Databases) -> None:
    source = databases.new("sqlite")
    await make_many(source, events=2)
    assert without_password(address) in await refused(source, address, 2)


async def test_a_file_that_is_broken_is_named(databases: Databases) -> None:
    source = databases.new("sqlite")
    file_of(source).parent.mkdir()
    file_of(source).write_text("this is not a database, and longer than the head of one" * 100)
    assert f"{file_of(source)} cannot be read" in await refused(source, databases.new("sqlite"))


# What breaks off, and what differs --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl+C"])
async def test_a_copy_that_is_ended_in_the_middle_leaves_the_target_empty_and_works_again(
    kind: str, number: signal.Signals, databases: Databases
) -> None:
    source, target = databases.new("sqlite"), databases.new(kind)
    await make_many(source)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STOPPING, source, target, str(int(number))),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 2 * START)
    assert (process.returncode, out) == (-number, b"")
    assert await is_empty(target)
    done = await store_copy(source, target, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"]["events"] == MANY
    assert await everything(target) == await everything(source)


@pytest.mark.parametrize("how", ["Ctrl+C", "connection lost"])
async def test_a_copy_that_ends_in_postgres_keeps_desks_out_until_then(
    how: str, databases: Databases, postgres: PostgresServer
) -> None:
    source, target = databases.new("sqlite"), databases.new("postgres")
    await make_many(source, events=1000)
    schema = target.rpartition("=")[2]
    async with opened(target) as desk:
        other = await asyncpg.connect(postgres.address())
        holding = other.transaction()
        await holding.start()
        await other.execute(f"lock table {schema}.tokens in share mode")  # the last table can be read, not filled
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handraise", "store", "copy", source, target),
            env=environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        waiting = (
            "select pid from pg_locks where not granted and relation = "
            f"'{schema}.tokens'::regclass and locktype = 'relation'"
        )
        async with asyncio.timeout(START):
            while (pid := await other.fetchval(waiting)) is None:
                await asyncio.sleep(0.01)
        writing = asyncio.create_task(desk.write(SOMETHING["sessions"]))
        behind = (
            "select 1 from pg_locks where not granted and locktype = 'advisory' and $1 = any(pg_blocking_pids(pid))"
        )
        async with asyncio.timeout(START):
            while not await other.fetchval(behind, pid):
                await asyncio.sleep(0.01)
        assert not writing.done()
        if how == "Ctrl+C":
            process.send_signal(signal.SIGINT)
        else:
            await other.execute("select pg_terminate_backend($1)", pid)
        out, err = await asyncio.wait_for(process.communicate(), START)
        await holding.rollback()
        await other.close()
        if how == "Ctrl+C":
            assert (process.returncode, out) == (130, b"")
        else:
            assert (process.returncode, len(err.splitlines())) == (1, 1)
            assert b"nothing was kept" in err
        assert await asyncio.wait_for(writing, START) == [("s",)]
        assert await desk.read("select count(*) from asks") == [(0,)]


@pytest.mark.parametrize("kind", ["postgres"])
async def test_what_a_target_cannot_hold_is_named_and_nothing_is_kept(kind: str, databases: Databases) -> None:
    source, target = databases.new("sqlite"), databases.new(kind)
    async with opened(source) as store:
        await store.open(row("a", run="with a NUL \x00"))
    sentence = await refused(source, target)
    assert "did not take all of it: asks: invalid byte sequence" in sentence
    assert await is_empty(target)


@pytest.mark.parametrize(
    ("loses", "said"),
    [
        ("after insert on events begin delete from events where cursor = 7", "table events differs (40 rows in the"),
        (
            "after insert on asks begin update asks set answer = '{}' where seq = 7",
            "table asks differs (20 rows on both",
        ),
        ("after insert on tokens begin update tokens set hash = null where name = ''", None),
    ],
    ids=["a row is lost", "a value is changed", "nothing is lost"],
)
async def test_a_copy_that_is_not_the_same_is_said_with_its_table(
    loses: str, said: str | None, databases: Databases
) -> None:
    source, target = databases.new("sqlite"), databases.new("sqlite")
    await make_many(source, events=40)
    async with opened(target):
        pass
    with closing(sqlite3.connect(file_of(target))) as connection:
        connection.execute(f"create trigger loses {loses}; end")
    if said is None:
        assert (await store_copy(source, target)).code == 0
        return
    sentence = await refused(source, target)
    assert f"the copy is not the same as the source: the {said}" in sentence and "do not use it" in sentence


# Passwords --------------------------------------------------------------------------------------------------


async def test_no_password_is_ever_shown(databases: Databases) -> None:
    source, target = databases.new("sqlite"), databases.new("postgres")
    await make_many(source, events=2)
    secret = target.replace("desk@", "desk:geheim@") + "&password=geheim"
    away = "postgresql://desk:geheim@127.0.0.1:1/desk"
    for done in (
        await store_copy(source, secret),
        await store_copy(secret, databases.new("sqlite"), "--json"),
        await store_copy(source, away),
        await handraise("doctor", HANDRAISE_DATABASE=secret),
        await handraise("doctor", HANDRAISE_DATABASE=away),
    ):
        assert "geheim" not in done.out + done.err
        assert "postgresql://desk@127.0.0.1" in done.out + done.err


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ana:geheim@host:5432/desk?schema=x", "postgresql://ana@host:5432/desk?schema=x"),
        ("postgresql://ana:ge@he/i#m?@host/desk", "postgresql://ana@host/desk"),
        ("postgresql://ana@host/desk?password=ge@heim&schema=x", "postgresql://ana@host/desk?schema=x"),
        ("postgresql://host/desk?sslpassword=geheim", "postgresql://host/desk"),
        ("postgresql://:geheim@/desk?host=/run/pg", "postgresql://@/desk?host=/run/pg"),
        ("ana:geheim@host/desk", "ana@host/desk"),
        ("postgresql://localhost:5432/desk", "postgresql://localhost:5432/desk"),
        ("sqlite:////srv/a:b@c/desk.db", "sqlite:////srv/a:b@c/desk.db"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    assert without_password(address) == shown


@pytest.mark.parametrize("address", ["postgresql://u:ge#heim@h/d", "postgresql://u:ge/heim@h/d", "postgresql://[::1/d"])
async def test_an_address_that_cannot_be_read_is_said_without_its_password(address: str) -> None:
    for use in (open_store, look_at):
        with pytest.raises(StoreError, match="PGPASSWORD") as raised:
            await use(address)
        assert "ge" not in str(raised.value).partition(" cannot be read")[0].replace("postgresql", "")


def file_of(address: str) -> Path:
    return Path("/") / address.removeprefix("sqlite:").lstrip("/")
