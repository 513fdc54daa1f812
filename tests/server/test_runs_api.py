"""Runs over HTTP: starting, following, giving what a checkpoint wants, cancelling, retrying; on every store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from handraise import errors
from handraise.agents.scripted import Scripted
from handraise.app import authors_of
from handraise.asks import Option, Question
from handraise.client import Client
from handraise.server.routes import runs as server_runs
from handraise.workflow.journal import Journal, RunRecord
from tests.helpers.serving import Served, a_client, eventually, path_of, refused, serving, told
from tests.helpers.trusting import trust_project

Json = dict[str, Any]

PATIENCE = 20.0

SHOP = """
from typing import Annotated
from pydantic import AfterValidator, BaseModel
from handraise.workflow import Workflow, agent, checkpoint, shell

class Goal(BaseModel):
    goal: str
    days: int = 1

def even(number: int) -> int:
    if number % 2:
        raise ValueError("it is odd")
    return number

class Review(BaseModel):
    approved: bool
    seats: Annotated[int, AfterValidator(even)] = 0

shop = Workflow(
    "shop",
    agent("plan", "plan {input.goal}", agent="scripted", question_policy="forward"),
    checkpoint("review", input="Do this? {plan}", output=Review),
    shell("test", "echo x >> TRIES; test -e GOOD"),
    input=Goal,
    description="Builds a shop",
)
"""
ONE = 'from handraise.workflow import *\none = Workflow("one", shell("only", "echo hi"))\n'
ALONE = (
    'from handraise.workflow import *\nw = Workflow("alone", checkpoint("review", output=int), shell("end", "true"))\n'
)


def script() -> Scripted:
    options = (Option("SQLite", description="one file"), Option("Postgres"))
    return (
        Scripted()
        .on_question("^plan", Question("Which database?", options, header="Database"))
        .on("^plan", lambda answers: f"use {answers[0].value}")
    )


def project(folder: Path, **files: str) -> str:
    """Workflows in a folder, which the desk beside it trusts."""
    place = folder / ".handraise" / "workflows"
    place.mkdir(parents=True, exist_ok=True)
    for name, text in (files or {"shop": SHOP, "one": ONE, "alone": ALONE}).items():
        (place / f"{name}.py").write_text(text)
    trust_project(folder, home=folder.parent / "home")
    return str(folder)


def rewrite(desk: Served, file: str, text: str) -> None:
    """As its author would, who trusts it again."""
    Path(file).write_text(text)
    trust_project(Path(file).parent, home=desk.settings.home)


@pytest.fixture
def cwd(tmp_path: Path) -> str:
    return project(tmp_path / "project")


@asynccontextmanager
async def a_desk(home: Path, **changes: Any) -> AsyncIterator[Served]:
    async with serving(home, staff=[script()], **changes) as desk:
        yield desk


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with a_desk(tmp_path / "home", database=database) as desk:
        yield desk


@pytest.fixture
async def quick(tmp_path: Path) -> AsyncIterator[Served]:
    """For what has nothing to do with the database."""
    async with a_desk(tmp_path / "home", database="sqlite:///:memory:") as desk:
        yield desk


async def start(desk: Served, cwd: str, workflow: str = "shop", **input: Any) -> Json:
    body = {"workflow": workflow, "cwd": cwd, "input": input or {"goal": "a shop"}}
    return await told(desk.http.post("/v1/runs", json=body), 201)


async def until(desk: Served, run: str, *states: str) -> Json:
    """The run once it is in one of these states."""
    after = ""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await told(desk.http.get(f"/v1/runs/{run}"), 200)
            if found["state"] in states:
                return found
            page = await told(desk.http.get(f"/v1/runs/{run}/trace?after={after}&wait=5"), 200)
            after = page["next"]
            assert page["events"] or page["state"] in (*states, "running", "waiting"), found


async def the_ask(desk: Served, run: str) -> Json:
    await until(desk, run, "waiting")
    (ask,) = (await told(desk.http.get(f"/v1/asks?run={run}&state=asked"), 200))["asks"]
    found: Json = ask
    return found


async def the_checkpoint(desk: Served, run: str) -> Json:
    async with asyncio.timeout(PATIENCE):
        after = ""
        while True:  # the trace says when it is there
            page = await told(desk.http.get(f"/v1/runs/{run}/trace?after={after}&wait=5"), 200)
            after = page["next"]
            found = (await told(desk.http.get(f"/v1/checkpoints?run={run}&state=open"), 200))["checkpoints"]
            if found:
                checkpoint: Json = found[0]
                return checkpoint
            assert page["state"] in ("running", "waiting"), page


async def give(desk: Served, id: str, output: Any, status: int = 200, **more: Any) -> Json:
    return await told(desk.http.post(f"/v1/checkpoints/{id}", json={"output": output, **more}), status)


async def trace_of(http: httpx2.AsyncClient, run: str) -> list[Json]:
    events: list[Json] = []
    after = ""
    for _ in range(100):
        page = await told(http.get(f"/v1/runs/{run}/trace?after={after}"), 200)
        if not page["events"]:
            return events
        events += page["events"]
        after = page["next"]
    raise AssertionError("the trace does not end")


def types(events: list[Json]) -> list[str]:
    return [f"{event['type']} {event.get('step_id') or ''}".strip() for event in events]


async def test_a_run_is_started_answered_given_and_done(desk: Served, cwd: str) -> None:
    (Path(cwd) / "GOOD").touch()
    run = await start(desk, cwd)
    assert (run["workflow"], run["input"], run["created_by"]) == ("shop", {"goal": "a shop"}, desk.admin)
    ask = await the_ask(desk, run["id"])
    await desk.answer(ask["id"], "Postgres")
    checkpoint = await the_checkpoint(desk, run["id"])
    assert (checkpoint["step"], checkpoint["input"], checkpoint["state"]) == ("review", "Do this? use Postgres", "open")
    assert await told(desk.http.get(f"/v1/checkpoints/{checkpoint['id']}"), 200) == checkpoint
    given = await give(desk, checkpoint["id"], {"approved": True}, by="bea", via="web")
    assert (given["state"], given["by"], given["via"]) == ("given", "bea", "web")
    ended = await until(desk, run["id"], "done", "failed")
    assert (ended["state"], ended["output"]["code"], ended["error"]) == ("done", 0, None)
    [listed] = (await told(desk.http.get("/v1/runs"), 200))["runs"]
    assert run.keys() - listed.keys() == {"input", "output"}, "which may be large"
    assert {**run, **listed} == {**listed, "input": run["input"], "output": run["output"]}
    events = await trace_of(desk.http, run["id"])
    assert types(events) == [
        "run_started",
        "step_started plan",
        "session_started plan",
        "agent_question_asked plan",
        "agent_question_answered plan",
        "step_completed plan",
        "step_started review",
        "checkpoint_waiting review",
        "checkpoint_given review",
        "step_completed review",
        "step_started test",
        "step_completed test",
        "run_completed",
    ]
    assert len({event["id"] for event in events}) == len(events)
    asked, answered = events[3], events[4]
    session = events[2]["session_id"]
    assert asked["question"] == {
        "id": ask["id"],
        "session_id": session,
        "step_id": "plan",
        "questions": [
            {
                "question": "Which database?",
                "header": "Database",
                "options": [
                    {"label": "SQLite", "description": "one file"},
                    {"label": "Postgres", "description": ""},
                ],
                "multiple": False,
                "custom": True,
            }
        ],
        "asked_at": ask["asked_at"],
    }
    assert (asked["session_id"], answered["session_id"]) == (session, session)
    assert (answered["question_id"], answered["answers"], answered["by"]) == (ask["id"], [["Postgres"]], desk.admin)


async def test_a_trace_is_the_same_however_it_is_read(quick: Served, cwd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (Path(cwd) / "GOOD").touch()
    run = await start(quick, cwd)
    await quick.answer((await the_ask(quick, run["id"]))["id"], "SQLite")
    await give(quick, (await the_checkpoint(quick, run["id"]))["id"], {"approved": True})
    await until(quick, run["id"], "done")
    whole = await trace_of(quick.http, run["id"])
    monkeypatch.setattr(server_runs, "MOST_TRACED", 2)
    assert await trace_of(quick.http, run["id"]) == whole


async def test_whoever_waits_hears_of_it_at_once(desk: Served, cwd: str) -> None:
    run = await start(desk, cwd)
    ask = await the_ask(desk, run["id"])
    seen = await trace_of(desk.http, run["id"])
    assert types(seen)[-1] == "agent_question_asked plan"
    page = await told(desk.http.get(f"/v1/runs/{run['id']}/trace"), 200)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        more = tasks.create_task(desk.http.get(f"/v1/runs/{run['id']}/trace?after={page['next']}&wait=30"))
        await desk.answer(ask["id"], "SQLite")
    assert types(more.result().json()["events"])[0] == "agent_question_answered plan"
    checkpoint = await the_checkpoint(desk, run["id"])
    assert (await told(desk.http.get(f"/v1/runs/{run['id']}?wait=30"), 200))["state"] == "waiting"
    last = (await told(desk.http.get(f"/v1/runs/{run['id']}/trace"), 200))["next"]
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
        more = tasks.create_task(desk.http.get(f"/v1/runs/{run['id']}/trace?after={last}&wait=30"))
        await give(desk, checkpoint["id"], {"approved": False})
    assert more.result().json()["events"]
    assert (await until(desk, run["id"], "done", "failed"))["state"] == "failed"
    last = (await told(desk.http.get(f"/v1/runs/{run['id']}/trace"), 200))["next"]
    async with asyncio.timeout(PATIENCE):  # nothing more will come, so nobody is kept waiting
        nothing = await told(desk.http.get(f"/v1/runs/{run['id']}/trace?after={last}&wait=300"), 200)
    assert (nothing["events"], nothing["next"], nothing["state"]) == ([], last, "failed")


async def test_whoever_waits_hears_of_asks_where_the_run_itself_says_nothing(
    tmp_path: Path, database: str, cwd: str
) -> None:
    async with a_desk(tmp_path / "home", database=database, has_worker=False) as desk:
        run = await start(desk, cwd)
        path, origin = f"/v1/runs/{run['id']}", {"agent": "a", "session": "s", "run": run["id"], "step": "plan"}
        waits = [desk.http.get(f"{path}?wait=60"), desk.http.get(f"{path}/trace?wait=60")]
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(wait) for wait in waits]
            await desk.ask(id="other", origin={**origin, "run": "another"})
            await desk.ask(id="que_1", origin=origin)
        shown, page = (each.result().json() for each in waiting)
        assert (shown["state"], types(page["events"])) == ("waiting", ["agent_question_asked plan"])


async def test_a_wait_ends_with_the_desk_and_when_its_time_is_up(tmp_path: Path, cwd: str) -> None:
    async with a_desk(tmp_path / "home", database="sqlite:///:memory:", has_worker=False) as desk:
        run = await start(desk, cwd)
        assert (await told(desk.http.get(f"/v1/runs/{run['id']}?wait=0.01"), 200))["state"] == "running"
        page = await told(desk.http.get(f"/v1/runs/{run['id']}/trace?wait=0.01"), 200)
        assert (page["events"], page["next"], page["state"]) == ([], "0-0", "running")
        stack = await asyncio.TaskGroup().__aenter__()  # outlives the desk
        http = a_client(desk.url, desk.token)
        waiting = stack.create_task(http.get(f"/v1/runs/{run['id']}?wait=300"))
        hearers: list[Any] = desk.broker.store._hearers  # type: ignore[attr-defined]
        await eventually(lambda: any(topic == "runs" for topic, _ in hearers))
    async with asyncio.timeout(PATIENCE):
        assert (await waiting).json()["state"] == "running"
    await stack.__aexit__(None, None, None)
    await http.aclose()


async def test_only_so_many_calls_wait(quick: Served, cwd: str, tmp_path: Path) -> None:
    runs = server_runs.Runs(quick.broker, authors=authors_of(quick.settings), most_waits=0)

    async def never() -> tuple[None, bool]:
        return None, False

    with pytest.raises(errors.Overloaded, match="0 calls wait for runs already"):
        await runs._wait_until(never, run="x", timeout=1)
    assert await runs._wait_until(never, run="x", timeout=0) is None


# What does not fit --------------------------------------------------------------------------------------------------


async def test_an_input_that_does_not_fit_begins_no_run(desk: Served, cwd: str) -> None:
    body = {"workflow": "shop", "cwd": cwd, "input": {"days": "many"}}
    said = await refused(desk.http.post("/v1/runs", json=body), 422, "input_does_not_fit")
    assert said["problems"] == [
        {"at": "goal", "problem": "Field required"},
        {"at": "days", "problem": "Input should be a valid integer, unable to parse string as an integer"},
    ]
    assert said["message"].startswith("the input does not fit: goal: Field required; days: ")
    assert (await told(desk.http.get("/v1/runs"), 200))["runs"] == []


@pytest.mark.parametrize(
    "input",
    [
        '{"goal": "x", "more": NaN}',
        '{"goal": "x", "more": ' + "[" * 120 + "]" * 120 + "}",
        json.dumps({"goal": "x" * (server_runs.MOST_INPUT + 1)}),
        '["a list"]',
        "null",
    ],
)
async def test_an_input_that_cannot_be_kept_begins_no_run(quick: Served, cwd: str, input: str) -> None:
    body = f'{{"workflow": "shop", "cwd": {json.dumps(cwd)}, "input": {input}}}'
    await refused(quick.http.post("/v1/runs", content=body), 422, "input_does_not_fit")
    assert (await told(quick.http.get("/v1/runs"), 200))["runs"] == []


async def test_a_workflow_is_found_above_the_folder_and_in_the_users_own(tmp_path: Path, cwd: str) -> None:
    config = tmp_path / "config"
    (config / "workflows").mkdir(parents=True)
    (config / "workflows" / "mine.py").write_text(ONE.replace('"one"', '"mine"'))
    (config / "workflows" / "shop.py").write_text(ONE.replace('"one"', '"shop"'))
    (Path(cwd) / "deep" / "er").mkdir(parents=True)
    async with a_desk(tmp_path / "home", database="sqlite:///:memory:", user=config / "config.toml") as desk:
        listed = (await told(desk.http.get(f"/v1/workflows?cwd={cwd}/deep/er"), 200))["workflows"]
        assert [each["name"] for each in listed] == ["alone", "one", "shop", "mine"]
        assert listed[2]["file"] == f"{cwd}/.handraise/workflows/shop.py"  # the project's, where both have one
        assert listed[2]["description"] == "Builds a shop"
        kinds = {"plan": "agent", "review": "checkpoint", "test": "shell"}
        assert listed[2]["steps"] == [{"id": id, "kind": kind} for id, kind in kinds.items()]
        assert listed[2]["input"]["required"] == ["goal"]
        run = await start(desk, f"{cwd}/deep/er", "mine", x=1)
        assert (run["file"], run["cwd"]) == (str(config / "workflows" / "mine.py"), f"{cwd}/deep/er")
        assert (await until(desk, run["id"], "done"))["output"]["output"] == "hi\n"


async def test_a_workflow_that_is_not_there_or_broken_is_refused_with_what_to_do(quick: Served, tmp_path: Path) -> None:
    cwd = project(
        tmp_path / "broken",
        good=ONE,
        bad="from handraise.workflow import *\n1 / 0\n",
        leaves="import sys\nsys.exit(3)\n",
    )
    said = await refused(quick.http.post("/v1/runs", json={"workflow": "bad", "cwd": cwd}), 422, "workflow_broken")
    assert said["message"] == "bad.py:2: ZeroDivisionError: division by zero"
    said = await refused(quick.http.post("/v1/runs", json={"workflow": "leaves", "cwd": cwd}), 422, "workflow_broken")
    assert said["message"] == "leaves.py:2: SystemExit: 3"
    listed = (await told(quick.http.get(f"/v1/workflows?cwd={cwd}"), 200))["workflows"]
    assert [(each["name"], each.get("problem")) for each in listed] == [
        ("bad", "bad.py:2: ZeroDivisionError: division by zero"),
        ("one", None),
        ("leaves", "leaves.py:2: SystemExit: 3"),
    ]
    cwd = project(tmp_path / "fine", one=ONE)
    said = await refused(quick.http.post("/v1/runs", json={"workflow": "none", "cwd": cwd}), 404, "workflow_not_found")
    assert said["message"] == "there is no workflow 'none'; there is one"
    await refused(quick.http.post("/v1/runs", json={"workflow": "one", "cwd": "shop"}), 422, "settings")
    await refused(quick.http.get("/v1/workflows?cwd=/no/such/folder"), 422, "settings")


async def test_what_does_not_fit_a_checkpoint_is_said_and_it_stays_open(desk: Served, cwd: str) -> None:
    run = await start(desk, cwd)
    await desk.answer((await the_ask(desk, run["id"]))["id"], "SQLite")
    id = (await the_checkpoint(desk, run["id"]))["id"]
    call = desk.http.post(f"/v1/checkpoints/{id}", json={"output": {"approved": "perhaps"}})
    said = await refused(call, 422, "output_does_not_fit")
    assert said["problems"][0]["at"] == "approved"
    call = desk.http.post(f"/v1/checkpoints/{id}", json={"output": {"approved": True, "seats": 3}})
    said = await refused(call, 422, "output_does_not_fit")  # the schema knows nothing of that
    assert said["problems"] == [{"at": "seats", "problem": "Value error, it is odd"}]
    await refused(desk.http.post(f"/v1/checkpoints/{id}", json={}), 400, "bad_request")
    await refused(desk.http.post(f"/v1/checkpoints/{id}", content='{"output": NaN}'), 422, "output_does_not_fit")
    assert (await told(desk.http.get(f"/v1/checkpoints/{id}"), 200))["state"] == "open"
    await give(desk, id, {"approved": True})
    assert (await give(desk, id, {"approved": True}))["by"] == desk.admin  # the same again
    said = await refused(
        desk.http.post(f"/v1/checkpoints/{id}", json={"output": {"approved": False}}), 409, "run_ended"
    )
    assert said["message"] == f"checkpoint {id}: {desk.admin} gave something else first"


async def test_what_nobody_knows_is_not_found(desk: Served) -> None:
    for path in ("/v1/runs/nobody", "/v1/runs/nobody/trace", "/v1/runs/%00", "/v1/runs/run_%f0%9f%98%80"):
        await refused(desk.http.get(path), 404, "run_not_found")
    for action in ("cancel", "retry", "rerun"):
        await refused(desk.http.post(f"/v1/runs/nobody/{action}"), 404, "run_not_found")
    await refused(desk.http.get("/v1/checkpoints/no%00body"), 404, "checkpoint_not_found")
    await refused(desk.http.post("/v1/checkpoints/nobody", json={"output": 1}), 404, "checkpoint_not_found")
    assert (await told(desk.http.get("/v1/checkpoints?run=%00"), 200))["checkpoints"] == []


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/runs?limit=0", "/v1/runs?limit=1001", "/v1/runs?limit=x", "/v1/runs?after=1"),
        *("/v1/runs/x?wait=-1", "/v1/runs/x?wait=301", "/v1/runs/x?wait=nan", "/v1/checkpoints?state=asked"),
        *("/v1/runs/x/trace?after=1", "/v1/runs/x/trace?after=1-%C2%B2", "/v1/runs/x/trace?after=-1-1"),
        "/v1/runs/x/trace?after=" + "9" * 30 + "-1",
    ],
)
async def test_a_query_that_cannot_be_read_is_refused(quick: Served, path: str) -> None:
    await refused(quick.http.get(path), 400, "bad_request")


async def test_a_position_far_beyond_the_end_is_no_error(desk: Served, cwd: str) -> None:
    run = await start(desk, cwd, "one", x=1)
    await until(desk, run["id"], "done")
    far = "9" * 18
    page = await told(desk.http.get(f"/v1/runs/{run['id']}/trace?after={far}-{far}"), 200)
    assert (page["events"], page["next"]) == ([], f"{far}-{far}")


async def test_who_may_only_answer_starts_and_ends_nothing(quick: Served, cwd: str) -> None:
    run = await start(quick, cwd, "alone", x=1)
    id = (await the_checkpoint(quick, run["id"]))["id"]
    ci, ana = await quick.caller("ci", "ask"), await quick.caller("ana", "answer")
    admins = [
        ("GET", f"/v1/workflows?cwd={cwd}"),
        ("POST", "/v1/runs"),
        *(("POST", f"/v1/runs/{run['id']}/{action}") for action in ("cancel", "retry", "rerun")),
    ]
    people = [
        ("GET", "/v1/runs"),
        ("GET", f"/v1/runs/{run['id']}"),
        ("GET", f"/v1/runs/{run['id']}/trace"),
        ("GET", "/v1/checkpoints"),
        ("GET", f"/v1/checkpoints/{id}"),
    ]
    for method, path in admins:
        await refused(ana.request(method, path, json={}), 403, "forbidden")
    for method, path in (*admins, *people, ("POST", f"/v1/checkpoints/{id}")):
        await refused(ci.request(method, path, json={}), 403, "forbidden")
    for method, path in people:
        await told(ana.request(method, path), 200)
    given = await told(ana.post(f"/v1/checkpoints/{id}", json={"output": 3, "by": "the boss"}), 200)
    assert given["by"] == "ana"  # only an admin speaks for others


# Cancelling and going on --------------------------------------------------------------------------------------------


async def test_a_run_is_cancelled_and_goes_on_when_it_is_retried(desk: Served, cwd: str) -> None:
    run = await start(desk, cwd, "alone", x=1)
    id = (await the_checkpoint(desk, run["id"]))["id"]
    assert (await told(desk.http.post(f"/v1/runs/{run['id']}/cancel"), 202))["id"] == run["id"]
    await until(desk, run["id"], "cancelled")
    assert (await told(desk.http.get(f"/v1/checkpoints/{id}"), 200))["state"] == "withdrawn"
    await refused(desk.http.post(f"/v1/runs/{run['id']}/cancel"), 409, "run_ended")
    await refused(desk.http.post(f"/v1/checkpoints/{id}", json={"output": 3}), 409, "run_ended")
    told_again = await told(desk.http.post(f"/v1/runs/{run['id']}/retry", json={"dry_run": True}), 200)
    assert (told_again["again"], told_again["then"], told_again["state"]) == (["review"], ["end"], "cancelled")
    assert (await told(desk.http.post(f"/v1/runs/{run['id']}/retry"), 202))["again"] == ["review"]
    again = await the_checkpoint(desk, run["id"])
    await refused(desk.http.post(f"/v1/runs/{run['id']}/retry"), 409, "run_ended")
    await give(desk, again["id"], 3)
    await until(desk, run["id"], "done")
    events = types(await trace_of(desk.http, run["id"]))
    assert events.count("run_cancelled") == events.count("run_retried") == 1


async def test_a_retry_does_again_what_failed_or_everything_from_a_step(desk: Served, cwd: str) -> None:
    run = await start(desk, cwd)
    await desk.answer((await the_ask(desk, run["id"]))["id"], "SQLite")
    id = (await the_checkpoint(desk, run["id"]))["id"]
    await give(desk, id, {"approved": True})
    assert (await until(desk, run["id"], "failed"))["error"] == "test: it ended with 1"
    path = f"/v1/runs/{run['id']}/retry"
    said = await refused(desk.http.post(path, json={"from": "nothing"}), 422, "settings")
    assert said["message"] == "from: shop has no step 'nothing'; it has plan, review, test"
    (Path(cwd) / "GOOD").touch()
    assert (await told(desk.http.post(path, json={"dry_run": True}), 200))["again"] == ["test"]
    assert (await told(desk.http.post(path), 202))["again"] == ["test"]
    await until(desk, run["id"], "done")
    assert (Path(cwd) / "TRIES").read_text() == "x\nx\n"
    said = await refused(desk.http.post(path), 409, "run_ended")
    assert said["message"].endswith("is done; there is nothing to retry; name a step to run it again from")
    assert (await told(desk.http.post(path, json={"from": "review"}), 202))["again"] == ["review", "test"]
    again = await the_checkpoint(desk, run["id"])  # what was given before does not count any more
    assert (again["step"], again["state"], again["id"] != id) == ("review", "open", True)
    await give(desk, again["id"], {"approved": False})
    await until(desk, run["id"], "done")
    retried = [event for event in await trace_of(desk.http, run["id"]) if event["type"] == "run_retried"]
    assert [(event.get("step_id"), event["by"]) for event in retried] == [(None, desk.admin), ("review", desk.admin)]


async def test_of_many_who_retry_at_once_one_does(desk: Served, cwd: str) -> None:
    run = await start(desk, cwd, "alone", x=1)
    await the_checkpoint(desk, run["id"])
    await told(desk.http.post(f"/v1/runs/{run['id']}/cancel"), 202)
    await until(desk, run["id"], "cancelled")
    replies = await asyncio.gather(*(desk.http.post(f"/v1/runs/{run['id']}/retry") for _ in range(10)))
    assert {reply.status_code for reply in replies} == {202, 409}
    checkpoint = await the_checkpoint(desk, run["id"])
    await give(desk, checkpoint["id"], 1)
    await until(desk, run["id"], "done")


async def test_two_that_go_on_with_a_run_at_the_same_moment_hurt_nobody(desk: Served, cwd: str) -> None:
    run = await start(desk, cwd, "alone", x=1)
    await the_checkpoint(desk, run["id"])
    await told(desk.http.post(f"/v1/runs/{run['id']}/cancel"), 202)
    await until(desk, run["id"], "cancelled")
    journal = Journal(desk.broker.store)
    at = desk.broker.clock.now()
    reopened = await asyncio.gather(
        *(journal.reopen(run["id"], step=None, by="ana", at=at) for _ in range(5)), return_exceptions=True
    )
    assert {type(each) for each in reopened} <= {RunRecord, errors.RunEnded}
    assert any(isinstance(each, RunRecord) for each in reopened)
    await give(desk, (await the_checkpoint(desk, run["id"]))["id"], 1)
    await until(desk, run["id"], "done")


async def test_a_rerun_is_a_new_run_with_the_same_input(desk: Served, cwd: str) -> None:
    run = await start(desk, cwd, "one", x=1)
    await until(desk, run["id"], "done")
    again = await told(desk.http.post(f"/v1/runs/{run['id']}/rerun"), 201)
    assert again["id"] != run["id"]
    assert (again["input"], again["file"], again["cwd"], again["again"]) == (
        run["input"],
        run["file"],
        run["cwd"],
        ["only"],
    )
    await until(desk, again["id"], "done")
    rewrite(desk, run["file"], ONE.replace('"one"', '"other"'))
    await refused(desk.http.post(f"/v1/runs/{run['id']}/rerun"), 404, "workflow_not_found")


async def test_a_parked_run_can_be_cancelled_and_retried(desk: Served, cwd: str) -> None:
    run = await start(desk, cwd, "alone", x=1)
    await the_checkpoint(desk, run["id"])
    await told(desk.http.post(f"/v1/runs/{run['id']}/cancel"), 202)
    await until(desk, run["id"], "cancelled")
    rewrite(desk, run["file"], ALONE.replace('checkpoint("review", output=int)', 'shell("review", "true")'))
    await told(desk.http.post(f"/v1/runs/{run['id']}/retry"), 202)
    parked = await until(desk, run["id"], "parked")
    assert parked["error"].startswith("step 'review' was a checkpoint step and is a shell step now")
    await told(desk.http.post(f"/v1/runs/{run['id']}/cancel"), 202)
    await until(desk, run["id"], "cancelled")
    rewrite(desk, run["file"], ALONE)
    await told(desk.http.post(f"/v1/runs/{run['id']}/retry"), 202)
    await give(desk, (await the_checkpoint(desk, run["id"]))["id"], 1)
    await until(desk, run["id"], "done")
    assert types(await trace_of(desk.http, run["id"])).count("run_cancelled") == 2


async def test_a_run_that_fits_its_file_no_longer_goes_on_from_a_step_that_does(desk: Served, cwd: str) -> None:
    run = await start(desk, cwd, "alone", x=1)
    await give(desk, (await the_checkpoint(desk, run["id"]))["id"], 1)
    await until(desk, run["id"], "done")
    path = f"/v1/runs/{run['id']}/retry"
    rewrite(desk, run["file"], ALONE.replace('checkpoint("review", output=int)', 'shell("review", "true")'))
    await told(desk.http.post(path, json={"from": "end"}), 202)
    assert (await until(desk, run["id"], "done", "parked"))["state"] == "parked"  # of another kind by now
    await told(desk.http.post(path, json={"from": "review"}), 202)
    await until(desk, run["id"], "done")
    rewrite(desk, run["file"], ALONE.replace('checkpoint("review", output=int)', 'shell("look", "true")'))
    will = await told(desk.http.post(path, json={"from": "end"}), 202)  # of another name
    assert (will["again"], will["then"]) == (["end"], ["look"])
    await until(desk, run["id"], "done")


# Permissions, and the client ----------------------------------------------------------------------------------------


async def test_permissions_of_a_run_are_in_its_trace(desk: Served, cwd: str) -> None:
    run = await start(desk, cwd, "alone", x=1)
    await the_checkpoint(desk, run["id"])
    origin = {"agent": "scripted", "session": "s1", "run": run["id"], "step": "review"}
    permission = {"tool": "Bash", "summary": "Remove it", "command": "rm x", "replies": ["once", "reject"]}
    for id in ("yes", "no", "gone"):
        await told(desk.http.post("/v1/asks", json={"id": id, "permission": permission, "origin": origin}), 201)
    await told(desk.http.post(path_of("yes", "answer"), json={"reply": "once"}), 200)
    await told(desk.http.post(path_of("no", "answer"), json={"reply": "reject", "message": "not now"}), 200)
    await told(desk.http.post(path_of("gone", "withdraw"), json={"reason": "aborted"}), 200)
    events = {
        (event["type"], event.get("permission_id") or event["permission"]["id"]): event
        for event in await trace_of(desk.http, run["id"])
        if event["type"].startswith("agent_permission")
    }
    assert set(events) == {
        *(("agent_permission_asked", id) for id in ("yes", "no", "gone")),
        *(("agent_permission_answered", id) for id in ("yes", "no")),
        ("agent_permission_withdrawn", "gone"),
    }
    wanted = events["agent_permission_asked", "yes"]
    assert (wanted["step_id"], wanted["session_id"], wanted["permission"]["command"]) == ("review", "s1", "rm x")
    denied = events["agent_permission_answered", "no"]
    assert (denied["reply"], denied["reason"], denied["by"]) == ("reject", "not now", desk.admin)


async def test_the_client_raises_what_the_desk_refuses(quick: Served, cwd: str) -> None:
    async with Client(quick.url, token=quick.token) as client:
        with pytest.raises(errors.RunNotFound):
            await client.call("GET", "/v1/runs/nobody")
        with pytest.raises(errors.CheckpointNotFound):
            await client.call("GET", "/v1/checkpoints/nobody")
        with pytest.raises(errors.WorkflowNotFound, match="there is no workflow 'none'; there is alone, one, shop"):
            await client.call("POST", "/v1/runs", body={"workflow": "none", "cwd": cwd})
        with pytest.raises(errors.InputDoesNotFit) as unfit:
            await client.call("POST", "/v1/runs", body={"workflow": "shop", "cwd": cwd})
        assert unfit.value.fields["problems"][0]["at"] == "goal"
        run = await client.call("POST", "/v1/runs", body={"workflow": "one", "cwd": cwd})
        await until(quick, run["id"], "done")
        with pytest.raises(errors.RunEnded):
            await client.call("POST", f"/v1/runs/{run['id']}/cancel")
