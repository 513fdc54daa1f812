"""The desk of a home proves itself before anything is sent to it: its process id and port may be another's by now."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from handraise.client import Client
from handraise.config import Settings
from handraise.errors import DeskUnreachable
from tests.helpers.serving import a_client, refused, serving, told

TOKEN = "hr_of-this-home"

Reply = Callable[[bytes], Awaitable[bytes]]


class Impostor:
    """Whoever listens where a desk was. It keeps every byte that it is sent."""

    def __init__(self, reply: Reply) -> None:
        self.heard = b""
        self.url = ""
        self._reply = reply

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while data := await reader.read(65_536):
                self.heard += data
                writer.write(await self._reply(data))
                await writer.drain()
        writer.close()


@asynccontextmanager
async def impostor(reply: Reply) -> AsyncIterator[Impostor]:
    there = Impostor(reply)
    server = await asyncio.start_server(there.serve, "127.0.0.1", 0)
    there.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield there


async def friendly(data: bytes) -> bytes:
    """It signs what it is sent, with the keys that anybody knows."""
    line = data.split(b" ")[1].partition(b"nonce=")
    signed = hmac.new(b"", line[2], hashlib.sha256).hexdigest()
    body = json.dumps({"proof": signed} if line[2] else {"cursor": 1}, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def silent(_: bytes) -> bytes:
    return b""


async def rude(_: bytes) -> bytes:
    return b"\x00nonsense" * 1000


def a_home(home: Path, *, url: str, **more: object) -> Settings:
    """One whose desk was killed, and whose process id is another's by now."""
    home.mkdir(exist_ok=True)
    (home / "token").write_text(TOKEN)
    (home / "desk.json").write_text(json.dumps({"url": url, "pid": os.getpid(), **more}))
    return Settings(home=home)


@pytest.mark.parametrize(
    "key", [{}, {"key": ""}, {"key": "ab" * 32}, {"key": 7}], ids=["none", "empty", "a key", "no text"]
)
@pytest.mark.parametrize("reply", [friendly, rude])
@pytest.mark.parametrize("quick", [False, True], ids=["pooled", "quick"])
async def test_a_program_where_a_desk_was_is_sent_nothing(
    tmp_path: Path, reply: Reply, key: dict[str, object], quick: bool
) -> None:
    async with asyncio.timeout(30), impostor(reply) as there:
        settings = a_home(tmp_path / "home", url=there.url, **key)
        for token in (None, "hr_given"):
            async with Client(settings=settings, token=token, quick=quick) as client:
                with pytest.raises(DeskUnreachable, match="is not the desk of this home"):
                    await client.call("POST", "/v1/tokens", body={"name": "mine", "scopes": ["admin"]})
        async with Client(settings=settings, quick=quick) as client:
            with pytest.raises(DeskUnreachable):
                await anext(client.events())
        assert TOKEN.encode() not in there.heard
        assert b"hr_given" not in there.heard and b"mine" not in there.heard


@pytest.mark.parametrize("quick", [False, True], ids=["pooled", "quick"])
async def test_a_program_that_relays_to_the_desk_elsewhere_is_sent_nothing(tmp_path: Path, quick: bool) -> None:
    async with asyncio.timeout(30), serving(tmp_path / "home") as desk:
        where = urlsplit(desk.url)

        async def relayed(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            writer.write(data)
            reply = await reader.read(65_536)
            writer.close()
            return reply

        async with impostor(relayed) as there:
            written = json.loads(desk.settings.desk_file.read_text())
            desk.settings.desk_file.write_text(json.dumps({**written, "url": there.url}))
            async with Client(settings=desk.settings, quick=quick) as client:
                with pytest.raises(DeskUnreachable, match="is not the desk of this home"):
                    await client.cursor()
            assert desk.token.encode() not in there.heard
            desk.settings.desk_file.write_text(json.dumps(written))


@pytest.mark.parametrize("quick", [False, True], ids=["pooled", "quick"])
async def test_a_program_that_takes_the_port_over_from_a_reached_desk_is_sent_nothing(
    tmp_path: Path, quick: bool
) -> None:
    """Every connection is proven, not every client."""
    async with asyncio.timeout(30):
        async with serving(tmp_path / "home") as desk:
            client = Client(settings=desk.settings, quick=quick)
            await client.__aenter__()
            await client.cursor()
            written, port = desk.settings.desk_file.read_text(), urlsplit(desk.url).port
        there = Impostor(friendly)
        server = await asyncio.start_server(there.serve, "127.0.0.1", port)
        desk.settings.desk_file.write_text(written)
        async with server:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.cursor(), 1)
        await client.__aexit__(None, None, None)
        assert there.heard and desk.settings.token_file.read_text().strip().encode() not in there.heard


async def test_the_desk_of_this_home_is_found_although_its_file_was_left_by_another(tmp_path: Path) -> None:
    async with asyncio.timeout(30), impostor(friendly) as there:
        a_home(tmp_path / "home", url=there.url, key="ab" * 32)
        (tmp_path / "home" / "token").unlink()
        async with serving(tmp_path / "home") as desk, Client(settings=desk.settings) as client:
            assert desk.settings.running_desk() == desk.url
            assert await client.cursor() >= 0


async def test_a_proof_tells_nothing_else(tmp_path: Path) -> None:
    async with serving(tmp_path / "home") as desk, a_client(desk.url, None) as stranger:
        key = json.loads(desk.settings.desk_file.read_text())["key"]
        nonce = "ab" * 32
        proof = (await told(stranger.get("/v1/proof", params={"nonce": nonce}), 200))["proof"]
        expected = f"handraise desk proof\0{desk.url}\0{nonce}".encode()
        assert proof == hmac.new(bytes.fromhex(key), expected, hashlib.sha256).hexdigest()
        for wrong in ("", "ab", "ab" * 33, "AB" * 32, "zz" * 32, "é" * 64):
            await refused(stranger.get("/v1/proof", params={"nonce": wrong}), 400, "bad_request")
        await refused(stranger.get("/v1/proof"), 400, "bad_request")
