"""Amp in a person's own terminal: what its delegate calls.

    POST call   the call that needs a permission; held until it is decided

A delegate lives as long as its call. It makes the id, since Amp tells none: so a delegate that finds a desk again after
a restart joins its own ask, and two calls that are the same to the letter are two asks. Nothing is shown in the
terminal while it waits; where the connection ends, Amp is gone or asks there by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from handraise.agents import Asker, Left
from handraise.agents._attached import retire, take_back
from handraise.agents.amp.translate import AGENT, from_answer, to_ask
from handraise.asks import Answer, Ask, Origin
from handraise.errors import AskDoesNotFit, Overloaded, Withdrawn
from handraise.tasks import Tasks
from handraise.transports.bodies import read_body, until_gone
from handraise.wire import parse

__all__ = ["GONE", "ID_PREFIX", "RESTARTED", "Called", "Terminals"]

log = logging.getLogger(__name__)

ID_PREFIX = "amp-terminal:"  # of the asks that come this way
BACK = 5.0  # seconds in which every delegate that tries again has found a desk that was restarted
SHORTEST_ID = 16

GONE = "Amp stopped waiting"
RESTARTED = "the desk was restarted; answer in the terminal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """What a delegate tells of its call."""

    call: str  # an id that the delegate made
    tool: str
    input: Any
    thread: str | None = None
    cwd: str | None = None
    machine: str | None = None
    pid: int | None = None  # of Amp

    def ask(self) -> Ask:
        """Raises AskDoesNotFit."""
        if len(self.call) < SHORTEST_ID or not self.call.isalnum():
            raise AskDoesNotFit(f"`call` is an id of {SHORTEST_ID} letters and digits at least; make one for each call")
        session = self.thread or f"{AGENT}:{self.machine or 'here'}:{self.pid or 0}"
        origin = Origin(agent=AGENT, session=session, cwd=self.cwd, machine=self.machine)
        id = f"{ID_PREFIX}{session}:{self.call}"
        return to_ask(self.tool, self.input, id=id, origin=origin, remembers=bool(self.thread))


class Terminals:
    """The route, and which call holds an ask."""

    def __init__(self, *, back: float = BACK) -> None:
        self._back = back
        self._held: dict[tuple[str, str], object] = {}  # by token and ask: ids of two tokens may be the same

    def routes(self) -> Sequence[Route]:
        return [Route("/call", self._call, methods=["POST"])]

    async def retire(self, desk: Left) -> None:
        """Withdraw what a desk before this one left open, once those delegates that try again have come back."""

        def is_held(id: str) -> bool:
            return any(id.endswith(held) for _, held in self._held)

        await retire(desk, agent=AGENT, prefix=ID_PREFIX, reason=RESTARTED, is_held=is_held, back=self._back)

    async def _call(self, request: Request) -> Response:
        called = parse(Called, await read_body(request.scope, request.receive))
        try:
            return await self._decide(called, called.ask(), request)
        except AskDoesNotFit as problem:
            log.warning("a call of Amp does not fit, and is left to its terminal: %s", problem.code)
            raise

    async def _decide(self, called: Called, ask: Ask, request: Request) -> Response:
        asker: Asker = request.scope["asker"]
        key = request.scope["token"].name, ask.id
        this = self._held[key] = object()
        try:
            async with Tasks() as tasks:
                asking, leaving = tasks.start(asker.ask(ask)), tasks.start(until_gone(request.receive))
                await asyncio.wait([asking, leaving], return_when=asyncio.FIRST_COMPLETED)
                if not asking.done() and self._held.get(key) is this:
                    await take_back(asker, ask.id, reason=GONE, too_late=GONE)
                if leaving.done():
                    if asking.done() and not asking.cancelled() and asking.exception() is None:
                        asker.delivered(ask.id, error=GONE)
                    return Response(status_code=204)  # nobody reads it
                return _reply(called, ask, asking, asker)
        finally:
            if self._held.get(key) is this:
                del self._held[key]


def _reply(called: Called, ask: Ask, asking: asyncio.Future[Answer], asker: Asker) -> Response:
    async def delivered() -> None:
        asker.delivered(ask.id)

    try:
        decision = from_answer(ask, asking.result())
    except (Overloaded, asyncio.CancelledError):  # the desk closes; the ask stays open
        return Response(status_code=503, headers={"retry-after": "1"})
    except Withdrawn:
        return JSONResponse({"call": called.call, "decision": "ask", "reason": "the ask was withdrawn at the desk"})
    return JSONResponse({"call": called.call, **decision}, background=BackgroundTask(delivered))
