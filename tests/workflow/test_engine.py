"""Runs of workflows: on every store, with the scripted agent and a scripted person; cut off anywhere, they go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from handraise.agents.scripted import Scripted
from handraise.asks import Option, Question
from handraise.errors import OutputDoesNotFit, RunEnded
from handraise.testing import ScriptedPerson
from handraise.workflow.engine import BATCH
from handraise.workflow.journal import Journal, NewRun, RunRecord
from tests.helpers.serving import Served, serving
from tests.helpers.trusting import trust_project

PATIENCE = 20.0

FEATURE = """
from pathlib import Path
from pydantic import BaseModel
from handraise.workflow import Workflow, agent, checkpoint, parallel, shell

class Goal(BaseModel):
    goal: str

class Plan(BaseModel):
    steps: list[str]

class Review(BaseModel):
    approved: bool
    note: str = ""

def summary(input: Goal, plan: Plan, review: Review, test) -> dict[str, str]:
    with Path("COUNTS").open("a") as file:
        file.write("summary\\n")
    return {"goal": input.goal, "steps": ",".join(plan.steps), "note": review.note, "test": test.output.strip()}

feature = Workflow(
    "feature",
    agent("explore", "explore {input.goal}", agent="scripted", question_policy="accept-first"),
    agent("plan", "plan {explore}", agent="scripted", output=Plan, question_policy="forward"),
    checkpoint("review", input="Do this? {plan.steps[0]}", output=Review),
    parallel(
        agent("left", "left {plan}", agent="scripted"),
        [agent("right", "right {review.note}", agent="scripted"), shell("after", "echo {right}", if_cut="rerun")],
    ),
    shell("test", "echo tested >> COUNTS; echo fine", if_cut="rerun"),
    summary,
    input=Goal,
)
"""


def script() -> Scripted:
    options = (Option("SQLite"), Option("Postgres"))
    return (
        Scripted()
        .on_question("^explore", Question("Where?", options, header="Place"))
        .on("^explore", lambda answers: f"explored {answers[0].value}")
        .on_question("^plan", Question("Which database?", options, header="Database"))
        .on("^plan", lambda answers: json.dumps({"steps": [f"use {answers[0].value}"]}))
        .on("^left", "left is done")
        .on("^right", "right is done")
    )


def written(folder: Path, text: str = FEATURE, *, name: str = "feature") -> Path:
    file = folder / ".handraise" / "workflows" / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.replace('Path("COUNTS")', f"Path({str(folder / 'COUNTS')!r})"))
    trust_project(folder, home=folder.parent / "home")
    return file


@asynccontextmanager
async def a_desk(
    home: Path, database: str, agent: Scripted, person: ScriptedPerson | None = None
) -> AsyncIterator[Served]:
    async with serving(home, database=database, staff=[agent]) as desk:
        if person is None:
            yield desk
            return
        answering = asyncio.create_task(person.run(desk.broker))
        try:
            yield desk
        finally:
            answering.cancel()
            await asyncio.wait([answering])


async def started(desk: Served, file: Path, *, workflow: str = "feature", **input: Any) -> RunRecord:
    journal = Journal(desk.broker.store)
    wanted = NewRun(workflow=workflow, file=str(file), cwd=str(file.parents[2]), input=input)
    return await journal.create(wanted, by="ana", at=desk.broker.clock.now())


async def until(desk: Served, run: str, ready: Callable[[RunRecord], bool]) -> RunRecord:
    journal = Journal(desk.broker.store)
    async with asyncio.timeout(PATIENCE), journal.changes() as changed:
        while True:
            changed.clear()
            record = await journal.get(run)
            if ready(record):
                return record
            try:
                async with asyncio.timeout(0.2):
                    await changed.wait()
            except TimeoutError:
                continue


def has_ended(record: RunRecord) -> bool:
    return record.state != "open"


async def given(desk: Served, run: str, output: Any) -> None:
    await until(desk, run, lambda record: record.open_checkpoints == 1)
    await Journal(desk.broker.store).give(f"{run}.review", output, by="ana", via="test", at=desk.broker.clock.now())


async def types(desk: Served, run: str) -> list[str]:
    return [f"{event.type} {event.step or ''}".strip() for event in await Journal(desk.broker.store).trace(run)]


async def test_a_run_goes_through_agents_people_commands_and_functions(tmp_path: Path, database: str) -> None:
    file, agent = written(tmp_path / "shop"), script()
    person = ScriptedPerson(by="ana").on("Which database", [["Postgres"]])
    async with a_desk(tmp_path / "home", database, agent, person) as desk:
        run = await started(desk, file, goal="a shop")
        await given(desk, run.id, {"approved": True, "note": "go on"})
        ended = await until(desk, run.id, has_ended)
        assert (ended.state, ended.error) == ("done", None)
        assert ended.output == {"goal": "a shop", "steps": "use Postgres", "note": "go on", "test": "fine"}
        told = await types(desk, run.id)
    assert told[:3] == ["run_started", "step_started explore", "step_completed explore"]
    assert told[-1] == "run_completed"
    assert [prompted.text.split()[0] for prompted in agent.prompted][:2] == ["explore", "plan"]
    assert (tmp_path / "shop" / "COUNTS").read_text().splitlines() == ["tested", "summary"]


async def test_what_does_not_fit_a_checkpoint_is_said_and_it_stays_open(tmp_path: Path) -> None:
    file = written(
        tmp_path / "shop", 'from handraise.workflow import *\nw = Workflow("one", checkpoint("review", output=int))'
    )
    async with a_desk(tmp_path / "home", "sqlite:///:memory:", script()) as desk:
        run = await started(desk, file, workflow="one")
        journal = Journal(desk.broker.store)
        with pytest.raises(OutputDoesNotFit, match='"many" is not of type "integer"'):
            await given(desk, run.id, "many")
        await given(desk, run.id, 3)
        assert (await until(desk, run.id, has_ended)).output == 3
        await journal.give(f"{run.id}.review", 3, by="bea", via="test", at=1)
        with pytest.raises(RunEnded, match="ana gave something else first"):
            await journal.give(f"{run.id}.review", 4, by="bea", via="test", at=1)


async def test_a_run_goes_on_where_the_desk_was_stopped(tmp_path: Path, lasting_database: str) -> None:
    file, agent = written(tmp_path / "shop"), script()
    async with a_desk(tmp_path / "home", lasting_database, agent) as desk:
        run = await started(desk, file, goal="a shop")
        await until(desk, run.id, lambda record: record.open_asks == 1)
    person = ScriptedPerson(by="ana").on("Which database", [["Postgres"]])
    async with a_desk(tmp_path / "home", lasting_database, agent, person) as desk:
        await until(desk, run.id, lambda record: record.open_checkpoints == 1)
    async with a_desk(tmp_path / "home", lasting_database, agent, person) as desk:
        await given(desk, run.id, {"approved": True})
        ended = await until(desk, run.id, has_ended)
        assert (ended.state, ended.error) == ("done", None)
        told = await types(desk, run.id)
    assert told.count("step_completed explore") == told.count("step_completed plan") == 1
    assert [each.text.split()[0] for each in agent.prompted].count("explore") == 1
    assert len([ask for ask in person.seen if ask.title == "Database"]) == 1
    assert (tmp_path / "shop" / "COUNTS").read_text().splitlines() == ["tested", "summary"]


async def test_an_answer_that_does_not_fit_is_sent_back_a_few_times(tmp_path: Path) -> None:
    text = """
from pydantic import BaseModel
from handraise.workflow import *
class Plan(BaseModel):
    steps: list[str]
w = Workflow("one", agent("plan", "plan it", agent="scripted", output=Plan, repairs=1))
"""
    file = written(tmp_path / "shop", text)
    good = Scripted().on("does not fit", '```json\n{"steps": ["a"]}\n```').on("plan it", "I think: no")
    async with a_desk(tmp_path / "home", "sqlite:///:memory:", good) as desk:
        run = await started(desk, file, workflow="one")
        assert (await until(desk, run.id, has_ended)).output == {"steps": ["a"]}
    bad = Scripted().on("", '{"steps": 3}')
    async with a_desk(tmp_path / "home", "sqlite:///:memory:", bad) as desk:
        run = await started(desk, file, workflow="one")
        ended = await until(desk, run.id, has_ended)
        assert ended.state == "failed"
        assert ended.error == "plan: its answer does not fit: steps: Input should be a valid array"
    assert len(bad.prompted) == 2


async def test_a_step_that_fails_is_tried_again_and_then_fails_the_run(tmp_path: Path) -> None:
    text = """
from handraise.workflow import *
flaky = shell("flaky", "echo x >> TRIES; test $(wc -l < TRIES) -ge 3", retries=2, backoff=0.01)
w = Workflow("one", flaky, shell("no", "exit 3"))
"""
    file = written(tmp_path / "shop", text)
    async with a_desk(tmp_path / "home", "sqlite:///:memory:", script()) as desk:
        run = await started(desk, file, workflow="one")
        ended = await until(desk, run.id, has_ended)
        assert (ended.state, ended.error) == ("failed", "no: it ended with 3")
        told = await types(desk, run.id)
    assert told.count("step_failed flaky") == 2
    assert told[-2:] == ["step_failed no", "run_failed"]


async def test_a_run_is_cancelled_and_its_asks_are_withdrawn(tmp_path: Path) -> None:
    file = written(tmp_path / "shop")
    async with a_desk(tmp_path / "home", "sqlite:///:memory:", script()) as desk:
        run = await started(desk, file, goal="x")
        await until(desk, run.id, lambda record: record.open_asks == 1)
        await Journal(desk.broker.store).cancel(run.id, at=desk.broker.clock.now())
        ended = await until(desk, run.id, lambda record: has_ended(record) and not record.open_asks)
        assert ended.state == "cancelled"


async def test_a_journal_that_does_not_fit_the_file_any_more_is_refused_with_the_difference(tmp_path: Path) -> None:
    file = written(tmp_path / "shop")
    database = f"sqlite:///{tmp_path / 'desk.db'}"
    async with a_desk(tmp_path / "home", database, script()) as desk:
        run = await started(desk, file, goal="x")
        await until(desk, run.id, lambda record: record.open_asks == 1)
    written(tmp_path / "shop", FEATURE.replace('"explore"', '"look"').replace("{explore}", "{look}"))
    async with a_desk(tmp_path / "home", database, script()) as desk:
        ended = await until(desk, run.id, has_ended)
        assert ended.state == "parked"
        assert ended.error is not None
        assert ended.error.startswith("step 'explore' was run, and the file has no such step any more")


async def test_more_runs_than_are_taken_at_a_time_are_all_begun(tmp_path: Path) -> None:
    file = written(tmp_path / "shop", 'from handraise.workflow import *\nw = Workflow("one", checkpoint("review"))')
    async with a_desk(tmp_path / "home", "sqlite:///:memory:", script()) as desk:
        runs = [await started(desk, file, workflow="one") for _ in range(BATCH + 10)]
        for run in runs:
            await until(desk, run.id, lambda record: record.open_checkpoints == 1)


BESIDE = """
from handraise.workflow import *
first = shell("first", "echo {input.goal}")
feature = Workflow("feature", first, parallel(shell("a", "true"), [shell("b", "true"), shell("c", "true")]))
"""


async def test_the_trace_says_what_stands_after_what_and_when_the_file_has_other_steps(tmp_path: Path) -> None:
    file = written(tmp_path / "shop", BESIDE)
    async with a_desk(tmp_path / "home", "sqlite:///:memory:", script()) as desk:
        journal = Journal(desk.broker.store)
        run = await started(desk, file, goal="it's a shop")
        await until(desk, run.id, has_ended)
        for more in ("", ', shell("last", "true")'):
            written(tmp_path / "shop", BESIDE.replace("]))", f"]){more})"))
            await journal.reopen(run.id, step="c", by="ana", at=desk.broker.clock.now())
            await until(desk, run.id, has_ended)
        trace = await journal.trace(run.id)
    (begun, outline), (changed, then) = [(event.type, event.data["steps"]) for event in trace if "steps" in event.data]
    first, beside = outline
    assert (begun, changed) == ("run_started", "steps_changed")
    assert first == {"id": "first", "kind": "shell"}
    assert [[step["id"] for step in branch] for branch in beside["branches"]] == [["a"], ["b", "c"]]
    assert then == [first, beside, {"id": "last", "kind": "shell"}]
    commands = {event.step: event.data["command"] for event in trace if event.type == "step_started"}
    assert commands["first"] == """echo 'it'"'"'s a shop'"""


async def test_a_place_that_cannot_be_filled_fails_its_step(tmp_path: Path) -> None:
    for step in ('shell("say", "echo {input.goal}")', 'checkpoint("say", input="{input.goal}")'):
        text = f'from handraise.workflow import *\nfeature = Workflow("feature", {step})'
        async with a_desk(tmp_path / "home", "sqlite:///:memory:", script()) as desk:
            run = await started(desk, written(tmp_path / "shop", text), other="x")
            ended = await until(desk, run.id, has_ended)
            assert (ended.state, ended.error) == ("failed", "say: {input.goal}: there is no 'goal' in what came before")
            assert (await types(desk, run.id))[1:3] == ["step_started say", "step_failed say"]
