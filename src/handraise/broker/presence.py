"""Whether somebody looks at what waits, right now: at this desk, or at another on the same database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from handraise.errors import StoreError
from handraise.tables.leases import Leases
from handraise.tasks import Tasks

__all__ = ["Presence"]

log = logging.getLogger(__name__)

LOOKED_AT = "people at "  # how the leases of desks begin that somebody looks at; no channel is called so


class Presence:
    """Use as an async context manager. Without `leases` no other desk has this database."""

    def __init__(self, leases: Leases | None = None) -> None:
        self._leases = leases
        self._lookers = 0
        self._changed = asyncio.Event()
        self._tasks = Tasks()

    async def __aenter__(self) -> Self:
        if self._leases is not None:
            self._tasks.start(self._tell(self._leases))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.close()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Somebody does, for as long as the context is open."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        before, self._lookers = self._lookers, self._lookers + more
        if not (before and self._lookers):
            self._changed.set()

    async def is_there(self) -> bool:
        """Raises StoreError."""
        if self._lookers or self._leases is None:
            return self._lookers > 0
        return any(name.startswith(LOOKED_AT) for name in await self._leases.held())

    async def _tell(self, leases: Leases) -> None:
        """The other desks, while somebody looks at this one."""
        name = LOOKED_AT + leases.owner
        is_told = False
        try:
            while True:
                self._changed.clear()
                try:
                    if self._lookers:
                        is_told = await leases.hold(name)
                    elif is_told:
                        await leases.let_go(name)
                        is_told = False
                except StoreError as failure:
                    log.warning("the other desks cannot be told whether somebody looks at this one: %s", failure)
                with suppress(TimeoutError):
                    async with asyncio.timeout(leases.seconds / 3 if self._lookers or is_told else None):
                        await self._changed.wait()
        finally:
            if is_told:
                await leases.let_go(name)
