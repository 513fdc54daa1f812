"""Chats over HTTP: begin one, say something, stop, try again, read. A question of one is answered as any ask is."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from handraise.chat.runtime import Chats
from handraise.chat.transcript import Said
from handraise.server.gate import require, source_of
from handraise.server.http import query, read_body
from handraise.server.routes.api import HEADERS, json_response
from handraise.server.routes.asks import number, who
from handraise.wire import ChatBody, ChatMessageBody, ChatTitleBody, parse

__all__ = ["routes"]


def routes(chats: Chats) -> list[Route]:
    desk = _Desk(chats)
    return [
        Route("/v1/chats", desk.list),
        Route("/v1/chats", desk.begin, methods=["POST"]),
        Route("/v1/chats/{chat}", desk.show),
        Route("/v1/chats/{chat}", desk.rename, methods=["POST"]),
        Route("/v1/chats/{chat}", desk.delete, methods=["DELETE"]),
        Route("/v1/chats/{chat}/messages", desk.say, methods=["POST"]),
        Route("/v1/chats/{chat}/stop", desk.stop, methods=["POST"]),
        Route("/v1/chats/{chat}/retry", desk.retry, methods=["POST"]),
    ]


class _Desk:
    def __init__(self, chats: Chats) -> None:
        self._chats = chats

    async def list(self, request: Request) -> Response:
        require(request.scope, "answer")
        settings = self._chats.settings
        models = [{"name": name, "api": table.api, "model": table.model} for name, table in settings.models.items()]
        chats = [record.told() for record in await self._chats.transcript.newest()]
        return json_response({"chats": chats, "models": models, "model": settings.default})

    async def begin(self, request: Request) -> Response:
        require(request.scope, "admin")
        body = parse(ChatBody, await read_body(request.scope, request.receive))
        record = await self._chats.create(model=body.model, title=body.title or body.text or "")
        if body.text is not None:
            await self._say(request, record.id, body.text, by=body.by, via=body.via)
        return await self._told(record.id, status=201)

    async def show(self, request: Request) -> Response:
        """With `?since=` only the messages that changed after that version of the chat."""
        require(request.scope, "answer")
        asked = query(request.scope["query_string"], "since")
        since = number(asked["since"], name="since") if "since" in asked else -1
        return await self._told(request.path_params["chat"], since=since)

    async def rename(self, request: Request) -> Response:
        require(request.scope, "admin")
        body = parse(ChatTitleBody, await read_body(request.scope, request.receive))
        await self._chats.rename(request.path_params["chat"], title=body.title)
        return await self._told(request.path_params["chat"])

    async def delete(self, request: Request) -> Response:
        require(request.scope, "admin")
        await self._chats.delete(request.path_params["chat"])
        return Response(status_code=204)

    async def say(self, request: Request) -> Response:
        require(request.scope, "admin")
        body = parse(ChatMessageBody, await read_body(request.scope, request.receive))
        said = await self._say(
            request, request.path_params["chat"], body.text, nonce=body.nonce, by=body.by, via=body.via
        )
        return json_response(said.told(), status=201)

    async def stop(self, request: Request) -> Response:
        require(request.scope, "admin")
        await self._chats.stop(request.path_params["chat"])
        return await self._told(request.path_params["chat"], status=202)

    async def retry(self, request: Request) -> Response:
        require(request.scope, "admin")
        await self._chats.retry(request.path_params["chat"])
        return await self._told(request.path_params["chat"], status=202)

    async def _say(
        self, request: Request, chat: str, text: str, *, by: str | None, via: str | None, nonce: str | None = None
    ) -> Said:
        by, via = who(request.scope["token"], by=by, via=via)
        return await self._chats.say(chat, text, nonce=nonce, by=by, via=via, source=source_of(request.scope))

    async def _told(self, chat: str, *, since: int = -1, status: int = 200) -> Response:
        """Written message by message: a chat may be as long as people like."""
        record = await self._chats.transcript.get(chat)

        async def pieces() -> AsyncIterator[bytes]:
            yield to_json(record.told())[:-1]
            begin = b',"messages":['
            async for said in self._chats.messages(chat, since=since):
                yield begin + to_json(said.told())
                begin = b","
            yield b"]}" if begin == b"," else begin + b"]}"

        return StreamingResponse(pieces(), status_code=status, media_type="application/json", headers=HEADERS)
