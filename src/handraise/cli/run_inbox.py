"""What waits for a person in one run, as an inbox: what its agents ask, and its checkpoints beside that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from handraise.asks import Answer, Ask, State
from handraise.cli.calling import checkpoint_path
from handraise.cli.checkpoint_forms import output_of, to_ask
from handraise.client import Client
from handraise.errors import AlreadyAnswered, AnswerDoesNotFit, AskWithdrawn, HandraiseError, OutputDoesNotFit, RunEnded
from handraise.events import Answered, Asked, Event, Withdrawn

__all__ = ["RunInbox"]


class RunInbox:
    """Checkpoints are told to it by whoever reads the run's trace. `before` is called before somebody is asked."""

    def __init__(self, client: Client, run: dict[str, Any], *, before: Callable[[], None]) -> None:
        self._client = client
        self._run = run["id"]
        self._workflow = run["workflow"]
        self._before = before
        self._checkpoints: dict[str, dict[str, Any]] = {}
        self._open: set[str] = set()
        self._told: asyncio.Queue[Event | BaseException | None] = asyncio.Queue()
        self._cursor = 0

    @property
    def is_empty(self) -> bool:
        """Nothing waits, as far as was told from here."""
        return not self._open

    def heading(self, ask: Ask) -> str:
        return "Checkpoint" if ask.id in self._checkpoints else ""

    async def look_at(self, checkpoint: str) -> None:
        """Something became of a checkpoint."""
        told = await self._client.call("GET", checkpoint_path(checkpoint))
        is_new = checkpoint not in self._open
        self._checkpoints[checkpoint] = told
        if told["state"] == "open" and is_new:
            self._tell(Asked, told)
        elif told["state"] != "open" and not is_new:
            self._tell(Answered if told["state"] == "given" else Withdrawn, told)

    def withdraw(self) -> None:
        """The run has ended, so nobody waits for its checkpoints."""
        for id in [id for id in self._open if id in self._checkpoints]:
            self._tell(Withdrawn, {**self._checkpoints[id], "state": "withdrawn"})

    def _tell(self, kind: type[Event], checkpoint: dict[str, Any]) -> None:
        ask = to_ask(checkpoint, workflow=self._workflow)
        self._note(ask)
        self._told.put_nowait(kind(cursor=self._cursor, at=datetime.now(UTC), ask=ask))

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
        found = [ask async for ask in self._client.asks(state=state, agent=agent, session=session, run=self._run)]
        if state in (None, "asked"):
            waiting = [told for id, told in self._checkpoints.items() if id in self._open]
            found += [to_ask(told, workflow=self._workflow) for told in waiting]
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
        following = asyncio.create_task(self._follow(after))
        try:
            while (told := await self._told.get()) is not None:
                if isinstance(told, BaseException):
                    raise told
                if isinstance(told, Asked):
                    self._before()
                yield told
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def _follow(self, after: int | None) -> None:
        """What its agents ask, until the desk closes."""
        try:
            async for event in self._client.events(after=after, run=self._run):
                self._cursor = event.cursor
                self._note(event.ask)
                self._told.put_nowait(event)
        except HandraiseError as problem:
            self._told.put_nowait(problem)
        else:
            self._told.put_nowait(None)

    async def cursor(self) -> int:
        return await self._client.cursor()

    async def get(self, id: str) -> Ask:
        if id not in self._checkpoints:
            return await self._client.get(id)
        self._checkpoints[id] = await self._client.call("GET", checkpoint_path(id))
        return to_ask(self._checkpoints[id], workflow=self._workflow)

    async def answer(self, id: str, answer: Answer) -> Ask:
        known = self._checkpoints.get(id)
        if known is None:
            ended = await self._client.answer(id, answer)
            self._note(ended)
            return ended
        output = output_of(known, to_ask({**known, "state": "open"}, workflow=self._workflow), answer)
        try:
            body = {"output": output, "by": answer.by, "via": answer.via}
            self._checkpoints[id] = await self._client.call("POST", checkpoint_path(id), body=body)
        except OutputDoesNotFit as misfit:
            problems = misfit.fields.get("problems") or [{"problem": misfit.message}]
            raise AnswerDoesNotFit([{"question": None, "problem": _sentence(each)} for each in problems]) from None
        except RunEnded as beaten:
            if (await self.get(id)).state == "answered":
                raise AlreadyAnswered(beaten.message) from None
            raise AskWithdrawn(id) from None
        self._open.discard(id)
        return to_ask(self._checkpoints[id], workflow=self._workflow)

    async def reject(self, id: str, *, reason: str | None = None, by: str = "", via: str = "") -> Ask:
        if id in self._checkpoints:
            raise HandraiseError(
                "A checkpoint is not declined; Ctrl+C leaves it open, `handraise cancel` ends the run."
            )
        ended = await self._client.reject(id, reason=reason, by=by, via=via)
        self._note(ended)
        return ended

    async def keep_waiting(self, id: str) -> Ask:
        if id in self._checkpoints:
            return replace(await self.get(id), deadline=None)
        return await self._client.keep_waiting(id)


def _sentence(problem: dict[str, Any]) -> str:
    where, what = problem.get("at"), str(problem["problem"])
    return what if not where or what.startswith(f"{where}:") else f"{where}: {what}"
