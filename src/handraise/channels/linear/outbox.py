"""Posts what was written down: in order within a session, sessions beside each other, again where it failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from handraise.channels import Postbox, SendFailed
from handraise.channels._posting import often
from handraise.channels.linear.api import Api
from handraise.channels.linear.dismissals import GONE
from handraise.channels.linear.room import Outgoing, Room
from handraise.clock import Clock

__all__ = ["Outbox"]

log = logging.getLogger(__name__)

AT_ONCE = 4  # calls to Linear
CALM = 30.0  # seconds between two tries of what failed a few times


class Outbox:
    """`run` posts until cancelled. What shows an ask is reported to the desk: sent, or failed and why."""

    def __init__(self, room: Room, api: Api, *, name: str, clock: Clock) -> None:
        self._room = room
        self._api = api
        self._name = name
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._busy: set[str] = set()

    async def run(self, inbox: Postbox) -> None:
        news = asyncio.Event()
        news.set()
        hush = self._room.hear(news.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await news.wait()
                    news.clear()
                    for session in {waiting.session for waiting in await self._room.outgoing()} - self._busy:
                        self._busy.add(session)
                        tasks.create_task(self._post_all(session, inbox, news))
        finally:
            hush()

    async def _post_all(self, session: str, inbox: Postbox, news: asyncio.Event) -> None:
        try:
            while waiting := [each for each in await self._room.outgoing() if each.session == session]:
                if not await self._is_wanted(waiting):
                    await self._room.sent(waiting[0], at=self._clock.now(), error="it was not worth sending any more")
                    continue
                await self._post(waiting[0], inbox)
        finally:
            self._busy.discard(session)
            news.set()  # something may have been written down between the last look and now

    async def _is_wanted(self, waiting: Sequence[Outgoing]) -> bool:
        """Not what would vanish at once, and not a question that is settled by now."""
        first = waiting[0]
        if first.ephemeral and any(later.activity is not None for later in waiting[1:]):
            return False
        if first.ask is None:
            return True
        session = await self._room.get(first.session)
        return session is not None and session.ask == first.ask

    async def _post(self, first: Outgoing, inbox: Postbox) -> None:
        try:
            shown_at = await often(lambda: self._send(first), turns=self._turns)
        except SendFailed as failure:
            log.warning("session %s of %s: %s", first.session, self._name, failure)
            if failure.again is None or first.ephemeral or first.link is not None:
                await self._room.sent(first, at=self._clock.now(), error=str(failure))
                if first.ask is not None:
                    await inbox.showed(first.ask, "failed", channel=self._name, error=str(failure))
            else:
                await self._wait_out(first.session, failure, inbox, seconds=max(failure.again, CALM))
            return
        await self._room.sent(first, at=self._clock.now(), shown_at=shown_at)
        if first.ask is not None:
            await inbox.showed(first.ask, "sent", channel=self._name, place=first.id)

    async def _wait_out(self, session: str, failure: SendFailed, inbox: Postbox, *, seconds: float) -> None:
        """Let the time pass until it may be tried again. What waits to be shown meanwhile is said to have failed."""
        news, told = asyncio.Event(), set[str]()
        hush = self._room.hear(news.set)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    waiting = [each.ask for each in await self._room.outgoing() if each.session == session]
                    for ask in dict.fromkeys(filter(None, waiting)):
                        if ask not in told:
                            told.add(ask)
                            await inbox.showed(ask, "failed", channel=self._name, error=str(failure))
                    await news.wait()
                    news.clear()
        except TimeoutError:
            return
        finally:
            hush()

    async def _send(self, first: Outgoing) -> str:
        """When it was posted, by Linear's clock."""
        if first.link is not None:
            await self._api.add_link(first.session, label=first.link.label, url=first.link.url)
        if first.activity is None:
            return ""
        if first.ask is not None and await self._api.is_gone(first.session):
            raise SendFailed(GONE, again=None)
        try:
            return await self._api.create(
                id=first.id, session=first.session, activity=first.activity, ephemeral=first.ephemeral
            )
        except ValueError as mistake:  # ours; what comes after it is still worth sending
            raise SendFailed(f"it is nothing that Linear takes: {mistake}", again=None) from mistake
