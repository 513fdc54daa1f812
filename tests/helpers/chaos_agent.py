"""An agent for workers in processes of their own: a scripted one with a real program beside it, and notes of both.

`install` makes it known to a process by its environment, the way a stranger's adapter is: as an entry point.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path

from handraise.agents import AgentSettings, Asker, Reply, Start
from handraise.agents.scripted import Scripted, ScriptedSession
from handraise.asks import Option, Permission, Question
from handraise.transports.process import Process

COUNTS = "COUNTS"  # in the folder of the session, a line each time that a step is begun
PROGRAMS = "PROGRAMS"  # there too, the process id of each program


class ChaosAgent(Scripted):
    name = "chaos"

    def __init__(self, settings: AgentSettings | None = None) -> None:
        super().__init__(settings)
        both = (Option("SQLite"), Option("Postgres"))
        self.on_question("^ask", Question("Which database?", both, header="Database"))
        self.on("^ask", lambda answers: f"use {answers[0].value}")
        self.on_question("^left", Question("Which way?", (Option("up"), Option("down")), header="Way"))
        self.on("^left", lambda answers: f"went {answers[0].value}")
        self.on("^right", "right is done")
        self.on_question("^both", Question("Which first?", both, header="First"))
        self.on_permission("^both", Permission(tool="Bash", summary="Remove it", command="rm it"))
        self.on_question("^both", Question("Which then?", both, header="Then"))
        self.on("^both", lambda answers: ", ".join(str(answer.value) for answer in answers))

    async def open(self, asker: Asker, start: Start) -> ChaosSession:
        return ChaosSession(self, asker, start)


class ChaosSession(ScriptedSession):
    def __init__(self, agent: Scripted, asker: Asker, start: Start) -> None:
        super().__init__(agent, asker, start)
        self._folder = Path(start.cwd or ".")
        self._step = start.step or ""
        self._stack = AsyncExitStack()

    async def prompt(self, text: str) -> Reply:
        note(self._folder / COUNTS, self._step)
        await self._begin()
        return await super().prompt(text)

    async def go_on(self) -> Reply | None:
        counts = self._folder / COUNTS
        if not counts.exists() or self._step not in counts.read_text().split():
            note(counts, self._step)  # it was cut off before it had begun
        await self._begin()
        return await super().go_on()

    async def _begin(self) -> None:
        program = await self._stack.enter_async_context(await Process.start(("sleep", "600")))
        note(self._folder / PROGRAMS, str(program.pid))

    async def close(self) -> None:
        await super().close()
        await self._stack.aclose()

    async def leave(self) -> None:
        await super().leave()
        await self._stack.aclose()


def note(file: Path, line: str) -> None:
    """One write, so that several processes can do it."""
    with file.open("ab", buffering=0) as notes:
        notes.write(f"{line}\n".encode())


def install(folder: Path) -> dict[str, str]:
    """The environment of a process that is to know the agent."""
    about = folder / "chaos_agent-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: chaos-agent\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[handraise.agents]\nchaos = tests.helpers.chaos_agent:plugin\n")
    paths = [str(folder), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


plugin = ChaosAgent
