"""A program on another port of this machine that serves pages: an agent's own development server is enough."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from playwright.async_api import Page

PAGE = "<!doctype html><meta charset=utf-8><title>harmless</title><body>"
# It fetches what its page names, as often as it is told.
WORKER = """
const kept = []; // so that a stream stays open
addEventListener('install', () => skipWaiting());
addEventListener('activate', (event) => event.waitUntil(clients.claim()));
addEventListener('message', ({ data, ports: [port] }) => {
  fetch(data.url, data.options).then((reply) => (kept.push(reply), port.postMessage({ type: reply.type })),
    (error) => port.postMessage({ failed: String(error) }));
});
"""


@dataclass
class Elsewhere:
    """What it heard. `cookies` are set with the next page that it serves."""

    port: int = 0
    cookies: list[str] = field(default_factory=list)
    heard: list[bytes] = field(default_factory=list)

    def url(self, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}"

    def stolen(self, name: str) -> str:
        """The value of a cookie as a browser sent it here."""
        [*_, value] = re.findall(
            rf"(?:^|[ ;]){name}=([^;\r\n]+)", b"\n".join(self.heard).decode("latin-1"), re.MULTILINE
        )
        return str(value)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heard.append(head)
        is_worker = head.startswith(b"GET /worker.js ")
        body = (WORKER if is_worker else PAGE).encode()
        lines = [
            "HTTP/1.1 200 OK",
            f"content-type: {'text/javascript' if is_worker else 'text/html'}",
            f"content-length: {len(body)}",
            "connection: close",
            *(f"set-cookie: {cookie}" for cookie in self.cookies),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def listening_elsewhere() -> AsyncIterator[Elsewhere]:
    elsewhere = Elsewhere()
    server = await asyncio.start_server(elsewhere.answer, "127.0.0.1", 0)
    elsewhere.port = server.sockets[0].getsockname()[1]
    async with server:
        yield elsewhere


@dataclass
class Wiretap:
    """The status of every reply that a page caused, also of those that the browser shows to nobody."""

    statuses: dict[str, int] = field(default_factory=dict)  # by path
    _paths: dict[str, str] = field(default_factory=dict)
    _codes: dict[str, int] = field(default_factory=dict)

    async def listen(self, page: Page, at: str) -> None:
        """To what is asked of the server `at`."""
        session = await page.context.new_cdp_session(page)

        def asked(event: dict[str, object]) -> None:
            url = str(event["request"]["url"])  # type: ignore[index]
            if url.startswith(at):
                self._paths[str(event["requestId"])] = url.removeprefix(at)
            self._join(str(event["requestId"]))

        def replied(event: dict[str, object]) -> None:
            self._codes[str(event["requestId"])] = int(str(event["statusCode"]))
            self._join(str(event["requestId"]))

        session.on("Network.requestWillBeSent", asked)
        session.on("Network.responseReceivedExtraInfo", replied)
        await session.send("Network.enable")

    def _join(self, id: str) -> None:
        if id in self._paths and id in self._codes:
            self.statuses[self._paths[id]] = self._codes[id]

    async def status(self, path: str) -> int:
        """Of the reply to this path, once it is there."""
        async with asyncio.timeout(10):
            while path not in self.statuses:
                await asyncio.sleep(0.01)  # the browser's own events come in another task
        return self.statuses[path]
