"""Runs that wait for people alone are nobody's: they fall asleep, are woken by what they wait for, and lose nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from handraise.agents import Asker, Start
from handraise.agents.scripted import Scripted, ScriptedSession
from handraise.asks import Answer, Option, Question
from handraise.errors import RunEnded
from handraise.events import Asked
from handraise.stores import Store
from handraise.workflow.execution import PARKED_AFTER
from handraise.workflow.journal import NEVER, Checkpoint, Claim, Journal, Lost, RunRecord
from tests.workflow.test_takeover import PATIENCE, Office, a_run, crashed, has_ended

WAITS = "checkpoint('review', output=int)"
BOTH = "parallel(checkpoint('left', output=int), [checkpoint('right', output=int), shell('after', 'echo {right}')])"
TURNS = 20  # of the event loop, in which a run that was taken up begins
DATABASE = Question("Which database?", (Option("SQLite"), Option("Postgres")), header="Database")


async def until(happened: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await happened():
            await asyncio.sleep(0.005)


async def is_asleep(store: Store, run: str) -> bool:
    rows = await store.read("select owner, idle_claims from runs where id = ? and asleep_until is not null", run)
    assert rows in ([], [(None, 0)]), "nobody has one that sleeps, and it was taken up for nothing never before"
    return bool(rows)


async def asleep(store: Store, run: str, *, at: Sequence[str] = ("review",)) -> None:
    """Once it sleeps at these checkpoints."""

    async def does() -> bool:
        waits = {checkpoint.step for checkpoint in await Journal(store).checkpoints(run=run)}
        return waits == set(at) and await is_asleep(store, run)

    await until(does)


async def give(store: Store, run: str, output: Any, *, step: str = "review") -> Checkpoint:
    return await Journal(store).give(f"{run}.{step}", output, by="ana", via="test", at=1)


async def types(store: Store, run: str) -> list[str]:
    return [f"{event.type} {event.step or ''}".strip() for event in await Journal(store).trace(run)]


WHOLE = [
    "run_started",
    *("step_started review", "checkpoint_waiting review", "checkpoint_given review", "step_completed review"),
    "run_completed",
]


async def test_a_run_that_waits_for_a_person_sleeps_and_is_nobodys(store: Store, tmp_path: Path) -> None:
    journal = Journal(store)
    run = await a_run(journal, tmp_path, WAITS)
    async with Office(store, Scripted(), tmp_path) as office:
        async with office.open():
            await asleep(store, run.id)
            assert (await journal.get(run.id)).shown_state == "waiting"
        async with office.open():  # whoever comes next leaves it alone
            await journal.register("other-1", name="other", ttl=60)
            assert await journal.claim("other-1", limit=10) == []
            assert await is_asleep(store, run.id)
            await give(store, run.id, 3)
            ended = await has_ended(journal, run.id)
    assert (ended.state, ended.output) == ("done", 3)
    assert await types(store, run.id) == WHOLE


async def test_one_that_is_given_while_nobody_is_there_goes_on_later(store: Store, tmp_path: Path) -> None:
    run = await a_run(Journal(store), tmp_path, WAITS)
    async with Office(store, Scripted(), tmp_path) as office:
        async with office.open():
            await asleep(store, run.id)
        await give(store, run.id, 3)
        assert not await is_asleep(store, run.id)
        assert (await office.ended(run.id)).output == 3


# The very moment --------------------------------------------------------------------------------------------------


class Door(Journal):
    """Lets somebody do something just before a run falls asleep, and just after; the first time."""

    def __init__(
        self,
        store: Store,
        *,
        before: Callable[[str], Awaitable[Any]] | None = None,
        after: Callable[[str], Awaitable[Any]] | None = None,
    ) -> None:
        super().__init__(store)
        self._before, self._after = before, after
        self.slept: list[bool] = []
        self.got = 0  # how often somebody began to play

    async def get(self, id: str) -> RunRecord:
        self.got += 1
        return await super().get(id)

    async def sleep(self, claim: Claim, checkpoints: Sequence[str], *, until: int) -> bool:
        if self._before is not None:
            before, self._before = self._before, None
            await before(claim.run)
        slept = await super().sleep(claim, checkpoints, until=until)
        self.slept.append(slept)
        if self._after is not None:
            after, self._after = self._after, None
            await after(claim.run)
        return slept


async def test_one_that_is_given_just_before_it_falls_asleep_does_not(store: Store, tmp_path: Path) -> None:
    run = await a_run(Journal(store), tmp_path, WAITS)
    door = Door(store, before=lambda run: give(store, run, 3))
    async with Office(store, Scripted(), tmp_path, journal=door) as office:
        assert (await office.ended(run.id)).output == 3
    assert door.slept == [False]
    assert await types(store, run.id) == WHOLE


async def test_one_that_is_given_just_after_it_fell_asleep_is_woken(store: Store, tmp_path: Path) -> None:
    run = await a_run(Journal(store), tmp_path, f"{WAITS}, agent('build', 'build {{review}}', agent='scripted')")

    async def given(run: str) -> None:
        await give(store, run, 3)
        await until(lambda: is_owned(store, run))  # taken up again before it has ended here
        for _ in range(TURNS):
            await asyncio.sleep(0)
        got.append(door.got)

    got: list[int] = []
    door = Door(store, after=given)
    async with Office(store, Scripted().on("build 3", "built"), tmp_path, journal=door) as office:
        assert (await office.ended(run.id)).output == "built"
    assert (door.slept, got) == ([True], [1]), "one run is not played twice at the same time"
    assert max(Counter(await types(store, run.id)).values()) == 1


async def is_owned(store: Store, run: str) -> bool:
    return bool(await store.read("select 1 from runs where id = ? and owner is not null", run))


@pytest.mark.parametrize("when", ["before", "after"])
async def test_one_that_is_cancelled_as_it_falls_asleep_ends(store: Store, tmp_path: Path, when: str) -> None:
    journal = Journal(store)
    run = await a_run(journal, tmp_path, WAITS)
    door = Door(store, **{when: lambda run: journal.cancel(run, at=1)})
    async with Office(store, Scripted(), tmp_path, journal=door) as office:
        assert (await office.ended(run.id)).state == "cancelled"
    assert any(door.slept) == (when == "after")
    assert (await types(store, run.id)).count("run_cancelled") == 1
    assert (await journal.checkpoint(f"{run.id}.review")).state == "withdrawn"


async def test_one_of_two_that_is_given_in_that_moment_keeps_it_awake_for_its_step(
    store: Store, tmp_path: Path
) -> None:
    run = await a_run(Journal(store), tmp_path, BOTH)
    door = Door(store, before=lambda run: give(store, run, 3, step="right"))
    async with Office(store, Scripted(), tmp_path, journal=door) as office, office.open():
        await asleep(store, run.id, at=["left"])
        assert "step_completed after" in await types(store, run.id)
        await give(store, run.id, 4, step="left")
        assert (await has_ended(Journal(store), run.id)).state == "done"
    assert door.slept[0] is False


async def test_one_of_two_that_is_given_just_after_is_gone_on_with_once(store: Store, tmp_path: Path) -> None:
    run = await a_run(Journal(store), tmp_path, BOTH)
    door = Door(store, after=lambda run: give(store, run, 3, step="right"))
    async with Office(store, Scripted(), tmp_path, journal=door) as office, office.open():
        await asleep(store, run.id, at=["left"])
        await give(store, run.id, 4, step="left")
        assert (await has_ended(Journal(store), run.id)).state == "done"
    assert door.slept[0] is True
    assert max(Counter(await types(store, run.id)).values()) == 1


# Cancelled, late, lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_run_that_sleeps_is_cancelled(store: Store, tmp_path: Path, is_there: bool) -> None:
    journal = Journal(store)
    run = await a_run(journal, tmp_path, WAITS)
    async with Office(store, Scripted(), tmp_path) as office:
        async with office.open():
            await asleep(store, run.id)
            if is_there:
                await journal.cancel(run.id, at=1)
                await has_ended(journal, run.id)
        if not is_there:
            await journal.cancel(run.id, at=1)
        assert (await office.ended(run.id)).state == "cancelled"
    assert (await types(store, run.id))[-2:] == ["checkpoint_waiting review", "run_cancelled"]
    with pytest.raises(RunEnded, match="nobody waits for it any more"):
        await give(store, run.id, 3)


async def test_a_timeout_wakes_it(store: Store, tmp_path: Path) -> None:
    journal = Journal(store)
    run = await a_run(journal, tmp_path, "checkpoint('review', output=int, timeout=3600)")
    later = await a_run(journal, tmp_path, "checkpoint('review', output=int, timeout=3600)")
    async with Office(store, Scripted(), tmp_path) as office, office.open():
        await asleep(store, run.id)
        await asleep(store, later.id)
        await office.clock.advance(3599)
        await give(store, later.id, 3)
        await has_ended(journal, later.id)
        assert await is_asleep(store, run.id)
        await office.clock.advance(1)
        ended = await has_ended(journal, run.id)
    assert (ended.state, ended.error) == ("failed", "review: it took longer than 3600 s")
    assert (await journal.checkpoint(f"{run.id}.review")).state == "withdrawn"


async def test_what_was_given_in_time_counts_also_where_nobody_looked_until_later(store: Store, tmp_path: Path) -> None:
    run = await a_run(Journal(store), tmp_path, "checkpoint('review', output=int, timeout=60)")
    async with Office(store, Scripted(), tmp_path) as office:
        async with office.open():
            await asleep(store, run.id)
        await give(store, run.id, 3)
        await office.clock.advance(3600)
        assert (await office.ended(run.id)).output == 3


async def test_what_was_before_it_slept_does_not_count_when_its_workers_die(store: Store, tmp_path: Path) -> None:
    journal = Journal(store)
    run = await a_run(journal, tmp_path, WAITS)
    await crashed(journal, PARKED_AFTER - 1)
    async with Office(store, Scripted(), tmp_path) as office:
        async with office.open():
            await asleep(store, run.id)
        await give(store, run.id, 3)
        await crashed(journal, PARKED_AFTER - 1)
        assert (await office.ended(run.id)).state == "done"


async def test_it_falls_asleep_again_however_often_it_is_woken_for_nothing(store: Store, tmp_path: Path) -> None:
    journal = Journal(store)
    run = await a_run(journal, tmp_path, WAITS)
    async with Office(store, Scripted(), tmp_path) as office, office.open():
        for _ in range(PARKED_AFTER + 3):
            await asleep(store, run.id)
            await journal.wake(now=NEVER)
        await give(store, run.id, 3)
        assert (await has_ended(journal, run.id)).state == "done"
    assert await types(store, run.id) == WHOLE


async def test_who_may_put_a_run_to_sleep(store: Store, tmp_path: Path) -> None:
    journal = Journal(store)
    run = await a_run(journal, tmp_path, WAITS)
    id = f"{run.id}.review"
    await journal.register("one-1", name="one", ttl=60)
    [old] = await journal.claim("one-1", limit=10)
    await journal.ask(old, Checkpoint(id=id, run=run.id, step="review", input="", schema={}, state="open", output=None,
                                      by=None, via=None, asked_at=1))  # fmt: skip
    assert await journal.sleep(old, [id], until=50)
    assert await journal.sleep(old, [id], until=50), "once more, as after an answer that never came"
    assert (await journal.claim("one-1", limit=10), await journal.next_due()) == ([], 50)
    await journal.wake(now=49)
    assert await journal.claim("one-1", limit=10) == []
    await journal.wake(now=50)
    [new] = await journal.claim("one-1", limit=10)
    assert await journal.next_due() is None
    with pytest.raises(Lost):
        await journal.sleep(old, [id], until=50)
    await journal.cancel(run.id, at=1)
    assert not await journal.sleep(new, [id], until=50), "it is to end"


# Several ----------------------------------------------------------------------------------------------------------


async def test_two_checkpoints_at_once_are_given_one_after_the_other(store: Store, tmp_path: Path) -> None:
    run = await a_run(Journal(store), tmp_path, BOTH)
    async with Office(store, Scripted(), tmp_path) as office, office.open():
        await asleep(store, run.id, at=["left", "right"])
        await give(store, run.id, 3, step="right")
        await asleep(store, run.id, at=["left"])
        assert "step_completed after" in await types(store, run.id)
        await give(store, run.id, 4, step="left")
        ended = await has_ended(Journal(store), run.id)
    assert ended.output["left"] == 4
    assert ended.output["after"]["output"] == "3\n"
    assert max(Counter(await types(store, run.id)).values()) == 1


async def test_it_stays_awake_while_a_branch_beside_it_works(store: Store, tmp_path: Path) -> None:
    text = "parallel(checkpoint('review', output=int), agent('ask', 'go', agent='scripted', question_policy='forward'))"
    run = await a_run(Journal(store), tmp_path, text)
    agent = Scripted().on_question("go", DATABASE).on("go", "gone")
    async with Office(store, agent, tmp_path) as office, office.open():
        async with asyncio.timeout(PATIENCE):
            async for event in office.broker.events(after=0):
                if isinstance(event, Asked):
                    break
        await until(lambda: waits_at(store, run.id))
        assert await is_owned(store, run.id)
        await office.broker.answer(event.ask.id, Answer(answers=(("SQLite",),), by="ana"))
        await asleep(store, run.id)
        await give(store, run.id, 3)
        assert (await has_ended(Journal(store), run.id)).output == {"review": 3, "ask": "gone"}


async def waits_at(store: Store, run: str) -> list[Checkpoint]:
    return await Journal(store).checkpoints(run=run)


async def test_of_two_workers_one_goes_on_with_each(store: Store, tmp_path: Path) -> None:
    journal = Journal(store)
    runs = [(await a_run(journal, tmp_path, WAITS)).id for _ in range(20)]
    async with AsyncExitStack() as stack:
        for name in ("w1", "w2"):
            office = await stack.enter_async_context(Office(store, Scripted(), tmp_path / name, name=name))
            await stack.enter_async_context(office.open())
        for run in runs:
            await asleep(store, run)
        await asyncio.gather(*(give(store, run, 3) for run in runs))
        for run in runs:
            assert (await has_ended(journal, run)).output == 3
            assert await types(store, run) == WHOLE


# Agents whose steps are over --------------------------------------------------------------------------------------


class Housed(Scripted):
    """Like one with a process for each session."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[str] = []

    async def open(self, asker: Asker, start: Start) -> HousedSession:
        self.running.append(start.session)
        return HousedSession(self, asker, start)

    async def are(self, *sessions: str) -> bool:
        """Whether these run and no others."""
        return self.running == list(sessions)


class HousedSession(ScriptedSession):
    async def close(self) -> None:
        await super().close()
        self._end()

    async def leave(self) -> None:
        await super().leave()
        self._end()

    def _end(self) -> None:
        assert isinstance(self._agent, Housed)
        self._agent.running.remove(self._start.session)


async def test_the_agent_of_a_step_that_is_over_ends_and_its_session_can_be_prompted(
    store: Store, tmp_path: Path
) -> None:
    run = await a_run(Journal(store), tmp_path, f"agent('plan', 'plan it', agent='scripted'), {WAITS}")
    agent = Housed()
    agent.on("plan it", "a plan").on("why", "since it is good")
    async with Office(store, agent, tmp_path) as office, office.open():
        await asleep(store, run.id)
        await until(agent.are)
        session = f"ses_{run.id}_plan_1"
        sessions = office.broker.sessions
        assert (await sessions.get(session)).shown_state == "idle"
        await sessions.order(session, "prompt", "why?", at=office.clock.now())

        async def has_replied() -> bool:
            return (await sessions.replies(session))[1:] == ["since it is good"]

        await until(has_replied)
        await until(lambda: agent.are(session))
        await give(store, run.id, 3)
        assert (await has_ended(Journal(store), run.id)).state == "done"
        await until(agent.are)


async def test_the_agent_of_an_attempt_that_failed_ends(store: Store, tmp_path: Path) -> None:
    text = "agent('plan', 'plan it', agent='scripted', output=int, repairs=0, retries=1, backoff=3600)"
    run = await a_run(Journal(store), tmp_path, text)
    agent = Housed()
    agent.on("plan it", "no number")
    async with Office(store, agent, tmp_path) as office, office.open():

        async def has_failed() -> bool:
            return "step_failed plan" in await types(store, run.id)

        await until(has_failed)
        await until(agent.are)
        await office.clock.advance(3600)
        assert (await has_ended(Journal(store), run.id)).state == "failed"
        await until(agent.are)
    assert len(agent.prompted) == 2


async def test_the_agent_of_a_run_that_was_parked_and_cancelled_ends(store: Store, tmp_path: Path) -> None:
    journal = Journal(store)
    text = "agent('plan', 'plan it', agent='scripted', question_policy='forward')"
    run = await a_run(journal, tmp_path, text)
    agent = Housed()
    agent.on_question("plan it", DATABASE)
    session = f"ses_{run.id}_plan_1"
    async with Office(store, agent, tmp_path) as office:

        async def asks() -> bool:
            return (await journal.get(run.id)).open_asks == 1 and await agent.are(session)

        async with office.open():
            await until(asks)
        await until(agent.are)
        Path(run.file).write_text(Path(run.file).read_text().replace("'plan'", "'other'"))
        async with office.open():
            assert (await has_ended(journal, run.id)).state == "parked"
            await until(asks)  # it may go on, for whoever wants to talk to it
            await journal.cancel(run.id, at=1)
            assert (await has_ended(journal, run.id)).state == "cancelled"

            async def is_over() -> bool:
                return (await office.broker.sessions.get(session)).shown_state == "done" and await agent.are()

            await until(is_over)
            assert (await journal.get(run.id)).open_asks == 0
