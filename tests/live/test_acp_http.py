"""Qwen Code by HTTP: the real program behind a real desk, and a client that knows only the routes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from handraise.asks import Answer
from handraise.config import AgentTable
from handraise.testing import ScriptedModel, repeat
from tests.helpers.seed_client import Json, SeedClient, connected
from tests.helpers.serving import Served, serving
from tests.live.homes import Home, qwen_home
from tests.live.test_acp import asking, question, touch

PATIENCE = 60.0  # seconds; a busy machine takes several to start a program of this size
PERMISSION = "session/request_permission"


@pytest.fixture
def home(tmp_path: Path, model: ScriptedModel) -> Home:
    return qwen_home(tmp_path / "qwen", model=model.url)


@asynccontextmanager
async def begun(qwen: Path, home: Home, folder: Path) -> AsyncIterator[tuple[Served, SeedClient]]:
    table = AgentTable(command=("node", str(qwen), "--acp", "--auth-type", "openai"), env=home.env)
    async with (
        asyncio.timeout(PATIENCE),
        serving(folder / "desk", agents={"qwen": table}) as desk,
        connected(desk.url, desk.token, patience=PATIENCE) as client,
    ):
        said = await client.begin("qwen", str(home.project))
        able = said["result"]["agentCapabilities"]
        assert able["_meta"]["sandboxagent.dev"] == {"extensions": {"sessionRequestQuestion": True}}
        async with client.reading():
            yield desk, client


def chosen(asked: Json, kind: str) -> Json:
    option = next(each for each in asked["params"]["options"] if each["kind"] == kind)
    return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}


async def test_a_client_answers_its_questions_and_lets_it_run_a_command(
    model: ScriptedModel, qwen: Path, home: Home, tmp_path: Path
) -> None:
    several = question("Which parts?", "Auth", "Billing", header="Parts", multiSelect=True)
    model.scenarios["both"] = [asking(question(), several), touch("made"), repeat]
    async with begun(qwen, home, tmp_path) as (desk, client):
        turn = asyncio.create_task(client.prompt("SCENARIO:both"))
        asked = await client.hear_method(PERMISSION)
        answers = {"answers": {"0": "Postgres", "1": "Auth, Billing"}}
        assert (await client.answer(asked["id"], result={**chosen(asked, "allow_once"), **answers})).status_code == 202
        wanted = await client.hear(lambda message: message.get("method") == PERMISSION and message["id"] != asked["id"])
        assert (await client.answer(wanted["id"], result=chosen(wanted, "allow_once"))).status_code == 202
        assert (await turn)["result"]["stopReason"] == "end_turn"
        asks = [ask async for ask in desk.broker.asks()]
    assert "**Database**: Postgres" in client.said and "**Parts**: Auth, Billing" in client.said
    assert (home.project / "made").exists()
    answer, reply = (ask.answer for ask in asks)
    assert answer is not None and answer.answers == (("Postgres",), ("Auth", "Billing"))
    assert reply is not None and reply.reply == "once"
    permission = asks[1].permission
    assert permission is not None and permission.command == "touch made"
    assert asks[1].origin.cwd == str(home.project)


async def test_a_person_at_the_desk_answers_while_the_clients_call_is_cut(
    model: ScriptedModel, qwen: Path, home: Home, tmp_path: Path
) -> None:
    model.scenarios["one"] = [asking(), repeat]
    async with begun(qwen, home, tmp_path) as (desk, client):
        prompt = {"id": "turn", "method": "session/prompt", "params": client.turn("SCENARIO:one")}
        cut = asyncio.create_task(client.post(prompt))
        asked = await client.hear_method(PERMISSION)
        cut.cancel()
        (ask,) = [ask async for ask in desk.broker.asks()]
        await desk.broker.answer(ask.id, Answer(answers=(("SQLite",),), by="ana", via="terminal"))
        over = await client.hear_method("$/cancel_request")
        assert over["params"]["requestId"] == asked["id"]
        assert over["params"]["_meta"]["handraise"]["by"] == "ana"
        ended = (await client.post(prompt)).json()
        assert ended["result"]["stopReason"] == "end_turn"
        assert await client.hear_response("turn") == ended
    assert "**Database**: SQLite" in client.said
    assert sum("SCENARIO:one" in str(request.body["messages"][-1]) for request in model.requests) <= 1


async def test_refusing_runs_nothing_and_ending_it_withdraws_what_it_asks(
    model: ScriptedModel, qwen: Path, home: Home, tmp_path: Path
) -> None:
    model.scenarios["both"] = [touch("made"), asking(), repeat]
    async with begun(qwen, home, tmp_path) as (desk, client):
        turn = asyncio.create_task(client.prompt("SCENARIO:both"))
        wanted = await client.hear_method(PERMISSION)
        assert (await client.answer(wanted["id"], error={"code": -32000, "message": "no"})).status_code == 202
        await client.hear(lambda message: message.get("method") == PERMISSION and message["id"] != wanted["id"])
        assert (await desk.http.delete(client.path)).status_code == 204
        assert "error" in await turn
        states = [ask.state async for ask in desk.broker.asks()]
    assert states == ["rejected", "withdrawn"]
    assert not (home.project / "made").exists()
