"""The contract of channels: a way to reach people, and all it sees of the house."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from handraise.asks import Answer, Ask, State
from handraise.events import Event

__all__ = ["Channel", "Inbox"]


class Inbox(Protocol):
    """What a channel sees of the desk. A broker and a client of a desk both are one."""

    def asks(
        self,
        *,
        state: State | None = None,
        agent: str | None = None,
        session: str | None = None,
        run: str | None = None,
    ) -> AsyncIterator[Ask]:
        """Every ask that fits, oldest first."""

    def events(
        self,
        *,
        after: int | None = None,
        session: str | None = None,
        run: str | None = None,
        worker: str | None = None,
    ) -> AsyncIterator[Event]:
        """What happens from now on, or after a cursor: every event once, in order."""

    async def cursor(self) -> int:
        """Where events stand now. Listing first and following from here misses nothing in between."""

    async def get(self, id: str) -> Ask:
        """Raises AskNotFound."""

    async def answer(self, id: str, answer: Answer) -> Ask:
        """The first answer counts; a different second one gets AlreadyAnswered.

        Raises AnswerDoesNotFit, and the ask stays open; AskWithdrawn.
        """

    async def reject(self, id: str, *, reason: str | None = None, by: str = "", via: str = "") -> Ask:
        """Refuse it, finally. Raises AlreadyAnswered, AskWithdrawn."""

    async def keep_waiting(self, id: str) -> Ask:
        """Move the deadline by the time the ask was given."""


class Channel(Protocol):
    async def run(self, inbox: Inbox) -> None:
        """Show what is asked and bring back what people say, until cancelled."""
