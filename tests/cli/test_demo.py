"""`handraise demo`, answered in the ways it prints."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from handraise import sync
from handraise.client import Client
from handraise.config import Settings
from tests.helpers.commands import HANDRAISE, running

PATIENCE = 10.0


class Demo:
    """A demo in a process of its own, and what it has printed so far."""

    def __init__(self, home: Path) -> None:
        home.mkdir(exist_ok=True)
        self.settings = Settings(home=home / "state")
        self.home = home
        self.lines: list[str] = []

    def env(self) -> dict[str, str]:
        mine = {key: value for key, value in os.environ.items() if not key.startswith("HANDRAISE_")}
        return mine | {"HANDRAISE_HOME": str(self.settings.home), "XDG_CONFIG_HOME": str(self.home / "config")}

    @asynccontextmanager
    async def running(self, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
        async with running(*HANDRAISE, "demo", *options, cwd=self.home, env=self.env()) as process:
            self._process = process
            yield process

    async def says(self, text: str) -> str:
        """The next line that has this text."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            while line := (await self._process.stdout.readline()).decode():
                self.lines.append(line.rstrip("\n"))
                if text in line:
                    return self.lines[-1]
        raise AssertionError(f"{text!r} was not said: {self.lines}")

    def printed(self, start: str) -> list[str]:
        return [line.strip() for line in self.lines if line.strip().startswith(start)]


async def run(words: list[str], *, env: dict[str, str]) -> int:
    process = await asyncio.create_subprocess_exec(*words, env=env, stdout=subprocess.DEVNULL)
    return await asyncio.wait_for(process.wait(), PATIENCE)


def post_as_curl(line: str, *, token: str) -> dict[str, Any]:
    """What the printed line does: curl -d BODY -H HEADER URL."""
    _, _, body, _, header, url = shlex.split(line)
    name, _, value = header.partition(": ")
    assert value.startswith("Bearer $(cat ")
    posted = urllib.request.Request(url, data=body.encode(), headers={name: f"Bearer {token}"})
    with urllib.request.urlopen(posted, timeout=PATIENCE) as reply:
        told: dict[str, Any] = json.load(reply)
    return told


async def test_the_demo_is_answered_in_every_way_it_prints(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    async with demo.running("--port", "0", "--exit-when-done") as process:
        await demo.says("handraise watch")
        commands, curls, sdk = (demo.printed(start) for start in ("python -m handraise answer", "curl", "desk.reply"))
        assert len(commands) == len(curls) == len(sdk) == 4
        token = demo.settings.token_file.read_text().strip()

        typed = shlex.split(commands[0])
        assert await run([sys.executable, *typed[1:], "--by", "ana"], env=demo.env()) == 0
        assert await demo.says("opencode took: ") == "opencode took: SQLite (by ana, in cli)"
        assert (await asyncio.to_thread(post_as_curl, curls[2], token=token))["state"] == "answered"
        assert (await demo.says("codex took: ")).startswith("codex took: beta; Linux, macOS; Early Bird (by ")

        def reply_with_the_sdk() -> None:
            with sync.Desk(settings=demo.settings) as desk:
                eval(sdk[1], {"desk": desk})
                desk.reject_question(shlex.split(commands[3])[4], reason="not on a Friday", by="ana", via="sdk")

        await asyncio.to_thread(reply_with_the_sdk)
        assert "not on a Friday" in await demo.says("amp was refused")
        for agent in ("opencode", "claude", "codex", "amp"):
            await demo.says(f"{agent}: ")
        await demo.says("The demo is done")
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
    assert any("migration for SQLite" in line for line in demo.lines)
    assert demo.settings.running_desk() is None


async def test_leaving_the_demo_withdraws_what_nobody_answered(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        async with demo.running("--port", str(taken.getsockname()[1])) as process:
            first = await demo.says("raised their hands")
            await demo.says("handraise watch")
            assert not first.endswith(str(taken.getsockname()[1]))
            process.send_signal(signal.SIGINT)
            _, err = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0
    assert "instead" in err.decode()
    assert "withdrew 4" in err.decode()
    async with demo.running("--port", "0"), Client(settings=demo.settings) as client:
        await demo.says("handraise watch")
        states = [ask.state async for ask in client.asks()]
        assert states == ["withdrawn"] * 4 + ["asked"] * 4, "a second demo has asks of its own"


async def test_the_demo_uses_the_desk_that_runs(tmp_path: Path) -> None:
    demo, guest = Demo(tmp_path), Demo(tmp_path)
    async with demo.running("--port", "0"):
        await demo.says("handraise watch")
        async with guest.running("--exit-when-done") as process, Client(settings=demo.settings) as client:
            assert (demo.settings.running_desk() or "?") in await guest.says("raised their hands")
            await guest.says("handraise watch")
            assert len([ask async for ask in client.asks(state="asked")]) == 8
            process.send_signal(signal.SIGINT)
            await asyncio.wait_for(process.communicate(), PATIENCE)
            assert len([ask async for ask in client.asks(state="asked")]) == 4
