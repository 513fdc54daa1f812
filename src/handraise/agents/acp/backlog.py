"""What an agent said to its clients, numbered and kept for a while, so that a reader may come late, or come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from handraise.errors import MessagesGone

__all__ = ["MOST_BYTES", "MOST_MESSAGES", "Backlog", "Overrun"]

MOST_MESSAGES = 20_000
MOST_BYTES = 16 * 1024 * 1024
PAGE = 64 * 1024  # bytes that a reader takes at once; what it does not read is not copied for it


class Overrun(Exception):
    """A reader was so slow that what it has not read is gone. Cut it: if it comes back, it is told so."""


class Backlog:
    """Messages by their number, from 1 on. The oldest go first, except those that are held.

    A reader has no buffer: it takes what comes after its own place, as fast as it likes.
    """

    def __init__(self, *, most: int = MOST_MESSAGES, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._messages: dict[int, bytes] = {}
        self._size = 0
        self._held: dict[int, bytes | None] = {}  # the message itself once it is gone from the others
        self._last = 0
        self._readers: set[asyncio.Event] = set()
        self._is_closed = False

    @property
    def last(self) -> int:
        return self._last

    @property
    def gone(self) -> int:
        """The number of the newest message that is no longer kept."""
        return self._last - len(self._messages)

    def add(self, message: bytes, *, hold: bool = False) -> int:
        """Its number. One that is held is kept until it is let go, for readers that begin at the start."""
        self._last += 1
        self._messages[self._last] = message
        self._size += len(message)
        if hold:
            self._held[self._last] = None
        while len(self._messages) > 1 and (len(self._messages) > self._most or self._size > self._most_bytes):
            self._drop()
        for reader in self._readers:
            reader.set()
        return self._last

    def let_go(self, number: int) -> None:
        self._held.pop(number, None)

    def close(self) -> None:
        """Every reader comes to its end once it has read the rest."""
        self._is_closed = True
        for reader in self._readers:
            reader.set()

    def check(self, after: int) -> None:
        """Raises MessagesGone where not all that comes after this number can be told."""
        if not self.gone <= after <= self._last:
            raise MessagesGone(after=after, first=self.gone + 1, last=self._last)

    async def read(self, *, after: int, held: bool, silence: float) -> AsyncIterator[list[tuple[int, bytes]]]:
        """Messages after that number, and then those that come. Ends when this is closed.

        With `held`, those come first that are held and gone from the others. An empty list says that nothing came for
        `silence` seconds. Raises Overrun.
        """
        place = after
        news = asyncio.Event()
        self._readers.add(news)
        try:
            waiting = [(number, message) for number, message in self._held.items() if message is not None]
            if held and waiting:
                yield waiting
            while True:
                news.clear()
                page = self._page(place)
                if page:
                    place = page[-1][0]
                    yield page
                    continue
                if self._is_closed:
                    return
                try:
                    async with asyncio.timeout(silence):
                        await news.wait()
                except TimeoutError:
                    yield []
        finally:
            self._readers.discard(news)

    def _page(self, place: int) -> list[tuple[int, bytes]]:
        if place < self.gone:
            raise Overrun
        page: list[tuple[int, bytes]] = []
        size = 0
        while place < self._last and size < PAGE:
            place += 1
            message = self._messages[place]
            page.append((place, message))
            size += len(message)
        return page

    def _drop(self) -> None:
        number = next(iter(self._messages))
        message = self._messages.pop(number)
        self._size -= len(message)
        if number in self._held:
            self._held[number] = message
