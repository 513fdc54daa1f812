"""Notices sessions that people dismissed, or took from us: what waits there for an answer can only get it elsewhere."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from handraise.channels import Postbox, SendFailed
from handraise.channels.linear.api import Api
from handraise.channels.linear.room import Room

__all__ = ["GONE", "notice_dismissed"]

log = logging.getLogger(__name__)

GONE = "the session was dismissed in Linear, so nobody can answer there"
EVERY = 60.0  # seconds between two looks at sessions that wait for an answer: Linear tells of some of these only


async def notice_dismissed(room: Room, api: Api, inbox: Postbox, *, name: str, hint: asyncio.Event) -> None:
    """Report what they ask as not shown, so that it does not wait there unseen. Until cancelled; `hint` has it look."""
    told: set[str] = set()
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(EVERY):
                await hint.wait()
        hint.clear()
        waiting = {row.ask: row.id for row in await room.open() if row.ask is not None and row.shown_at is not None}
        told &= waiting.keys()
        for ask in waiting.keys() - told:
            try:
                if not await api.is_gone(waiting[ask]):
                    continue
            except SendFailed as failure:
                log.info("%s: whether session %s is still there cannot be told: %s", name, waiting[ask], failure)
                break
            log.warning("%s: ask %s waits in session %s, which was dismissed", name, ask, waiting[ask])
            await inbox.showed(ask, "failed", channel=name, error=GONE)
            told.add(ask)
