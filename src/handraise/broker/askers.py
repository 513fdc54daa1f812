"""Withdraws what programs asked that are gone without a word: they had a lease, and let it run out."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from handraise.broker import Broker
from handraise.errors import AlreadyAnswered, AskNotFound, AskWithdrawn, StoreError
from handraise.stores import Query
from handraise.tables.leases import AskLeases

__all__ = ["GONE", "watch_askers", "withdraw_of_gone"]

log = logging.getLogger(__name__)

LOOK_EVERY = 10.0  # seconds
GRACE = 60.0  # seconds after a start, or after the machine slept, in which programs may say that they are there
GONE = "the program that asked is gone"


async def watch_askers(broker: Broker) -> None:
    """Look again and again, until cancelled."""
    pause = GRACE
    while True:
        before = broker.clock.now()
        await asyncio.sleep(pause)
        has_slept = broker.clock.now() - before > (pause + LOOK_EVERY) * 1000
        pause = GRACE if has_slept else LOOK_EVERY
        if has_slept:
            continue
        try:
            await withdraw_of_gone(broker)
        except StoreError as failure:
            log.error("what programs asked that are gone could not be withdrawn, trying again: %s", failure)


async def withdraw_of_gone(broker: Broker) -> None:
    leases = AskLeases(broker.store)
    for worker, owner in await leases.gone():
        after = 0
        query = Query(state="asked", worker=worker, owner=owner)
        while page := await broker.store.find(query, after=after):
            after = page[-1].seq
            for stored in page:
                with suppress(AlreadyAnswered, AskNotFound, AskWithdrawn):
                    await broker.withdraw(stored.id, reason=GONE)
        await leases.forget(worker, owner=owner)
