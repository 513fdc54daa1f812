"""The real Amp with the files that `handraise install amp` writes, and a real desk.

Amp's turns run at its own server. Its rules, the delegate that they start and its MCP client run here: `amp permissions
test` decides over a call as a turn would. Where AMP_API_KEY is an access token, a turn is run as well.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from handraise.agents import AgentSettings, Start
from handraise.agents.amp import Amp
from tests.helpers.serving import DeskProcess, path_of, serving, told
from tests.live.homes import Home, amp_home
from tests.live.terminals import PATIENCE, handraise, is_open, the_ask

ALLOW, ASK, REJECT = 0, 1, 2
OWN = """{
  // mine
  "amp.permissions": [
    {"tool": "shell_command", "matches": {"command": "*git push*"}, "action": "reject", "message": "never"},
  ],
}
"""
USER = {"id": "user_1", "email": "dev@example.com", "username": "dev", "features": []}
STAND_IN = Path(__file__).parents[1] / "helpers" / "amp_program.py"


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Home]:
    """One whose server knows who we are and nothing else."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        content = json.dumps({"ok": True, "result": USER}).encode()
        reply = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        writer.write(f"{reply}Connection: close\r\n\r\n".encode() + content)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        made = amp_home(tmp_path / "amp", server=url)
        made.settings.write_text(OWN)
        yield made


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[DeskProcess]:
    async with DeskProcess(tmp_path / "desk") as process:
        yield process


class Run:
    """One run of Amp. On a terminal it writes to that, and there is somebody to ask."""

    def __init__(self, amp: Path, home: Home, *words: str, on_terminal: bool = False) -> None:
        self._command = [str(amp), *words]
        self._home = home
        self._on_terminal = on_terminal

    async def __aenter__(self) -> Run:
        ours = theirs = -1
        if self._on_terminal:
            ours, theirs = pty.openpty()
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._home.env,
            cwd=self._home.project,
            stdin=theirs if self._on_terminal else asyncio.subprocess.DEVNULL,
            stdout=theirs if self._on_terminal else asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._printed = asyncio.ensure_future(self._read(ours))
        if theirs >= 0:
            os.close(theirs)
        return self

    async def _read(self, ours: int) -> str:
        if ours < 0:
            assert self._process.stdout is not None
            return (await self._process.stdout.read()).decode()
        return await asyncio.to_thread(_all_of, ours)

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def ended(self) -> tuple[int, str]:
        async with asyncio.timeout(PATIENCE):
            printed = await self._printed
            return await self._process.wait(), printed

    async def decided(self) -> tuple[int, dict[str, Any]]:
        """What Amp makes of a call: its exit code and what it says."""
        code, printed = await self.ended()
        return code, json.loads(printed[printed.index("{") :])

    async def waits(self, seconds: float) -> bool:
        """Whether it is still there after that time."""
        done, _ = await asyncio.wait({self._printed}, timeout=seconds)
        return not done


def _all_of(terminal: int) -> str:
    chunks = []
    try:
        while chunk := os.read(terminal, 4096):
            chunks.append(chunk)
    except OSError:  # how a terminal ends on Linux
        pass
    finally:
        os.close(terminal)
    return b"".join(chunks).decode()


def a_call(amp: Path, home: Home, command: str, *, on_terminal: bool = False) -> Run:
    words = ("permissions", "test", "--json", "-t", "T-1", "shell_command", "--command", command)
    return Run(amp, home, *words, on_terminal=on_terminal)


async def test_calls_are_decided_at_the_desk(amp: Path, home: Home, desk: DeskProcess) -> None:
    await handraise(desk, home, "install", "amp", "--yes")
    async with a_call(amp, home, "make deploy") as run:
        ask = await the_ask(desk, 1, is_open)
        assert (ask["permission"]["command"], ask["permission"]["tool"]) == ("make deploy", "shell")
        assert (ask["origin"]["agent"], ask["origin"]["cwd"]) == ("amp", str(home.project))
        assert await run.waits(4.0)
        await handraise(desk, home, "answer", ask["id"], "once")
        code, said = await run.decided()
        assert (code, said["action"], said["matchedEntry"]["action"]) == (ALLOW, "allow", "delegate")
    await the_ask(desk, 1, lambda ask: ask["delivered_at"] is not None)

    async with a_call(amp, home, "make deploy") as run:
        ask = await the_ask(desk, 2, is_open)
        await handraise(desk, home, "reject", ask["id"], "--reason", "not on a Friday")
        code, said = await run.decided()
        assert (code, said["action"], said["error"].strip()) == (REJECT, "reject", "not on a Friday")


async def test_what_a_person_had_decided_stays_and_is_all_there_is_after_uninstalling(
    amp: Path, home: Home, desk: DeskProcess
) -> None:
    await handraise(desk, home, "install", "amp", "--yes")
    async with a_call(amp, home, "git push") as run:
        code, said = await run.decided()
        assert (code, said["matchedEntry"]["message"]) == (REJECT, "never")
    for tool, argument in (("mcp__handraise__question", "--a"), ("Read", "--path")):
        async with Run(amp, home, "permissions", "test", "--json", tool, argument, "1") as run:
            code, said = await run.decided()
            assert (code, said["source"]) == (ALLOW, "user")
    async with desk.client() as http:
        assert (await http.get("/v1/asks")).json()["asks"] == []
    await handraise(desk, home, "uninstall", "amp")
    assert home.settings.read_text() == OWN
    assert not (desk.settings.home / "amp-delegate").exists()


async def test_without_a_desk_amp_asks_at_its_terminal_and_elsewhere_runs_nothing(
    amp: Path, home: Home, desk: DeskProcess
) -> None:
    await handraise(desk, home, "install", "amp", "--yes")
    async with a_call(amp, home, "make deploy", on_terminal=True) as run:
        await the_ask(desk, 1, is_open)
        await desk.kill()
        code, said = await run.decided()
        assert (code, said["action"]) == (ASK, "ask")
    async with a_call(amp, home, "make deploy", on_terminal=True) as run:
        assert (await run.decided())[0] == ASK
    async with a_call(amp, home, "make deploy") as run:
        code, said = await run.decided()
        assert (code, said["action"]) == (REJECT, "reject")
        assert "cannot be reached" in said["error"]


async def test_where_nobody_is_at_the_terminal_a_desk_that_was_killed_is_waited_for(
    amp: Path, home: Home, desk: DeskProcess
) -> None:
    await handraise(desk, home, "install", "amp", "--yes")
    async with a_call(amp, home, "make deploy") as run:
        ask = await the_ask(desk, 1, is_open)
        await desk.kill()
        await desk.start()
        await handraise(desk, home, "answer", ask["id"], "once")
        assert (await run.decided())[0] == ALLOW


async def test_amp_that_is_killed_withdraws_and_silence_refuses(amp: Path, home: Home, tmp_path: Path) -> None:
    config = tmp_path / "config" / "handraise"
    config.mkdir(parents=True)
    async with DeskProcess(tmp_path / "desk", XDG_CONFIG_HOME=str(config.parent)) as desk:
        await handraise(desk, home, "install", "amp", "--yes")
        async with a_call(amp, home, "make deploy"):
            await the_ask(desk, 1, is_open)
        await the_ask(desk, 1, lambda ask: ask["state"] == "withdrawn")
        await desk.stop()
        (config / "config.toml").write_text("[policy]\nquestion_timeout = 1\n")
        await desk.start()
        async with a_call(amp, home, "make deploy") as run:
            code, said = await run.decided()
            assert (code, said["action"]) == (REJECT, "reject")
            assert "note what is missing" in said["error"]


async def test_amp_finds_the_question_tool(amp: Path, home: Home, desk: DeskProcess) -> None:
    await handraise(desk, home, "install", "amp", "--yes")
    async with Run(amp, home, "mcp", "doctor") as run:
        code, printed = await run.ended()
        assert code == 0 and "handraise" in printed and "connected" in printed, printed
    async with Run(amp, home, "tools", "list") as run:
        code, printed = await run.ended()
        assert code == 0 and "mcp__handraise__question" in printed, printed


async def test_amp_takes_the_settings_of_a_session(amp: Path, home: Home, tmp_path: Path) -> None:
    env = {"HOME": home.env["HOME"], "XDG_CONFIG_HOME": "", "AMP_API_KEY": "none"}
    agent = Amp(AgentSettings(home=tmp_path / "desk", command=(sys.executable, str(STAND_IN)), env=env))
    async with serving(tmp_path / "desk") as desk:
        session = await agent.open(desk.broker, Start(session="s1"))
        try:
            file = str(session._folder / "settings.json")
            words = ("permissions", "test", "--json", "--settings-file", file, "shell_command", "--command", "make")
            async with Run(amp, home, *words) as run:
                async for event in desk.broker.events(after=0):
                    if event.type == "asked":
                        break
                [ask] = [ask async for ask in desk.broker.asks()]
                assert ask.origin.session == "s1"
                await told(desk.http.post(path_of(ask.id, "answer"), json={"reply": "once"}), 200)
                assert (await run.decided())[0] == ALLOW
            async with Run(amp, home, "mcp", "doctor", "--settings-file", file) as run:
                assert "connected" in (await run.ended())[1]
        finally:
            await session.close()


@pytest.mark.skipif(not os.environ.get("AMP_API_KEY"), reason="a turn of Amp takes an account; set AMP_API_KEY")
async def test_a_turn_with_an_account(amp: Path, tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", "AMP_API_KEY": os.environ["AMP_API_KEY"]}
    agent = Amp(AgentSettings(home=tmp_path / "desk", command=(str(amp),), env=env))
    async with serving(tmp_path / "desk") as desk:
        session = await agent.open(desk.broker, Start(session="s1", cwd=str(tmp_path)))
        try:
            turn = asyncio.create_task(session.prompt("Run `touch made-by-amp` in the shell, and nothing else."))
            async with asyncio.timeout(180):
                async for event in desk.broker.events(after=0):
                    if event.type == "asked":
                        break
                [ask] = [ask async for ask in desk.broker.asks()]
                await told(desk.http.post(path_of(ask.id, "answer"), json={"reply": "once"}), 200)
                await turn
            assert (tmp_path / "made-by-amp").exists()
        finally:
            await session.close()
