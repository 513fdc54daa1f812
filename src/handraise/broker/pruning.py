"""Pruning: forgets what is older than a desk keeps, a little at a time, so that nobody's write waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from handraise.broker.counts import Counts
from handraise.clock import Clock, sleep
from handraise.errors import StoreError
from handraise.stores import Store
from handraise.tables.links import Links
from handraise.tables.showings import Showings

__all__ = ["MOST_AT_ONCE", "Forget", "prune_in_turn"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 500  # events that are pruned in one commit
PRUNE_EVERY = 60.0  # seconds
BETWEEN_PRUNES = 0.05  # seconds


class Forget(Protocol):
    """Forgets what is old, a little at a time. Returns how many rows went; 0 means that was all."""

    async def __call__(self, *, before: int, limit: int) -> int: ...


async def prune_in_turn(
    store: Store,
    *,
    keep: timedelta,
    clock: Clock,
    counts: Counts,
    showings: Showings,
    links: Links,
    forgetting: Sequence[Forget] = (),
) -> None:
    """Until cancelled. `forgetting` is looked at anew each time."""
    while True:
        try:
            before = clock.now() - round(keep.total_seconds() * 1000)
            gone = MOST_AT_ONCE
            while gone == MOST_AT_ONCE:
                gone = await store.prune(before=before, limit=MOST_AT_ONCE)
                counts.pruned += gone
                await asyncio.sleep(BETWEEN_PRUNES)
            for forget in tuple(forgetting):
                while await forget(before=before, limit=MOST_AT_ONCE):  # noqa: ASYNC110 - it does a part each time
                    await asyncio.sleep(BETWEEN_PRUNES)
            await showings.forget(limit=MOST_AT_ONCE)
            await links.forget()
        except StoreError as failure:
            log.error("what is older than %s could not be pruned, trying again later: %s", keep, failure)
        await sleep(PRUNE_EVERY, clock=clock)
