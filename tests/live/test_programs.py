"""The real programs start here, and the scripted model speaks their language."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from handraise.agents._versions import Known
from handraise.testing import ScriptedModel, call, repeat
from handraise.transports.sse import Frames
from tests.helpers.serving import a_client
from tests.live import programs
from tests.live.homes import Home

PATIENCE = 60.0  # seconds; a busy machine takes several to start a program of this size
QUESTION = {
    "header": "Database",
    "question": "Which database?",
    "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": "a server"}],
}


@asynccontextmanager
async def started(command: list[str], home: Home) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program in a group of its own, all of which is gone when the block ends."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=home.project,
        env=home.env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


# They run -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.environ.get("HANDRAISE_TEST_AGENTS") == "latest", reason="the newest ones are tried")
@pytest.mark.parametrize("known", programs.DRIVEN, ids=attrgetter("name"))
async def test_a_program_has_the_version_that_is_said_to_be_driven(known: Known, tmp_path: Path) -> None:
    file = str(programs.program(known.name))
    command = ["node", file] if file.endswith(".js") else [file]
    home = Home(env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, project=tmp_path, settings=tmp_path)
    async with started([*command, "--version"], home) as process:
        printed, _ = await process.communicate()
    assert known.version in re.findall(r"\d+\.\d+\.\d+", printed.decode())


async def test_claude_runs_a_turn(model: ScriptedModel, claude: Path, claude_env: Home) -> None:
    model.scenarios["hello"] = [call("Bash", command="echo from-the-shell", description="say it"), repeat]
    command = [str(claude), "-p", "SCENARIO:hello", "--output-format", "json"]
    async with started(command, claude_env) as process:
        printed, _ = await process.communicate()
    assert process.returncode == 0, printed
    assert json.loads(printed)["result"] == "from-the-shell"
    first, second = model.requests
    assert (first.api, first.scenario, first.step) == ("messages", "hello", 0)
    assert (second.step, second.tool_results) == (1, ("from-the-shell",))
    assert "Bash" in first.tools
    assert first.session == json.loads(printed)["session_id"]


async def test_claude_makes_several_calls_in_one_message(model: ScriptedModel, claude: Path, claude_env: Home) -> None:
    calls = [call("Bash", command=f"echo number-{n}", description="count") for n in (1, 2)]
    model.scenarios["twice"] = [["I count.", *calls], repeat]
    command = [str(claude), "-p", "SCENARIO:twice", "--output-format", "json"]
    async with started(command, claude_env) as process:
        printed, _ = await process.communicate()
    # Calls of one message run side by side, and Claude Code sends the results in the order in which they ended.
    assert sorted(json.loads(printed)["result"].splitlines()) == ["number-1", "number-2"]
    assert len(model.requests) == 2


async def test_opencode_runs_a_turn_with_a_question(model: ScriptedModel, opencode: Path, opencode_env: Home) -> None:
    bash = call("bash", command="echo from-the-shell", description="say it")
    model.scenarios["one"] = [["I ask.", call("question", questions=[QUESTION])], bash, repeat]
    async with opencode_server(opencode, opencode_env) as url, a_client(url, None) as http:
        session = (await http.post("/session", json={"title": "a turn"})).json()["id"]
        async with http.stream("GET", "/event", timeout=PATIENCE) as events:
            seen = opencode_events(events.aiter_raw())
            await until(seen, "server.connected")
            await http.post(
                f"/session/{session}/prompt_async", json={"parts": [{"type": "text", "text": "SCENARIO:one"}]}
            )
            asked = await until(seen, "question.asked")
            await http.post(f"/question/{asked['id']}/reply", json={"answers": [["Postgres"]]})
            await until(seen, "session.idle")
        last = (await http.get(f"/session/{session}/message")).json()[-1]
    said = "".join(part["text"] for part in last["parts"] if part["type"] == "text")
    assert '"Which database?"="Postgres"' in said
    assert "from-the-shell" in said
    assert [(each.api, each.scenario, each.step) for each in model.requests] == [("chat", "one", n) for n in range(3)]
    assert {each.session for each in model.requests} == {session}
    assert "question" in model.requests[0].tools


async def test_a_title_of_opencode_takes_no_step(model: ScriptedModel, opencode: Path, opencode_env: Home) -> None:
    model.scenarios["hello"] = ["hello yourself"]
    async with opencode_server(opencode, opencode_env) as url, a_client(url, None) as http:
        session = (await http.post("/session", json={})).json()["id"]
        body = {"parts": [{"type": "text", "text": "SCENARIO:hello"}]}
        reply = await http.post(f"/session/{session}/message", json=body, timeout=PATIENCE)
        await model.requested(2)
    assert [part["text"] for part in reply.json()["parts"] if part["type"] == "text"] == ["hello yourself"]
    assert sorted(str(each.scenario) for each in model.requests) == ["None", "hello"]


@asynccontextmanager
async def opencode_server(opencode: Path, home: Home) -> AsyncIterator[str]:
    command = [str(opencode), "serve", "--hostname", "127.0.0.1", "--port", "0"]
    async with started(command, home) as process:
        assert process.stdout is not None
        printed = b""
        while b"listening on " not in printed:
            line = await process.stdout.readline()
            assert line, f"it ended: {printed.decode()}"
            printed += line
        yield printed.rpartition(b"listening on ")[2].decode().strip()


async def opencode_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    frames = Frames()
    async for chunk in chunks:
        for frame in frames.feed(chunk):
            yield json.loads(frame.data)


async def until(events: AsyncIterator[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The properties of the first event of a kind."""
    async for event in events:
        if event["type"] == kind:
            properties: dict[str, Any] = event["properties"]
            return properties
    raise AssertionError(f"the stream ended before {kind}")


# They are fetched ---------------------------------------------------------------------------------------------------

NPM = """#!/bin/sh
echo "$@" >> "{folder}/calls"
while [ "$1" != --prefix ]; do shift; done
for kind in linux-x64 linux-x64-baseline linux-arm64 darwin-x64 darwin-arm64; do
    mkdir -p "$2/node_modules/opencode-$kind/bin" "$2/node_modules/@openai/codex-$kind/vendor/any/bin"
    echo a program > "$2/node_modules/opencode-$kind/bin/opencode"
    echo a program > "$2/node_modules/@openai/codex-$kind/vendor/any/bin/codex"
done
for kind in linux-x64 linux-arm64 darwin-x64 darwin-arm64; do
    mkdir -p "$2/node_modules/@ampcode/cli-$kind"
    echo a program > "$2/node_modules/@ampcode/cli-$kind/amp"
done
mkdir -p "$2/node_modules/@qwen-code/qwen-code"
echo a program > "$2/node_modules/@qwen-code/qwen-code/cli.js"
"""
BY_NPM = [name for name in programs.SOURCES if name != "claude"]


def fetching(cache: Path, *arguments: str, path: str, **env: str) -> subprocess.Popen[str]:
    """The script with a cache of its own, npm from `path` only, and a pip that has nothing to install from."""
    command = [sys.executable, programs.__file__, *arguments]
    surroundings = {"PATH": path, "HANDRAISE_CACHE": str(cache), "PIP_NO_INDEX": "1", **env}
    return subprocess.Popen(
        command, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def with_npm(folder: Path, script: str) -> str:
    """The PATH of a machine where npm does what the script says."""
    folder.mkdir()
    (folder / "npm").write_text(script.format(folder=folder))
    (folder / "npm").chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def test_what_cannot_be_fetched_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    script = fetching(tmp_path / "cache", path=str(tmp_path / "nothing"))
    _, said = script.communicate(timeout=PATIENCE)
    assert script.returncode == 1
    tmux, *npm, pip = said.splitlines()
    assert "install it" in tmux
    no_npm = "comes by npm, which is not here; install Node.js, or set HANDRAISE_WITHOUT_AGENTS=1."
    assert npm == [f"{name}: {programs.SOURCES[name].package} {no_npm}" for name in BY_NPM]
    assert pip.startswith(f"claude: pip could not install claude-agent-sdk {programs.PINNED['claude']} (ERROR: ")
    assert pip.endswith("check the network, or set HANDRAISE_WITHOUT_AGENTS=1 to test without it.")


def test_a_download_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = with_npm(tmp_path / "bin", "#!/bin/sh\necho npm error network is down >&2; exit 3\n")
    script = fetching(tmp_path / "cache", path=path)
    _, said = script.communicate(timeout=PATIENCE)
    assert f"npm could not install opencode-ai {programs.PINNED['opencode']} (npm error network is down);" in said
    assert [each.name for each in (tmp_path / "cache").iterdir() if each.is_dir()] == []


def test_two_at_once_fetch_a_program_once(tmp_path: Path) -> None:
    path = with_npm(tmp_path / "bin", NPM)
    scripts = [fetching(tmp_path / "cache", path=path) for _ in range(3)]
    told = [script.communicate(timeout=PATIENCE)[0] for script in scripts]
    calls = (tmp_path / "bin" / "calls").read_text().splitlines()
    fetched = [f"{programs.SOURCES[name].package}@{programs.PINNED[name]}" for name in BY_NPM]
    assert sorted(each.split()[1] for each in calls) == sorted(fetched)
    assert all("--ignore-scripts" in each for each in calls)
    place = tmp_path / "cache" / f"opencode-{programs.PINNED['opencode']}"
    assert all(str(place) in each for each in told)
    again = fetching(tmp_path / "cache", path=path)
    assert f"in {place}" in (first := again.communicate(timeout=PATIENCE)[0]) and "already there" in first
    quiet = fetching(tmp_path / "cache", "--quiet", path=path)
    assert quiet.communicate(timeout=PATIENCE)[0] == f"claude: {claude_is_coming()}\n"


def claude_is_coming() -> str:
    return f"claude-agent-sdk {programs.PINNED['claude']}, downloading, about {programs.SOURCES['claude'].size}"


def test_whoever_wants_no_agents_gets_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = fetching(tmp_path / "cache", path="/nowhere", HANDRAISE_WITHOUT_AGENTS="1")
    assert script.communicate(timeout=PATIENCE)[0].startswith("the real agents are left out")
    assert script.returncode == 0
    monkeypatch.setenv("HANDRAISE_WITHOUT_AGENTS", "1")
    with pytest.raises(pytest.skip.Exception, match="opencode is left out"):
        programs.program("opencode")


def test_a_test_without_its_program_fails_with_the_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HANDRAISE_WITHOUT_AGENTS", raising=False)
    monkeypatch.setattr(programs, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    programs._chosen.cache_clear()
    try:
        with pytest.raises(pytest.fail.Exception, match=r"install Node\.js"):
            programs.program("opencode")
    finally:
        programs._chosen.cache_clear()
