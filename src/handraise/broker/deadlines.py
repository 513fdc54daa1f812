"""Deadlines: closes asks whose time is over, as the verdict said when they were asked."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

from handraise.broker import states
from handraise.broker.closing import Closing
from handraise.clock import Clock
from handraise.errors import StoreError
from handraise.stores import Change, Store

__all__ = ["Deadlines"]

log = logging.getLogger(__name__)

RETRY = 1000  # milliseconds until deadlines that could not be written are tried again
MOST_AT_ONCE = 500  # deadlines that are closed in one commit


class Deadlines:
    """`wake` is called when one is due; `expire` then closes what is due."""

    def __init__(self, store: Store, *, clock: Clock, closing: Closing, wake: Callable[[], None]) -> None:
        self._store = store
        self._clock = clock
        self._closing = closing
        self._wake = wake
        self._heap: list[tuple[int, str]] = []  # one that was moved is in it twice
        self._timer_at: tuple[int, str] | None = None
        self._cancel_timer: Callable[[], None] = lambda: None

    async def read(self) -> None:
        self._heap += await self._store.deadlines()  # and those told while it was read
        heapq.heapify(self._heap)

    def add(self, deadline: int, id: str) -> None:
        heapq.heappush(self._heap, (deadline, id))
        self.set_timer()

    def set_timer(self) -> None:
        """Wake at the first deadline, if that is another one than before."""
        first = self._heap[0] if self._heap else None
        if first == self._timer_at:
            return
        self._cancel_timer()
        self._timer_at = first
        if first is not None:
            self._cancel_timer = self._clock.call_at(first[0], self._fire)

    def _fire(self) -> None:
        self._timer_at = None  # it may have been too early: then it is set again
        self._wake()

    def close(self) -> None:
        self._cancel_timer()

    async def expire(self) -> None:
        now = self._clock.now()
        due: dict[str, None] = {}  # told in the order of their deadlines; of one that was moved the last entry counts
        while self._heap and self._heap[0][0] <= now and len(due) < MOST_AT_ONCE:
            _, id = heapq.heappop(self._heap)
            due.pop(id, None)
            due[id] = None
        try:
            changes = [(id, change) for id in due if (change := await self._change(id, now=now)) is not None]
            for changed in await self._store.change_all(changes):
                self._closing.count(changed, by="policy:timeout", at=now)
        except StoreError as failure:
            log.error("%d deadlines could not be written, trying again: %s", len(due), failure)
            for id in due:
                heapq.heappush(self._heap, (now + RETRY, id))

    async def _change(self, id: str, *, now: int) -> Change | None:
        stored = await self._store.get(id)
        if stored is None or stored.state != "asked" or stored.fallback is None:
            return None
        # A deadline that was moved meanwhile is not due, and its own entry is in the heap.
        return await self._closing.by_policy(stored, states.fallback_of(stored), at=now, due=now)
