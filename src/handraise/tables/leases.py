"""What somebody has for the next seconds: a desk the channel that it runs, a program the asks that it waits for.

Whoever says nothing for that long has it no more.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from handraise.errors import StoreError
from handraise.stores import Database

__all__ = ["AskLeases", "Leases"]

SOON = 2.0  # seconds
MOST_GONE = 100  # programs that are looked at in one turn; a token can make any number of leases
_ASKS = "asks:"


class Leases:
    """Those of one desk, which is called `owner`."""

    def __init__(self, database: Database, *, owner: str, seconds: float) -> None:
        self._database = database
        self.owner = owner
        self.seconds = seconds

    async def hold(self, name: str) -> bool:
        """Whether it is ours from now on, for as long as a lease lasts."""
        clock = self._database.clock
        rows = await self._database.write(
            f"insert into leases (name, owner, lease_until) values (?, ?, {clock} + ?) "  # noqa: S608 - our own clock
            "on conflict (name) do update set owner = excluded.owner, lease_until = excluded.lease_until "
            f"where leases.owner = excluded.owner or leases.lease_until < {clock} returning name",
            name,
            self.owner,
            round(self.seconds * 1000),
        )
        return bool(rows)

    async def let_go(self, name: str) -> None:
        """At once, where the database takes that soon; else it runs out by itself."""
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(SOON):
                await self._database.write("delete from leases where name = ? and owner = ?", name, self.owner)

    async def held(self) -> list[str]:
        """What any desk has now."""
        rows = await self._database.read(f"select name from leases where lease_until >= {self._database.clock}")  # noqa: S608
        return [name for (name,) in rows]


class AskLeases:
    """Programs that ask, each under the name by which it waits. They say again and again that they are there."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def renew(self, worker: str, *, owner: str, seconds: float) -> None:
        """`owner` is that of its token: a name counts among the asks of that token alone."""
        await self._database.write(
            f"insert into leases (name, owner, lease_until) values (?, ?, {self._database.clock} + ?) "  # noqa: S608 - our own clock
            "on conflict (name) do update set lease_until = excluded.lease_until",
            f"{_ASKS}{owner}:{worker}",
            owner,
            round(seconds * 1000),
        )

    async def gone(self) -> list[tuple[str, str]]:
        """`(worker, owner)` of those that have been silent for too long, the longest first, and only so many."""
        rows = await self._database.read(
            f"select name, owner from leases where name like '{_ASKS}%' and lease_until < {self._database.clock} "  # noqa: S608
            f"order by lease_until limit {MOST_GONE}"
        )
        return [(name.removeprefix(f"{_ASKS}{owner}:"), owner) for name, owner in rows]

    async def forget(self, worker: str, *, owner: str) -> None:
        """Unless it is there again."""
        await self._database.write(
            f"delete from leases where name = ? and lease_until < {self._database.clock}",  # noqa: S608
            f"{_ASKS}{owner}:{worker}",
        )
