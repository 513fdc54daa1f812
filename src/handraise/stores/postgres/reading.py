"""Reading what was committed, on a few connections of its own. A read waits a little for a database that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import asyncpg

from handraise.errors import StoreFailed
from handraise.stores.postgres.connecting import Connection, Connector, Troubles, backoff, passes
from handraise.stores.postgres.writing import numbered

__all__ = ["Reader"]

READERS = 4  # connections for reading


class Reader:
    def __init__(self, connector: Connector, *, troubles: Troubles) -> None:
        self._connector = connector
        self._patience = connector.patience
        self._troubles = troubles
        self._loop = asyncio.get_running_loop()
        self._readers: Connection = None

    async def open(self) -> None:
        self._readers = await asyncpg.create_pool(
            self._connector.dsn,
            min_size=0,  # else it logs a page each second while the database is away
            max_size=READERS,
            timeout=self._patience.answer,
            command_timeout=self._patience.answer,
            init=self._connector.set_up,
            reset=_leave_as_it_is,
        )

    def close(self) -> None:
        if self._readers is not None:
            self._readers.terminate()

    async def fetch_page(
        self, sql: str, values: Sequence[Any], *, most: int | None, contents: Sequence[str] = ("content",)
    ) -> list[Any]:
        """The rows with which their contents have `most` characters, and not many more. How many bytes a content has is
        known without reading it, and no character has more than four. The last value is the limit."""
        if most is not None:
            size = " + ".join(f"coalesce(octet_length({name}), 0)" for name in contents)
            sizes = await self.fetch(f"select {size} from ({sql}) as page", *values)  # noqa: S608
            totals = accumulate(size for (size,) in sizes)
            values = [*values[:-1], min(values[-1], 1 + sum(total < 4 * most for total in totals))]
        return await self.fetch(sql, *values)

    async def fetch(self, sql: str, *values: Any) -> list[Any]:
        if any(isinstance(value, str) and "\0" in value for value in values):
            return []  # PostgreSQL keeps no such text, so nothing is equal to it
        give_up, tries = self._loop.time() + self._patience.read, backoff()
        caller = asyncio.current_task()
        cancels = 0 if caller is None else caller.cancelling()
        while True:
            is_lost = True
            try:
                async with self._readers.acquire(timeout=self._patience.read) as connection:
                    try:
                        rows: list[Any] = await connection.fetch(numbered(sql), *values)
                    except Exception:
                        is_lost = _is_lost(connection)  # afterwards it is the pool's again, and says nothing
                        raise
            except Exception as failure:
                if caller is not None and caller.cancelling() > cancels:
                    # The pool waits for a database that says nothing to take the cancellation, and then raises that.
                    raise asyncio.CancelledError from None
                if self._connector.is_closed:
                    raise StoreFailed("the store is closed; the desk is shutting down") from None
                if not is_lost and not passes(failure):
                    raise
                self._troubles.note("reading", self._troubles.away(failure))
                if self._loop.time() > give_up:
                    raise StoreFailed(f"{self._troubles.now['reading']}; try again") from None
                await tries.wait()
            else:
                self._troubles.clear("reading")
                return rows


def _is_lost(connection: Connection) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:  # the pool has taken it back by itself
        return True


async def _leave_as_it_is(connection: Connection) -> None:
    """Readers hold no state that a next reader could mind."""
