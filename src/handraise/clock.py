"""Time: the clock of a desk in milliseconds since 1970, pauses between tries, and turns of the event loop.

Tests bring a clock of their own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

__all__ = ["Backoff", "Clock", "SystemClock", "Turns", "give_way", "sleep"]

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


async def sleep(seconds: float, *, until: asyncio.Event | None = None, clock: Clock | None = None) -> None:
    """Wait for so many seconds, or until the event is set. Without a clock, the event loop's own time counts."""
    over = until or asyncio.Event()
    if clock is None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await over.wait()
        return
    when = clock.now() + round(seconds * 1000)
    while clock.now() < when and not over.is_set():  # a clock may call back early
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as limit:
                cancel = clock.call_at(when, partial(limit.reschedule, 0))
                try:
                    await over.wait()
                finally:
                    cancel()


class Backoff:
    """The pauses between tries of one thing. Each is twice as long as the one before, up to `longest` seconds.

    Chance shortens each pause by up to half, so that those who failed together do not all try again together.
    """

    __slots__ = ("_clock", "_first", "_longest", "_next")

    def __init__(self, first: float, *, longest: float, clock: Clock | None = None) -> None:
        self._first = self._next = min(first, longest)
        self._longest = longest
        self._clock = clock

    def reset(self) -> None:
        """It went well: the next pause is the first one again."""
        self._next = self._first

    def next(self) -> float:
        """How many seconds to wait now."""
        from random import uniform  # for start-up time: most commands never try anything again

        seconds, self._next = self._next, min(self._next * 2, self._longest)
        return uniform(seconds / 2, seconds)  # noqa: S311 - nobody gains by guessing it

    async def wait(self, *, least: float = 0.0, until: asyncio.Event | None = None) -> None:
        """Make the next pause, of at least so many seconds. The event ends it early."""
        await sleep(max(least, self.next()), until=until, clock=self._clock)


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
