"""Claude Code in a plain terminal of its own, with the hooks that `handraise install claude` writes, and a real desk.

The terminal is tmux's: keys are typed into it, and what it shows is read.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handraise.agents.claude.hooks import IN_THE_TERMINAL
from handraise.testing import ScriptedModel, call, repeat
from handraise.testing.model import Call, Request
from tests.helpers.serving import DeskProcess, a_client, path_of
from tests.live.homes import Home
from tests.live.terminals import Terminal, handraise, is_open, the_ask

QUESTION, PERMISSION, PLAN = "Enter to select", "Do you want to proceed?", "Would you like to proceed?"  # the dialogs
ASK = call(
    "AskUserQuestion",
    questions=[
        {
            "header": "Database",
            "question": "Which database?",
            "multiSelect": False,
            "options": [
                {"label": "SQLite", "description": "one file"},
                {"label": "Postgres", "description": "a server"},
            ],
        }
    ],
)
SETTINGS = '{\n\t"includeCoAuthoredBy":false,\n\t"hooks" : {"Stop": []}\n}'


@pytest.fixture
async def terminal() -> AsyncIterator[Terminal]:
    with tempfile.TemporaryDirectory() as folder:  # the name of a socket has to be short
        terminal = Terminal(Path(folder) / "tmux", ready="❯", frame="─╌")
        yield terminal
        await terminal.end()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[DeskProcess]:
    async with DeskProcess(tmp_path / "desk") as process:
        yield process


def is_over(ask: dict[str, Any]) -> bool:
    """Nobody waits for it, and the agent has what was answered."""
    assert ask["delivery_error"] is None, ask
    return ask["state"] == "withdrawn" or ask["delivered_at"] is not None


def has_failed(ask: dict[str, Any]) -> bool:
    return ask["delivery_error"] is not None


@asynccontextmanager
async def attached(terminal: Terminal, desk: DeskProcess, home: Home, *command: str) -> AsyncIterator[None]:
    """Claude in its terminal, and its settings as they were before when the block ends."""
    home.settings.write_text(SETTINGS)
    await handraise(desk, home, "install", "claude", "--yes")
    assert stat.S_IMODE(home.settings.stat().st_mode) == 0o600
    await terminal.start(list(command), home)
    yield
    await handraise(desk, home, "uninstall", "claude")
    assert home.settings.read_text() == SETTINGS


async def test_a_question_is_answered_at_the_desk_in_the_terminal_or_by_nobody(
    terminal: Terminal, desk: DeskProcess, claude_env: Home, claude: Path, model: ScriptedModel
) -> None:
    model.scenarios |= {name: [ASK, repeat] for name in ("desk", "local", "esc", "reject", "gone")}
    async with attached(terminal, desk, claude_env, str(claude)):
        await terminal.prompt("desk")
        ask = await the_ask(desk, 1, is_open)
        assert ask["origin"]["cwd"] == str(claude_env.project)
        await terminal.shows(QUESTION)
        await handraise(desk, claude_env, "answer", ask["id"], "Postgres", "--note", "the old one")
        await terminal.shows('"Which database?"="Postgres" notes: the old one')
        await the_ask(desk, 1, is_over)

        await terminal.prompt("local")
        await the_ask(desk, 2, is_open)
        await terminal.decides("Enter", in_dialog=QUESTION)
        ask = await the_ask(desk, 2, is_over)
        assert (ask["state"], ask["answer"]["by"], ask["answer"]["answers"]) == ("answered", "agent", [["SQLite"]])
        assert "SQLite" in (await model.requested(2, scenario="local")).tool_results[0]

        await terminal.prompt("esc")
        await the_ask(desk, 3, is_open)
        await terminal.decides("Escape", in_dialog=QUESTION)
        ask = await the_ask(desk, 3, is_over)
        assert (ask["state"], ask["withdrawn_reason"]) == ("withdrawn", "answered or dismissed in the terminal")

        await terminal.prompt("reject")
        ask = await the_ask(desk, 4, is_open)
        await terminal.shows(QUESTION)
        await handraise(desk, claude_env, "reject", ask["id"], "--reason", "ask me tomorrow")
        assert (await model.requested(2, scenario="reject")).tool_results == ("ask me tomorrow",)
        await the_ask(desk, 4, is_over)

        await terminal.prompt("gone")
        ask = await the_ask(desk, 5, is_open)
        [token] = set(re.findall(r"Bearer (hr_[\w-]+)", claude_env.settings.read_text()))
        async with a_client(desk.url, token) as theirs:
            answered = await theirs.post(path_of(ask["id"], "answer"), json={"answers": [["SQLite"]]})
            assert answered.status_code == 403
        await terminal.end()
        assert (await the_ask(desk, 5, is_over))["state"] == "withdrawn"


async def test_a_permission_is_decided_at_the_desk_or_in_the_terminal(
    terminal: Terminal, desk: DeskProcess, claude_env: Home, claude: Path, model: ScriptedModel
) -> None:
    def bash(name: str) -> Call:
        return call("Bash", command=f"touch {name}.txt", description="Make a file")

    model.scenarios |= {name: [bash(name), repeat] for name in ("allowed", "edited", "denied", "local", "refused")}
    made = claude_env.project
    async with attached(terminal, desk, claude_env, str(claude), "--permission-mode", "manual"):
        await terminal.prompt("allowed")
        ask = await the_ask(desk, 1, is_open)
        assert ask["permission"]["command"] == "touch allowed.txt"
        await terminal.shows(PERMISSION)
        await handraise(desk, claude_env, "answer", ask["id"], "once")
        await the_ask(desk, 1, is_over)
        assert (made / "allowed.txt").exists()

        await terminal.prompt("edited")
        ask = await the_ask(desk, 2, is_open)
        changed = json.dumps({**ask["permission"]["input"], "command": "touch other.txt"})
        await handraise(desk, claude_env, "answer", ask["id"], "once", "--input", changed)
        await the_ask(desk, 2, is_over)
        assert (made / "other.txt").exists()

        await terminal.prompt("denied")
        ask = await the_ask(desk, 3, is_open)
        await handraise(desk, claude_env, "reject", ask["id"], "--reason", "not on a Friday")
        assert (await model.requested(2, scenario="denied")).tool_results == ("not on a Friday",)
        await the_ask(desk, 3, is_over)

        await terminal.prompt("local")
        await the_ask(desk, 4, is_open)
        await terminal.decides("Enter", in_dialog=PERMISSION)
        ask = await the_ask(desk, 4, is_over)
        assert (ask["state"], ask["answer"]["reply"], ask["answer"]["by"]) == ("answered", "once", "agent")

        await terminal.prompt("refused")
        await the_ask(desk, 5, is_open)
        await terminal.decides("4", in_dialog=PERMISSION)
        assert (await the_ask(desk, 5, is_over))["state"] == "withdrawn"
    assert sorted(file.name for file in made.glob("*.txt")) == ["allowed.txt", "local.txt", "other.txt"]


async def test_an_answer_after_the_one_in_the_terminal_is_told_as_too_late(
    terminal: Terminal, desk: DeskProcess, claude_env: Home, claude: Path, model: ScriptedModel
) -> None:
    """While a command runs nobody tells the desk that it was allowed in the terminal."""
    gate = claude_env.project / "gate"
    os.mkfifo(gate)
    model.scenarios["slow"] = [call("Bash", command="touch begun; cat gate", description="Wait"), repeat]
    async with attached(terminal, desk, claude_env, str(claude), "--permission-mode", "manual"):
        await terminal.prompt("slow")
        ask = await the_ask(desk, 1, is_open)
        await terminal.decides("Enter", in_dialog=PERMISSION)
        await handraise(desk, claude_env, "reject", ask["id"])
        await asyncio.to_thread(gate.write_text, "opened")
        ask = await the_ask(desk, 1, has_failed)
        assert ask["delivery_error"] == "it was answered in the terminal first"
        assert (await model.requested(2, scenario="slow")).tool_results == ("opened",)


async def test_a_subagent_asks_under_its_parent(
    terminal: Terminal, desk: DeskProcess, claude_env: Home, claude: Path, model: ScriptedModel
) -> None:
    start = call("Agent", description="help", prompt="SCENARIO:inner", subagent_type="general-purpose")
    model.scenarios |= {"outer": [start, "outer is done"], "inner": [call("Bash", command="touch sub.txt"), repeat]}
    async with attached(terminal, desk, claude_env, str(claude), "--permission-mode", "manual"):
        await terminal.prompt("outer")
        ask = await the_ask(desk, 1, is_open)
        origin = ask["origin"]
        assert origin["session"].startswith(f"{origin['parent']}/")
        await terminal.shows("outer is done")
        assert is_open(await the_ask(desk, 1, is_open))
        await handraise(desk, claude_env, "answer", ask["id"], "once")
        await the_ask(desk, 1, is_over)
        assert (claude_env.project / "sub.txt").exists()


def write_plan(request: Request) -> Call:
    """In plan mode the model is told a file for its plan, and the plan is what stands there."""
    path = re.search(r"/[^\s\"\\]+/plans/[\w.-]+\.md", json.dumps(request.body))
    assert path is not None
    return call("Write", file_path=path[0], content="# Tidy up\n\n1. remove what is old")


@pytest.mark.parametrize("where", ["desk", "terminal"])
async def test_a_plan_is_refused_and_then_approved(
    terminal: Terminal, desk: DeskProcess, claude_env: Home, claude: Path, model: ScriptedModel, where: str
) -> None:
    model.scenarios |= {name: [write_plan, call("ExitPlanMode"), repeat] for name in ("refused", "approved")}
    async with attached(terminal, desk, claude_env, str(claude), "--permission-mode", "plan"):
        await terminal.prompt("refused")
        ask = await the_ask(desk, 1, is_open)
        assert (ask["permission"]["kind"], ask["permission"]["summary"]) == ("plan", "Plan: Tidy up")
        if where == "desk":
            await handraise(desk, claude_env, "reject", ask["id"], "--reason", "too vague")
            assert (await model.requested(3, scenario="refused")).tool_results[-1] == "too vague"
        else:
            await terminal.decides("Escape", in_dialog=PLAN)
        await the_ask(desk, 1, is_over)

        await terminal.prompt("approved")
        ask = await the_ask(desk, 2, is_open)
        if where == "desk":
            await handraise(desk, claude_env, "answer", ask["id"], "once")
        else:
            await terminal.decides("Enter", in_dialog=PLAN)
        assert "User has approved your plan" in (await model.requested(3, scenario="approved")).tool_results[-1]
        ask = await the_ask(desk, 2, is_over)
        assert (ask["state"], ask["answer"]["by"] == "agent") == ("answered", where == "terminal")


async def test_without_a_desk_the_terminal_works_as_if_nothing_were_installed(
    terminal: Terminal, desk: DeskProcess, claude_env: Home, claude: Path, model: ScriptedModel
) -> None:
    model.scenarios |= {"held": [ASK, repeat], "without": [ASK, "went on by itself"]}
    async with attached(terminal, desk, claude_env, str(claude)):
        await terminal.prompt("held")
        await the_ask(desk, 1, is_open)
        await terminal.shows(QUESTION)
        await desk.kill()
        await terminal.decides("Enter", in_dialog=QUESTION)
        assert "SQLite" in (await model.requested(2, scenario="held")).tool_results[0]

        await terminal.prompt("without")
        await terminal.decides("Enter", in_dialog=QUESTION)
        await terminal.shows("went on by itself")
        await desk.start()
        ask = await the_ask(desk, 1, is_over)
        assert (ask["state"], ask["withdrawn_reason"]) == ("withdrawn", IN_THE_TERMINAL)


async def test_where_there_were_no_settings_there_are_none_again(
    terminal: Terminal, desk: DeskProcess, claude_env: Home, claude: Path, model: ScriptedModel
) -> None:
    """And a session that the desk itself started asks once, not once more through the hooks."""
    model.scenarios |= {"managed": [ASK, "managed is done"]}
    claude_env.settings.unlink()
    await handraise(desk, claude_env, "install", "claude", "--yes")
    managed = replace(claude_env, env={**claude_env.env, "HANDRAISE_SESSION": "s1"})
    await terminal.start([str(claude)], managed)
    await terminal.prompt("managed")
    await terminal.decides("Enter", in_dialog=QUESTION)
    await terminal.shows("managed is done")
    async with desk.client() as http:
        assert (await http.get("/v1/asks")).json()["asks"] == []
    await terminal.end()
    await handraise(desk, claude_env, "uninstall", "claude")
    assert not claude_env.settings.exists()
