"""handraise: the one desk where every coding agent's raised hand arrives.

The names below are the public ones; everything else may move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handraise.asks import Answer, Ask, Handling, Option, Origin, Permission, Question, Scope
from handraise.errors import (
    AlreadyAnswered,
    AnswerDoesNotFit,
    AskDoesNotFit,
    AskNotFound,
    AskWithdrawn,
    DeskUnreachable,
    HandraiseError,
    Rejected,
    Withdrawn,
)

if TYPE_CHECKING:
    from handraise.client import Desk

__all__ = [
    "AlreadyAnswered",
    "Answer",
    "AnswerDoesNotFit",
    "Ask",
    "AskDoesNotFit",
    "AskNotFound",
    "AskWithdrawn",
    "Desk",
    "DeskUnreachable",
    "Handling",
    "HandraiseError",
    "Option",
    "Origin",
    "Permission",
    "Question",
    "Rejected",
    "Scope",
    "Withdrawn",
]


def __getattr__(name: str) -> Any:
    """`Desk` brings an HTTP client along, which a command that only prints help need not load."""
    if name == "Desk":
        from handraise.client import Desk

        return Desk
    raise AttributeError(f"module 'handraise' has no attribute {name!r}")
