"""Following the events of a store: history first, then live, every event once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import cached_property

from handraise.clock import Clock
from handraise.stores import Query, Store
from handraise.wire import LARGE, StoredEvent, pruned_frame

__all__ = ["LONGEST_PAGE", "Batch", "Feed", "Feeds", "Silence"]

PAGE = 500  # events read at once while catching up
MOST_WAITING = 20_000  # events a follower may be behind before its buffer is given up
LONGEST_WAITING = 8 * 1024 * 1024  # characters of them
LONGEST_PAGE = 2 * 1024 * 1024  # characters of events read at once, unless one is longer


class Batch:
    """The events of one commit, encoded once for everybody who follows them all.

    `pruned` tells a follower that events it has not seen, up to this cursor, were pruned before the events of this
    batch: what it knows of asks is too old, and it should list them again.
    """

    def __init__(self, events: Sequence[StoredEvent], *, now: int, pruned: int | None = None) -> None:
        self.events = events
        self.pruned = pruned
        self._now = now

    @property
    def last(self) -> int:
        return self.events[-1].cursor if self.events else self.pruned or 0

    @cached_property
    def size(self) -> int:
        """Characters of its asks."""
        return sum([len(event.ask.content) for event in self.events])

    @cached_property
    def frames(self) -> bytes:
        told = b"".join([event.frame(self._now) for event in self.events])
        return told if self.pruned is None else pruned_frame(self.pruned, now=self._now) + told

    def pieces(self) -> Iterator[bytes]:
        """The frames of a large batch, to be sent one behind the other. They are made anew for everyone who wants them,
        and nobody holds all of them."""
        if self.pruned is not None:
            yield pruned_frame(self.pruned, now=self._now)
        for event in self.events:
            yield from event.pieces(self._now)

    @cached_property
    def chunk(self) -> Sequence[bytes]:
        """The frames as a piece of a chunked response, the same objects for every listener."""
        if self.size <= LARGE:
            return (b"%x\r\n%s\r\n" % (len(self.frames), self.frames),)
        pieces = (*self.pieces(), b"\r\n")
        return b"%x\r\n" % (sum(map(len, pieces)) - 2), *pieces

    def only(self, query: Query, *, after: int) -> Batch | None:
        """What of this batch a follower has not seen and wants to."""
        if query.everything and self.events[0].cursor > after:
            return self
        events = [event for event in self.events if event.cursor > after and query.matches(event.ask)]
        return Batch(events, now=self._now) if events else None


class Silence(list[Batch]):
    """No batches: a heartbeat. Up to the cursor `seen` there was nothing else for this follower."""

    def __init__(self, seen: int) -> None:
        super().__init__()
        self.seen = seen


class Feed:
    """One follower. Iterate `batches()`; a follower that falls too far behind reads on from the store.

    `on_overflow` is called instead where falling behind should end the follower. `take` is offered what is new while
    the follower waits for news with nothing else to do, and says whether it took it; then nobody is woken for it.
    """

    def __init__(
        self,
        feeds: Feeds,
        query: Query,
        *,
        after: int,
        on_overflow: Callable[[], None] | None,
        take: Callable[[Batch], bool] | None,
    ) -> None:
        self._feeds = feeds
        self._query = query
        self._seen = after
        self._on_overflow = on_overflow
        self._take = take
        self._idle = False
        self._live: list[Batch] = []
        self._waiting = 0
        self._size = 0
        self._behind = True
        self._news = asyncio.Event()
        self._ended = False
        self._poked = False

    def push(self, batch: Batch) -> None:
        if self._behind:
            return
        if self._idle and self._take is not None and not self._live:
            wanted = batch.only(self._query, after=self._seen)
            if wanted is None or self._take(wanted):
                self._seen = max(self._seen, batch.last)
                return
        if self._waiting > self._feeds.most_waiting or self._size > LONGEST_WAITING:
            self._live, self._waiting, self._size, self._behind = [], 0, 0, True
            if self._on_overflow is not None:
                self._on_overflow()
        else:
            self._live.append(batch)
            self._waiting += len(batch.events)
            self._size += batch.size
        self._news.set()

    def poke(self) -> None:
        """Wake the follower with nothing, for a heartbeat."""
        self._poked = True
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def batches(self) -> AsyncIterator[list[Batch]]:
        """Whatever is new, gathered, or `Silence` for a heartbeat. Ends when the desk does."""
        while not self._ended:
            if self._behind:
                async for batch in self._catch_up():
                    yield [batch]
                    del batch  # here and below: a large page is not held while the next one is read
                continue
            if not self._live and not self._poked:
                self._news.clear()
                self._idle = True
                await self._news.wait()
                self._idle = False
            live, self._live, self._waiting, self._size = self._live, [], 0, 0
            wanted = [fresh for batch in live if (fresh := batch.only(self._query, after=self._seen))]
            if live:
                self._seen = max(self._seen, live[-1].last)
            if wanted or self._poked:
                self._poked = False
                yield wanted or Silence(self._seen)

    async def _catch_up(self) -> AsyncIterator[Batch]:
        while True:
            # Live from here on: what commits while the page is read is buffered, and known by its cursor.
            self._live, self._waiting, self._size, self._behind = [], 0, 0, False
            store = self._feeds.store
            page = await store.history(self._query, after=self._seen, limit=PAGE, most=LONGEST_PAGE)
            pruned = await store.pruned()  # read last: what went before the page was read is noticed
            if len(page) == PAGE or sum(len(event.ask.content) for event in page) >= LONGEST_PAGE:
                self._behind = True
            if page:  # what is on the page was read before it went
                pruned = min(pruned, page[0].cursor - 1)
            missed = pruned if self._seen < pruned else None
            if page or missed:
                batch = Batch(page, now=self._feeds.clock.now(), pruned=missed)
                self._seen = batch.last
                del page
                yield batch
                del batch
            if not self._behind:
                return


class Feeds:
    """Everybody who follows a store. `most_waiting` is how many events a follower may be behind."""

    def __init__(self, store: Store, clock: Clock, *, most_waiting: int = MOST_WAITING) -> None:
        self.store = store
        self.clock = clock
        self.most_waiting = most_waiting
        self._feeds: set[Feed] = set()
        self._closed = False
        self._stop = store.tail(self._told)

    def __len__(self) -> int:
        return len(self._feeds)

    def follow(
        self,
        query: Query,
        *,
        after: int,
        on_overflow: Callable[[], None] | None = None,
        take: Callable[[Batch], bool] | None = None,
    ) -> Feed:
        """Follow what comes after a cursor. Leave with `leave`."""
        feed = Feed(self, query, after=after, on_overflow=on_overflow, take=take)
        if self._closed:
            feed.end()
        self._feeds.add(feed)
        return feed

    def leave(self, feed: Feed) -> None:
        self._feeds.discard(feed)

    def poke(self) -> None:
        """A heartbeat for everybody, as long as we hear what other desks do: a follower of a desk that has fallen
        silent looks for another one."""
        if "listening" in self.store.troubles:
            return
        for feed in self._feeds:
            feed.poke()

    def close(self) -> None:
        self._stop()
        self._closed = True
        for feed in self._feeds:
            feed.end()

    def _told(self, events: Sequence[StoredEvent]) -> None:
        if self._feeds:
            batch = Batch(events, now=self.clock.now())
            for feed in tuple(self._feeds):
                feed.push(batch)
