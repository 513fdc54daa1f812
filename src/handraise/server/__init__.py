"""The desk over HTTP: one ASGI application on a broker."""

from __future__ import annotations

from collections.abc import Callable, Collection

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from handraise.broker import Broker
from handraise.broker.counts import Lag
from handraise.chat.runtime import Chats
from handraise.errors import HandraiseError
from handraise.server.gate import Gate
from handraise.server.openapi import route_groups
from handraise.server.routes import Parts
from handraise.server.routes.acp import Acp
from handraise.server.routes.api import SignIn, on_error
from handraise.server.routes.attach import Attached
from handraise.server.routes.mcp import Mcp
from handraise.server.routes.runs import Runs
from handraise.server.routes.trust import TrustRoutes
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
    `prove` signs a nonce for programs of the same home."""
    desk = Parts(
        broker=broker,
        tokens=tokens,
        sign_in=sign_in,
        port=port,
        lag=lag,
        worker=worker,
        attached=attached,
        mcp=mcp,
        acp=acp,
        runs=runs,
        wires=wires or Wires(broker.store, clock=broker.clock, is_on=False),
        chats=talks,
        channels=reaching,
        trust=trust,
        web=Web(),
        prove=prove,
    )
    return Gate(
        _routed(desk),
        tokens=tokens,
        port=port,
        allowed_hosts=allowed_hosts,
        public=PUBLIC,
        entries=ENTRIES,
        files=PATHS,
        signed_out=desk.web.signed_out,
    )


def _routed(desk: Parts) -> ASGIApp:
    """The hot routes are chosen before the framework sees them; the rest are ordinary."""
    # Other people's APIs come first: some of their paths are narrower than ours.
    groups = (*route_groups("server.compat"), *route_groups("server.routes"))
    hot = {path: app for group in groups for path, app in group.hot(desk).items()}
    below = [(path, app) for path, app in hot.items() if path.endswith("/")]
    ordinary = Starlette(
        routes=[route for group in groups for route in group.routes(desk)],
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
            route = next((each for prefix, each in below if path.startswith(prefix)), ordinary)
        await route(scope, receive, send)

    return app
