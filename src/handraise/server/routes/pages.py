"""The pages behind answer links, and the files of the web app. They are built in `server/pages` and `server/web`."""

from __future__ import annotations

from handraise.server.pages import Pages
from handraise.server.routes import Parts, RouteGroup
from handraise.server.web import Web

__all__ = ["plugin"]


def _pages(desk: Parts) -> Pages:
    return Pages(desk.broker, tokens=desk.tokens, people=None if desk.channels is None else desk.channels.people)


plugin = RouteGroup(handlers=(Pages, Web), routes=lambda desk: (*_pages(desk).routes(), *desk.web.routes()))
