"""`GET /v1/events`. How a stream is written is in `server/stream`, which the routes of other people's APIs use too."""

from __future__ import annotations

from handraise.server.routes import RouteGroup
from handraise.server.stream import EventRoute

__all__ = ["plugin"]

plugin = RouteGroup(handlers=(EventRoute,), hot=lambda desk: {"/v1/events": EventRoute(desk.broker, chats=desk.chats)})
