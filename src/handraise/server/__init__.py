"""The desk over HTTP: one ASGI application on a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from handraise.broker import Broker
from handraise.broker.counts import Lag
from handraise.chat.runtime import Chats
from handraise.errors import HandraiseError
from handraise.server.compat import opencode, runbook, sandbox_agent
from handraise.server.gate import Gate
from handraise.server.pages import Pages
from handraise.server.routes import audit, channels, chats, rules, sessions
from handraise.server.routes import raw_messages as wire_routes
from handraise.server.routes.acp import Acp
from handraise.server.routes.api import SignIn, on_error, routes
from handraise.server.routes.asks import AskRoutes
from handraise.server.routes.attach import Attached
from handraise.server.routes.mcp import Mcp
from handraise.server.routes.runs import Runs
from handraise.server.routes.trust import TrustRoutes
from handraise.server.stream import EventRoute
from handraise.server.web import PATHS, Web
from handraise.switchboard import Channels
from handraise.tables.raw_messages import Wires
from handraise.tables.tokens import Tokens
from handraise.transports import proof
from handraise.transports.bodies import CONNECTION
from handraise.worker import Worker

__all__ = ["create_app"]

PUBLIC = ("/healthz", proof.PATH, "/signin/", "/a/", "/webhooks/")  # what brings its own proof
ENTRIES = ("/signin/", "/a/")  # pages that people are led to from elsewhere; no other route answers what others caused


def create_app(
    broker: Broker,
    *,
    tokens: Tokens,
    sign_in: SignIn,
    port: int,
    lag: Lag,
    worker: Worker | None = None,
    attached: Attached | None = None,
    mcp: Mcp | None = None,
    acp: Acp | None = None,
    runs: Runs | None = None,
    wires: Wires | None = None,
    talks: Chats | None = None,
    reaching: Channels | None = None,
    trust: TrustRoutes | None = None,
    allowed_hosts: Collection[str] = (),
    prove: Callable[[str], str] | None = None,
) -> ASGIApp:
    """`attached` is for agents that call us from people's own terminals; without a worker nothing is started here.
    `prove` signs a nonce for programs of the same home.

    The hot routes are chosen before the framework sees them; the rest are ordinary."""
    asks = AskRoutes(broker)
    web = Web()
    events = EventRoute(broker, chats=talks)
    hot: dict[str, Callable[[Scope, Receive, Send], Awaitable[None]]] = {
        "/v1/asks": asks,
        "/v1/deliveries": asks.deliveries,
        "/v1/events": events,
    }
    if mcp is not None:
        hot["/mcp"] = mcp
    ordinary = Starlette(
        routes=[
            *sandbox_agent.routes(broker),
            *opencode.routes(broker),
            *runbook.routes(broker),
            *(runs.routes() if runs is not None else ()),
            *audit.routes(broker),
            *(channels.routes(broker, reaching) if reaching is not None else ()),
            *(chats.routes(talks) if talks is not None else ()),
            *rules.routes(broker),
            *(trust.routes() if trust is not None else ()),
            *(attached.routes() if attached is not None else ()),
            *(acp.routes() if acp is not None else ()),
            *wire_routes.routes(broker, wires=wires or Wires(broker.store, clock=broker.clock, is_on=False)),
            *sessions.routes(broker, worker=worker),
            *Pages(broker, tokens=tokens, people=None if reaching is None else reaching.people).routes(),
            *web.routes(),
            *routes(broker, tokens=tokens, sign_in=sign_in, port=port, lag=lag, prove=prove),
        ],
        exception_handlers={HandraiseError: on_error, HTTPException: on_error},
    )
    ordinary.router.redirect_slashes = False  # a path is one thing: nothing that was sent is sent again elsewhere

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        connection, token = scope.get(CONNECTION), scope.get("token")
        if connection is not None and token is not None:
            connection.enter(token)
        path = scope.get("path", "")
        route = hot.get(path)
        if route is None:
            route = asks if path.startswith("/v1/asks/") else ordinary
        await route(scope, receive, send)

    return Gate(
        app,
        tokens=tokens,
        port=port,
        allowed_hosts=allowed_hosts,
        public=PUBLIC,
        entries=ENTRIES,
        files=PATHS,
        signed_out=web.signed_out,
    )
