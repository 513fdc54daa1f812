"""What every adapter must hold, whatever its agent is like. The agent's own test says how to make it do things."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeAlias, TypeVar

from handraise.agents import Asker, Reply, Session, Start
from handraise.agents._handled import Handled
from handraise.asks import Answer, Ask, Handling
from handraise.broker import Broker
from handraise.errors import AlreadyAnswered, AskWithdrawn, HandraiseError
from handraise.events import Asked, Delivered
from handraise.stores import Store
from handraise.stores.sqlite import MEMORY, SqliteStore
from handraise.testing.cases import PATIENCE, Report, run_cases
from handraise.testing.clock import FakeClock
from handraise.transports.process import Started, identify, is_running

__all__ = ["AgentDriver", "Late", "Stage", "check_agent"]

T = TypeVar("T")

TIMEOUT = 30.0  # seconds on the fake clock; the desk waits longer than this for an agent to take its answer


class Stage:
    """One agent in front of one desk."""

    def __init__(self, driver: AgentDriver, store: Store, tasks: asyncio.TaskGroup) -> None:
        self.driver = driver
        self.tasks = tasks
        self.clock = FakeClock()
        self.start = Start(session="s1", cwd="/project", handling=Handling(question_timeout=TIMEOUT))
        self.session: Session | None = None
        self._store = store
        self._desk = AsyncExitStack()

    async def open_desk(self) -> None:
        """A desk on the store. Called again it is a restart: waits end, nothing is withdrawn."""
        await self._desk.aclose()
        self.broker = await self._desk.enter_async_context(Broker(self._store, clock=self.clock))

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()
        await self._desk.aclose()

    async def prompt(self, text: str) -> asyncio.Task[Reply | None]:
        """Begin a turn. It may end with a reply, cancelled, or with an error of ours (None)."""
        if self.session is None:
            self.session = await self.driver.open(Handled(self.broker, self.start.handling), self.start)
        return self.tasks.create_task(_turn(self.session, text))

    async def asked(self, number: int = 1) -> Ask:
        """The ask that was raised as number so-and-so; waits for it."""
        ids: list[str] = []
        async for event in self.broker.events(after=0):
            if isinstance(event, Asked) and event.ask.id not in ids:
                ids.append(event.ask.id)
                if len(ids) == number:
                    return event.ask
        raise AssertionError("the desk closed")

    async def asks(self) -> list[Ask]:
        return [ask async for ask in self.broker.asks()]

    async def taken(self, ask: Ask) -> Ask:
        """The ask once the agent took its answer."""
        async for event in self.broker.events(after=0):
            if isinstance(event, Delivered) and event.ask.id == ask.id:
                assert event.ask.delivery_error is None, f"the answer was not taken: {event.ask.delivery_error}"
                return event.ask
        raise AssertionError("the desk closed")


Hook: TypeAlias = Callable[[Stage], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Late:
    """A prompt on which the agent asks for permission to run `COMMAND`, and the folder it runs in.

    `beside` returns once the agent goes on beside the command, where it does not wait for it.
    """

    prompt: str
    folder: Path
    beside: Callable[[], Awaitable[object]] | None = None

    # It would write a file later: it tells its process, and goes on once it is let. It needs no terminal.
    COMMAND: ClassVar[str] = """\
trap '' HUP
echo $$ > started.new; mv started.new started
while [ ! -e go ]; do sleep 0.1; done
echo late > late"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDriver:
    """How to make one agent do what the cases need. It repeats in its reply what it was told.

    What an agent cannot do stays None, and `cannot` says for that case why.
    """

    open: Callable[[Asker, Start], Awaitable[Session]]
    one: str  # a prompt on which it asks one question that has at least two options
    two: str | None = None  # a prompt on which it asks two things in one turn
    malformed: str | None = None  # a prompt on which it asks what is no question
    late: Late | None = None  # a command that would still write a file after its turn
    again: Hook | None = None  # the open ask is announced once more
    subagent: Hook | None = None  # a subagent of the stage's session asks
    own_terminal: Hook | None = None  # the open ask is answered in the agent's own terminal
    found_again: Hook | None = None  # the desk was restarted; connect the agent, which still waits, to `stage.broker`
    kill: Hook | None = None  # the agent's process dies
    cannot: Mapping[str, str] = field(default_factory=dict)


async def check_agent(make: Callable[[], AgentDriver], *, patience: float = PATIENCE) -> Report:
    """Raises AssertionError with every case that failed. `make` gives a fresh driver, and agent, for each.

    `patience` is how many seconds a case may take; a real program wants more of it.
    """

    @asynccontextmanager
    async def fresh() -> AsyncIterator[Stage]:
        store = await SqliteStore.open_file(MEMORY)
        try:
            async with asyncio.TaskGroup() as tasks:
                stage = Stage(make(), store, tasks)
                await stage.open_desk()
                try:
                    yield stage
                finally:
                    await stage.close()
        finally:
            await store.close()

    return await run_cases("check_agent", _CASES, fresh, cannot=make().cannot, patience=patience)


async def announced_twice(stage: Stage) -> None:
    again = _given(stage.driver.again, "again")
    turn = await stage.prompt(stage.driver.one)
    ask = await stage.asked()
    await again(stage)
    await stage.broker.answer(ask.id, _choice(ask))
    _repeats(await turn, _choice(ask))
    await stage.taken(ask)
    assert [each.id for each in await stage.asks()] == [ask.id], "the second announcement became another ask"


async def two_asks_in_one_turn(stage: Stage) -> None:
    turn = await stage.prompt(_given(stage.driver.two, "two"))
    for number in (1, 2):
        ask = await stage.asked(number)
        await stage.broker.answer(ask.id, _choice(ask))
        await stage.taken(ask)
    reply = await turn
    first, second = await stage.asks()
    _repeats(reply, _choice(first))
    _repeats(reply, _choice(second))


async def a_subagents_ask(stage: Stage) -> None:
    await _given(stage.driver.subagent, "subagent")(stage)
    ask = await stage.asked()
    tree = (ask.origin.session, ask.origin.parent)
    assert stage.start.session in tree, f"it belongs to {tree}, not to the tree of {stage.start.session!r}"
    assert ask.origin.parent is not None, "nobody can see that a subagent asks (`origin.parent`)"
    await stage.broker.answer(ask.id, _choice(ask))
    await stage.taken(ask)


async def abort_while_pending(stage: Stage) -> None:
    turn = await stage.prompt(stage.driver.one)
    ask = await stage.asked()
    assert stage.session is not None
    await stage.session.abort()
    await asyncio.wait([turn])
    state = (await stage.broker.get(ask.id)).state
    assert state == "withdrawn", f"after the abort its ask is {state}"


async def abort_while_a_command_runs(stage: Stage) -> None:
    """Nothing of the turn runs any more, also what a person allowed."""
    late, process = await _late(stage)
    assert stage.session is not None
    await stage.session.abort()
    await _nothing_is_written(late, process, after="the abort")


async def close_while_a_command_runs(stage: Stage) -> None:
    late, process = await _late(stage)
    assert stage.session is not None
    session, stage.session = stage.session, None
    await session.close()
    await _nothing_is_written(late, process, after="the session was closed")


async def _late(stage: Stage) -> tuple[Late, Started]:
    """The command once it runs, with its process."""
    late = _given(stage.driver.late, "late")
    for name in ("started", "go", "late"):
        (late.folder / name).unlink(missing_ok=True)  # of the case before
    await stage.prompt(late.prompt)
    ask = await stage.asked()
    await stage.broker.answer(ask.id, _choice(ask))
    while not (late.folder / "started").exists():  # noqa: ASYNC110 - another program's file; the patience ends this
        await asyncio.sleep(0.02)
    if late.beside is not None:
        await late.beside()
    return late, identify(int((late.folder / "started").read_text()))


async def _nothing_is_written(late: Late, process: Started, *, after: str) -> None:
    (late.folder / "go").touch()
    while is_running(process):  # noqa: ASYNC110 - another program's process: it was ended, or it writes and ends
        await asyncio.sleep(0.02)
    assert not (late.folder / "late").exists(), f"a command that was allowed went on after {after}"


async def answer_racing_the_timeout(stage: Stage) -> None:
    for number in (1, 2):
        turn = await stage.prompt(stage.driver.one)
        ask = await stage.asked(number)
        racers = [_answer(stage, ask), stage.clock.advance(TIMEOUT)]
        await asyncio.gather(*(racers if number == 1 else reversed(racers)))
        reply = await turn
        closed = await stage.taken(ask)
        assert closed.answer is not None
        _repeats(reply, closed.answer)


async def answered_in_the_agents_own_terminal(stage: Stage) -> None:
    turn = await stage.prompt(stage.driver.one)
    ask = await stage.asked()
    await _given(stage.driver.own_terminal, "own_terminal")(stage)
    closed = await stage.broker.wait(ask.id)
    assert closed.state in ("answered", "withdrawn"), f"it is {closed.state}"
    await asyncio.wait([turn])
    try:
        await stage.broker.reject(ask.id, reason="too late")
    except (AlreadyAnswered, AskWithdrawn):
        return
    raise AssertionError("the desk took an answer after the terminal had")


async def desk_restarted_while_pending(stage: Stage) -> None:
    found_again = _given(stage.driver.found_again, "found_again")
    await stage.prompt(stage.driver.one)
    ask = await stage.asked()
    await stage.open_desk()
    state = (await stage.broker.get(ask.id)).state
    assert state == "asked", f"the restart left it {state}"
    await found_again(stage)
    await stage.broker.answer(ask.id, _choice(ask))
    await stage.taken(ask)
    assert len(await stage.asks()) == 1, "it was asked again instead of joined"


async def agent_killed_while_pending(stage: Stage) -> None:
    kill = _given(stage.driver.kill, "kill")
    turn = await stage.prompt(stage.driver.one)
    ask = await stage.asked()
    await kill(stage)
    closed = await stage.broker.wait(ask.id)
    assert closed.state == "withdrawn", f"nobody waits for it any more, and it is {closed.state}"
    await asyncio.wait([turn])


async def malformed_arguments(stage: Stage) -> None:
    turn = await stage.prompt(_given(stage.driver.malformed, "malformed"))
    await asyncio.wait([turn])
    waiting = [ask.id for ask in await stage.asks() if ask.state == "asked"]
    assert not waiting, f"it ended its turn and left {waiting[0]!r} open"
    number = len(await stage.asks()) + 1
    turn = await stage.prompt(stage.driver.one)
    ask = await stage.asked(number)
    await stage.broker.answer(ask.id, _choice(ask))
    _repeats(await turn, _choice(ask))


async def a_refusal_with_a_reason_does_not_end_the_turn(stage: Stage) -> None:
    turn = await stage.prompt(stage.driver.one)
    ask = await stage.asked()
    await stage.broker.reject(ask.id, reason="ask me tomorrow", by="ana")
    reply = await turn
    assert reply is not None, "the refusal ended the turn"
    assert "ask me tomorrow" in reply.text, f"the reason did not reach the agent, which said {reply.text!r}"
    await stage.taken(ask)


_CASES = (
    announced_twice,
    two_asks_in_one_turn,
    a_subagents_ask,
    abort_while_pending,
    abort_while_a_command_runs,
    close_while_a_command_runs,
    answer_racing_the_timeout,
    answered_in_the_agents_own_terminal,
    desk_restarted_while_pending,
    agent_killed_while_pending,
    malformed_arguments,
    a_refusal_with_a_reason_does_not_end_the_turn,
)


async def _turn(session: Session, text: str) -> Reply | None:
    try:
        return await session.prompt(text)
    except HandraiseError:
        return None


def _given(given: T | None, name: str) -> T:
    assert given is not None, f"give the driver `{name}`, or say in `cannot` why this agent cannot have the case"
    return given


def _choice(ask: Ask) -> Answer:
    """Another answer than the one a timeout gives."""
    if ask.permission is not None:
        return Answer(reply="once", by="ana", via="suite")
    return Answer(answers=tuple((question.options[-1].value,) for question in ask.questions), by="ana", via="suite")


async def _answer(stage: Stage, ask: Ask) -> None:
    try:
        await stage.broker.answer(ask.id, _choice(ask))
    except AlreadyAnswered:
        return  # the clock was faster


def _repeats(reply: Reply | None, answer: Answer) -> None:
    assert reply is not None, "the turn ended without a reply"
    for values in answer.answers or ():
        assert values[0] in reply.text, f"it was told {values[0]!r} and said {reply.text!r}"
