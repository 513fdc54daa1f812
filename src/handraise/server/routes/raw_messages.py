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
from handraise.errors import SessionNotFound
from handraise.server.declare import SECONDS, TEXT, Parameter, declare, mount, one_of, page_size
from handraise.server.http import RouteNotFound, query, seconds_in
from handraise.server.routes import RouteGroup
from handraise.server.routes.api import json_response
from handraise.server.routes.asks import number
from handraise.server.routes.sessions import SESSION_IN_PATH, SESSIONS, under_sessions
from handraise.tables.raw_messages import Found, Wires
from handraise.wire import BadBody, Stored
from handraise.wire import sessions as shapes
from handraise.wire.plain import to_plain

__all__ = ["LONGEST_SEARCH", "MOST_LISTED", "PAGE", "routes"]

PAGE, MOST_LISTED = 200, 500
LONGEST_SEARCH = 500  # characters
ANY = "*"
AROUND = 2000  # milliseconds: a message is a little older than the ask that it became, or younger than its answer

AFTER_WIRE = Parameter("after", schema=TEXT, meaning="The id of a message: those after it.", key="after_wire")
BEFORE_WIRE = Parameter(
    "before", schema=TEXT, meaning="The id of a message: the last ones before it.", key="before_wire"
)
WAY = Parameter("way", schema=one_of("in", "out"), meaning="Only what came from the agent, or what went to it.")
WIRE_NAME = Parameter("name", schema=TEXT, meaning="Only messages that the protocol calls this.", key="wire_name")
WIRE_TEXT = Parameter(
    "q",
    schema={"type": "string", "maxLength": LONGEST_SEARCH},
    meaning="Only messages that hold this text, in any case of its letters.",
    key="wire_text",
)
WIRE_ASK = Parameter(
    "ask",
    schema=TEXT,
    meaning="Only what became this ask and what carried its answer, whatever else is given; `*` is every ask.",
    key="wire_ask",
)
WIRES = Parameter("limit", schema=page_size(MOST_LISTED, default=PAGE), meaning="Messages a page.", key="wires")
WAIT_FOR_WIRES = Parameter(
    "wait", schema=SECONDS, meaning="Seconds to wait where none came after `after` yet.", key="wait_for_wires"
)


def routes(broker: Broker, *, wires: Wires) -> list[Route]:
    return mount(RawMessageRoutes(broker, wires))


class _WireRoute(Route):
    """Not for a session whose id ends like this route."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        is_whole = scope["type"] == "http" and scope["raw_path"].count(b"/") == 4
        return super().matches(scope) if is_whole else (Match.NONE, {})


class RawMessageRoutes:
    def __init__(self, broker: Broker, wires: Wires) -> None:
        self._broker = broker
        self._wires = wires

    @declare(
        "GET /v1/sessions/{session:path}/wire",
        id="inspect_a_session",
        summary="The raw messages between an agent and its adapter, without secrets: the last ones, those before "
        "or after one, or those of an ask. They are kept for seven days",
        tag=SESSIONS,
        scope="admin",
        parameters=(
            SESSION_IN_PATH,
            AFTER_WIRE,
            BEFORE_WIRE,
            WAY,
            WIRE_NAME,
            WIRE_TEXT,
            WIRE_ASK,
            WIRES,
            WAIT_FOR_WIRES,
        ),
        matching=_WireRoute,
        replies={200: (shapes.Wires, "The oldest first. `next` is where to read on, as `after` or else as `before`.")},
        refusals=(BadBody, RouteNotFound, SessionNotFound),
    )
    async def wire(self, request: Request) -> Response:
        """Only for admins: prompts and what is in files are among it."""
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
        told["wire"] = [to_plain(each.to_shape()) for each in found.wires]
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


plugin = RouteGroup(handlers=(RawMessageRoutes,), routes=lambda desk: routes(desk.broker, wires=desk.wires))
