"""Telling what was committed: this store's own commits at once, those of other desks when a notification comes.

NOTIFY carries the newest cursor and nothing else; what happened is read from the tables, so a notification that was
lost costs only time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from handraise.stores import Tail
from handraise.stores.postgres.connecting import Connection, Connector, Troubles, backoff, passes
from handraise.wire import StoredEvent

__all__ = ["PAGE", "Follower"]

log = logging.getLogger(__name__)

T = TypeVar("T")
PAGE = 500


class Follower:
    """`read_after` reads a page of events after a cursor."""

    def __init__(
        self,
        connector: Connector,
        *,
        troubles: Troubles,
        read_after: Callable[[int], Awaitable[Sequence[StoredEvent]]],
    ) -> None:
        self.told = 0  # the cursor up to which our listeners know everything
        self.own_pid = 0  # of the connection that writes, whose notifications we do not need
        self.channel = ""
        self._connector = connector
        self._troubles = troubles
        self._read_after = read_after
        self._telling = asyncio.Lock()
        self._is_behind = asyncio.Event()
        self._tails: list[Tail] = []
        self._hearers: list[tuple[str, Callable[[], None]]] = []

    def tail(self, listener: Tail) -> Callable[[], None]:
        self._tails.append(listener)
        return partial(_leave, self._tails, listener)

    def hear(self, topic: str, listener: Callable[[], None]) -> Callable[[], None]:
        self._hearers.append((topic, listener))
        return partial(_leave, self._hearers, (topic, listener))

    def catch_up(self) -> None:
        """Something may have been missed."""
        self._is_behind.set()
        self.tell_topic(None)

    async def notice_what_is_lost(self, connection: Connection) -> None:
        """After a new connection: a standby that was behind, or a backup, gives out cursors that we have told once."""
        told = self.told
        cursor = await connection.fetchval("select value from counters where name = 'cursor'")
        if cursor < told:
            log.error(
                "the database at %s has lost the events %d to %d; going on with it",
                self._connector.shown,
                cursor + 1,
                told,
            )
            self.told = cursor

    async def tell_own(self, events: Sequence[StoredEvent], *, before: int) -> None:
        """What we committed, after what other desks committed before it: `before` is the cursor before our own."""
        if not events:
            return
        async with self._telling:
            if self.told < before:
                try:
                    await self._read_on()
                except Exception as failure:  # committed is committed: the follower tells it when it can
                    log.warning("events of other desks could not be read, trying again: %s", failure)
                    self._is_behind.set()
                    return
            self._tell(events)

    async def follow(self) -> None:
        """Tell what other desks committed, whenever a notification says there is something."""
        tries = backoff()
        while True:
            await self._is_behind.wait()
            self._is_behind.clear()
            try:
                async with self._telling:
                    await self._read_on()
                tries.reset()
            except Exception as failure:
                log.warning("events could not be read, trying again: %s", failure)
                self._is_behind.set()
                await tries.wait()

    async def _read_on(self) -> None:
        """Read and tell everything after what was told. `_telling` is held."""
        while True:
            page = await self._read_after(self.told)
            self._tell(page)
            if len(page) < PAGE:
                return

    def _tell(self, events: Sequence[StoredEvent]) -> None:
        if not events or events[-1].cursor <= self.told:
            return
        if events[0].cursor <= self.told:
            events = [event for event in events if event.cursor > self.told]
        self.told = events[-1].cursor
        for listener in tuple(self._tails):
            try:
                listener(events)
            except Exception:  # what is committed is committed: the writers must hear of it
                log.exception("a listener failed on events %d to %d", events[0].cursor, events[-1].cursor)

    def tell_topic(self, wanted: str | None) -> None:
        """None means that any of them may have been missed."""
        for topic, hearer in tuple(self._hearers):
            if wanted in (None, topic):
                try:
                    hearer()
                except Exception:  # as with listeners: it is nobody else's trouble
                    log.exception("somebody who hears %s failed", topic)

    def _notified(self, connection: Connection, pid: int, channel: str, payload: str) -> None:
        word, _, rest = payload.partition(" ")
        if word == "topic":
            if pid != self.own_pid:
                self.tell_topic(rest)
        elif pid != self.own_pid and payload.isdigit() and int(payload) > self.told:
            self._is_behind.set()

    async def listen(self, connection: Connection) -> None:
        """Hear notifications for as long as the store is open; after each lost connection, listen first, then read."""
        tries = backoff()
        while True:
            try:
                if connection is None:
                    connection = await self.listening_connection()
                    await self.notice_what_is_lost(connection)
                    self.catch_up()
                self._troubles.clear("listening")
                tries.reset()
                lost = asyncio.Event()
                connection.add_termination_listener(lambda _, lost=lost: lost.set())
                while True:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(
                            lost.wait(), 0 if connection.is_closed() else self._connector.patience.poll
                        )
                    if await connection.fetchval("select value from counters where name = 'cursor'") > self.told:
                        self._is_behind.set()
            except Exception as failure:
                self._troubles.note("listening", f"what other desks do is not heard: {self._troubles.away(failure)}")
                if connection is not None and not connection.is_closed() and not passes(failure):
                    log.exception("listening failed in a way that nobody thought of")
            finally:
                if connection is not None:
                    connection.terminate()
                connection = None
            await tries.wait()

    async def listening_connection(self) -> Connection:
        connection = await self._connector.connect()
        try:
            await connection.add_listener(self.channel, self._notified)
        except BaseException:
            connection.terminate()
            raise
        return connection


def _leave(those: list[T], one: T) -> None:
    if one in those:
        those.remove(one)
