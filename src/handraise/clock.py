"""Where the desk's time comes from. Milliseconds since 1970; tests bring a clock of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "SystemClock", "Turns", "give_way"]

# A wall clock may jump and a laptop may sleep: never trust one timer for longer than this.
LONGEST_SLEEP = 60.0
LONGEST_TURN = 64 * 1024  # characters that are parsed or written before others have a turn


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since 1970."""

    def call_at(self, when: int, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back at `when` or earlier; the callback looks at the clock itself. Returns how to cancel."""


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def call_at(self, when: int, callback: Callable[[], None]) -> Callable[[], None]:
        delay = min(max(0.0, (when - self.now()) / 1000), LONGEST_SLEEP)
        return asyncio.get_running_loop().call_later(delay, callback).cancel


async def give_way() -> None:
    """Between two steps that take a while: let everybody else on the loop go on.

    One turn is not enough. A call that arrived during the first step is read in the next turn and answered in the one
    after that, so it would still wait for both steps.
    """
    for _ in range(3):
        await asyncio.sleep(0)


class Turns:
    """For what is done piece by piece: give way whenever the pieces since the last time were many characters."""

    def __init__(self) -> None:
        self._done = 0

    async def after(self, size: int) -> None:
        self._done += size
        if self._done >= LONGEST_TURN:
            self._done = 0
            await give_way()
