"""What happened, in past tense: the events a desk tells. Each has a `type`, the ask as it then was, and a cursor."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from handraise.asks import Ask

__all__ = [
    "Answered",
    "Asked",
    "DeadlineMoved",
    "Delivered",
    "Event",
    "Rejected",
    "Unknown",
    "Unseen",
    "Withdrawn",
    "event",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`cursor` grows with every event of a desk; reading on from it misses nothing and repeats nothing."""

    type: ClassVar[str] = "event"
    cursor: int
    at: datetime
    ask: Ask


class Asked(Event):
    __slots__ = ()
    type = "asked"


class Answered(Event):
    __slots__ = ()
    type = "answered"


class Rejected(Event):
    __slots__ = ()
    type = "rejected"


class Withdrawn(Event):
    __slots__ = ()
    type = "withdrawn"


class Delivered(Event):
    """The agent took the answer, or `ask.delivery_error` says why it did not."""

    __slots__ = ()
    type = "delivered"


class DeadlineMoved(Event):
    __slots__ = ()
    type = "deadline_moved"


class Unseen(Event):
    """No channel could show it and nobody looks at the desk. It goes on waiting."""

    __slots__ = ()
    type = "unseen"


class Unknown(Event):
    """An event of a newer desk. Its ask is still good to read."""

    __slots__ = ()
    type = "unknown"


_TYPES: dict[str, type[Event]] = {
    kind.type: kind for kind in (Asked, Answered, Rejected, Withdrawn, Delivered, DeadlineMoved, Unseen)
}


def event(type: str, *, cursor: int, at: datetime, ask: Ask) -> Event:
    return _TYPES.get(type, Unknown)(cursor=cursor, at=at, ask=ask)
