"""A person's own terminal with an agent in it, beside a real desk: tmux types the keys, and what it shows is read."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.helpers.serving import DeskProcess
from tests.live.homes import Home

PATIENCE = 60.0  # seconds; a busy machine takes several to start a program of this size
LOOK = 0.05  # seconds between two looks at a screen, which tells nobody when it changes
AGAIN = 1.0  # seconds until a key that did nothing is pressed once more


class Terminal:
    """The agent's own screen and keyboard. `ready` is what the screen shows once it takes a prompt."""

    def __init__(self, socket: Path, *, ready: str, frame: str) -> None:
        """`frame` are the characters that the agent draws its boxes with."""
        self._tmux = ["tmux", "-S", str(socket), "-f", os.devnull]
        self._ready = ready
        self._between = re.compile(rf"[\s{frame}]+")

    async def start(self, command: list[str], home: Home) -> None:
        """Wait until it takes a prompt."""
        environ = [f"{name}={value}" for name, value in home.env.items()]
        size = ["-x", "150", "-y", "50"]
        await self._run("new-session", "-d", *size, "-c", str(home.project), "env", "-i", *environ, *command)
        await self.shows(self._ready)

    async def end(self) -> None:
        await self._run("kill-server", check=False)

    async def kill(self) -> None:
        """SIGKILL: the agent gets no chance to say good-bye."""
        os.kill(int(await self._run("display-message", "-p", "#{pane_pid}")), signal.SIGKILL)

    async def screen(self) -> str:
        """In one line, since what is long is broken somewhere."""
        return self._between.sub(" ", await self._run("capture-pane", "-p"))

    async def shows(self, text: str) -> None:
        shown = ""
        try:
            async with asyncio.timeout(PATIENCE):
                while text not in shown:
                    await asyncio.sleep(LOOK)
                    shown = await self.screen()
        except TimeoutError:
            raise AssertionError(f"{text!r} did not appear: {shown}") from None

    async def decides(self, key: str, *, in_dialog: str) -> None:
        """Press a key in a dialog until it is gone: one that is new takes none, so that nobody answers by accident."""
        await self.shows(in_dialog)
        pressed, now = 0.0, asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(PATIENCE):
                while in_dialog in await self.screen():
                    if now() - pressed > AGAIN:
                        await self.press(key)
                        pressed = now()
                    await asyncio.sleep(LOOK)
        except TimeoutError:
            raise AssertionError(f"{in_dialog!r} did not go away by {key}: {await self.screen()}") from None

    async def prompt(self, scenario: str) -> None:
        await self._run("send-keys", "-l", f"SCENARIO:{scenario}")
        await self.shows(f"SCENARIO:{scenario}")
        await self.press("Enter")

    async def press(self, key: str) -> None:
        await self._run("send-keys", key)

    async def _run(self, *words: str, check: bool = True) -> str:
        process = await asyncio.create_subprocess_exec(
            *self._tmux, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        printed, problem = await asyncio.wait_for(process.communicate(), PATIENCE)
        assert not check or process.returncode == 0, problem.decode()
        return printed.decode()


async def handraise(desk: DeskProcess, home: Home, *words: str) -> str:
    """What the command printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "handraise", *words),
        env={**home.env, "HANDRAISE_HOME": str(desk.settings.home)},
        cwd=desk.settings.home,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, printed.decode()
    return printed.decode()


async def the_ask(desk: DeskProcess, number: int, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The ask that came as number so-and-so, counted from 1, once it is as wanted."""
    asks: list[dict[str, Any]] = []
    try:
        async with asyncio.timeout(PATIENCE), desk.client() as http:
            while len(asks) < number or not wanted(asks[number - 1]):
                await asyncio.sleep(LOOK)
                asks = (await http.get("/v1/asks")).json()["asks"]
    except TimeoutError:
        raise AssertionError(f"ask {number} did not become what was wanted: {asks}") from None
    return asks[number - 1]


def is_open(ask: dict[str, Any]) -> bool:
    return bool(ask["state"] == "asked")
