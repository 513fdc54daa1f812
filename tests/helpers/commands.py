"""Programs that tests run: to their end, or for as long as a block goes on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.helpers.serving import START

__all__ = ["HANDRAISE", "Done", "Person", "running"]

HANDRAISE = (sys.executable, "-m", "handraise")


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@asynccontextmanager
async def running(
    *command: str | Path,
    env: Mapping[str, str],
    cwd: Path,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program that is gone when the block is left."""
    process = await asyncio.create_subprocess_exec(
        *command, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


class Person:
    """Somebody with a home, who runs commands of handraise. None of our own settings apply to them."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder
        self.home = folder / "desk"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HANDRAISE_", "XDG_"))}
        self.env = {**kept, "HOME": str(folder), "HANDRAISE_HOME": str(self.home), **env}

    async def run(self, *words: str, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.PIPE) -> Done:
        async with running(*HANDRAISE, *words, env=self.env, cwd=self.folder, stdin=stdin, stdout=stdout) as process:
            out, err = await asyncio.wait_for(process.communicate(), START)
            assert process.returncode is not None
            return Done(process.returncode, (out or b"").decode(), err.decode())
