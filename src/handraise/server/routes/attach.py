"""`/attach/NAME`: where agents in people's own terminals call us. Whoever calls may ask, and nothing else."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from starlette.routing import Mount, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handraise.agents import Attachable, Wire
from handraise.asks import Answer, Ask, State
from handraise.asks.places import resolve
from handraise.broker import Broker
from handraise.errors import Overloaded, Withdrawn
from handraise.server.gate import require, source_of
from handraise.server.http import is_here
from handraise.server.routes import RouteGroup
from handraise.stores import Query
from handraise.tables.raw_messages import Wires
from handraise.tables.tokens import Token
from handraise.wire import Stored

__all__ = ["Attached"]

log = logging.getLogger(__name__)

MOST_BROUGHT = 1000


class Attached:
    """The agents that call us, and what they asked at this desk. `name` tells it from other desks of the database."""

    def __init__(self, broker: Broker, agents: Sequence[Attachable], *, name: str, wires: Wires | None = None) -> None:
        """`wires` keeps the calls that asked something, and what they were told; without it nobody does."""
        self._broker = broker
        self._agents = agents
        self._worker = f"attach:{name}"
        self._wires = wires
        self._numbers = count(1)
        self._brought: dict[str, None] = {}  # asks whose call was seen: a terminal may ask again and again

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
            call = _Call(scope, wires=self._wires, number=next(self._numbers), brought=self._brought)
            here = is_here(scope)
            asker = _Caller(self._broker, token, source=source_of(scope), worker=self._worker, call=call, is_here=here)
            await app({**scope, "asker": asker}, call.receiving(receive), call.sending(send))

        return asking


class _Call:
    """One call from a terminal, as far as it is kept for people to look at."""

    def __init__(self, scope: Scope, *, wires: Wires | None, number: int, brought: dict[str, None]) -> None:
        self._wires = wires if wires is not None and wires.is_on else None
        self._name = f"{scope['method']} {scope['path']}"
        self._request = f"attach:{number}"
        self._brought = brought
        self._asked: list[bytes] = []
        self._told: list[bytes] = []
        self._status = 0
        self._session: str | None = None

    def receiving(self, receive: Receive) -> Receive:
        if self._wires is None:
            return receive

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.request" and self._session is None:
                self._asked.append(message.get("body", b""))
            return message

        return received

    def sending(self, send: Send) -> Send:
        if self._wires is None:
            return send

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._status = message["status"]
            elif message["type"] == "http.response.body":
                self._told.append(message.get("body", b""))
                if not message.get("more_body", False):
                    self._answered()
            await send(message)

        return sent

    def asks(self, ask: Ask, *, is_numbered: bool) -> None:
        """The call became this ask. Where the desk numbers ids, it is told which one it was when that is known."""
        if self._wires is None:
            return
        self._session = ask.origin.session
        body, self._asked = _read(self._asked), []
        if ask.id in self._brought and not is_numbered:
            return
        self._brought[ask.id] = None
        if len(self._brought) > MOST_BROUGHT:
            del self._brought[next(iter(self._brought))]
        self._wires.seen(self._session, Wire(way="in", body=body, name=self._name, request=self._request, ask=ask.id))

    def asked(self, stored: Stored) -> None:
        if self._wires is not None:
            self._wires.became(stored.session, stored.id, request=self._request)

    def _answered(self) -> None:
        """A reply without a body only says to ask again."""
        body = _read(self._told)
        if self._wires is None or self._session is None or body == "":
            return
        name = f"{self._status} {self._name}"
        self._wires.seen(self._session, Wire(way="out", body=body, name=name, request=self._request))


def _read(chunks: Sequence[bytes]) -> Any:
    """JSON, or a text."""
    whole = b"".join(chunks)
    try:
        return json.loads(whole)
    except (ValueError, RecursionError):
        return whole.decode(errors="backslashreplace")


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

    def __init__(self, broker: Broker, token: Token, *, source: str, worker: str, call: _Call, is_here: bool) -> None:
        self._broker = broker
        self._is_here = is_here
        self._token = token
        self._source = source
        self._worker = worker
        self._call = call

    async def ask(self, ask: Ask, *, ordinal: bool = False) -> Answer:
        # A terminal says no more than what its agent wrote. On this machine we can look for it; elsewhere nobody can.
        own = replace(await resolve(ask) if self._is_here else ask, id=self._token.own_id(ask.id))
        self._call.asks(own, is_numbered=ordinal)
        opened = await self._broker.open(
            own,
            owner=self._token.owner,
            worker=self._worker,
            ordinal=ordinal,
            wait=math.inf,
        )
        stored = opened.stored
        self._call.asked(stored)
        if stored.state == "asked":
            raise Overloaded("the desk is stopping; the ask stays open")
        answer = stored.settled()
        if answer is None:
            raise Withdrawn(stored.ask())
        return answer

    async def withdraw(self, id: str, *, reason: str | None = None, answer: Answer | None = None) -> Ask:
        stored = await self._broker.withdraw_stored(
            self._token.own_id(id), reason=reason, answer=answer, source=self._source
        )
        return stored.ask()

    def delivered(self, id: str, *, error: str | None = None) -> None:
        self._broker.delivered(self._token.own_id(id), error=error)


# What it serves is the agents' own and is not in the document.
plugin = RouteGroup(handlers=(), routes=lambda desk: () if desk.attached is None else desk.attached.routes())
