"""WebSocket over a Unix socket, against a real server of the same package."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, unix_serve

from handraise.transports.websocket import LONGEST_FRAME, SocketGone, WebSocket

PATIENCE = 5.0


@pytest.fixture
async def path() -> AsyncIterator[Path]:
    """Where somebody listens who sends everything back, and leaves at `bye`."""

    async def echo(connection: ServerConnection) -> None:
        async for frame in connection:
            if frame == "bye":
                return
            await connection.send(frame)

    with tempfile.TemporaryDirectory() as folder:  # the name of a socket has to be short
        path = Path(folder) / "s"
        async with unix_serve(echo, str(path), max_size=None):
            yield path


async def test_a_line_is_a_text_frame(path: Path) -> None:
    large = b"x" * (2 << 20)  # beyond what the package takes by default
    async with asyncio.timeout(PATIENCE), await WebSocket.connect(path, extra="codex") as socket:
        for line in ('{"a": "ä"}'.encode(), large, b"bye"):
            await socket.write_line(line)
        assert [line async for line in socket.lines()] == ['{"a": "ä"}'.encode(), large]
        with pytest.raises(SocketGone):
            await socket.write_line(b"is anybody there?")


async def test_closing_ends_the_lines(path: Path) -> None:
    async with asyncio.timeout(PATIENCE):
        socket = await WebSocket.connect(path, extra="codex")
        await socket.close()
        await socket.close()
        assert [line async for line in socket.lines()] == []


async def test_a_frame_beyond_the_limit_ends_the_connection(path: Path) -> None:
    async with asyncio.timeout(PATIENCE * 4), await WebSocket.connect(path, extra="codex") as socket:
        await socket.write_line(b"x" * (LONGEST_FRAME + 1))
        assert [line async for line in socket.lines()] == []


async def test_nobody_there_is_told_from_somebody_else() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        with pytest.raises(SocketGone) as gone:
            await WebSocket.connect(path, extra="codex")
        assert gone.value.is_absent

        async def speak_otherwise(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b"220 mail.example.org\r\n\r\n")
            writer.close()

        async with await asyncio.start_unix_server(speak_otherwise, str(path)):
            with pytest.raises(SocketGone) as other:
                await WebSocket.connect(path, extra="codex")
        assert not other.value.is_absent
