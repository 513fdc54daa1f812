"""Who may do what: tokens and browsers that signed in, kept as hashes, with scopes each and revocable at any time."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import NamedTuple, Self

from handraise.clock import Clock
from handraise.errors import SettingsError, StoreError
from handraise.stores import Database
from handraise.wire import time_text
from handraise.wire import tokens as shapes
from handraise.wire.plain import shape_of

__all__ = ["ADMIN", "FILES", "OWNED", "SCOPES", "Halves", "Token", "Tokens"]

log = logging.getLogger(__name__)

TOPIC = "tokens"
RETRY = 1.0  # seconds until tokens that could not be read are read again
SCOPES = ("ask", "answer", "admin")
FILES = "files"  # of a cookie alone: what the app is made of, and nothing that the desk knows. No token has it.
RESERVED = frozenset({"agent", "policy"})
OWNED = "@"  # begins the id of an ask that belongs to a token, and no other
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A caller. `admin` may do everything; the others only what their scopes say."""

    name: str
    scopes: frozenset[str]
    created_at: int = 0
    is_browser: bool = False  # it came with both halves of a browser that signed in; no program is given those

    def may(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    @property
    def owner(self) -> str:
        """What its asks are kept apart by. The desk's own have none."""
        return "" if "admin" in self.scopes else self.name

    def own_id(self, id: str) -> str:
        """The id under which an ask of this token is kept, so that ids of different tokens cannot collide."""
        prefix = f"{OWNED}{self.owner}:"
        return id if not self.owner or id.startswith(prefix) else prefix + id

    def to_shape(self) -> shapes.Token:
        return shape_of(shapes.Token, self, scopes=tuple(sorted(self.scopes)), created_at=time_text(self.created_at))


ADMIN = Token(name="admin", scopes=frozenset({"admin"}))


class Halves(NamedTuple):
    """The two secrets of a browser that signed in. Neither counts without the other, and neither is a token."""

    cookie: str
    secret: str


class _Browser(NamedTuple):
    token: Token
    secret_hash: str
    of_cookie: Token  # what it may with its cookie alone


class Tokens:
    """All of them, in memory by hash: a look-up on every request must cost nothing.

    Use as an async context manager. Where desks share a database, what one of them adds or revokes is read again by
    the others as soon as they hear of it.
    """

    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._by_hash: dict[str, Token] = {}
        self._browsers: dict[str, _Browser] = {}  # by the hash of the cookie, where no token is looked for
        self._named: dict[str, Token] = {}
        self._held: frozenset[Token] = frozenset()
        self._accepted: dict[bytes, Token] = {}
        self._by_secret: dict[bytes, Token] = {}  # what was looked up, so that hashing is done once
        self._loading = asyncio.Lock()
        self._stale = asyncio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._stack.callback(self._database.hear(TOPIC, self._stale.set))
        await self.load()
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        reading = tasks.create_task(self._read_again())
        self._stack.callback(reading.cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _read_again(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                await self.load()
            except StoreError as failure:
                log.warning("tokens could not be read again, trying once more: %s", failure)
                self._stale.set()
                await asyncio.sleep(RETRY)

    async def load(self) -> None:
        async with self._loading:  # one after the other, so that what was read first never replaces what was read last
            tokens = await self._database.read("select name, hash, scopes, created_at from tokens")
            browsers = await self._database.read(
                "select name, cookie_hash, secret_hash, scopes, created_at from browsers"
            )
            self._by_hash = {hash: _token(name, scopes, created_at) for name, hash, scopes, created_at in tokens}
            self._browsers = {
                cookie_hash: _Browser(
                    replace(_token(name, scopes, created_at), is_browser=True),
                    secret_hash,
                    of_cookie=_token(name, FILES, created_at),
                )
                for name, cookie_hash, secret_hash, scopes, created_at in browsers
            }
            made = [*self._by_hash.values(), *(browser.token for browser in self._browsers.values())]
            self._named = {token.name: token for token in made}
            self._held = frozenset([*made, *(browser.of_cookie for browser in self._browsers.values())])
            self._by_secret = dict(self._accepted)

    def find(self, secret: bytes) -> Token | None:
        token = self._by_secret.get(secret)
        if token is None:
            token = self._by_hash.get(_hash(secret))
            if token is not None:
                self._by_secret[secret] = token
        return token

    def find_browser(self, cookies: Iterable[bytes], *, secret: bytes) -> Token | None:
        """The browser that one of these cookies and the secret belong to. Both must be of the same one."""
        given = _hash(secret)
        for cookie in cookies:
            browser = self._browsers.get(_hash(cookie))
            if browser is not None and hmac.compare_digest(browser.secret_hash, given):
                return browser.token
        return None

    def find_cookie(self, cookies: Iterable[bytes]) -> Token | None:
        """What the browser of one of these cookies may without its secret: every port of its machine is sent them."""
        found = (self._browsers.get(_hash(cookie)) for cookie in cookies)
        return next((browser.of_cookie for browser in found if browser is not None), None)

    def holds(self, token: Token) -> bool:
        """Whether a token that was found before is still one: not revoked, not replaced."""
        return token in self._held or (token is ADMIN and bool(self._accepted))

    def named(self, name: str) -> Token | None:
        """The token of that name. The one of the environment has no row, and may hold at another desk alone."""
        return ADMIN if name == ADMIN.name else self._named.get(name)

    def all(self) -> list[Token]:
        """Tokens and browsers, by name."""
        return sorted(self._named.values(), key=lambda token: token.name)

    async def add(self, name: str, *, scopes: Iterable[str], secret: str | None = None, replace: bool = False) -> str:
        """Make a token and return its secret, which is kept nowhere. Raises SettingsError."""
        wanted = frozenset(scopes)
        if not _NAME.fullmatch(name):
            raise SettingsError("a token's name has 1 to 63 letters, digits, dots, dashes or underscores")
        if name.lower() in RESERVED and wanted != {"ask"}:
            raise SettingsError(f"answers by {name!r} are those that no person gave; choose another name")
        if not wanted or not wanted <= set(SCOPES):
            raise SettingsError(f"a token's scopes are among {', '.join(SCOPES)}; got {', '.join(wanted) or 'none'}")
        if not replace and name in self._named:
            raise SettingsError(f"there is a token {name!r} already; revoke it first, or choose another name")
        secret = secret or f"hr_{secrets.token_urlsafe(32)}"
        await self._database.write(
            "insert into tokens (name, hash, scopes, created_at) values (?, ?, ?, ?) on conflict (name) do update "
            "set hash = excluded.hash, scopes = excluded.scopes, created_at = excluded.created_at",
            name,
            _hash(secret.encode()),
            " ".join(sorted(wanted)),
            self._clock.now(),
            topic=TOPIC,
        )
        await self.load()
        return secret

    async def add_browser(self, *, scopes: Iterable[str]) -> Halves:
        """Let a browser in and return its two secrets, which are kept nowhere."""
        halves = Halves(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        await self._database.write(
            "insert into browsers (name, cookie_hash, secret_hash, scopes, created_at) values (?, ?, ?, ?, ?)",
            f"browser-{secrets.token_hex(4)}",
            _hash(halves.cookie.encode()),
            _hash(halves.secret.encode()),
            " ".join(sorted(scopes)),
            self._clock.now(),
            topic=TOPIC,
        )
        await self.load()
        return halves

    async def revoke(self, name: str) -> bool:
        """From now on the token or browser of that name is refused. False if there was none."""
        if not _NAME.fullmatch(name):
            return False
        gone = await self._database.write_all(
            ("delete from tokens where name = ? returning name", (name,)),
            ("delete from browsers where name = ? returning name", (name,)),
            topic=TOPIC,
        )
        await self.load()
        return any(gone)

    def accept(self, secret: str) -> None:
        """Let a secret in as admin for as long as this process lives, as HANDRAISE_TOKEN asks for."""
        self._accepted[secret.encode()] = self._by_secret[secret.encode()] = ADMIN


def _token(name: str, scopes: str, created_at: int) -> Token:
    return Token(name=name, scopes=frozenset(scopes.split()), created_at=created_at)


def _hash(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()
