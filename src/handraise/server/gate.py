"""The door of the desk: Host, Origin, fetch metadata and token of every request are looked at here, before any route.

Loopback is no protection by itself: a page in a browser can send requests to it, and a name it controls can be made to
point at it. So the Host must be ours, what a page of another origin causes is refused, and nothing but a token or a
browser that signed in opens a route. A browser brings two secrets: a cookie, which every port of the machine is sent,
and a header with what only the app's own origin can read. The cookie alone opens the files of the app.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handraise.errors import Forbidden, HandraiseError, Unauthorized
from handraise.server.http import Gone, send_error
from handraise.server.protocol import WRITE_CHUNK
from handraise.tables.audit import source
from handraise.tables.tokens import Token, Tokens
from handraise.wire import BadBody

__all__ = ["SESSION_HEADER", "Gate", "cookie_name", "require", "require_browser", "source_of", "token_of"]

LONGEST_HOST = 300  # bytes of a Host that is remembered: a name has 253, a port five
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
SESSION_HEADER = b"x-handraise-session"
# Of our cookie. Ours has the shortest path, and browsers send the longest first, so the last ones are tried.
MOST_COOKIES = 8

_HOST = re.compile(rb"(?:[^\s@/?#\\\[\]:]+|\[[0-9a-f:.]+\])(?::\d{0,5})?", re.ASCII | re.IGNORECASE)
_LOOKED_AT = frozenset(
    {
        *(b"host", b"origin", b"authorization", b"cookie", SESSION_HEADER),
        *(b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"),
    }
)


def cookie_name(port: int) -> str:
    """Cookies know no ports: two desks on one machine would overwrite each other's."""
    return f"handraise-{port}"


def token_of(scope: Scope) -> Token:
    """The caller's token, or the browser that stands for one."""
    token: Token = scope["token"]
    return token


def require(scope: Scope, wanted: str) -> Token:
    """The caller's token. Raises Forbidden where its scope is too small."""
    token = token_of(scope)
    if not token.may(wanted):
        raise Forbidden(
            f"the token {token.name!r} may not do this; it takes the scope {wanted!r}", scope=wanted, token=token.name
        )
    return token


def require_browser(scope: Scope) -> Token:
    """The caller's browser, which signed in and brought both halves of its session. Raises Forbidden for every token:
    an agent of the same user may hold one."""
    token: Token = scope["token"]
    if not token.is_browser:
        raise Forbidden(
            "no token can trust a project, only a person can: in the web app of the desk, or with `handraise trust` in "
            "a terminal",
            token=token.name,
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
        entries: Collection[str],
        files: Collection[str],
        signed_out: ASGIApp | None = None,
    ) -> None:
        """Each collection has paths, and prefixes that end in a slash: `public` bring their own proof, to `entries`
        people come from elsewhere, and for `files` the cookie of a browser is enough.

        `signed_out` answers a browser that opens the front page without a token; others get the error."""
        self._app = app
        self._signed_out = signed_out
        self._tokens = tokens
        self._cookie = re.compile(rb"(?:^|;)[ \t]*%b=([\w-]+)[ \t]*(?=;|$)" % cookie_name(port).encode(), re.ASCII)
        self._allowed = LOOPBACK | {host.lower() for host in allowed_hosts}
        self._public = _Paths(public)
        self._entries = _Paths(entries)
        self._files = _Paths(files)
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
        seen: dict[bytes, bytes] = {}
        cookies: list[bytes] = []
        for name, value in scope["headers"]:
            if name in _LOOKED_AT:
                if name == b"cookie":  # a proxy may have taken it apart
                    cookies.append(value)
                elif name in seen:  # whoever reads the other one would decide differently
                    raise BadBody(f"this request has more than one header {name.decode()}; send one")
                seen[name] = value
        host, origin = seen.get(b"host"), seen.get(b"origin")
        if host not in self._known_hosts:
            self._check_host(host)
        if origin is not None:
            _check_origin(origin, host or b"", scheme=scope["scheme"])
        path: str = scope["path"]
        if b"sec-fetch-site" in seen:
            self._check_fetch(seen, path, method=scope["method"])
        if path in self._public:
            return
        authorization = seen.get(b"authorization")
        if authorization is not None:
            secret = _bearer(authorization)
            token = self._tokens.find(secret) if secret else None
        else:
            token = self._browser(cookies, seen.get(SESSION_HEADER), path)
        if token is None:
            raise Unauthorized(
                "this needs a valid token: send `Authorization: Bearer …`; `handraise token add` makes one"
            )
        scope["token"] = token

    def _check_fetch(self, seen: dict[bytes, bytes], path: str, *, method: str) -> None:
        """Browsers say with each request who caused it, and no page can change that. Another port is another origin.

        What comes without these headers is a program, an old browser, or a page that was served without TLS to another
        machine; Host, Origin and token decide about it."""
        site = seen[b"sec-fetch-site"]
        if site == b"same-origin":
            return
        reads = method in ("GET", "HEAD")
        # A tab that is led here. The page is whole and on top, so whoever led it sees nothing of it.
        opens = reads and seen.get(b"sec-fetch-mode") == b"navigate" and seen.get(b"sec-fetch-dest") == b"document"
        if opens and (path == "/" or path in self._entries):
            return
        # By the browser itself: an address that was typed, an icon that it looks for.
        if site == b"none" and reads and (path in self._public or path in self._files):
            return
        raise Forbidden(
            "a page of another origin may not talk to this desk; another port is another origin",
            site=site.decode("latin-1"),
        )

    def _browser(self, headers: Iterable[bytes], secret: bytes | None, path: str) -> Token | None:
        """Whose two halves these are. Others may have set cookies of our name, so more than one is tried: one that is
        not ours locks nobody out, and one of another session does not fit the secret."""
        cookies = [cookie for header in headers for cookie in self._cookie.findall(header)][-MOST_COOKIES:]
        if not cookies:
            return None
        if secret is not None:
            return self._tokens.find_browser(cookies, secret=secret)
        return self._tokens.find_cookie(cookies) if path in self._files else None

    def _check_host(self, host: bytes | None) -> None:
        if host is None or _hostname(host) not in self._allowed:
            raise Forbidden(
                "this desk does not answer to that host name; add it to allowed_hosts if it is yours",
                host=(host or b"").decode("latin-1"),
            )
        if len(host) <= LONGEST_HOST and len(self._known_hosts) < 1000:
            self._known_hosts.add(host)


class _Paths:
    """Paths, and everything under those that end in a slash."""

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = frozenset(paths)
        self._prefixes = tuple(path for path in paths if path.endswith("/") and path != "/")

    def __contains__(self, path: str) -> bool:
        return path in self._paths or path.startswith(self._prefixes)


def _opens_the_front_page(scope: Scope) -> bool:
    if scope["path"] != "/" or scope["method"] not in ("GET", "HEAD"):
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


def _hostname(host: bytes) -> str:
    """Without its port. Empty where more than a name and a port stands there, such as a user or a path."""
    if _HOST.fullmatch(host) is None:
        return ""
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
