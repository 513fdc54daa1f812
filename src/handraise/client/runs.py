"""The runs of workflows: start one, steer it, and give what it waits for."""

from __future__ import annotations

from typing import Any, Literal

from handraise.client.connection import Connection, path
from handraise.wire import runs as shapes
from handraise.wire.runs import Checkpoint, ListedRun, Retried, Run, Workflow

__all__ = ["Checkpoints", "Runs", "Workflows"]


class Runs:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, *, limit: int | None = None) -> tuple[ListedRun, ...]:
        """The newest first."""
        return (await self._connection.get(shapes.Runs, path("runs", limit=limit))).runs

    async def get(self, id: str, *, wait: float = 0) -> Run:
        """As it is, or once it has ended, at the latest after so many seconds. Raises RunNotFound."""
        target = path("runs", id, wait=f"{wait:g}" if wait else None)
        return await self._connection.get(Run, target, silence=wait + 10)

    async def start(self, workflow: str, input: Any = None, *, cwd: str | None = None) -> Run:
        """Raises WorkflowNotFound, InputDoesNotFit, and DeskBroke where nobody can tell whether it was started."""
        body = {"workflow": workflow, "input": {} if input is None else input, "cwd": cwd}
        return await self._connection.post(Run, path("runs"), body=body, once=True)

    async def cancel(self, id: str) -> Run:
        """End it, and withdraw what it asks. What its steps gave is kept."""
        return await self._connection.post(Run, path("runs", id, "cancel"), body={})

    async def retry(self, id: str, *, step: str | None = None, dry_run: bool = False) -> Retried:
        """Go on from what did not succeed, or from a step. With `dry_run` it only says what would be done again."""
        return await self._connection.post(
            Retried, path("runs", id, "retry"), body=shapes.RetryBody(from_=step, dry_run=dry_run)
        )

    async def rerun(self, id: str) -> Retried:
        """A new run with the same input. Raises DeskBroke where nobody can tell whether it was started."""
        return await self._connection.post(Retried, path("runs", id, "rerun"), body={}, once=True)

    async def trace(self, id: str, *, after: str = "", wait: float = 0) -> dict[str, Any]:
        """What happened: `events`, each as JSON since each type has fields of its own, `next` to read on, `state`."""
        target = path("runs", id, "trace", after=after or None, wait=f"{wait:g}" if wait else None)
        told: dict[str, Any] = await self._connection.json("GET", target, silence=wait + 10)
        return told


class Checkpoints:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(
        self, *, run: str | None = None, state: Literal["open", "given", "withdrawn"] | None = None
    ) -> tuple[Checkpoint, ...]:
        """All that fit, the oldest first."""
        found: tuple[Checkpoint, ...] = ()
        after: str | None = None
        while True:
            target = path("checkpoints", state=state, run=run, after=after)
            page = await self._connection.get(shapes.Checkpoints, target)
            found, after = found + page.checkpoints, page.next
            if after is None:
                return found

    async def get(self, id: str) -> Checkpoint:
        """Raises CheckpointNotFound."""
        return await self._connection.get(Checkpoint, path("checkpoints", id))

    async def give(self, id: str, output: Any, *, by: str | None = None, via: str = "sdk") -> Checkpoint:
        """What it waits for. The first one counts. Raises OutputDoesNotFit, after which it stays open."""
        body = {"output": output, "by": by, "via": via}
        return await self._connection.post(Checkpoint, path("checkpoints", id), body=body)


class Workflows:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, *, cwd: str | None = None) -> tuple[Workflow, ...]:
        """Those that can be run in a folder of the desk's machine, or where the desk runs."""
        return (await self._connection.get(shapes.Workflows, path("workflows", cwd=cwd), silence=30)).workflows
