"""`GET /v1/audit`: every decision the desk still keeps, page by page, for whoever administers it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handraise.broker import Broker
from handraise.server.declare import POSITION, TIME, Parameter, Tag, declare, mount, page_size
from handraise.server.http import query
from handraise.server.routes import RouteGroup
from handraise.server.routes.api import json_response
from handraise.server.routes.asks import MOST_LISTED, PAGE, number
from handraise.tables.audit import lines
from handraise.wire import BadBody
from handraise.wire.audit import Audit

__all__ = ["routes"]

# RFC 3339. An offset's `+` that was not percent-encoded arrives as a space.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:)(\d\d)(\.\d+)?([Zz]|[+ -]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

AUDIT = Tag("audit", "Who or what decided, when, through what and from where.")
SINCE = Parameter("since", schema=TIME, meaning="Only what was decided at this time or later.")
UNTIL = Parameter("until", schema=TIME, meaning="Only what was decided before this time.")
AFTER_LINE = Parameter("after", schema=POSITION, meaning="`next` of the page before.", key="after_line")
LINES = Parameter("limit", schema=page_size(MOST_LISTED, default=PAGE), meaning="Lines a page.", key="lines")


def routes(broker: Broker) -> list[Route]:
    return mount(AuditRoutes(broker))


class AuditRoutes:
    def __init__(self, broker: Broker) -> None:
        self._store = broker.store

    @declare(
        "GET /v1/audit",
        id="read_the_audit",
        summary="A line for every decision that is still kept, by people, policy, timeouts and agents, in order",
        tag=AUDIT,
        scope="admin",
        parameters=(SINCE, UNTIL, AFTER_LINE, LINES),
        replies={200: (Audit, "A page of lines. It may have few or none, and is the last one if it has no `next`.")},
        refusals=(BadBody,),
    )
    async def read(self, request: Request) -> Response:
        asked = query(request.scope["query_string"], "since", "until", "after", "limit")
        told, more = await lines(
            self._store,
            since=_time(asked.get("since"), name="since"),
            until=_time(asked.get("until"), name="until"),
            after=number(asked.get("after", "0"), name="after"),
            limit=number(asked.get("limit", str(PAGE)), name="limit", least=1, most=MOST_LISTED),
        )
        return json_response({"lines": told} if more is None else {"lines": told, "next": str(more)})


def _time(text: str | None, *, name: str) -> int | None:
    """Milliseconds since 1970; what lies between two of them counts as the later one."""
    if text is None:
        return None
    found = _TIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        day, minute, second, fraction, offset = found.groups()
        offset = offset.upper().replace(" ", "+")
        is_leap = second == "60"  # a second that Python does not know
        time = datetime.fromisoformat(f"{day}T{minute}{'59' if is_leap else second}{(fraction or '')[:7]}{offset}")
    except ValueError:
        raise BadBody(f"{name} is a time as in RFC 3339, such as 2026-01-31T12:00:00Z") from None
    return -((_EPOCH - time - timedelta(seconds=is_leap)) // timedelta(milliseconds=1))


plugin = RouteGroup(handlers=(AuditRoutes,), routes=lambda desk: routes(desk.broker))
