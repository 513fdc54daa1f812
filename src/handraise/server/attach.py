"""`/attach/NAME`: where agents in people's own terminals call us. Whoever calls may ask, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from starlette.routing import Mount, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from handraise.agents import Attachable
from handraise.asks import Answer, Ask, Handling
from handraise.broker import Broker
from handraise.errors import Overloaded, Withdrawn
from handraise.server.gate import require, source_of
from handraise.tokens import Token

__all__ = ["routes"]


def routes(broker: Broker, agents: Sequence[Attachable]) -> list[Mount]:
    return [Mount(f"/attach/{agent.name}", app=_with_asker(Router(routes=agent.routes()), broker)) for agent in agents]


def _with_asker(app: ASGIApp, broker: Broker) -> ASGIApp:
    async def asking(scope: Scope, receive: Receive, send: Send) -> None:
        token = require(scope, "ask")
        await app({**scope, "asker": _Caller(broker, token, source=source_of(scope))}, receive, send)

    return asking


class _Caller:
    """The broker as the holder of one token sees it: only asks of its own."""

    def __init__(self, broker: Broker, token: Token, *, source: str) -> None:
        self._broker = broker
        self._token = token
        self._source = source

    async def ask(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Answer:
        own = replace(ask, id=self._token.own_id(ask.id))
        opened = await self._broker.open(
            own, handling=handling, owner=self._token.owner, ordinal=ordinal, wait=math.inf
        )
        stored = opened.stored
        if stored.state == "asked":
            raise Overloaded("the desk is stopping; the ask stays open")
        answer = stored.settled()
        if answer is None:
            raise Withdrawn(stored.ask())
        return answer

    async def withdraw(self, id: str, *, reason: str | None = None, answer: Answer | None = None) -> Ask:
        stored = await self._broker.take_back(self._token.own_id(id), reason=reason, answer=answer, source=self._source)
        return stored.ask()

    def delivered(self, id: str, *, error: str | None = None) -> None:
        self._broker.delivered(self._token.own_id(id), error=error)
