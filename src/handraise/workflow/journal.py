"""What is written down of runs: who runs them, what happened, and what waits for people.

The trace is the journal. A run is played again from it, so it is written by nobody but the worker that owns the run:
every row is inserted under the condition that the run still has this owner and this epoch. One that was thought dead
and is not gets `Lost`, and touches nothing. What people give (the output of a checkpoint, a cancellation) is not
fenced: the first one counts.

A run that waits for nothing but people is **asleep**: nobody has it, and nobody takes it up. Whatever it may have
waited for wakes it in the same commit, so there is no moment in which it was decided and still sleeps.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from handraise.errors import CheckpointNotFound, OutputDoesNotFit, RunEnded, RunNotFound
from handraise.stores import Database, Row, writable
from handraise.tables.sessions import NOBODY
from handraise.wire import runs as shapes
from handraise.wire import time_text
from handraise.wire.plain import shape_of, to_plain
from handraise.wire.runs import ListedRun, Run
from handraise.workflow.schemas import problems_of

__all__ = [
    "Checkpoint",
    "CheckpointPlace",
    "Claim",
    "Event",
    "Journal",
    "Lost",
    "NewRun",
    "RunRecord",
    "State",
    "WrittenCheckpoint",
    "WrittenEvent",
    "check_retry",
    "event_id",
]

TOPIC = "runs"
DECISIONS = "checkpoints"  # apart, so that those who wait for one are not woken by every row of a trace
PAGE = 10_000  # rows that are read at once
NEVER = 2**62  # until when a run sleeps that no timeout wakes

State: TypeAlias = Literal["open", "done", "failed", "cancelled", "parked"]


class Lost(Exception):
    """The run belongs to somebody else by now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    workflow: str
    file: str
    cwd: str
    input: Any  # as JSON has it


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    id: str
    workflow: str
    file: str
    cwd: str
    input: Any
    state: State
    owner: str | None
    cancelled: bool
    output: Any
    error: str | None
    created_at: int
    created_by: str
    updated_at: int
    open_asks: int
    open_checkpoints: int

    @property
    def shown_state(self) -> str:
        """`running`, `waiting` (for a person), or how it ended."""
        if self.state != "open":
            return self.state
        return "waiting" if self.open_asks or self.open_checkpoints else "running"

    def to_shape(self) -> Run:
        return shape_of(Run, self, **self._told())

    def _told(self) -> dict[str, Any]:
        times = {"created_at": time_text(self.created_at), "updated_at": time_text(self.updated_at)}
        return {"state": self.shown_state, **times}

    def to_listed_shape(self) -> ListedRun:
        """Without what may be large, which `Journal.newest` does not read either."""
        return shape_of(ListedRun, self, **self._told())


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in a run; it never changes."""

    id: str  # they sort in the order they happened
    run: str
    type: str
    step: str | None
    at: int
    data: Mapping[str, Any]

    def told(self) -> dict[str, Any]:
        about = {} if self.step is None else {"step_id": self.step}
        return {
            "id": self.id,
            "type": self.type,
            "run_id": self.run,
            **about,
            **self.data,
            "timestamp": time_text(self.at),
        }


class WrittenEvent(NamedTuple):
    """An event as its row has it, so that it is known how large it is before it is parsed."""

    id: str
    run: str
    type: str
    step: str | None
    at: int
    data: str

    @property
    def size(self) -> int:
        return len(self.data)

    def event(self) -> Event:
        return Event(id=self.id, run=self.run, type=self.type, step=self.step, at=self.at, data=json.loads(self.data))


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    id: str
    run: str
    step: str
    input: str
    schema: Mapping[str, Any]
    state: Literal["open", "given", "withdrawn"]
    output: Any
    by: str | None
    via: str | None
    asked_at: int
    workflow: str = ""  # of the run, as is the folder
    cwd: str = ""

    def to_shape(self) -> shapes.Checkpoint:
        return shape_of(shapes.Checkpoint, self, asked_at=time_text(self.asked_at))


class WrittenCheckpoint(NamedTuple):
    """A checkpoint as its row has it; as with events."""

    id: str
    run: str
    step: str
    input: str
    schema: str
    state: Literal["open", "given", "withdrawn"]
    output: str | None
    by: str | None
    via: str | None
    asked_at: int
    workflow: str
    cwd: str

    @property
    def size(self) -> int:
        return len(self.input) + len(self.schema) + len(self.output or "")

    @property
    def place(self) -> CheckpointPlace:
        return CheckpointPlace(self.asked_at, self.id)

    def checkpoint(self) -> Checkpoint:
        fields = self._asdict()
        fields |= {
            "schema": json.loads(self.schema),
            "output": None if self.output is None else json.loads(self.output),
        }
        return Checkpoint(**fields)


class CheckpointPlace(NamedTuple):
    """Where a checkpoint stands in a list: those that were asked for first come first."""

    asked_at: int = -1
    id: str = ""

    def __str__(self) -> str:
        return f"{self.asked_at}-{self.id}"

    @classmethod
    def parse(cls, text: str) -> CheckpointPlace | None:
        """None where it is no place."""
        asked_at, mark, id = text.partition("-")
        is_number = asked_at.isascii() and asked_at.isdigit() and len(asked_at) < 19
        return cls(int(asked_at), id) if mark and is_number else None


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that is ours, until somebody takes it over."""

    run: str
    owner: str
    epoch: int


_RUN = """
select id, workflow, file, cwd, input, state, owner, cancelled, output, error, created_at, created_by, updated_at,
    (select count(*) from asks where asks.run = runs.id and asks.state = 'asked'),
    (select count(*) from checkpoints where checkpoints.run = runs.id and checkpoints.state = 'open')
from runs"""
_LISTED = _RUN.replace(" input,", " 'null',").replace(" output,", " null,")
_CHECKPOINT = (
    "select checkpoints.id, run, step, checkpoints.input, schema, checkpoints.state, checkpoints.output, given_by, "
    "given_via, asked_at, workflow, cwd from checkpoints join runs on runs.id = checkpoints.run"
)
_TRACE = "select id, run, type, step, at, data from trace where id > ? and id < ? order by id limit ?"
_OURS = "from runs where id = ? and owner = ? and epoch = ? and state = 'open'"
_AWAKE = "state = 'open' and asleep_until is null"  # in the words of its index


class Journal:
    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever something was written here, at this desk or at another one."""
        changed = asyncio.Event()
        stops = [self._database.hear(topic, changed.set) for topic in (TOPIC, DECISIONS)]
        try:
            yield changed
        finally:
            for stop in stops:
                stop()

    @asynccontextmanager
    async def decisions(self) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever a checkpoint was decided or withdrawn."""
        changed = asyncio.Event()
        stop = self._database.hear(DECISIONS, changed.set)
        try:
            yield changed
        finally:
            stop()

    # For people -----------------------------------------------------------------------------------------------------

    async def create(self, wanted: NewRun, *, by: str, at: int) -> RunRecord:
        id = f"run_{secrets.token_hex(6)}"
        await self._database.write(
            "insert into runs (id, workflow, file, cwd, input, state, epoch, idle_claims, cancelled, created_at, "
            "created_by, updated_at) values (?, ?, ?, ?, ?, 'open', 0, 0, 0, ?, ?, ?)",
            *(id, wanted.workflow, writable(wanted.file), writable(wanted.cwd), json.dumps(wanted.input)),
            *(at, writable(by), at),
            topic=TOPIC,
        )
        return await self.get(id)

    async def get(self, id: str) -> RunRecord:
        """Raises RunNotFound."""
        rows = await self._database.read(f"{_RUN} where id = ?", id)
        if not rows:
            raise RunNotFound(id)
        return _record(rows[0])

    async def look_at(self, id: str) -> RunRecord:
        """Without its input and output. Raises RunNotFound."""
        rows = await self._database.read(f"{_LISTED} where id = ?", id)
        if not rows:
            raise RunNotFound(id)
        return _record(rows[0])

    async def newest(self, *, limit: int = 100) -> list[RunRecord]:
        """Without their inputs and outputs."""
        rows = await self._database.read(f"{_LISTED} order by created_at desc, id desc limit ?", limit)
        return [_record(row) for row in rows]

    async def trace(self, run: str) -> list[Event]:
        """All that happened, the oldest first, which playing it again needs."""
        found: list[Event] = []
        while True:
            rows = await self._database.read(_TRACE, found[-1].id if found else f"{run}-", _after_all_of(run), PAGE)
            found += [WrittenEvent._make(row).event() for row in rows]
            if len(rows) < PAGE:
                return found

    async def page(self, run: str, *, after: int, limit: int, most: int) -> list[WrittenEvent]:
        """What happened after the event of that number, the oldest first. It ends with the event with which they have
        `most` characters, if that comes before the limit."""
        rows = await self._database.read_page(
            _TRACE, event_id(run, after), _after_all_of(run), limit, contents=("data",), most=most
        )
        return [WrittenEvent._make(row) for row in rows]

    async def cancel(self, run: str, *, at: int) -> RunRecord:
        """Whoever has the run ends it; one that sleeps or is parked is taken up for that.

        Raises RunNotFound, and RunEnded where there is nothing left to cancel.
        """
        done = await self._database.write(
            "update runs set cancelled = 1, state = 'open', asleep_until = null, updated_at = ? "
            "where id = ? and state in ('open', 'parked') returning id",
            *(at, run),
            topic=TOPIC,
        )
        record = await self.get(run)
        if not done:
            raise RunEnded(f"run {run} is {record.state}, so there is nothing to cancel", id=run, state=record.state)
        return record

    async def reopen(self, run: str, *, step: str | None, by: str, at: int) -> RunRecord:
        """Go on with a run that ended, from a step or from where it failed. Raises RunNotFound, RunEnded."""
        record = await self.get(run)
        check_retry(record, step=step)
        if not await self._note(run, "run_retried", step, {"by": by}, at=at):  # somebody else just did
            raise _nothing_to_retry(await self.get(run))
        await self.withdraw_checkpoints(run)  # those of attempts before
        await self._database.write(
            "update runs set state = 'open', owner = null, cancelled = 0, idle_claims = 0, asleep_until = null, "
            "error = null, output = null, updated_at = ? where id = ? and state <> 'open'",
            *(at, run),
            topic=TOPIC,
        )
        return await self.get(run)

    async def _note(self, run: str, type: str, step: str | None, data: Mapping[str, Any], *, at: int) -> bool:
        """A row of the trace of a run that has ended. False where somebody was faster."""
        last = await self._database.read(
            "select id from trace where id > ? and id < ? order by id desc limit 1", f"{run}-", _after_all_of(run)
        )
        number = int(last[0][0].rpartition("-")[2]) + 1 if last else 1
        done = await self._database.write(
            "insert into trace (id, run, type, step, at, data) select ?, id, ?, ?, cast(? as bigint), ? "
            "from runs where id = ? and state <> 'open' on conflict (id) do nothing returning id",
            *(event_id(run, number), type, step, at, json.dumps(data), run),
        )
        return bool(done)

    async def checkpoints(self, *, run: str | None = None, state: str | None = "open") -> list[Checkpoint]:
        """Up to 1000 of them, the oldest first."""
        sql, values = _listing(run=run, state=state, after=CheckpointPlace())
        return [_checkpoint(row) for row in await self._database.read(sql, *values, 1000)]

    async def checkpoint_page(
        self, *, run: str | None, state: str | None, after: CheckpointPlace, limit: int, most: int
    ) -> list[WrittenCheckpoint]:
        """Those behind a place, the oldest first. It ends with the one with which they have `most` characters, if that
        comes before the limit."""
        sql, values = _listing(run=run, state=state, after=after)
        rows = await self._database.read_page(sql, *values, limit, contents=("input", "schema", "output"), most=most)
        return [WrittenCheckpoint._make(row) for row in rows]

    async def waiting_at(self, run: str) -> list[str]:
        """The ids of up to 1000 open checkpoints of a run, the oldest first."""
        rows = await self._database.read(
            "select id from checkpoints where run = ? and state = 'open' order by asked_at, id limit 1000", run
        )
        return [id for (id,) in rows]

    async def checkpoint(self, id: str) -> Checkpoint:
        """Raises CheckpointNotFound."""
        rows = await self._database.read(f"{_CHECKPOINT} where checkpoints.id = ?", id)
        if not rows:
            raise CheckpointNotFound(id)
        return _checkpoint(rows[0])

    async def give(self, id: str, output: Any, *, by: str, via: str, at: int) -> Checkpoint:
        """What a person decided. The first one counts; raises CheckpointNotFound, RunEnded, OutputDoesNotFit."""
        found = await self.checkpoint(id)
        if problems := problems_of(found.schema, output):
            raise OutputDoesNotFit(problems[0]["problem"], problems=problems)
        done: list[Row] = []
        if found.state == "open":
            give = (
                "update checkpoints set state = 'given', output = ?, given_by = ?, given_via = ?, given_at = ? "
                "where id = ? and state = 'open' returning id"
            )
            wake = "update runs set asleep_until = null where id = ? and asleep_until is not null"
            done, _ = await self._database.write_all(
                (give, (json.dumps(output), writable(by), via, at, id)), (wake, (found.run,)), topic=DECISIONS
            )
        given = await self.checkpoint(id)
        if not done and (given.state != "given" or given.output != output):
            who = f"{given.by} gave something else first" if given.state == "given" else "nobody waits for it any more"
            raise RunEnded(f"checkpoint {id}: {who}", **to_plain(given.to_shape()))
        return given

    # For workers ----------------------------------------------------------------------------------------------------

    async def register(self, worker: str, *, name: str, ttl: float) -> None:
        """A new life of the worker of that name, of which there is one at a time: those before are over."""
        await self._database.write("delete from workers where name = ?", name, topic=TOPIC)
        await self._database.write(
            f"insert into workers (id, name, lease_until) values (?, ?, {self._database.clock} + ?)",  # noqa: S608
            *(worker, name, round(ttl * 1000)),
        )

    async def beat(self, worker: str, *, ttl: float) -> bool:
        """Whether the worker still counts as alive. False: it was declared dead, and its runs may be elsewhere."""
        beaten = await self._database.write(
            f"update workers set lease_until = {self._database.clock} + ? where id = ? returning id",  # noqa: S608
            *(round(ttl * 1000), worker),
        )
        return bool(beaten)

    async def expire_dead_workers(self, *, everybody: bool = False) -> int:
        """Declare those dead whose lease is over, which frees their runs."""
        if not everybody:
            late = await self._database.read(
                f"select 1 from workers where lease_until < {self._database.clock} limit 1"  # noqa: S608
            )
            if not late:
                return 0
        condition = "" if everybody else f"where lease_until < {self._database.clock}"
        return len(await self._database.write(f"delete from workers {condition} returning id", topic=TOPIC))  # noqa: S608

    async def other_workers_exist(self, worker: str) -> bool:
        return bool(await self._database.read("select 1 from workers where id <> ? limit 1", worker))

    async def leave(self, worker: str) -> None:
        """Hand over everything, at once. A run that was only handed on has not failed to get further."""
        await self._database.write(
            f"update runs set idle_claims = idle_claims - 1 where {_AWAKE} and owner = ? and idle_claims > 0",  # noqa: S608
            worker,
        )
        await self._database.write("delete from workers where id = ?", worker, topic=TOPIC)

    async def claim(self, worker: str, *, limit: int) -> list[Claim]:
        """Take runs that nobody owns: new ones, woken ones, those that were handed over or whose worker is dead."""
        free = f"{_AWAKE} and (owner is null or owner not in (select id from workers))"  # noqa: S608
        if not await self._database.read(f"select 1 from runs where {free} limit 1"):  # noqa: S608
            return []
        rows = await self._database.write(
            f"update runs set owner = ?, epoch = epoch + 1, idle_claims = idle_claims + 1 where id in "  # noqa: S608
            f"(select id from runs where {free} order by created_at, id limit {int(limit)}) "
            "and exists (select 1 from workers where id = ?) returning id, epoch",
            *(worker, worker),
        )
        return [Claim(id, worker, epoch) for id, epoch in rows]

    async def cancelled(self, owner: str) -> set[str]:
        rows = await self._database.read(f"select id from runs where {_AWAKE} and owner = ? and cancelled = 1", owner)  # noqa: S608
        return {id for (id,) in rows}

    async def idle_claims(self, run: str) -> int:
        rows = await self._database.read("select idle_claims from runs where id = ?", run)
        return int(rows[0][0]) if rows else 0

    async def write(
        self,
        claim: Claim,
        number: int,
        type: str,
        step: str | None,
        data: Mapping[str, Any],
        *,
        at: int,
        moved: bool = False,
    ) -> Event:
        """One more row of the trace. Raises Lost.

        `moved`: with it the run got further, so that being taken over again says nothing about it.
        """
        event = Event(id=event_id(claim.run, number), run=claim.run, type=type, step=step, at=at, data=data)
        insert = (
            "insert into trace (id, run, type, step, at, data) "
            f"select ?, id, ?, ?, cast(? as bigint), ? {_OURS} on conflict (id) do nothing returning id"
        )
        row = (event.id, type, step, at, json.dumps(data), claim.run, claim.owner, claim.epoch)
        further = (f"update runs set idle_claims = 0 where id in (select id {_OURS})", row[-3:])  # noqa: S608
        done, *_ = await self._database.write_all((insert, row), *([further] if moved else []), topic=TOPIC)
        if not done and not await self._has_written(claim, event):
            raise Lost(claim.run)
        return event

    async def _has_written(self, claim: Claim, event: Event) -> bool:
        """Whether we wrote it before, when the database went away without saying so."""
        rows = await self._database.read(
            f"select id {_OURS} and exists (select 1 from trace where trace.id = ? and type = ? and data = ?)",  # noqa: S608
            *(claim.run, claim.owner, claim.epoch, event.id, event.type, json.dumps(event.data)),
        )
        return bool(rows)

    async def lasted(self, owner: str, runs: Sequence[str]) -> None:
        """They have been here for a while, so that being taken over again says nothing about them."""
        marks = ", ".join("?" * len(runs))
        await self._database.write(
            f"update runs set idle_claims = 0 where owner = ? and idle_claims > 0 and id in ({marks})",  # noqa: S608
            *(owner, *runs),
        )

    async def abandon(self, claim: Claim, session: str, *, at: int) -> None:
        """A session of the run whose machine is gone: should that come back, it is not to go on. Raises Lost."""
        ours = f"exists (select 1 {_OURS})"
        done = await self._database.write(
            f"update sessions set state = 'done', worker = ?, error = ?, updated_at = ? where id = ? and {ours} "  # noqa: S608
            "returning id",
            *(NOBODY, "its machine is gone; the step began again", at, session),
            *(claim.run, claim.owner, claim.epoch),
            topic="sessions",
        )
        if not done:
            raise Lost(claim.run)
        await self._database.write(
            f"update orders set done_at = ? where session = ? and done_at is null and {ours}",  # noqa: S608
            *(at, session, claim.run, claim.owner, claim.epoch),
            topic="sessions",
        )

    async def ask(self, claim: Claim, checkpoint: Checkpoint) -> None:
        """A checkpoint that waits for a person, unless it does already. Raises Lost."""
        await self._database.write(
            "insert into checkpoints (id, run, step, input, schema, state, asked_at) "
            f"select ?, id, ?, ?, ?, 'open', cast(? as bigint) {_OURS} on conflict (id) do nothing",
            *(checkpoint.id, checkpoint.step, writable(checkpoint.input), json.dumps(checkpoint.schema)),
            *(checkpoint.asked_at, claim.run, claim.owner, claim.epoch),
            topic=TOPIC,
        )
        if not await self._database.read("select 1 from checkpoints where id = ?", checkpoint.id):
            raise Lost(claim.run)

    async def sleep(self, claim: Claim, checkpoints: Sequence[str], *, until: int) -> bool:
        """Give up a run that waits at these, until one of them is given or that time has come.

        False where it is not to sleep, since one was given before, or it was cancelled. Raises Lost.
        """
        marks = ", ".join("?" * len(checkpoints))
        done = await self._database.write(
            "update runs set owner = null, asleep_until = ?, idle_claims = 0 "  # noqa: S608
            "where id = ? and owner = ? and epoch = ? and state = 'open' and cancelled = 0 "
            f"and (select count(*) from checkpoints where id in ({marks}) and state = 'open') = ? returning id",
            *(until, claim.run, claim.owner, claim.epoch, *checkpoints, len(checkpoints)),
        )
        if done:
            return True
        rows = await self._database.read("select owner, epoch from runs where id = ?", claim.run)
        if rows == [(claim.owner, claim.epoch)]:
            return False
        if rows == [(None, claim.epoch)]:  # it fell asleep when the database went away without saying so
            return True
        raise Lost(claim.run)

    async def next_due(self) -> int | None:
        """When the first of those is to be woken that sleep."""
        rows = await self._database.read(
            "select min(asleep_until) from runs where asleep_until is not null and asleep_until < ?", NEVER
        )
        return None if rows[0][0] is None else int(rows[0][0])

    async def wake(self, *, now: int) -> None:
        """Those whose time has come, so that somebody takes them up."""
        await self._database.write(
            "update runs set asleep_until = null where asleep_until is not null and asleep_until <= ?", now, topic=TOPIC
        )

    async def withdraw_checkpoints(self, run: str, *, step: str | None = None) -> None:
        await self._database.write(
            "update checkpoints set state = 'withdrawn' where run = ? and state = 'open' "
            "and (cast(? as text) is null or step = ?)",
            *(run, step, step),
            topic=DECISIONS,
        )

    async def finish(
        self, claim: Claim, state: State, *, output: Any = None, error: str | None = None, at: int
    ) -> None:
        """Raises Lost."""
        done = await self._database.write(
            "update runs set state = ?, owner = null, output = ?, error = ?, updated_at = ? "
            "where id = ? and owner = ? and epoch = ? and state = 'open' returning id",
            *(state, None if output is None else json.dumps(output), writable(error), at),
            *(claim.run, claim.owner, claim.epoch),
            topic=TOPIC,
        )
        if not done:
            raise Lost(claim.run)


def check_retry(record: RunRecord, *, step: str | None) -> None:
    """Raises RunEnded where there is nothing to go on with: it runs, or it is done and no step is named."""
    if record.state == "open" or (record.state == "done" and step is None):
        raise _nothing_to_retry(record)


def _nothing_to_retry(record: RunRecord) -> RunEnded:
    hint = "; name a step to run it again from" if record.state == "done" else ""
    return RunEnded(
        f"run {record.id} is {record.shown_state}; there is nothing to retry{hint}",
        id=record.id,
        state=record.shown_state,
    )


def event_id(run: str, number: int) -> str:
    return f"{run}-{number:09d}"


def _record(row: Row) -> RunRecord:
    (
        id,
        workflow,
        file,
        cwd,
        input,
        state,
        owner,
        cancelled,
        output,
        error,
        created_at,
        created_by,
        updated_at,
        *open,
    ) = row
    return RunRecord(
        id=id,
        workflow=workflow,
        file=file,
        cwd=cwd,
        input=json.loads(input),
        state=state,
        owner=owner,
        cancelled=bool(cancelled),
        output=None if output is None else json.loads(output),
        error=error,
        created_at=created_at,
        created_by=created_by,
        updated_at=updated_at,
        open_asks=open[0],
        open_checkpoints=open[1],
    )


def _checkpoint(row: Row) -> Checkpoint:
    return WrittenCheckpoint._make(row).checkpoint()


def _listing(*, run: str | None, state: str | None, after: CheckpointPlace) -> tuple[str, list[Any]]:
    """The statement of a list of checkpoints, with its values but for the limit."""
    wanted, values = ["(asked_at, checkpoints.id) > (?, ?)"], [*after]
    if run is not None:
        wanted.append("run = ?")
        values.append(run)
    if state == "open":
        wanted.append("checkpoints.state = 'open'")  # in the words of its index
    elif state is not None:
        wanted.append("checkpoints.state = ?")
        values.append(state)
    return f"{_CHECKPOINT} where {' and '.join(wanted)} order by asked_at, checkpoints.id limit ?", values


def _after_all_of(run: str) -> str:
    """Behind the id of every event of a run, and before that of any other."""
    return f"{run}."  # the character after the dash
