"""The sessions of a desk: start an agent, tell it something, read what was said."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from handraise.asks import Handling, Mode
from handraise.client.connection import Connection, path
from handraise.client.records import handling_fields
from handraise.wire import sessions as shapes
from handraise.wire.sessions import Messages, Session

__all__ = ["Sessions"]


class Sessions:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> tuple[Session, ...]:
        """The newest, those that changed last first."""
        return (await self._connection.get(shapes.Sessions, path("sessions"))).sessions

    async def get(self, id: str, *, wait: float = 0) -> Session:
        """As it is, or at the end of its turn, at the latest after so many seconds. Raises SessionNotFound."""
        target = path("sessions", id, wait=f"{wait:g}" if wait else None)
        return await self._connection.get(Session, target, silence=wait + 10)

    async def start(
        self,
        agent: str,
        prompt: str,
        *,
        cwd: str | None = None,
        mode: Mode | None = None,
        command: Sequence[str] = (),
        stale_after: float | None = None,
        handling: Handling | None = None,
        id: str | None = None,
    ) -> Session:
        """Start an agent on the desk's machine. The same `id` again is the same session."""
        body: dict[str, Any] = {
            "id": id or f"ses_{secrets.token_hex(10)}",
            "agent": agent,
            "prompt": prompt,
            "cwd": cwd,
            "mode": mode,
            "command": list(command),
        }
        body |= {"stale_after": stale_after, **(handling_fields(handling) if handling is not None else {})}
        return await self._connection.post(Session, path("sessions"), body=body)

    async def prompt(self, id: str, prompt: str) -> Session:
        """Tell it something more. One that works does this afterwards. Raises SessionEnded, and DeskBroke where nobody
        can tell whether it was told."""
        return await self._connection.post(Session, path("sessions", id, "prompt"), body={"prompt": prompt}, once=True)

    async def abort(self, id: str) -> Session:
        """End its turn, and withdraw what it asks. It takes another prompt."""
        return await self._connection.post(Session, path("sessions", id, "abort"), body={})

    async def close(self, id: str) -> Session:
        """End it, and withdraw what it asks."""
        return await self._connection.post(Session, path("sessions", id, "close"), body={})

    async def messages(
        self, id: str, *, after: str | None = None, before: str | None = None, limit: int | None = None, wait: float = 0
    ) -> Messages:
        """A page of what was said, the oldest first; with `wait` it comes when there is something, or after so long."""
        waited = f"{wait:g}" if wait else None
        target = path("sessions", id, "messages", after=after, before=before, limit=limit, wait=waited)
        return await self._connection.get(Messages, target, silence=wait + 10)
