"""The audit: a line for every decision, which says who or what decided, when, through what and from where.

Nothing is written here: a line is read from an event that the desk keeps. What was pruned has no line any more.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import lru_cache
from typing import Any

from handraise.asks import Answer, Ask
from handraise.stores import Query, Store
from handraise.text.inert import inert
from handraise.wire import StoredEvent, time_text
from handraise.wire.audit import AuditLine

__all__ = ["DECISIONS", "FIELDS", "line", "lines", "source"]

LONGEST_PAGE = 1024 * 1024  # characters of asks that are read for one page, unless one is longer
DECISIONS = {
    "answered": "answered",
    "rejected": "rejected",
    "withdrawn": "withdrawn",
    "deadline_moved": "kept_waiting",
}  # the events that are decisions, and what the audit calls them

# Every line has every field, in this order; null where there is nothing to say. Programs rely on the names.
FIELDS = tuple(field.name for field in fields(AuditLine))


@lru_cache(maxsize=4096)
def source(token: str | None, address: str | None, *, identity: str = "strong") -> str:
    """Where a decision came from, as a `Change` carries it. Remembered, since a caller rarely decides only once.

    `identity` says how sure it is who that was: `strong`, or `shared` where others could have been it too.
    """
    return json.dumps({"token": token, "address": address, "identity": identity})


async def lines(
    store: Store, *, since: int | None = None, until: int | None = None, after: int = 0, limit: int = 100
) -> tuple[list[dict[str, Any]], int | None]:
    """A page of lines in the order of their events, and the cursor to read on after; None where that was all.

    `since` and `until` are milliseconds, the second one excluded. Clocks may differ or be set, so what lies beyond
    `until` is skipped rather than taken for the end: a page may have few lines, or none, and still not be the last.
    """
    page = await store.history(
        Query(), after=after, limit=limit + 1, since=since, types=tuple(DECISIONS), most=LONGEST_PAGE
    )
    is_cut = len(page) > limit or sum(len(event.ask.content) for event in page) >= LONGEST_PAGE
    told = [line(event) for event in page[:limit] if until is None or event.at < until]
    return told, page[:limit][-1].cursor if is_cut else None


def line(event: StoredEvent) -> dict[str, Any]:
    ask = event.ask.ask()
    decision = DECISIONS[event.type]
    answer = ask.answer if decision in ("answered", "rejected") else None
    came = {"token": None, "address": None} if event.source is None else json.loads(event.source)
    told: dict[str, Any] = {
        "cursor": event.cursor,
        "at": time_text(event.at),
        "decision": decision,
        **_who(decision, answer, token=came["token"]),
        "identity": came.get("identity"),
        "token": came["token"],
        "address": came["address"],
        "ask": ask.id,
        "kind": _kind(ask),
        "title": _title(ask),
        "agent": ask.origin.agent,
        "session": ask.origin.session,
        "run": ask.origin.run,
        "step": ask.origin.step,
        "cwd": ask.origin.cwd,
        "machine": ask.origin.machine,
        "reason": ask.withdrawn_reason if decision == "withdrawn" else None,
    }
    if answer is not None:
        told |= {
            "answers": answer.answers,
            "reply": answer.reply,
            "scope": answer.scope,
            "patterns": answer.patterns,
            "input": answer.input,
            "reason": answer.reason,
            "notes": answer.notes or None,
            "why": answer.why or None,
        }
    return {name: told.get(name) for name in FIELDS}


def _who(decision: str, answer: Answer | None, *, token: str | None) -> dict[str, str | None]:
    """Of what is no answer only the call is known; where there was none, an adapter or a channel of the desk did it."""
    if answer is None:
        is_agent = decision == "withdrawn"
        return {
            "decided_by": "agent" if is_agent else "person",
            "by": "agent" if is_agent else token,
            "via": None if token is None else "http",
        }
    if answer.by == "policy:timeout":
        decided_by = "timeout"
    elif answer.by_policy:
        decided_by = "policy"
    else:
        decided_by = "agent" if answer.by == "agent" else "person"
    return {"decided_by": decided_by, "by": answer.by or None, "via": answer.via or None}


def _kind(ask: Ask) -> str:
    if ask.permission is None:
        return "question"
    return "plan" if ask.permission.kind == "plan" else "permission"


def _title(ask: Ask) -> str:
    """What was asked, whole and on one line. Of a permission what is to be done, not how the agent sums it up."""
    if ask.permission is None:
        asked = " · ".join(question.question for question in ask.questions)
    else:
        wanted = ask.permission
        what = wanted.command or wanted.url or ", ".join(wanted.paths) or wanted.summary
        asked = f"{wanted.tool}: {what}" if what else wanted.tool
    return inert(asked, keep="")
