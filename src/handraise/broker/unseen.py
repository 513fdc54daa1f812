"""Unseen asks: what happens to an ask that no channel could show while nobody looks at the desk."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from handraise.broker import states
from handraise.broker.closing import Closing
from handraise.broker.counts import Counts
from handraise.clock import Clock
from handraise.errors import StoreError
from handraise.stores import Store
from handraise.tables.showings import Showings

__all__ = ["Unseen"]

log = logging.getLogger(__name__)

RETRY = 1000  # milliseconds until it is looked again where that failed
UNSEEN_AFTER = 10_000  # milliseconds that other channels get to show what one could not


class Unseen:
    """`wake` is called when it is time to look; `look_again` then looks."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        counts: Counts,
        is_anybody_there: Callable[[], Awaitable[bool]],
        showings: Showings,
        closing: Closing,
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._counts = counts
        self._is_anybody_there = is_anybody_there
        self._showings = showings
        self._closing = closing
        self._wake = wake
        self._doubtful: list[tuple[int, str]] = []  # asks that a channel could not show, and when to look again
        self._alarmed: set[str] = set()  # open asks of which it was told that nobody sees them

    def doubt(self, id: str, *, at: int) -> None:
        """A channel could not show the ask."""
        self._doubtful.append((at + UNSEEN_AFTER, id))
        self._clock.call_at(at + UNSEEN_AFTER, self._wake)

    def forget(self, id: str) -> None:
        """The ask is settled."""
        self._alarmed.discard(id)

    async def look_again(self) -> None:
        """At what a channel could not show: no other has shown it since, and nobody looks at the desk."""
        now = self._clock.now()
        due = dict.fromkeys(id for when, id in self._doubtful if when <= now)
        try:
            for id in due:
                trouble = None if await self._is_anybody_there() else await self._showings.trouble(id)
                if trouble is not None:
                    await self._go_on(id, trouble)
        except StoreError as failure:
            log.error("what nobody was shown could not be looked at, trying again: %s", failure)
            self._clock.call_at(now + RETRY, self._wake)
            return
        self._doubtful = [(when, id) for when, id in self._doubtful if when > now]

    async def _go_on(self, id: str, trouble: str) -> None:
        """What policy says about silence happens now. Where it says to wait, that is told as an alarm."""
        now = self._clock.now()
        stored = await self._store.get(id)
        if stored is None or stored.state != "asked" or id in self._alarmed:
            return
        log.error("nobody could be shown ask %s: %s", id, trouble)
        self._counts.unseen += 1
        if stored.fallback is None:
            self._alarmed.add(id)  # told once, however often the channel tries
            told = await self._store.change(id, states.alarm(at=now))
            if told is None or not told.done:
                self._alarmed.discard(id)
            return
        answer = states.unseen_answer(stored, trouble=trouble)
        changed = await self._store.change(id, await self._closing.by_policy(stored, answer, at=now))
        self._closing.count(changed, by=states.BY_UNSEEN, at=now)
