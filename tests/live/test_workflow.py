"""The feature workflow of the examples on real agents: killed while a question of its plan waits, and finished."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from handraise.testing import ScriptedModel, call, repeat
from handraise.testing.model import Request
from tests.helpers.serving import path_of
from tests.helpers.trusting import trust_project
from tests.live.homes import Home, written_down
from tests.live.terminals import PATIENCE, is_open, the_ask
from tests.live.test_desk import QUESTION, TOOLS, a_desk, nobody_is_left

EXAMPLE = Path(__file__).parents[2] / "examples" / "feature.py"
PLACE = {**QUESTION, "header": "Place", "question": "Where is it?"}
NUMBER = {"explore": 1, "plan": 2, "verify": 3}  # the asks, in their order


def written_for(agent: str, project: Path) -> None:
    """The example as it stands, but for the agent, and for a mark in each prompt that the model looks for.

    The 30 seconds of its plan would go on while the desk is dead; here nobody hurries.
    """
    text = EXAMPLE.read_text().replace('AGENT = "claude"', f'AGENT = "{agent}"')
    text = text.replace("question_timeout=30", "question_timeout=3000")
    text, count = re.subn(r'(agent\(\s*"(\w+)",\s*")', r"\1SCENARIO:\2 ", text)
    assert count == 4
    file = project / ".handraise" / "workflows" / "feature.py"
    file.parent.mkdir(parents=True)
    file.write_text(text)


def script(agent: str) -> dict[str, list[Any]]:
    tool, question = TOOLS[agent]

    def plan(request: Request) -> str:
        """By what was said last: a tool's result, or where Claude Code was begun anew, a prompt with the answer."""
        is_told = "Postgres" in json.dumps(request.body["messages"][-1])
        return json.dumps({"steps": ["use Postgres" if is_told else "nobody answered"]})

    place = {**question, "header": PLACE["header"], "question": PLACE["question"]}
    return {
        "explore": [call(tool, questions=[place]), repeat],
        "plan": [call(tool, questions=[question]), plan, plan],
        "build": ["built"],
        "verify": [call(tool, questions=[place]), json.dumps({"passed": True})],
    }


async def until_ended(http: httpx2.AsyncClient, run: str) -> dict[str, Any]:
    async with asyncio.timeout(2 * PATIENCE):
        while True:
            told: dict[str, Any] = (await http.get(f"/v1/runs/{run}", params={"wait": 20})).json()
            if told["state"] not in ("running", "waiting"):
                return told


async def trace(http: httpx2.AsyncClient, run: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = (await http.get(f"/v1/runs/{run}/trace")).json()["events"]
    return told


@pytest.mark.parametrize("agent", ["opencode", "claude"])
async def test_the_feature_workflow_survives_the_death_of_the_desk(
    agent: str, request: pytest.FixtureRequest, model: ScriptedModel, tmp_path: Path
) -> None:
    model.scenarios.update(script(agent))
    home: Home = request.getfixturevalue(f"{agent}_env")
    program: Path = request.getfixturevalue(agent)
    written_for(agent, home.project)
    trust_project(home.project, home=tmp_path / "desk")
    async with a_desk(tmp_path / "desk", agent, program, home) as desk:
        async with desk.client() as http:
            body = {"workflow": "feature", "input": {"goal": "a shop"}, "cwd": str(home.project)}
            created = await http.post("/v1/runs", json=body)
            assert created.status_code == 201, created.text
            run = created.json()["id"]
            asked = await the_ask(desk, NUMBER["plan"], is_open)
            assert (asked["origin"]["run"], asked["origin"]["step"]) == (run, "plan")
        if agent != "opencode":  # what it had not written down it would begin anew
            await written_down(home, asked["id"])
        await desk.kill()
        if agent != "opencode":  # an OpenCode server that waits for a person may stay, and is found again
            await nobody_is_left(home)
        before = len(model.requests)
        await desk.start()
        async with desk.client() as http:
            again = await the_ask(desk, NUMBER["plan"], is_open)
            assert (again["id"], again["deadline"]) == (asked["id"], asked["deadline"])
            answered = await http.post(path_of(again["id"], "answer"), json={"answers": [["Postgres"]]})
            assert answered.status_code == 200, answered.text
            ended = await until_ended(http, run)
            assert (ended["state"], ended["error"]) == ("done", None)
            assert ended["output"] == {"passed": True, "problems": []}
            events = await trace(http, run)
            asks = (await http.get("/v1/asks", params={"run": run})).json()["asks"]
    outputs = {event["step_id"]: event["output"] for event in events if event["type"] == "step_completed"}
    assert list(outputs) == ["explore", "plan", "build", "verify"]
    assert outputs["plan"] == {"steps": ["use Postgres"]}
    assert "SQLite" in outputs["explore"], "its first suggestion counts"
    told = [event["type"] for event in events if event["type"].startswith(("step_", "agent_question"))]
    assert told.count("step_started") == 4, "no step was begun twice"
    assert [ask["origin"]["step"] for ask in asks][:2] == ["explore", "plan"]
    assert [ask["answer"]["by"] for ask in asks[:1]] == ["policy:accept-first"]
    assert all(ask["state"] == "rejected" for ask in asks[2:]), "nobody is asked while it checks"
    assert not any(request.scenario == "explore" for request in model.requests[before:]), "explore was done already"
