"""The embedded store: one SQLite file, one desk, group commit.

Everything that arrives while a commit runs goes into the next one. Statements run on the event loop, where they take
microseconds; COMMIT, which waits for the disk, runs in a thread, and nothing touches the write connection meanwhile.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import cache, partial
from itertools import takewhile
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, NamedTuple, TypeVar

from handraise.errors import SettingsError, StoreError, StoreFailed, StoreInUse
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
    CONTENT,
    CONTENT_OF_EVENT,
    DEADLINES,
    EVENT_COLUMNS,
    FIND_ID,
    NEWEST,
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
from handraise.wire import LARGE, Stored, StoredEvent

__all__ = ["SqliteStore", "plugin"]

log = logging.getLogger(__name__)

T = TypeVar("T")

MEMORY = ":memory:"
# As fast as it gets there, and it knows the case of ASCII only.
_DIALECT = Dialect(r"{column} like ? escape '!'", lambda text: "%" + re.sub("([!%_])", r"!\1", text) + "%")

# SQLite keeps what is returned in a table of its own first, so a large content would be copied several times.
_RETURNED = ", ".join(
    f"case when length(content) <= {LARGE} then content end" if name == "content" else name for name in Stored._fields
)
_CONTENT = "select content from asks where seq = ?"
_NEW = ("seq", *(name for name in NewAsk._fields if name != "events"))
_OPEN = f"""
insert into asks ({", ".join(_NEW)}) values ({", ".join("?" * len(_NEW))})
on conflict (id) do update set
    worker = excluded.worker, state = excluded.state, openings = openings + 1, asked_at = excluded.asked_at,
    timeout = excluded.timeout, deadline = excluded.deadline, fallback = excluded.fallback,
    answer = excluded.answer, judgement = excluded.judgement, withdrawn_reason = null
where state = 'withdrawn' and content = excluded.content
returning {", ".join("null" if name == "content" else name for name in Stored._fields)}"""  # noqa: S608 - names of our own columns
_CLAIM = "update asks set worker = ? where id = ? and state = 'asked'"
_TELL = f"insert into events ({', '.join(EVENT_COLUMNS)}) values ({', '.join('?' * len(EVENT_COLUMNS))})"  # noqa: S608
# Here the newest event is never pruned, but what was copied from elsewhere may have none left.
_CURSOR = """
select max(coalesce((select max(cursor) from events), 0), (select value from counters where name = 'pruned'))"""
_SEQ = """
select coalesce(max(value), 0) from (
    select max(seq) as value from asks union all select value from counters where name = 'asks'
)"""
_COUNT = "insert into counters values (?, ?) on conflict (name) do update set value = excluded.value"
_FORGET = """
delete from asks where seq = ? and state <> 'asked'
and not exists (select 1 from events where events.ask = asks.seq)"""


class _Operation(NamedTuple):
    """Something to do inside the next commit. It may be run again, so it keeps nothing outside the database."""

    run: Callable[[sqlite3.Connection, _Events], Any]
    done: asyncio.Future[Any]
    topics: Sequence[str] = ()


class SqliteStore:
    clock = "cast((julianday('now') - 2440587.5) * 86400000 as integer)"
    """Open with `await SqliteStore.open_file(path)`; `:memory:` keeps nothing and needs no disk."""

    def __init__(self, path: str, *, lock: IO[str] | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = lock
        self._in_memory = path == MEMORY
        self._writer = _connect(path)
        self._reader = self._writer if self._in_memory else _connect(path, read_only=True)
        self._lister = self._writer if self._in_memory else _connect(path, read_only=True)
        self._commits: SimpleQueue[Callable[[Exception | None], None] | None] = SimpleQueue()
        self._committer = threading.Thread(target=self._commit_in_turn, name="handraise-commit", daemon=True)
        self._committer.start()
        self._lists = ThreadPoolExecutor(1, thread_name_prefix="handraise-list")
        self._waiting: list[_Operation] = []
        self._cursor = 0  # of the last committed event
        self._seq = 0  # of the ask that was opened last
        self._busy = False
        self._idle: list[asyncio.Future[None]] = []  # those who wait until nothing is written
        self._closed = False
        self._tails: list[Tail] = []
        self._hearers: list[tuple[str, Callable[[], None]]] = []
        self._commit_sizes: Counter[int] = Counter()
        self._trouble: str | None = None

    @classmethod
    async def open_file(cls, path: str | Path) -> SqliteStore:
        """Raises StoreInUse where another desk holds the file, StoreTooNew where a newer handraise wrote it."""
        path = str(path)
        lock = None if path == MEMORY else _hold(Path(path))
        with ExitStack() as undo:
            if lock is not None:
                undo.callback(lock.close)
            store = cls(path, lock=lock)
            undo.callback(store._let_go)
            store._migrate()
            await store._read_counters()
            undo.pop_all()
        return store

    @classmethod
    async def open_address(cls, address: str) -> SqliteStore:
        """Raises StoreError where it is no database of ours, and what `open_file` raises."""
        path = _path_of(address)
        if path is None:
            return await cls.open_file(MEMORY)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            return await cls.open_file(path)
        except sqlite3.DatabaseError as broken:
            raise StoreError(f"{path} cannot be used: {broken}; restore it from a backup, or move it away") from None

    @classmethod
    async def look(cls, address: str) -> Seen:
        """What is there, also while a desk holds it. Raises StoreTooNew, StoreError, SettingsError."""
        path = _path_of(address)
        if path is None:
            raise SettingsError(f"{address} keeps nothing; name a file, as in sqlite:///path/to/desk.db")
        if not path.exists():
            return Seen(str(path), str(path.resolve()), None)
        about = path.stat()
        try:
            with closing(_connect(str(path), read_only=True)) as connection:
                version: int = connection.execute("pragma user_version").fetchone()[0]
        except sqlite3.Error as broken:
            raise StoreError(f"{path} cannot be read: {broken}; restore it from a backup, or move it away") from None
        is_old = any(migrations("sqlite", version=version))
        return Seen(str(path), f"{about.st_dev}:{about.st_ino}", version or None, is_old)

    # Asks -------------------------------------------------------------------------------------------------

    async def open(self, new: NewAsk, *, also_write: AlsoWrite = NO_EXTRA_WRITES) -> Opened:
        def run(connection: sqlite3.Connection, told: _Events) -> Opened:
            row = connection.execute(_OPEN, (told.seq + 1, *new[:-1])).fetchone()
            if row is not None:
                stored = Stored._make((*row[:CONTENT], new.content, *row[CONTENT + 1 :]))
                told.seq = max(told.seq, stored.seq)  # one that opens again has its number already
                if len(new.events) > 1:  # decided at once: asked first, then what policy said
                    before = stored._replace(state="asked", answer=None)
                    told.tell(new.events[0], at=new.asked_at, stored=before)
                told.tell(new.events[-1], at=new.asked_at, stored=stored)
                _also_write(connection, also_write)
                return Opened("new" if stored.openings == 1 else "reopened", stored)
            stored = Stored._make(connection.execute(FIND_ID, (new.id,)).fetchone())
            if stored.content != new.content:
                return Opened("differs", stored)
            if new.worker is not None and new.worker != stored.worker:
                connection.execute(_CLAIM, (new.worker, new.id))
                stored = stored._replace(worker=new.worker)
            return Opened("joined", stored)

        return await self._write(run, topics=_only(also_write.topic))

    async def change(self, id: str, change: Change) -> Changed | None:
        return await self._write(
            lambda connection, told: _change(connection, told, id, change), topics=_only(change.also_write.topic)
        )

    async def change_all(self, changes: Sequence[tuple[str, Change]]) -> list[Changed | None]:
        return await self._write(
            lambda connection, told: [_change(connection, told, id, change) for id, change in changes],
            topics=[change.also_write.topic for _, change in changes if change.also_write.topic is not None],
        )

    async def get(self, id: str) -> Stored | None:
        row = self._reader.execute(FIND_ID, (id,)).fetchone()
        return None if row is None else Stored._make(row)

    async def newest(self, bases: Sequence[str]) -> dict[str, Stored]:
        rows = ((base, self._reader.execute(NEWEST, (base,)).fetchone()) for base in bases)
        return {base: Stored._make(row) for base, row in rows if row is not None}

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
                fetch=self._list,
            )
        sql, values = find(query.items(), after=after, limit=limit, newest=newest)
        return [Stored._make(row) for row in await self._list(sql, values, contents=(CONTENT,), most=most)]

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
        rows = await self._list(sql, values, contents=(CONTENT_OF_EVENT,), most=most)
        return [event_of(row) for row in rows]

    async def cursor(self) -> int:
        row = self._reader.execute(_CURSOR).fetchone()
        return int(row[0])

    async def open_asks(self) -> OpenAsks:
        [row] = await self._list(OPEN_ASKS, ())
        return OpenAsks._make(row)

    async def deadlines(self) -> list[tuple[int, str]]:
        return [(row[0], row[1]) for row in await self._list(DEADLINES, ())]

    async def untaken(self) -> list[str]:
        return [row[0] for row in await self._list(UNTAKEN, ())]

    async def prune(self, *, before: int, limit: int) -> int:
        def run(connection: sqlite3.Connection, told: _Events) -> int:
            oldest = connection.execute("select cursor, ask, at from events order by cursor limit ?", (limit,))
            gone = list(takewhile(lambda event: event[2] < before, oldest))
            if not gone:
                return 0
            through = gone[-1][0]
            connection.execute("delete from events where cursor <= ?", (through,))
            # Events of this commit are not in the table yet: what was settled in it would seem to have none.
            fresh = {event.ask.seq for event in told}
            connection.executemany(_FORGET, [(ask,) for ask in {ask for _, ask, _ in gone} - fresh])
            # The next ones are numbered after those that went, also where the newest went.
            connection.executemany(_COUNT, [("pruned", through), ("asks", told.seq)])
            return len(gone)

        return await self._write(run)

    async def _read_counters(self) -> None:
        self._cursor = await self.cursor()
        self._seq = int(self._reader.execute(_SEQ).fetchone()[0])

    async def pruned(self) -> int:
        row = self._reader.execute("select value from counters where name = 'pruned'").fetchone()
        return int(row[0])

    def tail(self, listener: Tail) -> Callable[[], None]:
        self._tails.append(listener)
        return partial(_leave, self._tails, listener)

    # Other rooms ------------------------------------------------------------------------------------------

    async def write(self, sql: str, *values: Any, topic: str | None = None) -> list[Row]:
        def run(connection: sqlite3.Connection, told: _Events) -> list[Row]:
            return connection.execute(sql, values).fetchall()

        return await self._write(run, topics=_only(topic))

    async def write_all(self, *statements: Statement, topic: str | None = None) -> list[list[Row]]:
        def run(connection: sqlite3.Connection, told: _Events) -> list[list[Row]]:
            return [connection.execute(sql, values).fetchall() for sql, values in statements]

        return await self._write(run, topics=_only(topic))

    async def read(self, sql: str, *values: Any) -> list[Row]:
        return self._reader.execute(sql, values).fetchall()

    async def read_page(self, sql: str, *values: Any, contents: Sequence[str], most: int) -> list[Row]:
        return await self._list(sql, values, contents=contents, most=most)

    def hear(self, topic: str, listener: Callable[[], None]) -> Callable[[], None]:
        self._hearers.append((topic, listener))
        return partial(_leave, self._hearers, (topic, listener))

    async def tables(self) -> dict[str, list[str]]:
        names = self._reader.execute(  # those of SQLite itself come with ANALYZE
            "select name from sqlite_master where type = 'table' and name not glob 'sqlite_*' order by name"
        ).fetchall()
        return {
            name: [column[1] for column in self._reader.execute(f'pragma table_info("{name}")')] for (name,) in names
        }

    async def fill(self, pages: AsyncIterable[Page]) -> None:
        while self._busy:
            await self._until_idle()
        self._busy = True  # what is written meanwhile comes afterwards
        try:
            self._writer.execute("begin immediate")
            async for table, columns, rows in pages:  # which may fail on its own account
                sql = f"insert or replace into {table} ({', '.join(columns)}) values ({', '.join('?' * len(columns))})"  # noqa: S608
                with _failing_as_ours():
                    self._writer.executemany(sql, rows)
            with _failing_as_ours():
                self._writer.execute("commit")
            await self._read_counters()
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._next()

    @property
    def trouble(self) -> str | None:
        return self._trouble

    @property
    def troubles(self) -> Mapping[str, str]:
        return {} if self._trouble is None else {"writing": self._trouble}

    @property
    def about(self) -> tuple[str, str]:
        return "sqlite", sqlite3.sqlite_version

    @property
    def commits(self) -> Mapping[int, int]:
        return self._commit_sizes

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        while self._busy:
            await self._until_idle()
        self._let_go()

    def _let_go(self) -> None:
        self._commits.put(None)
        self._committer.join()
        self._lists.shutdown()
        for connection in {self._lister, self._reader, self._writer}:
            connection.close()
        if self._lock is not None:
            self._lock.close()

    # Group commit -----------------------------------------------------------------------------------------

    async def _write(self, run: Callable[[sqlite3.Connection, _Events], T], *, topics: Sequence[str] = ()) -> T:
        if self._closed:
            raise StoreFailed("the store is closed; the desk is shutting down")
        done: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(_Operation(run, done, topics))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._begin)
        # A caller that gives up does not take its write back: it stays in the batch.
        return await done

    def _begin(self) -> None:
        batch, self._waiting = self._waiting, []
        results: list[Any] = []
        told = _Events(self._cursor, seq=self._seq)
        while batch:
            try:
                results, told = [], _Events(self._cursor, seq=self._seq)
                self._writer.execute("begin")
                for operation in batch:
                    results.append(operation.run(self._writer, told))
                told.write(self._writer)
                break
            except Exception as failure:
                self._roll_back()
                if _is_of_the_disk(failure) or len(results) == len(batch):  # nothing of this batch holds
                    self._finish(batch, failure=_failed(failure))
                    return
                # One operation that cannot be written hurts nobody but itself.
                _settle(batch.pop(len(results)).done, failure=failure)
        if not batch:
            self._next()
            return

        def committed(failure: Exception | None) -> None:
            if failure is not None:
                self._roll_back()
                self._finish(batch, failure=_failed(failure))
            else:
                self._finish(batch, results=results, told=told)

        if self._in_memory:
            committed(self._commit())
        else:
            self._commits.put(committed)

    def _commit(self) -> Exception | None:
        try:
            self._writer.execute("commit")
        except sqlite3.Error as failure:
            return failure
        return None

    def _commit_in_turn(self) -> None:
        """The thread that waits for the disk. A queue and a callback cost a fraction of an executor's futures."""
        while (committed := self._commits.get()) is not None:
            self._loop.call_soon_threadsafe(committed, self._commit())
            del committed  # it holds what was written, and the next may be long in coming

    def _finish(
        self,
        batch: list[_Operation],
        *,
        results: list[Any] | None = None,
        told: _Events | None = None,
        failure: Exception | None = None,
    ) -> None:
        self._trouble = None if failure is None else str(failure)
        if failure is None:
            self._commit_sizes[len(batch)] += 1
        if told:
            self._cursor, self._seq = told.cursor, told.seq
            for listener in tuple(self._tails):
                try:
                    listener(told)
                except Exception:  # what is committed is committed: the writers must hear of it
                    log.exception("a listener failed on events %d to %d", told[0].cursor, told[-1].cursor)
        for index, operation in enumerate(batch):
            for topic in operation.topics if failure is None else ():
                self._tell_topic(topic)
            if failure is None and results is not None:
                _settle(operation.done, result=results[index])
            else:
                _settle(operation.done, failure=failure)
        self._next()

    def _tell_topic(self, wanted: str) -> None:
        for topic, hearer in tuple(self._hearers):
            if topic == wanted:
                try:
                    hearer()
                except Exception:  # as with listeners: it is nobody else's trouble
                    log.exception("somebody who hears %s failed", topic)

    def _next(self) -> None:
        if self._waiting:
            self._loop.call_soon(self._begin)
            return
        self._busy = False
        waiting, self._idle = self._idle, []
        for idle in waiting:
            _settle(idle)

    async def _until_idle(self) -> None:
        idle: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(idle)
        await idle

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("rollback")

    async def _list(
        self, sql: str, values: Sequence[Any], *, contents: Sequence[int | str] = (), most: int | None = None
    ) -> list[Row]:
        """`most` as with `until_full`, with columns by number or name; rows after those are not read."""

        def run() -> list[Row]:
            rows = self._lister.execute(sql, values)
            if most is None:
                return rows.fetchall()
            try:
                names = [column[0] for column in rows.description]
                numbers = [names.index(each) if isinstance(each, str) else each for each in contents]
                return until_full(rows, contents=numbers, most=most)
            finally:
                rows.close()

        return run() if self._in_memory else await self._loop.run_in_executor(self._lists, run)

    def _migrate(self) -> None:
        """Apply the numbered files that this database has not seen. The lock on the file is held."""
        version: int = self._writer.execute("pragma user_version").fetchone()[0]
        for number, statements in migrations("sqlite", version=version):
            self._writer.executescript(f"begin immediate;\n{statements}\npragma user_version = {number};\ncommit;")


def _connect(path: str, *, read_only: bool = False) -> sqlite3.Connection:
    uri = Path(path).resolve().as_uri() + ("?mode=ro" if read_only else "") if path != MEMORY else path
    connection = sqlite3.connect(
        uri,
        uri=path != MEMORY,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        timeout=5,
    )
    if not read_only:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma wal_autocheckpoint = 4000")
    return connection


def _hold(path: Path) -> IO[str]:
    """The lock that makes this process the one desk of the file. It goes away with the process, however it ends."""
    lock = Path(f"{path}.lock").open("a+")  # noqa: SIM115 - held for as long as the store is open
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise StoreInUse(
            f"another desk (process {holder}) holds {path}; use that one, stop it, "
            "or give this one its own HANDRAISE_HOME"
        ) from None
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    path.touch(mode=0o600)  # before SQLite creates it for everybody to read
    return lock


class _Events(list[StoredEvent]):
    """The events of one commit. There is one writer, so it numbers them itself and writes them together at the end."""

    def __init__(self, after: int, *, seq: int) -> None:
        super().__init__()
        self.cursor = after
        self.seq = seq  # of the ask that was opened last; asks are numbered by hand as well

    def tell(self, type: str, *, at: int, stored: Stored, source: str | None = None) -> None:
        self.cursor += 1
        self.append(StoredEvent(self.cursor, type, at, stored, source))

    def write(self, connection: sqlite3.Connection) -> None:
        connection.executemany(_TELL, [event_row(event) for event in self])


def _change(connection: sqlite3.Connection, told: _Events, id: str, change: Change) -> Changed | None:
    statement = _change_statement(tuple(change.set), change.states, due=change.due is not None, empty=change.empty)
    values = [*change.set.values(), id, *change.states]
    if change.due is not None:
        values.append(change.due)
    row = connection.execute(statement, values).fetchone()
    if row is not None:
        stored = Stored._make(row)
        if stored.content is None:
            stored = stored._replace(content=connection.execute(_CONTENT, (stored.seq,)).fetchone()[0])
        told.tell(change.event, at=change.at, stored=stored, source=change.source)
        _also_write(connection, change.also_write)
        return Changed(True, stored)
    row = connection.execute(FIND_ID, (id,)).fetchone()
    return None if row is None else Changed(False, Stored._make(row))


def _also_write(connection: sqlite3.Connection, also_write: AlsoWrite) -> None:
    for sql, values in also_write.statements:
        connection.execute(sql, values)


def _only(topic: str | None) -> tuple[str, ...]:
    return () if topic is None else (topic,)


@cache
def _change_statement(columns: tuple[str, ...], states: tuple[str, ...], *, due: bool, empty: tuple[str, ...]) -> str:
    where = ["id = ?", f"state in ({', '.join('?' * len(states))})"]
    if due:
        where.append("deadline <= ?")
    where += [f"{column} is null" for column in empty]
    assignments = ", ".join(f"{column} = ?" for column in columns)
    return f"update asks set {assignments} where {' and '.join(where)} returning {_RETURNED}"  # noqa: S608


def _leave(those: list[T], one: T) -> None:
    if one in those:
        those.remove(one)


def _settle(done: asyncio.Future[Any], *, result: Any = None, failure: BaseException | None = None) -> None:
    if done.done():
        return
    if failure is not None:
        done.set_exception(failure)
    else:
        done.set_result(result)


def _is_of_the_disk(failure: Exception) -> bool:
    """Full, locked or broken, unlike a statement that is wrong in itself (SQLITE_ERROR)."""
    return isinstance(failure, sqlite3.OperationalError) and failure.sqlite_errorcode != sqlite3.SQLITE_ERROR


@contextmanager
def _failing_as_ours() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as failure:
        raise _failed(failure) from None


def _failed(failure: BaseException) -> StoreFailed:
    return StoreFailed(
        f"the database could not write ({failure}); nothing of this was kept, what was acknowledged before is safe. "
        "Free space on the disk or look at its health, then try again"
    )


def _path_of(address: str) -> Path | None:
    """The file that an address names, None where it is kept in memory. It is absolute, with any number of slashes."""
    path = address.partition("://")[2].lstrip("/")
    return None if path == MEMORY else Path("/") / path


plugin = SqliteStore
