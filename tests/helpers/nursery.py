"""Processes of handraise that are there at once, to be shot and started again many times.

One process loads handraise and forks for each of them, so that a start costs what it does and not what its imports
cost. Otherwise they are real: `handraise serve` and `handraise worker` with their own environment, folder and log.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

START = 20.0


class Nursery:
    """Use as a context. `environ` is what all of them have."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._environ = {
            name: value for name, value in os.environ.items() if not name.startswith("HANDRAISE_")
        } | environ

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__),
            env=self._environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.kill()
        await self._process.communicate()

    async def start(self, *words: str, cwd: Path, log: Path, environ: dict[str, str]) -> int:
        """The id of a new process that runs `handraise` with these words."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        told = {"words": words, "cwd": str(cwd), "log": str(log), "environ": environ}
        self._process.stdin.write(json.dumps(told).encode() + b"\n")
        async with asyncio.timeout(START):
            return int(await self._process.stdout.readline())


class Child:
    """One `handraise` that runs until it is told to end. Use as a context."""

    def __init__(self, nursery: Nursery, home: Path, *words: str, ready: str, **environ: str) -> None:
        self.home = home
        self.log = home / "log"
        self.said = ""  # the line that says that it is ready
        self._nursery = nursery
        self._words = words
        self._ready = ready
        self._environ = {"HANDRAISE_HOME": str(home), **environ}
        self._pid: int | None = None

    async def __aenter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        before = self.log.stat().st_size if self.log.exists() else 0
        self._pid = await self._nursery.start(*self._words, cwd=self.home, log=self.log, environ=self._environ)
        async with asyncio.timeout(START):
            while True:
                lines = self.log.read_text()[before:].splitlines(keepends=True) if self.log.exists() else []
                said = next((line for line in lines if self._ready in line and line.endswith("\n")), None)
                if said is not None:
                    self.said = said.strip()
                    return
                assert self.is_running, f"it did not start: {lines}"
                await asyncio.sleep(0.005)

    @property
    def is_running(self) -> bool:
        return self._pid is not None and is_running(self._pid)

    def send(self, number: signal.Signals) -> None:
        assert self._pid is not None
        os.kill(self._pid, number)

    async def kill(self) -> None:
        """SIGKILL: it gets no chance to tidy up."""
        await self._end(signal.SIGKILL)

    async def end(self) -> None:
        """SIGTERM. Raises TimeoutError where it takes longer than ten seconds."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        if self._pid is None:
            return
        with suppress(ProcessLookupError):
            self.send(number)
        async with asyncio.timeout(10):
            while self.is_running:
                await asyncio.sleep(0.002)
        self._pid = None


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def serve() -> None:
    import asyncpg  # noqa: F401 - loaded here, once
    import uvloop  # noqa: F401

    import handraise.app
    import handraise.cli.running
    import handraise.workflow.engine  # noqa: F401
    from handraise.stores import postgres  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    gc.freeze()
    for line in sys.stdin:
        told = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _be_handraise(**told)
        print(pid, flush=True)


def _be_handraise(words: list[str], cwd: str, log: str, environ: dict[str, str]) -> None:
    from handraise.cli import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, stream in enumerate((nothing, written, written)):
        os.dup2(stream, number)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    os.chdir(cwd)
    os.environ.update(environ)
    sys.argv = ["handraise", *words]
    code = 1
    try:
        main()
    except SystemExit as left:
        code = int(left.code or 0)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
