"""A desk as channels and adapters take it: the broker's methods from another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Any, Self

from handraise.client.asks import Asks
from handraise.client.connection import Connection
from handraise.client.events import Also, Drafts, Stream
from handraise.client.resources import Resources
from handraise.config import Settings
from handraise.events import Event

__all__ = ["Client"]


class Client(Asks, Resources):
    """A broker from another process, for adapters (`Asker`) and channels (`Inbox`). Use as an async context manager.

    Once the desk was reached, calls that may be repeated outlast its restarts. Where several desks share a database,
    `url` may name them all: a call that one of them cannot take goes to the next, and the next calls with it.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        settings: Settings | None = None,
        quick: bool = False,
    ) -> None:
        """`quick` is for a command that makes a few calls and ends: it starts sooner."""
        self.connection = Connection(url, token=token, settings=settings, quick=quick)
        super().__init__(self.connection)
        self._tasks = asyncio.TaskGroup()
        self._reporting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._reporting = self._tasks.create_task(self._deliveries.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._reporting is not None
        self._reporting.cancel()
        await self._tasks.__aexit__(None, None, None)
        await self._deliveries.send_last()
        await self.connection.close()

    @property
    def url(self) -> str:
        """The address in use."""
        return self.connection.urls[0]

    @property
    def asks(self) -> Asks:
        """The asks of the desk. That is the client itself, since channels and adapters want nothing else of it."""
        return self

    async def reach(self) -> None:
        """Raises DeskUnreachable where no desk answers. From here on its restarts are waited for."""
        await self.connection.call("GET", "/healthz")

    def events(
        self,
        *,
        after: int | None = None,
        session: str | None = None,
        run: str | None = None,
        worker: str | None = None,
        also: Also | None = None,
        drafts: Drafts | None = None,
    ) -> AsyncIterator[Event]:
        """What happens from now on, or after a cursor: every event once, in order, across restarts of the desk.

        `also` names things beside asks (`checkpoints`, `sessions`, `runs`, `chats`), each with what is called when they
        may have changed, and once for every connection: whoever then lists them misses nothing. With `chats` among
        them, `drafts` is called with what replies grow by. Raises CursorTooOld where events after that cursor were
        pruned. 0 is the oldest event there is.
        """
        filters = {"session": session, "run": run, "worker": worker}
        return Stream(connection=self.connection, filters=filters, after=after, also=also or {}, drafts=drafts).events()

    async def call(self, method: str, path: str, *, body: Any = None, silence: float = 10, once: bool = False) -> Any:
        """Any other route of the desk, as parsed JSON. `silence` is how many seconds the desk may take to answer.

        `once` is for what must not happen twice: raises DeskBroke where nobody can tell whether it happened.
        """
        return await self.connection.json(method, path, body=body, silence=silence, once=once)
