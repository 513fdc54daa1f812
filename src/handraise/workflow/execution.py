"""One run, for as long as it is ours: played again from its trace, then carried on step by step.

What was done is not done again. What was under way when the process died is taken up (an agent's session, a checkpoint
that waits) or decided by the step's `if_cut` (a command that may have run). Every row that is written says that the run
is still ours; when it is not, everything here stops and touches nothing.

A run whose every branch waits at a checkpoint needs nobody: it falls asleep, which ends it here. What it waited for
wakes it, and whoever takes it up then plays it again from its trace.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from handraise.asks import Answer, Ask, Handling, Option, Origin, Question
from handraise.clock import Clock, sleep
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
from handraise.workflow.replay import ENDINGS, Past, Replay, last_number, left_over
from handraise.workflow.worktrees import Worktree, WorktreeFailed

__all__ = ["Execution", "Outcome", "RunContext", "RunWorker"]

log = logging.getLogger(__name__)

ENDED_WITHIN = 0.1  # of a lease, in which agents are left in order; after that they are killed
MOST_OUTPUT = 100_000  # characters that are kept of what a command writes
RETRY = 1.0  # seconds until a run is tried again that could not read or write
PARKED_AFTER = 5  # times that a run was taken over without getting any further
RERUN, TAKE, FAIL = "Run it again", "Take it as done", "Fail the run"


class Outcome(NamedTuple):
    """How a turn of a session ended."""

    reply: str | None
    error: str | None = None
    is_lost: bool = False  # the session was on a machine that is gone


class RunWorker(Protocol):
    """What a run needs of its worker: sessions with agents, and questions of its own."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What every run of one engine shares."""

    journal: Journal
    worker: RunWorker
    clock: Clock
    authors: Authors
    ttl: float
    cancelling: set[str]  # runs that people cancelled and that have not ended
    is_sure: Callable[[], bool]  # whether nobody else can have our runs
    sleeps_until: Callable[[int], None]  # a run of ours falls asleep


class _Asleep(Exception):
    """The run is nobody's until it is woken."""


class Execution:
    """One run, for as long as it is ours."""

    def __init__(self, context: RunContext, claim: Claim, *, before: asyncio.Task[None] | None) -> None:
        """`before`: we had it already, and that one is about to end."""
        self._context = context
        self._before = before
        self._journal = context.journal
        self._worker = context.worker
        self._clock = context.clock
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
                self._worker.release(run)
            else:  # lost, or handed over
                await self._worker.drop(run, within=ENDED_WITHIN * self._context.ttl)

    async def _played(self) -> bool:
        """Whether it has ended, or sleeps. Raises Lost."""
        run = self._claim.run
        try:
            if run in self._context.cancelling:  # it was begun, and the database went away
                await self._cancelled()
            else:
                await self._run()
        except asyncio.CancelledError:
            if run not in self._context.cancelling or not self._may_cancel():
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
        self._worker.hold(self._claim.run, is_ours=self._context.is_sure)
        record = await self._journal.get(self._claim.run)
        if record.cancelled:  # before we had it
            self._context.cancelling.add(record.id)
            self._is_cancelling = True
            await self._cancelled()
            return
        events = await self._journal.trace(record.id)
        try:
            self._author = await self._context.authors.open(Path(record.file), record.workflow)
            await self._author.fit(INPUT, record.input)
        except (HandraiseError, DoesNotFit) as problem:
            self._number = last_number(events)
            await self._finish("parked", error=str(problem))
            return
        workflow = self._author.flow
        self._values[INPUT] = record.input
        replay = Replay.of(events, workflow)
        self._number = replay.last
        if replay.ended is not None:  # only the row of the run was not written
            await self._close(replay.ended)
            return
        if misfits := replay.misfits(workflow):
            again = (
                "run it again from a step that is there, with `handraise runs retry --from`, or anew with "
                "`handraise runs rerun`"
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
        if (type := ENDINGS.get(state)) is not None:
            await self._write(type, None, **({"output": output} if state == "done" else {"error": error}))
        await self._journal.finish(self._claim, state, output=output, error=error, at=self._clock.now())
        if state == "failed":  # one whose time was up is still open
            await self._journal.withdraw_checkpoints(self._claim.run)

    async def _close(self, event: Event) -> None:
        state = next(state for state, type in ENDINGS.items() if type == event.type)
        output, error = event.data.get("output"), event.data.get("error")
        await self._journal.finish(self._claim, state, output=output, error=error, at=self._clock.now())

    async def _cancelled(self) -> None:
        """End what is under way, also what a worker before us began."""
        events = await self._journal.trace(self._claim.run)
        self._number = max(self._number, last_number(events))
        if events and events[-1].type in ENDINGS.values():  # only the row of the run was not written
            await self._close(events[-1])
            return
        sessions, left = left_over(events)
        for session in sessions:
            await self._worker.stop_session(session)
        await self._journal.withdraw_checkpoints(self._claim.run)
        for step, worktree in left.items():
            if worktrees.is_here(worktree):
                self._worktrees.setdefault(step, worktree)
        for step in list(self._worktrees):
            await self._settle(step)
        await self._finish("cancelled", error="it was cancelled")

    # Steps ------------------------------------------------------------------------------------------------------------

    async def _parts(self, workflow: Flow, replay: Replay) -> Any:
        output: Any = None
        self._branches_open = 1
        for part in workflow.parts:
            if isinstance(part, Parallel):
                outputs = await self._branches(part, replay)
                output = {id: value for branch in outputs for id, value in branch.items()}
            else:
                output = await self._step(part, replay.past(part.id))
        return output

    async def _branches(self, part: Parallel, replay: Replay) -> list[dict[str, Any]]:
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

    async def _step(self, step: Step, past: Past) -> Any:
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
                await self._worker.stop_session(self._session_of(step, past))  # its folder may go
                await self._settle(step.id)
            self._worker.let_go(self._session_of(step, past))
        return output

    async def _tried(self, step: Step, past: Past) -> Any:
        """What it gives, after as many attempts as it may have."""
        if past.error is not None:
            raise StepFailed(f"{step.id}: {past.error}")
        while True:
            if past.failed and not past.is_cut:
                due = past.failed_at + round(step.backoff * 1000) * 2 ** (past.failed - 1)
                await sleep((due - self._clock.now()) / 1000, clock=self._clock)
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
                    self._worker.let_go(self._session_of(step, past))
                if is_final:
                    await self._settle(step.id)
                    raise StepFailed(f"{step.id}: {failed}") from None

    async def _attempt(self, step: Step, past: Past) -> Any:
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
        if not self._context.is_sure():  # stopped for a while between the row and here
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
                await self._worker.stop_session(self._session_of(step, past))
            raise _too_long(step) from None

    async def _about(self, step: Step, past: Past) -> dict[str, Any]:
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
    async def _limit(self, step: Step, past: Past) -> AsyncIterator[None]:
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

    # Agents -----------------------------------------------------------------------------------------------------------

    def _session_of(self, step: AgentStep, past: Past) -> str:
        return f"ses_{self._claim.run}_{step.id}_{past.attempts}"

    async def _agent(self, step: AgentStep, past: Past) -> Any:
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
                    await self._worker.tell(session, past.corrections[-1], turn=turn)
                outcome = await self._worker.work(wanted, turns=turn)
                if outcome.is_lost:
                    await self._journal.abandon(self._claim, session, at=self._clock.now())
                    await self._worker.withdraw_asks(session)
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

    async def _worktree(self, step: AgentStep, past: Past) -> str:
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

    async def _checkpoint(self, step: CheckpointStep, past: Past) -> Any:
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
            self._context.sleeps_until(until)
            raise _Asleep

    async def _after_a_cut(self, step: ShellStep | FunctionStep, past: Past) -> Any:
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
            answer = await self._worker.ask(ask)
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


def _due(step: Step, past: Past) -> int:
    """When the attempt has taken too long."""
    return NEVER if step.timeout is None else past.started_at + round(step.timeout * 1000)


def _too_long(step: Step) -> StepFailed:
    return StepFailed(f"it took longer than {step.timeout:g} s")


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
