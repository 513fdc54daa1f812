"""The question tool by MCP in the real Claude Code, with a scripted model and a real desk."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from handraise.asks import Ask
from handraise.events import Asked, Event
from handraise.testing import ScriptedModel, call, repeat
from handraise.testing.model import Call, Request
from live.homes import Home
from serving import Served, first_event, path_of, serving, told

PATIENCE = 60.0  # seconds; a busy machine takes several to start a program of this size
QUESTION = {"question": "Which database?", "options": [{"label": "SQLite"}, {"label": "Postgres"}]}
TOOLS = ("--allowedTools", "mcp__handraise__question,mcp__handraise__question_result")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "desk") as served:
        yield served


@asynccontextmanager
async def running(
    claude: Path, home: Home, desk: Served, scenario: str, *options: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`claude -p` with the server in its configuration; it ends with the block."""
    server = {
        "command": sys.executable,
        "args": ["-m", "handraise", "mcp", "--limit", "1"],
        "env": {"HANDRAISE_HOME": str(desk.settings.home)},
    }
    config = home.project.parent / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"handraise": server}}))
    process = await asyncio.create_subprocess_exec(
        *(claude, "-p", f"SCENARIO:{scenario}", "--strict-mcp-config", "--mcp-config", config, *options),
        env=home.env,
        cwd=home.project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def said_by(process: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(PATIENCE):
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


async def asked(desk: Served) -> Ask:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                event: Any = await first_event(desk.broker, _is_asked)
            except TimeoutError:
                continue  # the program is still starting
            return event.ask  # type: ignore[no-any-return]


def _is_asked(event: Event) -> bool:
    return isinstance(event, Asked)


def pick_up(request: Request) -> Call:
    """What a model does that is told to call question_result."""
    told = "\n".join(request.tool_results)
    assert "Call question_result" in told, told
    pending = json.JSONDecoder().raw_decode(told, told.index("{"))[0]
    assert pending["status"] == "pending", told
    return call("mcp__handraise__question_result", request_id=pending["request_id"])


async def test_claude_asks_waits_and_picks_the_answer_up(
    model: ScriptedModel, claude: Path, claude_env: Home, desk: Served
) -> None:
    model.scenarios["db"] = [call("mcp__handraise__question", questions=[QUESTION]), pick_up, repeat]
    later = model.hold("db", step=1)
    async with running(claude, claude_env, desk, "db", *TOOLS) as process:
        ask = await asked(desk)
        assert (ask.origin.agent, ask.origin.cwd) == ("claude-code", str(claude_env.project))
        async with asyncio.timeout(PATIENCE):
            await later.reached()  # the first call returned pending
        assert (await desk.answer(ask.id, "Postgres"))["delivered_at"] is None
        later.release()
        assert '"Postgres"' in await said_by(process)
    settled = await desk.get(ask.id)
    assert settled["delivered_at"] is not None
    assert len((await told(desk.http.get("/v1/asks"), 200))["asks"]) == 1


@pytest.mark.parametrize(("reply", "is_made"), [("once", True), ("reject", False)])
async def test_claude_asks_for_permissions_there(
    reply: str, is_made: bool, model: ScriptedModel, claude: Path, claude_env: Home, desk: Served
) -> None:
    model.scenarios["touch"] = [call("Bash", command="touch made", description="make a file"), repeat]
    prompt = ("--permission-prompt-tool", "mcp__handraise__permission_prompt")
    async with running(claude, claude_env, desk, "touch", *prompt) as process:
        ask = await asked(desk)
        assert ask.permission is not None and ask.permission.command == "touch made"
        said = {"reply": reply} | ({"message": "not today"} if reply == "reject" else {})
        await told(desk.http.post(path_of(ask.id, "answer"), json=said), 200)
        out = await said_by(process)
    assert (claude_env.project / "made").exists() is is_made
    assert is_made or "not today" in out


async def test_claude_that_is_killed_leaves_no_question_behind(
    model: ScriptedModel, claude: Path, claude_env: Home, desk: Served
) -> None:
    model.scenarios["db"] = [call("mcp__handraise__question", questions=[QUESTION]), repeat]
    model.hold("db", step=1)
    async with running(claude, claude_env, desk, "db", *TOOLS) as process:
        ask = await asked(desk)
        process.kill()
        gone: Any = await first_event(desk.broker, lambda event: event.type == "withdrawn")
    assert gone.ask.id == ask.id
