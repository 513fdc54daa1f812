"""The channels of a desk, and where an ask was shown."""

from __future__ import annotations

from handraise.client.connection import Connection, path
from handraise.wire import channels as shapes
from handraise.wire.channels import Channel, ChannelTest, Showing

__all__ = ["Channels"]

EXAMINE = 60.0  # seconds in which each is tried out


class Channels:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, *, examine: bool = False, silence: float = EXAMINE) -> tuple[Channel, ...]:
        """How each is; with `examine` also what is wrong with it, which takes a while."""
        target = path("channels", examine=1 if examine else None)
        return (await self._connection.get(shapes.Channels, target, silence=silence if examine else 10)).channels

    async def test(self, name: str, *, where: str = "") -> str:
        """Ask something there. What comes back is the id of that ask."""
        return (await self._connection.post(ChannelTest, path("channels", name, "test"), body={"where": where})).ask

    async def showings(self, ask: str) -> tuple[Showing, ...]:
        """Where an ask was shown, or could not be."""
        return (await self._connection.get(shapes.Showings, path("asks", ask, "showings"))).showings
