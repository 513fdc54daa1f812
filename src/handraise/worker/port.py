"""What a session says and does goes through here: to the desk, to the record, and to the stale timer."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from handraise.agents import Message, Silent, Wire
from handraise.asks import Answer, Ask, Handling
from handraise.asks.places import resolve
from handraise.clock import sleep
from handraise.errors import StoreError
from handraise.tables.sessions import SessionRecord

if TYPE_CHECKING:
    from handraise.worker import Worker

__all__ = ["SessionPort"]

log = logging.getLogger(__name__)


class SessionPort:
    """The desk as one session's adapter sees it, and the listener of what that adapter hears."""

    def __init__(self, worker: Worker, record: SessionRecord) -> None:
        self._worker = worker
        self._record = record
        self._onlooker = worker.wires.of(record.id) if worker.wires is not None else Silent()
        self._said: asyncio.Queue[Message | None] = asyncio.Queue()
        self._open = 0
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._last = worker.clock.now()

    # The asker of the adapter. A wait for a person is no silence of the agent.

    async def ask(self, ask: Ask, *, handling: Handling | None = None, ordinal: bool = False) -> Answer:
        if not self._worker.may_speak(self._record.run):
            await asyncio.Event().wait()  # another worker may have the run by now; we are about to be dropped
        self._open += 1
        self._none_open.clear()
        try:
            return await self._worker.desk.ask(await resolve(ask), handling=handling, ordinal=ordinal)
        finally:
            self.active()
            self._open -= 1
            if not self._open:
                self._none_open.set()

    async def withdraw(self, id: str, *, reason: str | None = None, answer: Answer | None = None) -> Ask:
        return await self._worker.desk.withdraw(id, reason=reason, answer=answer)

    def delivered(self, id: str, *, error: str | None = None) -> None:
        self._worker.desk.delivered(id, error=error)

    # The listener of the adapter.

    def said(self, message: Message) -> None:
        self.active()
        self._said.put_nowait(message)

    def active(self) -> None:
        self._last = self._worker.clock.now()

    def seen(self, wire: Wire) -> None:
        self._onlooker.seen(wire)

    def became(self, ask: str, *, request: str) -> None:
        self._onlooker.became(ask, request=request)

    def notice(self, text: str, **extra: str) -> None:
        self._said.put_nowait(Message(role="notice", text=text, extra=extra))

    async def keep(self) -> None:
        """Write down what is said, in order, until closed."""
        while (message := await self._said.get()) is not None:
            try:
                await self._worker.sessions.said(self._record.id, message, at=self._worker.clock.now())
            except Exception as failure:  # whoever waits until all is written must not wait for ever
                is_known = isinstance(failure, StoreError)
                log.error(
                    "what session %s said could not be written: %s", self._record.id, failure, exc_info=not is_known
                )
            self._said.task_done()
        self._said.task_done()

    async def kept(self) -> None:
        """Once everything said so far is written down."""
        await self._said.join()

    async def close(self) -> None:
        self._said.put_nowait(None)
        if self._worker.wires is not None:
            self._worker.wires.forget(self._record.id)

    async def silent_for(self, seconds: float) -> None:
        """Return when nothing was heard for so long while no ask was open."""
        clock = self._worker.clock
        while True:
            await self._none_open.wait()
            due = self._last + round(seconds * 1000)
            if clock.now() >= due:
                return
            await sleep((due - clock.now()) / 1000, clock=clock)
