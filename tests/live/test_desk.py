"""A real desk with a real agent at it: killed or stopped while a question waits, started again, and then answered."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from handraise.testing import ScriptedModel, call, repeat
from tests.helpers.serving import DeskProcess, path_of
from tests.helpers.trusting import trust_project
from tests.live.homes import Home, written_down
from tests.live.terminals import PATIENCE, is_open, the_ask

QUESTION: dict[str, Any] = {
    "header": "Database",
    "question": "Which database?",
    "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": "a server"}],
}
TOOLS = {
    "opencode": ("question", QUESTION),
    "claude": ("AskUserQuestion", {**QUESTION, "multiSelect": False}),
    "codex": ("question", QUESTION),
}


@asynccontextmanager
async def a_desk(folder: Path, agent: str, program: Path, home: Home) -> AsyncIterator[DeskProcess]:
    """A desk that starts this agent in its own home. Where the agent's server outlives it, that ends with the test."""
    folder.mkdir(exist_ok=True)
    env = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in home.env.items())
    command = json.dumps([str(program)])
    (folder / "handraise.toml").write_text(f"[agents.{agent}]\ncommand = {command}\nenv = {{ {env} }}\n")
    trust_project(folder, home=folder)
    async with DeskProcess(folder) as desk:
        try:
            yield desk
        finally:
            await desk.kill()
            for pid in pids_in(home):
                subprocess.run(["kill", "-9", pid], check=False)


def pids_in(home: Home) -> list[str]:
    """Every process that works in the project of this home."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == home.project:
                found.append(process.name)
        except OSError:  # it ended, or is somebody else's
            continue
    return found


async def until_idle(http: httpx2.AsyncClient, session: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            told: dict[str, Any] = (await http.get(f"/v1/sessions/{session}", params={"wait": 20})).json()
            if told["state"] not in ("running", "waiting"):
                return told


@pytest.mark.parametrize("ending", ["killed", "stopped"])
@pytest.mark.parametrize("agent", ["opencode", "claude", "codex"])
async def test_an_answer_after_a_restart_of_the_desk_reaches_the_agent(
    agent: str, ending: str, request: pytest.FixtureRequest, model: ScriptedModel, tmp_path: Path
) -> None:
    tool, question = TOOLS[agent]
    model.scenarios["one"] = [call(tool, questions=[question]), repeat]
    home: Home = request.getfixturevalue(f"{agent}_env")
    program: Path = request.getfixturevalue(agent)
    async with a_desk(tmp_path / "desk", agent, program, home) as desk:
        body = {"agent": agent, "prompt": "SCENARIO:one", "cwd": str(home.project)}
        async with desk.client() as http:
            session = (await http.post("/v1/sessions", json=body)).json()["id"]
            asked = await the_ask(desk, 1, is_open)
        if agent != "opencode":  # what it had not written down it would begin anew, with the answer in its prompt
            await written_down(home, asked["id"])
        await (desk.kill() if ending == "killed" else desk.stop())
        if agent != "opencode":  # an OpenCode server that waits for a person may stay, and is found again
            await nobody_is_left(home)
        assert len(model.requests) == 1, "the agent went on unattended"
        await desk.start()
        async with desk.client() as http:
            again = await the_ask(desk, 1, is_open)
            assert again["id"] == asked["id"]
            answered = await http.post(path_of(again["id"], "answer"), json={"answers": [["Postgres"]]})
            assert answered.status_code == 200, answered.text
            told = await until_idle(http, session)
            assert (told["state"], told["error"]) == ("idle", None)
            delivered = await the_ask(desk, 1, lambda ask: ask["delivered_at"] is not None)
            assert delivered["delivery_error"] is None
            assert len((await http.get("/v1/asks")).json()["asks"]) == 1
        said = model.requests[-1].body
        assert "Postgres" in json.dumps(said["input" if agent == "codex" else "messages"][-1])


async def nobody_is_left(home: Home) -> None:
    async with asyncio.timeout(PATIENCE):
        while pids_in(home):
            await asyncio.sleep(0.02)
