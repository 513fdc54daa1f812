"""A clock that moves only when it is told to."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count

__all__ = ["FakeClock"]

ROUNDS = 100  # turns of the event loop after a timer: a desk in memory needs three for each ask that is due


class FakeClock:
    """Give it to a broker as `clock=`. It begins at `start` and stands still between two `advance`s."""

    def __init__(self, *, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = round(start.timestamp() * 1000)
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._cancelled: set[int] = set()
        self._number = count()

    def now(self) -> int:
        return self._now

    def call_at(self, when: int, callback: Callable[[], None]) -> Callable[[], None]:
        if when <= self._now:
            return asyncio.get_running_loop().call_soon(callback).cancel
        number = next(self._number)
        heapq.heappush(self._timers, (when, number, callback))
        return lambda: self._cancelled.add(number)

    async def advance(self, seconds: float) -> None:
        """Let time pass: every timer that falls due fires at its own instant, and the loop runs after each.

        What a desk in memory does about it is done when this returns. A desk on a disk commits in a thread of its
        own: wait for the event.
        """
        until = self._now + round(seconds * 1000)
        while self._timers and self._timers[0][0] <= until:
            when, number, callback = heapq.heappop(self._timers)
            if number in self._cancelled:
                self._cancelled.discard(number)
                continue
            self._now = when
            callback()
            await _let_the_loop_run()
        self._now = until
        await _let_the_loop_run()


async def _let_the_loop_run() -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)
