"""The ordinary routes, on Starlette: tokens, health, the document that describes the API, signing in."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from handraise.broker import Broker
from handraise.broker.counts import Lag
from handraise.clock import Clock
from handraise.errors import HandraiseError, StoreFailed
from handraise.server.gate import cookie_name, require
from handraise.server.http import (
    RouteNotFound,
    WrongMethod,
    error_body,
    error_headers,
    query,
    read_body,
    send_pieces,
)
from handraise.server.openapi import document
from handraise.server.pages import sign_in_over_page, sign_in_page, signed_in_page, words_for
from handraise.server.routes.health import PROBLEMS, VERSION, Health
from handraise.server.routes.metrics import MEDIA_TYPE, Metrics
from handraise.tables.tokens import Tokens
from handraise.transports import proof
from handraise.wire import LARGE, BadBody, TokenBody, parse

__all__ = ["HEADERS", "ListResponse", "SignIn", "json_response", "on_error", "routes"]

SIGN_IN_FOR = 15 * 60 * 1000  # milliseconds a printed link opens the door
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

Handler = Callable[[Request], Awaitable[Response]]


class SignIn:
    """One-time links. A GET shows a button; only its POST uses the link up, so that a preview cannot burn it."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._codes: dict[str, int] = {}

    def link(self, url: str) -> str:
        now = self._clock.now()
        self._codes = {code: until for code, until in self._codes.items() if until > now}
        code = secrets.token_urlsafe(24)
        self._codes[code] = now + SIGN_IN_FOR
        return f"{url}/signin/{code}"

    def use(self, code: str) -> bool:
        return self._codes.pop(code, 0) > self._clock.now()


def json_response(body: Any, *, status: int = 200) -> Response:
    return Response(
        to_json(body),
        status_code=status,
        media_type="application/json",
        headers=HEADERS,
    )


class ListResponse(Response):
    """A list whose entries were written one by one, and what stands beside it. It is not joined where it is large."""

    def __init__(self, name: str, entries: Sequence[bytes], **beside: Any) -> None:
        super().__init__(media_type="application/json", headers=HEADERS)
        self._pieces = [b'{"%s":[' % name.encode()]
        for number, entry in enumerate(entries):
            self._pieces += (b",", entry) if number else (entry,)
        self._pieces.append(b"],%s" % to_json(beside)[1:] if beside else b"]}")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_large = sum(map(len, self._pieces)) > LARGE
        await send_pieces(send, self._pieces if is_large else (b"".join(self._pieces),))


async def on_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HandraiseError):
        error = _in_our_words(request, error)
    headers = {name.decode(): value.decode() for name, value in error_headers(error)}
    return Response(
        error_body(error), status_code=error.status, media_type="application/json", headers=HEADERS | headers
    )


def _in_our_words(request: Request, error: Exception) -> HandraiseError:
    """What the framework says about a request that fits no route, or a route but not its method."""
    if not isinstance(error, HTTPException) or error.status_code != 405:
        return RouteNotFound("there is no such route; `/openapi.json` lists them")
    fitting = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in fitting if route.path == fitting[0].path for method in route.methods or ()}
    allow = ", ".join(sorted(methods))
    return WrongMethod(f"this route takes {allow}", allow=allow)


class Monitoring:
    """How the desk is, for load balancers and monitoring systems."""

    def __init__(self, broker: Broker, *, lag: Lag) -> None:
        self._health = Health(broker.store, lag=lag)
        self._metrics = Metrics(broker, lag=lag)

    async def health(self, request: Request) -> Response:
        status, problems = await self._health.look()
        told = {"status": status, "version": VERSION, "problems": problems}
        if status == "down":
            said = "; ".join(PROBLEMS[problem] for problem in problems)
            raise StoreFailed(f"{said}; the log of the desk says why", **told)
        return json_response(told)

    async def metrics(self, request: Request) -> Response:
        require(request.scope, "answer")
        return Response(await self._metrics.text(), media_type=MEDIA_TYPE, headers=HEADERS)


def routes(
    broker: Broker,
    *,
    tokens: Tokens,
    sign_in: SignIn,
    port: int,
    lag: Lag,
    prove: Callable[[str], str] | None = None,
) -> list[Route]:
    monitoring = Monitoring(broker, lag=lag)

    async def proven(request: Request) -> Response:
        """For programs of the same home, which send nothing else before they know that we are its desk."""
        nonce = query(request.scope["query_string"], "nonce").get("nonce", "")
        if prove is None or not proof.check_nonce(nonce):
            raise BadBody("nonce is 64 hexadecimal digits, in small letters")
        return json_response({"proof": prove(nonce)})

    async def openapi(request: Request) -> Response:
        return json_response(document())

    async def cursor(request: Request) -> Response:
        require(request.scope, "answer")
        return json_response({"cursor": await broker.store.cursor()})

    async def list_tokens(request: Request) -> Response:
        require(request.scope, "admin")
        return json_response({"tokens": [token.told() for token in tokens.all()]})

    async def add_token(request: Request) -> Response:
        require(request.scope, "admin")
        body = parse(TokenBody, await read_body(request.scope, request.receive))
        secret = await tokens.add(body.name, scopes=body.scopes)
        return json_response({"name": body.name, "scopes": sorted(body.scopes), "token": secret}, status=201)

    async def revoke_token(request: Request) -> Response:
        require(request.scope, "admin")
        if not await tokens.revoke(request.path_params["name"]):
            raise RouteNotFound("there is no token of that name; `handraise token list` shows them")
        return Response(status_code=204)

    async def sign_in_link(request: Request) -> Response:
        require(request.scope, "admin")
        return json_response({"url": sign_in.link(str(request.base_url).rstrip("/"))}, status=201)

    async def show_sign_in(request: Request) -> Response:
        return sign_in_page(words_for(request))

    async def sign_in_done(request: Request) -> Response:
        if not sign_in.use(request.path_params["code"]):
            return sign_in_over_page(words_for(request))
        halves = await tokens.add_browser(scopes=("admin",))
        response = signed_in_page(words_for(request), halves.secret)
        response.set_cookie(
            cookie_name(port),
            halves.cookie,
            httponly=True,
            secure=request.url.scheme == "https",
            samesite="strict",
            max_age=30 * 24 * 3600,
        )
        return response

    return [
        Route("/healthz", monitoring.health),
        Route(proof.PATH, proven),
        Route("/openapi.json", openapi),
        Route("/metrics", monitoring.metrics),
        Route("/v1/cursor", cursor),
        Route("/v1/tokens", list_tokens),
        Route("/v1/tokens", add_token, methods=["POST"]),
        Route("/v1/tokens/{name}", revoke_token, methods=["DELETE"]),
        Route("/v1/signin", sign_in_link, methods=["POST"]),
        Route("/signin/{code}", show_sign_in),
        Route("/signin/{code}", sign_in_done, methods=["POST"]),
    ]
