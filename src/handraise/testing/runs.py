"""A workflow in a test: the real desk, worker and engine in memory, on a clock that stands still, without HTTP.

Scripted agents stand in for those that the steps name, and a scripted person for whoever would answer.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from handraise.agents import Agent, AgentSettings
from handraise.asks import Ask
from handraise.broker import Broker
from handraise.clock import Clock
from handraise.errors import SettingsError, WorkflowNotFound
from handraise.stores import Query
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.tasks import Tasks
from handraise.testing.clock import FakeClock
from handraise.testing.person import ScriptedPerson
from handraise.worker import Agents, Worker
from handraise.workflow.authoring import Written, load
from handraise.workflow.engine import Engine
from handraise.workflow.flow import INPUT, AgentStep, Flow, StepFailed
from handraise.workflow.journal import Checkpoint, Journal, NewRun, RunRecord
from handraise.workflow.loading import places
from handraise.workflow.steps import Workflow
from handraise.workflow.trace import Position, merged

__all__ = ["Run", "a_run", "run_workflow"]

PATIENCE = 5.0  # seconds anything may take
LOOK = 0.02  # seconds between two looks at what tells nobody when it changes
Staff = Agent | Mapping[str, Agent]


class Run:
    """A run of a workflow. What it knows of itself is as of the last `await` of one of its methods."""

    def __init__(
        self,
        record: RunRecord,
        broker: Broker,
        *,
        person: ScriptedPerson,
        clock: Clock,
        speaking: Sequence[asyncio.Task[None]],
    ) -> None:
        self.id = record.id
        self.cwd = Path(record.cwd)
        self.person = person
        self.broker = broker
        self.journal = Journal(broker.store)
        self.state = record.shown_state
        self.output: Any = None  # what its last step gave, as JSON has it
        self.error: str | None = None
        self.outputs: dict[str, Any] = {}  # of each step that is done
        self.trace: list[dict[str, Any]] = []  # its events, the oldest first, as everybody is told them
        self.asked: list[Ask] = []  # what its agents asked, with the answers, also where policy gave them
        self._clock = clock
        self._speaking = speaking

    @property
    def clock(self) -> FakeClock:
        """The clock of everything here; time passes with `await run.clock.advance(seconds)`."""
        if not isinstance(self._clock, FakeClock):
            raise TypeError("this run was given a clock that cannot be advanced")
        return self._clock

    @property
    def events(self) -> list[str]:
        """The trace in short: `step_started plan`."""
        return [" ".join(filter(None, (event["type"], event.get("step_id")))) for event in self.trace]

    async def look(self) -> Run:
        """See how it stands now."""
        record = await self.journal.get(self.id)
        self.state, self.output, self.error = record.shown_state, record.output, record.error
        own = await self.journal.trace(self.id)
        asked = await self.broker.store.history(Query(run=self.id), after=0, limit=10_000)
        self.trace, _ = merged(own, asked, after=Position(), limit=100_000)
        self.outputs = {
            event.step: event.data["output"] for event in own if event.step and event.type == "step_completed"
        }
        self.asked = [ask async for ask in self.broker.asks(run=self.id)]
        return self

    async def ended(self, *, within: float = PATIENCE) -> Run:
        """Itself, once it is done, failed, cancelled or parked. Raises AssertionError that says what it waits for."""

        async def has_ended() -> bool:
            return (await self.journal.get(self.id)).state != "open"

        await self._until(has_ended, within=within, what="end")
        return await self.look()

    async def until(self, happened: str | Callable[[], bool], *, within: float = PATIENCE) -> Run:
        """Until its trace has an event such as `step_failed plan` or `step_failed`, or until something is the case."""

        async def has_happened() -> bool:
            await self.look()
            if callable(happened):
                return happened()
            return any(event == happened or event.split()[0] == happened for event in self.events)

        await self._until(has_happened, within=within, what="get there" if callable(happened) else f"get to {happened}")
        return await self.look()

    async def waits_for(self, pattern: str | re.Pattern[str], *, within: float = PATIENCE) -> Ask:
        """The ask that a person sees, found by its text; waits for it."""
        seeing = asyncio.ensure_future(self.person.sees(pattern))
        try:
            await self._until(_is_done(seeing), within=within, what=f"ask {pattern!r}")
            return seeing.result()
        finally:
            seeing.cancel()

    async def waits_at(self, step: str, *, within: float = PATIENCE) -> Checkpoint:
        """The open checkpoint of this step; waits for it."""
        found: list[Checkpoint] = []

        async def is_there() -> bool:
            found[:] = [each for each in await self.journal.checkpoints(run=self.id) if each.step == step]
            return bool(found)

        await self._until(is_there, within=within, what=f"get to checkpoint {step}")
        return found[0]

    async def give(self, step: str, output: Any, *, by: str = "person") -> None:
        """What a person gives at a checkpoint; waits for it. Raises OutputDoesNotFit."""
        checkpoint = await self.waits_at(step)
        await self.journal.give(checkpoint.id, output, by=by, via="script", at=self._clock.now())

    async def cancel(self) -> None:
        await self.journal.cancel(self.id, at=self._clock.now())

    async def retry(self, step: str | None = None, *, by: str = "person") -> None:
        """Go on with a run that ended, from a step or from what did not succeed."""
        await self.journal.reopen(self.id, step=step, by=by, at=self._clock.now())

    async def _until(self, ready: Callable[[], Awaitable[bool]], *, within: float, what: str) -> None:
        """Also ends with what is wrong with the person: an answer that does not fit, for one."""
        try:
            async with asyncio.timeout(within), self.journal.changes() as changed:
                while not await ready():
                    for task in self._speaking:
                        if task.done():
                            raise _cause(task.exception())
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK):
                            await changed.wait()
                    changed.clear()
        except TimeoutError:
            await self.look()
            raise AssertionError(f"the run did not {what}; {'; '.join(await self._waiting())}") from None

    async def _waiting(self) -> list[str]:
        if self.state not in ("waiting", "running"):
            return [f"it is {self.state}" + (f": {self.error}" if self.error else "")]
        said = [
            f"step {ask.origin.step} asks {ask.title!r}, and the person has no line for it" + _deadline(ask)
            for ask in self.asked
            if ask.state == "asked"
        ]
        said += [
            f"checkpoint {each.step} waits, and the person has no line for it"
            for each in await self.journal.checkpoints(run=self.id)
        ]
        return said or [f"it came as far as: {self.events[-1] if self.events else 'nothing'}"]


def _deadline(ask: Ask) -> str:
    return " (it has a deadline: advance the clock)" if ask.deadline is not None else ""


def _is_done(future: asyncio.Future[Any]) -> Callable[[], Awaitable[bool]]:
    async def is_done() -> bool:
        await asyncio.sleep(0)
        return future.done()

    return is_done


@asynccontextmanager
async def a_run(
    workflow: Workflow | str,
    input: Any = None,
    *,
    agents: Staff | None = None,
    person: ScriptedPerson | None = None,
    clock: Clock | None = None,
    cwd: Path | None = None,
) -> AsyncIterator[Run]:
    """A run that goes on while the block does. `agents` is one for all agent steps, or one for each name.

    A workflow of the project that the test runs in may be given by its name. Without `cwd` it works in a folder of its
    own, which is gone afterwards. Raises SettingsError where nobody stands
    in for an agent, and pydantic's ValidationError where the input does not fit.
    """
    found = _find(workflow) if isinstance(workflow, str) else workflow
    staff = _staff(found.flow, agents)
    reading = found.adapter(INPUT)
    given = reading.dump_python(reading.validate_python({} if input is None else input), mode="json")
    person, clock = person or ScriptedPerson(), clock or FakeClock()
    async with AsyncExitStack() as stack:
        if cwd is None:
            cwd = Path(stack.enter_context(TemporaryDirectory(prefix="handraise-")))
        store = await SqliteStore.open_file(MEMORY)
        stack.push_async_callback(store.close)
        broker = await stack.enter_async_context(Broker(store, clock=clock))
        worker = await stack.enter_async_context(Worker(broker, broker.sessions, staff, name="test", clock=clock))
        journal = Journal(store)
        engine = Engine(journal, worker, clock=clock, authors=_Here(found))
        tasks = Tasks()
        stack.push_async_callback(tasks.close)
        speaking = [tasks.start(person.run(broker)), tasks.start(person.decide(journal, clock=clock))]
        tasks.start(engine.serve())
        wanted = NewRun(workflow=found.name, file=found.where, cwd=str(cwd), input=given)
        record = await journal.create(wanted, by="test", at=clock.now())
        yield Run(record, broker, person=person, clock=clock, speaking=speaking)


async def run_workflow(
    workflow: Workflow | str,
    input: Any = None,
    *,
    agents: Staff | None = None,
    person: ScriptedPerson | None = None,
    clock: Clock | None = None,
    cwd: Path | None = None,
    within: float = PATIENCE,
) -> Run:
    """The run once it has ended, as `a_run` and `Run.ended` have it. It fails no test: look at its `state`."""
    async with a_run(workflow, input, agents=agents, person=person, clock=clock, cwd=cwd) as run:
        return await run.ended(within=within)


class _Here:
    """The door to the author's code in this very process: in a test the author is the process."""

    def __init__(self, workflow: Workflow) -> None:
        self._written = Written(workflow)

    async def open(self, file: Path, name: str) -> _Here:
        """It is the code of every run there."""
        return self

    @property
    def flow(self) -> Flow:
        return self._written.flow

    async def fit(self, id: str, value: Any) -> Any:
        return self._written.fit(id, value)

    async def read(self, step: str, reply: str) -> Any:
        return self._written.read(step, reply)

    async def fill(self, step: str, text: str, values: Mapping[str, Any]) -> str:
        return self._written.fill(step, text, values)

    async def call(self, step: str, values: Mapping[str, Any]) -> Any:
        function = self._written.workflow.steps[step].function
        assert function is not None
        arguments = self._written.arguments(step, values)
        try:
            if inspect.iscoroutinefunction(function):
                value = await function(**arguments)
            else:
                value = await asyncio.to_thread(function, **arguments)
        except (StepFailed, asyncio.CancelledError):
            raise
        except Exception as problem:
            raise StepFailed(f"{type(problem).__name__}: {problem}") from problem
        return self._written.told(step, value)


def _find(name: str) -> Workflow:
    """A workflow of the project that the test runs in. Raises WorkflowNotFound, WorkflowBroken."""
    files = [file for folder in places(Path.cwd(), config=None) for file in sorted(folder.glob("*.py"))]
    found = [workflow for file in files for workflow in load(file)]
    for workflow in found:
        if workflow.name == name:
            return workflow
    raise WorkflowNotFound(name, known=[workflow.name for workflow in found])


def _staff(workflow: Flow, agents: Staff | None) -> Agents:
    names = {step.agent for step in workflow.steps.values() if isinstance(step, AgentStep)}
    given = agents if isinstance(agents, Mapping) else dict.fromkeys(names, agents)
    for step in workflow.steps.values():
        if isinstance(step, AgentStep) and given.get(step.agent) is None:
            raise SettingsError(
                f"{step.where}: nobody stands in for {step.agent}; give agents={{{step.agent!r}: Scripted()}}"
            )
    staff = Agents(_no_settings)
    for name, agent in given.items():
        if agent is not None:
            staff.put(agent, name=name)
    return staff


def _no_settings(name: str) -> AgentSettings:
    raise SettingsError(f"nobody stands in for {name} in this test")


def _cause(problem: BaseException | None) -> BaseException:
    """What a group of one is about."""
    while isinstance(problem, BaseExceptionGroup) and len(problem.exceptions) == 1:
        problem = problem.exceptions[0]
    return problem or AssertionError("the person has left")
