"""Sessions as the desk knows them: a conversation with an agent, created when an ask first mentions it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from handraise.asks import Origin
from handraise.errors import SessionNotFound
from handraise.stores import Database, Row
from handraise.tables import writable
from handraise.wire import time_text

__all__ = ["SessionRecord", "Sessions"]

_COLUMNS = """
select id, agent, parent, cwd, machine, created_at,
    (select count(*) from asks where asks.session = sessions.id and asks.state = 'asked')
from sessions"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    id: str
    agent: str
    parent: str | None
    cwd: str | None
    machine: str | None
    created_at: int
    open_asks: int

    def told(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "agent": self.agent,
            "state": "waiting" if self.open_asks else "idle",
            "parent": self.parent,
            "cwd": self.cwd,
            "machine": self.machine,
            "created_at": time_text(self.created_at),
            "open_asks": self.open_asks,
        }


class Sessions:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[str] = set()

    async def mention(self, origin: Origin, *, at: int) -> None:
        """Make sure the session has a record. The first mention decides what it says."""
        if origin.session in self._known:
            return
        if len(self._known) > 100_000:
            self._known.clear()
        await self._database.write(
            "insert into sessions (id, agent, parent, cwd, machine, created_at) values (?, ?, ?, ?, ?, ?) "
            "on conflict (id) do nothing",
            origin.session,
            origin.agent,
            origin.parent,
            writable(origin.cwd),
            writable(origin.machine),
            at,
        )
        self._known.add(origin.session)

    async def get(self, id: str) -> SessionRecord:
        rows = await self._database.read(f"{_COLUMNS} where id = ?", id)
        if not rows:
            raise SessionNotFound(id)
        return _record(rows[0])

    async def newest(self, *, limit: int = 200) -> list[SessionRecord]:
        """The newest first."""
        rows = await self._database.read(f"{_COLUMNS} order by created_at desc, id limit ?", limit)
        return [_record(row) for row in rows]


def _record(row: Row) -> SessionRecord:
    id, agent, parent, cwd, machine, created_at, open_asks = row
    return SessionRecord(
        id=id,
        agent=agent,
        parent=parent,
        cwd=cwd,
        machine=machine,
        created_at=created_at,
        open_asks=open_asks,
    )
