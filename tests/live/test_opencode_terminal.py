"""OpenCode in a plain terminal of its own, with the plugin that `handraise install opencode` writes, and a real desk.

The terminal is tmux's: keys are typed into it, and what it shows is read.
"""

from __future__ import annotations

import json
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from handraise.agents.opencode.attach import GONE, STOPPED
from handraise.agents.opencode.versions import OPENCODE
from handraise.testing import ScriptedModel, call, repeat
from tests.helpers.serving import DeskProcess, a_client
from tests.live.homes import Home, opencode_home
from tests.live.terminals import PATIENCE, Terminal, handraise, is_open, the_ask
from tests.live.test_programs import opencode_server, started

QUESTION = {
    "header": "Database",
    "question": "Which database?",
    "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": "a server"}],
}
ASK = call("question", questions=[QUESTION])
BASH = call("bash", command="echo from-the-shell", description="say it")


@pytest.fixture
async def terminal() -> AsyncIterator[Terminal]:
    with tempfile.TemporaryDirectory() as folder:  # the name of a socket has to be short
        terminal = Terminal(Path(folder) / "tmux", ready="Ask anything", frame="┃")
        yield terminal
        await terminal.end()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[DeskProcess]:
    async with DeskProcess(tmp_path / "desk") as process:
        yield process


@pytest.fixture
def home(tmp_path: Path, model: ScriptedModel) -> Home:
    """Of a person who has used OpenCode before. Without that it waits for npm when it first sees a plugin."""
    home = opencode_home(tmp_path / "opencode", model=model.url, permission={"bash": "ask"})
    config = config_of(home)
    (config / "node_modules").mkdir(parents=True)
    dependencies = {"dependencies": {"@opencode-ai/plugin": OPENCODE.version}}
    (config / "package.json").write_text(json.dumps(dependencies))
    (config / "package-lock.json").write_text(json.dumps({"lockfileVersion": 3, "packages": {"": dependencies}}))
    (config / ".gitignore").write_text("node_modules\npackage.json\npackage-lock.json\nbun.lock\n.gitignore")
    (config / "opencode.jsonc").write_text('{\n  "$schema": "https://opencode.ai/config.json"\n}')
    return home


def config_of(home: Home) -> Path:
    return Path(home.env["HOME"]) / ".config" / "opencode"


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file with what it holds, and every folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def is_delivered(ask: dict[str, Any]) -> bool:
    return ask["delivered_at"] is not None


@asynccontextmanager
async def attached(terminal: Terminal, desk: DeskProcess, home: Home, opencode: Path) -> AsyncIterator[None]:
    """OpenCode in its terminal, and its files as they were before when the block ends."""
    before = contents(config_of(home))
    await handraise(desk, home, "install", "opencode", "--yes")
    plugin = config_of(home) / "plugins" / "handraise.js"
    assert stat.S_IMODE(plugin.stat().st_mode) == 0o600
    await terminal.start([str(opencode)], home)
    yield
    await handraise(desk, home, "uninstall", "opencode")
    assert contents(config_of(home)) == before


async def test_an_ask_of_a_terminal_ends_at_the_desk_or_in_it_or_with_it(
    terminal: Terminal, desk: DeskProcess, home: Home, opencode: Path, model: ScriptedModel
) -> None:
    model.scenarios |= {
        "question": [ASK, repeat],
        "permission": [BASH, repeat],
        "local": [ASK, repeat],
        "killed": [ASK],
    }
    async with attached(terminal, desk, home, opencode):
        await terminal.prompt("question")
        ask = await the_ask(desk, 1, is_open)
        assert ask["origin"]["cwd"] == str(home.project)
        await terminal.shows("Which database?")
        await handraise(desk, home, "answer", ask["id"], "Postgres")
        await terminal.shows('"Which database?"="Postgres"')
        await the_ask(desk, 1, is_delivered)

        await terminal.prompt("permission")
        ask = await the_ask(desk, 2, is_open)
        assert ask["permission"]["command"] == "echo from-the-shell"
        await terminal.shows("Permission required")
        await handraise(desk, home, "answer", ask["id"], "once")
        await the_ask(desk, 2, is_delivered)
        assert (await model.requested(2, scenario="permission")).tool_results == ("from-the-shell\n",)

        await terminal.prompt("local")
        await the_ask(desk, 3, is_open)
        await terminal.shows("enter submit")
        await terminal.press("Enter")
        ask = await the_ask(desk, 3, is_delivered)
        assert (ask["state"], ask["answer"]["by"], ask["answer"]["answers"]) == ("answered", "agent", [["SQLite"]])
        await model.requested(2, scenario="local")

        await terminal.prompt("killed")
        await the_ask(desk, 4, is_open)
        await terminal.kill()
        ask = await the_ask(desk, 4, lambda ask: ask["state"] == "withdrawn")
        assert ask["withdrawn_reason"] == GONE


async def test_a_terminal_outlives_its_desk(
    terminal: Terminal, desk: DeskProcess, home: Home, opencode: Path, model: ScriptedModel
) -> None:
    model.scenarios |= {"restart": [ASK, repeat], "without": [ASK, "went on by itself"]}
    async with attached(terminal, desk, home, opencode):
        await terminal.prompt("restart")
        ask = await the_ask(desk, 1, is_open)
        await desk.kill()
        await desk.start()
        assert is_open(await the_ask(desk, 1, is_open))
        await handraise(desk, home, "answer", ask["id"], "--text", "my own")
        await the_ask(desk, 1, is_delivered)
        await terminal.shows('"Which database?"="my own"')

        assert await desk.stop() == 0
        await terminal.prompt("without")
        await terminal.shows("enter submit")
        await terminal.press("Enter")
        await terminal.shows("went on by itself")
        assert "handraise" not in (await terminal.screen()).replace(str(home.project), "")
        await desk.start()


async def test_a_subagent_whose_turn_is_stopped_withdraws_its_ask(
    desk: DeskProcess, home: Home, opencode: Path, model: ScriptedModel
) -> None:
    task = call("task", description="some work", prompt="SCENARIO:work", subagent_type="general")
    model.scenarios |= {"stopped": [task], "work": [BASH]}
    await handraise(desk, home, "install", "opencode", "--yes")
    async with opencode_server(opencode, home) as url, a_client(url, None) as http:
        session = (await http.post("/session", json={"title": "stopped"}, timeout=PATIENCE)).json()["id"]
        prompt = {"parts": [{"type": "text", "text": "SCENARIO:stopped"}]}
        await http.post(f"/session/{session}/prompt_async", json=prompt, timeout=PATIENCE)
        ask = await the_ask(desk, 1, is_open)
        assert ask["origin"]["parent"] == session
        assert ask["origin"]["session"] != session
        await http.post(f"/session/{session}/abort", timeout=PATIENCE)
        ask = await the_ask(desk, 1, lambda ask: ask["state"] == "withdrawn")
        assert ask["withdrawn_reason"] == STOPPED


async def test_opencode_that_answers_for_itself_asks_nobody(
    desk: DeskProcess, home: Home, opencode: Path, model: ScriptedModel
) -> None:
    model.scenarios["run"] = [BASH, repeat]
    await handraise(desk, home, "install", "opencode", "--yes")
    async with started([str(opencode), "run", "SCENARIO:run"], home) as process:
        printed, _ = await process.communicate()
    assert b"rejecting" in printed
    async with desk.client() as http:
        assert (await http.get("/v1/asks")).json()["asks"] == []
