"""Answer links: each lets whoever holds it answer one ask, once, until a time. Kept as hashes, like tokens."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import NamedTuple

from handraise.clock import Clock
from handraise.stores import Database

__all__ = ["DAY", "LONGEST", "Link", "Links"]

DAY = 24 * 3600  # seconds a link is good for unless its maker says otherwise
LONGEST = 30 * DAY
KEPT = LONGEST * 1000  # milliseconds that one is kept after its end, to say that it ended rather than that it never was
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")  # 256 random bits


class Link(NamedTuple):
    hash: str
    ask: str
    by: str  # who answers with it, as its maker said
    via: str
    maker: str  # the token it was made with; empty where the desk itself did
    expires_at: int
    used_at: int | None


class Links:
    """Whether a link still counts, beyond its time, is up to its ask: the one answer that settles it uses it up."""

    def __init__(self, database: Database, *, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def make(self, ask: str, *, by: str, via: str, maker: str, seconds: float = DAY) -> tuple[str, int]:
        """The secret of a new link, which is kept nowhere, and when it ends."""
        secret, now = secrets.token_urlsafe(32), self._clock.now()
        expires_at = now + round(seconds * 1000)
        await self._database.write("delete from links where expires_at < ?", now - KEPT)
        await self._database.write(
            "insert into links (hash, ask, made_for, via, maker, created_at, expires_at) values (?, ?, ?, ?, ?, ?, ?)",
            _hash(secret),
            ask,
            by,
            via,
            maker,
            now,
            expires_at,
        )
        return secret, expires_at

    async def find(self, secret: str) -> Link | None:
        """The link, also one that is over. What does not look like a secret of ours is not looked for."""
        if not _SECRET.fullmatch(secret):
            return None
        rows = await self._database.read(
            "select hash, ask, made_for, via, maker, expires_at, used_at from links where hash = ?", _hash(secret)
        )
        return Link(*rows[0]) if rows else None

    async def use(self, link: Link) -> None:
        """It has answered. Only the first time is written down."""
        await self._database.write(
            "update links set used_at = ? where hash = ? and used_at is null", self._clock.now(), link.hash
        )

    async def forget(self) -> None:
        """Those of asks that are gone: something else may be asked under the same id."""
        await self._database.write("delete from links where not exists (select 1 from asks where asks.id = links.ask)")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
