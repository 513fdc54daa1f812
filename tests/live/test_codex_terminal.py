"""Codex in a plain terminal of its own, with nothing installed, and a real desk that listens to its daemon.

The terminal is tmux's: keys are typed into it, and what it shows is read.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from handraise.agents.codex.attach import ENDED, IN_THE_TERMINAL, MEANWHILE
from handraise.testing import ScriptedModel, call, repeat
from handraise.testing.model import Call
from tests.helpers.serving import DeskProcess
from tests.live.homes import Home, codex_home
from tests.live.terminals import PATIENCE, Terminal, handraise, is_open, the_ask

COMMAND, PATCH, QUESTION = "Would you like to run", "Would you like to make", "enter to submit answer"  # the dialogs
DATABASE = {
    "id": "db",
    "header": "Database",
    "question": "Which database?",
    "options": [
        {"label": "Postgres (Recommended)", "description": "a server"},
        {"label": "SQLite", "description": "one file"},
    ],
}
ASK = call("request_user_input", questions=[DATABASE])


def run(command: str) -> Call:
    """A command that wants out of the sandbox, which is what Codex asks about."""
    return call("exec_command", cmd=command, sandbox_permissions="require_escalated", justification="May I?")


def patch(*lines: str) -> Call:
    body = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
    return call("exec_command", cmd=f"apply_patch <<'EOF'\n{body}\nEOF\n")


@pytest.fixture
def home(tmp_path: Path, model: ScriptedModel) -> Iterator[Home]:
    """Of a person whose Codex may ask questions outside of plan mode. What it leaves running is ended."""
    more = "[features]\ndefault_mode_request_user_input = true"
    home = codex_home(tmp_path / "codex", model=model.url, more=more)
    yield home
    for name in ("daemon-updater", "daemon"):  # the first would start the second anew
        end(home, name)
    for link in home.settings.parent.glob("app-server-*/*.sock"):
        socket = link.resolve()  # in a folder that all daemons of a user share
        socket.unlink(missing_ok=True)
        socket.with_name(f"{socket.name}.lock").unlink(missing_ok=True)
    shutil.rmtree(home.settings.parent / "packages", ignore_errors=True)  # the daemon's own copy of the program


def end(home: Home, name: str) -> None:
    """SIGKILL, for a process that Codex started by itself and would leave behind."""
    file = home.settings.parent / "app-server-daemon" / f"{name}.pid"
    if not file.exists():
        return
    pid = json.loads(file.read_text())["pid"]
    command = Path(f"/proc/{pid}/cmdline")
    if command.exists() and home.env["CODEX_HOME"].encode() in command.read_bytes():  # and not one with an old number
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
async def terminal(home: Home) -> AsyncIterator[Terminal]:
    with tempfile.TemporaryDirectory() as folder:  # the name of a socket has to be short
        terminal = Terminal(Path(folder) / "tmux", ready="for agents", frame="│─╭╮╰╯")
        yield terminal
        await terminal.end()


@pytest.fixture
async def desk(tmp_path: Path, home: Home, codex: Path) -> AsyncIterator[DeskProcess]:
    """One that listens, before there is anything to hear."""
    config = tmp_path / "config" / "handraise" / "config.toml"
    config.parent.mkdir(parents=True)
    env = ", ".join(f"{name} = {json.dumps(value)}" for name, value in home.env.items())
    config.write_text(f'[agents.codex]\nwatch = ["daemon"]\ncommand = ["{codex}"]\nenv = {{ {env} }}\n')
    async with DeskProcess(tmp_path / "desk", XDG_CONFIG_HOME=str(tmp_path / "config")) as process:
        yield process


def is_over(ask: dict[str, Any]) -> bool:
    return ask["state"] == "withdrawn" or ask["delivered_at"] is not None


async def shows_no(terminal: Terminal, text: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while text in await terminal.screen():
            await asyncio.sleep(0.05)


async def test_an_ask_of_a_terminal_is_answered_at_the_desk(
    terminal: Terminal, desk: DeskProcess, home: Home, codex: Path, model: ScriptedModel
) -> None:
    model.scenarios |= {
        "command": [run("echo from-the-shell"), repeat],
        "patch": [patch("*** Add File: made.txt", "+hello"), repeat],
        "question": [ASK, repeat],
        "parent": [call("multi_agent_v1__spawn_agent", message="SCENARIO:child"), "the parent went on"],
        "child": [run("touch by-a-child"), "made it"],
        "managed": [run("touch managed.txt"), "managed is done"],
    }
    await terminal.start([str(codex)], home)
    await terminal.prompt("command")
    ask = await the_ask(desk, 1, is_open)
    assert ask["permission"]["command"] == "echo from-the-shell"
    assert ask["origin"]["cwd"] == str(home.project)
    await terminal.shows(COMMAND)
    await handraise(desk, home, "answer", ask["id"], "once")
    ask = await the_ask(desk, 1, is_over)
    assert ask["delivery_error"] is None
    assert "from-the-shell" in (await model.requested(2, scenario="command")).tool_results[0]
    await shows_no(terminal, COMMAND)

    await terminal.prompt("patch")
    ask = await the_ask(desk, 2, is_open)
    assert ask["permission"]["paths"] == [str(home.project / "made.txt")]
    assert "+hello" in ask["permission"]["diff"]
    await terminal.shows(PATCH)
    await handraise(desk, home, "reject", ask["id"], "--reason", "not on a Friday")
    request = await model.requested(2, scenario="patch")
    assert request.tool_results == ("patch rejected by user",)
    assert "not on a Friday" in json.dumps(request.body["input"])
    await the_ask(desk, 2, is_over)
    assert not (home.project / "made.txt").exists()

    await terminal.prompt("question")
    ask = await the_ask(desk, 3, is_open)
    assert 0 < ask["remaining"] <= 100
    await terminal.shows(QUESTION)
    await handraise(desk, home, "answer", ask["id"], "SQLite")
    [told] = (await model.requested(2, scenario="question")).tool_results
    assert json.loads(told) == {"answers": {"db": {"answers": ["SQLite"]}}}
    await the_ask(desk, 3, is_over)
    await shows_no(terminal, QUESTION)

    await terminal.prompt("parent")
    child = await the_ask(desk, 4, is_open)
    assert child["origin"]["parent"] == ask["origin"]["session"]
    await handraise(desk, home, "answer", child["id"], "once")
    await the_ask(desk, 4, is_over)

    # A session of the desk's own, with the same CODEX_HOME, is not in the daemon: it asks once.
    async with desk.client() as http:
        wanted = {"agent": "codex", "prompt": "SCENARIO:managed", "cwd": str(home.project)}
        session = (await http.post("/v1/sessions", json=wanted)).json()["id"]
        ask = await the_ask(desk, 5, is_open)
        assert ask["origin"]["session"] == session
        await handraise(desk, home, "answer", ask["id"], "once")
        await the_ask(desk, 5, is_over)
        assert len((await http.get("/v1/asks")).json()["asks"]) == 5
    assert (home.project / "by-a-child").exists() and (home.project / "managed.txt").exists()


async def test_what_is_answered_in_the_terminal_is_retired_at_the_desk(
    terminal: Terminal, desk: DeskProcess, home: Home, codex: Path, model: ScriptedModel
) -> None:
    model.scenarios |= {
        "yes": [run("echo yes"), repeat],
        "no": [run("echo no"), repeat],
        "question": [ASK, repeat],
        "restart": [run("echo again"), repeat],
        "meanwhile": [run("echo meanwhile"), "went on by itself"],
        "killed": [run("echo never"), repeat],
    }
    await terminal.start([str(codex)], home)
    await terminal.prompt("yes")
    await the_ask(desk, 1, is_open)
    await terminal.decides("y", in_dialog=COMMAND)
    ask = await the_ask(desk, 1, is_over)
    assert (ask["state"], ask["answer"]["by"], ask["answer"]["reply"]) == ("answered", "agent", "once")

    await terminal.prompt("no")
    await the_ask(desk, 2, is_open)
    await terminal.decides("Escape", in_dialog=COMMAND)
    ask = await the_ask(desk, 2, is_over)
    assert (ask["state"], ask["answer"]["by"]) == ("rejected", "agent")

    await terminal.prompt("question")
    await the_ask(desk, 3, is_open)
    await terminal.decides("Enter", in_dialog=QUESTION)
    ask = await the_ask(desk, 3, is_over)
    assert (ask["state"], ask["withdrawn_reason"]) == ("withdrawn", IN_THE_TERMINAL)

    await terminal.prompt("restart")
    await the_ask(desk, 4, is_open)
    await desk.kill()
    await desk.start()
    ask = await the_ask(desk, 4, is_open)
    await handraise(desk, home, "answer", ask["id"], "once")
    await the_ask(desk, 4, is_over)
    assert "again" in (await model.requested(2, scenario="restart")).tool_results[0]

    await terminal.prompt("meanwhile")
    await the_ask(desk, 5, is_open)
    assert await desk.stop() == 0
    await terminal.decides("y", in_dialog=COMMAND)
    await terminal.shows("went on by itself")
    await desk.start()
    ask = await the_ask(desk, 5, is_over)
    assert (ask["state"], ask["withdrawn_reason"]) == ("withdrawn", MEANWHILE)

    await terminal.prompt("killed")
    await the_ask(desk, 6, is_open)
    end(home, "daemon")
    ask = await the_ask(desk, 6, is_over)
    assert (ask["state"], ask["withdrawn_reason"]) == ("withdrawn", ENDED)


async def test_attach_finds_the_daemon_and_answers_for_a_terminal_that_was_closed(
    terminal: Terminal, tmp_path: Path, home: Home, codex: Path, model: ScriptedModel
) -> None:
    model.scenarios |= {"command": [run("echo attached"), repeat], "closed": [run("echo alone"), repeat]}
    async with DeskProcess(tmp_path / "desk") as desk:
        attached = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handraise", "attach", "codex"),
            env={**home.env, "HANDRAISE_HOME": str(desk.settings.home)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert attached.stdout is not None
        try:
            await terminal.start([str(codex)], home)
            said = await asyncio.wait_for(attached.stdout.readline(), PATIENCE)
            assert b"connected to codex at daemon" in said
            await terminal.prompt("command")
            ask = await the_ask(desk, 1, is_open)
            await handraise(desk, home, "answer", ask["id"], "once")
            await the_ask(desk, 1, is_over)
            assert "attached" in (await model.requested(2, scenario="command")).tool_results[0]

            await terminal.prompt("closed")
            ask = await the_ask(desk, 2, is_open)
            await terminal.end()
            await handraise(desk, home, "answer", ask["id"], "once")
            await the_ask(desk, 2, is_over)
            assert "alone" in (await model.requested(2, scenario="closed")).tool_results[0]
        finally:
            attached.kill()
            await attached.communicate()
