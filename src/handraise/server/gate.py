"""The door of the desk: Host, Origin and token of every request are looked at here, before any route.

Loopback is no protection by itself: a page in a browser can send requests to it, and a name it controls can be made to
point at it. So the Host must be ours, a foreign Origin is refused, and nothing but a token opens a route.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handraise.audit import source
from handraise.errors import Forbidden, HandraiseError, Unauthorized
from handraise.server.http import Gone, send_error
from handraise.server.protocol import WRITE_CHUNK
from handraise.tokens import Token, Tokens

__all__ = ["Gate", "cookie_name", "require", "source_of"]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def cookie_name(port: int) -> str:
    """Cookies know no ports: two desks on one machine would overwrite each other's."""
    return f"handraise-{port}"


def require(scope: Scope, wanted: str) -> Token:
    """The caller's token. Raises Forbidden where its scope is too small."""
    token: Token = scope["token"]
    if not token.may(wanted):
        raise Forbidden(
            f"the token {token.name!r} may not do this; it takes the scope {wanted!r}", scope=wanted, token=token.name
        )
    return token


def source_of(scope: Scope) -> str:
    """Which token calls, and from which address, for the audit. No header is believed: anybody can send one."""
    client = scope.get("client")
    return source(scope["token"].name, client[0] if client else None)


class Gate:
    def __init__(
        self,
        app: ASGIApp,
        *,
        tokens: Tokens,
        port: int,
        allowed_hosts: Collection[str],
        public: Collection[str],
        signed_out: ASGIApp | None = None,
    ) -> None:
        """`signed_out` answers a browser that opens the front page without a token; others get the error."""
        self._app = app
        self._signed_out = signed_out
        self._tokens = tokens
        self._cookie = cookie_name(port)
        self._allowed = LOOPBACK | {host.lower() for host in allowed_hosts}
        # Paths, and prefixes that end in a slash, that bring their own proof.
        self._public = frozenset(public)
        self._public_prefixes = tuple(path for path in public if path.endswith("/"))
        self._known_hosts: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._look(scope)
            await self._app(scope, receive, self._guarded(scope, send) if scope["method"] == "GET" else send)
        except HandraiseError as error:
            if isinstance(error, Unauthorized) and self._signed_out is not None and _opens_the_front_page(scope):
                await self._signed_out(scope, receive, send)
            else:
                await send_error(send, error)
        except Gone:
            return

    def _guarded(self, scope: Scope, send: Send) -> Send:
        """Nothing more of a stream is told to a token that was revoked meanwhile."""
        token: Token | None = scope.get("token")
        write_chunk = scope.get("extensions", {}).get(WRITE_CHUNK)
        if token is not None and write_chunk is not None:
            holds = self._tokens.holds
            scope["extensions"] = {WRITE_CHUNK: lambda chunk: holds(token) and write_chunk(chunk)}

        async def guarded(message: Message) -> None:
            if token is not None and message.get("more_body") and not self._tokens.holds(token):
                await send({"type": "http.response.body", "body": b""})
                raise Gone
            await send(message)

        return guarded

    def _look(self, scope: Scope) -> None:
        host = origin = authorization = cookie = None
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"authorization":
                authorization = value
            elif name == b"origin":
                origin = value
            elif name == b"cookie":
                cookie = value
        if host not in self._known_hosts:
            self._check_host(host)
        if origin is not None:
            _check_origin(origin, host or b"", scheme=scope["scheme"])
        path: str = scope["path"]
        if path in self._public or path.startswith(self._public_prefixes):
            return
        secret = _bearer(authorization) if authorization is not None else self._from_cookie(cookie)
        token = self._tokens.find(secret) if secret else None
        if token is None:
            raise Unauthorized(
                "this needs a valid token: send `Authorization: Bearer …`; `handraise token add` makes one"
            )
        scope["token"] = token

    def _check_host(self, host: bytes | None) -> None:
        if host is None or _hostname(host) not in self._allowed:
            raise Forbidden(
                "this desk does not answer to that host name; add it to allowed_hosts if it is yours",
                host=(host or b"").decode("latin-1"),
            )
        if len(self._known_hosts) < 1000:
            self._known_hosts.add(host)

    def _from_cookie(self, header: bytes | None) -> bytes | None:
        if header is None:
            return None
        try:
            morsel = SimpleCookie(header.decode("latin-1")).get(self._cookie)
        except CookieError:
            return None
        return None if morsel is None else morsel.value.encode("latin-1")


def _opens_the_front_page(scope: Scope) -> bool:
    if scope["path"] != "/" or scope["method"] not in ("GET", "HEAD"):
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _hostname(host: bytes) -> str:
    try:
        return (urlsplit(f"//{host.decode('ascii')}").hostname or "").lower()
    except ValueError:
        return ""


def _check_origin(origin: bytes, host: bytes, *, scheme: str) -> None:
    """Called by http, the desk may have a proxy with TLS before it. With TLS of its own it serves no page by http."""
    ours = (b"https",) if scheme == "https" else (b"http", b"https")
    called, _, rest = origin.partition(b"://")
    if called not in ours or rest.lower() != host.lower():
        raise Forbidden("a page of another origin may not talk to this desk", origin=origin.decode("latin-1"))


def _bearer(header: bytes) -> bytes | None:
    kind, _, value = header.partition(b" ")
    match kind.lower():
        case b"bearer":
            return value.strip()
        case b"basic":
            try:
                return base64.b64decode(value, validate=True).partition(b":")[2]
            except binascii.Error:
                return None
        case _:
            return None
