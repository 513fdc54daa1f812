"""The contract of agents: what an adapter sees of the house, and what the house sees of an adapter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from handraise.asks import Answer, Ask, Handling

__all__ = ["Agent", "Asker", "Reply", "Session", "Start"]


class Asker(Protocol):
    """All an adapter knows of the house. A broker and a client of a desk both are one."""

    async def ask(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Answer:
        """Raise a hand and wait, however long. A rejection is an Answer; raises Withdrawn.

        Asking again under the same id joins. `ordinal` is for ids that may repeat by accident: the desk numbers them
        and joins only while the newest is open or its answer was not taken.
        """

    async def withdraw(self, id: str, *, reason: str | None = None) -> Ask:
        """The agent has moved on. Raises AlreadyAnswered where somebody was faster."""

    def delivered(self, id: str, *, error: str | None = None) -> None:
        """The agent took the answer, or `error` says why it could not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a session is started with."""

    session: str  # the desk's id for it, which becomes `origin.session` of its asks
    cwd: str | None = None
    handling: Handling = field(default_factory=Handling)
    run: str | None = None
    step: str | None = None
    parent: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the agent said at the end of a turn."""

    text: str


class Session(Protocol):
    """One live conversation with an agent."""

    async def prompt(self, text: str) -> Reply:
        """Run one turn. The agent's questions go through the asker while it runs."""

    async def abort(self) -> None:
        """Stop the turn. What the agent asked and still waits for is withdrawn."""

    async def close(self) -> None: ...


class Agent(Protocol):
    name: str

    async def open(self, asker: Asker, start: Start) -> Session: ...
