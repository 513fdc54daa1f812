"""Which files of projects a desk may follow."""

from __future__ import annotations

import json
from collections.abc import Iterable

from handraise.client.connection import Connection, path
from handraise.client.replies import read
from handraise.wire import trust as shapes
from handraise.wire.plain import from_plain
from handraise.wire.trust import Part, PartBody, TrustedProject

__all__ = ["Trust"]


class Trust:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get(self, *, cwd: str | None = None) -> shapes.Trust:
        """What the files of a project would do, and which projects are trusted."""
        return await self._connection.get(shapes.Trust, path("trust", cwd=cwd))

    async def allow(self, cwd: str, parts: Iterable[Part]) -> shapes.Trust:
        """Trust parts as they were shown. Raises PartChanged where one is another by now."""
        wanted = tuple(PartBody(name=part.name, fingerprint=part.fingerprint or "") for part in parts)
        return await self._connection.post(shapes.Trust, path("trust"), body=shapes.TrustBody(cwd=cwd, parts=wanted))

    async def forget(self, cwd: str) -> TrustedProject:
        told = await self._connection.call("DELETE", path("trust", cwd=cwd))
        return read(told, lambda told: from_plain(TrustedProject, json.loads(told)))
