"""The question tool by MCP in the real agents, with a scripted model and a real desk."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from handraise.asks import Ask
from handraise.events import Asked, Event
from handraise.testing import ScriptedModel, call, repeat
from handraise.testing.model import Call, Request
from tests.helpers import commands
from tests.helpers.serving import Served, first_event, path_of, serving, told
from tests.live.conversations import taken
from tests.live.homes import Home

PATIENCE = 60.0  # seconds; a busy machine takes several to start a program of this size
QUESTION = {"question": "Which database?", "options": [{"label": "SQLite"}, {"label": "Postgres"}]}
TOOLS = ("--allowedTools", "mcp__handraise__question,mcp__handraise__question_result")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "desk") as served:
        yield served


def server(desk: Served, *options: str) -> tuple[list[str], dict[str, str]]:
    """How an agent starts ours: the command and its environment."""
    return [sys.executable, "-m", "handraise", "mcp", *options], {"HANDRAISE_HOME": str(desk.settings.home)}


def of_claude(
    program: Path, home: Home, desk: Served, *options: str, seconds: int | None = None, more: Sequence[str] = TOOLS
) -> list[str]:
    """The program with the server in its configuration; `seconds` is how long it waits for a tool."""
    (command, *arguments), env = server(desk, *options)
    entry: dict[str, Any] = {"command": command, "args": arguments, "env": env}
    if seconds is not None:
        entry["timeout"] = seconds * 1000
    config = home.project.parent / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"handraise": entry}}))
    return [str(program), "--strict-mcp-config", "--mcp-config", str(config), *more, "-p"]


def of_codex(program: Path, home: Home, desk: Served, *options: str, seconds: int | None = None) -> list[str]:
    (command, *arguments), env = server(desk, *options)
    lines = ["", "[mcp_servers.handraise]", f"command = {json.dumps(command)}", f"args = {json.dumps(arguments)}"]
    lines.append(f"env = {{ HANDRAISE_HOME = {json.dumps(env['HANDRAISE_HOME'])} }}")
    lines.append("required = true")  # otherwise its first turn begins after a second, with or without our tools
    if seconds is not None:
        lines.append(f"tool_timeout_sec = {seconds}")
    with home.settings.open("a") as config:
        config.write("\n".join([*lines, ""]))
    return [str(program), "exec", "--skip-git-repo-check"]


def of_opencode(program: Path, home: Home, desk: Served, *options: str, seconds: int | None = None) -> list[str]:
    command, env = server(desk, *options)
    entry: dict[str, Any] = {"type": "local", "command": command, "environment": env, "enabled": True}
    entry["timeout"] = 1000 * (seconds or 60)  # also for the start of the server, where its own default is short
    settings = json.loads(home.settings.read_text())
    home.settings.write_text(json.dumps(settings | {"mcp": {"handraise": entry}}))
    return [str(program), "run"]


# By agent: how it is started, what it calls itself, what its model calls the tools, and the shortest limit it can have.
# OpenCode's begins anew with our progress, which comes every ten seconds, and holds for the start of the server too.
AGENTS = {
    "claude": (of_claude, "claude-code", "mcp__handraise__", 2),
    "codex": (of_codex, "codex-mcp-client", "mcp__handraise__", 2),
    "opencode": (of_opencode, "opencode", "handraise_", 8),
}


@asynccontextmanager
async def running(home: Home, command: Sequence[str], scenario: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """One turn of an agent, which ends with the block."""
    words = (*command, f"SCENARIO:{scenario}")
    async with commands.running(*words, env=home.env, cwd=home.project, stderr=subprocess.STDOUT) as process:
        yield process


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


def pick_up(prefix: str, request: Request) -> Call:
    """What a model does that is told to call question_result."""
    told = "\n".join(request.tool_results)
    assert "Call question_result" in told, told
    pending = json.JSONDecoder().raw_decode(told, told.index("{"))[0]
    assert pending["status"] == "pending", told
    return call(f"{prefix}question_result", request_id=pending["request_id"])


@pytest.mark.parametrize("ending", ["it is told to pick it up", "it gives up and asks again"])
@pytest.mark.parametrize("agent", AGENTS)
async def test_an_answer_that_took_longer_than_a_call_arrives_once(
    agent: str, ending: str, request: pytest.FixtureRequest, model: ScriptedModel, desk: Served
) -> None:
    starting, name, prefix, shortest = AGENTS[agent]
    program: Path = request.getfixturevalue(agent)
    home: Home = request.getfixturevalue(f"{agent}_env")
    asking = call(f"{prefix}question", questions=[QUESTION])
    if ending == "it gives up and asks again":
        command, second = starting(program, home, desk, seconds=shortest), asking
    else:
        command, second = starting(program, home, desk, "--limit", "1"), partial(pick_up, prefix)
    model.scenarios["db"] = [asking, second, repeat]
    later = model.hold("db", step=1)
    async with running(home, command, "db") as process:
        ask = await asked(desk)
        assert (ask.origin.agent, ask.origin.cwd) == (name, str(home.project))
        async with asyncio.timeout(PATIENCE):
            await later.reached()  # the first call is over
        assert (await desk.get(ask.id))["state"] == "asked"
        assert (await desk.answer(ask.id, "Postgres"))["delivered_at"] is None
        later.release()
        assert "Postgres" in await said_by(process)
    first, second_result = model.requests[-1].tool_results
    assert "Postgres" not in first and '"answers": [["Postgres"]]' in second_result
    assert ("pending" in first) is (ending == "it is told to pick it up"), first
    assert (await taken(desk.broker, ask.id)).delivery_error is None
    assert len((await told(desk.http.get("/v1/asks"), 200))["asks"]) == 1


@pytest.mark.parametrize(("reply", "is_made"), [("once", True), ("reject", False)])
async def test_claude_asks_for_permissions_there(
    reply: str, is_made: bool, model: ScriptedModel, claude: Path, claude_env: Home, desk: Served
) -> None:
    model.scenarios["touch"] = [call("Bash", command="touch made", description="make a file"), repeat]
    prompt = ("--permission-prompt-tool", "mcp__handraise__permission_prompt")
    command = of_claude(claude, claude_env, desk, more=prompt)
    async with running(claude_env, command, "touch") as process:
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
    async with running(claude_env, of_claude(claude, claude_env, desk), "db") as process:
        ask = await asked(desk)
        process.kill()
        gone: Any = await first_event(desk.broker, lambda event: event.type == "withdrawn")
    assert gone.ask.id == ask.id
