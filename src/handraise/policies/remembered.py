"""`always` as the desk remembers it: what a person granted for a session, and the calls that it covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import re2

from handraise.asks import Answer, Ask

__all__ = ["Grant", "remembered"]

# What a shell runs inside of what it shows; no pattern for the outside speaks for it.
_INSIDE = ("$(", "`", "<(", ">(", "\n", "\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A person said `always` to a tool and these patterns: `*` is anything, and a final ` *` may be missing."""

    agent: str
    tool: str
    patterns: tuple[str, ...]
    by: str


def remembered(ask: Ask, grants: Sequence[Grant]) -> Answer | None:
    """`once`, where grants of this session cover every part of what the agent wants to do; None otherwise."""
    permission = ask.permission
    if permission is None or not any(scope.by_desk for scope in permission.scopes):
        return None
    parts = (permission.extra or {}).get("patterns")
    if not isinstance(parts, list | tuple) or not parts or not all(isinstance(part, str) for part in parts):
        return None
    fitting = [grant for grant in grants if (grant.agent, grant.tool) == (ask.origin.agent, permission.tool)]
    why: dict[str, None] = {}
    for part in parts:
        grant = next((grant for grant in fitting if any(_covers(pattern, part) for pattern in grant.patterns)), None)
        if grant is None:
            return None
        why[f"{grant.by or 'somebody'} allowed {', '.join(grant.patterns)} for this session"] = None
    return Answer(reply="once", by="policy:always", via="policy", why=tuple(why))


def _covers(pattern: str, part: str) -> bool:
    if any(mark in part for mark in _INSIDE):
        return False
    literal = ".*".join(re2.escape(piece) for piece in pattern.split("*"))
    if pattern.endswith(" *"):
        literal = f"{literal.removesuffix('.*').removesuffix(re2.escape(' '))}( .*)?"
    return re2.fullmatch(f"(?s){literal}", part) is not None
