"""How the asks of one session are handled, said once for all of them."""

from __future__ import annotations

from handraise.agents import HandlingAsker
from handraise.asks import Answer, Ask, Handling

__all__ = ["Handled"]


class Handled:
    """An asker whose asks are all handled in the same way: that of a step, of a session or of the settings."""

    def __init__(self, asker: HandlingAsker, handling: Handling) -> None:
        self._asker = asker
        self._handling = handling
        self.withdraw, self.delivered = asker.withdraw, asker.delivered

    async def ask(self, ask: Ask, *, ordinal: bool = False) -> Answer:
        return await self._asker.ask(ask, handling=self._handling, ordinal=ordinal)
