"""The programs of agents on this machine: where they are, which version they are, and what they said last."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from handraise.agents import Capabilities
from handraise.errors import AgentFailed, ProcessFailed
from handraise.tasks import Tasks
from handraise.text.inert import inert
from handraise.transports.process import Process
from handraise.transports.search_path import safe_path, search_places

__all__ = ["found", "last_words", "listening", "looked_at", "version_of"]

log = logging.getLogger(__name__)

PATIENCE = 30.0  # seconds for a program to say its version
LONGEST_WORDS = 1000
_said: set[str] = set()  # once for each program that was left out


def found(name: str, *, env: Mapping[str, str], install: str) -> str:
    """Where a program is, by the PATH in `env`. Raises AgentFailed with how to `install` it.

    A PATH that was inherited may lead into a project that somebody just downloaded, as `./bin` and `node_modules/.bin`
    do: no program of the working folder's project is used from there. One that the settings give is used as it is.
    """
    if "/" in name:
        program = shutil.which(name)
        if program is None:
            raise AgentFailed(f"there is no program `{name}`; {install}")
        return program
    kept, left_out = search_places(env)
    program = shutil.which(name, path=os.pathsep.join(kept)) if kept else None
    unused = next((hit for place in left_out if (hit := shutil.which(name, path=place or os.curdir))), None)
    if unused is None:
        if program is None:
            raise AgentFailed(f"there is no program `{name}`; {install}")
        return program
    said = inert(f"{unused} is not used: the PATH leads to it inside of this project", keep="")
    if program is None:
        raise AgentFailed(f"there is no program `{name}` ({said}); {install}")
    if said not in _said:
        _said.add(said)
        log.warning("%s", said)
    return program


async def version_of(command: Sequence[str], *, env: Mapping[str, str], install: str) -> str:
    """What it prints for `--version`. Raises AgentFailed with its words, ProcessFailed where it does not start."""
    # A script finds its interpreter on the PATH, too.
    safe = {**env, "PATH": safe_path(env)}
    async with await Process.start([*command, "--version"], env=safe) as process:
        try:
            async with asyncio.timeout(PATIENCE):
                said = [line async for line in process.lines()]
                code = await process.wait()
        except TimeoutError:
            raise AgentFailed(f"{command[0]!r} did not say its version; check that it runs") from None
        text = b"\n".join(said).decode(errors="replace")
        version = re.search(r"\d+(?:\.\d+)+\S*", text)
        if code != 0 or version is None:
            words = inert((process.stderr_tail or text).strip()[-300:])
            raise AgentFailed(f"{command[0]!r} did not say its version ({words or f'exit code {code}'}); {install}")
        return inert(version[0])


async def looked_at(
    known: Capabilities, command: Callable[[], Sequence[str]], *, env: Mapping[str, str], install: str
) -> Capabilities:
    """`known` with where the program is and its version; only with why not, where it cannot be used."""
    try:
        program, *options = command()
        version = await version_of([program, *options], env=env, install=install)
    except (AgentFailed, ProcessFailed) as error:
        return Capabilities(agent=known.agent, installed=False, problem=error.message)
    return replace(known, installed=True, version=version, program=program, checked=("installed", "version"))


@asynccontextmanager
async def listening(listen: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Hear a program for as long as the block runs, which raises what it raises."""
    async with Tasks() as tasks:
        tasks.start(listen)  # what goes wrong there is seen by whoever waits for an answer
        yield


def last_words(process: Process, *, noise: re.Pattern[str] | None = None) -> str:
    """What it wrote to stderr, without lines that begin like `noise`. Empty where it was killed."""
    lines = process.stderr_tail.strip().splitlines()
    said = "\n".join(line for line in lines if noise is None or not noise.match(line))
    return inert(said[-LONGEST_WORDS:])
