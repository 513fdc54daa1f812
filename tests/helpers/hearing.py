"""A listener of sessions, for tests."""

from __future__ import annotations

from typing import Any

from handraise.agents import Message, Silent, Wire

__all__ = ["Heard"]


class Heard(Silent):
    """Keeps what was said and what was on the wire, and counts the signs of life."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.signs = 0
        self.wires: list[Wire] = []
        self.requests: dict[str, set[str]] = {}  # by ask: those that became it

    def said(self, message: Message) -> None:
        self.messages.append(message)

    def active(self) -> None:
        self.signs += 1

    def seen(self, wire: Wire) -> None:
        self.wires.append(wire)

    def became(self, ask: str, *, request: str) -> None:
        self.requests.setdefault(ask, set()).add(request)

    def translation(self, ask: str) -> tuple[list[Any], list[Any]]:
        """What the agent sent that became this ask, and what it was sent for its answer."""
        its = self.requests.get(ask, set())
        found = [wire for wire in self.wires if wire.ask == ask or wire.request in its]
        return [wire.body for wire in found if wire.way == "in"], [wire.body for wire in found if wire.way == "out"]
