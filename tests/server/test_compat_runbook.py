"""S2: the run routes of runbook, as seed 000 draws them, for questions that the agents of any run ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from handraise.workflow.journal import Claim, Journal, NewRun
from tests.helpers.serving import Served, a_permission_body, path_of, refused, serving, told

Json = dict[str, Any]


@pytest.fixture
async def desk(tmp_path: Path, database: str) -> AsyncIterator[Served]:
    async with serving(tmp_path, database=database, has_worker=False) as running:
        yield running


async def a_run(desk: Served) -> str:
    """One that nobody works on: what its agents ask is asked by the tests."""
    wanted = NewRun(workflow="feature", file="/nowhere/feature.py", cwd="/", input={"goal": "a shop"})
    return (await Journal(desk.broker.store).create(wanted, by="ana", at=1_700_000_000_000)).id


async def ask(desk: Served, run: str, id: str, **changes: Any) -> Json:
    origin = {"agent": "opencode", "session": "ses_1", "run": run, "step": "plan"}
    return await desk.ask(id=id, origin=origin, **changes)


def path(run: str, id: str) -> str:
    return f"/runs/{quote(run, safe='')}/questions/{quote(id, safe='')}"


async def exactly(call: Any, status: int, body: Json) -> None:
    response: httpx2.Response = await call
    assert (response.status_code, response.json()) == (status, body)


async def test_a_run_is_told_with_its_questions_in_full(desk: Served) -> None:
    run = await a_run(desk)
    bare = await told(desk.http.get(f"/runs/{run}"), 200)
    assert bare == {
        "run_id": run,
        "workflow_id": "feature",
        "status": "running",
        "input": {"goal": "a shop"},
        "started_at": "2023-11-14T22:13:20.000Z",
        "pending_checkpoints": [],
        "pending_questions": [],
    }
    await ask(desk, run, "que_1", questions=[{"question": "Why?", "multiple": True, "custom": True}])
    asked = await ask(desk, run, "que_2")
    await desk.ask(id="elsewhere")
    origin = {"agent": "a", "session": "ses_1", "run": run}
    await told(desk.http.post("/v1/asks", json=a_permission_body(id="per_1", origin=origin)), 201)
    pending = (await told(desk.http.get(f"/runs/{run}"), 200))["pending_questions"]
    assert [each["id"] for each in pending] == ["que_1", "que_2"]  # first in, first out
    assert pending[1] == {
        "id": "que_2",
        "session_id": "ses_1",
        "step_id": "plan",
        "questions": [
            {
                "question": "Which database should I use?",
                "header": "Database",
                "options": [
                    {"label": "SQLite", "description": "one file"},
                    {"label": "Postgres", "description": ""},
                ],
                "multiple": False,
                "custom": True,
            }
        ],
        "asked_at": asked["asked_at"],
    }
    assert pending[0]["questions"] == [
        {"question": "Why?", "header": "Why?", "options": [], "multiple": True, "custom": True}
    ]


async def test_a_question_is_answered_once(desk: Served) -> None:
    run = await a_run(desk)
    await ask(desk, run, "que_1")
    await exactly(desk.http.post(path(run, "que_1"), json={"answers": [["Postgres"]]}), 200, {"status": "answered"})
    answer = (await desk.get("que_1"))["answer"]
    assert (answer["answers"], answer["by"], answer["via"]) == ([["Postgres"]], desk.admin, "runbook")
    assert (await told(desk.http.get(f"/runs/{run}"), 200))["pending_questions"] == []
    gone = {"error": "question_not_found"}
    await exactly(desk.http.post(path(run, "que_1"), json={"answers": [["Postgres"]]}), 404, gone)
    await exactly(desk.http.post(path(run, "que_1"), json={"reject": True}), 404, gone)
    await exactly(desk.http.post(path(run, "que_1"), json={}), 404, gone)


async def test_a_question_is_rejected(desk: Served) -> None:
    run = await a_run(desk)
    await ask(desk, run, "que_1")
    body = {"reject": True, "answers": [["SQLite"]]}
    await exactly(desk.http.post(path(run, "que_1"), json=body), 200, {"status": "answered"})
    assert (await desk.get("que_1"))["state"] == "rejected"


async def test_of_many_who_answer_one_is_first(desk: Served) -> None:
    run = await a_run(desk)
    await ask(desk, run, "que_1")
    answers = [{"answers": [[label]]} for label in ("SQLite", "Postgres")] * 5
    replies = await asyncio.gather(*(desk.http.post(path(run, "que_1"), json=body) for body in answers))
    assert sorted(reply.status_code for reply in replies) == [200, *[404] * 9]


async def test_runs_and_questions_that_are_not_there_are_said_in_their_words(desk: Served) -> None:
    run, other = await a_run(desk), await a_run(desk)
    no_run, no_question = {"error": "run_not_found"}, {"error": "question_not_found"}
    body = {"answers": [["SQLite"]]}
    await ask(desk, run, "que_1")
    await ask(desk, run, "gone")
    await told(desk.http.post(path_of("gone", "withdraw"), json={}), 200)
    origin = {"agent": "a", "session": "ses_1", "run": run}
    await told(desk.http.post("/v1/asks", json=a_permission_body(id="per_1", origin=origin)), 201)
    await exactly(desk.http.get("/runs/nobody"), 404, no_run)
    await exactly(desk.http.get("/runs/%00"), 404, no_run)
    await exactly(desk.http.post(path("nobody", "que_1"), json=body), 404, no_run)
    for id in ("nobody", "gone", "per_1", "\0"):
        await exactly(desk.http.post(path(run, id), json=body), 404, no_question)
    await exactly(desk.http.post(path(other, "que_1"), json=body), 404, no_question)
    await exactly(desk.http.post(path(run, "nobody"), content=b"{"), 404, no_question)  # looked for before it is read
    assert (await desk.get("que_1"))["state"] == "asked"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "must provide answers or reject"),
        (b"{}", "must provide answers or reject"),
        (b'{"reject": false}', "must provide answers or reject"),
        (b'{"reject": "no"}', "must provide answers or reject"),
        (b'{"answers": null}', "must provide answers or reject"),
        (b"[]", "must provide answers or reject"),
        (b"{", "the body is not JSON"),
        (b'{"answers": "SQLite"}', "answers is a list of lists of texts, one list per question"),
        (b'{"answers": ["SQLite"]}', "answers is a list of lists of texts, one list per question"),
        (b'{"answers": [[1]]}', "answers is a list of lists of texts, one list per question"),
    ],
)
async def test_what_is_no_answer_is_a_400_and_the_question_waits_on(tmp_path: Path, body: bytes, said: str) -> None:
    async with serving(tmp_path, database="sqlite:///:memory:", has_worker=False) as desk:
        run = await a_run(desk)
        await ask(desk, run, "que_1")
        await exactly(desk.http.post(path(run, "que_1"), content=body), 400, {"error": said})
        assert (await desk.get("que_1"))["state"] == "asked"


async def test_an_answer_that_does_not_fit_is_a_400_and_the_question_waits_on(desk: Served) -> None:
    run = await a_run(desk)
    await ask(desk, run, "que_1")
    response = await desk.http.post(path(run, "que_1"), json={"answers": [["SQLite", "Postgres"]]})
    said = "the answer does not fit, the ask stays open: question 1: one value only; got 2"
    assert (response.status_code, response.json()) == (400, {"error": said})
    assert (await desk.get("que_1"))["state"] == "asked"


async def test_labels_are_what_was_shown_also_where_they_repeat(desk: Served) -> None:
    run = await a_run(desk)
    options = [{"label": "A", "value": "B"}, {"label": "B", "value": "b"}, {"label": "A", "value": "a2"}]
    await ask(desk, run, "que_1", questions=[{"question": "Which?", "options": options}])
    await ask(desk, run, "que_2", questions=[{"question": "Which?", "options": options}])
    (pending, _) = (await told(desk.http.get(f"/runs/{run}"), 200))["pending_questions"]
    assert [option["label"] for option in pending["questions"][0]["options"]] == ["A", "B", "a2"]
    await told(desk.http.post(path(run, "que_1"), json={"answers": [["B"]]}), 200)
    await told(desk.http.post(path(run, "que_2"), json={"answers": [["a2"]]}), 200)
    assert [(await desk.get(id))["answer"]["answers"] for id in ("que_1", "que_2")] == [[["b"]], [["a2"]]]
    trace = (await told(desk.http.get(f"/v1/runs/{run}/trace"), 200))["events"]
    answered = [event["answers"] for event in trace if event["type"] == "agent_question_answered"]
    assert answered == [[["B"]], [["a2"]]]


async def test_an_id_may_hold_any_character(desk: Served) -> None:
    run = await a_run(desk)
    await ask(desk, run, "claude:1/2 ü#%3F")
    await exactly(
        desk.http.post(path(run, "claude:1/2 ü#%3F"), json={"answers": [["SQLite"]]}), 200, {"status": "answered"}
    )


async def test_a_run_that_has_ended_says_how(desk: Served) -> None:
    journal, run = Journal(desk.broker.store), await a_run(desk)
    await journal.register("w", name="w", ttl=60)
    (claim,) = await journal.claim("w", limit=1)
    assert claim == Claim(run, "w", 1)
    await journal.finish(claim, "failed", error="plan: it broke", at=1_700_000_001_000)
    ended = await told(desk.http.get(f"/runs/{run}"), 200)
    assert (ended["status"], ended["error"], ended["completed_at"]) == (
        "failure",
        "plan: it broke",
        "2023-11-14T22:13:21.000Z",
    )
    assert "output" not in ended


async def test_it_takes_a_token_that_may_answer(desk: Served) -> None:
    run = await a_run(desk)
    await ask(desk, run, "que_1")
    ci, ana, nobody = await desk.caller("ci", "ask"), await desk.caller("ana", "answer"), await desk.client()
    for caller, status, code in ((ci, 403, "forbidden"), (nobody, 401, "unauthorized")):
        await refused(caller.get(f"/runs/{run}"), status, code)
        await refused(caller.post(path(run, "que_1"), json={"reject": True}), status, code)
    await told(ana.get(f"/runs/{run}"), 200)
    await told(ana.post(path(run, "que_1"), json={"answers": [["SQLite"]]}), 200)
    assert (await desk.get("que_1"))["answer"]["by"] == "ana"


async def test_what_is_no_route_of_theirs_is_none(desk: Served) -> None:
    run = await a_run(desk)
    await refused(desk.http.post(f"/runs/{run}/questions/a/b"), 404, "not_found")
    await refused(desk.http.post(f"/runs/{run}"), 405, "method_not_allowed")
    await refused(desk.http.post(f"/runs/{run}/checkpoints/x", json={}), 404, "not_found")
