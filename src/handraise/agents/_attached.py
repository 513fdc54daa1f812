"""Agents in people's own terminals: how what they asked is taken back, whichever agent it is.

Somebody answers in the terminal, the terminal is closed, or the desk is: an ask at the desk must not outlive the dialog
that it belongs to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from handraise.agents import Asker, Left
from handraise.asks import Answer
from handraise.errors import (
    AlreadyAnswered,
    AskNotFound,
    AskWithdrawn,
    DeskUnreachable,
    HandraiseError,
    Overloaded,
    StoreError,
)
from handraise.text.inert import inert

__all__ = ["PASSING", "retire", "take_back", "withdraw"]

log = logging.getLogger(__name__)

OPENING, TRIES = 0.1, 20  # seconds, and how often, to find an ask that is just being raised
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between two tries
PASSING = (Overloaded, StoreError, DeskUnreachable)  # a desk that is busy, or starts anew


async def take_back(asker: Asker, id: str, *, reason: str, too_late: str, answer: Answer | None = None) -> None:
    """Withdraw what is asked at this very desk, also where it is only just being raised.

    `too_late` is for whoever answered it first, `answer` what was answered in the terminal.
    """
    for _ in range(TRIES):
        try:
            await asker.withdraw(id, reason=reason, answer=answer)
        except AskNotFound:
            await asyncio.sleep(OPENING)
            continue
        except AlreadyAnswered:
            asker.delivered(id, error=too_late)
        except HandraiseError as problem:
            log.warning("ask %s cannot be withdrawn: %s", inert(id), problem.code)
        return


async def withdraw(asker: Asker, id: str, *, reason: str, too_late: str, answer: Answer | None = None) -> None:
    """Withdraw what was asked at a desk that may be away for a while; it is tried until the desk has heard of it."""
    pause = FIRST_PAUSE
    while True:
        try:
            await asker.withdraw(id, reason=reason, answer=answer)
        except AlreadyAnswered:
            asker.delivered(id, error=too_late)
        except (AskNotFound, AskWithdrawn):
            return
        except PASSING:
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            continue
        except HandraiseError as problem:
            log.warning("ask %s cannot be withdrawn: %s", inert(id), problem.code)
        return


async def retire(
    desk: Left, *, agent: str, prefix: str, reason: str, is_held: Callable[[str], bool], back: float = 0.0
) -> None:
    """Withdraw what a desk before this one left open, but for what is held here again after `back` seconds.

    `prefix` is what the ids of asks from terminals have in them.
    """
    left = [ask.id async for ask in desk.asks(state="asked", agent=agent) if prefix in ask.id]
    if left:
        await asyncio.sleep(back)
    for id in left:
        if not is_held(id):
            with suppress(AlreadyAnswered, AskNotFound):
                await desk.withdraw(id, reason=reason)
