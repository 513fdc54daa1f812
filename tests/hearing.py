"""A listener of sessions, for tests."""

from __future__ import annotations

from handraise.agents import Message, Silent

__all__ = ["Heard"]


class Heard(Silent):
    """Keeps what was said, and counts the signs of life."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.signs = 0

    def said(self, message: Message) -> None:
        self.messages.append(message)

    def active(self) -> None:
        self.signs += 1
