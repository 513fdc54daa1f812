"""Who has a run: what a worker writes that lost it, what is parked, and what the next one need not ask again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from handraise.agents import AgentSettings, Asker, Start
from handraise.agents.scripted import Scripted, ScriptedSession
from handraise.asks import Answer, Ask, Option, Origin, Permission, Question
from handraise.broker import Broker
from handraise.config import load
from handraise.errors import SettingsError
from handraise.events import Asked
from handraise.policies.carried import carried
from handraise.stores import Store
from handraise.tables.sessions import NOBODY, NewSession
from handraise.testing import FakeClock
from handraise.worker import Agents, Worker
from handraise.workflow.author import AuthorProcesses, allow_all
from handraise.workflow.engine import Engine
from handraise.workflow.execution import PARKED_AFTER
from handraise.workflow.journal import Checkpoint, Journal, Lost, NewRun, RunRecord

pytestmark = pytest.mark.slow

PATIENCE = 20.0  # a process for the code of a run is started, maybe on a busy machine
DATABASE = Question("Which database?", (Option("SQLite"), Option("Postgres")), header="Database")


def an_ask(id: str, *, session: str, answer: Answer | None = None, **origin: str) -> Ask:
    of = Origin(agent="scripted", session=session, run="r", step="plan", **origin)
    return Ask(id=id, questions=(DATABASE,), origin=of, answer=answer)


def said(value: str, *, by: str = "ana") -> Answer:
    return Answer(answers=((value,),), by=by)


# Answers that are carried over --------------------------------------------------------------------------------


def test_an_answer_of_a_lost_attempt_is_carried_over_and_says_who_gave_it() -> None:
    before = [an_ask("1", session="s1", answer=said("Postgres"))]
    answer = carried(an_ask("2", session="s2"), before, lost={"s1"})
    assert answer is not None
    assert (answer.value, answer.by, answer.why) == ("Postgres", "policy:carried", ("ana answered this before",))


def test_answers_of_an_attempt_that_was_not_lost_are_not_carried_over() -> None:
    assert carried(an_ask("2", session="s2"), [an_ask("1", session="s1", answer=said("Postgres"))], lost={"s0"}) is None


async def test_answers_are_not_carried_over_to_another_token(store: Store) -> None:
    """Whoever may only ask can name any run and step."""
    async with Broker(store, clock=FakeClock()) as broker:
        lost = "insert into sessions (id, agent, created_at, run, step, worker) values (?, ?, ?, ?, ?, ?)"
        await store.write(lost, "s1", "scripted", 1, "r", "plan", NOBODY)
        await broker.open(an_ask("theirs", session="s1"))
        await broker.answer("theirs", said("Postgres"))
        other = await broker.open(an_ask("@ci:mine", session="mine"), owner="ci")
        assert (other.stored.state, other.stored.answer) == ("asked", None)
        same = await broker.open(an_ask("again", session="s2"))
        assert same.stored.state == "answered"


def test_what_is_asked_twice_gets_its_answers_in_their_order_and_then_a_person() -> None:
    before = [an_ask(str(n), session="s1", answer=said(value)) for n, value in enumerate(("SQLite", "Postgres"))]
    now: list[Ask] = []
    got = []
    for number in range(3):
        ask = an_ask(f"new {number}", session="s2")
        answer = carried(ask, [*before, *now], lost={"s1"})
        got.append(answer and answer.value)
        now.append(replace(ask, answer=answer))
    assert got == ["SQLite", "Postgres", None]


def test_what_policy_decided_it_decides_again_and_a_chain_of_attempts_keeps_the_person() -> None:
    by_policy = [an_ask("1", session="s1", answer=said("SQLite", by="policy:timeout"))]
    assert carried(an_ask("2", session="s2"), by_policy, lost={"s1"}) is None
    first = an_ask("1", session="s1", answer=said("Postgres"))
    second = an_ask("2", session="s2")
    second = replace(second, answer=carried(second, [first], lost={"s1"}))
    third = carried(an_ask("3", session="s3"), [second], lost={"s1", "s2"})
    assert third is not None
    assert third.why == ("ana answered this before",)


def test_a_subagent_of_a_lost_attempt_counts_as_its_own() -> None:
    before = [an_ask("1", session="s1/child", parent="s1", answer=said("Postgres"))]
    assert carried(an_ask("2", session="s2"), before, lost={"s1"}) is not None


def test_another_question_and_a_permission_are_not_answered_by_it() -> None:
    other = replace(an_ask("2", session="s2"), questions=(replace(DATABASE, question="Which one?"),))
    permission = replace(
        an_ask("1", session="s1", answer=Answer(reply="once", by="ana")),
        questions=(),
        permission=Permission(tool="Bash", summary="Remove it"),
    )
    before = [an_ask("1", session="s1", answer=said("Postgres")), permission]
    assert carried(other, before, lost={"s1"}) is None


# What is written by whom --------------------------------------------------------------------------------------


async def a_run(journal: Journal, tmp_path: Path, text: str = "shell('no', 'true')") -> RunRecord:
    file = tmp_path / "one.py"
    file.write_text(f"from handraise.workflow import *\nw = Workflow('one', {text})\n")
    return await journal.create(NewRun(workflow="one", file=str(file), cwd=str(tmp_path), input={}), by="ana", at=1)


async def test_a_worker_that_lost_a_run_writes_nothing_of_it(store: Store, tmp_path: Path) -> None:
    journal = Journal(store)
    run = await a_run(journal, tmp_path)
    await journal.register("one-1", name="one", ttl=60)
    [old] = await journal.claim("one-1", limit=10)
    await journal.write(old, 1, "run_started", None, {}, at=1)
    await journal.write(old, 1, "run_started", None, {}, at=1)  # once more, as after an answer that never came
    await journal.register("two-1", name="two", ttl=60)
    await journal.leave("one-1")
    [new] = await journal.claim("two-1", limit=10)
    waits = Checkpoint(
        id=f"{run.id}.a", run=run.id, step="a", input="", schema={}, state="open", output=None, by=None, via=None,
        asked_at=1,
    )  # fmt: skip
    for number in (1, 2):  # a row that is there and one that is not
        with pytest.raises(Lost):
            await journal.write(old, number, "run_started", None, {}, at=2)
    with pytest.raises(Lost):
        await journal.ask(old, waits)
    with pytest.raises(Lost):
        await journal.abandon(old, "s1", at=2)
    with pytest.raises(Lost):
        await journal.finish(old, "done", at=2)
    assert len(await journal.trace(run.id)) == 1
    await journal.write(new, 2, "run_completed", None, {}, at=3)
    await journal.finish(new, "done", at=3)


async def test_a_worker_that_registers_again_frees_what_it_had(store: Store, tmp_path: Path) -> None:
    journal = Journal(store)
    await a_run(journal, tmp_path)
    await journal.register("one-1", name="one", ttl=60)
    assert len(await journal.claim("one-1", limit=10)) == 1
    await journal.register("one-2", name="one", ttl=60)
    assert not await journal.beat("one-1", ttl=60)
    assert len(await journal.claim("one-2", limit=10)) == 1


async def crashed(journal: Journal, times: int) -> None:
    for number in range(times):
        await journal.register(f"bad-{number}", name="bad", ttl=60)
        assert len(await journal.claim(f"bad-{number}", limit=10)) == 1
    await journal.expire_dead_workers(everybody=True)


class Office:
    """A broker, a worker and an engine on one store."""

    def __init__(
        self, store: Store, agent: Scripted, home: Path, *, name: str = "w1", journal: Journal | None = None
    ) -> None:
        self._store, self._agent, self._home = store, agent, home
        self._name = name
        self._journal = journal or Journal(store)
        self._stack = AsyncExitStack()
        self.clock = FakeClock()

    async def __aenter__(self) -> Office:
        self.broker = await self._stack.enter_async_context(Broker(self._store, clock=self.clock))
        agents = Agents(lambda name: AgentSettings(home=self._home))
        agents.put(self._agent)
        self.worker = Worker(self.broker, self.broker.sessions, agents, name=self._name, clock=self.clock)
        await self._stack.enter_async_context(self.worker)
        ttl = 20 * PATIENCE  # so that nothing comes right only because somebody looks from time to time
        authors = await self._stack.enter_async_context(AuthorProcesses(may_load=allow_all))
        self.engine = Engine(self._journal, self.worker, clock=self.clock, ttl=ttl, authors=authors)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While runs are taken up here."""
        serving = asyncio.create_task(self.engine.serve())
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.wait([serving])

    async def ended(self, run: str) -> RunRecord:
        async with self.open():
            return await has_ended(Journal(self._store), run)


async def has_ended(journal: Journal, run: str) -> RunRecord:
    async with asyncio.timeout(PATIENCE), journal.changes() as changed:
        while True:
            changed.clear()
            record = await journal.get(run)
            if record.state != "open":
                return record
            await changed.wait()


@pytest.mark.parametrize(("times", "state"), [(PARKED_AFTER - 1, "done"), (PARKED_AFTER, "parked")])
async def test_a_run_that_brings_down_its_workers_is_parked(
    store: Store, tmp_path: Path, times: int, state: str
) -> None:
    journal = Journal(store)
    run = await a_run(journal, tmp_path)
    await crashed(journal, times)
    async with Office(store, Scripted(), tmp_path) as office:
        assert (await office.ended(run.id)).state == state


async def test_a_run_that_waits_for_a_person_is_not_parked_however_often_its_worker_dies(
    store: Store, tmp_path: Path
) -> None:
    journal = Journal(store)
    run = await a_run(journal, tmp_path, "checkpoint('review', output=int)")
    await journal.register("one-1", name="one", ttl=60)
    [claim] = await journal.claim("one-1", limit=10)
    waits = Checkpoint(
        id=f"{run.id}.review", run=run.id, step="review", input="", schema={"type": "integer"}, state="open",
        output=None, by=None, via=None, asked_at=1,
    )  # fmt: skip
    await journal.ask(claim, waits)
    await journal.leave("one-1")
    await crashed(journal, PARKED_AFTER + 3)
    async with Office(store, Scripted(), tmp_path) as office:
        ending = asyncio.create_task(office.ended(run.id))
        async with asyncio.timeout(PATIENCE), journal.changes() as changed:
            while "checkpoint_waiting" not in [event.type for event in await journal.trace(run.id)]:
                changed.clear()
                await changed.wait()
        await journal.give(waits.id, 3, by="ana", via="test", at=1)
        assert ((await ending).state, (await ending).output) == ("done", 3)


async def test_a_run_that_was_only_handed_over_is_not_parked(store: Store, tmp_path: Path) -> None:
    journal = Journal(store)
    run = await a_run(journal, tmp_path)
    for number in range(PARKED_AFTER + 3):
        await journal.register(f"w-{number}", name="w", ttl=60)
        await journal.claim(f"w-{number}", limit=10)
        await journal.leave(f"w-{number}")
    async with Office(store, Scripted(), tmp_path) as office:
        assert (await office.ended(run.id)).state == "done"


# Agents that would go on alone --------------------------------------------------------------------------------


class Stubborn(Scripted):
    """Like one whose program outlives its worker."""

    def __init__(self) -> None:
        super().__init__()
        self.halted = 0

    async def open(self, asker: Asker, start: Start) -> StubbornSession:
        return StubbornSession(self, asker, start)


class StubbornSession(ScriptedSession):
    async def halt(self) -> None:
        assert isinstance(self._agent, Stubborn)
        self._agent.halted += 1
        await self.leave()


@pytest.mark.parametrize("other_workers_exist", [True, False])
async def test_an_agent_that_outlives_its_worker_is_halted_where_others_go_on(
    store: Store, tmp_path: Path, other_workers_exist: bool
) -> None:
    agent = Stubborn()
    agent.on_question("", DATABASE)
    async with Office(store, agent, tmp_path) as office:
        worker = office.worker
        worker.hold("r", is_ours=lambda: True)
        worker.other_workers_exist = other_workers_exist
        wanted = NewSession(id="s1", agent="scripted", prompt="go", run="r", step="plan")
        working = asyncio.create_task(worker.work(wanted, turns=1))
        async with asyncio.timeout(PATIENCE):
            async for event in office.broker.events(after=0):
                if isinstance(event, Asked):
                    break
        await worker.drop("r", within=PATIENCE)
        assert agent.halted == other_workers_exist
        assert (await office.broker.get(event.ask.id)).state == "asked", "that is for whoever has the run"
        if other_workers_exist:
            working.cancel()
            worker.hold("r", is_ours=lambda: True)
            assert (await worker.work(wanted, turns=1)).is_lost, "it cannot be gone on with"
        working.cancel()
        await asyncio.wait([working])


# Settings -----------------------------------------------------------------------------------------------------


def test_the_lease_is_a_setting(tmp_path: Path) -> None:
    file = tmp_path / "config" / "handraise" / "config.toml"
    file.parent.mkdir(parents=True)
    environ = {"HANDRAISE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert load(environ, cwd=tmp_path).lease == 15
    file.write_text("[desk]\nlease = 2.5\n")
    assert load(environ, cwd=tmp_path).lease == 2.5
    file.write_text("[desk]\nlease = 0\n")
    with pytest.raises(SettingsError, match="lease is a number of seconds from 1 to 3600"):
        load(environ, cwd=tmp_path)
