"""Asks and answers as a client sends them and `--json` prints them, without pydantic."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from handraise.asks import Answer, Ask, Handling
from handraise.wire import times
from handraise.wire.plain import to_plain

__all__ = ["answer_fields", "ask_fields", "handling_fields", "time_text"]


def time_text(time: datetime | None) -> str | None:
    return None if time is None else times.time_text(times.to_milliseconds(time))


def ask_fields(ask: Ask) -> dict[str, Any]:
    """What an adapter filled in of an ask."""
    permission = None if ask.permission is None else to_plain(ask.permission)
    fields = {"id": ask.id, "questions": to_plain(ask.questions), "permission": permission}
    return {**fields, "origin": to_plain(ask.origin), **({"extra": ask.extra} if ask.extra else {})}


def answer_fields(answer: Answer) -> dict[str, Any]:
    """An answer as a desk tells it."""
    told: dict[str, Any] = {
        name: getattr(answer, name) for name in ("answers", "reply", "rejected", "reason", "notes", "by", "via")
    }
    told["at"] = time_text(answer.at)
    # Empty is not missing: an input edited away, no pattern left.
    told |= {name: given for name in ("input", "scope", "patterns") if (given := getattr(answer, name)) is not None}
    return told | ({"why": answer.why} if answer.why else {})


def handling_fields(handling: Handling) -> dict[str, Any]:
    """A handling as the fields of a body."""
    policy: Any = handling.question_policy
    if isinstance(policy, tuple):
        policy = {"auto": to_plain(policy)}
    return {
        "question_policy": policy,
        "permission_policy": handling.permission_policy,
        "question_timeout": handling.question_timeout,
        "on_timeout": handling.on_timeout,
    }
