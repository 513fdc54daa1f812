"""Codex, answered by a client that was written for OpenCode and knows nothing else (S5): the real program, a real desk.

The client is the one that tests of the real OpenCode server use; only the password is new to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from handraise.config import AgentTable
from handraise.testing import ScriptedModel, call, repeat
from tests.helpers.serving import Served, serving, told
from tests.live.conversations import taken
from tests.live.homes import Home
from tests.live.test_codex import asking, question, run
from tests.live.test_programs import opencode_events, until

PATIENCE = 60.0  # seconds; a busy machine


@pytest.fixture
async def desk(tmp_path: Path, codex: Path, codex_env: Home) -> AsyncIterator[Served]:
    agents = {"codex": AgentTable(command=(str(codex),), env=codex_env.env)}
    async with serving(tmp_path / "desk", agents=agents) as served:
        yield served


@asynccontextmanager
async def a_client(desk: Served) -> AsyncIterator[tuple[httpx2.AsyncClient, AsyncIterator[dict[str, Any]]]]:
    """Its connection, and what it hears on `/event`."""
    async with (
        httpx2.AsyncClient(
            base_url=desk.url, auth=("opencode", desk.token), timeout=PATIENCE, trust_env=False, verify=False
        ) as http,
        http.stream("GET", "/event") as stream,
        asyncio.timeout(PATIENCE),
    ):
        events = opencode_events(stream.aiter_raw())
        await until(events, "server.connected")
        yield http, events


async def started(desk: Served, home: Home, scenario: str, **more: Any) -> str:
    body = {"agent": "codex", "prompt": f"SCENARIO:{scenario}", "cwd": str(home.project), **more}
    id: str = (await told(desk.http.post("/v1/sessions", json=body), 201))["id"]  # begins with `ses_`, as OpenCode's do
    return id


async def ended(desk: Served, session: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            record = await told(desk.http.get(f"/v1/sessions/{session}", params={"wait": 20}), 200)
            if record["state"] not in ("running", "waiting"):
                return record


async def test_an_approval_is_granted_and_another_refused_with_a_message(
    model: ScriptedModel, desk: Served, codex_env: Home
) -> None:
    model.scenarios["make"] = [run("touch allowed"), run("touch refused"), repeat]
    async with a_client(desk) as (http, events):
        session = await started(desk, codex_env, "make")
        for name, said in (("allowed", {"reply": "once"}), ("refused", {"reply": "reject", "message": "not today"})):
            wanted = await until(events, "permission.asked")
            assert wanted["id"].startswith("per_") and wanted["sessionID"] == session
            assert (wanted["patterns"], wanted["metadata"]["command"]) == ([f"touch {name}"], f"touch {name}")
            assert (await http.get("/permission")).json() == [wanted]
            assert (await http.get("/question")).json() == []
            path = f"/permission/{quote(wanted['id'], safe='')}/reply"
            assert ((reply := await http.post(path, json=said)).status_code, reply.json()) == (200, True)
            replied = await until(events, "permission.replied")
            told_of = {"sessionID": wanted["sessionID"], "requestID": wanted["id"], "reply": said["reply"]}
            assert replied == told_of
            assert (await http.post(path, json={"reply": "once"})).status_code == 404  # the first one counts
        record = await ended(desk, session)
        assert (await http.get("/permission")).json() == []
    assert (record["state"], record["error"]) == ("idle", None)
    assert [path.name for path in codex_env.project.iterdir()] == ["allowed"]
    assert "not today" in str(model.requests[-1].body["input"])
    asks = (await told(desk.http.get("/v1/asks"), 200))["asks"]
    assert [(ask["state"], ask["answer"]["via"]) for ask in asks] == [
        ("answered", "opencode"),
        ("rejected", "opencode"),
    ]
    for ask in asks:
        assert (await taken(desk.broker, ask["id"])).delivery_error is None


@pytest.mark.parametrize("tool", ["ours", "its own"])
async def test_a_question_is_answered_by_its_label(
    tool: str, model: ScriptedModel, desk: Served, codex_env: Home
) -> None:
    own = call("request_user_input", questions=[{**question(), "id": "db"}])
    model.scenarios["ask"] = [own if tool == "its own" else asking(), repeat]
    async with a_client(desk) as (http, events):
        session = await started(desk, codex_env, "ask", **({"mode": "plan"} if tool == "its own" else {}))
        wanted = await until(events, "question.asked")
        assert wanted["id"].startswith("que_") and wanted["sessionID"] == session
        [shown] = wanted["questions"]
        assert [option["label"] for option in shown["options"]] == ["SQLite", "Postgres"]
        assert (await http.get("/question")).json() == [wanted]
        assert (await http.get("/permission")).json() == []
        path = f"/question/{quote(wanted['id'], safe='')}/reply"
        assert (await http.post(path, json={"answers": [["Postgres"]]})).json() is True
        replied = await until(events, "question.replied")
        assert replied == {"sessionID": session, "requestID": wanted["id"], "answers": [["Postgres"]]}
        record = await ended(desk, session)
    assert (record["state"], record["error"]) == ("idle", None)
    assert "Postgres" in model.requests[-1].tool_results[-1]
    [ask] = (await told(desk.http.get("/v1/asks"), 200))["asks"]
    assert (await taken(desk.broker, ask["id"])).delivery_error is None
