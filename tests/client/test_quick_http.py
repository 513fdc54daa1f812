"""The small connection of commands: it reads what HTTP allows, and takes nothing else for a reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from handraise.client import Client
from handraise.client.quick_http import QuickHttp
from handraise.client.replies import Call, Lost, NotSent, Reply
from handraise.config import Settings
from handraise.errors import DeskUnreachable, SettingsError, Unauthorized
from tests.helpers.serving import serving

PATIENCE = 5.0


class Server:
    """Gives one prepared reply after the other, and keeps what it heard and how often it was connected to."""

    def __init__(self, *replies: bytes, hangs_up: bool = False) -> None:
        self.url = ""
        self.heard: list[bytes] = []
        self.connections = 0
        self._replies = list(replies)
        self._hangs_up = hangs_up

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            while self._replies:
                self.heard.append(await reader.readuntil(b"\r\n\r\n"))
                reply = self._replies.pop(0)
                for begin in range(0, len(reply), 7):  # in small pieces, as a network may
                    writer.write(reply[begin : begin + 7])
                    await writer.drain()
                if self._hangs_up:
                    break
        writer.close()


@asynccontextmanager
async def listening(*replies: bytes, hangs_up: bool = False) -> AsyncIterator[Server]:
    there = Server(*replies, hangs_up=hangs_up)
    server = await asyncio.start_server(there.serve, "127.0.0.1", 0)
    there.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with asyncio.timeout(PATIENCE), server:
        yield there


def a_call(url: str, *, silence: float = PATIENCE) -> Call:
    return Call("GET", url, "/v1/cursor", {"Authorization": "Bearer hr_1"}, silence=silence)


def a_reply(body: bytes, *fields: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join([status, "Content-Type: application/json; charset=utf-8", *fields, "", ""]).encode() + body


WHOLE = a_reply(b'{"cursor":7}', "Content-Length: 12")


@pytest.mark.parametrize(
    ("sent", "hangs_up"),
    [
        (WHOLE, False),
        (a_reply(b'5\r\n{"cur\r\n7;x=1\r\nsor":7}\r\n0\r\nTrailer: x\r\n\r\n', "Transfer-Encoding: chunked"), False),
        (a_reply(b'{"cursor":7}'), True),
        (a_reply(b'{"cursor":7}', "content-length:12", status="HTTP/1.0 200 OK"), True),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + WHOLE, False),
    ],
    ids=["length", "chunks", "until the end", "HTTP/1.0", "after a remark"],
)
async def test_a_reply_is_read_however_its_length_is_told(sent: bytes, hangs_up: bool) -> None:
    async with listening(sent, hangs_up=hangs_up) as there:
        http = QuickHttp(None)
        assert await http.request(a_call(there.url)) == Reply(200, "application/json", b'{"cursor":7}')
        await http.close()
        head = there.heard[0].decode()
        assert head.startswith("GET /v1/cursor HTTP/1.1\r\nHost: 127.0.0.1:") and "Authorization: Bearer hr_1" in head


async def test_calls_share_a_connection_for_as_long_as_it_lives() -> None:
    async with listening(WHOLE, WHOLE, a_reply(b"", "Content-Length: 0", "Connection: close"), WHOLE) as there:
        http = QuickHttp(None)
        for _ in range(4):
            await http.request(a_call(there.url))
        await http.close()
        assert (len(there.heard), there.connections) == (4, 2)


async def test_a_connection_that_the_desk_closed_meanwhile_is_not_used_again() -> None:
    async with listening(WHOLE, WHOLE, hangs_up=True) as there:
        http = QuickHttp(None)
        await http.request(a_call(there.url))
        await asyncio.sleep(0.05)  # the end of the connection travels too
        await http.request(a_call(there.url))
        await http.close()
        assert there.connections == 2


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x00nonsense" * 10_000,
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/1.1 abc Odd\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
        a_reply(b"{}", "Content-Length: -2"),
        a_reply(b"{}", "Content-Length: 1_0"),
        a_reply(b"{}", "Content-Length: 12"),
        a_reply(b"{}", "Content-Length: 99999999999999999999"),
        a_reply(b"+2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
        a_reply(b"1\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
        a_reply(b"{}", "Transfer-Encoding: gzip"),
    ],
)
async def test_what_is_no_reply_is_taken_for_a_lost_connection(sent: bytes) -> None:
    async with listening(sent, hangs_up=True) as there:
        with pytest.raises(Lost) as lost:
            await QuickHttp(None).request(a_call(there.url))
        assert not isinstance(lost.value, NotSent)


async def test_silence_ends_a_call() -> None:
    async with listening(a_reply(b'{"cur', "Content-Length: 12")) as there:
        with pytest.raises(Lost):
            await QuickHttp(None).request(a_call(there.url, silence=0.05))


async def test_nobody_there_is_said_before_anything_was_sent() -> None:
    async with listening() as there:
        pass
    with pytest.raises(NotSent):
        await QuickHttp(None).request(a_call(there.url))


@pytest.mark.parametrize("token", ["hr_1\r\nX-Evil: 1", "hr_\0", "hr_ü"])
async def test_a_token_cannot_smuggle_in_a_line(token: str) -> None:
    async with listening(WHOLE) as there:
        with pytest.raises(SettingsError):
            await QuickHttp(None).request(Call("GET", there.url, "/", {"Authorization": f"Bearer {token}"}))
        assert there.heard == []


async def test_a_quick_client_does_what_another_does(tmp_path: Path) -> None:
    async with asyncio.timeout(30), serving(tmp_path / "home") as desk:
        async with Client(settings=desk.settings, quick=True) as client:
            assert await client.cursor() >= 0
            assert (await client.call("GET", "/healthz"))["status"] == "ok"
            assert [ask async for ask in client.asks(state="asked")] == []
        stranger = Settings(home=tmp_path / "elsewhere", url=desk.url)
        async with Client(settings=stranger, quick=True) as client:
            with pytest.raises(Unauthorized):
                await client.cursor()


async def test_a_quick_client_says_that_no_desk_is_there(tmp_path: Path) -> None:
    async with listening() as there:
        pass
    async with Client(there.url, settings=Settings(home=tmp_path), quick=True) as client:
        with pytest.raises(DeskUnreachable, match="no desk answers"):
            await client.cursor()
