"""The routes of our own HTTP API, one file a resource. Other people's APIs are in `server/compat`.

A member gives `plugin`, a RouteGroup. A stranger's is an entry point of the group `handraise.routes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.routing import BaseRoute

from handraise.broker import Broker
from handraise.broker.counts import Lag
from handraise.tables.tokens import Tokens

if TYPE_CHECKING:
    from handraise.chat.runtime import Chats
    from handraise.server.routes.acp import Acp
    from handraise.server.routes.api import SignIn
    from handraise.server.routes.attach import Attached
    from handraise.server.routes.mcp import Mcp
    from handraise.server.routes.runs import Runs
    from handraise.server.routes.trust import TrustRoutes
    from handraise.server.web import Web
    from handraise.switchboard import Channels
    from handraise.tables.raw_messages import Wires
    from handraise.worker import Worker

__all__ = ["Parts", "RouteGroup"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the routes of a desk stand on. A part is None where this desk goes without it."""

    broker: Broker
    tokens: Tokens
    sign_in: SignIn
    port: int
    lag: Lag
    worker: Worker | None
    attached: Attached | None
    mcp: Mcp | None
    acp: Acp | None
    runs: Runs | None
    wires: Wires
    chats: Chats | None
    channels: Channels | None
    trust: TrustRoutes | None
    web: Web
    prove: Callable[[str], str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteGroup:
    """`handlers` are the classes whose methods declare the routes; `routes` makes them for one desk.

    `hot` are plain ASGI applications by their path, which are chosen before the framework sees a request. A path that
    ends with a slash stands for everything below it.
    """

    handlers: tuple[type, ...]
    routes: Callable[[Parts], Iterable[BaseRoute]] = lambda parts: ()
    hot: Callable[[Parts], Mapping[str, Any]] = lambda parts: {}
