"""Fills an empty database with asks that are long over, as a desk that runs for months has them.

Three events an ask: asked, answered, delivered. The asks belong to the sessions that the load client asks in, so that
new ones land all over the indexes and not at their end.
"""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import asyncpg

from handraise.app import open_store
from handraise.asks import Answer, Ask, Origin
from handraise.stores import Page
from handraise.wire import answer_text, content_text
from in_process import QUESTIONS
from scenarios import Handraise

TYPES = ("asked", "answered", "delivered")
SESSIONS = 1000
FIRST = 90_000_000  # the load client numbers a session's asks from far below, and these must not be among them
PAGE = 10_000  # rows
APART = 1000  # milliseconds between two asks
ANSWERED_AFTER, DELIVERED_AFTER = 400, 420  # milliseconds

ASK_COLUMNS = ("seq", "id", "owner", "session", "agent", "content", "state", "asked_at", "answer", "delivered_at")
EVENT_COLUMNS = ("cursor", "type", "at", "ask", "state", "asked_at", "answer", "delivered_at")
SESSION_COLUMNS = ("id", "agent", "created_at")


class Past:
    """The rows of so many events."""

    def __init__(self, events: int) -> None:
        self.events = events
        self.asks = -(-events // len(TYPES))
        self.begin = int(time.time() * 1000) - (self.asks + 1) * APART
        name, session = Handraise.name(0, 0).decode(), "s-SESSION"
        self.before, _, rest = content_text(
            Ask(id=name, questions=QUESTIONS, origin=Origin(agent="bench", session=session))
        ).partition(name)
        self.between, _, self.after = rest.partition(session)
        self.answer = answer_text(Answer(answers=(("SQLite",),), by="bench", via="http"), at=self.begin)

    async def pages(self) -> AsyncIterator[Page]:
        """Everything a store's `fill` wants."""
        yield "counters", ("name", "value"), [("pruned", 0)]
        yield "sessions", SESSION_COLUMNS, [(f"s-{number}", "bench", self.begin) for number in range(SESSIONS)]
        for page in _pages(map(self._ask, range(self.asks))):
            yield "asks", ASK_COLUMNS, page
        for page in _pages(map(self._event, range(self.events))):
            yield "events", EVENT_COLUMNS, page

    def _ask(self, number: int) -> tuple[Any, ...]:
        name = Handraise.name(number % SESSIONS, FIRST + number // SESSIONS).decode()
        session = f"s-{number % SESSIONS}"
        content = f"{self.before}{name}{self.between}{session}{self.after}"
        asked_at = self.begin + number * APART
        return (
            *(number + 1, name, "", session, "bench", content, "answered", asked_at, self.answer),
            asked_at + DELIVERED_AFTER,
        )

    def _event(self, number: int) -> tuple[Any, ...]:
        ask, step = divmod(number, len(TYPES))
        asked_at = self.begin + ask * APART
        at = asked_at + (0, ANSWERED_AFTER, DELIVERED_AFTER)[step]
        return (
            *(number + 1, TYPES[step], at, ask + 1, "answered" if step else "asked", asked_at),
            *(self.answer if step else None, at if step == 2 else None),
        )


def _pages(rows: Iterator[tuple[Any, ...]]) -> Iterator[Sequence[tuple[Any, ...]]]:
    while page := list(islice(rows, PAGE)):
        yield page


async def fill(address: str, *, events: int) -> None:
    """Raises StoreError where it cannot be written."""
    store = await open_store(address)
    try:
        await store.fill(Past(events).pages())
        assert await store.cursor() == events
    finally:
        await store.close()
    if address.startswith("postgresql:"):
        await _tidy(address)


async def _tidy(address: str) -> None:
    """What PostgreSQL does by itself about rows that came over months, and would do now while we measure."""
    parts = urlsplit(address)
    schema = dict(parse_qsl(parts.query))["schema"]
    connection = await asyncpg.connect(urlunsplit(parts._replace(query="")))
    try:
        await connection.execute(f"set search_path = {schema}")
        for statement in ("vacuum (analyze) asks", "vacuum (analyze) events", "checkpoint"):
            await connection.execute(statement)
    finally:
        await connection.close()
