"""The desk for a program that may be killed: it says again and again that it is there, so that nothing stays open."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress

from handraise.asks import Ask, Handling
from handraise.client import Client
from handraise.errors import HandraiseError

__all__ = ["Leased"]

SECONDS = 120.0  # that the desk waits for a word; a laptop may be closed for a moment
EVERY = 20.0  # seconds


class Leased:
    """All that tools need of a desk. Run `keep` beside them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._worker = f"mcp-{secrets.token_hex(8)}"
        self._asked = asyncio.Event()
        self.get, self.wait, self.withdraw = client.get, client.wait, client.withdraw
        self.delivered = client.delivered

    async def open(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Ask:
        if not self._asked.is_set():
            await self._renew()
            self._asked.set()
        return await self._client.open(ask, handling=handling, ordinal=ordinal, worker=self._worker)

    async def keep(self) -> None:
        """Until cancelled."""
        await self._asked.wait()
        while True:
            await asyncio.sleep(EVERY)
            await self._renew()

    async def _renew(self) -> None:
        with suppress(HandraiseError):  # the desk may be an older one, and a lost word is said again
            await self._client.call("POST", "/v1/leases", body={"worker": self._worker, "seconds": SECONDS})
