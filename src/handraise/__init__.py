"""handraise: the one desk where every coding agent's raised hand arrives.

The names below are the public ones; everything else may move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handraise.asks import Answer, Ask, Handling, Option, Origin, Permission, Question, Scope
    from handraise.client import Desk
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
    """Each public name is loaded when it is first used: a command that needs none of them starts sooner."""
    if name in __all__:
        from importlib import import_module

        for room in ("handraise.asks", "handraise.errors", "handraise.client"):
            found = getattr(import_module(room), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module 'handraise' has no attribute {name!r}")
