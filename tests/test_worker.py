"""The worker: it starts sessions, carries out what people want of them, and goes on where another one stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from handraise.agents import AgentSettings, Asker, Reply, Start
from handraise.agents.scripted import ScriptedSession
from handraise.asks import Answer, Ask, Handling, Option, Origin, Permission, Question
from handraise.broker import Broker
from handraise.errors import AgentFailed, NothingToDeliver, PluginNotFound, SessionEnded, SettingsError
from handraise.events import Asked, Delivered
from handraise.stores import Store
from handraise.tables.sessions import NewSession, SessionRecord, Sessions
from handraise.testing import FakeClock, Scripted
from handraise.worker import Agents, Worker, sole_worker

PATIENCE = 5.0
DATABASE = Question("Which database?", (Option("SQLite"), Option("Postgres")), header="Database")


class Office:
    """A desk and a worker on one store. `again` is a restart of both; `die` ends the worker without a word."""

    def __init__(self, store: Store, agent: Scripted, home: Path) -> None:
        self.store, self.agent, self.home = store, agent, home
        self.clock = FakeClock()
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        self.broker = await self._stack.enter_async_context(Broker(self.store, clock=self.clock))
        agents = Agents(lambda name: AgentSettings(home=self.home))
        agents.put(self.agent)
        worker = Worker(self.broker, self.broker.sessions, agents, name="w1", clock=self.clock)
        self.worker = await self._stack.enter_async_context(worker)

    async def close(self) -> None:
        await self._stack.aclose()

    async def again(self) -> None:
        await self.close()
        await self.clock.advance(1)
        await self.open()

    async def start(self, prompt: str, **changes: object) -> SessionRecord:
        return await self.worker.create(NewSession(agent="scripted", prompt=prompt, **changes))  # type: ignore[arg-type]

    async def asked(self, number: int = 1) -> Ask:
        seen: list[str] = []
        async with asyncio.timeout(PATIENCE):
            async for event in self.broker.events(after=0):
                if isinstance(event, Asked) and event.ask.id not in seen:
                    seen.append(event.ask.id)
                    if len(seen) == number:
                        return event.ask
        raise AssertionError("the desk closed")

    async def until(self, id: str, state: str) -> SessionRecord:
        async def reached() -> bool:
            return (await self.broker.sessions.get(id)).shown_state == state

        await self._wait(reached)
        record = await self.broker.sessions.get(id)
        assert record.shown_state == state, f"it is {record.shown_state}: {record.error}"
        return record

    async def _wait(self, reached: Callable[[], Awaitable[bool]]) -> None:
        await self.broker.sessions.wait_until(reached, timeout=PATIENCE)

    async def said(self, id: str) -> list[tuple[str, str]]:
        return [(message.role, message.text) for message in await self.broker.sessions.messages(id)]

    async def order(self, id: str, kind: str, text: str = "") -> None:
        await self.broker.sessions.order(id, kind, text, at=self.clock.now())  # type: ignore[arg-type]


@pytest.fixture
def agent() -> Scripted:
    scripted = Scripted()
    scripted.on_question("database", DATABASE)
    scripted.on("database", lambda answers: f"it is {answers[0].value or answers[0].reason}")
    scripted.on("hello", "hello yourself")
    return scripted


@asynccontextmanager
async def an_office(store: Store, agent: Scripted, home: Path) -> AsyncIterator[Office]:
    office = Office(store, agent, home)
    await office.open()
    try:
        yield office
    finally:
        await office.close()


@pytest.fixture
async def office(store: Store, agent: Scripted, tmp_path: Path) -> AsyncIterator[Office]:
    async with an_office(store, agent, tmp_path) as made:
        yield made


async def test_a_session_runs_its_first_prompt_and_is_idle_afterwards(office: Office) -> None:
    session = await office.start("hello")
    await office.until(session.id, "idle")
    assert await office.said(session.id) == [("person", "hello"), ("agent", "hello yourself")]


async def test_an_ask_makes_it_wait_and_the_answer_reaches_it(office: Office) -> None:
    session = await office.start("database")
    ask = await office.asked()
    assert ask.origin.session == session.id
    await office.until(session.id, "waiting")
    await office.broker.answer(ask.id, Answer(answers=(("Postgres",),), by="ana"))
    await office.until(session.id, "idle")
    assert ("agent", "it is Postgres") in await office.said(session.id)


async def test_its_policy_decides_its_asks(office: Office) -> None:
    session = await office.start("database", handling=Handling(question_policy="accept-first"))
    await office.until(session.id, "idle")
    assert ("agent", "it is SQLite") in await office.said(session.id)


async def test_further_prompts_are_carried_out_one_after_the_other(office: Office) -> None:
    session = await office.start("database")
    await office.order(session.id, "prompt", "hello")
    ask = await office.asked()
    await office.broker.answer(ask.id, Answer(answers=(("SQLite",),)))

    async def both() -> bool:
        return ("agent", "hello yourself") in await office.said(session.id)

    await office._wait(both)
    assert [text for role, text in await office.said(session.id) if role == "person"] == ["database", "hello"]


async def test_an_abort_withdraws_what_it_asked_and_the_session_takes_another_prompt(office: Office) -> None:
    session = await office.start("database")
    ask = await office.asked()
    await office.order(session.id, "abort")
    await office.until(session.id, "idle")
    assert (await office.broker.get(ask.id)).state == "withdrawn"
    assert ("notice", "The turn ended: it was aborted.") in await office.said(session.id)
    await office.order(session.id, "prompt", "hello")

    async def greeted() -> bool:
        return ("agent", "hello yourself") in await office.said(session.id)

    await office._wait(greeted)


async def test_a_closed_session_is_done_and_takes_no_prompt(office: Office) -> None:
    session = await office.start("database")
    ask = await office.asked()
    await office.order(session.id, "close")
    await office.until(session.id, "done")
    assert (await office.broker.get(ask.id)).state == "withdrawn"
    with pytest.raises(SessionEnded, match="done"):
        await office.order(session.id, "prompt", "hello")


async def test_closing_a_session_that_is_not_open_here_withdraws_what_it_asked(office: Office) -> None:
    session = await office.start("database")
    ask = await office.asked()
    await office.close()
    await Sessions(office.store).order(session.id, "close", at=office.clock.now())
    await office.open()
    await office.until(session.id, "done")
    assert (await office.broker.get(ask.id)).state == "withdrawn"


async def test_a_session_that_was_only_mentioned_cannot_be_steered(office: Office) -> None:
    ask = Ask(id="a1", questions=(DATABASE,), origin=Origin(agent="claude", session="theirs"))
    await office.broker.open(ask)
    with pytest.raises(SessionEnded, match="not one that was started here"):
        await office.order("theirs", "prompt", "hello")


async def test_a_turn_that_was_cut_off_goes_on_with_the_next_worker(office: Office) -> None:
    session = await office.start("database")
    ask = await office.asked()
    await office.again()
    assert (await office.broker.get(ask.id)).state == "asked"
    await office.until(session.id, "waiting")
    await office.broker.answer(ask.id, Answer(answers=(("Postgres",),), by="ana"))
    await office.until(session.id, "idle")
    assert await office.said(session.id) == [("person", "database"), ("agent", "it is Postgres")]
    assert len([each async for each in office.broker.asks()]) == 1


async def test_what_was_answered_while_no_worker_ran_is_taken_by_the_next_one(
    store: Store, agent: Scripted, tmp_path: Path
) -> None:
    async with an_office(store, agent, tmp_path) as office:
        session = await office.start("database")
        ask = await office.asked()
    async with Broker(store) as broker:
        await broker.answer(ask.id, Answer(answers=(("Postgres",),), by="ana"))
    async with an_office(store, agent, tmp_path) as office:
        await office.until(session.id, "idle")
        assert ("agent", "it is Postgres") in await office.said(session.id)


async def test_silence_stops_a_turn_but_not_while_it_waits_for_a_person(office: Office) -> None:
    session = await office.start("database", stale_after=60.0)
    ask = await office.asked()
    await office.clock.advance(600)
    await office.until(session.id, "waiting")
    await office.broker.answer(ask.id, Answer(answers=(("Postgres",),)))
    await office.until(session.id, "idle")


async def test_a_turn_without_a_sign_of_life_is_stopped_with_the_reason(store: Store, tmp_path: Path) -> None:
    mute = _Mute()
    async with an_office(store, mute, tmp_path) as office:
        session = await office.start("hello", stale_after=60.0)
        await asyncio.wait_for(mute.began.wait(), PATIENCE)
        await office.clock.advance(61)
        record = await office.until(session.id, "failed")
        assert record.error == "no sign of life for 60 s"
        assert ("notice", "The turn ended: no sign of life for 60 s.") in await office.said(session.id)


class _Mute(Scripted):
    """An agent whose turn never ends by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.began = asyncio.Event()

    async def open(self, asker: Asker, start: Start) -> ScriptedSession:
        self.began.set()
        return _MuteSession(self, asker, start)


class _MuteSession(ScriptedSession):
    async def _play(self, text: str, *, turn: int) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


async def test_an_adapter_that_breaks_while_it_is_aborted_does_not_keep_a_silent_turn_alive(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = _Stuck()
    async with an_office(store, stuck, tmp_path) as office:
        session = await office.start("hello", stale_after=60.0)
        await asyncio.wait_for(stuck.began.wait(), PATIENCE)
        await office.clock.advance(61)
        assert (await office.until(session.id, "failed")).error == "no sign of life for 60 s"
    assert "could not be aborted" in caplog.text


class _Stuck(_Mute):
    async def open(self, asker: Asker, start: Start) -> ScriptedSession:
        self.began.set()
        return _StuckSession(self, asker, start)


class _StuckSession(_MuteSession):
    async def abort(self) -> None:
        raise RuntimeError("the adapter broke")


async def test_what_cannot_be_started_is_said_at_once(office: Office) -> None:
    with pytest.raises(PluginNotFound, match="no 'clippy'"):
        await office.worker.create(NewSession(agent="clippy", prompt="hello"))
    with pytest.raises(SettingsError, match="no folder"):
        await office.start("hello", cwd="/no/such/folder")


async def test_a_session_without_a_worker_is_taken_by_the_first_one_there(office: Office) -> None:
    wanted = NewSession(agent="scripted", prompt="hello")
    created = await office.broker.sessions.create(wanted, worker=None, machine=None, at=office.clock.now())
    assert (await office.until(created.id, "idle")).worker == "w1"


def test_a_home_has_one_worker(tmp_path: Path) -> None:
    with sole_worker(tmp_path) as first, sole_worker(tmp_path) as second:
        assert (first, second) == (True, False)
    with sole_worker(tmp_path) as third:
        assert third


# No answer vanishes -------------------------------------------------------------------------------------------------


class Forgetful(Scripted):
    """An agent that knows nothing of its conversation after it was killed, as Gemini CLI in its first turn."""

    is_gone = False

    async def open(self, asker: Asker, start: Start) -> ScriptedSession:
        if self.is_gone:
            raise AgentFailed("forgetful did not load the session: No previous sessions found for this project")
        return await super().open(asker, start)


@pytest.fixture
def forgetful() -> Forgetful:
    scripted = Forgetful()
    scripted.on_question("database", DATABASE)
    return scripted


async def told(office: Office, id: str) -> Ask:
    """The ask once it is told what became of its answer."""
    async with asyncio.timeout(PATIENCE):
        async for event in office.broker.events(after=0):
            if isinstance(event, Delivered) and event.ask.id == id:
                return event.ask
    raise AssertionError("the desk closed")


@pytest.mark.parametrize("is_rejected", [False, True])
async def test_an_answer_whose_agent_cannot_be_taken_up_again_is_told_as_not_taken(
    store: Store, forgetful: Forgetful, tmp_path: Path, is_rejected: bool
) -> None:
    async with an_office(store, forgetful, tmp_path) as office:
        session = await office.start("database")
        ask = await office.asked()
        await office.close()  # the worker leaves it, and the agent is gone with it
        forgetful.is_gone = True
        async with Broker(store, clock=office.clock) as desk:
            await desk.answer(
                ask.id, Answer(rejected=True) if is_rejected else Answer(answers=(("SQLite",),), by="ana")
            )
        await office.open()
        await office.until(session.id, "failed")
        taken = await told(office, ask.id)
    assert taken.delivered_at is None
    assert taken.delivery_error is not None and "No previous sessions found" in taken.delivery_error


async def test_what_nobody_answered_is_withdrawn_where_its_agent_cannot_be_taken_up_again(
    store: Store, forgetful: Forgetful, tmp_path: Path
) -> None:
    async with an_office(store, forgetful, tmp_path) as office:
        session = await office.start("database")
        ask = await office.asked()
        await office.close()
        forgetful.is_gone = True
        await office.open()
        await office.until(session.id, "failed")
        left = await office.broker.wait(ask.id)
    assert left.state == "withdrawn" and "No previous sessions found" in (left.withdrawn_reason or "")


async def test_closing_a_session_that_is_not_open_here_tells_an_answer_that_nobody_took(office: Office) -> None:
    session = await office.start("database")
    ask = await office.asked()
    await office.close()
    async with Broker(office.store, clock=office.clock) as desk:
        await desk.sessions.order(session.id, "close", at=office.clock.now())
        await desk.answer(ask.id, Answer(answers=(("SQLite",),), by="ana"))
    await office.open()
    await office.until(session.id, "done")
    ended = await told(office, ask.id)  # the agent may have been faster
    reasons = ("it was aborted before the agent took it", "its session was closed before the agent took it")
    assert ended.delivered_at is not None if ended.delivery_error is None else ended.delivery_error in reasons


class Broken(Scripted):
    """An adapter with an error of its own, once the worker comes back."""

    is_broken = False

    async def open(self, asker: Asker, start: Start) -> ScriptedSession:
        if self.is_broken:
            raise ZeroDivisionError("a mistake in an adapter")
        return await super().open(asker, start)


async def test_an_adapter_that_breaks_leaves_no_answer_without_a_word(store: Store, tmp_path: Path) -> None:
    agent = Broken()
    agent.on_question("database", DATABASE)
    async with an_office(store, agent, tmp_path) as office:
        session = await office.start("database")
        ask = await office.asked()
        await office.close()
        agent.is_broken = True
        async with Broker(store, clock=office.clock) as desk:
            await desk.answer(ask.id, Answer(answers=(("SQLite",),), by="ana"))
        await office.open()
        await office.until(session.id, "failed")
        assert (await told(office, ask.id)).delivery_error is not None


# Told again ---------------------------------------------------------------------------------------------------------


async def not_taken(office: Office, forgetful: Forgetful, answer: Answer) -> tuple[str, Ask]:
    """A session whose agent could not take the answer, and the ask. The agent works again."""
    session = await office.start("database")
    ask = await office.asked()
    await office.close()
    forgetful.is_gone = True
    async with Broker(office.store, clock=office.clock) as desk:
        await desk.answer(ask.id, answer)
    await office.open()
    await office.until(session.id, "failed")
    ask = await told(office, ask.id)
    forgetful.is_gone = False
    return session.id, ask


async def taken_at_last(office: Office, id: str) -> Ask:
    async with asyncio.timeout(PATIENCE):
        async for event in office.broker.events(after=0):
            if isinstance(event, Delivered) and event.ask.id == id and event.ask.delivered_at is not None:
                return event.ask
    raise AssertionError("the desk closed")


async def test_an_answer_that_an_agent_could_not_take_is_told_again(store: Store, tmp_path: Path) -> None:
    agent = Forgetful()
    agent.on_question("^database", DATABASE)
    async with an_office(store, agent, tmp_path) as office:
        session, ask = await not_taken(office, agent, Answer(answers=(("Postgres",),), by="ana"))
        for _ in range(2):  # the second one changes nothing
            await office.broker.sessions.deliver_again(ask, at=office.clock.now())
        await office.until(session, "idle")
        taken = await taken_at_last(office, ask.id)
        heard = [prompt.text for prompt in agent.prompted if prompt.text != "database"]
        assert len(heard) == 1
        assert '"Which database?"; the answer is: "Postgres".' in heard[0]
        with pytest.raises(NothingToDeliver):
            await office.broker.sessions.deliver_again(taken, at=office.clock.now())


class Renumbering(Forgetful):
    """An agent that calls what it asks by a new id after it was gone, as real ones do."""

    async def open(self, asker: Asker, start: Start) -> ScriptedSession:
        cut = start.cut if start.cut is None else replace(start.cut, handle={"turns": 7})
        return await super().open(asker, replace(start, cut=cut))


async def test_a_grant_that_is_told_again_grants_nothing(store: Store, tmp_path: Path) -> None:
    agent = Renumbering()
    agent.on_permission("database|make", Permission(tool="Bash", summary="Build", command="make"))
    async with an_office(store, agent, tmp_path) as office:
        session, ask = await not_taken(office, agent, Answer(reply="once", by="ana"))
        await office.broker.sessions.deliver_again(ask, at=office.clock.now())
        again = await office.asked(2)
        assert again.id != ask.id and again.state == "asked"
        await office.until(session, "waiting")


async def test_what_waits_was_taken_or_is_not_ours_cannot_be_told_again(office: Office) -> None:
    await office.start("database")
    ask = await office.asked()
    sessions = office.broker.sessions
    with pytest.raises(NothingToDeliver, match="it is asked"):
        await sessions.deliver_again(ask, at=office.clock.now())
    await office.broker.open(Ask(id="theirs", questions=(DATABASE,), origin=Origin(agent="x", session="elsewhere")))
    await office.broker.answer("theirs", Answer(answers=(("Postgres",),)))
    with pytest.raises(NothingToDeliver, match="on its way"):
        await sessions.deliver_again(await office.broker.get("theirs"), at=office.clock.now())
    await office.broker.report([("theirs", "it was gone")])
    with pytest.raises(SessionEnded):
        await sessions.deliver_again(await office.broker.get("theirs"), at=office.clock.now())


async def test_what_nobody_came_for_in_time_is_taken_by_the_next_worker(
    store: Store, agent: Scripted, tmp_path: Path
) -> None:
    async with an_office(store, agent, tmp_path) as office:
        session = await office.start("database")
        ask = await office.asked()
        await office.close()
        async with Broker(store, clock=office.clock) as desk:
            await desk.answer(ask.id, Answer(answers=(("Postgres",),), by="ana"))
            await office.clock.advance(61)
            while (await desk.get(ask.id)).delivery_error is None:
                await asyncio.sleep(0.01)
            worker = Worker(desk, desk.sessions, Agents(lambda name: AgentSettings()), name="w", clock=office.clock)
            assert [left.id for left in await worker.left_open(session.id)] == [ask.id]
