"""A client of an agent over HTTP: POST a message, read the stream, POST the response to what the agent asks.

It was written against the document that asked for this, and knows nothing of handraise but an address and a token.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import httpx2

Json = dict[str, Any]
QUESTION = "_sandboxagent/session/request_question"


class SeedClient:
    """Made by `connected`. `heard` are the messages of the stream, in order, and `last` is the id of the newest."""

    def __init__(self, http: httpx2.AsyncClient, server: str, *, patience: float) -> None:
        self.http = http
        self.path = f"/v1/acp/{server}"
        self.heard: list[Json] = []
        self.last = ""
        self.session = ""
        self._patience = patience
        self._ids = count(1)
        self._news = asyncio.Condition()

    async def post(self, message: Json, *, agent: str | None = None, **headers: str) -> httpx2.Response:
        params = {} if agent is None else {"agent": agent}
        return await self.http.post(self.path, params=params, json={"jsonrpc": "2.0", **message}, headers=headers)

    async def request(self, method: str, params: Json, *, agent: str | None = None, **more: Any) -> Json:
        """The result of a request, from the call that sent it."""
        response = await self.post({"id": next(self._ids), "method": method, "params": params, **more}, agent=agent)
        assert response.status_code == 200, response.text
        envelope: Json = response.json()
        return envelope

    async def begin(self, agent: str, cwd: str = "/work", **able: Any) -> Json:
        """Start the agent and a session of it; what it said of itself."""
        params = {"protocolVersion": 1, "clientCapabilities": able}
        said = await self.request("initialize", params, agent=agent)
        await self.new_session(cwd)
        return said

    async def new_session(self, cwd: str = "/work") -> None:
        opened = await self.request("session/new", {"cwd": cwd, "mcpServers": []})
        self.session = opened["result"]["sessionId"]

    async def prompt(self, text: str) -> Json:
        return await self.request("session/prompt", self.turn(text))

    def turn(self, text: str) -> Json:
        return {"sessionId": self.session, "prompt": [{"type": "text", "text": text}]}

    async def answer(self, id: Any, **response: Any) -> httpx2.Response:
        return await self.post({"id": id, **response})

    async def read(self, *, after: str = "") -> None:
        """The stream to its end."""
        headers = {"Last-Event-ID": after} if after else {}
        async with self.http.stream("GET", self.path, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            async for event in _events(response):
                assert event["event"] == "message"
                self.last = event.get("id", self.last)
                self.heard.append(json.loads(event["data"]))
                async with self._news:
                    self._news.notify_all()

    @asynccontextmanager
    async def reading(self, *, after: str = "") -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read(after=after))
            try:
                yield
            finally:
                reading.cancel()

    async def _read(self, *, after: str) -> None:
        with suppress(httpx2.RemoteProtocolError):  # cut
            await self.read(after=after)

    async def hear(self, wanted: Callable[[Json], bool]) -> Json:
        """The first message of the stream that fits, once it is there."""
        found: list[Json] = []

        def is_there() -> bool:
            found[:] = [message for message in self.heard if wanted(message)]
            return bool(found)

        async with asyncio.timeout(self._patience), self._news:
            await self._news.wait_for(is_there)
        return found[0]

    async def hear_method(self, method: str) -> Json:
        return await self.hear(lambda message: message.get("method") == method)

    async def hear_response(self, id: Any) -> Json:
        return await self.hear(lambda message: message.get("id") == id and "method" not in message)

    @property
    def said(self) -> str:
        """What the agent said."""
        updates = [each["params"]["update"] for each in self.heard if each.get("method") == "session/update"]
        return "".join(
            update["content"]["text"] for update in updates if update["sessionUpdate"] == "agent_message_chunk"
        )


async def _events(response: httpx2.Response) -> AsyncIterator[dict[str, str]]:
    event: dict[str, str] = {}
    async for line in response.aiter_lines():
        if not line:
            if "data" in event:
                yield event
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            event[name] = value.removeprefix(" ")


@asynccontextmanager
async def connected(url: str, token: str, server: str = "demo", *, patience: float = 20.0) -> AsyncIterator[SeedClient]:
    timeout = httpx2.Timeout(patience, read=None)
    async with httpx2.AsyncClient(
        base_url=url,
        headers={"Authorization": f"Bearer {token}"},
        timeout=timeout,
        trust_env=False,
        verify=False,  # there is no TLS here
    ) as http:
        yield SeedClient(http, server, patience=patience)
