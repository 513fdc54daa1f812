"""The audit: one line for every decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from handraise.wire.fields import Count, Doc, Time


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    cursor: Annotated[Count, Doc("Of the event it was told with.")]
    at: Annotated[Time, Doc("When it was decided.")]
    decision: Annotated[Literal["answered", "rejected", "withdrawn", "kept_waiting"], Doc("What was decided.")]
    decided_by: Annotated[Literal["person", "policy", "timeout", "agent"], Doc("Who or what did.")]
    by: Annotated[
        str | None, Doc("The name that the decision carries. Programs of an admin may say another than theirs.")
    ]
    via: Annotated[str | None, Doc("Through what: `http`, `cli`, `terminal`, `sdk`, `opencode`, `policy`, …")]
    identity: Annotated[
        Literal["strong", "shared"] | None,
        Doc("How sure it is who decided: `shared` where others could have been it too. Null where nobody did."),
    ]
    token: Annotated[str | None, Doc("Name of the token it came with; null where no call was made.")]
    address: Annotated[str | None, Doc("Where the call came from, as the desk saw it: behind a proxy, the proxy.")]
    ask: Annotated[str, Doc("Id of the ask.")]
    kind: Annotated[Literal["question", "permission", "plan"], Doc("What kind of ask.")]
    title: Annotated[str, Doc("What was asked, or was to be done, on one line; hidden characters are spelled out.")]
    agent: Annotated[str, Doc("Who asked.")]
    session: Annotated[str, Doc("In which session.")]
    run: Annotated[str | None, Doc("In which run.")]
    step: Annotated[str | None, Doc("In which step of it.")]
    cwd: Annotated[str | None, Doc("In which folder.")]
    machine: Annotated[str | None, Doc("On which machine.")]
    answers: Annotated[tuple[tuple[str, ...], ...] | None, Doc("Values given, a list per question.")]
    reply: Annotated[str | None, Doc("What a permission got: `once`, `always`, `reject`.")]
    scope: Annotated[str | None, Doc("How far an `always` reaches.")]
    patterns: Annotated[tuple[str, ...] | None, Doc("What an `always` was narrowed to.")]
    input: Annotated[Mapping[str, Any] | None, Doc("What the tool gets instead, where it was edited.")]
    reason: Annotated[str | None, Doc("Why it was rejected or withdrawn, or what was said with a reply.")]
    notes: Annotated[tuple[str | None, ...] | None, Doc("What was said beside the answers.")]
    why: Annotated[tuple[str, ...] | None, Doc("How policy came to it: rules, the timeout.")]

    EXAMPLE: ClassVar[Any] = {
        "cursor": 2,
        "at": "2026-01-01T12:00:42.000Z",
        "decision": "answered",
        "decided_by": "person",
        "by": "ana",
        "via": "http",
        "identity": "strong",
        "token": "ana",
        "address": "127.0.0.1",
        "ask": "build-7",
        "kind": "question",
        "title": "Which database should I use?",
        "agent": "claude",
        "session": "claude:4f1c",
        "run": None,
        "step": None,
        "cwd": "/home/ana/shop",
        "machine": "laptop",
        "answers": [["Postgres"]],
        "reply": None,
        "scope": None,
        "patterns": None,
        "input": None,
        "reason": None,
        "notes": None,
        "why": None,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    lines: tuple[AuditLine, ...]
    next: str | None = None
