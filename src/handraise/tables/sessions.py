"""Sessions as the desk knows them: conversations with agents, what people want of them, and what was said.

One that an ask mentions first only has a record. One that was started here belongs to a worker, who alone writes its
state; what people want of it (a prompt, an abort, its end, an answer told again) is an **order**, written down here and
carried out there.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic_core import to_json

from handraise.agents import Message, Mode
from handraise.asks import Ask, Handling, Origin
from handraise.errors import NothingToDeliver, SessionDiffers, SessionEnded, SessionNotFound
from handraise.stores import Database, Row, Statement, writable
from handraise.tables.keys import Keys
from handraise.wire import handling_fields, parse_handling, time_text
from handraise.wire.plain import shape_of
from handraise.wire.sessions import Session

__all__ = ["NewSession", "Order", "SaidMessage", "SessionRecord", "Sessions", "WrittenMessage"]

T = TypeVar("T")

TOPIC = "sessions"
NOT_OURS = "not one that was started here, so it cannot be steered from here"
NOBODY = ""  # the worker of a session whose machine is gone, and whose step began again elsewhere

State = Literal["running", "idle", "failed", "done"]
Kind = Literal["prompt", "abort", "close", "deliver"]

MOST_FORGOTTEN = 50  # sessions in one commit

# Nothing is under way, nobody is asked, and no ask, subagent or open run refers to it.
_OVER = """coalesce(updated_at, created_at) < ? and (state is null or state <> 'running')
and not exists (select 1 from orders where orders.session = sessions.id and done_at is null)
and not exists (select 1 from asks where asks.session = sessions.id)
and not exists (select 1 from sessions as child where child.parent = sessions.id)
and not exists (select 1 from runs where runs.id = sessions.run and runs.state = 'open')"""

_COLUMNS = """
select id, agent, parent, cwd, machine, created_at,
    (select count(*) from asks where asks.session = sessions.id and asks.state = 'asked')
    + (select count(*) from asks join sessions as child on asks.session = child.id
        where child.parent = sessions.id and asks.state = 'asked'),
    (select count(*) from orders where orders.session = sessions.id and done_at is null),
    state, mode, command, handling, run, step, handle, worker, error, stale_after, updated_at
from sessions"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """What somebody wants to be started."""

    agent: str
    prompt: str
    cwd: str | None = None
    mode: Mode | None = None
    command: tuple[str, ...] = ()  # of an agent that runs whatever speaks its protocol
    handling: Handling = field(default_factory=Handling)
    id: str | None = None  # one that is taken already is that session, and nothing is started
    run: str | None = None
    step: str | None = None
    stale_after: float | None = None  # seconds without a sign of life and an open ask, after which it is stopped


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    id: str
    agent: str
    parent: str | None
    cwd: str | None
    machine: str | None
    created_at: int
    open_asks: int
    orders: int  # those that were not carried out yet
    state: str | None  # as its worker wrote it; None: it was not started here
    mode: Mode | None
    command: tuple[str, ...]
    handling: Handling
    run: str | None
    step: str | None
    handle: Mapping[str, Any] | None  # what its adapter needs to find it again
    worker: str | None
    error: str | None
    stale_after: float | None
    updated_at: int | None

    @property
    def shown_state(self) -> str:
        """`running`, `waiting` (for a person), `idle`, `failed` or `done`.

        One that was told something runs, also where its worker has not begun with it.
        """
        busy = self.state == "running" or (self.state in ("idle", "failed") and self.orders > 0)
        if self.open_asks and (busy or self.state is None):
            return "waiting"
        return "running" if busy else self.state or "idle"

    def to_shape(self) -> Session:
        return shape_of(
            Session,
            self,
            state=self.shown_state,
            managed=self.state is not None,
            command=self.command or None,
            created_at=time_text(self.created_at),
            updated_at=time_text(self.updated_at or self.created_at),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a person wants of a session."""

    id: str
    session: str
    kind: Kind
    text: str  # of a delivery: the id of the ask
    started: bool  # the turn of a prompt has begun

    @property
    def ends_turn(self) -> bool:
        """It does not wait for the turn that is under way."""
        return self.kind in ("abort", "close")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidMessage:
    id: str  # they sort in the order they were said
    session: str
    role: str
    text: str
    extra: Mapping[str, Any] | None
    at: int


class WrittenMessage(NamedTuple):
    """A message as its row has it, so that it can be told without being parsed."""

    id: str
    session: str
    role: str
    text: str
    extra: str | None
    at: int

    @property
    def size(self) -> int:
        return len(self.text) + len(self.extra or "")

    def message(self) -> SaidMessage:
        return SaidMessage(
            id=self.id,
            session=self.session,
            role=self.role,
            text=self.text,
            extra=None if self.extra is None else json.loads(self.extra),
            at=self.at,
        )

    def told(self) -> bytes:
        """As JSON."""
        told = to_json({"id": self.id, "role": self.role, "text": self.text, "at": time_text(self.at)})
        return told if self.extra is None else b'%s,"extra":%s}' % (told[:-1], self.extra.encode())


class Sessions:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[str] = set()
        self._keys = Keys()
        self._waits: set[asyncio.Event] = set()
        self._closing = False

    async def mention(self, origin: Origin, *, at: int) -> None:
        """Make sure the session has a record. The first mention decides what it says."""
        if origin.session in self._known:
            return
        if len(self._known) > 100_000:
            self._known.clear()
        await self._database.write(
            "insert into sessions (id, agent, parent, cwd, machine, created_at) values (?, ?, ?, ?, ?, ?) "
            "on conflict (id) do nothing",
            origin.session,
            origin.agent,
            origin.parent,
            writable(origin.cwd),
            writable(origin.machine),
            at,
        )
        self._known.add(origin.session)

    async def get(self, id: str) -> SessionRecord:
        rows = await self._database.read(f"{_COLUMNS} where id = ?", id)
        if not rows:
            raise SessionNotFound(id)
        return _record(rows[0])

    async def children(self, id: str) -> list[str]:
        """Its subagents' sessions."""
        rows = await self._database.read("select id from sessions where parent = ? order by created_at, id", id)
        return [child for (child,) in rows]

    async def newest(self, *, limit: int = 200) -> list[SessionRecord]:
        """The newest first."""
        rows = await self._database.read(f"{_COLUMNS} order by created_at desc, id limit ?", limit)
        return [_record(row) for row in rows]

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever a session, an order or a message was written, here or at another desk."""
        changed = asyncio.Event()
        stop = self._database.hear(TOPIC, changed.set)
        try:
            yield changed
        finally:
            stop()

    async def wait_until(self, ready: Callable[[], Awaitable[T]], *, timeout: float) -> T:
        """What `ready` returns once that is something, or what it returned last.

        That is when the time is up or the desk closes.
        """
        async with self.changes() as changed:
            found = await ready()
            self._waits.add(changed)
            try:
                async with asyncio.timeout(timeout):
                    while not found and not self._closing:
                        await changed.wait()
                        changed.clear()
                        found = await ready()
            except TimeoutError:
                return found
            finally:
                self._waits.discard(changed)
        return found

    @property
    def waits(self) -> int:
        """How many callers wait for a change right now."""
        return len(self._waits)

    def cancel_waits(self) -> None:
        """End every wait, as a desk does that shuts down."""
        self._closing = True
        for changed in self._waits:
            changed.set()

    # What people want -------------------------------------------------------------------------------------

    async def create(self, wanted: NewSession, *, worker: str | None, machine: str | None, at: int) -> SessionRecord:
        """A session to be started, with its first prompt. Without a worker, whichever is there first takes it."""
        id = wanted.id or f"ses_{secrets.token_hex(10)}"
        stale_after = None if wanted.stale_after is None else max(1, round(wanted.stale_after * 1000))
        row = (
            "insert into sessions (id, agent, cwd, machine, created_at, state, mode, command, handling, run, step, "
            "worker, stale_after, updated_at) values (?, ?, ?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?) "
            "on conflict (id) do nothing",
            (
                id,
                wanted.agent,
                writable(wanted.cwd),
                machine,
                at,
                wanted.mode,
                json.dumps(wanted.command) if wanted.command else None,
                json.dumps(handling_fields(wanted.handling)),
                wanted.run,
                wanted.step,
                worker,
                stale_after,
                at,
            ),
        )
        first = (
            "insert into orders (id, session, kind, text, created_at) select cast(? as text), id, 'prompt', "
            "cast(? as text), cast(? as bigint) from sessions where id = ? and state is not null "
            "and not exists (select 1 from orders where orders.session = sessions.id)",
            (self._keys.make(at), writable(wanted.prompt), at, id),
        )
        await self._database.write_all(row, first, topic=TOPIC)
        record = await self.get(id)
        if record.state is None:
            raise SessionEnded(id, state=NOT_OURS)
        return record

    async def began_with(self, wanted: NewSession) -> SessionRecord | None:
        """The session that has this id, if there is one. Raises SessionDiffers where it began with something else."""
        if wanted.id is None:
            return None
        try:
            record = await self.get(wanted.id)
        except SessionNotFound:
            return None
        first = "select text from orders where session = ? and kind = 'prompt' order by id limit 1"
        prompts = [text for (text,) in await self._database.read(first, wanted.id)]
        was = (record.agent, record.cwd, record.mode, record.command, record.handling, record.stale_after)
        wants = (wanted.agent, writable(wanted.cwd), wanted.mode, wanted.command, wanted.handling, wanted.stale_after)
        if record.state is None or was != wants or prompts not in ([], [writable(wanted.prompt)]):
            raise SessionDiffers(wanted.id)
        return record

    async def prompts(self, id: str) -> int:
        """How many it was ever told."""
        rows = await self._database.read("select count(*) from orders where session = ? and kind = 'prompt'", id)
        return int(rows[0][0])

    async def replies(self, id: str) -> list[str | None]:
        """What the agent said at the end of each turn that was carried out; None where one failed."""
        rows = await self._database.read(
            "select reply from orders where session = ? and kind = 'prompt' and done_at is not null order by id", id
        )
        return [reply for (reply,) in rows]

    async def order(
        self, session: str, kind: Kind, text: str = "", *, at: int, beside: Sequence[Statement] = ()
    ) -> None:
        """Raises SessionNotFound, and SessionEnded where it is over or was never ours to steer.

        `beside` is written in the same commit.
        """
        record = await self.get(session)
        if record.state is None:
            raise SessionEnded(session, state=NOT_OURS)
        if record.state == "done":
            raise SessionEnded(session)
        order = (
            "insert into orders (id, session, kind, text, created_at) values (?, ?, ?, ?, ?)",
            (self._keys.make(at), session, kind, writable(text), at),
        )
        await self._database.write_all(order, *beside, topic=TOPIC)

    async def deliver_again(self, ask: Ask, *, at: int) -> None:
        """Have the session's worker tell the agent an answer that it could not take. Said twice, it is done once.

        Raises NothingToDeliver where there is no such answer, and SessionEnded where the session is not ours to steer.
        """
        if ask.answer is None:
            raise NothingToDeliver(ask.id, f"it is {ask.state}")
        if ask.delivered_at is not None:
            raise NothingToDeliver(ask.id, "its agent has the answer")
        if ask.delivery_error is None:
            raise NothingToDeliver(ask.id, "its answer is on its way")
        if ask.id not in [order.text for order in await self.orders(ask.origin.root) if order.kind == "deliver"]:
            await self.order(ask.origin.root, "deliver", ask.id, at=at)

    async def messages(self, session: str, *, after: str = "", limit: int = 200) -> list[SaidMessage]:
        """What was said after `after`, the oldest first; of more than `limit` the first ones."""
        sql, values = _saying(session, after=after, before=None)
        return [WrittenMessage._make(row).message() for row in await self._database.read(sql, *values, limit)]

    async def message_page(
        self, session: str, *, after: str, before: str | None, limit: int, most: int
    ) -> list[WrittenMessage]:
        """What was said after `after`, from the oldest on. It ends with the message with which they have `most`
        characters, if that comes before the limit.

        With `before` only what was said before that, or anything if it is empty, and from the newest on.
        """
        sql, values = _saying(session, after=after, before=before)
        rows = await self._database.read_page(sql, *values, limit, contents=("text", "extra"), most=most)
        return [WrittenMessage._make(row) for row in rows]

    async def forget(self, *, before: int, limit: int) -> int:
        """Forget sessions that are over and old, with what was said and ordered in them: at most about `limit` rows.

        Returns how many rows went; 0 means that was all.
        """
        self._known.clear()  # another desk may have forgotten one
        old = f"select id from sessions where created_at < ? and {_OVER} order by created_at, id limit ?"  # noqa: S608
        ids = [id for (id,) in await self._database.read(old, before, before, MOST_FORGOTTEN)]
        if not ids:
            return 0
        theirs = f"({', '.join('?' * len(ids))})"
        for table in ("messages", "orders", "wires"):
            some = f"select id from {table} where session in {theirs} limit ?"  # noqa: S608 - our own words, here and below
            gone = await self._database.write(
                f"delete from {table} where id in ({some}) returning id",  # noqa: S608
                *ids,
                limit,
            )
            if gone:
                return len(gone)
        rows = await self._database.write(
            f"delete from sessions where id in {theirs} and {_OVER} returning id",  # noqa: S608
            *ids,
            before,
            topic=TOPIC,
        )
        return len(rows)

    # What the worker writes -------------------------------------------------------------------------------

    async def claim(self, worker: str) -> None:
        """Take every session that waits for a worker."""
        waiting = "worker is null and state is not null and state <> 'done'"
        if await self._database.read(f"select 1 from sessions where {waiting} limit 1"):  # noqa: S608 - our own words
            await self._database.write(f"update sessions set worker = ? where {waiting}", worker)  # noqa: S608

    async def lost(self, *, run: str, step: str) -> set[str]:
        """The sessions of a step that began again because their machine is gone."""
        rows = await self._database.read(
            "select id from sessions where run = ? and step = ? and worker = ?", run, step, NOBODY
        )
        return {id for (id,) in rows}

    async def may_be_driven(self, run: str) -> bool:
        """Whether a session of a run is anybody's: while the run goes on, it is for whoever runs that."""
        return not await self._database.read(
            "select 1 from runs where id = ? and state = 'open' and asleep_until is null", run
        )

    async def owned(self, worker: str) -> list[SessionRecord]:
        """The sessions of a worker that have something to do: a turn that was cut off, or an order."""
        rows = await self._database.read(
            f"{_COLUMNS} where worker = ? and exists "  # noqa: S608 - our own columns
            "(select 1 from orders where orders.session = sessions.id and done_at is null) order by created_at, id",
            worker,
        )
        return [_record(row) for row in rows]

    async def orders(self, session: str) -> list[Order]:
        """Those that were not carried out yet, the oldest first."""
        rows = await self._database.read(
            "select id, session, kind, text, started_at from orders where session = ? and done_at is null order by id",
            session,
        )
        return [
            Order(id=id, session=of, kind=kind, text=text, started=started_at is not None)
            for id, of, kind, text, started_at in rows
        ]

    async def begin(self, order: Order, *, at: int) -> None:
        await self._database.write("update orders set started_at = ? where id = ?", at, order.id)

    async def done(self, order: Order, *, at: int, reply: str | None = None) -> None:
        await self._database.write(
            "update orders set done_at = ?, reply = ? where id = ?", at, writable(reply), order.id, topic=TOPIC
        )

    async def write(
        self,
        id: str,
        *,
        state: State,
        at: int,
        error: str | None = None,
        handle: Mapping[str, Any] | None = None,
        worker: str,
    ) -> None:
        """The state of a session, as long as it is this worker's. A handle that is not given stays."""
        await self._database.write(
            "update sessions set state = ?, error = ?, handle = coalesce(?, handle), updated_at = ? "
            "where id = ? and worker = ?",
            state,
            writable(error),
            None if handle is None else json.dumps(handle),
            at,
            id,
            worker,
            topic=TOPIC,
        )

    async def said(self, session: str, message: Message, *, at: int) -> None:
        await self._database.write(
            "insert into messages (id, session, role, text, extra, at) values (?, ?, ?, ?, ?, ?)",
            self._keys.make(at),
            session,
            message.role,
            writable(message.text),
            None if not message.extra else json.dumps(message.extra),
            at,
            topic=TOPIC,
        )


def _saying(session: str, *, after: str, before: str | None) -> tuple[str, list[Any]]:
    """The statement that reads messages, with its values but for the limit."""
    sql = (
        "select id, session, role, text, extra, at from messages where session = ? and id > ? "  # noqa: S608 - our own words
        f"{'and id < ?' if before else ''} order by id {'asc' if before is None else 'desc'} limit ?"
    )
    return sql, [session, after, before] if before else [session, after]


def _record(row: Row) -> SessionRecord:
    (id, agent, parent, cwd, machine, created_at, open_asks, orders, *managed) = row
    state, mode, command, handling, run, step, handle, worker, error, stale_after, updated_at = managed
    return SessionRecord(
        id=id,
        agent=agent,
        parent=parent,
        cwd=cwd,
        machine=machine,
        created_at=created_at,
        open_asks=open_asks,
        orders=orders,
        state=state,
        mode=mode,
        command=() if command is None else tuple(json.loads(command)),
        handling=parse_handling(_given(handling), onto=Handling()),
        run=run,
        step=step,
        handle=None if handle is None else json.loads(handle),
        worker=worker,
        error=error,
        stale_after=None if stale_after is None else stale_after / 1000,
        updated_at=updated_at,
    )


def _given(handling: str | None) -> dict[str, Any]:
    fields = {} if handling is None else json.loads(handling)
    return {key: value for key, value in fields.items() if value is not None}
