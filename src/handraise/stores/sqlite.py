"""The embedded store: one SQLite file, one desk, group commit.

Everything that arrives while a commit runs goes into the next one. Statements run on the event loop, where they take
microseconds; COMMIT, which waits for the disk, runs in a thread, and nothing touches the write connection meanwhile.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from importlib import resources
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, NamedTuple, TypeVar

from handraise.errors import StoreFailed, StoreInUse, StoreTooNew
from handraise.stores import Change, Changed, NewAsk, Opened, Query, Row, Tail
from handraise.wire import Stored, StoredEvent

__all__ = ["SqliteStore", "plugin"]

log = logging.getLogger(__name__)

T = TypeVar("T")

MEMORY = ":memory:"

_COLUMNS = ", ".join(Stored._fields)
_NEW = tuple(name for name in NewAsk._fields if name != "events")
_OPEN = f"""
insert into asks ({", ".join(_NEW)}) values ({", ".join("?" * len(_NEW))})
on conflict (id) do update set
    worker = excluded.worker, state = excluded.state, openings = openings + 1, asked_at = excluded.asked_at,
    timeout = excluded.timeout, deadline = excluded.deadline, fallback = excluded.fallback,
    answer = excluded.answer, withdrawn_reason = null
where state = 'withdrawn' and content = excluded.content
returning {_COLUMNS}"""  # noqa: S608 - names of our own columns
_GET = f"select {_COLUMNS} from asks where id = ?"  # noqa: S608
_NEWEST = f"select {_COLUMNS} from asks where base = ? order by seq desc limit 1"  # noqa: S608
_CLAIM = "update asks set worker = ? where id = ? and state = 'asked'"
# What an event keeps of its ask: the columns that change. The rest is read from the ask itself.
_KEPT = ("state", "asked_at", "deadline", "answer", "delivered_at", "delivery_error", "withdrawn_reason")
_TELL = f"insert into events (cursor, type, at, ask, {', '.join(_KEPT)}) values (?, ?, ?, ?{', ?' * len(_KEPT)})"  # noqa: S608
_HISTORY = "select events.cursor, events.type, events.at, " + ", ".join(
    f"events.{name}" if name in _KEPT else f"asks.{name}" for name in Stored._fields
)


class _Operation(NamedTuple):
    """Something to do inside the next commit. It may be run again, so it keeps nothing outside the database."""

    run: Callable[[sqlite3.Connection, _Events], Any]
    done: asyncio.Future[Any]


class SqliteStore:
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
        self._busy = False
        self._idle: asyncio.Future[None] | None = None
        self._closed = False
        self._tails: list[Tail] = []

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
            store._cursor = await store.cursor()
            undo.pop_all()
        return store

    # Asks -------------------------------------------------------------------------------------------------

    async def open(self, new: NewAsk) -> Opened:
        def run(connection: sqlite3.Connection, told: _Events) -> Opened:
            row = connection.execute(_OPEN, new[:-1]).fetchone()
            if row is not None:
                stored = Stored._make(row)
                if len(new.events) > 1:  # decided at once: asked first, then what policy said
                    before = stored._replace(state="asked", answer=None)
                    told.tell(new.events[0], at=new.asked_at, stored=before)
                told.tell(new.events[-1], at=new.asked_at, stored=stored)
                return Opened("new" if stored.openings == 1 else "reopened", stored)
            stored = Stored._make(connection.execute(_GET, (new.id,)).fetchone())
            if stored.content != new.content:
                return Opened("differs", stored)
            if new.worker is not None and new.worker != stored.worker:
                connection.execute(_CLAIM, (new.worker, new.id))
                stored = stored._replace(worker=new.worker)
            return Opened("joined", stored)

        return await self._write(run)

    async def change(self, id: str, change: Change) -> Changed | None:
        return await self._write(lambda connection, told: _change(connection, told, id, change))

    async def change_all(self, changes: Sequence[tuple[str, Change]]) -> list[Changed | None]:
        return await self._write(
            lambda connection, told: [_change(connection, told, id, change) for id, change in changes]
        )

    async def get(self, id: str) -> Stored | None:
        row = self._reader.execute(_GET, (id,)).fetchone()
        return None if row is None else Stored._make(row)

    async def newest(self, base: str) -> Stored | None:
        row = self._reader.execute(_NEWEST, (base,)).fetchone()
        return None if row is None else Stored._make(row)

    async def find(self, query: Query, *, after: int = 0, limit: int = 100) -> list[Stored]:
        conditions, values = _conditions(query)
        where = " and ".join(["seq > ?", *conditions])
        sql = f"select {_COLUMNS} from asks where {where} order by seq limit ?"  # noqa: S608
        return [Stored._make(row) for row in await self._list(sql, (after, *values, limit))]

    async def history(self, query: Query, *, after: int, limit: int) -> list[StoredEvent]:
        conditions, values = _conditions(query, without_state=True)
        where = " and ".join(["events.cursor > ?", *conditions])
        sql = f"{_HISTORY} from events join asks on asks.seq = events.ask where {where} order by events.cursor limit ?"
        rows = await self._list(sql, (after, *values, limit))
        return [StoredEvent(row[0], row[1], row[2], Stored._make(row[3:])) for row in rows]

    async def cursor(self) -> int:
        row = self._reader.execute("select max(cursor) from events").fetchone()
        return row[0] or 0

    async def deadlines(self) -> list[tuple[int, str]]:
        sql = "select deadline, id from asks where state = 'asked' and deadline is not null"
        return [(row[0], row[1]) for row in await self._list(sql, ())]

    def tail(self, listener: Tail) -> Callable[[], None]:
        self._tails.append(listener)

        def stop() -> None:
            if listener in self._tails:
                self._tails.remove(listener)

        return stop

    # Other rooms ------------------------------------------------------------------------------------------

    async def write(self, sql: str, *values: Any) -> list[Row]:
        def run(connection: sqlite3.Connection, told: _Events) -> list[Row]:
            return connection.execute(sql, values).fetchall()

        return await self._write(run)

    async def read(self, sql: str, *values: Any) -> list[Row]:
        return self._reader.execute(sql, values).fetchall()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        while self._busy:
            self._idle = self._loop.create_future()
            await self._idle
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

    async def _write(self, run: Callable[[sqlite3.Connection, _Events], T]) -> T:
        if self._closed:
            raise StoreFailed("the store is closed; the desk is shutting down")
        done: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append(_Operation(run, done))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._begin)
        # A caller that gives up does not take its write back: it stays in the batch.
        return await done

    def _begin(self) -> None:
        batch, self._waiting = self._waiting, []
        results: list[Any] = []
        told = _Events(self._cursor)
        while batch:
            try:
                results, told = [], _Events(self._cursor)
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

    def _finish(
        self,
        batch: list[_Operation],
        *,
        results: list[Any] | None = None,
        told: list[StoredEvent] | None = None,
        failure: Exception | None = None,
    ) -> None:
        if told:
            self._cursor = told[-1].cursor
            for listener in tuple(self._tails):
                try:
                    listener(told)
                except Exception:  # what is committed is committed: the writers must hear of it
                    log.exception("a listener failed on events %d to %d", told[0].cursor, told[-1].cursor)
        for index, operation in enumerate(batch):
            if failure is None and results is not None:
                _settle(operation.done, result=results[index])
            else:
                _settle(operation.done, failure=failure)
        self._next()

    def _next(self) -> None:
        if self._waiting:
            self._loop.call_soon(self._begin)
            return
        self._busy = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _roll_back(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("rollback")

    async def _list(self, sql: str, values: tuple[Any, ...]) -> list[Row]:
        if self._in_memory:
            return self._lister.execute(sql, values).fetchall()
        return await self._loop.run_in_executor(self._lists, lambda: self._lister.execute(sql, values).fetchall())

    def _migrate(self) -> None:
        """Apply the numbered files that this database has not seen. The lock on the file is held."""
        version: int = self._writer.execute("pragma user_version").fetchone()[0]
        steps = sorted(
            (int(file.name[:4]), file)
            for file in (resources.files("handraise.stores") / "migrations" / "sqlite").iterdir()
            if file.name.endswith(".sql")
        )
        newest = steps[-1][0]
        if version > newest:
            raise StoreTooNew(
                f"this database was written by a newer handraise (its version is {version}, this program knows "
                f"{newest}); upgrade handraise, or start with another HANDRAISE_HOME"
            )
        for number, file in steps:
            if number > version:
                script = f"begin immediate;\n{file.read_text()}\npragma user_version = {number};\ncommit;"
                self._writer.executescript(script)


plugin = SqliteStore


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

    def __init__(self, after: int) -> None:
        super().__init__()
        self.cursor = after

    def tell(self, type: str, *, at: int, stored: Stored) -> None:
        self.cursor += 1
        self.append(StoredEvent(self.cursor, type, at, stored))

    def write(self, connection: sqlite3.Connection) -> None:
        connection.executemany(_TELL, [_row(event) for event in self])


def _row(event: StoredEvent) -> Row:
    ask = event.ask
    return (
        event.cursor,
        event.type,
        event.at,
        ask.seq,
        ask.state,
        ask.asked_at,
        ask.deadline,
        ask.answer,
        ask.delivered_at,
        ask.delivery_error,
        ask.withdrawn_reason,
    )


def _change(connection: sqlite3.Connection, told: _Events, id: str, change: Change) -> Changed | None:
    statement = _change_statement(
        tuple(change.set), change.states, due=change.due is not None, undelivered=change.undelivered
    )
    values = [*change.set.values(), id, *change.states]
    if change.due is not None:
        values.append(change.due)
    row = connection.execute(statement, values).fetchone()
    if row is not None:
        stored = Stored._make(row)
        told.tell(change.event, at=change.at, stored=stored)
        return Changed(True, stored)
    row = connection.execute(_GET, (id,)).fetchone()
    return None if row is None else Changed(False, Stored._make(row))


@cache
def _change_statement(columns: tuple[str, ...], states: tuple[str, ...], *, due: bool, undelivered: bool) -> str:
    where = ["id = ?", f"state in ({', '.join('?' * len(states))})"]
    if due:
        where.append("deadline <= ?")
    if undelivered:
        where.append("delivered_at is null")
    assignments = ", ".join(f"{column} = ?" for column in columns)
    return f"update asks set {assignments} where {' and '.join(where)} returning {_COLUMNS}"  # noqa: S608


def _conditions(query: Query, *, without_state: bool = False) -> tuple[list[str], list[str]]:
    given = [(key, value) for key, value in query.items() if value is not None]
    if without_state:
        given = [(key, value) for key, value in given if key != "state"]
    if ("state", "asked") in given:  # as a literal, so that the partial index on open asks is used
        given.remove(("state", "asked"))
        literal = ["asks.state = 'asked'"]
    else:
        literal = []
    return [*literal, *(f"asks.{key} = ?" for key, _ in given)], [value for _, value in given]


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


def _failed(failure: BaseException) -> StoreFailed:
    return StoreFailed(
        f"the database could not write ({failure}); nothing of this was kept, what was acknowledged before is safe. "
        "Free space on the disk or look at its health, then try again"
    )
