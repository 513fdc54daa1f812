"""The shared store: one PostgreSQL database, any number of desks, group commit.

Everything that arrives while a commit runs goes into the next one, as a handful of statements over arrays. Each commit
takes one advisory lock first, so commits happen one after the other across all desks and event cursors are drawn in
the order in which they become visible: a reader never skips an event that commits late. NOTIFY carries the newest
cursor and nothing else; what happened is read from the tables, so a notification that was lost costs only time.

A connection may be lost at any moment. What was not committed is written again; each commit numbers itself in a row of
its desk, so whether one whose answer was lost took place is looked up there. So a write happens once, or its caller
hears that it failed.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections import Counter, defaultdict
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit
from uuid import uuid4

from handraise.clock import Backoff
from handraise.errors import SettingsError, StoreError, StoreFailed
from handraise.stores import (
    NO_EXTRA_WRITES,
    AlsoWrite,
    Change,
    Changed,
    NewAsk,
    OpenAsks,
    Opened,
    Page,
    Query,
    Row,
    Seen,
    Statement,
    Tail,
    without_password,
)
from handraise.stores._asks import (
    COLUMNS,
    CONTENT,
    CONTENT_OF_EVENT,
    DEADLINES,
    EVENT_COLUMNS,
    FIND_ID,
    OPEN_ASKS,
    UNTAKEN,
    event_of,
    event_row,
    find,
    history,
    migrations,
    until_full,
)
from handraise.stores._search import Dialect, search
from handraise.wire import Stored, StoredEvent

try:
    import asyncpg
except ImportError:
    raise SettingsError(
        "PostgreSQL needs a driver that is not installed; `pip install 'handraise[postgres]'` brings it"
    ) from None

__all__ = ["PostgresStore", "plugin"]

log = logging.getLogger(__name__)

T = TypeVar("T")
Connection: TypeAlias = Any  # asyncpg comes without types

SCHEMA = "handraise"
_DIALECT = Dialect('strpos(lower({column} collate "C"), ?) > 0')
OLDEST_VERSION = 13  # those before are not looked after any more
NAME = "handraise"  # as the database knows our connections
LOCK = 4263  # the first half of our advisory lock keys; the second is the table or the purpose
MIGRATING = 1
MOST_AT_ONCE = 1000  # operations of one commit
MOST_WAITING = 20_000  # operations that wait for a database that is away
READERS = 4  # connections for reading
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between attempts
PAGE = 500
MIGRATION = 3600.0  # seconds that it may take to bring a large database up to date

# A desk that is suspended in the middle of a commit must not hold up the others, nor one whose machine is gone.
_SESSION = """
set application_name = '{name}';
set search_path = {schema};
set default_transaction_isolation = 'read committed';
set default_transaction_read_only = off;
set lock_timeout = {lock:.0f};
set idle_in_transaction_session_timeout = {stuck:.0f};
set tcp_user_timeout = {stuck:.0f};
set tcp_keepalives_idle = 15;
set tcp_keepalives_interval = 5;
set tcp_keepalives_count = 3;
select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off';
"""

_TYPES = {
    "seq": "bigint",
    "asked_at": "bigint",
    "timeout": "bigint",
    "deadline": "bigint",
    "delivered_at": "bigint",
    "at": "bigint",
    "ask": "bigint",
}  # of the columns that are no text
_NEW = tuple(name for name in NewAsk._fields if name != "events")


def _arrays(columns: Iterable[str], *, first: int = 1) -> str:
    return ", ".join(f"${number}::{_TYPES.get(name, 'text')}[]" for number, name in enumerate(columns, first))


_OPEN = f"""
insert into asks ({", ".join(_NEW)}) select * from unnest({_arrays(_NEW)})
on conflict (id) do update set
    worker = excluded.worker, state = excluded.state, openings = asks.openings + 1, asked_at = excluded.asked_at,
    timeout = excluded.timeout, deadline = excluded.deadline, fallback = excluded.fallback,
    answer = excluded.answer, judgement = excluded.judgement, withdrawn_reason = null
where asks.state = 'withdrawn' and asks.content = excluded.content
returning {", ".join("null" if name == "content" else name for name in Stored._fields)}"""  # noqa: S608 - names of our own columns, here and below
_FIND_IDS = f"select {COLUMNS} from asks where id = any($1)"  # noqa: S608
_NEWEST = f"select distinct on (base) base, {COLUMNS} from asks where base = any(?) order by base, seq desc"  # noqa: S608
_CLAIM = """
update asks set worker = new.worker from unnest($1::text[], $2::text[]) as new (id, worker)
where asks.id = new.id and asks.state = 'asked'"""
_TOLD = EVENT_COLUMNS[1:]  # all but the cursor, which is drawn here
_TELL = f"""
with drawn as (
    update counters set value = value + $1 where name = 'cursor' returning value - $1 as before
), written as (
    insert into events (cursor, {", ".join(_TOLD)})
    select drawn.before + new.number, {", ".join(f"new.{name}" for name in _TOLD)}
    from drawn, unnest({_arrays(_TOLD, first=3)}) with ordinality as new ({", ".join(_TOLD)}, number)
)
select before, pg_notify($2, (before + $1)::text) from drawn"""  # noqa: S608
_MARK = """
insert into writers (name, number) values ('{name}', {number})
on conflict (name) do update set number = excluded.number, at = now()"""
# A desk that is suspended while it is being answered is not idle for the database, which would wait for it for ever.
_END_STUCK = f"""
select pg_terminate_backend(pid) from pg_locks join pg_stat_activity using (pid)
where locktype = 'advisory' and granted and classid = {LOCK} and objid = 'events'::regclass::oid
and pg_locks.database = (select oid from pg_database where datname = current_database())
and application_name = '{NAME}' and wait_event_type = 'Client'
and state_change < clock_timestamp() - make_interval(secs => ?)"""  # noqa: S608
_FORGET = """
delete from asks where seq = any($1) and state <> 'asked'
and not exists (select 1 from events where events.ask = asks.seq)"""
# `asks` is what `fill` numbers on after, where the newest asks went.
_PRUNED = """
insert into counters values ('pruned', $1), ('asks', $2)
on conflict (name) do update set value = greatest(counters.value, excluded.value)"""


_COUNT_ON = """
insert into counters values ('cursor', 0), ('pruned', 0) on conflict (name) do nothing;
update counters set value = greatest(
    0, (select max(cursor) from events), (select value from counters where name = 'pruned')
) where name = 'cursor';
select setval(pg_get_serial_sequence('asks', 'seq'), greatest(
    0, (select max(seq) from asks), (select value from counters where name = 'asks')
) + 1, false)"""
# No two servers start in the same microsecond.
_PLACE = """
select concat(oid, ' ', extract(epoch from pg_postmaster_start_time()))
from pg_database where datname = current_database()"""
_UNUSABLE = (  # what connecting may raise
    OSError,
    ValueError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How many seconds things may take."""

    start: float = 10.0  # for a database that is started beside us to come up
    write: float = 30.0  # that a write waits for a database that is away
    read: float = 5.0  # that a read does; our clients give a desk ten
    close: float = 5.0  # that closing waits for a database that is away
    answer: float = 20.0  # after which a connection that says nothing counts as lost
    lock: float = 10.0  # that a commit waits for those of other desks before it says that something is wrong
    stuck: float = 15.0  # after which the database ends a commit whose desk does not go on with it
    poll: float = 5.0  # after which we look for what no notification told us of
    hello: float = 3.0  # that our own notification may take at the start


_DEFAULT_PATIENCE = Patience()


class _Open(NamedTuple):
    id: str
    new: NewAsk
    also_write: AlsoWrite

    def is_done(self, result: Opened) -> bool:
        return result.how in ("new", "reopened")


class _Alter(NamedTuple):
    id: str
    change: Change

    @property
    def also_write(self) -> AlsoWrite:
        return self.change.also_write

    def is_done(self, result: Changed | None) -> bool:
        return result is not None and result.done


class _Free(NamedTuple):
    """Anything else: a statement of another room."""

    run: Callable[[Connection], Awaitable[Any]]


_Step: TypeAlias = _Open | _Alter | _Free


@dataclass(slots=True, eq=False)
class _Operation:
    """What one caller wants in one commit. Its result is that of its steps."""

    steps: Sequence[_Step]
    done: asyncio.Future[list[Any]]
    since: float
    topics: Sequence[str]


@dataclass(slots=True, eq=False)
class _Written:
    """A transaction with everything in it, and what its callers will hear once it is committed."""

    batch: list[_Operation]
    results: list[Any]
    before: int  # the cursor before its own events
    events: list[StoredEvent]
    number: int  # among the commits of this store


class PostgresStore:
    clock = "cast(extract(epoch from clock_timestamp()) * 1000 as bigint)"
    """Open with `await PostgresStore.open_address(address)`. The address may name a `schema=` of its own."""

    def __init__(self, address: str, *, patience: Patience = _DEFAULT_PATIENCE) -> None:
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._dsn, schema = _split(address)
        self._schema = schema
        self._shown = re.sub(r"(?<=[?&])schema=[^&]*&?", "", without_password(address)).rstrip("?&")
        self._session = _SESSION.format(
            name=NAME, schema=_quoted(schema), lock=patience.lock * 1000, stuck=patience.stuck * 1000
        )
        self._name = uuid4().hex  # of our row in `writers`
        self._number = 0  # of the last commit that was tried
        self._writer: Connection = None
        self._writer_pid = 0
        self._version = ""
        self._readers: Connection = None
        self._begin = ""
        self._channel = ""
        self._waiting: list[_Operation] = []
        self._has_work = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._told = 0  # the cursor up to which our listeners know everything
        self._telling = asyncio.Lock()
        self._is_behind = asyncio.Event()
        self._tails: list[Tail] = []
        self._hearers: list[tuple[str, Callable[[], None]]] = []
        self._troubles: dict[str, str] = {}  # what is broken -> how it is said
        self._commit_sizes: Counter[int] = Counter()
        self._closed = False
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open_address(cls, address: str, *, patience: Patience = _DEFAULT_PATIENCE) -> PostgresStore:
        """Raises StoreError that says what to do, StoreTooNew where a newer handraise wrote the database."""
        store = cls(address, patience=patience)
        try:
            await store._start()
        except BaseException:
            await store._let_go()
            raise
        return store

    @classmethod
    async def look(cls, address: str) -> Seen:
        """What is there. Raises StoreTooNew, and StoreError that says what to do where nobody answers."""
        store = cls(address)
        try:
            connection = await store._connect()
            try:
                place = await connection.fetchval(_PLACE)
                has_versions = await connection.fetchval("select to_regclass('versions') is not null")
                found = await connection.fetchval("select max(version) from versions") if has_versions else None
            finally:
                await _hang_up(connection)
        except _UNUSABLE as problem:
            raise store._explained(problem) from None
        is_old = found is not None and any(migrations("postgres", version=found))
        return Seen(f"{store._shown}, schema {store._schema}", f"{place} {store._schema}", found, is_old)

    # Asks -------------------------------------------------------------------------------------------------

    async def open(self, new: NewAsk, *, also_write: AlsoWrite = NO_EXTRA_WRITES) -> Opened:
        [opened] = await self._write(_Open(new.id, new, also_write))
        return opened  # type: ignore[no-any-return]

    async def change(self, id: str, change: Change) -> Changed | None:
        [changed] = await self._write(_Alter(id, change))
        return changed  # type: ignore[no-any-return]

    async def change_all(self, changes: Sequence[tuple[str, Change]]) -> list[Changed | None]:
        return await self._write(*(_Alter(id, change) for id, change in changes)) if changes else []

    async def get(self, id: str) -> Stored | None:
        return next((Stored._make(row) for row in await self._fetch(FIND_ID, id)), None)

    async def newest(self, bases: Sequence[str]) -> dict[str, Stored]:
        rows = await self._fetch(_NEWEST, [base for base in bases if "\0" not in base])
        return {row[0]: Stored._make(tuple(row)[1:]) for row in rows}

    async def find(
        self,
        query: Query,
        *,
        after: int = 0,
        limit: int = 100,
        newest: bool = False,
        text: str | None = None,
        most: int | None = None,
    ) -> list[Stored]:
        if text:
            return await search(
                text,
                query.items(),
                after=after,
                limit=limit,
                newest=newest,
                most=most,
                dialect=_DIALECT,
                fetch=lambda sql, values: self._fetch(sql, *values),
            )
        sql, values = find(query.items(), after=after, limit=limit, newest=newest)
        rows = until_full(await self._fetch_page(sql, values, most=most), contents=(CONTENT,), most=most)
        return [Stored._make(row) for row in rows]

    async def history(
        self,
        query: Query,
        *,
        after: int,
        limit: int,
        since: int | None = None,
        types: Sequence[str] = (),
        most: int | None = None,
    ) -> list[StoredEvent]:
        sql, values = history(query.items(), after=after, limit=limit, since=since, types=types)
        page = await self._fetch_page(sql, values, most=most)
        rows = until_full(page, contents=(CONTENT_OF_EVENT,), most=most)
        return [event_of(tuple(row)) for row in rows]

    async def cursor(self) -> int:
        return await self._counter("cursor")

    async def open_asks(self) -> OpenAsks:
        [row] = await self._fetch(OPEN_ASKS)
        return OpenAsks._make(row)

    async def deadlines(self) -> list[tuple[int, str]]:
        return [(row[0], row[1]) for row in await self._fetch(DEADLINES)]

    async def untaken(self) -> list[str]:
        return [row[0] for row in await self._fetch(UNTAKEN)]

    async def prune(self, *, before: int, limit: int) -> int:
        async def run(connection: Connection) -> int:
            # The lock of the commit is held: nothing is added meanwhile.
            first_kept = await connection.fetchval(
                "select min(cursor) from (select cursor, at from events order by cursor limit $2) as oldest "
                "where at >= $1",
                before,
                limit,
            )
            gone = await connection.fetch(
                "delete from events where cursor in (select cursor from events "
                "where $1::bigint is null or cursor < $1 order by cursor limit $2) returning cursor, ask",
                first_kept,
                limit,
            )
            if gone:
                asks = {row["ask"] for row in gone}
                await connection.execute(_FORGET, list(asks))
                await connection.execute(_PRUNED, max(row["cursor"] for row in gone), max(asks))
            return len(gone)

        [count] = await self._write(_Free(run))
        return int(count)

    async def pruned(self) -> int:
        return await self._counter("pruned")

    async def _counter(self, name: str) -> int:
        [row] = await self._fetch("select value from counters where name = ?", name)
        return int(row[0])

    def tail(self, listener: Tail) -> Callable[[], None]:
        self._tails.append(listener)
        return partial(_leave, self._tails, listener)

    # Other rooms ------------------------------------------------------------------------------------------

    async def write(self, sql: str, *values: Any, topic: str | None = None) -> list[Row]:
        [rows] = await self.write_all((sql, values), topic=topic)
        return rows

    async def write_all(self, *statements: Statement, topic: str | None = None) -> list[list[Row]]:
        def step(sql: str, values: Sequence[Any]) -> _Free:
            async def run(connection: Connection) -> list[Row]:
                return [tuple(row) for row in await connection.fetch(_numbered(sql), *values)]

            return _Free(run)

        return await self._write(
            *(step(*statement) for statement in statements), topics=() if topic is None else (topic,)
        )

    async def read(self, sql: str, *values: Any) -> list[Row]:
        return [tuple(row) for row in await self._fetch(sql, *values)]

    async def read_page(self, sql: str, *values: Any, contents: Sequence[str], most: int) -> list[Row]:
        rows = await self._fetch_page(sql, values, most=most, contents=contents)
        names = list(rows[0].keys()) if rows else []
        numbers = [names.index(each) for each in contents] if rows else []
        return until_full((tuple(row) for row in rows), contents=numbers, most=most)

    def hear(self, topic: str, listener: Callable[[], None]) -> Callable[[], None]:
        self._hearers.append((topic, listener))
        return partial(_leave, self._hearers, (topic, listener))

    async def tables(self) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        rows = await self._fetch(
            "select table_name, column_name from information_schema.columns where table_schema = ? "
            "and table_name not in ('versions', 'writers') order by table_name, ordinal_position",
            self._schema,
        )
        for table, column in rows:
            found[table].append(column)
        return dict(found)

    async def fill(self, pages: AsyncIterable[Page]) -> None:
        filling = "the first rows"
        try:
            connection = await self._connect()
            try:
                # The lock of every commit: the writes of a desk that starts meanwhile come afterwards.
                await connection.execute(self._begin)
                await connection.execute(f"set application_name = '{NAME} fill'")  # it may take longer than a commit
                await connection.execute("delete from counters")
                async for table, columns, rows in pages:
                    filling = table
                    await connection.copy_records_to_table(
                        table, schema_name=self._schema, columns=columns, records=rows
                    )
                filling = "the counters"
                await connection.execute(_COUNT_ON)
                await connection.execute("commit")
            finally:
                await _hang_up(connection)  # what was not committed is rolled back
        except _UNUSABLE as failure:
            raise StoreFailed(
                f"the database at {self._shown} did not take all of it: {filling}: {_said(failure)}; nothing was kept, "
                "so mend that and try again"
            ) from None
        self._told = await self.cursor()

    @property
    def trouble(self) -> str | None:
        return next(iter(self._troubles.values()), None)

    @property
    def troubles(self) -> Mapping[str, str]:
        return self._troubles

    @property
    def about(self) -> tuple[str, str]:
        return "postgres", self._version

    @property
    def commits(self) -> Mapping[int, int]:
        return self._commit_sizes

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            while not self._is_idle.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._is_idle.wait(), self._patience.close)
                if "writing" in self._troubles:
                    break
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._readers is not None:
            self._readers.terminate()
        if self._writer is not None:
            await _hang_up(self._writer)

    # Group commit -----------------------------------------------------------------------------------------

    async def _write(self, *steps: _Step, topics: Sequence[str] = ()) -> list[Any]:
        if self._closed:
            raise StoreFailed("the store is closed; the desk is shutting down")
        done: asyncio.Future[list[Any]] = self._loop.create_future()
        if len(self._waiting) >= MOST_WAITING and (trouble := self._troubles.get("writing")):
            raise StoreFailed(f"{trouble}; too many wait for it already. Nothing of this was kept; try again later")
        told = [
            step.also_write.topic for step in steps if not isinstance(step, _Free) and step.also_write.topic is not None
        ]
        self._waiting.append(_Operation(steps, done, self._loop.time(), [*topics, *told]))
        self._is_idle.clear()
        self._has_work.set()
        # A caller that gives up does not take its write back: it stays in the batch.
        return await done

    async def _write_in_turn(self) -> None:
        batch: list[_Operation] = []
        try:
            while True:
                await self._work()
                while self._waiting:
                    batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                    try:
                        await self._commit(batch)
                    except Exception as broken:  # ours to fix; the callers must not wait for ever
                        log.exception("a commit failed in a way that nobody thought of")
                        self._drop_writer()
                        _settle(batch, failure=_failed(broken))
                self._is_idle.set()
        finally:
            _settle(batch, failure=StoreFailed("the desk shut down before the database answered; look what was kept"))
            _settle(self._waiting, failure=StoreFailed("the desk shut down; nothing of this was kept"))

    async def _work(self) -> None:
        """Wait for something to write. After trouble, see from time to time whether it is over."""
        while not self._has_work.is_set():
            try:
                async with asyncio.timeout(self._patience.poll if "writing" in self._troubles else None):
                    await self._has_work.wait()
            except TimeoutError:
                await self._try_to_write()
        self._has_work.clear()

    async def _try_to_write(self) -> None:
        try:
            connection = await self._write_connection()
            await connection.execute(self._begin_next())
            await connection.execute("commit")
        except Exception as failure:
            self._have_trouble("writing", self._away(failure))
            self._drop_writer()
        else:
            self._is_well("writing")

    async def _commit(self, batch: list[_Operation]) -> None:
        """Write a batch, however often the connection is lost meanwhile, or tell its callers why not."""
        unsure: _Written | None = None
        backoff = Backoff(FIRST_PAUSE, longest=LONGEST_PAUSE)
        while batch := self._still_patient(batch, unsure=unsure is not None):
            connection = None
            try:
                connection = await self._write_connection()
                if unsure is None or not await self._took_place(connection, unsure):
                    unsure = None
                    written = await self._put(connection, batch)
                    unsure = written
                    await connection.execute("commit")
                else:
                    written = unsure
            except Exception as failure:
                if connection is None or connection.is_closed() or _passes(failure):
                    self._have_trouble("writing", self._away(failure))
                    self._drop_writer()
                    if isinstance(failure, asyncpg.LockNotAvailableError):
                        await self._end_stuck()
                    await backoff.wait()
                    continue
                await self._roll_back()
                if len(batch) > 1 and not _hits_all(failure):
                    # One operation that cannot be written hurts nobody but itself.
                    middle = len(batch) // 2
                    await self._commit(batch[:middle])
                    await self._commit(batch[middle:])
                elif _hits_all(failure):
                    failed = _failed(failure)
                    self._have_trouble("writing", str(failed))
                    _settle(batch, failure=failed)
                else:
                    _settle(batch, failure=failure)
                return
            self._is_well("writing")
            self._commit_sizes[len(batch)] += 1
            await self._tell_own(written)
            results = iter(written.results)
            for operation in written.batch:
                own = [next(results) for _ in operation.steps]
                if not operation.done.done():
                    operation.done.set_result(own)
                for topic in operation.topics:
                    self._tell_topic(topic)
            return

    def _still_patient(self, batch: list[_Operation], *, unsure: bool) -> list[_Operation]:
        """Those of a batch whose callers have not waited too long. The others hear that it failed."""
        oldest = self._loop.time() - self._patience.write
        late = [operation for operation in batch if operation.since < oldest]
        if late:
            happened = (
                "it may have been kept or not: ask again under the same id, or look"
                if unsure
                else "nothing of this was kept"
            )
            _settle(
                late,
                failure=StoreFailed(
                    f"{self._troubles.get('writing', 'the database is away')}; {happened}. What was acknowledged "
                    "before is safe; try again"
                ),
            )
        return [operation for operation in batch if operation.since >= oldest]

    async def _put(self, connection: Connection, batch: list[_Operation]) -> _Written:
        """Everything of a batch into an open transaction, all but the commit."""
        await connection.execute(self._begin_next())
        number = self._number
        steps = [step for operation in batch for step in operation.steps]
        results: list[Any] = [None] * len(steps)
        told: list[StoredEvent] = []
        for turn in _in_turns(steps):
            await _open_all(connection, [at for at in turn if isinstance(steps[at], _Open)], steps, results, told)
            await _alter_all(connection, [at for at in turn if isinstance(steps[at], _Alter)], steps, results, told)
        for topic in {topic for operation in batch for topic in operation.topics}:
            await connection.execute("select pg_notify($1, $2)", self._channel, f"topic {topic}")
        if told:
            columns = zip(*(event_row(event)[1:] for event in told), strict=True)
            row = await connection.fetchrow(_TELL, len(told), self._channel, *columns)
            before = row[0]
            events = [event._replace(cursor=before + number) for number, event in enumerate(told, 1)]
        else:
            before, events = 0, []
        for at, step in enumerate(steps):
            if isinstance(step, _Free):  # last: pruning must see the events of its own commit
                results[at] = await step.run(connection)
            elif step.also_write.statements and step.is_done(results[at]):
                for sql, values in step.also_write.statements:
                    await connection.execute(_numbered(sql), *values)
        return _Written(batch, results, before, events, number)

    def _begin_next(self) -> str:
        self._number += 1
        return f"{self._begin}; {_MARK.format(name=self._name, number=self._number)}"

    async def _took_place(self, connection: Connection, written: _Written) -> bool:
        """Whether something was committed, whose end we did not hear. Its number tells: transaction ids do not, since
        after a crash PostgreSQL gives those of lost transactions to others."""
        await connection.execute(self._begin)  # whoever has the lock knows that it has ended
        number = await connection.fetchval("select number from writers where name = $1", self._name)
        await connection.execute("rollback")
        return bool(number == written.number)

    async def _write_connection(self) -> Connection:
        if self._writer is None or self._writer.is_closed():
            self._writer = await self._connect()
            self._writer_pid = await self._writer.fetchval("select pg_backend_pid()")
            await self._notice_what_is_lost(self._writer)
            # What our last connection committed without our knowing was notified in its name, and taken for known.
            self._is_behind.set()
            self._tell_topic(None)
        return self._writer

    async def _notice_what_is_lost(self, connection: Connection) -> None:
        """After a new connection: a standby that was behind, or a backup, gives out cursors that we have told once."""
        told = self._told
        cursor = await connection.fetchval("select value from counters where name = 'cursor'")
        if cursor < told:
            log.error(
                "the database at %s has lost the events %d to %d; going on with it", self._shown, cursor + 1, told
            )
            self._told = cursor

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.terminate()
            self._writer = None
        self._writer_pid = 0

    async def _end_stuck(self) -> None:
        try:
            await self._fetch(_END_STUCK, self._patience.stuck)
        except Exception as failure:  # not allowed to, or away: then it takes as long as it takes
            log.warning("a commit of another desk takes long and could not be ended: %s", failure)

    async def _roll_back(self) -> None:
        try:
            if self._writer is not None and self._writer.is_in_transaction():
                await self._writer.execute("rollback")
        except Exception as failure:  # it rolls back by itself when it is closed
            log.debug("rolling back: %s", failure)
            self._drop_writer()

    # Telling ----------------------------------------------------------------------------------------------

    async def _tell_own(self, written: _Written) -> None:
        """What we committed, after what other desks committed before it."""
        if not written.events:
            return
        async with self._telling:
            if self._told < written.before:
                try:
                    await self._read_on()
                except Exception as failure:  # committed is committed: the follower tells it when it can
                    log.warning("events of other desks could not be read, trying again: %s", failure)
                    self._is_behind.set()
                    return
            self._tell(written.events)

    async def _follow(self) -> None:
        """Tell what other desks committed, whenever a notification says there is something."""
        backoff = Backoff(FIRST_PAUSE, longest=LONGEST_PAUSE)
        while True:
            await self._is_behind.wait()
            self._is_behind.clear()
            try:
                async with self._telling:
                    await self._read_on()
                backoff.reset()
            except Exception as failure:
                log.warning("events could not be read, trying again: %s", failure)
                self._is_behind.set()
                await backoff.wait()

    async def _read_on(self) -> None:
        """Read and tell everything after what was told. `_telling` is held."""
        while True:
            page = await self.history(Query(), after=self._told, limit=PAGE)
            self._tell(page)
            if len(page) < PAGE:
                return

    def _tell(self, events: Sequence[StoredEvent]) -> None:
        if not events or events[-1].cursor <= self._told:
            return
        if events[0].cursor <= self._told:
            events = [event for event in events if event.cursor > self._told]
        self._told = events[-1].cursor
        for listener in tuple(self._tails):
            try:
                listener(events)
            except Exception:  # what is committed is committed: the writers must hear of it
                log.exception("a listener failed on events %d to %d", events[0].cursor, events[-1].cursor)

    def _tell_topic(self, wanted: str | None) -> None:
        """None means that any of them may have been missed."""
        for topic, hearer in tuple(self._hearers):
            if wanted in (None, topic):
                try:
                    hearer()
                except Exception:  # as with listeners: it is nobody else's trouble
                    log.exception("somebody who hears %s failed", topic)

    def _notified(self, connection: Connection, pid: int, channel: str, payload: str) -> None:
        word, _, rest = payload.partition(" ")
        if word == "topic":
            if pid != self._writer_pid:
                self._tell_topic(rest)
        elif pid != self._writer_pid and payload.isdigit() and int(payload) > self._told:
            self._is_behind.set()

    async def _listen(self, connection: Connection) -> None:
        """Hear notifications for as long as the store is open; after each lost connection, listen first, then read."""
        backoff = Backoff(FIRST_PAUSE, longest=LONGEST_PAUSE)
        while True:
            try:
                if connection is None:
                    connection = await self._listening_connection()
                    await self._notice_what_is_lost(connection)
                    self._is_behind.set()
                    self._tell_topic(None)
                self._is_well("listening")
                backoff.reset()
                lost = asyncio.Event()
                connection.add_termination_listener(lambda _, lost=lost: lost.set())
                while True:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(lost.wait(), 0 if connection.is_closed() else self._patience.poll)
                    if await connection.fetchval("select value from counters where name = 'cursor'") > self._told:
                        self._is_behind.set()
            except Exception as failure:
                self._have_trouble("listening", f"what other desks do is not heard: {self._away(failure)}")
                if connection is not None and not connection.is_closed() and not _passes(failure):
                    log.exception("listening failed in a way that nobody thought of")
            finally:
                if connection is not None:
                    connection.terminate()
                connection = None
            await backoff.wait()

    async def _listening_connection(self) -> Connection:
        connection = await self._connect()
        try:
            await connection.add_listener(self._channel, self._notified)
        except BaseException:
            connection.terminate()
            raise
        return connection

    # Reading and connecting -------------------------------------------------------------------------------

    async def _fetch_page(
        self, sql: str, values: Sequence[Any], *, most: int | None, contents: Sequence[str] = ("content",)
    ) -> list[Any]:
        """The rows with which their contents have `most` characters, and not many more. How many bytes a content has is
        known without reading it, and no character has more than four. The last value is the limit."""
        if most is not None:
            size = " + ".join(f"coalesce(octet_length({name}), 0)" for name in contents)
            sizes = await self._fetch(f"select {size} from ({sql}) as page", *values)  # noqa: S608
            totals = accumulate(size for (size,) in sizes)
            values = [*values[:-1], min(values[-1], 1 + sum(total < 4 * most for total in totals))]
        return await self._fetch(sql, *values)

    async def _fetch(self, sql: str, *values: Any) -> list[Any]:
        if any(isinstance(value, str) and "\0" in value for value in values):
            return []  # PostgreSQL keeps no such text, so nothing is equal to it
        give_up, backoff = self._loop.time() + self._patience.read, Backoff(FIRST_PAUSE, longest=LONGEST_PAUSE)
        caller = asyncio.current_task()
        cancels = 0 if caller is None else caller.cancelling()
        while True:
            is_lost = True
            try:
                async with self._readers.acquire(timeout=self._patience.read) as connection:
                    try:
                        rows: list[Any] = await connection.fetch(_numbered(sql), *values)
                    except Exception:
                        is_lost = _is_lost(connection)  # afterwards it is the pool's again, and says nothing
                        raise
            except Exception as failure:
                if caller is not None and caller.cancelling() > cancels:
                    # The pool waits for a database that says nothing to take the cancellation, and then raises that.
                    raise asyncio.CancelledError from None
                if self._closed:
                    raise StoreFailed("the store is closed; the desk is shutting down") from None
                if not is_lost and not _passes(failure):
                    raise
                self._have_trouble("reading", self._away(failure))
                if self._loop.time() > give_up:
                    raise StoreFailed(f"{self._troubles['reading']}; try again") from None
                await backoff.wait()
            else:
                self._is_well("reading")
                return rows

    def _have_trouble(self, what: str, sentence: str) -> None:
        if what not in self._troubles:
            log.warning("%s: %s", what, sentence)
        self._troubles[what] = sentence

    def _is_well(self, what: str) -> None:
        if self._troubles.pop(what, None) is not None:
            log.info("%s: the database at %s is back", what, self._shown)

    def _away(self, failure: Exception) -> str:
        return f"the database at {self._shown} is away: {_said(failure)}"

    async def _connect(self) -> Connection:
        answer = self._patience.answer
        connection = await asyncpg.connect(self._dsn, timeout=answer, command_timeout=answer)
        try:
            await connection.execute(self._session)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _start(self) -> None:
        try:
            self._writer = await self._first_connection()
            version = self._writer.get_server_version()
            self._version = f"{version.major}.{version.micro}"
            encoding = await self._writer.fetchval("select current_setting('server_encoding')")
            _refuse_unfit(f"the database at {self._shown}", version=version.major, encoding=encoding)
            await self._prove_that_notifications_come(self._writer)
            await self._migrate(self._writer)
            table = await self._writer.fetchval("select 'events'::regclass::oid::int")
            self._begin = f"begin; select pg_advisory_xact_lock({LOCK}, {table})"
            self._channel = f"handraise_{table}"
            self._writer_pid = await self._writer.fetchval("select pg_backend_pid()")
            self._readers = await asyncpg.create_pool(
                self._dsn,
                min_size=0,  # else it logs a page each second while the database is away
                max_size=READERS,
                timeout=self._patience.answer,
                command_timeout=self._patience.answer,
                init=self._set_up_reader,
                reset=_leave_as_it_is,
            )
            listener = await self._listening_connection()
        except _UNUSABLE as problem:
            raise self._explained(problem) from None
        self._tasks.append(asyncio.create_task(self._listen(listener)))
        self._told = await self.cursor()
        self._tasks.append(asyncio.create_task(self._write_in_turn()))
        self._tasks.append(asyncio.create_task(self._follow()))

    async def _set_up_reader(self, connection: Connection) -> None:
        await connection.execute(self._session)

    async def _first_connection(self) -> Connection:
        """A database that is started beside us gets a moment to come up."""
        give_up, backoff = self._loop.time() + self._patience.start, Backoff(FIRST_PAUSE, longest=LONGEST_PAUSE)
        while True:
            try:
                return await self._connect()
            except (ConnectionRefusedError, FileNotFoundError, asyncpg.CannotConnectNowError):
                if self._loop.time() > give_up:
                    raise
            await backoff.wait()

    async def _prove_that_notifications_come(self, connection: Connection) -> None:
        """A proxy that pools transactions takes LISTEN and never tells anything: better said now than missed later."""
        greeted = asyncio.Event()
        channel = f"handraise_{self._name}"
        listener = await self._connect()
        try:
            await listener.add_listener(channel, lambda *_: greeted.set())
            await connection.execute("select pg_notify($1, 'hello')", channel)
            with suppress(TimeoutError):
                await asyncio.wait_for(greeted.wait(), self._patience.hello)
        finally:
            listener.terminate()
        if not greeted.is_set():
            raise StoreError(_pooled(self._shown))

    async def _migrate(self, connection: Connection) -> None:
        """Apply the numbered files that this database has not seen; of several desks that start, one does."""
        async with connection.transaction():
            await connection.execute("set local lock_timeout = 0")
            await connection.execute("select pg_advisory_xact_lock($1, $2)", LOCK, MIGRATING, timeout=MIGRATION)
            if not await connection.fetchval("select to_regnamespace($1)", _quoted(self._schema)):
                await connection.execute(f"create schema {_quoted(self._schema)}")
            await connection.execute("create table if not exists versions (version integer primary key)")
            version = await connection.fetchval("select coalesce(max(version), 0) from versions")
            for number, statements in migrations("postgres", version=version):
                await connection.execute(statements, timeout=MIGRATION)
                await connection.execute("insert into versions values ($1)", number)
            await connection.execute("delete from writers where at < now() - interval '1 day'")

    def _explained(self, problem: Exception) -> StoreError:
        where = f"the database at {self._shown}"
        match problem:
            case asyncpg.DuplicatePreparedStatementError() | asyncpg.InvalidSQLStatementNameError():
                return StoreError(_pooled(self._shown))
            case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
                return StoreError(
                    f"{where} does not let us in ({_said(problem)}); look at the user and the password, in "
                    "HANDRAISE_DATABASE or PGPASSWORD, and at pg_hba.conf of the server"
                )
            case asyncpg.InvalidCatalogNameError():
                return StoreError(
                    f"{_said(problem)}; create it with `createdb`, or name another one in HANDRAISE_DATABASE"
                )
            case asyncpg.InsufficientPrivilegeError():
                return StoreError(
                    f"{where}: {_said(problem)}; let its owner run `create schema {_quoted(self._schema)} "
                    "authorization USER`"
                )
            case asyncpg.InvalidSchemaNameError():
                return StoreError(
                    f"the schema {self._schema} of {where} belongs to another user; connect as that one, or name "
                    "another schema with ?schema=NAME"
                )
            case ssl.SSLError():
                return StoreError(
                    f"the TLS of {where} is not as HANDRAISE_DATABASE wants it ({_said(problem)}); look at sslmode "
                    "and sslrootcert there"
                )
            case OSError():
                return StoreError(
                    f"no PostgreSQL answers at {self._shown} ({_said(problem)}); is it running, and is "
                    "HANDRAISE_DATABASE right?"
                )
            case ValueError() if not isinstance(problem, asyncpg.InterfaceError):  # its text holds parts of the address
                return StoreError(_unreadable(self._shown))
            case _:
                return StoreError(f"{where} cannot be used: {_said(problem)}")


plugin = PostgresStore


def _in_turns(steps: Sequence[_Step]) -> list[list[int]]:
    """Which steps may go together: those of one ask keep their order, the others do not mind."""
    turns: list[list[int]] = []
    taken: Counter[str] = Counter()
    for at, step in enumerate(steps):
        turn = 0
        if not isinstance(step, _Free):
            turn = taken[step.id]
            taken[step.id] += 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(at)
    return turns


async def _open_all(
    connection: Connection, turn: list[int], steps: Sequence[_Step], results: list[Any], told: list[StoredEvent]
) -> None:
    if not turn:
        return
    new = {at: step.new for at in turn if isinstance(step := steps[at], _Open)}
    rows = await connection.fetch(_OPEN, *zip(*(each[:-1] for each in new.values()), strict=True))
    opened = {stored.id: stored for stored in map(Stored._make, rows)}
    found: dict[str, Stored] = {}
    if len(opened) < len(new):
        missing = [each.id for each in new.values() if each.id not in opened]
        found = {stored.id: stored for stored in map(Stored._make, await connection.fetch(_FIND_IDS, missing))}
    claims: list[tuple[str, str]] = []
    for at, each in new.items():
        stored = opened.get(each.id)
        if stored is not None:
            stored = stored._replace(content=each.content)
            if len(each.events) > 1:  # decided at once: asked first, then what policy said
                before = stored._replace(state="asked", answer=None)
                told.append(StoredEvent(0, each.events[0], each.asked_at, before))
            told.append(StoredEvent(0, each.events[-1], each.asked_at, stored))
            results[at] = Opened("new" if stored.openings == 1 else "reopened", stored)
            continue
        stored = found[each.id]
        if stored.content != each.content:
            results[at] = Opened("differs", stored)
            continue
        if each.worker is not None and each.worker != stored.worker:
            claims.append((each.id, each.worker))
            stored = stored._replace(worker=each.worker)
        results[at] = Opened("joined", stored)
    if claims:
        await connection.execute(_CLAIM, *zip(*claims, strict=True))


async def _alter_all(
    connection: Connection, turn: list[int], steps: Sequence[_Step], results: list[Any], told: list[StoredEvent]
) -> None:
    shapes: defaultdict[tuple[Any, ...], list[tuple[int, _Alter]]] = defaultdict(list)
    for at in turn:
        step = steps[at]
        if isinstance(step, _Alter) and "\0" not in step.id:
            change = step.change
            shapes[tuple(change.set), change.states, change.due is not None, change.empty].append((at, step))
    lost: dict[str, int] = {}
    for (columns, states, due, empty), alters in shapes.items():
        sql = _alter_statement(columns, due=due, empty=empty)
        values = [(step.id, *step.change.set.values(), *((step.change.due,) if due else ())) for _, step in alters]
        rows = await connection.fetch(sql, list(states), *zip(*values, strict=True))
        changed = {stored.id: stored for stored in map(Stored._make, rows)}
        for at, step in alters:
            stored = changed.get(step.id)
            if stored is None:
                lost[step.id] = at
                continue
            told.append(StoredEvent(0, step.change.event, step.change.at, stored, step.change.source))
            results[at] = Changed(True, stored)
    if lost:
        for stored in map(Stored._make, await connection.fetch(_FIND_IDS, list(lost))):
            results[lost[stored.id]] = Changed(False, stored)


@cache
def _alter_statement(columns: tuple[str, ...], *, due: bool, empty: tuple[str, ...]) -> str:
    given = ("id", *columns, *(("due",) if due else ()))
    types = _arrays((*("id", *columns), *(("at",) if due else ())), first=2)
    assignments = ", ".join(f"{column} = new.{column}" for column in columns)
    where = ["asks.id = new.id", "asks.state = any($1)"]
    if due:
        where.append("asks.deadline <= new.due")
    where += [f"asks.{column} is null" for column in empty]
    returned = ", ".join(f"asks.{name}" for name in Stored._fields)
    return (
        f"update asks set {assignments} from unnest({types}) as new ({', '.join(given)}) "  # noqa: S608
        f"where {' and '.join(where)} returning {returned}"
    )


@cache
def _numbered(sql: str) -> str:
    """`?` as PostgreSQL wants it. Our statements have none inside quotes."""
    parts = sql.split("?")
    return parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], 1))


def _passes(failure: Exception) -> bool:
    """Whether it lies in the connection or the moment, so that the same may succeed on a new one."""
    if isinstance(failure, asyncpg.InvalidCachedStatementError):  # a plan made before a migration
        return True
    if isinstance(failure, asyncpg.PostgresError):
        code = str(failure.sqlstate or "")
        # connection lost · rolled back for another's sake · shut down or starting · lock not had · too many
        # connections · now a standby · a commit that took too long
        return code[:2] in ("08", "40", "57") or code in ("55P03", "53300", "25006", "25P03", "25P04")
    return isinstance(failure, OSError | asyncpg.InternalClientError)


def _is_lost(connection: Connection) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:  # the pool has taken it back by itself
        return True


def _hits_all(failure: Exception) -> bool:
    """Full or broken, unlike a statement that is wrong in itself."""
    code = str(getattr(failure, "sqlstate", None) or "")
    return code[:2] in ("53", "58")


def _settle(batch: Iterable[_Operation], *, failure: Exception) -> None:
    for operation in batch:
        if not operation.done.done():
            operation.done.set_exception(failure)


def _failed(failure: BaseException) -> StoreFailed:
    return StoreFailed(
        f"the database could not write ({_said(failure)}); nothing of this was kept, what was acknowledged before is "
        "safe. Look at its health and its disk, then try again"
    )


def _refuse_unfit(where: str, *, version: int, encoding: str) -> None:
    if version < OLDEST_VERSION:
        raise StoreError(f"{where} is PostgreSQL {version}; handraise needs {OLDEST_VERSION} or newer")
    if encoding != "UTF8":
        raise StoreError(
            f"{where} keeps text as {encoding}, which has not every character; make one with `createdb "
            "--encoding=UTF8 --template=template0`"
        )


def _pooled(shown: str) -> str:
    return (
        f"{shown} is a proxy that pools transactions (such as PgBouncer with pool_mode=transaction), and what one desk "
        "does would not be heard at the others; give the address of PostgreSQL itself, or of a pool with "
        "pool_mode=session"
    )


def _unreadable(shown: str) -> str:
    return (
        f"{shown} cannot be read as an address: is its port a number? In a password, write the characters @ : / # ? % "
        "as %40 %3A %2F %23 %3F %25, or leave it out and set PGPASSWORD"
    )


def _said(failure: BaseException) -> str:
    if isinstance(failure, TimeoutError):
        return "it did not answer in time"
    return str(failure).partition("\n")[0] or type(failure).__name__  # what follows may show rows


def _leave(those: list[T], one: T) -> None:
    if one in those:
        those.remove(one)


async def _hang_up(connection: Connection) -> None:
    with suppress(Exception):
        await connection.close(timeout=2)
    connection.terminate()


async def _leave_as_it_is(connection: Connection) -> None:
    """Readers hold no state that a next reader could mind."""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _split(address: str) -> tuple[str, str]:
    """The address as the driver takes it, and the schema."""
    try:
        parts = urlsplit(address)
    except ValueError:
        raise StoreError(_unreadable(without_password(address))) from None
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", SCHEMA)
    if not schema:
        raise SettingsError("HANDRAISE_DATABASE: schema= is empty; leave it out, or name one")
    hosts = f"{parts.netloc.rpartition('@')[2]}{dict(options).get('host', '')}"
    if "," in hosts and "target_session_attrs" not in dict(options):  # of several, one that takes writes
        options.append(("target_session_attrs", "read-write"))
    rest = urlencode([(key, value) for key, value in options if key != "schema"], quote_via=quote)
    return urlunsplit(parts._replace(query=rest)), schema
