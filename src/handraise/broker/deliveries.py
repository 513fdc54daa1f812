"""Deliveries: whether agents took their answers. Reports are gathered and written in batches, off the waiting path.

An answer of which its agent says nothing for a while is told as one that nobody came for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import takewhile

from handraise.broker import states
from handraise.broker.counts import Counts
from handraise.clock import Clock
from handraise.errors import StoreError
from handraise.stores import Store
from handraise.wire import Stored

__all__ = ["DELIVERIES_AFTER", "Deliveries"]

log = logging.getLogger(__name__)

DELIVERIES_AFTER = 0.02  # seconds in which deliveries gather, so that the next ask does not queue behind their commit
RETRY = 1000  # milliseconds until a write that failed is tried again


class Deliveries:
    """`wake` is called when there is something to write; `flush` and `tell_untaken` then write it.

    `taken_within` is how many milliseconds an agent has to take an answer or to say why it cannot; None is for ever.
    """

    def __init__(
        self, store: Store, *, clock: Clock, counts: Counts, wake: Callable[[], None], taken_within: int | None
    ) -> None:
        self._store = store
        self._clock = clock
        self._counts = counts
        self._wake = wake
        self._taken_within = taken_within
        self._reported: list[tuple[str, str | None]] = []
        self._flushing = asyncio.Lock()
        self._untaken: dict[str, int] = {}  # answers without a word from their agents, and until when; oldest first
        self._is_timed = False  # one timer for all of them
        self._cancel_timer: Callable[[], None] = lambda: None

    async def read(self) -> None:
        for id in await self._store.untaken():
            self.expect(id, since=self._clock.now())

    def close(self) -> None:
        self._cancel_timer()

    # Reports ----------------------------------------------------------------------------------------------

    def add(self, id: str, error: str | None = None) -> None:
        """The agent took the answer, or could not."""
        if not self._reported:
            asyncio.get_running_loop().call_later(DELIVERIES_AFTER, self._wake)
        self._reported.append((id, error))

    async def flush(self) -> None:
        """When this returns, what was reported before is written."""
        async with self._flushing:
            reported, self._reported = self._reported, []
            if not reported:
                return
            try:
                await self.write(reported)
            except StoreError as failure:
                log.error("%d deliveries could not be written, trying again: %s", len(reported), failure)
                self._reported = reported + self._reported
                self._clock.call_at(self._clock.now() + RETRY, self._wake)
            except asyncio.CancelledError:  # who was cancelled here is not the one who reported them
                self._reported = reported + self._reported
                self._wake()
                raise

    async def write(self, deliveries: Iterable[tuple[str, str | None]]) -> list[Stored | None]:
        """Write deliveries now, `(id, error)` each; None stands for an ask nobody knows.

        An ask is written once, however often it is named: taken if one entry says so, else with the last error.
        """
        now = self._clock.now()
        taken = states.deliver(at=now, error=None)
        named = list(deliveries)
        said: dict[str, str | None] = {}
        for id, error in named:
            if said.get(id, "") is not None:
                said[id] = error
        changes = {id: taken if error is None else states.deliver(at=now, error=error) for id, error in said.items()}
        reported = dict(zip(changes, await self._store.change_all(list(changes.items())), strict=True))
        unknown = [id for id, changed in reported.items() if changed is None]
        newest = await self._store.newest(unknown) if unknown else {}  # those that are named without their ordinal
        again = [(stored.id, changes[id]) for id, stored in newest.items()]
        reported |= zip(newest, await self._store.change_all(again), strict=True)
        for id, changed in reported.items():
            if changed is not None and changed.done:
                self._counts.delivered += changes[id] is taken
                self._counts.failed += changes[id] is not taken
        return [None if (changed := reported[id]) is None else changed.stored for id, _ in named]

    # Answers that nobody came for -------------------------------------------------------------------------

    def expect(self, id: str, *, since: int) -> None:
        """An answer was given: its agent has until then to take it."""
        if self._taken_within is None:
            return
        self._untaken[id] = since + self._taken_within
        if not self._is_timed:
            self._set_timer(at=since + self._taken_within)

    def forget(self, id: str) -> None:
        """Something else happened to the ask, so nobody needs to be told."""
        if self._untaken:
            self._untaken.pop(id, None)

    def _set_timer(self, *, at: int) -> None:
        def fire() -> None:
            self._is_timed = False
            self._wake()

        self._is_timed = True
        self._cancel_timer = self._clock.call_at(at, fire)

    async def tell_untaken(self) -> None:
        """Say of answers that nobody came for them. An agent that comes later still gets its answer."""
        if self._is_timed or not self._untaken:
            return
        now = self._clock.now()
        due = [id for id, until in takewhile(lambda entry: entry[1] <= now, self._untaken.items())]
        change = states.nobody_came(at=now)
        try:
            for changed in await self._store.change_all([(id, change) for id in due]):
                self._counts.failed += changed is not None and changed.done
        except StoreError as failure:
            log.error("%d answers that nobody came for could not be told, trying again: %s", len(due), failure)
            self._set_timer(at=now + RETRY)
            return
        for id in due:
            self._untaken.pop(id, None)
        if self._untaken:
            self._set_timer(at=next(iter(self._untaken.values())))
