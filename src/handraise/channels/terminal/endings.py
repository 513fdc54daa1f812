"""How a turn at the keyboard ends when it does not end with an answer."""

from __future__ import annotations

from handraise.errors import AlreadyAnswered, AskNotFound, AskWithdrawn

__all__ = ["GONE", "Elsewhere", "Later", "Left", "Over"]

GONE = (AlreadyAnswered, AskWithdrawn, AskNotFound)  # what the desk says to one who comes too late


class Over(Exception):
    """Nobody waits for this person's answer any more."""


class Left(Exception):
    """The person pressed Ctrl+C."""


class Later(Exception):
    """The person keeps it for later."""


class Elsewhere(Exception):
    """The person wants to see another ask: so many steps further, or back."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.steps = steps
