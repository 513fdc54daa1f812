"""`GET /v1/sessions/{session}/wire`: the raw messages of a session, and how one of its asks was translated."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from handraise.broker import Broker
from handraise.server.gate import require
from handraise.server.http import query, seconds_in
from handraise.server.routes.api import json_response
from handraise.server.routes.asks import number
from handraise.server.routes.sessions import under_sessions
from handraise.tables.raw_messages import Found, Wires
from handraise.wire import BadBody, Stored

__all__ = ["LONGEST_SEARCH", "MOST_LISTED", "PAGE", "routes"]

PAGE, MOST_LISTED = 200, 500
LONGEST_SEARCH = 500  # characters
ANY = "*"
AROUND = 2000  # milliseconds: a message is a little older than the ask that it became, or younger than its answer


def routes(broker: Broker, *, wires: Wires) -> list[Route]:
    desk = _Desk(broker, wires)
    return [_WireRoute("/v1/sessions/{session:path}/wire", desk.wire)]


class _WireRoute(Route):
    """Not for a session whose id ends like this route."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_whole = scope["type"] == "http" and scope["raw_path"].count(b"/") == 4
        return super().matches(scope) if is_whole else (Match.NONE, {})


class _Desk:
    def __init__(self, broker: Broker, wires: Wires) -> None:
        self._broker = broker
        self._wires = wires

    async def wire(self, request: Request) -> Response:
        """Only for admins: prompts and what is in files are among it."""
        require(request.scope, "admin")
        session, _ = under_sessions(request.scope, count=2)
        await self._broker.sessions.get(session)
        known = ("after", "before", "way", "name", "q", "ask", "limit", "wait")
        asked = query(request.scope["query_string"], *known)
        wait, after, before, way = seconds_in(asked), asked.get("after"), asked.get("before"), asked.get("way")
        if way not in (None, "in", "out"):
            raise BadBody("way is in or out: from the agent, or to it")
        text = asked.get("q") or None
        if text is not None and len(text) > LONGEST_SEARCH:
            raise BadBody(f"q has {len(text)} characters; at most {LONGEST_SEARCH} can be looked for")
        limit = number(asked.get("limit", str(PAGE)), name="limit", least=1, most=MOST_LISTED)
        told: dict[str, Any] = {"recording": self._wires.is_on}
        which: dict[str, Any] = {
            "way": way,
            "name": asked.get("name"),
            "is_ask": asked.get("ask") == ANY,
            "text": text,
            "limit": limit,
        }
        if asked.get("ask") not in (None, ANY):
            stored = await self._broker.store.get(asked["ask"])
            found = await self._of_ask(asked["ask"], stored)
            told["ask"] = self._without_secrets(stored) if stored is not None else None
        elif after is not None and wait:
            found = await self._wires.wait(session, after=after, timeout=wait, **which)
        else:
            found = await self._wires.read(session, after=after, before=before, **which)
        told["wire"] = [each.told() for each in found.wires]
        if found.has_more and found.wires:
            told["next"] = found.wires[-1 if after is not None else 0].id
        return json_response(told)

    def _without_secrets(self, stored: Stored) -> Any:
        return self._wires.masked(json.loads(stored.text(self._broker.clock.now())))

    async def _of_ask(self, id: str, stored: Stored | None) -> Found:
        """What became the ask, and what carried its answer.

        Where the desk numbers an id, the request may have been seen under the id without its number, which others
        share. Which of those is meant, the time says.
        """
        found = await self._wires.read(None, asks=[id], limit=MOST_LISTED)
        base, mark, _ = id.rpartition("#")
        if stored is None or not mark or any(wire.way == "in" for wire in found.wires):
            return found
        shared = await self._wires.read(None, asks=[base], limit=MOST_LISTED)
        until = math.inf if stored.delivered_at is None else stored.delivered_at + AROUND
        its = [wire for wire in shared.wires if stored.asked_at - AROUND <= wire.at <= until]
        wires = sorted([*found.wires, *its], key=lambda wire: wire.id)
        return Found(wires=wires, has_more=found.has_more or shared.has_more)
