"""A conversation with a program: what the desk is told of every ask, whichever way a request, a turn or it ends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from handraise.agents import AgentSettings, Cut, Start
from handraise.agents._conversation import ABORTED, MOST_OPEN, Conversation, Held, Prompt, origin_of
from handraise.agents._programs import found, last_words, version_of
from handraise.asks import Answer, Ask, Handling
from handraise.broker import Broker
from handraise.errors import AgentFailed, Overloaded, ProcessFailed, Withdrawn
from handraise.plugins import load
from handraise.testing import a_permission, an_ask
from handraise.transports.process import Process
from tests.helpers.hearing import Heard

PATIENCE = 10.0  # seconds; a busy machine
WAITING = "import sys; sys.stdin.read()"
DYING = "import sys; sys.stdin.readline(); sys.exit('out of ink')"


class Noting:
    """A desk that also notes what it is told of deliveries, and what is waited for."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.told: dict[str, str | None] = {}
        self.awaited: set[str] = set()
        self._news = asyncio.Event()

    async def until_awaited(self, *ids: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not self.awaited.issuperset(ids):
                self._news.clear()
                await self._news.wait()

    async def ask(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Answer:
        opened = await self.broker.open(ask, handling=handling, ordinal=ordinal)
        self.awaited.add(ask.id)
        self._news.set()
        stored = await self.broker.wait(opened.stored.id)
        answer = stored.settled()
        if answer is None:
            raise Withdrawn(stored.ask())
        return answer

    async def withdraw(self, id: str, *, reason: str | None = None, answer: Answer | None = None) -> Ask:
        return await self.broker.withdraw(id, reason=reason, answer=answer)

    def delivered(self, id: str, *, error: str | None = None) -> None:
        self.told[id] = error


@pytest.fixture
def desk(broker: Broker) -> Noting:
    return Noting(broker)


@asynccontextmanager
async def talking(
    desk: Noting,
    *,
    program: str = WAITING,
    cut: Cut | None = None,
    lost: Callable[[str], object] = lambda problem: None,
) -> AsyncIterator[Conversation[Held]]:
    start = Start(session="s1", cut=cut, listener=Heard())
    process = await Process.start([sys.executable, "-I", "-S", "-c", program])
    talk: Conversation[Held] = Conversation(process, name="parrot", asker=desk, start=start, lost=lost)

    async def listen() -> None:
        async for _ in process.lines():
            pass

    talk.begin(listen, last_words=lambda: last_words(process))
    try:
        async with asyncio.timeout(PATIENCE):
            yield talk
    finally:
        await talk.close()


async def waiting_for(talk: Conversation[Held], desk: Noting, ask: Ask) -> asyncio.Task[Answer]:
    """A request that is held until its ask is answered."""
    held = talk.hold(ask.id, Held())
    held.task = asyncio.create_task(talk.answer_to(held, ask))
    await desk.until_awaited(ask.id)
    return held.task


# Requests -----------------------------------------------------------------------------------------------------------


async def test_one_request_too_many_is_refused_until_another_has_its_answer(desk: Noting) -> None:
    async with talking(desk) as talk:
        for number in range(MOST_OPEN):
            talk.hold(number, Held())
        with pytest.raises(Overloaded, match=f"{MOST_OPEN} requests of this session wait for an answer"):
            talk.hold("one more", Held())
        assert talk.release(0)
        talk.hold("one more", Held())
        assert not talk.release(0)


async def test_the_work_on_a_request_may_end_before_its_ask_is_withdrawn(desk: Noting, broker: Broker) -> None:
    async with talking(desk) as talk:
        work = await waiting_for(talk, desk, an_ask())
        [held] = talk.take_held()
        await asyncio.wait([work])
        assert work.cancelled()
        assert (await broker.get("ask-1")).state == "asked"
        await talk.withdraw([held], reason="it lost interest")
        assert (await broker.get("ask-1")).withdrawn_reason == "it lost interest"


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "asked before"])
@pytest.mark.parametrize("steps", range(12))
async def test_an_ask_that_is_on_its_way_to_the_desk_does_not_outlive_its_withdrawal(
    desk: Noting, broker: Broker, steps: int, is_known: bool
) -> None:
    if is_known:  # by the worker before this one
        await broker.open(an_ask())
    async with talking(desk) as talk:
        held = talk.hold(1, Held())
        held.task = asyncio.create_task(talk.answer_to(held, an_ask()))
        for _ in range(steps):
            await asyncio.sleep(0)
        taken = talk.take(1)
        await talk.withdraw(taken, reason="never mind")
        if held.waiting is None:  # nobody had begun with it
            return
        assert held.waiting.done()
        assert [ask async for ask in broker.asks(state="asked")] == []


async def test_an_answer_that_comes_with_the_withdrawal_is_told_as_not_taken(desk: Noting, broker: Broker) -> None:
    async with talking(desk) as talk:
        await waiting_for(talk, desk, an_ask())
        held = talk.take_held()
        await broker.answer("ask-1", Answer(answers=(("SQLite",),)))
        await talk.withdraw(held, reason=ABORTED)
    assert desk.told == {"ask-1": f"{ABORTED} before parrot took the answer"}


async def test_a_request_whose_ask_was_withdrawn_hears_that_nobody_answered(desk: Noting, broker: Broker) -> None:
    async with talking(desk) as talk:
        work = await waiting_for(talk, desk, an_ask())
        await broker.withdraw("ask-1", reason="the run was cancelled")
        with pytest.raises(AgentFailed, match="withdrawn before anybody answered: the run was cancelled"):
            await work


# Turns --------------------------------------------------------------------------------------------------------------


async def test_a_turn_that_ends_says_what_was_neither_read_nor_used(desk: Noting) -> None:
    one, two = a_permission(id="one"), a_permission(id="two")
    granted = Answer(reply="once")
    async with talking(desk) as talk:
        turn = talk.new_turn(Prompt("go on", told=["read"], granted=[(one, granted), (two, granted)]))
        talk.read_prompt()
        assert talk.take_granted(lambda ask: ask.id == "two") == (two, granted)
        assert talk.take_granted(lambda ask: ask.id == "two") is None
        turn.told.append("late")
        turn.text = "done"
        talk.finish()
        assert (await turn.reply).text == "done"
        assert talk.idle.is_set()
        assert talk.turns == 1
    late, unused = "the turn ended before parrot took it", "parrot did not make that call again"
    assert desk.told == {"read": None, "late": late, "one": unused}


async def test_there_is_one_turn_at_a_time_and_none_after_the_end(desk: Noting) -> None:
    async with talking(desk) as talk:
        turn = talk.new_turn()
        with pytest.raises(AgentFailed, match="parrot is still busy"):
            talk.new_turn()
        talk.finish(problem="no seeds\x1b")
        with pytest.raises(AgentFailed, match=r"^parrot could not finish: no seeds\\x1b$"):
            await turn.reply
        talk.new_turn()
        await talk.close()
        with pytest.raises(AgentFailed, match="the session is closed"):
            talk.new_turn()


async def test_a_program_that_ends_by_itself_leaves_nothing_open(desk: Noting, broker: Broker) -> None:
    lost: list[str] = []
    async with talking(desk, program=DYING, lost=lost.append) as talk:
        turn = talk.new_turn(Prompt("go on", told=["told"], granted=[(a_permission(id="granted"), Answer())]))
        await waiting_for(talk, desk, an_ask())
        await talk.process.write_line(b"die")
        with pytest.raises(AgentFailed, match=r"^parrot ended in the middle of its turn: out of ink$"):
            await turn.reply
        assert (await broker.get("ask-1")).withdrawn_reason == "parrot ended: out of ink"
        with pytest.raises(AgentFailed, match="parrot has ended: out of ink"):
            talk.new_turn()
    problem = "parrot ended before it took it: out of ink"
    assert desk.told == {"told": problem, "granted": problem}
    assert lost[0] == problem


async def test_an_abort_withdraws_also_what_was_asked_before_the_agent_heard_of_it(
    desk: Noting, broker: Broker
) -> None:
    async with talking(desk) as talk:
        turn = talk.new_turn()

        async def interrupt() -> None:
            await waiting_for(talk, desk, an_ask())
            talk.finish()

        await talk.abort(interrupt)
        assert turn.reply.cancelled()
        assert (await broker.get("ask-1")).withdrawn_reason == ABORTED
        assert not talk.is_over


async def test_an_agent_that_cannot_be_interrupted_is_ended_and_leaves_nothing_open(
    desk: Noting, broker: Broker
) -> None:
    lost: list[str] = []
    async with talking(desk, lost=lost.append) as talk:
        turn = talk.new_turn(Prompt("go on", told=["told"]))
        await waiting_for(talk, desk, an_ask())

        async def interrupt() -> None:
            raise ProcessFailed("it takes no more input")

        with pytest.raises(AgentFailed, match="did not stop when it was interrupted, so its process was ended"):
            await talk.abort(interrupt)
        assert talk.process.exit_code is not None
        assert turn.reply.cancelled()
        assert (await broker.get("ask-1")).withdrawn_reason == ABORTED
        problem = "parrot ended before it took it: it did not stop when it was interrupted"
        assert (desk.told, lost) == ({"told": problem}, [problem])


# The end ------------------------------------------------------------------------------------------------------------


async def test_closing_withdraws_what_is_open_and_says_what_was_not_taken(desk: Noting, broker: Broker) -> None:
    lost: list[str] = []
    async with talking(desk, lost=lost.append) as talk:
        talk.new_turn(Prompt("go on", told=["told"]))
        await waiting_for(talk, desk, an_ask())
    problem = "the session was closed before parrot took it"
    assert (desk.told, lost) == ({"told": problem}, [problem])
    assert (await broker.get("ask-1")).withdrawn_reason == "the session was closed"


async def test_leaving_keeps_everything_for_whoever_comes_next(desk: Noting, broker: Broker) -> None:
    lost: list[str] = []
    async with talking(desk, lost=lost.append) as talk:
        talk.new_turn(Prompt("go on", told=["told"]))
        await waiting_for(talk, desk, an_ask())
        await talk.leave()
        assert talk.process.exit_code is not None
    assert (desk.told, lost) == ({}, [])  # also after it was closed
    assert (await broker.get("ask-1")).state == "asked"


# What a worker before us left ---------------------------------------------------------------------------------------


def told_later(ask: Ask, answer: Answer) -> str:
    return f"{ask.id}: {answer.value or answer.reply}"


async def a_cut(broker: Broker, *asks: Ask, prompt: str | None = "build it") -> Cut:
    for ask in asks:
        await broker.open(ask)
    return Cut(handle={"turns": 3}, prompt=prompt, asks=asks)


async def test_what_was_answered_while_nobody_was_there_is_told_and_a_grant_waits_for_its_call(
    desk: Noting, broker: Broker
) -> None:
    question, gone = an_ask(), an_ask(id="gone")
    granted, refused = a_permission(id="granted"), a_permission(id="refused")
    cut = await a_cut(broker, question, gone, granted, refused)
    async with talking(desk, cut=cut) as talk:
        assert talk.turns == 3
        going = asyncio.create_task(talk.take_up(told_later))
        await desk.until_awaited("ask-1", "gone", "granted", "refused")
        await broker.withdraw("gone")
        await broker.answer("refused", Answer(reply="reject"))
        await broker.answer("granted", Answer(reply="once"))
        await broker.answer("ask-1", Answer(answers=(("SQLite",),)))
        prompt = await going
    assert prompt is not None
    assert prompt.text.splitlines()[1:] == ["ask-1: SQLite", "granted: once", "refused: reject"]
    assert prompt.told == ["ask-1", "refused"]
    assert [ask.id for ask, _ in prompt.granted] == ["granted"]


async def test_a_conversation_that_the_agent_does_not_know_begins_with_its_prompt(desk: Noting, broker: Broker) -> None:
    async with talking(desk, cut=await a_cut(broker)) as talk:
        assert await talk.take_up(told_later, is_new=True) == Prompt("build it")
        with pytest.raises(AgentFailed, match="parrot does not take that up by itself; prompt the session to go on"):
            await talk.take_up(told_later)
    cut = await a_cut(broker, an_ask())
    await broker.answer("ask-1", Answer(answers=(("SQLite",),)))
    async with talking(desk, cut=cut) as talk:
        prompt = await talk.take_up(told_later, is_new=True)
        assert prompt is not None and prompt.text.splitlines()[0] == "build it"


async def test_where_nothing_was_under_way_there_is_nothing_to_take_up(desk: Noting, broker: Broker) -> None:
    for cut in (None, await a_cut(broker, prompt=None)):
        async with talking(desk, cut=cut) as talk:
            assert await talk.take_up(told_later) is None


async def test_a_turn_of_which_everything_was_withdrawn_is_lost(desk: Noting, broker: Broker) -> None:
    cut = await a_cut(broker, an_ask())
    async with talking(desk, cut=cut) as talk:
        going = asyncio.create_task(talk.take_up(told_later))
        await desk.until_awaited("ask-1")
        await broker.withdraw("ask-1")
        with pytest.raises(AgentFailed, match="everything parrot had asked was withdrawn meanwhile"):
            await going


async def test_an_abort_gives_up_what_is_waited_for_without_a_request(desk: Noting, broker: Broker) -> None:
    answered, pending = an_ask(id="answered"), an_ask(id="pending")
    cut = await a_cut(broker, answered, pending)
    await broker.answer("answered", Answer(answers=(("SQLite",),)))

    async def interrupt() -> None:
        raise AssertionError("there is no turn to interrupt")

    async with talking(desk, cut=cut) as talk:
        going = asyncio.create_task(talk.take_up(told_later))
        await desk.until_awaited("answered", "pending")
        await talk.abort(interrupt)
        with pytest.raises(asyncio.CancelledError):
            await going
    assert (await broker.get("pending")).withdrawn_reason == ABORTED
    assert desk.told == {"answered": f"{ABORTED} before parrot took the answer"}


async def test_another_prompt_lets_go_of_what_was_left(desk: Noting, broker: Broker) -> None:
    cut = await a_cut(broker, an_ask())
    async with talking(desk, cut=cut) as talk:
        await talk.let_go_of_recorded(reason="the session went on")
        assert not talk.recorded
    assert (await broker.get("ask-1")).withdrawn_reason == "the session went on"


def test_an_ask_of_a_subagent_names_the_session_it_belongs_to() -> None:
    start = Start(session="s1", parent="above", run="r", step="build", cwd="/repo")
    own, child = origin_of(start, agent="parrot"), origin_of(start, agent="parrot", subagent="c")
    assert (own.session, own.parent, own.run, own.step, own.cwd) == ("s1", "above", "r", "build", "/repo")
    assert (child.session, child.parent, child.run, child.step, child.cwd) == ("s1/c", "s1", "r", "build", "/repo")


# Programs -----------------------------------------------------------------------------------------------------------


async def test_a_program_is_found_by_its_path_and_tells_its_version(tmp_path: Path) -> None:
    program = tmp_path / "parrot"
    program.write_text("#!/bin/sh\necho parrot version 1.2.3-beta here\n")
    program.chmod(0o755)
    env = {"PATH": str(tmp_path)}
    assert found("parrot", env=env, install="buy one") == str(program)
    assert await version_of([str(program)], env=env, install="buy one") == "1.2.3-beta"
    with pytest.raises(AgentFailed, match="there is no program `crow`; buy one"):
        found("crow", env=env, install="buy one")
    program.write_text("#!/bin/sh\necho 1.2.3; echo moulting >&2; exit 3\n")
    with pytest.raises(AgentFailed, match=r"did not say its version \(moulting\); buy one"):
        await version_of([str(program)], env=env, install="buy one")


@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_a_program_that_breaks_when_it_is_looked_at_says_so(tmp_path: Path, name: str) -> None:
    program = tmp_path / "parrot"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1.2.3 && exit\necho moulting >&2; exit 3\n')
    program.chmod(0o755)
    agent = load("agents", name)(AgentSettings(home=tmp_path, command=(str(program),)))
    seen = await agent.look(probe=True)
    assert (seen.installed, seen.version, seen.checked) == (True, "1.2.3", ("installed", "version"))
    assert "ended" in seen.problem
