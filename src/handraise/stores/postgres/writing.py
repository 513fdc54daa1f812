"""Writing with group commit: everything that arrives while a commit runs goes into the next one, over arrays.

Each commit takes one advisory lock first, so commits happen one after the other across all desks and event cursors are
drawn in the order in which they become visible: a reader never skips an event that commits late.

What was not committed when a connection was lost is written again; each commit numbers itself in a row of its desk, so
whether one whose answer was lost took place is looked up there. So a write happens once, or its caller hears that it
failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import asyncpg

from handraise.errors import StoreFailed
from handraise.stores import AlsoWrite, Change, Changed, NewAsk, Opened
from handraise.stores._asks import COLUMNS, EVENT_COLUMNS, event_row
from handraise.stores.postgres.connecting import (
    LOCK,
    NAME,
    Connection,
    Connector,
    Troubles,
    backoff,
    hang_up,
    passes,
    reason_of,
)
from handraise.stores.postgres.following import Follower
from handraise.wire import Stored, StoredEvent

__all__ = ["MOST_WAITING", "Alter", "Free", "Open", "Step", "Writer", "numbered"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 1000  # operations of one commit
MOST_WAITING = 20_000  # operations that wait for a database that is away

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


class Open(NamedTuple):
    id: str
    new: NewAsk
    also_write: AlsoWrite

    def is_done(self, result: Opened) -> bool:
        return result.how in ("new", "reopened")


class Alter(NamedTuple):
    id: str
    change: Change

    @property
    def also_write(self) -> AlsoWrite:
        return self.change.also_write

    def is_done(self, result: Changed | None) -> bool:
        return result is not None and result.done


class Free(NamedTuple):
    """Anything else: a statement of another room."""

    run: Callable[[Connection], Awaitable[Any]]


Step: TypeAlias = Open | Alter | Free


@dataclass(slots=True, eq=False)
class _Operation:
    """What one caller wants in one commit. Its result is that of its steps."""

    steps: Sequence[Step]
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


class Writer:
    """Writes what callers want, in turn. `fetch` reads on a connection of its own."""

    def __init__(
        self,
        connector: Connector,
        *,
        troubles: Troubles,
        follower: Follower,
        fetch: Callable[..., Awaitable[list[Any]]],
    ) -> None:
        self.commit_sizes: Counter[int] = Counter()
        self.begin = ""  # a transaction that holds the lock of every commit
        self._connector = connector
        self._patience = connector.patience
        self._troubles = troubles
        self._follower = follower
        self._fetch = fetch
        self._loop = asyncio.get_running_loop()
        self._number = 0  # of the last commit that was tried
        self.connection: Connection = None  # a new one whenever it was lost
        self._waiting: list[_Operation] = []
        self._has_work = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def prepare(self) -> None:
        """The tables are there: learn how to lock them and where to notify."""
        table = await self.connection.fetchval("select 'events'::regclass::oid::int")
        self.begin = f"begin; select pg_advisory_xact_lock({LOCK}, {table})"
        self._follower.channel = f"handraise_{table}"
        self._follower.own_pid = await self.connection.fetchval("select pg_backend_pid()")

    async def finish(self) -> None:
        """Wait until everything is written, or until that takes too long because the database is away."""
        while not self._is_idle.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_idle.wait(), self._patience.close)
            if "writing" in self._troubles.now:
                break

    async def close(self) -> None:
        if self.connection is not None:
            await hang_up(self.connection)

    async def write(self, *steps: Step, topics: Sequence[str] = ()) -> list[Any]:
        done: asyncio.Future[list[Any]] = self._loop.create_future()
        if len(self._waiting) >= MOST_WAITING and (trouble := self._troubles.now.get("writing")):
            raise StoreFailed(f"{trouble}; too many wait for it already. Nothing of this was kept; try again later")
        told = [
            step.also_write.topic for step in steps if not isinstance(step, Free) and step.also_write.topic is not None
        ]
        self._waiting.append(_Operation(steps, done, self._loop.time(), [*topics, *told]))
        self._is_idle.clear()
        self._has_work.set()
        # A caller that gives up does not take its write back: it stays in the batch.
        return await done

    async def run(self) -> None:
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
                        self._drop_connection()
                        _fail(batch, failure=_failed(broken))
                self._is_idle.set()
        finally:
            _fail(batch, failure=StoreFailed("the desk shut down before the database answered; look what was kept"))
            _fail(self._waiting, failure=StoreFailed("the desk shut down; nothing of this was kept"))

    async def _work(self) -> None:
        """Wait for something to write. After trouble, see from time to time whether it is over."""
        while not self._has_work.is_set():
            try:
                async with asyncio.timeout(self._patience.poll if "writing" in self._troubles.now else None):
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
            self._troubles.note("writing", self._troubles.away(failure))
            self._drop_connection()
        else:
            self._troubles.clear("writing")

    async def _commit(self, batch: list[_Operation]) -> None:
        """Write a batch, however often the connection is lost meanwhile, or tell its callers why not."""
        unsure: _Written | None = None
        tries = backoff()
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
                if connection is None or connection.is_closed() or passes(failure):
                    self._troubles.note("writing", self._troubles.away(failure))
                    self._drop_connection()
                    if isinstance(failure, asyncpg.LockNotAvailableError):
                        await self._end_stuck()
                    await tries.wait()
                    continue
                await self._roll_back()
                if len(batch) > 1 and not _hits_all(failure):
                    # One operation that cannot be written hurts nobody but itself.
                    middle = len(batch) // 2
                    await self._commit(batch[:middle])
                    await self._commit(batch[middle:])
                elif _hits_all(failure):
                    failed = _failed(failure)
                    self._troubles.note("writing", str(failed))
                    _fail(batch, failure=failed)
                else:
                    _fail(batch, failure=failure)
                return
            self._troubles.clear("writing")
            self.commit_sizes[len(batch)] += 1
            await self._follower.tell_own(written.events, before=written.before)
            results = iter(written.results)
            for operation in written.batch:
                own = [next(results) for _ in operation.steps]
                if not operation.done.done():
                    operation.done.set_result(own)
                for topic in operation.topics:
                    self._follower.tell_topic(topic)
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
            _fail(
                late,
                failure=StoreFailed(
                    f"{self._troubles.now.get('writing', 'the database is away')}; {happened}. What was acknowledged "
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
            await _open_all(connection, [at for at in turn if isinstance(steps[at], Open)], steps, results, told)
            await _alter_all(connection, [at for at in turn if isinstance(steps[at], Alter)], steps, results, told)
        for topic in {topic for operation in batch for topic in operation.topics}:
            await connection.execute("select pg_notify($1, $2)", self._follower.channel, f"topic {topic}")
        if told:
            columns = zip(*(event_row(event)[1:] for event in told), strict=True)
            row = await connection.fetchrow(_TELL, len(told), self._follower.channel, *columns)
            before = row[0]
            events = [event._replace(cursor=before + number) for number, event in enumerate(told, 1)]
        else:
            before, events = 0, []
        for at, step in enumerate(steps):
            if isinstance(step, Free):  # last: pruning must see the events of its own commit
                results[at] = await step.run(connection)
            elif step.also_write.statements and step.is_done(results[at]):
                for sql, values in step.also_write.statements:
                    await connection.execute(numbered(sql), *values)
        return _Written(batch, results, before, events, number)

    def _begin_next(self) -> str:
        self._number += 1
        return f"{self.begin}; {_MARK.format(name=self._connector.name, number=self._number)}"

    async def _took_place(self, connection: Connection, written: _Written) -> bool:
        """Whether something was committed, whose end we did not hear. Its number tells: transaction ids do not, since
        after a crash PostgreSQL gives those of lost transactions to others."""
        await connection.execute(self.begin)  # whoever has the lock knows that it has ended
        number = await connection.fetchval("select number from writers where name = $1", self._connector.name)
        await connection.execute("rollback")
        return bool(number == written.number)

    async def _write_connection(self) -> Connection:
        if self.connection is None or self.connection.is_closed():
            self.connection = await self._connector.connect()
            self._follower.own_pid = await self.connection.fetchval("select pg_backend_pid()")
            await self._follower.notice_what_is_lost(self.connection)
            # What our last connection committed without our knowing was notified in its name, and taken for known.
            self._follower.catch_up()
        return self.connection

    def _drop_connection(self) -> None:
        if self.connection is not None:
            self.connection.terminate()
            self.connection = None
        self._follower.own_pid = 0

    async def _end_stuck(self) -> None:
        try:
            await self._fetch(_END_STUCK, self._patience.stuck)
        except Exception as failure:  # not allowed to, or away: then it takes as long as it takes
            log.warning("a commit of another desk takes long and could not be ended: %s", failure)

    async def _roll_back(self) -> None:
        try:
            if self.connection is not None and self.connection.is_in_transaction():
                await self.connection.execute("rollback")
        except Exception as failure:  # it rolls back by itself when it is closed
            log.debug("rolling back: %s", failure)
            self._drop_connection()


def _in_turns(steps: Sequence[Step]) -> list[list[int]]:
    """Which steps may go together: those of one ask keep their order, the others do not mind."""
    turns: list[list[int]] = []
    taken: Counter[str] = Counter()
    for at, step in enumerate(steps):
        turn = 0
        if not isinstance(step, Free):
            turn = taken[step.id]
            taken[step.id] += 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(at)
    return turns


async def _open_all(
    connection: Connection, turn: list[int], steps: Sequence[Step], results: list[Any], told: list[StoredEvent]
) -> None:
    if not turn:
        return
    new = {at: step.new for at in turn if isinstance(step := steps[at], Open)}
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
    connection: Connection, turn: list[int], steps: Sequence[Step], results: list[Any], told: list[StoredEvent]
) -> None:
    shapes: defaultdict[tuple[Any, ...], list[tuple[int, Alter]]] = defaultdict(list)
    for at in turn:
        step = steps[at]
        if isinstance(step, Alter) and "\0" not in step.id:
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
def numbered(sql: str) -> str:
    """`?` as PostgreSQL wants it. Our statements have none inside quotes."""
    parts = sql.split("?")
    return parts[0] + "".join(f"${number}{part}" for number, part in enumerate(parts[1:], 1))


def _hits_all(failure: Exception) -> bool:
    """Full or broken, unlike a statement that is wrong in itself."""
    code = str(getattr(failure, "sqlstate", None) or "")
    return code[:2] in ("53", "58")


def _fail(batch: Iterable[_Operation], *, failure: Exception) -> None:
    for operation in batch:
        if not operation.done.done():
            operation.done.set_exception(failure)


def _failed(failure: BaseException) -> StoreFailed:
    return StoreFailed(
        f"the database could not write ({reason_of(failure)}); nothing of this was kept, what was acknowledged before "
        "is safe. Look at its health and its disk, then try again"
    )
