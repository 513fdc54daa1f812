"""`make bench-workflows`: what workflows cost, on SQLite and on PostgreSQL. Writes docs/workflow-performance.md.

Steps that do nothing, so that what is measured is the engine and the durable rows it writes: two a step. How that
changes with what the trace holds already; what a run costs that waits for a person, in memory and after a kill, and how
soon it goes on when it is given what it waits for; and how long after the death of a worker another one has its runs,
beside the lease.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from databases import Databases, DatabaseUnavailable, SqliteFiles, postgres
from handraise.app import agents_of, open_parts, open_store, open_worker
from handraise.broker import Broker
from handraise.config import Settings
from handraise.trust import Trust
from handraise.workflow.journal import Journal, NewRun
from handraise.workflow.loading import part_of
from processes import resident_megabytes
from servers import Server, desk

DOCS = Path(__file__).parent.parent / "docs"
PATIENCE = 300.0
AT_ONCE = 1000  # rows of a statement that fills the trace
AT_A_TIME = 8  # people who give at the same time
WORKFLOWS = """
import asyncio
from handraise.workflow import Workflow, checkpoint

def named(number):
    async def step() -> int:
        return 1
    step.__name__ = step.__qualname__ = f"s{number}"
    return step

many = Workflow("many", *(named(number) for number in range(STEPS)))
wait = Workflow("wait", checkpoint("review", output=int))

async def hold() -> None:
    await asyncio.Event().wait()

held = Workflow("held", hold)
"""


@dataclass(frozen=True)
class Plan:
    """How much of everything."""

    steps: int = 500
    together: int = 20  # runs at the same time
    rows: tuple[int, ...] = (10, 1_000, 100_000)  # in the trace before
    given: int = 50  # runs, one after the other
    waiting: int = 1000
    leases: tuple[float, ...] = (2.0, 5.0, 15.0)
    rounds: int = 3


QUICK = Plan(steps=50, together=5, rows=(10, 1000), given=5, waiting=20, leases=(1.0,), rounds=1)


@dataclass
class Figures:
    """Of one database."""

    alone: float = 0.0  # steps/s of one run
    together: float = 0.0  # of several
    cost: dict[int, float] = field(default_factory=dict)  # milliseconds a step, by rows
    given: float = 0.0  # milliseconds from giving what a run waits for until it has ended
    each: float = 0.0  # kB of a run that waits
    back: float = 0.0  # seconds from the kill until all runs are told to wait again
    bare: float = 0.0  # the same with no run at all
    on: float = 0.0  # seconds from the first being given what it waits for until all of them have ended
    takeover: dict[float, list[float]] = field(default_factory=dict)  # seconds, by lease


@asynccontextmanager
async def working(folder: Path, database: str) -> AsyncIterator[tuple[Broker, Journal]]:
    """A broker, worker and engine in this process, without HTTP."""
    settings = Settings(home=folder / "home", database=database)
    async with open_parts(settings) as (broker, _), open_worker(settings, broker, agents=agents_of(settings)):
        yield broker, Journal(broker.store)


def written(folder: Path, *, steps: int) -> Path:
    file = folder / "project" / ".handraise" / "workflows" / "bench.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(WORKFLOWS.replace("STEPS", str(steps)))
    for home in ("home", "desk/home", "bare/home", "one/home", "two/home"):  # of whoever runs it
        Trust(folder / home / "trusted.json").add([part_of(file)])
    return file


async def seconds_of(journal: Journal, file: Path, *, runs: int) -> float:
    """From the first being started until the last has ended."""
    begin = perf_counter()
    wanted = NewRun(workflow="many", file=str(file), cwd=str(file.parent), input={})
    open_runs = {(await journal.create(wanted, by="bench", at=1)).id for _ in range(runs)}
    async with asyncio.timeout(PATIENCE), journal.changes() as changed:
        while open_runs:
            changed.clear()
            run = next(iter(open_runs))  # one is enough to wait for
            record = await journal.get(run)
            if record.state == "open":
                await changed.wait()
                continue
            assert record.state == "done", record.error
            open_runs.discard(run)
    return perf_counter() - begin


async def fill(broker: Broker, rows: int) -> None:
    """Rows of a run that ended long ago."""
    data = json.dumps({"attempt": 1, "output": 1})
    for first in range(0, rows, AT_ONCE):
        numbers = range(first, min(rows, first + AT_ONCE))
        values = ", ".join(
            f"('run_0-{number:09d}', 'run_0', 'step_completed', 's{number}', 1, '{data}')" for number in numbers
        )
        await broker.store.write(f"insert into trace (id, run, type, step, at, data) values {values}")


def measure_steps(databases: Databases, folder: Path, plan: Plan, figures: Figures) -> None:
    for rows in plan.rows:
        with databases.fresh(folder) as database:
            asyncio.run(_steps(folder, database, rows, plan, figures))
        _forget(folder)


async def _steps(folder: Path, database: str, rows: int, plan: Plan, figures: Figures) -> None:
    file = written(folder, steps=plan.steps)
    async with working(folder, database) as (broker, journal):
        await fill(broker, rows)
        rates = [plan.steps / await seconds_of(journal, file, runs=1) for _ in range(plan.rounds)]
        figures.cost[rows] = 1000 / statistics.median(rates)
        if rows == plan.rows[0]:
            figures.alone = statistics.median(rates)
            several = [await seconds_of(journal, file, runs=plan.together) for _ in range(plan.rounds)]
            figures.together = plan.steps * plan.together / statistics.median(several)


def measure_given(databases: Databases, folder: Path, plan: Plan, figures: Figures) -> None:
    with databases.fresh(folder) as database:
        asyncio.run(_given(folder, database, plan, figures))
    _forget(folder)


async def _given(folder: Path, database: str, plan: Plan, figures: Figures) -> None:
    """One run after the other, each of them asleep when it is given what it waits for."""
    file = written(folder, steps=1)
    taken = []
    async with working(folder, database) as (broker, journal), journal.changes() as changed:
        for _ in range(plan.given):
            wanted = NewRun(workflow="wait", file=str(file), cwd=str(file.parent), input={})
            run = (await journal.create(wanted, by="bench", at=1)).id
            async with asyncio.timeout(PATIENCE):
                while not await broker.store.read("select 1 from runs where id = ? and asleep_until is not null", run):
                    await asyncio.sleep(0.005)  # nobody is told of that
                begin = perf_counter()
                await journal.give(f"{run}.review", 1, by="bench", via="bench", at=1)
                while (await journal.get(run)).state == "open":
                    changed.clear()
                    await changed.wait()
            taken.append(perf_counter() - begin)
    figures.given = statistics.median(taken) * 1000


def _forget(folder: Path) -> None:
    for file in folder.glob("desk.db*"):
        file.unlink()


def call(server: Server, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def until_waiting(server: Server, run: str) -> None:
    told = call(server, f"/v1/runs/{run}?wait=30")
    assert told["state"] == "waiting", told


def waiting(server: Server) -> int:
    """How many of the newest runs wait for a person; the desk tells at most a thousand."""
    return sum(told["state"] == "waiting" for told in call(server, "/v1/runs?limit=1000")["runs"])


def until_all_wait(server: Server, plan: Plan) -> None:
    while waiting(server) < plan.waiting:
        sleep(0.01)


def gone_on(server: Server, runs: list[str]) -> None:
    """Somebody decides, and they end."""
    with ThreadPoolExecutor(AT_A_TIME) as people:
        list(people.map(lambda run: call(server, f"/v1/checkpoints/{run}.review", {"output": 1}), runs))
    for run in runs:
        while (told := call(server, f"/v1/runs/{run}?wait=30"))["state"] != "done":
            assert told["state"] in ("running", "waiting"), told


def measure_waiting(databases: Databases, folder: Path, plan: Plan, figures: Figures) -> None:
    file = written(folder, steps=1)
    with databases.fresh(folder) as database:
        with desk(folder / "desk", database=database) as server:
            wanted = {"workflow": "wait", "cwd": str(file.parents[2])}
            for _ in range(10):  # what is loaded with the first ones is not theirs
                until_waiting(server, call(server, "/v1/runs", wanted)["id"])
            before = resident_megabytes([server.pid])
            runs = [call(server, "/v1/runs", wanted)["id"] for _ in range(plan.waiting)]
            until_waiting(server, runs[-1])
            figures.each = (resident_megabytes([server.pid]) - before) * 1000 / plan.waiting
            until_all_wait(server, plan)
            server.kill()
        begin = perf_counter()
        with desk(folder / "desk", database=database, port=server.port) as again:
            until_all_wait(again, plan)
            figures.back = perf_counter() - begin
            begin = perf_counter()
            gone_on(again, runs)
            figures.on = perf_counter() - begin
    _forget(folder)
    with databases.fresh(folder) as database:
        with desk(folder / "bare", database=database) as server:
            server.kill()
        begin = perf_counter()
        with desk(folder / "bare", database=database) as server:
            assert waiting(server) == 0
            figures.bare = perf_counter() - begin
    _forget(folder)


@contextmanager
def a_worker(folder: Path, *, database: str, lease: float) -> Iterator[subprocess.Popen[str]]:
    config = folder / "config" / "handraise"
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.toml").write_text(f"[desk]\nlease = {lease}\n")
    environ = {
        "HANDRAISE_HOME": str(folder / "home"),
        "HANDRAISE_DATABASE": database,
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "handraise", "worker"],
        env=os.environ | environ,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "works as" in process.stdout.readline(), "the worker did not start"
        yield process
    finally:
        process.kill()
        process.communicate()


async def seconds_until_taken_over(folder: Path, *, database: str, lease: float) -> float:
    """From the kill of the only worker that has the run until the other one has it."""
    file = written(folder, steps=1)
    store = await open_store(database)
    try:
        journal = Journal(store)
        with a_worker(folder / "one", database=database, lease=lease) as one:
            wanted = NewRun(workflow="held", file=str(file), cwd=str(file.parent), input={})
            run = (await journal.create(wanted, by="bench", at=1)).id

            async def owner() -> str | None:
                rows = await store.read(
                    "select runs.owner from runs join workers on workers.id = runs.owner where runs.id = ?", run
                )
                return rows[0][0] if rows else None

            async with asyncio.timeout(PATIENCE):
                while (first := await owner()) is None:
                    await asyncio.sleep(0.01)
                with a_worker(folder / "two", database=database, lease=lease):
                    one.send_signal(signal.SIGKILL)
                    begin = perf_counter()
                    while await owner() in (None, first):
                        await asyncio.sleep(0.005)
                    return perf_counter() - begin
    finally:
        await store.close()


def measure_takeover(databases: Databases, folder: Path, plan: Plan, figures: Figures) -> None:
    for lease in plan.leases:
        for number in range(plan.rounds):
            place = folder / f"takeover-{lease:g}-{number}"
            for name in ("one", "two"):
                (place / name).mkdir(parents=True)
            with databases.fresh(folder) as database:
                taken = asyncio.run(seconds_until_taken_over(place, database=database, lease=lease))
            figures.takeover.setdefault(lease, []).append(taken)


def report(results: dict[str, Figures], plan: Plan) -> str:
    lines = [
        "# What workflows cost",
        "",
        "Written by `make bench-workflows`: steps that do nothing, so that the figures are those of the engine and of",
        f"the two rows that are durable before a step goes on. Medians of {plan.rounds}.",
        "",
        "| | " + " | ".join(results) + " |",
        "| --- |" + " --- |" * len(results),
    ]

    def row(what: str, shown: list[str]) -> None:
        lines.append(f"| {what} | " + " | ".join(shown) + " |")

    every = list(results.values())
    row("steps/s, one run", [f"{each.alone:,.0f}" for each in every])
    row(f"steps/s, {plan.together} runs at once", [f"{each.together:,.0f}" for each in every])
    for rows in plan.rows:
        row(f"a step with {rows:,} rows in the trace", [f"{each.cost[rows]:.2f} ms" for each in every])
    row("a checkpoint given until its run, which was asleep, has ended", [f"{each.given:.1f} ms" for each in every])
    row(f"memory of a run that waits, of {plan.waiting:,}", [f"{each.each:.1f} kB" for each in every])
    row(f"kill -9 until all {plan.waiting:,} are told to wait", [f"{each.back:.2f} s" for each in every])
    row("the same with no run at all", [f"{each.bare:.2f} s" for each in every])
    shown = [f"{each.on:.1f} s" for each in every]
    row(f"all {plan.waiting:,} given, by {AT_A_TIME} at a time, until all have ended", shown)
    for lease in plan.leases:
        taken = [each.takeover.get(lease) for each in every]
        shown = ["–" if each is None else f"{statistics.median(each):.1f} s" for each in taken]
        row(f"taken over after kill -9, lease {lease:g} s", shown)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="each part in miniature; writes nothing")
    parser.add_argument("--stores", default="sqlite,postgres", help="which databases, with commas between")
    chosen = parser.parse_args()
    plan = QUICK if chosen.quick else Plan()
    results: dict[str, Figures] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hr-bench-")))
        folder.chmod(0o755)
        stores: dict[str, Databases] = {}
        if "sqlite" in chosen.stores:
            stores["SQLite"] = SqliteFiles(folder)
        if "postgres" in chosen.stores:
            try:
                stores["PostgreSQL"] = stack.enter_context(postgres(beside=folder))
            except DatabaseUnavailable as problem:
                sys.exit(str(problem))
        for name, databases in stores.items():
            figures = results[name] = Figures()
            place = folder / name
            place.mkdir()
            print(f"{name}: steps", file=sys.stderr)
            measure_steps(databases, place, plan, figures)
            print(f"{name}: runs that wait", file=sys.stderr)
            measure_given(databases, place, plan, figures)
            measure_waiting(databases, place, plan, figures)
            if name == "PostgreSQL":
                print(f"{name}: taking over", file=sys.stderr)
                measure_takeover(databases, place, plan, figures)
    text = report(results, plan)
    print(text)
    if not chosen.quick and len(results) == 2:
        (DOCS / "workflow-performance.md").write_text(text)


if __name__ == "__main__":
    main()
