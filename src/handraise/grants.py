"""Lasting grants: what a person said `always` to, where the desk and not the agent remembers it."""

from __future__ import annotations

import json

from handraise.asks import Answer, Ask, Origin
from handraise.policies.remembered import Grant
from handraise.stores import Database

__all__ = ["Grants"]


class Grants:
    """A grant holds for the session it was given in and its subagents."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, origin: Origin, *, owner: str) -> list[Grant]:
        """`owner` is whose token asks: a session that somebody else made up is another one."""
        rows = await self._database.read(
            "select agent, tool, patterns, given_by from grants where session = ? and owner = ?", _root(origin), owner
        )
        return [
            Grant(agent=agent, tool=tool, patterns=tuple(json.loads(patterns)), by=by)
            for agent, tool, patterns, by in rows
        ]

    async def add(self, ask: Ask, answer: Answer, *, owner: str, at: int) -> None:
        """Remember an `always` that the desk is to keep; does nothing for any other answer."""
        if ask.permission is None or answer.reply != "always":
            return
        kept = [scope for scope in ask.permission.scopes if scope.by_desk and answer.scope in (None, scope.id)]
        if not kept:
            return
        patterns = kept[0].patterns if answer.patterns is None else answer.patterns
        if not patterns:
            return
        await self._database.write(
            "insert into grants (id, session, owner, agent, tool, patterns, given_by, created_at) "
            "values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (id) do nothing",
            ask.id,
            _root(ask.origin),
            owner,
            ask.origin.agent,
            ask.permission.tool,
            json.dumps(patterns),
            answer.by,
            at,
        )


def _root(origin: Origin) -> str:
    return origin.parent or origin.session
