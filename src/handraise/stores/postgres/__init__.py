"""The shared store: one PostgreSQL database, any number of desks. Its parts lie beside this file.

`reading.py` reads what was committed. `writing.py` commits what callers want, in groups, one commit after the
other across all desks. `following.py` tells what was committed, here and by other desks. `connecting.py` makes the
connections and says what is wrong with them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from typing import Any

from handraise.errors import StoreFailed
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
)
from handraise.stores._asks import (
    COLUMNS,
    CONTENT,
    CONTENT_OF_EVENT,
    DEADLINES,
    FIND_ID,
    OPEN_ASKS,
    UNTAKEN,
    event_of,
    find,
    history,
    migrations,
    until_full,
)
from handraise.stores._search import Dialect, search
from handraise.stores.postgres.connecting import (
    NAME,
    UNUSABLE,
    Connection,
    Connector,
    Patience,
    Troubles,
    hang_up,
    reason_of,
)
from handraise.stores.postgres.following import PAGE, Follower
from handraise.stores.postgres.reading import Reader
from handraise.stores.postgres.writing import MOST_WAITING, Alter, Free, Open, Step, Writer, numbered
from handraise.tasks import Tasks
from handraise.wire import Stored, StoredEvent

__all__ = ["MOST_WAITING", "Patience", "PostgresStore", "plugin"]

_DIALECT = Dialect('strpos(lower({column} collate "C"), ?) > 0')
_DEFAULT_PATIENCE = Patience()

_NEWEST = f"select distinct on (base) base, {COLUMNS} from asks where base = any(?) order by base, seq desc"  # noqa: S608
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


class PostgresStore:
    """Open with `await PostgresStore.open_address(address)`. The address may name a `schema=` of its own."""

    clock = "cast(extract(epoch from clock_timestamp()) * 1000 as bigint)"

    def __init__(self, address: str, *, patience: Patience = _DEFAULT_PATIENCE) -> None:
        self._connector = Connector(address, patience=patience)
        self._troubles = Troubles(self._connector.shown)
        self._reader = Reader(self._connector, troubles=self._troubles)
        self._follower = Follower(self._connector, troubles=self._troubles, read_after=self._read_after)
        self._writer = Writer(
            self._connector, troubles=self._troubles, follower=self._follower, fetch=self._reader.fetch
        )
        self._version = ""
        self._tasks = Tasks()

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

    async def _start(self) -> None:
        connector = self._connector
        try:
            connection = self._writer.connection = await connector.first_connection()
            self._version = await connector.check(connection)
            await connector.migrate(connection)
            await self._writer.prepare()
            await self._reader.open()
            listener = await self._follower.listening_connection()
        except UNUSABLE as problem:
            raise connector.explain(problem) from None
        self._tasks.start(self._follower.listen(listener))
        self._follower.told = await self.cursor()
        self._tasks.start(self._writer.run())
        self._tasks.start(self._follower.follow())

    @classmethod
    async def look(cls, address: str) -> Seen:
        """What is there. Raises StoreTooNew, and StoreError that says what to do where nobody answers."""
        connector = Connector(address, patience=_DEFAULT_PATIENCE)
        try:
            connection = await connector.connect()
            try:
                place = await connection.fetchval(_PLACE)
                has_versions = await connection.fetchval("select to_regclass('versions') is not null")
                found = await connection.fetchval("select max(version) from versions") if has_versions else None
            finally:
                await hang_up(connection)
        except UNUSABLE as problem:
            raise connector.explain(problem) from None
        is_old = found is not None and any(migrations("postgres", version=found))
        return Seen(f"{connector.shown}, schema {connector.schema}", f"{place} {connector.schema}", found, is_old)

    # Asks -------------------------------------------------------------------------------------------------

    async def open(self, new: NewAsk, *, also_write: AlsoWrite = NO_EXTRA_WRITES) -> Opened:
        [opened] = await self._write(Open(new.id, new, also_write))
        return opened  # type: ignore[no-any-return]

    async def change(self, id: str, change: Change) -> Changed | None:
        [changed] = await self._write(Alter(id, change))
        return changed  # type: ignore[no-any-return]

    async def change_all(self, changes: Sequence[tuple[str, Change]]) -> list[Changed | None]:
        return await self._write(*(Alter(id, change) for id, change in changes)) if changes else []

    async def get(self, id: str) -> Stored | None:
        return next((Stored._make(row) for row in await self._reader.fetch(FIND_ID, id)), None)

    async def newest(self, bases: Sequence[str]) -> dict[str, Stored]:
        rows = await self._reader.fetch(_NEWEST, [base for base in bases if "\0" not in base])
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
                fetch=lambda sql, values: self._reader.fetch(sql, *values),
            )
        sql, values = find(query.items(), after=after, limit=limit, newest=newest)
        rows = until_full(await self._reader.fetch_page(sql, values, most=most), contents=(CONTENT,), most=most)
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
        page = await self._reader.fetch_page(sql, values, most=most)
        rows = until_full(page, contents=(CONTENT_OF_EVENT,), most=most)
        return [event_of(tuple(row)) for row in rows]

    async def _read_after(self, cursor: int) -> list[StoredEvent]:
        return await self.history(Query(), after=cursor, limit=PAGE)

    async def cursor(self) -> int:
        return await self._counter("cursor")

    async def open_asks(self) -> OpenAsks:
        [row] = await self._reader.fetch(OPEN_ASKS)
        return OpenAsks._make(row)

    async def deadlines(self) -> list[tuple[int, str]]:
        return [(row[0], row[1]) for row in await self._reader.fetch(DEADLINES)]

    async def untaken(self) -> list[str]:
        return [row[0] for row in await self._reader.fetch(UNTAKEN)]

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

        [count] = await self._write(Free(run))
        return int(count)

    async def pruned(self) -> int:
        return await self._counter("pruned")

    async def _counter(self, name: str) -> int:
        [row] = await self._reader.fetch("select value from counters where name = ?", name)
        return int(row[0])

    def tail(self, listener: Tail) -> Callable[[], None]:
        return self._follower.tail(listener)

    # Other rooms ------------------------------------------------------------------------------------------

    async def write(self, sql: str, *values: Any, topic: str | None = None) -> list[Row]:
        [rows] = await self.write_all((sql, values), topic=topic)
        return rows

    async def write_all(self, *statements: Statement, topic: str | None = None) -> list[list[Row]]:
        def step(sql: str, values: Sequence[Any]) -> Free:
            async def run(connection: Connection) -> list[Row]:
                return [tuple(row) for row in await connection.fetch(numbered(sql), *values)]

            return Free(run)

        return await self._write(
            *(step(*statement) for statement in statements), topics=() if topic is None else (topic,)
        )

    async def read(self, sql: str, *values: Any) -> list[Row]:
        return [tuple(row) for row in await self._reader.fetch(sql, *values)]

    async def read_page(self, sql: str, *values: Any, contents: Sequence[str], most: int) -> list[Row]:
        rows = await self._reader.fetch_page(sql, values, most=most, contents=contents)
        names = list(rows[0].keys()) if rows else []
        numbers = [names.index(each) for each in contents] if rows else []
        return until_full((tuple(row) for row in rows), contents=numbers, most=most)

    def hear(self, topic: str, listener: Callable[[], None]) -> Callable[[], None]:
        return self._follower.hear(topic, listener)

    async def tables(self) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        rows = await self._reader.fetch(
            "select table_name, column_name from information_schema.columns where table_schema = ? "
            "and table_name not in ('versions', 'writers') order by table_name, ordinal_position",
            self._connector.schema,
        )
        for table, column in rows:
            found[table].append(column)
        return dict(found)

    async def fill(self, pages: AsyncIterable[Page]) -> None:
        filling = "the first rows"
        try:
            connection = await self._connector.connect()
            try:
                # The lock of every commit: the writes of a desk that starts meanwhile come afterwards.
                await connection.execute(self._writer.begin)
                await connection.execute(f"set application_name = '{NAME} fill'")  # it may take longer than a commit
                await connection.execute("delete from counters")
                async for table, columns, rows in pages:
                    filling = table
                    await connection.copy_records_to_table(
                        table, schema_name=self._connector.schema, columns=columns, records=rows
                    )
                filling = "the counters"
                await connection.execute(_COUNT_ON)
                await connection.execute("commit")
            finally:
                await hang_up(connection)  # what was not committed is rolled back
        except UNUSABLE as failure:
            raise StoreFailed(
                f"the database at {self._connector.shown} did not take all of it: {filling}: {reason_of(failure)}; "
                "nothing was kept, so mend that and try again"
            ) from None
        self._follower.told = await self.cursor()

    @property
    def trouble(self) -> str | None:
        return next(iter(self._troubles.now.values()), None)

    @property
    def troubles(self) -> Mapping[str, str]:
        return self._troubles.now

    @property
    def about(self) -> tuple[str, str]:
        return "postgres", self._version

    @property
    def commits(self) -> Mapping[int, int]:
        return self._writer.commit_sizes

    async def close(self) -> None:
        if self._connector.is_closed:
            return
        self._connector.is_closed = True
        try:
            await self._writer.finish()
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        self._connector.is_closed = True
        await self._tasks.close()
        self._reader.close()
        await self._writer.close()

    async def _write(self, *steps: Step, topics: Sequence[str] = ()) -> list[Any]:
        if self._connector.is_closed:
            raise StoreFailed("the store is closed; the desk is shutting down")
        return await self._writer.write(*steps, topics=topics)


plugin = PostgresStore
