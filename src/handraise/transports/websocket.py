"""WebSocket over a Unix socket: each text frame is a line, in both directions. Knows nothing of what the lines say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

from handraise.errors import HandraiseError, SettingsError

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

__all__ = ["LONGEST_FRAME", "SocketGone", "WebSocket"]

LONGEST_FRAME = 64 * 1024 * 1024  # bytes; as for the lines of a process, which are the same messages
OPEN = 10.0  # seconds for the other side to shake hands
CLOSE = 1.0  # seconds for it to say good-bye; whoever closes has nothing more to say


class SocketGone(HandraiseError):
    """The other side is not there, or no longer. `is_absent`: nobody listens at that place at all."""

    code = "socket_gone"

    def __init__(self, message: str, *, is_absent: bool = False) -> None:
        super().__init__(message)
        self.is_absent = is_absent


class WebSocket:
    """One connection. `connect` it, and `close` it or use it as a context."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    @classmethod
    async def connect(cls, path: Path, *, extra: str) -> Self:
        """Raises SocketGone, and SettingsError that names the `extra` of ours which brings the package."""
        try:
            from websockets.asyncio.client import unix_connect
            from websockets.exceptions import WebSocketException
        except ImportError:
            raise SettingsError(
                f"this needs a package that is not installed; `pip install 'handraise[{extra}]'` brings it"
            ) from None
        try:
            connection = await unix_connect(
                str(path),
                uri="ws://localhost/",
                compression=None,  # it never leaves the machine
                max_size=LONGEST_FRAME,
                proxy=None,
                open_timeout=OPEN,
                close_timeout=CLOSE,
                ping_interval=None,  # a socket on this machine breaks when the other side ends
            )
        except (FileNotFoundError, ConnectionRefusedError):
            raise SocketGone(f"nobody listens at {path}", is_absent=True) from None
        except (OSError, TimeoutError, WebSocketException, EOFError) as problem:
            raise SocketGone(f"what listens at {path} did not shake hands ({type(problem).__name__})") from problem
        return cls(connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def write_line(self, line: bytes) -> None:
        """Send one text frame. Raises SocketGone."""
        from websockets.exceptions import ConnectionClosed

        try:
            await self._connection.send(line, text=True)
        except ConnectionClosed:
            raise SocketGone("the connection is closed") from None

    async def lines(self) -> AsyncIterator[bytes]:
        """What the other side sends, frame by frame, until it or we close. For one reader at a time."""
        from websockets.exceptions import ConnectionClosed

        while True:
            try:
                frame = await self._connection.recv(decode=False)
            except ConnectionClosed:
                return
            yield frame

    async def close(self) -> None:
        await self._connection.close()
