"""Tells the desk which answers agents have taken: soon, in batches, and by nobody who waits for it."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from typing import Any

from handraise.client.connection import Connection, path
from handraise.errors import HandraiseError

__all__ = ["Deliveries"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 1000  # deliveries told in one call; a desk takes twice as many
GOODBYE = 2.0  # seconds in which the last deliveries are told; a desk that is down must not hold us


class Deliveries:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: list[dict[str, Any]] = []
        self._has_some = asyncio.Event()
        self._sending = asyncio.Lock()

    def add(self, id: str, *, error: str | None) -> None:
        self._waiting.append({"id": id, "error": error})
        self._has_some.set()

    async def run(self) -> None:
        """Tell them as they come, until it is cancelled."""
        while True:
            await self._has_some.wait()
            self._has_some.clear()
            try:
                await self.send()
            except HandraiseError as failure:
                log.warning("deliveries could not be told to the desk: %s", failure)

    async def send_last(self) -> None:
        if self._waiting:
            with suppress(HandraiseError, TimeoutError):
                async with asyncio.timeout(GOODBYE):
                    await self.send()

    async def send(self) -> None:
        """When this returns, what was reported before is told."""
        async with self._sending:
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                try:
                    body = {"deliveries": batch}
                    await self._connection.call("POST", path("deliveries"), body=body, refusals=math.inf)
                except asyncio.CancelledError:  # who was cancelled here is not the one who reported them
                    self._waiting = batch + self._waiting
                    self._has_some.set()
                    raise
