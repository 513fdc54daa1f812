"""Pruning: forgets what is older than a desk keeps, a little at a time, so that nobody's write waits for it."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from handraise.broker.counts import Counts
from handraise.clock import Clock, sleep
from handraise.errors import StoreError
from handraise.stores import Store
from handraise.tables.links import Links
from handraise.tables.showings import Showings

__all__ = ["MOST_AT_ONCE", "prune_in_turn"]

log = logging.getLogger(__name__)

MOST_AT_ONCE = 500  # events that are pruned in one commit
PRUNE_EVERY = 60.0  # seconds
BETWEEN_PRUNES = 0.05  # seconds


async def prune_in_turn(
    store: Store, *, keep: timedelta, clock: Clock, counts: Counts, showings: Showings, links: Links
) -> None:
    """Until cancelled."""
    while True:
        try:
            before = clock.now() - round(keep.total_seconds() * 1000)
            gone = MOST_AT_ONCE
            while gone == MOST_AT_ONCE:
                gone = await store.prune(before=before, limit=MOST_AT_ONCE)
                counts.pruned += gone
                await asyncio.sleep(BETWEEN_PRUNES)
            await showings.forget(limit=MOST_AT_ONCE)
            await links.forget()
        except StoreError as failure:
            log.error("what is older than %s could not be pruned, trying again later: %s", keep, failure)
        await sleep(PRUNE_EVERY, clock=clock)
