"""Callers who wait for an ask to be settled. They hold no truth: whoever lost a wait asks again and joins."""

from __future__ import annotations

import asyncio
import math
from typing import TypeAlias

from handraise.wire import Stored

__all__ = ["Wait", "Waits"]

Wait: TypeAlias = "asyncio.Future[Stored | None]"


class Waits:
    def __init__(self) -> None:
        self._by_ask: dict[str, list[Wait]] = {}
        self._closing = False

    def __len__(self) -> int:
        return sum(map(len, self._by_ask.values()))

    def begin(self, id: str) -> Wait:
        """A future that hears of the ask being settled, from now on. Give it back with `end`."""
        wait: Wait = asyncio.get_running_loop().create_future()
        self._by_ask.setdefault(id, []).append(wait)
        return wait

    def end(self, id: str, wait: Wait) -> None:
        waiting = self._by_ask.get(id)
        if waiting is not None and wait in waiting:
            waiting.remove(wait)
            if not waiting:
                del self._by_ask[id]

    async def until_settled(self, wait: Wait, *, timeout: float) -> Stored | None:
        """The ask as it was settled, or None when the time is up or the desk closes."""
        if self._closing:
            return None
        if timeout == math.inf:
            return await wait
        timer = asyncio.get_running_loop().call_later(timeout, _give_up, wait)
        try:
            return await wait
        finally:
            timer.cancel()

    def settle(self, stored: Stored) -> None:
        """Tell everybody who waits for this ask."""
        for wait in self._by_ask.pop(stored.id, ()):
            if not wait.done():
                wait.set_result(stored)

    def cancel(self) -> None:
        """End every wait, now and from now on."""
        self._closing = True
        for waiting in self._by_ask.values():
            for wait in waiting:
                _give_up(wait)


def _give_up(wait: Wait) -> None:
    if not wait.done():
        wait.set_result(None)
