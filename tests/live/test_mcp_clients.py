"""What `install` writes for agents that only know MCP, read by the real programs; and the desk's own MCP in some."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from handraise.agents import Edit
from handraise.asks import Ask
from handraise.mcp.clients import CLIENTS, program
from handraise.testing import ScriptedModel, call, repeat
from handraise.testing.model import Request, Step
from tests.helpers import commands
from tests.helpers.serving import Served, first_event, serving, told
from tests.live.conversations import taken
from tests.live.homes import Home, qwen_home
from tests.live.programs import program as agent_program

PATIENCE = 60.0  # seconds; a busy machine takes several to start a program of this size
QUESTION = {"question": "Which database?", "options": [{"label": "SQLite"}, {"label": "Postgres"}]}


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "desk") as served:
        yield served


async def installed(name: str, home: Home, desk: Served) -> Edit:
    """Written into the agent's settings as `handraise install` does."""
    token = (await told(desk.http.post("/v1/tokens", json={"name": name, "scopes": ["ask"]}), 201))["token"]
    [edit] = CLIENTS[name].edits(url=desk.url, token=token, environ=home.env, command=program())
    edit.path.write_bytes(edit.add(edit.path.read_bytes() if edit.path.exists() else None))
    return edit


@asynccontextmanager
async def running(*command: str | Path, home: Home) -> AsyncIterator[asyncio.subprocess.Process]:
    """The program; it ends with the block."""
    async with commands.running(*command, env=home.env, cwd=home.project, stderr=subprocess.STDOUT) as process:
        yield process


async def said_by(*command: str | Path, home: Home) -> str:
    async with running(*command, home=home) as process, asyncio.timeout(PATIENCE):
        out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        return out.decode()


async def asked(desk: Served) -> Ask:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                event: Any = await first_event(desk.broker, lambda event: event.type == "asked")
            except TimeoutError:
                continue  # the program is still starting
            return event.ask  # type: ignore[no-any-return]


async def answered_and_taken(process: asyncio.subprocess.Process, desk: Served) -> Ask:
    ask = await asked(desk)
    assert (await desk.answer(ask.id, "Postgres"))["delivered_at"] is None
    async with asyncio.timeout(PATIENCE):
        out, _ = await process.communicate()
    assert "Postgres" in out.decode()
    assert (await taken(desk.broker, ask.id)).delivery_error is None
    return ask


def once_offered(tool: str) -> list[Step]:
    """Codex does not wait for its servers to start: a model that is given nothing to ask with does something else."""

    def ask(request: Request) -> Step:
        is_offered = tool in request.tools
        return call(tool, questions=[QUESTION]) if is_offered else call("exec_command", cmd="sleep 0.5")

    def ask_or_repeat(request: Request) -> Step:
        return repeat(request) if "request_id" in "".join(request.tool_results) else ask(request)

    return [ask, *[ask_or_repeat] * 100]


def codex_asks(codex: Path, home: Home) -> tuple[str | Path, ...]:
    return codex, "exec", "--skip-git-repo-check", "-C", home.project, "SCENARIO:db"


async def test_codex_reads_what_is_installed_and_asks(
    model: ScriptedModel, codex: Path, codex_env: Home, desk: Served
) -> None:
    before = codex_env.settings.read_bytes()
    edit = await installed("codex", codex_env, desk)
    shown = await said_by(codex, "mcp", "get", "handraise", "--json", home=codex_env)
    entry = json.loads(shown[shown.index("{\n") :])
    assert entry["transport"]["env"]["HANDRAISE_URL"] == desk.url
    assert (entry["startup_timeout_sec"], entry["tool_timeout_sec"]) == (30, 86_400)
    model.scenarios["db"] = once_offered("mcp__handraise__question")
    async with running(*codex_asks(codex, codex_env), home=codex_env) as process:
        ask = await answered_and_taken(process, desk)
    assert ask.origin.agent.startswith("codex")
    assert ask.origin.cwd == str(codex_env.project)
    assert edit.remove(codex_env.settings.read_bytes()) in (before, before + b"\n")


async def test_what_codex_writes_beside_it_stays(codex: Path, codex_env: Home, desk: Served) -> None:
    edit = await installed("codex", codex_env, desk)
    await said_by(codex, "mcp", "add", "files", "--", "npx", "files", home=codex_env)
    left = edit.remove(codex_env.settings.read_bytes())
    assert left is not None
    codex_env.settings.write_bytes(left)
    listed = await said_by(codex, "mcp", "list", home=codex_env)
    assert "files" in listed and "handraise" not in listed


async def test_codex_asks_at_the_desk_itself(model: ScriptedModel, codex: Path, codex_env: Home, desk: Served) -> None:
    with codex_env.settings.open("a") as settings:
        settings.write(f'\n[mcp_servers.desk]\nurl = "{desk.url}/mcp"\nbearer_token_env_var = "DESK"\n')
    codex_env.env["DESK"] = (await told(desk.http.post("/v1/tokens", json={"name": "c", "scopes": ["ask"]}), 201))[
        "token"
    ]
    model.scenarios["db"] = once_offered("mcp__desk__question")
    async with running(*codex_asks(codex, codex_env), home=codex_env) as process:
        ask = await answered_and_taken(process, desk)
    assert ask.id.startswith("@c:mcp_")
    assert not ask.origin.session.startswith("mcp:")  # Codex says which conversation it is


async def test_claude_asks_at_the_desk_itself(
    model: ScriptedModel, claude: Path, claude_env: Home, desk: Served
) -> None:
    server = {"type": "http", "url": f"{desk.url}/mcp", "headers": {"Authorization": f"Bearer {desk.token}"}}
    config = claude_env.project.parent / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"desk": server}}))
    model.scenarios["db"] = [call("mcp__desk__question", questions=[QUESTION]), repeat]
    options = ("--strict-mcp-config", "--mcp-config", config, "--allowedTools", "mcp__desk__question")
    async with running(claude, "-p", "SCENARIO:db", *options, home=claude_env) as process:
        ask = await answered_and_taken(process, desk)
    assert ask.origin.agent == "claude-code"


async def test_qwen_reads_what_is_installed_and_starts_it(model: ScriptedModel, tmp_path: Path, desk: Served) -> None:
    qwen = agent_program("qwen")
    home = qwen_home(tmp_path / "qwen", model=model.url)
    edit = await installed("qwen", home, desk)
    for _ in range(5):  # it gives a server five seconds, which is little on a busy machine
        listed = await said_by("node", qwen, "mcp", "list", home=home)
        assert "handraise" in listed
        if "Connected" in listed:
            break
    assert "Connected" in listed
    # It writes the file anew, with a version in it; what is not ours is still there without us.
    left = json.loads(edit.remove(home.settings.read_bytes()) or b"")
    assert "mcpServers" not in left and left["general"]["disableAutoUpdate"] is True
