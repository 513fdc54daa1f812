"""The tokens of a desk, and links that sign a browser in. Both take a token with the scope `admin`."""

from __future__ import annotations

from collections.abc import Sequence

from handraise.client.connection import Connection, path
from handraise.wire import tokens as shapes
from handraise.wire.tokens import NewToken, SignInLink, Token

__all__ = ["Tokens"]


class Tokens:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> tuple[Token, ...]:
        """Without their secrets, which no desk keeps."""
        return (await self._connection.get(shapes.Tokens, path("tokens"))).tokens

    async def add(self, name: str, *, scopes: Sequence[str]) -> NewToken:
        """Its secret is told only now."""
        return await self._connection.post(NewToken, path("tokens"), body={"name": name, "scopes": list(scopes)})

    async def revoke(self, name: str) -> None:
        await self._connection.call("DELETE", path("tokens", name))

    async def sign_in(self) -> str:
        """An address that signs a browser in, once."""
        return (await self._connection.post(SignInLink, path("signin"), body={})).url
