"""The chats of a desk with models."""

from __future__ import annotations

from handraise.client.connection import Connection, path
from handraise.wire import chats as shapes
from handraise.wire.chats import Chat, ChatMessage

__all__ = ["Chats"]


class Chats:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> shapes.Chats:
        """The chats, those that changed last first, and the models there are."""
        return await self._connection.get(shapes.Chats, path("chats"))

    async def get(self, id: str, *, since: int | None = None) -> Chat:
        """With its messages, or with those that changed since a version. Raises ChatNotFound."""
        return await self._connection.get(Chat, path("chats", id, since=since))

    async def begin(
        self,
        text: str | None = None,
        *,
        model: str | None = None,
        title: str | None = None,
        by: str | None = None,
        via: str = "sdk",
    ) -> Chat:
        """A new one. Raises DeskBroke where nobody can tell whether it was begun."""
        body = {"model": model, "title": title, "text": text, "by": by, "via": via}
        return await self._connection.post(Chat, path("chats"), body=body, once=True)

    async def say(
        self, id: str, text: str, *, nonce: str | None = None, by: str | None = None, via: str = "sdk"
    ) -> ChatMessage:
        """The same nonce again is the same message."""
        body = {"text": text, "nonce": nonce, "by": by, "via": via}
        return await self._connection.post(ChatMessage, path("chats", id, "messages"), body=body, once=nonce is None)

    async def rename(self, id: str, title: str) -> Chat:
        return await self._connection.post(Chat, path("chats", id), body={"title": title})

    async def stop(self, id: str) -> Chat:
        """End the reply that is being written."""
        return await self._connection.post(Chat, path("chats", id, "stop"), body={})

    async def retry(self, id: str) -> Chat:
        """Have the last reply written again."""
        return await self._connection.post(Chat, path("chats", id, "retry"), body={}, once=True)

    async def delete(self, id: str) -> None:
        await self._connection.call("DELETE", path("chats", id))
