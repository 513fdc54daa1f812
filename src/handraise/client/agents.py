"""The agents that a desk can start."""

from __future__ import annotations

from handraise.client.connection import Connection, path
from handraise.wire import agents as shapes
from handraise.wire.agents import Capabilities

__all__ = ["Agents"]

PROBE = 60.0  # seconds in which each is started to see what it can do


class Agents:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, *, probe: bool = False, silence: float = PROBE) -> tuple[Capabilities, ...]:
        """What each can do; with `probe` as the program itself says, which takes a while."""
        target = path("agents", probe=1 if probe else None)
        return (await self._connection.get(shapes.Agents, target, silence=silence)).agents
