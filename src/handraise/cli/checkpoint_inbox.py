"""What waits for a person, as an inbox: what agents ask, and checkpoints beside that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from handraise.asks import Answer, Ask, State
from handraise.channels import Inbox
from handraise.cli.checkpoint_forms import output_of, to_ask
from handraise.client import Client
from handraise.errors import AlreadyAnswered, AnswerDoesNotFit, AskWithdrawn, HandraiseError, OutputDoesNotFit, RunEnded
from handraise.events import Answered, Asked, Event, Withdrawn
from handraise.wire.plain import to_plain

__all__ = ["AskInbox", "CheckpointInbox"]

OURS = "\0"  # begins the ids that checkpoints have here: no ask can have such a one, so none is taken for the other


class AskInbox(Inbox, Protocol):
    """An inbox that can also tell when something beside asks may have changed."""

    def events(
        self,
        *,
        after: int | None = None,
        session: str | None = None,
        run: str | None = None,
        worker: str | None = None,
        also: Mapping[str, Callable[[], None]] | None = None,
    ) -> AsyncIterator[Event]: ...


class CheckpointInbox:
    """Checkpoints of the whole desk, which tells when to look; or, where it does not listen, those that are told to it
    by whoever reads the trace of a run. `before` is called before somebody is asked; `skip` is what one types to skip a
    question."""

    def __init__(
        self,
        client: Client,
        asks: AskInbox,
        *,
        listens: bool = True,
        before: Callable[[], None] = lambda: None,
        skip: str = "`:s`",
    ) -> None:
        self._client = client
        self._asks = asks
        self._listens = listens
        self._before = before
        self._skip = skip
        self._checkpoints: dict[str, dict[str, Any]] = {}  # by the id they have here
        self._open: set[str] = set()
        self._told: asyncio.Queue[Event | BaseException | None] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._cursor = 0

    @property
    def is_empty(self) -> bool:
        """Nothing waits, as far as was told from here."""
        return not self._open

    def heading(self, ask: Ask) -> str:
        return "Checkpoint" if ask.id in self._checkpoints else ""

    def checkpoint_of(self, ask: Ask) -> dict[str, Any] | None:
        """The checkpoint as the desk told it, where this stands for one."""
        return self._checkpoints.get(ask.id)

    async def look_at(self, checkpoint: str) -> None:
        """Something became of a checkpoint."""
        self._hear(to_plain(await self._client.checkpoints.get(checkpoint)))

    async def _look(self) -> None:
        """Something may have become of any of them."""
        listed = await self._listed()
        waiting = {OURS + told["id"] for told in listed}
        for told in listed:
            self._hear(told)
        for id in [id for id in self._open if id in self._checkpoints and id not in waiting]:
            await self.look_at(id.removeprefix(OURS))

    async def _listed(self) -> list[dict[str, Any]]:
        return [to_plain(each) for each in await self._client.checkpoints.list(state="open")]

    def _hear(self, told: dict[str, Any]) -> None:
        id = OURS + told["id"]
        is_new = id not in self._open
        self._checkpoints[id] = told
        if told["state"] == "open" and is_new:
            self._tell(Asked, told)
        elif told["state"] != "open" and not is_new:
            self._tell(Answered if told["state"] == "given" else Withdrawn, told)

    def withdraw(self) -> None:
        """The run has ended, so nobody waits for its checkpoints."""
        for id in [id for id in self._open if id in self._checkpoints]:
            self._tell(Withdrawn, {**self._checkpoints[id], "state": "withdrawn"})

    def _tell(self, kind: type[Event], checkpoint: dict[str, Any]) -> None:
        ask = self._to_ask(checkpoint)
        self._note(ask)
        self._told.put_nowait(kind(cursor=self._cursor, at=datetime.now(UTC), ask=ask))

    def _to_ask(self, checkpoint: Mapping[str, Any]) -> Ask:
        ask = to_ask(checkpoint, skip=self._skip)
        return replace(ask, id=OURS + ask.id)

    def _note(self, ask: Ask) -> None:
        if ask.state == "asked":
            self._open.add(ask.id)
        else:
            self._open.discard(ask.id)

    # As a channel sees it -------------------------------------------------------------------------------------------

    async def asks(
        self,
        *,
        state: State | None = None,
        agent: str | None = None,
        session: str | None = None,
        run: str | None = None,
    ) -> AsyncIterator[Ask]:
        found = [ask async for ask in self._asks.asks(state=state, agent=agent, session=session, run=run)]
        if state in (None, "asked"):
            if self._listens:
                waiting = await self._listed()
                self._checkpoints |= {OURS + told["id"]: told for told in waiting}
            else:
                waiting = [told for id, told in self._checkpoints.items() if id in self._open]
            found += map(self._to_ask, waiting)
        for ask in found:
            self._note(ask)
        if found:
            self._before()
        for ask in found:
            yield ask

    async def events(
        self,
        *,
        after: int | None = None,
        session: str | None = None,
        run: str | None = None,
        worker: str | None = None,
    ) -> AsyncIterator[Event]:
        tasks = [asyncio.create_task(self._follow(after))]
        if self._listens:
            tasks.append(asyncio.create_task(self._keep_looking()))
        try:
            while (told := await self._told.get()) is not None:
                if isinstance(told, BaseException):
                    raise told
                if isinstance(told, Asked):
                    self._before()
                yield told
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _follow(self, after: int | None) -> None:
        """What agents ask, until the desk closes."""
        also = {"checkpoints": self._changed.set} if self._listens else None
        try:
            async for event in self._asks.events(after=after, also=also):
                self._cursor = event.cursor
                self._note(event.ask)
                self._told.put_nowait(event)
        except HandraiseError as problem:
            self._told.put_nowait(problem)
        else:
            self._told.put_nowait(None)

    async def _keep_looking(self) -> None:
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._look()
        except HandraiseError as problem:
            self._told.put_nowait(problem)

    async def cursor(self) -> int:
        return await self._asks.cursor()

    async def get(self, id: str) -> Ask:
        if id not in self._checkpoints:
            return await self._asks.get(id)
        self._checkpoints[id] = to_plain(await self._client.checkpoints.get(id.removeprefix(OURS)))
        return self._to_ask(self._checkpoints[id])

    async def answer(self, id: str, answer: Answer) -> Ask:
        known = self._checkpoints.get(id)
        if known is None:
            ended = await self._asks.answer(id, answer)
            self._note(ended)
            return ended
        output = output_of(known, self._to_ask({**known, "state": "open"}), answer)
        try:
            given = await self._client.checkpoints.give(known["id"], output, by=answer.by, via=answer.via)
            self._checkpoints[id] = to_plain(given)
        except OutputDoesNotFit as misfit:
            problems = misfit.fields.get("problems") or [{"problem": misfit.message}]
            raise AnswerDoesNotFit([{"question": None, "problem": _sentence(each)} for each in problems]) from None
        except RunEnded as beaten:
            if (await self.get(id)).state == "answered":
                raise AlreadyAnswered(beaten.message) from None
            raise AskWithdrawn(known["id"]) from None
        self._open.discard(id)
        return self._to_ask(self._checkpoints[id])

    async def reject(self, id: str, *, reason: str | None = None, by: str = "", via: str = "") -> Ask:
        if id in self._checkpoints:
            raise HandraiseError(
                "A checkpoint is not declined; Ctrl+C leaves it open, `handraise runs cancel` ends the run."
            )
        ended = await self._asks.reject(id, reason=reason, by=by, via=via)
        self._note(ended)
        return ended

    async def keep_waiting(self, id: str) -> Ask:
        if id in self._checkpoints:
            return replace(await self.get(id), deadline=None)
        return await self._asks.keep_waiting(id)


def _sentence(problem: dict[str, Any]) -> str:
    where, what = problem.get("at"), str(problem["problem"])
    return what if not where or what.startswith(f"{where}:") else f"{where}: {what}"
