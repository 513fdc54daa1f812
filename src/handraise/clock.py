"""Where the desk's time comes from. Milliseconds since 1970; tests bring a clock of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Clock", "SystemClock"]

# A wall clock may jump and a laptop may sleep: never trust one timer for longer than this.
LONGEST_SLEEP = 60.0


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
