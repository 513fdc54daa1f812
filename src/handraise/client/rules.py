"""The rules for permissions that a desk keeps or finds in files."""

from __future__ import annotations

import json

from handraise.client.connection import Connection, path
from handraise.client.replies import read
from handraise.wire import rules as shapes
from handraise.wire.plain import from_plain
from handraise.wire.rules import Rule, RuleBody, RuleTest, RuleTestBody

__all__ = ["Rules"]


class Rules:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, *, cwd: str | None = None) -> shapes.Rules:
        """Those in force for a folder, plus files that could not be read or are not trusted."""
        return await self._connection.get(shapes.Rules, path("rules", cwd=cwd))

    async def add(self, rule: RuleBody) -> Rule:
        return await self._connection.post(Rule, path("rules"), body=rule)

    async def test(self, call: RuleTestBody) -> RuleTest:
        """What they would decide about a call. Nothing is asked."""
        return await self._connection.post(RuleTest, path("rules", "test"), body=call)

    async def remove(self, id: str) -> Rule:
        """Raises RuleNotFound."""
        told = await self._connection.call("DELETE", path("rules", id))
        return read(told, lambda told: from_plain(Rule, json.loads(told)))
