"""The commands with real agents: `handraise start` from the first prompt to the last word, and `handraise attach`."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest

from handraise.agents.opencode.server import Server
from handraise.asks import Ask
from handraise.broker import Broker
from handraise.events import Asked, Delivered, Event
from handraise.testing import ScriptedModel, call, repeat
from tests.helpers.serving import serving
from tests.live.homes import Home, opencode_home
from tests.live.test_programs import opencode_server

PATIENCE = 60.0  # seconds; a busy machine takes several to start a program of this size

OPTIONS = [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": "a server"}]
QUESTION = {"header": "Database", "question": "Which database?", "options": OPTIONS}


class Shell:
    """Runs commands where an agent lives, with a home for the desk beside it."""

    def __init__(self, folder: Path, home: Home, *, agent: str, program: Path) -> None:
        self.desk = folder / "desk"
        self._project = home.project
        config = folder / "config" / "handraise"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(f"[agents.{agent}]\ncommand = {json.dumps([str(program)])}\n")
        ours = {"HANDRAISE_HOME": str(self.desk), "XDG_CONFIG_HOME": str(config.parent), "NO_COLOR": "1"}
        self.env = {**home.env, **ours, "PYTHONUNBUFFERED": "1"}
        self._begun: list[asyncio.subprocess.Process] = []

    async def begin(self, *words: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handraise", *words),
            cwd=self._project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._begun.append(process)
        return process

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._begun:  # what a test that failed left behind
            if process.returncode is None:
                process.kill()
                await process.communicate()

    async def end(self, process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
        return process.returncode, out.decode(), err.decode()


async def line_with(process: asyncio.subprocess.Process, text: str) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE):
        while line := (await process.stderr.readline()).decode():
            if text in line:
                return line
    raise AssertionError(f"it ended without saying {text!r}")


async def first(broker: Broker, kind: type[Event]) -> Ask:
    """What the first event of a kind is about; waits for it."""
    async with asyncio.timeout(PATIENCE):
        async for event in broker.events(after=0):
            if isinstance(event, kind):
                return event.ask
    raise AssertionError("the desk left")


@pytest.mark.parametrize(("agent", "tool"), [("opencode", "question"), ("claude", "AskUserQuestion")])
async def test_start_runs_a_real_agent_and_its_question_is_answered_by_the_command_it_prints(
    agent: str, tool: str, request: pytest.FixtureRequest, model: ScriptedModel, tmp_path: Path
) -> None:
    question = QUESTION if agent == "opencode" else {**QUESTION, "multiSelect": False}
    model.scenarios["one"] = [call(tool, questions=[question]), repeat]
    home: Home = request.getfixturevalue(f"{agent}_env")
    async with Shell(tmp_path, home, agent=agent, program=request.getfixturevalue(agent)) as shell:
        process = await shell.begin("start", agent, "SCENARIO:one", "--stale", "120")
        asks = await line_with(process, f"{agent} asks: Database")
        command = shlex.split(asks.strip().partition(" · ")[2])
        answer = await shell.begin(*command[command.index("answer") :][:-1], "Postgres")
        assert (await shell.end(answer))[0] == 0
        code, out, err = await shell.end(process)
        assert code == 0, err
        assert "Postgres" in out
        assert not (shell.desk / "desk.json").exists()
        code, out, err = await shell.end(await shell.begin("agents", agent, "--json"))
        assert (code, json.loads(out)["installed"]) == (0, True), err


async def test_attach_brings_what_a_server_asks_that_somebody_else_runs(
    opencode: Path, model: ScriptedModel, tmp_path: Path
) -> None:
    model.scenarios["one"] = [call("question", questions=[QUESTION]), repeat]
    home = opencode_home(tmp_path / "opencode", model=model.url)
    locked = replace(home, env={**home.env, "OPENCODE_SERVER_PASSWORD": "secret"})
    shell = Shell(tmp_path, locked, agent="opencode", program=opencode)
    async with opencode_server(opencode, locked) as url, serving(shell.desk) as desk, shell:
        process = await shell.begin("attach", "opencode", url)
        assert "secret" not in await line_with(process, f"connected to opencode at {url}")
        server = Server.at(url.replace("http://", "http://opencode:secret@"))
        session = (await server.post("/session", {"title": "its own"}))["id"]
        body = {"parts": [{"type": "text", "text": "SCENARIO:one"}]}
        await server.post(f"/session/{session}/prompt_async", body)
        ask = await first(desk.broker, Asked)
        assert ask.origin.session == session
        await desk.answer(ask.id, "Postgres")
        assert (await first(desk.broker, Delivered)).delivery_error is None
        await server.close()
        process.send_signal(signal.SIGINT)
        assert (await shell.end(process))[0] == 130
