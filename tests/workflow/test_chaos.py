"""Desks and workers are shot and stopped while workflows run: every run ends the same, and nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from handraise.asks import Answer, Ask
from handraise.client import Client
from handraise.config import Settings
from handraise.errors import AlreadyAnswered, AskWithdrawn
from handraise.events import Asked
from handraise.stores import Store
from handraise.testing.postgres import PostgresServer, postgres_server
from tests.helpers.chaos_agent import COUNTS, PROGRAMS, install
from tests.helpers.nursery import START, Child, Nursery, is_running
from tests.helpers.serving import serving
from tests.helpers.trusting import trust_project

pytestmark = pytest.mark.slow

ROUNDS = 8  # random kills on each database; raise it to 100 for a long proof
RUNS = 3  # that are under way when these happen
LEASE = 1  # second, the shortest there is
PATIENCE = 60.0
ENDED = 1000  # more steps than there are

WORKFLOW = """
from pathlib import Path
from handraise.workflow import Workflow, agent, checkpoint, parallel, shell

FOLDER = Path(__file__).parents[2]

def count(step):
    with (FOLDER / "COUNTS").open("ab", buffering=0) as file:
        file.write(f"{step}\\n".encode())

def first() -> int:
    count("first")
    return 1

def last(ask: str, left: str, after, review: int, second: int) -> dict[str, str]:
    count("last")
    return {"ask": ask, "left": left, "after": after.output.strip(), "review": str(review), "second": str(second)}

chaos = Workflow(
    "chaos",
    first,
    agent("ask", "ask {first}", agent="chaos", question_policy="forward"),
    shell("make", "echo make >> COUNTS; echo made", if_cut="rerun"),
    parallel(
        agent("left", "left {ask}", agent="chaos", question_policy="forward"),
        [
            agent("right", "right {make.output}", agent="chaos"),
            shell("after", "echo after >> COUNTS; echo {right}", if_cut="rerun"),
        ],
    ),
    parallel(checkpoint("review", output=int), checkpoint("second", output=int)),
    last,
)
waits = Workflow("waits", checkpoint("review", output=int), checkpoint("second", output=int))
both = Workflow("both", agent("one", "both of them", agent="chaos", question_policy="forward"))
"""
STEPS = ("first", "ask", "make", "left", "right", "after", "review", "second", "last")
EXPECTED = {"ask": "use Postgres", "left": "went down", "after": "right is done", "review": "7", "second": "7"}
ANSWERS = {"Database": "Postgres", "Way": "down", "First": "SQLite", "Then": "Postgres"}


class Person:
    """Answers whatever comes and gives at every checkpoint, through any desk that is there; knows how often."""

    def __init__(self, client: Client, *, leaves: Iterable[str] = ()) -> None:
        self.client = client
        self.answered: Counter[tuple[str, str]] = Counter()
        self._leaves = set(leaves)  # headers of questions that stay open

    async def answer(self) -> None:
        async for event in self.client.events(after=0):
            if isinstance(event, Asked):
                ask = event.ask
                if ask.title in self._leaves or ask.permission is not None:
                    continue
                with suppress(AlreadyAnswered, AskWithdrawn):
                    said = Answer(answers=((ANSWERS[ask.title],),), by="ana")
                    settled = await self.client.answer(ask.id, said)
                    if settled.answer is not None and not settled.answer.by_policy:
                        self.answered[str(ask.origin.run), ask.title] += 1

    async def decide(self) -> None:
        while True:
            told = await self.client.call("GET", "/v1/checkpoints?state=open")
            for checkpoint in told["checkpoints"]:
                await self.client.call("POST", f"/v1/checkpoints/{checkpoint['id']}", body={"output": 7})
            await asyncio.sleep(0.05)


@asynccontextmanager
async def a_person(client: Client, *, leaves: Iterable[str] = ()) -> AsyncIterator[Person]:
    person = Person(client, leaves=leaves)
    tasks = [asyncio.create_task(person.answer()), asyncio.create_task(person.decide())]
    try:
        yield person
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop" / ".handraise" / "workflows"
    folder.mkdir(parents=True)
    (folder / "chaos.py").write_text(WORKFLOW)
    for name in ("home", "desk", "one", "two"):  # of desks and workers
        trust_project(tmp_path / "shop", home=tmp_path / name)
    return tmp_path / "shop"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """What a process of its own needs: the agent, and a short lease."""
    config = tmp_path / "config" / "handraise"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f"[desk]\nlease = {LEASE}\n")
    return {"XDG_CONFIG_HOME": str(config.parent), **install(tmp_path / "agents")}


@pytest.fixture
async def nursery(environ: dict[str, str]) -> AsyncIterator[Nursery]:
    async with Nursery(environ) as nursery:
        yield nursery


async def started(client: Client, project: Path, *, workflow: str = "chaos") -> str:
    run = await client.call("POST", "/v1/runs", body={"workflow": workflow, "cwd": str(project)})
    return str(run["id"])


async def trace(client: Client, run: str) -> list[dict[str, Any]]:
    """What the engine wrote, without the questions."""
    events = (await client.call("GET", f"/v1/runs/{run}/trace"))["events"]
    return [event for event in events if not event["type"].startswith(("agent_question", "agent_permission"))]


async def ended(client: Client, run: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            found: dict[str, Any] = await client.call("GET", f"/v1/runs/{run}")
            if found["state"] in ("done", "failed", "cancelled", "parked"):
                return found
            await asyncio.sleep(0.05)


async def asked(client: Client, run: str) -> list[Ask]:
    """What waits for a person."""
    return [ask async for ask in client.asks(state="asked", run=run)]


async def waits_at(client: Client, run: str, step: str) -> bool:
    told = await client.call("GET", f"/v1/checkpoints?run={run}&state=open")
    return [checkpoint["step"] for checkpoint in told["checkpoints"]] == [step]


async def given(client: Client, run: str, step: str) -> None:
    await client.call("POST", f"/v1/checkpoints/{run}.{step}", body={"output": 7})


async def until(happened: Callable[[], Awaitable[Any]]) -> Any:
    """What it returns once that is something."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await happened()):
            await asyncio.sleep(0.01)
        return found


async def check(client: Client, run: str, person: Person) -> None:
    """That it ended as it should, did nothing again that was done, and put every question once."""
    found = await ended(client, run)
    told = [(event["type"], event.get("step_id")) for event in await trace(client, run)]
    assert (found["state"], found["error"], found["output"]) == ("done", None, EXPECTED), told
    for step in STEPS:
        assert told.count(("step_completed", step)) == 1, (step, told)
        assert ("step_started", step) not in told[told.index(("step_completed", step)) :], (step, told)
    assert told[-1] == ("run_completed", None)
    assert {title: person.answered[run, title] for title in ("Database", "Way")} == {"Database": 1, "Way": 1}, told


async def check_effects(client: Client, project: Path, runs: Iterable[str]) -> None:
    """That a step had an effect for each time that it was begun, at most, and no program is left."""
    begun: Counter[str] = Counter()
    for run in runs:
        begun.update(str(event["step_id"]) for event in await trace(client, run) if event["type"] == "step_started")
    effects = Counter((project / COUNTS).read_text().split())
    assert effects.keys() == set(STEPS) - {"review", "second"}
    assert all(effects[step] <= begun[step] for step in effects), (effects, begun)


def programs(project: Path) -> list[int]:
    file = project / PROGRAMS
    return [int(line) for line in file.read_text().split()] if file.exists() else []


async def says(worker: Child, words: str) -> bool:
    return words in worker.log.read_text()


async def gone(pids: Iterable[int]) -> None:
    async def are_gone() -> bool:
        return not any(is_running(pid) for pid in pids)

    await until(are_gone)


async def further(client: Client, runs: list[str], *, all_of_them: bool) -> None:
    """Once one of the runs, or each, has ended or got further: one that never does is parked, and rightly so."""

    async def done(run: str) -> int:
        types = [event["type"] for event in await trace(client, run)]
        return ENDED if "run_completed" in types else types.count("step_completed")

    before = {run: count for run in runs if (count := await done(run)) < ENDED}

    async def moved() -> bool:
        return (all if all_of_them else any)([await done(run) > count for run, count in before.items()])

    if before:
        await until(moved)


async def at_every_boundary(client: Client, run: str, kill: Callable[[], Awaitable[None]]) -> int:
    """Kill whenever a step began or ended for the first time, and at the rows of the run itself; how often."""
    seen: set[tuple[str, str | None]] = set()
    while True:
        told = {(event["type"], event.get("step_id")) for event in await trace(client, run)}
        if fresh := told - seen - {("run_completed", None)}:
            seen |= fresh
            await kill()
        elif ("run_completed", None) in told:
            return len(seen)
        await asyncio.sleep(0.002)


# One desk on SQLite -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def one_desk(folder: Path, nursery: Nursery) -> AsyncIterator[tuple[Child, Client]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    async with Child(nursery, folder / "home", "serve", "--port", port, ready="at your desk") as desk:
        token = (folder / "home" / "token").read_text().strip()
        settings = Settings(home=folder / "home", url=desk.said.split()[-1], token=token)
        async with Client(settings=settings) as client:
            yield desk, client


async def test_a_run_ends_the_same_with_the_desk_killed_at_every_boundary(
    tmp_path: Path, project: Path, nursery: Nursery
) -> None:
    async with one_desk(tmp_path, nursery) as (desk, client), a_person(client) as person:
        run = await started(client, project)

        async def kill() -> None:
            await desk.kill()
            await desk.start()

        assert await at_every_boundary(client, run, kill) >= 2 * len(STEPS)
        await check(client, run, person)
        await check_effects(client, project, [run])
    await gone(programs(project))


async def test_runs_end_the_same_with_the_desk_killed_at_random_moments(
    tmp_path: Path, project: Path, nursery: Nursery
) -> None:
    chance = random.Random(4263)
    async with one_desk(tmp_path, nursery) as (desk, client), a_person(client) as person:
        runs = [await started(client, project) for _ in range(RUNS)]
        for round in range(ROUNDS):
            await further(client, runs, all_of_them=round % 3 == 2)
            await asyncio.sleep(chance.random() * 0.2)  # any moment
            await desk.kill()
            await desk.start()
            if (await client.call("GET", f"/v1/runs/{runs[-1]}"))["state"] == "done":
                runs.append(await started(client, project))
        for run in runs:
            await check(client, run, person)
        await check_effects(client, project, runs)
    await gone(programs(project))


async def test_runs_that_sleep_survive_a_kill_and_go_on_when_they_are_given(
    tmp_path: Path, project: Path, nursery: Nursery
) -> None:
    async with one_desk(tmp_path, nursery) as (desk, client):
        runs = [await started(client, project, workflow="waits") for _ in range(RUNS)]
        for step in ("review", "second"):
            for run in runs:
                await until(lambda run=run, step=step: waits_at(client, run, step))  # type: ignore[misc]
            await desk.kill()
            await desk.start()
            listed = (await client.call("GET", "/v1/runs"))["runs"]
            assert {run["id"]: run["state"] for run in listed} == dict.fromkeys(runs, "waiting")
            for run in runs:
                await given(client, run, step)
        for run in runs:
            assert ((await ended(client, run))["state"], (await ended(client, run))["output"]) == ("done", 7)
            told = Counter((event["type"], event.get("step_id")) for event in await trace(client, run))
            assert set(told.values()) == {1}, told


# Two workers on PostgreSQL ----------------------------------------------------------------------------------------


class Crew:
    """A desk without a worker in this process, and two workers in processes of their own, on one database."""

    def __init__(self, client: Client, store: Store, workers: tuple[Child, Child]) -> None:
        self.client = client
        self.store = store
        self.workers = workers

    async def owner(self, run: str) -> Child | None:
        """Who has the run by the lease; maybe a dead one."""
        rows = await self.store.read(
            "select workers.name from runs join workers on workers.id = runs.owner where runs.id = ?", run
        )
        return next((each for each in self.workers if rows and each.said.endswith(rows[0][0])), None)

    async def sleeps(self, run: str) -> bool:
        rows = await self.store.read("select owner from runs where id = ? and asleep_until is not null", run)
        return rows == [(None,)]

    def other(self, worker: Child) -> Child:
        return self.workers[worker is self.workers[0]]

    async def owned(self, run: str, *, by: Child) -> None:
        async def is_theirs() -> bool:
            return await self.owner(run) is by

        await until(is_theirs)


@pytest.fixture
async def crew(tmp_path: Path, nursery: Nursery, new_database: Callable[[], str]) -> AsyncIterator[Crew]:
    database = new_database()
    async with AsyncExitStack() as stack:
        desk = await stack.enter_async_context(serving(tmp_path / "desk", database=database, has_worker=False))
        settings = Settings(home=tmp_path / "desk", url=desk.url, token=desk.token)
        client = await stack.enter_async_context(Client(settings=settings))
        both = [
            Child(nursery, tmp_path / name, "worker", ready="works as", HANDRAISE_DATABASE=database)
            for name in ("one", "two")
        ]
        for worker in both:
            await stack.enter_async_context(worker)
        yield Crew(client, desk.broker.store, (both[0], both[1]))


async def test_a_run_ends_the_same_with_its_worker_killed_at_every_boundary(crew: Crew, project: Path) -> None:
    client = crew.client
    chance = random.Random(7)
    async with a_person(client) as person:
        run = await started(client, project)

        async def kill() -> None:
            async def the_owner() -> Child | None:
                if (await client.call("GET", f"/v1/runs/{run}"))["state"] == "done":
                    return crew.workers[0]
                return await crew.owner(run)

            killed = await until(the_owner)
            await killed.kill()
            if chance.random() < 0.7:  # otherwise it is back before anybody notices
                with suppress(TimeoutError):
                    async with asyncio.timeout(3 * LEASE):
                        await crew.owned(run, by=crew.other(killed))
            await killed.start()

        assert await at_every_boundary(client, run, kill) >= 2 * len(STEPS)
        await check(client, run, person)
        await check_effects(client, project, [run])
    for worker in crew.workers:
        await worker.kill()
    await gone(programs(project))


async def test_runs_end_the_same_with_workers_killed_and_ended_at_random_moments(crew: Crew, project: Path) -> None:
    client = crew.client
    chance = random.Random(11)
    async with a_person(client) as person:
        runs = [await started(client, project) for _ in range(RUNS)]
        for round in range(ROUNDS):
            await further(client, runs, all_of_them=round % 3 == 2)
            await asyncio.sleep(chance.random() * 0.3)  # any moment
            worker = chance.choice(crew.workers)
            if chance.random() < 0.7:
                await worker.kill()
            else:
                await worker.end()
            await asyncio.sleep(chance.random() * 2 * LEASE)
            await worker.start()
            if (await client.call("GET", f"/v1/runs/{runs[-1]}"))["state"] == "done":
                runs.append(await started(client, project))
        for run in runs:
            await check(client, run, person)
        await check_effects(client, project, runs)
    for worker in crew.workers:
        await worker.kill()
    await gone(programs(project))


async def test_runs_that_sleep_are_nobodys_and_go_on_wherever_somebody_is(crew: Crew, project: Path) -> None:
    client = crew.client
    runs = [await started(client, project, workflow="waits") for _ in range(RUNS)]
    for run in runs:
        await until(lambda run=run: crew.sleeps(run))  # type: ignore[misc]
    for worker in crew.workers:
        await worker.kill()
    for run in runs:
        await given(client, run, "review")
    await crew.workers[1].start()
    for run in runs:
        await until(lambda run=run: waits_at(client, run, "second"))  # type: ignore[misc]
        await given(client, run, "second")
        assert (await ended(client, run))["output"] == 7
        told = Counter((event["type"], event.get("step_id")) for event in await trace(client, run))
        assert set(told.values()) == {1}, told


async def test_a_worker_that_was_stopped_for_longer_than_its_lease_writes_nothing_and_ends_its_agents(
    crew: Crew, project: Path
) -> None:
    client = crew.client
    async with a_person(client, leaves=["Database"]) as person:
        run = await started(client, project)

        [before] = await until(lambda: asked(client, run))
        owner = await crew.owner(run)
        assert owner is not None
        [program] = programs(project)
        owner.send(signal.SIGSTOP)
        try:
            await crew.owned(run, by=crew.other(owner))

            async def asked_again() -> list[Any]:
                return [ask for ask in await asked(client, run) if ask.id != before.id]

            [again] = await until(asked_again)
            assert (await client.get(before.id)).state == "withdrawn"
            events = await trace(client, run)
        finally:
            owner.send(signal.SIGCONT)
        await gone([program])
        await until(lambda: says(owner, "its runs and their agents were stopped"))
        assert await trace(client, run) == events, "it wrote something"
        assert [ask.id for ask in await asked(client, run)] == [again.id], "it asked something"
        await client.answer(again.id, Answer(answers=(("Postgres",),), by="ana"))
        person.answered[run, "Database"] += 1
        await check(client, run, person)
        await check_effects(client, project, [run])


# Handing over -----------------------------------------------------------------------------------------------------


async def test_what_was_answered_is_not_asked_again_elsewhere_but_a_permission_is(crew: Crew, project: Path) -> None:
    client = crew.client
    run = await started(client, project, workflow="both")

    [first] = await until(lambda: asked(client, run))
    await client.answer(first.id, Answer(answers=(("SQLite",),), by="ana"))
    [permission] = await until(lambda: asked(client, run))
    await client.answer(permission.id, Answer(reply="once", by="ana"))

    async def then() -> list[Any]:
        return [ask for ask in await asked(client, run) if ask.title == "Then"]

    [open_one] = await until(then)
    owner = await crew.owner(run)
    assert owner is not None
    await owner.end()
    assert "others go on with its runs" in owner.log.read_text()
    await crew.owned(run, by=crew.other(owner))

    async def permission_again() -> list[Any]:
        return [ask for ask in await asked(client, run) if ask.permission is not None]

    [again] = await until(permission_again)
    assert (await client.get(open_one.id)).state == "withdrawn"
    carried = [ask async for ask in client.asks(run=run) if ask.title == "First" and ask.id != first.id]
    assert [(ask.answer.value, ask.answer.by, ask.answer.why) for ask in carried if ask.answer is not None] == [
        ("SQLite", "policy:carried", ("ana answered this before",))
    ]
    await client.answer(again.id, Answer(reply="once", by="ana"))
    [last] = await until(then)
    await client.answer(last.id, Answer(answers=(("Postgres",),), by="ana"))
    assert (await ended(client, run))["output"] == "SQLite, once, Postgres"


async def test_a_worker_refuses_a_database_that_nobody_can_share(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handraise", "worker"),
        env={**os.environ, "HANDRAISE_HOME": str(tmp_path), "HANDRAISE_DATABASE": f"sqlite:///{tmp_path / 'desk.db'}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), START)
    assert process.returncode == 2
    assert said.decode().startswith(
        "handraise: a worker shares its database with desks, and a SQLite file has room for"
    )


# The database is away ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["gone", "silent"])
async def test_a_database_that_is_away_for_longer_than_the_lease_ends_the_agents_and_the_runs_go_on_later(
    tmp_path: Path, project: Path, nursery: Nursery, how: str
) -> None:
    with postgres_server() as server:
        database = server.address(schema="away")
        async with Child(nursery, tmp_path / "one", "worker", ready="works as", HANDRAISE_DATABASE=database) as worker:
            async with serving(tmp_path / "desk", database=database, has_worker=False) as desk:
                settings = Settings(home=tmp_path / "desk", url=desk.url, token=desk.token)
                async with Client(settings=settings) as client:
                    run = await started(client, project)
                    await until(lambda: asked(client, run))
            [program] = programs(project)
            with away(server, how):
                await gone([program])
                await until(lambda: says(worker, "its runs and their agents were stopped"))
            async with serving(tmp_path / "desk", database=database, has_worker=False) as desk:
                settings = Settings(home=tmp_path / "desk", url=desk.url, token=desk.token)
                async with Client(settings=settings) as client, a_person(client) as person:
                    await check(client, run, person)
                    starts = [event["step_id"] for event in await trace(client, run) if event["type"] == "step_started"]
                    assert Counter(starts) == Counter(STEPS), "its own agent went on, so that nothing began again"


@contextmanager
def away(server: PostgresServer, how: str) -> Iterator[None]:
    """A server that is down, or one that takes what it is told and says nothing."""
    if how == "gone":
        server.stop(mode="immediate")
        try:
            yield
        finally:
            server.start()
        return
    head = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    everybody = [head, *map(int, Path(f"/proc/{head}/task/{head}/children").read_text().split())]
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in everybody:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
