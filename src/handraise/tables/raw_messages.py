"""The raw messages between agents and their adapters, kept for a while so that people can look at them.

Whoever tells of a message never waits: it is put aside, and written in batches, with its secrets hidden before that.
What is kept of a session is bounded, and losing the last half second of it is no loss; so nothing here ever fails a
session.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from handraise.agents import Listener, Silent, Wire
from handraise.clock import Clock
from handraise.errors import HandraiseError
from handraise.stores import Database, Row, writable
from handraise.tables.keys import Keys
from handraise.text.masking import Mask
from handraise.wire import sessions as shapes
from handraise.wire import time_text
from handraise.wire.plain import shape_of

__all__ = ["KEPT", "MOST_BYTES", "MOST_KEPT", "Found", "KeptWire", "Wires"]

log = logging.getLogger(__name__)

TOPIC = "wires"
PAUSE = 0.5  # seconds in which messages gather before they are written
BATCH = 200  # messages that are written without waiting for more
MOST_WAITING = 5000  # messages that gather while the database does not take any; beyond that the oldest go
MOST_KEPT = 2000  # messages of a session
MOST_BYTES = 4 * 1024 * 1024  # of a session
SLACK = 1.1  # how far a session may be over either, so that not every batch has to look for what is to go
LONGEST = 64 * 1024  # characters of one message; what is longer is cut
LONGEST_NAME = 200
LONGEST_RUN = 10.0  # seconds that a row of pieces gathers before it is written, since people may be looking
MOST_PARTS = 20_000  # fields and entries of one message
MOST_REQUESTS = 1000  # requests of a session that may still become an ask, or be answered
MOST_SESSIONS = 1000  # of which that is remembered
KEPT = timedelta(days=7)
LOOK_AGAIN = 3600.0  # seconds until what is too old is looked for again
DELETED_TOGETHER = 2000

_COLUMNS = "id, session, at, way, name, ask, body, size, pieces"
_INSERT = f"insert into wires ({_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - our own columns


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWire:
    id: str  # they sort in the order they were seen
    session: str
    at: int
    way: str
    name: str
    ask: str | None
    body: Any
    size: int  # in characters, before it was cut
    pieces: int  # how many in a row this stands for; its body is that of the last one

    def to_shape(self) -> shapes.Wire:
        return shape_of(shapes.Wire, self, at=time_text(self.at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    wires: list[KeptWire]  # the oldest first
    has_more: bool  # on the far side: newer ones where they were read on, older ones otherwise


@dataclass(slots=True)
class _Entry:
    """A message that is not written yet, or whose ask may still be told."""

    id: str
    session: str
    at: int
    wire: Wire
    ask: str | None
    pieces: int = 1
    is_taken: bool = False  # by a batch: what is learned from now on is written by itself


_WRITTEN = Wire(way="in", body=None)


class _Live:
    """What is remembered of a session while messages come."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str], _Entry] = {}  # rows of pieces that may go on, by way and name
        self.requests: OrderedDict[str, list[_Entry]] = OrderedDict()  # what was seen of each, until it is an ask
        self.asks: OrderedDict[str, str] = OrderedDict()  # by request
        self.kept = self.size = -1  # messages and characters in the database; below 0 nobody has looked


class Wires:
    """Use as an async context manager: while it is open, what was seen is written. Reading needs no opening."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock,
        known: Iterable[str] = (),
        keep: timedelta | None = None,
        is_on: bool = True,
    ) -> None:
        """`known` are secrets of ours. `keep` is how long the desk keeps things, which counts where it is shorter."""
        self.is_on = is_on
        self._database = database
        self._clock = clock
        self._mask = Mask(known, longest=LONGEST)
        self._keep = min(keep or KEPT, KEPT)
        self._waiting: list[_Entry] = []
        self._learned: list[tuple[str, str]] = []  # an ask, and the id of the message that turned out to be it
        self._live: dict[str, _Live] = {}
        self._has_some, self._has_many = asyncio.Event(), asyncio.Event()
        self._alone = asyncio.Lock()
        self._keys = Keys()
        self._is_failing = False
        self._writing: asyncio.Task[None] | None = None
        self._waits: set[asyncio.Event] = set()
        self._is_closing = self._is_over = False

    async def __aenter__(self) -> Self:
        self._writing = asyncio.create_task(self._write_in_turn())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._has_some.set()
        self._has_many.set()
        if self._writing is not None:
            await asyncio.wait([self._writing])  # a batch that is under way is not lost
        await self.flush()

    # Seeing -------------------------------------------------------------------------------------------------------

    def seen(self, session: str, wire: Wire) -> None:
        if not self.is_on:
            return
        live = self._of(session)
        at = self._clock.now()
        if wire.is_piece:
            run = live.runs.get((wire.way, wire.name))
            if run is None:
                live.runs[wire.way, wire.name] = _Entry(self._keys.make(at), session, at, wire, wire.ask)
                self._has_some.set()
            else:
                run.wire, run.pieces = wire, run.pieces + 1
            return
        self._end_runs(live)
        ask = wire.ask or (live.asks.get(wire.request) if wire.request is not None else None)
        entry = _Entry(self._keys.make(at), session, at, wire, ask)
        if wire.request is not None and wire.way == "in":
            live.requests.setdefault(wire.request, []).append(entry)
            _bound(live.requests)
        elif wire.request is not None and wire.way == "out":  # some protocols count their requests from one again
            live.requests.pop(wire.request, None)
            live.asks.pop(wire.request, None)
        self._put(entry)

    def became(self, session: str, ask: str, *, request: str) -> None:
        if not self.is_on:
            return
        live = self._of(session)
        live.asks[request] = ask
        _bound(live.asks)
        for entry in live.requests.pop(request, ()):
            entry.ask = ask
            if entry.is_taken:
                self._learned.append((ask, entry.id))
                self._has_some.set()

    def of(self, session: str) -> Listener:
        """Who keeps what is on the wire of this session, and nothing else of it."""
        return _Onlooker(self, session)

    def forget(self, session: str) -> None:
        """Nothing more comes from it for now."""
        live = self._live.pop(session, None)
        if live is not None:
            self._end_runs(live)

    def _of(self, session: str) -> _Live:
        live = self._live.get(session)
        if live is None:
            if len(self._live) >= MOST_SESSIONS:  # of terminals, whose end nobody tells
                self.forget(next(iter(self._live)))
            live = self._live[session] = _Live()
        return live

    def _end_runs(self, live: _Live) -> None:
        """Together, since the keys of those that began later are higher."""
        runs, live.runs = live.runs, {}
        for run in runs.values():
            self._put(run)

    def _put(self, entry: _Entry) -> None:
        self._waiting.append(entry)
        if len(self._waiting) > MOST_WAITING:
            del self._waiting[: MOST_WAITING // 10]
        self._has_some.set()
        if len(self._waiting) >= BATCH:
            self._has_many.set()

    # Writing ------------------------------------------------------------------------------------------------------

    async def _write_in_turn(self) -> None:
        loop = asyncio.get_running_loop()
        look_at = loop.time()
        while not self._is_over:
            if loop.time() >= look_at:
                await self.forget_old()
                look_at = loop.time() + LOOK_AGAIN
            with suppress(TimeoutError):
                async with asyncio.timeout_at(look_at):
                    await self._has_some.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE):
                    await self._has_many.wait()
            now = self._clock.now()
            for live in self._live.values():
                if any(now - run.at >= LONGEST_RUN * 1000 for run in live.runs.values()):
                    self._end_runs(live)
            await self._flush()
            if any(live.runs for live in self._live.values()):
                self._has_some.set()

    async def flush(self) -> None:
        """Write what was seen so far."""
        for live in self._live.values():
            self._end_runs(live)
        await self._flush()

    async def _flush(self) -> None:
        """Whatever goes wrong is said once, and the batch is lost."""
        async with self._alone:
            self._has_some.clear()
            self._has_many.clear()
            waiting, self._waiting = self._waiting, []
            learned, self._learned = self._learned, []
            for entry in waiting:
                entry.is_taken = True
            if learned:  # of messages that were written before
                await self._attempt(self._learn(learned))
            for begin in range(0, len(waiting), BATCH):  # as many at a time as hold nobody else up
                await self._write(waiting[begin : begin + BATCH])

    async def _write(self, batch: Sequence[_Entry]) -> None:
        rows = await asyncio.to_thread(_rows, batch, self._mask)
        for entry in batch:
            entry.wire = _WRITTEN  # whoever still remembers it needs no more than its id
        await self._attempt(self._insert(rows))

    async def _insert(self, rows: Sequence[Row]) -> None:
        await self._count(rows)
        await self._database.write_all(*((_INSERT, row) for row in rows), topic=TOPIC)
        await self._shorten({row[1] for row in rows})

    async def _learn(self, learned: Sequence[tuple[str, str]]) -> None:
        statements = [("update wires set ask = ? where id = ?", (writable(ask), id)) for ask, id in learned]
        await self._database.write_all(*statements, topic=TOPIC)

    async def _attempt(self, writing: Awaitable[None]) -> None:
        """A database that fails is said once, until it works again."""
        try:
            await writing
        except Exception as failure:
            if not self._is_failing:
                is_ours = isinstance(failure, HandraiseError)
                log.error("messages of agents are not kept for now: %s", failure, exc_info=not is_ours)
            self._is_failing = True
        else:
            self._is_failing = False

    async def _count(self, rows: Sequence[Row]) -> None:
        for row in rows:
            live = self._of(row[1])
            if live.kept < 0:
                found = await self._database.read(
                    "select count(*), coalesce(sum(length(body)), 0) from wires where session = ?", row[1]
                )
                live.kept, live.size = int(found[0][0]), int(found[0][1])
            live.kept += 1
            live.size += len(row[6])

    async def _shorten(self, sessions: set[str]) -> None:
        """Let the oldest messages of those sessions go that have too many."""
        for session in sessions:
            live = self._of(session)
            if live.kept <= MOST_KEPT * SLACK and live.size <= MOST_BYTES * SLACK:
                continue
            listed = await self._database.read(
                "select id, length(body) from wires where session = ? order by id desc", session
            )
            kept = size = 0
            for id, length in listed:
                if kept >= MOST_KEPT or size + length > MOST_BYTES:
                    await self._database.write("delete from wires where session = ? and id <= ?", session, id)
                    break
                kept, size = kept + 1, size + length
            live.kept, live.size = kept, size

    async def forget_old(self) -> None:
        """Let go of what was kept for long enough."""
        before = f"{max(0, self._clock.now() - round(self._keep.total_seconds() * 1000)):013d}"
        try:
            while True:
                oldest = "select id from wires where id < ? order by id limit ?"
                gone = await self._database.write(
                    f"delete from wires where id in ({oldest}) returning id",  # noqa: S608 - our own words
                    before,
                    DELETED_TOGETHER,
                )
                if len(gone) < DELETED_TOGETHER:
                    return
        except HandraiseError as failure:
            log.warning("old messages of agents could not be let go, trying again later: %s", failure)

    # Reading ------------------------------------------------------------------------------------------------------

    def masked(self, value: Any) -> Any:
        """JSON with its secrets hidden, as they are in what is kept."""
        return self._mask.json(value)

    async def read(
        self,
        session: str | None,
        *,
        after: str | None = None,
        before: str | None = None,
        way: str | None = None,
        name: str | None = None,
        asks: Sequence[str] = (),
        is_ask: bool = False,
        text: str | None = None,
        limit: int = 200,
    ) -> Found:
        """Those after a message, from there on; otherwise the last ones, and with `before` the last before a message.

        `asks`: only what belongs to one of these. `is_ask`: only what belongs to any.
        """
        conditions: list[str] = []
        values: list[Any] = []
        for condition, value in (
            ("session = ?", session),
            ("id > ?", after),
            ("id < ?", before),
            ("way = ?", way),
            ("name = ?", name),
            ("lower(body) like ? escape '!'", None if not text else _pattern(text)),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(writable(value))
        if asks:
            conditions.append(f"ask in ({', '.join('?' * len(asks))})")
            values += map(writable, asks)
        elif is_ask:
            conditions.append("ask is not null")
        order = "id" if after is not None else "id desc"
        where = " and ".join(conditions) or "1 = 1"
        rows = await self._database.read(
            f"select {_COLUMNS} from wires where {where} order by {order} limit ?",  # noqa: S608 - our own columns
            *values,
            limit + 1,
        )
        wires = [_kept(row) for row in rows[:limit]]
        return Found(wires=wires if after is not None else wires[::-1], has_more=len(rows) > limit)

    async def wait(self, session: str, *, after: str, timeout: float, **which: Any) -> Found:
        """What `read` finds after a message, once there is something, the time is up, or the desk closes."""
        changed = asyncio.Event()
        stop = self._database.hear(TOPIC, changed.set)
        self._waits.add(changed)
        found = Found(wires=[], has_more=False)
        try:
            async with asyncio.timeout(timeout):
                found = await self.read(session, after=after, **which)
                while not found.wires and not self._is_closing:
                    await changed.wait()
                    changed.clear()
                    found = await self.read(session, after=after, **which)
        except TimeoutError:
            return found
        finally:
            self._waits.discard(changed)
            stop()
        return found

    def cancel_waits(self) -> None:
        """End every wait, as a desk does that shuts down."""
        self._is_closing = True
        for changed in self._waits:
            changed.set()


class _Onlooker(Silent):
    def __init__(self, wires: Wires, session: str) -> None:
        self._wires = wires
        self._session = session

    def seen(self, wire: Wire) -> None:
        self._wires.seen(self._session, wire)

    def became(self, ask: str, *, request: str) -> None:
        self._wires.became(self._session, ask, request=request)


def _bound(remembered: OrderedDict[str, Any]) -> None:
    if len(remembered) > MOST_REQUESTS:
        remembered.popitem(last=False)


def _kept(row: Row) -> KeptWire:
    id, session, at, way, name, ask, body, size, pieces = row
    return KeptWire(
        id=id, session=session, at=at, way=way, name=name, ask=ask, body=json.loads(body), size=size, pieces=pieces
    )


def _pattern(text: str) -> str:
    """For `like`, and as the text is written in JSON."""
    written = json.dumps(text.lower(), ensure_ascii=False)[1:-1]
    escaped = written.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{writable(escaped)}%"


# What is written of a message -----------------------------------------------------------------------------------------


def _rows(batch: Sequence[_Entry], mask: Mask) -> list[Row]:
    """Runs in a thread: a message may be long, and nobody is to wait for it."""
    rows: list[Row] = []
    for entry in batch:
        try:
            body, size = _written(entry.wire.body, mask)
        except Exception as broken:  # such as one that is nested too deeply; the others are kept all the same
            log.info("a message of session %s could not be kept: %s", entry.session, type(broken).__name__)
            body, size = json.dumps("(this message could not be kept)"), 0
        name = mask.text(entry.wire.name)[:LONGEST_NAME]
        ask = writable(entry.ask)
        rows.append(
            (entry.id, entry.session, entry.at, entry.wire.way, writable(name), ask, body, size, entry.pieces),
        )
    return rows


def _written(body: Any, mask: Mask) -> tuple[str, int]:
    """As JSON, without secrets, and how long it was. What is too long loses the ends of its longest texts."""
    outline = _Outline()
    masked = mask.json(outline.json(body))
    text = _dump(masked)
    size = len(text) + outline.beyond
    for longest in (LONGEST // 2, LONGEST // 16, LONGEST // 128):
        if len(text) <= LONGEST:
            return text, size
        text = _dump(Mask(longest=longest).json(masked))
    return (text, size) if len(text) <= LONGEST else (_dump(f"{text[: LONGEST // 2]}…"), size)


def _dump(value: Any) -> str:
    return writable(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)) or ""


class _Outline:
    """A message without what is beyond a number of fields and entries. Its texts are the same ones."""

    def __init__(self) -> None:
        self.beyond = 0  # characters of its texts that will be cut
        self._left = MOST_PARTS

    def json(self, value: Any) -> Any:
        self._left -= 1
        match value:
            case str():
                self.beyond += max(0, len(value) - LONGEST)
            case Mapping():
                return {str(key): self.json(inner) for key, inner in value.items() if self._left > 0}
            case list() | tuple():
                return [self.json(inner) for inner in value if self._left > 0]
        return value
