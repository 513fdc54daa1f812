"""The desk's inbox for one terminal: only what belongs to an agent, a session or a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

from handraise.asks import Answer, Ask, State
from handraise.events import Event

if TYPE_CHECKING:
    from handraise.client import Client

__all__ = ["SKIP", "Narrowed"]

SKIP = {False: "`:s`", True: "`→`"}  # how a question is skipped, by whether it is full mode


class Narrowed:
    """The desk's inbox, narrowed to an agent, a session or a run, or to the asks that `only` says yes to."""

    def __init__(
        self,
        client: Client,
        *,
        agent: str | None = None,
        session: str | None = None,
        run: str | None = None,
        only: Callable[[Ask], bool] = lambda ask: True,
    ) -> None:
        self._client = client
        self._agent = agent
        self._session = session
        self._run = run
        self._only = only

    def heading(self, ask: Ask) -> str:
        return ""

    def checkpoint_of(self, ask: Ask) -> None:
        """None of them is one."""

    async def asks(
        self,
        *,
        state: State | None = None,
        agent: str | None = None,
        session: str | None = None,
        run: str | None = None,
    ) -> AsyncIterator[Ask]:
        agent, session = agent or self._agent, session or self._session
        async for ask in self._client.asks(state=state, agent=agent, session=session, run=run or self._run):
            if self._only(ask):
                yield ask

    async def events(
        self,
        *,
        after: int | None = None,
        session: str | None = None,
        run: str | None = None,
        worker: str | None = None,
        also: Mapping[str, Callable[[], None]] | None = None,
    ) -> AsyncIterator[Event]:
        session, run = session or self._session, run or self._run
        async for event in self._client.events(after=after, session=session, run=run, worker=worker, also=also):
            if self._agent in (None, event.ask.origin.agent) and self._only(event.ask):
                yield event

    async def cursor(self) -> int:
        return await self._client.cursor()

    async def get(self, id: str) -> Ask:
        return await self._client.get(id)

    async def answer(self, id: str, answer: Answer) -> Ask:
        return await self._client.answer(id, answer)

    async def reject(self, id: str, *, reason: str | None = None, by: str = "", via: str = "") -> Ask:
        return await self._client.reject(id, reason=reason, by=by, via=via)

    async def keep_waiting(self, id: str) -> Ask:
        return await self._client.keep_waiting(id)
