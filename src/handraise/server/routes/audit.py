"""`GET /v1/audit`: every decision the desk still keeps, page by page, for whoever administers it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handraise.broker import Broker
from handraise.server.gate import require
from handraise.server.http import query
from handraise.server.routes.api import json_response
from handraise.server.routes.asks import MOST_LISTED, PAGE, number
from handraise.tables.audit import lines
from handraise.wire import BadBody

__all__ = ["routes"]

# RFC 3339. An offset's `+` that was not percent-encoded arrives as a space.
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:)(\d\d)(\.\d+)?([Zz]|[+ -]\d\d:\d\d)", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def routes(broker: Broker) -> list[Route]:
    async def audit(request: Request) -> Response:
        require(request.scope, "admin")
        asked = query(request.scope["query_string"], "since", "until", "after", "limit")
        told, more = await lines(
            broker.store,
            since=_time(asked.get("since"), name="since"),
            until=_time(asked.get("until"), name="until"),
            after=number(asked.get("after", "0"), name="after"),
            limit=number(asked.get("limit", str(PAGE)), name="limit", least=1, most=MOST_LISTED),
        )
        return json_response({"lines": told} if more is None else {"lines": told, "next": str(more)})

    return [Route("/v1/audit", audit)]


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
