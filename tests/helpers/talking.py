"""Chats with a scripted model, on a real desk: what tests of the runtime, the page and the command share."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pydantic_ai.models.anthropic
import pydantic_ai.models.openai  # noqa: F401 - read here, so that no test waits for it

from handraise.chat import ChatSettings, ModelTable
from handraise.testing.model import ScriptedModel, call
from tests.helpers.serving import START, told

STORAGE = {
    "header": "Storage",
    "question": "Which database should I use?",
    "options": [{"label": "SQLite", "description": "one file"}, {"label": "PostgreSQL"}],
}
ASK = call("question", **STORAGE)


def model_settings(model: ScriptedModel, *, api: str = "openai", **changes: Any) -> ChatSettings:
    """Settings with one model, `scripted`, at the scripted one."""
    url = f"{model.url}/v1" if api == "openai" else model.url
    table = ModelTable(api=api, model="scripted", url=url)  # type: ignore[arg-type]
    return ChatSettings(models={"scripted": table}, **changes)


class Talk:
    """One chat, over HTTP."""

    def __init__(self, http: httpx2.AsyncClient, id: str) -> None:
        self.http = http
        self.id = id

    @classmethod
    async def begin(cls, http: httpx2.AsyncClient, text: str | None = None) -> Talk:
        body = {} if text is None else {"text": text}
        return cls(http, (await told(http.post("/v1/chats", json=body), 201))["id"])

    async def read(self) -> dict[str, Any]:
        return await told(self.http.get(f"/v1/chats/{self.id}"), 200)

    async def say(self, text: str, **fields: Any) -> dict[str, Any]:
        return await told(self.http.post(f"/v1/chats/{self.id}/messages", json={"text": text, **fields}), 201)

    async def order(self, what: str) -> dict[str, Any]:
        return await told(self.http.post(f"/v1/chats/{self.id}/{what}"), 202)

    async def until(self, *states: str) -> dict[str, Any]:
        """The chat once it is idle, or in one of these states."""
        async with asyncio.timeout(START):  # a desk that was just started reads the model library first
            while (chat := await self.read())["state"] not in (states or ("idle",)):
                await asyncio.sleep(0.01)
        return chat

    async def question(self) -> dict[str, Any]:
        """The block of the question, once it waits."""
        block: dict[str, Any] = (await self.until("asking"))["messages"][-1]["blocks"][-1]
        return block


def texts(chat: dict[str, Any]) -> list[tuple[str, str]]:
    """Who said what, of the messages that count."""
    return [
        (each["role"], "".join(block["content"] for block in each["blocks"] if block["type"] == "content"))
        for each in chat["messages"]
        if each["state"] != "replaced"
    ]


def kinds(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["blocks"]]
