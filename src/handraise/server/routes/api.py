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
from handraise.errors import HandraiseError, SettingsError, StoreFailed
from handraise.server.declare import Parameter, Raw, Tag, declare, in_path, mount
from handraise.server.gate import cookie_name
from handraise.server.http import (
    RouteNotFound,
    TooLarge,
    WrongMethod,
    encode,
    error_body,
    error_headers,
    query,
    read_body,
    send_pieces,
)
from handraise.server.openapi import document
from handraise.server.pages import sign_in_over_page, sign_in_page, signed_in_page, words_for
from handraise.server.routes import RouteGroup
from handraise.server.routes._health import PROBLEMS, VERSION, Health
from handraise.server.routes._metrics import MEDIA_TYPE, Metrics
from handraise.server.stream import EVENTS
from handraise.tables.tokens import Tokens
from handraise.transports import proof
from handraise.wire import LARGE, BadBody, parse
from handraise.wire import desk as desk_shapes
from handraise.wire import tokens as token_shapes
from handraise.wire.tokens import TokenBody

__all__ = ["HEADERS", "ListResponse", "SignIn", "json_response", "on_error", "routes"]

SIGN_IN_FOR = 15 * 60 * 1000  # milliseconds a printed link opens the door
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

Handler = Callable[[Request], Awaitable[Response]]

ACCESS = Tag("access", "Tokens and signing in.")
DESK = Tag("desk", "The desk itself.")
NAME_IN_PATH = in_path("name", meaning="The name of the token.", example="ci")
CODE_IN_PATH = in_path("code", meaning="What the link holds.")
NONCE = Parameter(
    "nonce",
    schema={"type": "string", "pattern": "^[0-9a-f]{64}$"},
    meaning="64 hexadecimal digits, chosen anew for every call.",
    is_required=True,
)

DOCUMENT = Raw("Document", {"type": "object"})


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
        encode(body),
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


class DeskRoutes:
    """The desk itself: how it is, which desk it is, where its events stand, and what it can be asked."""

    def __init__(self, broker: Broker, *, lag: Lag, prove: Callable[[str], str] | None) -> None:
        self._store = broker.store
        self._health = Health(broker.store, lag=lag)
        self._metrics = Metrics(broker, lag=lag)
        self._prove = prove

    @declare(
        "GET /healthz",
        id="check_health",
        summary="Whether the desk is well",
        tag=DESK,
        scope=None,
        replies={
            200: (desk_shapes.Health, "It takes asks. `degraded` says that something is wrong all the same."),
            503: (desk_shapes.Down, "The database can be neither written nor read."),
        },
    )
    async def health(self, request: Request) -> Response:
        status, problems = await self._health.look()
        told = {"status": status, "version": VERSION, "problems": problems}
        if status == "down":
            said = "; ".join(PROBLEMS[problem] for problem in problems)
            raise StoreFailed(f"{said}; the log of the desk says why", **told)
        return json_response(told)

    @declare(
        "GET /v1/proof",
        id="prove_the_desk",
        summary="Proof that this is the desk which wrote its address into its home",
        tag=DESK,
        scope=None,
        parameters=(NONCE,),
        replies={
            200: (desk_shapes.Proof, "The nonce and the address of the desk, signed with the key in `desk.json`.")
        },
        refusals=(BadBody,),
    )
    async def prove(self, request: Request) -> Response:
        """For programs of the same home, which send nothing else before they know that we are its desk."""
        nonce = query(request.scope["query_string"], "nonce").get("nonce", "")
        if self._prove is None or not proof.check_nonce(nonce):
            raise BadBody("nonce is 64 hexadecimal digits, in small letters")
        return json_response(desk_shapes.Proof(proof=self._prove(nonce)))

    @declare(
        "GET /metrics",
        id="show_metrics",
        summary="Numbers for a monitoring system, as OpenMetrics",
        tag=DESK,
        scope="answer",
        replies={200: ("application/openmetrics-text", "One line a number.")},
    )
    async def metrics(self, request: Request) -> Response:
        return Response(await self._metrics.text(), media_type=MEDIA_TYPE, headers=HEADERS)

    @declare(
        "GET /openapi.json",
        id="show_this_document",
        summary="This document",
        tag=DESK,
        scope="",
        replies={200: (DOCUMENT, "OpenAPI 3.1.")},
    )
    async def openapi(self, request: Request) -> Response:
        return json_response(document())

    @declare(
        "GET /v1/cursor",
        id="show_the_cursor",
        summary="Where the events stand, to follow them from here later",
        tag=EVENTS,
        scope="answer",
        replies={200: (desk_shapes.Cursor, "The cursor of the newest event.")},
    )
    async def cursor(self, request: Request) -> Response:
        return json_response(desk_shapes.Cursor(cursor=await self._store.cursor()))


class AccessRoutes:
    """Tokens, and signing a browser in."""

    def __init__(self, *, tokens: Tokens, sign_in: SignIn, port: int) -> None:
        self._tokens = tokens
        self._sign_in = sign_in
        self._port = port

    @declare(
        "GET /v1/tokens",
        id="list_tokens",
        summary="All tokens, without their secrets, which are kept nowhere",
        tag=ACCESS,
        scope="admin",
        replies={200: (token_shapes.Tokens, "By name.")},
    )
    async def list(self, request: Request) -> Response:
        return json_response(token_shapes.Tokens(tokens=tuple(token.to_shape() for token in self._tokens.all())))

    @declare(
        "POST /v1/tokens",
        id="add_a_token",
        summary="Make a token. Its secret is told here and never again",
        tag=ACCESS,
        scope="admin",
        body=TokenBody,
        replies={201: (token_shapes.NewToken, "The new token.")},
        refusals=(BadBody, TooLarge, SettingsError, StoreFailed),
    )
    async def add(self, request: Request) -> Response:
        body = parse(TokenBody, await read_body(request.scope, request.receive))
        secret = await self._tokens.add(body.name, scopes=body.scopes)
        return json_response(
            token_shapes.NewToken(name=body.name, scopes=tuple(sorted(body.scopes)), token=secret), status=201
        )

    @declare(
        "DELETE /v1/tokens/{name}",
        id="revoke_a_token",
        summary="Refuse a token from now on, also on connections and streams that are open",
        tag=ACCESS,
        scope="admin",
        parameters=(NAME_IN_PATH,),
        replies={204: (None, "It is revoked.")},
        refusals=(RouteNotFound, StoreFailed),
    )
    async def revoke(self, request: Request) -> Response:
        if not await self._tokens.revoke(request.path_params["name"]):
            raise RouteNotFound("there is no token of that name; `handraise token list` shows them")
        return Response(status_code=204)

    @declare(
        "POST /v1/signin",
        id="make_a_sign_in_link",
        summary="Make a link that signs a browser in, once",
        tag=ACCESS,
        scope="admin",
        replies={201: (token_shapes.SignInLink, "The link.")},
    )
    async def sign_in_link(self, request: Request) -> Response:
        return json_response(
            token_shapes.SignInLink(url=self._sign_in.link(str(request.base_url).rstrip("/"))), status=201
        )

    @declare(
        "GET /signin/{code}",
        id="show_the_sign_in_page",
        summary="The page with the button. Looking at it does not use the link up",
        tag=ACCESS,
        scope=None,
        parameters=(CODE_IN_PATH,),
        replies={200: ("text/html", "A page.")},
    )
    async def show_sign_in(self, request: Request) -> Response:
        return sign_in_page(words_for(request))

    @declare(
        "POST /signin/{code}",
        id="sign_in",
        summary="Use the link up and give the browser both halves of its session",
        tag=ACCESS,
        scope=None,
        parameters=(CODE_IN_PATH,),
        replies={
            200: ("text/html", "Signed in. A script of the page keeps one half and opens the inbox."),
            410: ("text/html", "The link was used or has expired."),
        },
        refusals=(StoreFailed,),
    )
    async def sign_in(self, request: Request) -> Response:
        if not self._sign_in.use(request.path_params["code"]):
            return sign_in_over_page(words_for(request))
        halves = await self._tokens.add_browser(scopes=("admin",))
        response = signed_in_page(words_for(request), halves.secret)
        response.set_cookie(
            cookie_name(self._port),
            halves.cookie,
            httponly=True,
            secure=request.url.scheme == "https",
            samesite="strict",
            max_age=30 * 24 * 3600,
        )
        return response


def routes(
    broker: Broker,
    *,
    tokens: Tokens,
    sign_in: SignIn,
    port: int,
    lag: Lag,
    prove: Callable[[str], str] | None = None,
) -> list[Route]:
    return [
        *mount(DeskRoutes(broker, lag=lag, prove=prove)),
        *mount(AccessRoutes(tokens=tokens, sign_in=sign_in, port=port)),
    ]


plugin = RouteGroup(
    handlers=(DeskRoutes, AccessRoutes),
    routes=lambda desk: routes(
        desk.broker, tokens=desk.tokens, sign_in=desk.sign_in, port=desk.port, lag=desk.lag, prove=desk.prove
    ),
)
