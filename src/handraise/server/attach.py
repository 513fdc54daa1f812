"""`/attach/NAME`: where agents in people's own terminals call us. Whoever calls may ask, and nothing else."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from starlette.routing import Mount, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from handraise.agents import Attachable
from handraise.asks import Answer, Ask, Handling, State
from handraise.broker import Broker
from handraise.errors import Overloaded, Withdrawn
from handraise.server.gate import require, source_of
from handraise.stores import Query
from handraise.tokens import Token

__all__ = ["Attached"]

log = logging.getLogger(__name__)


class Attached:
    """The agents that call us, and what they asked at this desk. `name` tells it from other desks of the database."""

    def __init__(self, broker: Broker, agents: Sequence[Attachable], *, name: str) -> None:
        self._broker = broker
        self._agents = agents
        self._worker = f"attach:{name}"

    def routes(self) -> list[Mount]:
        return [
            Mount(f"/attach/{agent.name}", app=self._with_asker(Router(routes=agent.routes())))
            for agent in self._agents
        ]

    async def retire(self) -> None:
        """What terminals asked before this desk was started: each agent knows which of them still wait."""
        left = _Left(self._broker, worker=self._worker)
        for agent in self._agents:
            try:
                await agent.retire(left)
            except Exception:
                log.exception("what terminals of %s had asked before could not be looked through", agent.name)

    def _with_asker(self, app: ASGIApp) -> ASGIApp:
        async def asking(scope: Scope, receive: Receive, send: Send) -> None:
            token = require(scope, "ask")
            asker = _Caller(self._broker, token, source=source_of(scope), worker=self._worker)
            await app({**scope, "asker": asker}, receive, send)

        return asking


class _Left:
    """The open asks that came by this desk's own `/attach`; those of other desks have their terminals elsewhere."""

    def __init__(self, broker: Broker, *, worker: str) -> None:
        self._broker = broker
        self._worker = worker

    async def asks(self, *, state: State | None = None, agent: str | None = None) -> AsyncIterator[Ask]:
        query, after = Query(state=state, agent=agent, worker=self._worker), 0
        while page := await self._broker.store.find(query, after=after):
            for stored in page:
                yield stored.ask()
            after = page[-1].seq

    async def withdraw(self, id: str, *, reason: str | None = None) -> Ask:
        return await self._broker.withdraw(id, reason=reason)


class _Caller:
    """The broker as the holder of one token sees it: only asks of its own."""

    def __init__(self, broker: Broker, token: Token, *, source: str, worker: str) -> None:
        self._broker = broker
        self._token = token
        self._source = source
        self._worker = worker

    async def ask(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Answer:
        own = replace(ask, id=self._token.own_id(ask.id))
        opened = await self._broker.open(
            own,
            handling=handling,
            owner=self._token.owner,
            worker=self._worker,
            ordinal=ordinal,
            wait=math.inf,
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
