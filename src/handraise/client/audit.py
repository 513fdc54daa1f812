"""Every decision that a desk still keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator

from handraise.client.connection import Connection, path
from handraise.wire import audit as shapes
from handraise.wire.audit import AuditLine

__all__ = ["Audit"]


class Audit:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def lines(
        self, *, since: str | None = None, until: str | None = None, page: int | None = None
    ) -> AsyncIterator[AuditLine]:
        """The oldest first, of a time in RFC 3339; `page` is how many are fetched at once."""
        after: str | None = None
        while True:
            target = path("audit", since=since, until=until, limit=page, after=after)
            told = await self._connection.get(shapes.Audit, target)
            for line in told.lines:
                yield line
            after = told.next
            if after is None:
                return
