"""What a desk counts while it works: plain numbers, added to where things happen. `server/metrics.py` tells them.

No metrics library: `prometheus-client` takes 0.15 s to import and 1 to 3 µs for each number, and all we would use of it
is its writer of a format that takes us sixty lines; the tests read what we write with its strict parser.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence

__all__ = ["Counts", "Histogram", "Lag"]

MINUTE, HOUR, DAY = 60, 3600, 86_400
ANSWERS = (0.1, 1, 5, 15, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 4 * HOUR, DAY, 3 * DAY, 7 * DAY)  # seconds
LAGS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)  # seconds

TICK = 0.5  # seconds between two looks at the event loop
RECENT = 60.0  # seconds


class Histogram:
    """How many values fell into each bucket. A bucket's own bound belongs to it; the last bucket has none."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(map(float, bounds))
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, *, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


class Counts:
    """What this desk did since it started. What other desks did on the same database is counted there."""

    __slots__ = (
        "answers",
        "delivered",
        "failed",
        "permissions",
        "pruned",
        "questions",
        "races_lost",
        "unseen",
        "withdrawn",
    )

    def __init__(self) -> None:
        self.questions = 0  # raised
        self.permissions = 0  # raised
        self.answers = {  # seconds until somebody or something decided, by what it was
            "person": Histogram(ANSWERS),
            "policy": Histogram(ANSWERS),
            "timeout": Histogram(ANSWERS),
            "agent": Histogram(ANSWERS),
        }
        self.races_lost = 0  # answers to what was settled already
        self.withdrawn = 0
        self.delivered = 0
        self.failed = 0  # deliveries
        self.pruned = 0  # events
        self.unseen = 0  # asks that no channel could show while nobody looked

    def decided(self, by: str, *, after: int) -> None:
        """An ask has its answer `after` this many milliseconds. `by` is that of the answer."""
        if by[:7] == "policy:":
            who = "timeout" if by == "policy:timeout" else "policy"
        else:
            who = "agent" if by == "agent" else "person"
        self.answers[who].add(after / 1000 if after > 0 else 0.0)  # two machines' clocks may disagree


class Lag:
    """How late the event loop comes to what is due. `watch` runs for as long as the desk does."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self.all = Histogram(LAGS)  # seconds
        self._now = now
        self._due: float | None = None
        self._recent: deque[tuple[float, float]] = deque()  # when, and how late

    async def watch(self) -> None:
        try:
            while True:
                self._due = self._now() + TICK
                await asyncio.sleep(TICK)
                self._note(late=max(0.0, self._now() - self._due))
        finally:
            self._due = None  # nobody looks any more, so nothing is overdue

    def _note(self, *, late: float) -> None:
        self.all.add(late)
        self._recent.append((self._now(), late))
        self._forget()

    def _forget(self) -> None:
        while self._recent and self._recent[0][0] < self._now() - RECENT:
            self._recent.popleft()

    @property
    def worst(self) -> float:
        """How many seconds it was late at worst within the last minute, and is late right now."""
        self._forget()
        overdue = 0.0 if self._due is None else self._now() - self._due
        return max(0.0, overdue, *(late for _, late in self._recent))
