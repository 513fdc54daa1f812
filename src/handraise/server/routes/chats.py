"""Chats over HTTP: begin one, say something, stop, try again, read. A question of one is answered as any ask is."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from handraise.chat.runtime import Chats
from handraise.chat.transcript import Said
from handraise.errors import ChatBusy, ChatNotFound, SettingsError, StoreFailed
from handraise.server.declare import POSITION, Parameter, Tag, declare, in_path, mount
from handraise.server.gate import source_of
from handraise.server.http import RouteNotFound, TooLarge, encode, query, read_body
from handraise.server.routes import RouteGroup
from handraise.server.routes.api import HEADERS, json_response
from handraise.server.routes.asks import number, who
from handraise.wire import BadBody, parse
from handraise.wire import chats as shapes
from handraise.wire.chats import ChatBody, ChatMessageBody, ChatTitleBody
from handraise.wire.plain import shape_of

__all__ = ["routes"]

CHATS = Tag(
    "chats", "Conversations with a model. What it asks is an ask of the agent `chat`, and is answered as every other."
)
CHAT_IN_PATH = in_path("chat", meaning="The id of a chat.", example="chat_5d41402abc4b2a76b971")
SINCE_VERSION = Parameter(
    "since",
    schema=POSITION,
    meaning="Only the messages that changed after this `version` of the chat. Without it, all of them.",
    key="since_version",
)


def routes(chats: Chats) -> list[Route]:
    return mount(ChatRoutes(chats))


class ChatRoutes:
    def __init__(self, chats: Chats) -> None:
        self._chats = chats

    @declare(
        "GET /v1/chats",
        id="list_chats",
        summary="The 200 chats that changed last, without their messages, and the models that there are",
        tag=CHATS,
        scope="answer",
        replies={200: (shapes.Chats, "Those that changed last come first.")},
    )
    async def list(self, request: Request) -> Response:
        settings = self._chats.settings
        told = shapes.Chats(
            chats=tuple(record.to_shape() for record in await self._chats.transcript.newest()),
            models=tuple(shape_of(shapes.ChatModel, table, name=name) for name, table in settings.models.items()),
            model=settings.default,
        )
        return json_response(told)

    @declare(
        "POST /v1/chats",
        id="begin_a_chat",
        summary="Begin a chat with a model. With a `text` it begins with that message, and a reply is written",
        tag=CHATS,
        scope="admin",
        body=ChatBody,
        replies={201: (shapes.Chat, "The chat, with its messages.")},
        refusals=(BadBody, TooLarge, SettingsError, StoreFailed),
    )
    async def begin(self, request: Request) -> Response:
        body = parse(ChatBody, await read_body(request.scope, request.receive))
        record = await self._chats.create(model=body.model, title=body.title or body.text or "")
        if body.text is not None:
            await self._say(request, record.id, body.text, by=body.by, via=body.via)
        return await self._told(record.id, status=201)

    @declare(
        "GET /v1/chats/{chat}",
        id="read_a_chat",
        summary="A chat and what was said in it, with what is being written as it is now",
        tag=CHATS,
        scope="answer",
        parameters=(CHAT_IN_PATH, SINCE_VERSION),
        replies={200: (shapes.Chat, "The messages by their ids, which sort in the order in which it was said.")},
        refusals=(BadBody, RouteNotFound, ChatNotFound),
        inside=(shapes.ChatQuestion,),
    )
    async def show(self, request: Request) -> Response:
        """With `?since=` only the messages that changed after that version of the chat."""
        asked = query(request.scope["query_string"], "since")
        since = number(asked["since"], name="since") if "since" in asked else -1
        return await self._told(request.path_params["chat"], since=since)

    @declare(
        "POST /v1/chats/{chat}",
        id="rename_a_chat",
        summary="Give it another title",
        tag=CHATS,
        scope="admin",
        parameters=(CHAT_IN_PATH,),
        body=ChatTitleBody,
        replies={200: (shapes.Chat, "The chat, with its messages.")},
        refusals=(BadBody, TooLarge, RouteNotFound, ChatNotFound, StoreFailed),
    )
    async def rename(self, request: Request) -> Response:
        body = parse(ChatTitleBody, await read_body(request.scope, request.receive))
        await self._chats.rename(request.path_params["chat"], title=body.title)
        return await self._told(request.path_params["chat"])

    @declare(
        "DELETE /v1/chats/{chat}",
        id="delete_a_chat",
        summary="Forget it with all that was said in it. A reply is stopped, and what it asks is withdrawn",
        tag=CHATS,
        scope="admin",
        parameters=(CHAT_IN_PATH,),
        replies={204: (None, "It is gone.")},
        refusals=(RouteNotFound, ChatNotFound, StoreFailed),
    )
    async def delete(self, request: Request) -> Response:
        await self._chats.delete(request.path_params["chat"])
        return Response(status_code=204)

    @declare(
        "POST /v1/chats/{chat}/messages",
        id="say_something_in_a_chat",
        summary="A message. It answers the question that waits, if one does; a reply is written in any case",
        tag=CHATS,
        scope="admin",
        parameters=(CHAT_IN_PATH,),
        body=ChatMessageBody,
        replies={201: (shapes.ChatMessage, "The message. The same `nonce` again is the same message.")},
        refusals=(BadBody, TooLarge, RouteNotFound, ChatNotFound, ChatBusy, StoreFailed),
    )
    async def say(self, request: Request) -> Response:
        body = parse(ChatMessageBody, await read_body(request.scope, request.receive))
        said = await self._say(
            request, request.path_params["chat"], body.text, nonce=body.nonce, by=body.by, via=body.via
        )
        return json_response(said.to_shape(), status=201)

    @declare(
        "POST /v1/chats/{chat}/stop",
        id="stop_a_reply",
        summary="Stop the reply that is being written, if one is. What was written stays",
        tag=CHATS,
        scope="admin",
        parameters=(CHAT_IN_PATH,),
        replies={202: (shapes.Chat, "The chat, with its messages. Whoever writes hears it.")},
        refusals=(RouteNotFound, ChatNotFound, StoreFailed),
    )
    async def stop(self, request: Request) -> Response:
        await self._chats.stop(request.path_params["chat"])
        return await self._told(request.path_params["chat"], status=202)

    @declare(
        "POST /v1/chats/{chat}/retry",
        id="retry_a_reply",
        summary="Write the last reply anew. One that asked a question stays",
        tag=CHATS,
        scope="admin",
        parameters=(CHAT_IN_PATH,),
        replies={202: (shapes.Chat, "The chat, with its messages. The last reply is `replaced`.")},
        refusals=(RouteNotFound, ChatNotFound, ChatBusy, StoreFailed),
    )
    async def retry(self, request: Request) -> Response:
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
            yield encode(record.to_shape())[:-1]
            begin = b',"messages":['
            async for said in self._chats.messages(chat, since=since):
                yield begin + encode(said.to_shape())
                begin = b","
            yield b"]}" if begin == b"," else begin + b"]}"

        return StreamingResponse(pieces(), status_code=status, media_type="application/json", headers=HEADERS)


plugin = RouteGroup(handlers=(ChatRoutes,), routes=lambda desk: () if desk.chats is None else routes(desk.chats))
