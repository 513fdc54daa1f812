"""Runs workflows: plays a run again from its trace, and goes on where that ends.

What was done is not done again. What was under way when the process died is taken up (an agent's session, a checkpoint
that waits) or decided by the step's `if_cut` (a command that may have run). Every row that is written says that the run
is still ours; when it is not, everything here stops and touches nothing.

A run whose every branch waits at a checkpoint needs nobody: it falls asleep, which ends it here. What it waited for
wakes it, and whoever takes it up then plays it again from its trace.

A worker has a lease, by the database's clock. One that could not renew it in time stops what it runs, agents and
commands too, before anybody else may start that: it trusts the last beat that was acknowledged for `SURE` of the lease.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from handraise.asks import Answer, Ask, Handling, Option, Origin, Question
from handraise.clock import Clock
from handraise.errors import HandraiseError, ProcessFailed, SettingsError, StoreError
from handraise.tables.sessions import NewSession
from handraise.text.inert import inert
from handraise.transports.process import Process
from handraise.workflow import worktrees
from handraise.workflow.flow import (
    INPUT,
    RUN,
    AgentStep,
    Author,
    Authors,
    CheckpointStep,
    DoesNotFit,
    Flow,
    FunctionStep,
    Parallel,
    ShellStep,
    Step,
    StepFailed,
)
from handraise.workflow.journal import NEVER, Checkpoint, Claim, Event, Journal, Lost, State
from handraise.workflow.worktrees import Worktree, WorktreeFailed

__all__ = ["Engine", "Hands", "Outcome", "to_do"]

log = logging.getLogger(__name__)

TTL = 15.0  # seconds after which a worker that says nothing counts as dead
SURE = 0.8  # of them, in which it may rely on its last beat; the rest is for ending what runs
ENDED_WITHIN = 0.1  # of them, in which agents are left in order; after that they are killed
SLOTS = 100_000  # runs that one worker has at once; those that sleep are nobody's
BATCH = 200  # of them that it takes at a time, so that others get theirs
MOST_OUTPUT = 100_000  # characters that are kept of what a command writes
RETRY = 1.0  # seconds until a run is tried again that could not read or write
PARKED_AFTER = 5  # times that a run was taken over without getting any further
_ENDINGS: Mapping[State, str] = {"done": "run_completed", "failed": "run_failed", "cancelled": "run_cancelled"}
RERUN, TAKE, FAIL = "Run it again", "Take it as done", "Fail the run"


class Outcome(NamedTuple):
    """How a turn of a session ended."""

    reply: str | None
    error: str | None = None
    is_lost: bool = False  # the session was on a machine that is gone


class Hands(Protocol):
    """What the engine needs of a worker: sessions with agents, and questions of its own."""

    name: str
    other_workers_exist: bool  # the engine says so

    async def work(self, wanted: NewSession, *, turns: int) -> Outcome:
        """Start the session unless it is there, and wait until so many of its turns have ended."""

    async def tell(self, session: str, text: str, *, turn: int) -> None:
        """The prompt of this turn, unless it was told before."""

    async def stop_session(self, session: str) -> None:
        """Nobody needs it any more. Does nothing where it is over."""

    async def ask(self, ask: Ask, *, handling: Handling | None = None) -> Answer: ...

    def hold(self, run: str, *, is_ours: Callable[[], bool]) -> None:
        """Drive the sessions of this run from now on, while that says so."""

    def let_go(self, session: str) -> None:
        """Its step is over: end its agent once that has nothing to do. The session can go on later."""

    def release(self, run: str) -> None:
        """It has ended or sleeps, so that its sessions are as good as anybody's, and let go."""

    async def drop(self, run: str, *, within: float) -> None:
        """It is not ours any more: end its agents here, without needing the database. Nothing is withdrawn."""

    async def withdraw_asks(self, session: str) -> None:
        """Withdraw what a session asks whose machine is gone."""


class _Dead(Exception):
    """This worker counts as dead, for the others or for itself."""


class _Asleep(Exception):
    """The run is nobody's until it is woken."""


@dataclass(slots=True)
class _Past:
    """What the trace says of one step."""

    attempts: int = 0
    failed: int = 0  # attempts that ended so
    is_cut: bool = False  # the last attempt has no end
    output: Any = None
    is_done: bool = False
    corrections: list[str] = field(default_factory=list)  # that the last attempt's agent was told
    started_at: int = 0  # the last attempt
    failed_at: int = 0
    error: str | None = None  # why it failed for good
    has_asked: bool = False  # the last attempt's checkpoint was told
    base: str | None = None  # the commit that its worktree began with
    has_worktree: bool = False  # that nobody has looked after since


@dataclass(slots=True)
class _Replay:
    """A run as far as its trace goes."""

    steps: dict[str, _Past] = field(default_factory=dict)
    last: int = 0
    ended: Event | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    outline: Any = None  # of the steps, as it was told last

    def past(self, step: str) -> _Past:
        return self.steps.setdefault(step, _Past())

    @classmethod
    def of(cls, events: Sequence[Event], workflow: Flow) -> _Replay:
        made = cls()
        for event in events:
            made.last = int(event.id.rpartition("-")[2])
            made._take(event, workflow)
        return made

    def _take(self, event: Event, workflow: Flow) -> None:
        if event.type == "run_retried":
            self.ended = None
            self._forget(event.step, workflow)
            return
        if event.type in _ENDINGS.values():
            self.ended = event
            return
        if event.step is None:
            self.outline = event.data.get("steps", self.outline)
            return
        past = self.past(event.step)
        match event.type:
            case "step_started":
                past.attempts, past.is_cut, past.corrections = int(event.data["attempt"]), True, []
                past.started_at, past.has_asked = event.at, False
                self.kinds[event.step] = str(event.data["kind"])
            case "step_failed":
                past.is_cut, past.failed_at = False, event.at
                past.failed += bool(event.data.get("counts", True))
                past.error = str(event.data["error"]) if event.data.get("final") else None
            case "checkpoint_waiting":
                past.has_asked = True
            case "worktree_made":
                past.base, past.has_worktree = str(event.data["base"]), True
            case "worktree_kept" | "worktree_removed":
                past.has_worktree = False
            case "agent_repaired":
                past.corrections.append(str(event.data["correction"]))
            case "step_completed":
                past.is_cut, past.is_done, past.output = False, True, event.data["output"]

    def _forget(self, step: str | None, workflow: Flow) -> None:
        """From this step on everything is done again; without one, what did not succeed."""
        order = list(workflow.steps)
        later = set(order[order.index(step) :]) if step in order else set()
        if later:  # what these were before, and what is not in the file any more, has nothing left to fit
            self.kinds = {id: kind for id, kind in self.kinds.items() if id in order and id not in later}
        for id, past in self.steps.items():
            if id in later or not past.is_done:
                past.error = past.base = None
            if id in later:
                past.is_done, past.is_cut, past.output, past.failed = False, False, None, 0
            elif not past.is_done:
                past.is_cut, past.failed = False, 0

    def misfits(self, workflow: Flow) -> list[str]:
        """Why what was done does not fit the steps as they are now."""
        found = []
        for id, kind in self.kinds.items():
            step = workflow.steps.get(id)
            if step is None:
                found.append(f"step {id!r} was run, and the file has no such step any more")
            elif step.kind != kind:
                found.append(f"step {id!r} was a {kind} step and is a {step.kind} step now")
        order = [id for id in workflow.steps]
        done = [id for id in order if id in self.steps and self.steps[id].is_done]
        for id in done:
            missing = [before for before in _before(workflow, id) if not self.past(before).is_done]
            if missing:
                found.append(f"step {id!r} was run before {missing[0]!r}, which now comes first")
        return found


def to_do(events: Sequence[Event], workflow: Flow, *, step: str | None) -> tuple[list[str], list[str]]:
    """What a retry would run: the steps that were begun before, which it does again, and those that were not."""
    replay = _Replay.of(events, workflow)
    replay._forget(step, workflow)
    left = [id for id in workflow.steps if id not in replay.steps or not replay.steps[id].is_done]
    begun = {id for id, past in replay.steps.items() if past.attempts}
    return [id for id in left if id in begun], [id for id in left if id not in begun]


def _before(workflow: Flow, id: str) -> list[str]:
    """The steps that have to be done before this one."""
    found: list[str] = []
    for part in workflow.parts:
        branches = part.branches if isinstance(part, Parallel) else ((part,),)
        for branch in branches:
            ids = [step.id for step in branch]
            if id in ids:
                return found + ids[: ids.index(id)]
        found += [step.id for branch in branches for step in branch]
    return found


class Engine:
    """Use as an async context manager. Leaving it hands its runs over: nothing of them is ended."""

    def __init__(
        self,
        journal: Journal,
        hands: Hands,
        *,
        clock: Clock,
        ttl: float = TTL,
        slots: int = SLOTS,
        authors: Authors,
        is_alone: bool = False,
    ) -> None:
        """`authors` has the code of workflows. `is_alone`: no other process can reach the database, so nobody takes
        over while this one says nothing."""
        self._journal = journal
        self._authors = authors
        self._hands = hands
        self._clock = clock
        self._ttl = ttl
        self._slots = slots
        self._is_alone = is_alone
        self._id = ""
        self._heard = 0.0  # when the last beat was sent that the database has acknowledged, by the clock of the loop
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._new: dict[str, float] = {}  # runs that were claimed, and when; without those that lasted
        self._cancelling: set[str] = set()
        self._changed = asyncio.Event()
        self._due: int | None = None  # when the first of those is to be woken that sleep, as far as we know

    async def serve(self) -> None:
        """Until cancelled. A worker that was declared dead stops all it runs, and begins anew under another name."""
        while True:
            self._id = f"{self._hands.name}-{secrets.token_hex(4)}"
            try:
                await self._live()
            except StoreError as trouble:
                log.warning("the database is away, so no run goes on here: %s", trouble)
            except Exception:
                log.exception("the engine of runs broke; it begins anew")
            await asyncio.sleep(min(1.0, self._ttl / 4))

    def is_sure(self) -> bool:
        """Whether nobody else can have our runs, by a clock that also runs while this process is stopped."""
        return self._is_alone or asyncio.get_running_loop().time() - self._heard < SURE * self._ttl

    async def _live(self) -> None:
        """One life of a worker: from registering to being declared dead."""
        self._heard = asyncio.get_running_loop().time()
        self._cancelling.clear()
        self._new.clear()
        await self._journal.register(self._id, name=self._hands.name, ttl=self._ttl)
        try:
            async with self._journal.changes() as self._changed, asyncio.TaskGroup() as tasks:
                tasks.create_task(self._beat())
                await self._take_runs(self._changed, tasks)
        except* _Dead as dead:
            log.warning("%s; its runs and their agents were stopped, and it begins anew", dead.exceptions[0])
        finally:
            # Bounded: with the database away, the lease ends by itself.
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(self._ttl / 4):
                    await self._journal.leave(self._id)

    async def _beat(self) -> None:
        """Renew the lease. Raises _Dead when it was lost, or when too long nobody said that it was not."""
        loop = asyncio.get_running_loop()
        pause = self._ttl / 4
        while True:
            await asyncio.sleep(max(0.0, self._heard + pause - loop.time()))
            sent = loop.time()
            left = math.inf if self._is_alone else self._heard + SURE * self._ttl - sent
            if left <= 0:
                await self._drop_all()
                raise _Dead(f"this worker could not renew its lease for {sent - self._heard:.1f} s")
            try:
                # One that hangs is none. Nothing is read here: to cancel that may take as long as the database does.
                async with asyncio.timeout(min(left, self._ttl)):
                    if not await self._journal.beat(self._id, ttl=self._ttl):
                        break
                self._heard = sent
            except (StoreError, TimeoutError) as trouble:
                log.warning("the lease of this worker could not be renewed: %s", str(trouble) or "no answer in time")
                await asyncio.sleep(min(RETRY, pause / 4))
        await self._drop_all()
        raise _Dead("this worker was thought dead")

    async def _drop_all(self) -> None:
        """End the agents first: what waits for a database that says nothing may take its time to be cancelled."""
        within = ENDED_WITHIN * self._ttl
        await asyncio.gather(*(self._hands.drop(run, within=within) for run in list(self._runs)))

    async def _lasted(self) -> None:
        """Runs that we have had for a while brought nobody down, so that having taken them up says nothing."""
        before = asyncio.get_running_loop().time() - self._ttl
        old = [run for run, since in self._new.items() if since < before]
        if old:
            await self._journal.lasted(self._id, old)
            for run in old:
                self._new.pop(run, None)

    async def _take_runs(self, changed: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        looked = -math.inf  # when the leases of the others were looked at
        while True:
            changed.clear()
            try:
                if loop.time() - looked >= self._ttl / 4 and self.is_sure():
                    looked = loop.time()
                    await self._journal.expire_dead_workers()
                    await self._lasted()
                    self._hands.other_workers_exist = await self._journal.other_workers_exist(self._id)
                    self._due = await self._journal.next_due()
                await self._wake_some()
                await self._cancel_some()
                claims = await self._journal.claim(self._id, limit=min(BATCH, self._slots - len(self._runs)))
                if len(claims) == BATCH:  # there may be more
                    changed.set()
                for claim in claims:
                    task = tasks.create_task(_Execution(self, claim, before=self._runs.get(claim.run)).run())
                    self._runs[claim.run] = task
                    self._new[claim.run] = loop.time()
                    task.add_done_callback(partial(self._over, claim.run))
            except StoreError as trouble:  # whether we may go on with those we have is for the heart to say
                log.warning("no run can be taken up: %s", trouble)
                await asyncio.sleep(min(RETRY, self._ttl / 4))
                continue
            stop = None if self._due is None else self._clock.call_at(self._due, changed.set)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, looked + self._ttl / 4 - loop.time())):
                    await changed.wait()
            if stop is not None:
                stop()

    def sleeps(self, *, until: int) -> None:
        """A run of ours falls asleep. What others leave asleep is seen in time, unless they are gone in between."""
        if until < NEVER and (self._due is None or until < self._due):
            self._due = until
            self._changed.set()

    async def _wake_some(self) -> None:
        if self._due is not None and self._due <= (now := self._clock.now()):
            await self._journal.wake(now=now)
            self._due = await self._journal.next_due()

    def _over(self, run: str, task: asyncio.Task[None]) -> None:
        if self._runs.get(run) is task:
            del self._runs[run]
            self._new.pop(run, None)
            self._cancelling.discard(run)

    async def _cancel_some(self) -> None:
        for run in await self._journal.cancelled(self._id):
            task = self._runs.get(run)
            if task is not None and run not in self._cancelling:
                self._cancelling.add(run)
                task.cancel()


class _Execution:
    """One run, for as long as it is ours."""

    def __init__(self, engine: Engine, claim: Claim, *, before: asyncio.Task[None] | None) -> None:
        """`before`: we had it already, and that one is about to end."""
        self._engine = engine
        self._before = before
        self._journal = engine._journal
        self._hands = engine._hands
        self._clock = engine._clock
        self._claim = claim
        self._number = 0
        self._writing = asyncio.Lock()
        self._branches_open = 1
        self._resting: dict[str, _Rest] = {}  # the open checkpoints that branches wait at, which do nothing else
        self._is_asleep = False
        self._values: dict[str, Any] = {RUN: claim.run}  # what steps gave, as JSON has it
        self._texts: dict[tuple[str, str], str] = {}  # of steps, filled; what stands before a step does not change
        self._worktrees: dict[str, Worktree] = {}
        self._has_moved = False
        self._is_cancelling = False
        self._author: Author

    async def run(self) -> None:
        """To its end or until it sleeps, as long as it is ours. While the database is away it is tried again."""
        run = self._claim.run
        has_ended = False
        try:
            while not await self._played():  # noqa: ASYNC110 - nobody says when the database is back
                await asyncio.sleep(RETRY)
            has_ended = True
        except Lost:
            log.warning("run %s was taken over by another worker; nothing more is done here, its agents end", run)
        finally:
            if has_ended or self._is_asleep:
                self._hands.release(run)
            else:  # lost, or handed over
                await self._hands.drop(run, within=ENDED_WITHIN * self._engine._ttl)

    async def _played(self) -> bool:
        """Whether it has ended, or sleeps. Raises Lost."""
        run = self._claim.run
        try:
            if run in self._engine._cancelling:  # it was begun, and the database went away
                await self._cancelled()
            else:
                await self._run()
        except asyncio.CancelledError:
            if run not in self._engine._cancelling or not self._may_cancel():
                raise
            return await self._played()
        except _Asleep:
            return True
        except Lost:
            raise
        except StoreError as trouble:
            log.warning("run %s: the database is away; it goes on when it is back: %s", run, trouble)
            return False
        except Exception:
            log.exception("run %s broke", run)
            try:
                await self._finish("failed", error="handraise broke here; the log of the worker says why")
            except StoreError:
                return False  # else it would stay open with nobody at it
        return True

    def _may_cancel(self) -> bool:
        """Once: a second one means that the worker ends."""
        was, self._is_cancelling = self._is_cancelling, True
        return not was

    async def _run(self) -> None:
        if self._before is not None:
            await asyncio.wait([self._before])
            self._before = None
        self._hands.hold(self._claim.run, is_ours=self._engine.is_sure)
        record = await self._journal.get(self._claim.run)
        if record.cancelled:  # before we had it
            self._engine._cancelling.add(record.id)
            self._is_cancelling = True
            await self._cancelled()
            return
        events = await self._journal.trace(record.id)
        try:
            self._author = await self._engine._authors.open(Path(record.file), record.workflow)
            await self._author.fit(INPUT, record.input)
        except (HandraiseError, DoesNotFit) as problem:
            self._number = _last(events)
            await self._finish("parked", error=str(problem))
            return
        workflow = self._author.flow
        self._values[INPUT] = record.input
        replay = _Replay.of(events, workflow)
        self._number = replay.last
        if replay.ended is not None:  # only the row of the run was not written
            await self._close(replay.ended)
            return
        if misfits := replay.misfits(workflow):
            again = (
                "run it again from a step that is there, with `handraise retry --from`, or anew with `handraise rerun`"
            )
            await self._finish("parked", error=f"{'; '.join(misfits)}; {again}")
            return
        is_waiting = record.open_asks > 0 or record.open_checkpoints > 0  # for a person, which brings nobody down
        if not is_waiting and await self._journal.idle_claims(record.id) > PARKED_AFTER:
            await self._finish("parked", error=f"it was taken up {PARKED_AFTER} times and did not get any further")
            return
        if not events:
            told = {"workflow": workflow.name, "input": record.input, "steps": workflow.outline}
            await self._write("run_started", None, **told)
        elif replay.outline not in (None, workflow.outline):
            await self._write("steps_changed", None, steps=workflow.outline)
        self._cwd = record.cwd
        try:
            output = await self._parts(workflow, replay)
        except StepFailed as failed:
            await self._finish("failed", error=str(failed))
            return
        await self._finish("done", output=output)

    # Writing ----------------------------------------------------------------------------------------------------------

    async def _write(self, type: str, step: str | None, /, **data: Any) -> None:
        # An attempt that was lost with its machine is none that got anywhere.
        moves = type in ("step_completed", "checkpoint_waiting", "step_failed") and bool(data.get("counts", True))
        async with self._writing:
            if self._is_asleep:
                raise _Asleep
            self._number += 1
            at = self._clock.now()
            while True:
                try:
                    moved = moves and not self._has_moved
                    await self._journal.write(self._claim, self._number, type, step, data, at=at, moved=moved)
                    self._has_moved |= moves
                    break
                except StoreError as trouble:  # what was done is not to be done again for that; writing it is, safely
                    log.warning("run %s: a row could not be written, trying again: %s", self._claim.run, trouble)
                    await asyncio.sleep(RETRY)

    async def _finish(self, state: State, *, output: Any = None, error: str | None = None) -> None:
        if (type := _ENDINGS.get(state)) is not None:
            await self._write(type, None, **({"output": output} if state == "done" else {"error": error}))
        await self._journal.finish(self._claim, state, output=output, error=error, at=self._clock.now())
        if state == "failed":  # one whose time was up is still open
            await self._journal.withdraw_checkpoints(self._claim.run)

    async def _close(self, event: Event) -> None:
        state = next(state for state, type in _ENDINGS.items() if type == event.type)
        output, error = event.data.get("output"), event.data.get("error")
        await self._journal.finish(self._claim, state, output=output, error=error, at=self._clock.now())

    async def _cancelled(self) -> None:
        """End what is under way, also what a worker before us began."""
        events = await self._journal.trace(self._claim.run)
        self._number = max(self._number, _last(events))
        if events and events[-1].type in _ENDINGS.values():  # only the row of the run was not written
            await self._close(events[-1])
            return
        sessions, left = _left_over(events)
        for session in sessions:
            await self._hands.stop_session(session)
        await self._journal.withdraw_checkpoints(self._claim.run)
        for step, worktree in left.items():
            self._worktrees.setdefault(step, worktree)
        for step in list(self._worktrees):
            await self._settle(step)
        await self._finish("cancelled", error="it was cancelled")

    # Steps ------------------------------------------------------------------------------------------------------------

    async def _parts(self, workflow: Flow, replay: _Replay) -> Any:
        output: Any = None
        self._branches_open = 1
        for part in workflow.parts:
            if isinstance(part, Parallel):
                outputs = await self._branches(part, replay)
                output = {id: value for branch in outputs for id, value in branch.items()}
            else:
                output = await self._step(part, replay.past(part.id))
        return output

    async def _branches(self, part: Parallel, replay: _Replay) -> list[dict[str, Any]]:
        """All of them to their end, also where one fails: what the others did is not to be lost."""

        async def branch(steps: Sequence[Step]) -> dict[str, Any] | StepFailed:
            ended: dict[str, Any] | StepFailed
            try:
                ended = {step.id: await self._step(step, replay.past(step.id)) for step in steps}
            except StepFailed as failed:
                ended = failed
            self._branches_open -= 1
            for rest in list(self._resting.values())[:1]:  # maybe nobody does anything any more but wait
                rest.changed.set()
            return ended

        self._branches_open = len(part.branches)
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(branch(steps)) for steps in part.branches]
        except ExceptionGroup as troubles:  # the database is away, or the run is not ours any more: all of them stop
            raise _Asleep if self._is_asleep else troubles.exceptions[0] from None
        self._branches_open = 1
        ended = [task.result() for task in running]
        for each in ended:
            if isinstance(each, StepFailed):
                raise each
        return [each for each in ended if isinstance(each, dict)]

    async def _step(self, step: Step, past: _Past) -> Any:
        """Its output, which is in `_values` from then on."""
        if past.is_done:
            self._values[step.id] = past.output
            if past.has_worktree and isinstance(step, AgentStep):  # it was cut off just before
                with suppress(WorktreeFailed):
                    await self._worktree(step, past)
                await self._settle(step.id)
            return past.output
        output = await self._tried(step, past)
        await self._write("step_completed", step.id, attempt=past.attempts, output=output)
        self._values[step.id] = output
        if isinstance(step, AgentStep):
            if step.id in self._worktrees:
                await self._hands.stop_session(self._session_of(step, past))  # its folder may go
                await self._settle(step.id)
            self._hands.let_go(self._session_of(step, past))
        return output

    async def _tried(self, step: Step, past: _Past) -> Any:
        """What it gives, after as many attempts as it may have."""
        if past.error is not None:
            raise StepFailed(f"{step.id}: {past.error}")
        while True:
            if past.failed and not past.is_cut:
                await self._until(past.failed_at + round(step.backoff * 1000) * 2 ** (past.failed - 1))
            try:
                return await self._attempt(step, past)
            except (StepFailed, SettingsError) as failed:  # the latter where a place in a text cannot be filled
                counts = not isinstance(failed, _Uncounted)
                past.failed += counts
                past.is_cut, past.failed_at = False, self._clock.now()
                is_final = past.failed > step.retries or isinstance(failed, _Final | SettingsError)
                told = {"error": str(failed), "counts": counts, "final": is_final}
                await self._write("step_failed", step.id, attempt=past.attempts, **told)
                if isinstance(step, AgentStep):
                    self._hands.let_go(self._session_of(step, past))
                if is_final:
                    await self._settle(step.id)
                    raise StepFailed(f"{step.id}: {failed}") from None

    async def _attempt(self, step: Step, past: _Past) -> Any:
        was_cut, past.is_cut = past.is_cut, False
        if was_cut and isinstance(step, ShellStep | FunctionStep):
            taken = await self._after_a_cut(step, past)
            if taken is not None:
                return taken
            was_cut = False
        if not was_cut:
            past.attempts += 1
            past.corrections, past.started_at, past.has_asked = [], self._clock.now(), False
            about = await self._about(step, past)
            await self._write("step_started", step.id, attempt=past.attempts, kind=step.kind, **about)
        if not self._engine.is_sure():  # stopped for a while between the row and here
            raise Lost(self._claim.run)
        if isinstance(step, CheckpointStep):  # which minds the time by itself, since the run may sleep meanwhile
            return await self._checkpoint(step, past)
        try:
            async with self._limit(step, past):
                match step:
                    case AgentStep():
                        return await self._agent(step, past)
                    case ShellStep():
                        return await self._shell(step)
                    case FunctionStep():
                        return await self._author.call(step.id, self._values)
        except TimeoutError:
            if step.timeout is None:
                raise
            if isinstance(step, AgentStep):
                await self._hands.stop_session(self._session_of(step, past))
            raise _too_long(step) from None

    async def _about(self, step: Step, past: _Past) -> dict[str, Any]:
        """What the trace says of an attempt beside its kind."""
        if isinstance(step, AgentStep):
            return {"agent": step.agent, "session_id": self._session_of(step, past)}
        if isinstance(step, ShellStep):
            with suppress(SettingsError, StepFailed):  # which is what the attempt fails with
                return {"command": (await self._text(step, "command"))[:MOST_OUTPUT]}
        return {}

    async def _text(self, step: Step, text: str) -> str:
        """A text of a step with its places filled. Raises SettingsError, StepFailed."""
        filled = self._texts.get((step.id, text))
        if filled is None:
            filled = self._texts[step.id, text] = await self._author.fill(step.id, text, self._values)
        return filled

    @asynccontextmanager
    async def _limit(self, step: Step, past: _Past) -> AsyncIterator[None]:
        """Raises TimeoutError once the attempt has taken too long, also where it began under a worker before us."""
        if step.timeout is None:
            yield
            return
        due = _due(step, past)
        async with asyncio.timeout(None) as limit:
            timer: list[Callable[[], None]] = []  # how to cancel it

            def look() -> None:
                if self._clock.now() >= due:
                    limit.reschedule(asyncio.get_running_loop().time())
                else:
                    timer[:] = [self._clock.call_at(due, look)]

            look()
            try:
                yield
            finally:
                for cancel in timer:
                    cancel()

    async def _until(self, due: int) -> None:
        while self._clock.now() < due:
            woken = asyncio.Event()
            cancel = self._clock.call_at(due, woken.set)
            try:
                await woken.wait()
            finally:
                cancel()

    # Agents -----------------------------------------------------------------------------------------------------------

    def _session_of(self, step: AgentStep, past: _Past) -> str:
        return f"ses_{self._claim.run}_{step.id}_{past.attempts}"

    async def _agent(self, step: AgentStep, past: _Past) -> Any:
        session = self._session_of(step, past)
        cwd = await self._worktree(step, past) if step.worktree else await self._folder(step)
        wanted = NewSession(
            id=session,
            run=self._claim.run,
            step=step.id,
            agent=step.agent,
            prompt=_prompt(await self._text(step, "prompt"), step),
            cwd=cwd,
            mode=step.mode,
            command=step.command,
            handling=step.handling,
            stale_after=step.stale_after,
        )
        try:
            while True:
                turn = len(past.corrections) + 1
                if turn > 1:
                    await self._hands.tell(session, past.corrections[-1], turn=turn)
                outcome = await self._hands.work(wanted, turns=turn)
                if outcome.is_lost:
                    await self._journal.abandon(self._claim, session, at=self._clock.now())
                    await self._hands.withdraw_asks(session)
                    raise _Uncounted("the machine that its agent ran on is gone; it begins again")
                if outcome.reply is None:
                    raise StepFailed(outcome.error or "the agent said nothing")
                if step.is_text:
                    return outcome.reply
                try:
                    return await self._author.read(step.id, outcome.reply)
                except DoesNotFit as problem:
                    if turn > step.repairs:
                        raise StepFailed(f"its answer does not fit: {problem}") from None
                    past.corrections.append(_correction(problem))
                    await self._write("agent_repaired", step.id, attempt=past.attempts, correction=past.corrections[-1])
        except HandraiseError as trouble:
            if isinstance(trouble, StoreError):
                raise
            raise StepFailed(str(trouble)) from None

    async def _folder(self, step: AgentStep | ShellStep) -> str:
        return str(Path(self._cwd, await self._text(step, "cwd"))) if step.cwd else self._cwd

    async def _worktree(self, step: AgentStep, past: _Past) -> str:
        """The folder of a worktree of its own, which all attempts of the step share."""
        try:
            folder = Path(await self._folder(step))
            made = await worktrees.make(folder, run=self._claim.run, step=step.id, base=past.base)
        except WorktreeFailed as problem:
            raise _Final(str(problem)) from None
        self._worktrees[step.id] = made
        if not past.has_worktree:
            past.base, past.has_worktree = made.base, True
            told = {"path": str(made.path), "branch": made.branch, "base": made.base}
            await self._write("worktree_made", step.id, **told)
        return str(made.cwd)

    async def _settle(self, step: str) -> None:
        """Keep a worktree that holds work, and remove it otherwise."""
        worktree = self._worktrees.pop(step, None)
        if worktree is None:
            return
        try:
            path, branch = await worktrees.settle(worktree)
        except WorktreeFailed as problem:
            told = {"path": str(worktree.path), "branch": worktree.branch, "error": str(problem)}
            await self._write("worktree_kept", step, **told)
            return
        if path is None:
            await self._write("worktree_removed", step, path=str(worktree.path), branch=branch)
        else:
            await self._write("worktree_kept", step, path=path, branch=branch)

    # People -----------------------------------------------------------------------------------------------------------

    async def _checkpoint(self, step: CheckpointStep, past: _Past) -> Any:
        again = f".{past.attempts}" if past.attempts > 1 else ""  # what was given to an attempt before is not for this
        id = f"{self._claim.run}.{step.id}{again}"
        due = _due(step, past)
        async with self._journal.decisions() as changed:
            if not past.has_asked:
                checkpoint = Checkpoint(
                    id=id,
                    run=self._claim.run,
                    step=step.id,
                    input=await self._text(step, "input"),
                    schema=step.schema or {},
                    state="open",
                    output=None,
                    by=None,
                    via=None,
                    asked_at=self._clock.now(),
                )
                await self._journal.ask(self._claim, checkpoint)
                await self._write("checkpoint_waiting", step.id, checkpoint_id=id, input=checkpoint.input)
            while True:
                changed.clear()
                found = await self._journal.checkpoint(id)
                is_late = self._clock.now() >= due
                if found.state == "given":
                    return await self._taken(step, found)
                if found.state == "withdrawn":
                    raise _too_long(step) if is_late else _Final("nobody waits for it any more")
                if is_late:
                    await self._journal.withdraw_checkpoints(self._claim.run, step=step.id)
                    continue  # it may have been given in this moment
                await self._rest(id, _Rest(changed, due))

    async def _taken(self, step: CheckpointStep, found: Checkpoint) -> Any:
        await self._write("checkpoint_given", step.id, checkpoint_id=found.id, by=found.by, via=found.via)
        try:
            return await self._author.fit(step.id, found.output)
        except DoesNotFit as problem:
            raise _Final(f"what was given does not fit: {problem}") from None

    async def _rest(self, checkpoint: str, rest: _Rest) -> None:
        """Wait until something may have been decided. Raises _Asleep where no branch does anything but that."""
        self._resting[checkpoint] = rest
        stop = None if rest.until == NEVER else self._clock.call_at(rest.until, rest.changed.set)
        try:
            await self._sleep()
            await rest.changed.wait()
        finally:
            if stop is not None:
                stop()
            del self._resting[checkpoint]

    async def _sleep(self) -> None:
        """Raises _Asleep, unless a branch does something, or something was decided meanwhile, which it will hear."""
        if len(self._resting) < self._branches_open:
            return
        async with self._writing:  # a branch that is woken at the same moment has nothing to write any more
            if len(self._resting) < self._branches_open:  # by now
                return
            until = min(rest.until for rest in self._resting.values())
            self._is_asleep = await self._journal.sleep(self._claim, list(self._resting), until=until)
        if self._is_asleep:
            self._engine.sleeps(until=until)
            raise _Asleep

    async def _after_a_cut(self, step: ShellStep | FunctionStep, past: _Past) -> Any:
        """None: run it again. Otherwise what counts as its output."""
        choice = {"rerun": RERUN, "fail": FAIL}.get(step.if_cut)
        is_shell = isinstance(step, ShellStep)
        if choice is None:
            ask = Ask(
                id=f"run:{self._claim.run}:{step.id}:{past.attempts}:cut",
                questions=(
                    Question(
                        f"Step {step.id} was under way when its worker died, so it may have run. What now?",
                        tuple(Option(each) for each in ((RERUN, TAKE, FAIL) if is_shell else (RERUN, FAIL))),
                        header=f"{step.id} may have run",
                        custom=False,
                    ),
                ),
                origin=Origin(
                    agent="workflow", session=self._claim.run, run=self._claim.run, step=step.id, cwd=self._cwd
                ),
            )
            answer = await self._hands.ask(ask)
            choice = FAIL if answer.rejected else answer.value
        await self._write("step_cut", step.id, attempt=past.attempts, may_have_run=True, decision=choice)
        if choice == FAIL:
            raise _Final("it was cut off, and may have run")
        if choice == RERUN:
            return None
        return _shell_result(0, "", is_cut=True)

    # Commands -------------------------------------------------------------------------------------------

    async def _shell(self, step: ShellStep) -> dict[str, Any]:
        command, folder = await self._text(step, "command"), await self._folder(step)
        try:
            # Under the launcher, which ends all of it also where this process is killed.
            process = await Process.start(
                ("/bin/sh", "-c", 'exec </dev/null 2>&1; eval "$1"', "sh", command), cwd=folder
            )
        except ProcessFailed as problem:
            raise StepFailed(f"it cannot be started: {problem}") from None
        kept = bytearray()
        total = 0
        async with process:
            async for chunk in process.chunks():
                total += len(chunk)
                kept += chunk
                del kept[: max(0, len(kept) - MOST_OUTPUT)]
            code = await process.wait()
        output = kept.decode(errors="replace")
        if step.check and code != 0:
            words = inert(output.strip()[-500:])
            raise StepFailed(f"it ended with {code}: {words}" if words else f"it ended with {code}")
        return _shell_result(code, output, is_cut=total > len(kept))


class _Rest(NamedTuple):
    """A branch that waits at a checkpoint."""

    changed: asyncio.Event  # makes it look again
    until: int  # when its time is up


class _Uncounted(StepFailed):
    """Not the step's fault, so it takes none of its retries."""


class _Final(StepFailed):
    """Trying again would not help."""


def _due(step: Step, past: _Past) -> int:
    """When the attempt has taken too long."""
    return NEVER if step.timeout is None else past.started_at + round(step.timeout * 1000)


def _too_long(step: Step) -> StepFailed:
    return StepFailed(f"it took longer than {step.timeout:g} s")


def _last(events: Sequence[Event]) -> int:
    """The number of the last row."""
    return int(events[-1].id.rpartition("-")[2]) if events else 0


def _left_over(events: Sequence[Event]) -> tuple[list[str], dict[str, Worktree]]:
    """The sessions whose steps have not ended, and the worktrees on this machine that nobody has settled, by step."""
    sessions: dict[str | None, str] = {}
    left: dict[str, Worktree] = {}
    for event in events:
        match event.type:
            case "step_started" if "session_id" in event.data:
                sessions[event.step] = str(event.data["session_id"])
            case "step_completed" | "step_failed":
                sessions.pop(event.step, None)
            case "worktree_made" if event.step is not None:
                about = event.data
                path = Path(str(about["path"]))
                left[event.step] = worktrees.made_before(path, branch=str(about["branch"]), base=str(about["base"]))
            case "worktree_kept" | "worktree_removed" if event.step is not None:
                left.pop(event.step, None)
    return list(sessions.values()), {step: worktree for step, worktree in left.items() if worktree.path.is_dir()}


def _prompt(text: str, step: AgentStep) -> str:
    if step.is_text:
        return text
    form = "" if step.schema is None else f", of this form:\n{json.dumps(step.schema)}"
    return f"{text}\n\nWhen you are done, answer with JSON alone{form}"


def _correction(unfit: DoesNotFit) -> str:
    lines = [f"- {problem['at'] or 'it'}: {problem['problem']}" for problem in unfit.problems]
    return "\n".join(["Your last answer does not fit:", *lines, "Answer again, with JSON alone."])


def _shell_result(code: int, output: str, *, is_cut: bool) -> dict[str, Any]:
    """A `steps.ShellResult` as JSON has it."""
    return {"code": code, "output": output, "cut": is_cut}
